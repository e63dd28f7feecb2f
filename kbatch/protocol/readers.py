"""Readers of messages: the steps that read a class in a version, made from its table.

The native MessageReader takes the steps, which fill a struct's fields one after the other. A step is of one
kind:

    NEEDS                         so many bytes must be left, for the fixed widths that follow
    BOOL ... UUID                 a value of a fixed width
    TEXT, BYTES, RECORDS, ARRAY   a length, and what has it
    STRUCT                        a struct in place; after a marker if it may be null
    DEFAULT, EMPTY_ARRAY, NEW_STRUCT   the default of a field that the version lacks, or that is tagged
    TAGGED                        the tagged fields
    NO_TAGS                       tagged fields, none of which is known
    PASS, PASS_TEXT, PASS_BYTES, PASS_VALUES, PASS_ARRAY   fields that the caller has no use for

A reader may pass over arrays that its caller has no use for (`unread`): they are left at their defaults.
Elements that come again in the next array, as settings do from topic to topic (`repeated`), are known by
their bytes: where those of the element at the same place of the array before stand, it is that object. The
bytes of an element say where it ends, so nothing else can begin with them.
"""

import struct
from functools import cache
from itertools import groupby
from typing import NamedTuple

from kbatch._native.protocol.message_reader import MessageReader, StepKind, StructReader
from kbatch.protocol.schema import Field, StructSpec
from kbatch.protocol.structs import Message, Struct, check_version

# The kinds of values, by their types in the tables.
_KINDS = {
    "bool": StepKind.BOOL,
    "int8": StepKind.INT8,
    "int16": StepKind.INT16,
    "int32": StepKind.INT32,
    "int64": StepKind.INT64,
    "uint16": StepKind.UINT16,
    "uint32": StepKind.UINT32,
    "float64": StepKind.FLOAT64,
    "uuid": StepKind.UUID,
    "string": StepKind.TEXT,
    "bytes": StepKind.BYTES,
    "records": StepKind.RECORDS,
}


class Step(NamedTuple):
    """A step, as StructReader takes it.

    Attributes
    ----------
    kind : StepKind
    is_compact : bool
        True if its length is a varint.
    is_nullable : bool
    element : StepKind
        Of an array: STRUCT, or the kind of its values.
    slot : str or None
        The name of the field.
    width : int
        The bytes of a value of a fixed width; of an array the fewest of an element.
    path : int
        Which of the reader's paths names the field in errors.
    depth : int
        How many structs the field is in.
    tag : int
        The number of a tagged field, or -1.
    repeated : int
        Which of the arrays of repeated elements it is, or -1.
    value : object
        A default.
    inner : StructReader or None
        The steps of the struct, of an element, of tagged fields or of what is passed over.
    """

    kind: StepKind
    is_compact: bool = False
    is_nullable: bool = False
    element: StepKind = StepKind.NEEDS
    slot: str | None = None
    width: int = 0
    path: int = 0
    depth: int = 0
    tag: int = -1
    repeated: int = -1
    value: object = None
    inner: StructReader | None = None


@cache
def reader(
    kind: type[Message],
    version: int,
    unread: frozenset[str] = frozenset(),
    repeated: frozenset[str] = frozenset(),
) -> MessageReader:
    """Return the reader of a version; `unread` are names of arrays that it passes over, in any struct, and
    `repeated` those of arrays of structs whose equal elements may be one object. Raise
    UnsupportedVersionError.
    """
    check_version(kind, version)
    return _Steps(kind, version, unread, sorted(repeated)).reader()


