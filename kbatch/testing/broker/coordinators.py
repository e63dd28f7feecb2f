"""The coordinators of groups, transactions and share partitions, with the topics that store their state.

Theory of operation. A coordinator first appends a change to its internal topic, in the partition that the
group, transactional id or share partition hashes to. The leader of that partition is the coordinator that
clients must ask. All nodes share the coordinators' state, so a move of the leader only changes which node
clients must ask. At the start the internal topics are read, and the state is restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kbatch._native.codec.record import Record as KafkaRecord
from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.cluster import INTERNAL_TOPICS, Cluster, ClusterPartition, Topic
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from kbatch.testing.broker.coordinator_records import Record, coordinator_partition, key_partition
from kbatch.testing.broker.groups.consumer_group import ConsumerGroup
from kbatch.testing.broker.groups.consumer_group_coordinator import (
    ConsumerGroupCoordinator,
    ConsumerGroupSettings,
)
from kbatch.testing.broker.groups.group_configs import GroupConfigs
from kbatch.testing.broker.groups.group_coordinator import GroupCoordinator
from kbatch.testing.broker.groups.offset_store import OffsetStore
from kbatch.testing.broker.groups.share_group_coordinator import ShareGroupCoordinator
from kbatch.testing.broker.logs.producer_state import EndTransactionMarker
from kbatch.testing.broker.share.share_state import ShareKey, ShareState
from kbatch.testing.broker.transactions.markers import Marker, Markers
from kbatch.testing.broker.transactions.producer_ids import ProducerIdBlocks
from kbatch.testing.broker.transactions.transaction_coordinator import OFFSETS_TOPIC, TransactionCoordinator

if TYPE_CHECKING:
    from kbatch.testing.broker.options import Options
    from kbatch.testing.broker.purgatory import Purgatory
    from kbatch.testing.broker.transactions.transaction_metadata import TopicPartition

TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"
PRODUCER_IDS_FILE = "producer_ids.json"


class SharedState(Protocol):
    """The part of the broker's state that the coordinators use; they are a part of it themselves."""

    options: Options
    directory: Path | None
    cluster: Cluster
    group_configs: GroupConfigs
    purgatory: Purgatory
    now_ms: int

    def random_uuid(self) -> bytes: ...
    def partition_changed(self, topic: str, index: int) -> None: ...


