"""Random protocol messages, the same for the same seed; values at their limits are frequent."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, TypeVar

from kbatch.protocol.schema import Field
from kbatch.protocol.structs import Message, Struct

M = TypeVar("M", bound=Message)
# The inclusive limits of integers by the name of their field, where they are narrower than those of the type.
Limits = Mapping[str, tuple[int, int]]

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
FLOATS = (0.0, -0.5, 1e300, 5e-324)
UNSIGNED_BITS = {"uint16": 16, "uint32": 32}
TEXTS = ("", "topic", "\0", "é€😀", "x" * 127, "y" * 126, "é" * 300)
# Around the length from which a writer takes records by the short way, and one with four bytes of length.
RECORD_SIZES = (0, 1, 126, 127, 128, 0x3FFE, 0x3FFF, 0x4000)


def random_message(kind: type[M], version: int, seed: object, limits: Limits | None = None) -> M:
    """Return a message that the version can hold."""
    values = _Values(version, random.Random(f"{kind.__name__} {version} {seed}"), limits or {})
    message: M = values.struct(kind, 0)
    return message


class _Values:
    def __init__(self, version: int, choices: random.Random, limits: Limits) -> None:
        self.version = version
        self.choices = choices
        self.limits = limits

    def struct(self, kind: type[Any], depth: int) -> Any:
        values = {}
        for field in kind._spec.fields:
            is_left_out = field.tag is not None and self.choices.random() < 0.4
            if self.version in field.versions and not is_left_out:
                values[field.name] = self.value(field, kind._structs, depth)
        return kind(**values)

    def value(self, field: Field, structs: dict[str, type[Struct]], depth: int) -> object:
        if self.version in field.nullable and self.choices.random() < 0.2:
            return None
        if field.is_array:
            # Seldom more elements than one byte of a compact length can say.
            count = (
                130 if depth == 0 and self.choices.random() < 0.05 else self.choices.choice((0, 1, 1, 2, 3))
            )
            return [self.value(field.element, structs, depth + 1) for _ in range(count)]
        if field.struct:
            return self.struct(structs[field.type], depth + 1)
        return self.scalar(field)

    def scalar(self, field: Field) -> object:
        choices = self.choices
        if field.type == "bool":
            return choices.random() < 0.5
        if field.type == "string":
            return choices.choice(TEXTS)
        if field.type == "uuid":
            return choices.choice((bytes(16), choices.randbytes(16)))
        if field.type == "bytes":
            return choices.randbytes(choices.choice((0, 1, 126, 127, 300)))
        if field.type == "records":
            return choices.randbytes(choices.choice(RECORD_SIZES))
        if field.type == "float64":
            return choices.choice(FLOATS)
        return self.integer(field)

    def integer(self, field: Field) -> int:
        if bits := BITS.get(field.type):
            low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        else:
            low, high = 0, (1 << UNSIGNED_BITS[field.type]) - 1
        low, high = self.limits.get(field.name, (low, high))
        edges = [value for value in (low, -1, 0, 1, high) if low <= value <= high]
        return self.choices.choice((*edges, self.choices.randint(low, high)))
