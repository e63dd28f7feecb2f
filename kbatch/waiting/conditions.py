"""Conditions, events and the queue for memory, over the waiters of threads, tasks or virtual time.

Theory of operation. A waiting caller has a waiter, which is set when something may have changed. The caller
itself checks and takes what it waited for, in one step; no other code acts for it. So a task that is
cancelled while it waits has taken nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar, final

from kbatch._native.send.accumulator import Refusal

if TYPE_CHECKING:
    from kbatch._native.batch.buffer_pool import Waiter as Place
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch.waiting.deadline import Deadline
    from kbatch.waiting.protocols import Waiter

T = TypeVar("T")


class Condition:
    """Something whose changes callers wait for. `notify` never waits for a lock."""

    def __init__(self, new_waiter: Callable[[], Waiter]) -> None:
        self._new_waiter = new_waiter
        self._waiting: dict[Waiter, None] = {}  # in order

    def notify(self) -> None:
        """Make all callers check again, in the order in which they came. Any thread may call it."""
        for waiter in tuple(self._waiting):
            self._waiting.pop(waiter, None)
            waiter.set()

    async def wait_until(self, is_so: Callable[[], bool], deadline: Deadline) -> bool:
        """Return True once `is_so()` is true, which is called after every change; False if the deadline comes
        first. Its exceptions propagate.
        """
        while True:
            waiter = self._new_waiter()
            self._waiting[waiter] = None  # before the check, so that no change is missed
            try:
                if is_so():
                    return True
                if not await waiter.wait(deadline):
                    return is_so()
            finally:
                self._waiting.pop(waiter, None)


@final
class Event(Condition):
    """A condition that becomes true once."""

    _is_set = False

    def set(self) -> None:
        self._is_set = True
        self.notify()

    def is_set(self) -> bool:
        return self._is_set

    async def wait(self, deadline: Deadline) -> bool:
        """Return True after it was set, False if the deadline comes first."""
        return await self.wait_until(self.is_set, deadline)


class _Queued(NamedTuple):
    place: Place
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
        place = accumulator.begin_waiting(goes_first=goes_first)
        mine = _Queued(place, Condition(self._new_waiter))

        def is_served() -> bool:
            nonlocal outcome
            if place.may_try():
                outcome = append()
            return outcome is not Refusal.MEMORY

        (self._waiting.appendleft if goes_first else self._waiting.append)(mine)
        try:
            await mine.memory.wait_until(is_served, deadline)
            return outcome
        finally:
            self._leave(mine)

    def _leave(self, mine: _Queued) -> None:
        self._waiting.remove(mine)
        mine.place.leave()
        self.look()

    def look(self) -> None:
        """Make the first in the queue check again, if there may be memory for it."""
        if self._waiting and self._waiting[0].place.is_rung:
            self._waiting[0].memory.notify()

    def wake_first(self, accumulator: RecordAccumulator) -> None:
        accumulator.memory.wake_first()
        self.look()
