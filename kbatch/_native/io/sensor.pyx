"""Sensor: the windows of a measured value, and two sums that never end.

Every request records in some twenty sensors. So recording is a few additions, without a lock or an object,
and `record_each` records in several at once. All state is plain C, and the GIL separates threads.
"""

cimport cython
from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc

from typing import NamedTuple

# An upper limit of time: additions to it do not overflow.
cdef int64_t LONGEST_MS = 2**62
# Initial room for windows: the default metrics.num.samples, and one more.
cdef int FIRST_WINDOWS = 3


class Reading(NamedTuple):
    """A sensor's state at a moment: its windows, which reach `elapsed_ms` back, and the sums of all time."""

    occurrences: int
    total: float
    maximum: float
    elapsed_ms: int
    occurrences_ever: int
    total_ever: float


cdef struct Window:
    int64_t start_ms
    int64_t last_ms
    int64_t occurrences
    double total
    double maximum


cdef inline void restart(Window *window, int64_t now_ms) noexcept:
    window.start_ms = window.last_ms = now_ms
    window.occurrences = 0
    window.total = 0.0
    window.maximum = -INFINITY


def _span(count, window_ms):
    """Allocate this many windows."""
    return min(count * window_ms, LONGEST_MS)


@cython.final
cdef class Sensor:
    """Records values in windows (Kafka's SampledStat; the span of a rate is that of its Rate).

    One window more than requested is kept: the oldest may lie partly in the requested time, and counts fully
    then. They get memory as time reaches them, however many are requested.

    Parameters
    ----------
    window_ms : int
        The span of a window; 1 or more.
    num_samples : int
        The number of windows; 1 or more.
    recording : bool
        False: values are ignored.
    """

    cdef Window *_windows
    cdef int64_t _window_ms, _span_ms, _span_before_ms, _end_ms, _occurrences_ever
    cdef int64_t _num_samples, _count, _room, _current
    cdef bint _recording
    cdef double _total_ever

    def __cinit__(self, *, int64_t window_ms, int num_samples, bint recording=True):
        if window_ms < 1 or num_samples < 1:
            raise ValueError(f"window_ms and num_samples are 1 or more; they are {window_ms}, {num_samples}")
        self._num_samples = num_samples
        self._window_ms = min(window_ms, LONGEST_MS)
        self._span_ms = _span(num_samples, window_ms)
        self._span_before_ms = _span(num_samples - 1, window_ms)
        self._recording = recording
        if not self._make_room(FIRST_WINDOWS):
            raise MemoryError

    def __dealloc__(self):
        free(self._windows)

    def record(self, double value, int64_t now_ms):
        """Record one occurrence of `value`, at a time of any monotonic clock."""
        self._record(value, now_ms)

    cdef void _record(self, double value, int64_t now_ms) noexcept:
        if not self._recording:
            return
        if self._count == 0 or now_ms >= self._end_ms:
            self._open(now_ms)
        cdef Window *window = &self._windows[self._current]
        window.last_ms = now_ms
        window.occurrences += 1
        window.total += value
        if value > window.maximum:
            window.maximum = value
        self._occurrences_ever += 1
        self._total_ever += value

    def read(self, int64_t now_ms):
        """Return the data for the metrics of this sensor, after emptying expired windows."""
        cdef int64_t occurrences = 0
        cdef double total = 0.0, maximum = -INFINITY
        cdef Window *window
        cdef int64_t i
        if self._count == 0:
            self._open(now_ms)
        for i in range(self._count):
            window = &self._windows[i]
            if now_ms - window.last_ms >= self._span_ms:
                restart(window, now_ms)
            occurrences += window.occurrences
            total += window.total
            maximum = max(maximum, window.maximum)
        self._end_ms = self._windows[self._current].start_ms + self._window_ms
        return Reading(
            occurrences, total, maximum, self._elapsed_ms(now_ms), self._occurrences_ever, self._total_ever
        )

    cdef void _open(self, int64_t now_ms) noexcept:
        """Start the next window, in place of the oldest if all are in use or there is no memory for more.
        """
        if self._count <= self._num_samples and (self._count < self._room or self._make_room(2 * self._room)):
            self._current = self._count
            self._count += 1
        else:
            self._current = (self._current + 1) % self._count
        restart(&self._windows[self._current], now_ms)
        self._end_ms = now_ms + self._window_ms

    cdef bint _make_room(self, int64_t count) noexcept:
        """Allocate this many windows, or all that are ever kept. True if there is memory."""
        cdef int64_t room = min(count, self._num_samples + 1)
        cdef void *windows = realloc(self._windows, room * sizeof(Window))
        if windows == NULL:
            return False
        self._windows = <Window *>windows
        self._room = room
        return True

    cdef int64_t _elapsed_ms(self, int64_t now_ms) noexcept:
        """Return the time since the oldest window began. Missing windows count too, or the first seconds
        would show far too high rates.
        """
        cdef int64_t start_ms = now_ms
        cdef int64_t i
        for i in range(self._count):
            start_ms = min(start_ms, self._windows[i].start_ms)
        cdef int64_t elapsed_ms = now_ms - start_ms
        return max(elapsed_ms, self._span_before_ms + elapsed_ms % self._window_ms, 1)


def record_each(tuple sensors not None, tuple values not None, int64_t now_ms):
    """Record one value for each sensor, like `Sensor.record`. Raise ValueError if there are not as many
    values as sensors.
    """
    cdef Py_ssize_t i
    if len(sensors) != len(values):
        raise ValueError(f"{len(values)} values for {len(sensors)} sensors")
    for i in range(len(sensors)):
        (<Sensor?>sensors[i])._record(values[i], now_ms)
