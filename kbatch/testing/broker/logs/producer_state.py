"""ProducerStateTable: a partition's state of its producers, by producer id.

Theory of operation. For each producer id the table keeps its epoch, and its last five batches by sequences,
offsets and timestamp. It keeps the epoch of the coordinator that ended its last transaction, and the first
offset of its open one. A batch is first looked up among the five: a producer that sends it again gets the
first answer, and nothing is appended. Then it is checked (`check_batch`), appended to the log, and noted
(`add_batch`). The first offset of the oldest open transaction is the first unstable offset: readers of
committed data stop there. A marker ends a transaction; aborted ones go into an index for readers. A
transaction still counts as unstable until its marker is below the high watermark.

A transactional batch must belong to a transaction that is open here, or that the transaction coordinator
confirmed (KIP-890). `requires_verification` returns True if the coordinator must confirm it, and keeps the
lowest sequence that waits for the answer: no higher sequence is accepted before it.

Restarts. A snapshot has, as Kafka's, only the last batch of each producer id. The state after a restart is
that of a snapshot made at the end of the log, even if it was found by reading the log. `batch_count` keeps
more: the entry of a producer id is then repeated, the newest batch last, so that Kafka reads the newest.

The model is ProducerStateManager, ProducerAppendInfo, ProducerStateEntry, VerificationStateEntry and
TransactionIndex of org.apache.kafka.storage.internals.log, 4.3.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Self

from kbatch._native.codec.hashes import crc32c
from kbatch._native.codec.record import Record
from kbatch._native.codec.record_batch import RecordBatch
from kbatch.errors import CorruptRecordError, ErrorCode
from kbatch.records import INT32_MAX, INT64_MAX
from kbatch.testing.broker.broker_error import BrokerError

INT16_MAX = 2**15 - 1
# producer.id.expiration.ms
EXPIRATION_MS = 86_400_000
BATCHES_TO_RETAIN = 5
ABORT, COMMIT = 0, 1

_NONE = -1
_SNAPSHOT_HEAD = struct.Struct(">hIi")  # version, CRC-32C of all that follows, count
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1
_CRC_END = 6
_ABORTED = struct.Struct(">hqqqq")
_MARKER_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch


class BatchMetadata(NamedTuple):
    """A batch that was appended."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class AbortedTransaction(NamedTuple):
    """A transaction from its first batch to its marker, and the last stable offset when it ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerDescription(NamedTuple):
    """A partition's state of a producer id; -1 is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_transaction_first_offset: int
    batches: tuple[BatchMetadata, ...]


class EndTransactionMarker(NamedTuple):
    """The control record that ends a transaction."""

    is_commit: bool
    coordinator_epoch: int

    @classmethod
    def of(cls, record: Record) -> Self:
        key, value = bytes(record.key or b""), bytes(record.value or b"")
        if len(key) < _MARKER_KEY.size or len(value) < _MARKER_VALUE.size:
            raise CorruptRecordError(f"the control record at offset {record.offset} ends no transaction")
        return cls(_MARKER_KEY.unpack_from(key)[1] == COMMIT, _MARKER_VALUE.unpack_from(value)[1])

    def key(self) -> bytes:
        return _MARKER_KEY.pack(0, COMMIT if self.is_commit else ABORT)

    def value(self) -> bytes:
        return _MARKER_VALUE.pack(0, self.coordinator_epoch)


_NO_BATCH = BatchMetadata(_NONE, _NONE, _NONE, _NONE, _NONE)


@dataclass(slots=True)
class _Producer:
    producer_id: int
    producer_epoch: int = _NONE
    coordinator_epoch: int = _NONE
    last_timestamp_ms: int = _NONE
    transaction_first_offset: int = _NONE
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_TO_RETAIN))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _NONE

    def begin_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch


@dataclass(slots=True)
class _Verification:
    timestamp_ms: int
    lowest_sequence: int
    producer_epoch: int
    supports_epoch_bump: bool


