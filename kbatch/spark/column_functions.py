"""Functions of columns as Arrow UDFs: a key's Kafka partition, rows into record batches, and back.

Each call creates its UDF, so importing this needs no session, and a plan of Spark Connect gets its own kind.
The types are objects, because a session would have to parse a DDL string.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql.functions import lit
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, DataType, IntegerType, StructType

from kbatch._native.arrow.row_hashes import hash_keys
from kbatch.codec.columns import ArrowEncoder, decode_items
from kbatch.spark.arrow_functions import ENCODE_BYTES, gathered
from kbatch.spark.schemas import ENCODED_ARROW, ENCODED_SCHEMA, RECORD_ARROW, RECORD_SCHEMA, declared_batches
from kbatch.spark.versions import PysparkTooOldError, check_pyspark

# Results of `decode_batches` for each record, and of `kbatch_encode` for each batch.
DECODED_TYPE, ENCODED_TYPE = (
    ArrayType(StructType([field for field in schema if field.name != "partition"]))
    for schema in (RECORD_SCHEMA, ENCODED_SCHEMA)
)
_DECODED_ARROW, _ENCODED_ARROW = (
    pa.schema([field for field in schema if field.name != "partition"])
    for schema in (RECORD_ARROW, ENCODED_ARROW)
)
# The arguments of `kbatch_encode`, in order.
_ROLES = ("key", "value", "headers", "timestamp")
# The maximum bytes of an Arrow array in Spark, and so of a value.
_MAX_VALUE_BYTES = 2**31 - 1


def murmur2(key: Column | str) -> Column:
    """Return Java's murmur2 of a key (binary or string) as an int; null for null.

    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """
    return _udf(_murmur2, IntegerType())(key)


def kafka_partition(key: Column | str, num_partitions: int) -> Column:
    """Return the partition that Kafka's producers choose for a key (binary or string) as an int; null for
    null, which they may place anywhere.

    Parameters
    ----------
    num_partitions : int
        The topic's number. ValueError unless it is 1 or more.
    """
    if isinstance(num_partitions, bool) or not isinstance(num_partitions, int):
        raise TypeError(f"num_partitions must be an int, got {type(num_partitions).__name__}")
    if not 1 <= num_partitions < 2**31:
        raise ValueError(
            f"num_partitions must be 1 or more, the topic's number of partitions, got {num_partitions}"
        )

    def partition(keys: pa.Array) -> pa.Array:
        return _hashed(keys, num_partitions)

    return _udf(partition, IntegerType())(key)


def decode_batches(batch: Column | str) -> Column:
    """Return the records of record batches (binary, one or more whole ones a row) as array<struct<offset,
    timestamp, key, value, headers>>; null for null. CRCs are checked: the query fails with
    CorruptRecordError.
    """
    return _udf(_decoded, DECODED_TYPE)(batch)


def kbatch_encode(
    key: Column | str | None,
    value: Column | str,
    headers: Column | str | None = None,
    timestamp: Column | str | None = None,
    *,
    compression: str = "none",
    compression_level: int | None = None,
    batch_size: int = 16384,
) -> Column:
    """Encode the rows of each group into record batches, as an aggregate for `groupBy(...).agg(...)`.

    It returns array<struct<record_count, max_timestamp_ms, uncompressed_bytes, batch>>. `inline` turns each
    batch into a row: with a column `partition` these are the rows of ENCODED_SCHEMA. A group's rows come in
    the order of Spark's shuffle. The groups of a task share the learnt compression ratio.

    Parameters
    ----------
    key, value : Column or str
        Binary or string. A key of None means no key.
    headers : Column, str or None
        array<struct<key: string, value: binary>> or map<string, binary>.
    timestamp : Column, str or None
        Timestamp, or long milliseconds; null is the time of encoding.
    compression, compression_level, batch_size
        See `kbatch.encode_arrow`; checked here, on the driver.

    Raises
    ------
    ValueError, TypeError
        An argument that `kbatch.encode_arrow` refuses. The query fails if the batches of one group have 2 GiB
        or more, which no value in Spark can hold.
    """
    if value is None:
        raise TypeError("value must be a Column or the name of one, got None; name the column of the values")
    columns = [key, value, headers, timestamp]
    while columns[-1] is None:
        columns.pop()
    encode = _group_encoder(compression, compression_level, batch_size)
    return _aggregate(encode)(*(lit(None) if column is None else column for column in columns))


def sql_functions(**encoding: Any) -> dict[str, Any]:
    """Return the UDFs that this pyspark has, by their SQL names.

    `encoding` has the keyword arguments of `kbatch_encode`.
    """
    encode = _group_encoder(**encoding)
    functions: dict[str, Callable[[], Any]] = {
        "murmur2": lambda: _udf(_murmur2, IntegerType()),
        "kafka_partition": lambda: _udf(_partition_of_count, IntegerType()),
        "decode_batches": lambda: _udf(_decoded, DECODED_TYPE),
        "kbatch_encode": lambda: _aggregate(encode),
    }
    made = {}
    for name, make in functions.items():
        with suppress(PysparkTooOldError):
            made[name] = make()
    return made


def _udf(function: Callable[..., pa.Array | pa.Scalar], kind: DataType) -> Callable[..., Column]:
    """Make a UDF; the function's annotations tell Spark whether it is an aggregate."""
    make: Any = arrow_udf  # its stubs allow no arrays as arguments
    made: Callable[..., Column] = make(function, returnType=kind)
    return made


