"""Ids of schemas in headers, from a producer to a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
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


HEADER_TYPES = [
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    pa.large_list(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
    pa.map_(pa.string(), pa.binary()),
]


@pytest.mark.parametrize("kind", [None, *HEADER_TYPES], ids=str)
def test_tables_have_their_ids_in_headers(
    broker: Broker, registry: Registry, kind: pa.DataType | None
) -> None:
    value = formats.Avro[Any](VALUE, **options(registry))
    columns: dict[str, Any] = {
        "key": ["k"] * 4,
        "v": ["a", "b", "c", "d"],
        "partition": pa.array([0] * 4, pa.int32()),
    }
    others: list[Any] = [None, [("h", b"1")], [], [("h", b"1"), ("i", None)]]
    if kind is not None:
        items = others if pa.types.is_map(kind) else [_items(each) for each in others]
        columns["headers"] = pa.array(items, kind)
    topic = f"tables-{HEADER_TYPES.index(kind) if kind is not None else 'bare'}"
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        table = pa.table(columns)
        producer.send_table(topic, pa.concat_tables([table.slice(0, 1), table.slice(1)]), value=value)
        producer.flush()
    with kbatch.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        value_deserializer=formats.Avro(registry=registry.client()),
    ) as consumer:
        consumer.assign({(topic, 0): "beginning"})
        records = list(consumer.until_end())
    (frame,) = {dict(record.headers)["__value_schema_id"] for record in records}
    assert [record.value["v"] for record in records] == columns["v"] and frame is not None and frame[0] == 1
    expected = others if kind is not None else [None] * 4
    assert [list(record.headers) for record in records] == [
        [*(each or ()), ("__value_schema_id", frame)] for each in expected
    ]
    assert kbatch.read_table(
        topic, bootstrap_servers=broker.bootstrap_servers, value=formats.Avro(registry=registry.client())
    )["value"].to_pylist() == [{"v": each} for each in columns["v"]]


def _items(headers: Any) -> Any:
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]


def test_rows_without_value_have_no_id_and_other_headers_are_refused(registry: Registry) -> None:
    value = formats.Avro[Any]("string", columns="v", subject="s", **options(registry))
    key = formats.Avro[Any]("string", columns="k", subject="s", **options(registry))
    table = pa.table({"v": ["a", None], "k": [None, "b"]})
    batches = kbatch.encode_arrow(table, key=key, value=value, partitions=1)
    names = [
        [header["key"] for header in each]
        for each in kbatch.decode_arrow(batches["batch"])["headers"].to_pylist()
    ]
    assert names == [["__value_schema_id"], ["__key_schema_id"]]
    wrong = pa.table({"v": ["a"], "headers": [1]})
    with pytest.raises(TypeError, match="headers"):
        kbatch.encode_arrow(wrong, value=value, key=None, partitions=1)
