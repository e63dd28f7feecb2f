"""ProducerCollector and ConsumerCollector: metrics for Prometheus; needs the extra `prometheus`.

Metrics are read when Prometheus scrapes, and cost nothing in between. Totals are counters, the rest gauges;
docs/metrics.md has their names.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Protocol, final

from kbatch.distribution import needs
from kbatch.metrics import (
    CONSUMER,
    CONSUMER_NODE,
    COORDINATOR,
    COUNT,
    FETCH,
    METRICS,
    NODE,
    PROCESS,
    PRODUCER,
    READING_METRICS,
    SHARE,
    SHARE_COORDINATOR,
    SHARE_FETCH,
    TOPIC,
    Kind,
    Metric,
    MetricName,
    Scope,
)

with needs("kbatch.prometheus", "prometheus"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

__all__ = ["ConsumerCollector", "ProducerCollector"]

# What names of a group's metrics begin with, after the client.
_PREFIXES = {
    PRODUCER: "",
    TOPIC: "_topic",
    NODE: "_node",
    CONSUMER: "",
    CONSUMER_NODE: "_node",
    FETCH: "_fetch_manager",
    COORDINATOR: "_coordinator",
    PROCESS: "_process",
    SHARE: "_share",
    SHARE_FETCH: "_share_fetch_manager",
    SHARE_COORDINATOR: "_share_coordinator",
    COUNT: "_metrics",
}
_TAGS = {
    Scope.CLIENT: ("client-id",),
    Scope.TOPIC: ("client-id", "topic"),
    Scope.PARTITION: ("client-id", "topic", "partition"),
    Scope.NODE: ("client-id", "node-id"),
}
_COUNTERS = (Kind.TOTAL, Kind.OCCURRENCE_TOTAL)

Family = CounterMetricFamily | GaugeMetricFamily


class Measured(Protocol):
    """A client with metrics."""

    def metrics(self) -> Mapping[MetricName, float]: ...


class _ClientCollector(Collector):
    """A collector of the clients of one kind.

    Attributes
    ----------
    kind : str
        What names begin with.
    table : tuple of Metric
    """

    kind: ClassVar[str]
    table: ClassVar[tuple[Metric, ...]]

    def __init__(self, *clients: Measured) -> None:
        self._clients = clients

    def describe(self) -> Iterable[Family]:
        """Yield the names, so that the registry can detect duplicates."""
        return map(self._family, self.table)

    def collect(self) -> Iterable[Family]:
        """Yield all current metrics of the clients."""
        families = {
            (metric.group, metric.name, _TAGS[metric.scope]): self._family(metric) for metric in self.table
        }
        for client in self._clients:
            for name, value in client.metrics().items():
                tags, values = zip(*name.tags, strict=True)
                families[name.group, name.name, tags].add_metric(values, value)
        return families.values()

    def _family(self, metric: Metric) -> Family:
        kind = CounterMetricFamily if metric.kind in _COUNTERS else GaugeMetricFamily
        about = "" if metric.group != FETCH or metric.scope is Scope.CLIENT else f"_{metric.scope}"
        name = f"{self.kind}{_PREFIXES[metric.group]}{about}_{metric.name}".replace("-", "_")
        labels = [tag.replace("-", "_") for tag in _TAGS[metric.scope]]
        return kind(name, f"{metric.doc} Unit: {metric.unit}.", labels=labels)


@final
class ProducerCollector(_ClientCollector):
    """A collector for `prometheus_client.REGISTRY.register(ProducerCollector(producer))`, until `unregister`.

    Parameters
    ----------
    producers : Producer or AsyncProducer
        Producers with different client.id. The collector keeps them while it is registered.
    """

    kind = "kafka_producer"
    table = METRICS


@final
class ConsumerCollector(_ClientCollector):
    """A collector for `prometheus_client.REGISTRY.register(ConsumerCollector(consumer))`, until `unregister`.

    Parameters
    ----------
    consumers : Consumer, AsyncConsumer, ShareConsumer, AsyncShareConsumer or TopicReader
        Consumers with different client.id. The collector keeps them while it is registered.
    """

    kind = "kafka_consumer"
    table = READING_METRICS
