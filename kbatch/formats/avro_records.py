"""Avro of single records: a program's values as what fastavro writes, and what fastavro reads as values.

The branch of a union is chosen here: fastavro would take a datetime for a date, and parse text. Nothing is
changed silently: an int that is too large, a bool for a number, a naive datetime and an unknown field are
errors.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from kbatch.formats.avro_schemas import (
    NAMED,
    kind_of,
    logical_of,
    members,
    name_of,
    resolved,
)
from kbatch.formats.models import as_dict

Convert = Callable[[Any], Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_BITS = {"int": 32, "long": 64}
_EXACT_INTEGERS = 1 << 53
_UNITS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}  # a second
_MICROSECOND = timedelta(microseconds=1)


def encoder_of(schema: Any, named: Mapping[str, Any], defaults: Mapping[str, Any]) -> Convert:
    """Return what makes of values what fastavro writes, by the type's physical schema.

    Parameters
    ----------
    defaults : mapping
        fastavro's form of the same named types without logical types, whose defaults are data.

    Raises
    ------
    ValueError, TypeError
        From what is returned: the type does not have the value.
    """
    return _Encoders(named, defaults).of(schema)


class _Encoders:
    def __init__(self, named: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._named = named
        self._defaults = defaults
        self._records: dict[str, Convert] = {}

    def of(self, schema: Any) -> Convert:
        schema = resolved(schema, self._named)
        if isinstance(schema, list):
            return self._union(schema)
        kind = kind_of(schema)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            item = self.of(schema["items"])
            return lambda value: [item(each) for each in _checked(value, (list, tuple, set, frozenset), kind)]
        if kind == "map":
            member = self.of(schema["values"])
            return lambda value: {
                _text(name): member(each) for name, each in _checked(value, Mapping, kind).items()
            }
        logical = logical_of(schema)
        return _LOGICAL[logical](schema) if logical in _LOGICAL else _PLAIN[kind](schema)

    def _record(self, schema: Any) -> Convert:
        name = schema["name"]
        if name not in self._records:
            self._records[name] = lambda value: self._records[name](value)  # for records within themselves
            self._records[name] = self._new_record(schema)
        return self._records[name]

    def _new_record(self, schema: Any) -> Convert:
        """Return a function of a record's dict, generated: it is called for every value."""
        names = [field["name"] for field in schema["fields"]]
        encoders = {each["name"]: _named(each["name"], self.of(each["type"])) for each in schema["fields"]}
        physical = {field["name"]: field for field in self._defaults[schema["name"]]["fields"]}
        scope: dict[str, Any] = {"as_dict": as_dict, "count": len(names)}
        lines = [
            "def encode(value):",
            "    if value.__class__ is not dict: value = as_dict(value)",
            "    try:",
        ]
        items = []
        for number, field in enumerate(schema["fields"]):
            name = field["name"]
            scope[f"e{number}"] = encoders[name]
            lines.append(f"        v{number} = value[{name!r}]")
            items.append(f"{name!r}: {self._inlined(field, number, scope)}")
        lines += ["        pass", "    except KeyError: return partial(value)"]
        lines += ["    if len(value) != count: refuse(value)", f"    return {{{', '.join(items)}}}"]

        def partial(value: Mapping[str, Any]) -> Any:
            refuse(value)
            return {
                field: encoders[field](value[field]) if field in value else _default(physical[field], schema)
                for field in names
            }

        def refuse(value: Mapping[str, Any]) -> None:
            if strays := [name for name in value if name not in encoders]:
                raise ValueError(
                    f"{schema['name']} has no field {', '.join(map(repr, strays))}; its fields are "
                    f"{', '.join(names) or 'none'}"
                )

        scope |= {"partial": partial, "refuse": refuse}
        exec("\n".join(lines), scope)
        return scope["encode"]  # type: ignore[no-any-return]

    def _inlined(self, field: Mapping[str, Any], number: int, scope: dict[str, Any]) -> str:
        """Return source code that converts the variable `v{number}`, a value of a field: values that are
        usual and need no conversion without a call, others by the function `e{number}`.
        """
        schema, value, otherwise = resolved(field["type"], self._named), f"v{number}", f"e{number}(v{number})"
        if _is_plain(schema):
            return f"{value} if {_CHECKS[kind_of(schema)](value)} else {otherwise}"
        if isinstance(schema, list) and all(map(_is_plain, schema)):
            branches = sorted(map(kind_of, members(schema)), key=_rank)
            cases = [f"({kind!r}, {value}) if {_CHECKS[kind](value)} else " for kind in branches]
            null = f"None if {value} is None else " if "null" in map(kind_of, schema) else ""
            return f"{null}{''.join(cases)}{otherwise}"
        if kind_of(schema) == "array" and _is_plain(schema["items"]):
            scope[f"i{number}"] = _named(field["name"], self.of(schema["items"]))
            items = f"x if {_CHECKS[kind_of(schema['items'])]('x')} else i{number}(x)"
            return f"[{items} for x in {value}] if {value}.__class__ is list else {otherwise}"
        return otherwise

    def _union(self, union: Sequence[Any]) -> Convert:
        branches = sorted(members(union), key=lambda each: _rank(resolved(each, self._named)))
        named = [(name_of(each, self._named), self.of(each)) for each in branches]
        has_null = any(kind_of(resolved(each, self._named)) == "null" for each in union)
        names = [name for name, _ in named]

        def encode(value: Any) -> Any:
            if value is None and has_null:
                return None
            if value.__class__ is tuple and len(value) == 2 and value[0] in names:
                return value[0], dict(named)[value[0]](value[1])
            faults = []
            for name, convert in named:
                try:
                    return name, convert(value)
                except (ValueError, TypeError) as error:
                    faults.append(f"{name}: {error}")
            raise TypeError(f"no branch of the union takes {_shown(value)}: {'; '.join(faults) or 'none'}")

        return encode


