"""A share group (KIP-932): its members, and which partitions each reads. Many members may read one partition.

Every part of the state is the value of a record in __consumer_offsets, as in `consumer_group`. Each change of
members or topics raises the epoch. The members of a new epoch get their partitions at their next heartbeat,
and give up others at once, since nothing is handed over.

A partition is assigned after its share state was initialized, which the first heartbeat begins.

The rules follow ShareGroup, ShareGroupMember and SimpleAssignor of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NoReturn, Self

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.coordinator_records import Record
from kbatch.testing.broker.groups.consumer_group import by_topic, metadata_hash, to_records
from kbatch.testing.broker.groups.recorded_group import Change, RecordedGroup, Records, flattened

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Topic
    from kbatch.testing.broker.groups.assignors import Target, TopicIdPartition
    from kbatch.testing.broker.groups.requests import Commit

STABLE = 0  # the one state of a member


@dataclass(slots=True, frozen=True)
class ShareMember:
    """A member.

    Attributes
    ----------
    epoch, previous_epoch : int
        The epoch of its assignment, and the one before: an answer with the new one may have been lost.
    topics : frozenset of str
        Subscribed names.
    assigned : frozenset of (topic id, index)
    """

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: Target = frozenset()


class ShareGroup(RecordedGroup[ShareMember]):
    """One group.

    Attributes
    ----------
    initialized : dict of bytes to (str, set of int)
        The partitions whose share state exists, by topic id, with the topic's name.
    """

    group_type = "share"
    protocol_type = "share"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.initialized: dict[bytes, tuple[str, frozenset[int]]] = {}

    def copy(self) -> Self:
        twin = super().copy()
        twin.initialized = dict(self.initialized)
        return twin

    # Members and subscriptions

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(topic for each in self.members.values() for topic in each.topics)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    def current_metadata_hash(self, topics: Mapping[str, Topic]) -> int:
        """Return a hash of the subscribed topics that exist: another one means another assignment."""
        return metadata_hash(self.subscribed_topics, topics)

    def assignable(self, topics: Mapping[str, Topic]) -> dict[str, list[TopicIdPartition]]:
        """Return the partitions of each subscribed topic that exist and whose share state does."""
        found = {}
        for name in sorted(self.subscribed_topics & topics.keys()):
            topic_id = topics[name].topic_id
            _, indexes = self.initialized.get(topic_id, ("", frozenset()))
            found[name] = [(topic_id, index) for index in sorted(indexes)]
        return found

    def uninitialized(self, topics: Mapping[str, Topic]) -> dict[str, list[int]]:
        """Return the partitions of subscribed topics whose share state does not exist yet."""
        found = {}
        for name in sorted(self.subscribed_topics & topics.keys()):
            _, indexes = self.initialized.get(topics[name].topic_id, ("", frozenset()))
            missing = [each for each in range(len(topics[name].partitions)) if each not in indexes]
            if missing:
                found[name] = missing
        return found

    # Checks of requests about offsets, which are not kept here

    def check_offset_commit(self, commit: Commit) -> NoReturn:
        self._refuse()

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Allow it: there are none."""

    def check_offset_delete(self) -> NoReturn:
        self._refuse()

    def retention_start_ms(self, commit_timestamp_ms: int) -> int | None:
        return None

    def _refuse(self) -> NoReturn:
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    # Records, by GroupCoordinatorRecordHelpers

    def tombstones(self) -> list[Record]:
        """Return the records that delete the group."""
        changes = [change for member_id in self.members for change in member_tombstones(self, member_id)]
        changes.append((messages.ShareGroupTargetAssignmentMetadataKey(group_id=self.group_id), None))
        changes.append((messages.ShareGroupMetadataKey(group_id=self.group_id), None))
        changes.append((messages.ShareGroupStatePartitionMetadataKey(group_id=self.group_id), None))
        return to_records(changes)

    def _apply_member(
        self, key: messages.ShareGroupMemberMetadataKey, value: messages.ShareGroupMemberMetadataValue | None
    ) -> None:
        if value is None:
            self.members.pop(key.member_id, None)
            return
        self.members[key.member_id] = replace(
            self.members.get(key.member_id, ShareMember(key.member_id)),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
        )

    def _apply_current(
        self,
        key: messages.ShareGroupCurrentMemberAssignmentKey,
        value: messages.ShareGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        if value is not None:
            self.members[key.member_id] = replace(
                self.members.get(key.member_id, ShareMember(key.member_id)),
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=frozenset(flattened(value.assigned_partitions)),
            )

    def _apply_initialized(
        self,
        key: messages.ShareGroupStatePartitionMetadataKey,
        value: messages.ShareGroupStatePartitionMetadataValue | None,
    ) -> None:
        if value is not None:
            self.initialized = {
                bytes(each.topic_id): (each.topic_name, frozenset(each.partitions))
                for each in value.initialized_topics
            }

    RECORDS: ClassVar[Records] = {
        messages.ShareGroupMetadataKey: (messages.ShareGroupMetadataValue, RecordedGroup._apply_metadata),
        messages.ShareGroupMemberMetadataKey: (messages.ShareGroupMemberMetadataValue, _apply_member),
        messages.ShareGroupTargetAssignmentMetadataKey: (
            messages.ShareGroupTargetAssignmentMetadataValue,
            RecordedGroup._apply_target_epoch,
        ),
        messages.ShareGroupTargetAssignmentMemberKey: (
            messages.ShareGroupTargetAssignmentMemberValue,
            RecordedGroup._apply_target,
        ),
        messages.ShareGroupCurrentMemberAssignmentKey: (
            messages.ShareGroupCurrentMemberAssignmentValue,
            _apply_current,
        ),
        messages.ShareGroupStatePartitionMetadataKey: (
            messages.ShareGroupStatePartitionMetadataValue,
            _apply_initialized,
        ),
    }


def member_change(group: ShareGroup, member: ShareMember) -> Change:
    return (
        messages.ShareGroupMemberMetadataKey(group_id=group.group_id, member_id=member.member_id),
        messages.ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
        ),
    )


