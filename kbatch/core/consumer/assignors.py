"""The assignors of classic groups: which member gets which partitions.

Theory of operation. The group's leader has every member's subscription, and makes the assignment by the
assignor that all members support. A group may have leaders of several clients in turn, so for the same group
each assignor gives what Java's gives, down to the order of the partitions; `java_order` is a part of that.

- *range*: each topic by itself, in consecutive ranges; topics alike are divided alike.
- *roundrobin*: all partitions of all topics, one after the other.
- *sticky*: even numbers of partitions, and each member keeps what it had as far as that allows.
- *cooperative-sticky*: the same, but a partition that moves is first taken from its owner, and assigned in
  the next rebalance, so that members keep reading what they keep (KIP-429).

If members subscribe to the same topics, sticky needs one pass (`_EvenShares`). Otherwise it moves partitions
one by one while that makes shares more even (`_UnevenShares`). A partition that two members claim goes to the
later generation; in the same generation to neither.

Members with a client.rack prefer partitions with a replica there, as far as shares stay even (KIP-881).

Three differences from Java's sticky assignors are on purpose. Claims of partitions that do not exist any more
are ignored; Java's leader fails then. A partition does not move back to a member that no longer subscribes to
its topic. A member that subscribes to nothing gets nothing, whatever the order of members.

After org.apache.kafka.clients.consumer.RangeAssignor, RoundRobinAssignor, StickyAssignor,
CooperativeStickyAssignor and internals.AbstractStickyAssignor.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice
from typing import NamedTuple

from kbatch.config.values import assignor_name
from kbatch.core.consumer.consumer_protocol import NO_GENERATION, MemberSubscription, partitions_by_topic
from kbatch.core.consumer.java_order import hash_order, partition_hash, sort_key, string_hash, table_size
from kbatch.records import TopicPartition

# The racks of the replicas of each partition of a topic, in the order of partitions.
PartitionRacks = Sequence[frozenset[str]]
Topics = Mapping[str, PartitionRacks]
# The members of a group, by member id.
Members = Mapping[str, MemberSubscription]
Assignment = dict[str, list[TopicPartition]]


class LastAssignment(NamedTuple):
    """The last assignment of a member by an assignor, and its generation."""

    partitions: Sequence[TopicPartition]
    generation_id: int


class Assignor(NamedTuple):
    """An assignor.

    Attributes
    ----------
    name : str
        Its name in the protocol.
    is_cooperative : bool
        True if members may keep their partitions in a rebalance.
    assign : callable
        Makes the assignment of each member from the racks of the topics' partitions, and the members'
        subscriptions in the coordinator's order. Topics without partitions are left out.
    user_data : callable
        Makes a member's user data from its last assignment, or None if it had none.
    """

    name: str
    is_cooperative: bool
    assign: Callable[[Topics, Members], Assignment]
    user_data: Callable[[LastAssignment | None], bytes | None]


class _Group:
    """Members and topics, in the order in which Java iterates over them."""

    def __init__(self, racks: Topics, members: Members) -> None:
        self.members = {member: members[member] for member in hash_order(members, string_hash)}
        wanted = hash_order((topic for each in self.members.values() for topic in each.topics), string_hash)
        known = [topic for topic in wanted if racks.get(topic)]
        self.racks = {topic: racks[topic] for topic in hash_order(known, string_hash)}

    @property
    def partition_count(self) -> int:
        return sum(map(len, self.racks.values()))

    def has(self, partition: TopicPartition) -> bool:
        return 0 <= partition.partition < len(self.racks.get(partition.topic, ()))

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all partitions of the topics."""
        return [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in range(len(self.racks[topic]))
        ]

    def members_in_order(self) -> list[str]:
        """Return static members by their instance id, then the others by their member id."""

        def key(member: str) -> tuple[bool, bytes]:
            instance_id = self.members[member].instance_id
            return instance_id is None, sort_key(member if instance_id is None else instance_id)

        return sorted(self.members, key=key)

    def empty_assignment(self) -> Assignment:
        return {member: [] for member in self.members}


