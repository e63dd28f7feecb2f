"""Json of columns: what is one value, types, inference."""

from __future__ import annotations

import datetime
import json
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kbatch.errors import DeserializationError
from kbatch.formats.reading import ColumnDeserializer, Json, json_values

ROW = pa.schema([("a", pa.int64()), ("b", pa.string())])


def decoded(values: list[bytes | None], schema: Any = ROW) -> tuple[list[Any], list[str | None]]:
    made = Json(schema, errors="column")(pa.array(values, pa.binary()))
    assert isinstance(made, tuple)
    made[0].validate(full=True)
    return made[0].to_pylist(), made[1].to_pylist()


def test_objects_become_structs() -> None:
    values, reasons = decoded(
        [
            b'{"a":1,"b":"x"}',
            None,
            b'{"b":"y","c":[{"d":null}]}',
            b' {\n"a": 2,\r\n"b": "z"}\n',
            b"null",
            b"{}",
        ]
    )
    assert values == [
        {"a": 1, "b": "x"},
        None,
        {"a": None, "b": "y"},
        {"a": 2, "b": "z"},
        None,
        {"a": None, "b": None},
    ]
    assert reasons == [None] * 6


# Values that would be taken for none, for two, or for a part of a neighbour.
ODD = [
    b"",
    b" ",
    b"{",
    b"}",
    b"{}{}",
    b'{"a":1}\n{"a":2}',
    b'{"a":1},{"a":2}',
    b'{"a":1}x{}',
    b'{"a":{}',
    b'{"b":1}}',
    b'{"b":"x}',
    b'{"b":[{}',
    b"{}]}",
    b"[1]",
    b"5",
    b'"text"',
    b"nul",
    b'{"a":"1"}',
    b'{"a":1.5}',
    b'{"a":9223372036854775808}',
    b'{"b":"\xff"}',
    b'{"b":"\\ud800"}',
    b'{"b":"a\nb"}',
    b'{"a":1,"a":2}',
    b'{"b":5}',
    b"\xef\xbb\xbf{}",
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_values_that_are_not_one_object_are_errors(odd: bytes) -> None:
    good = [b'{"a":%d,"b":"x"}' % number for number in range(40)]
    values, reasons = decoded([*good[:20], odd, *good[20:], odd])
    assert values == [json.loads(each) for each in good[:20]] + [None] + [
        json.loads(each) for each in good[20:]
    ] + [None]
    assert [row for row, reason in enumerate(reasons) if reason] == [20, 41]


def test_neighbours_never_make_a_value_of_each_other() -> None:
    """Each pair would have the right number of objects if it were read as one text."""
    for first, second in [
        (b"{}{}", b""),
        (b'{"a":[', b"]}"),
        (b'{"b":"', b'"}'),
        (b'{"a":1', b"}{}"),
        (b"{}", b"{}{}"),
    ]:
        values, reasons = decoded([first, second])
        assert [bool(reason) for reason in reasons] == [first != b"{}", True]
        assert values == [None if first != b"{}" else {"a": None, "b": None}, None]


def test_deep_values_end_neither_stack_nor_memory() -> None:
    for kind in (ROW, pa.map_(pa.string(), pa.int64())):
        deep = b'{"z":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        values, _ = decoded([deep, b'{"a":1}'], kind)
        assert len(values) == 2 and values[1] is not None


@pytest.mark.parametrize("depth", [99, 101, 1000, 100_000])
@pytest.mark.parametrize("form", ["[%s]", '{"z":%s}'])
def test_types_are_inferred_to_a_depth(depth: int, form: str) -> None:
    begin, _, end = form.partition("%s")
    deep = (begin * depth + "1" + end * depth).encode()
    made = Json(errors="null")(pa.array([b'{"y":%s}' % deep, b'{"a":1}']))
    assert made.type.names == (["y", "a"] if depth < 100 else ["a"])
    assert Json()(pa.array([b"[1]"])).to_pylist() == [[1]]


def test_confluents_header_is_skipped() -> None:
    plain = b'{"a":1,"b":"x"}'
    values, reasons = decoded([b"\0\0\0\0\7" + plain, plain, b"\1" + bytes(16) + plain, b"\0\0", None])
    assert values == [{"a": 1, "b": "x"}] * 3 + [None] * 2 and reasons[3] == "it is not a JSON object"


def test_scalars_lists_and_maps() -> None:
    assert decoded([b"1", b" 2 ", b"null", b"1.5", b"x", b"", b"1,2"], pa.int64())[0] == [1, 2] + [None] * 5
    assert decoded([b"[1,null]", b"[]", b"{}"], pa.list_(pa.int8()))[0] == [[1, None], [], None]
    kind = pa.map_(pa.string(), pa.struct([("x", pa.decimal128(5, 2)), ("y", pa.float64())]))
    assert decoded([b'{"k":{"x":1.10,"y":0.1},"l":null}', b"{}", b"[]"], kind)[0] == [
        [("k", {"x": Decimal("1.10"), "y": 0.1}), ("l", None)],
        [],
        None,
    ]


def test_types_of_members() -> None:
    schema = pa.schema(
        [
            ("at", pa.timestamp("ms", "UTC")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("time", pa.time64("us")),
            ("span", pa.duration("ms")),
            ("raw", pa.binary()),
            ("price", pa.decimal128(9, 2)),
            ("big", pa.uint64()),
            ("tags", pa.large_list(pa.large_string())),
        ]
    )
    text = {
        "at": "2026-01-31T12:00:00.123Z",
        "local": "2026-01-31T12:00:00",
        "day": "2026-01-31",
        "time": "12:00:00.5",
        "span": "PT1H1M1.5S",
        "raw": "/wA=",
        "price": "1.10",
        "big": 2**64 - 1,
        "tags": ["x", None],
    }
    ((row,), (reason,)) = decoded([json.dumps(text).encode()], schema)
    assert reason is None and row == {
        "at": datetime.datetime(2026, 1, 31, 12, 0, 0, 123_000, datetime.UTC),
        "local": datetime.datetime(2026, 1, 31, 12),
        "day": datetime.date(2026, 1, 31),
        "time": datetime.time(12, 0, 0, 500_000),
        "span": datetime.timedelta(hours=1, minutes=1, milliseconds=1500),
        "raw": b"\xff\0",
        "price": Decimal("1.10"),
        "big": 2**64 - 1,
        "tags": ["x", None],
    }
    for name, bad in (
        ("price", 99999999),
        ("at", "yesterday"),
        ("raw", "x"),
        ("span", "P"),
        ("span", "PT0.0001S"),
        ("day", 5),
    ):
        assert decoded([json.dumps(text | {name: bad}).encode()], schema)[0] == [None]


def test_large_columns_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "MAX_BLOCK_BYTES", 64)
    rows = [{"a": number, "b": str(number)} for number in range(50)]
    assert decoded([json.dumps(row).encode() for row in rows])[0] == rows


# Inference


def test_type_is_inferred_from_the_first_values() -> None:
    deserializer = Json(infer=2)
    assert deserializer.data_type is None
    values = [None, b'{"a":1,"at":"2026-01-01"}', b"not json", b'{"b":[{"c":null}]}', b'{"a":2.5,"late":1}']
    made = Json(errors="null", infer=2)(pa.array(values))  # of those that can be read
    assert made.type == pa.struct(
        [("a", pa.int64()), ("at", pa.string()), ("b", pa.list_(pa.struct([("c", pa.string())])))]
    )
    assert made[1].as_py() == {"a": 1, "at": "2026-01-01", "b": None}
    assert made[4].as_py() is None  # 2.5 is no int64
    deserializer.infer(pa.array(values))
    first = deserializer.data_type
    deserializer.infer(pa.array([b'{"z":1}']))
    assert deserializer.data_type == first == made.type


def test_inferred_types_of_a_sample_are_joined() -> None:
    kind = Json()(pa.array([b'{"a":1}', b'{"a":1.5,"b":{"x":1}}', b'{"b":{"y":"z"}}'])).type
    assert kind == pa.struct([("a", pa.float64()), ("b", pa.struct([("x", pa.int64()), ("y", pa.string())]))])
    made = Json(errors="null", infer=1)(pa.array([b'{"a":1}', b'{"a":"x"}']))
    assert made.to_pylist() == [{"a": 1}, None]
    assert Json()(pa.array([b"[1]", b"[2.5]"])).to_pylist() == [[1.0], [2.5]]


def test_without_values_there_is_no_type_yet() -> None:
    deserializer = Json()
    assert deserializer(pa.array([None, None], pa.binary())).type == pa.null()
    assert deserializer.data_type is None
    assert deserializer(pa.array([b'{"a":1}'])).to_pylist() == [{"a": 1}]
    with pytest.raises(DeserializationError):
        Json()(pa.array([b'{"a":1}', b"x"]))
    assert pickle.loads(pickle.dumps(deserializer)).data_type == pa.struct([("a", pa.int64())])


def test_impossible_requests_raise_errors() -> None:
    with pytest.raises(TypeError, match=r"value.u is of dense_union.*no JSON form"):
        Json(pa.schema([("u", pa.dense_union([pa.field("x", pa.int8())]))]))
    with pytest.raises(TypeError, match=r"schema must be a pyarrow.Schema or DataType, got 5"):
        Json(5)
    with pytest.raises(ValueError, match="give one of both"):
        Json(ROW, infer=5)
    with pytest.raises(ValueError, match="infer must be at least 1, got 0"):
        Json(infer=0)


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([2**63 - 1, -(2**63)], pa.int64()),
        ([2**63, 1], pa.uint64()),
        ([2**64 - 1], pa.uint64()),
        ([2**64, -1], pa.decimal128(38, 0)),
        ([2**70, 9007199254740993], pa.decimal128(38, 0)),
        ([10**40], pa.decimal256(76, 0)),
        ([2**63, 0.5], pa.string()),
        ([2**53, 0.5], pa.float64()),
    ],
)
@pytest.mark.parametrize("form", ["{}", "[{}]", '{{"a": {}}}'])
def test_F_JSON_01_large_integers_keep_their_digits(numbers: list[Any], kind: pa.DataType, form: str) -> None:
    """Arrow infers a double for them, and takes digits from all others of the column."""
    column = pa.array(['{"x": ' + form.format(json.dumps(each)) + "}" for each in numbers])
    made = Json()(column)
    texts = [str(row) for row in made.to_pylist()]
    expected = {"{}": kind, "[{}]": pa.list_(kind), '{{"a": {}}}': pa.struct([("a", kind)])}[form]
    assert made.type.field("x").type == expected
    if kind != pa.float64():
        assert all(str(number) in text for number, text in zip(numbers, texts, strict=True))


