"""Functions of columns: on Arrow arrays as Spark hands them over, and in a real session."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import kbatch
from kbatch.errors import CorruptRecordError
from kbatch.spark import column_functions, decode_batches, encode, kafka_partition, murmur2
from tests.oracle import plain

KEYS = [b"", b"k", None, b"key-17", b"\xff\x00"]


def test_hashes_of_arrays() -> None:
    for keys in (pa.array(KEYS, pa.binary()), pa.array([*KEYS, b"cut"], pa.large_binary()).slice(0, 5)):
        expected = [None if key is None else plain.murmur2(key) for key in KEYS]
        assert column_functions._hashed(keys, 0).to_pylist() == expected
        expected = [None if key is None else plain.partition_for_key(key, 7) for key in KEYS]
        assert column_functions._hashed(keys, 7).to_pylist() == expected
    assert column_functions._hashed(pa.array([], pa.string()), 7).to_pylist() == []


def test_pyspark_4_0_lacks_only_what_came_later() -> None:
    """Run without the two names that pyspark 4.1 brought."""
    code = """
import pyspark.sql.datasource, pyspark.sql.pandas.functions
from pyspark.sql.types import BinaryType, StructType
del pyspark.sql.datasource.DataSourceStreamArrowWriter, pyspark.sql.pandas.functions.arrow_udf
import kbatch.spark
from kbatch.spark.sink import KbatchDataSource
calls = [
    lambda: kbatch.spark.murmur2("key"),
    lambda: kbatch.spark.kafka_partition("key", 3),
    lambda: kbatch.spark.decode_batches("batch"),
    lambda: source.streamWriter(schema, False),
]
source = KbatchDataSource({"kafka.bootstrap.servers": "localhost:1", "topic": "t"})
schema = StructType().add("value", BinaryType())
assert source.writer(schema, False) and kbatch.spark.encoder()
for call in calls:
    try:
        call()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    needs = f" needs pyspark 4.1 or newer; installed is pyspark {pyspark.__version__}: "
    assert [needs in line for line in done.stdout.splitlines()] == [True] * 4, done.stdout + done.stderr


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
