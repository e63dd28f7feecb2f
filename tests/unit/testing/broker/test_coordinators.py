"""Coordinators on the leaders of their partitions: what moves with these, and what waits for followers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.broker_state import BrokerState
from kbatch.testing.broker.cluster import config_of
from kbatch.testing.broker.coordinators import SHARE_TOPIC, TRANSACTIONS_TOPIC
from kbatch.testing.broker.shards import TransactionShard
from kbatch.testing.broker.transactions.transaction_coordinator import OFFSETS_TOPIC
from tests.support.broker_core import GROUP, TOPIC, Answer
from tests.unit.testing.broker.api.test_share_fetch import Member as ShareMember
from tests.unit.testing.broker.api.test_share_fetch import acquired, reads_from_the_start
from tests.unit.testing.broker.group_clients import ClassicMember, Member, committed, find_coordinators
from tests.unit.testing.broker.replication.replicated import Replicated

NONE, MISSING, LOADING, MOVED = (
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
COMMIT_TIMEOUT_MS = 5_000
LOAD_MS = 300
SESSION_TIMEOUT_MS = 9_000
NAME = "transaction"


class Coordinated(Replicated):
    """Three nodes, of which node 0 coordinates everything at first."""

    def __init__(self, **options: Any) -> None:
        super().__init__(internal_topic_partitions=1, group_initial_rebalance_delay_ms=0, **options)
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_TOPIC):
            self.state.coordinators.internal_topic(topic)

    def coordinate(self, node_id: int, topic: str = OFFSETS_TOPIC) -> None:
        self.act(lambda state: state.move_leader(topic, 0, node_id))

    def load_slowly(self) -> None:
        self.state.coordinators.load_ms = LOAD_MS

    def hold_topic(self, topic: str = OFFSETS_TOPIC, is_held: bool = True) -> None:
        self.hold(is_held, topic)

    def require(self, count: int, topic: str = OFFSETS_TOPIC) -> None:
        """Set min.insync.replicas of an internal topic."""
        internal = self.state.cluster.topics[topic]
        config = config_of({**internal.config.overrides, "min.insync.replicas": str(count)})
        self.act(lambda state: state.cluster.change_config(internal, config))

    # Requests of transactions

    def begin(self, node_id: int = 0) -> tuple[int, int]:
        """Begin a transaction with the topic's partition, and return the producer's id and epoch."""
        kind = messages.InitProducerIdRequest
        answer = self.client(node_id).ask(kind(transactional_id=NAME, transaction_timeout_ms=60_000))
        assert answer.error_code == NONE
        identity = answer.producer_id, answer.producer_epoch
        add = messages.AddPartitionsToTxnRequest
        added = add(
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=[add.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        self.client(node_id).ask(added, 3)
        return identity

    def end(self, identity: tuple[int, int], node_id: int = 0) -> Answer:
        request = messages.EndTxnRequest(
            transactional_id=NAME, producer_id=identity[0], producer_epoch=identity[1], committed=True
        )
        return self.client(node_id).send(request, 5)

    def transaction_state(self, node_id: int) -> str:
        request = messages.DescribeTransactionsRequest(transactional_ids=[NAME])
        (found,) = self.client(node_id).ask(request).transaction_states
        return str(found.transaction_state)


@pytest.fixture
def broker() -> Coordinated:
    return Coordinated()


def commit_request(broker: Replicated, member: Member, offset: int) -> Any:
    kind = messages.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = kind.OffsetCommitRequestTopic(topic_id=broker.topic_id(), partitions=[partition])
    return kind(
        group_id=GROUP,
        member_id=member.member_id,
        generation_id_or_member_epoch=member.epoch,
        topics=[topic],
    )


def code_of(answer: Answer) -> ErrorCode:
    """Return the code of an answer to OffsetCommit."""
    return ErrorCode(answer.message.topics[0].partitions[0].error_code)


# Where a coordinator is


def test_KK01_group_goes_on_at_the_next_leader(broker: Coordinated) -> None:
    member = Member(broker, "a")
    assert (member.join(), member.commit(5)) == (NONE, NONE)
    epoch = member.epoch
    broker.load_slowly()
    broker.coordinate(1)
    assert {each.node_id for each in find_coordinators(broker, [GROUP])} == {1}
    assert (member.beat(), member.commit(6), committed(broker)[0]) == (MOVED, MOVED, MOVED)
    member.node_id = 1
    assert (member.beat(), member.commit(6), committed(broker, node_id=1)[0]) == (LOADING, LOADING, LOADING)
    broker.advance(LOAD_MS)
    assert (member.beat(), member.epoch) == (NONE, epoch)
    assert committed(broker, node_id=1) == (NONE, 5)


@pytest.mark.parametrize("key_type", range(2))
def test_topic_of_coordinators_is_made_when_a_node_may_lead_it(key_type: int) -> None:
    broker = Replicated()
    broker.cut({0}, {1}, {2}, {"controller"})
    broker.advance(SESSION_TIMEOUT_MS)
    (found,) = find_coordinators(broker, [GROUP], key_type)
    assert found.error_code == MISSING
    broker.heal()
    (found,) = find_coordinators(broker, [GROUP], key_type)
    assert found.error_code == NONE


def test_KK01_classic_group_keeps_its_generation(broker: Coordinated) -> None:
    member = ClassicMember(broker)
    assert (member.join(), member.sync([0])) == (NONE, NONE)
    generation = member.epoch
    broker.coordinate(1)
    assert member.beat() == MOVED
    member.node_id = 1
    assert (member.beat(), member.epoch) == (NONE, generation)
    assert member.commit(3) == NONE


def test_KK01_lists_are_of_the_groups_that_a_node_coordinates(broker: Coordinated) -> None:
    def listed(node_id: int) -> tuple[int, list[str]]:
        answer = broker.client(node_id).ask(messages.ListGroupsRequest())
        return answer.error_code, [each.group_id for each in answer.groups]

    Member(broker, "a").join()
    assert [listed(node_id) for node_id in range(3)] == [(NONE, [GROUP]), (NONE, []), (NONE, [])]
    broker.load_slowly()
    broker.coordinate(2)
    assert [listed(node_id) for node_id in range(3)] == [(NONE, []), (NONE, []), (LOADING, [])]
    broker.advance(LOAD_MS)
    assert listed(2) == (NONE, [GROUP])


def test_KK04_join_that_waits_is_told_of_the_move(broker: Coordinated) -> None:
    first, second = ClassicMember(broker, is_new=True), ClassicMember(broker, is_new=True)
    assert (first.join(), first.sync([0])) == (NONE, NONE)
    assert second.join() is None, "the first has to join again"
    broker.coordinate(1)
    answer = second.joining.message
    assert (answer.error_code, answer.member_id) == (MOVED, second.member_id)
    assert second.member_id


def test_KK04_sessions_begin_anew(broker: Coordinated) -> None:
    member = Member(broker, "a")
    member.join()
    session_ms = 45_000
    broker.advance(session_ms - 1)
    broker.coordinate(1)
    member.node_id = 1
    broker.advance(session_ms - 1)
    assert member.beat() == NONE
    broker.advance(session_ms)
    assert member.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_KK04_dead_coordinator_is_named_until_its_session_ends(broker: Coordinated) -> None:
    member = Member(broker, "a")
    assert (member.join(), member.commit(5)) == (NONE, NONE)
    broker.kill(0, at_once=False)
    assert find_coordinators(broker, [GROUP], node_id=1)[0].node_id == 0
    broker.advance(9_000)
    found = find_coordinators(broker, [GROUP], node_id=1)[0].node_id
    assert found in (1, 2)
    member.node_id = found
    assert member.beat() == NONE
    assert committed(broker, node_id=found) == (NONE, 5)


def test_coordinator_that_is_cut_off_answers_for_nothing_new(broker: Coordinated) -> None:
    """It believes that it leads, and stores what no other node gets."""
    member = Member(broker, "a")
    assert (member.join(), member.commit(5)) == (NONE, NONE)
    broker.cut({0}, {1, 2, "controller"})
    broker.advance(9_000)
    zombie = broker.client(0).send(commit_request(broker, member, 6))
    assert not zombie.is_there
    member.node_id = find_coordinators(broker, [GROUP], node_id=1)[0].node_id
    assert (member.beat(), member.commit(7)) == (NONE, NONE)
    broker.heal()
    assert code_of(zombie) == MOVED
    broker.coordinate(0)
    assert committed(broker) == (NONE, 7)


# What waits to be replicated


def test_KK02_commit_waits_for_followers(broker: Coordinated) -> None:
    member = Member(broker, "a")
    assert (member.join(), member.commit(5)) == (NONE, NONE)
    broker.hold_topic()
    waiting = broker.client().send(commit_request(broker, member, 7))
    assert not waiting.is_there
    assert committed(broker) == (NONE, 5), "what is read is replicated"
    broker.hold_topic(is_held=False)
    assert code_of(waiting) == NONE
    assert committed(broker) == (NONE, 7)


def test_KK02_refused_commit_may_have_been_done(broker: Coordinated) -> None:
    member = Member(broker, "a")
    assert (member.join(), member.commit(5)) == (NONE, NONE)
    broker.hold_topic()
    waiting = broker.client().send(commit_request(broker, member, 7))
    broker.advance(COMMIT_TIMEOUT_MS - 1)
    assert not waiting.is_there
    broker.advance(1)
    assert code_of(waiting) == MISSING
    broker.hold_topic(is_held=False)
    assert committed(broker) == (NONE, 7)


def test_KK02_commit_that_is_cut_never_was(broker: Coordinated) -> None:
    member = Member(broker, "a")
    assert (member.join(), member.commit(5)) == (NONE, NONE)
    broker.hold_topic()
    waiting = broker.client().send(commit_request(broker, member, 7))
    broker.coordinate(1)
    assert code_of(waiting) == MOVED
    broker.hold_topic(is_held=False)
    broker.coordinate(0)
    assert committed(broker) == (NONE, 5)


def test_KK02_other_answers_wait_for_what_was_stored_before(broker: Coordinated) -> None:
    """A heartbeat stores nothing, and still says what must be replicated (CoordinatorRuntime)."""
    member = Member(broker, "a")
    member.join()
    broker.hold_topic()
    commit = broker.client().send(commit_request(broker, member, 7))
    beat = broker.client().send(
        messages.ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member.member_id, member_epoch=member.epoch
        )
    )
    assert not commit.is_there
    assert not beat.is_there
    broker.hold_topic(is_held=False)
    assert beat.message.error_code == NONE


def test_KK02_members_of_groups_wait_while_too_few_are_in_sync(broker: Coordinated) -> None:
    for node_id in (1, 2):
        broker.kill(node_id)
    for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        broker.require(2, topic)
    share = messages.ShareGroupHeartbeatRequest(
        group_id="shared", member_id="s", subscribed_topic_names=[TOPIC]
    )
    join = messages.ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="a",
        rebalance_timeout_ms=60_000,
        topic_partitions=[],
        subscribed_topic_names=[TOPIC],
    )
    waiting = [broker.client().send(each) for each in (share, join)]
    init = messages.InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
    answer = broker.client().ask(init)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (MISSING, -1, -1)
    classic = messages.JoinGroupRequest(
        group_id="classic",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0")],
    )
    assert broker.client().ask(classic, 3).error_code == NONE, "it stores nothing to wait for"
    broker.advance(COMMIT_TIMEOUT_MS)
    assert [each.message.error_code for each in waiting] == [MISSING, MISSING]


def test_KK02_assignment_is_given_when_it_is_replicated(broker: Coordinated) -> None:
    member = ClassicMember(broker)
    assert member.join() == NONE
    broker.hold_topic()
    waiting = member.send_sync({member.member_id: b"mine"})
    assert not waiting.is_there
    broker.hold_topic(is_held=False)
    assert (waiting.message.error_code, bytes(waiting.message.assignment)) == (NONE, b"mine")
    broker.hold_topic()
    assert member.join() == NONE
    waiting = member.send_sync({member.member_id: b"other"})
    broker.advance(COMMIT_TIMEOUT_MS)
    assert waiting.message.error_code == MISSING
    assert member.beat() == ErrorCode.REBALANCE_IN_PROGRESS


# Transactions


def test_KK03_transaction_moves_with_its_partition(broker: Coordinated) -> None:
    identity = broker.begin()
    broker.load_slowly()
    broker.coordinate(1, TRANSACTIONS_TOPIC)
    assert broker.end(identity).message.error_code == MOVED
    assert broker.end(identity, 1).message.error_code == LOADING
    broker.advance(LOAD_MS)
    assert broker.end(identity, 1).message.error_code == NONE
    assert broker.transaction_state(1) == "CompleteCommit"


def test_KK03_decision_that_is_cut_never_was(broker: Coordinated) -> None:
    identity = broker.begin()
    broker.hold_topic(TRANSACTIONS_TOPIC)
    waiting = broker.end(identity)
    assert not waiting.is_there
    assert not any(batch.is_control for batch in broker.log(0).batches()), "nothing is decided yet"
    assert broker.end(identity).message.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    broker.coordinate(1, TRANSACTIONS_TOPIC)
    assert waiting.message.error_code == MOVED
    broker.hold_topic(TRANSACTIONS_TOPIC, is_held=False)
    assert broker.transaction_state(1) == "Ongoing"
    assert broker.end(identity, 1).message.error_code == NONE


def test_KK03_decision_that_is_replicated_is_completed_by_the_next_coordinator(broker: Coordinated) -> None:
    identity = broker.begin()
    broker.hold()  # the marker waits
    assert broker.end(identity).message.error_code == NONE
    assert broker.transaction_state(0) == "PrepareCommit"
    broker.kill(0)
    found = find_coordinators(broker, [NAME], 1, node_id=1)[0].node_id
    assert broker.end(identity, found).message.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    broker.hold(False)
    broker.advance(1_000)
    assert broker.transaction_state(found) == "CompleteCommit"
    assert broker.end(identity, found).message.error_code == NONE, "a retry"


def test_KK03_next_coordinator_waits_until_what_it_has_is_replicated(broker: Coordinated) -> None:
    """It would complete what the leader after it may not have. Kafka's does."""
    identity = broker.begin()
    broker.cut({0, 1, "controller"}, {2})
    waiting = broker.end(identity)
    assert not waiting.is_there
    broker.coordinate(1, TRANSACTIONS_TOPIC)
    assert waiting.message.error_code == MOVED
    assert broker.end(identity, 1).message.error_code == LOADING
    assert not any(batch.is_control for batch in broker.log(0).batches()), "nothing is decided yet"
    broker.heal()
    broker.advance(1_000)
    assert broker.transaction_state(1) == "CompleteCommit"


