/* Rows of a table appended to an open batch that is a chain of chunks. */
#ifndef KBATCH_ROW_CHAIN_H
#define KBATCH_ROW_CHAIN_H

#include "chunk_chain.h"
#include "rows.h"

/* Limits for appending rows. */
typedef struct {
    int64_t write_limit;  /* batch.size */
    int64_t record_limit; /* no record is larger, by kb_record_bound or else by its exact size */
    int64_t enough_bytes; /* at this estimated size of the batch, the next row may have to go elsewhere */
    double factor;
} kb_row_rule;

typedef enum {
    KB_ROWS_DONE,
    KB_ROWS_FULL,     /* the batch takes no more */
    KB_ROWS_ENOUGH,   /* enough_bytes are reached */
    KB_ROWS_MEMORY,   /* the chain has no room for the next row, which needs `*needed` bytes */
    KB_ROWS_TOO_LARGE /* the next row has a record beyond record_limit */
} kb_rows_status;

/* The largest overhead of a record, as in DefaultRecord: MAX_RECORD_OVERHEAD, where kb_record_body_size has
 * one byte for each of attributes and deltas. */
static inline int64_t kb_record_most(const kb_record *record) {
    return kb_record_body_size(record, 0, 0) + 21 - 3;
}

KB_INLINE int kb_is_too_large(const kb_record *record, int64_t bound, int64_t record_limit) {
    return KB_UNLIKELY(bound > record_limit) &&
           (bound > KB_MAX_RECORD_BODY || kb_record_most(record) > record_limit);
}

/* Append rows order[*next] .. order[end - 1], as many as fit, to `batch`, whose records `chain` holds.
 * `*largest` is the size of the batch's largest record. A batch is full when a row has no room in it, when
 * its estimate reaches write_limit, or when its only record is beyond that without compression. */
static inline kb_rows_status kb_chain_append_rows(kb_chain *chain, kb_open_batch *batch, const kb_rows *rows,
                                                  const int32_t *order, int64_t *next, int64_t end,
                                                  const kb_row_rule *rule, int64_t *largest,
                                                  int64_t *needed) {
    const kb_row_rule r = *rule; /* copies, which the compiler can hold in registers */
    kb_open_batch b = *batch;
    uint8_t *at = chain->at, *room_end = chain->end;
    int64_t most = *largest, estimated = kb_estimated_bytes(b.records_bytes, r.factor), i = *next;
    const int64_t last = rows->count - KB_ROWS_AHEAD;
    kb_rows_status status = KB_ROWS_DONE;
    for (; i < end && status == KB_ROWS_DONE; i++) {
        kb_record record;
        kb_expect_row(rows, order, i, last);
        kb_row_record(rows, order[i], &record);
        int64_t timestamp_delta = b.count ? record.timestamp_ms - b.base_timestamp_ms : 0;
        int64_t bound = kb_record_bound(&record), size;
        int32_t offset_delta = b.count;
        if (kb_is_too_large(&record, bound, r.record_limit)) {
            status = KB_ROWS_TOO_LARGE;
            break;
        }
        if (KB_LIKELY(bound <= room_end - at)) {
            size = kb_record_put_unsized(at, &record, timestamp_delta, offset_delta) - at;
            /* kb_has_room, with the known estimate; bytes written after the batch do not count */
            if (KB_UNLIKELY(b.count && (estimated + size > r.write_limit ||
                                        b.records_bytes + size > KB_MAX_RECORD_BODY))) {
                status = KB_ROWS_FULL;
                break;
            }
            at += size;
            kb_count_record(&b, record.timestamp_ms, size, offset_delta);
        } else {
            chain->at = at;
            kb_chain_status slow = kb_chain_append(chain, &b, &record, r.write_limit, r.factor, &size);
            at = chain->at;
            room_end = chain->end;
            if (slow != KB_CHAIN_DONE) {
                status = slow == KB_CHAIN_FULL ? KB_ROWS_FULL : KB_ROWS_MEMORY;
                *needed = size;
                break;
            }
        }
        most = size > most ? size : most;
        estimated = kb_estimated_bytes(b.records_bytes, r.factor);
        if (KB_UNLIKELY(estimated >= r.write_limit ||
                        (b.count == 1 && KB_BATCH_HEADER_SIZE + b.records_bytes > r.write_limit)))
            status = KB_ROWS_FULL;
        else if (KB_UNLIKELY(estimated >= r.enough_bytes))
            status = KB_ROWS_ENOUGH;
    }
    chain->at = at;
    *batch = b;
    *largest = most;
    *next = i;
    return status;
}

#endif
