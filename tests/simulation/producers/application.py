"""The application of a world: threads that send records, and the thread that runs their callbacks.

Theory of operation. An Appender is a thread of a program: a VirtualTask, which calls the producer as users
do, and is suspended where the producer makes it wait. It sends a Sending: a record, or, in some worlds, a
table or an encoded batch (table_application.py). Acceptance is noted before anything else happens, so that
the order of acceptance in a partition is known. Callbacks run later, in the order in which batches were done,
each batch's after the time that the one before took.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

from kbatch._native.batch.delivery import Completion, RecordMetadata
from kbatch.config import ProducerConfig
from kbatch.errors import (
    BufferExhaustedError,
    DeliveryError,
    KafkaError,
    KafkaTimeoutError,
    PrecedingRecordFailedError,
)
from tests.simulation.world.cluster import BOOTSTRAP, PORT, Ground, SimulatedCluster
from tests.simulation.world.faults import WorldFaults
from tests.simulation.world.schedule import MS
from tests.simulation.world.tasks import VirtualTask, sleep
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch.core.producer.engine import ProducerEngine
    from tests.simulation.producers.producer import SimulatedProducer
    from tests.simulation.producers.wire import Wire
    from tests.simulation.world.options import WorldOptions

SLACK_NS = 200 * MS  # above delivery.timeout.ms: rounds of the sender, and sealing


class CallbackError(Exception):
    """Thrown by callbacks."""


class RecordOutcome(Protocol):
    """The outcome of a record: its Delivery, or its part in the outcome of many."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    def done(self) -> bool: ...
    def result(self) -> RecordMetadata: ...
    def exception(self) -> Exception | None: ...


class SentRecord:
    """A record that was or will be accepted.

    Attributes
    ----------
    number : int
        Unique; its value begins with it.
    callback : str
        "none", "counts", "throws" or "sends" another record.
    settled_by : int
        The number of the event that delivered or failed it; -1 before.
    tells_timestamp : bool
        True if its outcome has the timestamp in the log.
    """

    __slots__ = (
        "accepted_ns",
        "callback",
        "called_count",
        "delivery",
        "headers",
        "key",
        "number",
        "settled_by",
        "timestamp_ms",
        "topic_partition",
        "value",
    )
    tells_timestamp = True

    def __init__(
        self, number: int, key: bytes | None, value: bytes | None, timestamp_ms: int, callback: str
    ) -> None:
        self.number = number
        self.key = key
        self.value = value
        self.headers: tuple[tuple[str, bytes | None], ...] = ()
        self.timestamp_ms = timestamp_ms
        self.callback = callback
        self.called_count = 0
        self.accepted_ns = -1
        self.settled_by = -1
        self.delivery: RecordOutcome | None = None
        self.topic_partition = ("", -1)

    @property
    def is_done(self) -> bool:
        """True if it was delivered or failed, or was never accepted."""
        return self.delivery is None or self.delivery.done()

    @property
    def is_settled(self) -> bool:
        """True if its batch has its final answer, as far as that can be seen."""
        return self.is_done


class Stage(Ground):
    """A world as its application sees it.

    Attributes
    ----------
    producer : SimulatedProducer
    accumulator, engine
        Of the producer.
    """

    faults: WorldFaults
    producer: SimulatedProducer
    accumulator: RecordAccumulator
    engine: ProducerEngine
    wire: Wire

    def __init__(self, options: WorldOptions, *, prints: bool = False) -> None:
        super().__init__(options, prints=prints)
        self.settings = options.settings
        self.config = ProducerConfig(
            {"bootstrap.servers": f"{BOOTSTRAP}:{PORT}", "client.id": "simulated", **options.settings}
        )
        self.is_idempotent = self.config.enable_idempotence
        self.may_resend = self.config.kbatch_sequence_gap == "resend"
        self.faults = WorldFaults(self)
        self.cluster = SimulatedCluster(self)

    @property
    def keeps_order(self) -> bool:
        """True if the producer promises that a partition's records stay in order.

        kbatch.sequence.gap=resend makes no such promise once a leader has lost what it knew of the producer,
        or leads another topic of that name: it may take a later batch first, and the gap is sent again after
        that.
        """
        if self.is_idempotent:
            return not (self.may_resend and (self.cluster.lost or self.cluster.archives))
        return self.config.max_in_flight_requests_per_connection == 1 and "late" not in self.faults.counts


