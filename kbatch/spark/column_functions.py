"""Functions of columns: where Kafka would put a key, and what is in record batches, as Arrow UDFs.

Each call makes its UDF, so that importing this needs no session, and a plan of Spark Connect gets one of its
own kind. The types are objects: a DDL string would be parsed by a session.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import ArrayType, DataType, IntegerType, StructType

from kbatch._native.row_hashes import hash_keys
from kbatch.columns import decode_items
from kbatch.spark.schemas import RECORD_ARROW, RECORD_SCHEMA, declared_batches
from kbatch.spark.versions import needs_pyspark

# What `decode_batches` gives for each record.
DECODED_TYPE = ArrayType(StructType([field for field in RECORD_SCHEMA if field.name != "partition"]))
_DECODED_ARROW = pa.schema([field for field in RECORD_ARROW if field.name != "partition"])


def murmur2(key: Column | str) -> Column:
    """Java's murmur2 of a key (binary or string), as an int; null for null.

    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """
    return _udf(_murmur2, IntegerType())(key)


def kafka_partition(key: Column | str, num_partitions: int) -> Column:
    """The partition that Kafka's producers choose for a key (binary or string), as an int; null for null,
    which they place anywhere.

    Parameters
    ----------
    num_partitions : int
        Of the topic. ValueError unless it is 1 or more.
    """
    if isinstance(num_partitions, bool) or not isinstance(num_partitions, int):
        raise TypeError(f"num_partitions must be an int, not {type(num_partitions).__name__}")
    if not 1 <= num_partitions < 2**31:
        raise ValueError(
            f"num_partitions must be 1 or more, the topic's number of partitions; it is {num_partitions}"
        )

    def partition(keys: pa.Array) -> pa.Array:
        return _hashed(keys, num_partitions)

    return _udf(partition, IntegerType())(key)


def decode_batches(batch: Column | str) -> Column:
    """The records of record batches (binary, one or more whole ones a row), as
    array<struct<offset, timestamp, key, value, headers>>; null for null. CRCs are checked:
    the query fails with CorruptRecordError.
    """
    return _udf(_decoded, DECODED_TYPE)(batch)


def _udf(function: Callable[[pa.Array], pa.Array], kind: DataType) -> Callable[[Column | str], Column]:
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError as error:
        raise needs_pyspark("4.1", "a column function of kbatch.spark") from error
    make: Any = arrow_udf  # whose stubs know of no arrays as arguments
    made: Callable[[Column | str], Column] = make(function, returnType=kind)
    return made


def _murmur2(keys: pa.Array) -> pa.Array:
    return _hashed(keys, 0)


def _hashed(keys: pa.Array, partitions: int) -> pa.Array:
    hashes = np.frombuffer(hash_keys(pa.record_batch([keys], ["key"]), "key", partitions), np.int32)
    return pa.array(hashes, mask=keys.is_null().to_numpy(zero_copy_only=False))


def _decoded(batches: pa.Array) -> pa.Array:
    is_null = batches.is_null()
    records, counts = decode_items(batches.drop_null())
    found = declared_batches(records, _DECODED_ARROW)
    pieces = [piece.to_struct_array() for piece in found]
    values = pa.concat_arrays(pieces) if pieces else pa.array([], pa.struct(list(_DECODED_ARROW)))
    lengths = np.zeros(len(batches), np.int64)
    lengths[~is_null.to_numpy(zero_copy_only=False)] = counts
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=is_null)
