"""Checks of a produced batch, in Kafka's order and with its codes, and the bytes that are then written.

`read_produced` is ProduceRequest.validateRecords; it comes before transactions are verified. `prepare` is the
part of UnifiedLog.append and LogValidator that concerns one batch's bytes. The usual batch costs one pass
over its records in native code and one copy. Python reads single records only if one is refused, or if the
topic wants another codec.

Three faults are refused here as INVALID_RECORD, though Kafka accepts them: a header's key that is not UTF-8,
a key's or value's size below -1, a varint with more bits than its field has.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kbatch._native.codec.batch_writer import RecordBatchWriter
from kbatch._native.codec.hashes import crc32c
from kbatch._native.codec.record import Record
from kbatch._native.codec.record_batch import RecordBatch, RecordSurvey, decode
from kbatch.codecs import CODECS
from kbatch.errors import CorruptRecordError, ErrorCode, IllegalStateError
from kbatch.records import INT32_MAX
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.logs.log_segment import NO_TIMESTAMP
from kbatch.testing.broker.logs.topic_config import TopicConfig

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40

_OVERHEAD = struct.Struct(">qi")  # base offset, and the length of the rest
_HEADER = struct.Struct(">qiibIhiqqqhii")
_MAGIC_AT, _CRC_AT, _CRC_START = 16, 17, 21
_LEADER_EPOCH_AT, _LAST_DELTA_AT, _MAX_TIMESTAMP_AT, _PRODUCER_ID_END = 12, 23, 35, 51
_LEAST_LENGTH = 14  # of any magic (LegacyRecord.RECORD_OVERHEAD_V0)
_SHOWN_ERRORS = 3


class RecordErrors(BrokerError):
    """A batch that is refused because of some of its records.

    Attributes
    ----------
    record_errors : list of (int, str)
        Index of each invalid record, and the reason.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class ProducedBatch(NamedTuple):
    """A batch as received: its bytes, and the fields of its header, not checked yet."""

    data: memoryview
    trailing_bytes: int
    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_in_transaction(self) -> bool:
        """True if the batch is in a transaction; Kafka ignores the bit in batches without producer id."""
        return self.is_transactional and self.producer_id >= 0


class Prepared(NamedTuple):
    """A batch ready to be appended: its own copy, with offset and epoch set."""

    data: bytes | bytearray
    batch: RecordBatch
    log_append_time_ms: int


def read_produced(records: ReadableBuffer | None, api_version: int) -> ProducedBatch:
    """Return the one batch in a partition's part of a Produce request.

    An incomplete batch after it is ignored, as in Kafka.

    Raises
    ------
    BrokerError
        INVALID_RECORD : no complete batch, more than one, or one of an older magic
        UNSUPPORTED_COMPRESSION_TYPE : zstd in a version before 7
        CORRUPT_MESSAGE : an impossible length, or an unknown magic
        UNKNOWN_SERVER_ERROR : a length that ends the batch before its producer id
    """
    data = _bytes_of(records)
    size = _batch_size(data)
    if size == 0:
        raise BrokerError(ErrorCode.INVALID_RECORD, "The request must have a whole record batch, got none.")
    if data[_MAGIC_AT] != 2:
        raise BrokerError(
            ErrorCode.INVALID_RECORD, f"The magic of record batches must be 2, got {data[_MAGIC_AT]}."
        )
    if size < _HEADER.size:
        has_producer_id = size >= _PRODUCER_ID_END
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE if has_producer_id else ErrorCode.UNKNOWN_SERVER_ERROR,
            f"A record batch must have {_HEADER.size} bytes or more, got {size}.",
        )
    batch = ProducedBatch(data[:size], len(data) - size, *_HEADER.unpack_from(data))
    codec = batch.attributes & CODEC_MASK
    if codec < len(CODECS) and api_version < CODECS[codec].first_version:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce must have version {CODECS[codec].first_version} or above for {CODECS[codec].name}, "
            f"got {api_version}.",
        )
    if _batch_size(data[size:]):
        raise BrokerError(ErrorCode.INVALID_RECORD, "The request must have one record batch, got more.")
    return batch


