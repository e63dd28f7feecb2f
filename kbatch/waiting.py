"""Waiting: for deliveries, for memory, for something to change.

Theory of operation. What a producer does is written once, as coroutines. What they await is from here for
Producer, and holds up the calling thread: such a coroutine never suspends, and `at_once` runs it like any
function. For AsyncProducer it is from `kbatch.loop_waiting`, and suspends.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import suppress
from functools import wraps
from operator import call
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar, final

from kbatch._native import interrupts
from kbatch._native.delivery import await_with
from kbatch._native.record_appender import Refusal
from kbatch.errors import IllegalStateError, KafkaTimeoutError

if TYPE_CHECKING:
    import asyncio

    from kbatch._native.accumulator import RecordAccumulator
    from kbatch._native.delivery import Delivery, RecordMetadata

T = TypeVar("T")
P = ParamSpec("P")


def blocking(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The method for callers that are no coroutines themselves."""

    @wraps(method)
    def call_at_once(*arguments: P.args, **keywords: P.kwargs) -> T:
        return interrupts.at_once(method, *arguments, **keywords)

    return call_at_once


class Waited(NamedTuple):
    """What `wait` found."""

    done: list[Delivery]
    not_done: list[Delivery]


def wait(deliveries: Iterable[Delivery], timeout: float | None = None) -> Waited:
    """Waits until all are known, or up to `timeout` seconds; which are, and which are not, in their order.

    It raises nothing, and does not count as asking a failed delivery why it failed.
    """
    waited = Waited([], [])
    deadline = Deadline(timeout)
    for delivery in deliveries:
        (waited.done if delivery.wait(deadline.left) else waited.not_done).append(delivery)
    return waited


def as_completed(deliveries: Iterable[Delivery], timeout: float | None = None) -> Iterator[Delivery]:
    """Yields each once it is known, the first known first.

    Raises
    ------
    KafkaTimeoutError
        Some are not known after `timeout` seconds.
    IllegalStateError
        In a callback, behind which the others' callbacks wait; `wait` is for there. On an event loop that
        would bring the answers; asyncio.as_completed is for there.
    """
    if getattr(threading.current_thread(), "runs_callbacks", False):
        raise IllegalStateError("as_completed() in a callback would wait for that callback; take wait()")
    known: SimpleQueue[Delivery] = SimpleQueue()
    deadline = Deadline(timeout)
    count = 0
    for delivery in deliveries:
        delivery.check_may_wait()
        delivery.add_done_callback(known.put)
        count += 1
    for number in range(count):
        try:
            yield known.get(timeout=deadline.left)
        except Empty:
            raise KafkaTimeoutError(
                f"after {timeout} s it is not known what became of {count - number} of {count} records"
            ) from None


# Locks take no more than some centuries; sockets, less.
_LONGEST_SECONDS = 1e8


@final
class Deadline:
    """`seconds` from now; None is never. TypeError for what is no number."""

    def __init__(self, seconds: float | None) -> None:
        try:
            self._end = None if seconds is None else time.monotonic() + seconds
        except TypeError:
            raise TypeError(f"timeout must be a number of seconds, or None; it is {seconds!r}") from None

    @property
    def left(self) -> float | None:
        """Seconds, 0.0 when it is over; of a very long time less than there is."""
        if self._end is None:
            return None
        return min(max(0.0, self._end - time.monotonic()), _LONGEST_SECONDS)

    @property
    def is_over(self) -> bool:
        return self.left == 0.0


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


class Event(Protocol):
    """It happens once, and is waited for."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    async def wait(self, deadline: Deadline) -> bool:
        """Whether it has happened, before the deadline."""


class Line(Protocol):
    """Those who wait for memory: first come, first served.

    Attributes
    ----------
    freed : callable or None
        Any thread calls it, native code too, when the first in line is to look again.
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
        """Return what `append()` gives when it is the caller's turn and there is memory; Refusal.MEMORY if
        there was none before the deadline. `goes_first`: before those who came earlier.
        """

    def wake_first(self, accumulator: RecordAccumulator) -> None:
        """Have the first in line look again, and the others when it has left."""


class Changing(Protocol):
    """Something that is waited for to change."""

    def notify(self) -> None: ...
    async def wait_until(self, is_so: Callable[[], bool], deadline: Deadline) -> bool:
        """Whether `is_so()`; it is asked after every change. What it raises comes out."""


class OwnerOfEngine(Protocol):
    """The network: a thread's, or an event loop's."""

    wake: Callable[[], object]

    @property
    def is_alive(self) -> bool: ...
    def stop(self) -> None: ...


class Callbacks(Protocol):
    """Where callbacks run."""

    def deliver(self, completions: Any) -> None: ...
    def in_callback(self) -> bool: ...


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


def _awaited(delivery: Delivery) -> Generator[Any, None, RecordMetadata]:
    """What `await delivery` does, on whichever event loop; it is not told by that loop, in general."""
    if not delivery.done():
        yield from future_of(delivery).__await__()
    return delivery.result(0)


def future_of(delivery: Awaited) -> asyncio.Future[None]:
    """Is done, on the running event loop, when it is known what became of the delivery."""
    import asyncio

    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def settle() -> None:
        if not future.done():
            future.set_result(None)

    def told(delivery: Any) -> None:
        if asyncio._get_running_loop() is loop:
            settle()
        else:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(settle)

    delivery.add_done_callback(told)
    return future


class Awaited(Protocol):
    """A Delivery, or a TableDelivery."""

    def add_done_callback(self, function: Callable[[Any], object], /) -> None: ...


await_with(_awaited)
