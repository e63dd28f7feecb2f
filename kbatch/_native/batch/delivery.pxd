from libc.stdint cimport int32_t, int64_t

from kbatch._native.batch.buffer_pool cimport BufferPool
from kbatch._native.batch.table_outcome cimport BatchRows
from kbatch._native.flags cimport kb_flag_load
from kbatch._native.io.interrupts cimport NativeEvent
from kbatch._native.lock cimport kb_lock

cdef enum CompletionState:
    PENDING
    SUCCEEDED
    FAILED
    SPLIT           # its records are its children's now

# The charge of the state of one record: its Delivery; and with a callback, the memory to call it.
cdef enum:
    DELIVERY_BYTES = 64
    CALLBACK_BYTES = 128

cdef struct Callback:
    int64_t timestamp_ms
    int32_t index
    int32_t key_size
    int32_t value_size


cdef class RecordMetadata:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef readonly int32_t serialized_key_size
    cdef readonly int32_t serialized_value_size


cdef class Flush:
    cdef kb_lock _lock
    # under _lock
    cdef int64_t _pending_count
    cdef object _event
    cdef list _listeners
    # of the thread that flushes
    cdef list _unanswered            # Completion, the newest last

    cdef void expect(self, int64_t count) noexcept
    cdef void arrived(self) noexcept


cdef class Completion:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef BufferPool _memory
    # written by appenders, while it is pending
    cdef readonly int32_t record_count
    cdef int64_t charged_bytes
    cdef Callback *_callbacks
    cdef list _functions
    cdef int32_t _callback_count
    cdef int32_t _observing_count    # of those, the ones that count as a check of the outcome
    cdef int32_t _callback_capacity
    cdef int32_t _start
    cdef BatchRows rows              # of tables, among the batch's records
    # under _lock
    cdef kb_lock _lock
    cdef CompletionState _outcome    # read by `state` without it; then the next three do not change
    cdef int64_t _base_offset
    cdef int64_t _log_append_time_ms
    cdef object _error
    cdef object _record_errors
    cdef list _children
    cdef object _event
    cdef NativeEvent _accepted       # of the first thread that waits; the lane sets it, too
    cdef void *waiter                # the same while it waits, for the lane; atomic
    cdef list _listeners
    cdef list _flushes
    cdef bint _calling
    cdef int32_t _called_count
    cdef bint _over
    cdef int32_t _observed_count

    cdef inline CompletionState state(self) noexcept nogil:
        return <CompletionState>kb_flag_load(<int *>&self._outcome)

    cdef inline bint is_final(self) noexcept nogil:
        """True if its records were delivered or failed: not if they are pending, here or in children."""
        cdef CompletionState state = self.state()
        return state == SUCCEEDED or state == FAILED

    @staticmethod
    cdef Completion new(str topic, int32_t partition, BufferPool memory)
    cdef bint reserve_callback(self) noexcept
    cdef void add_callback(self, object function, int64_t timestamp_ms, int32_t key_size,
                           int32_t value_size) noexcept
    cdef void forget_listeners(self) noexcept
    cdef bint set_outcome(self, CompletionState outcome, int64_t base_offset, int64_t log_append_time_ms,
                     object error, object record_errors) except -1
    cdef int announce(self) except -1
    cdef int _append_listeners(self, list callbacks) except -1
    cdef int split(self, list children) except -1
    cdef bint _has_callbacks(self) noexcept
    cdef int32_t _acknowledge(self) except -1
    cdef void add_flush(self, Flush flush) noexcept
    cdef int _finish(self) except -1
    cdef Completion _child_of(self, int32_t index)
    cdef bint wait(self, object timeout) except -1
    cdef bint _wait_for_event(self, object timeout) except -1
    cdef NativeEvent _begin_waiting(self)
    cdef object _event_if_pending(self)
    cdef bint _add_listener(self, tuple listener) except -1
    cdef object _error_of(self, int32_t index)
    cdef RecordMetadata _metadata_of(self, int32_t index, int64_t timestamp_ms, int32_t key_size,
                                     int32_t value_size)


cdef class Delivery:
    cdef Completion _completion
    cdef int64_t _timestamp_ms
    cdef int32_t _index
    cdef int32_t _key_size
    cdef int32_t _value_size
    cdef bint _observed

    @staticmethod
    cdef Delivery new(Completion completion, int32_t index, int64_t timestamp_ms, int32_t key_size,
                      int32_t value_size, bint observed)
    cdef int _listen(self, tuple listener) except -1
    cdef int _call(self, tuple listener) except -1
    cdef Completion _leaf(self, int32_t *index)
    cdef Completion _wait(self, object timeout, int32_t *index)
    cdef Completion _await_outcome(self, object timeout, int32_t *index)


cdef class BatchDelivery(Delivery):

    @staticmethod
    cdef BatchDelivery of(Completion completion, int64_t max_timestamp_ms, object on_delivery)
    cdef object _error(self)
    cdef object _metadata(self)
    cdef list _parts(self)


cdef class Acknowledgement:
    cdef object _on_acknowledgement
    cdef object _on_delivery


cdef bint is_observed_by(object on_delivery) noexcept
