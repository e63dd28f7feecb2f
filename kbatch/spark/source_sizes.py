"""How many offsets make some number of bytes, for maxBytesPerTrigger.

Theory of operation. Brokers do not say how many bytes a range of offsets has. So the driver reads a sample
where the ranges of a micro-batch begin: two answers of each of the SAMPLED_PARTITIONS with the most to read.
The first answer may begin in the middle of a batch, and has its bytes all the same. So the second one counts,
and the first only if it is all there is. The estimate of a partition is the mean bytes an offset of its
samples, in which a new one counts as much as all earlier ones together. Partitions without a sample are taken
as the others. While the estimates put the next micro-batch far below the limit, nothing is sampled.

Bytes are those of record batches as brokers keep them: compressed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.consumer.topic_reader import ReadProgress, TopicReader
    from kbatch.spark.source_offsets import Offsets

# The settings of a client that reads samples only.
SAMPLING = {
    "max.partition.fetch.bytes": str(1 << 16),
    "kbatch.fetch.buffer.memory": str(4 << 20),
    "fetch.min.bytes": "1",
}
SAMPLED_PARTITIONS = 32
SAMPLED_ANSWERS = 2
# The part of the limit below which an estimate is believed without a new sample.
SURELY_BELOW = 0.5


class MeanSizes:
    """The mean bytes an offset of partitions, by samples."""

    def __init__(self) -> None:
        self._totals: dict[TopicPartition, tuple[float, float]] = {}  # bytes and offsets

    def offsets_within(self, limit: int, start: Offsets, end: Offsets, reader: TopicReader) -> int | None:
        """Return how many offsets after `start` have about `limit` bytes, if each partition gives its share;
        at least one. None if all up to `end` have fewer.
        """
        ranges = {partition: (start.get(partition, 0), end[partition]) for partition in end}
        sizes = {partition: last - first for partition, (first, last) in ranges.items() if last > first}
        count = sum(sizes.values())
        mean = self._mean(sizes)
        if mean is None or mean * count > limit * SURELY_BELOW:
            largest = sorted(sizes, key=lambda partition: -sizes[partition])[:SAMPLED_PARTITIONS]
            self._add(sampled(reader, {partition: ranges[partition] for partition in largest}))
            mean = self._mean(sizes)
        if mean is None or mean * count <= limit:
            return None
        return max(int(limit / mean), 1)

    def _mean(self, sizes: Mapping[TopicPartition, int]) -> float | None:
        """Return the mean bytes an offset of ranges, weighted by their sizes; None if there is no sample."""
        known = {partition: size for partition, size in sizes.items() if partition in self._totals}
        if not known:
            return None
        total = sum(size * self._totals[each][0] / self._totals[each][1] for each, size in known.items())
        return total / sum(known.values())

    def _add(self, samples: Mapping[TopicPartition, tuple[int, int]]) -> None:
        for partition, (size, count) in samples.items():
            old_size, old_count = self._totals.get(partition, (0.0, 0.0))
            weight = count / old_count if old_count else 0.0
            self._totals[partition] = old_size * weight + size, old_count * weight + count


def sampled(
    reader: TopicReader, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return bytes and the number of offsets of a part of each range; ranges without records have none."""
    answers: dict[TopicPartition, list[tuple[int, int]]] = {partition: [] for partition in ranges}
    left = {partition: last - first for partition, (first, last) in ranges.items()}
    before_bytes = before_position = 0

    def note(progress: ReadProgress) -> None:
        nonlocal before_bytes, before_position
        size, count = progress.bytes - before_bytes, progress.position - before_position
        before_bytes, before_position = progress.bytes, progress.position
        left[reading.partition] -= count
        if size and count > 0:  # else offsets were skipped, which the log does not have
            answers[reading.partition].append((size, count))

    if not ranges:
        return {}
    reading = reader.read(ranges, columns=("offset",), on_data_loss="skip", progress=note)
    with reading:
        for _ in reading:
            if all(left[each] <= 0 or len(answers[each]) >= SAMPLED_ANSWERS for each in ranges):
                break
    return {partition: found[:SAMPLED_ANSWERS][-1] for partition, found in answers.items() if found}
