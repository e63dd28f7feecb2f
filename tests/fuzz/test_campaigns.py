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


@pytest.mark.parametrize(
    "block", [0, 4, 2, 14], ids=["threads", "tasks", "threads, retries", "tasks, retries"]
)
def test_POOL30_members_that_process_lose_and_pass_nothing(block: int) -> None:
    """They are killed, leave and stop; each key is processed in order, also where records go to retry topics
    and what is behind them is parked.
    """
    tally = run_block_apart("tests.fuzz.process_kills", block, 4_000)
    assert tally.outcomes["records"] == 4_000


@pytest.mark.java
def test_POOL30_members_that_process_lose_nothing_on_kafka(java_jars: None) -> None:
    tally = run_block_apart("tests.fuzz.process_kills", 1, 4_000)
    assert tally.outcomes["records"] == 4_000


def test_interrupts_at_any_moment_leave_clients_whole() -> None:
    tally = run_block_apart("tests.fuzz.interrupts", 0, 40)
    kinds = ("threads", "transactions", "a loop", "a group", "a reader", "a polling task", "ranges")
    assert set(tally.outcomes) == {f"interrupts of {kind}" for kind in kinds}


def test_records_accepted_before_interpreter_exit_are_sent() -> None:
    tally = run_block_apart("tests.fuzz.exits", 0, 8)
    assert sum(tally.outcomes.values()) == 8