def _do_racks_matter(member_racks: Iterable[str], partitions: PartitionRacks) -> bool:
    """True if members are in racks of replicas, and replicas are not the same racks for every partition."""
    used = frozenset[str]().union(*partitions)
    return not used.isdisjoint(member_racks) and any(racks != used for racks in partitions)


# range


class _RangeShares:
    """How the partitions of a topic are divided, as far as that is decided."""

    def __init__(
        self, topic: str, racks: PartitionRacks, members: list[str], rack_of: Mapping[str, str]
    ) -> None:
        self.topic = topic
        self.racks = racks
        self.members = members
        self._rack_of = rack_of
        self._unassigned = dict.fromkeys(range(len(racks)))
        self._quota, self._extras = divmod(len(racks), len(members))
        self._counts = dict.fromkeys(members, 0)
        member_racks = {rack_of[member] for member in members if member in rack_of}
        self.has_racks = bool(member_racks)
        self.do_racks_matter = _do_racks_matter(member_racks, racks)

    def room(self, member: str) -> int:
        """Return the number of partitions that the member may still get."""
        return max(self._quota + (self._extras > 0) - self._counts[member], 0)

    def is_near(self, member: str, partition: int) -> bool:
        """True if the partition has a replica in the member's rack, or the member has none."""
        rack = self._rack_of.get(member)
        return rack is None or rack in self.racks[partition]

    def give(self, member: str, partitions: Sequence[int], assignment: Assignment) -> None:
        assignment[member] += [TopicPartition(self.topic, partition) for partition in partitions]
        self._counts[member] += len(partitions)
        if self._counts[member] > self._quota:
            self._extras -= 1
        for partition in partitions:
            del self._unassigned[partition]

    def give_ranges(self, assignment: Assignment, may_get: Callable[[str, int], bool]) -> None:
        """Give each member as many of the next partitions that it may get as it has room for."""
        for member in self.members:
            fitting = (partition for partition in self._unassigned if may_get(member, partition))
            if partitions := list(islice(fitting, self.room(member))):
                self.give(member, partitions, assignment)


def _assign_range(racks: Topics, members: Members) -> Assignment:
    group = _Group(racks, members)
    rack_of = {member: each.rack for member, each in group.members.items() if each.rack}
    members_of: dict[str, list[str]] = defaultdict(list)
    for member in group.members_in_order():
        for topic in dict.fromkeys(group.members[member].topics):
            members_of[topic].append(member)
    topics = [_RangeShares(topic, each, members_of[topic], rack_of) for topic, each in group.racks.items()]
    assignment = group.empty_assignment()
    do_racks_matter = any(shares.do_racks_matter for shares in topics)
    if do_racks_matter:
        _assign_near(topics, assignment)
    for shares in topics:
        shares.give_ranges(assignment, lambda _member, _partition: True)
    if do_racks_matter:
        for partitions in assignment.values():
            partitions.sort()
    return assignment


def _assign_near(topics: Iterable[_RangeShares], assignment: Assignment) -> None:
    """Assign partitions to members in the racks of their replicas. If several topics are alike, partitions of
    the same number go to the same member.
    """
    alike: dict[tuple[tuple[str, ...], int], list[_RangeShares]] = defaultdict(list)
    for shares in topics:
        if shares.has_racks:
            alike[tuple(shares.members), len(shares.racks)].append(shares)
    for (members, count), together in alike.items():
        if len(together) > 1:
            _assign_together(members, count, together, assignment)
        elif together[0].do_racks_matter:
            together[0].give_ranges(assignment, together[0].is_near)


def _assign_together(
    members: Iterable[str], count: int, topics: Sequence[_RangeShares], assignment: Assignment
) -> None:
    """Assign each partition of all the topics to the first member that is near to all, and has room."""
    for partition in range(count):
        for member in members:
            if all(shares.is_near(member, partition) and shares.room(member) for shares in topics):
                for shares in topics:
                    shares.give(member, [partition], assignment)
                break


# roundrobin


