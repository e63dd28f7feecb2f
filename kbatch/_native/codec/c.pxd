# Declarations of src_c: plain C, no Python object, no exception.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "bytes.h" nogil:
    ctypedef struct kb_span:
        const uint8_t *data
        int64_t size

    uint32_t kb_load_be32(const uint8_t *source) noexcept
    void kb_store_be64(uint8_t *target, uint64_t value) noexcept
    void kb_copy(uint8_t *target, const uint8_t *source, size_t size) noexcept
    bint kb_is_utf8(const uint8_t *data, size_t size) noexcept

cdef extern from "varint.h" nogil:
    unsigned kb_varint_size(int64_t value) noexcept

cdef extern from "crc32c.h" nogil:
    const char *kb_crc32c_init(const char *wanted) noexcept
    uint32_t kb_crc32c_extend(uint32_t crc, const uint8_t *data, size_t size) noexcept
    uint32_t kb_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) noexcept

cdef extern from "murmur2.h" nogil:
    enum:
        KB_MAX_PARTITIONS

    uint32_t kb_murmur2(const uint8_t *data, size_t size) noexcept
    int32_t kb_partition_for_key(const uint8_t *key, size_t size, int32_t partitions) noexcept

cdef extern from "record.h" nogil:
    enum:
        KB_MAX_RECORD_BODY
        KB_MIN_RECORD_BYTES

    ctypedef struct kb_record_header:
        kb_span key
        kb_span value

    ctypedef struct kb_record:
        int64_t timestamp_ms
        kb_span key
        kb_span value
        const kb_record_header *headers
        int64_t header_count

    ctypedef struct kb_record_view:
        int64_t timestamp_delta
        int32_t offset_delta
        int32_t header_count
        kb_span key
        kb_span value
        const uint8_t *headers
        const uint8_t *end

    ctypedef enum kb_record_error:
        KB_RECORD_OK
        KB_RECORD_TRAILING
        KB_RECORD_OUTSIDE

    int64_t kb_record_body_size(const kb_record *record, int64_t timestamp_delta,
                                int32_t offset_delta) noexcept
    uint8_t *kb_record_put(uint8_t *target, const kb_record *record, int64_t body_size,
                           int64_t timestamp_delta,
                           int32_t offset_delta) noexcept
    kb_record_error kb_record_get(const uint8_t **source, const uint8_t *end, kb_record_view *record) noexcept
    kb_record_error kb_record_header_get(const uint8_t **source, const uint8_t *end,
                                         kb_record_header *header) noexcept
    kb_record_error kb_record_check_headers(const kb_record_view *record) noexcept
    int64_t kb_records_claimed(const uint8_t *source, const uint8_t *end) noexcept
    bint kb_record_is_within(const kb_record_view *record, int32_t last_offset_delta) noexcept
    kb_record_error kb_records_check(const uint8_t *source, const uint8_t *end, int32_t count,
                                     int32_t last_offset_delta, int32_t *failed_at) noexcept

    ctypedef enum kb_record_oddity:
        KB_RECORD_REGULAR

    ctypedef struct kb_record_survey:
        int64_t base_timestamp_ms
        int64_t min_timestamp_ms
        int64_t max_timestamp_ms
        int32_t null_key_count
        int32_t failed_at
        int32_t odd_at
        kb_record_oddity oddity
        bint offsets_consecutive

    kb_record_error kb_records_survey(const uint8_t *source, const uint8_t *end, int32_t count,
                                      kb_record_survey *survey) noexcept

cdef extern from "record_batch.h" nogil:
    enum:
        KB_LENGTH_AT
        KB_LOG_OVERHEAD
        KB_MAGIC_AT
        KB_ATTRIBUTES_AT
        KB_BATCH_HEADER_SIZE
        KB_CODEC_MASK
        KB_LOG_APPEND_TIME
        KB_TRANSACTIONAL
        KB_CONTROL
        KB_DELETE_HORIZON

    ctypedef struct kb_batch_header:
        int64_t base_offset
        int32_t length
        int32_t leader_epoch
        int8_t magic
        uint32_t crc
        int16_t attributes
        int32_t last_offset_delta
        int64_t base_timestamp_ms
        int64_t max_timestamp_ms
        int64_t producer_id
        int16_t producer_epoch
        int32_t base_sequence
        int32_t count

    ctypedef struct kb_open_batch:
        int64_t base_timestamp_ms
        int64_t max_timestamp_ms
        int64_t records_bytes
        int32_t count
        int32_t last_offset_delta

    const double KB_RATIO_FACTOR

    void kb_batch_header_get(const uint8_t *source, kb_batch_header *header) noexcept
    void kb_batch_header_put(uint8_t *target, const kb_batch_header *header) noexcept
    int64_t kb_estimated_bytes(int64_t records_bytes, double factor) noexcept
    bint kb_has_room(const kb_open_batch *batch, int64_t record_bytes, int64_t write_limit,
                     double factor) noexcept
    void kb_count_record(kb_open_batch *batch, int64_t timestamp_ms, int64_t record_bytes,
                         int32_t offset_delta) noexcept
    double kb_updated_ratio(double current, double observed) noexcept

