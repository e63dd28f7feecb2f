"""Arrivals: what the network has delivered and the program has not taken yet.

Theory of operation. The network's thread takes answers without the GIL, which another thread may hold for
long. It hands them over without it too, and rings the threads that wait. The program's thread makes results
in Python of them when it looks. Results of the engine, which come with the GIL, stand in the same list:
partitions keep the order in which they were read.

On event loops, under TLS and in virtual time, results are made where answers are taken.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcmp

from kbatch._native.codec.record_batch cimport Source, decompression_limit
from kbatch._native.fetch.budget cimport Budget, FrameShare
from kbatch._native.fetch.fetched cimport Fetched, new_fetched
from kbatch._native.fetch.fetched_batches cimport FetchedRecords, records_of_walk
from kbatch._native.fetch.frames cimport Frame, FramePool
from kbatch._native.fetch.reading cimport (
    PartitionReading,
    kb_arrival_new,
    kb_arrivals_put,
    kb_arrivals_put_back,
    kb_arrivals_take,
    kb_fetch_arrival,
    kb_fetch_walked,
    kb_reading,
)
from kbatch._native.flags cimport kb_count_add
from kbatch._native.io.sensor cimport Sensor, kb_sensor_record
from kbatch._native.io.waiters cimport Waiters
from kbatch._native.lock cimport begin_process_lock, kb_lock

from collections import deque

# Of all lists of arrivals.
cdef kb_lock lists_lock

begin_process_lock(&lists_lock)


@cython.final
@cython.no_gc_clear  # roads and arrivals give memory back by it at their end
cdef class AnswerReader:
    """Makes results of answers that a road has taken.

    Parameters
    ----------
    budget : Budget
    frames : FramePool
        Their memory.
    byte_count : Sensor
        Records the bytes of records in an answer.
    check_crcs : bool
    max_decompressed_bytes : int
        Of a batch.
    """

    def __init__(self, Budget budget not None, FramePool frames not None, Sensor byte_count not None, *,
                 bint check_crcs, max_decompressed_bytes):
        self._budget, self._frames, self._byte_count = budget, frames, byte_count
        self.check_crcs = check_crcs
        self.most_bytes = decompression_limit(max_decompressed_bytes)

    cdef list results_of(self, kb_fetch_arrival *arrival):
        """Return the results of an answer, which is used up then. It keeps its memory if that fails."""
        cdef list found = []
        cdef Frame frame = None
        if arrival.frame != NULL:
            frame = self._frames.frame_of(arrival.frame, arrival.frame_bytes, arrival.frame_room)
        try:
            self._add_results(arrival, frame, found)
        except BaseException:
            found.clear()
            if frame is not None:
                frame.disown()
            raise
        arrival.frame = NULL
        self.record_fetched(found, arrival.answered_ns)
        return found

    cdef int _add_results(self, kb_fetch_arrival *arrival, Frame frame, list found) except -1:
        cdef kb_fetch_walked *walked
        cdef Source source = None
        cdef FrameShare share = None
        cdef int32_t i
        if frame is not None:
            source = Source(frame)
            share = FrameShare(self._budget, arrival.frame_bytes, arrival.with_rows)
        for i in range(arrival.part_count):
            walked = &arrival.walked[i]
            if walked.reading != NULL:
                found.append(self._result_of(walked, source, share))
        return 0

    cdef Fetched _result_of(self, const kb_fetch_walked *walked, Source source, FrameShare share):
        cdef PartitionReading reading = <PartitionReading>walked.reading.owner
        cdef bytes topic_id = None
        cdef FetchedRecords records = None
        cdef Fetched fetched
        with cython.critical_section(reading):
            if memcmp(walked.topic_id, reading._reading.topic_id, 16) == 0:
                topic_id = reading._topic_id
        if topic_id is None:  # it has got another one since
            topic_id = PyBytes_FromStringAndSize(<const char *>walked.topic_id, 16)
        if walked.row_bound > 0:
            records = records_of_walk(source, walked, reading.topic_name, topic_id,
                                      reading.partition_number, self.check_crcs, self.most_bytes)
        fetched = new_fetched(reading, records, walked.from_offset, walked.next_offset, False,
                              walked.last_epoch, walked.records.size if records is not None else 0)
        fetched.topic_id = topic_id
        if records is not None:
            fetched.share, fetched.charged_bytes = share, walked.charged_bytes
        return fetched

    cdef int record_fetched(self, list found, int64_t now_ns) except -1:
        """Record the bytes of the results of an answer, if there are any: of all, and of each topic."""
        cdef Fetched fetched
        cdef PartitionReading reading
        cdef int64_t size_bytes = 0, now_ms = now_ns // 1_000_000
        cdef dict by_sensor
        if len(found) == 1:  # as usual for a lone record
            fetched = found[0]
            reading = <PartitionReading>fetched.state
            kb_sensor_record(&reading.byte_count.raw, fetched.size_bytes, now_ms)
            size_bytes = fetched.size_bytes
        elif found:
            by_sensor = {}
            for fetched in found:
                reading = <PartitionReading>fetched.state
                size_bytes += fetched.size_bytes
                by_sensor[reading.byte_count] = fetched.size_bytes + by_sensor.get(reading.byte_count, 0)
            for sensor, of_topic in by_sensor.items():
                kb_sensor_record(&(<Sensor>sensor).raw, of_topic, now_ms)
        if found:
            kb_sensor_record(&self._byte_count.raw, size_bytes, now_ms)
        return 0

    cdef void discard(self, kb_fetch_arrival *arrival) noexcept:
        """Give the memory of an answer back that nobody wants."""
        if arrival.frame != NULL:
            kb_count_add(&self._budget.raw.unread, -arrival.frame_bytes)
            self._frames.give_back(arrival.frame, arrival.frame_room)
        free(arrival)


@cython.final
@cython.no_gc_clear
cdef class Arrivals:
    """Results that the network has delivered and the program has not taken yet. It is called with a list of
    results, on the network's thread; then it is True if the program waits for them.

    Parameters
    ----------
    notify : callable
        Called after each delivery. Returns True if the program waits.
    waiters : Waiters or None
        Those who are notified, if threads may ring them without the GIL.
    """

    def __init__(self, notify, Waiters waiters=None):
        self._results, self._engines = deque(), deque()
        self._notify = notify
        self._waiters = waiters
        self.raw.lock = &lists_lock

    def __dealloc__(self):
        cdef kb_fetch_arrival *arrival
        while (arrival := kb_arrivals_take(&self.raw, _hold)) != NULL:
            if arrival.is_engines:
                free(arrival)
            else:
                _let_go(arrival)
                self._reader.discard(arrival)

    def __call__(self, list results not None):
        cdef kb_fetch_arrival *arrival
        if results:
            arrival = kb_arrival_new(0)
            if arrival == NULL:
                raise MemoryError
            arrival.is_engines = True
            self._engines.append(results)
            kb_arrivals_put(&self.raw, arrival)
        return self._notify()

    def __bool__(self):
        return self.raw.is_filled != 0 or bool(self._results)

    cdef int use(self, AnswerReader reader) except -1:
        """Read answers with a reader from now on, which stays the same."""
        self._reader = reader
        return 0

    cdef void hand_over(self, kb_fetch_arrival *arrival) noexcept nogil:
        """Take answers, and wake the program."""
        kb_arrivals_put(&self.raw, arrival)
        if self._waiters is not None:
            self._waiters.ring()

    cpdef object collect(self):
        """Return what has arrived, a deque, whose results the program's thread takes away in their order."""
        cdef kb_fetch_arrival *arrival
        cdef list found
        while (arrival := kb_arrivals_take(&self.raw, _hold)) != NULL:
            if arrival.is_engines:
                found = self._engines.popleft()
            else:
                found = self._results_of(arrival)
                _let_go(arrival)
            free(arrival)
            self._results.extend(found)
        return self._results

    cdef list _results_of(self, kb_fetch_arrival *arrival):
        """Return the results of an answer. It is put back if there is no memory for them."""
        try:
            return self._reader.results_of(arrival)
        except BaseException:
            kb_arrivals_put_back(&self.raw, arrival)
            raise


cdef void _hold(kb_reading *reading) noexcept:
    Py_INCREF(<PartitionReading>reading.owner)


cdef void _let_go(kb_fetch_arrival *arrival) noexcept:
    """Let go of the readings that were held."""
    cdef int32_t i
    for i in range(arrival.part_count):
        if arrival.walked[i].reading != NULL:
            Py_DECREF(<PartitionReading>arrival.walked[i].reading.owner)
