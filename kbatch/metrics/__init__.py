"""Metrics under the names of Kafka's Java clients 4.3: the tables, and the registry of sensors.

A sensor records values as events happen, and feeds one or more metrics. It keeps `metrics.num.samples`
windows of `metrics.sample.window.ms` each, so that averages, maxima and rates cover the recent past, and two
sums that never end. Nothing here reads a clock: every call passes `now_ms`, of any monotonic clock. Several
threads may use all of it.

`python -m kbatch.metrics > docs/metrics.md` writes the reference page.
"""

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple, final

from kbatch._native.io.sensor import Reading, Sensor
from kbatch.unpatched import real_threading

__all__ = ["CONSUMER_METRICS", "METRICS", "Kind", "Metric", "MetricName"]

PRODUCER = "producer-metrics"
TOPIC = "producer-topic-metrics"
NODE = "producer-node-metrics"
CONSUMER = "consumer-metrics"
CONSUMER_NODE = "consumer-node-metrics"
FETCH = "consumer-fetch-manager-metrics"
COORDINATOR = "consumer-coordinator-metrics"
PROCESS = "consumer-process-metrics"
SHARE = "consumer-share-metrics"
SHARE_FETCH = "consumer-share-fetch-manager-metrics"
SHARE_COORDINATOR = "consumer-share-coordinator-metrics"
ADMIN = "admin-client-metrics"
ADMIN_NODE = "admin-client-node-metrics"
COUNT = "kafka-metrics-count"
# Levels of metrics and of metrics.recording.level; each level also records the levels before it.
LEVELS = ("INFO", "DEBUG", "TRACE")


class Kind(StrEnum):
    """How a metric is computed from the values of its sensor."""

    AVG = "avg"
    MAX = "max"
    MIN = "min"
    RATE = "rate"
    TOTAL = "total"
    OCCURRENCE_RATE = "occurrence rate"
    HOURLY_OCCURRENCE_RATE = "occurrence rate per hour"
    OCCURRENCE_TOTAL = "occurrence total"
    RATIO = "ratio"
    GAUGE = "gauge"


class Scope(StrEnum):
    """What a metric is about."""

    CLIENT = "client"
    TOPIC = "topic"
    PARTITION = "partition"
    NODE = "node"


class Metric(NamedTuple):
    """A row of a table; a gauge has its own name as sensor, and `is_ours` is True if Java lacks the metric.
    """

    name: str
    group: str
    sensor: str
    kind: Kind
    unit: str
    doc: str
    level: str = "INFO"
    is_ours: bool = False
    scope: Scope = Scope.CLIENT


AVG, MAX, MIN, RATE, TOTAL, OCCURRENCE_RATE, HOURLY_OCCURRENCE_RATE, OCCURRENCE_TOTAL, RATIO, GAUGE = Kind
# The scope of a group whose metrics are all about the same.
_SCOPES = {TOPIC: Scope.TOPIC, NODE: Scope.NODE}

