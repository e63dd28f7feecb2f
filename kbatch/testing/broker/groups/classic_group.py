"""A classic consumer group: its members, the answers they wait for, and the protocol they share.

Theory of operation. A group goes round EMPTY or STABLE > PREPARING_REBALANCE (members join; their answers
wait) > COMPLETING_REBALANCE (all know the generation; the leader makes the assignment, the others wait for
it) > STABLE. NEXT_STATES is ClassicGroupState's table of valid previous states, inverted. This module keeps a
group consistent; GroupCoordinator decides what happens when. The rules follow ClassicGroup and
ClassicGroupMember of Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from kbatch.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from kbatch.protocol import codec, messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.coordinator_records import Record, decode_record, encode_record
from kbatch.testing.broker.groups.requests import (
    Commit,
    JoinedMember,
    JoinReply,
    JoinResult,
    Protocols,
    SyncReply,
    SyncResult,
)
from kbatch.testing.broker.timers import Timer

CONSUMER_PROTOCOL_TYPE = "consumer"
GROUP_METADATA_VERSION = 3


class GroupState(Enum):
    """The states of a group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}


@dataclass(slots=True, eq=False)
class Member:
    """A member; `join_reply` and `sync_reply` are answers it waits for.

    `is_new` is true until the member's first rebalance is over: it does not know its id yet, so it sends no
    heartbeats.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None
    heartbeat_timer: Timer | None = None

    @property
    def protocol_names(self) -> list[str]:
        return [name for name, _ in self.protocols]

    @property
    def is_waiting(self) -> bool:
        """True if the member waits for an answer and needs no heartbeat."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        return next(metadata for name, metadata in self.protocols if name == protocol_name)


class Group:
    """One group. Attributes are Kafka's; `pending_joins` are member ids that are not used yet."""

    group_type = "classic"

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_since_ms: int | None = now_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: dict[str, Timer] = {}
        self.pending_syncs: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        self.was_member_added = False
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one sets the protocol type, and leads."""
        if not self.members:
            self.protocol_type = protocol_type
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.remove_pending_join(member.member_id)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        cancel(member.heartbeat_timer)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def remove_pending_join(self, member_id: str) -> None:
        cancel(self.pending_joins.pop(member_id, None))

    def replace_static(self, old: Member, new_id: str) -> Member:
        """Give a static member another id (KIP-345). The old object keeps the replies it waits for."""
        assert old.group_instance_id is not None
        cancel(old.heartbeat_timer)
        del self.members[old.member_id]
        new = Member(
            new_id,
            old.group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members[new_id] = new
        self.static_members[old.group_instance_id] = new_id
        if self.leader_id == old.member_id:
            self.leader_id = new_id
        if old.member_id in self.pending_syncs:
            self.pending_syncs.remove(old.member_id)
            self.pending_syncs.add(new_id)
        return new

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """Return the member; raise BrokerError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is not None and current != member_id:
                raise BrokerError(ErrorCode.FENCED_INSTANCE_ID)
            if current is None:
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_id not in self.members:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self.members[member_id]

    @property
    def assignments(self) -> dict[str, bytes]:
        return {member.member_id: member.assignment for member in self.members.values()}

    @property
    def waiting_joins(self) -> int:
        return sum(member.join_reply is not None for member in self.members.values())

    @property
    def has_all_joined(self) -> bool:
        return self.waiting_joins == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Make a joined member the leader unless the leader joined; return False if none joined."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is None:
            joined = [member.member_id for member in self.members.values() if member.join_reply is not None]
            if not joined:
                return False
            self.leader_id = joined[0]
        return True

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    def tombstones(self) -> list[Record]:
        """Return the records that delete the group."""
        return [encode_record(messages.GroupMetadataKey(group=self.group_id), None, 0)]

    # Protocols

    def supports(self, protocol_type: str, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """True if a member with these protocols can join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        shared = self._shared_protocols()
        return self.protocol_type == protocol_type and (
            not self.members or any(name in shared for name, _ in protocols)
        )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes; each member votes for its first one that all share."""
        shared = self._shared_protocols()
        votes = [
            next(name for name in member.protocol_names if name in shared) for member in self.members.values()
        ]
        return max(votes, key=votes.count)

    def _shared_protocols(self) -> set[str]:
        names = [set(member.protocol_names) for member in self.members.values()]
        return set.intersection(*names) if names else set()

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member reads the topic, or if the subscriptions of a consumer group are unreadable."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def update_subscribed_topics(self) -> None:
        """Read the topics from the members' metadata, which is a subscription only in consumer groups."""
        self.subscribed_topics = None
        if self.uses_consumer_protocol:
            with suppress(ProtocolError, UnsupportedVersionError):
                self.subscribed_topics = frozenset(
                    topic
                    for member in self.members.values()
                    for topic in read_subscription(member.metadata(self.protocol_name)).topics
                )

    # Answers

    def joined(self, member: Member) -> JoinResult:
        """Return the answer to JoinGroup in this generation; only the leader gets the members."""
        members = []
        if member.member_id == self.leader_id:
            members = [
                JoinedMember(each.member_id, each.group_instance_id, each.metadata(self.protocol_name))
                for each in self.members.values()
            ]
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            members=members,
        )

    def assigned(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    # States

    def move_to(self, state: GroupState, now_ms: int) -> None:
        assert state in NEXT_STATES[self.state], f"group {self.group_id}: {self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now_ms

    def start_generation(self, now_ms: int) -> None:
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.update_subscribed_topics()
        self.move_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)

    def check_offset_commit(self, commit: Commit) -> None:
        """Check a commit against the group.

        Without generation (admin clients, consumers without a group) it is allowed while the group is empty.
        Transactional commits of old clients name neither generation nor member, and are always allowed.
        Raises BrokerError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        if commit.epoch < 0 and self.is_empty:
            return
        if commit.epoch >= 0 or commit.member_id or commit.group_instance_id is not None:
            self.check_member(commit.member_id, commit.group_instance_id)
            if commit.epoch != self.generation_id:
                raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        elif not commit.is_transactional:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not commit.is_transactional and self.state is GroupState.COMPLETING_REBALANCE:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Allow it always: members of classic groups do not say who they are."""

    def check_offset_delete(self) -> None:
        """Raise BrokerError NON_EMPTY_GROUP if it is unknown which topics the members read."""
        if self.state is not GroupState.EMPTY and not self.uses_consumer_protocol:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)

    def retention_start_ms(self, commit_timestamp_ms: int) -> int | None:
        """Return the start of offsets.retention.minutes for an offset; None if it does not count."""
        if self.protocol_type is None:  # a simple consumer, which only keeps its offsets here
            return commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            return commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        if self.state is GroupState.STABLE and self.subscribed_topics is not None:
            return commit_timestamp_ms
        return None


