"""What follows from a broker's answer about a share session and about acknowledgements, as tables.

After org.apache.kafka.clients.consumer.internals.ShareConsumeRequestManager and ShareSessionHandler.
"""

from __future__ import annotations

from enum import Enum

from kbatch.errors import ROWS, ErrorCode


class SessionOutcome(Enum):
    """What follows from an error of a whole request."""

    OPEN_AGAIN = "the next request opens another session, at once"
    BACK_OFF = "the next request opens another session after a back-off"
    FAIL = "the program gets the error; the next poll tries again"


OPEN_AGAIN, BACK_OFF, FAIL_SESSION = SessionOutcome

# One row for each code; unknown codes count as UNKNOWN_SERVER_ERROR.
SESSION_OUTCOMES: dict[ErrorCode, SessionOutcome] = {
    code: BACK_OFF if row.retriable else FAIL_SESSION for code, row in ROWS.items()
} | {
    ErrorCode.SHARE_SESSION_NOT_FOUND: OPEN_AGAIN,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: OPEN_AGAIN,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: BACK_OFF,
    ErrorCode.UNKNOWN_SERVER_ERROR: BACK_OFF,
    # the membership joins again by its next heartbeat
    ErrorCode.UNKNOWN_MEMBER_ID: BACK_OFF,
    ErrorCode.FENCED_MEMBER_EPOCH: BACK_OFF,
}


class AcknowledgeOutcome(Enum):
    """The fate of acknowledgements after an answer."""

    DONE = "the broker has taken them"
    RETRY = "they are sent again after a back-off, until the call's time is up"
    FAIL = "the call gets the error; other members may get the records"


DONE, RETRY, FAIL = AcknowledgeOutcome

# A broker that does not lead the partition any more has no locks of its records, so others fail for good.
ACKNOWLEDGE_OUTCOMES: dict[ErrorCode, AcknowledgeOutcome] = {
    code: RETRY if row.retriable else FAIL for code, row in ROWS.items()
} | {
    ErrorCode.NONE: DONE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: FAIL,
    ErrorCode.FENCED_LEADER_EPOCH: FAIL,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: FAIL,
    ErrorCode.UNKNOWN_TOPIC_ID: FAIL,
    ErrorCode.SHARE_SESSION_NOT_FOUND: FAIL,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: FAIL,
}


def session_outcome_of(code: int) -> SessionOutcome:
    """Return what to do about the code."""
    return SESSION_OUTCOMES.get(ErrorCode(code), BACK_OFF)


def acknowledge_outcome_of(code: int) -> AcknowledgeOutcome:
    """Return what to do about the code."""
    return ACKNOWLEDGE_OUTCOMES.get(ErrorCode(code), FAIL)
