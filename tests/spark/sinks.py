"""Helpers of sink tests: a topic to write to, an independent reader, and tasks that fail."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.types import StructType

from kbatch.spark import exactly_once, sink_rows
from kbatch.spark.data_source import KbatchDataSource
from kbatch.spark.source_stream import KbatchStreamReader
from tests.oracle.kafka import create_topic

PARTITIONS = 4
LATE_SECONDS = 300.0
_numbers = itertools.count()


class Found(NamedTuple):
    """A record as librdkafka read it."""

    topic: str
    partition: int | None
    offset: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, str | bytes | None], ...]
    timestamp_ms: int


@dataclass(frozen=True)
class Sink:
    """A topic of a cluster, and how to write to it."""

    brokers: str
    topic: str
    format: str = "kbatch"

    def faulty(self) -> Sink:
        return replace(self, format=FaultySource.name())

    def options(self, **options: object) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": self.brokers, "topic": self.topic, **options}
        return {name.replace("__", "."): str(value) for name, value in given.items() if value is not None}

    def write(self, frame: DataFrame, mode: str = "append", **options: object) -> None:
        frame.write.format(self.format).options(**self.options(**options)).mode(mode).save()

    def write_once(self, frame: DataFrame, version: int = 0, **options: object) -> None:
        exactly = {"delivery": "exactly_once", "txnappid": self.topic, "txnversion": version}
        given: dict[str, Any] = {**exactly, **options}
        self.write(frame, **given)

    def read(self, isolation: str = "read_committed", topic: str | None = None) -> list[Found]:
        return read(self.brokers, topic or self.topic, isolation)

    def values(self, **arguments: str) -> list[int]:
        """Return each record's value as a number, in order of size."""
        return sorted(int(found.value or b"-1") for found in self.read(**arguments))


def new_sink(brokers: str) -> Sink:
    topic = f"sink.{os.getpid()}.{next(_numbers)}"
    create_topic(brokers, topic, PARTITIONS)
    return Sink(brokers, topic)


def numbers(spark: SparkSession, count: int = 4000, first: int = 0, tasks: int = 3) -> DataFrame:
    """Return values that count, every seventh row without a key."""
    rows = spark.range(first, first + count, 1, tasks)
    key = f.when(f.col("id") % 7 > 0, f.concat(f.lit("key-"), f.col("id") % 100))
    return rows.select(key.alias("key"), f.col("id").cast("string").cast("binary").alias("value"))


def _pairs(headers: Any) -> list[tuple[str, str | bytes | None]]:
    """Return headers as they come: pairs, for which librdkafka's types also allow a dict, or None."""
    assert not isinstance(headers, dict)
    return headers or []


def read(brokers: str, topic: str, isolation: str, partitions: int = PARTITIONS) -> list[Found]:
    """Return all records of a topic up to its end (with read_committed: up to the first open transaction)."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": f"reader-{next(_numbers)}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([KafkaPartition(topic, index, 0) for index in range(partitions)])
    found: list[Found] = []
    ended: set[int | None] = set()
    while len(ended) < partitions:
        record = consumer.poll(60)
        assert record is not None, "nothing comes"
        if record.error() is None:
            found.append(
                Found(
                    topic,
                    record.partition(),
                    record.offset(),
                    record.key(),
                    record.value(),
                    tuple(_pairs(record.headers())),
                    record.timestamp()[1],
                )
            )
        else:
            ended.add(record.partition())
    consumer.close()
    return found


# Tasks that fail, once each, in an attempt numbered 0


class TaskFaultError(RuntimeError):
    """A fault that the test injected."""


def _fail() -> None:
    raise TaskFaultError("the fault that the test asked for")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _after(owner: Any, name: str, fail: Callable[[], None]) -> None:
    """Inject the fault after the call, in this worker, which ends with the task."""
    original = getattr(owner, name)

    def faulty(*arguments: Any, **keywords: Any) -> Any:
        result = original(*arguments, **keywords)
        fail()
        return result

    setattr(owner, name, faulty)


# By task: an error or kill -9, and the call after which it happens.
FAULTS: list[tuple[Any, str, Callable[[], None]]] = [
    (sink_rows.RowSender, "flush", _fail),
    (exactly_once, "commit", _fail),
    (sink_rows.RowSender, "send", _kill),
    (sink_rows.RowSender, "flush", _kill),
    (exactly_once, "commit", _kill),
]


# An attempt that Spark has given up, but that still takes over from the next one: two wait for each
# other at places that are named pipes.

RENDEZVOUS = ("connecting", "sent", "taken over")


def _meet(folder: str, place: str, *, mode: str) -> None:
    with Path(folder, place).open(mode):
        pass


def _be_late(folder: str) -> None:
    """Let the first attempt take over when the second has sent rows."""
    initialize = exactly_once.TaskWrite._initialize

    def late(write: exactly_once.TaskWrite, producer: Any) -> None:
        _meet(folder, "connecting", mode="w")
        _meet(folder, "sent", mode="r")
        initialize(write, producer)
        _meet(folder, "taken over", mode="w")

    exactly_once.TaskWrite._initialize = late  # type: ignore[method-assign,assignment]


def _be_overtaken(folder: str) -> None:
    """Make the second attempt continue after its first rows when the first has taken over."""
    send = sink_rows.RowSender.send

    def sending(rows: sink_rows.RowSender, batch: pa.RecordBatch) -> None:
        sink_rows.RowSender.send = send  # type: ignore[method-assign]
        send(rows, batch)
        _meet(folder, "sent", mode="w")
        _meet(folder, "taken over", mode="r")

    sink_rows.RowSender.send = sending  # type: ignore[method-assign,assignment]


def given_up(folder: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Let the first attempt die when its writer is about to connect (for mapInArrow)."""
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        _meet(str(folder), "connecting", mode="r")
        _kill()
    yield from batches


