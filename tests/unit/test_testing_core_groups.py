"""BrokerCore without sockets: coordinators, consumer groups, committed offsets, transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.cluster import NO_LEADER
from kbatch.testing.security import Acls
from tests.unit.broker_core import (
    GROUP,
    SAMPLES,
    TOPIC,
    TRANSACTIONAL_ID,
    UNKNOWN_TOPIC_ID,
    Answer,
    Client,
    VirtualBroker,
    batch,
    error_places,
    fetch_request,
    fetched,
    fetched_values,
    produce_request,
    produced,
)

SESSION_MS = 10_000


@pytest.fixture
def broker() -> VirtualBroker:
    return VirtualBroker()


def codes(answer: Any) -> set[ErrorCode]:
    return {code for _, code in error_places(answer)}


# Who coordinates


def find_coordinators(broker: VirtualBroker, keys: list[str], key_type: int = 0, node_id: int = 0) -> Any:
    request = messages.FindCoordinatorRequest(coordinator_keys=keys, key_type=key_type)
    return broker.client(node_id).ask(request).coordinators


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
        request: Any = SAMPLES[api](broker, version)
        if api == "InitProducerId":
            request.transactional_id, request.transaction_timeout_ms = TRANSACTIONAL_ID, 1000
        key, key_type = (TRANSACTIONAL_ID, 1) if "T" in api[1:] or api == "InitProducerId" else (GROUP, 0)
        if api == "TxnOffsetCommit":
            key, key_type = GROUP, 0
        (found,) = find_coordinators(broker, [key], key_type)
        assert codes(broker.client(1 - found.node_id).ask(request, version)) == {ErrorCode.NOT_COORDINATOR}
        answer = broker.client(found.node_id).send(request, version)
        assert not answer.is_there or ErrorCode.NOT_COORDINATOR not in codes(answer.message)


def test_coordinator_moves_with_its_partition_and_is_nowhere_without() -> None:
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


class Consumer:
    """A member of the group, one request after another."""

    def __init__(self, broker: VirtualBroker, group: str = GROUP) -> None:
        self.client = broker.client()
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.joining: Answer | None = None

    def join(self) -> Answer:
        """Twice, where the member id has to be got first (KIP-394)."""
        kind = messages.JoinGroupRequest
        request = kind(
            group_id=self.group,
            member_id=self.member_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="consumer",
            protocols=[kind.JoinGroupRequestProtocol(name="range", metadata=self.group.encode())],
        )
        self.joining = self.client.send(request)
        if self.joining.is_there and self.joining.message.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = self.joining.message.member_id
            return self.join()
        return self.joining

    @property
    def joined(self) -> Any:
        assert self.joining is not None
        answer = self.joining.message
        assert answer.error_code == 0
        self.generation = answer.generation_id
        return answer

    def sync(self, **assignments: bytes) -> Answer:
        kind = messages.SyncGroupRequest
        return self.client.send(
            kind(
                group_id=self.group,
                member_id=self.member_id,
                generation_id=self.generation,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    kind.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in assignments.items()
                ],
            )
        )

    def heartbeat(self) -> ErrorCode:
        request = messages.HeartbeatRequest(
            group_id=self.group, member_id=self.member_id, generation_id=self.generation
        )
        return ErrorCode(self.client.ask(request).error_code)

    def leave(self) -> ErrorCode:
        kind = messages.LeaveGroupRequest
        request = kind(group_id=self.group, members=[kind.MemberIdentity(member_id=self.member_id)])
        return ErrorCode(self.client.ask(request).members[0].error_code)

    def commit(self, offset: int) -> ErrorCode:
        kind = messages.OffsetCommitRequest
        partition = kind.OffsetCommitRequestPartition(committed_offset=offset, committed_metadata="note")
        topic_id = self.client.broker.topic_id()
        answer = self.client.ask(
            kind(
                group_id=self.group,
                member_id=self.member_id,
                generation_id_or_member_epoch=self.generation,
                topics=[kind.OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])],
            )
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)


def committed(broker: VirtualBroker, version: int = 10, *, stable: bool = False) -> tuple[int, int]:
    """(error code, offset) of the topic's partition 0."""
    request: Any = SAMPLES["OffsetFetch"](broker, version)
    request.require_stable = stable
    answer = broker.client().ask(request, version)
    if version >= 8:
        (answer,) = answer.groups
    if answer.error_code:
        return answer.error_code, -1
    partition = answer.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


