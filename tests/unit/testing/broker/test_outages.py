"""Nodes that end, are paused or cut off, and the sessions that end with them."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.protocol import messages
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from tests.support.broker_core import TOPIC
from tests.unit.testing.broker.replication.replicated import LEADER, Replicated


def described(broker: Replicated, node: int) -> Any:
    """Return (brokers, the partition) of the node's Metadata."""
    named = messages.MetadataRequest.MetadataRequestTopic(name=TOPIC)
    answer = broker.client(node).ask(messages.MetadataRequest(topics=[named]), 12)
    return [each.node_id for each in answer.brokers], answer.topics[0].partitions[0]


def test_KA01_stopped_leader_hands_over_first() -> None:
    broker = Replicated()
    broker.put(b"a")
    broker.stop(0)
    assert (broker.partition.leader, broker.known.isr) == (1, (1, 2))
    broker.start(0)
    assert (broker.partition.leader, broker.known.isr) == (1, (1, 2, 0))


def test_KB03_KI06_fenced_broker_is_offline() -> None:
    broker = Replicated()
    broker.kill(2)
    brokers, partition = described(broker, 0)
    assert (brokers, partition.isr_nodes, partition.offline_replicas) == ([0, 1], [0, 1], [2])


def test_KB04_silence_ends_the_session() -> None:
    broker = Replicated(session_timeout_ms=6000)
    broker.kill(0, at_once=False)
    broker.advance(5999)
    assert described(broker, 1)[1].leader_id == 0, "until then every node names it"
    broker.advance(1)
    assert (broker.partition.leader, broker.known.isr) == (1, (1, 2))


def test_KB04_broker_that_is_heard_again_is_unfenced() -> None:
    broker = Replicated(session_timeout_ms=6000)
    broker.cut({2}, {0, 1, "controller"})
    broker.advance(6000)
    assert broker.known.isr == (0, 1)
    broker.heal()
    assert broker.known.isr == (0, 1, 2)
    broker.cut({2}, {"controller"})
    broker.advance(5999)
    broker.heal()
    broker.advance(6000)
    assert broker.known.isr == (0, 1, 2), "the session began anew"


def test_KA03_node_that_is_cut_off_knows_what_it_knew() -> None:
    broker = Replicated()
    broker.cut({0}, {1, 2, "controller"})
    broker.advance(9000)
    assert described(broker, 0)[0] == [0, 1, 2]
    assert (described(broker, 0)[1].leader_id, described(broker, 1)[1].leader_id) == (0, 1)
    broker.heal()
    assert described(broker, 0)[1].leader_id == 1


def test_KA03_controller_may_be_reached_while_brokers_are_not() -> None:
    """The follower leaves the in-sync replicas by its lag alone, and is never fenced."""
    broker = Replicated(replica_lag_ms=4000)
    broker.cut({0}, {1})
    broker.put(b"a", acks=LEADER)
    broker.advance(6000)
    assert (broker.known.isr, described(broker, 0)[0]) == ((0, 2), [0, 1, 2])
    broker.heal()
    assert broker.known.isr == (0, 2, 1)


def test_KA02_paused_leader_is_fenced_and_learns_late() -> None:
    broker = Replicated()
    broker.put(b"a")
    broker.act(lambda state: state.outages.pause(0, broker.now_ms))
    assert not broker.state.outages.answers_clients(0)
    broker.advance(9000)
    assert broker.partition.leader == 1
    broker.act(lambda state: state.outages.resume(0))
    assert broker.put(b"zombie", acks=LEADER, node=0).error_code == 0
    broker.act(lambda state: state.outages.catch_up(broker.now_ms))
    assert [broker.values_at(node) for node in range(3)] == [[b"a"]] * 3


def test_KA04_machine_that_dies_loses_what_was_not_flushed() -> None:
    broker = Replicated(nodes=2)
    broker.put(b"a")
    broker.act(lambda state: broker.log(1).roll(broker.now_ms))
    broker.put(b"b")
    broker.kill(1, lose=True)
    assert broker.values_at(1) == [b"a"]
    broker.start(1)
    assert broker.values_at(1) == [b"a", b"b"]


def test_KE07_killed_node_is_no_eligible_leader_after_its_start() -> None:
    broker = Replicated(min_insync_replicas=2)
    broker.kill(2)
    broker.kill(1)
    assert broker.known.elr == (1,)
    broker.hold()
    broker.start(1)
    assert broker.known.elr == ()


def test_KE02_KE03_last_replica_leads_again_when_it_is_back() -> None:
    broker = Replicated(nodes=2)
    broker.put(b"a")
    broker.stop(1)
    broker.stop(0)
    assert (broker.partition.leader, broker.known.elr) == (NO_LEADER, (0,))
    broker.start(1)
    assert broker.partition.leader == NO_LEADER
    broker.start(0)
    assert (broker.partition.leader, broker.known.isr) == (0, (0, 1))


def test_unknown_parties_are_refused() -> None:
    broker = Replicated()
    with pytest.raises(ValueError, match="a party must be one of 0, 1, 2, 'controller', 'clients', got 3"):
        broker.cut({0}, {3})
    with pytest.raises(ValueError, match="no party twice"):
        broker.cut({0}, {0, 1})
    with pytest.raises(ValueError, match="node 1 does not run"):
        broker.kill(1)
        broker.state.outages.pause(1, 0)
