"""ProducerCollector and ConsumerCollector, read by Prometheus' own client."""

from __future__ import annotations

import math
import sys
from collections import Counter

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kbatch.metrics import METRICS, READING_METRICS, Kind
from kbatch.prometheus import ConsumerCollector, ProducerCollector
from kbatch.testing import Broker
from tests.support import polling
from tests.support.patience import until
from tests.support.polling import consuming, polled
from tests.support.producing import SECONDS, TOPIC, producing

pytestmark = pytest.mark.usefixtures("shell")


def test_prometheus_reads_what_the_producer_measures() -> None:
    with Broker([TOPIC]) as broker, producing(broker, client_id="one") as producer:
        registry = CollectorRegistry()
        registry.register(ProducerCollector(producer))
        for value in (b"a", b"b", b"c"):
            producer.send(TOPIC, value).result(SECONDS)
        one = {"client_id": "one"}
        assert registry.get_sample_value("kafka_producer_record_send_total", one) == 3
        assert (registry.get_sample_value("kafka_producer_connection_count", one) or 0) >= 1
        topic, node = one | {"topic": TOPIC}, one | {"node_id": "node-0"}
        assert registry.get_sample_value("kafka_producer_topic_record_send_total", topic) == 3
        assert (registry.get_sample_value("kafka_producer_node_request_total", node) or 0) >= 3
        families = {
            family.name: family
            for family in text_string_to_metric_families(generate_latest(registry).decode())
        }
        samples = sum(len(family.samples) for family in families.values())
        assert samples == len(producer.metrics())
        assert len(families) == len(METRICS)
        totals = sum(metric.kind in (Kind.TOTAL, Kind.OCCURRENCE_TOTAL) for metric in METRICS)
        kinds = Counter(family.type for family in families.values())
        assert kinds == {"counter": totals, "gauge": len(METRICS) - totals}
        assert families["kafka_producer_record_send"].documentation == "Records sent. Unit: records."


def test_producers_share_a_collector_and_unmeasured_is_nan() -> None:
    with (
        Broker([TOPIC]) as broker,
        producing(broker, client_id="a") as a,
        producing(broker, client_id="b") as b,
    ):
        registry = CollectorRegistry()
        collector = ProducerCollector(a, b)
        registry.register(collector)
        a.send(TOPIC, b"x").result(SECONDS)
        sent = "kafka_producer_record_send_total"
        assert registry.get_sample_value(sent, {"client_id": "a"}) == 1
        assert registry.get_sample_value(sent, {"client_id": "b"}) == 0
        average = registry.get_sample_value("kafka_producer_batch_size_avg", {"client_id": "b"})
        assert average is not None
        assert math.isnan(average)
        with pytest.raises(ValueError, match="Duplicated timeseries"):
            registry.register(ProducerCollector(a))
        registry.unregister(collector)
        assert registry.get_sample_value(sent, {"client_id": "a"}) is None


def test_R94_prometheus_reads_what_the_consumer_measures() -> None:
    with Broker({polling.TOPIC: 3}) as broker, consuming(broker, client_id="one") as consumer:
        registry = CollectorRegistry()
        registry.register(ConsumerCollector(consumer))
        polling.fill(broker, 5, partitions=[1])
        polled(consumer, 5)
        consumer.poll(0)
        one = {"client_id": "one"}
        topic = one | {"topic": polling.TOPIC}
        until(lambda: value(registry, "fetch_manager_records_consumed_total", one) == 5)
        assert value(registry, "fetch_manager_topic_records_consumed_total", topic) == 5
        assert value(registry, "fetch_manager_partition_records_lag", topic | {"partition": "1"}) == 0
        assert value(registry, "fetch_manager_partition_records_lead", topic | {"partition": "1"}) == 5
        assert value(registry, "last_poll_seconds_ago", one) >= 0
        assert value(registry, "node_request_total", one | {"node_id": "node-0"}) >= 1
        found = list(text_string_to_metric_families(generate_latest(registry).decode()))
        assert sum(len(family.samples) for family in found) == len(consumer.metrics())
        assert len({family.name for family in found}) == len(READING_METRICS)
        with pytest.raises(ValueError, match="Duplicated timeseries"):
            registry.register(ConsumerCollector(consumer))


def value(registry: CollectorRegistry, name: str, labels: dict[str, str]) -> float:
    found = registry.get_sample_value(f"kafka_consumer_{name}", labels)
    return -1 if found is None else found


@pytest.mark.threads
def test_without_prometheus_client_the_text_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    monkeypatch.delitem(sys.modules, "kbatch.prometheus")
    with pytest.raises(ImportError, match=r"pip install 'kbatch-kafka\[prometheus\]'"):
        import kbatch.prometheus  # noqa: F401
