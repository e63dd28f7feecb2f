"""Batches that were encoded elsewhere: which are accepted, their memory, and their BatchDelivery.

What the sender and the producer make of them is in test_send_batch_delivered.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import random
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import kbatch
from kbatch import CorruptRecordError, KafkaError
from kbatch._native.batch.delivery import BatchDelivery, OffsetRun, RecordMetadata
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.accumulator import RecordAccumulator, Refusal
from kbatch.errors import ProducerClosedError, RecordTooLargeError
from tests.oracle.plain import CODECS
from tests.support.accumulating import (
    BY_OTHERS,
    MEGABYTE,
    NEVER,
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
from tests.support.patience import HANG_SECONDS

FAILURE = KafkaError("failed in a test")
HEADER = struct.Struct(">qiibIhiqqqhii")
FIELDS = (
    *("base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta"),
    *("base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count"),
)
STATE_BYTES = 1280


def encoded(*values: bytes, compression: str = "none", timestamp_ms: int = 1000, **rest: Any) -> bytes:
    records = [(None, value, [("h", value)], timestamp_ms + at) for at, value in enumerate(values)]
    return kbatch.encode(records, compression=compression, **rest)


def fields_of(batch: bytes) -> dict[str, Any]:
    return dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True))


def altered(batch: bytes, **fields: Any) -> bytes:
    """Return the batch with other header fields and, unless given, their CRC."""
    values = fields_of(batch) | fields
    data = HEADER.pack(*(values[name] for name in FIELDS)) + batch[HEADER.size :]
    if "crc" in fields:
        return data
    return altered(data, crc=kbatch.crc32c(data[21:]))


def give(records: RecordAccumulator, data: Any, partition: int = 0, now_ns: int = 0, **rest: Any) -> Any:
    """Append a batch that must be accepted."""
    delivery = records.append_batch("t", partition, data, now_ns, **rest)
    assert isinstance(delivery, BatchDelivery), delivery
    return delivery


def given(*values: bytes, **rest: Any) -> tuple[RecordAccumulator, BatchDelivery, ProducerBatch]:
    """Return one batch, drained."""
    records = accumulator()
    delivery = give(records, encoded(*(values or (b"a", b"b", b"c"))), **rest)
    return records, delivery, one(records)


def settle(batch: ProducerBatch, end: int | KafkaError) -> None:
    assert batch.complete(end) if isinstance(end, int) else batch.fail(end)
    batch.completion.run_callbacks(_threw)


def _threw(function: Any, error: Exception) -> None:
    raise error


# Sends


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("own", ["none", "zstd"])
def test_a_batch_is_sent_as_it_is_whatever_the_codecs(codec: str, own: str) -> None:
    records = accumulator(compression=own)
    data = encoded(b"a" * 100, b"b" * 100, compression=codec)
    give(records, data)
    batch = one(records)
    assert (batch.record_count, batch.size_bytes, batch.is_encoded) == (2, len(data), True)
    assert data_of(batch) == data
    batch.stamp(7, 3, 5)
    assert data_of(batch) == altered(data, producer_id=7, producer_epoch=3, base_sequence=5)
    assert (batch.base_sequence, batch.last_sequence, batch.max_timestamp_ms) == (5, 6, 1001)
    assert batch.largest_record_bytes == (len(data) - 61 + 1) // 2
    batch.complete(0)
    assert is_whole(records)


def test_offset_and_leader_epoch_of_an_earlier_log_are_dropped() -> None:
    records = accumulator()
    data = encoded(b"a", b"b")
    give(records, kbatch.rebase(altered(data, leader_epoch=7), 1000))
    assert data_of(one(records)) == data


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: memoryview(bytearray(data))])
def test_what_is_not_bytes_is_copied(kind: Callable[[bytes], Any]) -> None:
    records = accumulator()
    data = encoded(b"a", b"b")
    buffer = kind(data)
    give(records, buffer)
    if not memoryview(buffer).readonly:
        memoryview(buffer)[:] = bytes(len(data))
    assert data_of(one(records)) == data


def test_bytes_are_kept_as_they_are_until_the_last_user_has_gone() -> None:
    records = accumulator()
    data = encoded(b"a" * 1000, b"b")
    count = sys.getrefcount(data)
    give(records, data)
    assert sys.getrefcount(data) == count + 1
    batch = one(records)
    views = batch.buffers()
    batch.complete(0)
    del batch
    assert b"".join(views) == data  # KAFKA-19012: whatever became of the batch
    assert sys.getrefcount(data) == count + 1
    assert records.memory.available == records.memory.total_memory - len(data)
    for view in views:
        view.release()
    assert sys.getrefcount(data) == count
    assert is_whole(records)
    assert data == encoded(b"a" * 1000, b"b")  # not poisoned: it is the caller's too


def test_a_batch_that_only_we_have_is_poisoned_at_the_end() -> None:
    records = accumulator()
    give(records, encoded(b"a" * 1000))
    batch = one(records)
    views = batch.buffers()
    kept = bytes(views[1])
    batch.complete(0)
    assert bytes(views[1]) == kept
    del views, batch
    assert is_whole(records)


def test_encoded_batch_keeps_its_place_among_records() -> None:
    records = accumulator(2, linger_ns=NEVER)
    put(records, b"0")
    put(records, b"1")
    put(records, b"other", partition=1)
    give(records, encoded(b"2", b"3", b"4"))
    put(records, b"5")
    give(records, encoded(b"6"))
    give(records, encoded(b"7", b"8"))
    assert [batch.state for batch in records.batches("t", 0)] == ["sealed"] * 5
    assert [batch.first_number for batch in records.batches("t", 0)] == [0, 2, 5, 6, 7]
    assert [batch.state for batch in records.batches("t", 1)] == ["open"]
    batches = [batch for batch in all_drained(records) if batch.partition == 0]
    assert [values_of(batch) for batch in batches] == [
        [b"0", b"1"],
        [b"2", b"3", b"4"],
        [b"5"],
        [b"6"],
        [b"7", b"8"],
    ]
    assert records.counters()["records"] == 10


def test_encoded_batch_waits_until_the_open_batch_is_sealed() -> None:
    records = accumulator(seal_policy=BY_OTHERS)
    put(records, b"0")
    give(records, encoded(b"1"))
    first, second = records.batches("t", 0)
    assert (first.state, second.state) == ("sealing", "sealed")
    records.ready(0)
    assert records.drain([1], MEGABYTE, 0) == {1: []}
    (unsealed,) = records.take_unsealed()
    unsealed.seal()
    assert [values_of(batch) for batch in all_drained(records)] == [[b"0"], [b"1"]]


def test_a_batch_does_not_linger_and_wakes_the_sender() -> None:
    woken: list[bool] = []
    records = accumulator(linger_ns=NEVER, wake=lambda: woken.append(True))
    records.ready(0)
    give(records, encoded(b"a"))
    assert woken == [True]
    assert records.ready(0)[0] == {1}


def test_sticky_partition_continues_after_an_encoded_batch() -> None:
    records = accumulator(3, batch_size=200)
    for number in range(30):
        delivery = put(records, b"%d" % number, partition=-1)
        give(records, encoded(b"x"), partition=delivery.partition)
    values = [value for batch in all_drained(records) for value in values_of(batch)]
    assert sorted(values) == sorted([b"x"] * 30 + [b"%d" % number for number in range(30)])


def test_a_retried_batch_has_the_same_bytes_and_the_same_place() -> None:
    records = accumulator(retry_backoff_ns=10)
    give(records, encoded(b"0", b"1"))
    put(records, b"2")
    batch = one(records)
    batch.stamp(1, 0, 0)
    before = data_of(batch)
    assert records.reenqueue(batch, 0)
    assert [each.first_number for each in records.batches("t", 0)] == [0, 2]
    again = one(records, now_ns=1000)
    assert again is batch and data_of(again) == before and again.attempts == 1


# Refusals


BATCH = encoded(b"a", b"b", b"c")
NO_BATCHES: list[tuple[Any, type[Exception], str]] = [
    (b"", CorruptRecordError, "61 bytes, got 0"),
    (BATCH[:60], CorruptRecordError, "61 bytes, got 60"),
    (BATCH[:-1], CorruptRecordError, f"{len(BATCH)} bytes, but there are only {len(BATCH) - 1}"),
    (BATCH + b"x", ValueError, "1 bytes follow the first.*each batch by itself"),
    (BATCH * 2, ValueError, f"{len(BATCH)} bytes follow the first.*each batch by itself"),
    (altered(BATCH, magic=1), CorruptRecordError, "magic must be 2.* got 1; encode"),
    (altered(BATCH, length=48), CorruptRecordError, "length must be 49 or more, got 48"),
    (altered(BATCH, length=-1), CorruptRecordError, "length must be 49 or more, got -1"),
    (altered(BATCH, length=2**31 - 1), CorruptRecordError, "length is 2147483647"),
    (altered(BATCH, crc=0x1234), CorruptRecordError, "crc is 0x00001234.*damaged"),
    (BATCH[:-1] + bytes([BATCH[-1] ^ 1]), CorruptRecordError, "crc is .*damaged"),
    (altered(BATCH, attributes=5), CorruptRecordError, "attributes is 0x0005: compression codec 5"),
    (altered(BATCH, attributes=0x08), ValueError, "attributes is 0x0008.*LogAppendTime.*encode them again"),
    (altered(BATCH, attributes=0x20), ValueError, "attributes is 0x0020.*control.*encode them again"),
    (altered(BATCH, attributes=0x40), ValueError, "attributes is 0x0040.*delete horizon.*encode them again"),
    (altered(BATCH, attributes=0x80), ValueError, "attributes is 0x0080, of which 0x0080 has no meaning"),
    (altered(BATCH, attributes=-32768), ValueError, "attributes is 0x8000, of which 0x8000"),
    (altered(BATCH, attributes=0x10), ValueError, "the batch is transactional.*without transactional"),
    (altered(BATCH, count=0, last_offset_delta=-1), CorruptRecordError, "count must be 1 or more, got 0"),
    (altered(BATCH, count=-5), CorruptRecordError, "count must be 1 or more, got -5"),
    (
        altered(BATCH, last_offset_delta=7),
        ValueError,
        "last_offset_delta must be count - 1, which is 2, got 7",
    ),
    (
        altered(BATCH, count=2**31 - 1, last_offset_delta=2**31 - 2),
        CorruptRecordError,
        "count is 2147483647, but .* so many",
    ),
    (
        altered(BATCH, count=2, last_offset_delta=1),
        CorruptRecordError,
        "count is 2, but the batch has 3 records; encode it again",
    ),
    (
        altered(BATCH, count=4, last_offset_delta=3),
        CorruptRecordError,
        "count is 4, but the batch has 3 records; encode it again",
    ),
    (
        altered(BATCH[:61] + BATCH[62:], length=len(BATCH) - 13),
        CorruptRecordError,
        "sizes of the records do not add up to that of the batch",
    ),
    (altered(BATCH[:-1], length=len(BATCH) - 13), CorruptRecordError, "sizes of the records do not add up"),
    (altered(BATCH + b"\0", length=len(BATCH) - 11), CorruptRecordError, "sizes of the records do not add"),
    (
        altered(BATCH[:61] + b"\xff" * 30, length=79, count=1, last_offset_delta=0),
        CorruptRecordError,
        "sizes of the records do not add up",
    ),
    (
        altered(BATCH, producer_id=0),
        ValueError,
        "producer_id must be -1.*got 0; encode.* without producer_id",
    ),
    (altered(BATCH, producer_epoch=3), ValueError, "producer_epoch must be -1.*got 3; encode"),
    (altered(BATCH, base_sequence=9), ValueError, "base_sequence must be -1.*got 9; encode"),
    (None, TypeError, "batch_bytes must be bytes-like, got NoneType"),
    ("text", TypeError, "batch_bytes must be bytes-like, got str"),
    ([BATCH], TypeError, "batch_bytes must be bytes-like, got list"),
]


@pytest.mark.parametrize(("data", "kind", "text"), NO_BATCHES, ids=range(len(NO_BATCHES)))
def test_unsuitable_batch_is_refused_with_the_reason(data: Any, kind: Any, text: str) -> None:
    records = accumulator()
    put(records, b"open")
    with pytest.raises(kind, match=text) as refused:
        records.append_batch("t", 0, data, 0)
    assert type(refused.value) is kind
    assert [batch.state for batch in records.batches("t", 0)] == ["open"]  # it had no part in that
    for batch in all_drained(records):
        batch.complete(0)
    assert is_whole(records)


@pytest.mark.parametrize("attributes", [0, 0x10])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_transactional_producer_marks_encoded_batches(attributes: int, codec: str) -> None:
    records = accumulator(transactional=True)
    batch = encoded(b"0", b"1", b"2", compression=codec)
    give(records, altered(batch, attributes=fields_of(batch)["attributes"] | attributes))
    drained = one(records)
    drained.stamp(7, 0, 0)
    whole = read(drained)
    assert whole.is_transactional and whole.compression == codec
    assert [record.value for record in whole] == [b"0", b"1", b"2"]
    parts = records.split(drained)
    assert [read(part).is_transactional for part in parts] == [True] * 3


def read(batch: ProducerBatch) -> kbatch.RecordBatch:
    (found,) = kbatch.decode(data_of(batch), partial="raise")
    return found


@pytest.mark.parametrize("partition", [-1, 2**31, None, True, "0"])
def test_a_partition_must_be_named(partition: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="partition must be"):
        accumulator().append_batch("t", partition, BATCH, 0)


def test_on_delivery_must_be_callable() -> None:
    with pytest.raises(TypeError, match="on_delivery must be callable"):
        accumulator().append_batch("t", 0, BATCH, 0, 5)  # type: ignore[arg-type]


def test_closed_accumulator_refuses_a_batch_and_keeps_nothing() -> None:
    records = accumulator()
    records.close()
    noted: list[Any] = []
    data = encoded(b"a")
    count = sys.getrefcount(data)
    with pytest.raises(ProducerClosedError):
        records.append_batch("t", 0, data, 0, lambda *arguments: noted.append(arguments))
    assert is_whole(records) and not noted
    assert sys.getrefcount(data) == count


def test_close_racing_with_batches_takes_or_refuses_each() -> None:
    for _ in range(20):
        records = accumulator(4)
        taken: list[int] = []
        started = threading.Barrier(3)

        def work(records: RecordAccumulator, partition: int, taken: list[int], started: Any) -> None:
            started.wait()
            with contextlib.suppress(ProducerClosedError):
                while True:
                    give(records, BATCH, partition)
                    taken.append(3)

        threads = [
            threading.Thread(target=work, args=(records, partition, taken, started)) for partition in range(2)
        ]
        for thread in threads:
            thread.start()
        started.wait()
        records.close()
        count = records.counters()["records"]
        for thread in threads:
            thread.join()
        assert records.counters()["records"] == count == sum(taken)
        for batch in all_drained(records):
            batch.complete(0)
        assert is_whole(records)


# Memory


def test_what_a_batch_takes_is_charged_and_comes_back_once() -> None:
    records = accumulator()
    data = encoded(b"a" * 5000)
    give(records, data)
    assert records.memory.total_memory - records.memory.available == len(data) + STATE_BYTES
    batch = one(records)
    batch.complete(0)
    with pytest.raises(kbatch.IllegalStateError):
        batch.complete(0)
    assert is_whole(records)


def test_encoded_batch_queues_for_memory() -> None:
    data = encoded(b"a" * 1500)
    records = accumulator(buffer_memory=5000)
    give(records, data)
    assert records.append_batch("t", 0, data, 0) is Refusal.MEMORY
    one(records).complete(0)
    waiter = records.begin_waiting()
    assert records.append_batch("t", 0, data, 0) is Refusal.MEMORY
    give(records, data, first_in_queue=True)
    waiter.withdraw()
    one(records).complete(0)
    assert is_whole(records)


def test_callback_may_overdraw_by_the_memory_it_returns() -> None:
    data = encoded(b"a" * 3000)
    records = accumulator(buffer_memory=len(data) + STATE_BYTES)
    outcomes: list[Any] = []

    def again(metadata: RecordMetadata, error: BaseException | None) -> None:
        outcomes.append(records.append_batch("t", 0, data, 0, in_callback=False))
        put_in = encoded(b"a" * 2900)
        outcomes.append(records.append_batch("t", 0, put_in, 0, in_callback=True))

    give(records, data, on_delivery=again)
    settle(one(records), 0)
    assert outcomes[0] is Refusal.MEMORY and isinstance(outcomes[1], BatchDelivery)
    one(records).complete(0)
    assert is_whole(records)


def test_a_batch_beyond_buffer_memory_is_too_large() -> None:
    data = encoded(b"a" * 5000)
    records = accumulator(buffer_memory=len(data) + STATE_BYTES - 1)
    with pytest.raises(RecordTooLargeError, match=rf"{len(data)} bytes.*buffer.memory.*raise it"):
        records.append_batch("t", 0, data, 0)
    assert is_whole(records)
    records = accumulator(buffer_memory=len(data) + STATE_BYTES)
    give(records, data)


def test_a_callback_that_is_refused_is_let_go() -> None:
    class Callback:
        def __call__(self, *arguments: Any) -> None: ...

    records = accumulator(buffer_memory=5000)
    give(records, encoded(b"a" * 1500))
    gone: list[bool] = []
    callback = Callback()
    reference = weakref.ref(callback, lambda _: gone.append(True))
    assert records.append_batch("t", 0, encoded(b"a" * 1500), 0, callback) is Refusal.MEMORY
    records.close()
    one(records).complete(0)
    with pytest.raises(ProducerClosedError):
        records.append_batch("t", 0, encoded(b"a"), 0, callback)
    del callback
    gc.collect()
    assert gone and reference() is None


# Reports


def test_one_delivery_says_where_all_records_are() -> None:
    records, delivery, batch = given()
    assert (delivery.topic, delivery.partition, delivery.record_count) == ("t", 0, 3)
    assert not delivery.done() and not delivery.wait(0)
    with pytest.raises(kbatch.KafkaTimeoutError):
        delivery.offset_runs(0)
    settle(batch, 40)
    assert delivery.done() and delivery.wait(0)
    assert delivery.result(0) == RecordMetadata("t", 0, 40, 1002, -1, -1)
    assert delivery.exception(0) is None
    assert delivery.offset_runs(0) == [OffsetRun(40, 3)] == [(40, 3)]
    assert isinstance(delivery, kbatch.Delivery)
    assert is_whole(records)


def test_log_append_time_is_reported_if_the_broker_sets_it() -> None:
    _, delivery, batch = given()
    batch.complete(40, 777)
    assert delivery.result(0).timestamp_ms == 777


def test_an_offset_that_the_broker_did_not_say_is_not_made_up() -> None:
    _, delivery, batch = given()
    batch.complete(-1)
    assert delivery.result(0).offset == -1
    assert delivery.offset_runs(0) == [(-1, 3)]


@pytest.mark.parametrize("end", [7, FAILURE])
def test_on_delivery_is_called_once_for_the_batch(end: Any) -> None:
    noted: list[Any] = []
    records, _, batch = given(on_delivery=lambda *arguments: noted.append(arguments))
    assert batch.completion.has_callbacks and not noted
    settle(batch, end)
    if end is FAILURE:
        assert noted == [(RecordMetadata("t", 0), FAILURE)]
        assert batch.completion.unobserved_count == 0
    else:
        assert noted == [(RecordMetadata("t", 0, 7, 1002, -1, -1), None)]
    assert batch.completion.run_callbacks(_threw) == 0 and len(noted) == 1
    assert is_whole(records)


def test_a_callback_that_raises_is_reported_by_its_own_name() -> None:
    def broken(metadata: Any, error: Any) -> None:
        raise ZeroDivisionError

    reported: list[Any] = []
    records, _, batch = given(on_delivery=broken)
    batch.complete(0)
    batch.completion.run_callbacks(lambda function, error: reported.append((function, type(error))))
    assert reported == [(broken, ZeroDivisionError)]
    assert is_whole(records)


def test_unobserved_failure_counts_all_records() -> None:
    _, delivery, batch = given()
    batch.fail(FAILURE)
    assert batch.completion.unobserved_count == 3
    with pytest.raises(KafkaError) as raised:
        delivery.result(0)
    assert raised.value is FAILURE
    assert batch.completion.unobserved_count == 0
    assert delivery.exception(0) is FAILURE
    assert batch.completion.unobserved_count == 0


def test_the_record_at_fault_speaks_for_the_batch() -> None:
    _, delivery, batch = given()
    fault = KafkaError("record 1 is wrong")
    batch.fail(FAILURE, {2: KafkaError("record 2 is wrong"), 1: fault})
    assert delivery.exception(0) is fault


def test_it_can_be_waited_for_like_any_delivery() -> None:
    records, delivery, batch = given()
    other = give(records, BATCH)
    done: list[Any] = []
    delivery.add_done_callback(done.append)
    thread = threading.Timer(0.05, batch.complete, (5,))
    thread.start()
    assert delivery.result(HANG_SECONDS).offset == 5
    batch.completion.run_callbacks(_threw)
    assert done == [delivery]
    delivery.add_done_callback(done.append)
    assert done == [delivery, delivery]
    assert kbatch.wait([delivery, other], 0) == ([delivery], [other])
    thread.join()


def test_deliveries_come_and_go() -> None:
    for _ in range(3000):  # more than are kept for reuse
        records, delivery, batch = given(b"a")
        ordinary = put(records)
        assert not gc.is_tracked(delivery)
        batch.complete(0)
        one(records).complete(1)
        assert (delivery.result(0).offset, ordinary.result(0).offset) == (0, 1)


def test_flushes_wait_for_batches_and_their_callbacks() -> None:
    noted: list[Any] = []
    records, _, batch = given(on_delivery=lambda *arguments: noted.append(arguments))
    flush = records.begin_flush()
    batch.complete(0)
    assert not flush.done()
    batch.completion.run_callbacks(_threw)
    assert flush.done() and noted
    records.end_flush()


def test_batches_fail_and_expire_like_others() -> None:
    records = accumulator(delivery_timeout_ns=100)
    first = give(records, BATCH)
    (batch,) = records.expire(100)
    batch.fail(FAILURE)
    second = give(records, BATCH, now_ns=100)
    assert fail_all(records, FAILURE) and second.exception(0) is FAILURE is first.exception(0)
    third = give(records, BATCH, now_ns=100)
    views = one(records, 100).buffers()
    assert fail_all(records, FAILURE) and third.exception(0) is FAILURE
    assert b"".join(views) == BATCH
    del views
    assert is_whole(records)


# Batches that came encoded, and are too large for the broker.


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
def test_split_halves_keep_the_codec_of_the_batch(codec: str, own: Any) -> None:
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


def test_encoded_batches_do_not_change_the_ratio_estimate() -> None:
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
def test_unusual_timestamps_are_reported_as_readers_see_them(base: int, maximum: int) -> None:
    data = altered(encoded(b"a", b"b", b"c", b"d"), base_timestamp=base, max_timestamp=maximum)
    (whole,) = kbatch.decode(data)
    expected = [record.timestamp_ms for record in whole]
    records, delivery, batch = in_flight(data)
    parts = parts_of(records, batch)
    assert [record.timestamp_ms for part in parts for record in records_of(part)] == expected
    end(records, (parts[0], 0), (parts[1], 2))
    assert delivery.result(0).timestamp_ms == maximum


FOUR_RECORDS = encoded(b"aaaa", b"bbbb", b"cccc", b"dddd")
BODY_AT = 61


def with_body(body: bytes, **fields: Any) -> bytes:
    data = FOUR_RECORDS[:BODY_AT] + body
    return altered(data, length=len(data) - 12, **fields)


def with_packed(body: bytes, **fields: Any) -> bytes:
    """Return a compressed batch: sizes in uncompressed ones are checked before the batch is accepted."""
    return with_body(gzip.compress(body), attributes=1, **fields)


BROKEN = {
    "a record is cut off": with_packed(FOUR_RECORDS[BODY_AT:-3]),
    "bytes are left over": with_packed(FOUR_RECORDS[BODY_AT:] + b"\0"),
    "more records than counted": with_packed(FOUR_RECORDS[BODY_AT:], count=3, last_offset_delta=2),
    "fewer records than counted": with_packed(FOUR_RECORDS[BODY_AT:], count=6, last_offset_delta=5),
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
def test_batch_with_unreadable_records_is_not_split(case: str) -> None:
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
    noted: list[Any] = []
    done: list[Any] = []
    records = accumulator()
    delivery = give(records, FOUR_RECORDS, on_delivery=lambda *arguments: noted.append(arguments))
    delivery.add_done_callback(done.append)
    flush = records.begin_flush()
    first, second = parts_of(records, one(records))
    settle(second, 90)
    assert not delivery.done() and not delivery.wait(0) and not noted and not done and not flush.done()
    settle(first, 40)
    assert delivery.done() and flush.done() and done == [delivery]
    assert noted == [(RecordMetadata("t", 0, 40, 1003, -1, -1), None)]
    assert delivery.offset_runs(0) == [(40, 2), (90, 2)]
    records.end_flush()
    assert is_whole(records)


def test_parts_of_parts_too() -> None:
    noted: list[Any] = []
    records = accumulator()
    delivery = give(records, FOUR_RECORDS, on_delivery=lambda *arguments: noted.append(arguments))
    first, second = parts_of(records, one(records))
    settle(first, 0)
    third, fourth = parts_of(records, second)
    settle(fourth, 9)
    assert not noted and not delivery.done()
    settle(third, 5)
    assert delivery.offset_runs(0) == [(0, 2), (5, 1), (9, 1)]
    assert len(noted) == 1
    assert is_whole(records)


def test_late_callback_gets_the_outcome_of_all_parts() -> None:
    """The delivery thread may come to the first part when the second is settled, too."""
    noted: list[Any] = []
    records = accumulator()
    give(records, FOUR_RECORDS, on_delivery=lambda *arguments: noted.append(arguments))
    parts = parts_of(records, one(records))
    for offset, part in enumerate(parts):
        part.complete(offset)
    assert not noted
    for part in parts:
        part.completion.run_callbacks(print)
    assert len(noted) == 1
    assert is_whole(records)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_failed_part_fails_the_batch_as_possibly_persisted(order: tuple[int, int]) -> None:
    noted: list[Any] = []
    records = accumulator()
    delivery = give(records, FOUR_RECORDS, on_delivery=lambda *arguments: noted.append(arguments))
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
    ((metadata, said),) = noted
    assert metadata == RecordMetadata("t", 0) and said.possibly_persisted
    assert [part.completion.unobserved_count for part in parts] == [0, 0]
    assert is_whole(records)


def test_parts_that_all_failed_for_sure_say_so() -> None:
    records, delivery, batch = in_flight(FOUR_RECORDS)
    first, second = parts_of(records, batch)
    other = KafkaError("another")
    end(records, (second, other), (first, FAILURE))
    assert delivery.exception(0) is FAILURE


def test_a_part_that_may_be_in_the_log_taints_the_first_error() -> None:
    records, delivery, batch = in_flight(FOUR_RECORDS)
    first, second = parts_of(records, batch)
    end(records, (first, FAILURE), (second, KafkaError("unsure").marked(possibly_persisted=True)))
    error = delivery.exception(0)
    assert isinstance(error, KafkaError)
    assert str(error) == str(FAILURE) and error.possibly_persisted


@pytest.mark.parametrize("last", [20, FAILURE])
def test_a_part_that_failed_does_not_end_the_batch(last: Any) -> None:
    records, delivery, batch = in_flight(FOUR_RECORDS)
    first, second = parts_of(records, batch)
    first.fail(FAILURE)
    assert not delivery.done() and not delivery.wait(0)
    end(records, (second, last))
    error = delivery.exception(0)
    assert isinstance(error, KafkaError) and error.possibly_persisted is (last == 20)


def test_one_look_is_a_look_at_all_parts() -> None:
    records, delivery, batch = in_flight(FOUR_RECORDS)
    parts = parts_of(records, batch)
    for part in parts:
        part.fail(FAILURE)
    assert [part.completion.unobserved_count for part in parts] == [2, 2]
    delivery.exception(0)
    assert [part.completion.unobserved_count for part in parts] == [0, 0]


def test_waiting_goes_from_part_to_part() -> None:
    records, delivery, batch = in_flight(FOUR_RECORDS)
    parts = parts_of(records, batch)
    threads = [threading.Timer(0.03 * at, part.complete, (at,)) for at, part in enumerate(parts)]
    for thread in threads:
        thread.start()
    assert delivery.result(HANG_SECONDS).offset == 0
    assert delivery.offset_runs(0) == [(0, 2), (1, 2)]
    for thread in threads:
        thread.join()
    assert list(kbatch.as_completed([delivery], 1)) == [delivery]


def test_ordinary_batches_between_encoded_ones_split_normally() -> None:
    records = accumulator()
    give(records, FOUR_RECORDS)
    for number in range(4):
        put(records, b"%d" % number)
    give(records, FOUR_RECORDS)
    batches = all_drained(records)
    parts = [part for batch in batches for part in records.split(batch)]
    assert [part.first_number for part in parts] == [0, 2, 4, 6, 8, 10]
    assert all_drained(records) == parts
    values = [value for part in parts for value in values_of(part)]
    own = [b"aaaa", b"bbbb", b"cccc", b"dddd"]
    assert values == [*own, b"0", b"1", b"2", b"3", *own]
    end(records, *[(part, 0) for part in parts])
