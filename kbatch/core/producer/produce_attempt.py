"""A Produce request in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbatch.core.client.cluster import NO_TOPIC_ID
from kbatch.protocol import messages

if TYPE_CHECKING:
    from kbatch._native.send.in_flight import InFlight
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Request

_TopicProduceData = messages.ProduceRequest.TopicProduceData


class ProduceAttempt:
    """A Produce request and the batches in it."""

    __slots__ = ("entries", "names", "node_id", "request", "sent_ns")

    def __init__(self, node_id: int, sent_ns: int) -> None:
        self.node_id = node_id
        self.sent_ns = sent_ns
        self.entries: dict[tuple[str, int], InFlight] = {}
        self.names: dict[bytes, str] = {}
        self.request: Request | None = None

    @property
    def was_written(self) -> bool:
        """True if the broker may have seen a part of it."""
        return self.request is not None and self.request.was_written

    def topic_data(self, topics: dict[str, list[Any]], cluster: Cluster) -> list[Any]:
        """Return the request's data from batches by topic; note the names of topics with ids."""
        data = []
        for name, partition_data in topics.items():
            topic_id = cluster.use(name, self.sent_ns)
            if topic_id != NO_TOPIC_ID:
                self.names[topic_id] = name
            data.append(_TopicProduceData(name=name, topic_id=topic_id, partition_data=partition_data))
        return data
