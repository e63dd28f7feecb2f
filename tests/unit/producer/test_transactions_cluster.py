"""Transactions while the cluster changes: topics that vanish and return, coordinators of no node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kbatch import OffsetAndMetadata, Producer, TopicPartition
from kbatch.errors import UnknownTopicOrPartitionError
from kbatch.protocol import messages
from kbatch.testing import Broker
from tests.support.producing import EITHER_VERSION, SECONDS, TOPIC, requests_seen, sent, transactional, values

pytestmark = [pytest.mark.usefixtures("shell"), EITHER_VERSION]

TOPICS, NODES = {TOPIC: 1, "source": 1}, 2

MANY = 100_000
# max.block.ms; a topic that is said not to be is believed to be for as long.
BLOCK_MS = 1000
SOURCE = TopicPartition("source", 0)


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with transactional(broker, max_block_ms=BLOCK_MS, retry_backoff_max_ms=20) as made:
        made.init_transactions(SECONDS)
        yield made


@pytest.mark.parametrize(
    ("is_in_the_log", "is_forgotten"),
    [(False, False), (True, False), (True, True)],
    ids=["refused", "unanswered", "until it is forgotten"],
)
def test_0105_returning_topic_keeps_sequences_and_queue(
    broker: Broker, producer: Producer, is_in_the_log: bool, is_forgotten: bool
) -> None:
    producer.begin_transaction()
    sent(producer, "0", "1")
    producer.flush()
    broker.fail_next("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", MANY)
    # either has the producer ask for metadata; the leader has the batch, or has not
    if is_in_the_log:
        broker.drop_connection("Produce", "after")
    else:
        broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", MANY)
    asked = requests_seen(broker, "Metadata")
    deliveries = sent(producer, "2")
    for _ in range(2):  # so that the first was answered
        asked.get(timeout=SECONDS)
    deliveries += sent(producer, "3", "4")
    while is_forgotten:
        try:
            producer.partitions_for(TOPIC)
        except UnknownTopicOrPartitionError:
            break
    assert not any(delivery.done() for delivery in deliveries[1:])
    broker.clear_faults()
    producer.commit_transaction(SECONDS)
    assert [delivery.result(0).offset for delivery in deliveries] == [2, 3, 4]
    assert values(broker) == [b"0", b"1", b"2", b"3", b"4"]
    data = [batch for batch in broker.batches(TOPIC) if not batch.is_control]
    assert len({(batch.producer_id, batch.producer_epoch) for batch in data}) == 1
    assert [batch.base_sequence for batch in data] == [batch.base_offset for batch in data]
    assert len(broker.requests("InitProducerId")) == 1


@pytest.mark.parametrize("api", ["InitProducerId", "EndTxn", "TxnOffsetCommit"])
def test_0105_a_coordinator_of_no_node_is_looked_for_again(broker: Broker, api: str) -> None:
    """FindCoordinator says that it was found, and that it is the node -1."""
    left = [3]

    def no_coordinator(request: Any) -> Any:
        if not left[0]:
            return None
        left[0] -= 1
        kind = messages.FindCoordinatorResponse
        if not request.coordinator_keys:
            return kind(node_id=-1, host="", port=-1)
        found = [kind.Coordinator(key=key, node_id=-1, host="", port=-1) for key in request.coordinator_keys]
        return kind(coordinators=found)

    with transactional(broker, retry_backoff_max_ms=20) as producer:
        if api != "InitProducerId":
            producer.init_transactions()
            broker.fail_next(api, "NOT_COORDINATOR")
        broker.intercept("FindCoordinator", no_coordinator)
        if api == "InitProducerId":
            producer.init_transactions()
        with producer.transaction():
            sent(producer, "a")
            producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(1)}, "g")
        assert left == [0]
        with producer.transaction():
            sent(producer, "b")
    assert values(broker) == [b"a", b"b"]
