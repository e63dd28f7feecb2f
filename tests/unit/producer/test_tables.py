"""send_table: rows to a broker, and the report of each row's outcome."""

from __future__ import annotations

import gc
import pickle
import resource
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import kbatch
from kbatch import BufferExhaustedError, DeliveryError, IllegalStateError, KafkaTimeoutError
from kbatch.errors import (
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    NotEnoughReplicasError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from kbatch.errors.rows import InvalidRowError
from kbatch.interceptors import Interceptor
from kbatch.producer.tables import TableDelivery, TableReport
from kbatch.testing import Broker
from tests.oracle import plain, tables
from tests.support.patience import until
from tests.support.producing import (
    LINGERING,
    ONCE,
    SECONDS,
    SECONDS_MS,
    TIME_MS,
    TOPIC,
    metric,
    producing,
    values,
    waits_for_memory,
    within,
)

pytestmark = pytest.mark.usefixtures("shell")

PARTITIONS = 4
# One request a batch, each answered before the next, so that faults hit the batches in order.
ONE_BY_ONE: dict[str, Any] = {
    "max_in_flight_requests_per_connection": 1,
    "enable_idempotence": False,
    "retries": 0,
    "batch_size": 1000,
}
KINDS = (
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(4),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.large_binary()),
)
ITEM = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = (pa.list_(ITEM), pa.large_list(ITEM), pa.map_(pa.string(), pa.binary()))


TWO_PARTITIONS = 2
TOPICS = {TOPIC: PARTITIONS, "one": 1, "two": TWO_PARTITIONS}


def numbered(count: int, size: int = 0) -> pa.Table:
    return pa.table({"value": [b"%06d" % row + bytes(size) for row in range(count)]})


def read(broker: Broker, topic: str = TOPIC) -> dict[tuple[int, int], Any]:
    return {
        (partition, record.offset): record
        for partition in range(PARTITIONS if topic == TOPIC else 1)
        for record in broker.records(topic, partition)
    }


def places(report: TableReport) -> list[tuple[int, int]]:
    return list(zip(report.partitions.tolist(), report.offsets.tolist(), strict=True))


def check(broker: Broker, report: TableReport, rows: list[plain.Row], topic: str = TOPIC) -> None:
    """Check that every row is where the report says, and in the order of the table."""
    log = read(broker, topic)
    found = [log[place] for place in places(report)]
    assert [(record.key, record.value, record.headers, record.timestamp_ms) for record in found] == rows
    assert not report.errors and report.done_rows == report.row_count == len(rows)
    for partition in range(PARTITIONS):
        assert (np.diff(report.offsets[report.partitions == partition]) > 0).all()


# Records of rows


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_keys_and_values_of_every_type(broker: Broker, kind: pa.DataType) -> None:
    contents: list[Any] = [b"%04d" % row if row % 3 else None for row in range(50)]
    rows: list[plain.Row] = [
        (key, value, (), 1000) for key, value in zip(contents, reversed(contents), strict=True)
    ]
    with producing(broker) as producer:
        report = producer.send_table(TOPIC, tables.table_of(rows, key=kind, value=kind)).result(SECONDS)
        check(broker, report, rows)
    for row, partition in zip(rows, report.partitions, strict=True):
        if row[0] is not None:
            assert plain.partition_for_key(row[0], PARTITIONS) == partition


@pytest.mark.parametrize("kind", HEADERS, ids=str)
def test_headers_and_timestamps(broker: Broker, kind: pa.DataType) -> None:
    headers: tuple[Any, ...] = (("trace", b"1"), ("trace", None), ("größe", b""))
    rows: list[plain.Row] = [(b"k%d" % row, b"v", headers[: row % 4], row * 10**9) for row in range(40)]
    with producing(broker, compression_type="lz4") as producer:
        data = tables.table_of(rows, headers=kind, timestamp=pa.timestamp("ms"))
        check(broker, producer.send_table(TOPIC, data).result(SECONDS), rows)


