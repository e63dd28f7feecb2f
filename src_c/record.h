/* One record of a record batch v2 (org.apache.kafka.common.record.DefaultRecord):
 *
 *   varint body size | int8 attributes (0) | varlong timestamp delta | varint offset delta
 *   | varint key size (-1: null), key | varint value size (-1: null), value
 *   | varint header count, each: varint key size, key (UTF-8), varint value size (-1: null), value
 *
 * Writing takes two steps, size and put, or one into memory known to suffice; every byte is written once,
 * except in the rare record whose size field was guessed wrong. Reading never trusts a length: it is compared
 * with the available bytes before it is used. */
#ifndef KBATCH_RECORD_H
#define KBATCH_RECORD_H

#include "varint.h"

typedef struct {
    kb_span key; /* never null */
    kb_span value;
} kb_record_header;

typedef struct {
    int64_t timestamp_ms;
    kb_span key, value;
    const kb_record_header *headers;
    int64_t header_count;
} kb_record;

/* The largest body written: its batch, with the header of 61 bytes, must stay within an int32. */
#define KB_MAX_RECORD_BODY (INT32_MAX - 128)
/* The smallest size of a record: six fields of one byte, and the size before them. */
#define KB_MIN_RECORD_BYTES 7

static inline int64_t kb_span_size(kb_span span) {
    return kb_varint_size(span.size) + (span.size > 0 ? span.size : 0);
}

/* Return the exact size of the record's body; the caller refuses more than KB_MAX_RECORD_BODY. */
static inline int64_t kb_record_body_size(const kb_record *record, int64_t timestamp_delta,
                                          int32_t offset_delta) {
    int64_t size = 1 + kb_varint_size(timestamp_delta) + kb_varint_size(offset_delta) +
                   kb_span_size(record->key) + kb_span_size(record->value) +
                   kb_varint_size(record->header_count);
    for (int64_t i = 0; i < record->header_count; i++)
        size += kb_span_size(record->headers[i].key) + kb_span_size(record->headers[i].value);
    return size;
}

KB_INLINE uint8_t *kb_put_span(uint8_t *to, kb_span span) {
    to = kb_put_varint(to, span.size);
    if (span.size > 0) {
        kb_copy(to, span.data, (size_t)span.size);
        to += span.size;
    }
    return to;
}

/* Write the record with its size in front; `body_size` comes from kb_record_body_size. */
static inline uint8_t *kb_record_put(uint8_t *to, const kb_record *record, int64_t body_size,
                                     int64_t timestamp_delta, int32_t offset_delta) {
    to = kb_put_varint(to, body_size);
    *to++ = 0;
    to = kb_put_varint(to, timestamp_delta);
    to = kb_put_varint(to, offset_delta);
    to = kb_put_span(to, record->key);
    to = kb_put_span(to, record->value);
    to = kb_put_varint(to, record->header_count);
    for (int64_t i = 0; i < record->header_count; i++) {
        to = kb_put_span(to, record->headers[i].key);
        to = kb_put_span(to, record->headers[i].value);
    }
    return to;
}

/* The largest possible record, with its size in front: every varint of a size or count has at most five
   bytes. */
KB_INLINE int64_t kb_record_bound(const kb_record *record) {
    int64_t bound = 5 * KB_VARINT_MAX + 1 + KB_VARLONG_MAX + (record->key.size > 0 ? record->key.size : 0) +
                    (record->value.size > 0 ? record->value.size : 0);
    for (int64_t i = 0; i < record->header_count; i++)
        bound += 2 * KB_VARINT_MAX + record->headers[i].key.size +
                 (record->headers[i].value.size > 0 ? record->headers[i].value.size : 0);
    return bound;
}

KB_INLINE uint8_t *kb_put_sized(uint8_t *to, const uint8_t *data, uint64_t size) {
    to = kb_put_raw_varint(to, size << 1);
    kb_copy(to, data, size);
    return to + size;
}

/* kb_put_span with fewer instructions if nothing is null. */
KB_INLINE uint8_t *kb_put_likely_span(uint8_t *to, kb_span span) {
    return KB_LIKELY(span.size >= 0) ? kb_put_sized(to, span.data, (uint64_t)span.size)
                                     : kb_put_varint(to, -1);
}

/* kb_record_body_size and kb_record_put in one, into kb_record_bound bytes: sizing first costs as much as
 * writing. The body is written after a gap of one or two bytes for its size, and moved in the rare case that
 * the gap is wrong. */
