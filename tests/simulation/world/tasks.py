"""How a task of virtual time waits. Its clock stands still while code runs, and jumps in between."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, final

from kbatch.waiting.deadline import Deadline
from tests.simulation.world.schedule import Schedule


@final
class VirtualWaiter:
    """The Waiter of a VirtualTask, which continues in an action of its own after `set`, not within it."""

    event = None

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._is_set = False
        self._resume: Callable[[], None] | None = None

    def set(self) -> None:
        self._is_set = True
        self._wake()

    async def wait(self, deadline: Deadline) -> bool:
        left = deadline.left
        if not self._is_set and left != 0.0:
            # rounded up to whole nanoseconds, so that the deadline is over when it wakes up
            timer = None if left is None else self._schedule.after(int(left * 1e9) + 1, self._wake)
            try:
                await _suspended(self)
            finally:
                self._resume = None
                if timer is not None:
                    timer.cancel()
        return self._is_set

    def resumes(self, resume: Callable[[], None]) -> None:
        """Call `resume()` when the wait is over."""
        self._resume = resume

    def _wake(self) -> None:
        resume, self._resume = self._resume, None
        if resume is not None:
            self._schedule.after(0, resume)


@coroutine
def _suspended(waiter: VirtualWaiter) -> Generator[VirtualWaiter, None, None]:
    yield waiter


@final
class VirtualTask:
    """Runs a coroutine that waits by VirtualWaiters only; `go` starts it.

    Attributes
    ----------
    is_over : bool
        True if it has returned.
    """

    def __init__(self, script: Coroutine[VirtualWaiter, None, Any]) -> None:
        self.is_over = False
        self._script = script

    def go(self) -> None:
        """Run up to the next wait, or to the end. Exceptions of the coroutine propagate."""
        try:
            waiter = self._script.send(None)
        except StopIteration:
            self.is_over = True
        else:
            waiter.resumes(self.go)

    def kill(self) -> None:
        """Close the coroutine where it waits."""
        self._script.close()


async def sleep(schedule: Schedule, delay_ns: int) -> None:
    """Return `delay_ns` from now."""
    waiter = VirtualWaiter(schedule)
    timer = schedule.after(delay_ns, waiter.set)
    try:
        await waiter.wait(Deadline(None))
    finally:
        timer.cancel()
