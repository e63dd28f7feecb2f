from libc.stdint cimport int64_t

from kbatch._native.lock cimport kb_lock

cdef extern from "sensor.h" nogil:
    ctypedef struct kb_sensor:
        bint is_recording

    ctypedef struct kb_sensor_reading:
        int64_t occurrences
        int64_t elapsed_ms
        int64_t occurrences_ever
        double total
        double maximum
        double total_ever

    ctypedef struct kb_sensor_group:
        kb_sensor **sensors
        size_t count

    ctypedef struct kb_request_sensors:
        const kb_sensor_group *sent
        const kb_sensor_group *written
        const kb_sensor_group *received
        const kb_sensor_group *answered
        const kb_sensor_group *latency

    bint kb_sensor_init(kb_sensor *sensor, kb_lock *lock, int64_t window_ms, int64_t window_count,
                        bint is_recording) noexcept
    void kb_sensor_free(kb_sensor *sensor) noexcept
    void kb_sensor_record(kb_sensor *sensor, double value, int64_t now_ms) noexcept
    void kb_sensor_group_record(const kb_sensor_group *group, double value, int64_t now_ms) noexcept
    kb_sensor_reading kb_sensor_read(kb_sensor *sensor, int64_t now_ms) noexcept


cdef class Sensor:
    cdef kb_sensor raw


cdef class SensorGroup:
    cdef tuple _sensors              # which `raw` refers to
    cdef kb_sensor_group raw


cdef class RequestSensors:
    cdef readonly SensorGroup sent
    cdef readonly SensorGroup written
    cdef readonly SensorGroup received
    cdef readonly SensorGroup answered
    cdef readonly SensorGroup latency
    cdef kb_request_sensors raw
