"""Releases: how the program gives the memory of results back, on any thread."""

cimport cython
from libc.stdint cimport int64_t

from kbatch._native.fetch.budget cimport kb_budget_is_crowded
from kbatch._native.fetch.fetched cimport Fetched
from kbatch._native.fetch.reading cimport PartitionReading, RoadState
from kbatch._native.flags cimport kb_count_store, kb_flag_load


@cython.final
cdef class Releases:
    """Returns the memory of a result to the budget, when the program no longer has `fetched.records` or views
    of it: `releases(fetched, row_count)`. A second call has no effect. `row_count` is the number of its
    records that the program got. The call is true if the engine's owner must be woken; otherwise an answer is
    due, and its next run is soon enough.

    Parameters
    ----------
    road : FetchRoad
    consumed : deque of (PartitionReading, int)
        Gets the partitions of which the program got records, and how many; nothing that has their memory.
    look_again : callable
        Makes the engine look for what may be fetched, at its next run.
    """

    def __init__(self, RoadState road not None, consumed, look_again):
        self._road, self._consumed, self._look_again = road, consumed, look_again

    def __call__(self, Fetched fetched not None, int64_t row_count=0):
        return self.give_back(fetched, row_count)

    cdef bint is_memory_used_up(self) noexcept:
        """True if what the program has not read keeps requests back."""
        return kb_budget_is_crowded(self._road._road.budget)

    cdef bint give_back(self, Fetched fetched, int64_t row_count) except -1:
        cdef PartitionReading reading = fetched.state
        kb_count_store(&reading._read_offset, fetched.next_offset)
        if row_count:
            self._consumed.append((reading, row_count))
        fetched.let_go()
        if not kb_flag_load(&self._road._road.awaits_memory):
            return False
        self._look_again()
        return True
