"""ProduceFrame: the bytes of a Produce request that the engine sends, and of an answer that accepts it.

Theory of operation. The lane sends what is usual; the engine sends what the lane leaves to it, such as
retries, and gets the answers to what was in flight at the end of the loan. `write` makes the bytes,
and `read` recognizes an answer that accepts all batches; kbatch.protocol.codec reads all others. The bytes
are those of that codec, written and read by src_c/produce_wire.h, for engine and lane.

Only the sender's thread uses them.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kbatch._native.codec.c cimport kb_span
from kbatch._native.codec.wire cimport text_of
from kbatch._native.send.in_flight cimport InFlight

from kbatch.errors import ProtocolError, UnsupportedVersionError

cdef extern from "wire.h" nogil:
    void kb_wire_end(uint8_t *frame, int32_t size) noexcept

cdef extern from "produce_wire.h" nogil:
    enum:
        KB_PRODUCE_FIRST_VERSION
        KB_PRODUCE_LAST_VERSION

    ctypedef struct kb_produce_head:
        int version
        int32_t correlation_id
        kb_span client_id
        kb_span transactional_id
        int16_t acks
        int32_t timeout_ms

    ctypedef struct kb_produce_topic:
        kb_span name
        const uint8_t *id
        int32_t batch_count

    ctypedef struct kb_produce_batch:
        int32_t topic
        int32_t partition
        int64_t size

    ctypedef struct kb_produce_accepted:
        int32_t batch
        int64_t base_offset
        int64_t log_append_time_ms

    ctypedef struct kb_produce_request:
        int version
        const kb_produce_topic *topics
        int32_t topic_count
        const kb_produce_batch *batches
        int32_t batch_count
        int32_t *slots

    int64_t kb_produce_room(const kb_produce_head *head, const kb_produce_topic *topics, int32_t topic_count,
                            int32_t batch_count) noexcept
    uint8_t *kb_produce_put_head(uint8_t *to, const kb_produce_head *head, int32_t topic_count) noexcept
    uint8_t *kb_produce_put_topic(uint8_t *to, int version, const kb_produce_topic *topic) noexcept
    uint8_t *kb_produce_put_batch(uint8_t *to, int version, const kb_produce_batch *batch) noexcept
    uint8_t *kb_produce_put_tags(uint8_t *to, int version) noexcept
    int64_t kb_produce_slots(int32_t topic_count, int32_t batch_count) noexcept
    bint kb_produce_read(const kb_produce_request *request, const uint8_t *frame, int64_t size,
                         kb_produce_accepted *accepted, uint8_t *is_answered,
                         int32_t *throttle_time_ms) noexcept

# Copying batches this small is faster than passing them to a socket in pieces.
JOINED_BYTES = 8192
# A test compares them with the tables, which may get a newer one.
VERSIONS = range(KB_PRODUCE_FIRST_VERSION, KB_PRODUCE_LAST_VERSION + 1)


cdef class ProduceFrame:
    """A Produce request to a node.

    Parameters
    ----------
    node_id : int
    sent_ns : int

    Attributes
    ----------
    entries : list of InFlight
        The batches, one a partition; those of a topic together from `group_by_topic` on.
    topic_ids : dict of str to bytes
        The topics in the order of `entries`, with their ids of 16 bytes.
    """

    cdef readonly int32_t node_id
    cdef readonly int64_t sent_ns
    cdef public list entries
    cdef public dict topic_ids
    # set by `write`; all arrays in one piece of memory
    cdef list _named  # what `_topics` refers to
    cdef void *_memory
    cdef kb_produce_request _asked
    cdef kb_produce_topic *_topics
    cdef kb_produce_batch *_batches
    cdef kb_produce_accepted *_accepted
    cdef uint8_t *_is_answered

    def __init__(self, int32_t node_id, int64_t sent_ns):
        self.node_id = node_id
        self.sent_ns = sent_ns
        self.entries = []
        self.topic_ids = {}

    def __dealloc__(self):
        PyMem_Free(self._memory)

    def group_by_topic(self):
        """Bring the batches of each topic together. Return the topics, in order of their first batches."""
        cdef InFlight entry
        cdef dict found = {}
        cdef list entries
        for entry in self.entries:
            entries = <list>found.get(entry.state.topic)
            if entries is None:
                found[entry.state.topic] = entries = []
            entries.append(entry)
        if len(found) > 1:
            self.entries = [entry for entries in found.values() for entry in entries]
        return list(found)

    # To the broker

    def write(self, message not None, int version, int32_t correlation_id, client_id):
        """Return the buffers of the request, size and header first; large batches are views of their memory.

        Parameters
        ----------
        message : ProduceRequest
            The request without its topics.

        Raises
        ------
        ProtocolError
            A string or the frame is too large for the protocol.
        UnsupportedVersionError
        """
        cdef kb_produce_head head
        cdef list batches = []
        cdef Py_ssize_t copied_bytes
        cdef uint8_t *space
        if not KB_PRODUCE_FIRST_VERSION <= version <= KB_PRODUCE_LAST_VERSION:
            raise UnsupportedVersionError(f"ProduceRequest: version must be {KB_PRODUCE_FIRST_VERSION} to "
                                          f"{KB_PRODUCE_LAST_VERSION}, got {version}")
        transactional_id = message.transactional_id
        head.version = version
        head.correlation_id = correlation_id
        head.client_id = text_of(client_id, "ProduceRequest", "client_id")
        head.transactional_id = text_of(transactional_id, "ProduceRequest", "transactional_id")
        head.acks = message.acks
        head.timeout_ms = message.timeout_ms
        self._describe(version)
        copied_bytes = self._take_bytes(batches)
        space = <uint8_t *>PyMem_Malloc(copied_bytes + kb_produce_room(
            &head, self._topics, self._asked.topic_count, self._asked.batch_count))
        if space == NULL:
            raise MemoryError
        try:
            return self._write(&head, batches, space)
        finally:
            PyMem_Free(space)

    def describe(self, int version):
        """Prepare `read` for a request that was not written by `write`."""
        self._describe(version)

    cdef int _describe(self, int version) except -1:
        """Allocate and fill what describes the request."""
        cdef int32_t topic_count = <int32_t>len(self.topic_ids), batch_count = <int32_t>len(self.entries)
        cdef int32_t i = 0, topic = -1
        cdef InFlight entry
        cdef dict ordinals = {}
        self._allocate(topic_count, batch_count)
        self._asked.version = version
        self._named = list(self.topic_ids.items())
        for name, topic_id in self._named:
            if type(topic_id) is not bytes or PyBytes_GET_SIZE(topic_id) != 16:
                raise ProtocolError(f"ProduceRequest: the id of topic {name!r} must have 16 bytes, got "
                                    f"{topic_id!r}")
            topic += 1
            ordinals[name] = topic
            self._topics[topic].name = text_of(name, "ProduceRequest", "a topic's name")
            self._topics[topic].id = <const uint8_t *>PyBytes_AS_STRING(topic_id)
        for entry in self.entries:
            topic = ordinals[entry.state.topic]
            self._topics[topic].batch_count += 1
            self._batches[i].topic = topic
            self._batches[i].partition = entry.state.partition
            i += 1
        return 0

    cdef int _allocate(self, int32_t topic_count, int32_t batch_count) except -1:
        cdef size_t slots = kb_produce_slots(topic_count, batch_count)
        cdef size_t size = (topic_count * sizeof(kb_produce_topic) + slots * sizeof(int32_t)
                            + batch_count * (sizeof(kb_produce_batch) + sizeof(kb_produce_accepted) + 1))
        PyMem_Free(self._memory)
        self._memory = PyMem_Malloc(size)
        if self._memory == NULL:
            self._asked.batch_count = 0
            raise MemoryError
        memset(self._memory, 0, size)
        self._topics = <kb_produce_topic *>self._memory
        self._batches = <kb_produce_batch *>(self._topics + topic_count)
        self._accepted = <kb_produce_accepted *>(self._batches + batch_count)
        self._asked.slots = <int32_t *>(self._accepted + batch_count)
        self._is_answered = <uint8_t *>(self._asked.slots + slots)
        self._asked.topics = self._topics
        self._asked.batches = self._batches
        self._asked.topic_count = topic_count
        self._asked.batch_count = batch_count
        return 0

    cdef Py_ssize_t _take_bytes(self, list batches) except -1:
        """Append the buffers of each batch, and note their sizes. Return how many bytes to copy."""
        cdef Py_ssize_t copied_bytes = 0
        cdef int64_t joined_bytes = JOINED_BYTES
        cdef int32_t i
        cdef InFlight entry
        cdef list buffers
        for i in range(self._asked.batch_count):
            entry = <InFlight>self.entries[i]
            buffers = entry.batch.buffers(joined_bytes)
            for buffer in buffers:
                self._batches[i].size += len(buffer)
                if type(buffer) is bytes:
                    copied_bytes += PyBytes_GET_SIZE(buffer)
            batches.append(buffers)
        return copied_bytes

    cdef list _write(self, const kb_produce_head *head, list batches, uint8_t *space):
        cdef int version = head.version
        cdef list pieces = []
        cdef uint8_t *start = space  # of what no piece has yet
        cdef uint8_t *to = kb_produce_put_head(space, head, self._asked.topic_count)
        cdef int64_t size_bytes = -4  # without the size itself
        cdef int32_t i, topic = -1
        for i in range(self._asked.batch_count):
            if self._batches[i].topic != topic:
                if topic >= 0:
                    to = kb_produce_put_tags(to, version)
                topic = self._batches[i].topic
                to = kb_produce_put_topic(to, version, &self._topics[topic])
            to = kb_produce_put_batch(to, version, &self._batches[i])
            for buffer in <list>batches[i]:
                if type(buffer) is bytes:
                    memcpy(to, PyBytes_AS_STRING(buffer), PyBytes_GET_SIZE(buffer))
                    to += PyBytes_GET_SIZE(buffer)
                else:
                    size_bytes += len(buffer)
                    _end_piece(pieces, start, to)
                    pieces.append(buffer)
                    start = to
            to = kb_produce_put_tags(to, version)
        to = kb_produce_put_tags(kb_produce_put_tags(to, version), version)
        _end_piece(pieces, start, to)
        size_bytes += to - space
        if size_bytes > INT32_MAX:
            raise ProtocolError(f"ProduceRequest v{version}: a frame of {size_bytes} bytes")
        kb_wire_end(<uint8_t *>PyBytes_AS_STRING(pieces[0]), <int32_t>size_bytes)
        return pieces

    # From the broker

    def read(self, frame not None):
        """Read the frame, without its size, of the answer to the request that was written.

        Returns
        -------
        AllAccepted or None
            None for an answer that is unusual or broken: kbatch.protocol.codec.decode_response reads it, or
            says what is wrong.
        """
        cdef Py_buffer buffer
        cdef int32_t throttle_time_ms = 0
        cdef bint is_usual = False
        if self._asked.batch_count == 0:
            return None
        PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE)
        memset(self._is_answered, 0, self._asked.batch_count)
        is_usual = kb_produce_read(&self._asked, <const uint8_t *>buffer.buf, buffer.len, self._accepted,
                                   self._is_answered, &throttle_time_ms)
        PyBuffer_Release(&buffer)
        return _all_accepted(self, throttle_time_ms) if is_usual else None


@cython.final
cdef class AllAccepted:
    """An answer that accepts all batches of a request, and says nothing more.

    Attributes
    ----------
    throttle_time_ms : int
    """

    cdef ProduceFrame _request
    cdef readonly int32_t throttle_time_ms

    def __init__(self):
        raise TypeError("an AllAccepted comes from ProduceFrame.read")

    def batches(self):
        """Return batch, base offset and append time for each, in the order of the answer."""
        cdef list entries = self._entries()
        cdef kb_produce_accepted *accepted = self._request._accepted
        cdef Py_ssize_t i
        return [(entries[accepted[i].batch], accepted[i].base_offset, accepted[i].log_append_time_ms)
                for i in range(PyList_GET_SIZE(entries))]

    cdef list _entries(self):
        """Return the batches of the request, of which none may be gone."""
        cdef list entries = self._request.entries
        if entries is None or PyList_GET_SIZE(entries) != self._request._asked.batch_count:
            raise ValueError("the batches of a request must stay those that were written")
        return entries


cdef AllAccepted _all_accepted(ProduceFrame request, int32_t throttle_time_ms):
    cdef AllAccepted answer = AllAccepted.__new__(AllAccepted)
    answer._request = request
    answer.throttle_time_ms = throttle_time_ms
    return answer


cdef int _end_piece(list pieces, const uint8_t *start, const uint8_t *end) except -1:
    if end > start:
        pieces.append(PyBytes_FromStringAndSize(<const char *>start, end - start))
    return 0
