"""The Spark format `kbatch`: the options of each of its four uses, and the object that does the work."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.types import StructType

from kbatch.spark.exactly_once import check_topics
from kbatch.spark.failed_stream import FailedStreamReader
from kbatch.spark.sink import KbatchWriter
from kbatch.spark.sink_columns import check_columns
from kbatch.spark.sink_formats import serializers_of
from kbatch.spark.sink_options import SinkOptions, read_options
from kbatch.spark.sink_stream import KbatchStreamWriter
from kbatch.spark.source import FilteringReader, KbatchReader
from kbatch.spark.source_columns import arrow_schema, check_types, sql_schema
from kbatch.spark.source_options import (
    FrameOptions,
    SourceOptions,
    read_frame_options,
    read_source_options,
)
from kbatch.spark.versions import check_pyspark


class KbatchDataSource(DataSource):
    """The format `kbatch`. Options: docs/spark.md.

    Reading, in batch and streaming queries, has the columns of Spark's Kafka source: key, value (binary),
    topic (string), partition (int), offset (long), timestamp, timestampType (int), and headers
    (array<struct<key: string, value: binary>>) with the option includeHeaders. The option `columns` chooses
    others.

    Writing takes the columns value and key (string or binary, or what value.format and key.format take),
    topic (string), partition (int), headers, timestamp (timestamp, or long milliseconds); value is required,
    and topic unless the option names one. Mode: append.
    """

    # True if it was pickled. Then a writer of it only commits or aborts: it has no use for serializers, and a
    # registry that is away does not fail a micro-batch whose rows are written.
    _is_copy = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _is_copy=True)

    @classmethod
    def name(cls) -> str:
        return "kbatch"

    @cached_property
    def _frame(self) -> FrameOptions:
        """What determines the schema. It is read once, and pickled with this object: the latest schema of a
        registry may change before the read is planned.
        """
        return read_frame_options(self.options)

    def schema(self) -> str:
        return sql_schema(*self._frame)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._source_options(schema, streaming=False)
        kind = FilteringReader if options.pushes_filters else KbatchReader
        return kind(options, arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            check_pyspark("4.2", "readStream from the format kbatch")
            from kbatch.spark.source_stream import KbatchStreamReader

            options = self._source_options(schema, streaming=True)
            return KbatchStreamReader(options, arrow_schema(schema))
        except Exception as error:
            return FailedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise ValueError(
                "Save mode Overwrite not allowed for Kafka: records cannot be taken back. Write with "
                ".mode('append'), and empty the topic first if you want to replace its records"
            )
        return KbatchWriter(self._sink_options(schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise ValueError(
                "output mode complete is not allowed for Kafka: records cannot be taken back. Use "
                ".outputMode('append'), or 'update', which appends each changed row"
            )
        return KbatchStreamWriter(self._sink_options(schema, streaming=True))

    def _sink_options(self, schema: StructType, *, streaming: bool) -> SinkOptions:
        options = read_options(self.options, streaming=streaming)
        ignores_unknown = options.ignores_unknown
        check_columns(schema, options.topic, ignores_unknown=ignores_unknown, formatted=options.formats)
        if options.exactly_once:
            check_topics(options)
        if self._is_copy:
            return options
        return replace(options, serializers=serializers_of(options.formats, schema, options.topic))

    def _source_options(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        options = read_source_options(self.options, streaming=streaming, frame=self._frame)
        if tuple(schema.names) != options.columns:
            raise ValueError(
                "Kafka source has a fixed schema and cannot be set with a custom one: omit .schema(...), and "
                f"choose with the option 'columns'; its columns are {', '.join(options.columns)}, not "
                f"{', '.join(schema.names)}"
            )
        check_types(schema, options.formats)
        return options
