/* The codecs in the shared libraries that Python's packages bring along, called without Python.
 *
 * The packages lz4, zstandard and isal, and Python's own zlib, are extensions that contain or load the C
 * libraries of their codecs. Where these symbols are visible, they are called directly: no GIL, no object, no
 * copy. Their structs are declared here by their public ABI. A library is used only after it gave a known
 * version and decoded a known stream; wherever anything differs, the codec's package does the work.
 *
 * Contexts are expensive to make, and belong to one thread at a time. A few idle ones are kept. */
#ifndef KBATCH_CODEC_LIBRARIES_H
#define KBATCH_CODEC_LIBRARIES_H

#include <stdlib.h>

#include "codec_levels.h"
#include "codec_sink.h"
#include "codec_ids.h"
#include "short_lock.h"
#include "snappy.h"
#include "zstd_frames.h"

#if defined(_WIN32)
/* Extensions of Windows export nothing but their initialization. */
static inline void *kb_library_open(const char *path) {
    (void)path;
    return NULL;
}

static inline void *kb_library_symbol(void *library, const char *name) {
    (void)library, (void)name;
    return NULL;
}
#else
#include <dlfcn.h>

/* Return the library, which stays loaded; "" is the program itself. */
static inline void *kb_library_open(const char *path) {
    return dlopen(*path ? path : NULL, RTLD_LAZY | RTLD_LOCAL);
}

/* Look also in the libraries that the library loads. */
static inline void *kb_library_symbol(void *library, const char *name) {
    return dlsym(library, name);
}
#endif

typedef struct {
    const char *name;
    void *target; /* where the pointer to the function goes */
} kb_library_import;

static inline int kb_library_resolve(void *library, const kb_library_import *imports, size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *symbol = kb_library_symbol(library, imports[i].name);
        if (symbol == NULL)
            return 0;
        memcpy(imports[i].target, &symbol, sizeof symbol);
    }
    return 1;
}

#define KB_RESOLVE(library, imports) kb_library_resolve(library, imports, sizeof(imports) / sizeof *(imports))

/* Idle contexts, by kind. */
enum {
    KB_LZ4_DECODER,
    KB_ZSTD_DECODER,
    KB_ZSTD_ENCODER,
    KB_ISAL_DECODER,
    KB_ISAL_ENCODER,
    KB_CONTEXT_KINDS
};
enum { KB_IDLE_CONTEXTS = 8 };
/* A larger context is freed after use: a hostile frame makes zstd's as large as its window, 128 MiB. */
enum { KB_LARGEST_IDLE_CONTEXT = 16 << 20 };

typedef struct {
    kb_lock lock;
    int counts[KB_CONTEXT_KINDS];
    void *idle[KB_CONTEXT_KINDS][KB_IDLE_CONTEXTS];
} kb_codec_contexts;

static kb_codec_contexts kb_contexts;

/* Return an idle context, or NULL. */
static inline void *kb_context_take(int kind) {
    void *context = NULL;
    kb_lock_acquire(&kb_contexts.lock);
    if (kb_contexts.counts[kind])
        context = kb_contexts.idle[kind][--kb_contexts.counts[kind]];
    kb_lock_release(&kb_contexts.lock);
    return context;
}

/* Keep a context; return 0 if there are enough. */
static inline int kb_context_keep(int kind, void *context) {
    int keeps;
    kb_lock_acquire(&kb_contexts.lock);
    keeps = kb_contexts.counts[kind] < KB_IDLE_CONTEXTS;
    if (keeps)
        kb_contexts.idle[kind][kb_contexts.counts[kind]++] = context;
    kb_lock_release(&kb_contexts.lock);
    return keeps;
}

/* lz4frame.h, LZ4F_VERSION 100 */

enum {
    KB_LZ4_VERSION = 100,
    KB_LZ4_64_KIB = 4,
    KB_LZ4_INDEPENDENT = 1
};

typedef struct {
    int block_size, block_mode, content_checksum, frame_type;
    unsigned long long content_size;
    unsigned dictionary_id, block_checksum;
    int level;
    unsigned auto_flush, favors_decoding, reserved[3];
} kb_lz4_preferences;

static struct {
    unsigned (*version)(void);
    unsigned (*is_error)(size_t result);
    const char *(*error_name)(size_t result);
    size_t (*new_decoder)(void **decoder, unsigned version);
    size_t (*free_decoder)(void *decoder);
    size_t (*decode)(void *decoder, void *target, size_t *target_size, const void *source,
                     size_t *source_size, const void *options);
    size_t (*bound)(size_t size, const kb_lz4_preferences *preferences);
    size_t (*encode)(void *target, size_t room, const void *source, size_t size,
                     const kb_lz4_preferences *preferences);
} kb_lz4;

