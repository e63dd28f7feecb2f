"""Routes: which node gets an item of an AdminRequest.

Theory of operation. A route turns the keys of items into destinations: any node, the controller, a node of
that id, the leader of a partition, the coordinator of a group or a transactional.id. Items with the same
destination travel together, and so do those whose destinations are one node.

In KRaft every broker passes changes on to the active controller, and names a random broker as the controller
(KIP-590). So requests for the controller go to any node that offers UnregisterBroker, which only KRaft has.
If the client asks controllers (bootstrap.controllers), they go to the active one: no other passes them on.

After org.apache.kafka.clients.admin.internals.AdminApiLookupStrategy.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.client.coordinators import GROUP, TRANSACTION, CoordinatorKey
from kbatch.errors import BrokerNotAvailableError, KafkaError, UnknownTopicOrPartitionError
from kbatch.protocol import messages

if TYPE_CHECKING:
    from kbatch.core.client.any_node_request import AnyNodeRequest
    from kbatch.core.client.backoff import ExponentialBackoff
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections
    from kbatch.core.client.coordinators import Coordinators
    from kbatch.protocol.structs import Message
    from kbatch.records import TopicPartition


# Items by what decides their node.
ByDestination = dict[Any, dict[Any, Any]]

# Controllers elect another 2 s after the active one was last heard (controller.quorum.fetch.timeout.ms), and
# are heard every 0.5 s: an answer that came before has not been passed on twice.
FAILOVER_NS = 1_000_000_000


class Paths(NamedTuple):
    """What routes know of the cluster."""

    cluster: Cluster
    connections: Connections
    coordinators: Coordinators
    backoff: ExponentialBackoff


class Route:
    """Requests that any node answers.

    Attributes
    ----------
    is_to_brokers : bool
        True if controllers cannot tell the node.
    looked_for_with : Hashable
        Equal for routes whose destinations `prepare` looks for together; None if there is nothing to look
        for.
    """

    is_to_brokers: ClassVar[bool] = False
    looked_for_with: Hashable = None

    def destinations(self, items: dict[Any, Any], paths: Paths, now_ns: int) -> ByDestination:
        """Return items by what decides their node."""
        return {None: items}

    def prepare(self, destinations: Collection[Any], paths: Paths, now_ns: int) -> None:
        """Look for destinations of such routes together, where that is possible."""

    def node_of(
        self,
        destination: Any,
        pending: AnyNodeRequest,
        paths: Paths,
        now_ns: int,
        *,
        kind: type[Message],
        since_ns: int,
    ) -> int | None:
        """Return the node, if it takes a request now; None means to wait, until `pending.retry_ns`. Raise
        KafkaError if there will be none; `since_ns` is when the item was asked for.
        """
        return pending.find_node(paths.connections, paths.backoff, now_ns, kind)

    def forget(self, key: Any, paths: Paths, now_ns: int) -> None:
        """Record that the node has refused the item, or was out of reach."""

    def is_final(self, code: int, attempts: int) -> bool:
        """True if the refusal ends an item after so many attempts although its error is retriable."""
        return True

    def may_repeat(self, took_ns: int) -> bool:
        """True if the node may have sent a request twice to another that answers it, in this time."""
        return False


class _ControllerRoute(Route):
    """Requests that the controller answers, or a broker that passes them on."""

    def may_repeat(self, took_ns: int) -> bool:
        return took_ns > FAILOVER_NS

    def node_of(
        self,
        destination: Any,
        pending: AnyNodeRequest,
        paths: Paths,
        now_ns: int,
        *,
        kind: type[Message],
        since_ns: int,
    ) -> int | None:
        connections = paths.connections
        if not paths.cluster.is_of_controllers:
            node_id = pending.find_node(connections, paths.backoff, now_ns, messages.UnregisterBrokerRequest)
            if node_id is None or not connections.lacks(node_id, messages.UnregisterBrokerRequest):
                return node_id
        snapshot = paths.cluster.snapshot
        controller_id = snapshot.controller_id  # -1 before it is known, as is the first bootstrap node
        if controller_id in snapshot.nodes and pending.can_send(controller_id, connections, now_ns):
            return controller_id
        if pending.is_out_of_reach(controller_id, paths.cluster, connections, now_ns):
            paths.cluster.request_update(now_ns)
            pending.back_off(paths.backoff, now_ns)
        return None

    def forget(self, key: Any, paths: Paths, now_ns: int) -> None:
        paths.cluster.request_update(now_ns)


class _NodeRoute(Route):
    """Requests for the nodes whose ids are the keys."""

    def destinations(self, items: dict[int, Any], paths: Paths, now_ns: int) -> ByDestination:
        return {key: {key: payload} for key, payload in items.items()}

    def node_of(
        self,
        destination: int,
        pending: AnyNodeRequest,
        paths: Paths,
        now_ns: int,
        *,
        kind: type[Message],
        since_ns: int,
    ) -> int | None:
        nodes = paths.cluster.snapshot.nodes  # none while the client begins anew at bootstrap.servers
        if nodes and destination not in nodes and paths.cluster.snapshot.updated_ns > since_ns:
            known = ", ".join(map(str, sorted(nodes)))
            raise BrokerNotAvailableError(f"there is no broker {destination} in the cluster, only {known}")
        if pending.can_send(destination, paths.connections, now_ns):
            return destination
        if pending.is_out_of_reach(destination, paths.cluster, paths.connections, now_ns):
            paths.cluster.request_update(now_ns)
            pending.back_off(paths.backoff, now_ns)
        return None


class _LeaderRoute(Route):
    """Requests for the leaders of the partitions that are the keys.

    A destination is the leader, or a partition without one; None, for all together, if brokers have not said
    yet which partitions a topic has.
    """

    is_to_brokers = True

    def destinations(self, items: dict[TopicPartition, Any], paths: Paths, now_ns: int) -> ByDestination:
        cluster = paths.cluster
        snapshot = cluster.snapshot
        found: ByDestination = {}
        for key, payload in items.items():
            topic, partition = key
            cluster.want(topic, now_ns)
            destination: TopicPartition | int | None
            destination, _ = snapshot.leader(topic, partition)
            if destination < 0:
                is_awaited = topic not in snapshot.topics and topic not in snapshot.errors
                destination = None if is_awaited else key
            if destination in found:
                found[destination][key] = payload
            else:
                found[destination] = {key: payload}
        return found

    def node_of(
        self,
        destination: TopicPartition | int | None,
        pending: AnyNodeRequest,
        paths: Paths,
        now_ns: int,
        *,
        kind: type[Message],
        since_ns: int,
    ) -> int | None:
        if destination is None:
            pending.retry_ns = NEVER_NS  # metadata are on their way
            return None
        if isinstance(destination, int):
            return destination if pending.can_send(destination, paths.connections, now_ns) else None
        error = error_of_partition(paths.cluster, destination, since_ns)
        if error is not None:
            raise error
        paths.cluster.request_update(now_ns)
        pending.back_off(paths.backoff, now_ns)
        return None

    def forget(self, key: TopicPartition, paths: Paths, now_ns: int) -> None:
        paths.cluster.doubt_leader(*key, now_ns)

    def is_final(self, code: int, attempts: int) -> bool:
        return attempts > 0  # metadata may be older than the topic


class _CoordinatorRoute(Route):
    """Requests for the coordinators of the keys, or for that of one group."""

    is_to_brokers = True

    def __init__(self, kind: int, name: str | None = None) -> None:
        self._kind = self.looked_for_with = kind
        self._name = name

    def destinations(self, items: dict[Any, Any], paths: Paths, now_ns: int) -> ByDestination:
        if self._name is not None:
            return {CoordinatorKey(self._kind, self._name): items}
        return {CoordinatorKey(self._kind, key): {key: payload} for key, payload in items.items()}

    def prepare(self, destinations: Collection[CoordinatorKey], paths: Paths, now_ns: int) -> None:
        paths.coordinators.search(destinations, now_ns)

    def node_of(
        self,
        destination: CoordinatorKey,
        pending: AnyNodeRequest,
        paths: Paths,
        now_ns: int,
        *,
        kind: type[Message],
        since_ns: int,
    ) -> int | None:
        return paths.coordinators.ready_node(destination, pending, now_ns)

    def forget(self, key: Any, paths: Paths, now_ns: int) -> None:
        paths.coordinators.forget(CoordinatorKey(self._kind, key if self._name is None else self._name))


ANY = Route()
CONTROLLER = _ControllerRoute()
NODE = _NodeRoute()
LEADER = _LeaderRoute()
GROUP_COORDINATOR = _CoordinatorRoute(GROUP)
TRANSACTION_COORDINATOR = _CoordinatorRoute(TRANSACTION)


def coordinator_of(group_id: str) -> Route:
    """Return the route of items that one group's coordinator gets."""
    return _CoordinatorRoute(GROUP, group_id)


def error_of_partition(cluster: Cluster, partition: TopicPartition, since_ns: int) -> KafkaError | None:
    """Return the error of a partition that has no leader: that of its topic, or one that says that metadata
    newer than `since_ns` does not have it. None if a leader may still appear.
    """
    snapshot = cluster.snapshot
    count = snapshot.partition_count(partition.topic)
    if 0 < count <= partition.partition and snapshot.updated_ns > since_ns:
        return UnknownTopicOrPartitionError(
            f"topic {partition.topic!r} has {count} partitions, 0 to {count - 1}, but not "
            f"{partition.partition}"
        )
    return cluster.topic_error(partition.topic)
