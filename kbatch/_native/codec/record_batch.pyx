"""Reading of record batches v2, and the parts of their header.

The header and the CRC of a batch are checked when it is yielded, the whole body when it is iterated.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbatch._native.codec.c cimport (
    KB_ATTRIBUTES_AT,
    KB_BATCH_HEADER_SIZE,
    KB_CODEC_MASK,
    KB_CONTROL,
    KB_DELETE_HORIZON,
    KB_LENGTH_AT,
    KB_LOG_APPEND_TIME,
    KB_LOG_OVERHEAD,
    KB_MAGIC_AT,
    KB_MIN_RECORD_BYTES,
    KB_RECORD_OK,
    KB_RECORD_OUTSIDE,
    KB_TRANSACTIONAL,
    kb_batch_header,
    kb_batch_header_get,
    kb_batch_header_put,
    kb_copy,
    kb_load_be32,
    kb_record_error,
    kb_record_get,
    kb_record_header,
    kb_record_header_get,
    kb_record_is_within,
    kb_record_survey,
    kb_record_view,
    kb_records_check,
    kb_records_survey,
    kb_span,
    kb_store_be64,
)
from kbatch._native.codec.codecs cimport kb_codec_is_known
from kbatch._native.codec.compression cimport codec_name, decompress_records
from kbatch._native.codec.hashes cimport crc32c_combined, crc32c_extend
from kbatch._native.codec.memory cimport OwnedMemory
from kbatch._native.codec.record cimport Record

from collections import namedtuple

from kbatch.errors import CorruptRecordError

# Texts by kb_record_error.
_RECORD_ERRORS = (
    "fine",
    "the size is impossible or larger than the data",
    "the timestamp delta is a broken varint",
    "the offset delta is a broken varint",
    "the key's size is impossible",
    "the value's size is impossible",
    "the header count is impossible",
    "a header's key has an impossible size",
    "a header's key is not UTF-8",
    "a header's value has an impossible size",
    "bytes are left over after it",
    "its offset is outside of the batch",
)
# Texts by kb_record_oddity.
_RECORD_ODDITIES = (
    None,
    "a varint is longer than needed",
    "the attributes byte is not 0",
    "the offset delta is not its index",
    "it is the first, and its timestamp is not the batch's base timestamp",
)

RecordSurvey = namedtuple(
    "RecordSurvey",
    "min_timestamp_ms max_timestamp_ms null_key_count offsets_consecutive error oddity",
    module=__name__,
)


cdef int64_t checked_int(object value, str name, int64_t lowest, int64_t highest) except? -2:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if not lowest <= value <= highest:
        raise ValueError(f"{name} must be {lowest} to {highest}, got {value}")
    return value


cdef int32_t last_sequence(int32_t base_sequence, int32_t last_offset_delta) noexcept nogil:
    """Return the last sequence of a batch; after 2^31 - 1 comes 0 (DefaultRecordBatch.incrementSequence), -1
    is none.
    """
    cdef int64_t last = <int64_t>base_sequence + last_offset_delta
    if base_sequence == -1:
        return -1
    return <int32_t>(last if last <= INT32_MAX else last - INT32_MAX - 1)


cdef void seal_batch(uint8_t *batch, size_t size, kb_batch_header *header) noexcept nogil:
    """Write the header before the records of a batch of `size` bytes, with its length and CRC."""
    header.length = <int32_t>(size - KB_LOG_OVERHEAD)
    header.magic = 2
    kb_batch_header_put(batch, header)
    header.crc = crc32c_extend(0, batch + KB_ATTRIBUTES_AT, size - KB_ATTRIBUTES_AT)
    kb_batch_header_put(batch, header)


cdef void stamp_batch(uint8_t *batch, size_t size, kb_batch_header *header) noexcept nogil:
    """Write changed header fields into a sealed batch. A CRC is linear, so the new one follows from the old
    and new header bytes alone: the records are not read again.
    """
    cdef size_t covered = KB_BATCH_HEADER_SIZE - KB_ATTRIBUTES_AT
    cdef uint32_t changed = crc32c_extend(0, batch + KB_ATTRIBUTES_AT, covered)
    kb_batch_header_put(batch, header)
    changed ^= crc32c_extend(0, batch + KB_ATTRIBUTES_AT, covered)
    header.crc ^= crc32c_combined(changed, 0, size - KB_BATCH_HEADER_SIZE)
    kb_batch_header_put(batch, header)


@cython.final
@cython.no_gc_clear
cdef class Source:
    """A reference to the memory of a bytes-like object."""

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef Py_ssize_t whole_batch(const uint8_t *data, size_t left, kb_batch_header *header, str where) except -1:
    """Read the header of the batch at `data` and return the batch's bytes; 0 if it is cut off."""
    cdef int32_t length
    if left < KB_LOG_OVERHEAD:
        return 0
    length = <int32_t>kb_load_be32(data + KB_LENGTH_AT)
    if length < 14:  # the minimum of any magic (LegacyRecord.RECORD_OVERHEAD_V0)
        raise CorruptRecordError(f"{where}: a length of {length} is impossible")
    if <size_t>length > left - KB_LOG_OVERHEAD:
        return 0
    if data[KB_MAGIC_AT] in (0, 1):
        raise CorruptRecordError(
            f"{where}: magic {data[KB_MAGIC_AT]} is a message set from before Kafka 0.11; "
            "record batches have magic 2"
        )
    if data[KB_MAGIC_AT] != 2:
        raise CorruptRecordError(f"{where}: magic {<int>(<signed char>data[KB_MAGIC_AT])} is unknown")
    if length < KB_BATCH_HEADER_SIZE - KB_LOG_OVERHEAD:
        raise CorruptRecordError(f"{where}: a length of {length} is below that of a header")
    kb_batch_header_get(data, header)
    return KB_LOG_OVERHEAD + <Py_ssize_t>length


