"""The states of a producer, the calls in them, and the page that shows them."""

from __future__ import annotations

from kbatch.core.producer.outcomes import ERROR_RESPONSES, ErrorResponse, Kind
from kbatch.core.producer.transaction_page import page
from kbatch.core.producer.transaction_states import CALLS, TRANSITIONS, TransactionEvent, TransactionState
from kbatch.errors import ErrorCode
from kbatch.producer.threads import Producer
from tests import ROOT

PAGE = ROOT / "docs" / "transaction_states.md"


def test_the_page_is_that_of_the_tables() -> None:
    command = "run `python -m kbatch.core.producer.transaction_page > docs/transaction_states.md`"
    assert PAGE.read_text() == page(), command


def test_the_diagram_has_every_change_of_state_with_its_event() -> None:
    drawn = {line.strip() for line in page().split("```")[1].splitlines() if " --> " in line}
    assert drawn == {"[*] --> UNINITIALIZED"} | {
        f"{state.name} --> {after.name}: {event.value}{'()' if event in CALLS else ''}"
        for state, row in TRANSITIONS.items()
        for event, after in row.items()
        if after is not state
    }


def test_every_event_happens_in_some_state() -> None:
    assert {event for row in TRANSITIONS.values() for event in row} == set(TransactionEvent)


def test_every_call_is_a_method() -> None:
    assert all(callable(getattr(Producer, call.value)) for call in CALLS)


def test_the_page_names_every_code_that_is_special_somewhere() -> None:
    usual = {ErrorResponse.RETRY, ErrorResponse.FATAL, ErrorResponse.DONE}
    special = {
        ErrorCode(code)
        for kind in Kind
        for code, action in ERROR_RESPONSES[kind].items()
        if action not in (usual | {ErrorResponse.ABORT} if kind is Kind.ADD_PARTITIONS else usual)
    }
    assert ErrorCode.TRANSACTION_ABORTABLE in special
    assert all(f"| {code:d} | {code.name} |" in page() for code in special)


def test_every_state_is_reached_and_only_fatal_is_final() -> None:
    reached = {TransactionState.UNINITIALIZED}
    while (more := reached | {each for state in reached for each in TRANSITIONS[state].values()}) != reached:
        reached = more
    assert reached | {TransactionState.FATAL_ERROR} == set(TransactionState) == set(TRANSITIONS)
    ends = [state for state in TransactionState if set(TRANSITIONS[state].values()) <= {state}]
    assert ends == [TransactionState.FATAL_ERROR]
