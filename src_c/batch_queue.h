/* A producer's batches on their way from append to answer, and the queue of their partition: what a sender
 * reads and changes without Python. The objects that own these structures keep them where they are.
 *
 * A queue is in the order of acceptance, by the numbers of the first records, whichever batches come back
 * when. The lock of a partition guards its queue and all of its batches; the functions here are called under
 * it. Those of the accumulator's other locks that are taken here may be taken under it, never the reverse.
 * After org.apache.kafka.clients.producer.internals.ProducerBatch and RecordAccumulator. */
#ifndef KBATCH_BATCH_QUEUE_H
#define KBATCH_BATCH_QUEUE_H

#include <stdbool.h>

#include "chunk_chain.h"
#include "flags.h"
#include "sensor.h"
#include "short_lock.h"

/* From state to state:
 *
 *   OPEN       > SEALING    it is full, or the sender wants it
 *   SEALING    > SEALED     its sealer has compressed it
 *   SEALED     > IN_FLIGHT  it was drained
 *   IN_FLIGHT  > SEALED     it came back, to be sent again with the same bytes
 *   any        > DONE       it was answered, or failed */
typedef enum {
    KB_BATCH_OPEN,
    KB_BATCH_SEALING,
    KB_BATCH_SEALED,
    KB_BATCH_IN_FLIGHT,
    KB_BATCH_DONE
} kb_batch_state;

/* A batch that was drained and is not done, among those of its partition (sequences.h). */
typedef struct kb_in_flight {
    void *owner; /* its InFlight; NULL if the engine has not seen it yet */
    struct kb_in_flight *next, *previous; /* of the partition, in the order of the records */
    struct kb_batch *batch;
    int32_t record_count;
    int64_t sent_ns; /* first transmission */
    int64_t counter; /* of its first record within the identity; -1 without sequences */
    int32_t node_id; /* of the last transmission */
    bool is_in_flight, is_ambiguous, is_set_aside, is_proved;
} kb_in_flight;

typedef struct kb_batch {
    void *owner; /* the ProducerBatch that this is a part of */
    void **waiter; /* where the event of a thread is that waits for it, or NULL; read and written at once */
    struct kb_partition *home;
    struct kb_batch *next, *previous; /* in the queue */
    kb_batch_state state;
    bool is_queued, sealer_came, is_split, is_encoded, was_sent, possibly_persisted;
    int32_t users; /* of its bytes */
    int32_t attempts, leader_epoch, leader_changed_attempt;
    int64_t first_number;
    int64_t created_ns, last_attempt_ns, drained_ns, backoff_ns;
    kb_open_batch contents; /* how many records it has, how large they are, of which times */
    kb_chain chain;
    double factor;
    int64_t charged_bytes; /* besides its chunks */
    int64_t state_left_bytes, largest_record_bytes;
    /* set by sealing */
    const uint8_t *packed; /* the body, if it is not in the chain */
    uint8_t *own_packed;   /* the same, if it was allocated for the batch */
    uint32_t body_crc;
    int64_t body_bytes;
    kb_batch_header header;
    uint8_t header_bytes[KB_BATCH_HEADER_SIZE];
    kb_in_flight flight;
} kb_batch;

enum { KB_TOPIC_ID_BYTES = 16 };

/* A topic that records were sent to. */
typedef struct kb_topic {
    kb_span name; /* UTF-8 */
    uint8_t id[KB_TOPIC_ID_BYTES]; /* of the snapshot; zeros if it has none */
    const kb_sensor_group *sensors; /* of its batches; NULL before the first is sent */
    /* of the lane: acknowledgements that the engine does not know of */
    bool is_used;
    int64_t used_ns; /* the last one */
    struct kb_topic *next_used;
} kb_topic;

