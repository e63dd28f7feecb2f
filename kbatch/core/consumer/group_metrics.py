"""The metrics of a group's member, under Java's names (HeartbeatMetricsManager,
ConsumerRebalanceMetricsManager, ShareRebalanceMetricsManager, OffsetCommitMetricsManager,
ConsumerCoordinator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.core.client.backoff import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbatch.metrics import MetricsRegistry


class MemberMetrics:
    """The sensors of a membership by any protocol.

    Parameters
    ----------
    registry : MetricsRegistry
        Its table has COORDINATOR_METRICS or SHARE_METRICS.
    assigned_count : callable
        Returns the number of partitions that are read.
    """

    def __init__(self, registry: MetricsRegistry, assigned_count: Callable[[], int]) -> None:
        self._heartbeat = registry.sensor("heartbeat-latency")
        self._rebalance = registry.sensor("rebalance-latency")
        self._heartbeat_ms = -1
        registry.gauge("assigned-partitions", lambda now_ms: assigned_count())
        registry.gauge("last-heartbeat-seconds-ago", lambda now_ms: _seconds_ago(self._heartbeat_ms, now_ms))

    def heartbeat_sent(self, now_ns: int) -> None:
        self._heartbeat_ms = now_ns // NS_PER_MS

    def heartbeat_answered(self, sent_ns: int, now_ns: int) -> None:
        self._heartbeat.record((now_ns - sent_ns) / NS_PER_MS, now_ns // NS_PER_MS)

    def rebalanced(self, now_ns: int) -> None:
        """Record a rebalance that was completed as soon as it was known."""
        self._rebalance.record(0, now_ns // NS_PER_MS)


class GroupMetrics(MemberMetrics):
    """The sensors of the coordinator's requests and of rebalances. Its parameters are those of the base."""

    def __init__(self, registry: MetricsRegistry, assigned_count: Callable[[], int]) -> None:
        super().__init__(registry, assigned_count)
        self._join = registry.sensor("join-latency")
        self._sync = registry.sensor("sync-latency")
        self._commit = registry.sensor("commit-latency")
        self._failed = registry.sensor("failed-rebalance")
        self._rebalance_ms = -1
        self._begun_ns: int | None = None
        registry.gauge("last-rebalance-seconds-ago", lambda now_ms: _seconds_ago(self._rebalance_ms, now_ms))

    def joined(self, sent_ns: int, now_ns: int) -> None:
        """Record the answer to a JoinGroup."""
        self._join.record((now_ns - sent_ns) / NS_PER_MS, now_ns // NS_PER_MS)

    def synced(self, sent_ns: int, now_ns: int) -> None:
        """Record the answer to a SyncGroup."""
        self._sync.record((now_ns - sent_ns) / NS_PER_MS, now_ns // NS_PER_MS)

    def commit_answered(self, sent_ns: int, now_ns: int) -> None:
        self._commit.record((now_ns - sent_ns) / NS_PER_MS, now_ns // NS_PER_MS)

    def rebalance_begun(self, now_ns: int) -> None:
        """Record the beginning of a rebalance, unless one is in progress."""
        if self._begun_ns is None:
            self._begun_ns = now_ns

    def rebalance_ended(self, now_ns: int) -> None:
        """Record the end of a rebalance."""
        if self._begun_ns is not None:
            self._rebalance_ms = now_ns // NS_PER_MS
            self._rebalance.record((now_ns - self._begun_ns) / NS_PER_MS, self._rebalance_ms)
            self._begun_ns = None

    def rebalance_failed(self, now_ns: int) -> None:
        """Record that the rebalance, if one is in progress, will not be completed."""
        if self._begun_ns is not None:
            self._begun_ns = None
            self._failed.record(1, now_ns // NS_PER_MS)


def _seconds_ago(when_ms: int, now_ms: int) -> float:
    return -1 if when_ms < 0 else (now_ms - when_ms) // 1000
