/* The connections of the reading road: requests out, answers in, while the engine lends them. The engine
 * hears of nothing that is usual. What is not, it gets as it came: the bytes of an answer that needs a judge,
 * and the connection with them. */
#ifndef KBATCH_FETCH_LINK_H
#define KBATCH_FETCH_LINK_H

#include "fetch_road.h"

enum {
    KB_FETCH_SMALLEST_FRAME = 8,
    KB_FETCH_LARGEST_FRAME = 100000000,
    KB_FETCH_SPACE_BYTES = 65536
};

/* Lend a connection of a node, with or without a request in flight. */
static inline void kb_road_lend(kb_fetch_road *road, kb_fetch_node *node) {
    kb_fetch_link *link = &node->link;
    link->is_lent = true;
    link->is_engines = link->reports_write = false;
    link->handed_bytes = link->written_bytes = link->queued_bytes;
    link->active_ns = 0;
    node->lent_next = road->lent;
    road->lent = node;
}

/* Requests */

/* Put a node's request on its connection. False without memory. */
static inline bool kb_link_send(kb_fetch_road *road, kb_fetch_node *node, int64_t now_ns) {
    kb_fetch_link *link = &node->link;
    kb_fetch_head head = kb_fetch_head_of(road, node, link->next_correlation_id);
    int64_t room = kb_fetch_room(&head, &node->named, &node->forgotten);
    if (room > link->out_room) {
        uint8_t *grown = realloc(link->out, (size_t)room);
        if (!grown)
            return false;
        link->out = grown;
        link->out_room = room;
    }
    link->sent = kb_lent_begin(&link->next_correlation_id, link->queued_bytes, now_ns);
    link->queued_bytes += kb_fetch_write(link->out, &head, &node->named, &node->forgotten) - link->out;
    link->sent.end_offset = link->queued_bytes;
    return true;
}

/* True if bytes of the request were not taken yet. */
static inline bool kb_link_has_unsent(const kb_fetch_link *link) {
    return link->handed_bytes < link->queued_bytes;
}

static inline const uint8_t *kb_link_unsent(const kb_fetch_link *link) {
    return link->out + (link->handed_bytes - link->sent.start_offset);
}

/* Note that bytes of the request were written. */
static inline void kb_link_written(kb_fetch_link *link, int64_t size, int64_t now_ns) {
    link->written_bytes += size;
    link->active_ns = now_ns;
    if (link->written_bytes == link->queued_bytes && link->sent.written_ns < 0)
        link->sent.written_ns = now_ns;
}

/* True if the road sends the next request of a node. */
static inline bool kb_link_may_send(const kb_fetch_node *node, int64_t now_ns) {
    const kb_fetch_link *link = &node->link;
    return link->is_lent && !link->is_engines && now_ns < link->usable_until_ns;
}

/* Return the version of a node's next request: ids of topics that are not known cannot be named. */
static inline int kb_link_version(const kb_fetch_node *node) {
    if (kb_fetch_lacks_topic_ids(node) && node->link.version >= KB_FETCH_TOPIC_ID)
        return KB_FETCH_TOPIC_ID - 1;
    return node->link.version;
}

/* Send what may go to nodes that have no request. True if only memory is missing for any of it. */
static inline bool kb_road_send(kb_fetch_road *road, int64_t now_ns) {
    bool is_short;
    kb_fetch_scan(road, kb_budget_backlog_bytes(road->budget, road->reading_count, true), now_ns);
    is_short = road->is_short;
    road->needs_engine |= road->is_unplaced;
    for (kb_fetch_node *node = road->found_first; node; node = node->found_next) {
        int64_t size;
        if (node->is_in_flight || !kb_fetch_wanted_count(node))
            continue;
        if (!kb_link_may_send(node, now_ns)) {
            road->needs_engine |= node->link.is_lent; /* it must log in again */
            continue;
        }
        size = kb_fetch_request_bytes(road, kb_fetch_wanted_count(node), road->found_count);
        if (!kb_budget_reserve(road->budget, size)) {
            is_short = true;
        } else if (!kb_fetch_ask_node(road, node, kb_link_version(node), size) ||
                   !kb_link_send(road, node, now_ns)) {
            kb_count_add(&road->budget->reserved, -size);
            kb_fetch_give_up_request(road, node);
            node->link.is_engines = road->needs_engine = true;
        }
    }
    return is_short;
}

/* True if any node that the road knows has a request in flight. */
static inline bool kb_road_is_asking(const kb_fetch_road *road) {
    for (const kb_fetch_node *node = road->found_first; node; node = node->found_next)
        if (node->is_in_flight)
            return true;
    return false;
}

/* Do what may be done now. Return when to look again, if nothing happens. `road->needs_engine` says that
 * there is work for the engine. */
static inline int64_t kb_road_step(kb_fetch_road *road, int64_t now_ns) {
    while (road->is_changed || now_ns >= road->look_again_ns) {
        bool was_awaiting = kb_flag_load(&road->awaits_memory);
        bool is_short = kb_road_send(road, now_ns);
        kb_flag_store(&road->awaits_memory, is_short || !kb_road_is_asking(road));
        /* what is released from here on rings, and what was released before is seen by another look */
        road->is_changed = is_short && !was_awaiting;
    }
    return road->look_again_ns;
}

/* Answers */

