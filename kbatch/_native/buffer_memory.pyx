"""BufferMemory: buffer.memory, the budget that everything accepted and not yet answered is charged to.

Theory of operation. What nobody holds is unallocated, or a chunk that is kept for reuse; several chunks and a
charge come and go in one step. Nothing here waits, as BufferPool does: what cannot be had at once is refused.
Who wants to wait does so outside, be it a thread or a coroutine, first come, first served:
`RecordAccumulator.begin_waiting`, ask again when first in line (what became free in between rang for nobody),
sleep until `freed` is called, ask again, `end_waiting`. While anybody waits, nobody but the first in line is
given anything, so that memory gathers until there is enough for him.

What is charged: chunks of open batches and what sealing them may add; sealed bytes; the state of records and
batches. Of records with a callback the state stays charged until the callback ran (`callback_bytes`). A send
from within a callback is let in without standing in line, and may pass the budget by so much: otherwise it
could wait for memory that only its own return would free.
"""

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kbatch._native.lock cimport (
    kb_lock_acquire,
    kb_lock_destroy,
    kb_lock_init,
    kb_lock_release,
)

from kbatch.errors import ForkedProducerError, IllegalStateError


cdef inline kb_chunk *_linked(kb_chunk *chunk, int64_t size, kb_chunk *behind) noexcept nogil:
    chunk.size = size
    chunk.next = behind
    return chunk


cdef void _free_all(kb_chunk *chunks) noexcept nogil:
    cdef kb_chunk *chunk
    while chunks != NULL:
        chunk = chunks
        chunks = chunk.next
        free(chunk)