static inline int kb_lz4_resolve(void *library) {
    const kb_library_import imports[] = {
        {"LZ4F_getVersion", &kb_lz4.version},
        {"LZ4F_isError", &kb_lz4.is_error},
        {"LZ4F_getErrorName", &kb_lz4.error_name},
        {"LZ4F_createDecompressionContext", &kb_lz4.new_decoder},
        {"LZ4F_freeDecompressionContext", &kb_lz4.free_decoder},
        {"LZ4F_decompress", &kb_lz4.decode},
        {"LZ4F_compressFrameBound", &kb_lz4.bound},
        {"LZ4F_compressFrame", &kb_lz4.encode},
    };
    return KB_RESOLVE(library, imports) && kb_lz4.version() == KB_LZ4_VERSION;
}

static inline kb_codec_status kb_lz4_frames(void *decoder, const uint8_t *at, size_t left,
                                            const kb_codec_sink *sink) {
    size_t wanted = kb_sink_first_room(left), result;
    do {
        size_t room = kb_sink_room(sink, wanted), step = left;
        kb_codec_status status;
        if (room == 0)
            return kb_sink_no_memory(sink);
        wanted = KB_CODEC_WINDOW;
        result = kb_lz4.decode(decoder, sink->memory->data + sink->memory->used, &room, at, &step, NULL);
        if (kb_lz4.is_error(result))
            return kb_sink_fail(sink, KB_CODEC_CORRUPT, "%s", kb_lz4.error_name(result));
        if (room == 0 && step == 0 && (left || result))
            return kb_sink_ends_early(sink);
        at += step, left -= step;
        status = kb_sink_add(sink, room);
        if (status)
            return status;
    } while (left || result); /* 0 at the end of a frame */
    return KB_CODEC_OK;
}

static inline kb_codec_status kb_lz4_decode(const uint8_t *data, size_t size, const kb_codec_sink *sink) {
    void *decoder = kb_context_take(KB_LZ4_DECODER);
    kb_codec_status status;
    if (decoder == NULL && kb_lz4.is_error(kb_lz4.new_decoder(&decoder, KB_LZ4_VERSION)))
        return kb_sink_no_memory(sink);
    status = kb_lz4_frames(decoder, data, size, sink);
    /* after a failure, even a reset keeps the content size of the frame */
    if (status || !kb_context_keep(KB_LZ4_DECODER, decoder))
        kb_lz4.free_decoder(decoder);
    return status;
}

/* One frame of independent 64 KiB blocks, without checksums and content size (KIP-57). */
static inline kb_codec_status kb_lz4_encode(const uint8_t *data, size_t size, int level,
                                            const kb_codec_sink *sink) {
    kb_lz4_preferences preferences = {.block_size = KB_LZ4_64_KIB, .block_mode = KB_LZ4_INDEPENDENT};
    preferences.level = kb_lz4_level(level);
    size_t room = kb_lz4.bound(size, &preferences), result;
    if (kb_sink_room(sink, room) < room)
        return kb_sink_no_memory(sink);
    result = kb_lz4.encode(sink->memory->data + sink->memory->used, room, data, size, &preferences);
    if (kb_lz4.is_error(result))
        return kb_sink_fail(sink, KB_CODEC_CORRUPT, "%s", kb_lz4.error_name(result));
    return kb_sink_add(sink, result);
}

/* zstd.h, versions 1.4 (the first stable streaming API) and later */

enum {
    KB_ZSTD_OLDEST_VERSION = 10400,
    KB_ZSTD_LATEST_VERSION = 19999,
    KB_ZSTD_SESSION = 1,          /* ZSTD_reset_session_only */
    KB_ZSTD_LEVEL = 100,          /* ZSTD_c_compressionLevel */
    KB_ZSTD_WINDOW_LOG_MAX = 100, /* ZSTD_d_windowLogMax */
    KB_ZSTD_CORRUPTED = 20,       /* ZSTD_error_corruption_detected */
    KB_ZSTD_NO_ROOM = 70          /* ZSTD_error_dstSize_tooSmall */
};

typedef struct {
    void *data;
    size_t size, at;
} kb_zstd_output;

typedef struct {
    const void *data;
    size_t size, at;
} kb_zstd_input;

static struct {
    unsigned (*version)(void);
    unsigned (*is_error)(size_t result);
    const char *(*error_name)(size_t result);
    void *(*new_decoder)(void);
    size_t (*free_decoder)(void *decoder);
    size_t (*reset_decoder)(void *decoder, int what);
    size_t (*set_decoder)(void *decoder, int parameter, int value);
    size_t (*decoder_size)(const void *decoder);
    size_t (*decode)(void *decoder, kb_zstd_output *output, kb_zstd_input *input);
    unsigned long long (*content_size)(const void *source, size_t size);
    void *(*new_encoder)(void);
    size_t (*free_encoder)(void *encoder);
    size_t (*set_encoder)(void *encoder, int parameter, int value);
    size_t (*encoder_size)(const void *encoder);
    size_t (*bound)(size_t size);
    size_t (*encode)(void *encoder, void *target, size_t room, const void *source, size_t size);
} kb_zstd;

