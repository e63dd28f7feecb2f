"""JSON of whole columns, by Arrow's reader.

Theory of operation. Values that are objects are joined by newlines and read in one go. Each must begin with {
and end with }, so that the borders of values are borders of JSON's own: between a } and a { there is neither
comma nor colon. A value of two objects then shows in the number of rows. Arrow does not say which values are
at fault: if it refuses some, the values are read in blocks, and a refused block by Python's reader, one by
one. Maps, whose members Arrow's reader would take for columns, and values other than objects go through
Python's reader too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isinf
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from kbatch.formats.arrow_types import is_list
from kbatch.formats.framing import GUID_BYTES, ID_BYTES
from kbatch.formats.reading.base import (
    ERRORS,
    VALUE_ERRORS,
    ColumnDeserializer,
    Errors,
    Spans,
    Where,
    combined,
    reason_of,
    salvaged,
)
from kbatch.formats.reading.conversions import converted, json_type, types

DEFAULT_SAMPLE = 1000
# The most bytes of one call of Arrow's reader, whose blocks have 32-bit sizes.
MAX_BLOCK_BYTES = 1 << 28
# The levels of objects and arrays of which types are inferred.
MAX_DEPTH = 100
# The values that Python reads if one of them is at fault.
BLOCK_ROWS = 256
BLANKS = b" \t\r\n"
NULL = b"null"
# Doubles have all integers up to it.
EXACT_INTEGERS = 1 << 53


class Json(ColumnDeserializer):
    """JSON values, with or without the header of Confluent's JSON Schema format.

    Objects become structs; members without a field are left out, fields without a member are null. Times,
    dates, durations, binary, UUIDs and decimals are read as `writing.JsonLines` writes them: ISO
    8601, base64, text. The JSON value null is null.

    Parameters
    ----------
    schema : pyarrow.Schema, pyarrow.DataType or None
        The columns of objects, or the type of other values. None infers it from the first values; there
        times are strings, and so are members that are always null, or of types that exclude each other.
    errors : "raise", "null", "column", "fields" or Callable
        See ColumnDeserializer. "fields": as "column", but only members that cannot be read are null.
    infer : int or None
        The number of values that determine the type without a schema, of those that can be read; None means
        1000.
    lenient : bool
        Read also what Spark's from_json does: "NaN" and "Infinity" for floats, numbers in quotes, times
        without a zone as UTC, and digits of times below the type's unit, which are cut.

    Raises
    ------
    TypeError
        The schema has a type without a JSON form.
    """

    modes = (*ERRORS, "fields")

    def __init__(
        self,
        schema: pa.Schema | pa.DataType | None = None,
        errors: Errors = "raise",
        *,
        infer: int | None = None,
        lenient: bool = False,
        id_bytes: int = ID_BYTES,
    ) -> None:
        super().__init__(errors)
        self._id_bytes = id_bytes
        self._lenient = lenient
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
        texts = without_headers(sample, self._id_bytes).drop_null().slice(0, self.sample_rows)
        is_object, _ = _objects(texts)
        objects = texts.filter(pa.array(is_object))
        found: list[pa.DataType] = []
        waiting = [objects] if len(objects) else []
        while waiting:
            piece = waiting.pop()
            try:
                found.append(pa.struct(list(map(_loosened, _read(piece, None).schema))))
            except VALUE_ERRORS:
                middle = len(piece) // 2
                waiting += [piece.slice(middle), piece.slice(0, middle)] if middle else []
        if found:
            kind = _unified(found)
            if _has_double(kind):
                kind = _exact(kind, [json.loads(text) for text in objects.to_pylist()])
            return _without_nulls(kind)
        if not len(texts):
            return None
        return _without_nulls(_loosened(pa.field("", _inferred_by_python(texts))).type)

    def unreadable(self, column: pa.Array, where: Where) -> Mapping[int, str]:
        texts = enumerate(without_headers(column, self._id_bytes).to_pylist())
        reasons = ((row, _unreadable(text)) for row, text in texts if text is not None)
        return {row: reason for row, reason in reasons if reason is not None}

    def decode(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        texts = without_headers(column, self._id_bytes)
        values, faults = self._decoded(texts)
        if faults and (self._lenient or self.errors == "fields"):
            return self._repaired(values, texts, faults)
        return values, faults

    def _repaired(
        self, values: pa.Array, texts: pa.Array, faults: Mapping[int, str]
    ) -> tuple[pa.Array, Mapping[int, str]]:
        """Return the values with what can be read of those at fault, one by one, and the faults that stay."""
        kind: Any = self.data_type
        repair = Repair(is_lenient=self._lenient, keeps_members=self.errors == "fields")
        taken = np.arange(len(values))
        made, left = [values], {}
        for row, fault in faults.items():
            value, reasons = repair.read(texts[row].as_py(), kind, fault)
            if reasons:
                left[row] = "; ".join(reasons)
            if value is not None:
                taken[row] = sum(map(len, made))
                made.append(value)
        return pa.concat_arrays(made).take(pa.array(taken)), left

    def _decoded(self, texts: pa.Array) -> tuple[pa.Array, Mapping[int, str]]:
        kind: Any = self.data_type
        if not types.is_struct(kind) or not kind.num_fields or _has_map(kind):
            return _by_python(texts, kind)
        is_object, others = _objects(texts)
        if not is_object.all():
            texts = pc.if_else(pa.array(is_object), texts, pa.scalar(b"{}", texts.type))
        values, faults = _decoded(texts, kind)
        if not is_object.all():
            is_null = pc.or_(values.is_null(), pa.array(~is_object))
            values = pa.StructArray.from_arrays(values.flatten(), fields=list(kind), mask=is_null)
        return values, faults | {row: reason for row, reason in others.items() if reason is not None}


def without_headers(column: pa.Array, id_bytes: int = ID_BYTES) -> pa.Array:
    """Return the values without Confluent's headers: no JSON value begins with a byte of 0 or 1."""
    if types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    spans = Spans(column)
    first, lengths = spans.first_bytes(), spans.ends - spans.starts
    sizes = np.zeros(len(column), np.int64)
    for magic, size in ((0, id_bytes), (1, GUID_BYTES)):
        sizes[(first == magic) & (lengths >= size)] = size  # shorter ones stay what they are: no JSON
    if not sizes.any():
        return column
    begin, end = int(spans.starts[0]), int(spans.ends[-1])
    is_kept = np.ones(end - begin, bool)
    for size in (id_bytes, GUID_BYTES):
        is_kept[(spans.starts[sizes == size] - begin)[:, None] + np.arange(size)] = False
    offsets = np.concatenate([[0], np.cumsum(lengths - sizes)])
    validity = None
    if column.null_count:
        validity = pa.py_buffer(np.packbits(spans.is_valid, bitorder="little").tobytes())
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(spans.data[begin:end][is_kept])]
    return pa.Array.from_buffers(pa.large_binary(), len(column), buffers)


