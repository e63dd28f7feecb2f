"""Bugs of replication, in the embedded broker: those of KIPs, and what the specifications of it warn of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kbatch.testing.broker.api.produce import _Produce
from kbatch.testing.broker.controller import partition_change
from kbatch.testing.broker.controller.controller import Controller
from kbatch.testing.broker.controller.partition_change import Election
from kbatch.testing.broker.logs.partition import Partition
from kbatch.testing.broker.replication.courier import Courier
from kbatch.testing.broker.replication.leadership import UNKNOWN_OFFSET, Leadership
from kbatch.testing.broker.replication.replica import Replica
from kbatch.testing.broker.replication.replication import Replication
from kbatch.testing.broker.transactions.markers import Markers
from tests.simulation.planted.planting import plants


@plants(Replica, "take", of_replicas=True)
def a_follower_cuts_to_its_high_watermark(take: Any, self: Any, registration: Any, now_ms: int) -> None:
    """Before KIP-101: a new follower cuts its log there, and may lose what is committed."""
    take(self, registration, now_ms)
    if self.leadership is None:
        self.log.truncate_to(self.log.high_watermark, now_ms)


@plants(Replica, "diverging", of_replicas=True)
def logs_never_diverge(diverging: Any, self: Any, offset: int, last_epoch: int) -> None:
    """Before KIP-595: a follower goes on at its offset in a new term, whatever it has below."""


@plants(Replica, "_cut_at", of_replicas=True)
def an_unknown_epoch_ends_where_the_leader_says(cut_at: Any, self: Any, told: Any) -> int:
    """Before KIP-279: a follower that does not know the epoch keeps records of others below its end."""
    return min(int(told.end_offset), int(self.log.log_end_offset))


@plants(Replication, "_is_awaited", of_replicas=True)
def an_answer_of_an_earlier_term_counts(
    awaited: Any, self: Any, partition: Any, copy: Any, asked: Any
) -> bool:
    """Before KIP-320: what a leader answered in its term is appended in the next one."""
    return copy.leadership is None and partition.copies.get(copy.node_id) is copy


@plants(Courier, "post", of_replicas=True)
def a_lost_message_is_not_noticed(
    post: Any, self: Any, source: Any, target: Any, *given: Any, **keys: Any
) -> Any:
    """A follower waits for the answer to a Fetch that was lost."""
    deliver, _, now_ms = given
    post(self, source, target, deliver, lambda now_ms: None, now_ms, **keys)


@plants(Leadership, "high_watermark", of_replicas=True)
def who_has_not_fetched_does_not_count(high_watermark: Any, self: Any, *given: Any, **keys: Any) -> Any:
    """In-sync replicas that have not fetched in this term do not hold the high watermark."""
    followers = self.followers
    self.followers = {
        node_id: each for node_id, each in followers.items() if each.end_offset != UNKNOWN_OFFSET
    }
    try:
        return high_watermark(self, *given, **keys)
    finally:
        self.followers = followers


@plants(Leadership, "high_watermark", of_replicas=True)
def who_is_about_to_be_in_sync_does_not_count(
    high_watermark: Any, self: Any, *given: Any, **keys: Any
) -> Any:
    """Before KIP-497: a replica counts when the leader hears that it is in sync, which others know before."""
    proposed, self.proposed = self.proposed, None
    try:
        return high_watermark(self, *given, **keys | {"lag_ms": -1, "may_join": lambda node_id: False})
    finally:
        self.proposed = proposed


@plants(Replication, "_lead", of_replicas=True)
def the_high_watermark_moves_below_min_isr(lead: Any, self: Any, copy: Any, *given: Any) -> Any:
    """Before KIP-966: it moves with any in-sync replicas, past what eligible leaders have."""
    min_isr, copy.min_isr = copy.min_isr, 0
    try:
        return lead(self, copy, *given)
    finally:
        copy.min_isr = min_isr


@plants(Partition, "raise_high_watermark", of_replicas=True)
def a_high_watermark_passes_the_end(raise_high_watermark: Any, self: Any, offset: int) -> bool:
    """A follower's high watermark is above the end of its log."""
    has_moved: bool = raise_high_watermark(self, offset + 1)
    return has_moved


@plants(_Produce, "_append", of_replicas=True)
def a_duplicate_does_not_wait(append: Any, self: Any, item: Any) -> None:
    """A repeated batch is acknowledged at once, though the first was not replicated."""
    ends = {copy.log.log_end_offset for copy in _copies(item)}
    append(self, item)
    if ends == {copy.log.log_end_offset for copy in _copies(item)}:
        item.end_offset = -1


def _copies(item: Any) -> list[Any]:
    return list(item.topic.partitions[item.data.index].copies.values())


@plants(Partition, "_rebuild_producers", of_replicas=True)
def producers_of_a_cut_log_stay(rebuild: Any, self: Any, now_ms: int) -> None:
    """A log that is cut knows producers by batches that it has no more."""


@plants(partition_change, "_with_eligible", of_replicas=True)
def eligible_leaders_stay(with_eligible: Any, before: Any, wanted: Any, *rest: Any) -> Any:
    """KIP-966: who has left the in-sync replicas stays eligible when there are enough again."""
    candidates = dict.fromkeys((*before.elr, *before.isr))
    elr = tuple(each for each in candidates if each not in wanted.isr and each in wanted.replicas)
    return replace(wanted, elr=elr)


@plants(Controller, "_check_proposal", of_replicas=True)
def a_proposal_has_no_partition_epoch(check: Any, self: Any, known: Any, proposal: Any) -> None:
    """In-sync replicas are registered as a leader asks, though they have changed since it did."""
    check(self, known, proposal._replace(partition_epoch=known.partition_epoch))


@plants(Controller, "_has_restarted", of_replicas=True)
def a_broker_that_restarted_joins(restarted: Any, self: Any, proposal: Any) -> bool:
    """Before KIP-903: a replica is in sync by a Fetch of before its machine died, though it lost records."""
    return False


@plants(Controller, "fail_over", of_replicas=True)
def another_controller_takes_who_runs_for_in_sync(fail_over: Any, self: Any) -> None:
    """The in-sync replicas are not in what controllers record."""
    fail_over(self)
    for partition in self._partitions():
        self.join_all(partition)


@plants(Controller, "_election", of_replicas=True)
def whoever_runs_is_elected(election: Any, self: Any, topic: Any) -> Election:
    """Elections are unclean, though no topic allows it."""
    return Election.UNCLEAN


@plants(Markers, "_is_done", of_replicas=True, of_transactions=True)
def a_marker_is_done_when_its_leader_has_it(done: Any, self: Any, marker: Any, place: Any) -> bool:
    """A transaction is complete though its marker is not replicated, and gets lost with the leader."""
    self.write(marker, *place)
    return True
