"""Producer: failed records, their reports, the records after them, and how the producer continues."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import kbatch
from kbatch import (
    DeliveryError,
    KafkaError,
    Producer,
)
from kbatch.errors import (
    ClusterAuthorizationError,
    InvalidRecordError,
    NotEnoughReplicasError,
    PrecedingRecordFailedError,
    ProducerClosedError,
    PurgedError,
)
from kbatch.producer.runtime import Runtime
from kbatch.testing import Broker
from tests.support.patience import until
from tests.support.producing import (
    LINGERING,
    SECONDS,
    TOPIC,
    CallbackLog,
    metric,
    producing,
    requests_seen,
    values,
)
from tests.support.shells import new_producer, the_loop

pytestmark = pytest.mark.usefixtures("shell")

TIME_MS = 1_700_000_000_000
ONCE = {"retries": 0, "enable_idempotence": False}  # so that the first error of a broker is the last


TOPICS = {TOPIC: 3}


# Failures: how they are reported


def fail_some(broker: Broker, producer: Producer, count: int, **arguments: Any) -> list[kbatch.Delivery]:
    """Let records fail, each in a separate batch, before their results are read."""
    deliveries = []
    for _ in range(count):
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        deliveries.append(producer.send(TOPIC, b"", **arguments))
        assert deliveries[-1].wait(SECONDS)
    return deliveries


def test_unobserved_failures_are_raised_by_flush_once(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with producing(broker, **ONCE) as producer:
        first, *_ = fail_some(broker, producer, 3)
        text = "3 records failed, the first with NotEnoughReplicas"
        with pytest.raises(DeliveryError, match=text) as raised:
            producer.flush(SECONDS)
        assert raised.value.first is first.exception(0)
        assert (raised.value.count, raised.value.code, raised.value.retriable) == (3, 19, True)
        producer.flush(SECONDS)
    logged = [record.getMessage() for record in caplog.records if record.name == "kbatch.producer"]
    assert logged == ["3 batches to events failed with NotEnoughReplicasError and were never checked"]


@pytest.mark.parametrize("observe", ["on_delivery", "result", "exception"])
def test_observed_failures_are_not_raised_again(broker: Broker, observe: str) -> None:
    with producing(broker, **ONCE) as producer:
        noted = CallbackLog()
        (delivery,) = fail_some(broker, producer, 1, on_delivery=noted if observe == "on_delivery" else None)
        if observe == "result":
            with pytest.raises(NotEnoughReplicasError):
                delivery.result(SECONDS)
        elif observe == "exception":
            assert isinstance(delivery.exception(SECONDS), NotEnoughReplicasError)
        else:
            assert isinstance(noted.next()[1], NotEnoughReplicasError)
        producer.flush(SECONDS)
        producer.close()


def test_first_failure_is_the_first_unobserved_one(broker: Broker) -> None:
    with producing(broker, **ONCE) as producer:
        deliveries = fail_some(broker, producer, 30)
        deliveries[0].exception(0)
        with pytest.raises(DeliveryError) as noted:
            producer.flush(SECONDS)
        assert noted.value.count == 29
        assert noted.value.first is deliveries[1].exception(0)


def test_close_raises_unobserved_failures_and_closes(broker: Broker) -> None:
    with producing(broker, **ONCE) as producer:
        fail_some(broker, producer, 1)
        with pytest.raises(DeliveryError, match="a record failed with NotEnoughReplicas"):
            producer.close()
        producer.close()
        with pytest.raises(kbatch.IllegalStateError):
            producer.send(TOPIC, b"")


# Failures: what the engine does about them


def test_retriable_errors_are_retried_in_order(broker: Broker) -> None:
    with producing(broker, retry_backoff_ms=5, batch_size=50) as producer:
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=3)
        deliveries = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(100)]
        producer.flush(SECONDS)
        assert [delivery.result(0).offset for delivery in deliveries] == list(range(100))
        assert metric(producer, "record-retry-total") >= 3
        assert metric(producer, "record-error-total") == 0
    assert values(broker, 0) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("when", ["before", "after"])
def test_record_is_there_once_when_connections_break(broker: Broker, when: str) -> None:
    with producing(broker, retry_backoff_ms=5, reconnect_backoff_ms=5, batch_size=50) as producer:
        producer.send(TOPIC, b"", partition=0).result(SECONDS)
        broker.drop_connection("Produce", when=when, times=4)
        deliveries = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(100)]
        producer.flush(SECONDS)
        assert all(delivery.exception(0) is None for delivery in deliveries)
    assert values(broker, 0) == [b"", *(b"%d" % number for number in range(100))]


def test_possibly_persisted_says_whether_the_record_may_be_there(broker: Broker) -> None:
    with producing(broker, **ONCE) as producer:
        producer.send(TOPIC, b"", partition=0).result(SECONDS)
        broker.drop_connection("Produce", when="after")
        lost = producer.send(TOPIC, b"lost", partition=0).exception(SECONDS)
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        refused = producer.send(TOPIC, b"refused", partition=0).exception(SECONDS)
    assert isinstance(lost, KafkaError)
    assert isinstance(refused, KafkaError)
    assert (lost.possibly_persisted, refused.possibly_persisted) == (True, False)
    assert values(broker) == [b"", b"lost"]


def refuse_first(
    broker: Broker, producer: Producer, in_flight: int, all_are_sent: threading.Event | None = None
) -> list[Any]:
    """Refuse the next Produce request, once all are sent and this many are unanswered; return those that
    come.
    """
    came: list[Any] = []

    def refuse(request: Any) -> str | None:
        came.append(request)
        if len(came) > 1:
            return None
        assert all_are_sent is None or all_are_sent.wait(SECONDS)
        until(lambda: metric(producer, "requests-in-flight") == in_flight)
        return "INVALID_RECORD"

    broker.intercept("Produce", refuse)
    return came


@pytest.mark.parametrize(
    ("in_flight", "idempotent"), [(1, False), (1, True), (5, True)], ids=["plain-1", "1", "5"]
)
@pytest.mark.parametrize("policy", ["stop_partition", "stop"])
def test_nothing_passes_a_failed_record_until_resume(
    broker: Broker, policy: str, in_flight: int, idempotent: bool
) -> None:
    """Decision 12."""
    keys: dict[str, Any] = {"max_in_flight_requests_per_connection": in_flight, "batch_size": 0}
    keys |= {"enable_idempotence": idempotent, "kbatch_on_delivery_failure": policy}
    with producing(broker, **keys) as producer:
        producer.send(TOPIC, b"before", partition=0).result(SECONDS)
        for _ in range(10):  # records sent after resume() are never taken for earlier ones
            came = refuse_first(broker, producer, in_flight)
            deliveries = [producer.send(TOPIC, b"fails", partition=0) for _ in range(8)]
            first, *later = [delivery.exception(SECONDS) for delivery in deliveries]
            assert isinstance(first, InvalidRecordError)
            for error in later:
                assert isinstance(error, PrecedingRecordFailedError)
                assert not error.possibly_persisted
            assert len(came) == in_flight
            elsewhere = producer.send(TOPIC, b"elsewhere", partition=1).exception(SECONDS)
            assert (elsewhere is None) == (policy == "stop_partition")
            producer.resume()
            assert producer.send(TOPIC, b"again", partition=0).exception(SECONDS) is None
    assert values(broker, 0) == [b"before", *[b"again"] * 10]


def close_now(producer: Any) -> None:
    """Close as a callback does: an AsyncProducer's close is a task, which a callback on its loop cannot
    await.
    """
    loop = the_loop()
    if loop is None:
        producer.close(timeout=0)
    else:
        loop.create_task(producer._producer.close(timeout=0)).add_done_callback(asyncio.Task.exception)


@pytest.mark.parametrize("in_flight", [1, 5])
def test_close_in_failure_callback_stops_later_records(broker: Broker, in_flight: int) -> None:
    """Java's idiom, which docs/delivery.md says needs the policy here."""
    errors: list[BaseException | None] = []
    all_are_sent = threading.Event()
    keys: dict[str, Any] = {"max_in_flight_requests_per_connection": in_flight, "batch_size": 0}
    with producing(broker, **keys, kbatch_on_delivery_failure="stop") as producer:
        producer.send(TOPIC, b"before", partition=0).result(SECONDS)

        def on_delivery(metadata: Any, error: BaseException | None) -> None:
            errors.append(error)
            close_now(producer)

        refuse_first(broker, producer, in_flight, all_are_sent)
        for _ in range(8):
            producer.send(TOPIC, b"fails", partition=0, on_delivery=on_delivery)
        all_are_sent.set()
        until(lambda: len(errors) == 8)
    first, *later = errors
    assert isinstance(first, InvalidRecordError)
    assert all(isinstance(error, PrecedingRecordFailedError | ProducerClosedError) for error in later)
    assert values(broker) == [b"before"]


