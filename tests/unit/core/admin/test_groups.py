"""Requests about groups, as messages."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch import OffsetAndMetadata, TopicPartition
from kbatch.core.admin.groups import ClassicGroups, CommittedOffsets, ConsumerGroups
from kbatch.core.client.admin_requests import Refusal
from kbatch.errors import ErrorCode, UnsupportedVersionError
from kbatch.protocol import codec, messages

GROUP = "markers"
PARTITION = TopicPartition("events", 0)


def committed_message(
    version: int, partitions: list[TopicPartition] | None, *, is_stable: bool = True
) -> Any:
    items = {GROUP: None if partitions is None else dict.fromkeys(partitions)}
    return CommittedOffsets(items, is_stable=is_stable).message(items, version, 1000)


def test_committed_offsets_of_old_brokers_are_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.5"):
        committed_message(6, [PARTITION])
    assert committed_message(7, [PARTITION]).group_id == GROUP
    assert not committed_message(6, [PARTITION], is_stable=False).require_stable


def test_committed_numbers_of_other_programs_are_read() -> None:
    kind = messages.OffsetFetchResponse
    parts = [
        kind.OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch
        )
        for index, (offset, epoch) in enumerate([(-5, 0), (7, -7), (2**63 - 1, 2**31 - 1)])
    ]
    topic = kind.OffsetFetchResponseTopics(name="events", partitions=parts)
    answer = kind(groups=[kind.OffsetFetchResponseGroup(group_id=GROUP, topics=[topic])])
    assert dict(CommittedOffsets({GROUP: None}).read(answer, {GROUP: None})) == {
        GROUP: {
            TopicPartition("events", 1): OffsetAndMetadata(7),
            TopicPartition("events", 2): OffsetAndMetadata(2**63 - 1, leader_epoch=2**31 - 1),
        }
    }


@pytest.mark.parametrize("version", [7, 8, 9])
def test_all_offsets_are_requested_without_topics(version: int) -> None:
    message = committed_message(version, None)
    (asked,) = message.groups or [message]
    assert (asked.group_id, asked.topics) == (GROUP, None)


def test_groups_travel_together_where_brokers_take_several() -> None:
    request = CommittedOffsets({"a": None, "b": None})
    items = {"a": None, "b": None}
    assert [list(chunk) for chunk in request.chunks(items, 8)] == [["a", "b"]]
    assert [list(chunk) for chunk in request.chunks(items, 7)] == [["a"], ["b"]]


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
        target_assignment=kind.Assignment(),
    )
    group = kind.DescribedGroup(
        group_id=GROUP, group_state="Stable", group_epoch=3, assignor_name="uniform", members=[member]
    )
    ((_, found),) = ConsumerGroups([GROUP]).read(kind(groups=[group]), {GROUP: None})
    assert found[:4] == (GROUP, "consumer", "Stable", "uniform")
    (found,) = found.members
    partitions = (PARTITION, TopicPartition("events", 1))
    assert found == ("m", "c", "/10.0.0.1", None, partitions, 3, None, (), ())


def classic(state: str, assignment: bytes, protocol_type: str = "consumer") -> Any:
    kind = messages.DescribeGroupsResponse
    member = kind.DescribedGroupMember(member_id="m", client_id="c", member_assignment=assignment)
    group = kind.DescribedGroup(
        group_id=GROUP, group_state=state, protocol_type=protocol_type, members=[member]
    )
    ((_, found),) = ClassicGroups([GROUP]).read(kind(groups=[group]), {GROUP: None})
    return found


def test_assignments_of_consumers_are_read() -> None:
    kind = messages.ConsumerProtocolAssignment
    data = codec.encode(kind(assigned_partitions=[kind.TopicPartition(topic="events", partitions=[0])]), 1)
    written = b"".join([b"\x00\x01", *data])
    (found,) = classic("Stable", written).members
    assert found.partitions == (PARTITION,)
    (later,) = classic("Stable", b"\x00\x63" + written[2:]).members
    assert later.partitions == (PARTITION,)


@pytest.mark.parametrize(
    ("assignment", "protocol_type"), [(b"", "consumer"), (b"\0\1\xff", "consumer"), (b"\0\1x", "connect")]
)
def test_assignment_of_another_kind_has_no_partitions(assignment: bytes, protocol_type: str) -> None:
    (found,) = classic("Stable", assignment, protocol_type).members
    assert found.partitions == ()


def test_dead_group_of_old_brokers_is_not_found() -> None:
    assert classic("Dead", b"") == Refusal(ErrorCode.GROUP_ID_NOT_FOUND)