def test_what_a_column_leaves_out(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no headers, the time of the call; a null value is a tombstone."""
    with producing(broker) as producer:
        monkeypatch.setattr("time.time", lambda: 1234.5)
        report = producer.send_table("one", pa.table({"value": pa.array([b"a", None])})).result(SECONDS)
        check(broker, report, [(None, b"a", (), 1234500), (None, None, (), 1234500)], "one")


def test_columns_of_other_names_and_those_that_must_be_there(broker: Broker) -> None:
    data = pa.table({"id": ["a"], "payload": ["b"], "at": [5], "where": pa.array([3], pa.int32())})
    names: Any = {"key": "id", "value": "payload", "timestamp": "at", "partition": "where"}
    with producing(broker) as producer:
        check(broker, producer.send_table(TOPIC, data, **names).result(SECONDS), [(b"a", b"b", (), 5)])
        assert values(broker, 3) == [b"b"]
        with pytest.raises(ValueError, match=r"there is no column 'value' \(the value\); the columns are id"):
            producer.send_table(TOPIC, data)
        with pytest.raises(ValueError, match=r"there is no column 'keys' \(the key\)"):
            producer.send_table(TOPIC, data, key="keys", value="payload")


def test_numpy_columns_and_polars(broker: Broker) -> None:
    with producing(broker) as producer:
        columns = {"key": np.array([b"a", b"b"]), "value": np.array([[1, 2], [3, 4]], np.uint8)}
        report = producer.send_table(TOPIC, columns).result(SECONDS)
        assert [read(broker)[place].value for place in places(report)] == [b"\1\2", b"\3\4"]
        frame = pl.DataFrame({"key": ["x", None], "value": ["y", "z"]})
        report = producer.send_table(TOPIC, frame).result(SECONDS)
        assert [read(broker)[place].value for place in places(report)] == [b"y", b"z"]


def test_no_rows(broker: Broker) -> None:
    noted: list[TableReport] = []
    with producing(broker) as producer:
        report = producer.send_table(TOPIC, numbered(0), on_delivery=noted.append).result(SECONDS)
        assert (report.row_count, report.partitions.tolist(), dict(report.errors)) == (0, [], {})
        producer.flush(SECONDS)
        assert noted == [report]


# Partitions of rows


def test_a_named_partition_goes_before_the_key(broker: Broker) -> None:
    named: list[Any] = [row % 3 if row % 2 else None for row in range(60)]
    data = pa.table({"key": [b"k%d" % row for row in range(60)], "value": numbered(60)["value"]})
    data = data.append_column("partition", pa.array(named, pa.int32()))
    with producing(broker) as producer:
        report = producer.send_table(TOPIC, data).result(SECONDS)
    assert report.partitions.tolist() == [
        plain.partition_for_key(b"k%d" % row, PARTITIONS) if name is None else name
        for row, name in enumerate(named)
    ]
    assert report.partitions.dtype == np.int32
    assert report.offsets.dtype == np.int64
    assert report.error_codes.dtype == np.int16


def test_rows_without_a_key_stick_to_a_partition_for_a_batch(broker: Broker) -> None:
    with producing(broker, batch_size=1000, linger_ms=1000) as producer:
        report = producer.send_table(TOPIC, numbered(3000)).result(SECONDS)
        turns = np.count_nonzero(np.diff(report.partitions))
        assert 5 < turns < 60 and set(report.partitions.tolist()) == set(range(PARTITIONS))
        (time_ms,) = {record.timestamp_ms for record in broker.records(TOPIC)}
        assert time_ms is not None
        check(broker, report, [(None, b"%06d" % row, (), time_ms) for row in range(3000)])


def test_partitioner_class_sees_no_tables(broker: Broker) -> None:
    with producing(broker, partitioner_class="org.apache.kafka.clients.producer.RoundRobinPartitioner") as p:
        with pytest.raises(ValueError, match=r"partitioner.class cannot choose for rows .*'partition'"):
            p.send_table(TOPIC, numbered(1))
        data = numbered(2).append_column("partition", pa.array([1, None], pa.int32()))
        with pytest.raises(ValueError, match=r"'partition', row 1: is null, which partitioner.class does"):
            p.send_table(TOPIC, data)
        assert p.send_table(TOPIC, data.slice(0, 1)).result(SECONDS).partitions.tolist() == [1]


def test_order_against_send_from_the_same_thread(broker: Broker) -> None:
    """Rows and records share the same open batches."""
    with producing(broker, linger_ms=1000) as producer:
        producer.send("one", b"first")
        delivery = producer.send_table("one", numbered(3))
        last = producer.send("one", b"last")
        producer.flush(SECONDS)
        assert values(broker, topic="one") == [b"first", b"000000", b"000001", b"000002", b"last"]
        assert len(broker.batches("one")) == 1
        assert delivery.result(0).offsets.tolist() == [1, 2, 3]
        assert last.result(0).offset == 4


# Amounts


def test_a_table_larger_than_memory_waits_for_it(broker: Broker) -> None:
    memory = 24_000
    broker.hold_high_watermark("one", 0)
    with producing(broker, buffer_memory=memory, batch_size=1000, max_block_ms=SECONDS_MS) as producer:
        producer.partitions_for("one")
        sending = within(lambda: producer.send_table("one", numbered(300, 500)))
        until(waits_for_memory(producer))
        assert not sending.done()
        broker.hold_high_watermark("one", 0, False)
        report = sending.result(SECONDS).result(SECONDS)
        assert report.offsets.tolist() == list(range(300))
        assert metric(producer, "buffer-available-bytes") == memory


def test_a_reader_is_pulled_no_further_than_rows_are_accepted(broker: Broker) -> None:
    pulled: list[int] = []
    batch = numbered(10, 500).to_batches()[0]

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(50):
            pulled.append(number)
            yield batch

    broker.hold_high_watermark("one", 0)
    with producing(broker, buffer_memory=40_000, batch_size=1000, max_block_ms=SECONDS_MS) as producer:
        producer.partitions_for("one")
        reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
        sending = within(lambda: producer.send_table("one", reader))
        until(waits_for_memory(producer))
        assert 2 <= len(pulled) <= 5
        broker.hold_high_watermark("one", 0, False)
        assert sending.result(SECONDS).result(SECONDS).row_count == 500
        assert values(broker, topic="one") == batch["value"].to_pylist() * 50


def test_stopped_table_fails_the_rest_and_sends_accepted_rows(broker: Broker) -> None:
    broker.hold_high_watermark("one", 0)
    with producing(broker, ["one"], buffer_memory=24_000, batch_size=10000, max_block_ms=500) as producer:
        delivery = producer.send_table("one", numbered(300, 500).to_reader(max_chunksize=50))
        assert not delivery.done()
        assert delivery.report.failed_rows > 200
        broker.hold_high_watermark("one", 0, False)
        report = delivery.result(SECONDS)
        accepted = report.row_count - report.failed_rows
        assert 0 < accepted < 100 and report.row_count == 300
        assert values(broker, topic="one") == numbered(accepted, 500)["value"].to_pylist()
        assert report.offsets.tolist() == [*range(accepted), *[-1] * (300 - accepted)]
        assert list(report.errors) == list(range(accepted, 300))
        assert {type(error) for error in report.errors.values()} == {BufferExhaustedError}
        assert set(report.error_codes[accepted:].tolist()) == {-1}
        assert accepted - 1 not in report.errors and 300 not in report.errors


def test_memory_is_charged_by_the_batch_and_given_back(broker: Broker) -> None:
    broker.hold_high_watermark("one", 0)
    with producing(broker, buffer_memory=1 << 20, batch_size=100_000, linger_ms=0) as producer:
        memory = producer._accumulator.memory
        delivery = producer.send_table("one", numbered(2000))
        charged = memory.total_memory - memory.available
        assert 2000 * (4 + 14) < charged < 2000 * (8 + 14) + 40_000
        broker.hold_high_watermark("one", 0, False)
        delivery.result(SECONDS)
        until(lambda: memory.available == memory.total_memory)


# Failures


def test_nothing_is_accepted_of_what_cannot_be_sent(broker: Broker) -> None:
    data = numbered(3).append_column("partition", pa.array([0, PARTITIONS, 1], pa.int32()))
    with producing(broker, [TOPIC], max_block_ms=1000) as producer:
        with pytest.raises(InvalidRowError, match="column 'partition', row 1: partition 4 is") as raised:
            producer.send_table(TOPIC, data)
        assert raised.value.row == pickle.loads(pickle.dumps(raised.value)).row == 1
        with pytest.raises(TypeError, match="column 'value' must be binary"):
            producer.send_table(TOPIC, pa.table({"value": [1]}))
        with pytest.raises(TypeError, match=r"data must have __arrow_c_stream__"):
            producer.send_table(TOPIC, [1])
        with pytest.raises(TypeError, match=r"on_delivery must be callable as on_delivery\(report\)"):
            producer.send_table(TOPIC, numbered(1), on_delivery=1)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="on_progress must be callable"):
            producer.send_table(TOPIC, numbered(1), on_progress=1)  # type: ignore[arg-type]
        with pytest.raises((UnknownTopicOrPartitionError, KafkaTimeoutError)):
            producer.send_table("nowhere", numbered(1))
        producer.flush(SECONDS)
        assert values(broker) == []
    with pytest.raises(ProducerClosedError):
        producer.send_table(TOPIC, numbered(1))


def test_call_that_raises_runs_no_callback(broker: Broker) -> None:
    noted: list[Any] = []
    data = pa.table({"value": ["v"], "timestamp": [-5]})
    with producing(broker) as producer:
        with pytest.raises(ValueError, match="column 'timestamp', row 0: is before 1970"):
            producer.send_table(TOPIC, data, on_delivery=noted.append)
        producer.flush(SECONDS)
        assert noted == []


def test_faulty_row_after_accepted_ones_ends_the_table(broker: Broker) -> None:
    good = pa.table({"value": ["a", "b"], "timestamp": [1, 2]})
    bad = pa.table({"value": ["c", "d"], "timestamp": [3, -5]})
    with producing(broker) as producer:
        report = producer.send_table("one", pa.concat_tables([good, bad, good])).result(SECONDS)
        assert values(broker, topic="one") == [b"a", b"b"]
        assert report.offsets.tolist() == [0, 1, -1, -1, -1, -1]
        assert report.partitions.tolist() == [0, 0, -1, -1, -1, -1]
        error = report.errors[2]
        assert isinstance(error, SerializationError) and isinstance(error.__cause__, ValueError)
        assert error.row == 3
        assert "column 'timestamp', row 3: is before 1970" in str(error)
        assert len(report.errors) == 4


def test_a_stream_that_breaks_ends_the_table(broker: Broker) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield numbered(5).to_batches()[0]
        raise RuntimeError("the source is gone")

    with producing(broker) as producer:
        delivery = producer.send_table(
            "one", pa.RecordBatchReader.from_batches(numbered(0).schema, batches())
        )
        report = delivery.result(SECONDS)
        assert report.offsets.tolist() == [0, 1, 2, 3, 4]
        assert delivery.exception() is None


def test_a_row_beyond_max_request_size_fails_alone(broker: Broker) -> None:
    data = pa.table({"value": [b"a", bytes(5000), b"b", bytes(2000), b"c"]})
    with producing(broker, max_request_size=4000, buffer_memory=3000, batch_size=100) as producer:
        delivery = producer.send_table("one", data)
        report = delivery.result(SECONDS)
        assert values(broker, topic="one") == [b"a", b"b", b"c"]
        assert report.offsets.tolist() == [0, -1, 1, -1, 2]
        assert report.error_codes.tolist() == [0, 10, 0, 10, 0]
        assert all(isinstance(error, RecordTooLargeError) for error in report.errors.values())
        assert "takes up to 5086 bytes, more than max.request.size" in str(report.errors[1])
        assert "more than buffer.memory" in str(report.errors[3])
        failed = delivery.exception()
        assert isinstance(failed, DeliveryError)
        assert (failed.count, failed.first) == (2, report.errors[1])
        producer.flush(SECONDS)  # nothing that was accepted has failed


def test_batches_fail_and_others_do_not(broker: Broker) -> None:
    with producing(broker, **ONE_BY_ONE, linger_ms=1000) as producer:
        producer.partitions_for("one")
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        report = producer.send_table("one", numbered(300, 20)).result(SECONDS)
        failed = np.flatnonzero(report.error_codes)
        assert 0 < len(failed) < 100 and failed.tolist() == list(range(len(failed)))
        assert set(report.error_codes[failed].tolist()) == {ErrorCode.NOT_ENOUGH_REPLICAS}
        assert all(isinstance(report.errors[int(row)], NotEnoughReplicasError) for row in failed)
        assert not report.errors[0].possibly_persisted
        assert report.offsets[len(failed) :].tolist() == list(range(300 - len(failed)))
        assert values(broker, topic="one") == numbered(300, 20)["value"].to_pylist()[len(failed) :]
        producer.flush(SECONDS)  # result() was called


def test_rows_of_a_lost_answer_may_be_in_the_log(broker: Broker) -> None:
    with producing(broker, **ONE_BY_ONE, linger_ms=100) as producer:  # both rows in one batch
        producer.partitions_for("one")
        broker.drop_connection("Produce", when="after")
        report = producer.send_table("one", numbered(2)).result(SECONDS)
        assert report.errors[1].possibly_persisted
        assert report.offsets.tolist() == [-1, -1]


def test_oversized_batch_is_split_and_rows_keep_their_offsets(broker: Broker) -> None:
    broker.create_topic("small", 1, **{"max.message.bytes": 600})
    with producing(broker, batch_size=4000, linger_ms=1000) as producer:
        producer.send("small", b"other")
        delivery = producer.send_table("small", numbered(100, 20))
        producer.flush(SECONDS)
        report = delivery.result(0)
        assert report.offsets.tolist() == list(range(1, 101))
        assert metric(producer, "batch-split-total") > 0
        assert values(broker, topic="small")[1:] == numbered(100, 20)["value"].to_pylist()


def test_a_row_that_the_broker_refuses_has_an_error_of_its_own(broker: Broker) -> None:
    """KIP-467: a compacted topic takes no records without a key."""
    broker.create_topic("compacted", 1, **{"cleanup.policy": "compact"})
    data = pa.table({"key": ["a", None, "c"], "value": ["1", "2", "3"]})
    with producing(broker, linger_ms=1000) as producer:
        delivery = producer.send_table("compacted", data)
        with pytest.raises(DeliveryError, match="3 records failed"):
            producer.flush(SECONDS)
        report = delivery.result(0)
        assert isinstance(report.errors[1], InvalidRecordError)
        assert report.error_codes.tolist() == [-1, ErrorCode.INVALID_RECORD, -1]
        assert type(report.errors[0]) is KafkaError


def test_rows_expire(broker: Broker) -> None:
    broker.hold_high_watermark("one", 0)
    keys = {"delivery_timeout_ms": 300, "request_timeout_ms": 200, "linger_ms": 0}
    with producing(broker, **keys) as producer:
        report = producer.send_table("one", numbered(5)).result(SECONDS)
        assert {type(error) for error in report.errors.values()} == {KafkaTimeoutError}
        assert len(report.errors) == 5
        assert report.errors[0].possibly_persisted


def test_close_ends_the_table_that_waits(broker: Broker) -> None:
    broker.hold_high_watermark("one", 0)
    with producing(broker, buffer_memory=24_000, batch_size=1000, max_block_ms=SECONDS_MS) as producer:
        producer.partitions_for("one")
        sending = within(lambda: producer.send_table("one", numbered(300, 500)))
        until(waits_for_memory(producer))
        with pytest.raises(DeliveryError):
            producer.close(timeout=0)
        report = sending.result(SECONDS).result(SECONDS)
        assert len(report.errors) == 300
        assert {type(error) for error in report.errors.values()} == {ProducerClosedError}


# Reports


@pytest.mark.threads
def test_on_delivery_is_called_once_on_the_delivery_thread(broker: Broker) -> None:
    noted: list[tuple[TableReport, str]] = []

    def on_delivery(report: TableReport) -> None:
        noted.append((report, threading.current_thread().name))

    with producing(broker, batch_size=1000, client_id="me") as producer:
        delivery = producer.send_table(TOPIC, numbered(3000), on_delivery=on_delivery)
        producer.flush(SECONDS)
        assert noted == [(delivery.result(0), "kbatch-delivery-me")]


def test_on_progress_is_called_for_every_batch(broker: Broker) -> None:
    seen: list[tuple[int, int]] = []
    with producing(broker, batch_size=1000) as producer:
        producer.send_table(
            TOPIC, numbered(3000), on_progress=lambda r: seen.append((r.done_rows, len(r.offsets)))
        )
        producer.flush(SECONDS)
        assert len(seen) == len(broker.batches(TOPIC))
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert seen[-1] == (3000, 3000)


def test_a_report_can_be_looked_at_before_it_is_done(broker: Broker) -> None:
    broker.hold_high_watermark("one", 0)
    with producing(broker) as producer:
        delivery = producer.send_table("one", numbered(3))
        assert repr(delivery) == "<TableDelivery one, 0 of 3 rows done>"
        report = delivery.report
        assert report.offsets.tolist() == [-1] * 3 and report.error_codes.tolist() == [0] * 3
        assert report.partitions.tolist() == [0] * 3 and not report.errors
        with pytest.raises(KafkaTimeoutError, match=r"no result after 0 s for 3 of 3 rows for one, which"):
            delivery.result(0)
        before = report.offsets
        broker.hold_high_watermark("one", 0, False)
        deliveries: list[Any] = [delivery]
        assert kbatch.wait(deliveries, SECONDS).done == deliveries
        assert before.tolist() == [-1] * 3 and report.offsets.tolist() == [0, 1, 2]
        assert not report.offsets.flags.writeable


def test_unobserved_failures_of_rows_are_raised_by_flush(broker: Broker) -> None:
    with producing(broker, **ONE_BY_ONE) as producer:
        producer.partitions_for("one")
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        delivery = producer.send_table("one", numbered(3))
        assert delivery.wait(SECONDS)
        with pytest.raises(DeliveryError, match=r"failed.* with NotEnoughReplicasError"):
            producer.flush(SECONDS)
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        producer.send_table("one", numbered(3), on_delivery=lambda report: None)
        producer.flush(SECONDS)


def test_done_callbacks_and_those_that_come_late(broker: Broker) -> None:
    noted: list[TableDelivery] = []
    with producing(broker) as producer:
        delivery = producer.send_table(TOPIC, numbered(10))
        delivery.add_done_callback(noted.append)
        producer.flush(SECONDS)
        delivery.add_done_callback(noted.append)
        assert noted == [delivery, delivery]


@pytest.mark.threads
def test_a_callback_may_send_a_table(broker: Broker) -> None:
    second: list[TableDelivery] = []
    with producing(broker, buffer_memory=4000, batch_size=1000, max_block_ms=SECONDS_MS) as producer:
        producer.send_table(
            "one",
            numbered(3),
            on_delivery=lambda report: second.append(producer.send_table("one", numbered(2))),
        )
        until(lambda: second)
        assert second[0].result(SECONDS).offsets.tolist() == [3, 4]


def test_what_a_callback_raises_is_logged(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    def fail(report: TableReport) -> None:
        raise RuntimeError("a callback's own")

    with producing(broker) as producer:
        producer.send_table(TOPIC, numbered(1), on_delivery=fail)
        producer.send_table(TOPIC, numbered(0), on_delivery=fail)
        producer.flush(SECONDS)
    assert "a callback's own" in caplog.text


class SeesTables(Interceptor):
    def on_send_table(self, topic: str | None, table: Any) -> Any:
        return table.slice(1)


class SeesRecords(Interceptor):
    def on_send(self, record: Any) -> Any:
        return record


def test_interceptors_see_the_table(broker: Broker) -> None:
    with producing(broker, interceptor_classes=[SeesTables]) as producer:
        assert producer.send_table("one", numbered(3)).result(SECONDS).row_count == 2
        assert values(broker, topic="one") == [b"000001", b"000002"]
    refused = pytest.raises(IllegalStateError, match="SeesRecords sees no tables")
    with producing(broker, interceptor_classes=[SeesRecords]) as producer, refused:
        producer.send_table("one", numbered(3))


# From several threads, and at the end


@pytest.mark.parametrize("batch_size", [16_384, 200_000])
def test_batches_that_other_threads_seal_keep_their_order(broker: Broker, batch_size: int) -> None:
    data = pa.table({"value": [b"%06d" % row * 20 for row in range(20_000)]})
    with producing(broker, batch_size=batch_size, compression_type="lz4") as producer:
        report = producer.send_table("one", data).result(SECONDS)
        assert report.offsets.tolist() == list(range(20_000))
        assert values(broker, topic="one") == data["value"].to_pylist()


def test_tables_and_records_of_several_threads(broker: Broker) -> None:
    """Every row of every table is where its report says; each table keeps its order."""
    keyed = [b"k%d" % (row % 50) if row % 3 else None for row in range(4000)]

    def send(number: int) -> tuple[pa.Table, TableReport]:
        contents = [b"%d-%d" % (number, row) for row in range(4000)]
        data = pa.table({"key": pa.array(keyed, pa.binary()), "value": contents})
        return data, producer.send_table(TOPIC, data.to_reader(max_chunksize=700)).result(SECONDS)

    keys = {"buffer_memory": 100_000, "batch_size": 2000, "max_block_ms": SECONDS_MS}
    with producing(broker, **keys, compression_type="lz4") as producer:
        running = [within(lambda number=number: send(number)) for number in range(3)]  # type: ignore[misc]
        others = within(lambda: [producer.send(TOPIC, b"other").result(SECONDS) for _ in range(100)])
        done = [each.result(SECONDS) for each in running]
        assert len(others.result(SECONDS)) == 100
        assert len(log := read(broker)) == 3 * 4000 + 100
        for data, report in done:
            assert [log[place].value for place in places(report)] == data["value"].to_pylist()
            for partition in range(PARTITIONS):
                assert (np.diff(report.offsets[report.partitions == partition]) > 0).all()
        until(lambda: producer._accumulator.memory.available == keys["buffer_memory"])


def test_a_report_keeps_neither_table_nor_producer(broker: Broker) -> None:
    with producing(broker) as producer:
        data = numbered(1000).to_batches()[0]
        alive = weakref.ref(data)
        report = producer.send_table(TOPIC, data).result(SECONDS)
        del data
        gc.collect()
        assert alive() is None
    dropped = weakref.ref(producer)
    del producer
    gc.collect()
    assert dropped() is None
    assert report.row_count == 1000


# Rows that are too large


# What allocators may keep beside a report's 14 bytes a row. An error for each of the million rows would take
# ten times as much.
MOST_BESIDE = 50_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


# Too large


def test_errors_of_oversized_rows_name_each_size(broker: Broker) -> None:
    data = pa.table({"value": [bytes(5000 + row % 700) for row in range(3000)]})
    with producing(broker, max_request_size=4000) as producer:
        report = producer.send_table("one", data).result(SECONDS)
        assert report.failed_rows == len(report.errors) == 3000
        assert report.offsets.tolist() == [-1] * 3000
        for row, error in report.errors.items():
            assert isinstance(error, RecordTooLargeError)
            assert f"takes up to {5086 + row % 700} bytes" in str(error)
            assert "raise that, and the topic's max.message.bytes" in str(error)
        assert report.errors[2999] is report.errors[2999]
        with pytest.raises(KeyError):
            report.errors[3000]


def test_a_report_of_refused_rows_takes_14_bytes_a_row(broker: Broker) -> None:
    rows = 1_000_000
    value = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([bytes(300)]))
    data = pa.table({"value": value})
    with producing(broker, max_request_size=300) as producer:
        producer.send_table("one", data).result(SECONDS)  # memory that the first one keeps is not measured
        gc.collect()
        before = resident_bytes()
        report = producer.send_table("one", data).result(SECONDS)
        gc.collect()
        assert resident_bytes() - before < 14 * rows + MOST_BESIDE
        assert report.failed_rows == len(report.errors) == rows
        assert sys.getsizeof(report._outcome) < 14 * rows + 1000


@pytest.mark.parametrize("topic_column", [None, "topic"])
def test_a_report_takes_14_bytes_a_row_and_4_for_its_topic(broker: Broker, topic_column: str | None) -> None:
    rows = 50_000
    data = pa.table({"value": ["v"] * rows, "topic": ["one"] * rows})
    with producing(broker) as producer:
        report = producer.send_table("one", data, topic_column=topic_column).result(SECONDS)
        row_bytes = 14 if topic_column is None else 18
        assert sys.getsizeof(report._outcome) < (row_bytes - 9) * rows  # until more is requested
        assert report.offsets[-1] == rows - 1
        assert row_bytes * rows <= sys.getsizeof(report._outcome) < row_bytes * rows + 1000


# Faults of brokers


ROWS = 3000
# Many batches, several of them in flight.
IDEMPOTENT: dict[str, Any] = {"enable_idempotence": True, "batch_size": 2000, "retry_backoff_ms": 1}


class OnlyAnArray:
    def __init__(self, data: pa.RecordBatch) -> None:
        self._data = data

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._data.__arrow_c_array__(requested_schema)


def rows_of(count: int = ROWS) -> pa.RecordBatch:
    keys = [b"k%d" % (row % 97) for row in range(count)]
    return pa.record_batch({"key": keys, "value": [b"v%d" % row for row in range(count)]})


def check_each_row_once(broker: Broker, report: TableReport, rows: pa.RecordBatch) -> None:
    """Check that the log has every row once, in order, and where the report says."""
    values = rows["value"].to_pylist()
    for partition in range(TWO_PARTITIONS):
        own = np.flatnonzero(report.partitions == partition)
        log = broker.records("two", partition)
        assert [record.value for record in log] == [values[row] for row in own]
        offsets = report.offsets[own]
        assert ((offsets == [record.offset for record in log]) | (offsets == -1)).all()
    assert not report.errors and report.done_rows == rows.num_rows


@pytest.mark.parametrize("error", ["NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"])
def test_rows_that_are_sent_again_are_in_the_log_once(broker: Broker, error: str) -> None:
    with producing(broker, **IDEMPOTENT) as producer:
        producer.partitions_for("two")
        broker.fail_next("Produce", error, times=3)
        report = producer.send_table("two", rows_of()).result(SECONDS)
        assert metric(producer, "record-retry-total") > 0
        check_each_row_once(broker, report, rows_of())
        assert (report.offsets >= 0).all()


@pytest.mark.parametrize("times", [1, 3])
def test_rows_of_an_answer_that_was_lost_are_in_the_log_once(broker: Broker, times: int) -> None:
    """The broker has them, and finds their duplicates."""
    with producing(broker, **IDEMPOTENT) as producer:
        producer.partitions_for("two")
        broker.drop_connection("Produce", when="after", times=times)
        report = producer.send_table("two", rows_of()).result(SECONDS)
        assert metric(producer, "record-retry-total") > 0
        check_each_row_once(broker, report, rows_of())


def test_rows_that_were_never_sent_expire() -> None:
    with Broker({"two": TWO_PARTITIONS}, auto_create_topics=False) as gone:
        keys = {"delivery_timeout_ms": 400, "request_timeout_ms": 200, "linger_ms": 0}
        with producing(gone, **keys) as producer:
            producer.partitions_for("two")
            gone.stop()
            report = producer.send_table("two", rows_of(100)).result(SECONDS)
            assert {type(error) for error in report.errors.values()} == {KafkaTimeoutError}
            assert report.failed_rows == len(report.errors) == 100
            assert not any(error.possibly_persisted for error in report.errors.values())
            assert report.offsets.tolist() == [-1] * 100
            assert set(report.partitions.tolist()) == {0, 1}
            assert report.stopped is None  # all of them were accepted


@pytest.mark.parametrize("count", [0, 1, ROWS])
def test_data_that_are_one_array_are_sent(broker: Broker, count: int) -> None:
    rows = rows_of(count)
    with producing(broker) as producer:
        report = producer.send_table("two", OnlyAnArray(rows)).result(SECONDS)
        assert report.row_count == count
        check_each_row_once(broker, report, rows)
        sliced = producer.send_table("two", OnlyAnArray(rows.slice(1))).result(SECONDS)
        assert sliced.row_count == max(count - 1, 0) and not sliced.errors


# Metrics


COUNTED = ("record-send-total", "record-error-total", "record-retry-total")
VALUES = [b"a" * (3000 if row % 7 == 3 else 20) for row in range(100)]


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


def test_rows_after_a_stop_and_of_refused_topics_count_once(broker: Broker) -> None:
    broker.hold_high_watermark("one", 0)
    to = ["nowhere", "one"] * 500
    data = pa.table({"value": ["v" * 500] * 1000, "to": to})
    keys = {"buffer_memory": 24_000, "batch_size": 1000, "max_block_ms": 300, "retries": 0}
    with producing(broker, ["one"], **keys) as producer:
        report = producer.send_table(None, data, topic_column="to").report
        assert metric(producer, "record-error-total") == report.failed_rows < 1000


def test_table_refused_whole_is_counted_and_reported(broker: Broker) -> None:
    noted: list[Any] = []

    class Listening(Interceptor):
        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            noted.append((metadata, error))

    columns = {"value": np.array([b"a", b"b"])}
    with producing(broker, max_block_ms=SECONDS_MS, interceptor_classes=[Listening()]) as producer:
        early = pa.table({"value": ["v"] * 2, "timestamp": [-5] * 2})
        for data in (columns, pa.table({"value": [1, 2]}), early):
            with pytest.raises((TypeError, ValueError)) as raised:
                producer.send_table("one", data, key="none" if data is columns else "key")
            assert noted[-2:] == [(kbatch.RecordMetadata("one", -1), raised.value)] * 2
        assert metric(producer, "record-error-total") == len(noted) == 6
        producer.close()
        with pytest.raises(KafkaError):
            producer.send_table("one", early)
        assert len(noted) == 8


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


# Reports of many rows


PULLED = 50_000
TOO_LARGE = 70_000  # a row of the second batch


def numbered_in_turn(row_count: int, too_large: int) -> Iterator[pa.RecordBatch]:
    """Yield rows without key and value, for partitions and topics in turn; row `too_large` cannot be sent."""
    for first in range(0, row_count, PULLED):
        rows = np.arange(first, min(first + PULLED, row_count))
        values = pa.array([b"x" * 5000 if row == too_large else None for row in rows], pa.binary())
        topics = pa.DictionaryArray.from_arrays(pa.array(rows // PARTITIONS % 2, pa.int32()), ["a", "b"])
        partitions = pa.array(rows % PARTITIONS, pa.int32())
        yield pa.RecordBatch.from_arrays([values, topics, partitions], ["value", "topic", "partition"])


@pytest.mark.parametrize("row_count", [200_000, 600_000, 1_200_000])
@pytest.mark.parametrize("too_large", [TOO_LARGE, -1])
def test_the_outcome_of_many_rows(row_count: int, too_large: int) -> None:
    first = next(numbered_in_turn(1, too_large))
    with (
        Broker({"a": PARTITIONS, "b": PARTITIONS}, auto_create_topics=False) as broker,
        producing(broker, max_request_size=4096, batch_size=4096, max_block_ms=SECONDS_MS) as producer,
    ):
        reader = pa.RecordBatchReader.from_batches(first.schema, numbered_in_turn(row_count, too_large))
        report = producer.send_table(None, reader, topic_column="topic").result(SECONDS)
    rows = np.arange(row_count)
    sent = rows != too_large
    earlier = rows // (2 * PARTITIONS)  # in the same partition, which lacks one from the row on
    lacks_one = (rows > too_large) & (rows % (2 * PARTITIONS) == too_large % (2 * PARTITIONS))
    lacks_one &= too_large >= 0
    assert list(report.errors) == [too_large] * (too_large >= 0)
    assert all(isinstance(error, RecordTooLargeError) for error in report.errors.values())
    assert np.array_equal(report.error_codes == 0, sent)
    assert np.array_equal(report.partitions, rows % PARTITIONS)
    assert np.array_equal(report.offsets, np.where(sent, earlier - lacks_one, -1))
