"""Ownership: steps of a rebalance, handed from the engine's owner to the program's thread."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.core.consumer.membership import Ownership, Rebalance
from kbatch.records import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def make() -> Ownership:
    return Ownership(count(1), lambda: None)


def do(ownership: Ownership) -> Rebalance:
    """Take and finish the next step, as the program does."""
    step = ownership.take()
    assert step is not None
    assert ownership.finish(step)
    return step


def test_R52_step_is_effective_after_the_program_did_it() -> None:
    ownership = make()
    ownership.assign([B, A])
    assert ownership.offered == Rebalance("assign", (A, B), 1)
    assert not ownership.owned and not ownership.is_idle
    do(ownership)
    assert ownership.owned == {A, B} and ownership.is_idle
    ownership.revoke([A])
    step = ownership.take()
    assert step == Rebalance("revoke", (A,), 2)
    assert ownership.owned == {A, B}, "commits go on until then"
    assert ownership.finish(step)
    assert ownership.owned == {B}
    assert not ownership.finish(step)


def test_program_is_notified_of_a_step() -> None:
    heard: list[Rebalance | None] = []
    ownership = Ownership(count(1), lambda: heard.append(ownership.offered))
    ownership.assign([A])
    assert heard == [Rebalance("assign", (A,), 1)]


def test_R54_step_that_was_not_taken_is_withdrawn_by_a_loss() -> None:
    ownership = make()
    ownership.assign([A])
    do(ownership)
    ownership.assign([B])
    ownership.lose()
    assert do(ownership) == Rebalance("lost", (A,), 3)
    assert ownership.is_released


@pytest.mark.parametrize(
    ("kind", "partitions", "lost"), [("assign", [B], (A, B)), ("revoke", [A], ()), ("assign", [], (A,))]
)
def test_R54_step_that_was_taken_comes_before_the_loss(
    kind: str, partitions: list[TopicPartition], lost: tuple[TopicPartition, ...]
) -> None:
    ownership = make()
    ownership.assign([A])
    do(ownership)
    getattr(ownership, kind)(partitions)
    step = ownership.take()
    assert step is not None
    ownership.lose()
    assert ownership.offered is None
    ownership.finish(step)
    if lost:
        assert do(ownership).partitions == lost
    assert ownership.take() is None
    assert ownership.is_released


def test_loss_of_nothing_is_no_step() -> None:
    ownership = make()
    ownership.lose()
    assert ownership.is_released
    ownership.assign([A])
    ownership.lose()
    assert ownership.take() is None


def test_loss_is_neither_withdrawn_nor_repeated() -> None:
    ownership = make()
    ownership.assign([A])
    do(ownership)
    ownership.lose()
    ownership.withdraw()
    ownership.lose()
    step = ownership.take()
    assert step == Rebalance("lost", (A,), 2)
    ownership.lose()
    ownership.finish(step)
    assert ownership.is_released


def test_R79_partitions_may_be_committed_in_their_callback() -> None:
    ownership = make()
    ownership.assign([A])
    assert ownership.tenure(A) is None
    step = ownership.take()
    assert step is not None and ownership.tenure(A) == step.number
    ownership.finish(step)
    ownership.revoke([A])
    assert ownership.tenure(A) == step.number
    do(ownership)
    assert ownership.tenure(A) is None


ACTIONS = ("assign", "revoke", "lose", "withdraw", "take", "finish")


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.frozensets(st.sampled_from([A, B, C])))))
def test_R52_callbacks_see_each_partition_come_and_go_once(
    script: list[tuple[str, frozenset[TopicPartition]]],
) -> None:
    ownership = make()
    seen: set[TopicPartition] = set()
    taken: Rebalance | None = None
    numbers = []
    for action, partitions in script:
        if action == "assign" and ownership.is_idle:
            ownership.assign(partitions - ownership.owned)
        elif action == "revoke" and ownership.is_idle:
            ownership.revoke(partitions & ownership.owned)
        elif action in ("lose", "withdraw"):
            getattr(ownership, action)()
        elif action == "take" and taken is None:
            taken = ownership.take()
            if taken is not None:
                numbers.append(taken.number)
                if taken.kind == "assign":
                    assert seen.isdisjoint(taken.partitions)
                    seen |= set(taken.partitions)
                else:
                    assert seen >= set(taken.partitions)
                    seen -= set(taken.partitions)
        elif action == "finish" and taken is not None:
            assert ownership.finish(taken)
            taken = None
            assert ownership.owned == seen
    assert numbers == sorted(set(numbers))
