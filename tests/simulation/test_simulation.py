"""Worlds of virtual time: hundreds of seeds, each a producer, brokers and faults; and that a seed replays."""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import pytest

from kbatch.core.producer.sender import Sender
from tests.simulation.__main__ import main
from tests.simulation.planted import BUGS
from tests.simulation.planted.planting import Bug, planted
from tests.simulation.producers.checkers import Logs, check_deliveries
from tests.simulation.producers.table_application import EncodedRecord
from tests.simulation.producers.wire import record_number
from tests.simulation.producers.world import World
from tests.simulation.transactions.options import is_transactional
from tests.simulation.world.options import WorldOptions, with_failing_leaders
from tests.simulation.world.replicas.history import LostBatch
from tests.simulation.world.trace import Violation
from tests.simulation.worlds import SimulationError, simulate
from tests.support.effort import WORLDS

BLOCK = 50


class Block(NamedTuple):
    """The result of some seeds: texts of failed worlds, and what `OBSERVERS` counted, by their names."""

    failures: list[str]
    counts: dict[str, Counter[str]]


def run_block(first: int) -> Block:
    logging.disable(logging.CRITICAL)  # worlds are full of what is worth a warning
    block = Block([], {name: Counter() for name in OBSERVERS})
    for seed in range(first, min(first + BLOCK, WORLDS.stop)):
        try:
            world = simulate(seed)
        except SimulationError as error:
            block.failures.append(str(error))
            continue
        for name, (seeds, observe) in OBSERVERS.items():
            if seed < seeds:
                observe(seed, world, block.counts[name])
    return block


