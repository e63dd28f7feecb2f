from typing import final

from typing_extensions import Buffer

@final
class FetchAnswer:
    correlation_id: int
    throttle_time_ms: int
    error_code: int
    session_id: int
    frame_bytes: int
    has_records: bool
    partitions: list[PartitionAnswer]
    node_endpoints: list[tuple[int, str, int, str | None]]

@final
class PartitionAnswer:
    index: int
    topic: str | None
    topic_id: bytes | None
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: int
    diverging_end_offset: int
    leader_id: int
    leader_epoch: int
    preferred_read_replica: int
    aborted: tuple[tuple[int, int], ...] | None
    records: memoryview | None

VERSIONS: range

def read_fetch_answer(frame: Buffer, version: int) -> FetchAnswer | None: ...
