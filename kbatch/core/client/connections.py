"""Connections: every node's connection, without a socket.

Theory of operation. A request needs a connection (`connect`). It begins with an ApiVersions request, sent
before the node's versions are known, and is ready after its answer, or after the SASL login that follows
(`authentication`). Then requests go out, at most
`max_in_flight` unanswered ones. None is sent before the previous one is written, so that another node can
take all requests of a slow node but one. `Request.handle` gets the answers, in the order of the requests.

Every fault ends the connection: the node closes it, or an answer is late, unreadable or unexpected. All its
requests fail, in the order in which they were sent. The node is backed off, for a time that doubles up to
reconnect.backoff.max.ms, until a connection stays ready for longer than the client waited for it. So errors
cause at most some ten attempts a second. Starting over from bootstrap.servers is backed off likewise, and
changes nothing of a node's back-off. Actions that `poll_actions` has not returned yet are withdrawn, so that
`Request.was_written` is true only of requests that reached a socket.

A client may have several connections to a node, one for each *purpose*, so that a slow request, such as a
long Fetch, does not delay others. A purpose has its own NodeState for each node, with addresses, back-off and
throttling, and is independent of other purposes. Purpose 0 is that of requests that any node can answer.

Until the first metadata the nodes are bootstrap.servers, with the ids -1, -2 and so on.

After org.apache.kafka.clients.NetworkClient; KIP-219 (throttling), KIP-511 (versions), KIP-899.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from kbatch._native.codec.memory import new_memory
from kbatch.config import ClientConfig
from kbatch.core.client.actions import (
    Address,
    Authenticate,
    Close,
    Connect,
    EndAuthentication,
    IoAction,
    Resolve,
    Write,
)
from kbatch.core.client.api_versions import (
    NO_FEATURES,
    ApiVersions,
    FinalizedFeatures,
    VersionsReader,
    next_version,
    read_response,
    throttle_ns,
    versions_request,
)
from kbatch.core.client.authentication import (
    MAX_ROUNDS,
    SHORTEST_PAUSE_NS,
    Login,
    check_versions,
    credentials_in,
    endless_login,
    refusal_of_mechanism,
    refusal_of_token,
    session_after,
    wire_name,
    with_text,
)
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS, SHORTEST_DELAY_NS, ExponentialBackoff
from kbatch.core.client.cluster import Cluster, Node
from kbatch.core.client.connection import (
    MAX_FRAME_BYTES,
    MAX_SETUP_FRAME_BYTES,
    Connection,
    Request,
    Response,
)
from kbatch.core.client.connection_metrics import ConnectionMetrics
from kbatch.core.client.lasting_faults import LastingFaults
from kbatch.core.client.node_state import ConnectionEvent, ConnectionState, NodeState, least_loaded
from kbatch.errors import (
    AuthenticationError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NetworkError,
    ProtocolError,
    ThrottlingQuotaExceededError,
    UnsupportedVersionError,
    error_of,
)
from kbatch.errors.words import shown
from kbatch.logs import ClientLogger
from kbatch.metrics import MetricsRegistry
from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbatch._native.io.lent import Lent, LentRequest
    from kbatch._native.io.sensor import RequestSensors

__all__ = ["Connections", "FinalizedFeatures", "Request", "Response"]

logger = ClientLogger(__name__)

# The actions of a connection that an end makes void.
_WITHDRAWN = (Connect, Write, Authenticate)
_ENDED = "the connection has ended: "
_MAX_PORT = 65_535
# The waits before the versions of a node that lacks a request are requested again.
_RENEWAL_MS, _LONGEST_RENEWAL_MS = 100, 1000
# The remedies for an address that fails: one of bootstrap.servers, or one that a broker has named.
_CHECK_BOOTSTRAP = "; check bootstrap.servers and the name service"
_CHECK_ADVERTISED = (
    "; this address comes from the broker's advertised.listeners, which must have one that clients can reach"
)
# The time after which a new connection without an answer is logged. It ends after request.timeout.ms.
_SILENCE_NS = 5_000 * NS_PER_MS
# A throttle that is logged. Shorter ones are how quotas work.
_LONG_THROTTLE_NS = 1_000 * NS_PER_MS
_THROTTLE = "throttle"
_NodeKey = tuple[int, str, int]  # a node's id, host and port
# Nodes that are remembered: those that are gone but backed off, and those that have answered.
_MAX_KEPT_NODES = 1000


class Connections:
    """The connections of one client.

    Parameters
    ----------
    config : ClientConfig
    random : random.Random
        Source of jitter, and of the first node in a search.
    registry : MetricsRegistry | None
    now_ns : int
        The time of any monotonic clock.
    max_in_flight : int
        Maximum number of unanswered requests on a connection.
    purpose_count : int
        Maximum number of connections to one node.
    cluster_type : type of Cluster
        What nodes are asked for; those that do not answer that are backed off.

    Attributes
    ----------
    deadline_ns : int
        When `handle_timeout` may have something to do; it may be too early, never too late.
    event_count : int
        The number of events so far that may let other requests go out: answers, and changes of connections.
    """

    def __init__(
        self,
        config: ClientConfig,
        random: Random,
        registry: MetricsRegistry | None,
        now_ns: int,
        *,
        max_in_flight: int,
        purpose_count: int = 1,
        cluster_type: type[Cluster] = Cluster,
    ) -> None:
        self._config = config
        self._cluster_type = cluster_type
        self._random = random
        self._metrics = None if registry is None else ConnectionMetrics(registry)
        has_sasl = config.security_protocol.startswith("SASL_")
        self._mechanism = wire_name(config.sasl_mechanism) if has_sasl else ""
        self._max_in_flight = max_in_flight
        self._request_timeout_ns = config.request_timeout_ms * NS_PER_MS
        max_idle_ms = config.connections_max_idle_ms
        self._max_idle_ns = NEVER_NS if max_idle_ms < 0 else max_idle_ms * NS_PER_MS
        self._reconnect_backoff = ExponentialBackoff(
            config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, random
        )
        self._renewal_backoff = ExponentialBackoff(_RENEWAL_MS, _LONGEST_RENEWAL_MS, random)
        self._rebootstrap_count = 0  # since a node of the cluster has answered
        self._rebootstrap_ns = 0  # the end of the back-off of the next one
        self._setup_timeout = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms, random
        )
        self._actions: list[IoAction] = []
        self._disconnected: set[int] = set()
        self._by_purpose: list[dict[int, NodeState]] = [{} for _ in range(purpose_count)]  # by node id
        self._wants_canonical = config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only"
        self._node_ids: Collection[int] = ()  # of the cluster, or of bootstrap.servers
        self._candidates: list[NodeState] = []  # of `_node_ids`, for purpose 0
        self._backed_off: dict[tuple[int, _NodeKey], NodeState] = {}  # gone, by purpose and key
        self._served: set[tuple[str, int]] = set()  # the hosts and ports that have answered
        self._faults = LastingFaults(logger)
        self._by_connection: dict[int, NodeState] = {}
        self._resolving: set[tuple[str, int]] = set()
        self._versions_reader = VersionsReader()
        self._next_connection_id = 1
        # the errors of the last failure, and of the last failed authentication; None if a connection became
        # ready since, or was ready: then the cluster can be used. Bootstrap servers prove nothing about its
        # nodes.
        self._failed_node_id = -1  # whose failure is the last one
        self.last_failure: KafkaError | None = None
        self.authentication_error: AuthenticationError | None = None
        self.deadline_ns = NEVER_NS
        self.event_count = 0
        self._bootstrap()

    def _bootstrap(self) -> None:
        self._is_bootstrapping = True
        addresses = enumerate(self._config.bootstrap_addresses, 1)
        nodes = {-number: Node(-number, host, port, None) for number, (host, port) in addresses}
        for purpose, states in enumerate(self._by_purpose):
            for node_id, node in nodes.items():
                if node_id not in states:
                    states[node_id] = self._state_at(purpose, node)
        self._set_node_ids(nodes)

    def _state_at(self, purpose: int, node: Node) -> NodeState:
        """Return the state of a node that is new, or was at the same address before and is backed off."""
        state = self._backed_off.pop((purpose, _key(node)), None)
        if state is None:
            return NodeState(node)
        state.node = node
        return state

    def _keep_back_off(self, purpose: int, state: NodeState) -> None:
        """Remember the failures of a node that is removed."""
        if state.failures:
            state.is_leaving = False
            self._backed_off[purpose, _key(state.node)] = state
            if len(self._backed_off) > _MAX_KEPT_NODES:
                del self._backed_off[next(iter(self._backed_off))]

    def _set_node_ids(self, node_ids: Collection[int]) -> None:
        self._node_ids = frozenset(node_ids)
        self._candidates = [self._by_purpose[0][node_id] for node_id in node_ids]

    def _states(self) -> list[NodeState]:
        """Return the states of all nodes for all purposes. Any thread may call this: each copy is made at
        once.
        """
        return [state for states in self._by_purpose for state in tuple(states.values())]

    # Which nodes there are

    def set_nodes(self, nodes: Mapping[int, Node]) -> None:
        """Use the nodes of the latest metadata. Connections to other nodes, or to the earlier address of a
        node, take no more requests, and are closed when none is in flight.
        """
        if not nodes:
            return
        self._is_bootstrapping = False
        for purpose, states in enumerate(self._by_purpose):
            for node_id, node in nodes.items():
                state = states.get(node_id)
                if state is None:
                    states[node_id] = self._state_at(purpose, node)
                elif state.is_at(node):
                    state.node = node
                else:
                    state.move_to(node)
        self._set_node_ids(nodes)
        for state in self._states():
            state.is_leaving = state.node.node_id not in nodes or state.is_elsewhere
            if state.is_leaving:
                self.deadline_ns = 0  # the next handle_timeout checks it

    def rebootstrap(self, now_ns: int) -> None:
        """Start over from bootstrap.servers (KIP-899): close all connections, fail their requests, and
        resolve names again.
        """
        self._rebootstrap_ns = now_ns + self._reconnect_backoff.delay_ns(self._rebootstrap_count)
        self._rebootstrap_count += 1
        error = NetworkError("the client starts over from bootstrap.servers, and has closed the connection")
        failed: list[Request] = []
        for state in self._states():
            is_open = state.state is not ConnectionState.DISCONNECTED
            failed += self._close_connection(state, now_ns)
            state.untried.clear()
            if self._is_bootstrapping and is_open:
                self._back_off(state, now_ns)
        if not self._is_bootstrapping:
            for purpose, states in enumerate(self._by_purpose):
                for state in states.values():
                    self._keep_back_off(purpose, state)
                states.clear()
        self._bootstrap()
        _fail_requests(failed, error, now_ns)

    def is_cut_off(self, now_ns: int) -> bool:
        """True if all nodes of the cluster are disconnected, for all purposes, and backed off, so that only
        bootstrap.servers may help (KIP-899), and those were not tried just now.
        """
        return not (
            self._is_bootstrapping
            or now_ns < self._rebootstrap_ns
            or any(
                state.state is not ConnectionState.DISCONNECTED or now_ns >= state.not_before_ns
                for state in self._candidates
            )
            or any(state.is_connected for state in self._states())
        )

    def hindrance(self, now_ns: int) -> KafkaError | None:
        """Return what keeps requests from a node: that it throttles this client, that the client itself does
        not connect yet, or the last failure.
        """
        throttled = max(self._states(), key=lambda state: state.throttled_until_ns)
        left_ns = throttled.throttled_until_ns - now_ns
        if left_ns <= 0:
            return next(filter(None, map(_unprepared, self._states())), self.last_failure)
        return ThrottlingQuotaExceededError(
            f"{throttled} throttles this client, by a quota of the cluster, for another {left_ns / 1e9:.1f} s"
        )

    @property
    def wrong_nodes(self) -> KafkaError | None:
        """The error of bootstrap addresses none of which is that of a node that serves clients; or None."""
        errors = [state.misfit for state in self._candidates]
        return errors[0] if self._is_bootstrapping and all(errors) else None

    def is_hopeful(self) -> bool:
        """True if there is a connection or an attempt, which has a time-out of its own."""
        return any(state.is_connected or state.is_preparing for state in self._by_purpose[0].values())

    # What a node can do

    def is_ready(self, node_id: int, now_ns: int, purpose: int = 0) -> bool:
        """True if the node takes a request now."""
        state = self._by_purpose[purpose].get(node_id)
        return state is not None and state.can_send(self._max_in_flight, now_ns)

    def ready_at(
        self,
        node_id: int,
        now_ns: int,
        purpose: int = 0,
        *,
        least_ns: int = SHORTEST_DELAY_NS,
        joins: bool = False,
    ) -> int:
        """Return `now_ns` if the node takes a request now. Otherwise begin a connection if there is none, and
        return when to look again, after `least_ns` at the earliest; NEVER_NS if that takes an event. `joins`
        is as for `send`.
        """
        state = self._by_purpose[purpose].get(node_id)
        if state is None:
            return NEVER_NS
        if self._takes(state, now_ns, joins=joins):
            return now_ns
        self.connect(node_id, now_ns, purpose)
        delay_ns = state.delay_ns(self._max_in_flight, now_ns)
        return NEVER_NS if delay_ns == NEVER_NS else now_ns + max(delay_ns, least_ns)

    def is_connected(self, node_id: int, purpose: int = 0) -> bool:
        """True if there is a connection to the node, ready or not."""
        state = self._by_purpose[purpose].get(node_id)
        return state is not None and state.is_connected

    def delay_ns(self, node_id: int, now_ns: int, purpose: int = 0) -> int:
        """Return the time after which to look at the node again; NEVER_NS if that takes an event."""
        state = self._by_purpose[purpose].get(node_id)
        return NEVER_NS if state is None else state.delay_ns(self._max_in_flight, now_ns)

    def least_loaded(
        self, now_ns: int, kind: type[Message] | None = None, avoided: Collection[int] = ()
    ) -> int | None:
        """Return the node for a request that any node answers; None means wait.

        It is a ready one with the fewest requests in flight. If none is ready, it is one that connects, or
        that is not backed off: the one with the fewest failures in a row, of these one that connects, or
        else the one with the oldest attempt. To connect for SLOW_NS counts as a failure. A node that lacks a
        request of this `kind` is the last resort, and so are those that are `avoided`.
        """
        candidates = self._candidates
        if kind is not None:
            candidates = [state for state in candidates if not state.lacks(kind)] or candidates
        others = [state for state in candidates if state.node.node_id not in avoided] if avoided else []
        found = least_loaded(others, self._max_in_flight, self._random, now_ns) if others else None
        if found is None:
            found = least_loaded(candidates, self._max_in_flight, self._random, now_ns)
        return None if found is None else found.node.node_id

    def version_of(
        self, node_id: int, kind: type[Message], purpose: int = 0, *, highest: int | None = None
    ) -> int:
        """Return the highest version of a request that both sides have, up to `highest`. Raise
        UnsupportedVersionError if there is none.
        """
        state = self._by_purpose[purpose].get(node_id)
        if state is None or state.versions is None:
            raise IllegalStateError(f"the versions of node {node_id} are not known: it was never ready")
        return state.versions.version_of(kind, state, highest)

    def lacks(self, node_id: int, kind: type[Message], *, highest: int | None = None) -> bool:
        """True if the node is connected, and offers no such request; `renew_versions` may end that."""
        state = self._by_purpose[0].get(node_id)
        return state is not None and state.lacks(kind, highest)

    def check_offered(
        self, node_id: int, kind: type[Message], now_ns: int, *, highest: int | None = None
    ) -> None:
        """Raise UnsupportedVersionError, which names `node_id`, if every node of the cluster lacks the
        request, twice: a node that starts may not offer all at once. Connects to nodes, and asks them again,
        for that.
        """
        for each in sorted(self._node_ids):
            self.connect(each, now_ns)
            if self.lacks(each, kind, highest=highest):
                self.renew_versions(each, kind, now_ns)
        if all(
            state.lacks(kind, highest) and state.renewals and not state.is_renewing
            for state in self._candidates
        ):
            self.version_of(node_id, kind, highest=highest)

    def renew_versions(self, node_id: int, kind: type[Message], now_ns: int) -> int:
        """Request the versions of a node again that lacks a request, after a wait that doubles. Return the
        time until the next look.
        """
        state = self._by_purpose[0][node_id]
        if now_ns >= state.renew_versions_ns:
            text = (
                f"{state}: it does not offer {kind.__name__} in any version from {kind.versions.start} to "
                f"{kind.versions.stop - 1}, and gets none until it does"
            )
            self._faults.note((_key(state.node), kind), text, now_ns)
            state.lacked = kind
            self.connect(node_id, now_ns)  # which renews a session that is over
            due_ns = state.versions_ns + self._renewal_backoff.delay_ns(state.renewals)
            if now_ns >= due_ns and state.can_send(self._max_in_flight, now_ns):
                self._renew_versions(state, now_ns)
                due_ns = now_ns + self._renewal_backoff.delay_ns(state.renewals)
            state.renew_versions_ns = max(due_ns, now_ns + _RENEWAL_MS * NS_PER_MS)
        return self.renewal_delay_ns(node_id, now_ns)

    def _renew_versions(self, state: NodeState, now_ns: int) -> None:
        connection, versions = state.connection, state.versions
        assert connection is not None and versions is not None
        state.renewals += 1
        state.is_renewing = True

        def handle(response: Response) -> None:
            state.is_renewing = False
            answer = response.message
            if answer is not None and not answer.error_code and state.connection is connection:
                self._take_versions(state, self._versions_reader.versions_of(answer), response.now_ns)

        version = versions.common_version(messages.ApiVersionsRequest) or 0
        self._send(state, versions_request(), version, handle, now_ns, read=self._versions_reader.read)

    def _take_versions(self, state: NodeState, versions: ApiVersions, now_ns: int) -> None:
        """Use what the node offers from now on."""
        state.versions, state.versions_ns, state.renew_versions_ns = versions, now_ns, 0
        kind = state.lacked
        if kind is not None and versions.common_version(kind) is not None:
            state.lacked, state.renewals = None, 0
            self._faults.end((_key(state.node), kind), f"{state}: it offers {kind.__name__} again", now_ns)

    def renewal_delay_ns(self, node_id: int, now_ns: int) -> int:
        """Return the time until `renew_versions` requests them."""
        return max(self._by_purpose[0][node_id].renew_versions_ns - now_ns, 0)

    def finalized_features(self, node_id: int) -> FinalizedFeatures:
        """Return the features of the cluster from the node's last answer to ApiVersions."""
        state = self._by_purpose[0].get(node_id)
        return NO_FEATURES if state is None or state.versions is None else state.versions.features

    def in_flight_count(self, node_id: int | None = None) -> int:
        """Return the number of unanswered requests of one node, or of all nodes."""
        states = self._states()
        return sum(each.in_flight_count for each in states if node_id in (None, each.node.node_id))

    # Requests

    def send(
        self,
        node_id: int,
        message: Message,
        handle: Callable[[Response], None],
        now_ns: int,
        *,
        expects_response: bool = True,
        timeout_ns: int | None = None,
        version: int | None = None,
        purpose: int = 0,
        joins: bool = False,
        memory: Callable[[int], Buffer] = new_memory,
        write: Callable[[Any, int, int, str | None], list[bytes | memoryview]] = codec.encode_request,
        read: Callable[[Request, bytes | memoryview], Any] = read_response,
    ) -> Request:
        """Send a request; `handle` is called once, with the result.

        Parameters
        ----------
        expects_response : bool
            False for Produce with acks=0, which is done when it is written.
        timeout_ns : int | None
            None means request.timeout.ms.
        version : int | None
            None means the highest that both sides have.
        purpose : int
            Which of the connections to the node is used.
        joins : bool
            True if it may be written together with the request before it, which the owner has not got yet.
            Both must expect a response.
        memory : Callable[[int], Buffer]
            Returns writable memory of that many bytes, into which a large answer is received. Records in
            the answer refer to it.
        write : Callable[[Message, int, int, str | None], list[bytes | memoryview]]
            Returns the buffers of the message in a version, with this correlation id and client id. The
            default is the codec's.
        read : Callable[[Request, bytes | memoryview], Any]
            Returns the answer in a frame, or raises ProtocolError. The default is the codec's.

        Raises
        ------
        IllegalStateError
            If the node is not ready.
        UnsupportedVersionError, ProtocolError
            If the message cannot be encoded. Nothing was sent then.
        """
        state = self._by_purpose[purpose].get(node_id)
        if state is None or not self._takes(state, now_ns, joins=joins):
            raise IllegalStateError(f"node {node_id} cannot take a request now")
        if version is None:
            version = self.version_of(node_id, type(message), purpose)
        request = self._send(
            state, message, version, handle, now_ns, expects_response, timeout_ns, joins, memory, write, read
        )
        assert state.connection is not None
        if now_ns >= state.connection.session.renew_ns and state.connection.login is None:
            self._begin_login(state, now_ns)
        return request

    def _send(
        self,
        state: NodeState,
        message: Message,
        version: int,
        handle: Callable[[Response], None],
        now_ns: int,
        expects_response: bool = True,
        timeout_ns: int | None = None,
        joins: bool = False,
        memory: Callable[[int], Buffer] = new_memory,
        write: Callable[[Any, int, int, str | None], list[bytes | memoryview]] = codec.encode_request,
        read: Callable[[Request, bytes | memoryview], Any] = read_response,
    ) -> Request:
        connection = state.connection
        assert connection is not None
        buffers = write(message, version, connection.next_correlation_id, self._config.client_id)
        size_bytes = sum(map(len, buffers))
        begin_ns = max(now_ns, state.throttled_until_ns)  # a login goes out to a throttled node, too
        deadline_ns = begin_ns + (self._request_timeout_ns if timeout_ns is None else timeout_ns)
        request = Request(
            connection,
            type(message),
            version,
            handle,
            expects_response=expects_response,
            now_ns=now_ns,
            deadline_ns=deadline_ns,
            size_bytes=size_bytes,
            memory=memory,
            read=read,
        )
        is_written = connection.is_written
        connection.add(request)
        connection.active_ns = now_ns
        if deadline_ns < self.deadline_ns:
            self.deadline_ns = deadline_ns
        if self._metrics is not None:
            self._metrics.sent(connection.node.node_id, size_bytes, now_ns)
        begun = self._begun(connection) if joins and not is_written else None
        if begun is None:
            self._actions.append(Write(connection.connection_id, buffers, size_bytes))
        else:
            index, write_begun = begun
            self._actions[index] = Write(
                connection.connection_id,
                [*write_begun.buffers, *buffers],
                write_begun.size_bytes + size_bytes,
            )
        return request

    def _begun(self, connection: Connection) -> tuple[int, Write] | None:
        """Return the last write to a connection that the owner has not got yet, with its place."""
        for index in range(len(self._actions) - 1, -1, -1):
            action = self._actions[index]
            if isinstance(action, Write) and action.connection_id == connection.connection_id:
                return index, action
        return None

    def _takes(self, state: NodeState, now_ns: int, *, joins: bool) -> bool:
        """True if a node takes a request now, which may join the one before it or not."""
        if state.can_send(self._max_in_flight, now_ns):
            return True
        connection = state.connection
        begun = self._begun(connection) if joins and connection and not connection.is_written else None
        return begun is not None and state.can_send(self._max_in_flight, now_ns, begun[1].size_bytes)

    # Lending, while the owner waits

    def lendable(
        self, kind: type[Message], now_ns: int, *, highest: int, purpose: int = 0
    ) -> list[tuple[Connection, int]]:
        """Return the connections that may be lent (`lend`) for requests of this `kind`, with the version of
        these.
        """
        found = []
        for state in self._by_purpose[purpose].values():
            version = _lent_version(state, kind, highest, now_ns)
            if version is not None:
                assert state.connection is not None
                found.append((state.connection, version))
        return found

    def can_lend(self, node_id: int, kind: type[Message], now_ns: int, *, highest: int) -> bool:
        """True if the node's connection is among the `lendable` ones."""
        state = self._by_purpose[0].get(node_id)
        return state is not None and _lent_version(state, kind, highest, now_ns) is not None

    def lend(self, connection: Connection) -> tuple[list[Any], RequestSensors | None]:
        """Lend a `lendable` connection: the caller sends and receives on it until it calls `take_back`.

        Returns
        -------
        list of LentRequest
            The unanswered requests of earlier loans, which are the caller's again.
        RequestSensors | None
            What requests record.
        """
        requests = connection.lend_requests()
        if self._metrics is None:
            return requests, None
        self._metrics.lent(len(requests))
        return requests, self._metrics.sensors_of(connection.node.node_id)

    def take_back(
        self,
        lent: Lent[Any],
        kind: type[Message],
        handle: Callable[[Any], tuple[Any, Any]],
        now_ns: int,
        *,
        memory: Callable[[int], Buffer] = new_memory,
    ) -> None:
        """Take back a lent connection, with its requests in flight, of `kind`. `handle(request)` returns the
        functions `handle` and `read` of a request; these and `memory` are as for `send`. `handle_bytes` gets
        `lent.received` afterwards.
        """
        state = self._by_connection[lent.connection_id]
        connection = state.connection
        assert connection is not None
        for request in lent.requests:
            self._count_lent_request(connection, request, lent.written_bytes)
            self._adopt(connection, kind, request, handle, memory)
        connection.next_correlation_id = lent.next_correlation_id
        connection.queued_bytes = lent.queued_bytes
        connection.written_bytes = lent.written_bytes
        connection.active_ns = max(connection.active_ns, lent.active_ns)
        if lent.unsent:
            self._actions.append(Write(lent.connection_id, [lent.unsent], len(lent.unsent)))
        self._note_request_done(state, connection, now_ns)

    def _adopt(
        self,
        connection: Connection,
        kind: type[Message],
        lent: LentRequest,
        handle: Callable[[Any], tuple[Any, Any]],
        memory: Callable[[int], Buffer],
    ) -> None:
        deadline_ns = lent.created_ns + self._request_timeout_ns
        connection.next_correlation_id = lent.correlation_id
        connection.queued_bytes = lent.start_offset
        handle_response, read = handle(lent)
        request = Request(
            connection,
            kind,
            lent.version,
            handle_response,
            expects_response=lent.expects_answer,
            now_ns=lent.created_ns,
            deadline_ns=deadline_ns,
            size_bytes=lent.end_offset - lent.start_offset,
            read=read,
            memory=memory,
        )
        request.sent_ns = lent.written_ns
        request.lent = lent
        connection.in_flight.append(request)
        self.deadline_ns = min(self.deadline_ns, deadline_ns)

    def _count_lent_request(self, connection: Connection, lent: LentRequest, written_bytes: int) -> None:
        """Record a request that is taken back; for the first time, what was written of it too."""
        if self._metrics is not None and lent.is_counted:
            self._metrics.taken_back()
        elif self._metrics is not None:
            node_id = connection.node.node_id
            self._metrics.sent(node_id, lent.end_offset - lent.start_offset, lent.created_ns)
            written_bytes = min(written_bytes, lent.end_offset) - lent.start_offset
            self._metrics.written(node_id, max(written_bytes, 0), lent.created_ns)
        lent.is_counted = True

    def count_lent(self, in_flight: Callable[[], int]) -> None:
        """Count requests in flight on lent connections by `in_flight()`."""
        if self._metrics is not None:
            self._metrics.lent_in_flight = in_flight

    def note_served(self, node_id: int, now_ns: int, purpose: int = 0) -> None:
        """Record that the node has answered a request on a lent connection."""
        state = self._by_purpose[purpose].get(node_id)
        if state is not None:
            self._note_served(state, now_ns)

    # Connecting

    def connect(self, node_id: int, now_ns: int, purpose: int = 0) -> None:
        """Begin a connection, if there is none and the node is not backed off; or renew its session, if that
        is over.
        """
        state = self._by_purpose[purpose].get(node_id)
        if state is None or state.is_leaving:
            return
        if state.is_expired(now_ns):
            state.transition(ConnectionEvent.AUTHENTICATE)
            self._begin_login(state, now_ns)
            return
        if not state.can_connect(now_ns):
            return
        if state.untried:
            self._try_address(state, now_ns)
            return
        state.transition(ConnectionEvent.RESOLVE)
        state.attempted_ns = now_ns
        self._set_setup_deadline(state, now_ns)
        name = state.node.host, state.node.port
        if not 0 <= state.node.port <= _MAX_PORT:  # name servers would take the rest of a division
            self._fail_setup(
                state, f"{state.node.port} is no port (0 to {_MAX_PORT}){_CHECK_ADVERTISED}", now_ns
            )
            return
        if name not in self._resolving:
            self._resolving.add(name)
            self._actions.append(Resolve(*name, canonical=state.node.node_id < 0 and self._wants_canonical))

    def _try_address(self, state: NodeState, now_ns: int) -> None:
        state.transition(ConnectionEvent.CONNECT)
        family, sockaddr, *canonical = state.next_address()
        node = state.node
        if canonical and node.node_id < 0:  # what TLS and Kerberos check (ClientUtils)
            node = node._replace(host=canonical[0])
        connection = Connection(self._next_connection_id, node, now_ns)
        connection.max_frame_bytes = MAX_SETUP_FRAME_BYTES
        self._next_connection_id += 1
        state.connection = connection
        state.attempted_ns = now_ns
        state.ready_ns = -1
        self._by_connection[connection.connection_id] = state
        self._set_setup_deadline(state, now_ns)
        self._actions.append(
            Connect(connection.connection_id, node.node_id, node.host, node.port, family, sockaddr)
        )

    def _set_setup_deadline(self, state: NodeState, now_ns: int) -> None:
        state.setup_deadline_ns = now_ns + self._setup_timeout.delay_ns(state.setup_failures)
        self.deadline_ns = min(self.deadline_ns, state.setup_deadline_ns)

    def handle_resolved(
        self, host: str, port: int, addresses: Sequence[Address] | OSError, now_ns: int
    ) -> None:
        """Handle the result of `Resolve`."""
        self.event_count += 1
        self._resolving.discard((host, port))
        for state in self._states():
            is_resolving = state.state is ConnectionState.RESOLVING and not state.is_leaving
            if not is_resolving or (state.node.host, state.node.port) != (host, port):
                continue
            if isinstance(addresses, OSError) or not addresses:
                cause = addresses if isinstance(addresses, OSError) else None
                remedy = _CHECK_BOOTSTRAP if state.node.node_id < 0 else _CHECK_ADVERTISED
                self._fail_setup(state, f"the name was not resolved: {cause}{remedy}", now_ns)
            else:
                state.set_addresses(addresses)
                self._try_address(state, now_ns)

    def handle_preparing(self, connection_id: int, awaited: str) -> None:
        """Record what the owner does before it connects."""
        state = self._by_connection.get(connection_id)
        if state is not None and state.connection is not None:
            state.connection.awaited = awaited

    def handle_connected(self, connection_id: int, now_ns: int) -> None:
        """Record that a connection is established."""
        self.event_count += 1
        state = self._by_connection.get(connection_id)
        if state is None:
            return
        state.transition(ConnectionEvent.CONNECTED)
        assert state.connection is not None
        state.connection.active_ns = now_ns
        state.setup_failures = 0
        state.setup_deadline_ns = now_ns + _SILENCE_NS
        self.deadline_ns = min(self.deadline_ns, state.setup_deadline_ns)
        if self._metrics is not None:
            self._metrics.opened(state.node.node_id, now_ns)
            if self._config.security_protocol == "SSL":
                self._metrics.authenticated(now_ns)
        self._request_versions(state, messages.ApiVersionsRequest.versions.stop - 1, now_ns)

    def _request_versions(self, state: NodeState, version: int, now_ns: int) -> None:
        handle, read = partial(self._handle_versions, state), self._versions_reader.read
        self._send(state, versions_request(), version, handle, now_ns, read=read)

    def _handle_versions(self, state: NodeState, response: Response) -> None:
        message, now_ns = response.message, response.now_ns
        if message is None:
            return  # the connection has ended, and its end is handled elsewhere
        if message.error_code == ErrorCode.UNSUPPORTED_VERSION and response.request.api_version > 0:
            self._request_versions(state, next_version(message, response.request.api_version), now_ns)
            return
        if message.error_code:
            error = error_of(message.error_code)
            self._fail_connection(
                state, f"its answer to ApiVersions was {ErrorCode(message.error_code)}", error, now_ns
            )
            return
        state.setup_deadline_ns = NEVER_NS
        versions = self._versions_reader.versions_of(message)
        self._take_versions(state, versions, now_ns)
        if not self._serves_clients(state, versions, now_ns):
            return
        if self._mechanism:
            self._log_in(state, versions, now_ns)
        else:
            self._become_ready(state, now_ns)

    def _become_ready(self, state: NodeState, now_ns: int) -> None:
        assert state.connection is not None
        state.transition(ConnectionEvent.READY)
        state.connection.max_frame_bytes = MAX_FRAME_BYTES
        state.ready_ns = now_ns
        if state.node.node_id >= 0 or self._failed_node_id < 0:
            self.last_failure = self.authentication_error = None
        logger.debug("%s is ready", state)

    def _note_served(self, state: NodeState, now_ns: int) -> None:
        """Record the answer to a request on a ready connection."""
        connection = state.connection
        if connection is None or state.state is not ConnectionState.READY:
            return
        if not connection.has_served:
            connection.has_served = True
            if not state.failures:
                self._faults.end(_key(state.node), f"{state} answers", now_ns)
            if state.node.node_id >= 0:
                self._rebootstrap_count = 0
            if len(self._served) < _MAX_KEPT_NODES:
                self._served.add((state.node.host, state.node.port))
        if state.failures and state.is_steady(now_ns):
            state.failures = 0
            self._faults.end(_key(state.node), f"{state} answers again", now_ns)

    def _serves_clients(self, state: NodeState, versions: ApiVersions, now_ns: int) -> bool:
        """True if the node serves metadata. One that does not, such as a KRaft controller, is backed off."""
        state.misfit = None
        try:
            versions.version_of(self._cluster_type.request_type, state)
        except UnsupportedVersionError as error:
            reason = f"it does not serve clients ({error}): {self._cluster_type.remedy}"
            state.misfit = UnsupportedVersionError(f"{state}: {reason}")
            self._fail_connection(state, reason, error, now_ns)
            return False
        return True

    # Authentication

    def _log_in(self, state: NodeState, versions: ApiVersions, now_ns: int) -> None:
        """Begin the login of a new connection. The first token is made while the broker looks at the
        mechanism.
        """
        state.transition(ConnectionEvent.AUTHENTICATE)
        try:
            check_versions(partial(versions.version_of, node=state))
        except AuthenticationError as error:
            self._fail_login(state, error, now_ns)
            return
        self._begin_login(state, now_ns)
        self._offer_mechanism(state, now_ns)

    def _begin_login(self, state: NodeState, now_ns: int) -> None:
        assert state.connection is not None
        state.connection.login = Login(now_ns)
        self._request_token(state, None, now_ns)

    def _request_token(self, state: NodeState, challenge: bytes | None, now_ns: int) -> None:
        connection = state.connection
        assert connection is not None and connection.login is not None
        connection.login.awaits_token = True
        self._set_setup_deadline(state, now_ns)
        self._actions.append(Authenticate(connection.connection_id, connection.node.host, challenge))

    def handle_token(self, connection_id: int, token: bytes | KafkaError | None, now_ns: int) -> None:
        """Handle the result of `Authenticate`; one that comes too late is ignored."""
        self.event_count += 1
        state = self._by_connection.get(connection_id)
        login = None if state is None or state.connection is None else state.connection.login
        if state is None or login is None or not login.awaits_token:
            return
        login.awaits_token = False
        state.setup_deadline_ns = NEVER_NS
        if isinstance(token, KafkaError):
            self._fail_login(state, token, now_ns)
        elif token is None:
            self._end_login(state, now_ns)
        elif login.round_count == MAX_ROUNDS:
            self._fail_login(state, endless_login(self._mechanism), now_ns)
        else:
            login.token = token
            self._advance_login(state, now_ns)

    def _advance_login(self, state: NodeState, now_ns: int) -> None:
        """Send the next request of a login, if its token is there and earlier requests are written."""
        connection = state.connection
        assert connection is not None and connection.login is not None
        login = connection.login
        if login.token is None:
            return
        if state.state is ConnectionState.READY:
            state.transition(ConnectionEvent.AUTHENTICATE)
        if not connection.is_written:
            return
        if not login.was_offered:
            self._offer_mechanism(state, now_ns)
        elif login.is_accepted:
            request = messages.SaslAuthenticateRequest(auth_bytes=login.token)
            login.credentials = credentials_in(login.token)
            login.token = None
            login.round_count += 1
            login.asked_ns = now_ns
            self._send_of_login(state, request, self._handle_authenticate, now_ns)

    def _offer_mechanism(self, state: NodeState, now_ns: int) -> None:
        assert state.connection is not None and state.connection.login is not None
        state.connection.login.was_offered = True
        request = messages.SaslHandshakeRequest(mechanism=self._mechanism)
        self._send_of_login(state, request, self._handle_handshake, now_ns)

    def _send_of_login(
        self,
        state: NodeState,
        message: Message,
        handle: Callable[[NodeState, Response], None],
        now_ns: int,
    ) -> None:
        assert state.versions is not None
        version = state.versions.version_of(type(message), state)
        self._send(state, message, version, partial(handle, state), now_ns)

    def _handle_handshake(self, state: NodeState, response: Response) -> None:
        if response.message is None:
            return  # the connection has ended, and its end is handled elsewhere
        assert state.connection is not None and state.connection.login is not None
        error = refusal_of_mechanism(response.message, self._mechanism)
        if error is not None:
            self._fail_login(state, error, response.now_ns)
            return
        state.connection.login.is_accepted = True
        self._advance_login(state, response.now_ns)

    def _handle_authenticate(self, state: NodeState, response: Response) -> None:
        answer = response.message
        if answer is None:
            return  # as above
        assert state.connection is not None and state.connection.login is not None
        login = state.connection.login
        credentials, login.credentials = login.credentials, []
        error = refusal_of_token(answer, self._mechanism, credentials)
        if error is not None:
            self._fail_login(state, error, response.now_ns)
            return
        if answer.session_lifetime_ms > 0:
            state.connection.login.session_lifetime_ms = answer.session_lifetime_ms
        self._request_token(state, bytes(answer.auth_bytes), response.now_ns)

    def _end_login(self, state: NodeState, now_ns: int) -> None:
        """Begin or renew the session: the mechanism has verified the broker's last token."""
        connection = state.connection
        assert connection is not None and connection.login is not None
        login, connection.login = connection.login, None
        connection.session = session_after(login, self._random, now_ns)
        if state.state is ConnectionState.REAUTHENTICATING:
            logger.debug("%s: the session is renewed", state)
            state.transition(ConnectionEvent.READY)
            if self._metrics is not None:
                self._metrics.reauthenticated(now_ns - login.began_ns, now_ns)
        else:
            self._become_ready(state, now_ns)
            if self._metrics is not None:
                self._metrics.authenticated(now_ns)
        self._note_request_done(state, connection, now_ns)

    def _fail_login(self, state: NodeState, error: KafkaError, now_ns: int) -> None:
        """End a connection whose login failed. While its session lives, it is kept, and tries again."""
        connection = state.connection
        assert connection is not None
        named = with_text(error, f"{state}: {error}")
        retry_ns = now_ns + SHORTEST_PAUSE_NS
        is_kept = state.state is ConnectionState.READY and retry_ns < connection.session.end_ns
        if isinstance(named, AuthenticationError):
            self._note_refusal(state, named, now_ns, is_kept=is_kept)
        if is_kept:
            self._report(state, f"its session cannot be renewed yet: {error}", error, now_ns)
            connection.session = connection.session._replace(renew_ns=retry_ns)
            self._drop_login(state, connection)
        else:
            self._fail_connection(state, str(error), named, now_ns)

    def _drop_login(self, state: NodeState, connection: Connection) -> None:
        """Have the owner drop the exchange of a login in progress."""
        state.setup_deadline_ns = NEVER_NS
        if connection.login is not None:
            connection.login = None
            self._actions.append(EndAuthentication(connection.connection_id))

    def _note_refusal(
        self, state: NodeState, error: AuthenticationError, now_ns: int, *, is_kept: bool = False
    ) -> None:
        if not any(each.is_established for each in self._states() if is_kept or each is not state):
            self.authentication_error = error
        if self._metrics is not None:
            self._metrics.refused(now_ns, was_ready=state.is_established)

    def _report(self, state: NodeState, text: str, cause: BaseException | None, now_ns: int) -> None:
        """Log a fault, which lasts until the node answers. A failed authentication is an ERROR, since only
        the user can mend it.
        """
        level = logging.ERROR if isinstance(cause, AuthenticationError) else logging.WARNING
        self._faults.note(_key(state.node), f"{state}: {text}", now_ns, level)

    # Received and written bytes

    def handle_bytes(
        self, connection_id: int, data: bytes | bytearray | memoryview, now_ns: int
    ) -> memoryview | None:
        """Handle received bytes, and return memory in which the next ones need no copy, or None for any.

        `data` is not kept: its memory may be used again.
        """
        state = self._by_connection.get(connection_id)
        if state is None or not state.is_connected:
            return None
        connection = state.connection
        assert connection is not None
        connection.active_ns = now_ns
        if self._metrics is not None:
            self._metrics.received(connection.node.node_id, len(data), now_ns)
        try:
            frames = connection.frames(data)
        except MemoryError as error:  # of one answer, which is requested again after a pause
            self._fail_connection(state, _no_memory(error), error, now_ns)
            return None
        for frame in frames:
            self._handle_frame(state, connection, frame, now_ns)
            if state.connection is not connection:
                return None
        if connection.fault is not None:
            self.event_count += 1
            self._fail_connection(state, str(connection.fault), connection.fault, now_ns)
        return connection.space

    def _handle_frame(
        self, state: NodeState, connection: Connection, frame: bytes | memoryview, now_ns: int
    ) -> None:
        self.event_count += 1
        request = connection.match(frame)
        if request is None:
            self._fail_connection(state, str(connection.fault), connection.fault, now_ns)
            return
        if self._metrics is not None:
            self._metrics.answered(connection.node.node_id, 4 + len(frame), now_ns)
        try:
            message = request.read(request, frame)
        except (ProtocolError, MemoryError) as error:
            self._fail_unread(state, request, error, now_ns)
            return
        throttled_ns = throttle_ns(request, message)
        if throttled_ns:
            self._throttle(state, connection, throttled_ns, now_ns)
        elif state.throttled_until_ns and now_ns >= state.throttled_until_ns:
            state.throttled_until_ns = 0
            self._faults.end((_key(state.node), _THROTTLE), f"{state} throttles no more", now_ns)
        self._note_served(state, now_ns)
        request.handle(Response(request, message, None, now_ns))
        self._note_request_done(state, connection, now_ns)

    def _fail_unread(
        self, state: NodeState, request: Request, error: ProtocolError | MemoryError, now_ns: int
    ) -> None:
        """End a connection whose answer to the request could not be read."""
        is_faulty = isinstance(error, ProtocolError)
        reason = f"an answer could not be read: {error}" if is_faulty else _no_memory(error)
        failed = self._close_broken(state, reason, now_ns)
        ended = _connection_error(state, _ENDED + reason, error)
        request.handle(Response(request, None, error if isinstance(error, ProtocolError) else ended, now_ns))
        _fail_requests(failed, ended, now_ns)

    def _throttle(self, state: NodeState, connection: Connection, throttled_ns: int, now_ns: int) -> None:
        """Keep requests from the node for a time, in which those in flight do not time out."""
        state.throttled_until_ns = max(state.throttled_until_ns, now_ns + throttled_ns)
        for waiting in connection.in_flight:
            waiting.deadline_ns += throttled_ns
        if throttled_ns >= _LONG_THROTTLE_NS:
            text = f"{state} throttles this client for {throttled_ns / 1e9:.1f} s, by a quota of the cluster"
            self._faults.note((_key(state.node), _THROTTLE), text, now_ns)

    def _note_request_done(self, state: NodeState, connection: Connection, now_ns: int) -> None:
        """After a request: if none is left, start the idle time, or close a leaving node's connection."""
        if connection.in_flight or state.connection is not connection:
            return
        if state.is_leaving:
            self._close_leaving(state, now_ns)
        else:
            self.deadline_ns = min(self.deadline_ns, now_ns + self._max_idle_ns)

    def handle_written(self, connection_id: int, written_bytes: int, now_ns: int) -> None:
        """Count more written bytes."""
        state = self._by_connection.get(connection_id)
        if state is None:
            return
        connection = state.connection
        assert connection is not None
        done = connection.handle_written(written_bytes, now_ns)
        if self._metrics is not None:
            self._metrics.written(connection.node.node_id, written_bytes, now_ns)
        if done is not None:
            if self._metrics is not None:
                self._metrics.done()
            done.handle(Response(done, None, None, now_ns))
            self._note_request_done(state, connection, now_ns)
        if connection.login is not None and state.connection is connection:
            self._advance_login(state, now_ns)

    # The end of a connection

    def handle_closed(self, connection_id: int, error: BaseException | None, now_ns: int) -> None:
        """Record that a connection failed or ended."""
        self.event_count += 1
        state = self._by_connection.pop(connection_id, None)
        if state is None:
            return
        reason = "closed by the node" if error is None else str(error)
        hint = self._hint(state)
        if isinstance(error, AuthenticationError):
            error = with_text(error, reason + hint) if hint else error
            self._note_refusal(state, error, now_ns)
            state.untried.clear()
        if state.state is ConnectionState.CONNECTING:
            self._fail_setup(state, reason + hint, now_ns, error)
        elif _was_of_use(state, now_ns):
            # as nodes do that restart, or that end idle connections
            logger.info("%s: %s%s", state, _ENDED, reason)
            failed = self._close_unreported(state, reason, error, now_ns)
            _fail_requests(failed, _connection_error(state, _ENDED + reason, error), now_ns)
        else:
            self._fail_connection(state, reason + hint, error, now_ns)

    def _hint(self, state: NodeState) -> str:
        """Return what a connection that ended early may have lacked; empty if nothing is known."""
        if state.state is ConnectionState.AUTHENTICATING:
            return f" during the login with sasl.mechanism={self._mechanism}"
        if (state.node.host, state.node.port) in self._served:
            return ""
        if not self._mechanism and state.state is ConnectionState.READY:
            # any connection may break; one that ends again, or if none was of use so far, is no accident
            if self._served and not state.failures:
                return ""
            protocol = "SASL_SSL" if self._config.security_protocol == "SSL" else "SASL_PLAINTEXT"
            return f"; it has answered ApiVersions only: it may want SASL (security.protocol={protocol})"
        if state.node.node_id >= 0:
            return _CHECK_ADVERTISED
        if state.state is ConnectionState.CHECKING_API_VERSIONS:
            protocol = self._config.security_protocol
            return f"; it has answered nothing: is it a Kafka listener with security.protocol={protocol}?"
        return ""

    def _fail_setup(
        self, state: NodeState, reason: str, now_ns: int, cause: BaseException | None = None
    ) -> None:
        """Try the next address after a failed look-up or connect; without one, back off."""
        self._close_connection(state, now_ns)
        state.setup_failures += 1
        if state.untried and not state.is_leaving:
            logger.debug("%s: %s; its next address is tried", state, reason)
            self._try_address(state, now_ns)
            return
        self._report(state, reason, cause, now_ns)
        self._note_failure(state, reason, cause)
        self._back_off(state, now_ns)

    def _fail_connection(
        self, state: NodeState, reason: str, cause: BaseException | None, now_ns: int
    ) -> None:
        """End a broken connection, and fail its requests."""
        failed = self._close_broken(state, reason, now_ns, cause)
        _fail_requests(failed, _connection_error(state, _ENDED + reason, cause), now_ns)

    def _close_broken(
        self, state: NodeState, reason: str, now_ns: int, cause: BaseException | None = None
    ) -> list[Request]:
        """End an established connection, and return its requests, which the caller fails."""
        self._report(state, _ENDED + reason, cause, now_ns)
        return self._close_unreported(state, reason, cause, now_ns)

    def _close_unreported(
        self, state: NodeState, reason: str, cause: BaseException | None, now_ns: int
    ) -> list[Request]:
        self._note_failure(state, reason, cause)
        failed = self._close_connection(state, now_ns)
        state.untried.clear()
        self._back_off(state, now_ns)
        return failed

    def _note_failure(self, state: NodeState, reason: str, cause: BaseException | None) -> None:
        """Keep the error for callers who wait for a connection. A failed authentication keeps its class,
        since only the user can mend it.
        """
        self._failed_node_id = state.node.node_id
        if isinstance(cause, AuthenticationError):
            self.last_failure = with_text(cause, f"{state}: {reason}")
        else:
            self.last_failure = _connection_error(state, reason, cause)

    def _back_off(self, state: NodeState, now_ns: int) -> None:
        if state.is_steady(now_ns):
            state.failures = 0
        state.back_off(self._reconnect_backoff.delay_ns(state.failures), now_ns)
        self._disconnected.add(state.node.node_id)
        if state.is_leaving:
            self.deadline_ns = 0

    def _close_leaving(self, state: NodeState, now_ns: int) -> None:
        """Close the connection of a node that is gone or has moved, if no request is in flight."""
        if state.is_established and state.in_flight_count:
            return
        self._close_connection(state, now_ns)
        state.is_leaving = False
        if state.node.node_id not in self._node_ids:
            for purpose, states in enumerate(self._by_purpose):
                if states.get(state.node.node_id) is state:
                    del states[state.node.node_id]
                    self._keep_back_off(purpose, state)

    def _close_connection(self, state: NodeState, now_ns: int) -> list[Request]:
        """End the connection, and return its requests."""
        was_connected = state.is_connected
        if state.state is not ConnectionState.DISCONNECTED:
            state.transition(ConnectionEvent.CLOSE)
        state.setup_deadline_ns = NEVER_NS
        connection, state.connection = state.connection, None
        if connection is None:
            return []
        connection_id = connection.connection_id
        self._drop_login(state, connection)
        is_known = not self._withdraw(connection_id)
        if self._by_connection.pop(connection_id, None) is not None and is_known:
            self._actions.append(Close(connection_id))
        failed = list(connection.in_flight)
        connection.in_flight.clear()
        if was_connected and self._metrics is not None:
            self._metrics.closed(len(failed), now_ns)
        return failed

    def _withdraw(self, connection_id: int) -> bool:
        """Withdraw a connection's unpolled actions. True if connecting is one of them."""
        kept: list[IoAction] = []
        withdrawn: list[IoAction] = []
        for action in self._actions:
            is_its = isinstance(action, _WITHDRAWN) and action.connection_id == connection_id
            (withdrawn if is_its else kept).append(action)
        self._actions = kept
        return any(isinstance(action, Connect) for action in withdrawn)

    # Time, and what comes out

    def handle_timeout(self, now_ns: int) -> None:
        """End what has timed out, and idle connections."""
        if now_ns < self.deadline_ns:
            return
        self.event_count += 1
        for state in self._states():
            self._check(state, now_ns)
        self.deadline_ns = min(state.deadline_ns(self._max_idle_ns) for state in self._states())

    def _check(self, state: NodeState, now_ns: int) -> None:
        connection = state.connection
        if now_ns >= state.setup_deadline_ns and state.state is ConnectionState.CHECKING_API_VERSIONS:
            state.setup_deadline_ns = NEVER_NS
            self._report(state, f"no answer for {_SILENCE_NS / 1e9:.0f} s{self._hint(state)}", None, now_ns)
        elif now_ns >= state.setup_deadline_ns and state.is_connected:
            self._fail_login(state, self._no_token(), now_ns)
        elif now_ns >= state.setup_deadline_ns:
            verb = "resolved" if state.state is ConnectionState.RESOLVING else "connected"
            awaited = "" if connection is None else connection.awaited
            why = f": {awaited}" if awaited else self._hint(state)
            self._fail_setup(state, f"not {verb} in time{why}", now_ns)
        elif state.is_leaving and (connection is None or not connection.in_flight):
            self._close_leaving(state, now_ns)
        elif connection is not None and now_ns >= state.deadline_ns(self._max_idle_ns):
            if connection.in_flight:
                self._time_out(state, now_ns)
            else:
                logger.debug("%s: closed, since it was not used for connections.max.idle.ms", state)
                self._close_connection(state, now_ns)

    def _no_token(self) -> NetworkError:
        return NetworkError(
            f"no token for sasl.mechanism={self._config.sasl_mechanism} within "
            f"socket.connection.setup.timeout.ms={self._config.socket_connection_setup_timeout_ms}: its "
            "callback, token endpoint or KDC does not answer"
        )

    def _time_out(self, state: NodeState, now_ns: int) -> None:
        """End a connection with a late answer."""
        hint = self._hint(state) if state.state is ConnectionState.CHECKING_API_VERSIONS else ""
        failed = self._close_broken(state, f"a request was not answered in time{hint}", now_ns)
        ended = _connection_error(state, f"{_ENDED}another request was not answered in time", None)
        for request in failed:
            error: KafkaError = ended
            if now_ns >= request.deadline_ns:
                waited_ms = (now_ns - request.created_ns) // NS_PER_MS
                error = KafkaTimeoutError(f"{state}: no answer to {request} within {waited_ms} ms")
            request.handle(Response(request, None, error, now_ns))

    def is_quiet(self, now_ns: int) -> bool:
        """True if there is nothing to do or to report."""
        return not (self._actions or self._disconnected or now_ns >= self.deadline_ns)

    def poll_actions(self) -> list[IoAction]:
        """Return the actions for the owner, in order."""
        actions, self._actions = self._actions, []
        return actions

    def poll_disconnected(self) -> list[int]:
        """Return nodes whose connections failed or ended since the last call: metadata may be outdated."""
        disconnected, self._disconnected = self._disconnected, set()
        return sorted(disconnected)


