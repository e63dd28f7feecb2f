/* A sensor: the windows of a measured value, and two sums that never end. Any thread records and reads, with
 * or without the GIL: all sensors have one lock, so that a group takes it once. No other is taken under it.
 *
 * After Kafka's SampledStat; the span of a rate is that of its Rate. One window more than requested is kept:
 * the oldest may lie partly in the requested time, and counts fully then. They get memory as time reaches
 * them, however many are requested. */
#ifndef KBATCH_SENSOR_H
#define KBATCH_SENSOR_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "short_lock.h"

enum { KB_FIRST_WINDOWS = 3 }; /* the default metrics.num.samples, and one more */

/* An upper limit of time: additions to it do not overflow. */
#define KB_LONGEST_MS ((int64_t)1 << 62)

typedef struct {
    int64_t start_ms, last_ms, occurrences;
    double total, maximum;
} kb_window;

typedef struct {
    kb_lock *lock; /* of all sensors, so that fork() can wait for it */
    bool is_recording; /* does not change; otherwise values are ignored */
    int64_t window_ms, window_count;
    int64_t span_ms, span_before_ms; /* of the requested windows, and without the newest of them */
    /* under the lock */
    kb_window *windows;
    int64_t used, room, current, end_ms; /* the current one's end */
    int64_t occurrences_ever;
    double total_ever;
} kb_sensor;

/* A sensor's state at a moment: its windows, which reach `elapsed_ms` back, and the sums of all time. */
typedef struct {
    int64_t occurrences, elapsed_ms, occurrences_ever;
    double total, maximum, total_ever;
} kb_sensor_reading;

/* Sensors that record together; they exist as long as the group. */
typedef struct {
    kb_sensor **sensors;
    size_t count;
} kb_sensor_group;

/* What requests to a node record: sensors of all nodes, and the node's. */
typedef struct {
    const kb_sensor_group *sent, *written, *received, *answered; /* their bytes */
    const kb_sensor_group *latency;                              /* in milliseconds */
} kb_request_sensors;

/* Allocate this many windows, or all that are ever kept. True if there is memory. */
static inline bool kb_sensor_grow(kb_sensor *sensor, int64_t room) {
    kb_window *windows;
    if (room > sensor->window_count + 1)
        room = sensor->window_count + 1;
    windows = realloc(sensor->windows, (size_t)room * sizeof(kb_window));
    if (!windows)
        return false;
    sensor->windows = windows;
    sensor->room = room;
    return true;
}

static inline int64_t kb_sensor_span(int64_t count, int64_t window_ms) {
    return count > KB_LONGEST_MS / window_ms ? KB_LONGEST_MS : count * window_ms;
}

/* Begin to use a zeroed sensor; `window_ms` and `window_count` are 1 or more. False without memory. */
static inline bool kb_sensor_init(kb_sensor *sensor, kb_lock *lock, int64_t window_ms, int64_t window_count,
                                  bool is_recording) {
    sensor->lock = lock;
    sensor->is_recording = is_recording;
    sensor->window_ms = window_ms < KB_LONGEST_MS ? window_ms : KB_LONGEST_MS;
    sensor->window_count = window_count;
    sensor->span_ms = kb_sensor_span(window_count, sensor->window_ms);
    sensor->span_before_ms = kb_sensor_span(window_count - 1, sensor->window_ms);
    return kb_sensor_grow(sensor, KB_FIRST_WINDOWS);
}

static inline void kb_sensor_free(kb_sensor *sensor) {
    free(sensor->windows);
}

static inline void kb_window_restart(kb_window *window, int64_t now_ms) {
    window->start_ms = window->last_ms = now_ms;
    window->occurrences = 0;
    window->total = 0;
    window->maximum = -INFINITY;
}

