from typing import final

from kbatch._native.batch.producer_batch import ProducerBatch

SMALL_BYTES: int
BACKLOG: int

@final
class SealQueue:
    @property
    def thread_count(self) -> int: ...
    def seal(self, batch: ProducerBatch) -> None: ...
    def work(self) -> None: ...
    def stop(self) -> None: ...
