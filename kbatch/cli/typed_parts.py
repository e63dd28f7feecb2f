"""Keys and values of `kbatch produce` in a format with a schema or of numbers.

What a file has as JSON or text becomes a value of the format's type, as `kbatch consume` writes it: times are
ISO 8601, decimals and UUIDs text, and so are bytes, unless they are {"base64": ...}. The columns of Parquet
have types already.
"""

from __future__ import annotations

import json
import re
import uuid
from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kbatch.formats.arrow_types import is_bytes, is_list, is_uuid
from kbatch.formats.writing import ColumnSerializer, RowError
from kbatch.typed import Part

if TYPE_CHECKING:
    from kbatch.formats import Format

types = pa.types
Convert = Callable[[Any], Any]
_BOOLS = {"true": True, "false": False}
_DURATION = re.compile(r"(-?\d+(?:\.\d{1,6})?)s")


class TypedPart:
    """Makes the keys or the values of records.

    Parameters
    ----------
    part : "key" or "value"
    format : Format
        Its columns are those of `of_columns`.
    topic : str

    Raises
    ------
    SchemaRegistryError
        The registry does not have the schema, refuses, or cannot be reached.
    ValueError
        The schema cannot be used.
    """

    def __init__(self, part: Part, format: Format[Any], topic: str) -> None:
        format.load([topic], part)
        self._encode = format.bind(part).encode
        self._serializer: Callable[[], ColumnSerializer] = lambda: format.column_serializer(topic, part)
        self._topic = topic
        self._part = part
        reader = format.column_deserializer(topic, part)
        reader.ask(topic)
        self._type = reader.data_type
        self._of_json = _same if self._type is None else _of_json(self._type)
        self._of_text = _same if self._type is None else _of_text(self._type)

    @property
    def has_fields(self) -> bool:
        """True if a value is made of several columns."""
        return self._type is not None and bool(types.is_struct(self._type))

    def of_json(self, lines: pa.Array) -> pa.Array:
        """Return the bytes of values that are JSON. Raise RowError for the first that the format refuses."""
        return self._encoded(lines.to_pylist(), lambda line: self._of_json(_loads(line)))

    def of_texts(self, column: pa.Array) -> pa.Array:
        """Return the bytes of values that are text: numbers, times, or JSON for types of several values."""
        return self._encoded(column.cast(pa.large_string()).to_pylist(), self._of_text)

    def of_cells(self, cells: pa.RecordBatch) -> pa.Array:
        """Return the bytes of rows whose fields are text."""
        kind = self._type
        converts = {
            name: _of_text(kind.field(name).type)
            for name in cells.schema.names
            if kind is not None and kind.get_field_index(name) >= 0
        }

        def row_of(row: dict[str, Any]) -> dict[str, Any]:
            return {name: _member(name, converts.get(name, _same), each) for name, each in row.items()}

        return self._encoded(cells.to_pylist(), row_of)

    def of_columns(self, fields: pa.RecordBatch, free: Sequence[str]) -> pa.Array:
        """Return the bytes of rows of typed columns. Raise TypeError for unsuitable ones, RowError for the
        first row that the format refuses.
        """
        serializer = self._serializer()
        try:
            chosen = serializer.choose(fields.schema, free)
        except ValueError as error:  # columns and fields differ
            raise TypeError(str(error)) from error
        return serializer(fields.select(chosen))

    def _encoded(self, values: Sequence[Any], convert: Convert) -> pa.Array:
        made: list[bytes | None] = []
        for row, value in enumerate(values):
            try:
                converted = None if value is None else convert(value)
                made.append(None if converted is None else self._encode(self._topic, (), converted))
            except Exception as error:  # the libraries of formats have no common class
                raise RowError(row, str(error) or type(error).__name__, self._part) from error
        return pa.array(made, pa.large_binary())


def _loads(text: Any) -> Any:
    return json.loads(text, parse_float=Decimal)


def _same(value: Any) -> Any:
    return value


