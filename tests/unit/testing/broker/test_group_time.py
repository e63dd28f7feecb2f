"""The group coordinator over time: sessions, rebalances, static members, restarts, and all of it in any
order."""

from __future__ import annotations

import pytest

from kbatch.testing.broker.group_messages import JoinResult, SyncResult
from kbatch.testing.broker.group_state import NEW_MEMBER_TIMEOUT_MS
from tests.unit.consumer_groups import (
    FENCED,
    NONE,
    REBALANCE,
    REBALANCING,
    SESSION,
    UNKNOWN_MEMBER,
    Groups,
    Member,
)

# Sessions


def test_a_member_without_heartbeats_is_removed_and_the_others_share_out_again() -> None:
    groups = Groups()
    alive, dead = Member(groups, "a"), Member(groups, "b")
    groups.stable(alive, dead)
    groups.pass_time(SESSION - 1)
    assert alive.heartbeat() == NONE
    groups.pass_time(1)
    assert groups.state == "PreparingRebalance"
    assert (alive.heartbeat(), dead.heartbeat()) == (REBALANCING, UNKNOWN_MEMBER)
    joined = alive.join()
    assert joined is not None and [each.member_id for each in joined.members] == [alive.member_id]


def test_the_last_session_to_end_empties_the_group() -> None:
    groups = Groups()
    member = Member(groups, "a")
    groups.stable(member)
    groups.pass_time(SESSION)
    assert groups.state == "Empty"
    groups.restart()
    assert groups.state == "Empty"
    assert groups.coordinator.next_deadline_ms() is None


def test_a_member_that_waits_needs_no_heartbeat() -> None:
    groups = Groups()
    leader, follower = Member(groups, "a"), Member(groups, "b")
    groups.stable(leader, follower)
    follower.join(protocols=(("range", b"new"),))
    for _ in range(4):
        groups.pass_time(SESSION - 1)
        assert leader.heartbeat() == REBALANCING
    leader.join()
    assert follower.generation_id == leader.generation_id == 3
    follower.sync()
    for _ in range(4):
        groups.pass_time(SESSION - 1)
        assert leader.heartbeat() == NONE
    leader.sync()
    groups.pass_time(SESSION - 1)
    assert (leader.heartbeat(), follower.heartbeat()) == (NONE, NONE)


