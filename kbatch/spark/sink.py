"""The Spark data source `kbatch`: rows to Kafka, in batch and streaming writes, by `send_table`.

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
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kbatch.spark.sink_columns import check_columns
from kbatch.spark.sink_jobs import BATCH_ID, Job, aborted, commit_job, local_property, log, write_rows
from kbatch.spark.sink_options import SinkOptions, read_options
from kbatch.spark.sink_rows import TaskReport
from kbatch.spark.versions import needs_pyspark


class KbatchDataSource(DataSource):
    """The format `kbatch`, for writing.

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
                ".mode('append'), and empty the topic first if you want to replace its records"
            )
        return KbatchWriter(self._options(schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise ValueError(
                "output mode complete is not allowed for Kafka: records cannot be taken back. Use "
                ".outputMode('append'), or 'update', which appends each changed row"
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
        log(aborted(messages))
