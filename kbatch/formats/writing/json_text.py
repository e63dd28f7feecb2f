"""JSON of whole columns with pyarrow's string kernels, without a Python object per value.

Every function here takes an array and returns a large_string array with the JSON text of each value, null for
null; `or_null` writes the nulls. Python values are made only for strings with characters to escape, for
binary (base64), and for calendar intervals.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kbatch.formats.arrow_types import is_bytes, is_text
from kbatch.formats.writing.base import ColumnSerializer, RowError, find_column

DECIMALS = ("number", "string")
# pyarrow's text for times outside its calendar.
_OUT_OF_RANGE = "<value out of range"


class JsonLines(ColumnSerializer):
    """A JSON object for each row, as UTF-8 without spaces or a line end; this is the fastest serializer of
    rows.

    Every column becomes a member, null ones too. Numbers are numbers; NaN and infinities, which JSON lacks,
    are null. Strings, times and dates are strings: ISO 8601, with as many digits as the unit has, in UTC with
    a Z if there is a time zone, and without either if there is none; durations are "PT1.5S". Binary is
    base64. Structs and maps are objects (a map's keys always become strings), lists are arrays. UUIDs are
    their text, and columns of the type arrow.json are the JSON itself.

    Parameters
    ----------
    columns : str, sequence of str, or None
        See ColumnSerializer. With one name, as a str, each value is that column's own JSON.
    decimals : "number" or "string"
        Decimals as JSON numbers with all their digits (many readers parse these as doubles), or as strings.
    prefix : bytes
        What stands in front of each value.
    check : Callable or None
        Gets the JSON of each value. Its ValueError refuses the row.
    """

    def __init__(
        self,
        columns: str | Iterable[str] | None = None,
        *,
        decimals: str = "number",
        prefix: bytes = b"",
        check: Callable[[bytes], object] | None = None,
    ) -> None:
        super().__init__(columns)
        if decimals not in DECIMALS:
            raise ValueError(f"decimals must be one of {', '.join(DECIMALS)}, got {decimals!r}")
        self._writer = _Writer(quotes_decimals=decimals == "string")
        self._prefix = prefix
        self._check = check

    def choose(self, schema: pa.Schema, free: Sequence[str]) -> list[str]:
        names = super().choose(schema, free)
        for name in names:
            field = find_column(schema, name, "value")
            self._writer.write(pa.nulls(0, field.type), name)  # TypeError for types without JSON
        return names

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        texts = self._column(columns) if self.takes_one else self._rows(columns)
        data = texts.cast(pa.large_binary())
        if self._check is not None:
            _check_rows(data, self._check)
        return _joined(pa.scalar(self._prefix, pa.large_binary()), data) if self._prefix else data

    def _column(self, columns: pa.RecordBatch) -> pa.Array:
        return self._writer.shielded(columns.column(0), columns.schema.names[0])

    def _rows(self, columns: pa.RecordBatch) -> pa.Array:
        members = [
            (name, or_null(self._writer.shielded(column, name)))
            for name, column in zip(columns.schema.names, columns.columns, strict=True)
        ]
        return objects(members, columns.num_rows)


def _check_rows(data: pa.Array, check: Callable[[bytes], object]) -> None:
    for row, text in enumerate(data.to_pylist()):
        if text is not None:
            try:
                check(text)
            except ValueError as error:
                raise RowError(row, str(error)) from None


def texts(array: pa.Array, name: str) -> pa.Array:
    """Return values as text: strings and binary unchanged, others like JSON without quotes."""
    array = _unwrapped(array)
    if is_text(array.type) or is_bytes(array.type):
        return array.cast(pa.large_binary())
    return pc.utf8_trim(_Writer().shielded(array, name), '"').cast(pa.large_binary())


class _Writer:
    """Return JSON of arrays of any type."""

    def __init__(self, quotes_decimals: bool = False) -> None:
        self._quotes_decimals = quotes_decimals

    def shielded(self, array: pa.Array, name: str) -> pa.Array:
        """Call `write`, and raise RowError for the first row that it refuses."""
        try:
            return self.write(array, name)
        except ValueError as error:
            first, last = 0, len(array)  # rows before `first` can be written, a row before `last` cannot
            reason = str(error)
            while last - first > 1:
                middle = (first + last) // 2
                try:
                    self.write(array.slice(first, middle - first), name)
                    first = middle
                except ValueError as narrower:
                    last, reason = middle, str(narrower)
            raise RowError(first, reason, name) from None

    def write(self, array: pa.Array, path: str) -> pa.Array:
        """Raise TypeError for a type without JSON, ValueError for such a value."""
        if getattr(array.type, "extension_name", "") == "arrow.json":
            return _cast(array.storage)
        array = _unwrapped(array)
        kind, types = array.type, pa.types
        for is_kind, form in (
            (is_text, quoted),
            (lambda kind: types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind), _cast),
            (types.is_floating, _finite),
            (types.is_decimal, _quoted_cast if self._quotes_decimals else _cast),
            (types.is_timestamp, _timestamps),
            (lambda kind: types.is_date(kind) or types.is_time(kind), _quoted_cast),
            (types.is_duration, _durations),
            (types.is_interval, _intervals),
            (is_bytes, _base64),
        ):
            if is_kind(kind):
                return form(array)
        if types.is_dictionary(kind):
            return self.write(array.dictionary, path).take(array.indices)
        return self._nested(array, path)

    def _nested(self, array: pa.Array, path: str) -> pa.Array:
        kind, types = array.type, pa.types
        if types.is_struct(kind):
            members = [
                (field.name, or_null(self.write(child, f"{path}.{field.name}")))
                for field, child in zip(kind, array.flatten(), strict=True)
            ]
            return _where_valid(array, objects(members, len(array)))
        if types.is_map(kind):
            pairs = pa.ListArray.from_arrays(*_map_pairs(array))
            keys, items = pairs.flatten().flatten()
            names = _as_names(self.write(keys, f"{path}.key"), keys.type, path)
            entries = _joined(names, ":", or_null(self.write(items, f"{path}.value")))
            return _enclosed("{", array, pairs, entries, "}")
        if hasattr(array, "value_lengths"):  # all kinds of list
            items = or_null(self.write(array.flatten(), f"{path}[]"))
            return _enclosed("[", array, array, items, "]")
        raise TypeError(f"column {path!r} is of {kind}, which has no JSON form; cast it, or omit it")


# Types


def _unwrapped(array: pa.Array) -> pa.Array:
    """Return extension types by their meaning if it is known, else by their storage."""
    if pa.types.is_run_end_encoded(array.type):
        return _unwrapped(pc.run_end_decode(array))
    if not isinstance(array, pa.ExtensionArray):
        return array
    if array.type.extension_name == "arrow.uuid":
        return pa.array([None if each is None else str(each) for each in array.to_pylist()], pa.string())
    if array.type.extension_name == "arrow.bool8":
        return array.storage.cast(pa.bool_())
    return _unwrapped(array.storage)


# Scalars


def _cast(array: pa.Array) -> pa.Array:
    return array.cast(pa.large_string())


def _quoted_cast(array: pa.Array) -> pa.Array:
    text = _cast(array)
    _check_range(text)
    return _joined('"', text, '"')


def _check_range(text: pa.Array) -> None:
    if pc.any(pc.starts_with(text, _OUT_OF_RANGE)).as_py():
        raise ValueError(f"a time or date is {_OUT_OF_RANGE[7:]} of the calendar")


def _finite(array: pa.Array) -> pa.Array:
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    text = _cast(array)
    is_finite = pc.is_finite(array)
    if pc.all(is_finite).as_py() is False:
        return pc.if_else(is_finite, text, pa.scalar(None, text.type))
    return text


def _timestamps(array: pa.Array) -> pa.Array:
    zone = "" if array.type.tz is None else "Z"
    text = _cast(array.cast(pa.timestamp(array.type.unit)))  # in UTC; a zone takes 20 times as long
    _check_range(text)
    return _joined('"', pc.replace_substring(text, " ", "T", max_replacements=1), f'{zone}"')


_UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def _durations(array: pa.Array) -> pa.Array:
    """Return seconds in the format of java.time.Duration."""
    digits = _UNIT_DIGITS[array.type.unit]
    units = array.cast(pa.int64())
    seconds = pa.array(
        [None if each is None else _seconds(each, digits) for each in units.to_pylist()], pa.large_string()
    )
    return _joined('"PT', seconds, 'S"')


def _seconds(units: int, digits: int) -> str:
    whole, rest = divmod(abs(units), 10**digits)
    fraction = f".{rest:0{digits}}".rstrip("0").rstrip(".") if digits else ""
    return f"{'-' if units < 0 else ''}{whole}{fraction}"


def _intervals(array: pa.Array) -> pa.Array:
    texts = [
        None
        if each is None
        else f'"P{each.months}M{each.days}DT{_seconds(each.nanoseconds, _UNIT_DIGITS["ns"])}S"'
        for each in array.to_pylist()
    ]
    return pa.array(texts, pa.large_string())


def _base64(array: pa.Array) -> pa.Array:
    encoded = [None if each is None else b64encode(each) for each in array.to_pylist()]
    return _joined('"', pa.array(encoded, pa.large_binary()).cast(pa.large_string()), '"')


def quoted(array: pa.Array) -> pa.Array:
    """Return strings; those without characters to escape, the usual case, are only quoted."""
    array = _cast(array)
    texts = _joined('"', array, '"')
    if not _needs_escapes(array):
        return texts
    rows = pc.fill_null(pc.match_substring_regex(array, '[\\x00-\\x1f"\\\\]'), False)
    escaped = list(map(encode_basestring, array.filter(rows).to_pylist()))
    return pc.replace_with_mask(texts, rows, pa.array(escaped, pa.large_string()))


def _needs_escapes(array: pa.Array) -> bool:
    """True if an array of large_string has a quote, a backslash or a control character."""
    _, offsets_buffer, data = array.buffers()
    if data is None or not len(array):
        return False
    offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    used: np.ndarray = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return bool(((used < 0x20) | (used == 0x22) | (used == 0x5C)).any())


# Joining


def _joined(*parts: Any) -> pa.Array:
    """Concatenate arrays and constants element by element; null if one is null."""
    kind = next(part.type for part in parts if isinstance(part, pa.Array))
    scalars = [pa.scalar(part, kind) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar("" if kind == pa.large_string() else b"", kind))


def or_null(texts: pa.Array) -> pa.Array:
    return texts.fill_null("null") if texts.null_count else texts


def _where_valid(array: pa.Array, texts: pa.Array) -> pa.Array:
    if not array.null_count:
        return texts
    return pc.if_else(pc.is_valid(array), texts, pa.scalar(None, texts.type))


def objects(members: Sequence[tuple[str, pa.Array]], rows: int) -> pa.Array:
    """Return objects from the names and texts of their members."""
    if not members:
        return pa.array(["{}"] * rows, pa.large_string())
    parts: list[Any] = []
    for number, (name, text) in enumerate(members):
        parts += ["{" if number == 0 else ",", f"{json.dumps(name, ensure_ascii=False)}:", text]
    merged: list[Any] = []
    for part in [*parts, "}"]:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return _joined(*merged)


def _enclosed(opening: str, array: pa.Array, lists: pa.Array, items: pa.Array, closing: str) -> pa.Array:
    """Return the items of each list, joined by commas; `items` has their texts."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(pc.fill_null(pc.list_value_length(lists), 0), out=offsets[1:])
    texts = pa.LargeListArray.from_arrays(pa.array(offsets), items)
    joined = pc.binary_join(texts, pa.scalar(",", pa.large_string()))
    return _where_valid(array, _joined(opening, joined, closing))


def _map_pairs(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return offsets, and keys and items side by side, of a map's entries."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    entries = [array.keys.slice(first, last - first), array.items.slice(first, last - first)]
    pairs = pa.StructArray.from_arrays(entries, ["key", "value"])
    return pa.array(array.offsets.to_numpy() - first), pairs


def _as_names(texts: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    """Return the texts of a map's keys as member names, which are strings."""
    if pa.types.is_nested(kind):
        raise TypeError(f"column {path!r} is a map with keys of {kind}, which cannot name members in JSON")
    is_quoted = len(texts) and texts[0].as_py().startswith('"')
    return texts if is_quoted else _joined('"', texts, '"')
