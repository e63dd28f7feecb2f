"""ProducerBase: what Producer and AsyncProducer have in common, which is everything but how they wait.

Theory of operation. The native base, RecordSender, has `send`. What a record has to wait for, and all other
calls, go by the Runtime: the engine, the network and the callbacks, and how a caller waits for them. Tables,
transactions and groups are objects over the same Runtime, whose methods the subclasses give their names.

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
import warnings
import weakref
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from operator import call
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, cast

from kbatch._native.batch.delivery import RecordMetadata
from kbatch._native.io.interrupts import at_once
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
from kbatch.metrics import MetricName
from kbatch.partitioner import partitioner_for
from kbatch.producer.configured import refuse_what_is_not_there
from kbatch.producer.groups import GroupQueries
from kbatch.producer.runtime import Runtime
from kbatch.producer.tables import TableSending
from kbatch.producer.transactions import TransactionCalls
from kbatch.records import INT32_MAX
from kbatch.serializers import serializer_for
from kbatch.waiting.threads import in_one_step

if TYPE_CHECKING:
    from kbatch._native.batch.delivery import Delivery, Flush
    from kbatch._native.send.encoded_batch import PendingBatch
    from kbatch.core.client.cluster import PartitionMetadata
    from kbatch.waiting.deadline import Deadline

logger = logging.getLogger("kbatch.producer")  # of both

# What a producer that nobody closed gets for its records when the interpreter, or its loop, ends.
EXIT_SECONDS = 10.0

_client_numbers = itertools.count(1)
open_producers: weakref.WeakSet[ProducerBase] = weakref.WeakSet()
# What `__del__` needs: of a cycle that is collected, finalizers run in any order, those of files too.
_open_networks: set[Any] = set()


class ProducerBase(RecordSender):
    """Parameters, attributes and errors: as the subclasses say.

    `given` is what `configured` took, for `recreate`.
    """

    _is_released = True  # until there is something to close

    def __init__(self, runtime: Runtime, random: Random, given: tuple[Any, ...] = ()) -> None:
        self.config = config = runtime.config
        is_javas = config.partitioner_class is None
        super().__init__(
            runtime.accumulator,
            max_request_size=config.max_request_size,
            key_serializer=serializer_for("key.serializer", config.key_serializer),
            value_serializer=serializer_for("value.serializer", config.value_serializer),
            partitioner=None if is_javas else partitioner_for(config, random),
            ignore_keys=config.partitioner_ignore_keys and is_javas,
        )
        self._runtime = runtime
        self._transactions = TransactionCalls(runtime)
        self._groups = GroupQueries(runtime)
        self._given = given
        self._releasing = threading.RLock()

    @property
    def _tables(self) -> TableSending:
        """For one call."""
        return TableSending(self, self._runtime, self._transactions)

    def _opened(self) -> None:
        """There is something to close from now on."""
        self._runtime.is_closed = self._is_released = False
        _open_networks.add(self._runtime.network)
        open_producers.add(self)

    # What the subclasses add

    @abstractmethod
    async def _await_last_callbacks(self, deadline: Deadline) -> None:
        """The network has ended: waits for the callbacks that are left, and lets go of the rest."""

    @abstractmethod
    def _close_elsewhere(self) -> None:
        """It was dropped: closes it, from whichever thread, without waiting."""

    @abstractmethod
    def _close_at_exit(self) -> None:
        """The interpreter ends: sends what is left, in EXIT_SECONDS; DeliveryError as `close`."""

    # Sending

    async def _send_waiting(
        self, record: PendingRecord | PendingBatch, refusal: Refusal | None, may_wait: bool
    ) -> Delivery | None:
        """What `_send_slowly` is for; it waits for nothing where `may_wait` is False."""
        self._transactions.check_sendable()
        if self._runtime.interceptors:  # whether refused or not: it comes here first, and once
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
                elif may_wait:
                    outcome = await self._await_memory_for_record(
                        partial(append, first_in_line=True), deadline
                    )
                else:
                    return None
        except KafkaError:
            # or it would be a failure of the next one
            self._transactions.check_still_sendable(record.transaction)
            raise
        return outcome

    def _append_later(
        self, record: PendingRecord | PendingBatch, *, first_in_line: bool = False
    ) -> Delivery | Refusal:
        self._transactions.check_still_sendable(record.transaction)
        return self._append(record, first_in_line=first_in_line)

    async def _await_memory_for_record(self, append: Callable[[], Any], deadline: Deadline) -> Any:
        """Tasks of an AsyncProducer have turns."""
        return await self._runtime.await_memory(append, deadline)

    def _handle_refused(self, record: PendingRecord | PendingBatch, error: BaseException) -> None:
        if self._runtime.is_forked:  # whose locks nobody may ever release
            return
        self._runtime.observe("record-error", 1)
        self._transactions.note_refused(error)
        if self._runtime.interceptors:
            asked = record.partition
            partition = asked if isinstance(asked, int) and 0 <= asked <= INT32_MAX else -1
            self._runtime.interceptors.on_acknowledgement(RecordMetadata(record.topic, partition), error)

    # What is asked of it

    async def _partitions_for(self, topic: str) -> tuple[PartitionMetadata, ...]:
        """The partitions of a topic, in order; waits for them up to max.block.ms.

        Raises
        ------
        KafkaError
            KafkaTimeoutError, or why there is no such topic for us.
        """
        self._runtime.check_usable()
        deadline = self._runtime.block_deadline()
        while (metadata := self._runtime.engine.snapshot.topics.get(topic)) is None:
            await self._runtime.await_partition(topic, None, deadline)
        return metadata.partitions

    def metrics(self) -> dict[MetricName, float]:
        """Every metric, under the names of Kafka's Java producer (docs/metrics.md)."""
        self._runtime.check_not_forked()
        return self._runtime.registry.snapshot(self._runtime.now_ns() // 1_000_000)

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
        self._runtime.check_here()
        if self._runtime.callbacks.in_callback():
            raise IllegalStateError("flush() in a callback would wait for that callback; call it elsewhere")
        fatal_error = None if self._runtime.is_closed else self._runtime.engine.fatal_error
        start_ns = self._runtime.now_ns()
        left = await self._flush_until(self._runtime.deadline(timeout))
        self._runtime.observe("flush-time", self._runtime.now_ns() - start_ns)
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
        self._runtime.check_usable()
        if queued or in_flight:
            error = PurgedError("purge() gave the record up before it was delivered")
            self._runtime.engine.purge(error, queued=queued, in_flight=in_flight)
            await self._runtime.await_sender()

    async def _resume(self) -> None:
        """Goes on after a failed record has stopped others (kbatch.on.delivery.failure)."""
        self._runtime.check_usable()
        self._runtime.engine.resume()
        await self._runtime.await_sender()

    async def _flush_until(self, deadline: Deadline) -> str:
        """What is still to be done when the time is over; nothing where all is."""
        flushes: list[Flush] = []
        try:
            flushes.extend(map(call, [self.accumulator.begin_flush]))  # which no interrupt can come between
            (flush,) = flushes
            self._runtime.network.wake()
            done = self._runtime.new_event()
            flush.add_done_callback(lambda flush: done.set())
            if not await done.wait(deadline):
                return f"{flush.pending_count} batches are still on their way"
            return "" if await self._runtime.await_callbacks(deadline) else "callbacks are still to run"
        finally:
            try:
                self._end(flushes)
            finally:  # in case that an interrupt came before it
                self._end(flushes)

    def _end(self, flushes: list[Flush]) -> None:
        if flushes:
            in_one_step(flushes.clear, self.accumulator.end_flush)

    def _raise_unobserved(self) -> None:
        """The failures since the last time that nobody was told of."""
        unobserved = [
            completion
            for completion in self._runtime.engine.failures.take()
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
        if self._runtime.is_forked:
            return
        deadline = self._runtime.deadline(0 if self._runtime.callbacks.in_callback() else timeout)
        self.accumulator.accepts_directly = False
        self._runtime.is_closed = True
        if deadline.is_over:
            self._runtime.network.stop()  # first: what the accumulator holds is ready to go once it is closed
        if not self._is_released:
            self.accumulator.close()
            self._runtime.changed.notify()
            self._runtime.queue.wake_first(self.accumulator)
            if not deadline.is_over:
                await self._transactions.end(deadline)
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
        self._runtime.network.stop()
        with self._releasing:
            is_first, self._is_released = not self._is_released, True
            if is_first:
                error = ProducerClosedError("the producer was closed before the record was delivered")
                self._runtime.engine.fail(error)
                self._runtime.callbacks.deliver(self._runtime.engine.poll_completed())
        try:
            await self._await_last_callbacks(deadline)
        finally:  # whoever closes it again has nothing to end any more
            if is_first:
                open_producers.discard(self)
                _open_networks.discard(self._runtime.network)
                self._runtime.interceptors.close()

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
        if self._is_released or self._runtime.is_forked:
            return
        warnings.warn(f"{self!r} was dropped without close()", ResourceWarning, source=self, stacklevel=2)
        self._close_elsewhere()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str:
        raise TypeError(
            f"{self!r} cannot be copied or pickled, as its threads and connections cannot: pass its settings "
            f"on, and make another there (or recreate() here)"
        )

    def __repr__(self) -> str:
        state = "forked" if self._runtime.is_forked else "closed" if self._runtime.is_closed else "open"
        return f"<{type(self).__name__} {self.config.client_id}, {state}>"


def configured(
    settings: Mapping[str, object] | None, keywords: Mapping[str, object]
) -> tuple[ProducerConfig, tuple[Any, ...]]:
    """Return the configuration of another producer, and what it was made of."""
    config = ProducerConfig(settings, next(_client_numbers), **keywords)
    refuse_what_is_not_there(config)
    return config, (None if settings is None else dict(settings), keywords)


def _disown_all() -> None:
    for producer in list(open_producers):
        producer._runtime.is_forked = producer.accumulator.memory.is_forked = True
        producer.accumulator.accepts_directly = producer.gives_way = False
    open_producers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
