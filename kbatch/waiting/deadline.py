"""Deadline: when a wait ends."""

from __future__ import annotations

import time
from typing import final

# Locks take no more than some centuries; sockets, less.
_LONGEST_SECONDS = 1e8


@final
class Deadline:
    """`seconds` from now; None is never. TypeError for what is no number."""

    def __init__(self, seconds: float | None) -> None:
        try:
            self._end = None if seconds is None else time.monotonic() + seconds
        except TypeError:
            raise TypeError(f"timeout must be a number of seconds, or None, got {seconds!r}") from None

    @property
    def left(self) -> float | None:
        """Seconds, 0.0 when it is over; of a very long time less than there is."""
        if self._end is None:
            return None
        return min(max(0.0, self._end - time.monotonic()), _LONGEST_SECONDS)

    @property
    def is_over(self) -> bool:
        return self.left == 0.0
