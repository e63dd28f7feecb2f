"""The accumulator's side towards the sender: batches that are ready, drained, and put back.

Behaviours by their ids: A01.. (RecordAccumulatorTest), D.. (delivery time-out and back-off), I.. (sequences).
"""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kbatch import BufferExhaustedError, IllegalStateError, KafkaError
from kbatch._native.batch.delivery import Delivery
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.accumulator import RecordAccumulator, Refusal
from kbatch._native.send.cluster_view import ClusterView
from kbatch._native.send.sealing import SealPolicy
from kbatch.errors import RecordTooLargeError
from tests.oracle.plain import CODECS
from tests.support.accumulating import (
    BY_OTHERS,
    MEGABYTE,
    MS,
    NEVER,
    accumulator,
    all_drained,
    codec_replaced,
    data_of,
    drained,
    fail_all,
    is_whole,
    one,
    put,
    records_of,
    values_of,
)
from tests.support.effort import few
from tests.support.patience import HANG_SECONDS, until

FULL = bytes(600)  # with batch_size=1000 a second one does not fit
FAILURE = KafkaError("failed in a test")


def full_batches(count: int, *, now_ns: int = 0, **settings: Any) -> RecordAccumulator:
    """Fill partition 0 with `count` full batches, and an open one after them."""
    records = accumulator(batch_size=1000, **settings)
    for number in range(count + 1):
        put(records, FULL + b"%d" % number, now_ns=now_ns)
    return records


def finish(records: RecordAccumulator, now_ns: int = 0) -> None:
    """Complete all remaining batches, and check that all memory is released."""
    for batch in [*all_drained(records, now_ns), *records.incomplete_batches()]:
        if not batch.is_done:
            batch.complete(0)
    assert is_whole(records)


# Ready batches


def test_A01_a_batch_is_ready_when_the_next_record_does_not_fit() -> None:
    records = accumulator(batch_size=1000, linger_ns=10 * MS)
    put(records, FULL)
    assert records.ready(0) == (set(), 10 * MS, set())
    put(records, FULL)
    assert records.ready(0)[0] == {1}
    first, second = records.batches("t", 0)
    assert (first.state, second.state) == ("sealed", "open")
    assert values_of(one(records)) == [FULL]
    assert values_of(one(records, 10 * MS)) == [FULL]


def test_A01_a_batch_that_a_record_fills_is_ready_at_once() -> None:
    records = accumulator(batch_size=1000, linger_ns=NEVER)
    put(records, bytes(1000 - 61 - 9))
    put(records, b"")
    assert [batch.state for batch in records.batches("t", 0)] == ["sealed", "open"]
    assert records.batches("t", 0)[0].size_bytes == 1000


def test_A02_a_record_beyond_batch_size_has_a_batch_of_its_own() -> None:
    records = accumulator(batch_size=1000, linger_ns=NEVER, compression="lz4")
    put(records, b"before")
    free = records.memory.available
    put(records, bytes(5000))
    put(records, b"after")
    assert free - records.memory.available < 5000  # it was sealed at once, and compresses well
    batches = all_drained(records)
    assert [values_of(batch) for batch in batches] == [[b"before"], [bytes(5000)], [b"after"]]


def test_A02_the_batch_of_a_large_record_is_as_large_as_needed() -> None:
    records = accumulator(batch_size=1000)
    put(records, bytes(50_000))
    (batch,) = records.batches("t", 0)
    state = 1792  # of batch and record
    head = 16
    assert records.memory.total_memory - records.memory.available == state + head + batch.records_bytes


def test_A03_linger() -> None:
    records = accumulator(linger_ns=10 * MS)
    put(records, now_ns=5 * MS)
    put(records, now_ns=9 * MS)
    assert records.ready(5 * MS) == (set(), 10 * MS, set())
    assert records.ready(15 * MS - 1) == (set(), 1, set())
    assert records.ready(15 * MS) == ({1}, NEVER, set())
    assert records.ready(4 * MS)[1] == 10 * MS  # a clock that goes back makes nothing wait longer
    assert len(values_of(one(records, 15 * MS))) == 2


def test_A03_the_shortest_wait_of_all_partitions_counts() -> None:
    records = accumulator(3, linger_ns=10 * MS)
    for partition, now_ns in enumerate((7 * MS, 3 * MS, 5 * MS)):
        put(records, partition=partition, now_ns=now_ns)
    assert records.ready(8 * MS) == (set(), 5 * MS, set())


def test_A03_without_linger_a_record_is_ready_at_once() -> None:
    records = accumulator(linger_ns=0)
    put(records, now_ns=5)
    assert records.ready(5)[0] == {1}


def test_A06_what_backs_off_is_not_ready_and_nothing_passes_it() -> None:
    records = full_batches(1)
    first = one(records)
    records.reenqueue(first, 0)
    nodes, delay_ns, _ = records.ready(0)
    assert (nodes, delay_ns) == (set(), first.backoff_ns)
    assert drained(records, first.backoff_ns - 1) == []
    assert records.ready(first.backoff_ns)[0] == {1}
    assert [one(records, first.backoff_ns), one(records)] == [first, *records.incomplete_batches()[1:]]


def test_A07_a_flush_makes_everything_ready() -> None:
    records = accumulator(linger_ns=NEVER, batch_size=MEGABYTE)
    put(records)
    assert records.ready(0) == (set(), NEVER, set())
    flush = records.begin_flush()
    records.begin_flush()
    assert records.ready(0)[0] == {1}
    records.end_flush()
    assert records.ready(0)[0] == {1}
    records.end_flush()
    assert records.ready(0)[0] == set()
    assert not flush.done()


def lacks_memory(records: RecordAccumulator, value: bytes) -> bool:
    """Have the first in line try."""
    return records.append("t", 0, None, value, None, 0, 0, first_in_queue=True) is Refusal.MEMORY


def test_A08_all_is_ready_while_the_first_waiter_lacks_memory() -> None:
    records = accumulator(2, linger_ns=NEVER, batch_size=1000, buffer_memory=6500)
    put(records, FULL, partition=1)
    waiter = records.begin_waiting()
    assert records.ready(0)[0] == set()  # it may find enough
    assert lacks_memory(records, bytes(4000))
    assert records.ready(0)[0] == {1}
    waiter.withdraw()
    assert records.ready(0)[0] == set()


