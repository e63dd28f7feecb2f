"""Functions for `mapInArrow`: rows to record batches and record batches to rows, all in Arrow."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kbatch.codec.columns import ArrowEncoder, decode_items, encode_arrow
from kbatch.spark.schemas import (
    ENCODED_ARROW,
    ENCODED_SCHEMA,
    HEADERS_TYPE,
    RECORD_ARROW,
    RECORD_SCHEMA,
    declared_batches,
    same_type,
)

ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# Rows to encode in one call: Spark passes 10,000 at a time, which would give many short columns.
ENCODE_BYTES = 8 << 20
# Compressed bytes to decode in one call.
DECODE_BYTES = 4 << 20

BYTES_TYPES = (BinaryType(), StringType())
COLUMN_TYPES: dict[str, tuple[DataType, ...]] = {
    "key": BYTES_TYPES,
    "value": BYTES_TYPES,
    "headers": (HEADERS_TYPE, MapType(StringType(), BinaryType())),
    "timestamp": (TimestampType(), TimestampNTZType(), LongType()),
    "partition": (IntegerType(),),
}


def encoder(
    partitions: int | None = 12,
    compression: str = "none",
    compression_level: int | None = None,
    batch_size: int = 16384,
    *,
    key: str = "key",
    value: str = "value",
    headers: str = "headers",
    timestamp: str = "timestamp",
    partition: str = "partition",
) -> ArrowFunction:
    """Return a function that turns rows into record batches, for `frame.mapInArrow(..., ENCODED_SCHEMA)`.

    The arguments are those of `kbatch.encode_arrow`, checked here on the driver. Rows keep their order within
    a Kafka partition and a Spark partition. Each task has one `kbatch.ArrowEncoder`, which learns the
    compression ratio from all batches of the task, and closes the open ones at its end. A worker holds about
    8 MiB of rows, and partitions x batch_size / ratio bytes of open batches.

    Parameters
    ----------
    partitions : int or None
        Kafka partitions; a row without a partition goes to the one that Java chooses for its key. None: every
        row names its partition.
    compression, compression_level : str, int or None
        "none", "gzip", "snappy", "lz4" or "zstd", and its level.
    batch_size : int
        Bytes of a full batch (the producer's batch.size).
    key, value, headers, timestamp, partition : str
        Names of the columns. All but the value's may be missing under their default names.

    Raises
    ------
    ValueError, TypeError
        An argument that `kbatch.encode_arrow` refuses.
    """
    names = {"key": key, "value": value, "headers": headers, "timestamp": timestamp, "partition": partition}
    arguments: dict[str, Any] = {
        **names,
        "partitions": partitions,
        "compression": compression,
        "compression_level": compression_level,
        "batch_size": batch_size,
    }
    # Refuse wrong arguments before any task starts.
    encode_arrow(_one_row(names, 0 if partitions is None else None), **arguments)

    def encode_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = ArrowEncoder(**arguments)
        for rows in gathered(batches, ENCODE_BYTES):
            yield from declared_batches(task.encode(rows), ENCODED_ARROW)
        yield from declared_batches(task.flush(), ENCODED_ARROW)

    return encode_rows


def _one_row(names: dict[str, str], partition: int | None) -> pa.Table:
    types = {
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        "timestamp": pa.timestamp("us", "UTC"),
        "partition": pa.int32(),
    }
    zero = {"headers": [], "timestamp": 0, "partition": partition}
    return pa.table(
        {name: pa.array([zero.get(role, b"")], types.get(role, pa.binary())) for role, name in names.items()}
    )


def gathered(batches: Iterable[pa.RecordBatch], least_bytes: int) -> Iterator[pa.Table]:
    """Join batches, without copying, to tables of at least `least_bytes`, except the last."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= least_bytes:
            yield pa.Table.from_batches(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def decoder() -> ArrowFunction:
    """Return a function that turns record batches into rows, for `encoded.mapInArrow(..., RECORD_SCHEMA)`.

    It takes a binary column `batch`, with one or more whole record batches a row, and an int column
    `partition`, which it copies (null if there is none). Other columns are dropped. CRCs are checked.

    The function raises CorruptRecordError for bytes that are not record batches, and ValueError for a missing
    or null `batch`.
    """

    def decode_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for encoded in batches:
            for chunk in _chunks(encoded):
                yield from declared_batches(_decoded(chunk), RECORD_ARROW)

    return decode_rows


def _chunks(encoded: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices of about DECODE_BYTES of record batches, whose content may be many times larger."""
    if "batch" not in encoded.schema.names:
        raise ValueError(f"no column 'batch' among {encoded.schema.names}; decode the rows of `encoder`")
    column = encoded.column("batch")
    if column.null_count:
        raise ValueError(
            f"column 'batch' is null in {column.null_count} rows; every row needs a record batch"
        )
    if encoded.num_rows == 0:
        return
    ends = np.cumsum(pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64))
    starts = [0, *(np.flatnonzero(np.diff(ends // DECODE_BYTES)) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], encoded.num_rows], strict=True):
        yield encoded.slice(start, end - start)


def _decoded(encoded: pa.RecordBatch) -> pa.Table:
    records, counts = decode_items(encoded.column("batch"))
    if "partition" in encoded.schema.names:
        rows = pa.array(np.repeat(np.arange(encoded.num_rows), counts))
        partition = encoded.column("partition").take(rows)
    else:
        partition = pa.nulls(records.num_rows, pa.int32())
    return records.append_column("partition", partition)


def encode(frame: DataFrame, partitions: int | None = 12, **arguments: Any) -> DataFrame:
    """Call `frame.mapInArrow(encoder(partitions, ...), ENCODED_SCHEMA)` after checking the columns on the
    driver.

    Columns: value and key (binary or string), headers (array<struct<key: string, value: binary>> or
    map<string, binary>), timestamp (timestamp, or long milliseconds), partition (int); only value is
    required.

    Raise ValueError for a missing or unknown column and TypeError for one of a wrong type, naming it, and the
    errors of `encoder`.
    """
    function = encoder(partitions, **arguments)
    _check_columns(frame.schema, {role: arguments.get(role, role) for role in COLUMN_TYPES})
    return frame.mapInArrow(function, ENCODED_SCHEMA)


def decode(encoded: DataFrame) -> DataFrame:
    """Call `encoded.mapInArrow(decoder(), RECORD_SCHEMA)` after checking the columns on the driver.

    Raise ValueError for a missing `batch` and TypeError for a column of a wrong type.
    """
    types = {field.name: field.dataType for field in encoded.schema.fields}
    if "batch" not in types:
        raise ValueError(f"no column 'batch' among {list(types)}; decode the rows of `encode`")
    for name, expected in (("batch", BinaryType()), ("partition", IntegerType())):
        if types.get(name, expected) != expected:
            raise TypeError(
                f"column {name!r} must be {expected.simpleString()}, got {types[name].simpleString()}"
            )
    return encoded.mapInArrow(decoder(), RECORD_SCHEMA)


def _check_columns(schema: StructType, names: dict[str, str]) -> None:
    types = {field.name: field.dataType for field in schema.fields}
    for role, name in names.items():
        if name not in types:
            if role == "value" or name != role:
                raise ValueError(f"no column {name!r} for the {role} among {list(types)}")
            continue
        kind, allowed = types.pop(name), COLUMN_TYPES[role]
        if not any(same_type(kind, other) for other in allowed):
            expected = " or ".join(other.simpleString() for other in allowed)
            raise TypeError(f"column {name!r} must be {expected} for the {role}, got {kind.simpleString()}")
    if types:
        unknown = next(iter(types))
        raise ValueError(f"unknown column {unknown!r}; drop it, or give it a role, as in value={unknown!r}")
