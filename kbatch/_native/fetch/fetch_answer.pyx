"""read_fetch_answer: an answer to a Fetch, read in one step.

The reader of kbatch.protocol makes an object of each struct and explains every fault. This one reads what
usual answers have, in C (src_c/fetch_wire.h), and makes a row of each partition. It returns None for all
else, having changed nothing; the other then reads the frame again.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t

from kbatch._native.codec.c cimport kb_span
from kbatch._native.codec.record_batch cimport Source
from kbatch._native.fetch.fetch_wire cimport (
    KB_FETCH_FIRST_VERSION,
    KB_FETCH_LAST_VERSION,
    KB_FETCH_TOPIC_ID,
    kb_fetch_answer,
    kb_fetch_answer_free,
    kb_fetch_endpoint,
    kb_fetch_get_aborted,
    kb_fetch_get_endpoint,
    kb_fetch_part,
    kb_fetch_read,
    kb_wire_source,
)

# A test compares them with the tables, which may get a newer one.
VERSIONS = range(KB_FETCH_FIRST_VERSION, KB_FETCH_LAST_VERSION + 1)


@cython.final
cdef class FetchAnswer:
    """An answer to a Fetch (FetchResponse). It keeps its frame.

    Attributes
    ----------
    correlation_id, throttle_time_ms, error_code, session_id : int
        0 in versions without the field.
    frame_bytes : int
    has_records : bool
        True if any partition has bytes of records.
    partitions : list of PartitionAnswer
    node_endpoints : list of (node id, host, port, rack or None)
        The addresses of new leaders (KIP-951).
    """

    def __dealloc__(self):
        kb_fetch_answer_free(&self.raw)

    @property
    def correlation_id(self):
        return self.raw.correlation_id

    @property
    def throttle_time_ms(self):
        return self.raw.throttle_time_ms

    @property
    def error_code(self):
        return self.raw.error_code

    @property
    def session_id(self):
        return self.raw.session_id

    @property
    def frame_bytes(self):
        return self.source.view.len

    @property
    def has_records(self):
        cdef int i
        for i in range(self.raw.part_count):
            if self.raw.parts[i].records.size > 0:
                return True
        return False

    @property
    def partitions(self):
        return [self.part(i) for i in range(self.raw.part_count)]

    @property
    def node_endpoints(self):
        cdef kb_wire_source source = self.raw.endpoints
        return [_endpoint_of(kb_fetch_get_endpoint(&source)) for _ in range(self.raw.endpoint_count)]

    cdef PartitionAnswer part(self, int index):
        """Return the part of a partition as an object."""
        cdef const kb_fetch_part *part = &self.raw.parts[index]
        cdef PartitionAnswer answer = PartitionAnswer.__new__(PartitionAnswer)
        answer.index = index
        if self.version >= KB_FETCH_TOPIC_ID:
            answer.topic_id = PyBytes_FromStringAndSize(<const char *>part.topic.data, part.topic.size)
        else:
            answer.topic = _text(&part.topic)
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
        answer.aborted = aborted_of(part)
        if part.records.size >= 0:
            answer.records = self.records_of(part)
        return answer

    cdef object records_of(self, const kb_fetch_part *part):
        """Return a view of the records of a part, which are not null."""
        cdef Py_ssize_t start = part.records.data - <const uint8_t *>self.source.view.buf
        return self.frame[start:start + part.records.size]

    def __repr__(self):
        return (f"<FetchAnswer error_code={self.error_code} session_id={self.session_id} "
                f"partitions={self.partitions}>")


@cython.final
@cython.freelist(64)
cdef class PartitionAnswer:
    """A partition in an answer to a Fetch.

    Attributes
    ----------
    index : int
        Its place in the answer.
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
    cdef FetchAnswer answer = FetchAnswer.__new__(FetchAnswer)
    answer.frame = memoryview(frame).cast("B")
    answer.source = Source(answer.frame)
    answer.version = version
    if kb_fetch_read(&answer.raw, version, <const uint8_t *>answer.source.view.buf, answer.source.view.len):
        return answer
    return None


cdef tuple aborted_of(const kb_fetch_part *part):
    """Return the aborted transactions of a part."""
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
