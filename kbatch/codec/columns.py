"""encode_arrow, ArrowEncoder and decode_arrow: whole columns into record batches and back.

This module turns arguments into those of the native TableEncoder and TableDecoder, and their memory into
pyarrow tables. It needs pyarrow and numpy (the extra `arrow`); `kbatch` imports it at its first use.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, final

from kbatch._native.arrow.table_decoder import TableDecoder
from kbatch._native.arrow.table_encoder import TableEncoder
from kbatch.codec.roles import Part, record_columns
from kbatch.codecs import CODEC_NAMES
from kbatch.distribution import needs

with needs("an Arrow table", "arrow"):
    import numpy as np
    import pyarrow as pa

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbatch._native.arrow.record_chunks import BinaryBuffers, RecordChunk
    from kbatch._native.arrow.table_encoder import Encoded

# The columns of records that were read from partitions, in the order of a table with all of them.
FETCHED_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
)
# By the bit in a batch's attributes.
TIMESTAMP_TYPES = ("create_time", "log_append_time")
# Columns of one value share the memory of this many rows.
_SHARED_ROWS = 131072
# Rows to pass numpy columns in: 'S' arrays must be copied to lose their padding.
_NUMPY_ROWS = 65536

_ENCODED_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("record_count", pa.int32()),
        ("max_timestamp_ms", pa.int64()),
        ("uncompressed_bytes", pa.int64()),
        ("batch", pa.large_binary()),
    ]
)
_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
_RECORD_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(_HEADER)),
    ]
)


def encode_arrow(
    data: Any,
    *,
    key: Part = "key",
    value: Part = "value",
    headers: str | None = "headers",
    timestamp: str | None = "timestamp",
    partition: str | None = "partition",
    partitions: int | None = None,
    compression: str = "none",
    compression_level: int | None = None,
    batch_size: int = 16384,
    threads: int = 1,
) -> pa.Table:
    """Encode a table's rows as record batches v2, like a producer, without a Python object per row.

    Parameters
    ----------
    data : table
        Anything with `__arrow_c_stream__` or `__arrow_c_array__` (pyarrow, polars, duckdb; a
        RecordBatchReader may be larger than memory), or a dict of column name to numpy array: 1-D 'S'
        (trailing NULs are not part of the value) or 'V', 2-D uint8 (a row a value), a pair (data, offsets) of
        uint8 and int32 or int64, and for the other columns numbers, bool or datetime64.
    key, value : str or column serializer
        Columns of binary, large_binary, binary_view, string, large_string, string_view, fixed_size_binary, a
        dictionary of those, or null. A null key is no key, a null value a tombstone. A column serializer
        makes such a column of others, see `kbatch.formats.writing`. A key of None means no keys.
    headers : str or None
        Column of list<struct<key: string, value: binary>> or map<string, binary>, also large ones.
    timestamp : str or None
        Column of timestamps of any unit (rounded down to milliseconds), or of int64 milliseconds; null is the
        time of the call.
    partition : str or None
        Column of int32; if it is null or missing, Java's murmur2 of the key over `partitions` decides. Rows
        without a key go to one partition for `batch_size` bytes of records, then to the next, from 0 in each
        call.
    partitions : int or None
        The topic's number of partitions, at most 1,000,000; None needs a partition column without nulls.
    compression : "none", "gzip", "snappy", "lz4" or "zstd"
    compression_level : int or None
        In Java's ranges: gzip 1..9, lz4 1..17, zstd -131072..22 (KIP-390).
    batch_size : int
        Target bytes of a batch, by Kafka's rule: it closes when its estimated size (uncompressed bytes x
        ratio x 1.05) and the next record would exceed it. The ratio is learnt from the batches of all
        partitions, from 1.0 in each call; ArrowEncoder keeps it over calls. A larger record gets its own
        batch.
    threads : int
        Threads that write and compress partitions in parallel; 0 means one a CPU. The result is the same,
        except for gzip without a level: isal's streams can differ by a few bytes from thread to thread, so a
        batch may close a record sooner or later. The records, their order and their partitions are always the
        same.

    Returns
    -------
    pyarrow.Table
        A row for each record batch, by partition and in order within it: partition int32, record_count int32,
        max_timestamp_ms int64, uncompressed_bytes int64 (of the whole batch without compression), batch
        large_binary. Base offsets are 0; `kbatch.rebase` changes them.

    Raises
    ------
    ValueError
        A column is missing, a value is out of range (the message names column and row), or a record exceeds 2
        GiB.
    TypeError
        A column has a type that is not listed here, or `data` is not a table.
    SerializationError
        A row that a column serializer refused.
    """
    encoder = ArrowEncoder(
        key=key,
        value=value,
        headers=headers,
        timestamp=timestamp,
        partition=partition,
        partitions=partitions,
        compression=compression,
        compression_level=compression_level,
        batch_size=batch_size,
        threads=threads,
    )
    return encoder._encode(data, closes=True)


@final
class ArrowEncoder:
    """Encodes the rows of one topic that come as several tables.

    The batches are those of one `encode_arrow` call with all the tables: an encoder keeps the topic's
    compression ratio, and the open batches, from call to call. `encode_arrow` for each table makes smaller
    ones: it begins with a ratio of 1.0 and closes all batches with the table.

        encoder = kbatch.ArrowEncoder(partitions=12, compression="zstd")
        for table in tables:
            write(encoder.encode(table))
        write(encoder.flush())

    An encoder refuses calls after a failed one, and calls from a second thread during one.

    Parameters
    ----------
    key, value, headers, timestamp, partition, partitions, compression, compression_level, batch_size, threads
        See `encode_arrow`.

    Raises
    ------
    ValueError, TypeError
        An argument that `encode_arrow` refuses.
    """

    def __init__(
        self,
        *,
        key: Part = "key",
        value: Part = "value",
        headers: str | None = "headers",
        timestamp: str | None = "timestamp",
        partition: str | None = "partition",
        partitions: int | None = None,
        compression: str = "none",
        compression_level: int | None = None,
        batch_size: int = 16384,
        threads: int = 1,
    ) -> None:
        self._parts: dict[str, Any] = {
            "key": key,
            "value": value,
            "headers": headers,
            "timestamp": timestamp,
            "partition": partition,
        }
        self._encoder = TableEncoder(
            partitions=None if partitions is None else _as_int("partitions", partitions),
            compression=compression,
            compression_level=compression_level,
            batch_size=_as_int("batch_size", batch_size),
            threads=_thread_count(threads),
        )

    def encode(self, data: Any) -> pa.Table:
        """Encode all rows of a table, and return the full batches, as `encode_arrow` does.

        Raises
        ------
        ValueError, TypeError, SerializationError
            Data that `encode_arrow` refuses.
        IllegalStateError
            An earlier call failed, or another thread's still runs.
        """
        return self._encode(data, closes=False)

    def flush(self) -> pa.Table:
        """Return the open batches too. The encoder can go on, with its learnt ratio."""
        return _encoded_table(self._encoder.encode(None, {}, True))

    def _encode(self, data: Any, *, closes: bool) -> pa.Table:
        table = NumpyTable(data) if isinstance(data, Mapping) else data
        source, names, reading = record_columns(table, **self._parts)
        with reading():
            return _encoded_table(self._encoder.encode(source, names, closes))


def _encoded_table(encoded: Encoded) -> pa.Table:
    total, *columns, chunks = encoded
    batches = [
        pa.Array.from_buffers(
            pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(memory)], 0
        )
        for count, offsets, memory in chunks
    ]
    arrays = [
        pa.Array.from_buffers(field.type, total, [None, pa.py_buffer(memory)], 0)
        for field, memory in zip(_ENCODED_SCHEMA, columns, strict=False)
    ]
    return pa.Table.from_arrays(
        [*arrays, pa.chunked_array(batches, pa.large_binary())], schema=_ENCODED_SCHEMA
    )


def _as_int(name: str, value: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    return operator.index(value)


def _thread_count(threads: int) -> int:
    if _as_int("threads", threads) < 0:
        raise ValueError(f"threads must be 0 (one a CPU) or more, got {threads}")
    if threads:
        return threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@final
class NumpyTable:
    """Return a dict of numpy columns as a stream of record batches; only 'S' columns are copied.

    Attributes
    ----------
    num_rows : int
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._slicers = {name: _slicer(name, column) for name, column in columns.items()}
        lengths = {name: length for name, (length, _) in self._slicers.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns must have the same number of rows, got {lengths}")
        self.num_rows = max(lengths.values(), default=0)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream = self._batches()
        head = next(stream)
        reader = pa.RecordBatchReader.from_batches(head.schema, itertools.chain([head], stream))
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for first in range(0, max(self.num_rows, 1), _NUMPY_ROWS):
            last = min(first + _NUMPY_ROWS, self.num_rows)
            columns = {name: cut(first, last) for name, (_, cut) in self._slicers.items()}
            yield pa.RecordBatch.from_pydict(columns)


def _slicer(name: str, column: Any) -> tuple[int, Any]:
    """Return the number of rows of a column, and a function that returns rows first..last of it as an Arrow
    array.
    """
    if isinstance(column, tuple) and len(column) == 2:
        array = _array_of_offsets(name, *column)
        return len(array), lambda first, last: array.slice(first, last - first)
    if hasattr(column, "__arrow_c_array__"):
        array = pa.array(column)
        return len(array), lambda first, last: array.slice(first, last - first)
    if not isinstance(column, np.ndarray):
        raise TypeError(
            f"column {name!r} must be a numpy array, a pair (data, offsets) or an Arrow array, "
            f"got {type(column).__name__}"
        )
    if column.ndim == 1 and column.dtype.kind == "S":
        return len(column), lambda first, last: pa.array(column[first:last], pa.large_binary())
    if (column.ndim == 2 and column.dtype == np.uint8) or (column.ndim == 1 and column.dtype.kind == "V"):
        return len(column), _fixed_slicer(np.ascontiguousarray(column))
    if column.ndim == 1 and column.dtype.kind in "biufM":
        return len(column), lambda first, last: pa.array(column[first:last])
    raise TypeError(
        f"column {name!r} must be a 1-D array of 'S', 'V', numbers, bool or datetime64, or 2-D of uint8; "
        f"got {column.ndim}-D of {column.dtype}"
    )


def _fixed_slicer(column: np.ndarray) -> Any:
    width = column.itemsize if column.ndim == 1 else column.shape[1]
    return lambda first, last: pa.Array.from_buffers(
        pa.binary(width), last - first, [None, pa.py_buffer(column[first:last])]
    )


def _array_of_offsets(name: str, data: Any, offsets: Any) -> pa.Array:
    """Check the caller's offsets, and return the pair (data, offsets) as an Arrow array."""
    offsets = np.ascontiguousarray(offsets)
    buffer = pa.py_buffer(data)
    if offsets.ndim != 1 or offsets.dtype not in (np.int32, np.int64) or len(offsets) == 0:
        raise TypeError(
            f"column {name!r}: offsets must be a 1-D array of int32 or int64, one more than rows, "
            f"got {offsets.ndim}-D of {offsets.dtype}, {len(offsets)} long"
        )
    if offsets[0] < 0 or offsets[-1] > buffer.size or np.any(offsets[1:] < offsets[:-1]):
        raise ValueError(
            f"column {name!r}: offsets must not decrease, nor exceed the {buffer.size} bytes of data"
        )
    kind = pa.binary() if offsets.dtype == np.int32 else pa.large_binary()
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets), buffer])