def prepare(fault: str) -> None:
    """With the fault `tasks` the first attempt of each task but the last fails, each in another way; with
    `late <folder>` the first takes over from the second.
    """
    context = TaskContext.get()
    assert context is not None
    attempt, task = context.attemptNumber(), context.partitionId()
    kind, _, folder = fault.partition(" ")
    if kind == "tasks" and attempt == 0 and task < len(FAULTS):
        _after(*FAULTS[task])
    elif kind == "late" and attempt < 2:
        (_be_late, _be_overtaken)[attempt](folder)


def fail_commit(fault: str) -> None:
    """`commit <path>`: raises as long as the file is there, which it removes."""
    kind, _, path = fault.partition(" ")
    if kind == "commit" and Path(path).exists():
        Path(path).unlink()
        _fail()


class FaultyWriter(DataSourceArrowWriter):
    """The real writer, but for the fault."""

    def __init__(self, real: DataSourceArrowWriter, fault: str) -> None:
        self.real, self.fault = real, fault

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        prepare(self.fault)
        return self.real.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.real.commit(messages)
        fail_commit(self.fault)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.real.abort(messages)


class FaultyStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a stream, with the same faults."""

    def __init__(self, real: DataSourceStreamArrowWriter, fault: str) -> None:
        self.real, self.fault = real, fault

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        prepare(self.fault)
        return self.real.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.real.commit(messages, batchId)
        fail_commit(self.fault)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.real.abort(messages, batchId)


class FaultyStreamReader(KbatchStreamReader):
    """The reader of a stream. The first attempts of tasks without a fault in the sink are killed within
    their rows, and leave the file `source` in a folder.
    """

    folder: str

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in super().read(partition):
            yield batch
            if context.attemptNumber() == 0 and context.partitionId() >= len(FAULTS):
                Path(self.folder, "source").touch()
                _kill()


def killed_transformation(folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows as they are. The second attempt of one task is killed after them, and leaves the file
    `transformation` (for mapInArrow).
    """
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if (context.attemptNumber(), context.partitionId()) == (1, 0):
        Path(folder, "transformation").touch()
        _kill()


class FaultySource(KbatchDataSource):
    """`kbatch` with an option `fault`."""

    @classmethod
    def name(cls) -> str:
        return "kbatch-faulty"

    def schema(self) -> str:
        return self._real().schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader = self._real().streamReader(schema)
        kind, _, folder = self.options.get("fault", "").partition(" ")
        if kind == "tasks":
            reader.__class__ = FaultyStreamReader
            reader.folder = folder  # type: ignore[attr-defined]
        return reader

    def _real(self) -> KbatchDataSource:
        return KbatchDataSource({k: v for k, v in self.options.items() if k.lower() != "fault"})

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return FaultyWriter(self._real().writer(schema, overwrite), self.options.get("fault", ""))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        real = self._real().streamWriter(schema, overwrite)
        assert isinstance(real, DataSourceStreamArrowWriter)
        return FaultyStreamWriter(real, self.options.get("fault", ""))


def finish(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query to its end. Spark gives the Python process of a source ten seconds to begin, before there
    is any batch: where a busy machine took longer, the query is started again.
    """
    end = time.monotonic() + LATE_SECONDS
    while time.monotonic() < end:
        query = writer.start()
        try:
            query.awaitTermination()
            return query
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
    raise AssertionError(f"Spark's process of the source was late for {LATE_SECONDS:g} s")
