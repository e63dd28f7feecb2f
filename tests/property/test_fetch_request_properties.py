"""Fetch requests: the native writer writes what kbatch.protocol does, in all versions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch._native.fetch.fetch_answer import VERSIONS
from kbatch.core.consumer.partition_state import NO_END, PartitionState, Start
from kbatch.protocol import codec
from kbatch.protocol.messages import FetchRequest
from kbatch.records import TopicPartition
from tests.support.roads import new_road

FIRST_EPOCHS, FIRST_LEADER_EPOCHS = 12, 9
int32, offsets = st.integers(-1, 2**31 - 1), st.integers(0, 2**63 - 1)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


class Partition:
    """A partition, and what is asked of it."""

    def __init__(self, topic: str, number: int, topic_id: int, epochs: tuple[int, int], offset: int) -> None:
        self.at = TopicPartition(topic, number)
        self.topic_id = topic_id.to_bytes(16, "big")
        self.leader_epoch, self.last_epoch = epochs
        self.offset = offset


partitions = st.lists(
    st.builds(
        Partition,
        st.sampled_from(["t", "a topic", "é" * 40]),
        st.integers(0, 2**31 - 1),
        st.sampled_from([1, 2, 2**128 - 1]),
        st.tuples(int32, int32),
        offsets,
    ),
    unique_by=lambda each: each.at,
    max_size=12,
)


def message_of(head: dict[str, Any], asked: list[Partition], version: int, size_bytes: int) -> FetchRequest:
    topics: dict[tuple[str, bytes], list[Any]] = {}
    for each in asked:
        topics.setdefault((each.at.topic, each.topic_id), []).append(
            FetchRequest.FetchPartition(
                partition=each.at.partition,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.offset,
                last_fetched_epoch=each.last_epoch if version >= FIRST_EPOCHS else -1,
                partition_max_bytes=size_bytes,
            )
        )
    named = [
        FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=found)
        for (name, topic_id), found in topics.items()
    ]
    return FetchRequest(**head, replica_id=-1, topics=named, session_id=0, session_epoch=0)


@pytest.mark.parametrize("version", VERSIONS)
@given(
    asked=partitions,
    head=st.fixed_dictionaries(
        {
            "max_wait_ms": int32,
            "min_bytes": int32,
            "isolation_level": st.integers(0, 1),
            "rack_id": st.text(st.characters(codec="utf-8"), max_size=40),
        }
    ),
    size_bytes=st.integers(1, 2**31 - 1),
    most_bytes=st.integers(1, 2**31 - 1),
    correlation_id=st.integers(0, 2**31 - 1),
    client_id=st.none() | names,
)
def test_requests_are_written_as_the_protocol_says(
    version: int,
    asked: list[Partition],
    head: dict[str, Any],
    size_bytes: int,
    most_bytes: int,
    correlation_id: int,
    client_id: str | None,
) -> None:
    road, session = new_road(
        client_id=client_id,
        rack_id=head["rack_id"],
        max_wait_ms=head["max_wait_ms"],
        min_bytes=head["min_bytes"],
        partition_bytes=size_bytes,
        reads_committed=bool(head["isolation_level"]),
    )
    states = []
    for each in asked:
        state = PartitionState(each.at, 1, Start(each.offset), NO_END, None, 0)
        state.move_to(each.offset, each.last_epoch)
        state.topic_id, state.leader_epoch = each.topic_id, each.leader_epoch
        road.add(state)
        state.place(road, session)
        states.append(state)
    road.scan(1, 0)
    session.ask(version, most_bytes, 0)
    message = message_of({**head, "max_bytes": most_bytes}, asked, version, size_bytes)
    expected = codec.encode_request(message, version, correlation_id, client_id)
    found = session.write(FetchRequest(), version, correlation_id, client_id)
    assert b"".join(found) == b"".join(expected)
