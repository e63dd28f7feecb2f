"""BufferPool: a budget of memory that threads share, and wait for in the order they came.

Theory of operation. The budget is `unallocated` bytes, which nobody holds, plus a free list of buffers of
`poolable_size` bytes, kept for reuse. Taking from either needs `_lock`, which is only ever held for a few
instructions: no Python code, no malloc of a new buffer and no waiting happens under it. The free list is
threaded through the free buffers themselves.

Whoever finds too little memory, or others waiting already, queues up. Memory that becomes free belongs to the
first in the queue alone, who collects it piece by piece until the request is met; so a large request is not
starved by small ones that come later. Each waiter sleeps on a lock of its own, which whoever frees memory
opens. On every way out (memory, time-out, interrupt, close, failed malloc) a waiter leaves the queue, what it
had collected goes back, and the next in the queue is woken.

After org.apache.kafka.clients.producer.internals.BufferPool, which lets late small requests overtake.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kbatch._native.views cimport fill_view

import time

from kbatch.errors import BufferExhaustedError, KafkaError

cdef extern from "pythread.h":
    ctypedef void *PyThread_type_lock
    ctypedef enum PyLockStatus:
        PY_LOCK_FAILURE
        PY_LOCK_ACQUIRED
        PY_LOCK_INTR
    PyThread_type_lock PyThread_allocate_lock() nogil
    void PyThread_free_lock(PyThread_type_lock) nogil
    int PyThread_acquire_lock(PyThread_type_lock, int) nogil
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock, long long, int) nogil
    void PyThread_release_lock(PyThread_type_lock) nogil

cdef struct Waiter:
    Waiter *next
    Waiter *previous
    PyThread_type_lock bell   # held while there is nothing new; released, once, to wake the waiter
    bint rung
    int64_t wanted
    int64_t collected
    uint8_t *memory           # a whole buffer from the free list, where that was what is wanted

# The longest single sleep: what PyThread accepts is bounded, and a waiter looks again anyway.
cdef double LONGEST_SLEEP_S = 3600.0
cdef int POISON = 0xDD


@cython.final
cdef class BufferPool:
    """A pool of at most `total_memory` bytes, in which buffers of `poolable_size` bytes are kept for reuse.

    Safe to use from any thread. `poison=True` overwrites every buffer that comes back, so that a use after
    release shows; tests run so.

    Raises
    ------
    ValueError
        `total_memory` or `poolable_size` is not positive.
    """

    def __cinit__(self, int64_t total_memory, int64_t poolable_size, *, bint poison=False):
        if total_memory <= 0:
            raise ValueError(f"total_memory must be a positive number of bytes; it is {total_memory}")
        if poolable_size <= 0:
            raise ValueError(f"poolable_size must be a positive number of bytes; it is {poolable_size}")
        self.total_memory = self._unallocated = total_memory
        self.poolable_size = poolable_size
        self._poison = poison

    def __dealloc__(self):
        self._reclaim(self.total_memory)

    @property
    def available(self):
        """Bytes that nobody holds: unallocated ones and those of the free list."""
        with self._lock:
            return self._unallocated + self._free_count * self.poolable_size

    @property
    def unallocated(self):
        """Bytes that nobody holds and that are not in the free list."""
        with self._lock:
            return self._unallocated

    @property
    def queued(self):
        """Threads waiting for memory."""
        with self._lock:
            return self._queued

    def allocate(self, int64_t size, timeout=None):
        """A zeroed `Buffer` of `size` bytes, waiting for it up to `timeout` seconds (None: as long as it
        takes).

        Raises
        ------
        ValueError
            `size` is negative or more than the pool will ever have.
        BufferExhaustedError
            The memory did not become free in time.
        KafkaError
            The pool was closed before or while waiting.
        MemoryError
            The system has no memory; the budget is as before.
        """
        cdef Buffer buffer = Buffer.__new__(Buffer)
        if size < 0:
            raise ValueError(f"size must not be negative; it is {size}")
        if size > self.total_memory:
            raise ValueError(f"size {size} is more than the {self.total_memory} bytes of the whole pool "
                             f"(total_memory)")
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout must be 0 or more seconds, or None; it is {timeout}")
        buffer._memory = self.take(size, timeout)
        buffer._size = size
        buffer._pool = self
        memset(buffer._memory, 0, size)
        return buffer

    def release(self, Buffer buffer not None):
        """Gives `buffer` back; a second time is ignored.

        Raises
        ------
        ValueError
            The buffer is another pool's.
        BufferError
            A memoryview of it still exists: the memory may still be written to.
        """
        cdef uint8_t *memory
        if buffer._pool is not self:
            raise ValueError("buffer belongs to another pool: release it there")
        if buffer._exports:
            raise BufferError(f"buffer has {buffer._exports} views: release them first")
        with self._lock:
            memory = buffer._memory
            buffer._memory = NULL
        if memory != NULL:
            self.give_back(memory, buffer._size)

    def close(self):
        """Fails all who wait, now and later, with KafkaError; memory can still be given back."""
        cdef Waiter *waiter
        with self._lock:
            self._closed = True
            waiter = self._first
            while waiter != NULL:
                _ring(waiter)
                waiter = waiter.next

    cdef uint8_t *take(self, int64_t size, object timeout) except NULL:
        """Memory of `size` bytes, charged to the budget; needs the GIL, which it gives up while it waits."""
        cdef uint8_t *memory = NULL
        if not self._try_take(size, &memory):
            memory = self._wait(size, timeout)
        if memory == NULL:  # charged, but not there yet
            memory = <uint8_t *>malloc(max(size, <int64_t>sizeof(void *)))
            if memory == NULL:
                with self._lock:
                    self._unallocated += size
                    self._wake_first()
                raise MemoryError(f"no memory for a buffer of {size} bytes")
        return memory

    cdef void give_back(self, uint8_t *memory, int64_t size) noexcept nogil:
        """Returns memory and its charge, and wakes the first who waits."""
        cdef bint keep = size == self.poolable_size
        if self._poison:
            memset(memory, POISON, size)
        if not keep:
            free(memory)
        with self._lock:
            if keep:
                (<uint8_t **>memory)[0] = self._free
                self._free = memory
                self._free_count += 1
            else:
                self._unallocated += size
            self._wake_first()

    # What follows is called with _lock held.

    cdef void _reclaim(self, int64_t size) noexcept nogil:
        """Turns free buffers into unallocated bytes until there are `size` of those, or no free buffer is
        left.
        """
        cdef uint8_t *memory
        while self._unallocated < size and self._free != NULL:
            memory = self._free
            self._free = (<uint8_t **>memory)[0]
            self._free_count -= 1
            self._unallocated += self.poolable_size
            free(memory)

    cdef void _collect(self, Waiter *waiter) noexcept nogil:
        """Moves what is there towards `waiter`, the first of the queue."""
        cdef int64_t got
        if waiter.collected == 0 and waiter.wanted == self.poolable_size and self._free != NULL:
            waiter.memory = self._free
            self._free = (<uint8_t **>waiter.memory)[0]
            self._free_count -= 1
            waiter.collected = waiter.wanted
            return
        self._reclaim(waiter.wanted - waiter.collected)
        got = min(self._unallocated, waiter.wanted - waiter.collected)
        self._unallocated -= got
        waiter.collected += got

    cdef void _enqueue(self, Waiter *waiter) noexcept nogil:
        waiter.next = NULL
        waiter.previous = self._last
        if self._last != NULL:
            self._last.next = waiter
        else:
            self._first = waiter
        self._last = waiter
        self._queued += 1

    cdef void _leave(self, Waiter *waiter) noexcept nogil:
        if waiter.previous != NULL:
            waiter.previous.next = waiter.next
        else:
            self._first = waiter.next
        if waiter.next != NULL:
            waiter.next.previous = waiter.previous
        else:
            self._last = waiter.previous
        self._queued -= 1
        self._wake_first()

    cdef void _wake_first(self) noexcept nogil:
        if self._first != NULL and (self._unallocated or self._free != NULL):
            _ring(self._first)

    # What follows takes _lock itself.

    cdef bint _try_take(self, int64_t size, uint8_t **memory) noexcept nogil:
        """Without waiting: False where memory is short, others wait already, or the pool is closed."""
        cdef Waiter request
        request.wanted = size
        request.collected = 0
        request.memory = NULL
        with self._lock:
            if self._closed or self._first != NULL:
                return False
            if self._unallocated + self._free_count * self.poolable_size < size:
                return False
            self._collect(&request)
        memory[0] = request.memory
        return True

    cdef uint8_t *_wait(self, int64_t size, object timeout) except? NULL:
        """Queues up until `size` bytes are charged to the caller: a whole buffer, or NULL for one yet to be
        made.
        """
        cdef Waiter waiter
        cdef bint closed
        deadline = None if timeout is None else time.monotonic() + timeout
        waiter.rung = False
        waiter.wanted = size
        waiter.collected = 0
        waiter.memory = NULL
        waiter.bell = PyThread_allocate_lock()
        if waiter.bell == NULL:
            raise MemoryError("no memory for a lock")
        PyThread_acquire_lock(waiter.bell, 1)
        with self._lock:
            self._enqueue(&waiter)
        try:
            while True:
                with self._lock:
                    closed = self._closed
                    if not closed and self._first == &waiter:
                        self._collect(&waiter)
                if closed:
                    raise KafkaError("the buffer pool was closed while memory was being allocated from it")
                if waiter.collected == size:
                    break
                self._sleep(&waiter, deadline)
        except BaseException as error:
            with self._lock:
                self._unallocated += waiter.collected
                waiter.collected = 0
            if isinstance(error, BufferExhaustedError):
                raise BufferExhaustedError(
                    f"no {size} bytes became free within {timeout} s, of {self.total_memory} in all "
                    f"(buffer.memory); {self._queued} waiting"
                ) from None
            raise
        finally:
            with self._lock:
                self._leave(&waiter)
            PyThread_free_lock(waiter.bell)
        return waiter.memory

    cdef int _sleep(self, Waiter *waiter, object deadline) except -1:
        """Until rung; raises what a signal handler raises, and BufferExhaustedError after the deadline."""
        cdef double seconds = LONGEST_SLEEP_S
        cdef long long microseconds
        cdef PyLockStatus status
        if deadline is not None:
            seconds = min(seconds, deadline - time.monotonic())
            if seconds <= 0:
                raise BufferExhaustedError()
        microseconds = <long long>(seconds * 1e6) + 1
        with nogil:
            status = PyThread_acquire_lock_timed(waiter.bell, microseconds, 1)
        if status == PY_LOCK_ACQUIRED:
            with self._lock:
                waiter.rung = False
        elif status == PY_LOCK_INTR:
            PyErr_CheckSignals()
        return 0


cdef void _ring(Waiter *waiter) noexcept nogil:
    if not waiter.rung:
        waiter.rung = True
        PyThread_release_lock(waiter.bell)


@cython.final
@cython.no_gc_clear  # its pool must be there when it goes
cdef class Buffer:
    """Writable memory of a `BufferPool`, by the buffer protocol; `len()` is what was asked for.

    A buffer that is dropped without `BufferPool.release` goes back to its pool by itself.
    """

    def __init__(self):
        raise TypeError("a Buffer comes from BufferPool.allocate")

    def __dealloc__(self):
        if self._memory != NULL:
            self._pool.give_back(self._memory, self._size)

    def __len__(self):
        return self._size

    def __bytes__(self):
        self._check_held()
        return PyBytes_FromStringAndSize(<char *>self._memory, self._size)

    def __getbuffer__(self, Py_buffer *view, int flags):
        self._check_held()
        fill_view(view, self, self._memory, &self._size, False)
        self._exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self._exports -= 1

    cdef int _check_held(self) except -1:
        if self._memory == NULL:
            raise ValueError("the buffer was released to its pool and is no longer ours to read or write")
        return 0