class _Steps:
    """The steps of a message, in the making."""

    def __init__(
        self, kind: type[Message], version: int, unread: frozenset[str], repeated: list[str]
    ) -> None:
        self._kind = kind
        self._version = version
        self._unread = unread
        self._repeated = repeated
        self._is_flexible = version >= kind.flexible_from
        self._paths: dict[str, int] = {}

    def reader(self) -> MessageReader:
        root = self._struct(self._kind._spec, 0, "")
        name = f"{self._kind.__name__} v{self._version}"
        return MessageReader(name, root, list(self._paths), len(self._repeated))

    def _struct(self, spec: StructSpec, depth: int, path: str) -> StructReader:
        layout = spec.layout(self._version)
        steps = self._defaults([*layout.absent, *layout.tagged])
        for has_width, fields in groupby(layout.regular, lambda field: field.format is not None):
            if has_width:
                steps += self._fixed(list(fields), path)
                continue
            for field in fields:
                if field.name in self._unread:
                    steps.append(self._passed(field, depth, _join(path, field.name)))
                    steps += self._defaults([field])
                else:
                    steps.append(self._value(field, depth, _join(path, field.name)))
        if self._is_flexible:
            steps.append(self._tags(spec, layout.tagged, depth, path))
        return StructReader(self._class(spec), steps)

    def _class(self, spec: StructSpec) -> type[Struct]:
        return self._kind._structs.get(spec.name, self._kind)

    def _path(self, path: str) -> int:
        return self._paths.setdefault(path, len(self._paths))

    def _defaults(self, fields: list[Field]) -> list[Step]:
        return [self._default(field) for field in fields]

    def _default(self, field: Field) -> Step:
        if field.default is not ...:
            return Step(StepKind.DEFAULT, slot=field.name, value=field.default)
        if field.is_array or field.struct is None:
            return Step(StepKind.EMPTY_ARRAY, slot=field.name)
        inner = StructReader(self._class(field.struct), self._defaults(list(field.struct.fields)))
        return Step(StepKind.NEW_STRUCT, slot=field.name, inner=inner)

    def _fixed(self, fields: list[Field], path: str) -> list[Step]:
        """Return the steps of adjacent values of fixed widths, whose bytes are asked for once."""
        first = self._path(_join(path, fields[0].name))
        needs = Step(StepKind.NEEDS, width=sum(map(self._smallest, fields)), path=first)
        return [needs, *(Step(_KINDS[field.type], slot=field.name) for field in fields)]

    def _value(self, field: Field, depth: int, path: str, slot: str | None = "") -> Step:
        """Return the step of a value by itself."""
        step = Step(
            self._kind_of(field),
            is_compact=self._is_compact(field),
            is_nullable=self._version in field.nullable,
            slot=field.name if slot == "" else slot,
            width=self._smallest(field),
            path=self._path(path),
            depth=depth,
            tag=-1 if field.tag is None else field.tag,
        )
        if not field.is_array:
            inner = self._struct(field.struct, depth + 1, path) if field.struct else None
            return step._replace(inner=inner)
        element, inner = field.element, None
        item_path = f"{path}[{{i{depth}}}]"
        if element.struct:
            inner = self._struct(element.struct, depth + 1, item_path)
        elif not element.format:
            inner = StructReader(None, [self._value(element, depth, item_path, None)])
        return step._replace(
            element=self._kind_of(element),
            width=self._smallest(element),
            inner=inner,
            repeated=self._repeated.index(field.name) if field.name in self._repeated else -1,
        )

    def _tags(self, spec: StructSpec, fields: list[Field], depth: int, path: str) -> Step:
        section = self._path(_join(path, "tagged fields"))
        if not fields:
            return Step(StepKind.NO_TAGS, path=section)
        known = [self._value(field, depth, _join(path, field.name)) for field in fields]
        return Step(StepKind.TAGGED, path=section, inner=StructReader(self._class(spec), known))

    def _passed(self, field: Field, depth: int, path: str) -> Step:
        """Return the step over a string, bytes, an array of values with a width, or of structs of all
        these.
        """
        kind = StepKind.PASS_TEXT if field.type == "string" and not field.is_array else StepKind.PASS_BYTES
        step = Step(kind, is_compact=self._is_compact(field), path=self._path(path), depth=depth)
        if not field.is_array:
            return step
        element = field.element
        step = step._replace(width=self._smallest(element))
        if element.format:
            return step._replace(kind=StepKind.PASS_VALUES)
        assert element.struct is not None, f"{path} must be an array of structs to be passed over"
        steps = []
        regular = element.struct.layout(self._version).regular
        for has_width, fields in groupby(regular, lambda each: each.format is not None):
            if has_width:
                steps.append(Step(StepKind.PASS, width=sum(map(self._smallest, fields))))
            else:
                item_path = f"{path}[{{i{depth}}}]"
                steps += [self._passed(each, depth + 1, _join(item_path, each.name)) for each in fields]
        if self._is_flexible:
            steps.append(Step(StepKind.NO_TAGS, path=self._path(path)))
        return step._replace(kind=StepKind.PASS_ARRAY, inner=StructReader(None, steps))

    def _kind_of(self, field: Field) -> StepKind:
        if field.is_array:
            return StepKind.ARRAY
        return StepKind.STRUCT if field.struct else _KINDS[field.type]

    def _smallest(self, field: Field) -> int:
        """Return the minimum bytes of a value."""
        if field.format:
            return struct.calcsize(f">{field.format}")
        if field.struct and not field.is_array:
            if self._version in field.nullable:
                return 1
            return sum(map(self._smallest, field.struct.layout(self._version).regular)) + self._is_flexible
        if self._is_compact(field):
            return 1
        return 2 if field.type == "string" and not field.is_array else 4

    def _is_compact(self, field: Field) -> bool:
        return self._is_flexible and field.may_be_compact


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
