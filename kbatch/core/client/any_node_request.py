"""A request that any node can answer: whether it is in flight, and when to try again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kbatch.core.client.backoff import NEVER_NS, SHORTEST_DELAY_NS, ExponentialBackoff, Retried
from kbatch.core.client.node_state import SLOW_NS

if TYPE_CHECKING:
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections
    from kbatch.errors import KafkaError
    from kbatch.protocol.structs import Message


class AnyNodeRequest(Retried):
    """A request to the cluster.

    Parameters
    ----------
    purpose : int
        Which of a node's connections it uses. Requests for which any node is searched need purpose 0.

    Attributes
    ----------
    joins : bool
        True if it may be written together with the request before it, as Connections.send has it.
    is_in_flight : bool
        True while it is in flight.
    attempts, not_before_ns : int
        Those of Retried.
    retry_ns : int
        Time of the next look for a node; NEVER_NS: after an event.
    error : KafkaError | None
        The reason why there will be no node for it.
    awaited_node : int, "any" or None
        The node that it waits for; "any" while no node takes a request; None if it waits for neither.
    avoided_nodes : frozenset of int
        The nodes that others should be tried before.
    """

    __slots__ = ("avoided_nodes", "awaited_node", "error", "is_in_flight", "joins", "purpose", "retry_ns")

    def __init__(self, purpose: int = 0, *, joins: bool = False) -> None:
        super().__init__()
        self.purpose = purpose
        self.joins = joins
        self.is_in_flight = False
        self.retry_ns = 0
        self.error: KafkaError | None = None
        self.awaited_node: int | Literal["any"] | None = None
        self.avoided_nodes: frozenset[int] = frozenset()

    def copy(self) -> AnyNodeRequest:
        """Return a request with the same attempts."""
        copy = AnyNodeRequest(self.purpose, joins=self.joins)
        copy.attempts, copy.not_before_ns = self.attempts, self.not_before_ns
        copy.avoided_nodes = self.avoided_nodes
        return copy

    def back_off(self, backoff: ExponentialBackoff, now_ns: int, *, at_once: int = 0) -> None:
        super().back_off(backoff, now_ns, at_once=at_once)
        self.retry_ns = 0

    @property
    def deadline_ns(self) -> int:
        """When to try to send it; NEVER_NS: after an event."""
        return NEVER_NS if self.is_in_flight else max(self.not_before_ns, self.retry_ns)

    def find_node(
        self,
        connections: Connections,
        backoff: ExponentialBackoff,
        now_ns: int,
        kind: type[Message] | None = None,
    ) -> int | None:
        """Return a node that takes a request of this `kind` now; one that lacks it only if all do. Without a
        node, begin a connection or wait for it.
        """
        node_id = connections.least_loaded(now_ns, kind, self.avoided_nodes)
        if node_id is None:
            self.retry_ns = now_ns + max(backoff.delay_ns(0), SHORTEST_DELAY_NS)
            self.awaited_node = "any"
            return None
        if self.can_send(node_id, connections, now_ns):
            return node_id
        self.retry_ns = min(self.retry_ns, now_ns + SLOW_NS)  # there may be a better one then
        return None

    def can_send(self, node_id: int, connections: Connections, now_ns: int) -> bool:
        """True if the node takes a request now. If not, begin a connection or wait for it."""
        ready_ns = connections.ready_at(node_id, now_ns, self.purpose, joins=self.joins)
        is_ready = ready_ns <= now_ns
        self.retry_ns = 0 if is_ready else ready_ns
        self.awaited_node = None if is_ready else node_id
        return is_ready

    def is_out_of_reach(self, node_id: int, cluster: Cluster, connections: Connections, now_ns: int) -> bool:
        """True if the node, which takes no request now, is unknown, or backed off without a connection.
        Another node may do its work then.
        """
        if node_id not in cluster.snapshot.nodes:
            self.awaited_node = None
            return True
        is_backed_off = self.retry_ns != NEVER_NS and connections.delay_ns(node_id, now_ns, self.purpose) > 0
        if is_backed_off and not connections.is_connected(node_id, self.purpose):
            self.awaited_node = None
            return True
        return False
