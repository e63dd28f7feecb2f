"""The faults of a replicated cluster: nodes that end, sleep and are cut off, followers that lag, leaders that
move, partitions that do. A cluster of which each partition has one log has none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.controller import MIN_ISR
from kbatch.testing.broker.coordinators import TRANSACTIONS_TOPIC
from kbatch.testing.broker.logs.topic_config import TopicConfig
from kbatch.testing.broker.replication.network import CLIENTS, CONTROLLER
from kbatch.testing.broker.transactions.transaction_metadata import TransactionState, from_record
from tests.simulation.world.happenings import Happenings
from tests.simulation.world.schedule import MS

if TYPE_CHECKING:
    from kbatch._native.codec.record import Record
    from kbatch.testing.broker.cluster import ClusterPartition, Topic
    from kbatch.testing.broker.controller.brokers import Node
    from tests.simulation.world.options import ReplicaOptions

BROKERS = "brokers"
# What a node is cut off from.
CUTS = ((CONTROLLER,), (BROKERS,), (CLIENTS,), (BROKERS, CONTROLLER), (BROKERS, CONTROLLER, CLIENTS))
ROLL_MS = 20  # between looks at whether the next node may restart


class ReplicaFaults(Happenings):
    _deposed_at = 0  # coordinators were deposed because of commits below this offset

    @property
    def _replicas(self) -> ReplicaOptions:
        options = self.world.options.replicas
        assert options is not None
        return options

    def _any_node(self) -> Node | None:
        """Return a node that runs and is not paused."""
        nodes = [each for each in self.world.cluster.state.cluster.running_nodes if not each.is_paused]
        return self._random.choice(nodes) if nodes else None

    def _active_nodes(self) -> list[int]:
        """Return the nodes that may lead."""
        cluster = self.world.cluster.state.cluster
        running = [node.node_id for node in cluster.running_nodes]
        return [node_id for node_id in running if cluster.controller.is_active(node_id)]

    def _any_replicated(self) -> ClusterPartition | None:
        partitions = [each for each in self.world.cluster.state.cluster.partitions() if each.is_replicated]
        return self._random.choice(partitions) if partitions else None

    def _change(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Change the brokers' state, unless they refuse."""
        with suppress(BrokerError):
            self.world.cluster.change(function, *arguments)

    def _configure_for_a_while(self, topic: Topic, name: str, value: str, longest_ms: int) -> None:
        """Have a topic another config."""
        cluster = self.world.cluster.state.cluster

        def usual() -> dict[str, str]:
            return {each: known for each, known in topic.config.overrides.items() if each != name}

        cluster.change_config(topic, TopicConfig({**usual(), name: value}))
        self._for_a_while(longest_ms, lambda: cluster.change_config(topic, TopicConfig(usual())))

    # Nodes

    def _kill_replica(self) -> None:
        self._end_node(is_lost=False)

    def _lose_machine(self) -> None:
        self._end_node(is_lost=True)

    def _lose_who_joins(self) -> None:
        """Have the machine of a node die that its leader has proposed as in sync, if there is one in time. It
        starts again before the controller hears of the proposal (KIP-903).
        """
        cluster = self.world.cluster
        last_ms = cluster.now_ms + self._replicas.longest_ms

        def look() -> None:
            if not self.is_active or cluster.now_ms > last_ms:
                return
            node_id = self._who_joins()
            if node_id is None:
                self.world.schedule.after(MS, look)
                return
            self.world.trace("!! node %d dies with its machine, as it is to be in sync", node_id)
            cluster.break_connections(node_id, is_down=True)
            assert cluster.history is not None
            cluster.history.unclean_ends += 1
            cluster.change(partial(cluster.state.kill_node, node_id, lose=True))
            self._start_again(node_id)

        look()

    def _who_joins(self) -> int | None:
        """Return a node that runs, and that a leader is asking the controller to take for in sync."""
        running = {
            node.node_id for node in self.world.cluster.state.cluster.running_nodes if not node.is_paused
        }
        for partition in self.world.cluster.state.cluster.partitions():
            for copy in partition.copies.values() if partition.is_replicated else ():
                leadership = copy.leadership
                if leadership is None or not leadership.is_asking:
                    continue
                joining = running & set(leadership.proposed or ()) - set(partition.registration.isr)
                if joining:
                    return min(joining)
        return None

    def _end_node(self, *, is_lost: bool) -> None:
        node, cluster = self._any_node(), self.world.cluster
        if node is None:
            return
        at_once = self._random.random() < 0.3
        text = "dies with its machine" if is_lost else "is killed"
        self.world.trace("!! node %d %s%s", node.node_id, text, ", and fenced" if at_once else "")
        cluster.break_connections(node.node_id, is_down=True)
        assert cluster.history is not None
        cluster.history.unclean_ends += 1
        kill = partial(cluster.state.kill_node, node.node_id, at_once=at_once, lose=is_lost)
        cluster.change(kill)
        self._for_a_while(self._replicas.longest_ms, lambda: self._start_again(node.node_id))

    def _stop_replica(self) -> None:
        node = self._any_node()
        if node is not None:
            self._stop_cleanly(node.node_id)
            self._for_a_while(self._replicas.longest_ms, lambda: self._start_again(node.node_id))

    def _stop_cleanly(self, node_id: int) -> None:
        self.world.trace("!! node %d ends", node_id)
        self.world.cluster.stop_node(node_id)

    def _start_again(self, node_id: int) -> None:
        if not self.world.cluster.is_up(node_id):
            self.world.trace("!! node %d starts", node_id)
            self.world.cluster.start_node(node_id)

    def _fail_disk(self) -> None:
        """Have a disk fail. What was on it is lost when the node starts again, with another disk."""
        node, cluster = self._any_node(), self.world.cluster
        if node is None:
            return
        number = self._random.randrange(len(node.log_dirs))
        self.world.trace("!! disk %d of node %d fails", number, node.node_id)
        assert cluster.history is not None
        cluster.history.disk_fails(node.log_dirs[number])
        cluster.change(cluster.state.fail_log_dir, node.node_id, number)
        if not node.is_running:
            cluster.break_connections(node.node_id, is_down=True)
        self._for_a_while(self._replicas.longest_ms, lambda: self._replace_disks(node))

    def _replace_disks(self, node: Node) -> None:
        if any(log_dir.has_failed for log_dir in node.log_dirs):
            self._stop_cleanly(node.node_id)
            self._start_again(node.node_id)

    def _fail_over_controller(self) -> None:
        self.world.trace("!! another controller is active")
        self.world.cluster.change(self.world.cluster.state.fail_over_controller)

    def _roll(self) -> None:
        """Restart one node after the other, each when all replicas are in sync."""
        cluster = self.world.cluster
        left = [node.node_id for node in cluster.state.cluster.nodes]

        def go_on() -> None:
            if not self.is_active or not left:
                return
            if all(each.is_in_sync for each in cluster.state.cluster.partitions()):
                node_id = left.pop()
                if cluster.is_up(node_id):
                    self._stop_cleanly(node_id)
                    self._for_a_while(self._replicas.longest_ms, lambda: self._start_again(node_id))
            self.world.schedule.after(ROLL_MS * MS, go_on)

        go_on()

    def _pause_replica(self) -> None:
        node, cluster = self._any_node(), self.world.cluster
        if node is None:
            return
        self.world.trace("!! node %d is paused", node.node_id)
        cluster.change(lambda: cluster.state.outages.pause(node.node_id, cluster.now_ms))

        def resume() -> None:
            if not node.is_paused:
                return  # it has ended since
            self.world.trace("!! node %d goes on", node.node_id)
            cluster.change(cluster.state.outages.resume, node.node_id)
            cluster.go_on(node.node_id)
            self._hear_later(lambda: cluster.state.outages.catch_up(cluster.now_ms))

        self._for_a_while(self._replicas.longest_ms, resume)

    # The network

    def _isolate(self) -> None:
        node, cluster = self._any_node(), self.world.cluster
        if node is None:
            return
        parties = self._random.choice(CUTS)
        self.world.trace("!! node %d is cut off from %s", node.node_id, ", ".join(parties))
        cluster.change(lambda: cluster.state.outages.isolate(node.node_id, parties, cluster.now_ms))
        self._for_a_while(self._replicas.longest_ms, self._mend)

    def _divide(self) -> None:
        cluster = self.world.cluster
        groups: tuple[set[Any], set[Any]] = (set(), {CONTROLLER})
        for node in cluster.state.cluster.nodes:
            self._random.choice(groups).add(node.node_id)
        self.world.trace("!! the network falls apart: %s", groups)
        cluster.change(lambda: cluster.state.outages.divide(groups, cluster.now_ms))
        self._for_a_while(self._replicas.longest_ms, self._mend)

    def _mend(self) -> None:
        """Let clients reach all nodes, and later these each other."""
        cluster = self.world.cluster
        self.world.trace("!! clients reach all nodes")
        cluster.state.outages.mend_clients()
        for node in cluster.state.cluster.nodes:
            cluster.go_on(node.node_id)
        self._hear_later(lambda: cluster.state.outages.heal(cluster.now_ms))

    def _hear_later(self, hear: Callable[[], None]) -> None:
        def now() -> None:
            self.world.trace("!! nodes hear what they missed")
            self.world.cluster.change(hear)
            for node in self.world.cluster.state.cluster.nodes:
                self.world.cluster.go_on(node.node_id)

        self.world.schedule.after(int(self._random.random() * self._replicas.deaf_ms * MS), now)

    # Replicas

    def _delay(self) -> None:
        """Delay the fetches of a node, or of a partition's followers."""
        cluster, found = self.world.cluster, self._any_replicated()
        by_node = self._random.random() < 0.5
        if found is None:
            return
        key = None if by_node else (found.topic.name, found.index)
        node_id = self._random.choice(found.replicas) if by_node else None
        delay_ms = self._random.choice((1, 10, 100))
        about = f"node {node_id}" if key is None else f"{key[0]}-{key[1]}"
        self.world.trace("!! followers fetch %d ms later: %s", delay_ms, about)
        cluster.state.replication.delay(delay_ms, key, node_id)

        def end() -> None:
            cluster.state.replication.delay(0, key, node_id)
            cluster.change(cluster.state.all_changed)

        self._for_a_while(self._replicas.longest_ms, end)

    def _hold_followers(self) -> None:
        found, cluster = self._any_replicated(), self.world.cluster
        if found is None:
            return
        key = found.topic.name, found.index
        self.world.trace("!! followers of %s-%d stop", *key)
        cluster.change(cluster.state.hold_high_watermark, *key, True)

        def let_go() -> None:
            if cluster.has(found):
                self.world.trace("!! followers of %s-%d go on", *key)
                cluster.change(cluster.state.hold_high_watermark, *key, False)

        self._for_a_while(self._replicas.longest_ms, let_go)

    def _lead(self) -> None:
        found = self._any_replicated()
        if found is not None:
            self._lead_by_another(found)

    def _lead_undecided(self) -> None:
        """Have a follower lead that has a commit which its leader has stored and not answered.

        What the old coordinator then refuses was done (K02). Nothing happens if there is no commit in time. A
        commit has that happen once: as Kafka's, a coordinator believes what it has loaded, replicated or not.
        """
        cluster = self.world.cluster
        last_ms = cluster.now_ms + self._replicas.longest_ms

        def look() -> None:
            if not self.is_active or cluster.now_ms > last_ms:
                return
            for partition in cluster.state.cluster.partitions():
                if partition.topic.name == TRANSACTIONS_TOPIC and (ready := self._have_undecided(partition)):
                    self._deposed_at = partition.log.log_end_offset
                    self.world.trace("!! node %d leads %s, with a commit", min(ready), TRANSACTIONS_TOPIC)
                    self._change(cluster.state.move_leader, TRANSACTIONS_TOPIC, partition.index, min(ready))
                    return
            self.world.schedule.after(MS, look)

        look()

    def _have_undecided(self, partition: ClusterPartition) -> set[int]:
        """Return the followers that have a commit which is not replicated, as far as its leader knows."""
        leader = partition.copies.get(partition.leader)
        if leader is None:
            return set()
        log = leader.log
        followers = set(self._active_nodes()) & set(partition.registration.isr) - {leader.node_id}
        decided = [
            record.offset
            for batch in log.batches(log.high_watermark)
            for record in batch
            if _is_decision(record) and record.offset >= max(log.high_watermark, self._deposed_at)
        ]
        return {
            each for each in followers if decided and partition.copies[each].log.log_end_offset > decided[0]
        }

    def _lead_by_another(self, found: ClusterPartition) -> None:
        """Have another node lead that is in sync, if there is one."""
        cluster, in_sync = self.world.cluster, set(found.registration.isr) - {found.leader}
        may_lead = [each for each in self._active_nodes() if found.shares_log or each in in_sync]
        if may_lead:
            node_id = self._random.choice(may_lead)
            self.world.trace("!! node %d leads %s-%d", node_id, found.topic.name, found.index)
            self._change(cluster.state.move_leader, found.topic.name, found.index, node_id)

    def _prefer(self) -> None:
        self._elect(is_unclean=False)

    def _elect_any(self) -> None:
        self._elect(is_unclean=True)

    def _elect(self, *, is_unclean: bool) -> None:
        found, cluster = self._any_replicated(), self.world.cluster
        if found is not None:
            kind = "any" if is_unclean else "the preferred"
            self.world.trace("!! %s replica is to lead %s-%d", kind, found.topic.name, found.index)
            elect = partial(cluster.state.elect_leader, unclean=is_unclean)
            self._change(elect, found.topic.name, found.index)

    def _reassign(self) -> None:
        found, cluster = self._any_replicated(), self.world.cluster
        if found is None:
            return
        key = found.topic.name, found.index
        nodes = range(len(cluster.state.cluster.nodes))
        target = self._random.sample(nodes, min(len(nodes), self._random.choice((2, 3, 3))))
        self.world.trace("!! %s-%d is to have replicas %s", *key, target)
        self._change(cluster.state.reassign, *key, target)
        if self._random.random() < 0.3:
            self.world.schedule.after(
                int(self._random.random() * self._replicas.longest_ms * MS),
                lambda: self._cancel(found),
            )

    def _cancel(self, found: ClusterPartition) -> None:
        if self.world.cluster.has(found):
            self.world.trace("!! %s-%d is to stay where it was", found.topic.name, found.index)
            self._change(self.world.cluster.state.reassign, found.topic.name, found.index, None)

    def _change_min_isr(self) -> None:
        found = self._any_replicated()
        if found is not None:
            needed = self._random.randint(1, 3)
            self.world.trace("!! %s needs %d in-sync replicas", found.topic.name, needed)
            self._configure_for_a_while(found.topic, MIN_ISR, str(needed), self._replicas.longest_ms)


