/* Records written one after another across a chain of chunks, which is then one stream of bytes: a record may
 * begin in one chunk and end in another, so that every chunk but the last one in use is full. */
#ifndef KBATCH_CHUNK_CHAIN_H
#define KBATCH_CHUNK_CHAIN_H

#include "record_batch.h"

/* The head of a chunk; its bytes follow it. */
typedef struct kb_chunk {
    struct kb_chunk *next;
    int64_t size; /* of the chunk, its head included */
} kb_chunk;

enum { KB_CHUNK_HEAD_BYTES = sizeof(kb_chunk) };

/* All zero is a chain without chunks. */
typedef struct {
    kb_chunk *first, *current, *last;
    uint8_t *at, *end;   /* what is free of `current` */
    int64_t spare_bytes; /* free in the chunks after `current` */
    int64_t chunk_bytes; /* of all chunks, with their heads */
} kb_chain;

typedef enum {
    KB_CHAIN_DONE,
    KB_CHAIN_FULL,
    KB_CHAIN_MEMORY
} kb_chain_status;

static inline uint8_t *kb_chunk_data(kb_chunk *chunk) {
    return (uint8_t *)(chunk + 1);
}

static inline int64_t kb_chunk_room(const kb_chunk *chunk) {
    return chunk->size - (int64_t)sizeof(kb_chunk);
}

static inline int64_t kb_chain_room(const kb_chain *chain) {
    return chain->end - chain->at + chain->spare_bytes;
}

static inline void kb_chain_enter(kb_chain *chain, kb_chunk *chunk) {
    chain->current = chunk;
    chain->at = kb_chunk_data(chunk);
    chain->end = (uint8_t *)chunk + chunk->size;
    chain->spare_bytes -= kb_chunk_room(chunk);
}

/* Append one or more linked `chunks` to the chain's own. */
static inline void kb_chain_extend(kb_chain *chain, kb_chunk *chunks) {
    if (chain->last)
        chain->last->next = chunks;
    else
        chain->first = chunks;
    for (kb_chunk *chunk = chunks; chunk; chunk = chunk->next) {
        chain->last = chunk;
        chain->chunk_bytes += chunk->size;
        chain->spare_bytes += kb_chunk_room(chunk);
    }
    if (!chain->current)
        kb_chain_enter(chain, chunks);
}

/* Remove the unused chunks from the chain; NULL if there are none. */
static inline kb_chunk *kb_chain_cut(kb_chain *chain) {
    kb_chunk *unused = chain->current ? chain->current->next : NULL;
    if (!unused)
        return NULL;
    chain->current->next = NULL;
    chain->last = chain->current;
    chain->spare_bytes = 0;
    for (kb_chunk *chunk = unused; chunk; chunk = chunk->next)
        chain->chunk_bytes -= chunk->size;
    return unused;
}

/* Bytes written to a chunk that is not after `current`. */
static inline int64_t kb_chunk_used(const kb_chain *chain, kb_chunk *chunk) {
    return chunk == chain->current ? chain->at - kb_chunk_data(chunk) : kb_chunk_room(chunk);
}

/* `to` has room for everything written. */
static inline void kb_chain_gather(const kb_chain *chain, uint8_t *to) {
    for (kb_chunk *chunk = chain->first; chunk; chunk = chunk == chain->current ? NULL : chunk->next) {
        int64_t used = kb_chunk_used(chain, chunk);
        memcpy(to, kb_chunk_data(chunk), (size_t)used);
        to += used;
    }
}

/* `size` is no more than the chain's room. */
static inline void kb_chain_put(kb_chain *chain, const uint8_t *from, int64_t size) {
    while (size > 0) {
        if (chain->at == chain->end)
            kb_chain_enter(chain, chain->current->next);
        int64_t part = size < chain->end - chain->at ? size : chain->end - chain->at;
        memcpy(chain->at, from, (size_t)part);
        chain->at += part;
        from += part;
        size -= part;
    }
}

static inline void kb_chain_put_varint(kb_chain *chain, int64_t value) {
    uint8_t bytes[KB_VARLONG_MAX];
    kb_chain_put(chain, bytes, kb_put_varint(bytes, value) - bytes);
}

static inline void kb_chain_put_span(kb_chain *chain, kb_span span) {
    kb_chain_put_varint(chain, span.size);
    kb_chain_put(chain, span.data, span.size);
}

/* kb_record_put, across chunks. */
static inline void kb_chain_put_record(kb_chain *chain, const kb_record *record, int64_t body_size,
                                       int64_t timestamp_delta, int32_t offset_delta) {
    static const uint8_t attributes = 0;
    kb_chain_put_varint(chain, body_size);
    kb_chain_put(chain, &attributes, 1);
    kb_chain_put_varint(chain, timestamp_delta);
    kb_chain_put_varint(chain, offset_delta);
    kb_chain_put_span(chain, record->key);
    kb_chain_put_span(chain, record->value);
    kb_chain_put_varint(chain, record->header_count);
    for (int64_t i = 0; i < record->header_count; i++) {
        kb_chain_put_span(chain, record->headers[i].key);
        kb_chain_put_span(chain, record->headers[i].value);
    }
}

/* Append a record to an open batch. It is done; or the batch has no room for it by Kafka's rule; or the chain
 * has none. `*size` is the record's size. Nearly always the chunk has room for the largest possible size, and
 * the record is written at once; bytes beyond `at` that kb_has_room then refuses do not count. */
static inline kb_chain_status kb_chain_append(kb_chain *chain, kb_open_batch *batch, const kb_record *record,
                                              int64_t write_limit, double factor, int64_t *size) {
    int32_t offset_delta = batch->count;
    int64_t timestamp_delta = batch->count ? record->timestamp_ms - batch->base_timestamp_ms : 0;
    if (KB_LIKELY(kb_record_bound(record) <= chain->end - chain->at)) {
        *size = kb_record_put_unsized(chain->at, record, timestamp_delta, offset_delta) - chain->at;
        if (!kb_has_room(batch, *size, write_limit, factor))
            return KB_CHAIN_FULL;
        chain->at += *size;
    } else {
        int64_t body_size = kb_record_body_size(record, timestamp_delta, offset_delta);
        *size = body_size + kb_varint_size(body_size);
        if (!kb_has_room(batch, *size, write_limit, factor))
            return KB_CHAIN_FULL;
        if (*size > kb_chain_room(chain))
            return KB_CHAIN_MEMORY;
        kb_chain_put_record(chain, record, body_size, timestamp_delta, offset_delta);
    }
    kb_count_record(batch, record->timestamp_ms, *size, offset_delta);
    return KB_CHAIN_DONE;
}

#endif
