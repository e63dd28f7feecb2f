"""What `create` and `delete` wait for: that every broker shows the change.

Theory of operation. The controller answers before brokers know (by 1.5 s, with a cold broker). Each node of
the metadata is asked for the topics by their ids, first after 20 ms, then after waits that double up to
200 ms, until it shows them with leaders, or does not know them any more. A node that cannot be reached, or
has left the metadata, drops out: it asks the controller before it serves clients again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kbatch.core.admin.topics import NodeTopics
from kbatch.core.client.admin_requests import Refusal
from kbatch.errors import ErrorCode, KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    from kbatch.admin.base import Part
    from kbatch.core.admin.results import CreatedTopic
    from kbatch.waiting.deadline import Deadline

FIRST_SECONDS, MOST_SECONDS = 0.02, 0.2
# The ids of a request.
AT_ONCE = 1000
# A node that does not answer within this is left out.
NODE_SECONDS = 5.0
_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class NewTopics:
    """Topics that brokers are to show, by the keys by which nodes are asked."""

    what = "created"

    def __init__(self, topics: Mapping[str, CreatedTopic]) -> None:
        # without ids (before Kafka 2.8) by name
        self.keys: dict[Any, Hashable] = {topic.topic_id or name: name for name, topic in topics.items()}
        self._counts = {topic.topic_id or name: topic.partitions for name, topic in topics.items()}

    def is_shown(self, key: Any, found: Any) -> bool:
        """True if a node's metadata has the topic with all its leaders."""
        if isinstance(found, Refusal) or found is None:
            return False
        return len(found.partitions) >= self._counts[key] and all(
            each.leader is not None for each in found.partitions
        )


class GoneTopics:
    """Topics that brokers are to forget, by id, or by name without ids."""

    what = "deleted"

    def __init__(self, topics: Mapping[Any, Hashable]) -> None:
        self.keys = dict(topics)

    def is_shown(self, key: Any, found: Any) -> bool:
        """True if a node's metadata does not have the topic."""
        return isinstance(found, Refusal) and found.code in _MISSING


async def await_everywhere(
    part: Part, topics: NewTopics | GoneTopics, deadline: Deadline
) -> dict[Any, KafkaError]:
    """Wait until all nodes show the topics. Return the errors of those that some do not show in time, by
    their names.
    """
    if not topics.keys or part._runtime.engine.asks_controllers:  # which do not tell the brokers
        return {}
    nodes = await part._runtime.await_brokers(deadline, "metadata")
    left = {node_id: dict(topics.keys) for node_id in nodes}
    seconds = 0.0
    while left:
        if seconds and not await part._pause(seconds, deadline):
            return _late(topics, left)
        left = await _look(part, topics, left, deadline)
        seconds = min(seconds * 2, MOST_SECONDS) if seconds else FIRST_SECONDS
    return {}


async def _look(
    part: Part, topics: NewTopics | GoneTopics, left: Mapping[int, Mapping[Any, Any]], deadline: Deadline
) -> dict[int, dict[Any, Any]]:
    """Return what nodes do not show yet."""
    unseen = dict.fromkeys(key for missing in left.values() for key in missing)
    # brokers pass over the names in a message that has ids
    keys = ([key for key in unseen if isinstance(key, UUID)] or list(unseen))[:AT_ONCE]
    asked = frozenset(keys)
    request = await part._ask(NodeTopics(left, keys), deadline.within(NODE_SECONDS))
    known = part._runtime.engine.snapshot.nodes
    still: dict[int, dict[Any, Any]] = {}
    for node_id, missing in left.items():
        found = request.results.get(node_id)
        if found is None or node_id not in known:  # it is out of reach
            continue
        not_shown = {
            key: name
            for key, name in missing.items()
            if key not in asked or not topics.is_shown(key, found.get(key))
        }
        if not_shown:
            still[node_id] = not_shown
    return still


def _late(topics: NewTopics | GoneTopics, left: Mapping[int, Mapping[Any, Any]]) -> dict[Any, KafkaError]:
    errors: dict[Any, KafkaError] = {}
    for node_id, missing in left.items():
        for key, name in missing.items():
            text = f"topic {name} is {topics.what}, but node {node_id} does not show it yet"
            found = key if isinstance(topics, GoneTopics) else name
            errors[found] = KafkaTimeoutError(text).marked(possibly_persisted=True)
    return errors
