"""Elections and eligible leaders, as PartitionChangeBuilder decides them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kbatch.testing.broker.controller.partition_change import (
    NO_LEADER,
    Election,
    Registration,
    Rules,
    changed,
)

FULL = Registration((2, 3, 4), leader=2, isr=(2, 3, 4), leader_epoch=0, partition_epoch=0)


class Cluster:
    """A partition, and the brokers that are not fenced."""

    def __init__(self, registration: Registration = FULL, *, min_isr: int = 1, has_elr: bool = True) -> None:
        self.known = registration
        self.active = set(registration.replicas)
        self.min_isr = min_isr
        self.has_elr = has_elr

    def change(self, *, election: Election = Election.CLEAN, **wanted: Collection[int]) -> Registration:
        rules = Rules(self.active.__contains__, self.min_isr, self.has_elr)
        self.known = changed(self.known, rules, election=election, **wanted)  # type: ignore[arg-type]
        return self.known

    def fence(self, *nodes: int, election: Election = Election.CLEAN) -> Registration:
        for node in nodes:
            self.active.discard(node)
            self.change(isr=[each for each in self.known.isr if each != node], election=election)
        return self.known

    def unfence(self, *nodes: int, election: Election = Election.CLEAN) -> Registration:
        for node in nodes:
            self.active.add(node)
            self.change(election=election)
        return self.known

    def start_uncleanly(self, *nodes: int) -> Registration:
        for node in nodes:
            isr = [each for each in self.known.isr if each != node]
            self.change(isr=isr, ended_uncleanly=[node])
        return self.known


def test_KE01_first_of_the_assignment_that_is_in_sync_leads() -> None:
    cluster = Cluster(replace(FULL, isr=(4, 3, 2)))
    after = cluster.fence(2)
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (3, (4, 3), 1, 1)


def test_KI06_fenced_follower_leaves_and_the_leader_epoch_stays() -> None:
    after = Cluster().fence(4)
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (2, (2, 3), 0, 1)


def test_KE02_partition_without_leader_knows_who_led() -> None:
    after = Cluster().fence(2, 4, 3)
    assert (after.leader, after.isr, after.elr, after.last_known_leader) == (NO_LEADER, (), (3,), 3)
    assert after.leader_epoch == 2


def test_KE03_eligible_leader_leads_at_once_and_alone() -> None:
    cluster = Cluster(min_isr=2)
    after = cluster.fence(4, 3, 2)
    assert (after.elr, after.last_known_leader) == ((2, 3), 2)
    assert cluster.unfence(4).leader == NO_LEADER
    after = cluster.unfence(3)
    assert (after.leader, after.isr, after.elr) == (3, (3,), (2,))
    assert cluster.unfence(2).elr == (2,), "until it fetches"


def test_KE04_eligible_leaders_end_with_enough_in_sync_replicas() -> None:
    cluster = Cluster(min_isr=2)
    assert cluster.fence(4).elr == ()
    assert cluster.fence(3).elr == (3,)
    cluster.active |= {3, 4}
    assert cluster.change(isr=(2, 4)).elr == ()


def test_KE05_unclean_election_leaves_the_leader_alone_in_sync() -> None:
    cluster = Cluster()
    cluster.fence(4)
    cluster.active.add(4)
    after = cluster.fence(2, 3, election=Election.UNCLEAN)
    assert (after.leader, after.isr, after.elr) == (4, (4,), ())


def test_KE07_broker_that_did_not_end_cleanly_is_not_eligible() -> None:
    cluster = Cluster(min_isr=2)
    cluster.fence(4, 3, 2)
    assert cluster.start_uncleanly(3).elr == (2,)


def test_KE08_last_known_leader_leads_if_none_is_eligible() -> None:
    single = Cluster(Registration((2,), leader=2, isr=(2,), leader_epoch=0, partition_epoch=0))
    after = single.fence(2)
    assert (after.elr, after.last_known_leader) == ((2,), 2)
    assert single.start_uncleanly(2).elr == ()
    after = single.unfence(2)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2,), 2)
    pair = Cluster(replace(FULL, replicas=(2, 3), isr=(2, 3)), min_isr=2)
    pair.fence(3, 2)
    assert pair.start_uncleanly(2, 3).elr == ()
    assert pair.unfence(3).leader == NO_LEADER
    assert pair.unfence(2).leader == 2


def test_last_in_sync_replica_stays_without_the_feature() -> None:
    cluster = Cluster(has_elr=False)
    after = cluster.fence(2, 3, 4)
    assert (after.leader, after.isr, after.elr) == (NO_LEADER, (4,), ())
    assert cluster.unfence(2).leader == NO_LEADER
    assert cluster.unfence(4).leader == 4


def test_reassignment_ends_when_the_target_is_in_sync() -> None:
    moved = replace(FULL, replicas=(4, 2, 3), adding=(4,), removing=(2, 3), isr=(2, 3))
    after = Cluster(moved).change(isr=(2, 3, 4))
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((4,), (4,), 4, 1)
    assert not after.is_reassigned


STEPS = st.lists(
    st.tuples(st.sampled_from(["fence", "unfence", "uncleanly", "join", "leave"]), st.sampled_from([2, 3, 4]))
)


@given(STEPS, st.integers(1, 3), st.booleans(), st.sampled_from([Election.CLEAN, Election.UNCLEAN]))
def test_KS06_KS07_KS08_registrations_stay_sound(
    steps: list[tuple[str, int]], min_isr: int, has_elr: bool, election: Election
) -> None:
    cluster = Cluster(min_isr=min_isr, has_elr=has_elr)
    for step, node in steps:
        before = cluster.known
        led = before.leader != NO_LEADER
        if step == "fence":
            cluster.fence(node, election=election)
        elif step == "unfence":
            cluster.unfence(node, election=election)
        elif step == "uncleanly" and node not in cluster.active:
            cluster.start_uncleanly(node)
        elif step == "join" and led and node in cluster.active and node not in before.isr:
            cluster.change(isr=(*before.isr, node))
        elif step == "leave" and led and node != before.leader:
            cluster.change(isr=[each for each in before.isr if each != node])
        known = cluster.known
        assert known.leader == NO_LEADER or known.leader in known.isr
        assert known.leader == NO_LEADER or known.leader in cluster.active
        assert not set(known.isr) & set(known.elr)
        assert len(known.isr) < min(min_isr, 3) or not known.elr
        assert not has_elr or set(known.isr) <= cluster.active
        assert known.leader_epoch >= before.leader_epoch
        assert known.partition_epoch == before.partition_epoch + (known != before)
        assert known.leader_epoch > before.leader_epoch or known.leader == before.leader
