"""RangeBuffer: what was fetched of the ranges of a TopicReader, and how a read takes it, as record batches or
as objects.

Theory of operation. Queues, outdated results, positions, and the memory that goes back are FetchBuffer's.
Partitions take turns, an answer each; the records of one come in the order of their offsets. Here is what
reads of ranges have of their own. An error ends a read. A read ends, too, and what was fetched for it goes
back; the generation of its partitions says what that is. What it has passed is told in order (`passed`), for
its progress.

Workers make columns, without the GIL. Answers ring threads without it, too. So one worker at a time waits for
them, sorts them, and begins to decode the first fetch that nobody decodes yet; meanwhile the program may
compute. A fetch is only read once, so its bytes are let go as soon as it is decoded.

Objects need the GIL, so workers would only take it from the program. They are made on its own thread when it
takes them, a few hundred at a time, while their bytes are in the processor's cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar, final

from kbatch._native.fetch.arrivals import Arrivals
from kbatch._native.fetch.fetch_buffer import CompletedFetch, FetchBuffer, LastRead, QueuedCursor
from kbatch._native.io.interrupts import at_once
from kbatch.consumer.fetch_columns import FetchColumns
from kbatch.core.consumer.results import Failed, Fetched, Moved, Result
from kbatch.network.decoding import FETCHES_AHEAD, Decoding
from kbatch.waiting.conditions import Condition
from kbatch.waiting.deadline import Deadline
from kbatch.waiting.threads import ThreadWaiter

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch._native.codec.record import ConsumerRecord
    from kbatch._native.fetch.releases import Releases
    from kbatch.consumer.projection import Projection
    from kbatch.consumer.typed_records import TypedRecords
    from kbatch.core.consumer.partition_state import Start
    from kbatch.records import TopicPartition

Item = TypeVar("Item")

# Records that are made at a time.
RECORDS_AT_A_TIME = 512


@final
class RangeBuffer(FetchBuffer):
    """What was fetched for the reads of a client, one after the other.

    Parameters
    ----------
    release : Releases
        Gives the memory of results back to the engine.
    wake : callable
        Wakes the engine's owner.
    changed : Condition
        The program waits for it while workers decode.

    Attributes
    ----------
    arrived : Condition
        Notified of arrivals. Whoever sorts them and does not take all notifies it, too.
    """

    passed: deque[tuple[Fetched | Moved, int]]

    def __init__(self, release: Releases, wake: Callable[[], object], changed: Condition) -> None:
        self.arrived = Condition(ThreadWaiter)
        arrivals: Arrivals[Result] = Arrivals(self.arrived.notify, self.arrived.waiting)
        super().__init__(arrivals, release, wake)
        self.passed = deque()
        self._changed = changed

    def begin(
        self, generation: int, starts: Mapping[TopicPartition, Start]
    ) -> deque[tuple[Fetched | Moved, int]]:
        """Read these partitions, and no others. Return what the read has passed."""
        for cursor in list(self.assigned.values()):
            self.end(cursor)
        passed = self.passed = deque()  # a thread may still be in the read before, and looks at its own
        for partition, start in starts.items():
            cursor = QueuedCursor()
            cursor.partition, cursor.generation, cursor.queue = partition, generation, deque()
            cursor.last = LastRead(start.offset - 1, start.leader_epoch, start.topic_id)
            self.add(cursor)
        return passed

    def end_read(self, generation: int) -> None:
        """End the read with this generation. Any thread may call it."""
        for cursor in list(self.assigned.values()):
            if cursor.generation == generation:
                self.end(cursor)

    def clear_arrivals(self, now_ns: int) -> None:
        """Give back what has arrived for a read that has ended; on the network's thread."""
        self.sort()
        self.notify()  # of what has arrived for the next one

    def notify(self) -> None:
        """Make the program and a worker that waits look again. Any thread may call it."""
        self.arrived.notify()
        self._changed.notify()

    def _put_unusual(self, cursor: QueuedCursor, result: Moved | Failed) -> None:
        cursor.queue.append(CompletedFetch(result, result.error if isinstance(result, Failed) else None))

    def _raised(self, cursor: QueuedCursor, error: Exception) -> Exception:
        return error


class Source(Protocol[Item]):
    """How a read takes what was fetched for it. It does not refer to the read. Another thread may end that
    at any time, and begin the next one.

    Attributes
    ----------
    awaited : Condition
        Notified when `is_ready` may have become true.
    is_kept : bool
        True if `take` has raised, and tries the same records again.
    """

    @property
    def awaited(self) -> Condition: ...
    @property
    def is_kept(self) -> bool: ...
    def start(self) -> None:
        """Begin, when the read knows the source: whatever happens then, it stops it."""
        ...

    def is_ready(self) -> bool:
        """True if `take` has something to return or raise, or if something was passed."""
        ...

    def take(self) -> tuple[TopicPartition, list[Item]] | None:
        """Return items of a fetch, and its partition; None if there are none after what was passed."""
        ...

    def stop(self) -> None:
        """End, without waiting for workers. Any thread may call it."""
        ...


