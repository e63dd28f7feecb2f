"""The functions for mapInArrow on Arrow batches as Spark hands them over; a few through a real session."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

import kbatch
from benchmarks.clients import work
from kbatch.spark import ENCODED_SCHEMA, RECORD_SCHEMA, arrow_functions, decode, decoder, encode, encoder
from kbatch.spark.schemas import ENCODED_ARROW, RECORD_ARROW, declared_batches
from tests.oracle import plain

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SPARK_ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
some_bytes = st.none() | st.binary(max_size=30)
row_strategy = st.fixed_dictionaries(
    {
        "key": some_bytes,
        "value": some_bytes,
        "headers": st.lists(
            st.fixed_dictionaries({"key": st.text(max_size=4), "value": some_bytes}), max_size=2
        ),
        "timestamp": st.integers(0, 10**12).map(lambda ms: ms * 1000),
    }
)


def as_spark_hands_over(rows: list[dict[str, Any]], size: int) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = pa.Table.from_pylist(rows, SPARK_ROWS).to_batches(max_chunksize=size)
    return batches


def run(function: arrow_functions.ArrowFunction, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return list(function(iter(batches)))


def comparable(row: dict[str, Any]) -> tuple[Any, ...]:
    timestamp = row["timestamp"]
    milliseconds = timestamp // 1000 if isinstance(timestamp, int) else round(timestamp.timestamp() * 1000)
    headers = tuple((header["key"], header["value"]) for header in row["headers"])
    return row["key"], row["value"], headers, milliseconds


@settings(deadline=None)
@given(
    rows=st.lists(row_strategy, max_size=60),
    handed_over=st.integers(1, 20),
    partitions=st.integers(1, 5),
    compression=st.sampled_from(plain.CODECS),
    batch_size=st.integers(1, 500),
)
def test_rows_come_back(
    rows: list[dict[str, Any]], handed_over: int, partitions: int, compression: str, batch_size: int
) -> None:
    batches = as_spark_hands_over(rows, handed_over)
    encoded = run(encoder(partitions, compression, batch_size=batch_size), batches)
    assert all(batch.schema.equals(ENCODED_ARROW) for batch in encoded)
    decoded = run(decoder(), encoded)
    assert all(batch.schema.equals(RECORD_ARROW) for batch in decoded)

    received = [row for batch in decoded for row in batch.to_pylist()]
    assert {row["partition"] for row in received} <= set(range(partitions))
    assert Counter(map(comparable, rows)) == Counter(map(comparable, received))
    for partition in range(partitions):
        expected = [
            comparable(row)
            for row in rows
            if row["key"] is not None and plain.partition_for_key(row["key"], partitions) == partition
        ]
        found = [row for row in received if row["key"] is not None and row["partition"] == partition]
        assert list(map(comparable, found)) == expected, "in their order, where Java would put them"

    for batch in encoded:
        for row in batch.to_pylist():
            (read,) = plain.decode(row["batch"])
            assert len(read.records) == row["record_count"]
            assert read.header["max_timestamp_ms"] == row["max_timestamp_ms"]
            assert read.header["compression"] == compression


def test_encoder_makes_the_batches_of_one_large_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several calls within a task: `test_columns` compares them with send_table's."""
    monkeypatch.setattr(arrow_functions, "ENCODE_BYTES", 1 << 20)
    rows = work.table_of([work.record(number) for number in range(50_000)])
    encoded = pa.Table.from_batches(run(encoder(12, "zstd"), rows.to_batches(max_chunksize=10_000)))
    batches = encoded.to_pylist()
    batches.sort(key=lambda batch: batch["partition"])
    assert batches == kbatch.encode_arrow(rows, partitions=12, compression="zstd").to_pylist()


def test_rows_are_encoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_functions, "ENCODE_BYTES", 1000)
    rows: list[dict[str, Any]]
    rows = [{"key": None, "value": bytes(100), "headers": [], "timestamp": 0} for _ in range(100)]
    consumed = 0

    def batches() -> Any:
        nonlocal consumed
        for batch in as_spark_hands_over(rows, 5):
            consumed += batch.num_rows
            yield batch

    output = encoder(1, batch_size=1)(batches())
    first = next(output)
    assert consumed < 50, "it must not collect all rows first"
    rest = list(output)
    assert sum(sum(batch.column("record_count").to_pylist()) for batch in [first, *rest]) == 100


