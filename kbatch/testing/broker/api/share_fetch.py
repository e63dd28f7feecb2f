"""ShareFetch and ShareAcknowledge (KIP-932): members of share groups acquire records, and acknowledge them.

`share_sessions` says which partitions a request fetches, `share_partition` which records a member gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch._native.codec.record_batch import RecordBatch, decode
from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.api.share_groups import NOT_HOSTED, check_share_version
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.broker_state import Delayed
from kbatch.testing.broker.security.authorizer import Operation, ResourceType
from kbatch.testing.broker.share.record_states import RENEW, Acknowledged
from kbatch.testing.broker.share.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    TopicIdPartition,
)
from kbatch.testing.broker.share.share_state import ShareKey

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Connection, Context
    from kbatch.testing.broker.replication.replica import Replica
    from kbatch.testing.broker.share.share_partition import SharePartition

BATCH_OPTIMIZED, RECORD_LIMIT = range(2)
# errors of a whole request, and not of a partition
REQUEST_ERRORS = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)
# A request with renewals fetches nothing (KIP-1222).
NOT_WITH_RENEWALS = ("max_wait_ms", "min_bytes", "max_bytes", "max_records")
LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
ShareRequest = messages.ShareFetchRequest | messages.ShareAcknowledgeRequest
PartitionData = messages.ShareFetchResponse.PartitionData


class ReadBatch(NamedTuple):
    """A batch of the log, and its bytes."""

    batch: RecordBatch
    data: memoryview


# Acknowledgements


def share_acknowledge(
    state: BrokerState, request: messages.ShareAcknowledgeRequest, context: Context
) -> messages.ShareAcknowledgeResponse:
    key = _admitted(state, request, context)
    try:
        state.share_sessions.acknowledge(key, request.share_session_epoch)
    except BrokerError:
        if context.forced_error is None:  # an error that a test forces shows at the partitions
            raise
    kind = messages.ShareAcknowledgeResponse
    response = kind(acquisition_lock_timeout_ms=_lock_ms(state, key.group_id))
    endpoints = _Endpoints(state, context)
    for topic in request.topics:
        answer = kind.ShareAcknowledgeTopicResponse(topic_id=topic.topic_id)
        for named in topic.partitions:
            at = (bytes(topic.topic_id), named.partition_index)
            partition = kind.PartitionData(partition_index=named.partition_index)
            refuse = partial(setattr, partition, "error_code")
            context.fill(partition, _acknowledge, state, request, key, at, named, context, refuse)
            endpoints.hint(at, partition)
            answer.partitions.append(partition)
        response.responses.append(answer)
    response.node_endpoints = endpoints.of(kind.NodeEndpoint)
    if request.share_session_epoch == FINAL_EPOCH:
        end_session(state, key, context.now_ms)
    return response


def _acknowledge(
    state: BrokerState,
    request: ShareRequest,
    key: SessionKey,
    at: TopicIdPartition,
    named: messages.ShareFetchRequest.FetchPartition | messages.ShareAcknowledgeRequest.AcknowledgePartition,
    context: Context,
    refuse: Callable[[ErrorCode], None],
    answer: Any,
) -> None:
    """Take the acknowledgements of a partition, all or none; `refuse(code)` if storing them fails later."""
    topic = state.cluster.topic_by_id(at[0])
    state.authorize(context, Operation.READ, ResourceType.TOPIC, topic.name)
    batches = [
        Acknowledged(each.first_offset, each.last_offset, [*each.acknowledge_types])
        for each in named.acknowledgement_batches
    ]
    _check_batches(batches, may_renew=request.is_renew_ack)
    renews = any(RENEW in each.types for each in batches)
    if renews and not state.group_configs.may_renew(key.group_id):
        raise BrokerError(
            ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group."
        )
    partition = state.cluster.partition(topic.name, at[1])
    share_key, share = ShareKey(key.group_id, *at), None
    if partition.leader == context.node_id:
        share = state.share_partitions.find(share_key, partition)
    if share is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    share.acknowledge(key.member_id, batches, context.now_ms)
    context.wait_for(state.coordinators.share_states.unreplicated(share_key), refuse)
    state.partition_changed(topic.name, at[1])  # there is room for other records, or some are available


def _check_batches(batches: Iterable[Acknowledged], *, may_renew: bool) -> None:
    """Raise BrokerError INVALID_REQUEST for batches that are not in the order of offsets, and wrong types."""
    end_offset = -1
    for first, last, types in batches:
        if (
            first > last
            or first < end_offset
            or len(types) not in (1, last - first + 1)
            or not all(0 <= each < RENEW + may_renew for each in types)
        ):
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        end_offset = last


# Fetches


def share_fetch(
    state: BrokerState, request: messages.ShareFetchRequest, context: Context
) -> messages.ShareFetchResponse | Delayed:
    key = _admitted(state, request, context)
    if request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if request.is_renew_ack and any(getattr(request, name) for name in NOT_WITH_RENEWALS):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    session = state.share_sessions.fetch(key, request, context.connection)
    acknowledged: dict[TopicIdPartition, BrokerError | None] = {}
    for topic in request.topics:
        for named in topic.partitions:
            if named.acknowledgement_batches:
                at = (bytes(topic.topic_id), named.partition_index)
                acknowledged[at] = None
                _acknowledge_with_fetch(state, request, key, at, named, context, acknowledged)
    partitions = session.rotated()
    if request.share_session_epoch == FINAL_EPOCH:
        end_session(state, key, context.now_ms)
        partitions = []
    if not all(topic_id in state.cluster.topics_by_id for topic_id, _ in partitions):
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka 4.3.1 does, in each answer
    fetch = _ShareFetch(state, request, key, partitions, acknowledged, context)
    context.when_replicated(fetch.start)
    return fetch.response


def _acknowledge_with_fetch(
    state: BrokerState,
    request: messages.ShareFetchRequest,
    key: SessionKey,
    at: TopicIdPartition,
    named: messages.ShareFetchRequest.FetchPartition,
    context: Context,
    refusals: dict[TopicIdPartition, BrokerError | None],
) -> None:
    """Take the acknowledgements of a partition; note why they are refused, if they are."""

    def refuse(code: ErrorCode) -> None:
        refusals[at] = BrokerError(code)

    try:
        _acknowledge(state, request, key, at, named, context, refuse, None)
    except BrokerError as error:
        refusals[at] = error


class _ShareFetch:
    """One request: tried when it arrives, and again after one of its partitions changed."""

    def __init__(
        self,
        state: BrokerState,
        request: messages.ShareFetchRequest,
        key: SessionKey,
        partitions: list[TopicIdPartition],
        acknowledged: dict[TopicIdPartition, BrokerError | None],
        context: Context,
    ) -> None:
        self.response = Delayed()
        self._state = state
        self._request = request
        self._key = key
        self._partitions = partitions
        self._acknowledged = acknowledged
        self._context = context

    def start(self, now_ms: int) -> None:
        if not self._attempt(now_ms):
            name_of = self._state.cluster.name_of
            names = frozenset((name_of(topic_id), index) for topic_id, index in self._partitions)
            deadline_ms = now_ms + self._request.max_wait_ms
            self._state.purgatory.watch(names, self._attempt, deadline_ms, self._give_up)

    def _attempt(self, now_ms: int) -> bool:
        """Acquire records and answer, or return False if it is better to wait."""
        answers, readable = self._read(now_ms)
        size = sum(len(each.data) for _, _, batches in readable for each in batches)
        waits = self._request.max_wait_ms > 0 and bool(readable)
        if waits and size < self._request.min_bytes:
            return False
        count = self._acquire(readable, now_ms)
        if waits and not count:
            return False
        self._answer(answers)
        return True

    def _give_up(self, now_ms: int) -> None:
        answers, readable = self._read(now_ms)
        self._acquire(readable, now_ms)
        self._answer(answers)

    def _read(
        self, now_ms: int
    ) -> tuple[dict[TopicIdPartition, PartitionData], list[tuple[PartitionData, _Readable, list[ReadBatch]]]]:
        """Return an answer for each partition, and what can be read of those without an error."""
        answers: dict[TopicIdPartition, PartitionData] = {}
        readable: list[tuple[PartitionData, _Readable, list[ReadBatch]]] = []
        for at in self._partitions:
            answers[at] = self._context.fill(self._blank(at), self._read_partition, at, now_ms, readable)
        for at in self._acknowledged.keys() - answers.keys():  # in the last request of a session
            answers[at] = self._blank(at)
        return answers, readable

    def _blank(self, at: TopicIdPartition) -> PartitionData:
        """Return an answer that says what became of acknowledgements."""
        answer = PartitionData(partition_index=at[1], records=b"")
        if (error := self._acknowledged.get(at)) is not None:
            answer.acknowledge_error_code, answer.acknowledge_error_message = error.code, error.message
        return answer

    def _read_partition(
        self,
        at: TopicIdPartition,
        now_ms: int,
        readable: list[tuple[PartitionData, _Readable, list[ReadBatch]]],
        answer: PartitionData,
    ) -> None:
        name = self._state.cluster.name_of(at[0])
        self._state.authorize(self._context, Operation.READ, ResourceType.TOPIC, name)
        partition = self._state.cluster.led_partition(name, at[1], self._context.node_id)
        share = self._state.share_partitions.open(ShareKey(self._key.group_id, *at), partition, now_ms)
        batches: list[ReadBatch] = []
        if share.may_acquire and share.next_fetch_offset <= partition.log.log_end_offset:
            read = partition.log.fetch(
                share.next_fetch_offset,
                max_bytes=self._request.max_bytes // max(len(self._partitions), 1),
                at_least_one=not any(found for _, _, found in readable),
                committed=self._reads_committed,
            )
            batches = [ReadBatch(next(decode(data, check_crc=False)), data) for data in read.batches]
        readable.append((answer, _Readable(partition, share), batches))

    @property
    def _reads_committed(self) -> bool:
        return self._state.group_configs.reads_committed(self._key.group_id)

    def _acquire(self, readable: list[tuple[PartitionData, _Readable, list[ReadBatch]]], now_ms: int) -> int:
        """Acquire records of the partitions in turn, and return how many."""
        count = 0
        for answer, (partition, share), batches in readable:
            log = partition.log

            def is_visible(batch: RecordBatch, log: Any = log) -> bool:
                return batch.is_control or not self._reads_committed or log.is_committed(batch)

            acquired = share.acquire(
                self._key.member_id,
                [each.batch for each in batches],
                now_ms,
                max_records=self._request.max_records - count,
                batch_size=self._request.batch_size,
                is_limit=self._request.share_acquire_mode == RECORD_LIMIT,
                is_visible=is_visible,
            )
            if not acquired:
                continue
            count += sum(each.last_offset - each.first_offset + 1 for each in acquired)
            first, last = acquired[0].first_offset, acquired[-1].last_offset
            answer.records = [
                each.data
                for each in batches
                if each.batch.last_offset >= first and each.batch.base_offset <= last
            ]
            answer.acquired_records = [
                messages.ShareFetchResponse.AcquiredRecords(**each._asdict()) for each in acquired
            ]
        return count

    def _answer(self, answers: dict[TopicIdPartition, PartitionData]) -> None:
        """Answer with all partitions in a session's first answer, then with those that have news."""
        kind = messages.ShareFetchResponse
        is_first = self._request.share_session_epoch == INITIAL_EPOCH
        endpoints = _Endpoints(self._state, self._context)
        topics: dict[bytes, messages.ShareFetchResponse.ShareFetchableTopicResponse] = {}
        for at, answer in answers.items():
            if not (is_first or at in self._acknowledged or answer.acquired_records or answer.error_code):
                continue
            endpoints.hint(at, answer)
            topic = topics.setdefault(at[0], kind.ShareFetchableTopicResponse(topic_id=at[0]))
            topic.partitions.append(answer)
        self.response.complete(
            kind(
                acquisition_lock_timeout_ms=_lock_ms(self._state, self._key.group_id),
                responses=list(topics.values()),
                node_endpoints=endpoints.of(kind.NodeEndpoint),
            )
        )


