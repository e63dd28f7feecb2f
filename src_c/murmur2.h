/* murmur2 as Kafka's Java client hashes keys (org.apache.kafka.common.utils.Utils.murmur2): seed 0x9747b28c,
 * little-endian blocks on every machine. */
#ifndef KBATCH_MURMUR2_H
#define KBATCH_MURMUR2_H

#include "bytes.h"

/* Kafka has no larger topics: it bounds what a partition number makes us allocate. */
#define KB_MAX_PARTITIONS 1000000

static inline uint32_t kb_murmur2(const uint8_t *data, size_t size) {
    const uint32_t m = 0x5bd1e995u;
    uint32_t hash = 0x9747b28cu ^ (uint32_t)size;
    for (; size >= 4; data += 4, size -= 4) {
        uint32_t block = kb_bswap32(kb_load_be32(data));
        block *= m;
        block ^= block >> 24;
        block *= m;
        hash = hash * m ^ block;
    }
    switch (size) {
    case 3: hash ^= (uint32_t)data[2] << 16; /* fall through */
    case 2: hash ^= (uint32_t)data[1] << 8;  /* fall through */
    case 1: hash = (hash ^ data[0]) * m;
    }
    hash ^= hash >> 13;
    hash *= m;
    return hash ^ hash >> 15;
}

/* The partition of BuiltInPartitioner.partitionForKey; `partitions` is positive. */
static inline int32_t kb_partition_for_key(const uint8_t *key, size_t size, int32_t partitions) {
    return (int32_t)((kb_murmur2(key, size) & 0x7fffffffu) % (uint32_t)partitions);
}

#endif
