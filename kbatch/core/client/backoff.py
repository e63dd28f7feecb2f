"""How long to wait before the next attempt."""

from __future__ import annotations

import math
from random import Random

NS_PER_MS = 1_000_000
NEVER_NS = 2**63 - 1


class ExponentialBackoff:
    """Waits that double with each failure, spread by chance so that clients do not come back all at once.

    After org.apache.kafka.common.utils.ExponentialBackoff (KIP-580, KIP-601).

    Parameters
    ----------
    initial_ms, max_ms : int
        Of the first wait, and where the doubling ends; where they are the same, nothing is left to chance.
    random : random.Random
    jitter : float
        By what part a wait may be shorter or longer.
    """

    __slots__ = ("_initial_ns", "_jitter", "_max_doublings", "_max_ns", "_random")

    def __init__(self, initial_ms: int, max_ms: int, random: Random, *, jitter: float = 0.2) -> None:
        initial_ms = min(initial_ms, max_ms)
        self._initial_ns = initial_ms * NS_PER_MS
        self._max_ns = max_ms * NS_PER_MS
        self._max_doublings = math.log2(max_ms / max(initial_ms, 1)) if max_ms > initial_ms else 0.0
        self._random = random
        self._jitter = jitter

    def delay_ns(self, attempts: int) -> int:
        """The wait after `attempts` + 1 failures."""
        if not self._max_doublings:
            return self._initial_ns
        factor = self._random.uniform(1 - self._jitter, 1 + self._jitter)
        return min(int(factor * self._initial_ns * 2.0 ** min(attempts, self._max_doublings)), self._max_ns)
