"""Which thread seals a batch, that is, compresses it: SealPolicy decides, SealQueue hands it over.

Theory of operation. A producer's SealPolicy decides when a batch closes. A batch that is full is sealed by
the thread that filled it, unless that is an event loop's. All others are for the sender's thread, which seals
the small ones itself and has other threads seal the rest.

`send_table` fills batches faster than one thread compresses them, and hands them to a SealQueue. A batch that
is closed is sealed by the one thread that it was handed to, or by none. A signal handler runs between two
steps of Python code, and what it raises must not come between closing and handing over. So the whole way from
`seal` to the thread that takes the batch is native.
"""

cimport cython
from libc.stdint cimport int64_t


from kbatch.logs import ClientLogger
from kbatch.unpatched import SimpleQueue

logger = ClientLogger(__name__)

# The sender's thread compresses so many bytes in the time that another thread takes to wake up, 30 us.
SENDER_BYTES = 16_384
# An event loop has other work: so many bytes take no longer than handing them to a thread.
LOOP_BYTES = 2_048
# Without a codec there is only the CRC to do.
CRC_BYTES = 262_144
# A thread that fills batches without a pause compresses fewer bytes than that itself.
SMALL_BYTES = 32_768
# Batches that may wait for each thread; beyond them, the thread that fills batches compresses too.
BACKLOG = 2

cdef int64_t _small_bytes = SMALL_BYTES
cdef int _backlog = BACKLOG


@cython.final
cdef class SealPolicy:
    """Where a producer's batches are sealed.

    Attributes
    ----------
    by_appender : bool
        The thread that fills a batch seals it.
    inline_bytes : int
        The sender's thread seals batches with records of up to so many bytes; larger ones go to others.
    """

    def __init__(self, *, bint by_appender=True, int64_t inline_bytes=0):
        self.by_appender = by_appender
        self.inline_bytes = inline_bytes

    @staticmethod
    def of(str compression not None, *, bint on_loop=False):
        """Return the policy of a producer with that codec, for threads or for an event loop."""
        cdef int64_t compressed_bytes = LOOP_BYTES if on_loop else SENDER_BYTES
        return SealPolicy(by_appender=not on_loop,
                          inline_bytes=CRC_BYTES if compression == "none" else compressed_bytes)


@cython.final
cdef class SealQueue:
    """Batches for the threads that call `work`.

    Attributes
    ----------
    thread_count : int
        Threads that are in `work` now.
    """

    cdef object _put
    cdef object _get
    cdef readonly int thread_count
    cdef int _unfinished_count
    cdef bint _is_stopped

    def __cinit__(self):
        queue = SimpleQueue()
        self._put = queue.put
        self._get = queue.get

    def seal(self, batch not None):
        """Hand a closed batch to the threads; seal it here if it is small, or if they have enough to do."""
        if batch.records_bytes < _small_bytes or not self._may_put():
            batch.seal()
            return
        try:
            self._put(batch)
        except BaseException:
            self._count_unfinished(-1)
            batch.seal()
            raise

    @cython.critical_section
    cdef bint _may_put(self) noexcept:
        """Count one more batch for the threads, unless they have enough to do."""
        if self._is_stopped or self._unfinished_count >= _backlog * self.thread_count:
            return False
        self._unfinished_count += 1
        return True

    @cython.critical_section
    cdef void _count_unfinished(self, int change) noexcept:
        self._unfinished_count += change

    @cython.critical_section
    cdef void _count_thread(self, int change) noexcept:
        self.thread_count += change

    def work(self):
        """Seal what is handed over until `stop`."""
        if self._is_stopped:
            return
        self._count_thread(1)
        while True:
            batch = self._get()
            if batch is None:
                break
            try:
                batch.seal()
            except BaseException:
                logger.exception("%r cannot be sealed", batch)
            del batch  # or it would live until the next one comes
            self._count_unfinished(-1)
        self._count_thread(-1)

    def stop(self):
        """End the threads after what they have; later batches are sealed by the caller."""
        cdef int i
        if not self._is_stopped:
            self._is_stopped = True
            for i in range(self.thread_count):
                self._put(None)
