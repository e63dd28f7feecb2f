"""Backlog: what was fetched and the program does not have yet, and where the program is in each partition.

Theory of operation. The queues, and how records are taken from them as objects, are FetchBuffer's. Here is
what needs judgement: positions and what is committed of them, which partitions are read, moved and failed
ones; and rows of columns, which workers decode.

The program has what lies before `AssignedPartition.last`, and nothing else says so. Taking sets that after
everything else is done. So a call that is cancelled or interrupted while it waits or decodes has taken
nothing, and the next one finds all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, final

from kbatch._native.fetch.arrivals import Arrivals
from kbatch._native.fetch.fetch_buffer import CompletedFetch, FetchBuffer, LastRead, QueuedCursor
from kbatch.consumer.fetch_columns import FetchColumns, Submit
from kbatch.core.client.lasting_faults import NS_PER_SECOND, LastingFaults
from kbatch.core.consumer.budget import RowsAwaited
from kbatch.core.consumer.partition_state import GroupStart, OffsetSpec, PartitionState, Start
from kbatch.core.consumer.results import Failed, Moved, Result
from kbatch.errors import CorruptRecordError, DeserializationError, KafkaError
from kbatch.logs import ClientLogger
from kbatch.records import INT64_MAX, NO_TOPIC_ID, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch._native.codec.record import ConsumerRecord
    from kbatch.consumer.projection import Projection
    from kbatch.core.consumer.engine import ReadingEngine
    from kbatch.waiting.conditions import Condition

logger = ClientLogger("kbatch.consumer")


@final
class AssignedPartition(QueuedCursor):
    """A partition that the program reads, and its position there.

    Parameters
    ----------
    partition : TopicPartition
    generation : int
    start : Start or OffsetSpec or COMMITTED
        Where it begins.
    """

    __slots__ = ("start",)

    def __init__(
        self, partition: TopicPartition, generation: int, start: Start | OffsetSpec | GroupStart
    ) -> None:
        self.partition = partition
        self.generation = generation
        self.start = start
        if isinstance(start, Start):
            self.last = LastRead(start.offset - 1, start.leader_epoch, start.topic_id)
        self.queue: deque[CompletedFetch] = deque()


class Limits(NamedTuple):
    """How much a poll wants and takes: at least and at most so many rows, and bytes of columns."""

    least_rows: int
    most_rows: int
    most_bytes: int

    @property
    def are_of_bytes(self) -> bool:
        """True if the bytes are limited: to count them takes longer than the rest, if there are few."""
        return self.most_bytes < INT64_MAX


class RowSlice(NamedTuple):
    """Rows of a fetch, from `first_row` to the one before `end_row`."""

    assigned: AssignedPartition
    fetch: CompletedFetch
    first_row: int
    end_row: int


class Plan(NamedTuple):
    """The rows that a poll can take.

    Attributes
    ----------
    slices : list of RowSlice
    row_count : int
    is_full : bool
        True if nothing can be added: a limit is reached, or an error comes next.
    has_all : bool
        True if these are all rows that were fetched.
    """

    slices: list[RowSlice]
    row_count: int
    is_full: bool = False
    has_all: bool = False


@final
class Backlog(FetchBuffer):
    """All partitions of a consumer, with what was fetched; what is unusual in it, and its columns.

    Parameters
    ----------
    engine : ReadingEngine
    wake : callable
        Wakes the owner of the engine.
    changed : Condition
        Notified of arrivals, and by workers after a fetch is decoded.
    now_ns : callable
        Returns the time.
    """

    assigned: dict[TopicPartition, AssignedPartition]

    def __init__(
        self,
        engine: ReadingEngine,
        wake: Callable[[], object],
        changed: Condition,
        now_ns: Callable[[], int],
    ) -> None:
        arrivals: Arrivals[Result] = Arrivals(changed.notify, changed.waiting)
        super().__init__(arrivals, engine.release, wake)
        self._engine = engine
        self._notify = changed.notify
        self._now_ns = now_ns
        self._lasting = LastingFaults(logger)  # of partitions, until there are records again
        self._rows_awaited: RowsAwaited | None = None
        self._aside: list[AssignedPartition] = []
        engine.distances.position_of = self._position_of

    # Positions

    def find_position(self, assigned: AssignedPartition) -> bool:
        """True if the position of a partition is known; at first the engine finds it, and the topic's id."""
        if assigned.last is None or assigned.last.topic_id == NO_TOPIC_ID:
            state = self._engine.reading(assigned.partition)
            if state is not None and state.generation == assigned.generation and state.first_offset >= 0:
                committed = state.committed
                is_committed = committed is not None and committed.offset == state.first_offset
                metadata = committed.metadata if committed is not None and is_committed else ""
                found = LastRead(state.first_offset - 1, state.first_epoch, state.first_topic_id, metadata)
                if assigned.last is None or assigned.last.offset == found.offset:
                    assigned.last = found
        return assigned.last is not None

    def _position_of(self, state: PartitionState) -> int:
        """Return the position in a partition that is read; -1 if it is not known. Any thread may ask."""
        assigned = self.assigned.get(state.partition)
        if assigned is None:
            return -1
        last = assigned.last
        if last is not None:
            return int(last.offset) + 1
        return state.first_offset if state.generation == assigned.generation else -1

    def positions(self, *, with_last: bool = True) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the known positions, as they are committed; without what `note_poll` was not called after,
        unless `with_last`.
        """
        found = {}
        for each, assigned in self.assigned.items():
            if self.find_position(assigned) and assigned.last is not None:
                last = assigned.last
                if not with_last and assigned in self._before:
                    before = self._before[assigned]
                    is_in_hand = self._is_iterating and last is not before
                    if is_in_hand or before is None:
                        before = LastRead(last.offset - 1, last.leader_epoch, last.topic_id)
                    last = before
                found[each] = offset_after(last)
        return found

    def take_uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions that have moved, or were found, since the last call, as they are committed."""
        found = {}
        for assigned in list(self._uncommitted):
            if not self.find_position(assigned):
                continue
            found[assigned.partition] = offset_after(assigned.last)
            if assigned.iterator is None:  # which moves it without a word
                del self._uncommitted[assigned]
        return found

    def commit_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Return the positions of these partitions, if they are read, from the next `take_uncommitted`."""
        assigned = self.assigned
        self._uncommitted.update((assigned[each], None) for each in partitions if each in assigned)

    def take_back(self) -> None:
        """Read what was delivered again, since the poll that took it was interrupted."""
        for assigned, before in list(self._before.items()):
            if assigned.is_read and before is not None and assigned.last is not before:
                start = start_after(before)
                generation = self._engine.seek(assigned.partition, start)
                self.add(AssignedPartition(assigned.partition, generation, start))
                self._wake()

    def make_room(self) -> None:
        """Throw away what partitions have that give no records now, if their memory keeps the others from
        being fetched. It is fetched again when they go on.
        """
        for assigned in list(self._round_robin) if self.starves() else ():
            start = assigned.start if assigned.last is None else start_after(assigned.last)
            generation = self._engine.seek(assigned.partition, start)
            self.add(AssignedPartition(assigned.partition, generation, start))
            self._wake()

    def set_aside(self, assigned: AssignedPartition) -> None:
        """Give no records of a partition until `bring_back`, or until more of it arrive."""
        self._round_robin.pop(assigned, None)
        self._aside.append(assigned)

    def bring_back(self) -> None:
        """Give records of the partitions again that were set aside, after those of the others."""
        aside, self._aside = self._aside, []
        for assigned in aside:
            if assigned.is_read and assigned.queue:
                self._round_robin[assigned] = assigned

    # Which partitions

    def leave_out(self, excludes: Callable[[str], bool]) -> None:
        """Give no records of partitions whose topics are excluded, and those of all others."""
        for each in list(self.assigned.values()):
            each.is_left_out = excludes(each.partition.topic)
            if each.is_left_out:
                each.iterator = None

    # What is unusual

    def _adopt(self, before: AssignedPartition, generation: int) -> AssignedPartition:
        """Follow the engine to where an interrupted call has sent it."""
        assigned = AssignedPartition(before.partition, generation, before.start)
        assigned.last = None
        self.add(assigned)
        return assigned

    def _put_unusual(self, assigned: AssignedPartition, result: Moved | Failed) -> None:
        if isinstance(result, Failed):
            assigned.queue.append(CompletedFetch(result, result.error))
            return
        text = f"{result.error}; reading goes on at offset {result.to_offset}"
        self._lasting.note(result.partition, text, self._now_ns())
        self.faulty.add(result.partition)
        if result.to_offset < result.from_offset and assigned.queue and _is_of_same_topic(assigned, result):
            self._go_back(assigned, result)
            return
        if assigned.last is None and not self.find_position(assigned):
            assigned.last = LastRead(result.from_offset - 1, topic_id=result.topic_id)
        assigned.queue.append(CompletedFetch(result))

    def _end_fault(self, assigned: AssignedPartition) -> None:
        text = f"{assigned.partition}: there are records"
        self._lasting.end(assigned.partition, text, self._now_ns(), least_ns=NS_PER_SECOND)
        self.faulty.discard(assigned.partition)

    def _go_back(self, assigned: AssignedPartition, moved: Moved) -> None:
        """Drop what is not in the log any more, from the position on that the reset has found."""
        last = assigned.last
        assert last is not None  # there are results before
        self.drop(assigned)
        if last.offset < moved.to_offset:  # records in between were dropped with the others
            assigned.generation = self._engine.seek(assigned.partition, start_after(last))
            self._wake()
        else:
            assigned.last = LastRead(moved.to_offset - 1, moved.last_epoch, moved.topic_id)
            self._uncommitted[assigned] = None

    def _raised(self, assigned: AssignedPartition, error: Exception) -> Exception:
        """Return an error that is raised now. The position stays. What may succeed later is tried again: a
        failed partition, a deserializer whose registry has refused.
        """
        self.move_to_end(assigned)
        columns = assigned.queue[0].columns
        if columns is not None and not isinstance(error, CorruptRecordError | DeserializationError):
            columns.forget()
        if isinstance(assigned.queue[0].result, Failed):
            start = assigned.start if assigned.last is None else start_after(assigned.last)
            assigned.queue.clear()
            self._round_robin.pop(assigned)
            assigned.generation = self._engine.seek(assigned.partition, start)
            self._wake()
        return error.marked() if isinstance(error, KafkaError) else error

    # Columns

    def decode_ahead(
        self, projection: Projection, limits: Limits, submit: Submit, most_fetches: int | None = None
    ) -> None:
        """Begin to decode the fetches that the next poll takes, or the first ones of them. As long as values
        have yet to say a type, one fetch is decoded after the other, so that the first one does.
        """
        row_count = byte_count = 0
        fetches = (fetch for _, fetch in self.in_order() if fetch.records is not None)
        for fetch in islice(fetches, most_fetches):
            columns = FetchColumns.of(fetch)
            columns.decode(projection, submit, self._notify)
            if columns.is_busy and projection.missing_types:
                break
            rows, size = columns.size_left(projection, fetch.first_row, in_bytes=limits.are_of_bytes)
            row_count, byte_count = row_count + rows, byte_count + size
            if row_count >= limits.most_rows or byte_count >= limits.most_bytes:
                break

    def plan(self, projection: Projection, limits: Limits) -> Plan:
        """Return the rows that can be taken. A fetch is sliced only if there are too few rows without it."""
        least_rows, most_rows, most_bytes = limits
        slices: list[RowSlice] = []
        row_count = byte_count = 0
        for assigned, fetch in self.in_order():
            if fetch.records is None:
                if fetch.failure is not None:
                    return Plan(slices, row_count, is_full=True)
                continue
            columns = FetchColumns.of(fetch)
            decoded = columns.of_projection(projection)
            if decoded is None:
                return Plan(slices, row_count)
            first = fetch.first_row
            rows, size = columns.size_left(projection, first, in_bytes=limits.are_of_bytes)
            if rows > 0:
                is_sliced = row_count + rows > most_rows or byte_count + size > most_bytes
                if is_sliced and row_count >= least_rows:
                    return Plan(slices, row_count, is_full=True)
                if is_sliced:
                    rows = min(rows, most_rows - row_count)
                if is_sliced and limits.are_of_bytes:
                    rows = max(decoded.count_within(first, rows, most_bytes - byte_count), int(not slices))
                if rows:
                    slices.append(RowSlice(assigned, fetch, first, first + rows))
                row_count, byte_count = row_count + rows, byte_count + size
                if is_sliced:
                    return Plan(slices, row_count, is_full=True)
            if decoded.error is not None:
                return Plan(slices, row_count, is_full=True)
        return Plan(slices, row_count, is_full=row_count >= most_rows, has_all=True)

    def await_more(self) -> bool:
        """Let the engine fetch more, whatever the shares of partitions, until `end_waiting`. True if it
        cannot: what was fetched takes the memory, and all of it is in the queues.
        """
        if self._rows_awaited is None:
            self._rows_awaited = RowsAwaited(self._notify)
            self._engine.await_rows(self._rows_awaited)
            self._wake()
        return self._rows_awaited.is_memory_used_up and not self.arrivals

    def end_waiting(self) -> None:
        """Share the memory among partitions again, after `await_more`."""
        if self._rows_awaited is not None:
            self._rows_awaited = None
            self._engine.await_rows(None)

    def discard_used_up(self, *, raises: bool) -> None:
        """Discard what has no more rows. Raise the error that comes next, if wanted."""
        for assigned in list(self._round_robin):
            if assigned.queue and not (assigned.is_silent or assigned.queue[0].is_busy):
                error = self.discard_head(assigned)
                if error is not None and raises:
                    raise self._raised(assigned, error)

    def take_rows(self, plan: Plan) -> list[pa.RecordBatch]:
        """Return the rows of a plan, which count as delivered."""
        batches: list[pa.RecordBatch] = []
        ends = []
        for _, fetch, first, end in plan.slices:
            columns = FetchColumns.of(fetch)
            decoded = columns.decoded
            assert decoded is not None
            batches += decoded.rows(first, end - first)
            ends.append(columns.last_of(end))
        for (assigned, fetch, _, end), last in zip(plan.slices, ends, strict=True):
            assigned.iterator = None
            self._before.setdefault(assigned, assigned.last)
            assigned.last = last
            fetch.row_count = end
            self.note_moved(assigned)
            self.discard_head(assigned)
        return batches


def offset_after(last: LastRead | ConsumerRecord) -> OffsetAndMetadata:
    """Return a position as it is committed; one that has not moved keeps the metadata that it has."""
    metadata = last.metadata if isinstance(last, LastRead) else ""
    return OffsetAndMetadata(last.offset + 1, metadata, last.leader_epoch, last.topic_id)


def start_after(last: LastRead | ConsumerRecord) -> Start:
    """Return a position as one to begin at."""
    return Start(last.offset + 1, last.leader_epoch, last.topic_id)


def _is_of_same_topic(assigned: AssignedPartition, moved: Moved) -> bool:
    """True if a position has moved within the topic that the last result before is of."""
    before = assigned.queue[-1].result
    return isinstance(before, Failed) or before.topic_id == moved.topic_id
