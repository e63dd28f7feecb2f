"""encode_arrow, ArrowEncoder and decode_arrow: accepted sources of columns, and the errors for others."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kbatch
from benchmarks.clients import work
from kbatch._native.send.table_sender import TableSender
from tests.oracle import plain, tables
from tests.property.test_send_table_properties import NAMES, direct
from tests.support.accumulating import NEVER, accumulator, all_drained, data_of

VALUES = ["v0", "v1", "v2"]
ROWS: list[plain.Row] = [
    (b"k%d" % number, b"v%d" % number, (("h", None),), 1000 + number) for number in range(20)
]
BINARY_TYPES = (
    "binary, large_binary, binary_view, string, large_string, string_view, fixed_size_binary, "
    "a dictionary of those, or null"
)
HEADER_TYPES = "list<struct<key: string, value: binary>> or map<string, binary>, also large ones"


def table(**columns: Any) -> pa.Table:
    return pa.table({"value": VALUES} | columns)


def _before_1970(unit: str) -> pa.Table:
    return table(timestamp=pa.array([0, 1, -1 if unit != "ms" else -2], pa.timestamp(unit)))


def _with_offsets(offsets: list[int]) -> dict[str, Any]:
    return {"value": (b"abc", np.array(offsets))}


def headers_of(key: pa.DataType, value: pa.DataType) -> pa.Array:
    return pa.array([[]] * 3, pa.list_(pa.struct([("key", key), ("value", value)])))


def encode(data: Any, **parameters: Any) -> pa.Table:
    return kbatch.encode_arrow(data, **({"partitions": 2} | parameters))


def values_of(encoded: pa.Table) -> list[bytes | None]:
    values: list[bytes | None] = kbatch.decode_arrow(encoded["batch"])["value"].to_pylist()
    return values


# Accepted sources of columns


class ArrayOnly:
    """An object with `__arrow_c_array__` and nothing else."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.batch.__arrow_c_array__(requested_schema)


HOLDERS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda data: data,
    "record batch": lambda data: data.to_batches()[0],
    "array capsules": lambda data: ArrayOnly(data.to_batches()[0]),
    "reader": lambda data: data.to_reader(max_chunksize=3),
    "polars": pl.from_arrow,
    "duckdb": lambda data: duckdb.from_arrow(data),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_any_holder_of_columns_is_accepted(holder: str) -> None:
    data = tables.table_of(ROWS)
    encoded = kbatch.encode_arrow(HOLDERS[holder](data), partitions=3)
    partitions = [plain.partition_for_key(row[0] or b"", 3) for row in ROWS]
    tables.check_encoded(encoded, ROWS, partitions, "none", 16384)


def test_a_reader_is_read_batch_by_batch() -> None:
    """The caller sees an exception of the stream."""

    def batches() -> Any:
        yield table().to_batches()[0]
        raise RuntimeError("the source is gone")

    stream = pa.RecordBatchReader.from_batches(table().schema, batches())
    with pytest.raises(
        ValueError, match=r"the Arrow stream cannot give its next batch: .*the source is gone"
    ):
        encode(stream)


def test_columns_are_found_by_name() -> None:
    renamed = tables.table_of(ROWS).rename_columns(["id", "payload", "tags", "at"])
    names = {"key": "id", "value": "payload", "headers": "tags", "timestamp": "at"}
    assert encode(renamed, **names).equals(encode(tables.table_of(ROWS)))


def test_absent_columns_mean_no_key_no_headers_and_current_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1234.5678)
    decoded = kbatch.decode_arrow(encode(table(other=[1, 2, 3]))["batch"])
    assert decoded["key"].to_pylist() == [None] * 3
    assert decoded["headers"].to_pylist() == [[]] * 3
    assert decoded["timestamp"].cast("int64").to_pylist() == [1234567] * 3


