"""Real clients log in to the embedded broker by every way in that it has."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider

import kbatch
from kbatch.testing import Broker, Listener
from tests.integration.security.secrets_used import PASSWORDS, WRONG_PASSWORD
from tests.oracle import java_clients
from tests.support.patience import HANG_MS, HANG_SECONDS, repeat_until

TOPIC = "secure"
USER = "odd"  # whose password has all that needs an escape
LISTENERS = (
    Listener("SSL"),
    Listener("SASL_PLAINTEXT", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    Listener("SASL_SSL", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
)
WAYS = [("SSL", None)] + [
    (listener.security_protocol, mechanism) for listener in LISTENERS for mechanism in listener.mechanisms
]
PASSWORD_WAYS = [way for way in WAYS if way[1] not in (None, "OAUTHBEARER")]
each_way = pytest.mark.parametrize(("protocol", "mechanism"), WAYS)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker on which only the user may write, except on the listener that wants no login."""
    with Broker(
        {TOPIC: 2},
        listeners=LISTENERS,
        users=PASSWORDS,
        authorizer=[("TOPIC", TOPIC, f"User:{USER}", "WRITE")],
        super_users=["User:ANONYMOUS"],
        auto_create_topics=False,
        nodes=2,
    ) as running:
        yield running


def value_of(broker: Broker, partition: int, offset: int) -> bytes | None:
    return broker.records(TOPIC, partition)[offset].value


def librdkafka_delivery(settings: dict[str, Any], value: bytes) -> Any:
    """The error and the message of a record that librdkafka sends, or its client's first error."""
    outcomes: list[tuple[Any, Any]] = []
    producer = confluent_kafka.Producer(
        {**settings, "log_level": 0, "error_cb": lambda error: outcomes.append((error, None))}
    )
    producer.produce(TOPIC, value, on_delivery=lambda error, message: outcomes.append((error, message)))
    repeat_until(lambda: producer.poll(0.05), lambda: outcomes)
    return outcomes[0]


@each_way
def test_confluent_kafka_is_let_in(broker: Broker, protocol: str, mechanism: str | None) -> None:
    settings = broker.client_settings(protocol, mechanism, user=USER, dialect="librdkafka")
    error, message = librdkafka_delivery(settings, b"confluent-kafka")
    assert error is None
    assert value_of(broker, message.partition(), message.offset()) == b"confluent-kafka"


@pytest.mark.parametrize(("protocol", "mechanism"), PASSWORD_WAYS)
def test_confluent_kafka_is_refused_with_a_wrong_password(
    broker: Broker, protocol: str, mechanism: str
) -> None:
    settings = broker.client_settings(
        protocol, mechanism, user=USER, password=WRONG_PASSWORD, dialect="librdkafka"
    )
    error, _ = librdkafka_delivery(settings, b"never")
    assert error.code() == confluent_kafka.KafkaError._AUTHENTICATION


def test_confluent_kafka_may_not_write_as_another_user(broker: Broker) -> None:
    settings = broker.client_settings("SASL_SSL", "SCRAM-SHA-256", user="alice", dialect="librdkafka")
    error, _ = librdkafka_delivery(settings, b"never")
    assert error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


@each_way
def test_kbatch_is_let_in(broker: Broker, protocol: str, mechanism: str | None) -> None:
    with kbatch.Producer(broker.client_settings(protocol, mechanism, user=USER)) as producer:
        metadata = producer.send(TOPIC, b"kbatch").result(HANG_SECONDS)
    assert value_of(broker, metadata.partition, metadata.offset) == b"kbatch"


class SyncTokens(AbstractTokenProvider):
    """kafka-python's provider."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def token(self) -> str:
        return self._broker.token(USER)


class AsyncTokens(AioTokenProvider):
    """aiokafka's provider."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def token(self) -> str:
        return self._broker.token(USER)


def python_settings(
    broker: Broker, protocol: str, mechanism: str | None, tokens: type[Any]
) -> dict[str, Any]:
    """Return the configuration that kafka-python and aiokafka share."""
    found = broker.client_settings(protocol, mechanism, user=USER)
    settings: dict[str, Any] = {
        "bootstrap_servers": found["bootstrap.servers"].split(","),
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        settings["ssl_context"] = ssl.create_default_context(cadata=broker.authority_pem)
    if mechanism == "OAUTHBEARER":
        settings |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": tokens(broker)}
    elif mechanism is not None:
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER}
        settings["sasl_plain_password"] = PASSWORDS[USER]
    return settings


