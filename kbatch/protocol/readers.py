"""Readers of messages: a Python function is generated and compiled for each class and version.

The reader of DescribeTransactionsRequest, version 0, is

    def read(data, pos):
        size = len(data)
        m0 = new(DescribeTransactionsRequest)
        n = data[pos] - 1; pos += 1
        if n > 126: n, pos = long_length(data, pos, n)
        if n > size - pos: refuse_length(n, 1, size - pos)
        if n < 0: raise ValueError(NULL)
        m0.transactional_ids = a0 = []
        for i0 in range(n):
            n = data[pos] - 1; pos += 1
            if 0 <= n < 127 and n <= size - pos:
                x0 = data[pos:pos + n].decode(); pos += n
            else:
                if n > 126: n, pos = long_length(data, pos, n)
                if n > size - pos: refuse_length(n, 1, size - pos)
                if n < 0: raise ValueError(NULL)
                x0 = text(data[pos:pos + n]); pos += n
            a0.append(x0)
        pos = skip_tags(data, pos) if data[pos] else pos + 1
        return m0, pos

Nested structs are read in place, in nested loops; the number in a name is the depth. The input is bytes, or
a view, so struct, slices and indices all see its end: no step trusts a length before comparing it with the
rest. Each line knows its field, so an error can name the field.

A reader may pass over arrays that its caller has no use for (`unread`): they are left at their defaults.
Elements that come again in the next array, as settings do from topic to topic (`repeated`), are known by
their bytes: where those of the element at the same place of the array before stand, it is that object. The
bytes of an element say where it ends, so nothing else can begin with them.
"""

import struct
from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import NamedTuple

from kbatch.protocol import wire
from kbatch.protocol.schema import Field, StructSpec
from kbatch.protocol.source import GeneratedFunction
from kbatch.protocol.structs import Message, check_version

_NAMES = {
    "LEFT_OVER": "its value ends before or after its tagged field",
    "NULL": "null is not allowed",
    "integers": wire.read_integers,
    "long_length": wire.read_long_length,
    "new": object.__new__,
    "next_tag": wire.read_tag,
    "null_marker": wire.read_null_marker,
    "refuse_length": wire.refuse_length,
    "skip_tags": wire.skip_tags,
    "text": wire.read_text,
    "uvarint": wire.read_uvarint,
}
_CONVERTED = {
    "string": "text(data[pos:pos + n])",
    "bytes": "bytes(data[pos:pos + n])",
    "records": "data[pos:pos + n]",
}


class Reader(NamedTuple):
    """A reader: `read(data, pos)` returns the message and the position after it. `paths` names the field of
    each line, with `{i0}` for the index in the local i0. The data are a view, or bytes if it `wants_bytes`:
    texts in them are read twice as fast, but records must be slices of a view.
    """

    read: Callable[[bytes | memoryview, int], tuple[Message, int]]
    paths: list[str]
    wants_bytes: bool


@cache
def reader(
    kind: type[Message],
    version: int,
    unread: frozenset[str] = frozenset(),
    repeated: frozenset[str] = frozenset(),
) -> Reader:
    """Return the reader of a version, compiled at the first call; `unread` are names of arrays that it passes
    over, in any struct, and `repeated` those of arrays of structs whose equal elements may be one object.
    Raise UnsupportedVersionError.
    """
    check_version(kind, version)
    source = _ReaderSource(kind, version, unread, repeated)
    read = source.code.function(f"<reader of {kind.__name__} v{version}>")
    return Reader(read, source.code.paths, source.wants_bytes)