KB_INLINE uint8_t *kb_record_put_unsized(uint8_t *to, const kb_record *record, int64_t timestamp_delta,
                                         int32_t offset_delta) {
    if (KB_UNLIKELY(record->key.size + record->value.size >
                    8000)) { /* moving it would cost more than sizing it */
        int64_t body_size = kb_record_body_size(record, timestamp_delta, offset_delta);
        return kb_record_put(to, record, body_size, timestamp_delta, offset_delta);
    }
    uint8_t *start = to + 2, *at = start;
    *at++ = 0;
    at = kb_put_varint(at, timestamp_delta);
    at = kb_put_raw_varint(at, (uint64_t)offset_delta << 1);
    at = kb_put_likely_span(at, record->key);
    at = kb_put_likely_span(at, record->value);
    at = kb_put_raw_varint(at, (uint64_t)record->header_count << 1);
    for (int64_t i = 0; i < record->header_count; i++) {
        at = kb_put_span(at, record->headers[i].key);
        at = kb_put_span(at, record->headers[i].value);
    }
    size_t body_size = (size_t)(at - start);
    if (KB_LIKELY(body_size >= 64 && body_size < 8192)) {
        to[0] = (uint8_t)(body_size << 1 | 0x80);
        to[1] = (uint8_t)(body_size >> 6);
        return at;
    }
    unsigned needed = kb_varint_size((int64_t)body_size);
    memmove(to + needed, start, body_size);
    kb_put_varint(to, (int64_t)body_size);
    return to + needed + body_size;
}

/* A record that was read: spans point into the memory read from; `headers` to the first of `header_count`
   headers. */
typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t header_count;
    kb_span key, value;
    const uint8_t *headers, *end;
} kb_record_view;

/* The reason why bytes are not a record; record_batch.pyx has the texts. */
typedef enum {
    KB_RECORD_OK,
    KB_RECORD_SIZE,
    KB_RECORD_TIMESTAMP,
    KB_RECORD_OFFSET,
    KB_RECORD_KEY,
    KB_RECORD_VALUE,
    KB_RECORD_HEADER_COUNT,
    KB_RECORD_HEADER_KEY,
    KB_RECORD_HEADER_UTF8,
    KB_RECORD_HEADER_VALUE,
    KB_RECORD_TRAILING,
    KB_RECORD_OUTSIDE
} kb_record_error;

/* Read a varint size and as many bytes; -1 is null. NULL if the size is broken, or larger than the available
 * bytes.
 */
KB_INLINE const uint8_t *kb_get_span(const uint8_t *from, const uint8_t *end, kb_span *span) {
    int32_t size;
    from = kb_get_varint(from, end, &size);
    if (KB_UNLIKELY(!from || size < -1 || size > end - from))
        return NULL;
    span->data = from;
    span->size = size;
    return size > 0 ? from + size : from;
}

static inline kb_record_error kb_record_header_get(const uint8_t **from, const uint8_t *end,
                                                   kb_record_header *header) {
    const uint8_t *at = kb_get_span(*from, end, &header->key);
    if (!at || header->key.size < 0)
        return KB_RECORD_HEADER_KEY;
    if (!kb_is_utf8(header->key.data, (size_t)header->key.size))
        return KB_RECORD_HEADER_UTF8;
    if (!(at = kb_get_span(at, end, &header->value)))
        return KB_RECORD_HEADER_VALUE;
    *from = at;
    return KB_RECORD_OK;
}

/* kb_record_get field by field, which finds the fault of a broken record. */
static inline kb_record_error kb_record_get_checked(const uint8_t **from, const uint8_t *end,
                                                    kb_record_view *record) {
    int32_t body_size;
    const uint8_t *at = kb_get_varint(*from, end, &body_size);
    if (KB_UNLIKELY(!at || body_size < KB_MIN_RECORD_BYTES - 1 || body_size > end - at))
        return KB_RECORD_SIZE;
    record->end = at + body_size;
    at =
        kb_get_varlong(at + 1, record->end, &record->timestamp_delta); /* the attributes byte is unused */
    if (KB_UNLIKELY(!at))
        return KB_RECORD_TIMESTAMP;
    if (KB_UNLIKELY(!(at = kb_get_varint(at, record->end, &record->offset_delta))))
        return KB_RECORD_OFFSET;
    if (KB_UNLIKELY(!(at = kb_get_span(at, record->end, &record->key))))
        return KB_RECORD_KEY;
    if (KB_UNLIKELY(!(at = kb_get_span(at, record->end, &record->value))))
        return KB_RECORD_VALUE;
    at = kb_get_varint(at, record->end, &record->header_count);
    /* a header has two bytes at least */
    if (KB_UNLIKELY(!at || record->header_count < 0 || record->header_count > (record->end - at) / 2))
        return KB_RECORD_HEADER_COUNT;
    if (KB_UNLIKELY(record->header_count == 0 && at != record->end))
        return KB_RECORD_TRAILING;
    record->headers = at;
    *from = record->end;
    return KB_RECORD_OK;
}

