"""Leadership: what the leader of a partition knows of its followers, for one leader epoch.

After kafka.cluster.Partition and Replica: a follower's fetch says up to where it has the log. The least of
these offsets, among the in-sync replicas and those about to join them, is the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kbatch.testing.broker.controller.partition_change import Registration

UNKNOWN_OFFSET = UNKNOWN_EPOCH = -1
NEVER_MS = -(1 << 62)


@dataclass(slots=True)
class Follower:
    """The state of a follower, by its fetches in this leader epoch.

    Attributes
    ----------
    end_offset : int
        End of its log; UNKNOWN_OFFSET before its first fetch.
    caught_up_ms : int
        The last time at which it had all that the leader had.
    fetched_ms, leader_end_offset : int
        Time of its last fetch, and the end of the leader's log then.
    log_start_offset : int
        Start of its log, as it said with its last fetch.
    broker_epoch : int
        The number of the start of its node that sent its last fetch; UNKNOWN_EPOCH if it did not say.
    since_epoch : int
        The partition epoch in which it became one, if that was in this term.
    """

    caught_up_ms: int
    end_offset: int = UNKNOWN_OFFSET
    fetched_ms: int = NEVER_MS
    leader_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_EPOCH
    since_epoch: int = UNKNOWN_EPOCH

    def note_fetch(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Note a fetch from `offset` on (Replica.updateFetchStateOrThrow)."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = offset
        self.fetched_ms, self.leader_end_offset = now_ms, leader_end_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms: int) -> bool:
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms


class Leadership:
    """A term of a leader: its followers, and the in-sync replicas that are registered or proposed.

    Attributes
    ----------
    registration : Registration
        As the controller last told it.
    proposed : tuple of int or None
        In-sync replicas that the controller was asked for and has not confirmed.
    is_asking : bool
        The request for them is on its way: the controller may still agree.
    start_offset : int
        End of the leader's log when the term began.
    log_start_offset : int
        Where the followers' logs have to start, by DeleteRecords in this term.
    """

    __slots__ = (
        "_node_id",
        "followers",
        "is_asking",
        "log_start_offset",
        "proposed",
        "registration",
        "start_offset",
    )

    def __init__(self, node_id: int, registration: Registration, end_offset: int, now_ms: int) -> None:
        self._node_id = node_id
        self.registration = registration
        self.start_offset = end_offset
        self.log_start_offset = UNKNOWN_OFFSET
        self.proposed: tuple[int, ...] | None = None
        self.is_asking = False
        self.followers: dict[int, Follower] = {}
        self._follow(registration, now_ms, UNKNOWN_EPOCH)

    def take(self, registration: Registration, now_ms: int) -> None:
        """Take over a newer registration of the same leader epoch; it decides what was proposed."""
        if not self.is_asking or registration.partition_epoch > self.registration.partition_epoch:
            self.proposed = None
        self.registration = registration
        self._follow(registration, now_ms, registration.partition_epoch)

    def _follow(self, registration: Registration, now_ms: int, since_epoch: int) -> None:
        self.followers = {
            node_id: self.followers.get(node_id)
            or Follower(now_ms if node_id in registration.isr else NEVER_MS, since_epoch=since_epoch)
            for node_id in registration.replicas
            if node_id != self._node_id
        }

    @property
    def epoch(self) -> int:
        return self.registration.leader_epoch

    @property
    def maximal_isr(self) -> set[int]:
        """Return the in-sync replicas, with those that are proposed (KIP-497)."""
        return {*self.registration.isr, *(self.proposed or ())}

    def high_watermark(
        self,
        end_offset: int,
        now_ms: int,
        *,
        lag_ms: int,
        may_join: Callable[[int], bool],
    ) -> int:
        """Return the high watermark by what the followers have.

        A replica that may join counts as soon as it has caught up, since it may lead before the leader learns
        that it joined (Partition.maybeIncrementLeaderHW).
        """
        maximal_isr = self.maximal_isr
        offsets = [
            follower.end_offset
            for node_id, follower in self.followers.items()
            if node_id in maximal_isr
            or (follower.is_caught_up(end_offset, now_ms, lag_ms) and may_join(node_id))
        ]
        return min(offsets, default=end_offset)

    def may_join(self, node_id: int, high_watermark: int, is_active: Callable[[int], bool]) -> bool:
        """True if a follower has enough to be in sync: the high watermark and the term's start."""
        follower = self.followers.get(node_id)
        if follower is None or node_id in self.registration.isr:
            return False
        return follower.end_offset >= max(high_watermark, self.start_offset) and is_active(node_id)

    def lagging(self, end_offset: int, now_ms: int, lag_ms: int) -> tuple[int, ...]:
        """Return the in-sync followers that have not caught up for replica.lag.time.max.ms."""
        return tuple(
            node_id
            for node_id in self._in_sync_followers()
            if not self.followers[node_id].is_caught_up(end_offset, now_ms, lag_ms)
        )

    def behind(self, end_offset: int) -> bool:
        """True if an in-sync follower lacks records, so that it may have to leave the in-sync replicas."""
        return any(self.followers[each].end_offset < end_offset for each in self._in_sync_followers())

    def note_silence(self, nodes: Iterable[int], end_offset: int, now_ms: int) -> None:
        """Note that these followers fetch no more; up to now, those at the end of the log were caught up."""
        for node_id in nodes:
            follower = self.followers.get(node_id)
            if follower is not None and follower.end_offset == end_offset:
                follower.caught_up_ms = now_ms

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """Return the least start of all logs: the leader's, and those of the followers that run."""
        starts = [each.log_start_offset for node_id, each in self.followers.items() if is_alive(node_id)]
        return min(starts, default=log_start_offset)

    def broker_epochs(self, nodes: Iterable[int]) -> dict[int, int]:
        """Return the starts of the followers' nodes, of those that have said so."""
        known = {each: self.followers[each].broker_epoch for each in nodes if each in self.followers}
        return {each: epoch for each, epoch in known.items() if epoch != UNKNOWN_EPOCH}

    def _in_sync_followers(self) -> list[int]:
        return [each for each in self.registration.isr if each in self.followers]