def together(broker: VirtualBroker) -> tuple[Consumer, Consumer]:
    """Two members of a stable group, the leader first."""
    first, second = Consumer(broker), Consumer(broker)
    first.join()
    assert first.joined.members[0].member_id == first.member_id
    first.sync(**{first.member_id: b"all"})
    waiting = second.join()
    assert not waiting.is_there, "until the first one is back"
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    assert [member.member_id for member in first.joined.members] == [first.member_id, second.member_id]
    assert second.joined.leader == first.member_id
    assert second.joined.members == []
    follower = second.sync()
    assert not follower.is_there, "until the leader has shared out"
    shares = {first.member_id: b"mine", second.member_id: b"yours"}
    assert first.sync(**shares).message.assignment == b"mine"
    assert follower.message.assignment == b"yours"
    return first, second


def test_two_members_share_and_one_leaves(broker: VirtualBroker) -> None:
    first, second = together(broker)
    assert (first.heartbeat(), second.heartbeat()) == (0, 0)
    assert first.generation == second.generation == 2
    assert second.leave() == 0
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    first.join()
    assert [member.member_id for member in first.joined.members] == [first.member_id]


def test_member_that_falls_silent_is_removed(broker: VirtualBroker) -> None:
    first, second = together(broker)
    for _ in range(2):
        broker.advance(SESSION_MS - 1)
        assert first.heartbeat() in (0, ErrorCode.REBALANCE_IN_PROGRESS)
    assert second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_new_group_waits_for_others_where_it_is_told_to() -> None:
    broker = VirtualBroker(group_initial_rebalance_delay_ms=3000)
    first, second = Consumer(broker), Consumer(broker)
    first.join()
    broker.advance(2000)
    second.join()
    broker.advance(2000)
    assert second.joining is not None
    assert not second.joining.is_there, "it waits anew for more"
    broker.advance(2000)
    assert len(first.joined.members) == 2
    assert second.joined.generation_id == 1


def test_offsets_are_committed_by_members_and_by_who_is_alone(broker: VirtualBroker) -> None:
    assert committed(broker) == (0, -1)
    alone = Consumer(broker)
    assert alone.commit(3) == 0
    assert [committed(broker, version) for version in (1, 7, 8, 10)] == [(0, 3)] * 4
    first, second = together(broker)
    assert (first.commit(7), committed(broker)) == (0, (0, 7))
    assert alone.commit(4) == ErrorCode.UNKNOWN_MEMBER_ID
    second.generation -= 1
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
        broker.state.coordinators.groups.simple_group(group, broker.now_ms)
    for node_id in (0, 1):
        listed = broker.client(node_id).ask(messages.ListGroupsRequest()).groups
        assert {each.group_id for each in listed} == {key for key in groups if owners[key] == node_id}


def test_acl_of_groups() -> None:
    acls = Acls(group_read=[])
    broker = VirtualBroker(acls=acls)
    for api in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch",
                "TxnOffsetCommit", "AddOffsetsToTxn", "DescribeGroups", "DeleteGroups"):  # fmt: skip
        for version in getattr(messages, f"{api}Request").versions:
            answer = broker.client().ask(SAMPLES[api](broker, version), version)
            assert codes(answer) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}, (api, version)
    acls.group_read = None
    assert committed(broker) == (0, -1)


def test_topic_that_goes_takes_its_offsets_along(broker: VirtualBroker) -> None:
    Consumer(broker).commit(3)
    broker.act(lambda state: state.delete_topic(TOPIC))
    broker.state.cluster.create_topic(TOPIC, 1)
    assert committed(broker) == (0, -1)