def _is_plain(schema: Any) -> bool:
    """True if Python's own types have the values of a type, each by itself."""
    return logical_of(schema) is None and isinstance(schema, str | dict) and kind_of(schema) in _CHECKS


def _named(field: str, convert: Convert) -> Convert:
    """Return a conversion whose errors name the field."""

    def named(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, TypeError) as error:
            raise type(error)(f"field {field!r}: {error}") from error

    return named


def _default(field: Any, schema: Any) -> Any:
    if "default" not in field:
        raise ValueError(f"field {field['name']!r} of {schema['name']} is missing, and has no default")
    return field["default"]


def _rank(schema: Any) -> int:
    """Return the place of a branch: a value belongs to the first one that takes it."""
    return _ORDER.index(logical_of(schema) or kind_of(schema))


_ORDER = [
    "null", "boolean", "date", "time-micros", "time-millis", "timestamp-nanos", "timestamp-micros",
    "timestamp-millis", "local-timestamp-nanos", "local-timestamp-micros", "local-timestamp-millis",
    "decimal", "int", "long", "double", "float", "uuid", "string", "enum", "bytes", "fixed", "record",
    "error", "map", "array",
]  # fmt: skip


# Values of one type. Each makes a conversion for a type.


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _refused(value: Any, wanted: object) -> TypeError:
    return TypeError(f"{wanted} does not take {type(value).__name__} {_shown(value)}")


def _checked(value: Any, kinds: Any, wanted: str) -> Any:
    if isinstance(value, kinds):
        return value
    raise _refused(value, wanted)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _refused(value, "string")
    return str.__str__(value)  # a subclass may say something else: an Enum of texts its member's name


def _integer(schema: Any) -> Convert:
    kind = kind_of(schema)
    limit = 1 << (_BITS[kind] - 1)

    def convert(value: Any) -> int:
        if isinstance(value, bool):
            raise _refused(value, kind)
        try:
            number = operator.index(value)
        except TypeError:
            raise _refused(value, kind) from None
        if not -limit <= number < limit:
            raise ValueError(f"{number} is too large for {kind}")
        return number

    return convert


def _float(schema: Any) -> Convert:
    kind = kind_of(schema)

    def convert(value: Any) -> float:
        if isinstance(value, float):
            return float(value)
        if isinstance(value, bool | str | bytes | Decimal):
            raise _refused(value, kind)
        if isinstance(value, int):
            if abs(value) > _EXACT_INTEGERS:
                raise ValueError(f"{value} is not exact as {kind}")
            return float(value)
        if not hasattr(value, "__float__"):
            raise _refused(value, kind)
        return float(value)

    return convert


