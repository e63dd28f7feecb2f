from collections.abc import Callable
from typing import Any, final

from kbatch._native.batch.delivery import Completion
from kbatch._native.batch.delivery_queue import DeliveryQueue
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.io.lent import Lent, LentRequest
from kbatch._native.io.sensor import RequestSensors, Sensor
from kbatch._native.io.waker import Waker
from kbatch._native.send.accumulator import RecordAccumulator
from kbatch._native.send.in_flight import Identity

CAN_WAIT: bool

@final
class LaneRequest(LentRequest):
    attempt: Any
    @property
    def batches(self) -> list[ProducerBatch]: ...
    def topic_id(self, topic: str) -> bytes: ...

@final
class Lane:
    def __init__(
        self,
        accumulator: RecordAccumulator,
        *,
        client_id: str,
        transactional_id: str | None = None,
        acks: int,
        request_timeout_ms: int,
        max_in_flight: int,
        max_request_size: int,
        idle_ns: int,
        is_idempotent: bool,
        request_records: Sensor,
        latency: Sensor,
        throttle: Sensor,
        deliver: Callable[[list[Completion]], object],
        on_acknowledged: Callable[[list[ProducerBatch]], object] | None = None,
        queue: DeliveryQueue | None = None,
    ) -> None: ...
    def has_answered(self) -> bool: ...
    def complete(self) -> None: ...
    def complete_without_callbacks(self) -> None: ...
    def begin(
        self,
        identity: Identity,
        *,
        is_changed: bool,
        transaction: int = 0,
        ends_when_answered: bool = False,
    ) -> None: ...
    def lend(
        self,
        node_id: int,
        connection_id: int,
        descriptor: int,
        version: int,
        *,
        next_correlation_id: int,
        queued_bytes: int,
        engine_count: int,
        usable_until_ns: int,
        requests: list[LaneRequest],
        sensors: RequestSensors | None = None,
    ) -> None: ...
    def wait(
        self,
        poller: int,
        waker: Waker,
        deadline_ns: int,
        on_idle: Callable[[], None],
    ) -> list[tuple[int, int]]: ...
    def take_back(self) -> list[Lent[LaneRequest]]: ...
    def unanswered_count(self) -> int: ...
    def take_uses(self) -> tuple[list[tuple[str, int]], list[tuple[int, int]]]: ...
    def step(self, now_ns: int, *, was_rung: bool) -> int: ...
    def late_work_ns(self) -> int: ...
    def late_work_done(self) -> None: ...
    def unsent(self, connection_id: int) -> bytes: ...
    def handed(self, connection_id: int, size: int) -> None: ...
    def written(self, connection_id: int, size: int, now_ns: int) -> bool: ...
    def received(self, connection_id: int, data: bytes | memoryview, now_ns: int) -> bool: ...
