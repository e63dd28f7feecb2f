from libc.stdint cimport int32_t, int64_t

from kbatch._native.batch.producer_batch cimport PartitionQueue, ProducerBatch
from kbatch._native.batch.table_outcome cimport BatchRows, TableOutcome
from kbatch._native.codec.c cimport kb_span
from kbatch._native.send.accumulator cimport RecordAccumulator, TopicInfo
from kbatch._native.send.cluster_view cimport ClusterView, TopicView


cdef class TableTopic:
    cdef str name
    cdef bytes _utf8
    cdef kb_span span                # of _utf8
    cdef int32_t number              # among those of the table
    cdef TopicInfo info
    cdef TopicView view              # of the present block
    cdef int32_t beyond              # the highest partition that rows name and `view` has not; -1: none
    cdef int64_t block               # the last one with rows of it
    cdef object error                # why it gets no rows any more
    cdef int32_t sticky_part
    cdef int32_t *part_of            # by partition; -1: not in use
    cdef int32_t _part_of_size

    cdef int look_up(self, ClusterView view, RecordAccumulator accumulator) except -1


cdef class PartitionRows:                     # to a partition, or to whichever is a topic's sticky one
    cdef TableTopic topic
    cdef PartitionQueue queue        # None: the sticky one's
    cdef int64_t partition_key       # topic and partition, as BatchRows have them
    cdef ProducerBatch batch         # that was open when it was last looked at, and what it has of the table
    cdef BatchRows rows
    cdef int64_t next                # of the block's rows by part, those that are to come
    cdef int64_t end


cdef class TableTopics:
    cdef RecordAccumulator _accumulator
    cdef TableOutcome _outcome
    cdef list _kept_topics
    cdef void **topics               # borrowed from _kept_topics
    cdef int32_t topic_count
    cdef int32_t _topic_capacity
    cdef bytes _fallback             # of rows that name none; None: there may be none
    cdef kb_span _fallback_span
    cdef int32_t *_slots             # numbers of topics by the hash of their names; -1: free
    cdef int32_t _slot_count
    cdef int64_t _block
    cdef list kept_parts
    cdef void **parts                # borrowed from kept_parts
    cdef int32_t part_count
    cdef int32_t _part_capacity

    cdef TableTopic add(self, str name)
    cdef int _grow_slots(self) except -1
    cdef int32_t _free_slot(self, const kb_span *name) noexcept nogil
    cdef bint _is(self, int32_t number, const kb_span *name) noexcept nogil
    cdef int32_t _number_of(self, const kb_span *name) except -2 nogil
    cdef int64_t number_rows(self, const kb_span *names, int64_t count, int32_t *numbers) except -1 nogil
    cdef list unknown(self, ClusterView view)
    cdef list lacking(self)
    cdef int refuse(self, str name, object error) except -1
    cdef int32_t part_to(self, TableTopic topic, int32_t partition) except -1 nogil
    cdef int32_t _add_part(self, TableTopic topic, int32_t partition) except -1
