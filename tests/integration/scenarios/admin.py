"""Topics, configs, metadata; ApiVersions, and reasons for a broker to close a connection."""

import struct
from typing import Any

from kbatch.protocol import codec, messages
from kbatch.testing.broker.logs.topic_config import TOPIC_CONFIGS
from tests.integration.scenarios.produced_batches import GOOD
from tests.integration.scenarios.requests import log, produce, produce_request
from tests.integration.scenarios.wire import Wire, scenario, unknown_topic_id
from tests.support.patience import until

TOPIC, BROKER = 2, 4
TOPIC_CONFIG = 1  # the source of a config that was set for the topic
SET, DELETE, APPEND, SUBTRACT = range(4)
# Kafka has these only where a plugin takes what clients push.
FEATURES = {"group.version", "transaction.version"}
TELEMETRY = (71, 72)
# The embedded broker lacks brokers and voters that come and go, and streams groups.
NOT_EMBEDDED = (64, 80, 81, 89)
# Configs that both brokers have, with the same defaults.
CONFIGS = (
    *("cleanup.policy", "compression.type", "max.message.bytes", "segment.bytes"),
    *("message.timestamp.type", "message.timestamp.after.max.ms"),
)


def _create(
    wire: Wire, name: str, *, version: int = 7, note: str = "", validate: bool = False, **fields: Any
) -> Any:
    kind = messages.CreateTopicsRequest
    fields.setdefault("num_partitions", 1)
    fields.setdefault("replication_factor", 1)
    topic = kind.CreatableTopic(name=name, **fields)
    answer = wire.ask(kind(topics=[topic], timeout_ms=10_000, validate_only=validate), version)
    for created in answer.topics:
        created.configs = created.configs and [c for c in created.configs if c.name in CONFIGS]
    wire.note(f"CreateTopics v{version} {note}", answer)
    return answer


def _config(name: str, value: str | None) -> Any:
    return messages.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)


def _assignments(*replicas: list[int]) -> list[Any]:
    kind = messages.CreateTopicsRequest.CreatableReplicaAssignment
    return [kind(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)]


# Topics


@scenario
def topics_are_created(wire: Wire) -> None:
    for version in range(2, 8):
        _create(wire, wire.topic_name(f"v{version}"), version=version, num_partitions=2)
    _create(wire, wire.topic_name("default"), num_partitions=-1, replication_factor=-1, note="defaults")
    _create(wire, wire.topic_name("validated"), validate=True, note="validate only")
    _create(wire, wire.topic_name("validated"), validate=True, note="validate only, again")
    _create(
        wire,
        wire.topic_name("assigned"),
        num_partitions=-1,
        replication_factor=-1,
        assignments=_assignments([0], [0]),
        note="assigned",
    )
    _create(
        wire,
        wire.topic_name("configured"),
        configs=[_config("cleanup.policy", "compact"), _config("segment.bytes", "1048577")],
        note="configured",
    )


@scenario
def create_topics_refusals(wire: Wire) -> None:
    topic = wire.topic()
    _create(wire, topic, note="exists")
    for name in ("", ".", "..", "a b", "ä", "x" * 250, "a/b"):
        _create(wire, name, note=f"name {name}")
    _create(wire, wire.topic_name("long").ljust(249, "x"), note="longest name", validate=True)
    _create(wire, topic.replace("_", "."), note="collides but for dots and underscores")
    _create(wire, wire.topic_name("a"), replication_factor=2, note="replication factor 2")
    _create(wire, wire.topic_name("b"), replication_factor=0, note="replication factor 0")
    _create(wire, wire.topic_name("c"), replication_factor=-2, note="replication factor -2")
    _create(wire, wire.topic_name("d"), num_partitions=0, note="0 partitions")
    _create(wire, wire.topic_name("e"), num_partitions=-2, note="-2 partitions")
    _create(wire, wire.topic_name("f"), configs=[_config("no.such", "1")], note="unknown config")
    _create(
        wire, wire.topic_name("g"), configs=[_config("max.message.bytes", "x")], note="config not a number"
    )
    _create(
        wire, wire.topic_name("h"), configs=[_config("cleanup.policy", "x")], note="config not of the list"
    )
    _create(wire, wire.topic_name("i"), configs=[_config("cleanup.policy", None)], note="config null")
    _create(wire, wire.topic_name("j"), assignments=_assignments([0]), note="assigned, and a number")
    assigned: dict[str, Any] = {"num_partitions": -1, "replication_factor": -1}
    _create(wire, wire.topic_name("k"), assignments=_assignments([7]), **assigned, note="unknown broker")
    _create(wire, wire.topic_name("l"), assignments=_assignments([0, 0]), **assigned, note="broker twice")
    _create(wire, wire.topic_name("m"), assignments=_assignments([]), **assigned, note="no broker")
    _create(wire, "__consumer_offsets", note="internal")
    _create(wire, "__cluster_metadata", note="of the controllers")


