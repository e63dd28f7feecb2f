"""The wait before the next attempt."""

from __future__ import annotations

from random import Random

from kbatch._native.io.backoff import backoff_ns, grows

NS_PER_MS = 1_000_000
NEVER_NS = 2**63 - 1


class ExponentialBackoff:
    """Waits that double with each failure. Random jitter keeps clients from coming back all at once.

    After org.apache.kafka.common.utils.ExponentialBackoff (KIP-580, KIP-601).

    Parameters
    ----------
    initial_ms, max_ms : int
        The first wait, and the maximum of the doubling. If they are equal, there is no jitter.
    random : random.Random
    """

    __slots__ = ("_grows", "_initial_ns", "_max_ns", "_random")

    def __init__(self, initial_ms: int, max_ms: int, random: Random) -> None:
        self._initial_ns = min(initial_ms * NS_PER_MS, NEVER_NS)
        self._max_ns = min(max_ms * NS_PER_MS, NEVER_NS)
        self._grows = grows(self._initial_ns, self._max_ns)
        self._random = random

    def delay_ns(self, attempts: int) -> int:
        """Return the wait after `attempts` + 1 failures."""
        fraction = self._random.random() if self._grows else 0.0
        return backoff_ns(self._initial_ns, self._max_ns, attempts, fraction)
