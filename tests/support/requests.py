"""Produce and Fetch requests. They name topics by name and id: a version writes the field that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kbatch.protocol import messages


def produce_request(
    partitions: Mapping[tuple[str, int], bytes | None], topic_id: Callable[[str], bytes], **fields: Any
) -> Any:
    """Return a Produce request of records by (topic, partition)."""
    kind = messages.ProduceRequest
    by_topic: dict[str, list[Any]] = {}
    for (topic, index), records in partitions.items():
        by_topic.setdefault(topic, []).append(kind.PartitionProduceData(index=index, records=records))
    data = [
        kind.TopicProduceData(name=topic, topic_id=topic_id(topic), partition_data=entries)
        for topic, entries in by_topic.items()
    ]
    return kind(**{"acks": -1, "timeout_ms": 10_000, "topic_data": data, **fields})


def fetch_request(topic: str, topic_id: bytes, offset: int = 0, **fields: Any) -> Any:
    """Return a Fetch of one partition that does not wait; `fields` are of the request or of its partition."""
    kind = messages.FetchRequest
    wanted: dict[str, Any] = {"fetch_offset": offset, "partition_max_bytes": 1 << 20}
    wanted |= {name: fields.pop(name) for name in [*fields] if name in kind.FetchPartition.__slots__}
    partition = kind.FetchPartition(**wanted)
    topics = [kind.FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])]
    return kind(**{"max_wait_ms": 0, "min_bytes": 0, "topics": topics, **fields})