cdef int check_header(const uint8_t *batch, const kb_batch_header *header, bint check_crc,
                      str where) except -1:
    """Raise CORRUPT_MESSAGE for a bad CRC, and for fields that no batch can have."""
    cdef size_t size = KB_LOG_OVERHEAD + <size_t>header.length
    cdef uint32_t crc
    if check_crc:
        with nogil:
            crc = crc32c_extend(0, batch + KB_ATTRIBUTES_AT, size - KB_ATTRIBUTES_AT)
        if crc != header.crc:
            raise CorruptRecordError(f"{where}: CRC-32C is {crc:#010x}, but {header.crc:#010x} in the header")
    if not kb_codec_is_known(header.attributes & KB_CODEC_MASK):
        raise CorruptRecordError(f"{where}: compression codec {header.attributes & KB_CODEC_MASK} is unknown")
    if header.count < 0:
        raise CorruptRecordError(f"{where}: a record count of {header.count} is impossible")
    if header.last_offset_delta < 0 or header.base_offset > INT64_MAX - header.last_offset_delta:
        raise CorruptRecordError(f"{where}: a last offset delta of {header.last_offset_delta} is impossible")
    return 0


cdef OwnedMemory open_records(const uint8_t *batch, const kb_batch_header *header, size_t limit,
                              const uint8_t **start, const uint8_t **end):
    """Decompress if needed; `start` and `end` then enclose the unchecked records. Return their
    owner, or None if they are the batch's own.
    """
    cdef int codec = header.attributes & KB_CODEC_MASK
    cdef size_t size = KB_LOG_OVERHEAD + <size_t>header.length - KB_BATCH_HEADER_SIZE
    cdef OwnedMemory body = None
    start[0] = batch + KB_BATCH_HEADER_SIZE
    if codec and not (size == 0 and header.count == 0):  # compaction leaves batches without records
        body = decompress_records(codec, start[0], size, limit)
        start[0] = body.data
        size = body.size
    end[0] = start[0] + size
    return body


cdef OwnedMemory open_body(const uint8_t *batch, const kb_batch_header *header, size_t limit,
                           const uint8_t **start, const uint8_t **end):
    """Do open_records for a batch that can have its claimed number of records; they are not checked yet."""
    cdef OwnedMemory body = open_records(batch, header, limit, start, end)
    cdef size_t size = end[0] - start[0]
    if <size_t>header.count > size / KB_MIN_RECORD_BYTES:
        raise CorruptRecordError(f"{header.count} records cannot be in {size} bytes (batch at offset "
                                 f"{header.base_offset})")
    return body


