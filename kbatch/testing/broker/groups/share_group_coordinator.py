"""The coordinator of share groups (KIP-932): heartbeats in, epochs and assignments out.

Theory of operation. As in `consumer_group_coordinator`: a heartbeat may change a subscription, which raises
the group's epoch; an epoch above that of the target makes a new target; the answer says what the member has
of it. All is stored in __consumer_offsets as one batch before it counts. Since members share partitions,
none waits for another.

After the answer, the share state of partitions that no member had before is initialized. They are assigned by
the next heartbeat of a member, as in Kafka, where another request does it.

A member is removed if it leaves, or sends no heartbeat for its group's `share.session.timeout.ms`. What it
has acquired stays acquired: that is the session's of `share_sessions`, on the partitions' leaders.

The rules and their order follow GroupMetadataManager.java of Kafka 4.3.1, where it handles a shareGroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.groups.assignors import TopicIdPartition, assign_shared
from kbatch.testing.broker.groups.consumer_group import LEAVE_EPOCH, Draft, by_topic
from kbatch.testing.broker.groups.recorded_group import load_groups
from kbatch.testing.broker.groups.share_group import (
    ShareGroup,
    ShareMember,
    current_change,
    epoch_change,
    initialized_change,
    member_change,
    member_tombstones,
    target_changes,
)
from kbatch.testing.broker.share.share_state import NO_OFFSET, ShareKey, ShareStates
from kbatch.testing.broker.timers import Timer, Timers

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Topic
    from kbatch.testing.broker.coordinator_records import Record
    from kbatch.testing.broker.groups.consumer_group_coordinator import GroupClient
    from kbatch.testing.broker.groups.group_configs import GroupConfigs
    from kbatch.testing.broker.groups.group_coordinator import AnyGroup, GroupCoordinator, Store

ASSIGNOR = "simple"
Heartbeat = messages.ShareGroupHeartbeatRequest
Described = messages.ShareGroupDescribeResponse
TopicPartition = tuple[str, int]


class ShareGroupCoordinator:
    """The state machine of the share groups of a coordinator.

    Parameters
    ----------
    classic : GroupCoordinator
        Has the groups of all protocols.
    store : Store
    states : ShareStates
        Has the share states that are initialized.
    topics : mapping of str to Topic
        The cluster's, as they are now.
    configs : GroupConfigs
    max_size : int
        group.share.max.size.
    """

    def __init__(
        self,
        classic: GroupCoordinator,
        store: Store,
        states: ShareStates,
        topics: Mapping[str, Topic],
        configs: GroupConfigs,
        max_size: int,
    ) -> None:
        self._groups: dict[str, AnyGroup] = classic.groups
        self._store = store
        self._states = states
        self._topics = topics
        self._configs = configs
        self._max_size = max_size
        self._timers = Timers()
        self._sessions: dict[tuple[str, str], Timer] = {}

    # Requests

    def heartbeat(
        self, request: Heartbeat, client: GroupClient, now_ms: int
    ) -> messages.ShareGroupHeartbeatResponse:
        """Handle ShareGroupHeartbeat.

        Raises BrokerError INVALID_REQUEST, GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
        FENCED_MEMBER_EPOCH.
        """
        _check(request)
        if request.member_epoch == LEAVE_EPOCH:
            self._remove(self.existing(request.group_id), request.member_id, now_ms)
            return messages.ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
        draft = self._draft(request)
        before = self._sender(draft.group, request)
        names = request.subscribed_topic_names
        member = replace(
            before,
            rack_id=request.rack_id or before.rack_id,
            client_id=client.client_id,
            client_host=client.client_host,
            topics=before.topics if names is None else frozenset(names),
        )
        if member != draft.group.members.get(member.member_id):
            draft.put(member_change(draft.group, member))
        self._update_epoch(draft, changed=member.topics != before.topics)
        self._update_target(draft, now_ms)
        after = _reconciled(draft, member)
        self._commit(draft, now_ms)
        self._expect_heartbeat(request.group_id, after.member_id, now_ms)
        self._initialize(request.group_id, now_ms)
        is_full = request.member_epoch == 0 or names is not None
        return messages.ShareGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._configs.number(request.group_id, "share.heartbeat.interval.ms"),
            assignment=_answered(after) if is_full or after.assigned != before.assigned else None,
        )

    def describe(self, group_id: str) -> Described.DescribedGroup:
        """Handle ShareGroupDescribe of one group; raise BrokerError GROUP_ID_NOT_FOUND."""
        group = self.existing(group_id)
        return Described.DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=ASSIGNOR,
            members=[
                Described.Member(
                    member_id=member.member_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.topics),
                    assignment=self._described(member.assigned),
                )
                for member in group.members.values()
            ],
        )

    # Offsets

    def initialized(self, group_id: str) -> dict[str, list[int]]:
        """Return the partitions of a group that have a share state, by the names of topics that exist."""
        group = self._groups.get(group_id)
        names = {topic.topic_id: name for name, topic in self._topics.items()}
        if not isinstance(group, ShareGroup):
            return {}
        return {
            names[topic_id]: sorted(indexes)
            for topic_id, (_, indexes) in group.initialized.items()
            if topic_id in names
        }

    def set_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Set the start offsets of partitions that exist, for an empty group, which is made if there is none.

        Raises BrokerError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        if group_id not in self._groups:
            draft = Draft(ShareGroup(group_id))
            draft.put(epoch_change(draft.group, draft.group.epoch, 0))
            self._commit(draft, now_ms)
        group = self._empty(group_id)
        for (name, index), offset in offsets.items():
            self._states.initialize(ShareKey(group_id, self._topics[name].topic_id, index), offset, now_ms)
        self._note_initialized(group, offsets, now_ms)

    def delete_offsets(self, group_id: str, names: Iterable[str], now_ms: int) -> list[str]:
        """Delete the share states of topics that exist; return the topics that had some.

        Raises BrokerError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self._empty(group_id)
        deleted = [name for name in names if self._topics[name].topic_id in group.initialized]
        topic_ids = {self._topics[name].topic_id for name in deleted}
        for topic_id in topic_ids:
            for index in group.initialized[topic_id][1]:
                self._states.delete(ShareKey(group_id, topic_id, index))
        if deleted:
            draft = Draft(group)
            left = {each: kept for each, kept in group.initialized.items() if each not in topic_ids}
            draft.put(initialized_change(draft.group, left))
            self._commit(draft, now_ms)
        return deleted

    # Time and restarts

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def handle_timeout(self, now_ms: int) -> None:
        self._timers.run(now_ms)

    def load(self, records: Iterable[Record]) -> None:
        """Add the stored groups; other kinds of records are skipped.

        May be called for one batch at a time; `start_sessions` comes after the last.
        """
        load_groups(self._groups, ShareGroup, records)

    def start_sessions(self, now_ms: int) -> None:
        """Start the sessions of all members anew, after `load`."""
        for group_id, group in self._groups.items():
            if isinstance(group, ShareGroup):
                for member_id in group.members:
                    self._expect_heartbeat(group_id, member_id, now_ms)

    # Members

    def existing(self, group_id: str) -> ShareGroup:
        """Return the group; raise BrokerError GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            what = "not found" if group is None else "is not a share group"
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return group

    def _empty(self, group_id: str) -> ShareGroup:
        group = self.existing(group_id)
        if not group.is_empty:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return group

    def _draft(self, request: Heartbeat) -> Draft[ShareGroup]:
        if request.member_epoch == 0 and request.group_id not in self._groups:
            return Draft(ShareGroup(request.group_id))
        if request.group_id not in self._groups:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {request.group_id} not found.")
        return Draft(self.existing(request.group_id))

    def _sender(self, group: ShareGroup, request: Heartbeat) -> ShareMember:
        """Return the member that sends a heartbeat, as it is before that."""
        if request.member_epoch == 0 and request.member_id not in group.members:
            if len(group.members) >= self._max_size:
                raise BrokerError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {self._max_size} members.",
                )
            return ShareMember(request.member_id)
        member = group.member(request.member_id)
        _check_epoch(member, request.member_epoch)
        return member

    def _update_epoch(self, draft: Draft[ShareGroup], *, changed: bool) -> None:
        """Raise the group's epoch if something changed, its topics did, or partitions have no member yet."""
        group = draft.group
        current_hash = group.current_metadata_hash(self._topics)
        assigned = {each for target in group.targets.values() for each in target}
        waiting = any(
            each not in assigned
            for partitions in group.assignable(self._topics).values()
            for each in partitions
        )
        if changed or waiting or current_hash != group.metadata_hash:
            draft.put(epoch_change(group, group.epoch + 1, current_hash))

    def _update_target(self, draft: Draft[ShareGroup], now_ms: int) -> None:
        group = draft.group
        interval_ms = self._configs.number(group.group_id, "share.assignment.interval.ms")
        is_early = group.target_timestamp_ms and now_ms < group.target_timestamp_ms + interval_ms
        if group.epoch <= group.target_epoch or is_early:
            return
        topics_of = {member_id: member.topics for member_id, member in group.members.items()}
        targets = assign_shared(topics_of, group.assignable(self._topics), group.targets)
        draft.put(*target_changes(group, targets, group.epoch, now_ms))

    def _initialize(self, group_id: str, now_ms: int) -> None:
        """Initialize the share state of subscribed partitions that have none."""
        group = self.existing(group_id)
        missing = [
            (name, index) for name, indexes in group.uninitialized(self._topics).items() for index in indexes
        ]
        try:
            for name, index in missing:
                self._states.initialize(
                    ShareKey(group_id, self._topics[name].topic_id, index), NO_OFFSET, now_ms
                )
        except BrokerError:
            return  # the next heartbeat tries again
        if missing:
            self._note_initialized(group, missing, now_ms)

    def _note_initialized(self, group: ShareGroup, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        initialized = dict(group.initialized)
        for name, index in partitions:
            topic_id = self._topics[name].topic_id
            _, indexes = initialized.get(topic_id, (name, frozenset()))
            initialized[topic_id] = name, indexes | {index}
        draft = Draft(group)
        draft.put(initialized_change(draft.group, initialized))
        self._commit(draft, now_ms)

    def _remove(self, group: ShareGroup, member_id: str, now_ms: int) -> None:
        draft = Draft(group)
        group.member(member_id)
        draft.put(*member_tombstones(group, member_id))
        self._update_epoch(draft, changed=True)
        self._commit(draft, now_ms)

    def _commit(self, draft: Draft[ShareGroup], now_ms: int) -> None:
        """Store the draft, and let it count."""
        group = draft.group
        if draft.records:
            self._store(draft.records)
        old = self._groups.get(group.group_id)
        gone = old.members.keys() - group.members.keys() if isinstance(old, ShareGroup) else ()
        for member_id in gone:
            if (timer := self._sessions.pop((group.group_id, member_id), None)) is not None:
                timer.cancel()
        self._groups[group.group_id] = group

    def _expect_heartbeat(self, group_id: str, member_id: str, now_ms: int) -> None:
        """Remove the member after the group's session time-out."""
        if (running := self._sessions.pop((group_id, member_id), None)) is not None:
            running.cancel()
        timeout_ms = self._configs.number(group_id, "share.session.timeout.ms")

        def expire(late_ms: int) -> None:
            del self._sessions[group_id, member_id]
            group = self._groups.get(group_id)
            if isinstance(group, ShareGroup) and member_id in group.members:
                try:
                    self._remove(group, member_id, late_ms)
                except BrokerError:  # no leader: the next coordinator starts the time anew
                    self._expect_heartbeat(group_id, member_id, late_ms)

        self._sessions[group_id, member_id] = self._timers.call_at(now_ms + timeout_ms, expire)

    def _described(self, partitions: Iterable[TopicIdPartition]) -> Described.Assignment:
        """Return partitions with the names of their topics; those of deleted topics are left out."""
        names = {topic.topic_id: name for name, topic in self._topics.items()}
        return Described.Assignment(
            topic_partitions=[
                Described.TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=indexes)
                for topic_id, indexes in by_topic(partitions).items()
                if topic_id in names
            ]
        )