@scenario
def create_topics_twice_in_a_request(wire: Wire) -> None:
    kind = messages.CreateTopicsRequest
    topics = [
        kind.CreatableTopic(name=wire.topic_name(suffix), num_partitions=1, replication_factor=1)
        for suffix in ("twice", "once", "twice")
    ]
    answer = wire.ask(kind(topics=topics))
    wire.note(
        "errors",
        [(t.name, {"error_code": t.error_code}) for t in sorted(answer.topics, key=lambda t: t.name)],
    )
    wire.call(kind(topics=[]), note="none")


@scenario
def partitions_are_created(wire: Wire) -> None:
    topic = wire.topic()
    kind = messages.CreatePartitionsRequest

    def grow(name: str, count: int, note: str = "", *, validate: bool = False, replicas: Any = None) -> None:
        assignments = replicas and [kind.CreatePartitionsAssignment(broker_ids=ids) for ids in replicas]
        entry = kind.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        wire.call(kind(topics=[entry], timeout_ms=5000, validate_only=validate), note=f"{count} {note}")

    grow(topic, 3, "validate only", validate=True)
    grow(topic, 3)
    wire.await_topic(topic, 3)
    produce(wire, topic, GOOD, partition=2)
    log(wire, topic, 2)
    grow(topic, 3, "the same")
    grow(topic, 2, "fewer")
    grow(topic, 0, "none")
    grow(topic, -1, "negative")
    grow("unknown", 3, "unknown")
    grow(topic, 5, "assigned", replicas=[[0], [0]])
    grow(topic, 7, "too few assigned", replicas=[[0]])
    grow(topic, 6, "unknown broker", replicas=[[9]])


@scenario
def partitions_of_a_topic_twice_in_a_request(wire: Wire) -> None:
    topic = wire.topic()
    kind = messages.CreatePartitionsRequest
    entries = [kind.CreatePartitionsTopic(name=topic, count=count, assignments=None) for count in (2, 3)]
    wire.call(kind(topics=entries, timeout_ms=5000))


@scenario
def topics_are_deleted(wire: Wire) -> None:
    kind = messages.DeleteTopicsRequest
    for version in range(1, 6):
        topic = wire.topic(f"v{version}")
        wire.call(kind(topic_names=[topic, "unknown"], timeout_ms=5000), version)
    named, by_id = wire.topic("named"), wire.topic("by-id")
    states = [
        kind.DeleteTopicState(name=named),
        kind.DeleteTopicState(topic_id=wire.topic_id(by_id)),
        kind.DeleteTopicState(name="unknown"),
        kind.DeleteTopicState(topic_id=unknown_topic_id()),
    ]
    for state in states:
        wire.call(kind(topics=[state], timeout_ms=5000), 6)
    wire.call(
        kind(topics=[kind.DeleteTopicState(name="x", topic_id=unknown_topic_id())], timeout_ms=5000),
        6,
        note="name and id",
    )
    wire.call(kind(topics=[kind.DeleteTopicState()], timeout_ms=5000), 6, note="neither")
    twice = wire.topic("twice")
    wire.call(kind(topics=[kind.DeleteTopicState(name=twice)] * 2, timeout_ms=5000), 6, note="twice")
    wire.call(kind(topic_names=[twice] * 2, timeout_ms=5000), 5, note="twice")
    same_id = kind.DeleteTopicState(topic_id=wire.topic_id(twice))
    wire.call(kind(topics=[same_id] * 2, timeout_ms=5000), 6, note="twice by id")


