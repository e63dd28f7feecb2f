"""The sender's reaction to a broker's answer to a batch: a table over every error code.

After org.apache.kafka.clients.producer.internals.Sender.completeBatch and canRetry; KIP-467, KIP-360.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from kbatch.errors import ROWS, ErrorCode


class ErrorOutcome(Enum):
    """The fate of a batch after an answer."""

    COMPLETE = "it is in the log"
    RETRY = "it is sent again, as it is"
    SPLIT = "it is sent again in smaller batches"
    GAP = "one before it is missing, or it is forgotten: Idempotence finds out"
    FAIL = "it fails"
    FATAL = "it fails, and so does all that the producer has and is given"


COMPLETE, RETRY, SPLIT, GAP, FAIL, FATAL = ErrorOutcome

_SPECIAL = {
    ErrorCode.NONE: COMPLETE,
    # the broker has it, and has forgotten its offset
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: COMPLETE,
    ErrorCode.MESSAGE_TOO_LARGE: SPLIT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: GAP,
    ErrorCode.UNKNOWN_PRODUCER_ID: GAP,
    # every later batch of this producer would fail too
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FATAL,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: FATAL,
    ErrorCode.PRODUCER_FENCED: FATAL,
}
# One row for each code; unknown codes count as UNKNOWN_SERVER_ERROR.
OUTCOMES: dict[ErrorCode, ErrorOutcome] = {
    code: RETRY if row.retriable else FAIL for code, row in ROWS.items()
} | _SPECIAL
# The topic was deleted, or its id is outdated: an appended batch is gone with it.
GONE_WITH_THE_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def outcome_of(code: int, answer: Any, *, is_idempotent: bool) -> ErrorOutcome:
    """Return what to do about the code, if the batch has attempts left and can be split.

    `answer` is the broker's for the partition; None without one. For a batch without a sequence, an error
    about sequences is an error like others. UNKNOWN_PRODUCER_ID without a log start offset says nothing about
    the sequence.
    """
    outcome = OUTCOMES.get(ErrorCode(code), FAIL)
    if outcome is not GAP:
        return outcome
    if not is_idempotent:
        return FAIL
    is_unknown = code == ErrorCode.UNKNOWN_PRODUCER_ID
    return RETRY if is_unknown and (answer is None or answer.log_start_offset < 0) else GAP
