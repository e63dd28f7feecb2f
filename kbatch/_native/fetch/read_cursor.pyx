"""ReadCursor: where a program is in a partition, and the records that it takes one by one.

A record is made when it is taken, in memory that the last one has left in the processor's cache. Taking it
and noting that the program has it are one native step: no signal handler comes between.
"""

cimport cython


cdef class ReadCursor:
    """Where a program is in a partition.

    Attributes
    ----------
    last : ConsumerRecord, LastRead or None
        What it has read last; None if its position is not known yet.
    iterator : FetchIterator or None
        The one that gives records of the partition now; another call ends it.
    position : int
        The offset of the next record; 0 if it is not known yet.
    """

    @cython.critical_section
    cdef int64_t next_offset(self) except? -1:
        """Return the offset of the next record; 0 if the position is not known yet."""
        if isinstance(self.last, ConsumerRecord):
            return (<ConsumerRecord>self.last).offset + 1
        return 0 if self.last is None else self.last.offset + 1

    @cython.critical_section
    cdef object last_now(self):
        return self.last

    @cython.critical_section
    cdef void note_last(self, object last) noexcept:
        self.last = last

    @cython.critical_section
    cdef void use(self, FetchIterator iterator) noexcept:
        """Give records by this iterator from now on; None for none."""
        self.iterator = iterator

    @property
    def position(self):
        """The offset of the next record; 0 if it is not known yet."""
        return self.next_offset()

    def take(self, FetchedRecords records not None, Py_ssize_t count):
        """Return the next records, `count` at most, and note that the program has them."""
        cdef list taken = records.take_records(count)
        if taken:
            self.note_last(taken[len(taken) - 1])
        return taken


@cython.final
cdef class FetchIterator:
    """Iterates over up to `count` records, and moves a cursor to each of them. It ends, too, if the cursor
    has another iterator.
    """

    def __init__(self, ReadCursor cursor not None, FetchedRecords records not None, Py_ssize_t count):
        self._cursor = cursor
        self._records = records
        self._left = count

    cdef ConsumerRecord take(self):
        """Return the next record; None at the end."""
        cdef FetchedRecords records = self._records_now()
        cdef ConsumerRecord record
        if records is None:
            return None
        with cython.critical_section(self._cursor, records):
            if self._left > 0 and self._cursor.iterator is self:
                record = records.next_record()
                # another thread may have ended the iterator while a batch was decompressed
                if record is not None and self._cursor.iterator is self:
                    self._left -= 1
                    self._cursor.last = record
                    records.leave()
                    return record
            if self._cursor.iterator is self:
                self._cursor.iterator = None
        self._end()
        return None

    @cython.critical_section
    cdef FetchedRecords _records_now(self):
        return self._records

    @cython.critical_section
    cdef void _end(self) noexcept:
        self._records = None  # whose memory may be large

    def __iter__(self):
        return self

    def __next__(self):
        cdef ConsumerRecord record = self.take()
        if record is None:
            raise StopIteration
        return record


cdef FetchIterator iterator_over(ReadCursor cursor, FetchedRecords records, Py_ssize_t count):
    """Return a new FetchIterator."""
    cdef FetchIterator iterator = FetchIterator.__new__(FetchIterator)
    iterator._cursor, iterator._records, iterator._left = cursor, records, count
    return iterator


@cython.final
cdef class ChainedIterator:
    """Iterates over the records of all iterators that `next_iterator()` returns, until that is None.

    Parameters
    ----------
    next_iterator : callable
        Returns a FetchIterator, or None.
    quick : callable or None
        Called first; if it returns None, too, `next_iterator` decides.
    """

    cdef object _next_iterator
    cdef object _quick
    cdef FetchIterator _iterator

    def __init__(self, next_iterator, quick=None):
        self._next_iterator = next_iterator
        self._quick = quick

    def __iter__(self):
        return self

    def __next__(self):
        cdef FetchIterator iterator = self._iterator_now()
        cdef ConsumerRecord record
        while True:
            if iterator is not None:
                record = iterator.take()
                if record is not None:
                    return record
            iterator = None if self._quick is None else self._quick()
            if iterator is None:
                iterator = self._next_iterator()
            self._use(iterator)
            if iterator is None:
                raise StopIteration

    @cython.critical_section
    cdef FetchIterator _iterator_now(self):
        return self._iterator

    @cython.critical_section
    cdef void _use(self, FetchIterator iterator) noexcept:
        self._iterator = iterator
