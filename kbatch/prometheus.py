"""ProducerCollector: metrics of producers for Prometheus; needs `kbatch[prometheus]`.

Metrics are read when Prometheus scrapes, and cost nothing in between. Totals are counters, the rest gauges;
docs/metrics.md has their names.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, final

from kbatch.metrics import COUNT, METRICS, NODE, PRODUCER, TOPIC, Kind, Metric, MetricName

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(f"kbatch.prometheus needs {error.name}; pip install 'kbatch[prometheus]'") from error

__all__ = ["ProducerCollector"]

_PREFIXES = {
    PRODUCER: "kafka_producer",
    TOPIC: "kafka_producer_topic",
    NODE: "kafka_producer_node",
    COUNT: "kafka_producer_metrics",
}
_LABELS = {
    PRODUCER: ("client_id",),
    TOPIC: ("client_id", "topic"),
    NODE: ("client_id", "node_id"),
    COUNT: ("client_id",),
}
_COUNTERS = (Kind.TOTAL, Kind.OCCURRENCE_TOTAL)

Family = CounterMetricFamily | GaugeMetricFamily


class Measured(Protocol):
    """A Producer, an AsyncProducer."""

    def metrics(self) -> Mapping[MetricName, float]: ...


@final
class ProducerCollector(Collector):
    """A collector for `prometheus_client.REGISTRY.register(ProducerCollector(producer))`, until `unregister`.

    Parameters
    ----------
    producers : Producer or AsyncProducer
        Producers with different client.id. The collector keeps them while it is registered.
    """

    def __init__(self, *producers: Measured) -> None:
        self._producers = producers

    def describe(self) -> Iterable[Family]:
        """Yield the names, so that the registry can detect duplicates."""
        return map(_family, METRICS)

    def collect(self) -> Iterable[Family]:
        """Yield all current metrics of the producers."""
        families = {(metric.group, metric.name): _family(metric) for metric in METRICS}
        for producer in self._producers:
            for name, value in producer.metrics().items():
                families[name.group, name.name].add_metric([tag for _, tag in name.tags], value)
        return families.values()


def _family(metric: Metric) -> Family:
    kind = CounterMetricFamily if metric.kind in _COUNTERS else GaugeMetricFamily
    name = f"{_PREFIXES[metric.group]}_{metric.name}".replace("-", "_")
    return kind(name, f"{metric.doc} Unit: {metric.unit}.", labels=_LABELS[metric.group])
