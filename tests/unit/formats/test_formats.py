"""Formats of single records: what they write and read, and what they refuse."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import json
import pickle
import types
import uuid
import warnings
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import attrs
import fastavro
import pytest

from kbatch import formats
from kbatch.errors import ConfigError, IllegalStateError, SchemaRegistryError
from kbatch.formats.base import Format
from kbatch.formats.configured import deserializer_for, serializer_for
from kbatch.schema_registry import Schema
from tests.support.registry import Registry

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what confluent_kafka imports, about its own future
    from confluent_kafka.schema_registry import (
        SchemaRegistryClient,
        dual_schema_id_deserializer,
        header_schema_id_serializer,
    )
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import Deserializer, MessageField, SerializationContext

UTC = datetime.UTC
DUAL = {"schema.id.deserializer": dual_schema_id_deserializer}
IN_HEADER = {"schema.id.serializer": header_schema_id_serializer}
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=UTC)
DATE = {"type": "int", "logicalType": "date"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": MICROS},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": INNER}, "default": []},
    ],
}
ROW = {"id": 1, "at": NOON, "note": None, "lines": [{"a": "x"}]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def there_and_back(format: Format[Any], value: Any) -> Any:
    codec = format.bind("value")
    return codec.decode("t", (), codec.encode("t", (), value))


def record_of(kind: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}


@pytest.mark.parametrize(
    ("format", "value", "data"),
    [
        (formats.Bytes(), b"\xff", b"\xff"),
        (formats.Utf8(), "é", "é".encode()),
        (formats.Int16(), -2, b"\xff\xfe"),
        (formats.Int32(), 1, b"\0\0\0\1"),
        (formats.Int64(), -1, b"\xff" * 8),
        (formats.Float32(), 1.5, b"\x3f\xc0\0\0"),
        (formats.Float64(), 1.5, b"\x3f\xf8" + bytes(6)),
        (formats.Boolean(), True, b"\1"),
        (formats.Uuid(), uuid.UUID(int=5), str(uuid.UUID(int=5)).encode()),
        (formats.Json(), {"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'.encode()),
    ],
)
def test_plain_formats_are_javas(format: Format[Any], value: Any, data: bytes) -> None:
    for each in (format, pickle.loads(pickle.dumps(format))):
        codec = each.bind("key")
        assert codec.encode("t", (), value) == data
        assert codec.decode("t", (), data) == value


@pytest.mark.parametrize(
    ("format", "value"),
    [
        (formats.Utf8(), b"a"),
        (formats.Int16(), 2**15),
        (formats.Int32(), True),
        (formats.Int64(), 1.0),
        (formats.Boolean(), 1),
        (formats.Uuid(), "x"),
        (formats.Json(), object()),
    ],
)
def test_plain_formats_refuse_other_values(format: Format[Any], value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        format.bind("value").encode("t", (), value)


@pytest.mark.parametrize(
    ("format", "data"),
    [(formats.Int32(), b"\0"), (formats.Boolean(), b"\2"), (formats.Uuid(), b"5"), (formats.Utf8(), b"\xff")],
)
def test_plain_formats_refuse_other_bytes(format: Format[Any], data: bytes) -> None:
    with pytest.raises(ValueError):
        format.bind("value").decode("t", (), data)


# JSON


def test_json_has_no_nan_and_keeps_large_integers() -> None:
    encode = formats.Json().bind("value").encode
    assert encode("t", (), {"a": float("nan"), "b": [float("inf")], "c": 2**70}) == (
        b'{"a":null,"b":[null],"c":1180591620717411303424}'
    )
    assert there_and_back(formats.Json(), 2**70) == 2**70
    assert encode("t", (), {"d": Decimal("1.10"), "t": NOON, "u": uuid.UUID(int=1), "b": b"\xff"}) == (
        b'{"d":"1.10","t":"2026-01-01T12:00:00+00:00","u":"00000000-0000-0000-0000-000000000001","b":"/w=="}'
    )


# Avro


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (["null", DATE, MICROS], NOON),
        (["null", DATE, MICROS], NOON.date()),
        ([DATE, "string"], "2026-01-01"),
        ([DATE, LOCAL], NOON.replace(tzinfo=None)),
        (["long", "boolean"], True),
        (["boolean", "long"], 1),
        (["int", "long"], 2**40),
        (["float", "double"], 0.1),
        (["string", DECIMAL], Decimal("1.25")),
        ([{"type": "map", "values": "string"}, INNER], {"a": "x"}),
        ([INNER, {"type": "map", "values": "string"}], {"b": "x"}),
        ({"type": "int", "logicalType": "time-millis"}, datetime.time(1, 2, 3, 4000)),
        ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=7)),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, uuid.UUID(int=7)),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
    ],
)
def test_F_AVRO_29_35_values_come_back_as_their_type(kind: Any, value: Any) -> None:
    schema = record_of(kind)
    codec = formats.Avro(schema).bind("value")
    data = codec.encode("t", (), {"x": value})
    found = codec.decode("t", (), data)["x"]
    assert found == value and type(found) is type(value)
    with_more = {**schema, "fields": [*schema["fields"], {"name": "y", "type": MICROS, "default": 0}]}
    evolved = formats.Avro(with_more, registry=_Only({7: schema})).bind("value")  # type: ignore[arg-type]
    assert evolved.decode("t", (), b"\0\0\0\0\7" + data) == {
        "x": value,
        "y": datetime.datetime(1970, 1, 1, tzinfo=UTC),
    }


class _Only:
    """Schemas by id, without a server."""

    def __init__(self, schemas: dict[int, Any]) -> None:
        self._schemas = schemas

    def get(self, number: int, **_: Any) -> Schema:
        return Schema(json.dumps(self._schemas[number]), id=number)

    def with_references(self, schema: Schema) -> list[Schema]:
        return [schema]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"id": 2**63}, "field 'id': 9223372036854775808 is too large for long"),
        ({"id": True}, "field 'id': long does not take bool True"),
        ({"id": 1.0}, "field 'id': long does not take float"),
        (
            {"at": NOON.replace(tzinfo=None)},
            "field 'at': timestamp-micros takes no datetime without a time zone",
        ),
        ({"at": NOON.date()}, "field 'at': timestamp-micros does not take date"),
        ({"lines": [{"a": 1}]}, "field 'lines': field 'a': string does not take int"),
        ({"lines": [{}]}, "field 'a' of shop.Inner is missing"),
        ({"other": 1}, "shop.Order has no field 'other'; its fields are id, at, note, lines"),
    ],
)
def test_F_AVRO_31_32_33_34_nothing_is_changed_silently(change: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        formats.Avro(ORDER).bind("value").encode("t", (), {**ROW, **change})


class Shade(str, enum.Enum):  # noqa: UP042 - str() of a StrEnum is its value
    LIGHT = "light"


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


@pytest.mark.parametrize("value", [Shade.LIGHT, Text("light")])
@pytest.mark.parametrize(
    "format",
    [
        formats.Avro[Any]("string"),
        formats.Avro[Any](["null", "string"]),
        formats.Avro[Any]({"type": "enum", "name": "Shade", "symbols": ["light", "LIGHT"]}),
        formats.Json[Any](),
        formats.Utf8(),
    ],
)
def test_texts_of_subclasses_are_what_they_hold(format: formats.Format[Any], value: str) -> None:
    assert there_and_back(format, value) == "light"


def test_F_AVRO_25_defaults_are_not_shared_and_may_be_left_out() -> None:
    codec = formats.Avro(ORDER).bind("value")
    first, second = (codec.decode("t", (), codec.encode("t", (), {"id": 1, "at": NOON})) for _ in range(2))
    first["lines"].append("changed")
    assert second["lines"] == []
    with pytest.raises(ValueError, match=r"field 'id' of shop\.Order is missing, and has no default"):
        codec.encode("t", (), {"at": NOON})


def test_F_AVRO_24_record_within_itself() -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Tree"], "default": None}],
    }
    value = {"n": 1, "next": {"n": 2, "next": None}}
    assert there_and_back(formats.Avro(tree), value) == value


def test_bytes_after_a_value_are_a_fault() -> None:
    codec = formats.Avro("long").bind("value")
    with pytest.raises(ValueError, match="1 bytes follow its Avro value"):
        codec.decode("t", (), codec.encode("t", (), 5) + b"x")


# Models


@dataclasses.dataclass
class Line:
    a: str


@dataclasses.dataclass
class Order:
    id: int
    at: datetime.datetime
    note: str | None = None
    lines: list[Line] = dataclasses.field(default_factory=list)


@attrs.define
class AttrsOrder:
    id: int
    at: datetime.datetime
    note: str | None
    lines: list[Line]


class NamedOrder(NamedTuple):
    id: int
    at: datetime.datetime
    note: str | None
    lines: list[Line]


@pytest.mark.parametrize("model", [Order, AttrsOrder, NamedOrder])
@pytest.mark.parametrize("has_msgspec", [True, False])
def test_F_MOD_01_07_models_go_in_and_come_out(
    model: Any, has_msgspec: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbatch.formats import models

    if has_msgspec:
        pytest.importorskip("msgspec")
    monkeypatch.setattr(models, "_has_msgspec", lambda: has_msgspec)
    models._from_dict.cache_clear()
    value = model(1, NOON, None, [Line("x")])
    assert there_and_back(formats.Avro(ORDER, model=model), value) == value
    encoded = formats.Json().bind("value").encode("t", (), value)
    assert json.loads(encoded)["lines"] == [{"a": "x"}]
    models._from_dict.cache_clear()


def _msgspec_models() -> tuple[Any, Any]:
    msgspec = pytest.importorskip("msgspec")
    line: Any = msgspec.defstruct("Line", [("a", str)])
    fields = [
        ("id", int),
        ("at", datetime.datetime),
        ("note", str | None),
        ("lines", types.GenericAlias(list, (line,))),
    ]
    return msgspec.defstruct("Order", fields), line


def _pydantic_models() -> tuple[Any, Any]:
    pydantic = pytest.importorskip("pydantic")
    line: Any = pydantic.create_model("Line", a=(str, ...))
    at, lines = (datetime.datetime, ...), (types.GenericAlias(list, (line,)), ...)
    return pydantic.create_model("Order", id=(int, ...), at=at, note=(str | None, None), lines=lines), line


@pytest.mark.parametrize("models", [_msgspec_models, _pydantic_models])
def test_F_MOD_01_04_models_that_check_types(models: Any) -> None:
    order, line = models()
    value = order(id=1, at=NOON, note=None, lines=[line(a="x")])
    assert there_and_back(formats.Avro(ORDER, model=order), value) == value
    assert there_and_back(formats.Json(order), value) == value
    with pytest.raises(ValueError, match="id"):
        formats.Json(order).bind("value").decode("t", (), b'{"id": "x", "at": "2026-01-01T00:00:00Z"}')


def test_model_must_have_fields() -> None:
    with pytest.raises(TypeError, match="model must be a dataclass"):
        formats.Json(int)
    assert there_and_back(formats.Json(to_dict=lambda each: {"n": each}, from_dict=lambda d: d["n"]), 5) == 5


# With a registry, and other clients


def context(headers: Any = None) -> SerializationContext:
    return SerializationContext("orders", MessageField.VALUE, [] if headers is None else headers)


def test_F_REG_14_confluents_avro_both_ways(registry: Registry) -> None:
    number = registry.add("orders-value", ORDER)
    client = SchemaRegistryClient({"url": registry.url})
    conf = {"auto.register.schemas": False, "subject.name.strategy.type": "TOPIC"}
    theirs = AvroSerializer(client, json.dumps(ORDER), conf=conf)
    read = AvroDeserializer(client, conf={"subject.name.strategy.type": "TOPIC"})
    for format in (formats.Avro(ORDER, registry=registry.client()), formats.Avro(registry=registry.client())):
        codec = format.bind("value")
        data = codec.encode("orders", (), ROW)
        assert data == theirs(ROW, context()) and data[:5] == number.to_bytes(5, "big")
        assert read(data, context()) == codec.decode("orders", (), data) == ROW
    theirs_in: list[Any] = []
    ours_in: list[Any] = []
    bare = AvroSerializer(client, json.dumps(ORDER), conf=conf | IN_HEADER)
    value = bare(ROW, context(headers=theirs_in))
    codec = formats.Avro(ORDER, registry=registry.client(), id_in="header").bind("value")
    assert codec.encode("orders", ours_in, ROW) == value and ours_in == theirs_in
    dual = AvroDeserializer(client, conf={"subject.name.strategy.type": "TOPIC"} | DUAL)
    assert dual(value, context(headers=ours_in)) == codec.decode("orders", theirs_in, value) == ROW


def test_schema_is_asked_for_once_and_is_not_registered_by_itself(registry: Registry) -> None:
    format: Format[Any] = formats.Avro(ORDER, registry=registry.client())
    with pytest.raises(SchemaRegistryError, match=r"40401|40403"):
        format.load(["orders"])
    registering = formats.Avro(ORDER, registry=registry.client(), register=True)
    registering.load(["orders"])
    asked = len(registry.requests)
    codec = registering.bind("value")
    for _ in range(3):
        data = codec.encode("orders", (), ROW)
        assert codec.decode("orders", (), data) == ROW
    assert len(registry.requests) == asked + 1  # the id, once, for reading


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("topic", "orders-value"),
        ("record", "shop.Order"),
        ("topic_record", "orders-shop.Order"),
        ("mine", "mine"),
        (lambda topic, part, record: f"{part}:{topic}:{record}", "value:orders:shop.Order"),
    ],
)
def test_subjects_follow_the_strategy(registry: Registry, subject: Any, expected: str) -> None:
    registry.add(expected, ORDER)
    formats.Avro(ORDER, registry=registry.client(), subject=subject).load(["orders"])
    assert registry.requests[-1].startswith("POST /subjects/")


def test_F_IO_01_event_loop_is_never_stopped_by_a_request(registry: Registry) -> None:
    import asyncio

    registry.add("orders-value", ORDER)
    format: Format[Any] = formats.Avro(ORDER, registry=registry.client())

    async def use() -> bytes:
        codec = format.bind("value")
        with pytest.raises(IllegalStateError, match=r"await format\.aload\(\[topic\]\)"):
            codec.encode("orders", (), ROW)
        await format.aload(["orders"])
        return codec.encode("orders", (), ROW)

    assert asyncio.run(use())[:1] == b"\0"


def test_faults_of_frames_are_errors_of_the_value(registry: Registry) -> None:
    registry.add("orders-value", ORDER)
    codec = formats.Avro(registry=registry.client()).bind("value")
    for data, text in [
        (b"", "it is empty"),
        (b"\5abc", "begins with the byte 5"),
        (b"\0\0", "its schema id is cut off"),
        (b"\0\0\0\0\x63x", "the registry does not know its schema 99"),
    ]:
        with pytest.raises(ValueError, match=text):
            codec.decode("orders", (), data)
    assert codec.unknown((), b"\0\0\0\0\1x") == b"\0\0\0\0\1"
    assert codec.unknown((), b"\5abc") is None
    assert codec.unknown((), b"\0\0\0\0\x63x") is None  # just asked for


# As configured


def test_F_SIG_03_objects_for_confluent_are_taken_as_they_are(registry: Registry) -> None:
    registry.add("orders-value", ORDER)
    client = SchemaRegistryClient({"url": registry.url})
    conf = {"auto.register.schemas": False, "subject.name.strategy.type": "TOPIC"}
    write = serializer_for("value", AvroSerializer(client, json.dumps(ORDER), conf=conf))
    read = deserializer_for("value", AvroDeserializer(client, conf={"subject.name.strategy.type": "TOPIC"}))
    assert write is not None and read is not None and not read.is_of_data
    data = write("orders", (), ROW)
    assert read.function("orders", (), data) == ROW
    bare = AvroSerializer(client, json.dumps(ORDER), conf=conf | IN_HEADER)
    in_header = serializer_for("value", bare)
    assert in_header is not None and in_header.adds_headers
    headers: list[Any] = [("mine", b"1")]
    data = in_header("orders", headers, ROW)
    assert [name for name, _ in headers] == ["mine", "__value_schema_id"]
    assert read.function("orders", headers, data) == ROW


class _OfKafkaPython:
    def deserialize(self, topic: str, data: bytes) -> Any:
        return topic, data


@pytest.mark.parametrize(
    ("given", "is_of_data", "expected"),
    [
        (lambda data: data, True, b"x"),
        (lambda topic, data: (topic, data), False, ("t", b"x")),
        (lambda topic, headers, data: (topic, headers, data), False, ("t", (), b"x")),
        (lambda data, encoding="utf-8": data.decode(encoding), True, "x"),
        (lambda data=b"": data, True, b"x"),
        (_OfKafkaPython(), False, ("t", b"x")),
        (_OfKafkaPython, False, ("t", b"x")),
        ("utf8", True, "x"),
        ("org.apache.kafka.common.serialization.StringDeserializer", True, "x"),
        (formats.Utf8, True, "x"),
    ],
)
def test_F_SIG_01_02_05_deserializers_by_their_form(given: Any, is_of_data: bool, expected: Any) -> None:
    made = deserializer_for("value", given)
    assert made is not None and made.is_of_data is is_of_data
    assert (made.function(b"x") if is_of_data else made.function("t", (), b"x")) == expected


def test_names_that_are_no_deserializer() -> None:
    assert deserializer_for("key", "bytes") is None
    for given in (
        "nothing",
        "org.apache.kafka.common.serialization.VoidDeserializer",
        5,
        lambda a, b, c, d: a,
    ):
        with pytest.raises(ConfigError, match=r"^key.deserializer "):
            deserializer_for("key", given)


def test_fastavro_reads_what_is_written() -> None:
    data = formats.Avro(ORDER).bind("value").encode("t", (), ROW)
    assert fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(ORDER), None) == ROW


@dataclasses.dataclass
class Part:
    sku: str


@dataclasses.dataclass
class Whole:
    id: int
    part: Part | None = None
    parts: list[Part] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    a: int
    b: str = "x"


def test_F_MOD_02_05_nested_and_optional_objects() -> None:
    codec = formats.Json(Whole).bind("value")
    for value in (Whole(1), Whole(2, Part("a"), [Part("b"), Part("c")])):
        assert codec.decode("t", (), codec.encode("t", (), value)) == value
    pairs = formats.Json(Pair).bind("value")
    assert pairs.encode("t", (), Pair(1)) == b'{"a":1,"b":"x"}'
    assert pairs.decode("t", (), b'{"a":2,"b":"y"}') == Pair(2, "y")


@pytest.mark.parametrize("model", [Whole, Pair])
def test_F_MOD_03_missing_and_unknown_members(model: Any) -> None:
    codec = formats.Json[Any](model).bind("value")
    first = "id" if model is Whole else "a"
    assert codec.decode("t", (), f'{{"{first}": 1, "unknown": 2}}'.encode()) == model(1)
    with pytest.raises((TypeError, ValueError), match=first):
        codec.decode("t", (), b'{"unknown": 2}')


def test_F_SIG_04_objects_of_confluents_asyncio_clients_are_refused() -> None:
    class Later(Deserializer):
        async def __call__(self, value: Any, ctx: Any = None) -> Any:
            return value

    with pytest.raises(ConfigError, match="is for confluent's asyncio clients; give the one without Async"):
        deserializer_for("value", Later())
