"""Conditions and events, over the waiters of threads or tasks.

Theory of operation. A waiting caller has a waiter, which is set when something may have changed. The caller
itself checks and takes what it waited for, in one step; no other code acts for it. So a task that is
cancelled while it waits has taken nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from kbatch._native.io.waiters import Waiters

if TYPE_CHECKING:
    from kbatch.waiting.deadline import Deadline
    from kbatch.waiting.protocols import Waiter


class Condition:
    """Something whose changes callers wait for. `notify` never waits for a lock.

    Parameters
    ----------
    new_waiter : callable
        Returns a Waiter for the caller.
    within : Condition or None
        A wider condition, whose changes wake callers of this one, too.

    Attributes
    ----------
    waiting : Waiters
        The waiters of callers.
    """

    def __init__(self, new_waiter: Callable[[], Waiter], within: Condition | None = None) -> None:
        self._new_waiter = new_waiter
        self._within = within
        self.waiting = Waiters()

    def notify(self) -> bool:
        """Make all callers check again, in the order in which they came. True if there were any. Any thread
        may call it.
        """
        return self.waiting.notify()

    async def wait_until(self, is_so: Callable[[], bool], deadline: Deadline) -> bool:
        """Return True once `is_so()` is true, which is called after every change; False if the deadline comes
        first. Its exceptions propagate.
        """
        while True:
            waiter = self._new_waiter()
            self.waiting.add(waiter)  # before the check, so that no change is missed
            try:
                if self._within is not None:
                    self._within.waiting.add(waiter)
                if is_so():
                    return True
                if not await waiter.wait(deadline):
                    return is_so()
            finally:
                self.waiting.discard(waiter)
                if self._within is not None:
                    self._within.waiting.discard(waiter)


@final
class AwaitableEvent(Condition):
    """A condition that becomes true once."""

    _is_set = False

    def set(self) -> None:
        self._is_set = True
        self.notify()

    def is_set(self) -> bool:
        return self._is_set
