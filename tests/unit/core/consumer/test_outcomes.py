"""What a reader does about each error code in an answer."""

from __future__ import annotations

import pytest

from kbatch.core.client.outcomes import OutcomeTable
from kbatch.core.consumer.outcomes import (
    ACKNOWLEDGE_OUTCOMES,
    COMMIT_OUTCOMES,
    FETCH_OUTCOMES,
    FIRST_HEARTBEAT_OUTCOMES,
    HEARTBEAT_OUTCOMES,
    SESSION_OUTCOMES,
    AcknowledgeOutcome,
    CommitOutcome,
    FetchOutcome,
    HeartbeatOutcome,
    SessionOutcome,
)
from kbatch.errors import ROWS, ErrorCode


def test_tables_have_a_row_for_each_code() -> None:
    assert FETCH_OUTCOMES.keys() == set(ErrorCode)
    assert COMMIT_OUTCOMES.keys() == {*ROWS, ErrorCode.NONE}
    assert SESSION_OUTCOMES.keys() == ROWS.keys() - {ErrorCode.NONE}
    assert ACKNOWLEDGE_OUTCOMES.keys() == ROWS.keys() | {ErrorCode.NONE}


def test_unknown_codes_count_as_server_errors() -> None:
    assert FETCH_OUTCOMES[999] is FetchOutcome.RETRY
    assert COMMIT_OUTCOMES[999] is CommitOutcome.FAIL
    assert SESSION_OUTCOMES[999] is SessionOutcome.BACK_OFF
    assert ACKNOWLEDGE_OUTCOMES[999] is AcknowledgeOutcome.FAIL


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
    assert {FETCH_OUTCOMES[code] for code in retried} == {FetchOutcome.RETRY}


def test_codes_that_end_a_partition() -> None:
    ended = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_FETCH_SIZE}
    assert {FETCH_OUTCOMES[code] for code in ended} == {FetchOutcome.FAIL}
    assert FETCH_OUTCOMES[ErrorCode.OFFSET_OUT_OF_RANGE] is FetchOutcome.RESET
    assert FETCH_OUTCOMES[ErrorCode.NONE] is FetchOutcome.DELIVER


@pytest.mark.parametrize(
    ("outcome", "codes"),
    [
        (CommitOutcome.RENEW, {"STALE_MEMBER_EPOCH", "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"}),
        (
            CommitOutcome.LOST,
            {"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID", "GROUP_ID_NOT_FOUND"},
        ),
    ],
    ids=["renew", "lost"],
)
def test_R78_refusals_of_a_member_are_told_apart(outcome: CommitOutcome, codes: set[str]) -> None:
    assert {str(code) for code, each in COMMIT_OUTCOMES.items() if each is outcome} == codes


def test_R60_coordinator_is_found_again_or_waited_for() -> None:
    found = {code for code, outcome in HEARTBEAT_OUTCOMES.items() if outcome is HeartbeatOutcome.FIND}
    assert found == {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert HEARTBEAT_OUTCOMES[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] is HeartbeatOutcome.BACK_OFF


@pytest.mark.parametrize(
    ("outcomes", "rejoined"),
    [
        (HEARTBEAT_OUTCOMES, {"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"}),
        (FIRST_HEARTBEAT_OUTCOMES, {"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"}),
    ],
    ids=["member", "joining"],
)
def test_R55_every_other_answer_ends_the_membership(
    outcomes: OutcomeTable[HeartbeatOutcome], rejoined: set[str]
) -> None:
    again = {str(code) for code, outcome in outcomes.items() if outcome is HeartbeatOutcome.REJOIN}
    assert again == rejoined
    lasting = {"NONE", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", *again}
    others = {code for code in (*ROWS, ErrorCode(999)) if str(code) not in lasting}
    assert {outcomes[code] for code in others} == {HeartbeatOutcome.FAIL}
