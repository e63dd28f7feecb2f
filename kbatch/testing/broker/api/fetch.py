"""Fetch, ListOffsets and OffsetForLeaderEpoch: what consumers read. `fetch_sessions` says which partitions a
request reads and answers with.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import codec, features, messages
from kbatch.testing.broker.api.items import each_partition
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.broker_state import Delayed
from kbatch.testing.broker.controller.quotas import CONSUMER_BYTE_RATE
from kbatch.testing.broker.fetch_sessions import NO_EPOCH, Answered, FetchPlan, WantedPartition
from kbatch.testing.broker.logs.partition import LATEST
from kbatch.testing.broker.replication.replica import EpochEnd, FollowerFetch
from kbatch.testing.broker.security.authorizer import Operation, ResourceType
from kbatch.testing.broker.throttles import BURST_SECONDS

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.replication.replica import Replica

READ_COMMITTED = 1
NO_REPLICA = -1
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
PartitionData = messages.FetchResponse.PartitionData
ListOffsetsPartition = messages.ListOffsetsRequest.ListOffsetsPartition


def fetch(
    state: BrokerState, request: messages.FetchRequest, context: Context
) -> messages.FetchResponse | Delayed:
    if context.version >= features.FETCH_SESSIONS and context.forced_error in SESSION_ERRORS:
        context.check_forced_error()  # errors of the whole request
    plan = state.fetch_sessions.plan(context.node_id, request, context.version, context.now_ms)
    return _Fetch(state, request, plan, context).response


class _Fetch:
    """One request: tried when it arrives, and again after one of its partitions changed."""

    def __init__(
        self, state: BrokerState, request: messages.FetchRequest, plan: FetchPlan, context: Context
    ) -> None:
        self.response = Delayed()
        self._state = state
        self._request = request
        self._plan = plan
        self._context = context
        self._is_parked = False
        self._max_bytes = request.max_bytes
        self._has_limit = False
        self._has_quotas = bool(state.cluster.quotas.limits) and self._replica_id < 0
        if self._has_quotas:
            self._limit_bytes()
        else:
            context.stopwatch = None  # followers are not throttled
        if not self._attempt(context.now_ms):
            partitions = [(self._topic_name(wanted), wanted.request.partition) for wanted in plan.partitions]
            deadline_ms = context.now_ms + request.max_wait_ms
            self._is_parked = True
            state.purgatory.watch(partitions, self._attempt, deadline_ms, self._complete)

    def _limit_bytes(self) -> None:
        """Read no more than the client's quota allows at once, if it has one."""
        limit = self._state.limit_of(self._context, CONSUMER_BYTE_RATE)
        if limit is not None:
            self._max_bytes = min(self._max_bytes, int(limit.value * BURST_SECONDS))
            self._has_limit = True

    def _attempt(self, now_ms: int) -> bool:
        answers, size, failed = self._read()
        has_time = self._request.max_wait_ms > 0 and bool(answers)
        if size < self._request.min_bytes and not failed and has_time:
            return False
        self._answer(answers, now_ms)
        return True

    def _complete(self, now_ms: int) -> None:
        self._answer(self._read()[0], now_ms)

    def _answer(self, answers: list[Answered], now_ms: int) -> None:
        if self._has_quotas and self._is_throttled(answers):
            session_id = self._plan.session_id
            self.response.complete(messages.FetchResponse(session_id=session_id, responses=[]))
            return
        try:
            session_id, answers = self._plan.answer(answers, now_ms)
        except BrokerError as error:
            self.response.complete(messages.FetchResponse(error_code=error.code))
            return
        hints = self._hints(answers) if self._context.version >= features.FETCH_NAMES_LEADERS else {}
        self.response.complete(
            messages.FetchResponse(
                session_id=session_id, responses=_by_topic(answers), node_endpoints=list(hints.values())
            )
        )

    def _is_throttled(self, answers: list[Answered]) -> bool:
        """True if the answer would exceed a quota of the client: it gets an empty one, and must wait."""
        self._state.throttle_time(self._context)
        if self._has_limit:
            whole = messages.FetchResponse(responses=_by_topic(answers))
            size_bytes = sum(map(len, codec.encode_response(whole, self._context.version, 0)))
            self._state.throttle_bytes(self._context, CONSUMER_BYTE_RATE, size_bytes, is_refused=True)
        return self._context.throttle_ms > 0

    def _topic_name(self, wanted: WantedPartition) -> str:
        if self._context.version < features.FETCH_TOPIC_IDS:
            return wanted.topic
        return self._state.cluster.name_of(wanted.topic_id)

    def _read(self) -> tuple[list[Answered], int, bool]:
        """Return (answers, bytes of records, True if a partition has another result than records)."""
        size, failed = 0, False
        answers = []
        for wanted in self._plan.partitions:
            answer = PartitionData(partition_index=wanted.request.partition, high_watermark=-1, records=b"")
            room = self._max_bytes - size
            self._context.fill(answer, self._read_partition, wanted, room, size == 0)
            is_read = (
                answer.error_code == ErrorCode.NONE
                and answer.diverging_epoch.epoch == NO_EPOCH
                and answer.preferred_read_replica == NO_REPLICA
            )
            failed = failed or not is_read
            size += _size(answer)
            answers.append((wanted, answer))
        return answers, size, failed

    def _read_partition(
        self,
        named: WantedPartition,
        room: int,
        is_first: bool,
        answer: PartitionData,
    ) -> None:
        wanted = named.request
        if self._context.version >= features.FETCH_TOPIC_IDS:
            self._state.cluster.topic_by_id(named.topic_id)
        name = self._topic_name(named)
        self._state.authorize(self._context, Operation.READ, ResourceType.TOPIC, name)
        self._state.cluster.partition(name, wanted.partition)
        answer.aborted_transactions = None  # empty for a missing partition, null if it refuses
        if not self._is_parked:
            self._context.check_partition(name, wanted.partition)
        if self._replica_id >= 0:
            self._read_as_follower(name, wanted, answer)
            return
        replica = self._replica(name, wanted)
        diverging = replica.diverging(wanted.fetch_offset, wanted.last_fetched_epoch)
        if diverging is not None:
            answer.diverging_epoch = _epoch_end(diverging)
            answer.high_watermark = replica.log.high_watermark
            answer.last_stable_offset = replica.log.last_stable_offset
            answer.log_start_offset = replica.log.log_start_offset
            return
        is_committed = self._request.isolation_level == READ_COMMITTED
        read = replica.log.fetch(
            wanted.fetch_offset,
            max_bytes=min(wanted.partition_max_bytes, room),
            at_least_one=is_first,
            committed=is_committed,
        )
        answer.high_watermark = read.high_watermark
        answer.last_stable_offset = read.last_stable_offset
        answer.log_start_offset = read.log_start_offset
        if is_committed:
            answer.aborted_transactions = [
                messages.FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in read.aborted_transactions
            ]
        answer.preferred_read_replica = self._nearer_replica(replica, wanted.fetch_offset)
        if answer.preferred_read_replica == NO_REPLICA:
            answer.records = read.batches

    @property
    def _replica_id(self) -> int:
        """Return the node whose follower asks, negative for a consumer."""
        if self._context.version >= features.FETCH_REPLICA_STATE:
            return self._request.replica_state.replica_id
        return self._request.replica_id

    def _replica(self, name: str, wanted: messages.FetchRequest.FetchPartition) -> Replica:
        """Return the replica that a consumer reads: the leader's, or with KIP-392 any of its node."""
        cluster, epoch = self._state.cluster, wanted.current_leader_epoch
        replica = cluster.replica(name, wanted.partition, self._context.node_id, epoch)
        if replica.leadership is None and self._context.version < features.FETCH_FROM_FOLLOWERS:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def _nearer_replica(self, replica: Replica, offset: int) -> int:
        """Return the in-sync replica in the client's rack that it should read instead, if there is one.

        After Partition.findPreferredReadReplica and RackAwareReplicaSelector (KIP-392).
        """
        rack, leadership, nodes = self._request.rack_id, replica.leadership, self._state.cluster.nodes
        if not rack or leadership is None or nodes[replica.node_id].rack == rack:
            return NO_REPLICA
        near = {
            node_id: follower.end_offset
            for node_id, follower in leadership.followers.items()
            if nodes[node_id].rack == rack
            and node_id in leadership.registration.isr
            and follower.log_start_offset <= offset <= min(follower.end_offset, replica.log.high_watermark)
        }
        return max(near, key=near.__getitem__, default=NO_REPLICA)

    def _read_as_follower(
        self, name: str, wanted: messages.FetchRequest.FetchPartition, answer: PartitionData
    ) -> None:
        """Answer another broker's follower, and note what it has, once a request."""
        state, node_id = self._state, self._context.node_id
        replica = state.cluster.replica(name, wanted.partition, node_id, wanted.current_leader_epoch)
        epoch = self._request.replica_state.replica_epoch
        asked = FollowerFetch(
            self._replica_id,
            wanted.current_leader_epoch,
            wanted.fetch_offset,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
            epoch,
        )
        fetched = replica.read_as_follower(asked)
        if fetched.diverging is None and not self._is_parked:
            if epoch != NO_EPOCH and epoch < state.cluster.node(self._replica_id).broker_epoch:
                raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # an earlier start of it (KIP-903)
            replica.note_follower(asked, fetched, self._context.now_ms)
            partition = state.cluster.partition(name, wanted.partition)
            state.replication.follower_fetched(
                partition, replica, self._replica_id, fetched, self._context.now_ms
            )
        answer.high_watermark, answer.log_start_offset = fetched.high_watermark, fetched.log_start_offset
        answer.last_stable_offset = min(fetched.high_watermark, replica.log.last_stable_offset)
        answer.records = fetched.batches
        if fetched.diverging is not None:
            answer.diverging_epoch = _epoch_end(fetched.diverging)

    def _hints(self, answers: list[Answered]) -> dict[int, messages.FetchResponse.NodeEndpoint]:
        """Return the places of new leaders, by node id, and name them in the answers (KIP-951)."""
        hints: dict[int, messages.FetchResponse.NodeEndpoint] = {}
        for wanted, answer in answers:
            if answer.error_code in LED_ELSEWHERE:
                self._hint_at_leader(self._topic_name(wanted), answer, hints)
        return hints

    def _hint_at_leader(
        self, topic: str, answer: PartitionData, hints: dict[int, messages.FetchResponse.NodeEndpoint]
    ) -> None:
        """Name the current leader; a forced error may concern a missing partition."""
        known = self._state.cluster.topics.get(topic)
        if known is None or not 0 <= answer.partition_index < len(known.partitions):
            return
        partition = known.partitions[answer.partition_index].known_by(self._context.node_id)
        if partition.leader < 0:
            return
        node = self._state.cluster.nodes[partition.leader]
        answer.current_leader = messages.FetchResponse.LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
        hints[node.node_id] = messages.FetchResponse.NodeEndpoint(
            node_id=node.node_id, **self._context.address_of(node)
        )


