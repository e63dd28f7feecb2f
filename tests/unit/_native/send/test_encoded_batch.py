"""Batches that were encoded elsewhere: what is taken, what it takes, and what a BatchDelivery says.

What the sender and the producer make of them is in test_send_batch_delivered.
"""

from __future__ import annotations

import contextlib
import gc
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
from tests.patience import HANG_SECONDS
from tests.unit.accumulating import (
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
    values_of,
)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
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
    """With other header fields, and, unless that is one of them, the CRC that belongs to them."""
    values = fields_of(batch) | fields
    data = HEADER.pack(*(values[name] for name in FIELDS)) + batch[HEADER.size :]
    if "crc" in fields:
        return data
    return altered(data, crc=kbatch.crc32c(data[21:]))


def give(records: RecordAccumulator, data: Any, partition: int = 0, now_ns: int = 0, **rest: Any) -> Any:
    """Appends a batch that must be taken."""
    delivery = records.append_batch("t", partition, data, now_ns, **rest)
    assert isinstance(delivery, BatchDelivery), delivery
    return delivery


def given(*values: bytes, **rest: Any) -> tuple[RecordAccumulator, BatchDelivery, ProducerBatch]:
    """One batch, drained."""
    records = accumulator()
    delivery = give(records, encoded(*(values or (b"a", b"b", b"c"))), **rest)
    return records, delivery, one(records)


def settle(batch: ProducerBatch, end: int | BaseException) -> None:
    assert batch.complete(end) if isinstance(end, int) else batch.fail(end)
    batch.completion.run_callbacks(_threw)


def _threw(function: Any, error: Exception) -> None:
    raise error


# What is sent


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


def test_the_offset_and_leader_epoch_that_a_batch_had_in_a_log_are_left_behind() -> None:
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


def test_a_batch_goes_behind_what_was_sent_before_and_before_what_is_sent_later() -> None:
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


def test_what_is_open_before_it_is_left_to_its_sealer_and_it_waits_for_that() -> None:
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


def test_a_sticky_partition_goes_on_behind_a_batch() -> None:
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


# What is refused


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
def test_what_is_no_batch_for_a_producer_is_refused_and_says_why(data: Any, kind: Any, text: str) -> None:
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
def test_the_batches_of_a_transactional_producer_are_transactional(attributes: int, codec: str) -> None:
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


def test_a_closed_accumulator_takes_no_batch_and_keeps_nothing_of_it() -> None:
    records = accumulator()
    records.close()
    told: list[Any] = []
    data = encoded(b"a")
    count = sys.getrefcount(data)
    with pytest.raises(ProducerClosedError):
        records.append_batch("t", 0, data, 0, lambda *arguments: told.append(arguments))
    assert is_whole(records) and not told
    assert sys.getrefcount(data) == count


def test_close_races_with_batches_and_every_one_is_taken_or_refused() -> None:
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


def test_a_batch_waits_for_memory_in_line() -> None:
    data = encoded(b"a" * 1500)
    records = accumulator(buffer_memory=5000)
    give(records, data)
    assert records.append_batch("t", 0, data, 0) is Refusal.MEMORY
    one(records).complete(0)
    waiter = records.begin_waiting()
    assert records.append_batch("t", 0, data, 0) is Refusal.MEMORY
    give(records, data, first_in_line=True)
    waiter.leave()
    one(records).complete(0)
    assert is_whole(records)


def test_a_callback_may_pass_the_budget_by_what_it_is_about_to_give_back() -> None:
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


# What is said of it


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


def test_the_brokers_time_is_told_where_it_sets_it() -> None:
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
    told: list[Any] = []
    records, _, batch = given(on_delivery=lambda *arguments: told.append(arguments))
    assert batch.completion.has_callbacks and not told
    settle(batch, end)
    if end is FAILURE:
        assert told == [(RecordMetadata("t", 0), FAILURE)]
        assert batch.completion.unobserved_count == 0
    else:
        assert told == [(RecordMetadata("t", 0, 7, 1002, -1, -1), None)]
    assert batch.completion.run_callbacks(_threw) == 0 and len(told) == 1
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


def test_a_failure_that_nobody_asked_for_counts_all_records() -> None:
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
    told: list[Any] = []
    records, _, batch = given(on_delivery=lambda *arguments: told.append(arguments))
    flush = records.begin_flush()
    batch.complete(0)
    assert not flush.done()
    batch.completion.run_callbacks(_threw)
    assert flush.done() and told
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
