"""Bugs in the rounds of an engine's owner that the simulator must see (planted_bugs.py)."""

from __future__ import annotations

from typing import Any

from kbatch.network.rounds import EngineRounds
from tests.simulation.planted.planting import plants


@plants(EngineRounds, "_run_engine")
def what_a_run_completes_waits_for_the_next_round(original: Any, self: Any) -> bool:
    """Batches that a run of the engine completed are handed over when something else happens."""
    self._deliver_completed = lambda: None
    try:
        return bool(original(self))
    finally:
        del self._deliver_completed


@plants(EngineRounds, "_run_engine")
def an_action_is_performed_twice(original: Any, self: Any) -> bool:
    """The last action of a run is performed again."""
    has_acted = original(self)
    for action in self._actions[-1:]:
        self._perform[type(action)](action)
    return bool(has_acted)


@plants(EngineRounds, "_run_engine_on")
def the_deadline_of_the_engine_is_ignored(original: Any, self: Any, *waited: int, was_called: bool) -> int:
    """The owner waits for events only."""
    return 3_600_000_000_000 if original(self, *waited, was_called=was_called) else 0


@plants(EngineRounds, "_run_engine_on")
def a_quiet_engine_is_not_run_when_called(original: Any, self: Any, *waited: int, was_called: bool) -> int:
    """A call of the sender's alarm is lost where the engine finds no cause for it any more."""
    return int(original(self, *waited, was_called=False))