def test_KK03_timeout_runs_at_the_next_coordinator(broker: Coordinated) -> None:
    broker.begin()
    broker.coordinate(1, TRANSACTIONS_TOPIC)
    broker.advance(60_000)
    assert broker.transaction_state(1) == "CompleteAbort"


def test_KK03_timeout_runs_though_no_client_asks_the_next_coordinator(broker: Coordinated) -> None:
    broker.begin()
    broker.kill(0, at_once=False)
    broker.advance(9_000)
    found = broker.state.cluster.partition(TRANSACTIONS_TOPIC, 0).leader
    assert found in (1, 2)
    broker.advance(60_000)
    assert [shard.log.node_id for shard in broker.state.coordinators.loaded(TransactionShard)] == [found]
    assert broker.transaction_state(found) == "CompleteAbort"


def test_KK03_deposed_coordinator_completes_nothing(broker: Coordinated) -> None:
    """A marker is replicated in the step in which it hears that another node coordinates."""
    identity = broker.begin()
    broker.hold()
    assert broker.end(identity).message.error_code == NONE

    def end_both(state: BrokerState) -> None:
        state.replication.hold(state.cluster.partition(TOPIC, 0), False, broker.now_ms)
        state.cluster.move_leader(TRANSACTIONS_TOPIC, 0, 1)

    broker.act(end_both)
    broker.advance(1_000)
    assert broker.transaction_state(1) == "CompleteCommit"


