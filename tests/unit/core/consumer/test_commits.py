"""Commits and look-ups of a group's member, and of a consumer that assigns its own partitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch import errors
from kbatch.core.client.calls import Call
from kbatch.core.consumer.commits import CommitOffsets
from kbatch.core.consumer.membership import Subscription
from kbatch.core.consumer.partition_state import EARLIEST
from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.records import OffsetAndMetadata, TopicPartition
from tests.support.broker_core import TOPIC
from tests.support.effort import EXAMPLES
from tests.support.group_reading import GROUP, INTERVAL_MS, GroupReading

A, B, C = (TopicPartition(TOPIC, number) for number in range(3))


def member(*owned: TopicPartition, **settings: Any) -> GroupReading:
    """Return a member that owns partitions."""
    r = GroupReading(partitions=3, **settings)
    r.join(*(owned or (A, B)))
    return r


def alone(**settings: Any) -> GroupReading:
    """Return a consumer that assigns its own partitions."""
    r = GroupReading(partitions=3, **settings)
    r.read(A, B, start=EARLIEST)
    return r


def refuse_partitions(r: GroupReading, codes: dict[TopicPartition, list[str]]) -> None:
    """Answer commits of these partitions with these codes, one after the other."""
    left = {partition: list(names) for partition, names in codes.items()}

    def answer(request: Any) -> Any:
        response = r.coordinator.commit(request)
        for topic in response.topics:
            for each in topic.partitions:
                names = left.get(TopicPartition(TOPIC, each.partition_index))
                if names:
                    each.error_code = ErrorCode[names.pop(0)]
        return response

    r.faults.intercept("OffsetCommit", answer)


# What is sent


def test_R75_commit_says_the_member_and_the_leader_epochs() -> None:
    r = member(group_instance_id="one")
    call = r.commit({B: OffsetAndMetadata(7, "note", 3), A: 5})
    assert call.is_done and call.error is None and not call.failed
    (request,) = r.coordinator.commits
    assert (request.group_id, request.member_id) == (GROUP, r.engine.group_metadata.member_id)
    assert request.generation_id_or_member_epoch == r.coordinator.epoch
    assert request.group_instance_id == "one"
    first, second = request.topics[0].partitions
    assert (first.partition_index, first.committed_offset, first.committed_leader_epoch) == (0, 5, -1)
    assert (second.committed_offset, second.committed_leader_epoch) == (7, 3)
    assert second.committed_metadata == "note"
    assert r.coordinator.committed == {A: OffsetAndMetadata(5), B: OffsetAndMetadata(7, "note", 3)}


def test_R84_offsets_after_the_log_are_committed_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    r = member()
    r.put(b"a", b"b")
    r.advance(1000)
    assert r.commit({A: 2, B: 0}).error is None
    assert not caplog.records
    assert r.commit({A: 3, B: 10**12}).error is None
    assert (r.coordinator.committed[A].offset, r.coordinator.committed[B].offset) == (3, 10**12)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        f"group g: commits {A} at 3, although its log ended at 2 when last read; "
        f"{B} at 1000000000000, although its log ended at 0 when last read"
    )


# Order


def test_R76_commits_are_sent_one_at_a_time_and_done_in_order() -> None:
    r = member()
    r.faults.delay("OffsetCommit", 1)
    calls = [r.begin_commit({A: offset}, retries=offset == 3) for offset in (1, 2, 3)]
    done = []
    for _ in range(5):
        r.advance(1000)
        done.append(sum(call.is_done for call in calls))
        assert [call.is_done for call in calls] == sorted((call.is_done for call in calls), reverse=True)
    assert done == sorted(done) and done[0] == 1 and done[-1] == 3
    assert r.coordinator.committed[A].offset == 3


def test_R76_empty_commit_is_done_after_all_earlier_ones() -> None:
    r = member()
    r.faults.delay("OffsetCommit", 1)
    first = r.begin_commit({A: 1}, retries=False)
    last = r.commit({})
    r.advance(500)
    assert not last.is_done
    r.advance(1000)
    assert first.is_done and last.is_done and last.error is None
    assert len(r.coordinator.commits) == 1


def test_R76_commit_with_retries_is_sent_until_it_succeeds() -> None:
    r = member()
    r.coordinator.commit_refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    call = r.begin_commit({A: 1})
    later = r.commit({A: 2}, retries=False)
    assert not call.is_done and not later.is_done, "an older offset must not replace a newer one"
    r.advance(10_000)
    assert call.error is None and later.error is None
    offsets = [each.topics[0].partitions[0].committed_offset for each in r.coordinator.commits]
    assert offsets == [1, 1, 1, 1, 2]


@pytest.mark.parametrize(
    "code", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "UNKNOWN_TOPIC_OR_PARTITION"]
)
def test_R76_commit_without_retries_is_done_after_one_answer(code: str) -> None:
    r = member()
    r.coordinator.commit_refusals = [ErrorCode[code]]
    call = r.commit({A: 1}, retries=False)
    assert call.is_done and isinstance(call.error, errors.KafkaError)
    assert call.error.retriable and call.error.code == ErrorCode[code]
    assert call.failed == {A: call.error}
    again = r.commit({A: 1}, retries=False)
    assert again.is_done and again.error is None, "the next one has no back-off"


def test_R76_commit_ends_after_default_api_timeout() -> None:
    r = member(default_api_timeout_ms=7000)
    r.coordinator.commit_refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000
    call, short = r.begin_commit({A: 1}), r.begin_commit({A: 2}, timeout_ms=1000)
    r.advance(1100)
    assert short.is_done and not call.is_done
    r.advance(5800)
    assert not call.is_done
    r.advance(200)
    assert isinstance(call.error, errors.KafkaTimeoutError)
    assert f"commit(), group {GROUP}: no answer after 7000 ms" in str(call.error)
    assert isinstance(call.error.__cause__, errors.CoordinatorLoadInProgressError)


def test_R76_late_answer_does_not_disturb_the_next_commit() -> None:
    r = member()
    r.faults.delay("OffsetCommit", 3)
    late = r.commit({A: 1}, timeout_ms=1000)
    r.advance(1100)
    assert isinstance(late.error, errors.KafkaTimeoutError)
    r.faults.delay("OffsetCommit", 0)
    call = r.commit({A: 2})
    assert not any(link.frames for link in r.links.values()), "the late one may still be written"
    r.advance(3000)
    assert call.is_done and call.error is None
    assert r.coordinator.committed[A].offset == 2


def test_R76_moved_coordinator_is_found_again() -> None:
    r = member()
    r.coordinator.commit_refusals = [ErrorCode.NOT_COORDINATOR]
    finds = len(r.requests("FindCoordinator"))
    call = r.commit({A: 1})
    r.advance(1000)
    assert call.is_done and call.error is None
    assert len(r.requests("FindCoordinator")) == finds + 1


def test_R76_lost_answer_is_repeated() -> None:
    r = member()
    r.faults.drop_connection("OffsetCommit", "after", 1)
    call = r.commit({A: 1})
    r.advance(2000)
    assert call.is_done and call.error is None


# Some partitions


def test_commit_repeats_only_the_partitions_that_failed() -> None:
    r = member()
    refuse_partitions(r, {B: ["UNKNOWN_TOPIC_OR_PARTITION"]})
    call = r.commit({A: 1, B: 2})
    r.advance(1000)
    assert call.is_done and call.error is None
    sent = [
        [each.partition_index for each in request.topics[0].partitions] for request in r.coordinator.commits
    ]
    assert sent == [[0, 1], [1]]


def test_R82_metadata_that_is_too_large_names_the_partition() -> None:
    r = member()
    refuse_partitions(r, {B: ["OFFSET_METADATA_TOO_LARGE"]})
    call = r.commit({A: 1, B: OffsetAndMetadata(2, "x" * 5000)})
    assert isinstance(call.error, errors.OffsetMetadataTooLargeError)
    assert "events-1" in str(call.error) and "events-0" not in str(call.error)
    assert call.failed.keys() == {B}
    assert r.coordinator.committed[A].offset == 1


def test_commit_with_several_errors_names_them_all() -> None:
    r = member(A, B, C)
    refuse_partitions(
        r,
        {
            A: ["COORDINATOR_LOAD_IN_PROGRESS"],
            B: ["OFFSET_METADATA_TOO_LARGE"],
            C: ["TOPIC_AUTHORIZATION_FAILED"],
        },
    )
    call = r.commit({A: 1, B: 2, C: 3})
    assert not call.is_done, "the others are not given up"
    r.advance(1000)
    assert call.failed.keys() == {B, C}
    assert isinstance(call.error, errors.KafkaError)
    texts = str(call.error) + "".join(call.error.__notes__)
    assert "events-1" in texts and "events-2" in texts
    assert r.coordinator.committed[A].offset == 1


# Generations


def test_R77_outdated_epoch_is_repeated_with_the_next_one() -> None:
    r = member()
    r.coordinator.give(A, B, C)
    r.coordinator.commit_refusals = [ErrorCode.STALE_MEMBER_EPOCH]
    call = r.commit({A: 1})
    assert call.is_done and call.error is None, "a heartbeat learns the epoch at once"
    epochs = [each.generation_id_or_member_epoch for each in r.coordinator.commits]
    assert epochs == [2, 3]
    assert r.coordinator.committed[A].offset == 1


def test_R77_outdated_epoch_of_a_lost_partition_fails() -> None:
    r = member()
    r.coordinator.give(B)
    r.coordinator.commit_refusals = [ErrorCode.STALE_MEMBER_EPOCH] * 3
    call = r.commit({A: 1, B: 2})
    r.live(INTERVAL_MS)
    assert isinstance(call.error, errors.CommitFailedError)
    assert call.error.partitions == (A,) and call.failed.keys() == {A}
    assert r.coordinator.committed == {B: OffsetAndMetadata(2)}


def test_R77_async_commit_survives_an_outdated_epoch_too() -> None:
    r = member()
    r.coordinator.give(A, B, C)
    r.coordinator.commit_refusals = [ErrorCode.STALE_MEMBER_EPOCH]
    assert r.commit({A: 1}, retries=False).error is None


@pytest.mark.parametrize("code", ["UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "GROUP_ID_NOT_FOUND"])
def test_R78_commit_of_a_lost_member_fails_and_reading_goes_on(code: str) -> None:
    r = member()
    r.coordinator.commit_refusals = [ErrorCode[code]]
    r.coordinator.refusals = [ErrorCode.UNKNOWN_MEMBER_ID]
    call = r.commit({A: 1, B: 2})
    assert isinstance(call.error, errors.CommitFailedError)
    assert call.error.partitions == (A, B) and code in str(call.error)
    r.live(1000)
    assert r.callbacks == [("lost", {A, B}), ("assign", {A, B})], "the member finds out at once"
    assert r.commit({A: 1}).error is None


def test_R78_partition_of_another_member_is_not_committed() -> None:
    """The coordinator would accept it, and the new owner would read again what it has read."""
    r = member(A, B)
    r.coordinator.give(B)
    r.live(INTERVAL_MS + 1000)
    call = r.commit({A: 1, B: 1})
    assert isinstance(call.error, errors.CommitFailedError) and call.error.partitions == (A,)
    assert r.coordinator.committed == {B: OffsetAndMetadata(1)}


def test_R78_commit_of_a_partition_that_was_lost_and_came_back_fails() -> None:
    """Another member may have had it meanwhile, and have committed more."""
    r = member()
    r.faults.delay("OffsetCommit", 2)
    first, second = r.begin_commit({A: 1}), r.begin_commit({A: 2})
    r.run()
    r.coordinator.refusals = [ErrorCode.UNKNOWN_MEMBER_ID]
    r.engine.subscribe(Subscription(frozenset([TOPIC, "other"])))  # a heartbeat, at once
    r.live(1000)
    assert r.callbacks == [("lost", {A, B}), ("assign", {A, B})]
    assert not first.is_done
    r.live(4000)
    assert first.error is None
    assert isinstance(second.error, errors.CommitFailedError) and second.error.partitions == (A,)
    assert r.coordinator.committed == {A: OffsetAndMetadata(1)}


def test_R78_commit_before_the_first_assignment_fails() -> None:
    r = GroupReading()
    r.coordinator.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 100
    r.subscribe()
    call = r.commit({A: 1})
    assert isinstance(call.error, errors.CommitFailedError)
    assert not r.coordinator.commits


def test_R79_partition_that_is_being_revoked_can_be_committed() -> None:
    r = member()
    r.coordinator.give(B)
    r.advance(INTERVAL_MS)
    step = r.take()
    assert step is not None and step.kind == "revoke"
    r.advance(2 * INTERVAL_MS)
    assert r.commit({A: 9}).error is None
    r.finish(step)
    assert r.coordinator.committed[A].offset == 9
    assert isinstance(r.commit({A: 10}).error, errors.CommitFailedError)


# Without a membership


def test_R80_assigned_partitions_are_committed_without_a_member() -> None:
    r = alone()
    assert r.commit({A: 3}).error is None
    (request,) = r.coordinator.commits
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    assert r.coordinator.committed[A].offset == 3


def test_R80_group_with_members_refuses_it() -> None:
    r = alone()
    r.coordinator.commit_refusals = [ErrorCode.UNKNOWN_MEMBER_ID]
    call = r.commit({A: 3})
    assert isinstance(call.error, errors.CommitFailedError)
    assert "the group has members" in str(call.error) and "another group.id" in str(call.error)


def test_commit_needs_a_group() -> None:
    r = GroupReading(group_id=None)
    r.read(A)
    with pytest.raises(errors.InvalidGroupIdError, match=r"commit\(\) needs a group; set group\.id"):
        r.commit({A: 1})
    with pytest.raises(errors.InvalidGroupIdError, match=r"committed\(\) needs a group"):
        r.committed(A)
    with pytest.raises(errors.InvalidGroupIdError):
        r.subscribe()
    with pytest.raises(errors.InvalidGroupIdError):
        _ = r.engine.group_metadata


def test_commits_fail_with_the_client() -> None:
    r = member()
    r.faults.delay("OffsetCommit", 1)
    calls: list[Any] = [r.commit({A: 1}), r.begin_commit({A: 2}), Call("close")]
    r.engine.leave(calls[-1])
    r.run()
    error = errors.UnsupportedVersionError("no")
    r.engine.fail(error)
    r.run()
    assert [call.error for call in calls] == [error] * 3
    assert r.commit({A: 1}).error is error


# Look-ups


def test_committed_offsets_are_looked_up() -> None:
    r = member()
    r.coordinator.committed = {A: OffsetAndMetadata(5, "note", 2)}
    call = r.committed(A, B)
    assert call.is_done and call.error is None
    assert call.answer == {A: OffsetAndMetadata(5, "note", 2)}
    assert r.committed().answer == {}


def test_R83_open_transaction_is_waited_out() -> None:
    r = member()
    r.coordinator.committed = {A: OffsetAndMetadata(5), B: OffsetAndMetadata(6)}
    r.coordinator.unstable = {B}
    call = r.committed(A, B)
    r.advance(2000)
    assert not call.is_done
    r.coordinator.unstable = set()
    r.advance(2000)
    assert call.is_done and {each.offset for each in call.answer.values()} == {5, 6}
    asked = [request.groups[0].topics[0].partition_indexes for request in r.requests("OffsetFetch")]
    assert asked[-1] == [1], "only the open one is asked for again"
    assert all(request.require_stable for request in r.requests("OffsetFetch"))


def test_R83_look_up_ends_after_its_time_out() -> None:
    r = member()
    r.coordinator.unstable = {A}
    call = r.committed(A, timeout_ms=3000)
    r.advance(3000)
    assert isinstance(call.error, errors.KafkaTimeoutError)
    assert isinstance(call.error.__cause__, errors.UnstableOffsetCommitError)


@pytest.mark.parametrize("version", messages.OffsetFetchRequest.versions)
def test_look_up_is_understood_by_every_broker(version: int) -> None:
    key = messages.OffsetFetchRequest.api_key
    r = GroupReading(has_script=False, versions={key: (1, version)})
    r.read(A)
    assert r.commit({A: OffsetAndMetadata(3, "note", 0)}).error is None
    r.advance(100)
    call = r.committed(A)
    r.advance(100)
    assert call.is_done and call.error is None
    assert call.answer[A].offset == 3 and call.answer[A].metadata == "note"


@pytest.mark.parametrize("version", messages.OffsetCommitRequest.versions)
def test_commit_is_understood_by_every_broker(version: int) -> None:
    key = messages.OffsetCommitRequest.api_key
    r = GroupReading(has_script=False, versions={key: (2, version)})
    r.read(A)
    call = r.commit({A: OffsetAndMetadata(3, "note", 0)})
    r.advance(100)
    assert call.is_done and call.error is None


def commit_raw(r: GroupReading, offset: int, epoch: int) -> None:
    """Commit numbers that only a program of another kind commits."""

    def answer(request: Any) -> Any:
        response = r.coordinator.fetch_offsets(request)
        for topic in response.groups[0].topics:
            for each in topic.partitions:
                each.committed_offset, each.committed_leader_epoch = offset, epoch
        return response

    r.faults.intercept("OffsetFetch", answer)


@pytest.mark.parametrize("offset", [-1, -2, -1001, -(2**63)])
def test_negative_committed_offset_is_none(offset: int) -> None:
    r = GroupReading(partitions=3)
    r.put(b"a", partition=A)
    commit_raw(r, offset, -1)
    r.join(A)
    r.advance(1000)
    assert r.offsets(A) == [0]
    assert r.committed(A).answer == {}


@pytest.mark.parametrize("epoch", [-2, -7, -(2**31)])
def test_negative_committed_epoch_is_none(epoch: int) -> None:
    r = GroupReading(partitions=3)
    r.put(b"a", b"b", partition=A)
    commit_raw(r, 1, epoch)
    r.join(A)
    r.advance(1000)
    assert r.offsets(A) == [1]
    assert r.committed(A).answer == {A: OffsetAndMetadata(1)}


def test_committed_offset_beyond_every_log_is_out_of_range() -> None:
    r = GroupReading(partitions=3)
    r.put(b"a", partition=A)
    commit_raw(r, 2**63 - 1, -1)
    r.join(A)
    r.advance(1000)
    assert r.offsets(A) == [0]


def test_look_up_that_is_refused_fails() -> None:
    r = member()
    r.faults.intercept("OffsetFetch", lambda request: ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(r.committed(A).error, errors.GroupAuthorizationError)


# Topics that are deleted, and created again under the same name

COMMIT_API, LOOKUP_API = messages.OffsetCommitRequest.api_key, messages.OffsetFetchRequest.api_key
BY_NAME = {COMMIT_API: (2, 9), LOOKUP_API: (1, 9)}


def delete_topic(r: GroupReading) -> None:
    r.broker.act(lambda state: state.delete_topic(TOPIC))


def create_again(r: GroupReading) -> None:
    """Put another topic in the topic's place."""
    delete_topic(r)
    r.cluster.create_topic(TOPIC, 3)


