"""Bugs of transactions that the simulation must see; planted and looked for as those of planted_bugs.py."""

from __future__ import annotations

from functools import partial
from typing import Any

from kbatch._native.send.in_flight import NO_IDENTITY, Identity
from kbatch.core.client.coordinators import TRANSACTION, CoordinatorKey
from kbatch.core.producer import transactions
from kbatch.core.producer.idempotence import Idempotence
from kbatch.core.producer.outcomes import ErrorResponse
from kbatch.core.producer.sender import Sender
from kbatch.core.producer.transaction_requests import (
    Abort,
    AddPartitions,
    Commit,
    CommitOffsets,
    InitProducerId,
)
from kbatch.core.producer.transaction_states import TransactionState
from kbatch.core.producer.transactional_sequences import TransactionalSequences
from kbatch.core.producer.transactions import Transactions
from kbatch.errors import KafkaTimeoutError
from kbatch.producer.transactions import TransactionCalls
from tests.simulation.planted import planting

plants = partial(planting.plants, of_transactions=True)
replaces = partial(planting.replaces, of_transactions=True)


# Epochs and sequences


@plants(Transactions, "_complete")
def no_bump_after_an_abort(original: Any, self: Transactions, operation: Any) -> None:
    """Version 1: the epoch stays after a transaction with a batch that may be in the log."""
    self._bumps = False
    original(self, operation)


@replaces(transactions, "_DONE")
def the_epoch_of_end_txn_is_ignored(original: Any) -> Any:
    """Version 2: the producer continues with its old epoch."""

    def ended(self: Transactions, operation: Any, *rest: Any) -> None:
        self._complete(operation)

    return {**original, Commit: ended, Abort: ended}


@plants(Idempotence, "_begin_anew")
def sequences_go_on_in_a_new_epoch(original: Any, self: Idempotence, state: Any) -> None:
    """The first sequence of an epoch follows the last one of the previous epoch."""
    counter = state.next_counter
    original(self, state)
    state.next_counter, state.acked_counter = counter, counter - 1


@plants(CommitOffsets, "message")
def offsets_have_an_old_epoch(
    original: Any, self: CommitOffsets, transactional_id: str, identity: Identity, version: int
) -> Any:
    """TxnOffsetCommit has the producer's previous epoch."""
    old = Identity(identity.producer_id, max(identity.epoch - 1, 0))
    return original(self, transactional_id, old, version)


# The end of a transaction


@plants(Transactions, "_has_to_wait")
def end_txn_passes_records(*_: Any) -> bool:
    """EndTxn is sent while records of the transaction are in flight."""
    return False


@plants(Transactions, "_handle_failure")
def a_commit_without_a_record(*_: Any) -> None:
    """A transaction with a failed record can be committed."""


@plants(Transactions, "_accept")
def a_commit_after_an_error(original: Any, self: Transactions, call: Any) -> Any:
    """commit_transaction() is accepted although the transaction can only be aborted."""
    if call.name == "commit_transaction" and self.state is TransactionState.ABORTABLE_ERROR:
        self.state = TransactionState.IN_TRANSACTION
    return original(self, call)


@plants(Transactions, "_handle_response")
def no_answer_to_end_txn_means_done(original: Any, self: Transactions, operation: Any, response: Any) -> None:
    """A connection that breaks after EndTxn counts as its answer."""
    if response.message is None and isinstance(operation, Commit):
        self._out = None
        self._complete(operation)
    else:
        original(self, operation, response)


@plants(Transactions, "_next")
def an_abort_is_forgotten(original: Any, self: Transactions, now_ns: int) -> Any:
    """abort_transaction() sends nothing to the coordinator."""
    operation = original(self, now_ns)
    if isinstance(operation, Abort):
        self._queue.remove(operation)
        self._complete(operation)
        return None
    return operation


@plants(Transactions, "_next")
def an_empty_transaction_is_ended(original: Any, self: Transactions, now_ns: int) -> Any:
    """EndTxn is sent for a transaction that the coordinator does not know."""
    before, self._has_offsets = self._has_offsets, True
    try:
        return original(self, now_ns)
    finally:
        self._has_offsets = before


@plants(Sender, "abort_unsent")
def unsent_records_outlive_an_abort(*_: Any) -> None:
    """Unsent records stay in their queue after an abort."""