def _objects(texts: pa.Array) -> tuple[np.ndarray, dict[int, str | None]]:
    """Return which values have the braces of an object, and why others but null have not; None for JSON's
    null.
    """
    spans = Spans(texts)
    is_filled = spans.is_valid & (spans.ends > spans.starts)
    is_object = np.zeros(len(texts), bool)
    begins, ends = spans.starts[is_filled], spans.ends[is_filled] - 1
    is_object[is_filled] = (spans.data[begins] == ord("{")) & (spans.data[ends] == ord("}"))
    others: dict[int, str | None] = {}
    for row in map(int, np.flatnonzero(spans.is_valid & ~is_object)):
        text = texts[row].as_py().strip(BLANKS)
        if text[:1] == b"{" and text[-1:] == b"}":
            is_object[row] = True
        else:
            others[row] = None if text == NULL else "it is not a JSON object" if text else "it is empty"
    return is_object, others


# Arrow's reader


def _decoded(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Return values, and by row why some of them cannot be read."""
    try:
        return _by_arrow(texts, kind), {}
    except VALUE_ERRORS:
        if len(texts) <= BLOCK_ROWS:
            return _by_python(texts, kind)
    arrays, faults = [], dict[int, str]()
    for first in range(0, len(texts), BLOCK_ROWS):
        array, bad = _decoded(texts.slice(first, BLOCK_ROWS), kind)
        arrays.append(array)
        faults.update((first + row, reason) for row, reason in bad.items())
    return pa.concat_arrays(arrays), faults


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
    made = pa.StructArray.from_arrays(arrays, fields=list(kind))
    if "decimal" in str(kind):
        made.validate(full=True)  # Arrow's reader takes more digits than a decimal has
    return made


def _read(texts: pa.Array, schema: pa.Schema | None) -> pa.Table:
    """Return Arrow's table of values that are objects. Raise ValueError if they are not."""
    texts = texts.cast(pa.large_string() if types.is_large_binary(texts.type) else pa.string())  # valid UTF-8
    lists = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    joined = pc.binary_join(lists, pa.scalar("\n", texts.type))[0].as_buffer()
    return pa_json.read_json(
        pa.BufferReader(joined),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=max(joined.size, 1)),
        parse_options=pa_json.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=True,
            unexpected_field_behavior="infer" if schema is None else "ignore",
        ),
    )