class Application:
    """The application of a world.

    Attributes
    ----------
    records : dict of int to SentRecord
        The accepted records, by number, in the order of acceptance.
    positions : dict of int to int
        The position of each number in that order.
    must_fail : set of int
        Records after a failed one, which must fail too (kbatch.on.delivery.failure).
    tables : Draws or None
    """

    def __init__(self, world: Stage) -> None:
        self.world = world
        self.records: dict[int, SentRecord] = {}
        self.positions: dict[int, int] = {}
        self.must_fail: set[int] = set()
        self.outcomes: dict[str, int] = {}
        self.is_closed = False
        self.appenders = [Appender(self) for _ in range(world.options.workload.appenders)]
        self.tables: Draws | None = None
        self._closing: VirtualTask | None = None
        self._policy = world.options.settings["kbatch.on.delivery.failure"]
        self._stopped: set[tuple[str, int] | None] = set()  # None: the whole producer
        self._undone: list[SentRecord] = []
        self._completions: deque[Any] = deque()
        self._event_count = 0
        self._to_call: list[SentRecord] = []  # with a callback, and not settled
        self._called_last: dict[tuple[str, int], tuple[int, int]] = {}  # event and position
        self._seen: set[int] = set()
        self._kept: list[Completion] = []
        self._is_calling = False
        self._has_resumed = False
        self._number = 0

    def start(self) -> None:
        for appender in self.appenders:
            self.world.schedule.after(self.world.random.randrange(10 * MS), appender.task.go)

    def kill(self) -> None:
        """End all threads where they wait."""
        for appender in self.appenders:
            appender.task.kill()
        if self._closing is not None:
            self._closing.kill()

    @property
    def is_finished(self) -> bool:
        """True if all records are sent and done, and their callbacks have run."""
        return (
            all(appender.task.is_over for appender in self.appenders)
            and (self._closing is None or self._closing.is_over)
            and not self._undone
            and not self._completions
            and not self._is_calling
        )

    # Records

    def new_number(self) -> int:
        self._number += 1
        return self._number

    def new_record(self) -> SentRecord:
        random, workload = self.world.random, self.world.options.workload
        number = self.new_number().to_bytes(4, "big")
        size = random.randrange(workload.value_bytes + 1)
        padding = random.randbytes(size) if random.random() < 0.5 else b"x" * size
        callback = "none"
        if random.random() < workload.callback:
            callback = "counts"
            if random.random() < workload.throwing:
                callback = "throws"
            elif random.random() < workload.sending:
                callback = "sends"
        key = b"key " + number if random.random() < workload.keyed else None
        return SentRecord(self._number, key, number + padding, self.world.schedule.wall_ms, callback)

    def new_probe(self) -> SentRecord:
        record = self.new_record()
        record.callback = "none"
        return record

    async def send(self, record: SentRecord, topic: str, partition: int | None) -> None:
        """Accept the record, or raise what the producer raised."""
        delivery = await self.world.producer.send(topic, **self._fields(record, partition))
        self.accepted(record, delivery)

    def _fields(self, record: SentRecord, partition: int | None) -> dict[str, Any]:
        return {
            "key": record.key,
            "value": record.value,
            "partition": partition,
            "timestamp_ms": record.timestamp_ms,
            "on_delivery": self._callback_of(record) if record.callback != "none" else None,
        }

    def accepted(self, record: SentRecord, delivery: RecordOutcome) -> None:
        record.delivery = delivery
        record.topic_partition = (delivery.topic, delivery.partition)
        record.accepted_ns = self.world.schedule.now_ns
        self.positions[record.number] = len(self.records)
        self.records[record.number] = record
        self._undone.append(record)
        if record.callback != "none":
            self._to_call.append(record)
        self.world.trace("record %d for %s-%d", record.number, *record.topic_partition)
        if self._stopped and (None in self._stopped or record.topic_partition in self._stopped):
            self.must_fail.add(record.number)

    def partition_for(self, topic: str) -> int | None:
        """Return the partition that the record names, or None."""
        random = self.world.random
        count = self.world.engine.snapshot.partition_count(topic)
        names_one = random.random() < self.world.options.workload.explicit
        return random.randrange(count) if names_one and count else None

    # Judged by the Wire

    def check_partition(self, number: int, topic: str, partition: int) -> None:
        record = self.records.get(number)
        if record is None:
            raise Violation(f"record {number} is sent, which was never accepted")
        if record.topic_partition != (topic, partition):
            raise Violation(f"record {number} of {record.topic_partition} is sent to {topic}-{partition}")

    def is_settled(self, number: int) -> bool:
        return self.records[number].is_settled

    def check_deadlines(self) -> None:
        """Check that every delivery is done within delivery.timeout.ms."""
        timeout_ns = self.world.config.delivery_timeout_ms * MS + SLACK_NS
        timeout_ns += int(self.world.options.seal_ms * MS)
        for record in self._undone:
            if self.world.schedule.now_ns <= record.accepted_ns + timeout_ns:
                break
            if not record.is_done:
                raise Violation(f"record {record.number} is not done in delivery.timeout.ms")

    # Deliveries

    def note_event(self) -> None:
        self._note_settled()
        self._has_resumed = False

    def _note_settled(self) -> None:
        """Note which records the producer's last event settled."""
        self._event_count += 1
        settled = [record for record in self._to_call if record.is_done]
        if settled:
            self._to_call = [record for record in self._to_call if not record.is_done]
        for record in settled:
            record.settled_by = self._event_count

    def deliver(self, done: Iterable[Any]) -> None:
        """Take completed batches, and other objects with callbacks, which run in this order."""
        self._note_settled()  # close() settles what is left outside of the sender's rounds
        done = list(done)
        for each in done:
            if isinstance(each, Completion):
                self._note_completed(each)
            self._completions.append(each)
        if done:
            if self.world.config.acks == 0:
                self._check_written()
            self._undone = [record for record in self._undone if not record.is_done]
        if self._completions and not self._is_calling:
            self._call_next()

    def _note_completed(self, completion: Completion) -> None:
        if id(completion) in self._seen:
            raise Violation(f"{completion} is completed twice")
        self._seen.add(id(completion))
        self._kept.append(completion)
        name = completion.outcome
        if completion.error is not None:
            name = f"{type(completion.error).__name__}"
        self.outcomes[name] = self.outcomes.get(name, 0) + completion.record_count
        self.world.trace(
            "%s-%d: %d records %s at %d %s",
            completion.topic,
            completion.partition,
            completion.record_count,
            completion.outcome,
            completion.base_offset,
            completion.error or "",
        )
        if completion.outcome == "pending":
            raise Violation("a batch comes as completed, and is pending")
        if completion.outcome == "failed" and self._policy != "continue" and not self._has_resumed:
            self._failed(completion)

    def in_callback(self) -> bool:
        return self.world.accumulator.callback_thread_ident != 0

    def _check_written(self) -> None:
        """Check that without acknowledgements no record counts as delivered before it is written."""
        for record in self._undone:
            assert record.delivery is not None
            is_delivered = record.is_done and record.delivery.exception() is None
            if is_delivered and record.number not in self.world.wire.ambiguous:
                raise Violation(f"record {record.number} counts as delivered before it is written")

    def _failed(self, completion: Completion) -> None:
        if isinstance(completion.error, PrecedingRecordFailedError):
            return
        topic_partition = None if self._policy == "stop" else (completion.topic, completion.partition)
        self._stopped.add(topic_partition)
        for record in self._undone:
            is_sent = record.is_done or record.number in self.world.wire.sent
            if topic_partition in (None, record.topic_partition) and not is_sent:
                self.must_fail.add(record.number)

    async def resume(self) -> None:
        """Resume the producer after a failure."""
        if self._stopped:
            self._stopped.clear()
            self.world.trace("resume")
            self.world.engine.submit(self._note_resumed)
            await self.world.producer.resume()

    def _note_resumed(self, now_ns: int) -> None:
        """Note the command: failures in the same run of the engine may have come before it."""
        self._has_resumed = True

    def _call_next(self) -> None:
        self._is_calling = True
        delay_ms = self.world.random.random() * self.world.options.workload.callback_ms
        self.world.schedule.after(int(delay_ms * MS), self._call)

    def _call(self) -> None:
        completion = self._completions.popleft()

        def threw(function: Callable[..., object], error: Exception) -> None:
            if not isinstance(error, CallbackError):
                raise error

        self.world.accumulator.callback_thread_ident = get_ident()
        try:
            completion.run_callbacks(threw)
        finally:
            self.world.accumulator.callback_thread_ident = 0
        self._is_calling = False
        if self._completions:
            self._call_next()

    def _callback_of(self, record: SentRecord) -> Callable[[RecordMetadata, Exception | None], None]:
        def on_delivery(metadata: RecordMetadata, error: Exception | None) -> None:
            record.called_count += 1
            assert record.delivery is not None
            if record.called_count > 1:
                raise Violation(f"the callback of record {record.number} was called twice")
            if not record.delivery.done() or record.delivery.exception() is not error:
                raise Violation(f"record {record.number}: its callback and its delivery differ")
            if (metadata.topic, metadata.partition) != record.topic_partition:
                raise Violation(f"record {record.number}: its callback says {metadata}")
            self._check_order(record)
            if record.callback == "throws":
                raise CallbackError
            if record.callback == "sends" and not self.is_closed:
                self._send_from_callback(record)

        return on_delivery

    def _check_order(self, record: SentRecord) -> None:
        """Check that callbacks of a partition run in the order in which its records were settled; for records
        that one event settled, in the order of acceptance.
        """
        turn = (record.settled_by, self.positions[record.number])
        if self.world.keeps_order and turn < self._called_last.get(record.topic_partition, turn):
            raise Violation(f"the callback of record {record.number} comes after those of later ones")
        self._called_last[record.topic_partition] = turn

    def _send_from_callback(self, before: SentRecord) -> None:
        record = self.new_record()
        record.callback = "counts"
        if self.world.engine.fatal_error is not None:
            return
        topic, partition = before.topic_partition
        try:
            delivery = self.world.producer.try_send(topic, **self._fields(record, partition))
        except KafkaError as error:  # the cluster may have no metadata of the topic now
            self.world.trace("not accepted: %r", error)
            return
        if delivery is not None:
            self.accepted(record, delivery)

    # Purging, closing

    async def purge(self) -> None:
        in_flight = self.world.random.random() < 0.5
        self.world.trace("purge, in flight: %s", in_flight)
        await self.world.producer.purge(in_flight=in_flight)

    def close(self, *, forced: bool = False) -> None:
        """Close the producer on a thread of its own."""
        if self.is_closed:
            return
        self.is_closed = True
        self.world.trace("close%s", " by force" if forced else "")
        self._closing = VirtualTask(self._close(timeout=0 if forced else None))
        self._closing.go()

    async def _close(self, timeout: float | None) -> None:
        try:
            await self.world.producer.close(timeout)
        except KafkaError as error:
            self.world.trace("close: %r", error)


