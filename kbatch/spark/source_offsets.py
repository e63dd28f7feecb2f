"""Offsets of a read: which partitions, from where, to where, and how they are split into tasks.

Offsets are those of Spark's Kafka source: the next to read, and in JSON {"topic": {"partition": offset}}. So
a query of `format("kafka")` can go on with this source, from its own checkpoint.

After org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin and KafkaOffsetRangeCalculator.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol

from kbatch.consumer.ranges import Gaps
from kbatch.errors import DataLossError
from kbatch.records import NO_TOPIC_ID, TopicPartition
from kbatch.spark.java_patterns import java_pattern
from kbatch.spark.source_options import EARLIEST, LATEST, Limit, SourceOptions

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]

FAILS = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged "
    "out by Kafka or the topic may have been deleted before all the data in the topic was processed. If you "
    'don\'t want your query to fail on such cases, set the source option "failOnDataLoss" to "false".'
)
GOES_ON = (
    "Some data may have been lost because they are not available in Kafka any more. If you want your "
    'query to fail on such cases, set the source option "failOnDataLoss" to "true".'
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Described(Protocol):
    """What brokers say of a topic now."""

    @property
    def topic_id(self) -> bytes: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def is_internal(self) -> bool: ...


class Catalog(Protocol):
    """What planning needs of a TopicReader."""

    def describe(self, topics: Iterable[str] | None = None) -> Mapping[str, Described]: ...
    def partitions(self, topic: str) -> Iterable[int]: ...
    def offsets(self, topic: str, spec: Any, partitions: Iterable[int] | None = None) -> dict[int, int]: ...


class OffsetRange(NamedTuple):
    """The offsets of a partition from `start` to before `end`; of the topic of that id, if there are ids."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = NO_TOPIC_ID

    @property
    def size(self) -> int:
        """The number of offsets. Compaction and transactions leave fewer records."""
        return self.end - self.start


