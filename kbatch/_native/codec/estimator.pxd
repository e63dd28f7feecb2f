from cython cimport pymutex


cdef class TopicRatios:
    cdef double[5] _by_codec
    cdef pymutex _lock

    cdef double estimate(self, int codec_id) noexcept nogil
    cdef double update(self, int codec_id, double observed) noexcept nogil
    cdef void reset(self, int codec_id, double observed) noexcept nogil


cdef class CompressionRatioEstimator:
    cdef dict _topics

    cdef TopicRatios ratios_of(self, str topic)
