"""Functions of columns: on Arrow arrays as Spark hands them over, and in a real session."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

import kbatch
import kbatch.spark
from benchmarks.clients import work
from kbatch.errors import CorruptRecordError
from kbatch.spark import (
    ENCODED_SCHEMA,
    column_functions,
    decode_batches,
    encode,
    kafka_partition,
    kbatch_encode,
    murmur2,
)
from tests import ROOT
from tests.oracle import plain

KEYS = [b"", b"k", None, b"key-17", b"\xff\x00"]


def test_hashes_of_arrays() -> None:
    for keys in (pa.array(KEYS, pa.binary()), pa.array([*KEYS, b"cut"], pa.large_binary()).slice(0, 5)):
        expected = [None if key is None else plain.murmur2(key) for key in KEYS]
        assert column_functions._hashed(keys, 0).to_pylist() == expected
        expected = [None if key is None else plain.partition_for_key(key, 7) for key in KEYS]
        assert column_functions._hashed(keys, 7).to_pylist() == expected
    assert column_functions._hashed(pa.array([], pa.string()), 7).to_pylist() == []


def test_batches_of_arrays() -> None:
    one, two = kbatch.encode([(b"k", b"1", [("h", None)], 5)]), kbatch.encode([(None, b"2"), (None, None)])
    decoded = column_functions._decoded(pa.array([one, None, one + two, b""], pa.binary()))
    assert str(decoded.type).startswith("list<")
    values = [None if row is None else [record["value"] for record in row] for row in decoded.to_pylist()]
    assert values == [[b"1"], None, [b"1", b"2", None], []]
    assert decoded[0][0].as_py()["headers"] == [{"key": "h", "value": None}]
    assert column_functions._decoded(pa.array([None], pa.binary())).to_pylist() == [None]
    assert column_functions._decoded(pa.array([], pa.binary())).to_pylist() == []
    with pytest.raises(CorruptRecordError):
        column_functions._decoded(pa.array([one[:-1]], pa.binary()))


@pytest.mark.parametrize("count", [0, -1, 2**31, 2.0, True, "12"])
def test_wrong_numbers_of_partitions_are_refused(count: object) -> None:
    with pytest.raises((ValueError, TypeError), match="num_partitions must be"):
        kafka_partition("key", count)  # type: ignore[arg-type]


def test_partitions_of_a_column_of_counts() -> None:
    keys, counts = pa.array(KEYS, pa.binary()), [1, 2, 7, 7, 2**31 - 1]
    expected = [
        None if key is None else plain.partition_for_key(key, count)
        for key, count in zip(KEYS, counts, strict=True)
    ]
    for kind in (pa.int32(), pa.int64()):
        found = column_functions._partition_of_count(keys, pa.array(counts, kind))
        assert (found.type, found.to_pylist()) == (pa.int32(), expected)
    for wrong in (0, -3, None):
        with pytest.raises(ValueError, match=f"must be 1 or more.* got {'null' if wrong is None else wrong}"):
            column_functions._partition_of_count(keys, pa.array([*counts[:4], wrong], pa.int32()))


# The aggregate, as a worker calls it


def groups_of(count: int, rows: int) -> list[list[tuple[pa.Array, ...]]]:
    """Return groups of events as Spark passes them: columns of key, value, headers and timestamp."""
    table = work.table_of([work.record(number) for number in range(count * rows)])
    nothing = pa.nulls(10_000)
    return [
        [
            (*batch.columns[:2], nothing[: batch.num_rows], batch.column("timestamp"))
            for batch in table.slice(number * rows, rows).to_batches(max_chunksize=10_000)
        ]
        for number in range(count)
    ]


def test_groups_become_batches_of_their_own() -> None:
    encode = column_functions._group_encoder("zstd")
    groups = groups_of(2, 25_000)
    encoded = [encode(iter(group)).as_py() for group in groups]
    for group, batches in zip(groups, encoded, strict=True):
        decoded = kbatch.decode_arrow([batch["batch"] for batch in batches])
        for number, name in enumerate(("key", "value")):
            assert decoded[name].to_pylist() == [
                value for batch in group for value in batch[number].to_pylist()
            ]
        assert [batch["record_count"] for batch in batches] == [
            len(list(read)) for batch in batches for read in kbatch.decode(batch["batch"])
        ]
    assert len(encoded[1]) < 0.7 * len(encoded[0]), "the ratio that the first taught must be kept"


def test_tasks_begin_with_an_encoder_of_their_own() -> None:
    encode = column_functions._group_encoder("zstd")
    (group,) = groups_of(1, 5_000)
    at_first = encode(iter(group))
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    sent = dumps(column_functions._group_encoder("zstd"))
    assert cloudpickle.loads(sent)(iter(group)) == at_first != encode(iter(group))


def test_group_beyond_a_value_of_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_functions, "_MAX_VALUE_BYTES", 1000)
    with pytest.raises(ValueError, match=r"the batches of a group have \d+ bytes.*group by more columns"):
        column_functions._group_encoder()(iter(groups_of(1, 100)[0]))


def test_wrong_arguments_of_the_aggregate_are_named() -> None:
    values = pa.array([b"v"])
    for columns, count in ((values, 1), ((), 0), ((values,) * 5, 5)):
        with pytest.raises(TypeError, match=f"by position, got {count} arguments"):
            column_functions._group_encoder()(iter([columns]))
    with pytest.raises(TypeError, match="column 'key' must be binary"):
        column_functions._group_encoder()(iter([(pa.array([1]), values)]))
    for settings in ({"compression": "zip"}, {"batch_size": -1}, {"compression_level": "high"}):
        with pytest.raises((ValueError, TypeError)):
            kbatch_encode("key", "value", **settings)
    for key in ("key", None):
        with pytest.raises(TypeError, match="value must be a Column or the name of one, got None"):
            kbatch_encode(key, None)  # type: ignore[arg-type]


def test_importing_needs_no_session() -> None:
    code = """
