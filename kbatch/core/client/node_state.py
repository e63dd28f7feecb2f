"""The state of one node: its connection, addresses and back-off.

Theory of operation. `TRANSITIONS` is the whole life of a connection. A node's name has one or more addresses.
The client tries them in turn without a pause; after the last one the node is backed off, and its name is
resolved again. The name is also resolved again after a connection that worked, since a broker that comes back
may have another address. The address of the last attempt is never the first of the next round.

After org.apache.kafka.clients.ClusterConnectionStates; KIP-302 and KIP-602 (addresses), KIP-601 (set-up).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from random import Random

from kbatch.core.client.actions import Address
from kbatch.core.client.api_versions import ApiVersions
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.core.client.cluster import Node
from kbatch.core.client.connection import Connection
from kbatch.errors import IllegalStateError, KafkaError
from kbatch.protocol.structs import Message

# The time after which a new connection that is not ready does not keep others from being tried.
SLOW_NS = 1_000 * NS_PER_MS


class ConnectionState(Enum):
    """The state of a node's connection."""

    DISCONNECTED = "disconnected"
    RESOLVING = "resolving"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking api versions"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    REAUTHENTICATING = "reauthenticating"


class ConnectionEvent(Enum):
    """An event in the life of a connection."""

    RESOLVE = "resolve"
    CONNECT = "connect"
    CONNECTED = "connected"
    AUTHENTICATE = "authenticate"
    READY = "ready"
    CLOSE = "close"


TRANSITIONS: Mapping[ConnectionState, Mapping[ConnectionEvent, ConnectionState]] = {
    ConnectionState.DISCONNECTED: {
        ConnectionEvent.RESOLVE: ConnectionState.RESOLVING,
        ConnectionEvent.CONNECT: ConnectionState.CONNECTING,
    },
    ConnectionState.RESOLVING: {
        ConnectionEvent.CONNECT: ConnectionState.CONNECTING,
        ConnectionEvent.CLOSE: ConnectionState.DISCONNECTED,
    },
    ConnectionState.CONNECTING: {
        ConnectionEvent.CONNECTED: ConnectionState.CHECKING_API_VERSIONS,
        ConnectionEvent.CLOSE: ConnectionState.DISCONNECTED,
    },
    ConnectionState.CHECKING_API_VERSIONS: {
        ConnectionEvent.READY: ConnectionState.READY,
        ConnectionEvent.AUTHENTICATE: ConnectionState.AUTHENTICATING,
        ConnectionEvent.CLOSE: ConnectionState.DISCONNECTED,
    },
    ConnectionState.AUTHENTICATING: {
        ConnectionEvent.READY: ConnectionState.READY,
        ConnectionEvent.CLOSE: ConnectionState.DISCONNECTED,
    },
    ConnectionState.READY: {
        ConnectionEvent.AUTHENTICATE: ConnectionState.REAUTHENTICATING,
        ConnectionEvent.CLOSE: ConnectionState.DISCONNECTED,
    },
    ConnectionState.REAUTHENTICATING: {
        ConnectionEvent.READY: ConnectionState.READY,
        ConnectionEvent.CLOSE: ConnectionState.DISCONNECTED,
    },
}


