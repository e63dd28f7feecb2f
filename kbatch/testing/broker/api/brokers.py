"""What brokers ask the controller: BrokerRegistration, BrokerHeartbeat, AlterPartition.

Each node answers them, for there is no other way to the controller. ApiVersions does not name them, as those
of Kafka's brokers do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.controller import Proposal
from kbatch.testing.broker.played_brokers import Heartbeat, Registered
from kbatch.testing.broker.replication.leadership import UNKNOWN_EPOCH
from kbatch.testing.broker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context

Wanted = messages.AlterPartitionRequest.PartitionData
Altered = messages.AlterPartitionResponse.PartitionData


def register_broker(
    state: BrokerState, request: messages.BrokerRegistrationRequest, context: Context
) -> messages.BrokerRegistrationResponse:
    context.check_forced_error()
    state.authorize_cluster(context, Operation.CLUSTER_ACTION)
    if request.cluster_id != state.cluster.cluster_id:
        raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if not request.listeners:
        raise BrokerError(ErrorCode.INVALID_REGISTRATION)
    listener = request.listeners[0]
    said = Registered(
        request.incarnation_id, request.previous_broker_epoch, listener.host, listener.port, request.rack
    )
    epoch = state.played_brokers.register(request.broker_id, said, context.now_ms)
    return messages.BrokerRegistrationResponse(broker_epoch=epoch)


def hear_broker(
    state: BrokerState, request: messages.BrokerHeartbeatRequest, context: Context
) -> messages.BrokerHeartbeatResponse:
    context.check_forced_error()
    state.authorize_cluster(context, Operation.CLUSTER_ACTION)
    said = Heartbeat(
        request.broker_epoch, request.current_metadata_offset, request.want_fence, request.want_shut_down
    )
    told = state.played_brokers.hear(request.broker_id, said, context.now_ms)
    return messages.BrokerHeartbeatResponse(
        is_caught_up=told.is_caught_up, is_fenced=told.is_fenced, should_shut_down=told.should_shut_down
    )


def alter_partition(
    state: BrokerState, request: messages.AlterPartitionRequest, context: Context
) -> messages.AlterPartitionResponse:
    """Register the in-sync replicas that a leader proposes, each partition by itself."""
    state.authorize_cluster(context, Operation.CLUSTER_ACTION)
    state.played_brokers.check_epoch(request.broker_id, request.broker_epoch)
    kind = messages.AlterPartitionResponse
    return kind(
        topics=[
            kind.TopicData(
                topic_id=topic.topic_id,
                partitions=[
                    context.fill(
                        Altered(partition_index=wanted.partition_index),
                        _alter,
                        state,
                        request.broker_id,
                        topic.topic_id,
                        wanted,
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _alter(state: BrokerState, leader: int, topic_id: bytes, wanted: Wanted, answer: Altered) -> None:
    topic = state.cluster.topic_by_id(bytes(topic_id))
    partition = state.cluster.partition(topic.name, wanted.partition_index)
    named = wanted.new_isr_with_epochs
    proposal = Proposal(
        leader,
        wanted.leader_epoch,
        wanted.partition_epoch,
        tuple(each.broker_id for each in named) or tuple(wanted.new_isr),
        {each.broker_id: each.broker_epoch for each in named if each.broker_epoch != UNKNOWN_EPOCH},
    )
    state.cluster.controller.alter_partition(partition, proposal)
    state.partition_changed(topic.name, partition.index)
    known = partition.registration
    if known.leader != leader:  # the move that it has ended goes on without it
        raise BrokerError(ErrorCode.NEW_LEADER_ELECTED)
    answer.leader_id, answer.leader_epoch = known.leader, known.leader_epoch
    answer.isr, answer.partition_epoch = list(known.isr), known.partition_epoch


HANDLERS = {
    messages.AlterPartitionRequest: alter_partition,
    messages.BrokerRegistrationRequest: register_broker,
    messages.BrokerHeartbeatRequest: hear_broker,
}