# Transactions


class Transactional:
    """A producer with a transactional id, as a client of TV1 or TV2 talks."""

    def __init__(self, broker: VirtualBroker, *, tv2: bool, timeout_ms: int = 5000) -> None:
        self.client: Client = broker.client()
        self.tv2 = tv2
        self.timeout_ms = timeout_ms
        self.id, self.epoch, self.sequence = -1, -1, 0

    def init(self) -> ErrorCode:
        answer = self.client.ask(
            messages.InitProducerIdRequest(
                transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=self.timeout_ms
            )
        )
        if not answer.error_code:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return ErrorCode(answer.error_code)

    def add(self) -> set[ErrorCode]:
        request: Any = SAMPLES["AddPartitionsToTxn"](self.client.broker, 3)
        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch = self.id, self.epoch
        return codes(self.client.ask(request, 3))

    def produce(self, *values: bytes) -> ErrorCode:
        data = batch(
            *values,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        request = produce_request(self.client.broker, data, transactional_id=TRANSACTIONAL_ID)
        answer = produced(self.client.ask(request, 13 if self.tv2 else 11))
        self.sequence += len(values) if not answer.error_code else 0
        return ErrorCode(answer.error_code)

    def commit_offset(self, offset: int) -> set[ErrorCode]:
        version = 5 if self.tv2 else 3
        request: Any = SAMPLES["TxnOffsetCommit"](self.client.broker, version)
        request.producer_id, request.producer_epoch = self.id, self.epoch
        request.topics[0].partitions[0].committed_offset = offset
        return codes(self.client.ask(request, version))

    def add_offsets(self) -> ErrorCode:
        request: Any = SAMPLES["AddOffsetsToTxn"](self.client.broker, 3)
        request.producer_id, request.producer_epoch = self.id, self.epoch
        return ErrorCode(self.client.ask(request, 3).error_code)

    def end(self, commit: bool) -> ErrorCode:
        answer = self.client.ask(
            messages.EndTxnRequest(
                transactional_id=TRANSACTIONAL_ID,
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            5 if self.tv2 else 4,
        )
        if self.tv2 and not answer.error_code:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return ErrorCode(answer.error_code)


def reads(broker: VirtualBroker, *, committed: bool) -> Any:
    return broker.client().ask(fetch_request(broker, committed=committed))


@pytest.mark.parametrize("tv2", [False, True], ids=["TV1", "TV2"])
def test_readers_see_committed_transactions_only_when_they_want(broker: VirtualBroker, tv2: bool) -> None:
    producer = Transactional(broker, tv2=tv2)
    assert producer.init() == 0
    for value, commit in ((b"one", True), (b"two", False), (b"three", True)):
        assert tv2 or producer.add() == set()
        assert producer.produce(value) == 0
        last_stable_offset = fetched(reads(broker, committed=True)).last_stable_offset
        assert last_stable_offset == fetched(reads(broker, committed=False)).high_watermark - 1
        assert producer.end(commit) == 0
    answer = reads(broker, committed=True)
    aborted = fetched(answer).aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in aborted] == [(producer.id, 2)]
    assert fetched(answer).high_watermark == fetched(answer).last_stable_offset == 6
    uncommitted = reads(broker, committed=False)
    assert fetched(uncommitted).aborted_transactions is None
    assert [value for value in fetched_values(uncommitted) if value in (b"one", b"two", b"three")] == [
        b"one",
        b"two",
        b"three",
    ]
    assert producer.epoch == (3 if tv2 else 0)


def test_tv1_wants_partitions_added_first(broker: VirtualBroker) -> None:
    producer = Transactional(broker, tv2=False)
    producer.init()
    assert producer.produce(b"x") == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.add() == set()
    assert producer.produce(b"x") == 0


def test_fetch_of_committed_data_is_woken_by_the_marker(broker: VirtualBroker) -> None:
    producer = Transactional(broker, tv2=True)
    producer.init()
    producer.produce(b"x")
    waiting = broker.client().send(fetch_request(broker, committed=True, max_wait_ms=500))
    assert not waiting.is_there
    producer.end(True)
    assert b"x" in fetched_values(waiting.message)


@pytest.mark.parametrize("tv2", [False, True], ids=["TV1", "TV2"])
def test_offsets_in_a_transaction_count_when_it_is_committed(broker: VirtualBroker, tv2: bool) -> None:
    producer = Transactional(broker, tv2=tv2)
    producer.init()
    for offset, commit, counts in ((5, False, -1), (6, True, 6)):
        assert tv2 or producer.add_offsets() == 0
        assert producer.commit_offset(offset) == set()
        assert committed(broker) == (0, -1)
        assert committed(broker, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert producer.end(commit) == 0
        assert committed(broker, stable=True) == (0, counts)


def test_second_producer_fences_the_first(broker: VirtualBroker) -> None:
    first, second = Transactional(broker, tv2=True), Transactional(broker, tv2=True)
    first.init()
    first.produce(b"zombie")
    assert second.init() == ErrorCode.CONCURRENT_TRANSACTIONS, "while the open one is aborted"
    assert second.init() == 0
    assert (first.id, first.epoch < second.epoch) == (second.id, True)
    assert first.produce(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.end(True) == ErrorCode.PRODUCER_FENCED
    assert second.produce(b"heir") == 0
    assert second.end(True) == 0
    assert broker.values() == [b"zombie", b"heir"]


def test_transaction_that_takes_too_long_is_aborted(broker: VirtualBroker) -> None:
    producer = Transactional(broker, tv2=True, timeout_ms=5000)
    producer.init()
    producer.produce(b"x")
    broker.advance(4999)
    assert fetched(reads(broker, committed=True)).last_stable_offset == 0
    broker.advance(1)
    assert fetched(reads(broker, committed=True)).last_stable_offset == 2
    assert producer.end(True) == ErrorCode.INVALID_TXN_STATE, "it is aborted already"
    assert producer.produce(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.init() == 0


def test_markers_wait_for_a_leader() -> None:
    broker = VirtualBroker(topics=())
    broker.state.cluster.create_topic(TOPIC, 1)
    producer = Transactional(broker, tv2=True)
    producer.init()
    producer.produce(b"x")
    partition = broker.state.cluster.partition(TOPIC, 0)
    partition.lead_by(NO_LEADER)
    producer.end(True)
    assert producer.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    partition.lead_by(0)
    broker.advance(200)
    assert producer.init() == 0
    assert fetched(reads(broker, committed=True)).last_stable_offset == 2


def test_transactions_are_described_and_listed(broker: VirtualBroker) -> None:
    producer = Transactional(broker, tv2=True)
    producer.init()
    producer.produce(b"x")
    describe = messages.DescribeTransactionsRequest(transactional_ids=[TRANSACTIONAL_ID, "nobody"])
    found, missing = broker.client().ask(describe).transaction_states
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", producer.id, 0)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [(TOPIC, [0])]
    assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    request = messages.ListTransactionsRequest(state_filters=["Ongoing", "Zzz"])
    listed = broker.client().ask(request)
    assert [each.transactional_id for each in listed.transaction_states] == [TRANSACTIONAL_ID]
    assert listed.unknown_state_filters == ["Zzz"]


def test_markers_from_another_broker(broker: VirtualBroker) -> None:
    producer = Transactional(broker, tv2=False)
    producer.init(), producer.add(), producer.produce(b"x")
    kind = messages.WriteTxnMarkersRequest
    topic = kind.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0, 1])

    def write(producer_id: int) -> list[int]:
        marker = kind.WritableTxnMarker(producer_id=producer_id, transaction_result=True, topics=[topic])
        answer = broker.client().ask(kind(markers=[marker]))
        return [each.error_code for each in answer.markers[0].topics[0].partitions]

    assert write(producer.id) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert write(-1) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert b"x" in fetched_values(reads(broker, committed=True))


def test_partitions_are_added_all_or_none() -> None:
    acls = Acls()
    broker = VirtualBroker(acls=acls)
    producer = Transactional(broker, tv2=False)
    producer.init()
    kind = messages.AddPartitionsToTxnRequest
    request = kind(
        v3_and_below_transactional_id=TRANSACTIONAL_ID,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, 9])],
    )

    def added() -> list[int]:
        (topic,) = broker.client().ask(request, 3).results_by_topic_v3_and_below
        return [each.partition_error_code for each in topic.results_by_partition]

    assert added() == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    request.v3_and_below_topics[0].partitions = [0]
    acls.topic_write = []
    assert added() == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    acls.topic_write = None
    assert added() == [0]


