"""The life of a transactional producer: its states, and the events that lead from one to the next.

After org.apache.kafka.clients.producer.internals.TransactionManager.State, without the states of two-phase
commit (KIP-939).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class TransactionState(Enum):
    """The state of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"


class TransactionEvent(Enum):
    """A user's call, by the name of the method, or its result."""

    INITIALIZE = "init_transactions"
    BEGIN = "begin_transaction"
    SEND_OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    INITIALIZED = "a producer id"
    REFUSED = "no right to a producer id"
    ENDED = "the end of the transaction"
    ENDED_WITHOUT_EPOCH = "the end, and a new epoch is due"
    ERROR = "an abortable error"


CALLS = (
    TransactionEvent.INITIALIZE,
    TransactionEvent.BEGIN,
    TransactionEvent.SEND_OFFSETS,
    TransactionEvent.COMMIT,
    TransactionEvent.ABORT,
)

# From a state and an event to the next state. FATAL_ERROR can follow every state.
TRANSITIONS: Mapping[TransactionState, Mapping[TransactionEvent, TransactionState]] = {
    TransactionState.UNINITIALIZED: {TransactionEvent.INITIALIZE: TransactionState.INITIALIZING},
    TransactionState.INITIALIZING: {
        TransactionEvent.INITIALIZED: TransactionState.READY,
        TransactionEvent.REFUSED: TransactionState.UNINITIALIZED,
        TransactionEvent.ERROR: TransactionState.ABORTABLE_ERROR,
    },
    TransactionState.READY: {TransactionEvent.BEGIN: TransactionState.IN_TRANSACTION},
    TransactionState.IN_TRANSACTION: {
        TransactionEvent.SEND_OFFSETS: TransactionState.IN_TRANSACTION,
        TransactionEvent.COMMIT: TransactionState.COMMITTING,
        TransactionEvent.ABORT: TransactionState.ABORTING,
        TransactionEvent.INITIALIZED: TransactionState.IN_TRANSACTION,
        TransactionEvent.ERROR: TransactionState.ABORTABLE_ERROR,
    },
    TransactionState.COMMITTING: {
        TransactionEvent.INITIALIZED: TransactionState.COMMITTING,
        TransactionEvent.ENDED: TransactionState.READY,
        TransactionEvent.ENDED_WITHOUT_EPOCH: TransactionState.INITIALIZING,
        TransactionEvent.ERROR: TransactionState.ABORTABLE_ERROR,
    },
    TransactionState.ABORTING: {
        TransactionEvent.INITIALIZED: TransactionState.ABORTING,
        TransactionEvent.ENDED: TransactionState.READY,
        TransactionEvent.ENDED_WITHOUT_EPOCH: TransactionState.INITIALIZING,
        TransactionEvent.ERROR: TransactionState.ABORTING,
    },
    TransactionState.ABORTABLE_ERROR: {
        TransactionEvent.ABORT: TransactionState.ABORTING,
        TransactionEvent.ERROR: TransactionState.ABORTABLE_ERROR,
    },
    TransactionState.FATAL_ERROR: {},
}
# The states with an open transaction.
ONGOING = frozenset(
    {
        TransactionState.IN_TRANSACTION,
        TransactionState.COMMITTING,
        TransactionState.ABORTING,
        TransactionState.ABORTABLE_ERROR,
    }
)
# Why a state does not take a call, and the next step.
WHY_NOT: Mapping[TransactionState, str] = {
    TransactionState.UNINITIALIZED: "call init_transactions() first, once and successfully",
    TransactionState.INITIALIZING: "init_transactions() is under way",
    TransactionState.READY: "there is no open transaction: init_transactions() was called, "
    "begin_transaction() is next",
    TransactionState.IN_TRANSACTION: "a transaction is open: commit_transaction() or abort_transaction() "
    "comes first",
    TransactionState.COMMITTING: "commit_transaction() is under way",
    TransactionState.ABORTING: "abort_transaction() is under way",
}