static inline int kb_zstd_resolve(void *library) {
    const kb_library_import imports[] = {
        {"ZSTD_versionNumber", &kb_zstd.version},
        {"ZSTD_isError", &kb_zstd.is_error},
        {"ZSTD_getErrorName", &kb_zstd.error_name},
        {"ZSTD_createDCtx", &kb_zstd.new_decoder},
        {"ZSTD_freeDCtx", &kb_zstd.free_decoder},
        {"ZSTD_DCtx_reset", &kb_zstd.reset_decoder},
        {"ZSTD_DCtx_setParameter", &kb_zstd.set_decoder},
        {"ZSTD_sizeof_DCtx", &kb_zstd.decoder_size},
        {"ZSTD_decompressStream", &kb_zstd.decode},
        {"ZSTD_getFrameContentSize", &kb_zstd.content_size},
        {"ZSTD_createCCtx", &kb_zstd.new_encoder},
        {"ZSTD_freeCCtx", &kb_zstd.free_encoder},
        {"ZSTD_CCtx_setParameter", &kb_zstd.set_encoder},
        {"ZSTD_sizeof_CCtx", &kb_zstd.encoder_size},
        {"ZSTD_compressBound", &kb_zstd.bound},
        {"ZSTD_compress2", &kb_zstd.encode},
    };
    return KB_RESOLVE(library, imports) && kb_zstd.version() >= KB_ZSTD_OLDEST_VERSION &&
           kb_zstd.version() <= KB_ZSTD_LATEST_VERSION;
}

/* Return the first room to ask for. A frame that fits into the room is decoded in place, so its content size
 * is believed as far as the compressed bytes make it likely; no value and an error are sizes beyond that. */
static inline size_t kb_zstd_first_room(const uint8_t *data, size_t size) {
    unsigned long long claim = kb_zstd.content_size(data, size);
    size_t room = kb_sink_first_room(size);
    return claim > room && claim / 16 <= size ? (size_t)claim : room;
}

/* Return why a stream does not decompress. A decoder of streams asks for more room when it needs it, so
 * what finds no room is a block of more bytes than its frame claims; the room decides which of the two
 * errors that is. */
static inline const char *kb_zstd_reason(size_t result) {
    if (result == (size_t)0 - KB_ZSTD_NO_ROOM)
        result = (size_t)0 - KB_ZSTD_CORRUPTED;
    return kb_zstd.error_name(result);
}

static inline kb_codec_status kb_zstd_frames(void *decoder, const uint8_t *data, size_t size,
                                             const kb_codec_sink *sink) {
    kb_zstd_input input = {data, size, 0};
    size_t wanted = kb_zstd_first_room(data, size), result;
    do {
        kb_zstd_output output = {NULL, kb_sink_room(sink, wanted), 0};
        size_t before = input.at;
        kb_codec_status status;
        if (output.size == 0)
            return kb_sink_no_memory(sink);
        wanted = KB_CODEC_WINDOW;
        output.data = sink->memory->data + sink->memory->used;
        result = kb_zstd.decode(decoder, &output, &input);
        if (kb_zstd.is_error(result))
            return kb_sink_fail(sink, KB_CODEC_CORRUPT, "%s", kb_zstd_reason(result));
        if (output.at == 0 && input.at == before && (input.at < size || result))
            return kb_sink_ends_early(sink);
        status = kb_sink_add(sink, output.at);
        if (status)
            return status;
    } while (input.at < size || result); /* 0 at the end of a frame */
    return KB_CODEC_OK;
}

static inline kb_codec_status kb_zstd_decode(const uint8_t *data, size_t size, const kb_codec_sink *sink) {
    void *decoder;
    kb_codec_status status;
    if (!kb_zstd_frames_whole(data, size))
        return kb_sink_ends_early(sink);
    decoder = kb_context_take(KB_ZSTD_DECODER);
    if (decoder == NULL) {
        decoder = kb_zstd.new_decoder();
        if (decoder == NULL)
            return kb_sink_no_memory(sink);
        kb_zstd.set_decoder(decoder, KB_ZSTD_WINDOW_LOG_MAX, KB_ZSTD_WINDOW_LOG);
    }
    status = kb_zstd_frames(decoder, data, size, sink);
    kb_zstd.reset_decoder(decoder, KB_ZSTD_SESSION);
    if (kb_zstd.decoder_size(decoder) > KB_LARGEST_IDLE_CONTEXT || !kb_context_keep(KB_ZSTD_DECODER, decoder))
        kb_zstd.free_decoder(decoder);
    return status;
}

