"""RecordBatchWriter and `kbatch.encode`: record batches v2 from Python objects.

A writer goes append > seal > stamp. Sealing compresses the records once. Stamping writes the header fields
that are known late (base offset, producer id, epoch, sequence) and the CRC, and can be repeated without
touching the records.
"""

cimport cython
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_FromObject,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kbatch._native.codec.c cimport (
    KB_BATCH_HEADER_SIZE,
    KB_CONTROL,
    KB_DELETE_HORIZON,
    KB_LOG_APPEND_TIME,
    KB_MAX_RECORD_BODY,
    KB_RATIO_FACTOR,
    KB_TRANSACTIONAL,
    kb_batch_header,
    kb_count_record,
    kb_estimated_bytes,
    kb_has_room,
    kb_memory,
    kb_record,
    kb_record_body_size,
    kb_record_header,
    kb_record_put,
    kb_span,
    kb_varint_size,
)
from kbatch._native.codec.compression cimport codec_id_of, compress_to, level_of
from kbatch._native.codec.memory cimport give_up, grown
from kbatch._native.codec.record cimport Record
from kbatch._native.codec.record_batch cimport checked_int, seal_batch, stamp_batch

import operator
import time

from kbatch.errors import IllegalStateError

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


cdef int64_t _now_ms() noexcept:
    return <int64_t>(time.time() * 1000)


