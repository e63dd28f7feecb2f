"""Share groups by request (KIP-932): membership, descriptions, and the offsets at which they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.records import NO_TOPIC_ID
from kbatch.testing.broker.api.items import each_item
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.groups.consumer_group_coordinator import GroupClient
from kbatch.testing.broker.security.authorizer import Operation, ResourceType
from kbatch.testing.broker.share.share_state import NO_OFFSET, ShareKey

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.shards import GroupShard

NOT_HOSTED = "This server does not host this topic-partition."
NOTHING_TO_DELETE = "There is no offset information to delete."
Offsets = messages.DescribeShareGroupOffsetsResponse


def check_share_version(state: BrokerState) -> None:
    """Raise BrokerError UNSUPPORTED_VERSION if share groups are switched off."""
    if not state.options.share_version:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)


def share_group_heartbeat(
    state: BrokerState, request: messages.ShareGroupHeartbeatRequest, context: Context
) -> messages.ShareGroupHeartbeatResponse:
    context.check_forced_error()
    check_share_version(state)
    state.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)

    def sees(topic: str) -> bool:
        return state.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    if not all(map(sees, request.subscribed_topic_names or ())):
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    shard = state.coordinators.of_group(request.group_id, context.node_id)
    client = GroupClient(context.client_id, f"/{context.connection.client_host}", context.version, sees)
    answer = shard.live.share_groups.heartbeat(request, client, context.now_ms)
    context.wait_for(shard.log.unreplicated())
    return answer


@each_item("groups", messages.ShareGroupDescribeResponse.DescribedGroup, "group_ids", "group_id")
def share_group_describe(
    state: BrokerState,
    request: messages.ShareGroupDescribeRequest,
    context: Context,
    group_id: str,
    answer: messages.ShareGroupDescribeResponse.DescribedGroup,
) -> None:
    check_share_version(state)
    state.authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
    shard = state.coordinators.of_group(group_id, context.node_id)
    described = shard.committed(context.now_ms).share_groups.describe(group_id)
    names = {name for member in described.members for name in member.subscribed_topic_names}
    if not all(state.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        raise BrokerError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has described topic(s) that the client is not authorized to describe.",
        )
    answer.group_state, answer.assignor_name = described.group_state, described.assignor_name
    answer.group_epoch, answer.assignment_epoch = described.group_epoch, described.assignment_epoch
    answer.members = described.members
    if request.include_authorized_operations:
        answer.authorized_operations = state.authorized_operations(context, ResourceType.GROUP, group_id)


# Offsets


@each_item("groups", Offsets.DescribeShareGroupOffsetsResponseGroup, "groups", "group_id")
def describe_share_group_offsets(
    state: BrokerState,
    request: messages.DescribeShareGroupOffsetsRequest,
    context: Context,
    group: messages.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup,
    answer: Offsets.DescribeShareGroupOffsetsResponseGroup,
) -> None:
    check_share_version(state)
    state.authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
    shard = state.coordinators.of_group(group.group_id, context.node_id)
    if group.topics is None:
        wanted = shard.committed(context.now_ms).share_groups.initialized(group.group_id)
        wanted = {
            name: indexes
            for name, indexes in wanted.items()
            if state.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        }
    else:
        wanted = {topic.topic_name: topic.partitions for topic in group.topics}
    for name, indexes in wanted.items():
        known = state.cluster.topics.get(name)
        topic = Offsets.DescribeShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=NO_TOPIC_ID if known is None else known.topic_id
        )
        topic.partitions = [
            context.fill(
                Offsets.DescribeShareGroupOffsetsResponsePartition(
                    partition_index=index, start_offset=NO_OFFSET
                ),
                _describe_offset,
                state,
                group.group_id,
                name,
                context,
            )
            for index in indexes
        ]
        answer.topics.append(topic)


def _describe_offset(
    state: BrokerState,
    group_id: str,
    name: str,
    context: Context,
    answer: Offsets.DescribeShareGroupOffsetsResponsePartition,
) -> None:
    state.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    if not state.cluster.has_partition(name, answer.partition_index):
        return
    partition = state.cluster.partition(name, answer.partition_index)
    key = ShareKey(group_id, partition.topic.topic_id, partition.index)
    stored = state.coordinators.share_states.read(key)
    if stored is None or stored.start_offset == NO_OFFSET:
        return
    answer.start_offset, answer.leader_epoch = stored.start_offset, stored.leader_epoch
    answer.lag = partition.log.high_watermark - stored.start_offset - max(stored.final_count, 0)


def alter_share_group_offsets(
    state: BrokerState, request: messages.AlterShareGroupOffsetsRequest, context: Context
) -> messages.AlterShareGroupOffsetsResponse:
    shard = _changed_group(state, request.group_id, Operation.READ, context)
    offsets: dict[tuple[str, int], int] = {}
    kind = messages.AlterShareGroupOffsetsResponse

    def check(
        topic: str,
        offset: int,
        answer: messages.AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition,
    ) -> None:
        state.authorize(context, Operation.READ, ResourceType.TOPIC, topic)
        if not state.cluster.has_partition(topic, answer.partition_index):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
        offsets[topic, answer.partition_index] = offset

    responses = []
    for topic in request.topics:
        known = state.cluster.topics.get(topic.topic_name)
        partitions = [
            context.fill(
                kind.AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index),
                check,
                topic.topic_name,
                each.start_offset,
            )
            for each in topic.partitions
        ]
        responses.append(
            kind.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=NO_TOPIC_ID if known is None else known.topic_id,
                partitions=partitions,
            )
        )
    shard.live.share_groups.set_offsets(request.group_id, offsets, context.now_ms)
    context.wait_for(shard.log.unreplicated())
    for name, index in offsets:
        state.share_partitions.drop(ShareKey(request.group_id, state.cluster.topics[name].topic_id, index))
    return kind(responses=responses)


def delete_share_group_offsets(
    state: BrokerState, request: messages.DeleteShareGroupOffsetsRequest, context: Context
) -> messages.DeleteShareGroupOffsetsResponse:
    shard = _changed_group(state, request.group_id, Operation.DELETE, context)
    kind = messages.DeleteShareGroupOffsetsResponse
    wanted: list[str] = []

    def check(answer: messages.DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic) -> None:
        state.authorize(context, Operation.READ, ResourceType.TOPIC, answer.topic_name)
        if answer.topic_name not in state.cluster.topics:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
        wanted.append(answer.topic_name)

    responses = [
        context.fill(kind.DeleteShareGroupOffsetsResponseTopic(topic_name=topic.topic_name), check)
        for topic in request.topics
    ]
    deleted = shard.live.share_groups.delete_offsets(request.group_id, wanted, context.now_ms)
    context.wait_for(shard.log.unreplicated())
    for answer in responses:
        if answer.topic_name in deleted:
            topic = state.cluster.topics[answer.topic_name]
            answer.topic_id = topic.topic_id
            for index in range(len(topic.partitions)):
                state.share_partitions.drop(ShareKey(request.group_id, topic.topic_id, index))
        elif answer.topic_name in wanted:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.error_message = NOTHING_TO_DELETE
    return kind(responses=responses)


def _changed_group(state: BrokerState, group_id: str, operation: Operation, context: Context) -> GroupShard:
    """Return the coordinator of a group whose offsets the client may change."""
    context.check_forced_error()
    check_share_version(state)
    state.authorize(context, operation, ResourceType.GROUP, group_id)
    shard = state.coordinators.of_group(group_id, context.node_id)
    if not group_id:
        raise BrokerError(ErrorCode.INVALID_GROUP_ID)
    return shard


HANDLERS = {
    messages.ShareGroupHeartbeatRequest: share_group_heartbeat,
    messages.ShareGroupDescribeRequest: share_group_describe,
    messages.DescribeShareGroupOffsetsRequest: describe_share_group_offsets,
    messages.AlterShareGroupOffsetsRequest: alter_share_group_offsets,
    messages.DeleteShareGroupOffsetsRequest: delete_share_group_offsets,
}