def decode_arrow(
    data: Any,
    *,
    check_crc: bool = True,
    batch_columns: bool = False,
    max_decompressed_bytes: int = 268435456,
    partial: str = "stop",
) -> pa.Table:
    """Decode record batches v2 into columns, without a Python object per record.

    Parameters
    ----------
    data : bytes-like, binary Arrow array, or iterable of bytes-like
        Concatenated batches, in one piece or in many. Null elements of an array have no batches.
    check_crc : bool
        Whether to check each batch's CRC-32C.
    batch_columns : bool
        Whether to add columns with the fields of each record's batch. Records of control batches (transaction
        markers) are rows too: `is_control` marks them.
    max_decompressed_bytes : int
        Maximum decompressed bytes of a batch; at most 2 GiB.
    partial : "stop" or "raise"
        What to do with a batch that is cut off at the end of a piece.

    Returns
    -------
    pyarrow.Table
        A row for each record: offset int64, timestamp timestamp[ms, UTC], key binary, value binary, headers
        list<struct<key: string, value: binary>>; with `batch_columns` also base_offset int64, compression
        string, timestamp_type string, producer_id int64, producer_epoch int16, sequence int32 (the record's
        own, -1 for none), is_transactional bool, is_control bool. It has chunks of about 16 MiB, so no column
        needs more than 32-bit offsets.

    Raises
    ------
    CorruptRecordError
        A batch is invalid; see `kbatch.decode`.
    TypeError
        `data` is none of the above.
    """
    return _decode(data, check_crc, batch_columns, max_decompressed_bytes, partial)[0]


