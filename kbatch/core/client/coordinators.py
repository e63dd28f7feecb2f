"""Coordinators: which node coordinates a group or a transactional.id.

Theory of operation. Any node can name a coordinator (FindCoordinator). Each result is kept here for all users
until the coordinator refuses a request (`forget`) or is out of reach (`ready_node`); then a new search is
due. The user sends the search like its other requests, and decides what an error means.

After org.apache.kafka.clients.consumer.internals.AbstractCoordinator and
org.apache.kafka.clients.producer.internals.TransactionManager; KIP-699 (answers with a list).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch.protocol import messages

if TYPE_CHECKING:
    from kbatch.core.client.any_node_request import AnyNodeRequest
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections
    from kbatch.protocol.structs import Message

GROUP, TRANSACTION = 0, 1
_KINDS = {GROUP: "group", TRANSACTION: "transactional.id"}
FINDS_BY_LIST = 4


class CoordinatorKey(NamedTuple):
    """What a coordinator coordinates: a GROUP or a TRANSACTION, by its id."""

    kind: int
    key: str

    def __str__(self) -> str:
        return f"{_KINDS[self.kind]} {self.key}"


def search_for(key: CoordinatorKey, version: int) -> Message:
    """Return the request that finds a coordinator."""
    if version >= FINDS_BY_LIST:
        return messages.FindCoordinatorRequest(key_type=key.kind, coordinator_keys=[key.key])
    return messages.FindCoordinatorRequest(key_type=key.kind, key=key.key)


def codes_of(answer: Any) -> list[int]:
    """Return the error codes of an answer to `search_for`; a correct broker sends one."""
    return [each.error_code for each in answer.coordinators or [answer]]


class Coordinators:
    """The known coordinators."""

    def __init__(self, cluster: Cluster, connections: Connections) -> None:
        self._cluster = cluster
        self._connections = connections
        self._nodes: dict[CoordinatorKey, int] = {}

    def __contains__(self, key: CoordinatorKey) -> bool:
        return key in self._nodes

    def learn(self, key: CoordinatorKey, answer: Any) -> None:
        """Take the coordinator from an answer without an error."""
        self._nodes[key] = (answer.coordinators or [answer])[0].node_id

    def forget(self, key: CoordinatorKey) -> None:
        """Forget the coordinator, so that its users search again."""
        self._nodes.pop(key, None)

    def ready_node(self, key: CoordinatorKey, pending: AnyNodeRequest, now_ns: int) -> int | None:
        """Return the known coordinator if it takes a request now. One that is out of reach may not be the
        coordinator any more: forget it, and request metadata.
        """
        node_id = self._nodes[key]
        if pending.can_send(node_id, self._connections, now_ns):
            return node_id
        if pending.is_out_of_reach(node_id, self._cluster, self._connections, now_ns):
            self._cluster.request_update(now_ns)
            del self._nodes[key]
            pending.retry_ns = 0
        return None