class Sending(Protocol):
    """Something that an appender sends."""

    async def send(self) -> None:
        """Have it accepted. KafkaError or ValueError unless all of it was."""


class Draws(Protocol):
    """Draws what is sent besides records."""

    def draw(self) -> Sending | None:
        """Return what an appender sends next; None for a record."""

    def ended(self) -> Iterable[Any]:
        """Return the tables that were accepted and are not done; each has a `callback_count`."""


class SendingRecord:
    """A new record for a topic of the cluster's."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._record = application.new_record()
        self._topic = application.world.random.choice(
            list(application.world.options.cluster.partition_counts)
        )

    async def send(self) -> None:
        partition = self._application.partition_for(self._topic)
        await self._application.send(self._record, self._topic, partition)


class Appender:
    """A thread of the application.

    Attributes
    ----------
    task : VirtualTask
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._world = application.world
        self.task = VirtualTask(self._run())

    async def _run(self) -> None:
        """Send bursts, with pauses between them."""
        random, workload = self._world.random, self._world.options.workload
        left = workload.records
        while left > 0 and self._may_send:
            burst = min(random.randrange(1, workload.burst + 1), left)
            left -= burst
            for _ in range(burst):
                if self._may_send:
                    await self._send()
            await self._interlude()

    @property
    def _may_send(self) -> bool:
        return not self._application.is_closed and self._world.engine.fatal_error is None

    async def _send(self) -> None:
        tables = self._application.tables
        sending = (tables and tables.draw()) or SendingRecord(self._application)
        begun_ns = self._world.schedule.now_ns
        try:
            await sending.send()
        except (KafkaError, ValueError) as error:
            self._world.trace("not accepted: %r", error)
            waited_ns = self._world.schedule.now_ns - begun_ns
            is_late = isinstance(error, BufferExhaustedError | KafkaTimeoutError)
            if is_late and waited_ns < (self._world.config.max_block_ms - 1) * MS:
                raise Violation(f"{error!r} after {waited_ns / MS} ms") from error

    async def _interlude(self) -> None:
        """Pause, purge, resume or flush between two bursts."""
        random, workload = self._world.random, self._world.options.workload
        try:
            if random.random() < workload.purge:
                await self._application.purge()
            if random.random() < 0.3:
                await self._application.resume()
            if random.random() < workload.flush:
                await self._flush()
                return
        except KafkaError as error:  # it was closed, or has failed
            self._world.trace("%r", error)
        await sleep(self._world.schedule, int(random.random() * workload.pause_ms * MS))

    async def _flush(self) -> None:
        """Flush, and check that all accepted records are done and their callbacks have run."""
        accepted = [record for record in self._application.records.values() if not record.is_done]
        tables = self._application.tables.ended() if self._application.tables is not None else []
        self._world.trace("flush")
        try:
            await self._world.producer.flush()
        except DeliveryError as error:
            self._world.trace("flush: %r", error)
        for record in accepted:
            is_called = record.callback == "none" or record.called_count == 1
            if not record.is_done or not is_called:
                raise Violation(f"a flush is over, and record {record.number} is not")
        for table in tables:
            if table.callback_count != 1:
                raise Violation(f"a flush is over, and the callback of {table} has not run")
