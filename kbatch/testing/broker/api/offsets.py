"""Committed offsets by request: OffsetCommit, OffsetFetch, OffsetDelete, and TxnOffsetCommit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.protocol.structs import Struct
from kbatch.records import NO_TOPIC_ID
from kbatch.testing.broker.api.items import by_topic
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.cluster import NO_TOPIC
from kbatch.testing.broker.groups.group_coordinator import check_group_id
from kbatch.testing.broker.groups.offset_store import CommittedOffset, FetchedOffset
from kbatch.testing.broker.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.transactions.transaction_metadata import TopicPartition

CommitPartition = (
    messages.OffsetCommitRequest.OffsetCommitRequestPartition
    | messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
)
FetchedPartition = (
    messages.OffsetFetchResponse.OffsetFetchResponsePartition
    | messages.OffsetFetchResponse.OffsetFetchResponsePartitions
)


def _committed(partition: CommitPartition, topic_id: bytes) -> CommittedOffset:
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        topic_id=topic_id,
    )


def _codes(
    state: BrokerState,
    wanted: dict[TopicPartition, CommitPartition],
    context: Context,
    authorize: Callable[[], None],
    commit: Callable[[dict[TopicPartition, CommittedOffset]], dict[TopicPartition, ErrorCode]],
) -> dict[TopicPartition, ErrorCode]:
    """Return a code for each partition; the existing partitions are committed together."""
    codes = {}
    offsets = {}
    for (topic, index), partition in wanted.items():
        try:
            context.check_forced_error()
            authorize()
            if topic == NO_TOPIC and context.version >= features.OFFSET_COMMIT_TOPIC_IDS:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
            state.authorize(context, Operation.READ, ResourceType.TOPIC, topic)
            found = state.cluster.partition(topic, index)
            offsets[topic, index] = _committed(partition, found.topic.topic_id)
        except BrokerError as error:
            codes[topic, index] = error.code
    try:
        return codes | (commit(offsets) if offsets else {})
    except BrokerError as error:
        return codes | dict.fromkeys(offsets, error.code)


def offset_commit(
    state: BrokerState, request: messages.OffsetCommitRequest, context: Context
) -> messages.OffsetCommitResponse:
    by_id = context.version >= features.OFFSET_COMMIT_TOPIC_IDS

    def name_of(topic: messages.OffsetCommitRequest.OffsetCommitRequestTopic) -> str:
        return state.cluster.name_of(topic.topic_id) if by_id else topic.name

    wanted: dict[TopicPartition, CommitPartition] = {
        (name_of(topic), partition.partition_index): partition
        for topic in request.topics
        for partition in topic.partitions
    }

    def commit(offsets: dict[TopicPartition, CommittedOffset]) -> dict[TopicPartition, ErrorCode]:
        shard = state.coordinators.of_group(request.group_id, context.node_id)
        committed = shard.live.offsets.commit(
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            offsets,
            context.now_ms,
            group_instance_id=request.group_instance_id,
            retention_ms=request.retention_time_ms,
            version=context.version,
        )
        context.wait_for(shard.log.unreplicated(), refuse)
        return committed

    def authorize() -> None:
        state.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)

    def refuse(code: ErrorCode) -> None:
        """Answer with an error for what would have been committed."""
        codes.update({each: known or code for each, known in codes.items()})
        response.topics = answered()

    kind = messages.OffsetCommitResponse

    def answered() -> list[messages.OffsetCommitResponse.OffsetCommitResponseTopic]:
        return [
            kind.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    kind.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[name_of(topic), partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]

    codes = _codes(state, wanted, context, authorize, commit)
    response = kind(topics=answered())
    return response


def txn_offset_commit(
    state: BrokerState, request: messages.TxnOffsetCommitRequest, context: Context
) -> messages.TxnOffsetCommitResponse:
    wanted: dict[TopicPartition, CommitPartition] = {
        (topic.name, partition.partition_index): partition
        for topic in request.topics
        for partition in topic.partitions
    }

    def authorize() -> None:
        state.authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        state.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)

    def commit(offsets: dict[TopicPartition, CommittedOffset]) -> dict[TopicPartition, ErrorCode]:
        check_group_id(request.group_id)
        shard = state.coordinators.of_group(request.group_id, context.node_id)
        _verify(state, request, context)
        committed = shard.live.offsets.commit_transactional(
            request.group_id,
            request.producer_id,
            request.producer_epoch,
            request.member_id,
            request.generation_id,
            offsets,
            context.now_ms,
            group_instance_id=request.group_instance_id,
            version=context.version,
        )
        context.wait_for(shard.log.unreplicated(), refuse)
        return committed

    def refuse(code: ErrorCode) -> None:
        """Answer with an error for what would have been committed."""
        codes.update({each: known or code for each, known in codes.items()})
        response.topics = answered()

    kind = messages.TxnOffsetCommitResponse

    def answer(topic: str, partition: CommitPartition) -> Struct:
        index = partition.partition_index
        return kind.TxnOffsetCommitResponsePartition(partition_index=index, error_code=codes[topic, index])

    def answered() -> list[messages.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic]:
        return by_topic(request.topics, kind.TxnOffsetCommitResponseTopic, answer)

    codes = _codes(state, wanted, context, authorize, commit)
    response = kind(topics=answered())
    return response


def _verify(state: BrokerState, request: messages.TxnOffsetCommitRequest, context: Context) -> None:
    """Verify that the transaction has the partition of __consumer_offsets, as for any that is produced to."""
    partition = state.coordinators.partition_of_group(request.group_id)
    try:
        state.coordinators.verify_partition(
            context.node_id,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            (partition.topic.name, partition.index),
            adds=context.version >= features.TXN_OFFSET_COMMIT_ADDS_PARTITIONS,
            names_abortable=context.version >= features.TXN_OFFSET_COMMIT_TRANSACTION_ABORTABLE,
            now_ms=context.now_ms,
        )
    except BrokerError as error:
        if error.code == ErrorCode.NETWORK_EXCEPTION:  # as old clients expect (commitTransactionalOffsets)
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from error
        raise


# OffsetFetch: one group up to version 7, many after it


def offset_fetch(
    state: BrokerState, request: messages.OffsetFetchRequest, context: Context
) -> messages.OffsetFetchResponse:
    if context.version >= features.OFFSET_FETCH_BATCHES:
        answer = messages.OffsetFetchResponse.OffsetFetchResponseGroup
        return messages.OffsetFetchResponse(
            groups=[
                context.fill(
                    answer(group_id=group.group_id),
                    _fetch_group,
                    state,
                    group,
                    request.require_stable,
                    context,
                )
                for group in request.groups
            ]
        )
    return _fetch_single(state, request, context)


def _fetch_single(
    state: BrokerState, request: messages.OffsetFetchRequest, context: Context
) -> messages.OffsetFetchResponse:
    partitions = None
    if request.topics is not None:
        partitions = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    try:
        context.check_forced_error()
        fetched = _fetch(state, request.group_id, partitions, request.require_stable, context, None)
    except BrokerError as error:
        if context.version >= features.OFFSET_FETCH_GROUP_ERROR:
            raise
        fetched = dict.fromkeys(partitions or (), FetchedOffset(error.code))
    kind = messages.OffsetFetchResponse
    return kind(
        topics=[
            kind.OffsetFetchResponseTopic(
                name=topic,
                partitions=_fetched(kind.OffsetFetchResponsePartition, offsets),
            )
            for topic, offsets in _by_topic(fetched).items()
        ]
    )


def _fetch_group(
    state: BrokerState,
    group: messages.OffsetFetchRequest.OffsetFetchRequestGroup,
    require_stable: bool,
    context: Context,
    response: messages.OffsetFetchResponse.OffsetFetchResponseGroup,
) -> None:
    by_id = context.version >= features.OFFSET_FETCH_TOPIC_IDS
    partitions, topic_ids = None, {}
    if group.topics is not None:
        names = [state.cluster.name_of(topic.topic_id) if by_id else topic.name for topic in group.topics]
        topics = list(zip(names, group.topics, strict=True))
        partitions = [(name, index) for name, topic in topics for index in topic.partition_indexes]
        topic_ids = {name: topic.topic_id for name, topic in topics} if by_id else {}
    fetched = _by_topic(
        _fetch(
            state,
            group.group_id,
            partitions,
            require_stable,
            context,
            partial(setattr, response, "error_code"),
            topic_ids=topic_ids,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
        )
    )
    response.topics = [_fetched_topic(state, topic, offsets) for topic, offsets in fetched.items() if topic]
    for topic in group.topics or () if by_id else ():
        if not state.cluster.name_of(topic.topic_id):
            response.topics.append(_unknown_topic(topic))


def _fetched_topic(
    state: BrokerState, name: str, offsets: list[tuple[int, FetchedOffset]]
) -> messages.OffsetFetchResponse.OffsetFetchResponseTopics:
    topic = state.cluster.topics.get(name)
    kind = messages.OffsetFetchResponse
    return kind.OffsetFetchResponseTopics(
        name=name,
        topic_id=topic.topic_id if topic is not None else NO_TOPIC_ID,
        partitions=_fetched(kind.OffsetFetchResponsePartitions, offsets),
    )


def _unknown_topic(
    topic: messages.OffsetFetchRequest.OffsetFetchRequestTopics,
) -> messages.OffsetFetchResponse.OffsetFetchResponseTopics:
    kind = messages.OffsetFetchResponse
    unknown = FetchedOffset(ErrorCode.UNKNOWN_TOPIC_ID)
    offsets = [(index, unknown) for index in topic.partition_indexes]
    return kind.OffsetFetchResponseTopics(
        topic_id=topic.topic_id, partitions=_fetched(kind.OffsetFetchResponsePartitions, offsets)
    )


def _fetched(kind: type[FetchedPartition], offsets: list[tuple[int, FetchedOffset]]) -> list[Any]:
    return [
        kind(
            partition_index=index,
            committed_offset=offset.offset,
            committed_leader_epoch=offset.leader_epoch,
            metadata=offset.metadata,
            error_code=offset.error_code,
        )
        for index, offset in offsets
    ]


def _fetch(
    state: BrokerState,
    group_id: str,
    partitions: list[TopicPartition] | None,
    require_stable: bool,
    context: Context,
    refuse: Callable[[ErrorCode], None] | None,
    *,
    topic_ids: Mapping[str, bytes] | None = None,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> dict[TopicPartition, FetchedOffset]:
    """Return the offsets that the client may see; a partition that it names and may not see is an error."""
    state.authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
    shard = state.coordinators.of_group(group_id, context.node_id)
    known = shard.live if require_stable else shard.committed(context.now_ms)
    fetched = known.offsets.fetch(
        group_id,
        partitions,
        require_stable=require_stable,
        topic_ids=topic_ids,
        member_id=member_id,
        member_epoch=member_epoch,
    )
    if require_stable:
        context.wait_for(shard.log.unreplicated(), refuse)
    shown = {
        name
        for name, _ in fetched
        if name == NO_TOPIC or state.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    }
    refused = FetchedOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return {
        key: offset if key[0] in shown else refused
        for key, offset in fetched.items()
        if key[0] in shown or partitions is not None
    }


def _by_topic(
    fetched: dict[TopicPartition, FetchedOffset],
) -> dict[str, list[tuple[int, FetchedOffset]]]:
    topics: dict[str, list[tuple[int, FetchedOffset]]] = {}
    for (topic, index), offset in fetched.items():
        topics.setdefault(topic, []).append((index, offset))
    return topics


def offset_delete(
    state: BrokerState, request: messages.OffsetDeleteRequest, context: Context
) -> messages.OffsetDeleteResponse:
    context.check_forced_error()
    state.authorize(context, Operation.DELETE, ResourceType.GROUP, request.group_id)
    shard = state.coordinators.of_group(request.group_id, context.node_id)
    wanted = [
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    codes = dict.fromkeys(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    refused = [
        each for each in wanted if not state.allows(context, Operation.READ, ResourceType.TOPIC, each[0])
    ]
    codes |= dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    present = [each for each in wanted if state.cluster.has_partition(*each) and each not in refused]
    codes |= shard.live.offsets.delete(request.group_id, present)
    context.wait_for(shard.log.unreplicated())
    kind = messages.OffsetDeleteResponse

    def answer(topic: str, partition: messages.OffsetDeleteRequest.OffsetDeleteRequestPartition) -> Struct:
        index = partition.partition_index
        return kind.OffsetDeleteResponsePartition(partition_index=index, error_code=codes[topic, index])

    return kind(topics=by_topic(request.topics, kind.OffsetDeleteResponseTopic, answer))


HANDLERS = {
    messages.OffsetCommitRequest: offset_commit,
    messages.TxnOffsetCommitRequest: txn_offset_commit,
    messages.OffsetFetchRequest: offset_fetch,
    messages.OffsetDeleteRequest: offset_delete,
}
