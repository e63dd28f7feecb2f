"""docs/metrics.md, written from the tables of metrics."""

from kbatch.metrics import ADMIN_METRICS, FETCH, METRICS, READING_METRICS, Scope

_INTRODUCTION = """\
# Metrics

What can I measure? `metrics()` of a producer or a reader returns every metric by its name, group and tags.
Names, groups and tags are those of Kafka's Java clients 4.3. The tags are `client-id`, and `topic`,
`partition` or `node-id` for metrics about one of these. Metrics that Java lacks are marked *kbatch only*.

avg, max, rate and ratio cover the last `metrics.num.samples` windows of `metrics.sample.window.ms`; totals
cover the client's life. An average or maximum without values is NaN. The code records values to a sensor,
which feeds all metrics that name it. Metrics of level DEBUG need `metrics.recording.level` DEBUG or TRACE.

Prometheus reads them through a collector when it scrapes (`pip install 'kbatch-kafka[prometheus]'`):

```python
from kbatch.prometheus import ConsumerCollector, ProducerCollector

prometheus_client.REGISTRY.register(ProducerCollector(producer))
prometheus_client.REGISTRY.register(ConsumerCollector(consumer))
```

`record-send-total` becomes the counter `kafka_producer_record_send_total{client_id="..."}`. A topic's counter
is `kafka_producer_topic_record_send_total`, with the label `topic`. Metrics of nodes begin with
`kafka_producer_node_` and have the label `node_id`. All metrics except totals are gauges.

The lag of a partition is `kafka_consumer_fetch_manager_partition_records_lag`, with the labels `topic` and
`partition`. Metrics of consumers and readers begin with `kafka_consumer_`, `kafka_consumer_node_`,
`kafka_consumer_fetch_manager_` (then `topic_` or `partition_`), `kafka_consumer_coordinator_` or
`kafka_consumer_process_`. Metrics of share consumers begin with `kafka_consumer_share_`,
`kafka_consumer_share_fetch_manager_` or `kafka_consumer_share_coordinator_`; their connections have the names
of any consumer's.

## Can brokers collect them?

Yes, if they have a receiver (KIP-714, Kafka 3.7): with `enable.metrics.push=true` every client pushes what
operators subscribe to, as often as they say, compressed, and a last time at `close()`, which waits a second
for that at most. It takes `pip install 'kbatch-kafka[telemetry]'`.

```
kbatch configs set --client-metrics all metrics=org.apache.kafka.producer.,kbatch. -b localhost:9092
```

Names are group and name with dots: `record-send-total` of `producer-metrics` is
`org.apache.kafka.producer.record.send.total`, and metrics that are *kbatch only* begin with `kbatch.`
instead. Totals are sums, with the temporality that the broker wants; all else are gauges. A metric has its
tags but the client's id; the resource has `client_rack`, `group_id`, `group_instance_id`, `group_member_id`
and `transactional_id`. Brokers tell clients apart by the id that `client_instance_id()` returns. Telemetry
fails no call: what brokers refuse for good ends it, with a line in the log.

`python -m kbatch.metrics > docs/metrics.md` writes this page.
"""


def page() -> str:
    """Return docs/metrics.md, written from the table."""
    lines = [_INTRODUCTION]
    tables = (*METRICS, *READING_METRICS, *ADMIN_METRICS)
    for group, scope in dict.fromkeys((metric.group, metric.scope) for metric in tables):
        about = f", {scope}" if group == FETCH and scope is not Scope.CLIENT else ""
        lines.append(f"\n## {group}{about}\n\n| metric | kind | unit | sensor | level | meaning |\n")
        lines.append("|---|---|---|---|---|---|\n")
        rows = dict.fromkeys(metric for metric in tables if (metric.group, metric.scope) == (group, scope))
        for metric in sorted(rows):
            doc = f"{metric.doc} *kbatch only*" if metric.is_ours else metric.doc
            cells = (f"`{metric.name}`", metric.kind, metric.unit, metric.sensor, metric.level, doc)
            lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)
