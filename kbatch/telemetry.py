"""OtlpPayload: metrics as the OpenTelemetry protocol has them (KIP-714); needs the extra `telemetry`.

Names are those of Kafka's Java clients: group and name, with dots, below `org.apache.kafka.`; metrics that
Java lacks are below `kbatch.`. Totals are sums, all else gauges. A metric has its tags but the client's id,
which brokers know; the resource has the ids that only the client knows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, final

from kbatch.distribution import needs
from kbatch.metrics import Kind, Metric, MetricName

with needs("enable.metrics.push", "telemetry"):
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import (
        AggregationTemporality,
        MetricsData,
        NumberDataPoint,
    )
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as OtlpMetric

if TYPE_CHECKING:
    from kbatch.config import ClientConfig
    from kbatch.metrics import MetricsRegistry

JAVAS, OURS = "org.apache.kafka.", "kbatch."
_SUMS = frozenset((Kind.TOTAL, Kind.OCCURRENCE_TOTAL))
_CLIENT_ID = "client-id"
# The keys of configurations that are labels of the resource.
RESOURCE_KEYS = ("client_rack", "group_id", "group_instance_id", "transactional_id")


@final
class OtlpPayload:
    """Writes the metrics of one client.

    Parameters
    ----------
    registry : MetricsRegistry
    labels : callable
        Returns those of the resource, by their names.
    now_unix_ns : callable
        Returns the time since 1970.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        labels: Callable[[], Mapping[str, str]],
        now_unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._registry = registry
        self._rows = {(row.group, row.name): row for row in registry.table}
        self._labels = labels
        self._now_unix_ns = now_unix_ns
        self._start_ns = self._last_ns = now_unix_ns()
        self._last: dict[MetricName, float] = {}

    def __call__(self, prefixes: tuple[str, ...], now_ms: int, *, is_delta: bool) -> bytes:
        """Return the metrics whose names begin with one of the prefixes, as MetricsData."""
        data = MetricsData()
        resource = data.resource_metrics.add()
        resource.resource.attributes.extend(map(_pair, self._labels().items()))
        scope = resource.scope_metrics.add()
        now_ns = self._now_unix_ns()
        scope.metrics.extend(self._metrics(prefixes, now_ms, now_ns, is_delta=is_delta))
        self._last_ns = now_ns
        return bytes(data.SerializeToString())

    def _metrics(
        self, prefixes: tuple[str, ...], now_ms: int, now_ns: int, *, is_delta: bool
    ) -> Iterator[OtlpMetric]:
        start_ns = self._last_ns if is_delta else self._start_ns
        for key, value in self._registry.snapshot(now_ms).items():
            row = self._rows.get((key.group, key.name))
            if row is None or math.isnan(value) or not is_wanted(name_of(row), prefixes):
                continue
            point = NumberDataPoint(time_unix_nano=now_ns, as_double=value)
            point.attributes.extend(
                _pair((tag.replace("-", "_"), text)) for tag, text in key.tags if tag != _CLIENT_ID
            )
            metric = OtlpMetric(name=name_of(row))
            if row.kind in _SUMS:
                point.start_time_unix_nano = start_ns
                if is_delta:
                    point.as_double = value - self._last.get(key, 0.0)
                    self._last[key] = value
                metric.sum.is_monotonic = True
                metric.sum.aggregation_temporality = (
                    AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
                    if is_delta
                    else AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
                )
                metric.sum.data_points.append(point)
            else:
                metric.gauge.data_points.append(point)
            yield metric


def name_of(row: Metric) -> str:
    """Return the name of a metric in telemetry, as Java's TelemetryMetricNamingConvention makes it."""
    group = row.group.replace("-", ".").replace(".metrics", "")
    return f"{OURS if row.is_ours else JAVAS}{group}.{row.name.replace('-', '.')}"


def is_wanted(name: str, prefixes: tuple[str, ...]) -> bool:
    """True if a subscription takes the metric; "*" takes all."""
    return prefixes == ("*",) or name.startswith(prefixes)


def labels_of(config: ClientConfig, group_member_id: str) -> dict[str, str]:
    """Return what only the client knows of itself, by the names of KIP-714."""
    given = {key: getattr(config, key, None) for key in RESOURCE_KEYS}
    given["group_member_id"] = group_member_id
    return {key: str(value) for key, value in given.items() if value}


def _pair(pair: tuple[str, str]) -> Any:
    name, text = pair
    return KeyValue(key=name, value=AnyValue(string_value=text))