# Share groups


def share_member(broker: Coordinated) -> ShareMember:
    """Return a member with a record acquired."""
    reads_from_the_start(broker)
    broker.put(b"1", b"2")
    member = ShareMember(broker)
    member.beat()
    assert acquired(member.fetch()) == [(0, 1, 1)]
    return member


def test_KK05_KG23_move_of_the_share_coordinator_is_not_noticed(broker: Coordinated) -> None:
    member = share_member(broker)
    broker.coordinate(1, SHARE_TOPIC)
    assert member.acknowledge(0, 0) == NONE
    broker.coordinate(2, SHARE_TOPIC)
    broker.move(1)
    again = ShareMember(broker, node_id=1)
    assert acquired(again.fetch()) == [(1, 1, 1)], "the first is done; acquisitions are not stored"


def test_KK05_KG23_group_goes_on_at_the_next_leader(broker: Coordinated) -> None:
    member = share_member(broker)
    member.beat()  # it is assigned what it fetches
    epoch = member.epoch
    broker.load_slowly()
    broker.coordinate(1)
    assert member.beat().error_code == MOVED
    member.client = broker.client(1)
    assert member.beat().error_code == LOADING
    broker.advance(LOAD_MS)
    assert (member.beat().error_code, member.epoch) == (NONE, epoch)


