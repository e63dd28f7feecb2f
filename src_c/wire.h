/* The values of Kafka's protocol (kbatch.protocol.wire): written into memory of the caller, and read by a
 * cursor that never passes the end. */
#ifndef KBATCH_WIRE_H
#define KBATCH_WIRE_H

#include <stdbool.h>

#include "bytes.h"
#include "varint.h"

enum {
    KB_WIRE_MAX_STRING = INT16_MAX,
    KB_WIRE_UUID_BYTES = 16
};

/* Writing; `is_flexible` versions have compact sizes and tagged fields */

static inline uint8_t *kb_wire_put16(uint8_t *to, int16_t value) {
    kb_store_be16(to, (uint16_t)value);
    return to + 2;
}

static inline uint8_t *kb_wire_put32(uint8_t *to, int32_t value) {
    kb_store_be32(to, (uint32_t)value);
    return to + 4;
}

static inline uint8_t *kb_wire_put64(uint8_t *to, int64_t value) {
    kb_store_be64(to, (uint64_t)value);
    return to + 8;
}

static inline uint8_t *kb_wire_put_span(uint8_t *to, const kb_span *span) {
    if (span->size > 0) {
        memcpy(to, span->data, (size_t)span->size);
        to += span->size;
    }
    return to;
}

static inline uint8_t *kb_wire_put_uuid(uint8_t *to, const uint8_t *uuid) {
    memcpy(to, uuid, KB_WIRE_UUID_BYTES);
    return to + KB_WIRE_UUID_BYTES;
}

/* A string whose size -1 is null. */
static inline uint8_t *kb_wire_put_string(uint8_t *to, const kb_span *text, bool is_flexible) {
    if (is_flexible)
        to = kb_put_raw_varint(to, (uint64_t)(text->size + 1));
    else
        to = kb_wire_put16(to, (int16_t)text->size);
    return kb_wire_put_span(to, text);
}

/* The length of an array, or of bytes. */
static inline uint8_t *kb_wire_put_count(uint8_t *to, int64_t count, bool is_flexible) {
    if (is_flexible)
        return kb_put_raw_varint(to, (uint64_t)(count + 1));
    return kb_wire_put32(to, (int32_t)count);
}

/* No tagged fields, if the version can have any. */
static inline uint8_t *kb_wire_put_tags(uint8_t *to, bool is_flexible) {
    if (is_flexible)
        *to++ = 0;
    return to;
}

/* Write the header of a request; the first four bytes, the size, are left for `kb_wire_end`. */
static inline uint8_t *kb_wire_begin(uint8_t *to, int16_t api_key, int version, int32_t correlation_id,
                                     const kb_span *client_id, bool is_flexible) {
    to = kb_wire_put16(to + 4, api_key);
    to = kb_wire_put16(to, (int16_t)version);
    to = kb_wire_put32(to, correlation_id);
    to = kb_wire_put_string(to, client_id, false); /* in both versions of the header */
    return kb_wire_put_tags(to, is_flexible);
}

/* Write the size of the frame, which does not count itself. */
static inline void kb_wire_end(uint8_t *frame, int32_t size) {
    kb_store_be32(frame, (uint32_t)size);
}

/* Reading */

/* What is read; after the first failure nothing is. */
typedef struct {
    const uint8_t *at, *end;
    bool is_flexible, has_failed;
} kb_wire_source;

/* Return where the next `size` bytes begin; NULL, after a failure, if there are not as many. */
static inline const uint8_t *kb_wire_take(kb_wire_source *from, int64_t size) {
    const uint8_t *at = from->at;
    if (from->has_failed || size < 0 || size > from->end - at) {
        from->has_failed = true;
        return NULL;
    }
    from->at = at + size;
    return at;
}

static inline int16_t kb_wire_get16(kb_wire_source *from) {
    const uint8_t *at = kb_wire_take(from, 2);
    return at ? (int16_t)kb_load_be16(at) : 0;
}

static inline int32_t kb_wire_get32(kb_wire_source *from) {
    const uint8_t *at = kb_wire_take(from, 4);
    return at ? (int32_t)kb_load_be32(at) : 0;
}

static inline int64_t kb_wire_get64(kb_wire_source *from) {
    const uint8_t *at = kb_wire_take(from, 8);
    return at ? (int64_t)kb_load_be64(at) : 0;
}

/* Read a varint of at most four bytes, the usual ones. */
static inline int64_t kb_wire_get_varint(kb_wire_source *from) {
    int64_t value = 0;
    for (int shift = 0; shift < 28; shift += 7) {
        const uint8_t *at = kb_wire_take(from, 1);
        if (!at)
            return 0;
        value |= (int64_t)(*at & 0x7F) << shift;
        if (*at < 0x80)
            return value;
    }
    from->has_failed = true;
    return 0;
}

/* Read the length of an array, or of bytes; -1 for null. */
static inline int64_t kb_wire_get_size(kb_wire_source *from) {
    int64_t size = from->is_flexible ? kb_wire_get_varint(from) - 1 : kb_wire_get32(from);
    if (size < -1)
        from->has_failed = true;
    return size;
}

/* Read the length of an array that is not null, whose elements have a byte at least. */
static inline int64_t kb_wire_get_count(kb_wire_source *from) {
    int64_t count = kb_wire_get_size(from);
    if (count < 0 || count > from->end - from->at)
        from->has_failed = true;
    return from->has_failed ? 0 : count;
}

/* Read a string of a size: UTF-8, and not null. */
static inline kb_span kb_wire_get_text(kb_wire_source *from, int64_t size) {
    kb_span text = {NULL, 0};
    if (size > KB_WIRE_MAX_STRING)
        from->has_failed = true;
    text.data = kb_wire_take(from, size);
    text.size = text.data ? size : 0;
    if (!kb_is_utf8(text.data, (size_t)text.size))
        from->has_failed = true;
    return text;
}

static inline kb_span kb_wire_get_string(kb_wire_source *from) {
    return kb_wire_get_text(from, from->is_flexible ? kb_wire_get_varint(from) - 1 : kb_wire_get16(from));
}

static inline kb_span kb_wire_get_uuid(kb_wire_source *from) {
    kb_span uuid = {kb_wire_take(from, KB_WIRE_UUID_BYTES), KB_WIRE_UUID_BYTES};
    return uuid;
}

/* Read the next tag, which must be larger than the one before. Return the end of its value. */
static inline const uint8_t *kb_wire_get_tag(kb_wire_source *from, int64_t *tag) {
    int64_t size, before = *tag;
    *tag = kb_wire_get_varint(from);
    size = kb_wire_get_varint(from);
    if (*tag <= before || size > from->end - from->at)
        from->has_failed = true;
    return from->has_failed ? from->at : from->at + size;
}

/* Skip tagged fields, if the version has them. */
static inline void kb_wire_skip_tags(kb_wire_source *from) {
    int64_t tag = -1, left = from->is_flexible ? kb_wire_get_varint(from) : 0;
    for (; left > 0 && !from->has_failed; left--)
        kb_wire_take(from, kb_wire_get_tag(from, &tag) - from->at);
}

#endif
