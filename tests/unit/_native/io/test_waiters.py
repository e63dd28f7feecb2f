"""Waiters: those who wait for a condition."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch._native.io.waiters import Waiters
from kbatch.waiting.threads import ThreadWaiter


class Noted:
    """A waiter without an event, which notes in a list that it is set."""

    event = None

    def __init__(self, order: list[Any]) -> None:
        self._order = order

    def set(self) -> None:
        self._order.append(self)

    async def wait(self, deadline: object) -> bool:
        raise NotImplementedError


def test_all_are_set_in_order_and_once() -> None:
    waiters, order = Waiters(), list[Any]()
    both = [Noted(order), Noted(order)]
    for each in both:
        waiters.add(each)
    assert waiters.notify()
    assert order == both
    assert not waiters.notify()
    assert order == both


def test_one_that_was_discarded_is_not_set() -> None:
    waiters, order = Waiters(), list[Any]()
    gone, left = Noted(order), Noted(order)
    waiters.add(gone)
    waiters.add(left)
    waiters.discard(gone)
    waiters.discard(gone)
    assert len(waiters) == 1
    assert waiters.notify()
    assert order == [left]


def test_one_that_is_added_while_others_are_set_waits_for_the_next_time() -> None:
    waiters, order = Waiters(), list[Any]()
    late = Noted(order)

    class Adding(Noted):
        def set(self) -> None:
            waiters.add(late)

    waiters.add(Adding(order))
    assert waiters.notify()
    assert order == []
    assert waiters.notify()
    assert order == [late]


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_threads_are_among_them(count: int) -> None:
    waiters = Waiters()
    threads = [ThreadWaiter() for _ in range(count)]
    for each in threads:
        waiters.add(each)
    for each in threads[::2]:
        waiters.discard(each)
    assert waiters.notify() == (count > 1)
    assert [each.event.is_set() for each in threads] == [i % 2 == 1 for i in range(count)]
    for each in threads[1::2]:
        waiters.discard(each)
    assert len(waiters) == 0
