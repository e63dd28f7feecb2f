"""Groups of a TopicReader beside members of librdkafka, with both brokers and both protocols of groups."""

from __future__ import annotations

import uuid

import pytest

import kbatch
from kbatch import OffsetAndMetadata, TopicPartition, TopicReader
from kbatch.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, UnknownMemberIdError
from kbatch.records import GroupListing
from tests.oracle.kafka import create_topic
from tests.support.consuming import consumer_of
from tests.support.producing import until


@pytest.mark.parametrize(("protocol", "assignor"), [("classic", "range"), ("consumer", "uniform")])
def test_group_is_seen_from_its_birth_to_its_end(target: str, protocol: str, assignor: str) -> None:
    group, topic = f"group-{uuid.uuid4()}", f"topic-{uuid.uuid4()}"
    create_topic(target, topic, 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with kbatch.Producer(bootstrap_servers=target) as producer:
        for _ in range(5):
            producer.send(topic, b"", partition=0)
    with TopicReader(bootstrap_servers=target) as reader:
        groups = reader.groups
        with pytest.raises(GroupIdNotFoundError, match=group):
            groups.describe(group)
        with consumer_of(target, group, topic, protocol):
            until(lambda: groups.describe(group).state == "Stable")
            described = groups.describe(group)
            assert described[:4] == (group, protocol, "Stable", assignor)
            (member,) = described.members
            assert (member.client_id, member.partitions) == ("other", (first, second))
            assert GroupListing(group, protocol, "Stable", "consumer") in groups.list()
            with pytest.raises(UnknownMemberIdError, match=f"partition {first}"):
                groups.commit_offsets(group, {first: 1})
            with pytest.raises(GroupSubscribedToTopicError, match=f"partition {second}"):
                groups.delete_offsets(group, [second])
        until(lambda: not groups.describe(group).members)
        groups.commit_offsets(group, {first: OffsetAndMetadata(2, "why"), second: 0})
        assert groups.offsets(group)[first] == (OffsetAndMetadata(2, "why"), 5)
        assert groups.offsets(group)[first].lag == 3
        groups.delete_offsets(group, [first])
        assert list(groups.offsets(group)) == [second]
