"""Replica: one node's copy of a partition, as leader or as follower.

Theory of operation. A follower asks its leader for what comes after its own log, and says the epoch of its
last record (`read_as_follower`). If the leader's log differs there, it answers where that epoch ends in its
own log, and the follower cuts its own (KIP-595); otherwise the follower appends what it gets. Both do what
AbstractFetcherThread and ReplicaManager do in Kafka; objects go between them instead of bytes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbatch.errors import ErrorCode
from kbatch.records import INT32_MAX
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.partition_change import Registration
from kbatch.testing.broker.replication.leadership import UNKNOWN_OFFSET, Leadership

if TYPE_CHECKING:
    from kbatch.testing.broker.controller.brokers import LogDir
    from kbatch.testing.broker.controller.controller import RegisteredTopic
    from kbatch.testing.broker.logs.partition import Partition

NO_EPOCH = -1
FETCH_BYTES = 1 << 20  # replica.fetch.max.bytes
FETCH_BACKOFF_MS = 1_000  # replica.fetch.backoff.ms
NEVER_MS = float("inf")


class EpochEnd(NamedTuple):
    """Where a leader epoch ends in a log."""

    epoch: int
    end_offset: int


class FollowerFetch(NamedTuple):
    """What a follower asks; `last_epoch` is that of its last record, NO_EPOCH for no comparison.
    `partition_epoch` is the one that it knows; Kafka's Fetch does not say, then it is taken for the newest.
    """

    node_id: int
    leader_epoch: int
    offset: int
    last_epoch: int = NO_EPOCH
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = NO_EPOCH
    partition_epoch: int = INT32_MAX


class FollowerFetched(NamedTuple):
    """What the leader answers: whole batches, or where the logs diverge."""

    batches: list[memoryview]
    high_watermark: int
    log_start_offset: int
    diverging: EpochEnd | None = None


class ReplicatedPartition(Protocol):
    """A partition, as far as its replicas need it."""

    @property
    def topic(self) -> RegisteredTopic: ...
    @property
    def index(self) -> int: ...
    def known_by(self, node_id: int) -> Registration: ...


class LeaderLog(Protocol):
    """The log of a leader, as far as followers need to know."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...


class Leader(Protocol):
    """What answers followers: the replica of another node, or what a test plays for it."""

    @property
    def node_id(self) -> int: ...
    @property
    def log(self) -> LeaderLog: ...
    @property
    def leadership(self) -> Leadership | None: ...
    def read_as_follower(self, asked: FollowerFetch) -> FollowerFetched: ...
    def note_follower(self, asked: FollowerFetch, answer: FollowerFetched, now_ms: int) -> None: ...


