"""Hashes of columns and digests of rows, against the plain functions and by their laws."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch._native.arrow.row_hashes import digest_rows, hash_keys
from tests.oracle import plain

TYPES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())]
some_bytes = st.none() | st.binary(max_size=20)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("partition", pa.int32()),
    ]
)
rows_strategy = st.lists(
    st.fixed_dictionaries(
        {
            "key": some_bytes,
            "value": some_bytes,
            "headers": st.lists(
                st.fixed_dictionaries({"key": st.text(max_size=3), "value": some_bytes}), max_size=2
            ),
            "timestamp": st.none() | st.integers(0, 10**12).map(lambda ms: ms * 1000),
            "partition": st.none() | st.integers(0, 100),
        }
    ),
    max_size=20,
)


@given(
    keys=st.lists(some_bytes, max_size=40),
    kind=st.sampled_from(TYPES),
    cut=st.integers(0, 5),
    partitions=st.integers(1, 50),
)
def test_keys_hash_as_in_java(keys: list[bytes | None], kind: Any, cut: int, partitions: int) -> None:
    column = (
        pa.array(keys, pa.binary()).cast(kind) if kind != TYPES[-1] else pa.array(keys).dictionary_encode()
    )
    table = pa.table({"key": pa.array(keys, pa.binary()) if column is None else column}).slice(cut)
    kept = keys[cut:]
    hashes = np.frombuffer(hash_keys(table, "key"), np.int32).tolist()
    assert hashes == [0 if key is None else plain.murmur2(key) for key in kept]
    places = np.frombuffer(hash_keys(table, "key", partitions), np.int32).tolist()
    assert places == [0 if key is None else plain.partition_for_key(key, partitions) for key in kept]


def test_many_keys_in_several_batches() -> None:
    keys = [b"%d" % number for number in range(10_000)]
    table = pa.Table.from_batches(pa.table({"k": keys}).to_batches(max_chunksize=3000))
    hashes = np.frombuffer(hash_keys(table, "k"), np.int32)
    assert hashes.tolist() == [plain.murmur2(key) for key in keys]


def test_wrong_arguments() -> None:
    table = pa.table({"k": pa.array([1], pa.int32())})
    with pytest.raises(TypeError):
        hash_keys(table, "k")
    with pytest.raises(ValueError, match="'key'"):
        hash_keys(table, "key")
    with pytest.raises(ValueError, match="partitions must be 1 or more"):
        hash_keys(table, "k", -1)


@given(rows=rows_strategy, cut=st.integers(0, 20), seed=st.randoms())
def test_digest_knows_no_order_and_no_batches(
    rows: list[dict[str, Any]], cut: int, seed: random.Random
) -> None:
    shuffled = rows.copy()
    seed.shuffle(shuffled)
    whole = digest_rows(pa.Table.from_pylist(rows, SCHEMA), "t")
    parts = [pa.Table.from_pylist(part, SCHEMA) for part in (shuffled[:cut], shuffled[cut:])]
    assert sum(digest_rows(part, "t") for part in parts) % 2**64 == whole
    sliced = pa.Table.from_pylist(rows, SCHEMA).slice(cut)
    assert digest_rows(sliced, "t") == digest_rows(pa.Table.from_pylist(rows[cut:], SCHEMA), "t")


@given(rows=rows_strategy, other=rows_strategy)
def test_other_rows_have_another_digest(rows: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    kinds = [sorted(repr(sorted(row.items())) for row in each) for each in (rows, other)]
    digests = [digest_rows(pa.Table.from_pylist(each, SCHEMA), "t") for each in (rows, other)]
    assert (digests[0] == digests[1]) == (kinds[0] == kinds[1])


def test_what_belongs_to_a_row() -> None:
    rows: list[dict[str, Any]] = [
        {"value": b"ab"},
        {"value": b""},
        {"value": None},
        {"key": b"ab", "value": None},
        {"key": b"a", "value": b"b"},
        {"key": b"", "value": b"ab"},
        {"value": b"ab", "timestamp": 0},
        {"value": b"ab", "partition": 0},
        {"value": b"ab", "headers": [{"key": "", "value": None}]},
        {"value": b"ab", "headers": [{"key": "", "value": b""}]},
    ]
    tables = [pa.Table.from_pylist([{"headers": [], **row}], SCHEMA) for row in rows]
    digests = [digest_rows(table, topic) for table in tables for topic in ("t", "u")]
    assert len(set(digests)) == len(digests)
