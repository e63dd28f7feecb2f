"""Plans of messages: a class and a version, described from the tables for _native.io.struct_plan."""

from collections.abc import Iterator
from functools import cache
from sys import intern
from typing import Any

from kbatch._native.io.struct_plan import KINDS, StructPlan
from kbatch.protocol.schema import Field, StructSpec
from kbatch.protocol.structs import Message, Struct, check_version


@cache
def plan_of(kind: type[Message], version: int) -> StructPlan | None:
    """Return the plan of a message, or None if there can be none. Raise UnsupportedVersionError."""
    check_version(kind, version)
    if all(_is_usual(field, version) for field in _fields(kind._spec, version)):
        return _Planner(kind, version).plan(kind, kind._spec)
    return None


def _fields(spec: StructSpec, version: int) -> Iterator[Field]:
    """Yield the fields that may be on the wire without a tag."""
    for field in spec.layout(version).regular:
        yield field
        if field.struct is not None:
            yield from _fields(field.struct, version)


def _is_usual(field: Field, version: int) -> bool:
    if field.struct is None:
        return field.type in KINDS
    return field.is_array or version not in field.nullable


class _Planner:
    """Build the plans of one message."""

    def __init__(self, kind: type[Message], version: int) -> None:
        self._kind = kind
        self._version = version
        self._is_flexible = version >= kind.flexible_from

    def plan(self, kind: type[Struct], spec: StructSpec) -> StructPlan:
        layout = spec.layout(self._version)
        not_ignored = [field for field in layout.absent if not field.ignorable]
        return StructPlan(
            kind,
            [self._step(field) for field in layout.regular],
            [self._default(field) for field in (*layout.absent, *layout.tagged)],
            [self._default(field) for field in (*not_ignored, *layout.tagged)],
            self._is_flexible,
        )

    def _step(self, field: Field) -> tuple[str, str | StructPlan, bool, bool, bool]:
        kind: str | StructPlan = field.type
        if field.struct is not None:
            kind = self.plan(self._class_of(field.struct), field.struct)
        is_compact = self._is_flexible and field.may_be_compact
        return intern(field.name), kind, field.is_array, self._version in field.nullable, is_compact

    def _default(self, field: Field) -> tuple[str, Any]:
        """Return the default: `list` for an empty one, the plan of a struct for one of defaults."""
        if field.default is not ...:
            return intern(field.name), field.default
        if field.is_array or field.struct is None:
            return intern(field.name), list
        inner = [self._default(each) for each in field.struct.fields]
        return intern(field.name), StructPlan(self._class_of(field.struct), [], inner, inner, False)

    def _class_of(self, spec: StructSpec) -> type[Struct]:
        return self._kind._structs[spec.name]
