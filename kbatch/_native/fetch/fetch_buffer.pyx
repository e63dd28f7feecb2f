"""FetchBuffer: what was fetched and the program does not have yet, and how it takes records of it.

Theory of operation. The network delivers results to `arrivals`. The program's thread sorts them into queues,
one a partition, and takes records from them, which are made then. Partitions are served in rotation, an
answer each; those that are paused keep what they have. When a fetch is used up its memory goes back to the
engine, which then fetches more. A consumer has all its partitions here, and a TopicReader those of its read.

The program has what lies before the `last` of a cursor, and nothing else says so. Taking sets that after
everything else is done. All of it is native, so a signal handler runs only in what the buffer calls: a
subclass, which judges unusual results; the engine, which gets memory back; deserializers of columns.

Workers that decode ahead of the program may sort, too, and a read may be ended by any thread. Each call has
the GIL, or without one is a critical section of the buffer. Both may go to another thread where Python code
is called. So there queues are as they must be: what arrives for a partition that is no longer read goes back.

The buffer also counts the `changes` that polls must look at, and remembers up to which one they have found
nothing to do but to take or to await records. Until the next change QuickPolls do only that.
"""

cimport cython

from kbatch._native.fetch.arrivals cimport Arrivals
from kbatch._native.fetch.releases cimport Releases
from kbatch._native.flags cimport kb_count_add, kb_count_load

from typing import NamedTuple

# The time of what is never due.
cdef int64_t NEVER_NS = 2**63 - 1
# Of whatever generation.
cdef int64_t ANY = -1


class LastRead(NamedTuple):
    """The offset before a position, the leader epoch of the record there, and the id of the topic. A
    ConsumerRecord says all three, too. At the committed offset, `metadata` is what the group has with it.
    """

    offset: int
    leader_epoch: int = -1
    topic_id: bytes = bytes(16)
    metadata: str = ""


class PolledRecords(NamedTuple):
    """Records that a poll has taken from a fetch.

    Attributes
    ----------
    partition : TopicPartition
    fetch : CompletedFetch
    first_row : int
        The number of records in the fetch before them.
    row_count : int
        How many they are in the fetch.
    records : list of ConsumerRecord
        Those that the program gets.
    """

    partition: object
    fetch: object
    first_row: int
    row_count: int
    records: list


cdef object _new_tuple = tuple.__new__


@cython.final
cdef class CompletedFetch:
    """A result in the queue of its partition. One without records moves the position, or is an error.

    Parameters
    ----------
    result : Fetched, Moved or Failed
    failure : Exception or None
        The reason why nothing more of the partition is read.

    Attributes
    ----------
    result, failure
        The parameters.
    records : FetchedRecords or None
    columns : FetchColumns or None
        Its columns, since a poll has asked for some.
    row_count : int
        The number of rows that the program has as columns.
    first_row : int
        The number of rows that the program has, as columns or as objects.
    is_busy : bool
        True if a worker decodes it.
    is_used_up : bool
        True if it is known to have no more records.
    error : Exception or None
        The reason why it ends early, after it is used up.
    """

    def __init__(self, result, failure=None):
        self.result = result
        self.fetched = result if isinstance(result, Fetched) else None
        self.failure = failure

    @property
    def records(self):
        return self.records_now()

    cdef FetchedRecords records_now(self):
        return None if self.fetched is None else self.fetched.records_now()

    @cython.critical_section
    cdef object columns_now(self):
        return self.columns

    @property
    def first_row(self):
        return self.rows_taken()

    cdef int64_t rows_taken(self) noexcept:
        cdef FetchedRecords records = self.records_now()
        return self.row_count if records is None else max(self.row_count, records.taken_count)

    @property
    def is_busy(self):
        return self.is_decoding()

    cdef bint is_decoding(self) except -1:
        columns = self.columns_now()
        return columns is not None and columns.is_busy

    @property
    def is_used_up(self):
        return self.is_over()

    cdef bint is_over(self) except -1:
        # first: a worker may let go of the records as soon as it has decoded them
        cdef FetchedRecords records = self.records_now()
        columns = self.columns_now()
        decoded = None if columns is None else columns.decoded
        if decoded is not None:
            return self.rows_taken() >= <int64_t>decoded.row_count
        return records is None or records.is_over()

    @property
    def error(self):
        return self.fault()

    cdef object fault(self):
        cdef FetchedRecords records = self.records_now()
        columns = self.columns_now()
        decoded = None if columns is None else columns.decoded
        if decoded is not None:
            return decoded.error
        return self.failure if records is None else records.fault_now()


