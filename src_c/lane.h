/* The lane: the usual way of batches through Produce requests, from the queues to accepted answers, without
 * Python. It has no socket, no clock and no thread: bytes in, bytes out, time as an argument.
 *
 * A sender's thread lends its ready connections to the lane while it waits, and takes them back afterwards.
 * So lane and engine never run at the same time, and need no lock between them: each finds everything as the
 * other left it. In between, the lane sends batches that go for the first time in partitions without a gap,
 * and reads answers that accept everything. It judges nothing else. Whatever is unusual ends the loan; the
 * engine gets what is in flight, and the bytes that the lane did not understand.
 *
 * The rules are those of every batch: batch_queue.h, sequences.h, produce_wire.h. */
#ifndef KBATCH_LANE_H
#define KBATCH_LANE_H

#include "alarm.h"
#include "descriptor.h"
#include "flags.h"
#include "lent.h"
#include "node_queues.h"
#include "produce_wire.h"
#include "sequences.h"

enum {
    KB_LANE_JOINED_BYTES = 8192,      /* batches this small are copied beside the request's own bytes */
    KB_LANE_SPACE_BYTES = 131072,     /* received at once */
    KB_LANE_LARGEST_ANSWER = 1 << 20, /* the engine has better memory for larger ones */
    KB_LANE_LARGEST_BATCH = 1 << 30,
    /* Threads that wait complete their requests for so long, and so many in a row; then others do. */
    KB_LANE_WAITERS_PATIENCE_NS = 20000000,
    KB_LANE_MOST_WAITED = 256
};

/* A request that was sent; all arrays are in one piece of memory with it. */
typedef struct kb_lane_request {
    struct kb_lane_request *next;
    kb_lent_request sent;
    int64_t answered_ns; /* -1: not yet */
    kb_batch **batches;
    const kb_topic **topics;
    uint8_t *ids; /* of the topics, as they were then */
    kb_produce_request asked;
    kb_produce_accepted *accepted;
    uint8_t *is_answered;
    /* what is to be written */
    struct iovec *parts;
    int part_count, part_at;
} kb_lane_request;

/* A ready connection that the engine has lent. */
typedef struct {
    int32_t node_id;
    int64_t connection_id;
    int descriptor;
    int version; /* of Produce requests */
    int32_t next_correlation_id;
    int32_t engine_count; /* the engine's own unanswered requests, which come first */
    int32_t own_count;
    int64_t usable_until_ns; /* then it must log in again */
    int64_t queued_bytes, handed_bytes, written_bytes; /* of requests; taken by the socket's owner; sent */
    int64_t active_ns;
    int64_t answered_ns; /* the last answer of which the engine does not know; 0: none */
    const kb_request_sensors *sensors; /* NULL: nothing is recorded */
    bool is_engines;    /* it sends nothing more in this loan, and what comes in is the engine's */
    bool needs_engine;  /* it has batches that are not the lane's to send */
    bool reports_write; /* the poller waits for room in the socket */
    kb_lane_request *first, *last; /* unanswered, oldest first */
    uint8_t *in;       /* the beginning of a frame */
    size_t in_bytes, in_room;
} kb_lane_node;

typedef struct {
    /* settings */
    kb_queues *queues;
    kb_filled *filled;
    kb_alarm *alarm;
    kb_checksum checksum;
    kb_produce_head head;
    int16_t attributes;
    int codec, level;
    /* Compress a chain's records; return the size of `*packed`, which stays until the next call, or -1. */
    int64_t (*compress)(void *scratch, int codec, int level, const kb_chain *chain, int64_t records_bytes,
                        const uint8_t **packed);
    void *scratch;
    bool seals; /* it can compress */
    /* True if batches go at once; other threads change that, and set the alarm then. */
    int (*is_hurried)(void *accumulator);
    void *accumulator;
    int64_t inline_bytes, linger_ns, max_request_bytes, request_timeout_ns, idle_ns;
    int32_t max_in_flight;   /* requests of a connection */
    bool is_idempotent;
    kb_sensor *request_records, *latency, *throttle; /* of requests to all nodes */
    /* of a loan */
    kb_identity identity;
    int64_t transaction;     /* which a partition must have been added to; 0: none */
    bool ends_when_answered; /* the loan ends with the last answer, which a commit waits for */
    bool has_accepted;       /* an answer, in this loan */
    kb_lane_node *nodes;
    int32_t node_count, node_room;
    int64_t look_ns;   /* the last step's result */
    bool is_changed;   /* something happened since the engine looked */
    bool needs_engine; /* there is work that is not the lane's */
    kb_topic *used; /* topics with acknowledgements that the engine does not know of */
    /* Sets the event of a thread that waits for a batch. */
    void (*ring)(void *event);
    /* Accepted requests, for the thread that completes their batches. */
    kb_lock answered_lock;
    kb_lane_request *answered, *last_answered;
    bool is_unwaited;     /* not every one has a thread that waits for it, and completes it */
    int32_t waited_count; /* the last ones in a row that had one */
    kb_batch **taken;
    int32_t taken_room;
    uint8_t *space;
} kb_lane;

