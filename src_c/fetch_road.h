/* The reading of partitions: which of them a Fetch names, and whose parts of an answer count. Without Python,
 * clock, sockets and locks: one thread owns all of it, but for what is atomic.
 *
 * A *reading* is a partition from an `assign` or `seek` to the next. All are in one list, in the order in
 * which they are asked for: one that had records moves to its end (KIP-74), and gets the next `turn`. A node
 * has one request in flight at most; `in_flight` says which node's answer counts for a reading.
 *
 * A *session* (KIP-227) is what a node remembers: the *known* partitions. The next request names those whose
 * ask differs, and those to forget. Partitions are known by topic and number, since the next reading of a
 * partition is another one.
 *
 * Most partitions are quiet: each request of their session asks for them, and no answer has a part for them.
 * Such a reading *stays asked* from request to request, and nobody looks at it. One that has changed, or had
 * a part in an answer, is *loose*: the next scan looks at it. So a request and its answer cost what has
 * changed, however many partitions are quiet.
 *
 * After org.apache.kafka.clients.FetchSessionHandler and consumer.internals.AbstractFetch. */
#ifndef KBATCH_FETCH_ROAD_H
#define KBATCH_FETCH_ROAD_H

#include "arrivals.h"
#include "fetch_budget.h"
#include "fetch_wire.h"
#include "fetched.h"
#include "flags.h"
#include "lent.h"
#include "murmur2.h"
#include "sensor.h"

enum {
    KB_NO_SESSION = 0,
    KB_SESSION_INITIAL_EPOCH = 0, /* asks for a session */
    KB_SESSION_FINAL_EPOCH = -1   /* without one */
};

#define KB_NEVER_NS INT64_MAX

typedef struct kb_fetch_road kb_fetch_road;
typedef struct kb_fetch_node kb_fetch_node;
typedef struct kb_fetch_slot kb_fetch_slot;

/* How topics are found. */
enum { KB_BY_NAME,
       KB_BY_ID,
       KB_WAYS_TO_TOPIC };

/* A topic with partitions that are read or known; it owns its name. */
typedef struct kb_fetch_topic {
    struct kb_fetch_topic *next[KB_WAYS_TO_TOPIC]; /* in the lists of the road */
    uint32_t hash[KB_WAYS_TO_TOPIC];
    kb_span name;
    uint8_t id[KB_WIRE_UUID_BYTES]; /* of the last request that named it; zeros: none has */
    kb_fetch_slot **slots;          /* by partition */
    int32_t slot_count, slot_room;
    /* its place in the lists of the request that is made, if that is `mark` */
    uint64_t mark[2];
    int32_t group[2];
} kb_fetch_topic;

typedef struct kb_fetch_known kb_fetch_known;

typedef struct {
    kb_fetch_known *first, *last;
} kb_fetch_known_list;

/* A partition that a session knows. */
struct kb_fetch_known {
    kb_fetch_known_list *list; /* of its node: of those that are asked for, or of the others */
    kb_fetch_known *previous, *next;
    kb_fetch_known *of_slot; /* of other sessions */
    kb_fetch_slot *slot;
    kb_fetch_node *node;
    kb_fetch_ask ask;
};

/* A partition, as long as it is read or known. */
struct kb_fetch_slot {
    kb_fetch_topic *topic;
    int32_t partition;
    kb_reading *reading;   /* NULL: it is not read */
    kb_fetch_known *known; /* by sessions, one each */
};

struct kb_reading {
    kb_fetch_road *road;         /* whose list it is in; NULL: none */
    kb_reading *previous, *next; /* all of them, in order */
    uint64_t turn;               /* grows in this order */
    bool is_loose;
    kb_reading *loose_previous, *loose_next;
    kb_fetch_slot *slot; /* NULL: not in the list */
    void *owner;
    bool is_fetching, is_paused, is_topic_sure, is_failing;
    /* where it is read from: valid if `placement` is the road's, and until a time */
    kb_fetch_node *node;
    uint64_t placement;
    int64_t placed_until_ns; /* a replica is read for some time only */
    int32_t leader_epoch, replica_id;
    uint8_t topic_id[KB_WIRE_UUID_BYTES];
    /* the position */
    int64_t fetch_offset; /* atomic: any thread may ask */
    int64_t end_offset;
    int32_t last_epoch, checked_epoch;
    int64_t needed_bytes, not_before_ns;
    int64_t backlog_bytes; /* of results that were not released; atomic */
    /* what the last answers said of the log; -1: nothing; atomic */
    int64_t high_watermark, last_stable_offset, log_start_offset;
    /* the node whose answer counts, which links all that it is asked for */
    kb_fetch_node *in_flight;
    kb_reading *asked_previous, *asked_next;
    kb_fetch_ask asked;
    uint64_t answered; /* the last answer that has a part for it */
    kb_reading *candidate_next; /* of the next request, while that is made */
    kb_reading_results results; /* in the road's arrivals, under their lock */
};

/* A connection that is lent to the road, and the request on it. */
typedef struct {
    bool is_lent;
    bool is_engines; /* what it has received is for the engine */
    bool reports_write;
    int64_t connection_id;
    int descriptor; /* -1: bytes go by hand */
    int version;
    int32_t next_correlation_id;
    int64_t queued_bytes, handed_bytes, written_bytes; /* of the outgoing stream, from its beginning on */
    int64_t active_ns, usable_until_ns;
    const kb_request_sensors *sensors; /* NULL: nothing is recorded */
    kb_lent_request sent; /* the request in flight */
    uint8_t *out;         /* its bytes */
    int64_t out_room;
    /* an answer that has begun: its size and its bytes */
    uint8_t head[4];
    uint8_t *frame; /* NULL: its size is not known yet */
    int64_t frame_bytes, frame_room, filled;
    uint8_t *rest; /* what came after an answer that is the engine's */
    int64_t rest_bytes;
} kb_fetch_link;

