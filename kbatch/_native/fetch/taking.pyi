from collections.abc import Callable, Iterator
from typing import Any, final

from kbatch._native.codec.record import ConsumerRecord
from kbatch._native.fetch.fetched_batches import FetchedRecords

class Place:
    # a ConsumerRecord, a LastRead of kbatch.consumer, or None
    last: Any
    lot: Lot | None
    def take(self, records: FetchedRecords, count: int) -> list[ConsumerRecord]: ...

@final
class Lot(Iterator[ConsumerRecord]):
    def __init__(self, place: Place, records: FetchedRecords, count: int) -> None: ...
    def __next__(self) -> ConsumerRecord: ...

@final
class LotIterator(Iterator[ConsumerRecord]):
    def __init__(self, next_lot: Callable[[], Lot | None]) -> None: ...
    def __next__(self) -> ConsumerRecord: ...