def test_arrow_batches_without_rows_give_none() -> None:
    assert run(encoder(3), []) == []
    assert sum(batch.num_rows for batch in run(encoder(3), as_spark_hands_over([], 1))) == 0
    assert run(decoder(), [pa.RecordBatch.from_pylist([], ENCODED_ARROW)]) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"partitions": 0}, "partitions"),
        ({"partitions": "12"}, "partitions|integer|int"),
        ({"compression": "zip"}, "compression|codec"),
        ({"compression": "gzip", "compression_level": 99}, "level"),
        ({"batch_size": -1}, "batch_size"),
    ],
    ids=str,
)
def test_wrong_argument_is_refused_on_the_driver(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        encoder(**arguments)


def test_columns_under_other_names() -> None:
    table = pa.table({"k": [b"a"], "v": ["b"], "p": pa.array([1], pa.int32())})
    (encoded,) = run(encoder(None, key="k", value="v", partition="p"), table.to_batches())
    (row,) = run(decoder(), [encoded])[0].to_pylist()
    assert (row["partition"], row["key"], row["value"]) == (1, b"a", b"b")


def test_missing_column_is_named() -> None:
    batches = pa.table({"k": [b"a"]}).to_batches()
    with pytest.raises(ValueError, match="value"):
        run(encoder(1), batches)
    with pytest.raises(ValueError, match="no column 'batch'"):
        run(decoder(), batches)


def test_null_batch_is_refused() -> None:
    batches = pa.table({"batch": pa.array([None], pa.binary())}).to_batches()
    with pytest.raises(ValueError, match="'batch' is null"):
        run(decoder(), batches)


def test_cut_batch_is_refused() -> None:
    batches = pa.table({"batch": [kbatch.encode([(b"k", b"v")])[:-1]]}).to_batches()
    with pytest.raises(kbatch.CorruptRecordError):
        run(decoder(), batches)


def test_partition_is_null_where_there_is_none() -> None:
    both = kbatch.encode([(b"k", b"1")]) + kbatch.encode([(b"k", b"2")])
    (decoded,) = run(decoder(), pa.table({"batch": [both]}).to_batches())
    assert decoded.column("partition").to_pylist() == [None, None]
    assert decoded.column("value").to_pylist() == [b"1", b"2"]


def test_decoding_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_functions, "DECODE_BYTES", 1000)
    batches = [kbatch.encode([(b"%d" % n, bytes(300))]) for n in range(20)]
    table = pa.table({"partition": pa.array(range(20), pa.int32()), "batch": batches})
    decoded = run(decoder(), table.slice(2).to_batches())
    assert len(decoded) >= 6
    assert [row["partition"] for batch in decoded for row in batch.to_pylist()] == list(range(2, 20))
    assert [row["key"] for batch in decoded for row in batch.to_pylist()] == [b"%d" % n for n in range(2, 20)]


@given(sizes=st.lists(st.integers(0, 300), max_size=40), limit=st.integers(1, 1000))
def test_declared_batches_are_bounded(sizes: list[int], limit: int) -> None:
    table = pa.table({"batch": pa.array([bytes(size) for size in sizes], pa.large_binary())})
    schema = pa.schema([("batch", pa.binary())])
    batches = list(declared_batches(table, schema, limit))
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == [bytes(n) for n in sizes]
    assert all(batch.schema.equals(schema) for batch in batches)
    assert all(batch.num_rows == 1 or batch.nbytes <= limit for batch in batches)


def test_value_beyond_spark_names_its_column() -> None:
    table = pa.table({"timestamp": pa.array([2**62], pa.timestamp("ms", "UTC"))})
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC"))])
    with pytest.raises(ValueError, match="column 'timestamp' does not fit"):
        list(declared_batches(table, schema))


# Through Spark

ROWS = [
    Row(key=None if n % 7 == 0 else f"k{n % 20}", value=f"v{n}", headers={"h": bytearray(b"1")}, n=n)
    for n in range(500)
]


@pytest.mark.slow
@pytest.mark.spark
def test_through_spark(spark: SparkSession) -> None:
    sent = spark.createDataFrame(ROWS).select(
        "key", "value", "headers", f.timestamp_millis(f.col("n")).alias("timestamp")
    )
    encoded = encode(sent, 3, compression="zstd", batch_size=1000)
    assert encoded.schema == ENCODED_SCHEMA
    decoded = decode(encoded)
    assert decoded.schema == RECORD_SCHEMA
    rows = decoded.select(
        f.col("key").cast("string"), f.col("value").cast("string"), "partition", "timestamp", "headers"
    ).collect()
    assert sorted(int(row.value[1:]) for row in rows) == list(range(500))
    for row in rows:
        number = int(row.value[1:])
        assert row.key == ROWS[number].key
        assert row.key is None or row.partition == plain.partition_for_key(row.key.encode(), 3)
        assert row.timestamp.microsecond == number * 1000
        assert [(header.key, bytes(header.value)) for header in row.headers] == [("h", b"1")]


@pytest.mark.spark
def test_wrong_columns_are_refused_on_the_driver(spark: SparkSession) -> None:
    frame = spark.range(1).select(f.lit("v").alias("value"))
    for wrong, error, message in (
        (
            frame.withColumn("key", f.lit(1)),
            TypeError,
            "column 'key' must be binary or string for the key, got int",
        ),
        (frame.withColumn("partition", f.lit(1).cast("long")), TypeError, "for the partition, got bigint"),
        (
            frame.withColumn("headers", f.lit("x")),
            TypeError,
            "column 'headers' must be array<",
        ),
        (frame.withColumn("timestamp", f.lit("x")), TypeError, "for the timestamp, got string"),
        (frame.withColumn("topic", f.lit("x")), ValueError, "unknown column 'topic'"),
        (frame.select(f.col("value").alias("payload")), ValueError, "no column 'value'"),
    ):
        with pytest.raises(error) as caught:
            encode(wrong)
        assert message in str(caught.value)
    with pytest.raises(ValueError, match="no column 'id' for the key"):
        encode(frame, key="id")
    with pytest.raises(ValueError, match="no column 'batch'"):
        decode(frame)
    with pytest.raises(TypeError, match="column 'batch' must be binary, got string"):
        decode(frame.select(f.col("value").alias("batch")))
    assert encode(spark.range(1).select(f.lit("v").alias("payload")), 1, value="payload").count() == 1