def decode_items(
    batches: Any,
    *,
    check_crc: bool = True,
    batch_columns: bool = False,
    max_decompressed_bytes: int = 268435456,
    partial: str = "raise",
) -> tuple[pa.Table, np.ndarray]:
    """Decode a binary array like `decode_arrow`; also return each element's number of records (int64)."""
    return _decode(batches, check_crc, batch_columns, max_decompressed_bytes, partial)


def _decode(
    data: Any, check_crc: bool, batch_columns: bool, max_decompressed_bytes: int, partial: str
) -> tuple[pa.Table, np.ndarray]:
    decoder = TableDecoder(
        check_crc=check_crc, partial=partial, max_decompressed_bytes=max_decompressed_bytes
    )
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        decoder.decode_array(data)
    elif isinstance(data, Iterable) and not _is_bytes_like(data):
        for item in data:
            decoder.decode_bytes(item)
    else:
        decoder.decode_bytes(data)
    chunks, batches, item_rows = decoder.finish()
    table = pa.Table.from_batches([_record_batch_of(chunk) for chunk in chunks], _RECORD_SCHEMA)
    if batch_columns:
        table = _with_batch_columns(table, np.frombuffer(batches, _BATCH_FIELDS))
    return table, np.frombuffer(item_rows, np.int64)


