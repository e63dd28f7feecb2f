"""QuickPolls: polls and iterations for which records are all that matters, each in one native step.

Theory of operation. A poll of the consumer, which is a coroutine, looks at everything that may have happened:
rebalances, commits, errors, logins, the end of the consumer. If it has found nothing but records, or that
there are none yet, FetchBuffer knows so until the next change. Until then a poll is quick: it takes what is
there, or waits. It decides nothing else. As soon as there is a change, or anything unusual about a call, a
quick poll has taken nothing, and leaves the poll to the coroutine.

Threads wait here, and so do tasks. Their events and waiters are in the Condition that the engine's changes
and arrivals notify, like the waiters of all other calls.

The network runs on the loop of a task. So a task gives way before it polls, unless it has waited or given way
just now: no longer than TURN_NS ago, and since then it has taken few records.
"""

cimport cython
from cpython.time cimport PyTime_MonotonicRaw
from libc.stdint cimport INT64_MAX, int64_t

from kbatch._native.fetch.fetch_buffer cimport CompletedFetch, FetchBuffer, QueuedCursor
from kbatch._native.fetch.fetched_batches cimport FetchedRecords
from kbatch._native.fetch.read_cursor cimport FetchIterator
from kbatch._native.io.interrupts cimport NativeEvent
from kbatch._native.io.sensor cimport Sensor, kb_sensor_record
from kbatch._native.io.sole_user cimport SoleUser
from kbatch._native.io.waiters cimport Waiters

cdef double NS_PER_SECOND = 1e9
cdef int64_t NS_PER_MS = 1_000_000

# What a quick poll sees.
cdef enum Look:
    FOUND     # there are records, or an error that taking them raises
    EMPTY     # there are none yet
    TIMED_OUT
    UNUSUAL   # the coroutine must look

