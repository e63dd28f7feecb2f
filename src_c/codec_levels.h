/* Kafka's compression levels (KIP-390) as those of the codecs' libraries. */
#ifndef KBATCH_CODEC_LEVELS_H
#define KBATCH_CODEC_LEVELS_H

#include <limits.h>

/* No level was given. */
#define KB_DEFAULT_LEVEL INT_MIN

/* zlib's level nearest to isal's level 2, in time and in size: the default without isal. */
enum {
    KB_ZLIB_FAST_LEVEL = 1,
    KB_ISAL_LEVEL = 2
};

/* True for the default, which isal writes; the others are zlib's. */
static inline int kb_gzip_is_fast(int level) {
    return level == KB_DEFAULT_LEVEL || level == -1;
}

static inline int kb_zlib_level(int level) {
    return kb_gzip_is_fast(level) ? KB_ZLIB_FAST_LEVEL : level;
}

/* Java's 9, its default, is the fast compressor; every other level of 1..17 is high compression, 3..12. */
static inline int kb_lz4_level(int level) {
    if (level == KB_DEFAULT_LEVEL || level == 9)
        return 0;
    return level < 3    ? 3
           : level > 12 ? 12
                        : level;
}

static inline int kb_zstd_level(int level) {
    return level == KB_DEFAULT_LEVEL ? 3 : level;
}

#endif
