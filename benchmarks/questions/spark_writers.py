"""Data sources to compare with the sink `kbatch`: one drops the rows, and one passes each of them to
librdkafka.

They are not in spark_sink.py because Spark's workers import this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

POLL_ROWS = 1_000
FULL_SECONDS = 0.1


class NoOpWriter(DataSourceArrowWriter):
    """Accept all batches and drop them: the cost of Spark and its workers alone."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return dropped(iterator)


class NoOpStreamWriter(DataSourceStreamArrowWriter):
    """The same for a stream."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return dropped(iterator)


def dropped(batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in batches:
        pass
    return WriterCommitMessage()


class NoOpSource(DataSource):
    """Format `bench-no-op`, for batches and for streams."""

    @classmethod
    def name(cls) -> str:
        return "bench-no-op"

    def writer(self, schema: StructType, overwrite: bool) -> NoOpWriter:
        return NoOpWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoOpStreamWriter:
        return NoOpStreamWriter()


class ConfluentWriter(DataSourceArrowWriter):
    """The obvious writer with confluent-kafka: a produce with a callback for each row."""

    def __init__(self, topic: str, settings: dict[str, Any]) -> None:
        self._topic = topic
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        producer = Producer(self._settings)
        failed: list[Any] = []

        def delivered(error: Any, record: Any) -> None:
            if error is not None:
                failed.append(error)

        for batch in iterator:
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            for number, (key, value) in enumerate(zip(keys, values, strict=True)):
                while True:
                    try:
                        producer.produce(self._topic, value, key, on_delivery=delivered)
                        break
                    except BufferError:
                        producer.poll(FULL_SECONDS)
                if number % POLL_ROWS == 0:
                    producer.poll(0)
        producer.flush()
        if failed:
            raise RuntimeError(f"{len(failed)} rows failed, the first with {failed[0]}")
        return WriterCommitMessage()


class ConfluentSource(DataSource):
    """The format `bench-confluent-kafka`, with the options of Spark's own sink."""

    @classmethod
    def name(cls) -> str:
        return "bench-confluent-kafka"

    def writer(self, schema: StructType, overwrite: bool) -> ConfluentWriter:
        settings = {k.removeprefix("kafka."): v for k, v in self.options.items() if k.startswith("kafka.")}
        return ConfluentWriter(self.options["topic"], settings)
