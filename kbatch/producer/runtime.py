"""Runtime: what the calls of a producer share, its engine, network and callbacks, and how they wait.

Theory of operation. `Producer` runs the coroutines of a ClientRuntime on the caller's thread, which blocks
where they wait; `AsyncProducer` awaits them; the simulator runs them in virtual time.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, final

from kbatch._native.send.accumulator import Refusal
from kbatch.core.producer.engine import ProducerEngine
from kbatch.core.producer.transaction_states import TransactionState
from kbatch.errors import (
    BufferExhaustedError,
    ForkedProducerError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
)
from kbatch.interceptors import interceptors_of_producer
from kbatch.network.runtime import ClientRuntime
from kbatch.producer.configured import accumulator_of
from kbatch.records import is_sendable
from kbatch.timeouts import checked_seconds

if TYPE_CHECKING:
    from random import Random

    from kbatch.config import ProducerConfig
    from kbatch.producer.memory_queue import MemoryQueue
    from kbatch.waiting.deadline import Deadline
    from kbatch.waiting.protocols import Waiter


class Callbacks(Protocol):
    """Where callbacks run."""

    def deliver(self, completions: Any) -> None: ...
    def in_callback(self) -> bool: ...


@final
class CallbackBarrier:
    """A completion without records, which calls `reached` after the callbacks of those before it."""

    has_callbacks = True
    record_count = 0

    def __init__(self, reached: Callable[[], object]) -> None:
        self._reached = reached

    def run_callbacks(self, threw: object) -> int:
        self._reached()
        return 0


class Runtime(ClientRuntime):
    """The engine of a producer with its accumulator, metrics, network and callbacks.

    Parameters
    ----------
    config : ProducerConfig
    random : random.Random
        Seeds all random choices.
    queue : MemoryQueue
    wake : callable
        Makes the engine run soon; any thread may call it.
    new_waiter, check_caller, clock_ns
        Parameters of ClientRuntime.
    on_loop : bool
        True if the network runs on an event loop, which leaves compression to other threads.
    engine_keys, accumulator_keys : mapping
        More arguments of ProducerEngine and RecordAccumulator, for the simulator.

    Attributes
    ----------
    callbacks : Callbacks
    """

    engine: ProducerEngine
    callbacks: Callbacks

    def __init__(
        self,
        config: ProducerConfig,
        *,
        random: Random,
        new_waiter: Callable[[], Waiter],
        queue: MemoryQueue,
        wake: Callable[[], object],
        check_caller: weakref.WeakMethod[Callable[[], object]] | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        on_loop: bool = False,
        engine_keys: Mapping[str, Any] = {},
        accumulator_keys: Mapping[str, Any] = {},
    ) -> None:
        super().__init__(config, new_waiter=new_waiter, check_caller=check_caller, clock_ns=clock_ns)
        self.config = config
        self.queue = queue
        self.interceptors = interceptors_of_producer(config)
        self.accumulator = accumulator_of(
            config, random, wake, queue.freed, on_loop=on_loop, **accumulator_keys
        )
        self.engine = ProducerEngine(
            config,
            self.accumulator,
            random=random,
            registry=self.registry,
            now_ns=clock_ns(),
            on_change=partial(_note_change, weakref.ref(self)),
            **engine_keys,
        )

    def accept_directly(self) -> None:
        """Allow `send` to append without a check, if the producer has no interceptors and no transactions."""
        self.accumulator.accepts_directly = not self.interceptors and self.engine.transactions is None

    def block_deadline(self, timeout: float | None = None) -> Deadline:
        """Return the deadline `timeout` seconds from now; None is max.block.ms."""
        if timeout is None:
            return self.deadline(self.config.max_block_ms / 1000)
        return self.deadline(checked_seconds(timeout, remedy="leave it out for max.block.ms"))

    api_deadline = block_deadline

    def closed_error(self) -> KafkaError:
        return ProducerClosedError("the producer is closed; create another, for example with recreate()")

    def forked_error(self) -> KafkaError:
        return ForkedProducerError(
            "the producer belongs to the parent process and has no threads in this one; create another "
            "in the child process"
        )

    # How its callers wait

    async def await_sender(self) -> None:
        """Return after the engine has run all earlier commands; what is sent next comes after them."""
        done = self.new_event()
        self.engine.submit(lambda now_ns: done.set())
        self.network.wake()
        await self.await_until(done.is_set, self.deadline(None), done)

    async def await_callbacks(self, deadline: Deadline) -> bool:
        """Return True after the callbacks of all records done so far; False if the deadline comes first."""
        memory = self.accumulator.memory
        if not memory.callback_bytes:
            return True
        reached = self.new_event()
        answered = CallbackBarrier(reached.set)
        self.engine.mark(answered)
        self.network.wake()
        if not await self.await_until(reached.is_set, deadline, reached) and not self.network.is_alive:
            self.callbacks.deliver([answered])  # the ended engine will not
            await self.await_until(reached.is_set, deadline, reached, needs_network=False)
        return reached.is_set() or not memory.callback_bytes

    async def await_memory(
        self, append: Callable[[], Any], deadline: Deadline, *, is_in_turn: bool = False
    ) -> Any:
        """Return the result of `append()` once there is memory; BufferExhaustedError at the deadline."""
        start_ns = self.now_ns()
        try:
            # a callback goes before all others, which may need the memory that is released when it ends
            goes_first = is_in_turn or self.callbacks.in_callback()
            outcome = await self.queue.wait(self.accumulator, append, deadline, goes_first=goes_first)
        except IllegalStateError:
            self.check_usable()
            raise
        finally:
            self.observe("bufferpool-wait", self.now_ns() - start_ns)
        if outcome is Refusal.MEMORY:
            self.observe("buffer-exhausted", 1)
            memory = self.accumulator.memory
            raise BufferExhaustedError(
                f"no memory for the record in max.block.ms={self.config.max_block_ms}: "
                f"{memory.available} bytes of buffer.memory={memory.total_memory} are free, and "
                f"{memory.queued} other senders wait; brokers accept records more slowly than they are sent"
            )
        return outcome

    async def await_partition(
        self, topic: str, partition: SupportsIndex | None, deadline: Deadline, may_wait: bool = True
    ) -> bool:
        """Return True once the topic is known and has the partition; if `may_wait` is False, return False
        instead of waiting.
        """
        start_ns = self.now_ns()
        want = partial(self._want, topic)
        # a caller who waits sees another attempt to log in
        refused = self.engine.authentication_error if may_wait else None
        try:
            if self._is_known(topic, partition, refused):
                return True
            check_topic(topic)
            if not may_wait:
                want()
                return False
            is_known = partial(self._is_known, topic, partition, refused, deadline)
            if not await self.await_until(is_known, deadline, request=want):
                self.check_login(None)
                raise self._unknown_error(topic, partition)
            return True
        finally:
            self.observe("metadata-wait-time", self.now_ns() - start_ns)

    def _want(self, topic: str) -> None:
        self.engine.want_topic(topic)
        self.network.wake()

    def _is_known(
        self,
        topic: str,
        partition: SupportsIndex | None,
        refused: KafkaError | None,
        wait: Deadline | None = None,
    ) -> bool:
        """True if the topic has the partition. Raise why it cannot be used, unless the error is retriable and
        `wait` is over: then the caller raises KafkaTimeoutError. A login error `refused` is not raised.
        """
        self.check_usable()
        metadata = self.engine.snapshot.topics.get(topic)
        if metadata is not None and len(metadata.partitions) > index(partition or 0):
            return True
        error = self.engine.topic_error(topic)
        if error is not None and not (error.retriable and wait is not None and wait.is_over):
            raise error.marked()  # a copy: other callers raise it too, outside of this transaction
        self.check_login(refused)
        return False

    def _unknown_error(self, topic: str, partition: SupportsIndex | None) -> KafkaTimeoutError:
        metadata = self.engine.snapshot.topics.get(topic)
        waited = f"after max.block.ms={self.config.max_block_ms}"
        if metadata is not None and partition is not None:
            count = len(metadata.partitions)
            text = f"topic {topic} has no partition {partition} {waited}: it has {count}, numbered from 0"
            return KafkaTimeoutError(text)
        reason = self._why_unknown(topic)
        error = KafkaTimeoutError(f"there is no metadata of topic {topic} {waited}: {reason}")
        error.reason = reason
        return error

    def _why_unknown(self, topic: str) -> str:
        failure = self.engine.last_connection_failure
        if self.engine.snapshot.nodes:
            if self.engine.is_answered(topic) or failure is None:
                return "brokers answer, but know no such topic"
            return str(failure)
        text = f"none of {', '.join(self.config.bootstrap_servers)} has sent any"
        return text + (f"; {failure}" if failure else "")


def check_topic(topic: object) -> None:
    """Raise unless a request can have the name, since one that cannot be encoded would end the sender."""
    if not isinstance(topic, str):
        raise TypeError(f"topic must be a str, got {type(topic).__name__}")
    if not is_sendable(topic):
        raise InvalidTopicError(f"topic must have at most 249 ASCII characters, got {topic[:50]!a}")


def _note_change(found: weakref.ref[Runtime]) -> None:
    """Notify callers of a change of the cluster or of the engine's state."""
    runtime = found()
    if runtime is None:
        return
    runtime.changed.notify()
    engine = runtime.engine
    if engine.fatal_error is not None:
        runtime.queue.wake_first(runtime.accumulator)
    elif engine.transactions is None or engine.transactions.state is TransactionState.IN_TRANSACTION:
        return
    runtime.accumulator.accepts_directly = False
