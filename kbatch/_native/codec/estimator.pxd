from cython cimport pymutex

from kbatch._native.codec.codecs cimport KB_CODEC_COUNT


cdef class TopicRatios:
    cdef double[KB_CODEC_COUNT] _by_codec
    cdef pymutex _lock

    cdef double estimate(self, int codec_id) noexcept nogil
    cdef double update(self, int codec_id, double observed) noexcept nogil
    cdef void reset(self, int codec_id, double observed) noexcept nogil


cdef class CompressionRatioEstimator:
    cdef dict _topics

    cdef TopicRatios ratios_of(self, str topic)