def test_no_rows_are_no_batches() -> None:
    for data in (table().slice(0, 0), table().schema.empty_table(), {"value": np.array([], "S1")}):
        encoded = encode(data)
        assert encoded.num_rows == 0
        assert [str(field.type) for field in encoded.schema] == [
            "int32",
            "int32",
            "int64",
            "int64",
            "large_binary",
        ]
        assert kbatch.decode_arrow(encoded["batch"]).num_rows == 0


def test_rows_without_a_key_fill_one_partition_after_the_other() -> None:
    encoded = kbatch.encode_arrow({"value": np.array([b"x" * 43] * 10)}, partitions=4, batch_size=100)
    # records of 50 bytes: two to a turn
    assert [(row["partition"], row["record_count"]) for row in encoded.to_pylist()] == [
        *((0, 1), (0, 1), (0, 1), (0, 1)),
        *((partition, 1) for partition in (1, 1, 2, 2, 3, 3)),
    ]


def test_threads_0_is_one_a_processor() -> None:
    data = tables.table_of(ROWS)
    assert encode(data, threads=0).equals(encode(data))


# An encoder over several calls


@cache
def events() -> pa.Table:
    """Return JSON of 100 bytes a row, many times the rows in which the topic's ratio is first learnt."""
    return work.table_of([work.record(number) for number in range(150_000)])


def mean_bytes_of_send_table(codec: str, batch_size: int) -> float:
    records = accumulator(
        12, batch_size=batch_size, compression=codec, linger_ns=NEVER, buffer_memory=1 << 28, poison=False
    )
    sender = TableSender(direct(records), "t", events(), NAMES)
    while not sender.accept():
        pass
    sender.end()
    return float(np.mean([len(data_of(batch)) for batch in all_drained(records)]))


def calls_of(encoder: kbatch.ArrowEncoder, rows: int) -> list[pa.Table]:
    """Return the events in tables of this many rows."""
    data = events()
    calls = [encoder.encode(data.slice(first, rows)) for first in range(0, data.num_rows, rows)]
    return [*calls, encoder.flush()]


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [16384, 131072])
@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip", "snappy"])
def test_batches_over_calls_are_as_large_as_of_send_table(codec: str, batch_size: int) -> None:
    encoder = kbatch.ArrowEncoder(partitions=12, compression=codec, batch_size=batch_size)
    lengths = pc.binary_length(pa.concat_tables(calls_of(encoder, 10_000))["batch"])
    assert pc.mean(lengths).as_py() >= 0.9 * mean_bytes_of_send_table(codec, batch_size)
    assert pc.max(lengths).as_py() <= batch_size


@pytest.mark.slow
@pytest.mark.parametrize("rows", [7_000, 150_000])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_batches_do_not_depend_on_threads_or_calls(threads: int, rows: int) -> None:
    encoder = kbatch.ArrowEncoder(partitions=12, compression="zstd", threads=threads)
    batches = pa.concat_tables(calls_of(encoder, rows)).to_pylist()
    batches.sort(key=lambda batch: batch["partition"])
    assert batches == kbatch.encode_arrow(events(), partitions=12, compression="zstd").to_pylist()


def test_encoder_keeps_its_ratio_over_flushes() -> None:
    encoder = kbatch.ArrowEncoder(partitions=1, compression="zstd")
    first, second = (
        pa.concat_tables([encoder.encode(events().slice(0, 20_000)), encoder.flush()]) for _ in range(2)
    )
    assert values_of(first) == values_of(second) == events()["value"][:20_000].to_pylist()
    assert second.num_rows < 0.5 * first.num_rows


def test_encoder_that_failed_refuses_calls() -> None:
    encoder = kbatch.ArrowEncoder(partitions=1)
    with pytest.raises(ValueError, match="there is no column 'value'"):
        encoder.encode(pa.table({"key": VALUES}))
    for call in (encoder.flush, lambda: encoder.encode(table())):
        with pytest.raises(kbatch.IllegalStateError, match="a call to it failed"):
            call()


