"""PartitionLog: the record batches of one partition, in memory or in Kafka's own files.

Theory of operation. A log is a row of segments, each named by the first offset that it may have; batches are
appended to the last one. Three numbers of every batch are kept in memory: last offset, end position, largest
timestamp. They answer searches by offset or time; the sparse index files beside a .log are written for
Kafka's tools. The bytes of a segment stay in memory as they were passed, or are mapped from its file. Readers
get views of them, which stay valid after the segment is deleted or compacted: files are never cut while a log
is open, and compaction writes others beside them.

Durability. `append` passes the bytes to the operating system before it returns (a write without buffer), so
the death of the process, kill -9 included, loses nothing. A segment is synced (fsync) when another begins,
and the last one by `close`; checkpoints are synced as they are written. A power cut can lose what was
appended to the last segment, as with Kafka's defaults. Opening a folder cuts off a torn tail, checks the CRCs
of the last segment, reads the headers of all others, and rewrites indexes that do not match.

The model is org.apache.kafka.storage.internals.log: UnifiedLog, LocalLog, LogSegment, Cleaner, and
LeaderEpochFileCache.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kbatch._native.codec.batch_writer import RecordBatchWriter
from kbatch._native.codec.record import Record
from kbatch._native.codec.record_batch import RecordBatch, decode
from kbatch.codec.segments import Segment, segment_logs, segment_name, sync_directory
from kbatch.errors import IllegalStateError
from kbatch.testing.broker.logs.checkpoints import read_checkpoint, write_checkpoint
from kbatch.testing.broker.logs.log_segment import CLEANED_SUFFIX, FileSegment, MemorySegment, StoredSegment
from kbatch.testing.broker.logs.topic_config import TopicConfig

UNDEFINED_EPOCH = UNDEFINED_OFFSET = -1
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"


class FoundOffset(NamedTuple):
    """An answer of ListOffsets; each field is -1 if unknown."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


# Leader epochs