def test_A08_all_is_ready_while_a_callback_waits_for_memory() -> None:
    """Or it would wait for lingering batches, and those after it in line too."""
    records = accumulator(2, linger_ns=NEVER, batch_size=1000, buffer_memory=6500)
    put(records, FULL, partition=1)
    waiting, callback = records.begin_waiting(), records.begin_waiting(goes_first=True)
    call = partial(records.append, "t", 0, None, bytes(4000), None, 0, 0, in_callback=True)
    assert call() is Refusal.MEMORY
    assert records.ready(0)[0] == set()  # it may find enough when it is its turn
    assert callback.may_try()
    assert call(first_in_queue=True) is Refusal.MEMORY
    assert records.ready(0)[0] == {1}
    one(records).complete(0)
    assert callback.is_notified
    assert isinstance(call(first_in_queue=True), Delivery)
    callback.withdraw()
    waiting.withdraw()
    finish(records)


def test_A08_linger_applies_once_the_first_waiter_has_memory() -> None:
    records = accumulator([1, 2], linger_ns=NEVER, batch_size=1000, buffer_memory=9000)
    put(records, FULL)
    answered = one(records)
    put(records, b"open", partition=1)
    waiter = records.begin_waiting()
    assert lacks_memory(records, bytes(4000))
    assert records.ready(0)[0] == {2}
    answered.complete(0)
    assert records.ready(0)[0] == set()
    assert not lacks_memory(records, bytes(4000))
    waiter.withdraw()
    finish(records)


def test_A09_everything_is_ready_while_a_transaction_completes() -> None:
    records = accumulator(linger_ns=NEVER)
    put(records)
    records.completing = True
    assert records.ready(0)[0] == {1}


def test_A05_a_topic_without_leader_is_named_and_waits() -> None:
    records = accumulator([1, -1])
    put(records, partition=1)
    records.append("unknown", 0, None, b"v", None, 0, 0)
    assert records.ready(0) == (set(), NEVER, {"t", "unknown"})
    records.publish(ClusterView({"t": [(1, 0), (2, 0)], "unknown": [(2, 0)]}))
    assert records.ready(0) == ({2}, NEVER, set())


def test_A05_a_node_without_partitions_is_drained_of_nothing() -> None:
    records = accumulator()
    put(records)
    records.ready(0)
    assert records.drain([7], MEGABYTE, 0) == {7: []}


# Drained batches


def test_A04_one_batch_of_each_partition_a_pass() -> None:
    records = accumulator(3, batch_size=1000)
    for _ in range(2):
        for partition in range(3):
            put(records, FULL, partition)
    assert sorted(batch.partition for batch in drained(records)) == [0, 1, 2]


def test_A04_full_request_ends_and_the_next_one_continues_there() -> None:
    records = accumulator(4, batch_size=500)
    for partition in range(4):
        for _ in range(3):
            put(records, FULL, partition)
    order: list[int] = []
    while batches := drained(records, size=1500):
        assert len(batches) == 2 or len(order) == 11
        order += [batch.partition for batch in batches]
    assert order[:8] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert sorted(order) == sorted([*range(4)] * 3)


def test_a_blocked_partition_does_not_stop_its_node() -> None:
    records = accumulator(3, batch_size=1000)
    for partition in range(3):
        put(records, FULL, partition)
    records.set_gate("t", 0, muted=True)
    records.set_gate("t", 1, fresh_blocked=True)
    assert [batch.partition for batch in drained(records)] == [2]
    assert records.ready(0) == (set(), NEVER, set())  # nothing to spin about
    records.set_gate("t", 0, muted=False)
    records.set_gate("t", 1, fresh_blocked=False)
    assert sorted(batch.partition for batch in drained(records)) == [0, 1]


def test_a_gate_stays_as_it_is_when_another_is_set() -> None:
    records = full_batches(3)
    first, second = one(records), one(records)
    gates: dict[str, Any] = {"muted": True, "fresh_blocked": True, "retry_number": second.first_number}
    records.set_gate("t", 0, muted=True)
    records.set_gate("t", 0, retry_number=-1)
    assert drained(records) == []  # it is muted
    for name, value in gates.items():
        records.set_gate("t", 0, **{name: value})
    records.set_gate("t", 0, muted=False)
    assert drained(records) == []  # nothing but fresh ones
    for batch in (first, second):
        records.reenqueue(batch, 0, attempted=False)
        batch.stamp(1, 0, batch.first_number)
    assert drained(records) == []  # it is not the first's turn
    records.set_gate("t", 0, retry_number=first.first_number)
    assert one(records) is first
    records.set_gate("t", 0, retry_number=-1)
    assert one(records) is second
    assert drained(records) == []
    records.set_gate("t", 0, fresh_blocked=False)
    assert one(records).first_number == 2


# Returned batches


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_I04_what_comes_back_is_in_order_again(order: tuple[int, ...]) -> None:
    records = full_batches(3)
    batches = [one(records) for _ in range(3)]
    for place in order:
        assert records.reenqueue(batches[place], 0)
    assert records.batches("t", 0)[:3] == batches
    assert [batch.first_number for batch in records.batches("t", 0)] == [0, 1, 2, 3]
    finish(records, 10**12)


def test_I29_a_retry_has_the_same_bytes() -> None:
    records = full_batches(1, compression="zstd")
    batch = one(records)
    batch.stamp(7, 1, 0)
    before = data_of(batch)
    records.reenqueue(batch, 0)
    put(records, b"newer")
    assert one(records, 10**12) is batch
    assert data_of(batch) == before


def test_unsent_batch_returns_to_the_queue_without_back_off() -> None:
    records = full_batches(0)
    batch = one(records)
    assert records.reenqueue(batch, 5, attempted=False)
    assert (batch.attempts, batch.last_attempt_ns, one(records)) == (0, 0, batch)


def test_only_a_batch_in_flight_comes_back() -> None:
    records = full_batches(1)
    with pytest.raises(IllegalStateError, match="in flight"):
        records.reenqueue(records.batches("t", 0)[0], 0)
    batch = one(records)
    batch.fail(FAILURE)
    assert not records.reenqueue(batch, 0)
    assert records.reenqueued_count == 0


