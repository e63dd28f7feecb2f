"""Producer: what interceptors change and see."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch import DeliveryError, RecordMetadata
from kbatch.errors import InvalidTopicError, RecordTooLargeError
from kbatch.interceptors import Interceptor
from kbatch.records import ProducerRecord
from kbatch.testing import Broker
from tests.support.producing import ONCE, SECONDS, TIME_MS, TOPIC, CallbackLog, producing

pytestmark = pytest.mark.usefixtures("shell")


TOPICS = {TOPIC: 3}


class Watching(Interceptor):
    def __init__(self) -> None:
        self.sent: list[ProducerRecord] = []
        self.acknowledged = CallbackLog()
        self.closed_count = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return record._replace(value=b"<" + record.value + b">", headers=(("seen", b"1"),))

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.acknowledged(metadata, error)

    def close(self) -> None:
        self.closed_count += 1


class Failing(Interceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ZeroDivisionError

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        raise ZeroDivisionError

    def close(self) -> None:
        raise ZeroDivisionError


def test_interceptors_change_records_and_run_before_the_caller(broker: Broker) -> None:
    watching = Watching()
    order: list[str] = []
    with producing(broker, interceptor_classes=[Failing, watching, Failing]) as producer:
        noted = CallbackLog()

        def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
            order.append(f"{len(watching.acknowledged.noted)} before")
            noted(metadata, error)

        producer.send(TOPIC, b"value", b"key", partition=1, timestamp_ms=TIME_MS, on_delivery=on_delivery)
        metadata, error = noted.next()
        assert (metadata.offset, error) == (0, None)
        assert watching.acknowledged.noted == [(metadata, None)]
        assert order == ["1 before"]
    assert watching.sent == [ProducerRecord(TOPIC, b"value", b"key", (), 1, TIME_MS)]
    (record,) = broker.records(TOPIC, 1)
    assert (record.value, record.headers) == (b"<value>", (("seen", b"1"),))
    producer.close()
    assert watching.closed_count == 1


def test_N02_interceptors_see_refused_records(broker: Broker) -> None:
    watching = Watching()
    with producing(broker, interceptor_classes=[watching], max_request_size=1000) as producer:
        with pytest.raises(RecordTooLargeError):
            producer.send(TOPIC, bytes(1000))
        with pytest.raises(RecordTooLargeError):
            producer.send(TOPIC, bytes(1000), partition=2)
    (first, error), (second, _) = watching.acknowledged.noted
    assert (first.topic, first.partition, second.partition) == (TOPIC, -1, 2)
    assert isinstance(error, RecordTooLargeError)


class Keeping(Interceptor):
    """Passes lists and bytearrays on, and keeps them."""

    def __init__(self) -> None:
        self.kept: list[ProducerRecord] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        headers = [(name, bytearray(value or b"")) for name, value in record.headers]
        made = record._replace(value=bytearray(record.value), key=bytearray(record.key), headers=headers)
        self.kept += [record, made]
        return made


@pytest.mark.parametrize("intercepted", [False, True])
def test_N02_changes_after_send_have_no_effect(broker: Broker, intercepted: bool) -> None:
    """Java makes headers read-only; here they are copied, and so are key and value."""
    keeping = Keeping()
    with producing(broker, linger_ms=600_000, interceptor_classes=[keeping] * intercepted) as producer:
        producer.partitions_for(TOPIC)
        value, key = bytearray(b"value"), bytearray(b"key")
        header = bytearray(b"header")
        headers: list[Any] = [("first", header), ["second", b"2"]]
        producer.send(TOPIC, value, key, headers=headers, partition=0)
        records: list[Any] = [ProducerRecord(TOPIC, value, key, headers), *keeping.kept]
        for record in records:
            for data in (record.value, record.key, record.headers[0][1]):
                data[:] = b"changed since then"
        headers[1][1] = b"3"
        for record in records:
            record.headers.append(("third", b"3"))
            record.headers[0] = ("changed", b"too")
        producer.flush(SECONDS)
    (sent,) = broker.records(TOPIC, 0)
    assert (sent.value, sent.key) == (b"value", b"key")
    assert sent.headers == (("first", b"header"), ("second", b"2"))


def test_interceptors_see_failed_records(broker: Broker) -> None:
    watching = Watching()
    with producing(broker, interceptor_classes=[watching], **ONCE) as producer:
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        delivery = producer.send(TOPIC, b"", partition=2)
        metadata, error = watching.acknowledged.next()
        assert (metadata.partition, metadata.offset) == (2, -1)
        assert error is delivery.exception(SECONDS)


def test_interceptors_do_not_hide_unobserved_failures(broker: Broker) -> None:
    with producing(broker, interceptor_classes=[Watching], **ONCE) as producer:
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        producer.send(TOPIC, b"")
        with pytest.raises(DeliveryError):
            producer.flush(SECONDS)


def test_interceptor_that_names_another_topic_sends_there(broker: Broker) -> None:
    class Redirecting(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(topic="other")

    broker.create_topic("other")
    with producing(broker, interceptor_classes=[Redirecting]) as producer:
        assert producer.send(TOPIC, b"").result(SECONDS).topic == "other"


@pytest.mark.parametrize("topic", [5, None, "\ud800"])
def test_interceptor_that_names_no_topic_harms_one_record(broker: Broker, topic: Any) -> None:
    class Breaking(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record if record.value == b"fine" else record._replace(topic=topic)

    with producing(broker, interceptor_classes=[Breaking]) as producer:
        with pytest.raises((TypeError, InvalidTopicError)):
            producer.send(TOPIC, b"")
        assert producer.send(TOPIC, b"fine").result(SECONDS).topic == TOPIC