class _Readable(NamedTuple):
    partition: Replica
    share: SharePartition


class _Endpoints:
    """The leaders that an answer names, where the client asked another node."""

    def __init__(self, state: BrokerState, context: Context) -> None:
        self._state = state
        self._context = context
        self._node_ids: dict[int, None] = {}

    def hint(self, at: TopicIdPartition, answer: Any) -> None:
        """Name the partition's leader in the answer, if another node leads it."""
        topic = self._state.cluster.topics_by_id.get(at[0])
        if answer.error_code not in LED_ELSEWHERE or topic is None or not 0 <= at[1] < len(topic.partitions):
            return
        partition = topic.partitions[at[1]]
        if partition.leader >= 0:
            answer.current_leader.leader_id = partition.leader
            answer.current_leader.leader_epoch = partition.leader_epoch
            self._node_ids[partition.leader] = None

    def of(self, kind: type[Any]) -> list[Any]:
        nodes = [self._state.cluster.nodes[node_id] for node_id in self._node_ids]
        return [kind(node_id=node.node_id, **self._context.address_of(node)) for node in nodes]


# Sessions


def _admitted(state: BrokerState, request: ShareRequest, context: Context) -> SessionKey:
    """Return the member that sends a request, if it may read by this group."""
    if context.forced_error in REQUEST_ERRORS:
        context.check_forced_error()
    check_share_version(state)
    if request.group_id is None or request.member_id is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    state.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)
    return SessionKey(context.node_id, request.group_id, request.member_id)


def end_session(state: BrokerState, key: SessionKey, now_ms: int) -> None:
    """End a session, and release what its member has acquired at this node."""
    for topic_id, index in state.share_sessions.end(key):
        topic = state.cluster.topics_by_id.get(topic_id)
        if topic is not None and 0 <= index < len(topic.partitions):
            share_key = ShareKey(key.group_id, topic_id, index)
            state.share_partitions.release(share_key, topic.partitions[index], key.member_id, now_ms)


def connection_lost(state: BrokerState, connection: Connection, now_ms: int) -> None:
    """End the sessions that a connection has opened."""
    for key in state.share_sessions.of_connection(connection):
        end_session(state, key, now_ms)


def _lock_ms(state: BrokerState, group_id: str) -> int:
    return state.group_configs.number(group_id, "share.record.lock.duration.ms")


HANDLERS = {
    messages.ShareFetchRequest: share_fetch,
    messages.ShareAcknowledgeRequest: share_acknowledge,
}
