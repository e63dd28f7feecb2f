/* Fetch requests and their answers, without Python.
 *
 * A request is written into memory of the caller (`kb_fetch_room`). An answer is read in one walk, into rows
 * that point into its frame. One that is broken, or has what usual ones do not have, is left to the generic
 * codec, which explains every fault.
 *
 * After org.apache.kafka.common.requests.FetchRequest and FetchResponse; the fields stand in
 * kbatch/protocol/tables/fetch.py. */
#ifndef KBATCH_FETCH_WIRE_H
#define KBATCH_FETCH_WIRE_H

#include <stdlib.h>

#include "wire.h"

enum {
    KB_FETCH_API_KEY = 1,
    KB_FETCH_FIRST_VERSION = 4,
    KB_FETCH_LAST_VERSION = 18
};

/* The first versions with a field or a form. */
enum {
    KB_FETCH_START_OFFSET = 5,
    KB_FETCH_SESSION = 7,
    KB_FETCH_LEADER_EPOCH = 9,
    KB_FETCH_RACK = 11,     /* and preferred replicas */
    KB_FETCH_FLEXIBLE = 12, /* and the epoch of the batch before the position */
    KB_FETCH_TOPIC_ID = 13,
    KB_FETCH_REPLICA_STATE = 15, /* a tagged field of followers; before, an id that is -1 for consumers */
    KB_FETCH_ENDPOINTS = 16
};

/* Tagged fields of a partition's part, and of the answer. */
enum {
    KB_FETCH_DIVERGING_EPOCH = 0,
    KB_FETCH_CURRENT_LEADER = 1,
    KB_FETCH_SNAPSHOT_ID = 2,
    KB_FETCH_NODE_ENDPOINTS = 0
};

static inline bool kb_fetch_is_flexible(int version) {
    return version >= KB_FETCH_FLEXIBLE;
}

/* Requests */

/* What is asked of a partition, as far as it differs from request to request. */
typedef struct {
    uint8_t topic_id[KB_WIRE_UUID_BYTES];
    int32_t leader_epoch, last_epoch; /* the current leader's; of the batch before the offset; -1: unknown */
    int64_t offset;
    int32_t max_bytes;
} kb_fetch_ask;

/* A topic, by name and by id. */
typedef struct {
    kb_span name;
    uint8_t id[KB_WIRE_UUID_BYTES];
    int32_t first, last, count; /* its partitions: indexes of `kb_fetch_item`, linked in order */
} kb_fetch_group;

typedef struct {
    int32_t partition, next; /* -1: the last of its topic */
    kb_fetch_ask ask;
} kb_fetch_item;

/* Partitions by topic: topics, and in each its partitions, are in the order in which they were added. Memory
 * is kept from request to request. */
typedef struct {
    kb_fetch_group *groups;
    kb_fetch_item *items;
    int32_t group_count, group_room, count, room;
} kb_fetch_list;

/* What a request says besides its partitions. */
typedef struct {
    int version;
    int32_t correlation_id;
    kb_span client_id; /* size -1: null */
    int32_t max_wait_ms, min_bytes, max_bytes;
    int8_t isolation_level;
    int32_t session_id, session_epoch;
    kb_span rack_id;
} kb_fetch_head;

static inline bool kb_fetch_ask_equals(const kb_fetch_ask *one, const kb_fetch_ask *other) {
    return one->offset == other->offset && one->leader_epoch == other->leader_epoch &&
           one->last_epoch == other->last_epoch && one->max_bytes == other->max_bytes &&
           memcmp(one->topic_id, other->topic_id, KB_WIRE_UUID_BYTES) == 0;
}

static inline void kb_fetch_list_free(kb_fetch_list *list) {
    free(list->groups);
    free(list->items);
}

static inline void kb_fetch_list_clear(kb_fetch_list *list) {
    list->group_count = list->count = 0;
}

/* Return memory for one more element of an array, which may move; NULL without memory. */
static inline void *kb_fetch_grow(void *array, size_t element_size, int32_t count, int32_t *room) {
    int32_t wanted = *room ? 2 * *room : 8;
    if (count < *room)
        return array;
    if (wanted < 0 || (array = realloc(array, (size_t)wanted * element_size)) == NULL)
        return NULL;
    *room = wanted;
    return array;
}

