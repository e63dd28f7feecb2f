/* Topics come, are named by ids, by others when they were created again, and go, in any order: each is found
 * by its name and by its last id, without a look at the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fetch_road.h"
#include "random.h"

enum { TOPICS = 5000,
       STEPS = 60000,
       LONGEST_LIST = 16 };

typedef struct {
    char name[16];
    kb_span span;
    uint8_t id[KB_WIRE_UUID_BYTES];
    kb_reading reading;
    bool is_read;
} topic_of_test;

static topic_of_test topics[TOPICS];
static kb_fetch_road road;
static uint64_t seed = 1;

static void check(bool is_so, const char *what) {
    if (!is_so) {
        fprintf(stderr, "%s\n", what);
        exit(EXIT_FAILURE);
    }
}

static uint64_t drawn(void) {
    return kb_random_next(&seed);
}

static kb_fetch_topic *by_id(const uint8_t *id) {
    kb_span span = {id, KB_WIRE_UUID_BYTES};
    return kb_fetch_find_topic(&road, &span, KB_BY_ID);
}

static void begin_or_end(topic_of_test *topic) {
    if (topic->is_read) {
        kb_fetch_remove_reading(&road, &topic->reading);
        check(!kb_fetch_has_id(topic->id) || !by_id(topic->id), "a topic that is gone is found by its id");
    } else {
        kb_reading_init(&topic->reading, NULL);
        topic->reading.end_offset = INT64_MAX;
        memset(topic->id, 0, sizeof(topic->id));
        check(kb_fetch_add_reading(&road, &topic->reading, &topic->span, 0), "no memory");
    }
    topic->is_read = !topic->is_read;
}

/* Name a topic by another id, as a request does. */
static void name(topic_of_test *topic) {
    uint8_t before[KB_WIRE_UUID_BYTES];
    memcpy(before, topic->id, sizeof(before));
    for (int i = 0; i < KB_WIRE_UUID_BYTES; i++)
        topic->id[i] = (uint8_t)drawn();
    if (drawn() % 50 == 0) /* by a version that has no ids */
        memset(topic->id, 0, sizeof(topic->id));
    kb_fetch_name_topic(&road, topic->reading.slot->topic, topic->id);
    if (kb_fetch_has_id(before))
        check(!by_id(before), "a topic is found by the id that it had");
}

static void check_found(const topic_of_test *topic) {
    kb_fetch_topic *found = kb_fetch_find_topic(&road, &topic->span, KB_BY_NAME);
    check(topic->is_read ? found == topic->reading.slot->topic : !found, "not what has the name");
    if (topic->is_read && kb_fetch_has_id(topic->id))
        check(by_id(topic->id) == found, "not what has the id");
}

static void check_lists(void) {
    for (int way = 0; way < KB_WAYS_TO_TOPIC; way++)
        for (int32_t i = 0; i < road.topic_room; i++) {
            int length = 0;
            kb_fetch_topic *topic = road.topics[way * road.topic_room + i];
            for (; topic; topic = topic->next[way])
                length++;
            check(length <= LONGEST_LIST, "a search looks at many other topics");
        }
}

int main(void) {
    for (int i = 0; i < TOPICS; i++) {
        topic_of_test *topic = &topics[i];
        topic->span.data = (const uint8_t *)topic->name;
        topic->span.size = snprintf(topic->name, sizeof(topic->name), "topic-%d", i);
        begin_or_end(topic);
    }
    check(road.topic_count == TOPICS, "not all topics are there");
    for (int i = 0; i < STEPS; i++) {
        topic_of_test *topic = &topics[drawn() % TOPICS];
        if (topic->is_read && drawn() % 3)
            name(topic);
        else
            begin_or_end(topic);
        check_found(topic);
        check_found(&topics[drawn() % TOPICS]);
        if (i % 10000 == 0)
            check_lists();
    }
    for (int i = 0; i < TOPICS; i++) {
        check_found(&topics[i]);
        if (topics[i].is_read)
            begin_or_end(&topics[i]);
    }
    check(!road.topics && !road.topic_count && !road.topic_hint, "something is left");
    return EXIT_SUCCESS;
}
