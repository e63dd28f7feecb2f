"""Writing with the format `kbatch`: rows to Kafka, in batch and streaming writes, by `send_table`.

Theory of operation. `writer` and `streamWriter` run in a process of the driver and check everything that is
known there. Their result is pickled to the tasks and, in a batch write, to the process that commits. A
streaming writer is created again there and gets only messages of tasks. A task creates a producer, sends each
Arrow batch, waits for the last acknowledgement and closes it. When `write` returns, nothing is left to do,
because Spark's workers leave by os._exit and killed ones run no finally. `commit` only checks and logs, and
may be called twice; `abort` undoes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kbatch.spark.sink_jobs import BATCH_ID, Job, abort_job, commit_job, local_property, write_rows
from kbatch.spark.sink_options import SinkOptions
from kbatch.spark.sink_rows import TaskReport


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
                "option 'sink' is missing; foreachBatch may have several writes of the same "
                "batch, and each needs its own name to recognize a repeated one"
            )
        return write_rows(options, Job(options.app_id, options.version), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_job(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort_job(self._options, messages)