/* Add a topic. Return its index; -1 without memory. */
static inline int32_t kb_fetch_list_add_topic(kb_fetch_list *list, kb_span name, const uint8_t *id) {
    kb_fetch_group *groups =
        kb_fetch_grow(list->groups, sizeof(kb_fetch_group), list->group_count, &list->group_room);
    kb_fetch_group *group;
    if (!groups)
        return -1;
    list->groups = groups;
    group = &groups[list->group_count];
    group->name = name;
    memcpy(group->id, id, KB_WIRE_UUID_BYTES);
    group->first = group->last = -1;
    group->count = 0;
    return list->group_count++;
}

/* Add a partition to a topic of the list. False without memory. */
static inline bool kb_fetch_list_add(kb_fetch_list *list, int32_t topic, int32_t partition,
                                     const kb_fetch_ask *ask) {
    kb_fetch_group *group = &list->groups[topic];
    kb_fetch_item *items = kb_fetch_grow(list->items, sizeof(kb_fetch_item), list->count, &list->room);
    if (!items)
        return false;
    list->items = items;
    items[list->count] = (kb_fetch_item){partition, -1, *ask};
    if (group->count++)
        items[group->last].next = list->count;
    else
        group->first = list->count;
    group->last = list->count++;
    return true;
}

/* Return an upper limit of the bytes of a request. */
static inline int64_t kb_fetch_room(const kb_fetch_head *head, const kb_fetch_list *named,
                                    const kb_fetch_list *forgotten) {
    int64_t room = 96 + head->client_id.size + head->rack_id.size;
    room += 48 * (int64_t)named->count + 4 * (int64_t)forgotten->count;
    for (int32_t i = 0; i < named->group_count; i++)
        room += 32 + named->groups[i].name.size;
    for (int32_t i = 0; i < forgotten->group_count; i++)
        room += 32 + forgotten->groups[i].name.size;
    return room;
}

static inline uint8_t *kb_fetch_put_ask(uint8_t *to, int version, const kb_fetch_item *item) {
    to = kb_wire_put32(to, item->partition);
    if (version >= KB_FETCH_LEADER_EPOCH)
        to = kb_wire_put32(to, item->ask.leader_epoch);
    to = kb_wire_put64(to, item->ask.offset);
    if (version >= KB_FETCH_FLEXIBLE)
        to = kb_wire_put32(to, item->ask.last_epoch);
    if (version >= KB_FETCH_START_OFFSET)
        to = kb_wire_put64(to, -1); /* of a follower's log */
    to = kb_wire_put32(to, item->ask.max_bytes);
    return kb_wire_put_tags(to, kb_fetch_is_flexible(version));
}

/* Write partitions by topic, with what is asked of them, or just their numbers. */
static inline uint8_t *kb_fetch_put_list(uint8_t *to, int version, const kb_fetch_list *list, bool has_asks) {
    bool is_flexible = kb_fetch_is_flexible(version);
    to = kb_wire_put_count(to, list->group_count, is_flexible);
    for (int32_t i = 0; i < list->group_count; i++) {
        const kb_fetch_group *group = &list->groups[i];
        if (version >= KB_FETCH_TOPIC_ID)
            to = kb_wire_put_uuid(to, group->id);
        else
            to = kb_wire_put_string(to, &group->name, is_flexible);
        to = kb_wire_put_count(to, group->count, is_flexible);
        for (int32_t j = group->first; j >= 0; j = list->items[j].next)
            to = has_asks ? kb_fetch_put_ask(to, version, &list->items[j])
                          : kb_wire_put32(to, list->items[j].partition);
        to = kb_wire_put_tags(to, is_flexible);
    }
    return to;
}

/* Write a request of a consumer, its size first. Return its end. */
static inline uint8_t *kb_fetch_write(uint8_t *frame, const kb_fetch_head *head, const kb_fetch_list *named,
                                      const kb_fetch_list *forgotten) {
    int version = head->version;
    bool is_flexible = kb_fetch_is_flexible(version);
    uint8_t *to = kb_wire_begin(frame, KB_FETCH_API_KEY, version, head->correlation_id, &head->client_id,
                                is_flexible);
    if (version < KB_FETCH_REPLICA_STATE)
        to = kb_wire_put32(to, -1);
    to = kb_wire_put32(to, head->max_wait_ms);
    to = kb_wire_put32(to, head->min_bytes);
    to = kb_wire_put32(to, head->max_bytes);
    *to++ = (uint8_t)head->isolation_level;
    if (version >= KB_FETCH_SESSION) {
        to = kb_wire_put32(to, head->session_id);
        to = kb_wire_put32(to, head->session_epoch);
    }
    to = kb_fetch_put_list(to, version, named, true);
    if (version >= KB_FETCH_SESSION)
        to = kb_fetch_put_list(to, version, forgotten, false);
    if (version >= KB_FETCH_RACK)
        to = kb_wire_put_string(to, &head->rack_id, is_flexible);
    to = kb_wire_put_tags(to, is_flexible);
    kb_wire_end(frame, (int32_t)(to - frame - 4));
    return to;
}

