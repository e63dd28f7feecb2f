"""The assignors of the group coordinator: who of a group reads which partition (KIP-848, KIP-932).

Each takes the members, with the partitions that the last target gave them, and returns the next target of
every member. `uniform` keeps what it can and balances the number of partitions over all topics. `range` gives
each member neighbouring partitions of each topic, whatever it had. Members of a share group share partitions:
`assign_shared` gives each partition to as many members as are needed to give each member something.

The rules follow UniformAssignor, its two builders, RangeAssignor and SimpleAssignor of Kafka 4.3.1. Where
Kafka goes through members and topics in the order of a hash table, these go in the order of the members
given, and of topic ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

# The id of a topic, and the index of a partition
TopicIdPartition = tuple[bytes, int]
Target = frozenset[TopicIdPartition]

# UniformHeterogeneousAssignmentBuilder.MAX_ITERATION_COUNT
MAX_BALANCE_ROUNDS = 16


class Subscriber(NamedTuple):
    """A member as the assignors see it.

    Attributes
    ----------
    member_id : str
    instance_id : str or None
    topic_ids : frozenset of bytes
        Subscribed topics that exist.
    target : frozenset of (topic id, index)
        The partitions that the last target gave to the member.
    """

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[bytes]
    target: Target


Assignor = Callable[[Sequence[Subscriber], Mapping[bytes, int]], dict[str, Target]]


def assign_uniformly(
    subscribers: Sequence[Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, Target]:
    """Return targets whose sizes differ by one at most, as far as the subscriptions allow it."""
    if not subscribers:
        return {}
    if all(each.topic_ids == subscribers[0].topic_ids for each in subscribers):
        return _assign_alike(subscribers, partition_counts)
    return _Balance(subscribers, partition_counts).assign()


def _assign_alike(
    subscribers: Sequence[Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, Target]:
    """Assign uniformly to members with the same topics: each keeps what it has, up to its share."""
    everything = _partitions(subscribers[0].topic_ids, partition_counts)
    taken = {partition for each in subscribers for partition in each.target}
    free = [partition for partition in everything if partition not in taken]
    share, extras = divmod(len(everything), len(subscribers))
    targets, room = {}, {}
    for number, each in enumerate(subscribers):
        owned = sorted(each.target.intersection(everything))
        takes_extra = extras > 0
        quota = share + takes_extra
        # A member without use for an extra partition leaves it to a later one, if one is left.
        if takes_extra and len(owned) < quota and len(subscribers) - number > extras:
            takes_extra = False
            quota = share
        extras -= takes_extra
        targets[each.member_id] = owned[:quota]
        free += owned[quota:]
        room[each.member_id] = quota - len(targets[each.member_id])
    for member_id, count in room.items():
        targets[member_id] += free[:count]
        del free[:count]
    return {member_id: frozenset(partitions) for member_id, partitions in targets.items()}


class _Balance:
    """Unfinished targets of members with different topics."""

    def __init__(self, subscribers: Sequence[Subscriber], partition_counts: Mapping[bytes, int]) -> None:
        self._counts = partition_counts
        self._readers: dict[bytes, list[str]] = {}
        for each in subscribers:
            for topic_id in each.topic_ids:
                self._readers.setdefault(topic_id, []).append(each.member_id)
        self._topic_ids = sorted(self._readers, key=self._topic_order)
        self._targets = {
            each.member_id: each.target.intersection(_partitions(each.topic_ids, partition_counts))
            for each in subscribers
        }

    def assign(self) -> dict[str, Target]:
        taken = {partition for target in self._targets.values() for partition in target}
        for topic_id in self._topic_ids:
            for partition in _partitions([topic_id], self._counts):
                if partition not in taken:
                    reader = min(self._readers[topic_id], key=self._load)
                    self._targets[reader] |= {partition}
        for _ in range(MAX_BALANCE_ROUNDS):
            if not sum(self._balance(topic_id) for topic_id in self._topic_ids):
                break
        return self._targets

    def _topic_order(self, topic_id: bytes) -> tuple[float, int, bytes]:
        """Return a sort key: topics with many partitions a reader go first, while there is most freedom."""
        readers = len(self._readers[topic_id])
        return -self._counts[topic_id] / readers, readers, topic_id

    def _load(self, member_id: str) -> int:
        return len(self._targets[member_id])

    def _balance(self, topic_id: bytes) -> int:
        """Move partitions of a topic from its busiest reader to its idlest one; return how many moved."""
        moved = 0
        readers = self._readers[topic_id]
        while True:
            owned = {each: [p for p in self._targets[each] if p[0] == topic_id] for each in readers}
            giver = max((each for each in readers if owned[each]), key=self._load, default=None)
            taker = min(readers, key=self._load)
            if giver is None or self._load(giver) - self._load(taker) < 2:
                return moved
            partition = max(owned[giver])
            self._targets[giver] -= {partition}
            self._targets[taker] |= {partition}
            moved += 1


def assign_ranges(
    subscribers: Sequence[Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, Target]:
    """Return targets of neighbouring partitions of each topic.

    Static members come first, in the order of their instance ids, so that they keep the same ranges.
    """
    ordered = sorted(
        subscribers, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id)
    )
    targets: dict[str, set[TopicIdPartition]] = {each.member_id: set() for each in subscribers}
    for topic_id in {topic_id for each in subscribers for topic_id in each.topic_ids}:
        readers = [each.member_id for each in ordered if topic_id in each.topic_ids]
        share, extras = divmod(partition_counts[topic_id], len(readers))
        start = 0
        for number, member_id in enumerate(readers):
            end = start + share + (number < extras)
            targets[member_id].update((topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in targets.items()}


def assign_shared(
    topics_of: Mapping[str, frozenset[str]],
    partitions_of: Mapping[str, Sequence[TopicIdPartition]],
    current: Mapping[str, Target],
) -> dict[str, Target]:
    """Return the targets of a share group's members: of all topics together if all read the same, else topic
    by topic. `partitions_of` has the subscribed topics that exist.
    """
    targets: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in topics_of}
    if len(set(topics_of.values())) == 1:
        every = [partition for partitions in partitions_of.values() for partition in partitions]
        _share_out(sorted(topics_of), every, current, targets)
    else:
        for topic, partitions in partitions_of.items():
            readers = sorted(member_id for member_id, topics in topics_of.items() if topic in topics)
            _share_out(readers, partitions, current, targets)
    return {member_id: frozenset(target) for member_id, target in targets.items()}


def _share_out(
    member_ids: Sequence[str],
    partitions: Sequence[TopicIdPartition],
    current: Mapping[str, Target],
    targets: Mapping[str, set[TopicIdPartition]],
) -> None:
    """Add the partitions to the members' targets. A member keeps what it has, up to its count."""
    if not member_ids or not partitions:
        return
    sharing = -(-len(member_ids) // len(partitions))
    seats = sharing * len(partitions)
    room = dict.fromkeys(partitions, sharing)
    missing: dict[str, int] = {}
    for number, member_id in enumerate(member_ids):
        count = seats * (number + 1) // len(member_ids) - seats * number // len(member_ids)
        kept = [each for each in sorted(current.get(member_id, ())) if room.get(each)][:count]
        for each in kept:
            room[each] -= 1
        targets[member_id].update(kept)
        missing[member_id] = count - len(kept)
    for member_id, count in missing.items():
        free = [each for each in partitions if room[each] and each not in targets[member_id]]
        for each in sorted(free, key=lambda partition: -room[partition])[:count]:
            room[each] -= 1
            targets[member_id].add(each)


def _partitions(topic_ids: Iterable[bytes], partition_counts: Mapping[bytes, int]) -> list[TopicIdPartition]:
    return [
        (topic_id, index) for topic_id in sorted(topic_ids) for index in range(partition_counts[topic_id])
    ]


# group.consumer.assignors; the first one is the default.
ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
