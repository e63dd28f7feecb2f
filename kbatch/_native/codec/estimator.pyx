"""CompressionRatioEstimator: the expected compression of a batch, learnt from earlier batches.

This is the rule of org.apache.kafka.common.record.CompressionRatioEstimator, per topic and codec. From 1.0
the estimate rises at once to a higher observed ratio, by at least 0.05. It falls towards a lower one by at
most 0.005. A batch's size is then estimated with the ratio x 1.05. In Java the state is static, shared by all
producers of a process; here it belongs to its owner.
"""

cimport cython
from libc.math cimport isfinite

from kbatch._native.codec.c cimport kb_updated_ratio
from kbatch._native.codec.compression cimport codec_id_of


@cython.final
cdef class TopicRatios:
    """The ratios of one topic, by codec id; any thread may call it, without the GIL."""

    def __cinit__(self):
        cdef int codec_id
        for codec_id in range(KB_CODEC_COUNT):
            self._by_codec[codec_id] = 1.0

    cdef double estimate(self, int codec_id) noexcept nogil:
        with self._lock:
            return self._by_codec[codec_id]

    cdef double update(self, int codec_id, double observed) noexcept nogil:
        with self._lock:
            self._by_codec[codec_id] = kb_updated_ratio(self._by_codec[codec_id], observed)
            return self._by_codec[codec_id]

    cdef void reset(self, int codec_id, double observed) noexcept nogil:
        with self._lock:
            self._by_codec[codec_id] = observed if observed > 1.0 else 1.0


cdef double _checked(double observed) except -1:
    if not isfinite(observed) or observed <= 0:
        raise ValueError(f"observed must be a positive number, compressed bytes / uncompressed bytes, "
                         f"got {observed}")
    return observed


@cython.final
cdef class CompressionRatioEstimator:
    """Estimates of compressed / uncompressed bytes of a batch's records, per topic and codec; thread-safe."""

    def __init__(self):
        self._topics = {}

    cdef TopicRatios ratios_of(self, str topic):
        ratios = self._topics.get(topic)
        # setdefault is atomic: two threads with a new topic get the same object
        return ratios if ratios is not None else self._topics.setdefault(topic, TopicRatios())

    def estimate(self, str topic not None, codec):
        """Return the current estimate, 1.0 at first, without a writer's factor of 1.05."""
        return self.ratios_of(topic).estimate(codec_id_of(codec))

    def update(self, str topic not None, codec, double observed):
        """Learn from a sealed batch's ratio and return the new estimate. Raise ValueError unless it is
        positive.
        """
        return self.ratios_of(topic).update(codec_id_of(codec), _checked(observed))

    def reset(self, str topic not None, codec, double observed):
        """Set the estimate to max(1.0, observed), after a batch had to be split."""
        self.ratios_of(topic).reset(codec_id_of(codec), _checked(observed))
