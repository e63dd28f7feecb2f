"""GroupCluster: the brokers of a world of readers, whose commits are watched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.records import NO_TOPIC_ID, TopicPartition
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.coordinator_records import decode_record
from kbatch.testing.broker.groups.classic_group import Group
from kbatch.testing.broker.groups.consumer_group import ConsumerGroup, ConsumerMember
from kbatch.testing.broker.shards import GroupShard
from kbatch.testing.broker.transactions.markers import Marker
from kbatch.testing.broker.transactions.transaction_coordinator import OFFSETS_TOPIC
from tests.simulation.world.cluster import Ground, SimulatedCluster
from tests.simulation.world.replicas.history import BatchId

if TYPE_CHECKING:
    from kbatch._native.codec.record_batch import RecordBatch
    from kbatch.testing.broker.broker_state import BrokerState, Connection
    from kbatch.testing.broker.cluster import ClusterPartition
    from kbatch.testing.broker.coordinators import Coordinators
    from kbatch.testing.broker.groups.group_coordinator import AnyGroup
    from kbatch.testing.broker.logs.partition import Appended, Partition
    from kbatch.testing.broker.logs.validation import ProducedBatch
    from kbatch.testing.broker.replication.replica import Replica
    from kbatch.testing.broker.shards import Shard
    from tests.simulation.readers.ledger import GroupLedger

GROUP = "readers"
COMMIT = messages.OffsetCommitRequest.api_key
_Result = TypeVar("_Result")


class GroupCluster(SimulatedCluster):
    """The brokers of a world of readers.

    Attributes
    ----------
    ledger : GroupLedger
        Gets what is committed.
    """

    def __init__(self, world: Ground, ledger: GroupLedger) -> None:
        self._labels: dict[bytes, str] = {}
        self.ledger = ledger
        self._noted = 0  # commits below this offset of the coordinator's log are in the ledger
        self._late: set[BatchId] = set()  # commits of connections that had ended
        self._ends_before_late: dict[Partition, int] = {}  # while one is handled
        self._deposed: dict[Shard, int] = {}  # coordinators that others have replaced, and since when
        super().__init__(world)

    @property
    def coordinators(self) -> Coordinators:
        return self.state.coordinators

    @property
    def group(self) -> AnyGroup | None:
        """Return the group, as its coordinator knows it."""
        shard = self._shard
        return None if shard is None else shard.live.groups.find(GROUP)

    @property
    def _shard(self) -> GroupShard | None:
        """Return the coordinator on the node that leads; others may go on until they hear of it."""
        shards = self.coordinators.loaded(GroupShard)
        return next((each for each in shards if each.log.node_id == each.log.partition.leader), None)

    def offsets_partition(self) -> ClusterPartition | None:
        """Return the partition of the group's coordinator; None if it is missing, and cannot be made now."""
        try:
            return self.coordinators.partition_of_group(GROUP)
        except BrokerError:
            return None

    # Topics

    def create_topic(self, name: str, count: int) -> None:
        super().create_topic(name, count)
        before = sum(known == name for known in self._names.values()) - 1
        self._labels[self.state.cluster.topics[name].topic_id] = f"{name}#{before}" if before else name

    def delete_topic(self, name: str) -> None:
        topic = self.state.cluster.topics[name]
        for partition in topic.partitions:
            self.ledger.log(self.log_of(topic.topic_id, partition.index)).is_deleted = True
        super().delete_topic(name)

    def log_of(self, topic_id: bytes, index: int) -> TopicPartition:
        """Return the partition as the ledger knows it: a topic that was made anew has a name of its own."""
        return TopicPartition(self._labels[topic_id], index)

    def place(self, topic_id: bytes, partition: TopicPartition) -> TopicPartition:
        """Return the partition of a topic's id; without one, the only one that has the name."""
        return partition if topic_id == NO_TOPIC_ID else self.log_of(topic_id, partition.partition)

    def log_now(self, partition: TopicPartition) -> TopicPartition | None:
        """Return the partition that has the name now, as the ledger knows it; None while there is none."""
        topic = self.state.cluster.topics.get(partition.topic)
        return None if topic is None else self.log_of(topic.topic_id, partition.partition)

    # Requests

    def handle(self, connection: Connection, frame: bytes, error: Any) -> Any:
        is_late = self.serving is not None and not self.serving.is_open
        if is_late and int.from_bytes(frame[:2], "big") == COMMIT:
            found = self.offsets_partition()
            self._ends_before_late = {log: log.log_end_offset for log in (found.logs if found else ())}
        return super().handle(connection, frame, error)

    def _look(self) -> None:
        super()._look()
        for log, offset in self._ends_before_late.items():
            self._late.update(map(_id_of, log.batches(offset)))
        self._ends_before_late = {}
        self._note_commits()

    def _note_commits(self) -> None:
        """Tell the ledger of offsets that are committed: their records are replicated."""
        shards = self.coordinators.loaded(GroupShard)
        current, now_ns = self._shard, self.world.schedule.now_ns
        self._deposed = {each: self._deposed.get(each, now_ns) for each in shards if each is not current}
        if self._deposed:
            self.ledger.note_deposed(min(self._deposed.values()))
        if current is None or self._noted >= current.log.replicated_offset:
            return
        for batch in current.log.partition.log.batches(self._noted):
            if batch.last_offset >= current.log.replicated_offset:
                break
            self._noted = batch.last_offset + 1
            for place, offset in _commits_of(batch):
                self._note_commit(self.log_of(*place), offset, is_late=_id_of(batch) in self._late)

    def _note_commit(self, partition: TopicPartition, offset: int, *, is_late: bool) -> None:
        self.world.trace("   %s is committed at %d", partition, offset)
        self.ledger.note_commit(partition, offset, is_late=is_late)

    def counts(self, member_id: str, generation_id: int) -> bool:
        """True if the group's coordinator counts a member of this generation or epoch."""
        group = self.group
        if group is None:
            return False
        member: Any = group.members.get(member_id)
        if member is None:
            return False
        if isinstance(group, Group):
            return group.generation_id == generation_id
        return generation_id in (member.epoch, member.previous_epoch)

    def group_state(self) -> str:
        """Return the group's state, as its coordinator names it."""
        group = self.group
        return "missing" if group is None else group.state_name

    def strangers(self, member_ids: Collection[str]) -> list[str]:
        """Return the group's members other than these."""
        group = self.group
        return [] if group is None else [each for each in group.members if each not in member_ids]

    def assigned(self, member_id: str) -> set[TopicPartition] | None:
        """Return what a member by KIP-848 may have; None by the classic protocol, where members decide."""
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return None
        member = group.members[member_id]
        return None if member.classic is not None else self._owned(member)

    def is_given_away(self, member_id: str, partition: TopicPartition) -> bool:
        """True if the coordinator may give others what a classic member has not given up.

        When a group becomes a classic one, and one of KIP-848 again, its target counts as what its members
        own (ClassicGroup.fromConsumerGroup).
        """
        group = self.group
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            return False
        member = group.members[member_id]
        return member.classic is not None and partition not in self._owned(member)

    def _owned(self, member: ConsumerMember) -> set[TopicPartition]:
        return {
            TopicPartition(self.name_of(topic_id), index)
            for topic_id, index in (*member.assigned, *member.revoking)
        }

    # Writers

    def change_state(self, function: Callable[[BrokerState], _Result]) -> _Result:
        """Return what a change of the brokers' state returns."""
        results: list[_Result] = []
        self.change(lambda: results.append(function(self.state)))
        return results[0]

    def append(
        self, partition: ClusterPartition, produced: ProducedBatch, *, is_transactional: bool
    ) -> Appended:
        """Append a batch; its partition is in its producer's transaction, if it is of one."""
        place = (partition.topic.name, partition.index)
        if not self.is_led(partition):
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        def append(state: BrokerState) -> Appended:
            appended = partition.log.append_produced(
                produced,
                now_ms=state.now_ms,
                leader_epoch=partition.leader_epoch,
                verified=is_transactional,
                supports_epoch_bump=True,
            )
            state.partition_changed(*place)
            return appended

        return self.change_state(append)

    def is_led(self, partition: ClusterPartition) -> bool:
        """True if the leader of a replicated partition knows that it leads, and does."""
        if self.history is None:
            return True
        leader = partition.copies.get(partition.leader)
        if leader is None or leader.leadership is None or leader.leader_epoch != partition.leader_epoch:
            return False
        return not self.is_paused(leader.node_id)

    def term_began(self, leader: Replica, is_complete: bool) -> None:
        """Tell the ledger what the leader has: what an earlier one lacked may be there again."""
        assert leader.leadership is not None
        topic = self.state.cluster.topics[leader.topic.name]
        if topic.is_internal:
            self._forget(topic.partitions[leader.index])
            return
        place = self.log_of(topic.topic_id, leader.index)
        end_offset = leader.leadership.start_offset
        numbers = [
            (record.offset, int.from_bytes(bytes(record.value or b"")[:4], "big"))
            for batch in leader.log.batches(leader.log.log_start_offset)
            if not batch.is_control
            for record in batch
            if record.offset < end_offset
        ]
        # its first batch may begin before what was trimmed
        start = min(leader.log.log_start_offset, *(offset for offset, _ in numbers[:1]), end_offset)
        self.ledger.cut(place, start, numbers, is_clean=is_complete)

    def _forget(self, partition: ClusterPartition) -> None:
        """Tell the ledger of what a coordinator does not know any more, if its log has lost anything."""
        assert self.history is not None
        if not self.history.is_torn(partition):
            return
        self.world.trace("!! the coordinators of %s have forgotten", partition.topic.name)
        if partition.topic.name == OFFSETS_TOPIC:
            self._noted = 0
            self.ledger.forget_commits()
        else:
            self.ledger.doubt_transactions()

    @property
    def has_torn_logs(self) -> bool:
        """True if replicas have lost what was committed, and with it the ends of transactions perhaps."""
        history = self.history
        return history is not None and any(map(history.is_torn, self.state.cluster.partitions()))

    def abort_hanging(self) -> None:
        """Abort what no coordinator will end any more, as kafka-transactions.sh does."""
        for partition in self.world.data_partitions():
            for producer in partition.log.describe_producers():
                if producer.current_transaction_first_offset >= 0:
                    identity = producer.producer_id, producer.producer_epoch
                    marker = Marker(*identity, False, max(producer.coordinator_epoch, 0), 0)
                    write = self.coordinators.markers.write
                    self.change(write, marker, partition.topic.name, partition.index)

    def fail_over(self, partition: ClusterPartition, node_id: int, offset: int) -> None:
        """Lose no markers: Kafka's coordinators wait until they are replicated."""
        if any(batch.is_control and batch.last_offset >= offset for batch in partition.log.batches(offset)):
            return
        is_clean = offset >= partition.log.high_watermark
        super().fail_over(partition, node_id, offset)
        place = self.log_of(partition.topic.topic_id, partition.index)
        self.ledger.cut(place, partition.log.log_end_offset, is_clean=is_clean)


def _id_of(batch: RecordBatch) -> BatchId:
    return BatchId(batch.partition_leader_epoch, batch.base_offset)


def _commits_of(batch: RecordBatch) -> Iterator[tuple[tuple[bytes, int], int]]:
    """Return the partitions, and the offsets, that the group's readers have committed with a batch."""
    for record in () if batch.is_control else batch:
        value = None if record.value is None else bytes(record.value)
        key = bytes(record.key or b"")
        decoded = decode_record(messages.OffsetCommitKey, messages.OffsetCommitValue, key, value)
        if decoded is not None and decoded[1] is not None and decoded[0].group == GROUP:
            yield (decoded[1].topic_id, decoded[0].partition), decoded[1].offset
