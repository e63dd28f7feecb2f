"""Brokers that other programs play: they register, send heartbeats and propose in-sync replicas by requests.

Theory of operation. A node of the cluster that does not run here may be played. The program registers it with
the controller, sends heartbeats, fetches as a follower or is the leader that it is told to be. Its replicas
here stay empty. After org.apache.kafka.controller.ClusterControlManager and BrokerHeartbeatManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.brokers import BrokerControlState

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Cluster
    from kbatch.testing.broker.controller.brokers import Node
    from kbatch.testing.broker.outages import Outages


class Registered(NamedTuple):
    """What a program said when it registered a broker.

    Attributes
    ----------
    incarnation : bytes
        The id of the program's run.
    previous_epoch : int
        The epoch of the start before, if that ended cleanly.
    """

    incarnation: bytes
    previous_epoch: int
    host: str
    port: int
    rack: str | None


class Heartbeat(NamedTuple):
    """What a broker says.

    Attributes
    ----------
    metadata_offset : int
        Up to where it knows what the controller has recorded.
    """

    broker_epoch: int
    metadata_offset: int
    wants_fence: bool
    wants_shutdown: bool


class Told(NamedTuple):
    """What the controller answers to a heartbeat."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class _Played:
    """A broker that a program plays.

    Attributes
    ----------
    registered_offset : int
        The controller's offset behind its registration.
    heard_ms : int
        When it was heard last.
    metadata_offset : int
        Up to where it said that it knows the controller's records.
    ends_at_offset : int
        The controller's offset when its controlled shutdown began.
    """

    __slots__ = ("ends_at_offset", "heard_ms", "incarnation", "metadata_offset", "registered_offset")

    def __init__(self, incarnation: bytes, registered_offset: int, now_ms: int) -> None:
        self.incarnation = incarnation
        self.registered_offset = registered_offset
        self.heard_ms = now_ms
        self.metadata_offset = -1
        self.ends_at_offset = -1


class PlayedBrokers:
    """The played brokers of a cluster; `changed()` is called after a registration or a heartbeat."""

    def __init__(self, cluster: Cluster, outages: Outages, changed: Callable[[], None]) -> None:
        self._cluster = cluster
        self._outages = outages
        self._changed = changed
        self._played: dict[int, _Played] = {}

    def register(self, node_id: int, said: Registered, now_ms: int) -> int:
        """Return the epoch of a broker that starts; it is fenced at first.

        Raises BrokerError DUPLICATE_BROKER_REGISTRATION if its node runs here, or another run of a program
        plays it, and INVALID_REQUEST if the cluster has no such node.
        """
        if not 0 <= node_id < len(self._cluster.nodes):
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        node = self._cluster.node(node_id)
        if node.is_running or self._is_played_by_another(node, said.incarnation, now_ms):
            raise BrokerError(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        node.host, node.ports = said.host, [said.port] * len(node.ports)
        node.rack = said.rack
        self._outages.forget_session(node_id)
        self._cluster.controller.fence(node)
        ended_cleanly = said.previous_epoch == node.broker_epoch
        self._cluster.controller.register_broker(node, ended_cleanly=ended_cleanly)
        self._played[node_id] = _Played(said.incarnation, self._cluster.metadata_offset, now_ms)
        self._changed()
        return node.broker_epoch

    def _is_played_by_another(self, node: Node, incarnation: bytes, now_ms: int) -> bool:
        """True if another run of a program plays the node, and has been heard lately, ending or not."""
        known = self._played.get(node.node_id)
        if known is None:
            return False
        is_heard = now_ms - known.heard_ms < self._cluster.controller.settings.session_timeout_ms
        return is_heard and known.incarnation != incarnation

    def check_epoch(self, node_id: int, broker_epoch: int) -> Node:
        """Return the node of a broker that says its epoch.

        Raises BrokerError BROKER_ID_NOT_REGISTERED and STALE_BROKER_EPOCH.
        """
        if not 0 <= node_id < len(self._cluster.nodes):
            raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        node = self._cluster.node(node_id)
        if broker_epoch != node.broker_epoch:
            raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)
        return node

    def hear(self, node_id: int, said: Heartbeat, now_ms: int) -> Told:
        """Take a heartbeat; raise BrokerError as `check_epoch` does."""
        node = self.check_epoch(node_id, said.broker_epoch)
        known = self._played.get(node_id)
        if known is None or node.is_running:
            raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)
        known.heard_ms, known.metadata_offset = now_ms, said.metadata_offset
        self._outages.forget_session(node_id)
        should_shut_down = self._decide(node, known, said)
        self._outages.end_session_later(node, now_ms)
        self._changed()
        return Told(
            is_caught_up=said.metadata_offset >= known.registered_offset,
            is_fenced=node.state is BrokerControlState.FENCED,
            should_shut_down=should_shut_down,
        )

    def _decide(self, node: Node, known: _Played, said: Heartbeat) -> bool:
        """Move the broker to its next state; True if it is to end (calculateNextBrokerState)."""
        controller = self._cluster.controller
        if node.state is BrokerControlState.FENCED:
            if said.wants_shutdown:
                return True
            if not said.wants_fence and said.metadata_offset >= known.registered_offset:
                controller.unfence(node)
            return False
        if node.state is BrokerControlState.UNFENCED:
            if said.wants_fence and not said.wants_shutdown:
                controller.fence(node)
                return False
            if not said.wants_shutdown:
                return False
            if not said.wants_fence and self._leads(node):
                controller.shut_down(node)
                known.ends_at_offset = self._cluster.metadata_offset
                return False
        elif self._leads(node) or self._least_offset() < known.ends_at_offset:
            return False
        controller.fence(node)
        return True

    def _leads(self, node: Node) -> bool:
        return any(partition.leader == node.node_id for partition in self._cluster.partitions())

    def _least_offset(self) -> int:
        """Return up to where all active brokers know what the controller has recorded."""
        offsets = [
            self._known_offset(node)
            for node in self._cluster.nodes
            if node.state is BrokerControlState.UNFENCED
        ]
        return min(offsets, default=self._cluster.metadata_offset)

    def _known_offset(self, node: Node) -> int:
        if not node.is_running and node.node_id in self._played:
            return self._played[node.node_id].metadata_offset
        return self._cluster.metadata_offset if node.last_heard is None else node.last_heard[0]
