"""Partition: a partition as its leader keeps it, with the log and the state of its producers.

Theory of operation. A produced batch is checked and copied (validation.py), looked up among the last batches
of its producer and checked against them (producer_state.py), appended (partition_log.py), and noted. A
refusal at any of these steps has changed nothing. A snapshot of the producers is made when a segment begins,
at `close`, and after `recover`, which takes the newest good one and reads the log from there. A disk that
refuses takes the partition offline: from then on everything except descriptions fails with
KAFKA_STORAGE_ERROR.

The high watermark is the end of the log, unless a test holds it, or the log is one replica of several: then
the leader raises it, by what its followers have, and the followers take it from the leader. A replica that
follows appends whole batches as they are, and cuts its log where the leader's differs; the rest of the log
then defines the producers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from kbatch._native.codec.batch_writer import RecordBatchWriter
from kbatch._native.codec.record_batch import RecordBatch, decode
from kbatch.errors import CorruptRecordError, ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.logs.log_segment import NO_TIMESTAMP
from kbatch.testing.broker.logs.partition_log import FoundOffset, PartitionLog
from kbatch.testing.broker.logs.producer_state import (
    EXPIRATION_MS,
    AbortedTransaction,
    EndTransactionMarker,
    ProducerDescription,
    ProducerStateFiles,
    ProducerStateStore,
    ProducerStateTable,
)
from kbatch.testing.broker.logs.topic_config import TopicConfig
from kbatch.testing.broker.logs.validation import ProducedBatch, prepare

# The timestamps with a meaning of their own in ListOffsets.
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
# The offset with a meaning of its own in DeleteRecords.
HIGH_WATERMARK = -1


class Appended(NamedTuple):
    """The position of a produced batch; for a duplicate, the position of the first one.

    Attributes
    ----------
    log_append_time_ms : int
        -1 if timestamps are the producers'; for a duplicate, as in Kafka, the largest timestamp in the log.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Fetched(NamedTuple):
    """Whole batches; for readers of committed data also aborted transactions, (producer id, first offset)."""

    batches: list[memoryview]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[tuple[int, int]]


class _Disk:
    """The disk of a partition: an error within `with disk:` takes the partition offline."""

    __slots__ = ("has_failed",)

    def __init__(self) -> None:
        self.has_failed = False

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            self.has_failed = True
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


