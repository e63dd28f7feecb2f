"""Delivery by the sink `kbatch` in a real session, with tasks, workers and commits that fail."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from tests.spark.sinks import (
    FAULTS,
    RENDEZVOUS,
    FaultySource,
    Sink,
    TaskFaultError,
    finish,
    given_up,
    numbers,
)

pytestmark = pytest.mark.spark
COUNT = 4000
ALL = list(range(COUNT))


@pytest.fixture(scope="module", autouse=True)
def faulty_source(spark: SparkSession) -> None:
    spark.dataSource.register(FaultySource)


TASKS = len(FAULTS) + 1


def test_exactly_once_whatever_fails(spark: SparkSession, sink: Sink) -> None:
    frame = numbers(spark, tasks=TASKS)
    sink.faulty().write_once(frame, fault="tasks")
    assert sink.values() == ALL
    assert len(sink.values(isolation="read_uncommitted")) > COUNT, "what failed attempts wrote"
    sink.write_once(frame)
    assert sink.values() == ALL, "the same version again"
    sink.write_once(numbers(spark, first=COUNT), version=1)
    assert sink.values() == list(range(2 * COUNT))


@pytest.mark.slow
def test_abandoned_attempt_that_takes_over_does_not_stop_the_job(
    spark: SparkSession, sink: Sink, tmp_path: Path
) -> None:
    """Its input has ended, so that it will never commit: the one it fenced does not wait for that."""
    for place in RENDEZVOUS:
        os.mkfifo(tmp_path / place)
    frame = numbers(spark, tasks=1)
    dying = frame.mapInArrow(partial(given_up, tmp_path), frame.schema)
    sink.faulty().write_once(dying, fault=f"late {tmp_path}")
    assert sink.values() == ALL


def test_at_least_once_whatever_fails(spark: SparkSession, sink: Sink) -> None:
    sink.faulty().write(numbers(spark, tasks=TASKS), fault="tasks")
    found = sink.values()
    assert sorted(set(found)) == ALL
    assert COUNT < len(found) < 2 * COUNT


def test_commit_that_raises_is_repeated(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    fault.touch()
    with pytest.raises(PySparkException, match=TaskFaultError.__name__):
        sink.faulty().write_once(numbers(spark), fault=f"commit {fault}")
    assert not fault.exists()
    sink.faulty().write_once(numbers(spark), fault=f"commit {fault}")
    assert sink.values() == ALL


def test_older_version_is_refused(spark: SparkSession, sink: Sink) -> None:
    sink.write_once(numbers(spark), version=5)
    with pytest.raises(PySparkException, match="version 4: version 5 was written before"):
        sink.write_once(numbers(spark, first=COUNT), version=4)
    assert sink.values() == ALL


@pytest.mark.slow
def test_other_rows_under_the_same_version_are_refused(spark: SparkSession, sink: Sink) -> None:
    sink.write_once(numbers(spark))
    other = numbers(spark).withColumn("value", f.concat(f.col("value"), f.lit("0").cast("binary")))
    with pytest.raises(PySparkException, match="rows with digest"):
        sink.write_once(other)
    assert sink.values() == ALL


@pytest.mark.slow
def test_more_tasks_under_the_same_version_write_nothing(spark: SparkSession, sink: Sink) -> None:
    sink.write_once(numbers(spark, tasks=1))
    with pytest.raises(PySparkException, match=r"rows with digest|was written before by 1 tasks"):
        sink.write_once(numbers(spark, tasks=4))
    assert sink.values() == ALL


@pytest.mark.slow
def test_two_writes_of_a_batch_need_names(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    frame = stream(spark, tmp_path, batches=1)

    def without(batch: DataFrame, number: int) -> None:
        sink.write_once(batch, version=number)

    with pytest.raises(PySparkException, match="option 'sink' is missing"):
        finish(frame.writeStream.foreachBatch(without).trigger(availableNow=True))

    def twice(batch: DataFrame, number: int) -> None:
        sink.write_once(batch, version=number, sink="even")
        sink.write_once(batch.withColumn("key", f.lit("second")), version=number, sink="odd")

    for _ in range(2):  # the second time, without a checkpoint, all is a repetition
        finish(frame.writeStream.foreachBatch(twice).trigger(availableNow=True))
        assert sink.values() == sorted(ALL + ALL)


# Streaming


def stream(spark: SparkSession, folder: Path, batches: int = 4) -> DataFrame:
    """Return a micro-batch a file, each with an equal part of COUNT rows."""
    files = folder / "input"
    size = COUNT // batches
    for number in range(batches):
        part = files / f"{number:03}"
        if not part.exists():
            numbers(spark, size, number * size).coalesce(1).write.parquet(str(part))
    options: dict[str, Any] = {"maxFilesPerTrigger": 1, "recursiveFileLookup": "true"}
    return spark.readStream.schema("key string, value binary").options(**options).parquet(str(files))


def run(sink: Sink, frame: DataFrame, checkpoint: Path, **options: object) -> StreamingQuery:
    given = sink.options(checkpointLocation=checkpoint, **options)
    return finish(frame.writeStream.format(sink.format).options(**given).trigger(availableNow=True))


@pytest.mark.slow
def test_streaming_query_goes_on_where_it_was(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    """commit() raises in the first batch and again in a later one, tasks fail: nothing doubles."""
    frame, checkpoint = stream(spark, tmp_path), tmp_path / "checkpoint"
    fault = tmp_path / "fault"
    faulty = sink.faulty()
    for _ in range(2):
        fault.touch()
        with pytest.raises(PySparkException, match=TaskFaultError.__name__):
            run(faulty, frame, checkpoint, delivery="exactly_once", fault=f"commit {fault}")
    run(faulty, frame, checkpoint, delivery="exactly_once", fault="tasks")
    assert sink.values() == ALL


@pytest.mark.slow
def test_streaming_at_least_once(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    fault.touch()
    frame, checkpoint = stream(spark, tmp_path), tmp_path / "checkpoint"
    with pytest.raises(PySparkException, match=TaskFaultError.__name__):
        run(sink.faulty(), frame, checkpoint, fault=f"commit {fault}")
    run(sink, frame, checkpoint)
    found = sink.values()
    assert sorted(set(found)) == ALL
    assert len(found) == COUNT + COUNT // 4, "the batch whose commit failed, once more"


@pytest.mark.slow
def test_restored_checkpoint_is_refused(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    frame, checkpoint, kept = stream(spark, tmp_path, 1), tmp_path / "checkpoint", tmp_path / "kept"
    run(sink, frame, checkpoint, delivery="exactly_once")
    shutil.copytree(checkpoint, kept)
    frame = stream(spark, tmp_path, 4)
    run(sink, frame, checkpoint, delivery="exactly_once")
    before = sink.values()
    shutil.rmtree(checkpoint)
    kept.rename(checkpoint)
    with pytest.raises(PySparkException, match=r"version 1: version \d was written before"):
        run(sink, frame, checkpoint, delivery="exactly_once")
    assert sink.values() == before
