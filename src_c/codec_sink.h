/* Where the output of a decoder goes: memory that grows with what came out, up to a limit. */
#ifndef KBATCH_CODEC_SINK_H
#define KBATCH_CODEC_SINK_H

#include <stdarg.h>
#include <stdio.h>

#include "rows.h"

typedef enum {
    KB_CODEC_OK,
    KB_CODEC_CORRUPT,
    KB_CODEC_LIMIT,     /* the output is above the caller's limit */
    KB_CODEC_MEMORY,    /* no memory */
    KB_CODEC_NO_LIBRARY /* only the codec's package can do it, with the GIL */
} kb_codec_status;

/* The reason of a failure, in words: what is wrong with the data, never a size alone. */
typedef struct {
    char text[160];
} kb_codec_fault;

typedef struct {
    kb_memory *memory;
    int (*extend)(kb_memory *memory, size_t extra); /* 0 if there is no memory */
    size_t start;                                   /* of this output in the memory */
    size_t limit;                                   /* of this output's bytes */
    kb_codec_fault *fault;
} kb_codec_sink;

/* A decoder asks for at least so much room at a time; an lz4 block of this size is decoded in place. */
enum { KB_CODEC_WINDOW = 65536 };

static inline kb_codec_status kb_sink_fail(const kb_codec_sink *sink, kb_codec_status status,
                                           const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(sink->fault->text, sizeof sink->fault->text, format, values);
    va_end(values);
    return status;
}

static inline kb_codec_status kb_sink_no_memory(const kb_codec_sink *sink) {
    return kb_sink_fail(sink, KB_CODEC_MEMORY, "no memory");
}

static inline kb_codec_status kb_sink_ends_early(const kb_codec_sink *sink) {
    return kb_sink_fail(sink, KB_CODEC_CORRUPT, "the stream ends early");
}

/* Bytes that may still come out. */
static inline size_t kb_sink_left(const kb_codec_sink *sink) {
    return sink->limit - (sink->memory->used - sink->start);
}

/* Make room for `wanted` bytes; return all that there is, 0 without memory. One byte above the limit is room
 * too: only a decoder that fills it has exceeded the limit. */
static inline size_t kb_sink_room(const kb_codec_sink *sink, size_t wanted) {
    kb_memory *memory = sink->memory;
    size_t left = kb_sink_left(sink), room;
    left += left < SIZE_MAX;
    if (wanted > left)
        wanted = left;
    if (memory->capacity - memory->used < wanted && !sink->extend(memory, wanted))
        return 0;
    room = memory->capacity - memory->used;
    return room < left ? room : left;
}

/* Count what a decoder wrote into the room. */
static inline kb_codec_status kb_sink_add(const kb_codec_sink *sink, size_t size) {
    if (size > kb_sink_left(sink))
        return kb_sink_fail(sink, KB_CODEC_LIMIT,
                            "decompresses to more than the limit of %zu bytes (max_decompressed_bytes)",
                            sink->limit);
    sink->memory->used += size;
    return KB_CODEC_OK;
}

/* Return the first room to ask for: data mostly shrinks to a quarter or less. */
static inline size_t kb_sink_first_room(size_t compressed) {
    size_t room = compressed > SIZE_MAX / 4 ? compressed : 4 * compressed;
    return room > KB_CODEC_WINDOW ? room : KB_CODEC_WINDOW;
}

#endif