class NodeState:
    """A node, and its connection if there is one.

    Attributes
    ----------
    node : Node
    state : ConnectionState
    connection : Connection | None
        The connection, from the attempt on.
    untried : deque of Address
        The addresses of the node's name that are left in this round.
    attempted_ns : int
        When a connection was last begun or lost; of equal nodes the one with the oldest attempt is next.
    failures, setup_failures : int
        Failed rounds in a row, and addresses in a row that did not answer.
    waited_ns, not_before_ns : int
        The length and the end of the latest back-off.
    ready_ns : int
        When its latest connection became ready; -1 if it did not.
    setup_deadline_ns : int
        The time-out of resolving, connecting, or waiting for a token of a login; or when the silence of a new
        connection is logged.
    throttled_until_ns : int
        The time before which nothing is sent (KIP-219).
    misfit : KafkaError | None
        Why it is no node for this client, as it has answered last.
    versions : ApiVersions | None
        Its last answer to ApiVersions.
    versions_ns : int
        When that came.
    lacked : type of Message | None
        A request for which its versions are requested again, since it lacks it.
    renew_versions_ns : int
        When to look at that again; 0 after each answer.
    renewals : int
        How often they were requested again since it lacks the request.
    is_renewing : bool
        They are requested again, and not answered yet.
    is_leaving : bool
        True if it is not in the cluster any more, or has moved: it takes no new requests, and its connection
        is closed when none is in flight.
    """

    __slots__ = (
        "_last_address",
        "attempted_ns",
        "connection",
        "failures",
        "is_leaving",
        "is_renewing",
        "lacked",
        "misfit",
        "node",
        "not_before_ns",
        "ready_ns",
        "renew_versions_ns",
        "renewals",
        "setup_deadline_ns",
        "setup_failures",
        "state",
        "throttled_until_ns",
        "untried",
        "versions",
        "versions_ns",
        "waited_ns",
    )

    def __init__(self, node: Node) -> None:
        self.node = node
        self.state = ConnectionState.DISCONNECTED
        self.connection: Connection | None = None
        self.untried: deque[Address] = deque()
        self.attempted_ns = -1
        self.failures = 0
        self.setup_failures = 0
        self.waited_ns = 0
        self.not_before_ns = 0
        self.ready_ns = -1
        self.setup_deadline_ns = NEVER_NS
        self.throttled_until_ns = 0
        self.misfit: KafkaError | None = None
        self.versions: ApiVersions | None = None
        self.versions_ns = 0
        self.lacked: type[Message] | None = None
        self.renew_versions_ns = 0
        self.renewals = 0
        self.is_renewing = False
        self.is_leaving = False
        self._last_address: Address | None = None

    def __str__(self) -> str:
        return f"node {self.node.node_id} ({self.node.host}:{self.node.port})"

    def transition(self, event: ConnectionEvent) -> None:
        """Enter the next state. Raise IllegalStateError, and change nothing, if this state has none."""
        state = TRANSITIONS[self.state].get(event)
        if state is None:
            raise IllegalStateError(f"{self}: {event.value} while {self.state.value}")
        self.state = state

    @property
    def is_connected(self) -> bool:
        """True if there is a connection, ready or not."""
        return self.state in _CONNECTED

    def is_steady(self, now_ns: int) -> bool:
        """True if its latest connection was ready for longer than the back-off before it. Only then earlier
        failures do not count, so that a node that accepts connections and ends them is backed off too.
        """
        return 0 <= self.ready_ns < now_ns - self.waited_ns

    @property
    def is_established(self) -> bool:
        """True if it is authenticated: it answers requests, although it may take none now."""
        return self.state in _ESTABLISHED

    @property
    def is_preparing(self) -> bool:
        """True if it is on the way to READY."""
        return self.state in _PREPARING

    def is_slow(self, now_ns: int) -> bool:
        """True if its new connection is not ready for long, and not for what the client itself does first."""
        connection, login = self.connection, None if self.connection is None else self.connection.login
        awaits_client = connection is not None and (connection.awaited or (login and login.awaits_token))
        is_new = self.is_preparing and not self.is_established
        return is_new and not awaits_client and now_ns - self.attempted_ns >= SLOW_NS

    def can_connect(self, now_ns: int) -> bool:
        """True if a connection may be attempted."""
        return self.state is ConnectionState.DISCONNECTED and now_ns >= self.not_before_ns

    def is_expired(self, now_ns: int) -> bool:
        """True if its connection takes no requests because its session is over, and may log in again."""
        connection = self.connection
        return (
            self.state is ConnectionState.READY
            and connection is not None
            and connection.login is None
            and now_ns >= max(connection.session)
        )

    @property
    def in_flight_count(self) -> int:
        """The number of unanswered requests on its connection."""
        return 0 if self.connection is None else len(self.connection.in_flight)

    def can_send(self, max_in_flight: int, now_ns: int, begun_bytes: int = 0) -> bool:
        """True if it takes a request now, for which no more than `begun_bytes` may be unwritten."""
        connection = self.connection
        return (
            self.state is ConnectionState.READY
            and connection is not None
            and connection.queued_bytes - connection.written_bytes in (0, begun_bytes)
            and len(connection.in_flight) < max_in_flight
            and now_ns >= self.throttled_until_ns
            and now_ns < connection.session.end_ns
            and not self.is_leaving
        )

    def lacks(self, kind: type[Message], highest: int | None = None) -> bool:
        """True if it is connected, and does not offer a request in any version of this client up to
        `highest`.
        """
        return (
            self.is_established
            and self.versions is not None
            and self.versions.common_version(kind, highest) is None
        )

    def can_lend(self, now_ns: int) -> bool:
        """True if its connection may be lent: ready, with nothing begun in either direction."""
        connection = self.connection
        return (
            self.state is ConnectionState.READY
            and connection is not None
            and connection.is_written
            and not connection.has_begun_answer
            and connection.login is None
            and now_ns >= self.throttled_until_ns
            and now_ns < connection.session.renew_ns
            and not self.is_leaving
        )

    def delay_ns(self, max_in_flight: int, now_ns: int) -> int:
        """Return the time after which to look at it again; NEVER_NS if that takes an event."""
        connection = self.connection
        if self.is_leaving:
            return NEVER_NS
        if self.state is ConnectionState.DISCONNECTED:
            return max(self.not_before_ns - now_ns, 0)
        if self.state is not ConnectionState.READY or connection is None:
            return NEVER_NS
        if now_ns < self.throttled_until_ns:
            return self.throttled_until_ns - now_ns
        if self.can_send(max_in_flight, now_ns):
            return 0
        is_over = connection.login is None and now_ns >= connection.session.end_ns
        return max(connection.session.renew_ns - now_ns, 0) if is_over else NEVER_NS

    def deadline_ns(self, max_idle_ns: int) -> int:
        """Return when its connection or attempt times out if nothing happens."""
        connection = self.connection
        if connection is None or self.state is ConnectionState.CONNECTING:
            return self.setup_deadline_ns
        deadline_ns = self.setup_deadline_ns
        if connection.in_flight:
            return min(deadline_ns, *(request.deadline_ns for request in connection.in_flight))
        return min(connection.active_ns + max_idle_ns, NEVER_NS) if deadline_ns == NEVER_NS else deadline_ns

    def set_addresses(self, addresses: Sequence[Address]) -> None:
        """Begin a new round with the addresses of the name."""
        self.untried = deque(addresses)
        if len(addresses) > 1 and addresses[0] == self._last_address:
            self.untried.rotate(-1)

    def next_address(self) -> Address:
        """Take the next address to try."""
        self._last_address = address = self.untried.popleft()
        return address

    def is_at(self, node: Node) -> bool:
        """True if the node has the same host and port."""
        return (self.node.host, self.node.port) == (node.host, node.port)

    def back_off(self, wait_ns: int, now_ns: int) -> None:
        """Record a failure: no connection is attempted for this time."""
        self.attempted_ns = now_ns
        self.waited_ns = wait_ns
        self.not_before_ns = now_ns + wait_ns
        self.failures += 1

    @property
    def is_elsewhere(self) -> bool:
        """True if its connection leads to an earlier host or port."""
        return self.connection is not None and not self.is_at(self.connection.node)

    def move_to(self, node: Node) -> None:
        """Use the same node at another host or port, and forget addresses and failures."""
        self.node = node
        if self.state is ConnectionState.RESOLVING:
            self.transition(ConnectionEvent.CLOSE)
            self.setup_deadline_ns = NEVER_NS
        self.untried.clear()
        self.failures = self.setup_failures = 0
        self.waited_ns = self.not_before_ns = 0


