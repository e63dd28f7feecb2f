"""Members of share groups in virtual time: heartbeats, sessions, acknowledgements, and each error."""

from __future__ import annotations

import pytest

from kbatch.core.consumer.share_session import MAX_EPOCH, ShareSession, ranges
from kbatch.errors import (
    ErrorCode,
    GroupAuthorizationError,
    InvalidRecordStateError,
    KafkaError,
    NotLeaderOrFollowerError,
    ShareSessionNotFoundError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from kbatch.records import AcknowledgeType, TopicPartition
from tests.support.broker_core import TOPIC
from tests.support.reading import FIRST, MS
from tests.support.share_reading import ANSWER_MS, INTERVAL_MS, LOCK_MS, ShareReading

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
SECOND = TopicPartition(TOPIC, 1)


def joined(**settings: object) -> ShareReading:
    r = ShareReading(**settings)  # type: ignore[arg-type]
    r.join()
    return r


def session_epochs(r: ShareReading) -> list[int]:
    return [each.share_session_epoch for each in r.requests("ShareFetch")]


# The tables


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ({}, []),
        ({3: 1, 4: 1, 5: 1}, [(3, 5, [1])]),
        ({5: 2, 3: 1, 4: 1}, [(3, 5, [1, 1, 2])]),
        ({3: 1, 7: 0, 8: 0}, [(3, 3, [1]), (7, 8, [0])]),
    ],
)
def test_offsets_become_batches(types: dict[int, int], expected: list[object]) -> None:
    assert ranges(types) == expected


def test_session_epoch_passes_over_0_at_its_end() -> None:
    session = ShareSession()
    session.epoch = MAX_EPOCH
    session.handle_answer()
    assert session.epoch == 1


# Sessions


def test_first_request_names_all_and_later_ones_what_changes() -> None:
    r = joined(partitions=2)
    first, *later = r.requests("ShareFetch")
    assert first.share_session_epoch == 0
    assert [[each.partition_index for each in topic.partitions] for topic in first.topics] == [[0, 1]]
    assert session_epochs(r) == list(range(len(later) + 1)) and later
    assert not any(each.topics or each.forgotten_topics_data for each in later)
    r.assigned = [SECOND]
    r.advance(INTERVAL_MS)
    r.poll()
    (forgotten,) = [each for each in r.requests("ShareFetch") if each.forgotten_topics_data]
    assert forgotten.forgotten_topics_data[0].partitions == [0]


def test_nothing_is_acquired_while_the_program_does_not_poll() -> None:
    r = joined()
    r.available[FIRST] = [0]
    count = len(r.requests("ShareFetch"))
    r.advance(10_000)
    assert len(r.requests("ShareFetch")) == count and not r.acquired
    r.poll()
    (acquired,) = r.acquired
    assert acquired.ranges == ((0, 0, 1),)
    assert acquired.until_ns <= r.now_ns + LOCK_MS * 1_000_000


