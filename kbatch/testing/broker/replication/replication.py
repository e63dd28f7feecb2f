"""Replication: when followers fetch, and when leaders ask the controller for other in-sync replicas.

Theory of operation. After each change of a partition, `run` lets its followers fetch until they have what
they can get, and every leader raise its high watermark. With nothing in the way a record is replicated before
the request that wrote it is answered. What is in the way is played: a node that does not run, is paused or
cut off, followers that are held, a delay. A follower learns a new high watermark with the next records, or
after replica.fetch.wait.max.ms. One that is refused asks again after replica.fetch.backoff.ms, or when it
hears of another term. One that lags leaves the in-sync replicas after replica.lag.time.max.ms: that is looked
at every half of it. An idle partition has no timer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.controller import Proposal
from kbatch.testing.broker.replication.courier import Courier
from kbatch.testing.broker.replication.network import CONTROLLER, Network
from kbatch.testing.broker.replication.replica import NEVER_MS, FollowerFetched

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Cluster, ClusterPartition
    from kbatch.testing.broker.replication.leadership import Leadership
    from kbatch.testing.broker.replication.replica import FollowerFetch, Leader, Replica
    from kbatch.testing.broker.timers import Timers

FETCH_WAIT_MS = 500  # replica.fetch.wait.max.ms
MAX_ROUNDS = 10_000  # more than a log has batches: replicas that do not come to rest
Key = tuple[str, int]


class Replication:
    """The fetches of all followers of a cluster; `touch(key)` is called for what requests may wait for."""

    def __init__(
        self, cluster: Cluster, network: Network, timers: Timers, touch: Callable[[Key], None]
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._timers = timers
        self._touch = touch
        self._changed: dict[ClusterPartition, None] = {}
        self._watched: dict[ClusterPartition, set[str]] = {}  # the timers that run
        self._held: set[ClusterPartition] = set()
        self._delays: list[tuple[int, Key | None, int | None]] = []
        self.courier = Courier(network, timers)
        self._under_way: dict[Replica, FollowerFetch] = {}  # by follower
        self._played: dict[Key, Leader] = {}

    def changed(self, partition: ClusterPartition) -> None:
        """Have `run` look at a partition whose log or registration has changed."""
        if partition.is_replicated:
            self._changed[partition] = None

    def all_changed(self) -> None:
        for partition in self._cluster.partitions():
            self.changed(partition)

    @property
    def is_at_rest(self) -> bool:
        """True if nothing has changed that `run` has not looked at."""
        return not self._changed

    # What is in the way

    def hold(self, partition: ClusterPartition, is_held: bool, now_ms: int) -> None:
        """Stop the fetches of all followers of a partition, or let them go on."""
        if is_held:
            self._note_silence(partition, now_ms)
            self._held.add(partition)
        else:
            self._held.discard(partition)
        self.changed(partition)

    def delay(self, delay_ms: int, key: Key | None, node_id: int | None) -> None:
        """Delay the fetches of a partition or of all, by one node or by all; 0 ends that delay."""
        self._delays = [each for each in self._delays if each[1:] != (key, node_id)]
        if delay_ms:
            self._delays.append((delay_ms, key, node_id))

    def is_held(self, partition: ClusterPartition) -> bool:
        return partition in self._held

    def note_silence(self, now_ms: int) -> None:
        """Note who has all before something gets in the way: from now on followers may lag."""
        for partition in self._cluster.partitions():
            if partition.is_replicated:
                self._note_silence(partition, now_ms)

    def _note_silence(self, partition: ClusterPartition, now_ms: int) -> None:
        if partition in self._held:
            return
        for copy in partition.copies.values():
            if copy.leadership is not None:
                fetching = [each for each in copy.leadership.followers if self._fetches(partition, each)]
                copy.leadership.note_silence(fetching, copy.log.log_end_offset, now_ms)

    def _fetches(self, partition: ClusterPartition, node_id: int) -> bool:
        copy = partition.copies.get(node_id)
        return copy is not None and self._leader_of(partition, copy) is not None

    # Fetches

    def run(self, now_ms: int) -> None:
        """Bring the partitions that have changed to rest."""
        while self._changed:
            partition, _ = self._changed.popitem()
            self._replicate(partition, now_ms)

    def _replicate(self, partition: ClusterPartition, now_ms: int) -> None:
        self._touch((partition.topic.name, partition.index))
        for _ in range(MAX_ROUNDS):
            if not self._round(partition, now_ms):
                break
        else:
            raise _restless(partition)
        self._watch(partition, now_ms)

    def _round(self, partition: ClusterPartition, now_ms: int) -> bool:
        """Let followers fetch all that they can, then leaders raise their high watermarks; True if anything
        changed.
        """
        has_changed = False
        for copy, leader in self._fetching(partition, now_ms):
            delay_ms = self._delay_of(copy) if self._delays else 0
            if delay_ms or not self.courier.is_prompt:
                if copy not in self._under_way and self._wants(copy, leader):
                    self._send_fetch(partition, copy, leader, delay_ms, now_ms)
            elif self._fetch_all(partition, copy, leader, now_ms):
                has_changed = True
        for copy in partition.copies.values():
            if copy.leadership is not None and self._is_alive(copy.node_id):
                has_changed = self._lead(copy, copy.leadership, now_ms) or has_changed
        return has_changed

    def _fetching(self, partition: ClusterPartition, now_ms: int) -> list[tuple[Replica, Leader]]:
        """Return the followers that ask their leader now, with its replica: those not refused just before."""
        return [each for each in self._followers(partition) if each[0].fetches_from_ms <= now_ms]

    def _followers(self, partition: ClusterPartition) -> list[tuple[Replica, Leader]]:
        """Return the followers that reach their leader now, with its replica."""
        return [
            (copy, leader)
            for copy in partition.copies.values()
            if copy.leadership is None and (leader := self._leader_of(partition, copy)) is not None
        ]

    def _wants(self, copy: Replica, leader: Leader) -> bool:
        """True if a fetch has news for the follower, or for the leader."""
        leadership = leader.leadership
        follower = leadership.followers.get(copy.node_id) if leadership is not None else None
        if leadership is None or follower is None:
            return True  # that the node does not lead, or not this one, the follower learns by asking
        if not copy.log.log_end_offset == leader.log.log_end_offset == follower.end_offset:
            return True
        if follower.log_start_offset < leadership.log_start_offset:
            return True
        rejoins = copy.node_id not in leadership.maximal_isr and self._may_join(copy.node_id)
        return rejoins and self._network.reaches(leader.node_id, CONTROLLER)

    def _fetch_all(self, partition: ClusterPartition, copy: Replica, leader: Leader, now_ms: int) -> bool:
        """Fetch until there is nothing to fetch, or it changes nothing; True if anything changed."""
        for number in range(MAX_ROUNDS):
            is_done = copy.leadership is not None or not self._wants(copy, leader)
            is_done = is_done or copy.fetches_from_ms > now_ms
            if is_done or not self._fetch(partition, copy, leader, now_ms):
                return number > 0
        raise _restless(partition)

    def _fetch(self, partition: ClusterPartition, copy: Replica, leader: Leader, now_ms: int) -> bool:
        """Fetch once; True if that changed a log, or what the leader knows of the follower."""
        before = _noted(leader, copy.node_id)
        asked = copy.next_fetch(self._broker_epoch(copy))
        answer = self._answer(asked, leader, now_ms)
        has_changed = self._take(partition, copy, asked, answer, leader, now_ms)
        has_joined = self._join(partition, leader, asked.node_id, answer, now_ms)
        return has_changed or has_joined or _noted(leader, copy.node_id) != before

    def _answer(self, asked: FollowerFetch, leader: Leader, now_ms: int) -> FollowerFetched | ErrorCode:
        """Return what a leader answers; it notes what the follower has."""
        try:
            answer = leader.read_as_follower(asked)
        except BrokerError as error:
            return error.code
        leader.note_follower(asked, answer, now_ms)
        return answer

    def _take(
        self,
        partition: ClusterPartition,
        copy: Replica,
        asked: FollowerFetch,
        answer: FollowerFetched | ErrorCode,
        leader: Leader,
        now_ms: int,
    ) -> bool:
        """Have a follower take an answer; True if that changed its log."""
        if isinstance(answer, FollowerFetched):
            return copy.append_fetched(answer, now_ms)
        if answer == ErrorCode.OFFSET_OUT_OF_RANGE:
            copy.restart_at(leader.log, now_ms)
            return copy.log.log_end_offset != asked.offset
        copy.back_off(answer, now_ms)
        if copy.fetches_from_ms < NEVER_MS:
            self._timers.call_at(int(copy.fetches_from_ms), lambda now_ms: self.changed(partition))
        return False

    def _send_fetch(
        self, partition: ClusterPartition, copy: Replica, leader: Leader, delay_ms: int, now_ms: int
    ) -> None:
        """Have a fetch and its answer take their time: one at once for each follower."""
        asked = copy.next_fetch(self._broker_epoch(copy))
        self._under_way[copy] = asked

        def arrive(now_ms: int) -> None:
            is_gone = self._leader_of(partition, copy) is not leader
            if is_gone or asked.broker_epoch < self._broker_epoch(copy):
                end(now_ms)
                return
            answer = self._answer(asked, leader, now_ms)
            self._join(partition, leader, asked.node_id, answer, now_ms)
            self.changed(partition)

            def take(now_ms: int) -> None:
                if self._is_awaited(partition, copy, asked):
                    self._take(partition, copy, asked, answer, leader, now_ms)
                    self._touch((partition.topic.name, partition.index))
                end(now_ms)

            self.courier.post(leader.node_id, copy.node_id, take, end, now_ms)

        def end(now_ms: int) -> None:
            del self._under_way[copy]
            self.changed(partition)

        self.courier.post(copy.node_id, leader.node_id, arrive, end, now_ms, delay_ms=delay_ms)

    def _is_awaited(self, partition: ClusterPartition, copy: Replica, asked: FollowerFetch) -> bool:
        """True if a follower is as it was when it asked; else the answer is dropped."""
        is_there = partition.copies.get(copy.node_id) is copy and self._is_alive(copy.node_id)
        return is_there and copy.leadership is None and copy.next_fetch(self._broker_epoch(copy)) == asked

    def _broker_epoch(self, copy: Replica) -> int:
        return self._cluster.nodes[copy.node_id].broker_epoch

    def fetch_once(self, partition: ClusterPartition, node_id: int, now_ms: int) -> None:
        """Let a follower fetch once, although the followers of its partition are held."""
        was_held = partition in self._held
        self._held.discard(partition)
        copy = partition.copies[node_id]
        leader = self._leader_of(partition, copy) if copy.leadership is None else None
        if leader is not None and leader.leadership is not None:
            self._fetch(partition, copy, leader, now_ms)
        if was_held:
            self._held.add(partition)
        self.changed(partition)

    def follower_fetched(
        self,
        partition: ClusterPartition,
        leader: Leader,
        node_id: int,
        answer: FollowerFetched,
        now_ms: int,
    ) -> None:
        """Note that a follower outside this process has fetched: it may be in sync now."""
        self._join(partition, leader, node_id, answer, now_ms)
        self.changed(partition)

    def play_leader(self, key: Key, leader: Leader) -> None:
        """Have the followers of a partition ask a leader that is played, whenever its node leads."""
        self._played[key] = leader

    def _leader_of(self, partition: ClusterPartition, copy: Replica) -> Leader | None:
        """Return the leader that a follower reaches now, if any."""
        if partition in self._held or copy.log_dir.has_failed or not self._is_alive(copy.node_id):
            return None
        if self._played:
            played = self._played.get((partition.topic.name, partition.index))
            if played is not None and played.node_id == copy.leader:
                return played
        leader = partition.copies.get(copy.leader)
        if leader is None or leader is copy or leader.log_dir.has_failed:
            return None
        is_reached = self._is_alive(leader.node_id) and self._network.reaches(copy.node_id, leader.node_id)
        return leader if is_reached else None

    def _delay_of(self, copy: Replica) -> int:
        key = copy.topic.name, copy.index
        return max(
            (
                delay_ms
                for delay_ms, about, node_id in self._delays
                if about in (None, key) and node_id in (None, copy.node_id)
            ),
            default=0,
        )

    def _is_alive(self, node_id: int) -> bool:
        node = self._cluster.nodes[node_id]
        return node.is_running and not node.is_paused

    def _may_join(self, node_id: int) -> bool:
        return self._cluster.controller.is_active(node_id)

    # Leaders

    def _lead(self, copy: Replica, leadership: Leadership, now_ms: int) -> bool:
        """Raise the high watermark by what the followers have, unless there are too few in sync."""
        if copy.lacks_in_sync(leadership.registration.isr):
            return False
        settings = self._cluster.controller.settings
        offset = leadership.high_watermark(
            copy.log.log_end_offset,
            now_ms,
            lag_ms=settings.replica_lag_ms,
            may_join=self._may_join,
        )
        return copy.log.raise_high_watermark(offset)

    def _join(
        self,
        partition: ClusterPartition,
        leader: Leader,
        node_id: int,
        answer: FollowerFetched | ErrorCode,
        now_ms: int,
    ) -> bool:
        """Propose a follower that has fetched as in sync, if it has enough; True if it is."""
        leadership = leader.leadership
        if isinstance(answer, ErrorCode) or answer.diverging is not None or leadership is None:
            return False
        if not leadership.may_join(node_id, leader.log.high_watermark, self._may_join):
            return False
        isr = (*leadership.registration.isr, node_id)
        return self._propose(partition, leader, leadership, isr, now_ms)

    def _propose(
        self,
        partition: ClusterPartition,
        leader: Leader,
        leadership: Leadership,
        isr: tuple[int, ...],
        now_ms: int,
    ) -> bool:
        """Ask the controller for other in-sync replicas, one change at a time; True if it has agreed."""
        if leadership.proposed is not None:
            return False
        known = leadership.registration
        leadership.proposed = isr
        if leader.node_id in self._cluster.deaf:
            return False  # it stays proposed until the leader hears the controller again
        proposal = Proposal(
            leader.node_id, known.leader_epoch, known.partition_epoch, isr, leadership.broker_epochs(isr)
        )
        if self.courier.is_prompt:
            return self._decide(partition, leadership, proposal)

        leadership.is_asking = True

        def decide(now_ms: int) -> None:
            leadership.is_asking = False
            self._decide(partition, leadership, proposal)
            self.changed(partition)

        def lost(now_ms: int) -> None:
            leadership.is_asking = False
            self._give_up(leadership, isr)
            self.changed(partition)

        self.courier.post(leader.node_id, CONTROLLER, decide, lost, now_ms)
        return False

    def _decide(self, partition: ClusterPartition, leadership: Leadership, proposal: Proposal) -> bool:
        """Have the controller decide; after a refusal the leader goes on with what it knows."""
        with suppress(BrokerError):
            self._cluster.controller.alter_partition(partition, proposal)
            return True
        self._give_up(leadership, proposal.isr)
        return False

    def _give_up(self, leadership: Leadership, isr: tuple[int, ...]) -> None:
        if leadership.proposed is isr:
            leadership.proposed = None

    def announce(self, partition: ClusterPartition, hear: Callable[[int, int], bool], now_ms: int) -> None:
        """Have each node hear of a decision in its own time."""
        for node in self._cluster.nodes:
            self.courier.post(
                CONTROLLER,
                node.node_id,
                partial(self._hear, partition, hear, node.node_id),
                lambda now_ms: None,
                now_ms,
            )

    def _hear(
        self, partition: ClusterPartition, hear: Callable[[int, int], bool], node_id: int, now_ms: int
    ) -> None:
        if hear(node_id, now_ms):
            self.changed(partition)
            self._touch((partition.topic.name, partition.index))

    # What takes time

    def _watch(self, partition: ClusterPartition, now_ms: int) -> None:
        settings = self._cluster.controller.settings
        for copy in partition.copies.values():
            if copy.leadership is None or not self._is_alive(copy.node_id):
                continue
            if copy.leadership.behind(copy.log.log_end_offset):
                self._in(settings.replica_lag_ms // 2, partition, "lag", self._drop_lagging, now_ms)
        if "high watermark" not in self._watched.get(partition, ()) and any(
            copy.log.high_watermark < leader.log.high_watermark
            for copy, leader in self._fetching(partition, now_ms)
            if leader.leadership is not None
        ):
            self._in(FETCH_WAIT_MS, partition, "high watermark", self._tell_high_watermark, now_ms)

    def _in(
        self,
        delay_ms: int,
        partition: ClusterPartition,
        what: str,
        action: Callable[[ClusterPartition, int], None],
        now_ms: int,
    ) -> None:
        """Have `action(partition, now_ms)` done later, once at a time, and look at the partition after it."""
        running = self._watched.setdefault(partition, set())
        if what in running:
            return
        running.add(what)

        def act(now_ms: int) -> None:
            running.discard(what)
            action(partition, now_ms)
            self.changed(partition)

        self._timers.call_at(now_ms + delay_ms, act)

    def _drop_lagging(self, partition: ClusterPartition, now_ms: int) -> None:
        lag_ms = self._cluster.controller.settings.replica_lag_ms
        for copy in list(partition.copies.values()):
            leadership = copy.leadership
            if leadership is None or not self._is_alive(copy.node_id):
                continue
            lagging = leadership.lagging(copy.log.log_end_offset, now_ms, lag_ms)
            if lagging:
                isr = tuple(each for each in leadership.registration.isr if each not in lagging)
                self._propose(partition, copy, leadership, isr, now_ms)
                self._touch((partition.topic.name, partition.index))

    def _tell_high_watermark(self, partition: ClusterPartition, now_ms: int) -> None:
        """Let followers fetch that have no news but the high watermark; one that diverges is cut first."""
        for copy, leader in self._fetching(partition, now_ms):
            if leader.leadership is None or copy.node_id not in leader.leadership.followers:
                continue
            delay_ms = self._delay_of(copy)
            if not delay_ms and self.courier.is_prompt:
                self._fetch(partition, copy, leader, now_ms)
                self._touch((partition.topic.name, partition.index))
            elif copy not in self._under_way:
                self._send_fetch(partition, copy, leader, delay_ms, now_ms)


def _noted(leader: Leader, node_id: int) -> tuple[int, int] | None:
    """Return what a leader knows of a follower's log; None if it does not lead it."""
    follower = leader.leadership.followers.get(node_id) if leader.leadership is not None else None
    return None if follower is None else (follower.end_offset, follower.log_start_offset)


def _restless(partition: ClusterPartition) -> RuntimeError:
    return RuntimeError(f"{partition.topic.name}-{partition.index} does not come to rest")