# Names: SenderMetricsRegistry, KafkaProducerMetrics, BufferPool, RecordAccumulator, Sender and Selector.
_PRODUCER_ROWS: tuple[Metric, ...] = (
    # Batches and records
    Metric("batch-size-avg", PRODUCER, "batch-size", AVG, "bytes", "Size of a batch as sent, compressed."),
    Metric("batch-size-max", PRODUCER, "batch-size", MAX, "bytes", "Largest batch sent."),
    Metric("compression-rate-avg", PRODUCER, "compression-rate", AVG, "1",
           "Compressed size of a batch's records by their size before, the header left out; small is good."),
    Metric("record-queue-time-avg", PRODUCER, "record-queue-time", AVG, "ms",
           "From the opening of a batch to its sending."),
    Metric("record-queue-time-max", PRODUCER, "record-queue-time", MAX, "ms", "Longest such wait."),
    Metric("record-size-avg", PRODUCER, "record-size", AVG, "bytes",
           "Mean over batches of the largest record in each, as written and before compression; Java's is "
           "an upper estimate, with a batch header's 61 bytes."),
    Metric("record-size-max", PRODUCER, "record-size", MAX, "bytes",
           "Largest record, measured likewise."),
    Metric("records-per-request-avg", PRODUCER, "records-per-request", AVG, "records",
           "Records in a Produce request."),
    Metric("record-send-rate", PRODUCER, "records-per-request", RATE, "records/s", "Records sent."),
    Metric("record-send-total", PRODUCER, "records-per-request", TOTAL, "records", "Records sent."),
    Metric("record-retry-rate", PRODUCER, "record-retry", RATE, "records/s",
           "Records sent again; those of a split batch do not count."),
    Metric("record-retry-total", PRODUCER, "record-retry", TOTAL, "records",
           "Records sent again; those of a split batch do not count."),
    Metric("record-error-rate", PRODUCER, "record-error", RATE, "records/s",
           "Records that failed, in send() or after it."),
    Metric("record-error-total", PRODUCER, "record-error", TOTAL, "records",
           "Records that failed, in send() or after it."),
    Metric("batch-split-rate", PRODUCER, "batch-split", RATE, "batches/s",
           "Batches that were split because a broker found them too large."),
    Metric("batch-split-total", PRODUCER, "batch-split", TOTAL, "batches",
           "Batches that were split because a broker found them too large."),
    # Memory
    Metric("buffer-total-bytes", PRODUCER, "buffer-total-bytes", GAUGE, "bytes", "buffer.memory."),
    Metric("buffer-available-bytes", PRODUCER, "buffer-available-bytes", GAUGE, "bytes",
           "Memory that records do not use."),
    Metric("waiting-threads", PRODUCER, "waiting-threads", GAUGE, "threads",
           "Threads inside send() that wait for memory."),
    Metric("buffer-exhausted-rate", PRODUCER, "buffer-exhausted", RATE, "records/s",
           "Records refused because no memory became free in time."),
    Metric("buffer-exhausted-total", PRODUCER, "buffer-exhausted", TOTAL, "records",
           "Records refused because no memory became free in time."),
    Metric("bufferpool-wait-ratio", PRODUCER, "bufferpool-wait", RATIO, "1",
           "Fraction of the time that threads waited for memory, summed over threads."),
    Metric("bufferpool-wait-time-ns-total", PRODUCER, "bufferpool-wait", TOTAL, "ns",
           "Time that threads waited for memory."),
    # Requests
    Metric("request-latency-avg", PRODUCER, "request-latency", AVG, "ms",
           "From the sending of a Produce request to its answer, good or bad."),
    Metric("request-latency-max", PRODUCER, "request-latency", MAX, "ms", "Longest such time."),
    Metric("requests-in-flight", PRODUCER, "requests-in-flight", GAUGE, "requests",
           "Requests without an answer so far."),
    Metric("produce-throttle-time-avg", PRODUCER, "produce-throttle-time", AVG, "ms",
           "Throttling that brokers imposed in answers (quotas)."),
    Metric("produce-throttle-time-max", PRODUCER, "produce-throttle-time", MAX, "ms", "Longest throttling."),
    Metric("metadata-age", PRODUCER, "metadata-age", GAUGE, "s", "Age of the metadata in use."),
    # Calls of users
    Metric("flush-time-ns-total", PRODUCER, "flush-time", TOTAL, "ns", "Time spent in flush()."),
    Metric("metadata-wait-time-ns-total", PRODUCER, "metadata-wait-time", TOTAL, "ns",
           "Time that send() waited for the metadata of a topic."),
    Metric("txn-init-time-ns-total", PRODUCER, "txn-init-time", TOTAL, "ns",
           "Time spent in init_transactions()."),
    Metric("txn-begin-time-ns-total", PRODUCER, "txn-begin-time", TOTAL, "ns",
           "Time spent in begin_transaction()."),
    Metric("txn-send-offsets-time-ns-total", PRODUCER, "txn-send-offsets-time", TOTAL, "ns",
           "Time spent in send_offsets_to_transaction()."),
    Metric("txn-commit-time-ns-total", PRODUCER, "txn-commit-time", TOTAL, "ns",
           "Time spent in commit_transaction()."),
    Metric("txn-abort-time-ns-total", PRODUCER, "txn-abort-time", TOTAL, "ns",
           "Time spent in abort_transaction()."),
    # Delivery thread; Java runs callbacks on its I/O thread
    Metric("callback-queue-size", PRODUCER, "callback-queue-size", GAUGE, "records",
           "Deliveries whose callbacks have not run yet.", is_ours=True),
    Metric("callback-time-ns-avg", PRODUCER, "callback-time", AVG, "ns",
           "Time in one on_delivery.", "DEBUG", is_ours=True),
    Metric("callback-time-ns-max", PRODUCER, "callback-time", MAX, "ns",
           "Longest time in one on_delivery.", "DEBUG", is_ours=True),
    # Connections
    Metric("connection-count", PRODUCER, "connection-count", GAUGE, "connections", "Open connections."),
    Metric("connection-creation-rate", PRODUCER, "connection-creation", RATE, "connections/s",
           "Connections established."),
    Metric("connection-creation-total", PRODUCER, "connection-creation", TOTAL, "connections",
           "Connections established."),
    Metric("connection-close-rate", PRODUCER, "connection-close", RATE, "connections/s",
           "Connections closed, by either side."),
    Metric("connection-close-total", PRODUCER, "connection-close", TOTAL, "connections",
           "Connections closed, by either side."),
    Metric("successful-authentication-rate", PRODUCER, "successful-authentication", RATE, "connections/s",
           "Connections whose SASL or TLS authentication succeeded."),
    Metric("successful-authentication-total", PRODUCER, "successful-authentication", TOTAL, "connections",
           "Connections whose SASL or TLS authentication succeeded."),
    Metric("successful-authentication-no-reauth-total", PRODUCER, "successful-authentication-no-reauth",
           TOTAL, "connections",
           "Those of them that need not authenticate again (KIP-368): all, as in Java."),
    Metric("failed-authentication-rate", PRODUCER, "failed-authentication", RATE, "connections/s",
           "Connections that failed to authenticate, or were refused for it."),
    Metric("failed-authentication-total", PRODUCER, "failed-authentication", TOTAL, "connections",
           "Connections that failed to authenticate, or were refused for it."),
    Metric("successful-reauthentication-rate", PRODUCER, "successful-reauthentication", RATE, "times/s",
           "Open connections that authenticated again."),
    Metric("successful-reauthentication-total", PRODUCER, "successful-reauthentication", TOTAL, "times",
           "Open connections that authenticated again."),
    Metric("failed-reauthentication-rate", PRODUCER, "failed-reauthentication", RATE, "times/s",
           "Open connections that failed to authenticate again."),
    Metric("failed-reauthentication-total", PRODUCER, "failed-reauthentication", TOTAL, "times",
           "Open connections that failed to authenticate again."),
    Metric("reauthentication-latency-avg", PRODUCER, "reauthentication-latency", AVG, "ms",
           "Time of a reauthentication."),
    Metric("reauthentication-latency-max", PRODUCER, "reauthentication-latency", MAX, "ms",
           "Longest such time."),
    # Bytes and system calls
    Metric("network-io-rate", PRODUCER, "network-io", OCCURRENCE_RATE, "calls/s",
           "Reads and writes on all connections."),
    Metric("network-io-total", PRODUCER, "network-io", OCCURRENCE_TOTAL, "calls",
           "Reads and writes on all connections."),
    Metric("outgoing-byte-rate", PRODUCER, "outgoing-byte", RATE, "bytes/s", "Bytes written."),
    Metric("outgoing-byte-total", PRODUCER, "outgoing-byte", TOTAL, "bytes", "Bytes written."),
    Metric("incoming-byte-rate", PRODUCER, "incoming-byte", RATE, "bytes/s", "Bytes read."),
    Metric("incoming-byte-total", PRODUCER, "incoming-byte", TOTAL, "bytes", "Bytes read."),
    Metric("request-rate", PRODUCER, "request", OCCURRENCE_RATE, "requests/s", "Requests sent, of any kind."),
    Metric("request-total", PRODUCER, "request", OCCURRENCE_TOTAL, "requests", "Requests sent, of any kind."),
    Metric("request-size-avg", PRODUCER, "request", AVG, "bytes", "Size of a request."),
    Metric("request-size-max", PRODUCER, "request", MAX, "bytes", "Largest request."),
    Metric("response-rate", PRODUCER, "response", OCCURRENCE_RATE, "responses/s", "Answers received."),
    Metric("response-total", PRODUCER, "response", OCCURRENCE_TOTAL, "responses", "Answers received."),
    Metric("select-rate", PRODUCER, "select", OCCURRENCE_RATE, "calls/s", "Waits for sockets."),
    Metric("select-total", PRODUCER, "select", OCCURRENCE_TOTAL, "calls", "Waits for sockets."),
    Metric("io-wait-time-ns-avg", PRODUCER, "select", AVG, "ns", "Length of a wait for sockets."),
    Metric("io-wait-time-ns-total", PRODUCER, "select", TOTAL, "ns", "Time spent waiting for sockets."),
    Metric("io-wait-ratio", PRODUCER, "select", RATIO, "1",
           "Fraction of the time that the sender's thread waited for sockets."),
    Metric("io-time-ns-avg", PRODUCER, "io", AVG, "ns", "Time of reading and writing after a wait."),
    Metric("io-time-ns-total", PRODUCER, "io", TOTAL, "ns", "Time spent reading and writing."),
    Metric("io-ratio", PRODUCER, "io", RATIO, "1",
           "Fraction of the time that the sender's thread read and wrote."),
    # Of each topic
    Metric("record-send-rate", TOPIC, "record-send", RATE, "records/s", "Records sent to the topic."),
    Metric("record-send-total", TOPIC, "record-send", TOTAL, "records", "Records sent to the topic."),
    Metric("byte-rate", TOPIC, "byte", RATE, "bytes/s", "Bytes of batches sent to the topic, compressed."),
    Metric("byte-total", TOPIC, "byte", TOTAL, "bytes", "Bytes of batches sent to the topic, compressed."),
    Metric("compression-rate", TOPIC, "compression-rate", AVG, "1",
           "Compressed size of a batch's records by their size before, the header left out."),
    Metric("record-retry-rate", TOPIC, "record-retry", RATE, "records/s", "Records sent again."),
    Metric("record-retry-total", TOPIC, "record-retry", TOTAL, "records", "Records sent again."),
    Metric("record-error-rate", TOPIC, "record-error", RATE, "records/s", "Records that failed."),
    Metric("record-error-total", TOPIC, "record-error", TOTAL, "records", "Records that failed."),
    # Of each broker
    Metric("request-rate", NODE, "request", OCCURRENCE_RATE, "requests/s", "Requests sent to the node."),
    Metric("request-total", NODE, "request", OCCURRENCE_TOTAL, "requests", "Requests sent to the node."),
    Metric("request-size-avg", NODE, "request", AVG, "bytes", "Size of a request to the node."),
    Metric("request-size-max", NODE, "request", MAX, "bytes", "Largest request to the node."),
    Metric("request-latency-avg", NODE, "request-latency", AVG, "ms",
           "From the sending of a Produce request to the node's answer, good or bad."),
    Metric("request-latency-max", NODE, "request-latency", MAX, "ms", "Longest such time."),
    Metric("outgoing-byte-rate", NODE, "outgoing-byte", RATE, "bytes/s", "Bytes written to the node."),
    Metric("outgoing-byte-total", NODE, "outgoing-byte", TOTAL, "bytes", "Bytes written to the node."),
    Metric("response-rate", NODE, "response", OCCURRENCE_RATE, "responses/s", "Answers of the node."),
    Metric("response-total", NODE, "response", OCCURRENCE_TOTAL, "responses", "Answers of the node."),
    Metric("incoming-byte-rate", NODE, "incoming-byte", RATE, "bytes/s", "Bytes read from the node."),
    Metric("incoming-byte-total", NODE, "incoming-byte", TOTAL, "bytes", "Bytes read from the node."),
    # Of the metrics
    Metric("count", COUNT, "count", GAUGE, "metrics", "Number of metrics."),
)

