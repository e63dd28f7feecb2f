"""Requests about groups: their names, members and offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kbatch.core.admin.names import operations_of
from kbatch.core.admin.topics import by_topic
from kbatch.core.client.admin_requests import AdminRequest, Refusal, refused
from kbatch.core.client.routes import GROUP_COORDINATOR, NODE, coordinator_of
from kbatch.errors import ErrorCode, ProtocolError, UnsupportedVersionError, row_of
from kbatch.protocol import codec, features, messages
from kbatch.records import GroupDescription, GroupListing, GroupMember, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message

# An unknown leader epoch.
NO_EPOCH = -1
# The protocol type of groups of consumers. Others, such as Kafka Connect's, have other assignments.
CONSUMERS = "consumer"
DEAD = "Dead"


class CommittedOffsets(AdminRequest):
    """The committed offsets of groups, without partitions that have none; the results are dicts.

    Parameters
    ----------
    items : mapping of str to iterable of TopicPartition, or None
        By group the partitions; None for all.
    is_stable : bool
        True to wait for the end of transactions that may change the offsets (KIP-447).
    """

    kind = messages.OffsetFetchRequest
    route = GROUP_COORDINATOR
    highest_version = features.OFFSET_FETCH_TOPIC_IDS - 1
    noun = "group"

    def __init__(
        self, items: Mapping[str, Iterable[TopicPartition] | None], *, is_stable: bool = True
    ) -> None:
        payloads = {group: None if each is None else dict.fromkeys(each) for group, each in items.items()}
        super().__init__("committed_offsets", payloads)
        self.is_stable = is_stable

    def chunks(self, items: Mapping[Any, Any], version: int) -> Iterator[dict[Any, Any]]:
        if version >= features.OFFSET_FETCH_BATCHES:
            return super().chunks(items, version)
        return ({group: partitions} for group, partitions in items.items())

    def message(self, items: Mapping[str, Any], version: int, timeout_ms: int) -> Message:
        kind = messages.OffsetFetchRequest
        if self.is_stable and version < features.OFFSET_FETCH_STABLE:
            raise UnsupportedVersionError(
                f"the broker cannot return stable offsets (OffsetFetch version {version}, KIP-447); upgrade "
                "it to Kafka 2.5 or newer"
            )
        if version < features.OFFSET_FETCH_BATCHES:
            ((group_id, partitions),) = items.items()
            topics = _requested(partitions, kind.OffsetFetchRequestTopic)
            return kind(group_id=group_id, topics=topics, require_stable=self.is_stable)
        groups = [
            kind.OffsetFetchRequestGroup(
                group_id=group_id, topics=_requested(partitions, kind.OffsetFetchRequestTopics)
            )
            for group_id, partitions in items.items()
        ]
        return kind(groups=groups, require_stable=self.is_stable)

    def read(self, answer: Any, items: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        if not answer.groups:  # before they were several
            return [(group_id, _committed_of(answer)) for group_id in items]
        return [(group.group_id, _committed_of(group)) for group in answer.groups]


def _requested(partitions: Any, kind: Callable[..., Any]) -> list[Any] | None:
    if partitions is None:
        return None
    topics = by_topic(partitions, lambda each, _: each)
    return [kind(name=name, partition_indexes=each) for name, each in topics.items()]


def _committed_of(group: Any) -> Any:
    """Return the offsets of a group, or the first refusal."""
    if group.error_code:
        return Refusal(group.error_code)
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                return Refusal(each.error_code, f"partition {partition}: {row_of(each.error_code).doc}")
            found = committed_offset(each)
            if found is not None:
                offsets[partition] = found
    return offsets


def committed_offset(part: Any) -> OffsetAndMetadata | None:
    """Return what a partition's part of an OffsetFetch answer says is committed; None if that is nothing.

    Brokers keep any number that a program commits. A negative offset is none (Java's
    CommitRequestManager), and so is a negative epoch.
    """
    if part.committed_offset < 0:
        return None
    return OffsetAndMetadata(
        part.committed_offset, part.metadata or "", max(part.committed_leader_epoch, NO_EPOCH)
    )


class _GroupPartitions(AdminRequest):
    """A request about partitions of one group."""

    noun = "partition"

    def __init__(self, name: str, group_id: str, items: Mapping[Any, Any]) -> None:
        super().__init__(name, items)
        self.group_id = group_id
        self.route = coordinator_of(group_id)

    def subject(self, key: Any) -> str:
        return f"{self.name} of group {self.group_id}, {self.noun} {key}"


class OffsetCommit(_GroupPartitions):
    """Offsets to commit for a group that has no members, by partition; the results are what was committed."""

    kind = messages.OffsetCommitRequest
    highest_version = features.OFFSET_COMMIT_TOPIC_IDS - 1

    def __init__(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        super().__init__("commit_offsets", group_id, offsets)

    def message(
        self, items: Mapping[TopicPartition, OffsetAndMetadata], version: int, timeout_ms: int
    ) -> Message:
        kind = messages.OffsetCommitRequest
        parts = by_topic(
            items,
            lambda partition, each: kind.OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                committed_metadata=each.metadata,
            ),
        )
        topics = [kind.OffsetCommitRequestTopic(name=name, partitions=each) for name, each in parts.items()]
        return kind(group_id=self.group_id, member_id="", topics=topics)

    def read(self, answer: Any, items: Mapping[TopicPartition, Any]) -> Iterable[tuple[TopicPartition, Any]]:
        return _partition_results(answer.topics, "name", items)


class OffsetDeletion(_GroupPartitions):
    """Partitions whose committed offsets a group is to forget; the results are None."""

    kind = messages.OffsetDeleteRequest

    def __init__(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        super().__init__("delete_offsets", group_id, dict.fromkeys(partitions))

    def message(self, items: Mapping[TopicPartition, None], version: int, timeout_ms: int) -> Message:
        kind = messages.OffsetDeleteRequest
        parts = by_topic(items, lambda each, _: kind.OffsetDeleteRequestPartition(partition_index=each))
        topics = [kind.OffsetDeleteRequestTopic(name=name, partitions=each) for name, each in parts.items()]
        return kind(group_id=self.group_id, topics=topics)

    def read(self, answer: Any, items: Mapping[TopicPartition, Any]) -> Iterable[tuple[TopicPartition, Any]]:
        return (
            refused(items, answer) if answer.error_code else _partition_results(answer.topics, "name", items)
        )


class ShareOffsetChange(_GroupPartitions):
    """Offsets from which a share group without members is to go on, by partition (KIP-932); the results are
    what was set.
    """

    kind = messages.AlterShareGroupOffsetsRequest

    def __init__(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__("set_share_offsets", group_id, offsets)

    def message(self, items: Mapping[TopicPartition, int], version: int, timeout_ms: int) -> Message:
        kind = messages.AlterShareGroupOffsetsRequest
        part = kind.AlterShareGroupOffsetsRequestPartition
        parts = by_topic(items, lambda each, offset: part(partition_index=each, start_offset=offset))
        topics = [
            kind.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=each)
            for name, each in parts.items()
        ]
        return kind(group_id=self.group_id, topics=topics)

    def read(self, answer: Any, items: Mapping[TopicPartition, Any]) -> Iterable[tuple[TopicPartition, Any]]:
        if answer.error_code:
            return refused(items, answer)
        return _partition_results(answer.responses, "topic_name", items)


class ShareOffsetDeletion(_GroupPartitions):
    """Topics that a share group without members is to forget (KIP-932); the results are None."""

    kind = messages.DeleteShareGroupOffsetsRequest
    noun = "topic"

    def __init__(self, group_id: str, topics: Iterable[str]) -> None:
        super().__init__("delete_share_offsets", group_id, dict.fromkeys(topics))

    def message(self, items: Mapping[str, None], version: int, timeout_ms: int) -> Message:
        kind = messages.DeleteShareGroupOffsetsRequest
        topics = [kind.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in items]
        return kind(group_id=self.group_id, topics=topics)

    def read(self, answer: Any, items: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        if answer.error_code:
            return refused(items, answer)
        return [
            (each.topic_name, Refusal(each.error_code, each.error_message) if each.error_code else None)
            for each in answer.responses
        ]


def _partition_results(
    topics: Iterable[Any], name: str, items: Mapping[TopicPartition, Any]
) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield the refusal of each partition, or what was asked for it."""
    for topic in topics:
        for each in topic.partitions:
            key = TopicPartition(getattr(topic, name), each.partition_index)
            text = getattr(each, "error_message", None)
            yield key, Refusal(each.error_code, text) if each.error_code else items.get(key)


