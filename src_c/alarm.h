/* When the sender looks for work next: a thread that makes something happen earlier wakes it, once. */
#ifndef KBATCH_ALARM_H
#define KBATCH_ALARM_H

#include <stdbool.h>
#include <stdint.h>

#include "short_lock.h"

enum { KB_ALARM_NODES = 16 };

typedef struct {
    kb_lock lock; /* none is taken under it */
    int64_t due_ns;
    /* Nodes that take nothing now, since the sender looked: an answer or a write will wake it. */
    int32_t busy_count, busy_nodes[KB_ALARM_NODES];
} kb_alarm;

/* Set it to an earlier time. True if the sender must be woken, since it would look later. */
static inline bool kb_alarm_set(kb_alarm *alarm, int64_t deadline_ns) {
    bool is_sooner;
    kb_lock_acquire(&alarm->lock);
    is_sooner = deadline_ns < alarm->due_ns;
    if (is_sooner)
        alarm->due_ns = deadline_ns;
    kb_lock_release(&alarm->lock);
    return is_sooner;
}

/* The sender looks now: what happens from here on wakes it again. */
static inline void kb_alarm_clear(kb_alarm *alarm) {
    kb_lock_acquire(&alarm->lock);
    alarm->due_ns = INT64_MAX;
    alarm->busy_count = 0;
    kb_lock_release(&alarm->lock);
}

/* After the sender looked at the queues of a node, which takes nothing now. */
static inline void kb_alarm_note_busy(kb_alarm *alarm, int32_t node_id) {
    kb_lock_acquire(&alarm->lock);
    if (alarm->busy_count < KB_ALARM_NODES)
        alarm->busy_nodes[alarm->busy_count++] = node_id;
    kb_lock_release(&alarm->lock);
}

static inline bool kb_alarm_is_busy(kb_alarm *alarm, int32_t node_id) {
    bool is_busy = false;
    kb_lock_acquire(&alarm->lock);
    for (int32_t i = 0; i < alarm->busy_count && !is_busy; i++)
        is_busy = alarm->busy_nodes[i] == node_id;
    kb_lock_release(&alarm->lock);
    return is_busy;
}

static inline int64_t kb_alarm_due_ns(kb_alarm *alarm) {
    int64_t due_ns;
    kb_lock_acquire(&alarm->lock);
    due_ns = alarm->due_ns;
    kb_lock_release(&alarm->lock);
    return due_ns;
}

#endif