def is_transactional(records: ReadableBuffer | None) -> bool:
    """True if the first batch is transactional; the others may differ (RequestUtils.hasTransactionalRecords).

    Raises
    ------
    BrokerError
        CORRUPT_MESSAGE : an impossible length, or an unknown magic
    """
    data = _bytes_of(records)
    if _batch_size(data) == 0 or data[_MAGIC_AT] != 2:
        return False
    return data[_CRC_START + 1] & TRANSACTIONAL != 0


def _bytes_of(records: ReadableBuffer | None) -> memoryview:
    return memoryview(records).cast("B") if records is not None else memoryview(b"")


def _batch_size(data: memoryview) -> int:
    """Return the size of the first batch, of any magic; 0 if it is incomplete (ByteBufferLogInputStream)."""
    if len(data) < _OVERHEAD.size:
        return 0
    _, length = _OVERHEAD.unpack_from(data)
    if length < _LEAST_LENGTH:
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE, f"The length must be {_LEAST_LENGTH} or more, got {length}."
        )
    if len(data) <= _MAGIC_AT:
        return 0
    if data[_MAGIC_AT] > 2:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"The magic must be 2 or less, got {data[_MAGIC_AT]}.")
    size: int = _OVERHEAD.size + length
    return size if size <= len(data) else 0


def prepare(
    produced: ProducedBatch,
    config: TopicConfig,
    *,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
    strict: bool = False,
) -> Prepared:
    """Check a batch, and return a copy for the log.

    The copy has its offset and leader epoch, timestamps by the topic's config, and the topic's codec.

    Parameters
    ----------
    strict : bool
        Also refuse, as INVALID_RECORD, what brokers do not check but no correct producer writes.

    Raises
    ------
    BrokerError
        INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, RECORD_LIST_TOO_LARGE (more than segment.bytes),
        UNKNOWN_SERVER_ERROR (an unknown codec, records that do not decompress, offset deltas that skip in a
        compressed batch).
    RecordErrors
        INVALID_TIMESTAMP; INVALID_RECORD, if a compacted topic gets records without key.
    """
    _check_frame(produced, config)
    _check_header(produced)
    batch = next(decode(produced.data, check_crc=False))
    survey = _survey(batch)
    if not survey.offsets_consecutive:  # brokers read such records, and give them other offsets
        batch = _with_room(produced.data)
    _check_records(produced, batch, survey, config, now_ms)
    if strict:
        _check_strictly(produced, survey)
    log_append_time_ms = now_ms if config.is_log_append_time else NO_TIMESTAMP
    codec = _target_codec(batch.compression, config)
    data: bytes | bytearray
    if codec != batch.compression:
        data = _rebuilt(produced, batch, codec, config, base_offset, leader_epoch, log_append_time_ms)
    else:
        _check_offsets(batch, survey)
        data = bytearray(produced.data)
        struct.pack_into(">q", data, 0, base_offset)
        struct.pack_into(">i", data, _LEADER_EPOCH_AT, leader_epoch)
        _write_timestamp(data, produced, survey, log_append_time_ms)
    if len(data) > config.segment_bytes:
        raise BrokerError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The batch has {len(data)} bytes; segment.bytes allows {config.segment_bytes}.",
        )
    return Prepared(data, next(decode(data, check_crc=False)), log_append_time_ms)


# Checks


def _check_frame(produced: ProducedBatch, config: TopicConfig) -> None:
    """UnifiedLog.analyzeAndValidateRecords"""
    if produced.base_offset != 0:
        raise BrokerError(ErrorCode.INVALID_RECORD, f"The base offset must be 0, got {produced.base_offset}.")
    _check_size(len(produced.data), config)
    crc = crc32c(produced.data[_CRC_START:])
    if crc != produced.crc:
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE, f"The header's CRC-32C must be {crc:#010x}, got {produced.crc:#010x}."
        )
    if produced.attributes & CODEC_MASK >= len(CODECS):
        raise BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The codec must be below {len(CODECS)}, got {produced.attributes & CODEC_MASK}.",
        )


def _check_size(size: int, config: TopicConfig) -> None:
    if size > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {size} bytes; max.message.bytes allows {config.max_message_bytes}.",
        )


