"""Ids of eight bytes in front of values, as Apicurio's older clients write them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kbatch import formats
from kbatch.formats.reading.base import Where
from tests.support.registry import Registry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
PRICED = {**ORDER, "fields": [*ORDER["fields"], {"name": "price", "type": "double", "default": 0.5}]}
JSON = {"type": "object", "properties": {"id": {"type": "integer"}}}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


@pytest.mark.parametrize(
    ("kind", "schema", "data"),
    [(formats.Avro, ORDER, b"\x0e"), (formats.JsonSchema, JSON, b'{"id":7}')],
)
def test_F_REG_13_ids_have_eight_bytes(registry: Registry, kind: Any, schema: Any, data: bytes) -> None:
    number = registry.add("t-value", schema, kind.schema_type)
    format = pickle.loads(pickle.dumps(kind(schema, registry=registry.client(), framing="apicurio")))
    codec, row = format.bind("value"), {"id": 7}
    written = codec.encode("t", (), row)
    assert written == b"\0" + number.to_bytes(8, "big") + data
    table = pa.RecordBatch.from_pylist([row])
    assert format.column_serializer("t", "value")(table).to_pylist() == [written]
    reader = kind(registry=registry.client(), framing="apicurio", on_error="column")
    assert reader.bind("value").decode("t", (), written) == row
    headers = (("__value_schema_id", b"\0" + number.to_bytes(4, "big")),)  # Confluent's, which are told apart
    assert reader.bind("value").decode("t", headers, data) == row
    unknown = b"\0" + b"\xff" * 8 + data
    values, reasons = reader.column_deserializer("t", "value")(
        pa.array([written, unknown, written[:5], None])
    )
    assert values.to_pylist() == [row, None, None, None]
    assert [each is None for each in reasons.to_pylist()] == [True, False, False, True]


def test_F_REG_13_column_is_resolved_by_its_ids(registry: Registry) -> None:
    numbers = [registry.add("t-value", schema) for schema in (ORDER, PRICED)]
    column = pa.array(
        [b"\0" + number.to_bytes(8, "big") + b"\x0e" + bytes(8) * at for at, number in enumerate(numbers)]
    )
    read = formats.Avro[Any](registry=registry.client(), framing="apicurio").column_deserializer("t", "value")
    assert read(column, Where(topic="t")).to_pylist() == [{"id": 7, "price": 0.5}, {"id": 7, "price": 0.0}]


def test_F_REG_13_large_ids_and_what_cannot_be(registry: Registry) -> None:
    large = formats.Avro[Any](ORDER, id=2**40, framing="apicurio")
    written = large.bind("value").encode("t", (), {"id": 7})
    assert written == b"\0" + (2**40).to_bytes(8, "big") + b"\x0e"
    assert large.bind("value").decode("t", (), written) == {"id": 7}
    assert large.column_deserializer("t", "value")(pa.array([written])).to_pylist() == [{"id": 7}]
    with pytest.raises(ValueError, match="schema_id must be 0 to"):
        formats.Avro(ORDER, id=2**40)
    with pytest.raises(ValueError, match="framing must be one of confluent, apicurio"):
        formats.Avro(ORDER, id=1, framing="other")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="leave out one of framing= and id_in="):
        formats.Avro(ORDER, registry=registry.client(), framing="apicurio", id_in="header")
