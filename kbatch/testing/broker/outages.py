"""Outages: nodes that end, are paused or cut off, and what the controller makes of it in time.

A broker's session ends broker.session.timeout.ms after the controller last heard of it. Heartbeats are not
played: the session of a node that runs and reaches the controller never ends, that of another one does so
after the whole time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

from kbatch.testing.broker.controller.brokers import BrokerControlState
from kbatch.testing.broker.replication.network import CLIENTS, CONTROLLER, Network
from kbatch.testing.broker.timers import Timer, Timers

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Cluster
    from kbatch.testing.broker.controller.brokers import Node
    from kbatch.testing.broker.replication.replication import Replication

BROKERS = "brokers"  # all other nodes, as who a node is isolated from


class Outages:
    """`on_heard()` is called when a node hears the controller again."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        replication: Replication,
        timers: Timers,
        on_heard: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._replication = replication
        self._timers = timers
        self._on_heard = on_heard
        self._sessions: dict[int, Timer] = {}  # those that are about to end

    def answers_clients(self, node_id: int) -> bool:
        """True if the node reads what clients send, and its answers reach them."""
        return not self._cluster.nodes[node_id].is_paused and self._network.reaches(node_id, CLIENTS)

    # Nodes

    def stop(self, node_id: int) -> None:
        """End a node cleanly, as with SIGTERM."""
        self._cluster.stop_node(node_id)
        self.forget_session(node_id)

    def kill(self, node_id: int, now_ms: int, *, at_once: bool = True, lose: bool = False) -> None:
        """End a node as with kill -9; it is fenced at once, or when its session is over.

        With `lose` its machine dies too: what its replicas have in their last segments was not flushed.
        """
        node = self._cluster.node(node_id)
        if not node.is_running:
            return
        self._replication.note_silence(now_ms)
        self._cluster.kill_node(node_id)
        if lose:
            self._lose_unflushed(node_id, now_ms)
        if at_once:
            self.forget_session(node_id)
            self._cluster.controller.fence(node)
        else:
            self.end_session_later(node, now_ms)

    def start(self, node_id: int, now_ms: int) -> None:
        """Start a node that ended; it hears the controller if it reaches it."""
        self.forget_session(node_id)
        self._cluster.start_node(node_id)
        self._update(now_ms)

    def pause(self, node_id: int, now_ms: int) -> None:
        """Stop a node's process, as with SIGSTOP: its connections stay, and nothing is answered."""
        node = self._cluster.node(node_id)
        if not node.is_running:
            raise ValueError(f"node {node_id} does not run; start it first")
        self._replication.note_silence(now_ms)
        node.is_paused = True
        self._update(now_ms)

    def resume(self, node_id: int) -> None:
        """Let a paused node go on, and fetch; it hears the controller when `catch_up` is called."""
        self._cluster.node(node_id).is_paused = False
        self._replication.all_changed()

    def catch_up(self, now_ms: int) -> None:
        """Let nodes that reach the controller again hear what they missed."""
        self._update(now_ms)

    def fail_log_dir(self, node_id: int, number: int, now_ms: int) -> None:
        """Have a disk of a node fail: the replicas in it are offline.

        A node without any disk left ends (LogManager.handleLogDirFailure halts).
        """
        self._replication.note_silence(now_ms)
        self._cluster.fail_log_dir(node_id, number)
        if all(each.has_failed for each in self._cluster.nodes[node_id].log_dirs):
            self.kill(node_id, now_ms)

    def _lose_unflushed(self, node_id: int, now_ms: int) -> None:
        for partition in self._cluster.partitions():
            if partition.is_replicated and node_id in partition.copies:
                partition.copies[node_id].log.lose_unflushed(now_ms)

    # The network

    def isolate(self, node_id: int, parties: Iterable[Hashable], now_ms: int) -> None:
        """Cut a node off from these parties; BROKERS are all other nodes."""
        self._cluster.node(node_id)
        others: list[Hashable] = []
        for party in parties:
            if party == BROKERS:
                others += range(len(self._cluster.nodes))
            else:
                self._network.check(party)
                others.append(party)
        self._replication.note_silence(now_ms)
        self._network.cut(node_id, others)
        self._update(now_ms)

    def divide(self, groups: Iterable[Iterable[Hashable]], now_ms: int) -> None:
        """Cut the parties of each group off from those of the others."""
        self._replication.note_silence(now_ms)
        self._network.partition(groups)
        self._update(now_ms)

    def mend_clients(self) -> None:
        """Let clients reach all nodes again, before these hear of each other."""
        self._network.mend(CLIENTS)

    def heal(self, now_ms: int) -> None:
        self._network.heal()
        self._update(now_ms)

    # Sessions

    def _update(self, now_ms: int) -> None:
        """Note which nodes the controller hears now."""
        for node in self._cluster.nodes:
            reaches = not node.is_paused and self._network.reaches(node.node_id, CONTROLLER)
            if not node.is_running:
                continue
            if not reaches:
                self._cluster.deafen(node.node_id)
                self.end_session_later(node, now_ms)
            elif node.node_id in self._cluster.deaf:
                self._hear_again(node)
        self._replication.all_changed()

    def _hear_again(self, node: Node) -> None:
        self.forget_session(node.node_id)
        self._cluster.hear(node.node_id)
        self._cluster.report_failed_disks(node)
        if node.state is BrokerControlState.FENCED:
            self._cluster.controller.unfence(node)
        self._on_heard()

    def end_session_later(self, node: Node, now_ms: int) -> None:
        """Fence a broker that the controller has heard for the last time, unless it is heard again."""
        if node.node_id in self._sessions or node.state is BrokerControlState.FENCED:
            return

        def fence(now_ms: int) -> None:
            del self._sessions[node.node_id]
            self._cluster.controller.fence(node)
            self._replication.all_changed()

        deadline_ms = now_ms + self._cluster.controller.settings.session_timeout_ms
        self._sessions[node.node_id] = self._timers.call_at(deadline_ms, fence)

    def forget_session(self, node_id: int) -> None:
        """Note that the controller hears a broker, or that this does not count any more."""
        timer = self._sessions.pop(node_id, None)
        if timer is not None:
            timer.cancel()
