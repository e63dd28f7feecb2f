"""TransactionCalls: the transactions of a producer with a transactional.id; a part of the producer.

Theory of operation. Each method gives the engine a `Call` and waits for it. A call that times out, or whose
wait is cancelled or interrupted, goes on. The same method waits for it again, and the others raise until its
outcome was returned or raised: neither an abort nor another transaction may follow a commit with an unknown
outcome. So a method forgets its call in its last line, after all that it awaits.

This module decides whether `send` may append directly: from begin_transaction() until the transaction ends,
or can only be aborted.

After org.apache.kafka.clients.producer.KafkaProducer and its TransactionalRequestResult.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kbatch._native.send.accumulator import TRANSACTION_ENDED
from kbatch.core.client.calls import Call
from kbatch.core.producer.transaction_states import TransactionState
from kbatch.errors import IllegalStateError, KafkaError, KafkaTimeoutError, SerializationError
from kbatch.logs import ClientLogger
from kbatch.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, checked_partition

if TYPE_CHECKING:
    from kbatch.core.producer.transactions import Transactions
    from kbatch.producer.runtime import Runtime
    from kbatch.waiting.deadline import Deadline

logger = ClientLogger(__name__)


class GroupConsumer(Protocol):
    """A consumer of a group."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the member with its generation."""


