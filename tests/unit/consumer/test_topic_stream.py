"""TopicStream: what a pyarrow.RecordBatchReader is for, and the end of the batches' source."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kbatch.consumer.topic_stream import TopicStream
from kbatch.errors import CorruptRecordError, IllegalStateError

SCHEMA = pa.schema(
    [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        (
            "headers",
            pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])),
        ),
    ]
)


def batch(first: int, rows: int = 3) -> pa.RecordBatch:
    offsets = range(first, first + rows)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["orders"])),
        pa.array(offsets, pa.int64()),
        pa.array([None if offset % 2 else b"%d" % offset for offset in offsets], pa.binary()),
        pa.array([[{"key": "a", "value": None}] * (offset % 3) for offset in offsets], SCHEMA.field(3).type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class Source:
    """Batches, until `count` or an error; `is_closed` after `close` or its end of life."""

    def __init__(self, count: int = 3, error: BaseException | None = None) -> None:
        self.is_closed = False
        self.read_count = 0
        self._count, self._error = count, error

    def __iter__(self) -> Source:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self.read_count == self._count:
            if self._error is not None:
                raise self._error
            raise StopIteration
        self.read_count += 1
        return batch(10 * self.read_count)

    def close(self) -> None:
        self.is_closed = True


def stream(source: Any) -> TopicStream:
    return TopicStream(SCHEMA, source, lambda: {})


EXPECTED = pa.Table.from_batches([batch(10), batch(20), batch(30)])


def test_it_is_a_record_batch_reader_that_reads_when_asked() -> None:
    source = Source()
    reader = stream(source)
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema == SCHEMA and source.read_count == 0
    assert reader.read_next_batch() == batch(10) and source.read_count == 1
    assert list(reader) == [batch(20), batch(30)]
    with pytest.raises(StopIteration):
        reader.read_next_batch()
    assert reader.read_all() == SCHEMA.empty_table()


def written(reader: TopicStream, folder: Path) -> pa.Table:
    ds.write_dataset(reader, folder, format="parquet")  # whose threads may write batches in any order
    return ds.dataset(folder).to_table().sort_by("offset")


def by_duckdb(reader: TopicStream) -> pa.Table:
    found = duckdb.sql("select * from reader")
    assert found is not None
    return found.to_arrow_table()


READERS: dict[str, Callable[[Any, Path], Any]] = {
    "pyarrow": lambda reader, folder: reader.read_all(),
    "stream": lambda reader, folder: pa.RecordBatchReader.from_stream(reader).read_all(),
    "table": lambda reader, folder: pa.table(reader),
    "batches": lambda reader, folder: pa.Table.from_batches(list(reader), SCHEMA),
    "pandas": lambda reader, folder: pa.Table.from_pandas(reader.read_pandas(), SCHEMA, preserve_index=False),
    "polars": lambda reader, folder: polars.from_arrow(reader).to_arrow(),
    "duckdb": lambda reader, folder: by_duckdb(reader),
    "dataset": written,
    "cast": lambda reader, folder: reader.cast(SCHEMA).read_all(),
    "metadata": lambda reader, folder: pa.Table.from_batches(
        [each for each, _ in reader.iter_batches_with_custom_metadata()], SCHEMA
    ),
}


@pytest.mark.parametrize("how", READERS)
def test_every_way_to_read_it_gives_the_same_rows(how: str, tmp_path: Path) -> None:
    table = READERS[how](stream(Source()), tmp_path / "rows")
    assert (
        table.select(["offset", "value", "headers"]).to_pylist()
        == EXPECTED.select(["offset", "value", "headers"]).to_pylist()
    )
    assert list(map(str, table["topic"])) == ["orders"] * 9


@pytest.mark.parametrize("how", ["pyarrow", "batches"])
@pytest.mark.parametrize("error", [CorruptRecordError("orders-0"), KeyboardInterrupt()], ids=repr)
def test_an_error_is_raised_as_it_is(how: str, error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as caught:
        READERS[how](stream(Source(1, error)), tmp_path)
    assert caught.value is error


@pytest.mark.parametrize("how", ["stream", "polars", "dataset", "cast"])
def test_an_error_in_other_libraries_keeps_its_text(how: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="orders-0 is broken"):
        READERS[how](stream(Source(1, CorruptRecordError("orders-0 is broken"))), tmp_path / "rows")


def test_closing_ends_the_source_and_the_stream() -> None:
    source = Source()
    with stream(source) as reader:
        reader.read_next_batch()
        assert not source.is_closed
    assert source.is_closed
    reader.close()
    for read in (reader.read_next_batch, reader.read_all, lambda: list(reader), reader.__arrow_c_stream__):
        with pytest.raises(IllegalStateError, match=r"was closed; call scan_topic\(\) again"):
            read()


@pytest.mark.parametrize("reads", [0, 1, 3, 4])
def test_a_dropped_stream_drops_its_source(reads: int) -> None:
    def generator() -> Iterator[pa.RecordBatch]:
        yield from (batch(10), batch(20), batch(30))

    source = generator()
    dropped = weakref.ref(source)
    reader = stream(source)
    del source
    for _ in range(reads):
        next(reader, None)
    del reader
    assert dropped() is None or gc.collect() is None
    assert dropped() is None


def test_an_exported_stream_drops_its_source_at_its_end() -> None:
    source = Source(10)
    dropped = weakref.ref(source)
    exported = pa.RecordBatchReader.from_stream(stream(source))
    del source
    exported.read_next_batch()
    exported.close()
    assert dropped() is None
