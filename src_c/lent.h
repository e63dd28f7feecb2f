/* Requests on connections that are lent: to a producer's lane, or to a reader's road. */
#ifndef KBATCH_LENT_H
#define KBATCH_LENT_H

#include <stdbool.h>
#include <stdint.h>

#include "sensor.h"

/* What the lender must know of a request of the borrower's that is in flight when the loan ends. */
typedef struct {
    int32_t correlation_id;
    int64_t created_ns, written_ns;   /* -1: not yet */
    int64_t start_offset, end_offset; /* in the connection's outgoing stream */
    bool is_counted; /* the lender has seen it, and recorded that it was sent */
} kb_lent_request;

/* Begin a request, at this offset of the outgoing stream; its `end_offset` is not known yet. */
static inline kb_lent_request kb_lent_begin(int32_t *next_correlation_id, int64_t start_offset,
                                            int64_t now_ns) {
    kb_lent_request request = {*next_correlation_id, now_ns, -1, start_offset, start_offset, false};
    *next_correlation_id = (*next_correlation_id + 1) & INT32_MAX;
    return request;
}

/* Record that a request was sent, unless the lender has. */
static inline void kb_lent_record_sent(const kb_request_sensors *sensors, const kb_lent_request *request) {
    int64_t created_ms = request->created_ns / 1000000;
    double sent_bytes = (double)(request->end_offset - request->start_offset);
    if (request->is_counted)
        return;
    kb_sensor_group_record(sensors->sent, sent_bytes, created_ms);
    kb_sensor_group_record(sensors->written, sent_bytes, created_ms);
}

/* Record an answer, of so many bytes with its size. */
static inline void kb_lent_record_answer(const kb_request_sensors *sensors, int64_t answer_bytes,
                                         int64_t now_ns) {
    int64_t now_ms = now_ns / 1000000;
    kb_sensor_group_record(sensors->received, (double)answer_bytes, now_ms);
    kb_sensor_group_record(sensors->answered, (double)answer_bytes, now_ms);
}

#endif
