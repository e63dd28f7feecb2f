"""RecordBatch.survey: what a broker looks for in the records of a batch, in one pass."""

import struct

import pytest

import kbatch
from kbatch import CorruptRecordError, RecordBatch
from tests.oracle import plain, strategies

INT32_MAX = plain.INT32_MAX
ROWS: list[plain.Row] = [(b"key", b"value", (("h", b"x"),), 1000 + number) for number in range(5)]


def read_one(data: bytes) -> RecordBatch:
    (batch,) = kbatch.decode(data, partial="raise")
    return batch


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


@pytest.mark.parametrize("told", ODD_RECORDS)
def test_the_survey_names_what_no_producer_writes(told: str) -> None:
    survey = read_one(with_body(ODD_RECORDS[told])).survey()
    assert survey.error is None
    assert survey.oddity is not None
    assert survey.oddity.startswith("record 0: ")
    assert told in survey.oddity
    assert survey.offsets_consecutive is (told != "the offset delta is not its index")


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
            error = bent.survey().error
            try:
                list(bent)
            except CorruptRecordError as raised:
                found += 1
                assert error is not None
                assert error in str(raised).replace(" of the batch at offset 0", "")
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
