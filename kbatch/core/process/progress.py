"""PartitionProgress: what of a partition is taken, what of that is finished, and what a commit says of it.

Theory of operation. The offsets of a partition are taken in order. Each is unfinished until its record is
finished; one without a record (compacted, a marker of a transaction) is finished when a later one is taken.
An earlier owner may have finished some already: `runs_ahead`, from the metadata of the committed offset.
These are taken without being processed.

The offset to commit and its metadata come from one state in one step: the first unfinished offset, and the
runs after it. Nothing else says what is finished.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import final

from kbatch.core.process.finished_runs import MOST_CHARACTERS, Run, encode_runs, merged
from kbatch.records import NO_TOPIC_ID, OffsetAndMetadata


@final
class PartitionProgress:
    """The progress in a partition, from one position on.

    Parameters
    ----------
    start : int
        The position: what is before it is finished.
    runs_ahead : iterable of (int, int)
        What is finished after it already, in order.
    leader_epoch : int
        That of the record before the position; -1 if unknown.
    topic_id : bytes

    Attributes
    ----------
    end : int
        The offset after what is taken.
    unfinished : list of int
        The taken offsets that are not finished, in order.
    taken_ns : list of int
        When each of those was taken.
    most_characters : int
        How long the metadata may be.
    is_cut : bool
        True if the last metadata did not have all that is finished.
    """

    def __init__(
        self,
        start: int,
        runs_ahead: Iterable[Run] = (),
        *,
        leader_epoch: int = -1,
        topic_id: bytes = NO_TOPIC_ID,
    ) -> None:
        self.end = start
        self.unfinished: list[int] = []
        self.taken_ns: list[int] = []
        self.runs_ahead = list(runs_ahead)
        self.topic_id = topic_id
        self.most_characters = MOST_CHARACTERS
        self.is_cut = False
        # the first offset after each change of the leader epoch: those of records before an offset are known
        self._epochs = [(start, leader_epoch)]

    @property
    def first_unfinished(self) -> int:
        """The offset to commit. It may be after `end`, if an earlier owner has finished what is next."""
        if self.unfinished:
            return self.unfinished[0]
        run = self.runs_ahead[0] if self.runs_ahead else (self.end, self.end)
        return run[1] if run[0] == self.end else self.end

    @property
    def span(self) -> int:
        """The number of offsets from the first unfinished one to the newest that is taken."""
        return max(self.end - self.first_unfinished, 0)

    def take(self, offset: int, leader_epoch: int, now_ns: int) -> bool:
        """Take the next offset with a record. Return False if that is finished already."""
        is_finished = self._is_ahead(offset)
        self.advance(offset + 1, leader_epoch)
        if not is_finished:
            self.unfinished.append(offset)
            self.taken_ns.append(now_ns)
        return not is_finished

    def _is_ahead(self, offset: int) -> bool:
        index = bisect_right(self.runs_ahead, (offset, 2**63)) - 1
        return index >= 0 and offset < self.runs_ahead[index][1]

    def advance(self, end: int, leader_epoch: int) -> None:
        """Take all offsets before `end`, which have no records."""
        if end > self.end:
            self.end = end
            if leader_epoch != self._epochs[-1][1]:
                self._epochs.append((end, leader_epoch))
            while self.runs_ahead and self.runs_ahead[0][1] <= end:
                del self.runs_ahead[0]
            if self.runs_ahead and self.runs_ahead[0][0] < end:
                self.runs_ahead[0] = (end, self.runs_ahead[0][1])

    def finish(self, offset: int) -> None:
        """Finish a taken offset. Raise ValueError if it is none that is unfinished."""
        index = bisect_left(self.unfinished, offset)
        if self.unfinished[index : index + 1] != [offset]:
            raise ValueError(f"offset {offset} is finished already, or was never taken")
        del self.unfinished[index], self.taken_ns[index]

    def truncate(self, offset: int) -> None:
        """Forget all from an offset on: the log has lost it, and has other records there."""
        index = bisect_left(self.unfinished, offset)
        del self.unfinished[index:], self.taken_ns[index:]
        self.runs_ahead = [(first, min(end, offset)) for first, end in self.runs_ahead if first < offset]
        self.end = min(self.end, offset)
        self._epochs = [each for each in self._epochs if each[0] <= offset] or [(offset, -1)]

    def runs(self) -> list[Run]:
        """Return what is finished after the first unfinished offset."""
        ends = [*(each for offset in self.unfinished for each in (offset, offset + 1)), self.end]
        taken = zip(ends[1::2], ends[2::2], strict=True)
        first = self.first_unfinished
        return merged(run for run in (*taken, *self.runs_ahead) if max(run[0], first) < run[1])

    def offset(self) -> OffsetAndMetadata:
        """Return what a commit says."""
        offset, runs = self.first_unfinished, self.runs()
        metadata, is_whole = encode_runs(offset, runs, self.topic_id, self.most_characters)
        self.is_cut = not is_whole
        return OffsetAndMetadata(offset, metadata, self._epoch_before(offset), self.topic_id)

    def _epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before an offset; what is before it is forgotten."""
        index = max(bisect_right(self._epochs, (offset, 2**31)) - 1, 0)
        del self._epochs[:index]
        return self._epochs[0][1]
