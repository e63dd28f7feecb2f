# The budget of a producer, buffer.memory, and the chunks that come from it.

from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int64_t, uint8_t

from kbatch._native.codec.c cimport kb_open_batch, kb_record
from kbatch._native.lock cimport kb_lock

cdef extern from "chunk_chain.h" nogil:
    enum:
        KB_CHUNK_HEAD_BYTES

    ctypedef struct kb_chunk:
        kb_chunk *next
        int64_t size

    ctypedef struct kb_chain:
        kb_chunk *first
        kb_chunk *current
        int64_t chunk_bytes

    ctypedef enum kb_chain_status:
        KB_CHAIN_DONE
        KB_CHAIN_FULL
        KB_CHAIN_MEMORY

    uint8_t *kb_chunk_data(kb_chunk *chunk) noexcept
    int64_t kb_chunk_used(const kb_chain *chain, kb_chunk *chunk) noexcept
    int64_t kb_chain_room(const kb_chain *chain) noexcept
    void kb_chain_extend(kb_chain *chain, kb_chunk *chunks) noexcept
    kb_chunk *kb_chain_cut(kb_chain *chain) noexcept
    void kb_chain_gather(const kb_chain *chain, uint8_t *target) noexcept
    kb_chain_status kb_chain_append(kb_chain *chain, kb_open_batch *batch, const kb_record *record,
                                    int64_t write_limit, double factor, int64_t *size) noexcept

cdef extern from "record.h" nogil:
    int64_t kb_record_bound(const kb_record *record) noexcept

cdef enum:
    CHUNK_BYTES = 16384          # the largest chunk of many, and a producer's poolable size
    POISON = 0xDD

cdef enum Claim:
    NOT_IN_QUEUE
    FIRST_IN_QUEUE
    IN_CALLBACK                  # those in the queue may be waiting for this one
    FIRST_IN_CALLBACK            # the same one, after it was refused

cdef struct QueueEntry:
    QueueEntry *next
    QueueEntry *previous
    PyThread_type_lock wake_lock      # held while there is no news; NULL: no thread sleeps on it
    bint is_notified
    int64_t wanted               # what was refused last when this was the first entry; 0 is unknown

cdef inline Claim claim_of(bint first_in_queue, bint in_callback) noexcept nogil:
    if in_callback:
        return FIRST_IN_CALLBACK if first_in_queue else IN_CALLBACK
    return FIRST_IN_QUEUE if first_in_queue else NOT_IN_QUEUE


cdef class BufferPool:
    cdef readonly int64_t total_memory
    cdef readonly int64_t poolable_size
    cdef readonly bint poison
    cdef public unsigned long loop_thread_ident
    cdef public bint is_forked
    cdef public object complete_accepted
    cdef public object why_unsent
    cdef int64_t open_limit_bytes
    cdef object _freed
    # under _lock
    cdef kb_lock _lock
    cdef bint _closed
    cdef int64_t _unallocated
    cdef kb_chunk *_free             # each of poolable_size
    cdef int64_t _free_count
    cdef int64_t _exhausted_count
    cdef int64_t _callback_bytes
    cdef int64_t _open_bytes
    cdef QueueEntry *_first
    cdef QueueEntry *_last
    cdef int64_t _queued

    cdef int64_t _available(self) noexcept nogil
    cdef void _charge(self, int64_t size) noexcept nogil
    cdef bint _grant(self, int64_t size, Claim claim) noexcept nogil
    cdef bint _notify_first(self, bint in_any_case) noexcept nogil
    cdef kb_chunk *take(self, int64_t room, int64_t chunk_bytes, int64_t charge, Claim claim) noexcept nogil
    cdef bint charge(self, int64_t size, Claim claim) noexcept nogil
    cdef void exchange(self, kb_chunk *chunks, int64_t discharged) noexcept
    cdef bint _give_back(self, kb_chunk *chunks, int64_t discharged) noexcept nogil
    cdef void await_callbacks(self, int64_t size) noexcept nogil
    cdef void callbacks_ran(self, int64_t size) noexcept
    cdef bint is_awaited(self) noexcept nogil
    cdef MemoryWaiter join(self, bint goes_first)
    cdef object _try_allocate(self, int64_t size, Claim claim)
    cdef void _release(self, uint8_t *memory, int64_t size) noexcept


cdef class MemoryWaiter:
    cdef BufferPool _pool
    cdef QueueEntry _entry
    cdef bint _is_queued

    cdef void _unlink(self) noexcept
    cdef object wait(self, object attempt, object refusal, object timeout)
    cdef int _sleep(self, double seconds) except -1


cdef class Buffer:
    cdef BufferPool _pool
    cdef uint8_t *_memory
    cdef Py_ssize_t _size
    cdef Py_ssize_t _exports

    cdef int _check_not_released(self) except -1