@plants(TransactionCalls, "check")
def sends_while_committing(*_: Any) -> None:
    """send() is accepted while the transaction is being committed."""


@plants(TransactionCalls, "_run_call")
async def a_call_that_timed_out_is_forgotten(original: Any, self: TransactionCalls, *given: Any) -> Any:
    """An abort is accepted after a commit with an unknown outcome."""
    try:
        return await original(self, *given)
    except KafkaTimeoutError:
        self._unfinished = None
        raise


# Partitions and offsets


@plants(TransactionalSequences, "_is_added")
def partitions_are_not_added(*_: Any) -> bool:
    """Version 1: records are sent without AddPartitionsToTxn."""
    return True


@plants(TransactionalSequences, "end")
def partitions_outlive_their_transaction(original: Any, self: TransactionalSequences) -> None:
    """Version 1: a partition of an earlier transaction is not added to the next."""
    self.stop()


@plants(Transactions, "_handle_response")
def no_answer_means_added(original: Any, self: Transactions, operation: Any, response: Any) -> None:
    """Version 1: a connection that breaks after AddPartitionsToTxn counts as its answer."""
    if response.message is None and isinstance(operation, AddPartitions):
        self._out = None
        self._added(operation, None, response)
    else:
        original(self, operation, response)


@plants(CommitOffsets, "coordinator")
def offsets_go_to_the_wrong_coordinator(original: Any, self: Any, transactional_id: Any) -> Any:
    """TxnOffsetCommit is sent to the coordinator of the transaction instead of the group's."""
    return CoordinatorKey(TRANSACTION, transactional_id)


# Errors


def _with_other_action(verdict: Any, right: ErrorResponse, wrong: ErrorResponse) -> Any:
    return verdict._replace(action=wrong) if verdict.action is right else verdict


@plants(transactions, "verdict_of")
def fencing_is_retried(original: Any, *given: Any) -> Any:
    """PRODUCER_FENCED counts as retriable."""
    return _with_other_action(original(*given), ErrorResponse.FENCED, ErrorResponse.RETRY)


@plants(transactions, "verdict_of")
def the_coordinator_is_not_looked_up_again(original: Any, *given: Any) -> Any:
    """NOT_COORDINATOR is retried at the same node."""
    return _with_other_action(original(*given), ErrorResponse.FIND, ErrorResponse.RETRY)


@plants(transactions, "verdict_of")
def every_error_is_fatal(original: Any, *given: Any) -> Any:
    """Abortable errors end the producer."""
    return _with_other_action(original(*given), ErrorResponse.ABORT, ErrorResponse.FATAL)


@plants(Transactions, "_handle_refusal")
def a_fenced_producer_comes_back(
    original: Any,
    self: Transactions,
    operation: Any,
    action: ErrorResponse,
    code: int,
    about: str,
    now_ns: int,
) -> None:
    """PRODUCER_FENCED leads to a new InitProducerId, with which the old producer fences the new one."""
    if action is ErrorResponse.FENCED:
        self._sequences.adopt(NO_IDENTITY)
        self._sequences.partitions.clear()
        self._has_offsets = False
        action = ErrorResponse.RETRY if isinstance(operation, InitProducerId | Abort) else ErrorResponse.ABORT
    original(self, operation, action, code, about, now_ns)


@plants(Transactions, "_handle_refusal", of_replicas=True)
def a_commit_that_is_refused_was_not_stored(
    original: Any, self: Transactions, operation: Any, action: ErrorResponse, *rest: Any
) -> None:
    """A coordinator that ends, or replicates too late, has not stored the commit: it can be aborted."""
    if isinstance(operation, Commit) and action is ErrorResponse.FIND:
        action = ErrorResponse.ABORT
    original(self, operation, action, *rest)


@plants(Transactions, "_may_be_committed")
def a_commit_that_may_be_done_is_given_up(*_: Any) -> bool:
    """An error of FindCoordinator ends a commit with an unknown outcome."""
    return False


@plants(Transactions, "_make_abortable")
def init_producer_id_outlives_an_error(
    original: Any, self: Transactions, error: Any, operation: Any = None
) -> None:
    """An unanswered InitProducerId continues after an error, and ends in a past state."""
    outlives = isinstance(operation, InitProducerId) and operation.is_ambiguous
    original(self, error, None if outlives else operation)
    if outlives:
        self._queue.append(operation)
