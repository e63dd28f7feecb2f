/* What the network's thread hands to the program's: answers that the road has taken, and results of the
 * engine, in the order in which they came. No GIL is needed to put them; the taker makes results in Python.
 *
 * An arrival refers to readings that only the network's thread keeps. A taker holds them before it lets go
 * of the lock. A reading that ends before that has no results any more: nobody asks for them. */
#ifndef KBATCH_ARRIVALS_H
#define KBATCH_ARRIVALS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "bytes.h"
#include "flags.h"
#include "short_lock.h"
#include "wire.h"

typedef struct kb_reading kb_reading;

/* The records of a partition in an answer, and the position before and after them. */
typedef struct {
    kb_reading *reading; /* NULL: there are none */
    uint8_t topic_id[KB_WIRE_UUID_BYTES];
    kb_span records;
    int64_t from_offset, next_offset, visible_end;
    int64_t row_bound, byte_count;
    int64_t charged_bytes; /* to the backlog of the partition */
    int32_t last_epoch;
} kb_fetch_walked;

/* An answer that was taken, for the program, or results of the engine. It owns its frame. */
typedef struct kb_fetch_arrival {
    struct kb_fetch_arrival *next;
    void *delivered; /* a list of the engine's results; NULL: it is an answer */
    uint8_t *frame;
    int64_t frame_bytes, frame_room;
    int64_t answered_ns;
    int32_t with_rows; /* of `walked` */
    int32_t part_count;
    bool is_held; /* its taker has held its readings */
    kb_fetch_walked walked[];
} kb_fetch_arrival;

typedef struct {
    kb_lock *lock; /* of all such lists, so that a fork can wait for it */
    kb_fetch_arrival *first, *last;
    int is_filled; /* atomic */
} kb_arrivals;

static inline kb_fetch_arrival *kb_arrival_new(int32_t part_count) {
    return calloc(1, sizeof(kb_fetch_arrival) + (size_t)part_count * sizeof(kb_fetch_walked));
}

/* Append an arrival and those after it. */
static inline void kb_arrivals_put(kb_arrivals *arrivals, kb_fetch_arrival *arrival) {
    kb_fetch_arrival *last = arrival;
    while (last->next)
        last = last->next;
    kb_lock_acquire(arrivals->lock);
    if (arrivals->last)
        arrivals->last->next = arrival;
    else
        arrivals->first = arrival;
    arrivals->last = last;
    kb_flag_store(&arrivals->is_filled, 1);
    kb_lock_release(arrivals->lock);
}

/* Take the first arrival; NULL if there is none. `hold` is called with each of its readings. */
static inline kb_fetch_arrival *kb_arrivals_take(kb_arrivals *arrivals, void (*hold)(kb_reading *reading)) {
    kb_fetch_arrival *arrival;
    if (!kb_flag_load(&arrivals->is_filled))
        return NULL;
    kb_lock_acquire(arrivals->lock);
    arrival = arrivals->first;
    if (arrival) {
        arrivals->first = arrival->next;
        if (!arrivals->first) {
            arrivals->last = NULL;
            kb_flag_store(&arrivals->is_filled, 0);
        }
        arrival->next = NULL;
        for (int32_t i = arrival->is_held ? arrival->part_count : 0; i < arrival->part_count; i++)
            if (arrival->walked[i].reading)
                hold(arrival->walked[i].reading);
        arrival->is_held = true;
    }
    kb_lock_release(arrivals->lock);
    return arrival;
}

/* Put an arrival back that was taken last; its readings stay held. */
static inline void kb_arrivals_put_back(kb_arrivals *arrivals, kb_fetch_arrival *arrival) {
    kb_lock_acquire(arrivals->lock);
    arrival->next = arrivals->first;
    arrivals->first = arrival;
    if (!arrivals->last)
        arrivals->last = arrival;
    kb_flag_store(&arrivals->is_filled, 1);
    kb_lock_release(arrivals->lock);
}

/* Drop the results of a reading that ends. */
static inline void kb_arrivals_forget(kb_arrivals *arrivals, const kb_reading *reading) {
    kb_lock_acquire(arrivals->lock);
    for (kb_fetch_arrival *arrival = arrivals->first; arrival; arrival = arrival->next)
        for (int32_t i = 0; i < arrival->part_count; i++)
            if (arrival->walked[i].reading == reading)
                arrival->walked[i].reading = NULL;
    kb_lock_release(arrivals->lock);
}

#endif