def _unreadable(text: bytes) -> str | None:
    """Return why it is no JSON value, or why its type is too deep for Arrow, which recurses without a limit;
    None if neither is so.
    """
    if not text:
        return "it is empty"
    try:
        level = [json.loads(text)]
    except (ValueError, RecursionError) as error:
        return reason_of(error)
    for _ in range(MAX_DEPTH + 1):  # the last level is that of scalars
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
    return f"it has more than {MAX_DEPTH} levels" if level else None


# What says that a field has the values of several types as text: strings as they are, others as JSON.
_MIXED = {b"kbatch": b"strings as they are, others as JSON"}


def _mixed(field: pa.Field) -> pa.Field:
    return field.with_type(pa.string()).with_metadata(_MIXED)


def _is_mixed(field: pa.Field) -> bool:
    return bool(field.metadata == _MIXED)


def _unified(kinds: list[pa.DataType]) -> pa.DataType:
    """Return the struct with all fields of several. Where types exclude each other, it has text: a type is
    never that of the first value only.
    """
    made = kinds[0]
    for kind in kinds[1:]:
        made = _merged(pa.field("", made), pa.field("", kind)).type
    return made


def _merged(first: pa.Field, second: pa.Field) -> pa.Field:
    if _is_mixed(first) or _is_mixed(second):
        return _mixed(first)
    if types.is_struct(first.type) and types.is_struct(second.type):
        others = {field.name: field for field in second.type}
        fields = [
            _merged(field, others.pop(field.name)) if field.name in others else field for field in first.type
        ]
        return first.with_type(pa.struct([*fields, *others.values()]))
    if types.is_list(first.type) and types.is_list(second.type):
        return first.with_type(pa.list_(_merged(first.type.value_field, second.type.value_field)))
    try:
        return pa.unify_schemas(
            [pa.schema([first]), pa.schema([second])], promote_options="permissive"
        ).field(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return _mixed(first)


def _loosened(field: pa.Field) -> pa.Field:
    """Return an inferred field: what looks like a time is text."""
    kind = field.type
    if types.is_temporal(kind):
        return field.with_type(pa.string())
    if types.is_struct(kind):
        return field.with_type(pa.struct(list(map(_loosened, kind))))
    if types.is_list(kind):
        return field.with_type(pa.list_(_loosened(kind.value_field)))
    return field


def _without_nulls(kind: pa.DataType) -> pa.DataType:
    """Return an inferred type: what is always null may become text."""
    if types.is_null(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_nulls(field.type)) for field in kind])
    return (
        pa.list_(kind.value_field.with_type(_without_nulls(kind.value_type))) if types.is_list(kind) else kind
    )


def _has_double(kind: pa.DataType) -> bool:
    return types.is_float64(kind) or any(_has_double(kind.field(i).type) for i in range(kind.num_fields))


def _exact(kind: pa.DataType, values: list[Any]) -> pa.DataType:
    """Return an inferred type with exact ones for integers that Arrow has taken for doubles: it has no others
    above 64 bits.
    """
    if types.is_float64(kind):
        return _type_of_integers(values) or kind
    if types.is_struct(kind):
        objects = [each for each in values if isinstance(each, dict)]
        return pa.struct([_exact_field(field, [each.get(field.name) for each in objects]) for field in kind])
    if types.is_list(kind):
        items = [item for each in values if isinstance(each, list) for item in each]
        return pa.list_(_exact_field(kind.value_field, items))
    return kind


def _exact_field(field: pa.Field, values: list[Any]) -> pa.Field:
    kind = _exact(field.type, values)
    is_cut = types.is_float64(kind) and any(
        isinstance(each, int) and abs(each) > EXACT_INTEGERS for each in values
    )
    return _mixed(field) if is_cut else field.with_type(kind)


