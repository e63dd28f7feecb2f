/* The ids of codecs, the low three bits of a batch's attributes; kbatch/codecs.py has their names. */
#ifndef KBATCH_CODEC_IDS_H
#define KBATCH_CODEC_IDS_H

enum {
    KB_CODEC_NONE,
    KB_CODEC_GZIP,
    KB_CODEC_SNAPPY,
    KB_CODEC_LZ4,
    KB_CODEC_ZSTD,
    KB_CODEC_COUNT
};

static inline int kb_codec_is_known(int codec) {
    return codec >= 0 && codec < KB_CODEC_COUNT;
}

#endif