@scenario
def deleted_topic_is_gone_and_its_name_free(wire: Wire) -> None:
    topic = wire.topic()
    produce(wire, topic, GOOD)
    delete = messages.DeleteTopicsRequest
    wire.call(delete(topics=[delete.DeleteTopicState(name=topic)], timeout_ms=5000))
    old_id = wire.topic_id(topic)
    until(lambda: _metadata_of(wire, topic).error_code != 0)
    wire.note("metadata", _metadata_of(wire, topic))
    produce(wire, topic, GOOD, note="by name")
    produce(wire, topic, GOOD, version=13, note="by id")
    topic = wire.topic()
    log(wire, topic)
    wire.forge_topic_id(topic, old_id)
    produce(wire, topic, GOOD, version=13, note="by the old id")


def _metadata_of(wire: Wire, topic: str) -> Any:
    kind = messages.MetadataRequest
    request = kind(topics=[kind.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return wire.ask(request).topics[0]


# Configs


def _describe_configs(
    wire: Wire, resource_type: int, name: str, keys: Any, note: str = "", **fields: Any
) -> None:
    kind = messages.DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys
    )
    for version in (1, 4):
        answer = wire.ask(kind(resources=[resource], **fields if version == 4 else {}), version)
        for result in answer.results:
            result.configs = [config for config in result.configs if config.name in CONFIGS]
            for config in result.configs:
                config.synonyms = []
        wire.note(f"DescribeConfigs v{version} {note}", answer)


@scenario
def configs_are_described(wire: Wire) -> None:
    topic = wire.topic(max_message_bytes=5000, cleanup_policy="compact")
    _describe_configs(wire, TOPIC, topic, list(CONFIGS))
    _describe_configs(wire, TOPIC, topic, None, "all")
    _describe_configs(wire, TOPIC, topic, ["cleanup.policy", "no.such"], "unknown key")
    _describe_configs(wire, TOPIC, topic, [], "no keys")
    _describe_configs(wire, TOPIC, "unknown", None, "unknown topic")
    _describe_configs(wire, TOPIC, "a b", None, "invalid topic")
    _describe_configs(wire, TOPIC, "", None, "empty topic")
    _describe_configs(wire, BROKER, "x", None, "broker not a number")
    _describe_configs(wire, BROKER, "17", None, "unknown broker")
    _describe_configs(wire, 77, "x", None, "unknown type")


@scenario
def synonyms_of_configs(wire: Wire) -> None:
    """They say where a value comes from. Some of the broker's were set for the tests."""
    kind = messages.DescribeConfigsRequest
    topic = wire.topic(max_message_bytes=5000, cleanup_policy="compact")
    set_for_brokers = {"min.insync.replicas", "retention.ms", "segment.index.bytes", "segment.ms"}
    names = sorted(TOPIC_CONFIGS.keys() - set_for_brokers)
    resource = kind.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=names
    )
    for version in (1, 4):
        answer = wire.ask(kind(resources=[resource], include_synonyms=True), version)
        wire.note(f"v{version}", sorted(answer.results[0].configs, key=lambda config: config.name))


def _alter(wire: Wire, note: str, name: str, *changes: tuple[str, int, str | None], **fields: Any) -> None:
    """Change the topic's configs one by one, and note what is set afterwards."""
    kind = messages.IncrementalAlterConfigsRequest
    configs = [kind.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = kind.AlterConfigsResource(
        resource_type=fields.pop("resource_type", TOPIC), resource_name=name, configs=configs
    )
    for version in (0, 1):
        wire.call(kind(resources=[resource], **fields), version, note=f"{note} v{version}")
    _await_configs(wire, name, note)


def _replace(wire: Wire, note: str, name: str, **configs: str | None) -> None:
    kind = messages.AlterConfigsRequest
    entries = [
        kind.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    resource = kind.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=entries)
    for version in (0, 2):
        wire.call(kind(resources=[resource]), version, note=f"{note} v{version}")
    _await_configs(wire, name, note)


def _await_configs(wire: Wire, name: str, note: str) -> None:
    """Note the configs that were set. A broker of Kafka's learns of changes a moment after the answer, one
    after the other: a last change of another key shows that it knows those before.
    """
    kind, changes = messages.DescribeConfigsRequest, messages.IncrementalAlterConfigsRequest
    last = str(len(wire.transcript) + 1)
    config = changes.AlterableConfig(name="flush.messages", config_operation=0, value=last)
    resource = changes.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[config])
    wire.ask(changes(resources=[resource]), 1)
    described = kind.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
    found: dict[str, str] = {}
    while found.pop("flush.messages", None) != last:
        configs = wire.ask(kind(resources=[described]), 4).results[0].configs
        found = {config.name: config.value for config in configs if config.config_source == TOPIC_CONFIG}
    wire.note(f"configs after {note}", sorted(found.items()))


