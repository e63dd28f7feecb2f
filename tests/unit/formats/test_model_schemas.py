"""Avro schemas of a program's classes, judged by fastavro, and by values that are read back as they were."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import uuid
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, NamedTuple

import attrs
import fastavro
import msgspec
import pydantic
import pytest

from kbatch.formats import Avro, Digits
from kbatch.formats.model_schemas import avro_schema_of

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


@dataclasses.dataclass
class Order:
    id: int
    price: Annotated[Decimal, Digits(9, 2)]
    at: datetime.datetime
    day: datetime.date
    start: datetime.time
    ref: uuid.UUID
    color: Color
    lines: list[Line]
    first: Line
    sizes: dict[str, float]
    raw: bytes = b"\xff\0"
    note: str | None = None
    level: int | str | None = 5
    tags: list[str] = dataclasses.field(default_factory=list)
    paid: bool = False


ORDER = Order(
    id=2**40,
    price=Decimal("1.10"),
    at=MOMENT,
    day=MOMENT.date(),
    start=MOMENT.time(),
    ref=uuid.UUID(int=7),
    color=Color.BLUE,
    lines=[Line("a"), Line("b", 2)],
    first=Line("c"),
    sizes={"s": 1.5},
    level="high",
)
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "start", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["red", "blue"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "count", "type": "long", "default": 1},
                    ],
                },
            },
        },
        {"name": "first", "type": "Line"},
        {"name": "sizes", "type": {"type": "map", "values": "double"}},
        {"name": "raw", "type": "bytes", "default": "\xff\0"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "level", "type": ["long", "null", "string"], "default": 5},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "paid", "type": "boolean", "default": False},
    ],
}


def test_F_MOD_06_schema_of_a_dataclass() -> None:
    assert avro_schema_of(Order) == SCHEMA
    fastavro.parse_schema(avro_schema_of(Order))
    assert avro_schema_of(Line, namespace="shop")["namespace"] == "shop"


def test_F_MOD_06_values_are_read_back_as_they_were() -> None:
    codec = Avro(Order, id=7).bind("value")
    assert codec.decode("t", (), codec.encode("t", (), ORDER)) == ORDER


class Point(NamedTuple):
    x: int
    y: float = 0.5
    name: str | None = None


@attrs.define
class Attrs:
    x: int
    y: float = 0.5
    name: str | None = None


class Struct(msgspec.Struct):
    x: int
    y: float = 0.5
    name: str | None = None


class Pydantic(pydantic.BaseModel):
    x: int
    y: float = 0.5
    name: str | None = None


@pytest.mark.parametrize("model", [Point, Attrs, Struct, Pydantic])
def test_F_MOD_01_all_classes_of_fields_have_the_same_schema(model: Any) -> None:
    assert avro_schema_of(model) == {
        "type": "record",
        "name": model.__name__,
        "fields": [
            {"name": "x", "type": "long"},
            {"name": "y", "type": "double", "default": 0.5},
            {"name": "name", "type": ["null", "string"], "default": None},
        ],
    }
    codec = Avro[Any](model, id=7).bind("value")
    value = model(x=1, y=2.5, name="a")
    assert codec.decode("t", (), codec.encode("t", (), value)) == value


def test_pydantic_says_digits_and_names() -> None:
    class Model(pydantic.BaseModel):
        price: Decimal = pydantic.Field(max_digits=10, decimal_places=2)
        from_: str = pydantic.Field("x", alias="from")
        parts: list[str] = pydantic.Field(default_factory=lambda: ["a"])

    assert avro_schema_of(Model)["fields"] == [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "from", "type": "string", "default": "x"},
        {"name": "parts", "type": {"type": "array", "items": "string"}, "default": ["a"]},
    ]
    codec = Avro(Model, id=7).bind("value")
    value = Model.model_validate({"price": Decimal("1.50"), "from": "y"})
    assert codec.decode("t", (), codec.encode("t", (), value)) == value


@dataclasses.dataclass
class Node:
    name: str
    next: Node | None = None


def test_class_may_contain_itself() -> None:
    assert avro_schema_of(Node)["fields"][1] == {"name": "next", "type": ["null", "Node"], "default": None}
    codec = Avro(Node, id=7).bind("value")
    value = Node("a", Node("b"))
    assert codec.decode("t", (), codec.encode("t", (), value)) == value


counter = itertools.count()


class Level(IntEnum):
    LOW = 1


@dataclasses.dataclass
class Inner:
    when: datetime.datetime


def test_defaults_are_those_that_stay() -> None:
    @dataclasses.dataclass
    class Model:
        number: int = dataclasses.field(default_factory=lambda: next(counter))
        inner: Inner = dataclasses.field(default_factory=lambda: Inner(MOMENT))
        times: int = 2

    number, inner, times = avro_schema_of(Model, times="millis")["fields"]
    assert "default" not in number
    assert inner["default"] == {"when": int(MOMENT.timestamp()) * 1000 + 678}
    assert times["default"] == 2


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (datetime.timedelta, "Model.field is of timedelta, which has no Avro type"),
        (Any, r"Model.field is of (typing\.)?Any, which has no Avro type"),
        (Decimal, r"Model.field is a Decimal without its digits: Annotated\[Decimal, Digits\(10, 2\)\]"),
        (dict[int, str], "Model.field: the keys of an Avro map are str, got int"),
        (Level, "Model.field: the values of Level are no names of Avro"),
        (list[object], r"Model.field\[\] is of object, which has no Avro type"),
    ],
    ids=str,
)
def test_types_that_avro_lacks_are_named(annotation: Any, text: str) -> None:
    model = dataclasses.make_dataclass("Model", [("field", annotation)])
    with pytest.raises(TypeError, match=text):
        avro_schema_of(model)


def test_other_wrong_calls() -> None:
    with pytest.raises(TypeError, match="is no class with fields"):
        Avro(int)
    with pytest.raises(TypeError, match="namespace= and times= are for the schema of a class"):
        Avro(SCHEMA, namespace="shop")
    model = dataclasses.make_dataclass("Model", [("field", int, dataclasses.field(default="x"))])
    with pytest.raises(
        TypeError, match=r"Model\.field: its default has no Avro form: long does not take str"
    ):
        avro_schema_of(model)
    other = dataclasses.make_dataclass("Line", [("field", int)])
    model = dataclasses.make_dataclass("Model", [("a", Line), ("b", other)])
    with pytest.raises(TypeError, match=r"Model\.b: two classes have the name Line"):
        avro_schema_of(model)
