from typing import NamedTuple, final

from kbatch._native.batch.delivery import Delivery, RecordMetadata

class OffsetRun(NamedTuple):
    first_offset: int
    record_count: int

@final
class BatchDelivery(Delivery):
    @property
    def record_count(self) -> int: ...
    def result(self, timeout: float | None = None) -> RecordMetadata: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def offset_runs(self, timeout: float | None = None) -> list[OffsetRun]: ...
