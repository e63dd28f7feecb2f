"""The calls of tests/java/AdminJudge.java, by kbatch's Admin: the same JSON, the same answers.

An answer has for each item {"result": ...} or {"code": the error's}; what a client refuses by itself, before
a broker could, has the code -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from kbatch import Admin, TopicPartition
from kbatch.admin import DEFAULT, Acl, AclFilter, ConfigResource, NewPartitions, NewTopic, QuotaEntity
from kbatch.core.admin.configs import ConfigChange
from kbatch.errors import ErrorCode, KafkaError, PartialFailure
from kbatch.records import OffsetAndMetadata

Call = Mapping[str, Any]
Answer = dict[str, dict[str, Any]]


def answer(admin: Admin, call: Call) -> Answer:
    """Do a call, {"call": name, ...}."""
    return _CALLS[call["call"]](admin, call)


def _each(
    items: Iterable[str],
    attempt: Callable[[], Any],
    view: Callable[[Any], Any] = lambda done: None,
    *,
    name: Callable[[Any], str] = str,
) -> Answer:
    """Return the answer of a call about many items; an error of all of it is each one's."""
    errors: Mapping[Any, KafkaError] = {}
    try:
        results = attempt()
    except PartialFailure as failure:
        results, errors = failure.results, failure.errors
    except (KafkaError, ValueError) as error:
        return {item: _refusal(error) for item in items}
    if results is None:  # of a call that only does something
        return {item: {"result": None} for item in items}
    found = {name(item): {"result": view(each)} for item, each in results.items()}
    return found | {name(item): _refusal(each) for item, each in errors.items()}


def _one(attempt: Callable[[], Any], view: Callable[[Any], Any] = lambda done: None) -> Answer:
    return _each([""], lambda: {"": attempt()}, view)


def _refusal(error: Exception) -> dict[str, Any]:
    code = getattr(error, "code", None)
    return {"code": -1 if code is None else int(code)}


# Arguments


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def _by_partition(given: Mapping[str, Any]) -> dict[TopicPartition, Any]:
    return {_partition(each): value for each, value in given.items()}


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _new_topic(given: Mapping[str, Any]) -> NewTopic:
    assignment = given.get("assignment")
    return NewTopic(
        given.get("partitions"),
        given.get("replication_factor"),
        None if assignment is None else {int(each): brokers for each, brokers in assignment.items()},
        given.get("configs", {}),
    )


def _resource(text: str) -> ConfigResource:
    return ConfigResource(*text.split(":", 1))


def _resource_name(resource: ConfigResource) -> str:
    return f"{resource.kind}:{resource.name}"


def _change(operations: Iterable[list[str]]) -> ConfigChange:
    given: dict[str, Any] = {"set": {}, "append": {}, "subtract": {}, "reset": []}
    for operation, key, *value in operations:
        if operation == "delete":
            given["reset"].append(key)
        else:
            given[operation][key] = value[0]
    return ConfigChange(**given)


def _spec(at: str | int) -> Any:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at) if isinstance(at, int) else at


def _acl_name(acl: Acl) -> str:
    return f"{acl.resource.upper()}:{acl.name}:{acl.operation}:{acl.principal}"


_ENTITY_PARTS = {"user": "user", "client-id": "client_id", "ip": "ip"}


def _entity(given: Mapping[str, str | None]) -> QuotaEntity:
    return QuotaEntity(**{_ENTITY_PARTS[part]: name or DEFAULT for part, name in given.items()})


def _entity_name(entity: QuotaEntity) -> str:
    parts = {java: getattr(entity, ours) for java, ours in sorted(_ENTITY_PARTS.items())}
    shown = [
        f"{part}={None if name == DEFAULT else name}" for part, name in parts.items() if name is not None
    ]
    return f"{{{', '.join(shown)}}}".replace("=None", "=null")


# Calls


def _create_topics(admin: Admin, call: Call) -> Answer:
    topics = {each["name"]: _new_topic(each) for each in call["topics"]}
    return _each(
        topics,
        lambda: admin.topics.create(topics, validate_only=call.get("validate_only", False), wait=False),
    )


