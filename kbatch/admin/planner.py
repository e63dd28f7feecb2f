"""Plans of reassignments: which replicas go where. Pure functions of what is there.

A plan moves as little as it can: a replica stays where it is if its broker may keep it. What is missing goes
to brokers in racks that the partition does not have yet, and among these to those with the fewest replicas.
So a plan spreads what it moves, and leaves alone what is uneven already. Planning its result gives no moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from kbatch.errors import InvalidReplicationFactorError
from kbatch.records import TopicPartition


class Move(NamedTuple):
    """New replicas of a partition.

    Attributes
    ----------
    partition : TopicPartition
    before, after : tuple of int
        The ids of brokers, the preferred leader first.
    """

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.partition}: {_shown(self.before)} -> {_shown(self.after)}"


class Plan(NamedTuple):
    """Moves of replicas; its text has one a line.

    Attributes
    ----------
    moves : tuple of Move
        In the order of the partitions.
    """

    moves: tuple[Move, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.moves)) or "nothing to move"


def plan_of(
    replicas: Mapping[TopicPartition, tuple[int, ...]],
    racks: Mapping[int, str | None],
    *,
    replication_factor: int | None = None,
) -> Plan:
    """Return the moves after which partitions have replicas on certain brokers only.

    Parameters
    ----------
    replicas : mapping of TopicPartition to tuple of int
        What is there.
    racks : mapping of int to str or None
        The brokers that may have replicas, and their racks.
    replication_factor : int or None
        How many replicas each partition is to have; None for as many as it has.

    Raises
    ------
    InvalidReplicationFactorError
        There are fewer brokers.
    """
    most = replication_factor or max(map(len, replicas.values()), default=0)
    if most > len(racks):
        raise InvalidReplicationFactorError(
            f"{most} replicas need {most} brokers, and there are {len(racks)}: lower the replication factor, "
            "or start more"
        )
    loads = Counter(dict.fromkeys(racks, 0))
    loads.update(broker for brokers in replicas.values() for broker in brokers if broker in racks)
    moves = []
    for partition in sorted(replicas):
        before = replicas[partition]
        after = _placed(before, replication_factor or len(before), racks, loads)
        if after != before:
            moves.append(Move(partition, before, after))
    return Plan(tuple(moves))


def _placed(
    before: tuple[int, ...], count: int, racks: Mapping[int, str | None], loads: Counter[int]
) -> tuple[int, ...]:
    """Return the new replicas of a partition, and count them."""
    kept = [broker for broker in before if broker in racks]
    while len(kept) > count:
        kept.remove(leaving := _to_leave(kept, racks, loads))
        loads[leaving] -= 1
    while len(kept) < count:
        used = {racks[broker] for broker in kept}
        coming = min(
            (broker for broker in racks if broker not in kept),
            key=lambda broker: (racks[broker] is not None and racks[broker] in used, loads[broker], broker),
        )
        kept.append(coming)
        loads[coming] += 1
    return tuple(kept)


def _to_leave(kept: Collection[int], racks: Mapping[int, str | None], loads: Counter[int]) -> int:
    """Return the replica to give up: not the preferred leader, if possible of a rack with others."""
    first, *others = kept
    shared = Counter(racks[broker] for broker in kept if racks[broker] is not None)
    return max(others or [first], key=lambda broker: (shared[racks[broker]] > 1, loads[broker], broker))


def _shown(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))
