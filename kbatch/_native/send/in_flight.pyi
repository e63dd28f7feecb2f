from typing import Any, Final, NamedTuple, final

from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch.errors import KafkaError

Gate = tuple[bool, bool, int]

NOTHING: Final[int]
UNKNOWN_NS: Final[int]

class Identity(NamedTuple):
    producer_id: int
    epoch: int

NO_IDENTITY: Final[Identity]
OPEN: Final[Gate]

@final
class InFlight:
    counter: int
    node_id: int
    is_in_flight: bool
    is_ambiguous: bool
    is_set_aside: bool
    is_proved: bool
    last_error: KafkaError | None
    attempt: Any
    def __init__(
        self, state: PartitionState, batch: ProducerBatch, sent_ns: int, counter: int = -1
    ) -> None: ...
    @property
    def state(self) -> PartitionState: ...
    @property
    def batch(self) -> ProducerBatch: ...
    @property
    def number(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def sent_ns(self) -> int: ...
    @property
    def end(self) -> int: ...

@final
class PartitionState:
    topic: str
    partition: int
    key: tuple[str, int]
    topic_id: bytes
    identity: Identity
    next_counter: int
    acked_counter: int
    hole_end: int
    known_ns: int
    transaction: int
    is_doubtful: bool
    is_stopped: bool
    waits_for_identity: bool
    gate: Gate
    def __init__(self, topic: str, partition: int) -> None: ...
    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def in_flight(self) -> list[InFlight]: ...
    @property
    def has_hole(self) -> bool: ...
    @property
    def is_broken(self) -> bool: ...
    def restart(self, identity: Identity, counter: int) -> None: ...
    def begin_topic(self, topic_id: bytes) -> None: ...
    def begin_leader(self, leader: int, leader_epoch: int) -> None: ...
    def doubt_leader(self) -> None: ...
    def is_known_since(self, oldest_ns: int) -> bool: ...
    def find(self, batch: ProducerBatch) -> InFlight | None: ...
    def add(self, batch: ProducerBatch, now_ns: int, *, is_numbered: bool = True) -> InFlight: ...
    def split(self, entry: InFlight, parts: list[ProducerBatch]) -> None: ...
    def forget(self, entry: InFlight) -> bool: ...
    def acknowledge(self, entry: InFlight, oldest_ns: int) -> None: ...
    def gate_under(self, identity: Identity | None, max_in_flight: int, oldest_ns: int) -> Gate: ...
