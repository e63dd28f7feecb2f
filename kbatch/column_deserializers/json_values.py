"""JSON of whole columns, by Arrow's reader.

Theory of operation. Values that are objects are joined by newlines and read in one go. Each must begin with {
and end with }, so that the borders of values are borders of JSON's own: between a } and a { there is neither
comma nor colon. A value of two objects then shows in the number of rows. If a piece cannot be read it is
halved, until the rows at fault stand alone. Maps, whose members Arrow's reader would take for columns, and
values other than objects go through Python's reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kbatch.column_deserializers.base import (
    VALUE_ERRORS,
    ColumnDeserializer,
    Errors,
    Spans,
    Where,
    combined,
    reason_of,
    salvaged,
    scattered,
)
from kbatch.column_deserializers.conversions import converted, is_list, json_type, types
from kbatch.column_deserializers.framing import GUID_BYTES, ID_BYTES

DEFAULT_SAMPLE = 1000
# The most bytes of one call of Arrow's reader, whose blocks have 32-bit sizes.
MAX_BLOCK_BYTES = 1 << 28
BLANKS = b" \t\r\n"
NULL = b"null"


class Json(ColumnDeserializer):
    """JSON values, with or without the header of Confluent's JSON Schema format.

    Objects become structs; members without a field are left out, fields without a member are null. Times,
    dates, durations, binary, UUIDs and decimals are read as `column_serializers.JsonLines` writes them: ISO
    8601, base64, text. The JSON value null is null.

    Parameters
    ----------
    schema : pyarrow.Schema, pyarrow.DataType or None
        The columns of objects, or the type of other values. None infers it from the first values; there
        times are strings, and members that are always null too.
    errors : "raise", "null", "column" or Callable
        See ColumnDeserializer.
    infer : int or None
        The number of values that determine the type without a schema; None means 1000.

    Raises
    ------
    TypeError
        The schema has a type without a JSON form.
    """

    def __init__(
        self,
        schema: pa.Schema | pa.DataType | None = None,
        errors: Errors = "raise",
        *,
        infer: int | None = None,
    ) -> None:
        super().__init__(errors)
        if schema is not None and infer is not None:
            raise ValueError("infer= is for values without a schema; give one of both")
        if infer is not None and infer < 1:
            raise ValueError(f"infer must be at least 1, got {infer}")
        self.sample_rows = infer or DEFAULT_SAMPLE
        if schema is not None:
            kind = pa.struct(list(schema)) if isinstance(schema, pa.Schema) else schema
            if not isinstance(kind, pa.DataType):
                raise TypeError(f"schema must be a pyarrow.Schema or DataType, got {schema!r}")
            json_type(kind)  # TypeError for types without JSON
            self.data_type = kind

    def inferred(self, sample: pa.Array, where: Where) -> pa.DataType | None:
        texts = _without_headers(sample).drop_null().slice(0, self.sample_rows)
        is_object, _ = _objects(texts)
        objects = texts.filter(pa.array(is_object))
        found: list[pa.Schema] = []
        waiting = [objects] if len(objects) else []
        while waiting:
            piece = waiting.pop()
            try:
                found.append(_read(piece, None).schema)
            except VALUE_ERRORS:
                middle = len(piece) // 2
                waiting += [piece.slice(middle), piece.slice(0, middle)] if middle else []
        if found:
            return pa.struct(list(map(_settled, _unified(found))))
        return _settled(pa.field("", _inferred_by_python(texts))).type if len(texts) else None

    def decode(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        kind: Any = self.data_type
        texts = _without_headers(column)
        if not types.is_struct(kind) or not kind.num_fields or _has_map(kind):
            return _by_python(texts, kind)
        rows = np.flatnonzero(Spans(texts).is_valid)
        is_object, others = _objects(texts.drop_null())
        faults = {int(rows[place]): reason for place, reason in others.items() if reason}
        rows = rows[is_object]
        texts = texts if len(rows) == len(texts) else texts.take(pa.array(rows))
        values, bad = salvaged(
            lambda first, last: _by_arrow(texts.slice(first, last - first), kind), len(rows), kind
        )
        faults.update((int(rows[place]), reason) for place, reason in bad.items())
        return scattered(values, rows, len(column)), faults


def _without_headers(column: pa.Array) -> pa.Array:
    """Return the values without Confluent's headers: no JSON value begins with a byte of 0 or 1."""
    first = Spans(column).first_bytes()
    for magic, size in ((0, ID_BYTES), (1, GUID_BYTES)):
        is_framed = first == magic
        if is_framed.any():
            cut = pc.binary_slice(column, size)
            column = cut if is_framed.all() else pc.if_else(pa.array(is_framed), cut, column)
    return column


