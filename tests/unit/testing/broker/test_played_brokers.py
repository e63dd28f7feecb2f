"""Brokers that a test plays: registrations, heartbeats, and what leaders propose, by requests."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing import Broker
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from tests.support.broker_core import TOPIC, fetched
from tests.support.broker_wire import Wire
from tests.unit.testing.broker.replication.replicated import LEADER, Replicated

SESSION_MS = 6_000
ALL_RECORDS = 1 << 40  # the offset of a broker that knows all that the controller has recorded
RUN, OTHER_RUN = b"r" * 16, b"o" * 16


class Played(Replicated):
    """A cluster of which a test plays all nodes but 0."""

    def __init__(self, nodes: int = 3, **options: Any) -> None:
        super().__init__(nodes, session_timeout_ms=SESSION_MS, topics=(), **options)
        for node in range(1, nodes):
            self.kill(node)
        self.epochs: dict[int, int] = {}

    def register(self, node: int, *, run: bytes = RUN, previous: int = -1, **fields: Any) -> Any:
        kind = messages.BrokerRegistrationRequest
        request = kind(
            broker_id=node,
            cluster_id=fields.pop("cluster_id", self.state.cluster.cluster_id),
            incarnation_id=run,
            listeners=[kind.Listener(name="PLAINTEXT", host=f"played-{node}", port=9000 + node)],
            previous_broker_epoch=previous,
            **fields,
        )
        answer = self.client().ask(request)
        if answer.error_code == ErrorCode.NONE:
            self.epochs[node] = answer.broker_epoch
        return answer

    def beat(self, node: int, *, epoch: int | None = None, offset: int = ALL_RECORDS, **wants: bool) -> Any:
        request = messages.BrokerHeartbeatRequest(
            broker_id=node,
            broker_epoch=self.epochs.get(node, 0) if epoch is None else epoch,
            current_metadata_offset=offset,
            want_fence=wants.get("fence", False),
            want_shut_down=wants.get("shut_down", False),
        )
        return self.client().ask(request)

    def play(self, *nodes: int) -> None:
        """Have brokers start."""
        for node in nodes:
            assert self.register(node).error_code == ErrorCode.NONE
            assert not self.beat(node).is_fenced

    def make(self, *replicas: int, **configs: str) -> None:
        create = self.state.cluster.create_topic
        self.act(lambda state: create(TOPIC, 1, assignments=[replicas], configs=configs))

    def propose(self, leader: int, *isr: int, version: int | None = None, **fields: Any) -> Any:
        """Return the answer for the partition."""
        kind = messages.AlterPartitionRequest
        known = self.known
        epochs = {node: self.epochs.get(node, 0) for node in isr} | fields.pop("epochs", {})
        partition = kind.PartitionData(
            partition_index=0,
            **{"leader_epoch": known.leader_epoch, "partition_epoch": known.partition_epoch, **fields},
        )
        if version == 2:
            partition.new_isr = list(isr)
        else:
            partition.new_isr_with_epochs = [
                kind.BrokerState(broker_id=node, broker_epoch=epoch) for node, epoch in epochs.items()
            ]
        topic = kind.TopicData(topic_id=self.topic_id(), partitions=[partition])
        request = kind(broker_id=leader, broker_epoch=self.epochs.get(leader, 0), topics=[topic])
        answer = self.client().ask(request, version)
        assert answer.error_code == ErrorCode.NONE
        return answer.topics[0].partitions[0]


@pytest.fixture
def played() -> Played:
    broker = Played(4)
    broker.play(1, 2, 3)
    return broker


# Registrations and heartbeats


def test_KB01_another_run_may_not_register_within_the_session() -> None:
    broker = Played()
    first = broker.register(1).broker_epoch
    assert broker.register(1, run=OTHER_RUN).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    broker.beat(1)
    broker.advance(SESSION_MS - 1)
    assert broker.register(1, run=OTHER_RUN).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    broker.advance(1)
    assert broker.register(1, run=OTHER_RUN).broker_epoch > first
    assert broker.register(0).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION, "it runs"


def test_KB01_broker_is_fenced_until_it_has_seen_its_registration() -> None:
    broker = Played()
    broker.register(1)
    blind = broker.beat(1, offset=0)
    assert (blind.is_fenced, blind.is_caught_up) == (True, False)
    seen = broker.beat(1)
    assert (seen.is_fenced, seen.is_caught_up) == (False, True)
    found = broker.client().ask(messages.MetadataRequest(topics=[])).brokers
    assert [(each.node_id, each.host, each.port) for each in found] == [
        (0, "node-0", 9092),
        (1, "played-1", 9001),
    ]


def test_KB02_heartbeat_of_an_earlier_start_is_stale(played: Played) -> None:
    played.advance(SESSION_MS)
    played.register(1, run=OTHER_RUN)
    assert played.beat(1, epoch=played.epochs[1] - 1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert played.beat(1).error_code == ErrorCode.NONE
    assert played.beat(9).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert played.beat(0).error_code == ErrorCode.STALE_BROKER_EPOCH, "it runs here"


def test_KB04_played_broker_that_is_silent_is_fenced(played: Played) -> None:
    played.make(1, 2)
    played.advance(SESSION_MS - 1)
    played.beat(2)
    assert played.partition.leader == 1
    played.advance(1)
    assert (played.partition.leader, played.known.isr) == (2, (2,))
    assert not played.beat(1).is_fenced, "the next heartbeat unfences"


def test_KB05_leader_that_wants_to_end_hands_over_first(played: Played) -> None:
    played.make(1, 0)
    played.beat(2, offset=0)  # node 2 lags behind
    first = played.beat(1, shut_down=True)
    assert (first.should_shut_down, first.is_fenced) == (False, False)
    assert (played.partition.leader, played.known.isr) == (0, (0,))
    assert not played.beat(1, shut_down=True).should_shut_down, "node 2 has not seen it"
    played.beat(2)
    last = played.beat(1, shut_down=True)
    assert (last.should_shut_down, last.is_fenced) == (True, True)
    assert played.register(1, run=OTHER_RUN).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    played.advance(SESSION_MS)
    assert played.register(1, run=OTHER_RUN, previous=played.epochs[1]).error_code == ErrorCode.NONE


def test_KB05_broker_that_leads_nothing_ends_at_once(played: Played) -> None:
    played.make(0, 1)
    told = played.beat(1, shut_down=True)
    assert (told.should_shut_down, told.is_fenced) == (True, True)
    assert played.known.isr == (0,)


def test_KE07_clean_end_is_known_by_the_epoch_of_before(played: Played) -> None:
    played.make(1, 2, **{"min.insync.replicas": "2"})
    for node in (1, 2):
        played.beat(node, fence=True)
    assert (played.partition.leader, played.known.elr) == (NO_LEADER, (1, 2))
    played.advance(SESSION_MS)
    played.register(1, run=OTHER_RUN, previous=played.epochs[1])
    assert played.known.elr == (1, 2)
    played.register(2, run=OTHER_RUN, previous=played.epochs[2] - 1)
    assert played.known.elr == (1,)


def test_registration_for_another_cluster_or_without_a_listener_is_refused(played: Played) -> None:
    assert played.register(1, cluster_id="another").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert played.register(9).error_code == ErrorCode.INVALID_REQUEST


def test_node_that_starts_here_again_is_no_longer_played(played: Played) -> None:
    played.start(1)
    assert played.beat(1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert played.register(1, run=OTHER_RUN).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


# Followers and leaders


def test_KI02_played_follower_joins_by_fetching(played: Played) -> None:
    played.make(0, 1)
    played.beat(1, fence=True)
    played.put(b"a", acks=LEADER)
    played.beat(1)
    assert played.known.isr == (0,)
    request = played.follower_request(1, 1, 0, broker_epoch=played.epochs[1])
    assert fetched(played.client().ask(request)).error_code == ErrorCode.NONE
    assert played.known.isr == (0, 1)
    assert played.send(b"b").reply.buffers is None, "it waits for the played one"


def test_KI04_leader_registers_in_sync_replicas(played: Played) -> None:
    played.make(1, 0, 2)
    answer = played.propose(1, 1, 2)
    assert (answer.error_code, answer.isr, answer.leader_id) == (0, [1, 2], 1)
    assert answer.partition_epoch == played.known.partition_epoch
    assert played.propose(1, 1, 0, 2, version=2).isr == [1, 0, 2]


def test_KI04_proposals_are_refused(played: Played) -> None:
    played.make(1, 0, 2)
    epoch = played.known.leader_epoch

    def code(*isr: int, leader: int = 1, **fields: Any) -> int:
        return int(played.propose(leader, *isr, **fields).error_code)

    assert code(1, 2, leader_epoch=epoch - 1) == ErrorCode.FENCED_LEADER_EPOCH
    assert code(1, 2, leader_epoch=epoch + 1) == ErrorCode.NOT_CONTROLLER
    assert code(1, 2, partition_epoch=99) == ErrorCode.NOT_CONTROLLER
    assert code(1, 2, leader=2) == ErrorCode.INVALID_REQUEST
    assert code(2) == ErrorCode.INVALID_REQUEST
    assert code(1, 3) == ErrorCode.INVALID_REQUEST
    assert code(1, 2, 2, version=2) == ErrorCode.INVALID_REQUEST
    assert code(1, 2, epochs={2: 77}) == ErrorCode.INELIGIBLE_REPLICA
    played.beat(2, fence=True)
    assert code(1, 2) == ErrorCode.INELIGIBLE_REPLICA
    played.propose(1, 1)
    assert code(1, 0, partition_epoch=played.known.partition_epoch - 1) == ErrorCode.INVALID_UPDATE_VERSION
    assert played.known.isr == (1,)


def test_KB08_removed_leader_that_ends_the_move_is_told(played: Played) -> None:
    played.make(1, 0)
    played.reassign(2, 0)
    assert played.propose(1, 1, 0, 2).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert (played.known.replicas, played.partition.leader) == ((2, 0), 2)


def test_unknown_topics_partitions_and_epochs_are_refused(played: Played) -> None:
    played.make(1, 0)
    kind = messages.AlterPartitionRequest
    partition = kind.PartitionData(partition_index=7)
    ids = [played.topic_id(), bytes(16)]
    topics = [kind.TopicData(topic_id=topic_id, partitions=[partition]) for topic_id in ids]
    answer = played.client().ask(kind(broker_id=1, broker_epoch=played.epochs[1], topics=topics))
    assert [each.topic_id for each in answer.topics] == ids
    assert [each.partitions[0].error_code for each in answer.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    stale = played.client().ask(kind(broker_id=1, broker_epoch=99, topics=topics))
    assert (stale.error_code, stale.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])


def test_api_versions_do_not_name_what_brokers_ask(played: Played) -> None:
    answer = played.client().ask(messages.ApiVersionsRequest(), 0)
    assert not {56, 62, 63} & {each.api_key for each in answer.api_keys}


def test_node_that_was_played_listens_on_its_own_port_again() -> None:
    with Broker(nodes=2) as broker:
        own = broker.bootstrap_servers.split(",")[1]
        broker.kill_node(1)
        with Wire(broker.bootstrap_servers) as wire:
            cluster_id = wire.ask(messages.DescribeClusterRequest()).cluster_id
            kind = messages.BrokerRegistrationRequest
            listener = kind.Listener(name="PLAINTEXT", host="played", port=9)
            request = kind(broker_id=1, cluster_id=cluster_id, incarnation_id=RUN, listeners=[listener])
            epoch = wire.ask(request).broker_epoch
            beat = messages.BrokerHeartbeatRequest(
                broker_id=1, broker_epoch=epoch, current_metadata_offset=ALL_RECORDS
            )
            assert not wire.ask(beat).is_fenced
            broker.start_node(1)
            found = wire.ask(messages.DescribeClusterRequest()).brokers
            assert f"{found[1].host}:{found[1].port}" == own
        with Wire(broker.bootstrap_servers, 1) as wire:
            assert wire.ask(messages.ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
