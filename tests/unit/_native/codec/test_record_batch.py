"""Record batches by Python objects: C01 to C08, the writer, and reading its batches."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kbatch
from kbatch import CorruptRecordError, IllegalStateError, Record, RecordBatch, RecordBatchWriter
from tests.oracle import ours, plain, strategies
from tests.unit.test_oracle import BENT, ONE_RECORD, TRANSACTIONAL, TRANSACTIONAL_ROWS, TRANSACTIONAL_STATE

INT32_MAX = plain.INT32_MAX
INT64_MAX = 2**63 - 1
ROWS: list[plain.Row] = [(b"key", b"value", (("h", b"x"),), 1000 + number) for number in range(5)]


def written(rows: list[plain.Row], **parameters: Any) -> RecordBatchWriter:
    """Return a writer with rows appended, not sealed."""
    writer = RecordBatchWriter(**parameters)
    for row in rows:
        writer.append(*row)
    return writer


def sealed(rows: list[plain.Row], **parameters: Any) -> bytes:
    writer = written(rows, **parameters)
    writer.seal()
    return writer.getvalue()


def read_one(data: bytes | bytearray) -> RecordBatch:
    (batch,) = kbatch.decode(data, partial="raise")
    return batch


# Golden bytes


def test_one_record_equals_the_golden_bytes() -> None:
    assert kbatch.encode([(b"k", b"v", (), 1_700_000_000_000)]) == ONE_RECORD
    assert sealed([(b"k", b"v", (), 1_700_000_000_000)]) == ONE_RECORD


def test_C08_transactional_batch_equals_the_golden_bytes() -> None:
    assert kbatch.encode(TRANSACTIONAL_ROWS, **TRANSACTIONAL_STATE) == TRANSACTIONAL
    batch = read_one(TRANSACTIONAL)
    assert (batch.last_sequence, batch.max_timestamp_ms, batch.base_timestamp_ms) == (0, 1001, 1000)
    assert [(record.key, record.value, record.headers, record.timestamp_ms) for record in batch] == (
        TRANSACTIONAL_ROWS
    )


def test_records_tuples_and_tuple_subclasses_are_equal_input() -> None:
    records = [Record(*row) for row in ROWS]
    named = [plain.Record(0, 0, key, value, tuple(headers)) for key, value, headers, _ in ROWS]
    assert kbatch.encode(records) == kbatch.encode(ROWS) == kbatch.encode(iter(ROWS))
    with pytest.raises(TypeError, match=r"record 0 must be a tuple .* got 5"):
        kbatch.encode(named)


@pytest.mark.parametrize(
    "held_by", [bytes, bytearray, memoryview, np.frombuffer], ids=lambda kind: kind.__name__
)
def test_any_bytes_like_is_key_value_and_header(held_by: Callable[[bytes], Any]) -> None:
    def held(data: bytes) -> Any:
        return np.frombuffer(data, np.uint8) if held_by is np.frombuffer else held_by(data)

    row = (held(b"key"), held(b"value"), [("h", held(b"x"))], 1000)
    assert kbatch.encode([row]) == kbatch.encode(ROWS[:1])


# C01: header fields


@pytest.mark.parametrize("compression", plain.CODECS)
def test_C01_an_empty_batch_is_a_bare_header(compression: str) -> None:
    state: dict[str, Any] = {"base_offset": 100, "partition_leader_epoch": 4}
    writer = RecordBatchWriter(compression, **state)
    writer.seal(last_offset_delta=9)
    data = writer.getvalue()
    assert len(data) == plain.HEADER_BYTES
    assert data == plain.encode([], compression=compression, last_offset=109, **state)
    batch = read_one(data)
    assert (len(batch), batch.base_offset, batch.last_offset, list(batch)) == (0, 100, 109, [])


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("log_append_time_ms", [None, 77])
@pytest.mark.parametrize("delete_horizon_ms", [None, 0, -1, INT64_MAX])
def test_C01_attributes_come_back(
    control: bool, log_append_time_ms: int | None, delete_horizon_ms: int | None
) -> None:
    state: dict[str, Any] = {
        "log_append_time_ms": log_append_time_ms,
        "delete_horizon_ms": delete_horizon_ms,
        "transactional": True,
        "control": control,
    }
    writer = written(ROWS, **state)
    writer.seal()
    writer.stamp(producer_id=9, producer_epoch=1, base_sequence=-1 if control else 5)
    data = writer.getvalue()
    expected = plain.encode(
        ROWS, producer_id=9, producer_epoch=1, base_sequence=-1 if control else 5, **state
    )
    assert data == expected
    (batch,) = ours.read(data)
    assert batch.header["is_control"] == control
    assert batch.header["delete_horizon_ms"] == delete_horizon_ms
    assert [record.timestamp_ms for record in batch.records] == (
        [row[3] for row in ROWS] if log_append_time_ms is None else [77] * len(ROWS)
    )


def test_the_header_is_read_without_the_records() -> None:
    data = plain.encode(ROWS, base_offset=10, compression="gzip", compressor=lambda _: b"no gzip at all")
    batch = read_one(data)
    assert repr(batch) == f"<RecordBatch offsets 10..14, 5 records, {len(data)} bytes, gzip>"
    assert (batch.size_bytes, bytes(batch), len(batch)) == (len(data), data, 5)
    with pytest.raises(CorruptRecordError, match="gzip"):
        list(batch)


# C02: what the CRC covers


@pytest.mark.parametrize("field", range(len(plain.HEADER.format) - 1))
def test_C02_crc_covers_all_but_base_offset_and_leader_epoch(field: int) -> None:
    header = list(plain.HEADER.unpack_from(ONE_RECORD))
    header[field] ^= 1
    bent = plain.HEADER.pack(*header) + ONE_RECORD[plain.HEADER_BYTES :]
    if field in (0, 2):
        assert [record.key for record in read_one(bent)] == [b"k"]
    else:
        with pytest.raises(CorruptRecordError):
            read_one(bent)


def test_C02_check_crc_false_reads_on() -> None:
    bent = ONE_RECORD[:17] + b"\0\0\0\0" + ONE_RECORD[21:]
    with pytest.raises(CorruptRecordError, match="CRC-32C is 0xe99b8dd8, but 0x00000000 in the header"):
        read_one(bent)
    (batch,) = kbatch.decode(bent, check_crc=False)
    assert (batch.crc, [record.value for record in batch]) == (0, [b"v"])


@pytest.mark.parametrize("length", range(len(ONE_RECORD)))
def test_C02_a_cut_batch_ends_the_iteration_or_raises(length: int) -> None:
    cut = ONE_RECORD + ONE_RECORD[:length]
    assert len(list(kbatch.decode(cut))) == 1
    batches = kbatch.decode(cut, partial="raise")
    assert next(batches).base_offset == 0
    if length:
        with pytest.raises(CorruptRecordError, match=f"byte {len(ONE_RECORD)} is cut off: {length} bytes"):
            next(batches)
    assert list(batches) == []  # iteration ends after an error
    with pytest.raises(CorruptRecordError):
        kbatch.rebase(ONE_RECORD[:length], 0)


@pytest.mark.parametrize("compression", plain.CODECS)
@pytest.mark.parametrize("difference", [-5, -1, 1, INT32_MAX - 5])
def test_C02_a_wrong_count_is_corrupt_compressed_or_not(compression: str, difference: int) -> None:
    data = plain.encode(ROWS, compression=compression)
    bent = plain.with_crc(data[:57] + struct.pack(">i", len(ROWS) + difference) + data[61:])
    with pytest.raises(CorruptRecordError):
        list(read_one(bent))


@pytest.mark.parametrize("magic", [0, 1])
def test_magic_0_and_1_are_named(magic: int) -> None:
    data = ONE_RECORD[:16] + bytes([magic]) + ONE_RECORD[17:]
    with pytest.raises(CorruptRecordError, match=f"magic {magic} is a message set from before Kafka 0.11"):
        read_one(data)


# C03: what no batch can have


@pytest.mark.parametrize("data", BENT.values(), ids=BENT)
def test_C03_impossible_fields_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        ours.read(data)


C03_MESSAGES = {
    "record longer than the batch": "record 0 of the batch at offset 0: the size is impossible",
    "key beyond the record": "record 0 .* the key's size is impossible",
    "value beyond the record": "record 0 .* the value's size is impossible",
    "more headers than bytes": "record 0 .* the header count is impossible",
    "count too small": "record 0 .* bytes are left over",
    "count negative": "byte 0: a record count of -1 is impossible",
    "unknown codec": "byte 0: compression codec 5 is unknown",
    "last offset delta negative": "byte 0: a last offset delta of -1 is impossible",
    "offset after the batch": "record 0 of the batch at offset 0: its offset is outside of the batch",
    "offset before the batch": "record 0 of the batch at offset 0: its offset is outside of the batch",
}


@pytest.mark.parametrize("name", C03_MESSAGES)
def test_C03_the_message_names_place_and_field(name: str) -> None:
    with pytest.raises(CorruptRecordError, match=C03_MESSAGES[name]):
        ours.read(BENT[name])


@pytest.mark.parametrize(
    ("name", "message"),
    [(None, "key has an impossible size"), (b"\xff", "not UTF-8"), (b"\xed\xa0\x80", "not UTF-8"), (b"", "")],
    ids=["null", "not UTF-8", "a surrogate", "empty"],
)
def test_C03_header_keys_are_utf8_and_never_null(name: bytes | None, message: str) -> None:
    key = b"\x01" if name is None else plain.encode_varint(len(name)) + name
    body = b"\0\0\0\x01\x01\x02" + key + b"\x01"
    record = plain.encode_varint(len(body)) + body
    data = plain.encode([(None, None, (), 0)], compression="snappy", compressor=plain_snappy(record))
    if message:
        with pytest.raises(CorruptRecordError, match=f"record 0 .*{message}"):
            ours.read(data)
    else:
        assert ours.read(data)[0].records[0].headers == (("", None),)


def plain_snappy(record: bytes) -> Callable[[bytes], bytes]:
    return lambda _: plain.compress(record, "snappy")


# C04: sequences


@pytest.mark.parametrize(
    ("base", "last"), [(0, 2), (INT32_MAX - 2, INT32_MAX), (INT32_MAX - 1, 0), (INT32_MAX, 1)]
)
def test_C04_last_sequence_wraps(base: int, last: int) -> None:
    data = kbatch.encode(ROWS[:3], producer_id=0, producer_epoch=0, base_sequence=base)
    assert read_one(data).last_sequence == last


def test_C04_no_sequence_has_no_last_one() -> None:
    batch = read_one(kbatch.encode(ROWS))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (
        -1,
        -1,
        -1,
        -1,
    )


# C05: iterating


@pytest.mark.parametrize("compression", plain.CODECS)
def test_C05_every_iteration_of_a_batch_gives_the_same_records(compression: str) -> None:
    batch = read_one(kbatch.encode(ROWS, compression=compression))
    eager = list(batch)
    first, second = iter(batch), iter(batch)
    assert [record for pair in zip(first, second, strict=True) for record in pair] == [
        record for record in eager for _ in range(2)
    ]


def test_C05_batch_with_broken_last_record_yields_nothing() -> None:
    records = [plain.encode_record(row, number, 1000) for number, row in enumerate(ROWS)]
    broken = b"".join(records)[:-1]
    batch = read_one(
        plain.encode(ROWS, compression="zstd", compressor=lambda _: plain.compress(broken, "zstd"))
    )
    with pytest.raises(CorruptRecordError, match="record 4"):
        iter(batch)


def test_batch_keeps_its_bytes_alive_and_locks_a_bytearray() -> None:
    data = bytearray(kbatch.encode(ROWS))
    batch = read_one(data)
    with pytest.raises(BufferError):
        data.clear()
    del data
    assert len(list(batch)) == len(ROWS)


def test_memory_changed_while_read_is_corrupt_at_worst() -> None:
    data = bytearray(kbatch.encode(ROWS))
    records = iter(read_one(data))
    next(records)
    data[plain.HEADER_BYTES :] = b"\xff" * (len(data) - plain.HEADER_BYTES)
    with pytest.raises(CorruptRecordError, match="record 1 "):
        next(records)
    assert list(records) == []


# C06: who produced it


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"producer_id": 5, "base_sequence": 0},
            "producer_epoch must be 0 or more with producer_id 5, got -1",
        ),
        (
            {"producer_id": 5, "producer_epoch": 0},
            "base_sequence must be 0 or more with producer_id 5, got -1",
        ),
        ({"producer_epoch": 0}, "producer_epoch and base_sequence go with a producer_id"),
        ({"base_sequence": 0}, "producer_epoch and base_sequence go with a producer_id"),
        ({"producer_id": -2}, "producer_id .* got -2"),
        ({"transactional": True}, "transactional batch needs a producer_id .* got -1"),
    ],
)
def test_C06_impossible_producer_state_is_refused(state: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kbatch.encode(ROWS, **state)


def test_C06_control_batch_is_transactional_without_sequence() -> None:
    with pytest.raises(ValueError, match="transactional=True"):
        RecordBatchWriter(control=True)
    writer = written(ROWS[:1], control=True, transactional=True)
    writer.seal()
    with pytest.raises(IllegalStateError, match="stamped with its producer id"):
        writer.getvalue()
    writer.stamp(producer_id=1, producer_epoch=0)
    assert read_one(writer.getvalue()).is_control


@pytest.mark.parametrize("compression", plain.CODECS)
def test_stamping_again_changes_the_header_of_new_bytes_only(compression: str) -> None:
    writer = written(ROWS, compression=compression)
    writer.seal()
    first = writer.getvalue()
    kept = bytes(bytearray(first))
    for epoch in range(3):
        state = {
            "producer_id": 7,
            "producer_epoch": epoch,
            "base_sequence": INT32_MAX - epoch,
            "base_offset": epoch,
        }
        writer.stamp(**state)
        (batch,) = plain.decode(writer.getvalue())  # which checks the CRC
        assert batch.header == batch.header | state
        assert writer.getvalue()[plain.HEADER_BYTES :] == first[plain.HEADER_BYTES :]
    assert first == kept
    writer.stamp()
    assert writer.getvalue()[8:] == first[8:]


def test_a_refused_stamp_leaves_the_batch_as_it_was() -> None:
    writer = written(ROWS)
    writer.seal()
    writer.stamp(producer_id=7, producer_epoch=1, base_sequence=2)
    before = writer.getvalue()
    with pytest.raises(ValueError):
        writer.stamp(producer_id=8, producer_epoch=1)
    with pytest.raises(ValueError):
        writer.stamp(producer_id=8, producer_epoch=1, base_sequence=2, base_offset=-1)
    assert writer.getvalue() == before


# C07: room, order and state


def test_C07_a_write_limit_of_0_takes_exactly_one_record() -> None:
    writer = RecordBatchWriter(write_limit=0)
    assert not writer.is_full
    assert writer.has_room_for(b"k" * 1000, b"v")
    writer.append(b"k" * 1000, b"v")
    assert not writer.has_room_for(None, None)
    assert writer.is_full


def test_C07_estimate_without_codec_is_exact_to_the_last_byte() -> None:
    size = len(kbatch.encode(ROWS))
    for limit, fits in ((size, True), (size - 1, False)):
        writer = written(ROWS[:4], write_limit=limit)
        assert writer.has_room_for(*ROWS[4]) == fits
        assert not writer.is_full
        writer.append(*ROWS[4])
        assert writer.is_full
        assert writer.estimated_bytes == size
        writer.seal()
        assert writer.estimated_bytes == len(writer.getvalue()) == size


@pytest.mark.parametrize("ratio", [0.1, 1.0, 1.3])
def test_C07_estimate_is_1_05_times_the_ratio_and_never_falls(ratio: float) -> None:
    writer = RecordBatchWriter("lz4", ratio=ratio)
    assert writer.estimated_bytes == plain.HEADER_BYTES
    before, raw = writer.estimated_bytes, 0
    for number, row in enumerate(ROWS):
        writer.append(*row)
        raw += len(plain.encode_record(row, number, ROWS[0][3]))
        assert before < writer.estimated_bytes == plain.HEADER_BYTES + int(raw * (ratio * 1.05))
        before = writer.estimated_bytes


def test_C07_offsets_rise_and_gaps_are_kept() -> None:
    writer = RecordBatchWriter(base_offset=10)
    for offset in (10, 13, None, 2**31):
        writer.append(None, b"v", timestamp_ms=0, offset=offset)
    for offset in (2**31, 9, -1):
        with pytest.raises(ValueError, match=f"record 4: offset must be {2**31 + 1} or more, got {offset}"):
            writer.append(None, b"v", offset=offset)
    with pytest.raises(ValueError, match=r"record 4: offset .* above the batch's base offset"):
        writer.append(None, b"v", offset=2**31 + 10)
    writer.seal()
    assert [record.offset for record in read_one(writer.getvalue())] == [10, 13, 14, 2**31]


def test_C07_a_sealed_or_aborted_batch_takes_nothing_more() -> None:
    writer = written(ROWS)
    writer.seal()
    before = writer.getvalue()
    for call in (writer.append, writer.seal):
        with pytest.raises(IllegalStateError, match="record batch that is sealed"):
            call()
    assert not writer.has_room_for(None, None)
    assert writer.getvalue() == before
    writer.abort()
    assert len(writer) == 0
    rest: list[Callable[[], object]] = [writer.append, writer.seal, writer.stamp, writer.getvalue]
    for use in rest:
        with pytest.raises(IllegalStateError, match="aborted"):
            use()
    assert list(read_one(before)) == list(read_one(kbatch.encode(ROWS)))


def test_open_batch_cannot_be_read_nor_an_empty_one_sealed() -> None:
    writer = RecordBatchWriter()
    for call in (writer.getvalue, writer.stamp):
        with pytest.raises(IllegalStateError, match="open"):
            call()
    with pytest.raises(ValueError, match="at least one record"):
        writer.seal()
    writer.append(b"k", b"v", timestamp_ms=1, offset=5)
    with pytest.raises(ValueError, match="last_offset_delta 4 is below"):
        writer.seal(last_offset_delta=4)
    writer.seal(last_offset_delta=6)
    assert read_one(writer.getvalue()).last_offset == 6


def test_a_refused_record_leaves_the_batch_as_it_was() -> None:
    writer = written(ROWS[:2])
    for bad in (("text", b"v"), (b"k", b"v", [("h", 5)]), (b"k", b"v", (), -2)):
        with pytest.raises((TypeError, ValueError), match="record 2"):
            writer.append(*bad)
        with pytest.raises((TypeError, ValueError), match="record 2"):
            writer.has_room_for(*bad)
    writer.append(*ROWS[2])
    writer.seal()
    assert writer.getvalue() == kbatch.encode(ROWS[:3])


def _append_meanwhile(writer: RecordBatchWriter) -> None:
    writer.append(b"inner" * 1000, b"v", [("i", b"2")], timestamp_ms=1)


def _meddling_headers(writer: RecordBatchWriter) -> dict[str, Any]:
    def headers() -> Iterator[tuple[str, bytes]]:
        yield "h", b"1"
        _append_meanwhile(writer)
        yield "h", b"3"

    return {"headers": headers(), "timestamp_ms": 1}


def _meddling_timestamp(writer: RecordBatchWriter) -> dict[str, Any]:
    class Timestamp:
        def __index__(self) -> int:
            _append_meanwhile(writer)
            return 1

        __int__ = __index__

    return {"timestamp_ms": Timestamp()}


@pytest.mark.parametrize("meddling", [_meddling_headers, _meddling_timestamp])
def test_arguments_that_append_to_the_same_batch_do_no_harm(
    meddling: Callable[[RecordBatchWriter], dict[str, Any]],
) -> None:
    writer = RecordBatchWriter()
    writer.append(b"before", b"v", timestamp_ms=1)
    with pytest.raises(IllegalStateError, match="while a record is being appended"):
        writer.append(bytearray(b"k" * 100_000), b"v", **meddling(writer))
    writer.append(b"after", b"v", timestamp_ms=1)
    writer.seal()
    assert [(record.offset, record.key) for record in read_one(writer.getvalue())] == [
        (0, b"before"),
        (1, b"after"),
    ]


# C08: timestamps


@pytest.mark.parametrize(
    "timestamps", [(1, 2, 3), (3, 2, 1), (2, -1, 5), (-1, -1), (0, INT64_MAX - 1), (INT64_MAX - 1, -1)]
)
def test_C08_base_is_the_first_timestamp_and_max_the_largest(timestamps: tuple[int, ...]) -> None:
    batch = read_one(kbatch.encode([(None, b"v", (), timestamp) for timestamp in timestamps]))
    assert [record.timestamp_ms for record in batch] == list(timestamps)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (timestamps[0], max(timestamps))


def test_C08_missing_timestamps_are_the_time_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((1234.5678, 99999.0))
    monkeypatch.setattr("time.time", lambda: next(clock))
    batch = read_one(kbatch.encode([(b"k", b"v"), (b"k", b"v", (), 5), (b"k", b"v", (), None), Record(b"k")]))
    assert [record.timestamp_ms for record in batch] == [1234567, 5, 1234567, 1234567]


@pytest.mark.parametrize(
    "kind",
    [np.int64, np.int32, type("Index", (), {"__init__": lambda self, _: None, "__index__": lambda _: 5})],
)
def test_C08_any_integer_is_a_timestamp(kind: Callable[[int], Any]) -> None:
    batch = read_one(kbatch.encode([(None, b"v", (), kind(5))]))
    assert [record.timestamp_ms for record in batch] == [5]


def test_C08_a_read_record_has_its_timestamp_whatever_it_is() -> None:
    header = list(plain.HEADER.unpack_from(ONE_RECORD))
    header[7] = -(2**63)
    data = plain.with_crc(plain.HEADER.pack(*header) + ONE_RECORD[plain.HEADER_BYTES :])
    assert [record.timestamp_ms for record in read_one(data)] == [-(2**63)]
    assert Record().timestamp_ms is None


# RecordBatch.survey: what a broker looks for in the records of a batch, in one pass.


@pytest.mark.parametrize("compression", plain.CODECS)
@pytest.mark.parametrize("seed", range(20))
def test_the_survey_is_what_the_records_are(compression: str, seed: int) -> None:
    rows, _ = strategies.random_case(seed, log=False)
    rows[:1] = [(None, b"", (("h", None),), -1)] if seed % 4 == 0 else rows[:1]
    survey = read_one(plain.encode(rows, compression=compression)).survey()
    timestamps = [row[3] for row in rows if row[3] != -1]
    assert survey == (
        min(timestamps, default=-1),
        max(timestamps, default=-1),
        sum(row[0] is None for row in rows),
        True,
        None,
        None,
    )


LONG_ZERO = b"\x80\0"  # as a varint
ODD_RECORDS = {
    "a varint is longer": b"\x0e" + b"\0\0" + LONG_ZERO + b"\1\1\0",
    "the attributes byte is not 0": b"\x0c" + b"\1\0\0\1\1\0",
    "the offset delta is not its index": b"\x0c" + b"\0\0\2\1\1\0",
    "not the batch's base timestamp": b"\x0c" + b"\0\2\0\1\1\0",
}
ODD_FIELDS = {
    "size": b"\x8c\0" + b"\0\0\0\1\1\0",
    "timestamp delta": b"\x0e" + b"\0" + LONG_ZERO + b"\0\1\1\0",
    "key size": b"\x0e" + b"\0\0\0" + LONG_ZERO + b"\1\0",
    "value size": b"\x0e" + b"\0\0\0\1" + LONG_ZERO + b"\0",
    "header count": b"\x0e" + b"\0\0\0\1\1" + LONG_ZERO,
    "header key": b"\x12" + b"\0\0\0\1\1\2" + LONG_ZERO + b"\1",
    "header value": b"\x12" + b"\0\0\0\1\1\2\0" + LONG_ZERO,
}


def with_body(body: bytes, count: int = 1) -> bytes:
    header = struct.pack(">qiibIhiqqqhii", 0, 49 + len(body), -1, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
    return plain.with_crc(header + body)


@pytest.mark.parametrize("noted", ODD_RECORDS)
def test_the_survey_names_what_no_producer_writes(noted: str) -> None:
    survey = read_one(with_body(ODD_RECORDS[noted])).survey()
    assert survey.error is None
    assert survey.oddity is not None
    assert survey.oddity.startswith("record 0: ")
    assert noted in survey.oddity
    assert survey.offsets_consecutive is (noted != "the offset delta is not its index")


@pytest.mark.parametrize("field", ODD_FIELDS)
def test_every_varint_is_looked_at(field: str) -> None:
    batch = read_one(with_body(ODD_FIELDS[field]))
    assert "a varint is longer" in str(batch.survey().oddity)
    assert len(list(batch)) == 1, "it can be read"


def test_the_first_odd_record_is_named() -> None:
    regular = [b"\x0c" + b"\0\0" + bytes([2 * number]) + b"\1\1\0" for number in range(4)]
    odd = [regular[0], regular[1], regular[3], ODD_FIELDS["size"]]
    survey = read_one(with_body(b"".join(odd), 4)).survey()
    assert str(survey.oddity).startswith("record 2: the offset delta")


@pytest.mark.parametrize("compression", plain.CODECS)
def test_the_survey_finds_an_error_where_reading_does(compression: str) -> None:
    batch = bytearray(plain.encode(ROWS, compression="none"))
    found = 0
    for position in range(plain.HEADER_BYTES, len(batch)):
        for bit in range(8):
            batch[position] ^= 1 << bit
            body = plain.compress(bytes(batch[plain.HEADER_BYTES :]), compression)
            header = plain.HEADER.unpack_from(batch)
            head = plain.HEADER.pack(
                *header[:1], 49 + len(body), *header[2:5], plain.CODECS.index(compression), *header[6:]
            )
            bent = read_one(plain.with_crc(head + body))
            survey = bent.survey()
            error = survey.error
            try:
                list(bent)
            except CorruptRecordError as raised:
                found += 1
                text = str(raised).replace(" of the batch at offset 0", "")
                if text.endswith("its offset is outside of the batch"):  # a broker does not look
                    assert not survey.offsets_consecutive
                else:
                    assert error is not None
                    assert error in text
            else:
                assert error is None
            batch[position] ^= 1 << bit
    assert found > 100


def test_a_count_beyond_the_bytes_is_an_error_of_the_survey() -> None:
    for count in (2, INT32_MAX):
        survey = read_one(with_body(b"\x0c" + b"\0\0\0\1\1\0", count)).survey()
        assert survey.error == "record 1: the size is impossible or larger than the data"


@pytest.mark.parametrize("compression", plain.CODECS[1:])
def test_records_that_do_not_decompress_are_no_survey(compression: str) -> None:
    batch = plain.encode(
        ROWS, compression=compression, compressor=lambda _: b"\x82SNAPPY\0 no stream of any kind"
    )
    with pytest.raises(CorruptRecordError):
        read_one(batch).survey()
