from typing import final

from kbatch._native.batch.batch_owner import ListedBatch

class Partition:
    topic: str
    partition: int

class BatchBytes(ListedBatch): ...

@final
class BatchPiece:
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
