"""Transactions: the client's side of transactions, from init_transactions() to the last EndTxn.

Theory of operation. A user's Call changes the state (`transaction_states`) and queues operations: the
requests of `transaction_requests`. One is in flight at a time, in the order InitProducerId, requests that add
to the transaction, EndTxn; each waits until Coordinators has found its coordinator. A table there gives the
effect of each answer, which one function applies. A call is done after its last operation.

Meanwhile records are sent: TransactionalSequences says which may be drained. EndTxn waits for all batches and
all answers to Produce requests, so that the next transaction meets none of them. A failed batch makes the
transaction abortable: unsent batches fail, sent ones are awaited, and only an abort leads on. After it the
sequences are uncertain, so the producer requests a new epoch (InitProducerId, KIP-360), unless EndTxn brings
one (transaction version 2, KIP-890). A transaction keeps the version with which it begins. The cluster's
version is read when one begins and after it ended; a higher version needs a new epoch first.

An unanswered operation may have been applied. Therefore it is repeated even if the transaction has become
abortable: otherwise the coordinator could have a transaction that the client does not know. If it is refused
then, an abort is sent in any case, and may find no transaction.

After org.apache.kafka.clients.producer.internals.TransactionManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.client.coordinators import GROUP
from kbatch.core.producer.outcomes import ERROR_RESPONSES, ErrorResponse, Kind, verdict_of
from kbatch.core.producer.producer_ids import identity_of
from kbatch.core.producer.transaction_requests import (
    Abort,
    AddOffsets,
    AddPartitions,
    Commit,
    CommitOffsets,
    EndTransaction,
    InitProducerId,
    Operation,
)
from kbatch.core.producer.transaction_states import (
    ONGOING,
    TRANSITIONS,
    WHY_NOT,
    TransactionEvent,
    TransactionState,
)
from kbatch.core.producer.transaction_version import TransactionVersion
from kbatch.core.producer.transactional_sequences import CONCURRENT_ATTEMPTS, CONCURRENT_BACKOFF_NS
from kbatch.errors import (
    CommitFailedError,
    ErrorCode,
    IllegalStateError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    ProtocolError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
    error_of,
    row_of,
)
from kbatch.logs import ClientLogger
from kbatch.protocol import features, messages

if TYPE_CHECKING:
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch.config import ProducerConfig
    from kbatch.core.client.backoff import ExponentialBackoff
    from kbatch.core.client.calls import Call
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections, Response
    from kbatch.core.client.coordinators import CoordinatorKey, Coordinators
    from kbatch.core.producer.sender import Sender
    from kbatch.core.producer.transactional_sequences import TransactionalSequences
    from kbatch.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

logger = ClientLogger(__name__)


class Transactions:
    """The transactions of a producer.

    Parameters
    ----------
    config, accumulator, cluster, connections, coordinators, sequences, sender, backoff
    on_change : callable
        Called after a call is done, and after an error that forbids a commit.

    Attributes
    ----------
    state : TransactionState
        Other threads may read it.
    error : KafkaError | None
        The error after which the transaction can only be aborted, or the producer closed.
    version : TransactionVersion
        The version of the cluster.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        cluster: Cluster,
        connections: Connections,
        coordinators: Coordinators,
        sequences: TransactionalSequences,
        sender: Sender,
        backoff: ExponentialBackoff,
        *,
        on_change: Callable[[], object],
    ) -> None:
        assert config.transactional_id is not None
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        self.version = TransactionVersion(cluster, connections)
        self._config = config
        self._id = config.transactional_id
        self._accumulator = accumulator
        self._connections = connections
        self._sequences = sequences
        self._sender = sender
        self._on_change = on_change
        self._backoff = backoff
        self._coordinators = coordinators
        self._queue: list[Operation] = []
        self._out: Operation | None = None
        self._has_offsets = False
        self._may_be_begun = False  # by an unanswered request whose repetition was refused
        self._bumps = False  # the end of the transaction needs a new epoch
        self._can_bump = False
        sender.judge_failure = self._judge_failure
        sender.handle_failure = self._handle_failure

    # Calls

    @property
    def has_ongoing(self) -> bool:
        """True if there is an open transaction."""
        return self.state in ONGOING

    @property
    def obstacle(self) -> str | None:
        """What the next operation waits for, for errors of calls that take long; None if that is an answer,
        or a connection. Any thread may read it.
        """
        operation = self._out or self._first()
        if operation is None:
            return None
        if operation is not self._out and self._has_to_wait(operation):
            return f"{self._accumulator.incomplete_count} batches are not answered yet"
        return None if operation.refusal is None else f"the last answer was {operation.refusal}"

    def initialize(self, call: Call, now_ns: int) -> None:
        """Request a producer id, which fences older producers with the same transactional.id."""
        if self._accept(call):
            self._request_identity(call, bumps=False)

    def begin(self, call: Call, now_ns: int) -> None:
        if self._accept(call):
            self._adopt_version()
            if self._bumps:
                self._request_identity(call, bumps=True)
            else:
                self._open()
                self._finish(call)

    def _open(self) -> None:
        """Allow records to be sent."""
        self._sequences.begin()
        self._sender.update_gates(self._sequences.poll_blocked())

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        call: Call,
        now_ns: int,
    ) -> None:
        """Add the offsets of a consumer to the transaction."""
        if not self._accept(call):
            return
        if not offsets:
            self._finish(call)
            return
        commit = CommitOffsets(call, offsets, group)
        self._queue.append(commit if self._sequences.transaction_version >= 2 else AddOffsets(commit))

    def commit(self, call: Call, now_ns: int) -> None:
        if self._accept(call):
            self._accumulator.completing = True
            self._queue.append(Commit(call))

    def abort(self, call: Call, now_ns: int) -> None:
        if self._accept(call):
            self._sequences.stop()
            self._drop(TransactionAbortedError(), lambda each: True)
            self._queue.append(Abort(call))

    def refuse(self, error: KafkaError, now_ns: int) -> None:
        """Make the transaction abortable after send() raised: a record is missing from it."""
        if self.state is TransactionState.IN_TRANSACTION:
            self._make_abortable(error)

    def _accept(self, call: Call) -> bool:
        """Enter the state after the call. If this state does not take it, fail the call; return False."""
        event = TransactionEvent(call.name)
        if event in TRANSITIONS[self.state]:
            self._transition(event)
            return True
        if self.state is TransactionState.FATAL_ERROR:
            assert self.error is not None
            self._finish(call, self.error.marked())
        elif self.state is TransactionState.ABORTABLE_ERROR:
            self._finish(call, self.why_abortable())
        else:
            why = f"{call.name}(): {WHY_NOT[self.state]}"
            if call.name == "init_transactions":
                why = "init_transactions() was called before; call it only once"
            self._finish(call, IllegalStateError(why))
        return False

    def why_abortable(self) -> KafkaError:
        """Return a copy of `error` that says what to do."""
        assert self.error is not None
        error = self.error.marked()
        error.add_note("the transaction cannot be committed: call abort_transaction(), then begin the next")
        return error

    # Work

    def run(self, now_ns: int) -> None:
        """Process all work that is possible now."""
        if self.state in (TransactionState.ABORTABLE_ERROR, TransactionState.ABORTING):
            self._sender.abort_unsent(self._why_unsent())
        wanted = self._sequences.poll_wanted()
        if wanted:
            self._queue.append(AddPartitions(wanted))
        while self._out is None:
            operation = self._next(now_ns)
            if operation is None or not self._try_send(operation, now_ns):
                break

    def deadline_ns(self, now_ns: int) -> int:
        """Return the time of the next `run`, if nothing happens before."""
        operation = self._first()
        if self._sequences.has_wanted:
            return now_ns
        if operation is None or self._out is not None or self._has_to_wait(operation):
            return NEVER_NS
        return operation.pending.deadline_ns

    def fail(self, error: KafkaError) -> None:
        """Fail everything, now and for good."""
        if self.state is TransactionState.FATAL_ERROR:
            return
        self.state, self.error = TransactionState.FATAL_ERROR, error
        self._sequences.stop()
        if self._out is not None:
            self._queue.append(self._out)
        for operation in self._queue:
            self._give_up(operation, error)
        self._queue.clear()

    def _why_unsent(self) -> KafkaError:
        if self.error is None:
            return TransactionAbortedError()
        error = TransactionAbortedError(
            f"the transaction can only be aborted, because of an earlier error: {self.error}"
        )
        error.__cause__ = self.error
        return error

    def _first(self) -> Operation | None:
        return min(self._queue, key=lambda each: each.priority, default=None)

    def _next(self, now_ns: int) -> Operation | None:
        """Return the operation to send now, if there is one."""
        operation = self._first()
        if operation is None or now_ns < operation.pending.not_before_ns or self._has_to_wait(operation):
            return None
        is_end = isinstance(operation, EndTransaction)
        if is_end and not (self._is_begun or self._may_be_begun):
            self._queue.remove(operation)
            self._complete(operation)  # there is no transaction to end
            return self._next(now_ns)
        return operation

    @property
    def _is_begun(self) -> bool:
        """True if the coordinator has the transaction, or gets it from a request in flight."""
        return bool(self._sequences.partitions) or self._has_offsets

    def _has_to_wait(self, operation: Operation) -> bool:
        """True if the operation is an EndTxn that waits for records or answers."""
        if not isinstance(operation, EndTransaction):
            return False
        return self._accumulator.incomplete_count > 0 or self._sender.unanswered_count > 0

    # Requests

    def _try_send(self, operation: Operation, now_ns: int) -> bool:
        """Send the operation. Return True if it was sent, or another one must be sent first."""
        key = operation.coordinator(self._id)
        try:
            node_id = self._coordinators.ready_node(key, operation.pending, now_ns)
        except KafkaError as error:
            self._handle_search_failure(operation, error, now_ns)
            return self.state is not TransactionState.FATAL_ERROR
        if node_id is None:
            if self._is_needless(key) and self._coordinators.is_failing(key):
                self._give_up_group(key, operation)
                return True
            return False
        try:
            highest = operation.highest_version(self._sequences.transaction_version)
            version = self._connections.version_of(node_id, operation.request, highest=highest)
            message = operation.message(self._id, self._sequences.identity, version)
            handle = partial(self._handle_response, operation)
            self._connections.send(node_id, message, handle, now_ns, version=version)
        except (UnsupportedVersionError, ProtocolError) as error:
            self._fail_for_good(error)
            return False
        self._queue.remove(operation)
        self._out = operation
        self._has_offsets = self._has_offsets or isinstance(operation, CommitOffsets)
        return True

    def _handle_search_failure(self, operation: Operation, error: KafkaError, now_ns: int) -> None:
        """Apply the effect of a failed search to the operation that needs the coordinator."""
        code = error.code or ErrorCode.UNKNOWN_SERVER_ERROR  # of an error that is not the broker's
        if ERROR_RESPONSES[Kind.FIND_COORDINATOR][code] is not ErrorResponse.ABORT:
            self._fail_for_good(error)
        elif isinstance(operation, Abort) or self._may_be_committed:  # it has to reach the coordinator
            self._retry(operation, now_ns)
        else:
            self._queue.remove(operation)
            self._make_abortable(error, operation)

    def _handle_response(self, operation: Operation, response: Response) -> None:
        self._out = None
        now_ns, answer = response.now_ns, response.message
        if self.state is TransactionState.FATAL_ERROR:
            return
        if answer is None:
            error = response.error
            assert error is not None
            operation.is_ambiguous = operation.is_ambiguous or response.request.was_written
            if error.retriable:
                self._coordinators.forget(operation.coordinator(self._id))
                self._retry(operation, now_ns)
            else:
                self._fail_for_good(error, operation)
            return
        verdict = verdict_of(operation.kind, operation.codes(answer))
        if verdict.action is ErrorResponse.DONE:
            _DONE[type(operation)](self, operation, answer, response)
        else:
            subjects = ", ".join(filter(None, verdict.subjects))
            about = f"{operation.kind.value}{' for ' * bool(subjects)}{subjects}"
            self._handle_refusal(operation, verdict.action, verdict.code, about, now_ns)

    def _handle_refusal(
        self, operation: Operation, action: ErrorResponse, code: int, about: str, now_ns: int
    ) -> None:
        """Apply the effect of a refusal."""
        error = error_of(code, f"{about}: {row_of(code).doc}")
        if action is ErrorResponse.FIND and _is_stored(operation):
            operation.is_ambiguous = True  # a coordinator that is replaced while it stores it says so, too
        if action in (ErrorResponse.BUMP_OR_FATAL, ErrorResponse.GONE):
            self._bumps = self._can_bump and (
                self._sequences.transaction_version < 2 or action is ErrorResponse.GONE
            )
        if action is ErrorResponse.ABORT and self._may_be_committed:
            action = ErrorResponse.RETRY  # only the coordinator knows the result
        if (
            action in (ErrorResponse.RETRY, ErrorResponse.FIND)
            and self.state is TransactionState.ABORTING
            and _adds(operation)
        ):
            action = ErrorResponse.ABORT  # an abort does not need it
        ended = operation.ended if isinstance(operation, InitProducerId) else None
        match action:
            case _ if code == ErrorCode.INVALID_TXN_STATE and self._finds_nothing(operation):
                self._complete(operation)
            case ErrorResponse.RETRY | ErrorResponse.FIND:
                if action is ErrorResponse.FIND:
                    self._coordinators.forget(operation.coordinator(self._id))
                operation.refusal = error
                is_concurrent = code == ErrorCode.CONCURRENT_TRANSACTIONS
                self._retry(operation, now_ns, is_concurrent=is_concurrent)
            case ErrorResponse.INIT_AGAIN if (
                ended is not None or self.state is not TransactionState.INITIALIZING
            ):
                self._make_abortable(error, operation)
            case ErrorResponse.INIT_AGAIN:
                self._transition(TransactionEvent.REFUSED)
                self._finish(operation.call, error.marked(fatal=False))
            case ErrorResponse.GONE if self._can_bump:
                self._complete(operation)
            case ErrorResponse.ABORT | ErrorResponse.BUMP_OR_FATAL if (
                action is ErrorResponse.ABORT or self._can_bump
            ):
                self._make_abortable(error, operation)
            case ErrorResponse.COMMIT_FAILED:
                self._make_abortable(CommitFailedError(f"{about}: {CommitFailedError.doc}"), operation)
            case ErrorResponse.FENCED:
                self._fail_for_good(_fenced(self._id, about), operation)
            case _:
                self._fail_for_good(error, operation)

    def _finds_nothing(self, operation: Operation) -> bool:
        """True if the operation aborts a transaction that may not have begun."""
        return isinstance(operation, Abort) and self._may_be_begun and not self._is_begun

    @property
    def _may_be_committed(self) -> bool:
        """True if a commit was sent, and will be repeated."""
        return any(isinstance(each, Commit) and each.is_ambiguous for each in self._queue)

    def _retry(self, operation: Operation, now_ns: int, *, is_concurrent: bool = False) -> None:
        """Repeat the operation after a back-off, unless the transaction is aborted without it."""
        pending = operation.pending
        waits_for_end = is_concurrent and not self._is_begun
        pending.back_off(self._backoff, now_ns, at_once=CONCURRENT_ATTEMPTS if waits_for_end else 0)
        if waits_for_end:
            pending.not_before_ns = max(pending.not_before_ns, now_ns + CONCURRENT_BACKOFF_NS)
        key = operation.coordinator(self._id)
        if self.state is TransactionState.ABORTABLE_ERROR and not operation.is_ambiguous:
            self._give_up(operation, self.why_abortable())
        elif self._is_needless(key):
            self._give_up_group(key, operation)
        elif operation not in self._queue:
            self._queue.insert(0, operation)  # ahead of its kind: offsets of a later call replace its own

    def _is_needless(self, key: CoordinatorKey) -> bool:
        """True if the transaction ends without this coordinator: a group's, when it is being aborted."""
        return self.state is TransactionState.ABORTING and key.kind == GROUP

    def _give_up_group(self, key: CoordinatorKey, operation: Operation) -> None:
        """Fail operations of a group whose coordinator is missing or silent."""
        needing = [each for each in self._queue if each.coordinator(self._id) == key]
        for each in dict.fromkeys([operation, *needing]):
            if each in self._queue:
                self._queue.remove(each)
            self._give_up(each, TransactionAbortedError())

    # Effects of answers

    def _initialized(self, operation: InitProducerId, answer: Any, response: Response) -> None:
        node_id = response.request.node_id
        version = self._connections.version_of(node_id, messages.InitProducerIdRequest)
        self._can_bump = version >= features.INIT_PRODUCER_ID_BUMPS_EPOCH
        self._sequences.adopt(identity_of(answer))
        self._adopt_version()
        self._bumps = False
        self._transition(TransactionEvent.INITIALIZED)
        if self.state is TransactionState.IN_TRANSACTION:
            self._open()
        self._finish(operation.call)

    def _added(self, operation: AddPartitions, answer: Any, response: Response) -> None:
        self._sequences.add(operation.partitions)
        self._sender.update_gates(self._sequences.poll_blocked())

    def _offsets_added(self, operation: AddOffsets, answer: Any, response: Response) -> None:
        self._has_offsets = True
        if self.state is TransactionState.ABORTABLE_ERROR:
            self._finish(operation.call, self.why_abortable())
        else:
            self._queue.append(operation.commits)

    def _offsets_committed(self, operation: CommitOffsets, answer: Any, response: Response) -> None:
        self._finish(operation.call)

    def _ended(self, operation: EndTransaction, answer: Any, response: Response) -> None:
        if answer.producer_id >= 0:  # since version 5
            self._sequences.adopt(identity_of(answer))
        self._complete(operation)

    def _complete(self, operation: Operation) -> None:
        """End the transaction, and finish the call or request a new epoch."""
        self._sequences.end()
        self._has_offsets = self._may_be_begun = False
        self._accumulator.completing = False
        self.error = None
        if self._sender.first_failure is not None:
            self._sender.resume(self._sender.failure_count)
        self._adopt_version()
        if self._bumps or self._sequences.needs_identity:
            self._transition(TransactionEvent.ENDED_WITHOUT_EPOCH)
            self._request_identity(operation.call, bumps=not self._sequences.needs_identity, ended=operation)
        else:
            self._transition(TransactionEvent.ENDED)
            self._finish(operation.call)

    def _adopt_version(self) -> None:
        """Use the cluster's version for the next transaction."""
        version = self.version.latest()
        self._bumps = self._bumps or (self._can_bump and version > self._sequences.transaction_version)
        self._sequences.transaction_version = version

    def _request_identity(self, call: Call | None, *, bumps: bool, ended: Operation | None = None) -> None:
        timeout_ms = self._config.transaction_timeout_ms
        self._queue.append(InitProducerId(call, timeout_ms, bumps=bumps, ended=ended))

    # Failures

    def _judge_failure(self, error: KafkaError, had_sequence: bool, is_ambiguous: bool) -> dict[str, bool]:
        """Return the marks of a batch's error: what the failure makes of the transaction."""
        if self._sender.fatal_error is not None:
            return {"fatal": error.fatal or self._sender.fatal_error.fatal}
        needs_epoch = had_sequence and self._sequences.transaction_version < 2
        if error.fatal or (needs_epoch and is_ambiguous and not self._can_bump):
            return {"fatal": True}
        return {"abortable": self.has_ongoing and self.state is not TransactionState.ABORTING}

    def _handle_failure(self, error: KafkaError, had_sequence: bool) -> None:
        """Apply the failure of a batch, whose error is marked."""
        if self._sender.fatal_error is not None or not self.has_ongoing:
            return
        if had_sequence and self._sequences.transaction_version < 2:
            self._bumps = self._can_bump
        if error.fatal:
            self._fail_for_good(error)
        elif self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
            self._make_abortable(error)

    def _make_abortable(self, error: KafkaError, operation: Operation | None = None) -> None:
        """Allow only an abort of the transaction, because of `error` or an earlier one."""
        if operation is not None:  # a refused operation is dropped like the others
            begins = _adds(operation) and not isinstance(operation, CommitOffsets)
            self._may_be_begun = self._may_be_begun or (begins and operation.is_ambiguous)
            operation.is_ambiguous = False
            self._queue.append(operation)
        if self.state not in (TransactionState.ABORTING, TransactionState.ABORTABLE_ERROR):
            self.error = _abortable(error)
        self._transition(TransactionEvent.ERROR)
        if self.state is TransactionState.ABORTING:
            logger.debug("%s: an error while the transaction is being aborted: %s", self._id, error)
            self._drop(error, lambda each: each is operation)
            return
        self._sequences.stop()
        self._accumulator.completing = False
        self._drop(self.why_abortable(), lambda each: True)
        self._on_change()

    def _drop(self, error: KafkaError, is_meant: Callable[[Operation], bool]) -> None:
        """Fail operations that are not needed any more; those that may have been applied go on."""
        for operation in [each for each in self._queue if not each.is_ambiguous and is_meant(each)]:
            self._queue.remove(operation)
            self._give_up(operation, error)

    def _give_up(self, operation: Operation, error: KafkaError) -> None:
        """Fail the operation's call. A commit is done without its next epoch: the next call has the error."""
        is_behind_commit = isinstance(operation, InitProducerId) and isinstance(operation.ended, Commit)
        self._finish(operation.call, None if is_behind_commit else error)

    def _fail_for_good(self, error: KafkaError, operation: Operation | None = None) -> None:
        if operation is not None:
            self._queue.append(operation)
        self._sender.fail_for_good(error)
        assert self._sender.fatal_error is not None
        self.fail(self._sender.fatal_error)

    def _transition(self, event: TransactionEvent) -> None:
        """Enter the next state. An event that the table does not have is a defect: nothing may be committed
        after it.
        """
        state = TRANSITIONS[self.state].get(event)
        if state is None:
            self._fail_for_good(IllegalStateError(f"{event.value} cannot happen in state {self.state.value}"))
            return
        logger.debug("%s: %s, after %s", self._id, state.value, self.state.value)
        self.state = state

    def _finish(self, call: Call | None, error: KafkaError | None = None) -> None:
        if call is not None:
            call.finish(error)
            self._on_change()