@pytest.fixture(scope="module")
def campaign() -> Block:
    """Return all blocks as one: every world is simulated once, whatever is asserted of it."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        blocks = list(pool.map(run_block, WORLDS[::BLOCK]))
    counts = {name: sum((block.counts[name] for block in blocks), Counter()) for name in OBSERVERS}
    return Block([text for block in blocks for text in block.failures], counts)


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.worlds
def test_worlds_hold_what_the_producer_promises(campaign: Block) -> None:
    found = campaign.failures
    assert not found, f"{len(found)} of {len(WORLDS)} worlds went wrong:\n\n" + "\n\n".join(found[:3])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 60, 7))
def test_a_seed_replays(seed: int, quiet: None) -> None:
    one, other = simulate(seed), simulate(seed)
    assert one.event_count == other.event_count
    assert one.trace.lines() == other.trace.lines()
    assert one.application.outcomes == other.application.outcomes


def _of_a_defect(original: object) -> object:
    def run(self: object, now_ns: int) -> None:
        raise ZeroDivisionError("in the engine")

    return run


DEFECT = Bug(Sender, "run", _of_a_defect, "", False)


@pytest.mark.parametrize(
    ("bug", "first_line"),
    [
        (BUGS["completions_come_twice"], "seed 4: <kbatch._native.batch.delivery.Completion"),
        (DEFECT, "seed 4: ZeroDivisionError: in the engine"),
    ],
    ids=["broken promise", "defect"],
)
def test_failure_names_its_seed_world_and_replay_command(bug: Bug, first_line: str, quiet: None) -> None:
    with planted(bug), pytest.raises(SimulationError) as caught:
        simulate(4)
    first, *world, last = str(caught.value).splitlines()
    assert first.startswith(first_line)
    described = [line.split("=")[0].split(":")[0] for line in world]
    assert {"ClusterOptions", "Workload", "RequestFaults", "ClusterFaults", "settings"} <= set(described)
    assert last == "to see all of it: python -m tests.simulation --seed 4 --verbose"


def runner(monkeypatch: pytest.MonkeyPatch, arguments: str) -> int:
    """Return the exit status of `python -m tests.simulation`."""
    monkeypatch.setattr(sys, "argv", ["", *arguments.split()])
    return main()


def test_runner_prints_replay_command_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet: None
) -> None:
    with planted(BUGS["completions_come_twice"]):
        assert runner(monkeypatch, "--seeds 4:7") == 1
        printed = capsys.readouterr().out
        assert printed.startswith("seed 4: ")
        assert "seed 5: " not in printed
        command, replay = printed.splitlines()[-1].split(" -m tests.simulation ")
        assert command == "to see all of it: python"
        assert runner(monkeypatch, replay) == 1
        whole = capsys.readouterr().out
        assert printed.splitlines()[-2] in whole  # what happened last
        assert whole.index("settings: ") < whole.index("seed 4: ")  # the story comes first, all of it
        assert runner(monkeypatch, "--seeds 4:6 --keep-going") == 1
        assert "2 seeds, 2 failed" in capsys.readouterr().out


def test_the_runner_exits_with_0_where_all_worlds_are_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet: None
) -> None:
    assert runner(monkeypatch, "--seeds 3:7:2") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("2 seeds, 0 failed")
    assert "deliveries: " in printed
    assert "faults: " in printed


# What worlds are full of


def observe_outcomes(seed: int, world: Any, counts: Counter[str]) -> None:
    counts.update(world.application.outcomes)
    counts.update({f"fault: {name}": count for name, count in world.faults.counts.items()})


def observe_losses(seed: int, world: Any, counts: Counter[str]) -> None:
    rates = with_failing_leaders(WorldOptions.draw(seed)).cluster_faults
    if is_transactional(seed) or not (rates.fail_over or rates.elect_unclean):
        return
    counts.update(world.faults.counts)
    is_clean = not world.faults.counts.get("elect_unclean")
    for _, batch, was_replicated in world.cluster.lost:
        counts[f"{'clean' if is_clean else 'unclean'} {'' if was_replicated else 'not '}replicated"] += 1
        numbers = {record_number(record) for record in batch}
        found = [world.application.records[number].delivery for number in numbers]
        if world.settings["acks"] == "all":
            counts["sent again"] += sum(each is not None and each.exception() is None for each in found)


def observe_tables(seed: int, world: Any, counts: Counter[str]) -> None:
    tables = world.tables if isinstance(world, World) else None
    for table in tables.sent if tables is not None else ():
        counts["tables"] += 1
        counts["waited"] += table.attempt_count > 1
        if not table.was_refused:
            counts["rows"] += len(table.rows)
            counts["failed"] += table.report.failed_rows
            counts["not accepted"] += sum(row.delivery is None for row in table.rows)


def observe_transactions(seed: int, world: Any, counts: Counter[str]) -> None:
    if not is_transactional(seed):
        return
    observe_outcomes(seed, world, counts)
    counts["encoded"] += sum(isinstance(each, EncodedRecord) for each in world.application.records.values())


# How many of the first seeds each of them sees.
OBSERVERS: dict[str, tuple[int, Callable[[int, Any, Counter[str]], None]]] = {
    "outcomes": (60, observe_outcomes),
    "losses": (200, observe_losses),
    "tables": (60, observe_tables),
    "transactions": (120, observe_transactions),
}


def faults_of(counts: Counter[str]) -> set[str]:
    return {name.removeprefix("fault: ") for name in counts if name.startswith("fault: ")}


def test_worlds_have_records_that_arrive_and_records_that_fail(campaign: Block) -> None:
    counts = campaign.counts["outcomes"]
    faults = faults_of(counts)
    assert counts["succeeded"] > 1000
    assert len(counts) - len(faults) > 4
    assert len(faults) > 15


def test_worlds_lose_unreplicated_records_more_if_unclean(campaign: Block) -> None:
    counts = campaign.counts["losses"]
    assert counts["clean not replicated"] > 10
    assert counts["unclean replicated"] > 5
    assert counts["sent again"] > 5
    assert not counts["clean replicated"]
    assert {"fail_over", "elect_unclean"} <= counts.keys()


@pytest.mark.parametrize(
    ("acks", "was_replicated", "is_excused"),
    [("all", False, False), ("all", True, True), ("1", False, True), ("1", True, True)],
)
def test_acks_1_and_unclean_elections_excuse_acknowledged_loss(
    acks: str, was_replicated: bool, is_excused: bool, quiet: None
) -> None:
    world = simulate(0)
    assert isinstance(world, World)
    world.settings = world.settings | {"acks": acks, "enable.idempotence": False}
    for log_id, batches in Logs(world).batches.items():
        world.cluster.cut_off += [LostBatch(log_id[1:], batch, was_replicated) for batch in batches]
    world.cluster.state.cluster.topics.clear()
    if is_excused:
        check_deliveries(world, Logs(world))
        return
    with pytest.raises(Violation, match="was acknowledged and is in no log"):
        check_deliveries(world, Logs(world))


def test_worlds_have_waiting_tables_and_rows_that_arrive_or_fail(campaign: Block) -> None:
    counts = campaign.counts["tables"]
    assert counts["tables"] > 20
    assert counts["rows"] > 500
    assert min(counts["waited"], counts["failed"], counts["not accepted"]) > 5


def test_worlds_of_transactions_have_every_outcome(campaign: Block) -> None:
    counts = campaign.counts["transactions"]
    seen = min(len(WORLDS), OBSERVERS["transactions"][0])
    assert counts["encoded"] > 50
    assert counts["transaction committed"] > seen
    assert {f"transaction {each}" for each in ("aborted", "lost", "unknown")} <= counts.keys()
    faults = faults_of(counts)
    assert {"ghost", "crash", "crash in a call", "time-out of a call", "change_version"} <= faults
    assert counts["fault: offsets that are not waited for"] > seen // 2
    assert {"refused by a coordinator", "unanswered by a coordinator", "move_coordinator"} <= faults
