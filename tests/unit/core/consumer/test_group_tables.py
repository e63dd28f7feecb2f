"""The tables of a member's states and of heartbeats' answers."""

from __future__ import annotations

import pytest

from kbatch.core.consumer import member_state
from kbatch.core.consumer.member_state import (
    BEATING,
    SHARE_TRANSITIONS,
    TRANSITIONS,
    HeartbeatOutcome,
    MemberEvent,
    MemberState,
)
from kbatch.errors import ROWS, ErrorCode


def test_each_state_of_a_member_has_a_row_and_can_be_reached() -> None:
    assert TRANSITIONS.keys() == set(MemberState)
    reached = {state for row in TRANSITIONS.values() for state in row.values()}
    assert reached | {MemberState.UNSUBSCRIBED} == set(MemberState)
    rows = [*TRANSITIONS.values(), *SHARE_TRANSITIONS.values()]
    assert {event for row in rows for event in row} == set(MemberEvent)


def test_each_state_of_a_share_member_has_a_row_and_can_be_reached() -> None:
    reached = {state for row in SHARE_TRANSITIONS.values() for state in row.values()}
    assert reached == SHARE_TRANSITIONS.keys()


@pytest.mark.parametrize("state", MemberState, ids=lambda state: state.name)
def test_member_in_the_group_can_be_fenced_and_refused(state: MemberState) -> None:
    for event in (MemberEvent.FENCE, MemberEvent.FAIL):
        assert (event in TRANSITIONS[state]) == (state in BEATING)
        if state in SHARE_TRANSITIONS:
            assert (event in SHARE_TRANSITIONS[state]) == (state in BEATING)


@pytest.mark.parametrize("state", SHARE_TRANSITIONS, ids=lambda state: state.name)
def test_share_member_can_subscribe_and_leave_in_each_state(state: MemberState) -> None:
    assert MemberEvent.SUBSCRIBE in SHARE_TRANSITIONS[state]
    assert MemberEvent.LEAVE in SHARE_TRANSITIONS[state]


def test_R60_coordinator_is_found_again_or_waited_for() -> None:
    found = {code for code, outcome in member_state.OUTCOMES.items() if outcome is HeartbeatOutcome.FIND}
    assert found == {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert member_state.outcome_of(loading, is_joining=False) is HeartbeatOutcome.BACK_OFF


def test_R55_every_other_answer_ends_the_membership() -> None:
    others = {*ROWS, 999} - member_state.OUTCOMES.keys()
    found = {member_state.outcome_of(code, is_joining=False) for code in others}
    assert found == {HeartbeatOutcome.FAIL}
