"""Members of a classic group, their programs and an embedded cluster, in virtual time."""

from __future__ import annotations

from typing import Any

from kbatch.records import TopicPartition
from tests.support.broker_core import START_MS, TOPIC
from tests.support.group import GROUP, GroupReading
from tests.support.reading import MANY_STEPS, MS

PARTITIONS = 6


class ClassicMember(GroupReading):
    """A member, which may live in the cluster of another one."""

    def __init__(self, first: ClassicMember | None = None, **settings: Any) -> None:
        settings.setdefault("group_protocol", "classic")
        super().__init__(has_script=False, **settings)
        if first is not None:
            self.broker, self.cluster, self.faults = first.broker, first.cluster, first.faults
            self.now_ns = first.now_ns

    @property
    def owned(self) -> set[int]:
        """The numbers of the partitions that it owns of TOPIC."""
        return {each.partition for each in self.engine.owned if each.topic == TOPIC}

    @property
    def generation(self) -> int:
        return self.engine.group_metadata.generation_id

    def seen(self, kind: str) -> list[set[TopicPartition]]:
        """Return what the program has seen of this kind of step."""
        return [partitions for each, partitions in self.callbacks if each == kind]


class ClassicGroup:
    """A group in one cluster.

    Parameters
    ----------
    count : int
        The number of members.
    **settings
        Of all members.
    """

    def __init__(self, count: int = 1, *, partitions: int = PARTITIONS, **settings: Any) -> None:
        self.settings = settings
        self.members: list[ClassicMember] = [ClassicMember(partitions=partitions, **settings)]
        for _ in range(count - 1):
            self.add()

    @property
    def first(self) -> ClassicMember:
        return self.members[0]

    @property
    def now_ns(self) -> int:
        return self.first.now_ns

    def add(self, **settings: Any) -> ClassicMember:
        """Add a member, which does not subscribe yet."""
        member = ClassicMember(self.first, seed=len(self.members) + 1, **{**self.settings, **settings})
        member.now_ns = self.now_ns
        self.members.append(member)
        return member

    def join(self, *topics: str, pattern: str | None = None) -> None:
        """Let all members subscribe, and wait until the group is settled."""
        for member in self.members:
            member.subscribe(*topics, pattern=pattern)
        self.live(12_000)

    # All at work

    def run(self) -> None:
        """Let all work until only time helps."""
        for _ in range(MANY_STEPS):
            for member in self.members:
                member.run()
            if not any(member._due for member in self.members):
                return
        raise AssertionError("there is no end of work although no time passes")

    def advance(self, duration_ms: int) -> None:
        """Let time pass, deadline by deadline, without polls."""
        end_ns = self.now_ns + duration_ms * MS
        broker = self.first.broker
        self.run()
        for _ in range(MANY_STEPS):
            due_ns = min(member.engine.deadline_ns(self.now_ns) for member in self.members)
            broker_ms = broker.core.next_deadline_ms()
            if broker_ms is not None:
                due_ns = min(due_ns, (broker_ms - START_MS) * MS)
            is_over = due_ns > end_ns
            self._set_time(end_ns if is_over else max(self.now_ns, due_ns))
            broker.core.handle_timeout(broker.now_ms)
            self.run()
            if is_over:
                return
        raise AssertionError("a deadline that is not met: the loop would spin")

    def _set_time(self, now_ns: int) -> None:
        self.first.broker.now_ms = START_MS + now_ns // MS
        for member in self.members:
            member.now_ns = now_ns

    def live(self, duration_ms: int, *members: ClassicMember, every_ms: int = 200) -> None:
        """Let time pass, in which these members poll, or all."""
        for _ in range(max(duration_ms // every_ms, 1)):
            self.advance(every_ms)
            for member in members or self.members:
                member.poll()
            self.check_owners()

    # What holds

    def check_owners(self) -> None:
        """Each partition has at most one owner among members of the group.

        The coordinator removes one that does not join again in time, and a program that does not poll learns
        of that later.
        """
        members = [member for member in self.members if member.generation >= 0]
        owned = [each for member in members for each in member.engine.owned]
        if len(owned) != len(set(owned)):
            known = {each.member_id for each in self.describe().members}
            members = [each for each in members if each.engine.group_metadata.member_id in known]
            owned = [each for member in members for each in member.engine.owned]
        assert len(owned) == len(set(owned)), [sorted(member.engine.owned) for member in self.members]

    def owned(self) -> list[set[int]]:
        return [member.owned for member in self.members]

    def forget_callbacks(self) -> None:
        for member in self.members:
            member.callbacks.clear()

    def describe(self) -> Any:
        """Return the coordinator's view of the group."""
        return self.first.broker.state.coordinators.groups.describe(GROUP)
