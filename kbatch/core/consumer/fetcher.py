"""Fetcher: asks brokers for records, and makes results of their answers.

Theory of operation. The engine calls `run` after every possible change. That looks at all partitions, of
which there may be thousands: in a run of the engine before which nothing has happened, `run_if_due` runs
instead. Each node has at most one Fetch in flight, on a connection of its own (FETCH_PURPOSE), so that its
long wait delays no other request. A request names the partitions whose leader, or replica in the client's
rack, the node is, and that are neither backed off, paused, nor behind with too many unread bytes. It asks for
no more bytes than the budget reserves for it.

`handle_response` reads no records: FetchedRecords walks the headers of the batches, which gives the next
position, and then the next Fetch may go out. Partitions with records move to the end of the order, so that
none starves if answers are full. An answer counts for a partition only if it is that of the partition's
latest request (`PartitionState.in_flight`). The table of `outcomes` decides about errors.

After org.apache.kafka.clients.consumer.internals.AbstractFetch and FetchCollector; KIP-74 (order), KIP-227
(sessions), KIP-320 and KIP-595 (epochs), KIP-392 (replicas), KIP-516 (topic ids), KIP-951 (leaders in
answers).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kbatch._native.fetch.fetched_batches import FetchedRecords
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS, ExponentialBackoff
from kbatch.core.client.cluster import node_of
from kbatch.core.client.connection import MAX_FRAME_BYTES
from kbatch.core.client.lasting_faults import LastingFaults
from kbatch.core.client.routes import error_of_partition
from kbatch.core.consumer.budget import Budget, FrameShare, RowsAwaited
from kbatch.core.consumer.fetch_attempt import FetchAttempt
from kbatch.core.consumer.fetch_session import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionRequest,
    Wanted,
)
from kbatch.core.consumer.leader_requests import CONSUMER
from kbatch.core.consumer.outcomes import FETCH_OUTCOMES, FetchOutcome
from kbatch.core.consumer.partition_state import NO_END, NO_EPOCH, FetchEvent, FetchState, PartitionState
from kbatch.core.consumer.positions import TOPIC_PATIENCE_NS, Positions
from kbatch.core.consumer.results import Fetched, Result
from kbatch.errors import (
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
    error_of,
    row_of,
)
from kbatch.logs import ClientLogger
from kbatch.protocol import features, messages
from kbatch.records import NO_TOPIC_ID

if TYPE_CHECKING:
    from kbatch._native.fetch.frames import FramePool
    from kbatch.config import ConsumerConfig
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections, Response
    from kbatch.core.consumer.distances import Distances
    from kbatch.core.consumer.fetch_metrics import FetchMetrics
    from kbatch.records import TopicPartition

logger = ClientLogger(__name__)

FETCH_PURPOSE = 1
# An answer has headers around the records, which the largest frame must hold too.
MAX_REQUEST_BYTES = MAX_FRAME_BYTES - (1 << 20)
# An error that a partition has for so long is logged. One without another error for longer is over.
LASTING_NS, FORGOTTEN_NS = 10_000 * NS_PER_MS, 60_000 * NS_PER_MS
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
# The failures in a row after which another node, or position, is tried at once: a leader names another one,
# a replica lags behind.
RETRIES_AT_ONCE = 2
_FETCHING = FetchState.FETCHING
_topic_id = attrgetter("topic_id")
_FetchPartition = messages.FetchRequest.FetchPartition
_FetchTopic = messages.FetchRequest.FetchTopic
_ForgottenTopic = messages.FetchRequest.ForgottenTopic


class Fetcher:
    """Fetches the records of all partitions that are read.

    Parameters
    ----------
    config, cluster, connections, backoff
    positions : Positions
    budget : Budget
    frames : FramePool
        The memory of answers.
    results : list of Result
        Gets what is for the program.
    metrics : FetchMetrics
    distances : Distances

    Attributes
    ----------
    partitions : dict[TopicPartition, PartitionState]
        The partitions, in the order in which they are asked for.
    deadline_ns : int
        The time of the next `run`, if nothing happens before.
    awaits_memory : bool
        True if memory that is released may let a request go out, or if no answer is due. Any thread may read
        it.
    rows_awaited : RowsAwaited | None
        The poll that waits for more rows than were fetched.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        connections: Connections,
        backoff: ExponentialBackoff,
        positions: Positions,
        budget: Budget,
        frames: FramePool,
        results: list[Result],
        metrics: FetchMetrics,
        distances: Distances,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._connections = connections
        self._backoff = backoff
        self._positions = positions
        self._budget = budget
        self._frames = frames
        self._results = results
        self._metrics = metrics
        self._distances = distances
        self._faults = LastingFaults(logger)
        # the times of the first and the last error of partitions whose last answer was an error
        self._failing_ns: dict[TopicPartition, tuple[int, int]] = {}
        self._unobserved: deque[Callable[[], object]] = deque()
        self._reads_committed = config.isolation_level == "read_committed"
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[int, FetchAttempt] = {}
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.deadline_ns = NEVER_NS
        self.awaits_memory = self._awaited_memory = True
        self.rows_awaited: RowsAwaited | None = None

    # Requests

    def run(self, now_ns: int) -> None:
        """Send the requests that are possible now."""
        self.deadline_ns = NEVER_NS
        fetchable: dict[int, list[PartitionState]] = {}  # by node
        is_short = False
        awaited = self.rows_awaited
        backlog_bytes = self._budget.backlog_bytes(len(self.partitions), is_shared=awaited is None)
        snapshot = self._cluster.snapshot
        last_node_id = -1
        for state in self.partitions.values():
            if state.state is not _FETCHING:
                continue
            if state.snapshot is snapshot and state.replica_id < 0:
                node_id = state.leader_id
            elif (node_id := self._node_of(state, now_ns)) < 0:
                continue
            if node_id != last_node_id:
                last_node_id = node_id
                attempt, states = self._in_flight.get(node_id), fetchable.setdefault(node_id, [])
            if state.in_flight is not None and state.in_flight is not attempt:
                state.in_flight = None  # what another node still answers does not count any more
            if now_ns < state.not_before_ns:
                self._look_again(state.not_before_ns)
            elif state.in_flight is None and not state.is_paused:
                if state.backlog_bytes <= backlog_bytes:
                    states.append(state)
                else:
                    is_short = True
        for node_id, states in fetchable.items():
            if states and node_id not in self._in_flight:
                is_short |= not self._fetch(node_id, states, len(fetchable), now_ns)
        if awaited is not None:
            awaited.note(is_short)
        self.awaits_memory = self._awaited_memory = is_short or not self._in_flight

    def run_if_due(self, now_ns: int) -> None:
        """Run if the time for it has come. Nothing else has happened since the last `run`."""
        if now_ns >= self.deadline_ns:
            self.run(now_ns)
        else:
            self.awaits_memory = self._awaited_memory

    def _look_again(self, when_ns: int) -> None:
        self.deadline_ns = min(self.deadline_ns, when_ns)

    def _node_of(self, state: PartitionState, now_ns: int) -> int:
        """Return the node to fetch from; -1 if there is none now."""
        topic, partition = state.partition
        snapshot = self._cluster.snapshot
        known = snapshot.topics.get(topic)
        topic_id = NO_TOPIC_ID if known is None else known.topic_id
        if NO_TOPIC_ID not in (topic_id, state.assigned_id) and topic_id != state.assigned_id:
            self._cluster.request_update(now_ns)  # which are old, or else the group takes it back
            return -1
        is_other = topic_id not in (NO_TOPIC_ID, state.topic_id)
        if is_other and not self._positions.accept_topic(state, topic_id, now_ns):
            self._look_again(max(state.created_ns + TOPIC_PATIENCE_NS, now_ns))
            return -1
        if state.is_topic_given and topic_id == state.topic_id:
            state.is_topic_sure = True  # metadata is not older than the position
        if state.replica_id in snapshot.nodes and now_ns < state.replica_until_ns:
            return state.replica_id
        state.replica_id = -1
        leader, leader_epoch = snapshot.leader(topic, partition)
        if leader >= 0:
            state.leader_id, state.leader_epoch, state.snapshot = leader, leader_epoch, snapshot
            return leader
        error = error_of_partition(self._cluster, state.partition, state.created_ns)
        if error is not None:
            self._positions.fail(state, error)
        elif known is not None:
            self._cluster.request_update(now_ns)
        return -1

    def _fetch(self, node_id: int, states: list[PartitionState], node_count: int, now_ns: int) -> bool:
        """Send a request for these partitions if the node takes it and there is memory for the answer. Return
        False if only memory is missing.
        """
        connections, session = self._connections, self._sessions.setdefault(node_id, FetchSession())
        if now_ns < session.not_before_ns:
            self._look_again(session.not_before_ns)
            return True
        ready_ns = connections.ready_at(node_id, now_ns, FETCH_PURPOSE)
        if ready_ns > now_ns:
            self._look_again(ready_ns)
            return True
        try:
            version = connections.version_of(node_id, messages.FetchRequest, FETCH_PURPOSE)
        except UnsupportedVersionError as error:
            for state in states:
                self._positions.fail(state, error)
            return True
        if NO_TOPIC_ID in map(_topic_id, states):
            version = min(version, features.FETCH_TOPIC_IDS - 1)
        if version < features.FETCH_COMPARES_EPOCHS:
            states = [state for state in states if self._is_valid(state, now_ns)]
        size_bytes = self._request_bytes(states, node_count)
        if not states:
            return True
        if not self._budget.reserve(size_bytes):
            return False
        attempt = FetchAttempt(node_id, version, session, size_bytes, now_ns)
        self._send(attempt, states, now_ns)
        return True

    def _is_valid(self, state: PartitionState, now_ns: int) -> bool:
        """True if the position is known to be in the current leader's log, or no epoch of it is known."""
        _, leader_epoch = self._cluster.snapshot.leader(*state.partition)
        if NO_EPOCH in (state.last_epoch, leader_epoch) or state.checked_epoch == leader_epoch:
            return True
        self._positions.validate(state, now_ns)
        return False

    def _request_bytes(self, states: list[PartitionState], node_count: int) -> int:
        """Return the bytes that a request asks for and reserves."""
        wanted_bytes = len(states) * self._config.max_partition_fetch_bytes
        most_bytes = min(
            self._config.fetch_max_bytes, self._budget.request_bytes(node_count), MAX_REQUEST_BYTES
        )
        return max(min(wanted_bytes, most_bytes), 1)

    def _send(self, attempt: FetchAttempt, states: list[PartitionState], now_ns: int) -> None:
        config, session = self._config, attempt.session
        # a batch that did not fit is asked for in full, although it is not reserved
        most_bytes = max(attempt.reserved_bytes, self._ask(attempt, states))
        if attempt.version < features.FETCH_SESSIONS:
            part = SessionRequest(NO_SESSION, FINAL_EPOCH, attempt.wanted, [])
        else:
            attempt.is_full = not session.is_open
            part = session.request(attempt.wanted)
        message = messages.FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=most_bytes,
            isolation_level=int(self._reads_committed),
            session_id=part.session_id,
            session_epoch=part.epoch,
            topics=_topics(part.named),
            forgotten_topics_data=_forgotten(part),
            rack_id=config.client_rack,
        )
        self._in_flight[attempt.node_id] = attempt
        self._connections.send(
            attempt.node_id,
            message,
            partial(self.handle_response, attempt),
            now_ns,
            version=attempt.version,
            purpose=FETCH_PURPOSE,
            memory=self._frames.take,
            read=attempt.read,
        )

    def close_sessions(self, now_ns: int) -> None:
        """Close the sessions. A node that is busy with a Fetch keeps its own."""
        for node_id, session in self._sessions.items():
            is_idle = session.is_open and node_id not in self._in_flight
            if is_idle and self._connections.is_ready(node_id, now_ns, FETCH_PURPOSE):
                message = messages.FetchRequest(
                    replica_id=CONSUMER, session_id=session.session_id, session_epoch=FINAL_EPOCH
                )
                self._connections.send(node_id, message, lambda response: None, now_ns, purpose=FETCH_PURPOSE)
                session.end(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _ask(self, attempt: FetchAttempt, states: list[PartitionState]) -> int:
        """Record the fields of each partition in the request: the same object as before if none has changed.
        Return the size of the largest batch that did not fit in an answer before; 0 if all did.
        """
        snapshot = self._cluster.snapshot
        has_epochs = attempt.version >= features.FETCH_COMPARES_EPOCHS
        partition_bytes, needed_bytes = self._config.max_partition_fetch_bytes, 0
        partitions, wanted, topic_names = attempt.partitions, attempt.wanted, attempt.topic_names
        for state in states:
            partition, topic_id = state.partition, state.topic_id
            has_leader = state.snapshot is snapshot
            max_bytes = partition_bytes
            if state.needed_bytes:
                max_bytes = max(max_bytes, state.needed_bytes)
                needed_bytes = max(needed_bytes, state.needed_bytes)
            asked = (
                topic_id,
                state.leader_epoch if has_leader else snapshot.leader(*partition)[1],
                state.fetch_offset,
                state.last_epoch if has_epochs else NO_EPOCH,
                max_bytes,
            )
            if state.wanted != asked:
                state.wanted = Wanted(*asked)
            state.in_flight = attempt
            partitions[partition] = state
            wanted[partition] = state.wanted
            topic_names[topic_id] = partition.topic
        return needed_bytes

    # Answers

    def handle_response(self, attempt: FetchAttempt, response: Response) -> None:
        """Handle the answer to a request, or its failure."""
        now_ns, answer = response.now_ns, response.message
        del self._in_flight[attempt.node_id]
        self._look_again(now_ns)
        self._budget.end_reservation(attempt.reserved_bytes)
        if answer is None:
            assert response.error is not None
            self._fail_attempt(attempt, response.error, now_ns)
        else:
            throttle_ms = answer.throttle_time_ms
            self._unobserved.append(
                partial(self._metrics.answered, attempt.node_id, attempt.sent_ns, throttle_ms, now_ns)
            )
            if answer.error_code:
                self._refuse_all(attempt, answer, now_ns)
            else:
                attempt.session.handle_answer(answer.session_id)
                self._take(attempt, answer, now_ns)
        for state in attempt.partitions.values():
            if state.in_flight is attempt:
                state.in_flight = None

    def observe(self) -> None:
        """Record the metrics of answers; the program got the records first."""
        while self._unobserved:
            self._unobserved.popleft()()

    def _fail_attempt(self, attempt: FetchAttempt, error: KafkaError, now_ns: int) -> None:
        """Handle a lost answer: the next request is complete, and goes to the leader."""
        attempt.session.end()
        for state in attempt.partitions.values():
            if state.in_flight is attempt:
                state.replica_id = -1
                if isinstance(error, ProtocolError):  # it would not be better a second time
                    self._positions.fail(state, error)
                else:
                    state.back_off(self._backoff, now_ns, at_once=RETRIES_AT_ONCE)

    def _refuse_all(self, attempt: FetchAttempt, answer: Any, now_ns: int) -> None:
        """Handle an error of the whole request."""
        code, was_open = ErrorCode(answer.error_code), attempt.session.is_open
        attempt.session.end(code)
        if code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self._cluster.request_update(now_ns)
        if code in SESSION_ERRORS and was_open:  # a request without a session follows
            attempt.session.back_off(self._backoff, now_ns, at_once=1)
            return
        for state in attempt.partitions.values():
            if state.in_flight is attempt:
                self._handle_error(state, code, attempt, now_ns, is_hinted=False)

    def _take(self, attempt: FetchAttempt, answer: Any, now_ns: int) -> None:
        """Handle the parts of an answer. Those with records share its memory, and come before failures
        of others.
        """
        nodes = [node_of(*node) for node in answer.node_endpoints]
        found, before = [], len(self._results)
        is_empty = not answer.throttle_time_ms and not any(part.records for part in answer.partitions)
        bounded = (each for each in attempt.partitions.values() if each.end_offset != NO_END)
        without = [each for each in bounded if each.in_flight is attempt] if is_empty else []
        for part in answer.partitions:
            state = attempt.state_of(part)
            if state is None:
                continue
            says_more = part.error_code or part.preferred_read_replica >= 0 or part.diverging_end_offset >= 0
            if says_more and state in without:
                without.remove(state)
            if part.error_code:
                is_hinted = part.leader_id >= 0 and self._cluster.update_leader(
                    *state.partition, part.leader_id, part.leader_epoch, nodes
                )
                self._handle_error(state, part.error_code, attempt, now_ns, is_hinted=is_hinted)
            elif (fetched := self._take_part(state, part, attempt, now_ns)) is not None:
                found.append(fetched)
            state.in_flight = None
        with_records = [each for each in found if each.records is not None]
        if with_records:
            self._budget.charge(attempt.frame_bytes)
            share = FrameShare(self._budget, attempt.frame_bytes, len(with_records))
            for each in with_records:
                each.charge(share)
        if found:
            self._unobserved.append(partial(self._metrics.fetched, found, now_ns))
            self._results[before:before] = found
        for state in without:
            self._look_at_remaining(state, attempt, now_ns)
        if attempt.is_full:
            for state in attempt.partitions.values():
                if state.in_flight is attempt:  # the answer leaves it out, which no correct one does
                    state.back_off(self._backoff, now_ns, at_once=RETRIES_AT_ONCE)

    def _look_at_remaining(self, state: PartitionState, attempt: FetchAttempt, now_ns: int) -> None:
        """Handle an answer without any record that had room for some: the partition has none either, so the
        remainder of its range may be a gap. A replica may lag behind the leader.
        """
        is_there = state.fetch_offset < state.end_offset <= self._distances.end_of(state)
        if is_there and state.state is FetchState.FETCHING and attempt.node_id != state.replica_id:
            self._positions.check_remaining(state, now_ns)

    def _take_part(
        self, state: PartitionState, part: Any, attempt: FetchAttempt, now_ns: int
    ) -> Fetched | None:
        """Handle a partition's part of an answer without an error. Return its records, if any."""
        if state.partition in self._failing_ns:
            self._note_fetched(state.partition, now_ns)
        is_diverging = part.diverging_epoch != NO_EPOCH or part.diverging_end_offset != -1
        if is_diverging:
            state.back_off(self._backoff, now_ns, at_once=RETRIES_AT_ONCE)
        if is_diverging and attempt.node_id == state.replica_id:
            state.replica_id = -1  # it may lag: the leader decides
            return None
        state.is_topic_sure = True
        current_epoch = attempt.wanted[state.partition].current_leader_epoch
        if is_diverging:
            self._positions.handle_divergence(
                state, part.diverging_epoch, part.diverging_end_offset, current_epoch, now_ns
            )
            return None
        state.high_watermark = part.high_watermark
        state.last_stable_offset = part.last_stable_offset
        state.log_start_offset = part.log_start_offset
        state.checked_epoch = current_epoch
        if part.preferred_read_replica >= 0:
            is_known = self._prefer(state, part.preferred_read_replica, attempt, now_ns)
            if not part.records:
                state.back_off(self._backoff, now_ns, at_once=RETRIES_AT_ONCE if is_known else 0)
        return self._scan(state, part, now_ns) if part.records else None

    def _prefer(self, state: PartitionState, node_id: int, attempt: FetchAttempt, now_ns: int) -> bool:
        """Fetch from a replica in the client's rack from now on, if it is known; else look it up."""
        is_known = node_id in self._cluster.snapshot.nodes
        if not is_known:
            self._cluster.request_update(now_ns)
        elif node_id != attempt.node_id:
            state.replica_id = node_id
            state.replica_until_ns = now_ns + self._config.metadata_max_age_ms * NS_PER_MS
        return is_known

    def _scan(self, state: PartitionState, part: Any, now_ns: int) -> Fetched | None:
        """Walk the batches, and move the position after them."""
        topic, partition = state.partition
        is_limited = self._reads_committed and part.last_stable_offset >= 0
        records = FetchedRecords(
            part.records,
            topic=topic,
            partition=partition,
            from_offset=state.fetch_offset,
            to_offset=state.end_offset,
            aborted=(part.aborted or ()) if self._reads_committed else None,
            check_crcs=self._config.check_crcs,
            max_decompressed_bytes=self._config.kbatch_max_decompressed_bytes,
            visible_end=part.last_stable_offset if is_limited else NO_END,
            topic_id=state.topic_id,
        )
        if records.next_offset <= state.fetch_offset:
            self._handle_no_progress(state, records, now_ns)
            return None
        from_offset, state.fetch_offset = state.fetch_offset, records.next_offset
        state.needed_bytes = 0
        if records.last_epoch != NO_EPOCH:
            state.last_epoch = records.last_epoch
        is_last = state.is_bounded and records.next_offset >= state.end_offset
        if is_last:
            state.transition(FetchEvent.COMPLETE)
        self.partitions[state.partition] = self.partitions.pop(state.partition)
        size_bytes = len(part.records)
        has_rows = records.row_bound > 0
        return Fetched(
            state,
            records if has_rows else None,
            from_offset=from_offset,
            next_offset=min(records.next_offset, state.end_offset),
            is_last=is_last,
            last_epoch=records.last_epoch,
            size_bytes=size_bytes if has_rows else 0,
        )

    def _handle_no_progress(self, state: PartitionState, records: FetchedRecords, now_ns: int) -> None:
        """Handle an answer without a whole batch: its first one cannot be read, or did not fit."""
        if records.fault is not None:
            self._positions.fail(state, records.fault)
        elif records.needed_bytes > MAX_REQUEST_BYTES:
            error = CorruptRecordError(
                f"{state.partition} at offset {state.fetch_offset}: a batch of {records.needed_bytes} bytes "
                f"does not fit into an answer of {MAX_FRAME_BYTES}; seek to the offset after it"
            )
            self._positions.fail(state, error)
        elif records.needed_bytes > state.needed_bytes:
            state.needed_bytes = records.needed_bytes
        else:
            state.back_off(self._backoff, now_ns)

    # Errors

    def _handle_error(
        self, state: PartitionState, code: int, attempt: FetchAttempt, now_ns: int, *, is_hinted: bool
    ) -> None:
        """Handle an error of a partition. `is_hinted`: the answer names a newer leader, used at once."""
        was_replica, state.replica_id = attempt.node_id == state.replica_id, -1
        outcome = FETCH_OUTCOMES[code]
        if outcome is not FetchOutcome.FAIL:
            self._note_failing(state.partition, code, now_ns)
        if outcome is FetchOutcome.FAIL:
            self._positions.fail(state, error_of(code, f"{state.partition}: {row_of(code).doc}"))
        elif outcome is FetchOutcome.RETRY and not is_hinted:
            self._cluster.doubt_leader(*state.partition, now_ns)
            state.back_off(self._backoff, now_ns)
        else:
            state.back_off(self._backoff, now_ns, at_once=RETRIES_AT_ONCE)
            if outcome is FetchOutcome.RESET and not was_replica:
                self._positions.handle_out_of_range(state, now_ns)

    def _note_failing(self, partition: TopicPartition, code: int, now_ns: int) -> None:
        """Log an error that lasts, once a topic; leaders that move and replicas that lag take less."""
        since_ns, last_ns = self._failing_ns.get(partition, (now_ns, now_ns))
        if now_ns - last_ns > FORGOTTEN_NS:
            since_ns = now_ns
        self._failing_ns[partition] = since_ns, now_ns
        if now_ns - since_ns >= LASTING_NS:
            text = f"no records come of {partition}: {ErrorCode(code)} ({row_of(code).doc})"
            self._faults.note(partition.topic, text, now_ns)

    def _note_fetched(self, partition: TopicPartition, now_ns: int) -> None:
        """Record that a partition no longer fails."""
        del self._failing_ns[partition]
        topic = partition.topic
        lasting = (at for at, (_, last_ns) in self._failing_ns.items() if now_ns - last_ns <= FORGOTTEN_NS)
        if not any(at.topic == topic for at in lasting):
            self._faults.end(topic, f"topic {topic}: all partitions can be read again", now_ns)


def _topics(named: Mapping[TopicPartition, Wanted]) -> list[Any]:
    """Return the part of a request that names partitions, in their order, by topic."""
    topics: dict[tuple[str, bytes], list[Any]] = {}
    for (topic, index), wanted in named.items():
        partition = _FetchPartition(
            partition=index,
            current_leader_epoch=wanted.current_leader_epoch,
            fetch_offset=wanted.fetch_offset,
            last_fetched_epoch=wanted.last_fetched_epoch,
            partition_max_bytes=wanted.max_bytes,
        )
        topics.setdefault((topic, wanted.topic_id), []).append(partition)
    return [
        _FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in topics.items()
    ]


def _forgotten(part: SessionRequest) -> list[Any]:
    topics: dict[tuple[str, bytes], list[int]] = {}
    for (topic, index), topic_id in part.forgotten:
        topics.setdefault((topic, topic_id), []).append(index)
    return [
        _ForgottenTopic(topic=topic, topic_id=topic_id, partitions=indexes)
        for (topic, topic_id), indexes in topics.items()
    ]
