"""JsonLines against json.loads: any column values come back."""

from __future__ import annotations

import json
import math
from base64 import b64decode
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kbatch.formats.writing import JsonLines, Utf8

# A type, what is in it, and what becomes of a value of it on the way to JSON and back.
Kind = tuple[pa.DataType, st.SearchStrategy[Any], Any]


def _same(value: Any) -> Any:
    return value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


SCALARS: list[Kind] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1), _same),
    (pa.uint64(), st.integers(0, 2**64 - 1), _same),
    (pa.bool_(), st.booleans(), _same),
    (pa.float64(), st.floats(), _finite),
    (pa.float32(), st.floats(width=32), _finite),
    (pa.string(), st.text(), _same),
    (pa.large_string(), st.text('"\\\x00\x1f\n/é\u2028\U0001f600a', max_size=4), _same),
    (pa.string_view(), st.text(max_size=30), _same),
    (pa.binary(), st.binary(), _same),
    (pa.null(), st.none(), _same),
    (pa.dictionary(pa.int32(), pa.string()), st.text(max_size=2), _same),
    (pa.date32(), st.dates(), lambda value: value.isoformat()),
    (pa.timestamp("us"), st.datetimes(), lambda value: value.isoformat(timespec="microseconds")),
]


def _list_of(kind: Kind) -> Kind:
    item, contents, convert = kind
    return (
        pa.list_(item),
        st.lists(st.none() | contents, max_size=4),
        lambda values: [None if each is None else convert(each) for each in values],
    )


def _struct_of(kinds: list[Kind]) -> Kind:
    names = [f'{number}"é' for number in range(len(kinds))]
    fields = [pa.field(name, item) for name, (item, _, _) in zip(names, kinds, strict=True)]
    contents = {name: st.none() | each for name, (_, each, _) in zip(names, kinds, strict=True)}
    converts = {name: convert for name, (_, _, convert) in zip(names, kinds, strict=True)}
    return (
        pa.struct(fields),
        st.fixed_dictionaries(contents),
        lambda row: {n: None if row[n] is None else converts[n](row[n]) for n in names},
    )


def _map_of(kind: Kind) -> Kind:
    item, contents, convert = kind
    return (
        pa.map_(pa.string(), item),
        st.dictionaries(st.text(max_size=3), st.none() | contents, max_size=3).map(
            lambda each: list(each.items())
        ),
        lambda pairs: {name: None if each is None else convert(each) for name, each in pairs},
    )


# a list of dictionaries, and binary (as base64), are for the examples: pyarrow makes none of the first
NESTABLE = [kind for kind in SCALARS if not pa.types.is_dictionary(kind[0]) and not pa.types.is_null(kind[0])]
kinds = st.recursive(
    st.sampled_from(NESTABLE),
    lambda inner: (
        inner.map(_list_of) | inner.map(_map_of) | st.lists(inner, min_size=1, max_size=3).map(_struct_of)
    ),
    max_leaves=4,
)


def _unpacked(value: Any, kind: pa.DataType) -> Any:
    """Decode Base64 to bytes."""
    if value is None:
        return None
    if pa.types.is_binary(kind):
        return b64decode(value, validate=True)
    if pa.types.is_list(kind):
        return [_unpacked(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return {name: _unpacked(each, kind.item_type) for name, each in value.items()}
    if pa.types.is_struct(kind):
        return {field.name: _unpacked(value[field.name], field.type) for field in kind}
    return value


def _as_float32(value: Any, kind: pa.DataType) -> Any:
    """Return the float32 of a number: its shortest text is another double."""
    if isinstance(value, float | int) and pa.types.is_float32(kind):
        return pa.scalar(float(value), pa.float32()).as_py()  # JSON's 16777218 is an int
    if pa.types.is_list(kind) and value is not None:
        return [_as_float32(each, kind.value_type) for each in value]
    if pa.types.is_map(kind) and value is not None:
        return {name: _as_float32(each, kind.item_type) for name, each in value.items()}
    if pa.types.is_struct(kind) and value is not None:
        return {field.name: _as_float32(value[field.name], field.type) for field in kind}
    return value


@given(data=st.data(), columns=st.lists(kinds | st.sampled_from(SCALARS), min_size=1, max_size=3))
def test_rows_come_back(data: st.DataObject, columns: list[Kind]) -> None:
    rows = data.draw(st.integers(0, 6))
    first = data.draw(st.integers(0, rows))
    given = [
        data.draw(st.lists(st.none() | contents, min_size=rows, max_size=rows)) for _, contents, _ in columns
    ]
    names = [f"column {number}\n" for number in range(len(columns))]
    arrays = [pa.array(each, kind) for each, (kind, _, _) in zip(given, columns, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names).slice(first)
    made = JsonLines()(batch).to_pylist()
    assert len(made) == rows - first
    for row, text in enumerate(made, first):
        assert b"\n" not in text
        read = json.loads(text, parse_constant=lambda name: 1 / 0)
        assert list(read) == names
        for name, each, (kind, _, convert) in zip(names, given, columns, strict=True):
            expected = None if each[row] is None else convert(each[row])
            assert _as_float32(_unpacked(read[name], kind), kind) == expected


@given(st.lists(st.none() | st.text()), st.integers(0, 3))
def test_a_column_by_itself(contents: list[str | None], first: int) -> None:
    batch = pa.RecordBatch.from_pydict({"c": pa.array(contents, pa.string())}).slice(first)
    read = [None if each is None else json.loads(each) for each in JsonLines("c")(batch).to_pylist()]
    assert read == contents[first:]
    plain = [None if each is None else each.decode() for each in Utf8("c")(batch).to_pylist()]
    assert plain == contents[first:]
