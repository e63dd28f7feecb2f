"""Share groups by request, in virtual time: waiting, sessions, time-outs, leaders that move, restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.coordinator_log import CoordinatorLog
from kbatch.testing.broker.security.authorizer import AclBinding
from tests.support.broker_core import GROUP, TOPIC, Answer, Client, VirtualBroker, batch, produce_request

ACCEPT, RELEASE = 1, 2
LOCK_MS, SESSION_MS, WAIT_MS = 2_000, 10_000, 500
LEAVE = -1


class Member:
    """A member of the group, with a session of its own."""

    def __init__(self, broker: VirtualBroker, member_id: str = "a", node_id: int = 0) -> None:
        self.broker = broker
        self.client: Client = broker.client(node_id)
        self.member_id = member_id
        self.epoch = 0
        self.session_epoch = 0

    def beat(self, **fields: Any) -> Any:
        usual: dict[str, Any] = {"group_id": GROUP, "member_id": self.member_id, "member_epoch": self.epoch}
        usual["subscribed_topic_names"] = None if self.epoch else [TOPIC]
        answer = self.client.ask(messages.ShareGroupHeartbeatRequest(**usual | fields))
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    def send(self, *acks: tuple[int, int, int], **fields: Any) -> Answer:
        """Send a ShareFetch of the topic's partition 0, or of the partitions given."""
        kind = messages.ShareFetchRequest
        acked = [
            kind.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[each])
            for first, last, each in acks
        ]
        indexes = fields.pop("indexes", [0])
        partitions = [
            kind.FetchPartition(partition_index=each, acknowledgement_batches=acked if not each else [])
            for each in indexes
        ]
        usual: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "min_bytes": 1,
            "max_records": 500,
            "batch_size": 500,
            "topics": [kind.FetchTopic(topic_id=self.broker.topic_id(), partitions=partitions)],
        }
        self.session_epoch += 1
        return self.client.send(kind(**usual | fields))

    def fetch(self, *acks: tuple[int, int, int], **fields: Any) -> Any:
        answer = self.send(*acks, **fields)
        assert answer.is_there
        return answer.message

    def acknowledge(self, first: int, last: int, kind: int = ACCEPT) -> ErrorCode:
        request = messages.ShareAcknowledgeRequest
        acked = request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        partition = request.AcknowledgePartition(partition_index=0, acknowledgement_batches=[acked])
        topic = request.AcknowledgeTopic(topic_id=self.broker.topic_id(), partitions=[partition])
        answer = self.client.ask(
            request(
                group_id=GROUP,
                member_id=self.member_id,
                share_session_epoch=self.session_epoch,
                topics=[topic],
            )
        )
        self.session_epoch += 1
        return ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def produce(broker: VirtualBroker, *values: bytes, index: int = 0) -> None:
    broker.client().ask(produce_request(broker, batch(*values), index=index))


def reads_from_the_start(broker: VirtualBroker, **configs: object) -> VirtualBroker:
    wanted = {"share.auto.offset.reset": "earliest", **configs}
    broker.state.group_configs.change(GROUP, {name: str(value) for name, value in wanted.items()})
    return broker


@pytest.fixture
def broker() -> VirtualBroker:
    broker = VirtualBroker(
        group_share_record_lock_duration_ms=LOCK_MS, group_share_session_timeout_ms=SESSION_MS
    )
    return reads_from_the_start(broker)


# Waiting


def test_fetch_waits_for_records_and_gives_up_at_its_time(broker: VirtualBroker) -> None:
    member = Member(broker)
    waiting = member.send(max_wait_ms=WAIT_MS)
    assert not waiting.is_there
    produce(broker, b"value")
    assert acquired(waiting.message) == [(0, 0, 1)]
    waiting = member.send(max_wait_ms=WAIT_MS)
    broker.advance(WAIT_MS - 1)
    assert not waiting.is_there
    broker.advance(1)
    assert waiting.message.responses == []


def test_KG08_partition_without_news_is_left_out() -> None:
    broker = reads_from_the_start(VirtualBroker(topics=()))
    broker.state.cluster.create_topic(TOPIC, 2)
    member = Member(broker)
    (topic,) = member.fetch(indexes=[0, 1]).responses
    assert [each.partition_index for each in topic.partitions] == [0, 1], "they are new in the session"
    produce(broker, b"value", index=1)
    (topic,) = member.fetch(topics=[]).responses
    assert [each.partition_index for each in topic.partitions] == [1]
    assert member.fetch(topics=[]).responses == []


def test_fetch_waits_for_its_minimum_of_bytes(broker: VirtualBroker) -> None:
    produce(broker, b"small")
    waiting = Member(broker).send(max_wait_ms=WAIT_MS, min_bytes=1000)
    assert not waiting.is_there
    produce(broker, bytes(1000))
    assert acquired(waiting.message) == [(0, 1, 1)]


def test_fetch_that_waits_gets_what_another_member_releases(broker: VirtualBroker) -> None:
    produce(broker, b"1", b"2")
    first, second = Member(broker), Member(broker, "b")
    assert acquired(first.fetch()) == [(0, 1, 1)]
    waiting = second.send(max_wait_ms=WAIT_MS)
    assert not waiting.is_there
    first.acknowledge(1, 1, RELEASE)
    assert acquired(waiting.message) == [(1, 1, 2)]


