"""History: what the replicas of a world have done, and the checks of it, after each event.

Theory of operation. Each replica's log tells its partition's history of what it appends and cuts, and where a
term of a leader begins. After an event `look` checks the partitions that have changed. Names in messages are
those of the checks of the TLA+ specification of KIP-966 (kafka_replication_kip_966.tla), after their numbers
in docs/simulation.md. The true high watermark of a partition is the highest that any replica had; what is
below it is committed, and stays, unless an election was unclean or disks were lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch._native.codec.record_batch import RecordBatch, decode
from kbatch.testing.broker.broker_state import BrokerState
from kbatch.testing.broker.controller.brokers import BrokerControlState
from kbatch.testing.broker.controller.partition_change import NO_LEADER, Registration
from kbatch.testing.broker.logs.partition import Appended, Partition
from kbatch.testing.broker.logs.producer_state import ProducerStateTable
from kbatch.testing.broker.replication.replica import NEVER_MS
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from pathlib import Path

    from kbatch.testing.broker.cluster import Cluster, ClusterPartition
    from kbatch.testing.broker.controller.brokers import LogDir
    from kbatch.testing.broker.logs.topic_config import TopicConfig
    from kbatch.testing.broker.logs.validation import ProducedBatch
    from kbatch.testing.broker.replication.replica import FollowerFetch, Leader, Replica


# More than messages and delays take together.
LONGEST_FETCH_MS = 1000
TermBegan = Callable[["Replica", bool], None]


class BatchId(NamedTuple):
    """A batch of a partition: no two leaders have a term in common, so it is the same on all replicas."""

    leader_epoch: int
    base_offset: int


class LostBatch(NamedTuple):
    """A batch that was in a log, and is not in the last one; with acks=all no unreplicated one was ever
    acknowledged.
    """

    topic_partition: tuple[str, int]
    batch: RecordBatch
    was_replicated: bool


class WatchedPartition(Partition):
    """A replica's log, which tells its history what changes."""

    def __init__(self, history: PartitionHistory, topic: str, index: int, **keys: Any) -> None:
        self._history = history
        self.checked_offset = 0  # below it, the batches are as they were committed
        super().__init__(topic, index, **keys)

    def append_produced(self, produced: ProducedBatch, **keys: Any) -> Appended:
        appended = super().append_produced(produced, **keys)
        if not appended.duplicate:
            self._history.led(self, keys["leader_epoch"])
        return appended

    def append_marker(self, *given: Any, **keys: Any) -> int:
        offset = super().append_marker(*given, **keys)
        self._history.led(self, keys["leader_epoch"])
        return offset

    def append_records(self, *given: Any, **keys: Any) -> int:
        offset = super().append_records(*given, **keys)
        self._history.led(self, keys["leader_epoch"])
        return offset

    def _append(self, data: bytes | bytearray, now_ms: int) -> None:
        end_offset = self.log_end_offset
        super()._append(data, now_ms)
        self._history.appended(data, end_offset)

    def raise_high_watermark(self, offset: int) -> bool:
        has_moved = super().raise_high_watermark(offset)
        self._history.is_changed |= has_moved
        return has_moved

    def start_leader_epoch(self, leader_epoch: int) -> None:
        super().start_leader_epoch(leader_epoch)
        self._history.is_changed = True

    def truncate_to(self, offset: int, now_ms: int) -> None:
        self._history.check_cut(self, offset)
        self._cut(offset, now_ms)

    def _cut(self, offset: int, now_ms: int) -> None:
        self._history.cut(self, offset)
        super().truncate_to(offset, now_ms)
        self.checked_offset = min(self.checked_offset, self.log_end_offset)

    def begin_anew(self, offset: int, now_ms: int) -> None:
        self._history.cut(self, 0)
        super().begin_anew(offset, now_ms)
        self.checked_offset = offset

    def lose_unflushed(self, now_ms: int) -> None:
        self._history.lost_disks += 1
        self._cut(self._log.segment_base_offsets[-1], now_ms)

    def delete(self) -> None:
        self._history.cut(self, 0)
        super().delete()

    def close(self) -> None:
        self._history.cut(self, 0)
        super().close()