@scenario
def configs_are_changed(wire: Wire) -> None:
    topic = wire.topic(max_message_bytes=5000)
    _alter(wire, "set", topic, ("cleanup.policy", SET, "compact"), ("retention.ms", SET, "1000"))
    _alter(wire, "append", topic, ("cleanup.policy", APPEND, "delete"))
    _alter(wire, "subtract", topic, ("cleanup.policy", SUBTRACT, "compact"))
    _alter(wire, "delete", topic, ("retention.ms", DELETE, None), ("segment.ms", DELETE, "1"))
    _alter(wire, "only checked", topic, ("retention.ms", SET, "5"), validate_only=True)
    _alter(wire, "nothing", topic)
    _replace(wire, "replaced", topic, retention_ms="77")
    _replace(wire, "replaced by nothing", topic)


@scenario
def changes_of_configs_are_refused(wire: Wire) -> None:
    topic = wire.topic(max_message_bytes=5000)
    good = ("segment.ms", SET, "77")
    _alter(wire, "unknown key", topic, good, ("no.such", SET, "1"))
    _alter(wire, "delete of an unknown key", topic, ("no.such", DELETE, None))
    _alter(wire, "wrong type", topic, good, ("retention.ms", SET, "soon"))
    _alter(wire, "out of range", topic, good, ("retention.ms", SET, "-5"))
    _alter(wire, "no list", topic, good, ("retention.ms", APPEND, "5"))
    _alter(wire, "wrong item", topic, good, ("cleanup.policy", APPEND, "keep"))
    _alter(wire, "null", topic, good, ("retention.ms", SET, None))
    _alter(wire, "key twice", topic, good, good)
    _replace(wire, "replaced, null", topic, retention_ms=None)
    _replace(wire, "replaced, unknown key", topic, no_such="1")
    kind = messages.IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name="retention.ms", config_operation=SET, value="1")
    for note, names, resource_type in (
        ("unknown topic", ["unknown"], TOPIC),
        ("invalid name", ["a b"], TOPIC),
        ("topic twice", [topic, topic], TOPIC),
        ("unknown type", ["x"], 77),
    ):
        resources = [
            kind.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[config])
            for name in names
        ]
        wire.call(kind(resources=resources), note=note)


# Metadata


def _metadata(wire: Wire, names: list[str] | None, version: int, note: str = "", **fields: Any) -> None:
    """Request metadata, and record the response without topics of other scenarios."""
    kind = messages.MetadataRequest
    topics = names if names is None else [kind.MetadataRequestTopic(name=name) for name in names]
    answer = wire.ask(kind(topics=topics, **fields), version)
    if not names:
        answer.topics = [topic for topic in answer.topics if topic.name.startswith(wire.name)]
    wire.note(f"Metadata v{version} {note}", answer)


@scenario
def metadata_in_each_version(wire: Wire) -> None:
    topic = wire.topic(partitions=2)
    for version in range(14):
        fields: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
        _metadata(wire, [topic, "unknown"], version, **fields)
        if version >= 1:
            _metadata(wire, None, version, "all", **fields)
        _metadata(wire, [], version, "none", **fields)


@scenario
def metadata_refusals(wire: Wire) -> None:
    for name in ("", "a b", ".", "x" * 250):
        _metadata(wire, [name], 12, f"name {name}")
    _metadata(wire, ["unknown"], 12, "auto creation asked for, not allowed")
    internal = _metadata_of(wire, "__consumer_offsets")
    wire.note("internal", (internal.is_internal, {"error_code": internal.error_code}))
    topic = wire.topic()
    _metadata(wire, [topic, topic], 12, "twice")


