"""Bugs in the rounds of an engine's owner that the simulator must see (planted_bugs.py)."""

from __future__ import annotations

from typing import Any

from kbatch.network.rounds import EngineRounds
from tests.simulation.planted.planting import plants


@plants(EngineRounds, "_run_engine")
def what_a_run_completes_waits_for_the_next_round(original: Any) -> Any:
    """Batches that a run of the engine completed are handed over when something else happens."""

    def run_engine(self: Any) -> bool:
        self._deliver_completed = lambda: None
        try:
            return bool(original(self))
        finally:
            del self._deliver_completed

    return run_engine


@plants(EngineRounds, "_run_engine")
def an_action_is_performed_twice(original: Any) -> Any:
    """The last action of a run is performed again."""

    def run_engine(self: Any) -> bool:
        has_acted = original(self)
        for action in self._actions[-1:]:
            self._perform[type(action)](action)
        return bool(has_acted)

    return run_engine


@plants(EngineRounds, "_run_engine_on")
def the_deadline_of_the_engine_is_ignored(original: Any) -> Any:
    """The owner waits for events only."""

    def run_engine_on(self: Any, *waited: int, was_called: bool) -> int:
        return 3_600_000_000_000 if original(self, *waited, was_called=was_called) else 0

    return run_engine_on


@plants(EngineRounds, "_run_engine_on")
def a_quiet_engine_is_not_run_when_called(original: Any) -> Any:
    """A call of the sender's alarm is lost where the engine finds no cause for it any more."""

    def run_engine_on(self: Any, *waited: int, was_called: bool) -> int:
        return int(original(self, *waited, was_called=False))

    return run_engine_on
