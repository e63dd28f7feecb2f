"""Metrics as OTLP: names, kinds, values, and which a subscription takes."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from kbatch.config import ConsumerConfig
from kbatch.metrics import METRICS, READING_METRICS, MetricsRegistry
from kbatch.telemetry import JAVAS, OURS, OtlpPayload, labels_of, name_of

ALL = ("*",)
DELTA, CUMULATIVE = (
    AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA,
    AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE,
)


class Clock:
    now_ns = 1_000

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def registry() -> MetricsRegistry:
    return MetricsRegistry("c1")


def metrics_of(payload: OtlpPayload, prefixes: tuple[str, ...] = ALL, **how: Any) -> dict[str, Any]:
    """Return the metrics that are written, by their names; those of a topic have it in the name."""
    found = MetricsData.FromString(payload(prefixes, 0, is_delta=how.get("is_delta", False)))
    (resource,) = found.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name + "".join(_values(_point(metric).attributes)): metric for metric in scope.metrics}


def _point(metric: Any) -> Any:
    (point,) = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
    return point


def _values(attributes: Any) -> list[str]:
    return [f" {each.key}={each.value.string_value}" for each in attributes]


def test_names_are_those_of_java() -> None:
    names = {(row.group, row.name): name_of(row) for row in (*METRICS, *READING_METRICS)}
    assert (
        names["producer-metrics", "record-queue-time-avg"]
        == "org.apache.kafka.producer.record.queue.time.avg"
    )
    assert (
        names["producer-node-metrics", "request-latency-max"]
        == "org.apache.kafka.producer.node.request.latency.max"
    )
    assert (
        names["consumer-coordinator-metrics", "commit-latency-avg"]
        == "org.apache.kafka.consumer.coordinator.commit.latency.avg"
    )
    assert {
        name.startswith(OURS if row.is_ours else JAVAS) for row in METRICS for name in [name_of(row)]
    } == {True}


def test_totals_are_sums_and_all_else_gauges(registry: MetricsRegistry) -> None:
    registry.record("records-per-request", 7, 0)
    found = metrics_of(OtlpPayload(registry, dict))
    total, rate = (found[f"org.apache.kafka.producer.record.send.{end}"] for end in ("total", "rate"))
    assert (total.sum.is_monotonic, _point(total).as_double) == (True, 7.0)
    assert total.sum.aggregation_temporality == CUMULATIVE
    assert rate.HasField("gauge") and not _point(rate).attributes


def test_values_that_are_none_yet_are_left_out(registry: MetricsRegistry) -> None:
    assert "org.apache.kafka.producer.batch.size.avg" not in metrics_of(OtlpPayload(registry, dict))
    registry.record("batch-size", 5, 0)
    assert "org.apache.kafka.producer.batch.size.avg" in metrics_of(OtlpPayload(registry, dict))


def test_deltas_are_what_came_since_the_last_push(registry: MetricsRegistry) -> None:
    clock = Clock()
    payload = OtlpPayload(registry, dict, clock)
    name = "org.apache.kafka.producer.record.send.total"
    seen = []
    for count in (3, 4, 0):
        clock.now_ns += 100
        if count:
            registry.record("records-per-request", count, 0)
        metric = metrics_of(payload, is_delta=True)[name]
        point = _point(metric)
        assert metric.sum.aggregation_temporality == DELTA
        seen.append((point.as_double, point.start_time_unix_nano, point.time_unix_nano))
    assert seen == [(3.0, 1000, 1100), (4.0, 1100, 1200), (0.0, 1200, 1300)]


def test_only_wanted_metrics_are_written(registry: MetricsRegistry) -> None:
    payload = OtlpPayload(registry, dict)
    found = metrics_of(payload, ("org.apache.kafka.producer.record.", "kbatch."))
    assert found and all(name.startswith(("org.apache.kafka.producer.record.", "kbatch.")) for name in found)
    assert metrics_of(payload, ("nothing.",)) == {}
    assert metrics_of(payload, ("",)).keys() == metrics_of(payload).keys()


def test_metrics_of_topics_and_nodes_have_labels(registry: MetricsRegistry) -> None:
    registry.record("request-latency", 5, 0, node=3)
    found = metrics_of(OtlpPayload(registry, dict))
    assert "org.apache.kafka.producer.node.request.latency.avg node_id=node-3" in found


def test_resource_has_what_only_the_client_knows() -> None:
    config = ConsumerConfig(
        {"bootstrap.servers": "b:9092", "group.id": "g", "group.instance.id": "i", "client.rack": "r"}, 1
    )
    labels = {"client_rack": "r", "group_id": "g", "group_instance_id": "i"}
    assert labels_of(config, "") == labels
    assert labels_of(config, "m") == {**labels, "group_member_id": "m"}
