"""Answers to Fetch as tuples, whether one native step has read them or the codec, which judges the other."""

from __future__ import annotations

from typing import Any, cast

from kbatch._native.fetch.fetch_answer import FetchAnswer, PartitionAnswer
from kbatch.protocol import features
from kbatch.protocol.messages import FetchResponse

Fields = tuple[Any, ...]


def fields_of(answer: FetchAnswer) -> Fields:
    """Return all that `read_fetch_answer` has read."""
    partitions = [_partition_fields(partition) for partition in answer.partitions]
    return (
        *(answer.correlation_id, answer.throttle_time_ms, answer.error_code, answer.session_id),
        partitions,
        answer.node_endpoints,
    )


def _partition_fields(partition: PartitionAnswer) -> Fields:
    return (
        *(partition.topic, partition.topic_id, partition.partition, partition.error_code),
        *(partition.high_watermark, partition.last_stable_offset, partition.log_start_offset),
        *(partition.diverging_epoch, partition.diverging_end_offset),
        *(partition.leader_id, partition.leader_epoch, partition.preferred_read_replica),
        *(partition.aborted, None if partition.records is None else bytes(partition.records)),
    )


def expected_fields(correlation_id: int, message: FetchResponse, version: int) -> Fields:
    """Return the same of what the codec has read."""
    by_name = version < features.FETCH_TOPIC_IDS
    partitions = [
        (
            topic.topic if by_name else None,
            None if by_name else topic.topic_id,
            *(partition.partition_index, partition.error_code),
            *(partition.high_watermark, partition.last_stable_offset, partition.log_start_offset),
            *(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset),
            *(partition.current_leader.leader_id, partition.current_leader.leader_epoch),
            partition.preferred_read_replica,
            None
            if partition.aborted_transactions is None
            else tuple((each.producer_id, each.first_offset) for each in partition.aborted_transactions),
            None if partition.records is None else bytes(cast(memoryview, partition.records)),
        )
        for topic in message.responses
        for partition in topic.partitions
    ]
    endpoints = [(each.node_id, each.host, each.port, each.rack) for each in message.node_endpoints]
    return (
        *(correlation_id, message.throttle_time_ms, message.error_code, message.session_id),
        partitions,
        endpoints,
    )
