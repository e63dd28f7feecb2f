"""JSON with a schema, judged by confluent-kafka and json."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pickle
import sys
import warnings
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple, cast

import pytest

from kbatch import formats
from kbatch.errors import SchemaRegistryError
from kbatch.formats.json_schema import schema_of
from kbatch.schema_registry import SchemaReference
from tests.support.registry import Registry

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what confluent_kafka imports, about its own future
    from confluent_kafka.schema_registry import (
        Schema,
        SchemaRegistryClient,
        dual_schema_id_deserializer,
        header_schema_id_serializer,
    )
    from confluent_kafka.schema_registry import SchemaReference as TheirReference
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "shop.Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"type": "string", "format": "date-time"},
    },
    "required": ["id"],
    "additionalProperties": False,
}
LINE = {"type": "object", "properties": {"sku": {"$ref": "sku.json"}}, "required": ["sku"]}
SKU = {"type": "string", "minLength": 2}
WHOLE = {"title": "Whole", "type": "object", "properties": {"line": {"$ref": "http://shop/line.json"}}}
ROW = {"id": 1, "price": 9.5, "tags": ["é"]}
TOPIC = {"subject.name.strategy.type": "TOPIC"}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def context(headers: Any = None) -> SerializationContext:
    return SerializationContext("orders", MessageField.VALUE, [] if headers is None else headers)


@pytest.mark.parametrize("id_in", ["prefix", "header"])
def test_F_REG_14_confluents_json_schema_both_ways(registry: Registry, id_in: Any) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    conf = TOPIC | ({"schema.id.serializer": header_schema_id_serializer} if id_in == "header" else {})
    theirs = JSONSerializer(json.dumps(ORDER), client, conf=conf)
    dual = TOPIC | {"schema.id.deserializer": dual_schema_id_deserializer}
    read = JSONDeserializer(json.dumps(ORDER), schema_registry_client=client, conf=dual)
    ours_in: list[Any] = []
    theirs_in: list[Any] = []
    ours = formats.JsonSchema(ORDER, registry=registry.client(), register=True, id_in=id_in)
    data = ours.bind("value").encode("orders", ours_in, ROW)
    their_data = theirs(ROW, context(theirs_in))
    assert (
        their_data is not None and ours_in == theirs_in and data[:5] == their_data[:5]
    ) or id_in == "header"
    assert read(data, context(ours_in)) == ROW
    for format in (ours, pickle.loads(pickle.dumps(ours)), formats.JsonSchema(registry=registry.client())):
        assert format.bind("value").decode("orders", theirs_in, their_data) == ROW


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"id": "1"}, 'id: "1" is not of type "integer"'),
        ({"id": True}, "id: true is not of type"),
        ({"id": 1, "tags": ["a", 5]}, "tags/1: 5 is not of type"),
        ({"price": 1}, '"id" is a required property'),
        ({"id": 1, "x": 1}, "Additional properties are not allowed"),
        ([], "is not of type"),
        ({"id": 1, "price": Decimal("1.5")}, 'price: "1.5" is not of type "number"'),
        ({"id": 1, "price": float("nan")}, "price: null is not of type"),
        ({"id": 1, 5: 6}, "Additional properties are not allowed"),
    ],
)
def test_what_is_written_is_what_is_validated(value: Any, text: str) -> None:
    """Decimals are written as text, and NaN as null."""
    with pytest.raises(ValueError, match=text):
        formats.JsonSchema(ORDER).bind("value").encode("t", (), value)


def test_confluent_refuses_the_same(registry: Registry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    theirs = JSONSerializer(json.dumps(ORDER), client, conf=TOPIC)
    ours = formats.JsonSchema(ORDER).bind("value")
    for value in (
        {"id": 1.0},
        {"id": 1.5},
        {"id": 2**62},  # theirs has no larger ones where orjson is installed
        {"id": 1, "price": -1},
        {"id": 1, "at": "soon"},
        {},
    ):
        try:
            theirs(value, context())
        except SerializationError:
            with pytest.raises(ValueError, match=r"."):
                ours.encode("t", (), value)
        else:
            assert json.loads(ours.encode("t", (), value)) == value


@pytest.mark.parametrize(
    ("validate", "wrong_out", "wrong_in"), [("both", 1, 1), ("out", 1, 0), ("none", 0, 0)]
)
def test_validate_says_which_values(validate: Any, wrong_out: bool, wrong_in: bool) -> None:
    codec = formats.JsonSchema(ORDER, validate=validate).bind("value")
    for is_wrong, call in (
        (wrong_out, lambda: codec.encode("t", (), {"id": "1"})),
        (wrong_in, lambda: codec.decode("t", (), b'{"id": "1"}')),
    ):
        if is_wrong:
            with pytest.raises(ValueError, match="is not of type"):
                call()
        else:
            call()


class Line(NamedTuple):
    sku: str


@dataclasses.dataclass
class Order:
    id: int
    at: datetime.datetime
    lines: list[Line]


def test_F_MOD_01_objects_are_validated_as_json() -> None:
    schema = {
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string"},
            "lines": {"items": {"type": "object", "required": ["sku"]}},
        }
    }
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    codec = formats.JsonSchema(schema, to_dict=None).bind("value")
    data = codec.encode("t", (), Order(1, moment, [Line("a")]))
    assert data == b'{"id":1,"at":"2026-01-01T00:00:00+00:00","lines":[{"sku":"a"}]}'
    with pytest.raises(ValueError, match=r"lines/0: \[\"a\"\] is not of type"):
        codec.encode("t", (), {"lines": [["a"]]})


def _models() -> list[Any]:
    msgspec = pytest.importorskip("msgspec")
    pydantic = pytest.importorskip("pydantic")
    plain = dataclasses.make_dataclass("Plain", [("id", int), ("tags", list[str])])
    struct = msgspec.defstruct("Struct", [("id", int), ("tags", list[str])])
    model = pydantic.create_model("Model", id=(int, ...), tags=(list[str], ...))
    return [plain, struct, model]


@pytest.mark.parametrize("model", _models(), ids=lambda each: each.__name__)
def test_a_class_has_its_own_schema(registry: Registry, model: Any) -> None:
    format = formats.JsonSchema(model, registry=registry.client(), register=True, subject="record")
    codec = format.bind("value")
    value = model(id=1, tags=["a"])
    assert codec.decode("t", (), codec.encode("t", (), value)) == value
    assert registry.requests[0] == f"POST /subjects/{model.__name__}/versions"
    with pytest.raises(ValueError, match=r"id: .* is not of type"):
        codec.decode("t", (), b'\0\0\0\0\1{"id": "x", "tags": []}')


def test_schema_of_a_dataclass_needs_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(ImportError, match="the schema of Order needs msgspec; pip install msgspec"):
        schema_of(Order)


@pytest.mark.parametrize("name", ["http://shop/sku.json", "sku.json"])
def test_references_are_those_of_the_registry(registry: Registry, name: str) -> None:
    """confluent-kafka takes the second, a relative name, for one of http://shop, which it would ask."""
    line = json.loads(json.dumps(LINE).replace("sku.json", name))
    registry.add("sku", SKU, "JSON")
    registry.add("line", line, "JSON", [{"name": name, "subject": "sku", "version": 1}])
    client = SchemaRegistryClient({"url": registry.url})
    reference = ("http://shop/line.json", "line", 1)
    ours = formats.JsonSchema(
        WHOLE, registry=registry.client(), references=[SchemaReference(*reference)], register=True
    )
    codec = ours.bind("value")
    data = codec.encode("orders", (), {"line": {"sku": "ab"}})
    schema = Schema(json.dumps(WHOLE), "JSON", [TheirReference(*reference)])
    theirs = JSONSerializer(schema, client, conf=TOPIC)
    if name.startswith("http"):
        assert (theirs(json.loads(data[5:]), context()) or b"")[:5] == data[:5]
    for read in (codec, formats.JsonSchema(registry=registry.client()).bind("value")):
        assert read.decode("orders", (), data) == {"line": {"sku": "ab"}}
        with pytest.raises(ValueError, match='line/sku: "a" is shorter than 2'):
            read.decode("orders", (), data.replace(b"ab", b"a"))