def test_D10_A15_the_backoff_doubles_within_its_jitter() -> None:
    records = accumulator(retry_backoff_ns=100 * MS, retry_backoff_max_ns=1000 * MS, seed=4)
    put(records)
    batch = one(records)
    now_ns, factors = 0, []
    for attempt in range(8):
        records.reenqueue(batch, now_ns)
        expected = min(100 * 2**attempt, 1000) * MS
        factors.append(batch.backoff_ns / expected)
        assert 0.8 * expected <= batch.backoff_ns <= min(1.2 * expected, 1000 * MS)
        assert records.ready(now_ns + batch.backoff_ns - 1) == (set(), 1, set())
        now_ns += batch.backoff_ns
        assert records.ready(now_ns)[0] == {1}
        assert one(records, now_ns) is batch
    assert len(set(factors)) > 3


def test_D10_a_backoff_that_cannot_grow_is_constant() -> None:
    records = accumulator(retry_backoff_ns=100 * MS, retry_backoff_max_ns=100 * MS)
    put(records)
    batch = one(records)
    for _ in range(3):
        records.reenqueue(batch, 0)
        assert batch.backoff_ns == 100 * MS
        one(records, 100 * MS)


def test_a_batch_that_came_back_does_not_linger_again() -> None:
    records = accumulator(linger_ns=10_000 * MS, retry_backoff_ns=1, retry_backoff_max_ns=1)
    put(records)
    batch = one(records, 10_000 * MS)
    records.reenqueue(batch, 10_000 * MS)
    assert records.ready(10_000 * MS + 1)[0] == {1}


def view(epoch: int, leader: int = 1) -> ClusterView:
    return ClusterView({"t": [(leader, epoch)]})


def test_D11_A14_a_newer_leader_need_not_be_spared() -> None:
    records = accumulator(retry_backoff_ns=100 * MS)
    put(records)
    records.publish(view(3))
    batch = one(records)
    assert (batch.leader_epoch, batch.leader_changed) == (3, False)  # on the first attempt it means nothing
    records.reenqueue(batch, 0)
    for epoch in (3, 2, -1):
        records.publish(view(epoch))
        assert (records.ready(1)[0], drained(records, 1)) == (set(), [])
        assert batch.leader_epoch == 3
    records.publish(view(4))
    assert records.ready(1)[0] == {1}
    assert batch.leader_changed
    assert one(records, 1) is batch
    records.reenqueue(batch, 1)
    assert not batch.leader_changed
    assert (batch.leader_epoch, batch.leader_changed_attempt) == (4, 1)
    assert drained(records, 2) == []


def test_D11_A14_drain_sees_new_leader_of_later_batches() -> None:
    records = full_batches(2, retry_backoff_ns=100 * MS)
    records.publish(view(3))
    retries = [one(records), one(records)]
    for batch in retries:
        records.reenqueue(batch, 0)
    records.publish(view(4))
    assert records.ready(1)[0] == {1}
    assert [records.drain([1], MEGABYTE, 1)[1] for _ in range(2)] == [[batch] for batch in retries]


# Expiry


def test_D03_batches_expire_at_their_age_in_every_queue() -> None:
    records = accumulator(4, delivery_timeout_ns=100 * MS, batch_size=1000)
    for partition in range(4):
        put(records, FULL, partition, now_ns=partition * MS)
    in_flight, backing_off = sorted(drained(records), key=lambda batch: batch.partition)[:2]
    records.reenqueue(backing_off, 3 * MS)
    records.set_gate("t", 2, muted=True)
    expected = [0, 1, 2, 3]
    for count in range(5):
        expired = records.expire((99 + count) * MS)
        assert [batch.partition for batch in expired] == expected[:count]
    assert records.expire(103 * MS)[0] is in_flight
    for batch in records.expire(103 * MS):
        batch.fail(FAILURE)
    assert records.expire(103 * MS) == []
    assert is_whole(records)


def test_D03_batch_slightly_younger_than_the_oldest_stays() -> None:
    records = accumulator(2, delivery_timeout_ns=100)
    for partition in range(2):
        put(records, partition=partition, now_ns=partition)
    assert [batch.partition for batch in records.expire(100)] == [0]
    assert [batch.partition for batch in records.expire(101)] == [0, 1]


def test_D07_time_does_not_overflow_and_may_go_back() -> None:
    records = accumulator(delivery_timeout_ns=NEVER - 5, linger_ns=NEVER - 5)
    put(records, now_ns=100)
    assert (records.next_expiry_ns, records.expire(NEVER - 1)) == (NEVER, [])
    assert records.ready(0) == (set(), NEVER - 5, set())
    records = accumulator(delivery_timeout_ns=100)
    put(records, now_ns=1000)
    assert records.expire(0) == []


def test_A17_D06_the_next_expiry_is_that_of_the_oldest() -> None:
    records = accumulator(2, delivery_timeout_ns=100)
    assert records.next_expiry_ns == NEVER
    put(records, now_ns=10)
    put(records, now_ns=20, partition=1)
    assert records.next_expiry_ns == 110
    older, younger = sorted(drained(records, 20), key=lambda batch: batch.partition)
    older.complete(0)
    assert records.next_expiry_ns == 120
    younger.complete(0)
    assert records.next_expiry_ns == NEVER


def test_D05_expired_batch_leaves_queue_and_takes_no_records() -> None:
    records = accumulator(delivery_timeout_ns=100)
    delivery = put(records)
    (expired,) = records.expire(100)
    put(records, b"newer", now_ns=100)
    assert records.batches("t", 0) != [expired]
    assert expired.fail(FAILURE)
    assert delivery.exception(0) is FAILURE
    assert values_of(one(records, 100)) == [b"newer"]


# Giving up


def test_A10_failing_all_batches_takes_everything_back() -> None:
    records = full_batches(3)
    flying, back = one(records), one(records)
    records.reenqueue(back, 0)
    failed = fail_all(records, FAILURE)
    assert len(failed) == 4 and flying in failed
    assert all(batch.is_done and batch.completion.error is FAILURE for batch in failed)
    assert not flying.complete(7)  # a late answer is nothing
    assert is_whole(records)
    assert records.batches("t", 0) == []


