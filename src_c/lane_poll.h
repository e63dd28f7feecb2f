/* The lane's sockets: it waits for them on the same epoll descriptor as the thread that lent them. There is
 * no such way on other systems than Linux. */
#ifndef KBATCH_LANE_POLL_H
#define KBATCH_LANE_POLL_H

#include <errno.h>
#include <time.h>

#include "descriptor.h"
#include "lane.h"

enum {
    KB_LANE_EVENTS = 64,
    KB_LANE_IOV_MAX = 1024,
    KB_LANE_LONGEST_MS = 3600000
};

/* An event of a descriptor that is not the lane's. */
typedef struct {
    int descriptor;
    uint32_t events;
} kb_lane_event;

static inline int64_t kb_lane_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#if defined(__linux__)
#include <sys/epoll.h>

#define KB_LANE_POLLS 1

/* Let the poller report room in a socket, or no longer. `*reports` says what it does. */
static inline void kb_poll_report_write(int poller, int descriptor, bool *reports, bool reports_write) {
    struct epoll_event event;
    if (*reports == reports_write)
        return;
    *reports = reports_write;
    event.events = EPOLLIN | (reports_write ? EPOLLOUT : 0);
    event.data.u64 = 0;
    event.data.fd = descriptor;
    epoll_ctl(poller, EPOLL_CTL_MOD, descriptor, &event);
}

/* At the end of a loan, let the poller report what its owner believes that it does. */
static inline void kb_lane_end_reports(kb_lane *lane, int poller) {
    for (int32_t i = 0; i < lane->node_count; i++)
        kb_poll_report_write(poller, lane->nodes[i].descriptor, &lane->nodes[i].reports_write, false);
}

/* Write what a socket takes. After an error the connection is the engine's, which meets the error too. */
static inline void kb_lane_flush(kb_lane *lane, kb_lane_node *node, int poller) {
    while (kb_lane_has_unsent(node) && !node->is_engines) {
        kb_lane_request *request = node->last;
        int count = request->part_count - request->part_at;
        ssize_t sent = kb_socket_send(node->descriptor, request->parts + request->part_at,
                                      count < KB_LANE_IOV_MAX ? count : KB_LANE_IOV_MAX);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            kb_poll_report_write(poller, node->descriptor, &node->reports_write, true);
            return;
        }
        if (sent < 0) {
            node->is_engines = lane->needs_engine = true;
            return;
        }
        kb_lane_handed(node, sent);
        kb_lane_written(lane, node, sent, kb_lane_now_ns());
    }
    kb_poll_report_write(poller, node->descriptor, &node->reports_write, false);
}

static inline void kb_lane_flush_all(kb_lane *lane, int poller) {
    for (int32_t i = 0; i < lane->node_count; i++)
        if (kb_lane_has_unsent(&lane->nodes[i]))
            kb_lane_flush(lane, &lane->nodes[i], poller);
}

/* Read a socket of the lane's. False if its event is for the engine: it has ended, or answers the engine. */
static inline bool kb_lane_receive(kb_lane *lane, kb_lane_node *node) {
    ssize_t received;
    if (node->is_engines || node->engine_count || !node->first ||
        !kb_lane_reserve_in(node, KB_LANE_SPACE_BYTES))
        return false;
    received = kb_socket_receive(node->descriptor, lane->space, KB_LANE_SPACE_BYTES);
    if (received < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK;
    if (received == 0)
        return false;
    kb_lane_received(lane, node, lane->space, (size_t)received, kb_lane_now_ns());
    return true;
}

/* Wait for up to `wait_ns`, and do what the lane does with events. `*was_rung` says whether the waker was
 * among them. Return the number of events that are not the lane's. */
static inline int kb_lane_wait(kb_lane *lane, int poller, int waker, int64_t wait_ns, kb_lane_event *others,
                               int *was_rung) {
    struct epoll_event events[KB_LANE_EVENTS];
    int64_t wait_ms = (wait_ns + 999999) / 1000000;
    int count, other_count = 0;
    count = epoll_wait(poller, events, KB_LANE_EVENTS,
                       (int)(wait_ms < KB_LANE_LONGEST_MS ? wait_ms : KB_LANE_LONGEST_MS));
    *was_rung = 0;
    for (int i = 0; i < count; i++) {
        int descriptor = events[i].data.fd;
        kb_lane_node *node = kb_lane_node_at(lane, descriptor);
        if (descriptor == waker) {
            kb_descriptor_drain(waker);
            *was_rung = 1;
            lane->is_changed = true;
            continue;
        }
        if (node && events[i].events & EPOLLOUT)
            kb_lane_flush(lane, node, poller);
        if (node && !(events[i].events & ~(uint32_t)EPOLLOUT))
            lane->is_changed = true;
        else if (!node || events[i].events & ~(uint32_t)(EPOLLIN | EPOLLOUT) ||
                 !kb_lane_receive(lane, node)) {
            if (node)
                node->is_engines = true;
            others[other_count].descriptor = descriptor;
            others[other_count++].events = events[i].events;
        }
    }
    return other_count;
}

#else
#define KB_LANE_POLLS 0

/* The lane compiles, and does not wait: owners drive it by hand (kbatch/network/loan_driver.py). */
static inline void kb_lane_flush_all(kb_lane *lane, int poller) {
    (void)lane, (void)poller;
}

static inline void kb_lane_end_reports(kb_lane *lane, int poller) {
    (void)lane, (void)poller;
}

static inline int kb_lane_wait(kb_lane *lane, int poller, int waker, int64_t wait_ns, kb_lane_event *others,
                               int *was_rung) {
    (void)lane, (void)poller, (void)waker, (void)wait_ns, (void)others;
    *was_rung = 0;
    return 0;
}
#endif

#endif
