/* Flags, counts and pointers that threads share without a lock. */
#ifndef KBATCH_FLAGS_H
#define KBATCH_FLAGS_H

#include <stdint.h>

static inline void kb_flag_set(int *flag) {
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
}

static inline int kb_flag_take(int *flag) {
    return __atomic_exchange_n(flag, 0, __ATOMIC_SEQ_CST);
}

/* Change the flag if it is `before`; false if it is not. */
static inline int kb_flag_exchange(int *flag, int before, int after) {
    return __atomic_compare_exchange_n(flag, &before, after, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static inline void kb_flag_store(int *flag, int value) {
    __atomic_store_n(flag, value, __ATOMIC_SEQ_CST);
}

static inline int kb_flag_load(const int *flag) {
    return __atomic_load_n(flag, __ATOMIC_SEQ_CST);
}

/* A number that one thread changes, or several under a lock, and others read without it, for a hint. */
static inline int32_t kb_number_peek(const int32_t *number) {
    return __atomic_load_n(number, __ATOMIC_RELAXED);
}

static inline void kb_number_set(int32_t *number, int32_t value) {
    __atomic_store_n(number, value, __ATOMIC_RELAXED);
}

static inline int64_t kb_count_peek(const int64_t *count) {
    return __atomic_load_n(count, __ATOMIC_RELAXED);
}

static inline int64_t kb_count_load(const int64_t *count) {
    return __atomic_load_n(count, __ATOMIC_SEQ_CST);
}

static inline void kb_count_store(int64_t *count, int64_t value) {
    __atomic_store_n(count, value, __ATOMIC_RELAXED);
}

/* Return the count after the change. */
static inline int64_t kb_count_add(int64_t *count, int64_t change) {
    return __atomic_add_fetch(count, change, __ATOMIC_SEQ_CST);
}

static inline void kb_pointer_store(void **address, void *pointer) {
    __atomic_store_n(address, pointer, __ATOMIC_SEQ_CST);
}

static inline void *kb_pointer_load(void **address) {
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}

#endif