def test_A11_close_refuses_records_and_makes_batches_ready() -> None:
    records = accumulator(linger_ns=NEVER)
    put(records)
    records.close()
    with pytest.raises(IllegalStateError, match="closed"):
        put(records)
    with pytest.raises(KafkaError):
        put(records, partition=5)
    assert records.ready(0)[0] == {1}
    finish(records)


# Waking


def test_sender_is_woken_once_for_an_earlier_deadline() -> None:
    rings: list[int] = []
    records = accumulator(2, linger_ns=10 * MS, batch_size=1000, wake=lambda: rings.append(1))
    put(records, now_ns=0)
    assert len(rings) == 1  # the first: it knew of nothing
    put(records, now_ns=0)
    put(records, now_ns=1 * MS, partition=1)
    assert len(rings) == 1
    records.ready(1 * MS)
    put(records, now_ns=1 * MS)
    assert len(rings) == 1  # it will look at 10 ms
    put(records, FULL + FULL, now_ns=1 * MS)
    assert len(rings) == 2  # a full one
    put(records, FULL + FULL, now_ns=1 * MS)
    assert len(rings) == 2


HURRYING: dict[str, Callable[[RecordAccumulator], object]] = {
    "the first in line is refused": lambda records: lacks_memory(records, bytes(9000)),
    "a flush begins": RecordAccumulator.begin_flush,
    "it closes": RecordAccumulator.close,
}


@pytest.mark.parametrize("happens", HURRYING)
def test_the_sender_is_woken_when_linger_no_longer_counts(happens: str) -> None:
    rings: list[int] = []
    records = accumulator(linger_ns=10 * MS, buffer_memory=8000, wake=lambda: rings.append(1))
    waiter = records.begin_waiting()
    put(records, first_in_queue=True)
    records.ready(0)
    rings.clear()
    happened = HURRYING[happens](records)
    assert rings == [1]
    waiter.withdraw()
    del happened


# Numbers


def test_counters() -> None:
    records = full_batches(1, compression="lz4", partitions=2)
    put(records, partition=1)
    records.append("u", 0, None, b"v", None, 0, 0)
    counters = records.counters()
    assert counters["records"] == 4
    assert records.counters("t")["records"] == 3
    assert (counters["sealed_batches"], counters["unpacked_batches"]) == (1, 0)
    (sealed, *_) = records.batches("t", 0)
    assert counters["sealed_records_bytes"] == sealed.records_bytes
    assert counters["sealed_bytes"] == sealed.size_bytes - 61
    assert counters["records_bytes"] == sum(batch.records_bytes for batch in records.incomplete_batches())
    assert records.incomplete_count == 4 and records.has_undrained


def test_batch_describes_itself() -> None:
    records = accumulator()
    put(records, key=b"k", headers=[("h", None)], timestamp_ms=5, now_ns=3)
    batch = one(records, 4)
    assert isinstance(batch, ProducerBatch)
    assert (batch.topic, batch.partition, batch.record_count, batch.max_timestamp_ms) == ("t", 0, 1, 5)
    assert (batch.created_ns, batch.drained_ns, batch.attempts, batch.has_sequence) == (3, 4, 0, False)
    assert "t-0 in_flight, 1 records" in repr(batch)
    (record,) = records_of(batch)
    assert (record.key, record.headers, record.timestamp_ms) == (b"k", (("h", None),), 5)


# Appending: what is taken, what is refused, what it costs, who seals.
#
# Behaviours by their ids: A12, A13 (RecordAccumulatorTest), B04.. (waiting for memory).

DEADLINE_S = HANG_SECONDS


# Accepted records


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_appended_is_what_is_sealed(codec: str) -> None:
    records = accumulator(compression=codec, batch_size=50_000)
    rows: list[Any] = [
        (b"key", b"value" * number, (("h", b"1"), ("null", None)) * (number % 3), 1000 + number % 7)
        for number in range(0, 400, 3)
    ]
    rows += [(None, None, (), -1), (b"", b"", (("", b""),), 0), (bytes(20_000), bytes(20_000), (), 5)]
    for key, value, headers, timestamp_ms in rows:
        put(records, value, key=key, headers=headers, timestamp_ms=timestamp_ms)
    batches = all_drained(records)
    found = [record for batch in batches for record in records_of(batch)]
    assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in found] == rows
    assert all(batch.size_bytes <= 50_000 for batch in batches)
    for batch in batches:
        batch.complete(0)
    assert is_whole(records)


def test_what_is_bytes_like_is_taken_as_it_is_now() -> None:
    records = accumulator()
    value, key, header = bytearray(b"value"), memoryview(b"key"), bytearray(b"header")
    put(records, value, key=key, headers=[["h", header]])
    value[:] = header[:] = b"xx"
    (record,) = records_of(one(records))
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("h", b"header"),))


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"value": "text"}, TypeError, r"value must be bytes-like or None, got str \(encode it"),
        ({"key": 5}, TypeError, "key must be bytes-like or None, got int"),
        ({"headers": {"h": b"1"}}, TypeError, "headers must be a sequence"),
        ({"headers": [("h",)]}, TypeError, "headers: item 0 must be a pair"),
        ({"headers": [("h", b""), 7]}, TypeError, "headers: item 1 must be a pair"),
        ({"headers": [("h", "text")]}, TypeError, "headers: the value of 'h' must be bytes-like or None"),
        ({"headers": [("\ud800", b"")]}, ValueError, "headers: key .* cannot be written as UTF-8"),
        ({"timestamp_ms": -2}, ValueError, "timestamp_ms must be 0 to .*, got -2"),
        ({"timestamp_ms": NEVER}, ValueError, "timestamp_ms must be"),
        ({"partition": 1_000_000}, ValueError, "partition must be 0 to 999999, .* got 1000000"),
        ({"partition": -2}, ValueError, "partition must be .* got -2"),
    ],
)
def test_errors_name_the_field_and_take_nothing(fields: Any, error: type[Exception], text: str) -> None:
    records = accumulator()
    with pytest.raises(error, match=text):
        put(records, **fields)
    assert is_whole(records)


