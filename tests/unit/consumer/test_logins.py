"""Reading over TLS and SASL: with the settings of a producer, renewed sessions, and refused logins."""

from __future__ import annotations

from typing import Any

import pytest

import kbatch
from kbatch.config import ConsumerConfig
from kbatch.errors import AuthenticationError, KafkaError
from kbatch.testing import Broker

TOPIC = "orders"
USERS = {"alice": "alice-secret"}
LISTENERS: list[Any] = [
    ("SASL_PLAINTEXT", ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")),
    "SSL",
    ("SASL_SSL", ("SCRAM-SHA-512",)),
]
WAYS = [
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_PLAINTEXT", "OAUTHBEARER"),
    ("SSL", None),
    ("SASL_SSL", "SCRAM-SHA-512"),
]


def secure_broker(**keys: Any) -> Broker:
    return Broker({TOPIC: 2}, nodes=2, listeners=LISTENERS, users=USERS, auto_create_topics=False, **keys)


def fill(settings: dict[str, str], count: int) -> None:
    with kbatch.Producer(settings) as producer:
        for number in range(count):
            producer.send(TOPIC, b"%d" % number * 1000, partition=number % 2)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_producers_settings_read(way: tuple[str, str | None]) -> None:
    with secure_broker() as broker:
        settings = broker.client_settings(*way)
        fill(settings, 200)
        for config in (settings, ConsumerConfig(settings)):
            assert kbatch.read_table(TOPIC, config=config).num_rows == 200
        with kbatch.scan_topic(TOPIC, config=settings) as stream:
            assert sum(batch.num_rows for batch in stream) == 200


def test_a_renewed_session_reads_on() -> None:
    with secure_broker(connections_max_reauth_ms=300) as broker:
        settings = broker.client_settings("SASL_PLAINTEXT", "SCRAM-SHA-256")
        fill(settings, 300)
        broker.delay("Fetch", 0.02)
        config = {**settings, "max.partition.fetch.bytes": 2000}
        table = kbatch.read_table(TOPIC, config=config, columns=["partition", "offset"])
    assert table.num_rows == 300
    assert table["offset"].to_pylist() == [*range(150), *range(150)]


def test_a_refused_login_is_the_error() -> None:
    with secure_broker() as broker:
        settings = broker.client_settings("SASL_PLAINTEXT", "PLAIN", password="wrong")
        for reading in (kbatch.read_table, kbatch.scan_topic):
            with pytest.raises(AuthenticationError):
                reading(TOPIC, config=settings)


def test_a_broker_that_is_not_trusted_is_the_error() -> None:
    with secure_broker() as broker, secure_broker() as other:
        trust = other.client_settings("SSL")
        settings = broker.client_settings("SSL")
        settings = {key: trust[key] if "truststore" in key else value for key, value in settings.items()}
        with pytest.raises(KafkaError, match="certificate"):
            kbatch.read_table(TOPIC, config={**settings, "default.api.timeout.ms": "2000"})
