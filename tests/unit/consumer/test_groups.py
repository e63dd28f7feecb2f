"""Groups of a TopicReader: which there are, their members, lag and offsets, beside members of librdkafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kbatch
from kbatch import OffsetAndMetadata, TopicPartition, TopicReader
from kbatch.errors import (
    ConsumerClosedError,
    GroupAuthorizationError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kbatch.protocol import messages
from kbatch.records import GroupListing
from kbatch.testing import Broker
from tests.support.consuming import consumer_of
from tests.support.patience import until

TOPIC, GROUP = "orders", "billing"
TOPICS = {TOPIC: 3, "returns": 1}
NODES = 2
FIRST, SECOND, THIRD = (TopicPartition(TOPIC, each) for each in range(3))

BOTH_PROTOCOLS = pytest.mark.parametrize(
    ("protocol", "assignor"), [("classic", "range"), ("consumer", "uniform")], ids=["classic", "consumer"]
)


@pytest.fixture
def reader(broker: Broker) -> Iterator[TopicReader]:
    with TopicReader(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as opened:
        yield opened


def fill(broker: Broker, count: int) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(TOPIC, b"%d" % number, partition=0)


def test_groups_of_all_nodes_are_listed(reader: TopicReader) -> None:
    assert reader.groups.list() == ()
    names = [f"group-{number}" for number in range(9)]
    for name in reversed(names):
        reader.groups.commit_offsets(name, {FIRST: 1})
    assert reader.groups.list() == tuple(GroupListing(name, "classic", "Empty", "") for name in names)


@BOTH_PROTOCOLS
def test_members_have_their_partitions(
    broker: Broker, reader: TopicReader, protocol: str, assignor: str
) -> None:
    with consumer_of(broker.bootstrap_servers, GROUP, TOPIC, protocol):
        until(lambda: reader.groups.describe(GROUP).state == "Stable")
        described = reader.groups.describe(GROUP)
        assert (described.group_id, described.kind, described.assignor) == (GROUP, protocol, assignor)
        (found,) = described.members
        assert (found.client_id, found.group_instance_id) == ("other", None)
        assert found.partitions == (FIRST, SECOND, THIRD)
        assert reader.groups.list() == (GroupListing(GROUP, protocol, "Stable", "consumer"),)
    until(lambda: reader.groups.describe(GROUP).state == "Empty")
    assert reader.groups.describe(GROUP)[:3] == (GROUP, protocol, "Empty")


def test_unknown_group_is_an_error_without_offsets(reader: TopicReader) -> None:
    with pytest.raises(GroupIdNotFoundError, match="describe of group nobody"):
        reader.groups.describe("nobody")
    assert reader.groups.offsets("nobody") == {}


def test_offsets_say_the_lag(broker: Broker, reader: TopicReader) -> None:
    fill(broker, 5)
    gone = TopicPartition("returns", 0)
    reader.groups.commit_offsets(GROUP, {FIRST: OffsetAndMetadata(2, "why", 0), SECOND: 0, gone: 7})
    found = reader.groups.offsets(GROUP)
    assert found[FIRST] == (OffsetAndMetadata(2, "why", 0), 5)
    assert {partition: each.lag for partition, each in found.items()} == {FIRST: 3, SECOND: 0, gone: 0}
    assert reader.groups.offsets(GROUP)[gone].end == 0


def test_offset_of_a_deleted_topic_has_no_lag(broker: Broker, reader: TopicReader) -> None:
    """The broker deletes offsets with their topic, so the answer is an intercepted one."""
    kind = messages.OffsetFetchResponse
    partition = kind.OffsetFetchResponsePartitions(committed_offset=2, metadata="")
    topic = kind.OffsetFetchResponseTopics(name="deleted", partitions=[partition])
    group = kind.OffsetFetchResponseGroup(group_id=GROUP, topics=[topic])
    broker.intercept("OffsetFetch", lambda request: kind(groups=[group]))
    (found,) = reader.groups.offsets(GROUP).values()
    assert (found.committed.offset, found.end, found.lag) == (2, None, None)


def test_offsets_of_open_transactions_are_not_waited_for(broker: Broker, reader: TopicReader) -> None:
    reader.groups.commit_offsets(GROUP, {FIRST: 1})
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({FIRST: OffsetAndMetadata(4)}, GROUP)
        assert reader.groups.offsets(GROUP)[FIRST].committed.offset == 1
        producer.commit_transaction()
    assert reader.groups.offsets(GROUP)[FIRST].committed.offset == 4


@BOTH_PROTOCOLS
def test_members_keep_others_from_committing(
    broker: Broker, reader: TopicReader, protocol: str, assignor: str
) -> None:
    with consumer_of(broker.bootstrap_servers, GROUP, TOPIC, protocol):
        with pytest.raises(UnknownMemberIdError, match=f"commit_offsets of group {GROUP}, partition {FIRST}"):
            reader.groups.commit_offsets(GROUP, {FIRST: 1})
        with pytest.raises(GroupSubscribedToTopicError, match=f"partition {SECOND}"):
            reader.groups.delete_offsets(GROUP, [SECOND])


def test_deleted_offsets_are_forgotten(reader: TopicReader) -> None:
    reader.groups.commit_offsets(GROUP, {FIRST: 1, SECOND: 2})
    reader.groups.delete_offsets(GROUP, [FIRST, THIRD])
    assert list(reader.groups.offsets(GROUP)) == [SECOND]
    with pytest.raises(GroupIdNotFoundError):
        reader.groups.delete_offsets("nobody", [FIRST])
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere-0"):
        reader.groups.delete_offsets(GROUP, [TopicPartition("nowhere", 0)])


@pytest.mark.parametrize("api", ["DescribeGroups", "OffsetDelete", "OffsetCommit", "ListGroups"])
@pytest.mark.parametrize("fault", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "before"])
def test_what_passes_is_tried_again(broker: Broker, reader: TopicReader, api: str, fault: str) -> None:
    reader.groups.commit_offsets(GROUP, {FIRST: 1})
    if fault == "before":
        broker.drop_connection(api, when=fault, times=2)
    else:
        broker.fail_next(api, error=fault, times=2)
    assert reader.groups.describe(GROUP).state == "Empty"
    assert [each.group_id for each in reader.groups.list()] == [GROUP]
    reader.groups.commit_offsets(GROUP, {SECOND: 1})
    reader.groups.delete_offsets(GROUP, [FIRST])
    assert list(reader.groups.offsets(GROUP)) == [SECOND]


def test_what_is_refused_is_raised(broker: Broker, reader: TopicReader) -> None:
    broker.acls.group_read = frozenset()
    with pytest.raises(GroupAuthorizationError, match=f"group {GROUP}"):
        reader.groups.describe(GROUP)
    with pytest.raises(GroupAuthorizationError, match=f"group {GROUP}"):
        reader.groups.commit_offsets(GROUP, {FIRST: 1})


def test_wrong_arguments_and_a_closed_reader(broker: Broker) -> None:
    with TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        groups = reader.groups
        with pytest.raises(ValueError, match="group_id must not be empty"):
            groups.describe("")
        with pytest.raises(ValueError, match="offset must be 0"):
            groups.commit_offsets(GROUP, {FIRST: -1})
        with pytest.raises(TypeError, match="a partition must be"):
            groups.delete_offsets(GROUP, [TOPIC])  # type: ignore[list-item]
    with pytest.raises(ConsumerClosedError):
        groups.list()
