"""The budget of bytes: those that are requested, and those that the program has not read yet.

Theory of operation. A Fetch reserves the bytes that it asks for before it goes out. Its answer replaces them
by the size of its frame, which is charged until the last of its results is released: they are views of one
memory. So memory stays within the limit, except for a batch that is larger than it, which comes alone.

A request asks for at most half of the limit, divided by the number of nodes, so that every node can
always be asked. A partition whose unread bytes exceed its share of the other half is left out of requests;
the others are still fetched. The formulas stand in src_c/fetch_budget.h.

After KIP-81, which Kafka's consumer never got.
"""

cimport cython
from libc.stdint cimport int64_t

from kbatch._native.flags cimport kb_count_add, kb_count_load


@cython.final
cdef class Budget:
    """The bytes of one client.

    Parameters
    ----------
    limit : int
        kbatch.fetch.buffer.memory.

    Attributes
    ----------
    reserved : int
        The bytes that are requested.
    unread : int
        The bytes that have arrived and were not released.
    used : int
        The bytes that are reserved or unread.
    """

    def __init__(self, int64_t limit):
        self.raw.limit = limit

    @property
    def limit(self):
        return self.raw.limit

    @property
    def reserved(self):
        return kb_count_load(&self.raw.reserved)

    @property
    def unread(self):
        return kb_count_load(&self.raw.unread)

    @property
    def used(self):
        return kb_budget_used(&self.raw)

    def request_bytes(self, int64_t node_count):
        """Return the most that a request to one of so many nodes may ask for."""
        return kb_budget_request_bytes(&self.raw, node_count)

    def backlog_bytes(self, int64_t partition_count, *, bint is_shared=True):
        """Return the unread bytes above which one of so many partitions is left out: its share of half of the
        memory. Unless that `is_shared`, any partition may use it up.
        """
        return kb_budget_backlog_bytes(&self.raw, partition_count, is_shared)

    def reserve(self, int64_t size_bytes):
        """Reserve bytes if they are free, or if no others are used. Return False if there is no memory."""
        return kb_budget_reserve(&self.raw, size_bytes)

    def end_reservation(self, int64_t size_bytes):
        """Return reserved bytes to the budget."""
        kb_count_add(&self.raw.reserved, -size_bytes)

    def charge(self, int64_t size_bytes):
        """Charge bytes that have arrived, whatever the limit."""
        kb_count_add(&self.raw.unread, size_bytes)

    def release(self, int64_t size_bytes):
        """Return charged bytes to the budget. Any thread may call this."""
        kb_count_add(&self.raw.unread, -size_bytes)


@cython.final
cdef class FrameShare:
    """The memory of one answer, charged to the budget until the last result in it is released.

    Parameters
    ----------
    budget : Budget
    frame_bytes, piece_count : int
        The size of the answer, and the number of results in it.

    Attributes
    ----------
    frame_bytes : int
    piece_bytes : int
        The part of a result, by which partitions are compared.
    """

    def __init__(self, Budget budget not None, int64_t frame_bytes, int64_t piece_count):
        self._budget = budget
        self.frame_bytes = frame_bytes
        self._piece_count = piece_count
        self.piece_bytes = frame_bytes // piece_count

    def release(self):
        """Release one of the results. Any thread may call this."""
        self.let_go()

    cdef void let_go(self) noexcept:
        if kb_count_add(&self._piece_count, -1) == 0:
            kb_count_add(&self._budget.raw.unread, -self.frame_bytes)
