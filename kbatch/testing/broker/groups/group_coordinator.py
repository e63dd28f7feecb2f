"""The group coordinator: Kafka's classic protocol, by which consumers share partitions.

Theory of operation. JoinGroup and SyncGroup wait for other members, so they take a `reply`, which is called
once: in the same call, in a later one, or by `handle_timeout`. It is never called in the middle of a change.
Answers are collected, and delivered when the group is consistent again, so a reply may call the coordinator.
Kafka leaves a request without an answer if the same member sends another, or is removed while it waits; here
it gets REBALANCE_IN_PROGRESS or UNKNOWN_MEMBER_ID.

Four things may time out. A member's session; a new member that waits to join gets five minutes. A member id
that was assigned and not used. The rebalance, after which members that have not joined are removed, except
static members. The wait for SyncGroup, likewise. An empty group waits `initial_rebalance_delay_ms` for
members to join, and longer while more arrive.

A group is stored as a record of __consumer_offsets when it is created, when its leader has sent the
assignment, when it is empty again, and when a static member returns. If storing fails (BrokerError), a join
or an assignment fails with it; the other two changes would only be lost by a restart. Members get an
assignment when its record is replicated.

Groups of KIP-848 and share groups are in the same dict, by the same ids: `consumer_group_coordinator` and
`share_group_coordinator` change them. An empty consumer group of one protocol gives way to a member of the
other.

The rules and their order follow GroupMetadataManager.java of Kafka 4.3.1, where it handles a classicGroup.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kbatch.errors import ErrorCode
from kbatch.protocol import features
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.coordinator_records import Record
from kbatch.testing.broker.groups.classic_group import (
    NEXT_STATES,
    Group,
    GroupState,
    Member,
    cancel,
    from_record,
    to_record,
)
from kbatch.testing.broker.groups.consumer_group import ConsumerGroup
from kbatch.testing.broker.groups.requests import (
    GroupDescription,
    JoinGroup,
    JoinReply,
    JoinResult,
    ListedGroup,
    MemberDescription,
    SyncReply,
    SyncResult,
)
from kbatch.testing.broker.groups.share_group import ShareGroup
from kbatch.testing.broker.timers import Timer, Timers

if TYPE_CHECKING:
    from kbatch.testing.broker.coordinator_log import Write

NEW_MEMBER_TIMEOUT_MS = 300_000
# The limit for a client id or instance id, so that a member id is always a string that fits an answer.
MAX_MEMBER_ID_PREFIX = 249

AnyGroup = Group | ConsumerGroup | ShareGroup


class Store(Protocol):
    """Store records of one group in __consumer_offsets, as one batch; return what is not replicated of it.

    With a producer id the batch is transactional, and its records count after the transaction is committed.
    """

    def __call__(
        self, records: Sequence[Record], producer_id: int = -1, producer_epoch: int = -1
    ) -> Write | None: ...


class GroupCoordinator:
    """The state machine of the classic groups of a coordinator.

    `groups` has all groups by their ids, also those of other protocols.

    Parameters
    ----------
    store : Store
    random_uuid : callable
        Returns 16 bytes, for member ids.
    initial_rebalance_delay_ms : int
        group.initial.rebalance.delay.ms. Kafka's default is 3,000; 0 lets a lone consumer start at once.
    min_session_timeout_ms, max_session_timeout_ms, max_size : int
        group.min.session.timeout.ms, group.max.session.timeout.ms, group.max.size.
    """

    def __init__(
        self,
        store: Store,
        random_uuid: Callable[[], bytes],
        *,
        initial_rebalance_delay_ms: int = 0,
        min_session_timeout_ms: int = 6_000,
        max_session_timeout_ms: int = 1_800_000,
        max_size: int = 2**31 - 1,
    ) -> None:
        self._store = store
        self._random_uuid = random_uuid
        self._initial_delay_ms = initial_rebalance_delay_ms
        self._session_timeouts_ms = range(min_session_timeout_ms, max_session_timeout_ms + 1)
        self.max_size = max_size
        self.groups: dict[str, AnyGroup] = {}
        self._timers = Timers()
        self._answers: list[tuple[Callable[[Any], None], Any]] = []

    # Requests

    def join(self, request: JoinGroup, reply: JoinReply, now_ms: int) -> None:
        """Handle JoinGroup: `reply` gets a JoinResult after all members have joined or the time is over."""
        self._join(request, reply, now_ms)
        self.deliver()

    def sync(
        self,
        group_id: str,
        member_id: str,
        generation_id: int,
        assignments: Mapping[str, bytes],
        reply: SyncReply,
        now_ms: int,
        *,
        group_instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> None:
        """Handle SyncGroup: `reply` gets a SyncResult after the leader has sent its assignments."""
        try:
            group = self._active_group(group_id)
            member = group.check_member(member_id, group_instance_id)
            _check_generation(group, generation_id)
            if protocol_type not in (None, group.protocol_type) or protocol_name not in (
                None,
                group.protocol_name,
            ):
                raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if group.state is GroupState.PREPARING_REBALANCE:
                raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        except BrokerError as error:
            self._answers.append((reply, SyncResult(error.code)))
        else:
            self._sync(group, member, assignments, reply, now_ms)
        self.deliver()

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        generation_id: int,
        now_ms: int,
        *,
        group_instance_id: str | None = None,
    ) -> None:
        """Handle Heartbeat.

        Raises BrokerError INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        REBALANCE_IN_PROGRESS.
        """
        group = self._active_group(group_id)
        member = group.check_member(member_id, group_instance_id)
        _check_generation(group, generation_id)
        self._expect_heartbeat(group, member, now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, group_id: str, members: Iterable[tuple[str, str | None]], now_ms: int) -> list[ErrorCode]:
        """Handle LeaveGroup: return a code for each (member id, group instance id).

        An empty member id with an instance id removes the member that has the instance id (KIP-345). Raises
        BrokerError INVALID_GROUP_ID.
        """
        check_group_id(group_id)
        group = self.groups.get(group_id)
        if not isinstance(group, Group):
            return [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
        codes = [self._leave(group, *member) for member in members]
        if ErrorCode.NONE in codes and group.state is not GroupState.EMPTY:
            self._rebalance_or_complete(group, now_ms)
        self.deliver()
        return codes

    def describe(self, group_id: str) -> GroupDescription:
        """Handle DescribeGroups; raise BrokerError GROUP_ID_NOT_FOUND (before version 6, the state Dead)."""
        group = self._existing_group(group_id)
        if not isinstance(group, Group):
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        protocol = group.protocol_name if group.state is GroupState.STABLE else None
        return GroupDescription(
            group_id,
            group.state.value,
            group.protocol_type or "",
            protocol or "",
            [
                MemberDescription(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    b"" if protocol is None else member.metadata(protocol),
                    member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """Handle ListGroups: return the groups of the states and types, whose names may be in any case."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {each.strip().lower() for each in types}
        return [
            ListedGroup(group.group_id, group.protocol_type or "", group.state_name, group.group_type)
            for group in self.groups.values()
            if not states or group.state_name.lower() in wanted_states
            if not types or group.group_type in wanted_types
        ]

    def check_delete(self, group_id: str) -> None:
        """Raise BrokerError GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP if the group cannot be deleted."""
        if not self._existing_group(group_id).is_empty:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)

    def delete(self, group_id: str, now_ms: int) -> None:
        """Check the group as `check_delete` does, and delete it. `OffsetStore` deletes the offsets."""
        self.check_delete(group_id)
        self._store(self._existing_group(group_id).tombstones())
        self.forget(group_id, now_ms)

    # For ConsumerGroupCoordinator

    def check_join(self, request: JoinGroup) -> None:
        """Raise BrokerError INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT."""
        check_group_id(request.group_id)
        if request.session_timeout_ms not in self._session_timeouts_ms:
            raise BrokerError(ErrorCode.INVALID_SESSION_TIMEOUT)

    def adopt(self, group: Group, now_ms: int, *, rebalances: bool) -> None:
        """Adopt a stable group that was one of KIP-848, and is stored as a classic one."""
        self.groups[group.group_id] = group
        for member in group.members.values():
            self._expect_heartbeat(group, member, now_ms)
        if rebalances:
            self._prepare_rebalance(group, now_ms)
        self.deliver()

    def forget(self, group_id: str, now_ms: int) -> None:
        """Drop a group, which is stored as deleted. Members that wait are told to join again."""
        group = self.groups.pop(group_id)
        if not isinstance(group, Group):
            return
        for member in group.members.values():
            self._answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            self._answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        group.move_to(GroupState.DEAD, now_ms)
        timers = [member.heartbeat_timer for member in group.members.values()]
        for timer in (*timers, *group.pending_joins.values(), group.join_timer, group.sync_timer):
            cancel(timer)

    def deliver(self) -> None:
        """Deliver the answers that are due."""
        while self._answers:
            reply, result = self._answers.pop(0)
            reply(result)

    def resign(self) -> None:
        """Refuse the requests that wait: another node coordinates now (GroupMetadataManager.onUnloaded)."""
        for group in self.groups.values():
            for member in group.members.values() if isinstance(group, Group) else ():
                self._answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
                self._answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
        self.deliver()

    # For OffsetStore

    @property
    def group_ids(self) -> list[str]:
        return list(self.groups)

    def find(self, group_id: str) -> AnyGroup | None:
        return self.groups.get(group_id)

    def simple_group(self, group_id: str, now_ms: int) -> AnyGroup:
        """Return the group of a consumer that only keeps its offsets here; create it if there is none."""
        return self.groups.setdefault(group_id, Group(group_id, now_ms))

    def renew_session(self, group: AnyGroup, member_id: str, now_ms: int) -> None:
        """Renew the session: a commit does so in a classic group, whose members send it for a heartbeat."""
        if isinstance(group, Group) and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._expect_heartbeat(group, group.members[member_id], now_ms)

    # Time and restarts

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def handle_timeout(self, now_ms: int) -> None:
        self._timers.run(now_ms)
        self.deliver()

    def load(self, records: Iterable[Record], now_ms: int) -> None:
        """Add the stored groups; other kinds of records are skipped.

        May be called for one batch at a time. The members' sessions start anew.
        """
        for key, value in records:
            if (record := from_record(key, value, now_ms)) is None:
                continue
            group_id, group = record
            if isinstance(self.groups.get(group_id), Group):
                self.forget(group_id, now_ms)
            if group is not None:
                self.groups[group_id] = group
                for member in group.members.values():
                    self._expect_heartbeat(group, member, now_ms)

    # Join

    def _join(self, request: JoinGroup, reply: JoinReply, now_ms: int) -> None:
        member_id = request.member_id
        try:
            self.check_join(request)
            group = self._joined_group(request, now_ms)
            if not self._has_room(group, member_id):
                self._remove(group, member_id)
                member_id = ""
                raise BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED)
            if not group.supports(request.protocol_type, request.protocols):
                raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if member_id:
                self._join_known(group, request, reply, now_ms)
            else:
                self._join_new(group, request, reply, now_ms)
        except BrokerError as error:
            self._answers.append((reply, JoinResult(error.code, member_id)))

    def _joined_group(self, request: JoinGroup, now_ms: int) -> Group:
        """Return the group that a member joins, new if there is none or an empty one of KIP-848."""
        old = self.groups.get(request.group_id)
        if isinstance(old, Group):
            return old
        if isinstance(old, ShareGroup):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        group = Group(request.group_id, now_ms)
        self._store([*(old.tombstones() if old is not None else ()), to_record(group, {})])
        self.groups[request.group_id] = group
        return group

    def _has_room(self, group: Group, member_id: str) -> bool:
        """True if the group has room.

        In a rebalance the members that wait to join count, so the last ones must leave a full group.
        """
        member = group.members.get(member_id)
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            is_waiting = member is not None and member.join_reply is not None
            return is_waiting or group.waiting_joins < self.max_size
        return member is not None or len(group.members) < self.max_size

    def _join_new(self, group: Group, request: JoinGroup, reply: JoinReply, now_ms: int) -> None:
        instance_id = request.group_instance_id
        prefix = (instance_id or request.client_id)[:MAX_MEMBER_ID_PREFIX]
        member_id = f"{prefix}-{uuid.UUID(bytes=self._random_uuid())}"
        if instance_id is None and request.version >= features.JOIN_GROUP_MEMBER_ID_REQUIRED:
            group.pending_joins[member_id] = self._call_after(
                request.session_timeout_ms, now_ms, self._expire_pending_join, group, member_id
            )
            self._answers.append((reply, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)))
        elif instance_id in group.static_members:
            self._replace_static(group, request, member_id, reply, now_ms)
        else:
            self._add_member(group, request, member_id, reply, now_ms)

    def _join_known(self, group: Group, request: JoinGroup, reply: JoinReply, now_ms: int) -> None:
        if request.member_id in group.pending_joins:
            if request.group_instance_id is not None:
                raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "A pending member cannot be static.")
            self._add_member(group, request, request.member_id, reply, now_ms)
            return
        member = group.check_member(request.member_id, request.group_instance_id)
        is_leader = member.member_id == group.leader_id
        # The leader of a stable group may know of new topics, which its metadata does not show. Otherwise
        # nothing changed, and the member gets the answer that was lost.
        knows_all = group.state is GroupState.COMPLETING_REBALANCE or (
            group.state is GroupState.STABLE and not is_leader
        )
        if knows_all and member.protocols == request.protocols:
            self._answers.append((reply, group.joined(member)))
        else:
            self._update_member(member, request, reply)
            self._rebalance_or_complete(group, now_ms)

    def _add_member(
        self, group: Group, request: JoinGroup, member_id: str, reply: JoinReply, now_ms: int
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.time_to_join_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
            join_reply=reply,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.was_member_added = True
        group.add(member, request.protocol_type)
        # its client may give up without a trace, and join again under another id
        self._expect_heartbeat(group, member, now_ms, NEW_MEMBER_TIMEOUT_MS)
        self._rebalance_or_complete(group, now_ms)

    def _update_member(self, member: Member, request: JoinGroup, reply: JoinReply) -> None:
        self._answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.time_to_join_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join_reply = reply

    def _replace_static(
        self, group: Group, request: JoinGroup, member_id: str, reply: JoinReply, now_ms: int
    ) -> None:
        """Give a static member its new id; while its group is stable that needs no rebalance."""
        assert request.group_instance_id is not None
        old = group.members[group.static_members[request.group_instance_id]]
        old_leader = group.leader_id
        self._answer_join(old, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        self._answer_sync(old, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        member = group.replace_static(old, member_id)
        self._expect_heartbeat(group, member, now_ms)
        self._update_member(member, request, reply)
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol_name:
            self._rebalance_or_complete(group, now_ms)
            return
        with suppress(BrokerError):
            self._store([to_record(group, group.assignments)])
        result = group.joined(member)
        if request.version >= features.JOIN_GROUP_SKIPS_ASSIGNMENT:
            result.skip_assignment = member_id == group.leader_id
        else:
            # the old id keeps the member, if it leads, from sending the assignment again
            result.leader = old_leader or ""
            result.members = []
        self._answer_join(member, result)

    # Rebalance

    def _rebalance_or_complete(self, group: Group, now_ms: int) -> None:
        if GroupState.PREPARING_REBALANCE in NEXT_STATES[group.state]:
            self._prepare_rebalance(group, now_ms)
        elif group.previous_state is not GroupState.EMPTY and group.has_all_joined:
            self._complete_join(group, now_ms)

    def _prepare_rebalance(
        self, group: Group, now_ms: int, sync_error: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS
    ) -> None:
        """Make all members join again; members that wait for their assignment get `sync_error`."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                if self._answer_sync(member, SyncResult(sync_error)):
                    self._expect_heartbeat(group, member, now_ms)
        group.pending_syncs.clear()
        cancel(group.sync_timer)
        is_initial = group.state is GroupState.EMPTY
        group.move_to(GroupState.PREPARING_REBALANCE, now_ms)
        if is_initial and self._initial_delay_ms:
            group.was_member_added = False
            self._wait_for_more(group, self._initial_delay_ms, group.rebalance_timeout_ms, now_ms)
        elif is_initial or group.has_all_joined:
            self._complete_join(group, now_ms)
        else:
            self._wait_for_joins(group, now_ms)

    def _wait_for_more(self, group: Group, delay_ms: int, remaining_ms: int, now_ms: int) -> None:
        """Extend the initial rebalance: `remaining_ms` is the longest that it may still take."""

        def go_on(group: Group, later_ms: int) -> None:
            left_ms = max(remaining_ms - delay_ms, 0)
            if group.was_member_added and left_ms:
                group.was_member_added = False
                self._wait_for_more(group, min(self._initial_delay_ms, left_ms), left_ms, later_ms)
            else:
                self._complete_join(group, later_ms)

        group.join_timer = self._call_after(delay_ms, now_ms, go_on, group)

    def _wait_for_joins(self, group: Group, now_ms: int) -> None:
        group.join_timer = self._call_after(group.rebalance_timeout_ms, now_ms, self._complete_join, group)

    def _complete_join(self, group: Group, now_ms: int) -> None:
        """Begin the next generation with the members that joined, and with static members."""
        cancel(group.join_timer)
        for member in list(group.members.values()):
            if member.join_reply is None and member.group_instance_id is None:
                self._remove(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            self._wait_for_joins(group, now_ms)  # for static members, until their sessions end
            return
        group.start_generation(now_ms)
        if not group.members:
            with suppress(BrokerError):
                self._store([to_record(group, {})])
            return
        for member in group.members.values():
            self._answer_join(member, group.joined(member))
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            self._expect_heartbeat(group, member, now_ms)
        group.sync_timer = self._call_after(
            group.rebalance_timeout_ms, now_ms, self._expire_pending_syncs, group
        )

    def _sync(
        self,
        group: Group,
        member: Member,
        assignments: Mapping[str, bytes],
        reply: SyncReply,
        now_ms: int,
    ) -> None:
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            cancel(group.sync_timer)
        self._answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = reply
        if group.state is GroupState.STABLE:
            self._answer_sync(member, group.assigned(member))
        elif member.member_id == group.leader_id:
            self._store_assignments(group, assignments, now_ms)

    def _store_assignments(self, group: Group, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """Store what the leader assigns; members get it when it is replicated."""
        decided = partial(self._assignments_stored, group, assignments)
        try:
            write = self._store([to_record(group, assignments)])
        except BrokerError as error:
            decided(error.code, now_ms)
            return
        if write is None:
            decided(ErrorCode.NONE, now_ms)
            return
        generation_id = group.generation_id

        def later(code: ErrorCode, now_ms: int) -> None:
            is_same = group.generation_id == generation_id
            if is_same and group.state is GroupState.COMPLETING_REBALANCE:
                decided(code, now_ms)
                self.deliver()

        write.then(later)

    def _assignments_stored(
        self, group: Group, assignments: Mapping[str, bytes], code: ErrorCode, now_ms: int
    ) -> None:
        if code != ErrorCode.NONE:
            self._prepare_rebalance(group, now_ms, code)
            return
        group.move_to(GroupState.STABLE, now_ms)
        for each in group.members.values():
            each.assignment = assignments.get(each.member_id, b"")
            if self._answer_sync(each, group.assigned(each)):
                self._expect_heartbeat(group, each, now_ms)

    # Leaving and time-outs

    def _leave(self, group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode:
        if member_id in group.pending_joins:
            group.remove_pending_join(member_id)
            return ErrorCode.NONE
        if not member_id and group_instance_id is not None:
            member_id = group.static_members.get(group_instance_id, "")
        try:
            group.check_member(member_id, group_instance_id)
        except BrokerError as error:
            return error.code
        self._remove(group, member_id)
        return ErrorCode.NONE

    def _remove(self, group: Group, member_id: str) -> None:
        """Remove a member or a pending one, and answer the request it waits for."""
        group.remove_pending_join(member_id)
        if (member := group.members.get(member_id)) is not None:
            self._answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
            self._answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            group.remove(member_id)

    def _expect_heartbeat(
        self, group: Group, member: Member, now_ms: int, timeout_ms: int | None = None
    ) -> None:
        cancel(member.heartbeat_timer)
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.heartbeat_timer = self._call_after(timeout_ms, now_ms, self._expire_session, group, member)

    def _expire_session(self, group: Group, member: Member, now_ms: int) -> None:
        if member.is_waiting:
            return  # its session starts anew with the answer
        self._remove(group, member.member_id)
        self._after_removal(group, now_ms)

    def _expire_pending_join(self, group: Group, member_id: str, now_ms: int) -> None:
        group.remove_pending_join(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._after_removal(group, now_ms)

    def _after_removal(self, group: Group, now_ms: int) -> None:
        """Start a rebalance after a removal, or end one, even the initial one, if all members have joined."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            self._prepare_rebalance(group, now_ms)
        elif group.has_all_joined:
            self._complete_join(group, now_ms)

    def _expire_pending_syncs(self, group: Group, now_ms: int) -> None:
        for member_id in list(group.pending_syncs):
            self._remove(group, member_id)
        self._prepare_rebalance(group, now_ms)

    # Answers, timers, groups

    def _answer_join(self, member: Member, result: JoinResult) -> None:
        if member.join_reply is not None:
            self._answers.append((member.join_reply, result))
            member.join_reply = None

    def _answer_sync(self, member: Member, result: SyncResult) -> bool:
        """Answer a member's SyncGroup; return True if it waited for one."""
        if member.sync_reply is None:
            return False
        self._answers.append((member.sync_reply, result))
        member.sync_reply = None
        return True

    def _call_after(self, delay_ms: int, now_ms: int, action: Callable[..., None], *args: Any) -> Timer:
        # never 0, so that time advances
        return self._timers.call_at(now_ms + max(delay_ms, 1), lambda later_ms: action(*args, later_ms))

    def _existing_group(self, group_id: str) -> AnyGroup:
        if (group := self.find(group_id)) is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def _active_group(self, group_id: str) -> Group:
        check_group_id(group_id)
        group = self.groups.get(group_id)
        if not isinstance(group, Group) or group.is_empty:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group


def check_group_id(group_id: str) -> None:
    """Raise BrokerError INVALID_GROUP_ID for an empty id; only some old requests may go without one."""
    if not group_id:
        raise BrokerError(ErrorCode.INVALID_GROUP_ID)


def _check_generation(group: Group, generation_id: int) -> None:
    if generation_id != group.generation_id:
        raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
