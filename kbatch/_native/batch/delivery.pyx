"""Deliveries: the results of sends, and their outcomes.

Theory of operation. A batch has one Completion, which is PENDING until the batch SUCCEEDED or FAILED: once,
whatever comes later. A Delivery is the Completion and the record's index in it. So one step resolves all
deliveries of a batch, and a dropped delivery costs nothing. Waiters share an event of the whole batch, made
for the first waiter.

A batch too large for the broker is SPLIT. Its Completion passes callbacks, listeners and flushes on to its
children, one for each smaller batch. Deliveries look up their child.

Callbacks do not run where an answer is handled: the thread that completes the batch hands it to another
thread. That one calls `run_callbacks`, once for each callback, in the order of the records. A Flush is over
when the callbacks of its records ran. Under `_lock`, no Python code runs and no user's object is released.

An encoded batch has one delivery for all its records. A Delivery is the outcome of one record in it, a
BatchDelivery that of all of them. While the batch is whole there is no difference. A batch that was too large
is sent in parts, and one part decides about the whole. It is the first that is pending, else the first that
failed, else the first of all. Every callback, also on_delivery, is a listener. It waits with a pending part,
and when that is complete goes on to the next, until there is none: so it is called once, after the last part.

After org.apache.kafka.clients.producer.internals.ProduceRequestResult and FutureRecordMetadata.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc

from kbatch._native.batch.buffer_pool cimport BufferPool
from kbatch._native.batch.table_outcome cimport (
    BatchRows,
    InterceptedRow,
    observed_rows,
    part_of_rows,
    complete_rows,
)
from kbatch._native.flags cimport (
    kb_count_add,
    kb_count_load,
    kb_flag_store,
    kb_pointer_load,
    kb_pointer_store,
)
from kbatch._native.io.interrupts cimport NativeEvent
from kbatch._native.lock cimport kb_lock_acquire, kb_lock_destroy, kb_lock_init, kb_lock_release

import time
from collections import namedtuple
from types import CoroutineType

from kbatch.errors import IllegalStateError, KafkaTimeoutError
from kbatch.timeouts import checked_seconds

# Names by CompletionState.
_OUTCOMES = ("pending", "succeeded", "failed", "split")

OffsetRun = namedtuple("OffsetRun", "first_offset record_count", module=__name__)
OffsetRun.__doc__ = "Records that stand one after another from `first_offset` on; -1: it is not known where."

cdef object _awaiter = None


def await_with(awaiter):
    """Set the implementation of `await delivery`: `awaiter(delivery)` returns the iterator. None: it cannot
    be awaited.
    """
    global _awaiter
    _awaiter = awaiter


@cython.final
@cython.freelist(256)
@cython.no_gc  # holds a str
cdef class RecordMetadata:
    """The topic, partition and offset of a record: the result of a delivery, and an argument of its callback.

    Attributes
    ----------
    topic : str
    partition : int
    offset : int
        -1 if the broker did not report it: after a failure, without acknowledgements, for a duplicate.
    timestamp_ms : int
        The broker's with LogAppendTime, else the record's own; -1 after a failure.
    serialized_key_size, serialized_value_size : int
        -1 for None, and after a failure.
    """

    def __init__(self, str topic not None, int32_t partition, int64_t offset=-1, int64_t timestamp_ms=-1,
                 int32_t serialized_key_size=-1, int32_t serialized_value_size=-1):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size

    def _fields(self):
        return (self.topic, self.partition, self.offset, self.timestamp_ms, self.serialized_key_size,
                self.serialized_value_size)

    def __eq__(self, other):
        if not isinstance(other, RecordMetadata):
            return NotImplemented
        return self._fields() == (<RecordMetadata>other)._fields()

    def __hash__(self):
        return hash(self._fields())

    def __reduce__(self):
        return RecordMetadata, self._fields()

    def __repr__(self):
        return (f"RecordMetadata(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
                f"timestamp_ms={self.timestamp_ms}, serialized_key_size={self.serialized_key_size}, "
                f"serialized_value_size={self.serialized_value_size})")


@cython.final
cdef class Acknowledgement:
    """Callbacks of a record for interceptors: theirs first, then the sender's.

    Parameters
    ----------
    on_acknowledgement : callable
        `on_acknowledgement(metadata, error)`.
    on_delivery : callable or None
        The sender's own; without one, and without a check of the delivery, a failure is unobserved.
    """

    def __init__(self, on_acknowledgement not None, on_delivery):
        self._on_acknowledgement = on_acknowledgement
        self._on_delivery = on_delivery

    def __call__(self, metadata, error):
        self._on_acknowledgement(metadata, error)
        if self._on_delivery is not None:
            self._on_delivery(metadata, error)


cdef bint is_observed_by(object on_delivery) noexcept:
    """True if the sender of the record learns its outcome."""
    if type(on_delivery) is Acknowledgement:
        return (<Acknowledgement>on_delivery)._on_delivery is not None
    return on_delivery is not None


cdef int check_no_coroutine(object result) except -1:
    """Refuse a coroutine function, which no caller would await."""
    if type(result) is CoroutineType:
        result.close()
        raise TypeError("on_delivery must not be a coroutine function, which would never run; use a plain "
                        "function, which may create a task")
    return 0


@cython.final
cdef class Flush:
    """The batches that were unfinished when a flush began, and their parts after splits.

    It is over when every expected batch has arrived. Under its lock no Python code runs.
    """

    def __cinit__(self):
        kb_lock_init(&self._lock)

    def __dealloc__(self):
        kb_lock_destroy(&self._lock)

    def __init__(self):
        raise TypeError("a Flush comes from RecordAccumulator.begin_flush")

    @property
    def pending_count(self):
        """Batches that are not answered, or whose callbacks have not run."""
        return kb_count_load(&self._pending_count)

    def done(self):
        return kb_count_load(&self._pending_count) == 0

    def wait(self, timeout=None):
        """True if it is over within `timeout` seconds (None: no limit)."""
        event = NativeEvent()
        kb_lock_acquire(&self._lock)
        try:
            if self._pending_count == 0:
                return True
            if self._event is None:
                self._event = event
            event = self._event
        finally:
            kb_lock_release(&self._lock)
        return event.wait(timeout)

    def wait_for_answers(self, left):
        """Wait until all batches are answered, or `left()` returns 0, the seconds that are left (None: no
        limit). The thread completes the last ones itself, as in Delivery.result.

        Batches of a partition are answered in order, so the newest comes first: mostly the others are done
        then. A batch that is split counts as answered.
        """
        cdef Completion newest
        while self._unanswered:
            newest = <Completion>self._unanswered[len(self._unanswered) - 1]
            if not newest.wait(left()):
                return
            self._unanswered.pop()

    def add_done_callback(self, function):
        """Call `function(flush)` when it is over, on the thread that ends it; it must not raise."""
        listeners = [function]
        kb_lock_acquire(&self._lock)
        try:
            if self._pending_count:
                if self._listeners is None:
                    self._listeners = listeners
                else:
                    self._listeners.append(function)
                return
        finally:
            kb_lock_release(&self._lock)
        function(self)

    cdef void expect(self, int64_t count) noexcept:
        kb_lock_acquire(&self._lock)
        kb_count_add(&self._pending_count, count)
        kb_lock_release(&self._lock)

    cdef void arrived(self) noexcept:
        cdef list listeners = None
        event = None
        kb_lock_acquire(&self._lock)
        try:
            if kb_count_add(&self._pending_count, -1) == 0:
                event = self._event
                listeners = self._listeners
        finally:
            kb_lock_release(&self._lock)
        if event is not None:
            event.set()
        if listeners is not None:
            for function in listeners:
                function(self)


@cython.final
cdef class Completion:
    """The outcome of a batch, shared by all of its deliveries."""

    def __init__(self):
        raise TypeError("a Completion comes with its batch")

    def __cinit__(self):
        kb_lock_init(&self._lock)

    def __dealloc__(self):
        kb_lock_destroy(&self._lock)
        free(self._callbacks)

    @staticmethod
    cdef Completion new(str topic, int32_t partition, BufferPool memory):
        cdef Completion completion = Completion.__new__(Completion)
        completion.topic = topic
        completion.partition = partition
        completion._memory = memory
        completion._base_offset = completion._log_append_time_ms = -1
        completion._functions = []
        return completion

    @property
    def outcome(self):
        """"pending", "succeeded", "failed" or "split"."""
        return _OUTCOMES[self.state()]

    @property
    def base_offset(self):
        return self._base_offset

    @property
    def error(self):
        """Why the batch failed; single records may have their own errors."""
        return self._error

    @property
    def has_callbacks(self):
        """True if `run_callbacks` has something to do, now or after the batch is complete."""
        return self._has_callbacks()

    @property
    def unobserved_count(self):
        """Number of failed records that were never observed: without callback, result() or exception()."""
        cdef int32_t observed_count
        if self.state() != FAILED:
            return 0
        kb_lock_acquire(&self._lock)
        observed_count = self._observed_count
        kb_lock_release(&self._lock)
        return self.record_count - self._observing_count - observed_count - observed_rows(self.rows)

    # While records are appended, under the lock of the partition

    cdef bint reserve_callback(self) noexcept:
        """Make room for one more. False without memory."""
        cdef int32_t capacity = max(16, 2 * self._callback_capacity)
        if self._callback_count == self._callback_capacity:
            grown = realloc(self._callbacks, capacity * sizeof(Callback))
            if grown == NULL:
                return False
            self._callbacks = <Callback *>grown
            self._callback_capacity = capacity
        return True

    cdef void add_callback(self, object function, int64_t timestamp_ms, int32_t key_size,
                           int32_t value_size) noexcept:
        """Set the callback of the next record."""
        cdef Callback *callback = &self._callbacks[self._callback_count]
        callback.index = self.record_count
        callback.timestamp_ms = timestamp_ms
        callback.key_size = key_size
        callback.value_size = value_size
        self._functions.append(function)
        self._callback_count += 1
        self._observing_count += is_observed_by(function)

    cdef void forget_listeners(self) noexcept:
        """For a batch that was not accepted, so no caller has its delivery."""
        self._listeners = None

    # When the batch is answered

    cdef bint set_outcome(self, CompletionState outcome, int64_t base_offset, int64_t log_append_time_ms,
                     object error, object record_errors) except -1:
        """Set the outcome. True if this call did. An answer after a failure is ignored; other second calls
        are defects, and raise.
        """
        cdef CompletionState before
        kb_lock_acquire(&self._lock)
        before = self.state()
        if before == PENDING:
            self._base_offset = base_offset
            self._log_append_time_ms = log_append_time_ms
            self._error = error
            self._record_errors = record_errors
            kb_flag_store(<int *>&self._outcome, outcome)
        kb_lock_release(&self._lock)
        if before != PENDING:
            if before == FAILED and outcome in (SUCCEEDED, FAILED):
                return False
            raise IllegalStateError(f"a batch of {self.topic}-{self.partition} that {_OUTCOMES[before]} must "
                                    f"not become {_OUTCOMES[outcome]}")
        return True

    cdef int announce(self) except -1:
        """Wake waiters after it is complete; tables first, which may have callbacks for it."""
        cdef NativeEvent accepted
        cdef list callbacks
        if self.rows is not None:
            callbacks = complete_rows(self.rows, self.state() == SUCCEEDED, self._base_offset, self._error,
                                    self._record_errors)
            if callbacks:
                self._append_listeners(callbacks)
        kb_lock_acquire(&self._lock)
        accepted, event = self._accepted, self._event
        kb_lock_release(&self._lock)
        if accepted is not None:
            accepted.ring()
        if event is not None:
            event.set()
        if self._has_callbacks():
            self._memory.await_callbacks(self.charged_bytes)
        else:
            self._finish()
        return 0

    cdef int _append_listeners(self, list callbacks) except -1:
        """Add callbacks of tables; no others are added any more."""
        cdef list listeners = (self._listeners or []) + callbacks
        kb_lock_acquire(&self._lock)
        self._listeners = listeners
        kb_lock_release(&self._lock)
        return 0

    cdef int split(self, list children) except -1:
        """Pass everything on to `children`, whose records are this batch's, in order."""
        cdef Completion child
        cdef list listeners, flushes
        cdef Callback *callback
        cdef int32_t start = 0, at = 0
        cdef int64_t charged = 0
        for child in children:
            child._start = start
            child.rows = part_of_rows(self.rows, start, child.record_count)
            start += child.record_count
            child.charged_bytes = self.charged_bytes * child.record_count // self.record_count
            child._observed_count = child.record_count if self._observed_count else 0
            charged += child.charged_bytes
            while at < self._callback_count and self._callbacks[at].index < start:
                callback = &self._callbacks[at]
                if not child.reserve_callback():
                    raise MemoryError("no memory for the callbacks of a batch that is split")
                child.add_callback(self._functions[at], callback.timestamp_ms, callback.key_size,
                                   callback.value_size)
                child._callbacks[child._callback_count - 1].index = callback.index - child._start
                at += 1
        (<Completion>children[0]).charged_bytes += self.charged_bytes - charged  # the rest of the division
        self.charged_bytes = 0
        kb_lock_acquire(&self._lock)
        try:
            self._children = children
            kb_flag_store(<int *>&self._outcome, SPLIT)
            listeners = self._listeners
            flushes = self._flushes
            self._listeners = self._flushes = None
            event, accepted = self._event, self._accepted
            self._over = True
        finally:
            kb_lock_release(&self._lock)
        for listener in listeners or ():
            (<Delivery>listener[0])._listen(listener)
        for flush in flushes or ():
            self.add_flush(<Flush>flush)
            (<Flush>flush).arrived()
        if accepted is not None:
            accepted.set()
        if event is not None:
            event.set()
        return 0

    cdef bint _has_callbacks(self) noexcept:
        cdef bint has_listeners
        cdef BatchRows rows
        kb_lock_acquire(&self._lock)
        has_listeners = not self._over and (self._callback_count > 0 or self._listeners is not None)
        rows = None if self._over else self.rows
        kb_lock_release(&self._lock)
        return has_listeners or (rows is not None and rows.table.on_acknowledgement is not None)

    cdef void add_flush(self, Flush flush) noexcept:
        """Let the flush wait for this batch, if it is not over."""
        cdef list flushes = [flush]
        kb_lock_acquire(&self._lock)
        try:
            if not self._over:
                flush.expect(1)
                if self._flushes is None:
                    self._flushes = flushes
                else:
                    self._flushes.append(flush)
        finally:
            kb_lock_release(&self._lock)
        if self.state() == SPLIT:
            for child in self._children:
                (<Completion>child).add_flush(flush)

    def run_callbacks(self, threw):
        """Call the remaining callbacks of a completed batch, `function(metadata, error)`, in the order of the
        records, then interceptors of tables' rows, then listeners; a second thread finds nothing to do.

        `threw(function, error)` is called if one raises, and the next follows. What `threw` raises passes
        through, and the next call continues after it.

        Returns
        -------
        int
            The number of calls.
        """
        cdef int32_t intercepted, before
        cdef Callback *callback
        cdef list listeners
        kb_lock_acquire(&self._lock)
        try:
            if self.state() == PENDING or self.state() == SPLIT or self._calling or self._over:
                return 0
            self._calling = True
            before = self._called_count
            listeners = self._listeners
        finally:
            kb_lock_release(&self._lock)
        listeners = listeners or []
        try:
            while self._called_count < self._callback_count:
                callback = &self._callbacks[self._called_count]
                function = self._functions[self._called_count]
                self._called_count += 1
                metadata = self._metadata_of(callback.index, callback.timestamp_ms, callback.key_size,
                                             callback.value_size)
                try:
                    result = function(metadata, self._error_of(callback.index))
                    check_no_coroutine(result)
                except BaseException as error:
                    threw(function, error)
            intercepted = self._acknowledge()
            while self._called_count < self._callback_count + len(listeners):
                listener = listeners[self._called_count - self._callback_count]
                self._called_count += 1
                try:
                    if isinstance(listener[0], Delivery):
                        (<Delivery>listener[0])._listen(listener)
                    else:  # the reports of a table
                        listener[1](listener[0])
                except BaseException as error:
                    threw(listener[1], error)
        except BaseException:
            kb_lock_acquire(&self._lock)
            self._calling = False
            kb_lock_release(&self._lock)
            raise
        self._memory.callbacks_ran(self.charged_bytes)
        self.charged_bytes = 0
        self._finish()
        return self._called_count - before + intercepted

    cdef int32_t _acknowledge(self) except -1:
        """Call interceptors for the rows of tables, continuing where it was; return the number."""
        cdef BatchRows rows = self.rows
        cdef const InterceptedRow *row
        cdef int32_t index, count = 0
        while rows is not None:
            row = rows.next_intercepted(&index)
            if row == NULL:
                rows = rows.next
                continue
            metadata = self._metadata_of(index, row.timestamp_ms, row.key_size, row.value_size)
            rows.table.on_acknowledgement(metadata, self._error_of(index))
            count += 1
        return count

    cdef int _finish(self) except -1:
        """Release what was kept for callbacks, and notify the flushes."""
        cdef list functions, listeners, flushes
        kb_lock_acquire(&self._lock)
        self._over = True
        functions, listeners, flushes = self._functions, self._listeners, self._flushes
        self._functions = self._listeners = self._flushes = None
        kb_lock_release(&self._lock)
        free(self._callbacks)
        self._callbacks = NULL
        self._callback_capacity = 0
        if self.state() == SUCCEEDED:
            self.rows = None
        if self.charged_bytes:
            self._memory.exchange(NULL, self.charged_bytes)
        self.charged_bytes = 0
        for flush in flushes or ():
            (<Flush>flush).arrived()
        return 0

    # Queries of deliveries

    cdef Completion _child_of(self, int32_t index):
        cdef Completion child
        for child in reversed(self._children):
            if child._start <= index:
                break
        return child

    cdef bint wait(self, object timeout) except -1:
        """True if it may not be pending any more, within `timeout` seconds (None: no limit). The lane wakes
        the first thread that waits when the batch is accepted, and that thread completes it.
        """
        cdef NativeEvent accepted
        complete = self._memory.complete_accepted if timeout != 0 else None  # it may wait for a lock
        if complete is None:
            return self._wait_for_event(timeout)
        accepted = self._begin_waiting()
        try:
            complete()  # what was accepted before the lane knew of this thread
            if self.state() != PENDING:
                return True
            if accepted is None:
                return self._wait_for_event(timeout)
            if not accepted.wait(timeout):
                return False
            complete()
            return True
        finally:
            if accepted is not None:
                kb_pointer_store(&self.waiter, NULL)

    cdef bint _wait_for_event(self, object timeout) except -1:
        event = self._event_if_pending()
        return event is None or event.wait(timeout)

    cdef NativeEvent _begin_waiting(self):
        """Return the event that the lane sets; None if another thread waits for it, or it has happened."""
        accepted = NativeEvent()
        kb_lock_acquire(&self._lock)
        try:
            if self._accepted is None:
                self._accepted = accepted
            elif self._accepted.is_set() or kb_pointer_load(&self.waiter) != NULL:
                return None
            kb_pointer_store(&self.waiter, <void *>self._accepted)
            return self._accepted
        finally:
            kb_lock_release(&self._lock)

    cdef object _event_if_pending(self):
        event = NativeEvent()
        kb_lock_acquire(&self._lock)
        try:
            if self.state() != PENDING:
                return None
            if self._event is None:
                self._event = event
            event = self._event
        finally:
            kb_lock_release(&self._lock)
        return event

    cdef bint _add_listener(self, tuple listener) except -1:
        """Add a listener. False if the batch is not pending any more."""
        cdef list listeners = [listener]
        kb_lock_acquire(&self._lock)
        try:
            if self.state() != PENDING:
                return False
            if self._listeners is None:
                self._listeners = listeners
            else:
                self._listeners.append(listener)
        finally:
            kb_lock_release(&self._lock)
        return True

    cdef object _error_of(self, int32_t index):
        if self._record_errors is not None:
            return self._record_errors.get(index, self._error)
        return self._error

    cdef RecordMetadata _metadata_of(self, int32_t index, int64_t timestamp_ms, int32_t key_size,
                                     int32_t value_size):
        cdef RecordMetadata metadata = RecordMetadata.__new__(RecordMetadata)
        metadata.topic = self.topic
        metadata.partition = self.partition
        if self.state() == SUCCEEDED:
            metadata.offset = self._base_offset + index if self._base_offset >= 0 else -1
            metadata.timestamp_ms = timestamp_ms if self._log_append_time_ms < 0 else self._log_append_time_ms
            metadata.serialized_key_size = key_size
            metadata.serialized_value_size = value_size
        else:
            metadata.offset = metadata.timestamp_ms = -1
            metadata.serialized_key_size = metadata.serialized_value_size = -1
        return metadata


