"""The budget of a producer: what its properties say, and who is called when."""

from __future__ import annotations

import pytest

from kbatch._native.buffer_memory import BufferMemory
from kbatch._native.record_appender import Refusal
from tests.unit.accumulating import accumulator, all_drained, is_whole, put


def test_a_budget_that_nothing_is_charged_with() -> None:
    memory = BufferMemory(1000)
    assert (memory.total_bytes, memory.available_bytes, memory.callback_bytes) == (1000, 1000, 0)
    assert (memory.waiting_count, memory.exhausted_count) == (0, 0)
    with pytest.raises(ValueError):
        BufferMemory(0)


def test_chunks_come_back_and_are_used_again() -> None:
    records = accumulator(buffer_memory=100_000, batch_size=60_000)
    for round_number in range(5):
        for _ in range(40):
            put(records, bytes(1000))
        assert records.memory.available_bytes < 60_000, round_number
        for batch in all_drained(records):
            batch.complete(0)
        assert is_whole(records)


def test_a_record_may_take_what_is_in_the_free_list() -> None:
    """Which is then no longer there: the budget counts it once."""
    records = accumulator(buffer_memory=70_000, batch_size=60_000)
    for _ in range(40):
        put(records, bytes(1000))
    for batch in all_drained(records):
        batch.complete(0)
    put(records, bytes(68_000))
    assert records.append("t", 0, None, bytes(3000), None, 0, 0) is Refusal.MEMORY
    for batch in all_drained(records):
        batch.complete(0)
    assert is_whole(records)


def test_memory_that_comes_back_rings_while_somebody_waits() -> None:
    rings: list[int] = []
    records = accumulator(memory_freed=lambda: rings.append(1), batch_size=1000)
    put(records, bytes(900))
    put(records, bytes(900))
    first, second = all_drained(records)
    first.complete(0)
    assert rings == []
    records.begin_waiting()
    second.complete(0)
    assert rings
    rings.clear()
    records.end_waiting()
    assert rings == []  # nobody is left to be told
    records.begin_waiting()
    records.begin_waiting()
    records.end_waiting()
    assert rings == [1]  # the next in line


def test_refusals_are_counted() -> None:
    records = accumulator(buffer_memory=4000, batch_size=100)
    put(records, bytes(1500))
    before = records.memory.exhausted_count
    for _ in range(3):
        assert records.append("t", 0, None, bytes(500), None, 0, 0) is Refusal.MEMORY
    assert records.memory.exhausted_count >= before + 3