METRICS: tuple[Metric, ...] = tuple(
    row._replace(scope=_SCOPES.get(row.group, row.scope)) for row in _PRODUCER_ROWS
)

# What connections, requests and waits for sockets feed, whatever a client does with them.
_OF_ANY_CLIENT = (
    "connection-count", "connection-creation", "connection-close", "successful-authentication",
    "successful-authentication-no-reauth", "failed-authentication", "successful-reauthentication",
    "failed-reauthentication", "reauthentication-latency", "network-io", "outgoing-byte", "incoming-byte",
    "request", "response", "select", "io", "count",
)
_CONSUMER_GROUPS = {PRODUCER: CONSUMER, NODE: CONSUMER_NODE, COUNT: COUNT}
_ADMIN_GROUPS = {PRODUCER: ADMIN, NODE: ADMIN_NODE, COUNT: COUNT}

# Names: KafkaAdminClient and Selector.
ADMIN_METRICS: tuple[Metric, ...] = (
    *(
        row._replace(group=_ADMIN_GROUPS[row.group])
        for row in METRICS
        if row.sensor in _OF_ANY_CLIENT and row.group in _ADMIN_GROUPS
    ),
    Metric("requests-in-flight", ADMIN, "requests-in-flight", GAUGE, "requests",
           "Requests without an answer so far.", is_ours=True),
    Metric("metadata-age", ADMIN, "metadata-age", GAUGE, "s", "Age of the metadata in use.", is_ours=True),
    Metric("request-latency-avg", ADMIN_NODE, "request-latency", AVG, "ms",
           "From the sending of a call's request to the node's answer.", scope=Scope.NODE),
    Metric("request-latency-max", ADMIN_NODE, "request-latency", MAX, "ms", "Longest such time.",
           scope=Scope.NODE),
)