cdef object record_error(kb_record_error error, int32_t index, int64_t base_offset):
    return CorruptRecordError(f"record {index} of the batch at offset {base_offset}: {_RECORD_ERRORS[error]}")


@cython.final
cdef class RecordBatch:
    """A record batch that was read: header fields as attributes; iterating yields `Record` objects.

    The first step of each iteration decompresses and checks the whole body, and raises CorruptRecordError for
    any fault in it. `bytes(batch)` is the unchanged batch.
    """

    cdef Source _source
    cdef const uint8_t *_batch
    cdef kb_batch_header _header
    cdef size_t _limit

    def __init__(self):
        raise TypeError("a RecordBatch comes from kbatch.decode")

    def __len__(self):
        return self._header.count

    def __iter__(self):
        cdef RecordIterator records = RecordIterator.__new__(RecordIterator)
        cdef kb_record_error error
        cdef int32_t failed_at
        records._batch = self
        records._body = open_body(self._batch, &self._header, self._limit, &records._at, &records._end)
        records._left = self._header.count
        with nogil:
            error = kb_records_check(records._at, records._end, self._header.count,
                                     self._header.last_offset_delta, &failed_at)
        if error:
            raise record_error(error, failed_at, self._header.base_offset)
        return records

    def survey(self):
        """The facts that a broker checks in the records (LogValidator of
        org.apache.kafka.storage.internals.log), found in one pass.

        Returns
        -------
        RecordSurvey
            min_timestamp_ms : the smallest but for -1, "no timestamp"; -1 where no record has any
            max_timestamp_ms : the largest; -1 where no record has any
            null_key_count : records without key
            offsets_consecutive : whether the records' offset deltas are 0, 1, 2, ...
            error : what is wrong with the body, and with which record; None where all is well. The fields
            before it mean nothing otherwise. Offsets outside of the batch are none: readers refuse them.
            oddity : what no correct producer writes although it can be read, and in which record; or None

        Raises
        ------
        CorruptRecordError
            The records cannot be decompressed.
        """
        cdef const uint8_t *start
        cdef const uint8_t *end
        cdef kb_record_survey survey
        cdef kb_record_error error
        cdef OwnedMemory body = open_records(self._batch, &self._header, self._limit, &start, &end)
        survey.base_timestamp_ms = self._header.base_timestamp_ms
        with nogil:
            error = kb_records_survey(start, end, self._header.count, &survey)
        return RecordSurvey(
            survey.min_timestamp_ms if survey.min_timestamp_ms != INT64_MAX else -1,
            survey.max_timestamp_ms,
            survey.null_key_count,
            survey.offsets_consecutive,
            f"record {survey.failed_at}: {_RECORD_ERRORS[error]}" if error else None,
            f"record {survey.odd_at}: {_RECORD_ODDITIES[survey.oddity]}" if survey.oddity else None,
        )

    def __bytes__(self):
        return PyBytes_FromStringAndSize(<const char *>self._batch, self.size_bytes)

    def __repr__(self):
        return (f"<RecordBatch offsets {self.base_offset}..{self.last_offset}, {len(self)} records, "
                f"{self.size_bytes} bytes, {self.compression}>")

    @property
    def size_bytes(self):
        """Bytes of the whole batch, with its header."""
        return KB_LOG_OVERHEAD + <Py_ssize_t>self._header.length

    @property
    def magic(self):
        return self._header.magic

    @property
    def attributes(self):
        """All 16 bits: codec (0-2), timestamp type (3), transactional (4), control (5), delete horizon (6).
        """
        return self._header.attributes

    @property
    def base_offset(self):
        return self._header.base_offset

    @property
    def last_offset(self):
        return self._header.base_offset + self._header.last_offset_delta

    @property
    def partition_leader_epoch(self):
        """-1 if no leader wrote it yet."""
        return self._header.leader_epoch

    @property
    def crc(self):
        """The header's CRC-32C, an unsigned int."""
        return self._header.crc

    @property
    def compression(self):
        """"none", "gzip", "snappy", "lz4" or "zstd"."""
        return codec_name(self._header.attributes & KB_CODEC_MASK)

    @property
    def timestamp_type(self):
        """"create_time" or "log_append_time"; with the latter every record has `max_timestamp_ms`."""
        return "log_append_time" if self._header.attributes & KB_LOG_APPEND_TIME else "create_time"

    @property
    def is_transactional(self):
        return self._header.attributes & KB_TRANSACTIONAL != 0

    @property
    def is_control(self):
        """True if its record is a marker (commit, abort) and not data."""
        return self._header.attributes & KB_CONTROL != 0

    @property
    def base_timestamp_ms(self):
        """The base of the records' timestamps: the first one's, or the delete horizon."""
        return self._header.base_timestamp_ms

    @property
    def max_timestamp_ms(self):
        return self._header.max_timestamp_ms

    @property
    def delete_horizon_ms(self):
        """The time from which compaction may drop tombstones and markers (KIP-534); None if unset."""
        return self._header.base_timestamp_ms if self._header.attributes & KB_DELETE_HORIZON else None

    @property
    def producer_id(self):
        return self._header.producer_id

    @property
    def producer_epoch(self):
        return self._header.producer_epoch

    @property
    def base_sequence(self):
        return self._header.base_sequence

    @property
    def last_sequence(self):
        """-1 if there is no sequence; after 2^31 - 1 comes 0."""
        return last_sequence(self._header.base_sequence, self._header.last_offset_delta)


