"""AsyncProducer: the producer for programs on an asyncio event loop.

Theory of operation. Everything happens on the thread of one loop, the one on which the producer is first
used: `send` puts a record into the accumulator, LoopNetwork drives the engine between the turns of the
program's own tasks, and LoopDelivery runs callbacks there. Only compression runs on a few other threads.

A `send` that has to wait for nothing does not suspend. If batches are ready it first gives way to the
network; otherwise a task in a tight send loop would send nothing. All that `send` awaits, it awaits before
the record is accepted, and accepting is one step. So a cancelled `send` has accepted nothing, and what was
accepted is delivered even if its task is cancelled.

When the loop shuts down its asynchronous generators, as asyncio.run does at the end, a producer that is still
open warns with a ResourceWarning and flushes, which takes EXIT_SECONDS at most. One that is dropped earlier
flushes in a task; if the end of the loop cancels that, it begins again then.
"""

from __future__ import annotations

import asyncio
import math
import time
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from kbatch._native.batch.delivery import BatchDelivery, Delivery
from kbatch._native.io.interrupts import at_once, thread_ident
from kbatch._native.send.accumulator import Refusal
from kbatch._native.send.send import RecordSender
from kbatch.errors import DeliveryError, PartialSendError
from kbatch.logs import ClientLogger
from kbatch.network.event_loop import LoopNetwork
from kbatch.network.event_loop_callbacks import LoopDelivery
from kbatch.network.sealing import register_sealers
from kbatch.producer.base import EXIT_SECONDS, LiveProducer
from kbatch.producer.coroutines import CoroutineProducer
from kbatch.producer.memory_queue import TaskQueue
from kbatch.producer.runtime import CallbackBarrier, Runtime
from kbatch.producer.serializing import SchemaLoading, SerializerThread
from kbatch.producer.tables import TableSending
from kbatch.waiting.event_loop import TaskWaiter, at_shutdown, complete, running_loop
from kbatch.waiting.methods import awaited, named_for_users

if TYPE_CHECKING:
    from random import Random

    from typing_extensions import Buffer

    from kbatch._native.batch.delivery import DeliveryCallback
    from kbatch._native.codec.record import Header, Record
    from kbatch._native.io.waker import Waker
    from kbatch._native.send.encoded_batch import PendingBatch
    from kbatch._native.send.send import PendingRecord
    from kbatch.config import ProducerConfig
    from kbatch.formats.base import Codec
    from kbatch.formats.callables import Serializer
    from kbatch.waiting.deadline import Deadline

logger = ClientLogger(__name__)

# The fewest and the most records that a task sends in its turn while others wait for theirs. To change tasks
# costs as much as some 30 records. So turns are longer while few wait: all tasks together send ROUND_RECORDS.
TURN_RECORDS, MOST_TURN_RECORDS = 500, 2_000
ROUND_RECORDS = 32_000

# Producers that were dropped, until they are closed, by their networks: the collector of cycles clears weak
# references before it calls __del__.
_dropped: dict[LoopNetwork, AsyncProducer] = {}

_send_batch = RecordSender.send_batch


