"""The parts of an Admin as threads use them. `python -m kbatch.admin.stubs` writes this file."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, overload
from uuid import UUID

from kbatch.admin.base import AnyPartition, AnyReplica, Partition, Topic
from kbatch.admin.groups import OffsetReset
from kbatch.admin.planner import Plan
from kbatch.core.admin.configs import ConfigChange
from kbatch.core.admin.results import (
    Acl,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    Features,
    Fenced,
    Hanging,
    LogDir,
    OffsetAndTime,
    ProducerState,
    Quorum,
    QuotaEntity,
    Reassignment,
    ReplicaDirs,
    ScramInfo,
    Token,
    TopicDescription,
    TopicListing,
    Transaction,
    TransactionListing,
)
from kbatch.core.admin.security import AclFilter
from kbatch.core.admin.topics import NewPartitions, NewTopic
from kbatch.records import (
    GroupDescription,
    GroupListing,
    GroupOffset,
    OffsetAndMetadata,
    ShareGroupOffset,
    TopicPartition,
)

class ThreadPart:
    def __init__(self, part: Any) -> None: ...

class Topics(ThreadPart):
    def list(
        self,
        *,
        internal: bool = False,
        timeout: float | None = None,
    ) -> tuple[TopicListing, ...]: ...
    @overload
    def describe(  # type: ignore[overload-overlap]
        self,
        topic: Topic,
        *,
        operations: bool = False,
        timeout: float | None = None,
    ) -> TopicDescription: ...
    @overload
    def describe(
        self,
        topic: Iterable[Topic],
        *,
        operations: bool = False,
        timeout: float | None = None,
    ) -> dict[Topic, TopicDescription]: ...
    def pages(
        self,
        topics: Iterable[str],
        size: int = 2000,
        *,
        timeout: float | None = None,
    ) -> Iterator[dict[str, TopicDescription]]: ...
    @overload
    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, object] = ...,
        exist_ok: bool = False,
        validate_only: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> CreatedTopic: ...
    @overload
    def create(
        self,
        name: Mapping[str, NewTopic],
        *,
        exist_ok: bool = False,
        validate_only: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> dict[str, CreatedTopic]: ...
    @overload
    def delete(  # type: ignore[overload-overlap]
        self,
        topic: Topic,
        *,
        missing_ok: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    def delete(
        self,
        topic: Iterable[Topic],
        *,
        missing_ok: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> dict[Topic, None]: ...
    @overload
    def add_partitions(
        self,
        topic: str,
        to: int,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> int: ...
    @overload
    def add_partitions(
        self,
        topic: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, int]: ...
    def delete_records(
        self,
        offsets: Mapping[AnyPartition, int | str],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]: ...
    def offsets(
        self,
        specs: Mapping[AnyPartition, str | datetime | timedelta],
        *,
        isolation: str = 'read_uncommitted',
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTime | None]: ...
    @overload
    def producers(
        self,
        partition: Partition,
        *,
        broker: int | None = None,
        timeout: float | None = None,
    ) -> tuple[ProducerState, ...]: ...
    @overload
    def producers(
        self,
        partition: Iterable[Partition],
        *,
        broker: int | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]: ...

class Configs(ThreadPart):
    @overload
    def describe(
        self,
        resource: ConfigResource | None = None,
        names: Iterable[str] | None = None,
        *,
        topic: str | None = None,
        broker: int | None = None,
        broker_defaults: bool = False,
        logger: int | None = None,
        group: str | None = None,
        client_metrics: str | None = None,
        synonyms: bool = False,
        documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[str, ConfigEntry]: ...
    @overload
    def describe(
        self,
        resource: Iterable[ConfigResource],
        names: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]: ...
    @overload
    def alter(
        self,
        resource: ConfigResource | None = None,
        *,
        set: Mapping[str, object] = ...,
        reset: Iterable[str] = (),
        append: Mapping[str, object] = ...,
        subtract: Mapping[str, object] = ...,
        topic: str | None = None,
        broker: int | None = None,
        broker_defaults: bool = False,
        logger: int | None = None,
        group: str | None = None,
        client_metrics: str | None = None,
        validate_only: bool = False,
        unknown_ok: bool = False,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    def alter(
        self,
        resource: Mapping[ConfigResource, ConfigChange],
        *,
        validate_only: bool = False,
        unknown_ok: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, None]: ...
    def list_resources(
        self,
        kinds: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[ConfigResource, ...]: ...

class Partitions(ThreadPart):
    def elect(
        self,
        partitions: Iterable[Partition] | None = None,
        *,
        unclean: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, bool]: ...
    def reassign(
        self,
        replicas: Mapping[AnyPartition, Sequence[int]],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, Reassignment]: ...
    def cancel(
        self,
        partitions: Iterable[Partition],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, None]: ...
    def set_replication_factor(
        self,
        topic: str,
        replication_factor: int,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, Reassignment]: ...
    def plan(
        self,
        topics: Iterable[str],
        *,
        brokers: Iterable[int] | None = None,
        drain: Iterable[int] = (),
        replication_factor: int | None = None,
        timeout: float | None = None,
    ) -> Plan: ...
    def apply(
        self,
        plan: Plan,
        *,
        throttle: int | None = None,
        on_progress: Callable[[int], object] | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, tuple[int, ...]]: ...
    def reassignments(
        self,
        partitions: Iterable[Partition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, Reassignment]: ...
    def log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[int, tuple[LogDir, ...]]: ...
    def replica_dirs(
        self,
        replicas: Iterable[tuple[Partition, int]],
        *,
        timeout: float | None = None,
    ) -> dict[tuple[TopicPartition, int], ReplicaDirs]: ...
    def move_log_dirs(
        self,
        moves: Mapping[AnyReplica, str],
        *,
        timeout: float | None = None,
    ) -> dict[tuple[TopicPartition, int], None]: ...

class Groups(ThreadPart):
    def list(
        self,
        kinds: Iterable[str] | None = None,
        states: Iterable[str] | None = None,
        protocol_types: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[GroupListing, ...]: ...
    @overload
    def describe(  # type: ignore[overload-overlap]
        self,
        group_id: str,
        kind: str | None = None,
        *,
        operations: bool = False,
        timeout: float | None = None,
    ) -> GroupDescription: ...
    @overload
    def describe(
        self,
        group_id: Iterable[str],
        kind: str | None = None,
        *,
        operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]: ...
    @overload
    def offsets(  # type: ignore[overload-overlap]
        self,
        group_id: str,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, GroupOffset]: ...
    @overload
    def offsets(
        self,
        group_id: Iterable[str],
        *,
        timeout: float | None = None,
    ) -> dict[str, dict[TopicPartition, GroupOffset]]: ...
    def share_offsets(
        self,
        group_id: str,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, ShareGroupOffset]: ...
    def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> None: ...
    def set_share_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        create: bool = False,
        timeout: float | None = None,
    ) -> None: ...
    def delete_offsets(
        self,
        group_id: str,
        partitions: Iterable[Partition],
        *,
        timeout: float | None = None,
    ) -> None: ...
    def delete_share_offsets(
        self,
        group_id: str,
        topics: Iterable[str],
        *,
        timeout: float | None = None,
    ) -> None: ...
    def reset(
        self,
        group_id: str,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[Partition] | None = None,
        to: str | int | datetime | timedelta | None = None,
        shift: int | None = None,
        create: bool = False,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetReset]: ...
    @overload
    def delete(  # type: ignore[overload-overlap]
        self,
        group_id: str,
        *,
        kind: str | None = None,
        missing_ok: bool = False,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    def delete(
        self,
        group_id: Iterable[str],
        *,
        kind: str | None = None,
        missing_ok: bool = False,
        timeout: float | None = None,
    ) -> dict[str, None]: ...
    def remove_members(
        self,
        group_id: str,
        members: Iterable[str] | str,
        reason: str = '',
        *,
        timeout: float | None = None,
    ) -> dict[str, None]: ...

class Acls(ThreadPart):
    def list(
        self,
        filter: AclFilter | None = None,
        *,
        resource: str | None = None,
        name: str | None = None,
        operation: str | None = None,
        principal: str | None = None,
        host: str | None = None,
        pattern: str | None = None,
        allow: bool | None = None,
        timeout: float | None = None,
    ) -> tuple[Acl, ...]: ...
    def create(
        self,
        acls: Iterable[Acl],
        *,
        timeout: float | None = None,
    ) -> None: ...
    def delete(
        self,
        filters: Iterable[AclFilter | Acl],
        *,
        timeout: float | None = None,
    ) -> dict[AclFilter, tuple[Acl, ...] | None]: ...

class Quotas(ThreadPart):
    def describe(
        self,
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
        exact: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]: ...
    @overload
    def alter(
        self,
        entity: QuotaEntity,
        set: Mapping[str, float] = ...,
        reset: Iterable[str] = (),
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    def alter(
        self,
        entity: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, None]: ...

class Users(ThreadPart):
    def describe(
        self,
        names: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, tuple[ScramInfo, ...]]: ...
    def set(
        self,
        name: str,
        password: str | bytes,
        mechanism: str = 'SCRAM-SHA-512',
        iterations: int = 8192,
        *,
        timeout: float | None = None,
    ) -> None: ...
    def delete(
        self,
        name: str,
        mechanism: str,
        *,
        timeout: float | None = None,
    ) -> None: ...

class Tokens(ThreadPart):
    def create(
        self,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        lifetime: timedelta | None = None,
        wait: bool = True,
        *,
        timeout: float | None = None,
    ) -> Token: ...
    def renew(
        self,
        hmac: bytes | str,
        period: timedelta | None = None,
        *,
        timeout: float | None = None,
    ) -> datetime: ...
    def expire(
        self,
        hmac: bytes | str,
        period: timedelta | None = None,
        *,
        timeout: float | None = None,
    ) -> datetime: ...
    def list(
        self,
        owners: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[Token, ...]: ...

class Transactions(ThreadPart):
    def list(
        self,
        states: Iterable[str] | None = None,
        producer_ids: Iterable[int] | None = None,
        longer_than: timedelta | None = None,
        pattern: str | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[TransactionListing, ...]: ...
    @overload
    def describe(  # type: ignore[overload-overlap]
        self,
        transactional_id: str,
        *,
        timeout: float | None = None,
    ) -> Transaction: ...
    @overload
    def describe(
        self,
        transactional_id: Iterable[str],
        *,
        timeout: float | None = None,
    ) -> dict[str, Transaction]: ...
    def find_hanging(
        self,
        topics: Iterable[str] | None = None,
        *,
        older_than: timedelta = timedelta(minutes=15),
        timeout: float | None = None,
    ) -> tuple[Hanging, ...]: ...
    def abort(
        self,
        hanging: Hanging,
        *,
        timeout: float | None = None,
    ) -> None: ...
    def fence(
        self,
        ids: Iterable[str],
        *,
        timeout: float | None = None,
    ) -> dict[str, Fenced]: ...
    def terminate(
        self,
        transactional_id: str,
        *,
        timeout: float | None = None,
    ) -> Fenced: ...

class Cluster(ThreadPart):
    def describe(
        self,
        *,
        fenced: bool = False,
        operations: bool = False,
        timeout: float | None = None,
    ) -> ClusterDescription: ...
    def features(
        self,
        *,
        timeout: float | None = None,
    ) -> Features: ...
    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        downgrade: str | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None: ...
    def quorum(
        self,
        *,
        timeout: float | None = None,
    ) -> Quorum: ...
    def add_voter(
        self,
        node_id: int,
        directory_id: UUID,
        endpoints: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def remove_voter(
        self,
        node_id: int,
        directory_id: UUID,
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def unregister(
        self,
        node_id: int,
        *,
        force: bool = False,
        timeout: float | None = None,
    ) -> None: ...
