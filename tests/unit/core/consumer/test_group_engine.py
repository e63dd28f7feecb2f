"""A consumer's engine: positions of assigned partitions, the protocol's choice, reads by other threads."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch import errors
from kbatch.core.consumer.consumer_membership import ConsumerMembership
from kbatch.core.consumer.partition_state import COMMITTED, EARLIEST, LATEST, FetchState, Start
from kbatch.core.consumer.results import Failed
from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.support.broker_core import TOPIC
from tests.support.group_reading import GROUP, GroupReading

A, B, C = (TopicPartition(TOPIC, number) for number in range(3))


def make(*, records: int = 5, **settings: Any) -> GroupReading:
    r = GroupReading(partitions=3, **settings)
    for partition in (A, B, C):
        for number in range(records):
            r.put(str(number).encode(), partition=partition)
    return r


# Where reading begins


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("earliest", [0, 1, 2, 3, 4]), ("latest", []), ("by_duration:PT1H", [0, 1, 2, 3, 4])],
)
def test_R33_partition_begins_at_committed_offset_or_by_policy(policy: str, expected: list[int]) -> None:
    r = make(auto_offset_reset=policy)
    r.coordinator.committed = {A: OffsetAndMetadata(3)}
    r.join(A, B)
    r.live(1000)
    assert r.offsets(A) == [3, 4]
    assert r.offsets(B) == expected
    assert not r.errors and not r.moves


def test_R33_all_partitions_without_offset_and_policy_are_named() -> None:
    r = make(auto_offset_reset="none")
    r.coordinator.committed = {B: OffsetAndMetadata(3)}
    r.join(A, B, C)
    r.live(1000)
    first, second = r.errors
    assert isinstance(first, errors.NoOffsetForPartitionError) and first is second
    assert first.partitions == (A, C)
    assert "events-0, events-2" in str(first) and "set auto.offset.reset" in str(first)
    assert r.offsets(B) == [3, 4]
    r.engine.seek(A, EARLIEST)
    r.live(1000)
    assert r.offsets(A) == [0, 1, 2, 3, 4]


def test_R33_assigned_partitions_begin_at_committed_offsets_too() -> None:
    r = make()
    r.coordinator.committed = {A: OffsetAndMetadata(2)}
    r.read(A, B, start=COMMITTED)
    r.advance(1000)
    assert (r.offsets(A), r.offsets(B)) == ([2, 3, 4], [0, 1, 2, 3, 4])
    assert len(r.requests("OffsetFetch")) == 1, "one request for all"


def test_R33_without_a_group_only_the_policy_counts() -> None:
    r = make(group_id=None)
    r.read(A, start=COMMITTED)
    r.advance(1000)
    assert r.offsets(A) == [0, 1, 2, 3, 4]
    assert not r.requests("OffsetFetch")


def test_R33_position_is_that_of_the_end_of_open_transactions() -> None:
    r = make()
    r.coordinator.committed = {A: OffsetAndMetadata(2)}
    r.coordinator.unstable = {A}
    r.join(A)
    r.live(3000)
    assert r.offsets(A) == []
    state = r.engine.reading(A)
    assert state is not None and state.state is FetchState.LOOKING_UP
    r.coordinator.unstable = set()
    r.coordinator.committed = {A: OffsetAndMetadata(4)}
    r.live(3000)
    assert r.offsets(A) == [4]


def test_R33_refused_look_up_fails_the_partition() -> None:
    r = make()
    r.faults.intercept("OffsetFetch", lambda request: ErrorCode.GROUP_AUTHORIZATION_FAILED)
    r.join(A)
    r.live(1000)
    (error,) = r.errors
    assert isinstance(error, errors.GroupAuthorizationError)


def test_R34_callback_may_seek_and_pause() -> None:
    r = make()
    r.coordinator.committed = {A: OffsetAndMetadata(1), B: OffsetAndMetadata(1)}
    r.coordinator.give(A, B, C)
    r.subscribe()
    step = r.take()
    assert step is not None and step.kind == "assign"
    state = r.engine.reading(A)
    assert state is not None and state.state is FetchState.NEW and state.generation == step.number
    generation = r.engine.seek(A, Start(4))
    r.engine.pause([B])
    r.advance(1000)
    assert generation > step.number
    assert r.offsets(A) == [4], "a sought position is looked for at once"
    assert r.offsets(C) == []
    r.finish(step)
    r.advance(1000)
    assert (r.offsets(A), r.offsets(B), r.offsets(C)) == ([4], [], [0, 1, 2, 3, 4])
    r.engine.resume([B])
    r.advance(1000)
    assert r.offsets(B) == [1, 2, 3, 4]


def test_R34_seek_wins_over_a_look_up_that_is_under_way() -> None:
    r = make()
    r.coordinator.committed = {A: OffsetAndMetadata(1)}
    r.faults.delay("OffsetFetch", 1)
    r.join(A)
    r.engine.seek(A, LATEST)
    r.advance(3000)
    assert r.offsets(A) == []
    assert not [each for each in r.results if isinstance(each, Failed)]


def test_R36_pause_survives_a_rebalance_that_keeps_the_partition() -> None:
    r = make()
    r.join(A)
    r.live(500)
    r.engine.pause([A])
    r.live(1000)  # for the end of the Fetch that waits
    r.put(b"x")
    r.coordinator.give(A, B)
    r.live(6000)
    assert r.engine.owned == {A, B} and len(r.offsets(B)) == 5
    assert len(r.offsets(A)) == 5
    r.engine.resume([A])
    r.live(500)
    assert r.offsets(A) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("version", [18, 11])
def test_R41_committed_offset_is_compared_with_the_log_first(version: int) -> None:
    """Its epoch says that the log was another one: that is a truncation, not an offset out of range."""
    r = make(auto_offset_reset="none", nodes=2, versions={messages.FetchRequest.api_key: (4, version)})
    r.move_leader(1, A)
    r.move_leader(0, A)
    log = r.log(A)
    r.put(b"y", partition=A)  # by the current leader, from offset 5 on
    r.coordinator.committed = {A: OffsetAndMetadata(20, "", 0)}  # epoch 0 ended at 5
    r.join(A)
    r.live(2000)
    (error,) = r.errors
    assert isinstance(error, errors.LogTruncationError), error
    assert error.divergent_offsets == {A: 5}
    assert log.log_end_offset == 6


def test_R41_newer_epoch_than_the_metadata_refreshes_them() -> None:
    r = make()
    r.live(100)
    count = len(r.requests("Metadata"))
    r.coordinator.committed = {A: OffsetAndMetadata(2, "", 7)}
    r.join(A)
    r.live(1000)
    assert len(r.requests("Metadata")) > count + 1


# The protocol


def offer(r: GroupReading, *, group_version: int | None, has_api: bool = True) -> None:
    """Let brokers offer the consumer protocol, or not."""
    kind = messages.ApiVersionsResponse
    apis = {each.api_key: each for each in r.broker.state.answered_requests}
    keys = {key: (each.versions.start, each.versions[-1]) for key, each in apis.items()}
    keys.pop(68, None)
    keys |= {68: (0, 1)} if has_api else {}
    features = (
        []
        if group_version is None
        else [
            kind.FinalizedFeatureKey(
                name="group.version", max_version_level=group_version, min_version_level=group_version
            )
        ]
    )
    answer = kind(
        api_keys=[
            kind.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in keys.items()
        ],
        finalized_features_epoch=1,
        finalized_features=features,
    )
    r.faults.intercept("ApiVersions", lambda request: answer)


class Classic(ConsumerMembership):
    """Stands for the classic protocol."""


@pytest.fixture(autouse=True)
def classic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kbatch.core.consumer.group_engine.PROTOCOLS", {"consumer": ConsumerMembership, "classic": Classic}
    )


@pytest.mark.parametrize(
    ("offered", "is_classic"),
    [
        ({"group_version": 1}, False),
        ({"group_version": 0}, True),
        ({"group_version": None}, True),
        ({"group_version": 1, "has_api": False}, True),
    ],
)
def test_R61_auto_is_the_consumer_protocol_where_it_is_offered(
    offered: dict[str, Any], is_classic: bool
) -> None:
    r = make(group_protocol="auto")
    offer(r, **offered)
    r.subscribe()
    r.advance(1000)
    assert isinstance(r.engine._membership, Classic) == is_classic


@pytest.mark.parametrize("code", ["UNSUPPORTED_VERSION", "GROUP_ID_NOT_FOUND"])
def test_R61_auto_goes_on_with_classic_if_it_is_refused(code: str) -> None:
    r = make(group_protocol="auto")
    offer(r, group_version=1)
    r.coordinator.refusals = [ErrorCode[code]]
    r.coordinator.give(A)
    r.subscribe()
    r.live(1000)
    assert isinstance(r.engine._membership, Classic)
    assert r.engine.membership_error is None and r.engine.owned == {A}


def test_R61_auto_keeps_the_protocol_after_other_refusals() -> None:
    r = make(group_protocol="auto")
    offer(r, group_version=1)
    r.coordinator.refusals = [ErrorCode.GROUP_MAX_SIZE_REACHED]
    r.subscribe()
    r.live(1000)
    assert isinstance(r.engine.membership_error, errors.GroupMaxSizeReachedError)


def test_R61_chosen_protocol_is_not_replaced() -> None:
    r = make()
    r.coordinator.refusals = [ErrorCode.UNSUPPORTED_VERSION]
    r.subscribe()
    r.live(1000)
    assert isinstance(r.engine.membership_error, errors.UnsupportedVersionError)
    assert "set group.protocol=classic, or upgrade" in str(r.engine.membership_error)


def test_R61_chosen_protocol_that_brokers_lack_is_an_error() -> None:
    r = GroupReading(versions={68: (0, -1)})
    r.subscribe()
    r.live(1000)
    assert isinstance(r.engine.membership_error, errors.UnsupportedVersionError)


def test_R61_leaving_ends_the_search_for_a_protocol() -> None:
    r = make(group_protocol="auto")
    r.unreachable = {0}
    r.subscribe()
    r.advance(100)
    assert r.leave().is_done
    r.unreachable = set()
    r.live(5000)
    assert not r.coordinator.heartbeats


# Reads by other threads


def test_R81_group_metadata_is_that_of_the_member() -> None:
    r = make(group_instance_id="one")
    outside = ConsumerGroupMetadata(GROUP, group_instance_id="one")
    assert r.engine.group_metadata == outside
    r.join(A)
    found = r.engine.group_metadata
    assert (found.generation_id, found.member_id) == (r.coordinator.epoch, r.coordinator.member_id)
    assert found.group_instance_id == "one"
    r.leave()
    assert r.engine.group_metadata == outside


def test_R40_lag_is_what_the_last_fetch_said() -> None:
    r = make()
    r.join(A)
    assert r.engine.lag(B) is None
    r.live(1000)
    fetches = len(r.requests("Fetch"))
    assert (r.engine.lag(A), r.engine.lag(A, 7), r.engine.lag(A, 3)) == (0, 2, 0)
    positions = iter((2, 9, -1))
    r.engine.distances.position_of = lambda state: next(positions)
    assert [r.engine.lag(A) for _ in range(3)] == [3, 0, None]
    assert len(r.requests("Fetch")) == fetches


def test_R40_lag_of_read_committed_ends_at_last_stable_offset() -> None:
    r = make(isolation_level="read_committed")
    r.put(b"open", producer_id=7)
    r.put(b"after")
    r.join(A)
    r.live(1000)
    r.engine.distances.position_of = lambda state: 5
    assert r.engine.lag(A) == 0
