"""Worlds of virtual time: a thousand seeds, each a producer, brokers and faults; and that a seed replays."""

import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from kbatch.testing.simulation.actor import Actor
from kbatch.testing.simulation.schedule import Schedule
from kbatch.testing.simulation.transactional_options import is_transactional
from kbatch.testing.simulation.world import World
from kbatch.testing.simulator import SimulationError, simulate

SEEDS, BLOCK = 1000, 50


def failures(first: int) -> list[str]:
    logging.disable(logging.CRITICAL)  # worlds are full of what is worth a warning
    found = []
    for seed in range(first, first + BLOCK):
        try:
            simulate(seed)
        except SimulationError as error:
            found.append(str(error))
    return found


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_thousand_worlds_hold_what_the_producer_promises() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = [text for block in pool.map(failures, range(0, SEEDS, BLOCK)) for text in block]
    assert not found, f"{len(found)} of {SEEDS} worlds went wrong:\n\n" + "\n\n".join(found[:3])


@pytest.mark.parametrize("seed", range(0, 60, 7))
def test_a_seed_replays(seed: int, quiet: None) -> None:
    one, other = simulate(seed), simulate(seed)
    assert one.event_count == other.event_count
    assert one.trace.lines() == other.trace.lines()
    assert one.application.outcomes == other.application.outcomes


def test_worlds_have_records_that_arrive_and_records_that_fail(quiet: None) -> None:
    outcomes: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for seed in range(60):
        world = simulate(seed)
        outcomes.update(world.application.outcomes)
        faults.update(world.faults.counts)
    assert outcomes["succeeded"] > 1000
    assert len(outcomes) > 4
    assert len(faults) > 15


def test_worlds_have_tables_that_wait_rows_that_arrive_and_rows_that_fail(quiet: None) -> None:
    counts: Counter[str] = Counter()
    for seed in range(40):
        world = simulate(seed)
        tables = world.tables if isinstance(world, World) else None
        for table in tables.sent if tables is not None else ():
            counts["tables"] += 1
            counts["waited"] += table.attempt_count > 1
            if not table.was_refused:
                counts["rows"] += len(table.rows)
                counts["failed"] += table.report.failed_rows
                counts["not accepted"] += sum(row.delivery is None for row in table.rows)
    assert counts["tables"] > 20
    assert counts["rows"] > 500
    assert min(counts["waited"], counts["failed"], counts["not accepted"]) > 5


def test_worlds_of_transactions_have_every_outcome(quiet: None) -> None:
    outcomes: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for seed in filter(is_transactional, range(120)):
        world = simulate(seed)
        outcomes.update(world.application.outcomes)
        faults.update(world.faults.counts)
    assert outcomes["transaction committed"] > 100
    assert {f"transaction {each}" for each in ("aborted", "lost", "unknown")} <= outcomes.keys()
    assert {"ghost", "crash", "crash in a call", "time-out of a call", "change_version"} <= faults.keys()
    assert {"refused by a coordinator", "unanswered by a coordinator", "move_coordinator"} <= faults.keys()


def test_an_actor_runs_when_it_is_let_and_ends_when_it_is_killed() -> None:
    schedule, seen = Schedule(0), []

    def script() -> None:
        seen.append(schedule.now_ns)
        actor.sleep(5)
        seen.append(schedule.now_ns)
        try:
            actor.wait(lambda: False, 1000)
        finally:
            seen.append(-1)

    actor = Actor(schedule, script)
    assert not seen
    actor.go()
    assert seen == [0]
    while schedule.step(10):
        """Time goes by."""
    assert seen == [0, 5]
    actor.kill()
    assert seen == [0, 5, -1]
    assert not actor.is_over


def test_what_an_actor_raises_comes_out_where_it_was_let_run() -> None:
    def script() -> None:
        raise ValueError("in the thread")

    actor = Actor(Schedule(0), script)
    with pytest.raises(ValueError, match="in the thread"):
        actor.go()
    actor.kill()