def _is_bytes_like(data: Any) -> bool:
    try:
        memoryview(data)
    except TypeError:
        return False
    return True


def _record_batch_of(chunk: RecordChunk) -> pa.RecordBatch:
    """Return a decoded pyarrow RecordBatch, on the buffers of a chunk."""
    arrays = [_COLUMN_MAKERS[field.name](chunk, field.type) for field in _RECORD_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=_RECORD_SCHEMA)


def _plain_column(values: Buffer | None, chunk: RecordChunk, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, chunk.row_count, [None, pa.py_buffer(values)], 0)


def _binary_column(column: BinaryBuffers | None, kind: pa.DataType, length: int) -> pa.Array:
    assert column is not None
    null_count, validity, *buffers = column
    bits = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(kind, length, [bits, *map(pa.py_buffer, buffers)], null_count)


def _headers_column(chunk: RecordChunk, kind: pa.DataType) -> pa.Array:
    item, count = kind.value_type, chunk.header_count
    fields = [
        _binary_column(chunk.header_key, item.field(0).type, count),
        _binary_column(chunk.header_value, item.field(1).type, count),
    ]
    headers = pa.Array.from_buffers(item, count, [None], 0, children=fields)
    return pa.Array.from_buffers(
        kind, chunk.row_count, [None, pa.py_buffer(chunk.header_lists)], 0, children=[headers]
    )


def _timestamp_type_column(chunk: RecordChunk, kind: pa.DataType) -> pa.Array:
    return _constant_column(TIMESTAMP_TYPES, int(chunk.is_log_append_time), chunk.row_count, kind)


def _constant_column(names: Sequence[str], index: int, length: int, kind: pa.DataType) -> pa.Array:
    """Return a dictionary column in which every row is names[index]."""
    indices = _repeated(index, kind.index_type, max(length, _SHARED_ROWS)).slice(0, length)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, kind.value_type), safe=False)


@lru_cache(maxsize=8)
def _repeated(value: int, kind: pa.DataType, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), length)


_COLUMN_MAKERS: dict[str, Callable[[RecordChunk, Any], Any]] = {
    "offset": lambda chunk, kind: _plain_column(chunk.offsets, chunk, kind),
    "timestamp": lambda chunk, kind: _plain_column(chunk.timestamps_ms, chunk, kind),
    "timestamp_type": _timestamp_type_column,
    "key": lambda chunk, kind: _binary_column(chunk.key, kind, chunk.row_count),
    "value": lambda chunk, kind: _binary_column(chunk.value, kind, chunk.row_count),
    "headers": _headers_column,
    "leader_epoch": lambda chunk, kind: _plain_column(chunk.leader_epochs, chunk, kind),
}


