"""A member by KIP-848 against a coordinator that the test scripts, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch import errors
from kbatch.core.client.calls import Call
from kbatch.core.consumer.partition_state import Start
from kbatch.errors import ErrorCode
from kbatch.metrics import COORDINATOR, MetricName
from kbatch.protocol import messages
from kbatch.records import TopicPartition
from tests.support.broker_core import TOPIC
from tests.support.effort import EXAMPLES
from tests.support.group_reading import GROUP, INTERVAL_MS, GroupReading
from tests.support.reading import MS

A, B, C = (TopicPartition(TOPIC, number) for number in range(3))
FIELDS = (
    "rack_id",
    "subscribed_topic_names",
    "subscribed_topic_regex",
    "server_assignor",
    "topic_partitions",
)


def make(**settings: Any) -> GroupReading:
    settings.setdefault("partitions", 3)
    return GroupReading(**settings)


def said(heartbeat: Any) -> set[str]:
    """Return the fields that a heartbeat sets."""
    fields = {name for name in FIELDS if getattr(heartbeat, name) is not None}
    return fields | ({"rebalance_timeout_ms"} if heartbeat.rebalance_timeout_ms != -1 else set())


FULL = {"rebalance_timeout_ms", "subscribed_topic_names", "topic_partitions"}

# Joining


def test_R50_join_says_everything_later_heartbeats_what_changed() -> None:
    r = make(client_rack="east", group_remote_assignor="range", group_instance_id="one")
    r.coordinator.give(A)
    r.subscribe()
    r.live(2 * INTERVAL_MS)
    join, acknowledgement, *later = r.coordinator.heartbeats
    assert (join.group_id, join.member_epoch, join.instance_id) == (GROUP, 0, "one")
    assert said(join) == FULL | {"rack_id", "server_assignor"}
    assert (join.rack_id, join.server_assignor, join.rebalance_timeout_ms) == ("east", "range", 300_000)
    assert join.subscribed_topic_names == [TOPIC] and join.topic_partitions == []
    assert acknowledgement.member_epoch == r.coordinator.epoch
    assert said(acknowledgement) == {"topic_partitions"}
    assert later and not any(map(said, later))
    assert {each.instance_id for each in later} == {"one"}


def test_R50_member_id_is_a_uuid_for_the_consumers_life() -> None:
    r = make()
    r.join(A)
    first = r.engine.group_metadata.member_id
    assert len(first) == 22 and not first.startswith("-")
    r.coordinator.refusals = [ErrorCode.FENCED_MEMBER_EPOCH]
    r.live(2 * INTERVAL_MS)
    r.leave()
    r.subscribe()
    r.live(1000)
    assert r.engine.group_metadata.member_id == first
    assert make(seed=2).engine._context.new_member_id != first


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_R50_heartbeat_after_an_error_says_everything(code: str) -> None:
    r = make()
    r.join(A, B)
    r.coordinator.refusals = [ErrorCode[code]]
    r.live(INTERVAL_MS)
    refused, repeated, *_ = r.coordinator.heartbeats
    assert not said(refused) and said(repeated) == FULL
    assert r.coordinator._owned(repeated) == frozenset({A, B})


def test_R50_lost_answer_is_survived_with_everything_said_again() -> None:
    r = make()
    r.join(A, B)
    r.coordinator.give(A)  # the answer with it is lost
    r.faults.drop_connection("ConsumerGroupHeartbeat", "after", 1)
    r.live(2 * INTERVAL_MS)
    assert r.callbacks == [("revoke", {B})]
    assert r.engine.owned == {A}
    assert said(r.coordinator.heartbeats[1]) == FULL
    assert r.coordinator.may_own == {A}


def test_R50_new_subscription_is_said_at_once() -> None:
    r = make()
    r.cluster.create_topic("other", 1)
    r.join(A)
    r.subscribe("other")
    (heartbeat,) = r.coordinator.heartbeats
    assert said(heartbeat) == {"subscribed_topic_names"}
    assert heartbeat.subscribed_topic_names == ["other"]


# Heartbeats


def test_R51_heartbeats_go_on_while_the_program_computes() -> None:
    r = make()
    r.join(A)
    r.advance(10 * INTERVAL_MS)  # without a poll
    gaps = {
        after - before
        for before, after in zip(r.coordinator.times_ms[:-1], r.coordinator.times_ms[1:], strict=True)
    }
    assert max(gaps) <= INTERVAL_MS
    assert r.coordinator.times_ms[-1] >= r.now_ns // MS - INTERVAL_MS


def test_R51_heartbeats_name_claims_anew_only_if_they_have_changed() -> None:
    r = make()
    r.join(A)
    member: Any = r.engine._membership
    named = member.fields()["topic_partitions"]
    r.live(3 * INTERVAL_MS)
    assert member.fields()["topic_partitions"] is named
    r.coordinator.give(A, B)
    r.live(3 * INTERVAL_MS)
    (topic,) = member.fields()["topic_partitions"]
    assert topic.partitions == [A.partition, B.partition]
    assert [each.partitions for each in named] == [[A.partition]]


def test_R51_heartbeats_do_not_wait_behind_other_requests() -> None:
    r = make()
    r.join(A)
    r.faults.delay("ListOffsets", 20)
    r.engine.seek(A, Start(0))
    r.advance(2 * INTERVAL_MS)
    assert len(r.coordinator.heartbeats) >= 2
    open_links = [each for each in r.links.values() if each.is_open]
    assert len(open_links) == 3


def test_R57_unsettled_member_asks_five_times_as_often() -> None:
    r = make()
    r.subscribe()  # others have the partitions
    r.live(4 * INTERVAL_MS)
    times = r.coordinator.times_ms
    early = [each for each in times if each <= 2 * INTERVAL_MS + 200]
    late = [each for each in times if each > 2 * INTERVAL_MS + 200]
    assert len(early) == 11 or len(early) == 12
    assert len(late) <= 2
    r.coordinator.give(A)
    r.live(INTERVAL_MS)
    r.coordinator.times_ms.clear()
    r.live(4 * INTERVAL_MS)
    assert 10 <= len(r.coordinator.times_ms) <= 14, "after a change it hurries again, for two intervals"


def test_R57_members_that_join_get_partitions_soon() -> None:
    r = make()
    r.subscribe()
    r.live(1100)
    r.coordinator.give(A)  # as a coordinator computes it a second after a join
    r.live(1100)
    assert r.engine.owned == {A}


# Reconciling


def test_R52_revoked_partitions_are_given_up_before_others_come() -> None:
    r = make()
    r.put(b"a", partition=A)
    r.put(b"c", partition=C)
    r.join(A, B)
    r.coordinator.give(B, C)
    r.live(INTERVAL_MS + 200)
    assert r.callbacks == [("revoke", {A}), ("assign", {C})]
    acknowledged = [
        owned for each in r.coordinator.heartbeats if (owned := r.coordinator._owned(each)) is not None
    ]
    assert acknowledged == [{B}, {B, C}]
    assert r.engine.owned == {B, C}
    assert r.offsets(C) == [0]
    assert r.engine.reading(A) is None


def test_R52_nothing_is_acknowledged_before_the_callback_has_run() -> None:
    r = make()
    r.join(A, B)
    r.coordinator.give(A)
    r.advance(INTERVAL_MS)
    step = r.take()
    assert step is not None and step.kind == "revoke"
    r.advance(4 * INTERVAL_MS)
    assert not any(each.topic_partitions is not None for each in r.coordinator.heartbeats)
    assert r.coordinator.may_own == {A, B}
    r.finish(step)
    assert r.coordinator.may_own == {A}


def test_R52_target_without_a_change_is_acknowledged_too() -> None:
    """The coordinator may wait for it: the member may not have got what it is to give up."""
    r = make()
    r.join(A)
    r.coordinator.give(A, B)
    r.advance(INTERVAL_MS)
    assert r.engine.rebalance is not None  # the program does not take B
    r.coordinator.give(A)
    r.live(3 * INTERVAL_MS)
    assert r.coordinator.may_own == {A} == r.engine.owned
    assert r.callbacks in ([], [("assign", {B}), ("revoke", {B})])


@pytest.mark.parametrize("is_taken", [False, True])
def test_R53_full_heartbeat_claims_what_a_step_adds(is_taken: bool) -> None:
    """What it leaves out would be given to another member, and the program takes it all the same."""
    r = make()
    r.join(A)
    r.coordinator.give(A, B)
    r.advance(INTERVAL_MS)
    step = r.take() if is_taken else None
    r.coordinator.give(A)
    r.coordinator.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    r.advance(2 * INTERVAL_MS)
    assert FULL in map(said, r.coordinator.heartbeats)
    assert r.coordinator.may_own == {A, B}
    if step is not None:
        r.finish(step)
    r.live(2 * INTERVAL_MS)
    assert r.callbacks == [("assign", {B}), ("revoke", {B})]
    assert r.coordinator.may_own == {A} == r.engine.owned


def test_R52_first_assignment_is_announced_although_it_is_empty() -> None:
    r = make()
    r.subscribe()
    r.live(2 * INTERVAL_MS)
    assert r.callbacks == [("assign", set())]


def test_R52_topic_created_again_is_revoked_and_assigned() -> None:
    r = make()
    r.join(A)
    old = r.broker.topic_id()
    r.cluster.topics[TOPIC].topic_id = bytes(15) + b"\7"
    r.engine.want_topic(TOPIC)
    r.coordinator.may_own = frozenset()
    r.coordinator.give(A)
    r.live(2 * INTERVAL_MS)
    assert r.callbacks == [("revoke", {A}), ("assign", {A})]
    assert r.broker.topic_id() != old


def test_R58_topic_without_a_name_waits_and_the_rest_goes_on() -> None:
    r = make()
    r.cluster.create_topic("late", 1)
    late = TopicPartition("late", 0)
    hidden = [True]

    def metadata(request: Any) -> Any:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if hidden[0] and _asks_by_id(request) else None

    r.faults.intercept("Metadata", metadata)
    r.coordinator.give(A, late)
    r.subscribe(pattern="l.*|events")
    r.live(INTERVAL_MS)
    assert r.engine.owned <= {A}
    hidden[0] = False
    r.faults.intercept("Metadata", lambda request: _by_id(r, request))
    r.live(INTERVAL_MS)
    assert r.engine.owned == {A, late}
    assert [set(step[1]) for step in r.callbacks if step[1]]


def test_R53_heartbeat_claims_a_topic_whose_name_is_not_known_yet() -> None:
    """The name may be there before the answer that gives the partition to another member."""
    r = make()
    r.cluster.create_topic("late", 1)
    late = TopicPartition("late", 0)
    r.faults.intercept(
        "Metadata", lambda request: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _asks_by_id(request) else None
    )
    r.coordinator.give(A, late)
    r.subscribe()
    r.live(INTERVAL_MS)
    claims = [r.coordinator._owned(each) for each in r.coordinator.heartbeats if each.member_epoch > 0]
    assert r.engine.owned == {A}
    assert claims and claims[-1] is None
    assert frozenset({A, late}) in claims and frozenset({A}) not in claims


def _asks_by_id(request: Any) -> bool:
    return any(topic.name is None for topic in request.topics or ())


def _by_id(r: GroupReading, request: Any) -> Any:
    """Answer Metadata by id."""
    if not _asks_by_id(request):
        return None
    names = {each.topic_id: each.name for each in r.cluster.topics.values()}
    kind = messages.MetadataResponse
    return kind(
        topics=[
            kind.MetadataResponseTopic(name=names[each.topic_id], topic_id=each.topic_id, partitions=[])
            for each in request.topics
        ]
    )


@pytest.mark.parametrize("version", [0, 1])
def test_R59_pattern_is_matched_by_the_member(version: int) -> None:
    r = make(versions={68: (0, version)}, metadata_max_age_ms=20_000)
    r.cluster.create_topic("more-events", 1)
    r.coordinator.give(A)
    r.subscribe(pattern="ev.*")
    r.live(1000)
    join = r.coordinator.heartbeats[0]
    assert (join.subscribed_topic_names, join.subscribed_topic_regex) == ([TOPIC], None)
    assert r.engine.owned == {A}
    r.coordinator.heartbeats.clear()
    r.cluster.create_topic("events-2", 1)
    r.live(20_000)
    named = [each.subscribed_topic_names for each in r.coordinator.heartbeats if each.subscribed_topic_names]
    assert named == [[TOPIC, "events-2"]]
    r.coordinator.heartbeats.clear()
    r.subscribe(TOPIC)
    (change,) = r.coordinator.heartbeats
    assert (change.subscribed_topic_names, change.subscribed_topic_regex) == ([TOPIC], None)


def test_R59_pattern_without_a_match_joins_without_topics() -> None:
    r = make(metadata_max_age_ms=20_000)
    r.subscribe(pattern="none.*")
    r.live(1000)
    assert r.coordinator.heartbeats[0].subscribed_topic_names == []
    assert r.engine.membership_error is None
    r.cluster.create_topic("none-yet", 1)
    r.live(20_000)
    assert r.coordinator.heartbeats[-1].subscribed_topic_names in (["none-yet"], None)
    assert any(each.subscribed_topic_names == ["none-yet"] for each in r.coordinator.heartbeats)


@pytest.mark.parametrize("excludes", [True, False])
def test_R59_pattern_matches_internal_topics_unless_excluded(excludes: bool) -> None:
    r = make(exclude_internal_topics=excludes)
    r.subscribe(pattern=".*")
    r.live(1000)
    names = r.coordinator.heartbeats[0].subscribed_topic_names
    assert names == ([TOPIC] if excludes else ["__consumer_offsets", TOPIC])


# Fencing and refusals


@pytest.mark.parametrize("code", ["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"])
def test_R54_fenced_member_loses_everything_and_joins_again(code: str) -> None:
    r = make()
    r.join(A, B)
    r.coordinator.refusals = [ErrorCode[code]]
    r.advance(INTERVAL_MS)
    assert r.engine.group_metadata.generation_id == -1
    count = len(r.coordinator.heartbeats)
    commit = r.commit({A: 5})
    assert isinstance(commit.error, errors.CommitFailedError) and commit.error.partitions == (A,)
    assert not r.coordinator.commits
    r.poll()
    assert r.callbacks[0] == ("lost", {A, B})
    assert r.coordinator.heartbeats[count].member_epoch == 0, "at once"
    assert said(r.coordinator.heartbeats[count]) == FULL
    r.live(200)
    assert r.callbacks == [("lost", {A, B}), ("assign", {A, B})]


def test_R54_fenced_while_its_program_revokes() -> None:
    r = make()
    r.join(A, B)
    r.coordinator.give(B)
    r.advance(INTERVAL_MS)
    step = r.take()
    assert step is not None
    r.coordinator.refusals = [ErrorCode.FENCED_MEMBER_EPOCH]
    r.advance(INTERVAL_MS)
    assert r.engine.rebalance is None
    r.finish(step)
    r.poll()
    r.live(200)
    assert r.callbacks == [("revoke", {A}), ("lost", {B}), ("assign", {B})]


REFUSED = {
    "UNRELEASED_INSTANCE_ID": errors.UnreleasedInstanceIdError,
    "FENCED_INSTANCE_ID": errors.FencedInstanceIdError,
    "UNSUPPORTED_ASSIGNOR": errors.UnsupportedAssignorError,
    "GROUP_MAX_SIZE_REACHED": errors.GroupMaxSizeReachedError,
    "INVALID_REGULAR_EXPRESSION": errors.InvalidRegularExpressionError,
    "GROUP_AUTHORIZATION_FAILED": errors.GroupAuthorizationError,
    "INVALID_REQUEST": errors.InvalidRequestError,
}


@pytest.mark.parametrize("code", REFUSED)
def test_R55_refused_member_has_the_brokers_words_and_recovers(code: str) -> None:
    r = make()
    r.join(A)
    changes = r.change_count
    r.coordinator.refusals = [ErrorCode[code]]
    r.advance(INTERVAL_MS)
    error = r.engine.membership_error
    assert type(error) is REFUSED[code]
    assert "said by the broker" in str(error) and f"group {GROUP}" in str(error)
    assert r.change_count > changes, "the program is woken"
    count = len(r.coordinator.heartbeats)
    r.live(4 * INTERVAL_MS)
    assert len(r.coordinator.heartbeats) == count, "it does not try again by itself"
    assert r.callbacks == [("lost", {A})]
    r.subscribe()
    r.live(200)
    assert r.engine.membership_error is None
    assert r.callbacks == [("lost", {A}), ("assign", {A})]


def test_R55_recovery_waits_until_the_program_knows_of_the_loss() -> None:
    r = make()
    r.join(A)
    r.coordinator.refusals = [ErrorCode.UNRELEASED_INSTANCE_ID]
    r.advance(INTERVAL_MS)
    r.subscribe()
    r.advance(100)
    assert r.coordinator.epoch != 0 and r.engine.group_metadata.generation_id == -1
    r.live(200)
    assert r.callbacks == [("lost", {A}), ("assign", {A})]


def test_R55_group_that_may_not_be_found_ends_the_membership() -> None:
    r = make()
    r.faults.intercept("FindCoordinator", lambda request: ErrorCode.GROUP_AUTHORIZATION_FAILED)
    r.subscribe()
    r.live(100)
    assert isinstance(r.engine.membership_error, errors.GroupAuthorizationError)


def test_R60_coordinator_is_found_again_without_a_pause() -> None:
    r = make()
    r.join(A)
    finds = len(r.requests("FindCoordinator"))
    r.coordinator.refusals = [ErrorCode.NOT_COORDINATOR]
    r.advance(INTERVAL_MS)
    first, second = r.coordinator.times_ms[:2]
    assert second == first
    assert len(r.requests("FindCoordinator")) == finds + 1
    assert r.engine.owned == {A}


def test_R60_coordinators_that_refuse_for_long_are_not_flooded() -> None:
    r = make()
    r.join(A)
    r.coordinator.refusals = [ErrorCode.NOT_COORDINATOR] * 1000
    r.advance(INTERVAL_MS + 2000)
    assert len(r.coordinator.heartbeats) < 20


def test_R60_loading_coordinator_is_waited_for() -> None:
    r = make(retry_backoff_ms=500, retry_backoff_max_ms=500)
    r.join(A)
    r.coordinator.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    r.advance(INTERVAL_MS + 1000)
    first, second = r.coordinator.times_ms[:2]
    assert second - first == 500


# Leaving


@pytest.mark.parametrize(
    ("instance_id", "leave", "epoch"),
    [
        (None, None, -1),
        (None, True, -1),
        (None, False, None),
        ("one", None, -2),
        ("one", False, -2),
        ("one", True, -1),
    ],
)
def test_R56_leave_chooses_how_a_member_leaves(
    instance_id: str | None, leave: bool | None, epoch: int | None
) -> None:
    r = make(group_instance_id=instance_id)
    r.join(A, B)
    call = r.leave(leave)
    assert call.is_done and call.error is None
    assert r.callbacks == [("revoke", {A, B})]
    assert [each.member_epoch for each in r.coordinator.heartbeats] == ([] if epoch is None else [epoch])
    assert r.engine.group_metadata.generation_id == -1
    r.live(2 * INTERVAL_MS)
    assert len(r.coordinator.heartbeats) <= 1
    assert r.engine.reading(A) is None


def test_R56_leave_waits_for_the_program_and_its_commits() -> None:
    r = make()
    r.join(A)
    call = Call("close")
    r.engine.leave(call)
    r.run()
    step = r.take()
    assert step is not None and not call.is_done
    r.advance(2 * INTERVAL_MS)
    assert [each.member_epoch for each in r.coordinator.heartbeats] != []
    assert all(each.member_epoch > 0 for each in r.coordinator.heartbeats), "it stays alive meanwhile"
    commit = r.commit({A: 7})
    assert commit.is_done and commit.error is None
    r.finish(step)
    assert call.is_done
    assert r.coordinator.committed[A].offset == 7


def test_R56_leaving_is_not_held_up_by_a_missing_coordinator() -> None:
    r = make()
    r.join(A)
    r.unreachable = {0}
    r.cut()
    r.advance(2000)
    call = r.leave()
    r.advance(5000)
    r.poll()
    assert call.is_done


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", None])
def test_R56_leave_is_repeated_until_the_coordinator_knows(code: str | None) -> None:
    """Else its partitions are not read until its session ends."""
    r = make()
    r.join(A)
    if code is None:
        r.faults.drop_connection("ConsumerGroupHeartbeat", "before", 1)
    else:
        r.coordinator.refusals = [ErrorCode[code]]
    call = r.leave()
    r.live(1000)
    assert call.is_done and call.error is None
    assert r.coordinator.epoch == 0
    epochs = [each.member_epoch for each in r.coordinator.heartbeats]
    assert epochs == ([-1] if code is None else [-1, -1])


def test_R56_leave_that_is_always_refused_ends_within_request_timeout() -> None:
    r = make(request_timeout_ms=5000)
    r.join(A)
    r.coordinator.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000
    call = r.leave()
    r.live(4000)
    assert not call.is_done
    r.live(2000)
    assert call.is_done
    assert len(r.coordinator.heartbeats) < 30


def test_R56_member_that_joins_again_does_not_repeat_its_leave() -> None:
    r = make(max_poll_interval_ms=20_000)
    r.join(A)
    r.advance(19_000)
    r.faults.delay("ConsumerGroupHeartbeat", 2)
    r.advance(1500)
    r.coordinator.refusals = [ErrorCode.NOT_COORDINATOR]
    r.live(20_000)
    assert [each.member_epoch for each in r.coordinator.heartbeats].count(-1) == 1
    assert r.engine.owned == {A}


def test_R56_without_a_membership_it_is_done_at_once() -> None:
    r = make()
    assert r.leave().is_done
    r.subscribe()
    assert r.leave().is_done


def test_R56_member_fenced_while_leaving_has_lost_everything() -> None:
    r = make()
    r.join(A)
    r.coordinator.refusals = [ErrorCode.FENCED_MEMBER_EPOCH]
    call = Call("close")
    r.engine.leave(call)
    r.advance(2 * INTERVAL_MS)
    r.poll()
    assert call.is_done
    assert r.callbacks == [("lost", {A})]
    assert all(each.member_epoch > 0 for each in r.coordinator.heartbeats)


def test_R56_member_joins_again_after_it_has_left() -> None:
    r = make()
    r.cluster.create_topic("other", 1)
    r.join(A)
    call = Call("unsubscribe")
    r.engine.leave(call)
    r.subscribe("other")  # while it still leaves
    r.live(1000)
    assert call.is_done
    assert r.callbacks == [("revoke", {A}), ("assign", {A})]
    leaving, join, *_ = r.coordinator.heartbeats
    assert (leaving.member_epoch, join.member_epoch, join.subscribed_topic_names) == (-1, 0, ["other"])


def test_R56_leave_withdraws_what_the_program_has_not_taken() -> None:
    r = make()
    r.join(A)
    r.coordinator.give(A, B)
    r.advance(INTERVAL_MS)
    assert r.engine.rebalance is not None
    assert r.leave().is_done
    assert r.callbacks == [("revoke", {A})]


# Liveness


def test_R69_member_that_does_not_poll_leaves_and_comes_back() -> None:
    r = make(max_poll_interval_ms=20_000)
    r.put(b"a")
    r.join(A)
    r.advance(19_000)
    assert all(each.member_epoch > 0 for each in r.coordinator.heartbeats)
    r.advance(2000)
    assert r.coordinator.heartbeats[-1].member_epoch == -1
    count = len(r.coordinator.heartbeats)
    r.advance(60_000)
    assert len(r.coordinator.heartbeats) == count
    assert r.engine.group_metadata.generation_id == -1
    commit = r.commit({A: 1})
    assert isinstance(commit.error, errors.CommitFailedError)
    assert "did not poll for 20.0 s" in str(commit.error)
    assert r.engine.note_poll(r.now_ns), "the owner has to be woken"
    r.live(200)
    assert r.callbacks == [("lost", {A}), ("assign", {A})]
    assert not r.engine.note_poll(r.now_ns)


def test_R74_first_poll_after_a_reminder_wakes_the_owner() -> None:
    """Without a wake, the owner would sleep until its next heartbeat, and remind late of the next poll."""
    r = make(auto_commit_interval_ms=500)
    r.put(b"a")
    r.join(A)
    r.engine.note_poll(r.now_ns)
    r.advance(2000)
    assert r.engine.note_poll(r.now_ns)
    assert not r.engine.note_poll(r.now_ns)


def test_R69_text_says_by_how_much(caplog: pytest.LogCaptureFixture) -> None:
    r = make(max_poll_interval_ms=20_000)
    r.join(A)
    r.advance(50_000)
    r.poll()
    (text,) = [each.getMessage() for each in caplog.records if "joins again" in each.getMessage()]
    assert "did not poll for 50.0 s, 30" in text and "max.poll.interval.ms=20000" in text


def test_R69_static_member_keeps_its_place() -> None:
    r = make(max_poll_interval_ms=20_000, group_instance_id="one")
    r.join(A)
    r.advance(21_000)
    assert r.coordinator.heartbeats[-1].member_epoch == -2


def test_R69_member_that_polls_again_does_not_await_its_leave() -> None:
    r = make(max_poll_interval_ms=20_000)
    r.join(A)
    r.faults.delay("ConsumerGroupHeartbeat", 10)
    r.advance(21_000)
    r.faults.delay("ConsumerGroupHeartbeat", 0)
    r.live(30_000)
    assert r.callbacks == [("lost", {A}), ("assign", {A})]


def test_R69_answer_to_an_earlier_membership_does_not_count() -> None:
    r = make(max_poll_interval_ms=20_000)
    r.join(A)
    r.faults.delay("ConsumerGroupHeartbeat", 6)
    r.advance(18_000)
    r.coordinator.refusals = [ErrorCode.FENCED_MEMBER_EPOCH] * 3
    r.advance(20_000)
    assert r.engine.membership_error is None and r.engine.rebalance is not None


def test_R70_poll_that_waits_counts_as_polling() -> None:
    r = make(max_poll_interval_ms=20_000)
    r.join(A)
    r.live(60_000, every_ms=500)
    assert all(each.member_epoch > 0 for each in r.coordinator.heartbeats)
    assert not r.callbacks


# Metrics


def metric(r: GroupReading, name: str) -> float:
    key = MetricName(name, COORDINATOR, (("client-id", "c"),))
    return r.registry.snapshot(r.now_ns // MS)[key]


def test_R94_coordinators_metrics_have_javas_names() -> None:
    r = make()
    assert metric(r, "last-heartbeat-seconds-ago") == metric(r, "last-rebalance-seconds-ago") == -1
    r.join(A, B)
    assert metric(r, "rebalance-total") == 1
    assert metric(r, "assigned-partitions") == 2
    assert metric(r, "failed-rebalance-total") == 0
    r.commit({A: 1})
    assert metric(r, "commit-total") == 1
    r.advance(3000)
    assert metric(r, "last-rebalance-seconds-ago") == 3
    assert metric(r, "heartbeat-total") >= 2
    r.coordinator.give(A)
    r.live(INTERVAL_MS + 200)
    assert metric(r, "rebalance-total") == 2
    assert metric(r, "rebalance-latency-max") >= 0
    assert metric(r, "rebalance-rate-per-hour") > 0
    r.coordinator.give(A, B)
    r.advance(INTERVAL_MS)
    r.coordinator.refusals = [ErrorCode.FENCED_MEMBER_EPOCH]
    r.advance(INTERVAL_MS)
    assert metric(r, "failed-rebalance-total") == 1


# Any order of events

EVENTS = st.one_of(
    st.tuples(st.just("give"), st.frozensets(st.sampled_from([A, B, C]))),
    st.tuples(
        st.just("refuse"), st.sampled_from(["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "NOT_COORDINATOR"])
    ),
    st.tuples(st.just("drop"), st.sampled_from(["before", "after"])),
    st.tuples(st.just("cut"), st.none()),
    st.tuples(st.just("advance"), st.sampled_from([10, 700, INTERVAL_MS, 40_000])),
    st.tuples(st.just("poll"), st.none()),
    st.tuples(st.just("take"), st.none()),
    st.tuples(st.just("finish"), st.none()),
    st.tuples(st.just("commit"), st.sampled_from([A, B, C])),
)


@pytest.mark.slow
@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(st.lists(EVENTS, max_size=25))
def test_R53_member_never_reads_what_was_given_to_others(
    script: list[tuple[str, Any]],
) -> None:
    """Whatever comes in which order, it reads only what the coordinator counts as its own or has taken away
    without its knowledge, callbacks see each partition once, and at last it owns its target.
    """
    r = make(max_poll_interval_ms=30_000)
    r.subscribe()
    seen: set[TopicPartition] = set()
    taken: list[Any] = []
    told = 0

    def note() -> None:
        nonlocal told
        for kind, partitions in r.callbacks[told:]:
            if kind == "assign":
                assert seen.isdisjoint(partitions)
                seen.update(partitions)
            else:
                assert seen >= partitions
                seen.difference_update(partitions)
        told = len(r.callbacks)

    for action, value in script:
        if action == "give":
            r.coordinator.give(*value)
        elif action == "refuse":
            r.coordinator.refusals.append(ErrorCode[value])
        elif action == "drop":
            r.faults.drop_connection("ConsumerGroupHeartbeat", value, 1)
        elif action == "cut":
            r.cut()
        elif action == "advance":
            r.advance(value)
        elif action == "poll" and not taken:
            r.poll()
        elif action == "take" and not taken:
            taken += [step] if (step := r.take()) is not None else []
        elif action == "finish" and taken:
            r.finish(taken.pop())
        elif action == "commit":
            held = r.engine.owned | {each for step in taken for each in step.partitions}
            call = r.commit({value: 1}, retries=False)
            assert value in held or not call.is_done or call.error is not None
        note()
        if r.engine.group_metadata.generation_id == r.coordinator.epoch > 0:
            assert r.engine.owned <= r.coordinator.may_own
    if taken:
        r.finish(taken.pop())
    r.coordinator.refusals.clear()
    r.live(30_000, every_ms=500)
    note()
    assert r.engine.owned == r.coordinator.target == seen
