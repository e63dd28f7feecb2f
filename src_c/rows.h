/* From rows to records: a block of rows as spans, sorted by destination, and appended to open batches. */
#ifndef KBATCH_ROWS_H
#define KBATCH_ROWS_H

#include "record_batch.h"

/* A block of rows of a table; arrays of `count`. */
typedef struct {
    int64_t count;
    const kb_span *keys, *values;
    const int64_t *timestamps_ms;                 /* NULL: `now_ms` for all */
    const int64_t *header_starts, *header_counts; /* in `headers`; NULL: none has headers */
    const kb_record_header *headers;
    int64_t now_ms;
} kb_rows;

KB_INLINE void kb_row_record(const kb_rows *rows, int64_t row, kb_record *record) {
    record->key = rows->keys[row];
    record->value = rows->values[row];
    record->timestamp_ms = rows->timestamps_ms ? rows->timestamps_ms[row] : rows->now_ms;
    record->header_count = 0;
    record->headers = NULL;
    if (rows->headers) {
        record->headers = rows->headers + rows->header_starts[row];
        record->header_count = rows->header_counts[row];
    }
}

/* How many rows in advance a row's value is prefetched: rows of one destination are far apart, so the
 * processor cannot predict the next, and would wait for memory at each. Two lines and the last one are all
 * that a value of 129 bytes or fewer has. */
enum { KB_ROWS_AHEAD = 16 };

/* Ask for the value of row order[next + KB_ROWS_AHEAD], which may be of the next destination. `last` is
 * rows->count - KB_ROWS_AHEAD. */
KB_INLINE void kb_expect_row(const kb_rows *rows, const int32_t *order, int64_t next, int64_t last) {
    if (next < last) {
        const kb_span *value = rows->values + order[next + KB_ROWS_AHEAD];
        KB_PREFETCH((uintptr_t)value->data);
        KB_PREFETCH((uintptr_t)value->data + 64);
        KB_PREFETCH((uintptr_t)value->data + (uintptr_t)value->size - 1);
    }
}

/* Stable counting sort: `order` gets the rows by destination, `starts[d]` .. `starts[d + 1]` are those of d.
 * */
static inline void kb_group_rows(const int32_t *destination, int64_t count, int32_t destinations,
                                 int32_t *starts, int32_t *order) {
    memset(starts, 0, ((size_t)destinations + 1) * sizeof *starts);
    for (int64_t i = 0; i < count; i++)
        starts[destination[i] + 1]++;
    for (int32_t d = 0; d < destinations; d++)
        starts[d + 1] += starts[d];
    for (int64_t i = 0; i < count; i++)
        order[starts[destination[i]]++] = (int32_t)i;
    for (int32_t d = destinations; d > 0; d--)
        starts[d] = starts[d - 1];
    starts[0] = 0;
}

/* Return the index in order[next] .. order[end - 1], which rise, of the first row that is not before `row`.
   */
static inline int64_t kb_first_not_before(const int32_t *order, int64_t next, int64_t end, int32_t row) {
    while (next < end) {
        int64_t middle = next + (end - next) / 2;
        if (order[middle] < row) {
            next = middle + 1;
        } else {
            end = middle;
        }
    }
    return next;
}

typedef enum {
    KB_APPEND_DONE,
    KB_APPEND_FULL,
    KB_APPEND_MEMORY,
    KB_APPEND_TOO_LARGE
} kb_append_status;

/* Memory that is written from front to back. */
typedef struct {
    uint8_t *data;
    size_t used, capacity;
} kb_memory;

/* An open batch with its write position, and the rule by which it closes. */
typedef struct {
    kb_open_batch batch;
    kb_memory memory;
    int64_t write_limit;
    double factor;
} kb_target;

/* Append rows order[*next] .. order[end - 1] until they are done or order[*next] cannot be: the batch has no
 * room for it by Kafka's rule, the memory has none (`*needed` bytes are needed), or no batch would have. */
static inline kb_append_status kb_append_rows(kb_target *target, const kb_rows *rows, const int32_t *order,
                                              int64_t *next, int64_t end, int64_t *needed) {
    kb_target t = *target; /* a copy, which the compiler can hold in registers */
    kb_append_status status = KB_APPEND_DONE;
    const int64_t last = rows->count - KB_ROWS_AHEAD;
    int64_t i = *next;
    kb_record record;
    for (; i < end; i++) {
        kb_expect_row(rows, order, i, last);
        kb_row_record(rows, order[i], &record);
        int32_t offset_delta = t.batch.count;
        int64_t timestamp_delta = t.batch.count ? record.timestamp_ms - t.batch.base_timestamp_ms : 0;
        int64_t bound = kb_record_bound(&record);
        if (KB_UNLIKELY(bound > (int64_t)(t.memory.capacity - t.memory.used) || bound > KB_MAX_RECORD_BODY)) {
            status = bound > KB_MAX_RECORD_BODY ? KB_APPEND_TOO_LARGE : KB_APPEND_MEMORY;
            *needed = bound;
            break;
        }
        uint8_t *at = t.memory.data + t.memory.used;
        int64_t size = kb_record_put_unsized(at, &record, timestamp_delta, offset_delta) - at;
        if (KB_UNLIKELY(!kb_has_room(&t.batch, size, t.write_limit, t.factor))) {
            status = KB_APPEND_FULL; /* bytes written after the batch do not count */
            break;
        }
        t.memory.used += (size_t)size;
        kb_count_record(&t.batch, record.timestamp_ms, size, offset_delta);
    }
    *target = t;
    *next = i;
    return status;
}

#endif
