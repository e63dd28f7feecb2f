/* Random numbers from a seed (splitmix64): for partitions and back-off, not for secrets. */
#ifndef KBATCH_RANDOM_H
#define KBATCH_RANDOM_H

#include <stdint.h>

static inline uint64_t kb_random_next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* From 0.0 up to 1.0, exclusive. */
static inline double kb_random_fraction(uint64_t *state) {
    return (double)(kb_random_next(state) >> 11) * 0x1.0p-53;
}

#endif
