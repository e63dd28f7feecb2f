"""Wait for deliveries: `wait`, `as_completed` and `await delivery`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kbatch._native.batch.delivery import await_with
from kbatch._native.io.interrupts import at_once, own_thread
from kbatch.errors import IllegalStateError, KafkaTimeoutError
from kbatch.waiting.conditions import Condition
from kbatch.waiting.deadline import Deadline
from kbatch.waiting.threads import ThreadWaiter

if TYPE_CHECKING:
    import asyncio

    from kbatch._native.batch.delivery import Delivery, RecordMetadata


class Awaited(Protocol):
    """A Delivery, or a TableDelivery."""

    def add_done_callback(self, function: Callable[[Any], object], /) -> None: ...


class Waited(NamedTuple):
    """The result of `wait`."""

    done: list[Delivery]
    not_done: list[Delivery]


def wait(deliveries: Iterable[Delivery], timeout: float | None = None) -> Waited:
    """Wait until all deliveries are done, or up to `timeout` seconds. Return those that are done and those
    that are not, in their order.

    It raises nothing, and does not count as checking failed deliveries.
    """
    waited = Waited([], [])
    deadline = Deadline(timeout)
    for delivery in deliveries:
        (waited.done if delivery.wait(deadline.left) else waited.not_done).append(delivery)
    return waited


def as_completed(deliveries: Iterable[Delivery], timeout: float | None = None) -> Iterator[Delivery]:
    """Yield each delivery when it is done, in the order of completion.

    Raises
    ------
    KafkaTimeoutError
        Some are not done after `timeout` seconds.
    IllegalStateError
        The call came from a callback, which delays the others' callbacks; use `wait` there. Or from the event
        loop that completes these deliveries; use asyncio.as_completed there.
    """
    thread = own_thread()
    if thread is not None and thread.runs_callbacks:
        raise IllegalStateError("as_completed() in a callback would wait for that callback; use wait()")
    known: deque[Delivery] = deque()
    changed = Condition(ThreadWaiter)
    deadline = Deadline(timeout)
    count = 0

    def done(delivery: Delivery) -> None:
        known.append(delivery)
        changed.notify()

    for delivery in deliveries:
        delivery.check_may_wait()
        delivery.add_done_callback(done)
        count += 1
    for number in range(count):
        if not at_once(changed.wait_until, lambda: bool(known), deadline):
            raise KafkaTimeoutError(
                f"as_completed() timed out after {timeout} s: {count - number} of {count} records are "
                "not delivered yet"
            )
        yield known.popleft()


def _awaited(delivery: Delivery) -> Generator[Any, None, RecordMetadata]:
    """Implement `await delivery` on any event loop, not only the one that completes deliveries."""
    if not delivery.done():
        yield from future_of(delivery).__await__()
    return delivery.result(0)


def future_of(delivery: Awaited) -> asyncio.Future[None]:
    """Return a future of the running event loop that is done when the delivery is."""
    import asyncio

    from kbatch.waiting.event_loop import complete

    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def complete_on_loop(delivery: Any) -> None:
        if asyncio._get_running_loop() is loop:
            complete(future)
        else:
            with suppress(RuntimeError):  # the loop is closed, so no task waits
                loop.call_soon_threadsafe(complete, future)

    delivery.add_done_callback(complete_on_loop)
    return future


await_with(_awaited)
