"""Backlog: what was fetched and the program does not have yet, and where the program is in each partition.

Theory of operation. The network delivers results to Arrivals. The program's thread sorts them into queues,
one a partition, and takes records from them: as objects, which it makes itself, or as rows of columns, which
workers decode. Partitions are served in rotation, an answer each; those that are paused keep what they have.
When a fetch is used up its memory goes back to the engine, which then fetches more.

The program has what lies before `AssignedPartition.last`, and nothing else says so. Taking sets that after
everything else is done. So a call that is cancelled or interrupted while it waits or decodes has taken
nothing, and the next one finds all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, final

from kbatch._native.fetch.read_cursor import FetchIterator, ReadCursor
from kbatch.core.client.lasting_faults import NS_PER_SECOND, LastingFaults
from kbatch.core.consumer.budget import RowsAwaited
from kbatch.core.consumer.partition_state import NO_EPOCH, GroupStart, OffsetSpec, PartitionState, Start
from kbatch.core.consumer.results import Failed, Fetched, Moved, Result
from kbatch.errors import CorruptRecordError, DeserializationError, KafkaError
from kbatch.logs import ClientLogger
from kbatch.network.decoding import DecodingTask
from kbatch.records import NO_TOPIC_ID, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch._native.codec.record import ConsumerRecord
    from kbatch._native.fetch.fetched_batches import FetchedRecords
    from kbatch.consumer.projection import Projection
    from kbatch.core.consumer.engine import ReadingEngine

logger = ClientLogger("kbatch.consumer")

R = TypeVar("R")
Submit = Callable[[Callable[[], object]], object]


class LastRead(NamedTuple):
    """The offset before a position, the leader epoch of the record there, and the id of the topic. A
    ConsumerRecord says all three, too. At the committed offset, `metadata` is what the group has with it.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    topic_id: bytes = NO_TOPIC_ID
    metadata: str = ""


@final
class Arrivals(Generic[R]):
    """Results that the network has delivered and the program has not sorted yet.

    Parameters
    ----------
    notify : callable
        Called after each delivery. Returns True if the program waits.
    """

    def __init__(self, notify: Callable[[], bool]) -> None:
        self.results: deque[R] = deque()
        self._notify = notify

    def deliver(self, results: list[R]) -> bool:
        """Store results of the engine, on the network's thread. Return True if the program waits for them."""
        self.results.extend(results)
        return self._notify()


class Decoded(NamedTuple):
    """The records of a fetch as columns.

    Attributes
    ----------
    projection : Projection
    batches : list of pyarrow.RecordBatch
    row_count : int
    error : Exception or None
        The reason why the rows end early.
    """

    projection: Projection
    batches: list[pa.RecordBatch]
    row_count: int
    error: Exception | None

    @classmethod
    def of(cls, records: FetchedRecords, projection: Projection) -> Decoded:
        """Decode the records."""
        batches, error = projection.batches(records)
        return cls(projection, batches, sum(batch.num_rows for batch in batches), error)

    def rows(self, first: int, row_count: int) -> list[pa.RecordBatch]:
        """Return some of the rows."""
        found = []
        for batch in self.batches:
            if first < batch.num_rows and row_count > 0:
                found.append(batch.slice(first, row_count))
                row_count -= found[-1].num_rows
            first = max(first - batch.num_rows, 0)
        return found

    def byte_count(self, first: int, row_count: int) -> int:
        """Return the bytes of some of the rows."""
        return sum(batch.nbytes for batch in self.rows(first, row_count))

    def count_within(self, first: int, most_rows: int, most_bytes: int) -> int:
        """Return the number of rows from `first` on, `most_rows` at most, that are within so many bytes."""
        low, high = 0, most_rows
        while low < high:
            middle = (low + high + 1) // 2
            if self.byte_count(first, middle) <= most_bytes:
                low = middle
            else:
                high = middle - 1
        return low


