"""QuickPolls: polls and iterations for which records are all that matters, each in one native step.

Theory of operation. A poll of the consumer, which is a coroutine, looks at everything that may have happened:
rebalances, commits, errors, logins, the end of the consumer. If it has found nothing but records, or that
there are none yet, FetchBuffer knows so until the next change. Until then a poll is quick: it takes what is
there, or waits. It decides nothing else. As soon as there is a change, or anything unusual about a call, a
quick poll has taken nothing, and leaves the poll to the coroutine.

Threads wait here. The events on which they wait are in the Condition that the engine's changes and arrivals
notify, like the waiters of all other calls.
"""

cimport cython
from cpython.time cimport PyTime_MonotonicRaw
from libc.stdint cimport INT64_MAX, int64_t

from kbatch._native.fetch.fetch_buffer cimport FetchBuffer, QueuedCursor
from kbatch._native.fetch.read_cursor cimport FetchIterator
from kbatch._native.io.interrupts cimport NativeEvent
from kbatch._native.io.sensor cimport Sensor, kb_sensor_record
from kbatch._native.io.sole_user cimport SoleUser
from kbatch._native.io.waiters cimport Waiters

cdef double NS_PER_SECOND = 1e9
cdef int64_t NS_PER_MS = 1_000_000

# How the wait of a quick poll ends.
cdef enum Wait:
    FOUND     # there are records, or an error that taking them raises
    TIMED_OUT
    UNUSUAL   # the coroutine must look


