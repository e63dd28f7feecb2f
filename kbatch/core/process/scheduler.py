"""ProcessScheduler: which record a worker gets next, what follows from its outcome, and what is committed.

Theory of operation. Records that are taken wait in queues, one a key, of which one attempt at a time runs; so
the order of a key is kept. Queues that are ready are served in the order in which they became so, and one
that has just run goes to the end. A record that has failed waits in its queue until it is tried again, and
its successors wait behind it. After the last attempt `on_failure` has it, in an attempt of its own.

Behind a record that has failed, a queue keeps some records, and *parks* the others: of these it has only the
offsets, which stay unfinished. So a key that fails fills no memory that other keys need. When it goes on, its
parked records are read again, some at a time, and new ones are parked until there are none before them.

Each time a partition is owned there is another OwnedPartition. An attempt knows its own, so the outcome of
one that began before the partition was given up changes nothing afterwards. What is in memory is counted by
what the OwnedPartitions have, and nothing else.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import TYPE_CHECKING, Literal, final

from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.client.lasting_faults import LastingFaults
from kbatch.core.process.progress import PartitionProgress
from kbatch.core.process.retry import Retry
from kbatch.errors import IllegalStateError, ProcessError
from kbatch.logs import ClientLogger
from kbatch.records import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord

logger = ClientLogger("kbatch.consumer")

Order = Literal["key", "partition", "none"]
# What becomes of a record after its last attempt; "handle" gives it to a function, with its error.
LastResort = Literal["stop", "skip", "handle"]
# A partition that has been stopped by `max_ahead` is read on below this fraction of it.
RESUME_FRACTION = 0.75


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is in memory and at work.

    Attributes
    ----------
    workers : int
        Attempts that run at a time.
    batch : int
        Records of an attempt.
    max_in_flight, max_bytes : int
        Records that are taken and not finished, of all partitions, and their bytes.
    max_ahead : int
        Offsets of a partition from its first unfinished one to the newest that is taken.
    kept : int
        Records that stay in memory behind one of their key that has failed.
    """

    workers: int = 16
    batch: int = 1
    max_in_flight: int = 1000
    max_bytes: int = 64 << 20
    max_ahead: int = 100_000
    kept: int = 100


@dataclass(slots=True)
class Counts:
    """What has happened so far, in records.

    Attributes
    ----------
    finished : int
        The function returned.
    failed, retried : int
        Attempts that failed, and those of them that another one followed.
    skipped, handled : int
        Left out after the last attempt; finished by `on_failure`.
    repeated : int
        Not processed, since an earlier owner had finished them.
    dropped : int
        Outcomes that came after the partition was given up.
    """

    finished: int = 0
    failed: int = 0
    retried: int = 0
    skipped: int = 0
    handled: int = 0
    repeated: int = 0
    dropped: int = 0


@final
class TakenRecord:
    """A record in memory.

    Attributes
    ----------
    record : ConsumerRecord
    byte_count : int
    attempts : int
        Those that have failed: of the function, or of `on_failure` once there is a `failure`.
    failure : Exception or None
        That of the last attempt, if `on_failure` is to deal with it.
    is_gone : bool
        True if the log has lost it.
    """

    __slots__ = ("attempts", "byte_count", "failure", "is_gone", "record")

    def __init__(self, record: ConsumerRecord, byte_count: int) -> None:
        self.record = record
        self.byte_count = byte_count
        self.attempts = 0
        self.failure: Exception | None = None
        self.is_gone = False


