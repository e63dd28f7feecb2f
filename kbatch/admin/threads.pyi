"""The parts of an Admin as threads use them. `python -m kbatch.admin.stubs` writes this file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, overload

from kbatch.admin.base import Partition, Topic
from kbatch.admin.groups import OffsetReset
from kbatch.core.admin.configs import ConfigChange
from kbatch.core.admin.results import (
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    OffsetAndTime,
    ProducerState,
    TopicDescription,
    TopicListing,
)
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
        offsets: Mapping[Partition, int | str],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]: ...
    def offsets(
        self,
        specs: Mapping[Partition, str | datetime | timedelta],
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