class _ReaderSource:
    def __init__(
        self, kind: type[Message], version: int, unread: frozenset[str], repeated: frozenset[str]
    ) -> None:
        self.kind = kind
        self.version = version
        self.unread = unread
        self.repeated = repeated
        self.has_records = _has_records(kind._spec, version)
        self.wants_bytes = False
        self.is_flexible = version >= kind.flexible_from
        self.code = GeneratedFunction("def read(data, pos):", _NAMES)
        self.code.line("size = len(data)")
        for name in sorted(repeated):
            self.code.line(f"before_{name} = []")
        self._struct(kind._spec, 0, "")
        self.code.line("return m0, pos")

    def _struct(self, spec: StructSpec, depth: int, path: str) -> None:
        """Read a struct into the local m and its depth."""
        layout = spec.layout(self.version)
        me = self._new(spec, depth)
        self._defaults([*layout.absent, *layout.tagged], depth)
        for has_width, fields in groupby(layout.regular, lambda field: field.format is not None):
            if has_width:
                self._fixed([(f"{me}.{field.name}", field, _join(path, field.name)) for field in fields])
            else:
                for field in fields:
                    if field.name in self.unread:
                        self._pass_over(field, depth, _join(path, field.name))
                        self._defaults([field], depth)
                    else:
                        self._variable(field, f"{me}.{field.name}", depth, _join(path, field.name))
        if self.is_flexible:
            self._tags(layout.tagged, depth, path)

    def _new(self, spec: StructSpec, depth: int) -> str:
        name = self.code.name(spec.name, self.kind._structs.get(spec.name, self.kind))
        self.code.line(f"m{depth} = new({name})")
        return f"m{depth}"

    def _defaults(self, fields: list[Field], depth: int) -> None:
        for field in fields:
            value = "[]" if field.default is ... else repr(field.default)
            if field.default is ... and field.struct and not field.is_array:
                value = self._new(field.struct, depth + 1)
                self._defaults(list(field.struct.fields), depth + 1)
            self.code.line(f"m{depth}.{field.name} = {value}")

    def _fixed(self, fields: list[tuple[str, Field, str]]) -> None:
        """Read adjacent fixed-width values, each with its target and path, by one call of struct."""
        code = "".join(field.format or "" for _, field, _ in fields)
        layout = struct.Struct(f">{code}")
        unpack = self.code.name(f"unpack_{code.replace('?', 't')}", layout.unpack_from)
        targets = ", ".join(target for target, _, _ in fields)
        self.code.line(f"{targets}, = {unpack}(data, pos); pos += {layout.size}", fields[0][2])

    def _value(self, field: Field, target: str, depth: int, path: str) -> None:
        if field.format:
            self._fixed([(target, field, path)])
        else:
            self._variable(field, target, depth, path)

    def _variable(self, field: Field, target: str, depth: int, path: str) -> None:
        if field.struct and not field.is_array:
            if self.version in field.nullable:
                self.code.line("n = -null_marker(data, pos); pos += 1", path)
        elif field.type == "string" and not field.is_array and self._is_compact(field):
            self._short_text(field, target, depth, path)
            return
        else:
            self._length(field, path)
        self._after_length(field, target, depth, path)

    def _short_text(self, field: Field, target: str, depth: int, path: str) -> None:
        """Read a text, most of which are shorter than 127 bytes, by one comparison."""
        line, block = self.code.line, self.code.block
        line("n = data[pos] - 1; pos += 1", path)
        with block("if 0 <= n < 127 and n <= size - pos:", path):
            self.wants_bytes |= not self.has_records
            text = "str(data[pos:pos + n], 'utf-8')" if self.has_records else "data[pos:pos + n].decode()"
            line(f"{target} = {text}; pos += n", path)
        with block("else:"):
            self._rest_of_length(field, path)
            self._after_length(field, target, depth, path)

    def _after_length(self, field: Field, target: str, depth: int, path: str) -> None:
        """Read the value after the length, or a null."""
        line, block = self.code.line, self.code.block
        if self.version not in field.nullable:
            if not field.struct or field.is_array:
                line("if n < 0: raise ValueError(NULL)", path)
            self._content(field, target, depth, path)
            return
        with block("if n < 0:"):
            line(f"{target} = None")
        with block("else:"):
            self._content(field, target, depth, path)

    def _content(self, field: Field, target: str, depth: int, path: str) -> None:
        """Read the value after the length, which is in the local n."""
        line, block, element = self.code.line, self.code.block, field.element
        if not field.is_array:
            if field.struct:
                self._struct(field.struct, depth + 1, path)
                line(f"{target} = m{depth + 1}")
            else:
                line(f"{target} = {_CONVERTED[field.type]}; pos += n", path)
        elif element.format in wire.INTEGERS:
            width = struct.calcsize(f">{element.format}")
            few = self.code.name(f"few_{element.format}", wire.FEW_INTEGERS[element.format])
            many = f"integers(data, pos, n, {element.format!r})"
            line(f"{target} = list({few}[n](data, pos)) if n < {wire.FEW} else {many}", path)
            line(f"pos += {width} * n")
        else:
            line(f"{target} = a{depth} = []")
            item = f"m{depth + 1}" if element.struct else f"x{depth}"
            with block(f"for i{depth} in range(n):"):
                item_path = f"{path}[{{i{depth}}}]"
                if element.struct and field.name in self.repeated:
                    self._repeated(field.name, element.struct, depth, item_path)
                elif element.struct:
                    self._struct(element.struct, depth + 1, item_path)
                else:
                    self._value(element, item, depth, item_path)
                line(f"a{depth}.append({item})")

    def _repeated(self, name: str, spec: StructSpec, depth: int, path: str) -> None:
        """Take the struct from the array before, or read it; `before` has bytes and object by the index."""
        line, block, before = self.code.line, self.code.block, f"before_{name}"
        line(f"b{depth}, m{depth + 1} = {before}[i{depth}] if i{depth} < len({before}) else (None, None)")
        with block(f"if b{depth} is not None and data[pos:pos + len(b{depth})] == b{depth}:", path):
            line(f"pos += len(b{depth})")
        with block("else:"):
            line(f"s{depth} = pos")
            self._struct(spec, depth + 1, path)
            line(f"{before}[i{depth}:i{depth} + 1] = [(bytes(data[s{depth}:pos]), m{depth + 1})]")

    def _pass_over(self, field: Field, depth: int, path: str) -> None:
        """Pass over a string, bytes, an array of values with a width, or of structs of all these."""
        line = self.code.line
        self._length(field, path)
        if not field.is_array:
            line("if n > 0: pos += n", path)
            return
        if field.element.format:
            line(f"if n > 0: pos += {self._smallest(field.element)} * n", path)
            return
        assert field.element.struct is not None, f"{path} must be an array of structs to be passed over"
        regular = field.element.struct.layout(self.version).regular
        with self.code.block(f"for i{depth} in range(n):"):
            for has_width, fields in groupby(regular, lambda each: each.format is not None):
                if has_width:
                    line(f"pos += {sum(map(self._smallest, fields))}", path)
                else:
                    for each in fields:
                        self._pass_over(each, depth + 1, _join(f"{path}[{{i{depth}}}]", each.name))
            if self.is_flexible:
                line("pos = skip_tags(data, pos) if data[pos] else pos + 1", path)

    def _tags(self, fields: list[Field], depth: int, path: str) -> None:
        line, block = self.code.line, self.code.block
        section = _join(path, "tagged fields")
        if not fields:
            line("pos = skip_tags(data, pos) if data[pos] else pos + 1", section)
            return
        tag, end = f"tag{depth}", f"end{depth}"
        with block("if data[pos]:", section):
            line(f"n, pos = uvarint(data, pos); {tag} = -1", section)
            with block("for _ in range(n):"):
                line(f"{tag}, {end}, pos = next_tag(data, pos, {tag})", section)
                for field in fields:
                    with block(f"{'if' if field is fields[0] else 'elif'} {tag} == {field.tag}:"):
                        self._value(field, f"m{depth}.{field.name}", depth, _join(path, field.name))
                        line(f"if pos != {end}: raise ValueError(LEFT_OVER)", _join(path, field.name))
                with block("else:"):
                    line(f"pos = {end}")
        with block("else:"):
            line("pos += 1")

    def _length(self, field: Field, path: str) -> None:
        """Read a length into the local n, and compare it with the rest."""
        line = self.code.line
        if self._is_compact(field):
            line("n = data[pos] - 1; pos += 1", path)
        else:
            code = "h" if field.type == "string" and not field.is_array else "i"
            layout = struct.Struct(f">{code}")
            unpack = self.code.name(f"unpack_{code}", layout.unpack_from)
            line(f"n, = {unpack}(data, pos); pos += {layout.size}", path)
        self._rest_of_length(field, path)

    def _rest_of_length(self, field: Field, path: str) -> None:
        """Read what follows the first byte of a compact length, and compare the length with the rest."""
        line, smallest = self.code.line, self._smallest(field.element) if field.is_array else 1
        if self._is_compact(field):
            line("if n > 126: n, pos = long_length(data, pos, n)", path)
        negative = "" if self._is_compact(field) else "n < -1 or "
        least = f"n * {smallest}" if smallest > 1 else "n"
        line(f"if {negative}{least} > size - pos: refuse_length(n, {smallest}, size - pos)", path)

    def _smallest(self, field: Field) -> int:
        """Return the minimum bytes of a value."""
        if field.format:
            return struct.calcsize(f">{field.format}")
        if field.struct and not field.is_array:
            if self.version in field.nullable:
                return 1
            return sum(map(self._smallest, field.struct.layout(self.version).regular)) + self.is_flexible
        if self._is_compact(field):
            return 1
        return 2 if field.type == "string" and not field.is_array else 4

    def _is_compact(self, field: Field) -> bool:
        return self.is_flexible and field.may_be_compact


def _has_records(spec: StructSpec, version: int) -> bool:
    """True if a struct of this version, or one in it, has records."""
    present = [field for field in spec.fields if version in field.versions]
    return any(
        _has_records(field.struct, version) if field.struct else field.type == "records" for field in present
    )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
