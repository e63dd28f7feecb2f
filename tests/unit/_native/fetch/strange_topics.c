/* Parts of an answer that name another topic than the request, which was the first to name its topics: by
 * name up to version 12, by id from 13 on. None of them is for a partition that was asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fetch_link.h"

static const uint8_t topic_id[KB_WIRE_UUID_BYTES] = "a topic of tests";
static kb_budget budget = {1 << 20, 0, 0};

static void check(bool is_so, const char *what) {
    if (!is_so) {
        fprintf(stderr, "%s\n", what);
        exit(EXIT_FAILURE);
    }
}

static kb_reading *found(kb_fetch_road *road, const kb_fetch_node *node, const char *topic, int64_t size) {
    kb_fetch_part part = {0};
    part.topic.data = (const uint8_t *)topic;
    part.topic.size = size;
    return kb_fetch_reading_of(road, node, &part);
}

static void check_version(int version) {
    kb_fetch_road road = {0};
    kb_fetch_node node = {0};
    kb_reading reading;
    kb_span name = {(const uint8_t *)"events", 6};
    bool by_id = version >= KB_FETCH_TOPIC_ID;
    road.budget = &budget;
    road.partition_bytes = 1000;
    road.placement = 1;
    kb_reading_init(&reading, NULL);
    reading.end_offset = INT64_MAX;
    reading.fetch_offset = 0;
    reading.is_fetching = true;
    memcpy(reading.topic_id, topic_id, sizeof(topic_id));
    check(kb_fetch_add_reading(&road, &reading, &name, 0), "no memory");
    kb_reading_place(&reading, &node, road.placement, INT64_MAX);
    kb_fetch_scan(&road, INT64_MAX, 0);
    check(kb_fetch_ask_node(&road, &node, version, 1000), "no memory");
    check(found(&road, &node, by_id ? (const char *)topic_id : "events", by_id ? 16 : 6) == &reading,
          "a part of the topic that was asked for is a stranger's");
    check(!found(&road, &node, by_id ? "another of tests" : "others", by_id ? 16 : 6),
          "a part of another topic is taken for one that was asked for");
    kb_fetch_withdraw_all(&node);
    kb_fetch_forget_session(&road, &node);
    kb_fetch_remove_reading(&road, &reading);
    kb_fetch_list_free(&node.named);
    kb_fetch_list_free(&node.forgotten);
}

int main(void) {
    check_version(KB_FETCH_TOPIC_ID - 1);
    check_version(KB_FETCH_TOPIC_ID);
    return EXIT_SUCCESS;
}