/* Start the next window, in place of the oldest if all are in use or there is no memory for more. */
static inline void kb_sensor_open(kb_sensor *sensor, int64_t now_ms) {
    if (sensor->used <= sensor->window_count &&
        (sensor->used < sensor->room || kb_sensor_grow(sensor, 2 * sensor->room)))
        sensor->current = sensor->used++;
    else
        sensor->current = (sensor->current + 1) % sensor->used;
    kb_window_restart(&sensor->windows[sensor->current], now_ms);
    sensor->end_ms = now_ms + sensor->window_ms;
}

/* Record a value under the lock. */
static inline void kb_sensor_add(kb_sensor *sensor, double value, int64_t now_ms) {
    kb_window *window;
    if (!sensor->is_recording)
        return;
    if (!sensor->used || now_ms >= sensor->end_ms)
        kb_sensor_open(sensor, now_ms);
    window = &sensor->windows[sensor->current];
    window->last_ms = now_ms;
    window->occurrences++;
    window->total += value;
    if (value > window->maximum)
        window->maximum = value;
    sensor->occurrences_ever++;
    sensor->total_ever += value;
}

/* Record one occurrence of `value`, at a time of any monotonic clock. */
static inline void kb_sensor_record(kb_sensor *sensor, double value, int64_t now_ms) {
    if (!sensor->is_recording)
        return;
    kb_lock_acquire(sensor->lock);
    kb_sensor_add(sensor, value, now_ms);
    kb_lock_release(sensor->lock);
}

/* Record the same value with each sensor of a group. */
static inline void kb_sensor_group_record(const kb_sensor_group *group, double value, int64_t now_ms) {
    if (!group->count)
        return;
    kb_lock_acquire(group->sensors[0]->lock);
    for (size_t i = 0; i < group->count; i++)
        kb_sensor_add(group->sensors[i], value, now_ms);
    kb_lock_release(group->sensors[0]->lock);
}

/* Record a value for each sensor of a group, in its order. */
static inline void kb_sensor_group_record_each(const kb_sensor_group *group, const double *values,
                                               int64_t now_ms) {
    if (!group->count)
        return;
    kb_lock_acquire(group->sensors[0]->lock);
    for (size_t i = 0; i < group->count; i++)
        kb_sensor_add(group->sensors[i], values[i], now_ms);
    kb_lock_release(group->sensors[0]->lock);
}

/* Return the time since the oldest window began. Missing windows count too, or the first seconds would show
 * far too high rates. */
static inline int64_t kb_sensor_elapsed_ms(const kb_sensor *sensor, int64_t now_ms) {
    int64_t elapsed_ms, least_ms, start_ms = now_ms;
    for (int64_t i = 0; i < sensor->used; i++)
        if (sensor->windows[i].start_ms < start_ms)
            start_ms = sensor->windows[i].start_ms;
    elapsed_ms = now_ms - start_ms;
    least_ms = sensor->span_before_ms + elapsed_ms % sensor->window_ms;
    if (elapsed_ms < least_ms)
        elapsed_ms = least_ms;
    return elapsed_ms > 1 ? elapsed_ms : 1;
}

/* Return the state at a moment, after emptying expired windows. */
static inline kb_sensor_reading kb_sensor_read(kb_sensor *sensor, int64_t now_ms) {
    kb_sensor_reading reading = {0, 0, 0, 0, -INFINITY, 0};
    kb_lock_acquire(sensor->lock);
    if (!sensor->used)
        kb_sensor_open(sensor, now_ms);
    for (int64_t i = 0; i < sensor->used; i++) {
        kb_window *window = &sensor->windows[i];
        if (now_ms - window->last_ms >= sensor->span_ms)
            kb_window_restart(window, now_ms);
        reading.occurrences += window->occurrences;
        reading.total += window->total;
        if (window->maximum > reading.maximum)
            reading.maximum = window->maximum;
    }
    sensor->end_ms = sensor->windows[sensor->current].start_ms + sensor->window_ms;
    reading.elapsed_ms = kb_sensor_elapsed_ms(sensor, now_ms);
    reading.occurrences_ever = sensor->occurrences_ever;
    reading.total_ever = sensor->total_ever;
    kb_lock_release(sensor->lock);
    return reading;
}

#endif