def _epoch_end(end: EpochEnd) -> messages.FetchResponse.EpochEndOffset:
    return messages.FetchResponse.EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)


def _by_topic(answers: list[Answered]) -> list[messages.FetchResponse.FetchableTopicResponse]:
    """Return the answers, with neighbours of one topic together."""
    topics: list[messages.FetchResponse.FetchableTopicResponse] = []
    for (topic, topic_id), group in groupby(answers, lambda each: (each[0].topic, each[0].topic_id)):
        topics.append(
            messages.FetchResponse.FetchableTopicResponse(
                topic=topic, topic_id=topic_id, partitions=[answer for _, answer in group]
            )
        )
    return topics


def _size(answer: PartitionData) -> int:
    assert isinstance(answer.records, bytes | list)
    return len(answer.records) if isinstance(answer.records, bytes) else sum(map(len, answer.records))


# Offsets


def list_offsets(
    state: BrokerState, request: messages.ListOffsetsRequest, context: Context
) -> messages.ListOffsetsResponse:
    answer = messages.ListOffsetsResponse.ListOffsetsPartitionResponse
    # a partition that is named twice has one answer, an error
    wanted: dict[str, dict[int, list[ListOffsetsPartition]]] = {}
    for topic in request.topics:
        for each in topic.partitions:
            wanted.setdefault(topic.name, {}).setdefault(each.partition_index, []).append(each)
    return messages.ListOffsetsResponse(
        topics=[
            messages.ListOffsetsResponse.ListOffsetsTopicResponse(
                name=name,
                partitions=[
                    context.fill(
                        answer(partition_index=index),
                        _list_offset,
                        state,
                        name,
                        timestamps,
                        request.isolation_level == READ_COMMITTED,
                        context,
                    )
                    for index, timestamps in partitions.items()
                ],
            )
            for name, partitions in wanted.items()
        ]
    )