def _assign_round_robin(racks: Topics, members: Members) -> Assignment:
    group = _Group(racks, members)
    topics_of = {member: frozenset(each.topics) for member, each in group.members.items()}
    members_in_order = cycle(group.members_in_order())
    assignment = group.empty_assignment()
    for partition in group.partitions(sorted(group.racks)):
        member = next(member for member in members_in_order if partition.topic in topics_of[member])
        assignment[member].append(partition)
    return assignment


# sticky and cooperative-sticky: claims


class _Claim(NamedTuple):
    """The partitions that a member had, and the generation in which it had them, if it says that."""

    partitions: Sequence[TopicPartition]
    generation_id: int | None


_USER_DATA_GENERATION = struct.Struct(">i")


def _encode_last_assignment(last: LastAssignment | None) -> bytes | None:
    """Return the user data of sticky: topics with their partitions, and the generation."""
    if last is None:
        return None
    by_topic = partitions_by_topic(last.partitions)
    parts = [struct.pack(">i", len(by_topic))]
    # HashMap.computeIfAbsent puts a key before the others of its bucket, and grows one key later than put
    for topic in hash_order(reversed(by_topic), string_hash, table_size(len(by_topic) - 1)):
        name, numbers = topic.encode(), by_topic[topic]
        parts.append(struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
    return b"".join(parts) + _USER_DATA_GENERATION.pack(last.generation_id)


def _decode_last_assignment(data: bytes) -> _Claim:
    """Return the claim in the user data of sticky. Other bytes claim nothing (StickyAssignor)."""
    partitions: list[TopicPartition] = []
    try:
        (topic_count,), position = struct.unpack_from(">i", data), 4
        for _ in range(_checked_count(topic_count, data)):
            (length,) = struct.unpack_from(">h", data, position)
            name, count = struct.unpack_from(f">{_checked_count(length, data)}si", data, position + 2)
            position += 6 + length
            numbers = struct.unpack_from(f">{_checked_count(count, data)}i", data, position)
            position += 4 * count
            topic = name.decode()
            partitions += [TopicPartition(topic, number) for number in numbers]
    except (ValueError, struct.error):
        return _Claim((), NO_GENERATION)
    if len(data) < position + _USER_DATA_GENERATION.size:
        return _Claim(partitions, None)  # version 0
    return _Claim(partitions, _USER_DATA_GENERATION.unpack_from(data, position)[0])


def _checked_count(count: int, data: bytes) -> int:
    """Return a length or count of `data`. Raise ValueError if `data` cannot have as many elements."""
    if not 0 <= count <= len(data):
        raise ValueError(f"{count} elements in {len(data)} bytes")
    return count


def _encode_last_generation(last: LastAssignment | None) -> bytes:
    """Return the user data of cooperative-sticky: the generation."""
    return _USER_DATA_GENERATION.pack(NO_GENERATION if last is None else last.generation_id)


def _sticky_claim(member: MemberSubscription) -> _Claim:
    """Return what the user data claim: members of an eager group own nothing while they join."""
    return _decode_last_assignment(member.user_data) if member.user_data else _Claim((), None)


def _cooperative_claim(member: MemberSubscription) -> _Claim:
    """Return what the member owns. Before KIP-792 the generation was in the user data."""
    if member.generation_id != NO_GENERATION:
        return _Claim(member.owned, member.generation_id)
    if member.user_data is None:
        return _Claim(member.owned, None)
    if len(member.user_data) < _USER_DATA_GENERATION.size:
        return _Claim(member.owned, NO_GENERATION)
    return _Claim(member.owned, _USER_DATA_GENERATION.unpack_from(member.user_data)[0])


def _accept_claims(group: _Group, claims: Mapping[str, _Claim]) -> tuple[Assignment, set[TopicPartition]]:
    """Return what each member owns, and the partitions that two members claim in the same generation."""
    owned: Assignment = {}
    owner_of: dict[TopicPartition, str] = {}
    contested: set[TopicPartition] = set()
    for member, claim in claims.items():
        owned[member] = []
        generation_id = NO_GENERATION if claim.generation_id is None else claim.generation_id
        for partition in claim.partitions:
            if not group.has(partition):
                continue
            other = owner_of.get(partition)
            if other is not None:
                other_generation_id = group.members[other].generation_id
                if generation_id < other_generation_id:
                    continue
                if partition in owned[other]:
                    owned[other].remove(partition)
                if generation_id == other_generation_id:
                    contested.add(partition)
            owner_of[partition] = member
            if other is None or generation_id > other_generation_id:
                owned[member].append(partition)
    return owned, contested


class _Racks:
    """The racks of members and replicas, as far as they matter to the group."""

    def __init__(self, group: _Group) -> None:
        rack_of = {member: each.rack for member, each in group.members.items() if each.rack}
        self._racks = group.racks
        self._members_in = Counter(rack_of.values())
        do_matter = _do_racks_matter(
            self._members_in, [each for topic in group.racks.values() for each in topic]
        )
        self._rack_of = rack_of if do_matter else {}

    @property
    def do_matter(self) -> bool:
        return bool(self._rack_of)

    def is_far(self, member: str, partition: TopicPartition) -> bool:
        """True if the partition has no replica in the member's rack."""
        rack = self._rack_of.get(member)
        return rack is not None and rack not in self._racks[partition.topic][partition.partition]

    def near_members(self, partition: TopicPartition) -> int:
        """Return the number of members in the racks of the partition's replicas."""
        return sum(self._members_in[rack] for rack in self._racks[partition.topic][partition.partition])

    def next_near(self, partition: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """Return the index of the next member, from `first` on and around, in a rack of the partition's."""
        racks = self._racks[partition.topic][partition.partition]
        for step in range(len(members)):
            index = (first + step) % len(members)
            if self._rack_of.get(members[index]) in racks:
                return index
        return None


# sticky and cooperative-sticky: members with the same topics


class _EvenShares:
    """An assignment for members that subscribe to the same topics.

    Every member gets `low` partitions, and `extras` members one more. First members keep what they own, up to
    these numbers. The others go round the members that are `below` low, and at last to members `at_low`.

    Attributes
    ----------
    moving : dict[TopicPartition, str]
        The partitions that another member owned, and who gets them.
    """

    def __init__(
        self, group: _Group, racks: _Racks, owned: Assignment, contested: set[TopicPartition]
    ) -> None:
        self._group = group
        self._racks = racks
        self._contested = contested
        self._low, self._extras = divmod(group.partition_count, len(owned))
        self._high = self._low + (self._extras > 0)
        self._at_high = 0  # the number of members with an extra partition
        self._below: list[str] = []
        self._at_low: list[str] = []
        self._given_up: dict[TopicPartition, str] = {}
        self._assignment = group.empty_assignment()
        self.moving: dict[TopicPartition, str] = {}
        for member, partitions in owned.items():
            self._keep(member, partitions)

    def assign(self) -> Assignment:
        """Assign what no member has kept."""
        kept = {partition for each in self._assignment.values() for partition in each}
        partitions = self._group.partitions(sorted(self._group.racks))
        unassigned = [partition for partition in partitions if partition not in kept]
        unassigned.sort(key=self._racks.near_members)
        self._below.sort(key=sort_key)
        self._at_low.sort(key=sort_key)
        if self._racks.do_matter:
            unassigned = self._assign_near(unassigned)
        self._assign_round_robin(unassigned)
        return self._assignment

    def _keep(self, member: str, owned: Iterable[TopicPartition]) -> None:
        """Leave the member as much of what it owns as its share allows."""
        near = []
        for partition in sorted(owned, key=lambda each: (each.partition, each.topic)):
            if self._racks.is_far(member, partition):
                self._given_up[partition] = member
            elif partition not in self._contested:
                near.append(partition)
        if len(near) < self._low:
            count = len(near)
            self._below.append(member)
        elif len(near) >= self._high and self._at_high < self._extras:
            count = self._high
            self._note_extra()
        else:
            count = self._low
            if self._at_high < self._extras:
                self._at_low.append(member)
        self._assignment[member] += near[:count]
        self._given_up.update(dict.fromkeys(near[count:], member))

    def _note_extra(self) -> None:
        """Count a member that has an extra partition; the last one ends the chances of the others."""
        self._at_high += 1
        if self._at_high == self._extras:
            self._at_low.clear()

    def _give(self, partition: TopicPartition, member: str) -> int:
        """Assign a partition, and return the member's number of partitions."""
        self._assignment[member].append(partition)
        if self._given_up.get(partition, member) != member or partition in self._contested:
            self.moving[partition] = member
        return len(self._assignment[member])

    def _assign_near(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members in the racks of their replicas, and return the others."""
        far = []
        start = 0
        for partition in partitions:
            index = self._racks.next_near(partition, self._below, start)
            if index is not None:
                member = self._below[index]
                if self._give(partition, member) < self._low:
                    index += 1
                else:
                    del self._below[index]
                    if self._at_high < self._extras:
                        self._at_low.append(member)
                start = index % len(self._below) if self._below else 0
                continue
            index = self._racks.next_near(partition, self._at_low, 0)
            if index is None:
                far.append(partition)
            else:
                self._give(partition, self._at_low.pop(index))
                self._note_extra()
        return far

    def _assign_round_robin(self, partitions: Iterable[TopicPartition]) -> None:
        start = 0
        for partition in partitions:
            if not self._below:
                self._give(partition, self._at_low.pop(0))
                continue
            start %= len(self._below)
            member = self._below[start]
            if self._give(partition, member) < self._low:
                start += 1
            else:
                del self._below[start]
                self._at_low.append(member)


# sticky and cooperative-sticky: members with different topics


class _Moves:
    """The partitions that were moved, each with its first owner and its last.

    A move against an earlier one of the same topic takes the partition of that one back instead.
    """

    def __init__(self) -> None:
        self._move_of: dict[TopicPartition, tuple[str, str]] = {}
        self._partitions: dict[tuple[str, tuple[str, str]], dict[TopicPartition, None]] = {}
        self._buckets: dict[tuple[str, tuple[str, str]], int] = {}

    def better(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """Return the partition to move instead of this one; it is of the same topic."""
        first_owner = self._move_of.get(partition, (source, source))[0]
        back = partition.topic, (target, first_owner)
        if back not in self._partitions:
            return partition
        return hash_order(self._partitions[back], partition_hash, self._buckets[back])[0]

    def note(self, partition: TopicPartition, source: str, target: str) -> None:
        """Record that the partition has moved."""
        topic = partition.topic
        if partition in self._move_of:
            old = self._move_of.pop(partition)
            del self._partitions[topic, old][partition]
            if not self._partitions[topic, old]:
                del self._partitions[topic, old], self._buckets[topic, old]
            source = old[0]
            if source == target:
                return
        key = topic, (source, target)
        self._move_of[partition] = key[1]
        together = self._partitions.setdefault(key, {})
        together[partition] = None
        self._buckets[key] = max(self._buckets.get(key, 0), table_size(len(together)))


class _UnevenShares:
    """An assignment for members that do not all subscribe to the same topics.

    Members keep what they own. Each other partition goes to the member with the fewest that may have it. Then
    partitions move to members with at least two fewer, until that makes nothing more even.
    """

    def __init__(self, group: _Group, racks: _Racks, owned: Assignment, claims: Mapping[str, _Claim]) -> None:
        self._group = group
        self._racks = racks
        self._assignment = owned
        self._topics_of = {
            member: frozenset(each.topics).intersection(group.racks) for member, each in group.members.items()
        }
        self._members_of: dict[str, set[str]] = {topic: set() for topic in group.racks}
        for member, topics in self._topics_of.items():
            for topic in topics:
                self._members_of[topic].add(member)
        self._former_owners = _former_owners(claims)
        self._moves = _Moves()
        self._has_revoked = False
        self._owner_of: dict[TopicPartition, str] = {}
        self._owners_of: dict[str, Counter[str]] = {topic: Counter() for topic in group.racks}
        for member in owned:
            self._keep(member)
        # members by the number of their partitions; those that have all that they want are removed
        self._ranking = sorted(map(self._rank, owned))

    def assign(self) -> Assignment:
        """Assign what no member has kept, and make the shares even."""
        topics = sorted(self._members_of, key=lambda topic: (len(self._members_of[topic]), topic))
        partitions = self._group.partitions(topics)
        unassigned = [partition for partition in partitions if partition not in self._owner_of]
        is_first = not self._assignment[self._ranking[-1][2]]
        far = unassigned
        if self._racks.do_matter:
            far = [partition for partition in unassigned if not self._assign(partition, self._racks)]
        for partition in far:
            self._assign(partition, None)
        complete = self._set_complete_aside()
        before = {member: partitions[:] for member, partitions in self._assignment.items()}
        if not self._has_revoked:
            self._even_out([each for each in unassigned if len(self._members_of[each.topic]) > 1])
        has_moved = self._even_out([each for each in partitions if len(self._members_of[each.topic]) > 1])
        if has_moved and not is_first and _unevenness(self._assignment) >= _unevenness(before):
            self._assignment = before
        return self._assignment | complete

    def _keep(self, member: str) -> None:
        """Leave the member what it owns, except partitions that it no longer wants or is far from."""
        kept = []
        for partition in self._assignment[member]:
            if partition.topic in self._topics_of[member] and not self._racks.is_far(member, partition):
                kept.append(partition)
                self._owner_of[partition] = member
                self._owners_of[partition.topic][member] += 1
            else:
                self._has_revoked = True
        self._assignment[member] = kept

    def _rank(self, member: str) -> tuple[int, bytes, str]:
        return len(self._assignment[member]), sort_key(member), member

    def _set_complete_aside(self) -> Assignment:
        """Remove the members that have all that they want, all for themselves; return what they have."""
        complete = {}
        for member, topics in self._topics_of.items():
            has_all = len(self._assignment[member]) == sum(len(self._group.racks[each]) for each in topics)
            shares = any(len(self._members_of[each.topic]) > 1 for each in self._assignment[member])
            if has_all and not shares:
                self._ranking.remove(self._rank(member))
                complete[member] = self._assignment.pop(member)
        return complete

    def _assign(self, partition: TopicPartition, racks: _Racks | None) -> bool:
        """Assign a partition to the member with the fewest that may have it. True if there is one."""
        for _, _, member in self._ranking:
            is_far = racks is not None and racks.is_far(member, partition)
            if partition.topic in self._topics_of[member] and not is_far:
                self._change(partition, None, member)
                return True
        return False

    def _change(self, partition: TopicPartition, source: str | None, target: str) -> None:
        """Move a partition from the source to the target."""
        for member in (source, target):
            if member is not None:
                del self._ranking[bisect_left(self._ranking, self._rank(member))]
        owners = self._owners_of[partition.topic]
        if source is not None:
            self._assignment[source].remove(partition)
            owners[source] -= 1
        self._assignment[target].append(partition)
        owners[target] += 1
        self._owner_of[partition] = target
        for member in (source, target):
            if member is not None:
                insort(self._ranking, self._rank(member))

    def _is_even(self) -> bool:
        """True if no member may have a partition of a member with at least two more."""
        if not self._ranking or self._ranking[0][0] >= self._ranking[-1][0] - 1:
            return True
        most = {
            topic: max(len(self._assignment[member]) for member in (+self._owners_of[topic]))
            for topic, members in self._members_of.items()
            if len(members) > 1
        }
        return not any(
            count + 1 < most.get(topic, 0)
            for count, _, member in self._ranking
            for topic in self._topics_of[member]
        )

    def _even_out(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move partitions while that makes shares more even. True if any was moved."""
        has_moved = False
        is_even = self._is_even()
        while not is_even:
            has_changed = False
            for partition in partitions:
                target = self._better_owner(partition)
                if target is not None:
                    self._move(partition, target)
                    has_changed = has_moved = True
                    is_even = self._is_even()
                    if is_even:
                        break
            if not has_changed:
                break
        return has_moved

    def _better_owner(self, partition: TopicPartition) -> str | None:
        """Return the member that should have the partition, or None if its owner may keep it."""
        count = len(self._assignment[self._owner_of[partition]])
        members = self._members_of[partition.topic]
        former = self._former_owners.get(partition)
        if former in members and count > len(self._assignment[former]) + 1:
            return former
        if any(count > len(self._assignment[member]) + 1 for member in members):
            return next(
                member for _, _, member in self._ranking if partition.topic in self._topics_of[member]
            )
        return None

    def _move(self, partition: TopicPartition, target: str) -> None:
        moved = self._moves.better(partition, self._owner_of[partition], target)
        source = self._owner_of[moved]
        self._moves.note(moved, source, target)
        self._change(moved, source, target)


def _former_owners(claims: Mapping[str, _Claim]) -> dict[TopicPartition, str]:
    """Return who had each partition last before the latest generation."""
    latest = max(
        (claim.generation_id for claim in claims.values() if claim.generation_id is not None),
        default=NO_GENERATION,
    )
    former: dict[TopicPartition, tuple[int, str]] = {}
    for member, claim in claims.items():
        generation_id = NO_GENERATION if claim.generation_id is None else claim.generation_id
        if generation_id < latest:
            for partition in claim.partitions:
                if partition not in former or generation_id > former[partition][0]:
                    former[partition] = generation_id, member
    return {partition: member for partition, (_, member) in former.items()}


def _unevenness(assignment: Assignment) -> int:
    """Return the sum of the differences of the numbers of partitions over all pairs of members."""
    counts = sorted(map(len, assignment.values()))
    return sum((2 * index - len(counts) + 1) * count for index, count in enumerate(counts))


# sticky and cooperative-sticky


def _share(
    group: _Group, claim_of: Callable[[MemberSubscription], _Claim]
) -> tuple[Assignment, dict[TopicPartition, str] | None]:
    """Return an assignment, and the partitions that move with their new owners; None if not known."""
    claims = {member: claim_of(each) for member, each in group.members.items()}
    owned, contested = _accept_claims(group, claims)
    racks = _Racks(group)
    if len({frozenset(each.topics) for each in group.members.values()}) == 1:
        even = _EvenShares(group, racks, owned, contested)
        return even.assign(), even.moving
    return _UnevenShares(group, racks, owned, claims).assign(), None


def _assign_sticky(racks: Topics, members: Members) -> Assignment:
    return _share(_Group(racks, members), _sticky_claim)[0]


def _assign_cooperative(racks: Topics, members: Members) -> Assignment:
    group = _Group(racks, members)
    assignment, moving = _share(group, _cooperative_claim)
    if moving is None:
        moving = _moving(group, assignment)
    for partition, member in moving.items():
        assignment[member].remove(partition)
    return assignment


def _moving(group: _Group, assignment: Assignment) -> dict[TopicPartition, str]:
    """Return the assigned partitions that another member owns, with their new owners."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member, partitions in assignment.items():
        owned = frozenset(group.members[member].owned)
        added.update((partition, member) for partition in partitions if partition not in owned)
        revoked |= owned.difference(partitions)
    return {partition: member for partition, member in added.items() if partition in revoked}


def _no_user_data(_last: LastAssignment | None) -> None:
    return None


ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", False, _assign_range, _no_user_data),
        Assignor("roundrobin", False, _assign_round_robin, _no_user_data),
        Assignor("sticky", False, _assign_sticky, _encode_last_assignment),
        Assignor("cooperative-sticky", True, _assign_cooperative, _encode_last_generation),
    )
}


def assignors_of(strategy: Iterable[str]) -> tuple[Assignor, ...]:
    """Return the assignors that partition.assignment.strategy names, each once, in its order."""
    names = dict.fromkeys(name for given in strategy if (name := assignor_name(given)) is not None)
    return tuple(ASSIGNORS[name] for name in names)
