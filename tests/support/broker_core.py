"""A BrokerCore in virtual time, its clients, and a request of each API with one item in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message, Struct
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.broker_state import BrokerState, Connection
from kbatch.testing.broker.core import BrokerCore, Reply
from kbatch.testing.broker.options import Options
from kbatch.testing.broker.security.acls import Acls
from kbatch.testing.broker.security.authorizer import AclBinding
from tests.oracle import plain
from tests.support import requests

START_MS = 1_700_000_000_000
TOPIC, GROUP, TRANSACTIONAL_ID = "events", "group", "transactional"
UNKNOWN_TOPIC_ID = bytes(15) + b"\1"
ALL, LEADER, NONE = -1, 1, 0  # acks


class Answer:
    """A client's response: `message` is None until it arrives, and if there is none."""

    def __init__(self, reply: Reply, kind: type[Message], version: int, correlation_id: int) -> None:
        self.reply = reply
        self._response = kind.response
        self._version = version
        self._correlation_id = correlation_id

    @property
    def is_there(self) -> bool:
        return self.reply.buffers is not None

    @property
    def is_closed(self) -> bool:
        return self.is_there and self.reply.closes_connection

    @property
    def message(self) -> Any:
        if not self.reply.buffers:
            return None
        data = b"".join(self.reply.buffers)
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        correlation_id, message = codec.decode_response(self._response, self._version, data[4:])
        assert correlation_id == self._correlation_id
        return message


class Client:
    """A connection to one node, by one of its listeners."""

    def __init__(self, broker: VirtualBroker, node_id: int = 0, listener: int = 0) -> None:
        self.broker = broker
        self.connection = Connection(node_id, listener)
        self._correlation_id = 0

    def send(self, request: Message, version: int | None = None) -> Answer:
        """Send a request, in the newest version if none is given."""
        version = request.versions[-1] if version is None else version
        self._correlation_id += 1
        frame = b"".join(codec.encode_request(request, version, self._correlation_id, "client"))
        reply = self.broker.core.handle(self.connection, frame[4:], self.broker.now_ms)
        return Answer(reply, type(request), version, self._correlation_id)

    def ask(self, request: Message, version: int | None = None) -> Any:
        """Return the answer, which must be there at once."""
        answer = self.send(request, version)
        assert answer.is_there, f"no answer yet to {request}"
        assert not answer.is_closed, f"the connection is closed by {request}"
        return answer.message


class VirtualBroker:
    """A cluster whose clock only `advance` moves."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        directory: Path | None = None,
        acls: Acls | None = None,
        access: Iterable[AclBinding] | None = None,
        topics: Iterable[str] = (TOPIC,),
        now_ms: int = START_MS,
        shares_logs: bool = False,
        **options: Any,
    ) -> None:
        self.now_ms = now_ms
        self.state = BrokerState(
            options=Options(**{"internal_topic_partitions": 5, **options}),
            directory=directory,
            rng=random.Random(1),
            now_ms=now_ms,
            node_count=nodes,
            shares_logs=shares_logs,
            acls=acls or Acls(),
            access=access,
        )
        self.core = BrokerCore(self.state)
        for node in self.state.cluster.nodes:
            node.host, node.ports = (
                f"node-{node.node_id}",
                [9092 + node.node_id + 1000 * number for number in range(len(self.state.options.listeners))],
            )
        for topic in topics:
            self.state.cluster.create_topic(topic, 1)

    def client(self, node_id: int = 0, listener: int = 0) -> Client:
        return Client(self, node_id, listener)

    def act(self, action: Callable[[BrokerState], Any]) -> None:
        """Do something to the broker from outside, as `Server.call` does."""
        action(self.state)
        self.core.handle_timeout(self.now_ms)

    def hold(self, is_held: bool = True, topic: str = TOPIC) -> None:
        """Stop the high watermark of the topic's partition 0, or release it."""
        self.act(lambda state: state.hold_high_watermark(topic, 0, is_held))

    def advance(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.core.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(deadline_ms, self.now_ms)
            self.core.handle_timeout(self.now_ms)
        self.now_ms = end_ms

    def topic_id(self, topic: str = TOPIC) -> bytes:
        known = self.state.cluster.topics.get(topic)
        return known.topic_id if known is not None else UNKNOWN_TOPIC_ID

    def values(self, topic: str = TOPIC, index: int = 0) -> list[bytes | None]:
        """Return the values of all records in the log of a partition."""
        batches = self.state.cluster.partition(topic, index).log.batches()
        return [
            None if record.value is None else bytes(record.value)
            for batch in batches
            if not batch.is_control
            for record in batch
        ]


def batch(*values: bytes, timestamp_ms: int = START_MS, **header: Any) -> bytes:
    return plain.encode([(None, value, (), timestamp_ms) for value in values], **header)


def produce_request(
    broker: VirtualBroker, data: bytes | None = None, *, topic: str = TOPIC, index: int = 0, **fields: Any
) -> Any:
    records = batch(b"value") if data is None else data
    return requests.produce_request(
        {(topic, index): records}, broker.topic_id, **{"timeout_ms": 1000, **fields}
    )


def fetch_request(
    broker: VirtualBroker,
    offset: int = 0,
    *,
    topic: str = TOPIC,
    index: int = 0,
    max_bytes: int = 1 << 20,
    committed: bool = False,
    leader_epoch: int = -1,
    **fields: Any,
) -> Any:
    return requests.fetch_request(
        topic,
        broker.topic_id(topic),
        offset,
        partition=index,
        partition_max_bytes=max_bytes,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        current_leader_epoch=leader_epoch,
        **{"min_bytes": 1, **fields},
    )


def produced(answer: Any) -> Any:
    """Return the one partition in an answer to Produce."""
    ((partition,),) = ([*topic.partition_responses] for topic in answer.responses)
    return partition


def fetched(answer: Any) -> Any:
    """Return the one partition in an answer to Fetch."""
    ((partition,),) = ([*topic.partitions] for topic in answer.responses)
    return partition


def fetched_values(answer: Any) -> list[bytes | None]:
    records = bytes(fetched(answer).records or b"")
    return [record.value for each in plain.decode(records) for record in each.records]


def error_of(action: Callable[[], Any]) -> Any:
    """Return the result of a call of a state object, or the code of its refusal."""
    try:
        return action()
    except BrokerError as error:
        return error.code


def error_places(message: Any) -> Iterator[tuple[str, ErrorCode]]:
    """Return the places of error codes other than NONE in a message, without the indexes of arrays."""
    for field in type(message).__slots__:
        value = getattr(message, field)
        if field.endswith("error_code"):
            if value:
                yield field, ErrorCode(value)
        elif isinstance(value, list | Struct):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Struct):
                    for place, code in error_places(item):
                        yield f"{field}.{place}", code


