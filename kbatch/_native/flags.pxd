# The flags, counts and pointers of src_c/flags.h, which threads share without a lock.

from libc.stdint cimport int32_t, int64_t

cdef extern from "flags.h" nogil:
    void kb_flag_set(int *flag) noexcept
    bint kb_flag_take(int *flag) noexcept
    bint kb_flag_exchange(int *flag, int before, int after) noexcept
    void kb_flag_store(int *flag, int value) noexcept
    int kb_flag_load(const int *flag) noexcept

    int32_t kb_number_peek(const int32_t *number) noexcept
    void kb_number_set(int32_t *number, int32_t value) noexcept

    int64_t kb_count_peek(const int64_t *count) noexcept
    int64_t kb_count_load(const int64_t *count) noexcept
    void kb_count_store(int64_t *count, int64_t value) noexcept
    int64_t kb_count_add(int64_t *count, int64_t change) noexcept

    void kb_pointer_store(void **address, void *pointer) noexcept
    void *kb_pointer_load(void **address) noexcept
