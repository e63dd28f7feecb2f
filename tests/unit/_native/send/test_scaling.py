"""A record is accepted, and a round of the sender done, at the same cost however many partitions and topics
there are: counted, not timed. Counted are the queues that the accumulator looks at, and the calls of kbatch's
Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch._native.batch.delivery import Delivery
from kbatch._native.send.cluster_view import ClusterView
from kbatch._native.send.send import RecordSender
from kbatch._native.send.table_sender import TableSender
from tests.support.accumulating import MS, NEVER, accumulator, put
from tests.support.sending import OK, Sending

KBATCH = str(Path(kbatch.__file__).parent)
SIZES = (100, 1_000, 10_000)
LINGER_MS = 5
SOME = (3, 50, 97)
PRODUCERS = 4
ROLES = ("key", "value", "headers", "timestamp", "partition")


def visits(records: Any, work: Callable[[], object]) -> int:
    """Return the number of queues that `work` visits."""
    before: int = records.visited_count
    work()
    after: int = records.visited_count
    return after - before


def used(partitions: int) -> Any:
    """Return an accumulator all of whose partitions have had a batch, and have none now."""
    records = accumulator(partitions, linger_ns=LINGER_MS * MS, buffer_memory=64 << 20)
    for partition in range(partitions):
        put(records, partition=partition)
    for batch in sent(records, LINGER_MS * MS):
        batch.complete(0)
    records.ready(LINGER_MS * MS)
    return records


def sent(records: Any, now_ns: int) -> list[Any]:
    """Return the batches of one request, sealed in the same round."""
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
def test_new_partitions_cost_existing_ones_nothing(partitions: int) -> None:
    """A partition that is sent to for the first time does not have all leaders looked up again."""
    records = accumulator(partitions, linger_ns=0)

    def one_after_another() -> None:
        for partition in range(100):
            put(records, partition=partition)
            for batch in sent(records, 0):
                batch.complete(0)

    assert visits(records, one_after_another) <= 4 * 100


@pytest.mark.parametrize("partitions", SIZES)
def test_record_per_partition_is_visited_a_fixed_number_of_times(partitions: int) -> None:
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


# Appending


@pytest.mark.parametrize("partitions", SIZES)
def test_append_visits_no_other_queue(partitions: int) -> None:
    records = used(partitions)

    def append() -> None:
        for partition in SOME:
            for _ in range(100):
                put(records, partition=partition, now_ns=10 * MS)

    assert visits(records, append) == 0
    assert visits(records, lambda: records.ready(10 * MS)) == len(SOME)


# Tables


def table_to(chunks: Iterable[Iterable[int]]) -> pa.Table:
    """Return a record batch for each chunk, a row for each of its partitions."""
    batches = [
        pa.record_batch({"value": [b"row"] * len(rows), "partition": pa.array(rows, pa.int32())})
        for rows in map(list, chunks)
    ]
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("partitions", SIZES)
def test_small_record_batches_of_a_table_with_many_parts(partitions: int) -> None:
    """Rows for a few partitions do not have the sender look at others, to which the table has parts. What is
    not counted: the TableSender itself goes over all of its parts, some nanoseconds each, once a block.
    """
    records = used(partitions)
    sender = RecordSender(records)
    table = table_to([range(partitions), *[SOME] * 50])
    sending = TableSender(sender, "t", table, {role: (role, role == "value") for role in ROLES})
    assert sending.accept(blocks=1, now_ns=10 * MS) is False
    found = sent(records, 20 * MS)
    assert len(found) == partitions
    for batch in found:
        batch.complete(0)
    records.ready(20 * MS)
    assert visits(records, lambda: sending.accept(now_ns=30 * MS)) == 0
    sending.end()
    assert visits(records, lambda: found.extend(sent(records, 40 * MS))) == 3 * len(SOME)
    assert [batch.record_count for batch in found[partitions:]] == [50] * len(SOME)


# Topics and producers


@pytest.mark.parametrize("topics", SIZES)
def test_idle_topics_are_not_looked_at(topics: int) -> None:
    records = accumulator(linger_ns=LINGER_MS * MS, buffer_memory=64 << 20)
    names = [f"t{number}" for number in range(topics)]
    records.publish(ClusterView({name: [(1, 0)] for name in names}))

    def append(numbers: Iterable[int], now_ns: int) -> None:
        for number in numbers:
            taken = records.append(names[number], 0, None, b"value", None, 1000, now_ns, None)
            assert isinstance(taken, Delivery)

    append(range(topics), 0)
    for batch in sent(records, 10 * MS):
        batch.complete(0)
    records.ready(10 * MS)
    assert visits(records, lambda: append(SOME, 20 * MS)) == 0
    found: list[Any] = []
    assert visits(records, lambda: found.extend(sent(records, 30 * MS))) == 3 * len(SOME)
    assert [batch.topic for batch in found] == [names[number] for number in SOME]


def test_a_producer_does_not_look_at_what_others_have() -> None:
    producers = [used(SIZES[1]) for _ in range(PRODUCERS)]
    for partition in range(SIZES[1]):
        put(producers[0], partition=partition, now_ns=10 * MS)
    for records in producers[1:]:
        put(records, now_ns=10 * MS)
        assert visits(records, lambda records=records: sent(records, 20 * MS)) == 3  # type: ignore[misc]


# The sender's Python


@cache
def calls(partitions: int) -> tuple[int, int]:
    """Count the calls of a function and the visited queues, from appending 5 records for 5 partitions to
    their deliveries.
    """
    sending = Sending(partitions, linger_ms=LINGER_MS, buffer_memory=64 << 20)
    names = [f"w{partition}" for partition in range(partitions)]
    for partition, name in enumerate(names):
        sending.put(name, partition=partition)
    sending.advance(LINGER_MS)
    while sending.waiting_requests:
        sending.answer(**{batch.name: OK for batch in sending.waiting_requests[0].batches})
    assert sending.is_done(names[-1])
    visited = sending.accumulator.visited_count
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call") and frame.f_code.co_filename.startswith(KBATCH)

    sys.setprofile(note)
    try:
        for number in range(5):
            sending.put(f"n{number}", partition=number * 7)
        sending.advance(LINGER_MS)
        sending.answer(**{f"n{number}": OK for number in range(5)})
    finally:
        sys.setprofile(None)
    assert all(sending.is_done(f"n{number}") for number in range(5))
    return count, sending.accumulator.visited_count - visited


@pytest.mark.slow
@pytest.mark.parametrize("partitions", SIZES[1:])
def test_sender_cost_of_a_record_ignores_other_partitions(partitions: int) -> None:
    assert calls(partitions) == calls(SIZES[0])
