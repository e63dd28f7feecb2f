"""The rounds of an engine's owner, without sockets and in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kbatch.core.client.actions import Close, Connect, Resolve, Write
from kbatch.metrics import MetricsRegistry
from kbatch.network.rounds import EngineRounds
from tests.unit.network.networking import NEVER, ScriptedEngine

HOUR_NS = 3_600_000_000_000


class Owner(EngineRounds):
    """An owner whose clock the test sets. Each action takes a millisecond."""

    def __init__(self, engine: ScriptedEngine, metrics: MetricsRegistry | None = None) -> None:
        self.now_ns = 0
        self.done: list[Any] = []
        super().__init__(engine, deliver=self.done.append, metrics=metrics, clock_ns=lambda: self.now_ns)

    def round(self, *, was_called: bool = False) -> int:
        """Do a round, and return how long the owner may wait."""
        return self._run_engine_on(0, self.now_ns, was_called=was_called)

    def post(self, function: Callable[[], object]) -> None:
        function()

    def _perform_one(self, action: Any) -> None:
        self.now_ns += 1_000_000
        self.done.append(action)

    _resolve = _connect = _write = _close = _perform_one


def busy_for(engine: ScriptedEngine, runs: int) -> None:
    """Let so many runs of the engine return an action each; it is quiet after them."""
    left = list(range(runs))

    def run() -> None:
        engine.rests = len(left) <= 1
        if left:
            engine.ask(Close(left.pop()))

    engine.on_run = run


ACTIONS = (Resolve("a", 1), Connect(1, 1, "a", 1, 2, ("a", 1)), Write(1, (b"x",), 1), Close(1))


def test_actions_are_performed_in_order_then_results_come() -> None:
    engine = ScriptedEngine()
    owner = Owner(engine)
    engine.ask(*ACTIONS)
    engine.completed = ["before"]  # type: ignore[list-item]
    engine.on_run = lambda: engine.completed.extend(["of the run"])  # type: ignore[list-item]
    engine.rests = True
    owner.round(was_called=True)
    assert owner.done == [["before"], *ACTIONS, ["of the run"]]


def test_results_of_every_run_are_delivered_in_the_round() -> None:
    engine = ScriptedEngine()
    owner = Owner(engine)
    left = ["first", "second"]

    def run() -> None:
        if left:
            engine.completed.append(left.pop(0))  # type: ignore[arg-type]
            engine.ask(Close(1))

    engine.on_run = run
    owner.round()
    assert [each for each in owner.done if isinstance(each, list)] == [["first"], ["second"]]


@pytest.mark.parametrize(("was_called", "runs"), [(False, 0), (True, 1)])
def test_quiet_engine_runs_only_if_it_is_called(was_called: bool, runs: int) -> None:
    engine = ScriptedEngine()
    engine.rests = True
    Owner(engine).round(was_called=was_called)
    assert engine.run_count == runs


@pytest.mark.parametrize("busy_runs", [1, 2, 7])
def test_engine_runs_until_it_is_quiet(busy_runs: int) -> None:
    engine = ScriptedEngine()
    engine.deadline = NEVER
    busy_for(engine, busy_runs)
    owner = Owner(engine)
    assert owner.round() == HOUR_NS
    assert engine.run_count == len(owner.done) == busy_runs


def test_busy_engine_stops_for_the_sockets_and_waits_not_at_all() -> None:
    engine = ScriptedEngine()
    busy_for(engine, 20)
    owner = Owner(engine)
    waits = [owner.round(), owner.round(), owner.round()]
    assert waits[:2] == [0, 0]
    assert waits[2] > 0
    assert engine.run_count == 20
    assert owner.round_count == 3


@pytest.mark.parametrize(
    ("deadline_ns", "wait_ns"),
    [(5_000_000, 4_000_000), (1_000_000, 0), (-1, 0), (NEVER, HOUR_NS)],
    ids=["later", "now", "past", "never"],
)
def test_wait_ends_at_the_deadline_of_the_engine(deadline_ns: int, wait_ns: int) -> None:
    engine = ScriptedEngine()
    engine.deadline = deadline_ns
    busy_for(engine, 1)  # until 1 ms
    assert Owner(engine).round() == wait_ns


def test_registered_actions_are_performed_and_stopped() -> None:
    class Own(NamedTuple):
        number: int

    engine = ScriptedEngine()
    owner = Owner(engine)
    owner.register(Own, lambda action: owner.done.append(action.number), lambda: owner.done.append("end"))
    engine.ask(Own(7))
    engine.rests = True
    owner.round(was_called=True)
    owner._stop_registered()
    assert owner.done == [7, "end"]


def test_time_of_actions_counts_as_io() -> None:
    metrics = MetricsRegistry("test")
    engine = ScriptedEngine()
    engine.ask(*ACTIONS)
    engine.rests = True
    Owner(engine, metrics).round(was_called=True)
    values = {name.name: value for name, value in metrics.snapshot(10**9).items()}
    assert values["io-time-ns-total"] == len(ACTIONS) * 1_000_000