class Replica:
    """A node's copy of a partition.

    Attributes
    ----------
    registration : Registration
        What the replica's node knows, which may be old.
    leadership : Leadership or None
        Is there while the node believes that it leads.
    leads_from_ms : int
        When it begins to answer clients as leader.
    fetches_from_ms : float
        When it asks its leader again, after a refusal; NEVER_MS until it hears of another term.
    log_dir : LogDir
        Where the log is.
    future : Replica or None
        What is to take its place, in another log directory of the node.
    min_isr : int
        min.insync.replicas, as far as the node has heard.
    """

    __slots__ = (
        "fetches_from_ms",
        "future",
        "leadership",
        "leads_from_ms",
        "log",
        "log_dir",
        "min_isr",
        "node_id",
        "partition",
        "registration",
    )

    def __init__(
        self, partition: ReplicatedPartition, node_id: int, log: Partition, log_dir: LogDir, min_isr: int
    ) -> None:
        self.partition = partition
        self.node_id = node_id
        self.log = log
        self.log_dir = log_dir
        self.min_isr = min_isr
        log_dir.replica_count += 1
        self.registration = partition.known_by(node_id)
        self.leadership: Leadership | None = None
        self.leads_from_ms = 0
        self.fetches_from_ms = 0.0
        self.future: Replica | None = None

    @property
    def topic(self) -> RegisteredTopic:
        return self.partition.topic

    @property
    def index(self) -> int:
        return self.partition.index

    @property
    def leader(self) -> int:
        return self.registration.leader

    @property
    def leader_epoch(self) -> int:
        return self.registration.leader_epoch

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.registration.replicas

    def take(self, registration: Registration, now_ms: int) -> None:
        """Lead or follow, as the controller says."""
        if registration.leader_epoch != self.leader_epoch:
            self.fetches_from_ms = 0
        self.registration = registration
        if registration.leader != self.node_id:
            self.leadership = None
        elif self.leadership is None or self.leadership.epoch != registration.leader_epoch:
            self.log.start_leader_epoch(registration.leader_epoch)
            self.leadership = Leadership(self.node_id, registration, self.log.log_end_offset, now_ms)
        else:
            self.leadership.take(registration, now_ms)

    def drop_future(self) -> None:
        """Stay in this log directory."""
        if self.future is not None:
            self.future.log.delete()
            self.future.log_dir.replica_count -= 1
            self.future = None

    def become_future(self) -> None:
        """Have the replica that has all by now take the place of this one (maybeReplaceCurrentWithFuture)."""
        future, present = self.future, self.log
        assert future is not None
        future.log.config = present.config
        if present.hold_high_watermark:
            future.log.begin_replication(present.high_watermark)
        else:
            future.log.end_replication()
        if self.leadership is not None:
            future.log.start_leader_epoch(self.leadership.epoch)
        present.delete()
        self.log_dir.replica_count -= 1
        self.log, self.log_dir, self.future = future.log, future.log_dir, None

    def check_leader_epoch(self, epoch: int) -> None:
        """Check the epoch that a client or follower names: it must be the current one (KIP-320)."""
        if epoch == NO_EPOCH:
            return
        current = self.leader_epoch
        if epoch != current:
            raise BrokerError(
                ErrorCode.FENCED_LEADER_EPOCH if epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH
            )

    # As leader

    def lacks_in_sync(self, in_sync: Collection[int]) -> bool:
        """True if fewer of the replicas are in sync than min.insync.replicas demands."""
        return len(in_sync) < min(self.min_isr, len(self.replicas))

    def diverging(self, offset: int, last_epoch: int) -> EpochEnd | None:
        """Return where a log that ends at `offset`, in `last_epoch`, diverges; None if it does not.

        Raises BrokerError OFFSET_OUT_OF_RANGE for an epoch before the first.
        """
        if last_epoch == NO_EPOCH:
            return None
        end = EpochEnd(*self.log.end_of_leader_epoch(last_epoch))
        if end.epoch == NO_EPOCH or offset < self.log.log_start_offset:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return None if end.epoch == last_epoch and offset <= end.end_offset else end

    def read_as_follower(self, asked: FollowerFetch) -> FollowerFetched:
        """Answer a follower; what it has is for `note_follower`.

        One that has yet to hear that it was removed, and added again, is refused: it will lose what it has.
        In Kafka it counts, and may be in sync without it.

        Raises BrokerError with the codes of ReplicaManager.readFromLog.
        """
        self.check_leader_epoch(asked.leader_epoch)
        leadership = self.leadership
        if leadership is None:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower = leadership.followers.get(asked.node_id)
        # not assigned, as far as this leader knows, or not as it was when it last heard
        if follower is None or asked.partition_epoch < follower.since_epoch:
            names_epoch = asked.leader_epoch != NO_EPOCH
            raise BrokerError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if names_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        return self._read(asked)

    def note_follower(self, asked: FollowerFetch, answer: FollowerFetched, now_ms: int) -> None:
        """Note what a follower has, by what it asked and is answered, if the logs do not diverge.

        One that asks for the middle of a batch has what is before the batch: whole batches are replicated
        (LogSegment.read).
        """
        if self.leadership is None or answer.diverging is not None:
            return
        offset = min([asked.offset, *map(_base_offset, answer.batches[:1])])
        follower = self.leadership.followers[asked.node_id]
        follower.note_fetch(offset, self.log.log_end_offset, now_ms)
        follower.log_start_offset = asked.log_start_offset
        follower.broker_epoch = asked.broker_epoch

    def _read(self, asked: FollowerFetch) -> FollowerFetched:
        log = self.log
        diverging = self.diverging(asked.offset, asked.last_epoch)
        if diverging is not None:
            return FollowerFetched([], log.high_watermark, log.log_start_offset, diverging)
        batches = log.read_as_follower(asked.offset, FETCH_BYTES)
        return FollowerFetched(batches, log.high_watermark, log.log_start_offset)

    # As follower

    def follow_beside(self, present: Replica, now_ms: int) -> bool:
        """Fetch once from the replica whose place this one is to take; True if nothing is left to fetch.

        Raises BrokerError KAFKA_STORAGE_ERROR.
        """
        self.registration = present.registration
        try:
            fetched = present._read(self.next_fetch(NO_EPOCH))
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self.restart_at(present.log, now_ms)
            return False
        has_changed = self.append_fetched(fetched, now_ms)
        return not has_changed and self.log.log_end_offset == present.log.log_end_offset

    def next_fetch(self, broker_epoch: int) -> FollowerFetch:
        return FollowerFetch(
            self.node_id,
            self.leader_epoch,
            self.log.log_end_offset,
            self.log.latest_leader_epoch,
            self.log.log_start_offset,
            broker_epoch,
            self.registration.partition_epoch,
        )

    def back_off(self, refusal: ErrorCode, now_ms: int) -> None:
        """Ask again after replica.fetch.backoff.ms; a term that is over is not asked about again.

        After AbstractFetcherThread.processFetchRequest.
        """
        is_over = refusal == ErrorCode.FENCED_LEADER_EPOCH
        self.fetches_from_ms = NEVER_MS if is_over else now_ms + FETCH_BACKOFF_MS

    def append_fetched(self, fetched: FollowerFetched, now_ms: int) -> bool:
        """Cut the log where it diverges, or append what was fetched; True if that changed the log.

        Batches of a leader epoch above the known one are left for later.
        """
        log = self.log
        if fetched.diverging is not None:
            log.truncate_to(self._cut_at(fetched.diverging), now_ms)
            return True
        end_offset = log.log_end_offset
        for data in fetched.batches:
            if not log.append_as_follower(data, now_ms, last_epoch=self.leader_epoch):
                break
        log.raise_high_watermark(min(fetched.high_watermark, log.log_end_offset))
        has_new_start = log.follow_start(fetched.log_start_offset)
        return has_new_start or log.log_end_offset > end_offset

    def restart_at(self, leader: LeaderLog, now_ms: int) -> None:
        """Go on where the leader has something, after it refused the offset (fetchOffsetAndTruncate)."""
        if leader.log_end_offset < self.log.log_end_offset:
            self.log.truncate_to(leader.log_end_offset, now_ms)
        elif leader.log_start_offset > self.log.log_end_offset:
            self.log.begin_anew(leader.log_start_offset, now_ms)

    def _cut_at(self, told: EpochEnd) -> int:
        """AbstractFetcherThread.getOffsetTruncationState"""
        end_offset = self.log.log_end_offset
        own = EpochEnd(*self.log.end_of_leader_epoch(told.epoch))
        if own.epoch == NO_EPOCH:
            return min(told.end_offset, end_offset)
        if own.epoch != told.epoch:
            return min(own.end_offset, end_offset)
        return min(own.end_offset, told.end_offset, end_offset)


def _base_offset(batch: memoryview) -> int:
    return int.from_bytes(batch[:8], "big", signed=True)
