from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

from kbatch._native.codec.record import ConsumerRecord
from kbatch._native.fetch.arrivals import Arrivals
from kbatch._native.fetch.fetched import Fetched
from kbatch._native.fetch.fetched_batches import FetchedRecords
from kbatch._native.fetch.read_cursor import FetchIterator, ReadCursor
from kbatch._native.fetch.releases import Releases

# The partitions here are TopicPartitions of kbatch.records.

class LastRead(NamedTuple):
    offset: int
    leader_epoch: int = ...
    topic_id: bytes = ...
    metadata: str = ...

class PolledRecords(NamedTuple):
    partition: Any
    fetch: CompletedFetch
    first_row: int
    row_count: int
    records: list[ConsumerRecord]

@final
class CompletedFetch:
    # a Fetched, or a Moved or Failed of kbatch.core.consumer
    result: Any
    failure: Exception | None
    # a FetchColumns of kbatch.consumer, or None
    columns: Any
    row_count: int
    def __init__(self, result: Any, failure: Exception | None = None) -> None: ...
    @property
    def fetched(self) -> Fetched | None: ...
    @property
    def records(self) -> FetchedRecords | None: ...
    @property
    def first_row(self) -> int: ...
    @property
    def is_busy(self) -> bool: ...
    @property
    def is_used_up(self) -> bool: ...
    @property
    def error(self) -> Exception | None: ...

class QueuedCursor(ReadCursor):
    partition: Any
    generation: int
    is_read: bool
    is_paused: bool
    is_left_out: bool
    # a deque of CompletedFetch
    queue: Any
    @property
    def is_silent(self) -> bool: ...

class FetchBuffer:
    # the cursors are of a subclass of QueuedCursor
    assigned: dict[Any, Any]
    arrivals: Arrivals[Any]
    faulty: set[Any]
    changes: int
    polled_changes: int
    poll_count: int
    due_ns: int
    _round_robin: dict[Any, Any]
    _moved: dict[Any, Any]
    _uncommitted: dict[Any, Any]
    _before: dict[Any, Any]
    _is_iterating: bool
    _wake: Callable[[], object]
    def __init__(self, arrivals: Arrivals[Any], release: Releases, wake: Callable[[], object]) -> None: ...
    def note_change(self) -> None: ...
    def note_quiet(self, *, awaits: bool) -> None: ...
    def note_poll(self, changes: int) -> None: ...
    def note_moved(self, cursor: QueuedCursor) -> None: ...
    def take_moves(self) -> dict[Any, LastRead | ConsumerRecord]: ...
    def begin_iterator(self, cursor: QueuedCursor, records: FetchedRecords, most: int) -> FetchIterator: ...
    def sort(self) -> None: ...
    def drop(self, cursor: QueuedCursor) -> None: ...
    def begun(self) -> Iterator[Any]: ...
    @property
    def has_next(self) -> bool: ...
    def starves(self) -> bool: ...
    def move_to_end(self, cursor: QueuedCursor) -> None: ...
    def discard_head(self, cursor: QueuedCursor) -> Exception | None: ...
    def next_with_record(self, raises: bool) -> Any: ...
    def take_records(self, most: int) -> list[PolledRecords]: ...