/* One frame with its content size. */
static inline kb_codec_status kb_zstd_encode(const uint8_t *data, size_t size, int level,
                                             const kb_codec_sink *sink) {
    size_t room = kb_zstd.bound(size), result;
    void *encoder;
    if (kb_sink_room(sink, room) < room)
        return kb_sink_no_memory(sink);
    encoder = kb_context_take(KB_ZSTD_ENCODER);
    if (encoder == NULL && (encoder = kb_zstd.new_encoder()) == NULL)
        return kb_sink_no_memory(sink);
    result = kb_zstd.set_encoder(encoder, KB_ZSTD_LEVEL, kb_zstd_level(level));
    if (!kb_zstd.is_error(result))
        result = kb_zstd.encode(encoder, sink->memory->data + sink->memory->used, room, data, size);
    if (kb_zstd.encoder_size(encoder) > KB_LARGEST_IDLE_CONTEXT || !kb_context_keep(KB_ZSTD_ENCODER, encoder))
        kb_zstd.free_encoder(encoder);
    if (kb_zstd.is_error(result))
        return kb_sink_fail(sink, KB_CODEC_CORRUPT, "%s", kb_zstd.error_name(result));
    return kb_sink_add(sink, result);
}

/* igzip_lib.h of ISA-L 2.30 to 2.x: 64-bit systems only */

enum {
    KB_ISAL_GZIP = 1,    /* IGZIP_GZIP and ISAL_GZIP: header and trailer are written, and checked */
    KB_ISAL_FINISHED = 5, /* ISAL_BLOCK_FINISH */
    KB_ISAL_FULL_FLUSH = 2,
    KB_ISAL_LEVEL_BYTES = 331776, /* ISAL_DEF_LVL2_DEFAULT */
    KB_ISAL_TABLE_BYTES = 18912 + 2208, /* of both Huffman codes */
    KB_ISAL_STATE_BYTES = 128 << 10,    /* more than either struct, which have some 87,000 bytes */
    KB_ISAL_STEP = 1 << 30              /* bytes that a call gets at most; their counts have 32 bits */
};

/* The first fields of struct inflate_state. */
typedef struct {
    uint8_t *next_out;
    uint32_t out_left, total_out;
    const uint8_t *next_in;
    uint64_t bits;
    uint32_t in_left;
    int32_t bit_count;
    uint8_t tables[KB_ISAL_TABLE_BYTES];
    uint32_t block_state, dictionary_length, is_last_block, wrapper, crc;
} kb_isal_decoder;

/* The first fields of struct isal_zstream. */
typedef struct {
    const uint8_t *next_in;
    uint32_t in_left, total_in;
    uint8_t *next_out;
    uint32_t out_left, total_out;
    void *tables;
    uint32_t level, level_bytes;
    uint8_t *level_data;
    uint16_t is_last, flush, wrapper, history_bits;
} kb_isal_encoder;

static struct {
    void (*init_decoder)(void *decoder);
    int (*decode)(void *decoder);
    void (*init_encoder)(void *encoder);
    int (*encode)(void *encoder);
} kb_isal;

static inline int kb_isal_resolve(void *library) {
    const kb_library_import imports[] = {
        {"isal_inflate_init", &kb_isal.init_decoder},
        {"isal_inflate", &kb_isal.decode},
        {"isal_deflate_init", &kb_isal.init_encoder},
        {"isal_deflate", &kb_isal.encode},
    };
    return sizeof(void *) == 8 && KB_RESOLVE(library, imports);
}

static inline const char *kb_isal_error(int result) {
    static const struct {
        int result;
        const char *text;
    } errors[] = {
        {-1, "a deflate block is invalid"},
        {-2, "a deflate symbol is invalid"},
        {-3, "a deflate distance is too large"},
        {-4, "this is no gzip header"},
        {-5, "the compression method is unknown"},
        {-6, "the checksum is wrong"},
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].result == result)
            return errors[i].text;
    return "the gzip stream is invalid";
}

/* Decode one member; `at` then is after it. */
static inline kb_codec_status kb_isal_member(kb_isal_decoder *decoder, const uint8_t **at, const uint8_t *end,
                                             size_t *wanted, const kb_codec_sink *sink) {
    kb_isal.init_decoder(decoder);
    decoder->wrapper = KB_ISAL_GZIP;
    decoder->next_in = *at;
    decoder->in_left = 0;
    do {
        size_t room = kb_sink_room(sink, *wanted), left;
        uint32_t given_out, given_in;
        int result;
        kb_codec_status status;
        if (room == 0)
            return kb_sink_no_memory(sink);
        *wanted = KB_CODEC_WINDOW;
        left = (size_t)(end - decoder->next_in);
        given_in = decoder->in_left = left < KB_ISAL_STEP ? (uint32_t)left : KB_ISAL_STEP;
        given_out = decoder->out_left = room < KB_ISAL_STEP ? (uint32_t)room : KB_ISAL_STEP;
        decoder->next_out = sink->memory->data + sink->memory->used;
        result = kb_isal.decode(decoder);
        if (result)
            return kb_sink_fail(sink, KB_CODEC_CORRUPT, "%s", kb_isal_error(result));
        if (decoder->block_state != KB_ISAL_FINISHED && decoder->in_left == given_in &&
            decoder->out_left == given_out)
            return kb_sink_ends_early(sink);
        status = kb_sink_add(sink, given_out - decoder->out_left);
        if (status)
            return status;
    } while (decoder->block_state != KB_ISAL_FINISHED);
    *at = decoder->next_in - decoder->bit_count / 8; /* what it read in advance */
    return KB_CODEC_OK;
}