@pytest.mark.parametrize("code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH])
def test_session_that_is_lost_is_opened_again_at_once(code: ErrorCode) -> None:
    r = joined()
    r.session_codes = [code]
    call = r.poll({r.at(): {0: ACCEPT}})
    assert call.is_done and isinstance(call.error, KafkaError) and call.error.code == code
    assert session_epochs(r).count(0) == 2
    r.available[FIRST] = [5]
    r.poll()
    assert r.acquired and not r.failures


def test_session_that_brokers_have_no_room_for_waits() -> None:
    r = joined(retry_backoff_ms=1000)
    r.session_codes = [ErrorCode.SHARE_SESSION_LIMIT_REACHED]
    r.poll()
    assert session_epochs(r).count(0) == 1
    r.advance(2000)
    r.poll()
    assert session_epochs(r).count(0) == 2 and not r.failures


def test_session_that_is_refused_for_good_fails_a_poll() -> None:
    r = joined()
    r.session_codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    r.poll()
    (failure,) = r.failures
    assert isinstance(failure, GroupAuthorizationError)


def test_connection_that_ends_ends_the_session() -> None:
    r = joined()
    r.cut()
    call = r.acknowledge({0: ACCEPT})
    assert isinstance(call.error, ShareSessionNotFoundError)
    r.session_epoch = None
    r.available[FIRST] = [0]
    for _ in range(20):
        r.poll()
    assert session_epochs(r).count(0) == 2 and r.acquired


def test_partition_whose_leader_has_moved_is_asked_elsewhere() -> None:
    r = joined(nodes=2)
    leader = r.cluster.partition(*FIRST).leader
    r.move_leader(1 - leader)
    r.part_codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    r.poll()
    nodes = [each.node_id for each in r.broker.core.requests if each.api == "ShareFetch"]
    assert nodes[0] == leader and nodes[-1] == 1 - leader and not r.failures


def test_partition_that_may_not_be_read_fails_a_poll() -> None:
    r = joined()
    r.part_codes = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    r.poll()
    (failure,) = r.failures
    assert isinstance(failure, TopicAuthorizationError) and str(FIRST) in str(failure)


# Acknowledgements


def test_acknowledgements_ride_on_the_next_fetch() -> None:
    r = joined()
    r.available[FIRST] = [0, 1, 2]
    r.poll()
    call = r.poll({r.at(): {0: ACCEPT, 1: RELEASE, 2: REJECT}})
    assert call.is_done and call.results == {FIRST: None}
    assert r.acknowledged[FIRST] == {0: 1, 1: 2, 2: 3}
    assert not r.requests("ShareAcknowledge")


def test_acknowledgements_without_a_fetch_go_alone() -> None:
    r = joined()
    call = r.acknowledge({0: ACCEPT})
    assert call.is_done and call.error is None
    (request,) = r.requests("ShareAcknowledge")
    assert not request.is_renew_ack and request.share_session_epoch == session_epochs(r)[-1] + 1


def test_acknowledgements_of_a_partition_taken_away_go_alone() -> None:
    r = joined(partitions=2)
    r.assigned = [SECOND]
    r.advance(INTERVAL_MS)
    call = r.poll({r.at(FIRST): {0: ACCEPT}})
    assert call.error is None and r.acknowledged[FIRST] == {0: 1}
    assert len(r.requests("ShareAcknowledge")) == 1


def test_renewal_goes_alone_and_needs_version_2() -> None:
    r = joined()
    assert r.poll({r.at(): {0: RENEW}}).error is None
    (request,) = r.requests("ShareAcknowledge")
    assert request.is_renew_ack
    old = joined(versions={76: (1, 1), 78: (1, 1), 79: (1, 1)})
    assert isinstance(old.acknowledge({0: RENEW}).error, UnsupportedVersionError)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID_RECORD_STATE, InvalidRecordStateError),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, NotLeaderOrFollowerError),
    ],
)
def test_acknowledgement_that_is_refused_fails_its_call(code: ErrorCode, kind: type[KafkaError]) -> None:
    r = joined()
    r.acknowledge_codes = [code]
    call = r.acknowledge({0: ACCEPT})
    assert isinstance(call.error, kind) and str(FIRST) in str(call.error)
    assert isinstance(call.results[FIRST], kind)
    assert r.acknowledge({1: ACCEPT}).error is None


def test_acknowledgement_is_sent_again_after_a_passing_error() -> None:
    r = joined()
    r.acknowledge_codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    call = r.acknowledge({0: ACCEPT})
    assert not call.is_done
    r.advance(5000)
    assert call.is_done and call.error is None and len(r.requests("ShareAcknowledge")) == 3


def test_acknowledgement_ends_at_its_time_limit() -> None:
    r = joined(default_api_timeout_ms=30_000)
    r.acknowledge_codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1000
    call = r.acknowledge({0: ACCEPT})
    r.advance(31_000)
    assert call.is_done and "timed out" in str(call.error)


# The membership


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_member_that_was_removed_joins_again(code: ErrorCode) -> None:
    r = joined()
    r.beat_codes = [code]
    r.advance(INTERVAL_MS)
    epochs = [each.member_epoch for each in r.requests("ShareGroupHeartbeat")]
    assert epochs.count(0) == 2 and epochs[-1] == 1
    assert r.engine.assigned == {FIRST} and r.engine.membership_error is None


def test_refused_member_has_an_error_until_it_subscribes() -> None:
    r = ShareReading()
    r.beat_codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    r.join()
    error = r.engine.membership_error
    assert isinstance(error, GroupAuthorizationError)
    assert "said by the broker; add the ACL READ for the group" in str(error)
    r.join()
    assert r.engine.membership_error is None and r.engine.assigned == {FIRST}


def test_heartbeats_say_what_has_changed() -> None:
    r = joined()
    r.advance(3 * INTERVAL_MS)
    first, *later = r.requests("ShareGroupHeartbeat")
    assert (first.member_epoch, first.subscribed_topic_names) == (0, [TOPIC])
    assert later and all((each.member_epoch, each.subscribed_topic_names) == (1, None) for each in later)


