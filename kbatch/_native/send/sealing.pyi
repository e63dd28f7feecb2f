from typing import final

from kbatch._native.batch.producer_batch import ProducerBatch

SENDER_BYTES: int
LOOP_BYTES: int
CRC_BYTES: int
SMALL_BYTES: int
BACKLOG: int

@final
class SealPolicy:
    def __init__(self, *, by_appender: bool = True, inline_bytes: int = 0) -> None: ...
    @property
    def by_appender(self) -> bool: ...
    @property
    def inline_bytes(self) -> int: ...
    @staticmethod
    def of(compression: str, *, on_loop: bool = False) -> SealPolicy: ...

@final
class SealQueue:
    @property
    def thread_count(self) -> int: ...
    def seal(self, batch: ProducerBatch) -> None: ...
    def work(self) -> None: ...
    def stop(self) -> None: ...
