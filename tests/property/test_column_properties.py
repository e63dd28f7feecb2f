"""encode_arrow for every column type, layout and container; the oracle says where each record must be."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbatch
from tests.oracle import plain, strategies, tables
from tests.property.test_codec_properties import deterministic, few

BINARY = (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3), pa.null())
TEXT = (pa.string(), pa.large_string(), pa.string_view())
INDICES = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())
DICTIONARIES = (
    *(pa.dictionary(index, pa.binary()) for index in INDICES),
    *(
        pa.dictionary(pa.int32(), kind)
        for kind in (pa.string(), pa.large_binary(), pa.large_string(), pa.binary(3))
    ),
)
KINDS = (*BINARY, *TEXT, *DICTIONARIES)
HEADER_ITEM = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADER_KINDS = (
    pa.list_(HEADER_ITEM),
    pa.large_list(HEADER_ITEM),
    pa.list_(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
    pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])),
    pa.map_(pa.string(), pa.binary()),
)
TIMESTAMPS = (pa.timestamp("ms"), pa.timestamp("ms", "Europe/Berlin"), pa.int64())
BATCH_SIZES = (0, 1, 61, 100, 300, 2000, 16384)
PARTITIONS = 5


def contents_of(kind: pa.DataType) -> st.SearchStrategy[bytes | None]:
    if pa.types.is_dictionary(kind):
        return contents_of(kind.value_type)
    if kind == pa.null():
        return st.none()
    if pa.types.is_fixed_size_binary(kind):
        return st.none() | st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if kind in TEXT:
        return st.none() | st.text(max_size=16).map(str.encode)
    return st.none() | st.binary(max_size=16) | st.sampled_from([b"x" * 12, b"x" * 13, b"again" * 20])


def rows_of(key: pa.DataType, value: pa.DataType) -> st.SearchStrategy[list[plain.Row]]:
    timestamps = st.just(1000) | st.integers(0, 2**40)
    return st.lists(
        st.tuples(contents_of(key), contents_of(value), strategies.headers, timestamps), max_size=40
    )


# Layouts: the same rows, with anything before and after them in memory


def sliced(table: pa.Table) -> pa.Table:
    """Return rows in the midst of others, so that offsets and validity begin at odd places."""
    junk = table.slice(0, min(3, len(table)))
    return (
        pa.concat_tables([junk, table, junk])
        .unify_dictionaries()
        .combine_chunks()
        .slice(len(junk), len(table))
    )


def chunked(table: pa.Table) -> pa.Table:
    cuts = sorted({0, len(table) // 3, len(table) // 3 + 1, len(table)} & set(range(len(table) + 1)))
    parts = [table.slice(first, last - first) for first, last in pairwise(cuts)]
    return pa.concat_tables([table.slice(0, 0), *parts]).unify_dictionaries()


def record_batch(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return batch


def struct_slice(table: pa.Table) -> pa.StructArray:
    """Return a struct array with an offset, to which those of its children are added."""
    junk = sliced(table).slice(0, min(2, len(table)))
    array = record_batch(sliced(pa.concat_tables([junk, table]).unify_dictionaries())).to_struct_array()
    return array.slice(len(junk))


def reader(table: pa.Table) -> pa.RecordBatchReader:
    return chunked(table).to_reader(max_chunksize=7)


LAYOUTS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "sliced": sliced,
    "chunked": chunked,
    "record batch": record_batch,
    "struct slice": struct_slice,
    "reader": reader,
}


def check(
    rows: Sequence[plain.Row],
    make: Callable[[], Any],
    compression: str = "none",
    batch_size: int = 300,
    named: Sequence[int | None] | None = None,
) -> pa.Table:
    """Encode with one to three threads, and check the result.

    All three give the same bytes, but for gzip: isal's differ by where a thread's memory happens to be, so
    there each is judged by itself.
    """
    encoded = [
        kbatch.encode_arrow(
            make(), partitions=PARTITIONS, compression=compression, batch_size=batch_size, threads=threads
        )
        for threads in (1, 2, 3)
    ]
    partitions = tables.expected_partitions(rows, named or [None] * len(rows), PARTITIONS, batch_size)
    for number, table in enumerate(encoded):
        assert table.schema == encoded[0].schema
        if number == 0 or compression == "gzip":
            table.validate(full=True)
            tables.check_encoded(table, rows, partitions, compression, batch_size)
        else:
            assert table.to_pydict() == encoded[0].to_pydict()
    return encoded[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_layout_of_every_type(kind: pa.DataType, layout: str) -> None:
    distinct = [None if kind == pa.null() or number % 5 == 4 else b"%03d" % number for number in range(30)]
    rows: list[plain.Row] = [
        (content, distinct[-1 - number], (("h", content),) * (number % 3), 1000 + number)
        for number, content in enumerate(distinct)
    ]
    table = tables.table_of(
        rows, key=kind, value=kind, headers=HEADER_KINDS[sorted(LAYOUTS).index(layout) % 5]
    )
    check(rows, lambda: LAYOUTS[layout](table))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@few
@given(st.data())
def test_every_type_of_key_and_value(kind: pa.DataType, data: st.DataObject) -> None:
    other = data.draw(st.sampled_from(KINDS))
    key, value = data.draw(st.permutations([kind, other]))
    rows = data.draw(rows_of(key, value))
    layout = LAYOUTS[data.draw(st.sampled_from(sorted(LAYOUTS)))]
    headers = data.draw(st.sampled_from(HEADER_KINDS))
    timestamp = data.draw(st.sampled_from(TIMESTAMPS))
    compression = data.draw(strategies.compressions)
    batch_size = data.draw(st.sampled_from(BATCH_SIZES))
    table = tables.table_of(rows, key=key, value=value, headers=headers, timestamp=timestamp)
    check(rows, lambda: layout(table), compression, batch_size)


@few
@given(
    rows_of(pa.binary(), pa.binary()),
    st.lists(st.integers(0, 60), max_size=6),
    st.sampled_from(("none", "snappy", "lz4", "zstd")),
    st.sampled_from(BATCH_SIZES),
    st.integers(1, 3),
)
def test_encoder_calls_give_the_batches_of_one_call(
    rows: list[plain.Row], cuts: list[int], compression: str, batch_size: int, threads: int
) -> None:
    table = tables.table_of(rows)
    settings: dict[str, Any] = {
        "partitions": PARTITIONS,
        "compression": compression,
        "batch_size": batch_size,
        "threads": threads,
    }
    encoder = kbatch.ArrowEncoder(**settings)
    places = [0, *sorted(cuts), table.num_rows]
    calls = [encoder.encode(table.slice(a, max(b - a, 0))) for a, b in pairwise(places)]
    calls.append(encoder.flush())
    for encoded in calls:
        encoded.validate(full=True)
    together = pa.concat_tables(calls).to_pylist()
    together.sort(key=lambda batch: batch["partition"])
    assert together == kbatch.encode_arrow(table, **settings).to_pylist()


@deterministic
@given(rows_of(pa.binary(), pa.binary()), st.data())
def test_named_partitions_come_first(rows: list[plain.Row], data: st.DataObject) -> None:
    named = data.draw(
        st.lists(st.none() | st.integers(0, PARTITIONS - 1), min_size=len(rows), max_size=len(rows))
    )
    layout = LAYOUTS[data.draw(st.sampled_from(sorted(LAYOUTS)))]
    table = tables.table_of(rows).append_column("partition", pa.array(named, pa.int32()))
    check(rows, lambda: layout(table), named=named)


@few
@given(st.integers(0, 10**6), strategies.compressions, st.sampled_from((1, 1000, 16384)))
def test_rows_of_every_shape_and_what_is_decoded_of_them(
    seed: int, compression: str, batch_size: int
) -> None:
    rng = random.Random(seed)
    rows = [row for _ in range(4) for row in strategies.random_rows(rng)]
    encoded = check(rows, lambda: tables.table_of(rows), compression, batch_size)
    decoded = kbatch.decode_arrow(encoded["batch"])
    read = [record for batch in encoded["batch"].to_pylist() for record in plain.decode(batch)[0].records]
    assert decoded["offset"].to_pylist() == [record.offset for record in read]
    assert decoded["value"].to_pylist() == [record.value for record in read]


# Timestamps


UNITS_IN_MS = {"s": 1, "ms": 1, "us": 1000, "ns": 10**6}


@pytest.mark.parametrize("unit", UNITS_IN_MS)
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
@deterministic
@given(st.lists(st.none() | st.tuples(st.integers(0, 2**42), st.booleans()), min_size=1, max_size=20))
def test_timestamps_of_every_unit_are_rounded_down(
    unit: str, zone: str | None, times: list[tuple[int, bool] | None]
) -> None:
    """Drawn: whole milliseconds (or seconds), and whether it is their first or their last moment."""
    moments = UNITS_IN_MS[unit]
    values = [time and time[0] * moments + (moments - 1) * time[1] for time in times]
    table = pa.table({"value": ["v"] * len(values), "timestamp": pa.array(values, pa.timestamp(unit, zone))})
    encoded = kbatch.encode_arrow(sliced(table), partitions=1, batch_size=2**20)
    timestamps = kbatch.decode_arrow(encoded["batch"])["timestamp"].cast("int64").to_pylist()
    (now,) = {read for read, time in zip(timestamps, times, strict=True) if time is None} or {0}
    assert timestamps == [time[0] * (1000 if unit == "s" else 1) if time else now for time in times]


# numpy


def _concatenated(values: list[bytes], kind: type) -> tuple[np.ndarray, np.ndarray]:
    offsets: np.ndarray = np.cumsum([0, *map(len, values)]).astype(kind)
    return np.frombuffer(b"".join(values), np.uint8), offsets


NUMPY: dict[str, Callable[[list[bytes]], Any]] = {
    "S": lambda values: np.array(values, "S8"),
    "V": lambda values: np.array(values, "S4").view("V4"),
    "2-D": lambda values: np.array(values, "S4").view(np.uint8).reshape(len(values), 4),
    "2-D, every second row": lambda values: (
        np.array(values, "S4").view(np.uint8).reshape(-1, 4).repeat(2, axis=0)[::2]
    ),
    "2-D, by columns": lambda values: np.asfortranarray(np.array(values, "S4").view(np.uint8).reshape(-1, 4)),
    "offsets32": lambda values: _concatenated(values, np.int32),
    "offsets64": lambda values: _concatenated(values, np.int64),
    "bytes and a list": lambda values: (b"".join(values), np.cumsum([0, *map(len, values)])),
    "Arrow": lambda values: pa.array(values, pa.binary_view()),
}


@pytest.mark.parametrize("kind", NUMPY)
@pytest.mark.parametrize("count", [1, 50, 70_000])
def test_numpy_columns(kind: str, count: int) -> None:
    values = [b"%04d" % (number % 10_000) for number in range(count)]
    timestamps = np.arange(count)
    times = timestamps.astype("datetime64[ms]") if kind == "S" else timestamps
    partition = (timestamps % 3).astype(np.int32)
    columns = {
        "key": NUMPY[kind](values),
        "value": NUMPY[kind](values[::-1]),
        "timestamp": times,
        "partition": partition,
    }
    encoded = kbatch.encode_arrow(columns, batch_size=2**20, threads=2)
    decoded = kbatch.decode_arrow(encoded["batch"])
    order = np.argsort(partition, kind="stable")
    assert decoded["key"].to_pylist() == [values[row] for row in order]
    assert decoded["value"].to_pylist() == [values[count - 1 - row] for row in order]
    assert decoded["timestamp"].cast("int64").to_pylist() == order.tolist()
    assert encoded["partition"].unique().to_pylist() == list(range(min(3, count)))
