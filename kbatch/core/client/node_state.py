"""How things stand with one node: connected or not, where it can be reached, how long to leave it alone.

Theory of operation. `TRANSITIONS` is the whole life of a connection. A node's name stands for one or more
addresses, which are tried one after the other, at once; only when none is left the node is left alone for a
while, and its name is resolved again. It is also resolved again after a connection that worked, since a
broker that comes back may have another address. The address that was tried last is never the first of the
next round.

After org.apache.kafka.clients.ClusterConnectionStates; KIP-302 and KIP-602 (addresses), KIP-601 (set-up).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from random import Random

from kbatch.core.client.actions import Address
from kbatch.core.client.api_versions import ApiVersions
from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.client.cluster import Node
from kbatch.core.client.connection import Connection
from kbatch.errors import IllegalStateError, KafkaError


class State(Enum):
    """Where a node's connection stands."""

    DISCONNECTED = "disconnected"
    RESOLVING = "resolving"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking api versions"
    AUTHENTICATING = "authenticating"
    READY = "ready"


class Event(Enum):
    """What happens to it."""

    RESOLVE = "resolve"
    CONNECT = "connect"
    CONNECTED = "connected"
    AUTHENTICATE = "authenticate"
    READY = "ready"
    CLOSE = "close"


TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.DISCONNECTED: {Event.RESOLVE: State.RESOLVING, Event.CONNECT: State.CONNECTING},
    State.RESOLVING: {Event.CONNECT: State.CONNECTING, Event.CLOSE: State.DISCONNECTED},
    State.CONNECTING: {Event.CONNECTED: State.CHECKING_API_VERSIONS, Event.CLOSE: State.DISCONNECTED},
    State.CHECKING_API_VERSIONS: {
        Event.READY: State.READY,
        Event.AUTHENTICATE: State.AUTHENTICATING,
        Event.CLOSE: State.DISCONNECTED,
    },
    State.AUTHENTICATING: {Event.READY: State.READY, Event.CLOSE: State.DISCONNECTED},
    State.READY: {Event.CLOSE: State.DISCONNECTED},
}


class NodeState:
    """A node, and its connection if there is one.

    Attributes
    ----------
    node : Node
    state : State
    connection : Connection | None
        From the attempt to make it.
    untried : deque of Address
        Addresses of the node's name that are left in this round.
    attempted_ns : int
        When a connection was last tried or lost; of nodes alike the one left alone for longest is tried.
    failures, setup_failures : int
        Rounds without success in a row; and addresses that did not answer.
    not_before_ns : int
        When it may be tried again.
    setup_deadline_ns : int
        When resolving or connecting has taken too long.
    throttled_until_ns : int
        Before, nothing is sent (KIP-219).
    versions : ApiVersions | None
        What it last said that it understands.
    failure : KafkaError | None
        Why the node does not accept us, since it was last asked.
    is_leaving : bool
        It is not in the cluster any more, or has moved: no new requests, and closed when none is out.
    """

    __slots__ = (
        "_last_address",
        "attempted_ns",
        "connection",
        "failure",
        "failures",
        "is_leaving",
        "node",
        "not_before_ns",
        "setup_deadline_ns",
        "setup_failures",
        "state",
        "throttled_until_ns",
        "untried",
        "versions",
    )

    def __init__(self, node: Node) -> None:
        self.node = node
        self.state = State.DISCONNECTED
        self.connection: Connection | None = None
        self.untried: deque[Address] = deque()
        self.attempted_ns = -1
        self.failures = 0
        self.setup_failures = 0
        self.not_before_ns = 0
        self.setup_deadline_ns = NEVER_NS
        self.throttled_until_ns = 0
        self.versions: ApiVersions | None = None
        self.failure: KafkaError | None = None
        self.is_leaving = False
        self._last_address: Address | None = None

    def __str__(self) -> str:
        return f"node {self.node.node_id} ({self.node.host}:{self.node.port})"

    def transition(self, event: Event) -> None:
        """The event happens. IllegalStateError, and no change, if it cannot in this state."""
        state = TRANSITIONS[self.state].get(event)
        if state is None:
            raise IllegalStateError(f"{self}: {event.value} while {self.state.value}")
        self.state = state

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, ready or not."""
        return self.state in _CONNECTED

    @property
    def is_preparing(self) -> bool:
        """Whether it is on the way to be ready."""
        return self.state in _PREPARING

    def can_connect(self, now_ns: int) -> bool:
        """Whether a connection may be begun."""
        return self.state is State.DISCONNECTED and now_ns >= self.not_before_ns

    @property
    def in_flight_count(self) -> int:
        """Requests on its connection that have no answer yet."""
        return 0 if self.connection is None else len(self.connection.in_flight)

    def can_send(self, max_in_flight: int, now_ns: int) -> bool:
        """Whether it may be sent a request now."""
        connection = self.connection
        return (
            self.state is State.READY
            and connection is not None
            and connection.written_bytes == connection.queued_bytes
            and len(connection.in_flight) < max_in_flight
            and now_ns >= self.throttled_until_ns
            and not self.is_leaving
        )

    def deadline_ns(self, max_idle_ns: int) -> int:
        """When its connection, or the attempt to make one, has to end if nothing happens."""
        connection = self.connection
        if connection is None or self.state is State.CONNECTING:
            return self.setup_deadline_ns
        if connection.in_flight:
            return min(request.deadline_ns for request in connection.in_flight)
        return min(connection.active_ns + max_idle_ns, NEVER_NS)

    def set_addresses(self, addresses: Sequence[Address]) -> None:
        """The name was resolved: a new round."""
        self.untried = deque(addresses)
        if len(addresses) > 1 and addresses[0] == self._last_address:
            self.untried.rotate(-1)

    def next_address(self) -> Address:
        """The address to try now."""
        self._last_address = address = self.untried.popleft()
        return address

    def is_at(self, node: Node) -> bool:
        """Whether that is the same place."""
        return (self.node.host, self.node.port) == (node.host, node.port)

    @property
    def is_elsewhere(self) -> bool:
        """Whether its connection leads to where the node was before."""
        return self.connection is not None and not self.is_at(self.connection.node)

    def move_to(self, node: Node) -> None:
        """The same node at another place: what was learnt of the old one does not count."""
        self.node = node
        if self.state is State.RESOLVING:
            self.transition(Event.CLOSE)
            self.setup_deadline_ns = NEVER_NS
        self.untried.clear()
        self.failures = self.setup_failures = 0
        self.not_before_ns = 0


# Tuples, since to look into a set has Python hash the state.
_CONNECTED = (State.READY, State.CHECKING_API_VERSIONS, State.AUTHENTICATING)
_PREPARING = tuple(state for state in State if state not in (State.DISCONNECTED, State.READY))


def least_loaded(
    states: Sequence[NodeState], max_in_flight: int, random: Random, now_ns: int
) -> NodeState | None:
    """The node to ask what any node knows; see `Connections.least_loaded`."""
    ready = preparing = idle = None
    fewest = max_in_flight
    start = random.randrange(len(states))
    for state in (*states[start:], *states[:start]):
        if state.can_send(max_in_flight, now_ns):
            if state.in_flight_count < fewest:
                ready, fewest = state, state.in_flight_count
        elif state.is_preparing:
            preparing = state
        elif state.can_connect(now_ns) and (idle is None or state.attempted_ns < idle.attempted_ns):
            idle = state
    return ready or preparing or idle