def test_F_JSON_02_integer_beyond_the_inferred_type_is_a_fault() -> None:
    column = pa.array(['{"x": 1}'] * 3 + ['{"x": 9223372036854775808}'])
    values, reasons = Json(errors="column", infer=3)(column)
    assert values.to_pylist()[3] is None and "9223372036854775808" in reasons[3].as_py()


# Values at fault

NESTED = pa.struct([("x", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
FIELDS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("in", NESTED),
        ("tags", pa.list_(pa.int32())),
    ]
)


def test_F_JSON_06_members_that_fit_stay() -> None:
    texts = [
        b'{"id": 1, "name": "a", "in": {"x": 1.5, "at": "2026-01-01T00:00:00Z"}, "tags": [1]}',
        b'{"id": "x", "name": "b", "in": {"x": 2.5, "at": "soon"}, "tags": [1, "y"]}',
        b'{"id": 3, "name": "c"',
        None,
        b"[1]",
        b'{"id": 4, "id": 5, "name": "d"}',
    ]
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    found, reasons = Json(FIELDS, errors="fields")(pa.array(texts))
    nothing = {"in": {"x": None, "at": None}, "tags": None}
    assert found.to_pylist() == [
        {"id": 1, "name": "a", "in": {"x": 1.5, "at": moment}, "tags": [1]},
        {"id": None, "name": "b", "in": {"x": 2.5, "at": None}, "tags": None},
        None,
        None,
        None,
        {"id": None, "name": "d", **dict.fromkeys(nothing)},
    ]
    assert reasons.to_pylist()[0] is None and reasons.to_pylist()[3] is None
    second, third, fifth, last = (reasons.to_pylist()[row] for row in (1, 2, 4, 5))
    assert [part.split(":")[0] for part in second.split("; ")] == [
        "member 'id'",
        "member 'in'",
        "member 'tags'",
    ]
    assert third and fifth == "it is not a JSON object"
    assert last == "member 'id': it occurs twice"


def test_F_JSON_06_values_that_are_no_objects_have_no_members() -> None:
    found, reasons = Json(pa.int64(), errors="fields")(pa.array([b"1", b'"x"']))
    assert found.to_pylist() == [1, None]
    assert reasons[1].as_py() is not None


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.float64(), b'"NaN"', "nan"),
        (pa.float64(), b'"Infinity"', "inf"),
        (pa.float32(), b'"-Infinity"', "-inf"),
        (pa.float64(), b'"2.5"', "2.5"),
        (pa.int64(), b'"5"', "5"),
        (pa.timestamp("us", "UTC"), b'"2026-01-01T12:00:00"', "2026-01-01 12:00:00+00:00"),
        (
            pa.timestamp("us", "UTC"),
            b'"2026-01-01T12:00:00.123456789Z"',
            "2026-01-01 12:00:00.123456+00:00",
        ),
        (pa.timestamp("us"), b'"2026-01-01T12:00:00.123456789"', "2026-01-01 12:00:00.123456"),
        (pa.timestamp("us", "UTC"), b'"2026-01-01T12:00:00+02:00"', "2026-01-01 10:00:00+00:00"),
    ],
)
def test_F_JSON_07_lenient_forms(kind: pa.DataType, text: bytes, value: str) -> None:
    for schema, given in ((kind, text), (pa.schema([("a", kind)]), b'{"a": ' + text + b"}")):
        column = pa.array([given])
        (found,) = Json(schema, lenient=True)(column).to_pylist()
        assert str(found["a"] if isinstance(found, dict) else found) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int64(), b'"5.5"'),
        (pa.int64(), b"5.5"),
        (pa.float64(), b'"x"'),
        (pa.float64(), b"true"),
        (pa.timestamp("us", "UTC"), b'"2026-01-32T12:00:00"'),
        (pa.bool_(), b'"true"'),
    ],
)
def test_F_JSON_07_others_stay_faults(kind: pa.DataType, text: bytes) -> None:
    with pytest.raises(DeserializationError):
        Json(kind, lenient=True)(pa.array([text]))
    with pytest.raises(ValueError, match="errors must be one of raise, null, column, or a function"):
        ColumnDeserializer("fields")


