"""Backlog: what was fetched and the program does not have yet, and where the program is in each partition.

Theory of operation. The network delivers results to Arrivals. The program's thread sorts them into queues,
one a partition, and takes records from them: as objects, which it makes itself, or as rows of columns, which
workers decode. Partitions take turns, an answer each; those that are paused keep what they have. When a piece
is used up its memory goes back to the engine, which then fetches more.

The program has what lies before `Held.last`, and nothing else says so. Taking sets that after everything
else is done. So a call that is cancelled or interrupted while it waits or decodes has taken nothing, and the
next one finds all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, final

from kbatch._native.fetch.taking import Lot, Place
from kbatch.core.client.lasting_faults import LastingFaults
from kbatch.core.consumer.partition_state import NO_EPOCH, GroupStart, OffsetSpec, Start
from kbatch.core.consumer.results import Failed, Fetched, Moved, Result
from kbatch.errors import CorruptRecordError, DeserializationError, KafkaError
from kbatch.logs import ClientLogger
from kbatch.network.decoding import Work
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
    ConsumerRecord says all three, too.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    topic_id: bytes = NO_TOPIC_ID


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
    """A piece as columns.

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
        """Return a part of the rows."""
        found = []
        for batch in self.batches:
            if first < batch.num_rows and row_count > 0:
                found.append(batch.slice(first, row_count))
                row_count -= found[-1].num_rows
            first = max(first - batch.num_rows, 0)
        return found

    def count_within(self, first: int, most_rows: int, most_bytes: int) -> int:
        """Return the number of rows from `first` on, `most_rows` at most, that are within so many bytes."""
        low, high = 0, most_rows
        while low < high:
            middle = (low + high + 1) // 2
            if sum(batch.nbytes for batch in self.rows(first, middle)) <= most_bytes:
                low = middle
            else:
                high = middle - 1
        return low


