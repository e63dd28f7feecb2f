/* Arrow columns as spans: a block of rows of any binary-like layout becomes an array of (data, size), so that
 * all later steps (hashing, sizing, writing) have one form.
 *
 * A column is read as in the Arrow format: its `offset` counts rows before the first, a missing validity
 * buffer means no nulls. Offsets and views are trusted to lie within their buffers, as every consumer of the
 * interface must; a dictionary index, which is cheap to check, is checked. */
#ifndef KBATCH_ARROW_COLUMNS_H
#define KBATCH_ARROW_COLUMNS_H

#include "arrow_c_abi.h"
#include "bytes.h"

typedef enum {
    KB_COLUMN_NULL,      /* no buffers: every row is null */
    KB_COLUMN_OFFSETS32, /* binary, string */
    KB_COLUMN_OFFSETS64, /* large_binary, large_string */
    KB_COLUMN_VIEWS,     /* binary_view, string_view */
    KB_COLUMN_FIXED,     /* fixed_size_binary */
    KB_COLUMN_DICTIONARY /* indices into a column of the kinds above */
} kb_column_kind;

typedef struct kb_column {
    kb_column_kind kind;
    int64_t width; /* of a fixed_size_binary value; of a dictionary index, negative where it is signed */
    const uint8_t *validity; /* a bit a row, lowest first; NULL: no nulls */
    int64_t offset, length;
    const void *index; /* offsets, views or dictionary indices */
    const uint8_t *data;
    const uint8_t *const *view_data; /* what views refer to */
    const struct kb_column *dictionary;
} kb_column;

typedef struct {
    int32_t size;
    char prefix[4];
    int32_t buffer, offset;
} kb_view;

static inline int kb_is_valid(const uint8_t *validity, int64_t row) {
    return !validity || validity[row >> 3] >> (row & 7) & 1;
}

#define KB_DEFINE_OFFSETS_SPANS(bits)                                                                \
    static inline void kb_offsets##bits##_spans(const kb_column *column, int64_t row, int64_t count, \
                                                kb_span *spans, int64_t stride) {                    \
        const int##bits##_t *offsets = (const int##bits##_t *)column->index + row;                   \
        for (int64_t i = 0; i < count; i++) {                                                        \
            spans[i * stride].data = column->data + offsets[i];                                      \
            spans[i * stride].size = (int64_t)offsets[i + 1] - offsets[i];                           \
        }                                                                                            \
    }

KB_DEFINE_OFFSETS_SPANS(32)
KB_DEFINE_OFFSETS_SPANS(64)

static inline void kb_views_spans(const kb_column *column, int64_t row, int64_t count, kb_span *spans,
                                  int64_t stride) {
    const uint8_t *views = (const uint8_t *)column->index + row * (int64_t)sizeof(kb_view);
    for (int64_t i = 0; i < count; i++, views += sizeof(kb_view), spans += stride) {
        kb_view view;
        memcpy(&view, views, sizeof view);
        spans->size = view.size;
        /* the view itself holds up to 12 bytes; a null's view may be anything, so it is not followed */
        if (view.size <= 12 || !kb_is_valid(column->validity, row + i))
            spans->data = views + 4;
        else
            spans->data = column->view_data[view.buffer] + view.offset;
    }
}

static inline int64_t kb_dictionary_index(const kb_column *column, int64_t row) {
    const void *index = column->index;
    switch (column->width) {
    case -1: return ((const int8_t *)index)[row];
    case 1: return ((const uint8_t *)index)[row];
    case -2: return ((const int16_t *)index)[row];
    case 2: return ((const uint16_t *)index)[row];
    case -4: return ((const int32_t *)index)[row];
    case 4: return ((const uint32_t *)index)[row];
    default: return ((const int64_t *)index)[row]; /* beyond 2^63 it is negative, and refused as such */
    }
}

static inline int64_t kb_column_spans(const kb_column *column, int64_t first, int64_t count, kb_span *spans,
                                      int64_t stride);

static inline int64_t kb_dictionary_spans(const kb_column *column, int64_t row, int64_t count, kb_span *spans,
                                          int64_t stride) {
    for (int64_t i = 0; i < count; i++) {
        if (!kb_is_valid(column->validity, row + i))
            continue;
        int64_t index = kb_dictionary_index(column, row + i);
        if (index < 0 || index >= column->dictionary->length)
            return i;
        kb_column_spans(column->dictionary, index, 1, spans + i * stride, 1);
    }
    return count;
}

/* Fill spans[0], spans[stride], ... for `count` rows from `first`; return `count`, or the first row (from 0)
 * that is malformed. */
static inline int64_t kb_column_spans(const kb_column *column, int64_t first, int64_t count, kb_span *spans,
                                      int64_t stride) {
    int64_t row = column->offset + first, good = count;
    switch (column->kind) {
    case KB_COLUMN_NULL:
        for (int64_t i = 0; i < count; i++)
            spans[i * stride] = (kb_span){NULL, -1};
        return count;
    case KB_COLUMN_OFFSETS32: kb_offsets32_spans(column, row, count, spans, stride); break;
    case KB_COLUMN_OFFSETS64: kb_offsets64_spans(column, row, count, spans, stride); break;
    case KB_COLUMN_VIEWS: kb_views_spans(column, row, count, spans, stride); break;
    case KB_COLUMN_FIXED:
        for (int64_t i = 0; i < count; i++)
            spans[i * stride] = (kb_span){column->data + (row + i) * column->width, column->width};
        break;
    case KB_COLUMN_DICTIONARY: good = kb_dictionary_spans(column, row, count, spans, stride); break;
    }
    if (column->validity)
        for (int64_t i = 0; i < good; i++)
            if (!kb_is_valid(column->validity, row + i))
                spans[i * stride] = (kb_span){NULL, -1};
    /* one look at all sizes at once: a test of each costs a third of this function */
    uint64_t sizes = 0;
    for (int64_t i = 0; i < good; i++)
        sizes |= (uint64_t)spans[i * stride].size + 1;
    if (KB_UNLIKELY((int64_t)sizes < 0))
        for (int64_t i = 0; i < good; i++)
            if (spans[i * stride].size < -1)
                return i;
    return good;
}

#endif
