"""Assignors beside Java's own, on generated groups; and what holds for every assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.config.values import ASSIGNOR_CLASSES
from kbatch.core.consumer.assignors import ASSIGNORS, Assignment, LastAssignment
from kbatch.core.consumer.consumer_protocol import (
    MemberSubscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kbatch.records import TopicPartition
from tests.conftest import require_jars
from tests.oracle.java_assignors import JavaAssignors
from tests.support.drawn_groups import DrawnGroup, as_received, draw_group

GROUPS = 400
NAMES = sorted(ASSIGNORS)
STICKY = ("sticky", "cooperative-sticky")


@pytest.fixture(scope="module")
def java() -> Iterator[JavaAssignors]:
    require_jars()
    with JavaAssignors() as assignors:
        yield assignors


def assign(name: str, group: DrawnGroup) -> Assignment:
    return ASSIGNORS[name].assign(group.topics, group.members)


# Beside Java


@pytest.mark.java
@pytest.mark.parametrize("name", NAMES)
def test_R62_assignments_equal_java_byte_for_byte(name: str, java: JavaAssignors) -> None:
    for seed in range(GROUPS):
        group = draw_group(seed, name)
        topics = {topic: [sorted(racks) for racks in each] for topic, each in group.topics.items()}
        sent = {
            member: (encode_subscription(each), each.instance_id) for member, each in group.members.items()
        }
        theirs = java.assign(ASSIGNOR_CLASSES[name], topics, sent)
        group = DrawnGroup(
            group.topics, {member: decode_subscription(*each) for member, each in sent.items()}
        )
        ours = {member: encode_assignment(each) for member, each in assign(name, group).items()}
        assert ours == theirs, f"seed {seed}"


@pytest.mark.java
@pytest.mark.parametrize("name", NAMES)
def test_R62_subscriptions_equal_java_byte_for_byte(name: str, java: JavaAssignors) -> None:
    for seed in range(100):
        group = draw_group(seed, name)
        for member, each in list(assign(name, group).items())[:3]:
            last = as_received(each)
            topics = group.members[member].topics
            theirs = java.subscription(
                ASSIGNOR_CLASSES[name], topics, owned=last, last=last, generation=seed, rack="r"
            )
            user_data = ASSIGNORS[name].user_data(LastAssignment(last, seed))
            ours = MemberSubscription(topics, user_data, last, seed, "r")
            assert encode_subscription(ours) == theirs
            assert decode_subscription(theirs) == ours._replace(
                topics=tuple(sorted(topics)), owned=tuple(sorted(last))
            )


# By themselves


def check_is_valid(name: str, group: DrawnGroup, assignment: Assignment) -> None:
    assert assignment.keys() == group.members.keys()
    owners = Counter(partition for each in assignment.values() for partition in each)
    assert not owners or max(owners.values()) == 1
    for member, partitions in assignment.items():
        assert {partition.topic for partition in partitions} <= set(group.members[member].topics)
    wanted = {topic for each in group.members.values() for topic in each.topics} & group.topics.keys()
    there = {TopicPartition(topic, each) for topic in wanted for each in range(len(group.topics[topic]))}
    if name == "cooperative-sticky":
        claimed = {partition for each in group.members.values() for partition in each.owned}
        assert there - claimed <= owners.keys() <= there  # what moves is not assigned yet
    else:
        assert owners.keys() == there


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**32))
def test_each_partition_has_one_owner_that_wants_it(name: str, seed: int) -> None:
    group = draw_group(seed, name)
    check_is_valid(name, group, assign(name, group))


def rejoined(name: str, group: DrawnGroup, assignment: Assignment, generation: int) -> DrawnGroup:
    """Return the group as its members join after they got the assignment."""
    members = {}
    for member, each in group.members.items():
        last = as_received(assignment[member])
        members[member] = each._replace(
            owned=last if ASSIGNORS[name].is_cooperative else (),
            generation_id=generation,
            user_data=ASSIGNORS[name].user_data(LastAssignment(last, generation)),
        )
    return DrawnGroup(group.topics, members)


@pytest.mark.parametrize("name", STICKY)
@given(seed=st.integers(0, 2**32))
def test_R63_rebalances_settle_and_then_change_nothing(name: str, seed: int) -> None:
    # with racks Java's assignors, and so these, may go round
    group = draw_group(seed, name)
    group = DrawnGroup(
        group.topics, {member: each._replace(rack=None) for member, each in group.members.items()}
    )
    before: dict[str, set[TopicPartition]] = {}
    for generation in range(20, 25):
        assignment = assign(name, group)
        after = {member: set(each) for member, each in assignment.items()}
        if after == before:
            break
        before = after
        group = rejoined(name, group, assignment, generation)
    else:
        pytest.fail("it goes on")
    wanted = {topic for each in group.members.values() for topic in each.topics} & group.topics.keys()
    assert sum(map(len, after.values())) == sum(len(group.topics[topic]) for topic in wanted)


@given(seed=st.integers(0, 2**32))
def test_R63_no_partition_moves_while_it_is_owned(seed: int) -> None:
    group = draw_group(seed, "cooperative-sticky")
    owner = {partition: member for member, each in group.members.items() for partition in each.owned}
    claims = Counter(partition for each in group.members.values() for partition in each.owned)
    for member, partitions in assign("cooperative-sticky", group).items():
        for partition in partitions:
            assert claims[partition] != 1 or owner[partition] == member
