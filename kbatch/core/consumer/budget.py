"""RowsAwaited: a poll that waits for more rows than were fetched.

It lifts the shares of the budget (kbatch._native.fetch.budget), and learns when what the program has not read
uses up the memory.
"""

from __future__ import annotations

from collections.abc import Callable


class RowsAwaited:
    """A poll that waits for more rows than were fetched.

    Parameters
    ----------
    notify : callable
        Called when `is_memory_used_up` has changed.

    Attributes
    ----------
    is_memory_used_up : bool
        True if partitions are not fetched, since what the program has not read takes the memory.
    """

    __slots__ = ("_notify", "is_memory_used_up")

    def __init__(self, notify: Callable[[], object]) -> None:
        self._notify = notify
        self.is_memory_used_up = False

    def note(self, is_memory_used_up: bool) -> None:
        """Record whether the memory is used up, after the requests that are possible were sent."""
        if is_memory_used_up is not self.is_memory_used_up:
            self.is_memory_used_up = is_memory_used_up
            self._notify()