def _is_decision(record: Record) -> bool:
    """True if a record of a coordinator's log says that a transaction is to be committed."""
    found = from_record(bytes(record.key or b""), None if record.value is None else bytes(record.value))
    metadata = None if found is None else found[1]
    return metadata is not None and metadata.state is TransactionState.PREPARE_COMMIT


REPLICA_HAPPENINGS: Mapping[str, Callable[[Any], None]] = {
    "kill": ReplicaFaults._kill_replica,
    "stop": ReplicaFaults._stop_replica,
    "pause": ReplicaFaults._pause_replica,
    "isolate": ReplicaFaults._isolate,
    "divide": ReplicaFaults._divide,
    "delay": ReplicaFaults._delay,
    "hold": ReplicaFaults._hold_followers,
    "lead": ReplicaFaults._lead,
    "prefer": ReplicaFaults._prefer,
    "elect": ReplicaFaults._elect_any,
    "roll": ReplicaFaults._roll,
    "reassign": ReplicaFaults._reassign,
    "lose": ReplicaFaults._lose_machine,
    "lead_undecided": ReplicaFaults._lead_undecided,
    "lose_joining": ReplicaFaults._lose_who_joins,
    "change_min_isr": ReplicaFaults._change_min_isr,
    "fail_over_controller": ReplicaFaults._fail_over_controller,
    "fail_dir": ReplicaFaults._fail_disk,
}
