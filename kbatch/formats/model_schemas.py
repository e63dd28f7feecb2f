"""Avro schemas of a program's classes: dataclasses, NamedTuples, attrs, msgspec, pydantic.

Each rule gives the one type that has all values of the annotation, and what was written is read back as it
was. An annotation without such a type is refused.
"""

from __future__ import annotations

import dataclasses
import re
import types
import uuid
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, NewType, Union, get_args, get_origin, get_type_hints

from kbatch.formats.avro_records import encoder_of
from kbatch.formats.avro_schemas import AvroSchema, name_of
from kbatch.formats.models import field_names

Times = Literal["micros", "millis"]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LISTS = (list, Sequence, MutableSequence)
_MAPS = (dict, Mapping, MutableMapping)
_PLAIN: Mapping[Any, Any] = {
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    date: {"type": "int", "logicalType": "date"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}


class Digits(NamedTuple):
    """The digits of a decimal, for a field's annotation: `Annotated[Decimal, Digits(10, 2)]`.

    Attributes
    ----------
    precision : int
        All digits.
    scale : int
        Those after the point.
    """

    precision: int
    scale: int = 0


class _Field(NamedTuple):
    """A field of a class. `default` is in a list, which is empty if there is none."""

    name: str
    annotation: Any
    default: list[Any]
    digits: Digits | None = None


def is_model(given: object) -> bool:
    """True for a class that has fields."""
    return isinstance(given, type) and (hasattr(given, "model_fields") or field_names(given) is not None)


def avro_schema_of(model: type, *, namespace: str = "", times: Times = "micros") -> Any:
    """Return the Avro schema of a class, in Python's form of its JSON.

    Parameters
    ----------
    model : class
    namespace : str
        Of the record, and of those in it; "" for none.
    times : "micros" or "millis"
        The unit of datetimes and times.

    Raises
    ------
    TypeError
        A field is of a type without an Avro type; the text names it.
    """
    if times not in ("micros", "millis"):
        raise ValueError(f"times must be 'micros' or 'millis', got {times!r}")
    if not is_model(model):
        raise TypeError(
            f"{model!r} is no class with fields: a dataclass, a NamedTuple, or one of attrs, msgspec or "
            "pydantic"
        )
    schemas = _Schemas(times)
    schema = schemas.of(model, model.__name__)
    _set_defaults(schema, schemas.defaults)
    return {**schema, "namespace": namespace} if namespace else schema


class _Default(NamedTuple):
    """The default of a field: where it is, the field's schema, and the value."""

    path: str
    field: dict[str, Any]
    value: Any


class _Schemas:
    """Schemas of types. A class is described where it comes first, and named elsewhere.

    Attributes
    ----------
    defaults : list of _Default
    """

    def __init__(self, times: Times) -> None:
        self._moments: Mapping[Any, Any] = {
            datetime: {"type": "long", "logicalType": f"timestamp-{times}"},
            time: {"type": "long" if times == "micros" else "int", "logicalType": f"time-{times}"},
        }
        self._described: dict[str, type] = {}
        self.defaults: list[_Default] = []

    def of(self, kind: Any, path: str, digits: Digits | None = None) -> Any:
        """Return the schema of an annotation; `path` names it in errors."""
        if get_origin(kind) is Annotated:
            kind, *metadata = get_args(kind)
            return self.of(kind, path, _digits(metadata) or digits)
        if isinstance(kind, NewType):
            return self.of(kind.__supertype__, path, digits)
        for known in (_PLAIN, self._moments):
            if kind in known:
                return known[kind]
        origin = get_origin(kind)
        if origin is Union or origin is types.UnionType:
            return self._union(kind, path, digits)
        if origin in _LISTS:
            (item,) = get_args(kind)
            return {"type": "array", "items": self.of(item, f"{path}[]", digits)}
        if origin in _MAPS:
            key, item = get_args(kind)
            if key is not str:
                raise TypeError(f"{path}: the keys of an Avro map are str, got {_shown(key)}")
            return {"type": "map", "values": self.of(item, f"{path}.value", digits)}
        if kind is Decimal:
            return _decimal(digits, path)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self._once(kind, path) or _enum(kind, path)
        if is_model(kind):
            return self._once(kind, path) or self._record(kind, path)
        raise TypeError(f"{path} is of {_shown(kind)}, which has no Avro type: give a schema instead")

    def _once(self, kind: type, path: str) -> str | None:
        """Return the name of a class that was described before."""
        name = kind.__name__
        known = self._described.get(name)
        self._described[name] = kind
        if known not in (None, kind):
            raise TypeError(f"{path}: two classes have the name {name}; rename one")
        return None if known is None else name

    def _union(self, kind: Any, path: str, digits: Digits | None) -> list[Any]:
        branches = [self.of(each, path, digits) for each in get_args(kind)]
        flat = [one for each in branches for one in (each if isinstance(each, list) else [each])]
        return sorted(flat, key=lambda each: each != "null")

    def _record(self, model: type, path: str) -> dict[str, Any]:
        fields = []
        for field in fields_of(model):
            if not _NAME.fullmatch(field.name):
                raise TypeError(f"{path}.{field.name} is no name of Avro: letters, digits and underscores")
            made = {
                "name": field.name,
                "type": self.of(field.annotation, f"{path}.{field.name}", field.digits),
            }
            self.defaults += [_Default(f"{path}.{field.name}", made, each) for each in field.default]
            fields.append(made)
        return {"type": "record", "name": model.__name__, "fields": fields}


def _set_defaults(schema: Any, defaults: Sequence[_Default]) -> None:
    """Give fields their defaults. The branch of a default is the first of its union, as Avro wants it."""
    parsed = AvroSchema.of(schema)
    data = []
    for path, field, value in defaults:
        try:
            data.append(encoder_of(field["type"], parsed.named, parsed.physical[1])(value))
        except (ValueError, TypeError) as error:
            raise TypeError(f"{path}: its default has no Avro form: {error}") from error
    for (_, field, _), datum in zip(defaults, data, strict=True):
        if isinstance(field["type"], list):
            branch = datum[0] if isinstance(datum, tuple) else "null"
            is_first = [name_of(each, parsed.named) == branch for each in field["type"]]
            field["type"].insert(0, field["type"].pop(is_first.index(True)))
        field["default"] = _json_of(datum)


def _json_of(datum: Any) -> Any:
    """Return the JSON of what fastavro writes."""
    if isinstance(datum, tuple):
        return _json_of(datum[1])
    if isinstance(datum, dict):
        return {name: _json_of(each) for name, each in datum.items()}
    if isinstance(datum, list):
        return list(map(_json_of, datum))
    return datum.decode("latin-1") if isinstance(datum, bytes) else datum


# Fields of classes


def fields_of(model: Any) -> Iterator[_Field]:
    """Yield the fields of a class, under the names that its objects have as dicts."""
    if hasattr(model, "model_fields"):
        yield from _fields_of_pydantic(model)
        return
    hints = get_type_hints(model, include_extras=True)
    for name, default in _defaults_of(model):
        yield _Field(name, hints[name], default)


def _fields_of_pydantic(model: Any) -> Iterator[_Field]:
    for name, info in model.model_fields.items():
        default = partial(info.get_default, call_default_factory=True)
        digits = _digits([*info.metadata, info])
        name = info.serialization_alias or name
        yield _Field(name, info.annotation, [] if info.is_required() else _constant(default), digits)


def _defaults_of(model: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the names of fields, and their defaults in lists."""
    if dataclasses.is_dataclass(model):
        for field in dataclasses.fields(model):
            yield field.name, _default(field.default, field.default_factory, dataclasses.MISSING)
    elif hasattr(model, "__struct_fields__"):
        import msgspec

        for each in msgspec.structs.fields(model):
            yield each.name, _default(each.default, each.default_factory, msgspec.NODEFAULT)
    elif hasattr(model, "__attrs_attrs__"):
        import attrs

        for each in model.__attrs_attrs__:
            if isinstance(each.default, attrs.Factory):  # type: ignore[arg-type]
                yield each.name, [] if each.default.takes_self else _constant(each.default.factory)
            else:
                yield each.name, _default(each.default, attrs.NOTHING, attrs.NOTHING)
    else:
        for name in model._fields:
            yield name, [model._field_defaults[name]] if name in model._field_defaults else []


def _default(value: Any, factory: Any, missing: Any) -> list[Any]:
    if value is not missing:
        return [value]
    return [] if factory is missing else _constant(factory)


def _constant(factory: Any) -> list[Any]:
    """Return what a function makes, if it makes the same again: a schema has no other defaults."""
    value = factory()
    return [value] if factory() == value else []


def _digits(metadata: Sequence[Any]) -> Digits | None:
    """Return the digits that an annotation says: ours, or pydantic's."""
    for each in metadata:
        if isinstance(each, Digits):
            return each
    precision = next(filter(None, (getattr(each, "max_digits", None) for each in metadata)), None)
    scale = next(filter(None, (getattr(each, "decimal_places", None) for each in metadata)), None)
    return None if precision is None else Digits(precision, scale or 0)


def _decimal(digits: Digits | None, path: str) -> Any:
    if digits is None:
        raise TypeError(f"{path} is a Decimal without its digits: Annotated[Decimal, Digits(10, 2)]")
    return {"type": "bytes", "logicalType": "decimal", **digits._asdict()}


def _enum(kind: type[Enum], path: str) -> Any:
    symbols = [each.value for each in kind]
    if not all(isinstance(each, str) and _NAME.fullmatch(each) for each in symbols):
        raise TypeError(
            f"{path}: the values of {kind.__name__} are no names of Avro: text of letters, digits and "
            "underscores"
        )
    return {"type": "enum", "name": kind.__name__, "symbols": symbols}


def _shown(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
