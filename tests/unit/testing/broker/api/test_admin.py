"""BrokerCore without sockets: metadata, topics and their configs, Describe requests, logins, telemetry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker import cluster
from kbatch.testing.broker.cluster import MAX_PARTITIONS
from tests.support.broker_core import (
    TOPIC,
    UNKNOWN_TOPIC_ID,
    VirtualBroker,
    batch,
    error_places,
    fetch_request,
    fetched,
    produce_request,
    produced,
)

AUTHENTICATION_FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


# Metadata


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


# Topics


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


# Descriptions


def describe_configs(
    broker: VirtualBroker, resource_type: int, name: str, keys: Any, node_id: int = 0
) -> Any:
    kind = messages.DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys
    )
    (result,) = broker.client(node_id).ask(kind(resources=[resource])).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


def test_configs_of_topics(broker: VirtualBroker) -> None:
    broker.state.cluster.create_topic("compacted", 1, configs={"cleanup.policy": "compact"})
    everything = {
        config.name: (config.value, config.config_source, config.read_only)
        for config in describe_configs(broker, 2, "compacted", None).configs
    }
    assert everything["cleanup.policy"] == ("compact", 1, False)
    assert everything["max.message.bytes"] == ("1048588", 5, False)
    assert len(describe_configs(broker, 2, "compacted", []).configs) == len(everything)
    named = describe_configs(broker, 2, "compacted", ["retention.ms", "no such"]).configs
    assert [config.name for config in named] == ["retention.ms"]
    assert describe_configs(broker, 2, "missing", None).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name in ("", "a b", ".."):
        assert describe_configs(broker, 2, name, None).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_configs_have_types(broker: VirtualBroker) -> None:
    """ConfigResponse.ConfigType, from version 3 on."""
    types = {config.name: config.config_type for config in describe_configs(broker, 2, TOPIC, None).configs}
    expected = {"preallocate": 1, "compression.type": 2, "segment.bytes": 3, "retention.ms": 5}
    expected |= {"min.cleanable.dirty.ratio": 6, "cleanup.policy": 7}
    assert {name: types[name] for name in expected} == expected
    types = {config.name: config.config_type for config in describe_configs(broker, 4, "0", None).configs}
    assert (types["auto.create.topics.enable"], types["num.partitions"]) == (1, 3)


def test_configs_of_brokers() -> None:
    broker = VirtualBroker(nodes=2, min_insync_replicas=2)
    keys = ["auto.create.topics.enable", "min.insync.replicas"]
    found = describe_configs(broker, 4, "1", keys, node_id=1)
    assert [(config.value, config.read_only) for config in found.configs] == [("true", True), ("2", True)]
    assert describe_configs(broker, 4, "", None).configs == []
    assert describe_configs(broker, 4, "1", None, node_id=0).error_code == ErrorCode.INVALID_REQUEST
    assert describe_configs(broker, 8, "1", None).error_code == ErrorCode.INVALID_REQUEST


def test_synonyms_say_where_a_config_comes_from(broker: VirtualBroker) -> None:
    broker.state.cluster.create_topic("compacted", 1, configs={"cleanup.policy": "compact"})
    kind = messages.DescribeConfigsRequest
    keys = ["cleanup.policy", "max.message.bytes", "leader.replication.throttled.replicas"]
    resource = kind.DescribeConfigsResource(
        resource_type=2, resource_name="compacted", configuration_keys=keys
    )
    for is_wanted in (True, False):
        (result,) = broker.client().ask(kind(resources=[resource], include_synonyms=is_wanted)).results
        found = {
            config.name: [(each.name, each.value, each.source) for each in config.synonyms]
            for config in result.configs
        }
        policies = [("cleanup.policy", "compact", 1), ("log.cleanup.policy", "delete", 5)]
        sizes = [("message.max.bytes", "1048588", 5)]
        expected = dict(zip(sorted(keys), (policies, [], sizes), strict=True))
        assert found == (expected if is_wanted else {key: [] for key in keys})


# Changes of configs


def alter(
    broker: VirtualBroker, *changes: tuple[str, int, str | None], name: str = TOPIC, **fields: Any
) -> Any:
    """Ask IncrementalAlterConfigs: 0 sets, 1 deletes, 2 appends, 3 subtracts."""
    kind = messages.IncrementalAlterConfigsRequest
    configs = [kind.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = kind.AlterConfigsResource(
        resource_type=fields.pop("resource_type", 2), resource_name=name, configs=configs
    )
    times = fields.pop("times", 1)
    answer = broker.client().ask(kind(resources=[resource] * times, **fields)).responses[-1]
    assert answer.resource_name == name
    return answer


def replace(broker: VirtualBroker, **configs: str | None) -> Any:
    """Ask AlterConfigs, which knows nothing of what was set before."""
    kind = messages.AlterConfigsRequest
    entries = [
        kind.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    resource = kind.AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=entries)
    return broker.client().ask(kind(resources=[resource])).responses[0]


def overrides(broker: VirtualBroker) -> dict[str, str]:
    return broker.state.cluster.topics[TOPIC].config.overrides


def test_configs_are_changed_one_by_one(broker: VirtualBroker) -> None:
    answer = alter(broker, ("retention.ms", 0, "1000"), ("max.message.bytes", 0, "5000"))
    assert (answer.error_code, answer.error_message) == (0, None)
    assert overrides(broker) == {"retention.ms": "1000", "max.message.bytes": "5000"}
    alter(broker, ("retention.ms", 1, None), ("cleanup.policy", 2, "compact"))
    assert overrides(broker) == {"max.message.bytes": "5000", "cleanup.policy": "delete,compact"}
    alter(broker, ("cleanup.policy", 3, "delete,other"), ("segment.ms", 1, None))
    assert overrides(broker) == {"max.message.bytes": "5000", "cleanup.policy": "compact"}


def test_configs_are_replaced_as_a_whole(broker: VirtualBroker) -> None:
    alter(broker, ("retention.ms", 0, "1000"))
    assert replace(broker, max_message_bytes="5000").error_code == 0
    assert overrides(broker) == {"max.message.bytes": "5000"}
    assert replace(broker, max_message_bytes=None).error_code == ErrorCode.INVALID_REQUEST
    assert replace(broker, no_such="1").error_code == ErrorCode.INVALID_CONFIG
    assert overrides(broker) == {"max.message.bytes": "5000"}
    assert replace(broker).error_code == 0
    assert overrides(broker) == {}


def test_changed_configs_hold_at_once_and_after_a_restart(tmp_path: Path) -> None:
    broker = VirtualBroker(directory=tmp_path)
    alter(broker, ("max.message.bytes", 0, "100"))
    answer = broker.client().ask(produce_request(broker, batch(b"x" * 200)))
    assert produced(answer).error_code == ErrorCode.MESSAGE_TOO_LARGE
    broker.state.close()
    broker = VirtualBroker(directory=tmp_path, topics=())
    assert overrides(broker) == {"max.message.bytes": "100"}


@pytest.mark.parametrize(
    ("changes", "fields", "code", "text"),
    [
        ([("no.such", 0, "1")], {}, ErrorCode.INVALID_CONFIG, "unknown topic config name: no.such"),
        ([("retention.ms", 0, "soon")], {}, ErrorCode.INVALID_CONFIG, "must be of type long"),
        ([("retention.ms", 2, "1")], {}, ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms"),
        (
            [("retention.ms", 0, None)],
            {},
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        ([("retention.ms", 9, "1")], {}, ErrorCode.INVALID_REQUEST, "Unknown operation 9 of retention.ms"),
        ([("retention.ms", 0, "1")] * 2, {}, ErrorCode.INVALID_REQUEST, "duplicate config keys"),
        ([], {"times": 2}, ErrorCode.INVALID_REQUEST, "at most once"),
        ([], {"name": "none"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist"),
        ([], {"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION, "a b"),
        ([], {"name": "0", "resource_type": 4}, ErrorCode.INVALID_REQUEST, "type 4 cannot be changed"),
    ],
    ids=["key", "value", "no list", "null", "operation", "key twice", "topic twice", "topic", "name", "node"],
)
def test_refused_change_of_configs_changes_nothing(
    broker: VirtualBroker, changes: list[Any], fields: dict[str, Any], code: ErrorCode, text: str
) -> None:
    answer = alter(broker, ("max.message.bytes", 0, "5000"), *changes, **fields)
    assert answer.error_code == code and text in answer.error_message
    assert overrides(broker) == {}


def test_configs_that_are_only_checked_stay(broker: VirtualBroker) -> None:
    assert alter(broker, ("retention.ms", 0, "1"), validate_only=True).error_code == 0
    assert alter(broker, ("retention.ms", 0, "x"), validate_only=True).error_code == ErrorCode.INVALID_CONFIG
    assert overrides(broker) == {}


def test_change_of_configs_needs_a_permission() -> None:
    broker = VirtualBroker(access=[])
    assert alter(broker, ("retention.ms", 0, "1")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = alter(broker, name="0", resource_type=4)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


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


# Telemetry


def test_telemetry_is_taken_and_wants_nothing(broker: VirtualBroker) -> None:
    client = broker.client()
    subscription = client.ask(messages.GetTelemetrySubscriptionsRequest())
    assert (subscription.requested_metrics, subscription.push_interval_ms) == ([], 300_000)
    instance_id = subscription.client_instance_id
    assert instance_id != bytes(16)
    again = client.ask(messages.GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))
    assert again.client_instance_id == instance_id
    pushed = client.ask(messages.PushTelemetryRequest(client_instance_id=instance_id, metrics=b"anything"))
    assert not list(error_places(pushed))
