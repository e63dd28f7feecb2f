"""Groups: consumer groups and share groups, their members and offsets; a part of a TopicReader, for tools.

Theory of operation. A request about a group goes to its coordinator; the list of groups comes from all
nodes. Each protocol has a request of its own to describe a group. If the group is not of that protocol, or
its broker does not know the request, the next one is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from kbatch._native.io.interrupts import at_once
from kbatch.core.client.admin_requests import (
    AdminRequest,
    ClassicGroup,
    CommittedOffsets,
    ConsumerGroup,
    GroupListings,
    OffsetCommit,
    OffsetDeletion,
    ShareGroup,
    ShareOffsets,
)
from kbatch.errors import GroupIdNotFoundError, UnsupportedVersionError
from kbatch.records import (
    GroupDescription,
    GroupListing,
    GroupOffset,
    OffsetAndMetadata,
    ShareGroupOffset,
    TopicPartition,
    check_group_id,
    checked_partition,
    checked_partitions,
)

if TYPE_CHECKING:
    from kbatch.config import ConsumerConfig
    from kbatch.consumer.runtime import ReaderRuntime


class Logs(Protocol):
    """What Groups asks a TopicReader."""

    config: ConsumerConfig

    def topics(self) -> list[str]: ...
    def partitions(self, topic: str) -> list[int]: ...
    def offsets(self, topic: str, spec: Any, partitions: Iterable[int]) -> dict[int, int]: ...


class Groups:
    """Requests about consumer groups. They raise KafkaTimeoutError after default.api.timeout.ms, and
    GroupAuthorizationError or TopicAuthorizationError if an ACL is missing.

    Parameters
    ----------
    reader : TopicReader
    runtime : ReaderRuntime
        The reader's.
    """

    def __init__(self, reader: Logs, runtime: ReaderRuntime) -> None:
        self._reader = reader
        self._runtime = runtime

    def list(self) -> tuple[GroupListing, ...]:
        """Return the groups for which this client has the ACL Describe, in the order of their names."""
        found = at_once(
            self._runtime.await_all_nodes, GroupListings, self._runtime.api_deadline(), "list_groups"
        )
        by_name = {each.group_id: each for each in found}  # two nodes list a group that moves
        return tuple(by_name[name] for name in sorted(by_name))

    def describe(self, group_id: str) -> GroupDescription:
        """Return a group with its members.

        Raises
        ------
        GroupIdNotFoundError
            There is no such group.
        """
        check_group_id(group_id)
        found: GroupDescription
        for kind in (ConsumerGroup, ShareGroup):
            with suppress(GroupIdNotFoundError, UnsupportedVersionError):
                found = self._ask(kind(group_id))
                return found
        found = self._ask(ClassicGroup(group_id))
        return found

    def offsets(self, group_id: str) -> dict[TopicPartition, GroupOffset]:
        """Return what a group has committed, and where these partitions end: so its lag. Without commits, and
        for a group that does not exist, the result is empty.

        Offsets of open transactions do not count. Under isolation.level=read_committed a partition ends with
        its last stable offset.
        """
        check_group_id(group_id)
        committed: dict[TopicPartition, OffsetAndMetadata] = self._ask(
            CommittedOffsets(group_id, None, is_stable=False)
        )
        ends = self._ends(committed)
        return {each: GroupOffset(committed[each], ends.get(each)) for each in sorted(committed)}

    def share_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Return where a share group is in its partitions, and how many records it has left. It needs Kafka
        4.1, and 4.3 for the number of records. Partitions that the group has not begun are left out.

        Raises
        ------
        GroupIdNotFoundError
            There is no such share group.
        """
        check_group_id(group_id)
        found: dict[TopicPartition, tuple[int, int | None]] = self._ask(ShareOffsets(group_id))
        ends = self._ends(found)
        return {
            each: ShareGroupOffset(found[each][0], ends.get(each), found[each][1]) for each in sorted(found)
        }

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Commit offsets for a group that has no members, or does not exist yet.

        Parameters
        ----------
        group_id : str
        offsets : mapping of TopicPartition to int or OffsetAndMetadata
            The next offset to read of each partition.

        Raises
        ------
        UnknownMemberIdError
            The group has members; only they commit.
        GroupAuthorizationError, TopicAuthorizationError
            The ACLs Read on the group and on the topics are missing.
        """
        check_group_id(group_id)
        if not isinstance(offsets, Mapping):
            raise TypeError(f"offsets must be a mapping of TopicPartition to offsets, got {offsets!r}")
        checked = {
            checked_partition(partition): each
            if isinstance(each, OffsetAndMetadata)
            else OffsetAndMetadata(each)
            for partition, each in offsets.items()
        }
        self._ask(OffsetCommit(group_id, checked))

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete what a group has committed for partitions: its next consumer begins where
        auto.offset.reset says.

        Raises
        ------
        GroupSubscribedToTopicError
            A member of the group reads such a topic.
        GroupIdNotFoundError
            There is no such group.
        GroupAuthorizationError, TopicAuthorizationError
            The ACLs Delete on the group and Read on the topics are missing.
        """
        check_group_id(group_id)
        self._ask(OffsetDeletion(group_id, checked_partitions("delete_offsets", partitions)))

    def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of those of the partitions that there are."""
        by_topic: dict[str, set[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, set()).add(partition)
        known = by_topic.keys() & set(self._reader.topics()) if by_topic else ()
        return {
            TopicPartition(topic, partition): offset
            for topic in known
            for partition, offset in self._reader.offsets(
                topic, "latest", by_topic[topic].intersection(self._reader.partitions(topic))
            ).items()
        }

    def _ask(self, request: AdminRequest) -> Any:
        """Return the answer to a request."""
        at_once(self._runtime.await_requests, [request], self._runtime.api_deadline())
        return request.answer
