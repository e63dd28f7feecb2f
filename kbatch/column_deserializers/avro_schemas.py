"""Avro schemas as Arrow types, and as what reads values for them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kbatch.column_deserializers.conversions import is_uuid, mapped_type
from kbatch.column_serializers.avro_schemas import as_python

if TYPE_CHECKING:
    from kbatch.schema_registry import Schema, SchemaRegistry

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
# Times are read as Avro's integers, which pyarrow takes as they are: no object a value, and every year.
_TIMES: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{local}timestamp-{name}"): pa.timestamp(unit, zone)
        for local, zone in (("", "UTC"), ("local-", None))
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
TIMES = frozenset(name for _, name in _TIMES)
UUID = frozenset(["uuid"])
_PYTHON: Mapping[str, tuple[type, ...]] = {
    "int": (int, datetime.date, datetime.time),
    "long": (int, datetime.datetime, datetime.time),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes, Decimal),
    "string": (str,),
    "array": (list,),
    "map": (dict,),
    "enum": (str,),
    "fixed": (bytes, Decimal),
}
# Types of which one takes the other's values.
_WIDER = {"int": "long", "float": "double"}
Shape = Callable[[Any], Any]


class AvroSchema:
    """A schema with those that it refers to.

    Parameters
    ----------
    parts : sequence
        The schemas in Python's form of their JSON; each refers to types of earlier ones. The last one is the
        schema itself.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)
        self._parsed: dict[frozenset[str], tuple[Any, dict[str, Any]]] = {}

    @classmethod
    def of(cls, schema: Any) -> AvroSchema:
        """Return a user's schema: JSON, or Python's form of it."""
        return cls([as_python(schema)])

    @classmethod
    def registered(cls, schema: Schema, registry: SchemaRegistry) -> AvroSchema:
        """Return a schema of a registry."""
        if schema.schema_type != "AVRO":
            raise ValueError(f"its schema is of the type {schema.schema_type}, not AVRO")
        return cls([as_python(each.text) for each in registry.with_references(schema)])

    def parsed(self, without: frozenset[str] = frozenset()) -> tuple[Any, dict[str, Any]]:
        """Return fastavro's form, without these logical types, and the types in it by name."""
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType

        if without not in self._parsed:
            named: dict[str, Any] = {}
            try:
                for part in self.parts:
                    schema = parse_schema(_stripped(part, without), named)
            except (SchemaParseException, UnknownType, KeyError, TypeError) as error:
                raise ValueError(f"invalid Avro schema: {type(error).__name__}: {error}") from error
            self._parsed[without] = schema, named
        return self._parsed[without]

    @cached_property
    def arrow_type(self) -> pa.DataType:
        """Return the type of its values. Raise ValueError if Arrow has none."""
        schema, named = self.parsed()
        return _arrow_type(schema, named, ())

    def check_lengths(self) -> None:
        """Raise ValueError for arrays of items without bytes: a few bytes would be any number of them."""
        schema, named = self.parsed()
        items = [each["items"] for each in _within([schema, *named.values()]) if _kind(each) == "array"]
        if not all(_has_bytes(each, named, ()) for each in items):
            raise ValueError("an Avro array whose items take no bytes may have any length; it is not read")

    @cached_property
    def times(self) -> list[tuple[str, str]]:
        """Return the paths of times, and their kinds."""
        return sorted(found for part in self.parts for found in _times(part, ""))

    @cached_property
    def has_choices(self) -> bool:
        """True if a union has several types besides null."""
        schema, named = self.parsed()
        return any(
            isinstance(each, list) and len(_members(each)) > 1 for each in _within([schema, *named.values()])
        )


def _stripped(schema: Any, without: frozenset[str]) -> Any:
    if isinstance(schema, list):
        return [_stripped(each, without) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _stripped(value, without) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if not (name == "logicalType" and value in without)
    }