static inline kb_codec_status kb_isal_decode(const uint8_t *data, size_t size, const kb_codec_sink *sink) {
    const uint8_t *at = data, *end = data + size;
    size_t wanted = kb_sink_first_room(size);
    kb_codec_status status;
    kb_isal_decoder *decoder = kb_context_take(KB_ISAL_DECODER);
    if (decoder == NULL && (decoder = calloc(1, KB_ISAL_STATE_BYTES)) == NULL)
        return kb_sink_no_memory(sink);
    do {
        status = kb_isal_member(decoder, &at, end, &wanted, sink);
    } while (status == KB_CODEC_OK && at < end);
    if (!kb_context_keep(KB_ISAL_DECODER, decoder))
        free(decoder);
    return status;
}

/* Return a bound that deflate keeps by stored blocks; more room is made if it does not. */
static inline size_t kb_gzip_bound(size_t size) {
    return size + size / 1000 + 1024;
}

static inline kb_codec_status kb_isal_member_of(kb_isal_encoder *encoder, const uint8_t *data, size_t size,
                                                const kb_codec_sink *sink) {
    const uint8_t *end = data + size;
    kb_isal.init_encoder(encoder);
    encoder->level = KB_ISAL_LEVEL;
    encoder->level_data = (uint8_t *)encoder + KB_ISAL_STATE_BYTES;
    encoder->level_bytes = KB_ISAL_LEVEL_BYTES;
    encoder->wrapper = KB_ISAL_GZIP;
    encoder->next_in = data;
    do {
        size_t left = (size_t)(end - encoder->next_in), room;
        uint32_t given;
        kb_codec_status status;
        room = kb_sink_room(sink, kb_gzip_bound(left));
        if (room == 0)
            return kb_sink_no_memory(sink);
        encoder->in_left = left < KB_ISAL_STEP ? (uint32_t)left : KB_ISAL_STEP;
        encoder->is_last = left < KB_ISAL_STEP;
        encoder->flush = encoder->is_last ? KB_ISAL_FULL_FLUSH : 0;
        given = encoder->out_left = room < KB_ISAL_STEP ? (uint32_t)room : KB_ISAL_STEP;
        encoder->next_out = sink->memory->data + sink->memory->used;
        if (kb_isal.encode(encoder))
            return kb_sink_fail(sink, KB_CODEC_CORRUPT, "isal does not compress");
        status = kb_sink_add(sink, given - encoder->out_left);
        if (status)
            return status;
    } while (!encoder->is_last || encoder->out_left == 0);
    return KB_CODEC_OK;
}

static inline kb_codec_status kb_isal_encode(const uint8_t *data, size_t size, int level,
                                             const kb_codec_sink *sink) {
    (void)level; /* only the default */
    kb_codec_status status;
    kb_isal_encoder *encoder = kb_context_take(KB_ISAL_ENCODER);
    if (encoder == NULL && (encoder = calloc(1, KB_ISAL_STATE_BYTES + KB_ISAL_LEVEL_BYTES)) == NULL)
        return kb_sink_no_memory(sink);
    status = kb_isal_member_of(encoder, data, size, sink);
    if (!kb_context_keep(KB_ISAL_ENCODER, encoder))
        free(encoder);
    return status;
}

/* zlib.h, versions 1.x: it checks the size of the struct itself */

enum {
    KB_ZLIB_OK,
    KB_ZLIB_END,
    KB_ZLIB_MEMORY = -4,
    KB_ZLIB_NO_PROGRESS = -5
};
enum {
    KB_ZLIB_GZIP = 31,
    KB_ZLIB_DEFLATED = 8,
    KB_ZLIB_MEMORY_LEVEL = 8,
    KB_ZLIB_FINISH = 4
};

typedef struct {
    const uint8_t *next_in;
    unsigned in_left;
    unsigned long total_in;
    uint8_t *next_out;
    unsigned out_left;
    unsigned long total_out;
    const char *message;
    void *state, *allocate, *release, *opaque;
    int data_type;
    unsigned long checksum, reserved;
} kb_zlib_stream;