def _create_partitions(admin: Admin, call: Call) -> Answer:
    topics = {
        name: NewPartitions(*each) if isinstance(each, list) else NewPartitions(each)
        for name, each in call["topics"].items()
    }
    return _each(topics, lambda: admin.topics.add_partitions(topics))


def _describe_topics(admin: Admin, call: Call) -> Answer:
    return _each(
        call["topics"],
        lambda: admin.topics.describe(call["topics"]),
        lambda topic: [
            [-1 if each.leader is None else each.leader, list(each.replicas), list(each.isr)]
            for each in topic.partitions
        ],
    )


def _delete_records(admin: Admin, call: Call) -> Answer:
    offsets = {
        partition: "end" if offset == -1 else offset
        for partition, offset in _by_partition(call["offsets"]).items()
    }
    return _each(
        call["offsets"], lambda: admin.topics.delete_records(offsets), lambda offset: offset, name=_name
    )


def _list_offsets(admin: Admin, call: Call) -> Answer:
    specs = {partition: _spec(at) for partition, at in _by_partition(call["specs"]).items()}
    return _each(
        call["specs"],
        lambda: admin.topics.offsets(specs),
        lambda found: -1 if found is None else found.offset,
        name=_name,
    )


def _describe_producers(admin: Admin, call: Call) -> Answer:
    return _each(
        call["partitions"],
        lambda: admin.topics.producers([_partition(each) for each in call["partitions"]]),
        lambda states: [[each.epoch, each.last_sequence] for each in states],
        name=_name,
    )


def _alter_configs(admin: Admin, call: Call) -> Answer:
    def alter() -> dict[ConfigResource, None]:
        changes = {_resource(each): _change(operations) for each, operations in call["changes"].items()}
        return admin.configs.alter(changes)

    return _each(call["changes"], alter, name=_resource_name)


def _describe_configs(admin: Admin, call: Call) -> Answer:
    return _each(
        call["resources"],
        lambda: admin.configs.describe([_resource(each) for each in call["resources"]]),
        lambda entries: {
            name: each.value for name, each in entries.items() if each.source.startswith("DYNAMIC")
        },
        name=_resource_name,
    )


def _elect(admin: Admin, call: Call) -> Answer:
    """Elect leaders: what is an error for Java is False here."""
    found = _each(
        call["partitions"],
        lambda: admin.partitions.elect(
            [_partition(each) for each in call["partitions"]], unclean=call.get("unclean", False)
        ),
        lambda is_elected: is_elected,
        name=_name,
    )
    refused: dict[str, Any] = {"code": int(ErrorCode.ELECTION_NOT_NEEDED)}
    return {
        item: each if "code" in each else {"result": None} if each["result"] else refused
        for item, each in found.items()
    }


def _reassign(admin: Admin, call: Call) -> Answer:
    replicas = _by_partition(call["replicas"])
    if None in replicas.values():
        return _each(call["replicas"], lambda: admin.partitions.cancel(replicas), name=_name)

    def reassign() -> None:
        admin.partitions.reassign(replicas)

    return _each(call["replicas"], reassign, name=_name)


def _reassignments(admin: Admin, call: Call) -> Answer:
    found = admin.partitions.reassignments([_partition(each) for each in call["partitions"]])
    return {_name(partition): {"result": [list(part) for part in each]} for partition, each in found.items()}


def _log_dirs(admin: Admin, call: Call) -> Answer:
    return _each(
        [str(each) for each in call["brokers"]],
        lambda: admin.partitions.log_dirs(call["brokers"]),
        lambda dirs: sorted(each.path for each in dirs),
    )


def _replica(text: str) -> tuple[TopicPartition, int]:
    """Return a partition and the id of a broker, "topic-0:1"."""
    partition, _, broker = text.rpartition(":")
    return _partition(partition), int(broker)


def _replica_name(replica: tuple[TopicPartition, int]) -> str:
    return f"{_name(replica[0])}:{replica[1]}"


def _move_log_dirs(admin: Admin, call: Call) -> Answer:
    moves = {_replica(each): path for each, path in call["moves"].items()}
    return _each(call["moves"], lambda: admin.partitions.move_log_dirs(moves), name=_replica_name)


def _replica_dirs(admin: Admin, call: Call) -> Answer:
    return _each(
        call["replicas"],
        lambda: admin.partitions.replica_dirs(map(_replica, call["replicas"])),
        lambda found: [found.current, found.future],
        name=_replica_name,
    )


