from typing import final

from typing_extensions import Buffer

Chunk = tuple[int, Buffer, Buffer]
Encoded = tuple[int, Buffer, Buffer, Buffer, Buffer, list[Chunk]]

@final
class TableEncoder:
    def __init__(
        self,
        *,
        partitions: int | None,
        compression: str,
        compression_level: int | None,
        batch_size: int,
        threads: int,
    ) -> None: ...
    def encode(self, data: object, names: dict[str, tuple[str, bool]], closes: bool) -> Encoded: ...
