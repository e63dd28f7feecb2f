/* Produce requests, and answers that accept all of one: bytes in, bytes out, without Python.
 *
 * A request is written piece by piece into memory of the caller (`kb_produce_room` says how much), with each
 * batch after `kb_produce_put_batch`: there, or as a buffer of its own. An answer is read in one walk, beside
 * its request. It is usual if it accepts exactly the batches of the request and says nothing more. All other
 * answers, broken ones included, are left to the generic codec.
 *
 * After org.apache.kafka.common.requests.ProduceRequest and ProduceResponse; the fields stand in
 * kbatch/protocol/tables/produce.py. */
#ifndef KBATCH_PRODUCE_WIRE_H
#define KBATCH_PRODUCE_WIRE_H

#include "wire.h"

#define KB_PRODUCE_FIRST_VERSION 3
#define KB_PRODUCE_LAST_VERSION 13
#define KB_PRODUCE_API_KEY 0
#define KB_PRODUCE_NOWHERE (-1)

/* The first versions with a field or a form. */
enum {
    KB_PRODUCE_LOG_START = 5,
    KB_PRODUCE_RECORD_ERRORS = 8,
    KB_PRODUCE_FLEXIBLE = 9,
    KB_PRODUCE_TOPIC_ID = 13
};

/* What a request says besides its topics. */
typedef struct {
    int version;
    int32_t correlation_id;
    kb_span client_id; /* size -1: null */
    kb_span transactional_id;
    int16_t acks;
    int32_t timeout_ms;
} kb_produce_head;

typedef struct {
    kb_span name;        /* UTF-8, up to version 12 */
    const uint8_t *id;   /* 16 bytes, from version 13 on */
    int32_t batch_count; /* its batches follow those of the topic before */
} kb_produce_topic;

typedef struct {
    int32_t topic; /* which of the topics */
    int32_t partition;
    int64_t size;
} kb_produce_batch;

/* A batch that the broker has accepted. */
typedef struct {
    int32_t batch; /* which of the batches */
    int64_t base_offset;
    int64_t log_append_time_ms;
} kb_produce_accepted;

/* A request that was written, and a table of `kb_produce_slots` entries: first of topics, then of batches. It
   is filled when an answer has another order than the request. */
typedef struct {
    int version;
    const kb_produce_topic *topics;
    int32_t topic_count;
    const kb_produce_batch *batches;
    int32_t batch_count;
    int32_t *slots;
} kb_produce_request;

/* Writing */

static inline uint8_t *kb_produce_put_count(uint8_t *to, int version, int64_t count) {
    return kb_wire_put_count(to, count, version >= KB_PRODUCE_FLEXIBLE);
}

static inline uint8_t *kb_produce_put_tags(uint8_t *to, int version) {
    return kb_wire_put_tags(to, version >= KB_PRODUCE_FLEXIBLE);
}

/* Return an upper limit of the bytes of a request without those of its batches. */
static inline int64_t kb_produce_room(const kb_produce_head *head, const kb_produce_topic *topics,
                                      int32_t topic_count, int32_t batch_count) {
    int64_t room = 64 + head->client_id.size + head->transactional_id.size;
    for (int32_t i = 0; i < topic_count; i++)
        room += 24 + (topics[i].name.size > 16 ? topics[i].name.size : 16);
    return room + 12 * (int64_t)batch_count;
}

/* Write what comes before the topics; the first four bytes, the size, are left for `kb_wire_end`. */
static inline uint8_t *kb_produce_put_head(uint8_t *to, const kb_produce_head *head, int32_t topic_count) {
    bool is_flexible = head->version >= KB_PRODUCE_FLEXIBLE;
    to = kb_wire_begin(to, KB_PRODUCE_API_KEY, head->version, head->correlation_id, &head->client_id,
                       is_flexible);
    to = kb_wire_put_string(to, &head->transactional_id, is_flexible);
    to = kb_wire_put16(to, head->acks);
    to = kb_wire_put32(to, head->timeout_ms);
    return kb_produce_put_count(to, head->version, topic_count);
}

static inline uint8_t *kb_produce_put_topic(uint8_t *to, int version, const kb_produce_topic *topic) {
    if (version >= KB_PRODUCE_TOPIC_ID)
        to = kb_wire_put_uuid(to, topic->id);
    else
        to = kb_wire_put_string(to, &topic->name, version >= KB_PRODUCE_FLEXIBLE);
    return kb_produce_put_count(to, version, topic->batch_count);
}

/* Write what comes before a batch's bytes; `kb_produce_put_tags` ends it, and later its topic. */
static inline uint8_t *kb_produce_put_batch(uint8_t *to, int version, const kb_produce_batch *batch) {
    return kb_produce_put_count(kb_wire_put32(to, batch->partition), version, batch->size);
}

