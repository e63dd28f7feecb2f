"""The metrics of fetching, under Java's names (FetchMetricsManager, ShareFetchMetricsManager)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbatch.core.client.backoff import NS_PER_MS

if TYPE_CHECKING:
    from kbatch.core.consumer.budget import Budget
    from kbatch.core.consumer.partition_state import PartitionState
    from kbatch.core.consumer.results import Fetched
    from kbatch.metrics import MetricsRegistry
    from kbatch.records import TopicPartition


class RequestMetrics:
    """The sensors of requests for records, in groups of any kind.

    Parameters
    ----------
    registry : MetricsRegistry
    budget : Budget
    """

    def __init__(self, registry: MetricsRegistry, budget: Budget) -> None:
        self._registry = registry
        self._latency = registry.sensor("fetch-latency")
        self._throttle = registry.sensor("fetch-throttle-time")
        self._bytes = registry.sensor("bytes-fetched")
        self._records = registry.sensor("records-fetched")
        registry.gauge("fetch-buffer-used-bytes", lambda now_ms: budget.used)

    def answered(self, node_id: int, sent_ns: int, throttle_ms: int, now_ns: int) -> None:
        """Record an answer, good or bad."""
        now_ms, latency_ms = now_ns // NS_PER_MS, (now_ns - sent_ns) / NS_PER_MS
        self._latency.record(latency_ms, now_ms)
        self._registry.sensor("request-latency", node=node_id).record(latency_ms, now_ms)
        self._throttle.record(throttle_ms, now_ms)


class ShareFetchMetrics(RequestMetrics):
    """The sensors of ShareFetch requests, the records in their answers, and acknowledgements. Its parameters
    are those of the base.
    """

    def __init__(self, registry: MetricsRegistry, budget: Budget) -> None:
        super().__init__(registry, budget)
        self._acknowledged = registry.sensor("acknowledgements-send")
        self._failed = registry.sensor("acknowledgements-error")

    def acquired(self, size_bytes: int, now_ns: int) -> None:
        """Record the bytes of the records in an answer."""
        self._bytes.record(size_bytes, now_ns // NS_PER_MS)

    def consumed(self, record_count: int, now_ns: int) -> None:
        """Record records that the program got of one answer."""
        self._records.record(record_count, now_ns // NS_PER_MS)

    def acknowledged(self, record_count: int, now_ns: int) -> None:
        """Record acknowledgements that are sent."""
        self._acknowledged.record(record_count, now_ns // NS_PER_MS)

    def acknowledging_failed(self, record_count: int, now_ns: int) -> None:
        """Record acknowledgements that a broker has refused, or may not have got."""
        self._failed.record(record_count, now_ns // NS_PER_MS)


class _PartitionMetrics:
    """The sensors that a partition's records count for, and the values of its gauges."""

    __slots__ = ("all_lags", "all_leads", "lag", "lag_window", "lead", "lead_mean", "lead_window", "records")

    def __init__(self, registry: MetricsRegistry, topic: str, partition: int) -> None:
        self.all_lags, self.all_leads = registry.sensor("records-lag"), registry.sensor("records-lead")
        self.records = registry.sensor("records-fetched", topic=topic)
        self.lag_window = registry.sensor("records-lag-window", topic=topic, partition=partition)
        self.lead_window = registry.sensor("records-lead-window", topic=topic, partition=partition)
        self.lead_mean = registry.sensor("records-lead-mean", topic=topic, partition=partition)
        self.lag = self.lead = math.nan  # not known yet
        registry.gauge("records-lag", lambda now_ms: self.lag, topic=topic, partition=partition)
        registry.gauge("records-lead", lambda now_ms: self.lead, topic=topic, partition=partition)


class FetchMetrics(RequestMetrics):
    """The sensors of Fetch requests and of the records in their answers.

    Parameters
    ----------
    registry, budget
        Parameters of RequestMetrics.
    reads_committed : bool
        True if a lag is the distance from the last stable offset.
    """

    def __init__(self, registry: MetricsRegistry, budget: Budget, *, reads_committed: bool) -> None:
        super().__init__(registry, budget)
        self._reads_committed = reads_committed
        self._partitions: dict[TopicPartition, _PartitionMetrics] = {}  # that the program has records of

    def fetched(self, found: Iterable[Fetched], now_ns: int) -> None:
        """Record the records of an answer."""
        now_ms, by_topic = now_ns // NS_PER_MS, dict[str, int]()
        for each in found:
            topic = each.partition.topic
            by_topic[topic] = by_topic.get(topic, 0) + each.size_bytes
        self._bytes.record(sum(by_topic.values()), now_ms)
        for topic, size_bytes in by_topic.items():
            self._registry.sensor("bytes-fetched", topic=topic).record(size_bytes, now_ms)

    def consumed(self, fetched: Fetched, row_count: int, now_ns: int) -> None:
        """Record records that the program got."""
        now_ms, partition = now_ns // NS_PER_MS, fetched.partition
        metrics = self._partitions.get(partition)
        if metrics is None:
            metrics = self._partitions[partition] = _PartitionMetrics(self._registry, *partition)
        self._records.record(row_count, now_ms)
        metrics.records.record(row_count, now_ms)
        end = fetched.last_stable_offset if self._reads_committed else fetched.high_watermark
        if end >= 0:
            metrics.lag = lag = end - fetched.next_offset
            metrics.all_lags.record(lag, now_ms)
            metrics.lag_window.record(lag, now_ms)
        if fetched.log_start_offset >= 0:
            metrics.lead = lead = fetched.next_offset - fetched.log_start_offset
            metrics.all_leads.record(-lead, now_ms)  # the metric is a minimum
            metrics.lead_window.record(-lead, now_ms)
            metrics.lead_mean.record(lead, now_ms)

    def assigned(self, state: PartitionState) -> None:
        """Add the metrics of a partition that is now read."""
        topic, partition = state.partition
        self._registry.gauge(
            "preferred-read-replica", lambda now_ms: state.replica_id, topic=topic, partition=partition
        )

    def unassigned(self, partition: TopicPartition) -> None:
        """Drop the metrics of a partition that is no longer read."""
        self._partitions.pop(partition, None)
        self._registry.forget(*partition)
