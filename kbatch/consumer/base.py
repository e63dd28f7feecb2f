"""ConsumerBase: what Consumer and AsyncConsumer have in common, which is everything but how they wait.

Theory of operation. The engine fetches ahead of the program; the Backlog has what came, and knows where the
program is in each partition. A poll waits until something is there, and takes it. Before that, it does what
the group asks of the program (GroupMember). All calls that wait are coroutines over the Runtime's waiters;
the subclasses name them as methods.

One thread, or one task, uses a consumer at a time (SoleUser). Any may call `close`, `metrics` and `lag`.

After org.apache.kafka.clients.consumer.internals.AsyncKafkaConsumer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Generic, Unpack

from kbatch._native.fetch.fetch_buffer import PolledRecords
from kbatch._native.fetch.quick_polls import QuickPolls
from kbatch.consumer.backlog import AssignedPartition, Backlog, Limits, Plan, start_after
from kbatch.consumer.group_member import FIRST_PARTITIONS_SECONDS, GroupMember, Partitions
from kbatch.consumer.lifetime import Ending, MemberClient
from kbatch.consumer.poll_metrics import poll_times
from kbatch.consumer.polled import Polled
from kbatch.consumer.ranges import Position, position_of
from kbatch.consumer.schema_question import SchemaQuestion
from kbatch.consumer.typed_records import (
    RECORDS_AHEAD,
    TypedRecords,
    check_letter,
    column_formats,
)
from kbatch.core.client.lasting_faults import NS_PER_SECOND
from kbatch.core.consumer.group_engine import GroupEngine
from kbatch.core.consumer.leader_requests import FoundOffset
from kbatch.core.consumer.partition_state import (
    COMMITTED,
    EARLIEST,
    LATEST,
    NO_END,
    GroupStart,
    OffsetSpec,
    Start,
)
from kbatch.errors import ConfigError, IllegalStateError, KafkaTimeoutError, RecordDeserializationError
from kbatch.interceptors import interceptors_of_consumer
from kbatch.network.decoding import FETCHES_AHEAD, decoder_count
from kbatch.network.workers import Workers
from kbatch.records import (
    INT64_MAX,
    OffsetAndMetadata,
    TopicPartition,
    check_integer,
    checked_partition,
    checked_partitions,
)
from kbatch.timeouts import checked_seconds
from kbatch.typed import K, V
from kbatch.waiting.methods import plain

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch._native.codec.record import ConsumerRecord
    from kbatch._native.fetch.read_cursor import FetchIterator
    from kbatch.config import ConsumerConfig
    from kbatch.config.keywords import ConsumerKeywords
    from kbatch.consumer.projection import Projection
    from kbatch.core.client.cluster import PartitionMetadata
    from kbatch.formats.reading.base import ColumnDeserializer, ReadFormat
    from kbatch.waiting.deadline import Deadline

SHARE_KEYS = frozenset({"share.acknowledgement.mode", "share.acquire.mode"})


class ConsumerBase(MemberClient, Generic[K, V]):
    """Base of the consumers. Keys are of K and values of V, where they are not null."""

    _engine_type = GroupEngine
    _is_async = False

    if TYPE_CHECKING:  # deserializers say the types

        def __init__(
            self,
            settings: ConsumerConfig | Mapping[str, object] | None = None,
            /,
            **keywords: Unpack[ConsumerKeywords[K, V]],
        ) -> None: ...

    def _prepare(self) -> None:
        runtime, config = self._runtime, self.config
        assert isinstance(runtime.engine, GroupEngine)
        for name in config.given & SHARE_KEYS:
            raise ConfigError(f"{name} is for share groups; leave it out, or create a ShareConsumer")
        self._engine = runtime.engine
        self._backlog = Backlog(
            runtime.engine, lambda: runtime.network.wake(), runtime.changed, runtime.now_ns
        )
        self._arrivals = self._backlog.arrivals
        runtime.on_change = self._backlog.note_change
        self._interceptors = interceptors_of_consumer(config)
        self._typed = TypedRecords.of(config, on_loop=self._is_async)
        self._formats = column_formats(self._typed)
        # the records that were last prepared, as they were read and as the program gets them
        self._prepared_ahead: list[tuple[ConsumerRecord, ConsumerRecord | None]] = []
        check_letter(self._typed, type(self).__name__, is_async=self._is_async)
        self._member = GroupMember(runtime, self._backlog, self._user, self._interceptors, self._new_task)
        self._note_seconds = self._member.note_seconds
        self._decoder_count = config.kbatch_decode_threads or decoder_count()
        self._decoders = Workers(f"kbatch-decoder-{config.client_id}", self._decoder_count)
        self._asked: tuple[object, Projection] | None = None  # what poll_table was last asked for
        self._ends: dict[TopicPartition, int] = {}  # of until_end
        self._question = SchemaQuestion(
            self._backlog, self._decoders.submit, runtime.changed.notify, runtime.api_deadline
        )
        self._times = poll_times(runtime.registry)

    def _quick_polls(self, **options: Any) -> QuickPolls:
        """Return the polls that are one native step, by threads or by tasks."""
        runtime = self._runtime
        return QuickPolls(
            self._backlog,
            self._user,
            self._times,
            runtime.changed.waiting,
            engine=self._engine,
            new_polled=partial(Polled, formats=self._formats),
            most_records=self.config.max_poll_records,
            longest_wait_ns=int(self._note_seconds * NS_PER_SECOND),
            **options,
        )

    # Which partitions

    subscribe = plain(GroupMember.subscribe, "_member")
    subscription = plain(GroupMember.subscription, "_member")
    commit_async = plain(GroupMember.commit_async, "_member")
    group_metadata = plain(GroupMember.group_metadata, "_member")
    alive = plain(GroupMember.alive, "_member")

    def assign(self, partitions: Partitions | Mapping[TopicPartition, Position]) -> None:
        """Read these partitions, and no others, without a group that shares them out. Partitions that are
        read already go on where they are, with what was fetched.

        Parameters
        ----------
        partitions : iterable of TopicPartition, or a mapping of them to positions
            A position is as in `seek`. Without one, a partition begins at the offset that the group has
            committed, or else where auto.offset.reset says.

        Raises
        ------
        IllegalStateError
            A group assigns the partitions, since `subscribe`.
        TypeError, ValueError
            A partition or position is unsuitable.
        """
        positions = partitions if isinstance(partitions, Mapping) else None
        chosen = checked_partitions("assign", partitions)
        starts: dict[TopicPartition, Start | OffsetSpec | None] = dict.fromkeys(chosen)
        if positions is not None:
            starts = {
                each: None if position is None else _start_of(f"position of {each}", position)
                for each, position in zip(chosen, positions.values(), strict=True)
            }
        with self._user:
            if self._member.is_subscribed:
                raise IllegalStateError(
                    "assign() after subscribe(): the group assigns the partitions; call unsubscribe() first, "
                    "or use two consumers"
                )
            assigned = self._backlog.assigned
            if gone := assigned.keys() - starts.keys():
                self._engine.remove(gone)
                for each in gone:
                    self._backlog.end(assigned[each])
            for each, start in starts.items():
                if start is not None or each not in assigned:
                    self._begin(each, COMMITTED if start is None else start)
            self._runtime.network.wake()

    def _begin(self, partition: TopicPartition, start: Start | OffsetSpec | GroupStart) -> None:
        """Begin to read a partition, or to read it from elsewhere."""
        if partition in self._backlog.assigned:
            generation = self._engine.seek(partition, start)
        else:
            generation = self._engine.add({partition: start})
        self._backlog.add(AssignedPartition(partition, generation, start))

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are read."""
        return set(self._backlog.assigned)

    def _assigned_partition(self, partition: TopicPartition | tuple[str, int]) -> AssignedPartition:
        checked = checked_partition(partition)
        assigned = self._backlog.assigned.get(checked)
        if assigned is None:
            remedy = "poll() until it is" if self._member.is_subscribed else "assign() it first"
            raise IllegalStateError(f"{checked} is not assigned to this consumer; {remedy}")
        return assigned

    def _chosen(self, call: str, partitions: Partitions | None) -> list[AssignedPartition]:
        if partitions is None:
            return list(self._backlog.assigned.values())
        return [self._assigned_partition(each) for each in checked_partitions(call, partitions)]

    # Where in them

    def seek(
        self, partition: TopicPartition | tuple[str, int], position: Position | OffsetAndMetadata
    ) -> None:
        """Go on reading a partition at another position. What was fetched of it is dropped.

        Parameters
        ----------
        partition : TopicPartition
            An assigned one; it may be paused.
        position : int, OffsetAndMetadata, datetime, timedelta, "beginning" or "end"
            An offset; one with the leader epoch of the record before it, which detects a truncated log
            (KIP-320); or an end of the log ("earliest" and "latest" are the same). A time, which must have a
            time zone, or a while ago: the first record from then on, and the end if there is none. Under
            read_committed, the end is the last stable offset.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        TypeError, ValueError
            The position is unsuitable.
        """
        start = _start_of("position", position)
        with self._user:
            self._begin(self._assigned_partition(partition).partition, start)
            self._runtime.network.wake()

    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Go on at the beginning of the logs of these partitions; None for all that are assigned."""
        self._seek_all("seek_to_beginning", partitions, EARLIEST)

    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Go on at the end of the logs of these partitions; None for all that are assigned."""
        self._seek_all("seek_to_end", partitions, LATEST)

    def _seek_all(self, call: str, partitions: Partitions | None, spec: OffsetSpec) -> None:
        with self._user:
            for assigned in self._chosen(call, partitions):
                self._begin(assigned.partition, spec)
            self._runtime.network.wake()

    async def _position(
        self, partition: TopicPartition | tuple[str, int], *, timeout: float | None = None
    ) -> int:
        """Return the offset of the next record of a partition that a poll can return.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        NoOffsetForPartitionError
            It has no position, and auto.offset.reset=none.
        KafkaTimeoutError
            The position was not found within `timeout` seconds, or default.api.timeout.ms.
        """
        deadline = self._runtime.api_deadline(timeout)
        with self._user:
            assigned = self._assigned_partition(partition)
            if self._user.is_in_callback:
                self._engine.find_position(assigned.partition)
                self._runtime.network.wake()
            if not await self._await_next(lambda: self._has_position(assigned), deadline):
                why = self._engine.last_connection_failure or "brokers are slow"
                raise KafkaTimeoutError(f"position() of {assigned.partition} timed out: {why}")
            return assigned.position

    def _has_position(self, assigned: AssignedPartition) -> bool:
        """True if the position of a partition is known. Raise if it was not found."""
        if not self._backlog.find_position(assigned):
            self._backlog.discard_used_up(raises=True)
        return assigned.last is not None

    async def _lag(self, partition: TopicPartition | tuple[str, int], *, refresh: bool = False) -> int | None:
        """Return how many offsets a partition's position is from the end of its log: under read_committed,
        from the last stable offset. Any thread may call it.

        Parameters
        ----------
        refresh : bool
            Ask the broker, instead of using what its last answer said.

        Returns
        -------
        int or None
            None if no answer has come yet.
        """
        self._runtime.check_usable()
        assigned = self._assigned_partition(partition)
        ends = await self._end_offsets([assigned.partition]) if refresh else {}
        return self._engine.lag(assigned.partition, ends.get(assigned.partition))

    # Whether they are read

    def pause(self, partitions: Partitions | None = None) -> None:
        """Return no records of these partitions from polls until `resume`; None for all that are assigned.
        What was fetched is kept.
        """
        self._set_paused("pause", partitions, self._engine.pause, is_paused=True)

    def resume(self, partitions: Partitions | None = None) -> None:
        """Return records of these partitions again; None for all that are assigned."""
        self._set_paused("resume", partitions, self._engine.resume, is_paused=False)

    def _set_paused(
        self,
        call: str,
        partitions: Partitions | None,
        command: Callable[[Collection[TopicPartition]], object],
        *,
        is_paused: bool,
    ) -> None:
        with self._user:
            chosen = self._chosen(call, partitions)
            for assigned in chosen:
                assigned.is_paused, assigned.iterator = is_paused, None
            command([assigned.partition for assigned in chosen])
            self._runtime.network.wake()

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return {each for each, assigned in self._backlog.assigned.items() if assigned.is_paused}

    # Polls

    async def _poll(self, timeout: float | None = None, max_records: int | None = None) -> Polled[K, V]:
        """Return the next records as soon as there are some. If a task's call is cancelled, the next poll
        returns them.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait for the first record; 0 returns what is there, None waits as long as it takes.
        max_records : int or None
            Maximum number of records; None is max.poll.records.

        Returns
        -------
        Polled
            A sequence of ConsumerRecord. It is empty if the time-out came first.

        Raises
        ------
        IllegalStateError
            There is no subscription, and no partition is assigned.
        GroupAuthorizationError, FencedInstanceIdError, UnsupportedAssignorError, ...
            The membership has ended, with the broker's words; `subscribe` begins another.
        NoOffsetForPartitionError
            Partitions have no position, and auto.offset.reset=none.
        OffsetOutOfRangeError, LogTruncationError
            The log does not have a position, and auto.offset.reset=none.
        SchemaRegistryError
            A deserializer's registry refuses, or cannot be reached. The position stays before the records.
        CorruptRecordError
            A batch is invalid. The position stays before it; `seek` goes on after it.
        TopicAuthorizationError, UnknownTopicOrPartitionError, ...
            A partition cannot be read. Each poll tries again.
        AuthenticationError
            A login failed; raised once for each.
        ConcurrentUseError
            Another thread or task uses the consumer.
        ConsumerClosedError
            The consumer is closed, or was closed while the call waited.
        """
        most = self.config.max_poll_records if max_records is None else max_records
        check_integer("max_records", most, 1, INT64_MAX)
        deadline = self._runtime.deadline(timeout)
        with self._polling():
            backlog, question, typed = self._backlog, self._question, self._typed

            def has_next() -> bool:
                return backlog.has_next or question.is_answered

            while True:
                is_there = await self._await_polled(has_next, question.within(deadline))
                question.conclude()
                if not is_there:
                    break
                taken = (
                    backlog.take_records(most) if typed is None else await self._take_prepared(typed, most)
                )
                if taken:
                    polled = Polled(taken, backlog.take_moves(), self._formats)
                    self._interceptors.on_consume(polled)
                    return polled
            return Polled([], backlog.take_moves(), self._formats)

    async def _poll_table(
        self,
        timeout: float | None = None,
        max_rows: int = 100_000,
        min_rows: int = 1,
        *,
        max_bytes: int | None = None,
        linger: float = 0.0,
        columns: Iterable[str] | None = None,
        key: ColumnDeserializer | ReadFormat | None = None,
        value: ColumnDeserializer | ReadFormat | None = None,
        layout: str = "copy",
    ) -> pa.Table:
        """Return the next records as a table, a row for each, without a Python object per record. Workers
        decode all but small answers, and what follows while the program uses the table. It needs pyarrow. If
        a task's call is cancelled, the next poll returns the records.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait for `min_rows`; 0 returns what is there, None waits as long as it takes.
        max_rows, min_rows : int
            Maximum number of rows, and the number to wait for. The records of one answer stay together if
            there are `min_rows` without them.
        max_bytes : int or None
            Maximum bytes of the columns. A single larger row comes alone.
        linger : float
            Seconds to wait for more rows, up to a maximum, after there are `min_rows`.
        columns, key, value, layout
            As in `read_table`; without `key` or `value` the consumer's formats read them, see `Polled.table`.
            What is decoded ahead is of use to the next call only if that has the same ones: keep the
            deserializers.

        Returns
        -------
        pyarrow.Table
            Rows of a partition are in the order of offsets. It has fewer than `min_rows`, perhaps none, if
            the time-out came first, if they fill half of kbatch.fetch.buffer.memory (the other half is for
            answers), or if an error comes next.

        Raises
        ------
        DeserializationError
            A key or value cannot be deserialized, and its deserializer raises. The records before it were
            returned; the position stays before it, and `seek` goes on after it.
        KafkaError
            As in `poll`.
        """
        check_integer("max_rows", max_rows, 1, INT64_MAX)
        check_integer("min_rows", min_rows, 1, max_rows)
        if max_bytes is not None:
            check_integer("max_bytes", max_bytes, 1, INT64_MAX)
        limits = Limits(min_rows, max_rows, INT64_MAX if max_bytes is None else max_bytes)
        projection, is_as_before = self._projection_of(columns, layout, key, value)
        self._interceptors.check_tables()
        linger = checked_seconds(linger, "linger", "0 waits for no more rows")
        deadline = self._runtime.deadline(timeout)
        with self._polling():
            plan = await self._await_rows(projection, limits, deadline, linger)
            batches = self._backlog.take_rows(plan)
            if not batches:
                self._backlog.discard_used_up(raises=True)
            if is_as_before:
                fetches = FETCHES_AHEAD * self._decoder_count
                self._backlog.decode_ahead(projection, limits, self._decoders.submit, fetches)
            table = projection.table(batches)
            self._interceptors.on_consume_table(table)
            return table

    def _projection_of(
        self,
        columns: Iterable[str] | None,
        layout: str,
        key: ColumnDeserializer | ReadFormat | None,
        value: ColumnDeserializer | ReadFormat | None,
    ) -> tuple[Projection, bool]:
        """Return what a poll asks for, and whether the last one asked for the same: to make it anew takes
        longer than to decode a few records.
        """
        columns = columns if columns is None or isinstance(columns, str) else tuple(columns)
        asked = (columns, layout, key, value)
        before = self._asked  # once: another thread may poll, though that is an error
        if before is not None and before[0] == asked:
            return before[1], True
        from kbatch.consumer.projection import Projection  # which takes pyarrow

        projection = Projection(columns, layout, {"key": key, "value": value}, self._formats)
        self._asked = asked, projection
        return projection, False

    async def _await_rows(
        self, projection: Projection, limits: Limits, deadline: Deadline, linger: float
    ) -> Plan:
        """Return the rows to take when there are enough, or at the deadline."""
        backlog, plan = self._backlog, Plan([], 0)

        def has_rows(wanted: int) -> bool:
            nonlocal plan
            backlog.decode_ahead(projection, limits, self._decoders.submit)
            backlog.discard_used_up(raises=False)
            plan = backlog.plan(projection, limits)
            if plan.is_full or plan.row_count >= wanted:
                return True
            return plan.has_all and plan.row_count > 0 and backlog.await_more()

        try:
            if not await self._await_polled(lambda: has_rows(limits.least_rows), deadline):
                if self._member.has_work:  # what was planned may be revoked
                    return Plan([], 0)
                has_rows(limits.least_rows)
            elif linger:
                await self._await_next(
                    lambda: has_rows(limits.most_rows), deadline.within(linger), self._member.note_poll
                )
        finally:
            backlog.end_waiting()
        return plan

    @contextmanager
    def _polling(self, *, is_bounded: bool = False) -> Iterator[None]:
        """Begin and end a poll."""
        changes = self._backlog.changes  # before anything is looked at
        with self._user:
            self._user.refuse_callbacks("poll")
            if not self._backlog.assigned and not self._member.is_subscribed:
                raise IllegalStateError(
                    "the consumer has no partitions to poll; subscribe() to topics, or assign() some first"
                )
            if not is_bounded:
                self._open_ends()
            with self._one_poll(changes):
                yield

    @contextmanager
    def _one_poll(self, changes: int) -> Iterator[None]:
        """Do what every poll does before and after it. The caller is the consumer's user. `changes` are those
        of the backlog before the poll has looked at anything.
        """
        now_ns = self._runtime.now_ns
        self._backlog.note_poll(changes)
        self._times.begin(now_ns())
        if self._interceptors:
            self._interceptors.on_poll()
        try:
            self._backlog.bring_back()
            self._backlog.sort()
            yield
        except BaseException:
            self._take_back()
            raise
        finally:
            self._times.end(now_ns())

    @property
    def _may_be_quick(self) -> bool:
        """True if a poll that finds records has nothing to do with them but to take them."""
        return not (self._interceptors or self._typed is not None or self._ends)

    @property
    def _poll_count(self) -> int:
        return self._backlog.poll_count

    def _take_back(self) -> None:
        self._backlog.take_back()

    def _handle_arrivals(self) -> None:
        self._backlog.sort()
        self._backlog.make_room()

    def _check_membership(self) -> None:
        self._member.check_topics()

    async def _await_polled(self, is_there: Callable[[], bool], deadline: Deadline) -> bool:
        """Wait as `_await_next` does, and do what the group asks of the program."""
        member, backlog = self._member, self._backlog

        def is_next() -> bool:
            return member.has_work or is_there()

        def note_quiet() -> None:
            if self._may_be_quick:
                backlog.note_quiet(awaits=True)

        while True:
            if not await self._await_next(is_next, deadline, member.note_poll, note_quiet):
                return False
            if not member.has_work:
                if self._may_be_quick:
                    backlog.note_quiet(awaits=False)
                return True
            if not await member.attend(deadline):
                return False

    # Iteration

    async def _next_iterator(
        self, most: int = INT64_MAX, *, is_bounded: bool = False
    ) -> Iterator[ConsumerRecord[K, V]] | None:
        """Return records that an iteration gives one by one; None at the ends of the logs, if `is_bounded`.

        They may be all of a fetch: a change ends the iterator when the program should poll again.
        Interceptors see as many as a poll returns.
        """
        timeout = self.config.default_api_timeout_ms / 1000 if is_bounded else None
        with self._polling(is_bounded=is_bounded):
            deadline, backlog = self._runtime.deadline(timeout), self._backlog
            question, typed = self._question, self._typed

            def has_next() -> bool:
                return backlog.has_next or question.is_answered or (is_bounded and not self._before_ends())

            found = None
            while found is None:
                is_there = await self._await_polled(has_next, question.within(deadline))
                question.conclude()
                if is_there or not deadline.is_over:
                    found = backlog.next_with_record(True)
                    if found is None and is_bounded and not self._before_ends():
                        return None
                    if found is not None and typed is not None:
                        raw = found.queue[0].records.peek_records(RECORDS_AHEAD) if typed.asks else []
                        found = None if self._asks_for(typed, raw, found) else found
                else:
                    left = self._before_ends()
                    why = self._engine.last_connection_failure or "brokers are slow"
                    raise KafkaTimeoutError(
                        f"no records of {', '.join(map(str, left))} came within "
                        f"default.api.timeout.ms={self.config.default_api_timeout_ms}: {why}"
                    )
            fetch = found.queue[0]
            fetched = fetch.records
            if not self._interceptors and (typed is None or not typed.needs_look):
                iterator = backlog.begin_iterator(found, fetched, most)
                return iterator if typed is None else map(typed.typed, iterator)
            most = min(most, self.config.max_poll_records if typed is None else RECORDS_AHEAD)
            records = fetched.peek_records(most)
            taken = [PolledRecords(found.partition, fetch, fetch.first_row, len(records), records)]
            if typed is not None:
                prepared, failure = await self._prepare_records(typed, records)
                if not prepared and failure is not None:
                    backlog.move_to_end(found)
                    raise failure
                records = records[: len(prepared)]
                taken = [taken[0]._replace(records=[each for each in prepared if each is not None])]
            if self._interceptors:
                moves = {found.partition: records[-1]}
                self._interceptors.on_consume(Polled(taken, moves, self._formats))
            iterator = backlog.begin_iterator(found, fetched, len(records))
            return iterator if typed is None else _in_step(prepared, iterator)

    # Deserializers

    async def _take_prepared(self, typed: TypedRecords, most: int) -> list[PolledRecords]:
        """Return what a poll takes, with the records that the program gets; nothing of partitions whose
        schema the registry has yet to say. Errors are those of `_prepare_records`.
        """
        backlog, polled = self._backlog, list[PolledRecords]()
        failure = None
        while most > 0 and failure is None and (assigned := backlog.next_with_record(not polled)) is not None:
            fetched = assigned.queue[0].records
            raw = fetched.peek_records(min(most, RECORDS_AHEAD))
            if self._asks_for(typed, raw, assigned):
                continue
            prepared, failure = await self._prepare_records(typed, raw)
            if not prepared and not polled and failure is not None:
                backlog.move_to_end(assigned)
                raise failure
            if backlog.next_with_record(False) is not assigned or assigned.queue[0].records is not fetched:
                continue  # another one has come to be the next while this one waited
            taken = backlog.take_next(len(prepared), False) if prepared else None
            if taken is None:
                break
            polled.append(taken._replace(records=[each for each in prepared if each is not None]))
            most -= taken.row_count
        return polled

    def _asks_for(
        self, typed: TypedRecords, records: list[ConsumerRecord], assigned: AssignedPartition
    ) -> bool:
        """True if a registry has to be asked before these can be decoded, which are a partition's next."""
        unknown = typed.unknown(records) if typed.asks else None
        if unknown:
            self._question.ask(typed, unknown, assigned)
        return bool(unknown)

    async def _prepare_records(
        self, typed: TypedRecords, records: list[ConsumerRecord]
    ) -> tuple[list[ConsumerRecord | None], RecordDeserializationError | None]:
        """Return records as the program gets them, None for those that it does not get, and the error that it
        gets instead of the next one.

        An iteration may end before it has given all of what was prepared; that is not done again.
        """
        known = {id(raw): made for raw, made in self._prepared_ahead}
        fresh = [raw for raw in records if id(raw) not in known]
        prepared, letters, failure = await typed.prepared(
            fresh,
            self._decoders.submit,
            lambda is_there: self._await_next(is_there, self._runtime.deadline(None)),
            self._runtime.changed.notify,
        )
        if typed.dead_letter is not None:
            for letter, error in letters:
                if (acknowledged := typed.dead_letter(letter, error)) is not None:
                    await acknowledged
        made = dict(zip(map(id, fresh), prepared, strict=False)) | known
        pairs = [(raw, made[id(raw)]) for raw in takewhile(lambda raw: id(raw) in made, records)]
        self._prepared_ahead = pairs if typed.needs_look else []
        return [each for _, each in pairs], failure

    def skip(self, error: RecordDeserializationError) -> None:
        """Go on after the record of an error, unless the position is after it already.

        Raises
        ------
        IllegalStateError
            Its partition is not assigned.
        """
        if error.topic is None or error.partition is None or error.offset is None:
            raise ValueError("skip() needs the error of a record, which has topic, partition and offset")
        partition = TopicPartition(error.topic, error.partition)
        with self._user:
            assigned = self._assigned_partition(partition)
            if assigned.position <= error.offset:
                self._begin(partition, Start(error.offset + 1))
                self._runtime.network.wake()

    async def _begin_until_end(self) -> None:
        """Find the ends of the logs, and read up to them."""
        with self._polling():
            if self._member.is_subscribed:
                await self._await_assignment()
            chosen = [each for each, assigned in self._backlog.assigned.items() if not assigned.is_silent]
            self._ends = await self._end_offsets(chosen)
            self._backlog.note_change()
            for each, end in self._ends.items():
                self._set_end(each, end)
            self._runtime.network.wake()

    async def _await_assignment(self) -> None:
        """Wait until the group has assigned partitions; if it has assigned none, a little more for some."""
        timeout_ms, member, backlog = self.config.default_api_timeout_ms, self._member, self._backlog
        deadline = self._runtime.api_deadline()
        if not await self._await_polled(lambda: member.is_assigned, deadline):
            raise KafkaTimeoutError(
                f"group {self.config.group_id} has assigned no partitions within "
                f"default.api.timeout.ms={timeout_ms}: "
                f"{self._engine.last_connection_failure or 'its coordinator is slow'}"
            )
        await self._await_polled(lambda: bool(backlog.assigned), deadline.within(FIRST_PARTITIONS_SECONDS))

    def _before_ends(self) -> list[TopicPartition]:
        """Return the partitions whose ends are not reached, without those that are paused or gone."""
        assigned = self._backlog.assigned
        return [
            each
            for each, end in self._ends.items()
            if each in assigned and not assigned[each].is_silent and assigned[each].position < end
        ]

    def _open_ends(self) -> None:
        """Read on after the ends of `until_end`."""
        while self._ends:  # one by one, as an interrupt may come
            each = next(iter(self._ends))
            if each in self._backlog.assigned:
                self._set_end(each, NO_END)
                self._runtime.network.wake()
            self._ends.pop(each, None)

    def _set_end(self, partition: TopicPartition, end_offset: int) -> None:
        assigned = self._backlog.assigned[partition]
        start = assigned.start if assigned.last is None else start_after(assigned.last)
        generation = self._engine.seek(partition, start, end_offset)
        self._backlog.add(AssignedPartition(partition, generation, start))

    # What brokers know

    async def _partitions_for(self, topic: str) -> tuple[PartitionMetadata, ...]:
        """Return the partitions of a topic, in order.

        Raises
        ------
        UnknownTopicOrPartitionError, TopicAuthorizationError, InvalidTopicError
            The topic cannot be read.
        KafkaTimeoutError
            No answer came within default.api.timeout.ms.
        """
        while True:
            await self._runtime.await_partitions(topic)
            if (metadata := self._engine.snapshot.topics.get(topic)) is not None:
                return metadata.partitions

    async def _beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Return the first offset of each partition's log. KafkaError as in `offsets_for_times`."""
        return await self._offsets_at(EARLIEST, checked_partitions("beginning_offsets", partitions))

    async def _end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition; under read_committed, the last stable
        offset. KafkaError as in `offsets_for_times`.
        """
        return await self._offsets_at(LATEST, checked_partitions("end_offsets", partitions))

    async def _offsets_at(
        self, spec: OffsetSpec, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        found = await self._runtime.await_offsets(dict.fromkeys(partitions, spec))
        return {each: at.offset for each, at in found.items() if at is not None}  # every log has ends

    async def _offsets_for_times(
        self, times: Mapping[TopicPartition, datetime | timedelta | int]
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Return the first record of each partition at a time or later.

        Parameters
        ----------
        times : mapping of TopicPartition to datetime, timedelta or int
            A time, with its time zone; a while ago; or milliseconds since the Unix epoch.

        Returns
        -------
        dict of TopicPartition to FoundOffset or None
            Its `offset`, `timestamp_ms` and `leader_epoch` (-1 if unknown); None if there is no such record.

        Raises
        ------
        UnknownTopicOrPartitionError, TopicAuthorizationError
            A partition cannot be read.
        KafkaTimeoutError
            No answer came within default.api.timeout.ms.
        """
        if not isinstance(times, Mapping):
            raise TypeError(f"times must be a mapping of TopicPartition to times, got {times!r}")
        specs = {}
        for each, time in times.items():
            checked = checked_partition(each)
            found = position_of(f"time of {checked}", time, datetime.now(UTC))
            specs[checked] = OffsetSpec(found) if isinstance(found, int) else found
            if specs[checked].timestamp_ms < 0:
                raise ValueError(f"time of {checked} must be a time, got {time!r}; call end_offsets()")
        return await self._runtime.await_offsets(specs)

    # Its end

    async def _close(self, timeout: float | None, ending: Ending) -> None:
        processing = self._member.processing
        if processing is None or not processing.takes_close(self._runtime.deadline(timeout), ending):
            await super()._close(timeout, ending)

    async def _end_membership(self, deadline: Deadline, ending: Ending) -> None:
        await self._member.end(deadline, ending)

    def _end(self, deadline: Deadline | None = None) -> None:
        self._runtime.is_closed = True
        self._backlog.note_change()  # no poll is quick any more, and iterators end
        self._decoders.stop()
        self._interceptors.close()
        super()._end(deadline)


def _start_of(name: str, position: object) -> Start | OffsetSpec:
    """Return a position as the start that the engine takes."""
    if isinstance(position, OffsetAndMetadata):
        return Start(position.offset, position.leader_epoch, position.topic_id)
    found = position_of(name, position, datetime.now(UTC))
    return Start(found) if isinstance(found, int) else found


def _in_step(prepared: Iterable[ConsumerRecord | None], iterator: FetchIterator) -> Iterator[ConsumerRecord]:
    """Iterate over prepared records, while the position moves over those that they are made of."""
    for record, _ in zip(prepared, iterator, strict=False):
        if record is not None:
            yield record
