"""How far the program is from the ends of the logs that it reads, by what the last answers said of them.

Every question is answered from what is known at that moment, also between polls. Any thread may ask.

After org.apache.kafka.clients.consumer.internals.SubscriptionState.partitionLag and partitionLead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbatch.core.consumer.partition_state import PartitionState


class Distances:
    """The distances of positions from the ends of their logs.

    Parameters
    ----------
    reads_committed : bool
        True if the last stable offset is the end of a log.

    Attributes
    ----------
    position_of : callable
        Returns the program's next offset in a partition that is read; -1 if it is not known. By default it is
        after what the program has released (`ReadingEngine.release`).
    """

    def __init__(self, *, reads_committed: bool) -> None:
        self._reads_committed = reads_committed
        self.position_of: Callable[[PartitionState], int] = lambda state: state.read_offset

    def end_of(self, state: PartitionState) -> int:
        """Return the end of the log for this client; -1 if no answer has said it."""
        return state.last_stable_offset if self._reads_committed else state.high_watermark

    def lag(self, state: PartitionState, end_offset: int | None = None) -> int | None:
        """Return the number of offsets from the position to the end of the log, or to `end_offset`; None if
        it is not known.
        """
        position, end = self.position_of(state), self.end_of(state) if end_offset is None else end_offset
        return None if position < 0 or end < 0 else max(end - position, 0)

    def lead(self, state: PartitionState) -> int | None:
        """Return the number of offsets from the beginning of the log to the position; None if that is not
        known.
        """
        position, start = self.position_of(state), state.log_start_offset
        return None if position < 0 or start < 0 else max(position - start, 0)
