"""Replicas by request: elections of leaders, and reassignments of partitions to other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.partition_change import Election
from kbatch.testing.broker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.cluster import ClusterPartition

ELECTIONS = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def elect_leaders(
    state: BrokerState, request: messages.ElectLeadersRequest, context: Context
) -> messages.ElectLeadersResponse:
    """Elect the preferred leaders, or any; for all partitions, only those that moved are answered."""
    state.authorize_cluster(context, Operation.ALTER)
    response = messages.ElectLeadersResponse()
    if request.election_type not in ELECTIONS:
        response.error_code = ErrorCode.INVALID_REQUEST
    is_all = request.topic_partitions is None
    for topic, indexes in _named(state, request):
        answers = [
            context.fill(
                response.PartitionResult(partition_id=index, error_message=None),
                _elect,
                state,
                request.election_type,
                topic,
            )
            for index in indexes
        ]
        if is_all:
            answers = [each for each in answers if each.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        if answers or not is_all:
            result = response.ReplicaElectionResult(topic=topic, partition_result=answers)
            response.replica_election_results.append(result)
    return response


def _named(state: BrokerState, request: messages.ElectLeadersRequest) -> Iterator[tuple[str, list[int]]]:
    if request.topic_partitions is None:
        for topic in state.cluster.topics.values():
            yield topic.name, [each.index for each in topic.partitions]
    for named in request.topic_partitions or ():
        yield named.topic, list(named.partitions)


def _elect(
    state: BrokerState, election_type: int, topic: str, answer: messages.ElectLeadersResponse.PartitionResult
) -> None:
    if election_type not in ELECTIONS:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
    index = answer.partition_id
    if topic not in state.cluster.topics:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    if not state.cluster.has_partition(topic, index):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    try:
        state.cluster.controller.elect(state.cluster.partition(topic, index), ELECTIONS[election_type])
    finally:
        state.partition_changed(topic, index)


def alter_partition_reassignments(
    state: BrokerState, request: messages.AlterPartitionReassignmentsRequest, context: Context
) -> messages.AlterPartitionReassignmentsResponse:
    state.authorize_cluster(context, Operation.ALTER)
    kind = messages.AlterPartitionReassignmentsResponse
    response = kind(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for topic in request.topics:
        answers = [
            context.fill(
                kind.ReassignablePartitionResponse(partition_index=each.partition_index, error_message=None),
                _reassign,
                state,
                request.allow_replication_factor_change,
                topic.name,
                each.replicas,
            )
            for each in topic.partitions
        ]
        response.responses.append(kind.ReassignableTopicResponse(name=topic.name, partitions=answers))
    return response


def _reassign(
    state: BrokerState,
    may_change_factor: bool,
    topic: str,
    target: list[int] | None,
    answer: messages.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse,
) -> None:
    index = answer.partition_index
    if topic not in state.cluster.topics:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if not state.cluster.has_partition(topic, index):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}.")
    known = state.cluster.partition(topic, index).registration
    if target is not None and not may_change_factor and len(target) != len(known.target):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(known.target)} to {len(target)}",
        )
    state.reassign(topic, index, target)


def list_partition_reassignments(
    state: BrokerState, request: messages.ListPartitionReassignmentsRequest, context: Context
) -> messages.ListPartitionReassignmentsResponse:
    """Describe the reassignments under way; topics and partitions that are not there are left out."""
    context.check_forced_error()
    state.authorize_cluster(context, Operation.DESCRIBE)
    kind = messages.ListPartitionReassignmentsResponse
    response = kind(error_message=None)
    asked: dict[str, Callable[[ClusterPartition], bool]]
    if request.topics is None:
        asked = dict.fromkeys(state.cluster.topics, lambda _: True)
    else:
        asked = {each.name: partial(_is_named, list(each.partition_indexes)) for each in request.topics}
    for name, is_asked in asked.items():
        topic = state.cluster.topics.get(name)
        partitions = topic.partitions if topic is not None else []
        moving = [each for each in partitions if each.registration.is_reassigned and is_asked(each)]
        if moving:
            described = [_described(each) for each in moving]
            response.topics.append(kind.OngoingTopicReassignment(name=name, partitions=described))
    return response


def _is_named(indexes: list[int], partition: ClusterPartition) -> bool:
    return partition.index in indexes


def _described(
    partition: ClusterPartition,
) -> messages.ListPartitionReassignmentsResponse.OngoingPartitionReassignment:
    known = partition.registration
    return messages.ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
        partition_index=partition.index,
        replicas=list(known.replicas),
        adding_replicas=list(known.adding),
        removing_replicas=list(known.removing),
    )


HANDLERS = {
    messages.ElectLeadersRequest: elect_leaders,
    messages.AlterPartitionReassignmentsRequest: alter_partition_reassignments,
    messages.ListPartitionReassignmentsRequest: list_partition_reassignments,
}
