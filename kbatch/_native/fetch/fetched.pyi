from typing import Any, final

from kbatch._native.fetch.fetched_batches import FetchedRecords

@final
class Fetched:
    # a TopicPartition, a PartitionState and a FrameShare of kbatch.core.consumer
    partition: Any
    state: Any
    share: Any
    generation: int
    records: FetchedRecords | None
    from_offset: int
    next_offset: int
    topic_id: bytes
    last_epoch: int
    is_last: bool
    size_bytes: int
    charged_bytes: int
    def __init__(
        self,
        state: Any,
        records: FetchedRecords | None,
        *,
        from_offset: int,
        next_offset: int,
        is_last: bool,
        last_epoch: int = -1,
        size_bytes: int = 0,
    ) -> None: ...
    def charge(self, share: Any) -> None: ...
    def release(self) -> None: ...
