/* The bytes of a client that reads: those that are requested, and those that the program has not read yet.
 * Their owner reserves and charges; any thread releases.
 *
 * A Fetch reserves the bytes that it asks for. Its answer replaces them by the size of its frame. */
#ifndef KBATCH_FETCH_BUDGET_H
#define KBATCH_FETCH_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "flags.h"

typedef struct {
    int64_t limit;
    int64_t reserved; /* atomic; its owner changes it */
    int64_t unread;   /* atomic */
} kb_budget;

static inline int64_t kb_budget_used(const kb_budget *budget) {
    return kb_count_load(&budget->reserved) + kb_count_load(&budget->unread);
}

/* The most that a request to one of so many nodes may ask for: half of the limit is for requests, so that
 * every node can always be asked. */
static inline int64_t kb_budget_request_bytes(const kb_budget *budget, int64_t node_count) {
    int64_t bytes = budget->limit / (2 * (node_count > 1 ? node_count : 1));
    return bytes > 1 ? bytes : 1;
}

/* True if what was not read takes memory that is for requests. */
static inline bool kb_budget_is_crowded(const kb_budget *budget) {
    return kb_count_load(&budget->unread) > budget->limit / 2;
}

/* The unread bytes above which one of so many partitions is left out: its share of the other half. Unless
 * that `is_shared`, any partition may use it up. */
static inline int64_t kb_budget_backlog_bytes(const kb_budget *budget, int64_t partition_count,
                                              bool is_shared) {
    if (!is_shared && !kb_budget_is_crowded(budget))
        return budget->limit;
    return budget->limit / (2 * (partition_count > 1 ? partition_count : 1));
}

/* Reserve bytes if they are free, or if no others are used. False if there is no memory. */
static inline bool kb_budget_reserve(kb_budget *budget, int64_t size) {
    int64_t used = kb_budget_used(budget);
    if (used && size > budget->limit - used)
        return false;
    kb_count_add(&budget->reserved, size);
    return true;
}

#endif