static inline void kb_lane_free(kb_lane *lane) {
    for (int32_t i = 0; i < lane->node_count; i++)
        free(lane->nodes[i].in);
    free(lane->nodes);
    free(lane->taken);
    free(lane->space);
}

/* Add a connection for this loan. NULL without memory. */
static inline kb_lane_node *kb_lane_add_node(kb_lane *lane) {
    if (!lane->space && !(lane->space = malloc(KB_LANE_SPACE_BYTES)))
        return NULL;
    if (!kb_queues_grow((void **)&lane->nodes, lane->node_count, &lane->node_room, sizeof(kb_lane_node)))
        return NULL;
    memset(&lane->nodes[lane->node_count], 0, sizeof(kb_lane_node));
    return &lane->nodes[lane->node_count++];
}

static inline kb_lane_node *kb_lane_node_of(kb_lane *lane, int32_t node_id) {
    for (int32_t i = 0; i < lane->node_count; i++)
        if (lane->nodes[i].node_id == node_id)
            return &lane->nodes[i];
    return NULL;
}

static inline kb_lane_node *kb_lane_node_at(kb_lane *lane, int descriptor) {
    for (int32_t i = 0; i < lane->node_count; i++)
        if (lane->nodes[i].descriptor == descriptor)
            return &lane->nodes[i];
    return NULL;
}

static inline const kb_identity *kb_lane_identity(const kb_lane *lane) {
    return lane->is_idempotent ? &lane->identity : NULL;
}

/* Sending */

/* True if the connection takes a request now. */
static inline bool kb_lane_may_send(const kb_lane *lane, const kb_lane_node *node) {
    return !node->is_engines && node->written_bytes == node->queued_bytes &&
           node->engine_count + node->own_count < lane->max_in_flight;
}

/* True if a new batch of the partition, whose gate is open, gets its number from the lane. With nothing in
 * flight it may be the first of the producer's next epoch. */
static inline bool kb_lane_may_number(const kb_lane *lane, const kb_sequences *sequences, int64_t now_ns) {
    if (lane->transaction && sequences->transaction != lane->transaction)
        return false;
    if (kb_same_identity(sequences->identity, lane->identity))
        return sequences->rules->may_follow(sequences, now_ns - lane->idle_ns);
    return !sequences->first && sequences->identity.producer_id == lane->identity.producer_id;
}

/* True if the head of a queue, which may go, is the lane's to send: new, and in a sound partition. */
static inline bool kb_lane_takes(const kb_lane *lane, const kb_lane_node *node, const kb_partition *queue,
                                 const kb_batch *head, int64_t now_ns) {
    static const uint8_t none[KB_TOPIC_ID_BYTES];
    const kb_sequences *sequences = queue->sequences;
    if (!sequences || sequences->is_stopped || head->attempts || head->header.base_sequence >= 0 ||
        head->users != 1)
        return false;
    if (head->state == KB_BATCH_OPEN && (!lane->seals || head->contents.records_bytes > lane->inline_bytes))
        return false;
    if (kb_batch_bytes(head) > KB_LANE_LARGEST_BATCH)
        return false;
    if (node->version >= KB_PRODUCE_TOPIC_ID && memcmp(queue->topic->id, none, sizeof(none)) == 0)
        return false;
    return !lane->is_idempotent || kb_lane_may_number(lane, sequences, now_ns);
}

/* Seal a closed batch. Its records stay as they are without a codec, and if that fails. */
static inline void kb_lane_seal(const kb_lane *lane, kb_partition *queue, kb_batch *batch) {
    const uint8_t *packed = NULL;
    int64_t size = -1;
    if (lane->codec)
        size = lane->compress(lane->scratch, lane->codec, lane->level, &batch->chain,
                              batch->contents.records_bytes, &packed);
    if (size >= 0 && (batch->own_packed = malloc((size_t)size + 1))) {
        memcpy(batch->own_packed, packed, (size_t)size);
        batch->packed = batch->own_packed;
        batch->body_bytes = size;
        batch->body_crc = lane->checksum.extend(0, batch->packed, (size_t)size);
    } else {
        batch->body_bytes = batch->contents.records_bytes;
        batch->body_crc = kb_chain_crc(&batch->chain, &lane->checksum);
    }
    kb_batch_describe(batch, (int16_t)(lane->attributes | (batch->packed ? lane->codec : 0)),
                      &lane->checksum);
    kb_lock_acquire(&queue->lock);
    batch->sealer_came = true;
    batch->state = KB_BATCH_SEALED;
    kb_count_sealed(queue, batch, lane->codec && !batch->packed);
    kb_lock_release(&queue->lock);
}