/* Answers */

/* A partition's part of an answer; the spans are in the frame. */
typedef struct {
    kb_span topic; /* its name, from version 13 on its id */
    int32_t partition;
    int16_t error_code;
    int64_t high_watermark, last_stable_offset, log_start_offset; /* -1: unknown */
    int64_t diverging_end_offset; /* -1: it does not diverge; KIP-595 */
    int32_t diverging_epoch;
    int32_t leader_id, leader_epoch; /* -1: not said; KIP-951 */
    int32_t preferred_read_replica;  /* -1: none; KIP-392 */
    int64_t aborted_count;           /* -1: null */
    kb_wire_source aborted;          /* for `kb_fetch_get_aborted` */
    kb_span records;                 /* size -1: null */
} kb_fetch_part;

typedef struct {
    int32_t correlation_id, throttle_time_ms, session_id;
    int16_t error_code;
    kb_fetch_part *parts; /* kept from answer to answer */
    int32_t part_count, part_room;
    kb_wire_source endpoints; /* for `kb_fetch_get_endpoint` */
    int64_t endpoint_count;
} kb_fetch_answer;

/* The address of a new leader; KIP-951. */
typedef struct {
    int32_t node_id, port;
    kb_span host, rack; /* size -1: null */
} kb_fetch_endpoint;

static inline void kb_fetch_answer_free(kb_fetch_answer *answer) {
    free(answer->parts);
}

/* Return memory for one more part; NULL, after a failure, if there is none. */
static inline kb_fetch_part *kb_fetch_add_part(kb_fetch_answer *answer, kb_wire_source *from) {
    if (answer->part_count == answer->part_room) {
        int32_t room = answer->part_room ? 2 * answer->part_room : 4;
        kb_fetch_part *grown = room > 0 ? realloc(answer->parts, (size_t)room * sizeof(kb_fetch_part)) : NULL;
        if (!grown) {
            from->has_failed = true;
            return NULL;
        }
        answer->parts = grown;
        answer->part_room = room;
    }
    return &answer->parts[answer->part_count++];
}

/* Read an aborted transaction. After `kb_fetch_read` it cannot fail. */
static inline void kb_fetch_get_aborted(kb_wire_source *from, int64_t *producer_id, int64_t *first_offset) {
    *producer_id = kb_wire_get64(from);
    *first_offset = kb_wire_get64(from);
    kb_wire_skip_tags(from);
}

static inline void kb_fetch_read_aborted(kb_wire_source *from, kb_fetch_part *part) {
    int64_t producer_id, first_offset;
    part->aborted_count = kb_wire_get_size(from);
    part->aborted = *from;
    for (int64_t left = part->aborted_count; left > 0 && !from->has_failed; left--)
        kb_fetch_get_aborted(from, &producer_id, &first_offset);
}

static inline void kb_fetch_read_part_tags(kb_wire_source *from, kb_fetch_part *part) {
    int64_t tag = -1;
    for (int64_t left = kb_wire_get_varint(from); left > 0 && !from->has_failed; left--) {
        const uint8_t *end = kb_wire_get_tag(from, &tag);
        if (tag == KB_FETCH_DIVERGING_EPOCH) {
            part->diverging_epoch = kb_wire_get32(from);
            part->diverging_end_offset = kb_wire_get64(from);
            kb_wire_skip_tags(from);
        } else if (tag == KB_FETCH_CURRENT_LEADER) {
            part->leader_id = kb_wire_get32(from);
            part->leader_epoch = kb_wire_get32(from);
            kb_wire_skip_tags(from);
        } else if (tag == KB_FETCH_SNAPSHOT_ID) { /* for replicas of a KRaft quorum */
            kb_wire_take(from, 12);
            kb_wire_skip_tags(from);
        } else {
            kb_wire_take(from, end - from->at);
        }
        from->has_failed |= from->at != end;
    }
}

