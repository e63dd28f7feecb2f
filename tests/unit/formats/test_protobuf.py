"""Protobuf of single records, judged by protobuf and confluent-kafka."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import struct_pb2, timestamp_pb2

from kbatch import formats
from kbatch.errors import SchemaRegistryError
from kbatch.formats.framing import path_bytes
from kbatch.formats.protobuf_files import path_of
from tests.support.registry import Registry
from tests.unit.formats.reading.test_confluent_values import CLASSES, EMPTY, VALUE, order

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what confluent_kafka imports, about its own future
    from confluent_kafka.schema_registry import (
        SchemaRegistryClient,
        dual_schema_id_deserializer,
        header_schema_id_serializer,
    )
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

ORDER, LINE, REFUND, TREE = (CLASSES[name] for name in ("Order", "Line", "Refund", "Tree"))
UTC = datetime.UTC
CONF = {"use.deprecated.format": False, "subject.name.strategy.type": "TOPIC"}
# As `test_confluent_values.VALUE`, with what Python has and columns have not.
AS_DICT = VALUE | {"notes": {"n": {"sku": "x", "count": 0}}, "extra": {"k": [1.0, None]}}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def there_and_back(format: formats.Format[Any], value: Any) -> Any:
    codec = format.bind("value")
    return codec.decode("t", (), codec.encode("t", (), value))


def test_F_PB_03_messages_and_dicts_are_the_same_bytes() -> None:
    codec = formats.Protobuf(ORDER).bind("value")
    data = codec.encode("t", (), order())
    assert ORDER.FromString(data) == order()
    assert ORDER.FromString(codec.encode("t", (), AS_DICT)) == order()
    assert codec.decode("t", (), data) == order()
    as_dict = formats.Protobuf(ORDER, model=dict)
    assert there_and_back(as_dict, order()) == AS_DICT
    empty = EMPTY | {"notes": {}}
    assert there_and_back(as_dict, {}) == there_and_back(as_dict, dict.fromkeys(AS_DICT)) == empty


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 0


class Kind(enum.Enum):
    BIG = "BIG"


@dataclasses.dataclass
class Order:
    id: int
    name: str | None
    lines: list[Line]
    first: Line
    kind: Any = None


def test_F_MOD_01_objects_of_the_programs_classes() -> None:
    value = Order(1, "a", [Line("x", 2), Line("y")], Line("f"), Kind.BIG)
    made = ORDER.FromString(formats.Protobuf(ORDER).bind("value").encode("t", (), value))
    assert made == ORDER(
        id=1, name="a", lines=[LINE(sku="x", count=2), LINE(sku="y")], first=LINE(sku="f"), kind=1
    )
    back = there_and_back(formats.Protobuf(ORDER, model=Order), value)
    assert back == dataclasses.replace(value, kind="BIG")
    ids = formats.Protobuf(REFUND, to_dict=lambda each: {"id": each}, from_dict=lambda each: each["id"])
    assert there_and_back(ids, -3) == -3


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ({"at": datetime.datetime(2026, 1, 1)}, ValueError, "field 'at': a datetime needs a time zone"),
        ({"at": datetime.date(2026, 1, 1)}, TypeError, "field 'at': a datetime is needed, got date"),
        ({"span": 1.5}, TypeError, "field 'span': a timedelta is needed"),
        ({"scores": [True]}, TypeError, "field 'scores': a number is needed, got bool"),
        ({"scores": [2**53 + 1]}, ValueError, "field 'scores': no double is 9007199254740993"),
        ({"count": 2**31}, ValueError, "field 'count': Value out of range"),
        ({"first": {"x": 1}}, ValueError, "field 'first': .* no \"x\" field"),
        ({"lines": [5]}, TypeError, "field 'lines': int has no fields"),
        ({"kind": "HUGE"}, ValueError, "HUGE"),
        ({"id": 1.5}, TypeError, "float"),
        ({"other": 1}, ValueError, 'no "other" field'),
        (REFUND(id=1), TypeError, "it is a message shop.Refund, not shop.Order"),
        (5, TypeError, "int has no fields"),
    ],
)
def test_nothing_is_changed_silently(value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        formats.Protobuf(ORDER).bind("value").encode("t", (), value)


@pytest.mark.parametrize("year", [1, 1677, 2262, 9999])
def test_F_PB_01_far_times_are_read_and_written(year: int) -> None:
    moment = datetime.datetime(year, 12, 31, 23, 59, 59, 999_999, UTC)
    format = formats.Protobuf(ORDER, model=dict)
    assert there_and_back(format, {"at": moment})["at"] == moment
    judge = timestamp_pb2.Timestamp()
    judge.FromDatetime(moment)
    assert (
        there_and_back(formats.Protobuf(ORDER), {"at": moment}).at.SerializeToString()
        == judge.SerializeToString()
    )


def test_a_time_that_python_lacks_is_a_fault() -> None:
    message = ORDER()
    message.at.seconds = 2**40
    codec = formats.Protobuf(ORDER, model=dict).bind("value")
    with pytest.raises((ValueError, OverflowError)):
        codec.decode("t", (), message.SerializeToString())


@pytest.mark.parametrize("seconds", [-1.5, -1e-06, 0.0, 1.25, 1e9])
def test_spans_are_exact(seconds: float) -> None:
    span = datetime.timedelta(seconds=seconds)
    assert there_and_back(formats.Protobuf(ORDER, model=dict), {"span": span})["span"] == span


def test_F_PB_05_number_of_an_unknown_enum_is_its_text() -> None:
    assert there_and_back(formats.Protobuf(ORDER, model=dict), {"kind": 5})["kind"] == "5"


def test_F_PB_06_messages_within_themselves() -> None:
    tree = {"children": [{"children": []}, {"children": [{"children": []}]}]}
    assert there_and_back(formats.Protobuf(TREE, model=dict), tree) == tree


def test_messages_of_google_are_taken_as_they_are() -> None:
    extra = struct_pb2.Struct()
    extra.update({"a": 1})
    made = there_and_back(formats.Protobuf(ORDER), {"extra": extra, "at": timestamp_pb2.Timestamp(seconds=1)})
    assert (made.extra.SerializeToString(), made.at.seconds) == (extra.SerializeToString(), 1)


# With a registry


def context(headers: Any = None) -> SerializationContext:
    return SerializationContext("orders", MessageField.VALUE, [] if headers is None else headers)


@pytest.mark.parametrize("name", ["Order", "Refund", "Line"])
@pytest.mark.parametrize("id_in", ["prefix", "header"])
def test_F_REG_14_confluents_protobuf_both_ways(registry: Registry, name: str, id_in: Any) -> None:
    """shop.Refund and shop.Order are the first and the second of their file, which imports another."""
    message = CLASSES[name]
    value = order() if name == "Order" else message()
    client = SchemaRegistryClient({"url": registry.url})
    in_header = id_in == "header"
    conf = CONF | ({"schema.id.serializer": header_schema_id_serializer} if in_header else {})
    theirs = ProtobufSerializer(message, client, conf)
    read = ProtobufDeserializer(
        message, CONF | {"schema.id.deserializer": dual_schema_id_deserializer}, client
    )
    ours_in: list[Any] = []
    theirs_in: list[Any] = []
    ours = formats.Protobuf(message, registry=registry.client(), register=True, id_in=id_in)
    data = ours.bind("value").encode("orders", ours_in, value)
    assert data == theirs(value, context(theirs_in)) and ours_in == theirs_in
    assert read(data, context(ours_in)) == value
    for format in (
        ours,
        pickle.loads(pickle.dumps(ours)),
        formats.Protobuf(registry=registry.client()),
    ):
        found = format.bind("value").decode("orders", theirs_in, data)
        assert (type(found).DESCRIPTOR.full_name, found.SerializeToString()) == (
            message.DESCRIPTOR.full_name,
            value.SerializeToString(),
        )


def test_messages_are_read_by_the_class_without_a_registry(registry: Registry) -> None:
    """As confluent's deserializer does; a frame is skipped if there is one."""
    theirs = ProtobufSerializer(ORDER, SchemaRegistryClient({"url": registry.url}), CONF)
    codec = formats.Protobuf(ORDER).bind("value")
    assert codec.decode("orders", (), theirs(order(), context())) == order()
    assert codec.decode("orders", (), order().SerializeToString()) == order()
    assert codec.decode("orders", (), b"") == ORDER()
    with_id = formats.Protobuf(ORDER, id=7).bind("value")
    assert with_id.encode("orders", (), {})[:7] == b"\0\0\0\0\7\2\2"
    assert with_id.decode("orders", (), with_id.encode("orders", (), order())) == order()


