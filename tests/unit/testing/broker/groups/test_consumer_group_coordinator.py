"""The coordinator of consumer groups (KIP-848). Expectations are those of Kafka 4.3.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.groups.consumer_group import ConsumerGroup
from kbatch.testing.broker.security.acls import Acls
from tests.support.broker_core import GROUP, TOPIC, VirtualBroker
from tests.unit.testing.broker.group_clients import (
    LEAVE,
    LEAVE_STATIC,
    NONE,
    Member,
    as_owned,
    cluster,
    described,
    joined,
    settle,
)

SESSION_MS, REBALANCE_MS = 45_000, 60_000
FENCED, UNKNOWN = ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
STALE = ErrorCode.STALE_MEMBER_EPOCH


# Joining, and the way from one assignment to the next


def test_lone_member_owns_all_partitions_at_once() -> None:
    broker = cluster()
    member = Member(broker, "a")
    assert (member.join(), member.epoch, member.indexes) == (NONE, 2, [0, 1, 2, 3])
    answer = member.send()
    assert (answer.member_epoch, answer.assignment, answer.heartbeat_interval_ms) == (2, None, 500)
    assert described(broker).group_state == "Stable"


def test_partitions_move_after_their_owner_has_given_them_up() -> None:
    broker = cluster()
    first, second = Member(broker, "a"), Member(broker, "b")
    first.join()
    assert (second.join(), second.epoch, second.indexes) == (NONE, 3, [])
    assert described(broker).group_state == "Reconciling"
    kept = first.send()
    assert kept.member_epoch == 2, "the epoch stays until the partitions are given up"
    assert [topic.partitions for topic in kept.assignment.topic_partitions] == [[0, 1]]
    assert (second.beat(), second.indexes) == (NONE, [])
    first.owned = frozenset((broker.topic_id(), index) for index in (0, 1))
    assert (first.beat(), first.epoch) == (NONE, 3)
    assert (second.beat(), second.indexes, second.epoch) == (NONE, [2, 3], 3)
    assert described(broker).group_state == "Stable"


def test_member_that_leaves_gives_its_partitions_to_the_others() -> None:
    broker, first, second = joined("a", "b")
    settle(first, second)
    answer = second.send(member_epoch=LEAVE)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (NONE, "b", LEAVE)
    assert (first.beat(), first.indexes, first.epoch) == (NONE, [0, 1, 2, 3], 4)
    assert second.beat() == UNKNOWN
    assert first.leave() == NONE
    assert described(broker).group_state == "Empty"


def test_target_is_computed_once_in_the_assignment_interval() -> None:
    broker = cluster(group_consumer_assignment_interval_ms=1_000)
    first, second = Member(broker, "a"), Member(broker, "b")
    assert (first.join(), first.indexes) == (NONE, [0, 1, 2, 3])
    assert (second.join(), second.epoch) == (NONE, 2)
    assert described(broker).group_state == "Assigning"
    assert (first.beat(), first.epoch) == (NONE, 2)
    broker.advance(1_000)
    settle(first, second)
    assert (first.epoch, second.epoch, len(first.owned), len(second.owned)) == (3, 3, 2, 2)


def test_answer_repeats_assignment_for_a_full_request_only() -> None:
    _, member = joined("a")
    owned = as_owned(member.owned)
    full: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": owned,
    }
    assert member.send(**full).assignment is not None
    for left_out in full:
        answer = member.send(**{name: value for name, value in full.items() if name != left_out})
        assert (answer.error_code, answer.assignment) == (NONE, None)


def test_member_changes_its_topics() -> None:
    broker = cluster(2, TOPIC, "other")
    member = Member(broker, "a")
    member.join()
    member.beat(subscribed_topic_names=["other"])
    assert member.owned == frozenset(), "partitions of the old topic go first"
    member.beat()
    assert member.owned == {(broker.topic_id("other"), 0), (broker.topic_id("other"), 1)}


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.cluster.create_partitions(TOPIC, 6),
        lambda state: (state.delete_topic(TOPIC), state.cluster.create_topic(TOPIC, 6)),
    ],
    ids=["more partitions", "deleted and made again"],
)
def test_changed_topic_changes_the_assignment(change: Any) -> None:
    broker, member = joined("a")
    broker.act(change)
    settle(member)
    assert member.owned == {(broker.topic_id(), index) for index in range(6)}
    assert member.epoch == 3


def test_topic_that_is_made_later_is_assigned() -> None:
    broker = cluster()
    member = Member(broker, "a", "later")
    assert (member.join(), member.indexes) == (NONE, [])
    broker.act(lambda state: state.cluster.create_topic("later", 2))
    assert (member.beat(), member.indexes) == (NONE, [0, 1])


def test_most_wanted_assignor_is_used() -> None:
    broker = cluster(3, "x", "y")
    members = [Member(broker, name, "x", "y", server_assignor="range") for name in "ab"]
    for member in members:
        member.join()
    settle(*members)
    assert [len(member.owned) for member in members] == [4, 2]
    assert described(broker).assignor_name == "range"
    assert all(member.beat(server_assignor="uniform") == NONE for member in members)
    assert described(broker).assignor_name == "uniform"


# Refusals

JOIN: dict[str, Any] = {
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": [TOPIC],
    "topic_partitions": [],
}
SOMETHING = [messages.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=bytes(16), partitions=[0])]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": "  "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": SOMETHING}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": LEAVE_STATIC}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "(?=a)"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": LEAVE}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_join_is_refused_without_effect(fields: dict[str, Any], code: ErrorCode) -> None:
    broker = cluster()
    answer = Member(broker, "a").send(**{"member_epoch": 0, **JOIN, **fields})
    assert answer.error_code == code
    assert answer.error_message
    assert described(broker).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_old_clients_are_given_a_member_id() -> None:
    broker = cluster()
    answer = Member(broker, "").send(version=0, **JOIN)
    assert (answer.error_code, answer.member_epoch) == (NONE, 2)
    assert len(answer.member_id) == 36


def test_full_group_refuses_new_members_only() -> None:
    broker = cluster(group_consumer_max_size=1)
    first = Member(broker, "a")
    first.join()
    assert Member(broker, "b").join() == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.beat() == NONE


def test_feature_level_0_has_no_such_groups() -> None:
    broker = cluster(group_version=0)
    assert Member(broker, "a").join() == ErrorCode.UNSUPPORTED_VERSION
    assert described(broker).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_permissions_are_those_of_group_and_topics() -> None:
    assert Member(cluster(acls=Acls(group_read=["x"])), "a").join() == ErrorCode.GROUP_AUTHORIZATION_FAILED


# Fencing


def test_epochs_other_than_the_members_are_fenced() -> None:
    _, member = joined("a")
    for epoch in (1, 3):
        assert member.send(member_epoch=epoch, topic_partitions=[]).error_code == FENCED
    assert member.beat() == NONE, "it is still a member"
    assert (member.join(), member.epoch, member.indexes) == (NONE, 2, [0, 1, 2, 3]), "it may join again"
    assert member.send(member_id="b").error_code == UNKNOWN


def test_previous_epoch_counts_while_its_answer_may_be_lost() -> None:
    broker, member = joined("a")
    more = as_owned(frozenset((broker.topic_id(), index) for index in range(5)))
    assert member.send(member_epoch=0, **JOIN).member_epoch == 2
    assert member.send(member_epoch=0, **JOIN | {"topic_partitions": more}).error_code == 42
    second = Member(broker, "b")
    second.join()
    settle(member, second)
    assert member.epoch == 3
    owned = as_owned(member.owned)
    assert member.send(member_epoch=2, topic_partitions=owned).member_epoch == 3
    assert member.send(member_epoch=2).error_code == FENCED, "it does not say what it has"
    assert member.send(member_epoch=2, topic_partitions=more).error_code == FENCED
    assert member.send(member_epoch=1, topic_partitions=owned).error_code == FENCED


def test_member_without_heartbeats_is_removed() -> None:
    broker, first, second = joined("a", "b")
    settle(first, second)
    broker.advance(SESSION_MS - 1)
    assert second.beat() == NONE
    broker.advance(1)
    assert first.beat() == UNKNOWN
    assert (second.beat(), second.indexes) == (NONE, [0, 1, 2, 3])


def test_member_that_keeps_revoked_partitions_is_removed() -> None:
    broker, first, second = joined("a", "b")
    owned = as_owned(first.owned)
    for _ in range(REBALANCE_MS // 10_000):
        assert first.send(topic_partitions=owned).error_code == NONE
        assert second.beat() == NONE
        assert second.owned == frozenset()
        broker.advance(10_000)
    assert first.send(topic_partitions=owned).error_code == UNKNOWN
    assert (second.beat(), second.indexes) == (NONE, [0, 1, 2, 3])


# Static members


def test_static_member_comes_back_to_its_partitions() -> None:
    broker, first, second = joined("a=one", "b=two")
    settle(first, second)
    had = first.owned
    assert first.leave(LEAVE_STATIC) == NONE
    assert (second.beat(), second.indexes) == (NONE, [2, 3])
    assert first.beat() == FENCED
    back = Member(broker, "c", instance_id="one")
    assert (back.join(), back.epoch, back.owned) == (NONE, 3, had)
    assert (second.beat(), second.epoch) == (NONE, 3), "nothing moved"
    assert first.beat() == ErrorCode.FENCED_INSTANCE_ID
    assert [member.member_id for member in described(broker).members] == ["b", "c"]


def test_static_member_that_stays_away_is_removed() -> None:
    broker, first, second = joined("a=one", "b")
    settle(first, second)
    first.leave(LEAVE_STATIC)
    broker.advance(SESSION_MS - 1)
    second.beat()
    broker.advance(1)
    assert (second.beat(), second.indexes) == (NONE, [0, 1, 2, 3])


def test_instance_id_in_use_is_not_released() -> None:
    broker = cluster()
    first, second = Member(broker, "a", instance_id="one"), Member(broker, "b", instance_id="one")
    first.join()
    assert second.join() == ErrorCode.UNRELEASED_INSTANCE_ID
    second.epoch = first.epoch
    assert second.beat() == ErrorCode.FENCED_INSTANCE_ID
    assert second.leave() == ErrorCode.FENCED_INSTANCE_ID
    assert Member(broker, "c", instance_id="two").leave(LEAVE_STATIC) == UNKNOWN
    assert (first.beat(), first.leave()) == (NONE, NONE)
    assert second.join() == NONE


# Patterns


def test_pattern_counts_from_the_second_heartbeat_on() -> None:
    broker = cluster(2, "orders-a", "orders-b", "other")
    member = Member(broker, "a", regex="orders-.*")
    assert (member.join(), member.epoch, member.indexes) == (NONE, 1, [])
    assert (member.beat(), member.epoch, member.indexes) == (NONE, 2, [0, 0, 1, 1])
    broker.act(lambda state: state.cluster.create_topic("orders-c", 1))
    settle(member)
    assert member.indexes == [0, 0, 0, 1, 1]
    broker.act(lambda state: state.delete_topic("orders-a"))
    settle(member)
    assert member.indexes == [0, 0, 1]


def test_pattern_matches_whole_names_that_the_client_may_see() -> None:
    broker = cluster(1, "orders", "my-orders", "orders-2")
    member = Member(broker, "a", regex="orders")
    member.join()
    settle(member)
    assert member.owned == {(broker.topic_id("orders"), 0)}


def test_pattern_and_names_are_read_together() -> None:
    broker = cluster(1, "orders", "other", "third")
    member = Member(broker, "a", "other")
    member.join(subscribed_topic_regex="ord.*")
    settle(member)
    assert member.owned == {(broker.topic_id(name), 0) for name in ("orders", "other")}
    assert described(broker).members[0].subscribed_topic_regex == "ord.*"


def test_pattern_without_subscribers_is_forgotten() -> None:
    broker = cluster(1, "orders", "other")
    first, second = Member(broker, "a", regex="ord.*"), Member(broker, "b", "other")
    first.join()
    second.join()
    settle(first, second)
    first.leave()
    settle(second)
    assert second.owned == {(broker.topic_id("other"), 0)}
    group = broker.state.coordinators.of_group(GROUP).live.groups.find(GROUP)
    assert isinstance(group, ConsumerGroup)
    assert (list(group.members), group.regexes) == (["b"], {})


# Committed offsets


def test_commit_needs_the_epoch_of_its_member() -> None:
    _, member = joined("a")
    assert member.commit() == NONE
    assert member.commit(generation_id_or_member_epoch=3) == STALE
    assert member.commit(generation_id_or_member_epoch=1) == STALE
    assert member.commit(member_id="b") == UNKNOWN
    assert member.commit(member_id="", generation_id_or_member_epoch=-1) == UNKNOWN
    assert member.commit(version=8) == ErrorCode.UNSUPPORTED_VERSION
    member.leave()
    assert member.commit(member_id="", generation_id_or_member_epoch=-1) == NONE


def test_older_epoch_commits_what_the_member_has_had_since() -> None:
    broker, first, second = joined("a", "b")
    assert first.send().member_epoch == 2
    assert first.commit(index=3) == NONE, "it is being given up, but not yet"
    first.owned = frozenset((broker.topic_id(), index) for index in (0, 1))
    first.beat()
    second.beat()
    assert (first.epoch, second.epoch) == (3, 3)
    assert first.commit(index=0, generation_id_or_member_epoch=2) == NONE
    assert first.commit(index=3, generation_id_or_member_epoch=2) == STALE, "it is the other's"
    assert second.commit(index=3) == NONE
    assert second.commit(index=3, generation_id_or_member_epoch=2) == STALE


def test_offset_fetch_checks_the_member_that_it_names() -> None:
    broker, member = joined("a")
    member.commit(7)
    kind = messages.OffsetFetchRequest

    def fetch(**named: Any) -> Any:
        group = kind.OffsetFetchRequestGroup(group_id=GROUP, topics=None, **named)
        (answer,) = broker.client().ask(kind(groups=[group])).groups
        return answer.error_code or answer.topics[0].partitions[0].committed_offset

    assert fetch() == 7
    assert fetch(member_id="a", member_epoch=2) == 7
    assert fetch(member_id="a", member_epoch=1) == STALE
    assert fetch(member_id="b", member_epoch=2) == UNKNOWN


# Groups of both kinds


def classic_join(broker: VirtualBroker, member_id: str = "") -> Any:
    kind = messages.JoinGroupRequest
    protocol = kind.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = kind(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        member_id=member_id,
        protocols=[protocol],
    )
    return broker.client().ask(request, 3)


def listed(broker: VirtualBroker, **filters: Any) -> list[tuple[str, str, str]]:
    answer = broker.client().ask(messages.ListGroupsRequest(**filters))
    return [(group.group_id, group.group_type, group.group_state) for group in answer.groups]


def leave_classic(broker: VirtualBroker, member_id: str) -> None:
    kind = messages.LeaveGroupRequest
    broker.client().ask(kind(group_id=GROUP, members=[kind.MemberIdentity(member_id=member_id)]))


def test_empty_groups_give_way_to_the_other_protocol() -> None:
    broker = cluster()
    member = Member(broker, "a")
    classic_id = classic_join(broker).member_id
    leave_classic(broker, classic_id)
    assert listed(broker) == [(GROUP, "classic", "Empty")]
    assert (member.join(), member.commit(5)) == (NONE, NONE)
    assert listed(broker, types_filter=["Consumer"]) == [(GROUP, "consumer", "Stable")]
    assert listed(broker, types_filter=["classic"]) == listed(broker, states_filter=["Empty"]) == []
    member.leave()
    assert classic_join(broker).error_code == NONE
    assert [group[1] for group in listed(broker)] == ["classic"]
    assert broker.state.coordinators.of_group(GROUP).live.offsets.fetch(GROUP, None)[TOPIC, 0].offset == 5


def test_describe_says_what_members_have_and_shall_have() -> None:
    broker = cluster(2)
    first, second = Member(broker, "a", rack_id="r"), Member(broker, "b", instance_id="two")
    first.join()
    second.join()
    group = described(broker)
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (3, 3, "uniform")
    held = [[list(topic.partitions) for topic in m.assignment.topic_partitions] for m in group.members]
    target = [
        [list(topic.partitions) for topic in m.target_assignment.topic_partitions] for m in group.members
    ]
    assert (held, target) == ([[[0, 1]], []], [[[0]], [[1]]])
    shown = [(m.member_id, m.member_epoch, m.instance_id, m.rack_id, m.member_type) for m in group.members]
    assert shown == [("a", 2, None, "r", 1), ("b", 3, "two", None, 1)]
    assert group.members[0].assignment.topic_partitions[0].topic_name == TOPIC
    (classic,) = broker.client().ask(messages.DescribeGroupsRequest(groups=[GROUP])).groups
    assert (classic.error_code, classic.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def test_only_an_empty_group_is_deleted() -> None:
    broker, member = joined("a")

    def delete() -> ErrorCode:
        (result,) = broker.client().ask(messages.DeleteGroupsRequest(groups_names=[GROUP])).results
        return ErrorCode(result.error_code)

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert delete() == NONE
    assert described(broker).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_topics_that_are_read_are_not_deleted() -> None:
    broker = cluster(1, TOPIC, "other")
    member = Member(broker, "a")
    member.join()
    kind = messages.OffsetDeleteRequest
    topics = [
        kind.OffsetDeleteRequestTopic(name=name, partitions=[kind.OffsetDeleteRequestPartition()])
        for name in (TOPIC, "other")
    ]
    answer = broker.client().ask(kind(group_id=GROUP, topics=topics))
    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE]


# Restarts


def test_restarted_broker_knows_groups_as_they_were(tmp_path: Path) -> None:
    broker = cluster(directory=tmp_path)
    members = [
        Member(broker, "a", instance_id="one"),
        Member(broker, "b", regex="ev.*"),
        Member(broker, "c", server_assignor="range"),
    ]
    for member in members:
        member.join()
    settle(*members, rounds=2)
    members[0].leave(LEAVE_STATIC)
    gone = Member(broker, "d", group_id="gone")
    gone.join()
    gone.leave()
    broker.client().ask(messages.DeleteGroupsRequest(groups_names=["gone"]))
    before = described(broker)
    broker.state.close()
    again = VirtualBroker(topics=(), directory=tmp_path)
    assert described(again) == before
    assert described(again, "gone").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    for member in members:
        member.broker = again
    settle(*members[1:])
    again.advance(SESSION_MS)
    assert members[1].beat() == UNKNOWN, "sessions start anew"


def test_member_that_revokes_at_restart_has_its_time_out(tmp_path: Path) -> None:
    broker = cluster(directory=tmp_path, group_consumer_session_timeout_ms=200_000)
    first, second = Member(broker, "a"), Member(broker, "b")
    first.join()
    second.join()
    first.send()
    broker.state.close()
    again = VirtualBroker(topics=(), directory=tmp_path, group_consumer_session_timeout_ms=200_000)
    again.advance(REBALANCE_MS)
    first.broker = again
    assert first.send().error_code == UNKNOWN
