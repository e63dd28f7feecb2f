"""The Confluent wire format, judged by Confluent's own deserializers with a registry that has the schema."""

from __future__ import annotations

import datetime
import json
import struct
import warnings
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from kbatch.column_serializers import _avro as Avro
from kbatch.column_serializers import _protobuf as Protobuf
from kbatch.formats.framing import path_bytes
from kbatch.formats.protobuf_files import path_of
from kbatch.formats.writing import ColumnSerializer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what confluent_kafka imports, about its own future
    from confluent_kafka.schema_registry import (
        RegisteredSchema,
        Schema,
        SchemaRegistryClient,
        topic_subject_name_strategy,
    )
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

SCHEMA_ID = 100_007
CONTEXT = SerializationContext("orders", MessageField.VALUE)
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC)


class Registry(SchemaRegistryClient):
    """A registry with one schema, which is requested by its id."""

    def __init__(self, schema: str, kind: str) -> None:
        super().__init__({"url": "http://localhost:1"})
        self._schema = Schema(schema, kind)

    def get_schema(self, schema_id: int, *arguments: Any, **keywords: Any) -> Schema:
        assert schema_id == SCHEMA_ID
        return self._schema

    def get_schema_by_guid(self, *arguments: Any, **keywords: Any) -> Schema:
        raise AssertionError("the id stands in front of the value")

    def get_latest_version(self, *arguments: Any, **keywords: Any) -> RegisteredSchema:
        raise AssertionError("it was not requested")


def serialized(serializer: ColumnSerializer, table: pa.Table) -> list[bytes | None]:
    chosen = serializer.choose(table.schema, table.schema.names)
    (batch,) = table.select(chosen).combine_chunks().to_batches()
    return list(serializer(batch).to_pylist())


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": ["null", "int"]},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "note", "type": "string", "default": "none"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "double"}},
        {
            "name": "to",
            "type": [
                "null",
                {"type": "record", "name": "To", "fields": [{"name": "zip", "type": "string"}]},
            ],
        },
        {"name": "raw", "type": "bytes"},
    ],
}


def avro_reader(schema: object) -> Any:
    registry = Registry(json.dumps(schema), "AVRO")
    return AvroDeserializer(registry, conf={"subject.name.strategy": topic_subject_name_strategy})


def test_avro_records() -> None:
    rows: list[dict[str, Any]] = [
        {
            "id": 2**40,
            "count": 5,
            "name": "a",
            "price": Decimal("1.10"),
            "at": MOMENT,
            "day": MOMENT.date(),
            "kind": "B",
            "tags": ["x", "y"],
            "sizes": {"s": 1.5},
            "to": {"zip": "00123"},
            "raw": b"\xff",
        },
        {
            "id": -1,
            "count": None,
            "name": None,
            "price": Decimal("-0.01"),
            "at": MOMENT,
            "day": MOMENT.date(),
            "kind": "A",
            "tags": [],
            "sizes": {},
            "to": None,
            "raw": b"",
        },
    ]
    table = pa.Table.from_pylist(
        [{**row, "sizes": list(row["sizes"].items())} for row in rows],
        pa.schema(
            [
                ("raw", pa.binary_view()),
                ("id", pa.int64()),
                ("count", pa.int32()),
                ("name", pa.string_view()),
                ("price", pa.decimal128(9, 2)),
                ("at", pa.timestamp("ns", "UTC")),
                ("day", pa.date32()),
                ("kind", pa.dictionary(pa.int8(), pa.string())),
                ("tags", pa.list_(pa.string())),
                ("sizes", pa.map_(pa.string(), pa.float64())),
                ("to", pa.struct([("zip", pa.string())])),
            ]
        ),
    )
    read = avro_reader(AVRO)
    made = serialized(Avro(AVRO, schema_id=SCHEMA_ID), table)
    assert [read(value, CONTEXT) for value in made] == [{**row, "note": "none"} for row in rows]
    assert all(value is not None and value[:5] == struct.pack(">bI", 0, SCHEMA_ID) for value in made)


