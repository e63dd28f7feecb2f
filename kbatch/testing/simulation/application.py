"""The application of a world: threads that send records, and the thread that runs their callbacks.

Theory of operation. An Appender does what a thread in `Producer.send` does: it appends, and where the record
is refused waits its turn for memory, or for metadata, up to max.block.ms. What it has in hand is a Sending: a
record, or, in some worlds, a table or an encoded batch (table_application.py). What is accepted is written
down before anything else happens, so that the acceptance order of a partition is known. Callbacks come later,
in the order in which batches were done, each batch's after the time that the one before took.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from kbatch._native.batch.delivery import Completion, Delivery, RecordMetadata
from kbatch._native.codec.hashes import partition_for_key
from kbatch._native.send.accumulator import Refusal
from kbatch.errors import (
    BufferExhaustedError,
    KafkaError,
    KafkaTimeoutError,
    PrecedingRecordFailedError,
    ProducerClosedError,
    PurgedError,
)
from kbatch.testing.simulation.schedule import MS
from kbatch.testing.simulation.trace import Violation

if TYPE_CHECKING:
    from kbatch._native.batch.buffer_pool import Waiter
    from kbatch.testing.simulation.world import World

SLACK_NS = 200 * MS  # above delivery.timeout.ms: rounds of the sender, and sealing


class CallbackError(Exception):
    """What a callback throws."""


class Outcome(Protocol):
    """What becomes of a record: its Delivery, or its part in the outcome of many."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    def done(self) -> bool: ...
    def result(self) -> RecordMetadata: ...
    def exception(self) -> BaseException | None: ...