def _objects(texts: pa.Array) -> tuple[np.ndarray, dict[int, str | None]]:
    """Return which values have the braces of an object, and why the others have not; None for JSON's null."""
    spans = Spans(texts)
    is_filled = spans.ends > spans.starts
    is_object = np.zeros(len(texts), bool)
    begins, ends = spans.starts[is_filled], spans.ends[is_filled] - 1
    is_object[is_filled] = (spans.data[begins] == ord("{")) & (spans.data[ends] == ord("}"))
    others: dict[int, str | None] = {}
    for row in map(int, np.flatnonzero(~is_object)):
        text = texts[row].as_py().strip(BLANKS)
        if text[:1] == b"{" and text[-1:] == b"}":
            is_object[row] = True
        else:
            others[row] = None if text == NULL else "it is not a JSON object" if text else "it is empty"
    return is_object, others


# Arrow's reader


def _by_arrow(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if texts.nbytes > MAX_BLOCK_BYTES and len(texts) > 1:
        middle = len(texts) // 2
        return pa.concat_arrays(
            [_by_arrow(texts.slice(0, middle), kind), _by_arrow(texts.slice(middle), kind)]
        )
    schema = pa.schema(list(json_type(kind)))
    table = _read(texts, schema)
    if table.num_rows != len(texts):
        raise ValueError("it is more than one JSON object")
    columns = table.select(schema.names).columns
    arrays = [converted(combined(each), field.type) for each, field in zip(columns, kind, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _read(texts: pa.Array, schema: pa.Schema | None) -> pa.Table:
    """Return Arrow's table of values that are objects. Raise ValueError if they are not."""
    import pyarrow.json as reader

    texts = texts.cast(pa.large_string() if types.is_large_binary(texts.type) else pa.string())  # valid UTF-8
    lists = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    joined = pc.binary_join(lists, pa.scalar("\n", texts.type))[0].as_buffer()
    return reader.read_json(
        pa.BufferReader(joined),
        read_options=reader.ReadOptions(use_threads=False, block_size=max(joined.size, 1)),
        parse_options=reader.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=True,
            unexpected_field_behavior="infer" if schema is None else "ignore",
        ),
    )


def _unified(schemas: list[pa.Schema]) -> pa.Schema:
    """Return a schema with all fields; of types that exclude each other the first one counts."""
    made = schemas[0]
    for schema in schemas[1:]:
        try:
            made = pa.unify_schemas([made, schema], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            more = [field for field in schema if field.name not in made.names]
            made = pa.schema([*made, *more])
    return made


def _settled(field: pa.Field) -> pa.Field:
    """Return an inferred field: what looks like a time is text, and what is always null may become text."""
    kind = field.type
    if types.is_temporal(kind) or types.is_null(kind):
        return field.with_type(pa.string())
    if types.is_struct(kind):
        return field.with_type(pa.struct(list(map(_settled, kind))))
    if types.is_list(kind):
        return field.with_type(pa.list_(_settled(kind.value_field)))
    return field


# Python's reader


def _by_python(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    shape = _shape(kind) or _same
    values: list[Any] = []
    faults: dict[int, str] = {}
    for row, text in enumerate(texts.to_pylist()):
        value = None
        if text is not None:
            try:
                value = shape(json.loads(text.decode(), parse_float=Decimal))
            except (*VALUE_ERRORS, RecursionError) as error:
                faults[row] = reason_of(error) if text else "it is empty"
        values.append(value)
    parsed = json_type(kind)
    made, more = salvaged(
        lambda first, last: converted(pa.array(values[first:last], parsed), kind), len(values), kind
    )
    return made, faults | more


def _inferred_by_python(texts: pa.Array) -> pa.DataType:
    values = []
    for text in texts.to_pylist():
        try:
            values.append(json.loads(text))
        except (ValueError, RecursionError):
            continue
    try:
        return pa.infer_type(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"the values have no common type: {error}; give a schema") from error


def _has_map(kind: pa.DataType) -> bool:
    if types.is_map(kind):
        return True
    if types.is_struct(kind):
        return any(_has_map(field.type) for field in kind)
    return is_list(kind) and _has_map(kind.value_type)


def _shape(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what makes of Python's JSON values those that pyarrow takes for `json_type(kind)`; None if they
    are the same.
    """
    if types.is_integer(kind):
        return _whole
    if types.is_floating(kind):
        return lambda value: float(value) if isinstance(value, Decimal) else value
    if types.is_decimal(kind):
        return lambda value: Decimal(value) if isinstance(value, int | str) else value
    if types.is_dictionary(kind):
        return _shape(kind.value_type)
    if types.is_map(kind):
        item = _shape(kind.item_type) or _same
        return _of(dict, lambda value: [(name, item(each)) for name, each in value.items()])
    if is_list(kind):
        member = _shape(kind.value_type) or _same
        return _of(list, lambda value: list(map(member, value)))
    if types.is_struct(kind):
        shapes = {field.name: _shape(field.type) or _same for field in kind}
        return _of(dict, lambda value: {name: shape(value.get(name)) for name, shape in shapes.items()})
    return None


def _whole(value: Any) -> Any:
    """Return an integer; pyarrow would cut a fraction off, and take true for 1."""
    if isinstance(value, bool | Decimal):
        raise ValueError(f"{value} is no integer")
    return value


def _of(kind: type, shape: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def shaped(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, kind):
            raise ValueError(f"it has {type(value).__name__} for {kind.__name__}")
        return shape(value)

    return shaped


def _same(value: Any) -> Any:
    return value
