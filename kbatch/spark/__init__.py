"""Kafka in Spark: rows into topics, at least or exactly once, and record batches as columns and files.

    kbatch.spark.register(spark)
    frame.write.format("kbatch").option("kafka.bootstrap.servers", "localhost:9092").option(
        "topic", "flights").mode("append").save()

    encoded = kbatch.spark.encode(frame, partitions=12, compression="zstd")
    by_partition = encoded.repartitionById(12, "partition")
    by_partition.write.format("kbatch-segments").option("topic", "flights").mode("append").save(path)
    spark.read.format("kbatch-segments").load(path)

Importing this needs no session, and nothing here uses a SparkContext: it works over Spark Connect too,
where the server needs kbatch installed.
"""

try:
    import pyarrow as _pyarrow  # noqa: F401
    import pyspark as _pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(f"kbatch.spark needs {error.name}: pip install 'kbatch[spark]'") from error

from pyspark.sql import SparkSession

from kbatch.spark.arrow_functions import decode, decoder, encode, encoder
from kbatch.spark.column_functions import decode_batches, kafka_partition, murmur2
from kbatch.spark.schemas import ENCODED_SCHEMA, RECORD_SCHEMA, SEGMENT_SCHEMA
from kbatch.spark.segments import SegmentDataSource
from kbatch.spark.sink import KbatchDataSource
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
    "murmur2",
    "register",
]


def register(spark: SparkSession) -> None:
    """Make the formats `kbatch` and `kbatch-segments` known to a session.

    Spark finds them by itself where kbatch is installed from a wheel; calling this does no harm then.
    """
    spark.dataSource.register(KbatchDataSource)
    spark.dataSource.register(SegmentDataSource)