def test_encoder_refuses_a_call_within_a_call() -> None:
    encoder = kbatch.ArrowEncoder(partitions=1)

    def batches() -> Any:
        yield table().to_batches()[0]
        with pytest.raises(kbatch.IllegalStateError, match="still running"):
            encoder.flush()

    encoder.encode(pa.RecordBatchReader.from_batches(table().schema, batches()))
    assert values_of(encoder.flush()) == [b"v0", b"v1", b"v2"]


# Refusals


Refusal = tuple[Callable[[], Any], dict[str, Any], type[Exception], str]
TIMESTAMP_RANGE = "column 'timestamp', row 2: is before 1970 or beyond 64 bits of milliseconds"
REFUSED: dict[str, Refusal] = {
    "no value": (
        lambda: pa.table({"key": VALUES}),
        *({}, ValueError, "there is no column 'value' (the value); the columns are key"),
    ),
    "no columns": (dict, {}, ValueError, "there is no column 'value' (the value); the columns are none"),
    **{
        f"no {role} of that name": (
            *(table, {role: "mine"}, ValueError),
            f"there is no column 'mine' (the {role}); the columns are value",
        )
        for role in ("key", "value", "headers", "timestamp", "partition")
    },
    "a name twice": (
        lambda: pa.Table.from_arrays([pa.array(VALUES)] * 2, ["value", "value"]),
        *({}, ValueError, "two columns are named 'value'"),
    ),
    "key of ints": (
        lambda: table(key=[1, 2, 3]),
        *({}, TypeError, f"column 'key' must be {BINARY_TYPES}; its Arrow format is 'l'"),
    ),
    "a dictionary of ints": (
        lambda: table(key=pa.array([1, 2, 3]).dictionary_encode()),
        *({}, TypeError, f"column 'key' must be {BINARY_TYPES}; its Arrow format is 'l'"),
    ),
    "timestamp of int32": (
        lambda: table(timestamp=pa.array([1, 2, 3], pa.int32())),
        *(
            {},
            TypeError,
            "column 'timestamp' must be a timestamp, or int64 milliseconds; its Arrow format is 'i'",
        ),
    ),
    "partition of int64": (
        lambda: table(partition=[0, 1, 0]),
        *({}, TypeError, "column 'partition' must be int32; its Arrow format is 'l'"),
    ),
    "headers of text": (
        lambda: table(headers=VALUES),
        *({}, TypeError, f"column 'headers' must be {HEADER_TYPES}; its Arrow format is 'u'"),
    ),
    "headers of binary keys": (
        lambda: table(headers=headers_of(pa.binary(), pa.binary())),
        *({}, TypeError, f"column 'headers' must be {HEADER_TYPES}"),
    ),
    "headers of int values": (
        lambda: table(headers=headers_of(pa.string(), pa.int64())),
        *({}, TypeError, f"column 'headers.value' must be {BINARY_TYPES}"),
    ),
    "a null header": (
        lambda: table(headers=pa.array([[], [None], []], tables.HEADERS)),
        *({}, ValueError, "column 'headers', row 1: has a header that is null"),
    ),
    "a header without a key": (
        lambda: table(headers=pa.array([[], [], [{"key": None, "value": b""}]], tables.HEADERS)),
        *({}, ValueError, "column 'headers', row 2: has a header that has a null key"),
    ),
    "a header key that is not UTF-8": (
        lambda: table(headers=_binary_headers(b"\xff")),
        *({}, ValueError, "column 'headers', row 1: has a header that has a key that is not UTF-8"),
    ),
    "no partition": (
        table,
        {"partitions": None},
        ValueError,
        "partitions=None needs a column 'partition' (int32)",
    ),
    "a null partition": (
        lambda: table(partition=pa.array([0, None, 1], pa.int32())),
        *({"partitions": None}, ValueError, "column 'partition', row 1: is null, which partitions=None"),
    ),
    "a partition too high": (
        lambda: table(partition=pa.array([0, 1, 2], pa.int32())),
        *({}, ValueError, "column 'partition', row 2: partition 2 is out of range 0..1"),
    ),
    "a negative partition": (
        lambda: table(partition=pa.array([0, -1, 2], pa.int32())),
        *(
            {"partitions": None},
            ValueError,
            "column 'partition', row 1: partition -1 is out of range 0..999999",
        ),
    ),
    "a negative timestamp": (
        lambda: table(timestamp=pa.array([0, -1, -2], pa.int64())),
        *({}, ValueError, TIMESTAMP_RANGE),
    ),
    **{
        f"a timestamp before 1970 in {unit}": (
            partial(_before_1970, unit),
            *({}, ValueError, TIMESTAMP_RANGE),
        )
        for unit in ("s", "ms", "us", "ns")
    },
    "seconds beyond 64 bits of milliseconds": (
        lambda: table(timestamp=pa.array([0, 1, 2**62], pa.timestamp("s"))),
        *({}, ValueError, TIMESTAMP_RANGE),
    ),
    "the last millisecond": (
        lambda: table(timestamp=pa.array([0, 1, 2**63 - 1], pa.timestamp("ms"))),
        *({}, ValueError, TIMESTAMP_RANGE),
    ),
    "rows that are null": (
        lambda: pa.StructArray.from_arrays(
            [pa.array(VALUES)], ["value"], mask=pa.array([False, True, False])
        ),
        *({}, ValueError, "data has rows that are null as a whole"),
    ),
    "no table": (lambda: [1, 2], {}, TypeError, "data must have __arrow_c_stream__ or __arrow_c_array__"),
    "a column and no table": (lambda: pa.array(VALUES), {}, TypeError, "data must be a table"),
    "columns of different lengths": (
        lambda: {"value": np.array([b"a"]), "key": np.array([b"a", b"b"])},
        *({}, ValueError, "columns must have the same number of rows, got {'value': 1, 'key': 2}"),
    ),
    "a list as a column": (
        lambda: {"value": [b"a"]},
        *(
            {},
            TypeError,
            "column 'value' must be a numpy array, a pair (data, offsets) or an Arrow array, got list",
        ),
    ),
    "numpy text": (
        lambda: {"value": np.array(["a"])},
        {},
        TypeError,
        "column 'value' must be a 1-D array of 'S'",
    ),
    "offsets of floats": (
        lambda: {"value": (b"abc", np.array([0.0, 2.0]))},
        *({}, TypeError, "column 'value': offsets must be a 1-D array of int32 or int64"),
    ),
    **{
        f"offsets {offsets}": (
            partial(_with_offsets, offsets),
            *({}, ValueError, "column 'value': offsets must not decrease, nor exceed the 3 bytes of data"),
        )
        for offsets in ([0, 4], [0, 2, 1], [-1, 2])
    },
    "no partitions at all": (
        table,
        {"partitions": 0},
        ValueError,
        "partitions must be 1 to 1000000, or None, got 0",
    ),
    "too many partitions": (table, {"partitions": 10**6 + 1}, ValueError, "got 1000001"),
    "a negative batch size": (
        table,
        {"batch_size": -1},
        ValueError,
        "batch_size must be 0 to 1073741824 bytes, got -1",
    ),
    "negative threads": (
        table,
        {"threads": -1},
        ValueError,
        "threads must be 0 (one a CPU) or more, got -1",
    ),
    "an unknown codec": (
        table,
        {"compression": "br"},
        ValueError,
        "none, gzip, snappy, lz4, zstd, got 'br'",
    ),
    "a level out of range": (
        table,
        *(
            {"compression": "lz4", "compression_level": 18},
            ValueError,
            "compression_level of lz4 must be 1 to 17, got 18",
        ),
    ),
}


