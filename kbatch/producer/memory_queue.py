"""MemoryQueue: how callers of a producer wait for memory, first come, first served.

The caller itself appends its record when its turn comes; no other code acts for it. So a task that is
cancelled while it waits has sent nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, final

from kbatch._native.send.accumulator import Refusal
from kbatch.waiting.conditions import Condition

if TYPE_CHECKING:
    from kbatch._native.batch.buffer_pool import MemoryWaiter
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch.waiting.deadline import Deadline
    from kbatch.waiting.protocols import Waiter

T = TypeVar("T")


class MemoryQueue(Protocol):
    """The queue of callers that wait for memory: first come, first served.

    Attributes
    ----------
    freed : callable or None
        Called on any thread, by native code too, when the first in the queue has to check again.
    """

    @property
    def freed(self) -> Callable[[], object] | None: ...
    async def wait(
        self,
        accumulator: RecordAccumulator,
        append: Callable[[], T | Refusal],
        deadline: Deadline,
        *,
        goes_first: bool = False,
    ) -> T | Refusal:
        """Return the result of `append()` when it is the caller's turn and there is memory; Refusal.MEMORY at
        the deadline. With `goes_first` its turn comes before those of earlier callers.
        """

    def wake_first(self, accumulator: RecordAccumulator) -> None:
        """Make the first in the queue check again, and each other after those before it have left."""


@final
class ThreadQueue:
    """The MemoryQueue of threads, which sleep in native code, so that no signal handler can prevent a caller
    from leaving the queue.
    """

    freed = None

    async def wait(
        self,
        accumulator: RecordAccumulator,
        append: Callable[[], T | Refusal],
        deadline: Deadline,
        *,
        goes_first: bool = False,
    ) -> T | Refusal:
        return accumulator.await_memory(append, deadline.left, goes_first=goes_first)

    def wake_first(self, accumulator: RecordAccumulator) -> None:
        accumulator.memory.wake_first()


class _Queued(NamedTuple):
    waiter: MemoryWaiter
    memory: Condition


@final
class TaskQueue:
    """The MemoryQueue of tasks. Its owner calls `look` after `freed` was called."""

    def __init__(self, new_waiter: Callable[[], Waiter], freed: Callable[[], object]) -> None:
        self.freed = freed
        self._new_waiter = new_waiter
        self._waiting: deque[_Queued] = deque()

    async def wait(
        self,
        accumulator: RecordAccumulator,
        append: Callable[[], T | Refusal],
        deadline: Deadline,
        *,
        goes_first: bool = False,
    ) -> T | Refusal:
        outcome: T | Refusal = Refusal.MEMORY
        waiter = accumulator.begin_waiting(goes_first=goes_first)
        mine = _Queued(waiter, Condition(self._new_waiter))

        def is_served() -> bool:
            nonlocal outcome
            if waiter.may_try():
                outcome = append()
            return outcome is not Refusal.MEMORY

        (self._waiting.appendleft if goes_first else self._waiting.append)(mine)
        try:
            await mine.memory.wait_until(is_served, deadline)
            return outcome
        finally:
            self._withdraw(mine)

    def _withdraw(self, mine: _Queued) -> None:
        self._waiting.remove(mine)
        mine.waiter.withdraw()
        self.look()

    def look(self) -> None:
        """Make the first in the queue check again, if there may be memory for it."""
        if self._waiting and self._waiting[0].waiter.is_notified:
            self._waiting[0].memory.notify()

    def wake_first(self, accumulator: RecordAccumulator) -> None:
        accumulator.memory.wake_first()
        self.look()