static struct {
    const char *(*version)(void);
    int (*init_decoder)(kb_zlib_stream *stream, int window_bits, const char *version, int size);
    int (*reset_decoder)(kb_zlib_stream *stream);
    int (*decode)(kb_zlib_stream *stream, int flush);
    int (*end_decoder)(kb_zlib_stream *stream);
    int (*init_encoder)(kb_zlib_stream *stream, int level, int method, int window_bits, int memory_level,
                        int strategy, const char *version, int size);
    int (*encode)(kb_zlib_stream *stream, int flush);
    int (*end_encoder)(kb_zlib_stream *stream);
} kb_zlib;

static inline int kb_zlib_resolve(void *library) {
    const kb_library_import imports[] = {
        {"zlibVersion", &kb_zlib.version},
        {"inflateInit2_", &kb_zlib.init_decoder},
        {"inflateReset", &kb_zlib.reset_decoder},
        {"inflate", &kb_zlib.decode},
        {"inflateEnd", &kb_zlib.end_decoder},
        {"deflateInit2_", &kb_zlib.init_encoder},
        {"deflate", &kb_zlib.encode},
        {"deflateEnd", &kb_zlib.end_encoder},
    };
    return KB_RESOLVE(library, imports) && kb_zlib.version()[0] == '1';
}

static inline kb_codec_status kb_zlib_failed(const kb_zlib_stream *stream, int result,
                                             const kb_codec_sink *sink) {
    if (result == KB_ZLIB_MEMORY)
        return kb_sink_no_memory(sink);
    return kb_sink_fail(sink, KB_CODEC_CORRUPT, "%s",
                        stream->message ? stream->message : "the gzip stream is invalid");
}

/* Give the stream its input, up to `end`, and all the room there is; return that room, 0 without memory. */
static inline unsigned kb_zlib_feed(kb_zlib_stream *stream, const uint8_t *end, size_t wanted,
                                    const kb_codec_sink *sink) {
    size_t left = (size_t)(end - stream->next_in), room = kb_sink_room(sink, wanted);
    stream->in_left = left < KB_ISAL_STEP ? (unsigned)left : KB_ISAL_STEP;
    stream->out_left = room < KB_ISAL_STEP ? (unsigned)room : KB_ISAL_STEP;
    stream->next_out = sink->memory->data + sink->memory->used;
    return stream->out_left;
}

static inline kb_codec_status kb_zlib_members(kb_zlib_stream *stream, const uint8_t *data, size_t size,
                                              const kb_codec_sink *sink) {
    size_t wanted = kb_sink_first_room(size);
    int result;
    stream->next_in = data;
    do {
        unsigned given = kb_zlib_feed(stream, data + size, wanted, sink);
        kb_codec_status status;
        if (given == 0)
            return kb_sink_no_memory(sink);
        wanted = KB_CODEC_WINDOW;
        result = kb_zlib.decode(stream, 0);
        if (result == KB_ZLIB_NO_PROGRESS)
            return kb_sink_ends_early(sink);
        if (result != KB_ZLIB_OK && result != KB_ZLIB_END)
            return kb_zlib_failed(stream, result, sink);
        status = kb_sink_add(sink, given - stream->out_left);
        if (status)
            return status;
        if (result == KB_ZLIB_END)
            kb_zlib.reset_decoder(stream);
    } while (result != KB_ZLIB_END || stream->next_in < data + size);
    return KB_CODEC_OK;
}

static inline kb_codec_status kb_zlib_decode(const uint8_t *data, size_t size, const kb_codec_sink *sink) {
    kb_zlib_stream stream = {0};
    kb_codec_status status;
    int result = kb_zlib.init_decoder(&stream, KB_ZLIB_GZIP, kb_zlib.version(), (int)sizeof stream);
    if (result)
        return kb_zlib_failed(&stream, result, sink);
    status = kb_zlib_members(&stream, data, size, sink);
    kb_zlib.end_decoder(&stream);
    return status;
}

static inline kb_codec_status kb_zlib_encode(const uint8_t *data, size_t size, int level,
                                             const kb_codec_sink *sink) {
    kb_zlib_stream stream = {0};
    kb_codec_status status = KB_CODEC_OK;
    int result = kb_zlib.init_encoder(&stream, kb_zlib_level(level), KB_ZLIB_DEFLATED, KB_ZLIB_GZIP,
                                      KB_ZLIB_MEMORY_LEVEL, 0, kb_zlib.version(), (int)sizeof stream);
    if (result)
        return kb_zlib_failed(&stream, result, sink);
    stream.next_in = data;
    while (status == KB_CODEC_OK && result != KB_ZLIB_END) {
        size_t left = (size_t)(data + size - stream.next_in);
        unsigned given = kb_zlib_feed(&stream, data + size, kb_gzip_bound(left), sink);
        if (given == 0) {
            status = kb_sink_no_memory(sink);
            break;
        }
        result = kb_zlib.encode(&stream, left <= KB_ISAL_STEP ? KB_ZLIB_FINISH : 0);
        status = kb_sink_add(sink, given - stream.out_left);
        if (result != KB_ZLIB_OK && result != KB_ZLIB_END && result != KB_ZLIB_NO_PROGRESS)
            status = kb_zlib_failed(&stream, result, sink);
    }
    kb_zlib.end_encoder(&stream);
    return status;
}