class PartitionHistory:
    """The past of a partition.

    Attributes
    ----------
    is_changed : bool
        A replica has changed since the last look.
    is_torn : bool
        An unclean election, or the loss of disks, has replaced what was committed.
    lost_disks : int
    high_watermark : int
        The true one.
    """

    def __init__(self, topic: str, index: int, partition: Callable[[], ClusterPartition | None]) -> None:
        self.place = (topic, index)
        self._partition = partition
        self.is_changed = self.is_torn = False
        self.is_cut = False
        self.lost_disks = 0
        self.high_watermark = 0
        self._term = -1  # the newest that a leader knows of
        self.gone: dict[BatchId, bytes] = {}  # batches that a replica had, and cut off
        self._batches: dict[BatchId, bytes] = {}
        self._leaders: dict[int, WatchedPartition] = {}  # of each term, as far as it has appended
        self._committed: dict[int, bytes] = {}  # by base offset
        self._replicated: set[BatchId] = set()
        self._registrations: dict[int, Registration] = {}  # by partition epoch
        self._known: dict[int, Registration] = {}  # by each node
        self._leading: dict[int, tuple[int, int]] = {}  # leader epoch and high watermark, by node

    @property
    def name(self) -> str:
        return f"{self.place[0]}-{self.place[1]}"

    # What logs tell

    def led(self, log: WatchedPartition, leader_epoch: int) -> None:
        """Note that a leader has appended."""
        if self._leaders.setdefault(leader_epoch, log) is not log:
            raise Violation(f"S05 SingleLeader: {self.name} has two leaders in leader epoch {leader_epoch}")

    def appended(self, data: bytes | bytearray, end_offset: int) -> None:
        """Note a batch at the end of a log."""
        self.is_changed = True
        batch = next(decode(data, check_crc=False))
        if batch.base_offset != end_offset:
            raise Violation(f"S01 ValidReplicaState: {self.name} has {batch.base_offset} after {end_offset}")
        identity = BatchId(batch.partition_leader_epoch, batch.base_offset)
        if self._batches.setdefault(identity, bytes(data)) != data:
            raise Violation(f"S04 {self.name} has two batches as {identity}")

    def cut(self, log: Partition, offset: int) -> None:
        """Note the batches that are about to be cut off a log."""
        self.is_changed = self.is_cut = True
        for batch in log.batches(offset):
            if batch.last_offset >= offset:
                self.gone[BatchId(batch.partition_leader_epoch, batch.base_offset)] = bytes(batch)

    def check_cut(self, log: Partition, offset: int) -> None:
        """Check that a replica cuts off only what an earlier leader has written, and follows a later one."""
        partition = self._partition()
        if partition is None:
            return  # a follower of a topic that is deleted: nothing tells any more what it is
        copy = next((each for each in partition.copies.values() if each.log is log), None)
        for batch in log.batches(offset):
            if batch.last_offset < offset:
                continue
            if copy is None or copy.leadership or batch.partition_leader_epoch >= copy.leader_epoch:
                raise Violation(
                    f"S19 {self.name}: {batch} of leader epoch {batch.partition_leader_epoch} is cut off by "
                    f"{copy and copy.registration}"
                )

    def lost(self, last: list[RecordBatch]) -> Iterator[LostBatch]:
        """Return what a replica had, and is not in the last log."""
        kept = {BatchId(batch.partition_leader_epoch, batch.base_offset) for batch in last}
        for identity, data in self.gone.items():
            if identity not in kept:
                batch = next(decode(data))
                if not batch.is_control:
                    yield LostBatch(self.place, batch, identity in self._replicated)

    # Checks

    def look(self, partition: ClusterPartition, rules: Rules) -> None:
        """Check what has changed."""
        known = partition.registration
        before = self._registrations.get(max(self._registrations, default=-1))
        if known is not before:
            self._check_registration(before, known, rules)
        elif not self.is_changed:
            return
        self.is_changed = False
        self._check_election(partition, before, known, rules)
        for copy in partition.copies.values():
            self._check_knowledge(copy)
            self._check_offsets(copy.log)
            self._check_term(copy)
            self._note_term(copy, rules)
        self._check_quorum(partition)
        for copy in partition.copies.values():
            self._check_committed(copy)
        if not self.is_torn:
            self._check_completeness(partition, before, rules)
        if self.is_cut or known is not before:
            self.check_logs(partition)
            self.is_cut = False

    def _check_registration(self, before: Registration | None, known: Registration, rules: Rules) -> None:
        if before is not None and (
            known.leader_epoch < before.leader_epoch or known.partition_epoch <= before.partition_epoch
        ):
            raise Violation(f"S06 MonotonicEpoch: {self.name} is {known} after {before}")
        self._registrations[known.partition_epoch] = known
        if known.leader != NO_LEADER and known.leader not in known.isr:
            raise Violation(f"S07 LeaderInIsr: {self.name} is {known}")
        isr, elr = set(known.isr), set(known.elr)
        is_enough = len(isr) >= min(rules.min_isr, len(known.replicas))
        if not isr | elr <= set(known.replicas) or isr & elr or (elr and is_enough):
            raise Violation(f"S08 ValidControllerIsrAndElr: {self.name} is {known}")
        if (fenced := isr & rules.fenced) and (rules.has_elr or len(isr) > 1):
            raise Violation(f"S08 ValidControllerState: {self.name} is {known}, and {fenced} are fenced")

    def _check_knowledge(self, copy: Replica) -> None:
        known = copy.registration
        before = self._known.get(copy.node_id)
        if before is not None and known.partition_epoch < before.partition_epoch:
            raise Violation(f"S06 MonotonicEpoch: node {copy.node_id} knows {known} after {before}")
        self._known[copy.node_id] = known
        if self._registrations.get(known.partition_epoch, known) != known:
            raise Violation(f"S15 MetadataLogMatching: {self.name}, node {copy.node_id} knows {known}")

    def _check_offsets(self, log: Partition) -> None:
        offsets = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
        if list(offsets) != sorted(offsets):
            raise Violation(f"S17 {self.name}: start, stable, high watermark and end are {offsets}")

    def _check_term(self, copy: Replica) -> None:
        """Check that a leader's high watermark does not fall in its term."""
        if copy.leadership is None:
            self._leading.pop(copy.node_id, None)
            return
        term = (copy.leadership.epoch, copy.log.high_watermark)
        before = self._leading.get(copy.node_id, term)
        if before[0] == term[0] and before[1] > term[1]:
            raise Violation(f"S13 MonotonicHighWatermark: {self.name} falls from {before} to {term}")
        self._leading[copy.node_id] = term

    def _note_term(self, copy: Replica, rules: Rules) -> None:
        if copy.leadership is not None and copy.leadership.epoch > self._term:
            self._term = copy.leadership.epoch
            is_complete = not self.is_torn or copy.leadership.start_offset >= self.high_watermark
            rules.term_began(copy, is_complete)

    def _check_quorum(self, partition: ClusterPartition) -> None:
        known = partition.registration
        leader = partition.copies.get(known.leader)
        if leader is None or leader.leadership is None or leader.leader_epoch != known.leader_epoch:
            return
        if not leader.leadership.maximal_isr >= set(known.isr):
            raise Violation(
                f"S09 ReplicationQuorumSuperset: {self.name} is {known}, and its leader counts "
                f"{leader.leadership.maximal_isr}"
            )

    def _check_election(
        self, partition: ClusterPartition, before: Registration | None, known: Registration, rules: Rules
    ) -> None:
        """Note that a partition is torn, if that may be."""
        if before is None or known.leader_epoch == before.leader_epoch:
            return
        was_eligible = known.leader in (NO_LEADER, *before.isr, *before.elr, before.last_known_leader)
        self.is_torn |= rules.allows_unclean and not was_eligible
        if self._has_lost_enough(rules) and known.leader != NO_LEADER:
            self.is_torn |= partition.copies[known.leader].log.log_end_offset < self.high_watermark

    def _has_lost_enough(self, rules: Rules) -> bool:
        """True if something committed may be lost with a disk: the controller takes every node that did not
        end cleanly for one that may have lost its own, and so may elect the last leader (KIP-966).
        """
        enough = rules.least_min_isr if rules.has_elr else 1
        return self.lost_disks > 0 and rules.unclean_ends >= enough

    def _check_committed(self, copy: Replica) -> None:
        """Check that what is below the replica's high watermark is what was there before, unless that was
        torn; what is committed after a tear may be lost by the next one.
        """
        log = copy.log
        assert isinstance(log, WatchedPartition)
        high_watermark = log.high_watermark
        if log.checked_offset >= high_watermark:
            return
        for batch in log.batches(max(log.checked_offset, log.log_start_offset)):
            if batch.last_offset >= high_watermark:
                break
            data = bytes(batch)
            if self._committed.setdefault(batch.base_offset, data) != data and not self.is_torn:
                raise Violation(
                    f"S03 LogMatching: {self.name} at {batch.base_offset}, node {copy.node_id} has another "
                    "committed batch than there was"
                )
            self._replicated.add(BatchId(batch.partition_leader_epoch, batch.base_offset))
            log.checked_offset = batch.last_offset + 1
        self.high_watermark = max(self.high_watermark, high_watermark)

    def _check_completeness(
        self, partition: ClusterPartition, before: Registration | None, rules: Rules
    ) -> None:
        """Check that who may lead has what is committed. Where disks are lost, who was in sync may lack
        some until the controller hears of its end, and who joins may not.
        """
        known, end = partition.registration, self.high_watermark
        complete = [node for node, copy in partition.copies.items() if self._is_complete(copy.log)]
        if not complete and self._has_lost_enough(rules):
            self.is_torn = True
            return
        if not complete:
            raise Violation(f"S12 NoCommittedRecordLostGlobally: {self.name} is nowhere complete up to {end}")
        candidates = rules.running & partition.copies.keys() & {*known.isr, *known.elr}
        lacking = candidates - set(complete)
        if known.leader in lacking:
            raise Violation(f"S11 LeaderCompleteness: {self.name} is {known}, and lacks some up to {end}")
        if self.lost_disks:
            lacking -= {*before.isr, *before.elr} if before is not None else set()
        if lacking:
            raise Violation(f"S10 StrongIsr: {self.name} is {known}, and {lacking} lack some up to {end}")

    def _is_complete(self, log: Partition) -> bool:
        """True if a log has all that is committed; what replicas have in common is compared elsewhere."""
        if log.log_end_offset < self.high_watermark:
            return False
        assert isinstance(log, WatchedPartition)
        start = max(log.checked_offset, log.log_start_offset)
        return all(
            self._committed.get(batch.base_offset) == bytes(batch)
            for batch in log.batches(start)
            if batch.last_offset < self.high_watermark
        )

    def check_logs(self, partition: ClusterPartition) -> None:
        """Check the logs as wholes: their epochs, their producers, and what is aborted."""
        for node, copy in partition.copies.items():
            log = copy.log
            rebuilt, epoch, end = ProducerStateTable(), -1, None
            for batch in log.batches(log.log_start_offset):
                if batch.partition_leader_epoch < epoch or end not in (None, batch.base_offset):
                    raise Violation(f"S01 ValidReplicaState: {self.name}, node {node}: {batch} after {end}")
                epoch, end = batch.partition_leader_epoch, batch.last_offset + 1
                rebuilt.replay(batch)
            if end not in (None, log.log_end_offset):
                raise Violation(
                    f"S01 ValidReplicaState: {self.name}, node {node}: the last batch ends at {end}, and the "
                    f"log at {log.log_end_offset}"
                )
            self._check_epochs(node, log)
            if log.log_start_offset == 0 and log.log_end_offset:
                self._check_producers(node, log, rebuilt)

    def _check_epochs(self, node: int, log: Partition) -> None:
        """Check where the log says that leader epochs start: the last one may have no records."""
        expected: dict[int, int] = {}
        for batch in log.batches(log.log_start_offset):
            expected.setdefault(batch.partition_leader_epoch, max(batch.base_offset, log.log_start_offset))
        known = log._log.leader_epochs.entries
        latest = max(expected, default=-1)
        is_empty = known[-1:] == [(log.latest_leader_epoch, log.log_end_offset)]
        if is_empty and log.latest_leader_epoch > latest:
            known.pop()
        if known != list(expected.items()):
            raise Violation(f"S02 {self.name}, node {node}: {log._log.leader_epochs.entries}, not {expected}")

    def _check_producers(self, node: int, log: Partition, rebuilt: ProducerStateTable) -> None:
        expected = {each.producer_id: each for each in rebuilt.describe()}
        for each in log.describe_producers():
            known = expected.get(each.producer_id)
            numbers = (each.producer_epoch, each.last_sequence, each.current_transaction_first_offset)
            if known is None or numbers != (
                known.producer_epoch,
                known.last_sequence,
                known.current_transaction_first_offset,
            ):
                raise Violation(f"S16 {self.name}, node {node} knows {each}, and its log says {known}")
        fetched = log.fetch(0, max_bytes=2**31 - 1, committed=True)
        aborted = rebuilt.aborted_transactions(0, log.last_stable_offset)
        found = {(each.producer_id, each.first_offset) for each in aborted}
        if set(fetched.aborted_transactions) != found:
            raise Violation(
                f"S17 {self.name}, node {node}: {fetched.aborted_transactions} aborted, not {found}"
            )

    # At the end

    def check_acknowledged(self, partition: ClusterPartition, offset: int) -> None:
        """Check that what is acknowledged with acks=all is committed."""
        committed = max(self.high_watermark, *(copy.log.high_watermark for copy in partition.copies.values()))
        if not self.is_torn and offset >= committed:
            raise Violation(f"S18 {self.name}: {offset} is acknowledged, and {committed} is committed")

    def check_converged(self, partition: ClusterPartition) -> None:
        """Check that all is well again after the faults."""
        known = partition.registration
        ends = {
            node: (copy.log.high_watermark, copy.log.log_end_offset, copy.registration == known)
            for node, copy in partition.copies.items()
        }
        if known.is_reassigned or set(known.isr) != set(known.replicas) or not partition.is_in_sync:
            raise Violation(f"S23 {self.name} does not come to rest: {known}, high watermarks, ends {ends}")


