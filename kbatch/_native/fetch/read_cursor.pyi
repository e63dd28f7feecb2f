from collections.abc import Callable, Iterator
from typing import Any, final

from kbatch._native.codec.record import ConsumerRecord
from kbatch._native.fetch.fetched_batches import FetchedRecords

class ReadCursor:
    # a ConsumerRecord, a LastRead of kbatch.consumer, or None
    last: Any
    iterator: FetchIterator | None
    @property
    def position(self) -> int: ...
    def take(self, records: FetchedRecords, count: int) -> list[ConsumerRecord]: ...

@final
class FetchIterator(Iterator[ConsumerRecord]):
    def __init__(self, cursor: ReadCursor, records: FetchedRecords, count: int) -> None: ...
    def __next__(self) -> ConsumerRecord: ...

@final
class ChainedIterator(Iterator[ConsumerRecord]):
    def __init__(
        self,
        next_iterator: Callable[[], FetchIterator | None],
        quick: Callable[[], FetchIterator | None] | None = None,
    ) -> None: ...
    def __next__(self) -> ConsumerRecord: ...
