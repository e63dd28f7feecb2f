from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kbatch._native.codec.c cimport kb_fetched_checksum, kb_span
from kbatch._native.fetch.budget cimport kb_budget
from kbatch._native.fetch.fetch_wire cimport kb_fetch_head, kb_fetch_list, kb_fetch_part
from kbatch._native.io.lent cimport LentRequest, kb_lent_request
from kbatch._native.io.sensor cimport RequestSensors, Sensor, SensorGroup, kb_request_sensors, kb_sensor
from kbatch._native.lock cimport kb_lock

cdef extern from "arrivals.h" nogil:
    ctypedef struct kb_reading

    ctypedef struct kb_fetch_walked:
        kb_reading *reading
        uint8_t topic_id[16]
        kb_span records
        int64_t from_offset
        int64_t next_offset
        int64_t visible_end
        int64_t row_bound
        int64_t byte_count
        int64_t charged_bytes
        int32_t last_epoch

    ctypedef struct kb_fetch_arrival:
        kb_fetch_arrival *next
        uint8_t *frame
        int64_t frame_bytes
        int64_t frame_room
        int64_t answered_ns
        int32_t with_rows
        int32_t part_count
        bint is_engines
        kb_fetch_walked *walked

    ctypedef struct kb_arrivals:
        kb_lock *lock
        int is_filled

    kb_fetch_arrival *kb_arrival_new(int32_t part_count) noexcept
    void kb_arrivals_put(kb_arrivals *arrivals, kb_fetch_arrival *arrival) noexcept
    void kb_arrivals_put_back(kb_arrivals *arrivals, kb_fetch_arrival *arrival) noexcept

cdef extern from "arrivals.h":
    kb_fetch_arrival *kb_arrivals_take(kb_arrivals *arrivals,
                                       void (*hold)(kb_reading *reading) noexcept) noexcept

cdef extern from "fetch_road.h" nogil:
    ctypedef struct kb_fetch_slot:
        int32_t partition

    ctypedef struct kb_fetch_ask:
        int32_t leader_epoch
        int64_t offset

    ctypedef struct kb_fetch_known:
        pass

    ctypedef struct kb_reading:
        kb_reading *loose_next
        kb_fetch_slot *slot
        void *owner
        bint is_fetching
        bint is_paused
        bint is_topic_sure
        bint is_failing
        kb_fetch_node *node
        uint64_t placement
        int64_t placed_until_ns
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

    ctypedef struct kb_fetch_link:
        bint is_lent
        bint is_engines
        int64_t connection_id
        int descriptor
        int version
        int32_t next_correlation_id
        int64_t queued_bytes
        int64_t handed_bytes
        int64_t written_bytes
        int64_t active_ns
        int64_t usable_until_ns
        const kb_request_sensors *sensors
        kb_lent_request sent
        uint8_t *out
        uint8_t head[4]
        uint8_t *frame
        int64_t frame_bytes
        int64_t filled
        uint8_t *rest
        int64_t rest_bytes

    ctypedef struct kb_fetch_node:
        int32_t node_id
        void *owner
        kb_fetch_link link
        kb_fetch_node *lent_next
        int32_t session_id
        int32_t session_epoch
        int is_in_flight
        bint is_full
        int version
        int64_t reserved_bytes
        kb_reading *asked_first
        kb_fetch_list named
        kb_fetch_list forgotten
        kb_fetch_node *found_next
        kb_reading *candidate_first
        kb_sensor *latency
        int64_t served_ns

    ctypedef struct kb_fetch_road:
        kb_reading *loose_first
        int64_t reading_count
        int64_t bounded_count
        uint64_t placement
        kb_fetch_node *found_first
        int64_t found_count
        int64_t look_again_ns
        bint is_short
        kb_budget *budget
        int32_t partition_bytes
        int64_t fetch_bytes
        bint reads_committed
        kb_fetched_checksum checksum
        kb_fetch_head head
        uint8_t *(*take_frame)(void *frames, int64_t size, int64_t *room) noexcept
        void (*give_back)(void *frames, uint8_t *frame, int64_t room) noexcept
        void *frames
        kb_fetch_node *lent
        bint is_changed
        bint needs_engine
        int awaits_memory
        kb_fetch_arrival *arrived_first
        kb_arrivals *arrivals
        int32_t late_count
        int64_t late_since_ns
        kb_sensor *latency
        kb_sensor *throttle

    void kb_reading_init(kb_reading *reading, void *owner) noexcept
    void kb_reading_loosen(kb_reading *reading) noexcept
    void kb_reading_withdraw(kb_reading *reading) noexcept
    void kb_reading_set_fetching(kb_reading *reading, bint is_fetching) noexcept
    void kb_reading_place(kb_reading *reading, kb_fetch_node *node, uint64_t placement,
                          int64_t until_ns) noexcept
    bint kb_fetch_add_reading(kb_fetch_road *road, kb_reading *reading, const kb_span *topic_name,
                              int32_t partition) noexcept
    void kb_fetch_remove_reading(kb_fetch_road *road, kb_reading *reading) noexcept
    void kb_fetch_move_to_end(kb_fetch_road *road, kb_reading *reading) noexcept
    void kb_fetch_displace(kb_fetch_road *road) noexcept
    void kb_fetch_look_at_places(kb_fetch_road *road, int64_t now_ns) noexcept
    kb_reading *kb_fetch_unplaced(const kb_fetch_road *road, kb_reading *reading, int64_t now_ns) noexcept
    void kb_fetch_scan(kb_fetch_road *road, int64_t backlog_bytes, int64_t now_ns) noexcept
    void kb_fetch_clear_candidates(kb_fetch_node *node) noexcept
    void kb_fetch_add_candidate(kb_fetch_node *node, kb_reading *reading) noexcept
    void kb_fetch_order_candidates(kb_fetch_node *node) noexcept
    int64_t kb_fetch_wanted_count(const kb_fetch_node *node) noexcept
    bint kb_fetch_lacks_topic_ids(const kb_fetch_node *node) noexcept
    int64_t kb_fetch_request_bytes(const kb_fetch_road *road, int64_t count, int64_t node_count) noexcept
    bint kb_fetch_ask_node(kb_fetch_road *road, kb_fetch_node *node, int version,
                           int64_t reserved_bytes) noexcept
    kb_fetch_head kb_fetch_head_of(const kb_fetch_road *road, const kb_fetch_node *node,
                                   int32_t correlation_id) noexcept
    void kb_fetch_give_up_request(kb_fetch_road *road, kb_fetch_node *node) noexcept
    void kb_fetch_forget_session(kb_fetch_road *road, kb_fetch_node *node) noexcept
    void kb_fetch_session_answered(kb_fetch_node *node, int32_t session_id) noexcept
    kb_reading *kb_fetch_reading_of(kb_fetch_road *road, const kb_fetch_node *node,
                                    const kb_fetch_part *part) noexcept
    bint kb_fetch_is_plain(const kb_reading *reading, const kb_fetch_part *part) noexcept
    void kb_fetch_note_log(kb_reading *reading, const kb_fetch_part *part) noexcept
    void kb_fetch_withdraw_all(kb_fetch_node *node) noexcept