def _of_topic(name: str, sensor: str, kind: Kind, unit: str, doc: str) -> Metric:
    return Metric(name, FETCH, sensor, kind, unit, doc, scope=Scope.TOPIC)


def _of_partition(name: str, sensor: str, kind: Kind, unit: str, doc: str) -> Metric:
    return Metric(name, FETCH, sensor, kind, unit, doc, scope=Scope.PARTITION)


# Names: FetchMetricsRegistry and Selector. Lead and lag are those of what the program has read.
CONSUMER_METRICS: tuple[Metric, ...] = (
    *(
        row._replace(group=_CONSUMER_GROUPS[row.group])
        for row in METRICS
        if row.sensor in _OF_ANY_CLIENT and row.group in _CONSUMER_GROUPS
    ),
    Metric("requests-in-flight", CONSUMER, "requests-in-flight", GAUGE, "requests",
           "Requests without an answer so far.", is_ours=True),
    Metric("metadata-age", CONSUMER, "metadata-age", GAUGE, "s", "Age of the metadata in use.", is_ours=True),
    Metric("last-poll-seconds-ago", CONSUMER, "last-poll-seconds-ago", GAUGE, "s",
           "Time since the beginning of the last poll; -1 before the first."),
    Metric("time-between-poll-avg", CONSUMER, "time-between-poll", AVG, "ms",
           "Time between the beginnings of two polls. An iteration polls for some records at a time."),
    Metric("time-between-poll-max", CONSUMER, "time-between-poll", MAX, "ms", "Longest such time."),
    Metric("poll-idle-ratio-avg", CONSUMER, "poll-idle-ratio", AVG, "1",
           "Time in a poll, divided by the sum of that and the time since the beginning of the poll before."),
    Metric("commit-sync-time-ns-total", CONSUMER, "commit-sync-time", TOTAL, "ns", "Time spent in commit()."),
    Metric("committed-time-ns-total", CONSUMER, "committed-time", TOTAL, "ns", "Time spent in committed()."),
    Metric("request-latency-avg", CONSUMER_NODE, "request-latency", AVG, "ms",
           "From the sending of a Fetch to the node's answer.", scope=Scope.NODE),
    Metric("request-latency-max", CONSUMER_NODE, "request-latency", MAX, "ms", "Longest such time.",
           scope=Scope.NODE),
    Metric("fetch-size-avg", FETCH, "bytes-fetched", AVG, "bytes",
           "Bytes of records in an answer to a Fetch."),
    Metric("fetch-size-max", FETCH, "bytes-fetched", MAX, "bytes", "Largest such number."),
    Metric("bytes-consumed-rate", FETCH, "bytes-fetched", RATE, "bytes/s", "Bytes of records fetched."),
    Metric("bytes-consumed-total", FETCH, "bytes-fetched", TOTAL, "bytes", "Bytes of records fetched."),
    Metric("records-per-request-avg", FETCH, "records-fetched", AVG, "records",
           "Records of a partition in an answer; Java's counts those of all partitions in it."),
    Metric("records-consumed-rate", FETCH, "records-fetched", RATE, "records/s", "Records read."),
    Metric("records-consumed-total", FETCH, "records-fetched", TOTAL, "records", "Records read."),
    Metric("fetch-latency-avg", FETCH, "fetch-latency", AVG, "ms",
           "From the sending of a Fetch to its answer, which waits for records up to fetch.max.wait.ms."),
    Metric("fetch-latency-max", FETCH, "fetch-latency", MAX, "ms", "Longest such time."),
    Metric("fetch-rate", FETCH, "fetch-latency", OCCURRENCE_RATE, "requests/s", "Fetch requests answered."),
    Metric("fetch-total", FETCH, "fetch-latency", OCCURRENCE_TOTAL, "requests", "Fetch requests answered."),
    Metric("fetch-throttle-time-avg", FETCH, "fetch-throttle-time", AVG, "ms",
           "Throttling that brokers imposed in answers (quotas)."),
    Metric("fetch-throttle-time-max", FETCH, "fetch-throttle-time", MAX, "ms", "Longest throttling."),
    Metric("records-lag-max", FETCH, "records-lag", MAX, "records",
           "Largest distance of a position from the end of its log, also at this moment."),
    Metric("records-lead-min", FETCH, "records-lead", MIN, "records",
           "Smallest distance of a position from the beginning of its log, also at this moment."),
    Metric("fetch-buffer-used-bytes", FETCH, "fetch-buffer-used-bytes", GAUGE, "bytes",
           "Bytes of answers that are requested or not yet read; kbatch.fetch.buffer.memory limits them.",
           is_ours=True),
    _of_topic("fetch-size-avg", "bytes-fetched", AVG, "bytes", "Bytes of the topic's records in an answer."),
    _of_topic("fetch-size-max", "bytes-fetched", MAX, "bytes", "Largest such number."),
    _of_topic("bytes-consumed-rate", "bytes-fetched", RATE, "bytes/s", "Bytes of records fetched."),
    _of_topic("bytes-consumed-total", "bytes-fetched", TOTAL, "bytes", "Bytes of records fetched."),
    _of_topic("records-per-request-avg", "records-fetched", AVG, "records",
              "Records of a partition in an answer."),
    _of_topic("records-consumed-rate", "records-fetched", RATE, "records/s", "Records read."),
    _of_topic("records-consumed-total", "records-fetched", TOTAL, "records", "Records read."),
    _of_partition("records-lag", "records-lag", GAUGE, "records",
                  "Distance of the position, at this moment, from the end of the log by the last answer;"
                  " under read_committed, from the last stable offset."),
    _of_partition("records-lag-avg", "records-lag-window", AVG, "records", "Mean of that distance."),
    _of_partition("records-lag-max", "records-lag-window", MAX, "records", "Largest such distance."),
    _of_partition("records-lead", "records-lead", GAUGE, "records",
                  "Distance of the position, at this moment, from the beginning of the log."),
    _of_partition("records-lead-avg", "records-lead-mean", AVG, "records", "Mean of that distance."),
    _of_partition("records-lead-min", "records-lead-window", MIN, "records", "Smallest such distance."),
    _of_partition("preferred-read-replica", "preferred-read-replica", GAUGE, "1",
                  "The replica that is read instead of the leader (KIP-392); -1 for the leader."),
)

