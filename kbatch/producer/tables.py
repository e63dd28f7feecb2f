"""send_table: a table's rows as records, from Arrow memory to offsets, without a Python object per row.

This module turns arguments into those of the native TableSender, waits if that refuses rows, and shows the
outcome as a TableReport. numpy, and pyarrow for numpy columns and serializers (the extra `arrow`), are
imported when they are needed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast, final

from kbatch._native.arrow.arrow import rows_at_hand
from kbatch._native.batch.delivery import RecordMetadata
from kbatch._native.batch.table_outcome import TableOutcome
from kbatch._native.send.accumulator import Refusal
from kbatch._native.send.table_sender import TableSender
from kbatch.codec.roles import Part, record_columns
from kbatch.distribution import needs
from kbatch.errors import DeliveryError, KafkaError, KafkaTimeoutError, SerializationError
from kbatch.errors.rows import InvalidRowError
from kbatch.producer.deliveries import future_of
from kbatch.producer.runtime import check_topic
from kbatch.progress import ProgressBar
from kbatch.waiting.deadline import Deadline

if TYPE_CHECKING:
    import numpy as np

    from kbatch._native.batch.buffer_pool import BufferPool
    from kbatch._native.batch.producer_batch import ProducerBatch
    from kbatch._native.send.send import RecordSender
    from kbatch.producer.runtime import Runtime
    from kbatch.producer.serializing import SchemaLoading
    from kbatch.producer.transactions import TransactionCalls

Listener = tuple[Any, Callable[[Any], object]]
# The time to read the rest of a stopped stream, to count its rows.
_COUNTING_NS = 200_000_000
# The number of a table's topics that a text names.
SHOWN_TOPICS = 3
# The number of rows whose interceptors are called in one turn of the event loop.
CALLBACK_ROWS = 1000
OnAcknowledgement = Callable[[RecordMetadata, BaseException | None], object]
Reading = Callable[[], AbstractContextManager[None]]


class TableSending:
    """One call of `send_table`, which waits and runs callbacks as the producer does for records.

    Parameters
    ----------
    sender : RecordSender
        The producer, with the settings that rows are sent by.
    runtime : Runtime
    transactions : TransactionCalls
    sealer : callable
        Returns a function that seals a full batch; None leaves that to the accumulator.
    give_way : callable or None
        Awaited after every block of rows, so that other tasks run.
    schemas : SchemaLoading or None
        Asks a registry for those of formats, on an event loop.
    """

    table: TableSender | None = None

    def __init__(
        self,
        sender: RecordSender,
        runtime: Runtime,
        transactions: TransactionCalls,
        *,
        sealer: Callable[[], Callable[[ProducerBatch], object] | None] = lambda: None,
        give_way: Callable[[], Awaitable[None]] | None = None,
        schemas: SchemaLoading | None = None,
    ) -> None:
        self._sender = sender
        self._runtime = runtime
        self._transactions = transactions
        self._sealer = sealer
        self._give_way = give_way
        self._schemas = schemas
        self._interceptors = runtime.interceptors
        self._accumulator = runtime.accumulator
        self._transaction = 0

    async def send_table(
        self,
        topic: str | None,
        data: Any,
        *,
        key: Part = "key",
        value: Part = "value",
        headers: str | None = "headers",
        timestamp: str | None = "timestamp",
        partition: str | None = "partition",
        topic_column: str | None = None,
        on_delivery: Callable[[TableReport], object] | None = None,
        on_progress: Callable[[TableReport], object] | None = None,
        progress: bool = False,
    ) -> TableDelivery:
        """Accept the rows of a table for sending, in the same batches that `send` fills.

        It returns when the last row is accepted, and waits up to max.block.ms each time that there is no
        memory. key.serializer, value.serializer and partitioner.class are not used.

        Parameters
        ----------
        topic : str or None
            The topic of all rows; with `topic_column`, of rows where that is null; None if there are none.
        data : table
            As in `kbatch.encode_arrow`. A stream may be larger than memory: it is read batch by batch.
        key, value : str or column serializer
            As in `kbatch.encode_arrow`; `kbatch.formats.writing` has those for JSON, Avro and Protobuf.
        headers, timestamp, partition : str or None
            Columns, as in `kbatch.encode_arrow`. If a row names no partition, Java's murmur2 of the key
            decides; without a key `send`'s sticky partition does.
        topic_column : str or None
            Column of string, large_string, string_view or a dictionary of those: the topic of each row. If a
            topic cannot be used (it does not exist, or is not authorized), all of its rows fail, and the
            others are sent.
        on_delivery : callable or None
            Called as `on_delivery(report)`, once, when every row was delivered or failed.
        on_progress : callable or None
            Called as `on_progress(report)` for every batch that was delivered or failed.
        progress : bool
            True shows a bar of the rows that were delivered or failed, on a terminal, which takes the extra
            `cli`, or in a notebook.

        Returns
        -------
        TableDelivery
            Its result is a TableReport. If accepting stops after some rows were accepted, the report has the
            others as failed, and `report.stopped` is the reason. Like all failures that are never checked,
            they make the next flush raise. The rest of a stream, which may be endless, is then read for a
            fifth of a second to count its rows; rows that come later are in no report.

        Raises
        ------
        TypeError, ValueError, KafkaError
            No row was accepted, for this reason. An InvalidRowError, or a SerializationError with a `row`, is
            about the row of that number.
        """
        only_topic = topic if topic_column is None else None
        bar = ProgressBar("rows") if progress else None
        try:
            self._transactions.check_sendable()
            self._transaction = self._accumulator.transaction_count
            _check_call(topic, topic_column, on_delivery=on_delivery, on_progress=on_progress)
            if self._interceptors:
                data = self._interceptors.on_send_table(only_topic, data)
            if isinstance(data, Mapping):
                from kbatch.codec.columns import NumpyTable

                data = NumpyTable(data)
            if only_topic is not None:
                await self._runtime.await_partition(only_topic, None, self._runtime.block_deadline())
            await self._load_schemas(only_topic, {"key": key, "value": value})
            source, names, reading = record_columns(
                data,
                key=key,
                value=value,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
                topic=topic_column,
                to_topic=only_topic,
            )
            table = self.table = TableSender(
                self._sender,
                topic,
                source,
                names,
                transaction=self._transaction,
                seal=self._sealer(),
                on_acknowledgement=self._on_acknowledgement,
            )
            if bar is not None:
                on_progress = _showing(bar, table.outcome, rows_at_hand(data) or None, on_progress)
            report = _observed_report(table.outcome, on_delivery, on_progress)
            await self._accept_rows(table, reading)
        except BaseException as error:
            if bar is not None:
                bar.close()
            if not self._runtime.is_forked:
                self._handle_raised(only_topic, data, error)
            raise
        return TableDelivery(only_topic, report, self._accumulator.memory)

    async def _load_schemas(self, topic: str | None, parts: Mapping[str, Any]) -> None:
        for part, each in parts.items():
            if self._schemas is not None and getattr(each, "asks", False):
                deadline = self._runtime.block_deadline()
                await self._schemas.first(partial(each.column_serializer, topic, part), topic, deadline)

    async def _accept_rows(self, table: TableSender, reading: Reading) -> None:
        """Accept all rows of the table, or those that can be accepted; the others fail."""
        accept = partial(self._accept, table)
        try:
            with reading():
                outcome = accept()
                while outcome is not True:
                    if outcome is Refusal.METADATA:
                        await self._await_topics(table, self._runtime.block_deadline())
                        outcome = accept()
                    elif outcome is Refusal.MEMORY:
                        first = partial(accept, first_in_queue=True)
                        outcome = await self._runtime.await_memory(first, self._runtime.block_deadline())
                    else:
                        if self._give_way is not None:
                            await self._give_way()
                        outcome = accept()
            self._check_topics_of(table)
        except BaseException as stopped:
            self._stop(table, stopped)
            if not isinstance(stopped, Exception):
                raise
        else:
            await self._finish_whole(table)
        if table.outcome.unsent_count:
            rows = UnsentRows(table.outcome)  # the next flush raises them unless the report is checked
            self._runtime.engine.failures.note(rows)
            self._transactions.refuse(rows.error.marked())

    def _accept(self, table: TableSender, *, first_in_queue: bool = False) -> bool | Refusal:
        self._transactions.check_still_sendable(self._transaction)  # it may have ended during a wait
        return table.accept(first_in_queue=first_in_queue, blocks=1 if self._give_way else sys.maxsize)

    async def _await_topics(self, table: TableSender, deadline: Deadline) -> None:
        """Wait for the topics and partitions that rows name next; refuse those that cannot be used."""
        for may_wait in (False, True):  # request all before waiting for one
            for topic, partition in table.unknown_partitions:
                try:
                    await self._runtime.await_partition(topic, partition, deadline, may_wait)
                except KafkaError as error:
                    self._transactions.check_sendable()  # the error is not the producer's
                    if partition is not None and isinstance(error, KafkaTimeoutError):
                        table.refuse_beyond()
                    else:
                        self._transactions.mark(error)
                        table.refuse_topic(topic, error)

    def _check_topics_of(self, table: TableSender) -> None:
        """Raise or note the error of refused topics, after all rows have been read."""
        error = cast("KafkaError | None", table.outcome.topic_error)
        if error is None:
            return
        if not table.has_begun:
            raise error
        self._transactions.refuse(error)

    def _stop(self, table: TableSender, stopped: BaseException) -> None:
        """Fail the rows that are not accepted yet because of `stopped`; raise it if none is accepted."""
        if not table.has_begun:
            raise stopped
        error = _as_kafka_error(stopped)
        if isinstance(stopped, Exception):  # an interrupt or cancellation must not take longer
            with suppress(Exception):  # rows that cannot be read do not count
                table.count_remaining(time.monotonic_ns() + _COUNTING_NS)
        table.give_up(error)
        self._transactions.refuse(error)
        self._finish(table, error)

    @property
    def _on_acknowledgement(self) -> OnAcknowledgement | None:
        """The callback of every row; None if no interceptor has one, because it takes time and memory."""
        return self._interceptors.on_acknowledgement if self._interceptors.acknowledges else None

    def _handle_raised(self, topic: object, data: Any, error: BaseException) -> None:
        """Record that the call raises `error`. If no row was accepted, known rows count as records that
        `send` refused.
        """
        table = self.table
        self._transactions.note_refused(error)
        if table is not None and table.has_begun:
            return
        row_count = rows_at_hand(data)
        if table is not None:
            table.give_up(_as_kafka_error(error))
            row_count = table.outcome.row_count
        if row_count:
            self._runtime.observe("record-error", row_count)
        if self._on_acknowledgement is not None:
            metadata = RecordMetadata(topic if isinstance(topic, str) else "", -1)
            for _ in range(row_count):
                self._on_acknowledgement(metadata, error)

    async def _finish_whole(self, table: TableSender) -> None:
        ended = self._finished(table, None)
        try:
            if ended and table.outcome.on_acknowledgement is not None and not self._sender._gives_way:
                await self._runtime.await_sender()  # it delivers the last batch's callbacks first
        finally:
            self._runtime.callbacks.deliver(ended)

    def _finish(self, table: TableSender, error: KafkaError | None) -> None:
        self._runtime.callbacks.deliver(self._finished(table, error))

    def _finished(self, table: TableSender, error: KafkaError | None) -> list[_TableCallbacks]:
        if table.outcome.unsent_count:
            self._runtime.observe("record-error", table.outcome.unsent_count)
        if table.outcome.on_acknowledgement is not None and table.outcome.unsent_count:
            for first in range(0, table.outcome.row_count, CALLBACK_ROWS):
                table.charge_callback()
                unsent = _UnsentRowsCallbacks(table, first, first + CALLBACK_ROWS)
                self._runtime.callbacks.deliver([unsent])
        listeners = table.end(error)
        return [_TableCallbacks(table, listeners)] if listeners else []


def _check_call(topic: object, topic_column: object, **functions: object) -> None:
    if topic is None and topic_column is None:
        raise TypeError("topic is None; pass the topic, or topic_column=... with one for every row")
    if topic is not None:
        check_topic(topic)
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be callable as {name}(report), or None, got {function!r}")


def _showing(
    bar: ProgressBar,
    outcome: TableOutcome,
    total: int | None,
    on_progress: Callable[[TableReport], object] | None,
) -> Callable[[TableReport], object]:
    """Return an `on_progress` that moves the bar, too; the end of the table closes it."""

    def show(report: TableReport) -> None:
        bar.show(report.done_rows, total, report.done_rows)
        if on_progress is not None:
            on_progress(report)

    outcome.listen(bar, ProgressBar.close)
    return show


def _observed_report(
    outcome: TableOutcome,
    on_delivery: Callable[[TableReport], object] | None,
    on_progress: Callable[[TableReport], object] | None,
) -> TableReport:
    """Return the report, with its callbacks registered."""
    report = TableReport(outcome)
    if on_progress is not None:
        outcome.watch(report, on_progress)
    if on_delivery is not None:
        outcome.is_observed = True
        outcome.listen(report, on_delivery)
    return report


def _named(topics: tuple[str, ...]) -> str:
    more = len(topics) - SHOWN_TOPICS
    shown = ", ".join(topics[:SHOWN_TOPICS]) or "no topic"
    return shown + (f" and {more} more topics" if more > 0 else "")


def _as_kafka_error(error: BaseException) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    made: KafkaError
    if isinstance(error, Exception):
        made = SerializationError(f"the row was not sent, because reading the table failed: {error}")
        if isinstance(error, InvalidRowError):
            made.row = error.row
    else:
        how = "interrupted" if isinstance(error, KeyboardInterrupt) else "cancelled"
        made = KafkaError(f"the row was not sent, because sending the table was {how}")
    made.__cause__ = error
    return made


class UnsentRows:
    """Failed rows of a table that were in no batch; an element of the engine's failures."""

    outcome = "failed"

    def __init__(self, outcome: TableOutcome) -> None:
        self._outcome = outcome

    @property
    def topic(self) -> str:
        return _named(self._outcome.topic_names)

    @property
    def error(self) -> KafkaError:
        return next(iter(TableReport(self._outcome).errors.values()))

    @property
    def unobserved_count(self) -> int:
        return 0 if self._outcome.is_observed else self._outcome.unsent_count