/* Where a topic or a batch stands in the request */

static inline int64_t kb_produce_table_size(int64_t count) {
    int64_t size = 4;
    while (size < 2 * count)
        size *= 2;
    return size;
}

/* Return the number of entries in `kb_produce_request.slots`. */
static inline int64_t kb_produce_slots(int32_t topic_count, int32_t batch_count) {
    return kb_produce_table_size(topic_count) + kb_produce_table_size(batch_count);
}

static inline uint32_t kb_produce_mixed(uint64_t value) {
    value *= UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(value >> 32);
}

static inline uint32_t kb_produce_hash(const uint8_t *data, int64_t size) {
    uint64_t hash = (uint64_t)size;
    for (int64_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * UINT64_C(0x100000001B3);
    return kb_produce_mixed(hash);
}

static inline uint32_t kb_produce_batch_hash(int32_t topic, int32_t partition) {
    return kb_produce_mixed((uint64_t)(uint32_t)topic << 32 | (uint32_t)partition);
}

/* The name or id by which the version knows a topic. */
static inline kb_span kb_produce_key(const kb_produce_request *request, int32_t topic) {
    kb_span id = {request->topics[topic].id, 16};
    return request->version >= KB_PRODUCE_TOPIC_ID ? id : request->topics[topic].name;
}

static inline int kb_produce_is_topic(const kb_produce_request *request, int32_t topic, const kb_span *key) {
    kb_span own = kb_produce_key(request, topic);
    return own.size == key->size && memcmp(own.data, key->data, (size_t)key->size) == 0;
}

static inline int kb_produce_is_batch(const kb_produce_request *request, int32_t batch, int32_t topic,
                                      int32_t partition) {
    return request->batches[batch].topic == topic && request->batches[batch].partition == partition;
}

static inline void kb_produce_add(int32_t *table, int64_t size, uint32_t hash, int32_t value) {
    uint64_t mask = (uint64_t)size - 1, at = hash & mask;
    while (table[at] != KB_PRODUCE_NOWHERE)
        at = (at + 1) & mask;
    table[at] = value;
}

static inline void kb_produce_fill(const kb_produce_request *request) {
    int64_t topics_size = kb_produce_table_size(request->topic_count);
    int64_t batches_size = kb_produce_table_size(request->batch_count);
    int32_t *batches = request->slots + topics_size;
    memset(request->slots, 0xFF, (size_t)(topics_size + batches_size) * sizeof(int32_t));
    for (int32_t i = 0; i < request->topic_count; i++) {
        kb_span key = kb_produce_key(request, i);
        kb_produce_add(request->slots, topics_size, kb_produce_hash(key.data, key.size), i);
    }
    for (int32_t i = 0; i < request->batch_count; i++)
        kb_produce_add(batches, batches_size,
                       kb_produce_batch_hash(request->batches[i].topic, request->batches[i].partition), i);
}

static inline int32_t kb_produce_find_topic(const kb_produce_request *request, const kb_span *key) {
    uint64_t mask = (uint64_t)kb_produce_table_size(request->topic_count) - 1;
    uint64_t at = kb_produce_hash(key->data, key->size) & mask;
    while (request->slots[at] != KB_PRODUCE_NOWHERE && !kb_produce_is_topic(request, request->slots[at], key))
        at = (at + 1) & mask;
    return request->slots[at];
}

static inline int32_t kb_produce_find_batch(const kb_produce_request *request, int32_t topic,
                                            int32_t partition) {
    const int32_t *table = request->slots + kb_produce_table_size(request->topic_count);
    uint64_t mask = (uint64_t)kb_produce_table_size(request->batch_count) - 1;
    uint64_t at = kb_produce_batch_hash(topic, partition) & mask;
    while (table[at] != KB_PRODUCE_NOWHERE && !kb_produce_is_batch(request, table[at], topic, partition))
        at = (at + 1) & mask;
    return table[at];
}

/* Reading */

/* What is read beside its request. */
typedef struct {
    kb_wire_source wire; /* which has failed at the first thing that is unusual, too */
    const kb_produce_request *request;
    bool is_filled; /* the table of the request */
    int32_t next_batch;
    int32_t accepted_count;
} kb_produce_source;

/* Tagged fields say what is unusual: other leaders. */
static inline void kb_produce_expect_no_tags(kb_wire_source *from) {
    if (from->is_flexible)
        from->has_failed |= kb_wire_get_varint(from) != 0;
}

static inline void kb_produce_expect_no_message(kb_wire_source *from) {
    from->has_failed |= (from->is_flexible ? kb_wire_get_varint(from) - 1 : kb_wire_get16(from)) != -1;
}

static inline void kb_produce_fill_once(kb_produce_source *from) {
    if (!from->is_filled)
        kb_produce_fill(from->request);
    from->is_filled = 1;
}

/* Read which of the topics follows; most answers have them in the request's order. */
static inline int32_t kb_produce_get_topic(kb_produce_source *from) {
    const kb_produce_request *request = from->request;
    kb_span key = request->version >= KB_PRODUCE_TOPIC_ID ? kb_wire_get_uuid(&from->wire)
                                                          : kb_wire_get_string(&from->wire);
    if (!key.data)
        return KB_PRODUCE_NOWHERE;
    if (from->next_batch < request->batch_count) {
        int32_t likely = request->batches[from->next_batch].topic;
        if (kb_produce_is_topic(request, likely, &key))
            return likely;
    }
    kb_produce_fill_once(from);
    return kb_produce_find_topic(request, &key);
}

static inline int32_t kb_produce_get_batch(kb_produce_source *from, int32_t topic) {
    const kb_produce_request *request = from->request;
    int32_t partition = kb_wire_get32(&from->wire);
    int32_t batch = from->next_batch;
    if (batch >= request->batch_count || !kb_produce_is_batch(request, batch, topic, partition)) {
        kb_produce_fill_once(from);
        batch = kb_produce_find_batch(request, topic, partition);
    }
    from->next_batch = batch + 1; /* after an unknown one: the first */
    return batch;
}

/* Read a partition's answer. `is_answered` marks the batches that were accepted before: a second answer to
   one is unusual. */
static inline void kb_produce_get_accepted(kb_produce_source *from, int32_t topic,
                                           kb_produce_accepted *accepted, uint8_t *is_answered) {
    kb_wire_source *wire = &from->wire;
    int version = from->request->version;
    int32_t batch = kb_produce_get_batch(from, topic);
    int16_t error_code = kb_wire_get16(wire);
    int64_t base_offset = kb_wire_get64(wire), log_append_time_ms = kb_wire_get64(wire);
    if (version >= KB_PRODUCE_LOG_START)
        kb_wire_get64(wire);
    if (version >= KB_PRODUCE_RECORD_ERRORS) {
        wire->has_failed |= kb_wire_get_size(wire) != 0;
        kb_produce_expect_no_message(wire);
    }
    kb_produce_expect_no_tags(wire);
    if (wire->has_failed || batch == KB_PRODUCE_NOWHERE || error_code != 0 || is_answered[batch]) {
        wire->has_failed = true;
        return;
    }
    is_answered[batch] = 1;
    accepted[from->accepted_count].batch = batch;
    accepted[from->accepted_count].base_offset = base_offset;
    accepted[from->accepted_count].log_append_time_ms = log_append_time_ms;
    from->accepted_count++;
}

/* Read an answer without its size into `accepted`, in its order. True if it is usual; if not, what is in
   `accepted` and `throttle_time_ms` means nothing. `accepted` and `is_answered` have an entry for each batch,
   the latter zeros. */
static inline int kb_produce_read(const kb_produce_request *request, const uint8_t *frame, int64_t size,
                                  kb_produce_accepted *accepted, uint8_t *is_answered,
                                  int32_t *throttle_time_ms) {
    bool is_flexible = request->version >= KB_PRODUCE_FLEXIBLE;
    kb_produce_source from = {{frame, frame + size, is_flexible, false}, request, false, 0, 0};
    kb_wire_source *wire = &from.wire;
    int64_t topics, partitions;
    if (request->version < KB_PRODUCE_FIRST_VERSION || request->version > KB_PRODUCE_LAST_VERSION)
        return 0;
    kb_wire_get32(wire); /* the correlation id, by which the request was found */
    kb_produce_expect_no_tags(wire);
    topics = kb_wire_get_size(wire);
    if (topics < 1 || topics > request->topic_count)
        return 0;
    for (; topics > 0 && !wire->has_failed; topics--) {
        int32_t topic = kb_produce_get_topic(&from);
        partitions = kb_wire_get_size(wire);
        if (topic == KB_PRODUCE_NOWHERE || partitions < 1)
            return 0;
        for (; partitions > 0 && !wire->has_failed; partitions--)
            kb_produce_get_accepted(&from, topic, accepted, is_answered);
        kb_produce_expect_no_tags(wire);
    }
    *throttle_time_ms = kb_wire_get32(wire);
    kb_produce_expect_no_tags(wire);
    return !wire->has_failed && wire->at == wire->end && from.accepted_count == request->batch_count;
}

#endif