/* Take the head of a queue into `lane->taken`. False if the request has no room for it. */
static inline bool kb_lane_visit(kb_lane *lane, kb_lane_node *node, kb_partition *queue, bool is_hurried,
                                 int64_t left_bytes, int64_t now_ns, int32_t *count) {
    kb_visit visit = KB_VISIT_PASSED;
    kb_batch *batch = NULL;
    bool is_due, is_taken = false;
    kb_lock_acquire(&queue->lock);
    is_due = kb_queue_delay_ns(queue, now_ns, lane->linger_ns, is_hurried) == 0;
    if (is_due)
        is_taken = kb_lane_takes(lane, node, queue, queue->first, now_ns);
    if (is_taken)
        visit = kb_queue_visit(queue, left_bytes, now_ns, &batch);
    kb_lock_release(&queue->lock);
    if (is_due && !is_taken)
        lane->needs_engine = node->needs_engine = true;
    if (visit == KB_VISIT_CLOSED) {
        kb_lane_seal(lane, queue, batch);
        kb_lock_acquire(&queue->lock);
        visit = kb_queue_visit(queue, left_bytes, now_ns, &batch);
        kb_lock_release(&queue->lock);
    }
    if (visit == KB_VISIT_TAKEN)
        lane->taken[(*count)++] = batch;
    return visit != KB_VISIT_NO_SIZE;
}

/* Take at most one batch of each queue of a node into `lane->taken`, and return how many. */
static inline int32_t kb_lane_take(kb_lane *lane, kb_lane_node *node, kb_node_queues *queues,
                                   bool is_hurried, int64_t now_ns) {
    int64_t left_bytes = INT64_MAX; /* the first always goes */
    int32_t count = 0, before, start = kb_queues_start(queues);
    for (int32_t i = 0; i < queues->count; i++) {
        kb_partition *queue = queues->queues[(start + i) % queues->count];
        before = count;
        if (!kb_lane_visit(lane, node, queue, is_hurried, left_bytes, now_ns, &count)) {
            queues->drain_at = queue->queue_key;
            break;
        }
        if (count > before) {
            left_bytes = before ? left_bytes : lane->max_request_bytes;
            left_bytes -= kb_batch_bytes(lane->taken[before]);
        }
    }
    return count;
}

/* Put taken batches back as they were. */
static inline void kb_lane_put_back(kb_lane *lane, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        kb_batch *batch = lane->taken[i];
        kb_lock_acquire(&batch->home->lock);
        kb_batch_reenqueue(batch->home, batch, 0, -1, lane->filled);
        kb_lock_release(&batch->home->lock);
    }
}

static inline void kb_lane_reverse(kb_batch **from, kb_batch **to) {
    for (; from < --to; from++) {
        kb_batch *first = *from;
        *from = *to;
        *to = first;
    }
}

/* Bring the batches of each topic together: the walk began in the midst of the first one's. */
static inline void kb_lane_group(kb_batch **batches, int32_t count) {
    int32_t kept = count;
    const kb_topic *first = batches[0]->home->topic;
    while (kept > 1 && batches[kept - 1]->home->topic == first)
        kept--;
    if (kept == 1 || kept == count)
        return;
    kb_lane_reverse(batches, batches + kept);
    kb_lane_reverse(batches + kept, batches + count);
    kb_lane_reverse(batches, batches + count);
}

static inline bool kb_lane_is_joined(const kb_batch *batch) {
    return kb_batch_bytes(batch) <= KB_LANE_JOINED_BYTES;
}

/* Reserve aligned bytes for an array; return where they begin. */
static inline size_t kb_lane_reserve(size_t *used, size_t bytes) {
    size_t at = (*used + 15) & ~(size_t)15;
    *used = at + bytes;
    return at;
}

/* How much a request for the taken batches has. */
typedef struct {
    int32_t topic_count, batch_count;
    int part_count;
    int64_t glue_bytes;
} kb_lane_sizes;

static inline kb_lane_sizes kb_lane_measure(const kb_lane *lane, int32_t count) {
    kb_lane_sizes sizes = {0, count, 1, 64 + lane->head.client_id.size + lane->head.transactional_id.size};
    for (int32_t i = 0; i < count; i++) {
        const kb_batch *batch = lane->taken[i];
        const kb_topic *topic = batch->home->topic;
        if (i == 0 || topic != lane->taken[i - 1]->home->topic) {
            sizes.topic_count++;
            sizes.glue_bytes += 24 + (topic->name.size > 16 ? topic->name.size : 16);
        }
        sizes.glue_bytes += 12;
        if (kb_lane_is_joined(batch)) {
            sizes.glue_bytes += kb_batch_bytes(batch);
            continue;
        }
        sizes.part_count += 3; /* the header, the body, and the glue after them */
        for (kb_chunk *each = batch->chain.first; each && each != batch->chain.current; each = each->next)
            sizes.part_count++;
    }
    return sizes;
}