class Rules(NamedTuple):
    """What holds for a partition.

    Attributes
    ----------
    min_isr, least_min_isr : int
        min.insync.replicas now, and the least that there was.
    has_elr : bool
    fenced, running : set of int
        Nodes that are fenced; that run.
    allows_unclean : bool
        Elections may be unclean.
    unclean_ends : int
        How many times nodes have ended without saying so.
    term_began : callable
        (replica, True if all that was committed is there): a leader has begun its term.
    """

    min_isr: int
    least_min_isr: int
    has_elr: bool
    fenced: set[int]
    running: set[int]
    allows_unclean: bool
    unclean_ends: int
    term_began: TermBegan


class _UnderWay(NamedTuple):
    """A Fetch of a follower, and since when it is under way."""

    copy: Replica
    asked: FollowerFetch
    since_ms: int


class ReplicatedState(BrokerState):
    """The state of brokers whose replicas are watched."""

    def __post_init__(self) -> None:
        self.histories: dict[tuple[bytes, int], PartitionHistory] = {}
        super().__post_init__()

    def _open_partition(
        self, topic: str, index: int, config: TopicConfig, directory: Path | None
    ) -> Partition:
        return WatchedPartition(
            self.history(self.cluster.topics[topic].topic_id, topic, index),
            topic,
            index,
            config=config,
            now_ms=self.now_ms,
            snapshot_batches=self.options.producer_snapshot_batches,
            strict=self.options.strict_batches,
        )

    def history(self, topic_id: bytes, topic: str, index: int) -> PartitionHistory:
        if (topic_id, index) not in self.histories:

            def partition() -> ClusterPartition | None:
                found = self.cluster.topics_by_id.get(topic_id)
                return None if found is None else found.partitions[index]

            self.histories[topic_id, index] = PartitionHistory(topic, index, partition)
        return self.histories[topic_id, index]


