"""The arguments of encode, decode, rebase and Record, and the errors for others."""

import datetime
import pickle
from typing import Any

import pytest

import kbatch
from kbatch import CorruptRecordError, Record, RecordBatch
from tests.oracle import plain
from tests.unit._native.codec.test_record_batch import INT64_MAX, ROWS, read_one
from tests.unit.test_oracle import ONE_RECORD, TRANSACTIONAL

REFUSED: list[tuple[Any, type[Exception], str]] = [
    ("text", TypeError, r"record 1 must be a Record or a tuple .*, got str"),
    ((b"k",), TypeError, r"record 1 must be a tuple .* got 1 items"),
    ((b"k", b"v", (), 1, 5), TypeError, r"record 1 must be a tuple .* got 5 items"),
    (("k", b"v"), TypeError, r"record 1: key must be bytes-like or None, got str \(encode it first\)"),
    ((b"k", 5), TypeError, r"record 1: value must be bytes-like or None, got int"),
    ((b"k", b"v", {"h": b"x"}), TypeError, r"record 1: headers must be a sequence .*, got dict"),
    ((b"k", b"v", "text"), TypeError, r"record 1: headers must be a sequence .*, got str"),
    (
        (b"k", b"v", [("h", b"x"), (b"h", b"x")]),
        TypeError,
        r"record 1: header 1 must be a pair .* \(b'h', b'x'\)",
    ),
    ((b"k", b"v", [("h",)]), TypeError, r"record 1: header 0 must be a pair .* \('h',\)"),
    ((b"k", b"v", [(None, b"x")]), TypeError, r"record 1: header 0 must be a pair .* None"),
    ((b"k", b"v", [("h", "x")]), TypeError, r"record 1: header 'h' must be bytes-like or None, got str"),
    (
        (b"k", b"v", [("\ud800", b"x")]),
        ValueError,
        r"record 1: header 0: key '\\ud800' cannot be written as UTF-8",
    ),
    ((b"k", b"v", (), 1.5), TypeError, r"record 1: timestamp_ms must be an int .*, got float"),
    ((b"k", b"v", (), True), TypeError, r"record 1: timestamp_ms must be an int .*, got bool"),
    ((b"k", b"v", (), datetime.datetime(2020, 1, 1)), TypeError, r"record 1: timestamp_ms .*, got datetime"),
    (
        (b"k", b"v", (), -2),
        ValueError,
        r"record 1: timestamp_ms must be 0 to 2\^63 - 2, or -1 for none, got -2",
    ),
    ((b"k", b"v", (), INT64_MAX), ValueError, rf"record 1: timestamp_ms must be .* got {INT64_MAX}"),
    (
        (b"k", b"v", (), 2**63),
        ValueError,
        r"record 1: timestamp_ms must fit 64 bits, got 9223372036854775808",
    ),
]


@pytest.mark.parametrize(
    ("item", "error", "message"), REFUSED, ids=[message[11:40] for _, _, message in REFUSED]
)
def test_encode_names_record_field_and_value(item: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        kbatch.encode([ROWS[0], item])


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"compression": "brotli"}, ValueError, "none, gzip, snappy, lz4, zstd, got 'brotli'"),
        ({"compression": None}, ValueError, "got None"),
        (
            {"compression": "gzip", "compression_level": "6"},
            TypeError,
            "compression_level must be an int or None, got str",
        ),
        ({"base_offset": -1}, ValueError, "base_offset .* got -1"),
        ({"base_offset": INT64_MAX}, ValueError, "base_offset"),
        ({"records": []}, ValueError, "at least one record"),
        ({"records": None}, TypeError, "not iterable"),
        ({"producer_id": 1, "producer_epoch": 32768, "base_sequence": 0}, (ValueError, OverflowError), "."),
    ],
)
def test_encode_names_the_parameter(parameters: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        kbatch.encode(**({"records": ROWS} | parameters))


def test_decode_refuses_other_types_and_parameters_out_of_range() -> None:
    for data in (None, "text", 5, [b"x"]):
        with pytest.raises(TypeError, match="bytes-like"):
            kbatch.decode(data)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="partial must be 'stop' or 'raise', got 'skip'"):
        kbatch.decode(b"", partial="skip")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_decompressed_bytes must not be negative, got -1"):
        kbatch.decode(b"", max_decompressed_bytes=-1)
    assert list(kbatch.decode(b"")) == []


@pytest.mark.parametrize("compression", plain.CODECS)
def test_the_largest_limit_is_no_limit(compression: str) -> None:
    data = kbatch.encode(ROWS, compression=compression)
    (batch,) = kbatch.decode(data, max_decompressed_bytes=2**64 - 1)
    assert len(list(batch)) == len(ROWS)


# rebase


def test_rebase_changes_the_base_offset_alone() -> None:
    moved = kbatch.rebase(bytearray(TRANSACTIONAL), 2**40)
    assert moved[:8] == (2**40).to_bytes(8, "big")
    assert moved[8:] == TRANSACTIONAL[8:]
    assert [record.offset for record in read_one(moved)] == [2**40, 2**40 + 1, 2**40 + 2]


@pytest.mark.parametrize("data", [b"", b"\0", ONE_RECORD[:-1], ONE_RECORD + b"\0", ONE_RECORD * 2], ids=len)
def test_rebase_takes_exactly_one_batch(data: bytes) -> None:
    with pytest.raises(CorruptRecordError, match=f"{len(data)} bytes"):
        kbatch.rebase(data, 5)


@pytest.mark.parametrize("base_offset", [-1, INT64_MAX - 1, 2**63])
def test_rebase_leaves_no_offset_out_of_range(base_offset: int) -> None:
    with pytest.raises(ValueError, match=rf"base_offset .* got {base_offset}"):
        kbatch.rebase(TRANSACTIONAL, base_offset)


# Record


def test_a_record_is_a_value() -> None:
    record = Record(b"k", b"v", [("h", None)], 5, 7)
    assert record == Record(b"k", b"v", (("h", None),), 5, 7) != Record(b"k", b"v", (("h", None),), 5, 8)
    assert len({record, Record(b"k", b"v", (("h", None),), 5, 7)}) == 1
    assert pickle.loads(pickle.dumps(record)) == record
    assert repr(record) == "Record(key=b'k', value=b'v', headers=(('h', None),), timestamp_ms=5, offset=7)"
    assert record != (b"k", b"v", (("h", None),), 5, 7)
    assert (Record().timestamp_ms, Record().offset, Record().headers) == (None, -1, ())


def test_a_record_batch_comes_from_decode_alone() -> None:
    with pytest.raises(TypeError, match=r"kbatch\.decode"):
        RecordBatch()
