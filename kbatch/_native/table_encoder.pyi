from typing_extensions import Buffer

Chunk = tuple[int, Buffer, Buffer]

class TableEncoder:
    def __init__(
        self,
        *,
        names: dict[str, tuple[str, bool]],
        partitions: int | None,
        compression: str,
        compression_level: int | None,
        batch_size: int,
        threads: int,
    ) -> None: ...
    def encode(self, data: object) -> None: ...
    def finish(self) -> tuple[int, Buffer, Buffer, Buffer, Buffer, list[Chunk]]: ...
