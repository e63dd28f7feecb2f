"""Projection: what comes of records before the first one that cannot be read."""

from __future__ import annotations

import pytest

from kbatch._native.fetch.fetched_batches import FetchedRecords
from kbatch.consumer.projection import Projection
from kbatch.errors import DeserializationError
from kbatch.formats.reading import Int64
from tests.oracle import plain


def fetched(*batches: bytes) -> FetchedRecords:
    return FetchedRecords(b"".join(batches), topic="orders", partition=3, from_offset=0)


def batch(base_offset: int, *values: bytes, append_time: bool = False) -> bytes:
    """A chunk has one type of timestamps."""
    rows: list[plain.Row] = [(None, value, (), 1) for value in values]
    return plain.encode(rows, base_offset=base_offset, log_append_time_ms=2 if append_time else None)


def refuse(value: bytes, error: DeserializationError) -> int:
    raise LookupError("no value for this")


def test_error_without_a_row_comes_after_earlier_chunks() -> None:
    projection = Projection(["offset", "value"], "copy", {"value": Int64(errors=refuse)})
    found, fault = projection.batches(fetched(batch(0, bytes(8)), batch(1, b"bad", append_time=True)))
    assert [each["offset"].to_pylist() for each in found] == [[0]]
    assert isinstance(fault, LookupError)


@pytest.mark.parametrize("bad", range(3))
def test_rows_before_the_bad_one_come_with_its_error(bad: int) -> None:
    values = [b"bad" if number == bad else bytes(8) for number in range(4)]
    projection = Projection(["value"], "copy", {"value": Int64()})
    found, fault = projection.batches(fetched(batch(0, *values), batch(4, bytes(8), append_time=True)))
    assert [each.num_rows for each in found] == ([bad] if bad else [])
    assert isinstance(fault, DeserializationError) and fault.offset == bad


def test_corrupt_batch_is_the_fault_after_all_rows() -> None:
    spoiled = bytearray(batch(1, bytes(8)))
    spoiled[-1] ^= 1
    projection = Projection(["value"], "copy", {})
    found, fault = projection.batches(fetched(batch(0, bytes(8)), bytes(spoiled)))
    assert [each.num_rows for each in found] == [1]
    assert "orders-3 at offset 1: CRC-32C" in str(fault)
