"""How a thread waits. Over the waiters in this module coroutines never suspend: they block the calling
thread, and `at_once` runs them like functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import call
from typing import TYPE_CHECKING, final

from kbatch._native.io import interrupts

if TYPE_CHECKING:
    from kbatch.waiting.deadline import Deadline


def in_one_step(*functions: Callable[[], object]) -> None:
    """Call native functions without a Python instruction between them, where a signal handler could run."""
    deque(map(call, functions), maxlen=0)


@final
class ThreadWaiter:
    """The Waiter of a thread, which sleeps in native code."""

    def __init__(self) -> None:
        self.event = interrupts.NativeEvent()
        self.set = self.event.set

    async def wait(self, deadline: Deadline) -> bool:
        return self.event.wait(deadline.left)