cdef extern from "rows.h" nogil:
    ctypedef struct kb_rows:
        int64_t count
        const kb_span *keys
        const kb_span *values
        const int64_t *timestamps_ms
        const int64_t *header_starts
        const int64_t *header_counts
        const kb_record_header *headers
        int64_t now_ms

    ctypedef struct kb_memory:
        uint8_t *data
        size_t used
        size_t capacity

    ctypedef struct kb_target:
        kb_open_batch batch
        kb_memory memory
        int64_t write_limit
        double factor

    ctypedef enum kb_append_status:
        KB_APPEND_FULL
        KB_APPEND_MEMORY
        KB_APPEND_TOO_LARGE

    void kb_row_record(const kb_rows *rows, int64_t row, kb_record *record) noexcept
    void kb_group_rows(const int32_t *destination, int64_t count, int32_t destinations, int32_t *starts,
                       int32_t *order) noexcept
    int64_t kb_first_not_before(const int32_t *order, int64_t next, int64_t end, int32_t row) noexcept
    kb_append_status kb_append_rows(kb_target *target, const kb_rows *rows, const int32_t *order,
                                    int64_t *next,
                                    int64_t end, int64_t *needed) noexcept

cdef extern from "codec_levels.h" nogil:
    enum:
        KB_DEFAULT_LEVEL
        KB_ISAL_LEVEL

    bint kb_gzip_is_fast(int level) noexcept
    int kb_zlib_level(int level) noexcept
    int kb_lz4_level(int level) noexcept
    int kb_zstd_level(int level) noexcept

cdef extern from "zstd_frames.h" nogil:
    enum:
        KB_ZSTD_WINDOW_LOG

    bint kb_zstd_frames_whole(const uint8_t *data, size_t size) noexcept

cdef extern from "codec_sink.h" nogil:
    ctypedef enum kb_codec_status:
        KB_CODEC_OK
        KB_CODEC_CORRUPT
        KB_CODEC_LIMIT
        KB_CODEC_MEMORY
        KB_CODEC_NO_LIBRARY

    ctypedef struct kb_codec_fault:
        char text[160]

    ctypedef struct kb_codec_sink:
        kb_memory *memory
        int (*extend)(kb_memory *memory, size_t extra) noexcept
        size_t start
        size_t limit
        kb_codec_fault *fault

cdef extern from "record_columns.h" nogil:
    enum:
        KB_WANT_OFFSET
        KB_WANT_TIMESTAMP
        KB_WANT_KEY
        KB_WANT_VALUE
        KB_WANT_HEADERS
        KB_WANT_LEADER_EPOCH
        KB_WANT_RECORD

    ctypedef struct kb_view:
        int32_t size

    ctypedef struct kb_binary_builder:
        int32_t *offsets
        kb_view *views
        uint8_t *validity
        kb_memory data
        int64_t null_count

    ctypedef struct kb_record_columns:
        int wanted
        bint as_views
        int64_t row_count
        int64_t row_capacity
        int64_t *offsets
        int64_t *timestamps_ms
        int32_t *leader_epochs
        kb_binary_builder key
        kb_binary_builder value
        int32_t *header_offsets
        int64_t header_count
        int64_t header_capacity
        kb_binary_builder header_key
        kb_binary_builder header_value

    ctypedef enum kb_columns_status:
        KB_COLUMNS_DONE
        KB_COLUMNS_MEMORY
        KB_COLUMNS_CORRUPT

    ctypedef struct kb_records_cursor:
        const uint8_t *at
        const uint8_t *end
        int32_t index
        int32_t count
        int64_t base_offset
        int64_t timestamp_ms
        int32_t last_offset_delta
        int64_t first_offset
        int64_t last_offset
        bint log_append_time
        int32_t leader_epoch
        const uint8_t *view_base
        int32_t view_buffer
        int64_t next_offset
        kb_record_error error

    ctypedef struct kb_records_sample:
        int64_t key_bytes
        int64_t value_bytes
        int64_t header_count
        int64_t header_key_bytes
        int64_t header_value_bytes
        int64_t all_bytes

    void kb_cursor_limit(kb_records_cursor *cursor, int64_t base_offset, int32_t last_offset_delta,
                         int64_t first, int64_t last) noexcept
    kb_columns_status kb_columns_append(kb_record_columns *columns, kb_records_cursor *cursor,
                                        kb_record_view *record) noexcept
    void kb_columns_append_range(kb_record_columns *columns, int64_t first_offset, int64_t count,
                                 int64_t timestamp_ms, int32_t leader_epoch) noexcept
    kb_records_sample kb_sample_records(const kb_record_columns *columns,
                                        const kb_records_cursor *cursor) noexcept

cdef extern from "fetched.h" nogil:
    ctypedef struct kb_aborted_transaction:
        int64_t first_offset
        int64_t producer

    ctypedef struct kb_fetched:
        const uint8_t *data
        size_t size
        size_t at
        int64_t from_offset
        int64_t end_offset
        const int64_t *producer_ids
        uint8_t *is_aborting
        const kb_aborted_transaction *aborted
        int64_t producer_count
        int64_t aborted_count
        int64_t aborted_begun
        int64_t next_offset
        int32_t last_epoch

    ctypedef struct kb_fetched_batch:
        const uint8_t *data
        size_t size
        kb_batch_header header
        int64_t first_offset
        int64_t row_bound

    ctypedef enum kb_fetched_status:
        KB_FETCHED_BATCH
        KB_FETCHED_END
        KB_FETCHED_CORRUPT

    ctypedef uint32_t (*kb_fetched_checksum)(uint32_t crc, const uint8_t *data, size_t size) noexcept

    ctypedef struct kb_fetched_scan:
        int64_t row_bound
        int64_t position
        kb_fetched_status status

    kb_fetched_status kb_fetched_next(kb_fetched *fetched, kb_fetched_batch *batch) noexcept
    kb_fetched_scan kb_fetched_scan_all(kb_fetched *fetched, kb_fetched_batch *batch,
                                        kb_fetched_checksum checksum) noexcept
    bint kb_fetched_count_fits(const kb_fetched_batch *batch, size_t limit) noexcept
    bint kb_fetched_header_suffices(const kb_fetched *fetched, const kb_fetched_batch *batch,
                                    int wanted) noexcept
