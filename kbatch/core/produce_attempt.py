"""A Produce request on its way, and what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbatch.protocol import messages

if TYPE_CHECKING:
    from kbatch._native.in_flight import InFlight
    from kbatch.core.cluster import Cluster
    from kbatch.core.connections import Request, Response
    from kbatch.core.sender import Sender


NO_TOPIC_ID = bytes(16)

_TopicProduceData = messages.ProduceRequest.TopicProduceData


class ProduceAttempt:
    """A Produce request and the batches in it."""

    __slots__ = ("entries", "names", "node_id", "request", "sender", "sent_ns")

    def __init__(self, sender: Sender, node_id: int, sent_ns: int) -> None:
        self.sender = sender
        self.node_id = node_id
        self.sent_ns = sent_ns
        self.entries: dict[tuple[str, int], InFlight] = {}
        self.names: dict[bytes, str] = {}
        self.request: Request | None = None

    @property
    def was_written(self) -> bool:
        """Whether the broker may have seen any of it."""
        return self.request is not None and self.request.was_written

    def topic_data(self, topics: dict[str, list[Any]], cluster: Cluster) -> list[Any]:
        """For the request, of its batches by topic; remembers the names of those that have an id."""
        data = []
        for name, partition_data in topics.items():
            cluster.want(name, self.sent_ns)
            metadata = cluster.snapshot.topics.get(name)
            topic_id = metadata.topic_id if metadata is not None else NO_TOPIC_ID
            if topic_id != NO_TOPIC_ID:
                self.names[topic_id] = name
            data.append(_TopicProduceData(name=name, topic_id=topic_id, partition_data=partition_data))
        return data

    def handle(self, response: Response) -> None:
        self.sender.handle_response(self, response)
