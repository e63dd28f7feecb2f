/* Reads snappy: raw blocks (google/snappy, format_description.txt), and blocks in the framing of snappy-java,
 * which Kafka's clients write: a header of 16 bytes, then blocks, each after its size as an int32. */
#ifndef KBATCH_SNAPPY_H
#define KBATCH_SNAPPY_H

#include "codec_sink.h"

enum {
    KB_SNAPPY_STREAM_HEADER = 16, /* magic, version and compatible version; these come in either byte order */
    KB_SNAPPY_EXPANSION = 22      /* a copy of three bytes yields at most 64 */
};

static inline int kb_snappy_is_framed(const uint8_t *data, size_t size) {
    return size >= 8 && memcmp(data, "\x82SNAPPY", 8) == 0;
}

/* Read the length that a raw block claims, a varint of 32 bits. Return its bytes, 0 if there is none. */
static inline size_t kb_snappy_claim(const uint8_t *data, size_t size, uint32_t *claim) {
    uint64_t value = 0;
    for (size_t i = 0; i < size && i < 5; i++) {
        value |= (uint64_t)(data[i] & 0x7f) << (7 * i);
        if (data[i] < 0x80) {
            *claim = (uint32_t)value;
            return value <= UINT32_MAX ? i + 1 : 0;
        }
    }
    return 0;
}

/* Repeat the `length` bytes from `offset` before `to`, which may overlap them; `room` is there at `to`. */
static inline void kb_snappy_repeat(uint8_t *to, size_t offset, size_t length, size_t room) {
    const uint8_t *from = to - offset;
    if (offset >= 16 && room >= 64) { /* a copy has at most 64 bytes; what is beyond them is overwritten */
        for (size_t i = 0; i < length; i += 16)
            memcpy(to + i, from + i, 16);
        return;
    }
    for (; length > offset; offset *= 2) { /* a pattern: each copy doubles what there is of it */
        memcpy(to, from, offset);
        to += offset;
        length -= offset;
    }
    memcpy(to, from, length);
}

/* Decode the elements at `at` into exactly `room` bytes. Return what is wrong with them, or NULL. */
static inline const char *kb_snappy_elements(const uint8_t *at, const uint8_t *end, uint8_t *out,
                                             size_t room) {
    const uint8_t *start = out, *out_end = out + room;
    while (at < end) {
        uint8_t tag = *at++;
        size_t length = tag >> 2, extra, offset;
        if ((tag & 3) == 0) {
            if (length >= 60) {
                extra = length - 59;
                if ((size_t)(end - at) < extra)
                    return "the stream ends early";
                length = 0;
                for (size_t i = 0; i < extra; i++)
                    length |= (size_t)at[i] << (8 * i);
                at += extra;
            }
            length++;
            if (length > (size_t)(end - at))
                return "the stream ends early";
            if (length > (size_t)(out_end - out))
                return "a block is longer than it claims";
            if (length <= 16 && end - at >= 16 && out_end - out >= 16)
                memcpy(out, at, 16);
            else
                memcpy(out, at, length);
            at += length;
        } else {
            static const uint8_t extras[4] = {0, 1, 2, 4};
            extra = extras[tag & 3];
            if ((size_t)(end - at) < extra)
                return "the stream ends early";
            offset = 0;
            for (size_t i = 0; i < extra; i++)
                offset |= (size_t)at[i] << (8 * i);
            at += extra;
            if (extra == 1) {
                offset |= (size_t)(tag >> 5) << 8;
                length = (length & 7) + 4;
            } else {
                length++;
            }
            if (offset == 0 || offset > (size_t)(out - start))
                return "a copy refers to bytes before its block";
            if (length > (size_t)(out_end - out))
                return "a block is longer than it claims";
            kb_snappy_repeat(out, offset, length, (size_t)(out_end - out));
        }
        out += length;
    }
    return out == out_end ? NULL : "a block is shorter than it claims";
}

/* Decode a raw block, after checking the length that it claims. */
static inline kb_codec_status kb_snappy_block(const uint8_t *data, size_t size, const kb_codec_sink *sink) {
    uint32_t claim;
    size_t head = kb_snappy_claim(data, size, &claim);
    const char *fault;
    if (size == 0)
        return kb_sink_ends_early(sink);
    if (head == 0)
        return kb_sink_fail(sink, KB_CODEC_CORRUPT, "a block's length is a broken varint, or above 32 bits");
    if (claim > kb_sink_left(sink))
        return kb_sink_fail(sink, KB_CODEC_LIMIT,
                            "a block decompresses to %u bytes, above the limit (max_decompressed_bytes)",
                            (unsigned)claim);
    if (claim / KB_SNAPPY_EXPANSION > size)
        return kb_sink_fail(sink, KB_CODEC_CORRUPT,
                            "a block of %zu bytes cannot hold the %u bytes that it claims", size,
                            (unsigned)claim);
    if (kb_sink_room(sink, claim) < claim)
        return kb_sink_no_memory(sink);
    fault = kb_snappy_elements(data + head, data + size, sink->memory->data + sink->memory->used, claim);
    if (fault)
        return kb_sink_fail(sink, KB_CODEC_CORRUPT, "%s", fault);
    return kb_sink_add(sink, claim);
}

static inline kb_codec_status kb_snappy_decode(const uint8_t *data, size_t size, const kb_codec_sink *sink) {
    size_t at = KB_SNAPPY_STREAM_HEADER;
    if (!kb_snappy_is_framed(data, size))
        return kb_snappy_block(data, size, sink);
    while (at < size) {
        kb_codec_status status;
        int32_t length;
        if (kb_snappy_is_framed(data + at, size - at)) { /* consecutive streams, as snappy-java reads them */
            at += KB_SNAPPY_STREAM_HEADER;
            continue;
        }
        if (size - at < 4)
            return kb_sink_ends_early(sink);
        length = (int32_t)kb_load_be32(data + at);
        at += 4;
        if (length <= 0 || (size_t)length > size - at)
            return kb_sink_fail(sink, KB_CODEC_CORRUPT, "a block claims %d bytes, but %zu are left",
                                (int)length, size - at);
        status = kb_snappy_block(data + at, (size_t)length, sink);
        if (status)
            return status;
        at += (size_t)length;
    }
    return at == size ? KB_CODEC_OK : kb_sink_ends_early(sink);
}

#endif
