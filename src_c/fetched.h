/* The records of a partition in an answer to a Fetch: batch after batch, and which of them a reader may see.
 *
 * After org.apache.kafka.clients.consumer.internals.CompletedFetch. Markers are never seen. A batch of an
 * aborted transaction is not either: the answer lists the aborted transactions by producer id and first
 * offset, and each ends at its abort marker. Nothing here looks into the records, but for a marker's. */
#ifndef KBATCH_FETCHED_H
#define KBATCH_FETCHED_H

#include "codec_ids.h"
#include "record_columns.h"

typedef uint32_t (*kb_fetched_checksum)(uint32_t crc, const uint8_t *data, size_t size);

typedef struct {
    int64_t first_offset;
    int64_t producer; /* its index in producer_ids */
} kb_aborted_transaction;

typedef struct {
    const uint8_t *data;
    size_t size, at;         /* `at`: the next batch */
    int64_t end_offset;      /* offsets from here on are not wanted, or not visible */
    int64_t from_offset;     /* offsets before are not wanted */
    const int64_t *producer_ids; /* of aborted transactions, rising */
    uint8_t *is_aborting;    /* for each of them: 1 between a transaction's begin and its marker */
    const kb_aborted_transaction *aborted; /* by first_offset */
    int64_t producer_count, aborted_count, aborted_begun;
    int64_t next_offset;     /* after the batches so far */
    int32_t last_epoch;      /* of the last batch; -1: none */
} kb_fetched;

typedef struct {
    const uint8_t *data;
    size_t size;
    kb_batch_header header;
    int64_t first_offset, row_bound; /* the first visible offset, and rows at most; 0: nothing is visible */
} kb_fetched_batch;

typedef enum {
    KB_FETCHED_BATCH,
    KB_FETCHED_END,     /* no further batch is whole, or wanted */
    KB_FETCHED_CORRUPT, /* the header, or the marker, cannot be one */
} kb_fetched_status;

enum {
    KB_SMALLEST_LENGTH = 14, /* of any magic (LegacyRecord.RECORD_OVERHEAD_V0) */
    KB_ABORT_MARKER = 0, /* org.apache.kafka.common.record.ControlRecordType */
    KB_MOST_EXPANSION = 32768 /* bytes of a compressed one: 4 make a zstd block of 128 KiB of one byte */
};

