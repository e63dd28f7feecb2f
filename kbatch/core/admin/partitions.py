"""Requests about replicas: elections, reassignments, log directories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbatch.core.admin.results import LogDir, Reassignment, Replica
from kbatch.core.admin.topics import by_topic
from kbatch.core.client.admin_requests import AdminRequest, Refusal, refused
from kbatch.core.client.routes import CONTROLLER, NODE
from kbatch.errors import ErrorCode, UnsupportedVersionError, error_of
from kbatch.protocol import features, messages
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message

PREFERRED, UNCLEAN = 0, 1


class ElectLeaders(AdminRequest):
    """Elections of leaders, by partition, or for all partitions with the item None. The results are True if a
    leader was elected, False if that was not needed; for all partitions a dict of those that were elected or
    refused.
    """

    kind = messages.ElectLeadersRequest
    route = CONTROLLER
    noun = "partition"

    def __init__(self, partitions: Iterable[TopicPartition] | None, *, unclean: bool) -> None:
        super().__init__("elect", {None: None} if partitions is None else dict.fromkeys(partitions))
        self.unclean = unclean

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        kind = messages.ElectLeadersRequest
        if self.unclean and version < features.ELECT_LEADERS_UNCLEAN:
            raise UnsupportedVersionError(
                f"the broker has no unclean elections (ElectLeaders version {version}); upgrade it to Kafka "
                "2.4 or newer"
            )
        topics = None
        if None not in items:
            parts = by_topic(items, lambda each, _: each)
            topics = [kind.TopicPartitions(topic=name, partitions=each) for name, each in parts.items()]
        return kind(
            election_type=UNCLEAN if self.unclean else PREFERRED,
            topic_partitions=topics,
            timeout_ms=timeout_ms,
        )

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        found = {
            TopicPartition(topic.topic, each.partition_id): _elected(each)
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }
        return [(None, found)] if None in items else found.items()


def _elected(found: Any) -> Any:
    if not found.error_code:
        return True
    if found.error_code == ErrorCode.ELECTION_NOT_NEEDED:
        return False
    return Refusal(found.error_code, found.error_message)


class Reassign(AdminRequest):
    """New replicas of partitions, None to cancel what goes on; the results are None."""

    kind = messages.AlterPartitionReassignmentsRequest
    route = CONTROLLER
    noun = "partition"

    def __init__(
        self,
        name: str,
        items: Mapping[TopicPartition, Sequence[int] | None],
        *,
        changes_factor: bool,
    ) -> None:
        super().__init__(name, items)
        self.changes_factor = changes_factor

    def message(self, items: Mapping[TopicPartition, Any], version: int, timeout_ms: int) -> Message:
        kind = messages.AlterPartitionReassignmentsRequest
        parts = by_topic(
            items,
            lambda each, replicas: kind.ReassignablePartition(
                partition_index=each, replicas=None if replicas is None else list(replicas)
            ),
        )
        topics = [kind.ReassignableTopic(name=name, partitions=each) for name, each in parts.items()]
        is_free = self.changes_factor or version < features.ALTER_PARTITION_REASSIGNMENTS_KEEPS_FACTOR
        return kind(timeout_ms=timeout_ms, allow_replication_factor_change=is_free, topics=topics)

    def read(self, answer: Any, items: Mapping[TopicPartition, Any]) -> Iterable[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        return [
            (
                TopicPartition(topic.name, each.partition_index),
                Refusal(each.error_code, each.error_message) if each.error_code else None,
            )
            for topic in answer.responses
            for each in topic.partitions
        ]


class ListReassignments(AdminRequest):
    """Reassignments that go on; the only item is None, the result a dict of TopicPartition to Reassignment.
    `partitions` of None are all.
    """

    kind = messages.ListPartitionReassignmentsRequest
    route = CONTROLLER

    def __init__(self, partitions: Iterable[TopicPartition] | None) -> None:
        super().__init__("reassignments", {None: None})
        self.partitions = None if partitions is None else dict.fromkeys(partitions)

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        kind = messages.ListPartitionReassignmentsRequest
        topics = None
        if self.partitions is not None:
            parts = by_topic(self.partitions, lambda each, _: each)
            topics = [
                kind.ListPartitionReassignmentsTopics(name=name, partition_indexes=each)
                for name, each in parts.items()
            ]
        return kind(timeout_ms=timeout_ms, topics=topics)

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        found = {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }
        return [(None, dict(sorted(found.items())))]


class DescribeLogDirs(AdminRequest):
    """The log directories of brokers, by their ids; the results are tuples of LogDir. Only the replicas of
    `partitions` are told, if they are given.
    """

    kind = messages.DescribeLogDirsRequest
    route = NODE

    def __init__(
        self, node_ids: Iterable[int], partitions: Mapping[int, Iterable[TopicPartition]] | None = None
    ) -> None:
        super().__init__("log_dirs", dict.fromkeys(node_ids) if partitions is None else partitions)

    def message(self, items: Mapping[int, Any], version: int, timeout_ms: int) -> Message:
        kind = messages.DescribeLogDirsRequest
        ((_, partitions),) = items.items()
        if partitions is None:
            return kind(topics=None)
        parts = by_topic(dict.fromkeys(partitions), lambda each, _: each)
        return kind(
            topics=[kind.DescribableLogDirTopic(topic=name, partitions=each) for name, each in parts.items()]
        )

    def read(self, answer: Any, items: Mapping[int, Any]) -> Iterable[tuple[int, Any]]:
        if answer.error_code:
            return refused(items, answer)
        # before version 3, a client without the ACL got an empty list
        return [(node_id, tuple(map(_log_dir, answer.results))) for node_id in items]

    def subject(self, key: Any) -> str:
        return f"log directories of broker {key}"


def _log_dir(found: Any) -> LogDir:
    replicas = {
        TopicPartition(topic.name, each.partition_index): Replica(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in found.topics
        for each in topic.partitions
    }
    return LogDir(
        found.log_dir,
        error_of(found.error_code) if found.error_code else None,
        dict(sorted(replicas.items())),
        found.total_bytes if found.total_bytes >= 0 else None,
        found.usable_bytes if found.usable_bytes >= 0 else None,
        found.is_cordoned,
    )


class MoveLogDirs(AdminRequest):
    """Replicas that are to move between the log directories of a broker: by broker, a dict of TopicPartition
    to path. The results are dicts of TopicPartition to None or Refusal.
    """

    kind = messages.AlterReplicaLogDirsRequest
    route = NODE
    max_items = 1

    def __init__(self, items: Mapping[int, Mapping[TopicPartition, str]]) -> None:
        super().__init__("move_log_dirs", items)

    def message(self, items: Mapping[int, Any], version: int, timeout_ms: int) -> Message:
        kind = messages.AlterReplicaLogDirsRequest
        (moves,) = items.values()
        by_path: dict[str, dict[TopicPartition, None]] = {}
        for partition, path in moves.items():
            by_path.setdefault(path, {})[partition] = None
        dirs = [
            kind.AlterReplicaLogDir(
                path=path,
                topics=[
                    kind.AlterReplicaLogDirTopic(name=name, partitions=each)
                    for name, each in by_topic(partitions, lambda each, _: each).items()
                ],
            )
            for path, partitions in by_path.items()
        ]
        return kind(dirs=dirs)

    def read(self, answer: Any, items: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        found = {
            TopicPartition(topic.topic_name, each.partition_index): Refusal(each.error_code)
            if each.error_code
            else None
            for topic in answer.results
            for each in topic.partitions
        }
        return iter([(node_id, found) for node_id in items])

    def subject(self, key: Any) -> str:
        return f"move of replicas of broker {key}"
