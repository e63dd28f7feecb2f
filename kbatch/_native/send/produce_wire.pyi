from typing import Any, final

from typing_extensions import Buffer

from kbatch._native.send.in_flight import InFlight

JOINED_BYTES: int
VERSIONS: range

class ProduceFrame:
    node_id: int
    sent_ns: int
    entries: list[InFlight]
    topic_ids: dict[str, bytes]
    def __init__(self, node_id: int, sent_ns: int) -> None: ...
    def group_by_topic(self) -> list[str]: ...
    def write(
        self, message: Any, version: int, correlation_id: int, client_id: str | None
    ) -> list[bytes | memoryview]: ...
    def describe(self, version: int) -> None: ...
    def read(self, frame: Buffer) -> AllAccepted | None: ...

@final
class AllAccepted:
    throttle_time_ms: int
    def batches(self) -> list[tuple[InFlight, int, int]]: ...