@cython.final
cdef class RecordIterator:
    """The records of a checked batch, read with all bounds again, because memory may be shared.
    """

    cdef RecordBatch _batch
    cdef OwnedMemory _body
    cdef const uint8_t *_at
    cdef const uint8_t *_end
    cdef int32_t _left

    def __iter__(self):
        return self

    @cython.critical_section
    def __next__(self):
        cdef kb_record_view view
        cdef kb_batch_header *header = &self._batch._header
        cdef kb_record_error error
        cdef Record record
        if self._left == 0:
            raise StopIteration
        self._left -= 1
        error = kb_record_get(&self._at, self._end, &view)
        if error == KB_RECORD_OK and not kb_record_is_within(&view, header.last_offset_delta):
            error = KB_RECORD_OUTSIDE
        if error:
            index, self._left = header.count - self._left - 1, 0
            raise record_error(error, index, header.base_offset)
        record = Record.__new__(Record)
        fill_from_view(record, header, &view)
        return record


cdef int fill_from_view(Record record, const kb_batch_header *header, const kb_record_view *view) except -1:
    """Fill in what is in the record itself, whose headers were checked and whose offset is its batch's."""
    record.offset = header.base_offset + view.offset_delta
    record._timestamp_ms = record_timestamp(header, view.timestamp_delta)
    record._has_timestamp = True
    record.key = _bytes_or_none(view.key)
    record.value = _bytes_or_none(view.value)
    record.headers = _headers_of(view) if view.header_count else ()
    return 0


cdef int64_t record_timestamp(const kb_batch_header *header, int64_t delta) noexcept nogil:
    """Add, wrapping like Java."""
    if header.attributes & KB_LOG_APPEND_TIME:
        return header.max_timestamp_ms
    return <int64_t>(<uint64_t>header.base_timestamp_ms + <uint64_t>delta)


cdef inline object _bytes_or_none(kb_span span):
    cdef bytes copy
    if span.size < 0:
        return None
    copy = PyBytes_FromStringAndSize(NULL, span.size)
    kb_copy(<uint8_t *>PyBytes_AS_STRING(copy), span.data, span.size)
    return copy


cdef tuple _headers_of(const kb_record_view *view):
    cdef const uint8_t *at = view.headers
    cdef kb_record_header header
    cdef list headers = []
    for _ in range(view.header_count):
        if kb_record_header_get(&at, view.end, &header):
            raise CorruptRecordError("the memory of the batch changed while it was being read")
        key = PyUnicode_DecodeUTF8(<const char *>header.key.data, header.key.size, NULL)
        headers.append((key, _bytes_or_none(header.value)))
    return tuple(headers)


