"""Avro schemas in the forms that fastavro and Arrow need.

fastavro reads and writes physical types only: integers for times, bytes for decimals. Its own choice of a
branch would lose data (a datetime is a date to it, and text that looks like a date is one), and its times end
at the year 9999. Logical types are Arrow's or Python's, of the schema on our side.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from kbatch.schema_registry import Schema, SchemaRegistry

PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
TIMES: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{local}timestamp-{name}"): pa.timestamp(unit, zone)
        for local, zone in (("", "UTC"), ("local-", None))
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
NUMBERS = ("int", "long", "float", "double")
_FLOATS = ("float", "double")
_EXACT_INTEGERS = 1 << 53  # of a double
NAMED = ("record", "error", "enum", "fixed")
# Types of which one takes the other's values.
WIDER: Mapping[str, str] = {"int": "long", "float": "double"}
MAX_DECIMAL_DIGITS = 76  # Arrow's decimal256
_UUID_BYTES = 16
_PARTS = ("type", "items", "values")


class AvroSchema:
    """A schema with those that it refers to.

    Parameters
    ----------
    parts : sequence
        The schemas in Python's form of their JSON; each refers to types of earlier ones. The last one is the
        schema itself.

    Attributes
    ----------
    valid_parts : list
        They without invalid logical types, which Avro says are to be ignored.
    schema : str, dict or list
        fastavro's form of it.
    named : dict
        The types in it, by their full names.

    Raises
    ------
    ValueError
        It is invalid.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = [_interned(part) for part in parts]
        self.valid_parts = [_valid(part) for part in self.parts]
        self.schema, self.named = parsed(self.valid_parts)

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

    @cached_property
    def fields(self) -> Mapping[str, Any] | None:
        """Return a record's fields by their names; None for other types."""
        is_record = isinstance(self.schema, dict) and kind_of(self.schema) in ("record", "error")
        return {field["name"]: field for field in self.schema["fields"]} if is_record else None

    @cached_property
    def arrow_type(self) -> pa.DataType:
        """Return the type of its values. Raise ValueError if Arrow has none."""
        return arrow_type(self.schema, self.named, ())

    @cached_property
    def physical_arrow_type(self) -> pa.DataType:
        """Return the type of its values without logical types."""
        return arrow_type(self.schema, self.named, (), is_physical=True)

    @cached_property
    def physical(self) -> tuple[Any, dict[str, Any]]:
        """Return fastavro's form without logical types, in which defaults are what fastavro writes, and the
        types in it by name.
        """
        schema, named = parsed([_physical(part) for part in self.valid_parts])
        set_defaults([schema, *named.values()], named, _branch)
        return schema, named

    def check_lengths(self) -> None:
        """Raise ValueError for arrays of items without bytes: a few bytes would be any number of them."""
        items = [
            each["items"]
            for each in within([self.schema, *self.named.values()])
            if isinstance(each, dict) and kind_of(each) == "array"
        ]
        if not all(_has_bytes(each, self.named, ()) for each in items):
            raise ValueError("an Avro array whose items take no bytes may have any length; it is not read")


def _interned(schema: Any) -> Any:
    """Return a schema with one object for each of its texts, as a program's own names are: fastavro compares
    them for every field of every value, which takes a tenth of the time then.
    """
    if isinstance(schema, str):
        return sys.intern(schema)
    if isinstance(schema, Mapping):
        return {_interned(name): _interned(each) for name, each in schema.items()}
    return [_interned(each) for each in schema] if isinstance(schema, list | tuple) else schema


def as_python(schema: str | Mapping[str, Any] | Sequence[Any]) -> Any:
    """Return the Python form of a schema's JSON; the name of a primitive type may stand without quotes."""
    if not isinstance(schema, str) or schema == "null":
        return schema
    try:
        return json.loads(schema)
    except ValueError:
        if schema.lstrip()[:1] in ("{", "["):
            raise
        return schema  # a primitive type


