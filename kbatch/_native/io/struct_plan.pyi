from typing import Any, final

from typing_extensions import Buffer

KINDS: dict[str, tuple[int, int, bool]]

@final
class StructPlan:
    def __init__(
        self,
        kind: type,
        fields: list[tuple[str, str | StructPlan, bool, bool, bool]],
        others: list[tuple[str, Any]],
        unwritten: list[tuple[str, Any]],
        is_flexible: bool,
    ) -> None: ...
    def read(self, data: Buffer, pos: int) -> tuple[Any, int] | None: ...
    def frame(self, head: bytes, message: object) -> bytes | None: ...
