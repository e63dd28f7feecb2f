"""AcquiredRecords: what a share group has given to a consumer, from its arrival to its acknowledgement.

Theory of operation. The network delivers fetches; each has the records of a partition in one answer. The
program's thread takes records from them. A record that was taken is *open* until it is acknowledged.
`collect` returns the acknowledgements that are chosen since the last call. Acquired offsets that have no
record, such as those of a compacted log, are acknowledged as gaps. A fetch whose locks have ended is dropped:
other members get its records.

An interrupt may come between any two steps of a poll. The program then gets nothing of the poll, and
`take_back` releases all that it has taken, or was taking.

After org.apache.kafka.clients.consumer.internals.ShareFetch, ShareInFlightBatch and ShareCompletedFetch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, final

from kbatch._native.fetch.arrivals import Arrivals
from kbatch._native.fetch.fetched_batches import FetchedRecords
from kbatch.core.consumer.share_fetcher import Acquired, ShareFailed
from kbatch.core.consumer.share_session import AcquiredAt
from kbatch.errors import IllegalStateError
from kbatch.logs import ClientLogger
from kbatch.records import INT64_MAX, AcknowledgeType, ShareRecord, TopicPartition

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord
    from kbatch.config import ConsumerConfig
    from kbatch.core.consumer.share_engine import ShareEngine

logger = ClientLogger("kbatch.consumer")

# The type of acknowledgement of an offset without a record.
GAP = 0
# Records that are made of bytes at a time.
RECORDS_AT_A_TIME = 256


@final
class _ShareFetch:
    """The records of a partition in one answer.

    Attributes
    ----------
    acquired : Acquired
    records : FetchedRecords or None
    next_offset : int
        What lies before it was taken, or is a gap.
    taken_count : int
    """

    def __init__(self, acquired: Acquired, config: ConsumerConfig) -> None:
        self.acquired = acquired
        self._ranges = deque(acquired.ranges)
        first, last = acquired.ranges[0][0], acquired.ranges[-1][1]
        self.next_offset = first
        self.taken_count = 0
        self.records: FetchedRecords | None = FetchedRecords(
            acquired.data,
            topic=acquired.at.partition.topic,
            partition=acquired.at.partition.partition,
            from_offset=first,
            to_offset=last + 1,
            check_crcs=config.check_crcs,
            max_decompressed_bytes=config.kbatch_max_decompressed_bytes,
        )
        self._ahead: deque[ConsumerRecord] = deque()

    def take(self, most: int, gaps: list[int]) -> Iterator[ShareRecord]:
        """Iterate over the next records that are acquired. Add offsets before them without a record to
        `gaps`.
        """
        while most > 0 and self._ranges:
            if not self._ahead and self.records is not None and not self.records.is_used_up:
                self._ahead.extend(self.records.take_records(min(most, RECORDS_AT_A_TIME)))
            if not self._ahead:
                if self.records is None or self.records.is_used_up:
                    return
                continue
            record = self._ahead.popleft()
            count = self._pass(record.offset, gaps)
            if count:
                most -= 1
                self.taken_count += 1
                yield _share_record(record, count)

    def _pass(self, offset: int, gaps: list[int]) -> int:
        """Move on after an offset. Return its delivery count; 0 if it is not acquired."""
        while self._ranges and offset > self._ranges[0][1]:
            first, last, _ = self._ranges.popleft()
            gaps += range(max(first, self.next_offset), last + 1)
            self.next_offset = last + 1
        if not self._ranges or offset < self._ranges[0][0]:
            return 0
        first, last, count = self._ranges[0]
        gaps += range(max(first, self.next_offset), offset)
        self.next_offset = offset + 1
        if offset == last:
            self._ranges.popleft()
        return count

    @property
    def is_used_up(self) -> bool:
        """True if it has no records any more."""
        is_read = self.records is None or self.records.is_used_up
        return not self._ranges or (is_read and not self._ahead)

    def remaining_offsets(self) -> list[int]:
        """Return the acquired offsets that are left."""
        return self.since(self.next_offset)

    def since(self, offset: int) -> list[int]:
        """Return the acquired offsets from one on."""
        found: list[int] = []
        for first, last, _ in self.acquired.ranges:
            found += range(max(first, offset), last + 1)
        return found


@final
class AcquiredRecords:
    """All that is acquired and not acknowledged.

    Parameters
    ----------
    engine : ShareEngine
    config : ConsumerConfig
    now_ns : callable
    wake : callable
        Wakes the owner of the engine.
    notify : callable
        Called after each arrival.

    Attributes
    ----------
    arrivals : Arrivals
        Acquired and ShareFailed. The fetch that is being taken stays the first until it is used up.
    """

    def __init__(
        self,
        engine: ShareEngine,
        config: ConsumerConfig,
        now_ns: Callable[[], int],
        *,
        wake: Callable[[], object],
        notify: Callable[[], bool],
    ) -> None:
        self.arrivals: Arrivals[Acquired | ShareFailed] = Arrivals(notify)
        self._engine = engine
        self._config = config
        self._now_ns = now_ns
        self._wake = wake
        self.poll_count = 0
        self._fetch: _ShareFetch | None = None
        self._began: tuple[_ShareFetch | None, int] | None = None  # where the last `take` began
        self._open: dict[TopicPartition, dict[int, AcquiredAt]] = {}  # since the last poll, or renewed
        self._undecided: dict[tuple[TopicPartition, int], None] = {}
        self._kept: deque[ShareRecord] = deque()  # taken, and not given to the program
        self._until_ns = 0  # when the first of their locks ends
        self._chosen: dict[AcquiredAt, dict[int, int]] = {}

    # Delivery

    @property
    def has_next(self) -> bool:
        """True if `take` has something to return or raise."""
        return bool(self._kept or self.arrivals)

    def note_poll(self) -> None:
        """Count what was taken as delivered: `take_back` has nothing to return any more."""
        self._began = None
        self.poll_count += 1

    def take(self, most: int) -> list[ShareRecord]:
        """Return the next records, `most` at most, in the order of arrival; raise an error that is first."""
        if self._kept:
            return self._take_kept(most)
        fetch, taken = self._fetch, list[ShareRecord]()
        self._until_ns = INT64_MAX
        self._began = fetch, 0 if fetch is None else fetch.next_offset
        while len(taken) < most and (fetch := self._next_fetch(raises=not taken)) is not None:
            at, gaps = fetch.acquired.at, list[int]()
            self._until_ns = min(self._until_ns, fetch.acquired.until_ns)
            for record in fetch.take(most - len(taken), gaps):
                taken.append(record)
                self._open.setdefault(at.partition, {})[record.offset] = at
                self._undecided[at.partition, record.offset] = None
            self._choose(at, gaps, GAP)
            if fetch.is_used_up and not self._end_fetch(fetch, raises=not taken):
                break
        return taken

    def keep(self, records: Iterable[ShareRecord]) -> None:
        """Return the last of what was taken again with the next `take`, unless their locks end before."""
        kept = list(records)
        for record in kept:
            self._undecided.pop((TopicPartition(record.topic, record.partition), record.offset), None)
        self._kept.extendleft(reversed(kept))
        self._began = None

    def _take_kept(self, most: int) -> list[ShareRecord]:
        if self._now_ns() >= self._until_ns:
            logger.warning("locks of %s records have ended before a poll", len(self._kept))
            self._kept.clear()
        taken = [self._kept.popleft() for _ in range(min(most, len(self._kept)))]
        for record in taken:
            self._undecided[TopicPartition(record.topic, record.partition), record.offset] = None
        return taken

    def take_back(self) -> None:
        """Release all that was taken since `note_poll`. A second call has no effect."""
        fetch = self._fetch
        if self._began is not None and fetch is not None:
            before, offset = self._began
            released = fetch.since(offset if before is fetch else 0)
            self._choose(fetch.acquired.at, released, AcknowledgeType.RELEASE)
            self._drop(fetch)
        self.decide_all(AcknowledgeType.RELEASE)
        self._began = None

    def _next_fetch(self, *, raises: bool) -> _ShareFetch | None:
        """Return the fetch that is read now. An error that comes instead is raised if wanted."""
        results = self.arrivals.collect()
        while results:
            arrived = results[0]
            if isinstance(arrived, ShareFailed):
                if not raises:
                    return None
                results.popleft()
                raise arrived.error.marked()
            fetch = self._fetch
            if fetch is None or fetch.acquired is not arrived:
                fetch = self._fetch = _ShareFetch(arrived, self._config)
            if self._now_ns() < arrived.until_ns:
                return fetch
            logger.warning("locks of records of %s have ended before a poll", arrived.at.partition)
            self._drop(fetch)
        return None

    def _end_fetch(self, fetch: _ShareFetch, *, raises: bool) -> bool:
        """Discard a fetch that is used up. Return False if its error is to be raised later."""
        fault = None if fetch.records is None else fetch.records.fault
        if fault is not None and not raises:
            return False
        # what cannot be read by this member can be read by none, as in Java
        self._choose(
            fetch.acquired.at, fetch.remaining_offsets(), GAP if fault is None else AcknowledgeType.REJECT
        )
        self._drop(fetch)
        if fault is not None:
            raise fault.marked()
        return True

    def _drop(self, fetch: _ShareFetch) -> None:
        """Discard the fetch that is or was read: an interrupted call is repeated."""
        fetch.records = None
        self._engine.discard(fetch.acquired, fetch.taken_count)
        self._wake()
        results = self.arrivals.collect()
        if results and results[0] is fetch.acquired:
            results.popleft()
        self._fetch = None

    def clear(self) -> None:
        """Forget everything: the sessions are closed."""
        if self._fetch is not None:
            self._drop(self._fetch)
        results = self.arrivals.collect()
        while results:
            arrived = results[0]
            if isinstance(arrived, Acquired):
                self._engine.discard(arrived)
            results.popleft()
        self._open.clear()
        self._kept.clear()
        self._undecided.clear()
        self._chosen.clear()

    # Acknowledgement

    @property
    def undecided(self) -> list[tuple[TopicPartition, int]]:
        """What was taken and not acknowledged."""
        return list(self._undecided)

    def choose(self, partition: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record; until it is collected, another call changes that. Raise IllegalStateError if
        it is not open.
        """
        at = self._open.get(partition, {}).get(offset)
        if at is None:
            raise IllegalStateError(
                f"offset {offset} of {partition} is not waiting for an acknowledgement: it was not delivered "
                "to this consumer, or was acknowledged before"
            )
        self._choose(at, [offset], kind)
        self._undecided.pop((partition, offset), None)

    def decide_all(self, kind: AcknowledgeType) -> None:
        """Acknowledge everything that was taken and not acknowledged."""
        for partition, offset in self._undecided:
            at = self._open.get(partition, {}).get(offset)
            if at is not None:  # an interrupted call has acknowledged it
                self._chosen.setdefault(at, {})[offset] = kind
        self._undecided.clear()

    def _choose(self, at: AcquiredAt, offsets: list[int], kind: int) -> None:
        if offsets:
            self._chosen.setdefault(at, {}).update(dict.fromkeys(offsets, int(kind)))

    def collect(self) -> dict[AcquiredAt, dict[int, int]]:
        """Return the acknowledgements since the last call, to be sent. Renewed records stay open."""
        chosen, self._chosen = self._chosen, {}
        for at, types in chosen.items():
            of_partition = self._open.get(at.partition, {})
            for offset, kind in types.items():
                if kind != AcknowledgeType.RENEW:
                    of_partition.pop(offset, None)
        return chosen


def _share_record(record: ConsumerRecord, count: int) -> ShareRecord:
    return ShareRecord(
        record.topic,
        record.partition,
        record.offset,
        record.key,
        record.value,
        record.headers,
        record.timestamp_ms,
        record.timestamp_type,
        record.leader_epoch,
        count,
        record.key,
        record.value,
    )