/* Return a request with its arrays, all in one piece of memory. NULL without memory. */
static inline kb_lane_request *kb_lane_allocate(kb_lane_sizes sizes, uint8_t **glue) {
    size_t topics = (size_t)sizes.topic_count, batches = (size_t)sizes.batch_count;
    size_t used = sizeof(kb_lane_request);
    size_t at_batches = kb_lane_reserve(&used, batches * sizeof(kb_batch *));
    size_t at_topics = kb_lane_reserve(&used, topics * sizeof(kb_topic *));
    size_t at_asked_topics = kb_lane_reserve(&used, topics * sizeof(kb_produce_topic));
    size_t at_asked_batches = kb_lane_reserve(&used, batches * sizeof(kb_produce_batch));
    size_t at_accepted = kb_lane_reserve(&used, batches * sizeof(kb_produce_accepted));
    size_t slots = (size_t)kb_produce_slots(sizes.topic_count, sizes.batch_count);
    size_t at_slots = kb_lane_reserve(&used, slots * sizeof(int32_t));
    size_t at_parts = kb_lane_reserve(&used, (size_t)sizes.part_count * sizeof(struct iovec));
    size_t at_answered = kb_lane_reserve(&used, batches);
    size_t at_ids = kb_lane_reserve(&used, topics * KB_TOPIC_ID_BYTES);
    size_t at_glue = kb_lane_reserve(&used, (size_t)sizes.glue_bytes);
    uint8_t *memory = malloc(used);
    kb_lane_request *request = (kb_lane_request *)memory;
    if (!memory)
        return NULL;
    memset(request, 0, sizeof(*request));
    request->asked.topic_count = sizes.topic_count;
    request->asked.batch_count = sizes.batch_count;
    request->batches = (kb_batch **)(memory + at_batches);
    request->topics = (const kb_topic **)(memory + at_topics);
    request->asked.topics = (kb_produce_topic *)(memory + at_asked_topics);
    request->asked.batches = (kb_produce_batch *)(memory + at_asked_batches);
    request->accepted = (kb_produce_accepted *)(memory + at_accepted);
    request->asked.slots = (int32_t *)(memory + at_slots);
    request->parts = (struct iovec *)(memory + at_parts);
    request->is_answered = memory + at_answered;
    request->ids = memory + at_ids;
    *glue = memory + at_glue;
    return request;
}

/* Return a request for the taken batches, which are grouped by topic; its bytes are unwritten. NULL without
 * memory. */
static inline kb_lane_request *kb_lane_new_request(const kb_lane *lane, const kb_lane_node *node,
                                                   int32_t count, uint8_t **glue) {
    kb_lane_request *request = kb_lane_allocate(kb_lane_measure(lane, count), glue);
    kb_produce_topic *topics;
    kb_produce_batch *batches;
    if (!request)
        return NULL;
    topics = (kb_produce_topic *)request->asked.topics;
    batches = (kb_produce_batch *)request->asked.batches;
    request->asked.version = node->version;
    for (int32_t i = 0, topic = -1; i < count; i++) {
        kb_batch *batch = request->batches[i] = lane->taken[i];
        const kb_topic *of = batch->home->topic;
        if (i == 0 || of != lane->taken[i - 1]->home->topic) {
            request->topics[++topic] = of;
            topics[topic].name = of->name;
            topics[topic].id = memcpy(request->ids + KB_TOPIC_ID_BYTES * topic, of->id, KB_TOPIC_ID_BYTES);
            topics[topic].batch_count = 0;
        }
        topics[topic].batch_count++;
        batches[i].topic = topic;
        batches[i].partition = batch->home->index;
        batches[i].size = kb_batch_bytes(batch);
    }
    return request;
}

/* Give a taken batch its position and number in the partition, and its sequence. */
static inline void kb_lane_admit(const kb_lane *lane, const kb_lane_node *node, kb_batch *batch,
                                 int64_t now_ns) {
    kb_sequences *sequences = batch->home->sequences;
    kb_in_flight *entry = kb_flight_begin(batch, now_ns, -1);
    if (lane->is_idempotent) {
        if (!kb_same_identity(sequences->identity, lane->identity))
            sequences->rules->restart(sequences, lane->identity, 0);
        sequences->rules->number(sequences, entry);
        batch->header.producer_id = lane->identity.producer_id;
        batch->header.producer_epoch = (int16_t)lane->identity.epoch;
        batch->header.base_sequence = (int32_t)(entry->counter & INT32_MAX);
        kb_batch_write_header(batch, &lane->checksum);
    } else {
        sequences->rules->insert(sequences, entry, NULL);
    }
    entry->node_id = node->node_id;
    entry->is_in_flight = batch->was_sent = true;
    kb_sequences_update_gate(sequences, batch->home, kb_lane_identity(lane), lane->max_in_flight,
                             now_ns - lane->idle_ns);
}

static inline void kb_lane_add_part(kb_lane_request *request, const uint8_t *data, int64_t size) {
    if (size > 0) {
        request->parts[request->part_count].iov_base = (void *)data;
        request->parts[request->part_count++].iov_len = (size_t)size;
    }
}

