"""The share coordinator: what is stored of each share partition, in __share_group_state.

Theory of operation. A share partition is stored under group, topic id and index. It has a snapshot, which is
one record, and after that an update for each change: what it changes counts over what was there. After
`UPDATES_PER_SNAPSHOT` updates there is a new snapshot, and records before the oldest snapshot that counts are
deleted. Acquisitions are not stored: after a restart, or on another leader, the records that were acquired
are available.

After ShareCoordinatorShard of Kafka 4.3.1.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from kbatch.protocol import messages
from kbatch.testing.broker.coordinator_records import Record, decode_record, encode_record
from kbatch.testing.broker.share.record_states import RecordState, StateBatch, state_batches

RECORD_VERSION = 0
UPDATES_PER_SNAPSHOT = 500  # share.coordinator.snapshot.update.records.per.snapshot
NO_OFFSET = -1  # of a share partition that was never read: share.auto.offset.reset decides


class ShareKey(NamedTuple):
    """The key of a share partition."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def name(self) -> str:
        """Return the name by which its coordinator is found."""
        topic = urlsafe_b64encode(self.topic_id).decode().rstrip("=")
        return f"{self.group_id}:{topic}:{self.partition}"


@dataclass
class StoredShare:
    """What is stored of a share partition.

    Attributes
    ----------
    state_epoch : int
        Grows each time that a request sets the start offset.
    start_offset : int
        The first offset that is not final, when this was stored; NO_OFFSET before that.
    final_count : int
        The number of final offsets from `start_offset` on, -1 if unknown.
    states : dict of int to (RecordState, int)
        The state and the delivery count of each stored offset.
    snapshot_offset : int
        The offset of the snapshot's record.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    final_count: int
    created_ms: int
    snapshot_epoch: int = 0
    states: dict[int, tuple[RecordState, int]] = field(default_factory=dict)
    update_count: int = 0
    snapshot_offset: int = -1

    def update(self, start_offset: int, final_count: int, batches: Iterable[StateBatch]) -> None:
        for batch in batches:
            for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
                self.states[offset] = batch.state, batch.delivery_count
        if start_offset > self.start_offset:
            self.states = {each: state for each, state in self.states.items() if each >= start_offset}
        self.start_offset, self.final_count = max(start_offset, self.start_offset), final_count


class ShareLog(Protocol):
    """A partition of __share_group_state; the next record gets `end_offset`."""

    @property
    def end_offset(self) -> int: ...
    def append(self, records: Sequence[Record]) -> object: ...
    def delete_before(self, offset: int) -> None: ...


class ShareStates(Protocol):
    """The share partitions that all coordinators have stored.

    Methods raise BrokerError COORDINATOR_NOT_AVAILABLE if the coordinator of the key has no leader.
    """

    def read(self, key: ShareKey) -> StoredShare | None: ...
    def initialize(self, key: ShareKey, start_offset: int, now_ms: int) -> None: ...
    def write(
        self,
        key: ShareKey,
        start_offset: int,
        final_count: int,
        batches: Sequence[StateBatch],
        *,
        leader_epoch: int,
        now_ms: int,
    ) -> None: ...
    def delete(self, key: ShareKey) -> None: ...
    def of_group(self, group_id: str) -> list[ShareKey]: ...
    def of_topic(self, topic_id: bytes) -> list[ShareKey]: ...


class ShareState:
    """The share partitions that are stored in one partition of __share_group_state.

    A BrokerError of the log passes through: then nothing has changed.
    """

    def __init__(self, log: ShareLog) -> None:
        self._log = log
        self._stored: dict[ShareKey, StoredShare] = {}

    def read(self, key: ShareKey) -> StoredShare | None:
        return self._stored.get(key)

    def of_group(self, group_id: str) -> list[ShareKey]:
        return [key for key in self._stored if key.group_id == group_id]

    def of_topic(self, topic_id: bytes) -> list[ShareKey]:
        return [key for key in self._stored if key.topic_id == topic_id]

    def initialize(self, key: ShareKey, start_offset: int, now_ms: int) -> None:
        """Begin a share partition at an offset, or at one that its first reader finds; forget its states."""
        old = self._stored.get(key)
        new = StoredShare(0 if old is None else old.state_epoch + 1, 0, start_offset, -1, now_ms)
        if start_offset != NO_OFFSET:
            new.final_count = 0
        self._write_snapshot(key, new, now_ms)

    def write(
        self,
        key: ShareKey,
        start_offset: int,
        final_count: int,
        batches: Sequence[StateBatch],
        *,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Store a change of a share partition, which exists."""
        stored = self._stored[key]
        if stored.update_count >= UPDATES_PER_SNAPSHOT:
            new = replace(
                stored,
                leader_epoch=leader_epoch,
                snapshot_epoch=stored.snapshot_epoch + 1,
                states=dict(stored.states),
                update_count=0,
            )
            new.update(start_offset, final_count, batches)
            self._write_snapshot(key, new, now_ms)
            return
        kind = messages.ShareUpdateValue
        value = kind(
            snapshot_epoch=stored.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=final_count,
            state_batches=[kind.StateBatch(**_fields(each)) for each in batches],
        )
        record = encode_record(messages.ShareUpdateKey(**key._asdict()), value, RECORD_VERSION)
        self._log.append([record])
        stored.leader_epoch = leader_epoch
        stored.update_count += 1
        stored.update(start_offset, final_count, batches)

    def delete(self, key: ShareKey) -> None:
        """Delete a share partition; the next one of the key has no past."""
        if key in self._stored:
            record = encode_record(messages.ShareSnapshotKey(**key._asdict()), None, RECORD_VERSION)
            self._log.append([record])
            del self._stored[key]

    def load(self, records: Iterable[tuple[int, Record]]) -> None:
        """Add the stored records of a partition of the topic, each with its offset."""
        for offset, record in records:
            if change := decode_record(messages.ShareSnapshotKey, messages.ShareSnapshotValue, *record):
                self._load_snapshot(offset, *change)
            elif update := decode_record(messages.ShareUpdateKey, messages.ShareUpdateValue, *record):
                self._load_update(*update)

    def _write_snapshot(self, key: ShareKey, stored: StoredShare, now_ms: int) -> None:
        kind = messages.ShareSnapshotValue
        value = kind(
            snapshot_epoch=stored.snapshot_epoch,
            state_epoch=stored.state_epoch,
            leader_epoch=stored.leader_epoch,
            start_offset=stored.start_offset,
            delivery_complete_count=stored.final_count,
            create_timestamp=stored.created_ms,
            write_timestamp=now_ms,
            state_batches=[kind.StateBatch(**_fields(each)) for each in state_batches(stored.states)],
        )
        record = encode_record(messages.ShareSnapshotKey(**key._asdict()), value, RECORD_VERSION)
        stored.snapshot_offset = self._log.end_offset
        self._log.append([record])
        self._stored[key] = stored
        self._log.delete_before(min(each.snapshot_offset for each in self._stored.values()))

    def _load_snapshot(
        self, offset: int, key: messages.ShareSnapshotKey, value: messages.ShareSnapshotValue | None
    ) -> None:
        at = ShareKey(key.group_id, bytes(key.topic_id), key.partition)
        if value is None:
            self._stored.pop(at, None)
            return
        stored = self._stored[at] = StoredShare(
            value.state_epoch,
            value.leader_epoch,
            value.start_offset,
            value.delivery_complete_count,
            value.create_timestamp,
            value.snapshot_epoch,
            snapshot_offset=offset,
        )
        stored.update(value.start_offset, value.delivery_complete_count, _batches(value.state_batches))

    def _load_update(self, key: messages.ShareUpdateKey, value: messages.ShareUpdateValue | None) -> None:
        stored = self._stored.get(ShareKey(key.group_id, bytes(key.topic_id), key.partition))
        if stored is None or value is None:
            return
        stored.update_count += 1
        stored.leader_epoch = value.leader_epoch
        start_offset = stored.start_offset if value.start_offset == NO_OFFSET else value.start_offset
        stored.update(start_offset, value.delivery_complete_count, _batches(value.state_batches))


def _fields(batch: StateBatch) -> dict[str, int]:
    return {
        "first_offset": batch.first_offset,
        "last_offset": batch.last_offset,
        "delivery_state": batch.state,
        "delivery_count": batch.delivery_count,
    }


def _batches(
    stored: Iterable[messages.ShareSnapshotValue.StateBatch | messages.ShareUpdateValue.StateBatch],
) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, RecordState(each.delivery_state), each.delivery_count)
        for each in stored
    ]
