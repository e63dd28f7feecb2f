/* Big-endian loads and stores at any alignment, and the span type of all of src_c. */
#ifndef KBATCH_BYTES_H
#define KBATCH_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_MSC_VER)
#include <intrin.h>
#include <stdlib.h>
#define kb_bswap16(x) _byteswap_ushort(x)
#define kb_bswap32(x) _byteswap_ulong(x)
#define kb_bswap64(x) _byteswap_uint64(x)
#define KB_LIKELY(x) (x)
#define KB_UNLIKELY(x) (x)
#define KB_PREFETCH(address) ((void)(address))
#define KB_INLINE static __forceinline
#else
#define kb_bswap16(x) __builtin_bswap16(x)
#define kb_bswap32(x) __builtin_bswap32(x)
#define kb_bswap64(x) __builtin_bswap64(x)
#define KB_LIKELY(x) __builtin_expect(!!(x), 1)
#define KB_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define KB_PREFETCH(address) __builtin_prefetch((const void *)(address)) /* any, readable or not */
/* For functions that must be inlined into their caller's loop, so that structs behind a pointer can live in
   registers. */
#define KB_INLINE static inline __attribute__((always_inline))
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define KB_BIG(bits, x) (x)
#else
#define KB_BIG(bits, x) kb_bswap##bits(x)
#endif

/* Bytes with another owner; size -1 is Kafka's null. */
typedef struct {
    const uint8_t *data;
    int64_t size;
} kb_span;

#define KB_DEFINE_BIG_ENDIAN(bits)                                            \
    static inline uint##bits##_t kb_load_be##bits(const uint8_t *from) {      \
        uint##bits##_t value;                                                 \
        memcpy(&value, from, sizeof value);                                   \
        return KB_BIG(bits, value);                                           \
    }                                                                         \
    static inline void kb_store_be##bits(uint8_t *to, uint##bits##_t value) { \
        value = KB_BIG(bits, value);                                          \
        memcpy(to, &value, sizeof value);                                     \
    }

KB_DEFINE_BIG_ENDIAN(16)
KB_DEFINE_BIG_ENDIAN(32)
KB_DEFINE_BIG_ENDIAN(64)

#if defined(__GNUC__)
typedef uint64_t kb_block __attribute__((vector_size(16), aligned(1), may_alias));
#define KB_BLOCK(at) (*(kb_block *)(at))
#define KB_CONST_BLOCK(at) (*(const kb_block *)(at))
#endif

/* memcpy for the short spans of records, without the library call's branches: moves that may overlap, all
 * loads before all stores. `size` may be 0. */
static inline void kb_copy(uint8_t *to, const uint8_t *from, size_t size) {
#if defined(__GNUC__)
    if (size >= 16) {
        if (size > 128) {
            memcpy(to, from, size);
            return;
        }
        const uint8_t *from_end = from + size;
        uint8_t *to_end = to + size;
        kb_block first = KB_CONST_BLOCK(from), last = KB_CONST_BLOCK(from_end - 16);
        if (size > 32) {
            kb_block second = KB_CONST_BLOCK(from + 16), second_last = KB_CONST_BLOCK(from_end - 32);
            if (size > 64) {
                kb_block third = KB_CONST_BLOCK(from + 32), fourth = KB_CONST_BLOCK(from + 48);
                kb_block fourth_last = KB_CONST_BLOCK(from_end - 64),
                         third_last = KB_CONST_BLOCK(from_end - 48);
                KB_BLOCK(to + 32) = third;
                KB_BLOCK(to + 48) = fourth;
                KB_BLOCK(to_end - 64) = fourth_last;
                KB_BLOCK(to_end - 48) = third_last;
            }
            KB_BLOCK(to + 16) = second;
            KB_BLOCK(to_end - 32) = second_last;
        }
        KB_BLOCK(to) = first;
        KB_BLOCK(to_end - 16) = last;
        return;
    }
#else
    if (size >= 16) {
        memcpy(to, from, size);
        return;
    }
#endif
    if (size >= 8) {
        uint64_t head, tail;
        memcpy(&head, from, 8);
        memcpy(&tail, from + size - 8, 8);
        memcpy(to, &head, 8);
        memcpy(to + size - 8, &tail, 8);
    } else if (size >= 4) {
        uint32_t head, tail;
        memcpy(&head, from, 4);
        memcpy(&tail, from + size - 4, 4);
        memcpy(to, &head, 4);
        memcpy(to + size - 4, &tail, 4);
    } else if (size > 0) {
        to[0] = from[0];
        to[size / 2] = from[size / 2];
        to[size - 1] = from[size - 1];
    }
}

/* Strict UTF-8 as Python decodes it: no surrogates, no over-long forms, nothing above U+10FFFF. */
static inline int kb_is_utf8(const uint8_t *data, size_t size) {
    size_t i = 0;
    while (i < size) {
        uint8_t lead = data[i];
        if (lead < 0x80) {
            i += 1;
            continue;
        }
        size_t extra = lead >= 0xF0   ? 3
                       : lead >= 0xE0 ? 2
                                      : 1;
        if (lead < 0xC2 || lead > 0xF4 || size - i <= extra)
            return 0;
        uint8_t low = lead == 0xE0   ? 0xA0
                      : lead == 0xF0 ? 0x90
                                     : 0x80;
        uint8_t high = lead == 0xED   ? 0x9F
                       : lead == 0xF4 ? 0x8F
                                      : 0xBF;
        if (data[i + 1] < low || data[i + 1] > high)
            return 0;
        for (size_t k = 2; k <= extra; k++)
            if ((data[i + k] & 0xC0) != 0x80)
                return 0;
        i += 1 + extra;
    }
    return 1;
}

#endif