def epoch_change(group: ShareGroup, epoch: int, hash_of_topics: int) -> Change:
    return (
        messages.ShareGroupMetadataKey(group_id=group.group_id),
        messages.ShareGroupMetadataValue(epoch=epoch, metadata_hash=hash_of_topics),
    )


def target_changes(group: ShareGroup, targets: Mapping[str, Target], epoch: int, now_ms: int) -> list[Change]:
    """Return the changes from the group's target to a new one."""
    kind = messages.ShareGroupTargetAssignmentMemberValue
    changes: list[Change] = [
        (
            messages.ShareGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id),
            kind(
                topic_partitions=[
                    kind.TopicPartition(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in by_topic(target).items()
                ]
            ),
        )
        for member_id, target in targets.items()
        if target != group.targets.get(member_id)
    ]
    key = messages.ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id)
    value = messages.ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=now_ms
    )
    return [*changes, (key, value)]


def current_change(group: ShareGroup, member: ShareMember) -> Change:
    kind = messages.ShareGroupCurrentMemberAssignmentValue
    return (
        messages.ShareGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member.member_id),
        kind(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=STABLE,
            assigned_partitions=[
                kind.TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_topic(member.assigned).items()
            ],
        ),
    )


def initialized_change(group: ShareGroup, initialized: Mapping[bytes, tuple[str, Iterable[int]]]) -> Change:
    kind = messages.ShareGroupStatePartitionMetadataValue
    return (
        messages.ShareGroupStatePartitionMetadataKey(group_id=group.group_id),
        kind(
            initialized_topics=[
                kind.TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
                for topic_id, (name, indexes) in initialized.items()
            ]
        ),
    )


def member_tombstones(group: ShareGroup, member_id: str) -> list[Change]:
    ids = {"group_id": group.group_id, "member_id": member_id}
    return [
        (messages.ShareGroupCurrentMemberAssignmentKey(**ids), None),
        (messages.ShareGroupTargetAssignmentMemberKey(**ids), None),
        (messages.ShareGroupMemberMetadataKey(**ids), None),
    ]
