"""Log directories: what is in them, and replicas that move from one to another (KIP-113)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.controller.brokers import LogDir
    from kbatch.testing.broker.replication.replica import Replica

Described = messages.DescribeLogDirsResponse.DescribeLogDirsResult
Moved = messages.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


def describe_log_dirs(
    state: BrokerState, request: messages.DescribeLogDirsRequest, context: Context
) -> messages.DescribeLogDirsResponse:
    """Describe the node's directories, each with the replicas that were asked for, or with all."""
    state.authorize_cluster(context, Operation.DESCRIBE)
    named = None
    if request.topics is not None:
        named = {each.topic: list(each.partitions) for each in request.topics}
    node = state.cluster.node(context.node_id)
    return messages.DescribeLogDirsResponse(
        results=[
            context.fill(Described(log_dir=each.path), _describe, state, each, node.node_id, named)
            for each in node.log_dirs
        ]
    )


def _describe(
    state: BrokerState,
    log_dir: LogDir,
    node_id: int,
    named: Mapping[str, list[int]] | None,
    described: Described,
) -> None:
    if log_dir.has_failed:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
    if state.directory is not None:
        volume = shutil.disk_usage(state.directory)
        described.total_bytes, described.usable_bytes = volume.total, volume.free
    for name, topic in state.cluster.topics.items():
        wanted = topic.partitions
        if named is not None:
            wanted = [each for each in topic.partitions if each.index in named.get(name, ())]
        copies = [each.copies[node_id] for each in wanted if node_id in each.copies]
        partitions = [found for copy in copies for found in _described_replicas(copy, log_dir)]
        if partitions:
            described.topics.append(
                messages.DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=partitions)
            )


def _described_replicas(
    copy: Replica, log_dir: LogDir
) -> Iterator[messages.DescribeLogDirsResponse.DescribeLogDirsPartition]:
    """Yield a replica, or the one that is to take its place, as far as it is in the directory."""
    kind = messages.DescribeLogDirsResponse.DescribeLogDirsPartition
    log, future = copy.log, copy.future
    if copy.log_dir is log_dir:
        yield kind(
            partition_index=copy.index,
            partition_size=log.size_bytes,
            offset_lag=max(log.high_watermark - log.log_end_offset, 0),
        )
    if future is not None and future.log_dir is log_dir:
        yield kind(
            partition_index=copy.index,
            partition_size=future.log.size_bytes,
            offset_lag=log.log_end_offset - future.log.log_end_offset,
            is_future_key=True,
        )


def alter_replica_log_dirs(
    state: BrokerState, request: messages.AlterReplicaLogDirsRequest, context: Context
) -> messages.AlterReplicaLogDirsResponse:
    """Begin to move replicas of the node to other directories."""
    results: dict[str, list[Moved]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            results.setdefault(topic.name, []).extend(
                context.fill(Moved(partition_index=index), _move, state, context, wanted.path, topic.name)
                for index in topic.partitions
            )
    kind = messages.AlterReplicaLogDirsResponse
    return kind(
        results=[
            kind.AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in results.items()
        ]
    )


def _move(state: BrokerState, context: Context, path: str, topic: str, answer: Moved) -> None:
    """ReplicaManager.alterReplicaLogDirs"""
    state.authorize_cluster(context, Operation.ALTER)
    node = state.cluster.node(context.node_id)
    log_dir = next((each for each in node.log_dirs if each.path == path), None)
    if log_dir is None:
        raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND)
    partition = state.cluster.partition(topic, answer.partition_index)
    copy = partition.copies.get(node.node_id)
    if copy is None:
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if log_dir.has_failed or copy.log_dir.has_failed:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
    state.log_dir_moves.begin(partition, copy, log_dir, context.now_ms)


HANDLERS = {
    messages.DescribeLogDirsRequest: describe_log_dirs,
    messages.AlterReplicaLogDirsRequest: alter_replica_log_dirs,
}