def _check_header(produced: ProducedBatch) -> None:
    """LogValidator.validateBatch"""
    delta, count = produced.last_offset_delta, produced.record_count
    if delta < 0:
        raise BrokerError(ErrorCode.INVALID_RECORD, f"The last offset delta must be 0 or more, got {delta}.")
    if count <= 0:
        raise BrokerError(ErrorCode.INVALID_RECORD, f"The record count must be 1 or more, got {count}.")
    if count != delta + 1:
        raise BrokerError(
            ErrorCode.INVALID_RECORD,
            f"The last offset delta of {count} records must be {count - 1}, got {delta}.",
        )
    if produced.attributes & CONTROL:
        raise BrokerError(ErrorCode.INVALID_RECORD, "Clients must not write control records.")
    if produced.producer_id > -1 and produced.base_sequence < 0:
        raise BrokerError(
            ErrorCode.INVALID_RECORD,
            f"The sequence of producer id {produced.producer_id} must be 0 or more, "
            f"got {produced.base_sequence}.",
        )


def _survey(batch: RecordBatch) -> RecordSurvey:
    try:
        survey = batch.survey()
    except CorruptRecordError as error:
        raise BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The records do not decompress: {error}"
        ) from error
    if survey.error is not None:
        raise BrokerError(ErrorCode.INVALID_RECORD, f"{survey.error}.")
    return survey


def _with_room(data: ReadableBuffer) -> RecordBatch:
    """Return the batch with a last offset delta that no record exceeds."""
    roomy = bytearray(data)
    struct.pack_into(">i", roomy, _LAST_DELTA_AT, INT32_MAX)
    return next(decode(roomy, check_crc=False))


def _check_records(
    produced: ProducedBatch, batch: RecordBatch, survey: RecordSurvey, config: TopicConfig, now_ms: int
) -> None:
    """Check each record by LogValidator.validateRecord; the survey alone decides the usual case."""
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    claims_append_time = produced.attributes & LOG_APPEND_TIME != 0
    lacks_keys = config.is_compacted and survey.null_key_count > 0
    if not lacks_keys and not claims_append_time:
        smallest_ms, largest_ms = survey.min_timestamp_ms, survey.max_timestamp_ms
        is_in_range = earliest_ms <= smallest_ms or smallest_ms == NO_TIMESTAMP
        if config.is_log_append_time or (is_in_range and largest_ms <= latest_ms):
            return

    def timestamp_error(record: Record) -> str | None:
        timestamp_ms = record.timestamp_ms
        if not config.is_log_append_time and timestamp_ms is not None and timestamp_ms != NO_TIMESTAMP:
            if earliest_ms <= timestamp_ms <= latest_ms:
                return None  # even if the batch claims a broker's time: Kafka's own order
            return f"The timestamp must be {earliest_ms} to {latest_ms}, got {timestamp_ms}."
        return "A producer must not set the timestamp type LogAppendTime." if claims_append_time else None

    record_errors, has_timestamp_error = [], False
    for index, record in enumerate(batch):
        if config.is_compacted and record.key is None:
            record_errors.append((index, "The records of a compacted topic must have a key."))
        elif (text := timestamp_error(record)) is not None:
            record_errors.append((index, text))
            has_timestamp_error = True
    if record_errors:
        raise _record_errors(record_errors, has_timestamp_error)


def _record_errors(record_errors: list[tuple[int, str]], has_timestamp_error: bool) -> RecordErrors:
    """Return the error of all records (LogValidator.processRecordErrors); a timestamp decides the code."""
    if has_timestamp_error:
        text = "One or more records have an invalid timestamp."
        return RecordErrors(ErrorCode.INVALID_TIMESTAMP, text, record_errors)
    shown = " ".join(f"Record {index}: {text}" for index, text in record_errors[:_SHOWN_ERRORS])
    text = f"{len(record_errors)} records are invalid. {shown}"
    return RecordErrors(ErrorCode.INVALID_RECORD, text, record_errors)


def _check_offsets(batch: RecordBatch, survey: RecordSurvey) -> None:
    """Check the offset deltas of a compressed batch; Kafka checks no others, and does not correct them."""
    if batch.compression != "none" and not survey.offsets_consecutive:
        raise BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "The offset deltas of a compressed batch must be 0, 1, 2, ..."
        )