def as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as Spark writes them, in the order of topics and partitions."""
    by_topic: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        by_topic.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return by_topic


class OffsetPlanner:
    """Finds partitions and offsets for a read, by the questions of a Catalog.

    Parameters
    ----------
    catalog : Catalog
    options : SourceOptions

    Attributes
    ----------
    topic_ids : Mapping[str, bytes]
        The ids of the topics that `assigned` has found last. The catalog may remember an older topic of the
        same name; so it is asked each time.
    """

    def __init__(self, catalog: Catalog, options: SourceOptions) -> None:
        self._catalog = catalog
        self._options = options
        self.topic_ids: Mapping[str, bytes] = {}

    def assigned(self) -> set[TopicPartition]:
        """Return the partitions that the options name, as they are now."""
        options = self._options
        by_pattern = options.strategy == "subscribepattern"
        named = options.topics or {partition.topic for partition in options.assigned}
        found = self._catalog.describe(None if by_pattern else sorted(named))
        self.topic_ids = {topic: each.topic_id for topic, each in found.items()}
        if options.strategy == "assign":
            return set(options.assigned)
        topics: Iterable[str] = options.topics
        if by_pattern:
            matches = java_pattern(options.pattern).search
            topics = [topic for topic, each in found.items() if matches(topic) and not each.is_internal]
        return {
            TopicPartition(topic, partition)
            for topic in topics
            for partition in (
                range(found[topic].partition_count) if topic in found else self._catalog.partitions(topic)
            )
        }

    def within_logs(self, starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
        """Return starts and ends that a user has named without what the logs do not have.

        Raises
        ------
        DataLossError
            They do not have all of it, and failOnDataLoss is true.
        """
        first, last = self.earliest(starts), self.latest(ends)
        lost = partial(report_data_loss, self._options)
        starts, ends = dict(starts), dict(ends)
        for partition in sorted(starts):
            start, end = starts[partition], ends[partition]
            if start < end and end > last[partition]:
                lost(short_text(partition, end, last[partition]))
                ends[partition] = end = last[partition]
            if start > end and start > last[partition]:
                lost(f"{partition} is to be read from offset {start}, but its log ends at {last[partition]}")
                starts[partition] = start = end
            if start < first[partition] and start < end:
                starts[partition] = min(first[partition], end)
                lost(gone_text(partition, [(start, starts[partition])]))
        return starts, ends

    def range_of(self, partition: TopicPartition, start: int, end: int) -> OffsetRange:
        """Return a range of the topic that `assigned` has found."""
        return OffsetRange(*partition, start, end, self.topic_ids.get(partition.topic, NO_TOPIC_ID))

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the first offsets that still exist."""
        return self._ask(partitions, "earliest")

    def latest(self, partitions: Iterable[TopicPartition] | None = None) -> Offsets:
        """Return the end offsets: with read_committed, those of the last stable records."""
        return self._ask(self.assigned() if partitions is None else partitions, "latest")

    def resolve(self, limit: Limit) -> Offsets:
        """Return the offsets of a limit, for all assigned partitions.

        Raises
        ------
        ValueError
            The limit names other partitions than the assigned ones, or no record is as late as its time.
        """
        partitions = self.assigned()
        match limit.kind:
            case "earliest":
                return self.earliest(partitions)
            case "latest":
                return self.latest(partitions)
            case "time":
                return self._at_times(dict.fromkeys(partitions, limit.time_ms), limit)
        if partitions != limit.by_partition.keys():
            raise ValueError(
                "If startingOffsets or endingOffsets contain specific offsets or timestamps, you must "
                "specify all TopicPartitions. Use -1 for latest, -2 for earliest. Specified: "
                f"{_listed(limit.by_partition)} Assigned: {_listed(partitions)}"
            )
        if limit.kind == "times":
            return self._at_times(limit.by_partition, limit)
        return self._at_offsets(limit.by_partition)

    def _at_offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        latest = self.latest([partition for partition, offset in wanted.items() if offset == LATEST])
        earliest = self.earliest([partition for partition, offset in wanted.items() if offset == EARLIEST])
        return {**wanted, **latest, **earliest}

    def _at_times(self, wanted: Mapping[TopicPartition, int], limit: Limit) -> Offsets:
        """Return the first offsets of records as late as the times; the ends where there are none."""
        latest = self.latest(wanted)
        found: Offsets = {}
        for time_ms in sorted(set(wanted.values())):
            partitions = [partition for partition, wanted_ms in wanted.items() if wanted_ms == time_ms]
            found.update(self.at_time(partitions, time_ms))
        if limit.accepts_no_match:
            return found
        for partition, offset in sorted(found.items()):
            if offset >= latest[partition]:
                raise ValueError(
                    f"No offset matched from request of topic-partition {partition} and "
                    f"timestamp {wanted[partition]}. Set startingOffsetsByTimestampStrategy to latest to "
                    "begin at the end there"
                )
        return found

    def at_time(self, partitions: Iterable[TopicPartition], time_ms: int) -> Offsets:
        """Return the offsets of the first records with this timestamp or a later one; the ends if none."""
        return self._ask(partitions, _EPOCH + timedelta(milliseconds=time_ms))

    def _ask(self, partitions: Iterable[TopicPartition], spec: object) -> Offsets:
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        return {
            TopicPartition(topic, partition): offset
            for topic, numbers in sorted(by_topic.items())
            for partition, offset in self._catalog.offsets(topic, spec, sorted(numbers)).items()
        }


def gone_text(partition: TopicPartition, gaps: Gaps) -> str:
    """Return what is said of offsets that a log does not have any more."""
    listed = ", ".join(f"{first} to {after - 1}" for first, after in gaps)
    count = sum(after - first for first, after in gaps)
    return f"{count} offsets of {partition} are gone ({listed})"


def short_text(partition: TopicPartition, end: int, log_end: int) -> str:
    """Return what is said of a range that ends after its log."""
    return f"{partition} is to be read up to offset {end}, but its log ends at {log_end}"


def data_loss(text: str) -> DataLossError:
    """Return the error of records that are gone, with the remedy."""
    return DataLossError(f"{text}. {FAILS}")


