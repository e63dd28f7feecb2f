"""Metadata and DescribeCluster: nodes, leaders, and topics created on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker import cluster
from kbatch.testing.broker.cluster import MAX_PARTITIONS
from tests.support.broker_core import TOPIC, UNKNOWN_TOPIC_ID, VirtualBroker


def metadata(broker: VirtualBroker, *names: str, version: int = 13, node_id: int = 0, **fields: Any) -> Any:
    kind = messages.MetadataRequest
    topics = [kind.MetadataRequestTopic(name=name) for name in names]
    return broker.client(node_id).ask(kind(topics=topics, **fields), version)


def test_metadata_names_nodes_leaders_and_replicas() -> None:
    broker = VirtualBroker(nodes=4)
    broker.state.cluster.create_topic("spread", 5)
    answer = metadata(broker, "spread", node_id=3)
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [
        (node_id, f"node-{node_id}", 9092 + node_id) for node_id in range(4)
    ]
    assert answer.cluster_id == broker.state.cluster.cluster_id
    (topic,) = answer.topics
    assert (topic.name, topic.topic_id, topic.is_internal) == ("spread", broker.topic_id("spread"), False)
    assert [partition.leader_id for partition in topic.partitions] == [0, 1, 2, 3, 0]
    assert [partition.replica_nodes for partition in topic.partitions][3] == [3, 0, 1]
    assert {partition.leader_epoch for partition in topic.partitions} == {0}


def test_metadata_while_nodes_are_stopped() -> None:
    broker = VirtualBroker(nodes=2)
    broker.state.cluster.create_topic("single", 1, replication_factor=1)
    broker.act(lambda state: state.stop_node(0))
    answer = metadata(broker, "single", TOPIC, node_id=1)
    assert ([node.node_id for node in answer.brokers], answer.controller_id) == ([1], 1)
    single, replicated = (topic.partitions[0] for topic in answer.topics)
    assert (single.error_code, single.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (single.isr_nodes, single.offline_replicas) == ([], [0])
    assert (replicated.error_code, replicated.leader_id, replicated.leader_epoch) == (0, 1, 1)
    assert (replicated.isr_nodes, replicated.offline_replicas) == ([1], [0])


def test_metadata_creates_requested_topics() -> None:
    broker = VirtualBroker(topics=(), default_partitions=3)
    assert len(metadata(broker, "new").topics[0].partitions) == 3
    refused = metadata(broker, "other", allow_auto_topic_creation=False).topics[0]
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata(broker, "no name!").topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert list(broker.state.cluster.topics) == ["new"]
    closed = VirtualBroker(auto_create_topics=False)
    assert metadata(closed, "new").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_metadata_creates_as_many_topics_as_one_request_may() -> None:
    """Kafka creates all of them by one CreateTopics, which has a limit, or none."""
    broker = VirtualBroker(topics=["known"], default_partitions=MAX_PARTITIONS // 4)
    names = [f"new-{number}" for number in range(5)]
    known, *others = metadata(broker, "known", *names).topics
    assert known.error_code == ErrorCode.NONE
    assert {topic.error_code for topic in others} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert list(broker.state.cluster.topics) == ["known"]
    created = metadata(broker, "known", *names[1:]).topics
    assert {topic.error_code for topic in created} == {ErrorCode.NONE}


@pytest.mark.parametrize("api", ["Metadata", "CreateTopics"])
def test_topics_of_a_request_are_saved_once(
    api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All topics are written at each save: one a topic would be quadratic."""
    broker = VirtualBroker(directory=tmp_path)
    written: list[int] = []
    dump = json.dump

    def count(described: Any, file: Any, **options: Any) -> None:
        written.append(len(described["topics"]))
        dump(described, file, **options)

    monkeypatch.setattr("kbatch.testing.broker.cluster.json.dump", count)
    names = [f"new-{number}" for number in range(20)]
    if api == "Metadata":
        metadata(broker, *names, "no name!")
    else:
        kind = messages.CreateTopicsRequest
        topics = [kind.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        broker.client().ask(kind(topics=topics))
    assert written == [21]
    broker.state.cluster.delete_topic("new-0")  # saved at once again
    assert written == [21, 20]
    assert list(VirtualBroker(directory=tmp_path, topics=()).state.cluster.topics) == [TOPIC, *names[1:]]


def test_new_topic_is_not_compared_with_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = VirtualBroker(topics=())
    compared = 0
    metric_name = cluster._metric_name

    def count(topic: str) -> str:
        nonlocal compared
        compared += 1
        return metric_name(topic)

    monkeypatch.setattr(cluster, "_metric_name", count)
    metadata(broker, *map(str, range(200)))
    assert len(broker.state.cluster.topics) == 200 and compared <= 3 * 200


def test_requested_internal_topics_serve_groups_afterwards(broker: VirtualBroker) -> None:
    (topic,) = metadata(broker, "__consumer_offsets").topics
    assert (topic.is_internal, len(topic.partitions)) == (True, 5)
    for group in map(str, range(20)):
        answer = broker.client().ask(messages.FindCoordinatorRequest(coordinator_keys=[group]))
        assert answer.coordinators[0].error_code == 0


def test_metadata_of_all_topics_of_none_and_by_id(broker: VirtualBroker) -> None:
    kind = messages.MetadataRequest
    broker.state.cluster.create_topic("other", 1)

    def names(version: int, topics: Any) -> list[tuple[str | None, int]]:
        answer = broker.client().ask(kind(topics=topics), version)
        return [(topic.name, topic.error_code) for topic in answer.topics]

    everything = [(TOPIC, 0), ("other", 0)]
    assert names(0, []) == names(1, None) == names(13, None) == everything
    assert names(1, []) == []
    by_id = [kind.MetadataRequestTopic(name=None, topic_id=broker.topic_id())]
    assert names(13, by_id) == [(TOPIC, 0)]
    unknown = [kind.MetadataRequestTopic(name=None, topic_id=UNKNOWN_TOPIC_ID)]
    assert names(13, unknown) == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_metadata_names_each_topic_once(broker: VirtualBroker) -> None:
    kind = messages.MetadataRequest.MetadataRequestTopic
    broker.state.cluster.create_topic("other", 1)
    by_id = kind(name=None, topic_id=broker.topic_id())

    def names(*topics: Any) -> list[str | None]:
        answer = broker.client().ask(messages.MetadataRequest(topics=list(topics)))
        return [topic.name for topic in answer.topics]

    assert names(kind(name=TOPIC), kind(name=TOPIC)) == names(by_id, by_id) == [TOPIC]
    assert names(kind(name="other"), by_id, kind(name=None)) == [TOPIC]


@pytest.mark.parametrize(
    ("version", "by_id", "code"),
    [
        (10, True, ErrorCode.INVALID_REQUEST),
        (11, False, ErrorCode.INVALID_REQUEST),
        (12, False, -1),
        (13, False, -1),
    ],
)
def test_metadata_of_topics_that_are_not_named(
    broker: VirtualBroker, version: int, by_id: bool, code: int
) -> None:
    kind = messages.MetadataRequest.MetadataRequestTopic
    nameless = kind(name=None, topic_id=broker.topic_id() if by_id else bytes(16))
    answer = broker.client().ask(messages.MetadataRequest(topics=[kind(name=TOPIC), nameless]), version)
    assert (answer.brokers, answer.controller_id, answer.error_code) == ([], -1, code if version >= 13 else 0)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [(TOPIC, code), ("", code)]


def test_authorized_operations_are_reported_on_demand(broker: VirtualBroker) -> None:
    unasked = metadata(broker, TOPIC, version=8).topics[0].topic_authorized_operations
    asked = metadata(broker, TOPIC, version=8, include_topic_authorized_operations=True)
    assert (unasked, asked.topics[0].topic_authorized_operations) == (-(2**31), 0b1101_1111_1000)


def test_describe_cluster() -> None:
    broker = VirtualBroker(nodes=2)
    answer = broker.client(1).ask(messages.DescribeClusterRequest())
    assert [node.broker_id for node in answer.brokers] == [0, 1]
    assert (answer.cluster_id, answer.controller_id) == (broker.state.cluster.cluster_id, 0)
    refused = [broker.client().ask(messages.DescribeClusterRequest(endpoint_type=each)) for each in (2, 3)]
    assert [each.error_code for each in refused] == [
        ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
    ]