@scenario
def metadata_by_id(wire: Wire) -> None:
    topic = wire.topic()
    kind = messages.MetadataRequest
    for version in (10, 12, 13):
        for topic_id in (wire.topic_id(topic), unknown_topic_id()):
            wire.call(kind(topics=[kind.MetadataRequestTopic(topic_id=topic_id, name=None)]), version)
    both = kind.MetadataRequestTopic(topic_id=wire.topic_id(topic), name=topic)
    wire.call(kind(topics=[both]), 12, note="name and id")
    for version in (11, 12, 13):
        topics = [kind.MetadataRequestTopic(name=topic), kind.MetadataRequestTopic(name=None)]
        wire.call(kind(topics=topics), version, note="neither")
    by_id = kind.MetadataRequestTopic(topic_id=wire.topic_id(topic), name=None)
    wire.call(kind(topics=[by_id, by_id]), note="twice")
    other = kind.MetadataRequestTopic(name=wire.topic("other"))
    wire.call(kind(topics=[other, by_id, kind.MetadataRequestTopic(name=None)]), note="some by name")


@scenario
def metadata_with_authorized_operations(wire: Wire) -> None:
    topic = wire.topic()
    _metadata(wire, [topic], 8, include_cluster_authorized_operations=True)
    _metadata(wire, [topic], 13, include_topic_authorized_operations=True)


@scenario
def cluster_is_described(wire: Wire) -> None:
    for version in range(3):
        wire.call(messages.DescribeClusterRequest(), version)
    wire.call(messages.DescribeClusterRequest(endpoint_type=2), 1, note="controllers")
    wire.call(messages.DescribeClusterRequest(endpoint_type=9), 1, note="unknown endpoint type")


# ApiVersions and the connection


@scenario
def api_versions(wire: Wire) -> None:
    for version in range(5):
        software = {"client_software_name": "n", "client_software_version": "1.0"} if version >= 3 else {}
        answer = wire.ask(messages.ApiVersionsRequest(**software), version)
        ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        known = {
            kind.__name__: ranges.get(key)
            for key, kind in messages.REQUESTS.items()
            if key not in (*TELEMETRY, *NOT_EMBEDDED)
        }
        features = [row for row in answer.finalized_features if row.name in FEATURES]
        wire.note(f"ApiVersions v{version}", {"ranges": known, "features": features})


@scenario
def api_versions_refusals(wire: Wire) -> None:
    for name, version in (("", "1"), ("n", ""), ("-n", "1"), ("n n", "1")):
        request = messages.ApiVersionsRequest(client_software_name=name, client_software_version=version)
        answer = wire.ask(request, 3)
        wire.note(f"{name!r} {version!r}", {"error_code": answer.error_code, "keys": bool(answer.api_keys)})


@scenario
def api_versions_of_the_future_is_answered_in_version_0(wire: Wire) -> None:
    wire.send_bytes(_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\0\3a\2b\0"))
    correlation_id, answer = codec.decode_response(messages.ApiVersionsResponse, 0, wire.receive_frame())
    ranges = [(r.api_key, r.min_version, r.max_version) for r in answer.api_keys if r.api_key == 18]
    wire.note("answer", (correlation_id, {"error_code": answer.error_code}, ranges))
    wire.call(messages.FindCoordinatorRequest(key="k", key_type=0), 3, note="the connection lives on")


def _frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


REFUSED_FRAMES = {
    "unknown api": _frame(struct.pack(">hhih", 999, 0, 1, -1)),
    "negative api": _frame(struct.pack(">hhih", -1, 0, 1, -1)),
    "version too new": _frame(struct.pack(">hhih", 3, 99, 1, -1)),
    "version too old": _frame(struct.pack(">hhih", 1, 0, 1, -1)),
    "negative version": _frame(struct.pack(">hhih", 3, -1, 1, -1)),
    "garbage": _frame(b"\xff" * 40),
    "body cut off": _frame(struct.pack(">hhih", 3, 1, 1, -1) + b"\0"),
    "count too large": _frame(struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1)),
    "header cut off": _frame(b"\0\3"),
    "empty": _frame(b""),
    "size negative": struct.pack(">i", -5),
    "size too large": struct.pack(">i", 2**31 - 1),
    "text": b"GET / HTTP/1.1\r\n\r\n",
}


@scenario
def frames_that_close_the_connection(wire: Wire) -> None:
    for name, data in REFUSED_FRAMES.items():
        wire.send_bytes(data)
        wire.note(name, wire.is_closed)
        wire.reconnect()


@scenario
def requests_are_answered_in_order(wire: Wire) -> None:
    topic = wire.topic()
    for acks in (1, -1, 1):
        wire.send(produce_request(wire, {(topic, 0): GOOD}, acks=acks), 12)
    for _ in range(3):
        wire.note("answer", wire.receive())
