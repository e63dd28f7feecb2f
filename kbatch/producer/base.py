"""ProducerBase: what Producer and AsyncProducer have in common, which is everything but how they wait.

Theory of operation. Methods that wait are coroutines here. Producer runs them on the caller's thread, which
is held up where they wait (`kbatch.waiting.threads.blocking`); AsyncProducer awaits them. What there is to be
waited for is the subclass's: a line for memory, a change of the cluster, events, the network and the
callbacks.

No thread and no event loop refers to the producer itself, so one that is dropped is found (`__del__`), says
so by a ResourceWarning, and ends; so does one that is still open when the interpreter exits. In a forked
child the producer is the parent's: all it does is to say that.

After org.apache.kafka.clients.producer.KafkaProducer.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
import warnings
import weakref
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from operator import call, index
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, cast

from kbatch._native.batch.delivery import RecordMetadata
from kbatch._native.io.interrupts import at_once
from kbatch._native.send.accumulator import Refusal
from kbatch._native.send.sealing import SealPolicy
from kbatch._native.send.send import PendingRecord
from kbatch.config import ProducerConfig
from kbatch.core.producer.engine import Engine
from kbatch.core.producer.transaction_states import State
from kbatch.errors import (
    BufferExhaustedError,
    DeliveryError,
    ForkedProducerError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    PurgedError,
    TransactionAbortedError,
)
from kbatch.interceptors import InterceptorChain
from kbatch.metrics import MetricName, MetricsRegistry
from kbatch.partitioner import partitioner_for
from kbatch.producer.configured import accumulator_of, refuse_what_is_not_there
from kbatch.producer.tables import TableProducer, UnsentRows, check_topic
from kbatch.records import INT32_MAX
from kbatch.serializers import serializer_for
from kbatch.waiting.deadline import Deadline
from kbatch.waiting.protocols import Callbacks, Changing, Event, Line, OwnerOfEngine
from kbatch.waiting.threads import Marker, in_one_step

if TYPE_CHECKING:
    from kbatch._native.batch.delivery import Delivery, Flush
    from kbatch._native.send.encoded_batch import PendingBatch
    from kbatch.core.client.cluster import PartitionMetadata

logger = logging.getLogger("kbatch.producer")  # of both

# What a producer that nobody closed gets for its records when the interpreter, or its loop, ends.
EXIT_SECONDS = 10.0
# Metadata that lack a partition are asked for again so often while somebody waits.
REFRESH_SECONDS = 0.5
# Whoever waits for the sender looks so often whether there still is one.
LOOK_SECONDS = 0.1

_client_numbers = itertools.count(1)
open_producers: weakref.WeakSet[ProducerBase] = weakref.WeakSet()
# What `__del__` needs: of a cycle that is collected, finalizers run in any order, those of files too.
_open_networks: set[Any] = set()


class ProducerBase(TableProducer):
    """Parameters, attributes and errors: as the subclasses say."""

    _delivery: Callbacks
    _network: OwnerOfEngine
    _is_closed = _is_released = True  # until there is something to close
    _is_forked = False

    def __init__(
        self,
        settings: Mapping[str, object] | None,
        keywords: Mapping[str, object],
        *,
        changed: Changing,
        wake: Callable[[], object],
        line: Line,
        on_loop: bool = False,
    ) -> None:
        self.config = config = ProducerConfig(settings, next(_client_numbers), **keywords)
        self._given = None if settings is None else dict(settings), keywords
        refuse_what_is_not_there(config)
        random = Random()
        self._registry = MetricsRegistry(
            config.client_id,
            sample_window_ms=config.metrics_sample_window_ms,
            num_samples=config.metrics_num_samples,
            recording_level=config.metrics_recording_level,
        )
        self._interceptors = InterceptorChain(config.interceptor_classes)
        self._releasing = threading.RLock()
        self._line = line
        self._changed = changed
        policy = SealPolicy.of(config.compression_type, on_loop=on_loop)
        accumulator = accumulator_of(config, random, wake, line.freed, policy)
        is_javas = config.partitioner_class is None
        super().__init__(
            accumulator,
            max_request_size=config.max_request_size,
            key_serializer=serializer_for("key.serializer", config.key_serializer),
            value_serializer=serializer_for("value.serializer", config.value_serializer),
            partitioner=None if is_javas else partitioner_for(config, random),
            ignore_keys=config.partitioner_ignore_keys and is_javas,
        )
        self._accumulator = accumulator
        self._engine = Engine(
            config,
            accumulator,
            random=random,
            registry=self._registry,
            now_ns=time.monotonic_ns(),
            on_change=partial(_note_change, weakref.ref(self), changed),
        )

    def _opened(self) -> None:
        """There is something to close from now on."""
        self._deliver = self._delivery.deliver
        self._is_closed = self._is_released = False
        _open_networks.add(self._network)
        open_producers.add(self)

    @property
    def _may_send_directly(self) -> bool:
        return not self._interceptors and self._engine.transactions is None

    # How it waits

    @abstractmethod
    def _new_event(self) -> Event: ...

    @abstractmethod
    async def _await_last_callbacks(self, deadline: Deadline) -> None:
        """The network has ended: waits for the callbacks that are left, and lets go of the rest."""

    @abstractmethod
    def _close_elsewhere(self) -> None:
        """It was dropped: closes it, from whichever thread, without waiting."""

    @abstractmethod
    def _close_at_exit(self) -> None:
        """The interpreter ends: sends what is left, in EXIT_SECONDS; DeliveryError as `close`."""

    # Sending; `send_table` is TableProducer's, and the rest is RecordSender's

    async def _send_waiting(
        self, record: PendingRecord | PendingBatch, refusal: Refusal | None, may_wait: bool
    ) -> Delivery | None:
        """What `_send_slowly` is for; it waits for nothing where `may_wait` is False."""
        self._check_sendable()
        if self._interceptors:  # whether refused or not: it comes here first, and once
            self._interceptors.intercept(record)
        deadline = Deadline(self.config.max_block_ms / 1000)
        append = partial(self._append_later, record)
        outcome: Delivery | Refusal = refusal if refusal is not None else self._append(record)
        try:
            while isinstance(outcome, Refusal):
                if outcome is Refusal.METADATA:
                    if not await self._await_partition(record.topic, record.partition, deadline, may_wait):
                        return None
                    outcome = append()
                elif may_wait:
                    outcome = await self._await_memory_for_record(
                        partial(append, first_in_line=True), deadline
                    )
                else:
                    return None
        except KafkaError:
            self._check_still_sendable(record.transaction)  # or it would be a failure of the next one
            raise
        return outcome

    def _append_later(
        self, record: PendingRecord | PendingBatch, *, first_in_line: bool = False
    ) -> Delivery | Refusal:
        self._check_still_sendable(record.transaction)
        return self._append(record, first_in_line=first_in_line)

    def _note_failed(self, rows: UnsentRows) -> None:
        self._engine.failures.note(rows)
        self._refuse(rows.error.marked())

    async def _await_memory(
        self, append: Callable[[], Any], deadline: Deadline, *, is_in_turn: bool = False
    ) -> Any:
        start_ns = time.monotonic_ns()
        try:
            # a callback waits before all others, who may need the memory that it gives back when it ends
            goes_first = is_in_turn or self._delivery.in_callback()
            outcome = await self._line.wait(self._accumulator, append, deadline, goes_first=goes_first)
        except IllegalStateError:
            self._check_usable()
            raise
        finally:
            self._record("bufferpool-wait", time.monotonic_ns() - start_ns)
        if outcome is Refusal.MEMORY:
            self._record("buffer-exhausted", 1)
            memory = self._accumulator.memory
            raise BufferExhaustedError(
                f"no memory for the record in max.block.ms={self.config.max_block_ms}: "
                f"{memory.available} bytes of buffer.memory={memory.total_memory} are free, and "
                f"{memory.queued} other senders wait; brokers take records more slowly than they come"
            )
        return outcome

    async def _await_memory_for_record(self, append: Callable[[], Any], deadline: Deadline) -> Any:
        """Tasks of an AsyncProducer have turns."""
        return await self._await_memory(append, deadline)

    async def _await_partition(
        self, topic: str, partition: SupportsIndex | None, deadline: Deadline, may_wait: bool = True
    ) -> bool:
        """Waits for the topic to be known, and to have the partition; False where it must not wait."""
        start_ns = time.monotonic_ns()
        is_known = partial(self._is_known, topic, partition)
        try:
            while not is_known():
                check_topic(topic)
                self._engine.want_topic(topic)
                self._network.wake()
                if not may_wait:
                    return False
                if deadline.is_over:
                    raise KafkaTimeoutError(self._why_unknown(topic, partition))
                step = REFRESH_SECONDS if deadline.left is None else min(deadline.left, REFRESH_SECONDS)
                is_known = partial(self._is_known, topic, partition, deadline)
                await self._changed.wait_until(is_known, Deadline(step))
        finally:
            self._record("metadata-wait-time", time.monotonic_ns() - start_ns)
        return True

    def _is_known(self, topic: str, partition: SupportsIndex | None, wait: Deadline | None = None) -> bool:
        """Who waited till brokers had denied the topic for too long is out of time: others get the error."""
        self._check_usable()
        metadata = self._engine.snapshot.topics.get(topic)
        if metadata is not None and len(metadata.partitions) > index(partition or 0):
            return True
        error = self._engine.topic_error(topic) or self._engine.authentication_error
        if error is not None and not (error.retriable and wait is not None and wait.is_over):
            raise error.marked()  # others get it too, and in no transaction
        return False

    def _why_unknown(self, topic: str, partition: SupportsIndex | None) -> str:
        metadata = self._engine.snapshot.topics.get(topic)
        waited = f"after max.block.ms={self.config.max_block_ms}"
        if metadata is not None and partition is not None:
            count = len(metadata.partitions)
            return f"topic {topic} has no partition {partition} {waited}: it has {count}, numbered from 0"
        if self._engine.snapshot.nodes:
            return f"there is no metadata of topic {topic} {waited}: brokers answer, but know no such topic"
        failure = self._engine.last_connection_failure
        servers = ", ".join(self.config.bootstrap_servers)
        text = f"there is no metadata of topic {topic} {waited}: none of {servers} has said which partitions"
        return f"{text} it has" + (f"; {failure}" if failure else "")

    def _handle_refused(self, record: PendingRecord | PendingBatch, error: BaseException) -> None:
        if self._is_forked:  # whose locks nobody may ever release
            return
        self._record("record-error", 1)
        self._note_refused(error)
        if self._interceptors:
            asked = record.partition
            partition = asked if isinstance(asked, int) and 0 <= asked <= INT32_MAX else -1
            self._interceptors.on_acknowledgement(RecordMetadata(record.topic, partition), error)

    # Of transactions

    @abstractmethod
    def _check_transaction(self) -> None: ...

    @abstractmethod
    def _check_same_transaction(self, number: int) -> None: ...

    @abstractmethod
    def _note_refused(self, error: BaseException) -> None: ...

    @abstractmethod
    def _refuse(self, error: KafkaError) -> None: ...

    @abstractmethod
    async def _end_transaction(self, deadline: Deadline) -> None: ...

    # What is asked of it

    async def _partitions_for(self, topic: str) -> tuple[PartitionMetadata, ...]:
        """The partitions of a topic, in order; waits for them up to max.block.ms.

        Raises
        ------
        KafkaError
            KafkaTimeoutError, or why there is no such topic for us.
        """
        self._check_usable()
        deadline = Deadline(self.config.max_block_ms / 1000)
        while (metadata := self._engine.snapshot.topics.get(topic)) is None:
            await self._await_partition(topic, None, deadline)
        return metadata.partitions

    def metrics(self) -> dict[MetricName, float]:
        """Every metric, under the names of Kafka's Java producer (docs/metrics.md)."""
        self._check_not_forked()
        return self._registry.snapshot(time.monotonic_ns() // 1_000_000)

    async def _flush(self, timeout: float | None = None) -> None:
        """Has everything sent at once, linger.ms or not, and waits until all of it is known to be delivered
        or failed, and its callbacks have run.

        Parameters
        ----------
        timeout : float or None
            Seconds; None is as long as it takes, which delivery.timeout.ms bounds.

        Raises
        ------
        KafkaTimeoutError
            Some records are still on their way.
        DeliveryError
            Records failed, of which nobody was told: they had no on_delivery, and nobody has asked.
        KafkaError
            Why nothing can be sent any more, where that was so before the call.
        IllegalStateError
            In a callback, which the flush would wait for.
        """
        self._check_here()
        if self._delivery.in_callback():
            raise IllegalStateError("flush() in a callback would wait for that callback; call it elsewhere")
        fatal_error = None if self._is_closed else self._engine.fatal_error
        start_ns = time.monotonic_ns()
        left = await self._flush_until(Deadline(timeout))
        self._record("flush-time", time.monotonic_ns() - start_ns)
        if left:
            raise KafkaTimeoutError(f"after {timeout} s {left}")
        self._raise_unobserved()
        if fatal_error is not None:
            raise fatal_error.marked()

    async def _purge(self, *, queued: bool = True, in_flight: bool = False) -> None:
        """Gives records up: they fail with PurgedError.

        Parameters
        ----------
        queued : bool
            Those that were never sent.
        in_flight : bool
            Those that were, too; they may be in the log all the same.
        """
        self._check_usable()
        if queued or in_flight:
            error = PurgedError("purge() gave the record up before it was delivered")
            self._engine.purge(error, queued=queued, in_flight=in_flight)
            await self._await_sender()

    async def _resume(self) -> None:
        """Goes on after a failed record has stopped others (kbatch.on.delivery.failure)."""
        self._check_usable()
        self._engine.resume()
        await self._await_sender()

    async def _flush_until(self, deadline: Deadline) -> str:
        """What is still to be done when the time is over; nothing where all is."""
        flushes: list[Flush] = []
        try:
            flushes.extend(map(call, [self._accumulator.begin_flush]))  # which no interrupt can come between
            (flush,) = flushes
            self._network.wake()
            done = self._new_event()
            flush.add_done_callback(lambda flush: done.set())
            if not await done.wait(deadline):
                return f"{flush.pending_count} batches are still on their way"
            return "" if await self._await_callbacks(deadline) else "callbacks are still to run"
        finally:
            try:
                self._end(flushes)
            finally:  # in case that an interrupt came before it
                self._end(flushes)

    def _end(self, flushes: list[Flush]) -> None:
        if flushes:
            in_one_step(flushes.clear, self._accumulator.end_flush)

    async def _await_callbacks(self, deadline: Deadline) -> bool:
        """Waits for those of what had been answered before, and is no batch of a flush any more."""
        memory = self._accumulator.memory
        if not memory.callback_bytes:
            return True
        reached = self._new_event()
        answered = Marker(reached.set)
        self._engine.mark(answered)
        self._network.wake()
        if not await self._wait_for(reached, deadline) and not self._network.is_alive:
            self._delivery.deliver([answered])  # the sender has no more to tell
            await reached.wait(deadline)
        return reached.is_set() or not memory.callback_bytes

    async def _await_sender(self) -> None:
        """Returns when the sender's thread has done what it was told: what is sent next comes behind that."""
        done = self._new_event()
        self._engine.submit(lambda now_ns: done.set())
        self._network.wake()
        await self._wait_for(done, Deadline(None))

    async def _wait_for(self, event: Event, deadline: Deadline) -> bool:
        """Whether the sender's thread has set it, before the time was over or the thread had ended."""
        while self._network.is_alive and not deadline.is_over:
            left = deadline.left
            if await event.wait(Deadline(LOOK_SECONDS if left is None else min(left, LOOK_SECONDS))):
                return True
        return event.is_set()

    def _raise_unobserved(self) -> None:
        """The failures since the last time that nobody was told of."""
        unobserved = [
            completion
            for completion in self._engine.failures.take()
            if not isinstance(completion.error, TransactionAbortedError)
        ]
        if not unobserved:
            return
        kinds = Counter((each.topic, type(each.error).__name__) for each in unobserved)
        for (topic, kind), count in kinds.items():
            logger.error("%d batches to %s failed with %s and were never checked", count, topic, kind)
        first = unobserved[0].error
        assert isinstance(first, KafkaError)
        raise DeliveryError(sum(each.unobserved_count for each in unobserved), first)

    def _record(self, sensor: str, value: float) -> None:
        self._registry.record(sensor, value, time.monotonic_ns() // 1_000_000)

    # Its end

    async def _close(self, timeout: float | None = None) -> None:
        """Sends what is left, and ends.

        Parameters
        ----------
        timeout : float or None
            Seconds; None is as long as it takes, which delivery.timeout.ms bounds. 0, as always in a
            callback, sends nothing more: what is not delivered fails.

        Raises
        ------
        DeliveryError
            As `flush`; the producer is closed all the same.
        """
        if self._is_forked:
            return
        deadline = Deadline(0 if self._delivery.in_callback() else timeout)
        self.sends_directly = False
        self._is_closed = True
        if deadline.is_over:
            self._network.stop()  # first: what the accumulator holds is ready to go once it is closed
        if not self._is_released:
            self._accumulator.close()
            self._changed.notify()
            self._line.wake_first(self._accumulator)
            if not deadline.is_over:
                await self._end_transaction(deadline)
                await self._flush_until(deadline)
        await self._release(deadline)
        self._raise_unobserved()

    def recreate(self) -> Self:
        """A new producer of the same configuration; this one is closed without waiting for anything, and
        failures that nobody was told of are logged.
        """
        self._close_now()
        settings, keywords = self._given
        made: Any = type(self)
        return cast(Self, made(settings, **keywords))

    def _close_now(self) -> None:
        """Where nobody is there to be told of failures."""
        try:
            at_once(self._close, timeout=0)
        except DeliveryError as error:
            logger.error("%r: %s", self, error)

    async def _release(self, deadline: Deadline) -> None:
        self._network.stop()
        with self._releasing:
            is_first, self._is_released = not self._is_released, True
            if is_first:
                error = ProducerClosedError("the producer was closed before the record was delivered")
                self._engine.fail(error)
                self._delivery.deliver(self._engine.poll_completed())
        try:
            await self._await_last_callbacks(deadline)
        finally:  # whoever closes it again has nothing to end any more
            if is_first:
                open_producers.discard(self)
                _open_networks.discard(self._network)
                self._interceptors.close()

    async def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The end of a with block."""
        if error is None:
            await self._close()
            return
        try:  # what was accepted is sent, but the error that ends the block is the one to be seen
            await self._close()
        except DeliveryError as failed:
            error.add_note(f"besides, {failed}")

    def __del__(self) -> None:
        if self._is_released or self._is_forked:
            return
        warnings.warn(f"{self!r} was dropped without close()", ResourceWarning, source=self, stacklevel=2)
        self._close_elsewhere()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str:
        raise TypeError(
            f"{self!r} cannot be copied or pickled, as its threads and connections cannot: pass its settings "
            f"on, and make another there (or recreate() here)"
        )

    def __repr__(self) -> str:
        state = "forked" if self._is_forked else "closed" if self._is_closed else "open"
        return f"<{type(self).__name__} {self.config.client_id}, {state}>"

    def _check_sendable(self) -> None:
        self._check_usable()
        self._check_transaction()

    def _check_still_sendable(self, transaction: int) -> None:  # behind a wait
        self._check_usable()
        self._check_same_transaction(transaction)

    def _check_usable(self) -> None:
        self._check_here()
        if self._is_closed:
            raise ProducerClosedError("the producer is closed, and sends no more: make another (recreate())")
        if (error := self._engine.fatal_error) is not None:
            raise error.marked()  # each raise with a traceback of its own

    def _check_here(self) -> None:
        """Whether it can be used from here."""
        self._check_not_forked()

    def _check_not_forked(self) -> None:
        if self._is_forked:
            raise ForkedProducerError(
                "the producer belongs to the parent process, and has no threads in this one: make one behind "
                "the fork"
            )


def _note_change(producer: weakref.ref[ProducerBase], changed: Changing) -> None:
    """The cluster is another than before, or the engine has failed."""
    changed.notify()
    found = producer()
    if found is None:
        return
    engine = found._engine
    if engine.fatal_error is not None:
        found._line.wake_first(found._accumulator)
    elif engine.transactions is None or engine.transactions.state is State.IN_TRANSACTION:
        return
    found.sends_directly = False


def note_callback_thread(producer: weakref.ref[ProducerBase], ident: int) -> None:
    """Callbacks run on that thread from now on; 0: on none."""
    found = producer()
    if found is not None:
        found.callback_thread_ident = ident


def _disown_all() -> None:
    for producer in list(open_producers):
        producer._is_forked = producer._accumulator.memory.is_forked = True
        producer.sends_directly = producer.gives_way = False
    open_producers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
