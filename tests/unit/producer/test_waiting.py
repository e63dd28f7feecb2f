"""Producer: where threads wait, for memory, for metadata, for deliveries, for callbacks."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import kbatch
from kbatch import (
    BufferExhaustedError,
    Delivery,
    IllegalStateError,
    KafkaTimeoutError,
    PartialSendError,
    Producer,
    RecordMetadata,
)
from kbatch.errors import ProducerClosedError
from kbatch.testing import Broker
from tests.support.patience import until
from tests.support.producing import (
    SECONDS,
    SECONDS_MS,
    TOPIC,
    CallbackLog,
    know,
    metric,
    producing,
    requests_seen,
    values,
    waits_for_memory,
    within,
)

# Room for some ten records of 1,000 bytes.
SMALL: dict[str, Any] = {"buffer_memory": 24_000, "batch_size": 1000, "max_block_ms": SECONDS_MS}
RECORD = bytes(1000)

pytestmark = pytest.mark.usefixtures("shell")


def fill(broker: Broker, producer: Producer) -> list[Delivery]:
    """Fill the memory with records that are not acknowledged until `release`."""
    know(producer, TOPIC)
    broker.hold_high_watermark(TOPIC, 0)
    deliveries = []
    while (delivery := producer.try_send(TOPIC, RECORD)) is not None:
        deliveries.append(delivery)
    assert deliveries
    return deliveries


def release(broker: Broker) -> None:
    broker.hold_high_watermark(TOPIC, 0, False)


# Memory


def test_send_waits_for_memory(broker: Broker) -> None:
    with producing(broker, **SMALL) as producer:
        earlier = fill(broker, producer)
        sending = within(lambda: producer.send(TOPIC, RECORD))
        until(waits_for_memory(producer))
        assert not sending.done()
        release(broker)
        assert sending.result(SECONDS).result(SECONDS).offset == len(earlier)
        assert metric(producer, "waiting-threads") == 0
        assert metric(producer, "bufferpool-wait-time-ns-total") > 0
        assert metric(producer, "buffer-exhausted-total") == 0


def test_B04_send_waits_no_longer_than_max_block_ms(broker: Broker) -> None:
    with producing(broker, **(SMALL | {"max_block_ms": 100})) as producer:
        fill(broker, producer)
        with pytest.raises(BufferExhaustedError) as refused:
            producer.send(TOPIC, RECORD)
        text = str(refused.value)
        assert "no memory for the record in max.block.ms=100" in text
        assert "buffer.memory=24000" in text
        assert "0 other senders wait" in text
        assert metric(producer, "buffer-exhausted-total") == 1
        assert metric(producer, "waiting-threads") == 0
        with pytest.raises(PartialSendError) as stopped:
            producer.send_many(TOPIC, [(None, RECORD)])
        assert isinstance(stopped.value.cause, BufferExhaustedError)
        release(broker)
        producer.flush(SECONDS)
        producer.send(TOPIC, RECORD).result(SECONDS)


def test_B05_senders_get_memory_in_the_order_in_which_they_came(broker: Broker) -> None:
    with producing(broker, **SMALL) as producer:
        earlier = fill(broker, producer)
        sendings = []
        for number in range(5):
            value = b"%d" % number + (bytes(12_000) if number == 0 else b"")  # a large one is not passed
            sendings.append(within(partial(producer.send, TOPIC, value)))
            until(waits_for_memory(producer, number + 1))
        assert producer.try_send(TOPIC, b"") is None
        release(broker)
        for sending in sendings:
            sending.result(SECONDS).result(SECONDS)
    later = [value[:1] for value in values(broker)[len(earlier) :] if value]
    assert later == [b"0", b"1", b"2", b"3", b"4"]


def test_waiter_that_gives_up_leaves_the_queue_to_the_others(broker: Broker) -> None:
    with producing(broker, **(SMALL | {"max_block_ms": 1_000})) as short:
        fill(broker, short)
        first = within(lambda: short.send(TOPIC, RECORD))
        until(waits_for_memory(short))
        assert isinstance(first.exception(SECONDS), BufferExhaustedError)
        second = within(lambda: short.send(TOPIC, RECORD))
        until(waits_for_memory(short))
        release(broker)
        assert second.result(SECONDS).exception(SECONDS) is None


def test_many_senders_in_little_memory_lose_nothing(broker: Broker) -> None:
    with producing(broker, **SMALL) as producer, ThreadPoolExecutor(8) as pool:

        def send_all(name: int) -> list[Delivery]:
            return [producer.send(TOPIC, b"%d %d " % (name, number) + RECORD[:500]) for number in range(100)]

        deliveries = [delivery for sent in pool.map(send_all, range(8)) for delivery in sent]
        producer.flush(SECONDS)
        assert {delivery.result(0).offset for delivery in deliveries} == set(range(800))
        until(lambda: metric(producer, "buffer-available-bytes") == SMALL["buffer_memory"])
    last = dict.fromkeys(range(8), -1)
    for value in values(broker):
        name, number = map(int, (value or b"").split(b" ")[:2])
        assert number == last[name] + 1
        last[name] = number


# Callbacks


@pytest.mark.threads
def test_callback_may_send_and_wait_for_what_it_sent(broker: Broker) -> None:
    with producing(broker) as producer:
        noted = CallbackLog()
        found: list[int] = []

        def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
            found.append(producer.send(TOPIC, b"second").result(SECONDS).offset)
            noted(metadata, error)

        producer.send(TOPIC, b"first", on_delivery=on_delivery)
        noted.next()
        assert found == [1]


@pytest.mark.threads
def test_callback_sends_while_memory_is_full_and_others_wait(broker: Broker) -> None:
    """Waiters may need the memory that the callback's own records hold until it ends."""
    with producing(broker, **(SMALL | {"batch_size": 4000})) as producer:
        producer.partitions_for(TOPIC)
        may_send = threading.Event()
        noted = CallbackLog()

        def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
            if metadata.offset == 0:
                assert may_send.wait(SECONDS)
                for _ in range(20):
                    producer.send(TOPIC, RECORD, on_delivery=noted)

        producer.send(TOPIC, b"", on_delivery=on_delivery).result(SECONDS)
        held_count = 0
        while metric(producer, "buffer-available-bytes") > 12_000:
            producer.send(TOPIC, b"", on_delivery=noted).result(SECONDS)
            held_count += 1
        earlier = fill(broker, producer)
        sending = within(lambda: producer.send(TOPIC, bytes(14_000)))
        until(waits_for_memory(producer))
        may_send.set()
        until(waits_for_memory(producer, 2))
        release(broker)
        assert sending.result(SECONDS).exception(SECONDS) is None
        producer.flush(SECONDS)
        assert len(noted.noted) == held_count + 20
        assert len(values(broker)) == 1 + held_count + len(earlier) + 20 + 1