typedef struct kb_partition {
    kb_lock lock;
    void *owner; /* the PartitionQueue that this is a part of */
    kb_topic *topic;
    int32_t index; /* in the topic */
    int64_t queue_key; /* among all queues, by topic and partition */
    kb_batch *first, *last;
    int32_t length;
    bool is_noted; /* the sender has it among those with batches, or will get it */
    struct kb_partition *next_filled;
    int64_t previous_bytes; /* of records in the batch that was closed last */
    int64_t next_number, appended_bytes;
    int64_t sealed_batches, sealed_records_bytes, sealed_bytes, unpacked_batches;
    bool has_leader; /* `leader` says what the cluster's view does */
    int32_t leader, leader_epoch;
    struct kb_sequences *sequences; /* the sender's; NULL before the first batch is drained */
    /* The gate: nothing passes; nothing that was never sent; of retries only the one with this number, any if
     * it is negative. */
    bool muted, fresh_blocked;
    int64_t retry_number;
} kb_partition;

/* Partitions whose queues were empty and are not, for the sender. */
typedef struct {
    kb_lock lock; /* may be taken under a partition's */
    kb_partition *newest;
} kb_filled;

static inline void kb_partition_init(kb_partition *partition, void *owner) {
    kb_lock_init(&partition->lock);
    partition->owner = owner;
    partition->leader = partition->leader_epoch = -1;
    partition->retry_number = -1;
}

/* Insert it in order: new batches at the end, those that come back near the head. Note a queue that gets its
 * first one. */
static inline void kb_queue_insert(kb_partition *partition, kb_batch *batch, kb_filled *filled) {
    kb_batch *later = NULL;
    if (partition->last && partition->last->first_number > batch->first_number)
        for (later = partition->first; later->first_number < batch->first_number;)
            later = later->next;
    batch->next = later;
    batch->previous = later ? later->previous : partition->last;
    *(batch->previous ? &batch->previous->next : &partition->first) = batch;
    *(later ? &later->previous : &partition->last) = batch;
    batch->is_queued = true;
    kb_number_set(&partition->length, partition->length + 1);
    if (!partition->is_noted) {
        partition->is_noted = true;
        kb_lock_acquire(&filled->lock);
        partition->next_filled = filled->newest;
        filled->newest = partition;
        kb_lock_release(&filled->lock);
    }
}

static inline void kb_queue_remove(kb_partition *partition, kb_batch *batch) {
    *(batch->previous ? &batch->previous->next : &partition->first) = batch->next;
    *(batch->next ? &batch->next->previous : &partition->last) = batch->previous;
    batch->next = batch->previous = NULL;
    batch->is_queued = false;
    kb_number_set(&partition->length, partition->length - 1);
}

/* Return those noted since the last call, by `next_filled`, the first one first. No other lock is held. */
static inline kb_partition *kb_take_filled(kb_filled *filled) {
    kb_partition *newest, *oldest = NULL;
    kb_lock_acquire(&filled->lock);
    newest = filled->newest;
    filled->newest = NULL;
    kb_lock_release(&filled->lock);
    while (newest) {
        kb_partition *before = newest->next_filled;
        newest->next_filled = oldest;
        oldest = newest;
        newest = before;
    }
    return oldest;
}

/* True if any of those has a batch now. */
static inline bool kb_filled_has_batch(kb_filled *filled) {
    bool found = false;
    kb_lock_acquire(&filled->lock);
    for (kb_partition *each = filled->newest; each && !found; each = each->next_filled)
        found = kb_number_peek(&each->length) > 0;
    kb_lock_release(&filled->lock);
    return found;
}

/* Close it for append: the batch is for its sealer. */
static inline void kb_batch_close(kb_partition *partition, kb_batch *batch) {
    batch->state = KB_BATCH_SEALING;
    kb_count_store(&partition->previous_bytes, batch->contents.records_bytes);
}

/* The two functions of the checksum of batches. */
typedef struct {
    uint32_t (*extend)(uint32_t crc, const uint8_t *data, size_t size);
    uint32_t (*combine)(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);
} kb_checksum;

