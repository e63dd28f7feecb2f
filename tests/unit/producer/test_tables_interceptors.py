"""send_table: what interceptors see of its rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kbatch import DeliveryError, RecordMetadata
from kbatch.errors import NotEnoughReplicasError, ProducerClosedError, RecordTooLargeError
from kbatch.interceptors import Interceptor
from kbatch.producer.tables import CALLBACK_ROWS
from kbatch.testing import Broker
from tests.support.patience import until
from tests.support.producing import (
    LINGERING,
    ONCE,
    SECONDS,
    SECONDS_MS,
    TIME_MS,
    CallbackArguments,
    producing,
    waits_for_memory,
    within,
)

pytestmark = pytest.mark.usefixtures("shell")


TOPICS = {"one": 1, "two": 2}


class Listening(Interceptor):
    """An interceptor with nothing but an on_acknowledgement."""

    def __init__(self) -> None:
        self.noted: list[CallbackArguments] = []
        self.threads: set[str] = set()

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.noted.append((metadata, error))
        self.threads.add(threading.current_thread().name)


class Failing(Interceptor):
    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        raise ZeroDivisionError


def numbered(count: int, width: int = 4) -> pa.Table:
    keys = [None if row % 3 == 0 else "k" * (row % 3) for row in range(count)]
    values = ["v" * (width + row % 5) for row in range(count)]
    return pa.table({"key": keys, "value": values, "timestamp": [TIME_MS + row for row in range(count)]})


def records_of(data: pa.Table) -> Iterator[dict[str, Any]]:
    for row in data.to_pylist():
        yield {
            "value": row["value"].encode(),
            "key": row["key"] and row["key"].encode(),
            "timestamp_ms": row["timestamp"],
        }


def test_interceptors_see_rows_as_records(broker: Broker) -> None:
    data = numbered(500)
    by_table, by_record = Listening(), Listening()
    with producing(broker, interceptor_classes=[by_table], **LINGERING) as producer:
        producer.send_table("one", data)
        producer.flush(SECONDS)
    broker.delete_topic("one")
    broker.create_topic("one", 1)
    with producing(broker, interceptor_classes=[by_record], **LINGERING) as producer:
        for record in records_of(data):
            producer.send("one", **record)
        producer.flush(SECONDS)
    assert by_table.noted == by_record.noted
    assert [metadata.offset for metadata, _ in by_table.noted] == list(range(500))
    assert {metadata.serialized_key_size for metadata, _ in by_table.noted} == {-1, 1, 2}


def test_interceptors_see_rows_in_order_before_the_report(broker: Broker) -> None:
    listening = Listening()
    counts: list[int] = []
    with producing(broker, interceptor_classes=[Failing, listening], batch_size=1000) as producer:
        delivery = producer.send_table(
            "two",
            numbered(3000),
            on_progress=lambda report: counts.append(report.done_rows - len(listening.noted)),
            on_delivery=lambda report: counts.append(report.row_count - len(listening.noted)),
        )
        producer.flush(SECONDS)
        report = delivery.result(0)
        assert counts[-1] == 0
        for partition in (0, 1):
            offsets = [m.offset for m, _ in listening.noted if m.partition == partition]
            assert offsets == report.offsets[report.partitions == partition].tolist()
        assert len(listening.threads) == 1
        assert threading.current_thread().name not in listening.threads


def test_rows_of_tables_and_records_in_one_batch(broker: Broker) -> None:
    listening = Listening()
    with producing(broker, interceptor_classes=[listening], **LINGERING) as producer:
        producer.partitions_for("one")
        for record in range(3):
            producer.send("one", b"%d" % record, timestamp_ms=record)
            producer.send_table("one", numbered(40))
        producer.flush(SECONDS)
        assert sorted(m.offset for m, _ in listening.noted) == list(range(123))
        assert not any(error for _, error in listening.noted)
        logged = {record.offset: record for record in broker.records("one", 0)}
        for metadata, _ in listening.noted:
            found = logged[metadata.offset]
            assert metadata.timestamp_ms == found.timestamp_ms
            assert metadata.serialized_value_size == len(found.value or b"")


def test_each_part_of_a_split_batch_reports_its_rows(broker: Broker) -> None:
    broker.create_topic("small", 1, **{"max.message.bytes": 600})
    listening = Listening()
    keys = {"batch_size": 4000, **LINGERING, "interceptor_classes": [listening]}
    with producing(broker, **keys) as producer:
        producer.partitions_for("small")
        producer.send_table("small", numbered(100, 20))
        producer.flush(SECONDS)
        assert [m.offset for m, _ in listening.noted] == list(range(100))
        assert [m.timestamp_ms for m, _ in listening.noted] == [TIME_MS + row for row in range(100)]
        assert len(broker.batches("small")) > 1


def test_failed_batch_is_reported_row_by_row(broker: Broker) -> None:
    listening = Listening()
    with producing(broker, interceptor_classes=[listening], **LINGERING, **ONCE) as producer:
        producer.partitions_for("one")
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        report = producer.send_table("one", numbered(20), on_delivery=lambda report: None).report
        producer.flush(SECONDS)
        assert [m for m, _ in listening.noted] == [RecordMetadata("one", 0)] * 20
        assert [e for _, e in listening.noted] == [report.errors[row] for row in range(20)]
        assert isinstance(report.errors[0], NotEnoughReplicasError)


def test_interceptors_see_refused_rows_before_the_report(broker: Broker) -> None:
    data = pa.table({"value": ["a" * 5000, "b", "c" * 6000, "d"], "to": ["one", "one", None, "nowhere"]})
    listening = Listening()
    noted: list[int] = []
    keys = {"interceptor_classes": [listening], "max_request_size": 4000, "max_block_ms": 300}
    with producing(broker, ["one", "two"], **keys) as producer:
        delivery = producer.send_table(
            "two", data, topic_column="to", on_delivery=lambda report: noted.append(len(listening.noted))
        )
        producer.flush(SECONDS)
        assert noted == [4]
        errors = delivery.result(0).errors
        kinds = sorted((m.topic, m.partition, m.offset, type(e).__name__) for m, e in listening.noted)
        refused = type(errors[3]).__name__
        assert kinds == sorted(
            [
                ("nowhere", -1, -1, refused),
                ("one", 0, -1, RecordTooLargeError.__name__),
                ("one", 0, 0, "NoneType"),
                ("two", -1, -1, RecordTooLargeError.__name__),
            ]
        )


def test_interceptors_see_rows_after_a_stop(broker: Broker) -> None:
    broker.hold_high_watermark("one", 0)
    listening = Listening()
    rows = 3 * CALLBACK_ROWS + 7
    keys = {"interceptor_classes": [listening], "buffer_memory": 24_000, "batch_size": 1000}
    with producing(broker, **keys, max_block_ms=SECONDS_MS) as producer:
        sending = within(lambda: producer.send_table("one", numbered(rows, 500)))
        until(waits_for_memory(producer))
        with pytest.raises(DeliveryError):
            producer.close(timeout=0)
        report = sending.result(SECONDS).result(SECONDS)
        until(lambda: len(listening.noted) >= rows)
        assert len(listening.noted) == rows == report.failed_rows
        assert {type(e) for _, e in listening.noted} == {ProducerClosedError}
        assert {m.offset for m, _ in listening.noted} == {-1}


def test_what_ends_the_thread_costs_no_row(broker: Broker) -> None:
    class Exiting(Listening):
        def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
            super().on_acknowledgement(metadata, error)
            if metadata.offset == 3:
                raise GeneratorExit

    listening = Exiting()
    with producing(broker, interceptor_classes=[listening], **LINGERING) as producer:
        producer.send_table("one", numbered(10))
        producer.flush(SECONDS)
        assert [m.offset for m, _ in listening.noted] == list(range(10))


def test_without_an_on_acknowledgement_nothing_is_kept_for_it(broker: Broker) -> None:
    class SeesTables(Interceptor):
        def on_send_table(self, topic: str | None, table: Any) -> Any:
            return table

    def charged(*interceptors: Interceptor) -> int:
        keys = {"buffer_memory": 1 << 24, **LINGERING, "batch_size": 1 << 20}
        with producing(broker, interceptor_classes=interceptors, **keys) as producer:
            memory = producer._accumulator.memory
            producer.send_table("one", numbered(5000))
            return int(memory.total_memory - memory.available)

    assert charged() == charged(SeesTables())
    assert charged(Listening()) >= charged() + 5000 * 16


def test_memory_that_was_kept_for_it_comes_back(broker: Broker) -> None:
    listening = Listening()
    with producing(broker, interceptor_classes=[listening], max_request_size=700) as producer:
        producer.send_table("one", numbered(3000, 500)).result(SECONDS)
        producer.flush(SECONDS)
        memory = producer._accumulator.memory
        until(lambda: memory.available == memory.total_memory)
        assert len(listening.noted) == 3000
