"""Avro and Protobuf of columns, with a registry and without; what Confluent's clients write."""

from __future__ import annotations

import datetime
import json
import pickle
import struct
import uuid
import warnings
from collections.abc import Iterator
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import kbatch
from kbatch import column_serializers
from kbatch.column_deserializers import _avro as Avro
from kbatch.column_deserializers import _of_descriptor_set
from kbatch.column_deserializers import _protobuf as Protobuf
from kbatch.errors import DeserializationError, SchemaRegistryError
from kbatch.formats import writing
from kbatch.formats.reading import Where, base, deserialize
from tests.support.registry import Registry
from tests.support.shop import ORDER, SHOP

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what confluent_kafka imports, about its own future
    from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

UTC = datetime.UTC
# It imports a file that is not there.
NEEDY = descriptor_pb2.FileDescriptorProto(name="needy.proto", dependency=["other.proto"])


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def framed(number: int, schema: Any, value: Any) -> bytes:
    return struct.pack(">bI", 0, number) + plain(schema, value)


def plain(schema: Any, value: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def record(*fields: Any, name: str = "Order") -> dict[str, Any]:
    listed = [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields]
    return {"type": "record", "name": name, "fields": listed}


FIRST = record(("id", "int"), ("name", "string"))
SECOND = record(("id", "long"), ("name", ["null", "string"]), ("price", "double", 0.5))
THIRD = record(("price", "double"), ("id", "int"), ("more", {"type": "array", "items": "long"}, []))


# 92. Ids


@pytest.mark.parametrize("piece", [7, base.PIECE_ROWS])
def test_R92_schemas_of_one_column_are_resolved_in_order(
    registry: Registry, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "PIECE_ROWS", piece)
    numbers = [registry.add("orders-value", schema) for schema in (FIRST, SECOND)]
    rows: list[bytes | None] = []
    expected: list[Any] = []
    for number in range(300):
        if number % 7 == 0:
            rows.append(None)
            expected.append(None)
        elif number % 3:
            rows.append(framed(numbers[0], FIRST, {"id": number, "name": str(number)}))
            expected.append({"id": number, "name": str(number), "price": 0.5})
        else:
            rows.append(framed(numbers[1], SECOND, {"id": -number, "name": None, "price": 1.0}))
            expected.append({"id": -number, "name": None, "price": 1.0})
    made = Avro(registry=registry.client())(pa.array(rows))
    assert made.to_pylist() == expected
    assert made.type == pa.struct([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
    assert sorted(registry.requests) == [f"GET /schemas/ids/{number}" for number in numbers]


def test_reader_schema_is_the_given_one_or_that_of_a_subject(registry: Registry) -> None:
    number = registry.add("orders-value", FIRST)
    registry.add("orders-value", SECOND)
    column = pa.array([framed(number, FIRST, {"id": 1, "name": "a"})])
    client = registry.client()
    given = Avro(SECOND, registry=client)
    named = Avro(registry=client, subject="orders-value")
    assert given.data_type == named.data_type and given.data_type is not None
    for deserializer in (given, named, pickle.loads(pickle.dumps(named))):
        assert deserializer(column).to_pylist() == [{"id": 1, "name": "a", "price": 0.5}]
    old = Avro(registry=client, subject="orders-value", version=1)
    assert old(column).to_pylist() == [{"id": 1, "name": "a"}]
    with pytest.raises(SchemaRegistryError, match="40401 Subject 'other' not found"):
        Avro(registry=client, subject="other")


def test_schemas_that_do_not_fit_are_errors_of_their_values(registry: Registry) -> None:
    first, third = registry.add("a", FIRST), registry.add("a", THIRD)
    other = registry.add("a", "message X {}", "PROTOBUF")
    broken = registry.add("a", {"type": "record"})
    column = pa.array(
        [
            framed(first, FIRST, {"id": 1, "name": "a"}),
            framed(third, THIRD, {"id": 1, "price": 1.0, "more": [1]}),
            struct.pack(">bI", 0, other),
            struct.pack(">bI", 0, broken),
            struct.pack(">bI", 0, 99) + b"\2",
            struct.pack(">bI", 0, first) + b"\2",
            framed(first, FIRST, {"id": 1, "name": "a"}) + b"more",
            b"\0\0\0",
            b"",
            b"\5abcdef",
        ]
    )
    values, reasons = Avro(FIRST, "column", registry=registry.client())(column)
    assert values.to_pylist() == [{"id": 1, "name": "a"}] + [None] * 9
    texts = [
        "it is no value of its Avro schema: SchemaResolutionError: No default value for field ",
        f"its schema {other} cannot be used: its schema is of the type PROTOBUF, not AVRO",
        "invalid Avro schema",
        "the registry does not know its schema 99: GET /schemas/ids/99 of the schema registry",
        "it is no value of its Avro schema",
        "4 bytes follow its Avro value",
        "its schema id is cut off: it has 3 bytes",
        "it has no schema id: it is empty",
        "it has no schema id: it begins with the byte 5, instead of 0 or 1",
    ]
    assert reasons[0].as_py() is None
    for reason, text in zip(reasons.to_pylist()[1:], texts, strict=True):
        assert text in reason
    for _ in range(2):
        Avro(FIRST, "null", registry=registry.client())(column)


def test_unreachable_registry_is_no_error_of_a_value(registry: Registry) -> None:
    registry.faults.append((500, b"broken"))
    with pytest.raises(SchemaRegistryError, match="500: broken"):
        Avro(FIRST, "null", registry=registry.client(retries=0))(pa.array([b"\0\0\0\0\1\2"]))


@pytest.mark.parametrize("piece", [2, base.PIECE_ROWS])
def test_R92_ids_in_headers(registry: Registry, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PIECE_ROWS", piece)
    number = registry.add("a", FIRST)
    guid = b"\1" + registry.guid(number).bytes
    value = plain(FIRST, {"id": 1, "name": "a"})
    headers = pa.array(
        [
            [{"key": "other", "value": b"x"}],
            [{"key": "x", "value": None}, {"key": "__value_schema_id", "value": guid}],
            None,
            [],
            [{"key": "__value_schema_id", "value": b"\0" + struct.pack(">I", number)}],
            [{"key": "__key_schema_id", "value": guid}],
            [{"key": "__value_schema_id", "value": b"?"}],
        ],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    framed_value = framed(number, FIRST, {"id": 2, "name": "b"})
    column = pa.array([framed_value, value, framed_value, guid + value, value, framed_value, value])
    batch = pa.RecordBatch.from_pydict({"value": column, "headers": headers})
    for first in range(3):
        made = deserialize(batch.slice(first), value=Avro(registry=registry.client(), errors="column"))
        ids = [each and each["id"] for each in made.column("value").to_pylist()]
        assert ids == [2, 1, 2, 1, 1, 2, None][first:]
        assert "begins with the byte 63" in made.column("value_error")[-1].as_py()
    keys = Where(headers=headers.slice(5, 1), part="key")
    assert Avro(registry=registry.client())(pa.array([value]), keys).to_pylist() == [{"id": 1, "name": "a"}]


def test_values_of_confluents_clients(registry: Registry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext("orders", MessageField.VALUE, [])
    schema = json.dumps(SECOND)
    write = AvroSerializer(client, schema, conf={"subject.name.strategy.type": "TOPIC"})
    rows = [{"id": 1, "name": "a", "price": 1.5}, {"id": 2, "name": None, "price": 0.0}]
    column = pa.array([write(row, context) for row in rows])
    assert Avro(registry=registry.client())(column).to_pylist() == rows
    conf = {"subject.name.strategy.type": "TOPIC", "schema.id.serializer": header_schema_id_serializer}
    client = SchemaRegistryClient({"url": registry.url})
    bare = AvroSerializer(client, schema, conf=conf)(rows[0], context)
    assert isinstance(context.headers, list)
    headers = pa.array([[{"key": name, "value": data} for name, data in context.headers]])
    assert Avro(registry=registry.client())(pa.array([bare]), Where(headers=headers)).to_pylist() == rows[:1]


# Avro


def test_avro_without_a_registry() -> None:
    value = {"id": 1, "name": "a"}
    assert Avro(FIRST)(pa.array([plain(FIRST, value), None])).to_pylist() == [value, None]
    assert Avro(json.dumps(FIRST), has_header=True)(pa.array([framed(7, FIRST, value)])).to_pylist() == [
        value
    ]
    assert Avro("long")(pa.array([plain("long", -5)])).to_pylist() == [-5]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "Avro needs schema=, or registry= that has the schemas"),
        ({"schema": FIRST, "subject": "a"}, "subject= names the reader's schema in a registry"),
    ]
    for arguments, text in wrong:
        with pytest.raises(TypeError, match=text):
            Avro(**arguments)
    recursive = record(("next", ["null", "Order"]))
    with pytest.raises(ValueError, match="the Avro type Order contains itself"):
        Avro(recursive)
    with pytest.raises(ValueError, match="invalid Avro schema"):
        Avro("text")


TYPES: list[tuple[Any, Any, pa.DataType, Any]] = [
    ("null", None, pa.null(), None),
    ("boolean", True, pa.bool_(), True),
    ("float", 1.5, pa.float32(), 1.5),
    ("bytes", b"\xff", pa.binary(), b"\xff"),
    ({"type": "string"}, "é", pa.string(), "é"),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary(2), b"ab"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
    ({"type": "array", "items": ["null", "int"]}, [1, None], pa.list_(pa.int32()), [1, None]),
    ({"type": "map", "values": "long"}, {"a": 1}, pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        Decimal("-1.10"),
        pa.decimal128(9, 2),
        Decimal("-1.10"),
    ),
    (
        {"type": "string", "logicalType": "uuid"},
        uuid.UUID(int=5),
        pa.uuid(),
        uuid.UUID(int=5),
    ),
    (
        {"type": "int", "logicalType": "date"},
        datetime.date(2026, 1, 2),
        pa.date32(),
        datetime.date(2026, 1, 2),
    ),
    (
        {"type": "int", "logicalType": "time-millis"},
        datetime.time(1, 2, 3),
        pa.time32("ms"),
        datetime.time(1, 2, 3),
    ),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        datetime.datetime(2026, 1, 2, tzinfo=UTC),
        pa.timestamp("us", "UTC"),
        datetime.datetime(2026, 1, 2, tzinfo=UTC),
    ),
    (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        datetime.datetime(2026, 1, 2),
        pa.timestamp("ms"),
        datetime.datetime(2026, 1, 2),
    ),
    (["int", "long"], 2**40, pa.int64(), 2**40),
]


@pytest.mark.parametrize("case", TYPES, ids=lambda case: json.dumps(case[0])[:40])
@pytest.mark.parametrize("nest", ["alone", "field", "optional", "items", "values"])
def test_avro_types(case: Any, nest: str) -> None:
    schema, value, kind, expected = case
    if (nest == "optional" and isinstance(schema, list)) or (
        nest in ("optional", "items") and schema == "null"
    ):
        return
    union = ["null", schema]
    schema, value, kind, expected = {
        "alone": (schema, value, kind, expected),
        "field": (record(("f", schema)), {"f": value}, pa.struct([("f", kind)]), {"f": expected}),
        "optional": (union, value, kind, expected),
        "items": ({"type": "array", "items": schema}, [value], pa.list_(kind), [expected]),
        "values": (
            {"type": "map", "values": schema},
            {"k": value},
            pa.map_(pa.string(), kind),
            [("k", expected)],
        ),
    }[nest]
    made = Avro(schema)(pa.array([plain(schema, value), None]))
    assert made.type == kind and made.to_pylist() == [expected, None]
    made.validate(full=True)


@pytest.mark.parametrize(
    "items", ["null", record(name="Nothing"), {"type": "fixed", "name": "F", "size": 0}], ids=str
)
def test_arrays_of_nothing_are_refused(registry: Registry, items: Any) -> None:
    """Ten bytes would be 2^60 items."""
    schema = record(("id", "int"), ("nothing", {"type": "array", "items": items}), name="Order")
    with pytest.raises(ValueError, match="whose items take no bytes"):
        Avro(schema)
    number = registry.add("a", schema)
    value = struct.pack(">bI", 0, number) + b"\2" + b"\xff" * 8 + b"\x10"
    _, reasons = Avro(record(("id", "int")), "column", registry=registry.client())(pa.array([value]))
    assert "whose items take no bytes" in reasons[0].as_py()


def test_times_beyond_python_are_read() -> None:
    schema = {"type": "long", "logicalType": "timestamp-millis"}
    made = Avro(schema)(pa.array([plain("long", 10**15)]))
    assert made.cast(pa.int64()).to_pylist() == [10**15]


def test_times_of_other_units_keep_their_moment(registry: Registry) -> None:
    """An integer read as it stands would be a thousand times off."""
    millis, micros = (
        record(("at", {"type": "long", "logicalType": f"timestamp-{unit}"})) for unit in ("millis", "micros")
    )
    number = registry.add("a", millis)
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    column = pa.array([framed(number, millis, {"at": moment})])
    made = Avro(micros, registry=registry.client())(column)
    assert made.to_pylist() == [{"at": moment}] and made.type.field("at").type == pa.timestamp("us", "UTC")


def test_unions_of_several_types_are_structs() -> None:
    inner = record(("x", "int"), name="Inner")
    union = [
        "null",
        "int",
        "string",
        inner,
        {"type": "map", "values": "int"},
        record(("y", "int"), name="Other"),
    ]
    schema = record(("u", union), ("o", ["null", "Inner"]))
    values = [None, 5, "a", ("Inner", {"x": 1}), {"k": 2}, ("Other", {"y": 3})]
    made = Avro(schema)(pa.array([plain(schema, {"u": each, "o": {"x": 9}}) for each in values]))
    assert [row["o"] for row in made.to_pylist()] == [{"x": 9}] * 6
    members = [row["u"] for row in made.to_pylist()]
    assert members[0] is None
    assert [{name: value for name, value in each.items() if value is not None} for each in members[1:]] == [
        {"member0": 5},
        {"member1": "a"},
        {"member2": {"x": 1}},
        {"member3": [("k", 2)]},
        {"member4": {"y": 3}},
    ]


def test_defaults_of_bytes_are_bytes(registry: Registry) -> None:
    number = registry.add("a", FIRST)
    reader = record(("id", "int"), ("raw", "bytes", "\u00ff\u0000"))
    made = Avro(reader, registry=registry.client())(pa.array([framed(number, FIRST, {"id": 1, "name": "a"})]))
    assert made.to_pylist() == [{"id": 1, "raw": b"\xff\0"}]


def test_F_REG_06_ids_are_those_of_the_subjects_context(registry: Registry) -> None:
    """In contexts, ids count anew: the same id may be another schema."""
    number = registry.add(":.staging:orders-value", FIRST)
    column = pa.array([framed(number, FIRST, {"id": 1, "name": "a"})])
    made = Avro(registry=registry.client(), subject=":.staging:orders-value")(column)
    assert made.to_pylist() == [{"id": 1, "name": "a"}]
    assert f"GET /schemas/ids/{number}?subject=%3A.staging%3Aorders-value" in registry.requests


def test_F_REG_07_deleted_reference_is_a_fault_of_its_values(registry: Registry) -> None:
    gone = [{"name": "shop.Gone", "subject": "gone", "version": 1}]
    broken = registry.add("a", record(("x", "shop.Gone")), references=gone)
    good = registry.add("b", FIRST)
    column = pa.array([struct.pack(">bI", 0, broken) + b"\2", framed(good, FIRST, {"id": 1, "name": "a"})])
    values, reasons = Avro(FIRST, "column", registry=registry.client())(column)
    assert values.to_pylist() == [None, {"id": 1, "name": "a"}]
    assert f"does not have all that its schema {broken} refers to" in reasons[0].as_py()


def test_F_REG_08_absent_schema_type_may_be_null(registry: Registry) -> None:
    registry.faults.append(
        (200, json.dumps({"schema": '"long"', "schemaType": None, "references": None}).encode())
    )
    assert Avro("long", registry=registry.client())(pa.array([b"\0\0\0\0\1\2"])).to_pylist() == [1]


def test_referenced_avro_schemas_are_found(registry: Registry) -> None:
    """Two schemas that refer to a third one: it is defined once."""
    base = {"type": "fixed", "name": "shop.Id", "size": 1}
    registry.add("id", base)
    reference = [{"name": "shop.Id", "subject": "id", "version": 1}]
    left, right = (record(("id", "shop.Id"), name=f"shop.{name}") for name in ("Left", "Right"))
    registry.add("left", left, references=reference)
    registry.add("right", right, references=reference)
    whole = record(("l", "shop.Left"), ("r", "shop.Right"), name="shop.Whole")
    number = registry.add(
        "whole",
        whole,
        references=[
            {"name": "shop.Left", "subject": "left", "version": 1},
            {"name": "shop.Right", "subject": "right", "version": 1},
        ],
    )
    column = pa.array([struct.pack(">bI", 0, number) + b"ab"])
    assert Avro(registry=registry.client())(column).to_pylist() == [{"l": {"id": b"a"}, "r": {"id": b"b"}}]
    serializer = column_serializers._avro(registry=registry.client(), subject="whole")
    table = pa.table({"l": [{"id": b"a"}], "r": [{"id": b"b"}]})
    assert serializer(table.to_batches()[0]).to_pylist() == column.to_pylist()


# Protobuf


def _field(name: str, number: int, kind: str, type_name: str = "", **more: Any) -> Any:
    field = descriptor_pb2.FieldDescriptorProto
    label = field.LABEL_REPEATED if more.pop("repeated", False) else field.LABEL_OPTIONAL
    return field(
        name=name,
        number=number,
        type=getattr(field, f"TYPE_{kind}"),
        type_name=type_name or None,
        label=label,
        **more,
    )


def _file(name: str, *messages: Any, imports: tuple[str, ...] = ()) -> Any:
    return descriptor_pb2.FileDescriptorProto(
        name=name, package="shop", syntax="proto3", dependency=imports, message_type=messages
    )


def _message(name: str, *fields: Any, **more: Any) -> Any:
    return descriptor_pb2.DescriptorProto(name=name, field=fields, **more)


GOOGLE = ("timestamp", "duration", "wrappers", "struct")


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    for name in GOOGLE:
        module = __import__(f"google.protobuf.{name}_pb2", fromlist=["DESCRIPTOR"])
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    line = _message("Line", _field("sku", 1, "STRING"), _field("count", 2, "UINT32"))
    entry = _message(
        "NotesEntry",
        _field("key", 1, "STRING"),
        _field("value", 2, "MESSAGE", ".shop.Line"),
        options=descriptor_pb2.MessageOptions(map_entry=True),
    )
    enum = descriptor_pb2.EnumDescriptorProto(name="Kind")
    for number, name in enumerate(("NONE", "BIG")):
        enum.value.add(name=name, number=number)
    order = _message(
        "Order",
        _field("id", 1, "SINT64"),
        _field("name", 2, "STRING", proto3_optional=True, oneof_index=0),
        _field("at", 3, "MESSAGE", ".google.protobuf.Timestamp"),
        _field("lines", 4, "MESSAGE", ".shop.Line", repeated=True),
        _field("kind", 5, "ENUM", ".shop.Order.Kind"),
        _field("raw", 6, "BYTES"),
        _field("scores", 7, "DOUBLE", repeated=True),
        _field("notes", 8, "MESSAGE", ".shop.Order.NotesEntry", repeated=True),
        _field("span", 9, "MESSAGE", ".google.protobuf.Duration"),
        _field("count", 10, "MESSAGE", ".google.protobuf.Int32Value"),
        _field("extra", 11, "MESSAGE", ".google.protobuf.Struct"),
        _field("first", 12, "MESSAGE", ".shop.Line"),
        nested_type=[entry],
        enum_type=[enum],
        oneof_decl=[descriptor_pb2.OneofDescriptorProto(name="_name")],
    )
    refund = _message("Refund", _field("id", 1, "SINT64"))
    tree = _message("Tree", _field("children", 1, "MESSAGE", ".shop.Tree", repeated=True))
    pool.Add(_file("shop/line.proto", line))
    imports = ("shop/line.proto", *(f"google/protobuf/{name}.proto" for name in GOOGLE))
    pool.Add(_file("shop/order.proto", refund, order, tree, imports=imports))
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
        for name in ("Order", "Line", "Refund", "Tree")
    }


CLASSES = _classes()


def order() -> Any:
    made = CLASSES["Order"](
        id=-5,
        name="é",
        lines=[{"sku": "a", "count": 2}, {}],
        kind=1,
        raw=b"\xff",
        scores=[0.5],
        notes={"n": {"sku": "x"}},
        extra={"k": [1, None]},
    )
    made.at.FromDatetime(datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC))
    made.span.FromTimedelta(datetime.timedelta(seconds=-1.5))
    made.count.value = 7
    made.first.sku = "f"
    return made


VALUE = {
    "id": -5,
    "name": "é",
    "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC),
    "lines": [{"sku": "a", "count": 2}, {"sku": "", "count": 0}],
    "kind": "BIG",
    "raw": b"\xff",
    "scores": [0.5],
    "notes": [("n", {"sku": "x", "count": 0})],
    "span": datetime.timedelta(seconds=-1.5),
    "count": 7,
    "extra": '{"k": [1.0, null]}',
    "first": {"sku": "f", "count": 0},
}
EMPTY = dict.fromkeys(VALUE) | {"id": 0, "lines": [], "kind": "NONE", "raw": b"", "scores": [], "notes": []}


def python(array: pa.Array) -> list[Any]:
    """Return values without nanoseconds, which Python's times lack."""
    fields = [
        field.with_type(
            {pa.timestamp("ns", "UTC"): pa.timestamp("us", "UTC"), pa.duration("ns"): pa.duration("us")}.get(
                field.type, field.type
            )
        )
        for field in array.type
    ]
    return list(array.cast(pa.struct(fields)).to_pylist())


@pytest.mark.parametrize("copied", [False, True])
def test_protobuf_types(copied: bool) -> None:
    deserializer: Any = Protobuf(CLASSES["Order"])
    if copied:
        deserializer = pickle.loads(pickle.dumps(deserializer))
    column = pa.array([order().SerializeToString(), None, b""])
    made = deserializer(column)
    made.validate(full=True)
    assert python(made) == [VALUE, None, EMPTY]
    assert Protobuf(CLASSES["Order"].DESCRIPTOR).data_type == made.type == deserializer.data_type


def test_protobuf_with_and_without_headers() -> None:
    data = order().SerializeToString()
    column = pa.array(
        [b"\0\0\0\0\7\2\2" + data, data, b"\1" + bytes(16) + b"\0" + data, None, b"", b"\0\0\0\0\7\0"]
    )
    made = Protobuf(CLASSES["Order"])(column)
    assert python(made) == [VALUE, VALUE, VALUE, None, EMPTY, EMPTY]
    values, reasons = Protobuf(CLASSES["Order"], "column")(
        pa.array(
            [
                data,
                b"\x0f",
                b"\0\0\0\0\7\xff\xff\xff\xff\xff\xff",
                b"\0\0\0\0\7\1",
                b"\0\0",
                b"\0\0\0\0\7\2\3",
            ]
        )
    )
    assert values.null_count == 5 and reasons[0].as_py() is None
    for reason, text in zip(
        reasons.to_pylist()[1:],
        [
            "it is no message shop.Order",
            "no list of varints",
            "no list of varints",
            "is cut off",
            "no list of varints",
        ],
        strict=True,
    ):
        assert text in reason


def test_unknown_enum_numbers_are_kept() -> None:
    column = pa.array([CLASSES["Order"](kind=5).SerializeToString()])
    assert Protobuf(CLASSES["Order"])(column).field("kind").to_pylist() == ["5"]


def test_timestamps_beyond_nanoseconds_are_errors() -> None:
    late = CLASSES["Order"]()
    late.at.seconds = 253_402_300_799
    column = pa.array([order().SerializeToString(), late.SerializeToString()])
    with pytest.raises(DeserializationError, match="at row 1"):
        Protobuf(CLASSES["Order"])(column)


@pytest.mark.parametrize("name", ["Order", "Refund"])
def test_protobuf_from_a_registry(registry: Registry, name: str) -> None:
    message = CLASSES[name]
    client = registry.client()
    serializer = column_serializers._protobuf(message, registry=client, subject="orders-value")
    table = pa.table({"id": [1, 2]})
    column = serializer(table.to_batches()[0])
    other = column_serializers._protobuf(CLASSES["Line"], registry=client, subject="line")
    lines = other(pa.table({"sku": ["x"]}).to_batches()[0])
    deserializer = Protobuf(registry=registry.client(), errors="column")
    deserializer.infer(column)
    values, reasons = deserializer(
        pa.concat_arrays([column, lines, pa.array([b"\0\0\0\0\x63\0"], pa.large_binary())])
    )
    assert [each and each["id"] for each in values.to_pylist()] == [1, 2, None, None]
    assert reasons[2].as_py() == f"it is a message shop.Line, not shop.{name}"
    assert "the registry does not know its schema 99" in reasons[3].as_py()
    assert deserializer.data_type == Protobuf(message).data_type
    assert pickle.loads(pickle.dumps(deserializer))(column)[0].to_pylist() == values.to_pylist()[:2]


def test_F_PB_04_registered_protobuf_is_read_by_its_class(registry: Registry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    conf = {"use.deprecated.format": False, "subject.name.strategy.type": "TOPIC"}
    write = ProtobufSerializer(CLASSES["Order"], client, conf)
    column = pa.array([write(order(), SerializationContext("orders", MessageField.VALUE))])
    for deserializer in (
        Protobuf(CLASSES["Order"]),
        Protobuf(CLASSES["Order"], registry=registry.client()),
        Protobuf(registry=registry.client()),
    ):
        assert python(deserializer(column)) == [VALUE]


def test_what_protobuf_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"the message shop.Tree contains itself"):
        Protobuf(CLASSES["Tree"])
    with pytest.raises(TypeError, match="message must be a class made by protoc, or its descriptor, got 5"):
        Protobuf(5)
    with pytest.raises(TypeError, match="needs the messages' class, or registry="):
        Protobuf()


# Serializers with a registry


def test_serializers_register_or_look_up(registry: Registry) -> None:
    client = registry.client()
    batch = pa.RecordBatch.from_pydict({"id": [1], "name": ["a"]})
    with pytest.raises(SchemaRegistryError, match="404: 40403 Schema not found"):
        column_serializers._avro(FIRST, registry=client, subject="orders-value", registers=False)
    made = column_serializers._avro(FIRST, registry=client, subject="orders-value")(batch).to_pylist()
    assert made == [framed(1, FIRST, {"id": 1, "name": "a"})]
    for serializer in (
        column_serializers._avro(FIRST, registry=client, subject="orders-value", registers=False),
        column_serializers._avro(registry=client, subject="orders-value"),
        column_serializers._avro(FIRST, schema_id=1),
    ):
        assert serializer(batch).to_pylist() == made
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    for lines in (
        column_serializers._json_lines(registry=client, subject="json", schema=schema),
        column_serializers._json_lines(registry=client, subject="json"),
    ):
        assert lines(batch.select(["id"])).to_pylist() == [b'\0\0\0\0\2{"id":1}']
    assert client.get(2).schema_type == "JSON" and json.loads(client.get(2).text) == schema


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda client: column_serializers._avro(FIRST), "Avro needs schema_id="),
        (lambda client: column_serializers._avro(), "Avro needs a schema, or registry= and subject="),
        (lambda client: column_serializers._avro(FIRST, registry=client), "registry= needs subject="),
        (
            lambda client: column_serializers._avro(FIRST, registry=client, subject="a", schema_id=1),
            "schema_id= and registry= exclude each other",
        ),
        (lambda client: column_serializers._protobuf(CLASSES["Line"]), "Protobuf needs schema_id="),
        (lambda client: column_serializers._json_lines(schema={}), "schema= is for a registry"),
        (lambda client: column_serializers._json_lines(subject="a"), "JsonLines needs schema_id="),
    ],
)
def test_contradictions_of_serializers_are_refused(registry: Registry, make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make(registry.client())


def test_table_there_and_back_through_a_registry(registry: Registry) -> None:
    table = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", None], "price": [0.5, 1.5]})
    value = column_serializers._avro(SECOND, registry=registry.client(), subject="orders-value")
    batches = kbatch.encode_arrow(table, key=writing.Int64("id"), value=value, partitions=1)
    back = deserialize(kbatch.decode_arrow(batches["batch"]), value=Avro(registry=registry.client()))
    assert back.column("value").to_pylist() == table.to_pylist()


def test_descriptor_set_stands_for_the_class() -> None:
    made = _of_descriptor_set(SHOP, "shop.Order")
    assert made.data_type == Protobuf(ORDER).data_type
    column = pa.array([ORDER(id=3, labels={"a": 1}).SerializeToString(), None])
    again = pickle.loads(pickle.dumps(made))
    for each in (made, again):
        assert each(column).to_pylist() == [{"id": 3, "labels": [("a", 1)], "at": None, "took": None}, None]


@pytest.mark.parametrize(
    ("data", "message", "text"),
    [
        (
            SHOP,
            "shop.Parcel",
            r"no message 'shop\.Parcel'; it has google\.protobuf\.Timestamp, .*shop\.Order",
        ),
        (SHOP[:-1], "shop.Order", "not a FileDescriptorSet"),
        (b"", "shop.Order", "is empty"),
        (descriptor_pb2.FileDescriptorSet(file=[NEEDY]).SerializeToString(), "M", "needy.proto is not valid"),
    ],
    ids=["message", "cut", "empty", "import"],
)
def test_wrong_descriptor_set_is_refused(data: bytes, message: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        _of_descriptor_set(data, message)
