"""The accumulator's side towards the sender: what is ready, what is drained, what comes back.

Behaviours by their ids: A01.. (RecordAccumulatorTest), D.. (delivery time-out and back-off), I.. (sequences).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kbatch import IllegalStateError, KafkaError
from kbatch._native.batch.delivery import Delivery
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.accumulator import RecordAccumulator, Refusal
from kbatch._native.send.cluster_view import ClusterView
from tests.unit.accumulating import (
    MEGABYTE,
    MS,
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

FULL = bytes(600)  # with batch_size=1000 a second one does not fit
FAILURE = KafkaError("failed in a test")


def full_batches(count: int, *, now_ns: int = 0, **settings: Any) -> RecordAccumulator:
    """Partition 0 with `count` full batches, and one open one behind them."""
    records = accumulator(batch_size=1000, **settings)
    for number in range(count + 1):
        put(records, FULL + b"%d" % number, now_ns=now_ns)
    return records


def finish(records: RecordAccumulator, now_ns: int = 0) -> None:
    """Completes all that is left, and looks whether everything came back."""
    for batch in [*all_drained(records, now_ns), *records.incomplete_batches()]:
        if not batch.is_done:
            batch.complete(0)
    assert is_whole(records)


# What is ready


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
    put(records, b"behind")
    assert free - records.memory.available < 5000  # it was sealed at once, and compresses well
    batches = all_drained(records)
    assert [values_of(batch) for batch in batches] == [[b"before"], [bytes(5000)], [b"behind"]]


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
    return records.append("t", 0, None, value, None, 0, 0, first_in_line=True) is Refusal.MEMORY


def test_A08_everything_is_ready_while_the_first_in_line_lacks_memory() -> None:
    records = accumulator(2, linger_ns=NEVER, batch_size=1000, buffer_memory=6500)
    put(records, FULL, partition=1)
    waiter = records.begin_waiting()
    assert records.ready(0)[0] == set()  # it may find enough
    assert lacks_memory(records, bytes(4000))
    assert records.ready(0)[0] == {1}
    waiter.leave()
    assert records.ready(0)[0] == set()


def test_A08_everything_is_ready_while_a_callback_waits_for_memory() -> None:
    """Or it would wait for lingering batches, and those after it in line too."""
    records = accumulator(2, linger_ns=NEVER, batch_size=1000, buffer_memory=6500)
    put(records, FULL, partition=1)
    waiting, callback = records.begin_waiting(), records.begin_waiting(goes_first=True)
    call = partial(records.append, "t", 0, None, bytes(4000), None, 0, 0, in_callback=True)
    assert call() is Refusal.MEMORY
    assert records.ready(0)[0] == set()  # it may find enough when it is its turn
    assert callback.may_try()
    assert call(first_in_line=True) is Refusal.MEMORY
    assert records.ready(0)[0] == {1}
    one(records).complete(0)
    assert callback.is_rung
    assert isinstance(call(first_in_line=True), Delivery)
    callback.leave()
    waiting.leave()
    finish(records)


def test_A08_nothing_is_hurried_once_there_is_memory_for_the_first_in_line() -> None:
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
    waiter.leave()
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


# What is drained


def test_A04_one_batch_of_each_partition_a_pass() -> None:
    records = accumulator(3, batch_size=1000)
    for _ in range(2):
        for partition in range(3):
            put(records, FULL, partition)
    assert sorted(batch.partition for batch in drained(records)) == [0, 1, 2]


def test_A04_a_request_ends_before_it_grows_too_large_and_the_next_goes_on_there() -> None:
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


def test_D01_a_muted_partition_is_neither_ready_nor_drained_even_by_a_new_leader() -> None:
    records = full_batches(1)
    one(records)
    records.set_gate("t", 0, muted=True)
    records.publish(ClusterView({"t": [(2, 1)]}))
    assert records.ready(0)[0] == set()
    assert drained(records, node=2) == []
    records.set_gate("t", 0, muted=False)
    assert len(drained(records, node=2)) == 1


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


def test_I10_I17_fresh_batches_wait_while_retries_go() -> None:
    records = full_batches(1)
    first = one(records)
    first.stamp(1, 0, 0)
    records.set_gate("t", 0, fresh_blocked=True)
    assert drained(records) == []
    records.reenqueue(first, 0)
    assert one(records, first.backoff_ns) is first
    assert drained(records, first.backoff_ns) == []


def test_I03_only_the_retry_that_is_next_goes() -> None:
    records = full_batches(3)
    batches = [one(records) for _ in range(3)]
    for batch in batches:
        batch.stamp(1, 0, batch.first_number)
        records.reenqueue(batch, 0)
    later = max(batch.backoff_ns for batch in batches)
    records.set_gate("t", 0, retry_number=batches[0].first_number)
    assert one(records, later) is batches[0]
    assert drained(records, later) == []
    batches[0].complete(0)
    records.set_gate("t", 0, retry_number=batches[1].first_number)
    assert one(records, later) is batches[1]


# What comes back


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_I04_what_comes_back_is_in_order_again(order: tuple[int, ...]) -> None:
    records = full_batches(3)
    batches = [one(records) for _ in range(3)]
    for place in order:
        assert records.reenqueue(batches[place], 0)
    assert records.batches("t", 0)[:3] == batches
    assert [batch.first_number for batch in records.batches("t", 0)] == [0, 1, 2, 3]
    finish(records, 10**12)


def test_I27_the_order_is_that_of_numbers_not_of_sequences() -> None:
    records = full_batches(5)
    batches = [one(records) for _ in range(5)]
    for sequence, batch in zip((2**31 - 3, 2**31 - 2, 2**31 - 1, 0, 1), batches, strict=True):
        batch.stamp(1, 0, sequence)
    for batch in (batches[3], batches[1], batches[4], batches[0], batches[2]):
        records.reenqueue(batch, 0)
    assert records.batches("t", 0)[:5] == batches
    assert [batch.last_sequence for batch in batches] == [2**31 - 3, 2**31 - 2, 2**31 - 1, 0, 1]


def test_I29_a_retry_has_the_same_bytes() -> None:
    records = full_batches(1, compression="zstd")
    batch = one(records)
    batch.stamp(7, 1, 0)
    before = data_of(batch)
    records.reenqueue(batch, 0)
    put(records, b"newer")
    assert one(records, 10**12) is batch
    assert data_of(batch) == before


def test_what_was_not_sent_after_all_goes_back_without_backing_off() -> None:
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


def test_D11_A14_drain_knows_the_newer_leader_of_what_was_not_at_the_head_before() -> None:
    records = full_batches(2, retry_backoff_ns=100 * MS)
    records.publish(view(3))
    retries = [one(records), one(records)]
    for batch in retries:
        records.reenqueue(batch, 0)
    records.publish(view(4))
    assert records.ready(1)[0] == {1}
    assert [records.drain([1], MEGABYTE, 1)[1] for _ in range(2)] == [[batch] for batch in retries]


# What is too old


def test_D03_batches_expire_when_they_are_as_old_as_allowed_wherever_they_are() -> None:
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


def test_D03_a_batch_that_is_a_moment_younger_than_the_oldest_is_left() -> None:
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


def test_D05_an_expired_batch_is_out_of_the_queue_and_nothing_is_appended_to_it() -> None:
    records = accumulator(delivery_timeout_ns=100)
    delivery = put(records)
    (expired,) = records.expire(100)
    put(records, b"newer", now_ns=100)
    assert records.batches("t", 0) != [expired]
    assert expired.fail(FAILURE)
    assert delivery.exception(0) is FAILURE
    assert values_of(one(records, 100)) == [b"newer"]


def test_D09_what_is_appended_when_a_batch_expired_goes_into_a_new_one() -> None:
    records = accumulator(delivery_timeout_ns=100)
    put(records, on_delivery=lambda metadata, error: put(records, b"again", now_ns=100, in_callback=True))
    (expired,) = records.expire(100)
    expired.fail(FAILURE)
    expired.completion.run_callbacks(print)
    assert values_of(one(records, 100)) == [b"again"]


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


def test_A11_nothing_is_taken_after_close_and_what_is_there_is_ready() -> None:
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


def test_the_sender_is_woken_for_what_comes_earlier_than_it_knows_and_once() -> None:
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
    put(records, first_in_line=True)
    records.ready(0)
    rings.clear()
    happened = HURRYING[happens](records)
    assert rings == [1]
    waiter.leave()
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


def test_a_batch_tells_what_it_is() -> None:
    records = accumulator()
    put(records, key=b"k", headers=[("h", None)], timestamp_ms=5, now_ns=3)
    batch = one(records, 4)
    assert isinstance(batch, ProducerBatch)
    assert (batch.topic, batch.partition, batch.record_count, batch.max_timestamp_ms) == ("t", 0, 1, 5)
    assert (batch.created_ns, batch.drained_ns, batch.attempts, batch.has_sequence) == (3, 4, 0, False)
    assert "t-0 in_flight, 1 records" in repr(batch)
    (record,) = records_of(batch)
    assert (record.key, record.headers, record.timestamp_ms) == (b"k", (("h", None),), 5)
