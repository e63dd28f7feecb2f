"""BatchDelivery: what `send_batch` gives, one delivery for all records of a batch.

Theory of operation. A Delivery asks its Completion about one place in it; this one asks about all of it. As
long as the batch is whole there is no difference. One that was too large for the broker is sent in parts,
whose Completions are the children of the first, and what is said of the whole is what the part says that
decides: the first that is pending, or the first that failed, or else the first of all.

Whoever wants to be told is a listener, on_delivery too. It waits with a part that is pending, and when that
is settled goes on to the next, until there is none: so it is called once, behind the last part.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kbatch._native.batch.delivery cimport PENDING, SPLIT, SUCCEEDED, Completion, Delivery, tells
from kbatch._native.codec.lock cimport kb_lock_acquire, kb_lock_release

from collections import namedtuple

OffsetRun = namedtuple("OffsetRun", "first_offset record_count", module=__name__)
OffsetRun.__doc__ = "Records that stand one behind another from `first_offset` on; -1: it is not known where."


cdef Completion _decisive(Completion completion):
    """Nothing is allocated here, so that no other thread comes in between: the outcomes are of one moment."""
    cdef Completion child, part
    cdef Completion found = None
    if completion._outcome != SPLIT:
        return completion
    for child in completion._children:
        part = _decisive(child)
        if part._outcome == PENDING:
            return part
        if found is None or (found._outcome == SUCCEEDED and part._outcome != SUCCEEDED):
            found = part
    return found


cdef int _add_parts(list parts, Completion completion) except -1:
    cdef Completion child
    if completion._outcome != SPLIT:
        parts.append(completion)
        return 0
    for child in completion._children:
        _add_parts(parts, child)
    return 0


cdef bint _may_be_in_the_log(Completion part):
    return part._outcome == SUCCEEDED or getattr(part._error, "possibly_persisted", False)


@cython.final
@cython.no_gc  # as Delivery
cdef class BatchDelivery(Delivery):
    """What `send_batch` gives: the promise of a place in the log for all records of a batch.

    It reads like any Delivery, and is done when all of the batch is. `result()` is the RecordMetadata of the
    first record, with the batch's largest timestamp (the broker's with LogAppendTime) and sizes of -1: record
    i stands at `offset` + i, unless the batch was larger than the topic's max.message.bytes and went in
    parts, between which others may have written; `offset_runs()` says where the records stand in any case.

    The batch fails with the first error that a part of it failed with. That has `possibly_persisted` where
    some of the batch is in the log, or may be.
    """

    @staticmethod
    cdef BatchDelivery of(Completion completion, int64_t max_timestamp_ms, object on_delivery):
        """For a completion that nobody else knows yet; it has the number of its records."""
        cdef BatchDelivery delivery = BatchDelivery.__new__(BatchDelivery)
        delivery._completion = completion
        delivery._timestamp_ms = max_timestamp_ms
        delivery._key_size = delivery._value_size = -1
        if tells(on_delivery):
            delivery._observed = True
            completion._observed_count = completion.record_count
        if on_delivery is not None:
            completion._listeners = [(delivery, on_delivery, "on_delivery")]
        return delivery

    @property
    def record_count(self):
        """Records of the batch."""
        return self._completion.record_count

    def result(self, timeout=None):
        """Where the first record went, after up to `timeout` seconds (None: as long as it takes).

        Raises
        ------
        KafkaError
            Why the batch, or the first part of it that did, failed.
        KafkaTimeoutError
            It is not known yet; the delivery goes on.
        """
        error = self.exception(timeout)
        if error is None:
            return self._metadata()
        raise error.with_traceback(None)  # or it would grow with everyone who asks

    def exception(self, timeout=None):
        """Why the batch failed; None where it was delivered. Waits, and raises, as `result` does."""
        cdef int32_t index
        self._settled(timeout, &index)
        return self._error()

    def offset_runs(self, timeout=None):
        """Where all records stand; waits, and raises, as `result` does.

        Returns
        -------
        list of OffsetRun
            Pairs (first_offset, record_count), in the order of the records: one, unless the batch was sent in
            parts. An offset is -1 where the broker did not say it.
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
        """What the batch is sent as."""
        cdef list parts = []
        _add_parts(parts, self._completion)
        return parts

    # As Delivery has them.

    cdef Completion _leaf(self, int32_t *index):
        """The part that decides; and which record of it has an error of its own, where there is one."""
        cdef Completion decisive = _decisive(self._completion)
        index[0] = <int32_t>min(decisive._record_errors) if decisive._record_errors else 0
        return decisive

    cdef Completion _settled(self, object timeout, int32_t *index):
        """One look is a look at all records."""
        cdef bint was_observed = self._observed
        cdef Completion part
        cdef Completion decisive = Delivery._settled(self, timeout, index)
        if not was_observed:
            for part in self._parts():
                kb_lock_acquire(&part._lock)
                part._observed_count = part.record_count
                kb_lock_release(&part._lock)
        return decisive

    cdef int _tell(self, tuple listener) except -1:
        function = listener[1]
        if len(listener) == 2:
            function(self)
        else:
            function(self._metadata(), self._error())
        return 0
