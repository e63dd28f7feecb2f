"""The coordinators of groups, transactions and share partitions: which node is one, and what it has loaded.

Theory of operation. A coordinator is the leader of a partition of an internal topic: that to which a group,
transactional id or share partition hashes. It stores each change there, and answers when the record is
replicated. A node that begins to lead such a partition loads what its log has, as a shard; one that leads it
no more drops its shard, and refuses what waits. Replicas that share a log also share the shard: the next
leader goes on with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.cluster import INTERNAL_TOPICS, Cluster, ClusterPartition, Topic
from kbatch.testing.broker.coordinator_log import CoordinatorLog
from kbatch.testing.broker.coordinator_records import coordinator_partition
from kbatch.testing.broker.shards import GroupShard, Shard, ShareShard, TransactionShard
from kbatch.testing.broker.transactions.markers import Marker, Markers
from kbatch.testing.broker.transactions.producer_ids import ProducerIdBlocks
from kbatch.testing.broker.transactions.transaction_coordinator import OFFSETS_TOPIC, check_identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbatch.testing.broker.coordinator_log import Write
    from kbatch.testing.broker.groups.group_configs import GroupConfigs
    from kbatch.testing.broker.options import Options
    from kbatch.testing.broker.purgatory import Purgatory
    from kbatch.testing.broker.replication.network import Network
    from kbatch.testing.broker.replication.replica import Replica
    from kbatch.testing.broker.replication.replication import Replication
    from kbatch.testing.broker.share.record_states import StateBatch
    from kbatch.testing.broker.share.share_state import ShareKey, StoredShare
    from kbatch.testing.broker.transactions.transaction_metadata import TopicPartition

TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"
PRODUCER_IDS_FILE = "producer_ids.json"
AnyShard = TypeVar("AnyShard", bound=Shard)


class SharedState(Protocol):
    """The part of the broker's state that the coordinators use; they are a part of it themselves."""

    options: Options
    directory: Path | None
    cluster: Cluster
    group_configs: GroupConfigs
    network: Network
    purgatory: Purgatory
    replication: Replication
    now_ms: int

    def random_uuid(self) -> bytes: ...
    def partition_changed(self, topic: str, index: int) -> None: ...


