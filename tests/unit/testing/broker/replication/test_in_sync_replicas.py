"""In-sync replicas: who leaves them, who joins them, and what the controller refuses."""

from __future__ import annotations

import pytest

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.controller import Proposal
from kbatch.testing.broker.controller.partition_change import NO_LEADER, Election
from tests.support.broker_core import TOPIC
from tests.unit.testing.broker.replication.replicated import LEADER, Replicated


def test_KI01_follower_that_lags_leaves() -> None:
    broker = Replicated(replica_lag_ms=4000)
    broker.hold()
    broker.put(b"a", acks=LEADER)
    broker.fetch_as(2, 1)
    broker.advance(4000)
    assert broker.known.isr == (0, 1, 2), "looked at every half of the time, and still within it"
    broker.advance(2000)
    assert broker.known.isr == (0, 2)
    assert broker.ends()[0] == (1, 1)


def test_KI01_silence_counts_from_its_beginning() -> None:
    """A follower that was idle for hours has all until it is cut off."""
    broker = Replicated(replica_lag_ms=4000)
    broker.put(b"a")
    broker.advance(3_600_000)
    broker.hold()
    broker.advance(1000)
    broker.put(b"b", acks=LEADER)
    broker.advance(2000)
    assert broker.known.isr == (0, 1, 2)
    broker.advance(4000)
    assert broker.known.isr == (0,)


def test_KI02_KI07_follower_joins_by_a_fetch_up_to_the_high_watermark() -> None:
    broker = Replicated(nodes=2, min_insync_replicas=2)
    broker.hold()
    broker.stop(1)
    broker.put(b"a", b"b", acks=LEADER)
    broker.start(1)
    assert broker.known.isr == (0,)
    broker.fetch_as(1, 0)
    assert broker.known.isr == (0, 1), "it lacks two records that nobody was told of"
    assert broker.ends()[0] == (2, 0)


def test_KI02_follower_below_the_start_of_the_term_does_not_join() -> None:
    broker = Replicated(nodes=3)
    broker.put(b"a")
    broker.hold()
    broker.stop(2)
    broker.put(b"b", acks=LEADER)
    broker.fetch_as(1, 2, 0)
    broker.log(1).append_as_follower(broker.log(0).read_as_follower(1, 1 << 20)[0], 0, last_epoch=0)
    broker.move(1)
    broker.start(2)
    broker.fetch_as(2, 1, 0)
    assert broker.known.isr == (0, 1)
    broker.fetch_as(2, 2, 0)
    assert broker.known.isr == (0, 1, 2)


PROPOSALS = {
    "older leader epoch": (Proposal(1, 0, 1, (1,)), ErrorCode.FENCED_LEADER_EPOCH),
    "newer leader epoch": (Proposal(1, 2, 1, (1,)), ErrorCode.NOT_CONTROLLER),
    "newer partition epoch": (Proposal(1, 1, 2, (1,)), ErrorCode.NOT_CONTROLLER),
    "not the leader": (Proposal(0, 1, 1, (0,)), ErrorCode.INVALID_REQUEST),
    "without the leader": (Proposal(1, 1, 1, (0,)), ErrorCode.INVALID_REQUEST),
    "stranger": (Proposal(1, 1, 1, (1, 9)), ErrorCode.INVALID_REQUEST),
    "older partition epoch": (Proposal(1, 1, 0, (1,)), ErrorCode.INVALID_UPDATE_VERSION),
}


@pytest.mark.parametrize("name", PROPOSALS)
def test_KI04_controller_refuses(name: str) -> None:
    broker = Replicated()
    broker.move(1)
    proposal, code = PROPOSALS[name]
    with pytest.raises(BrokerError) as refused:
        broker.state.cluster.controller.alter_partition(broker.partition, proposal)
    assert refused.value.code == code
    assert broker.known.isr == (0, 1, 2)


def test_KI04_fenced_broker_is_refused() -> None:
    broker = Replicated()
    broker.kill(2)
    known = broker.known
    with pytest.raises(BrokerError) as refused:
        broker.state.cluster.controller.alter_partition(
            broker.partition, Proposal(0, known.leader_epoch, known.partition_epoch, (0, 1, 2))
        )
    assert refused.value.code == ErrorCode.INELIGIBLE_REPLICA


def test_KI03_KI05_proposal_stays_until_the_controller_is_heard() -> None:
    broker = Replicated(replica_lag_ms=4000, session_timeout_ms=60_000)
    broker.cut({0}, {"controller"})
    broker.hold()
    broker.put(b"a", acks=LEADER)
    broker.advance(6000)
    leadership = broker.partition.copies[0].leadership
    assert (leadership.proposed, broker.known.isr) == ((0,), (0, 1, 2))
    assert broker.ends()[0] == (1, 0), "a smaller set counts when it is registered only"
    broker.heal()
    broker.advance(2000)
    assert (broker.known.isr, broker.ends()[0]) == ((0,), (1, 1))


def test_KE06_elections_by_request() -> None:
    broker = Replicated()
    elect = broker.state.cluster.controller.elect

    def code(election: Election) -> ErrorCode:
        with pytest.raises(BrokerError) as refused:
            elect(broker.partition, election)
        return refused.value.code

    assert code(Election.PREFERRED) == code(Election.UNCLEAN) == ErrorCode.ELECTION_NOT_NEEDED
    broker.stop(0)
    assert code(Election.PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    broker.start(0)
    epoch = broker.partition.leader_epoch
    broker.act(lambda state: state.elect_leader(TOPIC, 0))
    assert (broker.partition.leader, broker.partition.leader_epoch) == (0, epoch + 1)


def test_KE05_unclean_election_by_request_loses_what_it_lacks() -> None:
    broker = Replicated(nodes=2)
    broker.put(b"a")
    broker.stop(1)
    broker.put(b"b")
    broker.kill(0)
    broker.start(1)
    assert broker.partition.leader == NO_LEADER
    broker.act(lambda state: state.elect_leader(TOPIC, 0, unclean=True))
    assert (broker.partition.leader, broker.known.isr) == (1, (1,))
    broker.put(b"c")
    broker.start(0)
    assert [broker.values_at(node) for node in range(2)] == [[b"a", b"c"]] * 2


def test_KE09_change_of_the_minimum_empties_the_eligible_leaders() -> None:
    broker = Replicated(min_insync_replicas=3)
    broker.stop(1)
    broker.stop(2)
    assert broker.known.elr == (1, 2)
    topic = broker.state.cluster.topics[TOPIC]
    change = broker.state.cluster.change_config
    change(topic, topic.config.of({"min.insync.replicas": "3"}))
    assert broker.known.elr == (1, 2), "the same value changes nothing"
    change(topic, topic.config.of({"min.insync.replicas": "2"}))
    assert broker.known.elr == ()


def test_KE12_unclean_election_waits_until_a_broker_comes() -> None:
    broker = Replicated(nodes=3)
    broker.stop(1)
    broker.kill(0)
    broker.kill(2)
    broker.start(1)
    assert broker.partition.leader == NO_LEADER
    topic = broker.state.cluster.topics[TOPIC]
    change = broker.state.cluster.change_config
    change(topic, topic.config.of({"unclean.leader.election.enable": "true"}))
    assert broker.partition.leader == NO_LEADER
    broker.start(0)
    assert broker.partition.leader == 0, "the first of the assignment that is there"
