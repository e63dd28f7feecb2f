"""AdminClient: calls return futures, one for each topic, resource or group.

A call runs on a thread of the client's, by a kbatch Admin, which repeats what may be repeated. ACLs, users,
quotas and the like have no counterpart here: kbatch.Admin has them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Self, TypeVar

from kbatch.admin.client import Admin
from kbatch.compat.confluent_kafka.cluster import Cluster, seconds
from kbatch.compat.confluent_kafka.error import KafkaError, KafkaException, error_of, translated
from kbatch.compat.confluent_kafka.settings import ADMIN, settings_of
from kbatch.compat.confluent_kafka.values import (
    BrokerMetadata,
    ClusterMetadata,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
    as_partition,
    as_position,
    with_position,
)
from kbatch.core.admin.configs import ConfigChange
from kbatch.core.admin.results import ConfigEntry as Entry
from kbatch.core.admin.results import ConfigResource as Resource
from kbatch.core.admin.topics import NewPartitions as Growth
from kbatch.core.admin.topics import NewTopic as Creation
from kbatch.errors import KafkaError as Error
from kbatch.errors import PartialFailure
from kbatch.records import GroupDescription, GroupListing

__all__ = [
    "AdminClient",
    "AlterConfigOpType",
    "BrokerMetadata",
    "ClusterMetadata",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "DeletedRecords",
    "KafkaError",
    "KafkaException",
    "ListConsumerGroupsResult",
    "MemberAssignment",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "PartitionMetadata",
    "ResourceType",
    "TopicMetadata",
]

Key = TypeVar("Key", bound=Hashable)
# Calls of a client that run at a time.
THREADS = 4


@dataclass
class NewTopic:
    """A topic to create.

    Attributes
    ----------
    topic : str
    num_partitions, replication_factor : int
        -1 for the cluster's defaults.
    replica_assignment : list of list of int, or None
        The brokers of each partition.
    config : mapping of str to str, or None
    """

    topic: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignment: list[list[int]] | None = None
    config: Mapping[str, str] | None = None


@dataclass
class NewPartitions:
    """More partitions for a topic.

    Attributes
    ----------
    topic : str
    new_total_count : int
    replica_assignment : list of list of int, or None
        The brokers of each new partition.
    """

    topic: str
    new_total_count: int
    replica_assignment: list[list[int]] | None = None


class ResourceType(Enum):
    """What has a configuration."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5


class ConfigSource(Enum):
    """Where a setting comes from."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class AlterConfigOpType(Enum):
    """What is done to a setting: a list may get and lose entries."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass
class ConfigEntry:
    """A setting.

    Attributes
    ----------
    name : str
    value : str or None
        None also for a secret.
    source : ConfigSource
    is_read_only, is_default, is_sensitive : bool
    incremental_operation : AlterConfigOpType or None
        Of a setting that is to be changed.
    """

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN_CONFIG
    is_read_only: bool = False
    is_default: bool = False
    is_sensitive: bool = False
    incremental_operation: AlterConfigOpType | None = None

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'


