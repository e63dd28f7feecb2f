"""Splitting batches that are too large for the broker: S01 to S09 (SenderTest, RecordAccumulatorTest)."""

from __future__ import annotations

import random
from typing import Any

import pytest

import kbatch
from kbatch import IllegalStateError, KafkaError
from kbatch._native.batch.delivery import RecordMetadata
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.accumulator import RecordAccumulator
from tests.oracle.plain import CODECS
from tests.support.accumulating import (
    MEGABYTE,
    NEVER,
    accumulator,
    all_drained,
    data_of,
    drained,
    fail_all,
    is_whole,
    one,
    put,
    records_of,
    values_of,
)

FAILURE = KafkaError("failed in a test")


def filled(count: int = 10, size: int = 100, **settings: Any) -> RecordAccumulator:
    records = accumulator(batch_size=MEGABYTE, **settings)
    for number in range(count):
        put(records, b"%d." % number + bytes(size))
    return records


def single_parts(records: RecordAccumulator, batch: ProducerBatch) -> list[ProducerBatch]:
    """Split as long as possible: the broker accepts single records only."""
    done: list[ProducerBatch] = []
    waiting = [batch]
    for _ in range(1000):
        if not waiting:
            return done
        batch = waiting.pop(0)
        if batch.record_count == 1:
            done.append(batch)
            continue
        records.split(batch)
        waiting[:0] = all_drained(records)
    raise AssertionError("splitting does not end")


def test_S01_parts_keep_sequences_and_count_as_never_sent() -> None:
    records = accumulator(batch_size=MEGABYTE)
    put(records, b"first", now_ns=3)
    delivery = put(records, b"second", now_ns=5)
    batch = one(records)
    batch.stamp(9, 3, 2**31 - 2)
    records.reenqueue(batch, 7)
    assert one(records, NEVER) is batch
    children = records.split(batch)
    assert [child.base_sequence for child in children] == [2**31 - 2, 2**31 - 1]
    assert [child.record_count for child in children] == [1, 1]
    assert [(child.producer_id, child.producer_epoch) for child in children] == [(9, 3)] * 2
    for child in children:
        assert (child.attempts, child.created_ns, child.is_split) == (0, 3, True)
    first, second = all_drained(records)
    assert [first, second] == children
    first.complete(100)
    second.complete(200)
    assert delivery.result(0).offset == 200


def test_S01_parts_keep_the_age_of_the_batch_and_expire_with_it() -> None:
    records = accumulator(2, batch_size=MEGABYTE, delivery_timeout_ns=100)
    put(records, b"first")
    put(records, b"second")
    put(records, b"younger", 1, now_ns=50)
    (whole,) = (batch for batch in drained(records) if batch.partition == 0)
    parts = records.split(whole)
    assert records.next_expiry_ns == 100
    assert records.expire(100) == parts


def test_S01_what_may_have_been_appended_stays_so() -> None:
    for possibly in (False, True):
        records = filled(2)
        batch = one(records)
        batch.possibly_persisted = possibly
        assert [part.possibly_persisted for part in records.split(batch)] == [possibly] * 2


