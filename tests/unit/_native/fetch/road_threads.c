/* A road that reads over a socket while another thread releases what it has read: a broker of one partition
 * answers each Fetch with a record, and the memory holds two answers. Under ThreadSanitizer it finds races of
 * what they share; by itself, that no wake-up is lost: without one of them nothing goes on.
 *
 * The driver hands answers over by the list of arrivals, and rings an event. With PLAIN the program releases without an
 * atomic step: that must be reported. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answers.h"
#include "road_poll.h"

enum {
    ANSWERS = 50000,
    PARTITION_BYTES = 400,
    STALLED = 3
};

static kb_budget budget = {2 * PARTITION_BYTES, 0, 0};
static kb_fetch_road road;
static kb_fetch_node node;
static kb_reading reading;
static kb_sensor not_recording;
static int waker, sockets[2];

/* What the driver hands to the program, and the event that it waits for. */
static kb_lock lists_lock;
static kb_arrivals arrivals = {&lists_lock, NULL, NULL, 0};
static sem_t has_arrived;

static uint8_t *take_frame(void *frames, int64_t size, int64_t *room) {
    (void)frames;
    *room = size;
    return malloc((size_t)size);
}

static void give_back(void *frames, uint8_t *frame, int64_t room) {
    (void)frames, (void)room;
    free(frame);
}

/* The broker */

static void read_fully(int descriptor, uint8_t *to, size_t size) {
    while (size) {
        ssize_t got = read(descriptor, to, size);
        if (got <= 0)
            exit(EXIT_FAILURE);
        to += got;
        size -= (size_t)got;
    }
}

static void *answer_all(void *unused) {
    (void)unused;
    for (int64_t offset = 0; offset < ANSWERS; offset++) {
        uint8_t request[4096], answer[4096], *end;
        read_fully(sockets[1], request, 4);
        read_fully(sockets[1], request + 4, kb_load_be32(request));
        end = put_answer(answer, kb_load_be32(request + 8), 0, offset, true);
        for (uint8_t *at = answer; at < end;) {
            ssize_t sent = write(sockets[1], at, (size_t)(end - at));
            if (sent <= 0)
                exit(EXIT_FAILURE);
            at += sent;
        }
    }
    return NULL;
}

/* The program */

static void hold(kb_reading *held) {
    if (held != &reading)
        exit(EXIT_FAILURE);
}

static kb_fetch_arrival *next_result(void) {
    kb_fetch_arrival *result;
    while (!(result = kb_arrivals_take(&arrivals, hold)))
        sem_wait(&has_arrived);
    return result;
}

static void release(kb_fetch_arrival *result) {
    kb_count_add(&reading.backlog_bytes, -result->walked[0].charged_bytes);
#if defined(PLAIN)
    budget.unread -= result->frame_bytes;
#else
    kb_count_add(&budget.unread, -result->frame_bytes);
#endif
    free(result->frame);
    free(result);
    if (kb_flag_load(&road.awaits_memory))
        kb_descriptor_ring(waker);
}

/* Be busy for some time, so that releases meet the driver anywhere. */
static void be_busy(uint32_t *state) {
    *state = *state * 1664525 + 1013904223;
    for (volatile uint32_t left = *state >> 20; left; left--) {
    }
}

static void *read_all(void *unused) {
    uint32_t state = 1;
    (void)unused;
    for (int64_t offset = 0; offset < ANSWERS; offset++) {
        kb_fetch_arrival *result = next_result();
        if (result->walked[0].from_offset != offset || kb_count_load(&reading.high_watermark) <= offset)
            exit(EXIT_FAILURE);
        be_busy(&state);
        release(result);
    }
    return NULL;
}

/* The driver */

static int hand_over(void) {
    int count = 0;
    kb_fetch_arrival *arrived = kb_road_take_arrivals(&road);
    for (kb_fetch_arrival *each = arrived; each; each = each->next)
        count++;
    if (arrived) {
        kb_arrivals_put(&arrivals, arrived);
        sem_post(&has_arrived);
    }
    return count;
}

static void drive(int poller) {
    static uint8_t scratch[KB_FETCH_SPACE_BYTES];
    kb_lane_event others[KB_LANE_EVENTS];
    for (int left = ANSWERS; left;) {
        int was_rung;
        kb_road_step(&road, kb_lane_now_ns());
        kb_road_flush_all(&road, poller);
        left -= hand_over();
        if (road.needs_engine)
            exit(EXIT_FAILURE);
        if (!left)
            break;
        if (kb_road_wait(&road, poller, waker, 20000000000, scratch, others, &was_rung))
            exit(EXIT_FAILURE);
        road.is_changed |= was_rung != 0; /* the engine would run, and look */
        if (!was_rung && !road.arrived_first && !node.is_in_flight)
            exit(STALLED);
    }
}

static int begin(void) {
    struct epoll_event event = {EPOLLIN, {0}};
    kb_span name = {(const uint8_t *)"events", 6};
    int poller = epoll_create1(0);
    waker = eventfd(0, EFD_NONBLOCK);
    if (poller < 0 || waker < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
        exit(EXIT_FAILURE);
    event.data.fd = waker;
    epoll_ctl(poller, EPOLL_CTL_ADD, waker, &event);
    event.data.fd = sockets[0];
    epoll_ctl(poller, EPOLL_CTL_ADD, sockets[0], &event);
    kb_lock_init(&lists_lock);
    sem_init(&has_arrived, 0, 0);
    road.budget = &budget;
    road.arrivals = &arrivals;
    road.latency = road.throttle = node.latency = &not_recording;
    road.partition_bytes = PARTITION_BYTES;
    road.fetch_bytes = 1 << 20;
    road.take_frame = take_frame;
    road.give_back = give_back;
    road.placement = 1;
    road.is_changed = true;
    kb_reading_init(&reading, NULL);
    reading.end_offset = INT64_MAX;
    reading.fetch_offset = 0;
    reading.is_fetching = true;
    memcpy(reading.topic_id, topic_id, sizeof(topic_id));
    if (!kb_fetch_add_reading(&road, &reading, &name, 0))
        exit(EXIT_FAILURE);
    kb_reading_place(&reading, &node, road.placement, INT64_MAX);
    node.link.descriptor = sockets[0];
    node.link.version = KB_FETCH_ENDPOINTS;
    node.link.usable_until_ns = INT64_MAX;
    kb_road_lend(&road, &node);
    return poller;
}

int main(void) {
    pthread_t broker, program;
    int poller = begin();
    pthread_create(&broker, NULL, answer_all, NULL);
    pthread_create(&program, NULL, read_all, NULL);
    drive(poller);
    pthread_join(program, NULL);
    pthread_join(broker, NULL);
    return kb_count_load(&budget.unread) || kb_count_load(&reading.backlog_bytes) ? EXIT_FAILURE : EXIT_SUCCESS;
}
