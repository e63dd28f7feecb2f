/* Finds the ends of zstd frames (RFC 8878, section 3.1): the bindings' stream reader ends before a truncated
 * frame without an error, so lengths are checked first. Nothing is decoded. */
#ifndef KBATCH_ZSTD_FRAMES_H
#define KBATCH_ZSTD_FRAMES_H

#include "bytes.h"

/* The logarithm of the largest window that is decoded: the limit of zstd itself and of Java's binding. */
enum { KB_ZSTD_WINDOW_LOG = 27 };

static inline uint32_t kb_load_le(const uint8_t *from, int size) {
    uint32_t value = 0;
    for (int i = 0; i < size; i++)
        value |= (uint32_t)from[i] << (8 * i);
    return value;
}

/* Return the size of the magic, the descriptor and its fields: window, dictionary id, content size. */
static inline size_t kb_zstd_header_size(uint8_t descriptor) {
    static const uint8_t dictionary_sizes[4] = {0, 1, 2, 4}, content_sizes[4] = {0, 2, 4, 8};
    int single_segment = descriptor >> 5 & 1, content = descriptor >> 6;
    return 5 + !single_segment + dictionary_sizes[descriptor & 3] +
           (content == 0 && single_segment ? 1 : content_sizes[content]);
}

/* True if `size` bytes are whole frames, including skippable ones, up to the very end. */
static inline int kb_zstd_frames_whole(const uint8_t *at, size_t size) {
    if (size == 0)
        return 0;
    while (size) {
        if (size < 8)
            return 0;
        size_t step;
        if ((kb_load_le(at, 4) & 0xfffffff0u) == 0x184d2a50u) {
            step = 8 + (size_t)kb_load_le(at + 4, 4);
        } else {
            uint8_t descriptor = at[4];
            step = kb_zstd_header_size(descriptor);
            for (int last = 0; !last;) {
                if (size < step + 3)
                    return 0;
                at += step, size -= step;
                uint32_t block = kb_load_le(at, 3);
                last = block & 1;
                step = 3 + ((block >> 1 & 3) == 1 ? 1 : block >> 3); /* a run stores its byte once */
            }
            step += descriptor & 4; /* a checksum of 4 bytes */
        }
        if (step > size)
            return 0;
        at += step, size -= step;
    }
    return 1;
}

#endif
