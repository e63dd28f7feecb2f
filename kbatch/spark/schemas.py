"""The schemas of rows between Spark and kbatch, in Spark's types and in Arrow's.

Spark accepts only the declared types from a Python worker: timestamp[us, UTC], binary and string with 32-bit
offsets, int32. `declared_batches` converts tables to them, in batches of a bounded size.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

# Rows of `encoder`, one for each record batch; uncompressed_bytes and max_timestamp_ms are in bytes and ms.
ENCODED_SCHEMA = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("record_count", IntegerType()),
        StructField("max_timestamp_ms", LongType()),
        StructField("uncompressed_bytes", LongType()),
        StructField("batch", BinaryType()),
    ]
)

# Rows of `decoder`, one for each record; partition is copied, null if the input has none.
RECORD_SCHEMA = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS_TYPE),
    ]
)

# Rows of `kbatch-segments`: the columns of Spark's own Kafka source, headers included. timestampType: 0 set
# by the producer, 1 by the broker.
SEGMENT_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS_TYPE),
    ]
)

ARROW_TYPES: dict[DataType, pa.DataType] = {
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    TimestampType(): pa.timestamp("us", "UTC"),
    HEADERS_TYPE: pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ),
}
ENCODED_ARROW, RECORD_ARROW, SEGMENT_ARROW = (
    pa.schema([(field.name, ARROW_TYPES[field.dataType]) for field in schema])
    for schema in (ENCODED_SCHEMA, RECORD_SCHEMA, SEGMENT_SCHEMA)
)

# Far below the 2 GiB of 32-bit offsets, and small enough for the memory of a worker and of the JVM.
MAX_BATCH_BYTES = 64 << 20


def declared_batches(
    table: pa.Table, schema: pa.Schema, max_bytes: int = MAX_BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the table's rows in the types of `schema`, in batches of at most `max_bytes` unless a single row
    is larger.

    Raise ValueError for a value that a declared type cannot hold, such as a timestamp beyond 64-bit
    microseconds.
    """
    if table.nbytes > max_bytes and table.num_rows > 1:
        half = table.num_rows // 2
        yield from declared_batches(table.slice(0, half), schema, max_bytes)
        yield from declared_batches(table.slice(half), schema, max_bytes)
        return
    columns = []
    for field in schema:
        try:
            columns.append(table[field.name].cast(field.type))
        except pa.ArrowInvalid as error:
            raise ValueError(f"column {field.name!r} does not fit Spark's {field.type}: {error}") from error
    yield from pa.table(columns, schema=schema).to_batches()


def null_if_empty(headers: pa.Array) -> pa.Array:
    """Return headers of records, with null where a record has none, as in Spark's source."""
    empty = pc.equal(pc.list_value_length(headers), 0)
    count = empty.true_count
    if not count:
        return headers
    if count == len(headers):
        return pa.nulls(count, headers.type)
    return pc.if_else(empty, pa.scalar(None, headers.type), headers)


def same_type(kind: DataType, other: DataType) -> bool:
    """True if the types are equal except for nulls inside."""
    if isinstance(kind, ArrayType) and isinstance(other, ArrayType):
        return same_type(kind.elementType, other.elementType)
    return kind.simpleString() == other.simpleString()