class ShareOffsets(AdminRequest):
    """Where share groups are in their partitions, and how many records they have left (KIP-1226); the results
    are dicts of TopicPartition to the two; the second is None if the broker does not say.
    """

    kind = messages.DescribeShareGroupOffsetsRequest
    route = GROUP_COORDINATOR
    noun = "group"

    def __init__(self, group_ids: Iterable[str]) -> None:
        super().__init__("share_offsets", dict.fromkeys(group_ids))

    def message(self, items: Mapping[str, None], version: int, timeout_ms: int) -> Message:
        kind = messages.DescribeShareGroupOffsetsRequest
        group = kind.DescribeShareGroupOffsetsRequestGroup
        return kind(groups=[group(group_id=group_id, topics=None) for group_id in items])

    def read(self, answer: Any, items: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        return [(group.group_id, _share_offsets_of(group)) for group in answer.groups]


def _share_offsets_of(group: Any) -> Any:
    if group.error_code:
        return Refusal(group.error_code, group.error_message)
    found: dict[TopicPartition, tuple[int, int | None]] = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.topic_name, each.partition_index)
            if each.error_code:
                return Refusal(each.error_code, f"partition {partition}: {each.error_message or ''}")
            if each.start_offset >= 0:
                found[partition] = (each.start_offset, None if each.lag < 0 else each.lag)
    return found


