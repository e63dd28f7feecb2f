"""Log segments: the files in which a Kafka broker keeps a partition, written and read without a broker.

A segment is three files named by its first offset: the record batches (.log), a sparse index from offset to
file position (.index) and one from timestamp to offset (.timeindex). What an index holds and when a segment
ends follows Kafka 4.3: LogSegment, OffsetIndex and TimeIndex of org.apache.kafka.storage.internals.log.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kbatch._native.record_batch import RecordBatch, decode
from kbatch.errors import CorruptRecordError, IllegalStateError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, StrPath

INT32_MAX = 2**31 - 1
# Kafka's defaults: segment.bytes, segment.index.bytes and index.interval.bytes.
SEGMENT_BYTES = 1 << 30
INDEX_BYTES = 10 << 20
INDEX_INTERVAL_BYTES = 4096
MAX_DECOMPRESSED_BYTES = 256 << 20

_BASE_OFFSET = struct.Struct(">q")  # the first field of a record batch; the CRC does not cover it
_OFFSET_ENTRY = struct.Struct(">ii")  # offset relative to the segment's first, position in the .log
_TIME_ENTRY = struct.Struct(">qi")  # timestamp in ms, offset relative to the segment's first
_NO_TIMESTAMP = -1
_WRITE_BUFFER_BYTES = 1 << 20
_ZEROS = bytes(1 << 20)


def check_topic(topic: str) -> None:
    """Raise ValueError unless Kafka takes `topic` as a name (org.apache.kafka.common.internals.Topic)."""
    if topic in ("", ".", ".."):
        raise ValueError(f"topic {topic!r} is not a name that Kafka takes: give it a letter or digit")
    if len(topic) > 249:
        raise ValueError(f"topic {topic[:20]!r}... has {len(topic)} characters: Kafka takes 249 at most")
    if illegal := re.sub(r"[a-zA-Z0-9._-]", "", topic):
        raise ValueError(
            f"topic {topic!r} contains {illegal[0]!r}: use ASCII letters and digits, '.', '_' and '-' only"
        )


def _check_range(name: str, value: int, least: int) -> None:
    if not least <= value <= INT32_MAX:
        raise ValueError(f"{name} is {value}: it must be from {least} to {INT32_MAX}")


class SegmentWriter:
    """Writes a partition as a broker keeps it, in `directory`/`topic`-`partition`/.

    Offsets start at 0. A context manager; leaving it, even by an exception, closes the files, and what was
    appended is then on the disk (fsync of files and folder). Not for use from several threads at a time.

    Parameters
    ----------
    directory : path
        The parent folder of the partition's (a broker's log.dirs); made when it is not there.
    topic, partition : str, int
        Name the partition's folder.
    segment_bytes : int
        A batch that would make a .log larger than this begins a new segment (Kafka's segment.bytes).
    index_bytes : int
        Neither index grows beyond this (segment.index.bytes): when one is full, a new segment begins.
    index_interval_bytes : int
        Log bytes between two index entries (index.interval.bytes).

    Raises
    ------
    ValueError
        A topic that Kafka refuses, or a number out of range.
    FileExistsError
        The partition's folder holds segments already.
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
    ) -> None:
        check_topic(topic)
        _check_range("partition", partition, 0)
        _check_range("segment_bytes", segment_bytes, 1)
        # A time index keeps its last slot for the entry that closes it, so it needs two.
        _check_range("index_bytes", index_bytes, 2 * _TIME_ENTRY.size)
        _check_range("index_interval_bytes", index_interval_bytes, 0)
        self._directory = Path(directory, f"{topic}-{partition}")
        self._segment_bytes = segment_bytes
        self._index_bytes = index_bytes
        self._index_interval_bytes = index_interval_bytes
        self._next_offset = 0
        self._log_paths: list[Path] = []
        self._closed = False
        self._failure: OSError | None = None
        self._directory.mkdir(parents=True, exist_ok=True)
        if found := next(self._directory.glob("*.log"), None):
            raise FileExistsError(
                f"{self._directory} holds segments already ({found.name}): write to another directory, "
                "or delete that folder first"
            )
        self._segment = self._open_segment()

    @property
    def directory(self) -> Path:
        """The partition's folder."""
        return self._directory

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets."""
        return self._next_offset

    @property
    def log_paths(self) -> list[Path]:
        """The .log files so far, in the order of their offsets."""
        return list(self._log_paths)

    def append(self, batch_bytes: ReadableBuffer) -> int:
        """Write one record batch (magic 2, any base offset) and return the offset that its first record got.

        Raises
        ------
        CorruptRecordError
            The bytes are cut off, of an older magic, or do not match their CRC. Nothing is written.
        ValueError
            No batch, more than one, or one larger than `segment_bytes`. Nothing is written.
        IllegalStateError
            The writer is closed, or an earlier append failed half-way.
        OSError
            The disk refuses; the segment may end in a torn batch, and the writer takes no more.
        """
        if self._closed:
            raise IllegalStateError(f"the writer of {self._directory} is closed: open another one")
        if self._failure:
            raise IllegalStateError(f"an earlier append to {self._directory} failed: {self._failure}")
        data = memoryview(batch_bytes).cast("B")
        batch = _single_batch(data)
        if len(data) > self._segment_bytes:
            raise ValueError(
                f"batch_bytes has {len(data)} bytes, more than segment_bytes ({self._segment_bytes}): "
                "raise segment_bytes or encode smaller batches"
            )
        first_offset = self._next_offset
        last_offset = first_offset + batch.last_offset - batch.base_offset
        try:
            if self._segment_is_full(len(data), last_offset):
                self._segment.close()
                self._segment = self._open_segment()
            self._segment.append(data, first_offset, last_offset, batch.max_timestamp_ms)
        except OSError as error:
            self._failure = error
            raise
        self._next_offset = last_offset + 1
        return first_offset

    def close(self) -> None:
        """Write what is left and wait until it is on the disk. A second call does nothing."""
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

    def _open_segment(self) -> _Segment:
        segment = _Segment(self._directory, self._next_offset, self._index_interval_bytes)
        self._log_paths.append(segment.log_path)
        return segment

    def _segment_is_full(self, batch_size: int, last_offset: int) -> bool:
        """LogSegment.shouldRoll, but for age: a batch goes by its size and offsets, not by a clock."""
        segment = self._segment
        return segment.size > 0 and (
            segment.size + batch_size > self._segment_bytes
            or segment.offset_entries >= self._index_bytes // _OFFSET_ENTRY.size
            or segment.time_entries >= self._index_bytes // _TIME_ENTRY.size - 1
            or last_offset - segment.base_offset > INT32_MAX
        )


def _single_batch(data: memoryview) -> RecordBatch:
    """The batch that `data` is, its header and CRC checked."""
    batch = next(iter(decode(data, partial="raise")), None)
    if batch is None:
        raise ValueError("batch_bytes is empty: append one whole record batch")
    if batch.size_bytes != len(data):
        raise ValueError(
            f"batch_bytes has {len(data) - batch.size_bytes} bytes behind its first record batch "
            f"of {batch.size_bytes}: append one batch a call"
        )
    return batch


def sync_directory(directory: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Segment:
    """The three files of the segment that is being written, and what the rules for its indexes need."""

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        stem = f"{base_offset:020d}"
        self.log_path = directory / f"{stem}.log"
        self.base_offset = base_offset
        self.size = 0
        self.offset_entries = 0
        self.time_entries = 0
        self._index_interval_bytes = index_interval_bytes
        self._bytes_since_entry = 0
        self._max_timestamp_ms = _NO_TIMESTAMP
        self._max_timestamp_offset = base_offset  # the last offset of the first batch with that timestamp
        self._indexed_timestamp_ms = _NO_TIMESTAMP
        with ExitStack() as files:
            self._log, self._index, self._time_index = (
                files.enter_context(Path(directory, stem + suffix).open("xb", buffering=_WRITE_BUFFER_BYTES))
                for suffix in (".log", ".index", ".timeindex")
            )
            self._files = files.pop_all()

    def append(self, data: memoryview, first_offset: int, last_offset: int, max_timestamp_ms: int) -> None:
        position = self.size
        self._log.write(_BASE_OFFSET.pack(first_offset))
        self._log.write(data[_BASE_OFFSET.size :])
        self.size += len(data)
        if max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms, self._max_timestamp_offset = max_timestamp_ms, last_offset
        if self._bytes_since_entry > self._index_interval_bytes:
            self._index.write(_OFFSET_ENTRY.pack(last_offset - self.base_offset, position))
            self.offset_entries += 1
            self._index_max_timestamp()
            self._bytes_since_entry = 0
        self._bytes_since_entry += len(data)

    def _index_max_timestamp(self) -> None:
        """An entry for the largest timestamp so far, unless the time index ends with it: timestamps rise."""
        if self._max_timestamp_ms > self._indexed_timestamp_ms:
            relative_offset = self._max_timestamp_offset - self.base_offset
            self._time_index.write(_TIME_ENTRY.pack(self._max_timestamp_ms, relative_offset))
            self.time_entries += 1
            self._indexed_timestamp_ms = self._max_timestamp_ms

    def close(self) -> None:
        with self._files:
            self._index_max_timestamp()
            for file in (self._log, self._index, self._time_index):
                file.flush()
                os.fsync(file.fileno())


def read_segment(
    log_path: StrPath, *, check_crc: bool = True, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[RecordBatch]:
    """Iterate over the record batches of a .log file, by a memory map that lives as long as any of them.

    A torn tail, as a broker leaves it when it dies, ends the iteration: a batch cut off by the end of the
    file, or zeros up to there. The call opens the file; it must not shrink while batches of it are in use.

    Raises
    ------
    OSError
        The file cannot be opened (by the call).
    CorruptRecordError
        A batch that is broken in the middle of the file, or whose CRC is wrong; names file and position.
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