def test_callbacks_run_apart_so_that_closing_in_one_is_late(broker: Broker) -> None:
    """With the default policy the next batch is sent before the callback could close the producer."""
    producer = new_producer(
        bootstrap_servers=broker.bootstrap_servers,
        linger_ms=0,
        batch_size=0,
        max_in_flight_requests_per_connection=1,
    )
    all_are_sent, closed = threading.Event(), threading.Event()
    producer.send(TOPIC, b"before", partition=0).result(SECONDS)
    refuse_first(broker, producer, 1, all_are_sent)

    def on_delivery(metadata: Any, error: BaseException | None) -> None:
        if the_loop() is None:
            assert passes.result(SECONDS).offset == 1
        close_now(producer)
        closed.set()

    fails = producer.send(TOPIC, b"fails", partition=0, on_delivery=on_delivery)
    passes = producer.send(TOPIC, b"passes", partition=0)
    all_are_sent.set()
    assert isinstance(fails.exception(SECONDS), InvalidRecordError)
    assert closed.wait(SECONDS)
    until(lambda: values(broker) == [b"before", b"passes"])


def test_A10_purge_drops_queued_records_and_no_later_ones(broker: Broker) -> None:
    with producing(broker, linger_ms=600_000) as producer:
        for number in range(50):
            purged = producer.send(TOPIC, b"purged", partition=0)
            producer.purge()
            kept = producer.send(TOPIC, b"kept-%d" % number, partition=0)
            assert isinstance(purged.exception(SECONDS), PurgedError)
            assert not kept.done()
            producer.flush(SECONDS)
            kept.result(0)
    assert values(broker, 0) == [b"kept-%d" % number for number in range(50)]


