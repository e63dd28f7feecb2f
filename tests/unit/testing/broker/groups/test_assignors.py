"""The assignors of the group coordinator: what holds for every group, and the order that Kafka has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.testing.broker.groups.assignors import (
    ASSIGNORS,
    Subscriber,
    Target,
    assign_ranges,
    assign_uniformly,
)

TOPICS = [bytes([number]) * 16 for number in range(4)]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)


@st.composite
def groups(draw: Any, *, alike: bool = False) -> tuple[list[Subscriber], dict[bytes, int]]:
    """Draw members with subscriptions, and the parts of an older target, of which some is gone."""
    counts = draw(COUNTS)
    names = draw(st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True))
    subscriptions = st.frozensets(st.sampled_from(sorted(counts)))
    shared = draw(subscriptions) if alike else None
    everything = [(topic_id, index) for topic_id in TOPICS for index in range(counts.get(topic_id, 1))]
    owners = draw(st.lists(st.sampled_from([*names, ""]), min_size=len(everything), max_size=len(everything)))
    members = [
        Subscriber(
            name,
            draw(st.sampled_from([None, f"instance {name}"])),
            draw(subscriptions) if shared is None else shared,
            frozenset(each for each, owner in zip(everything, owners, strict=True) if owner == name),
        )
        for name in names
    ]
    return members, counts


def with_targets(members: list[Subscriber], targets: dict[str, Target]) -> list[Subscriber]:
    return [each._replace(target=targets[each.member_id]) for each in members]


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_each_partition_goes_to_one_subscriber(
    name: str, group: tuple[list[Subscriber], dict[bytes, int]]
) -> None:
    members, counts = group
    targets = ASSIGNORS[name](members, counts)
    assert targets.keys() == {each.member_id for each in members}
    assigned = sorted(partition for target in targets.values() for partition in target)
    subscribed = {topic_id for each in members for topic_id in each.topic_ids}
    assert assigned == [(topic_id, i) for topic_id in sorted(subscribed) for i in range(counts[topic_id])]
    for each in members:
        assert {topic_id for topic_id, _ in targets[each.member_id]} <= each.topic_ids


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_same_group_has_the_same_target(name: str, group: tuple[list[Subscriber], dict[bytes, int]]) -> None:
    members, counts = group
    targets = ASSIGNORS[name](members, counts)
    assert ASSIGNORS[name](with_targets(members, targets), counts) == targets


@given(group=groups(alike=True))
def test_uniform_shares_are_even_and_move_no_more_than_that(
    group: tuple[list[Subscriber], dict[bytes, int]],
) -> None:
    members, counts = group
    targets = assign_uniformly(members, counts)
    sizes = [len(target) for target in targets.values()]
    assert max(sizes) - min(sizes) <= 1
    for each in members:
        valid = {p for p in each.target if p[0] in each.topic_ids}
        kept = len(targets[each.member_id] & valid)
        assert kept >= min(len(valid), min(sizes)), "a member keeps its share of what it had"


@given(group=groups())
def test_uniform_is_balanced_over_different_topics(group: tuple[list[Subscriber], dict[bytes, int]]) -> None:
    members, counts = group
    targets = assign_uniformly(members, counts)
    for giver in members:
        movable = {topic_id for topic_id, _ in targets[giver.member_id]}
        for taker in members:
            if movable & taker.topic_ids:
                assert len(targets[giver.member_id]) - len(targets[taker.member_id]) <= 1


@given(group=groups())
def test_ranges_are_neighbours_and_even_in_each_topic(
    group: tuple[list[Subscriber], dict[bytes, int]],
) -> None:
    members, counts = group
    targets = assign_ranges(members, counts)
    for topic_id in counts:
        ranges = [
            sorted(index for each, index in targets[member.member_id] if each == topic_id)
            for member in members
            if topic_id in member.topic_ids
        ]
        for each in ranges:
            assert each == list(range(each[0], each[-1] + 1)) if each else True
        sizes = [len(each) for each in ranges]
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_static_members_come_first_in_ranges() -> None:
    members = [
        Subscriber(name, instance, frozenset(TOPICS[:1]), frozenset())
        for name, instance in [("a", None), ("x", "2"), ("z", "1"), ("b", None)]
    ]
    targets = assign_ranges(members, {TOPICS[0]: 6})
    indexes = {name: sorted(index for _, index in target) for name, target in targets.items()}
    assert indexes == {"z": [0, 1], "x": [2, 3], "a": [4], "b": [5]}


def test_no_members_have_no_targets() -> None:
    assert [assign([], {TOPICS[0]: 2}) for assign in ASSIGNORS.values()] == [{}, {}]
