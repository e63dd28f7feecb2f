"""The metrics of a producer, on the embedded broker."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kbatch
from kbatch.errors import AuthenticationError, NetworkError
from kbatch.testing import Broker, Listener
from kbatch.testing.broker.security.certificates import Authority
from kbatch.testing.broker.server import ClientConnection
from tests.support.producing import SECONDS, TIME_MS, TOPIC, metric, producing, transactional

pytestmark = pytest.mark.usefixtures("shell")


HEADER_BYTES = 61
OTHER = "clicks"
SENT = {TOPIC: [b"a" * 900, b"b" * 40, b""], OTHER: [bytes(range(256))]}


def batch_bytes(topic: str, compression: str = "none") -> int:
    """Return the size of all records for the topic as one batch."""
    return len(kbatch.encode([(None, value, [], TIME_MS) for value in SENT[topic]], compression=compression))


def record_bytes(value: bytes) -> int:
    """Return the size of a record: length, attributes, deltas of timestamp and offset, no key, the value, no
    headers.
    """
    body = 1 + 1 + 1 + 1 + (1 if len(value) < 64 else 2) + len(value) + 1
    return body + (1 if body < 64 else 2)


def of_topic(producer: Any, name: str, topic: str) -> float:
    (value,) = (
        value
        for key, value in producer.metrics().items()
        if (key.name, key.group, dict(key.tags).get("topic")) == (name, "producer-topic-metrics", topic)
    )
    return float(value)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_known_records_give_known_sizes(compression: str) -> None:
    keys = {"compression_type": compression, "linger_ms": 60_000, "enable_idempotence": False}
    with Broker(list(SENT)) as broker, producing(broker, **keys) as producer:
        for topic, values in SENT.items():
            for value in values:
                producer.send(topic, value, timestamp_ms=TIME_MS)
        producer.flush(SECONDS)
        sizes = {topic: batch_bytes(topic, compression) for topic in SENT}
        ratios = {
            topic: (sizes[topic] - HEADER_BYTES) / (batch_bytes(topic) - HEADER_BYTES) for topic in SENT
        }
        largest = [max(map(record_bytes, values)) for values in SENT.values()]
        expected = {
            "batch-size-avg": sum(sizes.values()) / 2,
            "batch-size-max": max(sizes.values()),
            "compression-rate-avg": sum(ratios.values()) / 2,
            "record-size-avg": sum(largest) / 2,
            "record-size-max": max(largest),
            "record-send-total": 4,
        }
        assert {name: metric(producer, name) for name in expected} == pytest.approx(expected)
        for topic, values in SENT.items():
            assert of_topic(producer, "byte-total", topic) == sizes[topic]
            assert of_topic(producer, "byte-rate", topic) > 0
            assert of_topic(producer, "compression-rate", topic) == pytest.approx(ratios[topic])
            assert of_topic(producer, "record-send-total", topic) == len(values)
            assert of_topic(producer, "record-retry-total", topic) == 0
            assert of_topic(producer, "record-error-total", topic) == 0


def test_bytes_are_those_that_the_broker_had_and_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    had, given = [0], [0]
    receive, send = ClientConnection.data_received, ClientConnection._send

    def data_received(self: ClientConnection, data: bytes) -> None:
        had[0] += len(data)
        receive(self, data)

    def _send(self: ClientConnection, reply: Any) -> None:
        given[0] += sum(map(len, reply.buffers))
        send(self, reply)

    monkeypatch.setattr(ClientConnection, "data_received", data_received)
    monkeypatch.setattr(ClientConnection, "_send", _send)
    with Broker([TOPIC]) as broker, producing(broker) as producer:
        for _ in range(3):
            producer.send(TOPIC, b"x" * 5000).result(SECONDS)
        values = producer.metrics()
        totals = {"outgoing-byte-total": had[0], "incoming-byte-total": given[0]}
        for name, total in totals.items():
            assert metric(producer, name) == total
            assert (
                sum(
                    value
                    for key, value in values.items()
                    if (key.name, key.group) == (name, "producer-node-metrics")
                )
                == total
            )
        requests = metric(producer, "request-total")
        assert metric(producer, "response-total") == requests
        assert metric(producer, "request-size-avg") * requests == pytest.approx(had[0])


def test_metadata_are_as_old_as_the_answer_that_brought_them() -> None:
    with Broker([TOPIC]) as broker:
        began = time.monotonic()
        with producing(broker) as producer:
            producer.send(TOPIC, b"x").result(SECONDS)
            ages = [metric(producer, "metadata-age") for _ in range(2)]
        assert 0 <= ages[0] <= ages[1] <= time.monotonic() - began + 0.001  # it counts in milliseconds


def authentications(producer: Any) -> dict[str, float]:
    names = ("successful-authentication", "successful-authentication-no-reauth", "failed-authentication")
    return {name: metric(producer, f"{name}-total") for name in names}


@pytest.fixture
def secured() -> Iterator[Broker]:
    with Broker([TOPIC], tls=True, listeners=[Listener("SSL")]) as broker:
        yield broker


def trusting(authority_pem: str) -> dict[str, str]:
    """Return the settings of a producer that trusts an authority."""
    return {
        "security_protocol": "SSL",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_certificates": authority_pem,
    }


def test_a_tls_handshake_counts_as_an_authentication(secured: Broker) -> None:
    with producing(secured, **trusting(secured.authority_pem)) as producer:
        producer.send(TOPIC, b"x").result(SECONDS)
        connections = metric(producer, "connection-creation-total")
        assert connections >= 1
        assert authentications(producer) == {
            "successful-authentication": connections,
            "successful-authentication-no-reauth": connections,
            "failed-authentication": 0,
        }


def test_failed_handshake_counts_as_failed_authentication(secured: Broker) -> None:
    with producing(secured, **trusting(Authority().pem)) as producer:
        with pytest.raises(AuthenticationError):
            producer.send(TOPIC, b"x")
        assert metric(producer, "failed-authentication-total") >= 1
        assert metric(producer, "successful-authentication-total") == 0


def test_a_plain_connection_authenticates_nothing() -> None:
    with Broker([TOPIC]) as broker, producing(broker) as producer:
        producer.send(TOPIC, b"x").result(SECONDS)
        assert metric(producer, "connection-creation-total") >= 1
        assert set(authentications(producer).values()) == {0}


# Times: each is at least what the broker held an answer back for, at most what the test measured around it

OFFSETS = {kbatch.TopicPartition(TOPIC, 0): kbatch.OffsetAndMetadata(1)}
HELD_SECONDS = 0.02
LEAST_NS = 15e6  # timers may be early by a millisecond


def latencies(producer: Any) -> dict[tuple[str, str], float]:
    """Return metrics by name and node ("" for all nodes), without those that have no value yet."""
    return {
        (key.name, dict(key.tags).get("node-id", "")): value
        for key, value in producer.metrics().items()
        if key.name.startswith("request-latency") and not math.isnan(value)
    }


def test_latencies_are_those_of_produce_requests_alone() -> None:
    with Broker([TOPIC]) as broker:
        broker.delay("Produce", HELD_SECONDS)
        with producing(broker) as producer:
            producer.partitions_for(TOPIC)
            assert latencies(producer) == {}
            began = time.monotonic()
            for _ in range(3):
                producer.send(TOPIC, b"x").result(SECONDS)
            elapsed_ms = (time.monotonic() - began) * 1000
            found = latencies(producer)
    (node,) = {node for _, node in found if node}
    for name in ("request-latency-avg", "request-latency-max"):
        assert found[name, node] == found[name, ""]
        assert LEAST_NS / 1e6 <= found[name, ""] <= elapsed_ms
    assert found["request-latency-avg", ""] * 3 <= elapsed_ms


def test_requests_without_an_answer_have_no_latency() -> None:
    with Broker([TOPIC]) as broker, producing(broker, acks=0, enable_idempotence=False) as producer:
        for _ in range(3):
            producer.send(TOPIC, b"x").result(SECONDS)
        assert latencies(producer) == {}
        assert metric(producer, "requests-in-flight") == 0
    with Broker([TOPIC]) as broker, producing(broker, retries=0, enable_idempotence=False) as producer:
        producer.partitions_for(TOPIC)
        broker.drop_connection("Produce", when="after")
        assert isinstance(producer.send(TOPIC, b"x").exception(SECONDS), NetworkError)
        assert latencies(producer) == {}


def test_retries_are_counted_and_splits_are_not() -> None:
    with Broker([TOPIC]) as broker, producing(broker, linger_ms=60_000, retry_backoff_ms=1) as producer:
        broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        for _ in range(3):
            producer.send(TOPIC, b"x")
        producer.flush(SECONDS)
        assert metric(producer, "record-retry-total") == of_topic(producer, "record-retry-total", TOPIC) == 6
        broker.fail_next("Produce", "MESSAGE_TOO_LARGE")
        for _ in range(4):
            producer.send(TOPIC, b"x")
        producer.flush(SECONDS)
        assert metric(producer, "batch-split-total") == 1
        assert metric(producer, "record-retry-total") == of_topic(producer, "record-retry-total", TOPIC) == 6


def test_queue_time_runs_from_first_record_to_drain() -> None:
    with Broker([TOPIC]) as broker, producing(broker, linger_ms=60_000) as producer:
        producer.partitions_for(TOPIC)
        began = time.monotonic()
        producer.send(TOPIC, b"x")
        sent = time.monotonic()
        producer.send(TOPIC, b"y")
        broker.delay("Produce", HELD_SECONDS)
        flushed = time.monotonic()
        producer.flush(SECONDS)
        most_ms = (time.monotonic() - began) * 1000 - LEAST_NS / 1e6
        queued_ms = metric(producer, "record-queue-time-avg")
        assert metric(producer, "record-queue-time-max") == queued_ms
        assert (flushed - sent) * 1000 <= queued_ms <= most_ms


def test_flush_time_is_what_flushes_took() -> None:
    with Broker([TOPIC]) as broker, producing(broker, linger_ms=60_000) as producer:
        producer.partitions_for(TOPIC)
        assert metric(producer, "flush-time-ns-total") == 0
        broker.delay("Produce", HELD_SECONDS)
        elapsed_ns = 0
        for _ in range(2):
            producer.send(TOPIC, b"x")
            began_ns = time.monotonic_ns()
            producer.flush(SECONDS)
            elapsed_ns += time.monotonic_ns() - began_ns
        assert 2 * LEAST_NS <= metric(producer, "flush-time-ns-total") <= elapsed_ns


def test_each_call_of_a_transaction_has_its_own_time() -> None:
    with Broker([TOPIC]) as broker, transactional(broker, linger_ms=60_000) as producer:
        for api in ("InitProducerId", "EndTxn", "TxnOffsetCommit"):
            broker.delay(api, HELD_SECONDS)
        elapsed_ns: Counter[str] = Counter()

        def called(name: str, call: Callable[[], object]) -> None:
            began_ns = time.monotonic_ns()
            call()
            elapsed_ns[name] += time.monotonic_ns() - began_ns

        called("init", producer.init_transactions)
        for end in ("commit", "abort"):
            called("begin", producer.begin_transaction)
            producer.send(TOPIC, b"x")
            if end == "commit":
                called("send-offsets", lambda: producer.send_offsets_to_transaction(OFFSETS, "readers"))
            else:
                producer.flush(SECONDS)  # or there would be nothing for the broker to abort
            called(end, getattr(producer, f"{end}_transaction"))
        for name, at_most_ns in elapsed_ns.items():
            held_ns = 0 if name == "begin" else LEAST_NS
            assert held_ns <= metric(producer, f"txn-{name}-time-ns-total") <= at_most_ns, name