@final
class CompletedFetch:
    """A result in the queue of its partition. One without records moves the position, or is an error.

    Attributes
    ----------
    result : Result
    records : FetchedRecords or None
    """

    __slots__ = ("_decoding", "_ends", "_row_count", "records", "result")

    def __init__(self, result: Result) -> None:
        self.result = result
        self.records = result.records if isinstance(result, Fetched) else None
        self._row_count = 0  # that the program has as columns
        self._decoding: DecodingTask[Projection, Decoded] | None = None
        self._ends: Decoded | None = None

    @property
    def is_used_up(self) -> bool:
        """True if it is known to have no more records."""
        if self.records is None:
            return True
        decoded = self.decoded
        return self.records.is_used_up if decoded is None else self.first_row >= decoded.row_count

    @property
    def error(self) -> Exception | None:
        """The reason why it ends early, after it is used up."""
        if isinstance(self.result, Failed):
            return self.result.error
        if self.decoded is not None:
            return self.decoded.error
        return None if self.records is None else self.records.fault

    # As columns

    @property
    def is_busy(self) -> bool:
        """True if a worker decodes it."""
        return self._decoding is not None and not self._decoding.is_done

    @property
    def decoded(self) -> Decoded | None:
        """Its columns; None if there are none. Raise an unexpected error of decoding, once."""
        task = self._decoding
        if task is None or not task.is_done:
            return None
        if task.error is not None:
            self._decoding = None
            raise task.error
        return task.decoded

    def decode(self, projection: Projection, submit: Submit, notify: Callable[[], object]) -> None:
        """Begin to decode it, unless that has happened for such a projection."""
        records, task = self.records, self._decoding
        if records is None or self.is_busy or (task is not None and task.argument.is_same(projection)):
            return
        begun = self._decoding = DecodingTask(projection)

        def decode() -> None:
            begun.do(lambda projection: Decoded.of(records, projection))
            notify()

        submit(decode)

    def forget_columns(self) -> None:
        """Drop its columns; errors of deserializers do not concern objects."""
        if not self.is_busy:
            self._decoding = None

    def columns(self, projection: Projection) -> Decoded:
        """Return its columns, which are decoded now if they are not there."""
        self.decode(projection, lambda decode: decode(), lambda: None)
        decoded = self.decoded
        if decoded is None or not decoded.projection.is_same(projection):  # a worker has it for another one
            assert self.records is not None
            decoded = Decoded.of(self.records, projection)
        return decoded

    @property
    def first_row(self) -> int:
        """The number of rows that the program has, as columns or as objects."""
        return self._row_count if self.records is None else max(self._row_count, self.records.taken_count)

    def size_left(self, projection: Projection) -> tuple[int, int]:
        """Return how many rows, and bytes of them, the program does not have. Until it is decoded, these are
        a maximum of rows, and the bytes that were fetched.
        """
        assert self.records is not None
        decoded, first = None if self.is_busy else self.decoded, self.first_row
        if decoded is None or not decoded.projection.is_same(projection):
            return max(self.records.row_bound - first, 0), self.records.byte_count
        rows = max(decoded.row_count - first, 0)
        return rows, decoded.byte_count(first, rows)

    def take_rows(self, end: int) -> None:
        """Count the rows before `end` as those that the program has."""
        self._row_count = end

    def last_of(self, end: int) -> LastRead:
        """Return where the program is when it has the rows before `end`."""
        from kbatch.consumer.projection import ENDS  # which takes pyarrow

        result, decoded = self.result, self.decoded
        assert self.records is not None and isinstance(result, Fetched) and decoded is not None
        if end == decoded.row_count and decoded.error is None:
            return LastRead(result.next_offset - 1, self.records.last_epoch, result.topic_id)
        if self._ends is None:
            self._ends = Decoded.of(self.records, ENDS)
        (row,) = self._ends.rows(end - 1, 1)
        offset, leader_epoch = (column[0].as_py() for column in row.columns)
        return LastRead(offset, leader_epoch, result.topic_id)


