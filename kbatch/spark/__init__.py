"""Kafka in Spark: rows into topics, at least or exactly once, and record batches as columns and files.

    kbatch.spark.register(spark)
    frame.write.format("kbatch").option("kafka.bootstrap.servers", "localhost:9092").option(
        "topic", "flights").mode("append").save()

    encoded = kbatch.spark.encode(frame, partitions=12, compression="zstd")
    by_partition = encoded.repartitionById(12, "partition")
    by_partition.write.format("kbatch-segments").option("topic", "flights").mode("append").save(path)
    spark.read.format("kbatch-segments").load(path)

Importing this module needs no session, and nothing here uses a SparkContext. So it also works over Spark
Connect, with kbatch installed on the server.
"""

from kbatch.distribution import pip_install

try:
    import pyarrow as _pyarrow  # noqa: F401
    import pyspark as _pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(f"kbatch.spark needs {error.name}; {pip_install('spark')}") from error
else:
    from kbatch.spark.versions import OLDEST, check_pyspark

    check_pyspark(OLDEST, "kbatch.spark")

from pyspark.sql import SparkSession

from kbatch.spark.arrow_functions import decode, decoder, encode, encoder
from kbatch.spark.column_functions import (
    decode_batches,
    kafka_partition,
    kbatch_encode,
    murmur2,
    sql_functions,
)
from kbatch.spark.data_source import KbatchDataSource
from kbatch.spark.schemas import ENCODED_SCHEMA, RECORD_SCHEMA, SEGMENT_SCHEMA
from kbatch.spark.segments import SegmentDataSource
from kbatch.spark.sink_rows import PartitionOffsets, TaskReport

__all__ = [
    "ENCODED_SCHEMA",
    "RECORD_SCHEMA",
    "SEGMENT_SCHEMA",
    "PartitionOffsets",
    "TaskReport",
    "decode",
    "decode_batches",
    "decoder",
    "encode",
    "encoder",
    "kafka_partition",
    "kbatch_encode",
    "murmur2",
    "register",
]


def register(
    spark: SparkSession,
    *,
    compression: str = "none",
    compression_level: int | None = None,
    batch_size: int = 16384,
) -> None:
    """Register the formats and SQL functions with a session.

    The formats are `kbatch` and `kbatch-segments`; if kbatch is installed from a wheel, Spark finds them by
    itself. The functions are `kafka_partition`, `murmur2`, `decode_batches` and `kbatch_encode`.

    Parameters
    ----------
    compression, compression_level, batch_size
        The encoding of `kbatch_encode` in SQL, see `kbatch.encode_arrow`. Another call changes it for later
        queries.

    Raises
    ------
    ValueError, TypeError
        An argument that `kbatch.encode_arrow` refuses.
    """
    spark.dataSource.register(KbatchDataSource)
    spark.dataSource.register(SegmentDataSource)
    functions = sql_functions(
        compression=compression, compression_level=compression_level, batch_size=batch_size
    )
    for name, function in functions.items():
        spark.udf.register(name, function)