@final
class KeyQueue:
    """The records that run one after the other.

    Attributes
    ----------
    owned : OwnedPartition
    key : object
    waiting : deque of TakenRecord
        Without those that run.
    alone_count : int
        So many records are tried one by one, since their batch has failed.
    has_failed : bool
        True if its first record has failed, and is tried again.
    reading : tuple of int
        The offsets after those that wait, whose records are being read again.
    parked : deque of int
        The offsets after these.
    is_idle : bool
        True if it waits for what is read again.
    """

    __slots__ = ("alone_count", "has_failed", "is_idle", "key", "owned", "parked", "reading", "waiting")

    def __init__(self, owned: OwnedPartition, key: object) -> None:
        self.owned = owned
        self.key = key
        self.waiting: deque[TakenRecord] = deque()
        self.alone_count = 0
        self.has_failed = self.is_idle = False
        self.reading: tuple[int, ...] = ()
        self.parked: deque[int] = deque()

    def park_reading(self) -> None:
        """Give up reading records again: they are parked."""
        self.parked.extendleft(reversed(self.reading))
        self.owned.parked_count += len(self.reading)
        self.reading = ()


@final
class OwnedPartition:
    """A partition from its assignment, or a seek, to its end.

    Attributes
    ----------
    partition : TopicPartition
    progress : PartitionProgress
    queues : dict of object to KeyQueue
        By key.
    byte_count : int
        Of what is in memory and unfinished.
    parked_count : int
        Of the parked offsets of all queues.
    is_open : bool
        False if nothing new of it begins.
    is_owned : bool
        False if outcomes do not count any more.
    is_blocked : bool
        True if nothing new of it is taken.
    committed : OffsetAndMetadata or None
        What the group has.
    is_changed : bool
        True if there may be something to commit.
    """

    __slots__ = (
        "byte_count",
        "committed",
        "is_blocked",
        "is_changed",
        "is_open",
        "is_owned",
        "parked_count",
        "partition",
        "progress",
        "queues",
    )

    def __init__(self, partition: TopicPartition, progress: PartitionProgress) -> None:
        self.partition = partition
        self.progress = progress
        self.queues: dict[object, KeyQueue] = {}
        self.byte_count = self.parked_count = 0
        self.is_open = self.is_owned = True
        self.is_blocked = False
        self.committed: OffsetAndMetadata | None = None
        self.is_changed = True


@final
class Attempt:
    """Records that a worker has.

    Attributes
    ----------
    queue : KeyQueue
    taken : list of TakenRecord
    failure : Exception or None
        What `on_failure` is to deal with; None if the function is to process the records.
    started_ns : int
    is_reported : bool
        True if it was reported as stalled.
    """

    __slots__ = ("failure", "is_reported", "queue", "started_ns", "taken")

    def __init__(self, queue: KeyQueue, taken: list[TakenRecord], started_ns: int) -> None:
        self.queue = queue
        self.taken = taken
        self.failure = taken[0].failure
        self.started_ns = started_ns
        self.is_reported = False

    @property
    def records(self) -> list[ConsumerRecord]:
        return [each.record for each in self.taken]


