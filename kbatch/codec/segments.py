"""Log segments: the files in which a Kafka broker keeps a partition, written and read without a broker.

A segment is three files named by its first offset: the record batches (.log), a sparse index from offset to
file position (.index) and one from timestamp to offset (.timeindex). The content of indexes and the ends of
segments follow Kafka 4.3: LogSegment, OffsetIndex and TimeIndex of org.apache.kafka.storage.internals.log.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Literal, Self

from kbatch._native.codec.record_batch import RecordBatch, decode
from kbatch.errors import CorruptRecordError, IllegalStateError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, StrPath

INT32_MAX = 2**31 - 1
# Kafka's defaults: segment.bytes, segment.index.bytes and index.interval.bytes.
SEGMENT_BYTES = 1 << 30
INDEX_BYTES = 10 << 20
INDEX_INTERVAL_BYTES = 4096
MAX_DECOMPRESSED_BYTES = 256 << 20

SUFFIXES = (".log", ".index", ".timeindex")
_BASE_OFFSET = struct.Struct(">q")  # the first field of a record batch; the CRC does not cover it
_LENGTH = struct.Struct(">8xi")  # the second: the batch's bytes after it
_OFFSET_ENTRY = struct.Struct(">ii")  # offset relative to the segment's first, position in the .log
_TIME_ENTRY = struct.Struct(">qi")  # timestamp in ms, offset relative to the segment's first
_NO_TIMESTAMP = -1
_WRITE_BUFFER_BYTES = 1 << 20
_ZEROS = bytes(1 << 20)
_Mode = Literal["xb", "ab"]


def check_topic(topic: str) -> None:
    """Raise ValueError unless Kafka accepts `topic` as a name (org.apache.kafka.common.internals.Topic)."""
    if topic in ("", ".", ".."):
        raise ValueError(f"topic {topic!r} is not a valid name in Kafka; use a letter or digit")
    if len(topic) > 249:
        raise ValueError(f"topic must have at most 249 characters, got {len(topic)}: {topic[:20]!r}...")
    if illegal := re.sub(r"[a-zA-Z0-9._-]", "", topic):
        raise ValueError(
            f"topic {topic!r} contains {illegal[0]!r}; use ASCII letters and digits, '.', '_' and '-' only"
        )


def _check_range(name: str, value: int, least: int) -> None:
    if not least <= value <= INT32_MAX:
        raise ValueError(f"{name} must be {least} to {INT32_MAX}, got {value}")


class SegmentWriter:
    """Writes a partition in a broker's format, in `directory`/`topic`-`partition`/.

    Offsets start at 0, or with `resume` after the existing ones. Leaving its context, even by an exception,
    closes the files, and everything appended is then on disk (fsync of files and folder). Do not use it from
    several threads at a time.

    Parameters
    ----------
    directory : path
        The parent folder of the partition's (a broker's log.dirs); created if it is missing.
    topic, partition : str, int
        The name of the partition's folder.
    segment_bytes : int
        A batch that would make a .log larger than this starts a new segment (Kafka's segment.bytes).
    index_bytes : int
        Maximum size of an index (segment.index.bytes): when one is full, a new segment starts.
    index_interval_bytes : int
        Log bytes between two index entries (index.interval.bytes).
    resume : bool
        Continue after the existing segments. The torn tail of the last one, left by a killed writer, is cut
        off (`torn_bytes`), and its indexes are rewritten if they do not match.

    Raises
    ------
    ValueError
        A topic that Kafka refuses, or a number out of range.
    FileExistsError
        The partition's folder has segments already, and `resume` is False.
    CorruptRecordError
        The last segment is broken before its end; nothing is changed.
    """

    def __init__(
        self,
        directory: StrPath,
        topic: str,
        partition: int,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        index_bytes: int = INDEX_BYTES,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        resume: bool = False,
    ) -> None:
        check_topic(topic)
        _check_range("partition", partition, 0)
        _check_range("segment_bytes", segment_bytes, 1)
        # A time index reserves its last slot for the closing entry, so it needs two.
        _check_range("index_bytes", index_bytes, 2 * _TIME_ENTRY.size)
        _check_range("index_interval_bytes", index_interval_bytes, 0)
        self._directory = Path(directory, f"{topic}-{partition}")
        self._segment_bytes = segment_bytes
        self._index_bytes = index_bytes
        self._index_interval_bytes = index_interval_bytes
        self._closed = False
        self._failure: OSError | None = None
        self._directory.mkdir(parents=True, exist_ok=True)
        self._log_paths = segment_logs(self._directory)
        if self._log_paths and not resume:
            raise FileExistsError(
                f"{self._directory} already has segments ({self._log_paths[0].name}); write to another "
                "directory, delete that folder first, or continue after them (resume=True)"
            )
        if self._log_paths:
            self._segment = Segment.reopen(self._log_paths[-1], index_interval_bytes=index_interval_bytes)
            self._next_offset = self._segment.next_offset
        else:
            self._next_offset = 0
            self._segment = self._open_segment()
        self._torn_bytes = self._segment.torn_bytes

    @property
    def directory(self) -> Path:
        """The partition's folder."""
        return self._directory

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._next_offset

    @property
    def log_paths(self) -> list[Path]:
        """The .log files so far, in the order of their offsets."""
        return list(self._log_paths)

    @property
    def torn_bytes(self) -> int:
        """The bytes that `resume` cut off the last segment."""
        return self._torn_bytes

    def append(self, batch_bytes: ReadableBuffer) -> int:
        """Write one record batch (magic 2, any base offset) and return the offset of its first record.

        Raises
        ------
        CorruptRecordError
            The bytes are truncated, of an older magic, or do not match their CRC. Nothing is written.
        ValueError
            No batch, more than one, or one larger than `segment_bytes`. Nothing is written.
        IllegalStateError
            The writer is closed, or an earlier append failed midway.
        OSError
            The disk refuses; the segment may end in a torn batch, and the writer accepts no more.
        """
        if self._closed:
            raise IllegalStateError(f"the writer of {self._directory} is closed; open another one")
        if self._failure:
            raise IllegalStateError(f"an earlier append to {self._directory} failed: {self._failure}")
        data = memoryview(batch_bytes).cast("B")
        batch = _single_batch(data)
        if len(data) > self._segment_bytes:
            raise ValueError(
                f"batch_bytes has {len(data)} bytes, more than segment_bytes ({self._segment_bytes}); "
                "raise segment_bytes or encode smaller batches"
            )
        first_offset = self._next_offset
        last_offset = first_offset + batch.last_offset - batch.base_offset
        parts = _BASE_OFFSET.pack(first_offset), data[_BASE_OFFSET.size :]
        try:
            if not self._segment.has_room(len(data), last_offset, self._segment_bytes, self._index_bytes):
                self._segment.close()
                self._segment = self._open_segment()
            self._segment.append(parts, last_offset, batch.max_timestamp_ms)
        except OSError as error:
            self._failure = error
            raise
        self._next_offset = last_offset + 1
        return first_offset

    def close(self) -> None:
        """Write the rest and wait until it is on disk. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._segment.close()
        sync_directory(self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _open_segment(self) -> Segment:
        path = self._directory / segment_name(self._next_offset)
        segment = Segment.create(path, index_interval_bytes=self._index_interval_bytes)
        self._log_paths.append(path)
        return segment


def _single_batch(data: memoryview) -> RecordBatch:
    """Return the one batch in `data` after checking header and CRC."""
    batch = next(iter(decode(data, partial="raise")), None)
    if batch is None:
        raise ValueError("batch_bytes is empty; append one whole record batch")
    if batch.size_bytes != len(data):
        raise ValueError(
            f"batch_bytes has {len(data) - batch.size_bytes} bytes after its first record batch "
            f"of {batch.size_bytes}: append one batch per call"
        )
    return batch


def sync_directory(directory: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def segment_name(base_offset: int) -> str:
    """Return the name of the .log file that starts at this offset."""
    return f"{base_offset:020d}.log"


def segment_logs(directory: Path) -> list[Path]:
    """Return the .log files of a partition's folder, in the order of their offsets."""
    return sorted(directory.glob("[0-9]" * 20 + ".log"))


class _SparseIndexes:
    """The rule for index entries of a batch (LogSegment.append, OffsetIndex, TimeIndex)."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.offset_entries = 0
        self.time_entries = 0
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._bytes_since_entry = 0
        self._max_timestamp_ms = _NO_TIMESTAMP
        self._max_timestamp_offset = base_offset  # the last offset of the first batch with that timestamp
        self._indexed_timestamp_ms = _NO_TIMESTAMP

    def entries_for(
        self, position: int, size: int, last_offset: int, max_timestamp_ms: int
    ) -> tuple[bytes, bytes]:
        """Return the two indexes' entries for the batch at `position`: usually none."""
        offset_entry = time_entry = b""
        if max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms, self._max_timestamp_offset = max_timestamp_ms, last_offset
        if self._bytes_since_entry > self._interval_bytes:
            offset_entry = _OFFSET_ENTRY.pack(last_offset - self._base_offset, position)
            self.offset_entries += 1
            time_entry = self.time_entry()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        return offset_entry, time_entry

    def time_entry(self) -> bytes:
        """Return an entry for the largest timestamp so far, unless the time index ends with it: timestamps
        rise.
        """
        if self._max_timestamp_ms <= self._indexed_timestamp_ms:
            return b""
        self._indexed_timestamp_ms = self._max_timestamp_ms
        self.time_entries += 1
        return _TIME_ENTRY.pack(self._max_timestamp_ms, self._max_timestamp_offset - self._base_offset)


class Segment:
    """The three files of a segment being written; made by `create` or `reopen`.

    With `write_through` every append reaches the operating system before it returns, so the death of the
    process loses nothing; else it waits in buffers of 1 MiB. `close` waits until all is on disk.

    Attributes
    ----------
    log_path : Path
    base_offset, next_offset : int
        The first offset that the segment may have, and the one after its last batch.
    size_bytes : int
        The size of the .log.
    torn_bytes : int
        The bytes that `reopen` cut off.
    """

    def __init__(
        self, log_path: Path, indexes: _SparseIndexes, *, next_offset: int, mode: _Mode, write_through: bool
    ) -> None:
        self.log_path = log_path
        self.base_offset = int(log_path.name[:20])
        self.next_offset = next_offset
        self.torn_bytes = 0
        self._indexes = indexes
        with ExitStack() as files:
            self._log, self._index, self._time_index = (
                files.enter_context(path.open(mode, buffering=0 if write_through else _WRITE_BUFFER_BYTES))
                for path in segment_files(log_path)
            )
            self._files = files.pop_all()
        self.size_bytes = os.fstat(self._log.fileno()).st_size

    @classmethod
    def create(
        cls,
        log_path: Path,
        *,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        write_through: bool = False,
    ) -> Self:
        """Create a segment, with its name from `segment_name`. Raise FileExistsError if one of its files
        exists.
        """
        base_offset = int(log_path.name[:20])
        indexes = _SparseIndexes(base_offset, index_interval_bytes)
        return cls(log_path, indexes, next_offset=base_offset, mode="xb", write_through=write_through)

    @classmethod
    def reopen(
        cls,
        log_path: Path,
        *,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        write_through: bool = False,
        was_closed: bool = False,
    ) -> Self:
        """Open an existing segment to continue: cut off a torn tail, and rewrite indexes that do not match
        (LogSegment.recover).

        A torn tail is what an unfinished write leaves at the end: a batch cut off by the file's end, zeros,
        or one broken batch and zeros. Anything else raises CorruptRecordError and changes nothing. In a
        segment that `was_closed`, and so written whole, a torn tail is an error too, and CRCs are trusted.
        """
        base_offset = next_offset = int(log_path.name[:20])
        indexes = _SparseIndexes(base_offset, index_interval_bytes)
        offset_index, time_index = bytearray(), bytearray()
        size = 0
        for batch in _whole_batches(log_path, check_crc=not was_closed):
            entries = indexes.entries_for(size, batch.size_bytes, batch.last_offset, batch.max_timestamp_ms)
            offset_index += entries[0]
            time_index += entries[1]
            size += batch.size_bytes
            next_offset = batch.last_offset + 1
        torn_bytes = log_path.stat().st_size - size
        if torn_bytes and was_closed:
            raise CorruptRecordError(f"{log_path}: the last {torn_bytes} bytes are not a whole batch")
        if torn_bytes:
            os.truncate(log_path, size)
        if was_closed:
            time_index += indexes.time_entry()
        for path, content in zip(segment_files(log_path)[1:], (offset_index, time_index), strict=True):
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)
        segment = cls(log_path, indexes, next_offset=next_offset, mode="ab", write_through=write_through)
        segment.torn_bytes = torn_bytes
        return segment

    def has_room(self, size: int, last_offset: int, segment_bytes: int, index_bytes: int) -> bool:
        """LogSegment.shouldRoll without age: a batch is judged by its size and offsets, not by a clock."""
        return self.size_bytes == 0 or (
            self.size_bytes + size <= segment_bytes
            and self._indexes.offset_entries < index_bytes // _OFFSET_ENTRY.size
            and self._indexes.time_entries < index_bytes // _TIME_ENTRY.size - 1
            and last_offset - self.base_offset <= INT32_MAX
        )

    def append(self, parts: Iterable[ReadableBuffer], last_offset: int, max_timestamp_ms: int) -> None:
        """Write one batch, in parts, with the right base offset, not below `next_offset`."""
        position = self.size_bytes
        for part in parts:
            self.size_bytes += _write_all(self._log, part)
        size = self.size_bytes - position
        entries = self._indexes.entries_for(position, size, last_offset, max_timestamp_ms)
        for file, entry in zip((self._index, self._time_index), entries, strict=True):
            _write_all(file, entry)
        self.next_offset = last_offset + 1

    def close(self) -> None:
        """Write the closing entry of the time index, and wait until all is on disk."""
        with self._files:
            _write_all(self._time_index, self._indexes.time_entry())
            for file in (self._log, self._index, self._time_index):
                file.flush()
                os.fsync(file.fileno())


