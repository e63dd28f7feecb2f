"""Batches that came encoded, and are too large for the broker."""

from __future__ import annotations

import gzip
import random
import threading
from typing import Any

import pytest

import kbatch
from kbatch import CorruptRecordError, KafkaError
from kbatch._native.batch.delivery import RecordMetadata
from kbatch._native.batch.producer_batch import ProducerBatch
from tests.patience import HANG_SECONDS
from tests.unit._native.send.test_encoded_batch import (
    CODECS,
    FAILURE,
    altered,
    encoded,
    fields_of,
    give,
    read,
    settle,
)
from tests.unit.accumulating import (
    accumulator,
    all_drained,
    data_of,
    fail_all,
    is_whole,
    one,
    put,
    records_of,
    values_of,
)


def in_flight(data: bytes, **settings: Any) -> tuple[Any, Any, ProducerBatch]:
    records = accumulator(**settings)
    delivery = give(records, data)
    batch = one(records)
    batch.stamp(7, 2, 2**31 - 2)
    return records, delivery, batch


def parts_of(records: Any, batch: ProducerBatch) -> list[ProducerBatch]:
    """Its parts, in flight."""
    parts = records.split(batch)
    assert all_drained(records) == parts
    return list(parts)


def end(records: Any, *ends: tuple[ProducerBatch, Any]) -> None:
    for part, how in ends:
        settle(part, how)
    assert is_whole(records)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("own", [("none", None), ("zstd", 5), ("gzip", 9)])
def test_a_batch_of_any_codec_is_split_in_halves_which_have_that_codec(codec: str, own: Any) -> None:
    source = random.Random(3)
    values = [source.randbytes(40) + bytes(400) for _ in range(64)]
    records, _, batch = in_flight(
        encoded(*values, compression=codec), compression=own[0], compression_level=own[1], batch_size=500
    )
    parts = parts_of(records, batch)
    assert [part.record_count for part in parts] == [32, 32]
    assert [value for part in parts for value in values_of(part)] == values
    assert [read(part).compression for part in parts] == [codec, codec]
    assert all(part.size_bytes < batch.size_bytes for part in parts)
    assert [(part.first_number, part.base_sequence) for part in parts] == [(0, 2**31 - 2), (32, 30)]
    assert {(part.producer_id, part.producer_epoch, part.is_encoded) for part in parts} == {(7, 2, True)}
    times = [record.timestamp_ms for part in parts for record in records_of(part)]
    assert times == list(range(1000, 1064))
    assert [fields_of(data_of(part))["max_timestamp"] for part in parts] == [1031, 1063]
    headers = [record.headers for part in parts for record in records_of(part)]
    assert headers == [(("h", value),) for value in values]
    end(records, (parts[0], 0), (parts[1], 32))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sizes", [(0, 0), (0, 0, 0), (900, 0, 0, 0), (0, 0, 0, 900), (1,) * 17, (5, 900, 5)])
def test_splitting_always_gets_down_to_single_records(codec: str, sizes: tuple[int, ...]) -> None:
    values = [b"%d" % at + b"x" * size for at, size in enumerate(sizes)]
    data = kbatch.encode([(None, value) for value in values], compression=codec)
    records, delivery, batch = in_flight(data)
    waiting, single = [batch], []
    while waiting:
        each = waiting.pop(0)
        if each.record_count == 1:
            single.append(each)
        else:
            parts = parts_of(records, each)
            assert len(parts) > 1
            waiting[:0] = parts
    assert [values_of(each) for each in single] == [[value] for value in values]
    assert [each.first_number for each in single] == list(range(len(sizes)))
    for offset, each in enumerate(single):
        assert not delivery.done()
        settle(each, 10 * offset)
    assert delivery.offset_runs(0) == [(10 * offset, 1) for offset in range(len(sizes))]
    assert is_whole(records)


def test_parts_of_a_part_are_cut_around_the_largest_record() -> None:
    values = [b"a" * 10, b"b" * 3000, b"c" * 10, b"d" * 10]
    records, _, batch = in_flight(encoded(*values))
    parts = parts_of(records, batch)
    assert [part.record_count for part in parts] == [1, 1, 2]
    assert [part.largest_record_bytes > 3000 for part in parts] == [False, True, False]


