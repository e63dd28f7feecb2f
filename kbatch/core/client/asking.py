"""A question that any node can answer: whether it is out, and when it is worth asking again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.core.client.backoff import NEVER_NS, ExponentialBackoff

if TYPE_CHECKING:
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections

# Where nobody can be asked, not even later, it is looked at again no sooner than this.
SHORTEST_DELAY_NS = 1_000_000


class Asking:
    """A question to the cluster.

    Attributes
    ----------
    is_asked : bool
        It is out.
    attempts : int
        Failures in a row.
    not_before_ns : int
        When it may be asked again.
    retry_ns : int
        When it is worth looking for somebody to ask; NEVER_NS: when something happens.
    """

    __slots__ = ("attempts", "is_asked", "not_before_ns", "retry_ns")

    def __init__(self) -> None:
        self.is_asked = False
        self.attempts = 0
        self.not_before_ns = 0
        self.retry_ns = 0

    def find_node(self, connections: Connections, backoff: ExponentialBackoff, now_ns: int) -> int | None:
        """A node that can be asked now; where there is none a connection is made, or waited for."""
        node_id = connections.least_loaded(now_ns)
        if node_id is None:
            self.retry_ns = now_ns + max(backoff.delay_ns(0), SHORTEST_DELAY_NS)
            return None
        return node_id if self.can_ask(node_id, connections, now_ns) else None

    def can_ask(self, node_id: int, connections: Connections, now_ns: int) -> bool:
        """Whether the node can be asked now; else a connection is made, or waited for."""
        if connections.is_ready(node_id, now_ns):
            self.retry_ns = 0  # what was waited for is there
            return True
        connections.connect(node_id, now_ns)
        delay_ns = connections.delay_ns(node_id, now_ns)
        self.retry_ns = NEVER_NS if delay_ns == NEVER_NS else now_ns + max(delay_ns, SHORTEST_DELAY_NS)
        return False

    def is_out_of_reach(self, node_id: int, cluster: Cluster, connections: Connections, now_ns: int) -> bool:
        """True if the node that cannot be asked is unknown, or without a connection while it is backed off:
        another node may do its work now.
        """
        if node_id not in cluster.snapshot.nodes:
            return True
        is_backed_off = self.retry_ns != NEVER_NS and connections.delay_ns(node_id, now_ns) > 0
        return is_backed_off and not connections.is_connected(node_id)
