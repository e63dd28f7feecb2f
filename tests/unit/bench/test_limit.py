"""The limit that encoders are compared with: it copies all bytes and computes the CRC of every piece."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.questions import limit
from kbatch._native.codec.hashes import crc32c

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("size", "piece"), [(1, 4), (4, 4), (5, 4), (12, 4), (1000, 333), (1000, 5000)])
def test_every_byte_is_copied_and_checked_once(
    size: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(number % 251 for number in range(size))
    copied: list[bytes] = []

    def noting(view: Any) -> int:
        copied.append(bytes(view))
        return crc32c(view)

    monkeypatch.setattr(limit, "crc32c", noting)
    limit.CopyAndChecksum(data, piece)()
    assert b"".join(copied) == data
    assert {len(each) for each in copied[:-1]} <= {piece}
    assert len(copied[-1]) <= piece