/* Return the producer's index in producer_ids, -1 if it aborted nothing. */
static inline int64_t kb_fetched_producer(const kb_fetched *fetched, int64_t producer_id) {
    int64_t low = 0, high = fetched->producer_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (fetched->producer_ids[middle] < producer_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < fetched->producer_count && fetched->producer_ids[low] == producer_id ? low : -1;
}

/* The type of the marker in a control batch; -1: it has no record (compaction removed it), -2: it cannot be
 * read. Brokers do not compress markers. */
static inline int kb_marker_type(const kb_fetched_batch *batch) {
    const uint8_t *at = batch->data + KB_BATCH_HEADER_SIZE;
    kb_record_view record;
    if (batch->header.count == 0)
        return -1;
    if (batch->header.attributes & KB_CODEC_MASK || kb_record_get(&at, batch->data + batch->size, &record) ||
        record.key.size < 4)
        return -2;
    return kb_load_be16(record.key.data + 2); /* after the key's version */
}

/* Begin and end aborted transactions as the batch does. True if it is of one; -1: an unreadable marker. */
static inline int kb_fetched_advance_aborted(kb_fetched *fetched, const kb_fetched_batch *batch) {
    const kb_batch_header *header = &batch->header;
    int64_t producer, last_offset = header->base_offset + header->last_offset_delta;
    while (fetched->aborted_begun < fetched->aborted_count &&
           fetched->aborted[fetched->aborted_begun].first_offset <= last_offset)
        fetched->is_aborting[fetched->aborted[fetched->aborted_begun++].producer] = 1;
    if ((producer = kb_fetched_producer(fetched, header->producer_id)) < 0)
        return 0;
    if (header->attributes & KB_CONTROL) {
        int marker = kb_marker_type(batch);
        if (marker == -2)
            return -1;
        if (marker == KB_ABORT_MARKER)
            fetched->is_aborting[producer] = 0;
        return 0;
    }
    return header->attributes & KB_TRANSACTIONAL && fetched->is_aborting[producer];
}

/* True if the fields of a header, whose batch is whole, are possible. */
static inline int kb_fetched_is_possible(const kb_batch_header *header) {
    return kb_codec_is_known(header->attributes & KB_CODEC_MASK) && header->count >= 0 &&
           header->last_offset_delta >= 0 && header->base_offset >= 0 &&
           header->base_offset < INT64_MAX - header->last_offset_delta;
}

/* Read the header of the next batch. */
static inline kb_fetched_status kb_fetched_next(kb_fetched *fetched, kb_fetched_batch *batch) {
    kb_batch_header *header = &batch->header;
    size_t left = fetched->size - fetched->at;
    batch->data = fetched->data + fetched->at;
    if (left < KB_LOG_OVERHEAD || fetched->next_offset >= fetched->end_offset)
        return KB_FETCHED_END;
    int32_t length = (int32_t)kb_load_be32(batch->data + KB_LENGTH_AT);
    if (length < KB_SMALLEST_LENGTH)
        return KB_FETCHED_CORRUPT;
    if ((size_t)length > left - KB_LOG_OVERHEAD)
        return KB_FETCHED_END;
    if (batch->data[KB_MAGIC_AT] != 2 || length < KB_BATCH_HEADER_SIZE - KB_LOG_OVERHEAD)
        return KB_FETCHED_CORRUPT;
    kb_batch_header_get(batch->data, header);
    if (header->leader_epoch < -1) /* unknown, which readers commit as such */
        header->leader_epoch = -1;
    batch->size = KB_LOG_OVERHEAD + (size_t)length;
    batch->row_bound = 0;
    if (!kb_fetched_is_possible(header))
        return KB_FETCHED_CORRUPT;
    if (header->base_offset >= fetched->end_offset) {
        fetched->next_offset = fetched->end_offset;
        return KB_FETCHED_END;
    }
    int is_hidden = (header->attributes & KB_CONTROL) != 0;
    if (fetched->producer_count) {
        int is_aborted = kb_fetched_advance_aborted(fetched, batch);
        if (is_aborted < 0)
            return KB_FETCHED_CORRUPT;
        is_hidden |= is_aborted;
    }
    int64_t last = header->base_offset + header->last_offset_delta;
    if (last >= fetched->end_offset)
        last = fetched->end_offset - 1;
    batch->first_offset =
        header->base_offset > fetched->from_offset ? header->base_offset : fetched->from_offset;
    if (!is_hidden && last >= batch->first_offset)
        batch->row_bound =
            header->count <= last - batch->first_offset ? header->count : last - batch->first_offset + 1;
    fetched->at += batch->size;
    fetched->last_epoch = header->leader_epoch;
    if (last >= fetched->next_offset)
        fetched->next_offset = last + 1;
    return KB_FETCHED_BATCH;
}

/* What all headers say: visible records at most, and the position before the batch at which it ended. */
typedef struct {
    int64_t row_bound, position;
    kb_fetched_status status;
} kb_fetched_scan;

/* Look at all headers. Batches without visible rows have their checksum checked here, by `checksum` unless
 * that is NULL: if all are such, they will not be decoded. `batch` is the last one. */
static inline kb_fetched_scan kb_fetched_scan_all(kb_fetched *fetched, kb_fetched_batch *batch,
                                                  kb_fetched_checksum checksum) {
    kb_fetched_scan scan = {0, 0, KB_FETCHED_BATCH};
    while (scan.status == KB_FETCHED_BATCH) {
        scan.position = fetched->next_offset;
        scan.status = kb_fetched_next(fetched, batch);
        if (scan.status != KB_FETCHED_BATCH)
            break;
        scan.row_bound += batch->row_bound;
        if (batch->row_bound == 0 && checksum &&
            batch->header.crc != checksum(0, batch->data + KB_ATTRIBUTES_AT, batch->size - KB_ATTRIBUTES_AT))
            scan.status = KB_FETCHED_CORRUPT;
    }
    return scan;
}

/* True if a batch of this size can have as many records as its header claims; `limit`: the decompressed
 * bytes at most. */
static inline int kb_fetched_count_fits(const kb_fetched_batch *batch, size_t limit) {
    size_t size = batch->size - KB_BATCH_HEADER_SIZE;
    if (batch->header.attributes & KB_CODEC_MASK)
        size = size > limit / KB_MOST_EXPANSION ? limit : size * KB_MOST_EXPANSION;
    return (size_t)batch->header.count <= size / KB_MIN_RECORD_BYTES;
}

/* True if the header says all that is wanted of the records, so that they need not be decompressed. Offsets
 * without gaps are consecutive; without offsets the number of records of a whole batch suffices. */
static inline int kb_fetched_header_suffices(const kb_fetched *fetched, const kb_fetched_batch *batch,
                                             int wanted) {
    const kb_batch_header *header = &batch->header;
    if (wanted & (KB_WANT_KEY | KB_WANT_VALUE | KB_WANT_HEADERS) ||
        (wanted & KB_WANT_TIMESTAMP && !(header->attributes & KB_LOG_APPEND_TIME)))
        return 0;
    return header->count - 1 == header->last_offset_delta ||
           (!(wanted & KB_WANT_OFFSET) && batch->row_bound == header->count &&
            header->base_offset >= fetched->from_offset &&
            header->base_offset + header->last_offset_delta < fetched->end_offset);
}

#endif
