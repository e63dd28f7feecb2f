"""TransactionMethods: what a producer with a transactional.id can do besides; a part of Producer.

Theory of operation. Each method has the engine do something (`Call`) and waits for it. A call that times out,
or whose wait is cancelled or interrupted, goes on: the same method waits for it again, and the others refuse
until somebody was told what came of it, since a commit of which nobody knows must be followed neither by an
abort nor by another transaction. So a method forgets its call in its last line, behind all that it awaits.

Whether `send` may go directly is this side's business: from begin_transaction() until the transaction is to
be ended, or can only be aborted.

After org.apache.kafka.clients.producer.KafkaProducer and its TransactionalRequestResult.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch._native.send.accumulator import TRANSACTION_ENDED
from kbatch.core.client.calls import Call
from kbatch.core.producer.transaction_states import State
from kbatch.errors import IllegalStateError, KafkaError, KafkaTimeoutError, SerializationError
from kbatch.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, checked_partition
from kbatch.waiting.deadline import Deadline

if TYPE_CHECKING:
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch.config import ProducerConfig
    from kbatch.core.producer.engine import Engine
    from kbatch.core.producer.transactions import Transactions
    from kbatch.interceptors import InterceptorChain
    from kbatch.waiting.protocols import Changing

logger = logging.getLogger(__name__)

# Whoever waits looks so often whether the brokers accept us at all.
LOOK_SECONDS = 0.5


class TransactionMethods:
    """Methods of a producer that has a transactional.id; they raise ConfigError without one.

    Their `timeout` is seconds; None is max.block.ms. They raise

    - KafkaTimeoutError: it is not known yet what came of the call; make the same call again;
    - an error that is `abortable`: the transaction cannot be committed; call abort_transaction();
    - an error that is `fatal`: the producer can only be closed, and made anew (recreate());
    - IllegalStateError: a call that is not next, in a callback too; nothing has changed.
    """

    config: ProducerConfig
    sends_directly: bool
    _changed: Changing
    _delivery: Any
    _engine: Engine
    _interceptors: InterceptorChain
    _network: Any
    # of which nobody was told yet what came of it: that is asked by making it again
    _unfinished: Call | None = None
    _is_in_transaction = False

    if TYPE_CHECKING:

        @property
        def accumulator(self) -> RecordAccumulator: ...
        def _check_usable(self) -> None: ...
        def _record(self, sensor: str, value: float) -> None: ...
        async def _await_callbacks(self, deadline: Deadline) -> bool: ...

    async def _init_transactions(self, timeout: float | None = None) -> None:
        """Begins the work of a transactional producer, once: waits for transactions that an earlier producer
        of the same transactional.id has left, aborting what is open, and fences that producer.
        """
        await self._run_call("init", self._transactions.initialize, timeout)
        self._unfinished = None

    async def _begin_transaction(self) -> None:
        """From now on records are part of a transaction. It waits for nothing, but for a new epoch after an
        upgrade of the cluster.
        """
        await self._run_call("begin", self._transactions.begin, None)
        self._is_in_transaction = True
        self.accumulator.transaction_count += 1
        self.sends_directly = not self._interceptors
        if self._transactions.state is not State.IN_TRANSACTION:  # it has failed meanwhile
            self.sends_directly = False
        self._unfinished = None

    async def _commit_transaction(self, timeout: float | None = None) -> None:
        """Sends what is left, and commits: consumers with isolation.level=read_committed see all of the
        transaction's records, and its offsets are committed. When it returns the callbacks have run, or there
        was no time left for them: then they run later.
        """
        await self._end_by("commit", self._transactions.commit, timeout)
        self._unfinished = None

    async def _abort_transaction(self, timeout: float | None = None) -> None:
        """Ends the transaction, or one that failed, as if it had not been: what was not sent fails with
        TransactionAbortedError, what was sent no consumer with isolation.level=read_committed sees.
        """
        await self._end_by("abort", self._transactions.abort, timeout)
        self._engine.failures.take()  # of which nobody need be told any more
        self._unfinished = None

    async def _send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata | str | bytes,
    ) -> None:
        """Makes the offsets of a consumer part of the transaction: they are committed with it.

        Parameters
        ----------
        offsets : mapping of TopicPartition to OffsetAndMetadata
            Of the next records to be read.
        group_metadata : ConsumerGroupMetadata, bytes or str
            Of the consumer, whose membership is then checked (KIP-447): what consumer_group_metadata() of
            confluent-kafka's consumer gives will do. Or the group's id alone.
        """
        checked, group = _checked_offsets(offsets), _checked_group(group_metadata)
        await self._run_call(
            "send_offsets_to", partial(self._transactions.send_offsets, checked, group), None
        )

    # Calls

    @property
    def _transactions(self) -> Transactions:
        transactions = self._engine.transactions
        if transactions is None:
            raise IllegalStateError("transactions need a transactional.id, which this producer has not")
        return transactions

    async def _end_by(self, verb: str, command: Callable[[Call, int], None], timeout: float | None) -> None:
        if self._delivery.in_callback():
            raise IllegalStateError(f"{verb}_transaction() in a callback would wait for that callback")
        Deadline(timeout)  # what is no timeout changes nothing
        self.sends_directly = self._is_in_transaction = False
        self.accumulator.transaction_count += 1  # no record of it is accepted from now on
        await self._await_callbacks(await self._run_call(verb, command, timeout))

    async def _run_call(
        self, verb: str, command: Callable[[Call, int], None], timeout: float | None
    ) -> Deadline:
        """Has a command done, or waits for the one of which nobody was told; the caller forgets it then."""
        name = f"{verb}_transactions" if verb == "init" else f"{verb}_transaction"
        call = self._unfinished
        if call is not None and call.name != name:
            raise IllegalStateError(
                f"{name}(): {call.name}() has an unknown outcome, because it timed out or was "
                f"cancelled; call it again"
            )
        if call is None or not call.is_done:
            self._check_usable()
        seconds = self.config.max_block_ms / 1000 if timeout is None else timeout
        deadline = Deadline(seconds)
        start_ns = time.monotonic_ns()
        call = call or Call(name)
        if verb != "send_offsets_to":  # which commit waits for
            self._unfinished = call
        self._engine.call(call, command)  # again too: an interrupt may have come before it
        is_done = await self._await_call(call, deadline)
        sensor = "send-offsets" if verb == "send_offsets_to" else verb
        self._record(f"txn-{sensor}-time", time.monotonic_ns() - start_ns)
        if not is_done and self._engine.authentication_error is not None:
            raise self._engine.authentication_error
        if not is_done:
            raise KafkaTimeoutError(
                f"{name}() was not done in {seconds} s, and goes on: call it again to know what came of it"
            )
        if call.error is not None:
            self._unfinished = None
            raise call.error
        return deadline

    async def _await_call(self, call: Call, deadline: Deadline) -> bool:
        engine = self._engine
        self._network.wake()
        while not call.is_done and engine.fatal_error is None and not deadline.is_over:
            if engine.authentication_error is not None:
                break
            step = Deadline(LOOK_SECONDS if deadline.left is None else min(deadline.left, LOOK_SECONDS))
            await self._changed.wait_until(lambda: call.is_done or engine.fatal_error is not None, step)
        if not call.is_done and engine.fatal_error is not None:
            call.finish(engine.fatal_error)
        return call.is_done

    async def _abort_for(self, error: BaseException) -> None:
        """After an exception in a with block."""
        is_open = self._unfinished is None and self._transactions.has_ongoing
        if not is_open or self._engine.fatal_error is not None:
            return
        try:
            await self._abort_transaction()
        except KafkaError as failed:
            error.add_note(f"besides, the transaction could not be aborted: {failed}")

    # send()

    def _check_transaction(self) -> None:
        """send() needs an open transaction, if the producer is transactional."""
        transactions = self._engine.transactions
        if transactions is None:
            return
        state = transactions.state
        if state is State.ABORTABLE_ERROR:
            raise transactions.why_abortable()
        if not self._is_in_transaction or state is not State.IN_TRANSACTION:
            raise IllegalStateError(
                "send() of a producer with a transactional.id needs an open transaction: begin_transaction() "
                "comes first, and before it, once, init_transactions()"
            )

    def _check_same_transaction(self, number: int) -> None:
        """What waited in transaction `number` has no part in another."""
        self._check_transaction()
        if number != self.accumulator.transaction_count:
            raise IllegalStateError(TRANSACTION_ENDED)

    def _note_refused(self, error: BaseException) -> None:
        """send() raises: unless the record itself is at fault, the transaction lacks something."""
        if isinstance(error, KafkaError) and not isinstance(error, IllegalStateError | SerializationError):
            self._refuse(error)

    def _refuse(self, error: KafkaError) -> None:
        """Something was not accepted that belongs to the transaction, if there is one; `error` says so."""
        if self._is_in_transaction and not error.fatal:
            error.abortable = True
            self.sends_directly = False
            self._engine.submit(partial(self._transactions.refuse, error))
            self._network.wake()

    # The end

    async def _end_transaction(self, deadline: Deadline) -> None:
        """A commit that timed out is waited for, and what is open is aborted: the producer is closed."""
        transactions = self._engine.transactions
        if transactions is None:
            return
        self._is_in_transaction = False
        limit_seconds = self.config.delivery_timeout_ms / 1000
        left = deadline.left
        deadline = Deadline(limit_seconds if left is None else min(left, limit_seconds))
        if self._unfinished is not None and self._unfinished.name != "init_transactions":
            await self._await_call(self._unfinished, deadline)
        is_going_on = transactions.state in (State.COMMITTING, State.ABORTING)
        if not is_going_on and transactions.has_ongoing and self._engine.fatal_error is None:
            logger.warning("%r is closed within a transaction, which is aborted", self)
            call = Call("abort_transaction")
            self._engine.call(call, transactions.abort)
            await self._await_call(call, deadline)


def _checked_offsets(offsets: Any) -> dict[tuple[str, int], OffsetAndMetadata]:
    if not isinstance(offsets, Mapping):
        kind = type(offsets).__name__
        raise TypeError(f"offsets must be a mapping of TopicPartition to OffsetAndMetadata, not {kind}")
    for key, each in offsets.items():
        if not isinstance(each, OffsetAndMetadata):
            raise TypeError(f"offsets[{key!r}] must be an OffsetAndMetadata, not {type(each).__name__}")
    return {checked_partition(key): each for key, each in offsets.items()}


def _checked_group(group: Any) -> ConsumerGroupMetadata:
    if isinstance(group, str):
        group = ConsumerGroupMetadata(group)
    elif isinstance(group, bytes):
        group = ConsumerGroupMetadata.from_librdkafka(group)
    if not isinstance(group, ConsumerGroupMetadata):
        raise TypeError(
            f"group_metadata must be a ConsumerGroupMetadata, what consumer_group_metadata() of "
            f"confluent-kafka's consumer gives, or a group id, not {type(group).__name__}"
        )
    if not group.group_id:
        raise ValueError("group_metadata must have a group_id; it is empty")
    return group