cdef class QueuedCursor(ReadCursor):
    """Where a program is in a partition, and what was fetched after that.

    Attributes
    ----------
    partition : TopicPartition
    generation : int
        That of its results; those of earlier ones are outdated.
    is_read : bool
        True if it is the latest of its partition, and that is read.
    is_paused : bool
    is_left_out : bool
        True if the program has subscribed to other topics, and the group has not taken it back yet.
    is_silent : bool
        True if no records of it are given to the program.
    queue : deque of CompletedFetch
    first : CompletedFetch or None
        The first one in the queue.
    """

    @property
    def is_silent(self):
        return self.keeps_silent()

    @property
    def first(self):
        return self.head()

    cdef bint keeps_silent(self) noexcept:
        return self.is_paused or self.is_left_out

    cdef CompletedFetch head(self):
        """Return the first fetch of the queue; None if there is none."""
        return self.at(0)

    cdef CompletedFetch at(self, Py_ssize_t index):
        """Return a fetch of the queue; None if it has fewer. Any thread may call this."""
        if index < len(self.queue):
            try:
                return self.queue[index]
            except IndexError:  # another thread has taken it away just now
                pass
        return None


cdef class FetchBuffer:
    """All partitions of a client, with what was fetched. The subclass judges what is unusual: `_adopt` a
    later generation, `_put_unusual` what are no records, `_raised` errors.

    Parameters
    ----------
    arrivals : Arrivals
    release : Releases
        Gives the memory of results back to the engine.
    wake : callable
        Wakes the engine's owner.

    Attributes
    ----------
    arrivals
        The parameter.
    assigned : dict of TopicPartition to QueuedCursor
    changes : int
        The number of calls of `note_change`.
    polled_changes : int
        Of those before the last poll looked at anything.
    poll_count : int
        The number of polls.
    due_ns : int
        When a poll has something to do though nothing has changed.
    faulty : set of TopicPartition
        Those with a fault that lasts until there are records again.
    passed : deque of (Fetched or Moved, int), or None
        Gets the results that the program has passed, and how many rows it had of each; None for none.
    """

    def __init__(self, Arrivals arrivals not None, Releases release not None, wake):
        self.arrivals = arrivals
        self.assigned = {}
        self._round_robin, self._moved, self._uncommitted, self._before = {}, {}, {}, {}
        self._release, self._wake = release, wake
        self.faulty = set()
        self._quiet_changes = self._awaited_changes = -1
        self.due_ns = NEVER_NS

    # What polls must look at

    @property
    def changes(self):
        return self.change_count()

    cdef int64_t change_count(self) noexcept:
        return kb_count_load(&self._changes)

    def note_change(self):
        """Make the next poll look at all that may have happened, and an iteration poll after the record that
        the program has. Any thread may call it.
        """
        kb_count_add(&self._changes, 1)
        for cursor in list(self.assigned.values()):
            (<QueuedCursor>cursor).use(None)

    def note_quiet(self, *, bint awaits):
        """Record that a poll has found nothing to do but to take records; or, if it `awaits` some, nothing
        else whether there are any or not. Until the next change that is so for all polls.
        """
        self._quiet_changes = self.polled_changes
        if awaits:
            self._awaited_changes = self.polled_changes

    cdef bint may_take(self) noexcept:
        """True if a poll has nothing to do but to take the records that are there."""
        return self.change_count() == self._quiet_changes

    cdef bint may_wait(self) noexcept:
        """True if a poll has nothing to do but to wait for records."""
        return self.change_count() == self._awaited_changes

    @cython.critical_section
    cpdef note_poll(self, int64_t changes):
        """Count what was delivered as processed. Discard what an iteration has used up: a poll then waits
        without looking at it first. `changes` is their number before the poll has looked at anything.
        """
        cdef QueuedCursor cursor
        cdef CompletedFetch fetch
        iterated = list(self._before) if self._is_iterating else ()
        self._before.clear()
        self._is_iterating = False
        self.polled_changes = changes
        self.poll_count += 1
        for cursor in iterated:
            if cursor.is_read and (fetch := cursor.head()) is not None and not fetch.is_decoding():
                self._discard_head(cursor)

    # Where the program is

    cpdef note_moved(self, QueuedCursor cursor):
        """Note that the position in a partition has moved, for the one thread that has records of it."""
        self._moved[cursor] = self._uncommitted[cursor] = None

    cpdef dict take_moves(self):
        """Return what was read last where that has changed since the last call."""
        cdef QueuedCursor cursor
        cdef dict moved = self._moved
        self._moved = {}
        return {cursor.partition: last for cursor in moved if (last := cursor.last_now()) is not None}

    cpdef FetchIterator begin_iterator(self, QueuedCursor cursor, FetchedRecords records, Py_ssize_t most):
        """Return an iterator over up to so many records of a partition."""
        cdef FetchIterator iterator = iterator_over(cursor, records, most)
        self._before[cursor] = cursor.last_now()
        self._uncommitted[cursor] = None
        self._is_iterating = True
        cursor.use(iterator)
        if self.change_count() != self.polled_changes:  # the change has ended no iterator since
            iterator = iterator_over(cursor, records, 1)
            cursor.use(iterator)
        return iterator

    # Which partitions

    @cython.critical_section
    cpdef add(self, QueuedCursor cursor):
        """Read a partition, instead of an earlier state of it."""
        cdef QueuedCursor before = self.assigned.get(cursor.partition)
        cursor.is_read = True
        self.assigned[cursor.partition] = cursor
        self._uncommitted[cursor] = None
        if before is not None:
            cursor.is_paused, cursor.is_left_out = before.is_paused, before.is_left_out
            self._end(before)

    @cython.critical_section
    cpdef end(self, QueuedCursor cursor):
        """Read a partition no more. Any thread may call it."""
        if self.assigned.get(cursor.partition) is cursor:
            del self.assigned[cursor.partition]
        self._end(cursor)

    cdef int _end(self, QueuedCursor cursor) except -1:
        cursor.is_read = False
        self._moved.pop(cursor, None)
        self._uncommitted.pop(cursor, None)
        self._before.pop(cursor, None)
        return self._drop(cursor)

    # What arrives

    @cython.critical_section
    cpdef sort(self):
        """Put what has arrived into the queues. An interrupt in it neither loses nor doubles a result. If
        another thread sorts, that does it.
        """
        self._is_asked = True
        if self._is_sorting:
            return
        self._is_sorting = True
        try:
            while self._is_asked:
                self._is_asked = False
                results = self.arrivals.collect()
                while results:
                    self._sort_result(results[0])
                    results.popleft()
        finally:
            self._is_sorting = False

    cdef int _sort_result(self, object result) except -1:
        cdef CompletedFetch last
        cdef Fetched fetched = result if isinstance(result, Fetched) else None
        cdef int64_t generation = result.generation if fetched is None else fetched.generation
        cdef QueuedCursor cursor = self.assigned.get(result.partition if fetched is None
                                                     else fetched.partition)
        if cursor is not None and generation > cursor.generation:
            cursor = self._adopt(cursor, generation)
        if cursor is None or generation != cursor.generation:
            if fetched is not None:
                self.give_back(fetched, 0)
            return 0
        last = cursor.at(len(cursor.queue) - 1) if cursor.queue else None
        if last is None or last.result is not result:
            if fetched is None:
                self._put_unusual(cursor, result)
            else:
                self._put(cursor, fetched)
        if not cursor.is_read:  # it was ended meanwhile
            self._drop(cursor)
        elif cursor.queue:
            self._round_robin.setdefault(cursor, cursor)
        return 0

    cdef int _put(self, QueuedCursor cursor, Fetched fetched) except -1:
        cdef CompletedFetch fetch
        if fetched.partition in self.faulty:
            self._end_fault(cursor)
        if cursor.last_now() is None and not self.find_position(cursor):
            cursor.note_last(LastRead(fetched.from_offset - 1, topic_id=fetched.topic_id))
        fetch = CompletedFetch.__new__(CompletedFetch)
        fetch.result = fetch.fetched = fetched
        cursor.queue.append(fetch)
        return 0

    cdef int give_back(self, Fetched fetched, int64_t row_count) except -1:
        """Give the memory of a result back to the engine."""
        if self._release.give_back(fetched, row_count):
            self._wake()
        return 0

    @cython.critical_section
    cpdef drop(self, QueuedCursor cursor):
        """Drop what was fetched of a partition."""
        self._drop(cursor)

    cdef int _drop(self, QueuedCursor cursor) except -1:
        cdef CompletedFetch fetch
        cdef bint is_awaited = False
        cursor.use(None)
        self._round_robin.pop(cursor, None)
        while cursor.queue:
            fetch = cursor.queue.popleft()
            if fetch.fetched is not None and self._release.give_back(fetch.fetched, fetch.rows_taken()):
                is_awaited = True
        if is_awaited:
            self._wake()
        return 0

    # What there is

    def begun(self):
        """Yield the partitions of which something is here, with a position, in the order in which they are
        served. What is sorted meanwhile is not looked at.
        """
        for cursor in list(self._round_robin):
            if cursor.queue and cursor.last is not None:
                yield cursor

    def in_order(self):
        """Yield the partition of each fetch, and the fetch, in the order in which they are taken. What is
        sorted meanwhile is not looked at.
        """
        cdef QueuedCursor cursor
        cdef CompletedFetch fetch
        cdef list left = list(self._round_robin)
        cdef list longer
        cdef Py_ssize_t index = 0
        while left:
            longer = []
            for cursor in left:
                fetch = None if cursor.keeps_silent() else cursor.at(index)
                if fetch is not None:
                    longer.append(cursor)
                    yield cursor, fetch
            left = longer
            index += 1

    @property
    def has_next(self):
        """True if `next_with_record` has something to return or raise."""
        return self.has_record()

    @cython.critical_section
    cdef bint has_record(self) except -1:
        return self._next_cursor(ANY) is not None

    cdef QueuedCursor _next_cursor(self, int64_t generation):
        cdef QueuedCursor cursor
        cdef CompletedFetch fetch
        for each in self._round_robin:
            cursor = each
            if generation != ANY and cursor.generation != generation:
                continue
            # an interrupt may have left an empty queue here
            fetch = cursor.head()
            if fetch is not None and not cursor.keeps_silent() and not fetch.is_decoding():
                return cursor
        return None

    @cython.critical_section
    cpdef bint starves(self) except -1:
        """True if only partitions that are silent have something here, and their memory keeps the others from
        being fetched.
        """
        cdef QueuedCursor cursor
        cdef bint has_silent = False
        if not self._release.is_memory_used_up():
            return False
        for each in self._round_robin:
            cursor = each
            if cursor.queue:
                if not cursor.keeps_silent():
                    return False
                has_silent = True
        return has_silent

    @cython.critical_section
    cpdef move_to_end(self, QueuedCursor cursor):
        """Serve the other partitions first."""
        self._move_to_end(cursor)

    cdef int _move_to_end(self, QueuedCursor cursor) except -1:
        if self._round_robin.pop(cursor, None) is not None and cursor.queue:
            self._round_robin[cursor] = cursor
        return 0

    @cython.critical_section
    cpdef discard_head(self, QueuedCursor cursor):
        """Discard what is used up at the head of the queue. Return an error that is there."""
        return self._discard_head(cursor)

    cdef object _discard_head(self, QueuedCursor cursor):
        cdef CompletedFetch fetch
        cdef Fetched fetched
        while (fetch := cursor.head()) is not None and fetch.is_over():
            if (error := fetch.fault()) is not None:
                return error
            fetched = fetch.fetched
            self.note_moved(cursor)
            if fetched is None:
                moved = fetch.result
                cursor.note_last(LastRead(moved.to_offset - 1, moved.last_epoch, moved.topic_id))
            elif fetched.next_offset > cursor.next_offset():
                cursor.note_last(LastRead(fetched.next_offset - 1, fetched.last_epoch, fetched.topic_id))
            if fetched is not None:
                self.give_back(fetched, fetch.rows_taken())  # first: after an interrupt it is done again
            if not cursor.is_read:  # it was ended meanwhile
                return None
            if self.passed is not None:
                self.passed.append((fetch.result, fetch.rows_taken()))
            if cursor.head() is fetch:  # or else it was dropped meanwhile
                cursor.queue.popleft()
            self._move_to_end(cursor)
        return None

    # Taking

    @cython.critical_section
    cpdef QueuedCursor next_with_record(self, bint raises, int64_t generation=ANY):
        """Return the next partition of the rotation, whose first fetch has another record. None if nothing
        is there, or instead of raising an error. With a generation, the others are not looked at.
        """
        return self._next_with_record(raises, generation)

    cdef QueuedCursor _next_with_record(self, bint raises, int64_t generation):
        cdef QueuedCursor cursor
        cdef CompletedFetch fetch
        cdef FetchedRecords records
        while (cursor := self._next_cursor(generation)) is not None:
            cursor.use(None)
            fetch = cursor.head()
            columns = None if fetch is None else fetch.columns_now()
            if columns is not None:
                columns.forget()
            if (error := self._discard_head(cursor)) is not None:
                if raises:
                    raise self._raised(cursor, error)
                return None
            fetch = cursor.head()
            if fetch is None or fetch.is_decoding() or fetch.fetched is None:
                continue
            records = fetch.records_now()
            if records is not None and records.skip_to(cursor.next_offset()):
                return cursor
        return None

    @cython.critical_section
    cpdef take_next(self, Py_ssize_t most, bint raises, int64_t generation=ANY):
        """Return the next records of one fetch as PolledRecords, `most` at most, which count as delivered.
        None if nothing is there, or instead of raising an error. With a generation, the others keep theirs.
        """
        return self._take_next(most, raises, generation)

    cdef object _take_next(self, Py_ssize_t most, bint raises, int64_t generation):
        cdef list records
        cdef CompletedFetch fetch
        cdef FetchedRecords left
        cdef int64_t first_row
        cdef QueuedCursor cursor = self._next_with_record(raises, generation)
        if cursor is None or (fetch := cursor.head()) is None or (left := fetch.records_now()) is None:
            return None
        self._before.setdefault(cursor, cursor.last_now())
        first_row = fetch.rows_taken()
        records = cursor.take(left, most)
        self.note_moved(cursor)
        self._discard_head(cursor)
        return _new_tuple(PolledRecords, (cursor.partition, fetch, first_row, len(records), records))

    @cython.critical_section
    cpdef list take_records(self, Py_ssize_t most):
        """Return the next records, `most` at most, which count as delivered."""
        cdef list polled = []
        while most > 0 and (taken := self._take_next(most, not polled, ANY)) is not None:
            polled.append(taken)
            most -= <Py_ssize_t>taken.row_count
        return polled