@cython.freelist(1024)
@cython.no_gc  # the cycle from its Completion to a listener's delivery ends when the batch is complete
cdef class Delivery:
    """The promise of a RecordMetadata, or of an error, from `send`.

    It resembles a future. `result(timeout)` and `exception(timeout)` wait; the next flush does not raise a
    failure that was checked so. `send_batch` returns one for the whole batch: BatchDelivery.
    """

    def __init__(self):
        raise TypeError("a Delivery comes from a send")

    @staticmethod
    cdef Delivery new(Completion completion, int32_t index, int64_t timestamp_ms, int32_t key_size,
                      int32_t value_size, bint observed):
        cdef Delivery delivery = Delivery.__new__(Delivery)
        delivery._completion = completion
        delivery._index = index
        delivery._timestamp_ms = timestamp_ms
        delivery._key_size = key_size
        delivery._value_size = value_size
        delivery._observed = observed
        return delivery

    @property
    def topic(self):
        return self._completion.topic

    @property
    def partition(self):
        return self._completion.partition

    def done(self):
        """True if the record was delivered or failed."""
        cdef int32_t index
        return self._leaf(&index).is_final()

    def wait(self, timeout=None):
        """True if the record was delivered or failed within `timeout` seconds (None: no limit). Unlike
        `exception` it does not count as a check.
        """
        cdef int32_t index
        return self._wait(timeout, &index).is_final()

    def result(self, timeout=None):
        """Return where the record is in the log, after up to `timeout` seconds (None: no limit).

        Raises
        ------
        KafkaError
            The error of the record.
        KafkaTimeoutError
            There is no result yet; the delivery goes on.
        IllegalStateError
            It cannot block the event loop that completes it: use `await delivery`.
        """
        cdef int32_t index
        cdef Completion completion = self._await_outcome(timeout, &index)
        error = completion._error_of(index)
        if error is None:
            return completion._metadata_of(index, self._timestamp_ms, self._key_size, self._value_size)
        raise error.with_traceback(None)  # or it would grow with every caller

    def exception(self, timeout=None):
        """Return why the record failed; None if it was delivered. Wait, and raise, like `result`."""
        cdef int32_t index
        cdef Completion completion = self._await_outcome(timeout, &index)
        return completion._error_of(index)

    def add_done_callback(self, function):
        """Call `function(delivery)` when the record was delivered or failed, after the callbacks of its
        batch; at once if it is known.
        """
        self._listen((self, function))

    cdef int _listen(self, tuple listener) except -1:
        """Add the listener, itself and a function first, to a pending part; or call it."""
        cdef int32_t index
        while not self._leaf(&index)._add_listener(listener):
            if self._leaf(&index).is_final():
                self._call(listener)
                break
        return 0

    cdef int _call(self, tuple listener) except -1:
        listener[1](self)
        return 0

    def __await__(self):
        if _awaiter is None:
            raise TypeError("a delivery cannot be awaited before the import of kbatch is complete")
        return _awaiter(self)

    def __repr__(self):
        cdef int32_t index
        cdef Completion completion = self._leaf(&index)
        return f"<Delivery {self.topic}-{self.partition} {completion.outcome}>"

    cdef Completion _leaf(self, int32_t *index):
        """Return the record's current Completion, and its index there; it may be split right after."""
        cdef Completion completion = self._completion
        index[0] = self._index
        while completion.state() == SPLIT:
            completion = completion._child_of(index[0])
            index[0] -= completion._start
        return completion

    def check_may_wait(self):
        """Raise IllegalStateError on the thread of the event loop that would bring the answer."""
        self._completion._memory.check_may_wait()

    cdef Completion _wait(self, object timeout, int32_t *index):
        """Return its Completion, final or after `timeout` seconds, and its index there."""
        cdef Completion completion = self._leaf(index)
        if timeout is not None:
            timeout = checked_seconds(timeout)
        if completion.is_final():
            return completion
        if timeout != 0:
            self.check_may_wait()
        deadline = None if timeout is None else time.monotonic() + timeout
        while not completion.is_final():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if completion.state() == PENDING and not completion.wait(left):
                break
            completion = self._leaf(index)
        return completion

    cdef Completion _await_outcome(self, object timeout, int32_t *index):
        """Wait, and note the check."""
        cdef Completion completion = self._wait(timeout, index)
        if not completion.is_final():
            why_unsent = completion._memory.why_unsent
            why = None if why_unsent is None else why_unsent(completion)
            where = "is in flight" if why is None else "has not been sent yet"
            raise KafkaTimeoutError(
                f"no result after {timeout} s; the record of {self.topic}-{self.partition} {where} "
                f"(delivery.timeout.ms bounds it){why or ''}"
            )
        if not self._observed:
            self._observed = True
            kb_lock_acquire(&completion._lock)
            completion._observed_count += 1
            kb_lock_release(&completion._lock)
        return completion


