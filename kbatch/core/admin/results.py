"""What calls of an administrator return. Text is str, times are datetime (UTC), ids of topics are UUID."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from kbatch.records import TopicPartition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def time_of(timestamp_ms: int) -> datetime | None:
    """Return the time of a timestamp; None for a negative one, which is none."""
    return None if timestamp_ms < 0 else EPOCH + timedelta(milliseconds=timestamp_ms)


def timestamp_of(time: datetime) -> int:
    """Return the milliseconds since the Unix epoch, rounded up: records before `time` are not meant. Whole
    numbers only: `time.timestamp()` is a fraction, and may be the one below.
    """
    return max(-((EPOCH - time) // _MILLISECOND), 0)


# Topics


class CreatedTopic(NamedTuple):
    """A topic that was created, or was there already.

    Attributes
    ----------
    name : str
    topic_id : UUID or None
        None if it was only validated, or before Kafka 2.8.
    partitions, replication_factor : int
    existed : bool
        True if `exist_ok` was passed and the topic was there.
    """

    name: str
    topic_id: UUID | None
    partitions: int
    replication_factor: int
    existed: bool = False


class TopicListing(NamedTuple):
    """A topic of the cluster.

    Attributes
    ----------
    name : str
    topic_id : UUID
    partitions : int
        How many it has.
    internal : bool
        True for topics of Kafka itself, such as __consumer_offsets.
    """

    name: str
    topic_id: UUID
    partitions: int
    internal: bool


class PartitionDescription(NamedTuple):
    """A partition.

    Attributes
    ----------
    partition : int
    leader : int or None
        The id of a broker; None if there is none.
    leader_epoch : int
    replicas, isr, offline : tuple of int
        Ids of brokers: all replicas, those in sync, those that are down.
    elr, last_known_elr : tuple of int
        Eligible leader replicas (KIP-966); empty before Kafka 3.8.
    """

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class TopicDescription(NamedTuple):
    """A topic with its partitions.

    Attributes
    ----------
    name : str
    topic_id : UUID
    internal : bool
    partitions : tuple of PartitionDescription
        In order.
    operations : frozenset of str or None
        What this client may do with it; None if brokers do not say.
    """

    name: str
    topic_id: UUID
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    operations: frozenset[str] | None = None


class OffsetAndTime(NamedTuple):
    """An offset that was looked up.

    Attributes
    ----------
    offset : int
    timestamp : datetime or None
        That of the record, if a record was looked for.
    leader_epoch : int
        -1 if unknown.
    """

    offset: int
    timestamp: datetime | None
    leader_epoch: int


class ProducerState(NamedTuple):
    """A producer that a partition knows.

    Attributes
    ----------
    producer_id, epoch, last_sequence : int
    last_timestamp : datetime or None
    coordinator_epoch : int
    transaction_start : int or None
        The first offset of its open transaction.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: datetime | None
    coordinator_epoch: int
    transaction_start: int | None


# Configurations


