"""TopicStream: record batches that are read from a topic, as a pyarrow.RecordBatchReader.

Theory of operation. `pyarrow.RecordBatchReader.from_batches` would do but for one thing: `close` does not
reach the iterator, so the client behind it would go on. A subclass can have a `close`, but only pyarrow's own
classes set the C++ reader that C++ code takes from a RecordBatchReader. RecordBatchStreamReader, which reads
Arrow's IPC format from a file, is one of them. So this is the IPC reader of a file that is written while it
is read. The methods of Python, and the Arrow C stream, which duckdb, polars and pandas use, get the batches
themselves, without a copy, and the errors as they were raised. C++ code of pyarrow, such as
`pyarrow.dataset.write_dataset`, reads the file.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, Protocol, final

import pyarrow as pa

from kbatch.consumer.ranges import Gaps
from kbatch.errors import IllegalStateError
from kbatch.records import TopicPartition


class Batches(Protocol):
    """An iterator with an end: a generator."""

    def __next__(self) -> pa.RecordBatch: ...
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...
    def close(self) -> None: ...


@final
class TopicStream(pa.RecordBatchStreamReader):  # type: ignore[misc]
    """The records of a topic as a stream. What reads them ends when the stream is closed, exhausted or
    dropped.

    Parameters
    ----------
    schema : pyarrow.Schema
    batches : generator of pyarrow.RecordBatch
    lost : callable
        Returns the value of the property.
    """

    def __init__(
        self, schema: pa.Schema, batches: Batches, lost: Callable[[], dict[TopicPartition, Gaps]]
    ) -> None:
        super().__init__(_IpcFile(schema, batches))
        self._schema = schema
        self._batches: Batches | None = batches
        self._lost = lost

    @property
    def lost(self) -> dict[TopicPartition, Gaps]:
        """The ranges of offsets that were skipped because the log did not have them any more, by partition:
        the first offset, and the one after the last. It can grow while the stream is read.
        """
        return self._lost()

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next batch.

        Raises
        ------
        StopIteration
            At the end of the stream.
        IllegalStateError
            The stream was closed.
        KafkaError
            It cannot be read on.
        """
        return next(self._open_batches())

    def read_all(self) -> pa.Table:
        """Return all remaining batches as a table."""
        return pa.Table.from_batches(self._open_batches(), self._schema)

    def close(self) -> None:
        """End the client. A second call has no effect."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._open_batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _open_batches(self) -> Batches:
        if self._batches is None:
            raise IllegalStateError("the stream of the topic was closed; call scan_topic() again")
        return self._batches


@final
class _IpcFile:
    """The batches as a file in Arrow's IPC streaming format, for one reader."""

    closed = False

    def __init__(self, schema: pa.Schema, batches: Batches) -> None:
        self._batches = batches
        self._written = io.BytesIO()
        self._writer: Any = pa.ipc.new_stream(self._written, schema)
        # the writer begins with the schema only when the first batch comes; the reader needs it at once
        head = schema.serialize().to_pybytes()
        self._unread = io.BytesIO(head)
        self._known_bytes = len(head)

    def read(self, size: int) -> bytes:
        """Return `size` bytes; fewer at the end of the last batch."""
        data = self._unread.read(size)
        while len(data) < size and self._write_on():
            data += self._unread.read(size - len(data))
        return data

    def _write_on(self) -> bool:
        """Write what comes next. False after the end."""
        if self._writer is None:
            return False
        batch = next(self._batches, None)
        if batch is not None:
            self._writer.write_batch(batch)
        else:
            self._writer.close()
            self._writer = None
        self._unread = io.BytesIO(self._written.getvalue()[self._known_bytes :])
        self._known_bytes = 0
        self._written.seek(0)
        self._written.truncate()
        return True