@final
class AssignedPartition(ReadCursor):
    """A partition that the program reads, and its position there.

    Attributes
    ----------
    partition : TopicPartition
    generation : int
        That of its results; those of earlier ones are outdated.
    start : Start or OffsetSpec or COMMITTED
        Where it begins.
    is_paused : bool
    is_left_out : bool
        True if the program has subscribed to other topics, and the group has not taken it back yet.
    queue : deque of CompletedFetch
    """

    __slots__ = ("generation", "is_left_out", "is_paused", "partition", "queue", "start")

    def __init__(
        self, partition: TopicPartition, generation: int, start: Start | OffsetSpec | GroupStart
    ) -> None:
        self.partition = partition
        self.generation = generation
        self.start = start
        if isinstance(start, Start):
            self.last = LastRead(start.offset - 1, start.leader_epoch, start.topic_id)
        self.is_paused = self.is_left_out = False
        self.queue: deque[CompletedFetch] = deque()

    @property
    def is_silent(self) -> bool:
        """True if no records of it are given to the program."""
        return self.is_paused or self.is_left_out

    @property
    def position(self) -> int:
        """The next offset; 0 if it is not known."""
        return 0 if self.last is None else self.last.offset + 1


class PolledRecords(NamedTuple):
    """Records that a poll has taken from a fetch.

    Attributes
    ----------
    partition : TopicPartition
    fetch : CompletedFetch
    first_row : int
        The number of records in the fetch before them.
    row_count : int
        How many they are in the fetch.
    records : list of ConsumerRecord
        Those that the program gets.
    """

    partition: TopicPartition
    fetch: CompletedFetch
    first_row: int
    row_count: int
    records: list[ConsumerRecord]


