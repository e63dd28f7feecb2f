from typing import SupportsIndex, final

from kbatch._native.batch.delivery import DeliveryCallback

@final
class PendingBatch:
    topic: str
    partition: SupportsIndex
    on_delivery: DeliveryCallback | None
    transaction: int
    @property
    def is_checked(self) -> bool: ...
    @property
    def record_count(self) -> int: ...
