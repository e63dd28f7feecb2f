"""Consumer groups by request: membership, from JoinGroup to DescribeGroups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.testing.broker.api.items import each_item
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.broker_state import Delayed
from kbatch.testing.broker.groups.consumer_group_coordinator import GroupClient
from kbatch.testing.broker.groups.requests import JoinGroup, JoinResult, SyncResult
from kbatch.testing.broker.security.authorizer import Operation, ResourceType
from kbatch.testing.broker.shards import GroupShard
from kbatch.testing.broker.transactions.transaction_coordinator import OFFSETS_TOPIC

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.groups.requests import GroupDescription


def join_group(state: BrokerState, request: messages.JoinGroupRequest, context: Context) -> Delayed:
    delayed = Delayed()

    def reply(result: JoinResult) -> None:
        name = result.protocol_name
        delayed.complete(
            messages.JoinGroupResponse(
                error_code=result.error_code,
                generation_id=result.generation_id,
                protocol_type=result.protocol_type,
                protocol_name=name if context.version >= features.JOIN_GROUP_NULL_PROTOCOL else name or "",
                leader=result.leader,
                skip_assignment=result.skip_assignment,
                member_id=result.member_id,
                members=[
                    messages.JoinGroupResponse.JoinGroupResponseMember(
                        member_id=member.member_id,
                        group_instance_id=member.group_instance_id,
                        metadata=member.metadata,
                    )
                    for member in result.members
                ],
            )
        )

    try:
        shard = _group(state, request.group_id, context)
    except BrokerError as error:
        reply(JoinResult(error.code, request.member_id))
        return delayed
    join = JoinGroup(
        request.group_id,
        request.member_id,
        request.protocol_type,
        tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.group_instance_id,
        context.client_id,
        f"/{context.connection.client_host}",
        context.version,
    )
    shard.live.members_of(request.group_id).join(join, reply, context.now_ms)
    return delayed


def sync_group(state: BrokerState, request: messages.SyncGroupRequest, context: Context) -> Delayed:
    delayed = Delayed()

    def reply(result: SyncResult) -> None:
        delayed.complete(
            messages.SyncGroupResponse(
                error_code=result.error_code,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    try:
        shard = _group(state, request.group_id, context)
        names = (request.protocol_type, request.protocol_name)
        if context.version >= features.SYNC_GROUP_NAMES_PROTOCOL and None in names:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    except BrokerError as error:
        reply(SyncResult(error.code))
        return delayed
    shard.live.members_of(request.group_id).sync(
        request.group_id,
        request.member_id,
        request.generation_id,
        {each.member_id: bytes(each.assignment) for each in request.assignments},
        reply,
        context.now_ms,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
    )
    return delayed


def heartbeat(
    state: BrokerState, request: messages.HeartbeatRequest, context: Context
) -> messages.HeartbeatResponse:
    shard = _group(state, request.group_id, context)
    shard.live.members_of(request.group_id).heartbeat(
        request.group_id,
        request.member_id,
        request.generation_id,
        context.now_ms,
        group_instance_id=request.group_instance_id,
    )
    context.wait_for(shard.log.unreplicated())
    return messages.HeartbeatResponse()


def leave_group(
    state: BrokerState, request: messages.LeaveGroupRequest, context: Context
) -> messages.LeaveGroupResponse:
    shard = _group(state, request.group_id, context)
    leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    if context.version < features.LEAVE_GROUP_BATCHES:
        leaving = [(request.member_id, None)]
    codes = shard.live.members_of(request.group_id).leave(request.group_id, leaving, context.now_ms)
    context.wait_for(shard.log.unreplicated())
    if context.version < features.LEAVE_GROUP_BATCHES:
        return messages.LeaveGroupResponse(error_code=codes[0])
    return messages.LeaveGroupResponse(
        members=[
            messages.LeaveGroupResponse.MemberResponse(
                member_id=member_id, group_instance_id=group_instance_id, error_code=code
            )
            for (member_id, group_instance_id), code in zip(leaving, codes, strict=True)
        ]
    )


def _group(state: BrokerState, group_id: str, context: Context) -> GroupShard:
    """Return the group's coordinator, if it is this node and the client may read by the group."""
    context.check_forced_error()
    state.authorize(context, Operation.READ, ResourceType.GROUP, group_id)
    return state.coordinators.of_group(group_id, context.node_id)


# Consumer groups of KIP-848


def consumer_group_heartbeat(
    state: BrokerState, request: messages.ConsumerGroupHeartbeatRequest, context: Context
) -> messages.ConsumerGroupHeartbeatResponse:
    context.check_forced_error()
    _check_group_version(state)
    state.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)

    def sees(topic: str) -> bool:
        return state.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    if not all(map(sees, request.subscribed_topic_names or ())):
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    shard = state.coordinators.of_group(request.group_id, context.node_id)
    client = GroupClient(context.client_id, f"/{context.connection.client_host}", context.version, sees)
    answer = shard.live.consumer_groups.consumer_heartbeat(request, client, context.now_ms)
    context.wait_for(shard.log.unreplicated())
    return answer