/* Write the bytes of a batch, or add them as parts; `*start` is the beginning of what is no part yet. */
static inline uint8_t *kb_lane_put_batch(kb_lane_request *request, const kb_batch *batch, uint8_t *to,
                                         uint8_t **start) {
    bool is_joined = kb_lane_is_joined(batch);
    if (is_joined) {
        memcpy(to, batch->header_bytes, KB_BATCH_HEADER_SIZE);
        to += KB_BATCH_HEADER_SIZE;
    } else {
        kb_lane_add_part(request, *start, to - *start);
        kb_lane_add_part(request, batch->header_bytes, KB_BATCH_HEADER_SIZE);
        *start = to;
    }
    if (batch->packed) {
        if (!is_joined) {
            kb_lane_add_part(request, batch->packed, batch->body_bytes);
            return to;
        }
        memcpy(to, batch->packed, (size_t)batch->body_bytes);
        return to + batch->body_bytes;
    }
    for (kb_chunk *chunk = batch->chain.first; chunk;
         chunk = chunk == batch->chain.current ? NULL : chunk->next) {
        int64_t used = kb_chunk_used(&batch->chain, chunk);
        if (is_joined) {
            memcpy(to, kb_chunk_data(chunk), (size_t)used);
            to += used;
        } else {
            kb_lane_add_part(request, kb_chunk_data(chunk), used);
        }
    }
    return to;
}

/* Write the request's bytes into `glue`, and return its size. */
static inline int64_t kb_lane_encode(kb_lane *lane, kb_lane_node *node, kb_lane_request *request,
                                     uint8_t *glue) {
    int version = node->version;
    int64_t size = 0;
    uint8_t *start = glue, *to;
    lane->head.version = version;
    lane->head.correlation_id = request->sent.correlation_id;
    to = kb_produce_put_head(glue, &lane->head, request->asked.topic_count);
    for (int32_t i = 0, topic = -1; i < request->asked.batch_count; i++) {
        if (request->asked.batches[i].topic != topic) {
            if (topic >= 0)
                to = kb_produce_put_tags(to, version);
            topic = request->asked.batches[i].topic;
            to = kb_produce_put_topic(to, version, &request->asked.topics[topic]);
        }
        to = kb_produce_put_batch(to, version, &request->asked.batches[i]);
        to = kb_lane_put_batch(request, request->batches[i], to, &start);
        to = kb_produce_put_tags(to, version);
    }
    to = kb_produce_put_tags(kb_produce_put_tags(to, version), version);
    kb_lane_add_part(request, start, to - start);
    for (int i = 0; i < request->part_count; i++)
        size += (int64_t)request->parts[i].iov_len;
    kb_wire_end(glue, (int32_t)(size - 4));
    return size;
}

/* Send one request to a node. False if it has no batches that may go. */
static inline bool kb_lane_send(kb_lane *lane, kb_lane_node *node, kb_node_queues *queues, bool is_hurried,
                                int64_t now_ns) {
    kb_lane_request *request;
    uint8_t *glue;
    int32_t count;
    while (lane->taken_room < queues->count)
        if (!kb_queues_grow((void **)&lane->taken, lane->taken_room, &lane->taken_room, sizeof(kb_batch *))) {
            lane->needs_engine = lane->is_changed = true;
            return false;
        }
    count = kb_lane_take(lane, node, queues, is_hurried, now_ns);
    if (!count)
        return false;
    kb_lane_group(lane->taken, count);
    request = kb_lane_new_request(lane, node, count, &glue);
    if (!request) {
        kb_lane_put_back(lane, count);
        lane->needs_engine = lane->is_changed = true;
        return false;
    }
    for (int32_t i = 0; i < count; i++)
        kb_lane_admit(lane, node, request->batches[i], now_ns);
    request->sent = kb_lent_begin(&node->next_correlation_id, node->queued_bytes, now_ns);
    request->answered_ns = -1;
    node->active_ns = now_ns;
    node->queued_bytes += kb_lane_encode(lane, node, request, glue);
    request->sent.end_offset = node->queued_bytes;
    *(node->last ? &node->last->next : &node->first) = request;
    node->last = request;
    kb_number_set(&node->own_count, node->own_count + 1);
    return true;
}

/* Take in queues that are no longer empty. One whose leader was never looked up is the engine's. */
static inline void kb_lane_take_filled(kb_lane *lane) {
    kb_partition *queue = kb_take_filled(lane->filled);
    while (queue) {
        kb_partition *next = queue->next_filled;
        if (!queue->has_leader || !kb_queues_add(lane->queues, queue)) {
            kb_lock_acquire(&lane->filled->lock);
            queue->next_filled = lane->filled->newest;
            lane->filled->newest = queue;
            kb_lock_release(&lane->filled->lock);
            lane->needs_engine = lane->is_changed = true;
        }
        queue = next;
    }
}