@final
class Piece:
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
        self._decoding: Work[Projection, Decoded] | None = None
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
        work = self._decoding
        if work is None or not work.is_done:
            return None
        if work.error is not None:
            self._decoding = None
            raise work.error
        return work.decoded

    def decode(self, projection: Projection, submit: Submit, notify: Callable[[], object]) -> None:
        """Begin to decode it, unless that has happened for such a projection."""
        records, work = self.records, self._decoding
        if records is None or self.is_busy or (work is not None and work.piece.is_same(projection)):
            return
        begun = self._decoding = Work(projection)

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
class Held(Place):
    """A partition that the program reads, and its place in that.

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
    queue : deque of Piece
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
        self.queue: deque[Piece] = deque()

    @property
    def is_silent(self) -> bool:
        """True if no records of it are given to the program."""
        return self.is_paused or self.is_left_out

    @property
    def position(self) -> int:
        """The next offset; 0 if it is not known."""
        return 0 if self.last is None else self.last.offset + 1


class Taken(NamedTuple):
    """Records that a poll has taken from a piece.

    Attributes
    ----------
    partition : TopicPartition
    piece : Piece
    first_row : int
        The number of records in the piece before them.
    records : list of ConsumerRecord
    """

    partition: TopicPartition
    piece: Piece
    first_row: int
    records: list[ConsumerRecord]


class Limits(NamedTuple):
    """How much a poll wants and takes: at least and at most so many rows, and bytes of columns."""

    least_rows: int
    most_rows: int
    most_bytes: int


class Part(NamedTuple):
    """Rows of a piece, from `first_row` to the one before `end_row`."""

    held: Held
    piece: Piece
    first_row: int
    end_row: int


class Plan(NamedTuple):
    """The rows that a poll can take.

    Attributes
    ----------
    parts : list of Part
    row_count : int
    is_full : bool
        True if nothing can be added: a limit is reached, or an error comes next.
    """

    parts: list[Part]
    row_count: int
    is_full: bool


@final
class Backlog:
    """All partitions of a consumer, with what was fetched.

    Parameters
    ----------
    engine : ReadingEngine
    wake : callable
        Wakes the owner of the engine.
    notify : callable
        Called by workers after a piece is decoded.
    now_ns : callable
        Returns the time.

    Attributes
    ----------
    arrivals : Arrivals
    held : dict of TopicPartition to Held
    """

    def __init__(
        self,
        engine: ReadingEngine,
        wake: Callable[[], object],
        notify: Callable[[], bool],
        now_ns: Callable[[], int],
    ) -> None:
        self.arrivals: Arrivals[Result] = Arrivals(notify)
        self.held: dict[TopicPartition, Held] = {}
        self._engine = engine
        self._wake = wake
        self._notify = notify
        self._now_ns = now_ns
        self._faults = LastingFaults(logger)  # of partitions, until there are records again
        self._turns: dict[TopicPartition, Held] = {}  # of those with something in their queues
        self._moved: dict[TopicPartition, Held] = {}  # since `take_moves`
        self._before: dict[Held, LastRead | ConsumerRecord | None] = {}  # the last delivery
        self._is_iterating = False  # in that
        self._end_count = self._polled_end_count = 0  # of calls of `end_lots`, now and at the last poll

    def take_moves(self) -> dict[TopicPartition, LastRead | ConsumerRecord]:
        """Return what was read last where that has changed since the last call."""
        moved, self._moved = self._moved, {}
        return {
            each: held.last
            for each, held in moved.items()
            if held.last is not None and self.held.get(each) is held
        }

    # Positions

    def place(self, held: Held) -> bool:
        """True if the position of a partition is known; at first the engine finds it, and the topic's id."""
        if held.last is None or held.last.topic_id == NO_TOPIC_ID:
            state = self._engine.reading(held.partition)
            if state is not None and state.generation == held.generation and state.first_offset >= 0:
                found = LastRead(state.first_offset - 1, state.first_epoch, state.first_topic_id)
                if held.last is None or held.last.offset == found.offset:
                    held.last = found
        return held.last is not None

    def positions(self, *, with_last: bool = True) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the known positions, as they are committed; without what `note_poll` was not called after,
        unless `with_last`.
        """
        found = {}
        for each, held in self.held.items():
            if self.place(held) and held.last is not None:
                last = held.last
                if not with_last and held in self._before:
                    before = self._before[held]
                    is_in_hand = self._is_iterating and last is not before
                    if is_in_hand or before is None:
                        before = LastRead(last.offset - 1, last.leader_epoch, last.topic_id)
                    last = before
                found[each] = offset_after(last)
        return found

    def note_poll(self) -> None:
        """Count what was delivered as processed. Pass what an iteration has used up: a poll
        then waits without looking at it first.
        """
        iterated = list(self._before) if self._is_iterating else ()
        self._before.clear()
        self._is_iterating = False
        self._polled_end_count = self._end_count
        for held in iterated:
            if self.held.get(held.partition) is held and held.queue and not held.queue[0].is_busy:
                self._settle(held)

    def take_back(self) -> None:
        """Read what was delivered again, since the poll that took it was interrupted."""
        for held, before in list(self._before.items()):
            is_read = self.held.get(held.partition) is held
            if is_read and before is not None and held.last is not before:
                start = start_after(before)
                generation = self._engine.seek(held.partition, start)
                self.hold(Held(held.partition, generation, start))
                self._wake()

    def begin_lot(self, held: Held, records: FetchedRecords, most: int) -> Lot:
        """Return an iterator over up to so many records of a partition."""
        self._before[held] = held.last
        self._is_iterating = True
        held.lot = lot = Lot(held, records, most)
        if self._end_count != self._polled_end_count:  # `end_lots` was called since, and would not be again
            held.lot = lot = Lot(held, records, 1)
        return lot

    def end_lots(self) -> None:
        """Make an iteration poll again after the record that the program has. Any thread may call it."""
        self._end_count += 1
        for held in list(self.held.values()):
            held.lot = None

    # Which partitions

    def hold(self, held: Held) -> None:
        """Read a partition, instead of an earlier state of it."""
        before = self.held.get(held.partition)
        self.held[held.partition] = held
        if before is not None:
            held.is_paused, held.is_left_out = before.is_paused, before.is_left_out
            self._drop(before)

    def leave_out(self, excludes: Callable[[str], bool]) -> None:
        """Give no records of partitions whose topics are excluded, and those of all others."""
        for each in list(self.held.values()):
            each.is_left_out = excludes(each.partition.topic)
            if each.is_left_out:
                each.lot = None

    def let_go(self, partition: TopicPartition) -> None:
        """Read a partition no more."""
        self._drop(self.held.pop(partition))

    def _drop(self, held: Held) -> None:
        held.lot = None
        self._turns.pop(held.partition, None)
        for piece in held.queue:
            self._release(held, piece)
        held.queue.clear()

    def _release(self, held: Held, piece: Piece) -> None:
        if isinstance(piece.result, Fetched) and self._engine.release(piece.result, piece.first_row):
            self._wake()

    # What arrives

    def sort(self) -> None:
        """Put what has arrived into the queues. An interrupt in it neither loses nor doubles a result."""
        results = self.arrivals.results
        while results:
            result = results[0]
            held = self.held.get(result.partition)
            if held is not None and result.generation > held.generation:
                held = self._adopt(held, result.generation)
            if held is None or result.generation != held.generation:
                if isinstance(result, Fetched) and self._engine.release(result):
                    self._wake()
            else:
                if not held.queue or held.queue[-1].result is not result:
                    self._put(held, result)
                if held.queue:
                    self._turns.setdefault(held.partition, held)
            results.popleft()

    def _adopt(self, before: Held, generation: int) -> Held:
        """Follow the engine to where an interrupted call has sent it."""
        held = Held(before.partition, generation, before.start)
        held.last = None
        self.hold(held)
        return held

    def _put(self, held: Held, result: Result) -> None:
        if isinstance(result, Moved):
            text = f"{result.error}; reading goes on at offset {result.to_offset}"
            self._faults.note(result.partition, text, self._now_ns())
            if result.to_offset < result.from_offset and held.queue and _is_of_same_topic(held, result):
                self._go_back(held, result)
                return
        elif self._faults.is_lasting(result.partition) and isinstance(result, Fetched):
            self._faults.end(result.partition, f"{result.partition}: there are records", self._now_ns())
        if held.last is None and not isinstance(result, Failed) and not self.place(held):
            held.last = LastRead(result.from_offset - 1, topic_id=result.topic_id)
        held.queue.append(Piece(result))

    def _go_back(self, held: Held, moved: Moved) -> None:
        """Drop what is not in the log any more, from the position on that the reset has found."""
        last = held.last
        assert last is not None  # there are results before
        self._drop(held)
        if last.offset < moved.to_offset:  # records in between were dropped with the others
            held.generation = self._engine.seek(held.partition, start_after(last))
            self._wake()
        else:
            held.last = LastRead(moved.to_offset - 1, moved.last_epoch, moved.topic_id)

    # What there is

    @property
    def has_next(self) -> bool:
        """True if `next_piece` has something to return or raise."""
        return self._next_held() is not None

    def _next_held(self) -> Held | None:
        for held in self._turns.values():
            # an interrupt may have left an empty queue in turn
            if held.queue and not held.is_silent and not held.queue[0].is_busy:
                return held
        return None

    def _end_turn(self, held: Held) -> None:
        if self._turns.pop(held.partition, None) is not None and held.queue:
            self._turns[held.partition] = held

    def _settle(self, held: Held) -> Exception | None:
        """Pass what is used up at the head of the queue. Return an error that is there."""
        while held.queue and held.queue[0].is_used_up:
            piece = held.queue[0]
            if piece.error is not None:
                return piece.error
            result = piece.result
            self._moved[held.partition] = held
            if isinstance(result, Moved):
                held.last = LastRead(result.to_offset - 1, result.last_epoch, result.topic_id)
            elif isinstance(result, Fetched) and result.next_offset > held.position:
                held.last = LastRead(result.next_offset - 1, result.last_epoch, result.topic_id)
            self._release(held, piece)  # first: after an interrupt it is done again
            held.queue.popleft()
            self._end_turn(held)
        return None

    def _raised(self, held: Held, error: Exception) -> Exception:
        """Return an error that is raised now. The position stays. What may succeed later is tried again: a
        failed partition, a deserializer whose registry has refused.
        """
        self._end_turn(held)
        if not isinstance(error, CorruptRecordError | DeserializationError):
            held.queue[0].forget_columns()
        if isinstance(held.queue[0].result, Failed):
            start = held.start if held.last is None else start_after(held.last)
            held.queue.clear()
            self._turns.pop(held.partition)
            held.generation = self._engine.seek(held.partition, start)
            self._wake()
        return error.marked() if isinstance(error, KafkaError) else error

    # Objects

    def next_piece(self, *, raises: bool = True) -> tuple[Held, Piece] | None:
        """Return the partition whose turn it is, and its piece, which has another record. None if nothing is
        there, or instead of raising an error.
        """
        while (held := self._next_held()) is not None:
            held.lot = None
            held.queue[0].forget_columns()
            error = self._settle(held)
            if error is not None:
                if raises:
                    raise self._raised(held, error)
                return None
            if held.queue and not held.queue[0].is_busy:
                piece = held.queue[0]
                if piece.records is not None and piece.records.skip_to(held.position):
                    return held, piece
        return None

    def take_records(self, most: int) -> list[Taken]:
        """Return the next records, `most` at most, which count as delivered."""
        taken: list[Taken] = []
        while most > 0 and (found := self.next_piece(raises=not taken)) is not None:
            held, piece = found
            assert piece.records is not None
            self._before.setdefault(held, held.last)
            first_row = piece.first_row
            records = held.take(piece.records, most)
            taken.append(Taken(held.partition, piece, first_row, records))
            self._moved[held.partition] = held
            self._settle(held)
            most -= len(records)
        return taken

    # Columns

    def decode_ahead(
        self, projection: Projection, limits: Limits, submit: Submit, most_pieces: int | None = None
    ) -> None:
        """Begin to decode the pieces that the next poll takes, or the first ones of them. As long as values
        have yet to say a type, one piece is decoded after the other, so that the first one does.
        """
        row_count = byte_count = 0
        pieces = (piece for _, piece in self._in_turn() if piece.records is not None)
        for piece in islice(pieces, most_pieces):
            assert piece.records is not None
            piece.decode(projection, submit, self._notify)
            if piece.is_busy and projection.missing_types:
                break
            row_count += piece.records.row_bound
            byte_count += piece.records.byte_count
            if row_count >= limits.most_rows or byte_count >= limits.most_bytes:
                break

    def _in_turn(self) -> Iterator[tuple[Held, Piece]]:
        """Iterate over all pieces in the order in which they are taken."""
        for place in count():
            is_over = True
            for held in self._turns.values():
                if not held.is_silent and place < len(held.queue):
                    is_over = False
                    yield held, held.queue[place]
            if is_over:
                return

    def plan(self, projection: Projection, limits: Limits) -> Plan:
        """Return the rows that can be taken. A piece is cut only if there are too few rows without it."""
        least_rows, most_rows, most_bytes = limits
        parts: list[Part] = []
        row_count = byte_count = 0
        for held, piece in self._in_turn():
            if piece.records is None:
                if isinstance(piece.result, Failed):
                    return Plan(parts, row_count, True)
                continue
            decoded = None if piece.is_busy else piece.decoded
            if decoded is None or not decoded.projection.is_same(projection):
                return Plan(parts, row_count, False)
            first = piece.first_row
            rows, size = decoded.row_count - first, 0
            if rows > 0:
                size = sum(batch.nbytes for batch in decoded.rows(first, rows))
                is_cut = row_count + rows > most_rows or byte_count + size > most_bytes
                if is_cut and row_count >= least_rows:
                    return Plan(parts, row_count, True)
                if is_cut:
                    rows = min(rows, most_rows - row_count)
                    rows = max(decoded.count_within(first, rows, most_bytes - byte_count), int(not parts))
                if rows:
                    parts.append(Part(held, piece, first, first + rows))
                row_count, byte_count = row_count + rows, byte_count + size
                if is_cut:
                    return Plan(parts, row_count, True)
            if decoded.error is not None:
                return Plan(parts, row_count, True)
        return Plan(parts, row_count, row_count >= most_rows)

    def settle(self, *, raises: bool) -> None:
        """Pass what has no rows. Raise the error that comes next, if wanted."""
        for held in list(self._turns.values()):
            if held.queue and not (held.is_silent or held.queue[0].is_busy):
                error = self._settle(held)
                if error is not None and raises:
                    raise self._raised(held, error)

    def take_rows(self, plan: Plan) -> list[pa.RecordBatch]:
        """Return the rows of a plan, which count as delivered."""
        batches: list[pa.RecordBatch] = []
        ends = []
        for _, piece, first, end in plan.parts:
            decoded = piece.decoded
            assert decoded is not None
            batches += decoded.rows(first, end - first)
            ends.append(piece.last_of(end))
        for (held, piece, _, end), last in zip(plan.parts, ends, strict=True):
            held.lot = None
            self._before.setdefault(held, held.last)
            held.last = last
            piece.take_rows(end)
            self._moved[held.partition] = held
            self._settle(held)
        return batches


def offset_after(last: LastRead | ConsumerRecord) -> OffsetAndMetadata:
    """Return a position as it is committed."""
    return OffsetAndMetadata(last.offset + 1, leader_epoch=last.leader_epoch, topic_id=last.topic_id)


def start_after(last: LastRead | ConsumerRecord) -> Start:
    """Return a position as one to begin at."""
    return Start(last.offset + 1, last.leader_epoch, last.topic_id)


def _is_of_same_topic(held: Held, moved: Moved) -> bool:
    """True if a position has moved within the topic that the last result before is of."""
    before = held.queue[-1].result
    return isinstance(before, Failed) or before.topic_id == moved.topic_id
