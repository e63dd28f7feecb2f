"""The share partitions of all nodes: each is on the leader of its partition, from the first fetch on.

A share partition is made of what is stored. It is dropped if its partition has a new leader, and when its
offsets are set or deleted by a request, so that the next fetch begins with those. (Kafka's goes on with the
old ones until it stores a change again, which is then refused.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.logs.partition import LATEST
from kbatch.testing.broker.share.share_partition import SharePartition
from kbatch.testing.broker.share.share_state import NO_OFFSET, ShareKey, ShareStates

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import ClusterPartition
    from kbatch.testing.broker.groups.group_configs import GroupConfigs
    from kbatch.testing.broker.replication.replica import Replica
    from kbatch.testing.broker.share.record_states import StateBatch
    from kbatch.testing.broker.timers import Timers


class SharePartitions:
    """All share partitions.

    Parameters
    ----------
    stored : ShareStates
    configs : GroupConfigs
    timers : Timers
    on_available : callable
        Called with topic and index if a member that waits may get records.
    """

    def __init__(
        self,
        stored: ShareStates,
        configs: GroupConfigs,
        timers: Timers,
        on_available: Callable[[str, int], None],
    ) -> None:
        self._stored = stored
        self._configs = configs
        self._timers = timers
        self._on_available = on_available
        # with the leader epoch in which each was opened
        self._open: dict[ShareKey, tuple[int, SharePartition]] = {}

    def find(self, key: ShareKey, partition: ClusterPartition | Replica) -> SharePartition | None:
        """Return the share partition, if the partition's leader has opened it."""
        leader_epoch, found = self._open.get(key, (-1, None))
        if found is not None and leader_epoch != partition.leader_epoch:
            self.drop(key)
            return None
        return found

    def open(self, key: ShareKey, partition: Replica, now_ms: int) -> SharePartition:
        """Return the share partition; make it of what is stored if there is none.

        Raises BrokerError COORDINATOR_NOT_AVAILABLE.
        """
        if (found := self.find(key, partition)) is not None:
            _follow_log_start(found, partition)
            return found
        if self._stored.read(key) is None:
            self._stored.initialize(key, NO_OFFSET, now_ms)
        stored = self._stored.read(key)
        assert stored is not None
        start_offset = stored.start_offset
        if start_offset == NO_OFFSET:
            start_offset = self._first_offset(key.group_id, partition, now_ms)
        leader_epoch = partition.leader_epoch

        def write(start_offset: int, final_count: int, batches: Sequence[StateBatch], now_ms: int) -> None:
            self._stored.write(
                key, start_offset, final_count, batches, leader_epoch=leader_epoch, now_ms=now_ms
            )

        made = SharePartition(
            start_offset,
            stored,
            lambda: self._configs.share_settings(key.group_id),
            write,
            self._timers,
            lambda: self._on_available(partition.topic.name, partition.index),
        )
        self._open[key] = leader_epoch, made
        _follow_log_start(made, partition)
        return made

    def _first_offset(self, group_id: str, partition: Replica, now_ms: int) -> int:
        """Return the offset that share.auto.offset.reset names: earliest, latest, or one by a duration."""
        reset = self._configs.offset_reset(group_id, now_ms)
        found = partition.log.list_offset(reset)
        if found is None:
            found = partition.log.list_offset(LATEST)
        assert found is not None
        return found.offset

    def release(
        self, key: ShareKey, partition: ClusterPartition | Replica, member_id: str, now_ms: int
    ) -> None:
        """Release what a member has acquired, if the share partition is open."""
        if (found := self.find(key, partition)) is not None:
            found.release(member_id, now_ms)

    def drop(self, key: ShareKey) -> None:
        if (opened := self._open.pop(key, None)) is not None:
            opened[1].close()

    def forget_topic(self, topic_id: bytes) -> None:
        """Drop the share partitions of a deleted topic, with what is stored of them."""
        self._forget(self._stored.of_topic(topic_id))

    def forget_group(self, group_id: str) -> None:
        """Drop the share partitions of a deleted group, with what is stored of them."""
        self._forget(self._stored.of_group(group_id))

    def _forget(self, keys: Iterable[ShareKey]) -> None:
        for key in keys:
            self.drop(key)
            with suppress(BrokerError):  # without a coordinator what is stored stays
                self._stored.delete(key)


def _follow_log_start(share: SharePartition, partition: ClusterPartition | Replica) -> None:
    """Begin at the log's start if what would be fetched next is gone, as a fetch out of range shows Kafka."""
    if share.next_fetch_offset < partition.log.log_start_offset:
        share.log_starts_at(partition.log.log_start_offset)