def report_data_loss(options: SourceOptions, text: str) -> None:
    """Raise DataLossError, or log a warning if failOnDataLoss is false."""
    if options.fails_on_data_loss:
        raise data_loss(text)
    logger.warning("%s. %s", text, GOES_ON)


def ends_within_logs(planner: OffsetPlanner, options: SourceOptions, end: Offsets, known: Offsets) -> Offsets:
    """Return the ends of a micro-batch, without what logs do not have: a checkpoint may be older than a topic
    that was created again. Logs are known to reach to `known`.

    Raises
    ------
    DataLossError
        Logs do not have all of it, and failOnDataLoss is true.
    """
    doubtful = {partition for partition in end if end[partition] > known.get(partition, -1)}
    there = planner.assigned() & doubtful if doubtful else set()
    last = planner.latest(there) if there else {}
    short = {partition for partition in there if end[partition] > last[partition]}
    for partition in sorted(short):
        report_data_loss(options, short_text(partition, end[partition], last[partition]))
    return {**end, **{partition: last[partition] for partition in short}}


def ranges_between(
    planner: OffsetPlanner, options: SourceOptions, start: Offsets, end: Offsets
) -> list[OffsetRange]:
    """Return the ranges of a micro-batch. New partitions begin at their earliest offsets.

    Raises
    ------
    DataLossError
        Records between the offsets are gone, and failOnDataLoss is true.
    """
    lost = partial(report_data_loss, options)
    new = end.keys() - start.keys()
    there = planner.assigned() & new
    earliest = planner.earliest(there) if there else {}
    if new - there:
        lost(f"Cannot find earliest offsets of {_listed(new - there)}. Some data may have been missed")
    for partition, offset in sorted(earliest.items()):
        if offset != 0:
            lost(
                f"Added partition {partition} starts from {offset} instead of 0. "
                "Some data may have been missed"
            )
    if gone := start.keys() - end.keys():
        lost(f"{_listed(gone)} are gone. Some data may have been missed")
    ranges = []
    for partition in sorted(end.keys() - (new - there)):
        begin = start.get(partition, earliest.get(partition, 0))
        if end[partition] < begin:
            lost(
                f"Partition {partition}'s offset was changed from {begin} to {end[partition]}, "
                "some data may have been missed"
            )
        ranges.append(planner.range_of(partition, begin, end[partition]))
    return split(ranges, options.min_partitions, options.max_records_per_partition)


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Return the ranges, without empty ones, as tasks: a range each, or parts of equal size.

    Ranges of more than `max_records` offsets are divided. If there are fewer than `min_partitions`, large
    ranges are divided by their share of all offsets, so that the number is about that.
    """
    found = [each for each in ranges if each.size > 0]
    if max_records is not None:
        found = [part for each in found for part in _divided(each, math.ceil(each.size / max_records))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(each.size for each in found)
    small = [each for each in found if _part_count(each.size, total, min_partitions) == 1]
    large_total = total - sum(each.size for each in small)
    large_parts = max(min_partitions - len(small), 1)
    return [
        part
        for each in found
        for part in _divided(each, 1 if each in small else _part_count(each.size, large_total, large_parts))
    ]


def _part_count(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)


def _divided(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Divide a range; rounding makes the last parts the larger ones."""
    bounds = [whole.start]
    left = whole.size
    for part in range(parts):
        size = left // (parts - part)
        left -= size
        bounds.append(bounds[-1] + size)
    pairs = itertools.pairwise(bounds)
    return [whole._replace(start=start, end=end) for start, end in pairs if end > start]


def limited(start: Offsets, end: Offsets, most: int) -> Offsets:
    """Return end offsets such that some `most` offsets are read, each partition by its share.

    A partition with anything to read gets at least one offset.
    """
    sizes = {partition: end[partition] - start.get(partition, 0) for partition in end}
    sizes = {partition: size for partition, size in sizes.items() if size > 0}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    until = dict(end)
    for partition, size in sizes.items():
        share = most * size / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        until[partition] = min(end[partition], start.get(partition, 0) + taken)
    return until


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return "{" + ", ".join(map(str, sorted(partitions))) + "}"