import kbatch.spark, pyspark
from pyspark.sql import SparkSession
assert SparkSession.getActiveSession() is None and pyspark.SparkContext._active_spark_context is None
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.spark
def test_in_a_session(spark: SparkSession) -> None:
    keys = f.when(f.col("id") % 7 > 0, f.concat(f.lit("key-"), "id"))
    frame = spark.range(100).select(keys.alias("key"), f.col("id").cast("string").alias("value"))
    rows = frame.select("key", murmur2("key").alias("hash"), kafka_partition(f.col("key"), 5).alias("place"))
    for row in rows.collect():
        if row.key is None:
            assert (row.hash, row.place) == (None, None)
        else:
            assert row.hash == plain.murmur2(row.key.encode())
            assert row.place == plain.partition_for_key(row.key.encode(), 5)
    decoded = encode(frame, 3).select(f.explode(decode_batches("batch")).alias("record"))
    values = {bytes(row.value) for row in decoded.select("record.value").collect()}
    assert values == {b"%d" % number for number in range(100)}


EVENTS = """
SELECT if(id % 7 > 0, concat('key-', id % 50), null) AS key, cast(id AS string) AS value,
       if(id % 3 > 0, map('h', cast('x' AS binary)), null) AS headers, timestamp_millis(id) AS timestamp
FROM range(0, 3000, 1, 3)
"""
READ = """
SELECT cast(record.key AS string) AS key, cast(record.value AS string) AS value,
       map_from_entries(record.headers) AS headers, record.timestamp
FROM (SELECT explode(decode_batches(batch)) AS record FROM encoded)
"""


def read_back(spark: SparkSession, encoded: DataFrame) -> list[Row]:
    encoded.createOrReplaceTempView("encoded")
    return spark.sql(f"{READ} ORDER BY cast(value AS int)").collect()


