"""Spark's own Kafka connector and functions beside ours: the same rows in both, in one session."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

from tests.spark.sinks import finish, new_sink
from tests.support.registry import Registry

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


AVRO = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "note", "type": ["null", "string"], "default": null},
    {"name": "counts", "type": {"type": "map", "values": "int"}}
]}"""
FRAME_BYTES = 5


def test_F_MIG_02_from_avro_reads_what_is_written(
    spark: SparkSession, embedded_bootstrap_servers: str
) -> None:
    rows = spark.range(0, 100, 1, 3).selectExpr(
        "named_struct('id', id, 'price', CAST(id / 100 AS DECIMAL(9, 2)), "
        "'at', timestamp_micros(id * 1000003), 'local', CAST(timestamp_micros(id) AS TIMESTAMP_NTZ), "
        "'day', date_from_unix_date(CAST(id AS INT)), 'tags', array(CAST(id AS STRING)), "
        "'note', CASE WHEN id % 2 > 0 THEN 'odd' END, 'counts', map('a', CAST(id AS INT))) AS value",
    )
    sink = new_sink(embedded_bootstrap_servers)
    with Registry() as registry:
        options = {"value__format": "avro", "value__schema": AVRO, "value__register": "true"}
        sink.write(rows, **options, schema__registry__url=registry.url)
    found = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", sink.brokers)
        .option("subscribe", sink.topic)
        .load()
        .select(from_avro(f.expr(f"substring(value, {FRAME_BYTES + 1})"), AVRO).alias("value"))
    )
    assert sorted(map(repr, found.collect())) == sorted(map(repr, rows.collect()))


# Values of which some members are malformed, by a member each.
VALUES = [
    '{"id": 1, "price": 1.5, "name": "a", "tags": ["x"], "inner": {"a": 1}, "at": "2026-01-02T03:04:05Z"}',
    '{"id": "no", "price": 1.5}',
    '{"id": 2, "price": "NaN", "name": "b"}',
    '{"id": 3, "price": "Infinity"}',
    '{"id": 4, "price": {"a": 1}, "name": "c"}',
    '{"id": 5, "inner": 7, "name": "d"}',
    '{"id": 6, "at": "2026-01-02T03:04:05.123456Z"}',
    '{"id": 7, "more": true}',
    '{"id": 8, "at": "yesterday", "name": "e"}',
    '{"id": 9223372036854775808, "name": "f"}',
    '{"id": null, "name": null}',
    "{}",
]
MEMBERS = "id BIGINT, price DOUBLE, name STRING, tags ARRAY<STRING>, inner STRUCT<a: INT>, at TIMESTAMP"


def test_F_MIG_04_members_are_those_of_from_json(
    spark: SparkSession, embedded_bootstrap_servers: str
) -> None:
    sink = new_sink(embedded_bootstrap_servers)
    sink.write(spark.createDataFrame([(text,) for text in VALUES], "value STRING"))
    options = {"kafka.bootstrap.servers": sink.brokers, "subscribe": sink.topic}
    theirs = (
        spark.read.format("kafka")
        .options(**options)
        .load()
        .select(f.from_json(f.col("value").cast("string"), MEMBERS).alias("value"))
    )
    read = spark.read.format("kbatch").options(**options)
    given = {"value.format": "json", "value.schema": MEMBERS, "on.malformed": "fields"}
    ours = read.options(**given).load().select("value")
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect()))