def _aggregate(encode: Callable[[Iterator[tuple[pa.Array, ...]]], pa.Scalar]) -> Callable[..., Column]:
    check_pyspark("4.2", "kbatch_encode")
    return _udf(encode, ENCODED_TYPE)


def _murmur2(keys: pa.Array) -> pa.Array:
    return _hashed(keys, 0)


def _hashed(keys: pa.Array, partitions: int) -> pa.Array:
    return pa.array(_hashes(keys, partitions), mask=_nulls(keys))


def _hashes(keys: pa.Array, partitions: int) -> np.ndarray:
    return np.frombuffer(hash_keys(pa.record_batch([keys], ["key"]), "key", partitions), np.int32)


def _nulls(column: pa.Array) -> np.ndarray:
    nulls: np.ndarray = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _partition_of_count(keys: pa.Array, counts: pa.Array) -> pa.Array:
    """Return the number of partitions from SQL's column, whose values nearly always equal."""
    wrong = pc.drop_null(counts.filter(pc.less(counts, 1)))
    if counts.null_count or len(wrong):
        raise ValueError(
            "num_partitions must be 1 or more, the topic's number of partitions, got "
            f"{wrong[0].as_py() if len(wrong) else 'null'}"
        )
    partitions = (_hashes(keys, 0) & 0x7FFFFFFF) % counts.to_numpy()
    return pa.array(partitions.astype(np.int32), mask=_nulls(keys))


def _group_encoder(
    compression: str = "none", compression_level: int | None = None, batch_size: int = 16384
) -> Callable[[Iterator[tuple[pa.Array, ...]]], pa.Scalar]:
    """The aggregate itself; each task has a copy, which makes an encoder for its first group."""
    settings: dict[str, Any] = {
        "compression": compression,
        "compression_level": compression_level,
        "batch_size": batch_size,
    }
    ArrowEncoder(partitions=1, **settings)  # refuse wrong arguments before any task starts
    encoders: list[ArrowEncoder] = []

    def encode(batches: Iterator[tuple[pa.Array, ...]]) -> pa.Scalar:
        if not encoders:
            encoders.append(ArrowEncoder(partitions=1, **settings))
        encoder = encoders[0]
        calls = [encoder.encode(rows) for rows in gathered(map(_rows, batches), ENCODE_BYTES)]
        encoded = pa.concat_tables([*calls, encoder.flush()])
        if (size := pc.sum(pc.binary_length(encoded["batch"])).as_py() or 0) > _MAX_VALUE_BYTES:
            raise ValueError(
                f"the batches of a group have {size} bytes, and a value in Spark holds {_MAX_VALUE_BYTES}; "
                "group by more columns, or use `kbatch.spark.encode`, which gives a row for each batch"
            )
        return pa.ListArray.from_arrays([0, encoded.num_rows], _structs(encoded, _ENCODED_ARROW))[0]

    return encode


def _rows(columns: tuple[pa.Array, ...]) -> pa.RecordBatch:
    count = 1 if isinstance(columns, pa.Array) else len(columns)  # Spark passes no tuple of one
    if not 2 <= count <= len(_ROLES):
        raise TypeError(
            f"kbatch_encode must have (key, value[, headers[, timestamp]]) by position, got {count} arguments"
        )
    given = {
        role: column
        for role, column in zip(_ROLES, columns, strict=False)
        if role == "value" or not pa.types.is_null(column.type)
    }
    return pa.RecordBatch.from_pydict(given)


def _decoded(batches: pa.Array) -> pa.Array:
    records, counts = decode_items(batches.drop_null())
    lengths = np.zeros(len(batches), np.int64)
    lengths[~_nulls(batches)] = counts
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, _structs(records, _DECODED_ARROW), mask=batches.is_null())


def _structs(table: pa.Table, schema: pa.Schema) -> pa.Array:
    pieces = [piece.to_struct_array() for piece in declared_batches(table, schema)]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.struct(list(schema)))
