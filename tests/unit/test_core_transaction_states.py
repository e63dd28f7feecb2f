"""The diagram of a producer's life, for people, is that of the table."""

from __future__ import annotations

from pathlib import Path

from kbatch.core.transaction_states import TRANSITIONS, State, diagram

PAGE = Path(__file__).resolve().parents[2] / "docs" / "transactions.md"


def test_the_page_shows_the_table() -> None:
    assert f"```mermaid\n{diagram()}\n```" in PAGE.read_text()


def test_every_state_is_reached_and_none_but_the_fatal_one_is_the_end() -> None:
    reached = {State.UNINITIALIZED}
    while (more := reached | {each for state in reached for each in TRANSITIONS[state]}) != reached:
        reached = more
    assert reached == set(State) == set(TRANSITIONS)
    assert [state for state in State if TRANSITIONS[state] <= {state}] == [State.FATAL_ERROR]
