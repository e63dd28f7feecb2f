from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, SupportsIndex, TypeVar, final

from typing_extensions import Buffer

from kbatch._native.batch.alarm import SenderAlarm
from kbatch._native.batch.buffer_pool import BufferPool, MemoryWaiter
from kbatch._native.batch.delivery import BatchDelivery, Delivery, DeliveryCallback, Flush
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.codec.record import Header
from kbatch._native.io.sensor import SensorGroup
from kbatch._native.send.cluster_view import ClusterView
from kbatch._native.send.in_flight import PartitionState
from kbatch._native.send.sealing import SealPolicy

T = TypeVar("T")

class Refusal(Enum):
    MEMORY = "memory"
    METADATA = "metadata"
    SERIALIZER = "serializer"

TRANSACTION_ENDED: Final[str]

@final
class TopicInfo:
    name: str

@final
class RecordAccumulator:
    memory: BufferPool
    alarm: SenderAlarm
    seal_policy: SealPolicy
    completing: bool
    accepts_directly: bool
    callback_thread_ident: int
    @property
    def transaction_count(self) -> int: ...
    def begin_next_transaction(self) -> None: ...
    @property
    def visited_count(self) -> int: ...
    def __init__(
        self,
        *,
        batch_size: int = 16384,
        buffer_memory: int = 33554432,
        compression: str = "none",
        compression_level: int | None = None,
        linger_ns: int = 5_000_000,
        retry_backoff_ns: int = 100_000_000,
        retry_backoff_max_ns: int = 1_000_000_000,
        delivery_timeout_ns: int = 120_000_000_000,
        transactional: bool = False,
        adaptive_partitioning: bool = True,
        partition_availability_timeout_ns: int = 0,
        seal_policy: SealPolicy | None = None,
        seed: int = 0,
        poison: bool | None = None,
        clock_ns: Callable[[], int] | None = None,
        wake: Callable[[], object] | None = None,
        memory_freed: Callable[[], object] | None = None,
    ) -> None: ...
    def publish(self, view: ClusterView) -> None: ...
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
        first_in_queue: bool = False,
        in_callback: bool = False,
    ) -> Delivery | Refusal: ...
    def append_batch(
        self,
        topic: str,
        partition: SupportsIndex,
        data: Buffer,
        now_ns: int,
        on_delivery: DeliveryCallback | None = None,
        *,
        first_in_queue: bool = False,
        in_callback: bool = False,
    ) -> BatchDelivery | Refusal: ...
    def begin_waiting(self, *, goes_first: bool = False) -> MemoryWaiter: ...
    def await_memory(
        self, attempt: Callable[[], T | Refusal], timeout: float | None = None, *, goes_first: bool = False
    ) -> T | Refusal: ...
    def begin_flush(self) -> Flush: ...
    def end_flush(self) -> None: ...
    def close(self) -> None: ...
    def ready(self, now_ns: int) -> tuple[set[int], int, set[str]]: ...
    def note_ready_node(self, node_id: int, now_ns: int, can_drain: bool) -> None: ...
    def drain(
        self, nodes: Iterable[int], max_size_bytes: int, now_ns: int
    ) -> dict[int, list[ProducerBatch]]: ...
    def take_unsealed(self) -> list[ProducerBatch]: ...
    def reenqueue(
        self, batch: ProducerBatch, now_ns: int, *, attempted: bool = True, longest_ns: int = ...
    ) -> bool: ...
    def split(self, batch: ProducerBatch) -> list[ProducerBatch]: ...
    @property
    def next_expiry_ns(self) -> int: ...
    def expire(self, now_ns: int) -> list[ProducerBatch]: ...
    def set_gate(
        self,
        topic: str,
        partition: int,
        *,
        muted: bool | None = None,
        fresh_blocked: bool | None = None,
        retry_number: int | None = None,
    ) -> None: ...
    def pass_loads(self) -> None: ...
    def note_state(self, topic: str, partition: int, state: PartitionState) -> None: ...
    def note_sensors(self, topic: str, sensors: SensorGroup) -> None: ...
    def note_topic_id(self, topic: str, topic_id: bytes) -> None: ...
    def batches(self, topic: str, partition: int) -> list[ProducerBatch]: ...
    def incomplete_batches(self) -> list[ProducerBatch]: ...
    @property
    def has_undrained(self) -> bool: ...
    def has_undrained_for(self, node: int) -> bool: ...
    def counters(self, topic: str | None = None) -> dict[str, int]: ...
    @property
    def split_count(self) -> int: ...
    @property
    def reenqueued_count(self) -> int: ...
    @property
    def incomplete_count(self) -> int: ...
