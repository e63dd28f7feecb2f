"""Spark's own Kafka connector beside ours: the same rows in both, in one session."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.spark.sinks import finish, new_sink

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.spark,
    pytest.mark.usefixtures("sparks_connector"),
]
ROWS = 5000


def test_sparks_own_sink_writes_the_same(spark: SparkSession, embedded_bootstrap_servers: str) -> None:
    """Each row with its topic, partition, key, value and headers."""
    number = f.col("id")
    header = f.struct(f.lit("number").alias("key"), number.cast("string").cast("binary").alias("value"))
    frame = spark.range(0, ROWS, 1, 3).select(
        f.when(number % 5 > 0, f.substring(f.sha2(number.cast("string"), 256), 1, (number % 40).cast("int")))
        .cast("binary")
        .alias("key"),
        f.when(number % 11 > 0, f.repeat(number.cast("string"), 3)).alias("value"),
        f.when(number % 3 > 0, f.array(header, header)).alias("headers"),
        f.when((number % 5 == 0) | (number % 2 > 0), (number % 4).cast("int")).alias("partition"),
    )
    found = []
    for format in ("kafka", "kbatch"):
        sink = new_sink(embedded_bootstrap_servers)
        frame.write.format(format).options(**sink.options()).mode("append").save()
        found.append(Counter((each.partition, each.key, each.value, each.headers) for each in sink.read()))
    assert found[0].total() == ROWS
    assert found[0] == found[1]


def test_R101_sparks_own_source_reads_the_same(
    spark: SparkSession, embedded_bootstrap_servers: str, tmp_path: Path
) -> None:
    """Each row, and the offsets of a checkpoint, in both directions."""
    sink = new_sink(embedded_bootstrap_servers)
    options = {"kafka.bootstrap.servers": sink.brokers, "subscribe": sink.topic, "includeHeaders": "true"}

    def write(first: int) -> None:
        number = f.col("id")
        header = f.struct(f.lit("number").alias("key"), number.cast("string").cast("binary").alias("value"))
        rows = spark.range(first, first + ROWS, 1, 3).select(
            f.when(number % 5 > 0, number.cast("string")).cast("binary").alias("key"),
            f.when(number % 11 > 0, f.repeat(number.cast("string"), 3)).alias("value"),
            f.when(number % 3 > 0, f.array(header, header)).alias("headers"),
        )
        sink.write(rows)

    def go_on(format: str) -> int:
        """Run a query with the checkpoint up to the end, and return its number of rows."""
        counts: list[int] = []
        stream = spark.readStream.format(format).options(**options, startingOffsets="earliest").load()
        finish(
            stream.writeStream.foreachBatch(lambda frame, number: counts.append(frame.count()))
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
        )
        return sum(counts)

    for part, format in enumerate(("kafka", "kbatch", "kafka")):
        write(part * ROWS)
        assert (found := go_on(format)) == ROWS, f"{format} read {found} rows of {ROWS}"
    theirs, ours = (
        spark.read.format(format).options(**options, minPartitions="7").load()
        for format in ("kafka", "kbatch")
    )
    assert theirs.schema.simpleString() == ours.schema.simpleString()
    assert theirs.exceptAll(ours).count() == 0
    assert theirs.count() == ours.count() == 3 * ROWS
