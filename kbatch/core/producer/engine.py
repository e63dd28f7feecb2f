"""Engine: the whole client without sockets, threads and clocks.

Theory of operation. Whoever owns an engine, the sender's thread or a simulation, tells it what happened
(`handle_*`), lets it work (`run`), and does what it asks for (`poll_actions`): resolve a name, connect,
write, close, compress. `deadline_ns` says when to let it work again if nothing happens. Time comes with every
call. Batches that are done come out of `poll_completed`, so that their callbacks are run elsewhere.

User threads see the published cluster snapshot, and put commands into a queue that `run` empties. All other
state is the owner's alone.

The parts: Cluster knows topics, leaders and nodes; Connections has the connections to nodes and the requests
on them; Sender moves batches; Idempotence numbers them; Transactions begins and ends transactions; Questions
asks what users want to know of groups.

After org.apache.kafka.clients.producer.internals.Sender.runOnce.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from kbatch.core.client.asking import Asking
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS, ExponentialBackoff
from kbatch.core.client.cluster import Cluster, ClusterSnapshot
from kbatch.core.client.connections import Connections
from kbatch.core.client.coordinators import Coordinators
from kbatch.core.client.questions import Question, Questions
from kbatch.core.producer.failures import Failures
from kbatch.core.producer.idempotence import Idempotence, WithoutIdempotence
from kbatch.core.producer.measures import SenderMeasures
from kbatch.core.producer.producer_ids import ProducerIds
from kbatch.core.producer.sender import Sender
from kbatch.core.producer.transactional_order import TransactionalOrder
from kbatch.core.producer.transactions import Transactions
from kbatch.errors import KafkaError
from kbatch.metrics import MetricsRegistry

if TYPE_CHECKING:
    from kbatch._native.batch.delivery import Completion
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch.config import ProducerConfig
    from kbatch.core.client.actions import Action
    from kbatch.core.client.calls import Call
    from kbatch.core.client.connections import Response

logger = logging.getLogger(__name__)


class Engine:
    """The client of a producer.

    Parameters
    ----------
    config : ProducerConfig
    accumulator : RecordAccumulator
        Where records come from.
    random : random.Random
        All that chance decides: jitter, and the order in which equal nodes are tried.
    registry : MetricsRegistry
    now_ns : int
        Of any monotonic clock, as in every other call.
    on_change : callable
        Called when there is another `snapshot` or a `fatal_error`.
    first_counter : int
        Where sequences begin; for tests.

    Attributes
    ----------
    failures : Failures
        Batches that failed; for any thread.
    transactions : Transactions | None
        Where there is a transactional.id.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        *,
        random: Random,
        registry: MetricsRegistry,
        now_ns: int,
        on_change: Callable[[], object] = lambda: None,
        first_counter: int = 0,
    ) -> None:
        self._accumulator = accumulator
        self._on_change = on_change
        self._commands: deque[Callable[[int], None]] = deque()
        self._completed: list[Completion] = []
        self.failures = Failures()
        self._cluster = Cluster(
            config,
            random,
            now_ns,
            max_idle_ms=config.metadata_max_idle_ms,
            patience_ms=config.max_block_ms,
        )
        self._cluster_version = -1
        self._connections = Connections(
            config,
            random,
            registry,
            now_ns,
            max_in_flight=config.max_in_flight_requests_per_connection,
        )
        self._coordinators = Coordinators(self._cluster, self._connections)
        self._order = _order_of(config, first_counter)
        self._measures = SenderMeasures(registry, accumulator)
        self._sender = Sender(
            config,
            accumulator,
            self._cluster,
            self._connections,
            self._order,
            self._measures,
            self._completed,
            self.failures,
        )
        self.transactions: Transactions | None = None
        if isinstance(self._order, TransactionalOrder):
            self.transactions = Transactions(
                config,
                accumulator,
                self._cluster,
                self._connections,
                self._coordinators,
                self._order,
                self._sender,
                random=random,
                on_change=on_change,
            )
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._questions = Questions(
            self._connections, self._cluster, self._coordinators, self._backoff, on_change
        )
        self._producer_ids = ProducerIds(self._connections, self._backoff, self._order, self._sender)
        self._registry = registry
        # counters are to be read once a window at least, for rates to be right
        self._observe_every_ns = config.metrics_sample_window_ms * 1_000_000 // 2
        self._observe_ns = now_ns
        registry.gauge("metadata-age", lambda now_ms: now_ms / 1000 - self.snapshot.updated_ns / 1e9)
        self._rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        self._is_failed = False
        self._metadata = Asking()
        self._features_of: int | None = None  # a node to be asked

    # For any thread

    @property
    def snapshot(self) -> ClusterSnapshot:
        """What is known of the cluster."""
        return self._cluster.snapshot

    @property
    def fatal_error(self) -> KafkaError | None:
        """Why nothing can be sent any more."""
        return self._sender.fatal_error

    def topic_error(self, topic: str) -> KafkaError | None:
        """Why there is no metadata of the topic."""
        return self._cluster.topic_error(topic)

    @property
    def last_connection_failure(self) -> str | None:
        """Why a connection failed last; None where one has got ready since."""
        return self._connections.last_failure

    @property
    def authentication_error(self) -> KafkaError | None:
        """Why a node did not accept us; None where one has got ready since."""
        return self._connections.authentication_error

    def is_ready(self, node_id: int, now_ns: int) -> bool:
        """Whether a request may be sent to the node now; for the engine's own thread."""
        return self._connections.is_ready(node_id, now_ns)

    def submit(self, command: Callable[[int], None]) -> None:
        """Has `command(now_ns)` called by the next `run`; whoever submits wakes the owner."""
        self._commands.append(command)

    def call(self, call: Call, command: Callable[[Call, int], None]) -> None:
        """Has a method of `transactions` called, likewise, once however often it is asked for; it says what
        came of it.
        """
        self.submit(partial(call.make, command))

    def ask(self, question: Question) -> None:
        """Has a question put to the cluster, which says itself when it is answered."""
        self.submit(partial(self._questions.ask, question))

    def want_topic(self, topic: str) -> None:
        """The topic's metadata is needed, or newer ones than there are."""

        def want(now_ns: int) -> None:
            self._cluster.want(topic, now_ns)
            if topic in self._cluster.snapshot.topics:
                self._cluster.request_update(now_ns)

        self.submit(want)

    def mark(self, marker: Any) -> None:
        """Has `marker` come out of `poll_completed`, behind all that is done by now."""

        def append(now_ns: int) -> None:
            self._sender.report()
            self._completed.append(marker)

        self.submit(append)

    def purge(self, error: KafkaError, *, queued: bool, in_flight: bool) -> None:
        """Gives up what was never sent, what was, or both."""
        self.submit(lambda now_ns: self._sender.abort(error, queued=queued, in_flight=in_flight))

    def resume(self) -> None:
        """Records are sent again after a failed one stopped them."""
        self.submit(lambda now_ns: self._sender.resume())

    # What happened

    def handle_resolved(self, host: str, port: int, addresses: Any, now_ns: int) -> None:
        """The addresses behind a name, or an OSError."""
        self._connections.handle_resolved(host, port, addresses, now_ns)

    def handle_connected(self, connection_id: int, now_ns: int) -> None:
        """A connection that was asked for can be written to."""
        self._connections.handle_connected(connection_id, now_ns)

    def handle_bytes(self, connection_id: int, data: bytes | bytearray | memoryview, now_ns: int) -> None:
        """Bytes came in; `data` is not kept."""
        self._connections.handle_bytes(connection_id, data, now_ns)

    def handle_written(self, connection_id: int, written_bytes: int, now_ns: int) -> None:
        """So many more bytes of what was to be written have gone out."""
        self._connections.handle_written(connection_id, written_bytes, now_ns)

    def handle_closed(self, connection_id: int, error: BaseException | None, now_ns: int) -> None:
        """A connection could not be made, or has ended."""
        self._connections.handle_closed(connection_id, error, now_ns)

    # What is to be done

    def run(self, now_ns: int) -> None:
        """Does whatever can be done now."""
        while self._commands:
            self._commands.popleft()(now_ns)
        if not self._connections.is_quiet(now_ns):
            self._connections.handle_timeout(now_ns)
            if self._connections.poll_disconnected():
                self._cluster.request_update(now_ns)
        self._adopt_cluster()
        if not self._cluster.is_calm(now_ns):
            self._ask_for_metadata(now_ns)
        if self._sender.fatal_error is None:
            if self._questions.open:
                self._questions.run(now_ns)
            if self.transactions is not None:
                self._ask_for_features(self.transactions, now_ns)
                self.transactions.run(now_ns)
            elif self._order.needs_identity:
                self._producer_ids.run(now_ns)
        if self._sender.fatal_error is None:
            self._sender.run(now_ns)
        while self._sender.fatal_error is not None and self._accumulator.incomplete_count:
            self._sender.abort(self._sender.fatal_error, queued=True, in_flight=True)
            self._accumulator.ready(now_ns)  # who comes later still rings
        if self._sender.fatal_error is not None:
            self._tell_of(self._sender.fatal_error)

    def is_quiet(self, now_ns: int) -> bool:
        """Whether `run` would find nothing to do; where it is hard to tell, False.

        An owner that was woken lets it run all the same: nothing else sets the accumulator's alarm anew, and
        until then nobody rings it a second time.
        """
        return (
            self.transactions is None
            and not self._commands
            and not self._order.needs_identity
            and not self._questions.open
            and self._cluster_version == self._cluster.version
            and (self._cluster.is_calm(now_ns) or not self._is_metadata_due(now_ns))
            and self._connections.is_quiet(now_ns)
            and self._sender.is_quiet(now_ns)
        )

    def observe(self, now_ns: int) -> None:
        """For the metrics: what was sent is recorded, and counters are read. Once a round, when there is
        time, and nobody waits for it."""
        self._measures.record_sent()
        if now_ns >= self._observe_ns:
            self._observe_ns = now_ns + self._observe_every_ns
            self._registry.observe(now_ns // 1_000_000)

    def poll_actions(self) -> list[Action]:
        """What the owner has to do, in this order."""
        actions = self._connections.poll_actions()
        actions += self._sender.poll_unsealed()
        return actions

    def poll_completed(self) -> list[Completion]:
        """Batches that were completed or failed, for their callbacks."""
        self._sender.report()
        if not self._completed:
            return []
        completed = self._completed[:]
        self._completed.clear()
        return completed

    def deadline_ns(self, now_ns: int) -> int:
        """When to call `run` next, if nothing happens before."""
        deadlines = [self._connections.deadline_ns]
        if self._sender.fatal_error is None:
            deadlines.append(self._sender.deadline_ns)
            if self._questions.open:
                deadlines.append(self._questions.deadline_ns())
            if self.transactions is not None:
                deadlines.append(self.transactions.deadline_ns(now_ns))
            elif self._order.needs_identity:
                deadlines.append(self._producer_ids.deadline_ns)
        if not self._metadata.is_asked:
            delay_ns = self._cluster.update_delay_ns(now_ns)
            due_ns = now_ns + delay_ns if 0 < delay_ns < NEVER_NS - now_ns else NEVER_NS
            deadlines.append(self._metadata.retry_ns if delay_ns == 0 else due_ns)
        return min(deadlines)

    def fail(self, error: KafkaError) -> None:
        """Gives everything up, now and for good."""
        self._sender.fail_for_good(error)
        self._tell_of(self._sender.fatal_error or error)

    def _tell_of(self, fatal_error: KafkaError) -> None:
        if not self._is_failed:
            self._is_failed = True
            self._questions.fail(fatal_error)
            if self.transactions is not None:
                self.transactions.fail(fatal_error)
            self._on_change()

    # Metadata

    def _is_metadata_due(self, now_ns: int) -> bool:
        """Whether `_ask_for_metadata` has something to do."""
        return (
            not self._metadata.is_asked and self._cluster.is_due(now_ns)
        ) or self._cluster.must_rebootstrap(now_ns, is_hopeful=self._connections.is_hopeful)

    def _adopt_cluster(self) -> None:
        if self._cluster.version == self._cluster_version:
            return
        self._cluster_version = self._cluster.version
        snapshot = self._cluster.snapshot
        self._accumulator.publish(snapshot.view)
        self._connections.set_nodes(snapshot.nodes)
        self._sender.leaders_changed()
        self._on_change()

    def _ask_for_metadata(self, now_ns: int) -> None:
        is_due = self._cluster.is_due(now_ns)
        is_cut_off = is_due and self._rebootstraps and self._connections.is_cut_off(now_ns)
        if is_cut_off or self._cluster.must_rebootstrap(now_ns, is_hopeful=self._connections.is_hopeful):
            self._connections.rebootstrap(now_ns)  # by which a question that is out has failed
            self._cluster.rebootstrap(now_ns)
            self._adopt_cluster()
            is_due = True
        if self._metadata.is_asked or not is_due:
            return
        node_id = self._metadata.find_node(self._connections, self._backoff, now_ns)
        if node_id is not None:
            self._metadata.is_asked = True
            for topic in {batch.topic for batch in self._accumulator.incomplete_batches()}:
                self._cluster.want(topic, now_ns)  # it is not idle
            self._connections.send(node_id, self._cluster.make_request(), self._handle_metadata, now_ns)

    def _handle_metadata(self, response: Response) -> None:
        self._metadata.is_asked = False
        if response.message is None:
            assert response.error is not None
            self._cluster.handle_failure(response.error, response.now_ns)
        else:
            self._cluster.handle_response(response.message, response.now_ns)
            self._adopt_cluster()
            self._features_of = response.request.node_id

    def _ask_for_features(self, transactions: Transactions, now_ns: int) -> None:
        """Of the node that had metadata to tell; behind all that came with these, which may throttle us."""
        node_id, self._features_of = self._features_of, None
        if node_id is not None:
            transactions.version.ask(node_id, now_ns)


def _order_of(config: ProducerConfig, first_counter: int) -> Idempotence | WithoutIdempotence:
    """Return what gives batches their sequences, as the configuration asks for it."""
    max_in_flight = config.max_in_flight_requests_per_connection
    idle_ns = config.kbatch_sequence_idle_ms * NS_PER_MS
    if config.transactional_id is not None:
        return TransactionalOrder(max_in_flight=max_in_flight, idle_ns=idle_ns, first_counter=first_counter)
    if config.enable_idempotence:
        return Idempotence(
            max_in_flight=max_in_flight,
            idle_ns=idle_ns,
            resends_gaps=config.kbatch_sequence_gap == "resend",
            first_counter=first_counter,
        )
    return WithoutIdempotence(max_in_flight=max_in_flight)
