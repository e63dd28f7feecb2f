"""Throttles: how much clients did lately, and for how long they must wait if that is above their quotas.

After org.apache.kafka.common.metrics.stats.Rate and TokenBucket, with eleven windows of a second, as Kafka's
quotas have them: so a client may do in a moment what its quota allows in ten seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

WINDOW_MS = 1000  # quota.window.size.seconds
WINDOWS = 11  # quota.window.num
BURST_SECONDS = (WINDOWS - 1) * WINDOW_MS // 1000  # the windows before the present one


class Window:
    """What happened from `start_ms` on, for a second."""

    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = self.last_ms = start_ms
        self.amount = 0.0


class Rate:
    """What was counted in the last windows, bytes or connections, compared with a limit a second."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: deque[Window] = deque()

    def record(self, amount: float, now_ms: int) -> None:
        if not self._windows or now_ms - self._windows[-1].start_ms >= WINDOW_MS:
            self._windows.append(Window(now_ms))
        self._windows[-1].amount += amount
        self._windows[-1].last_ms = now_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time after which the rate is the limit again; 0 if it is below (QuotaUtils)."""
        while self._windows and now_ms - self._windows[0].last_ms >= WINDOWS * WINDOW_MS:
            self._windows.popleft()
        if not self._windows:
            return 0
        elapsed_ms = now_ms - self._windows[0].start_ms
        elapsed_ms += max(WINDOWS - 1 - elapsed_ms // WINDOW_MS, 0) * WINDOW_MS
        needed_ms = sum(window.amount for window in self._windows) / limit * 1000
        return max(round(needed_ms - elapsed_ms), 0)


class MutationTokens:
    """Tokens that fill up at a rate; what takes more than there are makes the next ones wait (KIP-599)."""

    __slots__ = ("_filled_ms", "_tokens")

    def __init__(self, rate: float, now_ms: int) -> None:
        self._tokens = rate * WINDOWS * WINDOW_MS / 1000
        self._filled_ms = now_ms

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """Return the time until nothing is owed."""
        full = rate * WINDOWS * WINDOW_MS / 1000
        self._tokens = min(full, self._tokens + rate * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms
        return max(round(-self._tokens / rate * 1000), 0)

    def take(self, count: int) -> None:
        self._tokens -= count


class Stopwatch:
    """The time that a request takes of the broker's thread: up to now, or until `stop` was called."""

    __slots__ = ("_began_ns", "_clock_ns", "_taken_ns")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._began_ns = clock_ns()
        self._taken_ns: int | None = None

    def stop(self) -> None:
        self._taken_ns = self.taken_ns

    @property
    def taken_ns(self) -> int:
        return self._clock_ns() - self._began_ns if self._taken_ns is None else self._taken_ns


class Throttles:
    """The rates and tokens of a node's clients, by quota and by who shares it."""

    def __init__(self) -> None:
        self._rates: dict[Hashable, Rate] = {}
        self._tokens: dict[Hashable, MutationTokens] = {}

    def rate(self, key: Hashable) -> Rate:
        return self._rates.setdefault(key, Rate())

    def tokens(self, key: Hashable, rate: float, now_ms: int) -> MutationTokens:
        if key not in self._tokens:
            self._tokens[key] = MutationTokens(rate, now_ms)
        return self._tokens[key]
