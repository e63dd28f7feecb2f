"""Sensor: the windows of a measured value, and two sums that never end.

Every request records in some twenty sensors. So recording is a few additions in C (src_c/sensor.h), which
need neither an object nor the GIL: the lane records too. A SensorGroup has sensors that record together.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t

from kbatch._native.lock cimport begin_process_lock, kb_lock

from typing import NamedTuple

# Of all sensors.
cdef kb_lock sensors_lock
begin_process_lock(&sensors_lock)


class Reading(NamedTuple):
    """A sensor's state at a moment: its windows, which reach `elapsed_ms` back, and the sums of all time."""

    occurrences: int
    total: float
    maximum: float
    elapsed_ms: int
    occurrences_ever: int
    total_ever: float


@cython.final
cdef class Sensor:
    """Records values in windows.

    Any thread may record and read.

    Parameters
    ----------
    window_ms : int
        The span of a window; 1 or more.
    num_samples : int
        The number of windows; 1 or more.
    recording : bool
        False: values are ignored.
    """

    def __cinit__(self, *, int64_t window_ms, int num_samples, bint recording=True):
        if window_ms < 1 or num_samples < 1:
            raise ValueError(f"window_ms and num_samples are 1 or more; they are {window_ms}, {num_samples}")
        if not kb_sensor_init(&self.raw, &sensors_lock, window_ms, num_samples, recording):
            raise MemoryError("no memory for the windows of a sensor")

    def __dealloc__(self):
        kb_sensor_free(&self.raw)

    def record(self, double value, int64_t now_ms):
        """Record one occurrence of `value`, at a time of any monotonic clock."""
        kb_sensor_record(&self.raw, value, now_ms)

    def read(self, int64_t now_ms):
        """Return the data for the metrics of this sensor, after emptying expired windows."""
        cdef kb_sensor_reading reading = kb_sensor_read(&self.raw, now_ms)
        return Reading(reading.occurrences, reading.total, reading.maximum, reading.elapsed_ms,
                       reading.occurrences_ever, reading.total_ever)


@cython.final
cdef class SensorGroup:
    """Sensors that record together.

    Parameters
    ----------
    sensors : iterable of Sensor
        A sensor may be there more than once.
    """

    def __cinit__(self, sensors not None):
        cdef Sensor sensor
        self._sensors = tuple(sensors)
        self.raw.sensors = <kb_sensor **>PyMem_Malloc(max(len(self._sensors), 1) * sizeof(kb_sensor *))
        if self.raw.sensors == NULL:
            raise MemoryError("no memory for a group of sensors")
        for each in self._sensors:
            sensor = <Sensor?>each
            self.raw.sensors[self.raw.count] = &sensor.raw
            self.raw.count += 1

    def __dealloc__(self):
        PyMem_Free(self.raw.sensors)

    def record(self, double value, int64_t now_ms):
        """Record one occurrence of `value` with each sensor, like `Sensor.record`."""
        kb_sensor_group_record(&self.raw, value, now_ms)


@cython.final
cdef class RequestSensors:
    """What requests to a node record, in groups of sensors of all nodes and of the node.

    Parameters
    ----------
    sent, written, received, answered : SensorGroup
        The bytes of a request that is handed out, that were written, that were received, of an answer.
    latency : SensorGroup
        From a request to its answer, in milliseconds.
    """

    def __cinit__(self, *, SensorGroup sent not None, SensorGroup written not None,
                  SensorGroup received not None, SensorGroup answered not None,
                  SensorGroup latency not None):
        self.sent, self.written, self.received = sent, written, received
        self.answered, self.latency = answered, latency
        self.raw.sent, self.raw.written, self.raw.received = &sent.raw, &written.raw, &received.raw
        self.raw.answered, self.raw.latency = &answered.raw, &latency.raw
