"""RecordedGroup: what groups of KIP-848 and share groups have in common: epochs, targets, records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from kbatch.errors import ErrorCode
from kbatch.protocol.structs import Message
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.coordinator_records import Record, decode_record
from kbatch.testing.broker.groups.assignors import TopicIdPartition

if TYPE_CHECKING:
    from kbatch.testing.broker.groups.assignors import Target

Change = tuple[Message, Message | None]
Member = TypeVar("Member")
# The class of a value, and the method that applies it, by the class of the key. The first is the group's own.
Records = Mapping[type[Message], tuple[type[Message], Callable[[Any, Any, Any], None]]]


class RecordedGroup(Generic[Member]):
    """A group whose state is the values of its records in __consumer_offsets.

    Attributes
    ----------
    epoch : int
    metadata_hash : int
        The hash of the subscribed topics for which the epoch was made.
    members : dict of str to a member
    targets : dict of str to frozenset
        The assignment of `target_epoch`, by member id.
    target_timestamp_ms : int
        The time at which it was made, 0 for never.
    """

    RECORDS: ClassVar[Records]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Target] = {}
        self.target_epoch = 1
        self.target_timestamp_ms = 0

    def copy(self) -> Self:
        twin = copy(self)
        twin.members, twin.targets = dict(self.members), dict(self.targets)
        return twin

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> Member:
        """Return the member; raise BrokerError UNKNOWN_MEMBER_ID."""
        if (member := self.members.get(member_id)) is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    # Records, by GroupCoordinatorRecordHelpers

    @classmethod
    def change_of(cls, record: Record) -> Change | None:
        """Return the change that was stored; None for a record of another kind."""
        for key_kind, (value_kind, _) in cls.RECORDS.items():
            if (change := decode_record(key_kind, value_kind, *record)) is not None:
                return change
        return None

    def apply(self, key: Message, value: Message | None) -> None:
        """Apply the value of a record of the group, except the one that deletes the group."""
        _, act = self.RECORDS[type(key)]
        act(self, key, value)

    def _apply_metadata(self, key: Any, value: Any) -> None:
        if value is not None:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_target_epoch(self, key: Any, value: Any) -> None:
        if value is not None:
            self.target_epoch, self.target_timestamp_ms = value.assignment_epoch, value.assignment_timestamp

    def _apply_target(self, key: Any, value: Any) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = frozenset(flattened(value.topic_partitions))


def load_groups(groups: dict[str, Any], kind: type[RecordedGroup[Any]], records: Iterable[Record]) -> None:
    """Add the stored groups of a kind; records of other kinds are skipped.

    A simple group, which offsets that were committed before made, is replaced.
    """
    deletes = next(iter(kind.RECORDS))
    for record in records:
        if (change := kind.change_of(record)) is None:
            continue
        key, value = change
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = groups.get(group_id)
        if value is None and not isinstance(group, kind):
            continue
        if value is None and isinstance(key, deletes):
            del groups[group_id]
            continue
        if not isinstance(group, kind):
            group = groups[group_id] = kind(group_id)
        group.apply(key, value)


def flattened(topics: Iterable[Any]) -> list[TopicIdPartition]:
    """Return the partitions of structs with `topic_id` and `partitions`."""
    return [(bytes(topic.topic_id), index) for topic in topics for index in topic.partitions]
