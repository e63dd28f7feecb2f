"""The streaming writer of the format `kbatch`."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kbatch.spark.sink_jobs import BATCH_ID, Job, abort_job, commit_job, local_property, write_rows
from kbatch.spark.sink_options import SinkOptions
from kbatch.spark.sink_rows import TaskReport

QUERY_ID = "sql.streaming.queryId"


class KbatchStreamWriter(DataSourceStreamArrowWriter):
    """The write of a micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        if not self._options.exactly_once:
            return write_rows(self._options, None, iterator)
        query, batch = local_property(QUERY_ID), local_property(BATCH_ID)
        if query is None or batch is None:
            raise RuntimeError(f"Spark passed no {QUERY_ID} and {BATCH_ID}; exactly_once needs them")
        return write_rows(self._options, Job(query, int(batch)), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit_job(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        abort_job(self._options, messages, f"batch {batchId}: ")
