"""send_table: accepting stops before the data end, and which rows the report has then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kbatch import AsyncProducer, BufferExhaustedError, DeliveryError
from kbatch.errors import ProducerClosedError
from kbatch.formats.writing import Utf8
from kbatch.testing import Broker
from tests.support.patience import until
from tests.support.producing import SECONDS, SECONDS_MS, producing, waits_for_memory, within

pytestmark = pytest.mark.usefixtures("shell")

# Room for some ten rows, none of which is acknowledged.
SMALL: dict[str, Any] = {"buffer_memory": 24_000, "batch_size": 1000}
PIECE = 7
VALUE = "v" * 900


class OnlyAnArray:
    def __init__(self, data: pa.RecordBatch) -> None:
        self._data = data

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._data.__arrow_c_array__(requested_schema)


class Endless:
    """A stream without end, which counts the rows that it gave."""

    def __init__(self) -> None:
        self.row_count = 0

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(pa.schema([("value", pa.string())]), self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            self.row_count += PIECE
            yield pa.RecordBatch.from_pydict({"value": [VALUE] * PIECE})


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"one": 1}, auto_create_topics=False) as broker:
        broker.hold_high_watermark("one", 0)
        yield broker


@pytest.mark.parametrize("value", ["value", Utf8("value")])
def test_an_endless_stream_is_not_read_to_its_end_without_memory(broker: Broker, value: Any) -> None:
    endless = Endless()
    with producing(broker, ["one"], **SMALL, max_block_ms=2000) as producer:
        report = producer.send_table("one", endless.reader(), value=value).report
        assert isinstance(report.stopped, BufferExhaustedError)
        assert repr(report).endswith(", stopped by BufferExhaustedError>")
        assert report.row_count == endless.row_count
        assert report.failed_rows > PIECE  # it was read on for a while, to count its rows
        assert set(report.errors.values()) == {report.stopped}


@pytest.mark.parametrize("value", ["value", Utf8("value")])
def test_an_endless_stream_ends_with_the_producer(broker: Broker, value: Any) -> None:
    endless = Endless()
    with producing(broker, **SMALL, max_block_ms=SECONDS_MS) as producer:
        sending = within(lambda: producer.send_table("one", endless.reader(), value=value))
        until(waits_for_memory(producer))
        with pytest.raises(DeliveryError):
            producer.close(timeout=0)
        report = sending.result(SECONDS).result(SECONDS)
        assert isinstance(report.stopped, ProducerClosedError)
        assert report.row_count == report.failed_rows == endless.row_count


def test_a_task_that_is_cancelled_reads_no_endless_stream(broker: Broker) -> None:
    endless = Endless()

    async def program() -> int:
        producer = AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers, linger_ms=0, max_block_ms=SECONDS_MS, **SMALL
        )
        await producer.partitions_for("one")
        sending = asyncio.ensure_future(producer.send_table("one", endless.reader()))
        while not producer._accumulator.memory.queued:
            await asyncio.sleep(0.001)
        rows = endless.row_count
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(DeliveryError):
            await producer.close(timeout=0)
        return rows

    assert asyncio.run(program()) == endless.row_count


@pytest.mark.parametrize(
    "made",
    [
        lambda rows: pa.table({"value": rows}),
        lambda rows: pa.Table.from_batches(pa.table({"value": rows}).to_batches(max_chunksize=PIECE)),
        lambda rows: pa.record_batch({"value": rows}),
        lambda rows: OnlyAnArray(pa.record_batch({"value": rows})),
        lambda rows: pl.DataFrame({"value": rows}),
        lambda rows: pd.DataFrame({"value": rows}),
        lambda rows: {"value": np.array(rows, "S")},
    ],
    ids=["Table", "chunks", "RecordBatch", "array", "polars", "pandas", "numpy"],
)
@pytest.mark.parametrize("is_serialized", [False, True])
def test_of_a_table_in_memory_all_rows_are_in_the_report(
    broker: Broker, made: Callable[[list[str]], Any], is_serialized: bool
) -> None:
    serialized_rows = 0

    def value(columns: pa.RecordBatch) -> pa.Array:
        nonlocal serialized_rows
        serialized_rows += columns.num_rows
        return columns["value"].cast(pa.binary())

    data = made([VALUE] * 40_000)
    with producing(broker, **SMALL, max_block_ms=SECONDS_MS) as producer:
        serializer = value if is_serialized else "value"
        sending = within(lambda: producer.send_table("one", data, value=serializer))
        until(waits_for_memory(producer))
        with pytest.raises(DeliveryError):
            producer.close(timeout=0)
        report = sending.result(SECONDS).result(SECONDS)
        assert isinstance(report.stopped, ProducerClosedError)
        assert report.row_count == len(report.partitions) == report.failed_rows == 40_000
        assert report.errors[39_999] is report.stopped
        assert (report.partitions[:10] == 0).all() and report.partitions[-1] == -1
        assert serialized_rows <= 16_384  # what is not sent is not serialized


@pytest.mark.parametrize("is_serialized", [False, True])
def test_of_a_stream_that_ends_all_rows_are_in_the_report(broker: Broker, is_serialized: bool) -> None:
    serialized_rows = 0

    def value(columns: pa.RecordBatch) -> pa.Array:
        nonlocal serialized_rows
        serialized_rows += columns.num_rows
        return columns["value"].cast(pa.binary())

    stream = pa.table({"value": [VALUE] * 300}).to_reader(max_chunksize=PIECE)
    with producing(broker, ["one"], **SMALL, max_block_ms=1000) as producer:
        report = producer.send_table("one", stream, value=value if is_serialized else "value").report
        assert isinstance(report.stopped, BufferExhaustedError)
        assert report.row_count == 300
        assert report.failed_rows > 200
        assert report.errors[299] is report.stopped
        assert serialized_rows < 100  # what is not sent is not serialized


def test_a_duckdb_relation_is_read_as_it_is_sent(broker: Broker) -> None:
    """Nothing runs the whole query first: it would take days. So says docs/tables.md."""
    rows = duckdb.connect().sql("select repeat('v', 900) || range as value from range(1_000_000_000_000)")
    with producing(broker, **SMALL, max_block_ms=SECONDS_MS) as producer:
        sending = within(lambda: producer.send_table("one", rows))
        until(waits_for_memory(producer))
        with pytest.raises(DeliveryError):
            producer.close(timeout=0)
        report = sending.result(SECONDS).result(SECONDS)
        assert isinstance(report.stopped, ProducerClosedError)
        assert 0 < report.row_count == report.failed_rows < 1_000_000_000


def test_a_table_that_was_sent_whole_was_not_stopped(broker: Broker) -> None:
    with producing(broker) as producer:
        delivery = producer.send_table("one", Endless().reader().read_next_batch())
        assert delivery.report.stopped is None
        assert repr(delivery.report) == f"<TableReport 0 of {PIECE} rows done, 0 failed>"
