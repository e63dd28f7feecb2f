"""Markers: the control batches that end a transaction in each of its partitions.

Theory of operation. A marker goes straight to the log of the partition's leader, if that runs and knows that
it leads. As with acks=all, it is done when it is replicated: if another leader comes first, it is written
again there (TransactionMarkerChannelManager). A marker of __consumer_offsets also decides the offsets that
were committed in the transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.transactions.transaction_coordinator import OFFSETS_TOPIC, RETRY_MS

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Cluster, ClusterPartition
    from kbatch.testing.broker.purgatory import Purgatory
    from kbatch.testing.broker.replication.network import Network
    from kbatch.testing.broker.replication.replica import Replica
    from kbatch.testing.broker.transactions.transaction_metadata import TopicPartition


class MarkedState(Protocol):
    """The part of the broker's state that markers need."""

    directory: Path | None
    cluster: Cluster
    purgatory: Purgatory
    network: Network
    now_ms: int

    def partition_changed(self, topic: str, index: int) -> None: ...


class Marker(NamedTuple):
    """What a marker says."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class _Appended(NamedTuple):
    """Where a marker is that may not be replicated yet."""

    marker: Marker
    partition: ClusterPartition
    leader_epoch: int
    end_offset: int

    def is_in(self, partition: ClusterPartition) -> bool:
        """True if no other leader has come since."""
        return self.partition is partition and self.leader_epoch == partition.leader_epoch

    @property
    def is_replicated(self) -> bool:
        return self.is_in(self.partition) and self.partition.log.high_watermark >= self.end_offset


class Markers:
    """Writes markers.

    Parameters
    ----------
    offsets_decided : callable
        (producer id, is commit, partition): a marker of __consumer_offsets was written.
    replicated : callable
        (now_ms): a marker that had to wait is replicated.
    """

    def __init__(
        self,
        state: MarkedState,
        offsets_decided: Callable[[int, bool, int], None],
        replicated: Callable[[int], None],
    ) -> None:
        self._state = state
        self._offsets_decided = offsets_decided
        self._replicated = replicated
        self._waiting: dict[tuple[int, TopicPartition], _Appended] = {}

    def write_all(
        self, marker: Marker, partitions: list[TopicPartition], node_id: int | None = None
    ) -> list[TopicPartition]:
        """Write a marker to each partition, and return the partitions where it is not done yet.

        `node_id` is the coordinator's, which has to reach the leaders; None reaches all. A marker is done if
        its partition refuses it, or if the partition was deleted (TransactionMarkerRequestCompletionHandler).
        """
        remaining = []
        for each in partitions:
            try:
                if not self._reaches(node_id, each) or not self._is_done(marker, each):
                    remaining.append(each)
            except BrokerError as error:
                if error.code == ErrorCode.LEADER_NOT_AVAILABLE:
                    remaining.append(each)
        return remaining

    def _reaches(self, node_id: int | None, place: TopicPartition) -> bool:
        leader = self._state.cluster.partition(*place).leader
        return node_id in (None, leader) or self._state.network.reaches(node_id, leader)

    def write(self, marker: Marker, topic: str, index: int) -> None:
        """Append a marker to a partition's log; raise BrokerError LEADER_NOT_AVAILABLE, or its refusal."""
        partition = self._state.cluster.partition(topic, index)
        leader = self._leader_of(partition)
        leader.log.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.is_commit,
            marker.coordinator_epoch,
            now_ms=self._state.now_ms,
            leader_epoch=leader.leader_epoch,
            transaction_version=marker.transaction_version,
        )
        self._state.partition_changed(topic, index)
        if topic == OFFSETS_TOPIC:
            self._offsets_decided(marker.producer_id, marker.is_commit, index)

    def _leader_of(self, partition: ClusterPartition) -> Replica:
        """Return the replica that leads, and knows it; replicas that share a log need not."""
        leader = partition.copies.get(partition.leader)
        if leader is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE)
        node = self._state.cluster.node(leader.node_id)
        knows_it = leader.leadership is not None and leader.leader_epoch == partition.leader_epoch
        if not partition.shares_log and (not knows_it or not node.is_running or node.is_paused):
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE)
        return leader

    def _is_done(self, marker: Marker, place: TopicPartition) -> bool:
        """Write a marker, unless it is there, and return whether it is replicated.

        What waits may be of an earlier transaction, and of a coordinator that was deposed since.
        """
        key = (marker.producer_id, place)
        appended = self._waiting.get(key)
        partition = self._state.cluster.partition(*place)
        if appended is None or appended.marker != marker or not appended.is_in(partition):
            self.write(marker, *place)
            if not partition.is_replicated:
                return True
            appended = _Appended(marker, partition, partition.leader_epoch, partition.log.log_end_offset)
        if appended.is_replicated:
            self._waiting.pop(key, None)
            return True
        self._waiting[key] = appended
        self._watch(appended)
        return False

    def _watch(self, appended: _Appended) -> None:
        """Have the transaction completed when the marker is replicated."""

        def attempt(now_ms: int) -> bool:
            if appended.is_replicated:
                self._replicated(now_ms)
            return appended.is_replicated

        key = appended.partition.topic.name, appended.partition.index
        deadline_ms = self._state.now_ms + RETRY_MS  # the coordinator looks then, too
        self._state.purgatory.watch([key], attempt, deadline_ms, lambda now_ms: None)