def fetched_schema(columns: Iterable[str], *, as_views: bool = False) -> pa.Schema:
    """Return the schema of records that were read from partitions.

    Parameters
    ----------
    columns : iterable of str
        Of FETCHED_COLUMNS, in the order of the schema.
    as_views : bool
        Whether keys and values are of binary_view, as with layout="view", and not of binary.

    Raises
    ------
    ValueError
        A column that there is not.
    """
    return _fetched_schema(tuple(columns), as_views)


@lru_cache(maxsize=64)
def _fetched_schema(columns: tuple[str, ...], as_views: bool) -> pa.Schema:
    types = _fetched_types(as_views)
    for name in columns:
        if name not in types:
            raise ValueError(f"columns must be of {', '.join(types)}, got {name!r}")
    return pa.schema([(name, types[name]) for name in columns])


@cache
def _fetched_types(as_views: bool) -> dict[str, pa.DataType]:
    types = {field.name: field.type for field in _RECORD_SCHEMA} | {
        "topic": pa.dictionary(pa.int32(), pa.string()),
        "partition": pa.int32(),
        "timestamp_type": pa.dictionary(pa.int8(), pa.string()),
        "leader_epoch": pa.int32(),
    }
    if as_views:
        types |= {"key": pa.binary_view(), "value": pa.binary_view()}
    return {name: types[name] for name in FETCHED_COLUMNS}


def fetched_batch(chunk: RecordChunk, topic: str, partition: int, columns: Iterable[str]) -> pa.RecordBatch:
    """Return the rows of a chunk from FetchedRecords.decode, with those columns, which the chunk has.

    Returns
    -------
    pyarrow.RecordBatch
        topic dictionary<int32, string>, partition int32, offset int64, timestamp timestamp[ms, UTC],
        timestamp_type dictionary<int8, string> (create_time, log_append_time), key binary, value binary,
        headers list<struct<key: string not null, value: binary>>, leader_epoch int32 (-1 if unknown). Without
        columns it still has its number of rows.
    """
    schema = fetched_schema(columns, as_views=chunk.as_views)
    if not schema.names:
        rows = pa.repeat(pa.scalar({}, pa.struct([])), chunk.row_count)
        return pa.RecordBatch.from_struct_array(rows)
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name == "topic":
            arrays.append(_constant_column((topic,), 0, chunk.row_count, kind))
        elif name == "partition":
            values = pa.py_buffer(np.full(chunk.row_count, partition, np.int32))
            arrays.append(pa.Array.from_buffers(kind, chunk.row_count, [None, values], 0))
        else:
            arrays.append(_COLUMN_MAKERS[name](chunk, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# BatchFields of table_decoder.pyx.
_BATCH_FIELDS = [
    ("base_offset", "i8"),
    ("producer_id", "i8"),
    ("base_sequence", "i4"),
    ("record_count", "i4"),
    ("producer_epoch", "i2"),
    ("attributes", "i2"),
    ("unused", "i4"),
]


def _with_batch_columns(table: pa.Table, batches: np.ndarray) -> pa.Table:
    """Add the fields of each record's batch, repeated for its records."""
    of_record = np.repeat(np.arange(len(batches)), batches["record_count"])
    attributes = batches["attributes"]
    deltas = table["offset"].to_numpy() - batches["base_offset"][of_record]
    base_sequence = batches["base_sequence"].astype(np.int64)[of_record]
    sequence = np.where(base_sequence < 0, -1, (base_sequence + deltas) & 0x7FFFFFFF).astype(np.int32)
    codecs = pa.array(CODEC_NAMES).take(pa.array(attributes & 7))
    kinds = pa.array(TIMESTAMP_TYPES).take(pa.array(attributes >> 3 & 1))
    rows = pa.array(of_record)
    columns = {
        "base_offset": pa.array(batches["base_offset"][of_record]),
        "compression": codecs.take(rows),
        "timestamp_type": kinds.take(rows),
        "producer_id": pa.array(batches["producer_id"][of_record]),
        "producer_epoch": pa.array(batches["producer_epoch"][of_record]),
        "sequence": pa.array(sequence),
        "is_transactional": pa.array((attributes & 0x10 != 0)[of_record]),
        "is_control": pa.array((attributes & 0x20 != 0)[of_record]),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table