def _boolean(schema: Any) -> Convert:
    def convert(value: Any) -> bool:
        if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):  # numpy's
            return bool(value)
        raise _refused(value, "boolean")

    return convert


def _null(schema: Any) -> Convert:
    def convert(value: Any) -> None:
        if value is not None:
            raise _refused(value, "null")

    return convert


def _bytes(schema: Any) -> Convert:
    size = schema["size"] if kind_of(schema) == "fixed" else None

    def convert(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise _refused(value, kind_of(schema))
        if size is not None and len(value) != size:
            raise ValueError(f"{schema['name']} has {size} bytes, got {len(value)}")
        return bytes(value)

    return convert


def _enum(schema: Any) -> Convert:
    symbols = frozenset(schema["symbols"])

    def convert(value: Any) -> str:
        if isinstance(value, Enum):
            value = value.value if value.value in symbols else value.name
        if not isinstance(value, str) or value not in symbols:
            raise ValueError(f"{schema['name']} has no symbol {_shown(value)}")
        return str.__str__(value)

    return convert


_PLAIN: Mapping[str, Callable[[Any], Convert]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "float": _float,
    "double": _float,
    "bytes": _bytes,
    "fixed": _bytes,
    "string": lambda schema: _text,
    "enum": _enum,
}
# Conditions under which a value needs no conversion, as source code of its name.
_CHECKS: Mapping[str, Callable[[str], str]] = {
    "null": lambda name: f"{name} is None",
    "int": lambda name: f"{name}.__class__ is int and -2147483648 <= {name} <= 2147483647",
    "long": lambda name: f"{name}.__class__ is int and {-(2**63)} <= {name} <= {2**63 - 1}",
    "double": lambda name: f"{name}.__class__ is float",
    "float": lambda name: f"{name}.__class__ is float",
    "boolean": lambda name: f"{name}.__class__ is bool",
    "string": lambda name: f"{name}.__class__ is str",
    "bytes": lambda name: f"{name}.__class__ is bytes",
}


def _date(schema: Any) -> Convert:
    def convert(value: Any) -> int:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value.toordinal() - _EPOCH_DAY
        raise _refused(value, "date")

    return convert


def _timestamp(schema: Any) -> Convert:
    logical = schema["logicalType"]
    is_local = logical.startswith("local-")
    epoch = _LOCAL_EPOCH if is_local else _EPOCH
    per_second = _UNITS[logical.rpartition("-")[2]]

    def convert(value: Any) -> int:
        if not isinstance(value, datetime):
            raise _refused(value, logical)
        if (value.tzinfo is None) is not is_local:
            raise ValueError(
                f"{logical} takes no datetime {'with' if is_local else 'without'} a time zone: "
                + ("remove its tzinfo" if is_local else "give it one, such as datetime.UTC")
            )
        return (value - epoch) // _MICROSECOND * per_second // _UNITS["micros"]

    return convert


def _time(schema: Any) -> Convert:
    per_second = _UNITS[schema["logicalType"].rpartition("-")[2]]

    def convert(value: Any) -> int:
        if not isinstance(value, time):
            raise _refused(value, schema["logicalType"])
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * per_second + value.microsecond * per_second // _UNITS["micros"]

    return convert


def _decimal(schema: Any) -> Convert:
    precision, scale, size = schema["precision"], schema.get("scale", 0), schema.get("size")

    def convert(value: Any) -> bytes:
        if not isinstance(value, Decimal):
            raise _refused(value, "decimal")
        if not value.is_finite():
            raise ValueError(f"a decimal cannot be {value}")
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        number = int("".join(map(str, digits)) or "0")
        number, remainder = divmod(number * 10 ** max(exponent + scale, 0), 10 ** max(-exponent - scale, 0))
        if remainder or number >= 10**precision:
            raise ValueError(f"{value} does not fit a decimal of {precision} digits, {scale} after the point")
        number = -number if sign else number
        made: bytes = number.to_bytes(size or (number.bit_length() + 8) // 8, "big", signed=True)
        return made

    return convert


def _uuid(schema: Any) -> Convert:
    is_text = kind_of(schema) == "string"

    def convert(value: Any) -> str | bytes:
        if is_text:
            return str(value if isinstance(value, uuid.UUID) else uuid.UUID(_text(value)))
        if not isinstance(value, uuid.UUID):
            raise _refused(value, "uuid")
        return value.bytes

    return convert


_LOGICAL: Mapping[str | None, Callable[[Any], Convert]] = {
    "date": _date,
    "decimal": _decimal,
    "uuid": _uuid,
    **dict.fromkeys(("time-millis", "time-micros"), _time),
    **{
        f"{local}timestamp-{unit}": _timestamp
        for local in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
}


# What was read


def decoder_of(schema: Any, named: Mapping[str, Any]) -> Convert:
    """Return what makes values of physical data: times, decimals and UUIDs are Python's, and a value of a
    union is itself, without a name. Lists, dicts and records are new objects, as defaults are shared.
    """
    return _Decoders(named).of(schema)


class _Decoders:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._records: dict[str, Convert] = {}

    def of(self, schema: Any) -> Convert:
        schema = resolved(schema, self._named)
        if isinstance(schema, list):
            return self._union(schema)
        kind = kind_of(schema)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            item = self.of(schema["items"])
            return lambda value: [item(each) for each in value]
        if kind == "map":
            member = self.of(schema["values"])
            return lambda value: {name: member(each) for name, each in value.items()}
        convert = _FROM_LOGICAL.get(logical_of(schema))
        if convert is not None:
            make = convert(schema)
            return lambda value: make(_bare(value))
        return _bare if kind in NAMED else _same

    def _record(self, schema: Any) -> Convert:
        name = schema["name"]
        if name not in self._records:
            self._records[name] = lambda value: self._records[name](value)
            fields = {field["name"]: self.of(field["type"]) for field in schema["fields"]}

            def decode(value: Any) -> Any:
                value = _bare(value)
                return {name: convert(value[name]) for name, convert in fields.items()}

            self._records[name] = decode
        return self._records[name]

    def _union(self, union: Sequence[Any]) -> Convert:
        branches = {name_of(each, self._named): self.of(each) for each in members(union)}
        if len(branches) == 1:
            (only,) = branches.values()
            return lambda value: None if value is None else only(value)

        def decode(value: Any) -> Any:
            if value is None:
                return None
            if isinstance(value, tuple):
                name, value = value
                return branches.get(name, _same)(value)
            for kind in _KINDS[type(value)]:
                if kind in branches:
                    return branches[kind](value)
            return value

        return decode


def _same(value: Any) -> Any:
    return value


def _bare(value: Any) -> Any:
    return value[1] if isinstance(value, tuple) else value


_KINDS: Mapping[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("long", "int"),
    float: ("double", "float"),
    bytes: ("bytes",),
    str: ("string",),
    list: ("array",),
    dict: ("map",),
}


def _to_date(schema: Any) -> Convert:
    return lambda value: date.fromordinal(value + _EPOCH_DAY)


def _to_datetime(schema: Any) -> Convert:
    logical = schema["logicalType"]
    epoch = _LOCAL_EPOCH if logical.startswith("local-") else _EPOCH
    per_second = _UNITS[logical.rpartition("-")[2]]
    return lambda value: epoch + timedelta(microseconds=value * _UNITS["micros"] // per_second)


def _to_time(schema: Any) -> Convert:
    per_second = _UNITS[schema["logicalType"].rpartition("-")[2]]

    def convert(value: int) -> time:
        seconds, fraction = divmod(value, per_second)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        return time(hour, minute, second, fraction * _UNITS["micros"] // per_second)

    return convert


def _to_decimal(schema: Any) -> Convert:
    scale = schema.get("scale", 0)

    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))

    return convert


def _to_uuid(schema: Any) -> Convert:
    if kind_of(schema) == "string":
        return uuid.UUID
    return lambda value: uuid.UUID(bytes=value)


_FROM_LOGICAL: Mapping[str | None, Callable[[Any], Convert]] = {
    "date": _to_date,
    "decimal": _to_decimal,
    "uuid": _to_uuid,
    **dict.fromkeys(("time-millis", "time-micros"), _to_time),
    **{
        f"{local}timestamp-{unit}": _to_datetime
        for local in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
}
