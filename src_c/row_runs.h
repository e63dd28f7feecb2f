/* Offsets of a table's rows from runs: a delivered batch is a few words for all its rows.
 *
 * The rows for a partition get there in order, so a run is its first row and its length: the others are the
 * following rows for the same partition. */
#ifndef KBATCH_ROW_RUNS_H
#define KBATCH_ROW_RUNS_H

#include <stdint.h>
#include <stdlib.h>

/* Rows of one partition, one at least, that follow each other in its log. */
typedef struct {
    int64_t first_row, offset; /* of that row */
    int32_t topic, partition, count;
} kb_row_run;

/* The position within the rows of a partition: in a run, with `left` rows to come, or before `next`. */
typedef struct {
    const kb_row_run *next, *end;
    int64_t left, offset;
} kb_run_cursor;

static inline int kb_compare_runs(const void *a, const void *b) {
    const kb_row_run *one = a, *other = b;
    if (one->topic != other->topic)
        return one->topic < other->topic ? -1 : 1;
    if (one->partition != other->partition)
        return one->partition < other->partition ? -1 : 1;
    return (one->first_row > other->first_row) - (one->first_row < other->first_row);
}

/* Return the offset of the next row of a partition; -1 if no run has it. */
static inline int64_t kb_next_offset(kb_run_cursor *cursor, int64_t row) {
    if (!cursor->left) {
        if (cursor->next == cursor->end || cursor->next->first_row != row)
            return -1;
        cursor->left = cursor->next->count;
        cursor->offset = cursor->next->offset;
        cursor->next++;
    }
    cursor->left--;
    return cursor->offset++;
}

/* Set `offsets` for each of `row_count` rows, or -1. Their partitions are `topics` (NULL: 0 for all) and
 * `partitions`, below 0 if there is none. The runs are sorted. 0 without memory. */
static inline int kb_put_run_offsets(kb_row_run *runs, int64_t run_count, const int32_t *topics,
                                     const int32_t *partitions, int64_t row_count, int64_t *offsets) {
    int32_t topic_count = 0;
    if (run_count) {
        qsort(runs, (size_t)run_count, sizeof *runs, kb_compare_runs);
        topic_count = runs[run_count - 1].topic + 1;
    }
    /* the cursors of topic t: starts[t] .. starts[t + 1] - 1, for each partition up to the last with a run */
    int64_t *starts = calloc((size_t)topic_count + 1, sizeof *starts);
    if (!starts)
        return 0;
    for (int64_t i = 0; i < run_count; i++)
        starts[runs[i].topic + 1] = (int64_t)runs[i].partition + 1;
    for (int32_t t = 0; t < topic_count; t++)
        starts[t + 1] += starts[t];
    kb_run_cursor *cursors = calloc((size_t)starts[topic_count] + 1, sizeof *cursors);
    if (!cursors) {
        free(starts);
        return 0;
    }
    for (int64_t i = 0; i < run_count; i++) {
        kb_run_cursor *cursor = &cursors[starts[runs[i].topic] + runs[i].partition];
        if (!cursor->next)
            cursor->next = &runs[i];
        cursor->end = &runs[i + 1];
    }
    for (int64_t row = 0; row < row_count; row++) {
        int32_t topic = topics ? topics[row] : 0, partition = partitions[row];
        int has_cursor = partition >= 0 && topic >= 0 && topic < topic_count &&
                         partition < starts[topic + 1] - starts[topic];
        offsets[row] = has_cursor ? kb_next_offset(&cursors[starts[topic] + partition], row) : -1;
    }
    free(cursors);
    free(starts);
    return 1;
}

#endif