def parsed(parts: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    """Return fastavro's form of the last schema, and all types by name. Raise ValueError for invalid ones."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    named: dict[str, Any] = {}
    schema: Any = None
    try:
        for part in parts:
            schema = parse_schema(part, named)
    except (SchemaParseException, UnknownType, KeyError, TypeError) as error:
        raise ValueError(f"invalid Avro schema: {type(error).__name__}: {error}") from error
    return schema, named


def kind_of(schema: Any) -> Any:
    return schema["type"] if isinstance(schema, dict) else schema


def logical_of(schema: Any) -> str | None:
    return schema.get("logicalType") if isinstance(schema, dict) else None


def resolved(schema: Any, named: Mapping[str, Any]) -> Any:
    """Return a type for its name, and of a type in a type the inner one."""
    while True:
        if isinstance(schema, str) and schema not in PRIMITIVES:
            schema = named[schema]
        elif isinstance(schema, dict) and isinstance(schema["type"], dict | list):
            schema = schema["type"]
        else:
            return schema


def name_of(schema: Any, named: Mapping[str, Any]) -> str:
    """Return what fastavro calls a branch of a union: its full name, or the name of its type."""
    schema = resolved(schema, named)
    return str(schema["name"] if kind_of(schema) in NAMED else kind_of(schema))


def within(schemas: Sequence[Any]) -> Iterator[Any]:
    """Return all types that stand in schemas."""
    for schema in schemas:
        if isinstance(schema, list):
            yield schema
            yield from within(schema)
        elif isinstance(schema, dict):
            yield schema
            yield from within([schema[name] for name in _PARTS if name in schema])
            yield from within([field["type"] for field in schema.get("fields", ())])


def rebuilt(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a schema in which `change` has replaced each object, the inner ones first."""
    if isinstance(schema, list):
        return [rebuilt(each, change) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    for name in _PARTS:
        if name in made:
            made[name] = rebuilt(made[name], change)
    if isinstance(made.get("fields"), list):
        made["fields"] = [rebuilt_field(each, change) for each in made["fields"]]
    return change(made)


def rebuilt_field(field: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    return {**field, "type": rebuilt(field["type"], change)} if "type" in field else field


def _valid(schema: Any) -> Any:
    """Return a schema without invalid logical types, which Avro says are to be ignored, and with defaults of
    doubles that fastavro 1.9 takes, too.
    """

    def change(made: dict[str, Any]) -> dict[str, Any]:
        if isinstance(made.get("fields"), list):
            made["fields"] = list(map(_with_float, made["fields"]))
        if "logicalType" in made and not _has_meaning(made):
            del made["logicalType"]
        return made

    return rebuilt(schema, change)


def _with_float(field: Any) -> Any:
    """Return a field with a float as the default of a float, which JSON may have without a point."""
    kind: Any
    default: Any
    kind, default = (field.get("type"), field.get("default")) if isinstance(field, Mapping) else (None, None)
    first = kind[0] if isinstance(kind, list) and kind else kind
    if not isinstance(first, str) or first not in _FLOATS:
        return field
    is_whole = isinstance(default, int) and not isinstance(default, bool) and abs(default) <= _EXACT_INTEGERS
    return {**field, "default": float(default)} if is_whole else field


def _has_meaning(schema: Mapping[str, Any]) -> bool:
    kind, logical = schema.get("type"), schema["logicalType"]
    if not isinstance(kind, str) or not isinstance(logical, str):
        return False
    if logical == "decimal":
        return kind in ("bytes", "fixed") and _is_decimal(schema)
    if logical == "uuid":
        return kind == "string" or (kind == "fixed" and schema.get("size") == _UUID_BYTES)
    return (kind, logical) in TIMES


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in (precision, scale)):
        return False
    assert isinstance(precision, int)
    most = len(str(2 ** (8 * schema["size"] - 1) - 1)) - 1 if "size" in schema else MAX_DECIMAL_DIGITS
    return 0 < precision <= min(most, MAX_DECIMAL_DIGITS) and 0 <= scale <= precision


def _physical(schema: Any) -> Any:
    """Return a schema without logical types."""

    def change(made: dict[str, Any]) -> Any:
        made.pop("logicalType", None)
        return made["type"] if made.get("type") in PRIMITIVES else made

    return rebuilt(schema, change)


# Unions


def members(union: Sequence[Any]) -> list[Any]:
    """Return the types of a union without null, and without plain numbers whose values a plain wider one
    takes.
    """
    plain = {kind_of(each) for each in union if logical_of(each) is None and isinstance(kind_of(each), str)}
    return [
        each
        for each in union
        if kind_of(each) != "null" and not (logical_of(each) is None and WIDER.get(_text(each)) in plain)
    ]


def _text(schema: Any) -> str:
    kind = kind_of(schema)
    return kind if isinstance(kind, str) else ""


# Arrow's types


def arrow_type(
    schema: Any, named: Mapping[str, Any], inside: tuple[str, ...], *, is_physical: bool = False
) -> pa.DataType:
    """Return the Arrow type of a type's values, or of those that fastavro has for them.

    Parameters
    ----------
    inside : tuple of str
        The names of the records that the type is in.
    """

    def of(inner: Any) -> pa.DataType:
        return arrow_type(inner, named, inside, is_physical=is_physical)

    schema = resolved(schema, named)
    if isinstance(schema, list):
        found = list(map(of, members(schema)))
        if len(found) == 1:
            return found[0]
        return pa.struct([(f"member{i}", kind) for i, kind in enumerate(found)]) if found else pa.null()
    kind = kind_of(schema)
    if kind in ("record", "error"):
        if schema["name"] in inside:
            raise ValueError(f"the Avro type {schema['name']} contains itself, which no Arrow type can")
        inside = (*inside, schema["name"])
        return pa.struct([(field["name"], of(field["type"])) for field in schema["fields"]])
    if kind == "array":
        return pa.list_(of(schema["items"]))
    if kind == "map":
        return pa.map_(pa.string(), of(schema["values"]))
    logical = None if is_physical else _logical_type(schema)
    if logical is not None:
        return logical
    if kind == "enum":
        return pa.string()
    return pa.binary(schema["size"]) if kind == "fixed" else PRIMITIVES[kind]


def _logical_type(schema: Any) -> pa.DataType | None:
    logical = logical_of(schema)
    if logical == "decimal":
        precision = schema["precision"]
        return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, schema.get("scale", 0))
    return pa.uuid() if logical == "uuid" else TIMES.get((kind_of(schema), logical or ""))


def _has_bytes(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> bool:
    """True if each value of a type takes a byte at least."""
    if isinstance(schema, str) and schema not in PRIMITIVES:
        return schema not in inside and _has_bytes(named[schema], named, (*inside, schema))
    if isinstance(schema, dict) and kind_of(schema) in ("record", "error"):
        return any(_has_bytes(field["type"], named, inside) for field in schema["fields"])
    if isinstance(schema, dict) and kind_of(schema) == "fixed":
        return bool(schema["size"])
    return isinstance(schema, list) or kind_of(schema) != "null"


# Defaults

# What a default of a union becomes: of the branch and its datum.
Choice = Callable[[Any, Any, Mapping[str, Any]], Any]


def _branch(member: Any, datum: Any, named: Mapping[str, Any]) -> Any:
    return None if datum is None else (name_of(member, named), datum)


def set_defaults(schemas: Sequence[Any], named: Mapping[str, Any], choice: Choice) -> None:
    """Replace the defaults in fastavro's form of schemas by data, as fastavro has them for their types."""
    records = {id(each): each for each in within(schemas) if isinstance(each, dict) and "fields" in each}
    fields = [field for each in records.values() for field in each["fields"] if "default" in field]
    made = [_default(field["type"], field["default"], named, choice) for field in fields]
    for field, default in zip(fields, made, strict=True):
        field["default"] = default


def _default(schema: Any, default: Any, named: Mapping[str, Any], choice: Choice) -> Any:
    """Return the datum of a default. Raise ValueError if the type does not have it."""

    def of(inner: Any, value: Any) -> Any:
        return _default(inner, value, named, choice)

    schema = resolved(schema, named)
    if isinstance(schema, list):
        for member in schema:
            try:
                return choice(member, of(member, default), named)
            except (ValueError, KeyError):
                continue
        raise ValueError(f"invalid Avro schema: {default!r} is no default of {json.dumps(schema)}")
    kind = kind_of(schema)
    if not isinstance(default, _DEFAULTS[kind]) or (isinstance(default, bool) and kind != "boolean"):
        raise ValueError(f"invalid Avro schema: {default!r} is no default of {kind}")
    if kind == "array":
        return [of(schema["items"], each) for each in default]
    if kind == "map":
        return {name: of(schema["values"], each) for name, each in default.items()}
    if kind in ("record", "error"):
        return {f["name"]: of(f["type"], default.get(f["name"], f.get("default"))) for f in schema["fields"]}
    if kind in ("bytes", "fixed"):  # text with a letter for each byte
        return default.encode("latin-1") if isinstance(default, str) else default
    return float(default) if kind in ("float", "double") else default


_DEFAULTS: Mapping[str, Any] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "bytes": (str, bytes),
    "fixed": (str, bytes),
    "string": str,
    "enum": str,
    "array": list,
    "map": dict,
    "record": dict,
    "error": dict,
}