class Coordinators:
    def __init__(self, state: SharedState) -> None:
        self._state = state
        options, directory = state.options, state.directory
        # existing topics keep their partition count
        self._counts = {
            name: len(state.cluster.topics[name].partitions)
            if name in state.cluster.topics
            else options.internal_topic_partitions
            for name in INTERNAL_TOPICS
        }
        path = directory / PRODUCER_IDS_FILE if directory is not None else None
        self.transactions = TransactionCoordinator(
            ProducerIdBlocks(path).next,
            lambda key, value: self._store(TRANSACTIONS_TOPIC, [(key, value)]),
            self._write_markers,
            transaction_version=options.transaction_version,
            offsets_partition_count=self._counts[OFFSETS_TOPIC],
        )
        self.groups = GroupCoordinator(
            self._store_offsets,
            state.random_uuid,
            initial_rebalance_delay_ms=options.group_initial_rebalance_delay_ms,
            max_size=options.group_max_size,
        )
        self.consumer_groups = ConsumerGroupCoordinator(
            self.groups,
            self._store_offsets,
            state.random_uuid,
            state.cluster.topics,
            ConsumerGroupSettings(
                max_size=options.group_consumer_max_size,
                migration_policy=options.group_consumer_migration_policy,
            ),
            state.group_configs,
        )
        self.offsets = OffsetStore(
            self.groups, self._store_offsets, state.now_ms, partition_count=self._counts[OFFSETS_TOPIC]
        )
        self.markers = Markers(state, self.offsets.complete_transaction, self.transactions.markers_replicated)
        self.share_states = ShareState(ShareStateTopic(self))
        self.share_groups = ShareGroupCoordinator(
            self.groups,
            self._store_offsets,
            self.share_states,
            state.cluster.topics,
            state.group_configs,
            options.group_share_max_size,
        )
        self._parts = (
            self.transactions,
            self.groups,
            self.consumer_groups,
            self.share_groups,
            self.offsets,
        )
        self._load()

    # Which node coordinates

    def partition_of_group(self, group_id: str) -> ClusterPartition:
        return self._partition(OFFSETS_TOPIC, group_id)

    def partition_of_transaction(self, transactional_id: str) -> ClusterPartition:
        return self._partition(TRANSACTIONS_TOPIC, transactional_id)

    def partition_of_share(self, key: str) -> ClusterPartition:
        """Return the partition of a share partition, by the name of its key."""
        return self._partition(SHARE_TOPIC, key)

    def check_group(self, group_id: str, node_id: int) -> None:
        """Raise BrokerError NOT_COORDINATOR if another node coordinates the group."""
        _check_coordinator(self.partition_of_group(group_id), node_id)

    def members_of(self, group_id: str) -> GroupCoordinator | ConsumerGroupCoordinator:
        """Return the coordinator of the group's members of the classic protocol."""
        group = self.groups.find(group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self.consumer_groups
        return self.groups

    def check_transaction(self, transactional_id: str, node_id: int) -> None:
        _check_coordinator(self.partition_of_transaction(transactional_id), node_id)
        self._renew_coordinator_epoch()

    def internal_topic(self, name: str) -> Topic:
        """Return an internal topic; create it on first use."""
        cluster = self._state.cluster
        if name not in cluster.topics:
            return cluster.create_topic(name, self._counts[name], configs=INTERNAL_TOPICS[name])
        return cluster.topics[name]

    def _partition(self, topic: str, name: str) -> ClusterPartition:
        index = coordinator_partition(name, self._counts[topic])
        self.internal_topic(topic)
        return self._state.cluster.partition(topic, index)

    # Transactions

    def verify_partition(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        adds: bool,
        names_abortable: bool,
        now_ms: int,
    ) -> None:
        """Verify a partition that is produced to with its transaction's coordinator (KIP-890).

        It must be in the transaction; with `adds`, it is added now. AddPartitionsToTxnManager defines the
        errors for the client; `names_abortable` allows TRANSACTION_ABORTABLE.
        """
        if transactional_id is None or self.partition_of_transaction(transactional_id).leader == NO_LEADER:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            codes = self.transactions.add_partitions(
                transactional_id,
                producer_id,
                producer_epoch,
                [partition],
                now_ms,
                client_tv2=True,
                verify_only=not adds,
            )
            code = codes[partition]
        except BrokerError as error:
            code = error.code
        if code == ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif code == ErrorCode.TRANSACTION_ABORTABLE and not names_abortable:
            code = ErrorCode.INVALID_TXN_STATE
        if code != ErrorCode.NONE:
            raise BrokerError(code)

    def _renew_coordinator_epoch(self) -> None:
        """Set the largest epoch of all transaction coordinators: this object is all of them.

        A partition refuses a marker with a lower epoch than one before.
        """
        topic = self._state.cluster.topics.get(TRANSACTIONS_TOPIC)
        if topic is not None:
            self.transactions.coordinator_epoch = max(each.leader_epoch for each in topic.partitions)

    def _write_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        partitions: list[TopicPartition],
        transaction_version: int,
    ) -> list[TopicPartition]:
        """Write markers, and return the partitions where they are not done yet."""
        marker = Marker(producer_id, producer_epoch, commit, coordinator_epoch, transaction_version)
        return self.markers.write_all(marker, partitions)

    # Time

    def next_deadline_ms(self) -> int | None:
        deadlines = [part.next_deadline_ms() for part in self._parts]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def handle_timeout(self, now_ms: int) -> None:
        for part in self._parts:
            part.handle_timeout(now_ms)

    # Storage

    def _store(
        self, topic: str, records: Sequence[Record], producer_id: int = -1, producer_epoch: int = -1
    ) -> None:
        index = key_partition(records[0][0], self._counts[topic])
        self.append(topic, index, records, producer_id, producer_epoch)

    def append(
        self,
        topic: str,
        index: int,
        records: Sequence[Record],
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> int:
        """Append to a partition of an internal topic, and return the first record's offset.

        Raises BrokerError COORDINATOR_NOT_AVAILABLE.
        """
        self.internal_topic(topic)
        partition = self._state.cluster.partition(topic, index)
        if partition.leader == NO_LEADER:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        offset = partition.log.append_records(
            records,
            now_ms=self._state.now_ms,
            leader_epoch=partition.leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        self._state.partition_changed(topic, index)
        return offset

    def _store_offsets(
        self, records: Sequence[Record], producer_id: int = -1, producer_epoch: int = -1
    ) -> None:
        self._store(OFFSETS_TOPIC, records, producer_id, producer_epoch)

    def _load(self) -> None:
        """Load offsets first, because completing a transaction writes markers that decide them."""
        now_ms, topics = self._state.now_ms, self._state.cluster.topics
        if OFFSETS_TOPIC in topics:
            for partition in topics[OFFSETS_TOPIC].partitions:
                self._load_offsets(partition, now_ms)
            self.consumer_groups.start_sessions(now_ms)
            self.share_groups.start_sessions(now_ms)
        if SHARE_TOPIC in topics:
            for partition in topics[SHARE_TOPIC].partitions:
                records = (record for batch in partition.log.batches() for record in batch)
                self.share_states.load((record.offset, _stored(record)) for record in records)
        if TRANSACTIONS_TOPIC in topics:
            kept = [
                _stored(record)
                for partition in topics[TRANSACTIONS_TOPIC].partitions
                for batch in partition.log.batches()
                for record in batch
            ]
            self._renew_coordinator_epoch()
            self.transactions.load(kept, now_ms)

    def _load_offsets(self, partition: ClusterPartition, now_ms: int) -> None:
        partition.log.compact(now_ms)
        for batch in partition.log.batches():
            if batch.is_control:
                for record in batch:
                    commit = EndTransactionMarker.of(record).is_commit
                    self.offsets.complete_transaction(batch.producer_id, commit, partition.index)
                continue
            records = [_stored(record) for record in batch]
            self.groups.load(records, now_ms)
            self.consumer_groups.load(records)
            self.share_groups.load(records)
            self.offsets.load(records, now_ms, batch.producer_id)


class ShareStateTopic:
    """__share_group_state, as ShareState uses it."""

    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators

    def partition_of(self, key: ShareKey) -> int:
        return self._coordinators.partition_of_share(key.name).index

    def append(self, index: int, record: Record) -> int:
        return self._coordinators.append(SHARE_TOPIC, index, [record])

    def delete_before(self, index: int, offset: int) -> None:
        self._coordinators.internal_topic(SHARE_TOPIC).partitions[index].log.delete_records_before(offset)


def _stored(record: KafkaRecord) -> Record:
    return bytes(record.key or b""), None if record.value is None else bytes(record.value)


def _check_coordinator(partition: ClusterPartition, node_id: int) -> None:
    if partition.leader != node_id:
        raise BrokerError(ErrorCode.NOT_COORDINATOR)
