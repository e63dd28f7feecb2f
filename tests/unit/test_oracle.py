"""The oracle is judged first: by golden vectors, and by Kafka's own classes in both directions."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.oracle import plain, strategies
from tests.oracle.java import JavaDiedError, JavaError, JavaOracle, build_request
from tests.oracle.plain import INT32_MAX, CorruptBatch, Record

ONE_RECORD = bytes.fromhex(
    "00000000000000000000003affffffff02e99b8dd80000000000000000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff0000000110000000026b027600"
)
TRANSACTIONAL = bytes.fromhex(
    "00000000000000000000004fffffffff02c23f154c00100000000200000000000003e800000000000003e9"
    "000000000000109200077ffffffe000000031c0000000261010402680278026e010e00010201026200"
    "0c000204000000"
)
TRANSACTIONAL_ROWS = [
    (b"a", None, (("h", b"x"), ("n", None)), 1000),
    (None, b"b", (), 999),
    (b"", b"", (), 1001),
]
TRANSACTIONAL_STATE: dict[str, Any] = {
    "producer_id": 4242,
    "producer_epoch": 7,
    "base_sequence": INT32_MAX - 1,
    "transactional": True,
}
MURMUR2 = {
    b"": 275646681,
    b"21": -973932308,
    b"foobar": -790332482,
    b"abc": 479470107,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}
VARINTS = {0: "00", -1: "01", 1: "02", 63: "7e", -64: "7f", 64: "8001", -65: "8101", 8191: "fe7f"} | {
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
}


# Golden vectors


def test_plain_batch_equals_the_golden_bytes() -> None:
    assert plain.encode([(b"k", b"v", (), 1_700_000_000_000)]) == ONE_RECORD


def test_C08_transactional_batch_equals_golden_bytes() -> None:
    assert plain.encode(TRANSACTIONAL_ROWS, **TRANSACTIONAL_STATE) == TRANSACTIONAL
    ((header, records),) = plain.decode(TRANSACTIONAL)
    assert (header["max_timestamp_ms"], header["base_timestamp_ms"]) == (1001, 1000)
    assert records[0] == Record(0, 1000, b"a", None, (("h", b"x"), ("n", None)))
    assert records[1:] == [Record(1, 999, None, b"b", ()), Record(2, 1001, b"", b"", ())]


def test_C04_last_sequence_wraps() -> None:
    assert plain.decode(TRANSACTIONAL)[0].header["last_sequence"] == 0


def test_crc32c_check_vector() -> None:
    assert plain.crc32c(b"123456789") == 0xE3069283
    assert plain.crc32c(b"6789", plain.crc32c(b"12345")) == 0xE3069283


@pytest.mark.parametrize(("value", "encoded"), VARINTS.items())
def test_varint_vectors(value: int, encoded: str) -> None:
    assert plain.encode_varint(value).hex() == encoded


def test_varlong_vectors() -> None:
    assert plain.encode_varint(2**63 - 1, 64).hex() == "feffffffffffffffff01"
    assert plain.encode_varint(-(2**63), 64).hex() == "ffffffffffffffffff01"
    with pytest.raises(OverflowError):
        plain.encode_varint(2**63, 64)


@pytest.mark.parametrize(
    ("first", "second", "total"),
    [(5, 5, 10), (INT32_MAX, 1, 0), (INT32_MAX - 5, 10, 4), (INT32_MAX, 101, 100), (99, INT32_MAX, 98)],
)
def test_I26_increment_sequence_wraps(first: int, second: int, total: int) -> None:
    assert plain.increment_sequence(first, second) == total


def test_I26_decrement_sequence_wraps() -> None:
    assert plain.decrement_sequence(5, 5) == 0
    assert plain.decrement_sequence(0, 1) == INT32_MAX


@pytest.mark.parametrize(("key", "hashed"), MURMUR2.items())
def test_murmur2_vectors(key: bytes, hashed: int) -> None:
    assert plain.murmur2(key) == hashed
    assert plain.partition_for_key(key, 7) == (hashed & INT32_MAX) % 7


def test_size_upper_bound_vectors() -> None:
    assert plain.size_upper_bound(b"k", b"v", ()) == 87
    assert plain.size_upper_bound(None, None, ()) == 85


@pytest.mark.parametrize(
    ("current", "observed", "updated"),
    [(0.8, 0.84, 0.85), (0.6, 0.7, 0.7), (0.6, 0.4, 0.595), (0.004, 0.001, 0.001), (1.0, 0.3, 0.995)],
)
def test_C09_ratio_vectors(current: float, observed: float, updated: float) -> None:
    assert plain.updated_ratio(current, observed) == pytest.approx(updated)


# Refusals of the oracle


@given(strategies.row_lists, strategies.compressions, strategies.producer_states, strategies.base_offsets)
def test_every_shape_comes_back(
    rows: list[plain.Row], compression: str, state: dict[str, Any], base_offset: int
) -> None:
    data = plain.encode(rows, compression=compression, base_offset=base_offset, **state)
    (batch,) = plain.decode(data)
    assert [
        (record.key, record.value, record.headers, record.timestamp_ms) for record in batch.records
    ] == rows
    assert [record.offset - base_offset for record in batch.records] == list(range(len(rows)))
    plain.check_produced(batch)


@pytest.mark.parametrize("bit", range(0, 8 * (len(ONE_RECORD) - plain.CRC_START), 7))
def test_C02_a_flipped_bit_breaks_the_crc(bit: int) -> None:
    bent = bytearray(ONE_RECORD)
    bent[plain.CRC_START + bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptBatch, match="CRC"):
        plain.decode(bytes(bent))


@pytest.mark.parametrize("length", range(1, len(ONE_RECORD)))
def test_C02_a_cut_batch_is_refused(length: int) -> None:
    with pytest.raises(CorruptBatch):
        plain.decode(ONE_RECORD[:length])


def _bent(position: int, replacement: str) -> bytes:
    """Return the one-record batch with bytes replaced from `position` on, and its CRC made right."""
    new = bytes.fromhex(replacement)
    return plain.with_crc(ONE_RECORD[:position] + new + ONE_RECORD[position + len(new) :])


BENT = {
    "count too large": _bent(57, "00000002"),
    "count too small": _bent(57, "00000000"),
    "count negative": _bent(57, "ffffffff"),
    "last offset delta negative": _bent(23, "ffffffff"),
    "unknown codec": _bent(21, "0005"),
    "record longer than the batch": _bent(61, "12"),
    "record shorter than its fields": _bent(61, "0e"),
    "key beyond the record": _bent(65, "7e"),
    "key length below -1": _bent(65, "03"),
    "value beyond the record": _bent(67, "7e"),
    "more headers than bytes": _bent(69, "7e"),
    "negative header count": _bent(69, "01"),
    "varint without an end": _bent(61, "ff" * 9),
    "offset after the batch": _bent(64, "02"),
    "offset before the batch": _bent(64, "01"),
}


@pytest.mark.parametrize("data", BENT.values(), ids=BENT)
def test_C03_impossible_fields_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        plain.decode(data)


# Java reads a count of 0 as an empty batch whatever follows, and leaves offset deltas to the broker.
LET_PASS_BY_JAVA = {
    "count too small",
    "last offset delta negative",
    "offset after the batch",
    "offset before the batch",
}


@pytest.mark.java
@pytest.mark.parametrize("name", sorted(BENT.keys() - LET_PASS_BY_JAVA))
def test_C03_java_refuses_the_same(java_oracle: JavaOracle, name: str) -> None:
    assert java_oracle.read(BENT[name]).error is not None


@pytest.mark.parametrize(
    ("encoded", "bits"), [("ffffffffff01", 32), ("ff" * 10 + "01", 64), ("ffffffff1f", 32)]
)
def test_over_long_varints_are_refused(encoded: str, bits: int) -> None:
    with pytest.raises(CorruptBatch, match="varint"):
        plain.decode_varint(bytes.fromhex(encoded), bits, strict=False)


def test_only_strict_refuses_a_varint_longer_than_needed() -> None:
    longer = bytes.fromhex("8000")
    assert plain.decode_varint(longer, strict=False) == 0
    with pytest.raises(CorruptBatch, match="longer"):
        plain.decode_varint(longer)


def test_check_produced_distinguishes_log_and_producer_batches() -> None:
    rows = [(b"k", b"v", (), 5), (b"k", b"v", (), 6)]
    for log_only in ({"offsets": [0, 2]}, {"partition_leader_epoch": 3}, {"log_append_time_ms": 9}):
        (batch,) = plain.decode(plain.encode(rows, **log_only))
        with pytest.raises(CorruptBatch, match="producer"):
            plain.check_produced(batch)


# When a batch is full


def _rows_of(size: int, count: int) -> list[plain.Row]:
    """Return rows without key whose record takes `size` (below 65) bytes."""
    return [(None, b"x" * (size - 7), (), 0)] * count


def test_C07_without_a_codec_a_batch_fills_to_the_byte() -> None:
    rows = _rows_of(50, 10)
    assert plain.expected_batches(rows, [0] * 10, 61 + 4 * 50) == {0: [4, 4, 2]}
    assert plain.expected_batches(rows, [0] * 10, 61 + 4 * 50 - 1) == {0: [3, 3, 3, 1]}


def test_C07_the_first_record_always_fits() -> None:
    assert plain.expected_batches(_rows_of(50, 3), [1, 0, 1], 1) == {0: [1], 1: [1, 1]}


def test_C09_the_ratio_is_the_one_of_the_batchs_creation() -> None:
    # The ratio of 1.0 at the start, times 1.05, leaves room for 19 of 20; it falls by 0.005 a batch.
    rows = _rows_of(50, 60)
    counts = plain.expected_batches(rows, [0] * 60, 61 + 20 * 50, lambda body: len(body) // 2)
    assert counts == {0: [19, 19, 19, 3]}
    grown = plain.expected_batches(rows, [0] * 60, 61 + 20 * 50, lambda body: 2 * len(body))
    assert grown == {0: [19, 10, 10, 10, 10, 1]}


def test_C09_a_batch_below_a_quarter_does_not_move_the_ratio() -> None:
    large = (None, b"x" * 900, (), 0)
    tiny_then_large = [*_rows_of(50, 1), large, *_rows_of(50, 30)]
    observed: list[int] = []

    def compressed_size(body: bytes) -> int:
        observed.append(len(body))
        return len(body)

    plain.expected_batches(tiny_then_large, [0] * 32, 910, compressed_size)
    assert observed[0] > 900  # the first batch, one record of 50 bytes, was never checked


# Against Kafka's own classes


@pytest.mark.java
def test_plain_and_java_write_the_same_bytes(java_oracle: JavaOracle) -> None:
    cases = [strategies.random_case(seed, log=True) for seed in range(150)]
    built = java_oracle.build_many([build_request(rows, **state) for rows, state in cases])
    for (rows, state), theirs in zip(cases, built, strict=True):
        assert plain.encode(rows, **state) == theirs, state


@pytest.mark.java
@pytest.mark.parametrize("compression", plain.CODECS)
def test_plain_reads_what_java_writes(java_oracle: JavaOracle, compression: str) -> None:
    cases = [strategies.random_case(seed, log=True) for seed in range(20)]
    requests = [build_request(rows, compression=compression, **state) for rows, state in cases]
    data = b"".join(java_oracle.build_many(requests))
    assert plain.decode(data) == java_oracle.read_valid(data)


@pytest.mark.java
@pytest.mark.parametrize("compression", plain.CODECS)
def test_java_reads_what_plain_writes(java_oracle: JavaOracle, compression: str) -> None:
    cases = [strategies.random_case(seed, log=True) for seed in range(20, 40)]
    data = b"".join(plain.encode(rows, compression=compression, **state) for rows, state in cases)
    assert java_oracle.read_valid(data) == plain.decode(data)


@pytest.mark.java
@pytest.mark.parametrize("control", [False, True])
def test_C01_empty_batch_is_a_bare_header(java_oracle: JavaOracle, control: bool) -> None:
    state: dict[str, Any] = TRANSACTIONAL_STATE | {"partition_leader_epoch": 4, "control": control}
    theirs = java_oracle.build_empty(100, 109, **state)
    assert len(theirs) == plain.HEADER_BYTES
    assert theirs == plain.encode([], base_offset=100, last_offset=109, **state)
    ((header, records),) = java_oracle.read_valid(theirs)
    assert (header["last_offset"], header["count"], header["is_control"], records) == (109, 0, control, [])
    assert plain.decode(theirs) == [(header, records)]


@pytest.mark.java
@pytest.mark.parametrize("commit", [False, True])
def test_C01_control_batch_equals_javas(java_oracle: JavaOracle, commit: bool) -> None:
    rows = [strategies.end_transaction_marker(commit, 1234)]
    state: dict[str, Any] = {"producer_id": 9, "producer_epoch": 1, "base_sequence": -1}
    state |= {"transactional": True, "control": True, "base_offset": 77}
    theirs = java_oracle.build(rows, **state)
    assert plain.encode(rows, **state) == theirs
    assert plain.decode(theirs) == java_oracle.read_valid(theirs)


@pytest.mark.java
def test_java_exception_is_reported_by_name(java_oracle: JavaOracle) -> None:
    with pytest.raises(JavaError, match="Invalid negative timestamp") as caught:
        java_oracle.build([(b"k", b"v", (), -5)])
    assert caught.value.class_name == "IllegalArgumentException"
    assert java_oracle.read_valid(ONE_RECORD)  # and the process continues


@pytest.mark.java
def test_java_passes_over_a_batch_cut_off_at_the_end(java_oracle: JavaOracle) -> None:
    reading = java_oracle.read(ONE_RECORD + ONE_RECORD[:40])
    assert (len(reading.batches), reading.error, reading.used_bytes) == (1, None, len(ONE_RECORD))


@pytest.mark.java
def test_java_hashes_keys_as_plain_does(java_oracle: JavaOracle) -> None:
    rng = random.Random(2)
    keys = [rng.randbytes(length % 65) for length in range(1000)]
    assert java_oracle.murmur2(keys) == [plain.murmur2(key) for key in keys]
    assert java_oracle.partitions(keys, 12) == [plain.partition_for_key(key, 12) for key in keys]


@pytest.mark.java
def test_a_timing_has_a_value_for_each_round(java_oracle: JavaOracle) -> None:
    batch = plain.encode(TRANSACTIONAL_ROWS)
    timing = java_oracle.bench_encode(TRANSACTIONAL_ROWS, warm_up_seconds=0, rounds=2)
    assert (len(timing.ns_per_record), timing.size_bytes) == (2, len(batch))
    timing = java_oracle.bench_decode(batch, warm_up_seconds=0, rounds=2)
    assert len(timing.ns_per_record) == 2
    assert min(timing.ns_per_record) > 0


@pytest.mark.java
def test_a_dump_names_every_record(java_oracle: JavaOracle, tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(plain.encode(TRANSACTIONAL_ROWS, **TRANSACTIONAL_STATE))
    text = java_oracle.dump([log])
    assert "producerId: 4242 producerEpoch: 7" in text
    assert text.count("| offset: ") == len(TRANSACTIONAL_ROWS)


@pytest.mark.java
@pytest.mark.usefixtures("java_oracle")  # which knows whether there is a Java at all
def test_dead_process_is_reported() -> None:
    with JavaOracle() as oracle:
        oracle._process.kill()
        with pytest.raises(JavaDiedError, match="status -9"):
            oracle.murmur2([b"key"])
