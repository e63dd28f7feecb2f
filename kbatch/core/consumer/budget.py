"""The budget of bytes: those that are requested, and those that the program has not read yet.

Theory of operation. A Fetch reserves the bytes that it asks for before it goes out. Its answer replaces them
by the size of its frame, which is charged until the last of its pieces is released: they are views of one
memory. So memory stays within the limit, except for a batch that is larger than it, which comes alone.

A request asks for at most half of the limit, divided by the number of nodes, so that every node can
always be asked. A partition whose unread bytes exceed its share of the other half is left out of requests;
the others are still fetched.

A poll that waits for more rows than were fetched (RowsAwaited) lifts the shares, and learns when the other
half is used up.

After KIP-81, which Kafka's consumer never got.
"""

from __future__ import annotations

from collections.abc import Callable


class Budget:
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
    """

    __slots__ = ("limit", "reserved", "unread")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = self.unread = 0

    @property
    def used(self) -> int:
        """The bytes that are reserved or charged."""
        return self.reserved + self.unread

    def request_bytes(self, node_count: int) -> int:
        """Return the most that a request to one of so many nodes may ask for."""
        return max(self.limit // (2 * max(node_count, 1)), 1)

    def backlog_bytes(self, partition_count: int, *, is_shared: bool = True) -> int:
        """Return the unread bytes above which one of so many partitions is left out: its share of half of the
        memory. Unless that `is_shared`, any partition may use it up.
        """
        if not is_shared and self.unread <= self.limit // 2:
            return self.limit
        return self.limit // (2 * max(partition_count, 1))

    def reserve(self, size_bytes: int) -> bool:
        """Reserve bytes if they are free, or if no others are used. Return False if there is no memory."""
        if self.used and self.used + size_bytes > self.limit:
            return False
        self.reserved += size_bytes
        return True

    def end_reservation(self, size_bytes: int) -> None:
        """Return reserved bytes to the budget."""
        self.reserved -= size_bytes

    def charge(self, size_bytes: int) -> None:
        """Charge bytes that have arrived, whatever the limit."""
        self.unread += size_bytes

    def release(self, size_bytes: int) -> None:
        """Return charged bytes to the budget."""
        self.unread -= size_bytes


class RowsAwaited:
    """A poll that waits for more rows than were fetched.

    Parameters
    ----------
    notify : callable
        Called when `is_memory_used_up` has changed.

    Attributes
    ----------
    is_memory_used_up : bool
        True if partitions are not fetched, since what the program has not read takes the memory.
    """

    __slots__ = ("_notify", "is_memory_used_up")

    def __init__(self, notify: Callable[[], object]) -> None:
        self._notify = notify
        self.is_memory_used_up = False

    def note(self, is_memory_used_up: bool) -> None:
        """Record whether the memory is used up, after the requests that are possible were sent."""
        if is_memory_used_up is not self.is_memory_used_up:
            self.is_memory_used_up = is_memory_used_up
            self._notify()


class FrameShare:
    """The memory of one answer, charged to the budget until its last piece is released.

    Attributes
    ----------
    piece_bytes : int
        The part of a piece, by which partitions are compared.
    """

    __slots__ = ("_budget", "_frame_bytes", "_piece_count", "piece_bytes")

    def __init__(self, budget: Budget, frame_bytes: int, piece_count: int) -> None:
        self._budget = budget
        self._frame_bytes = frame_bytes
        self._piece_count = piece_count
        self.piece_bytes = frame_bytes // piece_count

    def release(self) -> None:
        """Release one of the pieces."""
        self._piece_count -= 1
        if self._piece_count == 0:
            self._budget.release(self._frame_bytes)
