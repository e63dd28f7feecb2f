/* Zigzag varints (KIP-98, org.apache.kafka.common.utils.ByteUtils): seven bits a byte, lowest first.
 *
 * Java drops bits beyond 32 (64) silently; here a varint that carries such bits, or that goes on after its
 * fifth (tenth) byte, is refused. */
#ifndef KBATCH_VARINT_H
#define KBATCH_VARINT_H

#include "bytes.h"

#define KB_VARINT_MAX 5
#define KB_VARLONG_MAX 10

static inline uint64_t kb_zigzag64(int64_t value) {
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

static inline int64_t kb_unzigzag(uint64_t raw) {
    return (int64_t)((raw >> 1) ^ (~(raw & 1) + 1));
}

/* Return the size of `raw`, already zigzagged: 1 to 10 bytes. */
static inline unsigned kb_raw_varint_size(uint64_t raw) {
#if defined(_MSC_VER)
    unsigned long highest;
    _BitScanReverse64(&highest, raw | 1);
#else
    unsigned highest = 63 - (unsigned)__builtin_clzll(raw | 1);
#endif
    return (highest * 9 + 73) >> 6; /* = highest / 7 + 1 for 0..63, without the division */
}

static inline unsigned kb_varint_size(int64_t value) {
    return kb_raw_varint_size(kb_zigzag64(value));
}

KB_INLINE uint8_t *kb_put_raw_varint(uint8_t *to, uint64_t raw) {
    while (raw >= 0x80) {
        *to++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *to++ = (uint8_t)raw;
    return to;
}

static inline uint8_t *kb_put_varint(uint8_t *to, int64_t value) {
    return kb_put_raw_varint(to, kb_zigzag64(value));
}

/* Read a varint of at most `bits` (32 or 64) bits, byte by byte; NULL if it is cut off at `end` or over-long.
 * */
static inline const uint8_t *kb_get_long_varint(const uint8_t *from, const uint8_t *end, unsigned bits,
                                                uint64_t *raw) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < bits; shift += 7) {
        if (KB_UNLIKELY(from >= end))
            return NULL;
        uint8_t byte = *from++;
        if (KB_UNLIKELY(bits - shift < 7 && (byte & 0x7F) >> (bits - shift)))
            return NULL;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *raw = value;
            return from;
        }
    }
    return NULL;
}

/* The same if two bytes are known to be available, and nearly always suffice. */
KB_INLINE const uint8_t *kb_get_near_varint(const uint8_t *from, const uint8_t *end, unsigned bits,
                                            uint64_t *raw) {
    if (KB_LIKELY(from[0] < 0x80)) {
        *raw = from[0];
        return from + 1;
    }
    if (KB_LIKELY(from[1] < 0x80)) {
        *raw = (uint64_t)(from[0] & 0x7F) | (uint64_t)from[1] << 7;
        return from + 2;
    }
    return kb_get_long_varint(from, end, bits, raw);
}

KB_INLINE const uint8_t *kb_get_varint(const uint8_t *from, const uint8_t *end, int32_t *value) {
    uint64_t raw;
    from = kb_get_long_varint(from, end, 32, &raw);
    if (from)
        *value = (int32_t)kb_unzigzag(raw);
    return from;
}

KB_INLINE const uint8_t *kb_get_varlong(const uint8_t *from, const uint8_t *end, int64_t *value) {
    uint64_t raw;
    from = kb_get_long_varint(from, end, 64, &raw);
    if (from)
        *value = kb_unzigzag(raw);
    return from;
}

#endif