/* Return when a node's queues have something to send: INT64_MIN is now, INT64_MAX after another event. */
static inline int64_t kb_lane_due_ns(const kb_lane *lane, kb_node_queues *queues, bool is_hurried,
                                     int64_t now_ns) {
    int64_t due_ns = INT64_MAX;
    kb_queues_forget_empty(queues);
    for (int32_t i = 0; i < queues->count; i++) {
        kb_partition *queue = queues->queues[i];
        int64_t left_ns;
        kb_lock_acquire(&queue->lock);
        left_ns = kb_queue_delay_ns(queue, now_ns, lane->linger_ns, is_hurried);
        kb_lock_release(&queue->lock);
        if (left_ns == 0)
            return INT64_MIN;
        if (left_ns < INT64_MAX - now_ns && now_ns + left_ns < due_ns)
            due_ns = now_ns + left_ns;
    }
    return due_ns;
}

/* True if requests of the lane are unanswered. */
static inline bool kb_lane_has_requests(const kb_lane *lane) {
    for (int32_t i = 0; i < lane->node_count; i++)
        if (lane->nodes[i].first)
            return true;
    return false;
}

/* Send what may go now, at most one request to a node. Return when to look again, if nothing happens: after
 * a request at once.
 * `lane->needs_engine` says that there is work for the engine which it has not seen. */
static inline int64_t kb_lane_step(kb_lane *lane, int64_t now_ns) {
    int64_t look_ns = INT64_MAX;
    bool is_hurried, is_new = lane->is_changed || now_ns >= lane->look_ns;
    lane->is_changed = lane->needs_engine = false;
    kb_alarm_clear(lane->alarm); /* what changes from here on rings, and what has changed is seen below */
    is_hurried = lane->is_hurried(lane->accumulator);
    kb_lane_take_filled(lane);
    for (int32_t i = 0; i < lane->queues->count; i++) {
        kb_node_queues *queues = &lane->queues->nodes[i];
        int64_t due_ns = kb_lane_due_ns(lane, queues, is_hurried, now_ns);
        kb_lane_node *node = kb_lane_node_of(lane, queues->node_id);
        if (queues->count == 0)
            continue;
        if (!node || node->is_engines || now_ns >= node->usable_until_ns) {
            lane->needs_engine |= due_ns == INT64_MIN || queues->node_id < 0;
        } else {
            if (due_ns == INT64_MIN)
                kb_queues_note_ready(queues, kb_lane_may_send(lane, node), now_ns);
            if (due_ns == INT64_MIN && kb_lane_may_send(lane, node) &&
                kb_lane_send(lane, node, queues, is_hurried, now_ns))
                look_ns = now_ns; /* there may be more for another request */
            if (!kb_lane_may_send(lane, node)) {
                kb_alarm_note_busy(lane->alarm, node->node_id);
                continue;
            }
        }
        if (due_ns > now_ns && due_ns < look_ns)
            look_ns = due_ns;
    }
    /* what the engine has seen is covered by its own deadline */
    lane->needs_engine &= is_new || lane->is_changed;
    for (int32_t i = 0; i < lane->node_count; i++)
        lane->needs_engine |= lane->nodes[i].is_engines;
    lane->needs_engine |= lane->ends_when_answered && lane->has_accepted && !kb_lane_has_requests(lane);
    kb_alarm_set(lane->alarm, look_ns); /* what comes earlier wakes it */
    return lane->look_ns = look_ns;
}

/* Note bytes of the newest request that were taken, to be written. */
static inline void kb_lane_handed(kb_lane_node *node, int64_t size) {
    kb_lane_request *request = node->last;
    node->handed_bytes += size;
    while (size > 0) {
        struct iovec *part = &request->parts[request->part_at];
        int64_t of_part = size < (int64_t)part->iov_len ? size : (int64_t)part->iov_len;
        part->iov_base = (uint8_t *)part->iov_base + of_part;
        part->iov_len -= (size_t)of_part;
        size -= of_part;
        if (!part->iov_len)
            request->part_at++;
    }
}

/* True if bytes of the newest request were not taken yet; they are its parts from `part_at` on. */
static inline bool kb_lane_has_unsent(const kb_lane_node *node) {
    return node->handed_bytes < node->queued_bytes;
}

/* Answers */

static inline void kb_lane_accept(kb_lane *lane, kb_lane_request *request, int64_t now_ns) {
    for (int32_t i = 0; i < request->asked.batch_count; i++) {
        kb_batch *batch = request->batches[request->accepted[i].batch];
        kb_sequences *sequences = batch->home->sequences;
        if (lane->is_idempotent)
            sequences->rules->acknowledge(sequences, &batch->flight, now_ns - lane->idle_ns);
        sequences->rules->remove(sequences, &batch->flight);
        kb_sequences_update_gate(sequences, batch->home, kb_lane_identity(lane), lane->max_in_flight,
                                 now_ns - lane->idle_ns);
    }
}