class LeaderEpochs:
    """The start offset of each leader epoch (LeaderEpochFileCache), kept in a checkpoint if there is a
    directory.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._path = directory / LEADER_EPOCH_CHECKPOINT if directory else None
        rows = read_checkpoint(self._path, (int, int)) if self._path else []
        self._entries = [(epoch, start_offset) for epoch, start_offset in rows]

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Return pairs (epoch, start offset), both rising."""
        return list(self._entries)

    @property
    def latest(self) -> int:
        return self._entries[-1][0] if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Start `epoch` here; it replaces an epoch that wrote nothing. An older epoch changes nothing."""
        if epoch > self.latest:
            entries = [entry for entry in self._entries if entry[1] < start_offset]
            self._keep([*entries, (epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (the last epoch not above `epoch`, its end offset), the answer of OffsetForLeaderEpoch.

        The answer is (-1, -1) for an epoch before the first.
        """
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        end_offset = next(start for known, start in self._entries if known > epoch)
        return max((known for known, _ in self._entries if known <= epoch), default=epoch), end_offset

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which `offset` was written; -1 if that is unknown."""
        return max((epoch for epoch, start in self._entries if start <= offset), default=UNDEFINED_EPOCH)

    def truncate_from_start(self, offset: int) -> None:
        """Move the start of the log to `offset`."""
        gone = [entry for entry in self._entries if entry[1] <= offset]
        if gone and gone != [(gone[0][0], offset)]:
            self._keep([(gone[-1][0], offset), *self._entries[len(gone) :]])

    def truncate_from_end(self, offset: int) -> None:
        """Move the end of the log to `offset`."""
        if self._entries and self._entries[-1][1] >= offset:
            self._keep([entry for entry in self._entries if entry[1] < offset])

    def _keep(self, entries: list[tuple[int, int]]) -> None:
        self._entries = entries
        if self._path:
            write_checkpoint(self._path, entries)


# The log


class PartitionLog:
    """The batches of one partition.

    Parameters
    ----------
    directory : Path or None
        The partition's own folder; created if it does not exist. None keeps the log in memory.
    config : TopicConfig
        May be replaced at any time.
    now_ms : int
        Wall-clock milliseconds, as everywhere here.

    Raises
    ------
    CorruptRecordError
        The files are damaged in a way that a writer's death does not explain; the text names file and place.
    OSError
        The disk refuses. After a failed `append` the log refuses all later ones.
    """

    def __init__(
        self, directory: Path | None = None, config: TopicConfig | None = None, *, now_ms: int = 0
    ) -> None:
        self.config = config or TopicConfig()
        self._directory = directory
        self._has_failed = False
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        self.leader_epochs = LeaderEpochs(directory)
        self._segments = self._load() if directory is not None else []
        self._start_offset = 0
        if self._segments:
            self._take_up_offsets()
        else:
            self._segments.append(self._new_segment(0, now_ms))

    # Opening and closing

    def _load(self) -> list[StoredSegment]:
        assert self._directory is not None
        logs = segment_logs(self._directory)
        orphans = {path for path in self._directory.glob("*.*index") if path.with_suffix(".log") not in logs}
        for stray in orphans.union(self._directory.glob(f"*{CLEANED_SUFFIX}")):
            stray.unlink()
        return [FileSegment.load(path, self.config, was_closed=path != logs[-1]) for path in logs]

    def _take_up_offsets(self) -> None:
        assert self._directory is not None
        checkpoint = read_checkpoint(self._directory / START_OFFSET_CHECKPOINT, (int,))
        start_offset = max(self._segments[0].base_offset, checkpoint[0][0] if checkpoint else 0)
        self._start_offset = min(start_offset, self.end_offset)
        self.leader_epochs.truncate_from_end(self.end_offset)
        for batch in self._segments[-1].batches():
            self.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        self.leader_epochs.truncate_from_start(self._start_offset)

    def _new_segment(self, base_offset: int, now_ms: int) -> StoredSegment:
        if self._directory is None:
            return MemorySegment(base_offset, now_ms)
        file = Segment.create(
            self._directory / segment_name(base_offset),
            index_interval_bytes=self.config.index_interval_bytes,
            write_through=True,
        )
        return FileSegment(file, now_ms)

    def close(self) -> None:
        """Wait until all is on the disk. Views that were read stay valid."""
        for segment in self._segments:
            segment.close()
        if self._directory is not None:
            sync_directory(self._directory)

    def delete(self) -> None:
        """Delete all files. Views that were read stay valid."""
        for segment in self._segments:
            segment.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    # Contents

    @property
    def start_offset(self) -> int:
        """Return the first offset that can be read."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """Return the offset of the next record."""
        return self._segments[-1].next_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_base_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self._segments]

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool = True
    ) -> list[memoryview]:
        """Return whole batches from the one with `offset` on, without a copy.

        They end below `limit_offset` and fit `max_bytes`. The first one may be larger unless `at_least_one`
        is False.
        """
        views: list[memoryview] = []
        left = max_bytes
        for segment, number in self._numbers_from(offset):
            if segment.last_offset(number) >= limit_offset:
                break
            view = segment.view(number)
            left -= len(view)
            if left < 0 and (views or not at_least_one):
                break
            views.append(view)
        return views

    def batches(self, offset: int = 0) -> Iterator[RecordBatch]:
        """Yield all batches from the one with `offset` on, as the log stores them."""
        return (segment.batch(number) for segment, number in self._numbers_from(offset))

    def _numbers_from(self, offset: int) -> Iterator[tuple[StoredSegment, int]]:
        for segment in self._segments:
            if segment.next_offset > offset:
                for number in range(segment.number_at(offset), len(segment)):
                    yield segment, number

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """Return the first record of this time or later (FileRecords.searchForTimestamp), or None."""
        for segment in self._segments:
            for number in segment.numbers_as_late_as(timestamp_ms):
                batch = segment.batch(number)
                for record in batch if batch.last_offset >= self._start_offset else ():
                    if record.offset >= self._start_offset and _timestamp_of(record) >= timestamp_ms:
                        return FoundOffset(_timestamp_of(record), record.offset, batch.partition_leader_epoch)
        return None

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """Return the first record with the largest timestamp of all (KIP-734); None for an empty log."""
        segment = max(self._segments, key=lambda segment: segment.largest_timestamp_ms)
        for number in segment.numbers_as_late_as(segment.largest_timestamp_ms):
            batch = segment.batch(number)
            for record in batch:
                if _timestamp_of(record) == batch.max_timestamp_ms:
                    return FoundOffset(batch.max_timestamp_ms, record.offset, batch.partition_leader_epoch)
        return None

    # Growing

    def roll(self, now_ms: int) -> None:
        """Close the last segment, unless it is empty, and begin another."""
        if self._segments[-1].size_bytes:
            self._segments[-1].close()
            self._segments.append(self._new_segment(self.end_offset, now_ms))

    def append(self, data: bytes | bytearray, *, now_ms: int) -> bool:
        """Append one whole batch, which must not change afterwards and whose base offset is `end_offset`.

        Return True if it began a new segment.
        """
        batch = next(decode(data, check_crc=False))
        if batch.base_offset != self.end_offset:
            raise ValueError(f"the batch must have offset {self.end_offset}, got {batch.base_offset}")
        if self._has_failed:
            raise IllegalStateError(f"an earlier append to {self._directory} failed; open the log again")
        try:
            rolls = self._is_to_roll(batch, now_ms)
            if rolls:
                self.roll(now_ms)
            self.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            self._segments[-1].append(data, batch, now_ms)
        except OSError:
            self._has_failed = True
            raise
        return rolls

    def _is_to_roll(self, batch: RecordBatch, now_ms: int) -> bool:
        """LogSegment.shouldRoll"""
        segment = self._segments[-1]
        if segment.size_bytes == 0:
            return False
        waited_ms = segment.waited_ms(batch.max_timestamp_ms, now_ms)
        has_room = segment.has_room(batch.size_bytes, batch.last_offset, self.config)
        return waited_ms > self.config.segment_ms or not has_room

    # Shrinking

    def delete_records_before(self, offset: int) -> None:
        """Start the log at `offset`, unless it already starts later.

        The next `delete_old_segments` deletes the segments.
        """
        if offset > self._start_offset:
            self._start_at(offset)
            self.leader_epochs.truncate_from_start(offset)

    def _start_at(self, offset: int) -> None:
        self._start_offset = offset
        if self._directory is not None:
            write_checkpoint(self._directory / START_OFFSET_CHECKPOINT, [(offset,)])

    def truncate_to(self, offset: int) -> None:
        """Cut off every batch that reaches to `offset` or beyond (UnifiedLog.truncateTo).

        The log then ends where the first of them began.
        """
        if offset >= self.end_offset:
            return
        count = max(1, sum(segment.base_offset < offset for segment in self._segments))
        *kept, cut = self._segments[:count]
        deleted = self._segments[count:]
        batches = [bytes(cut.view(number)) for number in range(cut.number_at(offset))]
        cut.close()
        self._segments = [*kept, cut.rewritten(batches, self.config, is_open=True)]
        for segment in deleted:
            segment.delete()
        self.leader_epochs.truncate_from_end(self.end_offset)
        if self.end_offset < self._start_offset:
            self._start_at(self.end_offset)

    def begin_anew(self, offset: int, now_ms: int) -> None:
        """Delete everything; the log starts and ends at `offset`."""
        for segment in self._segments:
            segment.delete()
        self._segments = [self._new_segment(offset, now_ms)]
        self.leader_epochs.truncate_from_end(0)
        self._start_at(offset)

    def delete_old_segments(self, now_ms: int, limit_offset: int) -> int:
        """Delete old segments, and return how many.

        Those are segments before the start of the log, and segments beyond the size or age of the topic's
        config. A segment that goes beyond `limit_offset`, the high watermark, stays.
        """
        config = self.config
        count = self._delete_while(
            lambda segment: segment.next_offset <= self._start_offset and segment is not self._segments[-1],
            limit_offset,
            now_ms,
        )
        excess_bytes = self.size_bytes - config.retention_bytes

        def is_too_much(segment: StoredSegment) -> bool:
            nonlocal excess_bytes
            excess_bytes -= segment.size_bytes
            return excess_bytes >= 0

        def is_too_old(segment: StoredSegment) -> bool:
            largest_ms = segment.largest_timestamp_ms
            return now_ms - (largest_ms if largest_ms >= 0 else segment.modified_ms) > config.retention_ms

        if config.is_deleted and config.retention_bytes >= 0:
            count += self._delete_while(is_too_much, limit_offset, now_ms)
        if config.is_deleted and config.retention_ms >= 0:
            count += self._delete_while(is_too_old, limit_offset, now_ms)
        return count

    def _delete_while(
        self, is_deletable: Callable[[StoredSegment], bool], limit_offset: int, now_ms: int
    ) -> int:
        """Delete segments from the oldest on while `is_deletable`; if those are all, begin an empty one."""
        count = 0
        for segment in self._segments:
            if not segment.size_bytes or segment.next_offset > limit_offset or not is_deletable(segment):
                break
            count += 1
        if count == len(self._segments):
            self.roll(now_ms)
        deleted, self._segments = self._segments[:count], self._segments[count:]
        self.delete_records_before(self._segments[0].base_offset)
        for segment in deleted:
            segment.delete()
        return count

    def compact(
        self,
        now_ms: int,
        limit_offset: int,
        *,
        is_aborted: Callable[[RecordBatch], bool],
        is_last_of_producer: Callable[[RecordBatch], bool],
    ) -> None:
        """Keep only the newest record of each key in the closed segments that end at `limit_offset` or below.

        Kafka's Cleaner does the same. Offsets stay. Batches of aborted transactions and records without key
        go. A tombstone stays for delete.retention.ms (KIP-534). The last batch of a producer id stays, if
        only as an empty batch. Unlike in Kafka, control batches stay, and segments are not joined.
        """
        count = sum(segment.next_offset <= limit_offset for segment in self._segments[:-1])
        newest: dict[bytes, int] = {}
        for segment in self._segments[:count]:
            for batch in segment.batches():
                if not batch.is_control and not is_aborted(batch):
                    newest.update(
                        (_key_of(record), record.offset) for record in batch if record.key is not None
                    )

        def cleaned(batch: RecordBatch) -> bytes | None:
            if batch.is_control:
                return bytes(batch)
            data = _cleaned_batch(batch, newest, now_ms, self.config.delete_retention_ms)
            return data if data or not is_last_of_producer(batch) else _rewritten_batch(batch, [], None)

        for number, segment in enumerate(self._segments[:count]):
            batches = [bytes(batch) for batch in segment.batches()]
            kept = [data for data in map(cleaned, segment.batches()) if data]
            if kept != batches:
                self._segments[number] = segment.rewritten(kept, self.config)


def _timestamp_of(record: Record) -> int:
    assert record.timestamp_ms is not None, "a record that was read has one"
    return record.timestamp_ms


def _key_of(record: Record) -> bytes:
    assert record.key is not None
    return bytes(record.key)


def _cleaned_batch(
    batch: RecordBatch, newest: dict[bytes, int], now_ms: int, delete_retention_ms: int
) -> bytes | None:
    """Return the rest of a batch after compaction: the same bytes if all stays, None if nothing does."""
    horizon_ms = batch.delete_horizon_ms
    keeps_tombstones = horizon_ms is None or now_ms < horizon_ms
    records = [
        record
        for record in batch
        if record.key is not None
        and newest.get(_key_of(record)) == record.offset
        and (keeps_tombstones or record.value is not None)
    ]
    has_tombstones = any(record.value is None for record in records)
    if not records:
        return None
    if horizon_ms is None and has_tombstones:
        horizon_ms = now_ms + delete_retention_ms
    elif len(records) == len(batch):
        return bytes(batch)
    return _rewritten_batch(batch, records, horizon_ms)


def _rewritten_batch(batch: RecordBatch, records: list[Record], delete_horizon_ms: int | None) -> bytes:
    """Return `batch` with some of its records, at their offsets."""
    is_log_append_time = batch.timestamp_type == "log_append_time"
    writer = RecordBatchWriter(
        batch.compression,
        transactional=batch.is_transactional,
        log_append_time_ms=batch.max_timestamp_ms if is_log_append_time else None,
        delete_horizon_ms=delete_horizon_ms,
        base_offset=batch.base_offset,
        partition_leader_epoch=batch.partition_leader_epoch,
    )
    for record in records:
        writer.append(record.key, record.value, record.headers, record.timestamp_ms, offset=record.offset)
    writer.seal(last_offset_delta=batch.last_offset - batch.base_offset)
    if batch.producer_id >= 0:
        writer.stamp(
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
        )
    return writer.getvalue()
