from collections.abc import Iterable, Sequence
from typing import Literal, final

from typing_extensions import Buffer

from kbatch._native.arrow.record_chunks import RecordChunk
from kbatch._native.codec.record import ConsumerRecord
from kbatch.errors import CorruptRecordError

@final
class FetchedRecords:
    topic: str
    topic_id: bytes
    partition: int
    from_offset: int
    to_offset: int
    next_offset: int
    is_past_end: bool
    last_epoch: int
    row_bound: int
    byte_count: int
    needed_bytes: int
    taken_count: int
    position: int
    fault: CorruptRecordError | None
    is_small: bool
    def __init__(
        self,
        records: Buffer,
        *,
        topic: str,
        partition: int,
        from_offset: int,
        to_offset: int = 9223372036854775807,
        aborted: Sequence[tuple[int, int]] | None = None,
        check_crcs: bool = True,
        max_decompressed_bytes: int = 268435456,
        visible_end: int = 9223372036854775807,
        topic_id: bytes = ...,
    ) -> None: ...
    def decode(
        self, columns: Iterable[str], layout: Literal["copy", "view"] = "copy"
    ) -> list[RecordChunk]: ...
    @property
    def is_used_up(self) -> bool: ...
    def take_records(self, count: int) -> list[ConsumerRecord]: ...
    def peek_records(self, count: int) -> list[ConsumerRecord]: ...
    def skip_to(self, offset: int) -> bool: ...
