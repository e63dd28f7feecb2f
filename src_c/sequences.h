/* The sequences of a partition: which batches are in flight, under which numbers, and what may follow them.
 * These are the rules that every batch meets. Their reasons are in kbatch.core.producer.idempotence, which
 * also decides about failures and gaps.
 *
 * Only the sender uses them. After org.apache.kafka.clients.producer.internals.TxnPartitionMap; KIP-98. */
#ifndef KBATCH_SEQUENCES_H
#define KBATCH_SEQUENCES_H

#include "batch_queue.h"

/* The number of no record: no retry may be drained. */
#define KB_NO_RECORD ((int64_t)1 << 62)
/* Before any clock: the leader may have no state of the producer. */
#define KB_UNKNOWN_NS (-((int64_t)1 << 62))
/* The node of a batch whose request went to a former leader, or to that of a former topic. */
enum { KB_FORMER_LEADER = -2 };

/* A producer id and its epoch; -1 and -1 are none. */
typedef struct {
    int64_t producer_id;
    int32_t epoch;
} kb_identity;

/* What the accumulator may drain: see kb_partition. */
typedef struct {
    bool muted, fresh_blocked;
    int64_t retry_number;
} kb_gate;

typedef struct kb_sequences {
    const struct kb_rules *rules;
    kb_in_flight *first, *last;
    int32_t count;
    kb_identity identity;
    int64_t next_counter;  /* of the next new batch */
    int64_t acked_counter; /* of the last record known to be in the log */
    int64_t hole_end;      /* after the last failed record that had a number */
    int64_t known_ns;      /* the leader has known the producer since then */
    int32_t leader, leader_epoch;
    int64_t transaction;   /* the last one that the coordinator has added the partition to */
    bool is_doubtful, is_stopped, waits_for_identity;
    kb_gate gate; /* last passed to the accumulator */
} kb_sequences;

/* The rules that lane, native steps and kbatch.core share; a function of the same name explains each. They
 * are called by this table, so that tests can see what a wrong one does. */
typedef struct kb_rules {
    void (*insert)(kb_sequences *sequences, kb_in_flight *entry, kb_in_flight *after);
    void (*remove)(kb_sequences *sequences, kb_in_flight *entry);
    void (*restart)(kb_sequences *sequences, kb_identity identity, int64_t counter);
    void (*number)(kb_sequences *sequences, kb_in_flight *entry);
    void (*acknowledge)(kb_sequences *sequences, const kb_in_flight *entry, int64_t oldest_ns);
    bool (*is_broken)(const kb_sequences *sequences);
    bool (*may_follow)(const kb_sequences *sequences, int64_t oldest_ns);
    kb_gate (*gate_under)(const kb_sequences *sequences, const kb_identity *identity, int64_t max_in_flight,
                          int64_t oldest_ns);
} kb_rules;

static const kb_gate KB_GATE_OPEN = {false, false, -1};

static inline bool kb_same_gate(kb_gate a, kb_gate b) {
    return a.muted == b.muted && a.fresh_blocked == b.fresh_blocked && a.retry_number == b.retry_number;
}

static inline bool kb_same_identity(kb_identity a, kb_identity b) {
    return a.producer_id == b.producer_id && a.epoch == b.epoch;
}

/* The batches in flight */

/* Begin the way of a drained batch, which is not in a list yet. */
static inline kb_in_flight *kb_flight_begin(kb_batch *batch, int64_t now_ns, int64_t counter) {
    kb_in_flight *entry = &batch->flight;
    memset(entry, 0, sizeof(*entry));
    entry->batch = batch;
    entry->record_count = batch->contents.count;
    entry->sent_ns = now_ns;
    entry->counter = counter;
    entry->node_id = -1;
    return entry;
}

/* Insert it after another, at the end for NULL, unless the list is empty. */
static inline void kb_in_flight_insert(kb_sequences *sequences, kb_in_flight *entry, kb_in_flight *after) {
    if (!after)
        after = sequences->last;
    entry->previous = after;
    entry->next = after ? after->next : NULL;
    *(after ? &after->next : &sequences->first) = entry;
    *(entry->next ? &entry->next->previous : &sequences->last) = entry;
    sequences->count++;
}

/* It is in the list. */
static inline void kb_in_flight_remove(kb_sequences *sequences, kb_in_flight *entry) {
    *(entry->previous ? &entry->previous->next : &sequences->first) = entry->next;
    *(entry->next ? &entry->next->previous : &sequences->last) = entry->previous;
    entry->next = entry->previous = NULL;
    sequences->count--;
}

/* Numbers */

/* Restart the numbers, under `identity`. */
static inline void kb_sequences_restart(kb_sequences *sequences, kb_identity identity, int64_t counter) {
    if (identity.producer_id != sequences->identity.producer_id)
        sequences->known_ns = KB_UNKNOWN_NS;
    sequences->identity = identity;
    sequences->next_counter = counter;
    sequences->acked_counter = counter - 1;
    sequences->hole_end = 0;
    sequences->is_doubtful = false;
}

static inline void kb_sequences_init(kb_sequences *sequences, const kb_rules *rules) {
    static const kb_identity none = {-1, -1};
    sequences->rules = rules;
    sequences->leader = sequences->leader_epoch = -1;
    sequences->known_ns = KB_UNKNOWN_NS;
    sequences->gate = KB_GATE_OPEN;
    sequences->identity = none;
    kb_sequences_restart(sequences, none, 0);
}

/* Give a new batch the next numbers. */
static inline void kb_sequences_number(kb_sequences *sequences, kb_in_flight *entry) {
    entry->counter = sequences->next_counter;
    sequences->next_counter += entry->record_count;
    sequences->rules->insert(sequences, entry, NULL);
}

