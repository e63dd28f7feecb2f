"""The small values of programs for confluent-kafka: partitions, messages and their like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from kbatch.compat.confluent_kafka.error import KafkaError
from kbatch.records import OffsetAndMetadata
from kbatch.records import TopicPartition as Partition

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord

# Offsets that are none: ends of the log, what the group has committed, unknown.
OFFSET_END, OFFSET_BEGINNING, OFFSET_STORED, OFFSET_INVALID = -1, -2, -1000, -1001
TIMESTAMP_NOT_AVAILABLE, TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME = 0, 1, 2

Headers = Mapping[str, Any] | Iterable[tuple[str, Any]]


class TopicPartition:
    """A partition, with an offset in it.

    Attributes
    ----------
    topic : str
    partition : int
    offset : int
        An offset, or one of the constants OFFSET_*.
    metadata : str or None
        What is committed with the offset.
    leader_epoch : int or None
    error : KafkaError or None
        Why a call has no result for it.
    """

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = leader_epoch
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self.leader_epoch},error={self.error}}}"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicPartition) and as_partition(self) == as_partition(other)

    def __lt__(self, other: TopicPartition) -> bool:
        return as_partition(self) < as_partition(other)

    def __hash__(self) -> int:
        return hash(as_partition(self))


def as_partition(given: TopicPartition) -> Partition:
    """Return the partition as kbatch names it."""
    return Partition(given.topic, given.partition)


def as_position(given: TopicPartition) -> OffsetAndMetadata:
    """Return the offset of a partition as kbatch commits it."""
    epoch = -1 if given.leader_epoch is None else given.leader_epoch
    return OffsetAndMetadata(given.offset, given.metadata or "", epoch)


def with_position(partition: Partition, position: OffsetAndMetadata | None) -> TopicPartition:
    """Return a partition with what is committed for it; without it, the offset is OFFSET_INVALID."""
    if position is None:
        return TopicPartition(*partition)
    epoch = None if position.leader_epoch < 0 else position.leader_epoch
    return TopicPartition(*partition, position.offset, position.metadata or None, epoch)


class Message:
    """A record, or an error in the place of one. All that it has is returned by methods.

    Parameters
    ----------
    topic : str or None
    partition, offset : int or None
    key, value : bytes or None
    headers : list of (str, bytes or None), or None
    error : KafkaError or None
    timestamp : (int, int) or None
        One of the constants TIMESTAMP_*, and milliseconds.
    latency : float or None
        Seconds from `produce()` to the acknowledgement.
    leader_epoch, delivery_count : int or None
    """

    __slots__ = (
        "_delivery_count",
        "_error",
        "_headers",
        "_key",
        "_latency",
        "_leader_epoch",
        "_offset",
        "_partition",
        "_timestamp",
        "_topic",
        "_value",
    )

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] | None = None,
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        self._timestamp = timestamp or (TIMESTAMP_NOT_AVAILABLE, 0)
        self._latency = latency
        self._leader_epoch = leader_epoch
        self._delivery_count = delivery_count

    def topic(self) -> str | None:
        """Return the topic."""
        return self._topic

    def partition(self) -> int | None:
        """Return the partition."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset."""
        return self._offset

    def key(self) -> Any:
        """Return the key: bytes, or what a deserializer has made of them."""
        return self._key

    def value(self) -> Any:
        """Return the value: bytes, or what a deserializer has made of them."""
        return self._value

    def headers(self) -> Any:
        """Return the headers as a list of pairs; None without any."""
        return self._headers

    def error(self) -> KafkaError | None:
        """Return the error that is in the place of a record; None for a record."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the time, one of the constants TIMESTAMP_*, and milliseconds."""
        return self._timestamp

    def latency(self) -> float | None:
        """Return the seconds from `produce()` to the acknowledgement; None for what was read."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """Return the epoch of the leader that has appended it; None if it is unknown."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """Return how often a share group was given it; None outside share groups."""
        return self._delivery_count

    def set_key(self, key: Any) -> None:
        """Replace the key."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def set_headers(self, headers: Any) -> None:
        """Replace the headers."""
        self._headers = headers

    def set_error(self, error: KafkaError | None) -> None:
        """Replace the error."""
        self._error = error

    def __len__(self) -> int:
        return len(self._value or b"")

    def __bool__(self) -> bool:
        return True  # also without key and value


_TIMESTAMP_KINDS = {"create_time": TIMESTAMP_CREATE_TIME, "log_append_time": TIMESTAMP_LOG_APPEND_TIME}


def message_of(record: ConsumerRecord) -> Message:
    """Return a record that was read as a Message."""
    timestamp = record.timestamp_ms
    return Message(
        record.topic,
        record.partition,
        record.offset,
        record.key,
        record.value,
        list(record.headers) or None,
        None,
        None if timestamp is None else (_TIMESTAMP_KINDS[record.timestamp_type], timestamp),
        None,
        None if record.leader_epoch < 0 else record.leader_epoch,
    )


class ConsumerGroupState(Enum):
    """The state of a group."""

    UNKNOWN = 0
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5


class ConsumerGroupType(Enum):
    """The protocol of a group."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2


@dataclass
class ConsumerGroupTopicPartitions:
    """A group and partitions, with offsets.

    Attributes
    ----------
    group_id : str
    topic_partitions : list of TopicPartition or None
        None for all that the group has committed.
    """

    group_id: str
    topic_partitions: list[TopicPartition] | None = None


# What `list_topics` returns


@dataclass
class BrokerMetadata:
    """A broker.

    Attributes
    ----------
    id, port : int
    host : str
    """

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


@dataclass
class PartitionMetadata:
    """A partition.

    Attributes
    ----------
    id, leader : int
        A leader of -1 is none.
    replicas, isrs : list of int
        Ids of brokers: all replicas, and those in sync.
    error : KafkaError or None
    """

    id: int
    leader: int
    replicas: list[int]
    isrs: list[int]
    error: KafkaError | None = None


@dataclass
class TopicMetadata:
    """A topic.

    Attributes
    ----------
    topic : str
    partitions : dict of int to PartitionMetadata
    error : KafkaError or None
        Why it cannot be described, such as UNKNOWN_TOPIC_OR_PART.
    """

    topic: str
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    error: KafkaError | None = None

    def __str__(self) -> str:
        return self.topic


@dataclass
class ClusterMetadata:
    """The cluster.

    Attributes
    ----------
    cluster_id : str
    controller_id : int
    brokers : dict of int to BrokerMetadata
    topics : dict of str to TopicMetadata
    """

    cluster_id: str
    controller_id: int
    brokers: dict[int, BrokerMetadata]
    topics: dict[str, TopicMetadata]

    def __str__(self) -> str:
        return self.cluster_id
