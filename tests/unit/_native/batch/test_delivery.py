"""Deliveries: the results of sends. F01, F03 (ProducerBatchTest), D13, I13, I28."""

from __future__ import annotations

import asyncio
import gc
import pickle
import sys
import threading
from functools import partial
from typing import Any

import pytest

from kbatch import IllegalStateError, KafkaError, KafkaTimeoutError
from kbatch._native.batch.delivery import Completion, Delivery, Flush, RecordMetadata
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.accumulator import RecordAccumulator
from tests.support.accumulating import accumulator, is_whole, one, put
from tests.support.patience import HANG_SECONDS

FAILURE = KafkaError("failed in a test")
DEADLINE_S = HANG_SECONDS


def sent(count: int = 3, **rest: Any) -> tuple[RecordAccumulator, ProducerBatch, list[Delivery]]:
    """Return a batch in flight, with its deliveries."""
    records = accumulator()
    deliveries = [
        put(records, b"v" * number, key=b"key" if number else None, timestamp_ms=1000 + number, **rest)
        for number in range(count)
    ]
    return records, one(records), deliveries


class Calls:
    """A callback that notes its arguments, and throws if configured."""

    def __init__(self, throws: dict[int, BaseException] | None = None) -> None:
        self.seen: list[tuple[RecordMetadata, BaseException | None]] = []
        self.throws = throws or {}
        self.thrown: list[tuple[object, BaseException]] = []

    def __call__(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.seen.append((metadata, error))
        if len(self.seen) - 1 in self.throws:
            raise self.throws[len(self.seen) - 1]

    def threw(self, function: object, error: BaseException) -> None:
        self.thrown.append((function, error))


# How a batch ends


def test_a_batch_that_succeeded_resolves_all_its_deliveries() -> None:
    records, batch, deliveries = sent()
    assert not any(delivery.done() for delivery in deliveries)
    assert batch.complete(100)
    assert [delivery.result(0) for delivery in deliveries] == [
        RecordMetadata("t", 0, 100, 1000, -1, 0),
        RecordMetadata("t", 0, 101, 1001, 3, 1),
        RecordMetadata("t", 0, 102, 1002, 3, 2),
    ]
    assert [delivery.exception(0) for delivery in deliveries] == [None] * 3
    assert batch.completion.unobserved_count == 0
    assert is_whole(records)


def test_log_append_time_replaces_the_records_own() -> None:
    _, batch, deliveries = sent()
    batch.complete(0, 777)
    assert [delivery.result(0).timestamp_ms for delivery in deliveries] == [777] * 3


def test_I13_without_an_offset_each_is_minus_one() -> None:
    _, batch, deliveries = sent()
    batch.complete(-1)
    assert [delivery.result(0).offset for delivery in deliveries] == [-1] * 3
    assert [delivery.result(0).timestamp_ms for delivery in deliveries] == [1000, 1001, 1002]


def test_a_batch_that_failed_raises_from_all_its_deliveries() -> None:
    records, batch, deliveries = sent()
    batch.fail(FAILURE)
    for delivery in deliveries:
        assert delivery.done() and delivery.exception(0) is FAILURE
        with pytest.raises(KafkaError) as raised:
            delivery.result()
        assert raised.value is FAILURE
    assert batch.completion.outcome == "failed"
    assert is_whole(records)


def test_traceback_of_an_error_does_not_grow_when_raised_again() -> None:
    _, batch, (delivery, *_) = sent()
    batch.fail(FAILURE)
    depths = []
    for _ in range(5):
        with pytest.raises(KafkaError) as raised:
            delivery.result(0)
        depths.append(len(raised.traceback))
    assert len(set(depths)) == 1


def test_D13_single_records_may_have_an_error_of_their_own() -> None:
    calls = Calls()
    _, batch, deliveries = sent(on_delivery=calls)
    own = KafkaError("this one is bad")
    batch.fail(FAILURE, {1: own})
    assert [delivery.exception(0) for delivery in deliveries] == [FAILURE, own, FAILURE]
    batch.completion.run_callbacks(print)
    assert [error for _, error in calls.seen] == [FAILURE, own, FAILURE]


ENDS = {
    "complete": lambda batch: batch.complete(5),
    "fail": lambda batch: batch.fail(FAILURE),
}


@pytest.mark.parametrize("first", ENDS)
@pytest.mark.parametrize("second", ENDS)
def test_F01_I28_a_batch_ends_once(first: str, second: str) -> None:
    """A response after a failure is ignored; any other second outcome is a mistake."""
    calls = Calls()
    _, batch, deliveries = sent(on_delivery=calls)
    ENDS[first](batch)
    outcome = batch.completion.outcome
    if first != "complete":
        assert ENDS[second](batch) is False
    else:
        with pytest.raises(IllegalStateError, match="must not become"):
            ENDS[second](batch)
    assert batch.completion.outcome == outcome
    assert deliveries[0].exception(0) is (None if first == "complete" else FAILURE)
    assert batch.completion.run_callbacks(print) == 3
    assert batch.completion.run_callbacks(print) == 0
    assert len(calls.seen) == 3


# Callbacks


def test_F01_callbacks_run_once_in_record_order_despite_errors() -> None:
    calls = Calls({0: ValueError("first"), 2: ValueError("third")})
    records, batch, _ = sent(5, on_delivery=calls)
    assert batch.completion.has_callbacks
    assert batch.completion.run_callbacks(calls.threw) == 0  # not before it ended
    batch.complete(10)
    assert calls.seen == []  # not where the answer is handled
    assert batch.completion.run_callbacks(calls.threw) == 5
    assert [metadata.offset for metadata, _ in calls.seen] == [10, 11, 12, 13, 14]
    assert calls.thrown == [(calls, calls.throws[0]), (calls, calls.throws[2])]
    assert not batch.completion.has_callbacks
    assert is_whole(records)


def test_F03_failure_callback_gets_topic_and_partition() -> None:
    calls = Calls()
    _, batch, _ = sent(1, on_delivery=calls)
    batch.fail(FAILURE)
    batch.completion.run_callbacks(print)
    assert calls.seen == [(RecordMetadata("t", 0, -1, -1, -1, -1), FAILURE)]


def test_only_some_records_have_callbacks() -> None:
    calls = Calls()
    records = accumulator()
    for number in range(100):
        put(records, b"v", on_delivery=calls if number % 7 == 3 else None)
    batch = one(records)
    batch.complete(0)
    batch.completion.run_callbacks(print)
    assert [metadata.offset for metadata, _ in calls.seen] == [*range(3, 100, 7)]


def test_callbacks_run_once_on_any_thread() -> None:
    for _ in range(20):
        calls = Calls()
        _, batch, _ = sent(100, on_delivery=calls)
        batch.complete(0)
        threads = [threading.Thread(target=batch.completion.run_callbacks, args=(print,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert [metadata.offset for metadata, _ in calls.seen] == [*range(100)]


def test_interrupt_in_callback_propagates_and_next_call_resumes() -> None:
    calls = Calls({1: KeyboardInterrupt()})
    records, batch, _ = sent(3, on_delivery=calls)
    batch.complete(0)

    def threw(function: object, error: BaseException) -> None:
        assert function is calls
        raise error

    with pytest.raises(KeyboardInterrupt):
        batch.completion.run_callbacks(threw)
    assert batch.completion.run_callbacks(threw) == 1
    assert [metadata.offset for metadata, _ in calls.seen] == [0, 1, 2]
    assert is_whole(records)


def test_result_works_within_a_callback() -> None:
    records = accumulator()
    results: list[RecordMetadata] = []
    deliveries: list[Delivery] = []

    def called(metadata: RecordMetadata, error: BaseException | None) -> None:
        results.append(deliveries[0].result(0))

    deliveries.append(put(records, on_delivery=called))
    batch = one(records)
    batch.complete(4)
    batch.completion.run_callbacks(print)
    assert results[0].offset == 4


def test_the_charge_of_records_lasts_until_their_callbacks_ran() -> None:
    records, batch, _ = sent(30, on_delivery=Calls())
    batch.complete(0)
    assert records.memory.callback_bytes > 30 * 128
    assert records.memory.total_memory - records.memory.available == records.memory.callback_bytes
    batch.completion.run_callbacks(print)
    assert is_whole(records)


# Waiting


def test_waiting_in_vain_is_a_timeout_and_the_delivery_goes_on() -> None:
    _, batch, (delivery, *_) = sent()
    for ask in (delivery.result, delivery.exception):
        with pytest.raises(KafkaTimeoutError, match=r"no result after 0\.001 s; .* t-0"):
            ask(0.001)
    batch.complete(0)
    assert delivery.result().offset == 0


@pytest.mark.parametrize("split", [False, True])
def test_all_waiters_are_woken(split: bool) -> None:
    records, batch, deliveries = sent(8)
    results: list[Any] = [None] * 8
    waiting = threading.Barrier(9)

    def wait(number: int) -> None:
        waiting.wait(DEADLINE_S)
        results[number] = deliveries[number].result(DEADLINE_S)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    waiting.wait(DEADLINE_S)
    if split:
        offset = 0
        for child in records.split(batch):
            assert one(records) is child
            child.complete(offset)
            offset += child.record_count
    else:
        batch.complete(0)
    for thread in threads:
        thread.join(DEADLINE_S)
    assert [result.offset for result in results] == [*range(8)]


def test_a_batch_that_is_split_while_a_wait_begins_is_not_delivered() -> None:
    records, batch, (delivery, *_) = sent(2)
    parts: list[ProducerBatch] = []

    class Splitting(float):
        """A time-out that is looked at after the wait has found the batch pending."""

        def __ge__(self, other: float) -> bool:
            parts.extend(() if parts else records.split(batch))
            return super().__ge__(other)

    with pytest.raises(KafkaTimeoutError):
        delivery.result(Splitting(0.001))
    assert len(parts) == 2 and not delivery.done()
    for offset in range(2):
        one(records).complete(offset)
    assert delivery.result(0).offset == 0


def test_done_callbacks_run_after_those_of_the_batch_or_at_once() -> None:
    order: list[object] = []

    def called(metadata: RecordMetadata, error: BaseException | None) -> None:
        order.append(metadata.offset)

    records, batch, (delivery, *_) = sent(2, on_delivery=called)
    delivery.add_done_callback(order.append)
    assert batch.completion.has_callbacks and order == []
    batch.complete(7)
    batch.completion.run_callbacks(print)
    assert order == [7, 8, delivery]
    delivery.add_done_callback(order.append)
    assert order == [7, 8, delivery, delivery]
    assert is_whole(records)


def test_done_callbacks_follow_their_record_through_a_split() -> None:
    order: list[int] = []
    records, batch, deliveries = sent(8)
    for number, delivery in enumerate(deliveries):
        delivery.add_done_callback(partial(lambda number, done: order.append(number), number))
    children = records.split(batch)
    for child in reversed(children):
        order.clear()
        child.complete(0)
        child.completion.run_callbacks(print)
        assert order == [*range(child.first_number, child.first_number + child.record_count)]
    assert all(delivery.done() for delivery in deliveries)
    assert is_whole(records)


def test_await_gives_what_result_gives() -> None:
    _, batch, (delivery, *_) = sent()

    async def awaited() -> RecordMetadata:
        asyncio.get_running_loop().call_soon(settle)
        return await delivery

    def settle() -> None:
        batch.complete(3)
        batch.completion.run_callbacks(print)

    assert asyncio.run(awaited()) == delivery.result(0)
    assert delivery.result(0).offset == 3


# Unobserved failures


def test_unobserved_failures_are_counted() -> None:
    records = accumulator()
    kept = put(records)
    asked = put(records)
    put(records, on_delivery=Calls())
    put(records)
    batch = one(records)
    batch.fail(FAILURE)
    completion = batch.completion
    assert completion.error is FAILURE
    assert completion.unobserved_count == 3
    assert asked.exception(0) is FAILURE
    assert asked.exception(0) is FAILURE
    assert completion.unobserved_count == 2
    with pytest.raises(KafkaError):
        kept.result()
    assert completion.unobserved_count == 1


# Flushes


def test_A07_flush_waits_for_existing_batches_and_callbacks() -> None:
    records, batch, _ = sent(on_delivery=Calls())
    assert records.begin_flush().pending_count == 1
    flush = records.begin_flush()
    ended: list[Flush] = []
    flush.add_done_callback(ended.append)
    put(records, b"later")
    assert not flush.wait(0.001)
    batch.complete(0)
    assert not flush.done() and ended == []
    batch.completion.run_callbacks(print)
    assert flush.done() and flush.wait() and ended == [flush]
    flush.add_done_callback(ended.append)
    assert ended == [flush, flush]


def test_a_flush_of_nothing_is_over() -> None:
    records = accumulator()
    assert records.begin_flush().done()


def test_threads_that_wait_for_a_flush_are_woken() -> None:
    records, batch, _ = sent()
    flush = records.begin_flush()
    ended: list[bool] = []
    threads = [threading.Thread(target=lambda: ended.append(flush.wait(DEADLINE_S))) for _ in range(3)]
    for thread in threads:
        thread.start()
    batch.fail(FAILURE)
    for thread in threads:
        thread.join(DEADLINE_S)
    assert ended == [True] * 3


# Types


def test_record_metadata_is_a_value() -> None:
    metadata = RecordMetadata("t", 1, 2, 3, 4, 5)
    assert metadata == RecordMetadata("t", 1, 2, 3, 4, 5) != RecordMetadata("t", 1, 2, 3, 4, 6)
    assert metadata != ("t", 1, 2, 3, 4, 5)
    assert hash(metadata) == hash(RecordMetadata("t", 1, 2, 3, 4, 5))
    assert pickle.loads(pickle.dumps(metadata)) == metadata
    assert repr(metadata) == (
        "RecordMetadata(topic='t', partition=1, offset=2, timestamp_ms=3, serialized_key_size=4, "
        "serialized_value_size=5)"
    )
    assert RecordMetadata("t", 1) == RecordMetadata("t", 1, -1, -1, -1, -1)


def test_a_delivery_costs_little_and_nothing_when_it_is_dropped() -> None:
    _, batch, deliveries = sent()
    assert sys.getsizeof(deliveries[0]) - sys.getsizeof(object()) <= 48 and not gc.is_tracked(deliveries[0])
    assert (deliveries[0].topic, deliveries[0].partition) == ("t", 0)
    assert repr(deliveries[0]) == "<Delivery t-0 pending>"
    deliveries.clear()
    batch.complete(0)
    assert batch.completion.base_offset == 0


def test_only_a_send_makes_deliveries() -> None:
    for cls in (Delivery, Completion, Flush):
        with pytest.raises(TypeError, match="comes"):
            cls()