def test_the_estimate_of_own_batches_learns_nothing_from_those_of_others() -> None:
    def sealed_sizes(with_split: bool) -> list[int]:
        records = accumulator(compression="zstd", batch_size=2000, linger_ns=2**62)
        for _ in range(400):  # which compress well, so that more of them are put into a batch
            put(records, b"y" * 400)
        fail_all(records, FAILURE)
        if with_split:
            give(records, encoded(*[b"x" * 500] * 8, compression="zstd"))
            for part in records.split(one(records)):
                records.drain([1], 2**40, 0)
                part.fail(FAILURE)
        for _ in range(60):
            put(records, b"y" * 400)
        return [batch.record_count for batch in records.batches("t", 0)]

    assert sealed_sizes(True) == sealed_sizes(False)


EXTREMES = [(2**63 - 1, 1), (0, 2**63 - 1), (-(2**63), 1000), (-1, 0), (2**62, 2**62)]


@pytest.mark.parametrize(("base", "maximum"), EXTREMES)
def test_timestamps_that_no_producer_would_write_come_out_as_readers_see_them(
    base: int, maximum: int
) -> None:
    data = altered(encoded(b"a", b"b", b"c", b"d"), base_timestamp=base, max_timestamp=maximum)
    (whole,) = kbatch.decode(data)
    expected = [record.timestamp_ms for record in whole]
    records, delivery, batch = in_flight(data)
    parts = parts_of(records, batch)
    assert [record.timestamp_ms for part in parts for record in records_of(part)] == expected
    end(records, (parts[0], 0), (parts[1], 2))
    assert delivery.result(0).timestamp_ms == maximum


BATCH = encoded(b"aaaa", b"bbbb", b"cccc", b"dddd")
BODY_AT = 61


def with_body(body: bytes, **fields: Any) -> bytes:
    data = BATCH[:BODY_AT] + body
    return altered(data, length=len(data) - 12, **fields)


def with_packed(body: bytes, **fields: Any) -> bytes:
    """Of what is not compressed the sizes are checked before it is taken."""
    return with_body(gzip.compress(body), attributes=1, **fields)


