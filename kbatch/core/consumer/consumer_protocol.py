"""The subscriptions and assignments that members of a classic group exchange through its coordinator.

Theory of operation. Each member sends its subscription with JoinGroup, once for each assignor. The leader
gets all of them, and sends an assignment for each member with SyncGroup. The bytes begin with a version.
Newer versions only append fields, so a newer one is read as the newest known.

After org.apache.kafka.clients.consumer.internals.ConsumerProtocol; KIP-429 (owned partitions), KIP-792 (their
generation), KIP-881 (racks).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kbatch.errors import ProtocolError
from kbatch.protocol import codec, messages
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message
    from kbatch.protocol.wire import BytesLike

_M = TypeVar("_M", bound="Message")

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
_NEWEST_VERSION = messages.ConsumerProtocolSubscription.versions.stop - 1
_VERSION_BYTES = 2


class MemberSubscription(NamedTuple):
    """The subscription that a member joins with.

    Attributes
    ----------
    topics : tuple[str, ...]
    user_data : bytes | None
        Data of the assignor.
    owned : tuple[TopicPartition, ...]
        The partitions that it keeps while it joins.
    generation_id : int
        The generation in which it got them; NO_GENERATION.
    rack : str | None
    instance_id : str | None
        The group.instance.id of a static member, which is not among these bytes.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of the partitions by topic, both in the given order."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """Return the bytes of a subscription, which the coordinator's other members read."""
    kind = messages.ConsumerProtocolSubscription
    owned = partitions_by_topic(sorted(subscription.owned))
    return _encode(
        kind(
            topics=sorted(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=[
                kind.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in owned.items()
            ],
            generation_id=subscription.generation_id,
            rack_id=subscription.rack,
        )
    )


def decode_subscription(data: BytesLike, instance_id: str | None = None) -> MemberSubscription:
    """Return a member's subscription. Raise ProtocolError for bytes that are none."""
    found = _decode(messages.ConsumerProtocolSubscription, data)
    return MemberSubscription(
        tuple(found.topics),
        None if found.user_data is None else bytes(found.user_data),
        tuple(
            TopicPartition(each.topic, partition)
            for each in found.owned_partitions
            for partition in each.partitions
        ),
        max(found.generation_id, NO_GENERATION),
        found.rack_id or None,
        instance_id,
    )


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """Return the bytes of a member's assignment, with its topics in the order of the partitions."""
    kind = messages.ConsumerProtocolAssignment
    by_topic = partitions_by_topic(partitions)
    return _encode(
        kind(
            assigned_partitions=[
                kind.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()
            ]
        )
    )


def decode_assignment(data: BytesLike) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment. Raise ProtocolError for bytes that are none."""
    found = _decode(messages.ConsumerProtocolAssignment, data)
    return tuple(
        TopicPartition(each.topic, partition)
        for each in found.assigned_partitions
        for partition in each.partitions
    )


def _encode(message: Message) -> bytes:
    return _NEWEST_VERSION.to_bytes(_VERSION_BYTES, "big") + b"".join(codec.encode(message, _NEWEST_VERSION))


def _decode(kind: type[_M], data: BytesLike) -> _M:
    view = memoryview(data)
    version = int.from_bytes(view[:_VERSION_BYTES], "big", signed=True)
    if len(view) < _VERSION_BYTES or version < 0:
        raise ProtocolError(f"{kind.__name__}: {len(view)} bytes that begin with {bytes(view[:2])!r}")
    return codec.decode_start(kind, min(version, _NEWEST_VERSION), view[_VERSION_BYTES:])
