"""Sender: sends batches from the accumulator to the brokers, and applies their answers to the batches.

Theory of operation. The engine calls `run` after every possible change. The sender fails expired batches,
gets the nodes that have batches from the accumulator, drains those that take a request, and sends each one
Produce request with one batch for each partition. The table of `outcome` decides about each batch of an
answer; `Idempotence` decides about the other batches of the partition. Each accepted batch is completed or
failed, once.

A batch that fails while its request is in flight, because it expired or was aborted, keeps its place in the
partition until the answer. The answer still says whether its sequence was used.

A batch that may be in the log is `possibly_persisted`: one of its requests was at least partly written, and
got no answer or an ambiguous error. Once true, this stays true.

After org.apache.kafka.clients.producer.internals.Sender.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kbatch._native.send.in_flight import InFlight, PartitionState
from kbatch._native.send.lane import Lane
from kbatch._native.send.produce_wire import AllAccepted
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.core.client.cluster import Node, node_of
from kbatch.core.producer.actions import Seal
from kbatch.core.producer.failures import Failures, errors_of, expiry_error, obstacles, refusal_of
from kbatch.core.producer.idempotence import Idempotence, WithoutIdempotence
from kbatch.core.producer.outcomes import GONE_WITH_THE_TOPIC, ErrorOutcome, outcome_of
from kbatch.core.producer.produce_attempt import ProduceAttempt
from kbatch.errors import (
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    OutOfOrderSequenceError,
    PrecedingRecordFailedError,
    UnsupportedVersionError,
    error_of,
    row_of,
)
from kbatch.logs import ClientLogger
from kbatch.protocol import features, messages
from kbatch.records import NO_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from kbatch._native.batch.delivery import Completion
    from kbatch._native.batch.delivery_queue import DeliveryQueue
    from kbatch._native.batch.producer_batch import ProducerBatch
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch._native.send.lane import LaneRequest
    from kbatch.config import ProducerConfig
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections, Request, Response
    from kbatch.core.producer.sender_metrics import SenderMetrics

logger = ClientLogger(__name__)

# The wait for a batch whose bytes a closing connection still uses.
HELD_BYTES_DELAY_NS = 1_000_000

_first_number = attrgetter("first_number")
_PartitionAnswer = messages.ProduceResponse.PartitionProduceResponse


class Sender:
    """Sends the batches of the accumulator.

    Parameters
    ----------
    config, accumulator, cluster, connections
    sequences : Idempotence or WithoutIdempotence
    metrics : SenderMetrics
    completed : list of Completion
        The list that gets finished batches, for their callbacks (`report`).
    failures : Failures
        The record of failed batches.

    Attributes
    ----------
    deadline_ns : int
        The time of the next `run`, if nothing happens before.
    judge_failure, handle_failure : callable
        Called before and after a batch fails, with its error, and whether it had a sequence; the first one
        also with whether the batch may be in the log. It returns marks for the error
        (`KafkaError.marked`). Transactions, if there are any, replace both.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        cluster: Cluster,
        connections: Connections,
        sequences: Idempotence | WithoutIdempotence,
        metrics: SenderMetrics,
        completed: list[Completion],
        failures: Failures,
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._cluster = cluster
        self._connections = connections
        self._sequences = sequences
        self._metrics = metrics
        self._completed = completed
        self._failures = failures
        self._request = messages.ProduceRequest(  # without its topics
            transactional_id=config.transactional_id,
            acks=config.acks,
            timeout_ms=config.request_timeout_ms,
        )
        self._states: dict[tuple[str, int], PartitionState] = {}
        self._unsealed: list[Seal] = []
        self._retries = config.retries
        self._now_ns = 0  # of the last call
        self.deadline_ns = NEVER_NS
        self._is_waiting = False  # the next work needs time or an event
        self._is_stopped = False
        self._ended: list[ProducerBatch] = []  # not reported yet
        self._lane: Lane | None = None
        self._nodes_of_engine: set[int] = set()  # whose batches the lane does not send
        self._has_left_batches = False  # to the lane
        self._searched_version = -1  # of the cluster, in which partitions were looked for
        self._was_offered = False  # a Produce request, by any node
        self.unanswered_count = 0  # Produce requests
        self.first_failure: KafkaError | None = None
        self.failure_count = 0
        self._last_stop = 0  # how many failures there were when one stopped records last
        self.fatal_error: KafkaError | None = None
        self.judge_failure: Callable[[KafkaError, bool, bool], dict[str, bool]] = lambda *failure: {}
        self.handle_failure: Callable[[KafkaError, bool], None] = lambda *failure: None

    # Work

    def run(self, now_ns: int) -> None:
        """Process all work that is possible now."""
        self._now_ns = now_ns
        if now_ns >= self._accumulator.next_expiry_ns:
            self._expire(now_ns)
        if self._is_stopped or self.first_failure is not None:
            self._enforce_stop()
        self._drain(now_ns)

    def is_quiet(self, now_ns: int) -> bool:
        """True if `run` would find no work: no batch waits; or the last run left no possible work, no event
        came since, and the busy nodes are still busy. The accumulator's alarm is not checked.
        """
        busy_nodes = self._accumulator.alarm.busy_nodes
        return (
            (self._is_waiting or not self._accumulator.has_undrained)
            and self.first_failure is None
            and self.fatal_error is None
            and now_ns < self.deadline_ns
            and (not busy_nodes or all(self._is_busy(node_id, now_ns) for node_id in busy_nodes))
        )

    def seal(self) -> list[Seal]:
        """Seal closed batches that are small, and return those that other threads must seal."""
        self._seal_small()
        return self.poll_unsealed()

    def poll_unsealed(self) -> list[Seal]:
        """Return the batches that other threads must seal."""
        unsealed, self._unsealed = self._unsealed, []
        return unsealed

    def _drain(self, now_ns: int) -> None:
        accumulator = self._accumulator
        self._seal_small()
        if accumulator.alarm.busy_nodes:
            self._note_busy(accumulator.alarm.busy_nodes, now_ns)
        nodes, delay_ns, leaderless = accumulator.ready(now_ns)
        self.deadline_ns = min(now_ns + delay_ns, accumulator.next_expiry_ns)
        for topic in leaderless:
            self._cluster.want(topic, now_ns)
            self._cluster.request_update(now_ns)
        if leaderless and self._cluster.version != self._searched_version:
            self._searched_version = self._cluster.version
            self._fail_lacking(leaderless, now_ns)
        sendable = [
            node_id
            for node_id in nodes
            if self._can_send(node_id, now_ns) and not self._leaves_to_lane(node_id, now_ns)
        ]
        if sendable:
            drained = accumulator.drain(sendable, self._config.max_request_size, now_ns)
            for node_id, batches in drained.items():
                if batches:
                    self._send(node_id, batches, now_ns)
        if left := accumulator.alarm.busy_nodes.union(filter(accumulator.has_undrained_for, nodes)):
            self._note_busy(left, now_ns)
        if self._seal_small():
            self._look_again(now_ns, 0)
        self._is_waiting = not self._unsealed

    def _can_send(self, node_id: int, now_ns: int) -> bool:
        if self.lacks_produce(node_id):
            self._accumulator.note_ready_node(node_id, now_ns, False)
            self._wait_for_produce(node_id, now_ns)
            return False
        ready_ns = self._connections.ready_at(node_id, now_ns, least_ns=1)
        is_ready = ready_ns <= now_ns
        self._accumulator.note_ready_node(node_id, now_ns, is_ready)
        if not is_ready:
            self.deadline_ns = min(self.deadline_ns, ready_ns)
        return is_ready

    def _leaves_to_lane(self, node_id: int, now_ns: int) -> bool:
        """True if the lane sends the node's batches in its next loan."""
        if node_id in self._nodes_of_engine:
            self._nodes_of_engine.discard(node_id)
            return False
        leaves = self.has_lane and self._connections.can_lend(
            node_id, messages.ProduceRequest, now_ns, highest=self._sequences.highest_produce_version
        )
        self._has_left_batches |= leaves
        return leaves

    # Nodes without Produce requests

    def lacks_produce(self, node_id: int) -> bool:
        """True if the node offers no Produce request that this producer may send, for now."""
        return self._connections.lacks(
            node_id, messages.ProduceRequest, highest=self._sequences.highest_produce_version
        )

    def _wait_for_produce(self, node_id: int, now_ns: int) -> None:
        """Leave batches to a node that lacks the request until it offers one, or another node leads. The
        producer ends if no node has ever offered one: then it does not fit to the cluster.
        """
        highest = self._sequences.highest_produce_version
        connections, kind = self._connections, messages.ProduceRequest
        if not self._was_offered:
            try:
                connections.check_offered(node_id, kind, now_ns, highest=highest)
            except UnsupportedVersionError as error:
                self.fail_for_good(error)
                return
        self._cluster.request_update(now_ns)
        self._look_again(now_ns, max(1, connections.renew_versions(node_id, kind, now_ns)))

    def _why_unsent(self, batch: ProducerBatch) -> str:
        """Return what keeps the batch from being sent; empty if nothing is known."""
        leader, _ = self._cluster.snapshot.leader(batch.topic, batch.partition)
        if (error := self._cluster.topic_error(batch.topic)) is not None:
            return str(error)
        if leader < 0:
            return "its partition has no known leader"
        if self.lacks_produce(leader):
            kind = messages.ProduceRequest
            highest = min(kind.versions.stop - 1, self._sequences.highest_produce_version)
            return f"node {leader} offers no Produce version {kind.versions.start}..{highest}"
        return ""

    def _words_if_unsent(self, completion: Completion) -> str | None:
        """Return what keeps a batch from being sent, for an error on any thread; None if it was sent."""
        for batch in self._accumulator.incomplete_batches():
            if batch.completion is completion and not batch.was_sent:
                return obstacles(self._failure(self._now_ns), self._why_unsent(batch))
        return None

    def _note_busy(self, nodes: Collection[int], now_ns: int) -> None:
        """Keep batches for nodes that cannot take a request from waking the sender: an event will. After a
        failure they do, since their failure must follow at once.
        """
        self._accumulator.alarm.busy_nodes = frozenset(
            node_id for node_id in nodes if self.first_failure is None and self._is_busy(node_id, now_ns)
        )

    def _is_busy(self, node_id: int, now_ns: int) -> bool:
        connections = self._connections
        if self.lacks_produce(node_id):
            return connections.renewal_delay_ns(node_id, now_ns) > 0
        return connections.delay_ns(node_id, now_ns) == NEVER_NS

    def _look_again(self, now_ns: int, delay_ns: int) -> None:
        self.deadline_ns = min(self.deadline_ns, now_ns + delay_ns)

    def _seal_small(self) -> bool:
        """Seal batches that are too small for another thread; leave the rest for `poll_unsealed`. True if it
        sealed any, which may be sent now.
        """
        has_sealed = False
        for batch in self._accumulator.take_unsealed():
            if batch.records_bytes > self._accumulator.seal_policy.inline_bytes:
                self._unsealed.append(Seal(batch))
            else:
                has_sealed |= batch.seal(wake=False)
        return has_sealed

    # Sending

    def _send(self, node_id: int, batches: list[ProducerBatch], now_ns: int) -> None:
        """Send the batches in one request; the node takes no other until it is written."""
        version = self._connections.version_of(
            node_id, messages.ProduceRequest, highest=self._sequences.highest_produce_version
        )
        self._was_offered = True
        attempt = ProduceAttempt(node_id, now_ns)
        self._admit_each(attempt, batches, now_ns)
        if not attempt.entries:
            return
        topic_ids = {topic: self._cluster.use(topic, now_ns) for topic in attempt.group_by_topic()}
        if NO_TOPIC_ID in topic_ids.values():
            version = min(version, features.PRODUCE_TOPIC_IDS - 1)
        attempt.topic_ids = topic_ids
        self.unanswered_count += 1
        attempt.request = self._connections.send(
            node_id,
            self._request,
            partial(self.handle_response, attempt),
            now_ns,
            expects_response=self._config.acks != 0,
            version=version,
            write=attempt.write,
            read=attempt.answer,
        )
        self._metrics.sent(attempt.entries, now_ns)

    def _admit_each(self, attempt: ProduceAttempt, batches: list[ProducerBatch], now_ns: int) -> None:
        """Put the batches that can be sent now into the request, with their sequences."""
        for batch in batches:
            entry = self._admit(batch, now_ns)
            if entry is not None:
                entry.is_in_flight = True
                entry.attempt = attempt
                entry.node_id = attempt.node_id
                attempt.entries.append(entry)
                batch.was_sent = True
                self._update_gate(entry.state)

    def _admit(self, batch: ProducerBatch, now_ns: int) -> InFlight | None:
        """Return the batch with its sequence; None after putting back a batch that cannot be sent now."""
        state = self._state_of(batch.topic, batch.partition)
        is_new = batch.attempts == 0 and not batch.has_sequence
        is_held_back = (is_new and self._sequences.holds_back(state, now_ns)) or batch.user_count > 1
        must_fail = self._is_stopped_for(state)  # it was accepted since the stop was enforced
        if is_held_back or must_fail:
            self._accumulator.reenqueue(batch, now_ns, attempted=False)
            self._update_gate(state)
            self._look_again(now_ns, 0 if must_fail else HELD_BYTES_DELAY_NS)
            return None
        return self._sequences.admit(state, batch, now_ns)

    def _state_of(self, topic: str, partition: int) -> PartitionState:
        state = self._states.get((topic, partition))
        if state is None:
            state = PartitionState(topic, partition)
            self._states[state.key] = state
            self._accumulator.note_state(topic, partition, state)
            self._metrics.open_topic(topic)
            self._look_up(state)
        return state

    def _look_up(self, state: PartitionState) -> None:
        """Copy leader, epoch and topic id of the partition from the snapshot."""
        snapshot = self._cluster.snapshot
        state.begin_leader(*snapshot.leader(*state.key))
        metadata = snapshot.topics.get(state.topic)
        if metadata is not None:
            state.begin_topic(metadata.topic_id)
            self._accumulator.note_topic_id(state.topic, metadata.topic_id)

    def _update_gate(self, state: PartitionState) -> None:
        gate = self._sequences.gate(state, self._now_ns)
        if gate != state.gate:
            state.gate = gate
            muted, fresh_blocked, retry_number = gate
            self._accumulator.set_gate(
                state.topic,
                state.partition,
                muted=muted,
                fresh_blocked=fresh_blocked,
                retry_number=retry_number,
            )

    # The lane

    def open_loans(
        self, deliver: Callable[[list[Completion]], object], queue: DeliveryQueue | None = None
    ) -> None:
        """Have a lane send what is usual, for an owner that calls `lend` before it waits.

        Parameters
        ----------
        deliver : Callable[[list[Completion]], object]
            Gets the completions of accepted batches, on any thread, in the order of a partition's records.
        queue : DeliveryQueue | None
            Its thread completes the batches.
        """
        self._accumulator.memory.why_unsent = self._words_if_unsent
        self._lane = lane = Lane(
            self._accumulator,
            client_id=self._config.client_id,
            transactional_id=self._config.transactional_id,
            acks=self._config.acks,
            request_timeout_ms=self._config.request_timeout_ms,
            max_in_flight=self._config.max_in_flight_requests_per_connection,
            max_request_size=self._config.max_request_size,
            idle_ns=self._config.kbatch_sequence_idle_ms * NS_PER_MS,
            is_idempotent=self._config.enable_idempotence,
            request_records=self._metrics.request_records,
            latency=self._metrics.latency,
            throttle=self._metrics.throttle,
            deliver=deliver,
            on_acknowledged=self._sequences.on_acknowledged,
            queue=queue,
        )
        if queue is not None:
            queue.source, queue.has_finished = lane.complete, lane.has_answered
            self._accumulator.memory.complete_accepted = lane.complete_without_callbacks
        self._connections.count_lent(lane.unanswered_count)

    def close_loans(self) -> None:
        """Note that the owner has ended: the lane gets no more loans."""
        if self._lane is not None:
            self._accumulator.memory.complete_accepted = self._accumulator.memory.why_unsent = None
            self._lane.complete()
            self._lane = None

    @property
    def has_lane(self) -> bool:
        """True if a lane may send now: the producer is in order."""
        return (
            self._lane is not None
            and self.fatal_error is None
            and self.first_failure is None
            and self._sequences.drains_new
        )

    def lend(self, descriptor_of: Callable[[int], int], now_ns: int) -> Lane | None:
        """Lend the ready connections to the lane and return it; None if it may not send.

        Parameters
        ----------
        descriptor_of : Callable[[int], int]
            Returns the descriptor of the socket of a connection, by its id.
        """
        lane = self._lane
        if lane is None or not self.has_lane:
            return None
        lane.begin(
            self._sequences.identity,
            is_changed=self._has_left_batches,
            transaction=self._sequences.lane_transaction,
            ends_when_answered=self._accumulator.completing,
        )
        self._has_left_batches = False
        nodes = set()
        for connection, version in self._connections.lendable(
            messages.ProduceRequest, now_ns, highest=self._sequences.highest_produce_version
        ):
            self._was_offered = True
            node_id = connection.node.node_id
            nodes.add(node_id)
            requests, sensors = self._connections.lend(connection)
            self.unanswered_count -= len(requests)
            lane.lend(
                node_id,
                connection.connection_id,
                descriptor_of(connection.connection_id),
                version,
                next_correlation_id=connection.next_correlation_id,
                queued_bytes=connection.queued_bytes,
                engine_count=len(connection.in_flight),
                usable_until_ns=min(connection.session.renew_ns, NEVER_NS),
                requests=requests,
                sensors=sensors,
            )
        self._accumulator.alarm.busy_nodes -= nodes
        return lane

    def take_back(self, now_ns: int) -> None:
        """End the loan to the lane."""
        assert self._lane is not None
        self._now_ns = now_ns
        self._is_waiting = False
        self._note_uses(self._lane)
        all_lent = self._lane.take_back()
        for lent in all_lent:
            if lent.needs_engine:
                self._nodes_of_engine.add(lent.node_id)
            self.unanswered_count += len(lent.requests)
            for request in lent.requests:
                self._sequences.note_sent(request.batches)
            self._connections.take_back(lent, messages.ProduceRequest, self._handlers_of, now_ns)
        for lent in all_lent:
            if lent.received:
                self._connections.handle_bytes(lent.connection_id, lent.received, now_ns)

    def _handlers_of(
        self, lent: LaneRequest
    ) -> tuple[Callable[[Response], None], Callable[[Request, bytes | memoryview], Any]]:
        """Return what handles and what reads the answer to a request of the lane."""

        def read(request: Request, frame: bytes | memoryview) -> Any:
            return self._attempt_of(lent, request).answer(request, frame)

        def handle(response: Response) -> None:
            self.handle_response(self._attempt_of(lent, response.request), response)

        return handle, read

    def _attempt_of(self, lent: LaneRequest, request: Request) -> ProduceAttempt:
        """Return the attempt that a request of the lane is."""
        attempt: ProduceAttempt | None = lent.attempt
        if attempt is not None:
            return attempt
        attempt = lent.attempt = ProduceAttempt(request.node_id, request.created_ns)
        for batch in lent.batches:
            entry = self._state_of(batch.topic, batch.partition).find(batch)
            assert entry is not None  # it keeps its place until the answer
            entry.attempt = attempt
            attempt.entries.append(entry)
        attempt.topic_ids = {topic: lent.topic_id(topic) for topic in attempt.group_by_topic()}
        attempt.request = request
        attempt.describe(request.api_version)
        self._metrics.sent(attempt.entries, request.created_ns)
        return attempt

    def observe(self) -> None:
        """Record uses of topics and nodes that the lane has left for later."""
        if self._lane is not None:
            self._note_uses(self._lane)

    def _note_uses(self, lane: Lane) -> None:
        topics, nodes = lane.take_uses()
        for topic, used_ns in topics:
            self._cluster.want(topic, used_ns)
        for node_id, answered_ns in nodes:
            self._connections.note_served(node_id, answered_ns)
        if topics:
            self._accumulator.pass_loads()

    # Answers

    def handle_response(self, attempt: ProduceAttempt, response: Response) -> None:
        """Handle the answer to a Produce request, or its failure."""
        now_ns = self._now_ns = response.now_ns
        self._is_waiting = False
        self.unanswered_count -= 1
        self.report()  # batches that an earlier answer ended are called back earlier
        answer = response.message
        self._metrics.answered(attempt.node_id, now_ns - attempt.sent_ns, answer, now_ns)
        states = [entry.state for entry in attempt.entries]
        if response.error is not None:
            self._handle_no_answer(attempt, response.error, now_ns)
        elif answer is None:  # acks=0: the request is written
            for entry in attempt.entries:
                self._succeed(entry, -1, -1)
        elif type(answer) is AllAccepted:
            for entry, base_offset, log_append_time_ms in answer.batches():
                self._succeed(entry, base_offset, log_append_time_ms)
        else:
            self._handle_answers(attempt, answer, now_ns)
        attempt.entries.clear()
        attempt.request = None
        for state in states:
            self._settle(state, now_ns)

    def _handle_no_answer(self, attempt: ProduceAttempt, error: KafkaError, now_ns: int) -> None:
        self._cluster.request_update(now_ns)
        code = ErrorCode.NETWORK_EXCEPTION  # whatever ended the connection, a refused login included
        for entry in attempt.entries:
            if attempt.was_written:
                self._note_unsure(entry)
            self._handle_error(entry, code, error, None, now_ns)

    def _handle_answers(self, attempt: ProduceAttempt, message: Any, now_ns: int) -> None:
        nodes = [node_of(each.node_id, each.host, each.port, each.rack) for each in message.node_endpoints]
        names = {topic_id: name for name, topic_id in attempt.topic_ids.items()}
        entries = {entry.state.key: entry for entry in attempt.entries}
        for topic in message.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for answer in topic.partition_responses:
                entry = entries.pop((name, answer.index), None)
                if entry is not None:
                    self._handle_answer(entry, answer, nodes, now_ns)
        for entry in entries.values():
            self._note_unsure(entry)
            error = error_of(ErrorCode.NETWORK_EXCEPTION, "the broker's answer leaves the partition out")
            self._handle_error(entry, ErrorCode.NETWORK_EXCEPTION, error, None, now_ns)

    def _handle_answer(
        self, entry: InFlight, answer: _PartitionAnswer, nodes: list[Node], now_ns: int
    ) -> None:
        code = answer.error_code
        if code == 0:
            self._succeed(entry, answer.base_offset, answer.log_append_time_ms)
            return
        leader = answer.current_leader
        if leader.leader_id >= 0:
            self._cluster.update_leader(
                entry.state.topic, entry.state.partition, leader.leader_id, leader.leader_epoch, nodes
            )
        row = row_of(code)
        if row.refresh_metadata:
            self._cluster.doubt_leader(entry.state.topic, entry.state.partition, now_ns)
        if row.refresh_metadata or code == ErrorCode.UNKNOWN_PRODUCER_ID:
            entry.state.doubt_leader()
        if code in GONE_WITH_THE_TOPIC:
            entry.batch.possibly_persisted = True
        elif row.possibly_persisted:
            self._note_unsure(entry)
        is_transactional = self._config.transactional_id is not None
        error = refusal_of(code, answer.error_message, is_transactional=is_transactional)
        self._handle_error(entry, code, error, answer, now_ns)

    def _handle_error(
        self, entry: InFlight, code: int, error: KafkaError, answer: _PartitionAnswer | None, now_ns: int
    ) -> None:
        """Apply the outcome of a failed attempt."""
        batch = entry.batch
        entry.is_in_flight = False
        entry.attempt = None
        entry.last_error = error
        outcome = outcome_of(code, answer, is_idempotent=self._sequences.is_idempotent)
        if outcome is ErrorOutcome.COMPLETE:
            self._succeed(entry, -1, -1)
        elif batch.is_done:
            self._sequences.fail(entry)
        elif outcome is ErrorOutcome.FATAL:
            self.fail_for_good(error)
        elif outcome is ErrorOutcome.RETRY:
            self._retry(entry, error, now_ns)
        elif self._sequences.is_proved(entry):
            self._complete_proved(entry)
        elif outcome is ErrorOutcome.GAP and not self._sequences.is_lost(entry):
            if not self._sequences.set_aside(entry):
                self._retry(entry, error, now_ns)
        elif outcome is ErrorOutcome.SPLIT and batch.record_count > 1 and not self._keeps_its_number(entry):
            self._split(entry)
        else:
            self._give_up(entry.batch, entry, *errors_of(error, answer, batch.record_count))

    def _note_unsure(self, entry: InFlight) -> None:
        """Record that the attempt may have put the batch into the log."""
        entry.is_ambiguous = entry.batch.possibly_persisted = True

    def _keeps_its_number(self, entry: InFlight) -> bool:
        """True if the batch must not be split: it may be in the log, or a later batch has passed it. Brokers
        check sizes before duplicates.
        """
        return self._sequences.is_idempotent and (entry.is_ambiguous or self._sequences.is_passed(entry))

    def _succeed(self, entry: InFlight, base_offset: int, log_append_time_ms: int) -> None:
        entry.is_in_flight = False
        entry.attempt = None
        lost = self._sequences.acknowledge(entry, self._now_ns)
        if entry.batch.complete(base_offset, log_append_time_ms):
            self._done(entry.batch)
        for each in lost:
            self._give_up(each.batch, each, each.last_error or OutOfOrderSequenceError())

    def _complete_proved(self, entry: InFlight) -> None:
        """Complete a batch that a later one proves to be in the log, at an unknown offset."""
        entry.state.forget(entry)
        if entry.batch.complete(-1):
            self._done(entry.batch)

    def _retry(self, entry: InFlight, error: KafkaError, now_ns: int) -> None:
        batch = entry.batch
        if batch.attempts >= self._retries:
            self._give_up(entry.batch, entry, error)
            return
        self._sequences.note_retry(entry)
        longest_ns = self._sequences.longest_backoff_ns(error, batch.attempts)
        self._accumulator.reenqueue(batch, now_ns, longest_ns=longest_ns)
        self._metrics.retried(batch, now_ns)

    def _split(self, entry: InFlight) -> None:
        batch = entry.batch
        try:
            parts = self._accumulator.split(batch)
        except CorruptRecordError as error:  # an encoded batch, which was never read before
            self._give_up(entry.batch, entry, error)
            return
        self._sequences.split(entry, parts)
        logger.warning(
            "%s-%d: a batch of %d records in %d bytes is larger than the broker's max.message.bytes, and is "
            "sent in parts; a smaller batch.size avoids this",
            batch.topic,
            batch.partition,
            batch.record_count,
            batch.size_bytes,
        )

    def _settle(self, state: PartitionState, now_ns: int) -> None:
        """Settle a gap of the partition, if possible, and update its gate."""
        settled = self._sequences.settle(state)
        if settled is not None:
            for entry in settled.lost:
                self._give_up(entry.batch, entry, entry.last_error or OutOfOrderSequenceError())
            for entry in settled.renumbered:
                self._accumulator.reenqueue(entry.batch, now_ns)
        self._update_gate(state)

    def identity_changed(self, now_ns: int) -> None:
        """Continue with batches that waited for the producer id."""
        self._is_waiting = False
        for state in self._states.values():
            if state.waits_for_identity and isinstance(self._sequences, Idempotence):
                for entry in self._sequences.renumber(state):
                    self._accumulator.reenqueue(entry.batch, now_ns)
            self._update_gate(state)

    def leaders_changed(self, topics: Collection[str]) -> None:
        """Use the leaders of topics in a new snapshot; they may free batches of busy nodes."""
        self._is_waiting = False
        self._accumulator.alarm.busy_nodes = frozenset()
        for state in self._states.values():
            if state.topic in topics:
                self._look_up(state)
            if state.in_flight:
                self._update_gate(state)

    # Giving up

    def _expire(self, now_ns: int) -> None:
        states: dict[PartitionState, None] = {}  # in order; each is settled once
        for batch in self._accumulator.expire(now_ns):
            state = self._state_of(batch.topic, batch.partition)
            states[state] = None
            entry = state.find(batch)
            if entry is not None and not entry.is_in_flight and self._sequences.is_proved(entry):
                self._complete_proved(entry)
            else:
                self._give_up(batch, entry, self._expiry_error(batch, entry, now_ns))
        for state in states:
            self._settle(state, now_ns)

    def _fail_lacking(self, topics: Collection[str], now_ns: int) -> None:
        """Fail batches of partitions that these topics do not have any more."""

        def is_lacking(batch: ProducerBatch, state: PartitionState, entry: InFlight | None) -> bool:
            is_waiting = entry is None or not entry.is_in_flight
            return (
                is_waiting
                and batch.topic in topics
                and self._cluster.lacks(batch.topic, batch.partition, now_ns)
            )

        def error_of_batch(batch: ProducerBatch) -> KafkaError:
            count = self._cluster.snapshot.partition_count(batch.topic)
            return error_of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{batch.topic}-{batch.partition}: the topic was deleted and made again with fewer "
                f"partitions: it has {count} now; send the records again, to one of these",
            )

        self._give_up_where(is_lacking, error_of_batch)

    def _expiry_error(self, batch: ProducerBatch, entry: InFlight | None, now_ns: int) -> KafkaError:
        why = "" if entry is not None and entry.is_in_flight else self._why_unsent(batch)
        return expiry_error(batch, entry, self._config, now_ns, self._failure(now_ns), why)

    def _failure(self, now_ns: int) -> KafkaError | None:
        return self._connections.authentication_error or self._connections.hindrance(now_ns)

    def _give_up(
        self,
        batch: ProducerBatch,
        entry: InFlight | None,
        error: KafkaError,
        record_errors: dict[int, KafkaError] | None = None,
    ) -> None:
        """Fail the batch; it keeps its place while its request is in flight."""
        if entry is not None and not entry.is_in_flight:
            self._sequences.fail(entry)
        if (
            entry is not None
            and entry.is_in_flight
            and (entry.attempt is None or entry.attempt.was_written)  # None: it is in a request of the lane
        ):
            batch.possibly_persisted = True
        is_ambiguous = batch.possibly_persisted or self._config.acks == 0
        had_sequence = batch.has_sequence or entry is not None
        marks = self.judge_failure(error, had_sequence, is_ambiguous)
        error = error.marked(possibly_persisted=is_ambiguous, **marks)
        if record_errors:
            record_errors = {
                index: each.marked(possibly_persisted=is_ambiguous, **marks)
                for index, each in record_errors.items()
            }
        self._failures.note(batch.completion)
        self.failure_count += 1  # before programs learn of it
        if batch.fail(error, record_errors):
            self._metrics.failed(batch, self._now_ns)
            self._done(batch)
            self._stop_after(batch, error)
            self.handle_failure(error, had_sequence)

    def _done(self, batch: ProducerBatch) -> None:
        self._ended.append(batch)

    def report(self) -> None:
        """Hand over the batches that ended since the last call, in the order of a partition's records,
        so that callbacks have that order too.
        """
        if self._ended:
            self._ended.sort(key=_first_number)
            self._completed += [batch.completion for batch in self._ended]
            self._ended.clear()

    def fail_for_good(self, error: KafkaError) -> None:
        """Fail all batches, now and for good, with the fatal form of an error."""
        if self.fatal_error is None:
            error = error.marked(fatal=True)
            error.add_note("the producer can only be closed: recreate() makes a new one in its place")
            self.end(error)

    def end(self, error: KafkaError) -> None:
        """Fail all batches, now and for good, with an error that says why the producer ended."""
        if self.fatal_error is None:
            self.fatal_error = error
            self.abort(error, queued=True, in_flight=True)

    def abort(self, error: KafkaError, *, queued: bool, in_flight: bool) -> None:
        """Fail with `error` batches that were never drained, those that were, or both."""
        self._give_up_where(
            lambda batch, state, entry: in_flight if batch.drained_ns >= 0 else queued, lambda batch: error
        )

    def abort_unsent(self, error: KafkaError) -> None:
        """Fail with `error` batches without a sequence, which were never sent."""
        self._give_up_where(lambda batch, state, entry: not batch.has_sequence, lambda batch: error)

    def _give_up_where(
        self,
        is_meant: Callable[[ProducerBatch, PartitionState, InFlight | None], bool],
        error_of_batch: Callable[[ProducerBatch], KafkaError],
    ) -> None:
        """Fail the unfinished batches for which `is_meant` is true, and settle each partition once."""
        states: dict[PartitionState, None] = {}  # in order
        for batch in self._accumulator.incomplete_batches():
            state = self._state_of(batch.topic, batch.partition)
            entry = state.find(batch)
            if is_meant(batch, state, entry):
                states[state] = None
                self._give_up(batch, entry, error_of_batch(batch))
        for state in states:
            self._settle(state, self._now_ns)

    def update_gates(self, states: Iterable[PartitionState]) -> None:
        """Update gates after a change outside the partitions."""
        for state in states:
            self._update_gate(state)

    # kbatch.on.delivery.failure

    def _stop_after(self, batch: ProducerBatch, error: KafkaError) -> None:
        policy = self._config.kbatch_on_delivery_failure
        if policy == "continue" or isinstance(error, PrecedingRecordFailedError):
            return
        self.first_failure = self.first_failure or error
        self._last_stop = self.failure_count
        if policy == "stop":
            self._is_stopped = True
        else:
            self._state_of(batch.topic, batch.partition).is_stopped = True

    def _is_stopped_for(self, state: PartitionState) -> bool:
        """True if no record of the partition may be sent until `resume`."""
        return self._is_stopped or state.is_stopped

    def _enforce_stop(self) -> None:
        """Fail all queued batches, which would pass a failed record, whether they were sent before or not."""
        policy = self._config.kbatch_on_delivery_failure
        self._give_up_where(
            lambda batch, state, entry: (
                self._is_stopped_for(state) and (entry is None or not entry.is_in_flight)
            ),
            lambda batch: PrecedingRecordFailedError(
                f"{batch.topic}-{batch.partition}: an earlier record failed ({self.first_failure}); with "
                f"kbatch.on.delivery.failure={policy}, later ones fail until resume()"
            ),
        )

    def resume(self, failure_count: int) -> None:
        """Send new records again after a failed one stopped them; records accepted before still fail.

        Do nothing if a record has failed since there were `failure_count` failures, of which the program may
        not have known.
        """
        self._enforce_stop()
        if self._last_stop > failure_count:
            return
        self._is_stopped = False
        self.first_failure = None
        for state in self._states.values():
            state.is_stopped = False