@pytest.mark.slow
@pytest.mark.spark
def test_aggregate_in_sql_and_on_frames(spark: SparkSession, path: Path) -> None:
    kbatch.spark.register(spark, compression="zstd", batch_size=2000)
    events = spark.sql(EVENTS).select("*", kafka_partition("key", 5).alias("partition"))
    events.createOrReplaceTempView("events")
    sent = "SELECT key, value, coalesce(headers, map()) AS headers, timestamp FROM events"
    rows = spark.sql(f"{sent} ORDER BY cast(value AS int)").collect()
    in_sql = spark.sql("""
        SELECT partition, inline(batches) FROM (
            SELECT coalesce(kafka_partition(key, 5), 0) AS partition,
                   kbatch_encode(key, value, headers, timestamp) AS batches
            FROM events GROUP BY 1)
    """)
    columns = ("key", "value", "headers", f.col("timestamp"))
    batches = kbatch_encode(*columns, compression="lz4", batch_size=100_000).alias("batches")
    on_frame = (
        events.groupBy("partition")
        .agg(batches)
        .select(f.coalesce("partition", f.lit(0)).alias("partition"), f.inline("batches"))
    )
    for encoded, codec, is_whole in ((in_sql, "zstd", False), (on_frame, "lz4", True)):
        assert encoded.schema.simpleString() == ENCODED_SCHEMA.simpleString()
        found = encoded.collect()
        headers = [header for row in found for header in kbatch.decode(row.batch)]
        assert {header.compression for header in headers} == {codec}
        assert (len(found) <= 6) == is_whole
        assert read_back(spark, encoded) == rows
    for row in in_sql.collect():
        for record in next(iter(kbatch.decode(row.batch))):
            assert row.partition == ((record.key and plain.partition_for_key(record.key, 5)) or 0)

    by_partition = in_sql.repartitionById(5, "partition")
    by_partition.write.format("kbatch-segments").option("topic", "t").mode("append").save(str(path))
    segments = spark.read.format("kbatch-segments").load(str(path))
    values = segments.selectExpr("cast(cast(value AS string) AS int) AS value").collect()
    assert sorted(row.value for row in values) == list(range(3000))


@pytest.mark.spark
def test_keys_and_headers_may_be_left_out(spark: SparkSession) -> None:
    frame = spark.range(10).selectExpr("cast(id AS string) AS value", "id AS timestamp")
    batches = kbatch_encode(None, "value", timestamp="timestamp").alias("batches")
    encoded = frame.agg(batches).select(f.inline("batches"))
    assert [row.timestamp.microsecond for row in read_back(spark, encoded)] == [n * 1000 for n in range(10)]
    assert {(row.key, len(row.headers)) for row in read_back(spark, encoded)} == {(None, 0)}
    assert frame.where("value < 0").agg(batches).collect() == [], "no rows are no group"


@pytest.mark.spark
def test_other_functions_in_sql(spark: SparkSession) -> None:
    found = spark.sql(
        "SELECT murmur2('abc') AS hash, kafka_partition('abc', 7) AS place, kafka_partition(null, 7) AS no"
    )
    assert found.collect() == [(plain.murmur2(b"abc"), plain.partition_for_key(b"abc", 7), None)]


@pytest.mark.spark
def test_example_of_the_page_runs_as_it_stands(spark: SparkSession) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    (example,) = (
        code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "kbatch_encode" in code
    )
    names: dict[str, Any] = {}
    exec(example, names)
    keys = names["records"].selectExpr("partition", "cast(key AS string) AS key").collect()
    assert len(keys) == 1000
    assert all(row.partition == plain.partition_for_key(row.key.encode(), 12) for row in keys)
    assert names["again"].schema == names["encoded"].schema
    assert names["again"].agg(f.sum("record_count")).collect() == [(1000,)]