# Names: HeartbeatMetricsManager, ConsumerRebalanceMetricsManager, OffsetCommitMetricsManager,
# RebalanceCallbackMetricsManager and ConsumerCoordinator.
COORDINATOR_METRICS: tuple[Metric, ...] = (
    Metric("heartbeat-rate", COORDINATOR, "heartbeat-latency", OCCURRENCE_RATE, "requests/s",
           "Heartbeats with an answer, good or bad."),
    Metric("heartbeat-total", COORDINATOR, "heartbeat-latency", OCCURRENCE_TOTAL, "requests",
           "Heartbeats with an answer, good or bad."),
    Metric("heartbeat-response-time-max", COORDINATOR, "heartbeat-latency", MAX, "ms",
           "Longest time from a heartbeat to its answer."),
    Metric("last-heartbeat-seconds-ago", COORDINATOR, "last-heartbeat-seconds-ago", GAUGE, "s",
           "Time since the last heartbeat was sent; -1 if none was."),
    Metric("join-rate", COORDINATOR, "join-latency", OCCURRENCE_RATE, "requests/s",
           "Joins of the group by the classic protocol."),
    Metric("join-total", COORDINATOR, "join-latency", OCCURRENCE_TOTAL, "requests",
           "Joins of the group by the classic protocol."),
    Metric("join-time-avg", COORDINATOR, "join-latency", AVG, "ms", "From a JoinGroup to its answer."),
    Metric("join-time-max", COORDINATOR, "join-latency", MAX, "ms", "Longest such time."),
    Metric("sync-rate", COORDINATOR, "sync-latency", OCCURRENCE_RATE, "requests/s",
           "Assignments received by the classic protocol."),
    Metric("sync-total", COORDINATOR, "sync-latency", OCCURRENCE_TOTAL, "requests",
           "Assignments received by the classic protocol."),
    Metric("sync-time-avg", COORDINATOR, "sync-latency", AVG, "ms", "From a SyncGroup to its answer."),
    Metric("sync-time-max", COORDINATOR, "sync-latency", MAX, "ms", "Longest such time."),
    Metric("rebalance-latency-avg", COORDINATOR, "rebalance-latency", AVG, "ms",
           "From the news of another assignment until the member has done what it asks for."),
    Metric("rebalance-latency-max", COORDINATOR, "rebalance-latency", MAX, "ms", "Longest such time."),
    Metric("rebalance-latency-total", COORDINATOR, "rebalance-latency", TOTAL, "ms",
           "Time spent in rebalances."),
    Metric("rebalance-total", COORDINATOR, "rebalance-latency", OCCURRENCE_TOTAL, "rebalances",
           "Rebalances that were completed."),
    Metric("rebalance-rate-per-hour", COORDINATOR, "rebalance-latency", HOURLY_OCCURRENCE_RATE,
           "rebalances/h", "Rebalances that were completed."),
    Metric("last-rebalance-seconds-ago", COORDINATOR, "last-rebalance-seconds-ago", GAUGE, "s",
           "Time since the last rebalance was completed; -1 if none was."),
    Metric("failed-rebalance-total", COORDINATOR, "failed-rebalance", OCCURRENCE_TOTAL, "rebalances",
           "Rebalances that an error or the loss of the membership has ended."),
    Metric("failed-rebalance-rate-per-hour", COORDINATOR, "failed-rebalance", HOURLY_OCCURRENCE_RATE,
           "rebalances/h", "Rebalances that an error or the loss of the membership has ended."),
    Metric("partition-revoked-latency-avg", COORDINATOR, "partition-revoked-latency", AVG, "ms",
           "Time in on_revoked."),
    Metric("partition-revoked-latency-max", COORDINATOR, "partition-revoked-latency", MAX, "ms",
           "Longest time in on_revoked."),
    Metric("partition-assigned-latency-avg", COORDINATOR, "partition-assigned-latency", AVG, "ms",
           "Time in on_assigned."),
    Metric("partition-assigned-latency-max", COORDINATOR, "partition-assigned-latency", MAX, "ms",
           "Longest time in on_assigned."),
    Metric("partition-lost-latency-avg", COORDINATOR, "partition-lost-latency", AVG, "ms",
           "Time in on_lost."),
    Metric("partition-lost-latency-max", COORDINATOR, "partition-lost-latency", MAX, "ms",
           "Longest time in on_lost."),
    Metric("assigned-partitions", COORDINATOR, "assigned-partitions", GAUGE, "partitions",
           "Partitions that are read, whether the group or the program has assigned them."),
    Metric("commit-latency-avg", COORDINATOR, "commit-latency", AVG, "ms",
           "From an OffsetCommit to its answer."),
    Metric("commit-latency-max", COORDINATOR, "commit-latency", MAX, "ms", "Longest such time."),
    Metric("commit-rate", COORDINATOR, "commit-latency", OCCURRENCE_RATE, "requests/s",
           "Commits with an answer, good or bad."),
    Metric("commit-total", COORDINATOR, "commit-latency", OCCURRENCE_TOTAL, "requests",
           "Commits with an answer, good or bad."),
)

