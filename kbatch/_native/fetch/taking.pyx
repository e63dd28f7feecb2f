"""Taking: where a program is in a partition, and the records that it takes one by one.

A record is made when it is taken, in memory that the last one has left in the processor's cache. Taking it
and noting that the program has it are one native step: no signal handler comes between.
"""

cimport cython

from kbatch._native.codec.record cimport ConsumerRecord
from kbatch._native.fetch.fetched_batches cimport FetchedRecords


cdef class Place:
    """Where a program is in a partition.

    Attributes
    ----------
    last : ConsumerRecord, LastRead or None
        What it has read last; None if its place is not known yet.
    lot : Lot or None
        What an iteration takes; another call ends that.
    """

    cdef public object last
    cdef public object lot

    def take(self, FetchedRecords records not None, Py_ssize_t count):
        """Return the next records, `count` at most, and note that the program has them."""
        cdef list taken = records.take_records(count)
        if taken:
            self.last = taken[len(taken) - 1]
        return taken


@cython.final
cdef class Lot:
    """Iterates over up to `count` records, and notes each of them as the last one of a place. It ends, too,
    if that has another lot.
    """

    cdef Place _place
    cdef FetchedRecords _records
    cdef Py_ssize_t _left

    def __init__(self, Place place not None, FetchedRecords records not None, Py_ssize_t count):
        self._place = place
        self._records = records
        self._left = count

    cdef ConsumerRecord take(self):
        """Return the next record; None at the end."""
        cdef ConsumerRecord record
        if self._records is None:
            return None
        if self._left > 0 and self._place.lot is self:
            record = self._records.next_record()
            # another thread may have ended the lot while a batch was decompressed
            if record is not None and self._place.lot is self:
                self._left -= 1
                self._place.last = record
                self._records.leave()
                return record
        self._records = None  # whose memory may be large
        if self._place.lot is self:
            self._place.lot = None
        return None

    def __iter__(self):
        return self

    def __next__(self):
        cdef ConsumerRecord record = self.take()
        if record is None:
            raise StopIteration
        return record


@cython.final
cdef class LotIterator:
    """Iterates over the records of all lots that `next_lot()` returns, until that is None."""

    cdef object _next_lot
    cdef Lot _lot

    def __init__(self, next_lot):
        self._next_lot = next_lot

    def __iter__(self):
        return self

    def __next__(self):
        cdef ConsumerRecord record
        while True:
            if self._lot is not None:
                record = self._lot.take()
                if record is not None:
                    return record
                self._lot = None
            self._lot = self._next_lot()
            if self._lot is None:
                raise StopIteration
