"""read_fetch_answer: an answer to a Fetch, read in one step.

The reader of kbatch.protocol makes an object of each struct and explains every fault. This one reads what
usual answers have into a row for each partition. It returns None for all else, having changed nothing; the
other then reads the frame again.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "bytes.h" nogil:
    uint16_t kb_load_be16(const uint8_t *source) noexcept
    uint32_t kb_load_be32(const uint8_t *source) noexcept
    uint64_t kb_load_be64(const uint8_t *source) noexcept

# As in kbatch.protocol.wire.
cdef Py_ssize_t MAX_STRING_BYTES = 32767

# The versions that are read, and those from which on fields are there (kbatch.protocol.tables).
cdef enum:
    FIRST_VERSION = 4
    WITH_START_OFFSET = 5
    WITH_SESSION = 7
    WITH_REPLICA = 11
    FLEXIBLE = 12
    WITH_TOPIC_ID = 13
    WITH_ENDPOINTS = 16
    LAST_VERSION = 18

# A test compares them with the tables, which may get a newer one.
VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)

# Tagged fields.
cdef enum:
    DIVERGING_EPOCH = 0
    CURRENT_LEADER = 1
    SNAPSHOT_ID = 2
    NODE_ENDPOINTS = 0

# What is read; after the first failure nothing is.
cdef struct Source:
    const uint8_t *data
    Py_ssize_t pos
    Py_ssize_t end
    int version
    bint failed


@cython.final
cdef class FetchAnswer:
    """An answer to a Fetch (FetchResponse).

    Attributes
    ----------
    correlation_id, throttle_time_ms, error_code, session_id : int
        0 in versions without the field.
    partitions : list of PartitionAnswer
    node_endpoints : list of (node id, host, port, rack or None)
        The addresses of new leaders (KIP-951).
    """

    cdef readonly int32_t correlation_id
    cdef readonly int32_t throttle_time_ms
    cdef readonly int16_t error_code
    cdef readonly int32_t session_id
    cdef readonly list partitions
    cdef readonly list node_endpoints

    def __repr__(self):
        return (f"<FetchAnswer error_code={self.error_code} session_id={self.session_id} "
                f"partitions={self.partitions}>")


@cython.final
@cython.freelist(64)
cdef class PartitionAnswer:
    """A partition in an answer to a Fetch.

    Attributes
    ----------
    topic : str or None
        Up to version 12.
    topic_id : bytes or None
        16 bytes, from version 13 on.
    partition, error_code : int
    high_watermark, last_stable_offset, log_start_offset : int
        -1 if unknown.
    diverging_epoch, diverging_end_offset : int
        Where the reader's log and the leader's part (KIP-595); -1 if they do not.
    leader_id, leader_epoch : int
        The current leader (KIP-951); -1 if the broker does not say.
    preferred_read_replica : int
        The replica to fetch from (KIP-392); -1 for none.
    aborted : tuple of (producer_id, first_offset), or None
        None for read_uncommitted.
    records : memoryview or None
        Of the frame.
    """

    cdef readonly str topic
    cdef readonly bytes topic_id
    cdef readonly int32_t partition
    cdef readonly int16_t error_code
    cdef readonly int64_t high_watermark
    cdef readonly int64_t last_stable_offset
    cdef readonly int64_t log_start_offset
    cdef readonly int32_t diverging_epoch
    cdef readonly int64_t diverging_end_offset
    cdef readonly int32_t leader_id
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t preferred_read_replica
    cdef readonly tuple aborted
    cdef readonly object records

    def __repr__(self):
        size = None if self.records is None else len(self.records)
        return (f"<PartitionAnswer {self.topic or self.topic_id}-{self.partition} "
                f"error_code={self.error_code} high_watermark={self.high_watermark} records={size} bytes>")


def read_fetch_answer(frame, int version):
    """Read the frame, without its size, of an answer to a Fetch of this version.

    Returns
    -------
    FetchAnswer or None
        None for an answer that is unusual or broken: kbatch.protocol.codec.decode_response reads it, or says
        what is wrong.
    """
    cdef Py_buffer buffer
    cdef Source source
    cdef FetchAnswer answer = None
    if not FIRST_VERSION <= version <= LAST_VERSION:
        return None
    view = memoryview(frame).cast("B")
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        source.data, source.pos, source.end = <const uint8_t *>buffer.buf, 0, buffer.len
        source.version = version
        source.failed = False
        answer = _read_answer(&source, view)
    finally:
        PyBuffer_Release(&buffer)
    return None if source.failed or source.pos != source.end else answer


cdef FetchAnswer _read_answer(Source *source, object view):
    cdef FetchAnswer answer = FetchAnswer.__new__(FetchAnswer)
    cdef int64_t topics
    answer.correlation_id = _int32(source)
    if source.version >= FLEXIBLE and _uvarint(source) != 0:  # the header's tagged fields
        source.failed = True
    answer.throttle_time_ms = _int32(source)
    if source.version >= WITH_SESSION:
        answer.error_code = _int16(source)
        answer.session_id = _int32(source)
    answer.partitions = []
    answer.node_endpoints = []
    topics = _count(source)
    while topics > 0 and not source.failed:
        _read_topic(source, view, answer.partitions)
        topics -= 1
    if source.version >= FLEXIBLE:
        _read_answer_tags(source, answer)
    return answer


cdef int _read_topic(Source *source, object view, list partitions) except -1:
    cdef str topic = None
    cdef bytes topic_id = None
    cdef int64_t count
    if source.version >= WITH_TOPIC_ID:
        topic_id = _uuid(source)
    else:
        topic = _text(source, _string_size(source))
    count = _count(source)
    while count > 0 and not source.failed:
        partition = _read_partition(source, view)
        partition.topic = topic
        partition.topic_id = topic_id
        partitions.append(partition)
        count -= 1
    return _skip_tags(source)


cdef PartitionAnswer _read_partition(Source *source, object view):
    cdef PartitionAnswer answer = PartitionAnswer.__new__(PartitionAnswer)
    cdef int64_t size
    answer.diverging_epoch = answer.leader_id = answer.leader_epoch = answer.preferred_read_replica = -1
    answer.diverging_end_offset = answer.log_start_offset = -1
    answer.partition = _int32(source)
    answer.error_code = _int16(source)
    answer.high_watermark = _int64(source)
    answer.last_stable_offset = _int64(source)
    if source.version >= WITH_START_OFFSET:
        answer.log_start_offset = _int64(source)
    answer.aborted = _read_aborted(source)
    if source.version >= WITH_REPLICA:
        answer.preferred_read_replica = _int32(source)
    size = _size(source)
    if size >= 0 and _take(source, size):
        answer.records = view[source.pos - size:source.pos]
    if source.version >= FLEXIBLE:
        _read_partition_tags(source, answer)
    return answer


cdef tuple _read_aborted(Source *source):
    cdef int64_t count = _size(source)
    cdef list aborted
    if count < 0:
        return None
    if count > (source.end - source.pos) // 16:
        source.failed = True
    if count == 0 or source.failed:
        return ()
    aborted = []
    while count > 0 and not source.failed:
        producer_id = _int64(source)
        aborted.append((producer_id, _int64(source)))
        _skip_tags(source)
        count -= 1
    return tuple(aborted)


cdef int _read_partition_tags(Source *source, PartitionAnswer answer) except -1:
    cdef int64_t left = _uvarint(source), tag = -1
    cdef Py_ssize_t end
    while left > 0 and not source.failed:
        end = _next_tag(source, &tag)
        if tag == DIVERGING_EPOCH:
            answer.diverging_epoch = _int32(source)
            answer.diverging_end_offset = _int64(source)
            _skip_tags(source)
        elif tag == CURRENT_LEADER:
            answer.leader_id = _int32(source)
            answer.leader_epoch = _int32(source)
            _skip_tags(source)
        elif tag == SNAPSHOT_ID:  # for replicas of a KRaft quorum
            _int64(source)
            _int32(source)
            _skip_tags(source)
        else:
            _take(source, end - source.pos)
        source.failed |= source.pos != end
        left -= 1
    return 0


cdef int _read_answer_tags(Source *source, FetchAnswer answer) except -1:
    cdef int64_t left = _uvarint(source), tag = -1
    cdef Py_ssize_t end
    while left > 0 and not source.failed:
        end = _next_tag(source, &tag)
        if tag == NODE_ENDPOINTS and source.version >= WITH_ENDPOINTS:
            answer.node_endpoints = _read_endpoints(source)
        else:
            _take(source, end - source.pos)
        source.failed |= source.pos != end
        left -= 1
    return 0


cdef list _read_endpoints(Source *source):
    cdef list endpoints = []
    cdef int64_t count = _count(source)
    while count > 0 and not source.failed:
        node_id = _int32(source)
        host = _text(source, _string_size(source))
        port = _int32(source)
        size = _size(source)
        endpoints.append((node_id, host, port, None if size < 0 else _text(source, size)))
        _skip_tags(source)
        count -= 1
    return endpoints


# Values


cdef bint _take(Source *source, int64_t count) noexcept:
    """True if there are this many more bytes, which are before `pos` then."""
    if source.failed or count > source.end - source.pos:
        source.failed = True
        return False
    source.pos += count
    return True


cdef int16_t _int16(Source *source) noexcept:
    return <int16_t>kb_load_be16(source.data + source.pos - 2) if _take(source, 2) else 0


cdef int32_t _int32(Source *source) noexcept:
    return <int32_t>kb_load_be32(source.data + source.pos - 4) if _take(source, 4) else 0


cdef int64_t _int64(Source *source) noexcept:
    return <int64_t>kb_load_be64(source.data + source.pos - 8) if _take(source, 8) else 0


cdef int64_t _uvarint(Source *source) noexcept:
    """Read a varint of at most four bytes, the usual ones."""
    cdef int64_t value = 0
    cdef int shift = 0
    while shift < 28 and _take(source, 1):
        value |= <int64_t>(source.data[source.pos - 1] & 0x7F) << shift
        if source.data[source.pos - 1] < 0x80:
            return value
        shift += 7
    source.failed = True
    return 0


cdef int64_t _size(Source *source) noexcept:
    """Read the length of an array, or of bytes; -1 for null."""
    cdef int64_t size = _uvarint(source) - 1 if source.version >= FLEXIBLE else _int32(source)
    if size < -1:
        source.failed = True
    return size


cdef int64_t _count(Source *source) noexcept:
    """Read the length of an array that cannot be null, whose elements have a byte at least."""
    cdef int64_t count = _size(source)
    if count < 0 or count > source.end - source.pos:
        source.failed = True
    return count


cdef int64_t _string_size(Source *source) noexcept:
    cdef int64_t size = _uvarint(source) - 1 if source.version >= FLEXIBLE else _int16(source)
    if size < 0:
        source.failed = True
    return size


cdef str _text(Source *source, int64_t size):
    if size > MAX_STRING_BYTES or not _take(source, size):
        source.failed = True
        return ""
    try:
        return PyUnicode_DecodeUTF8(<const char *>source.data + source.pos - size, size, NULL)
    except UnicodeDecodeError:
        source.failed = True
        return ""


cdef bytes _uuid(Source *source):
    if not _take(source, 16):
        return b""
    return PyBytes_FromStringAndSize(<const char *>source.data + source.pos - 16, 16)


cdef Py_ssize_t _next_tag(Source *source, int64_t *tag) noexcept:
    """Read the next tag, which must be larger than the one before. Return the end of its value."""
    cdef int64_t last = tag[0]
    cdef int64_t size
    tag[0] = _uvarint(source)
    size = _uvarint(source)
    if tag[0] <= last or size > source.end - source.pos:
        source.failed = True
        return source.pos
    return source.pos + size


cdef int _skip_tags(Source *source) except -1:
    """Skip tagged fields, if the version has them: none is known."""
    cdef int64_t left, tag = -1
    if source.version < FLEXIBLE:
        return 0
    left = _uvarint(source)
    while left > 0 and not source.failed:
        _take(source, _next_tag(source, &tag) - source.pos)
        left -= 1
    return 0
