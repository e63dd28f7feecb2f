from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kbatch._native.codec.c cimport kb_span

cdef extern from "fetch_wire.h" nogil:
    enum:
        KB_FETCH_FIRST_VERSION
        KB_FETCH_LAST_VERSION
        KB_FETCH_TOPIC_ID

    ctypedef struct kb_wire_source:
        pass

    ctypedef struct kb_fetch_head:
        int version
        int32_t correlation_id
        kb_span client_id
        int32_t max_wait_ms
        int32_t min_bytes
        int32_t max_bytes
        int8_t isolation_level
        int32_t session_id
        int32_t session_epoch
        kb_span rack_id

    ctypedef struct kb_fetch_list:
        pass

    ctypedef struct kb_fetch_part:
        kb_span topic
        int32_t partition
        int16_t error_code
        int64_t high_watermark
        int64_t last_stable_offset
        int64_t log_start_offset
        int64_t diverging_end_offset
        int32_t diverging_epoch
        int32_t leader_id
        int32_t leader_epoch
        int32_t preferred_read_replica
        int64_t aborted_count
        kb_wire_source aborted
        kb_span records

    ctypedef struct kb_fetch_answer:
        int32_t correlation_id
        int32_t throttle_time_ms
        int32_t session_id
        int16_t error_code
        kb_fetch_part *parts
        int32_t part_count
        kb_wire_source endpoints
        int64_t endpoint_count

    ctypedef struct kb_fetch_endpoint:
        int32_t node_id
        int32_t port
        kb_span host
        kb_span rack

    void kb_fetch_list_free(kb_fetch_list *list) noexcept
    int64_t kb_fetch_room(const kb_fetch_head *head, const kb_fetch_list *named,
                          const kb_fetch_list *forgotten) noexcept
    uint8_t *kb_fetch_write(uint8_t *frame, const kb_fetch_head *head, const kb_fetch_list *named,
                            const kb_fetch_list *forgotten) noexcept
    bint kb_fetch_read(kb_fetch_answer *answer, int version, const uint8_t *frame, int64_t size) noexcept
    void kb_fetch_get_aborted(kb_wire_source *source, int64_t *producer_id, int64_t *first_offset) noexcept
    kb_fetch_endpoint kb_fetch_get_endpoint(kb_wire_source *source) noexcept
    void kb_fetch_answer_free(kb_fetch_answer *answer) noexcept