/* Record the time of an answer, and its throttling. */
static inline void kb_fetch_record_answer(const kb_fetch_road *road, const kb_fetch_node *node,
                                          int64_t sent_ns, int64_t throttle_ms, int64_t now_ns) {
    double latency_ms = (double)(now_ns - sent_ns) / 1e6;
    int64_t now_ms = now_ns / 1000000;
    kb_sensor_record(node->latency, latency_ms, now_ms);
    kb_sensor_record(road->latency, latency_ms, now_ms);
    kb_sensor_record(road->throttle, (double)throttle_ms, now_ms);
}

/* Keep an answer for the program, if it has anything for it, and its frame, if there are rows in it. */
static inline void kb_road_keep(kb_fetch_road *road, kb_fetch_arrival *arrival) {
    bool has_results = false;
    for (int32_t i = 0; i < arrival->part_count; i++)
        has_results |= arrival->walked[i].reading != NULL;
    if (!arrival->with_rows) {
        road->give_back(road->frames, arrival->frame, arrival->frame_room);
        arrival->frame = NULL;
    }
    if (!has_results) {
        free(arrival);
        return;
    }
    if (road->arrived_last)
        road->arrived_last->next = arrival;
    else
        road->arrived_first = arrival;
    road->arrived_last = arrival;
}

/* Take the answer that a node's connection has received. False if it is the engine's. */
static inline bool kb_link_take(kb_fetch_road *road, kb_fetch_node *node, int64_t now_ns) {
    kb_fetch_link *link = &node->link;
    kb_fetch_arrival *arrival = NULL;
    if (node->is_in_flight && link->written_bytes == link->queued_bytes)
        arrival = kb_fetch_take_answer(road, node, link->frame, link->frame_bytes);
    if (!arrival)
        return false;
    arrival->frame = link->frame;
    arrival->frame_bytes = link->frame_bytes;
    arrival->frame_room = link->frame_room;
    arrival->answered_ns = node->served_ns = now_ns;
    if (!road->late_count++)
        road->late_since_ns = now_ns;
    link->frame = NULL;
    link->filled = 0;
    if (link->sensors) {
        kb_lent_record_sent(link->sensors, &link->sent);
        kb_lent_record_answer(link->sensors, 4 + arrival->frame_bytes, now_ns);
    }
    kb_fetch_record_answer(road, node, link->sent.created_ns, 0, now_ns);
    kb_road_keep(road, arrival);
    road->is_changed = true;
    return true;
}

/* Begin an answer, whose size is there. False if it is the engine's: it cannot be one, there is no memory, or
 * it is large and its bytes come by hand. The engine's owner receives such ones in place. */
static inline bool kb_link_begin_frame(kb_fetch_road *road, kb_fetch_link *link) {
    int64_t size = (int32_t)kb_load_be32(link->head);
    if (size < KB_FETCH_SMALLEST_FRAME || size > KB_FETCH_LARGEST_FRAME)
        return false;
    if (link->descriptor < 0 && size >= KB_FETCH_SPACE_BYTES)
        return false;
    link->frame = road->take_frame(road->frames, size, &link->frame_room);
    if (!link->frame)
        return false;
    link->frame_bytes = size;
    link->filled = 0;
    return true;
}

/* Return where the next bytes of an answer belong, and how many: a large answer is received in place. NULL:
 * anywhere. */
static inline uint8_t *kb_link_space(const kb_fetch_link *link, int64_t *size) {
    *size = link->frame ? link->frame_bytes - link->filled : 0;
    return *size >= KB_FETCH_SPACE_BYTES ? link->frame + link->filled : NULL;
}

/* Keep bytes for the engine. False without memory. */
static inline bool kb_link_keep(kb_fetch_link *link, const uint8_t *data, int64_t size) {
    uint8_t *grown = realloc(link->rest, (size_t)(link->rest_bytes + size));
    if (!grown)
        return false;
    memcpy(grown + link->rest_bytes, data, (size_t)size);
    link->rest = grown;
    link->rest_bytes += size;
    return true;
}

/* Take received bytes, which may stand where `kb_link_space` has said. False without memory. */
static inline bool kb_link_received(kb_fetch_road *road, kb_fetch_node *node, const uint8_t *data,
                                    int64_t size, int64_t now_ns) {
    kb_fetch_link *link = &node->link;
    int64_t taken = 0;
    link->active_ns = now_ns;
    while (taken < size && !link->is_engines) {
        int64_t left = size - taken;
        if (!link->frame) {
            link->head[link->filled++] = data[taken++];
            link->is_engines = link->filled == 4 && !kb_link_begin_frame(road, link);
            continue;
        }
        if (left > link->frame_bytes - link->filled)
            left = link->frame_bytes - link->filled;
        if (data + taken != link->frame + link->filled)
            memcpy(link->frame + link->filled, data + taken, (size_t)left);
        link->filled += left;
        taken += left;
        if (link->filled == link->frame_bytes)
            link->is_engines = !kb_link_take(road, node, now_ns);
    }
    road->needs_engine |= link->is_engines;
    return taken == size || kb_link_keep(link, data + taken, size - taken);
}

/* Forget received bytes. */
static inline void kb_link_drop_frame(kb_fetch_road *road, kb_fetch_link *link) {
    if (link->frame)
        road->give_back(road->frames, link->frame, link->frame_room);
    free(link->rest);
    link->frame = link->rest = NULL;
    link->filled = link->rest_bytes = 0;
}

static inline kb_fetch_arrival *kb_road_take_arrivals(kb_fetch_road *road) {
    kb_fetch_arrival *arrived = road->arrived_first;
    road->arrived_first = road->arrived_last = NULL;
    return arrived;
}

#endif