def test_acls_of_producers() -> None:
    acls = Acls(transactional_id_write=[], idempotent_write=False)
    broker = VirtualBroker(acls=acls)
    anonymous = messages.InitProducerIdRequest(transactional_id=None)
    assert codes(broker.client().ask(anonymous)) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    producer = Transactional(broker, tv2=True)
    assert producer.init() == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"):
        for version in getattr(messages, f"{api}Request").versions:
            answer = broker.client().ask(SAMPLES[api](broker, version), version)
            assert codes(answer) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    acls.transactional_id_write, acls.idempotent_write = ["trans*"], True
    assert producer.init() == 0
    assert broker.client().ask(anonymous).producer_id != producer.id
    acls.transactional_id_write = []
    assert producer.produce(b"x") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_markers_are_not_fenced_by_earlier_ones_behind_a_restart(tmp_path: Path) -> None:
    """Each restart is an election of coordinators, whose epoch no request has told of yet."""
    for _ in range(2):
        broker = VirtualBroker(directory=tmp_path, topics=())
        if TOPIC not in broker.state.cluster.topics:
            broker.state.cluster.create_topic(TOPIC, 1)
        producer = Transactional(broker, tv2=True)
        while producer.init() == ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        assert (producer.produce(b"x"), producer.end(True), producer.produce(b"open")) == (0, 0, 0)
        broker.state.close()
    broker = VirtualBroker(directory=tmp_path, topics=())
    log = broker.state.cluster.partition(TOPIC, 0).log
    assert log.last_stable_offset < log.log_end_offset
    broker.advance(60_000)
    assert log.last_stable_offset == log.log_end_offset


