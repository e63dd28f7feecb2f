"""A replicated partition through kills, pauses, cuts and elections: nothing that was acknowledged is lost.

Names of the checks are those of the TLA+ specification of KIP-966 (kafka_replication_kip_966.tla).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kbatch.testing.broker.controller import partition_change
from kbatch.testing.broker.controller.controller import Controller
from kbatch.testing.broker.controller.partition_change import NO_LEADER, Election, Registration
from kbatch.testing.broker.logs.partition import Partition
from kbatch.testing.broker.logs.producer_state import ProducerStateTable
from kbatch.testing.broker.replication import replica
from kbatch.testing.broker.replication.leadership import Leadership
from kbatch.testing.broker.replication.replica import Replica
from kbatch.testing.broker.replication.replication import Replication
from tests.support.broker_core import Answer, batch, produce_request, produced
from tests.unit.testing.broker.replication.replicated import ALL, LEADER, Replicated

NODES = 3
STEPS = (
    *("put_all", "put_leader", "put_idempotent") * 3,
    *("stop", "kill", "kill_late", "start", "start", "pause", "resume", "resume"),
    *("cut_node", "cut_controller", "heal", "heal", "hold", "release", "release"),
    *("fetch",) * 6,
    *("advance", "advance", "advance_far", "elect", "delete"),
)
STEP = st.tuples(st.sampled_from(STEPS), st.integers(0, NODES - 1))


@pytest.fixture(autouse=True, scope="module")
def small_fetches() -> Iterator[None]:
    """Let each fetch have one batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "FETCH_BYTES", 1)
        yield