@named_for_users
class AsyncProducer(LiveProducer, CoroutineProducer):
    """Sends records to Kafka from an asyncio event loop: Producer's methods, awaited. `try_send`, `metrics`
    and `recreate` never wait, and are plain methods.

    It may be created anywhere, and belongs to the loop on which it is first used. Callbacks run on that loop.
    A producer that is still open when its loop shuts down, or the interpreter exits, flushes like a Producer.
    """

    _loop: asyncio.AbstractEventLoop | None = None
    _is_farewell = False  # True if the end of the loop closes it
    _closing: asyncio.Task[None] | None = None  # after it was dropped

    def _new_runtime(self, config: ProducerConfig, random: Random, waker: Waker) -> Runtime:
        self._queue = TaskQueue(TaskWaiter, waker.ring)
        return Runtime(
            config,
            random=random,
            new_waiter=TaskWaiter,
            queue=self._queue,
            wake=waker.ring,
            check_caller=weakref.WeakMethod(self._check_loop),
            on_loop=True,
        )

    def _start(self, waker: Waker) -> None:
        config, runtime = self.config, self._runtime
        entering = partial(setattr, runtime.accumulator, "callback_thread_ident")
        self._delivery = runtime.callbacks = LoopDelivery(config, runtime.registry, entering)
        self._network = runtime.network = LoopNetwork(
            runtime.engine,
            config=config,
            deliver=self._delivery.deliver,
            name=f"kbatch-{config.client_id}",
            metrics=runtime.registry,
            waker=waker,
            after_round=self._queue.look,
        )
        self._network.use_loans(runtime.engine)
        register_sealers(self._network)
        self._gives_way = self._accumulator.alarm.wakes_always = True
        self._schemas = SchemaLoading(f"kbatch-schemas-{config.client_id}")
        self._serializer_thread = SerializerThread(f"kbatch-serializer-{config.client_id}")
        key, value = self._configured_serializers
        self._key_topics = set() if key is not None and key.waits else None
        self._value_topics = set() if value is not None and value.waits else None
        self._turns: deque[asyncio.Future[None]] = deque()  # of tasks that gave way
        self._called_count = 1
        self._turn_records = -1  # the length of the last turn
        self._opened()

    # Sending

    async def send(  # type: ignore[override]
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Sequence[Header] | None = None,
        partition: SupportsIndex | None = None,
        timestamp_ms: SupportsIndex | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Accept a record for sending; await metadata or memory up to max.block.ms if there is none.

        Parameters and errors are those of Producer.send. Await the returned Delivery for the RecordMetadata.
        If `send` is cancelled the record was not accepted.
        """
        sent = self._offer(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return sent if type(sent) is Delivery else await sent

    async def send_many(  # type: ignore[override]
        self, topic: str, records: Iterable[Record | tuple[Any, ...]]
    ) -> list[Delivery]:
        """Accept each record as `send` does; like Producer.send_many. If it is cancelled, the records that it
        had finished were accepted, and are delivered.
        """
        self._check_here()
        deliveries: list[Delivery] = []
        left = iter(records)
        try:
            while (sent := self._send_on(topic, left, deliveries)) is not None:
                deliveries.append(await sent)
        except Exception as error:
            raise PartialSendError(deliveries, len(deliveries), error) from error
        return deliveries

    async def send_batch(  # type: ignore[override]
        self,
        topic: str,
        partition: SupportsIndex,
        batch_bytes: Buffer,
        *,
        on_delivery: DeliveryCallback | None = None,
    ) -> BatchDelivery:
        """Accept a record batch that was encoded elsewhere; like Producer.send_batch."""
        self._check_here()
        sent: Any = _send_batch(self, topic, partition, batch_bytes, on_delivery=on_delivery)
        return sent if type(sent) is BatchDelivery else await sent

    def try_send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Sequence[Header] | None = None,
        partition: SupportsIndex | None = None,
        timestamp_ms: SupportsIndex | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery | None:
        """Accept a record like `send`, but return None instead of waiting; a plain method."""
        self._check_here()
        return super().try_send(
            topic,
            value,
            key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            on_delivery=on_delivery,
        )

    send_table = awaited(TableSending.send_table, "_tables")

    async def _await_serializers(self, record: PendingRecord, deadline: Deadline, may_wait: bool) -> bool:
        topics = self._key_topics, self._value_topics
        values = record.key, record.value
        may_block: Serializer | None = None
        for serializer, known, value in zip(self._configured_serializers, topics, values, strict=True):
            if serializer is None or known is None or value is None:
                continue
            if serializer.codec is None:
                may_block = serializer
            elif may_wait:
                await self._schemas.load(serializer.codec, record.topic, deadline)
                self._note_schema(serializer.codec, record.topic, known)
            elif self._schemas.begin(serializer.codec, record.topic) is not None:
                return False
            else:
                self._note_schema(serializer.codec, record.topic, known)
        if may_block is None:
            return True
        if not may_wait:
            raise TypeError(
                f"try_send() cannot wait for {may_block.key}, which may: give a format, or "
                "kbatch.formats.inline() of a function that never waits; or await send()"
            )
        await self._serializer_thread.run(partial(self._serialize, record), record.topic, deadline)
        return True

    def _note_schema(self, codec: Codec[Any], topic: str, known: set[str]) -> None:
        """Let records go at once as long as the codec knows the schema for a topic."""
        if topic in known:
            return
        known.add(topic)
        seconds = codec.known_seconds(topic)
        if seconds < math.inf:
            asyncio.get_running_loop().call_later(seconds, known.discard, topic)

    async def _send_in_turn(self, record: PendingRecord | PendingBatch, refusal: Refusal | None) -> Any:
        if refusal is None and self._has_to_give_way:
            if self._accumulator.memory.queued and not self._turn_left:
                refusal = Refusal.MEMORY  # its turn is over, and others are queued for memory
            else:
                await self._give_way()
        return await self._send_waiting(record, refusal, True)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Run an async with block in a transaction; like Producer.transaction."""
        await self._transactions.begin_transaction()
        try:
            yield
            await self._transactions.commit_transaction()
        except BaseException as error:
            await self._transactions.abort_for(error)
            raise

    # Its loop

    def _check_here(self) -> None:
        self._runtime.check_here()

    def _check_loop(self) -> None:
        loop = running_loop(self, self._loop)
        if self._loop is None and not self._runtime.is_closed:
            self._bind(loop)

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._accumulator.memory.loop_thread_ident = thread_ident()
        self._loop_is_running = loop.is_running
        self._delivery.bind(loop)
        self._network.start(loop)
        self._runtime.accept_directly()
        self._network.farewell = at_shutdown(partial(_close_with_loop, weakref.ref(self), self._network))

    async def close(self, timeout: float | None = None) -> None:
        """Send what is left, and close the producer; like Producer.close. If its loop is closed already,
        nothing more can be sent. If it is cancelled the producer keeps sending, and can be closed again.
        """
        if self._loop is not None and self._loop.is_closed():
            timeout = 0
        elif not self._is_released and self._loop is not None:
            self._check_here()
        await self._close(timeout)

    async def __aenter__(self) -> Self:
        self._check_here()
        return self

    __aexit__ = CoroutineProducer._end_block

    def recreate(self) -> Self:
        """Return a new producer with the same configuration; like Producer.recreate. While the loop runs it
        must be called there.
        """
        if self._loop is not None and self._loop.is_running() and not self._runtime.is_forked:
            self._check_here()
        return super().recreate()

    # How it shares the loop

    @property
    def _tables(self) -> TableSending:
        return TableSending(
            self, self._runtime, self._transactions, give_way=self._give_way, schemas=self._schemas
        )

    async def _await_memory_for_record(self, append: Callable[[], Any], deadline: Deadline) -> Any:
        """Wait for memory. A task whose turn was cut short continues before all others; one whose turn has
        not begun waits after them.
        """
        left, self._turn_left = self._turn_left, -1
        self._runtime.queue.wake_first(self._accumulator)
        try:
            return await self._runtime.await_memory(
                append, deadline, is_in_turn=0 < left < self._turn_records
            )
        finally:
            self._turn_left = left if left > 0 else self._new_turn(0)

    def _new_turn(self, waiting: int) -> int:
        """Return the length of a turn while so many tasks, or those queued for memory, wait for theirs; -1 is
        no limit.
        """
        waiting = max(waiting, self._accumulator.memory.queued)
        if not waiting:
            return -1
        self._turn_records = min(max(ROUND_RECORDS // waiting, TURN_RECORDS), MOST_TURN_RECORDS)
        return self._turn_records

    async def _give_way(self) -> None:
        left = 0 if self._is_giving_way else self._turn_left
        if not self._is_giving_way:
            self._called_count = 1
        if left:
            # A task in a tight send loop releases the GIL for other threads nowhere else. It takes almost a
            # tenth of a millisecond, so rounds do without it.
            time.sleep(0)
            self._network.run_now()
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        if not self._turns:
            loop.call_soon(self._call_next, loop)
        (self._turns.appendleft if left > 0 else self._turns.append)(turn)
        self._is_giving_way = True
        await turn
        # until it suspends: then `_call_next` runs before any other task
        self._is_giving_way = False
        self._turn_left = left if left > 0 else self._new_turn(len(self._turns) - 1)

    def _call_next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Resume one of the tasks that gave way, in order, in each round of the loop; it runs until it has to
        give way again. Resume more of them while that does not happen: then each sends little.
        """
        while self._turns and self._turns[0].done():
            self._turns.popleft()
        self._is_giving_way = bool(self._turns)
        if not self._turns:
            self._turn_left = -1
            return
        for turn in islice(self._turns, self._called_count):
            complete(turn)
        self._called_count = min(2 * self._called_count, len(self._turns))
        loop.call_soon(self._call_next, loop)

    async def _await_last_callbacks(self, deadline: Deadline) -> None:
        _dropped.pop(self._network, None)
        self._schemas.stop()
        self._serializer_thread.stop()
        farewell, self._network.farewell = self._network.farewell, None
        if farewell is not None and not self._is_farewell:
            at_once(farewell.aclose)
        if self._loop is not None and not self._loop.is_closed() and not deadline.is_over:
            await self._network.ended(deadline)
            last = self._runtime.new_event()
            self._delivery.deliver([CallbackBarrier(last.set)])
            await self._runtime.await_until(last.is_set, deadline, last, needs_network=False)
        self._delivery.report()

    def _close_at_exit(self) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            self._close_now()
        elif loop.is_running():  # on a daemon thread
            closing = asyncio.run_coroutine_threadsafe(self._close_at_end(), loop)
            with suppress(TimeoutError):
                closing.result(EXIT_SECONDS + 1)
        else:
            loop.run_until_complete(self._close_at_end())

    async def _close_at_end(self) -> None:
        await self._close(EXIT_SECONDS)
        if self._closing is not None:
            await asyncio.wait([self._closing])

    def _close_elsewhere(self) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            self._close_now()
        else:
            _dropped[self._network] = self
            loop.call_soon_threadsafe(self._begin_to_close, loop)

    def _begin_to_close(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_released:
            self._closing = loop.create_task(self._close_dropped())


async def _close_with_loop(producer: weakref.ref[AsyncProducer], network: LoopNetwork) -> None:
    """Close a producer that is still open when its loop shuts down."""
    found = producer() or _dropped.get(network)
    if found is None or found._is_released or found._runtime.is_forked:
        return
    if not found._is_dropped:  # which was warned of
        message = (
            f"{found!r} is still open at the end of its loop; close() it. It gets {EXIT_SECONDS} s to flush"
        )
        warnings.warn(message, ResourceWarning, source=found, stacklevel=2)
    found._is_farewell = True
    try:
        await found._close_at_end()
    except DeliveryError as error:
        logger.error("at the end of the loop: %s", error)
