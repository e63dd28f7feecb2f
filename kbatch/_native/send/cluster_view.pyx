"""ClusterView: the leaders of partitions, for the accumulator. It is immutable; new metadata creates a new
one.
"""

cimport cython
from libc.stdint cimport int32_t
from libc.stdlib cimport free

from kbatch._native.codec.memory cimport grown


@cython.final
cdef class TopicView:
    """The partitions of a topic, from 0: pairs of (leader's node id, leader epoch), -1 if unknown."""

    def __init__(self, partitions):
        cdef int32_t i
        cdef list pairs = list(partitions)
        cdef int32_t count = len(pairs)
        if self.leaders != NULL:
            raise TypeError("a TopicView does not change")
        self.leaders = <int32_t *>grown(NULL, 3 * count * sizeof(int32_t))
        self.leader_epochs = self.leaders + count
        self.available = self.leader_epochs + count
        self.partition_count = count
        for i in range(count):
            self.leaders[i], self.leader_epochs[i] = pairs[i]
            if self.leaders[i] >= 0:
                self.available[self.available_count] = i
                self.available_count += 1

    def __dealloc__(self):
        free(self.leaders)

    @property
    def available_partitions(self):
        """The partitions that have a leader, in order."""
        if self._available_partitions is None:
            self._available_partitions = tuple([self.available[i] for i in range(self.available_count)])
        return self._available_partitions


@cython.final
cdef class ClusterView:
    """Topics by name, each with its partitions: a TopicView, or what that takes."""

    def __init__(self, topics=()):
        self._topics = {
            name: partitions if isinstance(partitions, TopicView) else TopicView(partitions)
            for name, partitions in dict(topics).items()
        }

    def partition_count(self, str topic not None):
        """Return 0 if the topic is unknown."""
        cdef TopicView view = self.topic(topic)
        return 0 if view is None else view.partition_count

    def leader(self, str topic not None, int32_t partition):
        """Return the node id of the partition's leader; -1 if unknown."""
        cdef TopicView view = self.topic(topic)
        if view is None or not 0 <= partition < view.partition_count:
            return -1
        return view.leaders[partition]

    def leader_epoch(self, str topic not None, int32_t partition):
        """Return -1 if it is unknown."""
        cdef TopicView view = self.topic(topic)
        if view is None or not 0 <= partition < view.partition_count:
            return -1
        return view.leader_epochs[partition]

    cdef TopicView topic(self, str name):
        return self._topics.get(name)
