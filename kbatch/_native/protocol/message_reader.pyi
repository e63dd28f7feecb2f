from enum import IntEnum
from typing import Any

class StepKind(IntEnum):
    NEEDS = 0
    BOOL = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT16 = 6
    UINT32 = 7
    FLOAT64 = 8
    UUID = 9
    TEXT = 10
    BYTES = 11
    RECORDS = 12
    ARRAY = 13
    STRUCT = 14
    DEFAULT = 15
    EMPTY_ARRAY = 16
    NEW_STRUCT = 17
    TAGGED = 18
    NO_TAGS = 19
    PASS = 20
    PASS_TEXT = 21
    PASS_BYTES = 22
    PASS_VALUES = 23
    PASS_ARRAY = 24

class StructReader:
    def __init__(self, kind: type[Any] | None, steps: list[Any]) -> None: ...

class MessageReader:
    def __init__(self, name: str, root: StructReader, paths: list[str], repeated_count: int) -> None: ...
    def read(self, view: memoryview, start: int) -> tuple[Any, int]: ...
