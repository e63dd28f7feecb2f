"""RowSender: send the Arrow batches of a Spark task, and report on their rows.

Theory of operation. Each batch from Spark is a table for `send_table`, whose rows may name their topics. Its
report is kept until all of its rows are done, then counted and dropped, the oldest first. So buffer.memory
bounds what is kept, however many rows a task has. The first failed row ends the task with an error that
names it; the number counts the rows of the task from 0.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from kbatch.errors import KafkaError, SerializationError
from kbatch.errors.rows import InvalidRowError
from kbatch.producer.tables import TableDelivery, TableReport
from kbatch.producer.threads import Producer
from kbatch.spark.sink_columns import NULL_TOPIC
from kbatch.spark.sink_formats import Serializers, with_bytes

RETRIES = ("record-retry-total", "producer-metrics")
NO_OFFSET = np.iinfo(np.int64).max


@dataclass
class PartitionOffsets:
    """The records of a task in one Kafka partition: their number and first and last offset, -1 if the broker
    named none. Other producers' records may lie between.
    """

    records: int = 0
    first: int = -1
    last: int = -1

    def add(self, records: int, first: int, last: int) -> None:
        """Count more records, from the offset `first` to `last`; -1: not known."""
        self.records += records
        if last >= 0:
            self.first = first if self.first < 0 else min(self.first, first)
            self.last = max(self.last, last)


@dataclass
class TaskReport(WriterCommitMessage):
    """The report of a task.

    Attributes
    ----------
    task, attempt : int
        Its Spark partition, and its attempt, from 0.
    records, bytes : int
        Number of rows, and bytes of their keys and values.
    offsets : dict
        By (topic, partition).
    retries : int
        Number of records that were sent again.
    skipped : bool
        True if the rows were already there and nothing was written.
    seconds : dict
        By stage: connect, read (waiting for Spark), serialize (by formats), send (accepting, which waits for
        memory), flush, commit.
    app_id, version
        Only for exactly_once.
    """

    task: int
    attempt: int
    records: int = 0
    bytes: int = 0
    offsets: dict[tuple[str, int], PartitionOffsets] = field(default_factory=dict)
    retries: int = 0
    skipped: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    app_id: str = ""
    version: int = -1

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of a block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def timed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches; waiting for each counts as read."""
        iterator = iter(batches)
        while True:
            with self.stage("read"):
                batch = next(iterator, None)
            if batch is None:
                return
            yield batch


