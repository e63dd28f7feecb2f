"""The segments of a PartitionLog, in memory or in files; partition_log.py describes their life cycle."""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path

from kbatch._native.codec.record_batch import RecordBatch, decode
from kbatch.codec.segments import INT32_MAX, Segment, read_segment, segment_files, sync_directory
from kbatch.testing.broker.logs.topic_config import TopicConfig

NO_TIMESTAMP = -1
CLEANED_SUFFIX = ".cleaned"


class StoredSegment:
    """The batches of a segment, by number, with the facts that searches need without reading the batch."""

    def __init__(self, base_offset: int, now_ms: int) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.largest_timestamp_ms = NO_TIMESTAMP
        self.modified_ms = now_ms
        self._created_ms = now_ms
        self._last_offsets = array("q")
        self._ends = array("q")
        self._max_timestamps_ms = array("q")

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, data: bytes | bytearray, batch: RecordBatch, now_ms: int) -> None:
        self._store(data, batch)
        self.note(batch)
        self.modified_ms = now_ms

    def note(self, batch: RecordBatch) -> None:
        """Add `batch` after the others."""
        self.size_bytes += batch.size_bytes
        self.next_offset = batch.last_offset + 1
        self.largest_timestamp_ms = max(self.largest_timestamp_ms, batch.max_timestamp_ms)
        self._last_offsets.append(batch.last_offset)
        self._ends.append(self.size_bytes)
        self._max_timestamps_ms.append(batch.max_timestamp_ms)

    def number_at(self, offset: int) -> int:
        """Return the number of the first batch that ends at `offset` or later; the count if there is none."""
        return bisect_left(self._last_offsets, offset)

    def numbers_as_late_as(self, timestamp_ms: int) -> Iterator[int]:
        """Yield the numbers of the batches with a record at this timestamp or later."""
        return (number for number, ms in enumerate(self._max_timestamps_ms) if ms >= timestamp_ms)

    def last_offset(self, number: int) -> int:
        return self._last_offsets[number]

    def view(self, number: int) -> memoryview:
        raise NotImplementedError

    def batch(self, number: int) -> RecordBatch:
        return next(decode(self.view(number), check_crc=False))

    def batches(self) -> Iterator[RecordBatch]:
        return (self.batch(number) for number in range(len(self)))

    def waited_ms(self, timestamp_ms: int, now_ms: int) -> int:
        """Return for how long the segment has taken batches (LogSegment.timeWaitedForRoll).

        The timestamps count, or the clock if the first batch has none.
        """
        first_ms = self._max_timestamps_ms[0] if self._max_timestamps_ms else NO_TIMESTAMP
        return timestamp_ms - first_ms if first_ms >= 0 else now_ms - self._created_ms

    def has_room(self, size: int, last_offset: int, config: TopicConfig) -> bool:
        return self.size_bytes == 0 or (
            self.size_bytes + size <= config.segment_bytes and last_offset - self.base_offset <= INT32_MAX
        )

    def rewritten(
        self, batches: Iterable[bytes], config: TopicConfig, *, is_open: bool = False
    ) -> StoredSegment:
        """Return a segment of these batches that replaces this one; `is_open`: it takes more."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the segment: it takes no more batches."""

    def delete(self) -> None:
        """Delete all of it from the disk."""

    def _store(self, data: bytes | bytearray, batch: RecordBatch) -> None:
        raise NotImplementedError


class MemorySegment(StoredSegment):
    def __init__(self, base_offset: int, now_ms: int) -> None:
        super().__init__(base_offset, now_ms)
        self._batches: list[bytes | bytearray] = []

    def view(self, number: int) -> memoryview:
        return memoryview(self._batches[number]).toreadonly()

    def rewritten(
        self, batches: Iterable[bytes], config: TopicConfig, *, is_open: bool = False
    ) -> StoredSegment:
        segment = MemorySegment(self.base_offset, self._created_ms)
        for data in batches:
            segment.append(data, next(decode(data, check_crc=False)), self.modified_ms)
        return segment

    def _store(self, data: bytes | bytearray, batch: RecordBatch) -> None:
        self._batches.append(data)


class FileSegment(StoredSegment):
    """A segment whose batches are in a file, which is mapped again when it is read after it has grown."""

    def __init__(self, file: Segment, now_ms: int) -> None:
        super().__init__(file.base_offset, now_ms)
        self._file = file
        self._is_closed = False
        self._map = memoryview(b"")

    @classmethod
    def load(cls, path: Path, config: TopicConfig, *, was_closed: bool) -> FileSegment:
        """Load an existing segment."""
        file = Segment.reopen(
            path,
            index_interval_bytes=config.index_interval_bytes,
            write_through=True,
            was_closed=was_closed,
        )
        segment = cls(file, int(path.stat().st_mtime * 1000))
        for batch in read_segment(path, check_crc=False):
            segment.note(batch)
        if was_closed:
            segment.close()
        return segment

    def view(self, number: int) -> memoryview:
        if len(self._map) < self.size_bytes:
            with self._file.log_path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), self.size_bytes, access=mmap.ACCESS_READ)
            self._map = memoryview(mapped)
        return self._map[self._ends[number - 1] if number else 0 : self._ends[number]]

    def has_room(self, size: int, last_offset: int, config: TopicConfig) -> bool:
        return self._file.has_room(size, last_offset, config.segment_bytes, config.segment_index_bytes)

    def rewritten(
        self, batches: Iterable[bytes], config: TopicConfig, *, is_open: bool = False
    ) -> StoredSegment:
        """Write all files beside the old ones, and then rename them, the log first.

        An index that does not match is rewritten when the log is opened.
        """
        path = self._file.log_path
        cleaned_path = path.with_name(path.name + CLEANED_SUFFIX)
        cleaned = Segment.create(cleaned_path, index_interval_bytes=config.index_interval_bytes)
        for data in batches:
            batch = next(decode(data, check_crc=False))
            cleaned.append([data], batch.last_offset, batch.max_timestamp_ms)
        cleaned.close()
        for source, target in zip(segment_files(cleaned_path), segment_files(path), strict=True):
            source.replace(target)
        sync_directory(path.parent)
        return FileSegment.load(path, config, was_closed=not is_open)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._file.close()

    def delete(self) -> None:
        """Delete the files, the .log first: without it the others are ignored."""
        self.close()
        path = self._file.log_path
        path.unlink()
        for other in path.parent.glob(f"{path.stem}.*"):
            other.unlink()

    def _store(self, data: bytes | bytearray, batch: RecordBatch) -> None:
        self._file.append([data], batch.last_offset, batch.max_timestamp_ms)