# Those of `process()`, from its first call on.
PROCESS_METRICS: tuple[Metric, ...] = tuple(
    row._replace(is_ours=True)
    for row in (
        Metric("records-running", PROCESS, "records-running", GAUGE, "records", "Records that workers have."),
        Metric("records-waiting", PROCESS, "records-waiting", GAUGE, "records",
               "Records that were taken and wait for a worker, or for another attempt."),
        Metric("records-parked", PROCESS, "records-parked", GAUGE, "records",
               "Records behind failed ones of their keys that are not in memory, and will be read again."),
        Metric("keys-backing-off", PROCESS, "keys-backing-off", GAUGE, "keys",
               "Keys whose first record has failed and waits for another attempt."),
        Metric("bytes-in-flight", PROCESS, "bytes-in-flight", GAUGE, "bytes",
               "Keys and values of the records that were taken and are not finished."),
        Metric("ahead-max", PROCESS, "ahead-max", GAUGE, "offsets",
               "Longest distance from a partition's first unfinished record to its newest taken one."),
        Metric("metadata-characters-max", PROCESS, "metadata-characters-max", GAUGE, "characters",
               "Longest metadata of a partition's last commit."),
        Metric("partitions-cut", PROCESS, "partitions-cut", GAUGE, "partitions",
               "Partitions with more finished offsets than the metadata of a commit has room for."),
        Metric("partitions-blocked", PROCESS, "partitions-blocked", GAUGE, "partitions",
               "Partitions that are paused until their first records are finished."),
        Metric("partitions-waiting", PROCESS, "partitions-waiting", GAUGE, "partitions",
               "Partitions that are paused until their next record is due, or its schema is known."),
        Metric("longest-running-time", PROCESS, "longest-running-time", GAUGE, "ms",
               "Time since the oldest attempt that is running has begun."),
        Metric("oldest-unfinished-time", PROCESS, "oldest-unfinished-time", GAUGE, "ms",
               "Time since the oldest record that is not finished was taken."),
        Metric("records-finished-rate", PROCESS, "process-finished", RATE, "records/s",
               "Records that were processed."),
        Metric("records-finished-total", PROCESS, "process-finished", TOTAL, "records",
               "Records that were processed."),
        Metric("records-failed-total", PROCESS, "process-failed", TOTAL, "records", "Attempts that failed."),
        Metric("records-retried-total", PROCESS, "process-retried", TOTAL, "records",
               "Failed attempts that another one follows."),
        Metric("records-skipped-total", PROCESS, "process-skipped", TOTAL, "records",
               "Records that were skipped after their last attempt."),
        Metric("records-handled-total", PROCESS, "process-handled", TOTAL, "records",
               "Records that `on_failure` has dealt with, such as dead letters."),
        Metric("records-repeated-total", PROCESS, "process-repeated", TOTAL, "records",
               "Records that were left out, as an earlier owner had finished them."),
        Metric("records-dropped-total", PROCESS, "process-dropped", TOTAL, "records",
               "Records whose partitions were given up before they were finished."),
        Metric("process-time-avg", PROCESS, "process-time", AVG, "ms", "Time of an attempt."),
        Metric("process-time-max", PROCESS, "process-time", MAX, "ms", "Longest such time."),
    )
)