def test_A10_interrupted_purge_fails_no_later_record(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(runtime: Any) -> None:
        raise InterruptedError

    with producing(broker, **LINGERING) as producer:
        producer.partitions_for(TOPIC)
        with monkeypatch.context() as patch:
            patch.setattr(Runtime, "await_sender", interrupted)
            with pytest.raises(InterruptedError):
                producer.purge()
        later = producer.send(TOPIC, b"later")
        producer.resume()  # the sender does what it was told before
        producer.flush(SECONDS)
        assert later.result(SECONDS).offset == 0


def test_A10_purge_in_flight_is_possibly_persisted(broker: Broker) -> None:
    with producing(broker) as producer:
        producer.send(TOPIC, b"", partition=0).result(SECONDS)
        broker.hold_high_watermark(TOPIC, 0)
        seen = requests_seen(broker)
        delivery = producer.send(TOPIC, b"held", partition=0)
        seen.get(timeout=SECONDS)
        producer.purge(queued=True)
        assert not delivery.done()
        producer.purge(queued=False, in_flight=True)
        error = delivery.exception(SECONDS)
        assert isinstance(error, PurgedError)
        assert error.possibly_persisted
        broker.hold_high_watermark(TOPIC, 0, False)
        assert producer.send(TOPIC, b"next", partition=0).result(SECONDS).offset == 2


def test_flush_after_fatal_error_raises_failures_first(broker: Broker) -> None:
    broker.fail_next("Produce", "CLUSTER_AUTHORIZATION_FAILED")
    with producing(broker) as producer:
        delivery = producer.send(TOPIC, b"")
        until(lambda: producer._runtime.engine.fatal_error is not None)
        assert delivery.wait(SECONDS)
        with pytest.raises(DeliveryError, match="a record failed with ClusterAuthorization"):
            producer.flush(SECONDS)
        for _ in range(2):
            with pytest.raises(ClusterAuthorizationError) as raised:
                producer.flush(SECONDS)
            assert raised.value.fatal
        producer.close()
        producer.flush()


def test_fatal_error_ends_the_producer_and_recreate_begins_anew(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    keys: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0}
    old = new_producer(keys, client_id="name")
    keys["client.id"] = "changed afterwards"
    broker.fail_next("Produce", "CLUSTER_AUTHORIZATION_FAILED")
    old.send(TOPIC, b"")
    with pytest.raises(DeliveryError) as noted:
        old.flush(SECONDS)
    assert isinstance(noted.value.first, ClusterAuthorizationError)
    for call in (old.send, old.try_send, old.partitions_for):
        with pytest.raises(ClusterAuthorizationError):
            call(TOPIC)
    with old.recreate() as new:
        assert new.config.client_id == "name"
        new.send(TOPIC, b"value").result(SECONDS)
    assert "closed" in repr(old)
    assert values(broker) == [b"value"]


def test_recreate_logs_unobserved_failures(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    old = new_producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0, **ONCE)
    fail_some(broker, old, 1)
    old.recreate().close()
    assert any("NotEnoughReplicas" in record.getMessage() for record in caplog.records)
