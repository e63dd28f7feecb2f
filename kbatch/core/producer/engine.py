"""ProducerEngine: the whole client of a producer, without sockets, threads and clocks.

Theory of operation. It is a ClientEngine that also seals batches (`Seal`) and sends them. Finished batches
come out of `poll_completed`, since their callbacks run elsewhere.

The parts: Sender moves batches; Idempotence numbers them; ProducerIds or Transactions gets the producer id;
Transactions begins and ends transactions.

After org.apache.kafka.clients.producer.internals.Sender.runOnce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from kbatch._native.send.cluster_view import ClusterView, TopicView
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.core.client.cluster import TopicUse
from kbatch.core.client.engine import ClientEngine
from kbatch.core.producer.failures import Failures
from kbatch.core.producer.idempotence import Idempotence, WithoutIdempotence
from kbatch.core.producer.producer_ids import ProducerIds
from kbatch.core.producer.sender import Sender
from kbatch.core.producer.sender_metrics import SenderMetrics
from kbatch.core.producer.transactional_sequences import TransactionalSequences
from kbatch.core.producer.transactions import Transactions
from kbatch.errors import KafkaError
from kbatch.metrics import MetricsRegistry

if TYPE_CHECKING:
    from kbatch._native.batch.delivery import Completion
    from kbatch._native.batch.delivery_queue import DeliveryQueue
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch._native.send.lane import Lane
    from kbatch.config import ProducerConfig
    from kbatch.core.client.cluster import ClusterSnapshot
    from kbatch.core.producer.actions import Seal


class ProducerEngine(ClientEngine):
    """The engine of a producer.

    Parameters
    ----------
    config : ProducerConfig
    accumulator : RecordAccumulator
        The source of batches.
    random, registry, now_ns, on_change
        Parameters of ClientEngine.
    first_counter : int
        The first sequence; for tests.

    Attributes
    ----------
    failures : Failures
        The failed batches; any thread may read them.
    transactions : Transactions | None
        None without a transactional.id.
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
        super().__init__(
            config,
            random=random,
            registry=registry,
            now_ns=now_ns,
            max_in_flight=config.max_in_flight_requests_per_connection,
            topic_use=TopicUse(
                max_idle_ms=config.metadata_max_idle_ms,
                patience_ms=config.max_block_ms,
                acl_operations="DESCRIBE and WRITE",
                creates=True,
            ),
            on_change=on_change,
        )
        self._accumulator = accumulator
        self._completed: list[Completion] = []
        self.failures = Failures()
        self._sequences = _sequences_of(config, first_counter)
        self._metrics = SenderMetrics(registry, accumulator)
        self._sender = Sender(
            config,
            accumulator,
            self._cluster,
            self._connections,
            self._sequences,
            self._metrics,
            self._completed,
            self.failures,
        )
        self._producer_ids = ProducerIds(self._connections, self._backoff, self._sequences, self._sender)
        self.transactions: Transactions | None = None
        if isinstance(self._sequences, TransactionalSequences):
            self.transactions = Transactions(
                config,
                accumulator,
                self._cluster,
                self._connections,
                self._coordinators,
                self._sequences,
                self._sender,
                self._backoff,
                on_change=on_change,
            )
        self._features_of: int | None = None  # the node whose features are to be requested
        self._published = self._cluster.snapshot
        self._views: dict[str, TopicView] = {}  # of its topics

    # For any thread

    @property
    def fatal_error(self) -> KafkaError | None:
        """The error that ended the producer, or None."""
        return self._sender.fatal_error

    def mark(self, marker: Any) -> None:
        """Have `poll_completed` return `marker` after all batches that are finished by then."""

        def append(now_ns: int) -> None:
            self._sender.report()
            self._completed.append(marker)

        self.submit(append)

    def purge(
        self,
        error: KafkaError,
        *,
        queued: bool,
        in_flight: bool,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Schedule the failure of batches that were never sent, of those that were, or of both, unless the
        caller does not want it any more.
        """

        def purge(now_ns: int) -> None:
            if is_wanted():
                self._sender.abort(error, queued=queued, in_flight=in_flight)

        self.submit(purge)

    def resume(self) -> None:
        """Send records again after a failed one stopped them, unless another fails at the same time."""
        failure_count = self._sender.failure_count
        self.submit(lambda now_ns: self._sender.resume(failure_count))

    # The lane

    def open_loans(
        self, deliver: Callable[[list[Completion]], object], queue: DeliveryQueue | None = None
    ) -> None:
        """Have a lane send what is usual (`Sender.open_loans`)."""
        self._sender.open_loans(deliver, queue)

    def close_loans(self) -> None:
        """Note that the lane gets no more loans."""
        self._sender.close_loans()

    def lend(self, descriptor_of: Callable[[int], int], now_ns: int) -> Lane | None:
        """Lend the connections to the lane (`Sender.lend`), while the owner waits; None if it cannot send."""
        return self._sender.lend(descriptor_of, now_ns)

    def take_back(self, now_ns: int) -> None:
        """Take the connections back after the loan, and run next."""
        self._sender.take_back(now_ns)

    def seal(self) -> list[Seal]:
        """Seal closed batches, and return those that other threads must seal (`Sender.seal`)."""
        return self._sender.seal()

    # What is to be done

    def is_ready(self, node_id: int, now_ns: int, purpose: int = 0) -> bool:
        """True if a Produce request may be sent to the node now."""
        return super().is_ready(node_id, now_ns, purpose) and not self._sender.lacks_produce(node_id)

    def poll_actions(self) -> list[Any]:
        actions: list[Any] = self._connections.poll_actions()
        actions += self._sender.poll_unsealed()
        return actions

    def poll_completed(self) -> list[Completion]:
        """Return the completed and failed batches, for their callbacks."""
        self._sender.report()
        if not self._completed:
            return []
        completed = self._completed[:]
        self._completed.clear()
        return completed

    def fail(self, error: KafkaError) -> None:
        self._sender.end(error)
        error = self._sender.fatal_error or error
        if self.transactions is not None:
            self.transactions.fail(error)
        super().fail(error)

    def _work(self, now_ns: int) -> None:
        if self._sender.fatal_error is None:
            if self.transactions is not None:
                self._request_features(self.transactions, now_ns)
                self.transactions.run(now_ns)
            elif self._sequences.needs_identity:
                self._producer_ids.run(now_ns)
        if self._sender.fatal_error is None:
            self._sender.run(now_ns)
        while self._sender.fatal_error is not None and self._accumulator.incomplete_count:
            self._sender.abort(self._sender.fatal_error, queued=True, in_flight=True)
            self._accumulator.ready(now_ns)  # later appenders still ring the alarm
        if self._sender.fatal_error is not None:
            self.fail(self._sender.fatal_error)

    def _has_work(self, now_ns: int) -> bool:
        """True if the producer may have work. A woken owner runs the engine in any case: nothing else resets
        the accumulator's alarm, which rings once.
        """
        return (
            self.transactions is not None
            or self._sequences.needs_identity
            or not self._sender.is_quiet(now_ns)
        )

    def _work_deadline_ns(self, now_ns: int) -> int:
        if self._sender.fatal_error is not None:
            return NEVER_NS
        deadline_ns = self._sender.deadline_ns
        if self.transactions is not None:
            return min(deadline_ns, self.transactions.deadline_ns(now_ns))
        if self._sequences.needs_identity:
            return min(deadline_ns, self._producer_ids.deadline_ns)
        return deadline_ns

    def _observe_work(self, now_ns: int) -> None:
        self._sender.observe()

    # Metadata

    def _topics_in_use(self) -> Iterable[str]:
        return {batch.topic for batch in self._accumulator.incomplete_batches()}

    def _cluster_changed(self, snapshot: ClusterSnapshot) -> None:
        # few topics change: the first record to each of thousands brings a snapshot in which one is new
        changed = snapshot.changed_since(self._published)
        self._published = snapshot
        for topic in changed:
            if count := snapshot.partition_count(topic):
                self._views[topic] = TopicView(snapshot.leader(topic, number) for number in range(count))
            else:
                self._views.pop(topic, None)
        self._accumulator.publish(ClusterView(self._views))
        self._sender.leaders_changed(changed)

    def _metadata_answered(self, node_id: int) -> None:
        self._features_of = node_id

    def _request_features(self, transactions: Transactions, now_ns: int) -> None:
        """Request features from the node that sent metadata, after handling it, as it may throttle."""
        node_id, self._features_of = self._features_of, None
        if node_id is not None:
            transactions.version.request(node_id, now_ns)


def _sequences_of(config: ProducerConfig, first_counter: int) -> Idempotence | WithoutIdempotence:
    """Return what gives batches their sequences, as the configuration asks for it."""
    max_in_flight = config.max_in_flight_requests_per_connection
    idle_ns = config.kbatch_sequence_idle_ms * NS_PER_MS
    if config.transactional_id is not None:
        return TransactionalSequences(
            max_in_flight=max_in_flight, idle_ns=idle_ns, first_counter=first_counter
        )
    if config.enable_idempotence:
        return Idempotence(
            max_in_flight=max_in_flight,
            idle_ns=idle_ns,
            resends_gaps=config.kbatch_sequence_gap == "resend",
            first_counter=first_counter,
        )
    return WithoutIdempotence(max_in_flight=max_in_flight)
