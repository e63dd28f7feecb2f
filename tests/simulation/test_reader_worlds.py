"""Worlds of readers: hundreds of seeds, each the members of a group, writers, brokers and faults."""

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from typing import NamedTuple

import pytest

from kbatch.records import TopicPartition
from tests.simulation.__main__ import main
from tests.simulation.planted import BUGS
from tests.simulation.planted.planting import planted
from tests.simulation.readers.ledger import GroupLedger, Piece, WrittenTransaction
from tests.simulation.world.schedule import Schedule
from tests.simulation.world.trace import Violation
from tests.simulation.worlds import SimulationError, simulate_readers
from tests.support.effort import WORLDS

BLOCK = 25
PLACE = TopicPartition("events", 0)


class Block(NamedTuple):
    """The result of some seeds: texts of failed worlds, and what happened in the others."""

    failures: list[str]
    outcomes: Counter[str]
    faults: Counter[str]


def run_block(first: int) -> Block:
    logging.disable(logging.CRITICAL)  # worlds are full of what is worth a warning
    block = Block([], Counter(), Counter())
    for seed in range(first, min(first + BLOCK, WORLDS.stop)):
        try:
            world = simulate_readers(seed)
        except SimulationError as error:
            block.failures.append(str(error))
            continue
        block.outcomes.update(world.ledger.outcomes)
        block.outcomes["members"] += len(world.members)
        block.outcomes["worlds without topic ids"] += world.options.cluster.metadata_version is not None
        block.faults.update(world.faults.counts)
    return block


