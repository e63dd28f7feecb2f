"""Log directories, levels of features, the quorum of controllers, configs of brokers."""

from __future__ import annotations

import re
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.integration.scenarios.produced_batches import GOOD
from tests.integration.scenarios.requests import produce
from tests.integration.scenarios.wire import Wire, scenario
from tests.support.patience import until

UPGRADE, SAFE, UNSAFE = 1, 2, 3
BROKER = 4  # a type of resources
SET, DELETE = 0, 1
DYNAMIC = (2, 3)  # sources of configs that were set at run time, for a broker or for all


def _text(message: str | None) -> str | None:
    """Return a text without the id of the controller."""
    return message and re.sub(r"controller \d+", "controller N", message)


# Log directories


def _directories(wire: Wire, topics: dict[str, list[int]] | None, version: int = 5) -> Any:
    kind = messages.DescribeLogDirsRequest
    wanted = (
        None
        if topics is None
        else [kind.DescribableLogDirTopic(topic=name, partitions=topics[name]) for name in topics]
    )
    return wire.ask(kind(topics=wanted), version)


def _note_directories(wire: Wire, note: str, topics: dict[str, list[int]], version: int = 5) -> None:
    answer = _directories(wire, topics, version)
    rows = [
        (ErrorCode(each.error_code).name, each.is_cordoned, [(t.name, t.partitions) for t in each.topics])
        for each in answer.results
    ]
    wire.note(f"DescribeLogDirs v{version} {note}", (ErrorCode(answer.error_code).name, rows))


@scenario
def log_directories_are_described(wire: Wire) -> None:
    topic = wire.topic(partitions=2)
    produce(wire, topic, GOOD, partition=1)
    for version in messages.DescribeLogDirsRequest.versions:
        _note_directories(wire, "one partition", {topic: [1]}, version)
    _note_directories(wire, "both", {topic: [0, 1]})
    _note_directories(wire, "no such partition", {topic: [7]})
    _note_directories(wire, "no such topic", {"nope": [0]})
    _note_directories(wire, "none", {})
    (everything,) = _directories(wire, None).results
    wire.note("all", sorted(each.name for each in everything.topics if each.name == topic))


@scenario
def replicas_move_between_log_directories(wire: Wire) -> None:
    topic = wire.topic()
    (here,) = _directories(wire, {topic: [0]}).results
    kind = messages.AlterReplicaLogDirsRequest

    def move(note: str, path: str, name: str, *indexes: int) -> None:
        moved = kind.AlterReplicaLogDirTopic(name=name, partitions=list(indexes))
        wire.call(kind(dirs=[kind.AlterReplicaLogDir(path=path, topics=[moved])]), note=note)

    move("where it is", here.log_dir, topic, 0)
    move("elsewhere", "/nowhere", topic, 0)
    move("no such partition", here.log_dir, topic, 0, 7)
    move("no such topic", here.log_dir, "nope", 0)
    move("no such topic elsewhere", "/nowhere", "nope", 0)
    wire.call(kind(dirs=[]), note="none")


# Features


def _note_update(
    wire: Wire, note: str, *updates: tuple[str, int, int], version: int = 2, validate: bool = True
) -> None:
    kind = messages.UpdateFeaturesRequest
    named = [
        kind.FeatureUpdateKey(
            feature=name,
            max_version_level=level,
            **({"upgrade_type": how} if version else {"allow_downgrade": how != UPGRADE}),
        )
        for name, level, how in updates
    ]
    request = kind(feature_updates=named, **({"validate_only": validate} if version else {}))
    answer = wire.ask(request, version)
    results = [(each.feature, each.error_code, each.error_message) for each in answer.results]
    row = (ErrorCode(answer.error_code).name, _text(answer.error_message), results)
    wire.note(f"UpdateFeatures v{version} {note}", row)


@scenario
def levels_of_features_are_checked(wire: Wire) -> None:
    transactions = "transaction.version"
    _note_update(wire, "as it is", (transactions, 2, UPGRADE))
    _note_update(wire, "as it is, version 0", (transactions, 2, UPGRADE), version=0)
    _note_update(wire, "as it is, version 1", (transactions, 2, UPGRADE), version=1)
    _note_update(wire, "as it is, downgrade", (transactions, 2, SAFE))
    _note_update(wire, "down as up", (transactions, 1, UPGRADE))
    _note_update(wire, "down as up, version 1", (transactions, 1, UPGRADE), version=1)
    _note_update(wire, "down", (transactions, 1, SAFE))
    _note_update(wire, "down, unsafe", (transactions, 0, UNSAFE))
    _note_update(wire, "unknown", ("nope", 1, UPGRADE))
    _note_update(wire, "unknown, version 0", ("nope", 1, UPGRADE), version=0)
    _note_update(wire, "too high", (transactions, 9, UPGRADE))
    _note_update(wire, "negative", (transactions, -1, SAFE))
    _note_update(wire, "type 9", (transactions, 1, 9))
    _note_update(wire, "one wrong of two", (transactions, 1, SAFE), ("nope", 1, UPGRADE))
    _note_update(wire, "two wrong", ("nope", 1, UPGRADE), (transactions, 1, UPGRADE))
    _note_update(wire, "none")