def test_without_metadata_no_sticky_partition_is_chosen() -> None:
    records = accumulator()
    assert records.append("unknown", -1, None, b"v", None, 0, 0) is Refusal.METADATA
    records.publish(ClusterView({"unknown": []}))
    assert records.append("unknown", -1, None, b"v", None, 0, 0) is Refusal.METADATA
    records.publish(ClusterView({"unknown": [(-1, -1)]}))
    assert isinstance(records.append("unknown", -1, None, b"v", None, 0, 0), Delivery)
    assert is_whole(records) is False


# Memory: what is refused, and how one waits


def test_B02_a_record_that_never_fits_is_an_error_at_once() -> None:
    records = accumulator(buffer_memory=10_000)
    with pytest.raises(RecordTooLargeError, match=r"more than buffer\.memory, which is 10000"):
        put(records, bytes(10_000))
    put(records, bytes(8_000))
    assert records.append("t", 0, None, bytes(500), None, 0, 0) is Refusal.MEMORY
    assert records.memory.exhausted_count > 0
    one(records).complete(0)
    assert is_whole(records)


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("buffer_memory", [4000, 20_000, 100_000])
def test_every_record_that_fits_gets_in_when_memory_is_free(codec: str, buffer_memory: int) -> None:
    records = accumulator(2, buffer_memory=buffer_memory, batch_size=50_000, compression=codec)
    sent = []
    for number in range(60):
        value = bytes([number]) * (number * 37 % 1500)
        while records.append("t", number % 2, None, value, None, 0, 0) is Refusal.MEMORY:
            batches = drained(records)
            assert batches, "memory is short although nothing is charged with it"
            for batch in batches:
                sent += values_of(batch)
                batch.complete(0)
    for batch in all_drained(records):
        sent += values_of(batch)
        batch.complete(0)
    assert len(sent) == 60
    assert is_whole(records)


def append_in_turn(records: RecordAccumulator, value: bytes, timeout_s: float | None = None) -> Delivery:
    """Append a record, waiting for memory as a thread of a producer does."""
    outcome = records.append("t", 0, None, value, None, 0, 0)
    if outcome is Refusal.MEMORY:
        attempt = partial(records.append, "t", 0, None, value, None, 0, 0, first_in_queue=True)
        outcome = records.await_memory(attempt, timeout_s)
    if outcome is Refusal.MEMORY:
        raise BufferExhaustedError("no memory in time")
    assert isinstance(outcome, Delivery)
    return outcome


def in_line(records: RecordAccumulator, value: bytes, taken: list[bytes]) -> threading.Thread:
    """Start a thread, and return it when it waits with its record."""
    before = records.memory.queued

    def run() -> None:
        append_in_turn(records, value)
        taken.append(value)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    pause = threading.Event()
    while records.memory.queued == before:
        assert thread.is_alive()
        pause.wait(0.001)
    return thread


def test_B03_B05_memory_gathers_for_the_first_waiter() -> None:
    records = accumulator(buffer_memory=20_000, batch_size=1000)
    for _ in range(6):
        put(records, bytes(1000))
    batches = all_drained(records)
    taken: list[bytes] = []
    big = in_line(records, bytes(14_000), taken)
    small = in_line(records, b"small", taken)
    assert records.append("t", 0, None, b"late", None, 0, 0) is Refusal.MEMORY  # though there would be enough
    for batch in batches[:4]:  # the fifth returns enough
        batch.complete(0)
        assert taken == []
    for batch in batches[4:]:
        batch.complete(0)
    big.join(DEADLINE_S)
    small.join(DEADLINE_S)
    assert sorted(taken) == [bytes(14_000), b"small"]
    assert records.memory.queued == 0
    first, second = all_drained(records)
    assert first.records_bytes > 14_000 > second.records_bytes
    for batch in (first, second):
        batch.complete(0)
    assert is_whole(records)


def test_B04_B06_waiter_that_gives_up_leaves_queue_to_the_next() -> None:
    records = accumulator(buffer_memory=6500, batch_size=1000)
    put(records, bytes(2000))
    with pytest.raises(BufferExhaustedError):
        append_in_turn(records, bytes(3000), 0.05)
    assert records.memory.queued == 0
    taken: list[bytes] = []
    first = records.begin_waiting()
    assert first.may_try()
    assert records.append("t", 0, None, bytes(3500), None, 0, 0, first_in_queue=True) is Refusal.MEMORY
    second = in_line(records, b"fits", taken)
    assert taken == []
    first.withdraw()
    first.withdraw()
    second.join(DEADLINE_S)
    assert taken == [b"fits"]
    for batch in all_drained(records):
        batch.complete(0)
    assert is_whole(records)


def test_waiting_is_for_a_batch_not_for_a_record() -> None:
    """After the first in line has got its record in, others take what is there, for a batch's worth."""
    records = accumulator(buffer_memory=400_000, batch_size=16_000)
    while records.append("t", 0, None, bytes(300), None, 0, 0) is not Refusal.MEMORY:
        pass
    waiting = [records.begin_waiting() for _ in range(3)]
    for batch in all_drained(records):
        batch.complete(0)
    got = []
    for waiter in waiting:
        assert records.append("t", 0, None, bytes(300), None, 0, 0) is Refusal.MEMORY
        assert waiter.may_try()
        put(records, bytes(300), first_in_queue=True)
        waiter.withdraw()
        taken = 1
        while taken < 2000 and records.append("t", 0, None, bytes(300), None, 0, 0) is not Refusal.MEMORY:
            taken += 1
        got.append(taken)
    assert got[0] == got[1] > 100, "a batch has some 50 records: of eight that much at least"
    assert got[2] > got[1], "the queue is empty"
    for batch in all_drained(records):
        batch.complete(0)
    assert is_whole(records)


