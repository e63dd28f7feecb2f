from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, SupportsIndex, final

from typing_extensions import Buffer

from kbatch._native.batch.delivery import BatchDelivery, Delivery, DeliveryCallback
from kbatch._native.codec.record import Header, Record
from kbatch._native.send.accumulator import RecordAccumulator, Refusal
from kbatch._native.send.encoded_batch import PendingBatch
from kbatch.partitioner import Partitioner

Serialize = Callable[[str, Any, Any], Buffer | None]

@final
class PendingRecord:
    topic: str
    value: Any
    key: Any
    headers: Sequence[Header] | None
    partition: SupportsIndex | None
    timestamp_ms: SupportsIndex | None
    on_delivery: DeliveryCallback | None
    @property
    def transaction(self) -> int: ...
    @property
    def is_serialized(self) -> bool: ...

class RecordSender:
    _gives_way: bool
    _is_giving_way: bool
    _turn_left: int
    _loop_is_running: Callable[[], bool] | None
    _key_topics: set[str] | None
    _value_topics: set[str] | None
    def __init__(
        self,
        accumulator: RecordAccumulator,
        *,
        max_request_size: int = 1048576,
        key_serializer: Serialize | None = None,
        value_serializer: Serialize | None = None,
        partitioner: Partitioner | None = None,
        ignore_keys: bool = False,
    ) -> None: ...
    @property
    def _accumulator(self) -> RecordAccumulator: ...
    @property
    def _slow_count(self) -> int: ...
    @property
    def _refused_count(self) -> int: ...
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Sequence[Header] | None = None,
        partition: SupportsIndex | None = None,
        timestamp_ms: SupportsIndex | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery: ...
    def try_send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Sequence[Header] | None = None,
        partition: SupportsIndex | None = None,
        timestamp_ms: SupportsIndex | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery | None: ...
    def send_many(self, topic: str, records: Iterable[Record | tuple[Any, ...]]) -> list[Delivery]: ...
    def send_batch(
        self,
        topic: str,
        partition: SupportsIndex,
        batch_bytes: Buffer,
        *,
        on_delivery: DeliveryCallback | None = None,
    ) -> BatchDelivery: ...
    def _offer(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Sequence[Header] | None,
        partition: SupportsIndex | None,
        timestamp_ms: SupportsIndex | None,
        on_delivery: DeliveryCallback | None,
        /,
    ) -> Any: ...
    @property
    def _has_to_give_way(self) -> bool: ...
    def _send_on(self, topic: str, iterator: Iterator[Any], deliveries: list[Delivery]) -> Any: ...
    def _append(
        self, record: PendingRecord | PendingBatch, *, first_in_queue: bool = False
    ) -> Delivery | Refusal: ...
    def _serialize(self, record: PendingRecord) -> None: ...
    def _send_slowly(
        self, record: PendingRecord | PendingBatch, refusal: Refusal | None, may_wait: bool
    ) -> Delivery | None: ...
    def _check_here(self) -> None: ...
    def _handle_refused(self, record: PendingRecord | PendingBatch, error: BaseException) -> object: ...
