"""A round of the sender costs what there is to do, however many partitions there are: counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kbatch
from kbatch._native.cluster_view import ClusterView
from tests.unit.accumulating import MS, NEVER, accumulator, put
from tests.unit.sending import OK, Sending

KBATCH = str(Path(kbatch.__file__).parent)
SIZES = (100, 1_000, 10_000)
LINGER_MS = 5


def visits(records: Any, work: Callable[[], object]) -> int:
    """Queues that are looked at by `work`."""
    before: int = records.visited_count
    work()
    after: int = records.visited_count
    return after - before


def used(partitions: int) -> Any:
    """An accumulator all of whose partitions have had a batch, and have none now."""
    records = accumulator(partitions, linger_ns=LINGER_MS * MS, buffer_memory=64 << 20)
    for partition in range(partitions):
        put(records, partition=partition)
    for batch in sent(records, LINGER_MS * MS):
        batch.complete(0)
    records.ready(LINGER_MS * MS)
    return records


def sent(records: Any, now_ns: int) -> list[Any]:
    """What one request takes, with the round in which it was closed."""
    nodes, _, _ = records.ready(now_ns)
    records.drain(nodes, NEVER, now_ns)
    for batch in records.take_unsealed():
        batch.seal()
    drained: dict[int, list[Any]] = records.drain(nodes, NEVER, now_ns)
    return [batch for batches in drained.values() for batch in batches]


@pytest.mark.parametrize("partitions", SIZES)
def test_idle_partitions_are_not_looked_at(partitions: int) -> None:
    records = used(partitions)
    assert visits(records, lambda: records.ready(10 * MS)) == 0
    for partition in (3, 97, 50):
        put(records, partition=partition, now_ns=10 * MS)
    assert visits(records, lambda: records.ready(11 * MS)) == 3
    found: list[Any] = []
    assert visits(records, lambda: found.extend(sent(records, 20 * MS))) == 3 * 3
    assert [batch.partition for batch in found] == [3, 50, 97]
    assert visits(records, lambda: records.ready(21 * MS)) == 3  # and are forgotten
    assert visits(records, lambda: records.ready(22 * MS)) == 0


@pytest.mark.parametrize("partitions", SIZES)
def test_new_partitions_are_not_paid_for_by_those_that_were_there(partitions: int) -> None:
    """A partition that is sent to for the first time does not have all leaders looked up again."""
    records = accumulator(partitions, linger_ns=0)

    def one_after_another() -> None:
        for partition in range(100):
            put(records, partition=partition)
            for batch in sent(records, 0):
                batch.complete(0)

    assert visits(records, one_after_another) <= 4 * 100


@pytest.mark.parametrize("partitions", SIZES)
def test_a_record_for_each_partition_is_visited_a_fixed_number_of_times(partitions: int) -> None:
    records = used(partitions)
    for partition in range(partitions):
        put(records, partition=partition, now_ns=10 * MS)
    found: list[Any] = []
    assert visits(records, lambda: found.extend(sent(records, 20 * MS))) == 3 * partitions
    assert len(found) == partitions


def test_a_queue_that_was_forgotten_has_the_leader_of_now() -> None:
    records = used(3)
    records.publish(ClusterView({"t": [(7, 1), (8, 1), (-1, 1)]}))
    for partition in range(3):
        put(records, partition=partition, now_ns=10 * MS)
    nodes, _, leaderless = records.ready(20 * MS)
    assert (nodes, leaderless) == ({7, 8}, {"t"})


@cache
def calls(partitions: int) -> int:
    """How often kbatch calls a function, from 5 records for 5 partitions to their deliveries."""
    sending = Sending(partitions, linger_ms=LINGER_MS, buffer_memory=64 << 20)
    names = [f"w{partition}" for partition in range(partitions)]
    for partition, name in enumerate(names):
        sending.put(name, partition=partition)
    sending.advance(LINGER_MS)
    while sending.waiting_requests:
        sending.answer(**{batch.name: OK for batch in sending.waiting_requests[0].batches})
    assert sending.is_done(names[-1])
    for number in range(5):
        sending.put(f"n{number}", partition=number * 7)
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call") and frame.f_code.co_filename.startswith(KBATCH)

    sys.setprofile(note)
    try:
        sending.advance(LINGER_MS)
        sending.answer(**{f"n{number}": OK for number in range(5)})
    finally:
        sys.setprofile(None)
    assert all(sending.is_done(f"n{number}") for number in range(5))
    return count


@pytest.mark.parametrize("partitions", (1_000, 3_000))
def test_the_sender_does_the_same_for_a_record_whatever_other_partitions_there_are(partitions: int) -> None:
    assert calls(partitions) == calls(SIZES[0])
