"""The coordinator of consumer groups of KIP-848: heartbeats in, epochs and assignments out.

Theory of operation. A heartbeat may change the member's subscription, which raises the group's epoch. A group
whose epoch is above that of its target gets a new one, at most once in `consumer.assignment.interval.ms`.
Then the member takes its next step to the target, and the answer says what it has now. Other members learn of
it in their own heartbeats. All that changed is stored in __consumer_offsets as one batch before it counts.

A member is removed if it leaves, sends no heartbeat for `consumer.session.timeout.ms`, or takes longer than
its own rebalance time-out to give up partitions. A static member that is away keeps its partitions until its
session ends.

A member of the classic protocol may be in such a group. Its JoinGroup is what a heartbeat is for others, its
SyncGroup gets the assignment of that time, and its Heartbeat says when to join again. A group becomes one of
KIP-848 with the first member of the new protocol, and a classic one again when the last of them is gone.

Patterns are compared with the topics after a heartbeat is answered, as in Kafka, where another thread does
it. So a new pattern counts from the next heartbeat on. Kafka does it every ten seconds at most; here each
heartbeat does, and so finds new topics at once.

The rules and their order follow GroupMetadataManager.java of Kafka 4.3.1, where it handles a consumerGroup.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from kbatch.protocol import features, messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.groups.assignors import ASSIGNORS, TopicIdPartition
from kbatch.testing.broker.groups.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    Group,
    read_subscription,
    to_record,
)
from kbatch.testing.broker.groups.consumer_group import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assignment,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    Draft,
    MemberState,
    ResolvedRegex,
    by_topic,
    current_change,
    epoch_change,
    existing_ids,
    member_change,
    member_tombstones,
    regex_change,
    target_changes,
)
from kbatch.testing.broker.groups.conversion import (
    by_ids,
    to_classic_group,
    to_consumer_group,
    write_assignment,
)
from kbatch.testing.broker.groups.reconciliation import Goal, reconcile
from kbatch.testing.broker.groups.recorded_group import Change, flattened, load_groups
from kbatch.testing.broker.groups.requests import JoinResult, SyncResult
from kbatch.testing.broker.groups.topic_pattern import compiled
from kbatch.testing.broker.timers import Timer, Timers

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Topic
    from kbatch.testing.broker.coordinator_records import Record
    from kbatch.testing.broker.groups.group_configs import GroupConfigs
    from kbatch.testing.broker.groups.group_coordinator import GroupCoordinator, Store
    from kbatch.testing.broker.groups.requests import JoinGroup, JoinReply, SyncReply

# What a member's time may be limited for
PURPOSES = ("session", "revocation", "join", "sync")
NO_TOPICS = ResolvedRegex(frozenset(), 0)


class GroupClient(NamedTuple):
    """The sender of a request; `sees` is true for topics that it may describe."""

    client_id: str
    client_host: str
    version: int
    sees: Callable[[str], bool]


class ConsumerGroupSettings(NamedTuple):
    """Kafka's settings group.consumer.max.size and group.consumer.migration.policy."""

    max_size: int = 2**31 - 1
    migration_policy: str = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """True if classic groups may become groups of KIP-848."""
        return self.migration_policy in ("upgrade", "bidirectional")

    @property
    def downgrades(self) -> bool:
        """True if groups of KIP-848 may become classic ones."""
        return self.migration_policy in ("downgrade", "bidirectional")