def _times(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(schema, list):
        for each in schema:
            yield from _times(each, path)
    elif isinstance(schema, dict):
        if schema.get("logicalType") in TIMES:
            yield path, schema["logicalType"]
        for name in ("type", "items", "values"):
            yield from _times(schema.get(name), f"{path}/{name}")
        for field in schema.get("fields", ()):
            yield from _times(field.get("type"), f"{path}.{field.get('name')}")


def _within(schemas: Sequence[Any]) -> Iterator[Any]:
    """Return all types that stand in schemas."""
    for schema in schemas:
        if isinstance(schema, list):
            yield schema
            yield from _within(schema)
        elif isinstance(schema, dict):
            yield schema
            yield from _within([schema[name] for name in ("type", "items", "values") if name in schema])
            yield from _within([field["type"] for field in schema.get("fields", ())])


def _kind(schema: Any) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _members(union: Sequence[Any]) -> list[Any]:
    """Return the types of a union without null, and without those whose values another one takes."""
    kinds = [_kind(each) for each in union]
    return [
        each
        for each, kind in zip(union, kinds, strict=True)
        if kind != "null" and _WIDER.get(kind) not in kinds
    ]


def _arrow_type(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        members = [_arrow_type(each, named, inside) for each in _members(schema)]
        if len(members) == 1:
            return members[0]
        return (
            pa.struct([(f"member{number}", kind) for number, kind in enumerate(members)])
            if members
            else pa.null()
        )
    if not isinstance(schema, dict):
        return _PRIMITIVES[schema] if schema in _PRIMITIVES else _arrow_type(named[schema], named, inside)
    kind, logical = schema["type"], schema.get("logicalType")
    if kind in ("record", "error"):
        name = schema["name"]
        if name in inside:
            raise ValueError(f"the Avro type {name} contains itself, which no Arrow type can")
        inside = (*inside, name)
        return pa.struct(
            [(field["name"], _arrow_type(field["type"], named, inside)) for field in schema["fields"]]
        )
    if kind == "array":
        return pa.list_(_arrow_type(schema["items"], named, inside))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_type(schema["values"], named, inside))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision = schema["precision"]
        return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, schema.get("scale", 0))
    if logical == "uuid" and (kind == "string" or (kind == "fixed" and schema["size"] == 16)):
        return pa.uuid()
    if kind == "enum":
        return pa.string()
    if kind == "fixed":
        return pa.binary(schema["size"])
    if isinstance(kind, list | dict):
        return _arrow_type(kind, named, inside)
    return _TIMES.get((kind, logical or "")) or _arrow_type(kind, named, inside)


def _has_bytes(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> bool:
    """True if each value of a type takes a byte at least."""
    if isinstance(schema, str) and schema not in _PRIMITIVES and schema not in inside:
        return _has_bytes(named[schema], named, (*inside, schema))
    if isinstance(schema, dict) and _kind(schema) in ("record", "error"):
        return any(_has_bytes(field["type"], named, inside) for field in schema["fields"])
    if isinstance(schema, dict) and _kind(schema) == "fixed":
        return bool(schema["size"])
    return isinstance(schema, list) or _kind(schema) != "null"


def python_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which pyarrow takes what fastavro reads: text or bytes for a UUID."""
    return mapped_type(kind, lambda each: pa.string() if is_uuid(each) else each)


def shape_of(schema: Any, named: Mapping[str, Any]) -> Shape | None:
    """Return what makes of fastavro's values those that pyarrow takes; None if they are the same."""
    if isinstance(schema, list):
        return _union_shape(schema, named)
    if not isinstance(schema, dict):
        return None if schema in _PRIMITIVES else shape_of(named[schema], named)
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record_shape(schema, named)
    if kind == "array":
        item = shape_of(schema["items"], named)
        return None if item is None else lambda value: list(map(item, value))
    if kind == "map":
        member = shape_of(schema["values"], named)
        if member is None:
            return lambda value: list(value.items())
        return lambda value: [(name, member(each)) for name, each in value.items()]
    if kind == "fixed" and schema.get("logicalType") == "uuid":
        return lambda value: value.hex("-", 4) if isinstance(value, bytes) else value
    return shape_of(kind, named) if isinstance(kind, list | dict) else None


def _record_shape(schema: Any, named: Mapping[str, Any]) -> Shape | None:
    shapes = {}
    for field in schema["fields"]:
        shape = shape_of(field["type"], named)
        if isinstance(field.get("default"), str) and _kind(field["type"]) in ("bytes", "fixed"):
            shape = _default_bytes
        if shape is not None:
            shapes[field["name"]] = shape
    if not shapes:
        return None

    def shaped(value: Any) -> Any:
        for name, shape in shapes.items():
            value[name] = shape(value[name])
        return value

    return shaped


def _default_bytes(value: Any) -> Any:
    """Return bytes; a default of a schema is text with a letter for each byte."""
    return value.encode("latin-1") if isinstance(value, str) else value


def _union_shape(union: Sequence[Any], named: Mapping[str, Any]) -> Shape | None:
    members = _members(union)
    shapes = [shape_of(each, named) for each in members]
    if len(members) == 1:
        (shape,) = shapes

        def optional(value: Any) -> Any:
            value = value[1] if isinstance(value, tuple) else value
            return value if value is None or shape is None else shape(value)

        has_name = _kind(members[0]) not in (*_PRIMITIVES, "array", "map")
        return optional if shape is not None or has_name else None

    def chosen(value: Any) -> Any:
        if value is None:
            return None
        name, value = value if isinstance(value, tuple) else (None, value)
        index = next(index for index, member in enumerate(members) if _is_of(value, name, member, named))
        shape = shapes[index]
        return {f"member{index}": value if shape is None else shape(value)}

    return chosen if members else None


def _is_of(value: Any, name: str | None, schema: Any, named: Mapping[str, Any]) -> bool:
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if name is not None:
        return isinstance(schema, dict) and schema.get("name") == name
    if isinstance(value, bool):
        return _kind(schema) == "boolean"
    if isinstance(value, dict) and _kind(schema) == "record":
        return value.keys() == {field["name"] for field in schema["fields"]}
    return isinstance(value, _PYTHON.get(_kind(schema), ()))
