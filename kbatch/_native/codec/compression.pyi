from typing_extensions import Buffer

codec_names: tuple[str, ...]
level_ranges: dict[str, tuple[int, int, int | None]]

def compress(data: Buffer, compression: str, compression_level: int | None = None) -> bytes: ...
def decompress(data: Buffer, compression: str, max_decompressed_bytes: int = 268435456) -> bytes: ...
