/* Many quiet partitions beside one that has records: what a request and its answer look at does not grow with
 * those that are quiet. What changes about a quiet one is seen by the next request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers.h"
#include "fetch_link.h"

enum { PARTITIONS = 1000,
       ANSWERS = 20,
       BUSY = 7,
       PAUSED = 11 };

static kb_budget budget = {64 << 20, 0, 0};
static kb_fetch_road road;
static kb_fetch_node node;
static kb_reading readings[PARTITIONS];
static kb_sensor not_recording;
static int64_t now_ns;

static void check(bool is_so, const char *what) {
    if (!is_so) {
        fprintf(stderr, "%s\n", what);
        exit(EXIT_FAILURE);
    }
}

static uint8_t *take_frame(void *frames, int64_t size, int64_t *room) {
    (void)frames;
    *room = size;
    return malloc((size_t)size);
}

static void give_back(void *frames, uint8_t *frame, int64_t room) {
    (void)frames, (void)room;
    free(frame);
}

static void begin(void) {
    kb_span name = {(const uint8_t *)"events", 6};
    road.budget = &budget;
    road.latency = road.throttle = node.latency = &not_recording;
    road.partition_bytes = 1000;
    road.fetch_bytes = 50000;
    road.take_frame = take_frame;
    road.give_back = give_back;
    road.placement = 1;
    for (int32_t i = 0; i < PARTITIONS; i++) {
        kb_reading *reading = &readings[i];
        kb_reading_init(reading, NULL);
        reading->end_offset = INT64_MAX;
        reading->fetch_offset = 0;
        memcpy(reading->topic_id, topic_id, sizeof(topic_id));
        check(kb_fetch_add_reading(&road, reading, &name, i), "no memory");
        kb_reading_set_fetching(reading, true);
        kb_reading_place(reading, &node, road.placement, INT64_MAX);
    }
    node.session_id = 7;
    node.session_epoch = 1;
    node.link.descriptor = -1;
    node.link.version = KB_FETCH_ENDPOINTS;
    node.link.usable_until_ns = INT64_MAX;
    kb_road_lend(&road, &node);
}

/* Let the road make its next request. Return how many readings a look at them finds. */
static int send_next(void) {
    int loose_count = 0;
    road.is_changed = true;
    for (kb_reading *reading = road.loose_first; reading; reading = reading->loose_next)
        loose_count++;
    kb_road_step(&road, ++now_ns);
    check(node.is_in_flight && !road.needs_engine, "no request was made");
    node.link.handed_bytes = node.link.queued_bytes;
    kb_link_written(&node.link, node.link.queued_bytes - node.link.written_bytes, now_ns);
    return loose_count;
}

/* Answer the request with a part for one partition. */
static void answer(int32_t partition, bool has_record) {
    uint8_t frame[1024], *end;
    kb_fetch_arrival *arrival;
    int64_t offset = readings[partition].fetch_offset;
    end = put_answer(frame, (uint32_t)node.link.sent.correlation_id, partition, offset, has_record);
    check(kb_link_received(&road, &node, frame, end - frame, now_ns) && !node.is_in_flight,
          "an answer was not taken");
    check(readings[partition].fetch_offset == offset + has_record, "a part does not count");
    arrival = kb_road_take_arrivals(&road);
    check((arrival != NULL) == has_record, "not the records that were sent");
    if (arrival) {
        kb_count_add(&readings[partition].backlog_bytes, -arrival->walked[0].charged_bytes);
        kb_count_add(&budget.unread, -arrival->frame_bytes);
        free(arrival->frame);
        free(arrival);
    }
}

static void check_named(int32_t count, int32_t forgotten, const char *what) {
    check(node.named.count == count && node.forgotten.count == forgotten, what);
}

static void check_busy(void) {
    for (int i = 0; i < ANSWERS; i++) {
        answer(BUSY, true);
        check(send_next() == 1, "quiet partitions are looked at");
        check_named(1, 0, "more is named than what has changed");
        check(node.asked_count == PARTITIONS, "a quiet partition is not asked for");
    }
    answer(BUSY + 1, false);
    check(send_next() == 1, "quiet partitions are looked at");
    check_named(0, 0, "a partition is named whose position is the same");
}

static void check_changes(void) {
    readings[PAUSED].is_paused = true;
    kb_reading_loosen(&readings[PAUSED]);
    answer(PAUSED, true); /* which the request in flight asks for */
    send_next();
    check_named(0, 1, "a partition that is paused is not forgotten");
    answer(BUSY, true);
    check(send_next() == 1, "a partition that is paused is looked at");
    readings[PAUSED].is_paused = false;
    kb_reading_loosen(&readings[PAUSED]);
    answer(BUSY, true);
    send_next();
    check_named(2, 0, "a partition that is resumed is not named");
    check(node.asked_count == PARTITIONS, "a partition is not asked for");
}

/* After a lost session all are named, those that had records last. */
static void check_lost_session(void) {
    int32_t last[2] = {-1, -1};
    node.is_in_flight = false;
    budget.reserved -= node.reserved_bytes;
    node.session_epoch = KB_SESSION_INITIAL_EPOCH;
    send_next();
    check(node.is_full, "the request is not complete");
    check_named(PARTITIONS, 0, "a complete request does not name all");
    for (int32_t i = node.named.groups[0].first; i >= 0; i = node.named.items[i].next) {
        check(node.named.items[i].partition > last[1] || node.named.items[i].partition == PAUSED ||
                  node.named.items[i].partition == BUSY,
              "quiet partitions are not in order");
        last[0] = last[1];
        last[1] = node.named.items[i].partition;
    }
    check(last[0] == PAUSED && last[1] == BUSY, "partitions that had records are not the last ones");
}

int main(void) {
    begin();
    check(send_next() == PARTITIONS, "not all are looked at in the beginning");
    check_named(PARTITIONS, 0, "the first request does not name all");
    check_busy();
    check_changes();
    check_lost_session();
    kb_fetch_withdraw_all(&node);
    kb_fetch_forget_session(&road, &node);
    for (int i = 0; i < PARTITIONS; i++)
        kb_fetch_remove_reading(&road, &readings[i]);
    check(!road.loose_first && !road.node_first && !road.topics, "something is left");
    kb_fetch_list_free(&node.named);
    kb_fetch_list_free(&node.forgotten);
    free(node.link.out);
    return EXIT_SUCCESS;
}