def _check_strictly(produced: ProducedBatch, survey: RecordSurvey) -> None:
    is_anonymous = produced.producer_id < 0
    wrong = {
        f"{produced.trailing_bytes} bytes follow the batch": produced.trailing_bytes != 0,
        f"its partition leader epoch is {produced.partition_leader_epoch}, not -1": (
            produced.partition_leader_epoch != -1
        ),
        f"its attributes {produced.attributes:#06x} have bits that a producer does not set": (
            produced.attributes & ~(CODEC_MASK | TRANSACTIONAL) != 0
        ),
        f"its max timestamp is {produced.max_timestamp_ms}, its records have {survey.max_timestamp_ms}": (
            produced.max_timestamp_ms != survey.max_timestamp_ms
        ),
        f"it has epoch {produced.producer_epoch} and sequence {produced.base_sequence} without producer id": (
            is_anonymous and (produced.producer_epoch, produced.base_sequence) != (-1, -1)
        ),
        f"its producer id is {produced.producer_id}, its epoch {produced.producer_epoch}": (
            produced.producer_id < -1 or (not is_anonymous and produced.producer_epoch < 0)
        ),
        "it is transactional without producer id": is_anonymous and produced.is_transactional,
        survey.oddity: survey.oddity is not None,
    }
    for text, is_wrong in wrong.items():
        if is_wrong:
            raise BrokerError(
                ErrorCode.INVALID_RECORD, f"Kafka accepts this batch, strict checks do not: {text}."
            )


# The written bytes


def _target_codec(codec: str, config: TopicConfig) -> str:
    """Return the topic's codec (BrokerCompressionType.targetCompression); a codec's level is not compared."""
    wanted = config.compression_type
    return {"producer": codec, "uncompressed": "none"}.get(wanted, wanted)


def _write_timestamp(
    data: bytearray, produced: ProducedBatch, survey: RecordSurvey, log_append_time_ms: int
) -> None:
    """Correct the header's timestamp and the CRC (DefaultRecordBatch.setMaxTimestamp)."""
    is_append_time = log_append_time_ms != NO_TIMESTAMP
    claims_append_time = produced.attributes & LOG_APPEND_TIME != 0
    max_timestamp_ms = survey.max_timestamp_ms
    if is_append_time:
        max_timestamp_ms = log_append_time_ms
    elif claims_append_time:  # then it is every record's
        max_timestamp_ms = max(produced.max_timestamp_ms, NO_TIMESTAMP)
    if (is_append_time, max_timestamp_ms) == (claims_append_time, produced.max_timestamp_ms):
        return
    kept = produced.attributes & (CODEC_MASK | TRANSACTIONAL | CONTROL | DELETE_HORIZON)
    struct.pack_into(">h", data, _CRC_START, kept | (LOG_APPEND_TIME if is_append_time else 0))
    struct.pack_into(">q", data, _MAX_TIMESTAMP_AT, max_timestamp_ms)
    struct.pack_into(">I", data, _CRC_AT, crc32c(memoryview(data)[_CRC_START:]))


def _rebuilt(
    produced: ProducedBatch,
    batch: RecordBatch,
    codec: str,
    config: TopicConfig,
    base_offset: int,
    leader_epoch: int,
    log_append_time_ms: int,
) -> bytes:
    """Write the records anew (LogValidator.buildRecordsAndAssignOffsets)."""
    writer = RecordBatchWriter(
        codec,
        config.compression_levels.get(codec),
        transactional=produced.is_transactional,
        log_append_time_ms=log_append_time_ms if log_append_time_ms != NO_TIMESTAMP else None,
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
    )
    try:
        for record in batch:
            writer.append(record.key, record.value, record.headers, record.timestamp_ms)
        writer.seal()
        if produced.producer_id >= 0:
            writer.stamp(
                producer_id=produced.producer_id,
                producer_epoch=produced.producer_epoch,
                base_sequence=produced.base_sequence,
            )
        data = writer.getvalue()
    except (ValueError, IllegalStateError) as error:  # readable but not writable: a timestamp below -1
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    _check_size(len(data), config)
    return data
