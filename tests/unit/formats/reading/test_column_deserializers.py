"""What all column deserializers do: plain formats, errors, whole tables."""

from __future__ import annotations

import pickle
import uuid
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch.errors import DeserializationError
from kbatch.formats.reading import (
    Boolean,
    Bytes,
    ColumnDeserializer,
    Float32,
    Float64,
    Int16,
    Int32,
    Int64,
    Json,
    Utf8,
    Uuid,
    Where,
    deserialize,
    roles,
)

ID = uuid.UUID("12345678-9abc-def0-1234-56789ABCDEF0")

# A deserializer, the bytes and the value of Kafka's Java serializer, and bytes that it refuses.
PLAIN = [
    (Bytes, b"\xff\0", b"\xff\0", None, None),
    (Utf8, "é\0".encode(), "é\0", b"\xff", "it is not UTF-8: .*0xff in position 0"),
    (Int16, b"\xff\xfe", -2, b"\0", "Int16 has 2 bytes, it has 1"),
    (Int32, b"\x7f\xff\xff\xff", 2**31 - 1, b"", "Int32 has 4 bytes, it has 0"),
    (Int64, b"\x80" + bytes(7), -(2**63), bytes(9), "Int64 has 8 bytes, it has 9"),
    (Float32, b"\x3f\xc0\0\0", 1.5, b"abc", "Float32 has 4 bytes, it has 3"),
    (Float64, b"\xbf\xe0" + bytes(6), -0.5, b"abc", "Float64 has 8 bytes, it has 3"),
    (Boolean, b"\1", True, b"\2", "a Boolean is a byte, 0 or 1"),
    (Uuid, str(ID).encode(), ID, b"x" * 36, "it is not the text of a UUID"),
]
LAYOUTS = [pa.binary(), pa.large_binary(), pa.binary_view()]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case[0].__name__)
def test_plain_values_are_javas(case: Any, layout: pa.DataType) -> None:
    kind, data, value, bad, reason = case
    column = pa.array([b"abc", data, None, data, None], layout)
    for first, last, expected in (
        (1, 5, [value, None, value, None]),
        (1, 2, [value]),
        (2, 3, [None]),
        (0, 0, []),
    ):
        made = kind()(column.slice(first, last - first))
        assert made.type == kind().data_type and made.to_pylist() == expected
        made.validate(full=True)
    if bad is not None:
        with pytest.raises(DeserializationError, match=reason):
            kind()(pa.array([None, data, bad], layout))
        assert kind("null")(pa.array([data, bad, data], layout)).to_pylist() == [value, None, value]


def test_fixed_size_columns_and_chunks_are_read() -> None:
    column = pa.array([b"\0\1", None, b"\0\2"], pa.binary(2))
    assert Int16()(column.slice(1)).to_pylist() == [None, 2]
    assert Int16()(pa.chunked_array([column, column])).to_pylist() == [1, None, 2] * 2
    assert Int16()(pa.chunked_array([], pa.binary())).to_pylist() == []
    with pytest.raises(TypeError, match="needs a column of binary, got int64"):
        Int16()(pa.array([1]))


def test_text_is_not_copied() -> None:
    column = pa.array([b"abc", b"def"])
    made = Utf8()(column)
    assert [made.buffers()[index].address for index in (1, 2)] == [
        column.buffers()[index].address for index in (1, 2)
    ]
    assert Utf8(data_type=pa.string_view())(column).type == pa.string_view()


# 90. Errors

MANY = b"\xff" * 300


WHERE = Where(
    "orders",
    pa.array([3, 3, 3]),
    pa.array([7, 9, 11]),
    None,
    pa.array([b"k", None, b"k" * 200]),
    None,
    "value",
)