def _binary_headers(key: bytes) -> pa.Array:
    """Return three rows of headers whose keys claim to be text; the middle one's is `key`."""
    keys = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", key, b"b"], pa.binary()).buffers())
    items = pa.StructArray.from_arrays([keys, pa.array([b""] * 3)], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), items)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_refusal_names_column_row_and_value(name: str, threads: int) -> None:
    make, parameters, error, message = REFUSED[name]
    with pytest.raises(error) as caught:
        encode(make(), **({"threads": threads} | parameters))
    assert message in str(caught.value)


def test_the_row_named_counts_over_chunks_and_blocks() -> None:
    partition = np.zeros(70_000, np.int32)
    partition[69_999] = 9
    data = pa.table({"value": np.zeros((70_000, 1), np.uint8).view("S1")[:, 0], "partition": partition})
    for chunks in (data, data.to_reader(max_chunksize=1000)):
        with pytest.raises(ValueError, match="column 'partition', row 69999: partition 9 is out of range"):
            encode(chunks)


# Reading


def test_decode_takes_bytes_arrays_and_iterables() -> None:
    batches = encode(tables.table_of(ROWS), batch_size=200)["batch"]
    pieces = batches.to_pylist()
    whole = b"".join(pieces)
    expected = kbatch.decode_arrow(whole)
    assert expected.num_rows == len(ROWS)
    for data in (
        bytearray(whole),
        memoryview(whole),
        pieces,
        iter(pieces),
        batches,
        batches.combine_chunks(),
    ):
        assert kbatch.decode_arrow(data).equals(expected)
    for kind in (pa.binary(), pa.binary_view()):
        assert kbatch.decode_arrow(pa.array([None, *pieces, None, b""], kind)).equals(expected)


