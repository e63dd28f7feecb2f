"""Requests about topics and their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kbatch.core.admin.names import operations_of
from kbatch.core.admin.results import (
    CreatedTopic,
    OffsetAndTime,
    PartitionDescription,
    ProducerState,
    TopicDescription,
    TopicListing,
    time_of,
)
from kbatch.core.client.admin_requests import AdminRequest, Refusal
from kbatch.core.client.routes import ANY, CONTROLLER, LEADER, NODE, Route
from kbatch.errors import ErrorCode, UnsupportedVersionError
from kbatch.protocol import features, messages
from kbatch.records import NO_TOPIC_ID, TopicPartition

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message

# The most partitions that Kafka creates in one request: more are POLICY_VIOLATION, and of more that are added
# UNKNOWN_SERVER_ERROR (Kafka 4.3.1).
MOST_NEW_PARTITIONS, MOST_ADDED_PARTITIONS = 10_000, 5_000


class NewTopic(NamedTuple):
    """A topic to create.

    Attributes
    ----------
    partitions : int or None
        None for the cluster's num.partitions.
    replication_factor : int or None
        None for the cluster's default.replication.factor.
    assignment : mapping of int to sequence of int, or None
        By partition the brokers with its replicas, the preferred leader first; instead of the two others.
    configs : mapping of str to str
    """

    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, Any] = {}

    @property
    def partition_count(self) -> int:
        """How many partitions it will have; 1 if the cluster decides."""
        return len(self.assignment) if self.assignment is not None else self.partitions or 1


class CreateTopics(AdminRequest):
    """Topics to create, by name a NewTopic; the results are CreatedTopic."""

    kind = messages.CreateTopicsRequest
    route = CONTROLLER
    noun = "topic"
    unread = frozenset({"configs"})  # 33 settings of each topic

    def __init__(self, items: Mapping[str, NewTopic], *, validate_only: bool) -> None:
        super().__init__("create", items)
        self.validate_only = validate_only

    def chunks(self, items: Mapping[Any, Any], version: int) -> Iterator[dict[Any, Any]]:
        return _within(items, MOST_NEW_PARTITIONS, lambda topic: topic.partition_count)

    def message(self, items: Mapping[str, NewTopic], version: int, timeout_ms: int) -> Message:
        kind = messages.CreateTopicsRequest
        if version < features.CREATE_TOPICS_DEFAULTS and any(
            None in (topic.partitions, topic.replication_factor) and topic.assignment is None
            for topic in items.values()
        ):
            raise UnsupportedVersionError(
                f"the broker has no default number of partitions and replicas (CreateTopics version {version}"
                "); pass both, or upgrade it to Kafka 2.4 or newer"
            )
        topics = [
            kind.CreatableTopic(
                name=name,
                num_partitions=-1 if topic.partitions is None else topic.partitions,
                replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
                assignments=[
                    kind.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
                    for partition, brokers in (topic.assignment or {}).items()
                ],
                configs=[
                    kind.CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()
                ],
            )
            for name, topic in items.items()
        ]
        return kind(topics=topics, timeout_ms=timeout_ms, validate_only=self.validate_only)

    def read(self, answer: Any, items: Mapping[str, NewTopic]) -> Iterable[tuple[str, Any]]:
        for found in answer.topics:
            if found.error_code:
                yield found.name, Refusal(found.error_code, found.error_message)
                continue
            yield (
                found.name,
                CreatedTopic(
                    found.name,
                    UUID(bytes=found.topic_id) if found.topic_id != NO_TOPIC_ID else None,
                    found.num_partitions,
                    found.replication_factor,
                ),
            )


class DeleteTopics(AdminRequest):
    """Topics to delete, each with its id and its name, of which one may be None; the results are None.

    Brokers before Kafka 2.8 delete by name.
    """

    kind = messages.DeleteTopicsRequest
    route = CONTROLLER
    noun = "topic"

    def __init__(self, items: Mapping[Any, tuple[bytes | None, str | None]]) -> None:
        super().__init__("delete", items)

    def message(
        self, items: Mapping[Any, tuple[bytes | None, str | None]], version: int, timeout_ms: int
    ) -> Message:
        kind = messages.DeleteTopicsRequest
        if version >= features.DELETE_TOPICS_IDS:
            topics = [
                kind.DeleteTopicState(name=name)
                if topic_id is None
                else kind.DeleteTopicState(name=None, topic_id=topic_id)
                for topic_id, name in items.values()
            ]
            return kind(topics=topics, timeout_ms=timeout_ms)
        names = [name for _, name in items.values() if name is not None]
        if len(names) < len(items):
            raise UnsupportedVersionError(
                f"the broker cannot delete topics by id (DeleteTopics version {version}); pass names, or "
                "upgrade it to Kafka 2.8 or newer"
            )
        return kind(topic_names=names, timeout_ms=timeout_ms)

    def read(
        self, answer: Any, items: Mapping[Any, tuple[bytes | None, str | None]]
    ) -> Iterable[tuple[Any, Any]]:
        keys = {each: key for key, both in items.items() for each in both if each is not None}
        for found in answer.responses:
            key = keys.get(found.topic_id, keys.get(found.name))
            yield key, Refusal(found.error_code, found.error_message) if found.error_code else None


class NewPartitions(NamedTuple):
    """Partitions to add.

    Attributes
    ----------
    total : int
        How many the topic is to have.
    assignment : sequence of sequence of int, or None
        For each new partition the brokers with its replicas.
    """

    total: int
    assignment: Sequence[Sequence[int]] | None = None


class CreatePartitions(AdminRequest):
    """Topics that are to have more partitions; the results are the new numbers."""

    kind = messages.CreatePartitionsRequest
    route = CONTROLLER
    noun = "topic"
    max_items = 1  # the number of new partitions of a request is limited, and the answer does not say which

    def __init__(self, items: Mapping[str, NewPartitions], *, validate_only: bool) -> None:
        super().__init__("add_partitions", items)
        self.validate_only = validate_only

    def message(self, items: Mapping[str, NewPartitions], version: int, timeout_ms: int) -> Message:
        kind = messages.CreatePartitionsRequest
        topics = [
            kind.CreatePartitionsTopic(
                name=name,
                count=new.total,
                assignments=None
                if new.assignment is None
                else [kind.CreatePartitionsAssignment(broker_ids=list(each)) for each in new.assignment],
            )
            for name, new in items.items()
        ]
        return kind(topics=topics, timeout_ms=timeout_ms, validate_only=self.validate_only)

    def read(self, answer: Any, items: Mapping[str, NewPartitions]) -> Iterable[tuple[str, Any]]:
        for found in answer.results:
            if found.error_code:
                yield found.name, Refusal(found.error_code, found.error_message)
            elif found.name in items:
                yield found.name, items[found.name].total


class TopicQuery(AdminRequest):
    """Topics by name or id, as metadata has them; the results are TopicDescription.

    Parameters
    ----------
    items : mapping of str or UUID to None
    """

    kind = messages.MetadataRequest
    route = ANY
    noun = "topic"

    def __init__(self, items: Mapping[Any, None], *, operations: bool = False) -> None:
        super().__init__("describe", items)
        self.operations = operations

    def chunks(self, items: Mapping[Any, Any], version: int) -> Iterator[dict[Any, Any]]:
        """Yield ids and names apart: brokers pass over the names in a message that has ids."""
        ids = {key: value for key, value in items.items() if isinstance(key, UUID)}
        names = {key: value for key, value in items.items() if key not in ids}
        yield from super().chunks(ids, version)
        yield from super().chunks(names, version)

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        kind = messages.MetadataRequest.MetadataRequestTopic
        if version < features.METADATA_TOPIC_IDS and any(isinstance(key, UUID) for key in items):
            raise UnsupportedVersionError(
                f"the broker cannot find topics by id (Metadata version {version}); pass names, or upgrade "
                "it to Kafka 2.8 or newer"
            )
        topics = [
            kind(name=None, topic_id=key.bytes) if isinstance(key, UUID) else kind(name=key) for key in items
        ]
        return _metadata_request(topics, version, operations=self.operations)

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        ids = {key.bytes: key for key in items if isinstance(key, UUID)}
        for found in answer.topics:
            # a new partition has no leader yet, and a new topic is not there yet on some brokers
            is_refused = found.error_code and found.error_code != ErrorCode.LEADER_NOT_AVAILABLE
            result = Refusal(found.error_code) if is_refused else self.result_of(found)
            yield ids.get(found.topic_id, found.name), result

    def result_of(self, topic: Any) -> Any:
        """Return what the call wants of a topic in an answer."""
        return _described(topic)


class TopicIds(TopicQuery):
    """The ids and names of topics; the results are pairs. The id is None before Kafka 2.8."""

    unread = frozenset({"partitions"})

    def result_of(self, topic: Any) -> tuple[bytes | None, str]:
        return topic.topic_id if topic.topic_id != NO_TOPIC_ID else None, topic.name


class NodeTopics(TopicQuery):
    """The same, as one node sees it: `on` is its id. The results are TopicDescription or errors."""

    route = NODE

    def __init__(self, on: Iterable[int], topics: Sequence[Any]) -> None:
        super().__init__(dict.fromkeys(on))
        self.topics = topics

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        return super().message(dict.fromkeys(self.topics), version, timeout_ms)

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        found = dict(super().read(answer, dict.fromkeys(self.topics)))
        return ((node_id, found) for node_id in items)

    def subject(self, key: Any) -> str:
        return f"metadata of node {key}"


class TopicListings(AdminRequest):
    """All topics that the client may see; the only item is None, the result a list of TopicListing."""

    kind = messages.MetadataRequest

    def __init__(self) -> None:
        super().__init__("list", {None: None})

    def message(self, items: Mapping[Any, Any], version: int, timeout_ms: int) -> Message:
        return _metadata_request(None, version)

    def read(self, answer: Any, items: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
        code = getattr(answer, "error_code", 0)
        if code:
            return [(None, Refusal(code))]
        listings = [
            TopicListing(topic.name, UUID(bytes=topic.topic_id), len(topic.partitions), topic.is_internal)
            for topic in answer.topics
            if topic.name is not None and topic.partitions
        ]
        return [(None, sorted(listings))]


class TopicPages(AdminRequest):
    """The next topics of a sorted list, up to a number of partitions (KIP-966). The only item is None, the
    result a pair of (name, TopicDescription or Refusal) rows and the next cursor, or None at the end.
    """

    kind = messages.DescribeTopicPartitionsRequest

    def __init__(self, names: Sequence[str], cursor: tuple[str, int] | None, limit: int) -> None:
        super().__init__("describe", {None: None})
        self.names = names
        self.cursor = cursor
        self.limit = limit

    def message(self, items: Mapping[Any, Any], version: int, timeout_ms: int) -> Message:
        kind = messages.DescribeTopicPartitionsRequest
        cursor = self.cursor
        return kind(
            topics=[kind.TopicRequest(name=name) for name in self.names],
            response_partition_limit=self.limit,
            cursor=None if cursor is None else kind.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )

    def read(self, answer: Any, items: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
        rows = [
            (topic.name, Refusal(topic.error_code) if topic.error_code else _described(topic))
            for topic in answer.topics
        ]
        cursor = answer.next_cursor
        following = None if cursor is None else (cursor.topic_name, cursor.partition_index)
        return [(None, (rows, following))]


class DeleteRecords(AdminRequest):
    """Records to delete: by partition the first offset to keep, -1 for the end; the results are the new first
    offsets.
    """

    kind = messages.DeleteRecordsRequest
    route = LEADER
    noun = "partition"

    def __init__(self, items: Mapping[TopicPartition, int]) -> None:
        super().__init__("delete_records", items)

    def message(self, items: Mapping[TopicPartition, int], version: int, timeout_ms: int) -> Message:
        kind = messages.DeleteRecordsRequest
        parts = by_topic(
            items, lambda each, offset: kind.DeleteRecordsPartition(partition_index=each, offset=offset)
        )
        topics = [kind.DeleteRecordsTopic(name=name, partitions=each) for name, each in parts.items()]
        return kind(topics=topics, timeout_ms=timeout_ms)

    def read(self, answer: Any, items: Mapping[TopicPartition, int]) -> Iterable[tuple[TopicPartition, Any]]:
        for topic in answer.topics:
            for each in topic.partitions:
                key = TopicPartition(topic.name, each.partition_index)
                yield key, Refusal(each.error_code) if each.error_code else each.low_watermark


class Offsets(AdminRequest):
    """Offsets at times or ends of logs: by partition milliseconds, or a special number of ListOffsets. The
    results are OffsetAndTime, or None if no record is as late.
    """

    kind = messages.ListOffsetsRequest
    route = LEADER
    noun = "partition"

    def __init__(self, items: Mapping[TopicPartition, int], *, is_committed: bool = False) -> None:
        super().__init__("offsets", items)
        self.is_committed = is_committed

    def message(self, items: Mapping[TopicPartition, int], version: int, timeout_ms: int) -> Message:
        kind = messages.ListOffsetsRequest
        first = max(features.LIST_OFFSETS_TIMES.get(time, 0) for time in items.values())
        if version < first:
            raise UnsupportedVersionError(
                f"the broker cannot find such an offset (ListOffsets version {version}, {first} is needed); "
                "upgrade it"
            )
        parts = by_topic(
            items, lambda each, time: kind.ListOffsetsPartition(partition_index=each, timestamp=time)
        )
        topics = [kind.ListOffsetsTopic(name=name, partitions=each) for name, each in parts.items()]
        return kind(
            replica_id=-1, isolation_level=int(self.is_committed), topics=topics, timeout_ms=timeout_ms
        )

    def read(self, answer: Any, items: Mapping[TopicPartition, int]) -> Iterable[tuple[TopicPartition, Any]]:
        for topic in answer.topics:
            for each in topic.partitions:
                key = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    yield key, Refusal(each.error_code)
                    continue
                found = OffsetAndTime(each.offset, time_of(each.timestamp), max(each.leader_epoch, -1))
                yield key, found if each.offset >= 0 else None


class Producers(AdminRequest):
    """What partitions know of their producers; the results are tuples of ProducerState.

    Parameters
    ----------
    items : mapping of TopicPartition to None
    """

    kind = messages.DescribeProducersRequest
    route: Route = LEADER
    noun = "partition"

    def __init__(self, items: Mapping[TopicPartition, None]) -> None:
        super().__init__("producers", items)

    def message(self, items: Mapping[TopicPartition, None], version: int, timeout_ms: int) -> Message:
        kind = messages.DescribeProducersRequest
        parts = by_topic(items, lambda each, _: each)
        topics = [kind.TopicRequest(name=name, partition_indexes=each) for name, each in parts.items()]
        return kind(topics=topics)

    def read(self, answer: Any, items: Mapping[TopicPartition, None]) -> Iterable[tuple[TopicPartition, Any]]:
        for topic in answer.topics:
            for each in topic.partitions:
                key = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    yield key, Refusal(each.error_code, each.error_message)
                else:
                    yield key, tuple(map(_producer_state, each.active_producers))


class NodeProducers(Producers):
    """The same, as one broker has them: the only item is its id, the result a dict by partition."""

    route = NODE

    def __init__(self, node_id: int, partitions: Iterable[TopicPartition]) -> None:
        super().__init__({node_id: None})  # type: ignore[dict-item]
        self.partitions = dict.fromkeys(partitions)

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        return super().message(self.partitions, version, timeout_ms)

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        found = dict(super().read(answer, self.partitions))
        return ((key, found) for key in items)


def by_topic(items: Mapping[TopicPartition, Any], part: Callable[[int, Any], Any]) -> dict[str, list[Any]]:
    """Return what a message says of each partition, by topic."""
    topics: dict[str, list[Any]] = {}
    for (topic, partition), value in items.items():
        topics.setdefault(topic, []).append(part(partition, value))
    return topics


def _within(items: Mapping[Any, Any], most: int, weight_of: Callable[[Any], int]) -> Iterator[dict[Any, Any]]:
    """Yield items whose weights are at most `most` together; one that is heavier comes alone."""
    chunk: dict[Any, Any] = {}
    total = 0
    for key, item in items.items():
        weight = weight_of(item)
        if chunk and total + weight > most:
            yield chunk
            chunk, total = {}, 0
        chunk[key] = item
        total += weight
    if chunk:
        yield chunk


def _metadata_request(topics: list[Any] | None, version: int, *, operations: bool = False) -> Message:
    return messages.MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=operations and version >= features.METADATA_OPERATIONS,
    )


def _described(topic: Any) -> TopicDescription:
    """Return a topic of an answer to Metadata or DescribeTopicPartitions."""
    has_elr = isinstance(topic, messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic)
    partitions = [
        PartitionDescription(
            each.partition_index,
            each.leader_id if each.leader_id >= 0 else None,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.eligible_leader_replicas or ()) if has_elr else (),
            tuple(each.last_known_elr or ()) if has_elr else (),
            tuple(each.offline_replicas),
        )
        for each in topic.partitions
    ]
    partitions.sort()
    return TopicDescription(
        topic.name,
        UUID(bytes=topic.topic_id),
        topic.is_internal,
        tuple(partitions),
        operations_of(topic.topic_authorized_operations),
    )


def _producer_state(found: Any) -> ProducerState:
    start = found.current_txn_start_offset
    return ProducerState(
        found.producer_id,
        found.producer_epoch,
        found.last_sequence,
        time_of(found.last_timestamp),
        found.coordinator_epoch,
        start if start >= 0 else None,
    )