@final
class RecordSource:
    """Records as objects, on the thread that takes them.

    Parameters
    ----------
    buffer : RangeBuffer
    typed : TypedRecords or None
        Makes the records that the program gets.
    generation : int
        That of the read.
    """

    def __init__(self, buffer: RangeBuffer, typed: TypedRecords | None, generation: int) -> None:
        self._buffer = buffer
        self._typed = typed
        self._generation = generation
        self.awaited = buffer.arrived
        self.is_kept = False

    def start(self) -> None:
        pass

    def is_ready(self) -> bool:
        self._buffer.sort()
        return self._buffer.has_next

    def take(self) -> tuple[TopicPartition, list[ConsumerRecord]] | None:
        self.is_kept = False
        if self._typed is None:
            taken = self._buffer.take_next(RECORDS_AT_A_TIME, True, self._generation)
            return None if taken is None else (taken.partition, taken.records)
        cursor = self._buffer.next_with_record(True, self._generation)
        records = None if cursor is None else cursor.first.records
        if records is None:
            return None
        raw = records.peek_records(RECORDS_AT_A_TIME)
        self.is_kept = True
        made, _, failure = self._typed.taken(raw)
        if not made and failure is not None:
            raise failure
        self.is_kept = False
        self._buffer.take_next(len(made), True, self._generation)
        return cursor.partition, [each for each in made if each is not None]

    def stop(self) -> None:
        pass


@final
class BatchSource:
    """Records as record batches, which workers decode a few fetches ahead of the program.

    Parameters
    ----------
    buffer : RangeBuffer
    projection : Projection
    changed : Condition
        Notified after a fetch is decoded.
    generation : int
        That of the read.
    batch_rows : int or None
        Maximum rows of a batch.
    name : str
        The beginning of the names of the workers.
    threads : int
        Their number. If there are no new threads while the interpreter ends, a fetch is decoded when it is
        taken.
    """

    is_kept = False

    def __init__(
        self,
        buffer: RangeBuffer,
        projection: Projection,
        changed: Condition,
        *,
        generation: int,
        batch_rows: int | None,
        name: str,
        threads: int,
    ) -> None:
        self._buffer = buffer
        self._projection = projection
        self._changed = changed
        self._generation = generation
        self._batch_rows = batch_rows
        self._threads = threads
        self._most_ahead = FETCHES_AHEAD * threads
        self._decoding = Decoding(self._next_work, name=name, notify=changed.notify)

    def start(self) -> None:
        self._most_ahead = FETCHES_AHEAD * self._decoding.start(self._threads)

    @property
    def awaited(self) -> Condition:
        return self._changed if self._most_ahead else self._buffer.arrived

    # The program's thread

    def is_ready(self) -> bool:
        if not self._most_ahead:
            self._buffer.sort()
        return self._next_cursor() is not None or self._decoding.error is not None

    def _next_cursor(self) -> QueuedCursor | None:
        """Return the next partition whose first fetch can be taken."""
        cursor: QueuedCursor
        for cursor in self._buffer.begun():
            fetch = cursor.first
            if fetch is None or cursor.generation != self._generation:
                continue
            # in this order: a worker lets go of the records after it has decoded them
            if fetch.records is None or not self._most_ahead:
                return cursor
            if fetch.columns is not None and not fetch.columns.is_busy:
                return cursor
        return None

    def take(self) -> tuple[TopicPartition, list[pa.RecordBatch]] | None:
        if self._decoding.error is not None:
            raise self._decoding.error
        cursor = self._next_cursor()
        fetch = None if cursor is None else cursor.first
        if cursor is None or fetch is None:
            return None
        batches: list[pa.RecordBatch] = []
        if fetch.columns is None and fetch.records is not None:
            FetchColumns.decode_last(fetch, self._projection)()
        if fetch.columns is not None:
            decoded = fetch.columns.decoded
            if fetch.row_count < decoded.row_count:
                fetch.row_count = decoded.row_count
                batches = decoded.batches
        error = self._buffer.discard_head(cursor)
        if error is not None and not batches:
            raise error
        self._buffer.arrived.notify()  # a worker may decode another one
        return cursor.partition, self._cut(batches)

    def _cut(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        most = self._batch_rows
        if most is None:
            return batches
        return [batch.slice(first, most) for batch in batches for first in range(0, batch.num_rows, most)]

    def stop(self) -> None:
        self._decoding.stop()
        self._buffer.arrived.notify()

    # The worker that waits

    def _next_work(self) -> Callable[[], object] | None:
        """Wait for a fetch that nobody decodes, and return what decodes it; None at the end."""
        found: list[Callable[[], object]] = []
        arrived, decoding = self._buffer.arrived, self._decoding
        at_once(arrived.wait_until, lambda: self._begin_next(found) or decoding.is_stopped, Deadline(None))
        if found:
            return found.pop()
        arrived.notify()  # the next read may wait for what was sorted here
        return None

    def _begin_next(self, found: list[Callable[[], object]]) -> bool:
        """Find a fetch that nobody decodes, if not enough are decoded ahead of the program."""
        self._buffer.sort()
        begun_count, is_for_program = 0, False
        for cursor, fetch in self._buffer.in_order():
            if cursor.generation != self._generation:
                continue
            if fetch.columns is not None:
                begun_count += 1
                if begun_count == self._most_ahead:
                    break
            elif fetch.records is not None:
                found.append(FetchColumns.decode_last(fetch, self._projection))
                break
            elif fetch is cursor.first:
                is_for_program = True
        if is_for_program:
            self._changed.notify()
        return bool(found)
