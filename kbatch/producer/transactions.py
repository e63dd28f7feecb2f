"""TransactionCalls: what a producer with a transactional.id can do besides; a part of the producer.

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
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch._native.send.accumulator import TRANSACTION_ENDED
from kbatch.core.client.calls import Call
from kbatch.core.producer.transaction_states import State
from kbatch.errors import IllegalStateError, KafkaError, KafkaTimeoutError, SerializationError
from kbatch.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, checked_partition

if TYPE_CHECKING:
    from kbatch.core.producer.transactions import Transactions
    from kbatch.producer.runtime import Runtime
    from kbatch.waiting.deadline import Deadline

logger = logging.getLogger(__name__)


class TransactionCalls:
    """Calls of a producer that has a transactional.id; they raise IllegalStateError without one.

    Their `timeout` is seconds; None is max.block.ms. They raise

    - KafkaTimeoutError: it is not known yet what came of the call; make the same call again;
    - an error that is `abortable`: the transaction cannot be committed; call abort_transaction();
    - an error that is `fatal`: the producer can only be closed, and made anew (recreate());
    - IllegalStateError: a call that is not next, in a callback too; nothing has changed.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._config = runtime.config
        self._engine = runtime.engine
        self._accumulator = runtime.accumulator
        # that timed out or was cancelled: its outcome is known after the same call is made again
        self._unfinished: Call | None = None
        self._is_in_transaction = False

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Begins the work of a transactional producer, once: waits for transactions that an earlier producer
        of the same transactional.id has left, aborting what is open, and fences that producer.
        """
        await self._run_call("init", self._transactions.initialize, timeout)
        self._unfinished = None

    async def begin_transaction(self) -> None:
        """From now on records are part of a transaction. It waits for nothing, but for a new epoch after an
        upgrade of the cluster.
        """
        await self._run_call("begin", self._transactions.begin, None)
        self._is_in_transaction = True
        self._accumulator.transaction_count += 1
        self._accumulator.accepts_directly = not self._runtime.interceptors
        if self._transactions.state is not State.IN_TRANSACTION:  # it has failed meanwhile
            self._accumulator.accepts_directly = False
        self._unfinished = None

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Sends what is left, and commits: consumers with isolation.level=read_committed see all of the
        transaction's records, and its offsets are committed. When it returns the callbacks have run, or there
        was no time left for them: then they run later.
        """
        await self._end_by("commit", self._transactions.commit, timeout)
        self._unfinished = None

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Ends the transaction, or one that failed, as if it had not been: what was not sent fails with
        TransactionAbortedError, what was sent no consumer with isolation.level=read_committed sees.
        """
        await self._end_by("abort", self._transactions.abort, timeout)
        self._engine.failures.take()  # of which nobody need be told any more
        self._unfinished = None

    async def send_offsets_to_transaction(
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
        if self._runtime.callbacks.in_callback():
            raise IllegalStateError(f"{verb}_transaction() in a callback would wait for that callback")
        self._runtime.deadline(timeout)  # what is no timeout changes nothing
        self._accumulator.accepts_directly = self._is_in_transaction = False
        self._accumulator.transaction_count += 1  # no record of it is accepted from now on
        await self._runtime.await_callbacks(await self._run_call(verb, command, timeout))

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
            self._runtime.check_usable()
        seconds = self._config.max_block_ms / 1000 if timeout is None else timeout
        deadline = self._runtime.deadline(seconds)
        start_ns = self._runtime.now_ns()
        call = call or Call(name)
        if verb != "send_offsets_to":  # which commit waits for
            self._unfinished = call
        self._engine.call(call, command)  # again too: an interrupt may have come before it
        is_done = await self._await_call(call, deadline)
        sensor = "send-offsets" if verb == "send_offsets_to" else verb
        self._runtime.observe(f"txn-{sensor}-time", self._runtime.now_ns() - start_ns)
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

        def is_over() -> bool:
            return call.is_done or engine.fatal_error is not None or engine.authentication_error is not None

        self._runtime.network.wake()
        await self._runtime.await_until(is_over, deadline)
        if not call.is_done and engine.fatal_error is not None:
            call.finish(engine.fatal_error)
        return call.is_done

    async def abort_for(self, error: BaseException) -> None:
        """After an exception in a with block."""
        is_open = self._unfinished is None and self._transactions.has_ongoing
        if not is_open or self._engine.fatal_error is not None:
            return
        try:
            await self.abort_transaction()
        except KafkaError as failed:
            error.add_note(f"besides, the transaction could not be aborted: {failed}")

    # send()

    def check_sendable(self) -> None:
        """Raise unless a record is accepted now."""
        self._runtime.check_usable()
        self.check()

    def check_still_sendable(self, transaction: int) -> None:
        """The same after a wait, for what was given to the producer in transaction `transaction`."""
        self._runtime.check_usable()
        self.check_same(transaction)

    def check(self) -> None:
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

    def check_same(self, number: int) -> None:
        """What waited in transaction `number` has no part in another."""
        self.check()
        if number != self._accumulator.transaction_count:
            raise IllegalStateError(TRANSACTION_ENDED)

    def note_refused(self, error: BaseException) -> None:
        """send() raises: unless the record itself is at fault, the transaction lacks something."""
        if isinstance(error, KafkaError) and not isinstance(error, IllegalStateError | SerializationError):
            self.refuse(error)

    def refuse(self, error: KafkaError) -> None:
        """Something was not accepted that belongs to the transaction, if there is one; `error` says so."""
        if self._is_in_transaction and not error.fatal:
            error.abortable = True
            self._accumulator.accepts_directly = False
            self._engine.submit(partial(self._transactions.refuse, error))
            self._runtime.network.wake()

    # The end

    async def end(self, deadline: Deadline) -> None:
        """A commit that timed out is waited for, and what is open is aborted: the producer is closed."""
        transactions = self._engine.transactions
        if transactions is None:
            return
        self._is_in_transaction = False
        limit_seconds = self._config.delivery_timeout_ms / 1000
        deadline = deadline.within(limit_seconds)
        if self._unfinished is not None and self._unfinished.name != "init_transactions":
            await self._await_call(self._unfinished, deadline)
        is_going_on = transactions.state in (State.COMMITTING, State.ABORTING)
        if not is_going_on and transactions.has_ongoing and self._engine.fatal_error is None:
            logger.warning("%s is closed within a transaction, which is aborted", self._config.client_id)
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
