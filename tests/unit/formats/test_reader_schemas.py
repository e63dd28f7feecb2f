"""As which schema columns are read that name no schema of their own: the topic's, or that of their values."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch import formats
from kbatch.errors import IllegalStateError, SchemaRegistryError
from kbatch.testing import Broker
from tests.support.registry import Registry

SECONDS = 30.0


def order(*names: str) -> dict[str, Any]:
    fields = [{"name": name, "type": "long", "default": 0} for name in names]
    return {"type": "record", "name": "Order", "fields": fields}


FIRST, SECOND = order("a"), order("a", "b")
ONE = {"a": 1}
OLD_AND_NEW = [{"a": 1, "b": 0}, {"a": 2, "b": 3}]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def avro(registry: Registry, **options: Any) -> formats.Avro[Any]:
    return formats.Avro(registry=registry.client(), **options)


def written(registry: Registry, schema: Any, value: Any, subject: str = "t-value") -> bytes:
    format = avro(registry, schema=schema, register=True, subject=subject)
    return format.bind("value").encode("t", (), value)


def column(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def test_F_TYPE_04_columns_have_the_fields_of_the_topics_latest_schema(registry: Registry) -> None:
    old = written(registry, FIRST, ONE)
    new = written(registry, SECOND, {"a": 2, "b": 3})
    read = avro(registry).column_deserializer("t", "value")
    assert read(column(old)).to_pylist() == OLD_AND_NEW[:1]
    assert read(column(new)).to_pylist() == OLD_AND_NEW[1:]


def test_schema_of_the_values_if_the_topic_has_none(registry: Registry) -> None:
    old = written(registry, FIRST, ONE, "elsewhere")
    written(registry, SECOND, {"a": 2, "b": 3}, "elsewhere")
    assert avro(registry).column_deserializer("t", "value")(column(old)).to_pylist() == [ONE]
    by_record = avro(registry, subject="record")
    assert by_record.column_deserializer("t", "value")(column(old)).to_pylist() == [ONE]
    named = avro(registry, subject="missing")
    with pytest.raises(SchemaRegistryError, match="40401"):
        named.column_deserializer("t", "value")(column(old))


def test_subject_of_another_kind_of_schema_is_not_the_topics(registry: Registry) -> None:
    old = written(registry, FIRST, ONE, "elsewhere")
    registry.add("t-value", {"type": "object"}, "JSON")
    assert avro(registry).column_deserializer("t", "value")(column(old)).to_pylist() == [ONE]


def test_keys_and_values_of_several_topics_have_types_of_their_own(registry: Registry) -> None:
    keys, values, others = (
        written(registry, order(name), {name: 1}, subject)
        for name, subject in (("k", "t-key"), ("v", "t-value"), ("o", "other-value"))
    )
    one = avro(registry)
    records = pa.table({"key": column(keys), "value": column(values), "topic": ["t"]})
    assert formats.deserialize(records, key=one, value=one).select(["key", "value"]).to_pylist() == [
        {"key": {"k": 1}, "value": {"v": 1}}
    ]
    assert one.column_deserializer("other", "value")(column(others)).to_pylist() == [{"o": 1}]
    assert one.column_deserializer("t", "value") is one.column_deserializer("t", "value")


def test_version_and_metadata_choose_the_schema(registry: Registry) -> None:
    new = written(registry, FIRST, ONE)
    new = written(registry, SECOND, {"a": 2, "b": 3})
    first = avro(registry, version=1)
    assert first.column_deserializer("t", "value")(column(new)).to_pylist() == [{"a": 2}]
    assert first.bind("value").encode("t", (), ONE) == written(registry, FIRST, ONE)
    registry.metadata["t-value"] = {1: {"major": "1"}, 2: {"major": "2"}}
    for version, major in ((FIRST, "1"), (SECOND, "2")):
        chosen = avro(registry, metadata={"major": major})
        assert chosen.bind("value").encode("t", (), {"a": 1}) == written(registry, version, {"a": 1})
    with pytest.raises(SchemaRegistryError, match="404"):
        avro(registry, metadata={"major": "3"}).load(["t"])
    with pytest.raises(TypeError, match="metadata= and version= both choose"):
        avro(registry, metadata={"major": "3"}, version=1)
    with pytest.raises(ValueError, match="version must be 'latest' or a number from 1 on, got 0"):
        avro(registry, version=0)


def test_empty_topic_has_the_type_of_its_subject(registry: Registry, broker: Broker) -> None:
    registry.add("t-value", SECOND)
    broker.create_topic("t", 1)
    at: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "value": avro(registry)}
    expected = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    assert kbatch.read_table("t", **at).schema.field("value").type == expected
    with kbatch.scan_topic("t", end=None, **at) as stream:
        assert stream.schema.field("value").type == expected


def test_event_loop_is_not_stopped_by_columns(registry: Registry, broker: Broker) -> None:
    """poll_table asks on a worker; a table of a poll, which would ask on the loop, says what to do."""
    data = written(registry, SECOND, {"a": 1, "b": 2})
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", data).result(SECONDS)

    async def use() -> None:
        async with kbatch.AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers, value_deserializer=avro(registry, subject="t-value")
        ) as consumer:
            consumer.assign({("t", 0): "beginning"})
            assert (await consumer.poll_table(SECONDS))["value"].to_pylist() == [{"a": 1, "b": 2}]
            consumer.seek(("t", 0), 0)
            polled = await consumer.poll(SECONDS)
            other = avro(registry, subject="t-value")
            with pytest.raises(IllegalStateError, match="would stop the event loop"):
                polled.table(value=other)
            table = await asyncio.to_thread(polled.table, value=other)
            assert table["value"].to_pylist() == [{"a": 1, "b": 2}]

    asyncio.run(use())


def test_F_REG_11_load_says_which_version_cannot_be_read(registry: Registry) -> None:
    written(registry, FIRST, ONE)
    written(registry, SECOND, {"a": 2, "b": 3})
    both = avro(registry, schema=SECOND)
    both.load(["t"], versions="all")
    requests = list(registry.requests)
    old = written(registry, FIRST, ONE)
    requests = list(registry.requests)
    assert both.bind("value").decode("t", (), old) == OLD_AND_NEW[0] and registry.requests == requests
    registry.add("t-value", {"type": "object"}, "JSON")
    with pytest.raises(ValueError, match=r"values of version 3 of t-value .*: .* type JSON, not AVRO"):
        avro(registry, schema=SECOND).load(["t"], versions="all")
    with pytest.raises(SchemaRegistryError, match="40401"):
        avro(registry).load(["missing"])


def test_is_compatible_asks_the_registry(registry: Registry) -> None:
    assert avro(registry, schema=FIRST).is_compatible("t")  # the first schema
    written(registry, FIRST, ONE)
    assert avro(registry, schema=SECOND).is_compatible("t")
    assert not avro(registry, schema={**FIRST, "name": "never"}).is_compatible("t")
    with pytest.raises(TypeError, match="needs a schema and registry="):
        avro(registry).is_compatible("t")


def decimal(precision: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}


@pytest.mark.parametrize(
    ("decimals", "kind", "values"),
    [
        ("exact", pa.decimal256(64, 2), [Decimal("1.10"), Decimal("-0.05"), None]),
        ("narrow", pa.decimal128(38, 2), [Decimal("1.10"), Decimal("-0.05"), None]),
        ("string", pa.string(), ["1.10", "-0.05", None]),
        ("double", pa.float64(), [1.1, -0.05, None]),
    ],
)
def test_decimals_of_columns_are_what_is_chosen(decimals: Any, kind: pa.DataType, values: list[Any]) -> None:
    """Kafka Connect's decimals have 64 digits, which neither polars nor duckdb has."""
    fields = [
        {"name": "d", "type": ["null", decimal(64)]},
        {"name": "l", "type": {"type": "array", "items": decimal(64)}},
        {"name": "m", "type": {"type": "map", "values": ["null", decimal(64)]}},
        {
            "name": "r",
            "type": {"type": "record", "name": "Inner", "fields": [{"name": "d", "type": decimal(64)}]},
        },
    ]
    format = formats.Avro[Any]({"type": "record", "name": "R", "fields": fields}, decimals=decimals)
    made: list[Any] = [Decimal("1.10"), Decimal("-0.05"), None]
    rows = [
        {"d": each, "l": [each] * 2 if each else [], "m": {"a": each}, "r": {"d": each or Decimal(0)}}
        for each in made
    ]
    data = pa.array([*(format.bind("value").encode("t", (), row) for row in rows), None])
    found = format.column_deserializer("t", "value")(data)
    assert found.type.field("d").type == kind
    assert [row and row["d"] for row in found.to_pylist()] == [*values, None]
    assert [row["l"] for row in found.to_pylist()[:3]] == [[value] * 2 if value else [] for value in values]
    assert [dict(row["m"]) for row in found.to_pylist()[:3]] == [{"a": value} for value in values]
    assert [row["r"]["d"] for row in found.to_pylist()[:2]] == values[:2]


def test_decimal_beyond_38_digits_is_a_fault_of_its_value() -> None:
    format = formats.Avro[Any](decimal(64), decimals="narrow", on_error="column")
    codec = format.bind("value")
    data = pa.array([codec.encode("t", (), each) for each in (Decimal(10**40), Decimal("1.5"))])
    found, reasons = format.column_deserializer("t", "value")(data)
    assert found.to_pylist() == [None, Decimal("1.50")]
    assert reasons[0].as_py() is not None and reasons[1].as_py() is None
    with pytest.raises(ValueError, match="decimals must be one of exact, narrow, string, double"):
        formats.Avro[Any](decimal(9), decimals="float")  # type: ignore[arg-type]