def test_the_schema_is_the_same_whatever_is_read() -> None:
    expected = [
        "int64",
        "timestamp[ms, tz=UTC]",
        "binary",
        "binary",
        "list<element: struct<key: string not null",
    ]
    more = ["int64", "string", "string", "int64", "int16", "int32", "bool", "bool"]
    for data in (b"", list[bytes](), pa.array([], pa.binary()), kbatch.encode([(b"k", b"v")])):
        types = [str(field.type) for field in kbatch.decode_arrow(data, batch_columns=True).schema]
        assert types[:4] + types[5:] == expected[:4] + more
        assert "key: string" in types[4]
        assert "value: binary" in types[4]


def test_a_fault_names_item_and_batch() -> None:
    good = kbatch.encode([(b"k", b"v")])
    bad = good[:-2] + b"w" + good[-1:]
    with pytest.raises(kbatch.CorruptRecordError, match=f"item 2, batch at byte {len(good)}: CRC-32C"):
        kbatch.decode_arrow([good, good, good + bad])
    with pytest.raises(kbatch.CorruptRecordError, match="item 1, batch at byte 0 is cut off: 20 bytes"):
        kbatch.decode_arrow([good, good[:20]], partial="raise")
    assert kbatch.decode_arrow([good[:20], bad], check_crc=False).num_rows == 1


@pytest.mark.parametrize(
    "data", [5, None, "text", [b"", "text"], pa.array([1])], ids=lambda data: type(data).__name__
)
def test_what_is_no_bytes_is_refused(data: Any) -> None:
    with pytest.raises(TypeError):
        kbatch.decode_arrow(data)


def test_a_table_outlives_what_it_was_read_from() -> None:
    data = bytearray(kbatch.encode(ROWS, compression="lz4"))
    decoded = kbatch.decode_arrow(data)
    data[:] = b"\xff" * len(data)
    assert decoded["value"].to_pylist() == [row[1] for row in ROWS]


def test_chunks_of_16_mib_hold_every_record() -> None:
    rows: list[plain.Row] = [(None, bytes([number]) * (3 << 20), (), number) for number in range(12)]
    decoded = kbatch.decode_arrow([kbatch.encode(rows[first : first + 3]) for first in range(0, 12, 3)])
    assert decoded["value"].num_chunks > 1
    assert [value[:1] for value in decoded["value"].to_pylist()] == [bytes([number]) for number in range(12)]
    decoded.validate(full=True)


@pytest.mark.parametrize("name", ["partitions", "batch_size", "threads"])
def test_a_number_that_is_none_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be an int, got str"):
        given: dict[str, Any] = {"partitions": 1, name: "3"}
        kbatch.encode_arrow(pa.table({"value": [b"v"]}), **given)
