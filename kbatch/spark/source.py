"""Reading with the format `kbatch` in a batch query: a topic as a frame, by the columns of TopicReader.

Theory of operation. `reader` runs in a process of the driver. It checks the options, asks the brokers for
partitions and offsets, and plans a task for each range of offsets. Its result is pickled to the tasks. A task
reads its range with a TopicReader that its worker process keeps, see `kept_readers`. A retried task reads the
same offsets of the same topic, by its id, so it returns the same rows, whatever the kept reader knows of
topics that had the name before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from kbatch.consumer.topic_reader import Reading, TopicReader
from kbatch.errors import (
    DataLossError,
    KafkaTimeoutError,
    LogTruncationError,
    UnknownTopicOrPartitionError,
)
from kbatch.records import TopicPartition
from kbatch.spark.kept_readers import kept_readers
from kbatch.spark.schemas import declared_batches
from kbatch.spark.source_columns import kbatch_columns, spark_columns
from kbatch.spark.source_offsets import (
    OffsetPlanner,
    OffsetRange,
    data_loss,
    gone_text,
    report_data_loss,
    short_text,
    split,
)
from kbatch.spark.source_options import SourceOptions


def read_range(options: SourceOptions, schema: pa.Schema, task: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range of offsets, in the types of `schema`."""
    partition = TopicPartition(task.topic, task.partition)
    with kept_readers.reader(options.task_settings) as reader:
        reading = _begin(reader, options, schema, task)
        try:
            with reading:  # Spark may want only the first rows
                for batch in reading:
                    yield from declared_batches(spark_columns(batch, schema), schema)
        except (DataLossError, LogTruncationError) as error:
            # without the error itself, whose text names what Spark's users cannot do
            lost = getattr(error, "lost", {})
            gap = lost.get(partition, _unread_part(reading, task))
            raise data_loss(gone_text(partition, [gap])) from None
        except UnknownTopicOrPartitionError as error:
            report_data_loss(options, f"{gone_text(partition, [_unread_part(reading, task)])}: {error}")
        except KafkaTimeoutError:
            end = reader.offsets(task.topic, "latest", [task.partition])[task.partition]
            if _unread_part(reading, task)[0] < end:
                raise
            report_data_loss(options, short_text(partition, task.end, end))
        if gaps := reading.lost.get(partition):
            report_data_loss(options, gone_text(partition, gaps))


def _begin(
    reader: TopicReader, options: SourceOptions, schema: pa.Schema, task: OffsetRange
) -> Reading[pa.RecordBatch]:
    key, value = (
        options.formats[part].format(schema.field(part).type)
        if part in options.formats and part in schema.names
        else None
        for part in ("key", "value")
    )
    return reader.read(
        {TopicPartition(task.topic, task.partition): (task.start, task.end)},
        columns=kbatch_columns(schema.names),
        key=key,
        value=value,
        on_data_loss="raise" if options.fails_on_data_loss else "skip",
        topic_ids={task.topic: task.topic_id},
    )


def _unread_part(reading: Reading[pa.RecordBatch], task: OffsetRange) -> tuple[int, int]:
    """Return the part of a range that was not read."""
    return task.start + reading.progress.position, task.end


class RangePartition(InputPartition):
    """The input of a task: a range of offsets, or None for a read without records."""

    def __init__(self, task: OffsetRange | None) -> None:
        super().__init__(task)


class KbatchReader(DataSourceReader):
    """A batch read."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._bounds = Bounds()

    def partitions(self) -> list[RangePartition]:
        options = self._options
        with TopicReader({"client.id": "kbatch-spark-driver", **options.settings}) as catalog:
            planner = OffsetPlanner(catalog, options)
            starts, topic_ids = planner.resolve(options.starting), planner.topic_ids
            ends = planner.resolve(options.ending)
            changed = {str(partition) for partition in starts.keys() ^ ends.keys()}
            changed |= {topic for topic, each in topic_ids.items() if planner.topic_ids.get(topic) != each}
            if changed:
                raise ValueError(
                    f"topics or partitions were added or deleted while the read was planned: "
                    f"{sorted(changed)}; run the query again"
                )
            if "offsets" in (options.starting.kind, options.ending.kind):
                starts, ends = planner.within_logs(starts, ends)
            ranges = [planner.range_of(each, starts[each], ends[each]) for each in sorted(starts)]
            ranges = self._bounds.narrowed(ranges, planner)
        tasks = split(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(task) for task in tasks] or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from read_range(self._options, self._schema, partition.value)


class FilteringReader(KbatchReader):
    """A batch read that takes filters. Spark refuses it unless spark.sql.python.filterPushdown.enabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return [each for each in filters if not self._bounds.take(each)]


class Bounds:
    """What filters say of topic, partition, offset and timestamp, as bounds of the ranges to read."""

    def __init__(self) -> None:
        self._only: dict[str, set[object]] = {}
        self._start = 0
        self._end = 2**63 - 1
        self._from_ms: int | None = None

    def take(self, condition: Filter) -> bool:
        """Narrow the bounds by a filter. True if they say all that it says; else Spark must filter too."""
        name = ".".join(getattr(condition, "attribute", ()))
        value = getattr(condition, "value", None)
        if name in ("topic", "partition") and value is not None:
            return self._take_values(name, condition, value)
        if name == "offset" and isinstance(value, int):
            return self._take_offset(condition, value)
        if name == "timestamp" and isinstance(value, datetime):
            self._take_time(condition, value.timestamp())
        return False  # a record after a late one may be early

    def _take_values(self, name: str, condition: Filter, value: object) -> bool:
        match condition:
            case EqualTo() | EqualNullSafe():
                values = {value}
            case In():
                values = set(condition.value)
            case _:
                return False
        self._only[name] = self._only.get(name, values) & values
        return True

    def _take_offset(self, condition: Filter, value: int) -> bool:
        match condition:
            case EqualTo() | EqualNullSafe():
                start, end = value, value + 1
            case GreaterThan():
                start, end = value + 1, self._end
            case GreaterThanOrEqual():
                start, end = value, self._end
            case LessThan():
                start, end = 0, value
            case LessThanOrEqual():
                start, end = 0, value + 1
            case _:
                return False
        self._start, self._end = max(self._start, start), min(self._end, end)
        return True

    def _take_time(self, condition: Filter, seconds: float) -> None:
        if isinstance(condition, GreaterThan | GreaterThanOrEqual | EqualTo | EqualNullSafe):
            self._from_ms = max(self._from_ms or 0, int(seconds * 1000))

    def narrowed(self, ranges: list[OffsetRange], planner: OffsetPlanner) -> list[OffsetRange]:
        """Return the ranges without the offsets that cannot pass the filters."""
        kept = [
            each
            for each in ranges
            if each.topic in self._only.get("topic", {each.topic})
            and each.partition in self._only.get("partition", {each.partition})
        ]
        first = {}
        if self._from_ms is not None:
            first = planner.at_time(
                [TopicPartition(each.topic, each.partition) for each in kept], self._from_ms
            )
        return [
            each._replace(
                start=max(each.start, self._start, first.get(TopicPartition(each.topic, each.partition), 0)),
                end=min(each.end, self._end),
            )
            for each in kept
        ]
