"""The states of a partition that is read, as a table."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from kbatch.config import ConsumerConfig
from kbatch.core.consumer.partition_state import (
    EARLIEST,
    LATEST,
    NO_END,
    TRANSITIONS,
    FetchEvent,
    FetchState,
    PartitionState,
    Start,
    reset_of,
)
from kbatch.errors import IllegalStateError
from kbatch.records import TopicPartition


def partition(state: FetchState = FetchState.NEW, *, end: int = NO_END) -> PartitionState:
    made = PartitionState(TopicPartition("t", 0), 1, Start(0), end, None, 0)
    made.state = state
    return made


@pytest.mark.parametrize(("state", "event"), [*itertools.product(FetchState, FetchEvent)])
def test_illegal_event_raises_and_changes_nothing(state: FetchState, event: FetchEvent) -> None:
    made = partition(state)
    expected = TRANSITIONS[state].get(event)
    if expected is not None:
        made.transition(event)
        assert made.state is expected
        return
    with pytest.raises(IllegalStateError, match=f"t-0: {event.value} while {state.value}"):
        made.transition(event)
    assert made.state is state


def test_every_state_can_be_reached_and_left() -> None:
    reached = {target for targets in TRANSITIONS.values() for target in targets.values()}
    assert reached | {FetchState.NEW} == set(FetchState)
    assert [state for state, targets in TRANSITIONS.items() if not targets] == [FetchState.CLOSED]
    assert all(FetchEvent.CLOSE in targets for targets in TRANSITIONS.values() if targets)


def test_range_goes_forward_only() -> None:
    ranged, endless = partition(end=100), partition()
    ranged.fetch_offset = endless.fetch_offset = 50
    assert (ranged.after_loss(60), ranged.after_loss(0)) == (60, 100)
    assert (endless.after_loss(60), endless.after_loss(0)) == (60, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("none", None),
        ("by_duration:P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("by_duration:PT36H", timedelta(hours=36)),
    ],
)
def test_reset_policy_is_that_of_the_configuration(text: str, expected: object) -> None:
    config = ConsumerConfig(bootstrap_servers="a:9092", auto_offset_reset=text)
    assert reset_of(config) == expected