@cython.final
cdef class PollTimes:
    """Records when polls begin and end.

    Parameters
    ----------
    between : Sensor
        Milliseconds between the beginnings of two polls.
    idle : Sensor
        The share of the time from one beginning to the next that was spent in polls.

    Attributes
    ----------
    began_ns : int
        When the last poll has begun; -1 before the first.
    """

    cdef Sensor _between
    cdef Sensor _idle
    cdef readonly int64_t began_ns
    cdef int64_t _away_ns             # between the beginnings of the last two polls
    cdef bint _is_open

    def __cinit__(self, Sensor between not None, Sensor idle not None):
        self._between, self._idle = between, idle
        self.began_ns = -1

    cpdef begin(self, int64_t now_ns):
        """Record the beginning of a poll, unless it is one that a quick poll has begun."""
        if self._is_open:
            return
        self._is_open = True
        self._away_ns = 0 if self.began_ns < 0 else now_ns - self.began_ns
        kb_sensor_record(&self._between.raw, self._away_ns / <double>NS_PER_MS, now_ns // NS_PER_MS)
        self.began_ns = now_ns

    cdef int begin_anew(self, int64_t now_ns) except -1:
        """Record the beginning of a quick poll, which goes on with no other: one that began before it was
        interrupted.
        """
        self._is_open = False
        self.begin(now_ns)
        return 0

    cpdef end(self, int64_t now_ns):
        """Record its end."""
        cdef int64_t polled_ns = now_ns - self.began_ns
        cdef double idle = <double>polled_ns / (polled_ns + self._away_ns) if polled_ns else 0.0
        self._is_open = False
        kb_sensor_record(&self._idle.raw, idle, now_ns // NS_PER_MS)


@cython.final
cdef class QuickPolls:
    """The quick polls of a consumer that a thread uses.

    Parameters
    ----------
    buffer : FetchBuffer
    user : SoleUser
    times : PollTimes
    waiters : Waiters
        Those of the Condition that arrivals and changes notify.
    engine : MemberEngine
        Its `polled_ns` is set.
    new_polled : callable
        Makes of PolledRecords, and of what has moved, what `poll` returns.
    most_records : int
        max.poll.records.
    longest_wait_ns : int
        The time after which the engine must be told that a poll still waits.
    """

    cdef FetchBuffer _buffer
    cdef SoleUser _user
    cdef PollTimes _times
    cdef Waiters _waiters
    cdef object _engine
    cdef object _new_polled
    cdef int64_t _most_records
    cdef int64_t _longest_wait_ns
    cdef int64_t _waited_ns           # in the last poll, which came to nothing; 0

    def __cinit__(self, FetchBuffer buffer not None, SoleUser user not None, PollTimes times not None,
                  Waiters waiters not None, *, engine, new_polled, int64_t most_records,
                  int64_t longest_wait_ns):
        self._buffer, self._user, self._times, self._waiters = buffer, user, times, waiters
        self._engine = engine
        self._new_polled = new_polled
        self._most_records, self._longest_wait_ns = most_records, longest_wait_ns

    def poll(self, timeout, max_records):
        """Return the next records, as Consumer.poll does; None if the coroutine must do it, with the time-out
        that `left_of` returns.
        """
        cdef int64_t most = self._most_records if max_records is None else _positive(max_records)
        cdef int64_t timeout_ns = INT64_MAX if timeout is None else _nanoseconds(timeout)
        cdef int64_t began_ns
        cdef Wait wait
        self._waited_ns = 0
        if most < 1 or timeout_ns < 0 or (began_ns := self._begin()) < 0:
            return None
        polled = None
        try:
            while polled is None and (wait := self._await_next(began_ns, timeout_ns)) != UNUSUAL:
                taken = self._buffer.take_records(most) if wait == FOUND else []
                if taken or wait == TIMED_OUT:
                    polled = self._new_polled(taken, self._buffer.take_moves())
        except BaseException:
            self._fail()
            raise
        return self._ended(polled, began_ns)

    def left_of(self, timeout):
        """Return what is left of a time-out after a poll that came to nothing."""
        if timeout is None or self._waited_ns == 0:
            return timeout
        return max(0.0, timeout - self._waited_ns / NS_PER_SECOND)

    def next_iterator(self):
        """Return the next records, as an iteration gives them; None if the coroutine must do it."""
        cdef FetchIterator iterator = None
        cdef QueuedCursor cursor
        cdef int64_t began_ns = self._begin()
        if began_ns < 0:
            return None
        try:
            while iterator is None and self._await_next(began_ns, INT64_MAX) == FOUND:
                cursor = self._buffer.next_with_record(True)
                if cursor is not None:
                    iterator = self._buffer.begin_iterator(cursor, cursor.head().fetched.records, INT64_MAX)
        except BaseException:
            self._fail()
            raise
        return self._ended(iterator, began_ns)

    cdef int64_t _begin(self) except -2:
        """Begin a poll, and return the time; -1 if it cannot be quick."""
        cdef FetchBuffer buffer = self._buffer
        cdef int64_t now_ns
        if not buffer.may_take() or not self._user.enter_if_free():
            return -1
        try:
            now_ns = PyTime_MonotonicRaw()
            # once more, as close() has waited for other users only
            if not buffer.may_take() or not buffer.assigned or now_ns >= buffer.due_ns:
                self._user.leave()
                return -1
            self._engine.polled_ns = now_ns
            buffer.note_poll(buffer.changes)
            self._times.begin_anew(now_ns)
        except BaseException:
            self._user.leave()
            raise
        return now_ns

    cdef object _ended(self, object found, int64_t began_ns):
        """End a poll, and return what it has found; None leaves the poll to the coroutine."""
        if found is None:
            self._waited_ns = PyTime_MonotonicRaw() - began_ns
            self._user.leave()
        else:
            self._end()
        return found

    cdef int _fail(self) except -1:
        """End a poll that an error or an interrupt has ended; another interrupt may come meanwhile."""
        try:
            self._buffer.take_back()
        finally:
            self._end()
        return 0

    cdef int _end(self) except -1:
        try:
            self._times.end(PyTime_MonotonicRaw())
        finally:
            self._user.leave()
        return 0

    cdef Wait _await_next(self, int64_t began_ns, int64_t timeout_ns) except *:
        """Wait until the buffer has records for the program, for so long since the poll has begun."""
        cdef FetchBuffer buffer = self._buffer
        cdef int64_t waited_ns
        cdef NativeEvent event
        buffer.sort()
        while buffer.next_cursor() is None:
            if not buffer.may_wait() or buffer.starves():
                return UNUSUAL
            waited_ns = PyTime_MonotonicRaw() - began_ns
            if waited_ns >= timeout_ns:
                return TIMED_OUT
            if waited_ns >= self._longest_wait_ns:
                return UNUSUAL
            event = NativeEvent.__new__(NativeEvent)
            self._waiters.put(event, event)  # before the look, so that nothing is missed
            try:
                buffer.sort()
                if buffer.next_cursor() is None and buffer.may_wait():
                    event.wait_for((min(timeout_ns, self._longest_wait_ns) - waited_ns) / NS_PER_SECOND)
            finally:
                self._waiters.drop(event, event)
            buffer.sort()
        return FOUND if buffer.may_take() else UNUSUAL


cdef int64_t _positive(object number) except? -1:
    """Return an integer; 0 if it is none that is above 0, or too large."""
    return number if type(number) is int and 0 < number <= INT64_MAX else 0


cdef int64_t _nanoseconds(object seconds) except? -1:
    """Return a time-out in nanoseconds; -1 if it is none."""
    if (type(seconds) is float or type(seconds) is int) and 0 <= seconds:
        return INT64_MAX if seconds > 1e9 else <int64_t>(<double>seconds * NS_PER_SECOND)
    return -1