@final
class ProcessScheduler:
    """The records of one `process()`.

    Parameters
    ----------
    order : "key", "partition" or "none"
    limits : Limits
    retry : Retry
    last_resort : "stop", "skip" or "handle"
    random : random.Random

    Attributes
    ----------
    counts : Counts
    failure : ProcessError or None
        The reason why nothing new begins.
    running : dict of Attempt to None
        Also those of partitions that were given up.
    """

    def __init__(
        self, order: Order, limits: Limits, retry: Retry, last_resort: LastResort, random: Random
    ) -> None:
        self._order = order
        self._limits = limits
        self._retry = retry
        self._last_resort = last_resort
        self._random = random
        self._owned: dict[TopicPartition, OwnedPartition] = {}
        self._ready: deque[KeyQueue] = deque()
        self._backing_off: list[tuple[int, int, KeyQueue]] = []  # a heap, by time
        self._numbers = count()  # of its entries, as queues have no order
        self._takes = self._begins = True
        self.running: dict[Attempt, None] = {}
        self.counts = Counts()
        self.failure: ProcessError | None = None
        self._faults = LastingFaults(logger)  # records that `on_failure` deals with

    # Which partitions

    def own(
        self,
        partition: TopicPartition,
        progress: PartitionProgress,
        committed: OffsetAndMetadata | None = None,
    ) -> OwnedPartition:
        """Begin with a partition, from a position on. `committed` is what the group has for it."""
        self.drop([partition])
        owned = self._owned[partition] = OwnedPartition(partition, progress)
        owned.committed = committed
        return owned

    def owned(self, partition: TopicPartition) -> OwnedPartition | None:
        return self._owned.get(partition)

    def partitions(self) -> list[OwnedPartition]:
        return list(self._owned.values())

    def close(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin nothing new of these partitions, which are to be given up."""
        for each in partitions:
            if each in self._owned:
                self._owned[each].is_open = False

    def is_idle(self, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """True if nothing of these partitions runs; None for all that are owned."""
        chosen = self._owned if partitions is None else set(partitions)
        running = (each.queue.owned for each in self.running)
        return not any(each.is_owned and each.partition in chosen for each in running)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget these partitions. Outcomes of what runs do not count."""
        for each in partitions:
            owned = self._owned.pop(each, None)
            if owned is not None:
                owned.is_open = owned.is_owned = False
        self._ready = deque(queue for queue in self._ready if queue.owned.is_owned)
        self._backing_off = [entry for entry in self._backing_off if entry[2].owned.is_owned]
        heapq.heapify(self._backing_off)

    def stop(self, *, drains: bool = False) -> None:
        """Take nothing more, and begin nothing new but, if it `drains`, what is in memory."""
        self._takes, self._begins = False, drains
        for owned in self._owned.values():
            for queue in owned.queues.values():
                queue.park_reading()

    # What is taken

    @property
    def record_count(self) -> int:
        """The number of records that are in memory, or about to be, and not finished."""
        return sum(len(each.progress.unfinished) - each.parked_count for each in self.partitions())

    @property
    def parked_count(self) -> int:
        return sum(each.parked_count for each in self.partitions())

    @property
    def byte_count(self) -> int:
        return sum(each.byte_count for each in self.partitions())

    @property
    def room(self) -> int:
        """The number of records that may be taken now."""
        if not self._takes or self.failure is not None or self.byte_count >= self._limits.max_bytes:
            return 0
        return max(self._limits.max_in_flight - self.record_count, 0)

    def take(self, owned: OwnedPartition, record: ConsumerRecord, now_ns: int) -> None:
        """Take the next record of a partition. One before the last was taken from a log that has lost it."""
        if record.offset < owned.progress.end:
            self.truncate(owned, record.offset)
        owned.is_changed = True
        if not owned.progress.take(record.offset, record.leader_epoch, now_ns):
            self.counts.repeated += 1
            return
        key = self._key_of(record)
        queue = owned.queues.get(key)
        if queue is None:
            queue = owned.queues[key] = KeyQueue(owned, key)
            self._ready.append(queue)
        is_full = queue.has_failed and len(queue.waiting) >= self._limits.kept
        if is_full or queue.reading or queue.parked:
            queue.parked.append(record.offset)
            owned.parked_count += 1
        else:
            self._keep(queue, record)

    def _keep(self, queue: KeyQueue, record: ConsumerRecord) -> None:
        taken = TakenRecord(record, size_of(record))
        queue.owned.byte_count += taken.byte_count
        queue.waiting.append(taken)

    def _key_of(self, record: ConsumerRecord) -> object:
        """Return what records have in common that run one after the other: a null key is like no other."""
        if self._order == "partition":
            return None
        key = record.raw_key if self._order == "key" else None
        return record.offset if key is None else key

    def advance(self, owned: OwnedPartition, position: int, leader_epoch: int) -> None:
        """Go to a position, before which there are no more records; or back, as the log is shorter."""
        if position < owned.progress.end:
            self.truncate(owned, position)
        if position != owned.progress.end:
            owned.progress.advance(position, leader_epoch)
            owned.is_changed = True

    def truncate(self, owned: OwnedPartition, offset: int) -> None:
        """Drop what the log has lost, from an offset on."""
        owned.progress.truncate(offset)
        owned.is_changed = True
        running = (each.taken for each in self.running if each.queue.owned is owned)
        for taken in (*running, *(queue.waiting for queue in owned.queues.values())):
            for each in taken:
                if each.record.offset >= offset and not each.is_gone:
                    each.is_gone = True
                    owned.byte_count -= each.byte_count
        for queue in owned.queues.values():
            queue.park_reading()
            while queue.parked and queue.parked[-1] >= offset:
                queue.parked.pop()
                owned.parked_count -= 1

    def blocked(self) -> Iterator[tuple[OwnedPartition, bool]]:
        """Yield the partitions of which no more is to be taken, and again those of which it is. The reason is
        `max_ahead`, metadata that has no room for what is finished, or that all would be parked.
        """
        most = self._limits.max_ahead
        for owned in self._owned.values():
            progress = owned.progress
            limit = most * RESUME_FRACTION if owned.is_blocked else most
            is_parking = self._order == "partition" and owned.parked_count > 0
            is_too_far = progress.span >= limit or progress.is_cut or is_parking
            is_blocked = bool(progress.unfinished) and is_too_far
            if is_blocked != owned.is_blocked:
                owned.is_blocked = is_blocked
                yield owned, is_blocked

    # What runs

    def next(self, now_ns: int) -> Attempt | None:
        """Return the next records for a worker; None if there are none, or no worker is free."""
        if not self._begins or self.failure is not None or len(self.running) >= self._limits.workers:
            return None
        while self._backing_off and self._backing_off[0][0] <= now_ns:
            self._ready.append(heapq.heappop(self._backing_off)[2])
        while self._ready:
            queue = self._ready.popleft()
            if queue.owned.is_open and (taken := self._take_from(queue)):
                attempt = Attempt(queue, taken, now_ns)
                self.running[attempt] = None
                return attempt
        return None

    def _take_from(self, queue: KeyQueue) -> list[TakenRecord]:
        """Return the first records of a queue, which do not wait in it any more."""
        while queue.waiting and queue.waiting[0].is_gone:
            queue.waiting.popleft()
        if not queue.waiting:
            self._leave(queue)
            return []
        is_single = queue.alone_count > 0 or queue.waiting[0].failure is not None
        taken = list(islice(queue.waiting, 1 if is_single else self._limits.batch))
        for _ in taken:
            queue.waiting.popleft()
        return taken

    def _leave(self, queue: KeyQueue) -> None:
        """Leave a queue without records in memory: to what is read again for it, or for ever."""
        queue.is_idle = bool(queue.reading or queue.parked)
        queue.has_failed = False
        if not queue.is_idle and queue.owned.queues.get(queue.key) is queue:
            del queue.owned.queues[queue.key]

    def check_progress(self) -> None:
        """Raise IllegalStateError, after `next` has returned None, if records wait that nothing will run:
        all that wait must be behind one that runs, or backs off.
        """
        if self.running or self._backing_off or not self._begins or self.failure is not None:
            return
        if stuck := [each for each in self.partitions() if each.is_open and self._has_waiting(each)]:
            described = ", ".join(
                f"{each.partition} from offset {each.progress.first_unfinished} to {each.progress.end} "
                f"({len(each.progress.unfinished)} unfinished, {len(each.queues)} keys)"
                for each in stuck
            )
            raise IllegalStateError(
                f"process() is stuck, which is a fault of kbatch: nothing runs, and records wait: {described}"
            )

    def _has_waiting(self, owned: OwnedPartition) -> bool:
        """True if records of a partition are in memory, or none are and nothing is read again for them."""
        read_count = sum(len(each.reading) for each in owned.queues.values())
        return len(owned.progress.unfinished) - owned.parked_count > read_count

    def deadline_ns(self) -> int:
        """Return when `next` has something to return that it has not now, if nothing happens before."""
        is_free = len(self.running) < self._limits.workers
        return self._backing_off[0][0] if self._backing_off and is_free else NEVER_NS

    @property
    def backing_off_count(self) -> int:
        """The number of keys that wait for another attempt."""
        return len(self._backing_off)

    # What has run

    def finish(self, attempt: Attempt, outcomes: Sequence[Exception | None], now_ns: int) -> None:
        """End an attempt, with the outcome of each record: None is success. Records without an outcome were
        not tried.
        """
        del self.running[attempt]
        queue, owned = attempt.queue, attempt.queue.owned
        if not owned.is_owned:
            self.counts.dropped += len(attempt.taken)
            return
        owned.is_changed = True
        queue.alone_count = max(queue.alone_count - len(attempt.taken), 0)
        wait_ns, unfinished = 0, []
        for taken, error in zip(attempt.taken, outcomes, strict=False):
            if taken.is_gone:
                self.counts.dropped += 1
            elif error is None:
                self._finish_record(owned, taken, attempt.failure)
            elif (wait := self._fail(owned, taken, error, now_ns)) is not None:
                wait_ns = max(wait_ns, wait)
                unfinished.append(taken)
        queue.has_failed = bool(unfinished)
        unfinished += attempt.taken[len(outcomes) :]
        self._go_on(queue, unfinished, now_ns + wait_ns if wait_ns else 0)

    def give_back(self, attempt: Attempt, *, one_by_one: bool = False) -> None:
        """End an attempt that says nothing about its records: they are tried again, also one by one."""
        del self.running[attempt]
        if not attempt.queue.owned.is_owned:
            self.counts.dropped += len(attempt.taken)
            return
        if one_by_one:
            attempt.queue.alone_count = len(attempt.taken)
        self._go_on(attempt.queue, [each for each in attempt.taken if not each.is_gone], 0)

    def _go_on(self, queue: KeyQueue, unfinished: list[TakenRecord], not_before_ns: int) -> None:
        """Serve a queue again, at a time or at the end of the others."""
        queue.waiting.extendleft(reversed(unfinished))
        if queue.has_failed and len(queue.waiting) > self._limits.kept:
            self._park_last(queue)
        if not queue.waiting:
            self._leave(queue)
        elif not_before_ns:
            heapq.heappush(self._backing_off, (not_before_ns, next(self._numbers), queue))
        else:
            self._ready.append(queue)

    # What is parked

    def _park_last(self, queue: KeyQueue) -> None:
        """Park the last records of a queue, up to as many as it keeps."""
        queue.park_reading()  # which comes after them
        while len(queue.waiting) > self._limits.kept:
            taken = queue.waiting.pop()
            if not taken.is_gone:
                queue.owned.byte_count -= taken.byte_count
                queue.owned.parked_count += 1
                queue.parked.appendleft(taken.record.offset)

    def to_read(self) -> Iterator[KeyQueue]:
        """Yield the queues for which the offsets in `reading` are to be read again now, each once."""
        for owned in self.partitions():
            if owned.parked_count and owned.is_open:
                for queue in list(owned.queues.values()):
                    is_behind = queue.has_failed and bool(queue.waiting)
                    if not queue.parked or queue.reading or is_behind:
                        continue  # as most of the keys: `room` is a sum over partitions
                    count = min(self._limits.kept - len(queue.waiting), self.room, len(queue.parked))
                    if count > 0:
                        queue.reading = tuple(queue.parked.popleft() for _ in range(count))
                        owned.parked_count -= count
                        yield queue

    def take_again(
        self, queue: KeyQueue, offsets: tuple[int, ...], records: Mapping[int, ConsumerRecord]
    ) -> None:
        """Take what was read for a queue, by offset. What the log does not have any more is finished."""
        if queue.reading is not offsets or not queue.owned.is_owned:
            return
        queue.reading = ()
        for offset in offsets:
            if offset in records:
                self._keep(queue, records[offset])
            else:
                queue.owned.progress.finish(offset)
        queue.owned.is_changed = True
        if queue.is_idle:
            queue.is_idle = False
            self._go_on(queue, [], 0)

    def park_again(self, queue: KeyQueue, offsets: tuple[int, ...]) -> None:
        """Park what could not be read for a queue."""
        if queue.reading is offsets:
            queue.park_reading()

    def _finish_record(self, owned: OwnedPartition, taken: TakenRecord, failure: Exception | None) -> None:
        owned.progress.finish(taken.record.offset)
        owned.byte_count -= taken.byte_count
        if failure is None:
            self.counts.finished += 1
        else:
            self.counts.handled += 1

    def _fail(self, owned: OwnedPartition, taken: TakenRecord, error: Exception, now_ns: int) -> int | None:
        """Decide what follows from a failed attempt: return the wait before the next one in nanoseconds, or
        None if the record is finished.
        """
        taken.attempts += 1
        self.counts.failed += 1
        is_handled = taken.failure is not None
        is_last = self._is_last(owned, taken, error)
        if not is_last:
            self.counts.retried += 1
            return self._retry.wait_ns(taken.record, taken.attempts, error, self._random)
        if is_handled or self._last_resort == "stop":
            self._stop_by(taken, error)
            return 0
        text = f"{name_of(taken.record)} after {taken.attempts} attempts: {error!r}"
        if self._last_resort == "skip":
            logger.warning("%s", text)  # all that is left of it
            owned.progress.finish(taken.record.offset)
            owned.byte_count -= taken.byte_count
            self.counts.skipped += 1
            return None
        self._faults.note(owned.partition, text, now_ns)
        taken.failure, taken.attempts = error, 0
        return 0

    def _is_last(self, owned: OwnedPartition, taken: TakenRecord, error: Exception) -> bool:
        """True if a failed attempt was the last. A record that stops its partition has no more."""
        if taken.failure is not None:
            return self._retry.has_used_up(taken.attempts)
        is_first = owned.progress.first_unfinished == taken.record.offset
        is_in_the_way = is_first and owned.progress.span >= self._limits.max_ahead
        return is_in_the_way or self._retry.is_last(taken.attempts, error)

    def _stop_by(self, taken: TakenRecord, error: Exception) -> None:
        if self.failure is None:
            what = "" if taken.failure is None else "on_failure of "
            self.failure = ProcessError(
                f"process() has ended: {what}{name_of(taken.record)} failed {taken.attempts} times: "
                f"{error!r}; mend the function, or pass on_failure to go on without such records"
            )
            self.failure.record = taken.record
            self.failure.__cause__ = error

    def stalled(self, started_before_ns: int) -> list[Attempt]:
        """Return the attempts that have run since before a time, each once."""
        found = []
        for attempt in self.running:  # in the order of their beginnings
            if attempt.started_ns > started_before_ns:
                break
            if not attempt.is_reported:
                attempt.is_reported = True
                found.append(attempt)
        return found

    # What is committed

    def offsets(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what is to be committed for these partitions, or all, where that has changed."""
        found = {}
        for each in list(self._owned if partitions is None else partitions):
            owned = self._owned.get(each)
            if owned is not None and owned.is_changed:
                owned.is_changed = False
                offset = owned.progress.offset()
                if offset != owned.committed:
                    found[each] = offset
        return found

    def note_commit(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        failed: Iterable[TopicPartition],
        too_large: Iterable[TopicPartition],
    ) -> None:
        """Record the end of a commit: those that have failed are to be committed again, those whose metadata
        is too large for the broker with half of it.
        """
        failed, too_large = set(failed), set(too_large)
        for each, offset in offsets.items():
            owned = self._owned.get(each)
            if owned is None:
                continue
            if each in too_large:
                owned.progress.most_characters = len(offset.metadata) // 2
            if each in failed:
                owned.is_changed = True
            else:
                owned.committed = offset


def size_of(record: ConsumerRecord) -> int:
    """Return how many bytes of memory a record counts for: those of its key and value."""
    return len(record.raw_key or b"") + len(record.raw_value or b"")


def name_of(record: ConsumerRecord) -> str:
    """Return which record it is, for errors and the log."""
    return f"{record.topic}-{record.partition} offset {record.offset}, key {record.raw_key!r:.100}"
