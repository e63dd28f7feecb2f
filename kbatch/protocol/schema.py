"""The notation of the tables in kbatch/protocol/tables, and its parser.

A line that starts in column 0 opens a message; the lines below it are its fields, in wire order:

    FetchRequest  api 1  versions 4-18  flexible 12+
        cluster_id      string?       12+   tag 0  default null  ignorable
        max_wait_ms     int32
        topics          []FetchTopic
            topic       string        4-12  ignorable
            topic_id    uuid          13+   ignorable

Message: its name in Kafka, then
    api N         its API key; its name ends with `Request` or `Response`;
    record N      instead of api: the record type of a coordinator's key or value;
    versions A-B  the supported versions;
    flexible N+   from this version on lengths are compact and structs end with tagged fields (KIP-482); if
                  omitted, no version is flexible.

Field: name (Kafka's, in snake_case), type, versions, options.
    type          a scalar of `SCALARS`, a struct, or either after [] for an array. The fields of a struct
                  are indented below it, and not repeated if it is named again. A question mark means that
                  it may be null, `?7+` from version 7 on.
    versions      8, 4-12 or 13+; if omitted, every version of the message.
    tag N         a tagged field: after the others, with its number, and only if it is not the default.
    default X     if it is not 0, false, the empty string, the empty array, the zero UUID, a struct of
                  defaults, and for records null.
    ignorable     omitted silently in versions that lack it; other fields must then be the default.
    secret        a password, a token or the like, which no text shows.
    flexible none its length is never compact (RequestHeader's client_id).

`#` starts a comment. A test compares the facts with Kafka's message schemas.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

ZERO_UUID = bytes(16)
# Options without a value.
_FLAGS = ("ignorable", "secret")
# The struct format of each scalar of a fixed width; None for those with a length.
SCALARS: dict[str, str | None] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "uuid": "16s",
    "string": None,
    "bytes": None,
    "records": None,
}
_ZEROS: dict[str, object] = {
    "bool": False,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
}
_WORDS = {"true": True, "false": False, "null": None}


class Layout(NamedTuple):
    """The fields of a struct in one version, and the fields that the version lacks."""

    regular: list["Field"]
    tagged: list["Field"]
    absent: list["Field"]


class StructSpec(NamedTuple):
    """A struct, or a message itself."""

    name: str
    fields: tuple["Field", ...]

    def layout(self, version: int) -> Layout:
        present = [field for field in self.fields if version in field.versions]
        return Layout(
            [field for field in present if field.tag is None],
            sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0),
            [field for field in self.fields if version not in field.versions],
        )


class Field(NamedTuple):
    """A line of a table. `default` is None for null, and `...` for an array or struct that starts empty."""

    name: str
    type: str
    is_array: bool
    struct: StructSpec | None
    versions: range
    nullable: range
    tag: int | None
    default: object
    ignorable: bool
    may_be_compact: bool
    secret: bool = False

    @property
    def element(self) -> "Field":
        """Return the element type of this array."""
        return self._replace(is_array=False, nullable=range(0), tag=None)

    @property
    def format(self) -> str | None:
        """Return the struct format, if the width is fixed."""
        return None if self.is_array or self.struct else SCALARS[self.type]

    def shown(self, value: object, show: Callable[[object], str] = repr) -> str:
        """Return a value for a text: not what a secret is, but whether there is one."""
        return "[hidden]" if self.secret and value else show(value)


class MessageSpec(NamedTuple):
    """A message. `api_key` and `record_type` are -1 if it has none; `flexible_from` is after the last version
    if none is flexible.
    """

    body: StructSpec
    api_key: int
    record_type: int
    versions: range
    flexible_from: int


class _Line(NamedTuple):
    depth: int
    words: list[str]


def parse(table: str) -> list[MessageSpec]:
    """Return the messages of a table. Raise ValueError for an invalid one."""
    lines = list(_lines(table))
    heads = [index for index, line in enumerate(lines) if line.depth == 0]
    return [_message(lines[start:stop]) for start, stop in zip(heads, [*heads[1:], None], strict=True)]


def _lines(table: str) -> Iterator[_Line]:
    for text in table.splitlines():
        code = text.partition("#")[0]
        if words := code.split():
            yield _Line((len(code) - len(code.lstrip())) // 4, words)


def _message(lines: list[_Line]) -> MessageSpec:
    name, *words = lines[0].words
    options = dict(zip(words[::2], words[1::2], strict=True))
    versions = _range(options["versions"], range(2**15))
    flexible = options.get("flexible")
    return MessageSpec(
        StructSpec(name, _FieldParser(lines[1:], versions).fields(1)),
        int(options.get("api", -1)),
        int(options.get("record", -1)),
        versions,
        _range(flexible, versions).start if flexible else versions.stop,
    )


class _FieldParser:
    """Reads the lines of one message from first to last."""

    def __init__(self, lines: list[_Line], versions: range) -> None:
        self.lines = lines
        self.versions = versions
        self.index = 0
        self.structs: dict[str, StructSpec] = {}

    def fields(self, depth: int) -> tuple[Field, ...]:
        """Return the lines at this depth, with those below them."""
        found = []
        while self.index < len(self.lines) and self.lines[self.index].depth == depth:
            line = self.lines[self.index]
            self.index += 1
            found.append(self._field(line))
        if self.index < len(self.lines) and self.lines[self.index].depth > depth:
            raise ValueError(f"indented without a struct above it: {' '.join(self.lines[self.index].words)}")
        return tuple(found)

    def _field(self, line: _Line) -> Field:
        name, kind, *words = line.words
        # Not limited by the enclosing struct: another place that names this struct may have other versions.
        versions = _range(words.pop(0), self.versions) if words and words[0][0].isdigit() else self.versions
        pairs = [word for word in words if word not in _FLAGS]
        options = dict(zip(pairs[::2], pairs[1::2], strict=True))
        kind, is_nullable, nullable = kind.partition("?")
        is_array = kind.startswith("[]")
        kind = kind.removeprefix("[]")
        struct = None if kind in SCALARS else self._struct(kind, line.depth + 1)
        return Field(
            name,
            kind,
            is_array,
            struct,
            versions,
            _range(nullable, versions) if is_nullable else range(0),
            int(options["tag"]) if "tag" in options else None,
            _default(kind, is_array or struct is not None, options.get("default")),
            "ignorable" in words,
            "flexible" not in options,
            "secret" in words,
        )

    def _struct(self, name: str, depth: int) -> StructSpec:
        if fields := self.fields(depth):
            self.structs[name] = StructSpec(name, fields)
        if name not in self.structs:
            raise ValueError(f"{name} is neither a scalar nor a struct with fields below it")
        return self.structs[name]


def _range(text: str, within: range) -> range:
    """Parse `8`, `4-12` or `13+`; return all of `within` if the text is empty."""
    first, dash, last = text.rstrip("+").partition("-")
    start = int(first) if first else within.start
    if text.endswith("+") or not text:
        return range(start, within.stop)
    return range(start, (int(last) if dash else start) + 1)


def _default(kind: str, is_composed: bool, text: str | None) -> object:
    if text is None:
        return ... if is_composed else _ZEROS.get(kind, 0)
    return _WORDS[text] if text in _WORDS else int(text)
