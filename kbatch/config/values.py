"""Types of configuration values, their parsers, and the checks on them.

Types are those of Kafka's ConfigDef, and parsers follow ConfigDef.parseType. They also accept what Python
callers write: `acks=1`, a path object, a tuple instead of a comma-separated string.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from operator import index
from typing import Any, NamedTuple, final

from kbatch.errors import ConfigError
from kbatch.errors.words import without_login

# Java's String.trim removes every character up to the blank, and no other.
JAVA_BLANKS = "".join(map(chr, range(0x21)))
WHOLE_NUMBER = re.compile(r"[+-]?\d+")
INT_MAX = 2**31 - 1
# A function or object by its name, such as package.module:name.
IMPORTABLE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
# Names and values of SASL extensions (RFC 7628, section 3.1, and Kafka's OAuthBearerClientInitialResponse).
EXTENSION_NAME = re.compile(r"(?!auth\Z)[A-Za-z]+")
EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
# For a text in requests, some of which prefix it with other words; strings of requests have at most 32,767.
SENDABLE_BYTES = 32_000

# All values by key, and what a rule does with them and the keys that were set.
Values = dict[str, Any]
Rule = Callable[[Values, Collection[str]], None]


class Importance(StrEnum):
    """The likelihood that a user needs a key (Kafka's ConfigDef.Importance)."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@final
class Password:
    """A secret that only `value` shows (Kafka's Password)."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def value(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "[hidden]"

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Password) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)


@final
class FrozenMapping(Mapping[str, str]):
    """A mapping that cannot change, so that a configuration can be hashed."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, str]) -> None:
        self._items = dict(items)

    def __getitem__(self, name: str) -> str:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


# Ways to show a value in errors and in the repr of a configuration.


def _hidden(value: object) -> str:
    """Return what a value is, for one that may be or have a secret."""
    return repr(value) if isinstance(value, Password) else f"a value of type {type(value).__name__}"


def _source_shown(value: object) -> str:
    is_name = isinstance(value, str) and IMPORTABLE.fullmatch(value.strip(JAVA_BLANKS))
    return repr(value) if is_name else _hidden(value)


# Types: a parser returns the value, or raises ValueError or TypeError without a text, because `expected` says
# what it accepts.


class ValueType(NamedTuple):
    """A type of values: Kafka's name, the words for it in errors, the parser, what a keyword accepts, as an
    annotation whose names `kbatch.config.keywords` imports, and how values are shown.
    """

    name: str
    expected: str
    parse: Callable[[Any], Any]
    annotation: str
    show: Callable[[object], str] = repr


def _boolean(value: object) -> bool:
    if isinstance(value, str):
        return {"true": True, "false": False}[value.strip(JAVA_BLANKS).lower()]
    if not isinstance(value, bool):
        raise TypeError
    return value


def _string(value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise TypeError
    text: str | bytes = os.fspath(value)
    if isinstance(text, bytes):
        raise TypeError
    return text.strip(JAVA_BLANKS)


def _password(value: object) -> Password:
    return value if isinstance(value, Password) else Password(_string(value))


def _authorities(value: object) -> str | None:
    """Return a location; librdkafka's probe means the system's authorities, the default."""
    location = _string(value)
    return None if location == "probe" else location


def _literal(value: object) -> str:
    """Return a text with the blanks at its ends, which Java's keys lose."""
    if not isinstance(value, str):
        raise TypeError
    return value


def _secret(value: object) -> Password:
    return value if isinstance(value, Password) else Password(_literal(value))


def _whole_number(bits: int) -> Callable[[object], int]:
    limit = 1 << (bits - 1)

    def parse(value: object) -> int:
        if isinstance(value, bool):
            raise TypeError
        if isinstance(value, str):
            if not WHOLE_NUMBER.fullmatch(value.strip(JAVA_BLANKS)):
                raise ValueError
            number = int(value.strip(JAVA_BLANKS))
        else:
            number = index(value)  # type: ignore[arg-type]
        if not -limit <= number < limit:
            raise ValueError
        return number

    return parse


def _fraction(value: object) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        raise TypeError
    return float(value)  # type: ignore[arg-type]


def _acks(value: object) -> int:
    """Return acks as a number; "all" is -1 (ProducerConfig.parseAcks)."""
    if isinstance(value, bool):
        raise TypeError
    return {"all": -1, "-1": -1, "0": 0, "1": 1}[str(value).strip(JAVA_BLANKS)]


def _list(value: object) -> tuple[str, ...]:
    """Return the members without duplicates; none may be empty (KIP-1161)."""
    if isinstance(value, str):
        trimmed = value.strip(JAVA_BLANKS)
        members: Iterable[object] = re.split(r"\s*,\s*", trimmed) if trimmed else ()
    elif isinstance(value, list | tuple):
        members = value
    else:
        raise TypeError
    texts = tuple(dict.fromkeys(map(_string, members)))
    if "" in texts:
        raise ValueError
    return texts


def _objects(value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        if value == "":
            return ()
        raise TypeError
    return tuple(value)


def _object(value: object) -> object:
    return value.strip(JAVA_BLANKS) if isinstance(value, str) else value


def _extensions(value: object) -> FrozenMapping:
    """Return name=value pairs, from a text with commas between them or from a mapping."""
    if isinstance(value, str):
        members = [member.partition("=") for member in _list(value)]
        pairs: dict[object, object] = {name.strip(JAVA_BLANKS): text for name, _, text in members}
        if len(pairs) < len(members):
            raise ValueError
    elif isinstance(value, Mapping):
        pairs = dict(value)
    else:
        raise TypeError
    for name, text in pairs.items():
        if not (EXTENSION_NAME.fullmatch(_literal(name)) and EXTENSION_VALUE.fullmatch(_literal(text))):
            raise ValueError
    return FrozenMapping(pairs)  # type: ignore[arg-type]


def _token_source(value: object) -> object:
    if isinstance(value, str):
        value = value.strip(JAVA_BLANKS)
        if not IMPORTABLE.fullmatch(value):
            raise ValueError
    elif not callable(value) and not callable(getattr(value, "token", None)):
        raise TypeError
    return value


def _tls_context(value: object) -> object:
    # Not by isinstance: Python's ssl is imported only for a client that uses it.
    if not callable(value) and not hasattr(value, "wrap_bio"):
        raise TypeError
    return value


_WHOLE_NUMBER, _FILE, _SECRET = "int | str", "str | PathLike[str]", "str | Password"
_TEXTS = "str | list[str] | tuple[str, ...]"

BOOLEAN = ValueType("boolean", "true or false", _boolean, "bool | str")
STRING = ValueType("string", "a string", _string, "str")
FILE = ValueType("string", "a string", _string, _FILE)
AUTHORITIES = ValueType("string", "a string", _authorities, _FILE)
LITERAL = ValueType("string", "a string", _literal, "str")
URL = ValueType("string", "a string", _string, "str", without_login)
PRIVATE = ValueType("string", "a string", _string, "str", _hidden)
PASSWORD = ValueType("password", "a string", _password, _SECRET, _hidden)
SECRET = ValueType("password", "a string", _secret, _SECRET, _hidden)
SHORT = ValueType("short", "a whole number of 16 bits", _whole_number(16), _WHOLE_NUMBER)
INT = ValueType("int", "a whole number of 32 bits", _whole_number(32), _WHOLE_NUMBER)
LONG = ValueType("long", "a whole number of 64 bits", _whole_number(64), _WHOLE_NUMBER)
DOUBLE = ValueType("double", "a number", _fraction, "float | str")
LIST = ValueType("list", "a list or a comma-separated string, without empty members", _list, _TEXTS)
NAMES = ValueType(
    "list", "a list of names or a comma-separated string, without objects or callables", _list, _TEXTS
)
OBJECTS = ValueType("list", "a list of objects", _objects, "list[Any] | tuple[Any, ...]")
OBJECT = ValueType("class", "a name or an object", _object, "object")
EXTENSIONS = ValueType(
    "map",
    "a mapping or name=value,... with names of letters (but not auth) and values of printable ASCII",
    _extensions,
    "str | Mapping[str, str]",
)
TOKEN_SOURCE = ValueType(
    "class",
    'a callable, an object with a method token(), or "package.module:name" (a token itself would expire: '
    "return it from a callable)",
    _token_source,
    "str | Callable[..., Any] | TokenProvider",
    _source_shown,
)
TLS_CONTEXT = ValueType(
    "class",
    "an ssl.SSLContext, or a callable that returns one",
    _tls_context,
    "SSLContext | Callable[[], SSLContext]",
    _hidden,
)
ACKS = ValueType("string", "one of all, -1, 0, 1", _acks, _WHOLE_NUMBER)


# Checks of values that have the right type.


class Check(NamedTuple):
    """A condition on a value: its words, its test, `fold`, which normalizes the spelling first, and what to
    do about a value that fails, unless the words say it.
    """

    text: str
    holds: Callable[[Any], bool]
    fold: Callable[[Any], Any] | None = None
    remedy: str = ""


ANY = Check("", lambda value: True)
NON_EMPTY = Check("not empty", bool)


def _is_sendable(value: str) -> bool:
    try:
        return len(value.encode()) <= SENDABLE_BYTES
    except UnicodeEncodeError:
        return False


SENDABLE = Check(f"at most {SENDABLE_BYTES} bytes of UTF-8", _is_sendable)
SENDABLE_NAME = Check(
    f"1 to {SENDABLE_BYTES} bytes of UTF-8", lambda value: bool(value) and _is_sendable(value)
)


def at_least(minimum: int) -> Check:
    return Check(f"at least {minimum}", lambda value: value >= minimum)


def between(minimum: float, maximum: float, other: int | None = None) -> Check:
    """Return a check for `minimum` to `maximum`, or `other`."""
    also = "" if other is None else f" or {other}"
    return Check(f"{minimum} to {maximum}{also}", lambda value: minimum <= value <= maximum or value == other)


def one_of(*names: str, fold: Callable[[str], str] | None = None) -> Check:
    return Check(f"one of {', '.join(name or repr(name) for name in names)}", names.__contains__, fold)


ISO_DURATION = re.compile(
    r"P(?=\d|T\d)(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
BY_DURATION = "by_duration:"


def duration_of(reset: str) -> timedelta | None:
    """Return the duration of an auto.offset.reset such as by_duration:P1DT2H (ISO 8601, as java.time.Duration
    reads it); None for another text. OverflowError for one of more than a billion days.
    """
    match = ISO_DURATION.fullmatch(reset.removeprefix(BY_DURATION)) if reset.startswith(BY_DURATION) else None
    if match is None:
        return None
    return timedelta(
        **{
            unit: float(count) if unit == "seconds" else int(count)
            for unit, count in match.groupdict("0").items()
        }
    )


def _is_offset_reset(value: str) -> bool:
    try:
        return value in ("earliest", "latest", "none") or duration_of(value) is not None
    except OverflowError:
        return False


OFFSET_RESET = Check(
    "earliest, latest, none, or by_duration: with a duration such as P1DT2H30M", _is_offset_reset
)


def class_named(*names: str, remedy: str, package: str | None = None) -> Check:
    """Return a check for Java classes of these names. Packages differ by version and by shading, so any is
    accepted, and `package`, if any, replaces it.
    """

    def holds(value: object) -> bool:
        return isinstance(value, str) and value.rpartition(".")[2] in names

    def fold(value: object) -> object:
        return f"{package}.{str(value).rpartition('.')[2]}" if holds(value) else value

    return Check(f"a class named {' or '.join(names)}", holds, fold if package else None, remedy)


STORE_TYPES = ("PEM", "PKCS12", "JKS")
STORE_TYPE = Check("PEM, PKCS12, or JKS for a PKCS12 file of that name", STORE_TYPES.__contains__, str.upper)


# The assignors of classic groups, by their names in the protocol, and Java's classes.
ASSIGNOR_CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


def assignor_name(given: str) -> str | None:
    """Return the name in the protocol of an assignor, given by this name or Java's class; None if unknown."""
    names = {class_name: name for name, class_name in ASSIGNOR_CLASSES.items()}
    return given if given in ASSIGNOR_CLASSES else names.get(given.rpartition(".")[2])


ASSIGNORS = Check(
    f"one or more of {', '.join(ASSIGNOR_CLASSES)} (or Java's {', '.join(ASSIGNOR_CLASSES.values())})",
    lambda given: given and None not in map(assignor_name, given),
)


def each_of(*names: str) -> Check:
    return Check(f"one or more of {', '.join(names)}", lambda value: value and set(value) <= set(names))


# One row of the table


REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key.

    Attributes
    ----------
    type, default, check, importance, doc
        As in Kafka's ConfigDef; the default is in the user's notation, `REQUIRED` if there is none.
    refused : str | None
        The reason for accepting only the default; None for a supported key.
    origin : str
        The project that defines the key: "Kafka", "kbatch", or another client.
    """

    type: ValueType
    default: Any
    check: Check
    importance: Importance
    doc: str
    refused: str | None = None
    origin: str = "Kafka"

    def read(self, name: str, value: object) -> Any:
        """Return the value in its type. Raise ConfigError with the user's spelling of the key if invalid."""
        shown = self.type.show
        try:
            found = self.type.parse(value)
        except (TypeError, ValueError, KeyError, OverflowError):
            raise ConfigError(f"{name} must be {self.type.expected}, got {shown(value)}") from None
        if self.check.fold is not None:
            found = self.check.fold(found)
        if not self.check.holds(found):
            remedy = self.check.remedy and f"; {self.check.remedy}"
            raise ConfigError(f"{name} must be {self.check.text}, got {shown(value)}{remedy}")
        if self.refused is not None and found != self.initial:
            raise ConfigError(f"{name} cannot be {shown(value)} in kbatch: {self.refused}")
        return found

    @property
    def initial(self) -> Any:
        """Return the default in its type, or None if there is none."""
        if self.default is None or self.default is REQUIRED:
            return None
        return self.type.parse(self.default)