def _lent_version(state: NodeState, kind: type[Message], highest: int, now_ns: int) -> int | None:
    """Return the version of requests on the node's connection while it is lent; None if it may not be. Who
    leaves requests to a borrower and who lends must not disagree: nobody would send them.
    """
    if state.versions is None or not state.can_lend(now_ns):
        return None
    return state.versions.common_version(kind, highest)


def _key(node: Node) -> _NodeKey:
    """Return what a node is known by while it is not in the metadata."""
    return node.node_id, node.host, node.port


def _no_memory(error: BaseException) -> str:
    text = f"there was no memory for an answer ({shown(str(error))})"
    return f"{text}; give the process more, or lower fetch.max.bytes and kbatch.fetch.buffer.memory"


def _was_of_use(state: NodeState, now_ns: int) -> bool:
    """True if the node's connection has answered requests, and lasted."""
    connection = state.connection
    has_served = connection is not None and connection.has_served
    return has_served and (not state.failures or state.is_steady(now_ns))


def _fail_requests(requests: Iterable[Request], error: KafkaError, now_ns: int) -> None:
    for request in requests:
        request.handle(Response(request, None, error, now_ns))


def _unprepared(state: NodeState) -> KafkaError | None:
    """Return why the client itself does not connect to the node yet; None if it does, or need not."""
    if state.connection is None or not state.connection.awaited:
        return None
    return _connection_error(state, f"not connected yet: {state.connection.awaited}", None)


def _connection_error(state: NodeState, reason: str, cause: BaseException | None) -> NetworkError:
    """Return the error of a connection that failed or ended: retriable, whatever the cause."""
    error = NetworkError(f"{state}: {reason}")
    error.__cause__ = cause
    return error
