"""Requests about partitions that their leaders answer: ListOffsets and OffsetForLeaderEpoch.

Theory of operation. Each LeaderRequest is about one partition. All that are due for the same leader travel in
one message per kind. Each is finished or tried again by itself: an error of one partition does not hold up
the others. A partition whose leader is unknown waits for metadata.

After org.apache.kafka.clients.consumer.internals.OffsetsRequestManager; KIP-79, KIP-320.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kbatch.core.client.backoff import NEVER_NS, SHORTEST_DELAY_NS, ExponentialBackoff, Retried
from kbatch.core.client.routes import error_of_partition
from kbatch.core.consumer.partition_state import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    NO_END,
    NO_EPOCH,
    OffsetSpec,
)
from kbatch.errors import (
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    UnsupportedVersionError,
    error_of,
    row_of,
)
from kbatch.protocol import features, messages

if TYPE_CHECKING:
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections, Response
    from kbatch.protocol.structs import Message
    from kbatch.records import TopicPartition

CONSUMER = -1  # the replica id of every client
# The offsets that every log has, unlike a record at a time.
ALWAYS_FOUND = {EARLIEST: "beginning", LATEST: "end", EARLIEST_LOCAL: "local beginning"}


class FoundOffset(NamedTuple):
    """The answer to ListOffsets for one partition.

    Attributes
    ----------
    offset : int
    timestamp_ms : int
        The record's timestamp; -1 for the beginning and the end of the log.
    leader_epoch : int
        The record's leader epoch; -1 if unknown.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The answer to OffsetForLeaderEpoch: the last epoch up to the requested one that the leader has, and the
    offset after its records; both are -1 if it has none.
    """

    leader_epoch: int
    end_offset: int


class LeaderRequest(Retried):
    """A request about one partition.

    Attributes
    ----------
    partition : TopicPartition
    finish : Callable[[Any, KafkaError | None, int], None]
        Called once, with the result or the error, and the time.
    created_ns, deadline_ns : int
        The time of the request, and the end of its patience; NEVER_NS.
    is_in_flight, is_done : bool
        A request that is done is no longer sent; its owner may set it to withdraw it.
    attempts, not_before_ns : int
        Those of Retried.
    last_error : KafkaError | None
    """

    __slots__ = (
        "created_ns",
        "deadline_ns",
        "finish",
        "is_done",
        "is_in_flight",
        "last_error",
        "partition",
    )
    kind: ClassVar[type[Message]]

    def __init__(
        self,
        partition: TopicPartition,
        finish: Callable[[Any, KafkaError | None, int], None],
        now_ns: int,
        deadline_ns: int = NEVER_NS,
    ) -> None:
        super().__init__()
        self.partition = partition
        self.finish = finish
        self.created_ns = now_ns
        self.deadline_ns = deadline_ns
        self.is_in_flight = False
        self.is_done = False
        self.last_error: KafkaError | None = None

    def check(self, version: int) -> None:
        """Raise UnsupportedVersionError if the version cannot express it."""

    def item(self, current_leader_epoch: int) -> Any:
        """Return its part of the message."""
        raise NotImplementedError

    @staticmethod
    def message(topics: Mapping[str, list[Any]], isolation_level: int, timeout_ms: int) -> Message:
        """Return the message with parts by topic."""
        raise NotImplementedError

    @staticmethod
    def answers(answer: Any) -> Iterable[tuple[tuple[str, int], int, Any]]:
        """Yield partition, error code and result of each part of an answer."""
        raise NotImplementedError

    def accepted(self, result: Any) -> Any:
        """Return the result for `finish`. Raise ProtocolError if no correct broker gives it."""
        return result


class OffsetRequest(LeaderRequest):
    """A request for the offset at a time, or at an end of the log. The result is a FoundOffset; None if no
    record is as late.
    """

    __slots__ = ("spec",)
    kind = messages.ListOffsetsRequest

    def __init__(
        self,
        partition: TopicPartition,
        spec: OffsetSpec,
        finish: Callable[[FoundOffset | None, KafkaError | None, int], None],
        now_ns: int,
        deadline_ns: int = NEVER_NS,
    ) -> None:
        super().__init__(partition, finish, now_ns, deadline_ns)
        self.spec = spec

    def check(self, version: int) -> None:
        first = features.LIST_OFFSETS_TIMES.get(self.spec.timestamp_ms, 0)
        if version < first:
            raise UnsupportedVersionError(
                f"{self.partition}: the broker cannot find the offset at the special time "
                f"{self.spec.timestamp_ms} (ListOffsets version {version}, {first} is needed); upgrade it"
            )

    def item(self, current_leader_epoch: int) -> Any:
        return messages.ListOffsetsRequest.ListOffsetsPartition(
            partition_index=self.partition.partition,
            current_leader_epoch=current_leader_epoch,
            timestamp=self.spec.timestamp_ms,
        )

    @staticmethod
    def message(topics: Mapping[str, list[Any]], isolation_level: int, timeout_ms: int) -> Message:
        kind = messages.ListOffsetsRequest
        return kind(
            replica_id=CONSUMER,
            isolation_level=isolation_level,
            topics=[kind.ListOffsetsTopic(name=name, partitions=items) for name, items in topics.items()],
            timeout_ms=timeout_ms,
        )

    @staticmethod
    def answers(answer: Any) -> Iterable[tuple[tuple[str, int], int, Any]]:
        for topic in answer.topics:
            for each in topic.partitions:
                found = FoundOffset(each.offset, each.timestamp, max(each.leader_epoch, NO_EPOCH))
                yield (topic.name, each.partition_index), each.error_code, found

    def accepted(self, result: FoundOffset) -> FoundOffset | None:
        if 0 <= result.offset < NO_END:
            return result
        if result.offset < 0 and self.spec not in ALWAYS_FOUND:
            return None
        subject = ALWAYS_FOUND.get(self.spec, "record")
        raise ProtocolError(
            f"{self.partition}: the leader says that the log's {subject} is at offset {result.offset}, "
            "which is impossible; check the broker, and any proxy in front of it"
        )


class EpochRequest(LeaderRequest):
    """A request for the end of a leader epoch. The result is an EpochEnd."""

    __slots__ = ("leader_epoch",)
    kind = messages.OffsetForLeaderEpochRequest

    def __init__(
        self,
        partition: TopicPartition,
        leader_epoch: int,
        finish: Callable[[EpochEnd, KafkaError | None, int], None],
        now_ns: int,
    ) -> None:
        super().__init__(partition, finish, now_ns)
        self.leader_epoch = leader_epoch

    def item(self, current_leader_epoch: int) -> Any:
        return messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=self.partition.partition,
            current_leader_epoch=current_leader_epoch,
            leader_epoch=self.leader_epoch,
        )

    @staticmethod
    def message(topics: Mapping[str, list[Any]], isolation_level: int, timeout_ms: int) -> Message:
        kind = messages.OffsetForLeaderEpochRequest
        return kind(
            replica_id=CONSUMER,
            topics=[
                kind.OffsetForLeaderTopic(topic=name, partitions=items) for name, items in topics.items()
            ],
        )

    @staticmethod
    def answers(answer: Any) -> Iterable[tuple[tuple[str, int], int, Any]]:
        for topic in answer.topics:
            for each in topic.partitions:
                yield (
                    (topic.topic, each.partition),
                    each.error_code,
                    EpochEnd(each.leader_epoch, each.end_offset),
                )


class LeaderRequests:
    """The unanswered requests of one client.

    Parameters
    ----------
    cluster, connections, backoff
    isolation_level : int
        1 for read_committed: the end of a log is then its last stable offset.
    timeout_ms : int
        The time for which a broker may search (KIP-1075).
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: Connections,
        backoff: ExponentialBackoff,
        *,
        isolation_level: int,
        timeout_ms: int,
    ) -> None:
        self._cluster = cluster
        self._connections = connections
        self._backoff = backoff
        self._isolation_level = isolation_level
        self._timeout_ms = timeout_ms
        self._open: list[LeaderRequest] = []
        self._retry_ns = NEVER_NS  # of nodes that take no request now

    @property
    def is_open(self) -> bool:
        """True if there are unanswered requests."""
        return bool(self._open)

    def topics(self) -> set[str]:
        """Return the topics of unanswered requests."""
        return {each.partition.topic for each in self._open}

    def submit(self, request: LeaderRequest, now_ns: int) -> None:
        """Send the request at the next `run`."""
        self._cluster.want(request.partition.topic, now_ns)
        self._open.append(request)

    def run(self, now_ns: int) -> None:
        """Send what can be sent now, and finish what is late or impossible."""
        self._retry_ns = NEVER_NS
        self._open = [each for each in self._open if not each.is_done]
        groups: dict[tuple[int, type[LeaderRequest]], list[LeaderRequest]] = {}
        for request in self._open:
            if now_ns >= request.deadline_ns:
                self._finish(request, None, self._late(request, now_ns), now_ns)
            elif not request.is_in_flight and now_ns >= request.not_before_ns:
                leader = self._leader_of(request, now_ns)
                if leader >= 0:
                    groups.setdefault((leader, type(request)), []).append(request)
        for (node_id, _), requests in groups.items():
            self._send(node_id, requests, now_ns)

    def deadline_ns(self, now_ns: int) -> int:
        """Return the time of the next `run`, if nothing happens before."""
        deadline_ns = self._retry_ns
        for each in self._open:
            if each.is_done:
                continue
            deadline_ns = min(deadline_ns, each.deadline_ns)
            if not each.is_in_flight and each.not_before_ns > now_ns:
                deadline_ns = min(deadline_ns, each.not_before_ns)
        return deadline_ns

    def withdraw(self) -> None:
        """Drop all requests, whose results no longer count."""
        for request in self._open:
            request.is_done = True
        self._open.clear()

    def _leader_of(self, request: LeaderRequest, now_ns: int) -> int:
        """Return the partition's leader; -1 if it is unknown so far, or if the request has failed."""
        topic, partition = request.partition
        snapshot = self._cluster.snapshot
        self._cluster.want(topic, now_ns)
        leader, _ = snapshot.leader(topic, partition)
        if leader >= 0:
            return leader
        error = error_of_partition(self._cluster, request.partition, request.created_ns)
        if error is not None:
            self._finish(request, None, error, now_ns)
        elif topic in snapshot.topics:
            self._cluster.request_update(now_ns)
        return -1

    def _late(self, request: LeaderRequest, now_ns: int) -> KafkaTimeoutError:
        waited_ms = (now_ns - request.created_ns) // 1_000_000
        cause = request.last_error or self._connections.hindrance(now_ns) or self._cluster.last_error
        reason = f"; the last error was: {cause}" if cause is not None else ""
        error = KafkaTimeoutError(
            f"{request.partition}: no answer to {request.kind.__name__} within {waited_ms} ms "
            f"(default.api.timeout.ms){reason}"
        )
        error.__cause__ = cause
        return error

    def _send(self, node_id: int, requests: list[LeaderRequest], now_ns: int) -> None:
        connections, kind = self._connections, type(requests[0])
        ready_ns = connections.ready_at(node_id, now_ns)
        if ready_ns > now_ns:
            self._retry_ns = min(self._retry_ns, ready_ns)
            return
        try:
            version = connections.version_of(node_id, kind.kind)
        except UnsupportedVersionError as error:
            for request in requests:
                self._finish(request, None, error, now_ns)
            return
        sent: dict[tuple[str, int], LeaderRequest] = {}
        topics: dict[str, list[Any]] = {}
        for request in requests:
            topic, partition = request.partition
            try:
                request.check(version)
            except UnsupportedVersionError as error:
                self._finish(request, None, error, now_ns)
                continue
            if (topic, partition) in sent:  # another time of the same partition travels next
                self._retry_ns = min(self._retry_ns, now_ns + SHORTEST_DELAY_NS)
                continue
            _, leader_epoch = self._cluster.snapshot.leader(topic, partition)
            topics.setdefault(topic, []).append(request.item(leader_epoch))
            sent[topic, partition] = request
            request.is_in_flight = True
        if sent:
            message = kind.message(topics, self._isolation_level, self._timeout_ms)
            handle = partial(self._handle_response, kind, sent)
            connections.send(node_id, message, handle, now_ns, version=version)

    def _handle_response(
        self, kind: type[LeaderRequest], sent: Mapping[tuple[str, int], LeaderRequest], response: Response
    ) -> None:
        now_ns, answered = response.now_ns, set()
        for request in sent.values():
            request.is_in_flight = False
        if response.message is not None:
            for partition, code, result in kind.answers(response.message):
                if partition in sent and partition not in answered:
                    answered.add(partition)
                    self._take(sent[partition], code, result, now_ns)
        left_out = response.error or error_of(
            ErrorCode.NETWORK_EXCEPTION, "the broker's answer leaves the partition out"
        )
        for partition, request in sent.items():
            if partition not in answered:
                self._fail(request, left_out, now_ns)

    def _take(self, request: LeaderRequest, code: int, result: Any, now_ns: int) -> None:
        if not code:
            try:
                accepted = request.accepted(result)
            except ProtocolError as error:
                self._finish(request, None, error, now_ns)
            else:
                self._finish(request, accepted, None, now_ns)
            return
        row = row_of(code)
        if row.refresh_metadata or code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            self._cluster.doubt_leader(*request.partition, now_ns)
        self._fail(request, error_of(code, f"{request.partition}: {row.doc}"), now_ns)

    def _fail(self, request: LeaderRequest, error: KafkaError, now_ns: int) -> None:
        """Try again later, or finish the request if that does not help."""
        if not error.retriable:
            self._finish(request, None, error, now_ns)
            return
        request.last_error = error
        request.back_off(self._backoff, now_ns)

    def _finish(self, request: LeaderRequest, result: Any, error: KafkaError | None, now_ns: int) -> None:
        if not request.is_done:
            request.is_done = True
            request.finish(result, error, now_ns)