@each_way
def test_kafka_python_is_let_in(broker: Broker, protocol: str, mechanism: str | None) -> None:
    settings = python_settings(broker, protocol, mechanism, SyncTokens)
    producer = kafka.KafkaProducer(max_block_ms=HANG_MS, **settings)
    metadata = producer.send(TOPIC, b"kafka-python").get(HANG_SECONDS)
    producer.close()
    assert value_of(broker, metadata.partition, metadata.offset) == b"kafka-python"


@each_way
def test_aiokafka_is_let_in(broker: Broker, protocol: str, mechanism: str | None) -> None:
    async def deliver() -> Any:
        producer = AIOKafkaProducer(**python_settings(broker, protocol, mechanism, AsyncTokens))
        await producer.start()
        try:
            async with asyncio.timeout(HANG_SECONDS):
                return await producer.send_and_wait(TOPIC, b"aiokafka")
        finally:
            await producer.stop()

    metadata = asyncio.run(deliver())
    assert value_of(broker, metadata.partition, metadata.offset) == b"aiokafka"


@pytest.fixture(scope="module")
def java_answers(broker: Broker, java_jars: None) -> dict[str, Any]:
    """Return the outcomes of Java's records, by protocol and mechanism; one JVM sends all of them."""
    jobs = {
        f"{protocol} {mechanism}": {
            **broker.client_settings(protocol, mechanism, user=USER),
            "max.block.ms": str(HANG_MS),
        }
        for protocol, mechanism in WAYS
    }
    wrong = broker.client_settings("SASL_SSL", "SCRAM-SHA-256", user=USER, password=WRONG_PASSWORD)
    jobs["wrong password"] = {**wrong, "max.block.ms": str(HANG_MS)}
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={broker.token_endpoint_url}"
    return java_clients.produce(TOPIC, jobs, java_options=(allowed,))


@pytest.mark.java
@each_way
def test_java_is_let_in(
    broker: Broker, java_answers: dict[str, Any], protocol: str, mechanism: str | None
) -> None:
    answer = java_answers[f"{protocol} {mechanism}"]
    assert isinstance(answer, tuple), answer
    assert value_of(broker, *answer) == f"{protocol} {mechanism}".encode()


@pytest.mark.java
def test_java_is_refused_with_a_wrong_password(java_answers: dict[str, Any]) -> None:
    refused = java_answers["wrong password"]
    assert isinstance(refused, java_clients.JavaAdminError)
    assert refused.class_name == "SaslAuthenticationException"


def test_confluent_kafka_manages_acls_and_users(broker: Broker) -> None:
    from confluent_kafka import admin as api

    admin = api.AdminClient({**broker.client_settings("SSL", dialect="librdkafka")})
    info = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_256, 4096)
    user = api.UserScramCredentialUpsertion("carol", info, WRONG_PASSWORD.encode())
    admin.alter_user_scram_credentials([user])["carol"].result(HANG_SECONDS)
    answers = admin.describe_user_scram_credentials(["carol"])
    assert isinstance(answers, dict)  # a future alone where no users are named
    described = answers["carol"].result(HANG_SECONDS)
    assert [each.iterations for each in described.scram_credential_infos] == [4096]
    settings = broker.client_settings(
        "SASL_SSL", "SCRAM-SHA-256", user="carol", password=WRONG_PASSWORD, dialect="librdkafka"
    )
    assert librdkafka_delivery(settings, b"never")[0].code() == 29
    acl = api.AclBinding(
        api.ResourceType.TOPIC,
        TOPIC[:3],
        api.ResourcePatternType.PREFIXED,
        "User:carol",
        "*",
        api.AclOperation.WRITE,
        api.AclPermissionType.ALLOW,
    )
    admin.create_acls([acl])[acl].result(HANG_SECONDS)
    assert librdkafka_delivery(settings, b"carol")[0] is None
    wanted = api.AclBindingFilter(
        api.ResourceType.ANY,
        None,  # type: ignore[arg-type]  # any, of which its types know nothing
        api.ResourcePatternType.ANY,
        "User:carol",
        None,  # type: ignore[arg-type]
        api.AclOperation.ANY,
        api.AclPermissionType.ANY,
    )
    assert admin.describe_acls(wanted).result(HANG_SECONDS) == [acl]
    assert admin.delete_acls([wanted])[wanted].result(HANG_SECONDS) == [acl]
    assert librdkafka_delivery(settings, b"never")[0].code() == 29