class ConfigResource(NamedTuple):
    """What has a configuration.

    Attributes
    ----------
    kind : str
        "topic", "broker", "broker_logger", "client_metrics" or "group".
    name : str
        The name of a topic, group or subscription; the id of a broker, and "" for the defaults of all.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else f"{self.kind} defaults"


class ConfigSynonym(NamedTuple):
    """Where a value may come from, in the order of precedence."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """A key of a configuration.

    Attributes
    ----------
    name : str
    value : str or None
        None also for a secret.
    source : str
        Kafka's name, such as DYNAMIC_TOPIC_CONFIG or DEFAULT_CONFIG.
    type : str
        Kafka's name, such as LONG or LIST.
    is_sensitive, is_read_only : bool
    synonyms : tuple of ConfigSynonym
        If they were asked for.
    documentation : str or None
        If it was asked for.
    """

    name: str
    value: str | None
    source: str
    type: str
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


# Partitions


class Reassignment(NamedTuple):
    """The replicas of a partition while they move.

    Attributes
    ----------
    replicas, adding, removing : tuple of int
        Ids of brokers: all of now; those that come; those that go.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Replica(NamedTuple):
    """A replica in a log directory.

    Attributes
    ----------
    size : int
        Bytes of its log.
    lag : int
        Offsets that it is behind.
    is_future : bool
        True if it moves into this directory.
    """

    size: int
    lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A log directory of a broker.

    Attributes
    ----------
    path : str
    error : KafkaError or None
        Why it cannot be used.
    replicas : dict of TopicPartition to Replica
    total_bytes, usable_bytes : int or None
        None before Kafka 3.3.
    is_cordoned : bool
    """

    path: str
    error: Exception | None
    replicas: Mapping[TopicPartition, Replica]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool


class ReplicaDirs(NamedTuple):
    """Where a replica is, and where it moves to."""

    current: str | None
    future: str | None
    future_lag: int | None


# Access


class Acl(NamedTuple):
    """A rule of access.

    Attributes
    ----------
    resource : str
        "topic", "group", "cluster", "transactional_id", "delegation_token" or "user".
    name : str
        The resource's name; * for all; kafka-cluster for the cluster.
    operation : str
        As "Read" or "DescribeConfigs".
    principal : str
        As "User:alice"; "User:*" for all.
    host : str
        An address; * for all.
    pattern : str
        "literal" or "prefixed".
    allow : bool
        False denies.
    """

    resource: str
    name: str
    operation: str
    principal: str
    host: str = "*"
    pattern: str = "literal"
    allow: bool = True


# How many iterations brokers accept for a password (org.apache.kafka.clients.admin.ScramMechanism).
SCRAM_ITERATIONS = range(4096, 16_384 + 1)


class ScramInfo(NamedTuple):
    """A password of a user, as far as brokers tell."""

    mechanism: str
    iterations: int


class QuotaEntity(NamedTuple):
    """Who has a quota. None is no such part; DEFAULT ("<default>") all without a quota of their own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A delegation token. Its text does not show the secret.

    Attributes
    ----------
    token_id : str
        The user name of a login with it.
    hmac : bytes
        The secret; as base64 the password.
    owner, requester : str
        Principals.
    issued, expires, ends : datetime
        When it was made, when it expires unless it is renewed, until when it can be renewed.
    renewers : tuple of str
    """

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    issued: datetime
    expires: datetime
    ends: datetime
    renewers: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Token {self.token_id} of {self.owner}, expires {self.expires:%Y-%m-%d %H:%M:%S}>"


# Transactions


class TransactionListing(NamedTuple):
    """A transaction, or the last one of an id."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class Transaction(NamedTuple):
    """The state of a transactional.id.

    Attributes
    ----------
    transactional_id, state : str
    producer_id, epoch : int
    timeout : timedelta
    started : datetime or None
        None if no transaction is open.
    partitions : tuple of TopicPartition
        In order.
    """

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout: timedelta
    started: datetime | None
    partitions: tuple[TopicPartition, ...]


class Hanging(NamedTuple):
    """A transaction in a partition that no coordinator ends."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: datetime | None


class Fenced(NamedTuple):
    """The producer id and epoch that a fenced transactional.id has now."""

    producer_id: int
    epoch: int


# The cluster


class ClusterNode(NamedTuple):
    """A broker, or a controller."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


class ClusterDescription(NamedTuple):
    """The cluster.

    Attributes
    ----------
    cluster_id : str
    controller : int or None
        A broker that passes requests on to the controller; of controllers, the active one.
    nodes : tuple of ClusterNode
        In the order of their ids.
    operations : frozenset of str or None
        What this client may do with the cluster, if that was asked for.
    """

    cluster_id: str
    controller: int | None
    nodes: tuple[ClusterNode, ...]
    operations: frozenset[str] | None


class Features(NamedTuple):
    """The features of a cluster (KIP-584).

    Attributes
    ----------
    epoch : int
    finalized : dict of str to int
        The level of each.
    supported : dict of str to (int, int)
        The lowest and the highest level that the broker has.
    """

    epoch: int
    finalized: Mapping[str, int]
    supported: Mapping[str, tuple[int, int]]


class QuorumReplica(NamedTuple):
    """A voter or an observer of the metadata's log.

    Attributes
    ----------
    node_id : int
    directory_id : UUID
        Zero before Kafka 3.9.
    end_offset, lag : int
        The end of its log, and how far it is behind the leader's.
    last_fetch, last_caught_up : datetime or None
    """

    node_id: int
    directory_id: UUID
    end_offset: int
    lag: int
    last_fetch: datetime | None
    last_caught_up: datetime | None


class Quorum(NamedTuple):
    """The quorum of controllers.

    Attributes
    ----------
    leader, epoch, high_watermark : int
    voters, observers : tuple of QuorumReplica
    nodes : dict of int to dict of str to str
        By controller and listener the address, host:port; empty before Kafka 3.9.
    """

    leader: int
    epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: Mapping[int, Mapping[str, str]]