def test_another_message_is_a_fault(registry: Registry) -> None:
    options: Any = {"registry": registry.client(), "register": True, "subject": "record"}
    refund = formats.Protobuf(REFUND, **options).bind("value").encode("orders", (), {"id": 1})
    codec = formats.Protobuf(ORDER, registry=registry.client()).bind("value")
    with pytest.raises(ValueError, match=r"it is a message shop\.Refund, not shop\.Order"):
        codec.decode("orders", (), refund)
    anything = formats.Protobuf(registry=registry.client()).bind("value")
    assert anything.decode("orders", (), refund).id == 1
    for wrong, text in (
        (refund[:5] + b"\2\x0e" + refund[6:], r"no message at the position \[7\]"),
        (refund[:5] + b"\3", "is no list of varints"),
        (refund[:4] + b"\x63" + refund[5:], "the registry does not know its schema 99"),
        (refund + b"\xff", r"it is no message shop\.Refund"),
    ):
        with pytest.raises(ValueError, match=text):
            anything.decode("orders", (), wrong)


def test_the_latest_schemas_first_message_is_written(registry: Registry) -> None:
    formats.Protobuf(ORDER, registry=registry.client(), register=True).load(["orders"])
    latest = formats.Protobuf(registry=registry.client(), model=dict)
    assert there_and_back_of(latest, "orders", {"id": 5}) == {"id": 5}  # shop.Refund
    with pytest.raises(SchemaRegistryError, match="40401"):
        latest.load(["others"])