class Partition:
    """One partition.

    Parameters
    ----------
    topic, index : str, int
    config : TopicConfig
    directory : Path or None
        The parent of the partition's folder. An existing folder is loaded. None keeps all in memory.
    snapshot_batches : int
        Number of a producer id's batches that survive a restart: Kafka's 1, up to 5.
    strict : bool
        Also refuse batches that Kafka takes but only an incorrect producer writes.
    expiration_ms : int
        Time after which an idle producer id is forgotten (producer.id.expiration.ms).

    Raises
    ------
    CorruptRecordError, OSError
        The errors of PartitionLog.
    """

    def __init__(
        self,
        topic: str,
        index: int,
        *,
        config: TopicConfig | None = None,
        directory: Path | None = None,
        now_ms: int = 0,
        snapshot_batches: int = 1,
        strict: bool = False,
        expiration_ms: int = EXPIRATION_MS,
    ) -> None:
        self.topic = topic
        self.index = index
        self._snapshot_batches = snapshot_batches
        self._strict = strict
        self._expiration_ms = expiration_ms
        self._disk = _Disk()
        self._high_watermark: int | None = None  # None: the end of the log
        folder = directory / f"{topic}-{index}" if directory is not None else None
        self._log = PartitionLog(folder, config, now_ms=now_ms)
        self._store = ProducerStateFiles(folder) if folder is not None else ProducerStateStore()
        self._producers = ProducerStateTable(expiration_ms=expiration_ms)
        self.recover(now_ms)

    # Offsets and configuration

    @property
    def config(self) -> TopicConfig:
        return self._log.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._log.config = config

    @property
    def log_start_offset(self) -> int:
        return self._log.start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.end_offset

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def hold_high_watermark(self) -> bool:
        """True if the high watermark stays where it was when this was set, as if followers had stopped."""
        return self._high_watermark is not None

    @hold_high_watermark.setter
    def hold_high_watermark(self, hold: bool) -> None:
        self._high_watermark = self.high_watermark if hold else None

    @property
    def high_watermark(self) -> int:
        return self._log.end_offset if self._high_watermark is None else self._high_watermark

    def begin_replication(self, high_watermark: int | None = None) -> None:
        """Be a replica of several: from now on the high watermark is raised from outside.

        After a restart it begins where its checkpoint had it.
        """
        known = self.high_watermark if high_watermark is None else high_watermark
        self._high_watermark = max(self._log.start_offset, min(known, self._log.end_offset))

    def end_replication(self) -> None:
        """Be the only replica: the high watermark is the end of the log."""
        self._high_watermark = None

    def raise_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark of a replica, and return True if it moved; it never falls by this."""
        if offset <= self.high_watermark:
            return False
        self._high_watermark = offset
        return True

    @property
    def last_stable_offset(self) -> int:
        """Return the first offset of an open transaction, or the high watermark if there is none below."""
        high_watermark = self.high_watermark
        unstable = self._producers.first_unstable_offset(high_watermark)
        return (
            high_watermark if unstable is None else min(high_watermark, max(unstable, self._log.start_offset))
        )

    # Writing

    def requires_verification(
        self, produced: ProducedBatch, *, supports_epoch_bump: bool, now_ms: int
    ) -> bool:
        """True if the transaction coordinator must confirm a batch before it is appended as `verified`.

        Raises BrokerError INVALID_PRODUCER_EPOCH for an old epoch.
        """
        return self._producers.requires_verification(
            produced.producer_id,
            produced.producer_epoch,
            produced.base_sequence,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=now_ms,
        )

    def append_produced(
        self,
        produced: ProducedBatch,
        *,
        now_ms: int,
        leader_epoch: int,
        verified: bool = False,
        supports_epoch_bump: bool = False,
    ) -> Appended:
        """Append a batch from `read_produced`.

        Parameters
        ----------
        verified : bool
            The transaction coordinator confirmed that the partition is in the producer's open transaction.
        supports_epoch_bump : bool
            The transaction is of version 2 (KIP-890): each has a new epoch, and sequences from 0.

        Raises
        ------
        BrokerError
            Kafka's code and a text; RecordErrors if single records are invalid. Nothing is appended.
        """
        self._check_online()
        prepared = prepare(
            produced,
            self.config,
            base_offset=self._log.end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            strict=self._strict,
        )
        batch = prepared.batch
        if batch.producer_id >= 0:
            known = self._producers.find_duplicate(batch)
            if known is not None:
                offsets = known.base_offset, known.last_offset
                return Appended(*offsets, known.timestamp_ms, self._log.start_offset, duplicate=True)
            if verified and batch.is_transactional:
                self.requires_verification(produced, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms)
            self._producers.check_batch(batch, is_verified=verified)
        self._append(prepared.data, now_ms)
        if batch.producer_id >= 0:
            self._producers.add_batch(batch)
        return Appended(
            batch.base_offset,
            batch.last_offset,
            prepared.log_append_time_ms,
            self._log.start_offset,
            duplicate=False,
        )

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        *,
        now_ms: int,
        leader_epoch: int,
        transaction_version: int = 1,
    ) -> int:
        """Append the control batch that ends a transaction, and return its offset.

        It is appended even if no transaction is open. A late one raises INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED.
        """
        self._check_online()
        self._producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        marker = EndTransactionMarker(commit, coordinator_epoch)
        offset = self._log.end_offset
        writer = RecordBatchWriter(
            transactional=True, control=True, base_offset=offset, partition_leader_epoch=leader_epoch
        )
        writer.append(marker.key(), marker.value(), timestamp_ms=now_ms)
        writer.seal()
        writer.stamp(producer_id=producer_id, producer_epoch=producer_epoch)
        self._append(writer.getvalue(), now_ms)
        aborted = self._producers.add_marker(producer_id, producer_epoch, marker, offset, now_ms)
        if aborted is not None:
            self._note_aborted(aborted)
        return offset

    def append_records(
        self,
        records: Iterable[tuple[bytes, bytes | None]],
        *,
        now_ms: int,
        leader_epoch: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> int:
        """Append a batch of the broker's own, and return its base offset.

        With a producer id it belongs to that producer's transaction. Its sequence is always 0 and not checked
        (AppendOrigin.COORDINATOR).
        """
        self._check_online()
        offset = self._log.end_offset
        is_transactional = producer_id >= 0
        writer = RecordBatchWriter(
            transactional=is_transactional, base_offset=offset, partition_leader_epoch=leader_epoch
        )
        for key, value in records:
            writer.append(key, value, timestamp_ms=now_ms)
        writer.seal()
        base_sequence = 0 if is_transactional else -1
        writer.stamp(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)
        data = writer.getvalue()
        self._append(data, now_ms)
        if is_transactional:
            self._producers.add_batch(next(decode(data, check_crc=False)))
        return offset

    def append_as_follower(self, data: memoryview, now_ms: int, *, last_epoch: int) -> bool:
        """Append a batch of the leader's log as it is, or return False if its epoch is above `last_epoch`.

        DeleteRecords may let the leader's log start inside a batch; a log that begins there with nothing
        begins anew with the whole batch (kafka.cluster.Partition.appendRecordsToFollowerOrFutureReplica).
        """
        self._check_online()
        batch = next(decode(data, check_crc=False))
        if batch.partition_leader_epoch > last_epoch:
            return False
        if batch.base_offset < self.log_start_offset == self.log_end_offset <= batch.last_offset:
            self.begin_anew(batch.base_offset, now_ms)
        whole = data.obj  # replicas in memory share the bytes
        self._append(whole if isinstance(whole, bytes | bytearray) else bytes(data), now_ms)
        aborted = self._producers.replay(batch)
        if aborted is not None:
            self._note_aborted(aborted)
        return True

    def _note_aborted(self, aborted: AbortedTransaction) -> None:
        with self._disk:
            self._store.append_aborted(aborted, self._log.segment_base_offsets[-1])

    def _append(self, data: bytes | bytearray, now_ms: int) -> None:
        """Append, and write a new segment's snapshot, before the producers include the batch."""
        with self._disk:
            if self._log.append(data, now_ms=now_ms):
                self._write_snapshot(self._log.segment_base_offsets[-1])

    def _check_online(self) -> None:
        if self._disk.has_failed:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The partition's disk failed earlier.")

    # Reading

    def fetch(
        self, offset: int, *, max_bytes: int, at_least_one: bool = True, committed: bool = False
    ) -> Fetched:
        """Read batches from the one with `offset` on.

        They end at the high watermark, or with `committed` at the last stable offset. `at_least_one` returns
        the first batch even if it is larger than `max_bytes`. Raises BrokerError OFFSET_OUT_OF_RANGE if
        `offset` is neither in the log nor at its end.
        """
        self._check_offset(offset)
        last_stable_offset = self.last_stable_offset
        limit_offset = last_stable_offset if committed else self.high_watermark
        with self._disk:
            batches = self._log.read(offset, max_bytes, limit_offset, at_least_one=at_least_one)
        aborted: list[tuple[int, int]] = []
        if committed and batches:
            end_offset = next(decode(batches[-1], check_crc=False)).last_offset + 1
            found = self._producers.aborted_transactions(offset, end_offset)
            aborted = [(transaction.producer_id, transaction.first_offset) for transaction in found]
        return Fetched(batches, self.high_watermark, last_stable_offset, self._log.start_offset, aborted)

    def read_as_follower(self, offset: int, max_bytes: int) -> list[memoryview]:
        """Return batches up to the end of the log; raises BrokerError as `fetch` does."""
        self._check_offset(offset)
        with self._disk:
            return self._log.read(offset, max_bytes, self._log.end_offset)

    def _check_offset(self, offset: int) -> None:
        self._check_online()
        if not self._log.start_offset <= offset <= self._log.end_offset:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The offset must be {self._log.start_offset} to {self._log.end_offset}, got {offset}.",
            )

    def list_offset(self, timestamp: int, *, committed: bool = False) -> FoundOffset | None:
        """Find the offset for ListOffsets, or None if no such record may be read.

        `timestamp` is LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED,
        EARLIEST_PENDING_UPLOAD, or a time: the answer is then the first record with that or a later
        timestamp.
        """
        epochs = self._log.leader_epochs
        start_offset = self._log.start_offset
        end_offset = self.last_stable_offset if committed else self.high_watermark
        if timestamp == LATEST:
            return FoundOffset(NO_TIMESTAMP, end_offset, epochs.latest)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return FoundOffset(NO_TIMESTAMP, start_offset, epochs.epoch_at(start_offset))
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return None  # nothing is tiered
        if timestamp == MAX_TIMESTAMP:
            found = self._log.offset_of_max_timestamp()
        else:
            found = self._log.offset_for_timestamp(timestamp)
        return found if found is not None and found.offset < end_offset else None

    def batches(self, offset: int = 0) -> Iterator[RecordBatch]:
        """Yield all batches from the one with `offset` on, as the log stores them."""
        return self._log.batches(offset)

    def is_committed(self, batch: RecordBatch) -> bool:
        """True if readers of committed data get the records of a batch of this log."""
        return batch.last_offset < self.last_stable_offset and not self._is_aborted(batch)

    def _is_aborted(self, batch: RecordBatch) -> bool:
        aborted = self._producers.aborted_transactions(batch.base_offset, batch.last_offset + 1)
        return batch.is_transactional and batch.producer_id in (each.producer_id for each in aborted)

    # Leader epochs

    def start_leader_epoch(self, leader_epoch: int) -> None:
        """Start a new leader epoch at the end of the log."""
        with self._disk:
            self._log.leader_epochs.assign(leader_epoch, self._log.end_offset)

    @property
    def latest_leader_epoch(self) -> int:
        """Return the epoch of the last record, or that in which the log is led; -1 if there is none."""
        return self._log.leader_epochs.latest

    def end_of_leader_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset), the answer of OffsetForLeaderEpoch; (-1, -1) is unknown."""
        return self._log.leader_epochs.end_offset_for(leader_epoch, self._log.end_offset)

    # Shrinking

    def delete_records_before(self, offset: int) -> int:
        """Handle DeleteRecords, where `offset` may be HIGH_WATERMARK; return the log's start offset."""
        self._check_online()
        if not self.config.is_deleted:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, "The topic's cleanup.policy must include delete.")
        if offset == HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"The offset must be 0 to {self.high_watermark}, got {offset}."
            )
        with self._disk:
            self._log.delete_records_before(offset)
        self._producers.truncate_from_start(self._log.start_offset)
        return self._log.start_offset

    def follow_start(self, offset: int) -> bool:
        """Start the log where the leader's starts, as far as the high watermark allows; True if it moved."""
        offset = min(offset, self.high_watermark)
        if offset <= self._log.start_offset:
            return False
        with self._disk:
            self._log.delete_records_before(offset)
        self._producers.truncate_from_start(self._log.start_offset)
        return True

    def begin_anew(self, offset: int, now_ms: int) -> None:
        """Throw away everything, and go on at `offset` (UnifiedLog.truncateFullyAndStartAt)."""
        with self._disk:
            self._log.begin_anew(offset, now_ms)
            for snapshot in self._store.snapshot_offsets():
                self._store.delete_snapshot(snapshot)
            self._store.replace_aborted([], self._log.segment_base_offsets)
        self._producers = ProducerStateTable(expiration_ms=self._expiration_ms)
        if self._high_watermark is not None:
            self._high_watermark = offset

    def delete_old_segments(self, now_ms: int) -> int:
        """Delete segments by retention.ms, retention.bytes and the log's start; return how many."""
        with self._disk:
            count = self._log.delete_old_segments(now_ms, self.high_watermark)
        self._producers.truncate_from_start(self._log.start_offset)
        return count

    def compact(self, now_ms: int) -> None:
        """Keep only the newest record of each key in closed segments whose records are all decided."""
        with self._disk:
            self._log.compact(
                now_ms,
                self.last_stable_offset,
                is_aborted=self._is_aborted,
                is_last_of_producer=self._producers.is_last_of_producer,
            )

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the last one is empty."""
        with self._disk:
            self._log.roll(now_ms)
            self.take_snapshot()

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Cut off what a replica that ends at `offset` does not have.

        The rest of the log then defines the producers (UnifiedLog.truncateTo, rebuildProducerState). A log
        that begins later goes on at `offset`, with nothing.
        """
        self._check_online()
        if offset < self._log.segment_base_offsets[0]:
            self.begin_anew(offset, now_ms)
            return
        if offset >= self._log.end_offset:
            with self._disk:  # the last leader epoch may have no records, and another start
                self._log.leader_epochs.truncate_from_end(offset)
            return
        with self._disk:
            self._log.truncate_to(offset)
            self._rebuild_producers(now_ms)
            self._store.replace_aborted(
                self._producers.all_aborted_transactions(), self._log.segment_base_offsets
            )
        if self._high_watermark is not None:
            self._high_watermark = min(self._high_watermark, self._log.end_offset)

    def lose_unflushed(self, now_ms: int) -> None:
        """Cut off what a machine's death takes: the last segment, which was not yet synced."""
        self.truncate_to(self._log.segment_base_offsets[-1], now_ms)

    # Producers

    def describe_producers(self) -> list[ProducerDescription]:
        return self._producers.describe()

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget producers idle for producer.id.expiration.ms; Kafka checks every ten minutes."""
        self._producers.remove_expired(now_ms)

    def forget_producers(self, producer_id: int | None = None) -> None:
        """Forget a producer id, or all, as if they had expired; those with an open transaction stay."""
        self._producers.forget(producer_id)

    # Snapshots, opening and closing

    def take_snapshot(self) -> None:
        """Write a snapshot of the producers at the end of the log."""
        with self._disk:
            self._write_snapshot(self._log.end_offset)

    def _write_snapshot(self, offset: int) -> None:
        self._store.write_snapshot(offset, self._producers.snapshot(self._snapshot_batches))
        kept = {offset, *self._log.segment_base_offsets}
        for stray in set(self._store.snapshot_offsets()) - kept:
            self._store.delete_snapshot(stray)

    def recover(self, now_ms: int) -> None:
        """Reduce the producers to those that a broker knows after a restart.

        They come from the newest snapshot and the log after it, reduced to what a snapshot of them has
        (LogLoader, UnifiedLog.rebuildProducerState).
        """
        self._rebuild_producers(now_ms)
        if self._log.end_offset > self._log.start_offset:
            self._write_snapshot(self._log.end_offset)
        aborted = self._producers.all_aborted_transactions()
        self._store.replace_aborted(aborted, self._log.segment_base_offsets)
        self._producers, _ = self._newest_snapshot(now_ms)
        self._producers.load_aborted(aborted)
        self._producers.truncate_from_start(self._log.start_offset)

    def _rebuild_producers(self, now_ms: int) -> None:
        """Load the producers from the newest snapshot and the log after it."""
        self._producers, offset = self._newest_snapshot(now_ms)
        aborted = self._store.read_aborted()
        self._producers.load_aborted(entry for entry in aborted if entry.last_offset < offset)
        for batch in self._log.batches(offset):
            self._producers.replay(batch)

    def _newest_snapshot(self, now_ms: int) -> tuple[ProducerStateTable, int]:
        """Return the table of the newest good snapshot, and its offset.

        Without one, return an empty table and the log's start. A snapshot that is damaged, or outside the
        log, is deleted.
        """
        for offset in reversed(self._store.snapshot_offsets()):
            if self._log.start_offset < offset <= self._log.end_offset:
                try:
                    data = self._store.read_snapshot(offset)
                    return (
                        ProducerStateTable.from_snapshot(data, now_ms, expiration_ms=self._expiration_ms),
                        offset,
                    )
                except CorruptRecordError:
                    pass
            self._store.delete_snapshot(offset)
        return ProducerStateTable(expiration_ms=self._expiration_ms), self._log.start_offset

    def delete(self) -> None:
        """Delete the partition's folder. Views that were read stay valid."""
        with suppress(BrokerError), self._disk:
            self._log.delete()

    def close(self) -> None:
        """Write a snapshot, and wait until all is on the disk. Views that were read stay valid."""
        if not self._disk.has_failed:
            self.take_snapshot()
            with self._disk:
                self._log.close()
