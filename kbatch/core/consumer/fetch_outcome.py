"""What follows from a broker's answer to a partition of a Fetch: a table over every error code.

After org.apache.kafka.clients.consumer.internals.FetchCollector.handleInitializeErrors; KIP-320, KIP-392,
KIP-951.
"""

from __future__ import annotations

from enum import Enum

from kbatch.errors import ROWS, ErrorCode


class FetchOutcome(Enum):
    """The fate of a partition after an answer."""

    DELIVER = "its records are handed out"
    RETRY = "it is asked again after a back-off, with newer metadata"
    RESET = "its position is not in the log: a follower's answer is checked with the leader, then it is reset"
    FAIL = "it fails until the program seeks"


DELIVER, RETRY, RESET, FAIL = FetchOutcome

_SPECIAL = {
    ErrorCode.NONE: DELIVER,
    ErrorCode.OFFSET_OUT_OF_RANGE: RESET,
    # a broker's defect need not last (FetchCollector)
    ErrorCode.UNKNOWN_SERVER_ERROR: RETRY,
    # the bytes on the broker's disk do not heal, although a producer may send a batch again
    ErrorCode.CORRUPT_MESSAGE: FAIL,
}
# One row for each code; unknown codes count as UNKNOWN_SERVER_ERROR.
OUTCOMES: dict[ErrorCode, FetchOutcome] = {
    code: RETRY if row.retriable else FAIL for code, row in ROWS.items()
} | _SPECIAL


def outcome_of(code: int) -> FetchOutcome:
    """Return what to do about the code."""
    return OUTCOMES.get(ErrorCode(code), RETRY)
