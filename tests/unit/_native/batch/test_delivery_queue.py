"""DeliveryQueue: nothing that is put, or finished without the GIL, waits for the next put."""

from __future__ import annotations

import threading
from collections import deque

from kbatch._native.batch.delivery_queue import DeliveryQueue

ITEMS = 20_000
SECONDS = 60


def taken(queue: DeliveryQueue, count: int) -> tuple[threading.Thread, list[int]]:
    """Let a thread take so many items."""
    items: list[int] = []

    def take() -> None:
        while len(items) < count:
            items.append(queue.get())

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return thread, items


def test_items_come_in_order_and_none_is_missed() -> None:
    queue = DeliveryQueue()
    thread, items = taken(queue, ITEMS)
    for number in range(ITEMS):
        queue.put(number)
    thread.join(SECONDS)
    assert items == list(range(ITEMS))
    assert queue.empty()


def test_a_source_is_asked_before_the_thread_sleeps() -> None:
    queue = DeliveryQueue()
    finished: deque[int] = deque()

    def source() -> None:
        while finished:
            queue.put(finished.popleft())

    queue.source, queue.has_finished = source, lambda: bool(finished)
    thread, items = taken(queue, ITEMS)
    for number in range(0, ITEMS, 2):  # the second is seen when the first wakes the thread, or before
        finished.append(number)
        queue.put(number + 1)
    thread.join(SECONDS)
    assert sorted(items) == list(range(ITEMS))
