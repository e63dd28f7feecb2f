/* From records to columns: the records of a batch appended to Arrow buffers, checked as they are read. */
#ifndef KBATCH_RECORD_COLUMNS_H
#define KBATCH_RECORD_COLUMNS_H

#include "arrow_columns.h"
#include "record_batch.h"
#include "rows.h"

/* The columns that are made; of the others nothing is read or written beyond what finds the next record. */
enum {
    KB_WANT_OFFSET = 1,
    KB_WANT_TIMESTAMP = 2,
    KB_WANT_KEY = 4,
    KB_WANT_VALUE = 8,
    KB_WANT_HEADERS = 16,
    KB_WANT_LEADER_EPOCH = 32,
    KB_WANT_RECORD = KB_WANT_OFFSET | KB_WANT_TIMESTAMP | KB_WANT_KEY | KB_WANT_VALUE | KB_WANT_HEADERS
};

/* A binary column being built: row r is data[offsets[r]] .. data[offsets[r + 1]], or what views[r] refers to;
 * it is null where its validity bit is 0. */
typedef struct {
    int32_t *offsets;
    kb_view *views;
    uint8_t *validity; /* NULL: the column has no nulls */
    kb_memory data;
    int64_t null_count;
} kb_binary_builder;

/* A chunk. Only the memory of wanted columns is used: key and value have offsets and data or, `as_views`,
 * views. */
typedef struct {
    int wanted, as_views;
    int64_t row_count, row_capacity;
    int64_t *offsets, *timestamps_ms;
    int32_t *leader_epochs;
    kb_binary_builder key, value;
    int32_t *header_offsets; /* a list a row, of rows of header_key and header_value */
    int64_t header_count, header_capacity;
    kb_binary_builder header_key, header_value;
} kb_record_columns;

typedef enum {
    KB_COLUMNS_DONE,
    KB_COLUMNS_MEMORY,
    KB_COLUMNS_CORRUPT
} kb_columns_status;

/* The unread rest of a batch's records; `index` is that of the next. */
typedef struct {
    const uint8_t *at, *end;
    int32_t index, count;
    int64_t base_offset, timestamp_ms; /* the base timestamp, or that of all records */
    int32_t last_offset_delta;         /* a record after it is corrupt */
    int64_t first_offset, last_offset; /* records outside are left out; both are offsets of the batch */
    int log_append_time;
    int32_t leader_epoch;
    const uint8_t *view_base; /* the start of the buffer that `at` is in, and its number */
    int32_t view_buffer;
    int64_t next_offset; /* after the last record that was appended */
    kb_record_error error;
} kb_records_cursor;

/* Set which offsets of the batch are wanted: those of `first` to `last`, of which the batch has one. */
static inline void kb_cursor_limit(kb_records_cursor *cursor, int64_t base_offset, int32_t last_offset_delta,
                                   int64_t first, int64_t last) {
    int64_t batch_last = base_offset + last_offset_delta;
    cursor->base_offset = base_offset;
    cursor->last_offset_delta = last_offset_delta;
    cursor->first_offset = first > base_offset ? first : base_offset;
    cursor->last_offset = last < batch_last ? last : batch_last;
}

KB_INLINE int kb_fits(const kb_binary_builder *column, kb_span value) {
    return value.size <= (int64_t)(column->data.capacity - column->data.used);
}

KB_INLINE void kb_build_null(kb_binary_builder *column, int64_t row) {
    column->validity[row >> 3] &= (uint8_t)~(1u << (row & 7));
    column->null_count++;
}

/* `row` has an entry in the offsets and, if there is one, a set bit in the validity; the data has room. */
KB_INLINE void kb_build(kb_binary_builder *column, int64_t row, kb_span value) {
    if (value.size > 0) {
        kb_copy(column->data.data + column->data.used, value.data, (size_t)value.size);
        column->data.used += (size_t)value.size;
    }
    column->offsets[row + 1] = (int32_t)column->data.used;
    if (KB_UNLIKELY(value.size < 0))
        kb_build_null(column, row);
}