class ConsumerGroupCoordinator:
    """The state machine of the consumer groups of a coordinator.

    Parameters
    ----------
    classic : GroupCoordinator
        Has the groups of both protocols.
    store : Store
    random_uuid : callable
        Returns 16 bytes, for ids of members that come without one.
    topics : mapping of str to Topic
        The cluster's, as they are now.
    settings : ConsumerGroupSettings
    configs : GroupConfigs
        What each group has of its own: heartbeat interval, session time-out, assignment interval.
    """

    def __init__(
        self,
        classic: GroupCoordinator,
        store: Store,
        random_uuid: Callable[[], bytes],
        topics: Mapping[str, Topic],
        settings: ConsumerGroupSettings,
        configs: GroupConfigs,
    ) -> None:
        self._classic = classic
        self._groups = classic.groups
        self._store = store
        self._random_uuid = random_uuid
        self._topics = topics
        self._settings = settings
        self._configs = configs
        self._timers = Timers()
        # by group id, member id and purpose
        self._running: dict[tuple[str, str, str], Timer] = {}

    # Requests

    def consumer_heartbeat(
        self, request: messages.ConsumerGroupHeartbeatRequest, client: GroupClient, now_ms: int
    ) -> messages.ConsumerGroupHeartbeatResponse:
        """Handle ConsumerGroupHeartbeat.

        Raises BrokerError INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION,
        GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
        UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID.
        """
        _check(request, client.version)
        if request.member_epoch < 0:
            return self._leave(request, now_ms)
        draft = self._draft(request.group_id, creates=request.member_epoch == 0)
        before = self._sender(draft, request)
        member = _updated(before, request, client)
        subscription_changed = self._update(draft, before, member)
        self._update_target(draft, now_ms)
        owned = None if request.topic_partitions is None else flattened(request.topic_partitions)
        after = self._reconcile(draft, member, owned, subscription_changed=subscription_changed)
        self._commit(draft, now_ms)
        self._expect_heartbeat(request.group_id, after, now_ms)
        if after != member:
            self._expect_revocation(request.group_id, after, now_ms)
        self._resolve_regexes(request.group_id, client, now_ms)
        changed = before.assigned != after.assigned
        return messages.ConsumerGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._configs.number(request.group_id, "consumer.heartbeat.interval.ms"),
            assignment=_answered(after.assigned) if changed or _is_full(request) else None,
        )

    def describe(self, group_id: str) -> messages.ConsumerGroupDescribeResponse.DescribedGroup:
        """Handle ConsumerGroupDescribe of one group; raise BrokerError GROUP_ID_NOT_FOUND."""
        group = self._existing(group_id)
        answer = messages.ConsumerGroupDescribeResponse
        return answer.DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=group.preferred_assignor or next(iter(ASSIGNORS)),
            members=[
                answer.Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.topics),
                    subscribed_topic_regex=member.regex,
                    assignment=self._described([*member.assigned, *member.revoking]),
                    target_assignment=self._described(group.targets.get(member.member_id, ())),
                    member_type=int(member.classic is None),
                )
                for member in group.members.values()
            ],
        )

    # Time and restarts

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def handle_timeout(self, now_ms: int) -> None:
        self._timers.run(now_ms)

    def load(self, records: Iterable[Record]) -> None:
        """Add the stored groups; other kinds of records are skipped.

        May be called for one batch at a time; `start_sessions` comes after the last.
        """
        load_groups(self._groups, ConsumerGroup, records)

    def start_sessions(self, now_ms: int) -> None:
        """Start the sessions of all members anew, after `load`."""
        for group_id, group in self._groups.items():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self._expect_heartbeat(group_id, member, now_ms)
                    self._expect_revocation(group_id, member, now_ms)

    # Members of the classic protocol

    def join(self, request: JoinGroup, reply: JoinReply, now_ms: int) -> None:
        """Handle JoinGroup: `reply` gets a JoinResult at once, without members, since the broker assigns."""
        try:
            result = self._join(request, now_ms)
        except BrokerError as error:
            result = JoinResult(error.code, "")
        reply(result)

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
        """Handle SyncGroup: `reply` gets a SyncResult at once, with what the member owns."""
        try:
            group = self._existing(group_id)
            member, classic = _classic_member(group, member_id, generation_id, group_instance_id)
            name, metadata = classic.protocols[0]
            if protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or protocol_name not in (None, name):
                raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if member.epoch < group.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._expect_join(group_id, member, now_ms)
                raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        except BrokerError as error:
            reply(SyncResult(error.code))
            return
        self._cancel(group_id, member_id, "sync")
        self._expect_heartbeat(group_id, member, now_ms)
        assignment = write_assignment(metadata, member.assigned, self._topics)
        reply(SyncResult(ErrorCode.NONE, protocol_type, protocol_name, assignment))

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

        Raises BrokerError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        With the last one the member joins again, for a new epoch, to give up partitions, or to get free ones.
        """
        group = self._existing(group_id)
        member, _ = _classic_member(group, member_id, generation_id, group_instance_id)
        self._expect_heartbeat(group_id, member, now_ms)
        if (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_partitions(member))
        ):
            self._expect_join(group_id, member, now_ms)
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, group_id: str, members: Iterable[tuple[str, str | None]], now_ms: int) -> list[ErrorCode]:
        """Handle LeaveGroup: return a code for each (member id, group instance id)."""
        group = self._existing(group_id)
        codes, leaving = [], {}
        for member_id, instance_id in members:
            static = group.static_member(instance_id)
            try:
                if not member_id and static is not None:
                    member_id = static.member_id
                leaving[member_id] = group.named_member(member_id, instance_id)
                codes.append(ErrorCode.NONE)
            except BrokerError as error:
                codes.append(error.code)
        if leaving:
            self._remove(group, leaving.values(), now_ms)
        return codes

    def _join(self, request: JoinGroup, now_ms: int) -> JoinResult:
        self._classic.check_join(request)
        group = self._existing(request.group_id)
        draft = Draft(group)
        if self._settings.migration_policy == "disabled":
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member_id = request.member_id or str(uuid.UUID(bytes=self._random_uuid()))
        self._check_room(group, member_id)
        if not group.supports(request.protocol_type, [name for name, _ in request.protocols]):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        instance_id = request.group_instance_id
        is_new = not request.member_id and instance_id is None
        if is_new and request.version >= features.JOIN_GROUP_MEMBER_ID_REQUIRED:
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        if instance_id is None:
            before = group.members.get(member_id, ConsumerMember(member_id))
        elif request.member_id:
            before = group.named_member(member_id, instance_id)
        else:
            before = self._joining_static_member(draft, member_id, instance_id, is_classic=True)
        member, owned = self._joined(before, request)
        changed = self._update(draft, before, member)
        old = group.static_member(instance_id)
        if old is not None and old.classic is None and self._becomes_classic(draft.group):
            if not changed:
                member = self._reconcile(draft, member, owned, subscription_changed=False)
            self._downgrade(group, draft.group, now_ms, rebalances=changed)
        else:
            self._update_target(draft, now_ms)
            member = self._reconcile(draft, member, owned, subscription_changed=changed)
            self._commit(draft, now_ms)
            self._cancel(request.group_id, member_id, "join")
            self._expect_heartbeat(request.group_id, member, now_ms)
            self._call_after(
                request.time_to_join_ms, now_ms, (request.group_id, member_id, "sync"), lambda member: True
            )
        return JoinResult(
            ErrorCode.NONE, member_id, member.epoch, CONSUMER_PROTOCOL_TYPE, request.protocols[0][0]
        )

    def _joined(
        self, before: ConsumerMember, request: JoinGroup
    ) -> tuple[ConsumerMember, list[TopicIdPartition]]:
        """Return the member with what its JoinGroup says, and the partitions that it has."""
        try:
            subscription = read_subscription(request.protocols[0][1])
        except (ProtocolError, UnsupportedVersionError) as error:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        member = replace(
            before,
            instance_id=request.group_instance_id or before.instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=frozenset(subscription.topics),
            regex="",
            rebalance_timeout_ms=request.time_to_join_ms,
            classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
        )
        return member, by_ids(subscription.owned_partitions, self._topics)

    # Members

    def _draft(self, group_id: str, *, creates: bool) -> Draft[ConsumerGroup]:
        """Return a draft of the group, which takes the place of a classic one if a member joins."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return Draft(group)
        if group is None and creates:
            return Draft(ConsumerGroup(group_id))
        if isinstance(group, Group) and creates and group.is_empty:
            return Draft(ConsumerGroup(group_id), group.tombstones())
        if isinstance(group, Group) and creates:
            return self._upgrade(group)
        what = "not found" if group is None else "is not a consumer group"
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")

    def _upgrade(self, group: Group) -> Draft[ConsumerGroup]:
        """Return the draft of a classic group with members, if it can become one of KIP-848."""
        why = None
        if not self._settings.upgrades:
            why = "online upgrade is disabled"
        elif not group.uses_consumer_protocol:
            why = "the group does not use the consumer embedded protocol"
        elif len(group.members) > self._settings.max_size:
            why = "the group size exceeds the consumer group maximum size"
        if why is not None:
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group.group_id} to consumer group because {why}.",
            )
        return to_consumer_group(group, self._topics)

    def _existing(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return group

    def _sender(
        self, draft: Draft[ConsumerGroup], request: messages.ConsumerGroupHeartbeatRequest
    ) -> ConsumerMember:
        """Return the member that sends a heartbeat, as it is before that."""
        group = draft.group
        member_id = request.member_id or str(uuid.UUID(bytes=self._random_uuid()))
        self._check_room(group, member_id)
        joins = request.member_epoch == 0
        if joins and request.instance_id is not None:
            return self._joining_static_member(draft, member_id, request.instance_id, is_classic=False)
        if joins:
            member = group.members.get(member_id, ConsumerMember(member_id))
        else:
            member = group.named_member(member_id, request.instance_id)
        _check_epoch(member, request)
        return member

    def _check_room(self, group: ConsumerGroup, member_id: str) -> None:
        if member_id not in group.members and len(group.members) >= self._settings.max_size:
            raise BrokerError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self._settings.max_size} members.",
            )

    def _joining_static_member(
        self, draft: Draft[ConsumerGroup], member_id: str, instance_id: str, *, is_classic: bool
    ) -> ConsumerMember:
        """Return a static member that joins. Between members of KIP-848 the old one must have left."""
        group = draft.group
        old = group.static_member(instance_id)
        if old is None:
            return group.members.get(member_id, ConsumerMember(member_id))
        if not is_classic and old.classic is None and old.epoch != LEAVE_STATIC_EPOCH:
            raise BrokerError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {old.member_id} member.",
            )
        member = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        target = group.targets.get(old.member_id, frozenset())
        draft.put(*member_tombstones(group, old.member_id), member_change(group, member))
        draft.put(*target_changes(group, {member_id: target}, group.target_epoch, group.target_timestamp_ms))
        draft.put(current_change(group, member))
        return member

    def _update(self, draft: Draft[ConsumerGroup], before: ConsumerMember, member: ConsumerMember) -> bool:
        """Put the member's new metadata into the draft; return True if its subscription changed."""
        group = draft.group
        if member.regex and member.regex not in group.subscribed_regexes:
            compiled(member.regex)
        if member != group.members.get(member.member_id):
            draft.put(member_change(group, member))
        draft.put(*self._unused_regexes(group))
        regex_changed = member.regex != before.regex
        is_resolved = regex_changed and member.regex in group.regexes
        self._update_epoch(draft, changed=member.topics != before.topics or is_resolved)
        return member.topics != before.topics or regex_changed

    def _update_epoch(self, draft: Draft[ConsumerGroup], *, changed: bool) -> None:
        """Raise the group's epoch if something changed, or if its topics did."""
        group = draft.group
        metadata_hash = group.current_metadata_hash(self._topics)
        if changed or metadata_hash != group.metadata_hash:
            draft.put(epoch_change(group, group.epoch + 1, metadata_hash))

    def _update_target(self, draft: Draft[ConsumerGroup], now_ms: int) -> None:
        group = draft.group
        interval_ms = self._configs.number(group.group_id, "consumer.assignment.interval.ms")
        due_ms = group.target_timestamp_ms + interval_ms
        if group.epoch <= group.target_epoch or (group.target_timestamp_ms and now_ms < due_ms):
            return
        assign = ASSIGNORS[group.preferred_assignor or next(iter(ASSIGNORS))]
        counts = {topic.topic_id: len(topic.partitions) for topic in self._topics.values()}
        targets = assign(group.subscribers(self._topics), counts)
        draft.put(*target_changes(group, targets, group.epoch, now_ms))

    def _reconcile(
        self,
        draft: Draft[ConsumerGroup],
        member: ConsumerMember,
        owned: Collection[TopicIdPartition] | None,
        *,
        subscription_changed: bool,
    ) -> ConsumerMember:
        group = draft.group
        if member.has_reached(group.target_epoch) and not subscription_changed:
            return member
        goal = Goal(
            group.target_epoch,
            group.targets.get(member.member_id, frozenset()),
            existing_ids(group.topics_of(member), self._topics),
        )
        after = reconcile(member, goal, owned, group.is_taken, subscription_changed=subscription_changed)
        if after != member:
            draft.put(current_change(group, after))
        return after

    def _leave(
        self, request: messages.ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> messages.ConsumerGroupHeartbeatResponse:
        group = self._existing(request.group_id)
        member = group.named_member(request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            draft = Draft(group)
            draft.put(current_change(group, replace(member, epoch=LEAVE_STATIC_EPOCH, revoking={})))
            self._commit(draft, now_ms)
        else:
            self._remove(group, [member], now_ms)
        return messages.ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )

    def _remove(self, group: ConsumerGroup, members: Iterable[ConsumerMember], now_ms: int) -> None:
        draft = Draft(group)
        for member in members:
            draft.put(*member_tombstones(group, member.member_id))
        if self._becomes_classic(draft.group):
            self._downgrade(group, draft.group, now_ms, rebalances=True)
            return
        draft.put(*self._unused_regexes(draft.group))
        self._update_epoch(draft, changed=True)
        self._commit(draft, now_ms)

    def _becomes_classic(self, group: ConsumerGroup) -> bool:
        """True if the group has members of the classic protocol only, and may become a classic group."""
        has_room = len(group.members) <= self._classic.max_size
        return self._settings.downgrades and has_room and group.has_classic_members_only()

    def _downgrade(self, old: ConsumerGroup, group: ConsumerGroup, now_ms: int, *, rebalances: bool) -> None:
        """Hand the members of `group` over to the classic protocol's coordinator."""
        classic = to_classic_group(group, self._topics, now_ms)
        self._store([*old.tombstones(), to_record(classic, classic.assignments)])
        for member_id in old.members:
            self._cancel_all(old.group_id, member_id)
        self._classic.adopt(classic, now_ms, rebalances=rebalances)

    def _commit(self, draft: Draft[ConsumerGroup], now_ms: int) -> None:
        """Store the draft, and let it count."""
        group = draft.group
        if draft.records:
            self._store(draft.records)
        old = self._groups.get(group.group_id)
        if isinstance(old, Group):
            self._classic.forget(group.group_id, now_ms)
        elif old is not None:
            for member_id in old.members.keys() - group.members.keys():
                self._cancel_all(group.group_id, member_id)
        self._groups[group.group_id] = group
        if isinstance(old, Group):
            for member in group.members.values():
                self._expect_heartbeat(group.group_id, member, now_ms)
            self._classic.deliver()

    # Patterns

    def _unused_regexes(self, group: ConsumerGroup) -> list[Change]:
        subscribed = group.subscribed_regexes
        return [regex_change(group, regex, None) for regex in group.regexes if regex not in subscribed]

    def _resolve_regexes(self, group_id: str, client: GroupClient, now_ms: int) -> None:
        """Compare the group's patterns with the topics that this client sees."""
        draft = Draft(self._existing(group_id))
        group = draft.group
        if not group.subscribed_regexes:
            return
        changed = False
        for regex in sorted(group.subscribed_regexes):
            pattern = compiled(regex)
            found = frozenset(name for name in self._topics if pattern.fullmatch(name) and client.sees(name))
            known = group.regexes.get(regex)
            if known is None or known.topics != found:
                draft.put(regex_change(group, regex, ResolvedRegex(found, now_ms)))
                changed = changed or found != (known or NO_TOPICS).topics
        self._update_epoch(draft, changed=changed)
        self._commit(draft, now_ms)

    # Timers

    def _expect_heartbeat(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        classic = member.classic
        timeout_ms = (
            self._configs.number(group_id, "consumer.session.timeout.ms")
            if classic is None
            else classic.session_timeout_ms
        )
        self._call_after(timeout_ms, now_ms, (group_id, member.member_id, "session"), lambda member: True)

    def _expect_join(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Give a member of the classic protocol its rebalance time-out to join again."""
        key = (group_id, member.member_id, "join")
        if key not in self._running:
            self._call_after(member.rebalance_timeout_ms, now_ms, key, lambda member: True)

    def _expect_revocation(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Give the member its rebalance time-out to leave the epoch, if it has to give up partitions."""
        key = (group_id, member.member_id, "revocation")
        if member.state is not MemberState.UNREVOKED_PARTITIONS or member.classic is not None:
            self._cancel(*key)
        else:
            self._call_after(
                member.rebalance_timeout_ms, now_ms, key, lambda later: later.epoch == member.epoch
            )

    def _call_after(
        self,
        delay_ms: int,
        now_ms: int,
        key: tuple[str, str, str],
        is_late: Callable[[ConsumerMember], bool],
    ) -> None:
        """Remove the member after this time, if it is late then."""
        self._cancel(*key)

        def expire(later_ms: int) -> None:
            del self._running[key]
            group = self._groups.get(key[0])
            member = group.members.get(key[1]) if isinstance(group, ConsumerGroup) else None
            if isinstance(group, ConsumerGroup) and member is not None and is_late(member):
                try:
                    self._remove(group, [member], later_ms)
                except BrokerError:  # no leader: the next coordinator starts the time anew
                    self._call_after(delay_ms, later_ms, key, is_late)

        self._running[key] = self._timers.call_at(now_ms + max(delay_ms, 1), expire)

    def _cancel(self, group_id: str, member_id: str, purpose: str) -> None:
        if (timer := self._running.pop((group_id, member_id, purpose), None)) is not None:
            timer.cancel()

    def _cancel_all(self, group_id: str, member_id: str) -> None:
        for purpose in PURPOSES:
            self._cancel(group_id, member_id, purpose)

    # Answers

    def _described(
        self, partitions: Iterable[TopicIdPartition]
    ) -> messages.ConsumerGroupDescribeResponse.Assignment:
        """Return partitions with the names of their topics; those of deleted topics are left out."""
        answer = messages.ConsumerGroupDescribeResponse
        names = {topic.topic_id: name for name, topic in self._topics.items()}
        return answer.Assignment(
            topic_partitions=[
                answer.TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=indexes)
                for topic_id, indexes in by_topic(partitions).items()
                if topic_id in names
            ]
        )


def _check(request: messages.ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise BrokerError for what Kafka refuses whatever the group (GroupCoordinatorService)."""
    epoch = request.member_epoch
    needs_id = version >= features.CONSUMER_GROUP_HEARTBEAT_MEMBER_IDS or epoch > 0 or epoch == LEAVE_EPOCH
    ids = {"GroupId": request.group_id, "InstanceId": request.instance_id, "RackId": request.rack_id}
    if needs_id:
        ids = {"MemberId": request.member_id, **ids}
    for name, value in ids.items():
        if value is not None and not value.strip():
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if epoch == 0:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(ASSIGNORS)}.",
        )


def _check_join(request: messages.ConsumerGroupHeartbeatRequest) -> None:
    text = None
    if request.rebalance_timeout_ms == -1:
        text = "RebalanceTimeoutMs must be provided in first request."
    elif request.topic_partitions is None or request.topic_partitions:
        text = "TopicPartitions must be empty when (re-)joining."
    elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        text = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    if text is not None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)


def _check_epoch(member: ConsumerMember, request: messages.ConsumerGroupHeartbeatRequest) -> None:
    """Raise BrokerError FENCED_MEMBER_EPOCH for another epoch than the member's.

    A member may join again at any time: it then has no partitions. The previous epoch is right if the answer
    with the new one may have been lost: the member then has no more than it was assigned.
    """
    received = request.member_epoch
    if received in (0, member.epoch):
        return
    owned = None if request.topic_partitions is None else flattened(request.topic_partitions)
    lost_answer = received == member.previous_epoch < member.epoch and owned is not None
    if lost_answer and member.assigned.keys() >= set(owned or ()):
        return
    size = "greater" if received > member.epoch else "smaller"
    raise BrokerError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({received}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, generation_id: int, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMetadata]:
    """Return the member of the classic protocol that sends a request of this generation.

    Raises BrokerError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    member = group.named_member(member_id, instance_id)
    if member.classic is None:
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation_id != member.epoch:
        raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _updated(
    member: ConsumerMember, request: messages.ConsumerGroupHeartbeatRequest, client: GroupClient
) -> ConsumerMember:
    """Return the member with what the request says; fields that it leaves out stay."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    given: dict[str, Any] = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": None if timeout_ms == -1 else timeout_ms,
        "assignor": request.server_assignor,
        "topics": None if names is None else frozenset(names),
        "regex": request.subscribed_topic_regex,
    }
    return replace(
        member,
        client_id=client.client_id,
        client_host=client.client_host,
        classic=None,
        **{name: value for name, value in given.items() if value is not None},
    )


def _is_full(request: messages.ConsumerGroupHeartbeatRequest) -> bool:
    """True if the member sent all it can: it joins, or repeats a request after an error."""
    subscription = (request.subscribed_topic_names, request.subscribed_topic_regex)
    is_complete = request.rebalance_timeout_ms != -1 and subscription != (None, None)
    return request.member_epoch == 0 or (is_complete and request.topic_partitions is not None)


def _answered(assigned: Assignment) -> messages.ConsumerGroupHeartbeatResponse.Assignment:
    answer = messages.ConsumerGroupHeartbeatResponse
    return answer.Assignment(
        topic_partitions=[
            answer.TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(assigned).items()
        ]
    )