def test_commit_names_the_topic_by_the_id_that_was_read() -> None:
    r = member()
    topic_id = r.broker.topic_id(TOPIC)
    assert r.commit({A: OffsetAndMetadata(1, topic_id=topic_id), B: 2}).error is None
    (topic,) = r.coordinator.commits[0].topics
    assert (topic.name, topic.topic_id) == ("", topic_id)


@pytest.mark.parametrize("versions", [{}, BY_NAME], ids=["ids", "names"])
def test_offset_of_a_deleted_topic_is_not_committed_for_another(versions: dict[int, tuple[int, int]]) -> None:
    r = member(versions=versions, metadata_max_age_ms=1000)
    old = r.broker.topic_id(TOPIC)
    create_again(r)
    if versions:  # names do not say which topic is meant, unless metadata does
        r.advance(2000)
    call = r.commit({A: OffsetAndMetadata(5, topic_id=old)})
    r.advance(2000)
    assert call.is_done and isinstance(call.error, errors.UnknownTopicIdError)
    assert "deleted and created again" in str(call.error)
    assert call.failed.keys() == {A} and not r.coordinator.committed


@pytest.mark.parametrize("versions", [{}, BY_NAME], ids=["ids", "names"])
def test_commit_of_a_deleted_topic_ends_when_metadata_say_so(versions: dict[int, tuple[int, int]]) -> None:
    r = member(versions=versions, allow_auto_create_topics=False)
    topic_id = r.broker.topic_id(TOPIC)
    delete_topic(r)
    refuse_topic(r)
    call = r.commit({A: OffsetAndMetadata(5, topic_id=topic_id)})
    assert not call.is_done
    r.advance(3000)
    assert call.is_done and isinstance(call.error, errors.UnknownTopicOrPartitionError)


