"""The limit: the time of the hardware to copy a batch's bytes once and to compute their CRC."""

from __future__ import annotations

import ctypes

from kbatch._native.codec.hashes import crc32c
from kbatch._native.codec.memory import new_memory

_memmove = ctypes.memmove


class CopyAndChecksum:
    """Copy `data` piece by piece into memory allocated like kbatch's output, and compute the CRC of each
    piece while it is in the cache.
    """

    def __init__(self, data: bytes, piece: int) -> None:
        self._data = data
        self._piece = piece
        self._source = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0

    def __call__(self) -> None:
        memory = new_memory(len(self._data))
        target = memoryview(memory)
        address = ctypes.addressof(ctypes.c_char.from_buffer(target))
        for start in range(0, len(self._data), self._piece):
            size = min(self._piece, len(self._data) - start)
            _memmove(address + start, self._source + start, size)
            crc32c(target[start : start + size])
