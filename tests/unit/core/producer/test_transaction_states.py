"""The states of a producer, what is called in them, and the page that shows it."""

from __future__ import annotations

from kbatch.core.producer.transaction_page import page
from kbatch.core.producer.transaction_requests import ACTIONS, Action, Kind
from kbatch.core.producer.transaction_states import CALLS, TRANSITIONS, State
from kbatch.errors import ErrorCode
from kbatch.producer.threads import Producer
from tests import ROOT

PAGE = ROOT / "docs" / "transaction_states.md"


def test_the_page_is_that_of_the_tables() -> None:
    command = "python -m kbatch.core.producer.transaction_page > docs/transaction_states.md"
    assert PAGE.read_text() == page(), command


def test_the_diagram_has_every_transition_but_the_fatal_ones() -> None:
    drawn = {tuple(line.split(" --> ")) for line in page().split("```")[1].splitlines() if " --> " in line}
    assert {(before.strip(), after) for before, after in drawn} == {("[*]", "UNINITIALIZED")} | {
        (state.name, after.name)
        for state, following in TRANSITIONS.items()
        for after in following - {State.FATAL_ERROR, state}
    }


def test_every_call_is_a_method_and_is_taken_in_some_state() -> None:
    assert all(callable(getattr(Producer, name)) and states for name, states in CALLS.items())


def test_the_page_names_every_code_that_is_special_somewhere() -> None:
    usual = {Action.RETRY, Action.FATAL, Action.DONE}
    special = {
        code
        for kind in Kind
        for code, action in ACTIONS[kind].items()
        if action not in (usual | {Action.ABORT} if kind is Kind.ADD_PARTITIONS else usual)
    }
    assert ErrorCode.TRANSACTION_ABORTABLE in special
    assert all(f"| {code:d} | {code.name} |" in page() for code in special)


def test_every_state_is_reached_and_none_but_the_fatal_one_is_the_end() -> None:
    reached = {State.UNINITIALIZED}
    while (more := reached | {each for state in reached for each in TRANSITIONS[state]}) != reached:
        reached = more
    assert reached == set(State) == set(TRANSITIONS)
    assert [state for state in State if TRANSITIONS[state] <= {state}] == [State.FATAL_ERROR]