@cython.final
cdef class BufferMemory:
    """`total_bytes` of memory; `freed` is called, under no lock, when some came back while somebody waits.

    `poison` overwrites what comes back, so that a use after release shows. `loop_thread_ident` is
    `threading.get_ident()` of the thread whose event loop brings the answers, if one does: there nobody may
    wait for them but by `await`. In a process that was forked from the producer's, where `is_forked` is to be
    set, nobody may: nothing brings answers there.
    """

    def __cinit__(self):
        kb_lock_init(&self._lock)

    def __init__(self, int64_t total_bytes, *, bint poison=False, freed=None):
        if total_bytes <= 0:
            raise ValueError(f"buffer.memory must be a positive number of bytes; it is {total_bytes}")
        self.total_bytes = self._unallocated_bytes = total_bytes
        self.poison = poison
        self._freed = freed

    def __dealloc__(self):
        _free_all(self._free)
        kb_lock_destroy(&self._lock)

    def check_may_wait(self):
        """IllegalStateError where nobody may wait for an answer."""
        if self.is_forked:
            raise ForkedProducerError("the answer goes to the parent process, whose producer sent this: ask "
                                      "there")
        if self.loop_thread_ident == PyThread_get_thread_ident():
            raise IllegalStateError("to wait here would stop the event loop that is to bring the answer: "
                                    "await the delivery")

    @property
    def available_bytes(self):
        """Bytes that nothing is charged with; below 0 while callbacks have sent beyond the budget."""
        kb_lock_acquire(&self._lock)
        try:
            return self._available()
        finally:
            kb_lock_release(&self._lock)

    @property
    def callback_bytes(self):
        """State of answered records whose callbacks did not run yet."""
        return self._callback_bytes

    @property
    def waiting_count(self):
        return self._waiting_count

    @property
    def exhausted_count(self):
        """How often something was refused; of a record that asks for less when it is refused, twice."""
        return self._exhausted_count

    # With _lock held.

    cdef int64_t _available(self) noexcept nogil:
        return self._unallocated_bytes + self._free_count * CHUNK_BYTES

    cdef bint _grant(self, int64_t size, Turn turn) noexcept nogil:
        """Whether `size` bytes may be taken."""
        cdef int64_t available = self._available() + (self._callback_bytes if turn == IN_CALLBACK else 0)
        if available < size or (self._waiting_count and turn == IN_TURN):
            self._exhausted_count += 1
            return False
        return True

    cdef void _charge(self, int64_t size) noexcept nogil:
        """Takes `size` bytes, of free chunks where nothing else is left."""
        cdef kb_chunk *chunk
        while self._unallocated_bytes < size and self._free != NULL:
            chunk = self._free
            self._free = chunk.next
            self._free_count -= 1
            self._unallocated_bytes += CHUNK_BYTES
            free(chunk)
        self._unallocated_bytes -= size

    # What follows takes _lock itself.

    cdef kb_chunk *take(self, int64_t room, int64_t chunk_bytes, int64_t charge, Turn turn) noexcept nogil:
        """Linked chunks of `chunk_bytes` each, with `room` bytes or more in all, and `charge` besides; NULL,
        and nothing is taken, where they cannot be had."""
        cdef int64_t chunk_room = chunk_bytes - KB_CHUNK_HEAD_BYTES
        cdef int64_t count = (room + chunk_room - 1) // chunk_room
        cdef kb_chunk *chunks = NULL
        cdef kb_chunk *chunk
        kb_lock_acquire(&self._lock)
        try:
            if not self._grant(count * chunk_bytes + charge, turn):
                return NULL
            while count and chunk_bytes == CHUNK_BYTES and self._free != NULL:
                chunk = self._free
                self._free = chunk.next
                self._free_count -= 1
                chunks = _linked(chunk, chunk_bytes, chunks)
                count -= 1
            self._charge(count * chunk_bytes + charge)
        finally:
            kb_lock_release(&self._lock)
        while count:
            chunk = <kb_chunk *>malloc(chunk_bytes)
            if chunk == NULL:
                self._give_back(chunks, count * chunk_bytes + charge)
                return NULL
            chunks = _linked(chunk, chunk_bytes, chunks)
            count -= 1
        return chunks

    cdef bint charge(self, int64_t size, Turn turn) noexcept nogil:
        """`size` bytes of what is not allocated here."""
        kb_lock_acquire(&self._lock)
        try:
            if not self._grant(size, turn):
                return False
            self._charge(size)
            return True
        finally:
            kb_lock_release(&self._lock)

    cdef void exchange(self, kb_chunk *chunks, int64_t discharged) noexcept:
        """Takes linked chunks back, and lowers the charge besides; a negative `discharged` raises it,
        whatever is left: it is for what replaces the chunks. Under no lock: it may call `freed`."""
        self._give_back(chunks, discharged)
        if self._waiting_count and self._freed is not None:
            self._freed()

    cdef void _give_back(self, kb_chunk *chunks, int64_t discharged) noexcept nogil:
        cdef kb_chunk *chunk = chunks
        cdef kb_chunk *others = NULL
        while self.poison and chunk != NULL:
            memset(chunk + 1, POISON, chunk.size - KB_CHUNK_HEAD_BYTES)
            chunk = chunk.next
        kb_lock_acquire(&self._lock)
        while chunks != NULL:
            chunk = chunks
            chunks = chunk.next
            if chunk.size == CHUNK_BYTES:
                self._free = _linked(chunk, CHUNK_BYTES, self._free)
                self._free_count += 1
            else:
                self._unallocated_bytes += chunk.size
                others = _linked(chunk, chunk.size, others)
        self._charge(-discharged)
        kb_lock_release(&self._lock)
        _free_all(others)

    cdef void await_callbacks(self, int64_t size) noexcept nogil:
        """So much of what is charged is now for callbacks to give back."""
        kb_lock_acquire(&self._lock)
        self._callback_bytes += size
        kb_lock_release(&self._lock)

    cdef void callbacks_ran(self, int64_t size) noexcept:
        kb_lock_acquire(&self._lock)
        self._callback_bytes -= size
        kb_lock_release(&self._lock)
        self.exchange(NULL, size)

    cdef bint is_awaited(self) noexcept nogil:
        return self._waiting_count > 0

    cdef void begin_waiting(self) noexcept:
        kb_lock_acquire(&self._lock)
        self._waiting_count += 1
        kb_lock_release(&self._lock)

    cdef void end_waiting(self) noexcept:
        """Somebody has what he waited for, or gave up: the next in line may look."""
        kb_lock_acquire(&self._lock)
        self._waiting_count -= 1
        kb_lock_release(&self._lock)
        self.exchange(NULL, 0)