@cython.final
cdef class RecordBatchWriter:
    """Writes one record batch v2: append > seal > stamp > getvalue.

    Parameters
    ----------
    compression, compression_level
        See `kbatch.encode`.
    write_limit : int
        Bytes from which on `has_room_for` is False, by Kafka's estimate; the first record always has room.
    ratio : float
        The expected compressed / uncompressed size (see `CompressionRatioEstimator`).
    transactional, control : bool
    log_append_time_ms : int or None
        Marks the batch as LogAppendTime and is the timestamp of every record for readers.
    delete_horizon_ms : int or None
        Written instead of the base timestamp, with its attribute bit (KIP-534).
    base_offset, partition_leader_epoch : int

    After org.apache.kafka.common.record.MemoryRecordsBuilder.
    """

    def __init__(self, compression="none", compression_level=None, *, int64_t write_limit=INT32_MAX,
                 double ratio=1.0, bint transactional=False, bint control=False, log_append_time_ms=None,
                 delete_horizon_ms=None, base_offset=0, int32_t partition_leader_epoch=-1):
        self._codec = codec_id_of(compression)
        self._level = level_of(self._codec, compression_level)
        self._write_limit = write_limit
        self._factor = ratio * KB_RATIO_FACTOR if self._codec else 1.0
        self._has_horizon = delete_horizon_ms is not None
        self._header.base_offset = checked_int(base_offset, "base_offset", 0, INT64_MAX)
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
            raise ValueError("a control batch marks the end of a transaction; set transactional=True "
                             "as well")
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
        """The expected size of the sealed batch; exact without compression, and after sealing.
        """
        if self._state == SEALED:
            return self._size
        return kb_estimated_bytes(self._open.records_bytes, self._factor)

    @property
    def is_full(self):
        """True if the batch has a record and its estimated size reached `write_limit`."""
        return self._open.count > 0 and self._write_limit <= self.estimated_bytes

    @cython.critical_section
    def has_room_for(self, key=None, value=None, headers=(), timestamp_ms=None):
        """True if this record fits within `write_limit`, by Kafka's estimate."""
        cdef kb_record record
        cdef int32_t offset_delta = self._open.last_offset_delta + (self._open.count > 0)
        cdef int64_t body
        if self._state != OPEN:
            return False
        self._enter("look at")
        try:
            body = self._measure(&record, key, value, headers, timestamp_ms, offset_delta)
        finally:
            self._exit()
        return kb_has_room(&self._open, body + kb_varint_size(body), self._write_limit, self._factor)

    @cython.critical_section
    def append(self, key=None, value=None, headers=(), timestamp_ms=None, *, offset=None):
        """Append a record, whatever `write_limit` is.

        Parameters
        ----------
        key, value : bytes-like or None
        headers : sequence of (str, bytes-like or None)
        timestamp_ms : int or None
            Milliseconds since the Unix epoch, -1 for none; None is the time of the batch's first such record.
        offset : int or None
            Offset in the log, above the previous one. None is the next.

        Raises
        ------
        TypeError, ValueError
            A field is invalid; the message names the record and the field.
        IllegalStateError
            The batch is sealed or was aborted.
        """
        cdef int64_t delta = self._open.last_offset_delta + (self._open.count > 0)
        self._enter("append to")
        try:
            self._append_at(key, value, headers, timestamp_ms, offset, delta)
        finally:
            self._exit()

    cdef int _append_at(self, object key, object value, object headers, object timestamp_ms, object offset,
                        int64_t delta) except -1:
        if offset is not None:
            if offset - self._header.base_offset < delta:
                raise ValueError(f"{self._at()}: offset must be {self._header.base_offset + delta} or "
                                 f"more, got {offset}")
            delta = offset - self._header.base_offset
        if delta > INT32_MAX:
            raise ValueError(f"{self._at()}: offset {offset} is more than 2^31 - 1 above the batch's base "
                             f"offset")
        return self._append(key, value, headers, timestamp_ms, <int32_t>delta)

    @cython.critical_section
    def seal(self, *, last_offset_delta=None):
        """Close the batch and compress its records.

        Parameters
        ----------
        last_offset_delta : int or None
            That of the batch, if it is not the last record's: log compaction keeps it while records
            disappear, even all of them.

        Raises
        ------
        ValueError
            The batch has no record and no `last_offset_delta`, or exceeds 2 GiB.
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
        checked_int(self._header.base_offset, "base_offset", 0, INT64_MAX - self._open.last_offset_delta)
        if self._open.count and self._codec:
            self._compress()
        if self._size > INT32_MAX:
            raise ValueError(f"the compressed batch has {self._size} bytes, above {INT32_MAX}")
        self._resize(self._size)
        self._header.last_offset_delta = self._open.last_offset_delta
        self._header.count = self._open.count
        if self._open.count and not self._has_horizon:
            self._header.base_timestamp_ms = self._open.base_timestamp_ms
        if self._open.count and not self._header.attributes & KB_LOG_APPEND_TIME:
            self._header.max_timestamp_ms = self._open.max_timestamp_ms
        seal_batch(self._bytes(), self._size, &self._header)
        self._state = SEALED

    @cython.critical_section
    def stamp(self, *, producer_id=-1, producer_epoch=-1, base_sequence=-1, base_offset=None):
        """Write producer and offset into the sealed batch; repeatable.

        Raises
        ------
        ValueError
            A producer id without epoch and sequence; a transactional batch without producer id; a control
            batch that is not transactional.
        IllegalStateError
            The batch is not sealed.
        """
        cdef kb_batch_header header = self._header  # all fields change, or none
        self._check_state(SEALED, "stamp")
        if producer_id >= 0 and producer_epoch < 0:
            raise ValueError(f"producer_epoch must be 0 or more with producer_id {producer_id}, got "
                             f"{producer_epoch}")
        if producer_id >= 0 and base_sequence < 0 and not self._header.attributes & KB_CONTROL:
            raise ValueError(f"base_sequence must be 0 or more with producer_id {producer_id}, got "
                             f"{base_sequence}")
        if self._header.attributes & KB_TRANSACTIONAL and producer_id < 0:
            raise ValueError(f"a transactional batch needs a producer_id of 0 or more, got {producer_id}")
        if producer_id < 0 and (producer_epoch != -1 or base_sequence != -1):
            raise ValueError(f"producer_epoch and base_sequence go with a producer_id of 0 or more, got "
                             f"{producer_id}")
        header.producer_id = checked_int(producer_id, "producer_id", -1, INT64_MAX)
        header.producer_epoch = <int16_t>checked_int(producer_epoch, "producer_epoch", -1, 32767)
        header.base_sequence = <int32_t>checked_int(base_sequence, "base_sequence", -1, INT32_MAX)
        if base_offset is not None:
            header.base_offset = checked_int(base_offset, "base_offset", 0,
                                             INT64_MAX - header.last_offset_delta)
        self._header = header
        if self._shared:  # a visible bytes object must not change
            self._own(PyBytes_FromStringAndSize(<char *>self._bytes(), self._size))
        stamp_batch(self._bytes(), self._size, &self._header)

    @cython.critical_section
    def getvalue(self):
        """Return the sealed batch as bytes."""
        self._check_state(SEALED, "read")
        if self._header.attributes & KB_TRANSACTIONAL and self._header.producer_id < 0:
            raise IllegalStateError("a transactional batch must be stamped with its producer id first")
        self._shared = True
        return <object>self._data

    @cython.critical_section
    def abort(self):
        """Discard all records; the writer accepts no more."""
        self._check_state(self._state, "abort")
        self._begin()
        self._state = ABORTED

    cdef int _enter(self, str verb) except -1:
        """Guard the batch while reading the caller's objects, which may run code."""
        self._check_state(OPEN, verb)
        self._busy = True
        return 0

    cdef int _exit(self) except -1:
        self._busy = False
        self._kept.clear()
        return 0

    cdef int _check_state(self, int state, str verb) except -1:
        if self._busy:
            raise IllegalStateError(f"cannot {verb} a record batch while a record is being appended to it")
        if self._state != state:
            raise IllegalStateError(f"cannot {verb} a record batch that is {_STATE_NAMES[self._state]}")
        return 0

    cdef str _at(self):
        return f"record {self._open.count}"

    cdef int _append_item(self, object item) except -1:
        """Append a record in a form of `encode`: a Record, or a tuple of 2 to 4."""
        cdef Record record
        cdef Py_ssize_t size
        cdef tuple fields
        if type(item) is tuple:
            fields = <tuple>item
        elif type(item) is Record:
            record = <Record>item
            return self._append(record.key, record.value, record.headers, record.timestamp_ms,
                                self._open.count)
        elif isinstance(item, tuple):
            fields = tuple(item)
        else:
            raise TypeError(f"{self._at()} must be a Record or a tuple (key, value[, headers[, "
                            f"timestamp_ms]]), "
                            f"got {type(item).__name__}")
        size = len(fields)
        if size < 2 or size > 4:
            raise TypeError(f"{self._at()} must be a tuple (key, value[, headers[, timestamp_ms]]), got "
                            f"{size} items")
        return self._append(fields[0], fields[1], fields[2] if size > 2 else None,
                            fields[3] if size > 3 else None, self._open.count)

    cdef int _append(self, object key, object value, object headers, object timestamp_ms,
                     int32_t offset_delta) except -1:
        cdef kb_record record
        cdef int64_t body = self._measure(&record, key, value, headers, timestamp_ms, offset_delta)
        cdef int64_t size = body + kb_varint_size(body)
        self._reserve(self._size + size)
        kb_record_put(self._bytes() + self._size, &record, body, self._delta(record.timestamp_ms),
                      offset_delta)
        self._size += size
        kb_count_record(&self._open, record.timestamp_ms, size, offset_delta)
        if self._kept:
            self._kept.clear()
        return 0

    cdef int64_t _measure(self, kb_record *record, object key, object value, object headers,
                          object timestamp_ms,
                          int32_t offset_delta) except -1:
        """Fill `record` with views of the arguments, and return the exact size of its body."""
        cdef int64_t body
        cdef tuple items = ()
        if headers is not None and headers is not items:
            if isinstance(headers, (str, bytes, dict)):
                raise TypeError(f"{self._at()}: headers must be a sequence of (str, bytes | None), "
                                f"got {type(headers).__name__}")
            items = tuple(headers)
        record.key = self._span_of(key, "key")
        record.value = self._span_of(value, "value")
        record.timestamp_ms = self._timestamp_of(timestamp_ms)
        self._take_headers(items, record)
        body = kb_record_body_size(record, self._delta(record.timestamp_ms), offset_delta)
        if body > KB_MAX_RECORD_BODY:
            raise ValueError(f"{self._at()}: key, value and headers take {body} bytes; "
                             f"{KB_MAX_RECORD_BODY} is the most")
        return body

    cdef int64_t _delta(self, int64_t timestamp_ms) noexcept:
        if self._has_horizon:
            # wraps like Java's subtraction: a horizon may be anything
            return <int64_t>(<uint64_t>timestamp_ms - <uint64_t>self._header.base_timestamp_ms)
        return timestamp_ms - self._open.base_timestamp_ms if self._open.count else 0

    cdef int64_t _timestamp_of(self, object timestamp_ms) except? -2:
        cdef int64_t value
        if timestamp_ms is None:
            if self._now_ms == UNSET:
                self._now_ms = _now_ms()
            return self._now_ms
        if type(timestamp_ms) is not int:
            if isinstance(timestamp_ms, bool) or not hasattr(timestamp_ms, "__index__"):
                raise TypeError(f"{self._at()}: timestamp_ms must be an int (milliseconds since the Unix "
                                f"epoch) or "
                                f"None, got {type(timestamp_ms).__name__}")
            timestamp_ms = operator.index(timestamp_ms)
        try:
            value = timestamp_ms
        except OverflowError:
            raise ValueError(f"{self._at()}: timestamp_ms must fit 64 bits, got {timestamp_ms}") from None
        if value < -1 or value == INT64_MAX:  # so that the difference of any two fits 64 bits
            raise ValueError(f"{self._at()}: timestamp_ms must be 0 to 2^63 - 2, or -1 for none, got "
                             f"{value}")
        return value

    cdef kb_span _span_of(self, object data, str field) except *:
        """Return a view of bytes; for other bytes-like objects of a copy, which `_kept` keeps until the
        record is written.
        """
        cdef kb_span span
        if data is None:
            span.data = NULL
            span.size = -1
            return span
        if type(data) is not bytes:
            if not PyObject_CheckBuffer(data):
                hint = " (encode it first)" if isinstance(data, str) else ""
                raise TypeError(f"{self._at()}: {field} must be bytes-like or None, got "
                                f"{type(data).__name__}{hint}")
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
                raise TypeError(f"{self._at()}: header {i} must be a pair (str, bytes | None), got "
                                f"{item!r}")
            try:
                self._headers[i].key.data = <const uint8_t *>PyUnicode_AsUTF8AndSize(item[0], &size)
            except UnicodeEncodeError:
                raise ValueError(f"{self._at()}: header {i}: key {item[0]!r} cannot be written as "
                                 f"UTF-8") from None
            self._headers[i].key.size = size
            self._headers[i].value = self._span_of(item[1], f"header {item[0]!r}")
        record.headers = self._headers
        return 0

    cdef int _reserve(self, size_t size) except -1:
        cdef size_t capacity = PyBytes_GET_SIZE(<object>self._data)
        if size > INT32_MAX:
            raise ValueError(f"{self._at()}: the batch would have {size} bytes, above {INT32_MAX}")
        if size > capacity:
            self._resize(max(size, 2 * capacity))
        return 0

    cdef int _compress(self) except -1:
        """Put the compressed records after the header's place, instead of the plain ones."""
        cdef const uint8_t *records = self._bytes() + KB_BATCH_HEADER_SIZE
        cdef kb_memory packed
        memset(&packed, 0, sizeof(packed))
        try:
            compress_to(self._codec, records, self._size - KB_BATCH_HEADER_SIZE, self._level, &packed)
            self._size = KB_BATCH_HEADER_SIZE + packed.used
            self._own(PyBytes_FromStringAndSize(NULL, self._size))
            memcpy(self._bytes() + KB_BATCH_HEADER_SIZE, packed.data, packed.used)
        finally:
            give_up(&packed)
        return 0


def encode(records, *, compression="none", compression_level=None, base_offset=0, producer_id=-1,
           producer_epoch=-1,
           base_sequence=-1, bint transactional=False):
    """Encode exactly one record batch v2 (magic 2), like a producer.

    Parameters
    ----------
    records : iterable of `Record`, or of tuples (key, value[, headers[, timestamp_ms]])
        key, value: bytes-like or None; headers: sequence of (str, bytes-like or None); timestamp_ms: int,
        milliseconds since the Unix epoch; None, or none at all, is the time of the call. Offsets are
        renumbered.
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
        A field has the wrong type; the message names the index of the record.
    ValueError
        No records, a level out of range, a negative timestamp, a record or batch beyond 2 GiB, a producer id
        without epoch and sequence.
    """
    cdef RecordBatchWriter writer = RecordBatchWriter(
        compression, compression_level, transactional=transactional, base_offset=base_offset
    )
    for item in records:
        writer._append_item(item)
    if writer._open.count == 0:
        raise ValueError("records is empty; a batch needs at least one record")
    writer.seal()
    if transactional or producer_id != -1 or producer_epoch != -1 or base_sequence != -1:
        writer.stamp(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)
    return writer.getvalue()