cdef Completion _decisive(Completion completion):
    """Return the part that decides. Outcomes do not change, so it does not matter which come meanwhile: if a
    part was still pending when it was looked at, then that one is returned.
    """
    cdef Completion child, part
    cdef Completion found = None
    if completion.state() != SPLIT:
        return completion
    for child in completion._children:
        part = _decisive(child)
        if not part.is_final():
            return part
        if found is None or (found.state() == SUCCEEDED and part.state() != SUCCEEDED):
            found = part
    return found


cdef int _add_parts(list parts, Completion completion) except -1:
    cdef Completion child
    if completion.state() != SPLIT:
        parts.append(completion)
        return 0
    for child in completion._children:
        _add_parts(parts, child)
    return 0


cdef bint _may_be_in_the_log(Completion part):
    return part.state() == SUCCEEDED or getattr(part._error, "possibly_persisted", False)


@cython.final
@cython.no_gc  # as Delivery
cdef class BatchDelivery(Delivery):
    """The promise that all records of a batch get into the log, from `send_batch`.

    It resembles any Delivery, and is done when the whole batch is. `result()` is the RecordMetadata of the
    first record, with the batch's largest timestamp (the broker's with LogAppendTime) and sizes of -1. Record
    i has `offset` + i, unless the batch exceeded the topic's max.message.bytes and went in parts, between
    which others may have written; `offset_runs()` always has the offsets.

    The batch fails with the error of its first failed part, which has `possibly_persisted` if some of the
    batch is, or may be, in the log.
    """

    @staticmethod
    cdef BatchDelivery of(Completion completion, int64_t max_timestamp_ms, object on_delivery):
        """Create it for a completion that no other thread knows yet, with its number of records."""
        cdef BatchDelivery delivery = BatchDelivery.__new__(BatchDelivery)
        delivery._completion = completion
        delivery._timestamp_ms = max_timestamp_ms
        delivery._key_size = delivery._value_size = -1
        if is_observed_by(on_delivery):
            delivery._observed = True
            completion._observed_count = completion.record_count
        if on_delivery is not None:
            completion._listeners = [(delivery, on_delivery, "on_delivery")]
        return delivery

    @property
    def record_count(self):
        """Number of records of the batch."""
        return self._completion.record_count

    def result(self, timeout=None):
        """Return the metadata of the first record, after up to `timeout` seconds (None: no limit).

        Raises
        ------
        KafkaError
            The error of the batch, or of its first failed part.
        KafkaTimeoutError
            There is no result yet; the delivery goes on.
        """
        error = self.exception(timeout)
        if error is None:
            return self._metadata()
        raise error.with_traceback(None)  # or it would grow with every caller

    def exception(self, timeout=None):
        """Return why the batch failed; None if it was delivered. Wait, and raise, like `result`."""
        cdef int32_t index
        self._await_outcome(timeout, &index)
        return self._error()

    def offset_runs(self, timeout=None):
        """Return where all records are in the log; wait, and raise, like `result`.

        Returns
        -------
        list of OffsetRun
            Pairs (first_offset, record_count), in the order of the records: one, unless the batch was sent in
            parts. An offset is -1 if the broker did not report it.
        """
        cdef Completion part
        self.result(timeout)
        return [OffsetRun(part._base_offset, part.record_count) for part in self._parts()]

    cdef object _error(self):
        cdef int32_t index
        cdef Completion decisive = self._leaf(&index)
        error = decisive._error_of(index)
        if error is None or getattr(error, "possibly_persisted", True):
            return error
        for part in self._parts():
            if _may_be_in_the_log(<Completion>part):
                return error.marked(possibly_persisted=True)
        return error

    cdef object _metadata(self):
        cdef int32_t index
        cdef Completion decisive = self._leaf(&index)
        return decisive._metadata_of(index, self._timestamp_ms, -1, -1)

    cdef list _parts(self):
        """Return the Completions that the batch is sent as."""
        cdef list parts = []
        _add_parts(parts, self._completion)
        return parts

    # Internals of Delivery

    cdef Completion _leaf(self, int32_t *index):
        """Return the deciding part, and its record with an error of its own, if there is one."""
        cdef Completion decisive = _decisive(self._completion)
        index[0] = <int32_t>min(decisive._record_errors) if decisive._record_errors else 0
        return decisive

    cdef Completion _await_outcome(self, object timeout, int32_t *index):
        """Note the check of all records at once."""
        cdef bint was_observed = self._observed
        cdef Completion part
        cdef Completion decisive = Delivery._await_outcome(self, timeout, index)
        if not was_observed:
            for part in self._parts():
                kb_lock_acquire(&part._lock)
                part._observed_count = part.record_count
                kb_lock_release(&part._lock)
        return decisive

    cdef int _call(self, tuple listener) except -1:
        function = listener[1]
        if len(listener) == 2:
            function(self)
        else:
            function(self._metadata(), self._error())
        return 0
