"""DescribeQuorum: the controllers, and the brokers that follow them (KIP-836).

There is no quorum: the controllers are names, of which one is active, and no client can reach them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.testing.broker.controller.controller import CONTROLLER_IDS
from kbatch.testing.broker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.cluster import Cluster

METADATA_TOPIC = "__cluster_metadata"
NO_DIRECTORY = bytes(16)
LISTENER, HOST, NO_PORT = "CONTROLLER", "localhost", 0
Described = messages.DescribeQuorumResponse.PartitionData
Follower = messages.DescribeQuorumResponse.ReplicaState


def describe_quorum(
    state: BrokerState, request: messages.DescribeQuorumRequest, context: Context
) -> messages.DescribeQuorumResponse:
    context.check_forced_error()
    state.authorize_cluster(context, Operation.DESCRIBE)
    response = messages.DescribeQuorumResponse(error_message="")
    has_directories = context.version >= features.DESCRIBE_QUORUM_DIRECTORIES
    for topic in request.topics:
        described = [
            _described(state, topic.topic_name, each.partition_index, has_directories)
            for each in topic.partitions
        ]
        response.topics.append(response.TopicData(topic_name=topic.topic_name, partitions=described))
    if has_directories and any(
        each.error_code == ErrorCode.NONE for topic in response.topics for each in topic.partitions
    ):
        response.nodes = [_node(each) for each in CONTROLLER_IDS]
    return response


def _described(state: BrokerState, topic: str, index: int, has_directories: bool) -> Described:
    if (topic, index) != (METADATA_TOPIC, 0):
        return Described(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="This server does not host this topic-partition.",
        )
    cluster = state.cluster
    offset, now_ms = cluster.metadata_offset, state.now_ms
    voters = [_replica(each, NO_DIRECTORY, offset, now_ms) for each in CONTROLLER_IDS]
    observers = [
        _replica(
            node.node_id,
            _directory_id(cluster, node.node_id) if has_directories else NO_DIRECTORY,
            *(node.last_heard or (offset, now_ms)),
        )
        for node in cluster.running_nodes
    ]
    return Described(
        partition_index=index,
        error_message="",
        leader_id=cluster.controller.active_id,
        leader_epoch=cluster.controller.epoch,
        high_watermark=offset,
        current_voters=voters,
        observers=observers,
    )


def _replica(replica_id: int, directory_id: bytes, end_offset: int, fetched_ms: int) -> Follower:
    return Follower(
        replica_id=replica_id,
        replica_directory_id=directory_id,
        log_end_offset=end_offset,
        last_fetch_timestamp=fetched_ms,
        last_caught_up_timestamp=fetched_ms,
    )


def _directory_id(cluster: Cluster, node_id: int) -> bytes:
    return hashlib.sha256(f"{cluster.cluster_id} {node_id}".encode()).digest()[:16]


def _node(controller_id: int) -> messages.DescribeQuorumResponse.Node:
    kind = messages.DescribeQuorumResponse
    return kind.Node(node_id=controller_id, listeners=[kind.Listener(name=LISTENER, host=HOST, port=NO_PORT)])


HANDLERS = {messages.DescribeQuorumRequest: describe_quorum}
