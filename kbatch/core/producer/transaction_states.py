"""The life of a transactional producer: its states, and which may follow which.

After org.apache.kafka.clients.producer.internals.TransactionManager.State, without what two-phase commit
(KIP-939) adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """Where a transactional producer stands."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"


# From a state to those that may follow; FATAL_ERROR may follow all.
TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    State.READY: frozenset({State.IN_TRANSACTION, State.FATAL_ERROR}),
    State.IN_TRANSACTION: frozenset(
        {State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    State.COMMITTING: frozenset({State.READY, State.INITIALIZING, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    State.ABORTING: frozenset({State.READY, State.INITIALIZING, State.FATAL_ERROR}),
    State.ABORTABLE_ERROR: frozenset(
        {State.ABORTING, State.UNINITIALIZED, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    State.FATAL_ERROR: frozenset({State.FATAL_ERROR}),
}
# Those in which there is a transaction that was not ended.
ONGOING = frozenset({State.IN_TRANSACTION, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR})


# From a method to the states in which it can be called.
CALLS: Mapping[str, frozenset[State]] = {
    "init_transactions": frozenset({State.UNINITIALIZED}),
    "begin_transaction": frozenset({State.READY}),
    "send_offsets_to_transaction": frozenset({State.IN_TRANSACTION}),
    "commit_transaction": frozenset({State.IN_TRANSACTION}),
    "abort_transaction": frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR}),
}
