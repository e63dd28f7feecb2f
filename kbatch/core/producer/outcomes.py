"""What a producer does about each error code in a broker's answer: a table for batches, and one a request of
transactions.

After org.apache.kafka.clients.producer.internals.Sender.completeBatch and canRetry (KIP-467, KIP-360), and
the handlers in TransactionManager; KIP-447 (offsets), KIP-890 (transaction version 2), KIP-1050 (which error
allows what).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from kbatch.core.client.outcomes import OutcomeTable
from kbatch.errors import ErrorCode


class ErrorOutcome(Enum):
    """The fate of a batch after an answer."""

    COMPLETE = "it is in the log"
    RETRY = "it is sent again, as it is"
    SPLIT = "it is sent again in smaller batches"
    GAP = "one before it is missing, or it is forgotten: Idempotence finds out"
    FAIL = "it fails"
    FATAL = "it fails, and so does all that the producer has and is given"


BATCH_OUTCOMES = OutcomeTable(
    retriable=ErrorOutcome.RETRY,
    otherwise=ErrorOutcome.FAIL,
    special={
        ErrorCode.NONE: ErrorOutcome.COMPLETE,
        # the broker has it, and has forgotten its offset
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ErrorOutcome.COMPLETE,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorOutcome.SPLIT,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorOutcome.GAP,
        ErrorCode.UNKNOWN_PRODUCER_ID: ErrorOutcome.GAP,
        # every later batch of this producer would fail too
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorOutcome.FATAL,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorOutcome.FATAL,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorOutcome.FATAL,
        ErrorCode.PRODUCER_FENCED: ErrorOutcome.FATAL,
    },
)
# The topic was deleted, or its id is outdated: an appended batch is gone with it.
GONE_WITH_THE_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def outcome_of(code: int, answer: Any, *, is_idempotent: bool) -> ErrorOutcome:
    """Return what to do about the code, if the batch has attempts left and can be split.

    `answer` is the broker's for the partition; None without one. For a batch without a sequence, an error
    about sequences is an error like others. UNKNOWN_PRODUCER_ID without a log start offset says nothing about
    the sequence.
    """
    outcome = BATCH_OUTCOMES[code]
    if outcome is not ErrorOutcome.GAP:
        return outcome
    if not is_idempotent:
        return ErrorOutcome.FAIL
    is_unknown = code == ErrorCode.UNKNOWN_PRODUCER_ID
    is_silent = is_unknown and (answer is None or answer.log_start_offset < 0)
    return ErrorOutcome.RETRY if is_silent else ErrorOutcome.GAP


class ErrorResponse(Enum):
    """The effect of an answer. If it has several codes, the first of these effects counts."""

    FENCED = "fatal: another producer has taken over"
    FATAL = "fatal: the producer can only be closed"
    INIT_AGAIN = "the call fails, and can be repeated"
    BUMP_OR_FATAL = "the transaction can only be aborted, with a new epoch; fatal if the broker gives none"
    GONE = "the coordinator has no transaction: done, with a new epoch; fatal if the broker gives none"
    COMMIT_FAILED = "the transaction can only be aborted, and the consumer must rejoin its group"
    ABORT = "the transaction can only be aborted"
    FIND = "the client searches for the coordinator, and repeats the request"
    RETRY = "the client repeats the request"
    DONE = "it is done"


class Kind(Enum):
    """A request whose answers have effects of their own."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    COMMIT = "EndTxn (commit)"
    ABORT = "EndTxn (abort)"


_BY_COORDINATOR = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorResponse.FIND,
    ErrorCode.NOT_COORDINATOR: ErrorResponse.FIND,
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorResponse.FENCED,
    ErrorCode.PRODUCER_FENCED: ErrorResponse.FENCED,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorResponse.ABORT,
}
_IN_TRANSACTION = _BY_COORDINATOR | {ErrorCode.UNKNOWN_PRODUCER_ID: ErrorResponse.BUMP_OR_FATAL}
# The effects that differ between requests.
_SPECIAL: Mapping[Kind, Mapping[ErrorCode, ErrorResponse]] = {
    Kind.FIND_COORDINATOR: {
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorResponse.ABORT,
        ErrorCode.TRANSACTION_ABORTABLE: ErrorResponse.ABORT,
    },
    Kind.INIT_PRODUCER_ID: _BY_COORDINATOR
    | {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorResponse.INIT_AGAIN,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorResponse.INIT_AGAIN,
    },
    Kind.ADD_PARTITIONS: _IN_TRANSACTION
    | {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorResponse.FATAL,
        ErrorCode.INVALID_TXN_STATE: ErrorResponse.FATAL,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorResponse.FATAL,
    },
    Kind.ADD_OFFSETS: _IN_TRANSACTION | {ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorResponse.ABORT},
    Kind.COMMIT_OFFSETS: _BY_COORDINATOR
    | {
        ErrorCode.REQUEST_TIMED_OUT: ErrorResponse.FIND,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorResponse.ABORT,
        ErrorCode.FENCED_INSTANCE_ID: ErrorResponse.ABORT,
        ErrorCode.UNKNOWN_MEMBER_ID: ErrorResponse.COMMIT_FAILED,
        ErrorCode.ILLEGAL_GENERATION: ErrorResponse.COMMIT_FAILED,
    },
    # the coordinator has aborted it (transaction.timeout.ms, version 2): an abort agrees with that
    Kind.COMMIT: _IN_TRANSACTION | {ErrorCode.INVALID_TXN_STATE: ErrorResponse.ABORT},
    Kind.ABORT: _BY_COORDINATOR
    | {
        ErrorCode.UNKNOWN_PRODUCER_ID: ErrorResponse.GONE,
        ErrorCode.TRANSACTION_ABORTABLE: ErrorResponse.FATAL,
    },
}


# A row for each request, a column for each code.
ERROR_RESPONSES: Mapping[Kind, OutcomeTable[ErrorResponse]] = {
    kind: OutcomeTable(
        retriable=ErrorResponse.RETRY,
        # a faulty partition may be sound in the next transaction
        otherwise=ErrorResponse.ABORT if kind is Kind.ADD_PARTITIONS else ErrorResponse.FATAL,
        special={ErrorCode.NONE: ErrorResponse.DONE, **special},
    )
    for kind, special in _SPECIAL.items()
}
_PRECEDENCE = {action: number for number, action in enumerate(ErrorResponse)}


class Verdict(NamedTuple):
    """The effect of an answer, its decisive code, and the subjects of that code."""

    action: ErrorResponse
    code: int
    subjects: list[str]


def verdict_of(kind: Kind, codes: Iterable[tuple[str, int]]) -> Verdict:
    """Return the first of the effects of an answer. OPERATION_NOT_ATTEMPTED only hints at another code."""
    failed = {subject: code for subject, code in codes if code}
    if not failed:
        return Verdict(ErrorResponse.DONE, ErrorCode.NONE, [])
    responses = ERROR_RESPONSES[kind]
    causes = {s: code for s, code in failed.items() if code != ErrorCode.OPERATION_NOT_ATTEMPTED} or failed
    code = min(causes.values(), key=lambda code: _PRECEDENCE[responses[code]])
    return Verdict(responses[code], code, [s for s, each in causes.items() if each == code])
