"""AdminRequests: requests about groups, such as their names, members and committed offsets.

Theory of operation. An AdminRequest is a Call with an answer. It goes to the node it names, or to the
coordinator of its group, which Coordinators finds, and finds again after it has moved. A retriable error is
retried, with back-off, until there is an answer or the caller stops waiting. Requests do not wait for each
other.

After org.apache.kafka.clients.admin.internals.AdminApiDriver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, ExponentialBackoff
from kbatch.core.client.calls import Call
from kbatch.core.client.coordinators import GROUP, CoordinatorKey
from kbatch.errors import (
    ErrorCode,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
    error_of,
    row_of,
)
from kbatch.protocol import codec, features, messages
from kbatch.records import GroupDescription, GroupListing, GroupMember, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections, Response
    from kbatch.core.client.coordinators import Coordinators
    from kbatch.protocol.structs import Message

Value = TypeVar("Value")

# An unknown leader epoch.
NO_EPOCH = -1
# The protocol type of groups of consumers. Others, such as Kafka Connect's, have other assignments.
CONSUMERS = "consumer"
DEAD = "Dead"
# Retriable elsewhere, where a new topic may still appear; a request about offsets names existing ones.
FINAL = frozenset([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])


class Refusal(NamedTuple):
    """An error code of an answer.

    Attributes
    ----------
    code : int
        0 is no error.
    partition : TopicPartition or None
        The partition to which it applies; None is the whole request.
    """

    code: int
    partition: TopicPartition | None = None


class AdminRequest(Call):
    """A request about groups.

    Attributes
    ----------
    answer
        The cluster's answer, if it is done without an error.
    group_id : str
        The group whose coordinator gets the request; empty if `node_id` gets it.
    node_id : int
    pending : AnyNodeRequest
    """

    __slots__ = ("answer", "group_id", "node_id", "pending")
    kind: ClassVar[type[Message]]
    highest_version: ClassVar[int] = 2**15 - 1

    def __init__(self, name: str, *, group_id: str = "", node_id: int = -1) -> None:
        super().__init__(name)
        self.answer: Any = None
        self.pending = AnyNodeRequest()
        self.group_id = group_id
        self.node_id = node_id

    @property
    def coordinator(self) -> CoordinatorKey | None:
        """The key of the coordinator that gets the request; None if the node `node_id` gets it."""
        return CoordinatorKey(GROUP, self.group_id) if self.group_id else None

    def message(self, version: int) -> Message:
        """Return the request. Raise UnsupportedVersionError if the version cannot express it."""
        raise NotImplementedError

    def read(self, answer: Any) -> Refusal:
        """Keep the answer, and return its error."""
        raise NotImplementedError


class CommittedOffsets(AdminRequest):
    """The committed offsets of a group, without partitions that have none.

    Parameters
    ----------
    partitions : iterable of TopicPartition or None
        None for all.
    is_stable : bool
        True to wait for the end of transactions that may change the offsets (KIP-447).
    """

    __slots__ = ("is_stable", "partitions")
    kind = messages.OffsetFetchRequest
    highest_version = features.OFFSET_FETCH_TOPIC_IDS - 1

    def __init__(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, is_stable: bool = True
    ) -> None:
        super().__init__("committed_offsets", group_id=group_id)
        self.partitions = None if partitions is None else _by_topic(dict.fromkeys(partitions))
        self.is_stable = is_stable

    def message(self, version: int) -> Message:
        kind = messages.OffsetFetchRequest
        if self.is_stable and version < features.OFFSET_FETCH_STABLE:
            raise UnsupportedVersionError(
                f"the broker cannot return stable offsets (OffsetFetch version {version}, KIP-447); upgrade "
                "it to Kafka 2.5 or newer"
            )
        if version < features.OFFSET_FETCH_BATCHES:
            topics = self._topics(kind.OffsetFetchRequestTopic)
            return kind(group_id=self.group_id, topics=topics, require_stable=self.is_stable)
        topics = self._topics(kind.OffsetFetchRequestTopics)
        group = kind.OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)
        return kind(groups=[group], require_stable=self.is_stable)

    def _topics(self, kind: Callable[..., Any]) -> list[Any] | None:
        if self.partitions is None:
            return None
        return [kind(name=name, partition_indexes=list(each)) for name, each in self.partitions.items()]

    def read(self, answer: Any) -> Refusal:
        (group,) = answer.groups or [answer]
        found = {
            TopicPartition(topic.name, each.partition_index): each
            for topic in group.topics
            for each in topic.partitions
        }
        offsets = {partition: committed_offset(each) for partition, each in found.items()}
        self.answer = {partition: each for partition, each in offsets.items() if each is not None}
        return Refusal(group.error_code) if group.error_code else _first_refusal(found)


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


class OffsetCommit(AdminRequest):
    """Offsets to commit for a group that has no members."""

    __slots__ = ("offsets",)
    kind = messages.OffsetCommitRequest
    highest_version = features.OFFSET_COMMIT_TOPIC_IDS - 1

    def __init__(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        super().__init__("commit_offsets", group_id=group_id)
        self.offsets = _by_topic(offsets)

    def message(self, version: int) -> Message:
        kind = messages.OffsetCommitRequest
        topics = [
            kind.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    kind.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=each.offset,
                        committed_leader_epoch=each.leader_epoch,
                        committed_metadata=each.metadata,
                    )
                    for partition, each in offsets.items()
                ],
            )
            for name, offsets in self.offsets.items()
        ]
        return kind(group_id=self.group_id, member_id="", topics=topics)

    def read(self, answer: Any) -> Refusal:
        return _refusal_in(answer.topics)


class OffsetDeletion(AdminRequest):
    """Committed offsets that a group is to forget."""

    __slots__ = ("partitions",)
    kind = messages.OffsetDeleteRequest

    def __init__(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        super().__init__("delete_offsets", group_id=group_id)
        self.partitions = _by_topic(dict.fromkeys(partitions))

    def message(self, version: int) -> Message:
        kind = messages.OffsetDeleteRequest
        topics = [
            kind.OffsetDeleteRequestTopic(
                name=name,
                partitions=[kind.OffsetDeleteRequestPartition(partition_index=each) for each in partitions],
            )
            for name, partitions in self.partitions.items()
        ]
        return kind(group_id=self.group_id, topics=topics)

    def read(self, answer: Any) -> Refusal:
        return Refusal(answer.error_code) if answer.error_code else _refusal_in(answer.topics)


class GroupListings(AdminRequest):
    """The groups that a node coordinates and the client may see. The answer is a list of GroupListing."""

    __slots__ = ()
    kind = messages.ListGroupsRequest

    def __init__(self, node_id: int) -> None:
        super().__init__("list_groups", node_id=node_id)

    def message(self, version: int) -> Message:
        return messages.ListGroupsRequest()

    def read(self, answer: Any) -> Refusal:
        self.answer = [
            GroupListing(each.group_id, each.group_type.lower(), each.group_state, each.protocol_type)
            for each in answer.groups
        ]
        return Refusal(answer.error_code)


class ConsumerGroup(AdminRequest):
    """A group of the protocol of KIP-848 with its members. The answer is a GroupDescription."""

    __slots__ = ()
    kind: ClassVar[Any] = messages.ConsumerGroupDescribeRequest
    protocol: ClassVar[str] = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__("describe_group", group_id=group_id)

    def message(self, version: int) -> Message:
        message: Message = self.kind(group_ids=[self.group_id])
        return message

    def read(self, answer: Any) -> Refusal:
        (group,) = answer.groups
        members = [
            GroupMember(
                each.member_id,
                each.client_id,
                each.client_host,
                getattr(each, "instance_id", None),
                tuple(sorted(_partitions(each.assignment.topic_partitions, "topic_name"))),
            )
            for each in group.members
        ]
        self.answer = GroupDescription(
            group.group_id, self.protocol, group.group_state, group.assignor_name, tuple(members)
        )
        return Refusal(group.error_code)


class ShareGroup(ConsumerGroup):
    """A share group (KIP-932) with its members. The answer is a GroupDescription."""

    __slots__ = ()
    kind = messages.ShareGroupDescribeRequest
    protocol = "share"


class ShareOffsets(AdminRequest):
    """Where a share group is in its partitions, and how many records it has left (KIP-1226). The answer is a
    dict of TopicPartition to the two; the second is None if the broker does not say.
    """

    __slots__ = ()
    kind = messages.DescribeShareGroupOffsetsRequest

    def __init__(self, group_id: str) -> None:
        super().__init__("share_offsets", group_id=group_id)

    def message(self, version: int) -> Message:
        kind = messages.DescribeShareGroupOffsetsRequest
        group = kind.DescribeShareGroupOffsetsRequestGroup(group_id=self.group_id, topics=None)
        return kind(groups=[group])

    def read(self, answer: Any) -> Refusal:
        (group,) = answer.groups
        found = {
            TopicPartition(topic.topic_name, each.partition_index): each
            for topic in group.topics
            for each in topic.partitions
        }
        self.answer = {
            partition: (each.start_offset, None if each.lag < 0 else each.lag)
            for partition, each in found.items()
            if each.start_offset >= 0
        }
        return Refusal(group.error_code) if group.error_code else _first_refusal(found)


class ClassicGroup(AdminRequest):
    """A group of the protocol with JoinGroup with its members. The answer is a GroupDescription."""

    __slots__ = ()
    kind = messages.DescribeGroupsRequest

    def __init__(self, group_id: str) -> None:
        super().__init__("describe_group", group_id=group_id)

    def message(self, version: int) -> Message:
        return messages.DescribeGroupsRequest(groups=[self.group_id])

    def read(self, answer: Any) -> Refusal:
        (group,) = answer.groups
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
        self.answer = GroupDescription(
            group.group_id, "classic", group.group_state, group.protocol_data, tuple(members)
        )
        # before version 6, a group that does not exist is dead, without an error
        is_missing = not group.error_code and group.group_state == DEAD
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND if is_missing else group.error_code)


class AdminRequests:
    """The unanswered requests."""

    def __init__(
        self,
        connections: Connections,
        cluster: Cluster,
        coordinators: Coordinators,
        backoff: ExponentialBackoff,
        on_change: Callable[[], object],
    ) -> None:
        self._connections = connections
        self._cluster = cluster
        self._coordinators = coordinators
        self._backoff = backoff
        self._on_change = on_change
        self.open: list[AdminRequest] = []

    def submit(self, request: AdminRequest, now_ns: int) -> None:
        self.open.append(request)

    def run(self, now_ns: int) -> None:
        """Send what can be sent now. A caller that stops waiting finishes its request."""
        self.open = [each for each in self.open if not each.is_done]
        for request in self.open:
            if request.pending.is_in_flight or now_ns < request.pending.not_before_ns:
                continue
            try:
                self._try_send(request, now_ns)
            except KafkaError as error:
                self._finish(request, error)

    def deadline_ns(self) -> int:
        """Return the time of the next `run`, if nothing happens before."""
        return min((each.pending.deadline_ns for each in self.open if not each.is_done), default=NEVER_NS)

    def fail(self, error: KafkaError) -> None:
        for request in self.open:
            request.finish(error)
        self.open.clear()

    def _try_send(self, request: AdminRequest, now_ns: int) -> None:
        """Send the request if its node takes it now. Raise what makes that impossible."""
        key = request.coordinator
        if key is None:
            node_id = self._ready_node(request, now_ns)
        else:
            node_id = self._coordinators.ready_node(key, request.pending, now_ns)
        if node_id is None:
            return
        version = self._connections.version_of(node_id, request.kind, highest=request.highest_version)
        message = request.message(version)
        handle = partial(self._handle_response, request)
        self._connections.send(node_id, message, handle, now_ns, version=version)
        request.pending.is_in_flight = True

    def _ready_node(self, request: AdminRequest, now_ns: int) -> int | None:
        """Return the node that the request names, if it takes a request now."""
        pending, node_id = request.pending, request.node_id
        if pending.can_send(node_id, self._connections, now_ns):
            return node_id
        if pending.is_out_of_reach(node_id, self._cluster, self._connections, now_ns):
            self._cluster.request_update(now_ns)
            self._retry(request, now_ns)
        return None

    def _handle_response(self, request: AdminRequest, response: Response) -> None:
        request.pending.is_in_flight = False
        error = response.error if response.message is None else _refusal(request, response.message)
        if error is not None and error.retriable and error.code not in FINAL:
            self._retry(request, response.now_ns)
        else:
            self._finish(request, error)

    def _retry(self, request: AdminRequest, now_ns: int) -> None:
        if request.coordinator is not None:
            self._coordinators.forget(request.coordinator)
        request.pending.back_off(self._backoff, now_ns)

    def _finish(self, request: AdminRequest, error: KafkaError | None = None) -> None:
        request.finish(error)
        self._on_change()


def _refusal(request: AdminRequest, answer: Any) -> KafkaError | None:
    """Keep an answer, and return its error."""
    code, partition = request.read(answer)
    if not code:
        return None
    subject = f"{request.name} of group {request.group_id}" if request.group_id else request.name
    if partition is not None:
        subject = f"{subject}, partition {partition}"
    return error_of(code, f"{subject}: {row_of(code).doc}")


def _by_topic(values: Mapping[TopicPartition, Value]) -> dict[str, dict[int, Value]]:
    by_topic: dict[str, dict[int, Value]] = {}
    for (topic, partition), value in values.items():
        by_topic.setdefault(topic, {})[partition] = value
    return by_topic


def _refusal_in(topics: Iterable[Any]) -> Refusal:
    return _first_refusal(
        {
            TopicPartition(topic.name, each.partition_index): each
            for topic in topics
            for each in topic.partitions
        }
    )


def _first_refusal(partitions: Mapping[TopicPartition, Any]) -> Refusal:
    """Return the first error of an answer with a code for each partition."""
    refused = (Refusal(each.error_code, key) for key, each in partitions.items() if each.error_code)
    return next(refused, Refusal(0))


def _partitions(topics: Iterable[Any], name: str) -> Iterable[TopicPartition]:
    return (TopicPartition(getattr(topic, name), each) for topic in topics for each in topic.partitions)


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
    return tuple(sorted(_partitions(found.assigned_partitions, "topic")))
