"""Groups of a TopicReader beside members of librdkafka, with both brokers and both protocols of groups."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import kbatch
from kbatch import OffsetAndMetadata, ShareConsumer, ShareRecord, TopicPartition, TopicReader
from kbatch.cli.commands import kbatch as kbatch_command
from kbatch.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, UnknownMemberIdError
from kbatch.records import GroupListing, ShareGroupOffset
from tests.oracle.kafka import create_topic
from tests.support.consuming import consumer_of
from tests.support.kafka_share_groups import new_group, new_topic, polled
from tests.support.patience import until

if TYPE_CHECKING:
    from tests.oracle.kafka import RealKafka


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


@pytest.mark.slow
@pytest.mark.java
def test_share_group_is_described_with_its_lag(real_kafka: RealKafka) -> None:
    servers = real_kafka.bootstrap_servers
    group, topic = new_group(servers), new_topic(servers, 6, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    settings: dict[str, Any] = {"client_id": "worker", "share_acknowledgement_mode": "explicit"}
    with (
        ShareConsumer(bootstrap_servers=servers, group_id=group, **settings) as consumer,
        TopicReader(bootstrap_servers=servers) as reader,
    ):
        consumer.subscribe([topic])

        def acknowledge(record: ShareRecord) -> None:
            is_done = record.partition == 0 and record.offset < 2
            consumer.acknowledge(record, "accept" if is_done else "renew")

        polled(consumer, 6, acknowledge)
        consumer.commit()
        described = reader.groups.describe(group)
        assert (described.kind, described.state) == ("share", "Stable")
        assert [(each.client_id, len(each.partitions)) for each in described.members] == [("worker", 2)]
        assert GroupListing(group, "share", "Stable", "share") in reader.groups.list()
        offsets = {first: ShareGroupOffset(2, 3, 1), second: ShareGroupOffset(0, 3, 3)}
        until(lambda: reader.groups.share_offsets(group) == offsets)
        result = CliRunner().invoke(kbatch_command, ["groups", "describe", group, "-b", servers, "--table"])
        head, names, *rows = result.stdout.splitlines()
        assert head.startswith(f"{group}: Stable, share, assignor simple, 1 member, lag 4")
        assert names.split() == ["topic", "partition", "start", "end", "lag", "client", "host"]
        assert rows[0].split()[:6] == [topic, "0", "2", "3", "1", "worker"]
        result = CliRunner().invoke(kbatch_command, ["groups", "describe", group, "-b", servers, "--json"])
        (partition, _) = json.loads(result.stdout)["partitions"]
        assert partition["members"] == [described.members[0].member_id] and partition["start"] == 2
        reset = ["groups", "reset", group, "-b", servers, "--all-topics", "--to", "earliest"]
        result = CliRunner().invoke(kbatch_command, reset)
        assert result.exit_code == 1 and "has members" in result.output