def test_large_record_is_not_starved_by_small_ones() -> None:
    """Memory that comes free gathers from when the first in line found too little."""
    records = accumulator(buffer_memory=200_000, batch_size=4000)
    answered: list[ProducerBatch] = []
    while records.append("t", 0, None, bytes(1000), None, 0, 0) is not Refusal.MEMORY:
        pass
    waiter = records.begin_waiting()
    assert waiter.may_try()
    large = partial(records.append, "t", 0, None, bytes(90_000), None, 0, 0, first_in_queue=True)
    for batch in all_drained(records):
        if (answer := large()) is not Refusal.MEMORY:
            break
        batch.complete(0)
        answered.append(batch)
        assert records.append("t", 0, None, bytes(1000), None, 0, 0) is Refusal.MEMORY
    assert isinstance(answer, Delivery)
    assert 10 < len(answered) < 30, "what was freed went to it, some 6,000 bytes a batch"


def test_memory_wakes_the_first_waiter_when_it_suffices() -> None:
    """No other waiter is woken, and none before: a needless wake-up costs more than an append."""
    rings: list[int] = []
    records = accumulator(buffer_memory=40_000, batch_size=1000, memory_freed=lambda: rings.append(1))
    while records.append("t", 0, None, bytes(900), None, 0, 0) is not Refusal.MEMORY:
        pass
    batches = all_drained(records)
    batches.pop().complete(0)
    assert rings == []  # no waiter
    first, second = records.begin_waiting(), records.begin_waiting()
    assert first.may_try()
    assert not second.may_try()
    wanted = partial(records.append, "t", 0, None, bytes(9000), None, 0, 0, first_in_queue=True)
    assert wanted() is Refusal.MEMORY
    batches.pop().complete(0)
    assert (rings, first.is_notified, second.is_notified) == ([], False, False)
    while not first.is_notified:
        batches.pop().complete(0)
    batches.pop().complete(0)
    assert (rings, second.is_notified) == ([1], False)
    assert first.may_try()
    assert isinstance(wanted(), Delivery)
    rings.clear()
    first.withdraw()
    assert (rings, second.is_notified, second.may_try()) == ([], True, True)  # the task that leaves wakes it
    assert not second.is_notified
    second.withdraw()
    for batch in batches + all_drained(records):
        batch.complete(0)
    assert is_whole(records)


def test_dropped_waiter_leaves_the_queue() -> None:
    records = accumulator()
    waiters = [records.begin_waiting() for _ in range(3)]
    assert records.memory.queued == 3
    del waiters[1], waiters[0]
    assert waiters[0].may_try()
    before = records.begin_waiting(goes_first=True)
    assert (before.may_try(), waiters[0].may_try(), records.memory.queued) == (True, False, 2)
    before.withdraw()
    waiters.clear()
    assert records.memory.queued == 0


def test_waiter_in_forked_child_leaves_the_queue_alone() -> None:
    """Its lock may be held by a thread that the child does not have."""
    records = accumulator()
    waiter = records.begin_waiting()
    records.memory.is_forked = True
    waiter.withdraw()
    assert records.memory.queued == 1


def test_append_from_callback_skips_queue_and_may_overdraw() -> None:
    records = accumulator(buffer_memory=20_000, batch_size=1000)
    for number in range(5):
        put(records, b"%d" % number + bytes(800), on_delivery=lambda metadata, error: None)
    answered = all_drained(records)
    for batch in answered:
        batch.complete(0)
    assert records.memory.callback_bytes == 5 * 1792
    waiter = records.begin_waiting()
    put(records, bytes(17_000), in_callback=True)
    assert records.memory.available < 0
    assert records.append("t", 0, None, bytes(9000), None, 0, 0, first_in_queue=True) is Refusal.MEMORY
    for batch in answered:
        assert batch.completion.run_callbacks(print) == 1
    waiter.withdraw()
    one(records).complete(0)
    assert is_whole(records)


# Costs


def test_ten_thousand_open_partitions_fit_the_default_memory() -> None:
    records = accumulator(10_000, batch_size=131_072, compression="lz4", linger_ns=NEVER)
    for partition in range(10_000):
        put(records, bytes(100), partition)
    assert records.memory.total_memory == 32 << 20
    assert records.memory.available > 0
    assert len(fail_all(records, FAILURE)) == 10_000
    assert is_whole(records)


@pytest.mark.parametrize("codec", CODECS)
def test_everything_accepted_is_charged(codec: str) -> None:
    records = accumulator(compression=codec, batch_size=100_000, buffer_memory=MEGABYTE)
    source = random.Random(5)
    for _ in range(300):
        put(records, source.randbytes(200), on_delivery=lambda metadata, error: None)
    state = 300 * (64 + 128)
    charged = records.memory.total_memory - records.memory.available
    assert charged >= 300 * 200 + state
    batch = one(records)
    charged = records.memory.total_memory - records.memory.available
    assert batch.size_bytes + state <= charged <= batch.size_bytes + state + 2048 + 16384


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 10, 1000, 40_000, 300_000])
def test_sealing_needs_no_memory(codec: str, size: int) -> None:
    """The largest growth of incompressible data is charged when the record is accepted."""
    records = accumulator(compression=codec, batch_size=1, seal_policy=BY_OTHERS)
    put(records, random.Random(1).randbytes(size))
    before = records.memory.available
    (batch,) = records.take_unsealed()
    batch.seal()
    assert records.memory.available >= before
    batch.fail(FAILURE)
    assert is_whole(records)


def test_a_busy_partition_takes_chunks_that_are_reused() -> None:
    records = accumulator(batch_size=65_536, linger_ns=NEVER)
    for _ in range(3):
        for _ in range(70):
            put(records, bytes(1000))
        for batch in all_drained(records, NEVER):
            batch.complete(0)
    assert is_whole(records)


def test_A13_second_thread_with_a_new_batch_drops_it() -> None:
    """Another opens the batch while the first one allocates: here from within a garbage collection."""
    records = accumulator(batch_size=MEGABYTE)
    put(records)  # so that nothing but the batch is new
    one(records).complete(0)
    append = records.append
    nested: list[Delivery] = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and not nested:
            gc.set_threshold(*threshold)
            nested.append(put(records, b"second"))

    threshold = gc.get_threshold()
    gc.callbacks.append(collecting)
    try:
        gc.set_threshold(1)
        append("t", 0, None, b"first", None, 0, 0)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collecting)
    if not nested:
        pytest.skip("this interpreter collects garbage between bytecodes only")
    batch = one(records)
    assert values_of(batch) == [b"second", b"first"]
    batch.complete(0)
    assert is_whole(records)


