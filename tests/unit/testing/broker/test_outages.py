"""Nodes that end, are paused or cut off, and the sessions that end with them."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.api.configs import TOPIC_RESOURCE, change_configs
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from tests.support.broker_core import TOPIC, fetch_request, fetched
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


# The controller


def create(name: str, timeout_ms: int = 2000) -> messages.CreateTopicsRequest:
    kind = messages.CreateTopicsRequest
    return kind(
        topics=[kind.CreatableTopic(name=name, num_partitions=1, replication_factor=1)],
        timeout_ms=timeout_ms,
    )


def test_KB11_requests_wait_for_the_controller_and_time_out() -> None:
    """Kafka does not answer at all; data and metadata go on."""
    broker = Replicated()
    broker.cut({0, 1, 2}, {"controller"})
    waiting = broker.client(1).send(create("new"))
    describing = broker.client(1).send(messages.DescribeAclsRequest())
    assert describing.is_there and broker.put(b"a").error_code == 0
    broker.advance(1999)
    assert not waiting.is_there
    broker.advance(1)
    (created,) = waiting.message.topics
    assert created.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "new" not in broker.state.cluster.topics


def test_KB06_requests_that_wait_are_done_when_the_controller_is_back() -> None:
    broker = Replicated()
    broker.cut({0, 1, 2}, {"controller"})
    waiting = broker.client(1).send(create("new"))
    broker.advance(1000)
    broker.heal()
    assert waiting.message.topics[0].error_code == 0
    assert "new" in broker.state.cluster.topics


def test_KB06_another_controller_goes_on_with_what_there_was() -> None:
    broker = Replicated()
    broker.kill(2)
    before = broker.known
    kind = messages.DescribeQuorumRequest
    partition = kind.PartitionData(partition_index=0)
    request = kind(topics=[kind.TopicData(topic_name="__cluster_metadata", partitions=[partition])])

    def leader() -> tuple[int, int]:
        (found,) = broker.client().ask(request).topics[0].partitions
        return found.leader_id, found.leader_epoch

    assert leader() == (3000, 1)
    broker.act(lambda state: state.fail_over_controller())
    assert leader() == (3001, 2)
    assert broker.known == before


def test_observer_that_is_cut_off_has_what_it_had() -> None:
    broker = Replicated()
    broker.cut({2}, {"controller"})
    broker.kill(1)
    kind = messages.DescribeQuorumRequest
    partition = kind.PartitionData(partition_index=0)
    request = kind(topics=[kind.TopicData(topic_name="__cluster_metadata", partitions=[partition])])
    (found,) = broker.client().ask(request).topics[0].partitions
    ends = {each.replica_id: each.log_end_offset for each in found.observers}
    assert ends[0] == found.high_watermark > ends[2]


def test_KE10_preferred_leader_comes_back_by_itself() -> None:
    broker = Replicated()
    broker.move(1)
    broker.advance(300_000)
    assert broker.partition.leader == 0
    broker.move(1)
    broker.act(lambda state: state.fail_over_controller())
    assert broker.partition.leader == 0, "a new controller looks at once"
    broker.stop(0)
    broker.advance(600_000)
    assert broker.partition.leader == 1


def test_KE10_leaders_stay_if_that_is_wanted() -> None:
    broker = Replicated(leader_rebalance=False)
    broker.move(1)
    broker.advance(600_000)
    assert broker.partition.leader == 1


def test_KE11_any_live_broker_is_named_as_the_controller() -> None:
    broker = Replicated()
    broker.kill(1)
    client = broker.client()
    named = [client.ask(messages.MetadataRequest(topics=[])).controller_id for _ in range(6)]
    assert set(named) == {0, 2}


def test_KE12_periodic_check_elects_what_may_be_unclean() -> None:
    broker = Replicated()
    broker.kill(1)
    broker.put(b"lost")
    broker.kill(2)
    broker.kill(0)
    broker.start(1)
    assert broker.partition.leader == NO_LEADER
    change = {"unclean.leader.election.enable": "true"}
    broker.act(lambda state: change_configs(state, TOPIC_RESOURCE, TOPIC, change, ()))
    assert broker.partition.leader == NO_LEADER, "by itself it elects nothing"
    broker.advance(300_000)
    assert broker.partition.leader == 1


def test_KP08_new_leader_that_does_not_serve_yet_names_itself() -> None:
    broker = Replicated()
    for node in broker.state.cluster.nodes:
        node.lead_delay_ms = 500
    broker.act(lambda state: state.cluster.create_topic("new", 1, assignments=[[1, 0]]))
    topic = broker.state.cluster.topics["new"]
    named = messages.MetadataRequest.MetadataRequestTopic(name="new")
    (described,) = broker.client().ask(messages.MetadataRequest(topics=[named]), 12).topics[0].partitions
    assert (described.leader_id, described.error_code) == (1, 0)

    def fetch() -> Any:
        return fetched(broker.client(1).ask(fetch_request(broker, 0, topic="new")))

    early = fetch()
    assert early.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (early.current_leader.leader_id, early.current_leader.leader_epoch) == (1, described.leader_epoch)
    assert topic.partitions[0].leader == 1
    broker.advance(500)
    assert fetch().error_code == 0
