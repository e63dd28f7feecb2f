"""kbatch's codec against Kafka's own record classes: each reads the other's batches, every attribute."""

import random
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from tests.oracle import ours, plain, strategies
from tests.oracle.java import JavaError, JavaOracle, build_request

pytestmark = pytest.mark.java

Case = tuple[list[plain.Row], dict[str, Any]]
LEVELS = {
    "gzip": tuple(range(1, 10)),
    "lz4": tuple(range(1, 18)),
    "zstd": (-131072, -100, -7, *range(-1, 23)),
}
LEVEL_CASES = [(codec, level) for codec, levels in LEVELS.items() for level in levels]
OUTSIDE_LEVELS = [("gzip", 0), ("gzip", 10), ("lz4", 0), ("lz4", 18), ("zstd", -131073), ("zstd", 23)]
PRODUCER: dict[str, Any] = {"producer_id": 4242, "producer_epoch": 7, "base_sequence": 11}
ROWS: list[plain.Row] = [
    (b"key-%d" % number, b'{"flight": %d, "carrier": "UA"}' % (number * 37), (), 1_700_000_000_000 + number)
    for number in range(400)
]


def _cases(seeds: range, *, log: bool) -> list[Case]:
    return [strategies.random_case(seed, log=log) for seed in seeds]


# Java writes


@pytest.mark.parametrize("compression", plain.CODECS)
def test_C05_java_writes_and_kbatch_reads_the_same(java_oracle: JavaOracle, compression: str) -> None:
    cases = _cases(range(150), log=True)
    requests = [build_request(rows, compression=compression, **state) for rows, state in cases]
    data = b"".join(java_oracle.build_many(requests))
    assert ours.read(data) == java_oracle.read_valid(data)


@pytest.mark.parametrize("compression", LEVELS)
def test_java_writes_at_every_level_and_kbatch_reads_the_same(
    java_oracle: JavaOracle, compression: str
) -> None:
    levels = LEVELS[compression]
    requests = [
        build_request(ROWS, compression=compression, compression_level=level, **PRODUCER) for level in levels
    ]
    data = b"".join(java_oracle.build_many(requests))
    batches = ours.read(data)
    assert batches == java_oracle.read_valid(data)
    assert [batch.records for batch in batches] == [batches[0].records] * len(levels)


@pytest.mark.parametrize("commit", [False, True])
def test_C01_control_batch_of_java_is_read(java_oracle: JavaOracle, commit: bool) -> None:
    marker = strategies.end_transaction_marker(commit, 1234)
    state = PRODUCER | {"base_sequence": -1, "base_offset": 77, "transactional": True, "control": True}
    data = java_oracle.build([marker], **state)
    (batch,) = ours.read(data)
    assert [batch] == java_oracle.read_valid(data)
    assert (batch.header["is_control"], batch.header["is_transactional"]) == (True, True)
    assert batch.records[0].key == marker[0]


@pytest.mark.parametrize("log_append_time", [False, True])
def test_C01_empty_batch_of_java_is_read(java_oracle: JavaOracle, log_append_time: bool) -> None:
    data = java_oracle.build_empty(
        100, 109, timestamp_ms=55, log_append_time=log_append_time, partition_leader_epoch=3, **PRODUCER
    )
    (batch,) = ours.read(data)
    assert [batch] == java_oracle.read_valid(data)
    assert (batch.header["count"], batch.header["last_offset"]) == (0, 109)


@pytest.mark.parametrize("compression", plain.CODECS)
def test_C08_log_append_time_of_java_is_every_records_timestamp(
    java_oracle: JavaOracle, compression: str
) -> None:
    data = java_oracle.build(ROWS[:5], compression=compression, log_append_time_ms=42)
    (batch,) = ours.read(data)
    assert [batch] == java_oracle.read_valid(data)
    assert batch.header["timestamp_type"] == "log_append_time"
    assert {record.timestamp_ms for record in batch.records} == {42}


def test_delete_horizon_of_java_is_read(java_oracle: JavaOracle) -> None:
    data = java_oracle.build(ROWS[:5], delete_horizon_ms=1_600_000_000_000)
    (batch,) = ours.read(data)
    assert [batch] == java_oracle.read_valid(data)
    assert batch.header["delete_horizon_ms"] == 1_600_000_000_000
    assert [record.timestamp_ms for record in batch.records] == [row[3] for row in ROWS[:5]]


@pytest.mark.parametrize("compression", plain.CODECS)
def test_gaps_that_compaction_left_are_read(java_oracle: JavaOracle, compression: str) -> None:
    offsets = [1000, 1003, 1004, 1999]
    data = java_oracle.build(
        ROWS[:4], compression=compression, base_offset=998, offsets=offsets, last_offset=2500
    )
    (batch,) = ours.read(data)
    assert [batch] == java_oracle.read_valid(data)
    assert [record.offset for record in batch.records] == offsets
    assert (batch.header["base_offset"], batch.header["last_offset"]) == (998, 2500)


