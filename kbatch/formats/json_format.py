"""JSON of records: read by `parsed_json`; written by Python's json, so that no bytes depend on what else is
installed.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any

from kbatch.formats.base import Codec, Format, FunctionCodec
from kbatch.formats.models import FromDict, ToDict, as_dict, from_dict_of
from kbatch.formats.parsed_json import parser
from kbatch.typed import Part, T

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch.formats.reading.base import ColumnDeserializer, Errors
    from kbatch.formats.writing.base import ColumnSerializer


class Json(Format[T]):
    """JSON, without a schema.

    A record's value may be anything that JSON has, and an object of a dataclass, NamedTuple, attrs, msgspec
    or pydantic class. Times are ISO 8601, bytes base64, decimals and UUIDs text. NaN and infinities, which
    JSON lacks, become null. Read, it is what `json.loads` returns, or a `model`.

    Parameters
    ----------
    model : class or None
        What records are read as: a dataclass, NamedTuple, or class of attrs, msgspec or pydantic.
    type : pyarrow.Schema, pyarrow.DataType or None
        Of columns that are read: the members of objects, or the type of other values. None infers it.
    infer : int or None
        How many values of a column the type is inferred from; None means 1000.
    decimals : "number" or "string"
        Of columns that are sent: decimals as JSON numbers, or as strings.
    lenient : bool
        Of columns that are read: also "NaN" and "Infinity" for floats, numbers in quotes, times without a
        zone as UTC, and digits of times below the type's unit, which are cut, as Spark's from_json does.
    to_dict, from_dict : Callable or None
        Make a dict of a value, and a value of what was read, for other classes.
    columns, on_error : see Format
        "fields" is as "column", but of an object only members that cannot be read are null.

    Raises
    ------
    TypeError
        `model` is no such class.
    """

    def __init__(
        self,
        model: type[T] | None = None,
        *,
        type: pa.Schema | pa.DataType | None = None,
        infer: int | None = None,
        decimals: str = "number",
        lenient: bool = False,
        to_dict: ToDict | None = None,
        from_dict: FromDict | None = None,
        columns: str | Iterable[str] | None = None,
        on_error: Errors = "raise",
    ) -> None:
        super().__init__(columns=columns, on_error=on_error)
        self._type = type
        self._infer = infer
        self._decimals = decimals
        self._lenient = lenient
        self._model: Any = model
        self._to_dict = to_dict
        self._from_dict = from_dict
        if model is not None and from_dict is None:
            from_dict_of(self._model)  # TypeError for other classes

    def bind(self, part: Part) -> Codec[T]:
        encode: Callable[[Any], bytes] = encoded
        if self._to_dict is not None:
            to_dict = self._to_dict

            def encode(value: Any) -> bytes:
                return encoded(to_dict(value))

        return FunctionCodec(encode, self._decoder())

    def _decoder(self) -> Callable[[bytes], Any]:
        if self._from_dict is not None:
            make = self._from_dict
        elif self._model is None:
            return parser()
        elif hasattr(self._model, "model_validate_json"):
            return self._model.model_validate_json  # type: ignore[no-any-return]
        elif hasattr(self._model, "__struct_fields__"):
            import msgspec

            return msgspec.json.Decoder(self._model).decode
        else:
            make = from_dict_of(self._model)
        parse = parser()
        return lambda data: make(parse(data))

    def column_serializer(self, topic: str | None, part: Part) -> ColumnSerializer:
        from kbatch.formats.writing import JsonLines

        return JsonLines(self._columns, decimals=self._decimals)

    def new_column_deserializer(self, topic: str | None, part: Part) -> ColumnDeserializer:
        from kbatch.formats.reading import Json as JsonColumns

        return JsonColumns(self._type, self._on_error, infer=self._infer, lenient=self._lenient)


def encoded_plain(value: Any) -> bytes | None:
    """Return a value of JSON's own types as JSON; None for others."""
    if isinstance(value, tuple):
        return None
    try:
        return _encode_plain(value).encode()
    except (TypeError, ValueError):
        return None


def encoded(value: Any) -> bytes:
    """Return a value as JSON."""
    if isinstance(value, tuple):
        value = _with_objects(value)
    try:
        return _encode(value).encode()
    except ValueError:
        return _encode(_without_nan(value)).encode()


def _other(value: Any) -> Any:
    """Return what JSON has for an object that `json` does not know."""
    for kind, convert in _OTHERS.items():
        if isinstance(value, kind):
            return convert(value)
    return _with_objects(as_dict(value))


def _with_objects(value: Any) -> Any:
    """Return a value with a dict for each NamedTuple, which `json` would take for an array."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        value = as_dict(value)
    if isinstance(value, dict):
        return {name: _with_objects(each) for name, each in value.items()}
    return list(map(_with_objects, value)) if isinstance(value, list | tuple) else value


_OTHERS: dict[type, Callable[[Any], Any]] = {
    datetime.datetime: lambda value: value.isoformat(),
    datetime.date: lambda value: value.isoformat(),
    datetime.time: lambda value: value.isoformat(),
    Decimal: str,
    uuid.UUID: str,
    bytes: lambda value: base64.b64encode(value).decode(),
    Enum: lambda value: value.value,
    set: list,
    frozenset: list,
}
# What json makes for each value anew, which is a third of the time of small ones. A release of Python may
# make it otherwise, or texts of these values that are not those of `json.dumps`.
_MAKE_ENCODER = getattr(json.encoder, "c_make_encoder", None)
_ENCODE_TEXT = getattr(json.encoder, "encode_basestring", None)
_SAMPLES = (
    {"a": [1, -0.5, 1e16, 2**70, None, True, '\x01\x7f\u2028\u00e9"\\/'], "": {}, "b": []},
    "text",
    1.0,
)


def _encoder(make: Any = _MAKE_ENCODER, **options: Any) -> Callable[[Any], str]:
    """Return what makes JSON of values. It ends at one within itself with a RecursionError."""
    encoder = json.JSONEncoder(
        separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False, **options
    )
    if make is None or _ENCODE_TEXT is None:  # as in PyPy
        return encoder.encode
    try:
        pieces = make(None, encoder.default, _ENCODE_TEXT, None, ":", ",", False, False, False)
        is_alike = all("".join(pieces(each, 0)) == encoder.encode(each) for each in _SAMPLES)
    except TypeError:
        return encoder.encode
    return (lambda value: "".join(pieces(value, 0))) if is_alike else encoder.encode


_encode = _encoder(default=_other)
_encode_plain = _encoder()


def _without_nan(value: Any) -> Any:
    """Return a value with None for NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return list(map(_without_nan, value))
    return value if isinstance(value, str | int | None) else _without_nan(_other(value))
