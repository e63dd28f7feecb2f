"""Plans of reassignments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch import TopicPartition
from kbatch.admin.planner import plan_of
from kbatch.errors import InvalidReplicationFactorError

RACKS = ("a", "b", "c")


@st.composite
def clusters(
    draw: st.DrawFn,
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], int]:
    """Return replicas, the brokers that may have them, and a replication factor."""
    all_brokers = draw(st.integers(1, 7))
    has_racks = draw(st.booleans())
    allowed = draw(st.sets(st.integers(0, all_brokers - 1), min_size=1))
    racks = {each: draw(st.sampled_from(RACKS)) if has_racks else None for each in sorted(allowed)}
    count = draw(st.integers(0, 6))
    order = st.permutations(range(all_brokers))
    sizes = st.integers(1, all_brokers)
    replicas = {TopicPartition("t", each): tuple(draw(order)[: draw(sizes)]) for each in range(count)}
    return replicas, dict(racks), draw(st.integers(1, len(allowed)))


@given(clusters())
def test_a_plan_keeps_its_promises(
    cluster: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], int],
) -> None:
    replicas, racks, factor = cluster
    plan = plan_of(replicas, racks, replication_factor=factor)
    moved = {move.partition: move.after for move in plan.moves}
    assert plan == plan_of(replicas, racks, replication_factor=factor)
    result = replicas | moved
    assert not plan_of(result, racks, replication_factor=factor).moves
    for partition, before in replicas.items():
        after = result[partition]
        assert len(set(after)) == len(after) == factor
        assert set(after) <= set(racks)
        # as few copies as possible: what may stay, stays
        stays = [each for each in before if each in racks]
        assert len(set(after) - set(before)) == max(factor - len(stays), 0)
        if stays:
            assert after[0] == stays[0]
        if set(before) <= set(racks) and len(before) == factor:
            assert partition not in moved


@pytest.mark.slow
@given(clusters())
def test_no_other_plan_copies_less(
    cluster: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], int],
) -> None:
    """Every choice of brokers is tried, for each partition."""
    replicas, racks, factor = cluster
    moved = {move.partition: move.after for move in plan_of(replicas, racks, replication_factor=factor).moves}
    for partition, before in replicas.items():
        after = moved.get(partition, before)
        least = min(len(set(chosen) - set(before)) for chosen in combinations(racks, factor))
        assert len(set(after) - set(before)) == least


@st.composite
def small_clusters(
    draw: st.DrawFn,
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], int]:
    """Return the same without racks, so small that every plan can be tried."""
    allowed = draw(st.sets(st.integers(0, 4), min_size=1, max_size=4))
    order = st.permutations(range(5))
    sizes = st.integers(1, 3)
    count = draw(st.integers(0, 4))
    replicas = {TopicPartition("t", each): tuple(draw(order)[: draw(sizes)]) for each in range(count)}
    return replicas, dict.fromkeys(sorted(allowed)), draw(st.integers(1, min(len(allowed), 2)))


@given(small_clusters())
def test_no_other_plan_of_as_few_copies_is_more_even(
    cluster: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], int],
) -> None:
    """Every choice of brokers for new replicas is tried, for all partitions together."""
    replicas, racks, factor = cluster
    moved = {move.partition: move.after for move in plan_of(replicas, racks, replication_factor=factor).moves}
    result = replicas | moved
    choices = []
    for partition, before in replicas.items():
        kept = [each for each in result[partition] if each in before]
        free = [each for each in racks if each not in kept and each not in before]
        choices.append([(*kept, *new) for new in combinations(free, factor - len(kept))])
    best = min((unevenness(chosen, racks) for chosen in product(*choices)), default=0)
    assert unevenness(list(result.values()), racks) == best


def unevenness(replicas: Iterable[Iterable[int]], brokers: Iterable[int]) -> int:
    """Return the sum of the squares of the numbers of replicas that brokers have."""
    loads = Counter(broker for each in replicas for broker in each)
    return sum(loads[broker] ** 2 for broker in brokers)


@given(st.integers(1, 6), st.integers(1, 12), st.integers(1, 3))
def test_new_replicas_are_spread(brokers: int, partitions: int, factor: int) -> None:
    factor = min(factor, brokers)
    gone = {TopicPartition("t", each): (99,) for each in range(partitions)}
    plan = plan_of(gone, dict.fromkeys(range(brokers)), replication_factor=factor)
    loads = Counter(broker for move in plan.moves for broker in move.after)
    counts = [loads[broker] for broker in range(brokers)]
    assert max(counts) - min(counts) <= 1


def test_replicas_go_to_different_racks() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "c"}
    plan = plan_of({TopicPartition("t", 0): (0,)}, racks, replication_factor=3)
    assert [move.after for move in plan.moves] == [(0, 2, 3)]
    shrunk = plan_of({TopicPartition("t", 0): (0, 1, 2)}, racks, replication_factor=2)
    assert [move.after for move in shrunk.moves] == [(0, 2)]


def test_a_plan_says_what_is_copied_and_which_leaders_move() -> None:
    first, second, third = (TopicPartition("t", each) for each in range(3))
    plan = plan_of(
        {first: (0, 1), second: (1, 0), third: (0, 2, 1)},
        dict.fromkeys([1, 2]),
        replication_factor=2,
        leaders={first: 0, second: 1, third: None},
        sizes={first: 2_500_000, third: 7},
    )
    assert str(plan).splitlines() == [
        "t-0: 0,1 -> 1,2, 2.5 MB to copy, leader 0 -> 1",
        "t-1: 1,0 -> 1,2, unknown bytes to copy",
        "t-2: 0,2,1 -> 2,1, 0 B to copy, leader none -> 2",
        "3 partitions, unknown bytes to copy, leaders that move: 2",
    ]
    assert (plan.copied_bytes, plan.moved_leaders) == (None, 2)


@given(clusters(), st.integers(0, 10**13))
def test_each_new_replica_is_a_copy(
    cluster: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], int], size: int
) -> None:
    replicas, racks, factor = cluster
    plan = plan_of(replicas, racks, replication_factor=factor, sizes=dict.fromkeys(replicas, size))
    copies = sum(len(set(move.after) - set(move.before)) for move in plan.moves)
    assert plan.copied_bytes == copies * size
    assert plan.moved_leaders == sum(move.before[0] != move.after[0] for move in plan.moves)


def test_too_few_brokers() -> None:
    with pytest.raises(InvalidReplicationFactorError, match="there are 1"):
        plan_of({TopicPartition("t", 0): (0,)}, {0: None}, replication_factor=2)