_SHARE_GROUPS = {
    "last-poll-seconds-ago": SHARE, "time-between-poll": SHARE, "poll-idle-ratio": SHARE,
    "bytes-fetched": SHARE_FETCH, "records-fetched": SHARE_FETCH, "fetch-latency": SHARE_FETCH,
    "fetch-throttle-time": SHARE_FETCH, "fetch-buffer-used-bytes": SHARE_FETCH,
    "heartbeat-latency": SHARE_COORDINATOR, "last-heartbeat-seconds-ago": SHARE_COORDINATOR,
    "assigned-partitions": SHARE_COORDINATOR,
}
# Names: ShareFetchMetricsRegistry, ShareRebalanceMetricsManager and KafkaShareConsumerMetrics.
SHARE_METRICS: tuple[Metric, ...] = (
    *(
        row
        for row in CONSUMER_METRICS
        if row.group in (CONSUMER_NODE, COUNT)
        or row.sensor in (*_OF_ANY_CLIENT, "requests-in-flight", "metadata-age")
    ),
    *(
        row._replace(
            group=_SHARE_GROUPS[row.sensor], is_ours=row.is_ours or row.name == "assigned-partitions"
        )
        for row in (*CONSUMER_METRICS, *COORDINATOR_METRICS)
        if row.scope is Scope.CLIENT and row.sensor in _SHARE_GROUPS
    ),
    Metric("records-per-request-max", SHARE_FETCH, "records-fetched", MAX, "records",
           "Largest number of records of a partition in an answer."),
    Metric("acknowledgements-send-rate", SHARE_FETCH, "acknowledgements-send", RATE, "records/s",
           "Records whose acknowledgements were sent."),
    Metric("acknowledgements-send-total", SHARE_FETCH, "acknowledgements-send", TOTAL, "records",
           "Records whose acknowledgements were sent."),
    Metric("acknowledgements-error-rate", SHARE_FETCH, "acknowledgements-error", RATE, "records/s",
           "Records whose acknowledgements have failed: they are delivered again, or were."),
    Metric("acknowledgements-error-total", SHARE_FETCH, "acknowledgements-error", TOTAL, "records",
           "Records whose acknowledgements have failed: they are delivered again, or were."),
    Metric("rebalance-total", SHARE_COORDINATOR, "rebalance-latency", OCCURRENCE_TOTAL, "rebalances",
           "Changes of the assignment."),
    Metric("rebalance-rate-per-hour", SHARE_COORDINATOR, "rebalance-latency", HOURLY_OCCURRENCE_RATE,
           "rebalances/h", "Changes of the assignment."),
)
# Every metric of a client that reads, once.
READING_METRICS = tuple(
    dict.fromkeys((*CONSUMER_METRICS, *COORDINATOR_METRICS, *PROCESS_METRICS, *SHARE_METRICS))
)


class MetricName(NamedTuple):
    """The name, group and tags of a metric; `tags` are pairs such as ("topic", "events"), client-id first."""

    name: str
    group: str
    tags: tuple[tuple[str, str], ...]


# From readings of sensors to values

_NS_PER_MS = 1e6
MEASURES: Mapping[Kind, Callable[[Reading], float]] = {
    AVG: lambda reading: reading.total / reading.occurrences if reading.occurrences else math.nan,
    MAX: lambda reading: reading.maximum if reading.occurrences else math.nan,
    # its sensor records negative values
    MIN: lambda reading: -reading.maximum if reading.occurrences else math.nan,
    RATE: lambda reading: reading.total / (reading.elapsed_ms / 1000),
    TOTAL: lambda reading: float(reading.total_ever),
    OCCURRENCE_RATE: lambda reading: reading.occurrences / (reading.elapsed_ms / 1000),
    HOURLY_OCCURRENCE_RATE: lambda reading: reading.occurrences / (reading.elapsed_ms / 3_600_000),
    OCCURRENCE_TOTAL: lambda reading: float(reading.occurrences_ever),
    RATIO: lambda reading: reading.total / (reading.elapsed_ms * _NS_PER_MS),
}


# The registry


class _Key(NamedTuple):
    """The name of a sensor or gauge, and what it is about."""

    name: str
    topic: str | None
    partition: int | None
    node: int | None

    @property
    def scope(self) -> Scope:
        if self.partition is not None:
            return Scope.PARTITION
        if self.topic is not None:
            return Scope.TOPIC
        return Scope.CLIENT if self.node is None else Scope.NODE

    @property
    def tags(self) -> tuple[tuple[str, str], ...]:
        values = (self.topic, self.partition, None if self.node is None else f"node-{self.node}")
        named = zip(("topic", "partition", "node-id"), values, strict=True)
        return tuple((tag, str(value)) for tag, value in named if value is not None)


