"""Requests about groups, as messages."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch import OffsetAndMetadata, TopicPartition
from kbatch.core.client.admin_requests import ClassicGroup, CommittedOffsets, ConsumerGroup, Refusal
from kbatch.errors import ErrorCode, UnsupportedVersionError
from kbatch.protocol import codec, messages

GROUP = "markers"
PARTITION = TopicPartition("events", 0)


def test_committed_offsets_of_old_brokers_are_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.5"):
        CommittedOffsets(GROUP, [PARTITION]).message(6)
    message: Any = CommittedOffsets(GROUP, [PARTITION]).message(7)
    assert message.group_id == GROUP
    message = CommittedOffsets(GROUP, [PARTITION], is_stable=False).message(6)
    assert not message.require_stable


def test_committed_numbers_of_other_programs_are_read() -> None:
    kind = messages.OffsetFetchResponse
    parts = [
        kind.OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch
        )
        for index, (offset, epoch) in enumerate([(-5, 0), (7, -7), (2**63 - 1, 2**31 - 1)])
    ]
    topic = kind.OffsetFetchResponseTopics(name="events", partitions=parts)
    request = CommittedOffsets(GROUP, None)
    assert request.read(kind(groups=[kind.OffsetFetchResponseGroup(topics=[topic])])) == Refusal(0)
    assert request.answer == {
        TopicPartition("events", 1): OffsetAndMetadata(7),
        TopicPartition("events", 2): OffsetAndMetadata(2**63 - 1, leader_epoch=2**31 - 1),
    }


@pytest.mark.parametrize("version", [7, 8, 9])
def test_all_offsets_are_requested_without_topics(version: int) -> None:
    message: Any = CommittedOffsets(GROUP, None).message(version)
    (asked,) = message.groups or [message]
    assert (asked.group_id, asked.topics) == (GROUP, None)


def test_consumer_group_is_described() -> None:
    kind = messages.ConsumerGroupDescribeResponse
    member = kind.Member(
        member_id="m",
        client_id="c",
        client_host="/10.0.0.1",
        member_epoch=3,
        assignment=kind.Assignment(
            topic_partitions=[kind.TopicPartitions(topic_name="events", partitions=[1, 0])]
        ),
    )
    group = kind.DescribedGroup(
        group_id=GROUP, group_state="Stable", group_epoch=3, assignor_name="uniform", members=[member]
    )
    request = ConsumerGroup(GROUP)
    assert request.read(kind(groups=[group])) == Refusal(0)
    assert request.answer[:4] == (GROUP, "consumer", "Stable", "uniform")
    (found,) = request.answer.members
    assert found == ("m", "c", "/10.0.0.1", None, (PARTITION, TopicPartition("events", 1)))


def classic(state: str, assignment: bytes, protocol_type: str = "consumer") -> ClassicGroup:
    kind = messages.DescribeGroupsResponse
    member = kind.DescribedGroupMember(member_id="m", client_id="c", member_assignment=assignment)
    group = kind.DescribedGroup(
        group_id=GROUP, group_state=state, protocol_type=protocol_type, members=[member]
    )
    request = ClassicGroup(GROUP)
    expected = ErrorCode.GROUP_ID_NOT_FOUND if state == "Dead" else 0
    assert request.read(kind(groups=[group])) == Refusal(expected)
    return request


def test_assignments_of_consumers_are_read() -> None:
    kind = messages.ConsumerProtocolAssignment
    data = codec.encode(kind(assigned_partitions=[kind.TopicPartition(topic="events", partitions=[0])]), 1)
    written = b"".join([b"\x00\x01", *data])
    (found,) = classic("Stable", written).answer.members
    assert found.partitions == (PARTITION,)
    (later,) = classic("Stable", b"\x00\x63" + written[2:]).answer.members
    assert later.partitions == (PARTITION,)


@pytest.mark.parametrize(
    ("assignment", "protocol_type"), [(b"", "consumer"), (b"\0\1\xff", "consumer"), (b"\0\1x", "connect")]
)
def test_assignment_of_another_kind_has_no_partitions(assignment: bytes, protocol_type: str) -> None:
    (found,) = classic("Stable", assignment, protocol_type).answer.members
    assert found.partitions == ()


def test_dead_group_of_old_brokers_is_not_found() -> None:
    classic("Dead", b"")
