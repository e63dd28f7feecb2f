"""The metrics of fetching, under Java's names (FetchMetricsManager)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kbatch.core.client.backoff import NS_PER_MS

if TYPE_CHECKING:
    from kbatch.core.consumer.budget import Budget
    from kbatch.core.consumer.fetch_attempt import FetchAttempt
    from kbatch.core.consumer.partition_state import PartitionState
    from kbatch.core.consumer.results import Fetched
    from kbatch.metrics import MetricsRegistry
    from kbatch.records import TopicPartition


class FetchMetrics:
    """The sensors of Fetch requests and of the records in their answers.

    Parameters
    ----------
    registry : MetricsRegistry
    budget : Budget
    reads_committed : bool
        True if a lag is the distance from the last stable offset.
    """

    def __init__(self, registry: MetricsRegistry, budget: Budget, *, reads_committed: bool) -> None:
        self._registry = registry
        self._reads_committed = reads_committed
        self._latency = registry.sensor("fetch-latency")
        self._throttle = registry.sensor("fetch-throttle-time")
        self._bytes = registry.sensor("bytes-fetched")
        self._records = registry.sensor("records-fetched")
        self._lag = registry.sensor("records-lag")
        self._lead = registry.sensor("records-lead")
        registry.gauge("fetch-buffer-used-bytes", lambda now_ms: budget.used)

    def answered(self, attempt: FetchAttempt, answer: Any, now_ns: int) -> None:
        """Record an answer, good or bad."""
        now_ms, latency_ms = now_ns // NS_PER_MS, (now_ns - attempt.sent_ns) / NS_PER_MS
        self._latency.record(latency_ms, now_ms)
        self._registry.sensor("request-latency", node=attempt.node_id).record(latency_ms, now_ms)
        self._throttle.record(answer.throttle_time_ms, now_ms)

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
        now_ms, (topic, partition) = now_ns // NS_PER_MS, fetched.partition
        sensor = self._registry.sensor
        self._records.record(row_count, now_ms)
        sensor("records-fetched", topic=topic).record(row_count, now_ms)
        end = fetched.last_stable_offset if self._reads_committed else fetched.high_watermark
        lag, lead = end - fetched.next_offset, fetched.next_offset - fetched.log_start_offset
        if end >= 0:
            self._lag.record(lag, now_ms)
            sensor("records-lag-window", topic=topic, partition=partition).record(lag, now_ms)
            self._registry.gauge("records-lag", lambda now_ms: lag, topic=topic, partition=partition)
        if fetched.log_start_offset >= 0:
            self._lead.record(-lead, now_ms)  # the metric is a minimum
            sensor("records-lead-window", topic=topic, partition=partition).record(-lead, now_ms)
            sensor("records-lead-mean", topic=topic, partition=partition).record(lead, now_ms)
            self._registry.gauge("records-lead", lambda now_ms: lead, topic=topic, partition=partition)

    def assigned(self, state: PartitionState) -> None:
        """Note a partition that is read from now on."""
        topic, partition = state.partition
        self._registry.gauge(
            "preferred-read-replica", lambda now_ms: state.replica_id, topic=topic, partition=partition
        )

    def unassigned(self, partition: TopicPartition) -> None:
        """Drop the metrics of a partition that is not read any more."""
        self._registry.forget(*partition)