/* Wake the threads that wait for batches of a request. True if there is one for each. With `answered_lock`
 * held after the request is there: no thread can take it, and so end the batches, before their events are
 * set. */
static inline bool kb_lane_ring_waiters(kb_lane *lane, const kb_lane_request *request) {
    bool is_waited = true;
    for (int32_t i = 0; i < request->asked.batch_count; i++) {
        void **waiter = request->batches[i]->waiter;
        void *event = waiter ? kb_pointer_load(waiter) : NULL;
        if (event)
            lane->ring(event);
        is_waited &= event != NULL;
    }
    return is_waited;
}

/* Record a request that is done, and its batches. The engine has recorded the sending of what it has seen. */
static inline void kb_lane_record(const kb_lane *lane, const kb_lane_node *node,
                                  const kb_lane_request *request, int64_t answer_bytes) {
    const kb_request_sensors *sensors = node->sensors;
    int64_t created_ms = request->sent.created_ns / 1000000, answered_ms = request->answered_ns / 1000000;
    double latency_ms = (double)(request->answered_ns - request->sent.created_ns) / 1e6, record_count = 0;
    if (!sensors)
        return;
    kb_lent_record_sent(sensors, &request->sent);
    for (int32_t i = 0; i < request->asked.batch_count; i++) {
        kb_batch_record_sent(request->batches[i], created_ms);
        record_count += (double)request->batches[i]->contents.count;
    }
    kb_sensor_record(lane->request_records, record_count, created_ms);
    if (!answer_bytes)
        return;
    kb_lent_record_answer(sensors, answer_bytes, request->answered_ns);
    kb_sensor_group_record(sensors->latency, latency_ms, answered_ms);
    kb_sensor_record(lane->latency, latency_ms, answered_ms);
    kb_sensor_record(lane->throttle, 0, answered_ms);
}

/* Note what the engine is to know of a request that is done: its topics are in use, and its node answers. */
static inline void kb_lane_note_use(kb_lane *lane, kb_lane_node *node, const kb_lane_request *request,
                                    int64_t answer_bytes) {
    for (int32_t i = 0; i < request->asked.batch_count; i++) {
        kb_topic *topic = request->batches[i]->home->topic;
        if (!topic->is_used) {
            topic->is_used = true;
            topic->next_used = lane->used;
            lane->used = topic;
        }
        topic->used_ns = request->answered_ns;
    }
    if (answer_bytes)
        node->answered_ns = request->answered_ns;
}

/* Take the next topic that is in use; NULL if the engine knows of all. */
static inline kb_topic *kb_lane_take_used(kb_lane *lane) {
    kb_topic *topic = lane->used;
    if (topic) {
        lane->used = topic->next_used;
        topic->is_used = false;
    }
    return topic;
}

/* Take a request that is done from its connection, and leave it to the thread that completes its batches. */
static inline void kb_lane_finish(kb_lane *lane, kb_lane_node *node, kb_lane_request *request,
                                  int64_t answer_bytes, int64_t now_ns) {
    kb_lane_accept(lane, request, now_ns);
    lane->has_accepted = true;
    request->answered_ns = now_ns;
    kb_lane_record(lane, node, request, answer_bytes);
    kb_lane_note_use(lane, node, request, answer_bytes);
    node->first = request->next;
    if (!node->first)
        node->last = NULL;
    kb_number_set(&node->own_count, node->own_count - 1);
    request->next = NULL;
    kb_lock_acquire(&lane->answered_lock);
    *(lane->last_answered ? &lane->last_answered->next : &lane->answered) = request;
    lane->last_answered = request;
    lane->waited_count =
        kb_lane_ring_waiters(lane, request) ? (lane->waited_count + 1) % KB_LANE_MOST_WAITED : 0;
    lane->is_unwaited |= !lane->waited_count;
    kb_lock_release(&lane->answered_lock);
}

/* Note that all of a request without an answer (acks=0) is written: its batches have no offsets. */
static inline void kb_lane_finish_unanswered(kb_lane *lane, kb_lane_node *node, kb_lane_request *request,
                                             int64_t now_ns) {
    for (int32_t i = 0; i < request->asked.batch_count; i++) {
        request->accepted[i].batch = i;
        request->accepted[i].base_offset = request->accepted[i].log_append_time_ms = -1;
    }
    lane->is_changed = true;
    kb_lane_finish(lane, node, request, 0, now_ns);
}

/* Note written bytes of a connection. */
static inline void kb_lane_written(kb_lane *lane, kb_lane_node *node, int64_t size, int64_t now_ns) {
    kb_lane_request *request = node->last;
    node->written_bytes += size;
    node->active_ns = now_ns;
    if (!request || node->written_bytes < node->queued_bytes || request->sent.written_ns >= 0)
        return;
    request->sent.written_ns = now_ns;
    if (!lane->head.acks)
        kb_lane_finish_unanswered(lane, node, request, now_ns);
}

