/* From records to columns: the records of a batch appended to Arrow buffers, checked as they are read. */
#ifndef KBATCH_RECORD_COLUMNS_H
#define KBATCH_RECORD_COLUMNS_H

#include "record_batch.h"
#include "rows.h"

/* A binary column being built: row r is data[offsets[r]] .. data[offsets[r + 1]], null where its validity bit
 * is 0. */
typedef struct {
    int32_t *offsets;
    uint8_t *validity; /* NULL: the column has no nulls */
    kb_memory data;
    int64_t null_count;
} kb_binary_builder;

typedef struct {
    int64_t row_count, row_capacity;
    int64_t *offsets, *timestamps_ms;
    kb_binary_builder key, value;
    int32_t *header_offsets; /* a list a row, of rows of header_key and header_value */
    int64_t header_count, header_capacity;
    kb_binary_builder header_key, header_value;
} kb_record_columns;

typedef enum { KB_COLUMNS_DONE, KB_COLUMNS_MEMORY, KB_COLUMNS_CORRUPT } kb_columns_status;

/* The unread rest of a batch's records; `index` is that of the next. */
typedef struct {
    const uint8_t *at, *end;
    int32_t index, count;
    int64_t base_offset, timestamp_ms; /* the base timestamp, or that of all records */
    int log_append_time;
    kb_record_error error;
} kb_records_cursor;

KB_INLINE int kb_fits(const kb_binary_builder *column, kb_span value) {
    return value.size <= (int64_t)(column->data.capacity - column->data.used);
}

/* `row` has a place in the offsets and, if there is one, a set bit in the validity; the data has room. */
KB_INLINE void kb_build(kb_binary_builder *column, int64_t row, kb_span value) {
    if (value.size > 0) {
        kb_copy(column->data.data + column->data.used, value.data, (size_t)value.size);
        column->data.used += (size_t)value.size;
    }
    column->offsets[row + 1] = (int32_t)column->data.used;
    if (KB_UNLIKELY(value.size < 0)) {
        column->validity[row >> 3] &= (uint8_t)~(1u << (row & 7));
        column->null_count++;
    }
}

/* Append all or none of a record's headers; their keys and values together have no more bytes than the
   record. */
static inline kb_columns_status kb_build_headers(kb_record_columns *columns, const kb_record_view *record,
                                                 kb_record_error *error) {
    kb_span most = {record->headers, record->end - record->headers};
    kb_record_header header;
    const uint8_t *at = record->headers;
    int64_t row = columns->header_count;
    if (row + record->header_count > columns->header_capacity || !kb_fits(&columns->header_key, most) ||
        !kb_fits(&columns->header_value, most))
        return KB_COLUMNS_MEMORY;
    for (int32_t i = 0; i < record->header_count; i++, row++) {
        if ((*error = kb_record_header_get(&at, record->end, &header)))
            return KB_COLUMNS_CORRUPT;
        kb_build(&columns->header_key, row, header.key);
        kb_build(&columns->header_value, row, header.value);
    }
    if (at != record->end) {
        *error = KB_RECORD_TRAILING;
        return KB_COLUMNS_CORRUPT;
    }
    columns->header_count = row;
    return KB_COLUMNS_DONE;
}

/* Append records until all are there, or memory for the next one lacks (its view is in `*record`), or one is
 * corrupt (`cursor->error`). There must be room for cursor->count rows. */
static inline kb_columns_status kb_columns_append(kb_record_columns *columns, kb_records_cursor *cursor,
                                                  kb_record_view *record) {
    kb_record_columns c = *columns; /* copies, which no store of bytes can alias */
    kb_record_view r;
    const uint8_t *at = cursor->at, *const end = cursor->end;
    const int64_t base_timestamp_ms = cursor->timestamp_ms, base_offset = cursor->base_offset;
    const int64_t use_delta = cursor->log_append_time ? 0 : -1;
    kb_columns_status status = KB_COLUMNS_DONE;
    int32_t index = cursor->index;
    for (; index < cursor->count; index++) {
        const uint8_t *next = at;
        int64_t row = c.row_count;
        if (KB_UNLIKELY(cursor->error = kb_record_get(&next, end, &r))) {
            status = KB_COLUMNS_CORRUPT;
            break;
        }
        if (KB_UNLIKELY(!kb_fits(&c.key, r.key) || !kb_fits(&c.value, r.value))) {
            status = KB_COLUMNS_MEMORY;
            break;
        }
        if (r.header_count && (status = kb_build_headers(&c, &r, &cursor->error)) != KB_COLUMNS_DONE)
            break;
        kb_build(&c.key, row, r.key);
        kb_build(&c.value, row, r.value);
        c.header_offsets[row + 1] = (int32_t)c.header_count;
        /* both wrap, as Java's additions do: header and record may disagree */
        c.offsets[row] = (int64_t)((uint64_t)base_offset + (uint64_t)(int64_t)r.offset_delta);
        c.timestamps_ms[row] =
            (int64_t)((uint64_t)base_timestamp_ms + (uint64_t)(r.timestamp_delta & use_delta));
        c.row_count = row + 1;
        at = next;
    }
    *record = r;
    cursor->at = at;
    cursor->index = index;
    *columns = c;
    if (status == KB_COLUMNS_DONE && at != end) {
        cursor->error = KB_RECORD_TRAILING;
        return KB_COLUMNS_CORRUPT;
    }
    return status;
}

#endif