# Tuples, since a set would hash the state.
_ESTABLISHED = (ConnectionState.READY, ConnectionState.REAUTHENTICATING)
_CONNECTED = (*_ESTABLISHED, ConnectionState.CHECKING_API_VERSIONS, ConnectionState.AUTHENTICATING)
_PREPARING = tuple(
    state for state in ConnectionState if state not in (ConnectionState.DISCONNECTED, ConnectionState.READY)
)


def least_loaded(
    states: Sequence[NodeState], max_in_flight: int, random: Random, now_ns: int
) -> NodeState | None:
    """Return the node for a request that any node answers; see `Connections.least_loaded`."""
    start = random.randrange(len(states))
    rotated = (*states[start:], *states[:start])
    ready = [state for state in rotated if state.can_send(max_in_flight, now_ns)]
    if ready:
        return min(ready, key=lambda state: state.in_flight_count)
    others = [
        state
        for state in rotated
        if state.is_preparing or state.can_connect(now_ns) or state.is_expired(now_ns)
    ]
    return min(others, key=lambda state: _hopelessness(state, now_ns), default=None)


def _hopelessness(state: NodeState, now_ns: int) -> tuple[int, bool, int]:
    """Return what orders nodes that are not ready, the best one first. A node that connects comes before
    others only if these have failed as often: one that hangs accepts connections, and answers nothing.
    """
    return state.failures + state.is_slow(now_ns), not state.is_preparing, state.attempted_ns
