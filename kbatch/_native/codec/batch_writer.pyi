from collections.abc import Iterable
from typing import Any, final

from typing_extensions import Buffer

from kbatch._native.codec.record import Header, Record

@final
class RecordBatchWriter:
    def __init__(
        self,
        compression: str = "none",
        compression_level: int | None = None,
        *,
        write_limit: int = 2147483647,
        ratio: float = 1.0,
        transactional: bool = False,
        control: bool = False,
        log_append_time_ms: int | None = None,
        delete_horizon_ms: int | None = None,
        base_offset: int = 0,
        partition_leader_epoch: int = -1,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def estimated_bytes(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    def has_room_for(
        self,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[Header] | None = (),
        timestamp_ms: int | None = None,
    ) -> bool: ...
    def append(
        self,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[Header] | None = (),
        timestamp_ms: int | None = None,
        *,
        offset: int | None = None,
    ) -> None: ...
    def seal(self, *, last_offset_delta: int | None = None) -> None: ...
    def stamp(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        base_offset: int | None = None,
    ) -> None: ...
    def getvalue(self) -> bytes: ...
    def abort(self) -> None: ...

def encode(
    # Record, or (key, value[, headers[, timestamp_ms]])
    records: Iterable[Record[Buffer] | tuple[Any, ...]],
    *,
    compression: str = "none",
    compression_level: int | None = None,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes: ...
