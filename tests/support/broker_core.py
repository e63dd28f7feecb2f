"""A BrokerCore in virtual time, its clients, and a request of each API with one item in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
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
        **options: Any,
    ) -> None:
        self.now_ms = now_ms
        self.state = BrokerState(
            options=Options(**{"internal_topic_partitions": 5, **options}),
            directory=directory,
            rng=random.Random(1),
            now_ms=now_ms,
            node_count=nodes,
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


def _list_offsets(broker: VirtualBroker, version: int) -> Message:
    kind = messages.ListOffsetsRequest
    wanted = kind.ListOffsetsPartition(timestamp=-1)
    return kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name=TOPIC, partitions=[wanted])])


def _metadata(broker: VirtualBroker, version: int) -> Message:
    kind = messages.MetadataRequest
    return kind(topics=[kind.MetadataRequestTopic(name=TOPIC)])


def _offset_commit(broker: VirtualBroker, version: int) -> Message:
    kind = messages.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(committed_offset=3)
    topic = kind.OffsetCommitRequestTopic(name=TOPIC, topic_id=broker.topic_id(), partitions=[partition])
    return kind(group_id=GROUP, topics=[topic])


def _offset_fetch(broker: VirtualBroker, version: int) -> Message:
    kind = messages.OffsetFetchRequest
    if version < 8:
        topic = kind.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        return kind(group_id=GROUP, topics=[topic])
    wanted = kind.OffsetFetchRequestTopics(name=TOPIC, topic_id=broker.topic_id(), partition_indexes=[0])
    return kind(groups=[kind.OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])])


def _find_coordinator(broker: VirtualBroker, version: int) -> Message:
    kind = messages.FindCoordinatorRequest
    return kind(key=GROUP) if version < 4 else kind(coordinator_keys=[GROUP])


def _join_group(broker: VirtualBroker, version: int) -> Message:
    kind = messages.JoinGroupRequest
    protocol = kind.JoinGroupRequestProtocol(name="range", metadata=b"")
    return kind(group_id=GROUP, session_timeout_ms=10_000, protocol_type="consumer", protocols=[protocol])


def _leave_group(broker: VirtualBroker, version: int) -> Message:
    kind = messages.LeaveGroupRequest
    if version < 3:
        return kind(group_id=GROUP, member_id="member")
    return kind(group_id=GROUP, members=[kind.MemberIdentity(member_id="member")])


def _create_topics(broker: VirtualBroker, version: int) -> Message:
    kind = messages.CreateTopicsRequest
    return kind(topics=[kind.CreatableTopic(name="new", num_partitions=1, replication_factor=1)])


def _delete_topics(broker: VirtualBroker, version: int) -> Message:
    kind = messages.DeleteTopicsRequest
    if version < 6:
        return kind(topic_names=[TOPIC])
    return kind(topics=[kind.DeleteTopicState(name=TOPIC)])


def _delete_records(broker: VirtualBroker, version: int) -> Message:
    kind = messages.DeleteRecordsRequest
    topic = kind.DeleteRecordsTopic(name=TOPIC, partitions=[kind.DeleteRecordsPartition(offset=-1)])
    return kind(topics=[topic])


def _offset_for_leader_epoch(broker: VirtualBroker, version: int) -> Message:
    kind = messages.OffsetForLeaderEpochRequest
    wanted = kind.OffsetForLeaderPartition(leader_epoch=0)
    return kind(topics=[kind.OffsetForLeaderTopic(topic=TOPIC, partitions=[wanted])])


def _add_partitions_to_txn(broker: VirtualBroker, version: int) -> Message:
    kind = messages.AddPartitionsToTxnRequest
    topics = [kind.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
    if version < 4:
        return kind(v3_and_below_transactional_id=TRANSACTIONAL_ID, v3_and_below_topics=topics)
    transaction = kind.AddPartitionsToTxnTransaction(transactional_id=TRANSACTIONAL_ID, topics=topics)
    return kind(transactions=[transaction])


def _write_txn_markers(broker: VirtualBroker, version: int) -> Message:
    kind = messages.WriteTxnMarkersRequest
    topic = kind.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])
    return kind(markers=[kind.WritableTxnMarker(producer_id=7, topics=[topic])])


def _txn_offset_commit(broker: VirtualBroker, version: int) -> Message:
    kind = messages.TxnOffsetCommitRequest
    partition = kind.TxnOffsetCommitRequestPartition(committed_offset=3)
    topic = kind.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    return kind(transactional_id=TRANSACTIONAL_ID, group_id=GROUP, topics=[topic])


def _describe_configs(broker: VirtualBroker, version: int) -> Message:
    kind = messages.DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)
    return kind(resources=[resource])


def _alter_configs(broker: VirtualBroker, version: int) -> Message:
    kind = messages.AlterConfigsRequest
    return kind(resources=[kind.AlterConfigsResource(resource_type=2, resource_name=TOPIC)])


def _incremental_alter_configs(broker: VirtualBroker, version: int) -> Message:
    kind = messages.IncrementalAlterConfigsRequest
    return kind(resources=[kind.AlterConfigsResource(resource_type=2, resource_name=TOPIC)])


def _create_partitions(broker: VirtualBroker, version: int) -> Message:
    kind = messages.CreatePartitionsRequest
    return kind(topics=[kind.CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)])


def _consumer_group_heartbeat(broker: VirtualBroker, version: int) -> Message:
    return messages.ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="member",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )


def _offset_delete(broker: VirtualBroker, version: int) -> Message:
    kind = messages.OffsetDeleteRequest
    topic = kind.OffsetDeleteRequestTopic(name=TOPIC, partitions=[kind.OffsetDeleteRequestPartition()])
    return kind(group_id=GROUP, topics=[topic])


def _describe_producers(broker: VirtualBroker, version: int) -> Message:
    kind = messages.DescribeProducersRequest
    return kind(topics=[kind.TopicRequest(name=TOPIC, partition_indexes=[0])])


def _create_acls(broker: VirtualBroker, version: int) -> Message:
    kind = messages.CreateAclsRequest
    acl = kind.AclCreation(
        resource_type=2,
        resource_name=TOPIC,
        resource_pattern_type=3,
        principal="User:ada",
        host="*",
        operation=4,
        permission_type=3,
    )
    return kind(creations=[acl])


def _delete_acls(broker: VirtualBroker, version: int) -> Message:
    kind = messages.DeleteAclsRequest
    wanted = kind.DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return kind(filters=[wanted])


def _alter_user_scram_credentials(broker: VirtualBroker, version: int) -> Message:
    kind = messages.AlterUserScramCredentialsRequest
    upsertion = kind.ScramCredentialUpsertion(
        name="ada", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
    )
    return kind(upsertions=[upsertion])


SAMPLES: dict[str, Callable[[VirtualBroker, int], Message]] = {
    "Produce": lambda broker, version: produce_request(broker),
    "Fetch": lambda broker, version: fetch_request(broker),
    "ListOffsets": _list_offsets,
    "Metadata": _metadata,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
    "FindCoordinator": _find_coordinator,
    "JoinGroup": _join_group,
    "Heartbeat": lambda broker, version: messages.HeartbeatRequest(group_id=GROUP, member_id="member"),
    "LeaveGroup": _leave_group,
    "SyncGroup": lambda broker, version: messages.SyncGroupRequest(group_id=GROUP, member_id="member"),
    "DescribeGroups": lambda broker, version: messages.DescribeGroupsRequest(groups=[GROUP]),
    "ListGroups": lambda broker, version: messages.ListGroupsRequest(),
    "SaslHandshake": lambda broker, version: messages.SaslHandshakeRequest(mechanism="PLAIN"),
    "ApiVersions": lambda broker, version: messages.ApiVersionsRequest(
        client_software_name="test", client_software_version="1"
    ),
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "DeleteRecords": _delete_records,
    "InitProducerId": lambda broker, version: messages.InitProducerIdRequest(transactional_id=None),
    "OffsetForLeaderEpoch": _offset_for_leader_epoch,
    "AddPartitionsToTxn": _add_partitions_to_txn,
    "AddOffsetsToTxn": lambda broker, version: messages.AddOffsetsToTxnRequest(
        transactional_id=TRANSACTIONAL_ID, group_id=GROUP
    ),
    "EndTxn": lambda broker, version: messages.EndTxnRequest(transactional_id=TRANSACTIONAL_ID),
    "WriteTxnMarkers": _write_txn_markers,
    "TxnOffsetCommit": _txn_offset_commit,
    "DescribeConfigs": _describe_configs,
    "AlterConfigs": _alter_configs,
    "IncrementalAlterConfigs": _incremental_alter_configs,
    "SaslAuthenticate": lambda broker, version: messages.SaslAuthenticateRequest(
        auth_bytes=b"\0user\0password"
    ),
    "CreatePartitions": _create_partitions,
    "DeleteGroups": lambda broker, version: messages.DeleteGroupsRequest(groups_names=[GROUP]),
    "OffsetDelete": _offset_delete,
    "ConsumerGroupHeartbeat": _consumer_group_heartbeat,
    "ConsumerGroupDescribe": lambda broker, version: messages.ConsumerGroupDescribeRequest(group_ids=[GROUP]),
    "DescribeTopicPartitions": lambda broker, version: messages.DescribeTopicPartitionsRequest(
        topics=[messages.DescribeTopicPartitionsRequest.TopicRequest(name=TOPIC)]
    ),
    "DescribeCluster": lambda broker, version: messages.DescribeClusterRequest(),
    "DescribeProducers": _describe_producers,
    "DescribeTransactions": lambda broker, version: messages.DescribeTransactionsRequest(
        transactional_ids=[TRANSACTIONAL_ID]
    ),
    "ListTransactions": lambda broker, version: messages.ListTransactionsRequest(),
    "GetTelemetrySubscriptions": lambda broker, version: messages.GetTelemetrySubscriptionsRequest(),
    "CreateDelegationToken": lambda broker, version: messages.CreateDelegationTokenRequest(),
    "RenewDelegationToken": lambda broker, version: messages.RenewDelegationTokenRequest(),
    "ExpireDelegationToken": lambda broker, version: messages.ExpireDelegationTokenRequest(),
    "DescribeDelegationToken": lambda broker, version: messages.DescribeDelegationTokenRequest(),
    "DescribeAcls": lambda broker, version: messages.DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    ),
    "CreateAcls": _create_acls,
    "DeleteAcls": _delete_acls,
    "DescribeUserScramCredentials": lambda broker, version: messages.DescribeUserScramCredentialsRequest(
        users=None
    ),
    "AlterUserScramCredentials": _alter_user_scram_credentials,
    "PushTelemetry": lambda broker, version: messages.PushTelemetryRequest(),
}