def test_callbacks_come_in_order_and_one_that_raises_stops_none(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    offsets: list[int] = []

    def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
        offsets.append(metadata.offset)
        if metadata.offset == 3:
            raise asyncio.CancelledError  # no Exception
        raise ZeroDivisionError

    with producing(broker, linger_ms=60_000) as producer:
        for _ in range(20):
            producer.send(TOPIC, b"", on_delivery=on_delivery)
        producer.flush(SECONDS)
    assert offsets == list(range(20))
    assert any("the callback" in record.getMessage() for record in caplog.records)


@pytest.mark.threads
def test_slow_callback_holds_up_no_record(broker: Broker) -> None:
    with producing(broker) as producer:
        may_end = threading.Event()
        producer.send(TOPIC, b"", on_delivery=lambda *_: may_end.wait(SECONDS))
        assert producer.send(TOPIC, b"").result(SECONDS).offset == 1
        with pytest.raises(KafkaTimeoutError, match=r"after 0.05 s"):
            producer.flush(0.05)
        may_end.set()
        producer.flush(SECONDS)


def test_flush_returns_after_the_callbacks(broker: Broker) -> None:
    with producing(broker) as producer:
        for _ in range(50):
            noted = CallbackLog()
            producer.send(TOPIC, b"", on_delivery=noted).result(SECONDS)  # answered before the flush
            producer.send(TOPIC, b"", on_delivery=noted)
            producer.flush(SECONDS)
            assert len(noted.noted) == 2


def test_result_in_vain_says_what_keeps_the_record_from_its_node(broker: Broker) -> None:
    with producing(broker, reconnect_backoff_ms=10, reconnect_backoff_max_ms=10) as producer:
        producer.send(TOPIC, b"").result(SECONDS)
        broker.hold_high_watermark(TOPIC, 0)
        seen = requests_seen(broker)
        delivery = producer.send(TOPIC, b"")
        seen.get(timeout=SECONDS)
        with pytest.raises(KafkaTimeoutError, match=r"0 is in flight \(delivery\.timeout\.ms bounds it\)$"):
            delivery.result(0.01)
        release(broker)
        delivery.result(SECONDS)
        broker.stop_node(0)
        until(lambda: producer._runtime.engine.last_connection_failure is not None)
        delivery = producer.send(TOPIC, b"")
        text = r"0 has not been sent yet \(delivery.* bounds it\).*; the last connection failed: node "
        with pytest.raises(KafkaTimeoutError, match=text):
            delivery.result(0.01)
        broker.start_node(0)
        assert delivery.result(SECONDS).offset == 2


# flush


def test_flush_does_not_wait_for_linger(broker: Broker) -> None:
    with producing(broker, linger_ms=600_000, delivery_timeout_ms=2**31 - 1) as producer:
        delivery = producer.send(TOPIC, b"")
        producer.flush(SECONDS)
        assert delivery.done()


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_flush_says_what_is_left_when_its_time_is_over(broker: Broker, timeout: float) -> None:
    with producing(broker) as producer:
        producer.send(TOPIC, b"").result(SECONDS)
        producer.flush(timeout=0)  # there is nothing to wait for
        broker.hold_high_watermark(TOPIC, 0)
        delivery = producer.send(TOPIC, b"")
        with pytest.raises(
            KafkaTimeoutError,
            match=rf"flush\(\) timed out after {timeout} s: 1 batches are not delivered yet",
        ):
            producer.flush(timeout)
        release(broker)
        producer.flush(SECONDS)
        assert delivery.result(0).offset == 1


def test_flush_ends_while_others_go_on_sending(broker: Broker) -> None:
    with producing(broker) as producer:
        broker.hold_high_watermark(TOPIC, 0)
        seen = requests_seen(broker)
        producer.send(TOPIC, b"")
        seen.get(timeout=SECONDS)
        stop = threading.Event()

        def go_on_sending() -> None:
            while not stop.is_set():
                producer.send(TOPIC, b"").wait(SECONDS)

        release(broker)
        sending = within(go_on_sending)
        flushing = within(lambda: producer.flush(SECONDS))
        assert flushing.result(SECONDS) is None
        stop.set()
        sending.result(SECONDS)


@pytest.mark.threads
def test_N03_flush_in_a_callback_is_refused(broker: Broker) -> None:
    with producing(broker) as producer:
        raised: list[BaseException] = []
        ended = threading.Event()

        def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
            try:
                producer.flush()
            except IllegalStateError as refused:
                raised.append(refused)
            ended.set()

        producer.send(TOPIC, b"", on_delivery=on_delivery)
        assert ended.wait(SECONDS)
        assert "in a callback" in str(raised[0])


def test_several_threads_may_flush(broker: Broker) -> None:
    keys: dict[str, Any] = {"linger_ms": 600_000, "delivery_timeout_ms": 2**31 - 1}
    with producing(broker, **keys) as producer, ThreadPoolExecutor(4) as pool:

        def send_and_flush(_: int) -> bool:
            delivery = producer.send(TOPIC, b"")
            producer.flush(SECONDS)
            return delivery.done()

        assert all(pool.map(send_and_flush, range(40)))


# wait, as_completed


def test_wait_reports_completed_deliveries(broker: Broker) -> None:
    with producing(broker) as producer:
        done = producer.send(TOPIC, b"")
        done.result(SECONDS)
        broker.hold_high_watermark(TOPIC, 0)
        held = producer.send(TOPIC, b"")
        assert kbatch.wait([held, done], timeout=0.05) == ([done], [held])
        release(broker)
        assert kbatch.wait(iter([held, done]), timeout=SECONDS) == ([held, done], [])
        assert kbatch.wait([]) == ([], [])


def test_wait_does_not_count_as_observing_a_failure(broker: Broker) -> None:
    with producing(broker, retries=0, enable_idempotence=False) as producer:
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        kbatch.wait([producer.send(TOPIC, b"")], SECONDS)
        with pytest.raises(kbatch.DeliveryError):
            producer.flush(SECONDS)


def test_as_completed_yields_the_first_first(broker: Broker) -> None:
    broker.create_topic("other")
    with producing(broker) as producer:
        producer.partitions_for("other")
        broker.hold_high_watermark(TOPIC, 0)
        seen = requests_seen(broker)
        held = producer.send(TOPIC, b"")
        seen.get(timeout=SECONDS)  # or one request, and one answer, would have both
        quick = producer.send("other", b"", partition=0)
        completed = kbatch.as_completed([held, quick], timeout=SECONDS)
        release(broker)
        assert {next(completed), next(completed)} == {held, quick}
        assert next(completed, None) is None


def test_as_completed_says_how_many_are_left(broker: Broker) -> None:
    with producing(broker) as producer:
        producer.partitions_for(TOPIC)
        done = producer.send(TOPIC, b"")
        done.result(SECONDS)
        broker.hold_high_watermark(TOPIC, 0)
        held = producer.send(TOPIC, b"")
        completed = kbatch.as_completed([held, done], timeout=0.05)
        assert next(completed) is done
        with pytest.raises(KafkaTimeoutError, match=r"after 0.05 s: 1 of 2 records"):
            next(completed)


@pytest.mark.threads
def test_as_completed_in_a_callback_is_refused_and_wait_is_not(broker: Broker) -> None:
    with producing(broker) as producer:
        found: list[Any] = []
        ended = threading.Event()

        def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
            try:
                delivery = producer.send(TOPIC, b"")
                found.append(kbatch.wait([delivery], SECONDS).done == [delivery])
                next(kbatch.as_completed([producer.send(TOPIC, b"")]))
            except IllegalStateError as refused:
                found.append(str(refused))
            ended.set()

        producer.send(TOPIC, b"", on_delivery=on_delivery)
        assert ended.wait(SECONDS)
        assert found == [True, "as_completed() in a callback would wait for that callback; use wait()"]


# Metadata


def test_N03_close_wakes_waiters_for_metadata(broker: Broker) -> None:
    with producing(broker, max_block_ms=SECONDS_MS) as producer:
        seen = requests_seen(broker, "Metadata")
        waiting = [
            within(lambda: producer.send("unknown", b"")),
            within(lambda: producer.send(TOPIC, b"", partition=7)),
            within(lambda: producer.partitions_for("unknown")),
        ]
        names: set[str] = set()
        while names != {"unknown", TOPIC}:
            names |= {topic.name for topic in seen.get(timeout=SECONDS).topics}
        producer.close()
        for each in waiting:
            assert isinstance(each.exception(SECONDS), ProducerClosedError)


@pytest.mark.parametrize("timeout", [0, 0.05, None])
def test_N03_close_wakes_waiters_for_memory(broker: Broker, timeout: float | None) -> None:
    with producing(broker, **SMALL) as producer:
        deliveries = fill(broker, producer)
        waiting = [within(lambda: producer.send(TOPIC, RECORD)) for _ in range(3)]
        until(waits_for_memory(producer, 3))
        closing = within(lambda: producer.close(timeout))
        for each in waiting:
            assert isinstance(each.exception(SECONDS), ProducerClosedError)
        release(broker)
        closing.exception(SECONDS)
        assert all(delivery.done() for delivery in deliveries)


def test_fatal_error_wakes_waiters(broker: Broker) -> None:
    with producing(broker, **SMALL) as producer:
        fill(broker, producer)
        waiting = [
            within(lambda: producer.send(TOPIC, RECORD)),
            within(lambda: producer.send("unknown", b"")),
        ]
        until(waits_for_memory(producer))
        broker.fail_next("Produce", "CLUSTER_AUTHORIZATION_FAILED", times=100)
        release(broker)
        memory, metadata = (each.exception(SECONDS) for each in waiting)
        assert isinstance(metadata, kbatch.KafkaError)
        assert metadata.fatal
        if memory is None:  # it got in before the error came
            assert waiting[0].result().exception(SECONDS).fatal


def test_deadline_is_one_for_metadata_and_memory(broker: Broker) -> None:
    start = time.monotonic()
    with producing(broker, **(SMALL | {"max_block_ms": 300})) as producer:
        fill(broker, producer)
        with pytest.raises(BufferExhaustedError):
            producer.send(TOPIC, RECORD)
    assert time.monotonic() - start < SECONDS