class World:
    """A partition, what its producers were told, and what the checks saw before."""

    def __init__(self, min_isr: int, has_elr: bool) -> None:
        self.broker = Replicated(
            NODES, min_insync_replicas=min_isr, eligible_leader_replicas=has_elr, replica_lag_ms=4000
        )
        self.number = 0
        self.sequence = 0
        self.waiting: list[tuple[bytes, Answer]] = []
        self.acknowledged: set[bytes] = set()
        self.epochs = (0, 0)
        self.start_offset = 0
        self.read: dict[int, bytes] = {}  # batches, by offset

    @property
    def nodes(self) -> Any:
        return self.broker.state.cluster.nodes

    def step(self, name: str, node: int) -> None:
        getattr(self, name)(node)
        self.look()
        self.check()

    # What happens

    def _put(self, node: int, acks: int, **header: int) -> None:
        if self.nodes[node].is_running and not self.nodes[node].is_paused:
            self.number += 1
            value = b"%d" % self.number
            request = produce_request(self.broker, batch(value, **header), acks=acks, timeout_ms=2000)
            answer = self.broker.client(node).send(request)
            if acks == ALL:
                self.waiting.append((value, answer))

    def put_all(self, node: int) -> None:
        self._put(node, ALL)

    def put_leader(self, node: int) -> None:
        self._put(node, LEADER)

    def put_idempotent(self, node: int) -> None:
        end = self.broker.log(node).log_end_offset
        self._put(node, ALL, producer_id=7, producer_epoch=0, base_sequence=self.sequence)
        self.sequence += self.broker.log(node).log_end_offset > end

    def stop(self, node: int) -> None:
        if self.nodes[node].is_running and not self.nodes[node].is_paused:
            self.broker.stop(node)

    def kill(self, node: int) -> None:
        self.broker.kill(node)

    def kill_late(self, node: int) -> None:
        self.broker.kill(node, at_once=False)

    def start(self, node: int) -> None:
        self.broker.start(node)

    def pause(self, node: int) -> None:
        if self.nodes[node].is_running:
            self.broker.act(lambda state: state.outages.pause(node, self.broker.now_ms))

    def resume(self, node: int) -> None:
        self.broker.act(lambda state: state.outages.resume(node))
        self.broker.act(lambda state: state.outages.catch_up(self.broker.now_ms))

    def cut_node(self, node: int) -> None:
        self.broker.cut({node}, {each for each in range(NODES) if each != node})

    def cut_controller(self, node: int) -> None:
        self.broker.cut({node}, {"controller"})

    def heal(self, node: int) -> None:
        self.broker.heal()

    def hold(self, node: int) -> None:
        self.broker.hold()

    def release(self, node: int) -> None:
        self.broker.hold(False)

    def fetch(self, node: int) -> None:
        """Let a held follower fetch one batch."""
        partition, now_ms = self.broker.partition, self.broker.now_ms
        self.broker.act(lambda state: state.replication.fetch_once(partition, node, now_ms))

    def advance(self, node: int) -> None:
        self.broker.advance(500)

    def advance_far(self, node: int) -> None:
        self.broker.advance(9000)

    def elect(self, node: int) -> None:
        known = self.broker.known
        is_active = self.broker.state.cluster.controller.is_active(node)
        if node in known.isr and self.nodes[node].is_running and is_active:
            self.broker.move(node)

    def delete(self, node: int) -> None:
        """Delete what is below the leader's high watermark."""
        leader = self.broker.partition.leader
        if leader != NO_LEADER and self.broker.partition.is_led_by(leader):
            log = self.broker.log(leader)
            self.start_offset = max(self.start_offset, log.high_watermark)
            self.broker.act(lambda state: log.delete_records_before(log.high_watermark))

    # What must hold

    def look(self) -> None:
        for value, answer in self.waiting:
            if answer.message is not None and produced(answer.message).error_code == 0:
                self.acknowledged.add(value)
        self.waiting = [each for each in self.waiting if not each[1].is_there]

    def check(self) -> None:
        self.check_registration()
        for node in range(NODES):
            self.check_log(node)
        self.check_logs_match()
        self.check_leader_is_complete()

    def check_registration(self) -> None:
        known = self.broker.known
        assert (known.leader_epoch, known.partition_epoch) >= self.epochs, "MonotonicEpoch"
        self.epochs = (known.leader_epoch, known.partition_epoch)
        assert known.leader == NO_LEADER or known.leader in known.isr, "LeaderInIsr"
        assert not set(known.isr) & set(known.elr), "ValidControllerIsrAndElr"
        copy = self.broker.partition.copies.get(known.leader)
        if copy is not None and copy.leadership is not None and copy.leader_epoch == known.leader_epoch:
            assert copy.leadership.maximal_isr >= set(known.isr), "ReplicationQuorumSuperset"

    def check_log(self, node: int) -> None:
        log = self.broker.log(node)
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset, (
            "ValidReplicaState"
        )
        end_offset, epoch = None, -1
        rebuilt = ProducerStateTable()
        for each in log.batches():
            assert end_offset in (None, each.base_offset)
            assert each.partition_leader_epoch >= epoch
            end_offset, epoch = each.last_offset + 1, each.partition_leader_epoch
            rebuilt.replay(each)
        assert end_offset in (None, log.log_end_offset)
        assert [each.last_sequence for each in log.describe_producers()] in (
            [each.last_sequence for each in rebuilt.describe()],
            [],
        ), "the producers are those of the log"

    def check_logs_match(self) -> None:
        for one in range(NODES):
            for other in range(one):
                logs = self.broker.log(one), self.broker.log(other)
                start = max(log.log_start_offset for log in logs)
                end = min(log.high_watermark for log in logs)
                found = [
                    [bytes(each) for each in log.batches(start) if each.last_offset < end] for log in logs
                ]
                assert found[0] == found[1], "LogMatching"

    def check_leader_is_complete(self) -> None:
        leader = self.broker.partition.leader
        if leader == NO_LEADER or self.start_offset:
            return
        missing = self.acknowledged - set(self.broker.values_at(leader))
        assert not missing, f"LeaderCompleteness: {missing}"
        log = self.broker.log(leader)
        found = {each.base_offset: bytes(each) for each in log.batches()}
        assert self.read.items() <= found.items(), "ConsistentRead"
        self.read |= {at: data for at, data in found.items() if at < log.high_watermark}

    def check_ends_well(self) -> None:
        """Everything that was wrong is over: all replicas are in sync, and have the same log."""
        self.broker.hold(False)
        self.broker.heal()
        for node in range(NODES):
            self.resume(node)
            self.broker.start(node)
        self.broker.advance(60_000)
        self.look()
        self.check()
        assert not self.waiting
        assert self.broker.partition.is_in_sync
        assert set(self.broker.known.isr) == set(range(NODES))


