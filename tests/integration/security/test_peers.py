"""The clients that everybody knows, in each cell of the matrix: what works for them must work for kbatch."""

from __future__ import annotations

import asyncio
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaProducer

from tests.integration.security.cells import CELLS, WITHOUT_PROVIDER, Cell, trusted_context
from tests.integration.security.conftest import settings_of
from tests.integration.security.refusals import REFUSALS, Refusal, refused_settings
from tests.integration.security.site import LISTENERS, TOPIC, Site, resolved
from tests.oracle import java_clients
from tests.support.patience import HANG_MS, HANG_SECONDS

pytestmark = [pytest.mark.java, pytest.mark.slow]


def cells_of(client: str) -> list[Any]:
    return [pytest.param(cell, id=cell.name) for cell in CELLS if getattr(cell, client) is not None]


def value_of(cell: Cell, client: str) -> bytes:
    return f"{client}: {cell.name}".encode()


@pytest.mark.parametrize("cell", cells_of("librdkafka"))
def test_confluent_kafka_is_let_in(site: Site, cell: Cell) -> None:
    settings = {
        "bootstrap.servers": site.address(cell.listener),
        "broker.address.family": "v4",
        "security.protocol": LISTENERS[cell.listener],
        "ssl.ca.location": site.path("ca.pem"),
        **settings_of(cell, "librdkafka", site),
    }
    if cell.name in WITHOUT_PROVIDER:
        with pytest.raises(confluent_kafka.KafkaException, match="No provider for SASL mechanism GSSAPI"):
            confluent_kafka.Producer(settings)
        return
    delivered: list[tuple[Any, Any]] = []
    producer = confluent_kafka.Producer(settings)
    producer.produce(
        TOPIC,
        value_of(cell, "confluent-kafka"),
        on_delivery=lambda error, message: delivered.append((error, message)),
    )
    producer.flush(HANG_SECONDS)
    ((error, message),) = delivered
    assert error is None
    assert site.read(message.partition(), message.offset()) == value_of(cell, "confluent-kafka")


@pytest.mark.parametrize("cell", cells_of("kafka_python"))
def test_kafka_python_is_let_in(site: Site, cell: Cell) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=site.address(cell.listener),
        security_protocol=LISTENERS[cell.listener],
        ssl_cafile=site.path("ca.pem"),
        max_block_ms=HANG_MS,
        **settings_of(cell, "kafka_python", site),
    )
    metadata = producer.send(TOPIC, value_of(cell, "kafka-python")).get(HANG_SECONDS)
    producer.close()
    assert site.read(metadata.partition, metadata.offset) == value_of(cell, "kafka-python")


@pytest.mark.parametrize("cell", cells_of("aiokafka"))
def test_aiokafka_is_let_in(site: Site, cell: Cell) -> None:
    settings = settings_of(cell, "aiokafka", site)
    certificate, key = (settings.pop(name, "") for name in ("ssl_certfile", "ssl_keyfile"))

    async def deliver() -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=site.address(cell.listener),
            security_protocol=LISTENERS[cell.listener],
            ssl_context=trusted_context(site, certificate, key),
            **settings,
        )
        await producer.start()
        try:
            return await producer.send_and_wait(TOPIC, value_of(cell, "aiokafka"))
        finally:
            await producer.stop()

    metadata = asyncio.run(deliver())
    assert site.read(metadata.partition, metadata.offset) == value_of(cell, "aiokafka")


@pytest.fixture(scope="module")
def java_answers(site: Site) -> dict[str, Any]:
    """Return the outcomes of Java's records by value; one JVM sends all of them."""
    jobs = {
        value_of(cell, "Java").decode(): {
            "bootstrap.servers": site.address(cell.listener),
            "security.protocol": LISTENERS[cell.listener],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": site.path("ca.pem"),
            "max.block.ms": "60000",
            **resolved(cell.java, site),
        }
        for cell in CELLS
        if cell.java is not None and (site.kdc is not None or not cell.needs_kdc)
    }
    return java_clients.produce(TOPIC, jobs, java_options=site.java_options)


@pytest.fixture(scope="module")
def java_refusals(site: Site) -> dict[str, Any]:
    """Return the outcomes of Java's records that must be refused."""
    jobs = {
        refusal.name: refused_settings(refusal, site) | {"max.block.ms": str(HANG_MS)}
        for refusal in REFUSALS
        if refusal.java is not None and (site.kdc is not None or not refusal.needs_kdc)
    }
    return java_clients.produce(TOPIC, jobs, java_options=site.java_options)


@pytest.mark.parametrize("cell", cells_of("java"))
def test_java_is_let_in(site: Site, cell: Cell, java_answers: dict[str, Any]) -> None:
    settings_of(cell, "java", site)
    value = value_of(cell, "Java")
    answer = java_answers[value.decode()]
    assert isinstance(answer, tuple), answer
    assert site.read(*answer) == value


@pytest.mark.parametrize("refusal", [pytest.param(each, id=each.name) for each in REFUSALS if each.java])
def test_java_is_refused(site: Site, refusal: Refusal, java_refusals: dict[str, Any]) -> None:
    if refusal.needs_kdc and site.kdc is None:
        pytest.skip(site.kdc_missing)
    answer = java_refusals[refusal.name]
    assert isinstance(answer, java_clients.JavaAdminError), answer
    assert answer.class_name == refusal.java, answer


def test_token_endpoint_is_called_in_every_way(site: Site, java_answers: dict[str, Any]) -> None:
    assert {(call.grant_type, call.way) for call in site.tokens.calls} >= {
        ("client_credentials", "basic"),
        ("client_credentials", "assertion"),
        ("urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion"),
    }