static inline void kb_fetch_read_part(kb_wire_source *from, int version, kb_fetch_part *part) {
    part->diverging_epoch = part->leader_id = part->leader_epoch = part->preferred_read_replica = -1;
    part->diverging_end_offset = part->log_start_offset = -1;
    part->partition = kb_wire_get32(from);
    part->error_code = kb_wire_get16(from);
    part->high_watermark = kb_wire_get64(from);
    part->last_stable_offset = kb_wire_get64(from);
    if (version >= KB_FETCH_START_OFFSET)
        part->log_start_offset = kb_wire_get64(from);
    kb_fetch_read_aborted(from, part);
    if (version >= KB_FETCH_RACK)
        part->preferred_read_replica = kb_wire_get32(from);
    part->records.size = kb_wire_get_size(from);
    part->records.data = part->records.size < 0 ? NULL : kb_wire_take(from, part->records.size);
    if (from->is_flexible)
        kb_fetch_read_part_tags(from, part);
}

static inline void kb_fetch_read_topic(kb_wire_source *from, int version, kb_fetch_answer *answer) {
    kb_span topic = version >= KB_FETCH_TOPIC_ID ? kb_wire_get_uuid(from) : kb_wire_get_string(from);
    for (int64_t left = kb_wire_get_count(from); left > 0 && !from->has_failed; left--) {
        kb_fetch_part *part = kb_fetch_add_part(answer, from);
        if (part) {
            part->topic = topic;
            kb_fetch_read_part(from, version, part);
        }
    }
    kb_wire_skip_tags(from);
}

/* Read an endpoint. After `kb_fetch_read` it cannot fail. */
static inline kb_fetch_endpoint kb_fetch_get_endpoint(kb_wire_source *from) {
    kb_fetch_endpoint endpoint;
    int64_t rack_size;
    endpoint.node_id = kb_wire_get32(from);
    endpoint.host = kb_wire_get_string(from);
    endpoint.port = kb_wire_get32(from);
    rack_size = kb_wire_get_size(from);
    endpoint.rack.data = NULL;
    endpoint.rack.size = -1;
    if (rack_size >= 0)
        endpoint.rack = kb_wire_get_text(from, rack_size);
    kb_wire_skip_tags(from);
    return endpoint;
}

static inline void kb_fetch_read_tags(kb_wire_source *from, int version, kb_fetch_answer *answer) {
    int64_t tag = -1;
    for (int64_t left = kb_wire_get_varint(from); left > 0 && !from->has_failed; left--) {
        const uint8_t *end = kb_wire_get_tag(from, &tag);
        if (tag == KB_FETCH_NODE_ENDPOINTS && version >= KB_FETCH_ENDPOINTS) {
            answer->endpoint_count = kb_wire_get_count(from);
            answer->endpoints = *from;
            for (int64_t i = 0; i < answer->endpoint_count && !from->has_failed; i++)
                kb_fetch_get_endpoint(from);
        } else {
            kb_wire_take(from, end - from->at);
        }
        from->has_failed |= from->at != end;
    }
}

/* Read an answer without its size. False, and `answer` means nothing, if it is unusual or broken. */
static inline bool kb_fetch_read(kb_fetch_answer *answer, int version, const uint8_t *frame, int64_t size) {
    kb_wire_source from = {frame, frame + size, kb_fetch_is_flexible(version), false};
    answer->part_count = 0;
    answer->endpoint_count = 0;
    answer->error_code = 0;
    answer->session_id = 0;
    if (version < KB_FETCH_FIRST_VERSION || version > KB_FETCH_LAST_VERSION)
        return false;
    answer->correlation_id = kb_wire_get32(&from);
    if (from.is_flexible && kb_wire_get_varint(&from)) /* tagged fields of the header: none is known */
        return false;
    answer->throttle_time_ms = kb_wire_get32(&from);
    if (version >= KB_FETCH_SESSION) {
        answer->error_code = kb_wire_get16(&from);
        answer->session_id = kb_wire_get32(&from);
    }
    for (int64_t left = kb_wire_get_count(&from); left > 0 && !from.has_failed; left--)
        kb_fetch_read_topic(&from, version, answer);
    if (from.is_flexible)
        kb_fetch_read_tags(&from, version, answer);
    return !from.has_failed && from.at == from.end;
}

#endif
