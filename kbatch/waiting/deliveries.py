"""Wait for deliveries: `wait`, `as_completed` and `await delivery`."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch._native.batch.delivery import await_with
from kbatch.errors import IllegalStateError, KafkaTimeoutError
from kbatch.waiting.deadline import Deadline

if TYPE_CHECKING:
    import asyncio

    from kbatch._native.batch.delivery import Delivery, RecordMetadata
    from kbatch.waiting.protocols import Awaited


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


await_with(_awaited)
