"""ShareFetcher: acquires records of a share group from brokers, and acknowledges them.

Theory of operation. The engine calls `run` after every possible change. Each node has one session, and at
most one request of it in flight (FETCH_PURPOSE), since the epochs of requests count up. Records are
acquired only while the program waits for some (`wanted_records`), because each stays locked for a limited
time, and other members get none of them meanwhile.

Acknowledgements go to the node that has given the records: with the next ShareFetch if there is one, else by
ShareAcknowledge. Those that renew locks go by ShareAcknowledge, because a ShareFetch with them acquires
nothing. If the session has ended, the broker has released the records, and the acknowledgements fail.

After org.apache.kafka.clients.consumer.internals.ShareConsumeRequestManager; KIP-932, KIP-1206 (limits of
records), KIP-1222 (renewal).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch._native.fetch.budget import Budget, FrameShare
from kbatch.core.client.api_versions import read_response
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS, Retried
from kbatch.core.client.cluster import Node, node_of
from kbatch.core.consumer.fetcher import FETCH_PURPOSE, MAX_REQUEST_BYTES, RETRIES_AT_ONCE
from kbatch.core.consumer.outcomes import (
    ACKNOWLEDGE_OUTCOMES,
    FETCH_OUTCOMES,
    SESSION_OUTCOMES,
    AcknowledgeOutcome,
    FetchOutcome,
    SessionOutcome,
)
from kbatch.core.consumer.share_session import (
    FINAL_EPOCH,
    Acknowledge,
    AcquiredAt,
    Key,
    PartitionAcks,
    ShareSession,
    ranges,
)
from kbatch.errors import (
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    ShareSessionNotFoundError,
    UnsupportedVersionError,
    error_of,
    row_of,
)
from kbatch.errors.words import shown
from kbatch.protocol import features, messages
from kbatch.records import AcknowledgeType, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbatch._native.fetch.frames import FramePool
    from kbatch.config import ConsumerConfig
    from kbatch.core.client.backoff import ExponentialBackoff
    from kbatch.core.client.cluster import Cluster, ClusterSnapshot
    from kbatch.core.client.connections import Connections, Request, Response
    from kbatch.core.consumer.fetch_metrics import ShareFetchMetrics

ACQUIRE_MODES = {"BATCH_OPTIMIZED": 0, "RECORD_LIMIT": 1}
_Fetch, _Acknowledge = messages.ShareFetchRequest, messages.ShareAcknowledgeRequest


@dataclass(slots=True, eq=False)
class Acquired:
    """Records of a partition that this member has acquired, not decoded yet.

    Attributes
    ----------
    at : AcquiredAt
    data : memoryview
        Batches; they may have other records, too.
    ranges : tuple of (first_offset, last_offset, delivery_count)
        What is acquired, in order. Offsets without a record are gaps.
    until_ns : int
        When the locks end.
    share : FrameShare or None
        The part of the budget; None after its release.
    """

    at: AcquiredAt
    data: memoryview
    ranges: tuple[tuple[int, int, int], ...]
    until_ns: int
    share: FrameShare | None

    def release(self) -> bool:
        """Return the memory to the budget. Return False, with no effect, if that has happened."""
        share, self.share = self.share, None
        if share is not None:
            share.release()
        return share is not None


class ShareFailed(NamedTuple):
    """An error for the program: of a partition that cannot be read, or of a session."""

    error: KafkaError


class _Attempt:
    """A request in flight."""

    def __init__(
        self,
        node_id: int,
        session: ShareSession,
        acks: list[PartitionAcks],
        sent_ns: int,
        reserved_bytes: int = 0,
    ) -> None:
        self.node_id = node_id
        self.session = session
        self.acks = acks
        self.sent_ns = sent_ns
        self.reserved_bytes = reserved_bytes
        self.frame_bytes = 0

    def read(self, request: Request, frame: bytes | memoryview) -> Any:
        self.frame_bytes = len(frame)
        return read_response(request, frame)


class _Leaders(NamedTuple):
    """Which node leads which partitions of an assignment, by a snapshot.

    Attributes
    ----------
    partitions : dict[Key, TopicPartition]
    snapshot : ClusterSnapshot
    by_node : dict[int, frozenset[Key]]
    leaderless : frozenset of str
        Topics with partitions that no node leads.
    until_ns : int
        When the first back-off of a partition ends.
    """

    partitions: Mapping[Key, TopicPartition]
    snapshot: ClusterSnapshot
    by_node: dict[int, frozenset[Key]]
    leaderless: frozenset[str]
    until_ns: int


class ShareFetcher:
    """The sessions of a member with all nodes.

    Parameters
    ----------
    config, cluster, connections, backoff, budget, frames
        Those of Fetcher.
    metrics : ShareFetchMetrics
    member_id : str
    results : list
        Gets Acquired and ShareFailed.
    on_change : callable
        Called after a call is done.

    Attributes
    ----------
    partitions : dict[Key, TopicPartition]
        The assignment.
    wanted_records : int
        How many records the program waits for; 0 to acquire none.
    deadline_ns : int
        The time of the next `run`, if nothing happens before.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        connections: Connections,
        backoff: ExponentialBackoff,
        budget: Budget,
        frames: FramePool,
        metrics: ShareFetchMetrics,
        *,
        member_id: str,
        results: list[Any],
        on_change: Callable[[], object],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._connections = connections
        self._backoff = backoff
        self._budget = budget
        self._frames = frames
        self._metrics = metrics
        self._member_id = member_id
        self._results = results
        self._on_change = on_change
        self._sessions: dict[int, ShareSession] = {}
        self._names: dict[Key, TopicPartition] = {}  # of everything that was ever assigned
        self._retried: dict[Key, Retried] = {}  # partitions that had errors
        self._led: _Leaders | None = None
        self._is_closing = False
        self.partitions: dict[Key, TopicPartition] = {}
        self._ran_ns = 0
        self.wanted_records = 0
        self.deadline_ns = NEVER_NS

    # Calls

    def acknowledge(self, call: Acknowledge, now_ns: int) -> None:
        """Schedule acknowledgements for the next `run`."""
        deadline_ns = now_ns + self._config.default_api_timeout_ms * NS_PER_MS
        for at, types in call.types.items():
            session = self._sessions.setdefault(at.node_id, ShareSession())
            session.acks.append(PartitionAcks(call, at, types, deadline_ns))
        if not call.types:
            call.finish()
            self._on_change()

    @property
    def is_busy(self) -> bool:
        """True if requests are in flight, or wait."""
        return any(each.is_in_flight or each.acks for each in self._sessions.values())

    @property
    def is_closed(self) -> bool:
        """True if all sessions are closed, since `close`."""
        return self._is_closing and not any(
            each.is_in_flight or each.is_open for each in self._sessions.values()
        )

    def open(self) -> None:
        """Acquire records again."""
        self._is_closing = False

    def close(self) -> None:
        """Close all sessions, with the acknowledgements that wait: brokers release the other records."""
        self.partitions = {}
        self.wanted_records = 0
        self._is_closing = True

    def fail(self, error: KafkaError) -> None:
        """Fail all acknowledgements."""
        for session in self._sessions.values():
            self._finish(session.acks, error)
            session.acks = []

    # Requests

    def run(self, now_ns: int) -> None:
        """Send the requests that are possible now."""
        self._ran_ns = now_ns
        self.deadline_ns = NEVER_NS
        by_node = self._wanted(now_ns)
        for node_id in {*by_node, *self._sessions}:
            session = self._sessions.setdefault(node_id, ShareSession())
            self._expire(session, now_ns)
            if session.is_in_flight:
                continue
            if session.is_open and not self._connections.is_connected(node_id, FETCH_PURPOSE):
                session.end()
            if session.acks and not session.is_open:
                self._finish(session.acks, _released())
                session.acks = []
            if self._is_closing and not session.is_open:
                continue
            wanted = by_node.get(node_id, frozenset())
            if session.acks or wanted or self._is_closing:
                self._request(node_id, session, wanted, len(by_node), now_ns)

    def _look_again(self, when_ns: int) -> None:
        self.deadline_ns = min(self.deadline_ns, when_ns)

    def _wanted(self, now_ns: int) -> Mapping[int, frozenset[Key]]:
        """Return what to acquire from which node. There may be thousands of partitions, so that is worked out
        again only if something has changed.
        """
        if not self.wanted_records:
            return {}
        led = self._led
        if (
            led is None
            or led.partitions is not self.partitions
            or led.snapshot is not self._cluster.snapshot
            or now_ns >= led.until_ns
        ):
            led = self._led = self._find_leaders(now_ns)
        self._look_again(led.until_ns)
        for topic in led.leaderless:
            self._cluster.want(topic, now_ns)
            self._cluster.request_update(now_ns)
        return led.by_node

    def _find_leaders(self, now_ns: int) -> _Leaders:
        """Return the leaders of the partitions that are not backed off."""
        snapshot, until_ns = self._cluster.snapshot, NEVER_NS
        found: dict[int, set[Key]] = {}
        leaderless = set()
        self._names.update(self.partitions)
        for key, partition in self.partitions.items():
            not_before_ns = self._retried[key].not_before_ns if key in self._retried else 0
            if now_ns < not_before_ns:
                until_ns = min(until_ns, not_before_ns)
                continue
            leader, _ = snapshot.leader(*partition)
            if leader < 0:
                leaderless.add(partition.topic)
            else:
                found.setdefault(leader, set()).add(key)
        by_node = {node_id: frozenset(keys) for node_id, keys in found.items()}
        return _Leaders(self.partitions, snapshot, by_node, frozenset(leaderless), until_ns)

    def _expire(self, session: ShareSession, now_ns: int) -> None:
        """Fail acknowledgements whose time is up."""
        late = [each for each in session.acks if now_ns >= each.deadline_ns]
        if late:
            session.acks = [each for each in session.acks if now_ns < each.deadline_ns]
            self._finish(late, KafkaTimeoutError("acknowledgements timed out: their broker is out of reach"))
        for each in session.acks:
            self._look_again(each.deadline_ns)

    def _request(
        self, node_id: int, session: ShareSession, wanted: frozenset[Key], node_count: int, now_ns: int
    ) -> None:
        connections = self._connections
        if now_ns < session.not_before_ns:
            self._look_again(session.not_before_ns)
            return
        ready_ns = connections.ready_at(node_id, now_ns, FETCH_PURPOSE)
        if ready_ns > now_ns:
            self._look_again(ready_ns)
            return
        try:
            version = connections.version_of(node_id, _Fetch, FETCH_PURPOSE)
            if (session.acks and not self._may_ride(session.acks, wanted)) or self._is_closing:
                self._send_acknowledge(node_id, session, version, now_ns)
            else:
                self._send_fetch(node_id, session, wanted, node_count, now_ns)
        except UnsupportedVersionError as error:
            self._finish(session.acks, error)
            session.acks = []
            self._fail_program(error)

    def _may_ride(self, acks: Iterable[PartitionAcks], wanted: frozenset[Key]) -> bool:
        """True if a ShareFetch of these partitions may carry the acknowledgements."""
        return all(each.key in wanted and AcknowledgeType.RENEW not in each.types.values() for each in acks)

    def _send_fetch(
        self, node_id: int, session: ShareSession, wanted: frozenset[Key], node_count: int, now_ns: int
    ) -> None:
        config = self._config
        size_bytes = min(config.fetch_max_bytes, self._budget.request_bytes(node_count), MAX_REQUEST_BYTES)
        if not self._budget.reserve(size_bytes):
            return
        acks, session.acks = session.acks, []
        added, forgotten = session.request(wanted)
        batches = _batches(acks, _Fetch.AcknowledgementBatch)
        named: dict[Key, list[Any]] = {key: [] for key in added}
        message = _Fetch(
            group_id=config.group_id,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=size_bytes,
            max_records=self.wanted_records,
            batch_size=self.wanted_records,
            share_acquire_mode=ACQUIRE_MODES[config.share_acquire_mode],
            topics=_by_topic({**named, **batches}, _Fetch.FetchTopic, _Fetch.FetchPartition),
            forgotten_topics_data=[
                _Fetch.ForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in _indexes(forgotten).items()
            ],
        )
        attempt = self._begin(_Attempt(node_id, session, acks, now_ns, size_bytes))
        self._connections.send(
            node_id,
            message,
            partial(self._take_fetched, attempt),
            now_ns,
            purpose=FETCH_PURPOSE,
            memory=self._frames.take,
            read=attempt.read,
        )

    def _send_acknowledge(self, node_id: int, session: ShareSession, version: int, now_ns: int) -> None:
        acks, session.acks = session.acks, []
        renews = any(AcknowledgeType.RENEW in each.types.values() for each in acks)
        if renews and version < features.SHARE_FETCH_RENEWS_LOCKS:
            error = UnsupportedVersionError("brokers before Kafka 4.2 cannot renew locks; use another type")
            self._finish(acks, error)
            return
        batches = _batches(acks, _Acknowledge.AcknowledgementBatch)
        message = _Acknowledge(
            group_id=self._config.group_id,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if self._is_closing else session.epoch,
            is_renew_ack=renews,
            topics=_by_topic(batches, _Acknowledge.AcknowledgeTopic, _Acknowledge.AcknowledgePartition),
        )
        attempt = self._begin(_Attempt(node_id, session, acks, now_ns))
        handle = partial(self._take_acknowledged, attempt, is_last=self._is_closing)
        self._connections.send(node_id, message, handle, now_ns, purpose=FETCH_PURPOSE)

    def _begin(self, attempt: _Attempt) -> _Attempt:
        """Record a request that is sent."""
        attempt.session.is_in_flight = True
        if count := sum(len(each.types) for each in attempt.acks):
            self._metrics.acknowledged(count, attempt.sent_ns)
        return attempt

    # Answers

    def _take_fetched(self, attempt: _Attempt, response: Response) -> None:
        """Handle the answer to a ShareFetch, or its failure."""
        self._budget.end_reservation(attempt.reserved_bytes)
        answer, now_ns = self._answer_of(attempt, response), response.now_ns
        if response.message is not None:
            self._metrics.answered(
                attempt.node_id, attempt.sent_ns, response.message.throttle_time_ms, now_ns
            )
        if answer is None:
            return
        nodes = [node_of(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
        until_ns = now_ns + answer.acquisition_lock_timeout_ms * NS_PER_MS
        codes: dict[Key, tuple[int, str]] = {}
        found = []
        for topic in answer.responses:
            for answer in topic.partitions:
                key = (topic.topic_id, answer.partition_index)
                codes[key] = (answer.acknowledge_error_code, shown(answer.acknowledge_error_message))
                if answer.error_code:
                    self._handle_error(key, answer, nodes, now_ns)
                elif answer.acquired_records:
                    found.append((key, answer))
        self._finish_by_codes(attempt, codes, now_ns)
        if found:
            self.wanted_records = 0
            self._budget.charge(attempt.frame_bytes)
            share = FrameShare(self._budget, attempt.frame_bytes, len(found))
            self._metrics.acquired(sum(len(answer.records or b"") for _, answer in found), now_ns)
            for key, answer in found:
                acquired = tuple(
                    (a.first_offset, a.last_offset, a.delivery_count) for a in answer.acquired_records
                )
                at = AcquiredAt(attempt.node_id, key[0], self._names[key])
                data = memoryview(answer.records or b"")
                self._results.append(Acquired(at, data, acquired, until_ns, share))

    def _take_acknowledged(self, attempt: _Attempt, response: Response, *, is_last: bool) -> None:
        """Handle the answer to a ShareAcknowledge, or its failure."""
        answer, now_ns = self._answer_of(attempt, response), response.now_ns
        if is_last:
            attempt.session.end()
        if answer is None:
            return
        nodes = [node_of(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
        codes: dict[Key, tuple[int, str]] = {}
        for topic in answer.responses:
            for answer in topic.partitions:
                key = (topic.topic_id, answer.partition_index)
                codes[key] = (answer.error_code, shown(answer.error_message))
                if answer.error_code:
                    self._note_leader(key, answer, nodes, now_ns)
        self._finish_by_codes(attempt, codes, now_ns)

    def _answer_of(self, attempt: _Attempt, response: Response) -> Any:
        """Return a good answer. After another the session ends, and the acknowledgements have failed."""
        session, answer, now_ns = attempt.session, response.message, response.now_ns
        session.is_in_flight = False
        if answer is not None and not answer.error_code:
            session.handle_answer()
            return answer
        session.end()
        if answer is None:
            assert response.error is not None
            error = response.error
            outcome = SessionOutcome.BACK_OFF if error.retriable else SessionOutcome.FAIL
        else:
            outcome = SESSION_OUTCOMES[answer.error_code]
            error = error_of(answer.error_code, shown(answer.error_message) or row_of(answer.error_code).doc)
        self._finish(attempt.acks, error)
        session.back_off(self._backoff, now_ns, at_once=int(outcome is SessionOutcome.OPEN_AGAIN))
        if outcome is SessionOutcome.FAIL:
            self._fail_program(error)
        return None

    def _finish_by_codes(self, attempt: _Attempt, codes: Mapping[Key, tuple[int, str]], now_ns: int) -> None:
        """Process the outcome of each acknowledgement in the answer."""
        session, is_refused = attempt.session, False
        for ack in attempt.acks:
            code, words = codes.get(ack.key, (int(ErrorCode.NONE), ""))
            outcome = ACKNOWLEDGE_OUTCOMES[code]
            if outcome is AcknowledgeOutcome.RETRY and session.is_open:
                session.acks.append(ack)
                is_refused = True
            elif outcome is AcknowledgeOutcome.DONE:
                self._finish([ack], None)
            else:
                text = f"{ack.at.partition}: {words or row_of(code).doc}"
                self._finish([ack], error_of(code, f"{text}; the records are delivered again, or were"))
        if is_refused:
            session.back_off(self._backoff, now_ns)

    def _finish(self, acks: Iterable[PartitionAcks], error: KafkaError | None) -> None:
        for each in acks:
            if error is not None:
                self._metrics.acknowledging_failed(len(each.types), self._ran_ns)
            each.call.finish_partition(each.at.partition, error)
            self._on_change()

    def _fail_program(self, error: KafkaError) -> None:
        """Report an error that the program's poll raises; the next poll tries again."""
        self.wanted_records = 0
        self._results.append(ShareFailed(error))

    def _note_leader(self, key: Key, answer: Any, nodes: list[Node], now_ns: int) -> bool:
        """Record the leader that an answer names. Return True if it is news."""
        partition = self._names.get(key)
        leader = answer.current_leader
        if (
            partition is not None
            and leader.leader_id >= 0
            and self._cluster.update_leader(*partition, leader.leader_id, leader.leader_epoch, nodes)
        ):
            return True
        if partition is None:
            self._cluster.request_update(now_ns)
        else:
            self._cluster.doubt_leader(*partition, now_ns)
        return False

    def _handle_error(self, key: Key, answer: Any, nodes: list[Node], now_ns: int) -> None:
        """Handle the error of a partition that cannot be read now."""
        is_led_elsewhere = False
        if FETCH_OUTCOMES[answer.error_code] is FetchOutcome.FAIL:
            words = shown(answer.error_message) or row_of(answer.error_code).doc
            self._fail_program(error_of(answer.error_code, f"{self._names[key]}: {words}"))
        else:
            is_led_elsewhere = self._note_leader(key, answer, nodes, now_ns)
        retried = self._retried.setdefault(key, Retried())
        retried.back_off(self._backoff, now_ns, at_once=RETRIES_AT_ONCE if is_led_elsewhere else 0)
        self._led = None


def _released() -> KafkaError:
    return ShareSessionNotFoundError(
        "the session with the broker has ended, which has released the records; they are delivered again"
    )


def _batches(acks: Iterable[PartitionAcks], kind: Callable[..., Any]) -> dict[Key, list[Any]]:
    """Return acknowledgements as requests name them."""
    types: dict[Key, dict[int, int]] = {}
    for each in acks:
        types.setdefault(each.key, {}).update(each.types)
    return {
        key: [
            kind(first_offset=first, last_offset=last, acknowledge_types=each)
            for first, last, each in ranges(found)
        ]
        for key, found in types.items()
    }


def _by_topic(
    batches: Mapping[Key, list[Any]], topic_kind: Callable[..., Any], kind: Callable[..., Any]
) -> list[Any]:
    topics: dict[bytes, list[Any]] = {}
    for (topic_id, index), found in sorted(batches.items(), key=lambda item: item[0]):
        topics.setdefault(topic_id, []).append(kind(partition_index=index, acknowledgement_batches=found))
    return [topic_kind(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]


def _indexes(keys: Iterable[Key]) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(keys):
        topics.setdefault(topic_id, []).append(index)
    return topics
