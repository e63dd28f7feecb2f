from collections.abc import Iterable
from typing import final

from typing_extensions import Buffer

Header = tuple[str, Buffer | None]

@final
class Record:
    offset: int
    timestamp_ms: int | None
    key: Buffer | None
    value: Buffer | None
    headers: tuple[Header, ...]
    def __init__(
        self,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[Header] = (),
        timestamp_ms: int | None = None,
        offset: int = -1,
    ) -> None: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
