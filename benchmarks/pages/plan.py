"""How much to measure, and where."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kbatch.bench.cluster import Cluster

QUICK_ROUNDS, QUICK_RECORDS, QUICK_SHARE = 2, 1_000, 0.05


@dataclass(frozen=True)
class Plan:
    """The plan of a run: `cluster` opens a broker for a group; `rounds` replaces the groups' own numbers."""

    cluster: Callable[[], AbstractContextManager[Cluster]]
    quick: bool = False
    rounds: int | None = None

    def rounds_of(self, usual: int) -> int:
        return self.rounds or (min(QUICK_ROUNDS, usual) if self.quick else usual)

    def records_of(self, usual: int) -> int:
        return min(usual, max(QUICK_RECORDS, int(usual * QUICK_SHARE))) if self.quick else usual