/* The same as a view: a value of up to 12 bytes is in it, a longer one stays at cursor->view_base. */
KB_INLINE void kb_build_view(kb_binary_builder *column, int64_t row, kb_span value,
                             const kb_records_cursor *cursor) {
    kb_view view = {0};
    if (KB_LIKELY(value.size > 12)) {
        view.size = (int32_t)value.size;
        memcpy(view.prefix, value.data, sizeof view.prefix);
        view.buffer = cursor->view_buffer;
        view.offset = (int32_t)(value.data - cursor->view_base);
    } else if (value.size >= 0) {
        view.size = (int32_t)value.size;
        kb_copy((uint8_t *)&view + offsetof(kb_view, prefix), value.data, (size_t)value.size);
    } else {
        kb_build_null(column, row);
    }
    column->views[row] = view;
}

/* Append all or none of a record's headers; their keys and values together have no more bytes than the
   record. */
static inline kb_columns_status kb_build_headers(kb_record_columns *columns, const kb_record_view *record,
                                                 kb_record_error *error) {
    const kb_binary_builder key = columns->header_key, value = columns->header_value;
    const int64_t first = columns->header_count;
    kb_span most = {record->headers, record->end - record->headers};
    kb_record_header header;
    const uint8_t *at = record->headers;
    int64_t row = first;
    if (row + record->header_count > columns->header_capacity || !kb_fits(&key, most) ||
        !kb_fits(&value, most))
        return KB_COLUMNS_MEMORY;
    *error = KB_RECORD_OK;
    for (; row < first + record->header_count && !(*error = kb_record_header_get(&at, record->end, &header));
         row++) {
        kb_build(&columns->header_key, row, header.key);
        kb_build(&columns->header_value, row, header.value);
    }
    if (!*error && at != record->end)
        *error = KB_RECORD_TRAILING;
    if (*error) {
        columns->header_key = key;
        columns->header_value = value;
        for (; row > first; row--)
            value.validity[(row - 1) >> 3] |= (uint8_t)(1u << ((row - 1) & 7));
        return KB_COLUMNS_CORRUPT;
    }
    columns->header_count = row;
    return KB_COLUMNS_DONE;
}

/* kb_columns_append for columns and a layout that the compiler knows. */
KB_INLINE kb_columns_status kb_columns_append_as(kb_record_columns *columns, kb_records_cursor *cursor,
                                                 kb_record_view *record, const int wanted,
                                                 const int as_views) {
    kb_record_columns c = *columns; /* copies, which no store of bytes can alias */
    kb_record_view r = {0};
    const uint8_t *at = cursor->at, *const end = cursor->end;
    const uint64_t base_timestamp_ms = (uint64_t)cursor->timestamp_ms;
    const uint64_t base_offset = (uint64_t)cursor->base_offset, first = (uint64_t)cursor->first_offset;
    const uint64_t span = (uint64_t)cursor->last_offset - first;
    const int64_t use_delta = cursor->log_append_time ? 0 : -1;
    kb_columns_status status = KB_COLUMNS_DONE;
    uint64_t next_offset = (uint64_t)cursor->next_offset;
    int32_t index = cursor->index;
    for (; index < cursor->count; index++) {
        const uint8_t *next = at;
        int64_t row = c.row_count;
        if (KB_UNLIKELY(cursor->error = kb_record_get(&next, end, &r)))
            break;
        /* header and record may disagree: the sum may wrap, but not into the offsets that are wanted; that of
         * the timestamps below wraps as Java's does */
        uint64_t offset = base_offset + (uint64_t)(int64_t)r.offset_delta;
        if (KB_UNLIKELY(offset - first > span)) {
            if (!kb_record_is_within(&r, cursor->last_offset_delta)) {
                cursor->error = KB_RECORD_OUTSIDE;
                break;
            }
            at = next;
            continue;
        }
        if (!as_views && KB_UNLIKELY((wanted & KB_WANT_KEY && !kb_fits(&c.key, r.key)) ||
                                     (wanted & KB_WANT_VALUE && !kb_fits(&c.value, r.value)))) {
            status = KB_COLUMNS_MEMORY;
            break;
        }
        if (wanted & KB_WANT_HEADERS) {
            if (r.header_count && (status = kb_build_headers(&c, &r, &cursor->error)) != KB_COLUMNS_DONE)
                break;
            c.header_offsets[row + 1] = (int32_t)c.header_count;
        }
        if (wanted & KB_WANT_KEY) {
            if (as_views)
                kb_build_view(&c.key, row, r.key, cursor);
            else
                kb_build(&c.key, row, r.key);
        }
        if (wanted & KB_WANT_VALUE) {
            if (as_views)
                kb_build_view(&c.value, row, r.value, cursor);
            else
                kb_build(&c.value, row, r.value);
        }
        if (wanted & KB_WANT_OFFSET)
            c.offsets[row] = (int64_t)offset;
        if (wanted & KB_WANT_TIMESTAMP)
            c.timestamps_ms[row] = (int64_t)(base_timestamp_ms + (uint64_t)(r.timestamp_delta & use_delta));
        c.row_count = row + 1;
        next_offset = offset + 1;
        at = next;
    }
    *record = r;
    cursor->at = at;
    cursor->index = index;
    cursor->next_offset = (int64_t)next_offset;
    *columns = c;
    if (status == KB_COLUMNS_DONE && !cursor->error && at != end)
        cursor->error = KB_RECORD_TRAILING;
    return cursor->error ? KB_COLUMNS_CORRUPT : status;
}

