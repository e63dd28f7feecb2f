"""The Spark data source `kbatch`: rows to Kafka, in batch and streaming writes, by `send_table`.

Theory of operation. `writer` and `streamWriter` run in a process of the driver and check everything that can
be known there; what they return is pickled to the tasks, and for a batch write to the process that commits.
A streaming writer is made anew there: only messages of tasks reach it. A task makes a producer, sends each
Arrow batch, waits for the last acknowledgement and closes it: when `write` returns nothing is left to be
done, since Spark's workers leave by os._exit, and killed ones run no finally. `commit` has nothing to do but
to check and to log, and may be called twice; `abort` undoes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kbatch.producer.threads import Producer
from kbatch.spark.exactly_once import TaskWrite, check_other_tasks, closing_now
from kbatch.spark.sink_columns import check_columns
from kbatch.spark.sink_options import SinkOptions, read_options
from kbatch.spark.sink_rows import RowSender, TaskReport
from kbatch.spark.versions import needs_pyspark

BATCH_ID = "streaming.sql.batchId"


class KbatchDataSource(DataSource):
    """Format `kbatch`, for writing.

    Columns: value and key (string or binary), topic (string), partition (int), headers
    (array<struct<key: string, value: binary>>), timestamp (timestamp, or long milliseconds); value is
    required, and topic unless the option names one. Mode: append. Options: docs/spark.md.
    """

    @classmethod
    def name(cls) -> str:
        return "kbatch"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise ValueError(
                "Save mode Overwrite not allowed for Kafka: records cannot be taken back. Write with "
                ".mode('append'), and empty the topic beforehand if that is what is meant"
            )
        return KbatchWriter(self._options(schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise ValueError(
                "output mode complete is not allowed for Kafka: records cannot be taken back. Use "
                ".outputMode('append'), or 'update', by which each changed row is a new record"
            )
        options = self._options(schema, streaming=True)
        try:
            from kbatch.spark.sink_stream import KbatchStreamWriter
        except ImportError as error:
            raise needs_pyspark("4.1", "writeStream to the format kbatch") from error
        return KbatchStreamWriter(options)

    def _options(self, schema: StructType, *, streaming: bool) -> SinkOptions:
        options = read_options(self.options, streaming=streaming)
        check_columns(schema, options.topic, ignores_unknown=options.ignores_unknown)
        return options


class Job(NamedTuple):
    """Which write a task or a commit belongs to."""

    app_id: str
    version: int


def write_rows(options: SinkOptions, job: Job | None, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """What a task does; `job` where it is exactly_once."""
    context = TaskContext.get()
    assert context is not None, "Spark calls this inside a task"
    report = TaskReport(context.partitionId(), context.attemptNumber())
    settings = {"client.id": f"kbatch-spark-{report.task}-{report.attempt}", **options.settings}
    timed = report.timed(batches)
    if job is not None:
        TaskWrite(options, *job, report, settings).run(timed)
        return report
    with report.stage("connect"):
        producer = Producer(settings)
    with closing_now(producer):
        rows = RowSender(producer, report, options.topic)
        for batch in timed:
            rows.send(batch)
        rows.flush()
    return report


def commit_job(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    """Checks and logs what the tasks did."""
    reports = [message for message in messages if isinstance(message, TaskReport)]
    if options.exactly_once and reports:
        job = Job(reports[0].app_id, reports[0].version)
        check_other_tasks(options, *job, {report.task for report in reports})
    log(summary(options, reports))
    if reports and all(report.skipped for report in reports) and any(report.records for report in reports):
        log(
            f"warning: all {len(reports)} tasks found their rows written before, as sink "
            f"{options.sink!r}: right for a repeated batch; if this write is another, give it another "
            "sink or txnversion"
        )


def summary(options: SinkOptions, reports: list[TaskReport]) -> str:
    """The line of a job."""
    written = [report for report in reports if not report.skipped]
    topics = sorted({topic for report in written for topic, _ in report.offsets}) or [
        options.topic or "no topic"
    ]
    stages: dict[str, float] = {}
    for report in reports:
        for name, seconds in report.seconds.items():
            stages[name] = stages.get(name, 0.0) + seconds
    version = (
        f", {reports[0].app_id} version {reports[0].version}" if options.exactly_once and reports else ""
    )
    return (
        f"{sum(report.records for report in written)} records, "
        f"{sum(report.bytes for report in written)} bytes, to "
        f"{', '.join(topics[:3])}{', ...' * (len(topics) > 3)} in {len(reports)} tasks"
        f"{version}; {len(reports) - len(written)} tasks skipped, "
        f"{sum(report.retries for report in reports)} records retried; seconds of all tasks: "
        + ", ".join(f"{name} {seconds:.2f}" for name, seconds in stages.items())
    )


def log(line: str) -> None:
    """To the log of the driver, which takes what this process of its writes to stderr."""
    print(f"kbatch: {line}", file=sys.stderr, flush=True)


class KbatchWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        options = self._options
        if not options.exactly_once:
            return write_rows(options, None, iterator)
        assert options.app_id is not None and options.version is not None
        if local_property(BATCH_ID) is not None and not options.names_sink:
            raise ValueError(
                "option 'sink' is missing: inside foreachBatch there may be several writes of the same "
                "batch, and each needs its own name, by which a repeated one is known"
            )
        return write_rows(options, Job(options.app_id, options.version), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_job(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log(aborted(messages))


def aborted(messages: list[WriterCommitMessage | None]) -> str:
    reports = [message for message in messages if isinstance(message, TaskReport)]
    return (
        f"the write failed; {len(reports)} of {len(messages)} tasks were done, whose "
        f"{sum(report.records for report in reports)} records stay in the topic"
    )


def local_property(name: str) -> str | None:
    """What Spark's JVM says to the task under that name."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
