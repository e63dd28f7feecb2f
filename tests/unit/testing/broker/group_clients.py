"""Clients of groups: members by both protocols, and requests about a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import codec, messages
from kbatch.testing.broker.groups.assignors import TopicIdPartition
from tests.support.broker_core import GROUP, TOPIC, Answer, VirtualBroker, sample

LEAVE, LEAVE_STATIC = -1, -2
NONE = ErrorCode.NONE
SESSION_MS = 10_000  # of members of the classic protocol


class Committing:
    """What members of both protocols have: they commit offsets under their id and epoch."""

    broker: VirtualBroker
    node_id: int = 0  # the node that it asks
    group_id: str = GROUP
    member_id: str
    epoch: int  # the generation in a classic group

    def commit(self, offset: int = 1, *, index: int = 0, topic: str = TOPIC, **changes: Any) -> ErrorCode:
        """Commit an offset as this member, and return the code of the partition."""
        kind = messages.OffsetCommitRequest
        partition = kind.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata="note"
        )
        topic_id = self.broker.topic_id(topic)
        version = changes.pop("version", None)
        request = kind(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "generation_id_or_member_epoch": self.epoch,
                "topics": [
                    kind.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[partition])
                ],
                **changes,
            }
        )
        answer = self.broker.client(self.node_id).ask(request, version)
        return ErrorCode(answer.topics[0].partitions[0].error_code)


class Member(Committing):
    """A member by KIP-848, which sends heartbeats as a consumer does.

    `owned` is what it reads: it gives up at once what an answer takes away, and says so in its next
    heartbeat.
    """

    def __init__(
        self,
        broker: VirtualBroker,
        member_id: str,
        *topics: str,
        regex: str | None = None,
        instance_id: str | None = None,
        group_id: str = GROUP,
        **fields: Any,
    ) -> None:
        self.broker = broker
        self.member_id = member_id
        self.instance_id = instance_id
        self.group_id = group_id
        self.subscription: dict[str, Any] = (
            {"subscribed_topic_names": list(topics or (TOPIC,))}
            if regex is None
            else {"subscribed_topic_regex": regex}
        )
        self.fields = fields
        self.epoch = 0
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self._told: frozenset[TopicIdPartition] = frozenset()
        self._lost_answer = False

    def send(self, *, version: int | None = None, **fields: Any) -> Any:
        """Send a heartbeat of these fields, and return the answer."""
        request = messages.ConsumerGroupHeartbeatRequest(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "instance_id": self.instance_id,
                **fields,
            }
        )
        return self.broker.client(self.node_id).ask(request, version)

    def join(self, **changes: Any) -> ErrorCode:
        """Join the group from the beginning; return the code of the answer."""
        self.epoch, self.owned, self._told = 0, frozenset(), frozenset()
        return self._take(self.send(**self._everything() | changes))

    def beat(self, **changes: Any) -> ErrorCode:
        """Send a heartbeat, with what the member owns if that changed; return the code of the answer.

        After a lost answer it has all fields.
        """
        if self._lost_answer:
            changes = self._everything() | changes
        elif self.owned != self._told:
            changes.setdefault("topic_partitions", as_owned(self.owned))
        self._told = self.owned
        return self._take(self.send(**changes))

    def lose_answer(self) -> None:
        self.send(**self._everything())
        self._lost_answer = True

    def leave(self, epoch: int = LEAVE) -> ErrorCode:
        self.owned = frozenset()
        return ErrorCode(self.send(member_epoch=epoch).error_code)

    @property
    def indexes(self) -> list[int]:
        """Return the partitions of all topics that the member reads."""
        return sorted(index for _, index in self.owned)

    def _everything(self) -> dict[str, Any]:
        owned = {"rebalance_timeout_ms": 60_000, "topic_partitions": as_owned(self.owned)}
        return {**owned, **self.subscription, **self.fields}

    def _take(self, answer: Any) -> ErrorCode:
        self._lost_answer = False
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = frozenset(
                    (bytes(topic.topic_id), index)
                    for topic in answer.assignment.topic_partitions
                    for index in topic.partitions
                )
        return ErrorCode(answer.error_code)


class ClassicMember(Committing):
    """A consumer of the classic protocol, which reads one topic.

    It sends old versions, without the round for a member id (KIP-394), unless it `is_new`.
    """

    def __init__(
        self,
        broker: VirtualBroker,
        instance_id: str | None = None,
        *,
        metadata: bytes | None = None,
        is_new: bool = False,
    ) -> None:
        self.broker = broker
        self.instance_id = instance_id
        self.is_new = is_new
        self.member_id = ""
        self.epoch = -1
        self.owned: list[int] = []
        self.metadata = metadata
        self.joining: Any = None

    def join(self, **changes: Any) -> ErrorCode | None:
        """Send JoinGroup; return the code of the answer, or None if it is not there yet."""
        kind = messages.JoinGroupRequest
        metadata = self._subscription() if self.metadata is None else self.metadata
        request = kind(
            **{
                "group_id": GROUP,
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": 30_000,
                "protocol_type": "consumer",
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
                "protocols": [kind.JoinGroupRequestProtocol(name="range", metadata=metadata)],
                **changes,
            }
        )
        version = self._version(5 if self.instance_id else 3)
        self.joining = self.broker.client(self.node_id).send(request, version)
        if not self.joining.is_there:
            return None
        if self.joining.message.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = self.joining.message.member_id
            return self.join(**changes)
        return self.joined()

    def joined(self) -> ErrorCode:
        """Take the answer to JoinGroup."""
        answer = self.joining.message
        if not answer.error_code:
            self.member_id, self.epoch = answer.member_id, answer.generation_id
        return ErrorCode(answer.error_code)

    def send_sync(self, assignments: Mapping[str, bytes]) -> Answer:
        """Send SyncGroup, as the leader with the assignments of all members."""
        kind = messages.SyncGroupRequest
        entries = [
            kind.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
            for member_id, data in assignments.items()
        ]
        names: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
        return self.broker.client(self.node_id).send(
            kind(**self._ids(), **names, assignments=entries), self._version(3)
        )

    def sync(self, assigned: Iterable[int] = (), user_data: bytes | None = None) -> ErrorCode:
        """Send SyncGroup, as the leader with an assignment of its own; take what the answer assigns."""
        topic = messages.ConsumerProtocolAssignment.TopicPartition(topic=TOPIC, partitions=[*assigned])
        assignment = messages.ConsumerProtocolAssignment(assigned_partitions=[topic], user_data=user_data)
        data = b"\0\1" + b"".join(codec.encode(assignment, 1))
        answer = self.send_sync({self.member_id: data} if assigned else {}).message
        if not answer.error_code:
            found = codec.decode(messages.ConsumerProtocolAssignment, 1, answer.assignment[2:])
            self.owned = [index for each in found.assigned_partitions for index in each.partitions]
        return ErrorCode(answer.error_code)

    def beat(self) -> ErrorCode:
        request = messages.HeartbeatRequest(**self._ids())
        return ErrorCode(self.broker.client(self.node_id).ask(request, self._version(3)).error_code)

    def leave(self) -> ErrorCode:
        kind = messages.LeaveGroupRequest
        identity = kind.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        (left,) = self.broker.client(self.node_id).ask(kind(group_id=GROUP, members=[identity])).members
        return ErrorCode(left.error_code)

    def _ids(self) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            "member_id": self.member_id,
            "generation_id": self.epoch,
            "group_instance_id": self.instance_id,
        }

    def _version(self, old: int) -> int | None:
        return None if self.is_new else old

    def _subscription(self) -> bytes:
        kind = messages.ConsumerProtocolSubscription
        owned = [kind.TopicPartition(topic=TOPIC, partitions=self.owned)] if self.owned else []
        return b"\0\1" + b"".join(codec.encode(kind(topics=[TOPIC], owned_partitions=owned), 1))


def as_owned(partitions: frozenset[TopicIdPartition]) -> list[Any]:
    kind = messages.ConsumerGroupHeartbeatRequest.TopicPartitions
    topic_ids = sorted({topic_id for topic_id, _ in partitions})
    return [
        kind(topic_id=topic_id, partitions=sorted(index for each, index in partitions if each == topic_id))
        for topic_id in topic_ids
    ]


def cluster(partitions: int = 4, *topics: str, **options: Any) -> VirtualBroker:
    """Return a broker whose topics have this many partitions."""
    broker = VirtualBroker(topics=(), **options)
    for topic in topics or (TOPIC,):
        if topic not in broker.state.cluster.topics:
            broker.state.cluster.create_topic(topic, partitions)
    return broker


def joined(*names: str) -> tuple[Any, ...]:
    """Return a broker, and members that have joined in this order; "a=i" is member "a" as instance "i"."""
    broker = cluster()
    pairs = [name.partition("=") for name in names]
    members = [Member(broker, name, instance_id=instance_id or None) for name, _, instance_id in pairs]
    for member in members:
        member.join()
    return broker, *members


def settle(*members: Member, rounds: int = 6) -> None:
    """Let each member send a few heartbeats in turn."""
    for _ in range(rounds):
        for member in members:
            assert member.beat() == NONE


def described(broker: VirtualBroker, group_id: str = GROUP) -> Any:
    """Return the group as ConsumerGroupDescribe does."""
    request = messages.ConsumerGroupDescribeRequest(group_ids=[group_id])
    (group,) = broker.client().ask(request).groups
    return group


def committed(
    broker: VirtualBroker, version: int = 10, *, stable: bool = False, node_id: int = 0
) -> tuple[int, int]:
    """Return (error code, offset) of the topic's partition 0."""
    request: Any = sample(broker, "OffsetFetch", version)
    request.require_stable = stable
    answer = broker.client(node_id).ask(request, version)
    if version >= 8:
        (answer,) = answer.groups
    if answer.error_code:
        return answer.error_code, -1
    partition = answer.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


def find_coordinators(broker: VirtualBroker, keys: list[str], key_type: int = 0, node_id: int = 0) -> Any:
    request = messages.FindCoordinatorRequest(coordinator_keys=keys, key_type=key_type)
    return broker.client(node_id).ask(request).coordinators
