"""TopicReader: ranges of topics as record batches or records, without a consumer group.

Theory of operation. The network's thread (ThreadNetwork) drives a ReadingEngine, which fetches at most
kbatch.fetch.buffer.memory ahead of what the program has taken. What it has fetched is in a RangeBuffer, from
which a Reading takes it (`range_buffer`).

No thread refers to a TopicReader or a Reading, so one that is dropped is collected and ends.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, Unpack, final

from kbatch._native.io.interrupts import at_once
from kbatch._native.io.threads import ClientThread
from kbatch.admin.groups import AsyncGroups
from kbatch.admin.threads import Groups
from kbatch.config.readers import GROUP_KEYS
from kbatch.consumer.lifetime import ReadingClient
from kbatch.consumer.range_buffer import BatchSource, RangeBuffer, RecordSource, Source
from kbatch.consumer.ranges import (
    DATA_LOSS,
    Positions,
    Range,
    Ranges,
    check_choice,
    checked_partitions,
    checked_ranges,
    checked_topic_ids,
    loss_of,
    only_topic,
    positions_of,
    ranges_of,
)
from kbatch.consumer.runtime import ReaderRuntime
from kbatch.consumer.typed_records import TypedRecords, check_letter, column_formats
from kbatch.core.consumer.calls import OffsetLookup, TopicListing, TopicNames
from kbatch.core.consumer.leader_requests import FoundOffset
from kbatch.core.consumer.partition_state import (
    EARLIEST,
    LATEST,
    NO_END,
    OffsetSpec,
    Start,
    after_loss,
)
from kbatch.core.consumer.results import Fetched, Moved
from kbatch.errors import (
    ConfigError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
)
from kbatch.formats.plain import Bytes
from kbatch.network.decoding import decoder_count
from kbatch.records import INT64_MAX, NO_TOPIC_ID, TopicPartition, check_integer, check_text
from kbatch.typed import K, V
from kbatch.unpatched import real_threading
from kbatch.waiting.methods import blocking
from kbatch.waiting.threads import ThreadWaiter

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch._native.codec.record import ConsumerRecord
    from kbatch.config import ConsumerConfig
    from kbatch.config.keywords import TopicReaderKeywords
    from kbatch.consumer.projection import Projection
    from kbatch.formats.reading.base import ColumnDeserializer, ReadFormat

Item = TypeVar("Item")

# A reader that looks for a topic must not create it.
DEFAULTS = {"allow_auto_create_topics": False}


class ReadProgress(NamedTuple):
    """How far a read has come.

    Attributes
    ----------
    rows : int
        Records that were read.
    bytes : int
        Bytes of their batches, compressed.
    position : int
        Offsets that were passed, over all partitions. Compacted records and markers of transactions have
        some, too.
    total : int or None
        Offsets to pass; None if a range has no end.
    """

    rows: int
    bytes: int
    position: int
    total: int | None


@final
class Reading(Generic[Item]):
    """The records of ranges as they come: an iterator. It ends with the ranges, or when closed or dropped.

    Iteration raises KafkaError if a range cannot be read on, KafkaTimeoutError if nothing of ranges that all
    have ends comes within default.api.timeout.ms, and IllegalStateError after the first error. An error of a
    deserializer's registry, of a function of on.deserialization.error or of a DeadLetter does not end it:
    another iteration goes on with the same records.

    Attributes
    ----------
    partition : TopicPartition
        The partition of the last item.
    progress : ReadProgress
    lost : dict of TopicPartition to list of tuple[int, int]
        Ranges that were skipped because the log does not have them any more: the first offset, and the one
        after the last.
    schema : pyarrow.Schema or None
        That of record batches; None for objects. A column without a type so far is null in it, and in the
        batches up to the first value that says one.
    """

    partition: TopicPartition
    schema: pa.Schema | None = None
    _source: Source[Item] | None = None
    _generation = -1

    def __init__(
        self,
        runtime: ReaderRuntime,
        buffer: RangeBuffer,
        ranges: Mapping[TopicPartition, Range],
        new_source: Callable[[int], Source[Item]],
        *,
        topic_ids: Mapping[str, bytes],
        skips: bool,
        report: Callable[[ReadProgress], object] | None,
    ) -> None:
        self._runtime = runtime
        self._buffer = buffer
        self._report = report
        self._open = set(ranges)
        self._ends = {each: NO_END if found.end is None else found.end for each, found in ranges.items()}
        self._items: Iterator[Item] = iter(())
        self._ended_by: BaseException | None = None
        ends = {each: found.end for each, found in ranges.items() if found.end is not None}
        is_bounded = len(ends) == len(ranges)
        # without an end, a reader waits for records as long as it takes
        self._timeout = runtime.config.default_api_timeout_ms / 1000 if is_bounded else None
        total = sum(end - ranges[each].start for each, end in ends.items()) if is_bounded else None
        self.progress = ReadProgress(0, 0, 0, total)
        self.lost: dict[TopicPartition, list[tuple[int, int]]] = {}
        if ranges:
            starts = {
                each: Start(found.start, topic_id=topic_ids.get(each.topic, NO_TOPIC_ID))
                for each, found in ranges.items()
            }
            self._begin(starts, ends, new_source, skips=skips)

    def _begin(
        self,
        starts: Mapping[TopicPartition, Start],
        ends: Mapping[TopicPartition, int],
        new_source: Callable[[int], Source[Item]],
        *,
        skips: bool,
    ) -> None:
        engine = self._runtime.engine
        self._generation = generation = engine.new_generation()
        self._passed = self._buffer.begin(generation, starts)  # first: results must find their partitions
        self._source = source = new_source(generation)
        source.start()
        engine.assign(starts, ends, reset=EARLIEST if skips else None, generation=generation)
        self._runtime.network.wake()

    @property
    def is_open(self) -> bool:
        """True if it has not ended."""
        return self._source is not None

    def __iter__(self) -> Iterator[Item]:
        return itertools.chain.from_iterable(self._iterators())  # without a call for each: objects are many

    def _iterators(self) -> Iterator[Iterator[Item]]:
        try:
            while self._has_item():
                yield self._items
        except GeneratorExit:
            raise
        except BaseException as error:
            self._end(error)
            raise

    def __next__(self) -> Item:
        try:
            if self._has_item():
                return next(self._items)
        except BaseException as error:
            self._end(error)
            raise
        raise StopIteration

    def _has_item(self) -> bool:
        """Wait for an item. False at the end."""
        while not length_hint(self._items):
            source = self._checked_source()
            if source is None:
                self.close()
                return False
            if not source.is_ready():
                self._await_items(source)
            self._take_items(source)
        return True

    def _checked_source(self) -> Source[Item] | None:
        """Return the source; None if all was read. Raise if the read cannot go on."""
        self._runtime.check_not_forked()
        if self._ended_by is not None:
            raise IllegalStateError(
                f"the read has failed with {type(self._ended_by).__name__}; start another where it stopped"
            ) from self._ended_by
        if not self._open:
            return None
        if (source := self._source) is None:
            if self._runtime.is_closed:
                raise self._runtime.closed_error()
            raise IllegalStateError("the read was closed; start another")
        return source

    def _take_items(self, source: Source[Item]) -> None:
        out_of_range = None
        taken = None
        try:
            taken = source.take()
        except OffsetOutOfRangeError as error:
            if type(error) is not OffsetOutOfRangeError:
                raise
            out_of_range = error
        self._note_passed()
        if out_of_range is not None:
            raise self._loss(out_of_range)
        if taken is not None:
            self.partition, items = taken
            self._items = iter(items)

    def _note_passed(self) -> None:
        """Add what was passed to the progress."""
        passed = self._passed
        while passed:
            result, row_count = passed.popleft()
            self.partition = result.partition
            if isinstance(result, Fetched):
                if result.is_last:
                    self._open.discard(result.partition)
                self._advance(result.next_offset - result.from_offset, result.size_bytes, row_count)
            else:
                self._skip(result)

    def _advance(self, offset_count: int, size_bytes: int, row_count: int) -> None:
        rows, size, position, total = self.progress
        self.progress = ReadProgress(rows + row_count, size + size_bytes, position + offset_count, total)
        if self._report is not None:
            self._report(self.progress)

    def _skip(self, moved: Moved) -> None:
        if moved.to_offset > moved.from_offset:
            self.lost.setdefault(moved.partition, []).append((moved.from_offset, moved.to_offset))
        self._advance(moved.to_offset - moved.from_offset, 0, 0)

    def _loss(self, error: OffsetOutOfRangeError) -> KafkaError:
        """Return the loss of data from a position that a log no longer has, to where reading could go on."""
        ((place, position),) = error.partitions.items()
        partition = TopicPartition(*place)
        try:
            found = at_once(self._runtime.await_offsets, {partition: EARLIEST})
        except KafkaError:  # the loss is what the program has to know
            return loss_of(partition, error, None)
        next_offset = after_loss(position, _offset_of(found[partition]), self._ends[partition])
        return loss_of(partition, error, (position, next_offset) if next_offset > position else None)

    def _await_items(self, source: Source[Item]) -> None:
        runtime = self._runtime
        refused = runtime.engine.authentication_error  # whose login is tried again

        def is_ready() -> bool:
            if self._source is None or source.is_ready():
                return True
            runtime.check_usable()
            runtime.check_login(refused)
            return False

        if not at_once(runtime.await_until, is_ready, runtime.deadline(self._timeout), source.awaited):
            runtime.check_login(None)
            why = runtime.engine.last_connection_failure or "brokers are slow"
            raise KafkaTimeoutError(
                f"no records of {', '.join(map(str, sorted(self._open)))} came within "
                f"default.api.timeout.ms={runtime.config.default_api_timeout_ms}: {why}"
            )

    def _end(self, error: BaseException) -> None:
        source = self._source
        if source is not None and source.is_kept and isinstance(error, Exception):
            return
        self._ended_by = self._ended_by or error
        self.close()

    def close(self) -> None:
        """End the read, without waiting. A second call has no effect. Any thread may call it."""
        source = self._source
        if source is None or self._runtime.is_forked:
            return
        runtime, buffer = self._runtime, self._buffer
        source.stop()
        buffer.end_read(self._generation)
        runtime.engine.stop(self._generation)
        runtime.engine.submit(buffer.clear_arrivals)
        runtime.network.wake()
        self._source = None  # last: after an interrupt, the next call does all of it again
        buffer.notify()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class TopicReader(ReadingClient, Generic[K, V]):
    """Reads ranges of topics, without a consumer group: a client for several reads, one after the other. Keys
    are of K and values of V, where they are not null.

    `kbatch.read_table` and `kbatch.scan_topic` make one for a single read.
    """

    _defaults = DEFAULTS
    _reading: weakref.ref[Reading[Any]] | None = None

    if TYPE_CHECKING:  # its own keywords; deserializers say the types

        def __init__(
            self,
            settings: ConsumerConfig | Mapping[str, object] | None = None,
            /,
            **keywords: Unpack[TopicReaderKeywords[K, V]],
        ) -> None: ...

    def _new_runtime(self) -> ReaderRuntime:
        return ReaderRuntime(self.config, "reader", new_waiter=ThreadWaiter)

    def _prepare(self) -> None:
        if of_groups := sorted(self.config.given & GROUP_KEYS):
            raise ConfigError(
                f"{', '.join(of_groups)} must not be set for a reader, which has no group; omit it, or use "
                "kbatch.Consumer"
            )
        self._typed = TypedRecords.of(self.config)
        check_letter(self._typed, type(self).__name__, is_async=False)
        runtime = self._runtime
        self._buffer = RangeBuffer(runtime.engine.release, lambda: runtime.network.wake(), runtime.changed)
        self._beginning = real_threading().Lock()  # of a read: one thread at a time
        runtime.on_change = self._buffer.arrived.notify

    def _start_network(self) -> None:
        self._runtime.start_thread(self._buffer.arrivals)

    client_instance_id = blocking(ReaderRuntime.client_instance_id, "_runtime")

    # What there is

    def topics(self) -> list[str]:
        """Return the names of all topics that this client may see, in order.

        Raises
        ------
        KafkaTimeoutError
            No answer came within default.api.timeout.ms.
        """
        return at_once(self._runtime.topics)

    def describe(self, topics: Iterable[str] | None = None) -> dict[str, TopicListing]:
        """Return the id and the number of partitions of topics, as brokers know them now. Topics that are not
        there, and those that this client may not see, are left out.

        Parameters
        ----------
        topics : iterable of str or None
            None for all that this client may see.

        Raises
        ------
        TypeError
            `topics` are not names.
        KafkaTimeoutError
            No answer came within default.api.timeout.ms.
        """
        if isinstance(topics, str):
            raise TypeError(f"topics must be a list of names, got the str {topics!r}; pass [{topics!r}]")
        names = None if topics is None else list(topics)
        for name in names or ():
            check_text("topic", name)
        call = TopicNames(names)
        at_once(self._runtime.await_calls, [call], self._runtime.engine.list_topics)
        return call.answer

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic, in order.

        Raises
        ------
        UnknownTopicOrPartitionError, TopicAuthorizationError, InvalidTopicError
            The topic cannot be read.
        KafkaTimeoutError
            No answer came within default.api.timeout.ms.
        """
        return at_once(self._runtime.await_partitions, topic)

    def offsets(
        self, topic: str, spec: Positions = "latest", partitions: Iterable[int] | None = None
    ) -> dict[int, int]:
        """Return an offset of each partition.

        Parameters
        ----------
        topic : str
        spec : "earliest", "latest", datetime, timedelta, int, or a mapping of partitions to these
            The first offset of the log; the one after its last record; or the number itself. Under
            isolation.level=read_committed "latest" is the last stable offset. A time or a while ago means the
            first record from then on, and the end of the log if there is none.
        partitions : iterable of int or None
            None for all.

        Raises
        ------
        TypeError, ValueError
            `spec` is none of these, or not one for each partition; the topic has no such partition.
        KafkaError
            As `partitions` raises it.
        """
        if partitions is None:
            partitions = spec if isinstance(spec, Mapping) else self.partitions(topic)
        chosen = checked_partitions(topic, partitions)
        (found,) = self._look_up(topic, [positions_of("spec", spec, chosen, datetime.now(UTC))])
        return found

    def ranges(
        self,
        topic: str,
        *,
        start: Positions = "earliest",
        end: Positions | None = "latest",
        partitions: Iterable[int] | None = None,
        on_data_loss: str = "raise",
    ) -> Ranges:
        """Return the ranges of offsets between two positions, for `read`.

        Parameters
        ----------
        topic : str
        start, end : as `spec` of `offsets`
            The first record, and the one after the last. An `end` of None is no end.
        partitions : iterable of int or None
            None for all.
        on_data_loss : "raise" or "skip"
            What to do about offsets before the beginning of a log.

        Raises
        ------
        DataLossError
            `start` is before the beginning of a log, and on_data_loss is "raise".
        TypeError, ValueError
            An argument is unsuitable, a range ends before it begins, or is not in the log yet.
        KafkaError
            As `partitions` raises it.
        """
        check_choice("on_data_loss", on_data_loss, DATA_LOSS)
        now = datetime.now(UTC)
        # what the client knows already may be of an earlier topic of that name
        described = self.describe([topic]).get(topic)
        known = self.partitions(topic) if described is None else range(described.partition_count)
        chosen = checked_partitions(topic, partitions, known)
        asked: list[dict[int, int | OffsetSpec]] = [
            dict.fromkeys(chosen, EARLIEST),
            dict.fromkeys(chosen, LATEST),
            positions_of("start", start, chosen, now),
        ]
        if end is not None:
            asked.append(positions_of("end", end, chosen, now))
        first, last, *found = self._look_up(topic, asked)
        starts, *ends = (
            {
                # another answer than those for the ends of the log, which may have moved in between
                each: min(max(offset, first[each]), last[each])
                if isinstance(position[each], OffsetSpec)
                else offset
                for each, offset in offsets.items()
            }
            for position, offsets in zip(asked[2:], found, strict=True)
        )
        log = {each: (first[each], last[each]) for each in chosen}
        ranges = ranges_of(topic, starts, ends[0] if ends else None, log, on_data_loss=on_data_loss)
        return ranges if described is None else ranges._replace(topic_id=described.topic_id)

    def _look_up(
        self, topic: str, positions: Iterable[Mapping[int, int | OffsetSpec]]
    ) -> list[dict[int, int]]:
        """Return the offsets of positions; for times after all records, the ends."""
        positions = list(positions)
        calls = [
            OffsetLookup(
                {
                    TopicPartition(topic, each): spec
                    for each, spec in asked.items()
                    if isinstance(spec, OffsetSpec)
                }
            )
            for asked in positions
        ]
        at_once(self._runtime.await_calls, calls, self._runtime.engine.list_offsets)
        missing = {each for call in calls for each, found in call.answer.items() if found is None}
        ends = at_once(self._runtime.await_offsets, dict.fromkeys(missing, LATEST))
        offsets = [
            {each.partition: _offset_of(found or ends[each]) for each, found in call.answer.items()}
            for call in calls
        ]
        return [
            {each: position if isinstance(position, int) else found[each] for each, position in asked.items()}
            for asked, found in zip(positions, offsets, strict=True)
        ]

    # Reading

    def read(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int | None]],
        *,
        columns: Iterable[str] | None = None,
        key: ColumnDeserializer | ReadFormat | None = None,
        value: ColumnDeserializer | ReadFormat | None = None,
        layout: str = "copy",
        batch_rows: int | None = None,
        on_data_loss: str = "raise",
        topic_ids: Mapping[str, bytes] | None = None,
        progress: Callable[[ReadProgress], object] | None = None,
        look_ahead: int | None = 1_000_000,
    ) -> Reading[pa.RecordBatch]:
        """Return an iterator over the records of ranges as record batches, as they come: those of a partition
        in the order of their offsets. No batch has records of two partitions. It needs pyarrow.

        Parameters
        ----------
        ranges : mapping of TopicPartition to (int, int or None)
            The first offset, and the one after the last. Without an end, the read goes on for ever; a range
            that ends after its log waits for the records.
        columns : iterable of str or None
            The columns, in this order; None for all: topic dictionary<int32, string>, partition int32, offset
            int64, timestamp timestamp[ms, UTC], timestamp_type dictionary<int8, string>, key binary, value
            binary, headers list<struct<key: string, value: binary>>, leader_epoch int32. Only these are
            decoded.
        key, value : Format, ColumnDeserializer or None
            Converts the column, see `kbatch.formats.reading`. One with errors="column" adds a column
            key_error or value_error. None: the reader's formats (key.deserializer, value.deserializer), if
            those are formats, else bytes.
        layout : "copy" or "view"
            "view" makes binary_view columns that point into the received or decompressed bytes, which saves a
            copy and keeps them all in memory.
        batch_rows : int or None
            Maximum rows of a batch.
        on_data_loss : "raise" or "skip"
            What to do when records are gone before they are read. The iterator's `lost` has what was skipped.
        topic_ids : mapping of str to bytes, or None
            By topic the id that the ranges are of, from `describe` or `ranges`. If the topic was deleted and
            created again since, the records are gone. Ranges of topics that are not named here are of the
            topic that has the name when the read begins.
        progress : callable or None
            Called with a ReadProgress after each answer that was read, on the thread that iterates.
        look_ahead : int or None
            How many records are looked at, before the read, for values that say the type of a column: a part
            of each range, and at most 256 MiB of values. None for all.

        Raises
        ------
        IllegalStateError
            An earlier read has not ended.
        TypeError, ValueError
            An argument is unsuitable.
        TypeNotKnownError
            None of these records says the type of a column.
        SchemaRegistryError
            A format's registry refuses, or cannot be reached.
        KafkaError
            The first values, by which a deserializer learns its type, cannot be read.
        """
        from kbatch.consumer.projection import Projection  # which takes pyarrow

        projection = Projection(
            columns,
            layout,
            {"key": key, "value": value},
            column_formats(self._typed),
            only_topic(checked_ranges(ranges)),
        )
        if batch_rows is not None:
            check_integer("batch_rows", batch_rows, 1, INT64_MAX)
        if look_ahead is not None:
            check_integer("look_ahead", look_ahead, 1, INT64_MAX)
        projection.ask()
        if projection.missing_types:
            self._learn_types(projection, checked_ranges(ranges), on_data_loss, topic_ids, look_ahead)
        # with one worker, if values have yet to say a type, the first ones do
        threads = 1 if projection.missing_types else self.config.kbatch_decode_threads or decoder_count()

        def new_source(generation: int) -> BatchSource:
            return BatchSource(
                self._buffer,
                projection,
                self._runtime.changed,
                generation=generation,
                batch_rows=batch_rows,
                name=f"kbatch-decoder-{self.config.client_id}",
                threads=threads,
            )

        reading = self._start(ranges, new_source, on_data_loss, topic_ids, progress)
        reading.schema = projection.schema
        return reading

    def _learn_types(
        self,
        projection: Projection,
        ranges: Mapping[TopicPartition, Range],
        on_data_loss: str,
        topic_ids: Mapping[str, bytes] | None,
        look_ahead: int | None,
    ) -> None:
        """Find the types of deserializers that have none, from the first values that can be read, in the
        order of the ranges: so it is the same in every read of the same records, whatever threads do.
        """
        from kbatch.consumer.projection import LookAhead

        samples = projection.samples()
        # whatever the reader's formats are
        undecoded: dict[str, Any] = dict.fromkeys(projection.missing_types, Bytes())
        known = {each: self._ended(each, found) for each, found in ranges.items()}
        limits = LookAhead(look_ahead, [end - start for start, end in known.values()])
        for index, (partition, found) in enumerate(known.items()):
            if all(each.is_full for each in samples):
                break
            limits.begin(index)
            with self.read(
                {partition: found},
                columns=projection.sample_columns,
                **undecoded,
                on_data_loss=on_data_loss,
                topic_ids=topic_ids,
            ) as reading:
                for batch in reading:
                    seen = limits.within(batch, undecoded)
                    for each in samples:
                        each.add(seen)
                    if seen.num_rows < batch.num_rows or all(each.is_full for each in samples):
                        break
        is_bounded = all(end is not None for _, end in ranges.values())
        projection.learn(samples, limits, is_bounded=is_bounded)

    def _ended(self, partition: TopicPartition, found: Range) -> tuple[int, int]:
        """Return a range, without an end that of what is there."""
        if found.end is not None:
            return found.start, found.end
        number = partition.partition
        return found.start, max(found.start, self.offsets(partition.topic, "latest", [number])[number])

    def read_records(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int | None]],
        *,
        on_data_loss: str = "raise",
        topic_ids: Mapping[str, bytes] | None = None,
        progress: Callable[[ReadProgress], object] | None = None,
    ) -> Reading[ConsumerRecord[K, V]]:
        """Return an iterator over the records of ranges as objects, with what the reader's deserializers make
        of keys and values at first use. Parameters, order and errors are those of `read`.
        """

        def new_source(generation: int) -> RecordSource:
            return RecordSource(self._buffer, self._typed, generation)

        return self._start(ranges, new_source, on_data_loss, topic_ids, progress)

    @property
    def reading(self) -> Reading[Any] | None:
        """The read that has not ended; None if there is none. It may be one that only a traceback keeps, as
        notebooks do.
        """
        current = None if self._reading is None else self._reading()
        return current if current is not None and current.is_open else None

    @property
    def groups(self) -> Groups:
        """Consumer groups: their members, lag and offsets."""
        return Groups(AsyncGroups(self._runtime, self))

    def _start(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int | None]],
        new_source: Callable[[int], Source[Item]],
        on_data_loss: str,
        topic_ids: Mapping[str, bytes] | None,
        progress: Callable[[ReadProgress], object] | None,
    ) -> Reading[Item]:
        checked, ids = checked_ranges(ranges), checked_topic_ids(topic_ids)
        check_choice("on_data_loss", on_data_loss, DATA_LOSS)
        self._runtime.check_usable()  # in a child process the lock may be held for ever
        with self._beginning:
            if self.reading is not None:
                raise IllegalStateError(
                    "the reader has a read that has not ended; close that (reader.reading.close()), or read "
                    "with another TopicReader"
                )
            reading = Reading(
                self._runtime,
                self._buffer,
                checked,
                new_source,
                topic_ids=ids,
                skips=on_data_loss == "skip",
                report=progress,
            )
            self._reading = weakref.ref(reading)
        return reading

    # Its end

    def close(self) -> None:
        """End the read and close all connections. A second call has no effect. Any thread may call it."""
        if self._runtime.is_forked or self._is_released:
            return
        self._runtime.is_closed = True
        if (current := self.reading) is not None:
            current.close()
        at_once(self._runtime.end_telemetry, self._runtime.deadline(None))
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _close_at_exit(self) -> None:
        self.close()

    def _close_elsewhere(self) -> None:
        # the collector may run on any thread, even the network's, which cannot wait for its own end
        ClientThread(self.close, "kbatch-closer", daemon=False).start()


def _offset_of(found: FoundOffset | None) -> int:
    assert found is not None  # every log has an end
    return found.offset
