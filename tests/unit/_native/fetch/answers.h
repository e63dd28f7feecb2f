/* Answers to Fetch of version 16, of one topic and in one session, as tests in C play them. */
#ifndef KBATCH_TESTS_ANSWERS_H
#define KBATCH_TESTS_ANSWERS_H

#include "record_batch.h"
#include "wire.h"

enum { RECORD_BYTES = 200 };

static const uint8_t topic_id[KB_WIRE_UUID_BYTES] = "a topic of tests";

static inline uint8_t *put_batch(uint8_t *to, int64_t offset) {
    memset(to, 0, RECORD_BYTES);
    kb_store_be64(to, (uint64_t)offset);
    kb_store_be32(to + KB_LENGTH_AT, RECORD_BYTES - KB_LOG_OVERHEAD);
    to[KB_MAGIC_AT] = 2;
    kb_store_be32(to + KB_BATCH_HEADER_SIZE - 4, 1); /* the number of records */
    return to + RECORD_BYTES;
}

/* Put an answer with a part for one partition, whose log ends one after `offset`. Return its end. */
static inline uint8_t *put_answer(uint8_t *frame, uint32_t correlation_id, int32_t partition, int64_t offset,
                                  bool has_record) {
    uint8_t *to = frame + 4;
    to = kb_wire_put32(to, (int32_t)correlation_id);
    *to++ = 0;
    to = kb_wire_put32(to, 0); /* throttling */
    to = kb_wire_put16(to, 0);
    to = kb_wire_put32(to, 7); /* the session */
    to = kb_wire_put_count(to, 1, true);
    to = kb_wire_put_uuid(to, topic_id);
    to = kb_wire_put_count(to, 1, true);
    to = kb_wire_put32(to, partition);
    to = kb_wire_put16(to, 0);
    for (int i = 0; i < 3; i++, to += 8) /* high watermark, last stable offset, first offset */
        kb_store_be64(to, (uint64_t)(i < 2 ? offset + 1 : 0));
    to = kb_wire_put_count(to, -1, true); /* aborted transactions */
    to = kb_wire_put32(to, -1);
    to = kb_wire_put_count(to, has_record ? RECORD_BYTES : 0, true);
    if (has_record)
        to = put_batch(to, offset);
    memset(to, 0, 3); /* tagged fields */
    to += 3;
    kb_store_be32(frame, (uint32_t)(to - frame - 4));
    return to;
}

#endif
