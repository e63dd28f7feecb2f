"""BufferPool: a bounded amount of memory that is kept for reuse; a producer's is its buffer.memory.

Theory of operation. The budget is unallocated bytes, plus a free list of blocks of `poolable_size` bytes. A
producer takes linked chunks from it and charges its other allocations; users allocate Buffers. A producer
charges chunks of open batches and what sealing them may add; sealed bytes; the state of records and batches.
The state of records with a callback stays charged until the callback ran (`callback_bytes`). A send from
within a callback skips the queue, and may overdraw the budget by that amount: otherwise it could wait for
memory that only its own return would free.

Callers that find too little queue up, first come, first served, each with a MemoryWaiter. A thread sleeps in
`MemoryWaiter.wait`. A task, or another caller that must not sleep, is called by `freed`, and checks
`may_try`. Returned memory wakes the first waiter only, and only if there is as much as it was last refused; a
waiter that leaves wakes the next. Memory accumulates for the first waiter, so a large request is not starved.

Waiting costs far more than appending a record. So the first waiter's memory opens the pool to all, for
`open_limit_bytes` more, a batch's worth: any caller may take free memory, and the queue advances once a
batch. At 0, the default for users, no caller passes the queue.

After org.apache.kafka.clients.producer.internals.BufferPool.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    PY_LOCK_ACQUIRED,
    WAIT_LOCK,
    PyLockStatus,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
)
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kbatch._native.codec.views cimport fill_view
from kbatch._native.flags cimport kb_count_peek, kb_count_store
from kbatch._native.io.interrupts cimport PyThread_acquire_lock_timed, nap_of_greenlets
from kbatch._native.lock cimport kb_lock_acquire, kb_lock_destroy, kb_lock_init, kb_lock_release

import time
from functools import partial

from kbatch.errors import BufferExhaustedError, ForkedProducerError, IllegalStateError, KafkaError

# The first waiter checks this often, woken or not: an attempt may fail for other reasons than memory.
cdef double LOOK_S = 0.1
# The longest single sleep of the others: a signal that comes while the GIL changes hands does not end one.
cdef double LONGEST_SLEEP_S = 1.0
# A greenlet, which must not block its thread, looks this often.
cdef double NAP_S = 0.01


cdef inline kb_chunk *_linked(kb_chunk *chunk, int64_t size, kb_chunk *next) noexcept nogil:
    chunk.size = size
    chunk.next = next
    return chunk


cdef void _free_all(kb_chunk *chunks) noexcept nogil:
    cdef kb_chunk *chunk
    while chunks != NULL:
        chunk = chunks
        chunks = chunk.next
        free(chunk)


@cython.final
cdef class BufferPool:
    """A pool of at most `total_memory` bytes, which keeps blocks of `poolable_size` bytes for reuse.

    Any thread may use it. `poison=True` overwrites returned memory, so that a use after release shows; tests
    run so. `freed` is called, under no lock, when the first waiter should check again and no thread sleeps
    there.

    For a producer's pool, `loop_thread_ident` is the `thread_ident()` of the thread whose event loop
    brings the answers, if one does: there callers may only `await` them. In a process forked from the
    producer's, where `is_forked` is set, no caller may wait: nothing brings answers there.
    `complete_accepted()`, if there is one, completes the batches that were accepted without the GIL: a thread
    that waits for one of them calls it. `why_unsent(completion)`, if there is one, returns what keeps a batch
    from being sent, after a semicolon if that is known; None if the batch was sent.

    Raises
    ------
    ValueError
        `total_memory` or `poolable_size` is not positive.
    """

    def __cinit__(self, int64_t total_memory, int64_t poolable_size, *, bint poison=False, freed=None):
        kb_lock_init(&self._lock)
        if total_memory <= 0:
            raise ValueError(f"total_memory must be a positive number of bytes, got {total_memory}")
        if poolable_size <= 0:
            raise ValueError(f"poolable_size must be a positive number of bytes, got {poolable_size}")
        self.total_memory = self._unallocated = total_memory
        self.poolable_size = poolable_size
        self.poison = poison
        self._freed = freed

    def __dealloc__(self):
        _free_all(self._free)
        kb_lock_destroy(&self._lock)

    @property
    def available(self):
        """Uncharged bytes; below 0 while callbacks have overdrawn the budget."""
        kb_lock_acquire(&self._lock)
        try:
            return self._available()
        finally:
            kb_lock_release(&self._lock)

    @property
    def unallocated(self):
        """Available bytes that are not in the free list."""
        kb_lock_acquire(&self._lock)
        try:
            return self._unallocated
        finally:
            kb_lock_release(&self._lock)

    @property
    def queued(self):
        """The number of waiters for memory."""
        return kb_count_peek(&self._queued)

    @property
    def callback_bytes(self):
        """The state of answered records whose callbacks have not run yet."""
        return kb_count_peek(&self._callback_bytes)

    @property
    def exhausted_count(self):
        """The number of refusals; a record that lowers its request after one may count twice."""
        return self._exhausted_count

    def allocate(self, int64_t size, timeout=None):
        """Allocate a zeroed `Buffer` of `size` bytes; wait for it up to `timeout` seconds (None: no limit).

        Raises
        ------
        ValueError
            `size` is negative or above the pool's total.
        BufferExhaustedError
            The memory did not become free in time.
        KafkaError
            The pool was closed before or while waiting.
        MemoryError
            The system has no memory; the budget is unchanged.
        """
        cdef MemoryWaiter waiter
        if size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        if size > self.total_memory:
            raise ValueError(f"size must be at most {self.total_memory} bytes, those of the whole pool "
                             f"(total_memory), got {size}")
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout must be 0 or more seconds, or None, got {timeout}")
        buffer = self._try_allocate(size, NOT_IN_QUEUE)
        if buffer is not None:
            return buffer
        waiter = self.join(False)
        try:
            buffer = waiter.wait(partial(self._allocate_first, size), None, timeout)
            if buffer is None:
                raise BufferExhaustedError(f"no {size} bytes became free within {timeout} s, of "
                                           f"{self.total_memory} in all (buffer.memory); {self.queued - 1} "
                                           f"others wait")
            return buffer
        finally:
            waiter.withdraw()

    def release(self, Buffer buffer not None):
        """Return `buffer` to the pool; a second call does nothing.

        Raises
        ------
        ValueError
            The buffer belongs to another pool.
        BufferError
            A memoryview of it still exists, which may write to the memory.
        """
        cdef uint8_t *memory
        if buffer._pool is not self:
            raise ValueError("buffer belongs to another pool; release it there")
        with cython.critical_section(buffer):
            if buffer._exports:
                raise BufferError(f"buffer has {buffer._exports} views; release them first")
            memory, buffer._memory = buffer._memory, NULL
        if memory != NULL:
            self._release(memory, buffer._size)

    def close(self):
        """Fail all current and later waiters with KafkaError; memory can still be returned."""
        kb_lock_acquire(&self._lock)
        self._closed = True
        kb_lock_release(&self._lock)
        self.wake_first()

    def wake_first(self):
        """Let the first waiter check again, with or without memory; the next follows when it leaves."""
        cdef bint is_notified
        kb_lock_acquire(&self._lock)
        is_notified = self._notify_first(True)
        kb_lock_release(&self._lock)
        if is_notified and self._freed is not None:
            self._freed()

    def check_may_wait(self):
        """Raise IllegalStateError where callers must not wait for an answer."""
        if self.is_forked:
            raise ForkedProducerError("the parent process sent this and gets its answer; wait for it there")
        if self.loop_thread_ident == PyThread_get_thread_ident():
            raise IllegalStateError("cannot block the event loop that completes this delivery; await it")

    # With _lock held

    cdef int64_t _available(self) noexcept nogil:
        return self._unallocated + self._free_count * self.poolable_size

    cdef bint _grant(self, int64_t size, Claim claim) noexcept nogil:
        """True if `size` bytes may be taken."""
        cdef int64_t available = self._available()
        cdef int64_t overdraft = 0
        cdef bint granted
        if claim == IN_CALLBACK or claim == FIRST_IN_CALLBACK:
            overdraft = self._callback_bytes
        elif claim == NOT_IN_QUEUE and self._first != NULL:
            available = min(available, self._open_bytes)
            self._open_bytes -= size
        granted = available + overdraft >= size
        if (claim == FIRST_IN_QUEUE or claim == FIRST_IN_CALLBACK) and self._first != NULL:
            self._first.wanted = 0 if granted else size - overdraft
            if claim == FIRST_IN_QUEUE:
                self._open_bytes = self.open_limit_bytes
        if not granted:
            self._exhausted_count += 1
            self._open_bytes = 0
        return granted

    cdef void _charge(self, int64_t size) noexcept nogil:
        """Take `size` bytes, from free blocks if nothing else is left."""
        cdef kb_chunk *chunk
        while self._unallocated < size and self._free != NULL:
            chunk = self._free
            self._free = chunk.next
            self._free_count -= 1
            self._unallocated += self.poolable_size
            free(chunk)
        self._unallocated -= size

    cdef bint _notify_first(self, bint in_any_case) noexcept nogil:
        """Wake the first waiter, if there is memory for it. True if `freed` must be called for that.
        """
        cdef QueueEntry *first = self._first
        if first == NULL or first.is_notified:
            return False
        if not in_any_case and first.wanted and self._available() < first.wanted:
            return False
        first.is_notified = True
        if first.wake_lock == NULL:
            return True
        PyThread_release_lock(first.wake_lock)
        return False

    # The following take _lock themselves

    cdef kb_chunk *take(self, int64_t room, int64_t chunk_bytes, int64_t charge, Claim claim) noexcept nogil:
        """Return linked chunks of `chunk_bytes` each, with at least `room` bytes in total, and charge
        `charge` with them. Return NULL, taking nothing, if that is impossible.
        """
        cdef int64_t chunk_room = chunk_bytes - KB_CHUNK_HEAD_BYTES
        cdef int64_t count = (room + chunk_room - 1) // chunk_room
        cdef kb_chunk *chunks = NULL
        cdef kb_chunk *chunk
        kb_lock_acquire(&self._lock)
        try:
            if not self._grant(count * chunk_bytes + charge, claim):
                return NULL
            while count and chunk_bytes == self.poolable_size and self._free != NULL:
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

    cdef bint charge(self, int64_t size, Claim claim) noexcept nogil:
        """Charge `size` bytes that were allocated elsewhere."""
        kb_lock_acquire(&self._lock)
        try:
            if not self._grant(size, claim):
                return False
            self._charge(size)
            return True
        finally:
            kb_lock_release(&self._lock)

    cdef void exchange(self, kb_chunk *chunks, int64_t discharged) noexcept:
        """Take linked chunks back, and lower the other charge; a negative `discharged` raises it without a
        limit, for what replaces the chunks. Call it under no lock: it may call `freed`.
        """
        if self._give_back(chunks, discharged) and self._freed is not None:
            self._freed()

    cdef bint _give_back(self, kb_chunk *chunks, int64_t discharged) noexcept nogil:
        """Do `exchange` without calling `freed`. True if that must be called."""
        cdef kb_chunk *chunk = chunks
        cdef kb_chunk *others = NULL
        cdef bint is_notified
        while self.poison and chunk != NULL:
            if chunk.size > KB_CHUNK_HEAD_BYTES:
                memset(chunk + 1, POISON, chunk.size - KB_CHUNK_HEAD_BYTES)
            chunk = chunk.next
        kb_lock_acquire(&self._lock)
        while chunks != NULL:
            chunk = chunks
            chunks = chunk.next
            if chunk.size == self.poolable_size:
                self._free = _linked(chunk, chunk.size, self._free)
                self._free_count += 1
            else:
                self._unallocated += chunk.size
                others = _linked(chunk, chunk.size, others)
        self._charge(-discharged)
        is_notified = self._notify_first(False)
        kb_lock_release(&self._lock)
        _free_all(others)
        return is_notified

    cdef void await_callbacks(self, int64_t size) noexcept nogil:
        """Move this much of the charge to callbacks, which will return it."""
        kb_lock_acquire(&self._lock)
        kb_count_store(&self._callback_bytes, self._callback_bytes + size)
        kb_lock_release(&self._lock)

    cdef void callbacks_ran(self, int64_t size) noexcept:
        kb_lock_acquire(&self._lock)
        kb_count_store(&self._callback_bytes, self._callback_bytes - size)
        kb_lock_release(&self._lock)
        self.exchange(NULL, size)

    cdef bint is_awaited(self) noexcept nogil:
        """True if the first waiter was refused, and there is still too little for it."""
        cdef bint awaited
        kb_lock_acquire(&self._lock)
        awaited = self._first != NULL and self._available() < self._first.wanted
        kb_lock_release(&self._lock)
        return awaited

    cdef MemoryWaiter join(self, bint goes_first):
        """Add a waiter at the end of the queue, or before all others. It has been refused; as the first it
        tries again before it sleeps, because memory freed in between woke no waiter.
        """
        cdef MemoryWaiter waiter = MemoryWaiter.__new__(MemoryWaiter)
        cdef QueueEntry *entry = &waiter._entry
        waiter._pool = self
        waiter._is_queued = True
        kb_lock_acquire(&self._lock)
        entry.next = self._first if goes_first else NULL
        entry.previous = NULL if goes_first else self._last
        if entry.next == NULL:
            self._last = entry
        else:
            entry.next.previous = entry
            entry.next.wanted = 0
        if entry.previous == NULL:
            self._first = entry
        else:
            entry.previous.next = entry
        kb_count_store(&self._queued, self._queued + 1)
        kb_lock_release(&self._lock)
        return waiter

    def _allocate_first(self, int64_t size):
        return self._try_allocate(size, FIRST_IN_QUEUE)

    cdef object _try_allocate(self, int64_t size, Claim claim):
        """Return a Buffer, or None without memory."""
        cdef Buffer buffer = Buffer.__new__(Buffer)
        cdef uint8_t *memory = NULL
        cdef bint closed, granted
        kb_lock_acquire(&self._lock)
        closed = self._closed
        granted = not closed and self._grant(size, claim)
        if granted and size == self.poolable_size and self._free != NULL:
            memory = <uint8_t *>self._free
            self._free = self._free.next
            self._free_count -= 1
        elif granted:
            self._charge(size)
        kb_lock_release(&self._lock)
        if closed:
            raise KafkaError("the buffer pool was closed while memory was being allocated from it")
        if not granted:
            return None
        if memory == NULL:
            memory = <uint8_t *>malloc(max(size, <int64_t>sizeof(kb_chunk)))
        if memory == NULL:
            self.exchange(NULL, size)
            raise MemoryError(f"no memory for a buffer of {size} bytes")
        memset(memory, 0, size)
        buffer._memory = memory
        buffer._size = size
        buffer._pool = self
        return buffer

    cdef void _release(self, uint8_t *memory, int64_t size) noexcept:
        self.exchange(_linked(<kb_chunk *>memory, size, NULL), 0)


@cython.final
@cython.no_gc_clear  # its pool must exist when it goes
cdef class MemoryWaiter:
    """An entry in the queue for a pool's memory, from `RecordAccumulator.begin_waiting` to `withdraw`."""

    def __init__(self):
        raise TypeError("a MemoryWaiter comes from RecordAccumulator.begin_waiting")

    def __dealloc__(self):
        self._unlink()
        if self._entry.wake_lock != NULL:
            PyThread_free_lock(self._entry.wake_lock)

    @property
    def is_notified(self):
        """True if there is something new for the first waiter since `may_try`."""
        return self._entry.is_notified

    def may_try(self):
        """True if it is the first waiter: its attempt may take memory. From here on `freed` is called again
        when there is more.
        """
        cdef bint is_first
        kb_lock_acquire(&self._pool._lock)
        is_first = self._pool._first == &self._entry
        self._entry.is_notified = False
        kb_lock_release(&self._pool._lock)
        return is_first

    def withdraw(self):
        """Leave the queue; a second call does nothing. A thread that is next is woken. A waiter without a
        thread makes the next one check.
        """
        self._unlink()

    cdef void _unlink(self) noexcept:
        cdef QueueEntry *entry = &self._entry
        cdef BufferPool pool = self._pool
        if not self._is_queued:
            return
        self._is_queued = False
        if pool.is_forked:  # a thread of the parent may hold the lock
            return
        kb_lock_acquire(&pool._lock)
        if entry.previous == NULL:
            pool._first = entry.next
        else:
            entry.previous.next = entry.next
        if entry.next == NULL:
            pool._last = entry.previous
        else:
            entry.next.previous = entry.previous
        kb_count_store(&pool._queued, pool._queued - 1)
        pool._notify_first(False)
        kb_lock_release(&pool._lock)

    cdef object wait(self, object attempt, object refusal, object timeout):
        """Return the result of `attempt()` when it is first and there is memory; `refusal` if it was that
        until the end of `timeout` seconds. Nothing is lost if a signal handler raises.
        """
        cdef BufferPool pool = self._pool
        cdef bint is_first
        cdef double seconds
        cdef PyThread_type_lock wake_lock = PyThread_allocate_lock()
        if wake_lock == NULL:
            raise MemoryError("no memory for a lock")
        PyThread_acquire_lock(wake_lock, WAIT_LOCK)
        deadline = None if timeout is None else time.monotonic() + timeout
        kb_lock_acquire(&pool._lock)
        self._entry.wake_lock = wake_lock
        self._entry.is_notified = False
        kb_lock_release(&pool._lock)
        while True:
            kb_lock_acquire(&pool._lock)
            is_first = pool._first == &self._entry
            kb_lock_release(&pool._lock)
            if is_first:
                answer = attempt()
                if answer is not refusal:
                    return answer
            seconds = LOOK_S if is_first else LONGEST_SLEEP_S
            if deadline is not None:
                seconds = min(seconds, deadline - time.monotonic())
                if seconds <= 0:
                    return refusal
            self._sleep(seconds)

    cdef int _sleep(self, double seconds) except -1:
        """Sleep until woken, or for this long; raise the exceptions of signal handlers."""
        cdef long long microseconds
        cdef PyLockStatus status
        if (nap := nap_of_greenlets()) is not None:
            nap(min(seconds, NAP_S))
            seconds = 0.0
        microseconds = <long long>(seconds * 1e6) + 1
        with nogil:
            status = PyThread_acquire_lock_timed(self._entry.wake_lock, microseconds, 1)
        if status == PY_LOCK_ACQUIRED:
            kb_lock_acquire(&self._pool._lock)
            self._entry.is_notified = False
            kb_lock_release(&self._pool._lock)
        else:
            PyErr_CheckSignals()
        return 0


@cython.final
@cython.no_gc_clear  # its pool must exist when it goes
cdef class Buffer:
    """Writable memory of a `BufferPool`, by the buffer protocol; `len()` is the requested size.

    A buffer that is dropped without `BufferPool.release` returns to its pool by itself.
    """

    def __init__(self):
        raise TypeError("a Buffer comes from BufferPool.allocate")

    def __dealloc__(self):
        if self._memory != NULL:
            self._pool._release(self._memory, self._size)

    def __len__(self):
        return self._size

    def __bytes__(self):
        self._check_not_released()
        return PyBytes_FromStringAndSize(<char *>self._memory, self._size)

    @cython.critical_section
    def __getbuffer__(self, Py_buffer *view, int flags):
        self._check_not_released()
        fill_view(view, self, self._memory, &self._size, False)
        self._exports += 1

    @cython.critical_section
    def __releasebuffer__(self, Py_buffer *view):
        self._exports -= 1

    cdef int _check_not_released(self) except -1:
        if self._memory == NULL:
            raise ValueError("the buffer was released to its pool and cannot be read or written any more")
        return 0
