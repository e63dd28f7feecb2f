"""SealQueue: batches on their way from the thread that fills them to threads that compress them.

Theory of operation. A batch that is closed is sealed by the one thread that it was handed to, or by none. A
signal handler runs between two steps of Python code, and what it raises must not come between closing and
handing over. So the whole way from `seal` to the thread that takes the batch is native. The GIL guards it.
"""

cimport cython
from libc.stdint cimport int64_t

import logging
import threading
from queue import SimpleQueue

logger = logging.getLogger(__name__)

# A batch of fewer bytes takes less time to compress than another thread takes to wake up.
SMALL_BYTES = 32768
# Batches that may wait for each thread; beyond them, the thread that fills batches compresses too.
BACKLOG = 2

cdef int64_t _small_bytes = SMALL_BYTES
cdef int _backlog = BACKLOG


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
        cdef int64_t size = batch.records_bytes
        if self._is_stopped or size < _small_bytes or self._unfinished_count >= _backlog * self.thread_count:
            batch.seal()
            return
        self._unfinished_count += 1
        try:
            self._put(batch)
        except BaseException:
            self._unfinished_count -= 1
            batch.seal()
            raise

    def work(self):
        """Seal what is handed over until `stop`."""
        if self._is_stopped:
            return
        self.thread_count += 1
        while True:
            batch = self._get()
            if batch is None:
                break
            try:
                batch.seal()
            except BaseException:
                logger.exception("%s failed at %r", threading.current_thread().name, batch)
            del batch  # or it would live until the next one comes
            self._unfinished_count -= 1
        self.thread_count -= 1

    def stop(self):
        """End the threads after what they have; later batches are sealed by the caller."""
        cdef int i
        if not self._is_stopped:
            self._is_stopped = True
            for i in range(self.thread_count):
                self._put(None)
