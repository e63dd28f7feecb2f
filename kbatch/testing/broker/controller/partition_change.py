"""How the registration of a partition changes: its leader, its in-sync and its eligible replicas.

Nothing here knows of nodes, logs or time. The order of elections and the rules of KIP-966 are those of
org.apache.kafka.controller.PartitionChangeBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum

NO_LEADER = -1


@dataclass(slots=True, frozen=True)
class Registration:
    """What the controller knows of a partition.

    Attributes
    ----------
    replicas : tuple of int
        The nodes that have a replica, the preferred leader first; while it is reassigned, target and removed.
    leader : int
        NO_LEADER if no replica may lead.
    isr, elr : tuple of int
        In-sync replicas; replicas that left them while they were fewer than min.insync.replicas, and so may
        still lead (KIP-966).
    last_known_leader : int
        The leader that was there before the in-sync replicas were empty, else NO_LEADER.
    adding, removing : tuple of int
        The replicas that a reassignment adds and removes.
    """

    replicas: tuple[int, ...]
    leader: int = NO_LEADER
    isr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    leader_epoch: int = -1
    partition_epoch: int = -1
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def in_sync(self) -> tuple[int, ...]:
        """Return who has all that is committed: those in sync, else those eligible, else the last leader."""
        last = () if self.last_known_leader == NO_LEADER else (self.last_known_leader,)
        return self.isr or self.elr or last

    @property
    def target(self) -> tuple[int, ...]:
        """Return the replicas that there are when the reassignment is done."""
        return tuple(each for each in self.replicas if each not in self.removing)


class Election(Enum):
    """How a leader is looked for: the present one stays if it may, the preferred one, or any that runs."""

    CLEAN = "clean"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass(slots=True, frozen=True)
class Rules:
    """What holds for a partition at the time of a change.

    Attributes
    ----------
    may_lead : callable
        (node id) -> True if the node is neither fenced nor about to end.
    min_isr : int
        min.insync.replicas of the topic.
    has_elr : bool
        eligible.leader.replicas.version is 1.
    """

    may_lead: Callable[[int], bool]
    min_isr: int
    has_elr: bool = True


def changed(
    before: Registration,
    rules: Rules,
    *,
    isr: Collection[int] | None = None,
    replicas: tuple[int, ...] | None = None,
    adding: tuple[int, ...] | None = None,
    removing: tuple[int, ...] | None = None,
    ended_uncleanly: Collection[int] = (),
    election: Election = Election.CLEAN,
) -> Registration:
    """Return the registration after a change: what is None stays, and the leader is elected again if it must.

    `isr` are the new in-sync replicas, in any order if they were before. Nodes that `ended_uncleanly` are no
    eligible leaders any more. The same registration is returned if nothing changes.
    """
    wanted = replace(
        before,
        isr=before.isr if isr is None else tuple(isr),
        replicas=before.replicas if replicas is None else replicas,
        adding=before.adding if adding is None else adding,
        removing=before.removing if removing is None else removing,
    )
    if not wanted.isr and not rules.has_elr:
        wanted = replace(wanted, isr=before.isr)  # the last one stays
    wanted = _without_reassignment(wanted)
    wanted = _with_eligible(before, wanted, rules, ended_uncleanly)
    wanted = _with_leader(before, wanted, rules, election)
    wanted = _with_last_known_leader(before, wanted)
    if wanted == before:
        return before
    has_new_term = wanted.leader != before.leader or not set(before.replicas) <= set(wanted.replicas)
    return replace(
        wanted,
        leader_epoch=before.leader_epoch + has_new_term,
        partition_epoch=before.partition_epoch + 1,
    )


def _without_reassignment(wanted: Registration) -> Registration:
    """End the reassignment once all replicas that stay are in sync."""
    if not wanted.is_reassigned or not set(wanted.target) <= set(wanted.isr):
        return wanted
    isr = tuple(each for each in wanted.isr if each in wanted.target)
    return replace(wanted, replicas=wanted.target, isr=isr, adding=(), removing=())


def _with_eligible(
    before: Registration, wanted: Registration, rules: Rules, ended_uncleanly: Collection[int]
) -> Registration:
    enough = min(rules.min_isr, len(wanted.replicas))
    if not rules.has_elr or len(wanted.isr) >= enough:
        return replace(wanted, elr=())
    candidates = dict.fromkeys((*before.elr, *before.isr))
    gone = {*wanted.isr, *ended_uncleanly}
    elr = sorted(each for each in candidates if each not in gone and each in wanted.replicas)
    return replace(wanted, elr=tuple(elr))


def _with_leader(
    before: Registration, wanted: Registration, rules: Rules, election: Election
) -> Registration:
    leader, is_unclean = _elected(wanted, rules, election)
    if leader == before.leader or leader == NO_LEADER:
        return replace(wanted, leader=leader)
    if is_unclean or leader not in wanted.isr:
        elr = tuple(each for each in wanted.elr if each != leader)
        if min(rules.min_isr, len(wanted.replicas)) <= 1:
            elr = ()
        return replace(wanted, leader=leader, isr=(leader,), elr=elr)
    return replace(wanted, leader=leader)


def _elected(wanted: Registration, rules: Rules, election: Election) -> tuple[int, bool]:
    """Return (leader, True if it may lack records that were acknowledged)."""

    def is_valid(node_id: int) -> bool:
        return (node_id in wanted.isr or node_id in wanted.elr) and rules.may_lead(node_id)

    # one that is to go may lead as long as it is there
    candidates = (*wanted.target, *wanted.removing)
    preferred = candidates[:1] if election is Election.PREFERRED else ()
    for candidate in (*preferred, wanted.leader, *candidates):
        if is_valid(candidate):
            return candidate, False
    last = wanted.last_known_leader
    if rules.has_elr and not wanted.isr and not wanted.elr and last != NO_LEADER and rules.may_lead(last):
        return last, True
    if election is Election.UNCLEAN:
        for candidate in candidates:
            if rules.may_lead(candidate):
                return candidate, True
    return NO_LEADER, False


def _with_last_known_leader(before: Registration, wanted: Registration) -> Registration:
    if wanted.leader != NO_LEADER:
        return replace(wanted, last_known_leader=NO_LEADER)
    if before.leader != NO_LEADER:
        return replace(wanted, last_known_leader=before.leader)
    return wanted


def restarted(
    before: Registration, nodes: Collection[int], ended_cleanly: Collection[int]
) -> Registration | None:
    """Return the registration after all of these nodes, and no others, have started again.

    The first replica leads that has all that is committed and ended cleanly; without one that which led last,
    alone. None if there is none of either.
    """
    replicas = tuple(each for each in before.replicas if each in nodes)
    complete = tuple(each for each in replicas if each in before.in_sync)
    if not complete:
        return None
    kept = tuple(each for each in complete if each in ended_cleanly)
    if not kept:
        last = before.last_known_leader if before.leader == NO_LEADER else before.leader
        kept = (last if last in complete else complete[0],)
    return Registration(
        replicas,
        kept[0],
        isr=kept if before.isr else kept[:1],
        leader_epoch=before.leader_epoch,
        partition_epoch=before.partition_epoch,
        adding=tuple(each for each in before.adding if each in nodes),
        removing=tuple(each for each in before.removing if each in nodes),
    )


def led_by(before: Registration, node_id: int) -> Registration:
    """Return the registration with another leader, or NO_LEADER, in a new term; nothing else changes."""
    return replace(
        before,
        leader=node_id,
        leader_epoch=before.leader_epoch + 1,
        partition_epoch=before.partition_epoch + 1,
    )


def without_eligible(before: Registration) -> Registration:
    """Return the registration without eligible leaders."""
    return replace(before, elr=(), partition_epoch=before.partition_epoch + 1)
