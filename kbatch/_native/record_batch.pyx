"""Record batches v2 for Python objects: Record, RecordBatchWriter, and the reader behind `kbatch.decode`.

A writer goes append > seal > stamp. Sealing compresses the records once; stamping writes the header fields that are
known late (base offset, producer id, epoch, sequence) and the CRC, and can be repeated without touching the records.
A reader checks the header and the CRC of a batch when it yields it, and the body, whole, when it is iterated.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_FromObject,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kbatch._native.c cimport (
    KB_ATTRIBUTES_AT,
    KB_BATCH_HEADER_SIZE,
    KB_CODEC_MASK,
    KB_CONTROL,
    KB_CRC_AT,
    KB_DELETE_HORIZON,
    KB_LENGTH_AT,
    KB_LOG_APPEND_TIME,
    KB_LOG_OVERHEAD,
    KB_MAGIC_AT,
    KB_MAX_RECORD_BODY,
    KB_MIN_RECORD_BYTES,
    KB_RATIO_FACTOR,
    KB_TRANSACTIONAL,
    kb_batch_header,
    kb_batch_header_get,
    kb_batch_header_put,
    kb_copy,
    kb_count_record,
    kb_estimated_bytes,
    kb_has_room,
    kb_load_be32,
    kb_open_batch,
    kb_record,
    kb_record_body_size,
    kb_record_error,
    kb_record_get,
    kb_record_header,
    kb_record_header_get,
    kb_record_put,
    kb_record_view,
    kb_records_check,
    kb_span,
    kb_store_be64,
    kb_varint_size,
)
from kbatch._native.compression cimport codec_by_id, codec_id_of, codec_name, compress_records, decompress_records, level_of
from kbatch._native.hashes cimport crc32c_combined, crc32c_extend
from kbatch._native.memory cimport grown

import time

from kbatch.errors import CorruptRecordError, IllegalStateError

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t newsize) except -1
    const char *PyUnicode_AsUTF8AndSize(object unicode, Py_ssize_t *size) except NULL

# The writer's clock, not read yet.
cdef int64_t UNSET = INT64_MIN
cdef size_t FIRST_CAPACITY = 4096

cdef enum:
    OPEN
    SEALED
    ABORTED

_STATE_NAMES = ("open", "sealed", "aborted")

# By kb_record_error.
_RECORD_ERRORS = (
    "fine",
    "the size is impossible or larger than what is there",
    "the timestamp delta is a broken varint",
    "the offset delta is a broken varint",
    "the key's size is impossible",
    "the value's size is impossible",
    "the header count is impossible",
    "a header's key has an impossible size",
    "a header's key is not UTF-8",
    "a header's value has an impossible size",
    "bytes are left over behind it",
)


@cython.final
@cython.freelist(256)
@cython.no_gc  # holds bytes, not containers that could come back to it
cdef class Record:
    """One record: what `kbatch.decode` yields within a batch, and what `kbatch.encode` takes.

    Attributes
    ----------
    key, value : bytes-like or None
    headers : tuple of (str, bytes-like or None)
    timestamp_ms : int or None
        Milliseconds since the Unix epoch; -1 is Kafka's "no timestamp", None becomes the time of the call in `encode`.
    offset : int
        In the partition's log; -1 where it has none yet. `encode` numbers records anew.
    """

    def __init__(self, key=None, value=None, headers=(), timestamp_ms=None, int64_t offset=-1):
        self.key = key
        self.value = value
        self.headers = tuple(headers)
        self._has_timestamp = timestamp_ms is not None
        self._timestamp_ms = timestamp_ms if self._has_timestamp else -1
        self.offset = offset

    @property
    def timestamp_ms(self):
        return self._timestamp_ms if self._has_timestamp else None

    def _fields(self):
        return self.key, self.value, self.headers, self.timestamp_ms, self.offset

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == (<Record>other)._fields()

    def __hash__(self):
        return hash(self._fields())

    def __reduce__(self):
        return Record, self._fields()

    def __repr__(self):
        return (f"Record(key={self.key!r}, value={self.value!r}, headers={self.headers!r}, "
                f"timestamp_ms={self.timestamp_ms}, offset={self.offset})")


cdef int32_t last_sequence(int32_t base_sequence, int32_t last_offset_delta) noexcept nogil:
    """Of a batch; sequences go from 2^31 - 1 on to 0 (DefaultRecordBatch.incrementSequence), -1 is none."""
    cdef int64_t last = <int64_t>base_sequence + last_offset_delta
    if base_sequence == -1:
        return -1
    return <int32_t>(last if last <= INT32_MAX else last - INT32_MAX - 1)


cdef void seal_batch(uint8_t *batch, size_t size, kb_batch_header *header) noexcept nogil:
    """Writes the header in front of the records of a batch of `size` bytes, with its length and CRC."""
    header.length = <int32_t>(size - KB_LOG_OVERHEAD)
    header.magic = 2
    kb_batch_header_put(batch, header)
    header.crc = crc32c_extend(0, batch + KB_ATTRIBUTES_AT, size - KB_ATTRIBUTES_AT)
    kb_batch_header_put(batch, header)


cdef void stamp_batch(uint8_t *batch, size_t size, kb_batch_header *header) noexcept nogil:
    """Writes changed header fields into a sealed batch. The CRC follows from those of the old and the new header
    bytes alone, since a CRC is linear: the records are not read again."""
    cdef size_t covered = KB_BATCH_HEADER_SIZE - KB_ATTRIBUTES_AT
    cdef uint32_t changed = crc32c_extend(0, batch + KB_ATTRIBUTES_AT, covered)
    kb_batch_header_put(batch, header)
    changed ^= crc32c_extend(0, batch + KB_ATTRIBUTES_AT, covered)
    header.crc ^= crc32c_combined(changed, 0, size - KB_BATCH_HEADER_SIZE)
    kb_batch_header_put(batch, header)


cdef int64_t _checked_int(object value, str name, int64_t lowest, int64_t highest) except? -2:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not lowest <= value <= highest:
        raise ValueError(f"{name} must be {lowest} to {highest}; it is {value}")
    return value


cdef int64_t _now_ms() noexcept:
    return <int64_t>(time.time() * 1000)


@cython.final
cdef class RecordBatchWriter:
    """Writes one record batch v2: append > seal > stamp > getvalue.

    Parameters
    ----------
    compression, compression_level
        As `kbatch.encode` takes them.
    write_limit : int
        Bytes from which on `has_room_for` says no, by Kafka's estimate; the first record always has room.
    ratio : float
        The expected compressed / uncompressed size (see `CompressionRatioEstimator`).
    transactional, control : bool
    log_append_time_ms : int or None
        Marks the batch as LogAppendTime and is what readers will see as every record's timestamp.
    delete_horizon_ms : int or None
        Written in place of the base timestamp, with its attribute bit (KIP-534).
    base_offset, partition_leader_epoch : int

    After org.apache.kafka.common.record.MemoryRecordsBuilder.
    """

    def __init__(self, compression="none", compression_level=None, *, int64_t write_limit=INT32_MAX, double ratio=1.0,
                 bint transactional=False, bint control=False, log_append_time_ms=None, delete_horizon_ms=None,
                 base_offset=0, int32_t partition_leader_epoch=-1):
        self._codec = codec_id_of(compression)
        self._level = level_of(self._codec, compression_level)
        self._write_limit = write_limit
        self._factor = ratio * KB_RATIO_FACTOR if self._codec else 1.0
        self._has_horizon = delete_horizon_ms is not None
        self._header.base_offset = _checked_int(base_offset, "base_offset", 0, INT64_MAX)
        self._header.leader_epoch = partition_leader_epoch
        self._header.producer_id = self._header.base_sequence = -1
        self._header.producer_epoch = -1
        self._header.attributes = <int16_t>(
            self._codec
            | (KB_LOG_APPEND_TIME if log_append_time_ms is not None else 0)
            | (KB_TRANSACTIONAL if transactional else 0)
            | (KB_CONTROL if control else 0)
            | (KB_DELETE_HORIZON if self._has_horizon else 0)
        )
        self._header.base_timestamp_ms = delete_horizon_ms if self._has_horizon else -1
        self._header.max_timestamp_ms = -1 if log_append_time_ms is None else log_append_time_ms
        if control and not transactional:
            raise ValueError("a control batch marks the end of a transaction: it needs transactional=True as well")
        self._kept = []
        self._begin()

    def __dealloc__(self):
        free(self._headers)
        Py_XDECREF(self._data)

    cdef int _begin(self) except -1:
        memset(&self._open, 0, sizeof(self._open))
        self._state = OPEN
        self._now_ms = UNSET
        self._own(PyBytes_FromStringAndSize(NULL, FIRST_CAPACITY))
        self._size = KB_BATCH_HEADER_SIZE
        return 0

    cdef int _own(self, bytes data) except -1:
        Py_INCREF(data)
        Py_XDECREF(self._data)
        self._data = <PyObject *>data
        self._shared = False
        return 0

    cdef uint8_t *_bytes(self) noexcept:
        return <uint8_t *>PyBytes_AS_STRING(<object>self._data)

    cdef int _resize(self, size_t size) except -1:
        _PyBytes_Resize(&self._data, size)
        return 0

    def __len__(self):
        return self._open.count

    @property
    def estimated_bytes(self):
        """The size that the sealed batch is expected to have; exact without compression, and once it is sealed."""
        if self._state == SEALED:
            return self._size
        return kb_estimated_bytes(self._open.records_bytes, self._factor)

    @property
    def is_full(self):
        """Whether the batch has a record and its estimated size reached `write_limit`."""
        return self._open.count > 0 and self._write_limit <= self.estimated_bytes

    def has_room_for(self, key=None, value=None, headers=(), timestamp_ms=None):
        """Whether this record may be appended without passing `write_limit`, by Kafka's estimate."""
        cdef kb_record record
        cdef int32_t offset_delta = self._open.last_offset_delta + (self._open.count > 0)
        cdef int64_t body = self._measure(&record, key, value, headers, timestamp_ms, offset_delta)
        self._kept.clear()
        return self._state == OPEN and kb_has_room(
            &self._open, body + kb_varint_size(body), self._write_limit, self._factor
        )

    def append(self, key=None, value=None, headers=(), timestamp_ms=None, *, offset=None):
        """Appends a record, whatever `write_limit` says.

        Parameters
        ----------
        key, value : bytes-like or None
        headers : sequence of (str, bytes-like or None)
        timestamp_ms : int or None
            Milliseconds since the Unix epoch, -1 for none; None is the time of the batch's first such record.
        offset : int or None
            In the log; larger than the one before. None is the next.

        Raises
        ------
        TypeError, ValueError
            What is wrong with which record and field.
        IllegalStateError
            The batch is sealed or was aborted.
        """
        cdef int64_t delta = self._open.last_offset_delta + (self._open.count > 0)
        self._check_state(OPEN, "append to")
        if offset is not None:
            if offset - self._header.base_offset < delta:
                raise ValueError(f"{self._at()}: offset must be {self._header.base_offset + delta} or more; it is {offset}")
            delta = offset - self._header.base_offset
        if delta > INT32_MAX:
            raise ValueError(f"{self._at()}: offset {offset} is more than 2^31 - 1 above the batch's base offset")
        self._append(key, value, headers, timestamp_ms, <int32_t>delta)

    def seal(self, *, last_offset_delta=None):
        """Closes the batch and compresses its records.

        Parameters
        ----------
        last_offset_delta : int or None
            Of the batch, where it is not the last record's: log compaction keeps it as records go, even all of them.

        Raises
        ------
        ValueError
            The batch has no record and no `last_offset_delta`, or grew beyond 2 GiB.
        IllegalStateError
            The batch is sealed already or was aborted.
        """
        self._check_state(OPEN, "seal")
        if last_offset_delta is None:
            if self._open.count == 0:
                raise ValueError("a batch needs at least one record")
        elif last_offset_delta < self._open.last_offset_delta:
            raise ValueError(f"last_offset_delta {last_offset_delta} is below the last record's")
        else:
            self._open.last_offset_delta = last_offset_delta
        _checked_int(self._header.base_offset, "base_offset", 0, INT64_MAX - self._open.last_offset_delta)
        if self._open.count and self._codec:
            self._compress()
        if self._size > INT32_MAX:
            raise ValueError(f"the compressed batch has {self._size} bytes; {INT32_MAX} is the most")
        self._resize(self._size)
        self._header.last_offset_delta = self._open.last_offset_delta
        self._header.count = self._open.count
        if self._open.count and not self._has_horizon:
            self._header.base_timestamp_ms = self._open.base_timestamp_ms
        if self._open.count and not self._header.attributes & KB_LOG_APPEND_TIME:
            self._header.max_timestamp_ms = self._open.max_timestamp_ms
        seal_batch(self._bytes(), self._size, &self._header)
        self._state = SEALED

    def stamp(self, *, producer_id=-1, producer_epoch=-1, base_sequence=-1, base_offset=None):
        """Writes who produced the batch, and where it stands, into the sealed batch; as often as needed.

        Raises
        ------
        ValueError
            A producer id without epoch and sequence; a transactional batch without producer id; a control batch that
            is not transactional.
        IllegalStateError
            The batch is not sealed.
        """
        cdef kb_batch_header header = self._header  # changed as a whole or not at all
        self._check_state(SEALED, "stamp")
        if producer_id >= 0 and producer_epoch < 0:
            raise ValueError(f"producer_epoch must be 0 or more with producer_id {producer_id}; it is {producer_epoch}")
        if producer_id >= 0 and base_sequence < 0 and not self._header.attributes & KB_CONTROL:
            raise ValueError(f"base_sequence must be 0 or more with producer_id {producer_id}; it is {base_sequence}")
        if self._header.attributes & KB_TRANSACTIONAL and producer_id < 0:
            raise ValueError(f"a transactional batch needs a producer_id of 0 or more; it is {producer_id}")
        if producer_id < 0 and (producer_epoch != -1 or base_sequence != -1):
            raise ValueError(f"producer_epoch and base_sequence go with a producer_id of 0 or more; it is {producer_id}")
        header.producer_id = _checked_int(producer_id, "producer_id", -1, INT64_MAX)
        header.producer_epoch = <int16_t>_checked_int(producer_epoch, "producer_epoch", -1, 32767)
        header.base_sequence = <int32_t>_checked_int(base_sequence, "base_sequence", -1, INT32_MAX)
        if base_offset is not None:
            header.base_offset = _checked_int(base_offset, "base_offset", 0, INT64_MAX - header.last_offset_delta)
        self._header = header
        if self._shared:  # a bytes object that somebody has seen does not change
            self._own(PyBytes_FromStringAndSize(<char *>self._bytes(), self._size))
        stamp_batch(self._bytes(), self._size, &self._header)

    def getvalue(self):
        """The sealed batch, bytes."""
        self._check_state(SEALED, "read")
        if self._header.attributes & KB_TRANSACTIONAL and self._header.producer_id < 0:
            raise IllegalStateError("a transactional batch must be stamped with its producer id first")
        self._shared = True
        return <object>self._data

    def abort(self):
        """Throws away what was appended; the writer takes no more."""
        self._begin()
        self._state = ABORTED

    def _check_state(self, int state, str verb):
        if self._state != state:
            raise IllegalStateError(f"cannot {verb} a record batch that is {_STATE_NAMES[self._state]}")

    cdef str _at(self):
        return f"record {self._open.count}"

    cdef int _append_item(self, object item) except -1:
        """A record as `encode` takes it: a Record, or a tuple of 2 to 4."""
        cdef Record record
        cdef Py_ssize_t size
        cdef tuple fields
        if type(item) is tuple:
            fields = <tuple>item
        elif type(item) is Record:
            record = <Record>item
            return self._append(record.key, record.value, record.headers, record.timestamp_ms, self._open.count)
        elif isinstance(item, tuple):
            fields = tuple(item)
        else:
            raise TypeError(f"{self._at()} must be a Record or a tuple (key, value[, headers[, timestamp_ms]]), "
                            f"not {type(item).__name__}")
        size = len(fields)
        if size < 2 or size > 4:
            raise TypeError(f"{self._at()} must be a tuple (key, value[, headers[, timestamp_ms]]); it has {size} items")
        return self._append(fields[0], fields[1], fields[2] if size > 2 else None, fields[3] if size > 3 else None,
                            self._open.count)

    cdef int _append(self, object key, object value, object headers, object timestamp_ms,
                     int32_t offset_delta) except -1:
        cdef kb_record record
        cdef int64_t body = self._measure(&record, key, value, headers, timestamp_ms, offset_delta)
        cdef int64_t size = body + kb_varint_size(body)
        self._reserve(self._size + size)
        kb_record_put(self._bytes() + self._size, &record, body, self._delta(record.timestamp_ms), offset_delta)
        self._size += size
        kb_count_record(&self._open, record.timestamp_ms, size, offset_delta)
        if self._kept:
            self._kept.clear()
        return 0

    cdef int64_t _measure(self, kb_record *record, object key, object value, object headers, object timestamp_ms,
                          int32_t offset_delta) except -1:
        """Fills `record` with views of the arguments, and returns the exact size of its body."""
        cdef int64_t body
        cdef tuple items = ()
        if headers is not None and headers is not items:
            if isinstance(headers, (str, bytes, dict)):
                raise TypeError(
                    f"{self._at()}: headers must be a sequence of (str, bytes | None), not {type(headers).__name__}")
            items = tuple(headers)  # may run the caller's code, which must not find us half done
            self._check_state(OPEN, "append to")
        record.key = self._span_of(key, "key")
        record.value = self._span_of(value, "value")
        record.timestamp_ms = self._timestamp_of(timestamp_ms)
        self._take_headers(items, record)
        body = kb_record_body_size(record, self._delta(record.timestamp_ms), offset_delta)
        if body > KB_MAX_RECORD_BODY:
            raise ValueError(f"{self._at()}: key, value and headers take {body} bytes; {KB_MAX_RECORD_BODY} is the most")
        return body

    cdef int64_t _delta(self, int64_t timestamp_ms) noexcept:
        if self._has_horizon:
            # wraps as Java's subtraction does: a horizon may be anything
            return <int64_t>(<uint64_t>timestamp_ms - <uint64_t>self._header.base_timestamp_ms)
        return timestamp_ms - self._open.base_timestamp_ms if self._open.count else 0

    cdef int64_t _timestamp_of(self, object timestamp_ms) except? -2:
        cdef int64_t value
        if timestamp_ms is None:
            if self._now_ms == UNSET:
                self._now_ms = _now_ms()
            return self._now_ms
        if type(timestamp_ms) is not int and (isinstance(timestamp_ms, bool) or not hasattr(timestamp_ms, "__index__")):
            raise TypeError(f"{self._at()}: timestamp_ms must be an int (milliseconds since the Unix epoch) or None, "
                            f"not {type(timestamp_ms).__name__}")
        try:
            value = timestamp_ms
        except OverflowError:
            raise ValueError(f"{self._at()}: timestamp_ms must fit 64 bits; it is {timestamp_ms}") from None
        if value < -1 or value == INT64_MAX:  # so that no two are further apart than 64 bits can say
            raise ValueError(f"{self._at()}: timestamp_ms must be 0 to 2^63 - 2, or -1 for none; it is {value}")
        return value

    cdef kb_span _span_of(self, object data, str field) except *:
        """A view of bytes; of another bytes-like object's copy, which `_kept` keeps until the record is written."""
        cdef kb_span span
        if data is None:
            span.data = NULL
            span.size = -1
            return span
        if type(data) is not bytes:
            if not PyObject_CheckBuffer(data):
                hint = " (encode it first)" if isinstance(data, str) else ""
                raise TypeError(f"{self._at()}: {field} must be bytes-like or None, not {type(data).__name__}{hint}")
            data = PyBytes_FromObject(data)
            self._kept.append(data)
        span.data = <const uint8_t *>PyBytes_AS_STRING(data)
        span.size = PyBytes_GET_SIZE(data)
        return span

    cdef int _take_headers(self, tuple items, kb_record *record) except -1:
        cdef Py_ssize_t count = len(items)
        cdef Py_ssize_t i, size
        record.headers = NULL
        record.header_count = count
        if count == 0:
            return 0
        self._kept.append(items)
        if count > self._headers_capacity:
            self._headers = <kb_record_header *>grown(self._headers, count * sizeof(kb_record_header))
            self._headers_capacity = count
        for i in range(count):
            item = items[i]
            if isinstance(item, list):
                item = tuple(item)
                self._kept.append(item)
            if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str):
                raise TypeError(f"{self._at()}: header {i} must be a pair (str, bytes | None); it is {item!r}")
            try:
                self._headers[i].key.data = <const uint8_t *>PyUnicode_AsUTF8AndSize(item[0], &size)
            except UnicodeEncodeError:
                raise ValueError(f"{self._at()}: header {i}: key {item[0]!r} cannot be written as UTF-8") from None
            self._headers[i].key.size = size
            self._headers[i].value = self._span_of(item[1], f"header {item[0]!r}")
        record.headers = self._headers
        return 0

    cdef int _reserve(self, size_t size) except -1:
        cdef size_t capacity = PyBytes_GET_SIZE(<object>self._data)
        if size > INT32_MAX:
            raise ValueError(f"{self._at()}: the batch would have {size} bytes; {INT32_MAX} is the most")
        if size > capacity:
            self._resize(max(size, 2 * capacity))
        return 0

    cdef int _compress(self) except -1:
        """Puts the compressed records behind the place of the header, in place of the plain ones."""
        cdef const uint8_t *records = self._bytes() + KB_BATCH_HEADER_SIZE
        cdef bytes packed = compress_records(self._codec, records, self._size - KB_BATCH_HEADER_SIZE, self._level)
        self._size = KB_BATCH_HEADER_SIZE + PyBytes_GET_SIZE(packed)
        self._own(PyBytes_FromStringAndSize(NULL, self._size))
        memcpy(self._bytes() + KB_BATCH_HEADER_SIZE, PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
        return 0


def encode(records, *, compression="none", compression_level=None, base_offset=0, producer_id=-1, producer_epoch=-1,
           base_sequence=-1, bint transactional=False):
    """Exactly one record batch v2 (magic 2), as a producer writes it.

    Parameters
    ----------
    records : iterable of `Record`, or of tuples (key, value[, headers[, timestamp_ms]])
        key, value: bytes-like or None; headers: sequence of (str, bytes-like or None); timestamp_ms: int, milliseconds
        since the Unix epoch, where None or left out is the time of the call. Offsets are numbered anew.
    compression : "none", "gzip", "snappy", "lz4" or "zstd"
    compression_level : int or None
        In Java's ranges: gzip 1..9, lz4 1..17, zstd -131072..22 (KIP-390).
    base_offset : int
    producer_id, producer_epoch, base_sequence : int
        -1 for none.
    transactional : bool

    Returns
    -------
    bytes

    Raises
    ------
    TypeError
        A field of the wrong type; the message names the index of the record.
    ValueError
        No records, a level out of range, a negative timestamp, a record or batch beyond 2 GiB, a producer id without
        epoch and sequence.
    """
    cdef RecordBatchWriter writer = RecordBatchWriter(
        compression, compression_level, transactional=transactional, base_offset=base_offset
    )
    for item in records:
        writer._append_item(item)
    if writer._open.count == 0:
        raise ValueError("records is empty: a batch needs at least one record")
    writer.seal()
    if transactional or producer_id != -1 or producer_epoch != -1 or base_sequence != -1:
        writer.stamp(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)
    return writer.getvalue()


@cython.final
@cython.no_gc_clear
cdef class Source:
    """A hold on the memory of a bytes-like object."""

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef Py_ssize_t whole_batch(const uint8_t *data, size_t left, kb_batch_header *header, str where) except -1:
    """Reads the header of the batch at `data` and returns the batch's bytes; 0 where it is cut off."""
    cdef int32_t length
    if left < KB_LOG_OVERHEAD:
        return 0
    length = <int32_t>kb_load_be32(data + KB_LENGTH_AT)
    if length < 14:  # the least of any magic (LegacyRecord.RECORD_OVERHEAD_V0)
        raise CorruptRecordError(f"{where}: a length of {length} is impossible")
    if <size_t>length > left - KB_LOG_OVERHEAD:
        return 0
    if data[KB_MAGIC_AT] in (0, 1):
        raise CorruptRecordError(
            f"{where}: magic {data[KB_MAGIC_AT]} is a message set of before Kafka 0.11; record batches have magic 2"
        )
    if data[KB_MAGIC_AT] != 2:
        raise CorruptRecordError(f"{where}: magic {<int>(<signed char>data[KB_MAGIC_AT])} is unknown")
    if length < KB_BATCH_HEADER_SIZE - KB_LOG_OVERHEAD:
        raise CorruptRecordError(f"{where}: a length of {length} is less than a header takes")
    kb_batch_header_get(data, header)
    return KB_LOG_OVERHEAD + <Py_ssize_t>length


cdef int check_header(const uint8_t *batch, const kb_batch_header *header, bint check_crc, str where) except -1:
    """CORRUPT_MESSAGE for a bad CRC, and for fields that no batch can have."""
    cdef size_t size = KB_LOG_OVERHEAD + <size_t>header.length
    cdef uint32_t crc
    if check_crc:
        with nogil:
            crc = crc32c_extend(0, batch + KB_ATTRIBUTES_AT, size - KB_ATTRIBUTES_AT)
        if crc != header.crc:
            raise CorruptRecordError(f"{where}: CRC-32C is {crc:#010x}; the header says {header.crc:#010x}")
    if codec_by_id(header.attributes & KB_CODEC_MASK) == NULL:
        raise CorruptRecordError(f"{where}: compression codec {header.attributes & KB_CODEC_MASK} is unknown")
    if header.count < 0:
        raise CorruptRecordError(f"{where}: a record count of {header.count} is impossible")
    if header.last_offset_delta < 0 or header.base_offset > INT64_MAX - header.last_offset_delta:
        raise CorruptRecordError(f"{where}: a last offset delta of {header.last_offset_delta} is impossible")
    return 0


cdef bytes open_body(const uint8_t *batch, const kb_batch_header *header, size_t limit, const uint8_t **start,
                     const uint8_t **end):
    """Decompresses where needed; `start` and `end` then enclose the records, which are not checked yet. Returns the
    bytes object that owns them, None where they are the batch's own.
    """
    cdef int codec = header.attributes & KB_CODEC_MASK
    cdef size_t size = KB_LOG_OVERHEAD + <size_t>header.length - KB_BATCH_HEADER_SIZE
    cdef bytes body = None
    start[0] = batch + KB_BATCH_HEADER_SIZE
    if codec and not (size == 0 and header.count == 0):  # compaction leaves batches without records
        body = decompress_records(codec, start[0], size, limit)
        start[0] = <const uint8_t *>PyBytes_AS_STRING(body)
        size = PyBytes_GET_SIZE(body)
    end[0] = start[0] + size
    if <size_t>header.count > size / KB_MIN_RECORD_BYTES:
        raise CorruptRecordError(f"{header.count} records cannot be in {size} bytes (batch at offset {header.base_offset})")
    return body


cdef object record_error(kb_record_error error, int32_t index, int64_t base_offset):
    return CorruptRecordError(f"record {index} of the batch at offset {base_offset}: {_RECORD_ERRORS[error]}")


@cython.final
cdef class RecordBatch:
    """A record batch that was read: header fields as attributes; iterating gives `Record` objects.

    The first step of each iteration decompresses and checks the whole body, and raises CorruptRecordError where
    anything is wrong with it. `bytes(batch)` is the batch as it stands.
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
            error = kb_records_check(records._at, records._end, self._header.count, &failed_at)
        if error:
            raise record_error(error, failed_at, self._header.base_offset)
        return records

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
        """All 16 bits: codec (0-2), timestamp type (3), transactional (4), control (5), delete horizon (6)."""
        return self._header.attributes

    @property
    def base_offset(self):
        return self._header.base_offset

    @property
    def last_offset(self):
        return self._header.base_offset + self._header.last_offset_delta

    @property
    def partition_leader_epoch(self):
        """-1 where no leader wrote it yet."""
        return self._header.leader_epoch

    @property
    def crc(self):
        """CRC-32C as the header has it, an unsigned int."""
        return self._header.crc

    @property
    def compression(self):
        """"none", "gzip", "snappy", "lz4" or "zstd"."""
        return codec_name(self._header.attributes & KB_CODEC_MASK)

    @property
    def timestamp_type(self):
        """"create_time" or "log_append_time"; in the latter case every record has `max_timestamp_ms`."""
        return "log_append_time" if self._header.attributes & KB_LOG_APPEND_TIME else "create_time"

    @property
    def is_transactional(self):
        return self._header.attributes & KB_TRANSACTIONAL != 0

    @property
    def is_control(self):
        """Whether its record is a marker (commit, abort) and not data."""
        return self._header.attributes & KB_CONTROL != 0

    @property
    def base_timestamp_ms(self):
        """What the records' timestamps count from: the first one's, or the delete horizon."""
        return self._header.base_timestamp_ms

    @property
    def max_timestamp_ms(self):
        return self._header.max_timestamp_ms

    @property
    def delete_horizon_ms(self):
        """From when on compaction may drop tombstones and markers (KIP-534); None where it is not set."""
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
        """-1 where there is no sequence; wraps from 2^31 - 1 to 0."""
        return last_sequence(self._header.base_sequence, self._header.last_offset_delta)


@cython.final
cdef class RecordIterator:
    """The records of a batch, which were checked, but are read with all bounds again: memory may be shared."""

    cdef RecordBatch _batch
    cdef bytes _body
    cdef const uint8_t *_at
    cdef const uint8_t *_end
    cdef int32_t _left

    def __iter__(self):
        return self

    def __next__(self):
        cdef kb_record_view view
        cdef kb_batch_header *header = &self._batch._header
        cdef kb_record_error error
        cdef Record record
        if self._left == 0:
            raise StopIteration
        self._left -= 1
        error = kb_record_get(&self._at, self._end, &view)
        if error:
            index, self._left = header.count - self._left - 1, 0
            raise record_error(error, index, header.base_offset)
        record = Record.__new__(Record)
        record.offset = header.base_offset + <int64_t>view.offset_delta
        record._timestamp_ms = record_timestamp(header, view.timestamp_delta)
        record._has_timestamp = True
        record.key = _bytes_or_none(view.key)
        record.value = _bytes_or_none(view.value)
        record.headers = _headers_of(&view) if view.header_count else ()
        return record


cdef int64_t record_timestamp(const kb_batch_header *header, int64_t delta) noexcept nogil:
    """Wraps as Java's addition does."""
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
    """What `decode` returns: the batches of a bytes-like object, one after another."""

    cdef Source _source
    cdef size_t _at
    cdef size_t _limit
    cdef bint _check_crc
    cdef bint _raise_partial
    cdef bint _done

    def __init__(self, data, *, bint check_crc=True, partial="stop", max_decompressed_bytes=268435456):
        if partial not in ("stop", "raise"):
            raise ValueError(f"partial must be 'stop' or 'raise'; it is {partial!r}")
        self._limit = decompression_limit(max_decompressed_bytes)
        self._source = Source(data)
        self._check_crc = check_crc
        self._raise_partial = partial == "raise"

    def __iter__(self):
        return self

    @property
    def position(self):
        """Bytes of `data` that were read: where the next batch begins."""
        return self._at

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
        self._done = True  # until this batch proves well: iteration ends after an error
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
    """Records that decompress to 2 GiB or more are none that any client reads: sizes are 32 bits."""
    if max_decompressed_bytes < 0:
        raise ValueError(f"max_decompressed_bytes must not be negative; it is {max_decompressed_bytes}")
    return min(max_decompressed_bytes, INT32_MAX)


def decode(data, *, check_crc=True, partial="stop", max_decompressed_bytes=268435456):
    """The record batches v2 in `data`, one after another.

    Parameters
    ----------
    data : bytes-like (mmap included)
        Concatenated batches, as in a Fetch response or a log segment.
    check_crc : bool
        Whether each batch's CRC-32C is checked when it is yielded.
    partial : "stop" or "raise"
        What a batch that is cut off at the end does.
    max_decompressed_bytes : int
        The most that one batch may decompress to; 2 GiB at most.

    Returns
    -------
    iterator of RecordBatch

    Raises
    ------
    CorruptRecordError
        From the iterator, which then ends: bad CRC, impossible header fields, magic other than 2. From iterating a
        batch: anything wrong with its body.
    TypeError
        `data` is not bytes-like.
    """
    return BatchIterator(data, check_crc=check_crc, partial=partial, max_decompressed_bytes=max_decompressed_bytes)


def rebase(batch, base_offset):
    """A copy of one whole batch with another base offset, bytes; nothing is re-encoded, and the CRC stays.

    Raises
    ------
    CorruptRecordError
        `batch` is not exactly one whole batch with magic 2.
    ValueError
        `base_offset` is negative, or so large that the last offset would pass 2^63 - 1.
    """
    cdef Source source = Source(batch)
    cdef kb_batch_header header
    cdef bytes copy
    cdef Py_ssize_t size = whole_batch(<const uint8_t *>source.view.buf, source.view.len, &header, "batch")
    if size == 0 or size != source.view.len:
        raise CorruptRecordError(f"{source.view.len} bytes are not exactly one record batch")
    base_offset = _checked_int(base_offset, "base_offset", 0, INT64_MAX - max(header.last_offset_delta, 0))
    copy = PyBytes_FromStringAndSize(<const char *>source.view.buf, source.view.len)
    kb_store_be64(<uint8_t *>PyBytes_AS_STRING(copy), <uint64_t><int64_t>base_offset)
    return copy