static inline void kb_columns_fill_epoch(kb_record_columns *columns, int64_t row, int32_t leader_epoch) {
    if (columns->wanted & KB_WANT_LEADER_EPOCH)
        for (; row < columns->row_count; row++)
            columns->leader_epochs[row] = leader_epoch;
}

/* Append records until all are there, or memory for the next one lacks (its view is in `*record`), or one is
 * corrupt (`cursor->error`). There must be room for cursor->count rows. */
static inline kb_columns_status kb_columns_append(kb_record_columns *columns, kb_records_cursor *cursor,
                                                  kb_record_view *record) {
    int64_t row = columns->row_count;
    kb_columns_status status;
    int all = (columns->wanted & KB_WANT_RECORD) == KB_WANT_RECORD;
    if (columns->as_views)
        status = all ? kb_columns_append_as(columns, cursor, record, KB_WANT_RECORD, 1)
                     : kb_columns_append_as(columns, cursor, record, columns->wanted, 1);
    else
        status = all ? kb_columns_append_as(columns, cursor, record, KB_WANT_RECORD, 0)
                     : kb_columns_append_as(columns, cursor, record, columns->wanted, 0);
    kb_columns_fill_epoch(columns, row, cursor->leader_epoch);
    return status;
}

/* Append rows without a look at the records: `count` of them from `first_offset` on, all of one time. There
 * must be room for them, and neither keys, values nor headers are wanted. */
static inline void kb_columns_append_range(kb_record_columns *columns, int64_t first_offset, int64_t count,
                                           int64_t timestamp_ms, int32_t leader_epoch) {
    int64_t row = columns->row_count;
    for (int64_t i = 0; i < count; i++) {
        if (columns->wanted & KB_WANT_OFFSET)
            columns->offsets[row + i] = first_offset + i;
        if (columns->wanted & KB_WANT_TIMESTAMP)
            columns->timestamps_ms[row + i] = timestamp_ms;
    }
    columns->row_count = row + count;
    kb_columns_fill_epoch(columns, row, leader_epoch);
}

/* What the first records of a batch have of the data that is copied, and their bytes: what to expect of the
 * rest. It stops at a broken record. */
typedef struct {
    int64_t key_bytes, value_bytes;
    int64_t header_count, header_key_bytes, header_value_bytes;
    int64_t all_bytes;
} kb_records_sample;

static inline void kb_sample_headers(const kb_record_view *record, kb_records_sample *sample) {
    const uint8_t *at = record->headers;
    kb_record_header header;
    for (int32_t i = 0; i < record->header_count && !kb_record_header_get(&at, record->end, &header); i++) {
        sample->header_key_bytes += header.key.size;
        sample->header_value_bytes += header.value.size > 0 ? header.value.size : 0;
        sample->header_count++;
    }
}

static inline kb_records_sample kb_sample_records(const kb_record_columns *columns,
                                                  const kb_records_cursor *cursor) {
    enum { KB_SAMPLED = 32 };
    kb_records_sample sample = {0};
    kb_record_view record;
    const uint8_t *at = cursor->at;
    for (int32_t i = 0; i < cursor->count && i < KB_SAMPLED; i++) {
        if (kb_record_get(&at, cursor->end, &record))
            break;
        if (columns->wanted & KB_WANT_KEY && !columns->as_views && record.key.size > 0)
            sample.key_bytes += record.key.size;
        if (columns->wanted & KB_WANT_VALUE && !columns->as_views && record.value.size > 0)
            sample.value_bytes += record.value.size;
        if (columns->wanted & KB_WANT_HEADERS)
            kb_sample_headers(&record, &sample);
        sample.all_bytes = at - cursor->at;
    }
    return sample;
}

#endif