# How long a task is busy before others run: as long as a thread keeps the GIL.
cdef int64_t TURN_NS = 5_000_000


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
    """The quick polls of a consumer that threads use, or tasks.

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
    new_waiter, deadline, give_way : callable or None
        For tasks: `new_waiter()` returns a Waiter, `deadline(seconds)` until when it waits, and
        `await give_way()` lets others run.
    turn_records : int
        For tasks: the records that one takes before others run.
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
    cdef int64_t _left_ns             # until the wait of this poll ends
    # of tasks
    cdef object _new_waiter
    cdef object _deadline
    cdef object _give_way
    cdef int64_t _turn_records
    cdef int64_t _turn_began_ns
    cdef int64_t _turn_left           # records
    cdef QueuedCursor _iterated       # what an iteration moves,
    cdef int64_t _iterated_from       # and from where on

    def __cinit__(self, FetchBuffer buffer not None, SoleUser user not None, PollTimes times not None,
                  Waiters waiters not None, *, engine, new_polled, int64_t most_records,
                  int64_t longest_wait_ns, new_waiter=None, deadline=None, give_way=None,
                  int64_t turn_records=0):
        self._buffer, self._user, self._times, self._waiters = buffer, user, times, waiters
        self._engine = engine
        self._new_polled = new_polled
        self._most_records, self._longest_wait_ns = most_records, longest_wait_ns
        self._new_waiter, self._deadline, self._give_way = new_waiter, deadline, give_way
        self._turn_records = turn_records

    def poll(self, timeout, max_records):
        """Return the next records, as Consumer.poll does; None if the coroutine must do it, with the time-out
        that `left_of` returns.
        """
        cdef int64_t most = self._most_of(max_records), timeout_ns = _nanoseconds(timeout)
        cdef int64_t began_ns
        cdef Look look
        self._waited_ns = 0
        if most < 1 or timeout_ns < 0 or (began_ns := self._begin()) < 0:
            return None
        polled = None
        try:
            while polled is None and (look := self._await_next(began_ns, timeout_ns)) != UNUSUAL:
                polled = self._taken(look, most)
        except BaseException:
            self._fail()
            raise
        return self._ended(polled, began_ns)

    async def poll_in_task(self, timeout, max_records):
        """Do what `poll` does for a task of an event loop. A task that is cancelled has taken nothing."""
        cdef int64_t most = self._most_of(max_records), timeout_ns = _nanoseconds(timeout)
        cdef int64_t began_ns = -1
        cdef Look look = EMPTY
        self._waited_ns = 0
        if most >= 1 and timeout_ns >= 0:
            if self._is_turn_over():
                await self._next_turn()
            began_ns = self._begin()
        if began_ns < 0:
            return None
        polled = None
        try:
            while polled is None and look != UNUSUAL:
                look = self._look(began_ns, timeout_ns)
                if look == EMPTY:
                    await self._await_arrival(began_ns, timeout_ns)
                elif look != UNUSUAL:
                    polled = self._taken(look, most)
        except BaseException:
            self._fail()
            raise
        if polled is not None:
            self._turn_left -= len(polled)
        return self._ended(polled, began_ns)

    cdef object _taken(self, Look look, int64_t most):
        """Return what a poll has found; None if there is nothing after all."""
        cdef list taken = self._buffer.take_records(most) if look == FOUND else []
        if taken or look == TIMED_OUT:
            return self._new_polled(taken, self._buffer.take_moves())
        return None

    cdef int64_t _most_of(self, object max_records) except? -1:
        return self._most_records if max_records is None else _positive(max_records)

    def left_of(self, timeout):
        """Return what is left of a time-out after a poll that came to nothing."""
        if timeout is None or self._waited_ns == 0:
            return timeout
        return max(0.0, timeout - self._waited_ns / NS_PER_SECOND)

    def next_iterator(self):
        """Return the next records, as an iteration gives them; None if the coroutine must do it."""
        cdef FetchIterator iterator = None
        cdef int64_t began_ns = self._begin()
        if began_ns < 0:
            return None
        try:
            while iterator is None and self._await_next(began_ns, INT64_MAX) == FOUND:
                iterator = self._begun(INT64_MAX)
        except BaseException:
            self._fail()
            raise
        return self._ended(iterator, began_ns)

    async def next_iterator_in_task(self):
        """Do `next_iterator` for a task of an event loop, which gets no more than its turn's records."""
        cdef FetchIterator iterator = None
        cdef int64_t began_ns
        cdef Look look = EMPTY
        if self._is_turn_over():
            await self._next_turn()
        began_ns = self._begin()
        if began_ns < 0:
            return None
        try:
            while iterator is None and look != UNUSUAL:
                look = self._look(began_ns, INT64_MAX)
                if look == EMPTY:
                    await self._await_arrival(began_ns, INT64_MAX)
                elif look == FOUND:
                    iterator = self._begun(self._turn_left)
        except BaseException:
            self._fail()
            raise
        return self._ended(iterator, began_ns)

    cdef FetchIterator _begun(self, int64_t most):
        """Return an iterator over what is there; None if there is nothing after all."""
        cdef QueuedCursor cursor = self._buffer.next_with_record(True)
        cdef CompletedFetch fetch = None if cursor is None else cursor.head()
        cdef FetchedRecords records = None if fetch is None else fetch.records_now()
        if records is None:
            return None
        self._iterated, self._iterated_from = cursor, cursor.next_offset()
        return self._buffer.begin_iterator(cursor, records, most)

    # The turns of tasks

    cdef bint _is_turn_over(self) except -1:
        """True if other tasks, and the network, must run before the next poll."""
        if self._iterated is not None:
            self._turn_left -= self._iterated.next_offset() - self._iterated_from
            self._iterated = None
        return self._turn_left <= 0 or PyTime_MonotonicRaw() - self._turn_began_ns >= TURN_NS

    cdef int _begin_turn(self) except -1:
        self._turn_began_ns, self._turn_left = PyTime_MonotonicRaw(), self._turn_records
        return 0

    async def _next_turn(self):
        await self._give_way()
        self._begin_turn()

    async def _await_arrival(self, int64_t began_ns, int64_t timeout_ns):
        """Wait for an arrival or a change, unless there is one."""
        waiter = self._new_waiter()
        self._waiters.put(waiter, None)  # before the look, so that nothing is missed
        try:
            if self._look(began_ns, timeout_ns) == EMPTY:
                await waiter.wait(self._deadline(self._left_ns / NS_PER_SECOND))
                self._begin_turn()
        finally:
            self._waiters.drop(waiter, None)

    # What all have in common

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
            buffer.note_poll(buffer.change_count())
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

    cdef Look _await_next(self, int64_t began_ns, int64_t timeout_ns) except *:
        """Block the thread until there is something, for so long since the poll has begun."""
        cdef NativeEvent event
        cdef Look look
        while (look := self._look(began_ns, timeout_ns)) == EMPTY:
            event = NativeEvent.__new__(NativeEvent)
            self._waiters.put(event, event)  # before the look, so that nothing is missed
            try:
                if self._look(began_ns, timeout_ns) == EMPTY:
                    event.wait_for(self._left_ns / NS_PER_SECOND)
            finally:
                self._waiters.drop(event, event)
        return look

    cdef Look _look(self, int64_t began_ns, int64_t timeout_ns) except *:
        """Look at what the buffer has. If it is EMPTY, `_left_ns` says how long the poll may wait."""
        cdef FetchBuffer buffer = self._buffer
        cdef int64_t waited_ns
        buffer.sort()
        if buffer.has_record():
            return FOUND if buffer.may_take() else UNUSUAL
        if not buffer.may_wait() or buffer.starves():
            return UNUSUAL
        waited_ns = PyTime_MonotonicRaw() - began_ns
        if waited_ns >= timeout_ns:
            return TIMED_OUT
        self._left_ns = min(timeout_ns, self._longest_wait_ns) - waited_ns
        return EMPTY if self._left_ns > 0 else UNUSUAL


cdef int64_t _positive(object number) except? -1:
    """Return an integer; 0 if it is none that is above 0, or too large."""
    return number if type(number) is int and 0 < number <= INT64_MAX else 0


cdef int64_t _nanoseconds(object seconds) except? -1:
    """Return a time-out in nanoseconds; -1 if it is none. None is as long as it takes."""
    if seconds is None:
        return INT64_MAX
    if (type(seconds) is float or type(seconds) is int) and 0 <= seconds:
        return INT64_MAX if seconds > 1e9 else <int64_t>(<double>seconds * NS_PER_SECOND)
    return -1
