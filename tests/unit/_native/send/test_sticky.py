"""Partitions of records without key and partition: P01 to P05 (BuiltInPartitionerTest), A16, D16."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch import KafkaError
from kbatch._native.send.cluster_view import ClusterView, TopicView
from kbatch._native.send.sticky import StickyPartitioner
from tests.oracle.java_config import producer_facts
from tests.support.accumulating import MS, accumulator, all_drained, drained, is_whole, one, partition_of, put

ALL = 2**64


def chosen(partitioner: StickyPartitioner, view: TopicView, picks: int) -> Counter[int]:
    """Count the chosen partitions, with random numbers that come in sequence."""
    return Counter(partitioner.choose(view, number) for number in range(picks))


def available(count: int) -> TopicView:
    return TopicView([(1, 0)] * count)


def test_P01_a_batch_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match="batch_size must be 1 byte or more, got 0"):
        StickyPartitioner(0)


def test_P01_records_stick_until_batch_size_went_there() -> None:
    records = accumulator(4, batch_size=1000, seed=3)
    went = [partition_of(put(records, bytes(304), -1)) for _ in range(200)]
    runs = [1]
    for before, after in pairwise(went):
        if before == after:
            runs[-1] += 1
        else:
            runs.append(1)
    assert len(set(went)) == 4
    assert all(run % 3 == 0 for run in runs[:-1])  # three records of 313 bytes fill a batch


def test_P02_all_partitions_alike() -> None:
    assert chosen(StickyPartitioner(1), available(5), 500) == dict.fromkeys(range(5), 100)
    counts: Counter[int] = Counter()
    records = accumulator(5, batch_size=1, seed=11)
    for _ in range(2000):
        counts[partition_of(put(records, b"v", -1))] += 1
    assert all(300 < counts[partition] < 500 for partition in range(5))


def test_P02_those_without_leader_are_left_out_unless_all_are() -> None:
    view = TopicView([(-1, 0), (1, 0), (-1, 0), (2, 0)])
    assert chosen(StickyPartitioner(1), view, 10) == {1: 5, 3: 5}
    assert chosen(StickyPartitioner(1), TopicView([(-1, -1)] * 3), 9) == {0: 3, 1: 3, 2: 3}


def test_P03_A16_the_longer_a_queue_the_less_it_gets() -> None:
    partitioner = StickyPartitioner(1)
    partitioner.update_load([0, 1, 2], [1, 7, 2], 3)
    assert chosen(partitioner, available(3), 14 * 50) == {0: 7 * 50, 1: 1 * 50, 2: 6 * 50}
    partitioner.update_load([4, 2, 0], [0, 3, 1], 5)
    assert chosen(partitioner, available(5), 8 * 50) == {4: 4 * 50, 2: 1 * 50, 0: 3 * 50}


def test_P03_equal_queues_and_too_few_make_no_difference() -> None:
    partitioner = StickyPartitioner(1)
    uniform = dict.fromkeys(range(3), 10)
    for partitions, lengths, count in (([0, 1, 2], [4, 4, 4], 3), ([0], [4], 1), ([], [], 3)):
        partitioner.update_load([0, 1], [0, 5], 3)
        partitioner.update_load(partitions, lengths, count)
        assert chosen(partitioner, available(3), 30) == uniform


def test_P03_equal_queues_count_where_some_partition_is_left_out() -> None:
    partitioner = StickyPartitioner(1)
    partitioner.update_load([0, 2], [4, 4], 3)
    assert chosen(partitioner, available(3), 30) == {0: 15, 2: 15}


@pytest.mark.java
@given(queues=st.lists(st.integers(0, 50), min_size=1, max_size=12), data=st.data())
def test_P03_the_weights_are_javas(queues: list[int], data: st.DataObject) -> None:
    length = data.draw(st.integers(1, len(queues)))
    javas = producer_facts().load(queues, length)
    partitioner = StickyPartitioner(1)
    partitioner.update_load(range(length), queues[:length], len(queues))
    view = available(length)
    if javas is None:
        assert chosen(partitioner, view, 3 * length) == dict.fromkeys(range(length), 3)
    else:
        weights = [javas[0], *(after - before for before, after in pairwise(javas))]
        assert chosen(partitioner, view, javas[-1]) == dict(enumerate(weights))


def test_A16_accumulator_reports_queue_lengths() -> None:
    records = accumulator(3, batch_size=1000, seed=5)
    for partition, batches in enumerate((1, 7, 2)):
        for _ in range(batches):
            put(records, bytes(2000), partition)
    records.ready(0)
    counts: Counter[int] = Counter()
    for _ in range(3000):
        before = len(records.incomplete_batches())
        counts[partition_of(put(records, bytes(2000), -1))] += 1
        (*_, newest) = records.incomplete_batches()
        newest.fail(KafkaError("not to count"))
        assert len(records.incomplete_batches()) == before
    assert 1200 < counts[0] < 1800 and 100 < counts[1] < 350 and 1000 < counts[2] < 1600


def test_P03_without_adaptive_partitioning_queues_do_not_count() -> None:
    records = accumulator(2, batch_size=1, adaptive_partitioning=False)
    for _ in range(50):
        put(records, partition=0)
    put(records, partition=1)
    records.ready(0)
    counts = Counter(partition_of(put(records, b"v", -1)) for _ in range(1000))
    assert 400 < counts[0] < 600


@pytest.mark.parametrize("empty", [False, True])
def test_A16_D16_partitions_of_slow_node_are_not_chosen(empty: bool) -> None:
    records = accumulator([1, 2, 1], batch_size=1, partition_availability_timeout_ns=100 * MS, linger_ns=0)
    for partition in range(3):
        put(records, partition=partition)
    if empty:
        for batch in drained(records, node=2):
            batch.complete(0)
    records.ready(0)
    records.note_ready_node(2, 1, True)
    records.note_ready_node(2, 50 * MS, False)
    records.note_ready_node(2, 100 * MS, False)
    records.ready(100 * MS)
    assert 1 in {partition_of(put(records, b"v", -1)) for _ in range(50)}
    records.note_ready_node(2, 200 * MS, False)
    records.ready(200 * MS)
    put(records, b"v", -1)  # the one that was chosen before
    assert 1 not in {partition_of(put(records, b"v", -1)) for _ in range(200)}
    records.note_ready_node(2, 201 * MS, True)
    records.ready(201 * MS)
    assert 1 in {partition_of(put(records, b"v", -1)) for _ in range(1000)}


def test_P04_no_fraction_of_a_batch_remains() -> None:
    """A partition that got batch.size while its batch is still open is kept until that is full or sent."""
    records = accumulator(8, batch_size=1000, seed=1)
    first = partition_of(put(records, bytes(700), -1))
    assert [batch.record_count for batch in all_drained(records)] == [1]
    for _ in range(4):  # 771 and 4 x 59 bytes: more than batch.size, in an open batch
        assert partition_of(put(records, bytes(50), -1)) == first
    assert partition_of(put(records, bytes(50), -1)) == first
    one(records)
    assert partition_of(put(records, bytes(50), -1)) != first  # it was sent: the switch is made now


def test_P04_twice_batch_size_is_the_most() -> None:
    records = accumulator(50, batch_size=10_000, seed=1)
    first = partition_of(put(records, bytes(9000), -1))
    all_drained(records)
    for _ in range(50):
        if partition_of(put(records, bytes(500), -1)) != first:
            break
    assert sum(batch.records_bytes for batch in records.batches("t", first)) <= 20_000 - 9000 + 510


def test_P04_at_most_two_batch_sizes_go_to_a_partition() -> None:
    records = accumulator(50, batch_size=1000, seed=1)
    first = partition_of(put(records, b"", -1))
    sticky_bytes = 0
    while sticky_bytes < 4000:
        all_drained(records)
        put(records, b"", first)
        if partition_of(put(records, bytes(300), -1)) != first:
            break
        sticky_bytes += 300
    assert 1700 <= sticky_bytes <= 2300


def test_P05_keyed_and_explicit_records_do_not_count() -> None:
    records = accumulator(4, batch_size=1000)
    first = partition_of(put(records, bytes(10), -1))
    for partition in range(4):
        for _ in range(3):
            put(records, bytes(900), partition)
    one_batch = [partition_of(put(records, bytes(10), -1)) for _ in range(3)]
    assert one_batch == [first] * 3


def test_P05_new_partitions_are_chosen_and_missing_ones_are_not() -> None:
    records = accumulator(1, batch_size=1)
    assert {partition_of(put(records, b"v", -1)) for _ in range(20)} == {0}
    records.publish(ClusterView({"t": [(1, 0)] * 3}))
    assert {partition_of(put(records, b"v", -1)) for _ in range(100)} == {0, 1, 2}
    records.publish(ClusterView({"t": [(1, 0)]}))
    assert {partition_of(put(records, b"v", -1)) for _ in range(20)} == {0}


def test_P05_load_of_other_metadata_chooses_no_missing_partition() -> None:
    """A table keeps the view that placed its rows, though there are new metadata since."""
    partitioner = StickyPartitioner(1000)
    partitioner.update_load(range(8), [3, 3, 3, 3, 3, 3, 3, 0], 8)
    assert chosen(partitioner, available(2), 200).keys() == {0, 1}


def test_compressed_bytes_count() -> None:
    """The partition changes by compressed size: data that shrink to a tenth stick ten times as long."""
    records = accumulator(2, batch_size=1000, compression="lz4")
    for _ in range(3000):
        put(records, bytes(400), 0)
    for batch in all_drained(records):
        batch.complete(0)
    went = [partition_of(put(records, bytes(400), -1)) for _ in range(6)]
    assert len(set(went)) == 1
    for batch in all_drained(records):
        batch.complete(0)
    assert is_whole(records)


def test_the_same_seed_makes_the_same_choices() -> None:
    def choices(seed: int) -> list[int]:
        records = accumulator(10, batch_size=1, seed=seed)
        return [partition_of(put(records, b"v", -1)) for _ in range(50)]

    assert choices(1) == choices(1) != choices(2)


def test_view_names_the_leaders() -> None:
    view = ClusterView({"t": [(3, 7), (-1, -1)]})
    assert [view.partition_count(topic) for topic in ("t", "u")] == [2, 0]
    assert [view.leader("t", partition) for partition in (-1, 0, 1, 2)] == [-1, 3, -1, -1]
    assert [view.leader_epoch("t", partition) for partition in (-1, 0, 1, 2)] == [-1, 7, -1, -1]
    assert (view.leader("u", 0), view.leader_epoch("u", 0)) == (-1, -1)
    with pytest.raises(ValueError):
        TopicView([(1, 2, 3)])  # type: ignore[list-item]