def _list_offset(
    state: BrokerState,
    topic: str,
    named: list[ListOffsetsPartition],
    committed: bool,
    context: Context,
    answer: messages.ListOffsetsResponse.ListOffsetsPartitionResponse,
) -> None:
    wanted, *again = named
    state.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    if again:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if wanted.timestamp < 0:
        first_version = features.LIST_OFFSETS_TIMES.get(wanted.timestamp)
        if first_version is None or context.version < first_version:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
    context.check_partition(topic, wanted.partition_index)
    replica = _led(state, topic, wanted.partition_index, context, wanted.current_leader_epoch)
    found = replica.log.list_offset(wanted.timestamp, committed=committed)
    if wanted.timestamp == LATEST or (found is None and wanted.timestamp >= 0):
        _check_high_watermark(replica, context.version)
    if found is not None:
        answer.timestamp, answer.offset = found.timestamp_ms, found.offset
        if context.version >= features.LIST_OFFSETS_LEADER_EPOCHS:
            answer.leader_epoch = found.leader_epoch


def _led(state: BrokerState, topic: str, index: int, context: Context, leader_epoch: int) -> Replica:
    """Return the leader's replica; the epoch is checked first, as in Partition.getLocalLog."""
    replica = state.cluster.replica(topic, index, context.node_id, leader_epoch)
    if replica.leadership is None:
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return replica


def _check_high_watermark(replica: Replica, version: int) -> None:
    """Refuse to name the end while the high watermark is older than the leader's term (KIP-207)."""
    assert replica.leadership is not None
    if replica.log.high_watermark < replica.leadership.start_offset:
        names_it = version >= features.LIST_OFFSETS_NOT_AVAILABLE
        raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE if names_it else ErrorCode.LEADER_NOT_AVAILABLE)


@each_partition(
    messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult,
    messages.OffsetForLeaderEpochResponse.EpochEndOffset,
    key="partition",
)
def offset_for_leader_epoch(
    state: BrokerState,
    context: Context,
    topic: str,
    wanted: messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition,
    answer: messages.OffsetForLeaderEpochResponse.EpochEndOffset,
) -> None:
    state.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    replica = _led(state, topic, wanted.partition, context, wanted.current_leader_epoch)
    answer.leader_epoch, answer.end_offset = replica.log.end_of_leader_epoch(wanted.leader_epoch)


HANDLERS = {
    messages.FetchRequest: fetch,
    messages.ListOffsetsRequest: list_offsets,
    messages.OffsetForLeaderEpochRequest: offset_for_leader_epoch,
}
