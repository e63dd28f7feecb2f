"""send_table: rows count in the metrics as the same records do that are sent one by one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kbatch
from kbatch.errors import KafkaError
from kbatch.interceptors import Interceptor
from kbatch.testing import Broker
from tests.support.producing import (
    LINGERING,
    ONCE,
    SECONDS,
    SECONDS_MS,
    TIME_MS,
    metric,
    producing,
    until,
    waits_for_memory,
    within,
)

pytestmark = pytest.mark.usefixtures("shell")

COUNTED = ("record-send-total", "record-error-total", "record-retry-total")
VALUES = [b"a" * (3000 if row % 7 == 3 else 20) for row in range(100)]


TOPICS = {"one": 1}


def send_rows(producer: Any, topic: str) -> None:
    with suppress(KafkaError):
        producer.send_table(topic, pa.table({"value": VALUES}))


def send_records(producer: Any, topic: str) -> None:
    for value in VALUES:
        with suppress(KafkaError):
            producer.send(topic, value, timestamp_ms=TIME_MS)  # one for all, as rows of a block have


def counted(
    producing_on: Broker, sending: Callable[[Any, str], None], topic: str, errors: list[str], **keys: Any
) -> dict[Any, float]:
    with producing(producing_on, **LINGERING, **keys) as producer:
        with suppress(KafkaError):
            producer.partitions_for(topic)
        for error in errors:
            producing_on.fail_next("Produce", error)
        sending(producer, topic)
        with suppress(kbatch.DeliveryError):
            producer.flush(SECONDS)
        return {
            (name.name, name.group): value
            for name, value in producer.metrics().items()
            if name.name in COUNTED or (name.group == "producer-topic-metrics" and "total" in name.name)
        }


@pytest.mark.parametrize(
    ("topic", "errors", "keys"),
    [
        ("one", [], {}),
        ("one", [], {"max_request_size": 2500}),
        ("one", ["NOT_ENOUGH_REPLICAS"], {"max_request_size": 2500}),
        ("one", ["NOT_ENOUGH_REPLICAS"], {"max_request_size": 2500} | ONCE),
        ("nowhere", [], {"max_block_ms": 30}),
    ],
    ids=["sent", "too large", "retried", "failed", "unknown topic"],
)
def test_N02_rows_count_as_records_do(
    broker: Broker, topic: str, errors: list[str], keys: dict[str, Any]
) -> None:
    keys = {"batch_size": 1 << 20} | keys
    by_table = counted(broker, send_rows, topic, errors, **keys)
    by_record = counted(broker, send_records, topic, errors, **keys)
    assert by_table == by_record
    assert len(by_record) > len(COUNTED) or topic == "nowhere"
    assert sum(by_record[name, "producer-metrics"] for name in COUNTED) >= 100


def test_rows_behind_a_stop_and_of_refused_topics_count_once(broker: Broker) -> None:
    broker.hold_high_watermark("one", 0)
    to = ["nowhere", "one"] * 500
    data = pa.table({"value": ["v" * 500] * 1000, "to": to})
    keys = {"buffer_memory": 24_000, "batch_size": 1000, "max_block_ms": 300, "retries": 0}
    with producing(broker, **keys) as producer:
        until(lambda: not isinstance(attempt(lambda: producer.partitions_for("one")), KafkaError))
        report = producer.send_table(None, data, topic_column="to").report
        assert metric(producer, "record-error-total") == report.failed_rows < 1000


def attempt(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except KafkaError as error:
        return error


def test_a_table_that_is_refused_whole_is_counted_and_told_of(broker: Broker) -> None:
    told: list[Any] = []

    class Listening(Interceptor):
        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            told.append((metadata, error))

    columns = {"value": np.array([b"a", b"b"])}
    with producing(broker, max_block_ms=SECONDS_MS, interceptor_classes=[Listening()]) as producer:
        early = pa.table({"value": ["v"] * 2, "timestamp": [-5] * 2})
        for data in (columns, pa.table({"value": [1, 2]}), early):
            with pytest.raises((TypeError, ValueError)) as raised:
                producer.send_table("one", data, key="none" if data is columns else "key")
            assert told[-2:] == [(kbatch.RecordMetadata("one", -1), raised.value)] * 2
        assert metric(producer, "record-error-total") == len(told) == 6
        producer.close()
        with pytest.raises(KafkaError):
            producer.send_table("one", early)
        assert len(told) == 8


def test_what_close_cuts_short_counts_whole(broker: Broker) -> None:
    broker.hold_high_watermark("one", 0)
    keys = {"buffer_memory": 24_000, "batch_size": 1000, "max_block_ms": SECONDS_MS}
    with producing(broker, **keys) as producer:
        sending = within(lambda: producer.send_table("one", pa.table({"value": ["v" * 500] * 300})))
        until(waits_for_memory(producer))
        with suppress(kbatch.DeliveryError):
            producer.close(timeout=0)
        assert sending.result(SECONDS).result(SECONDS).failed_rows == 300
        unsent = sending.result(SECONDS).report._outcome.unsent_count
        assert metric(producer, "record-error-total") >= unsent > 200