class RowSender:
    """Send the rows of one task; `report` counts them. ValueError or KafkaError names the faulty row."""

    def __init__(
        self,
        producer: Producer,
        report: TaskReport,
        topic: str | None,
        serializers: Serializers | None = None,
    ) -> None:
        self._producer = producer
        self._report = report
        self._topic = topic
        self._serializers = serializers or {}
        self._sent: deque[tuple[TableDelivery, int]] = deque()  # with the first row's number in the task

    def send(self, batch: pa.RecordBatch) -> None:
        """Send a batch's rows, and count earlier ones that are done."""
        first_row = self._report.records
        if batch.num_rows:
            self._check_partitions(batch, first_row)
            refuse_null_topic(batch, self._topic, self._report.task, first_row)
            if self._serializers:
                with self._report.stage("serialize"), naming_rows(self._report.task, first_row):
                    batch = with_bytes(batch, self._serializers)
            with self._report.stage("send"):
                self._sent.append((self._accept(batch, first_row), first_row))
            self._report.records += batch.num_rows
            self._report.bytes += _bytes_of(batch)
        while self._sent and self._sent[0][0].done():
            self._count_done(*self._sent.popleft())

    def flush(self) -> None:
        """Wait until every row is acknowledged."""
        with self._report.stage("flush"):
            with suppress(KafkaError):  # the failed row says more
                self._producer.flush()
            while self._sent:
                self._count_done(*self._sent.popleft())
        metrics = self._producer.metrics().items()
        self._report.retries = sum(int(value) for name, value in metrics if name[:2] == RETRIES)

    def _row_label(self, row: int) -> str:
        return row_label(self._report.task, row)

    def _accept(self, batch: pa.RecordBatch, first_row: int) -> TableDelivery:
        topic_column = "topic" if self._topic is None else None
        try:
            return self._producer.send_table(self._topic, batch, topic_column=topic_column)
        except InvalidRowError as error:  # nothing was accepted
            number = first_row + error.row
            topic = batch.column("topic")[error.row] if self._topic is None else self._topic
            raise InvalidRowError(f"{self._row_label(number)}, topic {topic}: {error}", number) from error
        except (KafkaError, ValueError, TypeError) as error:
            where = "" if self._topic is None else f", topic {self._topic},"
            error.add_note(f"{self._row_label(first_row)} and later ones{where} were not accepted")
            raise

    def _check_partitions(self, batch: pa.RecordBatch, first_row: int) -> None:
        """Refuse a missing partition at once, for which Spark's sink only times out."""
        if self._topic is None or "partition" not in batch.schema.names:
            return
        column = batch.column("partition")
        known = len(self._producer.partitions_for(self._topic))
        wrong = pc.or_kleene(pc.less(column, 0), pc.greater_equal(column, known))
        row = pc.index(wrong, True).as_py()
        if row >= 0:
            raise ValueError(
                f"{self._row_label(first_row + row)}: column 'partition' is {column[row]}, and topic "
                f"{self._topic} has partitions 0 to {known - 1}"
            )

    def _count_done(self, delivery: TableDelivery, first_row: int) -> None:
        """Count rows that are done."""
        report = delivery.result()
        if report.failed_rows:
            self._raise_failed(report, first_row)
        codes, partitions, offsets = report.topic_codes, report.partitions, report.offsets
        for code, topic in enumerate(report.topics):
            chosen = codes == code
            self._count(topic, partitions[chosen], offsets[chosen])

    def _raise_failed(self, report: TableReport, first_row: int) -> NoReturn:
        """Raise the error of the first failed row, which it names."""
        row, error = next(iter(report.errors.items()))
        if isinstance(error, SerializationError) and error.row is not None:
            row = error.row  # of one that ended the table; those before it were not sent either
        where = self._row_label(first_row + row)
        if (code := int(report.topic_codes[row])) >= 0:  # else it failed before its topic was read
            where += f", topic {report.topics[code]}"
        if (partition := int(report.partitions[row])) >= 0:  # else it failed before one was chosen
            where += f", Kafka partition {partition}"
        failed = error.marked()
        failed.args = (f"{where}: {error} ({report.failed_rows} rows of one Arrow batch failed)",)
        raise failed from error

    def _count(self, topic: str, partitions: np.ndarray, offsets: np.ndarray) -> None:
        """Count a topic's rows by partition."""
        count = int(partitions.max()) + 1
        first, last = np.full(count, NO_OFFSET), np.full(count, -1)
        np.minimum.at(first, partitions, np.where(offsets < 0, NO_OFFSET, offsets))
        np.maximum.at(last, partitions, offsets)
        records = np.bincount(partitions, minlength=count)
        for partition in np.flatnonzero(records).tolist():
            found = self._report.offsets.setdefault((topic, partition), PartitionOffsets())
            found.add(int(records[partition]), int(first[partition]), int(last[partition]))


def row_label(task: int, row: int) -> str:
    """Return a row's name in errors: Spark's partition, and its number there."""
    return f"Spark partition {task}, row {row}"


@contextmanager
def naming_rows(task: int, first_row: int) -> Iterator[None]:
    """Name the row of an InvalidRowError, which counts from `first_row`, in the task."""
    try:
        yield
    except InvalidRowError as error:
        number = first_row + error.row
        raise InvalidRowError(f"{row_label(task, number)}: {error}", number) from error


def refuse_null_topic(batch: pa.RecordBatch, topic: str | None, task: int, first_row: int) -> None:
    """Raise ValueError for a row without a topic if there is no `topic` for all."""
    if topic is None and (column := batch.column("topic")).null_count:
        row = first_row + pc.index(pc.is_null(column), True).as_py()
        raise ValueError(f"{row_label(task, row)}: {NULL_TOPIC}")


def _bytes_of(batch: pa.RecordBatch) -> int:
    found = (batch.column(name) for name in ("key", "value") if name in batch.schema.names)
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in found)