def test_S02_split_raises_the_ratio_to_one_and_it_falls_again() -> None:
    records = accumulator(compression="lz4", batch_size=4096)
    for _ in range(1000):
        put(records, bytes(500))
    counts = [batch.record_count for batch in all_drained(records)][:-1]
    assert counts[0] == 7 < counts[-1] and counts == sorted(counts)
    put(records, bytes(500))
    put(records, bytes(500))
    records.split(one(records))
    assert len(all_drained(records)) == 2
    for _ in range(1000):
        put(records, bytes(500))
    assert [batch.record_count for batch in all_drained(records)][:-1] == counts


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_S03_the_parts_have_everything_that_the_whole_had(codec: str, transactional: bool) -> None:
    """Java's parts were not transactional any more, once (KAFKA-5340)."""
    records = accumulator(batch_size=60_000, compression=codec, transactional=transactional)
    called: list[tuple[int, RecordMetadata]] = []
    rows: list[Any] = [
        (None if n % 3 else b"%d" % n, bytes(n * 10), (("h", b"x"), ("n", None)) * (n % 2), 1000 - n % 7)
        for n in range(60)
    ]
    for number, (key, value, headers, timestamp_ms) in enumerate(rows):
        put(
            records,
            value,
            key=key,
            headers=headers,
            timestamp_ms=timestamp_ms,
            on_delivery=lambda metadata, error, number=number: called.append((number, metadata)),
        )
    batch = one(records)
    batch.stamp(5, 0, 0)
    children = records.split(batch)
    assert records.split_count == 1
    parts = all_drained(records)
    assert parts == children
    for part in parts:
        (header,) = kbatch.decode(data_of(part), partial="raise")
        kept = (header.magic, header.compression, header.is_transactional, header.timestamp_type)
        assert kept == (2, codec, transactional, "create_time")
    read = [record for part in parts for record in records_of(part)]
    assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in read] == rows
    offset = 0
    for child in children:
        assert records_of(child)[0].offset == 0
        child.complete(offset)
        offset += child.record_count
        child.completion.run_callbacks(print)
    assert [number for number, _ in called] == list(range(60))
    assert [metadata.offset for _, metadata in called] == list(range(60))
    assert [metadata.serialized_value_size for _, metadata in called] == [n * 10 for n in range(60)]
    assert is_whole(records)


def test_S04_memory_is_whole_and_nothing_is_freed_twice() -> None:
    records = filled(100, 1000, compression="lz4")
    batch = one(records)
    views = batch.buffers()
    before = b"".join(views)
    children = records.split(batch)
    assert batch.is_done and batch not in records.incomplete_batches()
    assert records.incomplete_batches() == children
    assert b"".join(views) == before  # the network may still write the whole
    with pytest.raises(IllegalStateError, match="split"):
        batch.complete(0)
    for child in all_drained(records):
        child.complete(0)
    assert not is_whole(records)
    views.clear()
    assert is_whole(records)


def test_S04_a_split_charges_the_parts_in_place_of_the_whole() -> None:
    records = filled(50, 1000)
    batch = one(records)
    charged = records.memory.total_memory - records.memory.available
    records.split(batch)
    assert records.memory.total_memory - records.memory.available <= charged


@pytest.mark.parametrize("later_comes_back_first", [False, True])
def test_S05_the_parts_stand_where_the_whole_stood(later_comes_back_first: bool) -> None:
    records = accumulator(batch_size=2000)
    for number in range(10):
        put(records, b"%d" % number + bytes(600))
    first, second, third = (one(records) for _ in range(3))
    if later_comes_back_first:
        records.reenqueue(third, 0)
        records.reenqueue(first, 0)
    children = records.split(second)
    if not later_comes_back_first:
        records.reenqueue(third, 0)
        records.reenqueue(first, 0)
    assert records.batches("t", 0)[:-1] == [first, *children, third]
    assert [batch.first_number for batch in records.batches("t", 0)] == [0, 3, 4, 5, 6, 9]
    records.set_gate("t", 0, muted=True)
    assert drained(records, NEVER) == []
    records.set_gate("t", 0, muted=False)
    order = [value[:1] for batch in all_drained(records, NEVER) for value in values_of(batch)]
    assert order == [b"%d" % number for number in range(10)]


def test_S06_a_single_record_is_not_split() -> None:
    records = filled(1)
    batch = one(records)
    with pytest.raises(IllegalStateError, match="two records or more"):
        records.split(batch)
    assert batch.fail(FAILURE)
    assert is_whole(records)


def test_only_a_batch_in_flight_is_split() -> None:
    records = filled(5)
    with pytest.raises(IllegalStateError, match="in flight"):
        records.split(records.batches("t", 0)[0])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sizes", ["equal", "one large", "random"])
