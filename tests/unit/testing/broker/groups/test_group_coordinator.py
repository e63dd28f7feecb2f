"""The group coordinator: joins, syncs, and refusals. Expectations are those of Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.groups.group_coordinator import NEW_MEMBER_TIMEOUT_MS
from kbatch.testing.broker.groups.requests import JoinedMember, JoinResult, SyncResult
from tests.support.broker_core import error_of
from tests.unit.testing.broker.groups.harness import (
    FENCED,
    ILLEGAL,
    INCONSISTENT,
    NONE,
    NOW,
    REBALANCE,
    REBALANCING,
    SESSION,
    UNKNOWN_MEMBER,
    Groups,
    Member,
    stable_group,
)


def id_of(prefix: str, number: int) -> str:
    return f"{prefix}-00000000-0000-0000-0000-{number:012}"


# Joining


def test_a_lone_member_leads_a_group_of_its_own() -> None:
    groups = Groups()
    member = Member(groups, "c", protocols=(("range", b"meta"),))
    member_id = id_of("c", 1)
    assert member.join() == JoinResult(
        NONE,
        member_id,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=member_id,
        members=[JoinedMember(member_id, None, b"meta")],
    )
    assert groups.state == "CompletingRebalance"
    assert member.sync({member_id: b"all"}) == SyncResult(NONE, "consumer", "range", b"all")
    assert groups.state == "Stable"
    assert member.heartbeat() == NONE


def test_newer_clients_are_given_a_member_id_first() -> None:
    groups = Groups()
    member = Member(groups, "c")
    assert member.join(version=4) == JoinResult(ErrorCode.MEMBER_ID_REQUIRED, id_of("c", 1))
    assert (groups.state, member.heartbeat(member_id=id_of("c", 1))) == ("Empty", UNKNOWN_MEMBER)
    member.member_id = id_of("c", 1)
    joined = member.join(version=4)
    assert joined is not None and (joined.error_code, joined.member_id) == (NONE, id_of("c", 1))


def test_a_static_member_is_given_its_id_at_once() -> None:
    joined = Member(Groups(), "c", group_instance_id="i").join(version=9)
    assert joined is not None
    assert (joined.error_code, joined.member_id) == (NONE, id_of("i", 1))
    assert joined.members == [JoinedMember(id_of("i", 1), "i", b"")]


def test_a_second_member_has_all_join_again() -> None:
    groups = Groups()
    first = Member(groups, "a", protocols=(("range", b"first"),))
    second = Member(groups, "b", protocols=(("range", b"second"),))
    groups.stable(first)
    assert second.join() is None
    assert groups.state == "PreparingRebalance"
    assert first.heartbeat() == REBALANCING
    leader = first.join()
    assert leader is not None
    assert leader.members == [
        JoinedMember(first.member_id, None, b"first"),
        JoinedMember(second.member_id, None, b"second"),
    ]
    follower = second.joins[0]
    assert (follower.members, follower.leader) == ([], first.member_id)
    assert (leader.generation_id, follower.generation_id) == (2, 2)


def test_followers_wait_for_the_leader_to_share_out() -> None:
    groups = Groups()
    leader, early, late = (Member(groups, name) for name in "abc")
    groups.stable(leader)
    for member in (early, late, leader):
        member.join()
    assert early.sync() is None
    shared_out = leader.sync({leader.member_id: b"1", early.member_id: b"2"})
    assert shared_out == SyncResult(NONE, "consumer", "range", b"1")
    assert early.syncs == [SyncResult(NONE, "consumer", "range", b"2")]
    assert late.sync() == SyncResult(NONE, "consumer", "range", b"")


@pytest.mark.parametrize(
    ("preferences", "selected"),
    [
        (["ab", "ba", "ba"], "b"),
        (["ab", "ab", "ba"], "a"),
        (["abc", "cb", "cab"], "c"),
        (["a", "ba", "cba"], "a"),
        (["abc", "bca", "cab"], "a"),
    ],
)
def test_the_members_vote_for_a_protocol_that_all_share(preferences: list[str], selected: str) -> None:
    groups = Groups()
    members = [
        Member(groups, str(index), protocols=tuple((name, name.encode()) for name in names))
        for index, names in enumerate(preferences)
    ]
    groups.stable(*members)
    assert {member.joins[-1].protocol_name for member in members} == {selected}
    metadata = [each.metadata for each in members[0].joins[-1].members]
    assert metadata == [selected.encode()] * 3


REFUSED_JOINS: list[tuple[str, dict[str, Any], ErrorCode, str]] = [
    ("no group id", {"group_id": ""}, ErrorCode.INVALID_GROUP_ID, ""),
    ("session too short", {"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT, ""),
    ("session too long", {"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT, ""),
    ("unknown member", {"member_id": "x"}, UNKNOWN_MEMBER, "x"),
    ("unknown member of no group", {"member_id": "x", "group_id": "h"}, UNKNOWN_MEMBER, "x"),
    ("other type", {"protocol_type": "connect"}, INCONSISTENT, ""),
    ("other protocol", {"protocols": (("sticky", b""),)}, INCONSISTENT, ""),
    ("no protocol", {"protocols": ()}, INCONSISTENT, ""),
    ("no protocol, new group", {"protocols": (), "group_id": "h"}, INCONSISTENT, ""),
    ("no type, new group", {"protocol_type": "", "group_id": "h"}, INCONSISTENT, ""),
    ("unknown instance with an id", {"member_id": "x", "group_instance_id": "j"}, UNKNOWN_MEMBER, "x"),
    ("instance of another id", {"member_id": "x", "group_instance_id": "i"}, FENCED, "x"),
    ("group full", {}, ErrorCode.GROUP_MAX_SIZE_REACHED, ""),
    ("group full, unknown member", {"member_id": "x", "protocols": ()}, INCONSISTENT, "x"),
]


@pytest.mark.parametrize(
    ("changes", "code", "member_id"), [case[1:] for case in REFUSED_JOINS], ids=[c[0] for c in REFUSED_JOINS]
)
def test_refused_joins(changes: dict[str, Any], code: ErrorCode, member_id: str) -> None:
    groups = Groups(max_size=2 if code == ErrorCode.GROUP_MAX_SIZE_REACHED else 10)
    groups.stable(Member(groups, "a"), Member(groups, "b", group_instance_id="i"))
    assert Member(groups, "c").join(version=9, **changes) == JoinResult(code, member_id)
    assert groups.state == "Stable"


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_the_shortest_and_the_longest_session(session_timeout_ms: int) -> None:
    joined = Member(Groups(), "a").join(session_timeout_ms=session_timeout_ms)
    assert joined is not None and joined.error_code == NONE


def test_new_group_does_not_wait_for_a_member_given_an_id() -> None:
    groups = Groups()
    Member(groups, "a").join(version=4)
    joined = Member(groups, "b").join()
    assert joined is not None and joined.generation_id == 1


def test_a_pending_member_cannot_turn_static() -> None:
    groups = Groups()
    member = Member(groups, "c")
    member.join(version=4)
    refused = member.join(member_id=id_of("c", 1), group_instance_id="i")
    assert refused == JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR, id_of("c", 1))


def test_a_group_too_large_loses_the_last_ones_to_join() -> None:
    """Load a group as after a restart with a smaller group.max.size."""
    groups, *members = stable_group(*"abc")
    groups.options["max_size"] = 2
    groups.restart()
    codes = [None if (result := member.join()) is None else result.error_code for member in members]
    assert codes == [None, None, ErrorCode.GROUP_MAX_SIZE_REACHED]
    groups.pass_time(REBALANCE)
    assert [member.generation_id for member in members] == [3, 3, 2]


def test_waiting_member_keeps_its_place_in_a_full_group() -> None:
    groups = Groups(max_size=2, initial_rebalance_delay_ms=3_000)
    members = [Member(groups, name) for name in "ab"]
    for member in members:
        given = member.join(version=4)
        assert given is not None
        member.member_id = given.member_id
    assert [member.join() for member in members] == [None, None]
    assert members[0].join() == JoinResult(REBALANCING, members[0].member_id)
    refused = Member(groups, "c").join()
    assert refused == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    groups.pass_time(6_000)
    assert [member.generation_id for member in members] == [1, 1]


def test_version_0_has_no_rebalance_timeout_of_its_own() -> None:
    groups = Groups()
    first, second = Member(groups, "a"), Member(groups, "b")
    for member in (first, second):
        member.fields["rebalance_timeout_ms"] = -1
    first.join()
    first.sync()
    second.join()
    groups.pass_time(SESSION - 1)
    assert second.joins == []
    groups.pass_time(1)
    assert second.joins[0].error_code == NONE


# Joining again


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize("is_changed", [True, False])
@pytest.mark.parametrize("state", ["CompletingRebalance", "Stable"])
def test_a_member_that_joins_again(state: str, is_changed: bool, is_leader: bool) -> None:
    """Only a member with new metadata, or the leader of a stable group, starts a rebalance."""
    groups, leader, follower = stable_group("a", "b")
    if state == "CompletingRebalance":
        leader.join()
        follower.join()
    assert groups.state == state
    generation_id = leader.generation_id
    member = leader if is_leader else follower
    answer = member.join(protocols=(("range", b"new"),)) if is_changed else member.join()
    if is_changed or (state == "Stable" and is_leader):
        assert answer is None
        assert groups.state == "PreparingRebalance"
    else:
        assert answer is not None
        assert (answer.generation_id, answer.leader) == (generation_id, leader.member_id)
        assert len(answer.members) == (2 if is_leader else 0)
        assert groups.state == state


def test_rebalance_releases_members_awaiting_an_assignment() -> None:
    groups, leader, follower = stable_group("a", "b")
    leader.join()
    follower.join()
    follower.sync()
    assert Member(groups, "c").join() is None
    assert follower.syncs[-1] == SyncResult(REBALANCING)


def test_repeated_request_replaces_the_first() -> None:
    _, leader, follower = stable_group("a", "b")
    assert follower.join(protocols=(("range", b"1"),)) is None
    assert follower.join(protocols=(("range", b"2"),)) == JoinResult(REBALANCING, follower.member_id)
    leader.join()
    assert [result.error_code for result in follower.joins[-2:]] == [REBALANCING, NONE]
    assert leader.joins[-1].members[1].metadata == b"2"
    assert follower.sync() is None
    assert follower.sync() == SyncResult(REBALANCING)
    leader.sync({follower.member_id: b"mine"})
    assert follower.syncs[-1] == SyncResult(NONE, "consumer", "range", b"mine")


# SyncGroup and Heartbeat


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "h"}, UNKNOWN_MEMBER),
        ({"member_id": "x"}, UNKNOWN_MEMBER),
        ({"member_id": ""}, UNKNOWN_MEMBER),
        ({"generation_id": 1}, ILLEGAL),
        ({"generation_id": 3}, ILLEGAL),
        ({"generation_id": -1}, ILLEGAL),
        ({"group_instance_id": "i"}, FENCED),
        ({"group_instance_id": "j"}, UNKNOWN_MEMBER),
        ({"group_instance_id": "i", "member_id": "x"}, FENCED),
        ({"protocol_type": "connect"}, INCONSISTENT),
        ({"protocol_name": "sticky"}, INCONSISTENT),
        ({"protocol_type": "consumer", "protocol_name": "range"}, NONE),
        ({"protocol_name": "range"}, NONE),
        ({}, NONE),
    ],
)
def test_requirements_of_sync_and_heartbeat(changes: dict[str, Any], code: ErrorCode) -> None:
    _, member, _ = stable_group("a", "b=i")
    assert member.generation_id == 2
    synced = member.sync(**changes)
    assert synced is not None and synced.error_code == code
    ids = {name: value for name, value in changes.items() if not name.startswith("protocol")}
    assert member.heartbeat(**ids) == (NONE if code == INCONSISTENT else code)


def test_sync_during_a_rebalance_says_so() -> None:
    groups, member = stable_group("a")
    Member(groups, "b").join()
    assert member.sync() == SyncResult(REBALANCING)


def test_empty_group_has_no_members() -> None:
    groups, member = stable_group("a")
    member.leave()
    assert (groups.state, member.heartbeat(), member.sync()) == (
        "Empty",
        UNKNOWN_MEMBER,
        SyncResult(UNKNOWN_MEMBER),
    )


# Leaving


@pytest.mark.parametrize(
    ("leaving", "codes", "state"),
    [
        ([("a", None)], [NONE], "PreparingRebalance"),
        ([("x", None)], [UNKNOWN_MEMBER], "Stable"),
        ([("", None)], [UNKNOWN_MEMBER], "Stable"),
        ([("", "i")], [NONE], "PreparingRebalance"),
        ([("", "j")], [UNKNOWN_MEMBER], "Stable"),
        ([("s", "i")], [NONE], "PreparingRebalance"),
        ([("a", "i")], [FENCED], "Stable"),
        ([("a", "j")], [UNKNOWN_MEMBER], "Stable"),
        ([("p", None)], [NONE], "PreparingRebalance"),
        ([("x", None), ("a", None), ("", "i")], [UNKNOWN_MEMBER, NONE, NONE], "Empty"),
        ([("a", None), ("a", None)], [NONE, UNKNOWN_MEMBER], "PreparingRebalance"),
    ],
)
def test_leaving(leaving: list[tuple[str, str | None]], codes: list[ErrorCode], state: str) -> None:
    groups, member, static = stable_group("a", "b=i")
    ids = {"a": member.member_id, "s": static.member_id}
    if leaving[0][0] == "p":
        pending = Member(groups, "c").join(version=4)
        assert pending is not None
        ids["p"] = pending.member_id
    wanted = [(ids.get(name, name), instance_id) for name, instance_id in leaving]
    assert groups.coordinator.leave("g", wanted, NOW) == codes
    assert groups.state == state


def test_leaving_without_a_group() -> None:
    groups = Groups()
    assert groups.coordinator.leave("g", [("a", None), ("", "i")], NOW) == [UNKNOWN_MEMBER] * 2
    refusal = error_of(lambda: groups.coordinator.leave("", [("a", None)], NOW))
    assert refusal == ErrorCode.INVALID_GROUP_ID


def test_member_removed_while_waiting_gets_an_error() -> None:
    groups = Groups()
    leader, follower, joining = (Member(groups, name) for name in "abc")
    groups.stable(leader, follower)
    joining.join()
    follower.join()
    follower.leave()
    assert follower.joins[-1] == JoinResult(UNKNOWN_MEMBER, "")
    leader.join()
    joining.sync()
    joining.leave()
    assert joining.syncs[-1] == SyncResult(UNKNOWN_MEMBER)


def test_rebalance_ends_when_the_last_awaited_member_leaves() -> None:
    _, leaving, staying = stable_group("a", "b")
    assert staying.join(protocols=(("range", b"new"),)) is None
    leaving.leave()
    assert staying.joins[-1].leader == staying.member_id
    assert staying.generation_id == 3


# Description, deletion and storage


def test_describe_shows_protocol_and_metadata_while_stable() -> None:
    groups = Groups()
    member = Member(groups, "c", protocols=(("range", b"meta"),), group_instance_id="i")
    groups.stable(member)
    described = groups.coordinator.describe("g")
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    (shown,) = described.members
    assert (shown.member_id, shown.group_instance_id, shown.client_id, shown.client_host) == (
        member.member_id,
        "i",
        "c",
        "/127.0.0.1",
    )
    assert (shown.metadata, shown.assignment) == (b"meta", member.member_id.encode())
    Member(groups, "d").join()
    described = groups.coordinator.describe("g")
    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert described.members[0].metadata == b""


def test_a_group_that_is_not_there_is_not_found() -> None:
    groups = Groups()
    for request in (groups.coordinator.describe, groups.coordinator.check_delete):
        with pytest.raises(BrokerError, match="Group h not found") as caught:
            request("h")
        assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ([], [], ["g", "h"]),
        (["Stable"], [], ["g"]),
        ([" stable ", "EMPTY"], [], ["g", "h"]),
        (["Dead"], [], []),
        ([], ["classic"], ["g", "h"]),
        ([], ["Classic", "consumer"], ["g", "h"]),
        (["Stable"], ["consumer"], []),
        ([], ["nonsense"], []),
    ],
)
def test_list_filters(states: list[str], types: list[str], found: list[str]) -> None:
    groups = Groups()
    groups.stable(Member(groups, "a"))
    Member(groups, "b", group_id="h").join(version=4)
    assert [group.group_id for group in groups.coordinator.list_groups(states, types)] == found


def test_only_an_empty_group_can_be_deleted() -> None:
    groups, member = stable_group("a")
    assert error_of(lambda: groups.coordinator.delete("g", NOW)) == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    groups.coordinator.delete("g", NOW)
    assert groups.log.records[-1][1] is None
    assert error_of(lambda: groups.state) == ErrorCode.GROUP_ID_NOT_FOUND
    groups.restart()
    assert error_of(lambda: groups.state) == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_group_has_no_time_left_to_run() -> None:
    groups = Groups()
    Member(groups, "a").join(version=4)
    assert groups.coordinator.next_deadline_ms() == NOW + SESSION
    groups.coordinator.delete("g", NOW)
    assert groups.coordinator.next_deadline_ms() is None


def test_a_reply_may_call_the_coordinator() -> None:
    """Call it as a client in the same process does."""
    groups = Groups()
    leader, follower = Member(groups, "a"), Member(groups, "b")
    groups.stable(leader)
    joined = follower._joined

    def sync_at_once(result: JoinResult) -> None:
        joined(result)
        follower.sync()

    follower._joined = sync_at_once  # type: ignore[method-assign]
    follower.join()
    leader.join()
    assert follower.generation_id == 2
    leader.sync({follower.member_id: b"mine"})
    assert follower.syncs == [SyncResult(NONE, "consumer", "range", b"mine")]
    for _ in range(2 * REBALANCE // 5_000):
        groups.pass_time(5_000)
        assert (leader.heartbeat(), follower.heartbeat()) == (NONE, NONE)


# A log that refuses


def test_a_group_that_cannot_be_stored_is_not_made() -> None:
    groups = Groups()
    groups.log.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert Member(groups, "a").join() == JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert groups.coordinator.list_groups() == []


def test_assignments_that_cannot_be_stored_are_not_given_out() -> None:
    groups, leader, follower = stable_group("a", "b")
    leader.join()
    follower.join()
    follower.sync()
    groups.log.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = SyncResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert leader.sync({follower.member_id: b"mine"}) == refused
    assert follower.syncs[-1] == refused
    assert groups.state == "PreparingRebalance"
    groups.log.error = None
    groups.stable(leader, follower)


def test_a_group_becomes_empty_also_where_that_cannot_be_stored() -> None:
    groups, member = stable_group("a")
    groups.log.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (member.leave(), groups.state) == (NONE, "Empty")


# The group coordinator over time: sessions, rebalances, static members, restarts, and all of it in any
# order.

# Sessions


def test_member_without_heartbeats_is_removed_and_rebalanced() -> None:
    groups, alive, dead = stable_group("a", "b")
    groups.pass_time(SESSION - 1)
    assert alive.heartbeat() == NONE
    groups.pass_time(1)
    assert groups.state == "PreparingRebalance"
    assert (alive.heartbeat(), dead.heartbeat()) == (REBALANCING, UNKNOWN_MEMBER)
    joined = alive.join()
    assert joined is not None and [each.member_id for each in joined.members] == [alive.member_id]


def test_the_last_session_to_end_empties_the_group() -> None:
    groups, _ = stable_group("a")
    groups.pass_time(SESSION)
    assert groups.state == "Empty"
    groups.restart()
    assert groups.state == "Empty"
    assert groups.coordinator.next_deadline_ms() is None


def test_a_member_that_waits_needs_no_heartbeat() -> None:
    groups, leader, follower = stable_group("a", "b")
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
    groups, *members = stable_group(*"ab")
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


def test_rebalance_waits_for_a_member_given_an_id() -> None:
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


def test_member_that_joins_too_late_is_removed_and_another_leads() -> None:
    groups, late, quick = stable_group("a", "b")
    assert quick.join(protocols=(("range", b"new"),)) is None
    for _ in range(REBALANCE // 5_000 - 1):
        groups.pass_time(5_000)
        assert late.heartbeat() == REBALANCING
    assert len(quick.joins) == 1
    groups.pass_time(5_000)
    assert quick.joins[-1].leader == quick.member_id
    assert late.heartbeat() == UNKNOWN_MEMBER


def test_member_that_syncs_too_late_is_removed() -> None:
    groups, leader, follower = stable_group("a", "b")
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


def test_follower_that_does_not_sync_is_removed() -> None:
    groups, leader, follower = stable_group("a", "b")
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


def test_initial_rebalance_ends_when_the_last_awaited_leaves() -> None:
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


def test_departed_member_leaves_no_timer() -> None:
    groups, leaving, staying = stable_group("a", "b")
    leaving.leave()
    groups.stable(staying)
    assert staying.beat(2 * SESSION) == NONE


# Static members


@pytest.mark.parametrize("version", [8, 9])
def test_a_static_follower_comes_back_without_a_rebalance(version: int) -> None:
    groups, leader, static = stable_group("a", "b=i")
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
    """KIP-814: older clients get another leader's id, so that they do not lead."""
    _, static, _ = stable_group("a=i", "b")
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
    groups, static = stable_group("a=i")
    static.member_id = ""
    static.join()
    groups.restart()
    assert static.heartbeat() == NONE


