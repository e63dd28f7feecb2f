"""TableTopics: the topics of a table's rows, and the parts to their partitions.

Theory of operation. A table has one topic, or a column that names them. The names of a block's rows become
numbers, in order of first appearance. Most rows have the name of the row before, and otherwise a hash table
knows it. Only a new name needs the GIL. Then, once a block, each topic with rows in it is looked up in the
current cluster: missing ones are waited for, or are refused and get no more rows.

A topic has a part for rows without a chosen partition, the sticky one, and one for every partition with rows.
Parts of all topics are numbered together, a topic's sticky one before its others.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memset

from kbatch._native.batch.table_outcome cimport TableOutcome, partition_key_of
from kbatch._native.codec.c cimport kb_is_utf8, kb_murmur2, kb_span
from kbatch._native.codec.memory cimport grown
from kbatch._native.send.accumulator cimport RecordAccumulator
from kbatch._native.send.cluster_view cimport ClusterView

cdef enum:
    FEWEST_SLOTS = 16


@cython.final
cdef class TableTopic:
    """A topic of rows."""

    def __dealloc__(self):
        free(self.part_of)

    cdef int look_up(self, ClusterView view, RecordAccumulator accumulator) except -1:
        """Record its current state; `view` stays None if it is unknown."""
        cdef int32_t count
        self.beyond = -1
        self.view = view.topic(self.name)
        if self.view is None or self.view.partition_count == 0:
            self.view = None
            return 0
        if self.info is None:  # the accumulator gets no names without a topic
            self.info = accumulator.info_of(self.name)
        count = self.view.partition_count
        if self._part_of_size < count:
            self.part_of = <int32_t *>grown(self.part_of, count * sizeof(int32_t))
            memset(self.part_of + self._part_of_size, 0xFF, (count - self._part_of_size) * sizeof(int32_t))
            self._part_of_size = count
        return 0


@cython.final
cdef class PartitionRows:
    """The rows for a partition."""


@cython.final
cdef class TableTopics:
    """The topics of one table. `fallback` has the rows that name none; with None there are no such rows."""

    def __init__(self, RecordAccumulator accumulator not None, TableOutcome outcome not None, str fallback):
        self._accumulator = accumulator
        self._outcome = outcome
        self._kept_topics = []
        self.kept_parts = []
        self._fallback_span.size = -1
        if fallback is not None:
            self._fallback = fallback.encode()
            self._fallback_span = span_of(self._fallback)
        self._grow_slots()

    def __dealloc__(self):
        free(self.topics)
        free(self._slots)
        free(self.parts)

    cdef TableTopic add(self, str name):
        """Add a topic to the table."""
        cdef TableTopic topic = TableTopic.__new__(TableTopic)
        topic.name = name
        topic._utf8 = name.encode()
        topic.span = span_of(topic._utf8)
        topic.number = self.topic_count
        topic.beyond = -1
        if self.topic_count == self._topic_capacity:
            self._topic_capacity = 2 * self.topic_count + 1
            self.topics = <void **>grown(self.topics, self._topic_capacity * sizeof(void *))
        if 2 * (self.topic_count + 1) > self._slot_count:
            self._grow_slots()
        topic.sticky_part = self._add_part(topic, -1)
        self._kept_topics.append(topic)
        self._outcome.topics.append(name)
        self.topics[topic.number] = <void *>topic
        self._slots[self._free_slot(&topic.span)] = topic.number
        self.topic_count += 1
        return topic

    # Topics of rows

    cdef int64_t number_rows(self, const kb_span *names, int64_t count, int32_t *numbers) except -1 nogil:
        """Find the topic of each row of the next block. Return `count`, or the first row without one."""
        cdef int32_t number = -1
        cdef const kb_span *name
        cdef int64_t i
        self._block += 1
        for i in range(count):
            name = &names[i] if names[i].size >= 0 else &self._fallback_span
            if number < 0 or not self._is(number, name):
                number = -1 if name.size < 0 else self._number_of(name)
                if number < 0:
                    return i
                (<TableTopic>self.topics[number]).block = self._block
            numbers[i] = number
        return count

    cdef bint _is(self, int32_t number, const kb_span *name) noexcept nogil:
        cdef const kb_span *known = &(<TableTopic>self.topics[number]).span
        return known.size == name.size and (name.size == 0 or memcmp(known.data, name.data, name.size) == 0)

    cdef int32_t _number_of(self, const kb_span *name) except -2 nogil:
        """Return -1 if the name is invalid, because it is not UTF-8."""
        cdef int32_t number = self._slots[self._free_slot(name)]
        if number >= 0 or not kb_is_utf8(name.data, name.size):
            return number
        with gil:
            return self.add(name.data[:name.size].decode()).number

    cdef int32_t _free_slot(self, const kb_span *name) noexcept nogil:
        """Return the slot of a name; a free one if the name is new."""
        cdef uint32_t slot = kb_murmur2(name.data, name.size) & <uint32_t>(self._slot_count - 1)
        while self._slots[slot] >= 0 and not self._is(self._slots[slot], name):
            slot = (slot + 1) & <uint32_t>(self._slot_count - 1)
        return <int32_t>slot

    cdef int _grow_slots(self) except -1:
        cdef TableTopic topic
        cdef int32_t count = max(FEWEST_SLOTS, 2 * self._slot_count)
        self._slots = <int32_t *>grown(self._slots, count * sizeof(int32_t))
        self._slot_count = count
        memset(self._slots, 0xFF, count * sizeof(int32_t))
        for topic in self._kept_topics:
            self._slots[self._free_slot(&topic.span)] = topic.number
        return 0

    # Their state

    cdef list unknown(self, ClusterView view):
        """Return the topics of the block's rows that the known cluster lacks: (topic, None)."""
        cdef TableTopic topic
        cdef list names = []
        for topic in self._kept_topics:
            if topic.block == self._block and topic.error is None:
                topic.look_up(view, self._accumulator)
                if topic.view is None:
                    names.append((topic.name, None))
        return names

    cdef list lacking(self):
        """Return the topics whose partitions, named in the block, the known cluster lacks: (topic, the
        highest such partition).
        """
        cdef TableTopic topic
        return [(topic.name, topic.beyond) for topic in self._kept_topics
                if topic.block == self._block and topic.error is None and topic.beyond >= 0]

    cdef int refuse(self, str name, object error) except -1:
        """Give the topic no more rows."""
        cdef bytes utf8 = name.encode()
        cdef kb_span span = span_of(utf8)
        cdef int32_t number = self._slots[self._free_slot(&span)]
        if number >= 0:
            (<TableTopic>self.topics[number]).error = error
            (<TableTopic>self.topics[number]).beyond = -1
            self._outcome.refuse_topic(number, error)
        return 0

    cdef int32_t part_to(self, TableTopic topic, int32_t partition) except -1 nogil:
        if topic.part_of[partition] < 0:
            with gil:
                topic.part_of[partition] = self._add_part(topic, partition)
        return topic.part_of[partition]

    cdef int32_t _add_part(self, TableTopic topic, int32_t partition) except -1:
        """`partition` -1 is the sticky one."""
        cdef PartitionRows part = PartitionRows.__new__(PartitionRows)
        part.topic = topic
        part.partition_key = partition_key_of(topic.number, partition)
        if partition >= 0:
            part.queue = self._accumulator.queue_of(topic.info, partition)
        if self.part_count == self._part_capacity:
            self._part_capacity = 2 * self.part_count + 8
            self.parts = <void **>grown(self.parts, self._part_capacity * sizeof(void *))
        self.kept_parts.append(part)
        self.parts[self.part_count] = <void *>part
        self.part_count += 1
        return self.part_count - 1


cdef kb_span span_of(bytes name) noexcept:
    cdef kb_span span
    span.data = <const uint8_t *>PyBytes_AS_STRING(name)
    span.size = PyBytes_GET_SIZE(name)
    return span