/* The largest sizes of the fields before the key, and after the value. */
#define KB_RECORD_HEAD_BYTES (1 + 2 * KB_VARINT_MAX + KB_VARLONG_MAX + KB_VARINT_MAX)
#define KB_RECORD_TAIL_BYTES (2 * KB_VARINT_MAX)

/* Read a well-formed record without headers that is followed by a few more bytes, which nearly all are: each
 * field is then known to be within `end` without a check. 0 for anything else. */
KB_INLINE int kb_record_get_near(const uint8_t **from, const uint8_t *end, kb_record_view *record) {
    const uint8_t *at = *from;
    uint64_t body, timestamp, offset, key, value, count;
    if (KB_UNLIKELY(end - at < KB_RECORD_HEAD_BYTES + KB_RECORD_TAIL_BYTES))
        return 0;
    if (KB_UNLIKELY(!(at = kb_get_near_varint(at, end, 32, &body))))
        return 0;
    const uint8_t *start = at;
    if (KB_UNLIKELY(!(at = kb_get_near_varint(at + 1, end, 64, &timestamp))))
        return 0;
    if (KB_UNLIKELY(!(at = kb_get_near_varint(at, end, 32, &offset))))
        return 0;
    if (KB_UNLIKELY(!(at = kb_get_near_varint(at, end, 32, &key))))
        return 0;
    record->key = (kb_span){at, kb_unzigzag(key)};
    if (KB_UNLIKELY(record->key.size < -1 || record->key.size > end - at - KB_RECORD_TAIL_BYTES))
        return 0;
    at += record->key.size > 0 ? record->key.size : 0;
    if (KB_UNLIKELY(!(at = kb_get_near_varint(at, end, 32, &value))))
        return 0;
    record->value = (kb_span){at, kb_unzigzag(value)};
    if (KB_UNLIKELY(record->value.size < -1 || record->value.size > end - at - KB_VARINT_MAX))
        return 0;
    at += record->value.size > 0 ? record->value.size : 0;
    if (KB_UNLIKELY(!(at = kb_get_near_varint(at, end, 32, &count))))
        return 0;
    record->end = record->headers = at;
    record->header_count = 0;
    record->timestamp_delta = kb_unzigzag(timestamp);
    record->offset_delta = (int32_t)kb_unzigzag(offset);
    *from = at;
    /* without headers the record ends here, which proves its size as well */
    return KB_LIKELY(count == 0 && (int64_t)body == 2 * (at - start));
}

/* Read the record at `*from` and move after it. The headers are only counted here: kb_record_check_headers,
 * or kb_record_header_get for each, must follow. */
KB_INLINE kb_record_error kb_record_get(const uint8_t **from, const uint8_t *end, kb_record_view *record) {
    const uint8_t *at = *from;
    if (KB_LIKELY(kb_record_get_near(from, end, record)))
        return KB_RECORD_OK;
    *from = at;
    return kb_record_get_checked(from, end, record);
}

static inline kb_record_error kb_record_check_headers(const kb_record_view *record) {
    const uint8_t *at = record->headers;
    kb_record_header header;
    for (int32_t i = 0; i < record->header_count; i++) {
        kb_record_error error = kb_record_header_get(&at, record->end, &header);
        if (error)
            return error;
    }
    return at == record->end ? KB_RECORD_OK : KB_RECORD_TRAILING;
}

/* True if the record's offset is one of its batch's. The sum with the base offset cannot wrap then. */
KB_INLINE int kb_record_is_within(const kb_record_view *record, int32_t last_offset_delta) {
    return record->offset_delta >= 0 && record->offset_delta <= last_offset_delta;
}

/* Check the whole body of a batch: exactly `count` records and nothing after them. `*failed_at` is the broken
 * record. */
static inline kb_record_error kb_records_check(const uint8_t *from, const uint8_t *end, int32_t count,
                                               int32_t last_offset_delta, int32_t *failed_at) {
    kb_record_view record;
    kb_record_error error = KB_RECORD_OK;
    for (int32_t i = 0; i < count; i++) {
        *failed_at = i;
        if ((error = kb_record_get(&from, end, &record)))
            return error;
        if (KB_UNLIKELY(!kb_record_is_within(&record, last_offset_delta)))
            return KB_RECORD_OUTSIDE;
        if (record.header_count && (error = kb_record_check_headers(&record)))
            return error;
    }
    *failed_at = count;
    return from == end ? KB_RECORD_OK : KB_RECORD_TRAILING;
}