@pytest.mark.parametrize(("schema", "contents"), [("string", ["a", "é"]), ("long", [1, -(2**40)])])
def test_avro_keys(schema: str, contents: list[Any]) -> None:
    read = avro_reader(schema)
    made = serialized(Avro(schema, schema_id=SCHEMA_ID), pa.table({"id": contents}))
    assert [read(value, CONTEXT) for value in made] == contents


# Protobuf: three messages in a file, one of them within another


def _field(name: str, number: int, kind: str, type_name: str = "", repeated: bool = False) -> Any:
    field = descriptor_pb2.FieldDescriptorProto
    return field(
        name=name,
        number=number,
        type=getattr(field, f"TYPE_{kind}"),
        type_name=type_name or None,
        label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
    )


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
        enum_type=[
            descriptor_pb2.EnumDescriptorProto(
                name="Kind",
                value=[
                    descriptor_pb2.EnumValueDescriptorProto(name=name, number=number)
                    for number, name in enumerate(("NONE", "BIG"))
                ],
            )
        ],
    )
    order = file.message_type.add(name="Order")
    order.field.extend(
        [
            _field("id", 1, "INT64"),
            _field("name", 2, "STRING"),
            _field("at", 3, "MESSAGE", ".google.protobuf.Timestamp"),
            _field("lines", 4, "MESSAGE", ".shop.Line", repeated=True),
            _field("kind", 5, "ENUM", ".shop.Kind"),
            _field("raw", 6, "BYTES"),
            _field("scores", 7, "DOUBLE", repeated=True),
        ]
    )
    line = file.message_type.add(name="Line")
    line.field.extend([_field("sku", 1, "STRING")])
    inner = line.nested_type.add(name="First"), line.nested_type.add(name="Inner")
    inner[1].field.extend([_field("sku", 1, "STRING")])
    for number in range(70):
        file.message_type.add(name=f"More{number}").field.extend([_field("sku", 1, "STRING")])
    pool.AddSerializedFile(file.SerializeToString())
    names = ("Order", "Line", "Line.Inner", "More0", "More69")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in names
    }


CLASSES = _classes()


def _reader(message: Any) -> Any:
    return ProtobufDeserializer(message, {"use.deprecated.format": False})


def test_protobuf_messages() -> None:
    table = pa.table(
        {
            "id": [2**40, 1],
            "name": ["é", None],
            "at": pa.array([MOMENT, None], pa.timestamp("ns", "UTC")),
            "lines": [[{"sku": "a"}, {"sku": None}], None],
            "kind": ["BIG", "NONE"],
            "raw": [b"\xff", None],
            "scores": [[0.5, 2.0], []],
        }
    )
    first, second = serialized(Protobuf(CLASSES["Order"], schema_id=SCHEMA_ID), table)
    read = _reader(CLASSES["Order"])
    order = read(first, CONTEXT)
    assert (order.id, order.name, order.kind, order.raw, order.scores) == (2**40, "é", 1, b"\xff", [0.5, 2.0])
    assert order.at.ToDatetime(datetime.UTC) == MOMENT
    assert [line.sku for line in order.lines] == ["a", ""]
    assert read(second, CONTEXT) == CLASSES["Order"](id=1) and not read(second, CONTEXT).HasField("at")


@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        ("Order", b"\0"),
        ("Line", b"\2\2"),
        ("Line.Inner", b"\4\2\2"),
        ("More0", b"\2\4"),
        ("More69", b"\2\x8e\1"),
    ],
)
def test_F_PB_02_where_a_message_is_declared(name: str, indexes: bytes) -> None:
    message = CLASSES[name]
    assert path_bytes(path_of(message.DESCRIPTOR)) == indexes
    column = {"id": [7]} if name == "Order" else {"sku": ["x"]}
    (made,) = serialized(Protobuf(message, schema_id=SCHEMA_ID), pa.table(column))
    assert made is not None and made[:5] == struct.pack(">bI", 0, SCHEMA_ID)
    assert made[5 : 5 + len(indexes)] == indexes
    assert _reader(message)(made, CONTEXT) == message(**{name: value for name, (value,) in column.items()})
