"""Members of classic groups with the embedded coordinator, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbatch import errors
from kbatch.core.client.calls import Call
from kbatch.core.consumer.classic_membership import TRANSITIONS, ClassicState
from kbatch.core.consumer.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from kbatch.core.consumer.outcomes import CLASSIC_OUTCOMES, ClassicOutcome
from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.records import TopicPartition
from tests.support.broker_core import TOPIC
from tests.support.classic_group import PARTITIONS, ClassicGroup, ClassicMember
from tests.support.effort import EXAMPLES
from tests.support.reading import FIRST

EAGER, COOPERATIVE = "range", "cooperative-sticky"
STRATEGIES = (EAGER, "roundrobin", "sticky", COOPERATIVE)
HEARTBEAT_MS, SESSION_MS = 3_000, 45_000
# The APIs of classic groups, and their versions.
APIS = (
    messages.JoinGroupRequest,
    messages.SyncGroupRequest,
    messages.HeartbeatRequest,
    messages.LeaveGroupRequest,
)
# A few of each outcome.
CODES = [
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.FENCED_INSTANCE_ID,
]


def group_of(count: int, strategy: str = COOPERATIVE, **rest: Any) -> ClassicGroup:
    """Return a group whose members have joined."""
    group = ClassicGroup(count, partition_assignment_strategy=strategy, **rest)
    group.join()
    group.forget_callbacks()
    return group


def partitions(*numbers: int) -> set[TopicPartition]:
    return {TopicPartition(TOPIC, number) for number in numbers}


def joins(member: ClassicMember) -> list[Any]:
    return member.requests("JoinGroup")


def leave(group: ClassicGroup, member: ClassicMember, leave: bool | None = None) -> Call:
    call = Call("close")
    member.engine.leave(call, leave)
    group.run()
    member.poll()
    group.live(1000)
    return call


# Joining


@pytest.mark.parametrize("version", range(10))
def test_R62_member_joins_by_each_version(version: int) -> None:
    versions = {kind.api_key: (0, min(version, kind.versions[-1])) for kind in APIS}
    group = ClassicGroup(2, versions=versions)
    group.join()
    assert sorted(map(sorted, group.numbers())) == [[0, 1, 2], [3, 4, 5]]
    assert not leave(group, group.first).error
    group.live(4000)
    assert group.members[1].owned == set(range(PARTITIONS))


def test_R62_member_gets_its_id_before_it_joins() -> None:
    group = group_of(1, client_rack="r", session_timeout_ms=9_000, max_poll_interval_ms=20_000)
    first, second = joins(group.first)
    assert first.member_id == ""
    assert second.member_id == group.first.engine.group_metadata.member_id != ""
    assert (second.session_timeout_ms, second.rebalance_timeout_ms) == (9_000, 20_000)
    (protocol,) = second.protocols
    assert protocol.name == COOPERATIVE
    subscription = decode_subscription(protocol.metadata)
    assert (subscription.topics, subscription.rack, subscription.owned) == ((TOPIC,), "r", ())


def test_members_choose_what_all_of_them_have() -> None:
    group = ClassicGroup(partition_assignment_strategy="sticky,roundrobin")
    group.add(partition_assignment_strategy="range,roundrobin")
    group.join()
    assert group.describe().protocol == "roundrobin"
    assert group.numbers() in ([{0, 2, 4}, {1, 3, 5}], [{1, 3, 5}, {0, 2, 4}])


def test_R63_R64_group_goes_over_to_cooperative_members() -> None:
    """By two rounds of restarts (KIP-429): members of both kinds are in it meanwhile."""
    group = group_of(2, "range")
    both, last = "cooperative-sticky,range", "cooperative-sticky"
    protocols = []
    for strategy in (both, both, last, last):
        leave(group, group.members.pop(0))
        group.add(partition_assignment_strategy=strategy).subscribe()
        group.live(12_000)
        assert sorted(map(len, group.numbers())) == [3, 3]
        assert set().union(*group.numbers()) == set(range(PARTITIONS))
        protocols.append(group.describe().protocol)
    assert protocols == ["range", *["cooperative-sticky"] * 3]
    group.forget_callbacks()
    group.add(partition_assignment_strategy=last).subscribe()
    group.live(12_000)
    assert [len(each.seen("revoke")[0]) for each in group.members[:2]] == [1, 1]  # only what moves


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_R62_members_share_partitions_as_they_come_and_go(strategy: str) -> None:
    group = group_of(1, strategy)
    assert group.numbers() == [set(range(PARTITIONS))]
    for _ in range(2):
        group.add().subscribe()
    group.live(12_000)
    assert sorted(map(len, group.numbers())) == [2, 2, 2]
    leave(group, group.members.pop(0))
    group.live(8000)
    assert sorted(map(len, group.numbers())) == [3, 3]
    assert set().union(*group.numbers()) == set(range(PARTITIONS))


def test_member_joins_with_nothing_in_common_and_fails() -> None:
    group = group_of(1, "range")
    other = group.add(partition_assignment_strategy="sticky")
    other.subscribe()
    group.live(1000)
    error = other.engine.membership_error
    assert isinstance(error, errors.InconsistentGroupProtocolError)
    assert "partition.assignment.strategy=('sticky',)" in str(error)
    assert group.numbers()[0] == set(range(PARTITIONS))


def test_session_that_brokers_refuse_is_named() -> None:
    group = ClassicGroup(session_timeout_ms=4_000_000, heartbeat_interval_ms=1000)
    group.join()
    error = group.first.engine.membership_error
    assert isinstance(error, errors.InvalidSessionTimeoutError)
    assert "session.timeout.ms=4000000" in str(error)


# Eager and cooperative


@pytest.mark.parametrize("strategy", [EAGER, "roundrobin", "sticky"])
def test_R64_eager_member_revokes_all_before_it_joins(strategy: str) -> None:
    group = group_of(1, strategy)
    before = len(joins(group.first))
    group.add().subscribe()
    group.advance(HEARTBEAT_MS)  # the program does not poll
    assert group.first.engine.rebalance is not None
    assert len(joins(group.first)) == before + 2  # the other's
    group.live(4000)
    revoked, assigned = group.first.callbacks
    assert revoked == ("revoke", partitions(*range(PARTITIONS)))
    assert assigned == ("assign", partitions(*group.first.owned))
    mine = [
        each for each in joins(group.first) if each.member_id == group.first.engine.group_metadata.member_id
    ]
    assert decode_subscription(mine[-1].protocols[0].metadata).owned == ()


def test_R63_cooperative_member_gives_up_what_moves_only() -> None:
    group = group_of(1)
    second = group.add()
    second.subscribe()
    group.live(12_000)
    assert group.first.callbacks == [("revoke", partitions(*second.owned))]
    assert second.callbacks[-1] == ("assign", partitions(*second.owned))
    assert [len(each) for each in group.numbers()] == [3, 3]
    group.forget_callbacks()
    generation = second.generation
    group.live(30_000)
    assert [each.callbacks for each in group.members] == [[], []]
    assert second.generation == generation


def test_R63_claims_have_the_generation_in_which_they_were_got() -> None:
    group = group_of(2)
    generation = group.first.generation
    third = group.add()
    third.subscribe()
    group.live(12_000)
    member_id = group.first.engine.group_metadata.member_id
    claims = [
        decode_subscription(each.protocols[0].metadata)
        for each in joins(group.first)
        if each.member_id == member_id
    ]
    rejoined = claims[-2:]
    assert [each.generation_id for each in rejoined] == [generation, generation + 1]
    assert [len(each.owned) for each in rejoined] == [3, 2]


def test_R63_zombie_gets_nothing_of_what_it_claims() -> None:
    group = group_of(2)
    zombie, other = group.members
    group.members.remove(zombie)  # its process stands still
    group.live(SESSION_MS + 12_000, other)
    assert other.owned == set(range(PARTITIONS))
    group.members.append(zombie)
    zombie.now_ns = group.now_ns
    assert len(zombie.owned) == 3
    group.advance(1000)
    zombie.poll()
    assert [len(each) for each in zombie.seen("lost")] == [3]
    assert zombie.owned == set()
    group.live(12_000)
    assert [len(each) for each in group.numbers()] == [3, 3]


def test_R67_member_reads_on_until_it_polls_in_a_rebalance() -> None:
    group = group_of(1, EAGER)
    group.add().subscribe()
    group.advance(HEARTBEAT_MS)
    group.first.put(b"while it rebalances")
    group.advance(500)
    assert group.first.values[FIRST] == [(0, b"while it rebalances")]
    call = group.first.begin_commit({FIRST: 1})
    group.run()
    assert call.is_done and call.error is None
    group.live(4000)
    assert group.first.committed(FIRST).answer[FIRST].offset == 1


@pytest.mark.slow
def test_R67_commit_within_a_rebalance_has_the_next_generation() -> None:
    group = group_of(2)
    third = group.add()
    third.subscribe()
    for _ in range(60):
        group.live(200)
        for member in group.members:
            if member.owned:
                number = min(member.owned)
                call = member.begin_commit({TopicPartition(TOPIC, number): 7})
                group.live(1000)
                assert call.is_done
                assert call.error is None or number not in member.owned


def test_assignment_that_the_program_has_not_seen_is_withdrawn() -> None:
    group = ClassicGroup(1, partition_assignment_strategy=EAGER)
    group.first.subscribe()
    group.advance(5_000)
    assert group.first.engine.rebalance is not None
    group.add().subscribe()
    group.advance(HEARTBEAT_MS)
    group.live(4_000)
    assert group.first.callbacks == [("assign", partitions(*group.first.owned))]
    assert len(group.first.owned) == 3


# Leaders


def test_R65_next_member_leads_after_the_leader_has_died() -> None:
    group = group_of(2)
    third = group.add()
    leader_id = group.describe().members[0].member_id
    (leader,) = [each for each in group.members if each.engine.group_metadata.member_id == leader_id]

    def die(request: Any) -> str | None:
        if not request.assignments:
            return None
        group.members.remove(leader)
        group.first.faults.intercept("SyncGroup", None)
        return "COORDINATOR_NOT_AVAILABLE"

    group.first.faults.intercept("SyncGroup", die)
    third.subscribe()
    group.live(HEARTBEAT_MS + 1000)
    assert leader not in group.members
    group.live(SESSION_MS + 12_000)
    assert [len(each) for each in group.numbers()] == [3, 3]


def test_leader_waits_for_metadata_of_topics_of_others() -> None:
    group = ClassicGroup(1)
    group.first.cluster.create_topic("other", 2)
    second = group.add()
    group.first.subscribe()
    second.subscribe(TOPIC, "other")
    group.live(8000)
    assert {each.topic for each in second.engine.owned} == {TOPIC, "other"}
    assert len(group.first.engine.owned) + len(second.engine.owned) == PARTITIONS + 2
    assert second.generation == 2  # one for each that joined


def test_topic_that_is_not_there_delays_no_assignment() -> None:
    group = ClassicGroup(allow_auto_create_topics=False)
    group.join(TOPIC, "missing")
    assert group.first.owned == set(range(PARTITIONS))
    group.first.cluster.create_topic("missing", 2)
    group.live(20_000)
    assert TopicPartition("missing", 1) in group.first.engine.owned


def test_leader_notices_new_partitions() -> None:
    group = group_of(2, metadata_max_age_ms=5_000)
    group.first.cluster.create_partitions(TOPIC, 8)
    group.live(20_000)
    assert [len(each) for each in group.numbers()] == [4, 4]
    assert set().union(*group.numbers()) == set(range(8))


def damage_join(group: ClassicGroup) -> Callable[[Any], None]:
    def damage(request: Any) -> None:
        for protocol in request.protocols:
            protocol.metadata = b"\0\1\0"

    return damage


def test_leader_that_cannot_read_a_subscription_leaves() -> None:
    group = group_of(1)
    broken = group.add()
    group.first.faults.intercept(
        "JoinGroup",
        lambda request: damage_join(group)(request) if request.member_id != leader_id else None,
    )
    leader_id = group.first.engine.group_metadata.member_id

    def broken_id() -> str:
        ids: list[str] = [each.member_id for each in joins(group.first)]
        return next(each for each in ids if each not in ("", leader_id))

    broken.subscribe()
    group.live(8000)
    error = group.first.engine.membership_error
    assert isinstance(error, errors.ProtocolError)
    assert f"the subscription of member {broken_id()}" in str(error)
    assert "it fails: " in group.first.requests("LeaveGroup")[0].members[0].reason
    assert group.first.seen("lost") == [partitions(*range(PARTITIONS))]


@pytest.mark.parametrize("data", [b"\0", b"\0\1\0\0\0\7"])
def test_damaged_assignment_ends_the_membership(data: bytes) -> None:
    group = ClassicGroup()

    def damage(request: Any) -> None:
        for each in request.assignments:
            each.assignment = data

    group.first.faults.intercept("SyncGroup", damage)
    group.join()
    assert isinstance(group.first.engine.membership_error, errors.ProtocolError)


def test_member_without_an_assignment_owns_nothing() -> None:
    group = ClassicGroup()

    def omit(request: Any) -> None:
        request.assignments.clear()

    group.first.faults.intercept("SyncGroup", omit)
    group.join()
    assert group.first.callbacks == [("assign", set())]
    assert group.first.engine.membership_error is None


def test_assignment_of_other_topics_is_not_taken() -> None:
    group = ClassicGroup()
    group.first.cluster.create_topic("other", 1)
    wrong = encode_assignment([TopicPartition("other", 0)])

    def replace(request: Any) -> None:
        group.first.faults.intercept("SyncGroup", None)
        assert decode_assignment(request.assignments[0].assignment)
        request.assignments[0].assignment = wrong

    group.first.faults.intercept("SyncGroup", replace)
    group.join()
    assert group.first.callbacks == [("assign", partitions(*range(PARTITIONS)))]
    assert joins(group.first)[-1].reason.startswith("topics were assigned that are not subscribed to: other")


def test_R72_late_join_while_it_gives_up_partitions_is_no_busy_loop() -> None:
    group = group_of(2)
    first, third = group.first, group.add()
    third.subscribe()
    group.first.faults.delay("JoinGroup", 2)
    count = len(joins(first))
    while len(joins(first)) < count + 2:
        group.live(200)
    call = Call("close")
    first.engine.leave(call)
    group.run()
    step = first.take()
    assert step is not None and step.kind == "revoke"
    group.advance(3_000)  # the answers to JoinGroup come; nothing can be done before the step is
    first.finish(step)
    group.live(10_000)
    assert call.is_done and first.engine.owned == frozenset()


# Static members


def test_R66_static_member_comes_back_without_a_rebalance() -> None:
    group = ClassicGroup(1, group_instance_id="i0")
    group.add(group_instance_id="i1")
    group.join()
    generation = group.first.generation
    for name in ("i0", "i1"):  # one of them leads
        (old,) = [each for each in group.members if each.config.group_instance_id == name]
        owned = old.owned
        group.forget_callbacks()
        leave(group, old)
        assert old.seen("revoke") == [partitions(*owned)]
        group.members.remove(old)
        new = group.add(group_instance_id=name)
        group.forget_callbacks()
        new.subscribe()
        group.live(2000)
        assert new.owned == owned
        assert new.generation == generation
        assert group.members[0].callbacks == []
    assert not group.first.requests("LeaveGroup")


def test_R66_static_leader_notices_changes_after_it_came_back() -> None:
    group = ClassicGroup(1, group_instance_id="i", metadata_max_age_ms=5_000)
    group.join()
    generation = group.first.generation
    leave(group, group.first)
    new = group.add()
    group.members.remove(group.first)
    new.subscribe()
    group.live(2000)
    assert (new.generation, new.owned) == (generation, set(range(PARTITIONS)))
    assert new.requests("SyncGroup")[-1].assignments == []  # KIP-814
    new.cluster.create_partitions(TOPIC, 8)
    group.live(20_000)
    assert new.owned == set(range(8))


def test_R66_static_leader_that_died_while_it_gave_up_leaves_no_gap() -> None:
    """What comes back in its place does not know that a rebalance is due, nor does the coordinator."""
    group = group_of(1, group_instance_id="i0", max_poll_interval_ms=5_000)
    second = group.add(group_instance_id="i1")
    second.subscribe()
    group.live(4_000, second)
    assert group.first.engine.rebalance is not None  # it is in a callback of the program, say
    group.members.remove(group.first)
    new = group.add(group_instance_id="i0")
    new.subscribe()
    group.live(1_000)
    generation = new.generation
    assert new.requests("SyncGroup")[-1].assignments == []
    assert sum(map(len, group.numbers())) < PARTITIONS
    group.live(15_000)
    assert [len(owned) for owned in group.numbers()] == [3, 3]
    assert new.generation > generation


def test_R66_static_member_still_gives_up_what_it_lost_before() -> None:
    """It takes its own place without a rebalance; only it knows that one is due."""
    group = group_of(1, group_instance_id="i0", max_poll_interval_ms=5_000)
    second = group.add(group_instance_id="i1")
    second.subscribe()
    group.live(4_000, second)
    assert group.first.engine.rebalance is not None  # it does not poll, and does not give up any
    group.live(6_000, second)
    group.live(15_000)
    assert group.first.seen("lost") == [partitions(*range(PARTITIONS))]
    assert [len(owned) for owned in group.numbers()] == [3, 3]


def test_R66_second_consumer_with_the_name_fences_the_first() -> None:
    group = group_of(1, group_instance_id="i")
    second = group.add()
    second.subscribe()
    for _ in range(5):  # until its next heartbeat the first one does not know
        group.advance(1000)
        second.poll()
    group.first.poll()
    error = group.first.engine.membership_error
    assert isinstance(error, errors.FencedInstanceIdError)
    assert "group.instance.id='i'" in str(error)
    assert group.first.seen("lost") == [partitions(*range(PARTITIONS))]
    assert second.owned == set(range(PARTITIONS))


def test_static_member_needs_brokers_that_know_them() -> None:
    group = ClassicGroup(1, group_instance_id="i", versions={messages.JoinGroupRequest.api_key: (0, 4)})
    group.join()
    error = group.first.engine.membership_error
    assert isinstance(error, errors.UnsupportedVersionError)
    assert "group.instance.id='i'" in str(error)


# Heartbeats, and what follows from answers


def test_heartbeats_are_regular_without_polls() -> None:
    group = group_of(1)
    before = len(group.first.requests("Heartbeat"))
    group.advance(60_000)
    assert len(group.first.requests("Heartbeat")) - before == 60_000 // HEARTBEAT_MS
    assert group.first.owned == set(range(PARTITIONS))


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_member_that_is_unknown_loses_all_and_joins_as_another(strategy: str) -> None:
    group = group_of(1, strategy)
    member_id = group.first.engine.group_metadata.member_id
    group.first.broker.state.coordinators.of_group("g").live.groups.leave(
        "g", [(member_id, None)], group.first.broker.now_ms
    )
    group.advance(HEARTBEAT_MS)
    assert group.first.engine.group_metadata.member_id == ""
    before = len(joins(group.first))
    group.advance(1000)
    assert len(joins(group.first)) == before  # the program does not know yet what it has lost
    group.live(8000)
    assert [kind for kind, _ in group.first.callbacks] == ["lost", "assign"]
    assert joins(group.first)[before].member_id == ""
    assert group.first.owned == set(range(PARTITIONS))
    assert "UNKNOWN_MEMBER_ID" in joins(group.first)[before].reason


def test_member_with_an_old_generation_keeps_its_id() -> None:
    group = group_of(1)
    member_id = group.first.engine.group_metadata.member_id
    group.first.faults.fail_next("Heartbeat", "ILLEGAL_GENERATION", 1)
    group.live(8000)
    assert [kind for kind, _ in group.first.callbacks] == ["lost", "assign"]
    assert group.first.engine.group_metadata.member_id == member_id


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"])
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "Heartbeat"])
def test_coordinator_is_found_again_at_once(api: str, code: str) -> None:
    group = ClassicGroup()
    group.first.faults.fail_next(api, code, 1)
    group.join()
    group.live(HEARTBEAT_MS)
    assert group.first.owned == set(range(PARTITIONS))
    assert len(group.first.requests("FindCoordinator")) >= 2
    assert group.first.seen("lost") == []


def test_only_the_first_search_for_a_coordinator_is_at_once() -> None:
    group = group_of(1)
    group.live(3 * HEARTBEAT_MS)  # heartbeats are regular
    beats = len(group.first.requests("Heartbeat"))
    group.first.faults.fail_next("Heartbeat", "NOT_COORDINATOR", 3)
    while len(group.first.requests("Heartbeat")) == beats:
        group.advance(1)
    assert len(group.first.requests("Heartbeat")) == beats + 2
    group.advance(HEARTBEAT_MS - 500)
    assert len(group.first.requests("Heartbeat")) == beats + 4


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "Heartbeat"])
def test_lost_answers_cost_no_partition(api: str, when: str) -> None:
    group = ClassicGroup(2)
    group.first.faults.drop_connection(api, when, 2)
    group.join()
    group.live(SESSION_MS)  # the coordinator waits for members whose ids were lost
    assert [len(each) for each in group.numbers()] == [3, 3]
    assert all(member.seen("lost") == [] for member in group.members)


def test_silent_coordinator_is_left_before_the_session_ends() -> None:
    group = group_of(1, session_timeout_ms=10_000)
    group.first.faults.delay("Heartbeat", 60)
    group.advance(9_000)
    group.first.faults.delay("Heartbeat", 0)
    group.live(12_000)
    assert group.first.seen("lost") in ([], [partitions(*range(PARTITIONS))])
    assert group.first.owned == set(range(PARTITIONS))


@pytest.mark.slow
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "Heartbeat"])
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_each_code_ends_the_membership_or_is_recovered(api: str, code: ErrorCode) -> None:
    group = ClassicGroup()
    group.first.faults.fail_next(api, code, 1)
    group.join()
    group.live(HEARTBEAT_MS + 8000)
    error = group.first.engine.membership_error
    outcome = CLASSIC_OUTCOMES[code]
    if outcome is ClassicOutcome.FAIL or (code is ErrorCode.MEMBER_ID_REQUIRED and api != "JoinGroup"):
        assert error is not None and error.code == code
        assert f"group g: {api}" in str(error)
        assert group.first.owned == set()
        group.first.subscribe()  # recovers
        group.live(12_000)
        assert group.first.engine.membership_error is None
    elif outcome is ClassicOutcome.FORGET:
        group.live(SESSION_MS)  # of the id that it has forgotten
    assert group.first.owned == set(range(PARTITIONS))
    assert len(group.describe().members) == 1


def test_every_code_has_an_outcome() -> None:
    assert CLASSIC_OUTCOMES.keys() == set(ErrorCode)
    assert CLASSIC_OUTCOMES[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] is ClassicOutcome.BACK_OFF
    assert CLASSIC_OUTCOMES[ErrorCode.GROUP_AUTHORIZATION_FAILED] is ClassicOutcome.FAIL


def test_every_state_can_be_entered_and_left() -> None:
    assert TRANSITIONS.keys() == set(ClassicState)
    assert set().union(*TRANSITIONS.values()) == set(ClassicState)
    assert all(TRANSITIONS.values())


@pytest.mark.parametrize("code", ["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"])
def test_R78_refused_commit_says_that_the_membership_is_over(code: str) -> None:
    group = group_of(1)
    group.first.faults.fail_next("OffsetCommit", code, 1)
    call = group.first.begin_commit({FIRST: 1})
    group.run()
    group.live(SESSION_MS + 8000)
    assert isinstance(call.error, errors.CommitFailedError)
    assert [kind for kind, _ in group.first.callbacks] == ["lost", "assign"]
    assert group.first.owned == set(range(PARTITIONS))


def test_commit_refused_in_a_rebalance_is_sent_again() -> None:
    group = group_of(1)
    group.first.faults.fail_next("OffsetCommit", "REBALANCE_IN_PROGRESS", 1)
    call = group.first.begin_commit({FIRST: 1})
    group.live(8000)
    assert call.is_done and call.error is None
    assert joins(group.first)[-1].reason == "the group is rebalancing"


def test_refused_commit_of_an_old_generation_is_ignored() -> None:
    group = group_of(1)
    membership, now_ns = group.first.engine._membership, group.now_ns
    assert membership is not None
    for code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
        membership.handle_commit_refused(code, group.first.generation - 1, now_ns)
    group.live(1000)
    assert (group.first.callbacks, group.first.owned) == ([], set(range(PARTITIONS)))


# Subscriptions


def test_other_topics_are_joined_for() -> None:
    group = group_of(2)
    group.first.cluster.create_topic("other", 2)
    group.first.subscribe(TOPIC, "other")
    group.live(8000)
    assert {each.topic for each in group.first.engine.owned} == {TOPIC, "other"}
    group.first.subscribe("other")
    group.live(8000)
    assert {each.topic for each in group.first.engine.owned} == {"other"}
    assert group.members[1].owned == set(range(PARTITIONS))
    assert joins(group.first)[-1].reason


def test_R59_pattern_is_matched_by_the_member() -> None:
    group = ClassicGroup(2, metadata_max_age_ms=5_000)
    group.first.cluster.create_topic("events-2", 2)
    group.first.cluster.create_topic("more-events", 2)
    group.join(pattern="event.*")
    topics = [{each.topic for each in member.engine.owned} for member in group.members]
    assert set().union(*topics) == {TOPIC, "events-2"}
    group.first.cluster.create_topic("events-3", 4)
    group.live(20_000)
    topics = [{each.topic for each in member.engine.owned} for member in group.members]
    assert set().union(*topics) == {TOPIC, "events-2", "events-3"}


@pytest.mark.parametrize("excludes", [True, False])
def test_R59_pattern_matches_internal_topics_unless_excluded(excludes: bool) -> None:
    group = ClassicGroup(exclude_internal_topics=excludes)
    group.join(pattern="__consumer.*")
    assert bool(group.first.engine.owned) != excludes


# The end


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_leaving_member_gives_up_all_and_says_why(strategy: str) -> None:
    group = group_of(2, strategy)
    first, second = group.members
    owned = first.owned
    assert leave(group, first).is_done
    assert first.callbacks == [("revoke", partitions(*owned))]
    (left,) = first.requests("LeaveGroup")
    assert left.members[0].reason == "the consumer leaves"
    group.live(4000)
    assert second.owned == set(range(PARTITIONS))


@pytest.mark.parametrize(("instance_id", "choice", "leaves"), [
    (None, None, True), (None, True, True), (None, False, False),
    ("i", None, False), ("i", True, True), ("i", False, False),
])  # fmt: skip
def test_R56_close_chooses_whether_the_member_leaves(
    instance_id: str | None, choice: bool | None, leaves: bool
) -> None:
    group = group_of(1, group_instance_id=instance_id)
    assert leave(group, group.first, choice).is_done
    assert group.first.seen("revoke") == [partitions(*range(PARTITIONS))]
    assert bool(group.first.requests("LeaveGroup")) == leaves
    assert len(group.describe().members) == (not leaves)


@pytest.mark.parametrize("after_ms", [0, 1, 100, 2_999])
def test_member_leaves_although_it_is_joining(after_ms: int) -> None:
    group = ClassicGroup()
    group.first.subscribe()
    group.advance(after_ms)
    assert leave(group, group.first).is_done
    assert group.describe().members == []


@pytest.mark.parametrize("requires_id", [True, False])
def test_member_leaves_before_it_knows_its_id(requires_id: bool) -> None:
    versions = {} if requires_id else {messages.JoinGroupRequest.api_key: (0, 3)}
    group = ClassicGroup(versions=versions)
    group.first.faults.delay("JoinGroup", 2)
    group.first.subscribe()
    group.advance(100)
    call = leave(group, group.first)
    assert not call.is_done
    group.live(8_000)
    assert call.is_done
    (left,) = group.first.requests("LeaveGroup")
    assert left.members[0].member_id
    assert group.describe().members == []
    group.first.faults.delay("JoinGroup", 0)
    group.add().subscribe()
    group.live(8_000)  # without waiting for the one that has left
    assert group.members[1].owned == set(range(PARTITIONS))


def test_member_leaves_amid_a_rebalance_that_others_delay() -> None:
    group = group_of(2)
    group.add().subscribe()
    _, second, third = group.members
    group.live(HEARTBEAT_MS * 2, second, third)  # the first one does not poll, so that all wait
    assert leave(group, second).is_done
    assert second.owned == set()
    assert len(second.requests("LeaveGroup")) == 1


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None])
@pytest.mark.parametrize("is_expired", [False, True])
def test_leave_is_repeated_until_the_coordinator_knows(code: ErrorCode | None, is_expired: bool) -> None:
    """Else its partitions are not read until its session ends."""
    group = group_of(1, max_poll_interval_ms=10_000)
    if code is None:
        group.first.faults.drop_connection("LeaveGroup", "before", 1)
    else:
        group.first.faults.fail_next("LeaveGroup", code, 1)
    if is_expired:
        group.advance(11_000)
    else:
        assert leave(group, group.first).is_done
    assert group.describe().members == []


def test_leave_that_is_always_refused_ends_within_request_timeout() -> None:
    group = group_of(1, request_timeout_ms=5_000)
    group.first.faults.fail_next("LeaveGroup", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1000)
    call = leave(group, group.first)
    group.live(3_000)
    assert not call.is_done
    group.live(2_000)
    assert call.is_done
    assert len(group.first.requests("LeaveGroup")) < 30


def test_leaving_is_not_held_up_by_a_missing_coordinator() -> None:
    group = group_of(1)
    group.first.unreachable = {0}
    group.first.cut()
    group.advance(2000)
    call = leave(group, group.first)
    group.live(4000)
    assert call.is_done


def test_member_is_out_although_the_coordinator_is_silent() -> None:
    group = group_of(1, request_timeout_ms=5_000)
    group.first.faults.delay("LeaveGroup", 60)
    call = leave(group, group.first)
    assert not call.is_done
    group.live(6_000)
    assert call.is_done


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_R69_member_that_does_not_poll_leaves_and_joins_again(instance_id: str | None) -> None:
    group = group_of(2, max_poll_interval_ms=10_000)
    late = group.add(group_instance_id=instance_id)
    late.subscribe()
    group.live(12_000)
    assert len(late.owned) == 2
    group.forget_callbacks()
    group.live(11_000, *group.members[:2])
    assert late.engine.group_metadata.member_id == ""
    assert bool(late.requests("LeaveGroup")) == (instance_id is None)
    if instance_id is None:
        assert "max.poll.interval.ms" in late.requests("LeaveGroup")[0].members[0].reason
        group.live(6_000, *group.members[:2])
        assert [len(each.owned) for each in group.members[:2]] == [3, 3]
    late.poll()
    assert len(late.seen("lost")) == 1
    group.live(SESSION_MS + 12_000)
    assert [len(each) for each in group.numbers()] == [2, 2, 2]


# Anything


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), strategy=st.sampled_from(STRATEGIES))
@example(seed=147769, strategy="sticky")  # one is removed before its program knows of the rebalance
def test_R62_group_settles_after_any_faults(seed: int, strategy: str) -> None:
    rng = random.Random(seed)
    group = ClassicGroup(
        rng.randint(1, 3),
        partition_assignment_strategy=strategy,
        session_timeout_ms=12_000,
        max_poll_interval_ms=15_000,
        metadata_max_age_ms=5_000,
    )
    for member in group.members:
        member.subscribe()
    for _ in range(rng.randint(1, 12)):
        disturb(rng, group)
        awake = [member for member in group.members if rng.random() < 0.8]
        if awake:
            group.live(rng.choice((200, 1000, 4000, 9000)), *awake)
        else:
            group.advance(3000)
    group.live(60_000)
    owned = [each for member in group.members for each in member.engine.owned]
    counts = sorted(len(member.engine.owned) for member in group.members)
    assert sorted(owned) == sorted(set(owned))
    assert {each.partition for each in owned} == set(range(len(group.first.cluster.topics[TOPIC].partitions)))
    assert counts[-1] - counts[0] <= 1
    for member in group.members:
        assert member.engine.membership_error is None
        assigned: set[TopicPartition] = set()
        for kind, each in member.callbacks:  # each once
            assert each.isdisjoint(assigned) if kind == "assign" else each <= assigned
            assigned = assigned | each if kind == "assign" else assigned - each
        assert assigned == member.engine.owned


def disturb(rng: random.Random, group: ClassicGroup) -> None:
    """Do one of the things that happen to groups."""
    first = group.first
    what = rng.randrange(8)
    api = rng.choice(("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "FindCoordinator"))
    if what == 0 and len(group.members) < 5:
        group.add().subscribe()
    elif what == 1 and len(group.members) > 1:
        member = group.members.pop(rng.randrange(1, len(group.members)))
        member.engine.leave(Call("close"))
        for _ in range(20):
            member.now_ns = group.now_ns
            member.poll()
            group.advance(50)
    elif what == 2 and len(group.members) > 1:
        group.members.pop(rng.randrange(1, len(group.members))).cut()  # it dies
    elif what == 3:
        rng.choice(group.members).cut()
    elif what == 4:
        first.faults.drop_connection(api, rng.choice(("before", "after")), rng.randint(1, 3))
    elif what == 5:
        codes = (
            "NOT_COORDINATOR",
            "COORDINATOR_LOAD_IN_PROGRESS",
            "REBALANCE_IN_PROGRESS",
            "UNKNOWN_MEMBER_ID",
        )
        first.faults.fail_next(rng.choice(("JoinGroup", "SyncGroup", "Heartbeat")), rng.choice(codes), 1)
    elif what == 6:
        for member in group.members:
            member.live(0)
    elif (count := len(first.cluster.topics[TOPIC].partitions)) < 12:
        first.cluster.create_partitions(TOPIC, count + 1)
