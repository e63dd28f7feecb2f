from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbatch._native.batch.batch_owner cimport BatchOwner, ListedBatch
from kbatch._native.batch.buffer_pool cimport Turn, kb_chain, kb_chunk
from kbatch._native.codec.c cimport kb_batch_header, kb_open_batch, kb_record
from kbatch._native.codec.estimator cimport TopicRatios
from kbatch._native.codec.lock cimport kb_lock

cdef enum Room:
    HAD_ROOM
    NO_ROOM         # the batch is full for this record
    NO_MEMORY


cdef int64_t sealing_margin(int codec, int64_t chunks_bytes) noexcept nogil


cdef class Partition:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef TopicRatios ratios
    cdef kb_lock lock
    cdef int64_t previous_bytes      # of records in the batch that was closed last; under lock


cdef class BatchBytes(ListedBatch):
    cdef BatchOwner _owner
    cdef Partition _home
    # under the lock of _home
    cdef int32_t _users
    cdef kb_open_batch _open
    cdef kb_chain _chain
    cdef double _factor
    cdef int64_t _charged_bytes      # besides its chunks
    cdef int64_t _largest_record_bytes
    # set when it is sealed
    cdef bytes _packed
    cdef int64_t _body_at            # in `_packed`: behind its header, where it is a whole batch
    cdef uint32_t _body_crc
    cdef int64_t _body_bytes
    cdef kb_batch_header _header
    cdef uint8_t[61] _header_bytes

    cdef void prepare(self, BatchOwner owner, Partition home) noexcept
    cdef bint take_first_chunk(self, int64_t record_bytes, int64_t besides_bytes, Turn turn) noexcept
    cdef Room write(self, const kb_record *record, Turn turn) noexcept
    cdef bint grow(self, int64_t missing_bytes, Turn turn) noexcept nogil
    cdef int64_t _likely_bytes(self) noexcept nogil
    cdef bint _take_likely(self, int64_t room_bytes, int64_t wanted_bytes, int64_t besides_bytes,
                           Turn turn) noexcept nogil
    cdef bint _take(self, int64_t room_bytes, int64_t chunk_bytes, int64_t besides_bytes,
                    Turn turn) noexcept nogil
    cdef bint is_full(self) noexcept
    cdef bytes compressed(self)
    cdef void adopt(self, bytes batch, const kb_batch_header *header, uint32_t body_crc) noexcept
    cdef void set_body(self, bytes packed, int codec) noexcept
    cdef uint32_t _crc_of_body(self, const uint8_t *packed) noexcept nogil
    cdef kb_chunk *replaced(self, int64_t *discharged) noexcept
    cdef void write_header(self) noexcept
    cdef list pieces(self, bint header_copied)
    cdef bytes joined(self)
    cdef bint hold(self) noexcept
    cdef void release(self) noexcept
    cdef kb_chunk *dismissed(self, int64_t *discharged) noexcept


cdef class BatchPiece:
    cdef BatchBytes _batch
    cdef uint8_t *_data
    cdef Py_ssize_t _size