/* The table of codecs. */

typedef kb_codec_status (*kb_decode_function)(const uint8_t *data, size_t size, const kb_codec_sink *sink);
typedef kb_codec_status (*kb_encode_function)(const uint8_t *data, size_t size, int level,
                                              const kb_codec_sink *sink);

static inline kb_codec_status kb_copy_encode(const uint8_t *data, size_t size, int level,
                                             const kb_codec_sink *sink) {
    kb_memory *memory = sink->memory;
    (void)level;
    if (memory->capacity - memory->used < size && !sink->extend(memory, size))
        return kb_sink_no_memory(sink);
    memcpy(memory->data + memory->used, data, size);
    memory->used += size;
    return KB_CODEC_OK;
}

static inline kb_codec_status kb_copy_decode(const uint8_t *data, size_t size, const kb_codec_sink *sink) {
    return kb_copy_encode(data, size, KB_DEFAULT_LEVEL, sink);
}

/* Which library writes the default level, and which an explicit one; NULL: the package. */
static kb_encode_function kb_gzip_fast, kb_gzip_exact;

static kb_codec_status kb_gzip_encode(const uint8_t *data, size_t size, int level,
                                      const kb_codec_sink *sink) {
    kb_encode_function encode = kb_gzip_is_fast(level) ? kb_gzip_fast : kb_gzip_exact;
    return encode ? encode(data, size, level, sink) : KB_CODEC_NO_LIBRARY;
}

typedef struct {
    kb_decode_function decode; /* NULL: the package does it */
    kb_encode_function encode;
    int is_loaded; /* set last, once */
} kb_codec;

/* By id, the low three bits of a batch's attributes. */
static kb_codec kb_codecs[KB_CODEC_COUNT] = {{kb_copy_decode, kb_copy_encode, 1}};

#if defined(_MSC_VER)
#define KB_IS_SET(flag) (*(volatile int *)&(flag))
#define KB_SET(flag) (*(volatile int *)&(flag) = 1)
#else
#define KB_IS_SET(flag) __atomic_load_n(&(flag), __ATOMIC_ACQUIRE)
#define KB_SET(flag) __atomic_store_n(&(flag), 1, __ATOMIC_RELEASE)
#endif

/* True for an unknown codec too, so that it reaches the functions below, which refuse it. */
static inline int kb_codec_is_loaded(int codec) {
    return !kb_codec_is_known(codec) || KB_IS_SET(kb_codecs[codec].is_loaded);
}

static inline int kb_codec_is_native(int codec) {
    return kb_codec_is_known(codec) && kb_codecs[codec].decode != NULL;
}

static inline kb_codec_status kb_codec_is_unknown(int codec, const kb_codec_sink *sink) {
    return kb_sink_fail(sink, KB_CODEC_CORRUPT, "compression codec %d is unknown", codec);
}

/* Append the bytes of a stream to the sink's memory. A failure leaves it as it was, and says why. */
static inline kb_codec_status kb_codec_decode(int codec, const uint8_t *data, size_t size,
                                              const kb_codec_sink *sink) {
    kb_decode_function decode;
    kb_codec_status status;
    if (!kb_codec_is_known(codec))
        return kb_codec_is_unknown(codec, sink);
    decode = kb_codecs[codec].decode;
    if (decode == NULL)
        return KB_CODEC_NO_LIBRARY;
    if (size == 0 && codec != KB_CODEC_NONE)
        return kb_sink_ends_early(sink);
    if (kb_sink_room(sink, 1) == 0) /* even no bytes have an address */
        return kb_sink_no_memory(sink);
    status = decode(size ? data : (const uint8_t *)"", size, sink);
    if (status)
        sink->memory->used = sink->start;
    return status;
}

static inline kb_codec_status kb_codec_encode(int codec, const uint8_t *data, size_t size, int level,
                                              const kb_codec_sink *sink) {
    kb_encode_function encode;
    kb_codec_status status;
    if (!kb_codec_is_known(codec))
        return kb_codec_is_unknown(codec, sink);
    encode = kb_codecs[codec].encode;
    if (encode == NULL)
        return KB_CODEC_NO_LIBRARY;
    if (kb_sink_room(sink, 1) == 0)
        return kb_sink_no_memory(sink);
    status = encode(size ? data : (const uint8_t *)"", size, level, sink);
    if (status)
        sink->memory->used = sink->start;
    return status;
}

