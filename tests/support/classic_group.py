"""Members of a classic group, their programs and an embedded cluster, in virtual time."""

from __future__ import annotations

from typing import Any

from kbatch.records import TopicPartition
from tests.support.broker_core import TOPIC
from tests.support.group_reading import GROUP, GroupReading, Members

PARTITIONS = 6


class ClassicMember(GroupReading):
    """A member of a classic group."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"group_protocol": "classic", **settings, "has_script": False})

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


class ClassicGroup(Members):
    """A group in one cluster.

    Parameters
    ----------
    count : int
        The number of members.
    **settings
        Of all members.
    """

    kind = ClassicMember

    def __init__(self, count: int = 1, *, partitions: int = PARTITIONS, **settings: Any) -> None:
        super().__init__(partitions)
        self.settings = settings
        for _ in range(count):
            self.add()

    @property
    def first(self) -> ClassicMember:
        member: ClassicMember = self.members[0]
        return member

    def add(self, *, subscribes: bool = False, **settings: Any) -> ClassicMember:
        """Add a member, which does not subscribe yet."""
        member: ClassicMember = super().add(subscribes=subscribes, **(self.settings | settings))
        return member

    def join(self, *topics: str, pattern: str | None = None) -> None:
        """Let all members subscribe, and wait until the group is settled."""
        for member in self.members:
            member.subscribe(*topics, pattern=pattern)
        self.live(12_000)

    def live(self, duration_ms: int, *members: GroupReading, every_ms: int = 200) -> None:
        for _ in range(max(duration_ms // every_ms, 1)):
            super().live(every_ms, *members, every_ms=every_ms)
            self.check_owners()

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

    def numbers(self) -> list[set[int]]:
        """Return the numbers of the partitions that each member owns."""
        return [member.owned for member in self.members]

    def forget_callbacks(self) -> None:
        for member in self.members:
            member.callbacks.clear()

    def describe(self) -> Any:
        """Return the coordinator's view of the group."""
        return self.broker.state.coordinators.of_group(GROUP).live.groups.describe(GROUP)
