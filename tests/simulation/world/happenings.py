"""Happenings: what happens in a world at random times, and ends by itself or when all is healed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.simulation.world.schedule import MS, SECOND, WALL_MS

if TYPE_CHECKING:
    from tests.simulation.world.cluster import Ground


class Happenings:
    """What happens, drawn from the seed of a world.

    Attributes
    ----------
    is_active : bool
        Faults happen; until `heal`.
    counts : dict of str to int
        How often each has happened.
    """

    def __init__(self, world: Ground) -> None:
        self.world = world
        self.is_active = True
        self.counts: dict[str, int] = {}
        self._random: random.Random = world.random
        self._undo: list[Callable[[], None]] = []

    def note(self, name: str) -> None:
        """Count a fault, or an event of the programs."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def _happens(self, probability: float) -> bool:
        return self.is_active and probability > 0 and self._random.random() < probability

    def _begin(self, rates: Any, happenings: Mapping[str, Callable[[Any], None]]) -> None:
        for name, happen in happenings.items():
            rate = getattr(rates, name)
            if rate > 0:
                self._after_a_while(rate, name, happen)

    def _after_a_while(self, rate: float, name: str, happen: Callable[[Any], None]) -> None:
        def go() -> None:
            if self.is_active:
                if not self.world.cluster.missing:  # one of them at a time is enough, then
                    self.note(name)
                    happen(self)
                self._after_a_while(rate, name, happen)

        self.world.schedule.after(int(self._random.expovariate(rate) * SECOND), go)

    def heal(self) -> None:
        """End all faults."""
        self.is_active = False
        self.world.schedule.wall_offset_ns = WALL_MS * MS
        self.world.trace("!! all is well from now on")
        for undo in self._undo:
            undo()

    def _for_a_while(self, longest_ms: int, undo: Callable[[], None]) -> None:
        """Schedule one call of `undo()`, within `longest_ms` or when all heals."""

        def once() -> None:
            if once in self._undo:
                self._undo = [other for other in self._undo if other is not once]
                undo()

        self._undo.append(once)
        self.world.schedule.after(int(self._random.random() * longest_ms * MS), once)

    def _any_topic(self) -> Any:
        return self._random.choice(list(self.world.cluster.state.cluster.topics.values()))

    def _any_partition(self) -> Any:
        return self._random.choice(self._any_topic().partitions)
