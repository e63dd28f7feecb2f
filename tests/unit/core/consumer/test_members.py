"""Members of one group by KIP-848 against the embedded broker's coordinator, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch import errors
from kbatch.core.client.calls import Call
from kbatch.core.consumer.consumer_membership import ConsumerMembership
from kbatch.core.consumer.membership import Subscription
from kbatch.records import OffsetAndMetadata, TopicPartition
from tests.support.broker_core import TOPIC
from tests.support.group_reading import GroupReading, Members

A, B, C, D = (TopicPartition(TOPIC, number) for number in range(4))


def test_R52_members_share_the_partitions_evenly() -> None:
    group = Members(4)
    first = group.add()
    group.live(1000)
    assert first.engine.owned == {A, B, C, D}
    second = group.add()
    group.live(8000)
    assert [len(owned) for owned in group.owned()] == [2, 2]
    third = group.add()
    group.live(12_000)
    assert sorted(len(owned) for owned in group.owned()) == [1, 1, 2]
    for member in (second, third):
        assert member.leave().is_done
        group.members.remove(member)
    group.live(8000)
    assert first.engine.owned == group.partitions


def test_R57_member_that_waits_for_partitions_gets_them_soon() -> None:
    group = Members(2)
    first = group.add()
    group.live(20_000)
    second = group.add()
    began_ms = group.broker.now_ms
    while not second.engine.owned:
        group.live(100)
        assert group.broker.now_ms < began_ms + 20_000
    settled = [kind for kind, _ in first.callbacks]
    assert settled == ["assign", "revoke"]
    # the first one learns of it in a heartbeat of its usual interval, the second within a fifth of it
    assert group.broker.now_ms - began_ms <= 5000 + 1000 + 300


def test_R54_member_that_dies_is_replaced_after_its_session() -> None:
    group = Members(2)
    first, second = group.add(), group.add()
    group.live(10_000)
    assert [len(owned) for owned in group.owned()] == [1, 1]
    group.kill(first)
    group.live(40_000, every_ms=1000)
    assert len(second.engine.owned) == 1
    group.live(20_000, every_ms=1000)
    assert second.engine.owned == {A, B}


def test_R54_member_that_was_away_learns_that_it_is_fenced() -> None:
    group = Members(2)
    first, second = group.add(), group.add()
    group.live(10_000)
    group.members.remove(first)  # it stops for a minute, as a paused process does
    group.live(60_000, every_ms=1000)
    assert second.engine.owned == {A, B}
    first.callbacks.clear()
    group.members.append(first)
    first.now_ns = second.now_ns
    group.live(12_000)
    assert first.callbacks[0][0] == "lost"
    assert [len(owned) for owned in group.owned()] == [1, 1]
    group.check_owners()


def test_R66_static_member_comes_back_to_its_partitions() -> None:
    group = Members(2)
    first, second = group.add(group_instance_id="one"), group.add(group_instance_id="two")
    group.live(10_000)
    before, other = first.engine.owned, second.engine.owned
    second.callbacks.clear()
    assert first.leave().is_done
    group.members.remove(first)
    group.live(10_000)
    again = group.add(group_instance_id="one")
    group.live(10_000)
    assert again.engine.owned == before and second.engine.owned == other
    assert not second.callbacks


def test_R55_second_member_of_an_instance_is_refused() -> None:
    group = Members(2)
    group.add(group_instance_id="one")
    group.live(2000)
    second = group.add(group_instance_id="one")
    group.live(2000)
    assert isinstance(second.engine.membership_error, errors.UnreleasedInstanceIdError)


def test_R55_unknown_assignor_is_refused() -> None:
    group = Members(2)
    member = group.add(group_remote_assignor="mine")
    group.live(1000)
    assert isinstance(member.engine.membership_error, errors.UnsupportedAssignorError)
    assert "uniform" in str(member.engine.membership_error)


@pytest.mark.slow
def test_R59_pattern_finds_topics_and_new_ones() -> None:
    group = Members(2)
    member = group.add(subscribes=False, metadata_max_age_ms=60_000)
    member.engine.subscribe(Subscription(pattern="events|later-.*"))
    group.live(10_000)
    assert member.engine.owned == {A, B}
    group.broker.state.cluster.create_topic("later-1", 1)
    group.live(700_000, every_ms=5000)
    assert member.engine.owned == {A, B, TopicPartition("later-1", 0)}


def test_R61_auto_is_the_consumer_protocol_here() -> None:
    group = Members(1)
    member = group.add(group_protocol="auto")
    group.live(1000)
    assert isinstance(member.engine._membership, ConsumerMembership)
    assert member.engine.owned == {A}


def test_R76_commits_of_members_are_kept_for_the_next_owner() -> None:
    group = Members(1)
    first = group.add()
    first.put(b"a", b"b", b"c")
    group.live(1000)
    assert first.commit({A: OffsetAndMetadata(2, "note", 0)}).error is None
    assert first.leave().is_done
    group.members.remove(first)
    second = group.add()
    group.live(2000)
    assert second.offsets(A) == [2]


def test_R77_commit_over_a_rebalance_is_kept() -> None:
    group = Members(2)
    first = group.add()
    group.live(2000)
    group.add()  # the epoch of the group grows
    group.advance(1200)
    calls = [first.commit({A: 1}), first.commit({B: 1})]
    group.live(8000)
    assert [call.error for call in calls] == [None, None]


def test_R80_commit_without_membership_is_refused_beside_members() -> None:
    group = Members(1)
    alone = group.add(subscribes=False)
    assert alone.commit({A: 1}).error is None
    member = group.add()
    group.live(1000)
    refused = alone.commit({A: 2})
    group.live(1000)
    assert isinstance(refused.error, errors.CommitFailedError) and "has members" in str(refused.error)
    assert member.committed(A).answer[A].offset == 1


def test_R53_partition_stays_with_its_owner_until_callback_ran() -> None:
    group = Members(2)
    first = group.add()
    group.live(10_000)
    second = group.add()
    while first.engine.rebalance is None:
        group.advance(1000)
    step = first.take()
    assert step is not None and step.kind == "revoke"
    for _ in range(40):
        group.advance(1000)
        second.poll()
    assert not second.engine.owned
    assert first.commit({step.partitions[0]: 1}).error is None
    first.finish(step)
    group.live(6000)
    assert second.engine.owned == set(step.partitions)


STEPS = st.one_of(
    st.tuples(st.just("add"), st.none()),
    st.tuples(st.just("leave"), st.integers(0, 3)),
    st.tuples(st.just("kill"), st.integers(0, 3)),
    st.tuples(st.just("cut"), st.integers(0, 3)),
    st.tuples(st.just("drop"), st.sampled_from(["before", "after"])),
    st.tuples(st.just("advance"), st.sampled_from([50, 900, 4000, 20_000])),
    st.tuples(st.just("poll"), st.integers(0, 3)),
    st.tuples(st.just("begin"), st.integers(0, 3)),
    st.tuples(st.just("finish"), st.integers(0, 3)),
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=20))
def test_R53_no_partition_ever_has_two_owners(script: list[tuple[str, Any]]) -> None:
    """Members come, go, die, lose answers and connections, and are slow in their callbacks. A session never
    ends before its member knows, as all that live send heartbeats.
    """
    group = Members(4)
    for _ in range(2):
        group.add()
        group.live(7000)
    taken: dict[GroupReading, Any] = {}
    for action, value in script:
        member = (
            group.members[value % len(group.members)] if isinstance(value, int) and group.members else None
        )
        if action == "add" and len(group.members) < 4:
            group.add()
        elif action == "advance":
            group.advance(value)
        elif action == "drop":
            group.broker.core.faults.drop_connection("ConsumerGroupHeartbeat", value, 1)
        elif member is None:
            continue
        elif action == "leave" and member not in taken:
            call = Call("close")
            member.engine.leave(call)
            for _ in range(50):
                group.live(100)
                group.check_owners()
                if call.is_done:
                    break
            assert call.is_done
            group.kill(member)
        elif action == "kill":
            taken.pop(member, None)
            group.kill(member)
        elif action == "cut":
            member.cut()
        elif action == "poll" and member not in taken:
            member.poll()
        elif action == "begin" and member not in taken:
            if (step := member.take()) is not None:
                taken[member] = step
        elif action == "finish" and member in taken:
            member.finish(taken.pop(member))
        group.run()
        group.check_owners()
    for member, step in taken.items():
        member.finish(step)
    for _ in range(20):
        group.live(5000, every_ms=2500)
        group.check_owners()
    if group.members:
        assert set().union(*group.owned()) == group.partitions
        assert max(map(len, group.owned())) - min(map(len, group.owned())) <= 1