def test_new_batch_is_dropped_if_its_topic_vanishes_meanwhile() -> None:
    """The metadata comes while the batch is allocated: here from within a garbage collection."""
    records = accumulator(batch_size=MEGABYTE)
    put(records, partition=-1)  # so that nothing but the batch is new
    one(records).complete(0)
    append = records.append
    without_topics = ClusterView()
    collections: list[str] = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        records.publish(without_topics)
        collections.append(phase)

    threshold = gc.get_threshold()
    gc.callbacks.append(collecting)
    try:
        gc.set_threshold(1)
        refused = append("t", -1, None, b"value", None, 0, 0)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collecting)
    if not collections or isinstance(refused, Delivery):
        pytest.skip("this interpreter collects garbage between bytecodes only")
    assert refused is Refusal.METADATA
    assert is_whole(records)


# Sealing


def test_what_full_batches_shrink_to_lets_later_ones_take_more() -> None:
    records = accumulator(compression="lz4", batch_size=4096)
    for _ in range(400):
        put(records, bytes(500))
    sizes = [batch.records_bytes for batch in records.batches("t", 0) if batch.state == "sealed"]
    assert sizes[0] < 4096 < sizes[-1] and sizes == sorted(sizes)


def test_a_tiny_batch_teaches_nothing() -> None:
    records = accumulator(compression="lz4", batch_size=4096)
    put(records, b"tiny")
    assert one(records).size_bytes > 61 + 19  # it grew, by its frame
    for _ in range(9):
        put(records, bytes(500))
    assert records.batches("t", 0)[0].record_count == 7  # as many as with the ratio of the beginning


def test_an_open_batch_keeps_the_estimate_of_its_creation() -> None:
    records = accumulator(2, compression="lz4", batch_size=4096)
    put(records, bytes(500), 1)
    for _ in range(400):
        put(records, bytes(500), 0)
    for _ in range(9):
        put(records, bytes(500), 1)
    assert records.batches("t", 1)[0].record_count == 7


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_codec_that_fails_costs_its_compression_and_no_record(codec: str) -> None:
    module, function = {
        "gzip": ("isal.igzip_lib", "compress"),
        "lz4": ("lz4.frame", "compress"),
        "zstd": ("zstandard", "ZstdCompressor"),
    }[codec]
    records = accumulator(compression=codec, batch_size=90_000)
    for number in range(60):
        put(records, b"%d" % number + bytes(1000))

    def failing(*args: object, **options: object) -> bytes:
        raise RuntimeError("no")

    outcome: list[Any] = []

    def seal() -> None:  # a thread without compressor of its own
        outcome.append(one(records))

    with codec_replaced(module, **{function: failing}):
        thread = threading.Thread(target=seal)
        thread.start()
        thread.join()
    (batch,) = outcome
    assert values_of(batch) == [b"%d" % number + bytes(1000) for number in range(60)]
    assert records.counters()["unpacked_batches"] == 1
    batch.complete(0)
    assert is_whole(records)


def test_an_interrupt_while_sealing_leaves_the_batch_whole() -> None:
    records = accumulator(compression="lz4", batch_size=1000)
    put(records, bytes(800))

    def interrupted(*args: object, **options: object) -> bytes:
        raise KeyboardInterrupt

    with codec_replaced("lz4.frame", compress=interrupted), pytest.raises(KeyboardInterrupt):
        put(records, bytes(800))
    batch = one(records)
    assert values_of(batch) == [bytes(800)]
    assert all_drained(records) == []
    batch.complete(0)
    assert is_whole(records)


@pytest.mark.parametrize("end", ["fail", "expire"])
def test_batch_that_ends_during_sealing_is_freed_by_the_sealer(end: str) -> None:
    records = accumulator(compression="lz4", batch_size=1000, delivery_timeout_ns=10)
    delivery = put(records, bytes(800))
    compress = sys.modules["lz4.frame"].compress
    seen: list[int] = []

    def slow(*args: object, **options: object) -> bytes:
        (batch,) = records.incomplete_batches()
        if end == "expire":
            assert records.expire(10) == [batch]
        batch.fail(FAILURE)
        seen.append(records.memory.total_memory - records.memory.available)
        assert batch.user_count == 1
        result: bytes = compress(*args, **options)
        return result

    with codec_replaced("lz4.frame", compress=slow):
        put(records, bytes(100))
    assert delivery.exception(0) is FAILURE
    assert seen[0] > 800
    one(records).complete(0)
    assert is_whole(records)


def test_a_batch_has_one_sealer() -> None:
    records = accumulator(batch_size=1000, seal_policy=BY_OTHERS)
    put(records, bytes(800))
    with pytest.raises(IllegalStateError, match="must be closed for append, and not sealed before"):
        records.batches("t", 0)[0].seal()
    put(records, bytes(800))
    (batch,) = records.take_unsealed()
    assert records.take_unsealed() == []
    assert batch.seal()
    with pytest.raises(IllegalStateError, match="must be closed for append, and not sealed before"):
        batch.seal()
    put(records, bytes(800))
    (failed,) = records.take_unsealed()
    failed.fail(FAILURE)
    assert not failed.seal()


# Several threads


def test_A12_all_records_once_and_each_threads_in_order() -> None:
    records = accumulator(3, batch_size=2000, compression="lz4", buffer_memory=MEGABYTE)
    count, threads_count = 3000, 3
    stop = threading.Event()

    def appender(thread: int) -> None:
        for number in range(count):
            while not isinstance(
                records.append("t", -1, None, b"%d-%d" % (thread, number), None, 0, 0), Delivery
            ):
                stop.wait(0.001)

    threads = [threading.Thread(target=appender, args=(number,)) for number in range(threads_count)]
    for thread in threads:
        thread.start()
    sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    while any(thread.is_alive() for thread in threads) or records.has_undrained:
        for batch in drained(records):
            sent[batch.partition] += values_of(batch)
            batch.complete(0)
    everything = [value for values in sent.values() for value in values]
    expected = [b"%d-%d" % (thread, number) for thread in range(threads_count) for number in range(count)]
    assert sorted(everything) == sorted(expected)
    for values in sent.values():
        for who in range(threads_count):
            numbers = [int(value.split(b"-")[1]) for value in values if value.startswith(b"%d-" % who)]
            assert numbers == sorted(numbers)
    assert is_whole(records)