def cancel(timer: Timer | None) -> None:
    if timer is not None:
        timer.cancel()


def read_subscription(metadata: bytes) -> messages.ConsumerProtocolSubscription:
    """Return what a consumer says; raise ProtocolError, UnsupportedVersionError for other metadata."""
    kind = messages.ConsumerProtocolSubscription
    version = int.from_bytes(metadata[:2], "big", signed=True)
    return codec.decode(kind, min(version, kind.versions.stop - 1), metadata[2:])


def to_record(group: Group, assignments: Mapping[str, bytes]) -> Record:
    """Return the record of __consumer_offsets (GroupMetadataManager)."""
    value = messages.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
        members=[
            messages.GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return encode_record(messages.GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def from_record(key: bytes, value: bytes | None, now_ms: int) -> tuple[str, Group | None] | None:
    """Return the group id and its group, None for a tombstone; None for a key of another kind."""
    record = decode_record(messages.GroupMetadataKey, messages.GroupMetadataValue, key, value)
    if record is None:
        return None
    group_id = record[0].group
    if (stored := record[1]) is None:
        return group_id, None
    group = Group(group_id, now_ms)
    for member in stored.members:
        group.add(_loaded_member(member, stored.protocol), stored.protocol_type)
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.state_since_ms = None if stored.current_state_timestamp == -1 else stored.current_state_timestamp
    group.generation_id = stored.generation
    group.protocol_type = stored.protocol_type or None
    group.protocol_name = stored.protocol
    group.leader_id = stored.leader
    group.update_subscribed_topics()
    return group_id, group


def _loaded_member(stored: messages.GroupMetadataValue.MemberMetadata, protocol_name: str | None) -> Member:
    timeout_ms = stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout
    return Member(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        timeout_ms,
        stored.session_timeout,
        ((protocol_name or "", bytes(stored.subscription)),),
        bytes(stored.assignment),
    )