struct kb_fetch_node {
    int32_t node_id;
    void *owner;
    kb_fetch_link link;
    kb_fetch_node *lent_next;
    /* those that readings are read from, in the order in which they are asked */
    kb_fetch_node *previous, *next;
    int64_t reading_count;
    /* the session: what is asked for, and what the next request asks for or lets it forget */
    int32_t session_id, session_epoch;
    kb_fetch_known_list asked_known, other_known;
    /* the request in flight */
    int is_in_flight; /* a flag: any thread may ask */
    bool is_full; /* an answer that is full has all partitions, others have those with news */
    int version;
    int64_t reserved_bytes, most_bytes; /* for its answer; that it asks for */
    uint64_t mark; /* its number */
    kb_fetch_list named, forgotten;
    /* what it asks for, and the next one too, unless that gets loose */
    kb_reading *asked_first, *asked_last;
    int64_t asked_count, asked_bounded, asked_without_id;
    /* the candidates for the next request, besides these */
    kb_fetch_node *found_next;
    kb_reading *candidate_first, *candidate_last;
    int64_t candidate_count;
    bool is_unordered, lacks_topic_ids;
    kb_sensor *latency; /* of its answers, in milliseconds */
    int64_t served_ns;  /* its last answer to the road; 0: none since that was looked at */
};

struct kb_fetch_road {
    kb_reading *first, *last, *loose_first, *loose_last;
    kb_fetch_node *node_first, *node_last;
    kb_fetch_topic **topics; /* `topic_room` lists by each way, of topics whose hashes end alike */
    kb_fetch_topic *topic_hint; /* the last one that was found */
    int32_t topic_count, topic_room; /* a power of two; 0: no lists */
    int64_t reading_count, bounded_count;
    uint64_t placement;     /* grows when leaders may have moved */
    int64_t look_places_ns; /* no replica has had its time before that */
    uint64_t turn, mark;    /* the numbers of the last turn and the last request */
    uint64_t id_change;     /* the last request that named a topic by another id than one before */
    /* what a scan has found */
    kb_fetch_node *found_first, *found_last;
    int64_t found_count, look_again_ns;
    bool is_short, is_unplaced; /* memory is missing; the node of any must be looked up */
    /* what does not change */
    kb_budget *budget;
    int32_t partition_bytes;
    int64_t fetch_bytes; /* of a request at most */
    bool reads_committed;
    kb_fetched_checksum checksum; /* NULL: checksums are not checked */
    kb_fetch_head head; /* what all requests say */
    /* memory for answers of a size, and its room; `give_back` if it is not needed. NULL: there is none */
    uint8_t *(*take_frame)(void *frames, int64_t size, int64_t *room);
    void (*give_back)(void *frames, uint8_t *frame, int64_t room);
    void *frames;
    /* while connections are lent */
    kb_fetch_node *lent;
    bool is_changed, needs_engine;
    int awaits_memory; /* memory that is released may let a request go out, or no answer is due; atomic */
    uint64_t answer_count;
    kb_fetch_arrival *arrived_first, *arrived_last; /* answers with results, which nobody has yet */
    kb_arrivals *arrivals;                          /* where they go without the GIL; NULL: nowhere */
    int32_t late_count;     /* answers since what may be late was done */
    int64_t late_since_ns;  /* the first one of them */
    kb_sensor *latency, *throttle; /* of answers, in milliseconds; NULL: not recorded */
};

static inline void kb_reading_init(kb_reading *reading, void *owner) {
    memset(reading, 0, sizeof(*reading));
    reading->owner = owner;
    reading->leader_epoch = reading->replica_id = reading->last_epoch = reading->checked_epoch = -1;
    reading->fetch_offset = -1;
    reading->placed_until_ns = KB_NEVER_NS;
    reading->high_watermark = reading->last_stable_offset = reading->log_start_offset = -1;
}

/* Topics and partitions */

static inline bool kb_fetch_is_named(const kb_fetch_topic *topic, const kb_span *name, int way) {
    if (way == KB_BY_ID)
        return memcmp(topic->id, name->data, KB_WIRE_UUID_BYTES) == 0;
    return topic->name.size == name->size && memcmp(topic->name.data, name->data, (size_t)name->size) == 0;
}

static inline bool kb_fetch_has_id(const uint8_t *topic_id) {
    static const uint8_t no_id[KB_WIRE_UUID_BYTES] = {0};
    return memcmp(topic_id, no_id, sizeof(no_id)) != 0;
}

/* Return the beginning of the list for topics with a hash. */
static inline kb_fetch_topic **kb_fetch_topic_list(const kb_fetch_road *road, int way, uint32_t hash) {
    return &road->topics[way * road->topic_room + (int32_t)(hash & (uint32_t)(road->topic_room - 1))];
}

/* Find a topic by its name, or by its id. Most are the one that was found before. */
static inline kb_fetch_topic *kb_fetch_find_topic(kb_fetch_road *road, const kb_span *name, int way) {
    uint32_t hash;
    kb_fetch_topic *topic = road->topic_hint;
    if (topic && kb_fetch_is_named(topic, name, way))
        return topic;
    if (!road->topic_room)
        return NULL;
    hash = kb_murmur2(name->data, way == KB_BY_ID ? KB_WIRE_UUID_BYTES : (size_t)name->size);
    topic = *kb_fetch_topic_list(road, way, hash);
    while (topic && (topic->hash[way] != hash || !kb_fetch_is_named(topic, name, way)))
        topic = topic->next[way];
    if (topic)
        road->topic_hint = topic;
    return topic;
}

static inline void kb_fetch_link_topic(kb_fetch_road *road, kb_fetch_topic *topic, int way) {
    kb_fetch_topic **list = kb_fetch_topic_list(road, way, topic->hash[way]);
    topic->next[way] = *list;
    *list = topic;
}

static inline void kb_fetch_unlink_topic(kb_fetch_road *road, kb_fetch_topic *topic, int way) {
    kb_fetch_topic **list = kb_fetch_topic_list(road, way, topic->hash[way]);
    while (*list != topic)
        list = &(*list)->next[way];
    *list = topic->next[way];
}

