"""The small values that users pass to a producer and get from it, besides the native Record."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import index
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, SupportsIndex

from kbatch._native.batch.delivery import Delivery, RecordMetadata
from kbatch._native.codec.record import Record
from kbatch.typed import K, V

if TYPE_CHECKING:
    from kbatch._native.codec.record import Header
    from kbatch.errors import RecordDeserializationError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
# The limit of a string in a request (STRING, COMPACT_STRING).
MAX_STRING_BYTES = 2**15 - 1
# The id of a topic that has none, or whose id is unknown.
NO_TOPIC_ID = bytes(16)

__all__ = [
    "AcknowledgeType",
    "ConsumerGroupMetadata",
    "Delivery",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupOffset",
    "OffsetAndMetadata",
    "ProducerRecord",
    "Record",
    "RecordMetadata",
    "ShareRecord",
    "TopicPartition",
]


def check_integer(name: str, value: object, lowest: int, highest: int) -> None:
    """Raise TypeError or ValueError, with the value's name, unless it is an integer in range."""
    # an int is known at once: to look for the methods of a protocol takes some microseconds
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, SupportsIndex)):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if not lowest <= index(value) <= highest:
        raise ValueError(f"{name} must be {lowest} to {highest}, got {value!r}")


def is_sendable(text: str) -> bool:
    """True if a request can carry it."""
    try:
        return len(text.encode()) <= MAX_STRING_BYTES
    except UnicodeEncodeError:
        return False


def check_text(name: str, value: object) -> None:
    """Raise TypeError or ValueError, with the value's name, unless a request can carry it."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {type(value).__name__}")
    if not is_sendable(value):
        raise ValueError(f"{name} must be at most {MAX_STRING_BYTES} bytes of UTF-8, got {value[:50]!a}")


class TopicPartition(NamedTuple):
    """A partition of a topic; `str` gives Kafka's topic-partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def check_group_id(value: object) -> None:
    """Raise TypeError or ValueError unless it can be the name of a group."""
    check_text("group_id", value)
    if not value:
        raise ValueError("group_id must not be empty")


def checked_partition(given: Any) -> TopicPartition:
    """Return a pair of topic and partition as TopicPartition. Raise TypeError or ValueError unless a request
    can carry it.
    """
    if not isinstance(given, tuple) or len(given) != 2:
        remedy = f"; write {_as_partition(given)}" if isinstance(given, str | int) else ""
        raise TypeError(f"a partition must be a TopicPartition or (topic, partition), got {given!r}{remedy}")
    checked = TopicPartition(*given)
    check_text("topic", checked.topic)
    check_integer("partition", checked.partition, 0, INT32_MAX)
    return checked


def checked_partitions(call: str, given: Any) -> list[TopicPartition]:
    """Return the partitions that a call was given. Raise TypeError or ValueError unless they are a list, or
    another iterable, of what `checked_partition` takes; one alone is an iterable, too, but not of these.
    """
    is_pair = isinstance(given, tuple) and bool(given) and isinstance(given[0], str)
    if is_pair or isinstance(given, str | int) or not isinstance(given, Iterable):
        shown = repr(given) if is_pair else _as_partition(given)
        raise TypeError(f"{call}() takes a list of partitions, got {given!r}; write {call}([{shown}])")
    return [checked_partition(each) for each in given]


def _as_partition(given: object) -> str:
    """Return what a user may have meant by a topic, a number or something else, as code."""
    if isinstance(given, str):
        return f"TopicPartition({given!r}, 0)"
    return f"TopicPartition(topic, {given if isinstance(given, int) else 0})"


