/* The header of a record batch v2 (org.apache.kafka.common.record.DefaultRecordBatch), and the open batch.
 * Offsets are derived from one another, so that each width is written once. */
#ifndef KBATCH_RECORD_BATCH_H
#define KBATCH_RECORD_BATCH_H

#include "record.h"

enum {
    KB_BASE_OFFSET_AT = 0,
    KB_LENGTH_AT = KB_BASE_OFFSET_AT + 8,
    KB_LOG_OVERHEAD = KB_LENGTH_AT + 4, /* the length counts from here */
    KB_LEADER_EPOCH_AT = KB_LOG_OVERHEAD,
    KB_MAGIC_AT = KB_LEADER_EPOCH_AT + 4,
    KB_CRC_AT = KB_MAGIC_AT + 1,
    KB_ATTRIBUTES_AT = KB_CRC_AT + 4, /* the CRC covers from here to the end */
    KB_LAST_OFFSET_DELTA_AT = KB_ATTRIBUTES_AT + 2,
    KB_BASE_TIMESTAMP_AT = KB_LAST_OFFSET_DELTA_AT + 4,
    KB_MAX_TIMESTAMP_AT = KB_BASE_TIMESTAMP_AT + 8,
    KB_PRODUCER_ID_AT = KB_MAX_TIMESTAMP_AT + 8,
    KB_PRODUCER_EPOCH_AT = KB_PRODUCER_ID_AT + 8,
    KB_BASE_SEQUENCE_AT = KB_PRODUCER_EPOCH_AT + 2,
    KB_COUNT_AT = KB_BASE_SEQUENCE_AT + 4,
    KB_BATCH_HEADER_SIZE = KB_COUNT_AT + 4
};

enum {
    KB_CODEC_MASK = 0x07,
    KB_LOG_APPEND_TIME = 0x08,
    KB_TRANSACTIONAL = 0x10,
    KB_CONTROL = 0x20,
    KB_DELETE_HORIZON = 0x40
};

typedef struct {
    int64_t base_offset;
    int32_t length, leader_epoch;
    int8_t magic;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp_ms, max_timestamp_ms, producer_id;
    int16_t producer_epoch;
    int32_t base_sequence, count;
} kb_batch_header;

/* `from` has KB_BATCH_HEADER_SIZE bytes. */
static inline void kb_batch_header_get(const uint8_t *from, kb_batch_header *header) {
    header->base_offset = (int64_t)kb_load_be64(from + KB_BASE_OFFSET_AT);
    header->length = (int32_t)kb_load_be32(from + KB_LENGTH_AT);
    header->leader_epoch = (int32_t)kb_load_be32(from + KB_LEADER_EPOCH_AT);
    header->magic = (int8_t)from[KB_MAGIC_AT];
    header->crc = kb_load_be32(from + KB_CRC_AT);
    header->attributes = (int16_t)kb_load_be16(from + KB_ATTRIBUTES_AT);
    header->last_offset_delta = (int32_t)kb_load_be32(from + KB_LAST_OFFSET_DELTA_AT);
    header->base_timestamp_ms = (int64_t)kb_load_be64(from + KB_BASE_TIMESTAMP_AT);
    header->max_timestamp_ms = (int64_t)kb_load_be64(from + KB_MAX_TIMESTAMP_AT);
    header->producer_id = (int64_t)kb_load_be64(from + KB_PRODUCER_ID_AT);
    header->producer_epoch = (int16_t)kb_load_be16(from + KB_PRODUCER_EPOCH_AT);
    header->base_sequence = (int32_t)kb_load_be32(from + KB_BASE_SEQUENCE_AT);
    header->count = (int32_t)kb_load_be32(from + KB_COUNT_AT);
}

static inline void kb_batch_header_put(uint8_t *to, const kb_batch_header *header) {
    kb_store_be64(to + KB_BASE_OFFSET_AT, (uint64_t)header->base_offset);
    kb_store_be32(to + KB_LENGTH_AT, (uint32_t)header->length);
    kb_store_be32(to + KB_LEADER_EPOCH_AT, (uint32_t)header->leader_epoch);
    to[KB_MAGIC_AT] = (uint8_t)header->magic;
    kb_store_be32(to + KB_CRC_AT, header->crc);
    kb_store_be16(to + KB_ATTRIBUTES_AT, (uint16_t)header->attributes);
    kb_store_be32(to + KB_LAST_OFFSET_DELTA_AT, (uint32_t)header->last_offset_delta);
    kb_store_be64(to + KB_BASE_TIMESTAMP_AT, (uint64_t)header->base_timestamp_ms);
    kb_store_be64(to + KB_MAX_TIMESTAMP_AT, (uint64_t)header->max_timestamp_ms);
    kb_store_be64(to + KB_PRODUCER_ID_AT, (uint64_t)header->producer_id);
    kb_store_be16(to + KB_PRODUCER_EPOCH_AT, (uint16_t)header->producer_epoch);
    kb_store_be32(to + KB_BASE_SEQUENCE_AT, (uint32_t)header->base_sequence);
    kb_store_be32(to + KB_COUNT_AT, (uint32_t)header->count);
}

/* An open batch, to which records are appended: the data for its header. */
typedef struct {
    int64_t base_timestamp_ms, max_timestamp_ms;
    int64_t records_bytes; /* uncompressed, without the header */
    int32_t count, last_offset_delta;
} kb_open_batch;

/* Kafka's estimate of the sealed size (MemoryRecordsBuilder.estimatedBytesWritten): `factor` is the
 * compression ratio x 1.05, and exactly 1 without compression. */
static inline int64_t kb_estimated_bytes(int64_t records_bytes, double factor) {
    return KB_BATCH_HEADER_SIZE + (int64_t)((double)records_bytes * factor);
}

/* True if `record_bytes` more still fit by Kafka's rule: the first record always does. However well they
 * compress, the records of a batch stay within an int32, because readers hold them in one. */
static inline int kb_has_room(const kb_open_batch *batch, int64_t record_bytes, int64_t write_limit,
                              double factor) {
    return batch->count == 0 ||
           (kb_estimated_bytes(batch->records_bytes, factor) + record_bytes <= write_limit &&
            batch->records_bytes + record_bytes <= KB_MAX_RECORD_BODY);
}

static inline void kb_count_record(kb_open_batch *batch, int64_t timestamp_ms, int64_t record_bytes,
                                   int32_t offset_delta) {
    if (batch->count == 0)
        batch->base_timestamp_ms = batch->max_timestamp_ms = timestamp_ms;
    else if (timestamp_ms > batch->max_timestamp_ms)
        batch->max_timestamp_ms = timestamp_ms;
    batch->records_bytes += record_bytes;
    batch->last_offset_delta = offset_delta;
    batch->count++;
}

/* Return the ratio after a batch was sealed at `observed` (CompressionRatioEstimator.updateEstimation): it
 * rises at once to the observed value, by 0.05 at least, and falls by 0.005 at most. */
static inline double kb_updated_ratio(double current, double observed) {
    if (observed > current)
        return current + 0.05 > observed ? current + 0.05 : observed;
    if (observed < current)
        return current - 0.005 > observed ? current - 0.005 : observed;
    return current;
}

#define KB_RATIO_FACTOR 1.05

#endif
