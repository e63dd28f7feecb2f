"""The group coordinator: joining, sharing out, and what is refused. Expectations are those of Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.group_messages import JoinedMember, JoinResult, SyncResult
from tests.unit.consumer_groups import (
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
    error_of,
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


def test_a_new_group_does_not_wait_for_who_was_given_an_id() -> None:
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
    """As after a restart with a smaller group.max.size."""
    groups = Groups()
    members = [Member(groups, name) for name in "abc"]
    groups.stable(*members)
    groups.options["max_size"] = 2
    groups.restart()
    codes = [None if (result := member.join()) is None else result.error_code for member in members]
    assert codes == [None, None, ErrorCode.GROUP_MAX_SIZE_REACHED]
    groups.pass_time(REBALANCE)
    assert [member.generation_id for member in members] == [3, 3, 2]


def test_who_waits_already_has_its_place_in_a_full_group() -> None:
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
    """Only who tells something new starts a rebalance, and the leader of a stable group."""
    groups = Groups()
    leader, follower = Member(groups, "a"), Member(groups, "b")
    groups.stable(leader, follower)
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


def test_a_rebalance_lets_those_who_wait_for_their_assignment_go() -> None:
    groups = Groups()
    leader, follower = Member(groups, "a"), Member(groups, "b")
    groups.stable(leader, follower)
    leader.join()
    follower.join()
    follower.sync()
    assert Member(groups, "c").join() is None
    assert follower.syncs[-1] == SyncResult(REBALANCING)


def test_a_request_that_is_sent_again_takes_the_place_of_the_first() -> None:
    groups = Groups()
    leader, follower = Member(groups, "a"), Member(groups, "b")
    groups.stable(leader, follower)
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
def test_what_sync_and_heartbeat_ask_for(changes: dict[str, Any], code: ErrorCode) -> None:
    groups = Groups()
    member, static = Member(groups, "a"), Member(groups, "b", group_instance_id="i")
    groups.stable(member, static)
    assert member.generation_id == 2
    synced = member.sync(**changes)
    assert synced is not None and synced.error_code == code
    if code != INCONSISTENT:
        assert member.heartbeat(**changes) == code


def test_sync_during_a_rebalance_says_so() -> None:
    groups = Groups()
    member = Member(groups, "a")
    groups.stable(member)
    Member(groups, "b").join()
    assert member.sync() == SyncResult(REBALANCING)


def test_an_empty_group_knows_nobody() -> None:
    groups = Groups()
    member = Member(groups, "a")
    groups.stable(member)
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
    groups = Groups()
    member, static = Member(groups, "a"), Member(groups, "b", group_instance_id="i")
    groups.stable(member, static)
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


def test_who_is_removed_while_waiting_is_told() -> None:
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


def test_the_last_one_to_be_waited_for_leaves_and_the_rebalance_is_over() -> None:
    groups = Groups()
    leaving, staying = Member(groups, "a"), Member(groups, "b")
    groups.stable(leaving, staying)
    assert staying.join(protocols=(("range", b"new"),)) is None
    leaving.leave()
    assert staying.joins[-1].leader == staying.member_id
    assert staying.generation_id == 3


# What is shown, deleted and kept


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
    groups = Groups()
    member = Member(groups, "a")
    groups.stable(member)
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
    """As a client in the same process does."""
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
    groups = Groups()
    leader, follower = Member(groups, "a"), Member(groups, "b")
    groups.stable(leader, follower)
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
    groups = Groups()
    member = Member(groups, "a")
    groups.stable(member)
    groups.log.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (member.leave(), groups.state) == (NONE, "Empty")
