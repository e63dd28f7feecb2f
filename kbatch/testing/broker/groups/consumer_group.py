"""A consumer group of KIP-848: its members, what they own, and what each is to own.

Theory of operation. Every part of the state is the value of a record in __consumer_offsets, and `apply` is
the one way to change it. Requests apply the records that they are about to store, and a restart applies the
stored ones. A `Draft` collects the records of one request over a copy of the group, so that a request which
fails changes nothing. Members are immutable.

The epoch of the group grows when subscriptions, topics or members change. A target assignment has the epoch
for which it was made, and each member the epoch of the target that it has reached. Each partition keeps the
epoch at which its owner got it, so that a commit of an older epoch counts as long as the partition is the
member's (KIP-1251).

The rules follow ConsumerGroup, ModernGroup and ConsumerGroupMember of Kafka 4.3.1.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.coordinator_records import Record, encode_record
from kbatch.testing.broker.groups.assignors import Subscriber, Target, TopicIdPartition
from kbatch.testing.broker.groups.recorded_group import Change, RecordedGroup, Records
from kbatch.testing.broker.groups.requests import Commit

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Topic

LEAVE_EPOCH, LEAVE_STATIC_EPOCH = -1, -2
RECORD_VERSION = 0

# Key and value of a record; None is the tombstone
# Partitions, each with the epoch at which the member got it
Assignment = Mapping[TopicIdPartition, int]


class MemberState(Enum):
    """The states of a member, by Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class ClassicMetadata(NamedTuple):
    """The metadata of a member that uses the classic protocol; `protocols` are (name, metadata)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(slots=True, frozen=True)
class ConsumerMember:
    """A member.

    Attributes
    ----------
    epoch, previous_epoch : int
        The epoch of the target that it has reached, -2 for a static member that is away; the one before.
    topics : frozenset of str
        Subscribed names.
    regex : str
        Subscribed pattern, or "".
    rebalance_timeout_ms : int
        The time that it may take to give up partitions.
    assignor : str or None
        The name of the assignor that it wants.
    assigned, revoking : mapping of (topic id, index) to int
        Partitions that it may read, and those that it must give up. As long as they are here it owns them.
    classic : ClassicMetadata or None
        Set if it uses the classic protocol.
    """

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)
    classic: ClassicMetadata | None = None

    def has_reached(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def owned_since(self, partition: TopicIdPartition) -> int | None:
        """Return the epoch at which the member got the partition; None if it is not its own."""
        return self.assigned.get(partition, self.revoking.get(partition))


class ResolvedRegex(NamedTuple):
    """The topics that a subscribed pattern matched, and when it was compared with them."""

    topics: frozenset[str]
    timestamp_ms: int


class ConsumerGroup(RecordedGroup[ConsumerMember]):
    """One group.

    Attributes
    ----------
    regexes : dict of str to ResolvedRegex
    """

    group_type = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.regexes: dict[str, ResolvedRegex] = {}

    def copy(self) -> Self:
        twin = super().copy()
        twin.regexes = dict(self.regexes)
        return twin

    # Members

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.has_reached(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def has_classic_members_only(self) -> bool:
        return bool(self.members) and all(each.classic is not None for each in self.members.values())

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        return next((each for each in self.members.values() if each.instance_id == instance_id), None)

    def named_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member of these ids; raise BrokerError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is None:
            return self.member(member_id)
        if (member := self.static_member(instance_id)) is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise BrokerError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.member_id}.",
            )
        return member

    def is_taken(self, partition: TopicIdPartition) -> bool:
        """True if a member owns the partition, also if it has to give it up."""
        return any(member.owned_since(partition) is not None for member in self.members.values())

    def waits_for_partitions(self, member: ConsumerMember) -> bool:
        """True if another member still owns partitions of this member's target."""
        missing = self.targets.get(member.member_id, frozenset()) - member.assigned.keys()
        return any(self.is_taken(partition) for partition in missing)

    def supports(self, protocol_type: str, protocol_names: Iterable[str]) -> bool:
        """True if a member of the classic protocol with these can join: one name must be all members'."""
        shared = [
            {name for name, _ in each.classic.protocols} for each in self.members.values() if each.classic
        ]
        return protocol_type == self.protocol_type and any(
            all(name in names for names in shared) for name in protocol_names
        )

    @property
    def preferred_assignor(self) -> str | None:
        """Return the assignor that most members want; None if no member wants one."""
        wanted = Counter(each.assignor for each in self.members.values() if each.assignor is not None)
        return max(wanted, key=lambda name: wanted[name], default=None)

    # Subscriptions

    @property
    def subscribed_regexes(self) -> frozenset[str]:
        return frozenset(each.regex for each in self.members.values() if each.regex)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics of a member; a pattern that is not resolved yet has none."""
        resolved = self.regexes.get(member.regex)
        return member.topics if resolved is None else member.topics | resolved.topics

    @property
    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(topic for each in self.members.values() for topic in self.topics_of(each))

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    def subscribers(self, topics: Mapping[str, Topic]) -> list[Subscriber]:
        """Return the members as assignors see them, sorted by id."""
        return [
            Subscriber(
                each.member_id,
                each.instance_id,
                existing_ids(self.topics_of(each), topics),
                self.targets.get(each.member_id, frozenset()),
            )
            for _, each in sorted(self.members.items())
        ]

    def current_metadata_hash(self, topics: Mapping[str, Topic]) -> int:
        """Return a hash of the subscribed topics that exist: another one means another assignment."""
        return metadata_hash(self.subscribed_topics, topics)

    # Checks of requests about offsets

    def check_offset_commit(self, commit: Commit) -> None:
        """Check a commit against the group.

        Without epoch (admin clients, consumers without a group) it is allowed while the group is empty.
        Transactional commits of old clients name neither epoch nor member, and are always allowed. An older
        epoch is enough for partitions that the member has had since then. Raises BrokerError
        UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
        """
        if commit.epoch < 0 and self.is_empty:
            return
        if commit.is_transactional and commit.names_nothing:
            return
        member = self.member(commit.member_id)
        is_old = commit.version < features.OFFSET_COMMIT_MEMBER_EPOCHS
        if is_old and not commit.is_transactional and member.classic is None:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        if commit.epoch == member.epoch:
            return
        since = [member.owned_since(partition) for partition in commit.partitions]
        if commit.epoch > member.epoch or any(epoch is None or commit.epoch < epoch for epoch in since):
            code = ErrorCode.ILLEGAL_GENERATION if commit.is_transactional else _stale_code(member)
            raise BrokerError(code)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check the member that fetches offsets, if the request names one.

        Raises BrokerError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
        """
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise BrokerError(_stale_code(member))

    def check_offset_delete(self) -> None:
        """Allow it always: it is known which topics the members read."""

    def retention_start_ms(self, commit_timestamp_ms: int) -> int | None:
        """Return the start of offsets.retention.minutes for an offset of a topic that no member reads."""
        return commit_timestamp_ms

    # Records

    def tombstones(self) -> list[Record]:
        """Return the records that delete the group (ConsumerGroup.createGroupTombstoneRecords)."""
        changes = [change for member_id in self.members for change in member_tombstones(self, member_id)]
        for regex in self.regexes:
            changes.append(regex_change(self, regex, None))
        changes.append((messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id), None))
        changes.append((messages.ConsumerGroupMetadataKey(group_id=self.group_id), None))
        return to_records(changes)

    def _apply_member(
        self,
        key: messages.ConsumerGroupMemberMetadataKey,
        value: messages.ConsumerGroupMemberMetadataValue | None,
    ) -> None:
        if value is None:
            self.members.pop(key.member_id, None)
            return
        stored = value.classic_member_metadata
        self.members[key.member_id] = replace(
            self.members.get(key.member_id, ConsumerMember(key.member_id)),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=None
            if stored is None
            else ClassicMetadata(
                stored.session_timeout_ms,
                tuple((each.name, bytes(each.metadata)) for each in stored.supported_protocols),
            ),
        )

    def _apply_current(
        self,
        key: messages.ConsumerGroupCurrentMemberAssignmentKey,
        value: messages.ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        member = self.members.get(key.member_id, ConsumerMember(key.member_id))
        if value is not None:
            self.members[key.member_id] = replace(
                member,
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=MemberState(value.state),
                assigned=_assignment(value.assigned_partitions, value.member_epoch),
                revoking=_assignment(value.partitions_pending_revocation, value.member_epoch),
            )
        elif key.member_id in self.members:
            self.members[key.member_id] = replace(
                member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, revoking={}
            )

    def _apply_regex(
        self,
        key: messages.ConsumerGroupRegularExpressionKey,
        value: messages.ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.timestamp)

    RECORDS: ClassVar[Records] = {
        messages.ConsumerGroupMetadataKey: (
            messages.ConsumerGroupMetadataValue,
            RecordedGroup._apply_metadata,
        ),
        messages.ConsumerGroupMemberMetadataKey: (messages.ConsumerGroupMemberMetadataValue, _apply_member),
        messages.ConsumerGroupTargetAssignmentMetadataKey: (
            messages.ConsumerGroupTargetAssignmentMetadataValue,
            RecordedGroup._apply_target_epoch,
        ),
        messages.ConsumerGroupTargetAssignmentMemberKey: (
            messages.ConsumerGroupTargetAssignmentMemberValue,
            RecordedGroup._apply_target,
        ),
        messages.ConsumerGroupCurrentMemberAssignmentKey: (
            messages.ConsumerGroupCurrentMemberAssignmentValue,
            _apply_current,
        ),
        messages.ConsumerGroupRegularExpressionKey: (
            messages.ConsumerGroupRegularExpressionValue,
            _apply_regex,
        ),
    }


AnyRecordedGroup = TypeVar("AnyRecordedGroup", bound=RecordedGroup[Any])


class Draft(Generic[AnyRecordedGroup]):
    """A group with the changes of a request, before they are stored.

    Attributes
    ----------
    group : ConsumerGroup or ShareGroup
        A copy, which has the changes.
    records : list of Record
        The records to store.
    """

    def __init__(self, group: AnyRecordedGroup, records: Iterable[Record] = ()) -> None:
        self.group = group.copy()
        self.records = [*records]

    def put(self, *changes: Change) -> None:
        for key, value in changes:
            self.group.apply(key, value)
        self.records += to_records(changes)


def metadata_hash(names: Iterable[str], topics: Mapping[str, Topic]) -> int:
    """Return a hash of the topics of these names that exist, with their ids and sizes; 0 for none.

    Kafka hashes the same facts by XXH3, and only compares the value with one that it made itself.
    """
    present = sorted(set(names) & topics.keys())
    if not present:
        return 0
    facts = [(name, topics[name].topic_id, len(topics[name].partitions)) for name in present]
    digest = hashlib.blake2b(repr(facts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def existing_ids(names: Iterable[str], topics: Mapping[str, Topic]) -> frozenset[bytes]:
    """Return the ids of the topics that exist."""
    return frozenset(topics[name].topic_id for name in names if name in topics)


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[bytes, list[int]]:
    """Return the sorted indexes of each topic."""
    grouped: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        grouped.setdefault(topic_id, []).append(index)
    return grouped


def _stale_code(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


# Records, by GroupCoordinatorRecordHelpers


def member_change(group: ConsumerGroup, member: ConsumerMember) -> Change:
    kind = messages.ConsumerGroupMemberMetadataValue
    classic = member.classic
    return (
        messages.ConsumerGroupMemberMetadataKey(group_id=group.group_id, member_id=member.member_id),
        kind(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=None
            if classic is None
            else kind.ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    kind.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
                ],
            ),
        ),
    )


def epoch_change(group: ConsumerGroup, epoch: int, metadata_hash: int) -> Change:
    return (
        messages.ConsumerGroupMetadataKey(group_id=group.group_id),
        messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_changes(
    group: ConsumerGroup, targets: Mapping[str, Target], epoch: int, now_ms: int
) -> list[Change]:
    """Return the changes from the group's target to a new one."""
    kind = messages.ConsumerGroupTargetAssignmentMemberValue
    changes: list[Change] = [
        (
            messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id),
            kind(
                topic_partitions=[
                    kind.TopicPartition(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in by_topic(target).items()
                ]
            ),
        )
        for member_id, target in targets.items()
        if target != group.targets.get(member_id)
    ]
    changes.append(
        (
            messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id),
            messages.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=epoch, assignment_timestamp=now_ms
            ),
        )
    )
    return changes


def current_change(group: ConsumerGroup, member: ConsumerMember) -> Change:
    kind = messages.ConsumerGroupCurrentMemberAssignmentValue

    def stored(
        assignment: Assignment,
    ) -> list[messages.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
        return [
            kind.TopicPartitions(
                topic_id=topic_id,
                partitions=indexes,
                assignment_epochs=[assignment[topic_id, index] for index in indexes],
            )
            for topic_id, indexes in by_topic(assignment).items()
        ]

    return (
        messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member.member_id),
        kind(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state.value,
            assigned_partitions=stored(member.assigned),
            partitions_pending_revocation=stored(member.revoking),
        ),
    )


def regex_change(group: ConsumerGroup, regex: str, resolved: ResolvedRegex | None) -> Change:
    key = messages.ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex)
    if resolved is None:
        return key, None
    value = messages.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), timestamp=resolved.timestamp_ms
    )
    return key, value


def member_tombstones(group: ConsumerGroup, member_id: str) -> list[Change]:
    ids = {"group_id": group.group_id, "member_id": member_id}
    return [
        (messages.ConsumerGroupCurrentMemberAssignmentKey(**ids), None),
        (messages.ConsumerGroupTargetAssignmentMemberKey(**ids), None),
        (messages.ConsumerGroupMemberMetadataKey(**ids), None),
    ]


def to_records(changes: Iterable[Change]) -> list[Record]:
    return [encode_record(key, value, RECORD_VERSION) for key, value in changes]


def _assignment(
    topics: Iterable[messages.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], default_epoch: int
) -> Assignment:
    """Return stored partitions; those of brokers before 4.3 have no epochs of their own."""
    return {
        (bytes(topic.topic_id), index): epoch
        for topic in topics
        for index, epoch in zip(
            topic.partitions,
            topic.assignment_epochs or [max(default_epoch, 0)] * len(topic.partitions),
            strict=True,
        )
    }