def test_fetch_that_waits_gets_records_whose_lock_ends(broker: VirtualBroker) -> None:
    produce(broker, b"1")
    first, second = Member(broker), Member(broker, "b")
    first.fetch()
    waiting = second.send(max_wait_ms=2 * LOCK_MS)
    broker.advance(LOCK_MS - 1)
    assert not waiting.is_there
    broker.advance(1)
    assert acquired(waiting.message) == [(0, 0, 2)]
    assert first.acknowledge(0, 0) == ErrorCode.INVALID_RECORD_STATE


def test_partitions_take_turns_within_a_limit_of_records() -> None:
    broker = reads_from_the_start(VirtualBroker(topics=()))
    broker.state.cluster.create_topic(TOPIC, 3)
    for _ in range(4):
        for index in range(3):
            produce(broker, b"value", index=index)
    member = Member(broker)
    served = []
    for number in range(6):
        answer = member.fetch(max_records=1, share_acquire_mode=1, indexes=[0, 1, 2] if not number else [])
        ((partition,),) = (
            [each for each in topic.partitions if each.acquired_records] for topic in answer.responses
        )
        served.append(partition.partition_index)
    assert sorted(served) == [0, 0, 1, 1, 2, 2]


# Sessions


def test_records_of_a_lost_connection_are_given_to_others_at_once(broker: VirtualBroker) -> None:
    produce(broker, b"1")
    first, second = Member(broker), Member(broker, "b")
    first.fetch()
    waiting = second.send(max_wait_ms=WAIT_MS)
    broker.core.connection_lost(first.client.connection, broker.now_ms)
    assert acquired(waiting.message) == [(0, 0, 2)]


def test_lost_answers_leave_a_session_that_has_gone_on(broker: VirtualBroker) -> None:
    """A client that saw no answer begins anew; its records stay its own."""
    produce(broker, b"1")
    member = Member(broker)
    broker.core.faults.drop_connection("ShareFetch", "after", times=1)
    assert member.send().is_closed
    member.session_epoch = 0
    member.client = broker.client()
    assert acquired(member.fetch()) == []
    assert member.acknowledge(0, 0) == ErrorCode.NONE


def test_node_has_a_limit_of_sessions() -> None:
    broker = VirtualBroker(group_share_max_share_sessions=2)
    for name in "ab":
        assert Member(broker, name).fetch().error_code == ErrorCode.NONE
    assert Member(broker, "c").fetch().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert Member(broker, "a").fetch().error_code == ErrorCode.NONE, "in the old one's place"


