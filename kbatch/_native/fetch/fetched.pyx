"""Fetched: the records of a partition in one answer, and their part of the memory of the answer."""

cimport cython

from kbatch._native.fetch.budget cimport FrameShare
from kbatch._native.fetch.reading cimport PartitionReading

# A leader epoch that is not known.
cdef int32_t NO_EPOCH = -1


@cython.final
cdef class Fetched:
    """The records of a partition in one answer, not decoded yet. `ReadingEngine.release` gives back its
    memory.

    Parameters
    ----------
    state : PartitionState
        Its partition, generation and topic id are noted, which it may replace later.
    records, from_offset, next_offset, is_last, last_epoch, size_bytes
        Attributes.

    Attributes
    ----------
    partition : TopicPartition
    generation : int
    records : FetchedRecords or None
        None if there is nothing to read: the last piece of a range may be empty.
    from_offset, next_offset : int
        The position before and after it. All visible records in between are in `records`.
    topic_id : bytes
        The id of the topic; NO_TOPIC_ID.
    last_epoch : int
        The leader epoch of the last batch in between, which a commit of `next_offset` names; NO_EPOCH. It is
        known without `records`, too: markers at the beginning of an epoch are never read.
    is_last : bool
        True if the partition has reached its end offset: nothing comes after it.
    size_bytes : int
        The bytes of the records.
    state : PartitionState
    share : FrameShare or None
        Its part of the memory of an answer.
    charged_bytes : int
        What it adds to the backlog of its partition.
    """

    def __init__(self, state, FetchedRecords records, *, int64_t from_offset, int64_t next_offset,
                 bint is_last, int32_t last_epoch=NO_EPOCH, int64_t size_bytes=0):
        self.partition = state.partition
        self.generation = state.generation
        self.topic_id = state.topic_id
        self.records = records
        self.from_offset, self.next_offset = from_offset, next_offset
        self.last_epoch = last_epoch
        self.is_last = is_last
        self.size_bytes = size_bytes
        self.state = state

    def charge(self, FrameShare share not None):
        """Charge its part of an answer's memory, until `release`."""
        self.share = share
        self.charged_bytes = max(self.size_bytes, share.piece_bytes)
        self.state.charge(self.charged_bytes)

    def release(self):
        """Return the charged bytes to the budget. A second call has no effect. Any thread may call this."""
        self.let_go()

    cdef int let_go(self) except -1:
        cdef FrameShare share
        with cython.critical_section(self):
            share, self.share = self.share, None
        if share is not None:
            (<PartitionReading?>self.state).add_to_backlog(-self.charged_bytes)
            share.let_go()
        return 0

    @cython.critical_section
    cdef FetchedRecords records_now(self):
        """Return its records; None if a worker has let go of them."""
        return self.records

    def __repr__(self):
        end = ", the last" if self.is_last else ""
        return f"<{self.partition}: {self.from_offset} to {self.next_offset}{end}>"


cdef Fetched new_fetched(object state, FetchedRecords records, int64_t from_offset, int64_t next_offset,
                         bint is_last, int32_t last_epoch, int64_t size_bytes):
    """Return what Fetched(...) does."""
    cdef Fetched fetched = Fetched.__new__(Fetched)
    fetched.partition = state.partition
    fetched.generation = state.generation
    fetched.topic_id = state.topic_id
    fetched.records = records
    fetched.from_offset, fetched.next_offset = from_offset, next_offset
    fetched.last_epoch = last_epoch
    fetched.is_last = is_last
    fetched.size_bytes = size_bytes
    fetched.state = state
    return fetched
