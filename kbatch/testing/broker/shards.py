"""Shards: what a coordinator knows by the records of one partition of an internal topic.

A shard is loaded by the node that begins to lead the partition, and dropped when that node leads it no more.
All that is not in the records begins anew: the sessions of members, and rebalances.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, takewhile
from typing import TYPE_CHECKING, Protocol

from kbatch.testing.broker.groups.consumer_group import ConsumerGroup
from kbatch.testing.broker.groups.consumer_group_coordinator import (
    ConsumerGroupCoordinator,
    ConsumerGroupSettings,
)
from kbatch.testing.broker.groups.group_coordinator import GroupCoordinator
from kbatch.testing.broker.groups.offset_store import OffsetStore
from kbatch.testing.broker.groups.share_group_coordinator import ShareGroupCoordinator
from kbatch.testing.broker.logs.producer_state import EndTransactionMarker
from kbatch.testing.broker.share.share_state import ShareState
from kbatch.testing.broker.transactions.transaction_coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbatch._native.codec.record_batch import RecordBatch
    from kbatch.testing.broker.cluster import Cluster
    from kbatch.testing.broker.coordinator_log import CoordinatorLog
    from kbatch.testing.broker.coordinator_records import Record
    from kbatch.testing.broker.groups.group_configs import GroupConfigs
    from kbatch.testing.broker.groups.group_coordinator import Store
    from kbatch.testing.broker.options import Options
    from kbatch.testing.broker.share.share_state import ShareStates
    from kbatch.testing.broker.transactions.transaction_coordinator import WriteMarkers


class Timed(Protocol):
    """What has time-outs."""

    def next_deadline_ms(self) -> int | None: ...
    def handle_timeout(self, now_ms: int) -> None: ...


class Shard:
    """The base of all shards.

    Attributes
    ----------
    log : CoordinatorLog
    serves_from_ms : int
        When it begins to answer clients: before that it loads.
    is_loaded : bool
    """

    def __init__(self, log: CoordinatorLog, serves_from_ms: int, timed: Sequence[Timed] = ()) -> None:
        self.log = log
        self.serves_from_ms = serves_from_ms
        self.is_loaded = False
        self._timed = timed

    def next_deadline_ms(self) -> int | None:
        deadlines = [each.next_deadline_ms() for each in self._timed]
        return min([each for each in deadlines if each is not None], default=None)

    def handle_timeout(self, now_ms: int) -> None:
        for each in self._timed:
            each.handle_timeout(now_ms)

    def may_load(self) -> bool:
        """True if what the log has is enough to begin with."""
        return True

    def load(self, now_ms: int) -> None:
        """Read what the log has, replicated or not."""
        raise NotImplementedError

    def unload(self) -> None:
        """Refuse the requests that wait."""


class GroupSurroundings(Protocol):
    """What the coordinators of groups need besides their log."""

    options: Options
    cluster: Cluster
    group_configs: GroupConfigs

    def random_uuid(self) -> bytes: ...


class GroupState:
    """The groups of a partition of __consumer_offsets: their members, and their committed offsets."""

    def __init__(
        self, store: Store, surroundings: GroupSurroundings, states: ShareStates, now_ms: int
    ) -> None:
        options, topics = surroundings.options, surroundings.cluster.topics
        random_uuid, configs = surroundings.random_uuid, surroundings.group_configs
        self.groups = GroupCoordinator(
            store,
            random_uuid,
            initial_rebalance_delay_ms=options.group_initial_rebalance_delay_ms,
            max_size=options.group_max_size,
        )
        settings = ConsumerGroupSettings(
            max_size=options.group_consumer_max_size,
            migration_policy=options.group_consumer_migration_policy,
        )
        self.consumer_groups = ConsumerGroupCoordinator(
            self.groups, store, random_uuid, topics, settings, configs
        )
        self.share_groups = ShareGroupCoordinator(
            self.groups, store, states, topics, configs, options.group_share_max_size
        )
        self.offsets = OffsetStore(self.groups, store, now_ms)
        self.timed: Sequence[Timed] = (self.groups, self.consumer_groups, self.share_groups, self.offsets)

    def members_of(self, group_id: str) -> GroupCoordinator | ConsumerGroupCoordinator:
        """Return the coordinator of the group's members of the classic protocol."""
        group = self.groups.find(group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self.consumer_groups
        return self.groups

    def load(self, batches: Iterable[RecordBatch], now_ms: int) -> None:
        for batch in batches:
            if batch.is_control:
                for record in batch:
                    commit = EndTransactionMarker.of(record).is_commit
                    self.offsets.complete_transaction(batch.producer_id, commit)
                continue
            records = _stored(batch)
            self.groups.load(records, now_ms)
            self.consumer_groups.load(records)
            self.share_groups.load(records)
            self.offsets.load(records, now_ms, batch.producer_id)


class GroupShard(Shard):
    """A coordinator of groups.

    Attributes
    ----------
    live : GroupState
        By all that it has appended.
    """

    def __init__(
        self,
        log: CoordinatorLog,
        serves_from_ms: int,
        surroundings: GroupSurroundings,
        states: ShareStates,
        now_ms: int,
    ) -> None:
        def make(store: Store) -> GroupState:
            return GroupState(store, surroundings, states, now_ms)

        self._make = make
        self._committed: tuple[int, GroupState] | None = None  # with the high watermark
        self.live = self._make(log.append)
        super().__init__(log, serves_from_ms, self.live.timed)

    def committed(self, now_ms: int) -> GroupState:
        """Return the state by what is replicated: requests that only read answer by that."""
        if self.log.unreplicated() is None:
            return self.live
        end_offset = self.log.replicated_offset
        if self._committed is None or self._committed[0] != end_offset:
            committed = self._make(_read_only)
            committed.load(takewhile(lambda each: each.last_offset < end_offset, self.log.batches()), now_ms)
            self._committed = end_offset, committed
        return self._committed[1]

    def load(self, now_ms: int) -> None:
        self.log.leader.log.compact(now_ms)
        self.live.load(self.log.batches(), now_ms)
        self.live.consumer_groups.start_sessions(now_ms)
        self.live.share_groups.start_sessions(now_ms)

    def unload(self) -> None:
        self.live.groups.resign()


class TransactionShard(Shard):
    """A coordinator of transactions."""

    def __init__(
        self,
        log: CoordinatorLog,
        serves_from_ms: int,
        next_producer_id: Callable[[], int],
        write_markers: WriteMarkers,
        *,
        transaction_version: int,
        offsets_partition_count: int,
    ) -> None:
        self.transactions = TransactionCoordinator(
            next_producer_id,
            lambda key, value: log.append_in_sync([(key, value)]),
            write_markers,
            transaction_version=transaction_version,
            offsets_partition_count=offsets_partition_count,
            coordinator_epoch=lambda: log.leader.leader_epoch,
        )
        super().__init__(log, serves_from_ms, [self.transactions])

    def may_load(self) -> bool:
        # Kafka's coordinator does not wait (TransactionStateManager reads to the end of the log). What the
        # next leader lacks it has then told all the same, and records of a partition that is in no
        # transaction any more are committed by the next one.
        return self.log.unreplicated() is None

    def load(self, now_ms: int) -> None:
        records = [record for batch in self.log.batches() for record in _stored(batch)]
        self.transactions.load(records, now_ms)


class ShareShard(Shard):
    """A coordinator of share partitions: it stores what their leaders have acknowledged."""

    def __init__(self, log: CoordinatorLog, serves_from_ms: int) -> None:
        super().__init__(log, serves_from_ms)
        self.states = ShareState(log)

    def load(self, now_ms: int) -> None:
        for batch in self.log.batches():
            self.states.load(zip(count(batch.base_offset), _stored(batch)))


def _stored(batch: RecordBatch) -> list[Record]:
    return [
        (bytes(record.key or b""), None if record.value is None else bytes(record.value)) for record in batch
    ]


def _read_only(records: Sequence[Record], producer_id: int = -1, producer_epoch: int = -1) -> None:
    raise AssertionError("what is committed is only read")