class _TableCallbacks:
    """Callbacks of a table that was done before accepting it ended; queued like a Completion."""

    has_callbacks = True
    record_count = 0

    def __init__(self, table: TableSender, listeners: list[Listener]) -> None:
        self._table = table
        self._listeners = listeners

    def run_callbacks(self, threw: Callable[[Callable[..., object], Exception], object]) -> int:
        count = 0
        while self._listeners:
            argument, function = self._listeners.pop(0)
            count += 1
            try:
                function(argument)
            except Exception as error:
                threw(function, error)
        self._table.release_callback()
        return count


class _UnsentRowsCallbacks:
    """Interceptors' callbacks for those of rows first .. end - 1 in no batch; queued like a Completion."""

    has_callbacks = True
    record_count = 0

    def __init__(self, table: TableSender, first: int, end: int) -> None:
        self._table = table
        self._outcome = table.outcome
        self._row = first
        self._end_row = end

    def run_callbacks(self, threw: Callable[[Callable[..., object], Exception], object]) -> int:
        count = 0
        on_acknowledgement = self._outcome.on_acknowledgement
        assert on_acknowledgement is not None
        while (row := self._outcome.next_unsent(self._row, self._end_row)) >= 0:
            self._row = row + 1
            metadata = RecordMetadata(*self._outcome.topic_and_partition(row))
            on_acknowledgement(metadata, self._outcome.error_of(row))
            count += 1
        self._table.release_callback()
        return count