class TransactionCalls:
    """Calls of a producer that has a transactional.id; they raise IllegalStateError without one.

    `timeout` is in seconds; None is max.block.ms. The calls raise

    - KafkaTimeoutError: the outcome is unknown; make the same call again;
    - an `abortable` error: the transaction cannot be committed; call abort_transaction();
    - a `fatal` error: the producer cannot go on; close it and create another (recreate());
    - IllegalStateError: the call is not allowed now, or not in a callback; nothing has changed.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._config = runtime.config
        self._engine = runtime.engine
        self._accumulator = runtime.accumulator
        # timed out or cancelled: the same call, made again, returns or raises its outcome
        self._unfinished: Call | None = None
        self._is_in_transaction = False

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Prepare the producer for transactions, once: fence earlier producers with this transactional.id,
        and wait until their transactions are complete; open ones are aborted.
        """
        await self._run_call("init", self._transactions.initialize, timeout)
        self._unfinished = None

    async def begin_transaction(self) -> None:
        """Begin a transaction, which all later records are part of. It waits only for a new epoch after an
        upgrade of the cluster.
        """
        await self._run_call("begin", self._transactions.begin, None)
        self._is_in_transaction = True
        self._accumulator.begin_next_transaction()
        self._accumulator.accepts_directly = not self._runtime.interceptors
        if self._transactions.state is not TransactionState.IN_TRANSACTION:  # it has failed since
            self._accumulator.accepts_directly = False
        self._unfinished = None

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Send what is left, and commit: consumers with isolation.level=read_committed see all records of the
        transaction, and its offsets are committed. Callbacks have run when it returns, unless the time-out
        came first: then they run later.
        """
        await self._end_by("commit", self._transactions.commit, timeout)
        self._unfinished = None

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction, even one that failed: unsent records fail with TransactionAbortedError, and
        consumers with isolation.level=read_committed never see those that were sent.
        """
        await self._end_by("abort", self._transactions.abort, timeout)
        self._engine.failures.take()  # the next flush need not raise them
        self._unfinished = None

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: GroupConsumer | ConsumerGroupMetadata | str | bytes,
    ) -> None:
        """Make the offsets of a consumer part of the transaction: they are committed with it.

        Parameters
        ----------
        offsets : mapping of TopicPartition to OffsetAndMetadata
            The offsets of the next records to read, such as `polled.offsets`.
        group_metadata : Consumer, AsyncConsumer, ConsumerGroupMetadata, bytes or str
            The consumer, or its group_metadata(), so that its membership is checked (KIP-447); the result of
            confluent-kafka's consumer_group_metadata() is accepted too. Or the group's id alone.
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
            raise IllegalStateError("transactions require transactional.id; configure the producer with one")
        return transactions

    async def _end_by(self, verb: str, command: Callable[[Call, int], None], timeout: float | None) -> None:
        if self._runtime.callbacks.in_callback():
            raise IllegalStateError(
                f"{verb}_transaction() in a callback would wait for that callback; call it elsewhere"
            )
        self._runtime.block_deadline(timeout)  # raises before anything has changed
        self._accumulator.accepts_directly = self._is_in_transaction = False
        self._accumulator.begin_next_transaction()  # none of its records is accepted from now on
        await self._runtime.await_callbacks(await self._run_call(verb, command, timeout))

    async def _run_call(
        self, verb: str, command: Callable[[Call, int], None], timeout: float | None
    ) -> Deadline:
        """Have the engine run a command, or wait for the same unfinished one; the caller then forgets it."""
        name = f"{verb}_transactions" if verb == "init" else f"{verb}_transaction"
        call = self._unfinished
        if call is not None and call.name != name:
            raise IllegalStateError(
                f"{name}(): {call.name}() has an unknown outcome, because it timed out, was cancelled or a "
                f"login was refused; call it again"
            )
        if call is None or not call.is_done:
            self._runtime.check_usable()
        deadline = self._runtime.block_deadline(timeout)
        start_ns = self._runtime.now_ns()
        call = call or Call(name)
        if verb != "send_offsets_to":  # which commit waits for
            self._unfinished = call
        refused = self._engine.authentication_error
        self._engine.call(call, command)  # also again: an interrupt may have prevented the first
        is_done = await self._await_call(call, deadline, refused)
        sensor = "send-offsets" if verb == "send_offsets_to" else verb
        self._runtime.observe(f"txn-{sensor}-time", self._runtime.now_ns() - start_ns)
        if not is_done:
            self._runtime.check_login(None)
            failure = self._engine.last_connection_failure
            obstacle = str(failure) if failure else self._transactions.obstacle
            seconds = self._config.max_block_ms / 1000 if timeout is None else timeout
            raise KafkaTimeoutError(
                f"{name}() timed out after {seconds} s and goes on; call it again for its outcome"
                + (f"; {obstacle}" if obstacle else "")
            )
        if call.error is not None:
            self._unfinished = None
            raise call.error
        return deadline

    async def _await_call(self, call: Call, deadline: Deadline, refused: KafkaError | None = None) -> bool:
        """Return whether the call is done. The wait ends with a failed login, but not for the one that had
        `refused` the client before.
        """
        engine = self._engine

        def is_over() -> bool:
            is_refused = engine.authentication_error not in (None, refused)
            return call.is_done or engine.fatal_error is not None or is_refused

        self._runtime.network.wake()
        await self._runtime.await_until(is_over, deadline)
        if not call.is_done and engine.fatal_error is not None:
            call.finish(engine.fatal_error)
        return call.is_done

    async def abort_for(self, error: BaseException) -> None:
        """Abort the transaction, if one is open, after an exception in a with block."""
        is_open = self._unfinished is None and self._transactions.has_ongoing
        if not is_open or self._engine.fatal_error is not None:
            return
        try:
            await self.abort_transaction()
        except KafkaError as failed:
            error.add_note(f"in addition, the transaction could not be aborted: {failed}")

    # send()

    def check_sendable(self) -> None:
        """Raise unless a record is accepted now."""
        self._runtime.check_usable()
        self.check()

    def check_still_sendable(self, transaction: int) -> None:
        """Raise unless a record that was sent in transaction `transaction` is still accepted after a wait."""
        self._runtime.check_usable()
        self.check_same(transaction)

    def check(self) -> None:
        """Raise unless a transaction is open, if the producer is transactional."""
        transactions = self._engine.transactions
        if transactions is None:
            return
        state = transactions.state
        if state is TransactionState.ABORTABLE_ERROR:
            raise transactions.why_abortable()
        if not self._is_in_transaction or state is not TransactionState.IN_TRANSACTION:
            raise IllegalStateError(
                "send() of a producer with a transactional.id needs an open transaction: begin_transaction() "
                "comes first, and before it, once, init_transactions()"
            )

    def check_same(self, number: int) -> None:
        """Raise unless transaction `number` is still open: its records have no part in another."""
        self.check()
        if number != self._accumulator.transaction_count:
            raise IllegalStateError(TRANSACTION_ENDED)

    def note_refused(self, error: BaseException) -> None:
        """Record that send() raises: the transaction cannot commit, unless the record itself is at fault."""
        if isinstance(error, KafkaError) and not isinstance(error, IllegalStateError | SerializationError):
            self.refuse(error)

    def refuse(self, error: KafkaError) -> None:
        """Make the open transaction, if any, abortable: `error` says why a part of it was not accepted."""
        if self.mark(error):
            self._accumulator.accepts_directly = False
            self._engine.submit(partial(self._transactions.refuse, error))
            self._runtime.network.wake()

    def mark(self, error: KafkaError) -> bool:
        """Mark the error of what was not accepted. True if an open transaction lacks it."""
        is_lacking = self._is_in_transaction and not error.fatal
        if is_lacking:
            error.abortable = True
        return is_lacking

    # The end

    async def end(self, deadline: Deadline) -> None:
        """Wait for an unfinished commit, and abort an open transaction, because the producer is closed."""
        transactions = self._engine.transactions
        if transactions is None:
            return
        self._is_in_transaction = False
        limit_seconds = self._config.delivery_timeout_ms / 1000
        deadline = deadline.within(limit_seconds)
        if self._unfinished is not None and self._unfinished.name != "init_transactions":
            await self._await_call(self._unfinished, deadline)
        is_going_on = transactions.state in (TransactionState.COMMITTING, TransactionState.ABORTING)
        if not is_going_on and transactions.has_ongoing and self._engine.fatal_error is None:
            logger.warning("%s is closed in a transaction, which is aborted", self._config.client_id)
            call = Call("abort_transaction")
            self._engine.call(call, transactions.abort)
            await self._await_call(call, deadline)


def _checked_offsets(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    if not isinstance(offsets, Mapping):
        kind = type(offsets).__name__
        raise TypeError(f"offsets must be a mapping of TopicPartition to OffsetAndMetadata, got {kind}")
    for key, each in offsets.items():
        if not isinstance(each, OffsetAndMetadata):
            raise TypeError(f"offsets[{key!r}] must be an OffsetAndMetadata, got {type(each).__name__}")
    return {checked_partition(key): each for key, each in offsets.items()}


def _checked_group(group: Any) -> ConsumerGroupMetadata:
    if callable(of_consumer := getattr(group, "group_metadata", None)):
        group = of_consumer()
    elif isinstance(group, str):
        group = ConsumerGroupMetadata(group)
    elif isinstance(group, bytes):
        group = ConsumerGroupMetadata.from_librdkafka(group)
    if not isinstance(group, ConsumerGroupMetadata):
        raise TypeError(
            f"group_metadata must be a consumer, its group_metadata(), the result of confluent-kafka's "
            f"consumer_group_metadata(), or a group id, got {type(group).__name__}"
        )
    if not group.group_id:
        raise ValueError("group_metadata must have a group_id, got an empty one")
    return group