# Inference: a type is that of all values


def inferred(*texts: bytes) -> list[Any]:
    found, reasons = Json(errors="column")(pa.array(texts))
    assert reasons.null_count == len(texts)
    return list(found.to_pylist())


def test_F_JSON_03_integer_beside_doubles_keeps_its_digits() -> None:
    assert inferred(b'{"a": 1.5}', b'{"a": 2}') == [{"a": 1.5}, {"a": 2.0}]
    assert inferred(b'{"a": 1.5}', b'{"a": 9007199254740993}') == [{"a": "1.5"}, {"a": "9007199254740993"}]
    found = inferred(b'{"a": [1.5, 9007199254740993]}', b'{"a": null}')
    assert found == [{"a": ["1.5", "9007199254740993"]}, {"a": None}]


@pytest.mark.parametrize(
    ("first", "second", "texts"),
    [
        (b"1", b'"x"', ("1", "x")),
        (b'"x"', b"1.10", ("x", "1.10")),
        (b'{"b": 1}', b"[1, 2]", ('{"b":1}', "[1,2]")),
        (b"true", b"1", ("true", "1")),
        (b'{"b": 1}', b'"x"', ('{"b":1}', "x")),
    ],
)
def test_F_JSON_04_what_excludes_each_other_is_text(
    first: bytes, second: bytes, texts: tuple[str, str]
) -> None:
    given = [b'{"a": %s, "n": 1}' % each for each in (first, second, b"null")]
    for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0)):
        found = inferred(*(given[at] for at in order))
        assert [row["a"] for row in found] == [(*texts, None)[at] for at in order]
        assert [row["n"] for row in found] == [1, 1, 1]
    inner = [b'{"o": {"l": [%s]}}' % each for each in (first, second)]
    assert [row["o"]["l"] for row in inferred(*inner)] == [[text] for text in texts]


def test_F_JSON_05_nulls_first_say_no_type() -> None:
    found = inferred(*[b'{"a": null}'] * 999, b'{"a": [1]}')
    assert (found[0], found[-1]) == ({"a": None}, {"a": [1]})
    assert inferred(b'{"a": null}') == [{"a": None}]
