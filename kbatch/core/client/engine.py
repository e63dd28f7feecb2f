"""ClientEngine: a client that knows nothing of records, without sockets, threads and clocks.

Theory of operation. An engine has an owner: a thread, an event loop or a simulation. The owner reports events
(`handle_*`), lets the engine work (`run`), and performs the actions it returns (`poll_actions`): resolve a
name, connect, write, make a token, close. `deadline_ns` says when to call `run` again if nothing happens.
Every call passes the time.

User threads read the published cluster snapshot, and put commands into a queue that `run` empties. All other
state belongs to the owner.

The parts: Cluster knows topics, leaders and nodes; Connections has the connections to nodes and their
requests; Coordinators knows which node coordinates a group; AdminRequests sends calls about topics, groups
and the like. A producer or a consumer is a subclass that overrides the last methods.

After org.apache.kafka.clients.NetworkClient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from kbatch.core.client.admin_requests import AdminRequest, AdminRequests
from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, ExponentialBackoff
from kbatch.core.client.cluster import Cluster, ClusterSnapshot, TopicUse
from kbatch.core.client.connections import Connections
from kbatch.core.client.coordinators import Coordinators
from kbatch.core.client.telemetry import Telemetry
from kbatch.errors import KafkaError, MismatchedEndpointTypeError
from kbatch.metrics import MetricsRegistry
from kbatch.protocol import features

if TYPE_CHECKING:
    from kbatch.config import ClientConfig
    from kbatch.core.client.calls import Call
    from kbatch.core.client.connections import Response
    from kbatch.core.client.telemetry import Payload

_Call = TypeVar("_Call", bound="Call")


class ClientEngine:
    """The engine of a client.

    Parameters
    ----------
    config : ClientConfig
    random : random.Random
        Source of jitter, and of the order in which equal nodes are tried.
    registry : MetricsRegistry
    now_ns : int
        The time of any monotonic clock, as in every other call.
    max_in_flight : int
        Maximum number of unanswered requests on a connection.
    topic_use : TopicUse
    purpose_count : int
        Maximum number of connections to one node, so that slow requests do not delay others.
    on_change : callable
        Called after a change of `snapshot`, `fatal_error` or `wrong_nodes`, and after a failed login.
    cluster_type : type of Cluster
        What the client asks for nodes.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        random: Random,
        registry: MetricsRegistry,
        now_ns: int,
        max_in_flight: int,
        topic_use: TopicUse,
        purpose_count: int = 1,
        on_change: Callable[[], object] = lambda: None,
        cluster_type: type[Cluster] = Cluster,
    ) -> None:
        self._on_change = on_change
        self._commands: deque[Callable[[int], None]] = deque()
        self._command_count = 0
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._cluster = cluster_type(config, self._backoff, now_ns, topic_use)
        self._cluster_version = -1
        self._connections = Connections(
            config,
            random,
            registry,
            now_ns,
            max_in_flight=max_in_flight,
            purpose_count=purpose_count,
            cluster_type=cluster_type,
        )
        self._coordinators = Coordinators(self._cluster, self._connections, self._backoff)
        self._admin_requests = AdminRequests(
            self._connections,
            self._cluster,
            self._coordinators,
            self._backoff,
            request_timeout_ms=config.request_timeout_ms,
            on_answer=self._request_answered,
        )
        self._metadata_request = AnyNodeRequest()
        self._random = random
        self.telemetry: Telemetry | None = None
        self._rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        self._fatal_error: KafkaError | None = None
        self._refusal: KafkaError | None = None  # the last authentication error that callers know
        self._registry = registry
        # rates are right only if counters are read at least once a window
        self._observe_every_ns = config.metrics_sample_window_ms * 1_000_000 // 2
        self._observe_ns = now_ns
        self._ran_ns = now_ns  # of the last `run`
        registry.gauge("metadata-age", lambda now_ms: now_ms / 1000 - self.snapshot.updated_ns / 1e9)

    # For any thread

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The latest metadata of the cluster."""
        return self._cluster.snapshot

    @property
    def given_up_epochs(self) -> int:
        """The number of times that known leader epochs were given up for lower ones."""
        return self._cluster.given_up

    @property
    def fatal_error(self) -> KafkaError | None:
        """The error that ended the client, or None."""
        return self._fatal_error

    def topic_error(self, topic: str) -> KafkaError | None:
        """Return the error that keeps the topic's metadata away, or None."""
        return self._cluster.topic_error(topic)

    @property
    def last_connection_failure(self) -> KafkaError | None:
        """The error of a node that throttles the client, or of the last failed connection; None if one became
        ready since.
        """
        return self._connections.hindrance(self._ran_ns)

    @property
    def group_member_id(self) -> str:
        """What the group calls this client; the empty string outside of groups."""
        return ""

    @property
    def asks_controllers(self) -> bool:
        """True if the nodes are controllers, which know no leaders and coordinators."""
        return self._cluster.is_of_controllers

    def is_answered(self, topic: str) -> bool:
        """True if brokers have said which partitions the topic has, or that they do not know it."""
        return self._cluster.is_answered(topic)

    @property
    def wrong_nodes(self) -> KafkaError | None:
        """The error of bootstrap addresses none of which is that of a node for this client; or None."""
        return self._connections.wrong_nodes

    @property
    def authentication_error(self) -> KafkaError | None:
        """The error of the last failed authentication; None if a connection was ready then or since."""
        return self._connections.authentication_error

    def submit(self, command: Callable[[int], None]) -> None:
        """Schedule `command(now_ns)` for the next `run`. The caller wakes the owner."""
        self._commands.append(command)

    def call(self, call: _Call, command: Callable[[_Call, int], None]) -> None:
        """Schedule a call for the next `run`, once even if it is submitted again; `call` has its result."""
        self.submit(partial(call.make, command))

    def submit_request(self, request: AdminRequest) -> None:
        """Schedule a request for the next `run`; it has the answer, `request.deadline_ns` at the latest."""
        self.submit(partial(self._admin_requests.submit, request))

    def withdraw_request(self, request: AdminRequest) -> None:
        """End a request whose caller has stopped waiting: nothing of it is sent or repeated any more."""
        request.withdraw()
        self.submit(partial(self._admin_requests.drop, request))

    def push_metrics(self, payload: Payload) -> None:
        """Push metrics to brokers from now on, if they want them. Call it before the first `run`."""
        self.telemetry = Telemetry(self._connections, self._backoff, self._random, payload, self._on_change)

    def want_topic(self, topic: str) -> None:
        """Request metadata of the topic, or newer ones."""

        def want(now_ns: int) -> None:
            self._cluster.want(topic, now_ns)
            if topic in self._cluster.snapshot.topics:
                self._cluster.request_update(now_ns)

        self.submit(want)

    # What happened

    def handle_resolved(self, host: str, port: int, addresses: Any, now_ns: int) -> None:
        """Handle the addresses of a name, or an OSError."""
        self._connections.handle_resolved(host, port, addresses, now_ns)

    def handle_preparing(self, connection_id: int, awaited: str, now_ns: int) -> None:
        """Record what the owner does before it connects; the empty string if that is over."""
        self._connections.handle_preparing(connection_id, awaited)

    def handle_connected(self, connection_id: int, now_ns: int) -> None:
        """Record that a requested connection is established."""
        self._connections.handle_connected(connection_id, now_ns)

    def handle_bytes(
        self, connection_id: int, data: bytes | bytearray | memoryview, now_ns: int
    ) -> memoryview | None:
        """Handle received bytes, and return where the next ones are best received. `data` is not kept."""
        return self._connections.handle_bytes(connection_id, data, now_ns)

    def handle_written(self, connection_id: int, written_bytes: int, now_ns: int) -> None:
        """Record that a connection has written more bytes."""
        self._connections.handle_written(connection_id, written_bytes, now_ns)

    def handle_closed(self, connection_id: int, error: BaseException | None, now_ns: int) -> None:
        """Record that a connection failed or ended."""
        self._connections.handle_closed(connection_id, error, now_ns)

    def handle_token(self, connection_id: int, token: bytes | KafkaError | None, now_ns: int) -> None:
        """Handle the next token of a login, None if its exchange is complete, or the error."""
        self._connections.handle_token(connection_id, token, now_ns)

    # What is to be done

    def is_ready(self, node_id: int, now_ns: int, purpose: int = 0) -> bool:
        """True if a request may be sent to the node now, on its connection for the purpose."""
        return self._connections.is_ready(node_id, now_ns, purpose)

    def run(self, now_ns: int) -> None:
        """Process all work that is possible now."""
        self._ran_ns = now_ns
        while self._commands:
            self._commands.popleft()(now_ns)
            self._command_count += 1
        if not self._connections.is_quiet(now_ns):
            self._connections.handle_timeout(now_ns)
            if self._connections.poll_disconnected():
                if self._follows_cluster(now_ns):
                    self._cluster.request_update(now_ns)
                self._note_refusal()
        self._adopt_cluster()
        if not self._cluster.is_calm(now_ns):
            self._request_metadata(now_ns)
        if self._admin_requests.open and self.fatal_error is None:
            self._admin_requests.run(now_ns)
        if self.telemetry is not None and self.fatal_error is None:
            self.telemetry.run(now_ns)
        self._work(now_ns)

    def is_quiet(self, now_ns: int) -> bool:
        """True if `run` would find no work; False if that is hard to say."""
        return (
            not self._commands
            and not self._admin_requests.open
            and self._cluster_version == self._cluster.version
            and (self._cluster.is_calm(now_ns) or not self._is_metadata_due(now_ns))
            and self._connections.is_quiet(now_ns)
            and (self.telemetry is None or not self.telemetry.is_due(now_ns))
            and not self._has_work(now_ns)
        )

    def observe(self, now_ns: int) -> None:
        """Record metrics of the work done, and read counters. Call it once a round, when nothing waits."""
        self._observe_work(now_ns)
        if now_ns >= self._observe_ns:
            self._observe_ns = now_ns + self._observe_every_ns
            self._registry.observe(now_ns // 1_000_000)

    def poll_actions(self) -> list[Any]:  # a subclass has actions of its own
        """Return the actions for the owner, in order."""
        return self._connections.poll_actions()

    def deadline_ns(self, now_ns: int) -> int:
        """Return the time of the next `run`, if nothing happens before."""
        deadline_ns = min(self._connections.deadline_ns, self._work_deadline_ns(now_ns))
        if self._admin_requests.open and self.fatal_error is None:
            deadline_ns = min(deadline_ns, self._admin_requests.deadline_ns())
        if self.telemetry is not None and self.fatal_error is None:
            deadline_ns = min(deadline_ns, self.telemetry.deadline_ns())
        if self._metadata_request.is_in_flight:
            return deadline_ns
        delay_ns = self._cluster.update_delay_ns(now_ns)
        if delay_ns == 0:
            return min(deadline_ns, self._metadata_request.retry_ns)
        return min(deadline_ns, now_ns + delay_ns) if delay_ns < NEVER_NS - now_ns else deadline_ns

    def fail(self, error: KafkaError) -> None:
        """Fail everything, now and for good."""
        if self._fatal_error is None:
            self._fatal_error = error
            try:
                self._admin_requests.fail(error)
            finally:  # callers wait for nothing else
                self._on_change()

    def _changes(self) -> tuple[int, int, int]:
        """Return numbers that differ after anything has happened, except that time has passed."""
        return self._command_count, self._connections.event_count, self._cluster.version

    # Metadata

    def _is_metadata_due(self, now_ns: int) -> bool:
        """True if `_request_metadata` has work."""
        return (
            not self._metadata_request.is_in_flight and self._cluster.is_due(now_ns)
        ) or self._cluster.must_rebootstrap(now_ns, is_hopeful=self._connections.is_hopeful)

    def _note_refusal(self) -> None:
        """Wake callers after a failed login, and if no address is that of a node for them: none of them has
        to wait for what cannot come.
        """
        before, self._refusal = self._refusal, self._connections.authentication_error
        is_refused = self._refusal is not None and self._refusal is not before
        if is_refused or self._connections.wrong_nodes is not None:
            self._on_change()

    def _adopt_cluster(self) -> None:
        if self._cluster.version == self._cluster_version:
            return
        self._cluster_version = self._cluster.version
        snapshot = self._cluster.snapshot
        self._connections.set_nodes(snapshot.nodes)
        self._cluster_changed(snapshot)
        self._on_change()

    def _request_metadata(self, now_ns: int) -> None:
        is_due = self._cluster.is_due(now_ns)
        is_cut_off = is_due and self._rebootstraps and self._connections.is_cut_off(now_ns)
        if is_cut_off or self._cluster.must_rebootstrap(now_ns, is_hopeful=self._connections.is_hopeful):
            self._connections.rebootstrap(now_ns)  # which fails a request that is in flight
            self._cluster.rebootstrap(now_ns)
            self._adopt_cluster()
            is_due = self._cluster.is_due(now_ns)
        if self._metadata_request.is_in_flight or not is_due:
            return
        node_id = self._metadata_request.find_node(self._connections, self._backoff, now_ns)
        if node_id is not None:
            self._metadata_request.is_in_flight = True
            for topic in self._topics_in_use():
                self._cluster.want(topic, now_ns)
            self._connections.send(node_id, self._cluster.make_request(), self._handle_metadata, now_ns)

    def _handle_metadata(self, response: Response) -> None:
        self._metadata_request.is_in_flight = False
        if response.message is None:
            assert response.error is not None
            self._cluster.handle_failure(response.error, response.now_ns)
        else:
            has_epochs = response.request.api_version >= features.METADATA_RELIABLE_EPOCHS
            self._cluster.handle_response(response.message, response.now_ns, has_epochs=has_epochs)
            if isinstance(self._cluster.last_error, MismatchedEndpointTypeError):
                self.fail(MismatchedEndpointTypeError(f"a node is of the other kind: {self._cluster.remedy}"))
            self._adopt_cluster()
            self._metadata_answered(response.request.node_id)

    # What a subclass adds

    def _work(self, now_ns: int) -> None:
        """Process the subclass's work that is possible now."""

    def _has_work(self, now_ns: int) -> bool:
        """True if `_work` may find something to do."""
        return False

    def _follows_cluster(self, now_ns: int) -> bool:
        """True if a lost connection is a reason to request metadata, and so to connect again."""
        return True

    def _work_deadline_ns(self, now_ns: int) -> int:
        """Return when `_work` has something to do, if nothing happens before."""
        return NEVER_NS

    def _observe_work(self, now_ns: int) -> None:
        """Record metrics of the work done."""

    def _topics_in_use(self) -> Iterable[str]:
        """Return topics that are in use although they were not requested lately."""
        return ()

    def _cluster_changed(self, snapshot: ClusterSnapshot) -> None:
        """Record that the snapshot has changed."""

    def _request_answered(self, response: Response) -> None:
        """Record the answer to a request of a call."""

    def _metadata_answered(self, node_id: int) -> None:
        """Record that the node has sent metadata."""