class GroupListings(AdminRequest):
    """The groups that nodes coordinate and the client may see; the results are lists of GroupListing.

    Parameters
    ----------
    node_ids : iterable of int
    states, kinds : sequence of str
        Only groups in these states, and of these kinds; empty for all.
    """

    kind = messages.ListGroupsRequest
    route = NODE

    def __init__(
        self, node_ids: Iterable[int], *, states: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> None:
        super().__init__("list", dict.fromkeys(node_ids))
        self.states = states
        self.kinds = kinds

    def message(self, items: Mapping[int, None], version: int, timeout_ms: int) -> Message:
        first = (
            features.LIST_GROUPS_KINDS if self.kinds else features.LIST_GROUPS_STATES if self.states else 0
        )
        if version < first:
            raise UnsupportedVersionError(
                f"the broker cannot filter groups so (ListGroups version {version}, {first} is needed); list "
                "all, or upgrade it to Kafka 3.8 or newer"
            )
        return messages.ListGroupsRequest(states_filter=list(self.states), types_filter=list(self.kinds))

    def read(self, answer: Any, items: Mapping[int, None]) -> Iterable[tuple[int, Any]]:
        if answer.error_code:
            return refused(items, answer)
        found = [
            GroupListing(each.group_id, each.group_type.lower(), each.group_state, each.protocol_type)
            for each in answer.groups
        ]
        return [(node_id, found) for node_id in items]

    def subject(self, key: Any) -> str:
        return f"list of the groups of broker {key}"


class _GroupQuery(AdminRequest):
    """Groups of one protocol with their members; the results are GroupDescription."""

    route = GROUP_COORDINATOR
    noun = "group"
    protocol: ClassVar[str]

    def __init__(self, group_ids: Iterable[str], *, operations: bool = False) -> None:
        super().__init__("describe", dict.fromkeys(group_ids))
        self.operations = operations

    def read(self, answer: Any, items: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        return [
            (
                group.group_id,
                Refusal(group.error_code, getattr(group, "error_message", None))
                if group.error_code
                else self.description_of(group),
            )
            for group in answer.groups
        ]

    def description_of(self, group: Any) -> GroupDescription | Refusal:
        """Return a group of an answer."""
        raise NotImplementedError


class ConsumerGroups(_GroupQuery):
    """Groups of the protocol of KIP-848."""

    kind: ClassVar[Any] = messages.ConsumerGroupDescribeRequest
    protocol = "consumer"

    def message(self, items: Mapping[str, None], version: int, timeout_ms: int) -> Message:
        message: Message = self.kind(group_ids=list(items), include_authorized_operations=self.operations)
        return message

    def description_of(self, group: Any) -> GroupDescription:
        return GroupDescription(
            group.group_id,
            self.protocol,
            group.group_state,
            getattr(group, "assignor_name", ""),
            tuple(map(self.member_of, group.members)),
            group.group_epoch,
            group.assignment_epoch,
            operations_of(group.authorized_operations),
        )

    def member_of(self, member: Any) -> GroupMember:
        """Return a member of an answer."""
        target = getattr(member, "target_assignment", None)
        return GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            getattr(member, "instance_id", None),
            _partitions(member.assignment.topic_partitions, "topic_name"),
            member.member_epoch,
            member.rack_id,
            tuple(member.subscribed_topic_names),
            () if target is None else _partitions(target.topic_partitions, "topic_name"),
        )


class ShareGroups(ConsumerGroups):
    """Share groups (KIP-932)."""

    kind = messages.ShareGroupDescribeRequest
    protocol = "share"


class StreamsGroups(ConsumerGroups):
    """Groups of Kafka Streams (KIP-1071), whose members have tasks: partitions of a subtopology."""

    kind = messages.StreamsGroupDescribeRequest
    protocol = "streams"

    def member_of(self, member: Any) -> GroupMember:
        return GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            member.instance_id,
            _partitions(member.assignment.active_tasks, "subtopology_id"),
            member.member_epoch,
            member.rack_id,
            (),
            _partitions(member.target_assignment.active_tasks, "subtopology_id"),
        )