/* Note that the batch is in the log, even if it has failed. It proves those before it if the answering leader
 * has known their numbers since after `oldest_ns`. */
static inline void kb_sequences_acknowledge(kb_sequences *sequences, const kb_in_flight *entry,
                                            int64_t oldest_ns) {
    bool is_of_leader = entry->node_id == sequences->leader;
    int64_t end = entry->counter + entry->record_count;
    for (kb_in_flight *each = sequences->first; each && each->counter < entry->counter; each = each->next)
        if (each->counter > sequences->acked_counter) /* passed now */
            each->is_proved = is_of_leader && sequences->known_ns > oldest_ns;
    if (is_of_leader && entry->sent_ns > sequences->known_ns)
        sequences->known_ns = entry->sent_ns;
    if (end - 1 > sequences->acked_counter)
        sequences->acked_counter = end - 1;
}

/* What stands in the way */

/* True if a numbered batch failed, and no later one was acknowledged. */
static inline bool kb_has_hole(const kb_sequences *sequences) {
    return sequences->hole_end > sequences->acked_counter + 1;
}

/* True if a batch cannot go on by itself: it was refused, or has failed while its request is in flight. */
static inline bool kb_is_stuck(const kb_in_flight *entry) {
    return entry->is_set_aside || entry->batch->state == KB_BATCH_DONE;
}

/* True if a batch is missing, or may be. */
static inline bool kb_is_broken(const kb_sequences *sequences) {
    if (kb_has_hole(sequences))
        return true;
    for (const kb_in_flight *each = sequences->first; each; each = each->next)
        if (kb_is_stuck(each))
            return true;
    return false;
}

/* True if another new batch may be sent: the leader has known the producer since after `oldest_ns`. */
static inline bool kb_may_follow(const kb_sequences *sequences, int64_t oldest_ns) {
    return !sequences->first || sequences->known_ns > oldest_ns;
}

/* Return the gate for a producer with this identity. NULL is one without sequences, which keeps the order
 * only with one request in flight, and mutes the partition then. */
static inline kb_gate kb_gate_under(const kb_sequences *sequences, const kb_identity *identity,
                                    int64_t max_in_flight, int64_t oldest_ns) {
    kb_gate gate = KB_GATE_OPEN;
    if (!identity) {
        gate.muted = max_in_flight == 1 && sequences->first;
        return gate;
    }
    bool is_outdated = !kb_same_identity(sequences->identity, *identity);
    if (!sequences->first) {
        gate.fresh_blocked = identity->producer_id < 0 || (kb_has_hole(sequences) && !is_outdated);
        return gate;
    }
    gate.retry_number = KB_NO_RECORD;
    gate.fresh_blocked = sequences->waits_for_identity || is_outdated || sequences->known_ns <= oldest_ns ||
                         kb_has_hole(sequences) || sequences->first->counter <= sequences->acked_counter ||
                         sequences->count >= max_in_flight;
    if (sequences->waits_for_identity)
        return gate;
    bool is_open = true;
    for (const kb_in_flight *each = sequences->first; each; each = each->next) {
        if (kb_is_stuck(each)) {
            gate.fresh_blocked = true;
            /* a leader that may know nothing takes any number, also if it refuses the one before */
            is_open &= !each->is_in_flight || sequences->known_ns > oldest_ns;
        } else if (is_open && gate.retry_number == KB_NO_RECORD) {
            gate.retry_number = each->batch->first_number;
        }
        if (each->is_in_flight && each->node_id != sequences->leader) /* which must still answer */
            gate.fresh_blocked = true;
    }
    return gate;
}

static const kb_rules KB_RULES = {
    .insert = kb_in_flight_insert,
    .remove = kb_in_flight_remove,
    .restart = kb_sequences_restart,
    .number = kb_sequences_number,
    .acknowledge = kb_sequences_acknowledge,
    .is_broken = kb_is_broken,
    .may_follow = kb_may_follow,
    .gate_under = kb_gate_under,
};

/* Pass a changed gate to the accumulator. */
static inline void kb_sequences_update_gate(kb_sequences *sequences, kb_partition *partition,
                                            const kb_identity *identity, int64_t max_in_flight,
                                            int64_t oldest_ns) {
    kb_gate gate = sequences->rules->gate_under(sequences, identity, max_in_flight, oldest_ns);
    if (kb_same_gate(gate, sequences->gate))
        return;
    sequences->gate = gate;
    kb_lock_acquire(&partition->lock);
    partition->muted = gate.muted;
    partition->fresh_blocked = gate.fresh_blocked;
    partition->retry_number = gate.retry_number;
    kb_lock_release(&partition->lock);
}

/* The leader */

/* Note the partition's leader, -1 if unknown. The state of another node or epoch no longer counts. */
static inline void kb_begin_leader(kb_sequences *sequences, int32_t leader, int32_t leader_epoch) {
    if (leader == sequences->leader && leader_epoch == sequences->leader_epoch)
        return;
    sequences->leader = leader;
    sequences->leader_epoch = leader_epoch;
    sequences->known_ns = KB_UNKNOWN_NS;
    for (kb_in_flight *each = sequences->first; each; each = each->next)
        each->node_id = KB_FORMER_LEADER;
}

/* Note another id of the topic: brokers know nothing of the producer, and earlier batches are gone. If the id
 * was the topic's before, some broker had old metadata, and what may be in the log is there still. */
static inline void kb_begin_topic(kb_sequences *sequences, bool is_former) {
    sequences->known_ns = KB_UNKNOWN_NS;
    for (kb_in_flight *each = sequences->first; each; each = each->next) {
        each->node_id = KB_FORMER_LEADER; /* an answer that is to come is of the topic before */
        each->is_ambiguous = is_former && each->batch->possibly_persisted;
        each->is_proved = false;
    }
}

#endif