def _groups(admin: Admin, call: Call) -> Answer:
    return {
        each.group_id: {"result": [(each.kind or "").capitalize(), each.state]}
        for each in admin.groups.list()
        if each.group_id.startswith(call["prefix"])  # lists have the groups of all clients
    }


def _group_offsets(admin: Admin, call: Call) -> Answer:
    found = admin.groups.offsets(call["group"])
    committed = {partition: each.committed for partition, each in found.items()}
    return {
        _name(partition): {"result": [each.offset, each.metadata]}
        for partition, each in committed.items()
        if each is not None
    }


def _alter_group_offsets(admin: Admin, call: Call) -> Answer:
    offsets = {
        partition: OffsetAndMetadata(each[0], each[1]) if isinstance(each, list) else each
        for partition, each in _by_partition(call["offsets"]).items()
    }
    return _each(call["offsets"], lambda: admin.groups.commit_offsets(call["group"], offsets), name=_name)


def _delete_group_offsets(admin: Admin, call: Call) -> Answer:
    partitions = [_partition(each) for each in call["partitions"]]
    return _each(
        call["partitions"], lambda: admin.groups.delete_offsets(call["group"], partitions), name=_name
    )


def _share_offsets(admin: Admin, call: Call) -> Answer:
    return _each(
        [""],
        lambda: admin.groups.share_offsets(call["group"]),
        lambda found: found.start,
        name=_name,
    )


def _alter_share_offsets(admin: Admin, call: Call) -> Answer:
    """Set offsets as Java does, which makes a group if there is none."""
    offsets = _by_partition(call["offsets"])
    return _each(
        call["offsets"],
        lambda: admin.groups.set_share_offsets(call["group"], offsets, create=True),
        name=_name,
    )


def _delete_share_offsets(admin: Admin, call: Call) -> Answer:
    return _each(call["topics"], lambda: admin.groups.delete_share_offsets(call["group"], call["topics"]))


def _describe_groups(kind: str, admin: Admin, call: Call) -> Answer:
    return _each(
        call["groups"],
        lambda: admin.groups.describe(call["groups"], kind),
        lambda group: group.state,
    )


def _delete_groups(kind: str | None, admin: Admin, call: Call) -> Answer:
    return _each(call["groups"], lambda: admin.groups.delete(call["groups"], kind=kind))


def _create_acls(admin: Admin, call: Call) -> Answer:
    acls = [Acl(*each) for each in call["acls"]]
    names = [_acl_name(each) for each in acls]
    return _each(names, lambda: admin.acls.create(acls), name=_acl_name)


def _delete_acls(admin: Admin, call: Call) -> Answer:
    def delete() -> tuple[Acl, ...]:
        (deleted,) = admin.acls.delete([AclFilter(principal=call["filter"])]).values()
        return deleted or ()

    return _each(
        [""], lambda: {"": delete()}, lambda acls: sorted(map(_acl_name, acls)), name=lambda filter: ""
    )


def _alter_quotas(admin: Admin, call: Call) -> Answer:
    changes = {_entity(each["entity"]): each["values"] for each in call["changes"]}
    return _each(map(_entity_name, changes), lambda: admin.quotas.alter(changes), name=_entity_name)


def _quotas(admin: Admin, call: Call) -> Answer:
    found = admin.quotas.describe(user=call["user"])
    return {_entity_name(entity): {"result": values} for entity, values in found.items()}


def _alter_users(admin: Admin, call: Call) -> Answer:
    return {each["user"]: _one(partial(_alter_user, admin, **each))[""] for each in call["changes"]}


def _alter_user(
    admin: Admin, user: str, mechanism: str = "SCRAM-SHA-512", iterations: int | None = None
) -> None:
    if iterations is None:
        admin.users.delete(user, mechanism)
    else:
        admin.users.set(user, "secret", mechanism, iterations)


def _users(admin: Admin, call: Call) -> Answer:
    return _each(
        call["users"],
        lambda: admin.users.describe(call["users"]),
        lambda found: sorted(f"{each.mechanism} {each.iterations}" for each in found),
    )