def test_static_member_changing_the_protocol_rebalances() -> None:
    groups = Groups()
    both = (("range", b""), ("sticky", b""))
    leader = Member(groups, "a", protocols=both)
    static = Member(groups, "b", protocols=both, group_instance_id="i")
    groups.stable(leader, static)
    static.member_id = ""
    assert static.join(protocols=(("sticky", b""),)) is None
    leader.join()
    assert leader.joins[-1].protocol_name == static.joins[-1].protocol_name == "sticky"


def test_static_member_back_before_assignment_rebalances() -> None:
    groups, leader, static = stable_group("a", "b=i")
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


def test_group_awaits_absent_static_members_until_sessions_end() -> None:
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
def test_returned_static_member_must_sync_for_its_assignment(syncs: bool) -> None:
    groups, leader, static = stable_group("a", "b=i")
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


def test_sessions_restart_when_the_assignment_arrives() -> None:
    _, leader, static = stable_group("a", "b=i")
    leader.join()
    static.join()
    static.sync()
    assert leader.beat(2 * SESSION) == NONE
    leader.sync()
    assert leader.beat(SESSION) == REBALANCING
    assert static.heartbeat() == UNKNOWN_MEMBER


def test_sessions_restart_when_an_assignment_is_abandoned() -> None:
    groups, leader, static = stable_group("a", "b=i")
    leader.join()
    static.join()
    static.sync()
    assert leader.beat(2 * SESSION) == NONE
    leader.join(protocols=(("range", b"new"),))
    assert static.syncs[-1] == SyncResult(REBALANCING)
    groups.pass_time(SESSION)
    assert [each.group_instance_id for each in leader.joins[-1].members] == [None]


