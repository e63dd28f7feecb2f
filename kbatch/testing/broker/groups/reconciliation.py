"""How a member of a consumer group comes from what it has to its target, a heartbeat at a time (KIP-848).

A member first gives up what the target does not have. Until its heartbeats no longer name these partitions,
they are its own, and its epoch stays. Then it takes over the epoch of the target, with all partitions of it
that no other member owns; the rest follow when they are free.

The rules follow CurrentAssignmentBuilder of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kbatch.testing.broker.groups.consumer_group import ConsumerMember, MemberState

if TYPE_CHECKING:
    from kbatch.testing.broker.groups.assignors import Target, TopicIdPartition


class Goal(NamedTuple):
    """The state to which a member is brought.

    Attributes
    ----------
    epoch : int
        The epoch of the target assignment.
    target : frozenset of (topic id, index)
        The member's partitions in it.
    topic_ids : frozenset of bytes
        Existing topics that the member subscribes to now, which the target may not know yet.
    """

    epoch: int
    target: Target
    topic_ids: frozenset[bytes]


def reconcile(
    member: ConsumerMember,
    goal: Goal,
    owned: Collection[TopicIdPartition] | None,
    is_taken: Callable[[TopicIdPartition], bool],
    *,
    subscription_changed: bool = False,
) -> ConsumerMember:
    """Return the member's next state, which may be the one it has.

    Parameters
    ----------
    owned : collection of (topic id, index), or None
        The partitions that the member says it has; None if its heartbeat does not say.
    is_taken : callable
        True if a member, this one or another, owns the partition.
    subscription_changed : bool
        True if partitions of topics that the member no longer subscribes to must go even without a target.
    """
    if member.state is MemberState.STABLE and member.epoch == goal.epoch:
        return _drop_topics(member, goal, owned) if subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _owns_any(member.revoking, owned):
        return _drop_topics(member, goal, owned) if subscription_changed else member
    return _next_assignment(member, goal, owned, is_taken)


def _owns_any(partitions: Mapping[TopicIdPartition, int], owned: Collection[TopicIdPartition] | None) -> bool:
    return owned is None or any(partition in partitions for partition in owned)


def _drop_topics(
    member: ConsumerMember, goal: Goal, owned: Collection[TopicIdPartition] | None
) -> ConsumerMember:
    """Revoke the partitions of topics that the member no longer subscribes to."""
    dropped = {each: epoch for each, epoch in member.assigned.items() if each[0] not in goal.topic_ids}
    if not dropped:
        return member
    kept = {each: epoch for each, epoch in member.assigned.items() if each not in dropped}
    revoking = {**member.revoking, **dropped}
    member = replace(member, assigned=kept, previous_epoch=member.epoch)
    if _owns_any(revoking, owned):
        return replace(member, state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking)
    return member


def _next_assignment(
    member: ConsumerMember,
    goal: Goal,
    owned: Collection[TopicIdPartition] | None,
    is_taken: Callable[[TopicIdPartition], bool],
) -> ConsumerMember:
    target = {each for each in goal.target if each[0] in goal.topic_ids}
    kept = {each: epoch for each, epoch in member.assigned.items() if each in target}
    revoking = {each: epoch for each, epoch in member.assigned.items() if each not in target}
    if revoking and _owns_any(revoking, owned):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=revoking,
        )
    missing = target - kept.keys()
    # What the member itself gave up is free for it.
    free = {each for each in missing if each in member.revoking or not is_taken(each)}
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if free < missing else MemberState.STABLE,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        assigned={**kept, **dict.fromkeys(free, goal.epoch)},
        revoking={},
    )