def there_and_back_of(format: formats.Format[Any], topic: str, value: Any) -> Any:
    codec = format.bind("value")
    return codec.decode(topic, (), codec.encode(topic, (), value))


def test_evolution_keeps_what_both_have(registry: Registry) -> None:
    """A field that the reader lacks stays in its message; one that the writer lacks has its default."""
    wide = formats.Protobuf(ORDER).bind("value").encode("t", (), {"id": 3, "name": "a"})
    assert formats.Protobuf(REFUND).bind("value").decode("t", (), wide).id == 3
    narrow = formats.Protobuf(REFUND).bind("value").encode("t", (), {"id": 3})
    found = formats.Protobuf(ORDER, model=dict).bind("value").decode("t", (), narrow)
    assert (found["id"], found["name"], found["lines"]) == (3, None, [])


def test_what_protobuf_cannot_be() -> None:
    with pytest.raises(TypeError, match="message must be a class made by protoc, or its descriptor, got 5"):
        formats.Protobuf(5)
    with pytest.raises(TypeError, match="needs the messages' class, or registry="):
        formats.Protobuf()
    with pytest.raises(TypeError, match="model must be a dataclass"):
        formats.Protobuf(ORDER, model=int)
    with pytest.raises(ValueError, match="id_in must be 'prefix' or 'header', got 'front'"):
        formats.Protobuf(ORDER, id_in="front")  # type: ignore[arg-type]


def test_columns_are_of_the_same_object(registry: Registry) -> None:
    import pyarrow as pa

    format = formats.Protobuf(ORDER, registry=registry.client(), register=True)
    serializer = format.column_serializer("orders", "value")
    table = pa.table({"id": [1], "count": pa.array([7], pa.int32()), "extra": [{"a": 1.0}]})
    chosen = serializer.choose(table.schema, table.schema.names)
    (batch,) = table.select(chosen).to_batches()
    (data,) = serializer(batch).to_pylist()
    expected = {"id": 1, "count": 7, "extra": {"a": 1.0}}
    assert data == format.bind("value").encode("orders", (), expected)
    assert format.column_deserializer("orders", "value")(pa.array([data])).to_pylist()[0]["count"] == 7


def test_F_REG_05_registry_that_does_not_offer_serialized(registry: Registry) -> None:
    """Apicurio answers 500; the class is then known by its position only."""
    import pyarrow as pa

    format = formats.Protobuf(ORDER, registry=registry.client(), register=True)
    data = format.bind("value").encode("orders", (), ORDER(id=3))
    registry.formats = False
    for mine in (formats.Protobuf(ORDER, registry=registry.client(retries=1)), format):
        assert mine.bind("value").decode("orders", (), data).id == 3
        assert mine.column_deserializer("orders", "value")(pa.array([data])).to_pylist()[0]["id"] == 3
    own = list(path_of(ORDER.DESCRIPTOR))
    with pytest.raises(ValueError, match=rf"the message at the position \[9\], not at \[{own[0]}\]"):
        format.bind("value").decode("orders", (), data[:5] + path_bytes([9]))
    other = formats.Protobuf[Any](registry=registry.client(retries=1))
    requests = len(registry.requests)
    for _ in range(2):
        with pytest.raises(ValueError, match="does not offer schemas in the format serialized; give"):
            other.bind("value").decode("orders", (), data)
    assert len(registry.requests) - requests == 3  # two attempts, and one without the format
    registry.faults.extend([(500, b"{}")] * 4)
    with pytest.raises(SchemaRegistryError, match="500") as caught:
        formats.Protobuf[Any](registry=registry.client(retries=1)).bind("value").decode("orders", (), data)
    assert caught.value.retriable
