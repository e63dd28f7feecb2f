from collections.abc import Iterable
from typing import Literal, final

from typing_extensions import Buffer

Header = tuple[str, Buffer | None]

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

@final
class ConsumerRecord(Record):
    topic: str
    partition: int
    leader_epoch: int
    topic_id: bytes
    def __init__(
        self,
        topic: str,
        partition: int,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[Header] = (),
        timestamp_ms: int | None = None,
        offset: int = -1,
        leader_epoch: int = -1,
        timestamp_type: Literal["create_time", "log_append_time"] = "create_time",
        topic_id: bytes = ...,
    ) -> None: ...
    @property
    def timestamp_type(self) -> Literal["create_time", "log_append_time"]: ...
