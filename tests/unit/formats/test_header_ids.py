"""Ids of schemas in headers, from a producer to a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import kbatch
from kbatch import formats
from kbatch.testing import Broker
from kbatch.typed import Part
from tests.support.registry import Registry

KEY = {"type": "record", "name": "Key", "fields": [{"name": "k", "type": "long"}]}
VALUE = {"type": "record", "name": "Value", "fields": [{"name": "v", "type": "string"}]}
MINE = [("mine", b"1")]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 1}) as running:
        yield running


def made(registry: Registry) -> dict[Part, Any]:
    parts: dict[Part, Any] = {
        "key": formats.Avro(KEY, **options(registry)),
        "value": formats.Avro(VALUE, **options(registry)),
    }
    for part, each in parts.items():
        each.load(["t"], part)
    return parts


def options(registry: Registry) -> dict[str, Any]:
    return {"registry": registry.client(), "register": True, "id_in": "header"}


def read(broker: Broker, registry: Registry) -> list[Any]:
    both = formats.Avro(registry=registry.client())
    with kbatch.Consumer(
        bootstrap_servers=broker.bootstrap_servers, key_deserializer=both, value_deserializer=both
    ) as consumer:
        consumer.assign({("t", 0): "beginning"})
        return [(each.key, each.value, [name for name, _ in each.headers]) for each in consumer.until_end()]


HEADERS = ["mine", "__key_schema_id", "__value_schema_id"]


@pytest.mark.parametrize("given", [None, MINE, tuple(MINE)], ids=["none", "list", "tuple"])
def test_F_REG_14_ids_go_into_headers_of_their_own(broker: Broker, registry: Registry, given: Any) -> None:
    """Twice each: the first goes the slow way, as the topic's partitions are not known."""
    parts = made(registry)
    with kbatch.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        key_serializer=parts["key"],
        value_serializer=parts["value"],
    ) as producer:
        for _ in range(2):
            producer.send("t", {"v": "a"}, key={"k": 1}, headers=given)
    assert given is None or list(given) == MINE
    names = HEADERS if given else HEADERS[1:]
    assert read(broker, registry) == [({"k": 1}, {"v": "a"}, names)] * 2
    assert [(record.key, record.value) for record in broker.records("t")] == [(b"\2", b"\2a")] * 2


def test_F_REG_14_tasks_send_ids_in_headers(broker: Broker, registry: Registry) -> None:
    parts = made(registry)

    async def run() -> None:
        async with kbatch.AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers, value_serializer=parts["value"]
        ) as producer:
            for _ in range(2):
                await producer.send("t", {"v": "a"}, headers=MINE)
            await producer.send("t", None)

    asyncio.run(run())
    names = ["mine", "__value_schema_id"]
    assert read(broker, registry) == [(None, {"v": "a"}, names), (None, {"v": "a"}, names), (None, None, [])]


def test_headers_that_are_none_are_refused(broker: Broker, registry: Registry) -> None:
    parts = made(registry)
    with kbatch.Producer(
        bootstrap_servers=broker.bootstrap_servers, value_serializer=parts["value"]
    ) as producer:
        for wrong in (5, {"a": b"b"}):
            with pytest.raises(TypeError, match="headers"):
                producer.send("t", {"v": "a"}, headers=wrong)  # type: ignore[arg-type]


def test_tables_have_their_ids_in_front(registry: Registry) -> None:
    with pytest.raises(TypeError, match="id_in='header' is for records"):
        formats.Avro(VALUE, **options(registry)).column_serializer("t", "value")
