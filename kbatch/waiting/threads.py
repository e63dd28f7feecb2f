"""Waiting: for deliveries, for memory, for something to change.

Theory of operation. What a producer does is written once, as coroutines. What they await is from here for
Producer, and holds up the calling thread: such a coroutine never suspends, and `at_once` runs it like any
function. For AsyncProducer it is from `kbatch.waiting.event_loop`, and suspends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from operator import call
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, final

from kbatch._native.io import interrupts
from kbatch._native.send.accumulator import Refusal
from kbatch.waiting.deadline import Deadline

if TYPE_CHECKING:
    from kbatch._native.send.accumulator import RecordAccumulator

T = TypeVar("T")
P = ParamSpec("P")


def blocking(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The method for callers that are no coroutines themselves."""

    @wraps(method)
    def call_at_once(*arguments: P.args, **keywords: P.kwargs) -> T:
        return interrupts.at_once(method, *arguments, **keywords)

    return call_at_once


@final
class MemoryLine:
    """The Line of threads, which sleep in native code: no signal handler runs where it could leave a place in
    the line behind."""

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


def in_one_step(*functions: Callable[[], object]) -> None:
    """Calls native functions, with no line of Python between them."""
    deque(map(call, functions), maxlen=0)


@final
class Marker:
    """What stands among completions, and calls `reached` when those before it are dealt with."""

    has_callbacks = True
    record_count = 0

    def __init__(self, reached: Callable[[], object]) -> None:
        self._reached = reached

    def run_callbacks(self, threw: object) -> int:
        self._reached()
        return 0


@final
class ThreadEvent:
    """An Event for threads."""

    def __init__(self) -> None:
        self._event = interrupts.Event()
        self.set = self._event.set
        self.is_set = self._event.is_set

    async def wait(self, deadline: Deadline) -> bool:
        return self._event.wait(deadline.left)


@final
class Change:
    """Something that threads wait for to change; whoever tells of it never waits for a lock."""

    def __init__(self) -> None:
        self._waiting: deque[interrupts.Event] = deque()

    def notify(self) -> None:
        with suppress(IndexError):
            while True:
                self._waiting.popleft().set()

    async def wait_until(self, is_so: Callable[[], bool], deadline: Deadline) -> bool:
        while True:
            change = interrupts.Event()
            self._waiting.append(change)  # before it is asked, so that no change is missed
            try:
                if is_so():
                    return True
                if not change.wait(deadline.left):
                    return is_so()
            finally:
                with suppress(ValueError):  # it was told
                    self._waiting.remove(change)
