from typing import final

from typing_extensions import Buffer

# (null count, validity, offsets or views, data ...)
BinaryBuffers = tuple[int, Buffer | None, Buffer, *tuple[Buffer, ...]]

@final
class RecordChunk:
    row_count: int
    header_count: int
    offsets: Buffer | None
    timestamps_ms: Buffer | None
    leader_epochs: Buffer | None
    key: BinaryBuffers | None
    value: BinaryBuffers | None
    header_lists: Buffer | None
    header_key: BinaryBuffers | None
    header_value: BinaryBuffers | None
    as_views: bool
    is_log_append_time: bool
