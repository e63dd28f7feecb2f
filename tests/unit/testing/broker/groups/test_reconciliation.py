"""How members come to their targets: no partition has two owners, whatever the order of heartbeats."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from kbatch.errors import ErrorCode
from kbatch.testing.broker.groups.consumer_group import ConsumerMember, MemberState
from kbatch.testing.broker.groups.reconciliation import Goal, reconcile
from tests.support.broker_core import TOPIC, VirtualBroker
from tests.unit.testing.broker.group_clients import LEAVE_STATIC, NONE, Member, as_owned, cluster, described

SESSION_MS, REBALANCE_MS = 45_000, 60_000
ID, OTHER = bytes(15) + b"\1", bytes(15) + b"\2"
A, B, C = (ID, 0), (ID, 1), (ID, 2)
BOTH = frozenset((ID, OTHER))


def member(**fields: Any) -> ConsumerMember:
    return ConsumerMember("m", **{"epoch": 3, "previous_epoch": 2, **fields})


def free(partition: object) -> bool:
    return False


def test_stable_member_stays_as_it_is() -> None:
    stable = member(assigned={A: 1})
    assert reconcile(stable, Goal(3, frozenset((B,)), BOTH), None, free) is stable


def test_new_epoch_without_changes_is_taken_over() -> None:
    after = reconcile(member(assigned={A: 1}), Goal(5, frozenset((A,)), BOTH), None, free)
    assert (after.epoch, after.previous_epoch, after.assigned) == (5, 3, {A: 1})


def test_revoked_partitions_hold_back_the_epoch() -> None:
    goal = Goal(5, frozenset((B, C)), BOTH)
    revoking = reconcile(member(assigned={A: 1, B: 2}), goal, None, free)
    assert (revoking.state, revoking.epoch) == (MemberState.UNREVOKED_PARTITIONS, 3)
    assert (revoking.assigned, revoking.revoking) == ({B: 2}, {A: 1})
    for owned in (None, [A, B], [A]):
        assert reconcile(revoking, goal, owned, free) is revoking
    after = reconcile(revoking, goal, [B], free)
    assert (after.state, after.epoch) == (MemberState.STABLE, 5)
    assert (after.assigned, after.revoking) == ({B: 2, C: 5}, {})


def test_partitions_of_others_are_waited_for() -> None:
    goal = Goal(5, frozenset((A, B)), BOTH)
    after = reconcile(member(), goal, None, lambda partition: partition == B)
    assert (after.state, after.epoch, after.assigned) == (MemberState.UNRELEASED_PARTITIONS, 5, {A: 5})
    after = reconcile(after, goal, None, free)
    assert (after.state, after.assigned) == (MemberState.STABLE, {A: 5, B: 5})


def test_partition_that_comes_back_while_it_is_revoked_is_free() -> None:
    revoking = member(state=MemberState.UNREVOKED_PARTITIONS, revoking={A: 1})
    after = reconcile(revoking, Goal(5, frozenset((A,)), BOTH), [], lambda partition: True)
    assert (after.state, after.assigned) == (MemberState.STABLE, {A: 5})


def test_topics_no_longer_subscribed_are_revoked_at_once() -> None:
    stable = member(assigned={A: 1, (OTHER, 0): 2})
    goal = Goal(3, frozenset((A, (OTHER, 0))), frozenset((OTHER,)))
    after = reconcile(stable, goal, None, free, subscription_changed=True)
    assert (after.state, after.epoch) == (MemberState.UNREVOKED_PARTITIONS, 3)
    assert (after.assigned, after.revoking) == ({(OTHER, 0): 2}, {A: 1})
    gone = reconcile(stable, goal, [(OTHER, 0)], free, subscription_changed=True)
    assert (gone.state, gone.assigned, gone.revoking) == (MemberState.STABLE, {(OTHER, 0): 2}, {})


def test_unresolved_topics_of_the_target_are_not_assigned() -> None:
    after = reconcile(member(), Goal(5, frozenset((A, (OTHER, 0))), frozenset((OTHER,))), None, free)
    assert after.assigned == {(OTHER, 0): 5}


class Cluster(RuleBasedStateMachine):
    """Members join, beat, lose answers, keep partitions, die, leave and come back; the broker restarts."""

    members = Bundle("members")

    @initialize(partitions=st.integers(1, 6), interval_ms=st.sampled_from([0, 1_000]))
    def start(self, partitions: int, interval_ms: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.options: dict[str, Any] = {"group_consumer_assignment_interval_ms": interval_ms}
        self.broker = cluster(partitions, directory=Path(self.folder.name), **self.options)
        self.all: list[Member] = []
        # when a member sent its last heartbeat; since when it keeps what it may have to give up, and what it
        # owns after that
        self.beaten_ms: dict[str, int] = {}
        self.kept_ms: dict[str, int] = {}
        self.wanted: dict[str, Any] = {}

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(target=members, instance=st.sampled_from([None, "one", "two"]))
    def join(self, instance: str | None) -> Any:
        if len(self.all) >= 6:
            return multiple()
        member = Member(self.broker, f"m{len(self.all)}", instance_id=instance)
        self.all.append(member)
        self._join(member)
        return member

    @rule(member=members)
    def beat(self, member: Member) -> None:
        member.owned = said = self.wanted.pop(member.member_id, member.owned)
        code = member.beat()
        if said <= member.owned:  # else the broker hears with the next one what was given up
            self.kept_ms.pop(member.member_id, None)
        self._settle(member, code)

    @rule(member=members)
    def beat_without_giving_up(self, member: Member) -> None:
        """Learn of an assignment, and go on with what it had besides."""
        before = member.owned
        wanted = self.wanted.pop(member.member_id, before)
        code = member.beat(topic_partitions=as_owned(before))
        if code == NONE and member.owned != before:
            wanted = member.owned
        if before - wanted:
            self.kept_ms.setdefault(member.member_id, self.broker.now_ms)
            self.wanted[member.member_id] = wanted
        member.owned |= before
        self._settle(member, code)

    @rule(member=members)
    def lose_an_answer(self, member: Member) -> None:
        member.lose_answer()
        self.kept_ms.setdefault(member.member_id, self.broker.now_ms)

    @rule(member=members, static=st.booleans())
    def leave(self, member: Member, static: bool) -> None:
        member.leave(LEAVE_STATIC if static and member.instance_id else -1)

    @rule(duration_ms=st.sampled_from([500, 30_000, 60_000]))
    def wait(self, duration_ms: int) -> None:
        self.broker.advance(duration_ms)
        for member in self.all:  # one that may have been removed stops by itself
            is_silent = self.broker.now_ms - self.beaten_ms[member.member_id] >= SESSION_MS
            kept_ms = self.kept_ms.get(member.member_id, self.broker.now_ms)
            if is_silent or self.broker.now_ms - kept_ms >= REBALANCE_MS:
                member.owned = frozenset()

    @rule()
    def restart(self) -> None:
        before = described(self.broker)
        self.broker.state.close()
        folder, now_ms = Path(self.folder.name), self.broker.now_ms
        self.broker = VirtualBroker(topics=(), directory=folder, now_ms=now_ms, **self.options)
        for member in self.all:
            member.broker = self.broker
        assert described(self.broker) == before

    def _settle(self, member: Member, code: ErrorCode) -> None:
        """A member that is out drops what it has, and joins again."""
        if code == NONE:
            self.beaten_ms[member.member_id] = self.broker.now_ms
        else:
            self._join(member)

    def _join(self, member: Member) -> None:
        code = member.join()
        assert code in (NONE, ErrorCode.UNRELEASED_INSTANCE_ID)
        self.beaten_ms[member.member_id] = self.broker.now_ms
        self.kept_ms.pop(member.member_id, None)
        self.wanted.pop(member.member_id, None)

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned = [each for member in getattr(self, "all", []) for each in member.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def stable_group_owns_all_partitions(self) -> None:
        group = described(self.broker) if hasattr(self, "broker") else None
        if group is not None and group.group_state == "Stable" and group.members:
            held = [
                (bytes(topic.topic_id), index)
                for member in group.members
                for topic in member.assignment.topic_partitions
                for index in topic.partitions
            ]
            count = len(self.broker.state.cluster.topics[TOPIC].partitions)
            assert sorted(held) == [(self.broker.topic_id(), index) for index in range(count)]


Cluster.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
TestCluster = Cluster.TestCase
