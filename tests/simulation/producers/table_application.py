"""Tables and encoded batches, which the application of some worlds sends besides records.

Theory of operation. A table goes through the producer's own `send_table`. Nothing drains the queues
meanwhile, so their growth shows which rows were accepted: the first of the table's rows for the partition
that were not accepted before. From then on each row is a record of the application, and all checkers treat it
as one; the TableReport has its outcome. A record of an encoded batch has its share of the BatchDelivery in
the same way.

While some rows are in flight, a report does not say which rows are done if the broker gave no offsets. Such a
row counts in favour of the producer; in the end, all of them are done.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from kbatch._native.batch.delivery import BatchDelivery, RecordMetadata
from kbatch._native.codec.batch_writer import encode
from kbatch._native.codec.hashes import partition_for_key
from kbatch.distribution import pip_install
from kbatch.errors import KafkaError
from kbatch.producer.tables import TableReport, TableSending
from kbatch.records import TopicPartition
from tests.simulation.producers.application import CallbackError, Sending, SentRecord
from tests.simulation.world.options import CODECS
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbatch._native.send.accumulator import Refusal
    from kbatch._native.send.table_sender import TableSender
    from tests.simulation.producers.application import Application, Stage
    from tests.simulation.world.cluster import Ground
    from tests.simulation.world.options import TableOptions


class WatchedTable(TableSending):
    """A call of `send_table` that notes which rows were accepted when."""

    def __init__(self, world: Stage, sent: SentTable) -> None:
        producer = world.producer
        super().__init__(producer, producer.runtime, producer.transactions, sealer=lambda: producer.seal)
        self._world = world
        self._sent = sent

    def _accept(self, table: TableSender, *, first_in_queue: bool = False) -> bool | Refusal:
        sent = self._sent
        sent.begin_attempt(TableReport(table.outcome))
        before = sent.queued_counts()
        try:
            outcome = super()._accept(table, first_in_queue=first_in_queue)
        finally:
            sent.note_accepted(before)
        self._world.trace("%s: %s, %s", sent, outcome, sent.report)
        return outcome


class SentRow(SentRecord):
    """A row of a table, or a record of an encoded batch."""

    __slots__ = ()
    tells_timestamp = False


class SentTable:
    """A table that was sent, and its report.

    Attributes
    ----------
    topics : tuple of str
        The topics of its rows; a column names them, unless there is only one.
    rows : list of SentRow
    to : list of (str or None)
        The topic that each row names; rows that name none go to the first of `topics`.
    named : list of (int or None)
        The partition that each row names.
    is_ended : bool
        All rows are accepted, or will not be.
    was_refused : bool
        `send_table` raised.
    callback_count : int
        The number of calls of on_delivery.
    attempt_count : int
        The number of the appender's attempts: more than one if it had to wait.
    """

    def __init__(
        self,
        application: Application,
        topics: tuple[str, ...],
        rows: list[SentRow],
        to: list[str | None],
        named: list[int | None],
    ) -> None:
        self.topics = topics
        self.rows = rows
        self.to = to
        self.named = named
        self.is_ended = self.was_refused = False
        self.callback_count = self.attempt_count = 0
        self._report: TableReport | None = None
        self.partition_counts: dict[str, set[int]] = {topic: set() for topic in topics}
        self._application = application
        self._world = application.world
        self._progress = -1
        self._seen_count = -1
        self._offsets: list[int] = []
        self._codes: list[int] = []

    @property
    def report(self) -> TableReport:
        assert self._report is not None
        return self._report

    @property
    def is_done(self) -> bool:
        """Every row was delivered, or failed."""
        return self.is_ended and self.report.done_rows == self.report.row_count

    def begin_attempt(self, report: TableReport) -> None:
        """Note that rows are about to be accepted."""
        self.attempt_count += 1
        self._report = report
        snapshot = self._world.engine.snapshot
        for topic, counts in self.partition_counts.items():
            if count := snapshot.partition_count(topic):  # 0 while brokers do not know the topic
                counts.add(count)

    def is_row_done(self, row: int) -> bool:
        if self.is_done:
            return True
        self._look()
        if row >= len(self._codes):
            return False
        if self._codes[row] or self._offsets[row] >= 0:
            return True
        may_be = self.rows[row].number in self._world.wire.ambiguous
        return may_be and self._unsaid_count() > 0

    def _look(self) -> None:
        """Read the report again if it may have changed."""
        if self._seen_count != self.report.done_rows:
            self._seen_count = self.report.done_rows
            self._offsets = self.report.offsets.tolist()
            self._codes = self.report.error_codes.tolist()

    def _unsaid_count(self) -> int:
        """Return the number of rows that are done, but not known by number."""
        said = sum(
            1 for offset, code in zip(self._offsets, self._codes, strict=True) if offset >= 0 or code != 0
        )
        return self._seen_count - said

    # Callbacks of the producer

    def progress(self, report: TableReport) -> None:
        if report.done_rows < max(1, self._progress):
            raise Violation(f"{self}: the progress falls from {self._progress} to {report.done_rows}")
        self._progress = report.done_rows

    def observe(self, report: TableReport) -> None:
        self.callback_count += 1
        if not self.is_done or report.done_rows != report.row_count:
            raise Violation(f"{self} counts as done, {report}")
        if self._world.options.workload.throwing:
            raise CallbackError

    # Accepted rows

    def topic_of(self, row: int) -> str:
        return self.to[row] or self.topics[0]

    def queued_counts(self) -> Counter[TopicPartition]:
        """Return the number of records in each queue."""
        partitions = (
            TopicPartition(topic, partition)
            for topic, counts in self.partition_counts.items()
            for partition in range(max(counts, default=0))
        )
        batches = self._world.accumulator.batches
        return Counter({each: sum(batch.record_count for batch in batches(*each)) for each in partitions})

    def note_accepted(self, before: Counter[TopicPartition]) -> None:
        """Note the rows accepted since the queues had `before`."""
        left = self.queued_counts()
        left.subtract(before)
        if not any(left.values()):
            return
        partitions = self.report.partitions.tolist()
        codes = self.report.error_codes.tolist()
        for row, (partition, code) in enumerate(zip(partitions, codes, strict=True)):
            if row >= len(self.rows):
                raise Violation(f"{self} has {len(self.rows)} rows, and {self.report}")
            topic_partition = TopicPartition(self.topic_of(row), partition)
            if partition < 0 or code or self.rows[row].delivery is not None or left[topic_partition] == 0:
                continue
            left[topic_partition] -= 1
            self._check_partition(row, topic_partition)
            self._application.accepted(self.rows[row], RowOutcome(self, row, partition))
        if any(left.values()):
            raise Violation(f"{self}: {left} records in the queues are none of its rows")

    def _check_partition(self, row: int, topic_partition: TopicPartition) -> None:
        """Check that a row goes where it says, or where its key says."""
        topic, partition = topic_partition
        key, named = self.rows[row].key, self.named[row]
        allowed = {partition}
        if named is not None:
            allowed = {named}
        elif key is not None:
            allowed = {partition_for_key(key, count) for count in self.partition_counts[topic]}
        if partition not in allowed:
            raise Violation(f"{self}: row {row} is for partition {partition}, and not one of {allowed}")
        said = self.report.topics[self.report.topic_codes[row]]
        if said != topic:
            raise Violation(f"{self}: row {row} is for topic {topic}, and the report says {said}")

    def __str__(self) -> str:
        return f"the table of records {self.rows[0].number} to {self.rows[-1].number}"


Row = TypeVar("Row", bound=SentRow)


class RowOutcome:
    """The outcome of a row in a report."""

    __slots__ = ("partition", "row", "table")

    def __init__(self, table: SentTable, row: int, partition: int) -> None:
        self.table = table
        self.row = row
        self.partition = partition

    @property
    def topic(self) -> str:
        return self.table.topic_of(self.row)

    def done(self) -> bool:
        return self.table.is_row_done(self.row)

    def exception(self) -> Exception | None:
        return self.table.report.errors.get(self.row)

    def result(self) -> RecordMetadata:
        report = self.table.report
        return RecordMetadata(self.topic, int(report.partitions[self.row]), int(report.offsets[self.row]))


class SendingTable:
    """Sends a new table."""

    def __init__(self, tables: Tables) -> None:
        self._topics = tables.draw_topics()
        self._tables = tables
        self._world = tables.world

    async def send(self) -> None:
        producer = self._world.producer
        counts = {topic: len(await producer.partitions_for(topic)) for topic in self._topics}
        sent = self._tables.new_table(counts)
        table = self._tables.arrow_of(sent)
        try:
            delivery = await WatchedTable(self._world, sent).send_table(
                self._topics[0],
                table,
                key="its key",
                topic_column="its topic" if len(self._topics) > 1 else None,
                on_delivery=sent.observe,
                on_progress=sent.progress,
            )
        except (ValueError, KafkaError) as error:
            sent.was_refused = True
            if any(row.delivery is not None for row in sent.rows):
                raise Violation(f"{sent} was refused, but rows of it were accepted") from error
            raise
        sent.is_ended = True
        if delivery.done() != sent.is_done:
            raise Violation(f"{sent}: {delivery}, and {sent.report}")


class SendingBatch:
    """Sends a new batch, encoded by the application."""

    def __init__(self, tables: Tables) -> None:
        self._topic = tables.draw_topic()
        self._application, self._world = tables.application, tables.world
        self._random = tables.random
        self._records = tables.new_batch()
        codec = self._random.choice(CODECS)
        self._data = encode(
            [(each.key, each.value, each.headers, each.timestamp_ms) for each in self._records],
            compression=codec,
        )

    async def send(self) -> None:
        world = self._world
        partition = self._random.randrange(len(await world.producer.partitions_for(self._topic)))
        delivery = await world.producer.send_batch(self._topic, partition, self._data)
        world.trace("a batch of %d records", len(self._records))
        for index, record in enumerate(self._records):
            self._application.accepted(record, BatchedOutcome(delivery, index))


class BatchedOutcome:
    """The outcome of one record in a BatchDelivery."""

    __slots__ = ("_delivery", "_index")

    def __init__(self, delivery: BatchDelivery, index: int) -> None:
        self._delivery = delivery
        self._index = index

    @property
    def topic(self) -> str:
        return self._delivery.topic

    @property
    def partition(self) -> int:
        return self._delivery.partition

    def done(self) -> bool:
        return self._delivery.done()

    def exception(self) -> Exception | None:
        return self._delivery.exception()

    def result(self) -> RecordMetadata:
        index = self._index
        for run in self._delivery.offset_runs():
            if index < run.record_count:
                offset = run.first_offset + index if run.first_offset >= 0 else -1
                return RecordMetadata(self.topic, self.partition, offset)
            index -= run.record_count
        raise Violation(f"the runs of a batch end before its record {self._index}")


class EncodedRecord(SentRow):
    """A record of an encoded batch."""

    __slots__ = ("world",)
    world: Ground

    @property
    def is_settled(self) -> bool:
        """True if the batch is done, or may be split: the parts of a batch do not report their ends."""
        return self.is_done or "shrink" in self.world.faults.counts


class Tables:
    """Draws tables and encoded batches, and keeps those that were sent.

    Attributes
    ----------
    sent : list of SentTable
    """

    def __init__(self, application: Application, options: TableOptions) -> None:
        self.application = application
        self.world = world = application.world
        self.options = options
        self.random = Random(f"rows {world.options.seed}")
        self.sent: list[SentTable] = []

    def draw(self) -> Sending | None:
        """Return what an appender sends next; None for a record."""
        drawn = self.random.random()
        if drawn < self.options.tables:
            return SendingTable(self)
        return SendingBatch(self) if drawn < self.options.tables + self.options.batches else None

    def draw_topic(self) -> str:
        return self.random.choice(list(self.world.options.cluster.partition_counts))

    def draw_topics(self) -> tuple[str, ...]:
        """Draw the topics of a table: one, or all, with a column that names them."""
        topic = self.draw_topic()
        if not self.options.topics or self.random.random() >= self.options.topics:
            return (topic,)
        return tuple(dict.fromkeys((topic, *self.world.options.cluster.partition_counts)))

    def ended(self) -> list[SentTable]:
        """Return the tables that were accepted and are not done."""
        return [each for each in self.sent if each.is_ended and not each.was_refused and not each.is_done]

    def new_batch(self) -> list[EncodedRecord]:
        make = partial(self._new_row, EncodedRecord)
        records = [make() for _ in range(self.random.randrange(1, self.options.batch_records + 1))]
        for record in records:
            record.world = self.world
        return records

    def new_table(self, partition_counts: dict[str, int]) -> SentTable:
        random, options = self.random, self.options
        topics = tuple(partition_counts)
        rows = [self._new_row(SentRow) for _ in range(random.randrange(1, options.rows + 1))]
        to = [random.choice((None, *topics)) if len(topics) > 1 else None for _ in rows]
        named = [
            random.randrange(partition_counts[topic or topics[0]])
            if random.random() < options.explicit
            else None
            for topic in to
        ]
        if random.random() < options.wrong:
            named[random.randrange(len(named))] = max(partition_counts.values()) + 100
        for row in rows:
            if random.random() < options.huge:
                self._enlarge(row)
        table = SentTable(self.application, topics, rows, to, named)
        self.sent.append(table)
        return table

    def _new_row(self, kind: Callable[..., Row]) -> Row:
        random, options = self.random, self.options
        number = self.application.new_number()
        start = number.to_bytes(4, "big")
        size = random.randrange(self.world.options.workload.value_bytes + 1)
        value = start + (random.randbytes(size) if random.random() < 0.5 else b"x" * size)
        key = b"key " + start if random.random() < options.keyed else None
        is_tombstone = key is not None and random.random() < options.tombstones
        row = kind(number, key, None if is_tombstone else value, self.world.schedule.wall_ms, "none")
        if random.random() < options.headers:
            row.headers = (("h", b"1"), ("h", None), ("i", b""))[: random.randrange(4)]
        return row

    def _enlarge(self, row: SentRow) -> None:
        """Enlarge a row so that it cannot be sent."""
        config = self.world.config
        limit = min(config.max_request_size, config.buffer_memory)
        if limit < 100_000 and row.value is not None:
            row.value += bytes(limit)

    def arrow_of(self, table: SentTable) -> Any:
        """Return the table as a stream of record batches."""
        try:
            import pyarrow as pa
        except ImportError as error:
            text = f"worlds with tables need pyarrow: {pip_install('arrow')}"
            raise ImportError(text) from error
        rows = table.rows
        columns = {
            "its key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "timestamp": pa.array([row.timestamp_ms for row in rows], pa.timestamp("ms")),
        }
        if any(row.headers for row in rows):
            pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
            headers = [[{"key": name, "value": data} for name, data in row.headers] for row in rows]
            columns["headers"] = pa.array(headers, pa.list_(pair))
        if any(named is not None for named in table.named):
            columns["partition"] = pa.array(table.named, pa.int32())
        if len(table.topics) > 1:
            columns["its topic"] = pa.array(table.to, pa.string())
        chunk_rows = self.random.randrange(1, self.options.chunk_rows + 1)
        return pa.Table.from_batches(pa.table(columns).to_batches(max_chunksize=chunk_rows))