class ClassicGroups(_GroupQuery):
    """Groups of the protocol with JoinGroup."""

    kind = messages.DescribeGroupsRequest
    protocol = "classic"

    def message(self, items: Mapping[str, None], version: int, timeout_ms: int) -> Message:
        return messages.DescribeGroupsRequest(
            groups=list(items),
            include_authorized_operations=self.operations and version >= features.DESCRIBE_GROUPS_OPERATIONS,
        )

    def description_of(self, group: Any) -> GroupDescription | Refusal:
        if group.group_state == DEAD:  # before version 6, a group that does not exist, without an error
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND)
        members = [
            GroupMember(
                each.member_id,
                each.client_id,
                each.client_host,
                each.group_instance_id,
                _assigned(each.member_assignment) if group.protocol_type == CONSUMERS else (),
            )
            for each in group.members
        ]
        return GroupDescription(
            group.group_id,
            self.protocol,
            group.group_state,
            group.protocol_data,
            tuple(members),
            operations=operations_of(group.authorized_operations),
        )


class DeleteGroups(AdminRequest):
    """Groups to delete; the results are None."""

    kind = messages.DeleteGroupsRequest
    route = GROUP_COORDINATOR
    noun = "group"

    def __init__(self, group_ids: Iterable[str], *, max_items: int = 1000) -> None:
        super().__init__("delete", dict.fromkeys(group_ids))
        self.at_once = max_items

    def chunks(self, items: Mapping[Any, Any], version: int) -> Iterator[dict[Any, Any]]:
        keys = list(items)
        return (
            dict.fromkeys(keys[first : first + self.at_once]) for first in range(0, len(keys), self.at_once)
        )

    def message(self, items: Mapping[str, None], version: int, timeout_ms: int) -> Message:
        return messages.DeleteGroupsRequest(groups_names=list(items))

    def read(self, answer: Any, items: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        return [
            (each.group_id, Refusal(each.error_code) if each.error_code else None) for each in answer.results
        ]


class LeavingMember(NamedTuple):
    """A member to remove: a static one by its group.instance.id, others by their id."""

    member_id: str = ""
    group_instance_id: str | None = None

    def __str__(self) -> str:
        return self.group_instance_id or self.member_id


class RemoveMembers(_GroupPartitions):
    """Members to remove from a group; the results are None."""

    kind = messages.LeaveGroupRequest
    noun = "member"

    def __init__(self, group_id: str, members: Iterable[LeavingMember], reason: str) -> None:
        super().__init__("remove_members", group_id, dict.fromkeys(members))
        self.reason = reason

    def message(self, items: Mapping[LeavingMember, None], version: int, timeout_ms: int) -> Message:
        kind = messages.LeaveGroupRequest
        if version < features.LEAVE_GROUP_BATCHES:
            raise UnsupportedVersionError(
                f"the broker cannot remove members (LeaveGroup version {version}, KIP-345); upgrade it to "
                "Kafka 2.4 or newer"
            )
        members = [
            kind.MemberIdentity(
                member_id=each.member_id, group_instance_id=each.group_instance_id, reason=self.reason
            )
            for each in items
        ]
        return kind(group_id=self.group_id, members=members)

    def read(self, answer: Any, items: Mapping[LeavingMember, None]) -> Iterable[tuple[LeavingMember, Any]]:
        if answer.error_code:
            yield from refused(items, answer)
            return
        by_name = {str(each): each for each in items}
        for found in answer.members:
            key = by_name.get(found.group_instance_id or found.member_id)
            if key is not None:
                yield key, Refusal(found.error_code) if found.error_code else None


def _partitions(topics: Iterable[Any], name: str) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(getattr(topic, name), each) for topic in topics for each in topic.partitions)
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a member's assignment, which its group's leader has written; none if it cannot
    be read, as members of other programs may have one of their own.
    """
    kind = messages.ConsumerProtocolAssignment
    version = int.from_bytes(data[:2], "big", signed=True)
    try:
        found = codec.decode(kind, min(version, kind.versions.stop - 1), data[2:])
    except (ProtocolError, UnsupportedVersionError):
        return ()
    return _partitions(found.assigned_partitions, "topic")
