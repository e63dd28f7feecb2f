/* What the network's thread hands to the program's: answers that the road has taken, and results of the
 * engine, in the order in which they came. No GIL is needed to put them; the taker makes results in Python.
 *
 * An arrival refers to readings that only the network's thread keeps. A taker holds them before it lets go
 * of the lock. A reading that ends before that has no results any more: nobody asks for them. It knows which
 * they are, as many readings may end at once while many answers wait. */
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

typedef struct kb_fetch_walked kb_fetch_walked;
typedef struct kb_fetch_arrival kb_fetch_arrival;

/* The results of a reading that nobody has taken yet, in order. */
typedef struct {
    kb_fetch_walked *first, *last;
} kb_reading_results;

/* The records of a partition in an answer, and the position before and after them. */
struct kb_fetch_walked {
    kb_reading *reading; /* NULL: there are none */
    kb_reading_results *results; /* of the reading */
    kb_fetch_walked *next;       /* of these */
    kb_fetch_arrival *arrival;
    uint8_t topic_id[KB_WIRE_UUID_BYTES];
    kb_span records;
    int64_t from_offset, next_offset, visible_end;
    int64_t row_bound, byte_count;
    int64_t charged_bytes; /* to the backlog of the partition */
    int32_t last_epoch;
};

/* An answer that was taken, for the program, or results of the engine. It owns its frame. */
struct kb_fetch_arrival {
    kb_fetch_arrival *next;
    uint8_t *frame;  /* NULL: there are no rows in it */
    int64_t frame_bytes, frame_room;
    int64_t answered_ns;
    int32_t with_rows; /* of `walked` */
    int32_t part_count;
    bool is_engines; /* results that the owner of the list has; it is no answer */
    bool is_held;    /* its taker has held its readings */
    kb_fetch_walked walked[];
};

typedef struct {
    kb_lock *lock; /* of all such lists, so that a fork can wait for it */
    kb_fetch_arrival *first, *last;
    int is_filled; /* atomic */
} kb_arrivals;

static inline kb_fetch_arrival *kb_arrival_new(int32_t part_count) {
    return calloc(1, sizeof(kb_fetch_arrival) + (size_t)part_count * sizeof(kb_fetch_walked));
}

/* Let readings know of their results in an arrival. */
static inline void kb_arrival_link(kb_fetch_arrival *arrival) {
    for (int32_t i = 0; i < arrival->part_count; i++) {
        kb_fetch_walked *walked = &arrival->walked[i];
        kb_reading_results *results = walked->results;
        if (!walked->reading)
            continue;
        walked->arrival = arrival;
        if (results->last)
            results->last->next = walked;
        else
            results->first = walked;
        results->last = walked;
    }
}

/* Let readings forget the first of their results, which are those in an arrival, and hold them. */
static inline void kb_arrival_unlink(kb_fetch_arrival *arrival, void (*hold)(kb_reading *reading)) {
    for (int32_t i = 0; i < arrival->part_count; i++) {
        kb_fetch_walked *walked = &arrival->walked[i];
        if (!walked->reading)
            continue;
        walked->results->first = walked->next;
        if (!walked->next)
            walked->results->last = NULL;
        hold(walked->reading);
    }
}

/* Append an arrival and those after it. */
static inline void kb_arrivals_put(kb_arrivals *arrivals, kb_fetch_arrival *arrival) {
    kb_fetch_arrival *last = arrival;
    kb_lock_acquire(arrivals->lock);
    kb_arrival_link(arrival);
    for (; last->next; last = last->next)
        kb_arrival_link(last->next);
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
        if (!arrival->is_held)
            kb_arrival_unlink(arrival, hold);
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

/* The memory of an answer. */
typedef struct {
    uint8_t *data; /* NULL: none */
    int64_t bytes, room;
} kb_fetch_frame;

/* Drop the first results of a reading that ends, up to the last rows of an answer. Return its frame, which
 * only they needed: the network's thread waits for that memory, and nobody else would wake it. Without one,
 * all results are dropped. */
static inline kb_fetch_frame kb_arrivals_forget(kb_arrivals *arrivals, kb_reading_results *results) {
    kb_fetch_frame frame = {0};
    kb_lock_acquire(arrivals->lock);
    while (results->first && !frame.data) {
        kb_fetch_walked *walked = results->first;
        kb_fetch_arrival *arrival = walked->arrival;
        results->first = walked->next;
        walked->reading = NULL;
        if (walked->row_bound > 0 && !--arrival->with_rows) {
            frame = (kb_fetch_frame){arrival->frame, arrival->frame_bytes, arrival->frame_room};
            arrival->frame = NULL;
        }
    }
    if (!results->first)
        results->last = NULL;
    kb_lock_release(arrivals->lock);
    return frame;
}

#endif
