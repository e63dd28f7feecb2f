/* Wrong rules of sequences.h, and at the end the table of bugs that rules.py plants with them. */
#include "sequences.h"

typedef const kb_sequences *known;
typedef const kb_identity *identity_or_none;

const size_t RULES_BYTES = sizeof(kb_rules);

/* Numbers */

static void use_numbers_again(kb_sequences *sequences, kb_in_flight *entry) {
    kb_sequences_number(sequences, entry);
    sequences->next_counter = entry->counter;
}

static void go_on(kb_sequences *sequences, kb_identity identity, int64_t counter) {
    (void)counter;
    kb_sequences_restart(sequences, identity, sequences->next_counter);
}

static void wrap_numbers(kb_sequences *sequences, kb_in_flight *entry) {
    kb_sequences_number(sequences, entry);
    sequences->next_counter &= INT32_MAX;
}

/* The batches in flight */

static void put_first(kb_sequences *sequences, kb_in_flight *entry, kb_in_flight *after) {
    if (after || !sequences->first) {
        kb_in_flight_insert(sequences, entry, after);
        return;
    }
    entry->previous = NULL;
    entry->next = sequences->first;
    sequences->first = entry->next->previous = entry;
    sequences->count++;
}

static void remove_next_too(kb_sequences *sequences, kb_in_flight *entry) {
    if (entry->next)
        kb_in_flight_remove(sequences, entry->next);
    kb_in_flight_remove(sequences, entry);
}

/* Answers */

static void go_back(kb_sequences *sequences, const kb_in_flight *entry, int64_t oldest_ns) {
    kb_sequences_acknowledge(sequences, entry, oldest_ns);
    sequences->acked_counter = -1;
}

static void believe_former_leader(kb_sequences *sequences, const kb_in_flight *entry, int64_t oldest_ns) {
    kb_in_flight answered = *entry;
    answered.node_id = sequences->leader;
    kb_sequences_acknowledge(sequences, &answered, oldest_ns);
}

static void know_for_ever(kb_sequences *sequences, const kb_in_flight *entry, int64_t oldest_ns) {
    kb_sequences_acknowledge(sequences, entry, oldest_ns);
    if (entry->node_id == sequences->leader)
        sequences->known_ns = INT64_MAX;
}

static bool see_no_gap(known sequences) {
    (void)sequences;
    return false;
}

/* What may follow */

static bool follow_always(known sequences, int64_t oldest_ns) {
    (void)sequences;
    (void)oldest_ns;
    return true;
}

static kb_gate under_any_clock(known sequences, identity_or_none identity, int64_t limit, int64_t oldest_ns) {
    (void)oldest_ns;
    return kb_gate_under(sequences, identity, limit, KB_UNKNOWN_NS);
}

static kb_gate any_retry(known sequences, identity_or_none identity, int64_t limit, int64_t oldest_ns) {
    kb_gate gate = kb_gate_under(sequences, identity, limit, oldest_ns);
    gate.retry_number = -1;
    return gate;
}

static kb_gate pass_an_epoch(known sequences, identity_or_none identity, int64_t limit, int64_t oldest_ns) {
    kb_gate gate = kb_gate_under(sequences, identity, limit, oldest_ns);
    gate.fresh_blocked &= !identity || kb_same_identity(sequences->identity, *identity);
    return gate;
}

static kb_gate never_mute(known sequences, identity_or_none identity, int64_t limit, int64_t oldest_ns) {
    kb_gate gate = kb_gate_under(sequences, identity, limit, oldest_ns);
    gate.muted = false;
    return gate;
}

/* Batches at the former leader count as those at the leader. */
static kb_gate forget_nodes(known sequences, identity_or_none identity, int64_t limit, int64_t oldest_ns) {
    kb_sequences moved = *sequences;
    kb_in_flight copies[64], *last = NULL;
    int count = 0;
    for (const kb_in_flight *each = sequences->first; each && count < 64; each = each->next) {
        copies[count] = *each;
        copies[count].node_id = sequences->leader;
        copies[count].next = NULL;
        *(last ? &last->next : &moved.first) = &copies[count];
        last = &copies[count++];
    }
    return kb_gate_under(&moved, identity, limit, oldest_ns);
}

static kb_gate twice_as_many(known sequences, identity_or_none identity, int64_t limit, int64_t oldest_ns) {
    if (limit < 5) /* one that sends fewer is not Java's case */
        return kb_gate_under(sequences, identity, limit, oldest_ns);
    return forget_nodes(sequences, identity, 2 * limit, oldest_ns);
}

/* The bugs */

const kb_rules numbers_are_used_again = {.number = use_numbers_again};
const kb_rules a_new_epoch_of_the_lane_goes_on = {.restart = go_on};
const kb_rules sequences_are_compared_wrapped = {.number = wrap_numbers};
const kb_rules a_new_batch_is_put_first = {.insert = put_first};
const kb_rules an_answer_removes_the_next_batch_too = {.remove = remove_next_too};
const kb_rules acknowledged_numbers_go_back = {.acknowledge = go_back};
const kb_rules a_former_leaders_answer_counts = {.acknowledge = believe_former_leader};
const kb_rules a_leader_never_forgets = {.acknowledge = know_for_ever};
const kb_rules a_gap_is_not_seen = {.is_broken = see_no_gap};
const kb_rules a_batch_follows_to_a_forgetful_leader = {
    .may_follow = follow_always,
    .gate_under = under_any_clock,
};
const kb_rules any_retry_may_go_first = {.gate_under = any_retry};
const kb_rules new_batches_pass_an_epoch = {.gate_under = pass_an_epoch};
const kb_rules a_partition_is_never_muted = {.gate_under = never_mute};
const kb_rules a_new_leader_does_not_wait_for_the_old_one = {.gate_under = forget_nodes};
const kb_rules ten_batches_of_a_partition = {.gate_under = twice_as_many};
