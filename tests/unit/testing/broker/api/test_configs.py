"""Configs by request: descriptions and changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.support.broker_core import TOPIC, VirtualBroker, batch, produce_request, produced

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
    assert [(config.value, config.read_only) for config in found.configs] == [("true", True), ("2", False)]
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
        ([("no.such", 0, "1")], {}, ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        ([("retention.ms", 0, "soon")], {}, ErrorCode.INVALID_CONFIG, "Not a number of type LONG"),
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
        ([], {"name": "0", "resource_type": 8}, ErrorCode.INVALID_REQUEST, "type 8 cannot be changed"),
    ],
    ids=[
        "key",
        "value",
        "no list",
        "null",
        "operation",
        "key twice",
        "topic twice",
        "topic",
        "name",
        "logger",
    ],
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


def test_KE09_default_minimum_of_the_cluster_takes_effect(tmp_path: Path) -> None:
    broker = VirtualBroker(nodes=3, directory=tmp_path)
    controller, topic = broker.state.cluster.controller, broker.state.cluster.topics[TOPIC]
    change = ("min.insync.replicas", 0, "2")
    assert alter(broker, change, name="", resource_type=4).error_code == 0
    assert controller.min_isr(topic) == 2
    alter(broker, ("min.insync.replicas", 0, "1"))
    assert controller.min_isr(topic) == 1, "the topic's own counts first"
    alter(broker, ("min.insync.replicas", 1, None))
    broker.state.close()
    again = VirtualBroker(nodes=3, directory=tmp_path, topics=())
    assert again.state.cluster.controller.min_isr(again.state.cluster.topics[TOPIC]) == 2


def test_default_of_unclean_elections_takes_effect() -> None:
    broker = VirtualBroker(nodes=2)
    alter(broker, ("unclean.leader.election.enable", 0, "true"), name="", resource_type=4)
    partition = broker.state.cluster.partition(TOPIC, 0)
    for node in (1, 0):
        broker.act(lambda state, node=node: state.kill_node(node))  # type: ignore[misc]
    broker.act(lambda state: state.start_node(1))
    assert partition.leader == 1
