"""BrokerCore without sockets: coordinators, consumer groups, committed offsets."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from kbatch.testing.broker.security.acls import Acls
from tests.support.broker_core import (
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    UNKNOWN_TOPIC_ID,
    VirtualBroker,
    error_places,
    sample,
)
from tests.unit.testing.broker.group_clients import SESSION_MS, ClassicMember, committed, find_coordinators


def codes(answer: Any) -> set[ErrorCode]:
    return {code for _, code in error_places(answer)}


# Coordinators


def test_every_node_names_the_same_coordinators() -> None:
    broker = VirtualBroker(nodes=3)
    keys = [f"group-{number}" for number in range(12)]
    for key_type in (0, 1):
        answers = [find_coordinators(broker, keys, key_type, node_id) for node_id in range(3)]
        places = [[(each.key, each.node_id, each.port) for each in answer] for answer in answers]
        assert places[0] == places[1] == places[2]
        assert {node_id for _, node_id, _ in places[0]} == {0, 1, 2}
        assert all(port == 9092 + node_id for _, node_id, port in places[0])
    single = broker.client().ask(messages.FindCoordinatorRequest(key=keys[0]), 3)
    assert single.node_id == find_coordinators(broker, keys)[0].node_id


def test_coordinators_that_are_not_found() -> None:
    broker = VirtualBroker(acls=Acls(group_read=["mine"], transactional_id_write=["mine"]))
    assert [each.error_code for each in find_coordinators(broker, ["mine", "yours"])] == [
        0,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ]
    (refused,) = find_coordinators(broker, ["yours"], key_type=1)
    assert (refused.error_code, refused.node_id, refused.port) == (53, -1, -1)
    assert find_coordinators(broker, ["mine"], key_type=2)[0].error_code == ErrorCode.INVALID_REQUEST


NEED_COORDINATOR = [
    *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "OffsetDelete"),
    *("DescribeGroups", "DeleteGroups", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"),
    *("TxnOffsetCommit", "DescribeTransactions", "InitProducerId"),
]


@pytest.mark.parametrize("api", NEED_COORDINATOR)
def test_other_nodes_are_not_the_coordinator(api: str) -> None:
    broker = VirtualBroker(nodes=2)
    kind = getattr(messages, f"{api}Request")
    for version in kind.versions:
        request: Any = sample(broker, api, version)
        if api == "InitProducerId":
            request.transactional_id, request.transaction_timeout_ms = TRANSACTIONAL_ID, 1000
        key, key_type = (TRANSACTIONAL_ID, 1) if "T" in api[1:] or api == "InitProducerId" else (GROUP, 0)
        if api == "TxnOffsetCommit":
            key, key_type = GROUP, 0
        (found,) = find_coordinators(broker, [key], key_type)
        assert codes(broker.client(1 - found.node_id).ask(request, version)) == {ErrorCode.NOT_COORDINATOR}
        answer = broker.client(found.node_id).send(request, version)
        assert not answer.is_there or ErrorCode.NOT_COORDINATOR not in codes(answer.message)


def test_coordinator_follows_its_partition_or_is_missing() -> None:
    broker = VirtualBroker(nodes=2)
    (before,) = find_coordinators(broker, [GROUP])
    broker.act(lambda state: state.stop_node(before.node_id))
    other = 1 - before.node_id
    (after,) = find_coordinators(broker, [GROUP], node_id=other)
    assert after.node_id == other
    partition = broker.state.coordinators.partition_of_group(GROUP)
    partition.lead_by(NO_LEADER)
    (nowhere,) = find_coordinators(broker, [GROUP], node_id=other)
    assert (nowhere.error_code, nowhere.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


# Groups


def consumer(broker: VirtualBroker) -> ClassicMember:
    """Return a member that sends the newest versions."""
    return ClassicMember(broker, metadata=GROUP.encode(), is_new=True)


def members(member: ClassicMember) -> list[str]:
    """Return the members in the answer to JoinGroup, which is there."""
    assert member.joined() == 0
    return [each.member_id for each in member.joining.message.members]


def together(broker: VirtualBroker) -> tuple[ClassicMember, ClassicMember]:
    """Return two members of a stable group, the leader first."""
    first, second = consumer(broker), consumer(broker)
    first.join()
    assert members(first) == [first.member_id]
    first.send_sync({first.member_id: b"all"})
    assert second.join() is None, "until the first one is back"
    assert first.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    assert members(first) == [first.member_id, second.member_id]
    assert members(second) == []
    assert second.joining.message.leader == first.member_id
    follower = second.send_sync({})
    assert not follower.is_there, "until the leader has shared out"
    shares = {first.member_id: b"mine", second.member_id: b"yours"}
    assert first.send_sync(shares).message.assignment == b"mine"
    assert follower.message.assignment == b"yours"
    return first, second


def test_two_members_share_and_one_leaves(broker: VirtualBroker) -> None:
    first, second = together(broker)
    assert (first.beat(), second.beat()) == (0, 0)
    assert first.epoch == second.epoch == 2
    assert second.leave() == 0
    assert first.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    first.join()
    assert members(first) == [first.member_id]


def test_member_that_falls_silent_is_removed(broker: VirtualBroker) -> None:
    first, second = together(broker)
    for _ in range(2):
        broker.advance(SESSION_MS - 1)
        assert first.beat() in (0, ErrorCode.REBALANCE_IN_PROGRESS)
    assert second.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_new_group_waits_for_others_if_configured() -> None:
    broker = VirtualBroker(group_initial_rebalance_delay_ms=3000)
    first, second = consumer(broker), consumer(broker)
    first.join()
    broker.advance(2000)
    second.join()
    broker.advance(2000)
    assert not second.joining.is_there, "it waits anew for more"
    broker.advance(2000)
    assert len(members(first)) == 2
    assert (second.joined(), second.epoch) == (0, 1)


def test_members_and_standalone_consumers_commit_offsets(broker: VirtualBroker) -> None:
    assert committed(broker) == (0, -1)
    alone = consumer(broker)
    assert alone.commit(3) == 0
    assert [committed(broker, version) for version in (1, 7, 8, 10)] == [(0, 3)] * 4
    first, second = together(broker)
    assert (first.commit(7), committed(broker)) == (0, (0, 7))
    assert alone.commit(4) == ErrorCode.UNKNOWN_MEMBER_ID
    second.epoch -= 1
    assert second.commit(5) == ErrorCode.ILLEGAL_GENERATION
    assert committed(broker) == (0, 7)


def test_offsets_of_topics_that_are_not_there(broker: VirtualBroker) -> None:
    kind = messages.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(committed_offset=1)

    def commit(version: int, **topic: Any) -> int:
        wanted = kind.OffsetCommitRequestTopic(partitions=[partition], **topic)
        answer = broker.client().ask(kind(group_id=GROUP, topics=[wanted]), version)
        return int(answer.topics[0].partitions[0].error_code)

    assert commit(10, topic_id=UNKNOWN_TOPIC_ID) == ErrorCode.UNKNOWN_TOPIC_ID
    assert commit(10, topic_id=broker.topic_id()) == 0
    assert commit(9, name="missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(9, name="") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fetch = messages.OffsetFetchRequest
    topics = [
        fetch.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
        for topic_id in (UNKNOWN_TOPIC_ID, broker.topic_id())
    ]
    answer = broker.client().ask(fetch(groups=[fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]))
    found = {topic.topic_id: topic.partitions[0] for topic in answer.groups[0].topics}
    assert found[UNKNOWN_TOPIC_ID].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert found[broker.topic_id()].committed_offset == 1


def test_groups_are_described_listed_and_deleted(broker: VirtualBroker) -> None:
    first, second = together(broker)
    first.commit(5)
    describe = messages.DescribeGroupsRequest(groups=[GROUP, "nobody"])
    found, missing = broker.client().ask(describe).groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    assert {member.member_assignment for member in found.members} == {b"mine", b"yours"}
    assert (missing.group_state, missing.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert broker.client().ask(describe, 5).groups[1].error_code == 0
    (listed,) = broker.client().ask(messages.ListGroupsRequest()).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == (GROUP, "Stable", "classic")
    assert not broker.client().ask(messages.ListGroupsRequest(states_filter=["Empty"])).groups

    def delete() -> int:
        return int(
            broker.client().ask(messages.DeleteGroupsRequest(groups_names=[GROUP])).results[0].error_code
        )

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    first.leave(), second.leave()
    assert (delete(), delete()) == (0, ErrorCode.GROUP_ID_NOT_FOUND)
    assert committed(broker) == (0, -1)


def test_nodes_list_the_groups_that_they_coordinate() -> None:
    broker = VirtualBroker(nodes=2)
    groups = [f"group-{number}" for number in range(8)]
    owners = {each.key: each.node_id for each in find_coordinators(broker, groups)}
    for group in groups:
        broker.state.coordinators.of_group(group).live.groups.simple_group(group, broker.now_ms)
    for node_id in (0, 1):
        listed = broker.client(node_id).ask(messages.ListGroupsRequest()).groups
        assert {each.group_id for each in listed} == {key for key in groups if owners[key] == node_id}


def test_acl_of_groups() -> None:
    acls = Acls(group_read=[])
    broker = VirtualBroker(acls=acls)
    for api in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch",
                "TxnOffsetCommit", "AddOffsetsToTxn", "DescribeGroups", "DeleteGroups"):  # fmt: skip
        for version in getattr(messages, f"{api}Request").versions:
            answer = broker.client().ask(sample(broker, api, version), version)
            assert codes(answer) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}, (api, version)
    acls.group_read = None
    assert committed(broker) == (0, -1)


def test_topic_that_goes_takes_its_offsets_along(broker: VirtualBroker) -> None:
    consumer(broker).commit(3)
    broker.act(lambda state: state.delete_topic(TOPIC))
    broker.state.cluster.create_topic(TOPIC, 1)
    assert committed(broker) == (0, -1)


def test_offsets_of_topics_that_are_not_there_are_not_deleted(broker: VirtualBroker) -> None:
    commit = messages.OffsetCommitRequest
    partition = commit.OffsetCommitRequestPartition(committed_offset=3)
    topic = commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    broker.client().ask(commit(group_id=GROUP, topics=[topic]), 9)
    kind = messages.OffsetDeleteRequest
    topics = [
        kind.OffsetDeleteRequestTopic(
            name=name, partitions=[kind.OffsetDeleteRequestPartition(partition_index=p) for p in (0, 1)]
        )
        for name in (TOPIC, "unknown")
    ]
    answer = broker.client().ask(kind(group_id=GROUP, topics=topics))
    codes = [[each.error_code for each in topic.partitions] for topic in answer.topics]
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[0, missing], [missing, missing]]