def play(steps: Iterable[tuple[str, int]], min_isr: int, has_elr: bool) -> World:
    world = World(min_isr, has_elr)
    for name, node in steps:
        world.step(name, node)
    world.check_ends_well()
    return world


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, min_size=5, max_size=60), st.integers(1, 3), st.booleans())
def test_KS_replicated_partition_stays_sound(
    steps: list[tuple[str, int]], min_isr: int, has_elr: bool
) -> None:
    world = play(steps, min_isr, has_elr)
    event(f"{min(len(world.acknowledged), 10)} acknowledged")
    event(f"leader epoch {min(world.epochs[0], 10)}")


# What the checks must see


def _cut_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Before KIP-101 a new follower cut its log there."""
    take = Replica.take

    def cut(self: Replica, registration: Registration, now_ms: int) -> None:
        take(self, registration, now_ms)
        if self.leadership is None:
            self.log.truncate_to(self.log.high_watermark, now_ms)

    patch.setattr(Replica, "take", cut)


def _never_diverge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replica, "diverging", lambda *_: None)


def _raise_below_the_minimum(patch: pytest.MonkeyPatch) -> None:
    """Before KIP-966 the high watermark moved with any in-sync replicas, past what eligible leaders have."""
    lead = Replication._lead

    def raise_it(self: Replication, copy: Replica, leadership: Leadership, now_ms: int) -> bool:
        min_isr, copy.min_isr = copy.min_isr, 0
        try:
            return lead(self, copy, leadership, now_ms)
        finally:
            copy.min_isr = min_isr

    patch.setattr(Replication, "_lead", raise_it)


def _join_below_the_term(patch: pytest.MonkeyPatch) -> None:
    may_join = Leadership.may_join

    def join(self: Leadership, node_id: int, high_watermark: int, is_active: Callable[[int], bool]) -> bool:
        start, self.start_offset = self.start_offset, 0
        try:
            return may_join(self, node_id, 0, is_active)
        finally:
            self.start_offset = start

    patch.setattr(Leadership, "may_join", join)


def _tell_followers_too_much(patch: pytest.MonkeyPatch) -> None:
    """A follower's high watermark was that of the leader, above its own end."""
    raise_high_watermark = Partition.raise_high_watermark
    patch.setattr(Partition, "raise_high_watermark", lambda self, at: raise_high_watermark(self, at + 1))


def _keep_producers_of_a_cut_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_rebuild_producers", lambda self, now_ms: None)


def _keep_eligible_leaders(patch: pytest.MonkeyPatch) -> None:
    """They stayed eligible although there were enough in-sync replicas again."""

    def kept(before: Registration, wanted: Registration, *_: object) -> Registration:
        elr = tuple(each for each in (*before.elr, *before.isr) if each not in wanted.isr)
        return replace(wanted, elr=tuple(dict.fromkeys(elr)))

    patch.setattr(partition_change, "_with_eligible", kept)


def _elect_whoever_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Controller, "_election", lambda self, topic: Election.UNCLEAN)


BUGS = (
    _cut_to_the_high_watermark,
    _never_diverge,
    _raise_below_the_minimum,
    _join_below_the_term,
    _tell_followers_too_much,
    _keep_producers_of_a_cut_log,
    _keep_eligible_leaders,
    _elect_whoever_runs,
)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__.strip("_"))
def test_planted_bug_is_seen(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    draw = random.Random(bug.__name__)
    for _ in range(500):
        steps = [(draw.choice(STEPS), draw.randrange(NODES)) for _ in range(draw.randint(5, 60))]
        try:
            play(steps, draw.randint(1, 3), draw.random() < 0.5)
        except (AssertionError, RuntimeError):
            return
    pytest.fail("no check saw it")