def segment_files(log_path: Path) -> list[Path]:
    """Return a .log file and its two indexes, with the same ending after the suffix."""
    stem, rest = log_path.name.split(".log", 1)
    return [log_path.with_name(stem + suffix + rest) for suffix in SUFFIXES]


def _write_all(file: BinaryIO, data: ReadableBuffer) -> int:
    """Write all bytes, because an unbuffered file may take fewer at a time; return their number."""
    rest = memoryview(data).cast("B")
    size = len(rest)
    while rest:
        rest = rest[file.write(rest) :]
    return size


def _whole_batches(log_path: Path, check_crc: bool) -> Iterator[RecordBatch]:
    """Yield the batches before a torn tail, which here includes a batch with a whole header."""
    position = 0
    try:
        for batch in read_segment(log_path, check_crc=check_crc):
            position += batch.size_bytes
            yield batch
    except CorruptRecordError:
        with log_path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            (length,) = _LENGTH.unpack_from(data, position)
            if not _zeros_to_the_end(data, position + _LENGTH.size + max(length, 0)):
                raise


def read_segment(
    log_path: StrPath, *, check_crc: bool = True, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[RecordBatch]:
    """Iterate over the record batches of a .log file, by a memory map that lives as long as any of them.

    A torn tail, as left by a dying broker, ends the iteration: a batch cut off by the end of the file, or
    zeros up to there. The call opens the file, which must not shrink while its batches are in use.

    Raises
    ------
    OSError
        The file cannot be opened (by the call).
    CorruptRecordError
        A batch is broken in the middle of the file, or its CRC is wrong; the error names file and position.
    """
    path = Path(log_path)
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return iter(())
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _batches(path, data, check_crc, max_decompressed_bytes)


def _batches(
    path: Path, data: mmap.mmap, check_crc: bool, max_decompressed_bytes: int
) -> Iterator[RecordBatch]:
    batches = decode(data, check_crc=check_crc, max_decompressed_bytes=max_decompressed_bytes)
    try:
        yield from batches
    except CorruptRecordError as error:
        if not _zeros_to_the_end(data, batches.position):
            raise CorruptRecordError(f"{path}: {error}") from error


def _zeros_to_the_end(data: mmap.mmap, position: int) -> bool:
    chunks = (data[start : start + len(_ZEROS)] for start in range(position, len(data), len(_ZEROS)))
    return all(chunk == _ZEROS[: len(chunk)] for chunk in chunks)