# kbatch writes


def test_uncompressed_bytes_equal_javas(java_oracle: JavaOracle) -> None:
    cases = _cases(range(1000, 1300), log=False)
    theirs = java_oracle.build_many([build_request(rows, base_offset=5, **state) for rows, state in cases])
    for (rows, state), batch in zip(cases, theirs, strict=True):
        assert kbatch.encode(rows, base_offset=5, **state) == batch, state


@pytest.mark.parametrize("compression", plain.CODECS)
def test_kbatch_writes_and_java_reads_the_same(java_oracle: JavaOracle, compression: str) -> None:
    cases = _cases(range(2000, 2100), log=False)
    encoded = [kbatch.encode(rows, compression=compression, **state) for rows, state in cases]
    read = java_oracle.read_valid(b"".join(encoded))
    assert read == plain.decode(b"".join(encoded))
    for batch, (rows, state) in zip(read, cases, strict=True):
        plain.check_produced(batch)
        assert [
            (record.key, record.value, record.headers, record.timestamp_ms) for record in batch.records
        ] == rows
        expected = {name: state[name] for name in state.keys() - {"transactional"}}
        assert batch.header == batch.header | expected | {"compression": compression}
        assert batch.header["is_transactional"] == state.get("transactional", False)


@pytest.mark.parametrize(("compression", "level"), LEVEL_CASES)
def test_java_reads_every_level_of_kbatch(java_oracle: JavaOracle, compression: str, level: int) -> None:
    data = kbatch.encode(ROWS, compression=compression, compression_level=level, **PRODUCER)
    (batch,) = java_oracle.read_valid(data)
    assert batch.records == plain.decode(plain.encode(ROWS))[0].records


@pytest.mark.parametrize(("compression", "level"), OUTSIDE_LEVELS)
def test_levels_outside_javas_range_are_refused_by_both(
    java_oracle: JavaOracle, compression: str, level: int
) -> None:
    with pytest.raises(JavaError):
        java_oracle.build(ROWS, compression=compression, compression_level=level)
    with pytest.raises(ValueError, match=str(level)):
        kbatch.encode(ROWS, compression=compression, compression_level=level)


def test_C04_last_sequence_wraps_as_javas(java_oracle: JavaOracle) -> None:
    state: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": plain.INT32_MAX - 1}
    data = kbatch.encode(ROWS[:3], **state)
    assert java_oracle.build(ROWS[:3], **state) == data
    assert ours.read(data)[0].header["last_sequence"] == 0


@pytest.mark.parametrize(
    "state",
    [
        {"producer_id": 5, "producer_epoch": -1, "base_sequence": 0},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1},
        {"transactional": True},
    ],
    ids=["no epoch", "no sequence", "transactional without a producer id"],
)
def test_C06_impossible_producer_state_is_refused_by_both(
    java_oracle: JavaOracle, state: dict[str, Any]
) -> None:
    with pytest.raises(JavaError) as caught:
        java_oracle.build(ROWS[:1], **state)
    assert caught.value.class_name == "IllegalArgumentException"
    with pytest.raises(ValueError):
        kbatch.encode(ROWS[:1], **state)


def test_C07_a_negative_timestamp_is_refused_by_both(java_oracle: JavaOracle) -> None:
    rows = [(b"k", b"v", (), -2)]
    with pytest.raises(JavaError, match="negative timestamp"):
        java_oracle.build(rows)
    with pytest.raises(ValueError):
        kbatch.encode(rows)


# Keys


def test_P05_keys_hash_and_place_as_javas(java_oracle: JavaOracle) -> None:
    rng = random.Random(3)
    keys = [rng.randbytes(number % 65) for number in range(6500)]
    assert [kbatch.murmur2(key) for key in keys] == java_oracle.murmur2(keys)
    for partitions in (1, 7, 12, plain.INT32_MAX):
        placed = [kbatch.partition_for_key(key, partitions) for key in keys]
        assert placed == java_oracle.partitions(keys, partitions)


# Columns


HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _table(rows: list[plain.Row]) -> pa.Table:
    keys, values, headers, timestamps = zip(*rows, strict=True)
    pairs = [[{"key": name, "value": content} for name, content in row] for row in headers]
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(pairs, HEADERS_TYPE),
            "timestamp": pa.array(timestamps, pa.int64()).cast(pa.timestamp("ms", "UTC")),
        }
    )