def test_returned_static_member_waits_one_rebalance_at_most() -> None:
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


def test_restart_during_rebalance_restores_the_stable_state() -> None:
    groups, member = stable_group("a")
    Member(groups, "b").join()
    groups.restart()
    assert (groups.state, member.heartbeat()) == ("Stable", NONE)


def test_what_is_loaded_again_takes_the_place_of_what_was_known() -> None:
    groups, _ = stable_group("a")
    groups.coordinator.load(groups.log.records, groups.now_ms)
    groups.pass_time(SESSION)
    assert groups.state == "Empty"
    assert groups.coordinator.next_deadline_ms() is None


# The group coordinator whose members do anything, in any order.


class Reply:
    """One answer: it must come, and only once."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def __call__(self, result: Any) -> None:
        self.results.append(result)


class GroupsInAnyOrder(RuleBasedStateMachine):
    """Members join, sync, send heartbeats, leave and fall silent; static ones come back.

    In every case no request is answered twice, and each is answered in the end. Each generation has one
    leader, which alone gets the members. All members get the same protocol, and the assignments of the
    leader.
    """

    @initialize(delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]))
    def begin(self, delay_ms: int, max_size: int) -> None:
        self.groups = Groups(initial_rebalance_delay_ms=delay_ms, max_size=max_size)
        self.members: list[Member] = []
        self.replies: list[Reply] = []
        # generation -> (leader, protocol), and -> the member that got the members
        self.generations: dict[int, tuple[str, str | None]] = {}
        self.leaders: dict[int, set[str]] = {}
        self.seen: set[int] = set()

    def reply(self) -> Reply:
        self.replies.append(Reply())
        return self.replies[-1]

    @rule(
        static=st.sampled_from([None, "i", "j"]),
        protocols=st.sampled_from(["ab", "b", "ba"]),
        version=st.sampled_from([3, 9]),
        rebalance_ms=st.sampled_from([5_000, 60_000]),
    )
    def new_member(self, static: str | None, protocols: str, version: int, rebalance_ms: int) -> None:
        member = Member(
            self.groups,
            f"c{len(self.members)}",
            group_instance_id=static,
            protocols=tuple((name, name.encode()) for name in protocols),
            rebalance_timeout_ms=rebalance_ms,
        )
        member.version = version  # type: ignore[attr-defined]
        self.members.append(member)
        self.join(member)

    def join(self, member: Member, **changes: Any) -> None:
        reply = self.reply()

        def joined(result: JoinResult) -> None:
            reply(result)
            if result.error_code == NONE:
                self.check_joined(result)
                member.member_id, member.generation_id = result.member_id, result.generation_id
            elif result.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                member.member_id = result.member_id
            elif result.error_code == UNKNOWN_MEMBER:
                member.member_id = ""

        member._joined = joined  # type: ignore[method-assign]
        member.join(version=member.version, **changes)  # type: ignore[attr-defined]

    def check_joined(self, result: JoinResult) -> None:
        described = (result.leader, result.protocol_name)
        is_back = result.generation_id in self.seen
        known = self.generations.setdefault(result.generation_id, described)
        assert known[1] == described[1]
        # a static leader that comes back has another id, and is the leader still
        assert known == described or is_back
        if result.members:
            assert result.leader == result.member_id
            assert result.member_id in {each.member_id for each in result.members}
            if not result.skip_assignment:
                self.leaders.setdefault(result.generation_id, set()).add(result.member_id)
                assert len(self.leaders[result.generation_id]) == 1

    @precondition(lambda self: bool(getattr(self, "members", None)))
    @rule(data=st.data(), metadata=st.sampled_from([b"a", b"b", b"c"]))
    def join_again(self, data: st.DataObject, metadata: bytes) -> None:
        member = data.draw(st.sampled_from(self.members))
        protocols = tuple((name, metadata) for name, _ in member.fields["protocols"])
        self.join(member, protocols=protocols)

    @precondition(lambda self: bool(getattr(self, "members", None)))
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.members))
        generation_id, reply = member.generation_id, self.reply()
        assignment = b"%d" % generation_id

        def synced(result: SyncResult) -> None:
            reply(result)
            if result.error_code == NONE and result.assignment:
                assert result.assignment == assignment

        self.groups.coordinator.sync(
            "g",
            member.member_id,
            generation_id,
            {each.member_id: assignment for each in self.members},
            synced,
            self.groups.now_ms,
            group_instance_id=member.instance_id,
        )
        self.seen.add(generation_id)

    @precondition(lambda self: bool(getattr(self, "members", None)))
    @rule(data=st.data(), action=st.sampled_from(["heartbeat", "leave", "restart client"]))
    def do(self, data: st.DataObject, action: str) -> None:
        member = data.draw(st.sampled_from(self.members))
        if action == "heartbeat":
            member.heartbeat()
        elif action == "leave":
            member.leave()
        else:
            member.member_id = ""
            self.join(member)

    @rule(later_ms=st.sampled_from([1, 3_000, SESSION, REBALANCE]), beating=st.booleans())
    def let_time_pass(self, later_ms: int, beating: bool) -> None:
        for _ in range(10):
            self.groups.pass_time(later_ms // 10)
            for member in self.members if beating else ():
                member.heartbeat()

    @invariant()
    def no_request_is_answered_twice(self) -> None:
        assert all(len(reply.results) <= 1 for reply in getattr(self, "replies", ()))

    @invariant()
    def a_stable_group_has_one_leader_who_is_in_it(self) -> None:
        if not hasattr(self, "groups") or (group := self.groups.group) is None:
            return
        if group.state.value == "Stable":
            assert group.leader_id in group.members
        assert set(group.static_members.values()) <= set(group.members)
        assert not set(group.pending_joins) & set(group.members)
        if group.state.value != "PreparingRebalance":
            assert all(member.join_reply is None for member in group.members.values())
        if group.state.value != "CompletingRebalance":
            assert all(member.sync_reply is None for member in group.members.values())

    def teardown(self) -> None:
        """Stop all heartbeats: every request is answered, and the group becomes empty."""
        if hasattr(self, "groups"):
            self.groups.pass_time(2 * NEW_MEMBER_TIMEOUT_MS)
            assert all(len(reply.results) == 1 for reply in self.replies)
            group = self.groups.group
            assert group is None or group.is_empty
            assert self.groups.coordinator.next_deadline_ms() is None


TestGroupsInAnyOrder = GroupsInAnyOrder.TestCase
TestGroupsInAnyOrder.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
