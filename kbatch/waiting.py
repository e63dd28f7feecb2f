"""Waiting: for deliveries, for memory, for something to change."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from operator import call
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, TypeVar, final

from kbatch._native.record_appender import Refusal
from kbatch.errors import IllegalStateError, KafkaTimeoutError

if TYPE_CHECKING:
    from kbatch._native.accumulator import RecordAccumulator
    from kbatch._native.delivery import Delivery

T = TypeVar("T")


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
        In a callback, behind which the others' callbacks wait; `wait` is for there.
    """
    if getattr(threading.current_thread(), "runs_callbacks", False):
        raise IllegalStateError("as_completed() in a callback would wait for that callback; take wait()")
    known: SimpleQueue[Delivery] = SimpleQueue()
    deadline = Deadline(timeout)
    count = 0
    for delivery in deliveries:
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
# Who waits for memory looks so often whether called or not.
_LOOK_SECONDS = 0.1


@final
class Deadline:
    """`seconds` from now; None is never."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

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
    """Threads that wait for memory: first come, first served.

    Who is first waits for `freed`, the others for their turn. A KeyboardInterrupt may come between any two
    lines, and would be lost in what native code calls. So `freed` has no line of Python, what must be done
    together is one step, what must be done in the end is tried again, and everyone looks once in a while,
    whether called or not.

    Attributes
    ----------
    freed : callable
        There may be memory now; any thread, native code too.
    """

    freed: Callable[[], object]

    def __init__(self) -> None:
        self._waiting: deque[SimpleQueue[None]] = deque()
        self._memory: SimpleQueue[None] = SimpleQueue()
        self.freed = partial(self._memory.put, None)

    def wait(
        self,
        accumulator: RecordAccumulator,
        append: Callable[[], T | Refusal],
        deadline: Deadline,
        *,
        goes_first: bool = False,
    ) -> T | Refusal:
        """What `append()` gives once it is this thread's turn and there is memory; Refusal.MEMORY where there
        was none before the deadline. `goes_first`: before those who came earlier.
        """
        mine: SimpleQueue[None] = SimpleQueue()
        join = self._waiting.appendleft if goes_first else self._waiting.append
        try:
            in_one_step(partial(join, mine), accumulator.begin_waiting)
            while True:
                is_first = self._waiting[0] is mine
                answer = append() if is_first else Refusal.MEMORY
                if answer is not Refusal.MEMORY or deadline.is_over:
                    return answer
                _await_call(self._memory if is_first else mine, deadline)
        finally:
            try:
                self._leave(mine, accumulator)
            finally:
                self._leave(mine, accumulator)

    def _leave(self, mine: SimpleQueue[None], accumulator: RecordAccumulator) -> None:
        if mine in self._waiting:
            in_one_step(partial(self._waiting.remove, mine), accumulator.end_waiting)
            self.wake_all()

    def wake_all(self) -> None:
        """Has everyone look again."""
        for each in list(self._waiting):
            each.put(None)
        self.freed()


def in_one_step(*functions: Callable[[], object]) -> None:
    """Calls native functions, with no line of Python between them."""
    deque(map(call, functions), maxlen=0)


def _await_call(calls: SimpleQueue[None], deadline: Deadline) -> None:
    left = deadline.left
    with suppress(Empty):
        calls.get(timeout=_LOOK_SECONDS if left is None else min(left, _LOOK_SECONDS))
        while True:  # it is one look for all calls so far
            calls.get_nowait()


@final
class Marker:
    """What stands among completions, and is reached when those before it are dealt with."""

    has_callbacks = True
    record_count = 0

    def __init__(self) -> None:
        self.reached = threading.Event()

    def run_callbacks(self, threw: object) -> int:
        self.reached.set()
        return 0


@final
class Change:
    """Something that threads wait to see changed."""

    def __init__(self) -> None:
        self._condition = threading.Condition()

    def notify(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def wait_until(self, is_so: Callable[[], bool], deadline: Deadline) -> bool:
        """Whether `is_so()`; it is asked after every change. What it raises comes out."""
        with self._condition:
            return self._condition.wait_for(is_so, deadline.left)
