"""Deadline: when a wait ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

from kbatch.timeouts import checked_seconds


@final
class Deadline:
    """The time `seconds` from now on a monotonic clock; None is never. TypeError or ValueError unless it is a
    number of at least 0.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + checked_seconds(seconds)

    @property
    def left(self) -> float | None:
        """The seconds until then; 0.0 when it is over, None for never."""
        return None if self._end is None else max(0.0, self._end - self._clock())

    @property
    def is_over(self) -> bool:
        return self.left == 0.0

    def within(self, seconds: float) -> Deadline:
        """Return this deadline, or the one `seconds` from now, whichever comes first."""
        left = self.left
        return Deadline(seconds if left is None else min(left, seconds), self._clock)
