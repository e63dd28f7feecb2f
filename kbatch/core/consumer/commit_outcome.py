"""What follows from a broker's answer to a partition of an OffsetCommit: a table over every error code.

After org.apache.kafka.clients.consumer.internals.CommitRequestManager.OffsetCommitRequestState and
ConsumerCoordinator.OffsetCommitResponseHandler; KIP-394, KIP-848, KAFKA-16224 (deleted topics).
"""

from __future__ import annotations

from enum import Enum

from kbatch.errors import ROWS, ErrorCode


class CommitOutcome(Enum):
    """The fate of a partition's offset after an answer."""

    DONE = "it is committed"
    BACK_OFF = "it is sent again after a back-off"
    FIND = "it is sent again to the coordinator, which is searched for"
    RENEW = "it is sent again with the member's next generation, if the member still owns the partition"
    LOST = "it fails: the coordinator does not know the member"
    MISSING = "it fails if the partition is given up or the topic is gone, and else is sent again"
    FAIL = "it fails"


DONE, BACK_OFF, FIND, RENEW, LOST, MISSING, FAIL = CommitOutcome

_SPECIAL = {
    ErrorCode.NONE: DONE,
    ErrorCode.NOT_COORDINATOR: FIND,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: FIND,
    ErrorCode.REQUEST_TIMED_OUT: FIND,
    ErrorCode.NETWORK_EXCEPTION: FIND,
    ErrorCode.STALE_MEMBER_EPOCH: RENEW,
    ErrorCode.REBALANCE_IN_PROGRESS: RENEW,
    ErrorCode.ILLEGAL_GENERATION: RENEW,
    ErrorCode.UNKNOWN_MEMBER_ID: LOST,
    ErrorCode.FENCED_MEMBER_EPOCH: LOST,
    ErrorCode.FENCED_INSTANCE_ID: LOST,
    ErrorCode.GROUP_ID_NOT_FOUND: LOST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: MISSING,
    ErrorCode.UNKNOWN_TOPIC_ID: MISSING,
}
# One row for each code; unknown codes count as UNKNOWN_SERVER_ERROR.
OUTCOMES: dict[ErrorCode, CommitOutcome] = {
    code: BACK_OFF if row.retriable else FAIL for code, row in ROWS.items()
} | _SPECIAL


def outcome_of(code: int) -> CommitOutcome:
    """Return what to do about the code."""
    return OUTCOMES.get(ErrorCode(code), FAIL)