def is_next(last_sequence: int, sequence: int) -> bool:
    """True if `sequence` follows `last_sequence`; 0 follows 2^31 - 1."""
    return sequence == (last_sequence + 1 if last_sequence < INT32_MAX else 0)


class ProducerStateTable:
    """The producers of one partition.

    Parameters
    ----------
    expiration_ms : int
        Time after which an idle producer id is forgotten (producer.id.expiration.ms).
    """

    def __init__(self, *, expiration_ms: int = EXPIRATION_MS) -> None:
        self._expiration_ms = expiration_ms
        self._producers: dict[int, _Producer] = {}
        self._verifications: dict[int, _Verification] = {}
        self._open: dict[int, int] = {}  # first offset of a transaction to its producer id; offsets rise
        self._ended: dict[int, int] = {}  # first offset to the marker's, which may not be replicated yet
        self._aborted: list[AbortedTransaction] = []  # by last offset

    # Batches of producers

    def requires_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        supports_epoch_bump: bool,
        now_ms: int,
    ) -> bool:
        """True if the coordinator must confirm a transactional batch before it is appended.

        The batch then waits here. Raises BrokerError INVALID_PRODUCER_EPOCH for an old epoch.
        (UnifiedLog.maybeStartTransactionVerification)
        """
        producer = self._producers.get(producer_id)
        if producer is not None:
            self._check_epoch(producer, producer_epoch)
        if self.has_open_transaction(producer_id, producer_epoch):
            return False
        waiting = self._verifications.get(producer_id)
        if waiting is None:
            waiting = _Verification(now_ms, base_sequence, producer_epoch, supports_epoch_bump)
            self._verifications[producer_id] = waiting
        elif producer_epoch > waiting.producer_epoch:
            waiting.producer_epoch, waiting.lowest_sequence = producer_epoch, base_sequence
        elif producer_epoch == waiting.producer_epoch:
            waiting.lowest_sequence = min(waiting.lowest_sequence, base_sequence)
        return True

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.transaction_first_offset != _NONE
            and producer.producer_epoch == producer_epoch
        )

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """Return the appended batch of the same epoch and sequences, if it is one of the last five."""
        producer = self._producers.get(batch.producer_id)
        if producer is None or producer.producer_epoch != batch.producer_epoch:
            return None
        sequences = batch.base_sequence, batch.last_sequence
        return next((known for known in producer.batches if known[:2] == sequences), None)

    def check_batch(self, batch: RecordBatch, *, is_verified: bool) -> None:
        """Check a batch that is no duplicate.

        Raises, in Kafka's order, BrokerError INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        OUT_OF_ORDER_SEQUENCE_NUMBER. `is_verified`: the coordinator confirmed the batch.
        """
        producer = self._producers.get(batch.producer_id) or _Producer(batch.producer_id)
        if batch.is_transactional and not self.has_open_transaction(batch.producer_id, batch.producer_epoch):
            self._check_epoch(producer, batch.producer_epoch)
            if not is_verified or batch.producer_id not in self._verifications:
                raise BrokerError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"The batch of producer id {batch.producer_id} must be part of an open transaction.",
                )
        self._check_epoch(producer, batch.producer_epoch)
        self._check_sequence(producer, batch)
        if producer.transaction_first_offset != _NONE and not batch.is_transactional:
            raise BrokerError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer id {batch.producer_id} has an open transaction; its batches must belong to it.",
            )

    def _check_epoch(self, producer: _Producer, producer_epoch: int) -> None:
        if producer_epoch < producer.producer_epoch:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {producer_epoch} of producer id {producer.producer_id} is over; it is in epoch "
                f"{producer.producer_epoch}.",
            )

    def _check_sequence(self, producer: _Producer, batch: RecordBatch) -> None:
        """ProducerAppendInfo.checkSequence"""
        sequence, epoch = batch.base_sequence, batch.producer_epoch
        waiting = self._verifications.get(batch.producer_id)
        if waiting and waiting.supports_epoch_bump and not producer.batches and sequence != 0:
            expected = "0, because the producer id is unknown here"
        elif waiting and sequence > waiting.lowest_sequence:
            expected = f"{waiting.lowest_sequence}, which must come first"
        elif producer.producer_epoch == _NONE:
            return
        elif producer.producer_epoch != epoch:
            expected = "" if sequence == 0 else "0, because the epoch is new"
        else:
            last_sequence = producer.last_sequence
            expected = "" if is_next(last_sequence, sequence) else f"the one after {last_sequence}"
        if expected:
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"The sequence of producer id {batch.producer_id} in epoch {epoch} must be {expected}; got "
                f"{sequence}.",
            )

    def add_batch(self, batch: RecordBatch) -> None:
        """Record an appended batch, as the log stores it."""
        producer = self._producers.setdefault(batch.producer_id, _Producer(batch.producer_id))
        producer.begin_epoch(batch.producer_epoch)
        producer.batches.append(
            BatchMetadata(
                batch.base_sequence,
                batch.last_sequence,
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp_ms,
            )
        )
        producer.last_timestamp_ms = batch.max_timestamp_ms
        if batch.is_transactional:
            self._verifications.pop(batch.producer_id, None)
            if producer.transaction_first_offset == _NONE:
                producer.transaction_first_offset = batch.base_offset
                self._open[batch.base_offset] = batch.producer_id

    # Markers of the coordinator

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Raise INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for a marker that comes too late.

        From transaction version 2 on a marker has a new epoch. With the current epoch it must be a repetition
        (KAFKA-19999): no transaction is open, or there is no higher epoch.
        """
        producer = self._producers.get(producer_id) or _Producer(producer_id)
        is_repetition = producer_epoch == producer.producer_epoch and (
            producer.transaction_first_offset == _NONE or producer_epoch == INT16_MAX
        )
        lowest = producer.producer_epoch + (transaction_version >= 2 and not is_repetition)
        if producer_epoch < lowest:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"The epoch of a marker for producer id {producer_id} must be {lowest} or more, got "
                f"{producer_epoch}.",
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise BrokerError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The coordinator epoch of a marker for producer id {producer_id} must be "
                f"{producer.coordinator_epoch} or more, got {coordinator_epoch}.",
            )

    def add_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        offset: int,
        timestamp_ms: int,
    ) -> AbortedTransaction | None:
        """Record an appended marker, and return the transaction that it aborted, if any."""
        producer = self._producers.setdefault(producer_id, _Producer(producer_id))
        producer.begin_epoch(producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp_ms = timestamp_ms
        first_offset, producer.transaction_first_offset = producer.transaction_first_offset, _NONE
        self._verifications.pop(producer_id, None)
        if first_offset == _NONE:
            return None
        del self._open[first_offset]
        self._ended[first_offset] = offset
        if marker.is_commit:
            return None
        last_stable_offset = next(iter(self._open), offset + 1)
        aborted = AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)
        self._aborted.append(aborted)
        return aborted

    def replay(self, batch: RecordBatch) -> AbortedTransaction | None:
        """Record a batch of the log, of any kind; return the transaction that it aborted, if any."""
        if batch.producer_id < 0:
            return None
        if not batch.is_control:
            self.add_batch(batch)
        elif record := next(iter(batch), None):  # there is none if compaction removed the transaction
            marker = EndTransactionMarker.of(record)
            offset, timestamp_ms = batch.base_offset, batch.max_timestamp_ms
            return self.add_marker(batch.producer_id, batch.producer_epoch, marker, offset, timestamp_ms)
        return None

    # What readers of committed data need

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction that has not ended below the high watermark."""
        for first_offset, marker_offset in list(self._ended.items()):
            if marker_offset < high_watermark:
                del self._ended[first_offset]
        return min([*self._ended, *islice(self._open, 1)], default=None)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return aborted transactions with records in this range (TransactionIndex.collectAbortedTxns)."""
        found = []
        first = bisect_left(self._aborted, start_offset, key=attrgetter("last_offset"))
        for aborted in self._aborted[first:]:
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                break
        return found

    def all_aborted_transactions(self) -> list[AbortedTransaction]:
        """Return all aborted transactions, in the order of their markers."""
        return list(self._aborted)

    def is_last_of_producer(self, batch: RecordBatch) -> bool:
        """True if a batch is the last known one of its producer id."""
        producer = self._producers.get(batch.producer_id)
        return bool(producer and producer.batches and producer.batches[-1].last_offset == batch.last_offset)

    # Upkeep

    def remove_expired(self, now_ms: int) -> None:
        """Forget producer ids that were idle for too long and have no open transaction."""
        for producer in list(self._producers.values()):
            if self._is_expired(producer, now_ms):
                del self._producers[producer.producer_id]
        for producer_id, waiting in list(self._verifications.items()):
            if now_ms - waiting.timestamp_ms >= self._expiration_ms:
                del self._verifications[producer_id]

    def _is_expired(self, producer: _Producer, now_ms: int) -> bool:
        idle_ms = now_ms - producer.last_timestamp_ms
        return producer.transaction_first_offset == _NONE and idle_ms >= self._expiration_ms

    def forget(self, producer_id: int | None = None) -> None:
        """Forget one producer id, or all, as if they had expired; those with an open transaction stay."""
        for producer in list(self._producers.values()):
            if producer_id in (None, producer.producer_id) and producer.transaction_first_offset == _NONE:
                del self._producers[producer.producer_id]

    def truncate_from_start(self, offset: int) -> None:
        """Move the start of the log to `offset`."""
        del self._aborted[: bisect_left(self._aborted, offset, key=attrgetter("last_offset"))]

    def describe(self) -> list[ProducerDescription]:
        """Return all producers, by their ids."""
        return [
            ProducerDescription(
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
                tuple(producer.batches),
            )
            for _, producer in sorted(self._producers.items())
        ]

    # Snapshots

    def snapshot(self, batch_count: int = 1) -> bytes:
        """Return Kafka's ProducerSnapshot, version 1, with each producer's last `batch_count` batches."""
        entries: list[bytes] = []
        for producer in self._producers.values():
            *older, newest = list(producer.batches)[-batch_count:] or [_NO_BATCH]
            entries += (_snapshot_entry(producer, batch) for batch in older)
            entries.append(
                _snapshot_entry(producer, newest._replace(timestamp_ms=producer.last_timestamp_ms))
            )
        body = struct.pack(">i", len(entries)) + b"".join(entries)
        return struct.pack(">hI", _SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def from_snapshot(
        cls, data: bytes, now_ms: int, *, expiration_ms: int = EXPIRATION_MS
    ) -> ProducerStateTable:
        """Return a table of a snapshot's producers, except expired ones.

        Raises CorruptRecordError for an invalid snapshot.
        """
        table = cls(expiration_ms=expiration_ms)
        if len(data) < _SNAPSHOT_HEAD.size:
            raise CorruptRecordError(
                f"a producer snapshot must have {_SNAPSHOT_HEAD.size} bytes or more, got {len(data)}"
            )
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        if version != _SNAPSHOT_VERSION or crc != crc32c(data[_CRC_END:]):
            raise CorruptRecordError(
                f"a producer snapshot must have version 1 and an intact CRC, got version {version}"
            )
        size = _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size
        if len(data) != size:
            raise CorruptRecordError(
                f"a producer snapshot of {count} entries must have {size} bytes, got {len(data)}"
            )
        for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
            table._load_entry(*fields)
        table.remove_expired(now_ms)
        table._open = dict(sorted(table._open.items()))
        return table

    def _load_entry(
        self,
        producer_id: int,
        producer_epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp_ms: int,
        coordinator_epoch: int,
        transaction_first_offset: int,
    ) -> None:
        producer = self._producers.setdefault(producer_id, _Producer(producer_id))
        producer.begin_epoch(producer_epoch)
        producer.last_timestamp_ms = timestamp_ms
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_first_offset = transaction_first_offset
        if transaction_first_offset >= 0:
            self._open[transaction_first_offset] = producer_id
        if last_offset >= 0:
            base_sequence = (last_sequence - offset_delta) % (INT32_MAX + 1)
            base_offset = last_offset - offset_delta
            producer.batches.append(
                BatchMetadata(base_sequence, last_sequence, base_offset, last_offset, timestamp_ms)
            )

    def load_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = list(aborted)


def _snapshot_entry(producer: _Producer, batch: BatchMetadata) -> bytes:
    return _SNAPSHOT_ENTRY.pack(
        producer.producer_id,
        producer.producer_epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.last_offset - batch.base_offset,
        batch.timestamp_ms,
        producer.coordinator_epoch,
        producer.transaction_first_offset,
    )


# Storage


class ProducerStateStore:
    """Snapshots by offset, and aborted transactions, in memory."""

    def __init__(self) -> None:
        self._snapshots: dict[int, bytes] = {}
        self._aborted: list[AbortedTransaction] = []

    def snapshot_offsets(self) -> list[int]:
        return sorted(self._snapshots)

    def read_snapshot(self, offset: int) -> bytes:
        return self._snapshots[offset]

    def write_snapshot(self, offset: int, data: bytes) -> None:
        """Write the producers as they were before `offset`."""
        self._snapshots[offset] = data

    def delete_snapshot(self, offset: int) -> None:
        del self._snapshots[offset]

    def read_aborted(self) -> list[AbortedTransaction]:
        return list(self._aborted)

    def append_aborted(self, aborted: AbortedTransaction, segment_base_offset: int) -> None:
        """Add an aborted transaction whose marker is in this segment."""
        self._aborted.append(aborted)

    def replace_aborted(
        self, aborted: Sequence[AbortedTransaction], segment_base_offsets: Sequence[int]
    ) -> None:
        self._aborted = list(aborted)


class ProducerStateFiles(ProducerStateStore):
    """Snapshots and aborted transactions in Kafka's files: `offset`.snapshot, and one .txnindex a segment."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def snapshot_offsets(self) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob("[0-9]" * 20 + ".snapshot"))

    def read_snapshot(self, offset: int) -> bytes:
        return self._path(offset, "snapshot").read_bytes()

    def write_snapshot(self, offset: int, data: bytes) -> None:
        partial = self._path(offset, "snapshot.tmp")
        partial.write_bytes(data)
        partial.replace(self._path(offset, "snapshot"))

    def delete_snapshot(self, offset: int) -> None:
        self._path(offset, "snapshot").unlink()

    def read_aborted(self) -> list[AbortedTransaction]:
        return [
            AbortedTransaction(*fields[1:])
            for path in sorted(self._directory.glob("[0-9]" * 20 + ".txnindex"))
            for fields in _ABORTED.iter_unpack(_whole_entries(path.read_bytes()))
        ]

    def append_aborted(self, aborted: AbortedTransaction, segment_base_offset: int) -> None:
        with self._path(segment_base_offset, "txnindex").open("ab", buffering=0) as file:
            file.write(_ABORTED.pack(0, *aborted))

    def replace_aborted(
        self, aborted: Sequence[AbortedTransaction], segment_base_offsets: Sequence[int]
    ) -> None:
        for first, following in pairwise([*segment_base_offsets, INT64_MAX]):
            entries = [entry for entry in aborted if first <= entry.last_offset < following]
            path = self._path(first, "txnindex")
            if entries or path.exists():
                path.write_bytes(b"".join(_ABORTED.pack(0, *entry) for entry in entries))

    def _path(self, offset: int, suffix: str) -> Path:
        return self._directory / f"{offset:020d}.{suffix}"


def _whole_entries(index: bytes) -> bytes:
    return index[: len(index) // _ABORTED.size * _ABORTED.size]
