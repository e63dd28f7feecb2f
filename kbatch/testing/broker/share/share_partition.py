"""A share partition: which records of a partition a share group may get, and who has them.

Theory of operation. Between the start offset (the first that is not final) and the end offset (the first that
was never acquired) each offset has a state, a delivery count, and, while it is acquired, an owner and a lock.
`acquire` gives a member what is available there, and then what comes after the end. It does so by the batches
of the log: a batch, once acquired, stays an in-flight batch, and what is available of it goes out together.
If a record was delivered so often that a fault is likely, fewer records of its in-flight batch go out at a
time, the last time it alone (the batch may hold one record on which members fail).

Acknowledgements, ends of locks and of sessions are stored before they count, acquisitions are not stored.

The rules follow SharePartition.java of Kafka 4.3.1. Kafka keeps a state for a whole in-flight batch until its
offsets differ; here each offset has one, which looks the same from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.share.record_states import (
    AFTER_ACKNOWLEDGEMENT,
    Acknowledged,
    RecordState,
    StateBatch,
    state_batches,
)

if TYPE_CHECKING:
    from kbatch._native.codec.record_batch import RecordBatch
    from kbatch.testing.broker.share.share_state import StoredShare
    from kbatch.testing.broker.timers import Timer, Timers

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED


class ShareSettings(NamedTuple):
    """The settings of a share group, by Kafka's names with "share." before them."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000

    @property
    def isolating_count(self) -> int:
        """Return the number of deliveries from which on fewer records of a batch go out together."""
        return max(2, (self.delivery_count_limit + 1) // 2)


class AcquiredRange(NamedTuple):
    """Offsets that a member has acquired, both ends included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Delivery(NamedTuple):
    """What a share group has done with a record.

    Attributes
    ----------
    state : str
        "AVAILABLE", "ACQUIRED", "ACKNOWLEDGED" or "ARCHIVED".
    delivery_count : int
    member_id : str or None
        The member that has acquired it.
    lock_end_ms : int or None
        The end of its lock, by the broker's clock.
    """

    state: str
    delivery_count: int
    member_id: str | None = None
    lock_end_ms: int | None = None


class SharePartitionDescription(NamedTuple):
    """A share partition: `deliveries` are those of the offsets from `start_offset` to before `end_offset`.

    All before `start_offset` are final, and none from `end_offset` on was ever acquired.
    """

    start_offset: int
    end_offset: int
    deliveries: dict[int, Delivery]


class Lock:
    """The lock of the records of one acquisition, or of one renewal, which end together."""

    __slots__ = ("offsets", "timer")

    def __init__(self, offsets: Iterable[int]) -> None:
        self.offsets = set(offsets)
        self.timer: Timer | None = None

    def leave(self, offset: int) -> None:
        """Take an offset out; the lock ends with the last one."""
        self.offsets.discard(offset)
        if not self.offsets and self.timer is not None:
            self.timer.cancel()


class InFlightRecord:
    """An offset between start and end; `member_id` and `lock` are set while it is acquired."""

    __slots__ = ("delivery_count", "lock", "member_id", "state")

    def __init__(self, state: RecordState = AVAILABLE, delivery_count: int = 0) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = ""
        self.lock: Lock | None = None

    def describe(self) -> Delivery:
        timer = None if self.lock is None else self.lock.timer
        lock_end_ms = None if timer is None else timer.deadline_ms
        return Delivery(self.state.name, self.delivery_count, self.member_id or None, lock_end_ms)


class Write(Protocol):
    """Store a change: the start offset, the final offsets from there on, and what has changed."""

    def __call__(
        self, start_offset: int, final_count: int, batches: Sequence[StateBatch], now_ms: int
    ) -> None: ...


class SharePartition:
    """One share partition, on its leader.

    Parameters
    ----------
    start_offset : int
    stored : StoredShare
        The states from there on.
    settings : callable
        Returns the group's ShareSettings of now.
    write : Write
        May raise BrokerError; then nothing changes.
    timers : Timers
    on_available : callable
        Called when a lock or a session ends, since members that wait may get records then.

    Attributes
    ----------
    start_offset, end_offset : int
        The first offset that is not final; the first that was never acquired.
    records : dict of int to InFlightRecord
    batches : list of range
        The in-flight batches, in order.
    """

    def __init__(
        self,
        start_offset: int,
        stored: StoredShare,
        settings: Callable[[], ShareSettings],
        write: Write,
        timers: Timers,
        on_available: Callable[[], None],
    ) -> None:
        self.start_offset = self.end_offset = start_offset
        self.records: dict[int, InFlightRecord] = {}
        self.batches: list[range] = []
        self._settings = settings
        self._write = write
        self._timers = timers
        self._on_available = on_available
        self._final_count = 0
        if stored.states:
            self._restore(stored)

    def _restore(self, stored: StoredShare) -> None:
        """Add the stored states. What was only acquired is not among them, and is available."""
        self.end_offset = max(stored.states) + 1
        for offset in range(self.start_offset, self.end_offset):
            state, count = stored.states.get(offset, (AVAILABLE, 0))
            self.records[offset] = InFlightRecord(state, count)
            self._final_count += state.is_final
        self.batches.append(range(self.start_offset, self.end_offset))
        self._move_start()

    def describe(self) -> SharePartitionDescription:
        return SharePartitionDescription(
            self.start_offset,
            self.end_offset,
            {offset: record.describe() for offset, record in self.records.items()},
        )

    # What can be acquired

    @property
    def next_fetch_offset(self) -> int:
        """Return the first offset that can be acquired."""
        for batch in self.batches:
            for offset in batch:
                if offset >= self.start_offset and self.records[offset].state is AVAILABLE:
                    return offset
        return self.end_offset

    @property
    def may_acquire(self) -> bool:
        """True if a record is available again, or if there is room for new ones."""
        in_flight = self.end_offset - self.start_offset
        return self.next_fetch_offset < self.end_offset or (
            in_flight < self._settings().partition_max_record_locks
        )

    def acquire(
        self,
        member_id: str,
        read: Sequence[RecordBatch],
        now_ms: int,
        *,
        max_records: int,
        batch_size: int,
        is_limit: bool,
        is_visible: Callable[[RecordBatch], bool],
    ) -> list[AcquiredRange]:
        """Acquire records for a member.

        Parameters
        ----------
        read : sequence of RecordBatch
            What the log has from `next_fetch_offset` on.
        max_records, batch_size : int
            Whole in-flight batches are acquired until `max_records` is reached; new ones end at the first
            batch of the log after `batch_size` records.
        is_limit : bool
            Never acquire more than `max_records` (record_limit of KIP-1206).
        is_visible : callable
            False for batches whose records are archived: those of aborted transactions, if members read
            committed data only.
        """
        fetch_offset, first = self.next_fetch_offset, read[0].base_offset if read else 0
        in_flight = self.end_offset - self.start_offset
        most = min(max_records, self._settings().partition_max_record_locks - in_flight)
        last = read[-1].last_offset if read else -1
        if most <= 0 < max_records and fetch_offset < self.end_offset:
            most, last = min(max_records, self.end_offset - fetch_offset), min(last, self.end_offset - 1)
        if not read or most <= 0:
            return []
        self._archive_missing(fetch_offset, first)
        acquired, is_isolated = self._acquire_again(first, last, most, is_limit=is_limit)
        room = most - sum(map(len, acquired))
        start = max(first, self.end_offset)
        if not is_isolated and room > 0 and start <= last:
            acquired += self._acquire_new(start, last, read, room, batch_size, is_limit=is_limit)
        self._take(member_id, acquired, now_ms)
        hidden = [each for each in read if not is_visible(each)]
        return self._without(hidden, acquired)

    def _acquire_again(self, first: int, last: int, most: int, *, is_limit: bool) -> tuple[list[range], bool]:
        """Return offsets of in-flight batches to acquire, and True if nothing may go out beside them."""
        found: list[range] = []
        count = 0
        isolating_count = self._settings().isolating_count
        for batch in self.batches:
            if batch.stop <= first or batch.start > last or count >= most:
                continue
            offsets = range(max(batch.start, first, self.start_offset), min(batch.stop, last + 1))
            available = [each for each in offsets if self.records[each].state is AVAILABLE]
            if not available:
                continue
            is_isolated = max(self.records[each].delivery_count for each in available) >= isolating_count
            if is_isolated and count:
                return found, True
            chosen = self._chosen(available, len(batch), most - count if is_limit else len(batch))
            found += _runs(chosen, lambda offset: self.records[offset].delivery_count)
            count += len(chosen)
            if is_isolated:
                return found, True
        return found, False

    def _chosen(self, available: Sequence[int], batch_length: int, most: int) -> list[int]:
        """Return how many of the available offsets of an in-flight batch go out at a time.

        With the count from which on a fault is likely, they are half of the batch, then a quarter and so on;
        the last time it is one record alone.
        """
        settings = self._settings()
        limit = settings.delivery_count_limit
        is_throttled = False
        chosen: list[int] = []
        for offset in available:
            count = self.records[offset].delivery_count
            is_last_time = count == limit - 1 and limit > 2
            if is_last_time and chosen:
                break
            if count >= settings.isolating_count and not is_throttled:
                is_throttled = True
                most = min(most, max(1, batch_length >> (count - settings.isolating_count + 1)))
            chosen.append(offset)
            if is_last_time or len(chosen) >= most:
                break
        return chosen

    def _acquire_new(
        self,
        first: int,
        last: int,
        read: Sequence[RecordBatch],
        most: int,
        batch_size: int,
        *,
        is_limit: bool,
    ) -> list[range]:
        """Add in-flight batches for offsets after the end, and return what is to be acquired of them."""
        if most < last - first + 1:
            # whole batches of the log, also if only a part is acquired now
            last = next(each.last_offset for each in read if each.last_offset >= first + most - 1)
        if not self.batches:
            self.start_offset = first
        bounds = [first]
        for each in read if not is_limit else ():
            if each.base_offset <= last and each.base_offset - bounds[-1] >= batch_size:
                bounds.append(each.base_offset)
        new = [range(*pair) for pair in zip(bounds, [*bounds[1:], last + 1], strict=True)]
        self.batches += new
        for batch in new:
            self.records.update((offset, InFlightRecord()) for offset in batch)
        self.end_offset = last + 1
        return [new[0][:most]] if is_limit else new

    def _take(self, member_id: str, acquired: Iterable[range], now_ms: int) -> None:
        for offsets in acquired:
            for offset in offsets:
                record = self.records[offset]
                record.state, record.member_id = ACQUIRED, member_id
                record.delivery_count += 1
            self._lock(offsets, now_ms)

    def _without(self, hidden: Sequence[RecordBatch], acquired: Iterable[range]) -> list[AcquiredRange]:
        """Return what the member has acquired, after archiving the records of some batches."""
        archived = {offset for batch in hidden for offset in range(batch.base_offset, batch.last_offset + 1)}
        result = []
        for offsets in acquired:
            for offset in archived.intersection(offsets):
                self._set(offset, RecordState.ARCHIVED)
            left = [offset for offset in offsets if offset not in archived]
            result += [
                AcquiredRange(run[0], run[-1], self.records[run[0]].delivery_count)
                for run in _runs(left, lambda offset: 0)
            ]
        if archived:
            self._move_start()
        return result

    def _archive_missing(self, fetch_offset: int, first: int) -> None:
        """Archive what the log has lost below its first batch, by compaction."""
        for offset in range(fetch_offset, min(first, self.end_offset)):
            if (record := self.records.get(offset)) is not None and record.state is AVAILABLE:
                self._set(offset, RecordState.ARCHIVED)
        self._move_start()

    def log_starts_at(self, log_start_offset: int) -> None:
        """Begin at the log's start, if that is after the start offset: what was below is gone."""
        if log_start_offset <= self.start_offset:
            return
        for offset in range(self.start_offset, min(log_start_offset, self.end_offset)):
            if (record := self.records.pop(offset, None)) is not None:
                self._final_count -= record.state.is_final
                if record.lock is not None:
                    record.lock.leave(offset)
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self._drop_batches()

    # What becomes of what was acquired

    def acknowledge(self, member_id: str, batches: Iterable[Acknowledged], now_ms: int) -> None:
        """Take a member's acknowledgements, all or none.

        Raises BrokerError INVALID_REQUEST for offsets that no member has acquired yet, INVALID_RECORD_STATE
        for those that the member has not, and what storing raises. Offsets below the start are ignored.
        """
        types: dict[int, int] = {}
        for batch in batches:
            if batch.last_offset < self.start_offset:
                continue
            self._check_in_flight(batch)
            for offset in range(max(batch.first_offset, self.start_offset), batch.last_offset + 1):
                if (record := self.records.get(offset)) is None:
                    continue  # between in-flight batches
                if record.state is not ACQUIRED or offset in types:
                    raise BrokerError(
                        ErrorCode.INVALID_RECORD_STATE,
                        "The offset cannot be acknowledged. The offset is not acquired.",
                    )
                if record.member_id != member_id:
                    raise BrokerError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")
                types[offset] = batch.type_of(offset)
        after = {offset: AFTER_ACKNOWLEDGEMENT[kind] for offset, kind in types.items()}
        self._change({offset: state for offset, state in after.items() if state is not ACQUIRED}, now_ms)
        self._lock([offset for offset, state in after.items() if state is ACQUIRED], now_ms)

    def release(self, member_id: str, now_ms: int) -> None:
        """Release all that a member has acquired, since its session has ended."""
        self._release(
            (each for each, record in self.records.items() if record.member_id == member_id), now_ms
        )

    def close(self) -> None:
        """End all locks without a change: another leader goes on from what is stored."""
        for record in self.records.values():
            if record.lock is not None and record.lock.timer is not None:
                record.lock.timer.cancel()

    def _check_in_flight(self, batch: Acknowledged) -> None:
        floor = [each for each in self.batches if each.start <= batch.last_offset]
        if not floor or (floor[0].start > batch.first_offset >= self.start_offset):
            raise BrokerError(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        for name, offset in (("first", batch.first_offset), ("last", batch.last_offset)):
            if offset >= floor[-1].stop:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"Batch record not found. The {name} offset in request is past acquired records.",
                )

    def _release(self, offsets: Iterable[int], now_ms: int) -> None:
        """Make records available again. If that cannot be stored now it is only lost by a restart."""
        states = dict.fromkeys((each for each in offsets if self.records[each].state is ACQUIRED), AVAILABLE)
        if not states:
            return
        try:
            self._change(states, now_ms)
        except BrokerError:
            self._apply(self._decided(states))
        self._on_available()

    def _decided(self, states: dict[int, RecordState]) -> dict[int, RecordState]:
        """Return the states, ARCHIVED for what was delivered as often as the group allows."""
        limit = self._settings().delivery_count_limit
        return {
            offset: RecordState.ARCHIVED
            if state is AVAILABLE and self.records[offset].delivery_count >= limit
            else state
            for offset, state in states.items()
        }

    def _change(self, states: dict[int, RecordState], now_ms: int) -> None:
        """Store new states of acquired records, and let them count."""
        if not states:
            return
        states = self._decided(states)
        changed = {offset: (state, self.records[offset].delivery_count) for offset, state in states.items()}
        final_count = self._final_count + sum(state.is_final for state in states.values())
        self._write(self.start_offset, final_count, state_batches(changed), now_ms)
        self._apply(states)

    def _apply(self, states: dict[int, RecordState]) -> None:
        for offset, state in states.items():
            self._set(offset, state)
        self._move_start()

    def _set(self, offset: int, state: RecordState) -> None:
        record = self.records[offset]
        self._final_count += state.is_final - record.state.is_final
        record.state, record.member_id = state, ""
        if record.lock is not None:
            record.lock.leave(offset)
            record.lock = None

    def _move_start(self) -> None:
        while self.start_offset < self.end_offset:
            record = self.records.get(self.start_offset)
            if record is not None and not record.state.is_final:
                break
            self._final_count -= record is not None
            self.records.pop(self.start_offset, None)
            self.start_offset += 1
        self._drop_batches()

    def _drop_batches(self) -> None:
        while self.batches and self.batches[0].stop <= self.start_offset:
            del self.batches[0]

    # Locks

    def _lock(self, offsets: Sequence[int], now_ms: int) -> None:
        if not offsets:
            return
        lock = Lock(offsets)
        for offset in offsets:
            record = self.records[offset]
            if record.lock is not None:
                record.lock.leave(offset)
            record.lock = lock
        deadline_ms = now_ms + self._settings().record_lock_duration_ms
        lock.timer = self._timers.call_at(
            deadline_ms, lambda late_ms: self._release([*lock.offsets], late_ms)
        )


def _runs(offsets: Iterable[int], kind: Callable[[int], int]) -> list[range]:
    """Return offsets as ranges without gaps, each of one kind."""
    runs: list[range] = []
    for offset in offsets:
        if runs and offset == runs[-1].stop and kind(offset) == kind(runs[-1].start):
            runs[-1] = range(runs[-1].start, offset + 1)
        else:
            runs.append(range(offset, offset + 1))
    return runs
