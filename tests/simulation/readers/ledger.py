"""GroupLedger: what is in the logs, what the group's readers got of it, and what they have committed.

Theory of operation. Writers note each record with its offset. A reader that has read a piece of a partition
shows it to the ledger: it has exactly the visible records between the piece's offsets, in order. A piece
begins where the previous one has ended, and the first one at an offset that the group had committed. So no
record comes twice between a commit and the next start, and none is left out.

The brokers' answers to commits are watched: an offset never goes back, and never passes what readers got.
Requests of connections that had ended may be executed later; commits among them count as excused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kbatch.records import TopicPartition
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.simulation.world.schedule import Schedule


END = 2**62


class WrittenTransaction:
    """A transaction of a writer.

    Attributes
    ----------
    is_committed : bool
        Readers of committed data see its records.
    may_be_committed : bool
        They may see them: its coordinator may have stored the decision, and the writer does not know.
    """

    __slots__ = ("is_committed", "may_be_committed", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_committed = self.may_be_committed = False


class WrittenRecord(NamedTuple):
    """A record of a log; `transaction` is None if it is visible anyway."""

    number: int
    transaction: WrittenTransaction | None


class WrittenLog:
    """The records of a partition.

    Attributes
    ----------
    start : int
        The records before were deleted.
    is_torn : bool
        An unclean election has replaced records that readers may have got.
    is_deleted : bool
        The topic was deleted: its unread records need not be read.
    """

    __slots__ = ("_offsets", "_records", "is_deleted", "is_torn", "start")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._records: list[WrittenRecord] = []
        self.start = 0
        self.is_torn = self.is_deleted = False

    def add(self, offset: int, record: WrittenRecord) -> None:
        self._offsets.append(offset)
        self._records.append(record)

    def cut(self, offset: int) -> None:
        """Forget the records from an offset on."""
        at = bisect_left(self._offsets, offset)
        del self._offsets[at:], self._records[at:]

    def visible(self, start: int, end: int, *, committed: bool) -> list[tuple[int, int]]:
        """Return offset and number of the records in a range that readers see."""
        first, last = bisect_left(self._offsets, start), bisect_left(self._offsets, end)
        return [
            (offset, record.number)
            for offset, record in zip(self._offsets[first:last], self._records[first:last], strict=True)
            if not committed or record.transaction is None or record.transaction.is_committed
        ]


class Piece:
    """What a reader has got of a piece of a partition, from `start` to `end`."""

    __slots__ = ("end", "rows", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.rows: list[tuple[int, int]] = []


class GroupLedger:
    """The notes of what was written, read and committed.

    Attributes
    ----------
    logs : dict of TopicPartition to WrittenLog
    got : set of int
        The numbers of the records that a reader got.
    outcomes : Counter of str
    records : dict of int to TopicPartition
        Where each record was written.
    may_rewind : dict of TopicPartition to int
        The offset to which a reader went back by a seek or a reset: commits may follow it.
    """

    def __init__(self, schedule: Schedule, *, reads_committed: bool) -> None:
        self._schedule = schedule
        self._reads_committed = reads_committed
        self.logs: dict[TopicPartition, WrittenLog] = {}
        self.got: set[int] = set()
        self.outcomes: Counter[str] = Counter()
        self.records: dict[int, TopicPartition] = {}
        self.may_rewind: dict[TopicPartition, int] = {}
        self._written: dict[int, WrittenRecord] = {}
        self._reached: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._forgotten: dict[TopicPartition, set[int]] = {}  # what coordinators knew and lost
        self._doubts_transactions = False
        self._deposed: dict[int, int] = {}  # since when a deposed coordinator is one, and until when

    # Writers

    def log(self, partition: TopicPartition) -> WrittenLog:
        return self.logs.setdefault(partition, WrittenLog())

    def write(
        self, partition: TopicPartition, offset: int, count: int, transaction: WrittenTransaction | None
    ) -> None:
        """Note records from an offset on, with the next numbers."""
        log = self.log(partition)
        for each in range(count):
            number = len(self.records)
            self.records[number] = partition
            self._written[number] = WrittenRecord(number, transaction)
            log.add(offset + each, self._written[number])

    def cut(
        self,
        partition: TopicPartition,
        offset: int,
        numbers: Iterable[tuple[int, int]] = (),
        *,
        is_clean: bool,
    ) -> None:
        """Note that a new leader's log goes on at an offset with these (offset, number) only."""
        log = self.log(partition)
        log.cut(offset)
        for each, number in numbers:
            log.add(each, self._written[number])
        if not is_clean:
            log.is_torn = True
            self.rewind(partition, offset)

    # Readers

    def rewind(self, partition: TopicPartition, offset: int) -> None:
        """Note that readers may go back to an offset."""
        self.may_rewind[partition] = min(offset, self.may_rewind.get(partition, offset))

    def check_start(self, partition: TopicPartition, offset: int, since_ns: int) -> None:
        """Check the first offset of a reader, which has looked for the committed one since a time."""
        history = self._committed.get(partition, [])
        # who asks a coordinator that does not know that there is another one gets what it knew then
        deposed = [since for since, until in self._deposed.items() if until >= since_ns]
        since_ns = min([since_ns, *deposed])
        before = [value for when_ns, value in history if when_ns < since_ns]
        allowed = {value for when_ns, value in history if when_ns >= since_ns}
        allowed.update(before[-1:])
        allowed.update(self._forgotten.get(partition, ()))  # whoever knew them may answer yet
        if not before:
            return  # by the reset policy, or a commit since then
        if offset not in allowed and not self.log(partition).is_torn:
            raise Violation(f"{partition} is read from {offset}, and the group has committed {allowed}")

    def get(self, partition: TopicPartition, piece: Piece, *, is_whole: bool) -> None:
        """Check what a reader got of a piece, so far or in all, and note it."""
        log = self.log(partition)
        self._reached[partition] = max(
            self._reached.get(partition, 0), piece.end if is_whole else piece.rows[-1][0] + 1
        )
        self.got.update(number for _, number in piece.rows)
        if log.is_torn:
            return
        end = piece.end if is_whole else piece.rows[-1][0] + 1
        rows = [row for row in piece.rows if not self._is_doubtful(row[1])]
        expected = self._visible(log, piece.start, end)
        if rows != expected:
            raise Violation(
                f"{partition} from {piece.start} to {end}, (offset, number): {_first(rows, expected)}"
            )

    def _visible(self, log: WrittenLog, start: int, end: int) -> list[tuple[int, int]]:
        """Return offset and number of the records in a range that readers must see."""
        visible = log.visible(start, end, committed=self._reads_committed)
        return [row for row in visible if not self._is_doubtful(row[1])]

    def _is_doubtful(self, number: int) -> bool:
        """True if readers may see a record or not: nothing tells how its transaction has ended."""
        transaction = self._written[number].transaction
        if not self._reads_committed or transaction is None:
            return False
        return self._doubts_transactions or transaction.may_be_committed

    def reach(self, partition: TopicPartition, offset: int) -> None:
        """Note that a reader's position is at an offset without having read up to it."""
        self._reached[partition] = max(self._reached.get(partition, 0), offset)

    def missing(self) -> list[tuple[TopicPartition, int, int]]:
        """Return partition, offset and number of visible records that no reader got."""
        return [
            (partition, offset, number)
            for partition, log in self.logs.items()
            if not log.is_deleted
            for offset, number in self._visible(log, log.start, END)
            if number not in self.got
        ]

    def doubt_transactions(self) -> None:
        """Note that coordinators have lost decisions: a committed transaction may have been aborted since."""
        self._doubts_transactions = True

    # Commits

    @property
    def has_forgotten(self) -> bool:
        """True if the group's coordinator has lost what was committed, and perhaps who owns what."""
        return bool(self._forgotten)

    def forget_commits(self) -> None:
        """Note that the coordinator has lost commits; those that it still has are noted again."""
        for partition, history in self._committed.items():
            self._forgotten.setdefault(partition, set()).update(offset for _, offset in history)
        self._committed.clear()

    def note_deposed(self, since_ns: int) -> None:
        """Note that a coordinator still answers that has not been the group's since a time."""
        self._deposed[since_ns] = self._schedule.now_ns

    def committed(self, partition: TopicPartition) -> int | None:
        """Return the offset that the group has committed."""
        history = self._committed.get(partition)
        return history[-1][1] if history else None

    def note_commit(self, partition: TopicPartition, offset: int, *, is_late: bool) -> None:
        """Check an offset that the coordinator has taken."""
        before = self.committed(partition)
        self._committed.setdefault(partition, []).append((self._schedule.now_ns, offset))
        self.outcomes["commits"] += 1
        if offset > self._reached.get(partition, 0):
            raise Violation(f"{partition}: {offset} is committed, and no reader has got that far")
        if before is not None and offset < before:
            self.outcomes["offsets that went back"] += 1
            is_allowed = is_late or self.has_forgotten  # two readers may then own it in the same epoch
            if not is_allowed and offset < self.may_rewind.get(partition, before):
                raise Violation(f"{partition}: the committed offset goes back from {before} to {offset}")
            if is_late:
                self.rewind(partition, offset)


def _first(got: Sequence[object], expected: Sequence[object]) -> str:
    """Return where two lists differ."""
    for index, (one, other) in enumerate(zip(got, expected, strict=False)):
        if one != other:
            return f"{one} in place of {other}, the {index + 1}th of {len(expected)}"
    rest = got[len(expected) :]
    if rest:
        return f"{list(rest)[:5]} after all {len(expected)}"
    return f"nothing in place of {list(expected[len(got) :])[:5]}"