def refuse_topic(r: GroupReading) -> None:
    """Let the coordinator say that it does not know the topic."""
    kind = messages.OffsetCommitResponse

    def refuse(request: Any) -> Any:
        by_id = request.topics[0].topic_id != bytes(16)
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics = [
            kind.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    kind.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return kind(topics=topics)

    r.faults.intercept("OffsetCommit", refuse)


@pytest.mark.parametrize("versions", [{}, BY_NAME], ids=["ids", "names"])
def test_last_commit_does_not_wait_for_a_missing_topic(versions: dict[int, tuple[int, int]]) -> None:
    r = member(versions=versions)
    refuse_topic(r)
    call = r.commit({A: 1, B: 2}, is_last=True)
    assert call.is_done and isinstance(call.error, errors.UnknownTopicOrPartitionError)
    assert call.failed.keys() == {A, B}


def test_commit_waits_for_a_coordinator_that_does_not_know_a_new_topic_yet() -> None:
    r = member()
    r.coordinator.commit_refusals = [ErrorCode.UNKNOWN_TOPIC_ID] * 3
    call = r.commit({A: OffsetAndMetadata(1, topic_id=r.broker.topic_id(TOPIC))})
    assert not call.is_done
    r.advance(3000)
    assert call.is_done and call.error is None


def test_offsets_with_and_without_ids_go_in_two_requests() -> None:
    r = member()
    unknown = TopicPartition("unknown", 0)
    r.engine._ownership._tenures[unknown] = 1
    call = r.commit({A: 1, unknown: 2}, retries=False)
    r.advance(100)
    assert call.is_done
    by_id, by_name = r.coordinator.commits
    assert [each.topic_id for each in by_id.topics] == [r.broker.topic_id(TOPIC)]
    assert [(each.name, each.topic_id) for each in by_name.topics] == [("unknown", bytes(16))]


@pytest.mark.parametrize("versions", [{}, BY_NAME], ids=["ids", "names"])
def test_committed_offset_of_another_topic_does_not_count(versions: dict[int, tuple[int, int]]) -> None:
    r = GroupReading(partitions=3, versions=versions)
    for value in b"abc":
        r.put(bytes([value]), partition=A)
    r.coordinator.committed[A] = OffsetAndMetadata(2, topic_id=bytes(15) + b"x")
    r.join(A)
    r.advance(1000)
    assert r.offsets(A) == ([2] if versions else [0, 1, 2])
    state = r.engine.reading(A)
    assert state is not None and state.topic_id == r.broker.topic_id(TOPIC)


def test_assigned_topic_is_not_read_as_another_of_its_name() -> None:
    """The coordinator assigns topics by their ids: another member may have the new one."""
    r = member(A, metadata_max_age_ms=500)
    r.put(b"old", partition=A)
    r.live(1000)
    old = r.broker.topic_id(TOPIC)
    create_again(r)
    r.put(b"new", partition=A)
    requests = len(r.requests("Metadata"))
    r.live(5000)
    state = r.engine.reading(A)
    assert state is not None and (state.topic_id, state.assigned_id) == (old, old)
    assert [value for _, value in r.values[A]] == [b"old"] and not r.moves and not r.errors
    assert len(r.requests("Metadata")) - requests < 50, "metadata is requested again, with a back-off"


def test_look_up_of_a_deleted_topic_asks_for_its_name_at_last() -> None:
    r = member(allow_auto_create_topics=False)
    create_again(r)
    call = r.committed(A)
    assert not call.is_done, "the id that the client knows is of no topic any more"
    r.advance(1000)
    assert call.is_done and call.error is None and call.answer == {}
    looked = [each.groups[0].topics[0].topic_id for each in r.requests("OffsetFetch")]
    assert looked[-1] == r.broker.topic_id(TOPIC) != looked[-2]


# Any order

CODES = [
    None,
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR",
    "STALE_MEMBER_EPOCH",
    "OFFSET_METADATA_TOO_LARGE",
]


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=8),
    st.lists(st.sampled_from(CODES), max_size=10),
    st.lists(st.sampled_from(["before", "after"]), max_size=2),
)
def test_R76_whatever_is_refused_offsets_never_go_back(
    commits: list[tuple[bool, int]], refusals: list[str | None], drops: list[str]
) -> None:
    r = member()
    r.coordinator.commit_refusals = [code and ErrorCode[code] for code in refusals]  # type: ignore[misc]
    for when in drops:
        r.faults.drop_connection("OffsetCommit", when, 1)
    calls: list[CommitOffsets] = []
    for number, (retries, wait) in enumerate(commits):
        calls.append(r.begin_commit({A: number}, retries=retries))
        r.advance(wait * 100)
        if wait == 3:
            r.coordinator.give(A, B, C) if C not in r.coordinator.target else r.coordinator.give(A, B)
            r.poll()
    r.live(20_000, every_ms=500)
    assert all(call.is_done for call in calls)
    sent = [each.topics[0].partitions[0].committed_offset for each in r.coordinator.commits]
    assert sent == sorted(sent)
    kept = [number for number, call in enumerate(calls) if call.error is None]
    if kept:
        assert r.coordinator.committed[A].offset >= kept[-1]
