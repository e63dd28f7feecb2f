"""The log of a coordinator: a partition of an internal topic, as its leader writes it.

Theory of operation. A coordinator acts at once on what it has appended, and answers when that is replicated
(CoordinatorRuntime). Without a follower that lags, it is replicated when `append` returns. Otherwise an
answer waits, until the records are replicated, another leader comes, or the time is up: they may be
replicated later all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError

if TYPE_CHECKING:
    from kbatch._native.codec.record_batch import RecordBatch
    from kbatch.testing.broker.cluster import Cluster, ClusterPartition
    from kbatch.testing.broker.coordinator_records import Record
    from kbatch.testing.broker.purgatory import Purgatory
    from kbatch.testing.broker.replication.replica import Replica
    from kbatch.testing.broker.replication.replication import Replication

COMMIT_TIMEOUT_MS = 5_000  # offsets.commit.timeout.ms, share.coordinator.write.timeout.ms


class LoggedState(Protocol):
    """The part of the broker's state that the logs of coordinators need."""

    cluster: Cluster
    purgatory: Purgatory
    replication: Replication
    now_ms: int

    def partition_changed(self, topic: str, index: int) -> None: ...


class CoordinatorLog:
    """The log of the coordinator that runs on the node of `leader`, for its present term.

    Replicas that share a log share the coordinator, too: it goes on with the next leader.
    """

    def __init__(self, state: LoggedState, partition: ClusterPartition, leader: Replica) -> None:
        self.partition = partition
        self._state = state
        self._replica = leader
        self._term = leader.leadership
        self._end_offset = leader.log.log_end_offset

    @property
    def node_id(self) -> int:
        """Return the node of the coordinator."""
        return self.partition.leader if self.partition.shares_log else self._replica.node_id

    @property
    def is_current(self) -> bool:
        """True until the coordinator's term ends."""
        if self.partition.shares_log:
            return True
        is_there = self.partition.copies.get(self._replica.node_id) is self._replica
        return is_there and self._replica.leadership is self._term

    @property
    def leader(self) -> Replica:
        """Return the replica of the leader.

        Raises BrokerError NOT_COORDINATOR if that is another one now, COORDINATOR_NOT_AVAILABLE if there is
        none.
        """
        if not self.is_current:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        if not self.partition.shares_log:
            return self._replica
        if self.partition.leader not in self.partition.copies:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.partition.copies[self.partition.leader]

    @property
    def end_offset(self) -> int:
        """Return the offset of the next record."""
        return self._replica.log.log_end_offset

    @property
    def replicated_offset(self) -> int:
        """Return the high watermark, as the coordinator's node knows it."""
        return self._replica.log.high_watermark

    def batches(self) -> Iterator[RecordBatch]:
        """Return all batches, replicated or not."""
        return self._replica.log.batches()

    def append(
        self, records: Sequence[Record], producer_id: int = -1, producer_epoch: int = -1
    ) -> Write | None:
        """Append a batch; return what must be waited for, None if it is replicated.

        Raises BrokerError NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE.
        """
        leader, state = self.leader, self._state
        leader.log.append_records(
            records,
            now_ms=state.now_ms,
            leader_epoch=leader.leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        self.note_appended()
        state.partition_changed(self.partition.topic.name, self.partition.index)
        state.replication.run(state.now_ms)
        return self.unreplicated()

    def note_appended(self) -> None:
        """Have answers wait for all that is in the log now."""
        self._end_offset = self._replica.log.log_end_offset

    def append_in_sync(self, records: Sequence[Record]) -> Write | None:
        """Append as with acks=all: raise BrokerError COORDINATOR_NOT_AVAILABLE if too few are in sync."""
        leader = self.leader
        if leader.lacks_in_sync(leader.registration.isr):
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.append(records)

    def delete_before(self, offset: int) -> None:
        """Delete the records before an offset, as far as they are replicated."""
        self._replica.log.delete_records_before(min(offset, self.replicated_offset))

    def unreplicated(self) -> Write | None:
        """Return what has to be replicated before an answer is given now, None if all is."""
        if self.replicated_offset >= self._end_offset:
            return None
        return Write(self, self._end_offset, self._state)


class Write:
    """What a coordinator has appended, up to an offset, while it is not replicated."""

    def __init__(self, log: CoordinatorLog, end_offset: int, state: LoggedState) -> None:
        self._log = log
        self._end_offset = end_offset
        self._state = state
        self._waiting: list[Callable[[ErrorCode, int], None]] = []

    def then(self, decided: Callable[[ErrorCode, int], None], *, timeout_ms: int = COMMIT_TIMEOUT_MS) -> None:
        """Call `decided(code, now_ms)` later: NONE when the records are replicated.

        NOT_COORDINATOR if another leader comes first, COORDINATOR_NOT_AVAILABLE when the time of the first
        call is up.
        """
        self._waiting.append(decided)
        if len(self._waiting) == 1:
            partition = self._log.partition
            self._state.purgatory.watch(
                [(partition.topic.name, partition.index)],
                self._attempt,
                self._state.now_ms + timeout_ms,
                lambda now_ms: self._decide(ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms),
            )

    def _attempt(self, now_ms: int) -> bool:
        if not self._log.is_current:
            self._decide(ErrorCode.NOT_COORDINATOR, now_ms)
        elif self._log.replicated_offset >= self._end_offset:
            self._decide(ErrorCode.NONE, now_ms)
        else:
            return False
        return True

    def _decide(self, code: ErrorCode, now_ms: int) -> None:
        for decided in self._waiting:
            decided(code, now_ms)