class Coordinators:
    """The coordinators of all nodes.

    Attributes
    ----------
    load_ms : int
        Time for which coordinators refuse requests with COORDINATOR_LOAD_IN_PROGRESS after they are elected.
    """

    def __init__(self, state: SharedState) -> None:
        self._state = state
        self.load_ms = 0
        # existing topics keep their partition count
        self._counts = {
            name: len(state.cluster.topics[name].partitions)
            if name in state.cluster.topics
            else state.options.internal_topic_partitions
            for name in INTERNAL_TOPICS
        }
        path = state.directory / PRODUCER_IDS_FILE if state.directory is not None else None
        self.next_producer_id = ProducerIdBlocks(path).next
        self.markers = Markers(state, self._offsets_decided, self._markers_replicated)
        self.share_states = StoredShares(self)
        # by partition, and what the shard lasts as long as: a leader's term, or a log that replicas share
        self._shards: dict[ClusterPartition, dict[object, Shard]] = {}
        self._makers: dict[str, Callable[[CoordinatorLog, int], Shard]] = {
            OFFSETS_TOPIC: self._new_group_shard,
            TRANSACTIONS_TOPIC: self._new_transaction_shard,
            SHARE_TOPIC: lambda log, serves_from_ms: ShareShard(log, serves_from_ms),
        }
        # offsets first: completing a transaction writes markers that decide them
        for name in INTERNAL_TOPICS:
            if name in state.cluster.topics:
                self._follow_topic(state.cluster.topics[name])

    # Partitions of internal topics

    def partition_of_group(self, group_id: str) -> ClusterPartition:
        return self._partition(OFFSETS_TOPIC, group_id)

    def partition_of_transaction(self, transactional_id: str) -> ClusterPartition:
        return self._partition(TRANSACTIONS_TOPIC, transactional_id)

    def partition_of_share(self, key: str) -> ClusterPartition:
        """Return the partition of a share partition, by the name of its key."""
        return self._partition(SHARE_TOPIC, key)

    def internal_topic(self, name: str) -> Topic:
        """Return an internal topic; create it on first use."""
        cluster = self._state.cluster
        if name not in cluster.topics:
            self._follow_topic(cluster.create_topic(name, self._counts[name], configs=INTERNAL_TOPICS[name]))
        return cluster.topics[name]

    def _partition(self, topic: str, name: str) -> ClusterPartition:
        index = coordinator_partition(name, self._counts[topic])
        try:
            self.internal_topic(topic)
        except BrokerError as error:  # all brokers are fenced: none could ever lead it
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
        return self._state.cluster.partition(topic, index)

    # Coordinators, as a node that is asked, or as the one that leads

    def of_group(self, group_id: str, node_id: int | None = None) -> GroupShard:
        """Return the coordinator of a group; it runs on the node that is asked, None means any.

        Raises BrokerError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, and without a node
        COORDINATOR_NOT_AVAILABLE if there is none.
        """
        return self._asked(self.partition_of_group(group_id), node_id, GroupShard)

    def of_transaction(self, transactional_id: str, node_id: int | None = None) -> TransactionShard:
        """Return the coordinator of a transactional id, as `of_group` does."""
        return self._asked(self.partition_of_transaction(transactional_id), node_id, TransactionShard)

    def of_share(self, key: ShareKey) -> ShareShard:
        """Return the coordinator of a share partition; who asks it waits until it is loaded.

        Raises BrokerError COORDINATOR_NOT_AVAILABLE.
        """
        partition = self.partition_of_share(key.name)
        return self._shard(partition, _leader_of(partition), ShareShard)

    def at_node(self, node_id: int, topic: str, kind: type[AnyShard]) -> list[AnyShard]:
        """Return the coordinators of a kind at a node; raise COORDINATOR_LOAD_IN_PROGRESS if one loads."""
        led = [each for each in self._partitions(topic) if each.is_led_by(node_id)]
        return [
            self._asked(each, node_id, kind)
            for each in led
            if each.copies[node_id].log.log_end_offset or each in self._shards
        ]

    def loaded(self, kind: type[AnyShard]) -> list[AnyShard]:
        """Return the coordinators of a kind at all nodes, as far as they are loaded."""
        return [shard for shard in self._all() if isinstance(shard, kind) and shard.is_loaded]

    def _asked(self, partition: ClusterPartition, node_id: int | None, kind: type[AnyShard]) -> AnyShard:
        leader = _leader_of(partition) if node_id is None else self._led_by(partition, node_id)
        shard = self._shard(partition, leader, kind)
        if not shard.is_loaded or shard.serves_from_ms > self._state.now_ms:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _led_by(self, partition: ClusterPartition, node_id: int) -> Replica:
        """Return the replica of a node that leads, as far as it knows."""
        try:
            return self._state.cluster.led_partition(partition.topic.name, partition.index, node_id)
        except BrokerError as error:
            raise BrokerError(ErrorCode.NOT_COORDINATOR) from error

    def _partitions(self, topic: str) -> list[ClusterPartition]:
        found = self._state.cluster.topics.get(topic)
        return [] if found is None else found.partitions

    # Loading

    def _follow_topic(self, topic: Topic) -> None:
        for partition in topic.partitions:
            self._follow(partition, self._state.now_ms)
            key = topic.name, partition.index
            self._state.purgatory.follow([key], partial(self._follow, partition))

    def _follow(self, partition: ClusterPartition, now_ms: int) -> bool:
        """Drop the shards whose terms are over, and load those of new leaders; True if the topic is gone."""
        is_gone = self._state.cluster.topics.get(partition.topic.name) is not partition.topic
        for term, shard in list(self._shards.get(partition, {}).items()):
            if is_gone or not shard.log.is_current:
                del self._shards[partition][term]
                shard.unload()
        for leader in () if is_gone else partition.copies.values():
            if leader.leadership is not None and leader.log.log_end_offset:
                self._shard(partition, leader, Shard)
        return is_gone

    def _shard(self, partition: ClusterPartition, leader: Replica, kind: type[AnyShard]) -> AnyShard:
        """Return the shard of a leader, loaded if it may be and is not yet."""
        term: object = partition if partition.shares_log else leader.leadership
        shards = self._shards.setdefault(partition, {})
        if term not in shards:
            has_records = leader.log.log_end_offset > 0
            serves_from_ms = self._state.now_ms + (self.load_ms if has_records else 0)
            log = CoordinatorLog(self._state, partition, leader)
            shards[term] = self._makers[partition.topic.name](log, serves_from_ms)
        shard = shards[term]
        if not shard.is_loaded and shard.may_load():
            shard.is_loaded = True
            shard.load(self._state.now_ms)
        assert isinstance(shard, kind)
        return shard

    def _new_group_shard(self, log: CoordinatorLog, serves_from_ms: int) -> GroupShard:
        return GroupShard(log, serves_from_ms, self._state, self.share_states, self._state.now_ms)

    def _new_transaction_shard(self, log: CoordinatorLog, serves_from_ms: int) -> TransactionShard:
        return TransactionShard(
            log,
            serves_from_ms,
            self.next_producer_id,
            partial(self._write_markers, log),
            transaction_version=self._state.options.transaction_version,
            offsets_partition_count=self._counts[OFFSETS_TOPIC],
        )

    def _all(self) -> list[Shard]:
        return [shard for shards in self._shards.values() for shard in shards.values()]

    # Transactions

    def init_producer_id(self, producer_id: int, producer_epoch: int) -> tuple[int, int]:
        """Return the id and epoch of a producer without transactions, which no coordinator knows."""
        check_identity(producer_id, producer_epoch)
        return self.next_producer_id(), 0

    def set_transaction_version(self, level: int) -> None:
        for shard in self._all():
            if isinstance(shard, TransactionShard):
                shard.transactions.transaction_version = level

    def verify_partition(
        self,
        node_id: int,
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

        It must be in the transaction; with `adds`, it is added now. `node_id` is the node that asks.
        AddPartitionsToTxnManager defines the errors for the client; `names_abortable` allows
        TRANSACTION_ABORTABLE.
        """
        if transactional_id is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            shard = self.of_transaction(transactional_id)
            self._check_reached(shard, node_id)
            codes = shard.transactions.add_partitions(
                transactional_id,
                producer_id,
                producer_epoch,
                [partition],
                now_ms,
                client_tv2=True,
                verify_only=not adds,
            )
            code = codes[partition]
            if shard.transactions.unreplicated(transactional_id) is not None:
                code = ErrorCode.CONCURRENT_TRANSACTIONS  # it may be added when the client tries again
        except BrokerError as error:
            code = error.code
        if code == ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif code == ErrorCode.TRANSACTION_ABORTABLE and not names_abortable:
            code = ErrorCode.INVALID_TXN_STATE
        if code != ErrorCode.NONE:
            raise BrokerError(code)

    def _check_reached(self, shard: Shard, node_id: int) -> None:
        """Raise BrokerError NETWORK_EXCEPTION if a coordinator does not answer a node."""
        other = shard.log.node_id
        is_reached = node_id == other or self._state.network.reaches(node_id, other)
        if not shard.log.partition.shares_log and not (is_reached and self._runs(shard)):
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION)

    def _write_markers(
        self,
        log: CoordinatorLog,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        partitions: list[TopicPartition],
        transaction_version: int,
    ) -> list[TopicPartition]:
        """Write markers, and return the partitions where they are not done yet."""
        marker = Marker(producer_id, producer_epoch, commit, coordinator_epoch, transaction_version)
        return self.markers.write_all(marker, partitions, None if log.partition.shares_log else log.node_id)

    def _offsets_decided(self, producer_id: int, commit: bool, index: int) -> None:
        """Have the coordinator of groups apply a marker; one that is not loaded finds it in the log."""
        partition = self._state.cluster.partition(OFFSETS_TOPIC, index)
        for shard in self._shards.get(partition, {}).values():
            if isinstance(shard, GroupShard) and shard.log.node_id == partition.leader:
                shard.log.note_appended()
                shard.live.offsets.complete_transaction(producer_id, commit)

    def _markers_replicated(self, now_ms: int) -> None:
        for shard in self.loaded(TransactionShard):
            if self._runs(shard):
                shard.transactions.markers_replicated(now_ms)

    # Topics

    def topics_deleted(self, topic_ids: Mapping[str, bytes]) -> None:
        """Drop the offsets of deleted topics, by name, if they were committed for these ids."""
        for shard in self.loaded(GroupShard):
            shard.live.offsets.topics_deleted(topic_ids)

    # Time

    def next_deadline_ms(self) -> int | None:
        deadlines = [shard.next_deadline_ms() for shard in self._all() if self._runs(shard)]
        return min([each for each in deadlines if each is not None], default=None)

    def handle_timeout(self, now_ms: int) -> None:
        for shard in self._all():
            if self._runs(shard):
                shard.handle_timeout(now_ms)

    def _runs(self, shard: Shard) -> bool:
        """True unless the term is over, or the process of the node is stopped; a shared shard goes on."""
        if shard.log.partition.shares_log:
            return True
        return shard.log.is_current and not self._state.cluster.nodes[shard.log.node_id].is_paused


class StoredShares:
    """What all coordinators have stored of share partitions (ShareStates)."""

    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators

    def read(self, key: ShareKey) -> StoredShare | None:
        return self._coordinators.of_share(key).states.read(key)

    def initialize(self, key: ShareKey, start_offset: int, now_ms: int) -> None:
        self._coordinators.of_share(key).states.initialize(key, start_offset, now_ms)

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
        states = self._coordinators.of_share(key).states
        states.write(key, start_offset, final_count, batches, leader_epoch=leader_epoch, now_ms=now_ms)

    def delete(self, key: ShareKey) -> None:
        self._coordinators.of_share(key).states.delete(key)

    def of_group(self, group_id: str) -> list[ShareKey]:
        return [key for states in self._all() for key in states.of_group(group_id)]

    def of_topic(self, topic_id: bytes) -> list[ShareKey]:
        return [key for states in self._all() for key in states.of_topic(topic_id)]

    def unreplicated(self, key: ShareKey) -> Write | None:
        """Return what has to be replicated before an acknowledgement is answered, None if all is."""
        return self._coordinators.of_share(key).log.unreplicated()

    def _all(self) -> list[Any]:
        return [shard.states for shard in self._coordinators.loaded(ShareShard)]


def _leader_of(partition: ClusterPartition) -> Replica:
    """Return the registered leader's replica; raise BrokerError COORDINATOR_NOT_AVAILABLE without one that
    knows that it leads.
    """
    leader = partition.copies.get(partition.leader)
    if leader is None or (leader.leadership is None and not partition.shares_log):
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return leader