@cython.final
cdef class BatchIterator:
    """The result of `decode`: the batches of a bytes-like object in order."""

    cdef Source _source
    cdef size_t _at
    cdef size_t _limit
    cdef bint _check_crc
    cdef bint _raise_partial
    cdef bint _done

    def __init__(self, data, *, bint check_crc=True, partial="stop", max_decompressed_bytes=268435456):
        if partial not in ("stop", "raise"):
            raise ValueError(f"partial must be 'stop' or 'raise', got {partial!r}")
        self._limit = decompression_limit(max_decompressed_bytes)
        self._source = Source(data)
        self._check_crc = check_crc
        self._raise_partial = partial == "raise"

    def __iter__(self):
        return self

    @property
    def position(self):
        """Bytes of `data` read so far: where the next batch begins."""
        return self._at

    @cython.critical_section
    def __next__(self):
        cdef RecordBatch batch
        cdef size_t left = self._source.view.len - self._at
        cdef Py_ssize_t size
        if self._done or left == 0:
            raise StopIteration
        where = f"batch at byte {self._at}"
        batch = RecordBatch.__new__(RecordBatch)
        batch._source = self._source
        batch._batch = <const uint8_t *>self._source.view.buf + self._at
        batch._limit = self._limit
        self._done = True  # until this batch is valid: iteration ends after an error
        size = whole_batch(batch._batch, left, &batch._header, where)
        if size == 0:
            if self._raise_partial:
                raise CorruptRecordError(f"{where} is cut off: {left} bytes are left of it")
            raise StopIteration
        check_header(batch._batch, &batch._header, self._check_crc, where)
        self._done = False
        self._at += size
        return batch


cdef size_t decompression_limit(object max_decompressed_bytes) except? 0:
    """Limit decompressed records to below 2 GiB: no client reads more, because sizes are 32 bits."""
    if max_decompressed_bytes < 0:
        raise ValueError(f"max_decompressed_bytes must not be negative, got {max_decompressed_bytes}")
    return min(max_decompressed_bytes, INT32_MAX)


def decode(data, *, check_crc=True, partial="stop", max_decompressed_bytes=268435456):
    """Return an iterator over the record batches v2 in `data`.

    Parameters
    ----------
    data : bytes-like (mmap included)
        Concatenated batches, as in a Fetch response or a log segment.
    check_crc : bool
        Whether to check each batch's CRC-32C when it is yielded.
    partial : "stop" or "raise"
        What to do with a batch that is cut off at the end.
    max_decompressed_bytes : int
        Maximum decompressed bytes of a batch; at most 2 GiB.

    Returns
    -------
    iterator of RecordBatch

    Raises
    ------
    CorruptRecordError
        Raised by the iterator, which then ends, for a bad CRC, impossible header fields, or a magic other
        than 2. Raised by iterating a batch for any fault in its body.
    TypeError
        `data` is not bytes-like.
    """
    return BatchIterator(data, check_crc=check_crc, partial=partial,
                         max_decompressed_bytes=max_decompressed_bytes)


def rebase(batch, base_offset):
    """Return a copy of one whole batch with another base offset as bytes; nothing is re-encoded, and the CRC
    stays.

    Raises
    ------
    CorruptRecordError
        `batch` is not exactly one whole batch with magic 2.
    ValueError
        `base_offset` is negative, or so large that the last offset would exceed 2^63 - 1.
    """
    cdef Source source = Source(batch)
    cdef kb_batch_header header
    cdef bytes copy
    cdef Py_ssize_t size = whole_batch(<const uint8_t *>source.view.buf, source.view.len, &header, "batch")
    if size == 0 or size != source.view.len:
        raise CorruptRecordError(f"{source.view.len} bytes are not exactly one record batch")
    base_offset = checked_int(base_offset, "base_offset", 0, INT64_MAX - max(header.last_offset_delta, 0))
    copy = PyBytes_FromStringAndSize(<const char *>source.view.buf, source.view.len)
    kb_store_be64(<uint8_t *>PyBytes_AS_STRING(copy), <uint64_t><int64_t>base_offset)
    return copy