class ConfigResource:
    """A topic, broker or group with its settings.

    Attributes
    ----------
    restype : ResourceType
        The constructor takes its name, too, such as "topic".
    name : str
        The name of a topic or group; the id of a broker.
    incremental_configs : list of ConfigEntry
        Changes.
    """

    Type = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        incremental_configs: Iterable[ConfigEntry] | None = None,
    ) -> None:
        if isinstance(restype, str):
            restype = ResourceType[restype.upper()]
        self.restype = ResourceType(restype)
        self.name = name
        self.incremental_configs = list(incremental_configs or ())

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Add a change."""
        self.incremental_configs.append(config_entry)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigResource) and _resource_of(self) == _resource_of(other)

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __repr__(self) -> str:
        return f"ConfigResource({self.restype},{self.name})"


@dataclass
class DeletedRecords:
    """What is left of a partition.

    Attributes
    ----------
    low_watermark : int
        The first offset.
    """

    low_watermark: int


@dataclass
class ConsumerGroupListing:
    """A group.

    Attributes
    ----------
    group_id : str
    is_simple_consumer_group : bool
        True if it has offsets only, and no members.
    state : ConsumerGroupState
    type : ConsumerGroupType
    """

    group_id: str
    is_simple_consumer_group: bool
    state: ConsumerGroupState
    type: ConsumerGroupType


@dataclass
class ListConsumerGroupsResult:
    """The groups of the cluster.

    Attributes
    ----------
    valid : list of ConsumerGroupListing
    errors : list of KafkaException
        Of brokers that did not answer.
    """

    valid: list[ConsumerGroupListing]
    errors: list[KafkaException] = field(default_factory=list)


@dataclass
class MemberAssignment:
    """What a member reads.

    Attributes
    ----------
    topic_partitions : list of TopicPartition
    """

    topic_partitions: list[TopicPartition]


@dataclass
class MemberDescription:
    """A member of a group.

    Attributes
    ----------
    member_id, client_id, host : str
    assignment : MemberAssignment
    group_instance_id : str or None
    """

    member_id: str
    client_id: str
    host: str
    assignment: MemberAssignment
    group_instance_id: str | None


@dataclass
class ConsumerGroupDescription:
    """A group with its members.

    Attributes
    ----------
    group_id : str
    is_simple_consumer_group : bool
    members : list of MemberDescription
    partition_assignor : str
    state : ConsumerGroupState
    type : ConsumerGroupType
    """

    group_id: str
    is_simple_consumer_group: bool
    members: list[MemberDescription]
    partition_assignor: str
    state: ConsumerGroupState
    type: ConsumerGroupType


class AdminClient:
    """Administrates a cluster. Any number of threads may use it. If something fails, the exception of its
    future is a KafkaException.
    """

    def __init__(self, conf: Mapping[str, Any] | None = None, **keywords: Any) -> None:
        """Start an admin.

        Parameters
        ----------
        conf : mapping of str to object
            Keys of librdkafka, and those of kbatch.
        **keywords
            The same keys with underscores.
        """
        with translated():
            settings = settings_of(ADMIN, conf, keywords)
            settings.callback("error.cb")
            self._cluster = Cluster(settings.client)
            self._admin: Admin = self._cluster.admin
        self._threads = ThreadPoolExecutor(THREADS, f"kbatch-compat-{self._admin.config.client_id}")
        # programs do not close it
        self._close = weakref.finalize(self, _close, self._threads, self._cluster)

    def create_topics(
        self,
        new_topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        request_timeout: float = -1,
        operation_timeout: float = -1,
    ) -> dict[str, Future[None]]:
        """Create topics. With an `operation_timeout` of 0, it is not waited until brokers know them."""
        topics = {
            each.topic: Creation(
                None if each.num_partitions < 0 else each.num_partitions,
                None if each.replication_factor < 0 else each.replication_factor,
                None if each.replica_assignment is None else dict(enumerate(each.replica_assignment)),
                each.config or {},
            )
            for each in new_topics
        }
        return self._begin(
            topics,
            lambda timeout: self._admin.topics.create(
                topics, validate_only=validate_only, wait=operation_timeout != 0, timeout=timeout
            ),
            request_timeout,
        )

    def delete_topics(
        self, topics: Sequence[str], *, request_timeout: float = -1, operation_timeout: float = -1
    ) -> dict[str, Future[None]]:
        """Delete topics. With an `operation_timeout` of 0, it is not waited until brokers forget them."""
        return self._begin(
            topics,
            lambda timeout: self._admin.topics.delete(topics, wait=operation_timeout != 0, timeout=timeout),
            request_timeout,
        )

    def create_partitions(
        self,
        new_partitions: Sequence[NewPartitions],
        *,
        validate_only: bool = False,
        request_timeout: float = -1,
    ) -> dict[str, Future[None]]:
        """Give topics more partitions."""
        topics = {
            each.topic: Growth(each.new_total_count, each.replica_assignment) for each in new_partitions
        }
        return self._begin(
            topics,
            lambda timeout: self._admin.topics.add_partitions(
                topics, validate_only=validate_only, timeout=timeout
            ),
            request_timeout,
        )

    def describe_configs(
        self, resources: Sequence[ConfigResource], *, request_timeout: float = -1
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Return the settings of topics, brokers and groups."""
        wanted = {_resource_of(each): each for each in resources}
        futures = self._begin(
            wanted,
            lambda timeout: self._admin.configs.describe(list(wanted), timeout=timeout),
            request_timeout,
            lambda found: {name: _entry_of(entry) for name, entry in found.items()},
        )
        return {resource: futures[key] for key, resource in wanted.items()}

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], *, validate_only: bool = False, request_timeout: float = -1
    ) -> dict[ConfigResource, Future[None]]:
        """Change settings of topics, brokers and groups; others stay as they are."""
        changes = {_resource_of(each): _change_of(each.incremental_configs) for each in resources}
        futures = self._begin(
            changes,
            lambda timeout: self._admin.configs.alter(changes, validate_only=validate_only, timeout=timeout),
            request_timeout,
        )
        return {each: futures[_resource_of(each)] for each in resources}

    def delete_records(
        self, topic_partition_offsets: Sequence[TopicPartition], *, request_timeout: float = -1
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records before the offsets of partitions; OFFSET_END keeps none."""
        offsets: dict[Any, int | str] = {
            as_partition(each): "end" if each.offset < 0 else each.offset for each in topic_partition_offsets
        }
        futures = self._begin(
            offsets,
            lambda timeout: self._admin.topics.delete_records(offsets, timeout=timeout),
            request_timeout,
            DeletedRecords,
        )
        return {each: futures[as_partition(each)] for each in topic_partition_offsets}

    def list_consumer_groups(
        self,
        *,
        states: Iterable[ConsumerGroupState] | None = None,
        types: Iterable[ConsumerGroupType] | None = None,
        request_timeout: float = -1,
    ) -> Future[ListConsumerGroupsResult]:
        """Return the groups of consumers."""

        def groups() -> ListConsumerGroupsResult:
            failed: list[KafkaException] = []
            with translated():
                try:
                    found: Iterable[GroupListing] = self._admin.groups.list(timeout=seconds(request_timeout))
                except PartialFailure as failure:
                    found = [each for listed in failure.results.values() for each in listed]
                    failed = [KafkaException(error_of(error)) for error in failure.errors.values()]
            listed = [
                ConsumerGroupListing(
                    each.group_id, not each.protocol_type, _state_of(each.state), _type_of(each.kind)
                )
                for each in found
                if each.kind in ("consumer", "classic", "") and each.protocol_type in ("consumer", "")
            ]
            wanted_states = None if states is None else set(states)
            wanted_types = None if types is None else set(types)
            return ListConsumerGroupsResult(
                [
                    each
                    for each in listed
                    if (wanted_states is None or each.state in wanted_states)
                    and (wanted_types is None or each.type in wanted_types)
                ],
                failed,
            )

        return self._threads.submit(groups)

    def describe_consumer_groups(
        self, group_ids: Sequence[str], *, request_timeout: float = -1
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Return groups with their members."""
        return self._begin(
            group_ids,
            lambda timeout: self._admin.groups.describe(group_ids, timeout=timeout),
            request_timeout,
            _described,
        )

    def delete_consumer_groups(
        self, group_ids: Sequence[str], *, request_timeout: float = -1
    ) -> dict[str, Future[None]]:
        """Delete groups without members, with their offsets."""
        return self._begin(
            group_ids, lambda timeout: self._admin.groups.delete(group_ids, timeout=timeout), request_timeout
        )

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float = -1,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Return what groups have committed, for all partitions or those that are named."""

        def offsets(group: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            with translated():
                found = self._admin.groups.offsets(group.group_id, timeout=seconds(request_timeout))
            committed = {each: at.committed for each, at in found.items()}
            named = group.topic_partitions
            chosen = list(committed) if named is None else [as_partition(each) for each in named]
            partitions = [with_position(each, committed.get(each)) for each in chosen]
            return ConsumerGroupTopicPartitions(group.group_id, partitions)

        return {
            each.group_id: self._threads.submit(offsets, each) for each in list_consumer_group_offsets_request
        }

    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float = -1,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Commit offsets for groups without members."""
        wanted = {each.group_id: each for each in alter_consumer_group_offsets_request}

        def commit(group: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            offsets = {as_partition(each): as_position(each) for each in group.topic_partitions or ()}
            with translated():
                self._admin.groups.commit_offsets(group.group_id, offsets, timeout=seconds(request_timeout))
            return group

        return {name: self._threads.submit(commit, group) for name, group in wanted.items()}

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the brokers and topics of the cluster, or one topic."""
        return self._cluster.list_topics(topic, seconds(timeout))

    def poll(self, timeout: float = -1) -> int:
        """Return 0: there is nothing to run."""
        return 0

    def _begin(
        self,
        keys: Iterable[Key],
        call: Callable[[float | None], Mapping[Any, Any]],
        timeout: float,
        result_of: Callable[[Any], Any] = lambda result: None,
    ) -> dict[Key, Future[Any]]:
        """Return a future for each key, after beginning the call about all of them."""
        futures: dict[Key, Future[Any]] = {key: Future() for key in keys}

        def run() -> None:
            results: Mapping[Any, Any] = {}
            failed: Mapping[Any, Error] = {}
            try:
                results = call(seconds(timeout))
            except PartialFailure as failure:
                results, failed = failure.results, failure.errors
            except BaseException as error:
                raised = KafkaException(error_of(error)) if isinstance(error, Error) else error
                for future in futures.values():
                    future.set_exception(raised)
                return
            for key, future in futures.items():
                try:
                    if key in failed:
                        raise KafkaException(error_of(failed[key]))
                    future.set_result(result_of(results[key]))
                except BaseException as error:  # or its caller would wait for ever
                    future.set_exception(error)

        for future in futures.values():
            future.set_running_or_notify_cancel()
        self._threads.submit(run)
        return futures

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close.detach()
        self._cluster.close()
        self._threads.shutdown()


def _close(threads: ThreadPoolExecutor, cluster: Cluster) -> None:
    """End the connections, and with them calls that go on. The collector may run on a thread of theirs, which
    cannot wait for its own end.
    """
    try:
        threads.submit(cluster.close)
    except RuntimeError:  # the interpreter exits
        cluster.close()
    threads.shutdown(wait=False)


def _resource_of(given: ConfigResource) -> Resource:
    return Resource(given.restype.name.lower(), given.name)


def _entry_of(entry: Entry) -> ConfigEntry:
    known = ConfigSource.__members__
    source = known.get(entry.source, ConfigSource.UNKNOWN_CONFIG)
    return ConfigEntry(
        entry.name,
        entry.value,
        source,
        entry.is_read_only,
        source is ConfigSource.DEFAULT_CONFIG,
        entry.is_sensitive,
    )


def _change_of(entries: Iterable[ConfigEntry]) -> ConfigChange:
    """Return changes of settings as kbatch has them."""
    by_kind: dict[AlterConfigOpType | None, dict[str, Any]] = {}
    for each in entries:
        by_kind.setdefault(each.incremental_operation, {})[each.name] = each.value
    if None in by_kind:
        raise ValueError(f"incremental_operation of {', '.join(by_kind[None])} is missing")
    return ConfigChange(
        by_kind.get(AlterConfigOpType.SET, {}),
        list(by_kind.get(AlterConfigOpType.DELETE, {})),
        by_kind.get(AlterConfigOpType.APPEND, {}),
        by_kind.get(AlterConfigOpType.SUBTRACT, {}),
    )


_STATES = {
    "PreparingRebalance": ConsumerGroupState.PREPARING_REBALANCING,
    "CompletingRebalance": ConsumerGroupState.COMPLETING_REBALANCING,
    "Stable": ConsumerGroupState.STABLE,
    "Dead": ConsumerGroupState.DEAD,
    "Empty": ConsumerGroupState.EMPTY,
}


def _state_of(name: str) -> ConsumerGroupState:
    return _STATES.get(name, ConsumerGroupState.UNKNOWN)


def _type_of(kind: str) -> ConsumerGroupType:
    return ConsumerGroupType.__members__.get(kind.upper(), ConsumerGroupType.UNKNOWN)


def _described(group: GroupDescription) -> ConsumerGroupDescription:
    members = [
        MemberDescription(
            each.member_id,
            each.client_id,
            each.host,
            MemberAssignment([TopicPartition(*partition) for partition in each.partitions]),
            each.group_instance_id,
        )
        for each in group.members
    ]
    return ConsumerGroupDescription(
        group.group_id, False, members, group.assignor, _state_of(group.state), _type_of(group.kind)
    )
