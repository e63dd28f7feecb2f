"""Replication: when followers fetch, and when leaders ask the controller for other in-sync replicas.

Theory of operation. After each change of a partition, `run` lets its followers fetch until they have what
they can get, and every leader raise its high watermark. With nothing in the way a record is replicated before
the request that wrote it is answered. What is in the way is played: a node that does not run, is paused or
cut off, followers that are held, a delay. A follower learns a new high watermark with the next records, or
after replica.fetch.wait.max.ms. One that lags leaves the in-sync replicas after replica.lag.time.max.ms: that
is looked at every half of it. An idle partition has no timer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.controller import Proposal
from kbatch.testing.broker.replication.network import CONTROLLER, Network

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Cluster, ClusterPartition
    from kbatch.testing.broker.replication.leadership import Leadership
    from kbatch.testing.broker.replication.replica import Replica
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
        self._late: set[Replica] = set()  # a fetch is under way

    def changed(self, partition: ClusterPartition) -> None:
        """Have `run` look at a partition whose log or registration has changed."""
        if partition.is_replicated:
            self._changed[partition] = None

    def all_changed(self) -> None:
        for partition in self._cluster.partitions():
            self.changed(partition)

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
        for _ in range(MAX_ROUNDS):
            if not self._round(partition, now_ms):
                break
            self._touch((partition.topic.name, partition.index))
        else:
            raise _restless(partition)
        self._watch(partition, now_ms)

    def _round(self, partition: ClusterPartition, now_ms: int) -> bool:
        """Let followers fetch all that they can, then leaders raise their high watermarks; True if anything
        changed.
        """
        has_changed = False
        for copy, leader in self._followers(partition):
            delay_ms = self._delay_of(copy) if self._delays else 0
            if delay_ms and self._wants(copy, leader):
                self._fetch_later(partition, copy, delay_ms, now_ms)
            elif not delay_ms and self._fetch_all(partition, copy, leader, now_ms):
                has_changed = True
        for copy in partition.copies.values():
            if copy.leadership is not None and self._is_alive(copy.node_id):
                has_changed = self._lead(copy, copy.leadership, now_ms) or has_changed
        return has_changed

    def _followers(self, partition: ClusterPartition) -> list[tuple[Replica, Replica]]:
        """Return the followers that reach their leader now, with its replica."""
        return [
            (copy, leader)
            for copy in partition.copies.values()
            if copy.leadership is None and (leader := self._leader_of(partition, copy)) is not None
        ]

    def _wants(self, copy: Replica, leader: Replica) -> bool:
        """True if a fetch has news for the follower, or for the leader."""
        leadership = leader.leadership
        follower = leadership.followers.get(copy.node_id) if leadership is not None else None
        if leadership is None or follower is None:
            return False
        if not copy.log.log_end_offset == leader.log.log_end_offset == follower.end_offset:
            return True
        if follower.log_start_offset < leadership.log_start_offset:
            return True
        rejoins = copy.node_id not in leadership.maximal_isr and self._may_join(copy.node_id)
        return rejoins and self._network.reaches(leader.node_id, CONTROLLER)

    def _fetch_all(self, partition: ClusterPartition, copy: Replica, leader: Replica, now_ms: int) -> bool:
        """Fetch until there is nothing to fetch, or it changes nothing; True if anything changed."""
        for number in range(MAX_ROUNDS):
            is_done = copy.leadership is not None or not self._wants(copy, leader)
            if is_done or not self._fetch(partition, copy, leader, now_ms):
                return number > 0
        raise _restless(partition)

    def _fetch(self, partition: ClusterPartition, copy: Replica, leader: Replica, now_ms: int) -> bool:
        """Fetch once; a refusal is tried again when the partition has changed."""
        assert leader.leadership is not None
        follower = leader.leadership.followers[copy.node_id]
        before = (follower.end_offset, follower.log_start_offset)
        asked = copy.next_fetch()
        try:
            fetched = leader.read_as_follower(asked, now_ms)
        except BrokerError:
            if asked.leader_epoch == leader.leader_epoch:
                copy.restart_at(leader.log, now_ms)
                return copy.log.log_end_offset != asked.offset
            return False
        has_changed = copy.append_fetched(fetched, now_ms)
        joined = self._join(partition, leader, copy.node_id) if fetched.diverging is None else False
        return has_changed or joined or (follower.end_offset, follower.log_start_offset) != before

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

    def follower_fetched(self, partition: ClusterPartition, leader: Replica, node_id: int) -> None:
        """Note that a follower outside this process has fetched: it may be in sync now."""
        self._join(partition, leader, node_id)
        self.changed(partition)

    def _fetch_later(self, partition: ClusterPartition, copy: Replica, delay_ms: int, now_ms: int) -> None:
        if copy in self._late:
            return
        self._late.add(copy)

        def fetch(now_ms: int) -> None:
            self._late.discard(copy)
            leader = self._leader_of(partition, copy)
            if leader is not None:
                self._fetch_all(partition, copy, leader, now_ms)
            self.changed(partition)

        self._timers.call_at(now_ms + delay_ms, fetch)

    def _leader_of(self, partition: ClusterPartition, copy: Replica) -> Replica | None:
        """Return the leader that a follower reaches now, if any."""
        leader = partition.copies.get(copy.leader)
        if leader is None or leader is copy or partition in self._held:
            return None
        if copy.log_dir.has_failed or leader.log_dir.has_failed:
            return None
        node_id, leader_id = copy.node_id, leader.node_id
        is_reached = (
            self._is_alive(node_id)
            and self._is_alive(leader_id)
            and self._network.reaches(node_id, leader_id)
        )
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
        """Raise the high watermark by what the followers have."""
        settings = self._cluster.controller.settings
        offset = leadership.high_watermark(
            copy.log.log_end_offset,
            now_ms,
            min_isr=self._cluster.controller.min_isr(copy.topic),
            lag_ms=settings.replica_lag_ms,
            may_join=self._may_join,
        )
        return offset is not None and copy.log.raise_high_watermark(offset)

    def _join(self, partition: ClusterPartition, leader: Replica, node_id: int) -> bool:
        leadership = leader.leadership
        assert leadership is not None
        if not leadership.may_join(node_id, leader.log.high_watermark, self._may_join):
            return False
        return self._propose(partition, leader, leadership, (*leadership.registration.isr, node_id))

    def _propose(
        self, partition: ClusterPartition, leader: Replica, leadership: Leadership, isr: tuple[int, ...]
    ) -> bool:
        """Ask the controller for other in-sync replicas, one change at a time; True if it agreed."""
        if leadership.proposed is not None:
            return False
        known = leadership.registration
        leadership.proposed = isr
        if leader.node_id in self._cluster.deaf:
            return False  # it stays proposed until the leader hears the controller again
        proposal = Proposal(leader.node_id, known.leader_epoch, known.partition_epoch, isr)
        with suppress(BrokerError):
            self._cluster.controller.alter_partition(partition, proposal)
            return True
        leadership.proposed = None
        return False

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
            for copy, leader in self._followers(partition)
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
                self._propose(partition, copy, leadership, isr)
                self._touch((partition.topic.name, partition.index))

    def _tell_high_watermark(self, partition: ClusterPartition, now_ms: int) -> None:
        for copy, leader in self._followers(partition):
            if leader.leadership is not None:
                copy.log.raise_high_watermark(min(leader.log.high_watermark, copy.log.log_end_offset))
                self._touch((partition.topic.name, partition.index))


def _restless(partition: ClusterPartition) -> RuntimeError:
    return RuntimeError(f"{partition.topic.name}-{partition.index} does not come to rest")
