"""Committed offsets of consumer groups.

Theory of operation. A commit is checked against its group, stored as records of __consumer_offsets, and then
counts. A transactional commit is stored as a transactional batch, and is pending until the marker of its
transaction comes to the partition: then it counts or is dropped. While one is pending, a client that asks for
stable offsets must ask again (KIP-447). Of a transactional and a plain commit the one stored last counts, in
whatever order they come to count; so each gets a number when it is stored.

Offsets are dropped when their retention is over, with their group or topic, or by request. A group is deleted
with its last offset if it has no members.

The rules follow OffsetMetadataManager.java of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.records import INT64_MAX, NO_TOPIC_ID
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.coordinator_records import (
    Record,
    decode_record,
    encode_record,
)
from kbatch.testing.broker.groups.group_coordinator import AnyGroup, GroupCoordinator, Store, check_group_id
from kbatch.testing.broker.groups.requests import Commit
from kbatch.testing.broker.groups.share_group import ShareGroup
from kbatch.testing.broker.transactions.transaction_metadata import TopicPartition

RETENTION_CHECK_INTERVAL_MS = 600_000


@dataclass(slots=True, frozen=True)
class CommittedOffset:
    """A group's offset of a partition; `expire_timestamp_ms` is -1 unless the client sets a retention."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: bytes = NO_TOPIC_ID


@dataclass(slots=True, frozen=True)
class FetchedOffset:
    """An answer of OffsetFetch; offset -1 if there is none."""

    error_code: ErrorCode = ErrorCode.NONE
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""


# A group's offsets, each with the number that orders them by when they were stored.
_Offsets = dict[TopicPartition, tuple[int, CommittedOffset]]


