"""ProducerBase: what Producer and AsyncProducer have in common, which is everything but how they wait.

Theory of operation. The native base, RecordSender, has `send`. If a record has to wait, and for all other
calls, the producer uses its Runtime: the engine, the network, the callbacks, and how a caller waits for them.
Tables, transactions and groups are objects over the same Runtime; the subclasses name their methods.

No thread and no event loop refers to the producer itself. So a producer that is dropped without close() is
finalized (`__del__`), warns with a ResourceWarning, and flushes, which takes EXIT_SECONDS at most; so does
one that is still open when the interpreter exits. In a forked child the producer belongs to the parent
process, and its methods raise ForkedProducerError.

After org.apache.kafka.clients.producer.KafkaProducer.
"""

from __future__ import annotations

import itertools
import os
import warnings
import weakref
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from operator import call
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, Unpack, cast

from kbatch._native.batch.delivery import RecordMetadata
from kbatch._native.io.interrupts import at_once
from kbatch._native.io.waker import Waker
from kbatch._native.send.accumulator import Refusal
from kbatch._native.send.send import PendingRecord, RecordSender
from kbatch.config import ProducerConfig
from kbatch.errors import (
    DeliveryError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    PurgedError,
    TransactionAbortedError,
)
from kbatch.formats.configured import serializer_for
from kbatch.logs import ClientLogger
from kbatch.metrics import MetricName
from kbatch.partitioner import partitioner_for
from kbatch.producer.groups import GroupQueries
from kbatch.producer.runtime import Runtime
from kbatch.producer.tables import TableSending
from kbatch.producer.transactions import TransactionCalls
from kbatch.records import INT32_MAX
from kbatch.unpatched import real_threading
from kbatch.waiting.threads import in_one_step

if TYPE_CHECKING:
    from kbatch._native.batch.delivery import Delivery, Flush
    from kbatch._native.send.encoded_batch import PendingBatch
    from kbatch.config.keywords import ProducerKeywords
    from kbatch.core.client.cluster import PartitionMetadata
    from kbatch.core.producer.engine import ProducerEngine
    from kbatch.producer.runtime import Callbacks
    from kbatch.waiting.deadline import Deadline

logger = ClientLogger("kbatch.producer")  # of both

# The time to flush a producer that was dropped, or is still open when the interpreter, or its loop, ends.
EXIT_SECONDS = 10.0

_CLOSED = "the producer was closed before the record was delivered"
_DROPPED = (
    "the producer was dropped without close(), and the record was not delivered in the "
    f"{EXIT_SECONDS:g} s that it then has: close() it, or use a with block"
)

_client_numbers = itertools.count(1)
open_producers: weakref.WeakSet[ProducerBase] = weakref.WeakSet()
# They keep what `__del__` needs: the finalizers of a collected cycle run in any order, those of files too.
_open_networks: set[Any] = set()