@pytest.fixture(scope="module")
def campaign() -> Block:
    """Return all blocks as one: every world is simulated once, whatever is asserted of it."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        blocks = list(pool.map(run_block, WORLDS[::BLOCK]))
    return Block(
        [text for block in blocks for text in block.failures],
        sum((block.outcomes for block in blocks), Counter()),
        sum((block.faults for block in blocks), Counter()),
    )


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.worlds
def test_worlds_of_readers_hold_what_consumers_promise(campaign: Block) -> None:
    found = campaign.failures
    assert not found, f"{len(found)} of {len(WORLDS)} worlds went wrong:\n\n" + "\n\n".join(found[:3])


@pytest.mark.slow  # few worlds have few of them
def test_worlds_of_readers_have_every_fault_and_outcome(campaign: Block) -> None:
    outcomes, faults, count = campaign.outcomes, campaign.faults, len(WORLDS)
    assert outcomes["records read"] > 20 * count
    assert outcomes["members"] > 2 * count
    assert outcomes["worlds without topic ids"] > count / 20
    assert outcomes["transactions committed"] > count
    assert outcomes["transactions aborted"] > count / 4
    assert min(outcomes[f"step: {kind}"] for kind in ("assign", "revoke", "lost")) > count / 4
    assert min(outcomes["seeks"], outcomes["commit: CommitFailedError"]) > count / 100
    assert min(outcomes["failed: TopicAuthorizationError"], outcomes["positions moved to a new topic"]) > 0
    assert outcomes["membership ended: UnreleasedInstanceIdError"] > 0
    members = {"crash", "close", "freeze", "stall", "fence", "join"}
    assert (
        members
        | {"move_coordinator", "end_sessions", "refused", "fail_over", "grow", "trim", "hide", "remake"}
        <= faults.keys()
    )


@pytest.mark.parametrize("seed", range(0, 40, 7))
def test_a_seed_of_readers_replays(seed: int, quiet: None) -> None:
    one, other = simulate_readers(seed), simulate_readers(seed)
    assert one.event_count == other.event_count
    assert one.trace.lines() == other.trace.lines()
    assert one.ledger.outcomes == other.ledger.outcomes


def test_failure_of_readers_names_its_replay_command(quiet: None) -> None:
    with planted(BUGS["memory_of_answers_is_not_returned"]), pytest.raises(SimulationError) as caught:
        simulate_readers(0)
    first, *lines = str(caught.value).splitlines()
    assert first.startswith("seed 0: member-")
    described = [line.split(":")[0] for line in lines]
    assert {"ClusterOptions", "Readers", "Writing", "RequestFaults", "ClusterFaults"} <= set(described)
    assert lines[-1] == "to see all of it: python -m tests.simulation --readers --seed 0 --verbose"


def test_runner_has_worlds_of_readers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet: None
) -> None:
    monkeypatch.setattr(sys, "argv", ["", "--readers", "--seeds", "0:4:2"])
    assert main() == 0
    printed = capsys.readouterr().out
    assert printed.startswith("2 seeds, 0 failed")
    assert "records read" in printed


# The ledger


def ledger(*, reads_committed: bool = True, schedule: Schedule | None = None) -> GroupLedger:
    """Return a ledger of records 0 to 2 at offsets 0 to 2, of which the second is of an open transaction."""
    made = GroupLedger(schedule or Schedule(0), reads_committed=reads_committed)
    made.write(PLACE, 0, 1, None)
    made.write(PLACE, 1, 1, WrittenTransaction(1))
    made.write(PLACE, 2, 1, None)
    return made


def piece(start: int, end: int, *rows: tuple[int, int]) -> Piece:
    made = Piece(start, end)
    made.rows += rows
    return made


def test_ledger_takes_exactly_the_visible_records() -> None:
    ledger().get(PLACE, piece(0, 3, (0, 0), (2, 2)), is_whole=True)
    ledger(reads_committed=False).get(PLACE, piece(0, 3, (0, 0), (1, 1), (2, 2)), is_whole=True)


@pytest.mark.parametrize(
    "rows",
    [[(0, 0)], [(0, 0), (1, 1), (2, 2)], [(2, 2), (0, 0)], [(0, 0), (0, 0), (2, 2)], [(0, 0), (2, 1)]],
    ids=["lost", "not committed", "out of order", "twice", "another record"],
)
def test_ledger_refuses_what_a_log_does_not_have(rows: list[tuple[int, int]]) -> None:
    with pytest.raises(Violation, match="events-0 from 0 to 3"):
        ledger().get(PLACE, piece(0, 3, *rows), is_whole=True)


def test_ledger_refuses_a_start_that_was_not_committed() -> None:
    made = ledger()
    made.get(PLACE, piece(0, 3, (0, 0), (2, 2)), is_whole=True)
    made.note_commit(PLACE, 2, is_late=False)
    made.check_start(PLACE, 2, since_ns=1)
    with pytest.raises(Violation, match="is read from 3"):
        made.check_start(PLACE, 3, since_ns=1)


@pytest.mark.parametrize("is_deposed", [False, True])
def test_reader_may_start_at_what_a_deposed_coordinator_knew(is_deposed: bool) -> None:
    """The second commit came to the next coordinator; the first one still answers later."""
    schedule = Schedule(0)
    made = ledger(schedule=schedule)
    made.get(PLACE, piece(0, 3, (0, 0), (2, 2)), is_whole=True)
    made.note_commit(PLACE, 2, is_late=False)
    schedule.after(10, lambda: made.note_commit(PLACE, 3, is_late=False))
    schedule.after(30, (lambda: made.note_deposed(5)) if is_deposed else (lambda: None))
    while schedule.step(40):
        pass
    made.check_start(PLACE, 3, since_ns=20)
    with nullcontext() if is_deposed else pytest.raises(Violation, match="is read from 2"):
        made.check_start(PLACE, 2, since_ns=20)


def test_ledger_refuses_commits_beyond_what_was_read() -> None:
    made = ledger()
    with pytest.raises(Violation, match="no reader has got that far"):
        made.note_commit(PLACE, 1, is_late=False)


@pytest.mark.parametrize("excuse", ["none", "seek", "late"])
def test_ledger_lets_offsets_go_back_for_a_reason_only(excuse: str) -> None:
    made = ledger()
    made.get(PLACE, piece(0, 3, (0, 0), (2, 2)), is_whole=True)
    made.note_commit(PLACE, 3, is_late=False)
    if excuse == "seek":
        made.rewind(PLACE, 1)
    if excuse == "none":
        with pytest.raises(Violation, match="goes back from 3 to 1"):
            made.note_commit(PLACE, 1, is_late=False)
    else:
        made.note_commit(PLACE, 1, is_late=excuse == "late")
        assert made.committed(PLACE) == 1