class OffsetStore:
    """The offsets of the groups of a coordinator.

    Parameters
    ----------
    groups : GroupCoordinator
    store : Store
        Gets the producer id and epoch of transactional commits.
    now_ms : int
        Start of the interval to the first check of the retention.
    retention_ms : int
        offsets.retention.minutes, in milliseconds.
    max_metadata_size : int
        offset.metadata.max.bytes, which Kafka counts in UTF-16 units.
    """

    def __init__(
        self,
        groups: GroupCoordinator,
        store: Store,
        now_ms: int,
        *,
        retention_ms: int = 7 * 24 * 3_600_000,
        max_metadata_size: int = 4_096,
    ) -> None:
        self._groups = groups
        self._store = store
        self._retention_ms = retention_ms
        self._max_metadata_size = max_metadata_size
        self._offsets: dict[str, _Offsets] = {}
        # by producer id and group
        self._pending: dict[int, dict[str, _Offsets]] = {}
        self._numbers = count()
        self._next_check_ms = now_ms + RETENTION_CHECK_INTERVAL_MS

    # Requests

    def commit(
        self,
        group_id: str,
        member_id: str,
        generation_id: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        now_ms: int,
        *,
        group_instance_id: str | None = None,
        retention_ms: int = -1,
        version: int = features.OFFSET_COMMIT_MEMBER_EPOCHS,
    ) -> dict[TopicPartition, ErrorCode]:
        """Handle OffsetCommit: return a code for each partition.

        A consumer that chooses its partitions itself has generation -1 and no member, which an empty group
        allows. Members of KIP-848 say their epoch. `retention_ms` is for versions 2 to 4. Raises BrokerError
        GROUP_ID_NOT_FOUND (before version 9 ILLEGAL_GENERATION), UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
        ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, REBALANCE_IN_PROGRESS, UNSUPPORTED_VERSION.
        """
        is_old = version < features.OFFSET_COMMIT_MEMBER_EPOCHS
        missing = ErrorCode.ILLEGAL_GENERATION if is_old else ErrorCode.GROUP_ID_NOT_FOUND
        group = self._committing_group(group_id, generation_id, missing, now_ms)
        group.check_offset_commit(
            Commit(member_id, group_instance_id, generation_id, False, version, _ids(offsets))
        )
        self._groups.renew_session(group, member_id, now_ms)
        expire_ms = -1 if retention_ms == -1 else min(now_ms + retention_ms, INT64_MAX)
        stamped = {
            each: replace(offset, commit_timestamp_ms=now_ms, expire_timestamp_ms=expire_ms)
            for each, offset in offsets.items()
        }
        return self._commit(group_id, stamped, now_ms)

    def commit_transactional(
        self,
        group_id: str,
        producer_id: int,
        producer_epoch: int,
        member_id: str,
        generation_id: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        now_ms: int,
        *,
        group_instance_id: str | None = None,
        version: int = features.TXN_OFFSET_COMMIT_MEMBERS,
    ) -> dict[TopicPartition, ErrorCode]:
        """Handle TxnOffsetCommit: return a code for each partition. Offsets count after
        `complete_transaction`.

        Raises BrokerError INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
        """
        check_group_id(group_id)
        group = self._committing_group(group_id, generation_id, ErrorCode.ILLEGAL_GENERATION, now_ms)
        group.check_offset_commit(
            Commit(member_id, group_instance_id, generation_id, True, version, _ids(offsets))
        )
        stamped = {each: replace(offset, commit_timestamp_ms=now_ms) for each, offset in offsets.items()}
        return self._commit(group_id, stamped, now_ms, producer_id, producer_epoch)

    def complete_transaction(self, producer_id: int, commit: bool) -> None:
        """Apply a marker that has come to the partition of __consumer_offsets."""
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            if commit and offsets:
                committed = self._offsets.setdefault(group_id, {})
                for each, stored in offsets.items():
                    committed[each] = max(stored, committed.get(each, stored), key=lambda pair: pair[0])

    def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool = False,
        topic_ids: Mapping[str, bytes] | None = None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[TopicPartition, FetchedOffset]:
        """Handle OffsetFetch: return the offsets of these partitions, or of all that have one.

        With `require_stable` a pending transactional commit answers UNSTABLE_OFFSET_COMMIT. By the ids given,
        an offset committed for another topic of the same name does not count. Raises BrokerError
        UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION if a member of KIP-848 is named wrongly.
        """
        if (group := self._groups.find(group_id)) is not None:
            group.check_offset_fetch(member_id, member_epoch)
        committed = self._offsets.get(group_id, {})
        fetched = {}
        for each in list(committed) if partitions is None else partitions:
            stored = committed.get(each)
            if require_stable and self._is_pending(group_id, each):
                fetched[each] = FetchedOffset(ErrorCode.UNSTABLE_OFFSET_COMMIT)
            elif stored is not None and _is_same_topic(stored[1].topic_id, (topic_ids or {}).get(each[0])):
                offset = stored[1]
                fetched[each] = FetchedOffset(
                    ErrorCode.NONE, offset.offset, offset.leader_epoch, offset.metadata
                )
            elif partitions is not None:
                fetched[each] = FetchedOffset()
        return fetched

    def committed_of(self, group_id: str) -> Mapping[TopicPartition, tuple[int, CommittedOffset]]:
        """Return the committed offsets of a group, each with the number of its commit, which grows."""
        return self._offsets.get(group_id, {})

    def delete(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Handle OffsetDelete: return a code for each partition, GROUP_SUBSCRIBED_TO_TOPIC if a member reads
        it.

        Raises BrokerError INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        check_group_id(group_id)
        if (group := self._groups.find(group_id)) is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group.check_offset_delete()
        codes = {
            each: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(each[0]) else ErrorCode.NONE
            for each in partitions
        }
        self._drop(group_id, [each for each, code in codes.items() if code == ErrorCode.NONE])
        return codes

    def delete_group(self, group_id: str, now_ms: int) -> None:
        """Handle DeleteGroups, with all offsets; raise BrokerError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        self._groups.check_delete(group_id)
        self._drop(group_id, self._known(group_id))
        self._groups.delete(group_id, now_ms)

    def topics_deleted(self, topic_ids: Mapping[str, bytes]) -> None:
        """Drop the offsets of deleted topics, by name, if they were committed for these ids. Those of a group
        that has no coordinator now stay, as in Kafka.
        """
        for group_id in self._groups.group_ids:
            with suppress(BrokerError):
                self._drop(group_id, list(self._of_topics(group_id, topic_ids)))

    # Time and restarts

    def next_deadline_ms(self) -> int | None:
        return self._next_check_ms if self._groups.group_ids else None

    def handle_timeout(self, now_ms: int) -> None:
        """Drop offsets that are too old, and groups without offsets and members."""
        if now_ms < self._next_check_ms:
            return
        self._next_check_ms = now_ms + RETENTION_CHECK_INTERVAL_MS
        for group_id in self._groups.group_ids:
            group = self._groups.find(group_id)
            assert group is not None
            if isinstance(group, ShareGroup):
                continue  # it has none here, and stays until it is deleted
            expired = [
                each
                for each, (_, offset) in self._offsets.get(group_id, {}).items()
                if self._is_expired(group, each, offset, now_ms)
            ]
            with suppress(BrokerError):  # what cannot be stored now is dropped another time
                self._drop(group_id, expired)
                if group.is_empty and not self._known(group_id):
                    self._groups.delete(group_id, now_ms)

    def load(self, records: Iterable[Record], now_ms: int, producer_id: int = -1) -> None:
        """Add the records of a stored batch; other kinds are skipped.

        The batches of a partition are loaded in order, and `complete_transaction` is called for its markers.
        """
        for record in records:
            decoded = decode_record(messages.OffsetCommitKey, messages.OffsetCommitValue, *record)
            if decoded is not None:
                key, value = decoded
                offset = None if value is None else _from_value(value)
                self._replay(key.group, (key.topic, key.partition), offset, now_ms, producer_id)

    # Commits

    def _committing_group(
        self, group_id: str, generation_id: int, missing: ErrorCode, now_ms: int
    ) -> AnyGroup:
        group = self._groups.find(group_id)
        if group is None and generation_id >= 0:
            raise BrokerError(missing)
        return group or self._groups.simple_group(group_id, now_ms)

    def _commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        now_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> dict[TopicPartition, ErrorCode]:
        codes = {
            each: ErrorCode.NONE
            if len(offset.metadata.encode("utf-16-le")) <= 2 * self._max_metadata_size
            else ErrorCode.OFFSET_METADATA_TOO_LARGE
            for each, offset in offsets.items()
        }
        good = {each: offset for each, offset in offsets.items() if codes[each] == ErrorCode.NONE}
        if good:
            records = [to_record(group_id, *item) for item in good.items()]
            self._store(records, producer_id, producer_epoch)
        for each, offset in good.items():
            self._replay(group_id, each, offset, now_ms, producer_id)
        return codes

    def _replay(
        self,
        group_id: str,
        partition: TopicPartition,
        offset: CommittedOffset | None,
        now_ms: int,
        producer_id: int,
    ) -> None:
        """Apply a stored record; a tombstone also removes pending offsets."""
        if offset is None:
            for offsets in self._all_of(group_id):
                offsets.pop(partition, None)
            return
        self._groups.simple_group(group_id, now_ms)
        by_group = self._offsets if producer_id == -1 else self._pending.setdefault(producer_id, {})
        by_group.setdefault(group_id, {})[partition] = (next(self._numbers), offset)

    def _drop(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        known = self._known(group_id)
        dropped = [each for each in partitions if each in known]
        if dropped:
            self._store([to_record(group_id, each, None) for each in dropped])
        for offsets in self._all_of(group_id):
            for each in dropped:
                offsets.pop(each, None)

    def _all_of(self, group_id: str) -> Iterator[_Offsets]:
        """Yield the group's committed and pending offsets."""
        for by_group in (self._offsets, *self._pending.values()):
            if group_id in by_group:
                yield by_group[group_id]

    def _known(self, group_id: str) -> set[TopicPartition]:
        return {each for offsets in self._all_of(group_id) for each in offsets}

    def _is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        return any(partition in pending.get(group_id, ()) for pending in self._pending.values())

    def _of_topics(self, group_id: str, topic_ids: Mapping[str, bytes]) -> Iterator[TopicPartition]:
        for offsets in self._all_of(group_id):
            for each, (_, offset) in offsets.items():
                if each[0] in topic_ids and _is_same_topic(offset.topic_id, topic_ids[each[0]]):
                    yield each

    def _is_expired(
        self, group: AnyGroup, partition: TopicPartition, offset: CommittedOffset, now_ms: int
    ) -> bool:
        start_ms = group.retention_start_ms(offset.commit_timestamp_ms)
        if start_ms is None or group.is_subscribed_to(partition[0]):
            return False
        if self._is_pending(group.group_id, partition):
            return False
        if offset.expire_timestamp_ms != -1:
            return now_ms >= offset.expire_timestamp_ms
        return now_ms - start_ms >= self._retention_ms


def _ids(offsets: Mapping[TopicPartition, CommittedOffset]) -> tuple[tuple[bytes, int], ...]:
    return tuple((offset.topic_id, index) for (_, index), offset in offsets.items())


def _is_same_topic(committed_id: bytes, topic_id: bytes | None) -> bool:
    """True if the ids may name the same topic: old commits, and old clients, have no id and mean any."""
    return topic_id is None or NO_TOPIC_ID in (committed_id, topic_id) or committed_id == topic_id


def to_record(group_id: str, partition: TopicPartition, offset: CommittedOffset | None) -> Record:
    """Return the record of __consumer_offsets (GroupCoordinatorRecordHelpers); None makes its tombstone."""
    key = messages.OffsetCommitKey(group=group_id, topic=partition[0], partition=partition[1])
    if offset is None:
        return encode_record(key, None, 0)
    value = messages.OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=offset.expire_timestamp_ms,
        topic_id=offset.topic_id,
    )
    # only version 1 has an expiry, only version 4 an id
    return encode_record(key, value, 4 if offset.expire_timestamp_ms == -1 else 1)


def _from_value(value: messages.OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
