"""What the sender does about a broker's answer to a batch: a table over every error code.

After org.apache.kafka.clients.producer.internals.Sender.completeBatch and canRetry; KIP-467, KIP-360.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from kbatch.errors import ROWS, ErrorCode


class Outcome(Enum):
    """What becomes of a batch that was answered."""

    COMPLETE = "it is in the log"
    RETRY = "it is sent again, as it is"
    SPLIT = "it is sent again in smaller batches"
    GAP = "one before it is missing, or it is forgotten: Idempotence finds out"
    FAIL = "it fails"
    FATAL = "it fails, and so does all that the producer has and is given"


COMPLETE, RETRY, SPLIT, GAP, FAIL, FATAL = Outcome

_SPECIAL = {
    ErrorCode.NONE: COMPLETE,
    # the broker has it, and forgot at which offset
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: COMPLETE,
    ErrorCode.MESSAGE_TOO_LARGE: SPLIT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: GAP,
    ErrorCode.UNKNOWN_PRODUCER_ID: GAP,
    # what no batch of this producer will ever get past
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FATAL,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: FATAL,
    ErrorCode.PRODUCER_FENCED: FATAL,
}
# One row a code; a code that Kafka does not have yet is as UNKNOWN_SERVER_ERROR.
OUTCOMES: dict[ErrorCode, Outcome] = {
    code: RETRY if row.retriable else FAIL for code, row in ROWS.items()
} | _SPECIAL
# The topic was deleted, or is known by an id that is gone: what may have been appended is not there any more.
GONE_WITH_THE_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def outcome_of(code: int, answer: Any, *, is_idempotent: bool) -> Outcome:
    """Return what to do about the code, if the batch has attempts left and can be split.

    `answer` is the broker's for the partition; None if there was none. A batch without a sequence has no
    place in one: what a broker says about that is an error like others. UNKNOWN_PRODUCER_ID without a log
    start offset says nothing about the sequence.
    """
    outcome = OUTCOMES.get(ErrorCode(code), FAIL)
    if outcome is not GAP:
        return outcome
    if not is_idempotent:
        return FAIL
    is_unknown = code == ErrorCode.UNKNOWN_PRODUCER_ID
    return RETRY if is_unknown and (answer is None or answer.log_start_offset < 0) else GAP
