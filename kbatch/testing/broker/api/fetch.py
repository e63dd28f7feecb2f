"""Fetch, ListOffsets and OffsetForLeaderEpoch: what consumers read. `fetch_sessions` says which partitions a
request reads and answers with.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.testing.broker.api.items import each_partition
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.broker_state import Delayed
from kbatch.testing.broker.fetch_sessions import NO_EPOCH, Answered, FetchPlan, WantedPartition
from kbatch.testing.broker.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.cluster import ClusterPartition
    from kbatch.testing.broker.logs.partition import Partition

READ_COMMITTED = 1
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
PartitionData = messages.FetchResponse.PartitionData
ListOffsetsPartition = messages.ListOffsetsRequest.ListOffsetsPartition


def check_leader_epoch(partition: ClusterPartition, epoch: int) -> None:
    """Check the epoch that a client names: it must be the current one (KIP-320)."""
    if epoch != NO_EPOCH and epoch < partition.leader_epoch:
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
    if epoch > partition.leader_epoch:
        raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH)


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
        if not self._attempt(context.now_ms):
            partitions = frozenset(
                (self._topic_name(wanted), wanted.request.partition) for wanted in plan.partitions
            )
            deadline_ms = context.now_ms + request.max_wait_ms
            state.wait_for(partitions, self._attempt, deadline_ms, self._complete)

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
            room = self._request.max_bytes - size
            self._context.fill(answer, self._read_partition, wanted, room, size == 0)
            is_read = answer.error_code == ErrorCode.NONE and answer.diverging_epoch.epoch == NO_EPOCH
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
        partition = self._state.cluster.led_partition(name, wanted.partition, self._context.node_id)
        check_leader_epoch(partition, wanted.current_leader_epoch)
        diverging_epoch = _diverging_epoch(partition.log, wanted)
        if diverging_epoch is not None:
            answer.diverging_epoch = diverging_epoch
            answer.high_watermark = partition.log.high_watermark
            answer.last_stable_offset = partition.log.last_stable_offset
            answer.log_start_offset = partition.log.log_start_offset
            return
        is_committed = self._request.isolation_level == READ_COMMITTED
        read = partition.log.fetch(
            wanted.fetch_offset,
            max_bytes=min(wanted.partition_max_bytes, room),
            at_least_one=is_first,
            committed=is_committed,
        )
        answer.high_watermark = read.high_watermark
        answer.last_stable_offset = read.last_stable_offset
        answer.log_start_offset = read.log_start_offset
        answer.records = read.batches
        if is_committed:
            answer.aborted_transactions = [
                messages.FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in read.aborted_transactions
            ]

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
        partition = known.partitions[answer.partition_index]
        if partition.leader < 0:
            return
        node = self._state.cluster.nodes[partition.leader]
        answer.current_leader = messages.FetchResponse.LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
        hints[node.node_id] = messages.FetchResponse.NodeEndpoint(
            node_id=node.node_id, host=node.host, port=self._context.port_of(node)
        )


def _diverging_epoch(
    log: Partition, wanted: messages.FetchRequest.FetchPartition
) -> messages.FetchResponse.EpochEndOffset | None:
    """Return the offset where the client's log diverges, by the epoch of its last record (KIP-595).

    Raises BrokerError OFFSET_OUT_OF_RANGE for an epoch before the first.
    """
    if wanted.last_fetched_epoch == NO_EPOCH:
        return None
    epoch, end_offset = log.end_of_leader_epoch(wanted.last_fetched_epoch)
    if epoch == NO_EPOCH or wanted.fetch_offset < log.log_start_offset:
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch == wanted.last_fetched_epoch and wanted.fetch_offset <= end_offset:
        return None
    return messages.FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)


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
    partition = state.cluster.led_partition(topic, wanted.partition_index, context.node_id)
    check_leader_epoch(partition, wanted.current_leader_epoch)
    found = partition.log.list_offset(wanted.timestamp, committed=committed)
    if found is not None:
        answer.timestamp, answer.offset = found.timestamp_ms, found.offset
        if context.version >= features.LIST_OFFSETS_LEADER_EPOCHS:
            answer.leader_epoch = found.leader_epoch


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
    partition = state.cluster.led_partition(topic, wanted.partition, context.node_id)
    check_leader_epoch(partition, wanted.current_leader_epoch)
    answer.leader_epoch, answer.end_offset = partition.log.end_of_leader_epoch(wanted.leader_epoch)


HANDLERS = {
    messages.FetchRequest: fetch,
    messages.ListOffsetsRequest: list_offsets,
    messages.OffsetForLeaderEpochRequest: offset_for_leader_epoch,
}
