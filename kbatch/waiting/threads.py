"""How a thread waits. Over the waiters in this module a producer's coroutines never suspend: they block the
calling thread, and `at_once` runs them like functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import call
from typing import TYPE_CHECKING, TypeVar, final

from kbatch._native.io import interrupts
from kbatch._native.send.accumulator import Refusal

if TYPE_CHECKING:
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch.waiting.deadline import Deadline

T = TypeVar("T")


def in_one_step(*functions: Callable[[], object]) -> None:
    """Call native functions without a Python instruction between them, where a signal handler could run."""
    deque(map(call, functions), maxlen=0)


@final
class ThreadWaiter:
    """The Waiter of a thread, which sleeps in native code."""

    def __init__(self) -> None:
        self._event = interrupts.Event()
        self.set = self._event.set

    async def wait(self, deadline: Deadline) -> bool:
        return self._event.wait(deadline.left)


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
