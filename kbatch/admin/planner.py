"""Plans of reassignments: which replicas go where. Pure functions of what is there.

A plan moves as little as it can: a replica stays where it is if its broker may keep it. What is missing goes
to brokers in racks that the partition does not have yet, and among these to those with the fewest replicas.
Then new replicas are exchanged between brokers while that makes the numbers of replicas more even: no copy
is added, and no partition has replicas in fewer racks. So a plan spreads what it moves, and leaves alone what
is uneven already. Planning its result gives no moves.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
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
    leader : int or None
        Who leads it now; None if no broker does.
    copied_bytes : int or None
        What brokers copy for it: the log, to each broker that does not have it yet. None if no broker told
        its size.
    """

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    leader: int | None = None
    copied_bytes: int | None = None

    @property
    def moves_leader(self) -> bool:
        """True if another broker leads it in the end."""
        return self.leader != self.after[0]

    def __str__(self) -> str:
        leader = f", leader {'none' if self.leader is None else self.leader} -> {self.after[0]}"
        return (
            f"{self.partition}: {_shown(self.before)} -> {_shown(self.after)}, "
            f"{_shown_bytes(self.copied_bytes)} to copy{leader if self.moves_leader else ''}"
        )


class Plan(NamedTuple):
    """Moves of replicas; its text has one a line, and then what all of them take.

    Attributes
    ----------
    moves : tuple of Move
        In the order of the partitions.
    """

    moves: tuple[Move, ...]

    @property
    def copied_bytes(self) -> int | None:
        """What brokers copy; None if that of a move is unknown."""
        copied = [move.copied_bytes for move in self.moves]
        return None if None in copied else sum(each or 0 for each in copied)

    @property
    def moved_leaders(self) -> int:
        """How many partitions another broker leads in the end."""
        return sum(move.moves_leader for move in self.moves)

    def __str__(self) -> str:
        if not self.moves:
            return "nothing to move"
        count = f"{len(self.moves)} partition{'' if len(self.moves) == 1 else 's'}"
        total = f"{count}, {_shown_bytes(self.copied_bytes)} to copy, leaders that move: {self.moved_leaders}"
        return "\n".join([*map(str, self.moves), total])


def plan_of(
    replicas: Mapping[TopicPartition, tuple[int, ...]],
    racks: Mapping[int, str | None],
    *,
    replication_factor: int | None = None,
    leaders: Mapping[TopicPartition, int | None] | None = None,
    sizes: Mapping[TopicPartition, int] | None = None,
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
    leaders : mapping of TopicPartition to int or None
        Who leads now; None for the preferred leaders.
    sizes : mapping of TopicPartition to int
        How many bytes a replica has; what is missing is unknown.

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
    targets = {
        partition: _target(replicas[partition], replication_factor or len(replicas[partition]), racks, loads)
        for partition in sorted(replicas)
    }
    while (path := _evening_path(replicas, targets, racks, loads)) is not None:
        for exchange in path:
            exchange.apply(targets, loads)
    moves = [
        Move(
            partition,
            replicas[partition],
            tuple(target),
            replicas[partition][0] if leaders is None else leaders[partition],
            _copied_bytes(replicas[partition], target, (sizes or {}).get(partition)),
        )
        for partition, target in targets.items()
        if tuple(target) != replicas[partition]
    ]
    return Plan(tuple(moves))


def _copied_bytes(before: Collection[int], after: Collection[int], size: int | None) -> int | None:
    count = len(set(after) - set(before))
    return 0 if count == 0 else None if size is None else count * size


def _target(
    before: tuple[int, ...], count: int, racks: Mapping[int, str | None], loads: Counter[int]
) -> list[int]:
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
    return kept


def _to_leave(kept: Collection[int], racks: Mapping[int, str | None], loads: Counter[int]) -> int:
    """Return the replica to give up: not the preferred leader, if possible of a rack with others."""
    first, *others = kept
    shared = Counter(racks[broker] for broker in kept if racks[broker] is not None)
    return max(others or [first], key=lambda broker: (shared[racks[broker]] > 1, loads[broker], broker))


class _Exchange(NamedTuple):
    """A new replica of a partition that goes to another broker instead."""

    partition: TopicPartition
    source: int
    target: int

    def apply(self, targets: Mapping[TopicPartition, list[int]], loads: Counter[int]) -> None:
        brokers = targets[self.partition]
        brokers[brokers.index(self.source)] = self.target
        loads[self.source] -= 1
        loads[self.target] += 1


def _evening_path(
    replicas: Mapping[TopicPartition, tuple[int, ...]],
    targets: Mapping[TopicPartition, list[int]],
    racks: Mapping[int, str | None],
    loads: Counter[int],
) -> list[_Exchange] | None:
    """Return exchanges that take a replica from a broker, over others, to one that has at least two fewer;
    None if there are none: then no choice of brokers for new replicas is more even.
    """
    new = defaultdict(list)
    for partition, brokers in targets.items():
        for broker in brokers:
            if broker not in replicas[partition]:
                new[broker].append(partition)
    fewest = min((loads[broker] for broker in racks), default=0)
    for first in sorted(new, key=lambda broker: (-loads[broker], broker)):
        if loads[first] - fewest < 2:
            break
        path = _path_from(first, new, targets, racks, loads)
        if path is not None:
            return path
    return None


def _path_from(
    first: int,
    new: Mapping[int, Sequence[TopicPartition]],
    targets: Mapping[TopicPartition, list[int]],
    racks: Mapping[int, str | None],
    loads: Counter[int],
) -> list[_Exchange] | None:
    """Return the shortest such exchanges from this broker; `new` has the partitions that come to a broker."""
    reached: dict[int, list[_Exchange]] = {first: []}
    queue = deque([first])
    while queue:
        source = queue.popleft()
        path = reached[source]
        exchanged = {exchange.partition for exchange in path}
        for partition in new.get(source, ()):
            if partition in exchanged:
                continue
            for target in _replacements(targets[partition], source, racks):
                if target not in reached:
                    reached[target] = [*path, _Exchange(partition, source, target)]
                    if loads[first] - loads[target] >= 2:
                        return reached[target]
                    queue.append(target)
    return None


def _replacements(target: Collection[int], source: int, racks: Mapping[int, str | None]) -> list[int]:
    """Return the brokers that may have a replica instead of `source`, with as many racks as before."""
    others = [broker for broker in target if broker != source]
    used = {racks[broker] for broker in others if racks[broker] is not None}
    needs_rack = racks[source] is not None and racks[source] not in used
    return [
        broker
        for broker in sorted(racks)
        if broker not in target and not (needs_rack and (racks[broker] is None or racks[broker] in used))
    ]


def _shown(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


def _shown_bytes(count: int | None) -> str:
    """Return a number of bytes as people read it."""
    if count is None:
        return "unknown bytes"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:,.3g} TB"
