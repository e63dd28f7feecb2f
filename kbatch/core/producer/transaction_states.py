"""The life of a transactional producer: its states, and the events that lead from one to the next.

After org.apache.kafka.clients.producer.internals.TransactionManager.State, without the states of two-phase
commit (KIP-939).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """The state of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"


class Event(Enum):
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


CALLS = (Event.INITIALIZE, Event.BEGIN, Event.SEND_OFFSETS, Event.COMMIT, Event.ABORT)

# From a state and an event to the next state. FATAL_ERROR can follow every state.
TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.UNINITIALIZED: {Event.INITIALIZE: State.INITIALIZING},
    State.INITIALIZING: {
        Event.INITIALIZED: State.READY,
        Event.REFUSED: State.UNINITIALIZED,
        Event.ERROR: State.ABORTABLE_ERROR,
    },
    State.READY: {Event.BEGIN: State.IN_TRANSACTION},
    State.IN_TRANSACTION: {
        Event.SEND_OFFSETS: State.IN_TRANSACTION,
        Event.COMMIT: State.COMMITTING,
        Event.ABORT: State.ABORTING,
        Event.INITIALIZED: State.IN_TRANSACTION,
        Event.ERROR: State.ABORTABLE_ERROR,
    },
    State.COMMITTING: {
        Event.INITIALIZED: State.COMMITTING,
        Event.ENDED: State.READY,
        Event.ENDED_WITHOUT_EPOCH: State.INITIALIZING,
        Event.ERROR: State.ABORTABLE_ERROR,
    },
    State.ABORTING: {
        Event.INITIALIZED: State.ABORTING,
        Event.ENDED: State.READY,
        Event.ENDED_WITHOUT_EPOCH: State.INITIALIZING,
        Event.ERROR: State.ABORTING,
    },
    State.ABORTABLE_ERROR: {Event.ABORT: State.ABORTING, Event.ERROR: State.ABORTABLE_ERROR},
    State.FATAL_ERROR: {},
}
# The states with an open transaction.
ONGOING = frozenset({State.IN_TRANSACTION, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR})
# Why a state does not take a call, and the next step.
WHY_NOT: Mapping[State, str] = {
    State.UNINITIALIZED: "call init_transactions() first, once and successfully",
    State.INITIALIZING: "init_transactions() is under way",
    State.READY: "there is no open transaction: init_transactions() was called, begin_transaction() is next",
    State.IN_TRANSACTION: "a transaction is open: commit_transaction() or abort_transaction() comes first",
    State.COMMITTING: "commit_transaction() is under way",
    State.ABORTING: "abort_transaction() is under way",
}