def test_member_leaves_after_its_sessions_are_closed() -> None:
    r = joined()
    assert r.leave().is_done
    apis = [each.api for each in r.broker.core.requests]
    assert apis[-2:] == ["ShareAcknowledge", "ShareGroupHeartbeat"]
    assert r.requests("ShareAcknowledge")[-1].share_session_epoch == -1
    assert r.requests("ShareGroupHeartbeat")[-1].member_epoch == -1 and r.epoch is None
    assert r.engine.assigned == set()
    r.join()
    assert r.engine.assigned == {FIRST}


def test_heartbeats_without_an_assignment_slow_down() -> None:
    r = ShareReading()
    r.assigned = []
    r.join()
    r.advance(4 * INTERVAL_MS)
    count = len(r.requests("ShareGroupHeartbeat"))
    r.advance(10 * INTERVAL_MS)
    assert len(r.requests("ShareGroupHeartbeat")) - count == 10


def test_subscription_during_a_leave_that_hangs_joins_again() -> None:
    r = joined()
    r.faults.delay("ShareAcknowledge", 10)
    call = r.leave()
    assert not call.is_done
    r.join()
    assert call.is_done and r.engine.assigned == {FIRST}
    r.advance(11_000)
    r.available[FIRST] = [0]
    r.poll()
    assert r.acquired and session_epochs(r).count(0) == 2


@pytest.mark.parametrize("is_stale", [False, True])
def test_leave_is_repeated_until_the_coordinator_knows(is_stale: bool) -> None:
    r = joined(max_poll_interval_ms=10_000)
    r.leave_codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    if is_stale:
        r.advance(11_000)
    else:
        call = r.leave()
        r.advance(1000)
        assert call.is_done
    assert r.epoch is None and r.leave_codes == []


def test_leave_that_is_always_refused_ends_within_request_timeout() -> None:
    r = joined(request_timeout_ms=5000)
    r.leave_codes = [ErrorCode.NOT_COORDINATOR] * 1000
    call = r.leave()
    r.advance(4000)
    assert not call.is_done
    r.advance(2000)
    assert call.is_done and len(r.leave_codes) > 970


def test_member_that_joins_again_does_not_repeat_its_leave() -> None:
    r = joined()
    r.leave_codes = [ErrorCode.NOT_COORDINATOR]
    r.faults.delay("ShareGroupHeartbeat", 1)
    r.leave()
    r.engine.subscribe(frozenset([TOPIC]))
    r.advance(3000)
    assert r.epoch == 1 and r.leave_codes == [] and r.engine.assigned == {FIRST}


def test_member_without_polls_leaves_and_joins_at_the_next(caplog: pytest.LogCaptureFixture) -> None:
    r = joined(max_poll_interval_ms=10_000)
    r.advance(11_000)
    assert r.epoch is None and r.engine.assigned == set()
    assert "did not poll for 10.0 s, 0 ms more than max.poll.interval.ms=10000" in caplog.text
    r.poll()
    assert r.epoch == 1 and r.engine.assigned == {FIRST}
    assert "joins again" in caplog.text


def test_member_that_has_expired_subscribes_and_joins_at_the_next_poll() -> None:
    r = joined(max_poll_interval_ms=10_000)
    r.advance(11_000)
    r.engine.subscribe(frozenset([TOPIC]))
    r.advance(11_000)
    assert r.epoch is None
    r.poll()
    assert r.epoch == 1 and r.engine.assigned == {FIRST}


def test_member_that_leaves_after_it_has_expired_can_subscribe() -> None:
    r = joined(max_poll_interval_ms=10_000)
    r.advance(11_000)
    assert r.leave().is_done
    r.join()
    assert r.epoch == 1 and r.engine.assigned == {FIRST}


# Metrics


def test_requests_and_acknowledgements_are_measured() -> None:
    def value(name: str) -> float:
        (found,) = (each for key, each in r.registry.snapshot(r.now_ns // MS).items() if key.name == name)
        return found

    r = joined()
    r.available = {FIRST: [0, 1, 2]}
    r.poll()
    (acquired,) = r.acquired
    r.engine.discard(acquired, 3)
    r.engine.discard(acquired, 3)
    r.acknowledge({0: ACCEPT, 1: ACCEPT})
    r.advance(ANSWER_MS)
    r.acknowledge_codes = [ErrorCode.INVALID_RECORD_STATE]
    r.acknowledge({2: ACCEPT})
    r.advance(ANSWER_MS)
    assert value("records-consumed-total") == 3 and value("bytes-consumed-total") == len(acquired.data)
    assert value("acknowledgements-send-total") == 3 and value("acknowledgements-error-total") == 1
    assert value("fetch-total") >= 1 and value("fetch-latency-max") >= ANSWER_MS
    assert value("heartbeat-total") >= 1 and value("rebalance-total") == 1
    assert value("assigned-partitions") == 1
