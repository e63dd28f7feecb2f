# The ids of codecs; kbatch.codecs has what they are.

cdef extern from "codec_ids.h" nogil:
    enum:
        KB_CODEC_GZIP
        KB_CODEC_SNAPPY
        KB_CODEC_LZ4
        KB_CODEC_ZSTD
        KB_CODEC_COUNT

    bint kb_codec_is_known(int codec) noexcept