@final
class TableDelivery:
    """The future TableReport of a `send_table` call. It works like a Delivery, except that `result` does not
    raise if rows failed.

    Attributes
    ----------
    topic : str or None
        The topic of all rows; None if a column names topics, which `report.topics` has.
    """

    def __init__(self, topic: str | None, report: TableReport, memory: BufferPool) -> None:
        self.topic = topic
        self._memory = memory
        self._report = report
        self._outcome = report._outcome

    @property
    def report(self) -> TableReport:
        """The outcomes so far."""
        return self._report

    def done(self) -> bool:
        """True if every row was delivered or failed."""
        return self._outcome.is_done

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds (None: as long as it takes). Return True if every row was delivered or
        failed. It does not count as checking failed rows.
        """
        if not self._outcome.is_done and timeout != 0:
            self._memory.check_may_wait()
        return self._outcome.wait(Deadline(timeout).left)

    def result(self, timeout: float | None = None) -> TableReport:
        """Return the outcome of every row; wait up to `timeout` seconds (None: as long as it takes).

        Raises
        ------
        KafkaTimeoutError
            Rows are not delivered yet; their delivery goes on.
        """
        if not self.wait(timeout):
            left = self._outcome.row_count - self._outcome.done_count
            raise KafkaTimeoutError(
                f"no result after {timeout} s for {left} of {self._outcome.row_count} rows for "
                f"{self._where}, which are not delivered yet (delivery.timeout.ms bounds it)"
            )
        self._outcome.is_observed = True
        return self._report

    def exception(self, timeout: float | None = None) -> DeliveryError | None:
        """Return the number of failed rows and the first one's error; None if all were delivered. Wait, and
        raise, like `result`.
        """
        errors = self.result(timeout).errors
        return DeliveryError(len(errors), next(iter(errors.values()))) if errors else None

    def add_done_callback(self, function: Callable[[TableDelivery], object]) -> None:
        """Call `function(delivery)` once every row was delivered or failed, after on_delivery."""
        if not self._outcome.listen(self, function):
            function(self)

    def __await__(self) -> Generator[Any, None, TableReport]:
        if not self.done():
            yield from future_of(self).__await__()
        return self.result(0)

    def __repr__(self) -> str:
        done, rows = self._outcome.done_count, self._outcome.row_count
        return f"<TableDelivery {self._where}, {done} of {rows} rows done>"

    @property
    def _where(self) -> str:
        return _named(self._report.topics)


@final
class TableReport:
    """The outcomes of the rows of a table, one value per row.

    It changes while rows are in flight; the arrays are copies of its state at that moment.
    """

    def __init__(self, outcome: TableOutcome) -> None:
        self._outcome = outcome

    @property
    def row_count(self) -> int:
        """The number of rows; of rows read so far, if accepting goes on or a stream was stopped."""
        return self._outcome.row_count

    @property
    def stopped(self) -> KafkaError | None:
        """The reason why not all rows were accepted; None if all were, or accepting goes on."""
        return cast("KafkaError | None", self._outcome.end_error)

    @property
    def done_rows(self) -> int:
        """The number of rows that were delivered or failed."""
        return self._outcome.done_count

    @property
    def failed_rows(self) -> int:
        return self._outcome.failed_count

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the rows, in the order of their first rows."""
        return self._outcome.topic_names

    @property
    def topic_codes(self) -> np.ndarray:
        """int32: each row's index in `topics`; -1 if accepting stopped before its topic was read."""
        codes = self._outcome.topic_codes
        if codes is not None:
            return self._array(codes, "int32")
        zeros: np.ndarray = _numpy().broadcast_to(_numpy().int32(0), self.row_count)
        return zeros

    @property
    def partitions(self) -> np.ndarray:
        """int32: each row's partition; -1 if it failed before one was chosen."""
        return self._array(self._outcome.partitions, "int32")

    @property
    def offsets(self) -> np.ndarray:
        """int64: each row's offset; -1 if it failed, is in flight, or the broker did not say."""
        return self._array(self._outcome.offsets, "int64")

    @property
    def error_codes(self) -> np.ndarray:
        """int16: Kafka's error code of each failed row (-1 for an error without one), 0 of the others."""
        return self._array(self._outcome.error_codes, "int16")

    @property
    def errors(self) -> Mapping[int, KafkaError]:
        """The errors of the failed rows, by row."""
        return _Errors(self)

    def _array(self, memory: Any, kind: str) -> np.ndarray:
        array: np.ndarray = _numpy().frombuffer(memory, kind)
        return array

    def __repr__(self) -> str:
        stopped = "" if self.stopped is None else f", stopped by {type(self.stopped).__name__}"
        done = f"{self.done_rows} of {self.row_count} rows done, {self.failed_rows} failed"
        return f"<TableReport {done}{stopped}>"


def _numpy() -> Any:
    """Return numpy, which only readers of a report's arrays need."""
    with needs("a TableReport", "arrow"):
        import numpy
    return numpy


@final
class _Errors(Mapping[int, KafkaError]):
    """The errors of a report, looked up on access."""

    def __init__(self, report: TableReport) -> None:
        self._report = report

    def __getitem__(self, row: int) -> KafkaError:
        error = self._report._outcome.error_of(row)
        if error is None:
            raise KeyError(row)
        return cast(KafkaError, error)

    def __iter__(self) -> Iterator[int]:
        for row in self._report.error_codes.nonzero()[0]:
            yield int(row)

    def __len__(self) -> int:
        return self._report.failed_rows

    def __repr__(self) -> str:
        return f"<errors of {len(self)} rows>"