/* Loading. A library counts only if it decodes a stream of "hello", written by hand from its specification,
 * and reads what it writes itself. */

static int kb_never_extends(kb_memory *memory, size_t extra) {
    (void)memory, (void)extra;
    return 0;
}

typedef struct {
    uint8_t bytes[4096];
    kb_memory memory;
    kb_codec_fault fault;
    kb_codec_sink sink;
} kb_codec_trial;

static inline const kb_codec_sink *kb_trial_sink(kb_codec_trial *trial, size_t limit) {
    trial->memory = (kb_memory){trial->bytes, 0, sizeof trial->bytes};
    trial->sink = (kb_codec_sink){&trial->memory, kb_never_extends, 0, limit, &trial->fault};
    return &trial->sink;
}

static inline int kb_decodes(kb_decode_function decode, const uint8_t *stream, size_t size) {
    kb_codec_trial trial;
    return decode(stream, size, kb_trial_sink(&trial, 5)) == KB_CODEC_OK && trial.memory.used == 5 &&
           memcmp(trial.bytes, "hello", 5) == 0;
}

static inline int kb_reads_itself(kb_decode_function decode, kb_encode_function encode) {
    kb_codec_trial trial;
    return encode((const uint8_t *)"hello", 5, KB_DEFAULT_LEVEL, kb_trial_sink(&trial, sizeof trial.bytes)) ==
               KB_CODEC_OK &&
           kb_decodes(decode, trial.bytes, trial.memory.used);
}

/* Set a codec's functions; NULL where the package does it. */
static inline void kb_codec_install(int codec, kb_decode_function decode, kb_encode_function encode) {
    kb_codecs[codec].decode = decode;
    kb_codecs[codec].encode = encode;
    KB_SET(kb_codecs[codec].is_loaded);
}

/* Have the package do what needs a library: all but the reading of snappy. */
static inline void kb_codec_leave(int codec) {
    kb_codec_install(codec, codec == KB_CODEC_SNAPPY ? kb_snappy_decode : NULL, NULL);
}

static inline int kb_lz4_load(const char *path) {
    static const uint8_t stream[] = {4, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 5, 0, 0, 0x80, /* stored */
                                     'h', 'e', 'l', 'l', 'o', 0, 0, 0, 0};
    void *library = kb_library_open(path);
    if (!library || !kb_lz4_resolve(library) || !kb_decodes(kb_lz4_decode, stream, sizeof stream) ||
        !kb_reads_itself(kb_lz4_decode, kb_lz4_encode))
        return 0;
    kb_codec_install(KB_CODEC_LZ4, kb_lz4_decode, kb_lz4_encode);
    return 1;
}

static inline int kb_zstd_load(const char *path) {
    static const uint8_t stream[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 5, 0x29, 0, 0, /* a last, raw block */
                                     'h', 'e', 'l', 'l', 'o'};
    void *library = kb_library_open(path);
    if (!library || !kb_zstd_resolve(library) || !kb_decodes(kb_zstd_decode, stream, sizeof stream) ||
        !kb_reads_itself(kb_zstd_decode, kb_zstd_encode))
        return 0;
    kb_codec_install(KB_CODEC_ZSTD, kb_zstd_decode, kb_zstd_encode);
    return 1;
}

/* Both paths may be NULL. Without isal, zlib writes the default level too. */
static inline void kb_gzip_load(const char *isal_path, int isal_is_installed, const char *zlib_path) {
    static const uint8_t stream[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, /* header */
                                     0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, /* a fixed code */
                                     0x86, 0xa6, 0x10, 0x36, 5, 0, 0, 0};
    void *isal = isal_path ? kb_library_open(isal_path) : NULL;
    void *zlib = zlib_path ? kb_library_open(zlib_path) : NULL;
    int has_isal = isal && kb_isal_resolve(isal) && kb_decodes(kb_isal_decode, stream, sizeof stream) &&
                   kb_reads_itself(kb_isal_decode, kb_isal_encode);
    int has_zlib = zlib && kb_zlib_resolve(zlib) && kb_decodes(kb_zlib_decode, stream, sizeof stream) &&
                   kb_reads_itself(kb_zlib_decode, kb_zlib_encode);
    kb_gzip_exact = has_zlib ? kb_zlib_encode : NULL;
    kb_gzip_fast = has_isal            ? kb_isal_encode
                   : isal_is_installed ? NULL
                                       : kb_gzip_exact;
    kb_codec_install(KB_CODEC_GZIP,
                     has_isal   ? kb_isal_decode
                     : has_zlib ? kb_zlib_decode
                                : NULL,
                     kb_gzip_encode);
}

#endif
