"""Groups of one protocol as groups of the other, with their members and what these own (KIP-848).

A classic group becomes one of KIP-848 when a member of the new protocol joins it, and a classic one again
when its last member of the new protocol is gone. Members keep their ids, partitions and sessions. The
metadata of classic consumers says which topics they read and what they own (ConsumerProtocol).

The rules follow ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from kbatch.protocol import codec, messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.groups.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    Group,
    GroupState,
    Member,
    read_subscription,
)
from kbatch.testing.broker.groups.consumer_group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    Draft,
    by_topic,
    current_change,
    epoch_change,
    member_change,
    target_changes,
)

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Topic
    from kbatch.testing.broker.groups.assignors import TopicIdPartition


def to_consumer_group(group: Group, topics: Mapping[str, Topic]) -> Draft[ConsumerGroup]:
    """Return a draft of the group for KIP-848, which deletes the classic one.

    Raises BrokerError GROUP_ID_NOT_FOUND if its members' metadata is not that of consumers.
    """
    draft = Draft(ConsumerGroup(group.group_id), group.tombstones())
    try:
        members = [_to_consumer_member(group, member, topics) for member in group.members.values()]
    except (ProtocolError, UnsupportedVersionError) as error:
        raise BrokerError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group.group_id} to consumer group because the embedded consumer "
            f"protocol is malformed.",
        ) from error
    draft.put(*(member_change(draft.group, member) for member in members))
    metadata_hash = draft.group.current_metadata_hash(topics)
    draft.put(epoch_change(draft.group, group.generation_id, metadata_hash))
    targets = {member.member_id: frozenset(member.assigned) for member in members}
    draft.put(*target_changes(draft.group, targets, group.generation_id, 0))
    draft.put(*(current_change(draft.group, member) for member in members))
    return draft


def _to_consumer_member(group: Group, member: Member, topics: Mapping[str, Topic]) -> ConsumerMember:
    subscription = read_subscription(member.metadata(group.protocol_name or group.select_protocol()))
    assigned: list[TopicIdPartition] = []
    if member.assignment:
        assignment = _read_assignment(member.assignment)
        if assignment.user_data:
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group.group_id} to consumer group because an unsupported "
                "custom assignor is in use.",
            )
        assigned = by_ids(assignment.assigned_partitions, topics)
    return ConsumerMember(
        member.member_id,
        epoch=group.generation_id,
        previous_epoch=group.generation_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assigned=dict.fromkeys(assigned, group.generation_id),
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def to_classic_group(group: ConsumerGroup, topics: Mapping[str, Topic], now_ms: int) -> Group:
    """Return the group for the classic protocol, stable; all members of `group` must be classic ones."""
    classic = Group(group.group_id, now_ms)
    classic.generation_id = group.epoch
    classic.state = GroupState.STABLE
    for member in group.members.values():
        assert member.classic is not None
        classic.add(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                member.classic.protocols,
            ),
            CONSUMER_PROTOCOL_TYPE,
        )
    classic.protocol_name = classic.select_protocol()
    classic.update_subscribed_topics()
    for each in classic.members.values():
        target = group.targets.get(each.member_id, frozenset())
        each.assignment = write_assignment(each.metadata(classic.protocol_name), target, topics)
    return classic


def write_assignment(
    metadata: bytes, partitions: Iterable[TopicIdPartition], topics: Mapping[str, Topic]
) -> bytes:
    """Return a classic assignment, in the version of the member's metadata; deleted topics are left out."""
    names = {topic.topic_id: name for name, topic in topics.items()}
    kind = messages.ConsumerProtocolAssignment
    assignment = kind(
        assigned_partitions=[
            kind.TopicPartition(topic=names[topic_id], partitions=indexes)
            for topic_id, indexes in by_topic(partitions).items()
            if topic_id in names
        ]
    )
    version = min(int.from_bytes(metadata[:2], "big", signed=True), kind.versions.stop - 1)
    return version.to_bytes(2, "big") + b"".join(codec.encode(assignment, version))


def by_ids(
    owned: Iterable[
        messages.ConsumerProtocolAssignment.TopicPartition
        | messages.ConsumerProtocolSubscription.TopicPartition
    ],
    topics: Mapping[str, Topic],
) -> list[TopicIdPartition]:
    """Return partitions of topics that exist by the topics' ids."""
    return [
        (topics[each.topic].topic_id, index)
        for each in owned
        if each.topic in topics
        for index in each.partitions
    ]


def _read_assignment(assignment: bytes) -> messages.ConsumerProtocolAssignment:
    kind = messages.ConsumerProtocolAssignment
    version = int.from_bytes(assignment[:2], "big", signed=True)
    return codec.decode(kind, min(version, kind.versions.stop - 1), assignment[2:])