/* Make room for another topic. False without memory for any. */
static inline bool kb_fetch_grow_topics(kb_fetch_road *road) {
    kb_fetch_topic **before = road->topics, *topic, *next;
    int32_t room_before = road->topic_room, room = room_before ? 2 * room_before : 16;
    kb_fetch_topic **topics;
    if (road->topic_count < room_before)
        return true;
    topics = room > INT32_MAX / 4 ? NULL : calloc((size_t)(KB_WAYS_TO_TOPIC * room), sizeof(*topics));
    if (!topics)
        return room_before > 0; /* longer lists */
    road->topics = topics;
    road->topic_room = room;
    for (int32_t i = 0; i < room_before; i++)
        for (topic = before[KB_BY_NAME * room_before + i]; topic; topic = next) {
            next = topic->next[KB_BY_NAME];
            kb_fetch_link_topic(road, topic, KB_BY_NAME);
            if (kb_fetch_has_id(topic->id))
                kb_fetch_link_topic(road, topic, KB_BY_ID);
        }
    free(before);
    return true;
}

/* Return the index of a partition in a topic, or that of the next one. */
static inline int32_t kb_fetch_slot_index(const kb_fetch_topic *topic, int32_t partition) {
    int32_t low = 0, high = topic->slot_count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (topic->slots[middle]->partition < partition)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline kb_fetch_slot *kb_fetch_find_slot(const kb_fetch_topic *topic, int32_t partition) {
    int32_t at = kb_fetch_slot_index(topic, partition);
    return at < topic->slot_count && topic->slots[at]->partition == partition ? topic->slots[at] : NULL;
}

static inline kb_fetch_topic *kb_fetch_add_topic(kb_fetch_road *road, const kb_span *name) {
    kb_fetch_topic *topic;
    if (!kb_fetch_grow_topics(road))
        return NULL;
    topic = calloc(1, sizeof(kb_fetch_topic) + (size_t)name->size);
    if (!topic)
        return NULL;
    topic->name.data = memcpy(topic + 1, name->data, (size_t)name->size);
    topic->name.size = name->size;
    topic->hash[KB_BY_NAME] = kb_murmur2(name->data, (size_t)name->size);
    kb_fetch_link_topic(road, topic, KB_BY_NAME);
    road->topic_count++;
    return topic;
}

/* Return a topic's partition, a new one if there is none; NULL without memory. */
static inline kb_fetch_slot *kb_fetch_get_slot(kb_fetch_topic *topic, int32_t partition) {
    int32_t at = kb_fetch_slot_index(topic, partition);
    kb_fetch_slot *slot, **slots;
    if (at < topic->slot_count && topic->slots[at]->partition == partition)
        return topic->slots[at];
    slots = kb_fetch_grow(topic->slots, sizeof(*slots), topic->slot_count, &topic->slot_room);
    if (!slots)
        return NULL;
    topic->slots = slots;
    slot = calloc(1, sizeof(kb_fetch_slot));
    if (!slot)
        return NULL;
    slot->topic = topic;
    slot->partition = partition;
    memmove(slots + at + 1, slots + at, (size_t)(topic->slot_count++ - at) * sizeof(*slots));
    slots[at] = slot;
    return slot;
}

static inline void kb_fetch_drop_topic(kb_fetch_road *road, kb_fetch_topic *topic) {
    if (road->topic_hint == topic)
        road->topic_hint = NULL;
    kb_fetch_unlink_topic(road, topic, KB_BY_NAME);
    if (kb_fetch_has_id(topic->id))
        kb_fetch_unlink_topic(road, topic, KB_BY_ID);
    free(topic->slots);
    free(topic);
    if (--road->topic_count)
        return;
    free(road->topics);
    road->topics = NULL;
    road->topic_room = 0;
}

/* Free a partition that is neither read nor known, and a topic without any. */
static inline void kb_fetch_drop_slot(kb_fetch_road *road, kb_fetch_slot *slot) {
    kb_fetch_topic *topic = slot->topic;
    int32_t at;
    if (slot->reading || slot->known)
        return;
    at = kb_fetch_slot_index(topic, slot->partition);
    topic->slot_count--;
    memmove(topic->slots + at, topic->slots + at + 1, (size_t)(topic->slot_count - at) * sizeof(slot));
    free(slot);
    if (!topic->slot_count)
        kb_fetch_drop_topic(road, topic);
}

/* Readings */

static inline void kb_fetch_append(kb_fetch_road *road, kb_reading *reading) {
    reading->turn = ++road->turn;
    reading->next = NULL;
    reading->previous = road->last;
    if (road->last)
        road->last->next = reading;
    else
        road->first = reading;
    road->last = reading;
}

static inline void kb_fetch_unlink(kb_fetch_road *road, kb_reading *reading) {
    if (reading->previous)
        reading->previous->next = reading->next;
    else
        road->first = reading->next;
    if (reading->next)
        reading->next->previous = reading->previous;
    else
        road->last = reading->previous;
}

static inline void kb_fetch_move_to_end(kb_fetch_road *road, kb_reading *reading) {
    kb_fetch_unlink(road, reading);
    kb_fetch_append(road, reading);
}

/* Let the next scan look at a reading, since anything about it has changed. */
static inline void kb_reading_loosen(kb_reading *reading) {
    kb_fetch_road *road = reading->road;
    if (!road || reading->is_loose)
        return;
    reading->is_loose = true;
    reading->loose_next = NULL;
    reading->loose_previous = road->loose_last;
    if (road->loose_last)
        road->loose_last->loose_next = reading;
    else
        road->loose_first = reading;
    road->loose_last = reading;
}

/* Let scans pass a reading by: it cannot be asked for, or is asked for already, until anything changes. */
static inline void kb_reading_fasten(kb_reading *reading) {
    kb_fetch_road *road = reading->road;
    if (!reading->is_loose)
        return;
    reading->is_loose = false;
    if (reading->loose_previous)
        reading->loose_previous->loose_next = reading->loose_next;
    else
        road->loose_first = reading->loose_next;
    if (reading->loose_next)
        reading->loose_next->loose_previous = reading->loose_previous;
    else
        road->loose_last = reading->loose_previous;
}

/* Count a reading with what its node is asked for; `change` is 1 or -1. */
static inline void kb_fetch_count_asked(kb_fetch_node *node, const kb_reading *reading, int64_t change) {
    node->asked_count += change;
    if (reading->end_offset != INT64_MAX)
        node->asked_bounded += change;
    if (!kb_fetch_has_id(reading->asked.topic_id))
        node->asked_without_id += change;
}

/* What sessions know */

static inline void kb_fetch_unlink_known(kb_fetch_known *known) {
    kb_fetch_known_list *list = known->list;
    if (known->previous)
        known->previous->next = known->next;
    else
        list->first = known->next;
    if (known->next)
        known->next->previous = known->previous;
    else
        list->last = known->previous;
}

static inline void kb_fetch_link_known(kb_fetch_known *known, kb_fetch_known_list *list) {
    known->list = list;
    known->next = NULL;
    known->previous = list->last;
    if (list->last)
        list->last->next = known;
    else
        list->first = known;
    list->last = known;
}

static inline void kb_fetch_move_known(kb_fetch_known *known, kb_fetch_known_list *list) {
    kb_fetch_unlink_known(known);
    kb_fetch_link_known(known, list);
}

static inline kb_fetch_known *kb_fetch_find_known(const kb_fetch_node *node, const kb_fetch_slot *slot) {
    kb_fetch_known *known = slot->known;
    while (known && known->node != node)
        known = known->of_slot;
    return known;
}

/* Ask no longer for a reading: an answer to come does not count for it. */
static inline void kb_reading_withdraw(kb_reading *reading) {
    kb_fetch_node *node = reading->in_flight;
    kb_fetch_known *known = node ? kb_fetch_find_known(node, reading->slot) : NULL;
    if (!node)
        return;
    if (known)
        kb_fetch_move_known(known, &node->other_known);
    if (reading->asked_previous)
        reading->asked_previous->asked_next = reading->asked_next;
    else
        node->asked_first = reading->asked_next;
    if (reading->asked_next)
        reading->asked_next->asked_previous = reading->asked_previous;
    else
        node->asked_last = reading->asked_previous;
    kb_fetch_count_asked(node, reading, -1);
    reading->in_flight = NULL;
    reading->asked_previous = reading->asked_next = NULL;
    kb_reading_loosen(reading);
}

static inline void kb_fetch_withdraw_all(kb_fetch_node *node) {
    while (node->asked_first)
        kb_reading_withdraw(node->asked_first);
}

static inline void kb_fetch_note_asked(kb_fetch_node *node, kb_reading *reading) {
    reading->in_flight = node;
    reading->asked_previous = node->asked_last;
    if (node->asked_last)
        node->asked_last->asked_next = reading;
    else
        node->asked_first = reading;
    node->asked_last = reading;
    kb_fetch_count_asked(node, reading, 1);
    if (!reading->needed_bytes) /* or each request must say how many bytes a batch needs */
        kb_reading_fasten(reading);
}

/* The nodes that are read from */

static inline void kb_fetch_link_node(kb_fetch_road *road, kb_fetch_node *node) {
    node->next = NULL;
    node->previous = road->node_last;
    if (road->node_last)
        road->node_last->next = node;
    else
        road->node_first = node;
    road->node_last = node;
}

static inline void kb_fetch_unlink_node(kb_fetch_road *road, kb_fetch_node *node) {
    if (node->previous)
        node->previous->next = node->next;
    else
        road->node_first = node->next;
    if (node->next)
        node->next->previous = node->previous;
    else
        road->node_last = node->previous;
}

static inline bool kb_reading_has_node(const kb_reading *reading) {
    return reading->road && reading->is_fetching && reading->node;
}

/* Count a reading with its node before or after a change of either; `change` is 1 or -1. */
static inline void kb_fetch_count_reading(const kb_reading *reading, int64_t change) {
    kb_fetch_node *node = reading->node;
    if (!kb_reading_has_node(reading))
        return;
    if (change > 0 && !node->reading_count)
        kb_fetch_link_node(reading->road, node);
    node->reading_count += change;
    if (change < 0 && !node->reading_count)
        kb_fetch_unlink_node(reading->road, node);
}

static inline void kb_reading_set_fetching(kb_reading *reading, bool is_fetching) {
    kb_fetch_count_reading(reading, -1);
    reading->is_fetching = is_fetching;
    kb_fetch_count_reading(reading, 1);
    kb_reading_loosen(reading);
}

/* Read from a node until a time, or until leaders may have moved; from none if it is NULL. */
static inline void kb_reading_place(kb_reading *reading, kb_fetch_node *node, uint64_t placement,
                                    int64_t until_ns) {
    kb_fetch_count_reading(reading, -1);
    reading->node = node;
    reading->placement = placement;
    reading->placed_until_ns = until_ns;
    kb_fetch_count_reading(reading, 1);
    if (reading->road && until_ns < reading->road->look_places_ns)
        reading->road->look_places_ns = until_ns;
    kb_reading_loosen(reading);
}

/* Begin to read a partition that is not read. False without memory. */
static inline bool kb_fetch_add_reading(kb_fetch_road *road, kb_reading *reading, const kb_span *topic_name,
                                        int32_t partition) {
    kb_fetch_topic *topic = kb_fetch_find_topic(road, topic_name, KB_BY_NAME);
    if (!topic)
        topic = kb_fetch_add_topic(road, topic_name);
    reading->slot = topic ? kb_fetch_get_slot(topic, partition) : NULL;
    if (!reading->slot) {
        if (topic && !topic->slot_count)
            kb_fetch_drop_topic(road, topic);
        return false;
    }
    reading->slot->reading = reading;
    reading->road = road;
    kb_fetch_append(road, reading);
    kb_fetch_count_reading(reading, 1);
    kb_reading_loosen(reading);
    road->reading_count++;
    road->bounded_count += reading->end_offset != INT64_MAX;
    return true;
}

/* Drop the results of a reading that ends, and give the memory of answers back in which there is nothing else
 * to be read. */
static inline void kb_fetch_forget_results(kb_fetch_road *road, kb_reading *reading) {
    kb_fetch_frame frame;
    while (road->arrivals && (frame = kb_arrivals_forget(road->arrivals, &reading->results)).data) {
        kb_count_add(&road->budget->unread, -frame.bytes);
        road->give_back(road->frames, frame.data, frame.room); /* takes the lock of its pool */
    }
}

/* End the reading of a partition; the next request of its session forgets it. */
static inline void kb_fetch_remove_reading(kb_fetch_road *road, kb_reading *reading) {
    kb_fetch_slot *slot = reading->slot;
    kb_reading_withdraw(reading);
    kb_reading_fasten(reading);
    kb_fetch_count_reading(reading, -1);
    kb_fetch_unlink(road, reading);
    reading->road = NULL;
    road->reading_count--;
    road->bounded_count -= reading->end_offset != INT64_MAX;
    slot->reading = NULL;
    reading->slot = NULL;
    kb_fetch_forget_results(road, reading);
    kb_fetch_drop_slot(road, slot);
}

/* Which are asked for */

/* Let the next scan look at all readings: leaders may have moved. */
static inline void kb_fetch_displace(kb_fetch_road *road) {
    road->placement++;
    for (kb_reading *reading = road->first; reading; reading = reading->next)
        kb_reading_loosen(reading);
}

/* Loosen the readings whose replica has had its time, and find when the next one has had it. */
static inline void kb_fetch_look_at_places(kb_fetch_road *road, int64_t now_ns) {
    if (now_ns < road->look_places_ns)
        return;
    road->look_places_ns = KB_NEVER_NS;
    for (kb_reading *reading = road->first; reading; reading = reading->next) {
        if (now_ns >= reading->placed_until_ns)
            kb_reading_loosen(reading);
        else if (reading->placed_until_ns < road->look_places_ns)
            road->look_places_ns = reading->placed_until_ns;
    }
}

/* True if the node of a reading must be looked up: leaders may have moved, or a replica has had its time. */
static inline bool kb_fetch_is_unplaced(const kb_fetch_road *road, const kb_reading *reading,
                                        int64_t now_ns) {
    return reading->is_fetching &&
           (reading->placement != road->placement || now_ns >= reading->placed_until_ns);
}

/* Return the next of the loose readings, from `reading` on, whose node must be looked up; NULL if there is
 * none. Only loose ones are such, after `kb_fetch_look_at_places`. */
static inline kb_reading *kb_fetch_unplaced(const kb_fetch_road *road, kb_reading *reading, int64_t now_ns) {
    while (reading && !kb_fetch_is_unplaced(road, reading, now_ns))
        reading = reading->loose_next;
    return reading;
}

static inline void kb_fetch_clear_candidates(kb_fetch_node *node) {
    node->candidate_first = node->candidate_last = NULL;
    node->candidate_count = 0;
    node->is_unordered = node->lacks_topic_ids = false;
}

static inline void kb_fetch_add_candidate(kb_fetch_node *node, kb_reading *reading) {
    reading->candidate_next = NULL;
    if (node->candidate_last) {
        node->candidate_last->candidate_next = reading;
        node->is_unordered |= reading->turn < node->candidate_last->turn;
    } else {
        node->candidate_first = reading;
    }
    node->candidate_last = reading;
    node->candidate_count++;
    node->lacks_topic_ids |= !kb_fetch_has_id(reading->topic_id);
}

/* Merge two lists of candidates, each in order. */
static inline kb_reading *kb_fetch_merge(kb_reading *one, kb_reading *other) {
    kb_reading *merged = NULL, **end = &merged;
    while (one && other) {
        kb_reading **first = one->turn < other->turn ? &one : &other;
        *end = *first;
        end = &(*first)->candidate_next;
        *first = *end;
    }
    *end = one ? one : other;
    return merged;
}

/* Put the candidates of a node in the order of their turns. */
static inline void kb_fetch_order_candidates(kb_fetch_node *node) {
    kb_reading *runs[64] = {NULL}, *reading = node->candidate_first; /* of 1, 2, 4 ... readings */
    if (!node->is_unordered)
        return;
    while (reading) {
        kb_reading *following = reading->candidate_next;
        int i = 0;
        for (reading->candidate_next = NULL; runs[i]; runs[i++] = NULL)
            reading = kb_fetch_merge(runs[i], reading);
        runs[i] = reading;
        reading = following;
    }
    for (int i = 0; i < 64; i++)
        reading = kb_fetch_merge(runs[i], reading);
    node->candidate_first = reading;
    while (reading->candidate_next)
        reading = reading->candidate_next;
    node->candidate_last = reading;
    node->is_unordered = false;
}

/* Return how many readings the next request of a node, which has none in flight, asks for. */
static inline int64_t kb_fetch_wanted_count(const kb_fetch_node *node) {
    return node->candidate_count + node->asked_count;
}

/* True if the id of any topic that this request asks for is unknown. */
static inline bool kb_fetch_lacks_topic_ids(const kb_fetch_node *node) {
    return node->lacks_topic_ids || node->asked_without_id;
}

/* Find the nodes that have readings. */
static inline void kb_fetch_find_nodes(kb_fetch_road *road) {
    kb_fetch_node **end = &road->found_first;
    road->found_count = 0;
    for (kb_fetch_node *node = road->node_first; node; node = node->next) {
        kb_fetch_clear_candidates(node);
        *end = node;
        end = &node->found_next;
        road->found_count++;
    }
    *end = NULL;
}

/* Look at a loose reading: is it a candidate for the next request of its node? */
static inline void kb_fetch_look_at_loose(kb_fetch_road *road, kb_reading *reading, int64_t backlog_bytes,
                                          int64_t now_ns) {
    kb_fetch_node *asked = reading->in_flight;
    if (asked && (!reading->is_fetching || !asked->is_in_flight))
        kb_reading_withdraw(reading); /* the next request does not ask for it, or asks anew */
    if (!reading->is_fetching)
        kb_reading_fasten(reading);
    if (!reading->is_fetching || !reading->node)
        return;
    if (kb_fetch_is_unplaced(road, reading, now_ns)) {
        road->is_unplaced = true;
        return;
    }
    if (reading->in_flight && reading->in_flight != reading->node)
        kb_reading_withdraw(reading); /* what another node still answers does not count any more */
    if (now_ns < reading->not_before_ns) {
        if (reading->not_before_ns < road->look_again_ns)
            road->look_again_ns = reading->not_before_ns;
    } else if (!reading->in_flight && reading->is_paused) {
        kb_reading_fasten(reading);
    } else if (!reading->in_flight) {
        if (kb_count_load(&reading->backlog_bytes) <= backlog_bytes)
            kb_fetch_add_candidate(reading->node, reading);
        else
            road->is_short = true;
    }
}

/* Find the nodes that have readings, and the candidates of each: what is neither in flight, paused, backed
 * off, nor has more than `backlog_bytes` that the program did not read. What stays asked was judged by that
 * when it was asked for. */
static inline void kb_fetch_scan(kb_fetch_road *road, int64_t backlog_bytes, int64_t now_ns) {
    kb_reading *following;
    road->is_short = road->is_unplaced = false;
    kb_fetch_look_at_places(road, now_ns);
    road->look_again_ns = road->look_places_ns;
    kb_fetch_find_nodes(road);
    for (kb_reading *reading = road->loose_first; reading; reading = following) {
        following = reading->loose_next;
        kb_fetch_look_at_loose(road, reading, backlog_bytes, now_ns);
    }
}

/* Sessions */

static inline kb_fetch_known *kb_fetch_add_known(kb_fetch_node *node, kb_fetch_slot *slot) {
    kb_fetch_known *known = calloc(1, sizeof(kb_fetch_known));
    if (!known)
        return NULL;
    known->slot = slot;
    known->node = node;
    known->of_slot = slot->known;
    slot->known = known;
    kb_fetch_link_known(known, &node->asked_known);
    return known;
}

static inline void kb_fetch_drop_known(kb_fetch_road *road, kb_fetch_known *known) {
    kb_fetch_slot *slot = known->slot;
    kb_fetch_known **at = &slot->known;
    while (*at != known)
        at = &(*at)->of_slot;
    *at = known->of_slot;
    kb_fetch_unlink_known(known);
    free(known);
    kb_fetch_drop_slot(road, slot);
}

/* Forget all that a node's session knows. */
static inline void kb_fetch_forget_session(kb_fetch_road *road, kb_fetch_node *node) {
    while (node->asked_known.first)
        kb_fetch_drop_known(road, node->asked_known.first);
    while (node->other_known.first)
        kb_fetch_drop_known(road, node->other_known.first);
}

/* Record an answer without an error. */
static inline void kb_fetch_session_answered(kb_fetch_node *node, int32_t session_id) {
    node->session_id = session_id;
    if (session_id == KB_NO_SESSION)
        node->session_epoch = KB_SESSION_INITIAL_EPOCH;
    else
        node->session_epoch = node->session_epoch == INT32_MAX ? 1 : node->session_epoch + 1;
}

/* The next request */

enum { KB_NAMED,
       KB_FORGOTTEN };

/* Add a partition of a topic with this id to what a request names, or what its session is to forget. */
static inline bool kb_fetch_list_slot(kb_fetch_road *road, kb_fetch_node *node, int which,
                                      const kb_fetch_slot *slot, const kb_fetch_ask *ask) {
    kb_fetch_list *list = which == KB_NAMED ? &node->named : &node->forgotten;
    kb_fetch_topic *topic = slot->topic;
    int32_t group = topic->mark[which] == road->mark ? topic->group[which] : -1;
    /* a topic that was created again has two ids for a while */
    if (group >= 0 && memcmp(list->groups[group].id, ask->topic_id, KB_WIRE_UUID_BYTES) != 0)
        for (group = list->group_count - 1; group >= 0; group--)
            if (list->groups[group].name.data == topic->name.data &&
                memcmp(list->groups[group].id, ask->topic_id, KB_WIRE_UUID_BYTES) == 0)
                break;
    if (group < 0)
        group = kb_fetch_list_add_topic(list, topic->name, ask->topic_id);
    if (group < 0)
        return false;
    topic->mark[which] = road->mark;
    topic->group[which] = group;
    return kb_fetch_list_add(list, group, slot->partition, ask);
}

/* Note in an open session what is asked of a partition, and name it if that differs. */
static inline bool kb_fetch_ask_in_session(kb_fetch_road *road, kb_fetch_node *node,
                                           const kb_reading *reading) {
    kb_fetch_known *known = kb_fetch_find_known(node, reading->slot);
    bool is_new = !known;
    if (is_new)
        known = kb_fetch_add_known(node, reading->slot);
    if (!known)
        return false;
    if (!is_new) {
        kb_fetch_move_known(known, &node->asked_known);
        if (kb_fetch_ask_equals(&known->ask, &reading->asked))
            return true;
        /* a partition of a topic that was created again is another one */
        if (memcmp(known->ask.topic_id, reading->asked.topic_id, KB_WIRE_UUID_BYTES) != 0 &&
            !kb_fetch_list_slot(road, node, KB_FORGOTTEN, known->slot, &known->ask))
            return false;
    }
    known->ask = reading->asked;
    return kb_fetch_list_slot(road, node, KB_NAMED, known->slot, &known->ask);
}

/* Let the session forget what this request does not want. */
static inline bool kb_fetch_forget_unwanted(kb_fetch_road *road, kb_fetch_node *node) {
    kb_fetch_known *known;
    while ((known = node->other_known.first)) {
        if (!kb_fetch_list_slot(road, node, KB_FORGOTTEN, known->slot, &known->ask))
            return false;
        kb_fetch_drop_known(road, known);
    }
    return true;
}

/* Note the id by which a topic is named from now on. What is asked by another id is asked anew, so that only
 * requests in flight name it by that. */
static inline void kb_fetch_name_topic(kb_fetch_road *road, kb_fetch_topic *topic, const uint8_t *id) {
    if (memcmp(topic->id, id, KB_WIRE_UUID_BYTES) == 0)
        return;
    if (kb_fetch_has_id(topic->id))
        kb_fetch_unlink_topic(road, topic, KB_BY_ID);
    memcpy(topic->id, id, KB_WIRE_UUID_BYTES);
    topic->hash[KB_BY_ID] = kb_murmur2(id, KB_WIRE_UUID_BYTES);
    if (kb_fetch_has_id(topic->id))
        kb_fetch_link_topic(road, topic, KB_BY_ID);
    road->id_change = road->mark;
    for (int32_t i = 0; i < topic->slot_count; i++)
        if (topic->slots[i]->reading)
            kb_reading_loosen(topic->slots[i]->reading);
}

static inline void kb_fetch_set_ask(kb_fetch_road *road, kb_reading *reading, int version) {
    kb_fetch_ask *ask = &reading->asked;
    memset(ask, 0, sizeof(*ask));
    memcpy(ask->topic_id, reading->topic_id, KB_WIRE_UUID_BYTES);
    kb_fetch_name_topic(road, reading->slot->topic, ask->topic_id);
    ask->leader_epoch = reading->leader_epoch;
    ask->last_epoch = version >= KB_FETCH_FLEXIBLE ? reading->last_epoch : -1;
    ask->offset = reading->fetch_offset;
    ask->max_bytes = road->partition_bytes;
    if (reading->needed_bytes > ask->max_bytes) /* a batch did not fit */
        ask->max_bytes = (int32_t)reading->needed_bytes;
}

/* Let a request ask anew for what stays asked. */
static inline void kb_fetch_ask_anew(kb_fetch_node *node) {
    while (node->asked_first) {
        kb_fetch_add_candidate(node, node->asked_first);
        kb_reading_withdraw(node->asked_first);
    }
}

/* Make a request for what is asked already and for the candidates of a node: `named` and `forgotten`. Return
 * the size of the largest batch that did not fit in an answer before; -1 without memory. */
static inline int64_t kb_fetch_ask_all(kb_fetch_road *road, kb_fetch_node *node, int version) {
    bool has_session = version >= KB_FETCH_SESSION;
    int64_t needed_bytes = 0;
    node->is_full = !has_session || node->session_epoch == KB_SESSION_INITIAL_EPOCH;
    if (node->is_full || version != node->version)
        kb_fetch_ask_anew(node);
    kb_fetch_order_candidates(node);
    node->mark = ++road->mark;
    node->version = version;
    kb_flag_store(&node->is_in_flight, true);
    kb_fetch_list_clear(&node->named);
    kb_fetch_list_clear(&node->forgotten);
    if (has_session && node->is_full)
        kb_fetch_forget_session(road, node);
    for (kb_reading *reading = node->candidate_first; reading; reading = reading->candidate_next) {
        kb_fetch_set_ask(road, reading, version);
        if (reading->needed_bytes > needed_bytes)
            needed_bytes = reading->needed_bytes;
        kb_fetch_note_asked(node, reading);
        if (has_session ? !kb_fetch_ask_in_session(road, node, reading)
                        : !kb_fetch_list_slot(road, node, KB_NAMED, reading->slot, &reading->asked))
            return -1;
    }
    if (has_session && !kb_fetch_forget_unwanted(road, node))
        return -1;
    kb_fetch_clear_candidates(node);
    if (node->reading_count) { /* it is the others' turn */
        kb_fetch_unlink_node(road, node);
        kb_fetch_link_node(road, node);
    }
    return needed_bytes;
}

/* Answers */

static inline bool kb_fetch_has_asked(const kb_fetch_node *node, const kb_reading *reading,
                                      const kb_fetch_part *part) {
    return reading && reading->in_flight == node && reading->slot->partition == part->partition &&
           (node->version < KB_FETCH_TOPIC_ID ||
            memcmp(reading->asked.topic_id, part->topic.data, KB_WIRE_UUID_BYTES) == 0);
}

/* Return the reading that a part of an answer is for; NULL if this request's answer for it does not count
 * any more, or the request did not ask for it. */
static inline kb_reading *kb_fetch_reading_of(kb_fetch_road *road, const kb_fetch_node *node,
                                              const kb_fetch_part *part) {
    int way = node->version >= KB_FETCH_TOPIC_ID ? KB_BY_ID : KB_BY_NAME;
    kb_fetch_topic *topic = kb_fetch_find_topic(road, &part->topic, way);
    kb_fetch_slot *slot = topic ? kb_fetch_find_slot(topic, part->partition) : NULL;
    if (slot && kb_fetch_has_asked(node, slot->reading, part))
        return slot->reading;
    if (node->version < KB_FETCH_TOPIC_ID || road->id_change < node->mark)
        return NULL;
    /* the topic may have got another id since it was named by this one */
    for (kb_reading *reading = node->asked_first; reading; reading = reading->asked_next)
        if (kb_fetch_has_asked(node, reading, part))
            return reading;
    return NULL;
}

/* True if a part has neither an error nor anything else that the engine must judge. */
static inline bool kb_fetch_is_plain(const kb_reading *reading, const kb_fetch_part *part) {
    return part->error_code == 0 && part->diverging_epoch == -1 && part->diverging_end_offset == -1 &&
           part->preferred_read_replica < 0 && !reading->is_failing;
}

/* Record what a part without an error says of the log. The position is of the topic, and of its leader's
 * epoch, that were asked for. */
static inline void kb_fetch_note_log(kb_reading *reading, const kb_fetch_part *part) {
    reading->is_topic_sure = true;
    reading->checked_epoch = reading->asked.leader_epoch;
    kb_count_store(&reading->high_watermark, part->high_watermark);
    kb_count_store(&reading->last_stable_offset, part->last_stable_offset);
    kb_count_store(&reading->log_start_offset, part->log_start_offset);
}

/* Forget a request that was not made: the next one is complete, since what the session knows was not said. */
static inline void kb_fetch_give_up_request(kb_fetch_road *road, kb_fetch_node *node) {
    kb_flag_store(&node->is_in_flight, false);
    node->session_epoch = KB_SESSION_INITIAL_EPOCH;
    kb_fetch_withdraw_all(node);
    kb_fetch_forget_session(road, node);
}

/* Return the bytes that a request for a number of partitions, to one of `node_count` nodes, reserves. */
static inline int64_t kb_fetch_request_bytes(const kb_fetch_road *road, int64_t count, int64_t node_count) {
    int64_t bytes = count * road->partition_bytes;
    int64_t most = kb_budget_request_bytes(road->budget, node_count);
    if (most > road->fetch_bytes)
        most = road->fetch_bytes;
    if (bytes > most)
        bytes = most;
    return bytes > 1 ? bytes : 1;
}

/* Make a request for the candidates of a node, with this memory reserved for its answer. False without memory
 * for it. */
static inline bool kb_fetch_ask_node(kb_fetch_road *road, kb_fetch_node *node, int version,
                                     int64_t reserved_bytes) {
    int64_t needed_bytes = kb_fetch_ask_all(road, node, version);
    node->reserved_bytes = reserved_bytes;
    /* a batch that did not fit is asked for in full, although it is not reserved */
    node->most_bytes = needed_bytes > reserved_bytes ? needed_bytes : reserved_bytes;
    return needed_bytes >= 0;
}

/* Return what a request of a node says besides its partitions. */
static inline kb_fetch_head kb_fetch_head_of(const kb_fetch_road *road, const kb_fetch_node *node,
                                             int32_t correlation_id) {
    kb_fetch_head head = road->head;
    head.version = node->version;
    head.correlation_id = correlation_id;
    head.max_bytes = (int32_t)node->most_bytes;
    head.session_id = node->session_id;
    head.session_epoch = node->session_epoch;
    return head;
}

/* Walk the headers of a part's batches. False if there is no whole one, or any that cannot be: the engine
 * explains that. Batches without visible rows are checked here: if all are such, they will not be decoded. */
static inline bool kb_fetch_walk(const kb_fetch_road *road, const kb_reading *reading,
                                 const kb_fetch_part *part, kb_fetch_walked *walked) {
    kb_fetched walk = {0};
    kb_fetched_batch batch;
    kb_fetched_scan scan;
    bool is_limited = road->reads_committed && part->last_stable_offset >= 0;
    walked->visible_end = is_limited ? part->last_stable_offset : INT64_MAX;
    walk.data = part->records.data;
    walk.size = (size_t)part->records.size;
    walk.from_offset = walk.next_offset = reading->fetch_offset;
    walk.end_offset = reading->end_offset < walked->visible_end ? reading->end_offset : walked->visible_end;
    walk.last_epoch = -1;
    scan = kb_fetched_scan_all(&walk, &batch, road->checksum);
    walked->row_bound = scan.row_bound;
    walked->records = part->records;
    walked->from_offset = reading->fetch_offset;
    walked->next_offset = walk.next_offset;
    walked->last_epoch = walk.last_epoch;
    walked->byte_count = (int64_t)walk.at;
    return scan.status != KB_FETCHED_CORRUPT && walk.next_offset > walk.from_offset;
}

/* Look at the parts of an answer. False if any needs a judge, or a partition is left out that a full answer
 * has: nothing is changed then. */
static inline bool kb_fetch_look_at(kb_fetch_road *road, const kb_fetch_node *node,
                                    const kb_fetch_answer *answer, kb_fetch_arrival *arrival) {
    int64_t found_count = 0;
    bool has_records = false;
    road->answer_count++;
    for (int32_t i = 0; i < answer->part_count; i++) {
        const kb_fetch_part *part = &answer->parts[i];
        kb_fetch_walked *walked = &arrival->walked[i];
        kb_reading *reading = kb_fetch_reading_of(road, node, part);
        if (!reading)
            continue;
        if (reading->answered == road->answer_count || !kb_fetch_is_plain(reading, part) ||
            (road->reads_committed && part->aborted_count > 0))
            return false;
        if (part->records.size > 0 && !kb_fetch_walk(road, reading, part, walked))
            return false;
        if (part->records.size > 0 && walked->next_offset >= reading->end_offset)
            return false; /* the end of a range */
        has_records |= part->records.size > 0;
        reading->answered = road->answer_count;
        walked->reading = reading;
        arrival->with_rows += walked->row_bound > 0;
        found_count++;
    }
    if (!has_records && node->asked_bounded)
        return false; /* an answer without any records may say that a range ends in a gap */
    return !node->is_full || node->asked_count <= found_count;
}

/* Move the position of a reading after its part of an answer, and charge what the program is to read. */
static inline void kb_fetch_move(kb_fetch_road *road, const kb_fetch_part *part, kb_fetch_walked *walked,
                                 int64_t share_bytes) {
    kb_reading *reading = walked->reading;
    kb_fetch_note_log(reading, part);
    walked->results = &reading->results;
    memcpy(walked->topic_id, reading->topic_id, sizeof(walked->topic_id));
    if (part->records.size > 0) {
        kb_count_store(&reading->fetch_offset, walked->next_offset);
        reading->needed_bytes = 0;
        if (walked->last_epoch != -1)
            reading->last_epoch = walked->last_epoch;
        kb_fetch_move_to_end(road, reading);
    } else {
        walked->reading = NULL;
    }
    if (walked->row_bound > 0) {
        walked->charged_bytes = part->records.size > share_bytes ? part->records.size : share_bytes;
        kb_count_add(&reading->backlog_bytes, walked->charged_bytes);
    }
    kb_reading_withdraw(reading);
}

/* Take an answer without its size, if all of it is usual. NULL, without any change, if it is not. The frame
 * is not the arrival's yet. */
static inline kb_fetch_arrival *kb_fetch_take_answer(kb_fetch_road *road, kb_fetch_node *node,
                                                     const uint8_t *frame, int64_t size) {
    kb_fetch_answer answer = {0};
    kb_fetch_arrival *arrival = NULL;
    bool is_usual = kb_fetch_read(&answer, node->version, frame, size) && !answer.error_code &&
                    !answer.throttle_time_ms && !answer.endpoint_count &&
                    answer.correlation_id == node->link.sent.correlation_id &&
                    answer.part_count <= road->reading_count;
    if (is_usual)
        arrival = kb_arrival_new(answer.part_count);
    if (arrival && !kb_fetch_look_at(road, node, &answer, arrival)) {
        free(arrival);
        arrival = NULL;
    }
    if (arrival) {
        int64_t share_bytes = arrival->with_rows ? size / arrival->with_rows : 0;
        for (int32_t i = 0; i < answer.part_count; i++)
            if (arrival->walked[i].reading)
                kb_fetch_move(road, &answer.parts[i], &arrival->walked[i], share_bytes);
        arrival->part_count = answer.part_count;
        kb_count_add(&road->budget->reserved, -node->reserved_bytes);
        if (arrival->with_rows)
            kb_count_add(&road->budget->unread, size);
        kb_fetch_session_answered(node, answer.session_id);
        kb_flag_store(&node->is_in_flight, false);
    }
    kb_fetch_answer_free(&answer);
    return arrival;
}

#endif