def test_S07_splitting_again_and_again_ends_with_single_records(codec: str, sizes: str) -> None:
    source = random.Random(7)
    lengths = {
        "equal": [100] * 37,
        "one large": [10] * 11 + [9000] + [10] * 25,
        "random": [source.randrange(2000) for _ in range(37)],
    }
    records = accumulator(batch_size=100_000, compression=codec)
    values = [b"%d." % number + bytes(length) for number, length in enumerate(lengths[sizes])]
    deliveries = [put(records, value) for value in values]
    batch = one(records)
    batch.stamp(1, 0, 0)
    parts = single_parts(records, batch)
    assert [values_of(part) for part in parts] == [[value] for value in values]
    assert [part.base_sequence for part in parts] == list(range(37))
    for number, part in enumerate(parts):
        part.complete(1000 + number)
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(1000, 1037))
    assert is_whole(records)


def test_S07_a_part_is_halved_however_large_batch_size_is() -> None:
    records = filled(8, 1000)
    halves = records.split(one(records))
    assert [half.record_count for half in halves] == [4, 4]
    (again,) = drained(records)
    assert [part.record_count for part in records.split(again)] == [2, 2]


def test_S07_a_batch_beyond_batch_size_is_cut_to_it() -> None:
    records = accumulator(batch_size=4096, compression="lz4")
    for _ in range(3000):
        put(records, bytes(500))
    batch = max(all_drained(records), key=lambda sealed: sealed.record_count)
    assert batch.records_bytes > 2 * 4096
    assert all(part.records_bytes <= 4096 - 61 for part in records.split(batch))


@pytest.mark.parametrize("ends", ["complete", "fail"])
def test_S08_a_flush_waits_for_the_parts(ends: str) -> None:
    records = filled(10)
    batch = one(records)
    flush = records.begin_flush()
    children = records.split(batch)
    assert flush.pending_count == len(children) == 2
    put(records, b"later")
    if ends == "fail":
        assert fail_all(records, FAILURE)[:2] == children
    for child in children if ends == "complete" else ():
        assert not flush.done()
        assert one(records) is child
        child.complete(0)
    assert flush.wait(0) and flush.done()
    records.end_flush()
    for batch in all_drained(records):
        batch.complete(0)
    assert is_whole(records)


def test_S08_flush_started_after_the_split_waits_for_the_parts() -> None:
    records = filled(10)
    records.split(one(records))
    flush = records.begin_flush()
    assert flush.pending_count == 2
    for child in all_drained(records):
        child.fail(FAILURE)
    assert flush.done()


@pytest.mark.parametrize("kind", ["good", "bad", "mixed"])
def test_S09_few_batches_are_split(kind: str) -> None:
    """The broker accepts batches of batch.size, and the data compress well, badly, or both."""
    source = random.Random(11)
    limit = 16_384
    records = accumulator(compression="gzip", batch_size=limit, linger_ns=NEVER)
    split, accepted = 0, 0
    for number in range(3000):
        bad = kind == "bad" or (kind == "mixed" and source.random() < 0.5)
        put(records, source.randbytes(400) if bad else b"abc" * 130, now_ns=0)
        if number % 100 < 99:
            continue
        waiting = records.ready(0)[0] and drained(records)
        while waiting:
            batch = waiting.pop()
            if batch.size_bytes > limit and batch.record_count > 1:
                records.split(batch)
                split += 1
            else:
                batch.complete(0)
                accepted += 1
            waiting += records.drain([1], MEGABYTE, 0)[1] if records.ready(0)[0] else []
            for unsealed in records.take_unsealed():
                unsealed.seal()
    assert accepted > 20
    assert split <= 0.1 * accepted


def test_a_batch_is_read_back_as_it_was_sealed() -> None:
    records = filled(3)
    batch = one(records)
    data = data_of(batch)
    parts = records.split(batch)
    assert sum(len(data_of(part)) - 61 for part in parts) <= len(data) - 61