def test_error_names_the_record() -> None:
    column = pa.array([b"\0\0\0\1", None, MANY])
    with pytest.raises(DeserializationError) as raised:
        Int32()(column, WHERE)
    error = raised.value
    assert (error.topic, error.partition, error.offset, error.row, error.part) == (
        "orders",
        3,
        11,
        2,
        "value",
    )
    assert (error.key, error.value) == (b"k" * 200, MANY)
    assert str(error) == (
        "the value at topic orders, partition 3, offset 11 cannot be deserialized: Int32 has 4 bytes, it has "
        f"300; key {b'k' * 100!r}... (200 bytes); value {MANY[:100]!r}... (300 bytes)"
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with pytest.raises(
        DeserializationError, match=r"the key at row 1 cannot be .*; key b'x'; value b'v'"
    ) as raised:
        Int32()(pa.array([None, b"x"]), Where(part="key", value=pa.array([b"", b"v"])))
    assert raised.value.key == b"x" and raised.value.offset is None


def test_errors_as_a_column() -> None:
    made = Int32("column")(pa.array([b"\0\0\0\1", None, b"x"]), WHERE)
    assert isinstance(made, tuple)
    assert [each.to_pylist() for each in made] == [
        [1, None, None],
        [None, None, "Int32 has 4 bytes, it has 1"],
    ]
    values, reasons = Int32("column")(pa.array([b"\0\0\0\1"]))
    assert reasons.type == pa.string() and reasons.to_pylist() == [None] and values.to_pylist() == [1]


def test_errors_by_a_function() -> None:
    seen = []

    def repaired(data: bytes, error: DeserializationError) -> int | None:
        seen.append((data, error.offset))
        return len(data) if len(data) < 3 else None

    column = pa.array([b"x", b"\0\0\0\1", b"xyz"])
    assert Int32(repaired)(column, WHERE).to_pylist() == [1, 1, None]
    assert seen == [(b"x", 7), (b"xyz", 11)]
    rows = Json(pa.struct([("a", pa.int64())]), lambda data, error: {"a": -1})(pa.array([b'{"a":1}', b"{"]))
    assert rows.to_pylist() == [{"a": 1}, {"a": -1}]


def test_unsuitable_functions_are_refused() -> None:
    with pytest.raises(TypeError, match="function errors= must return values of int32"):
        Int32(lambda data, error: "text")(pa.array([b"x"]))

    def broken(data: bytes, error: DeserializationError) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        Int32(broken)(pa.array([b"x"]))
    with pytest.raises(
        ValueError, match="errors must be one of raise, null, column, or a function, got 'skip'"
    ):
        Int32("skip")


def test_own_deserializer_needs_decode_only() -> None:
    class Length(ColumnDeserializer):
        def __init__(self) -> None:
            super().__init__("null")
            self.data_type = pa.int64()

        def decode(self, column: pa.Array, where: Where) -> Any:
            return pa.array([None if each is None else len(each) for each in column.to_pylist()]), {}

    assert Length()(pa.array([b"abc", None])).to_pylist() == [3, None]


# Tables


def records(values: list[bytes | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["orders"] * len(values)).dictionary_encode(),
            "partition": pa.array([1] * len(values), pa.int32()),
            "offset": pa.array(range(10, 10 + len(values))),
            "key": pa.array([b"\0\0\0\5"] * len(values)),
            "value": pa.array(values),
        }
    )


@pytest.mark.parametrize("form", [lambda each: each, lambda each: pa.Table.from_batches([each] * 2)])
def test_whole_tables_are_deserialized(form: Any) -> None:
    given = form(records([b"1", None]))
    made = deserialize(given, key=Int32(), value=Json(pa.int64()))
    assert type(made) is type(given) and made.schema.names == given.schema.names
    assert made.column("key").to_pylist() == [5] * len(given) if isinstance(given, pa.Table) else True
    assert made.column("value").to_pylist() == [1, None] * (given.num_rows // 2)


def test_table_with_errors_has_their_column() -> None:
    made = deserialize(records([b"1", b"x"]), value=Json(pa.int64(), errors="column"))
    assert made.schema.names == ["topic", "partition", "offset", "key", "value", "value_error"]
    assert made.column("value_error").null_count == 1
    with pytest.raises(
        DeserializationError, match=r"topic orders, partition 1, offset 11 .* key b'.*05'; value b'x'"
    ):
        deserialize(records([b"1", b"x"]), value=Json(pa.int64()))
    with pytest.raises(KeyError, match="there is no column 'value'; the columns are offset"):
        deserialize(records([b"1"]).select(["offset"]), value=Utf8())


def test_large_tables_are_deserialized_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    given = pa.concat_tables([pa.Table.from_batches([records([b"1", None, b"22"])])] * 20)
    whole = deserialize(given, key=Int32(), value=Json(pa.int64()))
    monkeypatch.setattr(roles, "MAX_PIECE_BYTES", 30)
    assert deserialize(given, key=Int32(), value=Json(pa.int64())).equals(whole)
    assert deserialize(given.slice(0, 0), value=Utf8()).num_rows == 0
    faulty = pa.concat_tables([given, pa.Table.from_batches([records([b"3", b"x"])])])
    with pytest.raises(DeserializationError) as raised:
        deserialize(faulty, value=Json(pa.int64()))
    assert raised.value.row == 61


@pytest.mark.slow
def test_more_than_2_gib_in_small_chunks() -> None:
    """No array of Arrow's string has them."""
    chunk = pa.array([bytes(1 << 20)] * 64)
    column = pa.chunked_array([chunk] * 34)
    made = deserialize(pa.table({"value": column}), value=Bytes()).column("value")
    assert (len(made), made.nbytes > 1 << 31, made.num_chunks > 1) == (64 * 34, True, True)


def test_decoded_batches_are_deserialized() -> None:
    batch = kbatch.encode([kbatch.Record(b"a", b"\0\0\0\1"), kbatch.Record(b"b", None)])
    made = deserialize(kbatch.decode_arrow([batch]), key=Utf8(), value=Int32())
    assert made.column("key").to_pylist() == ["a", "b"] and made.column("value").to_pylist() == [1, None]


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case[0].__name__)
def test_deserializers_go_to_other_processes(case: Any) -> None:
    kind, data, value, *_ = case
    assert pickle.loads(pickle.dumps(kind()))(pa.array([data])).to_pylist() == [value]