def _member(name: str, convert: Convert, value: Any) -> Any:
    """Return a member of an object, converted. Its errors name it."""
    try:
        return None if value is None else convert(value)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{name}: {error or type(error).__name__}") from error


def _of_json(kind: pa.DataType) -> Convert:
    """Return what makes a value for a type of a value of JSON. What it does not know stays as it is: the
    format decides.
    """
    if types.is_struct(kind):
        converts = {field.name: _of_json(field.type) for field in kind}
        is_union = _is_union(kind)

        def members(value: Any) -> Any:
            if not isinstance(value, dict):  # a union of Avro, whose branch the format chooses
                return _plain(value)
            made = {name: _member(name, converts.get(name, _plain), each) for name, each in value.items()}
            if is_union and made.keys() <= converts.keys():
                found = [each for each in made.values() if each is not None]
                return found[0] if len(found) == 1 else made
            return made

        return members
    if types.is_map(kind):
        item = _of_json(kind.item_type)
        return lambda value: (
            {name: _member(name, item, each) for name, each in value.items()}
            if isinstance(value, dict)
            else _plain(value)
        )
    if is_list(kind):
        member = _of_json(kind.value_type)
        return lambda value: (
            [_member(str(place), member, each) for place, each in enumerate(value)]
            if isinstance(value, list)
            else _plain(value)
        )
    if is_bytes(kind):
        return _bytes
    of_text = _leaf(kind)
    if of_text is not None:
        return lambda value: of_text(value) if isinstance(value, str) else _plain(value)
    if types.is_decimal(kind):
        return lambda value: Decimal(value) if isinstance(value, int | str) else value
    return _plain


def _is_union(kind: pa.DataType) -> bool:
    """True for the struct as which a union of several types is read."""
    names = [kind.field(number).name for number in range(kind.num_fields)]
    return bool(types.is_struct(kind)) and names == [f"member{number}" for number in range(len(names))]


def _nested(of_json: Convert, text: str, *, is_union: bool) -> Any:
    """Return a value of several values of its JSON, or of a union whose text it may be."""
    try:
        value = _loads(text)
    except ValueError:
        if not is_union:
            raise
        value = text
    return of_json(value)


def _plain(value: Any) -> Any:
    """Return a value of JSON with floats, which were read as decimals."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return list(map(_plain, value)) if isinstance(value, list) else value


def _of_text(kind: pa.DataType) -> Convert:
    """Return what makes a value for a type of text."""
    if types.is_nested(kind):
        return partial(_nested, _of_json(kind), is_union=_is_union(kind))
    if types.is_boolean(kind):
        return _bool
    if types.is_integer(kind):
        return int
    if types.is_floating(kind):
        return float
    if types.is_decimal(kind):
        return Decimal
    return _leaf(kind) or _same


def _bool(text: str) -> bool:
    if text not in _BOOLS:
        raise ValueError(f"it must be true or false, got {text!r}")
    return _BOOLS[text]


def _leaf(kind: pa.DataType) -> Callable[[str], Any] | None:
    """Return what makes a value that JSON lacks of its text; None for other types."""
    if types.is_timestamp(kind):
        return _moment if kind.tz is not None else datetime.fromisoformat
    if types.is_date(kind):
        return date.fromisoformat
    if types.is_time(kind):
        return time.fromisoformat
    if types.is_duration(kind):
        return _duration
    if is_uuid(kind):
        return uuid.UUID
    return str.encode if is_bytes(kind) else None


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"the time needs a zone, as in 2026-01-31T12:00:00Z, got {text!r}")
    return moment


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"the duration must be like 1.5s, got {text!r}")
    return timedelta(microseconds=int(Decimal(found[1]).scaleb(6)))


def _bytes(value: Any) -> Any:
    """Return the bytes of a text, or of an object of base64."""
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return b64decode(value["base64"], validate=True)
    return value.encode() if isinstance(value, str) else _plain(value)