def test_a_reference_is_never_requested_from_its_url(registry: Registry) -> None:
    with pytest.raises(ValueError, match=r"invalid JSON Schema: .*line\.json"):
        formats.JsonSchema({"$ref": f"{registry.url}/line.json"})
    assert registry.requests == []


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: formats.JsonSchema(), TypeError, "needs schema=, or registry="),
        (lambda: formats.JsonSchema("{"), ValueError, "invalid JSON Schema"),
        (lambda: formats.JsonSchema({"type": "nothing"}), ValueError, 'invalid JSON Schema: "nothing"'),
        (lambda: formats.JsonSchema(int), TypeError, "model must be a dataclass"),
        (
            lambda: formats.JsonSchema({}, validate=cast(Any, "in")),
            ValueError,
            "validate must be 'both', 'out' or 'none'",
        ),
        (
            lambda: formats.JsonSchema({}, references=[SchemaReference("a", "b", 1)]),
            TypeError,
            "references= are schemas of a registry",
        ),
    ],
)
def test_what_it_cannot_be(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_faults_of_bytes_are_errors_of_the_value(registry: Registry) -> None:
    number = registry.add("orders-value", ORDER, "JSON")
    avro = registry.add("avro", {"type": "record", "name": "R", "fields": []})
    codec = formats.JsonSchema(registry=registry.client()).bind("value")
    frame = b"\0" + number.to_bytes(4, "big")
    for data, text in [
        (b'{"id": 1}', "begins with the byte 123"),
        (frame + b"{", "Expecting property name"),
        (frame + b"\xff", "codec can't decode"),
        (b"\0" + avro.to_bytes(4, "big") + b"{}", "is of the type AVRO, not JSON"),
    ]:
        with pytest.raises(ValueError, match=text):
            codec.decode("orders", (), data)
    with pytest.raises(SchemaRegistryError, match="40401"):
        formats.JsonSchema(registry=registry.client()).load(["others"])


def test_columns_are_of_the_same_object(registry: Registry) -> None:
    import pyarrow as pa

    format = formats.JsonSchema(ORDER, registry=registry.client(), register=True)
    serializer = format.column_serializer("orders", "value")
    data = serializer(pa.RecordBatch.from_pydict({"id": [1]}))
    assert data.to_pylist() == [format.bind("value").encode("orders", (), {"id": 1})]
    assert format.column_deserializer("orders", "value")(data).to_pylist() == [{"id": 1}]


AT_MOST_5 = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 5}}, "required": ["id"]}