BROKEN = {
    "a record is cut off": with_packed(BATCH[BODY_AT:-3]),
    "bytes are left over": with_packed(BATCH[BODY_AT:] + b"\0"),
    "more records than told": with_packed(BATCH[BODY_AT:], count=3, last_offset_delta=2),
    "fewer records than told": with_packed(BATCH[BODY_AT:], count=6, last_offset_delta=5),
    "noise": with_packed(random.Random(1).randbytes(200)),
    "not compressed by that codec": with_body(b"noise" * 20, attributes=4),
    "a compressed stream that ends early": with_body(
        encoded(*[b"a" * 99] * 4, compression="gzip")[BODY_AT:-9], attributes=1
    ),
    "nothing but a count": altered(
        with_body(encoded(b"a" * 99, compression="lz4")[BODY_AT:], attributes=3),
        count=2**31 - 1,
        last_offset_delta=2**31 - 2,
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_records_that_cannot_be_read_are_not_split_and_the_batch_stays_as_it_is(case: str) -> None:
    records, delivery, batch = in_flight(BROKEN[case])
    with pytest.raises(CorruptRecordError):
        records.split(batch)
    assert batch.state == "in_flight" and not delivery.done()
    assert records.split_count == 0
    batch.fail(FAILURE)
    assert delivery.exception(0) is FAILURE
    assert is_whole(records)


def test_a_batch_that_would_grow_beyond_all_bounds_is_not_split() -> None:
    zeros = kbatch.encode([(None, bytes(1 << 28)), (None, b"")], compression="zstd")
    records, _, batch = in_flight(zeros)
    with pytest.raises(CorruptRecordError, match="limit"):
        records.split(batch)
    batch.fail(FAILURE)
    assert is_whole(records)


# One delivery of several parts


def test_the_delivery_is_done_when_all_parts_are() -> None:
    told: list[Any] = []
    done: list[Any] = []
    records = accumulator()
    delivery = give(records, BATCH, on_delivery=lambda *arguments: told.append(arguments))
    delivery.add_done_callback(done.append)
    flush = records.begin_flush()
    first, second = parts_of(records, one(records))
    settle(second, 90)
    assert not delivery.done() and not delivery.wait(0) and not told and not done and not flush.done()
    settle(first, 40)
    assert delivery.done() and flush.done() and done == [delivery]
    assert told == [(RecordMetadata("t", 0, 40, 1003, -1, -1), None)]
    assert delivery.offset_runs(0) == [(40, 2), (90, 2)]
    records.end_flush()
    assert is_whole(records)


def test_parts_of_parts_too() -> None:
    told: list[Any] = []
    records = accumulator()
    delivery = give(records, BATCH, on_delivery=lambda *arguments: told.append(arguments))
    first, second = parts_of(records, one(records))
    settle(first, 0)
    third, fourth = parts_of(records, second)
    settle(fourth, 9)
    assert not told and not delivery.done()
    settle(third, 5)
    assert delivery.offset_runs(0) == [(0, 2), (5, 1), (9, 1)]
    assert len(told) == 1
    assert is_whole(records)


def test_a_callback_that_is_late_hears_of_all_parts() -> None:
    """The delivery thread may come to the first part when the second is settled, too."""
    told: list[Any] = []
    records = accumulator()
    give(records, BATCH, on_delivery=lambda *arguments: told.append(arguments))
    parts = parts_of(records, one(records))
    for offset, part in enumerate(parts):
        part.complete(offset)
    assert not told
    for part in parts:
        part.completion.run_callbacks(print)
    assert len(told) == 1
    assert is_whole(records)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_part_that_failed_fails_the_batch_which_may_be_in_the_log_in_part(order: tuple[int, int]) -> None:
    told: list[Any] = []
    records = accumulator()
    delivery = give(records, BATCH, on_delivery=lambda *arguments: told.append(arguments))
    parts = parts_of(records, one(records))
    ends: list[Any] = [10, FAILURE]
    for at in order:
        settle(parts[at], ends[at])
    error = delivery.exception(0)
    assert type(error) is KafkaError and str(error) == str(FAILURE)
    assert error.possibly_persisted and not FAILURE.possibly_persisted
    with pytest.raises(KafkaError, match="failed in a test"):
        delivery.result(0)
    with pytest.raises(KafkaError, match="failed in a test"):
        delivery.offset_runs(0)
    ((metadata, said),) = told
    assert metadata == RecordMetadata("t", 0) and said.possibly_persisted
    assert [part.completion.unobserved_count for part in parts] == [0, 0]
    assert is_whole(records)


def test_parts_that_all_failed_for_sure_say_so() -> None:
    records, delivery, batch = in_flight(BATCH)
    first, second = parts_of(records, batch)
    other = KafkaError("another")
    end(records, (second, other), (first, FAILURE))
    assert delivery.exception(0) is FAILURE


def test_a_part_that_may_be_in_the_log_taints_the_first_error() -> None:
    records, delivery, batch = in_flight(BATCH)
    first, second = parts_of(records, batch)
    end(records, (first, FAILURE), (second, KafkaError("unsure").marked(possibly_persisted=True)))
    error = delivery.exception(0)
    assert isinstance(error, KafkaError)
    assert str(error) == str(FAILURE) and error.possibly_persisted


@pytest.mark.parametrize("last", [20, FAILURE])
def test_a_part_that_failed_does_not_end_the_batch(last: Any) -> None:
    records, delivery, batch = in_flight(BATCH)
    first, second = parts_of(records, batch)
    first.fail(FAILURE)
    assert not delivery.done() and not delivery.wait(0)
    end(records, (second, last))
    error = delivery.exception(0)
    assert isinstance(error, KafkaError) and error.possibly_persisted is (last == 20)


def test_one_look_is_a_look_at_all_parts() -> None:
    records, delivery, batch = in_flight(BATCH)
    parts = parts_of(records, batch)
    for part in parts:
        part.fail(FAILURE)
    assert [part.completion.unobserved_count for part in parts] == [2, 2]
    delivery.exception(0)
    assert [part.completion.unobserved_count for part in parts] == [0, 0]


def test_waiting_goes_from_part_to_part() -> None:
    records, delivery, batch = in_flight(BATCH)
    parts = parts_of(records, batch)
    threads = [threading.Timer(0.03 * at, part.complete, (at,)) for at, part in enumerate(parts)]
    for thread in threads:
        thread.start()
    assert delivery.result(HANG_SECONDS).offset == 0
    assert delivery.offset_runs(0) == [(0, 2), (1, 2)]
    for thread in threads:
        thread.join()
    assert list(kbatch.as_completed([delivery], 1)) == [delivery]


def test_ordinary_batches_are_split_as_before_between_encoded_ones() -> None:
    records = accumulator()
    give(records, BATCH)
    for number in range(4):
        put(records, b"%d" % number)
    give(records, BATCH)
    batches = all_drained(records)
    parts = [part for batch in batches for part in records.split(batch)]
    assert [part.first_number for part in parts] == [0, 2, 4, 6, 8, 10]
    assert all_drained(records) == parts
    values = [value for part in parts for value in values_of(part)]
    own = [b"aaaa", b"bbbb", b"cccc", b"dddd"]
    assert values == [*own, b"0", b"1", b"2", b"3", *own]
    end(records, *[(part, 0) for part in parts])