class ProducerBase(RecordSender):
    """Base of the producers."""

    _is_released = True  # until there is something to close
    _is_dropped = False  # without close()

    def __init__(self, runtime: Runtime, random: Random) -> None:
        self.config = config = runtime.config
        runtime.push_metrics(config)
        is_javas = config.partitioner_class is None
        key, value = (
            serializer_for("key", config.key_serializer),
            serializer_for("value", config.value_serializer),
        )
        super().__init__(
            runtime.accumulator,
            max_request_size=config.max_request_size,
            key_serializer=key,
            value_serializer=value,
            partitioner=None if is_javas else partitioner_for(config, random),
            ignore_keys=config.partitioner_ignore_keys and is_javas,
        )
        self._configured_serializers = key, value
        self._runtime = runtime
        self._transactions = TransactionCalls(runtime)
        self._groups = GroupQueries(runtime)
        self._releasing = real_threading().RLock()

    @property
    def _tables(self) -> TableSending:
        """Return a new one for each call."""
        return TableSending(self, self._runtime, self._transactions)

    def _opened(self) -> None:
        """Register the producer: from now on there is something to close."""
        self._runtime.is_closed = self._is_released = False
        _open_networks.add(self._runtime.network)
        open_producers.add(self)

    # What the subclasses add

    @abstractmethod
    async def _await_last_callbacks(self, deadline: Deadline) -> None:
        """Wait for the remaining callbacks after the network has ended, and release everything else."""

    @abstractmethod
    def _close_elsewhere(self) -> None:
        """Make a dropped producer send what is left within EXIT_SECONDS. Any thread calls this; it does not
        wait.
        """

    @abstractmethod
    def _close_at_exit(self) -> None:
        """Send what is left within EXIT_SECONDS when the interpreter exits. DeliveryError as in `close`."""

    # Sending

    async def _send_waiting(
        self, record: PendingRecord | PendingBatch, refusal: Refusal | None, may_wait: bool
    ) -> Delivery | None:
        """Send a record that may have to wait; return None instead of waiting if `may_wait` is False."""
        self._transactions.check_sendable()
        if self._runtime.interceptors:  # every record comes here once, refused or not
            self._runtime.interceptors.intercept(record)
        deadline = self._runtime.block_deadline()
        append = partial(self._append_later, record)
        outcome: Delivery | Refusal = refusal if refusal is not None else self._append(record)
        try:
            while isinstance(outcome, Refusal):
                if outcome is Refusal.METADATA:
                    if not await self._runtime.await_partition(
                        record.topic, record.partition, deadline, may_wait
                    ):
                        return None
                    outcome = append()
                elif outcome is Refusal.SERIALIZER:
                    assert isinstance(record, PendingRecord)  # batches are serialized
                    if not await self._await_serializers(record, deadline, may_wait):
                        return None
                    outcome = append()
                elif may_wait:
                    outcome = await self._await_memory_for_record(
                        partial(append, first_in_queue=True), deadline
                    )
                else:
                    return None
        except KafkaError:
            # or the error would count for the next transaction
            self._transactions.check_still_sendable(record.transaction)
            raise
        return outcome

    def _append_later(
        self, record: PendingRecord | PendingBatch, *, first_in_queue: bool = False
    ) -> Delivery | Refusal:
        self._transactions.check_still_sendable(record.transaction)
        return self._append(record, first_in_queue=first_in_queue)

    async def _await_serializers(self, record: PendingRecord, deadline: Deadline, may_wait: bool) -> bool:
        """Return True once a record is serialized, or its serializers wait for nothing; if `may_wait` is
        False, return False instead of waiting. Called by a producer that sets `_key_topics` or
        `_value_topics`.
        """
        raise NotImplementedError

    async def _await_memory_for_record(self, append: Callable[[], Any], deadline: Deadline) -> Any:
        """Wait for memory. Tasks of an AsyncProducer take turns."""
        return await self._runtime.await_memory(append, deadline)

    def _handle_refused(self, record: PendingRecord | PendingBatch, error: BaseException) -> None:
        if self._runtime.is_forked:  # its locks may never be released
            return
        self._runtime.observe("record-error", 1)
        self._transactions.note_refused(error)
        if self._runtime.interceptors:
            named = record.partition
            partition = named if isinstance(named, int) and 0 <= named <= INT32_MAX else -1
            self._runtime.interceptors.on_acknowledgement(RecordMetadata(record.topic, partition), error)

    # Its other calls

    async def _partitions_for(self, topic: str) -> tuple[PartitionMetadata, ...]:
        """Return the partitions of a topic, in order; wait for them up to max.block.ms.

        Raises
        ------
        KafkaError
            KafkaTimeoutError, or why the topic cannot be used.
        """
        self._runtime.check_usable()
        deadline = self._runtime.block_deadline()
        while (metadata := self._runtime.engine.snapshot.topics.get(topic)) is None:
            await self._runtime.await_partition(topic, None, deadline)
        return metadata.partitions

    def metrics(self) -> dict[MetricName, float]:
        """Return every metric, under the names of Kafka's Java producer (docs/metrics.md)."""
        self._runtime.check_not_forked()
        return self._runtime.registry.snapshot(self._runtime.now_ns() // 1_000_000)

    async def _flush(self, timeout: float | None = None) -> None:
        """Send all records without waiting for linger.ms, and wait until they are delivered or failed and
        their callbacks have run.

        Parameters
        ----------
        timeout : float or None
            Seconds; None waits as long as it takes, which delivery.timeout.ms bounds.

        Raises
        ------
        KafkaTimeoutError
            Some records are not delivered yet; their delivery goes on.
        DeliveryError
            Deliveries failed and were never checked: they had no on_delivery, and neither result() nor
            exception() was called.
        KafkaError
            The producer had failed before the call, with this error.
        IllegalStateError
            The call came from a callback, which the flush would wait for.
        """
        self._runtime.check_here()
        if self._runtime.callbacks.in_callback():
            raise IllegalStateError("flush() in a callback would wait for that callback; call it elsewhere")
        fatal_error = None if self._runtime.is_closed else self._runtime.engine.fatal_error
        start_ns = self._runtime.now_ns()
        left = await self._flush_until(self._runtime.deadline(timeout))
        self._runtime.observe("flush-time", self._runtime.now_ns() - start_ns)
        if left:
            raise KafkaTimeoutError(f"flush() timed out after {timeout} s: {left}")
        self._raise_unobserved()
        if fatal_error is not None:
            raise fatal_error.marked()

    async def _purge(self, *, queued: bool = True, in_flight: bool = False) -> None:
        """Fail records with PurgedError instead of delivering them. A call that is interrupted or cancelled
        has done so, or does not.

        Parameters
        ----------
        queued : bool
            Fail records that were never sent.
        in_flight : bool
            Fail records that were sent, too; they may be in the log all the same.
        """
        self._runtime.check_usable()
        if not queued and not in_flight:
            return
        error = PurgedError("purge() failed the record before it was delivered")
        is_wanted = True
        try:
            self._runtime.engine.purge(error, queued=queued, in_flight=in_flight, is_wanted=lambda: is_wanted)
            await self._runtime.await_sender()
        except BaseException:
            is_wanted = False  # done later, it would fail records that are sent after this call
            raise

    async def _resume(self) -> None:
        """Send again after a failed record has stopped others (kbatch.on.delivery.failure).

        A record that fails while this is called stops others all the same.
        """
        self._runtime.check_usable()
        self._runtime.engine.resume()
        await self._runtime.await_sender()

    async def _flush_until(self, deadline: Deadline) -> str:
        """Return what is unfinished at the deadline; the empty string if all is done."""
        flushes: list[Flush] = []
        try:
            flushes.extend(map(call, [self._accumulator.begin_flush]))  # in one native step, for interrupts
            (flush,) = flushes
            if self._accumulator.memory.complete_accepted is not None:  # this is a thread
                flush.wait_for_answers(lambda: deadline.left)
            if not flush.done() and not await self._is_over(flush, deadline):
                return f"{flush.pending_count} batches are not delivered yet"
            return "" if await self._runtime.await_callbacks(deadline) else "callbacks have not run"
        finally:
            try:
                self._end(flushes)
            finally:  # if an interrupt came before it
                self._end(flushes)

    async def _is_over(self, flush: Flush, deadline: Deadline) -> bool:
        """True if the flush is over before the deadline."""
        over = self._runtime.new_event()
        flush.add_done_callback(lambda flush: over.set())
        # closing the producer, which ends the network, finishes the batches too
        return await self._runtime.await_until(over.is_set, deadline, over, needs_network=False)

    def _end(self, flushes: list[Flush]) -> None:
        if flushes:
            in_one_step(flushes.clear, self._accumulator.end_flush)

    def _raise_unobserved(self) -> None:
        """Raise the failures that were never checked, and that no earlier call has raised."""
        counts = {  # counted once: a waiting result() may be about to raise the same
            completion: completion.unobserved_count
            for completion in self._runtime.engine.failures.take()
            if not isinstance(completion.error, TransactionAbortedError)
        }
        unobserved = [completion for completion, count in counts.items() if count]
        if not unobserved:
            return
        kinds = Counter((each.topic, type(each.error).__name__) for each in unobserved)
        for (topic, kind), count in kinds.items():
            logger.error("%d batches to %s failed with %s and were never checked", count, topic, kind)
        first = unobserved[0].error
        assert isinstance(first, KafkaError)
        raise DeliveryError(sum(counts.values()), first)

    # Its end

    async def _close(self, timeout: float | None = None) -> None:
        """Send what is left, and close the producer.

        Parameters
        ----------
        timeout : float or None
            Seconds; None waits as long as it takes, which delivery.timeout.ms bounds. 0 sends nothing more:
            records that are not delivered fail. In a callback the timeout is always 0.

        Raises
        ------
        DeliveryError
            As in `flush`; the producer is closed all the same.
        """
        if self._runtime.is_forked:
            return
        deadline = self._runtime.deadline(0 if self._runtime.callbacks.in_callback() else timeout)
        self._accumulator.accepts_directly = False
        self._runtime.is_closed = True
        if deadline.is_over:
            # first: when the accumulator is closed its batches become ready
            self._runtime.end_network(deadline)
        if not self._is_released:
            self._accumulator.close()
            self._runtime.changed.notify()
            self._runtime.queue.wake_first(self._accumulator)
            if not deadline.is_over:
                await self._transactions.end(deadline)
                await self._flush_until(deadline)
                await self._runtime.end_telemetry(deadline)
        await self._release(deadline)
        self._raise_unobserved()

    def recreate(self) -> Self:
        """Return a new producer with the same configuration. This one is closed without waiting, and failures
        that were never checked are logged.
        """
        self._close_now()
        made: Any = type(self)
        return cast(Self, made(self.config.settings()))

    async def _close_dropped(self) -> None:
        """Send what is left within EXIT_SECONDS after the program has dropped the producer."""
        try:
            await self._close(EXIT_SECONDS)
        except DeliveryError as error:
            logger.error("%r: %s", self, error)

    def _close_now(self) -> None:
        """Close without waiting, and log what `close` would raise."""
        try:
            at_once(self._close, timeout=0)
        except DeliveryError as error:
            logger.error("%r: %s", self, error)

    async def _release(self, deadline: Deadline) -> None:
        runtime = self._runtime
        runtime.end_network(deadline)
        with self._releasing:
            is_first, self._is_released = not self._is_released, True
            if is_first:
                reason = _DROPPED if self._is_dropped else _CLOSED
                runtime.network.when_over(partial(_fail_remaining, runtime.engine, runtime.callbacks, reason))
        try:
            await self._await_last_callbacks(deadline)
        finally:  # a second close() has nothing to end
            if is_first:
                open_producers.discard(self)
                _open_networks.discard(self._runtime.network)
                self._runtime.interceptors.close()

    async def _end_block(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close at the end of a with block."""
        if error is None:
            await self._close()
            return
        try:  # send what was accepted; the error that ends the block is the one that is raised
            await self._close()
        except DeliveryError as failed:
            error.add_note(f"in addition, {failed}")

    def __del__(self) -> None:
        if self._is_released or self._runtime.is_forked:
            return
        warnings.warn(f"{self!r} was dropped without close()", ResourceWarning, source=self, stacklevel=2)
        self._is_dropped = True
        open_producers.add(self)  # the collector of cycles has cleared its weak references
        self._close_elsewhere()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str:
        raise TypeError(
            f"{self!r} cannot be copied or pickled, because its threads and connections cannot; pass its "
            f"settings on and create another there, or call recreate() here"
        )

    def __repr__(self) -> str:
        if "_runtime" not in vars(self):  # its constructor has raised
            return f"<{type(self).__name__}, never opened>"
        state = "forked" if self._runtime.is_forked else "closed" if self._runtime.is_closed else "open"
        return f"<{type(self).__name__} {self.config.client_id}, {state}>"


class LiveProducer(ProducerBase):
    """A producer that programs make, with a network of its own."""

    def __init__(
        self, settings: Mapping[str, object] | None = None, /, **keywords: Unpack[ProducerKeywords]
    ) -> None:
        """Start a producer with this configuration, which its attribute `config` then has.

        Parameters
        ----------
        settings : Mapping[str, object], optional
            Configuration keys with dots, as docs/configuration.md lists them.
        **keywords
            The same keys with underscores.

        Raises
        ------
        ConfigError
            Keys or values are unknown, invalid or contradictory.
        """
        config, random, waker = configured(settings, keywords), Random(), Waker()
        super().__init__(self._new_runtime(config, random, waker), random)
        self._start(waker)

    @abstractmethod
    def _new_runtime(self, config: ProducerConfig, random: Random, waker: Waker) -> Runtime:
        """Return what the calls share, without a network. The waker interrupts the network's waiting."""

    @abstractmethod
    def _start(self, waker: Waker) -> None:
        """Make the network and what runs callbacks, and register the producer."""


def _fail_remaining(engine: ProducerEngine, callbacks: Callbacks, reason: str) -> None:
    """Fail the records that have no outcome when the network is over."""
    engine.fail(ProducerClosedError(reason))
    callbacks.deliver(engine.poll_completed())


def configured(settings: Mapping[str, object] | None, keywords: Mapping[str, object]) -> ProducerConfig:
    """Return the configuration of a new producer."""
    return ProducerConfig(settings, next(_client_numbers), **keywords)


def _disown_all() -> None:
    for producer in list(open_producers):
        producer._runtime.is_forked = producer._accumulator.memory.is_forked = True
        producer._accumulator.accepts_directly = producer._gives_way = False
    open_producers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
