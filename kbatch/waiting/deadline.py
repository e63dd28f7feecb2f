"""Deadline: when a wait ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

# Locks take no more than some centuries; sockets, less.
_LONGEST_SECONDS = 1e8


@final
class Deadline:
    """The time `seconds` from now on a monotonic clock; None is never. TypeError unless it is a number."""

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        try:
            self._end = None if seconds is None else clock() + seconds
        except TypeError:
            raise TypeError(f"timeout must be a number of seconds, or None, got {seconds!r}") from None

    @property
    def left(self) -> float | None:
        """The seconds until then, at most _LONGEST_SECONDS; 0.0 when it is over, None for never."""
        if self._end is None:
            return None
        return min(max(0.0, self._end - self._clock()), _LONGEST_SECONDS)

    @property
    def is_over(self) -> bool:
        return self.left == 0.0

    def within(self, seconds: float) -> Deadline:
        """Return this deadline, or the one `seconds` from now, whichever comes first."""
        left = self.left
        return Deadline(seconds if left is None else min(left, seconds), self._clock)