@pytest.mark.parametrize("rounds", few([4, 20], 1))
def test_A11_close_during_appends_leaves_no_batch_open(rounds: int) -> None:
    for _ in range(rounds):
        close_during_appends()


def close_during_appends() -> None:
    records = accumulator(4, batch_size=500)
    taken: list[Delivery] = []

    def appender(partition: int) -> None:
        with pytest.raises(IllegalStateError):
            while True:
                outcome = records.append("t", partition, None, bytes(200), None, 1000, 0, None)
                if not isinstance(outcome, Refusal):  # memory is full where closing comes late
                    taken.append(outcome)

    threads = [threading.Thread(target=appender, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(taken) >= 20)
    records.close()
    fail_all(records, FAILURE)
    for thread in threads:
        thread.join()
    assert all(delivery.done() for delivery in taken)
    assert is_whole(records)


@pytest.mark.parametrize("count", few([50, 300], 1))
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_B09_memory_is_whole_after_a_storm(codec: str, count: int) -> None:
    records = accumulator(buffer_memory=60_000, batch_size=4000, compression=codec)
    done = threading.Event()

    def sender() -> None:
        while not done.is_set() or records.has_undrained:
            for batch in drained(records):
                batch.complete(0)

    def appender(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(count):
            append_in_turn(records, source.randbytes(source.choice([10, 500, 3000, 20_000])))

    sending = threading.Thread(target=sender)
    sending.start()
    threads = [threading.Thread(target=appender, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    done.set()
    sending.join(DEADLINE_S)
    assert is_whole(records) and records.memory.queued == 0


# RecordAccumulator.drain: what goes into a request, and what is sealed for it.


def test_A04_the_first_batch_goes_however_large_it_is() -> None:
    records = accumulator(2, batch_size=500)
    put(records, bytes(5000), 0)
    put(records, bytes(5000), 1)
    assert [batch.partition for batch in drained(records, size=100)] == [0]
    assert [batch.partition for batch in drained(records, size=100)] == [1]


def test_A04_a_place_is_kept_for_batches_that_are_still_open() -> None:
    records = accumulator(3, batch_size=2000)
    for partition in range(3):
        put(records, FULL, partition)
    records.ready(0)
    assert records.drain([1], 1500, 0) == {1: []}
    closed = records.take_unsealed()
    assert [(batch.partition, batch.seal()) for batch in closed] == [(0, True), (1, True)]
    assert [batch.state for batch in records.batches("t", 2)] == ["open"]
    assert [batch.partition for batch in drained(records, size=1500)] == [0, 1]  # it is theirs


def test_drain_seals_what_is_small_and_takes_it_at_once() -> None:
    records = accumulator(3, batch_size=100_000, seal_policy=SealPolicy(inline_bytes=1000))
    for partition, size in enumerate((10, 50_000, 20)):
        put(records, b"x" * size, partition)
    records.ready(0)
    taken = records.drain([1], 1_000_000, 0)[1]
    assert [batch.partition for batch in taken] == [0, 2]
    assert {batch.state for batch in taken} == {"in_flight"}
    (large,) = records.take_unsealed()
    assert (large.partition, large.state) == (1, "sealing")
    large.seal()
    assert records.drain([1], 1_000_000, 0)[1] == [large]


@pytest.mark.parametrize(
    ("compression", "on_loop", "sizes", "taken"),
    [
        ("lz4", False, (16_000, 17_000), [0]),
        ("lz4", True, (1_900, 2_100), [0]),
        ("none", False, (17_000, 260_000, 263_000), [0, 1]),
        ("none", True, (17_000, 260_000, 263_000), [0, 1]),
    ],
)
def test_drain_seals_what_the_policy_of_the_codec_calls_small(
    compression: str, on_loop: bool, sizes: tuple[int, ...], taken: list[int]
) -> None:
    policy = SealPolicy.of(compression, on_loop=on_loop)
    records = accumulator(len(sizes), batch_size=1 << 20, compression=compression, seal_policy=policy)
    for partition, size in enumerate(sizes):
        put(records, bytes(size), partition)
    records.ready(0)
    assert [batch.partition for batch in records.drain([1], 1 << 26, 0)[1]] == taken
    (large,) = records.take_unsealed()
    assert (large.partition, large.state) == (len(taken), "sealing")


@pytest.mark.parametrize(("on_loop", "state"), [(False, "sealed"), (True, "sealing")])
def test_filling_thread_seals_a_batch_unless_it_runs_a_loop(on_loop: bool, state: str) -> None:
    records = accumulator(batch_size=1000, seal_policy=SealPolicy.of("none", on_loop=on_loop))
    put(records, FULL)
    put(records, FULL)
    assert [batch.state for batch in records.batches("t", 0)] == [state, "open"]


def test_drain_of_full_request_leaves_no_sealed_batch() -> None:
    records = accumulator(3, batch_size=100_000, seal_policy=SealPolicy(inline_bytes=1000))
    for partition in range(3):
        put(records, b"x" * 900, partition)
    records.ready(0)
    sizes = []
    while taken := records.drain([1], 2000, 0)[1]:
        sizes.append([batch.partition for batch in taken])
        assert records.take_unsealed() == []
    assert sizes == [[0, 1], [2]]


def test_drain_stops_at_an_unsealed_head_and_the_sealer_wakes() -> None:
    rings: list[str] = []
    records = accumulator(batch_size=1000, seal_policy=BY_OTHERS, wake=lambda: rings.append("ring"))
    put(records, FULL)
    put(records, FULL)
    assert [batch.state for batch in records.batches("t", 0)] == ["sealing", "open"]
    (unsealed,) = records.take_unsealed()
    assert records.ready(0) == (set(), NEVER, set())
    assert records.drain([1], MEGABYTE, 0) == {1: []}
    rings.clear()
    unsealed.seal()
    assert rings == ["ring"]
    assert records.ready(0)[0] == {1}
