"""Topics by request: create, extend and delete them, and their records; DescribeProducers."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.support.broker_core import (
    TOPIC,
    UNKNOWN_TOPIC_ID,
    VirtualBroker,
    batch,
    fetch_request,
    fetched,
    produce_request,
    produced,
)


def create(broker: VirtualBroker, *wanted: dict[str, Any], validate_only: bool = False) -> list[Any]:
    kind = messages.CreateTopicsRequest
    defaults = {"name": "new", "num_partitions": -1, "replication_factor": -1}
    topics = [kind.CreatableTopic(**{**defaults, **fields}) for fields in wanted]
    return list(broker.client().ask(kind(topics=topics, validate_only=validate_only)).topics)


def assignments(*replicas: list[int]) -> list[Any]:
    kind = messages.CreateTopicsRequest.CreatableReplicaAssignment
    return [kind(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)]


def configs(**values: str | None) -> list[Any]:
    kind = messages.CreateTopicsRequest.CreatableTopicConfig
    return [kind(name=name.replace("_", "."), value=value) for name, value in values.items()]


def test_topics_are_created_as_wanted() -> None:
    broker = VirtualBroker(nodes=3, default_partitions=2)
    plain, placed, configured = create(
        broker,
        {"name": "plain"},
        {"name": "placed", "assignments": assignments([2, 1], [0, 2])},
        {
            "name": "configured",
            "num_partitions": 4,
            "replication_factor": 1,
            "configs": configs(retention_ms="5"),
        },
    )
    assert (plain.num_partitions, plain.replication_factor, plain.error_code) == (2, 3, 0)
    assert (placed.num_partitions, placed.replication_factor) == (2, 2)
    assert [each.leader for each in broker.state.cluster.topics["placed"].partitions] == [2, 0]
    assert plain.topic_id == broker.topic_id("plain")
    described = {config.name: (config.value, config.config_source) for config in configured.configs}
    assert (described["retention.ms"], described["cleanup.policy"]) == (("5", 1), ("delete", 5))


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"name": TOPIC}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "dotted_name"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 10_001}, ErrorCode.POLICY_VIOLATION),
        ({"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"assignments": assignments([0, 0])}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": assignments([2])}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": assignments([])}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": assignments([0]), "num_partitions": 1}, ErrorCode.INVALID_REQUEST),
        ({"configs": configs(no_such="1")}, ErrorCode.INVALID_CONFIG),
        ({"configs": configs(retention_ms="x")}, ErrorCode.INVALID_CONFIG),
        ({"configs": configs(retention_ms=None)}, ErrorCode.INVALID_CONFIG),
    ],
    ids=str,
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_topics_that_cannot_be(wanted: dict[str, Any], code: ErrorCode, validate_only: bool) -> None:
    broker = VirtualBroker(nodes=2, topics=(TOPIC, "dotted.name"))
    (refused,) = create(broker, wanted, validate_only=validate_only)
    assert (refused.error_code, bool(refused.error_message)) == (code, True)
    assert list(broker.state.cluster.topics) == [TOPIC, "dotted.name"]


def test_request_cannot_repeat_a_topic_nor_create_thousands(broker: VirtualBroker) -> None:
    twice = create(broker, {"num_partitions": 10_000}, {"num_partitions": 2}, {"name": "good"})
    assert [(each.name, each.error_code) for each in twice] == [
        ("new", ErrorCode.INVALID_REQUEST),
        ("good", 0),
    ]
    many = create(broker, {"name": "a", "num_partitions": 6000}, {"name": "b", "num_partitions": 6000})
    assert {each.error_code for each in many} == {ErrorCode.POLICY_VIOLATION}
    assert list(broker.state.cluster.topics) == [TOPIC, "good"]


def test_validation_only_makes_nothing(broker: VirtualBroker) -> None:
    (good,) = create(broker, {"configs": configs(retention_ms="5")}, validate_only=True)
    described = {config.name: config.value for config in good.configs}
    assert (good.error_code, good.num_partitions, good.replication_factor) == (0, 1, 1)
    assert (good.topic_id != bytes(16), described["retention.ms"]) == (True, "5")
    kind = messages.CreatePartitionsRequest
    wanted = kind.CreatePartitionsTopic(name=TOPIC, count=3, assignments=None)
    answer = broker.client().ask(kind(topics=[wanted], validate_only=True))
    assert answer.results[0].error_code == 0
    assert {name: len(topic.partitions) for name, topic in broker.state.cluster.topics.items()} == {TOPIC: 1}


@pytest.mark.parametrize(
    ("name", "count", "given", "code"),
    [
        (TOPIC, 3, None, 0),
        (TOPIC, 3, [[1], [0]], 0),
        (TOPIC, 1, None, ErrorCode.INVALID_PARTITIONS),
        (TOPIC, 0, None, ErrorCode.INVALID_PARTITIONS),
        (TOPIC, 10_001, None, ErrorCode.POLICY_VIOLATION),
        (TOPIC, 3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TOPIC, 2, [[5]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("missing", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_topics_grow(name: str, count: int, given: list[list[int]] | None, code: int) -> None:
    broker = VirtualBroker(nodes=2)
    kind = messages.CreatePartitionsRequest
    placed = None if given is None else [kind.CreatePartitionsAssignment(broker_ids=ids) for ids in given]
    wanted = kind.CreatePartitionsTopic(name=name, count=count, assignments=placed)
    (result,) = broker.client().ask(kind(topics=[wanted])).results
    partitions = broker.state.cluster.topics[TOPIC].partitions
    assert (result.error_code, len(partitions)) == (code, 1 if code else 3)
    if given and not code:
        assert [partition.leader for partition in partitions[1:]] == [1, 0]


def test_one_request_does_not_let_a_topic_grow_twice(broker: VirtualBroker) -> None:
    kind = messages.CreatePartitionsRequest
    wanted = [kind.CreatePartitionsTopic(name=TOPIC, count=count, assignments=None) for count in (2, 3)]
    (result,) = broker.client().ask(kind(topics=wanted)).results
    assert (result.name, result.error_code) == (TOPIC, ErrorCode.INVALID_REQUEST)
    assert len(broker.state.cluster.topics[TOPIC].partitions) == 1


def test_topics_are_deleted_by_name_and_by_id(broker: VirtualBroker) -> None:
    broker.state.cluster.create_topic("other", 1)
    kind = messages.DeleteTopicsRequest
    by_name = kind.DeleteTopicState(name="other")
    by_id = kind.DeleteTopicState(topic_id=broker.topic_id())
    nobody = kind.DeleteTopicState(topic_id=UNKNOWN_TOPIC_ID)
    answer = broker.client().ask(kind(topics=[by_name, by_id, nobody]))
    assert [(each.name, each.error_code) for each in answer.responses] == [
        ("other", 0),
        (TOPIC, 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert not broker.state.cluster.topics
    assert broker.client().ask(kind(topic_names=["other"]), 1).responses[0].error_code == 3


def test_topics_to_delete_are_named_once_and_in_one_way(broker: VirtualBroker) -> None:
    kind = messages.DeleteTopicsRequest
    by_name, by_id = kind.DeleteTopicState(name=TOPIC), kind.DeleteTopicState(topic_id=broker.topic_id())
    both = kind.DeleteTopicState(name="x", topic_id=broker.topic_id())
    for states in ([by_name] * 2, [by_id] * 2, [both], [kind.DeleteTopicState()]):
        (refused,) = broker.client().ask(kind(topics=states)).responses
        assert refused.error_code == ErrorCode.INVALID_REQUEST
    (refused,) = broker.client().ask(kind(topic_names=[TOPIC] * 2), 5).responses
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert list(broker.state.cluster.topics) == [TOPIC]


def test_topic_made_again_has_another_id_and_nothing_in_it(broker: VirtualBroker) -> None:
    broker.client().ask(produce_request(broker))
    old = broker.topic_id()
    broker.act(lambda state: state.delete_topic(TOPIC))
    assert create(broker, {"name": TOPIC})[0].topic_id != old
    assert produced(broker.client().ask(produce_request(broker))).base_offset == 0


def test_delete_records(broker: VirtualBroker) -> None:
    broker.client().ask(produce_request(broker, batch(b"a", b"b", b"c")))
    kind = messages.DeleteRecordsRequest

    def delete(offset: int, index: int = 0) -> tuple[int, int]:
        wanted = kind.DeleteRecordsPartition(partition_index=index, offset=offset)
        request = kind(topics=[kind.DeleteRecordsTopic(name=TOPIC, partitions=[wanted])])
        (found,) = broker.client().ask(request).topics[0].partitions
        return found.error_code, found.low_watermark

    assert delete(2) == (0, 2)
    assert fetched(broker.client().ask(fetch_request(broker, 1))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-1) == (0, 3)
    assert delete(0, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_messages_of_topics_are_kafkas(broker: VirtualBroker) -> None:
    """Null after success; deleting a topic that is not there has a text."""
    kind = messages.CreateTopicsRequest
    topic = kind.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    assert broker.client().ask(kind(topics=[topic])).topics[0].error_message is None
    deletion = messages.DeleteTopicsRequest
    states = [deletion.DeleteTopicState(name=name) for name in ("new", "other")]
    first, second = broker.client().ask(deletion(topics=states)).responses
    assert (first.error_message, second.error_message) == (
        None,
        "This server does not host this topic-partition.",
    )


def test_describe_producers(broker: VirtualBroker) -> None:
    data = batch(b"x", b"y", producer_id=5, producer_epoch=3, base_sequence=7)
    broker.client().ask(produce_request(broker, data))
    kind = messages.DescribeProducersRequest
    request = kind(topics=[kind.TopicRequest(name=TOPIC, partition_indexes=[0, 1])])
    known, unknown = broker.client().ask(request).topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 3, 8)
    assert producer.current_txn_start_offset == -1
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