def _adds(operation: Operation) -> bool:
    """True if the operation adds to the transaction."""
    return isinstance(operation, AddPartitions | AddOffsets | CommitOffsets)


def _is_stored(operation: Operation) -> bool:
    """True if the coordinator of transactions stores what the operation changes of one."""
    return isinstance(operation, EndTransaction | AddPartitions | AddOffsets)


def _abortable(error: KafkaError) -> KafkaError:
    """Return the abortable form of an error. A retriable error, or one about the state, becomes the cause of
    a TransactionAbortableError.
    """
    if error.retriable or isinstance(error, InvalidTxnStateError):
        reason = TransactionAbortableError(
            f"the transaction can only be aborted, because a part of it failed: {error}"
        )
        reason.__cause__ = error
        return reason
    return error.marked(abortable=True, fatal=False)


def _fenced(transactional_id: str, about: str) -> KafkaError:
    return ProducerFencedError(
        f"{about}: a newer producer has transactional.id={transactional_id} (a new one here would fence "
        "that in turn), or the coordinator has aborted a transaction that took longer than "
        "transaction.timeout.ms"
    )


_DONE: Mapping[type[Operation], Callable[..., None]] = {
    InitProducerId: Transactions._initialized,
    AddPartitions: Transactions._added,
    AddOffsets: Transactions._offsets_added,
    CommitOffsets: Transactions._offsets_committed,
    Commit: Transactions._ended,
    Abort: Transactions._ended,
}