class SentRecord:
    """A record that was accepted, or is to be.

    Attributes
    ----------
    number : int
        Unique; its value begins with it.
    callback : str
        "none", "counts", "throws" or "sends" another record.
    settled_by : int
        The number of the event by which it was delivered, or failed; -1 before.
    tells_timestamp : bool
        Its outcome says which timestamp the log has.
    """

    __slots__ = (
        "accepted_ns",
        "callback",
        "called_count",
        "delivery",
        "headers",
        "key",
        "number",
        "place",
        "settled_by",
        "timestamp_ms",
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
        self.delivery: Outcome | None = None
        self.place = ("", -1)

    @property
    def is_done(self) -> bool:
        """Delivered or failed, or never accepted."""
        return self.delivery is None or self.delivery.done()

    @property
    def is_settled(self) -> bool:
        """Its batch is answered for good, as far as that can be seen."""
        return self.is_done


class Application:
    """
    Attributes
    ----------
    records : dict of int to SentRecord
        Those that were accepted, by number, in the order of acceptance.
    positions : dict of int to int
        Where in that order a number stands.
    must_fail : set of int
        Records that come behind a failed one, which kbatch.on.delivery.failure lets nothing pass.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.records: dict[int, SentRecord] = {}
        self.positions: dict[int, int] = {}
        self.must_fail: set[int] = set()
        self.outcomes: dict[str, int] = {}
        self.is_closed = False
        self.appenders = [Appender(self, number) for number in range(world.options.workload.appenders)]
        self.memory_line: deque[Appender] = deque()
        self._policy = world.options.settings["kbatch.on.delivery.failure"]
        self._stopped: set[tuple[str, int] | None] = set()  # None: the whole producer
        self._undone: list[SentRecord] = []
        self._completions: deque[Completion] = deque()
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
            self.world.schedule.after(self.world.random.randrange(10 * MS), appender.go)

    @property
    def is_finished(self) -> bool:
        """All that will be sent is sent, done, and called back."""
        return (
            all(appender.is_finished for appender in self.appenders)
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

    def append(self, record: SentRecord, topic: str, partition: int, **turn: bool) -> Any:
        """A Delivery, or a Refusal; IllegalStateError where the producer is closed."""
        world = self.world
        on_delivery = self._callback_of(record) if record.callback != "none" else None
        answer = world.accumulator.append(
            topic,
            partition,
            record.key,
            record.value,
            None,
            record.timestamp_ms,
            world.schedule.now_ns,
            on_delivery,
            **turn,
        )
        if isinstance(answer, Delivery):
            self.accepted(record, answer)
        return answer

    def accepted(self, record: SentRecord, delivery: Outcome) -> None:
        record.delivery = delivery
        record.place = (delivery.topic, delivery.partition)
        record.accepted_ns = self.world.schedule.now_ns
        self.positions[record.number] = len(self.records)
        self.records[record.number] = record
        self._undone.append(record)
        if record.callback != "none":
            self._to_call.append(record)
        self.world.trace("record %d for %s-%d", record.number, *record.place)
        if self._stopped and (None in self._stopped or record.place in self._stopped):
            self.must_fail.add(record.number)

    def partition_of(self, record: SentRecord, topic: str) -> int | None:
        """Where `Producer.send` has a record go: -1 leaves it to the accumulator; None: it is not known."""
        random = self.world.random
        count = self.world.engine.snapshot.view.partition_count(topic)
        if random.random() < self.world.options.workload.explicit:
            return random.randrange(count) if count else None
        if record.key is None:
            return -1
        return partition_for_key(record.key, count) if count else None

    # Judged by the Wire

    def check_place(self, number: int, topic: str, partition: int) -> None:
        record = self.records.get(number)
        if record is None:
            raise Violation(f"record {number} is sent, which was never accepted")
        if record.place != (topic, partition):
            raise Violation(f"record {number} of {record.place} is sent to {topic}-{partition}")

    def is_settled(self, number: int) -> bool:
        return self.records[number].is_settled

    def check_deadlines(self) -> None:
        """Every delivery is done within delivery.timeout.ms, whatever happens."""
        timeout_ns = self.world.config.delivery_timeout_ms * MS + SLACK_NS
        timeout_ns += int(self.world.options.seal_ms * MS)
        for record in self._undone:
            if self.world.schedule.now_ns <= record.accepted_ns + timeout_ns:
                break
            if not record.is_done:
                raise Violation(f"record {record.number} is not done in delivery.timeout.ms")

    # Deliveries

    def note_event(self) -> None:
        """Writes down which records the producer's last event settled."""
        self._event_count += 1
        settled = [record for record in self._to_call if record.is_done]
        if settled:
            self._to_call = [record for record in self._to_call if not record.is_done]
        for record in settled:
            record.settled_by = self._event_count

    def completed(self, completions: list[Completion]) -> None:
        """Batches that the engine has done with."""
        for completion in completions:
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
            self._completions.append(completion)
        self._has_resumed = False
        if completions:
            if self.world.config.acks == 0:
                self._check_written()
            self._undone = [record for record in self._undone if not record.is_done]
        if self._completions and not self._is_calling:
            self._call_next()

    def deliver(self, told: Iterable[Any]) -> None:
        """What is not a batch, and has callbacks to be called in its turn."""
        self._completions.extend(told)
        if self._completions and not self._is_calling:
            self._call_next()

    def _check_written(self) -> None:
        """Without acknowledgements a record counts as delivered when it is written."""
        for record in self._undone:
            assert record.delivery is not None
            is_delivered = record.is_done and record.delivery.exception() is None
            if is_delivered and record.number not in self.world.wire.ambiguous:
                raise Violation(f"record {record.number} counts as delivered before it is written")

    def _failed(self, completion: Completion) -> None:
        if isinstance(completion.error, PrecedingRecordFailedError):
            return
        place = None if self._policy == "stop" else (completion.topic, completion.partition)
        self._stopped.add(place)
        for record in self._undone:
            is_sent = record.is_done or record.number in self.world.wire.sent
            if place in (None, record.place) and not is_sent:
                self.must_fail.add(record.number)

    def resume(self) -> None:
        """The application goes on after a failure."""
        if self._stopped:
            self._stopped.clear()
            self.world.trace("resume")
            self.world.engine.resume()
            self.world.engine.submit(self._note_resumed)
            self.world.shell.wake()

    def _note_resumed(self, now_ns: int) -> None:
        """What fails in the same round of the sender may have failed before."""
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

        completion.run_callbacks(threw)
        self._is_calling = False
        if self._completions:
            self._call_next()

    def _callback_of(self, record: SentRecord) -> Callable[[RecordMetadata, BaseException | None], None]:
        def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
            record.called_count += 1
            assert record.delivery is not None
            if record.called_count > 1:
                raise Violation(f"the callback of record {record.number} was called twice")
            if not record.delivery.done() or record.delivery.exception() is not error:
                raise Violation(f"record {record.number}: its callback and its delivery differ")
            if (metadata.topic, metadata.partition) != record.place:
                raise Violation(f"record {record.number}: its callback says {metadata}")
            self._check_order(record)
            if record.callback == "throws":
                raise CallbackError
            if record.callback == "sends" and not self.is_closed:
                self._send_from_callback(record)

        return on_delivery

    def _check_order(self, record: SentRecord) -> None:
        """Callbacks of a partition come as its records were settled; of those that one event settled, in the
        order of acceptance, whatever became of them."""
        turn = (record.settled_by, self.positions[record.number])
        if self.world.keeps_order and turn < self._called_last.get(record.place, turn):
            raise Violation(f"the callback of record {record.number} comes after those of later ones")
        self._called_last[record.place] = turn

    def _send_from_callback(self, before: SentRecord) -> None:
        record = self.new_record()
        record.callback = "counts"
        if self.world.engine.fatal_error is None:
            self.append(record, before.place[0], before.place[1], in_callback=True)

    # Memory, purging, closing

    def memory_freed(self) -> None:
        """Somebody in line may look again."""
        self.world.schedule.after(0, self._let_first_try)

    def _let_first_try(self) -> None:
        if self.memory_line:
            self.memory_line[0].try_again()

    def purge(self) -> None:
        in_flight = self.world.random.random() < 0.5
        self.world.trace("purge, in flight: %s", in_flight)
        self.world.engine.purge(PurgedError("purged"), queued=True, in_flight=in_flight)
        self.world.shell.wake()

    def close(self, *, forced: bool = False) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.world.trace("close%s", " by force" if forced else "")
        self.world.accumulator.close()
        if forced:
            self.world.engine.purge(ProducerClosedError("closed"), queued=True, in_flight=True)
            self.world.shell.wake()


class Sending(Protocol):
    """What an appender has in hand."""

    topic: str

    def attempt(self, *, first_in_line: bool) -> object:
        """A Refusal is what it has to wait for; with False some of it got in, and it has to come anew, at the
        end of the line. Whatever else: it is out of the way."""

    def give_up(self, error: KafkaError) -> None:
        """It waits no longer."""


class SendingRecord:
    """A new record for a topic of the cluster's."""

    def __init__(self, application: Application) -> None:
        self.record = application.new_record()
        self.topic = application.world.random.choice(list(application.world.options.cluster.partition_counts))
        self._application = application

    def attempt(self, *, first_in_line: bool) -> object:
        partition = self._application.partition_of(self.record, self.topic)
        if partition is None:
            return Refusal.METADATA
        return self._application.append(self.record, self.topic, partition, first_in_line=first_in_line)

    def give_up(self, error: KafkaError) -> None:
        """It was never accepted."""


class Appender:
    """A thread of the application."""

    def __init__(self, application: Application, number: int) -> None:
        workload = application.world.options.workload
        self.number = number
        self.is_finished = False
        self._application = application
        self._world = application.world
        self._left = workload.records
        self._burst_left = 0
        self._sending: Sending | None = None
        self._deadline_ns = 0
        self._waits_for_memory = False
        self._place: Waiter

    def go(self) -> None:
        """The next burst, or the end."""
        random, workload = self._world.random, self._world.options.workload
        if self._left <= 0 or self._application.is_closed or self._world.engine.fatal_error is not None:
            self.is_finished = True
            return
        self._burst_left = random.randrange(1, workload.burst + 1)
        self._send_next()

    def _send_next(self) -> None:
        """One record after another, without a pause."""
        while self._burst_left > 0 and self._left > 0:
            self._burst_left -= 1
            self._left -= 1
            tables = self._world.tables
            self._sending = (tables and tables.draw()) or SendingRecord(self._application)
            self._begin_waiting_time()
            if not self._try():
                return
        self._rest()

    def _begin_waiting_time(self) -> None:
        self._deadline_ns = self._world.schedule.now_ns + self._world.config.max_block_ms * MS

    def _try(self, *, first_in_line: bool = False) -> bool:
        """Whether what is in hand is out of the way: accepted, or given up."""
        assert self._sending is not None
        if self._application.is_closed or self._world.engine.fatal_error is not None:
            self._burst_left = self._left = 0
            self._sending.give_up(self._world.engine.fatal_error or ProducerClosedError("closed"))
            return True
        answer = self._sending.attempt(first_in_line=first_in_line)
        while answer is False:
            self._stop_waiting()
            self._begin_waiting_time()
            answer = self._sending.attempt(first_in_line=False)
        if answer is Refusal.METADATA:
            self._wait_for_metadata(self._sending.topic)
        elif answer is Refusal.MEMORY:
            self._wait_for_memory()
        return not isinstance(answer, Refusal)

    def _wait_for_metadata(self, topic: str) -> None:
        self._world.engine.want_topic(topic)
        self._world.shell.wake()
        self._world.schedule.after(5 * MS, self.try_again)

    def _wait_for_memory(self) -> None:
        if not self._waits_for_memory:
            self._waits_for_memory = True
            self._place = self._world.accumulator.begin_waiting()
            self._application.memory_line.append(self)
            self._world.schedule.at(self._deadline_ns, self.try_again)
            if self._application.memory_line[0] is self:
                self._world.schedule.after(0, self.try_again)

    def try_again(self) -> None:
        """It may be the turn of what is in hand now, or too late for it."""
        if self._sending is None:
            return
        is_over = self._world.schedule.now_ns >= self._deadline_ns
        in_line = self._waits_for_memory
        if in_line and not self._place.may_try():
            is_accepted = False
        else:
            is_accepted = (in_line or not is_over) and self._try(first_in_line=in_line)
            is_over = self._world.schedule.now_ns >= self._deadline_ns
        if is_accepted or is_over:
            if not is_accepted:
                timed_out = BufferExhaustedError if self._waits_for_memory else KafkaTimeoutError
                self._sending.give_up(timed_out("max.block.ms is over"))
            if self._waits_for_memory:
                self._stop_waiting()
            self._go_on()

    def _stop_waiting(self) -> None:
        self._waits_for_memory = False
        self._application.memory_line.remove(self)
        self._place.leave()
        self._application.memory_freed()

    def _go_on(self) -> None:
        self._sending = None
        self._send_next()

    def _rest(self) -> None:
        """Between two bursts."""
        self._sending = None
        random, workload = self._world.random, self._world.options.workload
        if random.random() < workload.purge:
            self._application.purge()
        if random.random() < 0.3:
            self._application.resume()
        if random.random() < workload.flush:
            self._flush()
            return
        pause_ns = int(random.random() * workload.pause_ms * MS)
        self._world.schedule.after(pause_ns, self.go)

    def _flush(self) -> None:
        """Waits until what was accepted is done and called back."""
        accepted = [record for record in self._application.records.values() if not record.is_done]
        tables = self._world.tables.ended() if self._world.tables is not None else []
        flush = self._world.accumulator.begin_flush()
        self._world.trace("flush %d batches", flush.pending_count)

        def over(_: Any) -> None:
            self._world.accumulator.end_flush()
            for record in accepted:
                is_called = record.callback == "none" or record.called_count == 1
                if not record.is_done or not is_called:
                    # raised here it would be lost
                    self._world.violation = Violation(f"a flush is over, and record {record.number} is not")
            for table in tables:
                if table.told_count != 1:
                    self._world.violation = Violation(f"a flush is over, and {table} was not told")
            self._world.schedule.after(0, self.go)

        flush.add_done_callback(over)
