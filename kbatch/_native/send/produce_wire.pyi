from typing import Any, final

from typing_extensions import Buffer

from kbatch._native.batch.delivery import Completion
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.in_flight import Identity, InFlight, PartitionState

JOINED_BYTES: int

class ProduceFrame:
    node_id: int
    sent_ns: int
    entries: list[InFlight]
    topic_ids: dict[str, bytes]
    def __init__(self, node_id: int, sent_ns: int) -> None: ...
    def admit_new(
        self,
        batches: list[ProducerBatch],
        states: dict[tuple[str, int], PartitionState],
        identity: Identity | None,
        max_in_flight: int,
        oldest_ns: int,
    ) -> bool: ...
    def group_by_topic(self) -> list[str]: ...
    def write(
        self, message: Any, version: int, correlation_id: int, client_id: str | None
    ) -> list[bytes | memoryview]: ...
    def describe(self, version: int) -> None: ...
    def read(self, frame: Buffer) -> AllAccepted | None: ...
    def unanswered(self) -> AllAccepted: ...

@final
class AllAccepted:
    throttle_time_ms: int
    def batches(self) -> list[tuple[InFlight, int, int]]: ...
    def acknowledge(
        self, identity: Identity | None, max_in_flight: int, completed: list[Completion], oldest_ns: int
    ) -> bool: ...