def test_rows_of_tables_are_validated(registry: Registry) -> None:
    import pyarrow as pa

    import kbatch

    table = pa.table({"id": [1, None, 7]})
    options: dict[str, Any] = {"registry": registry.client(), "register": True, "subject": "s"}
    with pytest.raises(kbatch.errors.SerializationError, match=r"row 1: id: null is not of type .integer"):
        kbatch.encode_arrow(table, key=None, value=formats.JsonSchema(AT_MOST_5, **options), partitions=1)
    unchecked = formats.JsonSchema[Any](AT_MOST_5, validate="none", **options)
    batches = kbatch.encode_arrow(table, key=None, value=unchecked, partitions=1)
    records = kbatch.decode_arrow(batches["batch"])
    reasons = {1: 'id: null is not of type "integer"', 2: "id: 7 is greater than the maximum of 5"}
    for reader in (
        formats.JsonSchema[Any](AT_MOST_5, registry=registry.client(), on_error="column"),
        formats.JsonSchema[Any](registry=registry.client(), on_error="column"),
    ):
        found = formats.deserialize(records, value=reader)
        assert found["value"].to_pylist() == [{"id": 1}, None, None]
        assert dict(enumerate(found["value_error"].to_pylist())) == {0: None, **reasons}
    loose = formats.JsonSchema[Any](registry=registry.client(), validate="out")
    assert formats.deserialize(records, value=loose)["value"].to_pylist() == table.to_pylist()


def test_schema_of_a_value_that_the_registry_lacks_is_a_fault_of_it(registry: Registry) -> None:
    import pyarrow as pa

    reader = formats.JsonSchema[Any](registry=registry.client(), on_error="column")
    values, reasons = reader.column_deserializer("t", "value")(pa.array([b'\0\0\0\0\x63{"id":1}', b"{}"]))
    assert values.to_pylist() == [None, None]
    assert "does not know its schema 99" in reasons[0].as_py() and "no schema id" in reasons[1].as_py()