def test_transaction_that_was_decided_is_completed_by_a_restart(tmp_path: Path) -> None:
    broker = VirtualBroker(directory=tmp_path)
    producer = Transactional(broker, tv2=True)
    producer.init(), producer.produce(b"x")
    broker.state.cluster.partition(TOPIC, 0).lead_by(NO_LEADER)
    assert producer.end(True) in (0, ErrorCode.CONCURRENT_TRANSACTIONS)
    broker.state.close()
    again = VirtualBroker(directory=tmp_path, topics=())
    assert b"x" in fetched_values(reads(again, committed=True))
    assert Transactional(again, tv2=True).init() == 0


def test_markers_are_not_fenced_by_those_of_other_coordinators() -> None:
    """Transactional ids are kept in partitions with leader epochs of their own."""
    broker = VirtualBroker(nodes=2)
    producer = Transactional(broker, tv2=True)
    coordinated = broker.state.coordinators.partition_of_transaction(TRANSACTIONAL_ID)
    for node_id in (1, 0, 1, 0):
        broker.state.move_leader(coordinated.topic.name, coordinated.index, node_id)
    producer.init(), producer.produce(b"x"), producer.end(True)
    assert producer.produce(b"open") == 0
    others = [f"other-{number}" for number in range(10)]
    for found in find_coordinators(broker, others, key_type=1):
        request = messages.InitProducerIdRequest(transactional_id=found.key, transaction_timeout_ms=1000)
        assert broker.client(found.node_id).ask(request).error_code == 0
    broker.advance(60_000)
    log = broker.state.cluster.partition(TOPIC, 0).log
    assert log.last_stable_offset == log.log_end_offset