/* Write the header, with the CRC of header and records from that of the records, which are not read again. */
static inline void kb_batch_write_header(kb_batch *batch, const kb_checksum *checksum) {
    uint32_t crc;
    kb_batch_header_put(batch->header_bytes, &batch->header);
    crc = checksum->extend(0, batch->header_bytes + KB_ATTRIBUTES_AT,
                           KB_BATCH_HEADER_SIZE - KB_ATTRIBUTES_AT);
    batch->header.crc = checksum->combine(crc, batch->body_crc, (uint64_t)batch->body_bytes);
    kb_batch_header_put(batch->header_bytes, &batch->header);
}

/* Write the header of a closed batch whose body has `body_bytes` and `body_crc`. */
static inline void kb_batch_describe(kb_batch *batch, int16_t attributes, const kb_checksum *checksum) {
    batch->header.length = (int32_t)(KB_BATCH_HEADER_SIZE - KB_LOG_OVERHEAD + batch->body_bytes);
    batch->header.magic = 2;
    batch->header.attributes = attributes;
    batch->header.last_offset_delta = batch->contents.last_offset_delta;
    batch->header.base_timestamp_ms = batch->contents.base_timestamp_ms;
    batch->header.max_timestamp_ms = batch->contents.max_timestamp_ms;
    batch->header.count = batch->contents.count;
    kb_batch_write_header(batch, checksum);
}

/* Return the CRC of the records in the chain. */
static inline uint32_t kb_chain_crc(const kb_chain *chain, const kb_checksum *checksum) {
    uint32_t crc = 0;
    for (kb_chunk *chunk = chain->first; chunk; chunk = chunk == chain->current ? NULL : chunk->next)
        crc = checksum->extend(crc, kb_chunk_data(chunk), (size_t)kb_chunk_used(chain, chunk));
    return crc;
}

/* Count a sealed batch, with the lock held. */
static inline void kb_count_sealed(kb_partition *partition, const kb_batch *batch, bool is_unpacked) {
    partition->sealed_batches++;
    partition->sealed_records_bytes += batch->contents.records_bytes;
    partition->sealed_bytes += batch->body_bytes;
    partition->unpacked_batches += is_unpacked;
}

/* The bytes of the whole batch; before sealing, the estimate by the ratio of earlier batches. */
static inline int64_t kb_batch_bytes(const kb_batch *batch) {
    if (batch->state == KB_BATCH_OPEN || batch->state == KB_BATCH_SEALING)
        return kb_estimated_bytes(batch->contents.records_bytes, batch->factor);
    return KB_BATCH_HEADER_SIZE + batch->body_bytes;
}

/* Record a batch that is sent. The values are in the order of SENT_BATCH in
 * kbatch/core/producer/sender_metrics.py. */
static inline void kb_batch_record_sent(const kb_batch *batch, int64_t now_ms) {
    double size = (double)kb_batch_bytes(batch);
    /* the header is never compressed, and as in Java does not count */
    double ratio = (size - KB_BATCH_HEADER_SIZE) / (double)batch->contents.records_bytes;
    double queue_ms = (double)(batch->drained_ns - batch->created_ns) / 1e6;
    double values[] = {size, ratio, queue_ms, (double)batch->largest_record_bytes,
                       (double)batch->contents.count, size, ratio};
    if (batch->home->topic->sensors)
        kb_sensor_group_record_each(batch->home->topic->sensors, values, now_ms);
}

/* Note the attempt by which a newer leader was first known (KIP-951). */
static inline void kb_notice_leader_epoch(const kb_partition *partition, kb_batch *batch) {
    if (partition->leader_epoch > batch->leader_epoch) {
        batch->leader_epoch = partition->leader_epoch;
        batch->leader_changed_attempt = batch->attempts;
    }
}

