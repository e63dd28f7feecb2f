"""Moves of replicas from one log directory of their node to another (KIP-113).

Theory of operation. A future replica, in the other directory, follows the present one as a follower does its
leader, a fetch after the other (kafka.server.ReplicaAlterLogDirsThread). When it has all, it takes the place
of the present one. A move that a restart interrupts begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.replication.replica import FETCH_BACKOFF_MS, Replica

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Cluster, ClusterPartition
    from kbatch.testing.broker.controller.brokers import LogDir
    from kbatch.testing.broker.timers import Timers

FETCH_MS = 5  # what a fetch of FETCH_BYTES takes: Kafka moved 100 MB in half a second


class LogDirMoves:
    """The moves of all replicas of a cluster; `moved(topic, index)` is called after each."""

    def __init__(self, cluster: Cluster, timers: Timers, moved: Callable[[str, int], None]) -> None:
        self._cluster = cluster
        self._timers = timers
        self._moved = moved

    def begin(self, partition: ClusterPartition, copy: Replica, log_dir: LogDir, now_ms: int) -> None:
        """Move a replica there; that is where it then goes, wherever it was to go before."""
        if copy.future is not None and copy.future.log_dir is log_dir:
            return
        copy.drop_future()
        if copy.log_dir is not log_dir:
            log = partition.open_future(log_dir)
            log.begin_replication()
            copy.future = Replica(partition, copy.node_id, log, log_dir, copy.min_isr)
            self._go_on(partition, copy, copy.future, now_ms + FETCH_MS)

    def resume(self, now_ms: int) -> None:
        """Begin the moves anew that a restart has interrupted."""
        for node in self._cluster.nodes:
            for log_dir in node.log_dirs:
                for name in log_dir.take_futures():
                    topic, _, index = name.rpartition("-")
                    if not self._cluster.has_partition(topic, int(index)):
                        continue
                    partition = self._cluster.partition(topic, int(index))
                    if node.node_id in partition.copies:
                        self.begin(partition, partition.copies[node.node_id], log_dir, now_ms)

    def _go_on(self, partition: ClusterPartition, copy: Replica, future: Replica, at_ms: int) -> None:
        def fetch(now_ms: int) -> None:
            if copy.future is not future:
                return  # given up
            if copy.log_dir.has_failed or future.log_dir.has_failed:
                copy.drop_future()
                return
            node = self._cluster.nodes[copy.node_id]
            if not node.is_running or node.is_paused:
                self._go_on(partition, copy, future, now_ms + FETCH_BACKOFF_MS)
                return
            try:
                has_all = future.follow_beside(copy, now_ms)
            except BrokerError:
                copy.drop_future()
                return
            if has_all:
                future.log_dir.end_future(partition.name)
                copy.become_future()
                self._moved(partition.topic.name, partition.index)
            else:
                self._go_on(partition, copy, future, now_ms + FETCH_MS)

        self._timers.call_at(at_ms, fetch)