def _type_of_integers(values: list[Any]) -> pa.DataType | None:
    """Return the narrowest type that has all integers; None if there are none, or other numbers."""
    numbers = [each for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
    if not numbers or any(isinstance(each, float) for each in numbers):
        return None
    lowest, highest = min(numbers), max(numbers)
    for kind, first, last in _INTEGERS:
        if first <= lowest and highest <= last:
            return kind
    return None


_INTEGERS = (
    (pa.int64(), -(2**63), 2**63 - 1),
    (pa.uint64(), 0, 2**64 - 1),
    (pa.decimal128(38, 0), -(10**38) + 1, 10**38 - 1),
    (pa.decimal256(76, 0), -(10**76) + 1, 10**76 - 1),
)


# Python's reader


class _Doubled(dict[str, Any]):
    """An object with a member twice, which Arrow's reader refuses if the member has a field."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.doubled = {name for name in names if names.count(name) > 1}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    return made if len(made) == len(pairs) else _Doubled(pairs)


_READER = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_object)


def _by_python(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    shape = _shape(kind)
    values: list[Any] = []
    faults: dict[int, str] = {}
    for row, text in enumerate(texts.to_pylist()):
        value = None
        if text is not None:
            try:
                value = shape(_READER.decode(text.decode().strip()))
            except (*VALUE_ERRORS, RecursionError) as error:
                faults[row] = reason_of(error) if text else "it is empty"
        values.append(value)
    made, more = salvaged(lambda first, last: _array(values[first:last], kind), len(values), kind)
    for row in more:
        more[row] = _member_at_fault(values[row], kind) or more[row]
    return made, faults | more


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    return converted(pa.array(values, json_type(kind)), kind)


def _member_at_fault(value: Any, kind: pa.DataType) -> str | None:
    """Return which member of an object is at fault, and why; None if it is no object."""
    if not types.is_struct(kind) or not isinstance(value, dict):
        return None
    for field in kind:
        member = value.get(field.name)
        try:
            _array([member], field.type)
        except VALUE_ERRORS as error:
            return f"member {field.name!r}: {_member_at_fault(member, field.type) or reason_of(error)}"
    return None


def _inferred_by_python(texts: pa.Array) -> pa.DataType:
    try:
        return pa.infer_type([json.loads(text) for text in texts.to_pylist()])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"the values have no common type: {error}; give a schema") from error


def _has_map(kind: pa.DataType) -> bool:
    if types.is_map(kind):
        return True
    if types.is_struct(kind):
        return any(_has_map(field.type) for field in kind)
    return is_list(kind) and _has_map(kind.value_type)


def _shape(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return what makes of Python's JSON values those that pyarrow takes for `json_type(kind)`. It raises
    ValueError for values of another type.
    """
    if types.is_integer(kind):
        return _of(int, _whole(kind))
    if types.is_floating(kind):
        return _of((int, float, Decimal), _float)
    if types.is_decimal(kind):
        return _of((int, str, Decimal), _decimal)
    if types.is_boolean(kind):
        return _of(bool, _same)
    if types.is_null(kind):
        return _of(NoneType, _same)
    if types.is_dictionary(kind):
        return _shape(kind.value_type)
    if types.is_map(kind):
        item = _shape(kind.item_type)
        return _of(dict, lambda value: [(name, item(each)) for name, each in value.items()])
    if is_list(kind):
        member = _shape_of(kind.value_field)
        return _of(list, lambda value: list(map(member, value)))
    if types.is_struct(kind):
        shapes = {field.name: _shape_of(field) for field in kind}
        return _of(dict, lambda value: _members(value, shapes))
    return _of(str, _same)


def _shape_of(field: pa.Field) -> Callable[[Any], Any]:
    return _as_text if _is_mixed(field) else _shape(field.type)


def _as_text(value: Any) -> Any:
    """Return a string or None as it is, and anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)


def _of(kinds: type | tuple[type, ...], shape: Callable[[Any], Any]) -> Callable[[Any], Any]:
    is_for_bool = kinds is bool

    def shaped(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, kinds) or (isinstance(value, bool) and not is_for_bool):
            raise ValueError(f"the JSON type of {str(value)[:50]!r} is another one")
        return shape(value)

    return shaped


def _members(value: dict[str, Any], shapes: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    if isinstance(value, _Doubled) and (doubled := value.doubled & shapes.keys()):
        raise ValueError(f"member {min(doubled)!r} occurs twice")
    made = {}
    for name, shape in shapes.items():
        try:
            made[name] = shape(value.get(name))
        except VALUE_ERRORS as error:
            raise ValueError(f"member {name!r}: {reason_of(error)}") from error
    return made


def _whole(kind: pa.DataType) -> Callable[[Any], Any]:
    unsigned = types.is_unsigned_integer(kind)
    lowest = 0 if unsigned else -(2 ** (kind.bit_width - 1))
    highest = 2 ** (kind.bit_width - (not unsigned)) - 1

    def checked(value: int) -> int:
        if not lowest <= value <= highest:
            raise ValueError(f"{value} is beyond {kind}")
        return value

    return checked


def _float(value: Any) -> float:
    number = float(value)
    if isinf(number) and not isinstance(value, float):
        raise ValueError(f"{value} is too large for a float")
    return number


def _decimal(value: Any) -> Decimal:
    try:
        return Decimal(value)
    except ArithmeticError as error:
        raise ValueError(f"{value!r} is not a decimal") from error


def _same(value: Any) -> Any:
    return value


# Values at fault


class Repair:
    """Reads what can be read of values that are at fault.

    Parameters
    ----------
    is_lenient : bool
        See Json.
    keeps_members : bool
        True if a member that cannot be read is null, and not its whole object.
    """

    def __init__(self, *, is_lenient: bool, keeps_members: bool) -> None:
        self._is_lenient = is_lenient
        self._keeps_members = keeps_members

    def read(self, text: bytes, kind: pa.DataType, fault: str) -> tuple[pa.Array | None, list[str]]:
        """Return an array of the value, or None, and what is still wrong with it."""
        try:
            value = _READER.decode(text.decode().strip())
            made, reasons = self._value(value, kind)
            if reasons and not (self._keeps_members and types.is_struct(kind) and isinstance(value, dict)):
                return None, [fault]
            return _array([made], kind), reasons
        except (*VALUE_ERRORS, RecursionError):
            return None, [fault]

    def _value(self, value: Any, kind: pa.DataType) -> tuple[Any, list[str]]:
        """Return a value as pyarrow takes it, and what is wrong with it, for which it is None."""
        if types.is_struct(kind) and isinstance(value, dict):
            return self._object(value, kind)
        if self._is_lenient:
            value = _loosely(value, kind)
        try:
            shaped = _shape(kind)(value)
            _array([shaped], kind)
        except VALUE_ERRORS as error:
            return None, [reason_of(error)]
        return shaped, []

    def _object(self, value: dict[str, Any], kind: pa.DataType) -> tuple[Any, list[str]]:
        made, reasons = dict[str, Any](), list[str]()
        doubled = value.doubled if isinstance(value, _Doubled) else set()
        for field in kind:
            name = field.name
            if name in doubled:
                made[name], faults = None, ["it occurs twice"]
            else:
                made[name], faults = self._value(value.get(name), field.type)
            reasons += [f"member {name!r}: {fault}" for fault in faults]
        return made, reasons


_NUMBER = re.compile(r"[+-]?\d+")
_FLOATS: Mapping[str, float] = {
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), math.inf),
    **dict.fromkeys(("-Infinity", "-INF"), -math.inf),
    "NaN": math.nan,
}
_MOMENT = re.compile(r"(?P<time>\d{4,}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?:\.(?P<digits>\d+))?(?P<zone>.*)")
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def _loosely(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON in the form that a type needs, if it has one that is usual."""
    if is_list(kind) and isinstance(value, list):
        return [_loosely(each, kind.value_type) for each in value]
    if types.is_map(kind) and isinstance(value, dict):
        return {name: _loosely(each, kind.item_type) for name, each in value.items()}
    if types.is_struct(kind) and isinstance(value, dict):
        known = {field.name: field.type for field in kind}
        return {name: _loosely(each, known[name]) if name in known else each for name, each in value.items()}
    if not isinstance(value, str):
        return value
    if types.is_integer(kind):
        return int(value) if _NUMBER.fullmatch(value) else value
    if types.is_floating(kind):
        return _FLOATS[value] if value in _FLOATS else _number(value)
    return _moment(value, kind) if types.is_timestamp(kind) else value


def _number(text: str) -> Any:
    try:
        return Decimal(text)
    except ArithmeticError:
        return text


def _moment(text: str, kind: pa.DataType) -> str:
    """Return a time with a zone if its type has one, and without digits that the type lacks."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return text
    digits = (found["digits"] or "")[: _DIGITS[kind.unit]]
    zone = found["zone"] or ("" if kind.tz is None else "Z")
    return f"{found['time']}{'.' if digits else ''}{digits}{zone}"