static inline bool kb_leader_changed(const kb_batch *batch) {
    return batch->attempts > 0 && batch->attempts == batch->leader_changed_attempt;
}

/* The rest of its back-off; a newer leader needs none. */
static inline int64_t kb_backoff_left_ns(const kb_batch *batch, int64_t now_ns) {
    int64_t waited_ns = now_ns > batch->last_attempt_ns ? now_ns - batch->last_attempt_ns : 0;
    if (batch->attempts == 0 || kb_leader_changed(batch) || waited_ns >= batch->backoff_ns)
        return 0;
    return batch->backoff_ns - waited_ns;
}

/* Put it back for a retry after `backoff_ns`; -1: the attempt does not count. */
static inline void kb_batch_reenqueue(kb_partition *partition, kb_batch *batch, int64_t now_ns,
                                      int64_t backoff_ns, kb_filled *filled) {
    if (backoff_ns >= 0) {
        batch->attempts++;
        if (now_ns > batch->last_attempt_ns)
            batch->last_attempt_ns = now_ns;
        batch->backoff_ns = backoff_ns;
    }
    batch->state = KB_BATCH_SEALED;
    kb_queue_insert(partition, batch, filled);
}

/* True if the gate lets the sender have `head`. */
static inline bool kb_gate_is_open(const kb_partition *partition, const kb_batch *head) {
    if (partition->muted)
        return false;
    if (head->attempts == 0 && head->header.base_sequence < 0)
        return !partition->fresh_blocked;
    return partition->retry_number < 0 || partition->retry_number == head->first_number;
}

/* Return the head of the queue, if only time keeps it from going: `*left_ns` of its back-off. */
static inline kb_batch *kb_queue_head(kb_partition *partition, int64_t now_ns, int64_t *left_ns) {
    kb_batch *head = partition->first;
    if (!head || head->state == KB_BATCH_SEALING)
        return NULL;
    kb_notice_leader_epoch(partition, head);
    if (!kb_gate_is_open(partition, head))
        return NULL;
    *left_ns = kb_backoff_left_ns(head, now_ns);
    return head;
}

/* Return when there is work for the queue: 0 is now, INT64_MAX after some other event. A batch waits for more
 * records up to `linger_ns`, unless it is in a hurry. */
static inline int64_t kb_queue_delay_ns(kb_partition *partition, int64_t now_ns, int64_t linger_ns,
                                        bool is_hurried) {
    int64_t left_ns, open_ns;
    kb_batch *head = kb_queue_head(partition, now_ns, &left_ns);
    if (!head)
        return INT64_MAX;
    if (head->state == KB_BATCH_SEALED || left_ns > 0 || is_hurried)
        return left_ns;
    open_ns = now_ns > head->created_ns ? now_ns - head->created_ns : 0;
    return linger_ns > open_ns ? linger_ns - open_ns : 0;
}

typedef enum {
    KB_VISIT_PASSED,
    KB_VISIT_TAKEN,
    KB_VISIT_CLOSED,
    KB_VISIT_NO_SIZE /* it would make the request too large */
} kb_visit;

/* Take or close the head of the queue, if it may go and is no larger than `left_bytes`. */
static inline kb_visit kb_queue_visit(kb_partition *partition, int64_t left_bytes, int64_t now_ns,
                                      kb_batch **visited) {
    int64_t left_ns;
    kb_batch *head = kb_queue_head(partition, now_ns, &left_ns);
    if (!head || left_ns > 0)
        return KB_VISIT_PASSED;
    *visited = head;
    if (kb_batch_bytes(head) > left_bytes)
        return KB_VISIT_NO_SIZE;
    if (head->state == KB_BATCH_OPEN) {
        kb_batch_close(partition, head);
        return KB_VISIT_CLOSED;
    }
    kb_queue_remove(partition, head);
    head->state = KB_BATCH_IN_FLIGHT;
    head->drained_ns = now_ns;
    return KB_VISIT_TAKEN;
}

#endif
