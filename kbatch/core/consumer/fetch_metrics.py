"""The metrics of fetching, under Java's names (FetchMetricsManager, ShareFetchMetricsManager)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kbatch._native.io.sensor import SensorGroup
from kbatch.core.client.backoff import NS_PER_MS

if TYPE_CHECKING:
    from kbatch._native.fetch.budget import Budget
    from kbatch._native.io.sensor import Sensor
    from kbatch.core.consumer.distances import Distances
    from kbatch.core.consumer.partition_state import PartitionState
    from kbatch.metrics import MetricsRegistry
    from kbatch.records import TopicPartition


class RequestMetrics:
    """The sensors of requests for records, in groups of any kind.

    Parameters
    ----------
    registry : MetricsRegistry
    budget : Budget

    Attributes
    ----------
    latency, throttle, byte_count : Sensor
        Of answers: their times in milliseconds, and the bytes of the records in them.
    """

    def __init__(self, registry: MetricsRegistry, budget: Budget) -> None:
        self._registry = registry
        self.latency = registry.sensor("fetch-latency")
        self.throttle = registry.sensor("fetch-throttle-time")
        self.byte_count = registry.sensor("bytes-fetched")
        self._records = registry.sensor("records-fetched")
        registry.gauge("fetch-buffer-used-bytes", lambda now_ms: budget.used)

    def latency_of(self, node_id: int) -> Sensor:
        """Return the sensor of a node's answers."""
        return self._registry.sensor("request-latency", node=node_id)


class ShareFetchMetrics(RequestMetrics):
    """The sensors of ShareFetch requests, the records in their answers, and acknowledgements. Its parameters
    are those of the base.
    """

    def __init__(self, registry: MetricsRegistry, budget: Budget) -> None:
        super().__init__(registry, budget)
        self._acknowledged = registry.sensor("acknowledgements-send")
        self._failed = registry.sensor("acknowledgements-error")

    def answered(self, node_id: int, sent_ns: int, throttle_ms: int, now_ns: int) -> None:
        """Record an answer, good or bad."""
        now_ms, latency_ms = now_ns // NS_PER_MS, (now_ns - sent_ns) / NS_PER_MS
        self.latency.record(latency_ms, now_ms)
        self.latency_of(node_id).record(latency_ms, now_ms)
        self.throttle.record(throttle_ms, now_ms)

    def acquired(self, size_bytes: int, now_ns: int) -> None:
        """Record the bytes of the records in an answer."""
        self.byte_count.record(size_bytes, now_ns // NS_PER_MS)

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
    """The sensors and gauges of a partition that is read.

    Attributes
    ----------
    state : PartitionState
    """

    __slots__ = ("_distances", "_lags", "_lead_mean", "_leads", "state")

    def __init__(self, registry: MetricsRegistry, state: PartitionState, distances: Distances) -> None:
        topic, partition = state.partition
        self.state, self._distances = state, distances
        of_partition = partial(registry.sensor, topic=topic, partition=partition)
        self._lags = registry.sensor("records-lag"), of_partition("records-lag-window")
        self._leads = registry.sensor("records-lead"), of_partition("records-lead-window")
        self._lead_mean = of_partition("records-lead-mean")
        gauges: Mapping[str, Callable[[], float | None]] = {
            "records-lag": partial(distances.lag, state),
            "records-lead": partial(distances.lead, state),
            "preferred-read-replica": lambda: state.replica_id,
        }
        for name, read in gauges.items():
            registry.gauge(name, partial(_known, read), topic=topic, partition=partition)

    def sample(self, now_ms: int) -> None:
        """Record the distances from the ends of the log at this moment."""
        lag, lead = self._distances.lag(self.state), self._distances.lead(self.state)
        if lag is not None:
            for sensor in self._lags:
                sensor.record(lag, now_ms)
        if lead is not None:
            for sensor in self._leads:
                sensor.record(-lead, now_ms)  # the metric is a minimum
            self._lead_mean.record(lead, now_ms)


def _known(read: Callable[[], float | None], now_ms: int) -> float:
    """Return the value of a gauge; NaN if it is not known."""
    value = read()
    return math.nan if value is None else value


class FetchMetrics(RequestMetrics):
    """The sensors of Fetch requests and of the records in their answers.

    Theory of operation. The distances of positions from the ends of logs change without an event: brokers say
    that logs have grown, and an iteration goes on. So they are sampled when the program has used up what was
    fetched of a partition, and before each snapshot of the metrics.

    Parameters
    ----------
    registry, budget
        Parameters of RequestMetrics.
    distances : Distances

    Attributes
    ----------
    consumed : deque of (PartitionState, int)
        Where any thread notes how many records of a partition the program got, for `observe`.
    """

    def __init__(self, registry: MetricsRegistry, budget: Budget, distances: Distances) -> None:
        super().__init__(registry, budget)
        self._distances = distances
        self._partitions: dict[TopicPartition, _PartitionMetrics] = {}
        self.consumed: deque[tuple[PartitionState, int]] = deque()
        registry.before_snapshot(self._sample)

    def _sample(self, now_ms: int) -> None:
        self.observe(now_ms)
        for metrics in list(self._partitions.values()):
            metrics.sample(now_ms)

    def observe(self, now_ms: int) -> None:
        """Record what the program got, and the distances of its partitions."""
        if not self.consumed:
            return
        states: dict[PartitionState, None] = {}
        while self.consumed:
            state, row_count = self.consumed.popleft()
            state.row_count.record(row_count, now_ms)
            states[state] = None
        for state in states:
            metrics = self._partitions.get(state.partition)
            if metrics is not None and metrics.state is state:
                metrics.sample(now_ms)

    def assigned(self, state: PartitionState) -> None:
        """Add the metrics of a partition that is now read."""
        topic = state.partition.topic
        state.byte_count = self._registry.sensor("bytes-fetched", topic=topic)
        state.row_count = SensorGroup([self._records, self._registry.sensor("records-fetched", topic=topic)])
        self._partitions[state.partition] = _PartitionMetrics(self._registry, state, self._distances)

    def unassigned(self, partition: TopicPartition) -> None:
        """Drop the metrics of a partition that is no longer read."""
        self._partitions.pop(partition, None)
        self._registry.forget(*partition)
