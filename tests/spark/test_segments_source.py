"""The data source `kbatch-segments` in a real session."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kbatch.spark
from kbatch.spark import ENCODED_SCHEMA, SEGMENT_SCHEMA, segment_store, segments
from tests.oracle import plain

pytestmark = pytest.mark.spark
COUNT, PARTITIONS = 400, 3
COMPARED = ("key", "value", "headers", "timestamp")


@pytest.fixture(scope="module")
def sent(spark: SparkSession) -> DataFrame:
    header = f.struct(f.lit("h").alias("key"), f.col("id").cast("string").cast("binary").alias("value"))
    return spark.range(COUNT).select(
        f.when(f.col("id") % 7 > 0, f.concat(f.lit("k"), f.col("id") % 20)).cast("binary").alias("key"),
        f.when(f.col("id") % 11 > 0, f.repeat(f.col("id").cast("string"), 30)).cast("binary").alias("value"),
        f.array(header).alias("headers"),
        f.timestamp_millis(f.col("id") * 1001).alias("timestamp"),
    )


@pytest.fixture(scope="module")
def encoded(sent: DataFrame) -> DataFrame:
    """Encode in two Spark partitions, with batches of every Kafka partition in both."""
    return kbatch.spark.encode(sent, PARTITIONS, compression="zstd", batch_size=2000).cache()


def by_partition(encoded: DataFrame) -> DataFrame:
    return encoded.repartitionById(PARTITIONS, "partition")


def write(frame: DataFrame, path: Path, mode: str = "append", **options: object) -> None:
    named = {name.replace("_", "."): str(value) for name, value in {"topic": "t", **options}.items()}
    frame.write.format("kbatch-segments").options(**named).mode(mode).save(str(path))


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("kbatch-segments").options(**options).load(str(path))


def assert_same(sent: DataFrame, received: DataFrame) -> None:
    """Check that no record is lost, doubled or changed, that offsets have no gap, and keys are where Java
    puts them.
    """
    assert sent.select(*COMPARED).exceptAll(received.select(*COMPARED)).count() == 0
    assert received.select(*COMPARED).exceptAll(sent.select(*COMPARED)).count() == 0
    offsets: dict[int, list[int]] = {}
    for row in received.collect():
        offsets.setdefault(row.partition, []).append(row.offset)
        if row.key is not None:
            assert row.partition == plain.partition_for_key(bytes(row.key), PARTITIONS)
        assert (row.topic, row.timestampType) == ("t", 0)
    assert all(sorted(found) == list(range(len(found))) for found in offsets.values())


def left_behind(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()} if path.exists() else set()


@pytest.mark.slow
def test_rows_come_back(spark: SparkSession, sent: DataFrame, encoded: DataFrame, path: Path) -> None:
    write(by_partition(encoded), path)
    received = read(spark, path)
    assert received.schema == SEGMENT_SCHEMA
    assert_same(sent, received)
    assert left_behind(path) == {"t-0", "t-1", "t-2", "t.json"}


def test_task_may_write_several_partitions(
    spark: SparkSession, sent: DataFrame, encoded: DataFrame, path: Path
) -> None:
    write(encoded.coalesce(1), path)
    assert_same(sent, read(spark, path))


def test_segment_is_a_task(spark: SparkSession, sent: DataFrame, encoded: DataFrame, path: Path) -> None:
    write(by_partition(encoded), path, segment_bytes=2000)
    logs = sorted(path.glob("t-*/*.log"))
    assert len(logs) > PARTITIONS
    received = read(spark, path)
    assert_same(sent, received)
    assert received.select(f.spark_partition_id()).distinct().count() == len(logs)


def test_partition_of_two_tasks_is_refused(encoded: DataFrame, path: Path) -> None:
    with pytest.raises(PySparkException, match=r"Kafka partition \d of topic 't' came from two tasks"):
        write(encoded.repartition(2), path)
    assert left_behind(path) == set()


def test_failed_attempt_leaves_nothing(
    spark: SparkSession, sent: DataFrame, encoded: DataFrame, path: Path
) -> None:
    def fail_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt dies when all is written")

    write(by_partition(encoded).mapInArrow(fail_at_first, ENCODED_SCHEMA), path)
    assert_same(sent, read(spark, path))
    assert left_behind(path) == {"t-0", "t-1", "t-2", "t.json"}


def test_failed_job_leaves_nothing(encoded: DataFrame, path: Path) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise RuntimeError("every attempt dies")

    with pytest.raises(PySparkException, match="every attempt dies"):
        write(by_partition(encoded).mapInArrow(fail, ENCODED_SCHEMA), path)
    assert left_behind(path) == set()


def test_append_refuses_existing_topic_and_overwrite_replaces_it(
    spark: SparkSession, sent: DataFrame, encoded: DataFrame, path: Path
) -> None:
    one = encoded.limit(1)
    write(one, path)
    write(one, path, topic="u")
    with pytest.raises(AnalysisException, match="already has topic 't'"):
        write(one, path)
    write(by_partition(encoded), path, mode="overwrite")
    assert_same(sent, read(spark, path, topic="t"))
    topics = {row.topic for row in read(spark, path).select("topic").distinct().collect()}
    assert topics == {"t", "u"}


def test_empty_frame(spark: SparkSession, encoded: DataFrame, path: Path) -> None:
    write(encoded.limit(0), path)
    assert read(spark, path).count() == 0
    assert left_behind(path) == {"t.json"}


def test_wrong_columns_are_refused_on_the_driver(encoded: DataFrame, path: Path) -> None:
    for frame, message in (
        (encoded.withColumn("extra", f.lit(1)), "unknown column 'extra'"),
        (
            encoded.withColumn("partition", f.col("partition").cast("long")),
            "column 'partition' must be int, got bigint",
        ),
        (encoded.withColumn("batch", f.lit("x")), "column 'batch' must be binary, got string"),
        (encoded.drop("batch"), "column 'batch' is missing"),
    ):
        with pytest.raises(AnalysisException) as caught:
            write(frame, path)
        assert message in str(caught.value)
    write(encoded.select("batch", "partition").coalesce(1), path)


def test_wrong_options_are_refused_on_the_driver(spark: SparkSession, encoded: DataFrame, path: Path) -> None:
    for options, message in (
        ({"topics": "t"}, "unknown option 'topics': did you mean 'topic'?"),
        ({"segment.bytes": "1 GB"}, "option 'segment.bytes' must be a whole number"),
        ({"segment.bytes": "0"}, "option 'segment.bytes' must be a whole number from 1"),
        ({"topic": "a/b"}, "topic 'a/b' contains '/'"),
    ):
        writer = encoded.write.format("kbatch-segments").options(**{"topic": "t", **options})
        with pytest.raises(AnalysisException) as caught:
            writer.mode("append").save(str(path))
        assert message in str(caught.value)
    writer = encoded.write.format("kbatch-segments").mode("append")
    for call, message in (
        (lambda: writer.save(str(path)), "option 'topic' is missing"),
        (lambda: writer.option("topic", "t").save("s3://bucket/x"), "option 'path' must be a local folder"),
        (lambda: read(spark, path, tpic="t").count(), "unknown option 'tpic': did you mean 'topic'?"),
        (lambda: read(spark, path, **{"check.crcs": "maybe"}).count(), "must be true or false"),
        (lambda: read(spark, path).count(), "has no log segments"),
        (lambda: spark.read.format("kbatch-segments").load().count(), "option 'path' is missing"),
        (
            lambda: spark.read.format("kbatch-segments").schema("a int").load(str(path)).count(),
            "omit .schema",
        ),
    ):
        with pytest.raises(AnalysisException) as caught:
            call()
        assert message in str(caught.value)
    assert left_behind(path) == set()


def test_null_partition_is_refused(encoded: DataFrame, path: Path) -> None:
    for column in ("partition", "batch"):
        frame = encoded.limit(1).withColumn(column, f.lit(None).cast(encoded.schema[column].dataType))
        with pytest.raises(PySparkException, match=f"column '{column}' has a null"):
            write(frame, path)


def test_corrupt_batch_is_refused(encoded: DataFrame, path: Path) -> None:
    frame = encoded.limit(1).withColumn("batch", f.expr("overlay(batch placing X'00' from 70)"))
    with pytest.raises(PySparkException, match=r"Kafka partition 0: .*CRC"):
        write(frame.withColumn("partition", f.lit(0)), path)


def segment(directory: Path, *batches: bytes) -> Path:
    with kbatch.SegmentWriter(directory, "t", 0) as writer:
        for batch in batches:
            writer.append(batch)
    return writer.log_paths[0]


def test_what_brokers_write(spark: SparkSession, path: Path) -> None:
    """Log append time, control records left out, a torn tail."""
    rows: list[plain.Row] = [(b"k", b"v", (), 1000)]
    control = plain.encode([(bytes(4), bytes(6), (), 1000)], transactional=True, control=True, producer_id=1)
    batches = [plain.encode(rows), control, plain.encode(rows, log_append_time_ms=5000), plain.encode(rows)]
    log = segment(path, *batches)
    log.write_bytes(log.read_bytes() + batches[0][:40])
    rows_read: list[Any] = read(spark, path).orderBy("offset").collect()
    assert [(row.offset, row.timestampType, row.timestamp.second) for row in rows_read] == [
        (0, 0, 1), (2, 1, 5), (3, 0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", ["RUN_BYTES", "RUN_RECORDS"])
def test_reading_goes_in_pieces(path: Path, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, limit, 3)
    log = segment(path, *[plain.encode([(b"k", b"v", (), 0)])] * 10)
    reader = segments.SegmentsReader([segment_store.StoredSegment("t", 0, str(log))], check_crc=True)
    (task,) = reader.partitions()
    batches = list(reader.read(task))
    assert len(batches) >= 4
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(10))


def test_corrupt_segment_is_named(spark: SparkSession, path: Path) -> None:
    batch = plain.encode([(b"k", b"v", (), 0)])
    log = segment(path, batch, batch)
    data = bytearray(log.read_bytes())
    data[len(batch) + 17] ^= 1  # in the CRC itself
    log.write_bytes(data)
    with pytest.raises(PySparkException) as caught:
        read(spark, path).count()
    assert f"{log}: batch at byte {len(batch)}: CRC" in str(caught.value)
    assert read(spark, path, **{"check.crcs": "false"}).count() == 2


def test_corrupt_body_is_named(spark: SparkSession, path: Path) -> None:
    batch = plain.encode([(b"k", b"v", (), 0)])
    log = segment(path, batch, plain.with_crc(batch[:-1] + b"\x7f"))
    with pytest.raises(PySparkException) as caught:
        read(spark, path).count()
    assert f"{log}: record 0 of the batch at offset 1" in str(caught.value)


def test_source_that_spark_finds_by_itself() -> None:
    """The wheel's top-level package, here by its folder; without kbatch only its use is an error."""
    folder = Path(kbatch.spark.__file__).parent
    code = "import pyspark_kbatch_segments as found; print(found.DefaultSource.name())"
    poisoned = (
        "import sys; sys.modules['kbatch'] = None; import pyspark_kbatch_segments as found\n"
        "try: found.DefaultSource({})\n"
        "except ImportError as error: print(error)"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.append({str(folder)!r}); {program}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for program in (code, poisoned)
    ]
    assert outputs[0] == "kbatch-segments\n"
    assert "kbatch" in outputs[1]
