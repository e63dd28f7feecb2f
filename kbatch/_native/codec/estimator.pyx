"""CompressionRatioEstimator: how small a batch will get, learnt from the batches before it.

Kafka's rule (org.apache.kafka.common.record.CompressionRatioEstimator; the seeds of this project say that it
rises by at most 0.05, Kafka's code rises at once): per topic and codec, from 1.0, the estimate rises at once
to a ratio observed above it, by 0.05 at least, and falls towards one below it by 0.005 at most. A batch's
size is then estimated with the ratio x 1.05. In Java the state is static, shared by all producers of a
process; here it belongs to its owner.
"""

cimport cython
from libc.math cimport isfinite

from kbatch._native.codec.c cimport kb_updated_ratio
from kbatch._native.codec.compression cimport codec_id_of


@cython.final
cdef class TopicRatios:
    """The ratios of one topic, by codec id; safe to call from any thread, without the GIL."""

    def __cinit__(self):
        cdef int codec_id
        for codec_id in range(5):
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
        # setdefault is atomic: two threads that meet a new topic get the same object
        return ratios if ratios is not None else self._topics.setdefault(topic, TopicRatios())

    def estimate(self, str topic not None, codec):
        """The present estimate, 1.0 at first; without the factor of 1.05 that a writer adds."""
        return self.ratios_of(topic).estimate(codec_id_of(codec))

    def update(self, str topic not None, codec, double observed):
        """Learns from a sealed batch's ratio and returns the new estimate; ValueError unless it is positive.
        """
        return self.ratios_of(topic).update(codec_id_of(codec), _checked(observed))

    def reset(self, str topic not None, codec, double observed):
        """After a batch had to be split: the estimate becomes max(1.0, observed)."""
        self.ratios_of(topic).reset(codec_id_of(codec), _checked(observed))
