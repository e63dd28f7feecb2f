"""The faults of a world of readers: those of any world, of coordinators and fetch sessions, and of members.

An error that says that nothing was done is true. A coordinator that removes a member does so on a request in
its name, as an admin's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kbatch.errors import ErrorCode
from kbatch.protocol import codec, messages
from kbatch.testing.broker.broker_state import Connection
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from kbatch.testing.broker.groups.classic_group import Group
from tests.simulation.readers.cluster import GROUP
from tests.simulation.world.fate import NAMES, Fate
from tests.simulation.world.faults import API_VERSIONS, METADATA, METADATA_ERRORS, WorldFaults
from tests.simulation.world.schedule import MS

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message
    from tests.simulation.readers.member import Member, Members
    from tests.simulation.world.network import Link

_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_COORDINATOR = (*_ELSEWHERE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_LEADER = (
    *(ErrorCode.NOT_LEADER_OR_FOLLOWER,) * 2,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
REFUSALS: Mapping[type[Message], tuple[ErrorCode, ...]] = {
    messages.FetchRequest: (
        *_LEADER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    messages.ListOffsetsRequest: _LEADER,
    messages.FindCoordinatorRequest: (ErrorCode.COORDINATOR_NOT_AVAILABLE,),
    messages.OffsetFetchRequest: (*_COORDINATOR, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    messages.OffsetCommitRequest: (*_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT),
    messages.ConsumerGroupHeartbeatRequest: (*_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    messages.JoinGroupRequest: _COORDINATOR,
    messages.SyncGroupRequest: (*_ELSEWHERE, ErrorCode.REBALANCE_IN_PROGRESS),
    messages.HeartbeatRequest: (*_ELSEWHERE, ErrorCode.REBALANCE_IN_PROGRESS),
}
FETCH = messages.FetchRequest.api_key
# The highest versions that name topics: those of brokers whose Metadata has no topic ids (KIP-516, KIP-848).
WITHOUT_TOPIC_IDS = {
    FETCH: 12,
    messages.OffsetCommitRequest.api_key: 9,
    messages.OffsetFetchRequest.api_key: 9,
}
_KEYS = frozenset(kind.api_key for kind in REFUSALS)


class GroupFaults(WorldFaults):
    """Faults of brokers and of members."""

    world: Members
    old_versions = WITHOUT_TOPIC_IDS
    refused_requests = ("Metadata", *(kind.__name__.removesuffix("Request") for kind in REFUSALS))

    def __init__(self, world: Members) -> None:
        super().__init__(world)
        self.errors = {METADATA: METADATA_ERRORS, **{kind.api_key: codes for kind, codes in REFUSALS.items()}}
        self.changes = {key: self.changes[key] for key in (API_VERSIONS, METADATA)}

    def for_request(self, link: Link, frame: bytes) -> Fate:
        fate = super().for_request(link, frame)
        if fate.api_key == FETCH and self.hidden:
            fate.error_before = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_clear = fate.api_key in _KEYS and not (fate.drops_before or fate.drops_after)
        if is_clear and self._happens(self.world.readers.refused):
            fate.error_before = self._random.choice(self.errors[fate.api_key])
            name = NAMES[fate.api_key]
            self._tell("refused", "%s is answered %s", name, fate.error_before)
        return fate

    def begin(self) -> None:
        super().begin()
        self._begin(self.world.readers, READER_HAPPENINGS)

    # The cluster

    def _any_topic(self) -> Any:
        """Return a topic; the logs of internal ones lose nothing, since coordinators keep their state."""
        topics = self.world.cluster.state.cluster.topics
        return topics[self._random.choice([each for each in self.world.topics() if each in topics])]

    def _recreate(self) -> None:
        """Make a topic anew, with fewer partitions or more; another one stays."""
        if self.world.cluster.missing or len(self.world.topics()) < 2:
            return
        topic = self._any_topic()
        count = max(1, len(topic.partitions) + self._random.randrange(-2, 3))
        self._make_anew(topic.name, count, (1, 500, 3000, 10_000))

    def _move_coordinator(self) -> None:
        partition = self.world.cluster.offsets_partition()
        if partition is not None:
            self._lead_by_another(partition)

    def _end_sessions(self) -> None:
        cluster = self.world.cluster
        node_id = self._random.randrange(len(cluster.state.cluster.nodes))
        self.world.trace("!! node %d forgets its fetch sessions", node_id)
        cluster.state.fetch_sessions.forget(node_id)

    def _trim(self) -> None:
        """Delete the beginning of a log, as by retention."""
        partition = self._any_partition()
        place = self.world.cluster.log_of(partition.topic.topic_id, partition.index)
        offset = self._random.randint(partition.log.log_start_offset, partition.log.high_watermark)
        self.world.trace("!! %s loses what is before %d", place, offset)
        self.world.cluster.change(partition.log.delete_records_before, offset)
        log = self.world.ledger.log(place)
        # a new leader may not know how the last one was trimmed
        log.start = max(log.start, partition.log.log_start_offset)

    # Members

    def _any_member(self) -> Member | None:
        living = self.world.living
        return self._random.choice(living) if living else None

    def _crash(self) -> None:
        if member := self._any_member():
            member.crash()

    def _close(self) -> None:
        if member := self._any_member():
            member.close()

    def _freeze(self) -> None:
        if member := self._any_member():
            member.freeze(int(self._random.random() * self.world.readers.frozen_ms * MS))

    def _stall(self) -> None:
        if member := self._any_member():
            limit_ms = self.world.settings["max.poll.interval.ms"]
            member.stall(int(limit_ms * self._random.uniform(0.5, 2) * MS))

    def _fence(self) -> None:
        """Have the coordinator remove a member."""
        member = self._any_member()
        member_id, epoch = ("", -1) if member is None else member.identity()
        if not member_id or not self.world.cluster.counts(member_id, epoch):
            return
        cluster = self.world.cluster
        self.world.trace("!! the coordinator removes %s", member_id)
        group = cluster.group
        request: Any
        if isinstance(group, Group):
            kind = messages.LeaveGroupRequest
            request = kind(group_id=GROUP, members=[kind.MemberIdentity(member_id=member_id)])
        else:
            request = messages.ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=member_id, member_epoch=-1
            )
        partition = cluster.offsets_partition()
        leader = NO_LEADER if partition is None else partition.leader
        if leader != NO_LEADER:
            version = 5 if isinstance(group, Group) else 1
            frame = b"".join(codec.encode_request(request, version, 0, "admin"))
            cluster.serving = None
            cluster.handle(Connection(leader), frame[4:], None)
            cluster.reschedule()


READER_HAPPENINGS: Mapping[str, Callable[[Any], None]] = {
    "crash": GroupFaults._crash,
    "close": GroupFaults._close,
    "freeze": GroupFaults._freeze,
    "stall": GroupFaults._stall,
    "fence": GroupFaults._fence,
    "join": lambda faults: faults.world.join(),
    "move_coordinator": GroupFaults._move_coordinator,
    "end_sessions": GroupFaults._end_sessions,
    "trim": GroupFaults._trim,
    "remake": GroupFaults._recreate,
}