class History:
    """The histories of all partitions of a world.

    Attributes
    ----------
    unclean_ends : int
        How many times nodes have ended without saying so, and disks have failed.
    """

    def __init__(self, state: ReplicatedState, term_began: TermBegan, *, allows_unclean: bool) -> None:
        self._state = state
        self._term_began = term_began
        self._allows_unclean = allows_unclean
        self.unclean_ends = 0
        self._least_min_isr: dict[str, int] = {}
        self._under_way: dict[int, _UnderWay] = {}  # by the id of what was asked

    @property
    def _cluster(self) -> Cluster:
        return self._state.cluster

    def of(self, partition: ClusterPartition) -> PartitionHistory:
        return self._state.histories[partition.topic.topic_id, partition.index]

    def disk_fails(self, log_dir: LogDir) -> None:
        """Note that what is on a disk will be lost."""
        self.unclean_ends += 1
        for partition in self._cluster.partitions():
            for copy in partition.copies.values():
                if copy.log_dir is log_dir and not partition.shares_log:
                    self.of(partition).lost_disks += 1

    def look(self) -> None:
        """Check what an event has changed."""
        nodes = self._cluster.nodes
        fenced = {node.node_id for node in nodes if node.state is BrokerControlState.FENCED}
        running = {node.node_id for node in nodes if node.is_running}
        for topic in self._cluster.topics.values():
            if topic.partitions[0].shares_log:
                continue
            min_isr = self._cluster.controller.min_isr(topic)
            least = min(min_isr, self._least_min_isr.get(topic.name, min_isr))
            self._least_min_isr[topic.name] = least
            has_elr = self._state.options.eligible_leader_replicas
            rules = Rules(
                min_isr,
                least,
                has_elr,
                fenced,
                running,
                self._allows_unclean,
                self.unclean_ends,
                self._term_began,
            )
            for partition in topic.partitions:
                self.of(partition).look(partition, rules)
        self._check_fetches()

    def _check_fetches(self) -> None:
        """Check that followers which lack something, and reach its leader, are about to get it: now, or when
        they ask again after a refusal.
        """
        replication, now_ms = self._state.replication, self._state.now_ms
        # a Fetch is known by its object: a follower may send the next one in the same event
        self._under_way = {
            id(asked): self._under_way.get(id(asked), _UnderWay(copy, asked, now_ms))
            for copy, asked in replication._under_way.items()
        }
        for copy, asked, since_ms in self._under_way.values():
            if now_ms - since_ms > LONGEST_FETCH_MS:
                raise Violation(f"S22 {asked} of {_described(copy)} is under way for {now_ms - since_ms} ms")
        for partition in self._cluster.partitions():
            for copy, leader in replication._followers(partition) if partition.is_replicated else ():
                is_late = copy not in replication._under_way and not now_ms < copy.fetches_from_ms < NEVER_MS
                if is_late and _lacks_something(copy, leader):
                    raise Violation(f"S22 ValidFetcherState: {_described(copy)} does not follow its leader")

    def check_acknowledged(self, topic: str, index: int, offset: int) -> None:
        if self._cluster.has_partition(topic, index):
            partition = self._cluster.partition(topic, index)
            self.of(partition).check_acknowledged(partition, offset)

    def check_converged(self) -> None:
        for partition in self._cluster.partitions():
            if not partition.shares_log:
                history = self.of(partition)
                history.check_logs(partition)
                history.check_converged(partition)

    def is_torn(self, partition: ClusterPartition) -> bool:
        return self.of(partition).is_torn

    def lost(self, topic_id: bytes, index: int, last: list[RecordBatch]) -> Iterator[LostBatch]:
        return self._state.histories[topic_id, index].lost(last)


def _lacks_something(copy: Replica, leader: Leader) -> bool:
    """True if a fetch would bring records to a follower, or let its leader raise the high watermark."""
    if leader.leadership is None or leader.leadership.epoch != copy.leader_epoch:
        return False
    known, end_offset = leader.leadership.followers.get(copy.node_id), leader.log.log_end_offset
    if known is None or copy.log.log_end_offset != end_offset:
        return known is not None
    return known.end_offset != end_offset and leader.log.high_watermark < end_offset


def _described(copy: Replica) -> str:
    return f"{copy.topic.name}-{copy.index}, node {copy.node_id}"
