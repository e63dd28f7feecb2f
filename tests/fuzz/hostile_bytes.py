"""The campaign of hostile bytes: the duties of every reader for every mutant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

import kbatch
from tests.fuzz import campaign, mutator

BLOCK_CASES = 20_000
MAX_DECOMPRESSED_BYTES = 1 << 20
# What a process may come to need above what it has once it is warm. A batch has 1 MiB of records at most;
# a decoder that trusts a length or a count allocates 2 GiB.
GROWTH_BYTES = 96 << 20
WARMING_CASES = 500
_REBASED_TO = 7

Fields = tuple[int, int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def read_objects(data: Any) -> list[Fields]:
    return [
        (record.offset, record.timestamp_ms, record.key, record.value, record.headers)
        for batch in kbatch.decode(data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
        for record in batch
    ]


def read_columns(data: object) -> list[Fields]:
    table = kbatch.decode_arrow(data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
    headers = [
        tuple((header["key"], header["value"]) for header in row) if row else ()
        for row in table["headers"].to_pylist()
    ]
    timestamps = table["timestamp"].cast(pa.int64()).to_pylist()
    columns = (table[name].to_pylist() for name in ("key", "value"))
    return list(zip(table["offset"].to_pylist(), timestamps, *columns, headers, strict=True))


def verdict(reader: Callable[[object], list[Fields]], data: object) -> list[Fields] | None:
    """Return what was read; None if the reader calls it corrupt. Any other exception is a finding."""
    try:
        return reader(data)
    except kbatch.CorruptRecordError as error:
        assert str(error)
        return None


def judge(data: bytes, turn: int = 0) -> str:
    """Return "valid", "cut off" or "corrupt", on which all readers agree for any object with the bytes."""
    held = (data, bytearray(data), memoryview(data))
    records = verdict(read_objects, held[turn % 3])
    assert verdict(read_columns, held[(turn + 1) % 3]) == records
    try:
        rebased = kbatch.rebase(held[(turn + 2) % 3], _REBASED_TO)
    except kbatch.CorruptRecordError:
        pass
    else:
        assert rebased == _REBASED_TO.to_bytes(8, "big") + data[8:]
        moved = verdict(read_objects, rebased)
        if records is not None and moved is not None:
            assert [record[1:] for record in moved] == [record[1:] for record in records]
    if records is None:
        return "corrupt"
    return "valid" if records else "cut off"


def play(run: campaign.Run) -> None:
    """Check a block's mutants."""
    campaign.play_bounded(run, lambda run: run.judge(_cases(run)), WARMING_CASES, GROWTH_BYTES)


def _cases(run: campaign.Run) -> Iterator[campaign.Case]:
    for number, mutant in enumerate(mutator.mutants(run.block, run.cases)):
        yield mutant.mutation, mutant.data, partial(judge, mutant.data, number)