@scenario
def levels_of_features_are_changed(wire: Wire) -> None:
    def level(note: str) -> None:
        request = messages.ApiVersionsRequest(client_software_name="scenario", client_software_version="1")
        levels = {row.name: row.max_version_level for row in wire.ask(request, 4).finalized_features}
        wire.note(note, levels.get("group.version"))

    level("before")
    _note_update(wire, "down", ("group.version", 0, SAFE), validate=False)
    wire.await_feature("group.version", 0)
    level("down")
    _note_update(wire, "newer as down", ("group.version", 1, SAFE), validate=False)
    _note_update(wire, "up", ("group.version", 1, UPGRADE), validate=False)
    wire.await_feature("group.version", 1)
    level("up")


# The quorum


@scenario
def the_quorum_is_described(wire: Wire) -> None:
    kind = messages.DescribeQuorumRequest
    for version in kind.versions:
        for topic, index in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("nope", 0)):
            wanted = kind.TopicData(topic_name=topic, partitions=[kind.PartitionData(partition_index=index)])
            answer = wire.ask(kind(topics=[wanted]), version)
            ((found,),) = (each.partitions for each in answer.topics)
            has_leader = found.leader_id in {each.replica_id for each in found.current_voters}
            names = {listener.name for node in answer.nodes for listener in node.listeners}
            row = (found.error_code, found.error_message, has_leader, found.leader_epoch > 0, names)
            texts = (answer.error_code, answer.error_message)
            wire.note(f"DescribeQuorum v{version} {topic}-{index}", (*texts, row))
    wire.call(kind(topics=[]), note="none")


# Configs of brokers


@scenario
def configs_of_brokers_are_changed(wire: Wire) -> None:
    kind, asked = messages.IncrementalAlterConfigsRequest, messages.DescribeConfigsRequest
    unclean, minimum = "unclean.leader.election.enable", "min.insync.replicas"

    def alter(note: str, broker: str, *changes: tuple[str, str | None, int], validate: bool = False) -> None:
        configs = [kind.AlterableConfig(name=n, config_operation=how, value=v) for n, v, how in changes]
        resource = kind.AlterConfigsResource(resource_type=BROKER, resource_name=broker, configs=configs)
        (answer,) = wire.ask(kind(resources=[resource], validate_only=validate)).responses
        wire.note(f"{note} of {broker!r}", (ErrorCode(answer.error_code).name, answer.error_message))

    def described(broker: str, *keys: str) -> Any:
        resource = asked.DescribeConfigsResource(
            resource_type=BROKER, resource_name=broker, configuration_keys=list(keys)
        )
        (answer,) = wire.ask(asked(resources=[resource], include_synonyms=True)).results
        rows = [
            (
                *(each.name, each.value, each.config_source, each.read_only, each.is_sensitive),
                [(s.name, s.value, s.source) for s in each.synonyms if s.source in DYNAMIC],
            )
            for each in answer.configs
        ]
        return ErrorCode(answer.error_code).name, answer.error_message, rows

    def describe(note: str, broker: str, *keys: str) -> None:
        wire.note(f"describe {note} {broker!r}", described(broker, *keys))

    for broker in ("0", ""):
        alter("set", broker, (unclean, "true", SET))
        until(lambda broker=broker: "true" in [row[1] for row in described(broker, unclean)[2]])  # type: ignore[misc]
        describe("set", broker, unclean)
        alter("unknown", broker, ("my.own.key", "x", SET))
        until(lambda broker=broker: described(broker, "my.own.key")[2])  # type: ignore[misc]
        describe("unknown", broker, "my.own.key")
        alter("unknown no more", broker, ("my.own.key", None, DELETE))
        alter("static", broker, ("auto.create.topics.enable", "false", SET))
        alter("not a boolean", broker, (unclean, "x", SET))
        alter("only validated", broker, (unclean, "false", SET), validate=True)
        alter("null", broker, (unclean, None, SET))
    describe("both", "0", unclean)
    for broker in ("0", ""):
        alter("reset", broker, (unclean, None, DELETE))
        alter("minimum", broker, (minimum, "0", SET))
    alter("minimum not a number", "", (minimum, "x", SET))
    alter("minimum", "0", (minimum, "1", SET))
    alter("no number", "x", (unclean, "true", SET))
    for broker in ("x", "7"):
        describe("other", broker)
