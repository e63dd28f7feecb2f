"""A slice of the campaigns against the producer, each in a process of its own."""

import pytest

from tests.fuzz.campaign import run_block_apart

pytestmark = pytest.mark.slow


def test_children_of_a_busy_process_hang_nowhere() -> None:
    tally = run_block_apart("tests.fuzz.forks", 0, 100)
    assert sum(tally.outcomes.values()) == 100


def test_a_producer_under_stress_loses_and_doubles_nothing() -> None:
    """Threads, cancelled tasks and transactions each send."""
    tally = run_block_apart("tests.fuzz.stress", 0, 3)
    assert {"delivered", "cancelled", "committed", "aborted"} <= set(tally.outcomes)


def test_interrupts_at_any_moment_leave_clients_whole() -> None:
    tally = run_block_apart("tests.fuzz.interrupts", 0, 40)
    kinds = ("threads", "transactions", "a loop", "a group", "a reader")
    assert set(tally.outcomes) == {f"interrupts of {kind}" for kind in kinds}


def test_records_accepted_before_interpreter_exit_are_sent() -> None:
    tally = run_block_apart("tests.fuzz.exits", 0, 8)
    assert sum(tally.outcomes.values()) == 8