class Limits(NamedTuple):
    """How much a poll wants and takes: at least and at most so many rows, and bytes of columns."""

    least_rows: int
    most_rows: int
    most_bytes: int


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
class Backlog:
    """All partitions of a consumer, with what was fetched.

    Parameters
    ----------
    engine : ReadingEngine
    wake : callable
        Wakes the owner of the engine.
    notify : callable
        Called by workers after a fetch is decoded.
    now_ns : callable
        Returns the time.

    Attributes
    ----------
    arrivals : Arrivals
    assigned : dict of TopicPartition to AssignedPartition
    """

    def __init__(
        self,
        engine: ReadingEngine,
        wake: Callable[[], object],
        notify: Callable[[], bool],
        now_ns: Callable[[], int],
    ) -> None:
        self.arrivals: Arrivals[Result] = Arrivals(notify)
        self.assigned: dict[TopicPartition, AssignedPartition] = {}
        self._engine = engine
        self._wake = wake
        self._notify = notify
        self._now_ns = now_ns
        self._faults = LastingFaults(logger)  # of partitions, until there are records again
        self._round_robin: dict[
            TopicPartition, AssignedPartition
        ] = {}  # those with something in their queues
        self._rows_awaited: RowsAwaited | None = None
        self._moved: dict[TopicPartition, AssignedPartition] = {}  # since `take_moves`
        self._uncommitted: dict[TopicPartition, AssignedPartition] = {}  # moved since `take_uncommitted`
        self._before: dict[AssignedPartition, LastRead | ConsumerRecord | None] = {}  # the last delivery
        self._is_iterating = False  # in that
        self._end_count = self._polled_end_count = 0  # of calls of `end_iterators`, now and at the last poll
        engine.distances.position_of = self._position_of

    def take_moves(self) -> dict[TopicPartition, LastRead | ConsumerRecord]:
        """Return what was read last where that has changed since the last call."""
        moved, self._moved = self._moved, {}
        return {
            each: assigned.last
            for each, assigned in moved.items()
            if assigned.last is not None and self.assigned.get(each) is assigned
        }

    def _note_moved(self, assigned: AssignedPartition) -> None:
        self._moved[assigned.partition] = self._uncommitted[assigned.partition] = assigned

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
        for each, assigned in list(self._uncommitted.items()):
            is_read = self.assigned.get(each) is assigned
            if is_read and not self.find_position(assigned):
                continue
            if is_read:
                found[each] = offset_after(assigned.last)
            if assigned.iterator is None:  # which moves it without a word
                del self._uncommitted[each]
        return found

    def commit_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Return the positions of these partitions, if they are read, from the next `take_uncommitted`."""
        assigned = self.assigned
        self._uncommitted.update((each, assigned[each]) for each in partitions if each in assigned)

    def note_poll(self) -> None:
        """Count what was delivered as processed. Discard what an iteration has used up: a poll
        then waits without looking at it first.
        """
        iterated = list(self._before) if self._is_iterating else ()
        self._before.clear()
        self._is_iterating = False
        self._polled_end_count = self._end_count
        for assigned in iterated:
            is_read = self.assigned.get(assigned.partition) is assigned
            if is_read and assigned.queue and not assigned.queue[0].is_busy:
                self._discard_used_up(assigned)

    def take_back(self) -> None:
        """Read what was delivered again, since the poll that took it was interrupted."""
        for assigned, before in list(self._before.items()):
            is_read = self.assigned.get(assigned.partition) is assigned
            if is_read and before is not None and assigned.last is not before:
                start = start_after(before)
                generation = self._engine.seek(assigned.partition, start)
                self.add(AssignedPartition(assigned.partition, generation, start))
                self._wake()

    def begin_iterator(
        self, assigned: AssignedPartition, records: FetchedRecords, most: int
    ) -> FetchIterator:
        """Return an iterator over up to so many records of a partition."""
        self._before[assigned] = assigned.last
        self._uncommitted[assigned.partition] = assigned
        self._is_iterating = True
        assigned.iterator = iterator = FetchIterator(assigned, records, most)
        if self._end_count != self._polled_end_count:  # it was called since, and would not be again
            assigned.iterator = iterator = FetchIterator(assigned, records, 1)
        return iterator

    def end_iterators(self) -> None:
        """Make an iteration poll again after the record that the program has. Any thread may call it."""
        self._end_count += 1
        for assigned in list(self.assigned.values()):
            assigned.iterator = None

    # Which partitions

    def add(self, assigned: AssignedPartition) -> None:
        """Read a partition, instead of an earlier state of it."""
        before = self.assigned.get(assigned.partition)
        self.assigned[assigned.partition] = self._uncommitted[assigned.partition] = assigned
        if before is not None:
            assigned.is_paused, assigned.is_left_out = before.is_paused, before.is_left_out
            self._drop(before)

    def leave_out(self, excludes: Callable[[str], bool]) -> None:
        """Give no records of partitions whose topics are excluded, and those of all others."""
        for each in list(self.assigned.values()):
            each.is_left_out = excludes(each.partition.topic)
            if each.is_left_out:
                each.iterator = None

    def remove(self, partition: TopicPartition) -> None:
        """Read a partition no more."""
        self._uncommitted.pop(partition, None)
        self._drop(self.assigned.pop(partition))

    def _drop(self, assigned: AssignedPartition) -> None:
        assigned.iterator = None
        self._round_robin.pop(assigned.partition, None)
        for fetch in assigned.queue:
            self._release(assigned, fetch)
        assigned.queue.clear()

    def _release(self, assigned: AssignedPartition, fetch: CompletedFetch) -> None:
        if isinstance(fetch.result, Fetched) and self._engine.release(fetch.result, fetch.first_row):
            self._wake()

    # What arrives

    def sort(self) -> None:
        """Put what has arrived into the queues. An interrupt in it neither loses nor doubles a result."""
        results = self.arrivals.results
        while results:
            result = results[0]
            assigned = self.assigned.get(result.partition)
            if assigned is not None and result.generation > assigned.generation:
                assigned = self._adopt(assigned, result.generation)
            if assigned is None or result.generation != assigned.generation:
                if isinstance(result, Fetched) and self._engine.release(result):
                    self._wake()
            else:
                if not assigned.queue or assigned.queue[-1].result is not result:
                    self._put(assigned, result)
                if assigned.queue:
                    self._round_robin.setdefault(assigned.partition, assigned)
            results.popleft()

    def _adopt(self, before: AssignedPartition, generation: int) -> AssignedPartition:
        """Follow the engine to where an interrupted call has sent it."""
        assigned = AssignedPartition(before.partition, generation, before.start)
        assigned.last = None
        self.add(assigned)
        return assigned

    def _put(self, assigned: AssignedPartition, result: Result) -> None:
        if isinstance(result, Moved):
            text = f"{result.error}; reading goes on at offset {result.to_offset}"
            self._faults.note(result.partition, text, self._now_ns())
            if (
                result.to_offset < result.from_offset
                and assigned.queue
                and _is_of_same_topic(assigned, result)
            ):
                self._go_back(assigned, result)
                return
        elif self._faults.is_lasting(result.partition) and isinstance(result, Fetched):
            text = f"{result.partition}: there are records"
            self._faults.end(result.partition, text, self._now_ns(), least_ns=NS_PER_SECOND)
        if assigned.last is None and not isinstance(result, Failed) and not self.find_position(assigned):
            assigned.last = LastRead(result.from_offset - 1, topic_id=result.topic_id)
        assigned.queue.append(CompletedFetch(result))

    def _go_back(self, assigned: AssignedPartition, moved: Moved) -> None:
        """Drop what is not in the log any more, from the position on that the reset has found."""
        last = assigned.last
        assert last is not None  # there are results before
        self._drop(assigned)
        if last.offset < moved.to_offset:  # records in between were dropped with the others
            assigned.generation = self._engine.seek(assigned.partition, start_after(last))
            self._wake()
        else:
            assigned.last = LastRead(moved.to_offset - 1, moved.last_epoch, moved.topic_id)
            self._uncommitted[assigned.partition] = assigned

    # What there is

    def begun(self) -> Iterator[AssignedPartition]:
        """Yield the partitions of which something is here, with a position."""
        for assigned in self._round_robin.values():
            if assigned.queue and assigned.last is not None:
                yield assigned

    @property
    def has_next(self) -> bool:
        """True if `next_fetch` has something to return or raise."""
        return self._next_assigned() is not None

    def _next_assigned(self) -> AssignedPartition | None:
        for assigned in self._round_robin.values():
            # an interrupt may have left an empty queue here
            if assigned.queue and not assigned.is_silent and not assigned.queue[0].is_busy:
                return assigned
        return None

    def _move_to_end(self, assigned: AssignedPartition) -> None:
        if self._round_robin.pop(assigned.partition, None) is not None and assigned.queue:
            self._round_robin[assigned.partition] = assigned

    def _discard_used_up(self, assigned: AssignedPartition) -> Exception | None:
        """Discard what is used up at the head of the queue. Return an error that is there."""
        while assigned.queue and assigned.queue[0].is_used_up:
            fetch = assigned.queue[0]
            if fetch.error is not None:
                return fetch.error
            result = fetch.result
            self._note_moved(assigned)
            if isinstance(result, Moved):
                assigned.last = LastRead(result.to_offset - 1, result.last_epoch, result.topic_id)
            elif isinstance(result, Fetched) and result.next_offset > assigned.position:
                assigned.last = LastRead(result.next_offset - 1, result.last_epoch, result.topic_id)
            self._release(assigned, fetch)  # first: after an interrupt it is done again
            assigned.queue.popleft()
            self._move_to_end(assigned)
        return None

    def _raised(self, assigned: AssignedPartition, error: Exception) -> Exception:
        """Return an error that is raised now. The position stays. What may succeed later is tried again: a
        failed partition, a deserializer whose registry has refused.
        """
        self._move_to_end(assigned)
        if not isinstance(error, CorruptRecordError | DeserializationError):
            assigned.queue[0].forget_columns()
        if isinstance(assigned.queue[0].result, Failed):
            start = assigned.start if assigned.last is None else start_after(assigned.last)
            assigned.queue.clear()
            self._round_robin.pop(assigned.partition)
            assigned.generation = self._engine.seek(assigned.partition, start)
            self._wake()
        return error.marked() if isinstance(error, KafkaError) else error

    # Objects

    def next_fetch(self, *, raises: bool = True) -> tuple[AssignedPartition, CompletedFetch] | None:
        """Return the next partition of the rotation, and its first fetch, which has another record. None if
        nothing is there, or instead of raising an error.
        """
        while (assigned := self._next_assigned()) is not None:
            assigned.iterator = None
            assigned.queue[0].forget_columns()
            error = self._discard_used_up(assigned)
            if error is not None:
                if raises:
                    raise self._raised(assigned, error)
                return None
            if assigned.queue and not assigned.queue[0].is_busy:
                fetch = assigned.queue[0]
                if fetch.records is not None and fetch.records.skip_to(assigned.position):
                    return assigned, fetch
        return None

    def take_records(self, most: int) -> list[PolledRecords]:
        """Return the next records, `most` at most, which count as delivered."""
        polled: list[PolledRecords] = []
        while most > 0 and (found := self.next_fetch(raises=not polled)) is not None:
            assigned, fetch = found
            assert fetch.records is not None
            self._before.setdefault(assigned, assigned.last)
            first_row = fetch.first_row
            records = assigned.take(fetch.records, most)
            polled.append(PolledRecords(assigned.partition, fetch, first_row, len(records), records))
            self._note_moved(assigned)
            self._discard_used_up(assigned)
            most -= len(records)
        return polled

    # Columns

    def decode_ahead(
        self, projection: Projection, limits: Limits, submit: Submit, most_fetches: int | None = None
    ) -> None:
        """Begin to decode the fetches that the next poll takes, or the first ones of them. As long as values
        have yet to say a type, one fetch is decoded after the other, so that the first one does.
        """
        row_count = byte_count = 0
        fetches = (fetch for _, fetch in self._in_order() if fetch.records is not None)
        for fetch in islice(fetches, most_fetches):
            assert fetch.records is not None
            fetch.decode(projection, submit, self._notify)
            if fetch.is_busy and projection.missing_types:
                break
            rows, size = fetch.size_left(projection)
            row_count, byte_count = row_count + rows, byte_count + size
            if row_count >= limits.most_rows or byte_count >= limits.most_bytes:
                break

    def _in_order(self) -> Iterator[tuple[AssignedPartition, CompletedFetch]]:
        """Iterate over all fetches in the order in which they are taken."""
        for index in count():
            is_over = True
            for assigned in self._round_robin.values():
                if not assigned.is_silent and index < len(assigned.queue):
                    is_over = False
                    yield assigned, assigned.queue[index]
            if is_over:
                return

    def plan(self, projection: Projection, limits: Limits) -> Plan:
        """Return the rows that can be taken. A fetch is sliced only if there are too few rows without it."""
        least_rows, most_rows, most_bytes = limits
        slices: list[RowSlice] = []
        row_count = byte_count = 0
        for assigned, fetch in self._in_order():
            if fetch.records is None:
                if isinstance(fetch.result, Failed):
                    return Plan(slices, row_count, is_full=True)
                continue
            decoded = None if fetch.is_busy else fetch.decoded
            if decoded is None or not decoded.projection.is_same(projection):
                return Plan(slices, row_count)
            first = fetch.first_row
            rows, size = fetch.size_left(projection)
            if rows > 0:
                is_sliced = row_count + rows > most_rows or byte_count + size > most_bytes
                if is_sliced and row_count >= least_rows:
                    return Plan(slices, row_count, is_full=True)
                if is_sliced:
                    rows = min(rows, most_rows - row_count)
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
        return self._rows_awaited.is_memory_used_up and not self.arrivals.results

    def end_waiting(self) -> None:
        """Share the memory among partitions again, after `await_more`."""
        if self._rows_awaited is not None:
            self._rows_awaited = None
            self._engine.await_rows(None)

    def discard_used_up(self, *, raises: bool) -> None:
        """Discard what has no more rows. Raise the error that comes next, if wanted."""
        for assigned in list(self._round_robin.values()):
            if assigned.queue and not (assigned.is_silent or assigned.queue[0].is_busy):
                error = self._discard_used_up(assigned)
                if error is not None and raises:
                    raise self._raised(assigned, error)

    def take_rows(self, plan: Plan) -> list[pa.RecordBatch]:
        """Return the rows of a plan, which count as delivered."""
        batches: list[pa.RecordBatch] = []
        ends = []
        for _, fetch, first, end in plan.slices:
            decoded = fetch.decoded
            assert decoded is not None
            batches += decoded.rows(first, end - first)
            ends.append(fetch.last_of(end))
        for (assigned, fetch, _, end), last in zip(plan.slices, ends, strict=True):
            assigned.iterator = None
            self._before.setdefault(assigned, assigned.last)
            assigned.last = last
            fetch.take_rows(end)
            self._note_moved(assigned)
            self._discard_used_up(assigned)
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
