"""The tables of the states of a member."""

from __future__ import annotations

import pytest

from kbatch.core.consumer.member_state import (
    BEATING,
    SHARE_TRANSITIONS,
    TRANSITIONS,
    MemberEvent,
    MemberState,
)


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
