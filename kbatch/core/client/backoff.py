"""The wait before the next attempt: what a client does at most about errors.

Whatever is repeated because of errors, a request, the reading of a partition, a membership, a session, is a
`Retried`. Its `back_off` is the one rule: the first attempts may follow at once, and then waits double. Time
without failures ends a row of them. A success does not by itself, since a broker may refuse for ever what
follows from it, as a Fetch after each reset, or a heartbeat after each join; an owner that knows better sets
`attempts` to 0.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from kbatch._native.io.backoff import backoff_ns, grows

NS_PER_MS = 1_000_000
NEVER_NS = 2**63 - 1
# The shortest wait before the next look at a node.
SHORTEST_DELAY_NS = NS_PER_MS


class ExponentialBackoff:
    """Waits that double with each failure. Random jitter keeps clients from coming back all at once.

    After org.apache.kafka.common.utils.ExponentialBackoff (KIP-580, KIP-601).

    Parameters
    ----------
    initial_ms, max_ms : int
        The first wait, and the maximum of the doubling. If they are equal, there is no jitter.
    random : random.Random

    Attributes
    ----------
    max_ns : int
        The maximum of the doubling.
    """

    __slots__ = ("_grows", "_initial_ns", "_random", "max_ns")

    def __init__(self, initial_ms: int, max_ms: int, random: Random) -> None:
        self._initial_ns = min(initial_ms * NS_PER_MS, NEVER_NS)
        self.max_ns = min(max_ms * NS_PER_MS, NEVER_NS)
        self._grows = grows(self._initial_ns, self.max_ns)
        self._random = random

    def delay_ns(self, attempts: int) -> int:
        """Return the wait after `attempts` + 1 failures."""
        fraction = self._random.random() if self._grows else 0.0
        return backoff_ns(self._initial_ns, self.max_ns, attempts, fraction)


class _Repeated(Protocol):
    attempts: int
    not_before_ns: int


class Retrying:
    """The rule of Retried, for classes that have its attributes themselves."""

    __slots__ = ()

    def back_off(self: _Repeated, backoff: ExponentialBackoff, now_ns: int, *, at_once: int = 0) -> None:
        """Record a failure: wait before the next attempt, longer after each failure in a row. The first
        `at_once` failures are followed by an attempt at once.
        """
        if now_ns - self.not_before_ns > backoff.max_ns:
            self.attempts = 0
        waits = self.attempts - at_once
        self.not_before_ns = now_ns + (backoff.delay_ns(waits) if waits >= 0 else 0)
        self.attempts += 1


class Retried(Retrying):
    """What is tried again after failures.

    Attributes
    ----------
    attempts : int
        Failures in a row.
    not_before_ns : int
        Time before which it is not tried again.
    """

    __slots__ = ("attempts", "not_before_ns")

    def __init__(self) -> None:
        self.attempts = 0
        self.not_before_ns = 0