def _update_features(admin: Admin, call: Call) -> Answer:
    kinds = {"UPGRADE": None, "SAFE_DOWNGRADE": "safe", "UNSAFE_DOWNGRADE": "unsafe"}
    return _each(
        call["levels"],
        lambda: admin.cluster.update_features(
            call["levels"],
            downgrade=kinds[call.get("kind", "UPGRADE")],
            validate_only=call.get("validate_only", False),
        ),
    )


def _transactions(admin: Admin, call: Call) -> Answer:
    return _each(
        call["ids"], lambda: admin.transactions.describe(call["ids"]), lambda transaction: transaction.state
    )


_CALLS: Mapping[str, Callable[[Admin, Call], Answer]] = {
    "createTopics": _create_topics,
    "deleteTopics": lambda admin, call: _each(
        call["topics"], lambda: admin.topics.delete(call["topics"], wait=False)
    ),
    "createPartitions": _create_partitions,
    "describeTopics": _describe_topics,
    "deleteRecords": _delete_records,
    "listOffsets": _list_offsets,
    "describeProducers": _describe_producers,
    "incrementalAlterConfigs": _alter_configs,
    "describeConfigs": _describe_configs,
    "electLeaders": _elect,
    "alterPartitionReassignments": _reassign,
    "listPartitionReassignments": _reassignments,
    "describeLogDirs": _log_dirs,
    "alterReplicaLogDirs": _move_log_dirs,
    "describeReplicaLogDirs": _replica_dirs,
    "listGroups": _groups,
    "listConsumerGroupOffsets": _group_offsets,
    "alterConsumerGroupOffsets": _alter_group_offsets,
    "deleteConsumerGroupOffsets": _delete_group_offsets,
    "deleteConsumerGroups": partial(_delete_groups, None),
    "alterShareGroupOffsets": _alter_share_offsets,
    "listShareGroupOffsets": _share_offsets,
    "deleteShareGroupOffsets": _delete_share_offsets,
    "describeShareGroups": partial(_describe_groups, "share"),
    "deleteShareGroups": partial(_delete_groups, "share"),
    "describeStreamsGroups": partial(_describe_groups, "streams"),
    "deleteStreamsGroups": partial(_delete_groups, "streams"),
    "alterStreamsGroupOffsets": _alter_group_offsets,
    "removeMembersFromConsumerGroup": lambda admin, call: _each(
        call["instances"], lambda: admin.groups.remove_members(call["group"], call["instances"])
    ),
    "createAcls": _create_acls,
    "describeAcls": lambda admin, call: _one(
        lambda: admin.acls.list(principal=call["filter"]), lambda acls: sorted(map(_acl_name, acls))
    ),
    "deleteAcls": _delete_acls,
    "alterClientQuotas": _alter_quotas,
    "describeClientQuotas": _quotas,
    "alterUserScramCredentials": _alter_users,
    "describeUserScramCredentials": _users,
    "createDelegationToken": lambda admin, call: _one(admin.tokens.create),
    "describeDelegationToken": lambda admin, call: _one(admin.tokens.list, len),
    "describeTransactions": _transactions,
    "listTransactions": lambda admin, call: {
        each.transactional_id: {"result": each.state}
        for each in admin.transactions.list()
        if each.transactional_id.startswith(call["prefix"])
    },
    "fenceProducers": lambda admin, call: _each(call["ids"], lambda: admin.transactions.fence(call["ids"])),
    "forceTerminateTransaction": lambda admin, call: _one(lambda: admin.transactions.terminate(call["id"])),
    "describeFeatures": lambda admin, call: _one(
        admin.cluster.features, lambda found: dict(sorted(found.finalized.items()))
    ),
    "updateFeatures": _update_features,
    "describeMetadataQuorum": lambda admin, call: _one(
        admin.cluster.quorum, lambda found: [found.leader, [each.node_id for each in found.voters]]
    ),
    "unregisterBroker": lambda admin, call: _one(lambda: admin.cluster.unregister(call["broker"])),
    "addRaftVoter": lambda admin, call: _one(
        lambda: admin.cluster.add_voter(call["voter"], UUID(int=1), {"CONTROLLER": ("localhost", 1234)})
    ),
    "removeRaftVoter": lambda admin, call: _one(
        lambda: admin.cluster.remove_voter(call["voter"], UUID(int=1))
    ),
}