def test_KG24_acknowledgement_waits_to_be_replicated(broker: Coordinated) -> None:
    """Kafka 4.3.1 never answers one that is not; here it is refused in time, and done all the same."""
    member = share_member(broker)
    broker.hold_topic(SHARE_TOPIC)
    waiting = member.send((0, 0, 1))
    assert not waiting.is_there
    broker.put(b"3")
    broker.advance(COMMIT_TIMEOUT_MS)
    (topic,) = waiting.message.responses
    assert topic.partitions[0].acknowledge_error_code == MISSING
    assert acquired(waiting.message) == [(2, 2, 1)]
    broker.hold_topic(SHARE_TOPIC, is_held=False)
    broker.move(1)
    assert acquired(ShareMember(broker, node_id=1).fetch()) == [(1, 2, 1)]


# Anything


def random_step(broker: Coordinated, rng: random.Random) -> None:
    node_id = rng.randrange(3)
    running = [node.node_id for node in broker.state.cluster.running_nodes]
    registration = broker.state.cluster.partition(OFFSETS_TOPIC, 0).registration
    step = rng.randrange(6)
    if step == 0 and len(running) > 1:
        broker.kill(node_id, at_once=rng.random() < 0.5)
    elif step == 1 and node_id not in running:
        broker.start(node_id)
    elif step == 2 and node_id in registration.isr and node_id in running:
        broker.coordinate(node_id)
    elif step == 3:
        broker.hold_topic(is_held=rng.random() < 0.5)
    elif step == 4:
        broker.heal() if rng.random() < 0.5 else broker.cut({node_id}, {"controller"})
    else:
        broker.advance(rng.choice((100, 3_000, 10_000)))


@pytest.mark.parametrize("seed", range(20))
def test_acknowledged_commits_outlive_any_coordinator(seed: int) -> None:
    rng, broker = random.Random(seed), Coordinated()
    asked: list[tuple[int, Answer]] = []
    standalone = Member(broker, "")
    standalone.epoch = -1
    for offset in range(1, 60):
        random_step(broker, rng)
        node_id = rng.choice([node.node_id for node in broker.state.cluster.running_nodes])
        asked.append((offset, broker.client(node_id).send(commit_request(broker, standalone, offset))))
    broker.heal()
    broker.hold_topic(is_held=False)
    for node_id in range(3):
        broker.start(node_id)
    broker.advance(60_000)
    acknowledged = [offset for offset, answer in asked if code_of(answer) == NONE]
    sent = [offset for offset, answer in asked if code_of(answer) in (NONE, MISSING, MOVED)]
    leader = find_coordinators(broker, [GROUP])[0].node_id
    code, offset = committed(broker, node_id=leader)
    assert acknowledged
    assert code == NONE
    assert offset in sent
    assert offset >= acknowledged[-1]