@each_item("groups", messages.ConsumerGroupDescribeResponse.DescribedGroup, "group_ids", "group_id")
def consumer_group_describe(
    state: BrokerState,
    request: messages.ConsumerGroupDescribeRequest,
    context: Context,
    group_id: str,
    answer: messages.ConsumerGroupDescribeResponse.DescribedGroup,
) -> None:
    _check_group_version(state)
    state.authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
    shard = state.coordinators.of_group(group_id, context.node_id)
    described = shard.committed(context.now_ms).consumer_groups.describe(group_id)
    names = {name for member in described.members for name in member.subscribed_topic_names}
    for member in described.members:
        for assignment in (member.assignment, member.target_assignment):
            names.update(topic.topic_name for topic in assignment.topic_partitions)
    if not all(state.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        raise BrokerError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has described topic(s) that the client is not authorized to describe.",
        )
    answer.group_state, answer.assignor_name = described.group_state, described.assignor_name
    answer.group_epoch, answer.assignment_epoch = described.group_epoch, described.assignment_epoch
    answer.members = described.members
    _add_operations(state, request, context, answer)


def _check_group_version(state: BrokerState) -> None:
    if not state.options.group_version:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)


# Descriptions


@each_item("groups", messages.DescribeGroupsResponse.DescribedGroup, "groups", "group_id")
def describe_groups(
    state: BrokerState,
    request: messages.DescribeGroupsRequest,
    context: Context,
    group_id: str,
    answer: messages.DescribeGroupsResponse.DescribedGroup,
) -> None:
    state.authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
    shard = state.coordinators.of_group(group_id, context.node_id)
    try:
        described: GroupDescription = shard.live.groups.describe(group_id)
    except BrokerError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        answer.group_state = "Dead"
        if context.version >= features.DESCRIBE_GROUPS_NOT_FOUND:
            raise
        _add_operations(state, request, context, answer)
        return
    answer.group_state = described.state
    answer.protocol_type = described.protocol_type
    answer.protocol_data = described.protocol
    answer.members = [
        messages.DescribeGroupsResponse.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata,
            member_assignment=member.assignment,
        )
        for member in described.members
    ]
    _add_operations(state, request, context, answer)


def _add_operations(
    state: BrokerState,
    request: messages.DescribeGroupsRequest | messages.ConsumerGroupDescribeRequest,
    context: Context,
    answer: messages.DescribeGroupsResponse.DescribedGroup
    | messages.ConsumerGroupDescribeResponse.DescribedGroup,
) -> None:
    if request.include_authorized_operations:
        answer.authorized_operations = state.authorized_operations(
            context, ResourceType.GROUP, answer.group_id
        )


def list_groups(
    state: BrokerState, request: messages.ListGroupsRequest, context: Context
) -> messages.ListGroupsResponse:
    """Return the groups that this node coordinates, and that the client may see."""
    context.check_forced_error()
    sees_all = state.allows_cluster(context, Operation.DESCRIBE)
    return messages.ListGroupsResponse(
        groups=[
            messages.ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for shard in state.coordinators.at_node(context.node_id, OFFSETS_TOPIC, GroupShard)
            for group in shard.live.groups.list_groups(request.states_filter, request.types_filter)
            if sees_all or state.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
    )


@each_item("results", messages.DeleteGroupsResponse.DeletableGroupResult, "groups_names", "group_id")
def delete_groups(
    state: BrokerState,
    request: messages.DeleteGroupsRequest,
    context: Context,
    group_id: str,
    answer: messages.DeleteGroupsResponse.DeletableGroupResult,
) -> None:
    state.authorize(context, Operation.DELETE, ResourceType.GROUP, group_id)
    shard = state.coordinators.of_group(group_id, context.node_id)
    shard.live.offsets.delete_group(group_id, context.now_ms)
    context.wait_for(shard.log.unreplicated(), partial(setattr, answer, "error_code"))
    state.share_partitions.forget_group(group_id)


HANDLERS = {
    messages.JoinGroupRequest: join_group,
    messages.SyncGroupRequest: sync_group,
    messages.HeartbeatRequest: heartbeat,
    messages.LeaveGroupRequest: leave_group,
    messages.ConsumerGroupHeartbeatRequest: consumer_group_heartbeat,
    messages.ConsumerGroupDescribeRequest: consumer_group_describe,
    messages.DescribeGroupsRequest: describe_groups,
    messages.ListGroupsRequest: list_groups,
    messages.DeleteGroupsRequest: delete_groups,
}
