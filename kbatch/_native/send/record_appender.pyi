from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeVar, final

from typing_extensions import Buffer

from kbatch._native.batch.batch_owner import BatchOwner
from kbatch._native.batch.buffer_pool import Waiter
from kbatch._native.batch.delivery import Delivery, DeliveryCallback, Flush
from kbatch._native.codec.record import Header

T = TypeVar("T")

class Refusal(Enum):
    MEMORY = "memory"
    METADATA = "metadata"

TRANSACTION_ENDED: Final[str]

@final
class TopicInfo:
    name: str

class RecordAppender(BatchOwner):
    transaction_count: int
    def append(
        self,
        topic: str,
        partition: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[Header] | None,
        timestamp_ms: int,
        now_ns: int,
        on_delivery: DeliveryCallback | None = None,
        *,
        first_in_line: bool = False,
        in_callback: bool = False,
    ) -> Delivery | Refusal: ...
    def begin_waiting(self, *, goes_first: bool = False) -> Waiter: ...
    def await_memory(
        self, attempt: Callable[[], T | Refusal], timeout: float | None = None, *, goes_first: bool = False
    ) -> T | Refusal: ...
    def begin_flush(self) -> Flush: ...
    def end_flush(self) -> None: ...
    def close(self) -> None: ...