def _check(request: Heartbeat) -> None:
    """Raise BrokerError for what Kafka refuses whatever the group (GroupCoordinatorService)."""
    if not request.member_id.strip():
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    ids = {"GroupId": request.group_id, "RackId": request.rack_id}
    text = next(
        (f"{name} can't be empty." for name, value in ids.items() if value is not None and not value.strip()),
        None,
    )
    if text is None and request.member_epoch < LEAVE_EPOCH:
        text = "MemberEpoch is invalid."
    if text is None and request.member_epoch == 0 and request.subscribed_topic_names is None:
        text = "SubscribedTopicNames must be set in first request."
    if text is not None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)


def _check_epoch(member: ShareMember, received: int) -> None:
    """Raise BrokerError FENCED_MEMBER_EPOCH for an epoch that is neither the member's nor the one before.

    A member may join again at any time.
    """
    if received in (0, member.epoch, member.previous_epoch):
        return
    is_greater = received > member.epoch
    before = f", and it does not match the previous member epoch ({member.previous_epoch})"
    raise BrokerError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {'greater' if is_greater else 'smaller'} member epoch ({received}) "
        f"than the one known by the group coordinator ({member.epoch}){'' if is_greater else before}. The "
        "member must abandon all its partitions and rejoin.",
    )


def _reconciled(draft: Draft[ShareGroup], member: ShareMember) -> ShareMember:
    """Return the member with the target's epoch and assignment, which it reaches at once."""
    group = draft.group
    target = group.targets.get(member.member_id, frozenset())
    if member.epoch == group.target_epoch:
        return member
    after = replace(member, epoch=group.target_epoch, previous_epoch=member.epoch, assigned=target)
    draft.put(current_change(group, after))
    return after


def _answered(member: ShareMember) -> messages.ShareGroupHeartbeatResponse.Assignment:
    answer = messages.ShareGroupHeartbeatResponse
    return answer.Assignment(
        topic_partitions=[
            answer.TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(member.assigned).items()
        ]
    )
