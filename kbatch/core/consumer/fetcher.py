"""Fetcher: asks brokers for records, and makes results of their answers.

Theory of operation. The engine calls `run` after every possible change. Each node has at most one Fetch in
flight, on a connection of its own (FETCH_PURPOSE), so that its long wait delays no other request. A request
names the partitions whose leader, or replica in the client's rack, the node is, and that are neither backed
off, paused, nor behind with too many unread bytes. It asks for no more bytes than the budget reserves for it.

Native code (FetchRoad) finds these partitions, makes the request, and takes what is usual in its answer. It
walks the headers of the batches, which gives the next position, and then the next Fetch may go out.
Partitions with records move to the end of the order, so that none starves if answers are full. An answer
counts for a partition only if it is that of the partition's latest request. The Fetcher says where partitions
are read from, and judges what is not usual. The table of `outcomes` decides about errors.

After org.apache.kafka.clients.consumer.internals.AbstractFetch and FetchCollector; KIP-74 (order), KIP-227
(sessions), KIP-320 and KIP-595 (epochs), KIP-392 (replicas), KIP-516 (topic ids), KIP-951 (leaders in
answers).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch._native.fetch.budget import Budget, FrameShare
from kbatch._native.fetch.fetch_answer import VERSIONS as FETCH_VERSIONS
from kbatch._native.fetch.road import FetchRoad
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS, ExponentialBackoff
from kbatch.core.client.cluster import node_of
from kbatch.core.client.connection import MAX_FRAME_BYTES
from kbatch.core.client.lasting_faults import LastingFaults
from kbatch.core.client.routes import error_of_partition
from kbatch.core.consumer.budget import RowsAwaited
from kbatch.core.consumer.fetch_session import FINAL_EPOCH, FetchSession
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
    from kbatch._native.fetch.fetch_answer import FetchAnswer, PartitionAnswer
    from kbatch._native.fetch.fetched_batches import FetchedRecords
    from kbatch._native.fetch.frames import FramePool
    from kbatch.config import ConsumerConfig
    from kbatch.core.client.cluster import Cluster, ClusterSnapshot
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
# The class of all requests; FetchSession writes them.
_MESSAGE = messages.FetchRequest()
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
# The failures in a row after which another node, or position, is tried at once: a leader names another one,
# a replica lags behind.
RETRIES_AT_ONCE = 2


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
    road : FetchRoad
    partitions : dict[TopicPartition, PartitionState]
        The partitions that are read, by `add` and `remove`.
    deadline_ns : int
        The time of the next `run`, if nothing happens before.
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
        self._sessions: dict[int, FetchSession] = {}
        self._placed_in: ClusterSnapshot | None = None
        reads_committed = config.isolation_level == "read_committed"
        self.road = FetchRoad(
            budget,
            frames,
            latency=metrics.latency,
            throttle=metrics.throttle,
            byte_count=metrics.byte_count,
            client_id=config.client_id,
            rack_id=config.client_rack,
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=min(config.fetch_max_bytes, MAX_REQUEST_BYTES),
            partition_bytes=config.max_partition_fetch_bytes,
            request_timeout_ms=config.request_timeout_ms,
            reads_committed=reads_committed,
            check_crcs=config.check_crcs,
            max_decompressed_bytes=config.kbatch_max_decompressed_bytes,
        )
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.deadline_ns = NEVER_NS
        self._awaited_memory = True
        self.rows_awaited: RowsAwaited | None = None
        self._deliver: Callable[[list[Any]], object] = lambda results: None

    # Partitions

    def add(self, state: PartitionState) -> None:
        """Begin to read a partition, which is not read yet."""
        state.is_failing = state.partition in self._failing_ns
        self.road.add(state)
        self.partitions[state.partition] = state

    def remove(self, partition: TopicPartition) -> PartitionState | None:
        """End the reading of a partition, and return it; None if it is not read."""
        state = self.partitions.pop(partition, None)
        if state is not None:
            self.road.remove(state)
        return state

    # Requests

    def run(self, now_ns: int) -> None:
        """Send the requests that are possible now."""
        self.deadline_ns = NEVER_NS
        awaited, road = self.rows_awaited, self.road
        self._place(now_ns)
        backlog_bytes = self._budget.backlog_bytes(len(self.partitions), is_shared=awaited is None)
        found: list[FetchSession] = road.scan(backlog_bytes, now_ns)
        self._look_again(road.look_again_ns)
        is_short = road.is_short
        for session in found:
            if session.wanted_count and not session.is_in_flight:
                is_short |= not self._fetch(session, len(found), now_ns)
        if awaited is not None:
            awaited.note(is_short)
        is_asking = any(session.is_in_flight for session in self._sessions.values())
        self.awaits_memory = self._awaited_memory = is_short or not is_asking

    @property
    def awaits_memory(self) -> bool:
        """True if memory that is released may let a request go out, or if no answer is due. Any thread may
        read it.
        """
        return self.road.awaits_memory

    @awaits_memory.setter
    def awaits_memory(self, awaits_memory: bool) -> None:
        self.road.awaits_memory = awaits_memory

    def run_if_due(self, now_ns: int) -> None:
        """Run if the time for it has come. Nothing else has happened since the last `run`."""
        if now_ns >= self.deadline_ns:
            self.run(now_ns)
        else:
            self.awaits_memory = self._awaited_memory

    def _look_again(self, when_ns: int) -> None:
        self.deadline_ns = min(self.deadline_ns, when_ns)

    def _place(self, now_ns: int) -> None:
        """Find the nodes to fetch from for partitions whose node may have changed."""
        if self._placed_in is not self._cluster.snapshot:
            self._placed_in = self._cluster.snapshot
            self.road.displace()
        for state in self.road.unplaced(now_ns):
            node_id = self._node_of(state, now_ns)
            until_ns = NEVER_NS if state.replica_id < 0 else state.replica_until_ns
            state.place(self.road, None if node_id < 0 else self._session(node_id), until_ns)

    def _session(self, node_id: int) -> FetchSession:
        session = self._sessions.get(node_id)
        if session is None:
            session = FetchSession(self.road, node_id, self._metrics.latency_of(node_id))
            self._sessions[node_id] = session
        return session

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
        leader, leader_epoch = snapshot.leader(topic, partition)
        if state.replica_id in snapshot.nodes and now_ns < state.replica_until_ns:
            state.leader_epoch = leader_epoch
            return state.replica_id
        state.replica_id = -1
        if leader >= 0:
            state.leader_epoch = leader_epoch
            return leader
        error = error_of_partition(self._cluster, state.partition, state.created_ns)
        if error is not None:
            self._positions.fail(state, error)
        elif known is not None:
            self._cluster.request_update(now_ns)
        return -1

    def _fetch(self, session: FetchSession, node_count: int, now_ns: int) -> bool:
        """Send a request for what is wanted of a node if it takes one and there is memory for the answer.
        Return False if only memory is missing.
        """
        connections, node_id = self._connections, session.node_id
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
            for state in [*session.candidates(), *session.asked()]:
                self._positions.fail(state, error)
            return True
        if session.lacks_topic_ids:
            version = min(version, features.FETCH_TOPIC_IDS - 1)
        if version < features.FETCH_COMPARES_EPOCHS:
            session.choose([state for state in session.candidates() if self._is_valid(state, now_ns)])
        if not session.wanted_count:
            return True
        size_bytes = self.road.request_bytes(session.wanted_count, node_count)
        if not self._budget.reserve(size_bytes):
            return False
        session.ask(version, size_bytes, now_ns)
        request = connections.send(
            node_id,
            _MESSAGE,
            partial(self.handle_response, session),
            now_ns,
            version=version,
            purpose=FETCH_PURPOSE,
            memory=self._frames.take,
            write=session.write,
            read=session.read,
        )
        session.note_sent(request.correlation_id, now_ns, request.start_offset, request.end_offset)
        request.lent = session  # with its connection, if that is lent
        return True

    def _is_valid(self, state: PartitionState, now_ns: int) -> bool:
        """True if the position is known to be in the current leader's log, or no epoch of it is known."""
        _, leader_epoch = self._cluster.snapshot.leader(*state.partition)
        if NO_EPOCH in (state.last_epoch, leader_epoch) or state.checked_epoch == leader_epoch:
            return True
        self._positions.validate(state, now_ns)
        return False

    def close_sessions(self, now_ns: int) -> None:
        """Close the sessions. A node that is busy with a Fetch keeps its own."""
        for node_id, session in self._sessions.items():
            is_idle = session.is_open and not session.is_in_flight
            if is_idle and self._connections.is_ready(node_id, now_ns, FETCH_PURPOSE):
                message = messages.FetchRequest(
                    replica_id=CONSUMER, session_id=session.session_id, session_epoch=FINAL_EPOCH
                )
                self._connections.send(node_id, message, lambda response: None, now_ns, purpose=FETCH_PURPOSE)
                session.end(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    # Loans

    def open_loans(self, deliver: Callable[[list[Any]], object]) -> None:
        """Have the road read what is usual. `deliver` gets results meanwhile."""
        self._deliver = deliver
        self._connections.count_lent(self.road.in_flight_count)

    def close_loans(self) -> None:
        """Read nothing more, and drop the results that have arrived. Another thread may take them just now,
        and holds what it takes: that must not be freed meanwhile, with the engine.
        """
        for state in self.partitions.values():
            self.road.remove(state)

    def lend(self, descriptor_of: Callable[[int], int], now_ns: int) -> FetchRoad | None:
        """Lend the connections that nothing but Fetches is on to the road, and return it. None if there is
        none, or if a poll waits for rows, which needs the Fetcher between answers.

        Parameters
        ----------
        descriptor_of : Callable[[int], int]
            Returns the descriptor of the socket of a connection, by its id.
        """
        road, connections = self.road, self._connections
        # results of before come before those of the road
        is_usual = self.rows_awaited is None and not self._results
        if not is_usual or self._placed_in is not self._cluster.snapshot or road.has_unplaced(now_ns):
            return None
        road.begin(self._deliver)
        is_lent = False
        for connection, version in connections.lendable(
            messages.FetchRequest, now_ns, highest=FETCH_VERSIONS[-1], purpose=FETCH_PURPOSE
        ):
            session = self._session(connection.node.node_id)
            if now_ns < session.not_before_ns:
                continue
            requests = [session] if session.is_in_flight else []
            if version < features.FETCH_COMPARES_EPOCHS or requests != [
                request.lent for request in connection.in_flight
            ]:
                continue
            _, sensors = connections.lend(connection)
            road.lend(
                session,
                connection.connection_id,
                descriptor_of(connection.connection_id),
                version,
                next_correlation_id=connection.next_correlation_id,
                queued_bytes=connection.queued_bytes,
                usable_until_ns=min(connection.session.renew_ns, NEVER_NS),
                sensors=sensors,
            )
            is_lent = True
        return road if is_lent else None

    def take_back(self, now_ns: int) -> None:
        """End the loan to the road. What it has not asked for since an answer is the Fetcher's to ask for."""
        if self.road.must_look:
            self._look_again(now_ns)
        self._awaited_memory = self.road.awaits_memory
        self.observe()
        all_lent = self.road.take_back()
        for lent in all_lent:
            self._connections.take_back(
                lent, messages.FetchRequest, self._handlers_of, now_ns, memory=self._frames.take
            )
        for lent in all_lent:
            if lent.received:
                self._connections.handle_bytes(lent.connection_id, lent.received, now_ns)

    def _handlers_of(self, session: FetchSession) -> tuple[Callable[[Response], None], Callable[..., Any]]:
        """Return what handles and what reads the answer to a request of the road."""
        return partial(self.handle_response, session), session.read

    # Answers

    def handle_response(self, session: FetchSession, response: Response) -> None:
        """Handle the answer to a request, or its failure."""
        now_ns, answer = response.now_ns, response.message
        session.is_in_flight = False
        self._look_again(now_ns)
        self._budget.end_reservation(session.reserved_bytes)
        if answer is None:
            assert response.error is not None
            self._fail_request(session, response.error, now_ns)
        else:
            session.record_answer(session.sent_ns, answer.throttle_time_ms, now_ns)
            if answer.error_code:
                self._refuse_all(session, answer, now_ns)
            else:
                session.handle_answer(answer.session_id)
                self._take(session, answer, now_ns)

    def observe(self) -> None:
        """Note which nodes the road has heard from."""
        for node_id, now_ns in self.road.take_served().items():
            self._connections.note_served(node_id, now_ns, FETCH_PURPOSE)

    def _fail_request(self, session: FetchSession, error: KafkaError, now_ns: int) -> None:
        """Handle a lost answer: the next request is complete, and goes to the leader."""
        session.end()
        for state in session.asked():
            state.replica_id = -1
            if isinstance(error, ProtocolError):  # it would not be better a second time
                self._positions.fail(state, error)
            else:
                state.back_off(self._backoff, now_ns, at_once=RETRIES_AT_ONCE)

    def _refuse_all(self, session: FetchSession, answer: FetchAnswer, now_ns: int) -> None:
        """Handle an error of the whole request."""
        code, was_open = ErrorCode(answer.error_code), session.is_open
        session.end(code)
        if code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self._cluster.request_update(now_ns)
        if code in SESSION_ERRORS and was_open:  # a request without a session follows
            session.back_off(self._backoff, now_ns, at_once=1)
            return
        for state in session.asked():
            self._handle_error(state, code, session, now_ns, is_hinted=False)

    def _take(self, session: FetchSession, answer: FetchAnswer, now_ns: int) -> None:
        """Handle the parts of an answer. Those with records share its memory, and come before failures
        of others.
        """
        before, bounded = len(self._results), self._without_records(session, answer)
        found = self._read(session, answer, now_ns)
        with_records = [each for each in found if each.records is not None]
        if with_records:
            self._budget.charge(answer.frame_bytes)
            share = FrameShare(self._budget, answer.frame_bytes, len(with_records))
            for each in with_records:
                each.charge(share)
        self.road.record_fetched(found, now_ns)
        self._results[before:before] = found
        for state in bounded:
            self._look_at_remaining(state, session, now_ns)
        if session.is_full:  # the answer leaves out the others, which no correct one does
            for state in session.asked():
                state.back_off(self._backoff, now_ns, at_once=RETRIES_AT_ONCE)

    def _read(self, session: FetchSession, answer: FetchAnswer, now_ns: int) -> list[Fetched]:
        """Return the results with new positions that an answer has."""
        found: list[Fetched] = self.road.take(session, answer, self, now_ns)
        return found

    def _without_records(self, session: FetchSession, answer: FetchAnswer) -> list[PartitionState]:
        """Return the partitions with an end that an answer has no records for, although it had room for them,
        nor anything else.
        """
        if not self.road.bounded_count or answer.throttle_time_ms or answer.has_records:
            return []
        without: list[PartitionState] = [each for each in session.asked() if each.end_offset != NO_END]
        says_more = {
            (part.topic_id if part.topic is None else part.topic, part.partition)
            for part in answer.partitions
            if part.error_code or part.preferred_read_replica >= 0 or part.diverging_end_offset >= 0
        }
        by_name = session.version < features.FETCH_TOPIC_IDS
        return [
            each
            for each in without
            if (each.topic_name if by_name else each.topic_id, each.partition_number) not in says_more
        ]

    def _look_at_remaining(self, state: PartitionState, session: FetchSession, now_ns: int) -> None:
        """Handle an answer without any record that had room for some: the partition has none either, so the
        remainder of its range may be a gap. A replica may lag behind the leader.
        """
        is_there = state.fetch_offset < state.end_offset <= self._distances.end_of(state)
        if is_there and state.state is FetchState.FETCHING and session.node_id != state.replica_id:
            self._positions.check_remaining(state, now_ns)

    def judge_part(
        self,
        session: FetchSession,
        state: PartitionState,
        answer: FetchAnswer,
        part: PartitionAnswer,
        now_ns: int,
    ) -> bool:
        """Handle a partition's part of an answer that is not usual. True if its records are to be read."""
        if part.error_code:
            nodes = [node_of(*node) for node in answer.node_endpoints]
            is_hinted = part.leader_id >= 0 and self._cluster.update_leader(
                *state.partition, part.leader_id, part.leader_epoch, nodes
            )
            self._handle_error(state, part.error_code, session, now_ns, is_hinted=is_hinted)
            return False
        if state.is_failing:
            self._note_fetched(state, now_ns)
        if part.diverging_epoch != NO_EPOCH or part.diverging_end_offset != -1:
            self._handle_divergence(session, state, part, now_ns)
            return False
        self.road.note_log(state, answer, part.index)
        if part.preferred_read_replica >= 0:
            is_known = part.preferred_read_replica in self._cluster.snapshot.nodes
            if not part.records:
                state.back_off(self._backoff, now_ns, at_once=RETRIES_AT_ONCE if is_known else 0)
            self._prefer(state, part.preferred_read_replica, session, now_ns)
        return True

    def _handle_divergence(
        self, session: FetchSession, state: PartitionState, part: PartitionAnswer, now_ns: int
    ) -> None:
        """Handle a part that says where the log differs from what was read."""
        state.back_off(self._backoff, now_ns, at_once=RETRIES_AT_ONCE)
        if session.node_id == state.replica_id:
            state.replica_id = -1  # it may lag: the leader decides
            return
        state.is_topic_sure = True
        self._positions.handle_divergence(
            state, part.diverging_epoch, part.diverging_end_offset, state.asked_epoch, now_ns
        )

    def _prefer(self, state: PartitionState, node_id: int, session: FetchSession, now_ns: int) -> None:
        """Fetch from a replica in the client's rack from now on, if it is known; else look it up."""
        if node_id not in self._cluster.snapshot.nodes:
            self._cluster.request_update(now_ns)
        elif node_id != session.node_id:
            state.replica_id = node_id
            # from when it can be asked: a back-off may be as long
            asked_ns = max(now_ns, state.not_before_ns)
            state.replica_until_ns = asked_ns + self._config.metadata_max_age_ms * NS_PER_MS

    def complete(self, state: PartitionState) -> None:
        """End a partition that is at its end offset."""
        state.transition(FetchEvent.COMPLETE)

    def handle_no_progress(self, state: PartitionState, records: FetchedRecords, now_ns: int) -> None:
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
        self, state: PartitionState, code: int, session: FetchSession, now_ns: int, *, is_hinted: bool
    ) -> None:
        """Handle an error of a partition. `is_hinted`: the answer names a newer leader, used at once."""
        was_replica, state.replica_id = session.node_id == state.replica_id, -1
        outcome = FETCH_OUTCOMES[code]
        if outcome is not FetchOutcome.FAIL:
            self._note_failing(state, code, now_ns)
        if outcome is FetchOutcome.FAIL:
            self._positions.fail(state, error_of(code, f"{state.partition}: {row_of(code).doc}"))
        elif outcome is FetchOutcome.RETRY and not is_hinted:
            self._cluster.doubt_leader(*state.partition, now_ns)
            state.back_off(self._backoff, now_ns)
        else:
            state.back_off(self._backoff, now_ns, at_once=RETRIES_AT_ONCE)
            if outcome is FetchOutcome.RESET and not was_replica:
                self._positions.handle_out_of_range(state, now_ns)

    def _note_failing(self, state: PartitionState, code: int, now_ns: int) -> None:
        """Log an error that lasts, once a topic; leaders that move and replicas that lag take less."""
        partition = state.partition
        since_ns, last_ns = self._failing_ns.get(partition, (now_ns, now_ns))
        if now_ns - last_ns > FORGOTTEN_NS:
            since_ns = now_ns
        self._failing_ns[partition] = since_ns, now_ns
        state.is_failing = True
        if now_ns - since_ns >= LASTING_NS:
            text = f"no records come of {partition}: {ErrorCode(code)} ({row_of(code).doc})"
            self._faults.note(partition.topic, text, now_ns)

    def _note_fetched(self, state: PartitionState, now_ns: int) -> None:
        """Record that a partition no longer fails."""
        del self._failing_ns[state.partition]
        state.is_failing = False
        topic = state.partition.topic
        lasting = (at for at, (_, last_ns) in self._failing_ns.items() if now_ns - last_ns <= FORGOTTEN_NS)
        if not any(at.topic == topic for at in lasting):
            self._faults.end(topic, f"topic {topic}: all partitions can be read again", now_ns)