cdef extern from "fetch_link.h" nogil:
    void kb_road_lend(kb_fetch_road *road, kb_fetch_node *node) noexcept
    bint kb_link_has_unsent(const kb_fetch_link *link) noexcept
    const uint8_t *kb_link_unsent(const kb_fetch_link *link) noexcept
    void kb_link_written(kb_fetch_link *link, int64_t size, int64_t now_ns) noexcept
    uint8_t *kb_link_space(const kb_fetch_link *link, int64_t *size) noexcept
    bint kb_link_received(kb_fetch_road *road, kb_fetch_node *node, const uint8_t *data, int64_t size,
                          int64_t now_ns) noexcept
    void kb_link_drop_frame(kb_fetch_road *road, kb_fetch_link *link) noexcept
    int64_t kb_road_step(kb_fetch_road *road, int64_t now_ns) noexcept
    kb_fetch_arrival *kb_road_take_arrivals(kb_fetch_road *road) noexcept
    void kb_fetch_record_answer(const kb_fetch_road *road, const kb_fetch_node *node, int64_t sent_ns,
                                int64_t throttle_ms, int64_t now_ns) noexcept


cdef class RoadState:
    cdef kb_fetch_road _road


cdef class PartitionReading:
    cdef kb_reading _reading
    cdef readonly str topic_name
    cdef readonly int32_t partition_number
    cdef bytes _topic_id
    cdef RoadState _road  # in whose list it is
    cdef FetchNode _node  # which `_reading.node` is of
    cdef int64_t _read_offset        # atomic: threads that poll change it
    cdef public Sensor byte_count
    cdef public SensorGroup row_count

    cdef void add_to_backlog(self, int64_t size_bytes) noexcept


cdef class FetchNode(LentRequest):
    cdef kb_fetch_node _node
    cdef RoadState _road
    cdef RequestSensors _sensors  # which `_node.link` refers to
    cdef public int64_t sent_ns
    cdef readonly Sensor latency
