"""TopicIds: the names of topics that a coordinator names by their ids only.

Theory of operation. Topics that the client uses are in its metadata with their ids. A pattern finds others,
whose names a Metadata request by id finds. An id that brokers do not know yet is requested again after a
back-off, as long as it is needed.

After org.apache.kafka.clients.consumer.internals.ConsumerMetadata; KIP-516, KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, ExponentialBackoff
from kbatch.protocol import features, messages
from kbatch.records import NO_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbatch.core.client.cluster import Cluster, TopicMetadata
    from kbatch.core.client.connections import Connections, Response


class TopicIds:
    """The names of topics, by their ids.

    Parameters
    ----------
    cluster, connections, backoff
    """

    def __init__(self, cluster: Cluster, connections: Connections, backoff: ExponentialBackoff) -> None:
        self._cluster = cluster
        self._connections = connections
        self._backoff = backoff
        self._pending = AnyNodeRequest()
        self._found: dict[bytes, str] = {}  # by requests, until the topic is in the metadata
        self._known: dict[bytes, str] = {}
        self._known_of: Mapping[str, TopicMetadata] | None = None
        self.deadline_ns = NEVER_NS

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name; None if it is not known."""
        topics = self._cluster.snapshot.topics
        if topics is not self._known_of:
            self._known_of = topics
            self._known = {each.topic_id: name for name, each in topics.items()}
        return self._known.get(topic_id) or self._found.get(topic_id)

    def request(self, topic_ids: Collection[bytes], now_ns: int) -> None:
        """Find the names of these ids; call it again at `deadline_ns`, or after any event."""
        pending = self._pending
        if not pending.is_in_flight and now_ns >= pending.not_before_ns:
            node_id = pending.find_node(self._connections, self._backoff, now_ns)
            if node_id is not None:
                version = self._connections.version_of(node_id, messages.MetadataRequest)
                if version >= features.METADATA_TOPIC_IDS:
                    pending.is_in_flight = True
                    topic = messages.MetadataRequest.MetadataRequestTopic
                    request = messages.MetadataRequest(
                        topics=[topic(topic_id=each, name=None) for each in sorted(topic_ids)],
                        allow_auto_topic_creation=False,
                    )
                    self._connections.send(node_id, request, self._take, now_ns, version=version)
                else:
                    pending.back_off(self._backoff, now_ns)
        self.deadline_ns = pending.deadline_ns

    def _take(self, response: Response) -> None:
        self._pending.is_in_flight = False
        found = {
            topic.topic_id: topic.name
            for topic in ([] if response.message is None else response.message.topics)
            if topic.name and topic.topic_id != NO_TOPIC_ID and not topic.error_code
        }
        self._found.update(found)
        for name in found.values():
            self._cluster.note_named(name, response.now_ns)
        if found:
            self._pending.attempts = 0
        self._pending.back_off(self._backoff, response.now_ns)
