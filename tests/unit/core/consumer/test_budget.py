"""The budget of bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbatch._native.fetch.budget import Budget, FrameShare
from kbatch.core.consumer.budget import RowsAwaited


def test_reservation_is_refused_above_the_limit() -> None:
    budget = Budget(100)
    assert budget.reserve(60)
    assert not budget.reserve(41)
    assert budget.reserve(40)


def test_R28_what_is_larger_than_the_limit_passes_alone() -> None:
    budget = Budget(100)
    assert budget.reserve(500)
    assert not budget.reserve(1)
    budget.end_reservation(500)
    assert budget.reserve(1)
    assert not budget.reserve(500)


def test_frame_is_charged_until_its_last_piece_is_released() -> None:
    budget = Budget(100)
    budget.charge(90)
    share = FrameShare(budget, 90, 3)
    assert share.piece_bytes == 30
    share.release()
    share.release()
    assert budget.used == 90
    share.release()
    assert budget.used == 0


@given(st.integers(1, 10**9), st.integers(0, 50), st.integers(0, 5000))
def test_requests_and_backlogs_fit_in_the_limit(limit: int, nodes: int, partitions: int) -> None:
    budget = Budget(limit)
    assert budget.request_bytes(nodes) >= 1
    assert nodes * budget.request_bytes(nodes) <= max(limit // 2, nodes)
    assert partitions * budget.backlog_bytes(partitions) <= limit // 2


def test_backlog_that_is_not_shared_has_half_of_the_memory() -> None:
    budget = Budget(100)
    budget.charge(50)
    assert budget.reserve(30)  # which does not count
    assert budget.backlog_bytes(5) == 10 and budget.backlog_bytes(5, is_shared=False) == 100
    budget.charge(1)
    assert budget.backlog_bytes(5) == budget.backlog_bytes(5, is_shared=False) == 10


def test_poll_that_waits_is_told_of_each_change() -> None:
    told: list[bool] = []
    awaited = RowsAwaited(lambda: told.append(awaited.is_memory_used_up))
    for is_memory_used_up in (False, True, True, False):
        awaited.note(is_memory_used_up)
    assert told == [True, False]