/* Take an answer without its size. False, without any change, if it is unusual. */
static inline bool kb_lane_answer(kb_lane *lane, kb_lane_node *node, const uint8_t *frame, int64_t size,
                                  int64_t now_ns) {
    kb_lane_request *request = node->first;
    int32_t throttle_ms = 0;
    if (!request || node->written_bytes < request->sent.end_offset || size < 4 ||
        (int32_t)kb_load_be32(frame) != request->sent.correlation_id)
        return false;
    memset(request->is_answered, 0, (size_t)request->asked.batch_count);
    if (!kb_produce_read(&request->asked, frame, size, request->accepted, request->is_answered,
                         &throttle_ms) ||
        throttle_ms)
        return false;
    for (int32_t i = 0; i < request->asked.batch_count; i++) {
        const kb_sequences *sequences = request->batches[i]->home->sequences;
        if (sequences->rules->is_broken(sequences))
            return false;
    }
    kb_lane_finish(lane, node, request, 4 + size, now_ns);
    return true;
}

/* Take all accepted requests, oldest first. */
static inline kb_lane_request *kb_lane_take_answered(kb_lane *lane) {
    kb_lane_request *answered;
    kb_lock_acquire(&lane->answered_lock);
    answered = lane->answered;
    lane->answered = lane->last_answered = NULL;
    lane->is_unwaited = false;
    kb_lock_release(&lane->answered_lock);
    return answered;
}

/* Return when the oldest accepted request was answered that is not taken; INT64_MAX without one. */
static inline int64_t kb_lane_answered_ns(kb_lane *lane) {
    int64_t answered_ns;
    kb_lock_acquire(&lane->answered_lock);
    answered_ns = lane->answered ? lane->answered->answered_ns : INT64_MAX;
    kb_lock_release(&lane->answered_lock);
    return answered_ns;
}

/* Return when the thread of callbacks is to complete accepted requests: at once, unless other threads wait
 * for all of them, and do it; INT64_MAX without any. */
static inline int64_t kb_lane_completion_ns(kb_lane *lane) {
    int64_t completion_ns = INT64_MAX;
    kb_lock_acquire(&lane->answered_lock);
    if (lane->answered)
        completion_ns = lane->answered->answered_ns + (lane->is_unwaited ? 0 : KB_LANE_WAITERS_PATIENCE_NS);
    kb_lock_release(&lane->answered_lock);
    return completion_ns;
}

/* Take whole answers from the beginning of `data`, and return how many bytes. An unusual one makes the rest
 * the engine's. */
static inline size_t kb_lane_read(kb_lane *lane, kb_lane_node *node, const uint8_t *data, size_t size,
                                  int64_t now_ns) {
    size_t at = 0;
    while (size - at >= 4) {
        uint32_t length = kb_load_be32(data + at);
        if (length > KB_LANE_LARGEST_ANSWER) {
            node->is_engines = true;
            break;
        }
        if (size - at - 4 < length)
            break;
        if (!kb_lane_answer(lane, node, data + at + 4, length, now_ns)) {
            node->is_engines = true;
            break;
        }
        at += 4 + length;
    }
    return at;
}

/* Make room for `size` more bytes after `in`. False without memory. */
static inline bool kb_lane_reserve_in(kb_lane_node *node, size_t size) {
    size_t room = node->in_bytes + size;
    uint8_t *grown;
    if (room <= node->in_room)
        return true;
    grown = realloc(node->in, room);
    if (!grown)
        return false;
    node->in = grown;
    node->in_room = room;
    return true;
}

/* Take received bytes, after `kb_lane_reserve_in` for them. What is left in `in` afterwards is the beginning
 * of a frame, or the engine's. */
static inline void kb_lane_received(kb_lane *lane, kb_lane_node *node, const uint8_t *data, size_t size,
                                    int64_t now_ns) {
    size_t read = 0;
    node->active_ns = now_ns;
    lane->is_changed = true;
    if (!node->in_bytes && !node->is_engines)
        read = kb_lane_read(lane, node, data, size, now_ns);
    if (size > read)
        memcpy(node->in + node->in_bytes, data + read, size - read);
    node->in_bytes += size - read;
    if (node->in_bytes > size - read && !node->is_engines) {
        read = kb_lane_read(lane, node, node->in, node->in_bytes, now_ns);
        node->in_bytes -= read;
        memmove(node->in, node->in + read, node->in_bytes);
    }
}

/* Return when the oldest unanswered request times out. */
static inline int64_t kb_lane_timeout_ns(const kb_lane *lane) {
    int64_t timeout_ns = INT64_MAX;
    for (int32_t i = 0; i < lane->node_count; i++) {
        const kb_lane_request *oldest = lane->nodes[i].first;
        if (oldest && oldest->sent.created_ns + lane->request_timeout_ns < timeout_ns)
            timeout_ns = oldest->sent.created_ns + lane->request_timeout_ns;
    }
    return timeout_ns;
}

#endif