# A request of each API

TOPIC_ID = object()  # stands for the id of TOPIC
_TOPIC_RESOURCE = {"resource_type": 2, "resource_name": TOPIC}
_ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_ACL = {
    "resource_type": 2,
    "resource_name": TOPIC,
    "resource_pattern_type": 3,
    "principal": "User:ada",
    "host": "*",
    "operation": 4,
    "permission_type": 3,
}
_ADDED = [{"name": TOPIC, "partitions": [0]}]
_SCRAM = {"name": "ada", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"salted"}
# Fields by API, of all versions: a request has those of its version.
SAMPLES: dict[str, dict[str, Any]] = {
    "Produce": {
        "acks": ALL,
        "timeout_ms": 1000,
        "topic_data": [
            {"name": TOPIC, "topic_id": TOPIC_ID, "partition_data": [{"records": batch(b"value")}]},
        ],
    },
    "Fetch": {
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [
            {"topic": TOPIC, "topic_id": TOPIC_ID, "partitions": [{"partition_max_bytes": 1 << 20}]},
        ],
    },
    "ListOffsets": {
        "replica_id": -1,
        "topics": [{"name": TOPIC, "partitions": [{"timestamp": -1}]}],
    },
    "Metadata": {"topics": [{"name": TOPIC}]},
    "OffsetCommit": {
        "group_id": GROUP,
        "topics": [{"name": TOPIC, "topic_id": TOPIC_ID, "partitions": [{"committed_offset": 3}]}],
    },
    "OffsetFetch": {
        "group_id": GROUP,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
        "groups": [
            {
                "group_id": GROUP,
                "topics": [{"name": TOPIC, "topic_id": TOPIC_ID, "partition_indexes": [0]}],
            },
        ],
    },
    "FindCoordinator": {"key": GROUP, "coordinator_keys": [GROUP]},
    "JoinGroup": {
        "group_id": GROUP,
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    },
    "Heartbeat": {"group_id": GROUP, "member_id": "member"},
    "LeaveGroup": {"group_id": GROUP, "member_id": "member", "members": [{"member_id": "member"}]},
    "SyncGroup": {"group_id": GROUP, "member_id": "member"},
    "DescribeGroups": {"groups": [GROUP]},
    "ListGroups": {},
    "SaslHandshake": {"mechanism": "PLAIN"},
    "ApiVersions": {"client_software_name": "test", "client_software_version": "1"},
    "CreateTopics": {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}]},
    "DeleteTopics": {"topic_names": [TOPIC], "topics": [{"name": TOPIC}]},
    "DeleteRecords": {"topics": [{"name": TOPIC, "partitions": [{"offset": -1}]}]},
    "InitProducerId": {"transactional_id": None},
    "OffsetForLeaderEpoch": {"topics": [{"topic": TOPIC, "partitions": [{"leader_epoch": 0}]}]},
    "AddPartitionsToTxn": {
        "v3_and_below_transactional_id": TRANSACTIONAL_ID,
        "v3_and_below_topics": _ADDED,
        "transactions": [{"transactional_id": TRANSACTIONAL_ID, "topics": _ADDED}],
    },
    "AddOffsetsToTxn": {"transactional_id": TRANSACTIONAL_ID, "group_id": GROUP},
    "EndTxn": {"transactional_id": TRANSACTIONAL_ID},
    "WriteTxnMarkers": {
        "markers": [{"producer_id": 7, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}],
    },
    "TxnOffsetCommit": {
        "transactional_id": TRANSACTIONAL_ID,
        "group_id": GROUP,
        "topics": [{"name": TOPIC, "partitions": [{"committed_offset": 3}]}],
    },
    "DescribeConfigs": {"resources": [{**_TOPIC_RESOURCE, "configuration_keys": None}]},
    "AlterConfigs": {"resources": [_TOPIC_RESOURCE]},
    "IncrementalAlterConfigs": {"resources": [_TOPIC_RESOURCE]},
    "SaslAuthenticate": {"auth_bytes": b"\0user\0password"},
    "CreatePartitions": {"topics": [{"name": TOPIC, "count": 2, "assignments": None}]},
    "DeleteGroups": {"groups_names": [GROUP]},
    "OffsetDelete": {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{}]}]},
    "ConsumerGroupHeartbeat": {
        "group_id": GROUP,
        "member_id": "member",
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
    },
    "ConsumerGroupDescribe": {"group_ids": [GROUP]},
    "ShareGroupHeartbeat": {
        "group_id": GROUP,
        "member_id": "member",
        "subscribed_topic_names": [TOPIC],
    },
    "ShareGroupDescribe": {"group_ids": [GROUP]},
    "ShareFetch": {
        "group_id": GROUP,
        "member_id": "member",
        "max_records": 100,
        "batch_size": 100,
        "topics": [{"topic_id": TOPIC_ID, "partitions": [{}]}],
    },
    "ShareAcknowledge": {
        "group_id": GROUP,
        "member_id": "member",
        "share_session_epoch": 1,
        "topics": [{"topic_id": TOPIC_ID, "partitions": [{}]}],
    },
    "DescribeShareGroupOffsets": {"groups": [{"group_id": GROUP, "topics": []}]},
    "AlterShareGroupOffsets": {"group_id": GROUP, "topics": []},
    "DeleteShareGroupOffsets": {"group_id": GROUP, "topics": []},
    "ListConfigResources": {},
    "DescribeTopicPartitions": {"topics": [{"name": TOPIC}]},
    "DescribeCluster": {},
    "ElectLeaders": {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}]},
    "AlterPartitionReassignments": {
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [0]}]}],
    },
    "ListPartitionReassignments": {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
    "DescribeLogDirs": {"topics": [{"topic": TOPIC, "partitions": [0]}]},
    "AlterReplicaLogDirs": {
        "dirs": [{"path": "/node-0/data-0", "topics": [{"name": TOPIC, "partitions": [0]}]}],
    },
    "AlterPartition": {
        "broker_epoch": 0,
        "topics": [
            {
                "topic_id": TOPIC_ID,
                "partitions": [{"new_isr": [0], "new_isr_with_epochs": [{"broker_id": 0}]}],
            }
        ],
    },
    "BrokerRegistration": {"cluster_id": "another"},
    "BrokerHeartbeat": {},
    "DescribeQuorum": {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{}]}]},
    "UpdateFeatures": {"feature_updates": [{"feature": "share.version", "max_version_level": 1}]},
    "DescribeClientQuotas": {"components": [{"entity_type": "user", "match_type": 2, "match": None}]},
    "AlterClientQuotas": {
        "entries": [
            {
                "entity": [{"entity_type": "client-id", "entity_name": "other"}],
                "ops": [{"key": "producer_byte_rate", "value": 1000.0}],
            }
        ],
    },
    "DescribeProducers": {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
    "DescribeTransactions": {"transactional_ids": [TRANSACTIONAL_ID]},
    "ListTransactions": {},
    "GetTelemetrySubscriptions": {},
    "CreateDelegationToken": {},
    "RenewDelegationToken": {},
    "ExpireDelegationToken": {},
    "DescribeDelegationToken": {},
    "DescribeAcls": _ANY_ACL,
    "CreateAcls": {"creations": [_ACL]},
    "DeleteAcls": {"filters": [_ANY_ACL]},
    "DescribeUserScramCredentials": {"users": None},
    "AlterUserScramCredentials": {"upsertions": [_SCRAM]},
    "PushTelemetry": {},
}


def sample(broker: VirtualBroker, api: str, version: int) -> Any:
    """Return a request of the API with one item in it, as the version has it."""
    kind = getattr(messages, f"{api}Request")
    return _filled(kind, SAMPLES[api], version, broker.topic_id())


def _filled(kind: Any, fields: Mapping[str, Any], version: int, topic_id: bytes) -> Any:
    values = {}
    for field in kind._spec.fields:
        if field.name in fields and version in field.versions:
            value = fields[field.name]
            if field.struct and value is not None:
                struct = kind._structs[field.struct.name]
                value = [_filled(struct, item, version, topic_id) for item in value]
            values[field.name] = topic_id if value is TOPIC_ID else value
    return kind(**values)
