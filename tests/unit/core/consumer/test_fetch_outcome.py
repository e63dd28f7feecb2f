"""What follows from each error code in an answer to a Fetch."""

from __future__ import annotations

from kbatch.core.consumer.fetch_outcome import OUTCOMES, FetchOutcome, outcome_of
from kbatch.errors import ErrorCode


def test_every_code_has_an_outcome() -> None:
    assert OUTCOMES.keys() == set(ErrorCode)
    assert outcome_of(999) is FetchOutcome.RETRY


def test_R26_codes_that_java_retries_with_metadata() -> None:
    """FetchCollector.handleInitializeErrors."""
    retried = {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
    assert {outcome_of(code) for code in retried} == {FetchOutcome.RETRY}


def test_codes_that_end_a_partition() -> None:
    ended = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_FETCH_SIZE}
    assert {outcome_of(code) for code in ended} == {FetchOutcome.FAIL}
    assert outcome_of(ErrorCode.OFFSET_OUT_OF_RANGE) is FetchOutcome.RESET
    assert outcome_of(ErrorCode.NONE) is FetchOutcome.DELIVER