def test_a_stable_group_stays_so() -> None:
    groups = Groups()
    members = [Member(groups, name) for name in "ab"]
    groups.stable(*members)
    for _ in range(3 * REBALANCE // 5_000):
        groups.pass_time(5_000)
        assert [member.heartbeat() for member in members] == [NONE, NONE]


def test_a_member_id_that_is_not_used_is_forgotten() -> None:
    groups = Groups()
    member = Member(groups, "a")
    given = member.join(version=4)
    assert given is not None
    groups.pass_time(SESSION)
    assert member.join(member_id=given.member_id) == JoinResult(UNKNOWN_MEMBER, given.member_id)


def test_a_rebalance_waits_for_who_was_given_an_id() -> None:
    groups = Groups()
    member, pending = Member(groups, "a"), Member(groups, "b")
    groups.stable(member)
    pending.join(version=4)
    assert member.join() is None
    groups.pass_time(SESSION - 1)
    assert len(member.joins) == 1
    groups.pass_time(1)
    assert member.joins[-1].generation_id == 2


def test_a_new_member_that_waits_too_long_is_taken_for_gone() -> None:
    groups = Groups()
    slow, new = Member(groups, "a", rebalance_timeout_ms=2 * NEW_MEMBER_TIMEOUT_MS), Member(groups, "b")
    groups.stable(slow)
    new.join()
    for _ in range(NEW_MEMBER_TIMEOUT_MS // 5_000 - 1):
        groups.pass_time(5_000)
        assert slow.heartbeat() == REBALANCING
    assert new.joins == []
    groups.pass_time(5_000)
    assert new.joins == [JoinResult(UNKNOWN_MEMBER, "")]


# Rebalances


def test_who_does_not_join_in_time_is_removed_and_another_leads() -> None:
    groups = Groups()
    late, quick = Member(groups, "a"), Member(groups, "b")
    groups.stable(late, quick)
    assert quick.join(protocols=(("range", b"new"),)) is None
    for _ in range(REBALANCE // 5_000 - 1):
        groups.pass_time(5_000)
        assert late.heartbeat() == REBALANCING
    assert len(quick.joins) == 1
    groups.pass_time(5_000)
    assert quick.joins[-1].leader == quick.member_id
    assert late.heartbeat() == UNKNOWN_MEMBER


def test_who_does_not_sync_in_time_is_removed() -> None:
    groups = Groups()
    leader, follower = Member(groups, "a"), Member(groups, "b")
    groups.stable(leader, follower)
    leader.join()
    follower.join()
    follower.sync()
    for _ in range(REBALANCE // 5_000 - 1):
        groups.pass_time(5_000)
        assert leader.heartbeat() == NONE
    assert len(follower.syncs) == 1
    groups.pass_time(5_000)
    assert follower.syncs[-1] == SyncResult(REBALANCING)
    assert leader.heartbeat() == UNKNOWN_MEMBER
    groups.stable(follower)


def test_a_follower_that_does_not_sync_is_removed_from_a_stable_group() -> None:
    groups = Groups()
    leader, follower = Member(groups, "a"), Member(groups, "b")
    groups.stable(leader, follower)
    leader.join()
    follower.join()
    leader.sync()
    assert groups.state == "Stable"
    for _ in range(REBALANCE // 5_000):
        groups.pass_time(5_000)
        leader.heartbeat()
        follower.heartbeat()
    assert groups.state == "PreparingRebalance"
    assert (leader.heartbeat(), follower.heartbeat()) == (REBALANCING, UNKNOWN_MEMBER)


@pytest.mark.parametrize(
    ("joins_at_ms", "rebalance_timeout_ms", "complete_at_ms"),
    [
        ([0], REBALANCE, 3_000),
        ([0, 2_999], REBALANCE, 6_000),
        ([0, 1_000, 2_000, 4_000], REBALANCE, 9_000),
        ([0, 1_000, 4_000], 7_000, 7_000),
        ([0, 1_000, 4_000, 6_500], 7_000, 7_000),
        ([0, 1_000], 1_000, 3_000),
    ],
)
def test_an_empty_group_waits_for_more_members(
    joins_at_ms: list[int], rebalance_timeout_ms: int, complete_at_ms: int
) -> None:
    groups = Groups(initial_rebalance_delay_ms=3_000)
    start_ms = groups.now_ms
    members = [
        Member(groups, str(index), rebalance_timeout_ms=rebalance_timeout_ms)
        for index in range(len(joins_at_ms))
    ]
    for member, at_ms in zip(members, joins_at_ms, strict=True):
        groups.pass_time(start_ms + at_ms - groups.now_ms)
        assert member.join() is None
    groups.pass_time(start_ms + complete_at_ms - 1 - groups.now_ms)
    assert all(member.joins == [] for member in members)
    groups.pass_time(1)
    assert [member.generation_id for member in members] == [1] * len(members)
    assert len(members[0].joins[0].members) == len(members)


def test_an_initial_rebalance_ends_when_the_last_one_waited_for_leaves() -> None:
    groups = Groups(initial_rebalance_delay_ms=3_000)
    member, pending = Member(groups, "a"), Member(groups, "b")
    pending.join(version=4, session_timeout_ms=6_000)
    groups.pass_time(5_000)
    member.join()
    groups.pass_time(1_000)
    assert member.generation_id == 1


def test_a_group_left_by_all_before_it_began_takes_any_protocol() -> None:
    groups = Groups(initial_rebalance_delay_ms=3_000)
    member, other = Member(groups, "a"), Member(groups, "b", protocols=(("sticky", b""),))
    given = member.join(version=4)
    assert given is not None
    member.member_id = given.member_id
    member.join()
    member.leave()
    assert other.join() is None
    groups.pass_time(6_000)
    assert other.joins[-1].protocol_name == "sticky"


def test_who_left_leaves_nothing_to_expire() -> None:
    groups = Groups()
    leaving, staying = Member(groups, "a"), Member(groups, "b")
    groups.stable(leaving, staying)
    leaving.leave()
    groups.stable(staying)
    assert staying.beat(2 * SESSION) == NONE


# Static members


@pytest.mark.parametrize("version", [8, 9])
def test_a_static_follower_comes_back_without_a_rebalance(version: int) -> None:
    groups = Groups()
    leader, static = Member(groups, "a"), Member(groups, "b", group_instance_id="i")
    groups.stable(leader, static)
    old_id, static.member_id = static.member_id, ""
    back = static.join(version=version)
    assert back is not None and back.member_id != old_id
    assert (back.generation_id, back.leader, back.skip_assignment) == (2, leader.member_id, False)
    assert static.sync() == SyncResult(NONE, "consumer", "range", old_id.encode())
    assert static.heartbeat(member_id=old_id) == FENCED
    refused = static.sync(member_id=old_id)
    assert refused is not None and refused.error_code == FENCED
    assert static.join(member_id=old_id) == JoinResult(FENCED, old_id)
    assert (leader.heartbeat(), static.heartbeat(), groups.state) == (NONE, NONE, "Stable")


def test_a_static_leader_comes_back_and_need_not_share_out() -> None:
    """KIP-814; older clients are told that another leads, so that they do not."""
    groups = Groups()
    static, follower = Member(groups, "a", group_instance_id="i"), Member(groups, "b")
    groups.stable(static, follower)
    old_id, static.member_id = static.member_id, ""
    back = static.join(version=8)
    assert back is not None
    assert (back.leader, back.members, back.skip_assignment) == (old_id, [], False)
    static.member_id = ""
    back = static.join(version=9)
    assert back is not None
    assert (back.leader, len(back.members), back.skip_assignment) == (static.member_id, 2, True)
    assert static.sync() == SyncResult(NONE, "consumer", "range", old_id.encode())


def test_a_static_member_that_comes_back_is_stored() -> None:
    groups = Groups()
    static = Member(groups, "a", group_instance_id="i")
    groups.stable(static)
    static.member_id = ""
    static.join()
    groups.restart()
    assert static.heartbeat() == NONE


def test_a_static_member_that_changes_the_protocol_starts_a_rebalance() -> None:
    groups = Groups()
    both = (("range", b""), ("sticky", b""))
    leader = Member(groups, "a", protocols=both)
    static = Member(groups, "b", protocols=both, group_instance_id="i")
    groups.stable(leader, static)
    static.member_id = ""
    assert static.join(protocols=(("sticky", b""),)) is None
    leader.join()
    assert leader.joins[-1].protocol_name == static.joins[-1].protocol_name == "sticky"


def test_a_static_member_that_comes_back_before_the_assignment_starts_a_rebalance() -> None:
    groups = Groups()
    leader, static = Member(groups, "a"), Member(groups, "b", group_instance_id="i")
    groups.stable(leader, static)
    leader.join()
    static.join()
    static.sync()
    static.member_id = ""
    assert static.join() is None
    assert static.syncs[-1] == SyncResult(FENCED)
    assert groups.state == "PreparingRebalance"


def test_a_static_member_that_waits_is_fenced_by_its_successor() -> None:
    groups = Groups()
    leader, static = Member(groups, "a"), Member(groups, "b", group_instance_id="i")
    groups.stable(leader)
    static.join()
    successor = Member(groups, "b", group_instance_id="i")
    assert successor.join() is None
    assert [result.error_code for result in static.joins] == [FENCED]
    leader.join()
    assert successor.joins[-1].error_code == NONE


def test_static_members_stay_though_they_do_not_join_in_time() -> None:
    groups = Groups()
    leader, static = Member(groups, "a"), Member(groups, "b", group_instance_id="i")
    static.fields["session_timeout_ms"] = 2 * REBALANCE
    groups.stable(leader, static)
    assert leader.join() is None
    groups.pass_time(REBALANCE)
    assert [each.group_instance_id for each in leader.joins[-1].members] == [None, "i"]


def test_a_group_of_absent_static_members_waits_until_their_sessions_end() -> None:
    groups = Groups()
    dynamic, static = Member(groups, "a"), Member(groups, "b", group_instance_id="i")
    static.fields["session_timeout_ms"] = 3 * REBALANCE
    groups.stable(dynamic, static)
    dynamic.leave()
    groups.pass_time(3 * REBALANCE - 1)
    assert groups.state == "PreparingRebalance"
    groups.pass_time(1)
    assert groups.state == "Empty"


@pytest.mark.parametrize("syncs", [True, False])
def test_a_static_member_that_came_back_has_to_ask_for_its_assignment(syncs: bool) -> None:
    groups = Groups()
    leader, static = Member(groups, "a"), Member(groups, "b", group_instance_id="i")
    groups.stable(leader, static)
    leader.join()
    static.join()
    leader.sync()
    static.member_id = ""
    static.join()
    if syncs:
        static.sync()
    for _ in range(2 * REBALANCE // 5_000):
        groups.pass_time(5_000)
        codes = (leader.heartbeat(), static.heartbeat())
    assert codes == ((NONE, NONE) if syncs else (UNKNOWN_MEMBER, UNKNOWN_MEMBER))


def test_an_absent_static_leader_does_not_lead_on() -> None:
    groups = Groups()
    static, dynamic = Member(groups, "a", group_instance_id="i"), Member(groups, "b")
    static.fields["session_timeout_ms"] = 3 * REBALANCE
    groups.stable(static, dynamic)
    assert dynamic.join(protocols=(("range", b"new"),)) is None
    groups.pass_time(REBALANCE)
    assert dynamic.joins[-1].leader == dynamic.member_id
    assert len(dynamic.joins[-1].members) == 2


def test_sessions_begin_anew_when_the_wait_for_an_assignment_is_over() -> None:
    groups = Groups()
    leader, static = Member(groups, "a"), Member(groups, "b", group_instance_id="i")
    groups.stable(leader, static)
    leader.join()
    static.join()
    static.sync()
    assert leader.beat(2 * SESSION) == NONE
    leader.sync()
    assert leader.beat(SESSION) == REBALANCING
    assert static.heartbeat() == UNKNOWN_MEMBER


def test_sessions_begin_anew_when_the_wait_for_an_assignment_is_given_up() -> None:
    groups = Groups()
    leader, static = Member(groups, "a"), Member(groups, "b", group_instance_id="i")
    groups.stable(leader, static)
    leader.join()
    static.join()
    static.sync()
    assert leader.beat(2 * SESSION) == NONE
    leader.join(protocols=(("range", b"new"),))
    assert static.syncs[-1] == SyncResult(REBALANCING)
    groups.pass_time(SESSION)
    assert [each.group_instance_id for each in leader.joins[-1].members] == [None]


def test_a_static_member_that_is_back_waits_for_another_no_longer_than_a_rebalance() -> None:
    groups = Groups()
    dynamic = Member(groups, "a")
    back, absent = (Member(groups, name, group_instance_id=name) for name in "bc")
    for member in (back, absent):
        member.fields["session_timeout_ms"] = 20 * REBALANCE
    groups.stable(dynamic, back, absent)
    dynamic.leave()
    groups.pass_time(3 * REBALANCE)
    assert back.join() is None
    groups.pass_time(REBALANCE)
    assert back.joins[-1].leader == back.member_id


def test_time_goes_on_also_where_a_rebalance_has_none() -> None:
    groups = Groups()
    dynamic = Member(groups, "a", rebalance_timeout_ms=0)
    static = Member(groups, "b", rebalance_timeout_ms=0, group_instance_id="i")
    groups.stable(dynamic, static)
    dynamic.leave()
    groups.pass_time(10)
    assert groups.state == "PreparingRebalance"


# Restarts


def test_a_restart_keeps_members_generation_and_assignments() -> None:
    groups = Groups()
    leader = Member(groups, "a", protocols=(("range", b"x"), ("sticky", b"y")))
    static = Member(groups, "b", protocols=(("range", b"z"),), group_instance_id="i")
    groups.stable(leader, static)
    before = groups.coordinator.describe("g")
    groups.restart()
    assert groups.coordinator.describe("g") == before
    groups.pass_time(SESSION - 1)
    assert (leader.heartbeat(), static.heartbeat()) == (NONE, NONE)
    assert static.sync() == SyncResult(NONE, "consumer", "range", static.member_id.encode())
    assert leader.join() is None
    groups.pass_time(SESSION)
    assert leader.joins[-1].generation_id == 3


def test_a_restart_in_the_middle_of_a_rebalance_goes_back_to_what_was_stable() -> None:
    groups = Groups()
    member = Member(groups, "a")
    groups.stable(member)
    Member(groups, "b").join()
    groups.restart()
    assert (groups.state, member.heartbeat()) == ("Stable", NONE)


def test_what_is_loaded_again_takes_the_place_of_what_was_known() -> None:
    groups = Groups()
    member = Member(groups, "a")
    groups.stable(member)
    groups.coordinator.load(groups.log.records, groups.now_ms)
    groups.pass_time(SESSION)
    assert groups.state == "Empty"
    assert groups.coordinator.next_deadline_ms() is None