class ProducerRecord(NamedTuple):
    """The arguments of `send()`, before key and value are serialized (Kafka's ProducerRecord).

    Attributes
    ----------
    partition : int | None
        None leaves it to the partitioner.
    timestamp_ms : int | None
        Milliseconds since the Unix epoch; None is the time of the call.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: "Sequence[Header]" = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A consumer's position, as a transaction commits it. Invalid values raise TypeError or ValueError.

    Attributes
    ----------
    offset : int
        The offset of the next record to read.
    metadata : str
        Free text that Kafka keeps with it.
    leader_epoch : int
        The leader epoch of the last record read; -1 if unknown.
    topic_id : bytes
        The id of the topic in which the offset is a position: it is not committed for another topic of the
        same name. 16 zero bytes if it is unknown. It does not count in comparisons.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    topic_id: bytes = field(default=NO_TOPIC_ID, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_integer("offset", self.offset, 0, INT64_MAX)
        check_integer("leader_epoch", self.leader_epoch, -1, INT32_MAX)
        if type(self.topic_id) is not bytes or len(self.topic_id) != len(NO_TOPIC_ID):
            raise ValueError(f"topic_id must be {len(NO_TOPIC_ID)} bytes, got {self.topic_id!r}")
        if self.metadata is not None:  # which brokers treat as no text
            check_text("metadata", self.metadata)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The consumer that commits offsets within a transaction (KIP-447). Invalid values, such as a generation
    without a member, raise TypeError or ValueError.

    Attributes
    ----------
    group_id : str
    generation_id, member_id
        Those of the consumer's membership; -1 and "" for a consumer that assigns its own partitions.
    group_instance_id : str | None
        The group.instance.id of a static member.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def __post_init__(self) -> None:
        check_text("group_id", self.group_id)
        check_integer("generation_id", self.generation_id, -1, INT32_MAX)
        check_text("member_id", self.member_id)
        if self.group_instance_id is not None:
            check_text("group_instance_id", self.group_instance_id)
        if self.generation_id > 0 and not self.member_id:
            generation = self.generation_id
            raise ValueError(
                f"member_id must be set with generation_id={generation}; take both from the consumer"
            )

    @classmethod
    def from_librdkafka(cls, data: bytes) -> "ConsumerGroupMetadata":
        """Parse the result of confluent-kafka's `Consumer.consumer_group_metadata()`: a magic, the generation
        in the machine's byte order, three texts that end with a NUL byte. Raise ValueError for other bytes.
        """
        magic, generation, texts = data[:7], data[7:11], data[11:]
        try:
            group_id, member_id, instance = texts.decode().split("\0", 2)
            (generation_id,) = struct.unpack("=i", generation)
            if magic != b"CGMDv2:" or instance[:1] not in ("\0", "\1"):
                raise ValueError(f"it begins with {magic!r}")
        except (ValueError, struct.error) as error:
            raise ValueError(
                f"not what confluent_kafka.Consumer.consumer_group_metadata() gives: {error}"
            ) from error
        # a flag says that there is no group.instance.id
        group_instance_id = instance[1:].rstrip("\0") if instance[0] == "\0" else None
        return cls(group_id, generation_id, member_id, group_instance_id)


class GroupListing(NamedTuple):
    """A group of the cluster.

    Attributes
    ----------
    group_id : str
    kind : str
        Its protocol: "consumer" (KIP-848), "classic", or of another kind such as "share". Empty if the broker
        is older than Kafka 3.8, and does not say.
    state : str
        "Stable", "Empty" or another state of its protocol. Empty before Kafka 2.6.
    protocol_type : str
        "consumer" for groups of consumers, "" for one that only keeps offsets; other programs, such as
        Kafka Connect, have a name of their own.
    """

    group_id: str
    kind: str
    state: str
    protocol_type: str


class GroupMember(NamedTuple):
    """A member of a group.

    Attributes
    ----------
    member_id, client_id, host : str
    group_instance_id : str or None
        The name of a static member.
    partitions : tuple of TopicPartition
        What it reads, in order.
    epoch : int or None
        Its member epoch; None in classic groups.
    rack : str or None
    subscribed : tuple of str
        The topics that it subscribes to; empty if brokers do not say.
    target : tuple of TopicPartition
        What it is to read, in order.
    """

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None
    partitions: tuple[TopicPartition, ...]
    epoch: int | None = None
    rack: str | None = None
    subscribed: tuple[str, ...] = ()
    target: tuple[TopicPartition, ...] = ()


class GroupDescription(NamedTuple):
    """A group with its members.

    Attributes
    ----------
    group_id : str
    kind : str
        Its protocol: "consumer" (KIP-848), "classic", "share" (KIP-932) or "streams" (KIP-1071).
    state : str
        "Stable", "Empty" or another state of its protocol.
    assignor : str
        The name of what divides the partitions; empty if there are no members.
    members : tuple of GroupMember
    epoch, assignment_epoch : int or None
        None for classic groups.
    operations : frozenset of str or None
        What this client may do with it, such as "Read"; None if that was not asked for.
    """

    group_id: str
    kind: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None
    operations: frozenset[str] | None = None


class GroupOffset(NamedTuple):
    """How far a group has come in a partition.

    Attributes
    ----------
    committed : OffsetAndMetadata
        The next offset to read.
    end : int or None
        The offset after the last record; None if there is no such partition any more.
    """

    committed: OffsetAndMetadata
    end: int | None

    @property
    def lag(self) -> int | None:
        """The number of offsets that the group has still to read; None if the end is unknown."""
        return None if self.end is None else max(self.end - self.committed.offset, 0)


class ShareGroupOffset(NamedTuple):
    """How far a share group has come in a partition.

    Attributes
    ----------
    start : int
        The first offset that is not done; records after it may be done already.
    end : int or None
        The offset after the last record; None if there is no such partition any more.
    lag : int or None
        The number of records that are not done; None if the broker, before Kafka 4.3, does not say.
    """

    start: int
    end: int | None
    lag: int | None


class AcknowledgeType(IntEnum):
    """What a member of a share group says of a record (KIP-932)."""

    ACCEPT = 1
    """It was processed."""
    RELEASE = 2
    """It was not: deliver it again, unless it was delivered as often as the group allows."""
    REJECT = 3
    """It cannot be processed: never deliver it again."""
    RENEW = 4
    """It takes longer: lock it for another while, and acknowledge it later (KIP-1222)."""


class ShareRecord(NamedTuple, Generic[K, V]):
    """A record that a share group has delivered.

    Attributes
    ----------
    topic : str
    partition : int
    offset : int
    key, value : bytes or None
        Of a consumer with deserializers: what they make of `raw_key` and `raw_value`.
    headers : tuple of (str, bytes or None)
    timestamp_ms : int or None
    timestamp_type : "create_time" or "log_append_time"
    leader_epoch : int
    delivery_count : int
        1 for the first delivery.
    raw_key, raw_value : bytes or None
        The bytes, with and without deserializers.
    deserialization_error : RecordDeserializationError or None
        Why key or value is None, under on.deserialization.error=null.
    """

    topic: str
    partition: int
    offset: int
    key: K
    value: V
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None
    timestamp_type: str
    leader_epoch: int
    delivery_count: int
    raw_key: bytes | None = None
    raw_value: bytes | None = None
    deserialization_error: "RecordDeserializationError | None" = None
