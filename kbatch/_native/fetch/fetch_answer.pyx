"""read_fetch_answer: an answer to a Fetch, read in one step.

The reader of kbatch.protocol makes an object of each struct and explains every fault. This one reads what
usual answers have, in C (src_c/fetch_wire.h), and makes a row of each partition. It returns None for all
else, having changed nothing; the other then reads the frame again.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset

from kbatch._native.codec.c cimport kb_span

cdef extern from "fetch_wire.h" nogil:
    enum:
        KB_FETCH_FIRST_VERSION
        KB_FETCH_LAST_VERSION
        KB_FETCH_TOPIC_ID

    ctypedef struct kb_wire_source:
        pass

    ctypedef struct kb_fetch_part:
        kb_span topic
        int32_t partition
        int16_t error_code
        int64_t high_watermark
        int64_t last_stable_offset
        int64_t log_start_offset
        int64_t diverging_end_offset
        int32_t diverging_epoch
        int32_t leader_id
        int32_t leader_epoch
        int32_t preferred_read_replica
        int64_t aborted_count
        kb_wire_source aborted
        kb_span records

    ctypedef struct kb_fetch_answer:
        int32_t correlation_id
        int32_t throttle_time_ms
        int32_t session_id
        int16_t error_code
        kb_fetch_part *parts
        int32_t part_count
        kb_wire_source endpoints
        int64_t endpoint_count

    ctypedef struct kb_fetch_endpoint:
        int32_t node_id
        int32_t port
        kb_span host
        kb_span rack

    bint kb_fetch_read(kb_fetch_answer *answer, int version, const uint8_t *frame, int64_t size) noexcept
    void kb_fetch_get_aborted(kb_wire_source *source, int64_t *producer_id, int64_t *first_offset) noexcept
    kb_fetch_endpoint kb_fetch_get_endpoint(kb_wire_source *source) noexcept
    void kb_fetch_answer_free(kb_fetch_answer *answer) noexcept

# A test compares them with the tables, which may get a newer one.
VERSIONS = range(KB_FETCH_FIRST_VERSION, KB_FETCH_LAST_VERSION + 1)


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
    cdef kb_fetch_answer raw
    memset(&raw, 0, sizeof(raw))
    view = memoryview(frame).cast("B")
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if not kb_fetch_read(&raw, version, <const uint8_t *>buffer.buf, buffer.len):
            return None
        return _answer_of(&raw, version, view, <const uint8_t *>buffer.buf)
    finally:
        kb_fetch_answer_free(&raw)
        PyBuffer_Release(&buffer)


cdef FetchAnswer _answer_of(kb_fetch_answer *raw, int version, object view, const uint8_t *frame):
    cdef FetchAnswer answer = FetchAnswer.__new__(FetchAnswer)
    cdef const uint8_t *last = NULL
    cdef object topic = None
    cdef int32_t i
    answer.correlation_id = raw.correlation_id
    answer.throttle_time_ms = raw.throttle_time_ms
    answer.error_code = raw.error_code
    answer.session_id = raw.session_id
    answer.partitions = []
    for i in range(raw.part_count):
        if raw.parts[i].topic.data != last:
            last = raw.parts[i].topic.data
            topic = _topic_of(&raw.parts[i].topic, version)
        answer.partitions.append(_partition_of(&raw.parts[i], version, topic, view, frame))
    answer.node_endpoints = [_endpoint_of(kb_fetch_get_endpoint(&raw.endpoints))
                             for _ in range(raw.endpoint_count)]
    return answer


cdef PartitionAnswer _partition_of(const kb_fetch_part *part, int version, object topic, object view,
                                   const uint8_t *frame):
    cdef PartitionAnswer answer = PartitionAnswer.__new__(PartitionAnswer)
    cdef Py_ssize_t start
    if version >= KB_FETCH_TOPIC_ID:
        answer.topic_id = topic
    else:
        answer.topic = topic
    answer.partition = part.partition
    answer.error_code = part.error_code
    answer.high_watermark = part.high_watermark
    answer.last_stable_offset = part.last_stable_offset
    answer.log_start_offset = part.log_start_offset
    answer.diverging_epoch = part.diverging_epoch
    answer.diverging_end_offset = part.diverging_end_offset
    answer.leader_id = part.leader_id
    answer.leader_epoch = part.leader_epoch
    answer.preferred_read_replica = part.preferred_read_replica
    answer.aborted = _aborted_of(part)
    if part.records.size >= 0:
        start = part.records.data - frame
        answer.records = view[start:start + part.records.size]
    return answer


cdef tuple _aborted_of(const kb_fetch_part *part):
    cdef kb_wire_source source = part.aborted
    cdef int64_t producer_id, first_offset
    cdef list aborted
    if part.aborted_count <= 0:
        return None if part.aborted_count < 0 else ()
    aborted = []
    for _ in range(part.aborted_count):
        kb_fetch_get_aborted(&source, &producer_id, &first_offset)
        aborted.append((producer_id, first_offset))
    return tuple(aborted)


cdef tuple _endpoint_of(kb_fetch_endpoint endpoint):
    rack = None if endpoint.rack.size < 0 else _text(&endpoint.rack)
    return endpoint.node_id, _text(&endpoint.host), endpoint.port, rack


cdef str _text(const kb_span *text):
    return PyUnicode_DecodeUTF8(<const char *>text.data, text.size, NULL)


cdef object _topic_of(const kb_span *topic, int version):
    """Return the name of a topic, from version 13 on its id."""
    if version < KB_FETCH_TOPIC_ID:
        return _text(topic)
    return PyBytes_FromStringAndSize(<const char *>topic.data, topic.size)
