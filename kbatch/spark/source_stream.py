"""Reading with the format `kbatch` in a streaming query, a range of offsets per micro-batch.

Theory of operation. Spark calls a KbatchStreamReader in one process of the driver for the life of the query:
where to start, how far to go (`latestOffset`), which tasks (`partitions`). It keeps the offsets in its
checkpoint, in the JSON of Spark's own Kafka source. The tasks read their ranges as those of a batch query do,
so a repeated micro-batch has the same rows.

After org.apache.spark.sql.kafka010.KafkaMicroBatchStream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kbatch.config import ConsumerConfig
from kbatch.consumer.topic_reader import TopicReader
from kbatch.spark.source import RangePartition, read_range
from kbatch.spark.source_offsets import (
    OffsetPlanner,
    Offsets,
    as_json,
    ends_within_logs,
    limited,
    ranges_between,
)
from kbatch.spark.source_options import SourceOptions, partition_offsets
from kbatch.spark.source_sizes import SAMPLING, MeanSizes

Json = dict[str, dict[str, int]]


class KbatchStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read.

    Parameters
    ----------
    options : SourceOptions
    schema : pyarrow.Schema
    clock : callable
        Returns seconds.
    """

    def __init__(
        self, options: SourceOptions, schema: pa.Schema, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock
        self._catalog: TopicReader | None = None
        self._last_trigger = float("-inf")
        self._target: Offsets | None = None  # the end of a query with Trigger.AvailableNow
        self._latest: Offsets = {}
        self._sizes = MeanSizes()

    def _reader(self) -> TopicReader:
        """Return the client of this process: a stream reader is pickled without one."""
        if self._catalog is None:
            settings = self._options.settings
            given = ConsumerConfig(settings).given
            sampling = {name: value for name, value in SAMPLING.items() if name not in given}
            self._catalog = TopicReader({"client.id": "kbatch-spark-driver", **sampling, **settings})
        return self._catalog

    def _planner(self) -> OffsetPlanner:
        return OffsetPlanner(self._reader(), self._options)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_catalog": None}

    def initialOffset(self) -> Json:
        return as_json(self._planner().resolve(self._options.starting))

    def getDefaultReadLimit(self) -> ReadLimit:
        if (most := self._options.max_offsets_per_trigger) is not None:
            return ReadMaxRows(most)
        if (most := self._options.max_bytes_per_trigger) is not None:
            return ReadMaxBytes(most)
        if (least := self._options.min_offsets_per_trigger) is not None:
            return ReadMinRows(least)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._planner().latest()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        begin = partition_offsets(start)
        self._latest = self._planner().latest() if self._target is None else self._target
        if isinstance(limit, ReadAllAvailable):
            return as_json(self._latest)
        begin = {**self._earliest_of_new(begin), **begin}
        if self._must_wait(begin):
            return start
        most = self._most_offsets(begin)
        return as_json(self._latest if most is None else limited(begin, self._latest, most))

    def _most_offsets(self, begin: Offsets) -> int | None:
        """Return how many offsets a micro-batch may have by its limits; None for all."""
        options = self._options
        limits = [options.max_offsets_per_trigger]
        if options.max_bytes_per_trigger is not None:
            limits.append(
                self._sizes.offsets_within(options.max_bytes_per_trigger, begin, self._latest, self._reader())
            )
        return min((each for each in limits if each is not None), default=None)

    def _earliest_of_new(self, begin: Offsets) -> Offsets:
        new = self._latest.keys() - begin.keys()
        return self._planner().earliest(new) if new else {}

    def _must_wait(self, begin: Offsets) -> bool:
        """True if there are fewer offsets than minOffsetsPerTrigger, and maxTriggerDelay is not over."""
        least = self._options.min_offsets_per_trigger
        if least is None:
            return False
        now = self._clock()
        is_late = (now - self._last_trigger) * 1000 >= self._options.max_trigger_delay_ms
        there = sum(max(end - begin.get(partition, 0), 0) for partition, end in self._latest.items())
        if there < least and not is_late and self._target is None:
            return True
        self._last_trigger = now
        return False

    def reportLatestOffset(self) -> Json | None:
        return as_json(self._latest) or None

    def partitions(self, start: Json, end: Json) -> list[RangePartition]:
        planner, options = self._planner(), self._options
        until = ends_within_logs(planner, options, partition_offsets(end), self._latest)
        ranges = ranges_between(planner, options, partition_offsets(start), until)
        return [RangePartition(task) for task in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from read_range(self._options, self._schema, partition.value)

    def commit(self, end: Json) -> None:
        """Commit the offsets to the group of the option, after Spark has them in its checkpoint."""
        if self._options.commit_group_id is not None:
            self._reader().groups.commit_offsets(self._options.commit_group_id, partition_offsets(end))

    def stop(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None