def _keyed_rows(count: int) -> list[plain.Row]:
    rng = random.Random(count)
    rows: list[plain.Row] = []
    while len(rows) < count:
        rows += strategies.random_rows(rng)
    return [(row[0] or b"", *row[1:]) for row in rows[:count]]


@pytest.mark.parametrize("compression", plain.CODECS)
def test_columns_land_where_java_puts_them_and_java_reads_them(
    java_oracle: JavaOracle, compression: str
) -> None:
    rows = _keyed_rows(1200)
    encoded = kbatch.encode_arrow(_table(rows), partitions=5, compression=compression)
    partitions = java_oracle.partitions([row[0] or b"" for row in rows], 5)
    for partition in range(5):
        mine = [row for row, place in zip(rows, partitions, strict=True) if place == partition]
        described = [row for row in encoded.to_pylist() if row["partition"] == partition]
        batches = java_oracle.read_valid(b"".join(row["batch"] for row in described))
        records = [record for batch in batches for record in batch.records]
        assert [(record.key, record.value, record.headers, record.timestamp_ms) for record in records] == mine
        assert [row["record_count"] for row in described] == [len(batch.records) for batch in batches]
        for row, batch in zip(described, batches, strict=True):
            plain.check_produced(batch)
            assert row["max_timestamp_ms"] == batch.header["max_timestamp_ms"]
            assert batch.header["base_offset"] == 0


@pytest.mark.parametrize("compression", plain.CODECS)
@pytest.mark.parametrize("batch_size", [1, 1000, 16384])
def test_C07_C09_columns_close_batches_by_kafkas_rule(compression: str, batch_size: int) -> None:
    rows = _keyed_rows(1200)
    encoded = kbatch.encode_arrow(
        _table(rows), partitions=3, compression=compression, batch_size=batch_size
    ).to_pylist()
    sizes = {_records_region(row["batch"]): len(row["batch"]) - plain.HEADER_BYTES for row in encoded}
    expected = plain.expected_batches(
        rows,
        [plain.partition_for_key(row[0] or b"", 3) for row in rows],
        batch_size,
        None if compression == "none" else sizes.__getitem__,
    )
    counts: dict[int, list[int]] = {}
    for row in encoded:
        counts.setdefault(row["partition"], []).append(row["record_count"])
    assert counts == expected


def test_rows_without_a_key_fill_one_partition_after_the_other() -> None:
    rows: list[plain.Row] = [(None, b"v" * (number % 90), (), 1000 + number) for number in range(500)]
    encoded = kbatch.encode_arrow(_table(rows), partitions=1000, batch_size=2000).to_pylist()
    partitions = sorted({row["partition"] for row in encoded})
    assert partitions == list(range(len(partitions)))
    values: list[bytes | None] = []
    for partition in partitions:
        mine = b"".join(row["batch"] for row in encoded if row["partition"] == partition)
        regions = [row["uncompressed_bytes"] - 61 for row in encoded if row["partition"] == partition]
        values += (record.value for batch in plain.decode(mine) for record in batch.records)
        # the record that reaches batch_size is the last of its partition; none is larger than 100 bytes
        assert sum(regions) < 2000 + 100
        assert sum(regions) >= 2000 or partition == partitions[-1]
    assert values == [row[1] for row in rows]


def _records_region(batch: bytes) -> bytes:
    """Return the records as they stand in the batch before compression."""
    return plain.decompress(batch[plain.HEADER_BYTES :], plain.CODECS[batch[22] & 7])


@pytest.mark.parametrize("threads", [0, 2, 5])
def test_columns_give_the_same_bytes_for_any_number_of_threads(threads: int) -> None:
    table = _table(_keyed_rows(1200))
    alone = kbatch.encode_arrow(table, partitions=5, compression="lz4", threads=1)
    assert kbatch.encode_arrow(table, partitions=5, compression="lz4", threads=threads).equals(alone)


@pytest.mark.parametrize("compression", plain.CODECS)
def test_columns_read_from_java_are_its_records(java_oracle: JavaOracle, compression: str) -> None:
    cases = _cases(range(3000, 3040), log=True)
    requests = [build_request(rows, compression=compression, **state) for rows, state in cases]
    data = b"".join(java_oracle.build_many(requests))
    records = [record for batch in java_oracle.read_valid(data) for record in batch.records]
    table = kbatch.decode_arrow(data)
    assert table["offset"].to_pylist() == [record.offset for record in records]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [record.timestamp_ms for record in records]
    assert table["key"].to_pylist() == [record.key for record in records]
    assert table["value"].to_pylist() == [record.value for record in records]
    headers = [tuple((pair["key"], pair["value"]) for pair in row) for row in table["headers"].to_pylist()]
    assert headers == [record.headers for record in records]
