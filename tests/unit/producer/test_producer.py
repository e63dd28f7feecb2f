"""Producer: sends, their results, and refusals."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import pytest

import kbatch
from kbatch import (
    BufferExhaustedError,
    KafkaTimeoutError,
    PartialSendError,
    Producer,
    Record,
    RecordMetadata,
)
from kbatch.errors import (
    InvalidTopicError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from kbatch.interceptors import Interceptor
from kbatch.testing import Broker
from kbatch.waiting.deadline import Deadline
from tests.oracle.plain import CODECS
from tests.support.producing import (
    SECONDS,
    SECONDS_MS,
    TIME_MS,
    TOPIC,
    CallbackLog,
    metric,
    producing,
    requests_seen,
    values,
    within,
)
from tests.support.shells import new_producer

pytestmark = pytest.mark.usefixtures("shell")


TOPICS = {TOPIC: 3}


# Sends


def test_record_arrives_as_it_was_sent(broker: Broker, producer: Producer) -> None:
    headers = [("a", b"1"), ("a", b""), ("none", None)]
    noted = CallbackLog()
    delivery = producer.send(
        TOPIC, b"value", b"key", headers=headers, partition=2, timestamp_ms=TIME_MS, on_delivery=noted
    )
    metadata = delivery.result(SECONDS)
    assert metadata == RecordMetadata(TOPIC, 2, 0, TIME_MS, 3, 5)
    assert noted.next() == (metadata, None)
    (record,) = broker.records(TOPIC, 2)
    assert (record.key, record.value, record.timestamp_ms) == (b"key", b"value", TIME_MS)
    assert record.headers == tuple(headers)


@pytest.mark.parametrize("value", [None, b"", b"x", bytearray(b"xy"), memoryview(b"abc")[1:]])
def test_whatever_holds_bytes_is_sent_and_may_change_at_once(
    broker: Broker, producer: Producer, value: Any
) -> None:
    expected = None if value is None else bytes(value)
    delivery = producer.send(TOPIC, value, value, partition=0)
    if isinstance(value, bytearray):
        value[:] = b"__"
    assert delivery.result(SECONDS).serialized_value_size == (-1 if expected is None else len(expected))
    (record,) = broker.records(TOPIC, 0)
    assert (record.key, record.value) == (expected, expected)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_what_the_log_has(broker: Broker, codec: str) -> None:
    with producing(broker, compression_type=codec) as producer:
        producer.send(TOPIC, b"value " * 100, partition=0).result(SECONDS)
    (batch,) = broker.batches(TOPIC, 0)
    assert batch.compression == codec
    assert values(broker) == [b"value " * 100]


def test_order_of_a_partition_is_that_of_the_sends(broker: Broker) -> None:
    with producing(broker, batch_size=100) as producer:
        deliveries = [producer.send(TOPIC, b"%d" % number, partition=1) for number in range(500)]
        producer.flush(SECONDS)
        assert [delivery.result(0).offset for delivery in deliveries] == list(range(500))
    assert values(broker, 1) == [b"%d" % number for number in range(500)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks_say_what_is_waited_for(broker: Broker, acks: str) -> None:
    with producing(broker, acks=acks, enable_idempotence=False) as producer:
        seen = requests_seen(broker)
        metadata = producer.send(TOPIC, b"value", partition=0, timestamp_ms=TIME_MS).result(SECONDS)
        assert seen.get(timeout=SECONDS).acks == {"0": 0, "1": 1, "all": -1}[acks]
        assert (metadata.offset, metadata.timestamp_ms) == (-1 if acks == "0" else 0, TIME_MS)
        producer.flush(SECONDS)


def test_acks_0_reports_no_failure(broker: Broker) -> None:
    with producing(broker, acks=0, enable_idempotence=False) as producer:
        seen = requests_seen(broker)
        producer.send(TOPIC, b"fine").result(SECONDS)
        seen.get(timeout=SECONDS)
        broker.stop()
        producer.purge(queued=True, in_flight=True)
        producer.flush(SECONDS)


# Which partition


def test_keys_have_the_partition_that_java_gives_them(producer: Producer) -> None:
    for number in range(50):
        key = b"key-%d" % number
        assert producer.send(TOPIC, b"", key).result(SECONDS).partition == kbatch.partition_for_key(key, 3)


def test_records_without_key_share_a_batch(broker: Broker) -> None:
    with producing(broker, linger_ms=60_000) as producer:
        deliveries = producer.send_many(TOPIC, [(None, b"%d" % number) for number in range(100)])
        producer.flush(SECONDS)
    assert len({delivery.result().partition for delivery in deliveries}) == 1
    assert len(broker.batches(TOPIC)) == 1


def test_ignored_keys_share_it_too(broker: Broker) -> None:
    with producing(broker, linger_ms=60_000, partitioner_ignore_keys=True) as producer:
        deliveries = producer.send_many(TOPIC, [(b"%d" % number, b"") for number in range(100)])
        producer.flush(SECONDS)
    assert len({delivery.result().partition for delivery in deliveries}) == 1


def test_custom_partitioner_is_called(broker: Broker) -> None:
    asked: list[Any] = []

    def last(topic: str, key: bytes | None, value: bytes | None, count: int, available: Sequence[int]) -> int:
        asked.append((topic, key, value, count, sorted(available)))
        return count - 1

    with producing(broker, partitioner_class=last) as producer:
        assert producer.send(TOPIC, b"value", b"key").result(SECONDS).partition == 2
        assert producer.send(TOPIC, b"value", b"key", partition=0).result(SECONDS).partition == 0
    assert asked == [(TOPIC, b"key", b"value", 3, [0, 1, 2])]


def test_what_a_partitioner_raises_comes_out_of_send(broker: Broker) -> None:
    with producing(broker, partitioner_class=lambda *_: 1 // 0) as producer:
        with pytest.raises(ZeroDivisionError):
            producer.send(TOPIC, b"")
        assert producer.send(TOPIC, b"", partition=0).result(SECONDS).offset == 0


def test_N01_partition_that_does_not_exist_is_waited_for(broker: Broker) -> None:
    noted = pytest.raises(KafkaTimeoutError, match=r"topic events has no partition 3 .*=1000: it has 3")
    with producing(broker, [TOPIC], max_block_ms=1000) as producer, noted:
        producer.send(TOPIC, b"", partition=3)
    with producing(broker, max_block_ms=SECONDS_MS, metadata_max_age_ms=100) as producer:
        producer.partitions_for(TOPIC)
        seen = requests_seen(broker, "Metadata")
        sending = within(lambda: producer.send(TOPIC, b"", partition=3).result(SECONDS))
        seen.get(timeout=SECONDS)
        broker.create_partitions(TOPIC, 4)
        assert sending.result(SECONDS).partition == 3


@pytest.mark.parametrize(
    ("partition", "error"), [(-1, ValueError), (2**31, ValueError), ("1", TypeError), (1.0, TypeError)]
)
@pytest.mark.parametrize("interceptors", [[], [Interceptor]], ids=["", "intercepted"])
def test_partition_that_is_none_is_refused(
    broker: Broker, partition: Any, error: type[Exception], interceptors: list[Any]
) -> None:
    with (
        producing(broker, interceptor_classes=interceptors) as producer,
        pytest.raises(error, match="partition"),
    ):
        producer.send(TOPIC, b"", partition=partition)


def test_partitions_for_a_topic(broker: Broker, producer: Producer) -> None:
    partitions = producer.partitions_for(TOPIC)
    assert [(each.partition, each.leader) for each in partitions] == [(0, 0), (1, 0), (2, 0)]
    with producing(broker, max_block_ms=100) as other, pytest.raises(KafkaTimeoutError):
        other.partitions_for("unknown")


# Topics


def test_N01_unknown_topic_is_waited_for_once(broker: Broker) -> None:
    with producing(broker, max_block_ms=1500, retry_backoff_ms=10, retry_backoff_max_ms=20) as producer:
        with pytest.raises(
            KafkaTimeoutError, match=r"no metadata of topic other .*=1500: brokers answer, but know no such"
        ) as raised:
            producer.send("other", b"")
        assert raised.value.reason == "brokers answer, but know no such topic"
        with pytest.raises(UnknownTopicOrPartitionError):  # which is remembered
            for _ in range(100):
                assert producer.try_send("other", b"") is None
                broker.requests("Metadata")
                try:
                    producer.send("other", b"")
                except KafkaTimeoutError:
                    continue
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.try_send("other", b"")


class Late:
    """The condition of a wait whose time is over before it is checked."""

    def __init__(self, producer: Any) -> None:
        self._changed = producer._runtime.changed
        self._engine = producer._runtime.engine
        self.notify = self._changed.notify

    async def wait_until(self, is_so: Callable[[], bool], deadline: Deadline) -> bool:
        def is_given_up() -> bool:
            return self._engine.topic_error("other") is not None

        assert await self._changed.wait_until(is_given_up, Deadline(SECONDS))
        return is_so()


def test_N01_wait_past_its_deadline_raises_however_late(broker: Broker) -> None:
    with producing(broker, max_block_ms=50, retry_backoff_ms=10, retry_backoff_max_ms=20) as producer:
        waiting = getattr(producer, "_producer", producer)
        waiting._runtime.changed = Late(waiting)
        with pytest.raises(KafkaTimeoutError, match=r"no metadata of topic other after max.block.ms=50"):
            producer.send("other", b"")
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send("other", b"")


def test_N01_topic_that_is_made_meanwhile_is_found(broker: Broker, producer: Producer) -> None:
    seen = requests_seen(broker, "Metadata")
    sending = within(lambda: producer.send("later", b"value").result(SECONDS))
    while all(topic.name != "later" for topic in seen.get(timeout=SECONDS).topics):
        pass
    broker.create_topic("later")
    assert sending.result(SECONDS).topic == "later"


def test_N01_invalid_topic_is_refused_at_once(producer: Producer) -> None:
    with pytest.raises(InvalidTopicError, match=r"topic 'no topic': .*; names are 1 to 249 of A-Z"):
        producer.send("no topic", b"")
    with pytest.raises(InvalidTopicError, match=r"'x{200,260}'\.\.\.: "):
        producer.send("x" * 30_000, b"")


@pytest.mark.parametrize("topic", ["\ud800", "x" * 40_000, "ü" * 20_000])
def test_topic_too_long_for_a_request_is_refused_harmlessly(producer: Producer, topic: str) -> None:
    for call in (producer.send, producer.try_send, producer.partitions_for):
        with pytest.raises(InvalidTopicError, match="topic must have"):
            call(topic)
    assert producer.send(TOPIC, b"").result(SECONDS).topic == TOPIC


def test_topic_may_be_a_member_of_an_enum(broker: Broker, producer: Producer) -> None:
    class Topics(StrEnum):
        EVENTS = TOPIC

    delivery = producer.send(Topics.EVENTS, b"")
    assert type(delivery.result(SECONDS).topic) is str
    assert len(producer.partitions_for(Topics.EVENTS)) == 3
    with producing(broker) as other:  # which does not know it yet
        assert len(other.partitions_for(Topics.EVENTS)) == 3


@pytest.mark.parametrize("topic", [None, 5, b"topic"])
def test_topic_that_is_no_str_is_refused(producer: Producer, topic: Any) -> None:
    for call in (producer.send, producer.try_send, producer.partitions_for):
        with pytest.raises(TypeError, match="topic"):
            call(topic)
    with pytest.raises((TypeError, PartialSendError), match="topic"):
        producer.send_many(topic, [(None, b"")])
    assert producer.send(TOPIC, b"").result(SECONDS).topic == TOPIC


def test_unreachable_servers_are_named_in_the_error() -> None:
    noted = pytest.raises(KafkaTimeoutError, match=r"max.block.ms=100: none of 127.0.0.1:1 has sent any")
    with new_producer(bootstrap_servers="127.0.0.1:1", max_block_ms=100) as producer, noted:
        producer.send(TOPIC, b"")


# Refusals


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"value": "text"}, TypeError, "configure a serializer"),
        ({"key": "text"}, TypeError, "key must be bytes-like"),
        ({"value": 5}, TypeError, "value must be bytes-like"),
        ({"headers": [("a", "b")]}, TypeError, "header"),
        ({"headers": [(b"a", b"b")]}, TypeError, "header"),
        ({"headers": {"a": b"b"}}, TypeError, "header"),
        ({"timestamp_ms": -2}, ValueError, "timestamp_ms"),
        ({"timestamp_ms": 1.5}, TypeError, "timestamp_ms"),
        ({"on_delivery": 5}, TypeError, "on_delivery must be callable"),
    ],
)
def test_N02_what_is_wrong_with_a_record_is_raised_by_send(
    broker: Broker, producer: Producer, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        producer.send(TOPIC, **arguments)
    producer.flush(SECONDS)
    assert values(broker) == []
    assert metric(producer, "record-error-total") == 1


def test_record_above_max_request_size_is_refused(broker: Broker) -> None:
    with producing(broker, max_request_size=1000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"more than max.request.size, which is 1000"):
            producer.send(TOPIC, bytes(1000))
        producer.send(TOPIC, bytes(900)).result(SECONDS)


def test_record_above_buffer_memory_is_refused_at_once(broker: Broker) -> None:
    noted = pytest.raises(RecordTooLargeError, match=r"more than buffer.memory, which is 20000")
    with producing(broker, buffer_memory=20_000, batch_size=1000, max_block_ms=2**63 - 1) as producer, noted:
        producer.send(TOPIC, bytes(20_000))


def test_record_that_the_broker_finds_too_large_fails(broker: Broker, producer: Producer) -> None:
    broker.create_topic("small", max_message_bytes=500)
    error = producer.send("small", bytes(1000)).exception(SECONDS)
    assert isinstance(error, RecordTooLargeError)
    assert (error.code, error.possibly_persisted) == (10, False)
    assert values(broker, topic="small") == []


def test_batch_that_the_broker_finds_too_large_comes_in_parts(broker: Broker) -> None:
    broker.create_topic("small", max_message_bytes=1000)
    with producing(broker, linger_ms=60_000) as producer:
        deliveries = [producer.send("small", b"%0100d" % number) for number in range(50)]
        producer.flush(SECONDS)
        assert [delivery.result(0).offset for delivery in deliveries] == list(range(50))
        assert metric(producer, "batch-split-total") > 0


def test_an_async_callback_is_reported_and_not_left_unawaited(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(metadata: object, error: object) -> None:
        raise AssertionError

    with producing(broker) as producer, warnings.catch_warnings(action="error"):
        producer.send(TOPIC, b"", on_delivery=never)
        producer.flush(SECONDS)
    assert "on_delivery must not be a coroutine function" in caplog.text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array(["a", "b"], dtype=object), "value must be bytes-like or None, got ndarray of objects"),
        (np.array(["2026-01-01"], dtype="datetime64[D]"), "value must be bytes-like or None, got ndarray: "),
        ("text", "value must be bytes-like or None, got str .encode it"),
    ],
    ids=["objects", "datetime64", "str"],
)
def test_a_value_that_has_no_bytes_is_refused(broker: Broker, value: object, message: str) -> None:
    with producing(broker) as producer:
        with pytest.raises(TypeError, match=message):
            producer.send(TOPIC, value)
        with pytest.raises(TypeError, match=r"headers must be a sequence of \(str, bytes"):
            producer.send(TOPIC, b"", headers=5)  # type: ignore[arg-type]
        assert producer.send(TOPIC, np.arange(3, dtype=">i4")).result(SECONDS).serialized_value_size == 12


# Serializers


def test_serializers_make_bytes_of_what_they_get(broker: Broker) -> None:
    def with_topic(topic: str, headers: Any, value: str) -> bytes:
        return f"{topic} {headers} {value}".encode()

    keys = {"key_serializer": "utf8", "value_serializer": with_topic}
    with producing(broker, **keys) as producer:
        partition = producer.send(TOPIC, "value", "ü", headers=[("h", b"")]).result(SECONDS).partition
        producer.send(TOPIC, None, None, partition=partition).result(SECONDS)
    first, second = broker.records(TOPIC)
    assert (first.key, first.value) == ("ü".encode(), b"events [('h', b'')] value")
    assert (second.key, second.value) == (None, None)
    assert partition == kbatch.partition_for_key("ü".encode(), 3)


@pytest.mark.parametrize(
    ("serializer", "error"), [(lambda value: 1 // 0, ZeroDivisionError), (lambda value: "text", TypeError)]
)
def test_what_a_serializer_raises_comes_out_of_send(
    broker: Broker, serializer: Any, error: type[Exception]
) -> None:
    with producing(broker, value_serializer=serializer) as producer:
        with pytest.raises(error):
            producer.send(TOPIC, b"value")
        with pytest.raises(PartialSendError) as partial:
            producer.send_many(TOPIC, [(b"key", None), (None, b"value")])
        assert (partial.value.index, type(partial.value.cause)) == (1, error)


# try_send, send_many


def test_try_send_never_waits(broker: Broker, producer: Producer) -> None:
    assert producer.try_send(TOPIC, b"early") is None
    producer.partitions_for(TOPIC)
    delivery = producer.try_send(TOPIC, b"value")
    assert delivery is not None
    delivery.result(SECONDS)
    assert producer.try_send(TOPIC, b"", partition=3) is None
    assert values(broker) == [b"value"]


def test_send_many_takes_what_encode_takes(broker: Broker, producer: Producer) -> None:
    records: list[Record[bytes] | tuple[Any, ...]] = [
        (b"a", b"1"),
        (b"a", b"2", [("h", None)]),
        (b"a", b"3", [], TIME_MS),
        Record(key=b"a", value=b"4", headers=[("h", b"x")], timestamp_ms=TIME_MS),
    ]
    deliveries = producer.send_many(TOPIC, iter(records))
    assert [delivery.result(SECONDS).offset for delivery in deliveries] == [0, 1, 2, 3]
    found = broker.records(TOPIC)
    assert [record.value for record in found] == [b"1", b"2", b"3", b"4"]
    assert [record.headers for record in found] == [(), (("h", None),), (), (("h", b"x"),)]
    assert [record.timestamp_ms for record in found[2:]] == [TIME_MS, TIME_MS]


@pytest.mark.parametrize("wrong", [(b"key",), [b"key", b"value"], (b"key", "text"), 5])
def test_send_many_says_how_far_it_came(broker: Broker, producer: Producer, wrong: Any) -> None:
    records: list[Any] = [(None, b"1"), (None, b"2"), wrong, (None, b"3")]
    with pytest.raises(PartialSendError, match="the record at index 2 was refused") as partial:
        producer.send_many(TOPIC, records)
    assert partial.value.index == 2
    assert isinstance(partial.value.cause, TypeError)
    assert [delivery.result(SECONDS).offset for delivery in partial.value.deliveries] == [0, 1]


def test_send_many_keeps_deliveries_when_its_records_raise(producer: Producer) -> None:
    def records() -> Iterator[tuple[None, bytes]]:
        yield None, b"1"
        raise ZeroDivisionError

    with pytest.raises(PartialSendError) as partial:
        producer.send_many(TOPIC, records())
    assert isinstance(partial.value.cause, ZeroDivisionError)
    assert partial.value.deliveries[0].result(SECONDS).offset == 0
    assert producer.send_many(TOPIC, []) == []


# Metrics


def test_metrics_move_under_javas_names(broker: Broker) -> None:
    with producing(broker, client_id="name", retry_backoff_ms=5, batch_size=100) as producer:
        tags = {metric.tags for metric in producer.metrics() if metric.group == "producer-metrics"}
        assert tags == {(("client-id", "name"),)}
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        for number in range(10):
            producer.send(TOPIC, b"%0100d" % number, partition=0).result(SECONDS)
        broker.throttle(0.05)
        producer.send(TOPIC, b"").result(SECONDS)
        producer.flush(SECONDS)
        # as in Java, a record that is sent again counts again
        expected = {"record-send-total": 12, "record-retry-total": 1, "record-error-total": 0}
        assert {name: metric(producer, name) for name in expected} == expected
        assert metric(producer, "record-send-total", "producer-topic-metrics") == 12
        assert metric(producer, "batch-size-max") > 100
        assert metric(producer, "produce-throttle-time-max") == 50
        assert metric(producer, "request-latency-max") > 0
        assert metric(producer, "flush-time-ns-total") > 0
        assert metric(producer, "metadata-wait-time-ns-total") > 0
        assert metric(producer, "buffer-available-bytes") == metric(producer, "buffer-total-bytes")
        assert metric(producer, "requests-in-flight") == 0
        assert not math.isnan(metric(producer, "record-queue-time-avg"))


# Numbers at their limits


@pytest.mark.parametrize(
    "keys",
    [
        {"max_block_ms": 2**63 - 1},
        {"delivery_timeout_ms": 2**31 - 1, "request_timeout_ms": 2**31 - 1, "linger_ms": 0},
        {"metadata_max_age_ms": 2**63 - 1, "metadata_max_idle_ms": 2**63 - 1},
        {"retry_backoff_ms": 2**63 - 1, "retry_backoff_max_ms": 2**63 - 1},
        {"reconnect_backoff_ms": 2**63 - 1, "reconnect_backoff_max_ms": 2**63 - 1},
        {"connections_max_idle_ms": 2**63 - 1},
        {"connections_max_idle_ms": -1},
        {"buffer_memory": 2**62},
        {"batch_size": 0},
        {"batch_size": 2**31 - 1, "max_request_size": 2**31 - 1, "buffer_memory": 2**33},
    ],
    ids=lambda keys: ",".join(keys),
)
def test_limits_of_the_configuration_are_taken(broker: Broker, keys: dict[str, Any]) -> None:
    with producing(broker, **keys) as producer:
        producer.send(TOPIC, b"value").result(SECONDS)
        producer.flush(math.inf)
        producer.send(TOPIC, b"value").result(math.inf)


def test_largest_max_block_waits_for_memory(broker: Broker) -> None:
    with producing(broker, max_block_ms=2**63 - 1, buffer_memory=20_000, batch_size=1000) as producer:
        deliveries = [producer.send(TOPIC, bytes(1000)) for _ in range(200)]
        assert [delivery.exception(SECONDS) for delivery in deliveries] == [None] * 200


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(BufferExhaustedError, TimeoutError)
    assert issubclass(KafkaTimeoutError, TimeoutError)
    assert logging.getLogger("kbatch").level == logging.NOTSET
