"""A broker's checks of a produced batch, section by section in Kafka's order, and what it writes."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kbatch
from kbatch.errors import CorruptRecordError, ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.logs.topic_config import TopicConfig
from kbatch.testing.broker.logs.validation import Prepared, RecordErrors, prepare, read_produced
from tests.oracle import plain, strategies

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
LATEST_VERSION = 13
ROWS: list[plain.Row] = [(b"k", b"v", (("h", b"x"),), NOW_MS + number) for number in range(3)]
GOOD = plain.encode(ROWS)
FIELDS = (
    *("base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta"),
    *("base_timestamp_ms", "max_timestamp_ms", "producer_id", "producer_epoch", "base_sequence", "count"),
)


def bent(batch: bytes = GOOD, *, right_crc: bool = True, **fields: int) -> bytes:
    """Return `batch` with other header fields, and by default their CRC."""
    header = dict(zip(FIELDS, plain.HEADER.unpack_from(batch), strict=True)) | fields
    made = plain.HEADER.pack(*header.values()) + batch[plain.HEADER_BYTES :]
    return plain.with_crc(made) if right_crc else made


def config(**overrides: Any) -> TopicConfig:
    return TopicConfig({name.replace("_", "."): str(value) for name, value in overrides.items()})


def prepared(
    data: bytes, *, version: int = LATEST_VERSION, strict: bool = False, **overrides: Any
) -> Prepared:
    produced = read_produced(data, version)
    return prepare(
        produced, config(**overrides), base_offset=70, leader_epoch=5, now_ms=NOW_MS, strict=strict
    )


def refused(data: bytes, **parameters: Any) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        prepared(data, **parameters)
    return caught.value


# 2: one batch, whole


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (GOOD[:11], ErrorCode.INVALID_RECORD),
        (GOOD[:16], ErrorCode.INVALID_RECORD),
        (GOOD[:-1], ErrorCode.INVALID_RECORD),
        (bent(magic=1), ErrorCode.INVALID_RECORD),
        (bent(magic=0), ErrorCode.INVALID_RECORD),
        (bent(magic=3), ErrorCode.CORRUPT_MESSAGE),
        (bent(magic=-1), ErrorCode.CORRUPT_MESSAGE),
        (bent(length=13), ErrorCode.CORRUPT_MESSAGE),
        (bent(length=-1), ErrorCode.CORRUPT_MESSAGE),
        (bent(length=13)[:12], ErrorCode.CORRUPT_MESSAGE),
        (bent(length=14)[:26], ErrorCode.UNKNOWN_SERVER_ERROR),
        (bent(length=38)[:50], ErrorCode.UNKNOWN_SERVER_ERROR),
        (bent(length=39)[:51], ErrorCode.CORRUPT_MESSAGE),
        (bent(length=48)[:60], ErrorCode.CORRUPT_MESSAGE),
        (GOOD + GOOD, ErrorCode.INVALID_RECORD),
        (GOOD + bent(magic=1), ErrorCode.INVALID_RECORD),
        (GOOD + bent(length=3), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_not_exactly_one_batch(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as caught:
        read_produced(data, LATEST_VERSION)
    assert caught.value.code == code
    assert caught.value.message


@pytest.mark.parametrize("tail", [b"\0", GOOD[:11], GOOD[:-1]])
def test_cut_off_batch_after_another_is_trimmed(tail: bytes) -> None:
    produced = read_produced(GOOD + tail, LATEST_VERSION)
    assert bytes(produced.data) == GOOD
    assert produced.trailing_bytes == len(tail)
    assert bytes(prepared(GOOD + tail).data)[21:] == GOOD[21:]


def test_zstd_needs_version_7() -> None:
    batch = plain.encode(ROWS, compression="zstd")
    with pytest.raises(BrokerError) as caught:
        read_produced(batch, 6)
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert read_produced(batch, 7).record_count == 3
    assert read_produced(plain.encode(ROWS, compression="lz4"), 3).record_count == 3


def test_header_is_read_as_it_stands() -> None:
    produced = read_produced(
        plain.encode(ROWS, producer_id=9, producer_epoch=8, base_sequence=7, transactional=True), 3
    )
    assert (produced.producer_id, produced.producer_epoch, produced.base_sequence) == (9, 8, 7)
    assert produced.is_transactional
    assert not read_produced(GOOD, 3).is_transactional


# 5: the batch as bytes


def test_base_offset_must_be_0() -> None:
    assert refused(bent(base_offset=1)).code == ErrorCode.INVALID_RECORD


def test_largest_batch() -> None:
    assert prepared(GOOD, max_message_bytes=len(GOOD))
    assert refused(GOOD, max_message_bytes=len(GOOD) - 1).code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("position", [17, 21, 60, 61, len(GOOD) - 1])
def test_crc_covers_all_from_the_attributes_on(position: int) -> None:
    damaged = bytearray(GOOD)
    damaged[position] ^= 1
    assert refused(bytes(damaged)).code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_a_server_error(codec: int) -> None:
    assert refused(bent(attributes=codec)).code == ErrorCode.UNKNOWN_SERVER_ERROR


# 6: the header


@pytest.mark.parametrize(
    "fields",
    [
        {"last_offset_delta": -1},
        {"last_offset_delta": -(2**31)},
        {"count": 0},
        {"count": -1},
        {"count": 2},
        {"last_offset_delta": 3},
        {"attributes": plain.CONTROL},
        {"attributes": plain.CONTROL | plain.TRANSACTIONAL, "producer_id": 5, "producer_epoch": 0},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -(2**31)},
    ],
)
def test_impossible_header(fields: dict[str, Any]) -> None:
    assert refused(bent(**fields)).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("earlier", "later", "code"),
    [
        ({"base_offset": 1}, {"right_crc": False, "crc": 0}, ErrorCode.INVALID_RECORD),
        ({"right_crc": False, "crc": 0}, {"attributes": 5}, ErrorCode.CORRUPT_MESSAGE),
        ({"attributes": 5}, {"count": -1}, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_the_first_wrong_thing_decides(
    earlier: dict[str, Any], later: dict[str, Any], code: ErrorCode
) -> None:
    assert refused(bent(**later | earlier)).code == code


def test_size_comes_before_the_crc_and_after_the_base_offset() -> None:
    small = {"max_message_bytes": 10}
    assert refused(bent(right_crc=False, crc=0), **small).code == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(bent(base_offset=1), **small).code == ErrorCode.INVALID_RECORD


# 7: the records


@pytest.mark.parametrize("compression", plain.CODECS)
@pytest.mark.parametrize("count", [1, 2, 4, 5, 2**31 - 1])
def test_R10_another_count_than_that_of_the_records(compression: str, count: int) -> None:
    batch = plain.encode(ROWS, compression=compression)
    error = refused(bent(batch, count=count, last_offset_delta=count - 1))
    assert error.code == ErrorCode.INVALID_RECORD
    assert not isinstance(error, RecordErrors)


@pytest.mark.parametrize(
    "data", [bent(attributes=plain.CONTROL), bent(producer_id=1, base_sequence=-1), bent(last_offset_delta=5)]
)
def test_R10_control_bad_sequence_and_count(data: bytes) -> None:
    assert refused(data).code == ErrorCode.INVALID_RECORD


def test_R10_exactly_one_batch() -> None:
    assert refused(GOOD + GOOD).code == ErrorCode.INVALID_RECORD
    assert refused(b"").code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("compression", plain.CODECS[1:])
def test_R10_same_codec_at_another_level_stays_as_it_is(compression: str) -> None:
    levels = {"gzip": 1, "lz4": 12, "zstd": 19}
    batch = plain.encode(ROWS * 50, compression=compression, compression_level=levels.get(compression))
    for wanted in (compression, "producer"):
        overrides: dict[str, Any] = {
            "compression_type": wanted,
            "compression_zstd_level": 1,
            "compression_gzip_level": 9,
        }
        assert bytes(prepared(batch, **overrides).data)[61:] == batch[61:]


@pytest.mark.parametrize("source", plain.CODECS)
@pytest.mark.parametrize("target", ["uncompressed", *plain.CODECS[1:]])
def test_R10_another_codec_is_compressed_anew(source: str, target: str) -> None:
    state: dict[str, Any] = {
        "producer_id": 4,
        "producer_epoch": 2,
        "base_sequence": 2**31 - 2,
        "transactional": True,
    }
    rows = ROWS * 20
    result = prepared(plain.encode(rows, compression=source, **state), compression_type=target)
    (found,) = plain.decode(bytes(result.data))
    assert found.header == plain.decode(
        plain.encode(
            rows,
            compression="none" if target == "uncompressed" else target,
            base_offset=70,
            partition_leader_epoch=5,
            **state,
        )
    )[0].header | {"crc": found.header["crc"]}
    assert [record[1:] for record in found.records] == [(ms, k, v, h) for k, v, h, ms in rows]


def test_batch_that_outgrows_the_limit_when_compressed_anew() -> None:
    batch = plain.encode([(b"k", bytes(5000), (), NOW_MS)], compression="gzip")
    limits = {"max_message_bytes": 1000, "compression_type": "uncompressed"}
    assert len(batch) < 1000
    assert refused(batch, **limits).code == ErrorCode.MESSAGE_TOO_LARGE


def test_batch_larger_than_a_segment() -> None:
    assert prepared(GOOD, internal_segment_bytes=len(GOOD))
    assert refused(GOOD, internal_segment_bytes=len(GOOD) - 1).code == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("compression", plain.CODECS[1:])
def test_records_that_do_not_decompress_are_a_server_error(compression: str) -> None:
    broken = plain.encode(ROWS, compression=compression, compressor=lambda _: b"\x82SNAPPY\0 no stream")
    assert refused(broken).code == ErrorCode.UNKNOWN_SERVER_ERROR


@settings(deadline=None)
@given(data=st.data(), compression=st.sampled_from(("none", "lz4")))
def test_damaged_records_are_refused_or_readable(data: st.DataObject, compression: str) -> None:
    body = bytearray(plain.encode(ROWS)[61:])
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    batch = plain.encode(
        ROWS, compression=compression, compressor=lambda _: plain.compress(bytes(body), compression)
    )
    if compression == "none":
        batch = plain.with_crc(batch[:61] + body)
    try:
        result = prepared(batch, message_timestamp_after_max_ms=2**62)
    except BrokerError as error:
        skips = compression != "none" and "offset deltas" in str(error.message)
        assert error.code == (ErrorCode.UNKNOWN_SERVER_ERROR if skips else ErrorCode.INVALID_RECORD)
    else:
        try:
            assert len(list(result.batch)) == len(ROWS)
        except CorruptRecordError as error:  # brokers do not look at offsets
            assert compression == "none" and "its offset is outside of the batch" in str(error)


def test_R09_every_record_without_key_is_listed() -> None:
    rows = [(None if number % 2 else b"k", b"v", (), NOW_MS) for number in range(9)]
    error = refused(plain.encode(rows), cleanup_policy="compact")
    assert isinstance(error, RecordErrors)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1, 3, 5, 7]
    assert all("must have a key" in text for _, text in error.record_errors)
    assert str(error.message).startswith("4 records are invalid")
    assert prepared(plain.encode(rows))


def test_R09_a_timestamp_decides_the_code() -> None:
    early, late = NOW_MS - 11, NOW_MS + HOUR_MS + 1
    rows: list[plain.Row] = [
        (b"k", b"v", (), NOW_MS),
        (None, b"v", (), NOW_MS),
        (b"k", b"v", (), late),
        (None, b"v", (), late),
        (b"k", b"v", (), early),
        (b"k", b"v", (), -1),
    ]
    error = refused(plain.encode(rows), cleanup_policy="compact", message_timestamp_before_max_ms=10)
    assert isinstance(error, RecordErrors)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1, 2, 3, 4]
    words = ["must have a key", str(late), "must have a key", str(early)]
    assert all(word in text for word, (_, text) in zip(words, error.record_errors, strict=True))


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(
    ("difference_ms", "is_taken"),
    [
        (-1000, True),
        (-1001, False),
        (0, True),
        (500, True),
        (501, False),
        (-NOW_MS - 1, True),
        (2**62, False),
    ],
)
def test_timestamps_stay_within_their_limits(compression: str, difference_ms: int, is_taken: bool) -> None:
    limits: dict[str, Any] = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 500}
    rows: list[plain.Row] = [(b"k", b"v", (), NOW_MS), (b"k", b"v", (), NOW_MS + difference_ms)]
    batch = plain.encode(rows, compression=compression)
    if is_taken:
        assert prepared(batch, **limits)
    else:
        error = refused(batch, **limits)
        assert error.code == ErrorCode.INVALID_TIMESTAMP
        assert isinstance(error, RecordErrors)
        assert [index for index, _ in error.record_errors] == [1]
    assert prepared(batch, **limits, message_timestamp_type="LogAppendTime")


def test_default_limits_are_kafkas() -> None:
    assert prepared(plain.encode([(b"k", b"v", (), 0)]))
    assert prepared(plain.encode([(b"k", b"v", (), NOW_MS + HOUR_MS)]))
    assert refused(plain.encode([(b"k", b"v", (), NOW_MS + HOUR_MS + 1)])).code == ErrorCode.INVALID_TIMESTAMP


def test_producer_must_not_claim_a_brokers_time() -> None:
    claiming = plain.encode(ROWS, log_append_time_ms=NOW_MS)
    error = refused(claiming, message_timestamp_type="LogAppendTime")
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RecordErrors)
    assert [index for index, _ in error.record_errors] == [0, 1, 2]
    assert refused(plain.encode(ROWS, log_append_time_ms=-1)).code == ErrorCode.INVALID_TIMESTAMP


def test_claim_within_the_limits_is_taken_back() -> None:
    """LogValidator.validateTimestamp looks at the claim only where there is no timestamp."""
    (found,) = plain.decode(bytes(prepared(plain.encode(ROWS, log_append_time_ms=NOW_MS + 7)).data))
    assert found.header["timestamp_type"] == "create_time"
    assert found.header["max_timestamp_ms"] == NOW_MS + 7


# Written batches


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), compression=st.sampled_from(plain.CODECS), append_time=st.booleans())
def test_only_offset_epoch_and_time_are_written(seed: int, compression: str, append_time: bool) -> None:
    rows, state = strategies.random_case(seed, log=False)
    batch = plain.encode(rows, compression=compression, **state)
    overrides: dict[str, Any] = {
        "message_timestamp_type": "LogAppendTime" if append_time else "CreateTime",
        "message_timestamp_after_max_ms": 2**63 - 1,
        "max_message_bytes": 2**31 - 1,
    }
    before = bytes(batch)
    result = prepared(batch, strict=True, **overrides)
    assert batch == before
    assert result.log_append_time_ms == (NOW_MS if append_time else -1)
    expected: dict[str, Any] = {"base_offset": 70, "leader_epoch": 5}
    if append_time:
        attributes = plain.HEADER.unpack_from(batch)[5] | plain.LOG_APPEND_TIME
        expected |= {"attributes": attributes, "max_timestamp_ms": NOW_MS}
    assert bytes(result.data) == bent(batch, **expected)
    assert bytes(result.batch) == bytes(result.data)


def test_wrong_largest_timestamp_is_put_right() -> None:
    result = prepared(bent(max_timestamp_ms=5))
    assert bytes(result.data) == bent(base_offset=70, leader_epoch=5)


def test_unknown_attribute_bits_vanish_if_header_is_rewritten() -> None:
    attributes = plain.HEADER.unpack_from(bytes(prepared(bent(attributes=0x100)).data))[5]
    assert attributes == 0x100
    attributes = plain.HEADER.unpack_from(bytes(prepared(bent(attributes=0x100, max_timestamp_ms=5)).data))[5]
    assert attributes == 0


@pytest.mark.parametrize("compression", plain.CODECS)
def test_skipping_offsets_are_corrected_if_rewritten(compression: str) -> None:
    batch = plain.encode(ROWS, compression=compression, offsets=[0, 5, 2])
    another = "zstd" if compression == "gzip" else "gzip"
    result = prepared(batch, compression_type=another)
    assert [record.offset for record in result.batch] == [70, 71, 72]
    if compression == "none":
        assert prepared(batch).data[61:] == batch[61:]  # as it is, though readers refuse it
    else:
        assert refused(batch).code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_timestamp_that_cannot_be_rewritten_is_a_server_error() -> None:
    rows: list[plain.Row] = [(b"k", b"v", (), -5)]
    assert prepared(plain.encode(rows))
    assert refused(plain.encode(rows), compression_type="gzip").code == ErrorCode.UNKNOWN_SERVER_ERROR


# 10: what brokers do not look at

LONG_ZERO = b"\x80\0"
STRICTLY_WRONG: dict[str, Callable[[], bytes]] = {
    "1 bytes follow": lambda: GOOD + b"\0",
    "leader epoch is 0": lambda: bent(leader_epoch=0),
    "attributes 0x0080": lambda: bent(attributes=0x80),
    "attributes -0x8000": lambda: bent(attributes=-0x8000),
    "attributes 0x0040": lambda: bent(attributes=plain.DELETE_HORIZON),
    "max timestamp is 5": lambda: bent(max_timestamp_ms=5),
    "not the batch's base timestamp": lambda: bent(
        plain.encode(ROWS, delete_horizon_ms=NOW_MS - 1), attributes=0
    ),
    "epoch 0 and sequence -1 without": lambda: bent(producer_epoch=0),
    "epoch -1 and sequence 0 without": lambda: bent(base_sequence=0),
    "producer id is 3, its epoch -1": lambda: bent(producer_id=3, base_sequence=0),
    "producer id is -2": lambda: bent(producer_id=-2),
    "transactional without producer id": lambda: bent(attributes=plain.TRANSACTIONAL),
    "offset delta is not its index": lambda: plain.encode(ROWS, offsets=[0, 2, 2], last_offset=2),
    "attributes byte is not 0": lambda: one_record(b"\x0c" + b"\1\0\0\1\1\0"),
    "a varint is longer": lambda: one_record(b"\x0e" + b"\0\0" + LONG_ZERO + b"\1\1\0"),
}


def one_record(body: bytes) -> bytes:
    (length,) = struct.unpack(">i", struct.pack(">i", 49 + len(body)))
    return bent(GOOD[:61] + body, length=length, count=1, last_offset_delta=0, max_timestamp_ms=NOW_MS)


@pytest.mark.parametrize("complaint", STRICTLY_WRONG)
def test_strictness_names_what_kafka_lets_pass(complaint: str) -> None:
    data = STRICTLY_WRONG[complaint]()
    assert prepared(data), "Kafka takes it"
    error = refused(data, strict=True)
    assert error.code == ErrorCode.INVALID_RECORD
    assert complaint in str(error.message)
    if complaint != "1 bytes follow":  # which is no matter of one batch: the oracle sees all others
        with pytest.raises(plain.CorruptBatch):
            (found,) = plain.decode(data)
            plain.check_produced(found)
            check_producer(found)


def check_producer(found: plain.Batch) -> None:
    """Check the valid combinations of producer fields, which tests/oracle leaves to the writer."""
    header = found.header
    state = header["producer_id"], header["producer_epoch"], header["base_sequence"]
    if (state != (-1, -1, -1) and min(state) < 0) or header["is_transactional"] > (state[0] >= 0):
        raise plain.CorruptBatch(f"producer {state}")


@pytest.mark.parametrize("compression", plain.CODECS)
def test_strictness_takes_what_kbatch_writes(compression: str) -> None:
    for seed in range(30):
        rows, state = strategies.random_case(seed, log=False)
        batch = kbatch.encode(rows, compression=compression, **state)
        prepared(batch, strict=True, message_timestamp_after_max_ms=2**63 - 1)
