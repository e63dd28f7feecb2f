"""Markers of transactions in replicated partitions: they are done when replicated, wherever the leader is."""

from __future__ import annotations

import pytest

from kbatch.testing.broker.transactions.markers import Marker
from kbatch.testing.broker.transactions.transaction_metadata import TransactionState
from tests.support.broker_core import TOPIC
from tests.unit.testing.broker.replication.replicated import Replicated

NAME = "id"
PLACE = (TOPIC, 0)
SEVERAL_RETRIES_MS = 1000


@pytest.fixture
def broker() -> Replicated:
    """Three nodes, and a transaction with the partition that node 0 leads; the others coordinate it."""
    made = Replicated()
    partition = made.state.coordinators.partition_of_transaction(NAME)
    made.act(lambda state: state.reassign(partition.topic.name, partition.index, [2, 1]))
    transactions = made.state.coordinators.of_transaction(NAME).transactions
    transactions.init_producer_id(NAME, 60_000, -1, -1, made.now_ms)
    transactions.add_partitions(NAME, 0, 0, [PLACE], made.now_ms, client_tv2=True)
    return made


def end(broker: Replicated) -> None:
    transactions = broker.state.coordinators.of_transaction(NAME).transactions
    broker.act(lambda _: transactions.end_txn(NAME, 0, 0, True, True, broker.now_ms))


def state_of(broker: Replicated) -> TransactionState:
    return broker.state.coordinators.of_transaction(NAME).transactions.describe(NAME).state


def markers_at(broker: Replicated, node: int) -> int:
    return sum(batch.is_control for batch in broker.log(node).batches())


def test_marker_is_done_at_once_if_followers_have_it(broker: Replicated) -> None:
    end(broker)
    assert state_of(broker) is TransactionState.COMPLETE_COMMIT
    assert [markers_at(broker, node) for node in range(3)] == [1, 1, 1]


def test_marker_waits_for_followers_and_is_not_repeated(broker: Replicated) -> None:
    broker.hold()
    end(broker)
    broker.advance(SEVERAL_RETRIES_MS)
    assert state_of(broker) is TransactionState.PREPARE_COMMIT
    assert markers_at(broker, 0) == 1
    broker.hold(False)
    assert state_of(broker) is TransactionState.COMPLETE_COMMIT
    assert [markers_at(broker, node) for node in range(3)] == [1, 1, 1]


def test_marker_that_only_a_dead_leader_had_is_written_again(broker: Replicated) -> None:
    broker.hold()
    end(broker)
    broker.kill(0)
    broker.hold(False)
    broker.advance(SEVERAL_RETRIES_MS)
    assert state_of(broker) is TransactionState.COMPLETE_COMMIT
    broker.start(0)
    assert [markers_at(broker, node) for node in range(3)] == [1, 1, 1]


def test_marker_of_a_deposed_coordinator_is_not_taken_for_the_next_one(broker: Replicated) -> None:
    """Nobody asks any more what became of the first one: it waited when its coordinator was deposed."""
    write_all = broker.state.coordinators.markers.write_all
    first = Marker(0, 0, is_commit=True, coordinator_epoch=1, transaction_version=1)
    broker.hold()
    assert write_all(first, [PLACE]) == [PLACE]
    broker.hold(False)
    broker.act(lambda _: write_all(first._replace(coordinator_epoch=2), [PLACE]))
    assert [markers_at(broker, node) for node in range(3)] == [2, 2, 2]
    assert write_all(first._replace(coordinator_epoch=2), [PLACE]) == []


def test_marker_that_follows_another_one_is_replicated_at_once(broker: Replicated) -> None:
    """A request that waited writes: replicas come to rest after that, too."""
    broker.act(lambda state: state.cluster.create_topic("other", 1, assignments=[[1, 0, 2]]))
    transactions = broker.state.coordinators.of_transaction(NAME).transactions
    transactions.add_partitions(NAME, 0, 0, [("other", 0)], broker.now_ms, client_tv2=True)
    broker.hold()
    broker.kill(1, at_once=False)
    end(broker)
    broker.state.hold_high_watermark(*PLACE, False)
    broker.start(1)
    copies = broker.state.cluster.partition("other", 0).copies.values()
    assert [copy.log.log_end_offset for copy in copies] == [1, 1, 1]
    assert state_of(broker) is TransactionState.COMPLETE_COMMIT


def test_marker_waits_for_a_leader_that_is_dead_and_not_fenced(broker: Replicated) -> None:
    broker.kill(0, at_once=False)
    end(broker)
    assert state_of(broker) is TransactionState.PREPARE_COMMIT
    assert markers_at(broker, 0) == 0
    broker.advance(9_000 + SEVERAL_RETRIES_MS)
    assert state_of(broker) is TransactionState.COMPLETE_COMMIT
    assert [markers_at(broker, node) for node in (1, 2)] == [1, 1]
