"""StickyPartitioner: chooses partitions for records without a partition and key (KIP-480, KIP-794).

Theory of operation. Records stick to one partition until it got batch.size bytes, as estimated after
compression, and then switch to a random one. A switch waits until the batch is full, or sent, so that it
leaves no partial batch, but for at most twice as many bytes.

By default all partitions with a leader are equally likely. With load statistics, a partition with a queue of
q batches has the weight max(q) + 1 - q, and those with a slow leader have none.

An appender reads the partition, takes its lock, and checks again: a switch happens only under that lock, so
the partition stays while the record is appended and counted. After
org.apache.kafka.clients.producer.internals.BuiltInPartitioner.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, realloc

from kbatch._native.flags cimport kb_number_peek, kb_number_set
from kbatch._native.lock cimport kb_lock_acquire, kb_lock_destroy, kb_lock_init, kb_lock_release
from kbatch._native.send.cluster_view cimport TopicView


@cython.final
cdef class StickyPartitioner:
    """The sticky state of one topic; its choices depend only on `seed` and the calls."""

    def __cinit__(self):
        kb_lock_init(&self._lock)

    def __init__(self, int64_t batch_size, uint64_t seed=0):
        if batch_size < 1:
            raise ValueError(f"batch_size must be 1 byte or more, got {batch_size}")
        self._batch_size = batch_size
        self._random = seed
        self._partition = -1

    def __dealloc__(self):
        kb_lock_destroy(&self._lock)
        free(self._partitions)
        free(self._frequencies)

    @property
    def partition(self):
        """The present partition; -1 before the first choice."""
        return kb_number_peek(&self._partition)

    @property
    def produced_bytes(self):
        """Bytes that went to the present partition, compressed as earlier batches were."""
        return self._produced_bytes

    def choose(self, TopicView view not None, uint64_t random):
        """Return the partition for `random`, from 0 to 2^64 - 1."""
        kb_lock_acquire(&self._lock)
        try:
            return self._chosen(view, random)
        finally:
            kb_lock_release(&self._lock)

    def update_load(self, partitions, queue_lengths, int32_t partition_count):
        """Set the queues of the partitions that may be chosen, out of `partition_count`."""
        cdef int32_t count = len(partitions)
        cdef int32_t i
        cdef int32_t *numbers = <int32_t *>realloc(NULL, 2 * max(count, 1) * sizeof(int32_t))
        if numbers == NULL:
            raise MemoryError(f"no memory for the load of {count} partitions")
        try:
            for i in range(count):
                numbers[i], numbers[count + i] = partitions[i], queue_lengths[i]
            self.set_load(numbers, numbers + count, count, partition_count)
        finally:
            free(numbers)

    cdef int32_t peek(self, TopicView view) noexcept nogil:
        """Return the present partition; choose one if there is none, or the topic no longer has it."""
        cdef int32_t partition = kb_number_peek(&self._partition)
        if 0 <= partition < view.partition_count:
            return partition
        kb_lock_acquire(&self._lock)
        try:
            if not 0 <= self._partition < view.partition_count:
                kb_number_set(&self._partition, self._chosen(view, kb_random_next(&self._random)))
                self._produced_bytes = 0
            return self._partition
        finally:
            kb_lock_release(&self._lock)

    cdef bint has_left(self, int32_t partition) noexcept nogil:
        """True if another partition is the present one now."""
        return kb_number_peek(&self._partition) != partition

    cdef int64_t room_bytes(self) noexcept nogil:
        """Return how many bytes the present partition gets at most before the next choice."""
        kb_lock_acquire(&self._lock)
        try:
            return 2 * self._batch_size - self._produced_bytes
        finally:
            kb_lock_release(&self._lock)

    cdef void count(self, TopicView view, int64_t appended_bytes, bint may_switch) noexcept nogil:
        """Count bytes for the present partition, whose lock is held; `may_switch`: its last batch is full, or
        it has none.
        """
        kb_lock_acquire(&self._lock)
        try:
            self._produced_bytes += appended_bytes
            if self._produced_bytes >= (self._batch_size if may_switch else 2 * self._batch_size):
                kb_number_set(&self._partition, self._chosen(view, kb_random_next(&self._random)))
                self._produced_bytes = 0
        finally:
            kb_lock_release(&self._lock)

    cdef void set_load(self, const int32_t *partitions, const int32_t *queue_lengths, int32_t count,
                       int32_t partition_count) noexcept:
        """Set the load table, or none if it would make no difference."""
        cdef int32_t i, longest = 0
        cdef bint equal = True
        for i in range(count):
            longest = max(longest, queue_lengths[i])
            equal = equal and queue_lengths[i] == queue_lengths[0]
        if partition_count < 2 or (equal and count == partition_count):
            count = 0
        if count == 0 and self._load_count == 0:
            return
        kb_lock_acquire(&self._lock)
        try:
            self._load_count = 0
            if count > self._load_capacity and not self._reserve_load(count):
                return
            for i in range(count):
                self._partitions[i] = partitions[i]
                self._frequencies[i] = longest + 1 - queue_lengths[i]
                if i > 0:
                    self._frequencies[i] += self._frequencies[i - 1]
            self._load_count = count
        finally:
            kb_lock_release(&self._lock)

    # With _lock held

    cdef bint _reserve_load(self, int32_t count) noexcept:
        """Return False without memory; then all partitions are equally likely."""
        cdef void *partitions = realloc(self._partitions, count * sizeof(int32_t))
        cdef void *frequencies
        if partitions == NULL:
            return False
        self._partitions = <int32_t *>partitions
        frequencies = realloc(self._frequencies, count * sizeof(int64_t))
        if frequencies == NULL:
            return False
        self._frequencies = <int64_t *>frequencies
        self._load_capacity = count
        return True

    cdef int32_t _chosen(self, TopicView view, uint64_t random) noexcept nogil:
        """Return a partition of the view; the load may come from other metadata, with more partitions."""
        cdef int32_t low = 0
        cdef int32_t high = self._load_count
        cdef int32_t middle
        cdef int64_t picked
        if self._load_count > 0:
            picked = <int64_t>(random % <uint64_t>self._frequencies[self._load_count - 1])
            while low < high:  # the first partition whose cumulative weight exceeds the random number
                middle = (low + high) // 2
                if self._frequencies[middle] > picked:
                    high = middle
                else:
                    low = middle + 1
            if self._partitions[low] < view.partition_count:
                return self._partitions[low]
        if view.available_count == 0:
            return <int32_t>(random % <uint64_t>view.partition_count)
        return view.available[random % <uint64_t>view.available_count]
