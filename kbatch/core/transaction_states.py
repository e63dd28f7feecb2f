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


def diagram() -> str:
    """The table as a Mermaid diagram, for docs/transactions.md; without what ends in FATAL_ERROR."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.UNINITIALIZED.name}"]
    for state, following in TRANSITIONS.items():
        lines += [
            f"    {state.name} --> {each.name}"
            for each in State
            if each in following and each is not state and each is not State.FATAL_ERROR
        ]
    return "\n".join(lines)
