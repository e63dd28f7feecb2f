"""The work of a write's tasks and commit, for batch and streaming writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from kbatch.errors import KafkaError
from kbatch.producer.threads import Producer
from kbatch.spark.exactly_once import TaskWrite, check_other_tasks, closing_now, note_tasks
from kbatch.spark.sink_options import SinkOptions
from kbatch.spark.sink_rows import RowSender, TaskReport

BATCH_ID = "streaming.sql.batchId"


class Job(NamedTuple):
    """Identifies the write of a task or commit."""

    app_id: str
    version: int


def write_rows(options: SinkOptions, job: Job | None, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Write the rows of a task; `job` is set if it is exactly_once."""
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
        rows = RowSender(producer, report, options.topic, options.serializers)
        for batch in timed:
            rows.send(batch)
        rows.flush()
    return report


def commit_job(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    """Check and log the tasks' reports."""
    reports = [message for message in messages if isinstance(message, TaskReport)]
    if options.exactly_once and reports:
        job = Job(reports[0].app_id, reports[0].version)
        check_other_tasks(options, *job, {report.task for report in reports})
        _note_tasks(options, reports[0], len(messages))
    log(summary(options, reports))
    if reports and all(report.skipped for report in reports) and any(report.records for report in reports):
        log(
            f"warning: all {len(reports)} tasks found their rows already written, as sink "
            f"{options.sink!r}: right for a repeated batch; if this is a different write, give it another "
            "sink or txnversion"
        )


def summary(options: SinkOptions, reports: list[TaskReport]) -> str:
    """Return the log line of a job."""
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
    """Write to the log of the driver, which collects this process's stderr."""
    print(f"kbatch: {line}", file=sys.stderr, flush=True)


def abort_job(options: SinkOptions, messages: list[WriterCommitMessage | None], name: str = "") -> None:
    """Log the end of a job that failed. Rows stay in the topic, so a repetition must know how many tasks had
    a part of them.
    """
    reports = [message for message in messages if isinstance(message, TaskReport)]
    if options.exactly_once and reports:
        _note_tasks(options, reports[0], len(messages))
    log(
        f"{name}the write failed; {len(reports)} of {len(messages)} tasks were done; "
        f"{sum(report.records for report in reports)} records stay in the topic"
    )


def _note_tasks(options: SinkOptions, report: TaskReport, tasks: int) -> None:
    try:
        note_tasks(options, report.app_id, report.version, tasks)
    except KafkaError as error:  # the job is none the worse; a repetition with more tasks is found later
        log(f"warning: the number of tasks was not kept: {error}")


def local_property(name: str) -> str | None:
    """Return the value that Spark's JVM passes to the task under that name."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