/* Return the number of records by the sizes in front of them, without looking at anything else; -1 if they do
 * not end with the body. */
static inline int64_t kb_records_claimed(const uint8_t *from, const uint8_t *end) {
    int64_t count = 0;
    for (; from < end; count++) {
        int32_t body_size;
        from = kb_get_varint(from, end, &body_size);
        if (!from || body_size < KB_MIN_RECORD_BYTES - 1 || body_size > end - from)
            return -1;
        from += body_size;
    }
    return count;
}

/* Faults that no correct producer writes, but readers accept; record_batch.pyx has the texts. */
typedef enum {
    KB_RECORD_REGULAR,
    KB_RECORD_LONG_VARINT,
    KB_RECORD_ATTRIBUTES,
    KB_RECORD_OFFSET_SKIPS,
    KB_RECORD_BASE_TIMESTAMP
} kb_record_oddity;

/* A broker's checks of all records of a batch. */
typedef struct {
    int64_t base_timestamp_ms;      /* set by the caller, the rest by kb_records_survey */
    int64_t min_timestamp_ms;       /* of the records that have one, which is not -1; INT64_MAX: none has */
    int64_t max_timestamp_ms;       /* -1: none has */
    int32_t null_key_count;
    int32_t failed_at;              /* the record at fault, where kb_records_survey gives an error */
    int32_t odd_at;                 /* the first odd record */
    kb_record_oddity oddity;        /* what is odd about it */
    int offsets_consecutive;        /* whether the offset deltas are 0, 1, 2, ... */
} kb_record_survey;

/* Bytes of the record as a correct producer writes it, with its size in front: every varint is as short as it
 * can be. */
static inline int64_t kb_record_regular_size(const kb_record_view *record, int64_t *body) {
    const uint8_t *at = record->headers;
    kb_record_header header;
    *body = 1 + kb_varint_size(record->timestamp_delta) + kb_varint_size(record->offset_delta) +
            kb_span_size(record->key) + kb_span_size(record->value) + kb_varint_size(record->header_count);
    for (int32_t i = 0; i < record->header_count && !kb_record_header_get(&at, record->end, &header); i++)
        *body += kb_span_size(header.key) + kb_span_size(header.value);
    return *body + kb_varint_size(*body);
}

/* Return the oddity of record `index`, which begins at `start`. */
static inline kb_record_oddity kb_record_find_oddity(const uint8_t *start, const kb_record_view *record,
                                                     int32_t index) {
    int64_t body;
    if (kb_record_regular_size(record, &body) != record->end - start)
        return KB_RECORD_LONG_VARINT;
    if (record->end[-body] != 0)
        return KB_RECORD_ATTRIBUTES;
    if (record->offset_delta != index)
        return KB_RECORD_OFFSET_SKIPS;
    if (index == 0 && record->timestamp_delta != 0)
        return KB_RECORD_BASE_TIMESTAMP;
    return KB_RECORD_REGULAR;
}

/* kb_records_check, and a survey of the records in the same pass. */
static inline kb_record_error kb_records_survey(const uint8_t *from, const uint8_t *end, int32_t count,
                                                kb_record_survey *survey) {
    kb_record_view record;
    kb_record_error error;
    survey->min_timestamp_ms = INT64_MAX;
    survey->max_timestamp_ms = -1;
    survey->null_key_count = 0;
    survey->oddity = KB_RECORD_REGULAR;
    survey->odd_at = -1;
    survey->offsets_consecutive = 1;
    for (int32_t i = 0; i < count; i++) {
        const uint8_t *start = from;
        survey->failed_at = i;
        if ((error = kb_record_get(&from, end, &record)))
            return error;
        if (record.header_count && (error = kb_record_check_headers(&record)))
            return error;
        /* wraps as Java's addition does */
        int64_t timestamp_ms =
            (int64_t)((uint64_t)survey->base_timestamp_ms + (uint64_t)record.timestamp_delta);
        if (timestamp_ms > survey->max_timestamp_ms)
            survey->max_timestamp_ms = timestamp_ms;
        if (timestamp_ms < survey->min_timestamp_ms && timestamp_ms != -1)
            survey->min_timestamp_ms = timestamp_ms;
        survey->null_key_count += record.key.size < 0;
        survey->offsets_consecutive &= record.offset_delta == i;
        if (KB_LIKELY(survey->oddity == KB_RECORD_REGULAR)) {
            survey->oddity = kb_record_find_oddity(start, &record, i);
            survey->odd_at = survey->oddity == KB_RECORD_REGULAR ? -1 : i;
        }
    }
    survey->failed_at = count;
    return from == end ? KB_RECORD_OK : KB_RECORD_TRAILING;
}

#endif
