"""Worlds of `process()`: what it decides loses no record, and passes none that is unfinished."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.simulation.process.options import ProcessWorldOptions
from tests.simulation.process.world import ProcessWorld
from tests.simulation.world.trace import Violation
from tests.simulation.worlds import SimulationError, simulate_process
from tests.support.effort import WORLDS

OUTCOMES = ("finished", "failed", "handled", "skipped", "repeated", "moves", "losses", "commits", "parked")
REFUSALS = ("commits refused", "metadata too large")


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Counter[str]]:
    """Return what has happened in some worlds."""
    logging.disable(logging.CRITICAL)
    found: Counter[str] = Counter()
    for seed in WORLDS:
        found.update(simulate_process(seed).ledger.outcomes)
    yield found
    logging.disable(logging.NOTSET)


@pytest.mark.worlds
def test_POOL29_worlds_of_process_hold_what_it_promises(outcomes: Counter[str]) -> None:
    assert outcomes["finished"] > len(WORLDS)


@pytest.mark.slow  # few worlds have few of them
def test_worlds_of_process_have_every_outcome(outcomes: Counter[str]) -> None:
    assert [each for each in (*OUTCOMES, *REFUSALS) if not outcomes[each]] == []


def test_a_seed_of_process_replays() -> None:
    logging.disable(logging.CRITICAL)
    worlds = [simulate_process(3) for _ in range(2)]
    logging.disable(logging.NOTSET)
    assert (
        worlds[0].event_count == worlds[1].event_count and worlds[0].trace.lines() == worlds[1].trace.lines()
    )


def test_a_failure_names_its_replay_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(world: ProcessWorld) -> None:
        raise Violation("planted")

    monkeypatch.setattr(ProcessWorld, "check", fails)
    with pytest.raises(SimulationError, match=r"planted(.|\n)*--process --seed 3 --verbose"):
        simulate_process(3)
    assert ProcessWorldOptions.draw(3) == ProcessWorldOptions.draw(3)
