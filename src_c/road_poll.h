/* The sockets of the reading road: it waits for them on the same epoll descriptor as the thread that lends
 * them. There is no such way on other systems than Linux. */
#ifndef KBATCH_ROAD_POLL_H
#define KBATCH_ROAD_POLL_H

#include "fetch_link.h"
#include "lane_poll.h"

#if KB_LANE_POLLS

/* Write what a socket takes. After an error the connection is the engine's, which meets the error too. */
static inline void kb_link_flush(kb_fetch_road *road, kb_fetch_link *link, int poller) {
    while (kb_link_has_unsent(link) && !link->is_engines) {
        struct iovec part = {(void *)kb_link_unsent(link), (size_t)(link->queued_bytes - link->handed_bytes)};
        ssize_t sent = kb_socket_send(link->descriptor, &part, 1);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            kb_poll_report_write(poller, link->descriptor, &link->reports_write, true);
            return;
        }
        if (sent < 0) {
            link->is_engines = road->needs_engine = true;
            return;
        }
        link->handed_bytes += sent;
        kb_link_written(link, sent, kb_lane_now_ns());
    }
    kb_poll_report_write(poller, link->descriptor, &link->reports_write, false);
}

static inline void kb_road_flush_all(kb_fetch_road *road, int poller) {
    for (kb_fetch_node *node = road->lent; node; node = node->lent_next)
        if (kb_link_has_unsent(&node->link))
            kb_link_flush(road, &node->link, poller);
}

/* At the end of a loan, let the poller report what its owner believes that it does. */
static inline void kb_road_end_reports(kb_fetch_road *road, int poller) {
    for (kb_fetch_node *node = road->lent; node; node = node->lent_next)
        kb_poll_report_write(poller, node->link.descriptor, &node->link.reports_write, false);
}

/* Read a socket of the road's. False if its event is for the engine: it has ended, or answers the engine. */
static inline bool kb_link_receive(kb_fetch_road *road, kb_fetch_node *node, uint8_t *scratch) {
    int64_t size;
    uint8_t *space = kb_link_space(&node->link, &size);
    ssize_t received;
    if (node->link.is_engines || !node->is_in_flight)
        return false;
    if (!space) {
        space = scratch;
        size = KB_FETCH_SPACE_BYTES;
    }
    received = kb_socket_receive(node->link.descriptor, space, (size_t)size);
    if (received < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK;
    return received > 0 && kb_link_received(road, node, space, received, kb_lane_now_ns());
}

static inline kb_fetch_node *kb_road_node_at(const kb_fetch_road *road, int descriptor) {
    kb_fetch_node *node = road->lent;
    while (node && node->link.descriptor != descriptor)
        node = node->lent_next;
    return node;
}

/* Wait for up to `wait_ns`, and do what the road does with events. `*was_rung` says whether the waker was
 * among them. Return the number of events that are not the road's. */
static inline int kb_road_wait(kb_fetch_road *road, int poller, int waker, int64_t wait_ns, uint8_t *scratch,
                               kb_lane_event *others, int *was_rung) {
    struct epoll_event events[KB_LANE_EVENTS];
    int64_t wait_ms = (wait_ns + 999999) / 1000000;
    int other_count = 0;
    int count = epoll_wait(poller, events, KB_LANE_EVENTS,
                           (int)(wait_ms < KB_LANE_LONGEST_MS ? wait_ms : KB_LANE_LONGEST_MS));
    *was_rung = 0;
    for (int i = 0; i < count; i++) {
        int descriptor = events[i].data.fd;
        kb_fetch_node *node;
        if (descriptor == waker) {
            kb_descriptor_drain(waker);
            *was_rung = 1;
            continue;
        }
        node = kb_road_node_at(road, descriptor);
        if (node && events[i].events & EPOLLOUT)
            kb_link_flush(road, &node->link, poller);
        if (node && !(events[i].events & ~(uint32_t)EPOLLOUT))
            continue;
        if (!node || events[i].events & ~(uint32_t)(EPOLLIN | EPOLLOUT) ||
            !kb_link_receive(road, node, scratch)) {
            if (node)
                node->link.is_engines = true;
            others[other_count].descriptor = descriptor;
            others[other_count++].events = events[i].events;
        }
    }
    return other_count;
}

#else

/* The road compiles, and does not wait: owners drive it by hand (kbatch/network/loan_driver.py). */
static inline void kb_road_flush_all(kb_fetch_road *road, int poller) {
    (void)road, (void)poller;
}

static inline void kb_road_end_reports(kb_fetch_road *road, int poller) {
    (void)road, (void)poller;
}

static inline int kb_road_wait(kb_fetch_road *road, int poller, int waker, int64_t wait_ns, uint8_t *scratch,
                               kb_lane_event *others, int *was_rung) {
    (void)road, (void)poller, (void)waker, (void)wait_ns, (void)scratch, (void)others;
    *was_rung = 0;
    return 0;
}
#endif

#endif
