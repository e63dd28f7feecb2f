"""Waiting on an event loop: for what `kbatch.waiting.threads` has for threads.

Theory of operation. All of it belongs to the thread of the loop, but for `LoopEvent.set`. Who waits has a
future, which is set when it is worth looking again: what was waited for is looked at and taken by the waiting
task itself, in one go, and nothing is done for a task behind its back. So a task that is cancelled while it
waits has nothing, and leaves nothing behind.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, final

from kbatch._native.send.accumulator import Refusal
from kbatch.waiting.deadline import Deadline

if TYPE_CHECKING:
    from kbatch._native.batch.buffer_pool import Waiter
    from kbatch._native.send.accumulator import RecordAccumulator

T = TypeVar("T")


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@final
class Bell:
    """Calls those who wait; who comes later waits for the next time."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}  # in order

    def ring(self) -> None:
        for future in self._waiting:
            _settle(future)

    async def heard(self, deadline: Deadline) -> None:
        """Until it rings, or the time is over."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        left = deadline.left
        timer = None if left is None else loop.call_later(left, _settle, future)
        self._waiting[future] = None
        try:
            await future
        finally:
            del self._waiting[future]
            if timer is not None:
                timer.cancel()


@final
class LoopEvent:
    """An Event for tasks; any thread may set it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._bell = Bell()
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        if asyncio._get_running_loop() is self._loop:
            self._bell.ring()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._bell.ring)

    def is_set(self) -> bool:
        return self._is_set

    async def wait(self, deadline: Deadline) -> bool:
        if not self._is_set and not deadline.is_over:
            await self._bell.heard(deadline)
        return self._is_set


@final
class LoopChange:
    """Something that tasks wait for to change."""

    def __init__(self) -> None:
        self._bell = Bell()
        self.notify = self._bell.ring

    async def wait_until(self, is_so: Callable[[], bool], deadline: Deadline) -> bool:
        while not is_so():
            if deadline.is_over:
                return False
            await self._bell.heard(deadline)
        return True


@final
class LoopLine:
    """The Line of tasks. `freed` wakes the loop, which calls `look` then."""

    def __init__(self, freed: Callable[[], object]) -> None:
        self.freed = freed
        self._waiting: deque[tuple[Waiter, Bell]] = deque()

    async def wait(
        self,
        accumulator: "RecordAccumulator",
        append: Callable[[], T | Refusal],
        deadline: Deadline,
        *,
        goes_first: bool = False,
    ) -> T | Refusal:
        mine = waiter, bell = accumulator.begin_waiting(goes_first=goes_first), Bell()
        (self._waiting.appendleft if goes_first else self._waiting.append)(mine)
        try:
            while True:
                answer = append() if waiter.may_try() else Refusal.MEMORY
                if answer is not Refusal.MEMORY or deadline.is_over:
                    return answer
                await bell.heard(deadline)
        finally:
            self._waiting.remove(mine)
            waiter.leave()
            self.look()

    def look(self) -> None:
        """There may be memory for the first; a task that got some calls the next."""
        if self._waiting and self._waiting[0][0].is_rung:
            self._waiting[0][1].ring()

    def wake_first(self, accumulator: "RecordAccumulator") -> None:
        accumulator.memory.wake_first()
        self.look()
