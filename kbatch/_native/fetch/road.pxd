from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kbatch._native.codec.c cimport kb_span
from kbatch._native.fetch.fetch_answer cimport FetchAnswer
from kbatch._native.fetch.fetch_wire cimport kb_fetch_list, kb_fetch_part

cdef extern from "fetch_road.h" nogil:
    enum:
        KB_NAMED
        KB_FORGOTTEN

    ctypedef struct kb_fetch_slot:
        int32_t partition

    ctypedef struct kb_fetch_ask:
        int32_t leader_epoch
        int64_t offset

    ctypedef struct kb_fetch_known:
        pass

    ctypedef struct kb_reading:
        kb_reading *next
        kb_fetch_slot *slot
        void *owner
        bint is_fetching
        bint is_paused
        bint is_topic_sure
        bint is_failing
        kb_fetch_node *node
        uint64_t placement
        int32_t leader_epoch
        int32_t replica_id
        uint8_t topic_id[16]
        int64_t fetch_offset
        int64_t end_offset
        int32_t last_epoch
        int32_t checked_epoch
        int64_t needed_bytes
        int64_t backlog_bytes
        int64_t not_before_ns
        int64_t high_watermark
        int64_t last_stable_offset
        int64_t log_start_offset
        kb_fetch_node *in_flight
        kb_reading *asked_next
        kb_fetch_ask asked
        kb_reading *candidate_next

    ctypedef struct kb_fetch_node:
        int32_t node_id
        void *owner
        int32_t session_id
        int32_t session_epoch
        kb_fetch_known *known_first
        bint is_in_flight
        bint is_full
        int version
        kb_reading *asked_first
        kb_fetch_list named
        kb_fetch_list forgotten
        kb_fetch_node *found_next
        kb_reading *candidate_first
        int64_t candidate_count
        bint lacks_topic_ids

    ctypedef struct kb_fetch_road:
        kb_reading *first
        int64_t reading_count
        int64_t bounded_count
        uint64_t placement
        kb_fetch_node *found_first
        int64_t found_count
        int64_t look_again_ns
        bint is_short

    void kb_reading_init(kb_reading *reading, void *owner) noexcept
    void kb_reading_withdraw(kb_reading *reading) noexcept
    bint kb_fetch_add_reading(kb_fetch_road *road, kb_reading *reading, const kb_span *topic_name,
                              int32_t partition) noexcept
    void kb_fetch_remove_reading(kb_fetch_road *road, kb_reading *reading) noexcept
    void kb_fetch_move_to_end(kb_fetch_road *road, kb_reading *reading) noexcept
    kb_reading *kb_fetch_unplaced(const kb_fetch_road *road, kb_reading *reading) noexcept
    void kb_fetch_scan(kb_fetch_road *road, int64_t backlog_bytes, int64_t now_ns) noexcept
    void kb_fetch_clear_candidates(kb_fetch_node *node) noexcept
    void kb_fetch_add_candidate(kb_fetch_node *node, kb_reading *reading) noexcept
    int64_t kb_fetch_ask_all(kb_fetch_road *road, kb_fetch_node *node, int version,
                             int32_t max_bytes) noexcept
    void kb_fetch_forget_session(kb_fetch_road *road, kb_fetch_node *node) noexcept
    void kb_fetch_session_answered(kb_fetch_node *node, int32_t session_id) noexcept
    kb_reading *kb_fetch_reading_of(kb_fetch_road *road, const kb_fetch_node *node,
                                    const kb_fetch_part *part) noexcept
    bint kb_fetch_is_plain(const kb_reading *reading, const kb_fetch_part *part) noexcept
    void kb_fetch_note_log(kb_reading *reading, const kb_fetch_part *part) noexcept
    void kb_fetch_end_request(kb_fetch_node *node) noexcept


cdef class PartitionReading:
    cdef kb_reading _reading
    cdef readonly str topic_name
    cdef readonly int32_t partition_number
    cdef bytes _topic_id
    cdef FetchRoad _road  # in whose list it is
    cdef FetchNode _node  # which `_reading.node` is of


cdef class FetchNode:
    cdef kb_fetch_node _node
    cdef FetchRoad _road
    cdef int64_t _most_bytes
    cdef public int64_t sent_ns
    cdef public int64_t reserved_bytes


cdef class FetchRoad:
    cdef kb_fetch_road _road
    cdef object _fetched
    cdef int32_t _partition_bytes
    cdef public bint reads_committed
    cdef bint _check_crcs
    cdef size_t _limit

    cdef object _read(self, PartitionReading reading, const kb_fetch_part *part, FetchAnswer answer,
                      object judge, int64_t now_ns)
