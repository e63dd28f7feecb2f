"""Writers of messages: a Python function is generated and compiled for each class and version.

The writer of ProduceRequest, version 12, is

    def write(m0, put):
        if m0.transactional_id is None:
            put(b'\\x00')
        else:
            put(compact_string(m0.transactional_id))
        put(pack_hi(m0.acks, m0.timeout_ms))
        put(compact_count(m0.topic_data))
        for m1 in m0.topic_data:
            put(compact_string(m1.name))
            put(compact_count(m1.partition_data))
            for m2 in m1.partition_data:
                r = m2.records
                n = len(r) + 1 if type(r) is bytes else 0
                if 0x4000 <= n < 0x200000:
                    put(pack_iBBB(m2.index, n & 127 | 128, n >> 7 & 127 | 128, n >> 14)); put(r)
                else:
                    put(pack_i(m2.index))
                    if r is None:
                        put(b'\\x00')
                    else:
                        records(r, True, put)
                put(b'\\x00')
            put(b'\\x00')
        put(b'\\x00')
        return

A writer trusts the values: struct raises for a wrong int, and so on. Then kbatch/protocol/faults.py finds the
field, so valid messages cost no check.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from kbatch.protocol import wire
from kbatch.protocol.schema import Field, StructSpec
from kbatch.protocol.source import GeneratedFunction
from kbatch.protocol.structs import Message, check_version

_NAMES = {
    "ABSENT": "a value that the version lacks",
    "TRUTH": wire.TRUTH,
    "compact_bytes": wire.pack_compact_bytes,
    "compact_count": wire.pack_compact_count,
    "compact_string": wire.pack_compact_string,
    "count": wire.pack_count,
    "integers": wire.pack_integers,
    "records": wire.write_records,
    "sized_bytes": wire.pack_bytes,
    "string": wire.pack_string,
    "tag_section": wire.pack_tag_section,
    "tagged": wire.pack_tagged,
    "uuid": wire.pack_uuid,
}
# Checks for what struct does not refuse.
_ARGUMENTS = {"bool": "TRUTH[{}]", "uuid": "uuid({})"}
# The marker of a struct that may be null and is not (KIP-893).
_NOT_NULL = b"\x01"
_ZERO = b"\x00"
_THREE_BYTE_VARINT = ("BBB", "n & 127 | 128, n >> 7 & 127 | 128, n >> 14")
# Writers of a length and its value, or of a count: plain and compact.
_WRITTEN_BY = {
    "string": ("string", "compact_string"),
    "bytes": ("sized_bytes", "compact_bytes"),
    "array": ("count", "compact_count"),
}


class Writer(NamedTuple):
    """A writer: `write(message, put)` passes one piece after the other to `put`, records unchanged."""

    write: Callable[[Message, Callable[[wire.Buffer], None]], None]
    has_records: bool


@cache
def writer(kind: type[Message], version: int) -> Writer:
    """Return the writer of a version, compiled at the first call. Raise UnsupportedVersionError."""
    check_version(kind, version)
    source = _WriterSource(kind, version)
    write = source.code.function(f"<writer of {kind.__name__} v{version}>")
    return Writer(write, source.has_records)


class _WriterSource:
    def __init__(self, kind: type[Message], version: int) -> None:
        self.version = version
        self.is_flexible = version >= kind.flexible_from
        self.has_records = False
        self.code = GeneratedFunction("def write(m0, put):", _NAMES)
        self._struct(kind._spec, 0, "put")
        self.code.line("return")

    def _struct(self, spec: StructSpec, depth: int, put: str) -> None:
        """Write the struct in the local m and its depth."""
        layout = spec.layout(self.version)
        for field in layout.absent:
            if not field.ignorable:
                self.code.line(f"if {_differs(field, f'm{depth}.{field.name}')}: raise ValueError(ABSENT)")
        run: list[tuple[str, Field]] = []
        for field in layout.regular:
            source = f"m{depth}.{field.name}"
            if field.format:
                run.append((source, field))
                continue
            if field.type == "records":
                self._records(field, source, run, put)
            else:
                self._fixed(run, put)
                self._variable(field, source, depth, put)
            run = []
        self._fixed(run, put)
        if self.is_flexible:
            self._tags(layout.tagged, depth, put)

    def _fixed(self, run: list[tuple[str, Field]], put: str, length: tuple[str, str] = ("", "")) -> None:
        """Write a run of fixed widths, each with its source, by one call of struct. `length` comes after
        them: a format and an expression.
        """
        formats = [*(field.format or "" for _, field in run), length[0]]
        arguments = [*(_ARGUMENTS.get(field.type, "{}").format(source) for source, field in run), length[1]]
        if code := "".join(formats):
            pack = self.code.name(f"pack_{code.replace('?', 't')}", struct.Struct(f">{code}").pack)
            self.code.line(f"{put}({pack}({', '.join(filter(None, arguments))}))")

    def _records(self, field: Field, source: str, run: list[tuple[str, Field]], put: str) -> None:
        """Write records and the run before them. The usual kind, bytes with a compact length of three bytes,
        is a separate case: it is the most frequent step of a busy producer.
        """
        line, block, is_compact = self.code.line, self.code.block, self._is_compact(field)
        self.has_records = True
        line(f"r = {source}")
        line("n = len(r) + 1 if type(r) is bytes else 0")
        with block("if 0x4000 <= n < 0x200000:" if is_compact else "if n:"):
            self._fixed(run, put, _THREE_BYTE_VARINT if is_compact else ("i", "n - 1"))
            line(f"{put}(r)")
        with block("else:"):
            self._fixed(run, put)
            self._or_null(field, "r", put, lambda: line(f"records(r, {is_compact}, {put})"))

    def _value(self, field: Field, source: str, depth: int, put: str) -> None:
        if field.format:
            self._fixed([(source, field)], put)
        else:
            self._variable(field, source, depth, put)

    def _variable(self, field: Field, source: str, depth: int, put: str) -> None:
        self._or_null(field, source, put, lambda: self._content(field, source, depth, put))

    def _or_null(self, field: Field, source: str, put: str, write: Callable[[], None]) -> None:
        if self.version not in field.nullable:
            write()
            return
        with self.code.block(f"if {source} is None:"):
            self.code.line(f"{put}({self._null(field)!r})")
        with self.code.block("else:"):
            if field.struct and not field.is_array:
                self.code.line(f"{put}({_NOT_NULL!r})")
            write()

    def _content(self, field: Field, source: str, depth: int, put: str) -> None:
        line, block, element = self.code.line, self.code.block, field.element
        if not field.is_array and field.struct:
            line(f"m{depth + 1} = {source}")
            self._struct(field.struct, depth + 1, put)
        else:
            written_by = _WRITTEN_BY["array" if field.is_array else field.type][self._is_compact(field)]
            line(f"{put}({written_by}({source}))")
        if not field.is_array:
            return
        if element.format in wire.INTEGERS:
            line(f"{put}(integers({source}, {element.format!r}))")
        else:
            item = f"m{depth + 1}" if element.struct else f"x{depth}"
            with block(f"for {item} in {source}:"):
                if element.struct:
                    self._struct(element.struct, depth + 1, put)
                else:
                    self._value(element, item, depth, put)

    def _tags(self, fields: list[Field], depth: int, put: str) -> None:
        line, block = self.code.line, self.code.block
        if not fields:
            line(f"{put}({_ZERO!r})")
            return
        line(f"tags{depth} = []")
        for field in fields:
            with block(f"if {_differs(field, f'm{depth}.{field.name}')}:"):
                line(f"parts{depth} = []; put{depth} = parts{depth}.append")
                self._value(field, f"m{depth}.{field.name}", depth, f"put{depth}")
                line(f"tags{depth}.append(tagged({field.tag}, parts{depth}))")
        line(f"{put}(tag_section(tags{depth}) if tags{depth} else {_ZERO!r})")

    def _is_compact(self, field: Field) -> bool:
        return self.is_flexible and field.may_be_compact

    def _null(self, field: Field) -> bytes:
        if field.struct and not field.is_array:
            return b"\xff"
        if self._is_compact(field):
            return _ZERO
        return b"\xff\xff" if field.type == "string" and not field.is_array else b"\xff\xff\xff\xff"


def _differs(field: Field, source: str) -> str:
    """Return an expression that is true if the value at `source` is not the default."""
    if field.default is None:
        return f"{source} is not None"
    if field.default is not ...:
        return f"{source} != {field.default!r}"
    if field.is_array or field.struct is None:
        return f"{source} != []"
    differences = [_differs(inner, f"{source}.{inner.name}") for inner in field.struct.fields]
    return f"({' or '.join([f'{source} is None', *differences] if field.nullable else differences)})"
