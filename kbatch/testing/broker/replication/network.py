"""Network: who reaches whom in the embedded cluster; a test cuts, and heals.

Parties are the ids of nodes, "controller" and "clients". Cut off means that nothing comes through, and no
connection breaks: what clients send is read after the network is healed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import combinations, product

CONTROLLER, CLIENTS = "controller", "clients"


class Network:
    def __init__(self, node_count: int) -> None:
        self._parties: list[Hashable] = [*range(node_count), CONTROLLER, CLIENTS]
        self._cuts: set[frozenset[Hashable]] = set()

    def reaches(self, party: Hashable, other: Hashable) -> bool:
        return not self._cuts or frozenset((party, other)) not in self._cuts

    def cut(self, party: Hashable, others: Iterable[Hashable]) -> None:
        self._cuts.update(frozenset((party, other)) for other in others if other != party)

    def partition(self, groups: Iterable[Iterable[Hashable]]) -> None:
        """Cut every party off from those of other groups; who is in no group reaches all."""
        sets = [set(group) for group in groups]
        named = [party for group in sets for party in group]
        for party in named:
            self.check(party)
        if len(set(named)) < len(named):
            raise ValueError(f"groups must have no party twice, got {sets}")
        for one, other in combinations(sets, 2):
            self._cuts.update(map(frozenset, product(one, other)))

    def mend(self, party: Hashable) -> None:
        """End what a party was cut off from."""
        self._cuts = {cut for cut in self._cuts if party not in cut}

    def heal(self) -> None:
        self._cuts.clear()

    def check(self, party: Hashable) -> None:
        """Raise ValueError if there is no such party."""
        if party not in self._parties:
            names = ", ".join(map(repr, self._parties))
            raise ValueError(f"a party must be one of {names}, got {party!r}")