def test_KG20_member_that_vanishes_loses_its_place_and_keeps_its_records(broker: VirtualBroker) -> None:
    produce(broker, b"1")
    member, other = Member(broker), Member(broker, "b")
    member.beat()
    member.fetch()
    other.beat()
    for _ in range(SESSION_MS // 1000):
        broker.advance(1000)
        other.beat()
    assert member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    group = broker.state.coordinators.of_group(GROUP).live.share_groups.describe(GROUP)
    assert [each.member_id for each in group.members] == ["b"]


def test_configs_of_a_group_count_for_its_members(broker: VirtualBroker) -> None:
    reads_from_the_start(broker, **{"share.heartbeat.interval.ms": 700, "share.session.timeout.ms": 3000})
    member = Member(broker)
    assert member.beat().heartbeat_interval_ms == 700
    broker.advance(2999)
    assert member.beat().error_code == ErrorCode.NONE
    broker.advance(3000)
    assert member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_has_a_limit_of_members() -> None:
    broker = VirtualBroker(group_share_max_size=1)
    assert Member(broker).beat().error_code == ErrorCode.NONE
    assert Member(broker, "b").beat().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert Member(broker).beat().error_code == ErrorCode.NONE


def test_share_version_0_has_no_share_groups() -> None:
    broker = VirtualBroker(share_version=0)
    assert Member(broker).beat().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert Member(broker).fetch().error_code == ErrorCode.UNSUPPORTED_VERSION


# Leaders and restarts


def test_KG21_KG22_new_leader_has_what_was_stored() -> None:
    broker = reads_from_the_start(VirtualBroker(nodes=2))
    for number in range(6):
        produce(broker, b"%d" % number)
    first = Member(broker)
    assert acquired(first.fetch()) == [(0, 5, 1)]
    assert first.acknowledge(0, 0) == ErrorCode.NONE
    assert first.acknowledge(1, 1, RELEASE) == ErrorCode.NONE
    assert acquired(first.fetch()) == [(1, 1, 2)]
    broker.act(lambda state: state.move_leader(TOPIC, 0, 1))
    assert first.acknowledge(2, 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = first.fetch()
    ((partition,),) = (topic.partitions for topic in refused.responses)
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
    assert [each.node_id for each in refused.node_endpoints] == [1]
    second = Member(broker, node_id=1)
    assert acquired(second.fetch()) == [(1, 1, 2), (2, 5, 1)]
    broker.act(lambda state: state.move_leader(TOPIC, 0, 0))
    assert acquired(Member(broker).fetch()) == [(1, 1, 2), (2, 5, 1)], "acquisitions are not stored"


def test_restart_restores_groups_states_and_configs(tmp_path: Path) -> None:
    broker = reads_from_the_start(VirtualBroker(directory=tmp_path), **{"share.delivery.count.limit": 7})
    produce(broker, b"1", b"2", b"3")
    member = Member(broker)
    member.beat()
    member.beat()
    member.fetch()
    assert member.acknowledge(0, 0) == ErrorCode.NONE
    assert member.acknowledge(1, 1, RELEASE) == ErrorCode.NONE
    before = broker.state.coordinators.of_group(GROUP).live.share_groups.describe(GROUP)
    broker.state.close()

    again = VirtualBroker(directory=tmp_path, topics=(), now_ms=broker.now_ms)
    described = again.state.coordinators.of_group(GROUP).live.share_groups.describe(GROUP)
    assert (described.group_epoch, len(described.members)) == (before.group_epoch, 1)
    assert again.state.group_configs.number(GROUP, "share.delivery.count.limit") == 7
    assert acquired(Member(again).fetch()) == [(1, 1, 2), (2, 2, 1)]
    again.advance(60_000)
    assert again.state.coordinators.of_group(GROUP).live.share_groups.describe(GROUP).members == [], (
        "its session began anew"
    )


def test_states_are_restored_from_snapshot_and_updates_and_older_records_are_deleted(tmp_path: Path) -> None:
    broker = reads_from_the_start(VirtualBroker(directory=tmp_path))
    produce(broker, *[b"r"] * 1200)
    member = Member(broker)
    assert acquired(member.fetch(max_records=1200)) == [(0, 1199, 1)]
    for offset in range(0, 1200, 2):  # 600 updates, so one snapshot among them
        assert member.acknowledge(offset, offset) == ErrorCode.NONE
    logs = [each.log for each in broker.state.cluster.topics["__share_group_state"].partitions]
    assert sum(each.log_end_offset - each.log_start_offset for each in logs) < 200
    broker.state.close()
    again = VirtualBroker(directory=tmp_path, topics=(), now_ms=broker.now_ms)
    left = {
        offset
        for first, last, _ in acquired(Member(again).fetch(max_records=2000))
        for offset in range(first, last + 1)
    }
    assert left == set(range(1, 1200, 2))


def test_deleted_group_forgets_what_it_had_read(broker: VirtualBroker) -> None:
    produce(broker, b"1", b"2")
    member = Member(broker)
    member.beat()
    member.fetch()
    member.acknowledge(0, 1)
    member.beat(member_epoch=LEAVE)
    answer = broker.client().ask(messages.DeleteGroupsRequest(groups_names=[GROUP]))
    assert answer.results[0].error_code == ErrorCode.NONE
    again = Member(broker)
    again.beat()
    assert acquired(again.fetch()) == [(0, 1, 1)]


def test_acknowledgement_without_a_coordinator_is_refused_and_records_stay_acquired(
    broker: VirtualBroker,
) -> None:
    def refuse(*_: object) -> int:
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    produce(broker, b"1")
    member = Member(broker)
    assert acquired(member.fetch()) == [(0, 0, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoordinatorLog, "append", refuse)
        assert member.acknowledge(0, 0) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert member.acknowledge(0, 0) == ErrorCode.NONE


# Permissions


def allowed(kind: str, name: str, operation: str) -> AclBinding:
    return AclBinding.of((kind, name, "User:*", operation))


def test_members_need_to_read_the_group_and_the_topic() -> None:
    broker = VirtualBroker(access=[], allow_everyone_if_no_acl_found=False)
    member = Member(broker)
    described = messages.ShareGroupDescribeRequest(group_ids=[GROUP])
    assert member.beat().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert member.fetch().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert member.client.ask(described).groups[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    broker = VirtualBroker(access=[allowed("GROUP", GROUP, "READ")])
    member = Member(broker)
    assert member.beat().error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ((partition,),) = (topic.partitions for topic in member.fetch().responses)
    assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert member.acknowledge(0, 0) == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    granted = [allowed("GROUP", GROUP, "READ"), allowed("TOPIC", TOPIC, "READ")]
    member = Member(VirtualBroker(access=granted))
    assert member.beat().error_code == ErrorCode.NONE
    assert member.fetch().responses[0].partitions[0].error_code == ErrorCode.NONE


def test_offsets_of_share_groups_need_permissions() -> None:
    broker = VirtualBroker(access=[allowed("GROUP", GROUP, "DESCRIBE")])
    client = broker.client()
    kind = messages.DescribeShareGroupOffsetsRequest
    topic = kind.DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0])
    group = kind.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=[topic])
    (described,) = client.ask(kind(groups=[group])).groups
    assert described.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for change in (messages.AlterShareGroupOffsetsRequest, messages.DeleteShareGroupOffsetsRequest):
        answer = client.ask(change(group_id=GROUP))
        assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