@final
class MetricsRegistry:
    """The metrics of one client. Sensors of topics, partitions and nodes exist from their first use on.

    Parameters
    ----------
    client_id : str
        The tag client-id of every metric.
    sample_window_ms, num_samples, recording_level
        metrics.sample.window.ms, metrics.num.samples and metrics.recording.level.
    metrics : tuple of Metric
        The table: METRICS for a producer, CONSUMER_METRICS or SHARE_METRICS for a client that reads,
        ADMIN_METRICS for an Admin.
    """

    def __init__(
        self,
        client_id: str,
        *,
        sample_window_ms: int = 30_000,
        num_samples: int = 2,
        recording_level: str = "INFO",
        metrics: tuple[Metric, ...] = METRICS,
    ) -> None:
        self._client_id = client_id
        self._sample_window_ms = sample_window_ms
        self._num_samples = num_samples
        self._recorded_levels = LEVELS[: LEVELS.index(recording_level) + 1]
        self._rows: dict[tuple[Scope, str], list[Metric]] = {}
        for metric in metrics:
            self._rows.setdefault((metric.scope, metric.sensor), []).append(metric)
        self._group = metrics[0].group
        self.table = metrics
        self._sensors: dict[_Key, Sensor] = {}
        self._gauges: dict[_Key, Callable[[int], float]] = {}
        self._counters: dict[str, Callable[[], int]] = {}
        self._counted: dict[str, int] = {}
        self._counting = real_threading().Lock()
        self._samplers: list[Callable[[int], object]] = []
        for scope, sensor in self._rows:
            if scope is Scope.CLIENT and self._rows[scope, sensor][0].kind is not GAUGE:
                self.sensor(sensor)

    def sensor(
        self, name: str, *, topic: str | None = None, partition: int | None = None, node: int | None = None
    ) -> Sensor:
        """Return the sensor, of a topic, partition or node if one is named. Raise ValueError for a name that
        is not in the table.
        """
        key = _Key(name, topic, partition, node)
        sensor = self._sensors.get(key)
        if sensor is not None:
            return sensor
        rows = self._rows.get((key.scope, name), [])
        if not rows or rows[0].kind is GAUGE:
            about = "" if key.scope is Scope.CLIENT else f" of a {key.scope}"
            raise ValueError(f"{self._group} has no sensor {name!r}{about}; docs/metrics.md lists all")
        made = Sensor(
            window_ms=self._sample_window_ms,
            num_samples=self._num_samples,
            recording=rows[0].level in self._recorded_levels,
        )
        return self._sensors.setdefault(key, made)

    def record(
        self, name: str, value: float, now_ms: int, *, topic: str | None = None, node: int | None = None
    ) -> None:
        """Record one occurrence of `value` at the named sensor."""
        self.sensor(name, topic=topic, node=node).record(value, now_ms)

    def gauge(
        self,
        name: str,
        read: Callable[[int], float],
        *,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Read the metric by `read(now_ms)` at each snapshot. Raise ValueError if it is not a gauge."""
        key = _Key(name, topic, partition, None)
        rows = self._rows.get((key.scope, name), [])
        if not rows or rows[0].kind is not GAUGE:
            raise ValueError(f"there is no gauge {name!r}; docs/metrics.md lists all")
        self._gauges[key] = read

    def forget(self, topic: str, partition: int) -> None:
        """Drop the metrics of a partition that is not read any more."""
        for scope, name in self._rows:
            if scope is Scope.PARTITION:
                key = _Key(name, topic, partition, None)
                self._sensors.pop(key, None)
                self._gauges.pop(key, None)

    def counter(self, sensor: str, read: Callable[[], int]) -> None:
        """Feed a sensor from a counter that only grows, such as one of a native object."""
        self.sensor(sensor)
        self._counters[sensor] = read
        self._counted[sensor] = 0

    def before_snapshot(self, sample: Callable[[int], object]) -> None:
        """Call `sample(now_ms)` before each snapshot. It records values that change without an event."""
        self._samplers.append(sample)

    def observe(self, now_ms: int) -> None:
        """Record the growth of counters. Call it at least once a window, or rates are wrong."""
        for name, read in list(self._counters.items()):
            value = read()
            with self._counting:
                # another thread may have read later and come here earlier
                before = self._counted[name]
                self._counted[name] = max(before, value)
            if value > before:
                self.record(name, value - before, now_ms)

    def snapshot(self, now_ms: int) -> dict[MetricName, float]:
        """Return every metric; an average or maximum without values is NaN."""
        self.observe(now_ms)
        for sample in self._samplers:
            sample(now_ms)
        client = ("client-id", self._client_id)
        values: dict[MetricName, float] = {}
        for key, sensor in list(self._sensors.items()):
            reading = sensor.read(now_ms)
            tags = (client, *key.tags)
            for metric in self._rows[key.scope, key.name]:
                values[MetricName(metric.name, metric.group, tags)] = MEASURES[metric.kind](reading)
        for key, read in list(self._gauges.items()):
            (metric,) = self._rows[key.scope, key.name]
            values[MetricName(key.name, metric.group, (client, *key.tags))] = float(read(now_ms))
        values[MetricName("count", COUNT, (client,))] = len(values) + 1.0
        return values


# The page
