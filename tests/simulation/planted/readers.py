"""Bugs in what reads, and in members of groups, that the simulation must see (planted_bugs.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from kbatch.core.client.backoff import Retried
from kbatch.core.consumer import assignors, commits
from kbatch.core.consumer.budget import Budget, FrameShare
from kbatch.core.consumer.classic_membership import ClassicMembership
from kbatch.core.consumer.commits import Commits
from kbatch.core.consumer.consumer_membership import ConsumerMembership
from kbatch.core.consumer.engine import ReadingEngine
from kbatch.core.consumer.fetch_session import FetchSession
from kbatch.core.consumer.fetcher import Fetcher
from kbatch.core.consumer.group_coordinator import GroupCoordinator
from kbatch.core.consumer.group_engine import GroupEngine
from kbatch.core.consumer.leader_requests import LeaderRequests
from kbatch.core.consumer.membership import HeartbeatClock, Ownership
from kbatch.core.consumer.positions import Positions
from tests.simulation.planted.planting import plants as plants_anywhere

plants = partial(plants_anywhere, of_readers=True)
nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731


# Fetching


@plants(Fetcher, "run")
def a_node_gets_two_fetches_at_once(original: Any) -> Any:
    """A node that has not answered a Fetch gets another, for partitions that became fetchable since."""

    def run(self: Fetcher, now_ns: int) -> None:
        waiting, self._in_flight = self._in_flight, {}
        try:
            original(self, now_ns)
        finally:
            self._in_flight = {**waiting, **self._in_flight}

    return run


@plants(Fetcher, "_scan")
def a_position_stays_before_markers(original: Any) -> Any:
    """The program hears nothing of an answer without records for it, so that its lag never reaches 0."""

    def scan(self: Fetcher, *arguments: Any) -> Any:
        fetched = original(self, *arguments)
        return None if fetched is None or fetched.records is None else fetched

    return scan


def _with(part: Any, **changes: Any) -> Any:
    names = [name for name in dir(part) if not name.startswith("_")]
    return SimpleNamespace(**{name: getattr(part, name) for name in names} | changes)


@plants(Fetcher, "_scan")
def aborted_records_are_read(original: Any) -> Any:
    """The list of aborted transactions is ignored."""
    return lambda self, state, part, now_ns: original(self, state, _with(part, aborted=()), now_ns)


@plants(Fetcher, "_scan")
def the_first_record_of_a_batch_comes_twice(original: Any) -> Any:
    """A piece ends one offset too early, so that the next one begins with the last record again."""

    def scan(self: Fetcher, state: Any, *arguments: Any) -> Any:
        fetched = original(self, state, *arguments)
        if fetched is not None and state.fetch_offset > fetched.from_offset + 1:
            state.fetch_offset -= 1
        return fetched

    return scan


@plants(Retried, "back_off")
def a_fetch_does_not_back_off(original: Any) -> Any:
    """A partition, or a session, is asked for again at once after an error."""
    return nothing


@plants(ReadingEngine, "seek")
def a_seek_keeps_its_generation(original: Any) -> Any:
    """What was asked for before a seek cannot be told from what was asked for after it."""

    def seek(self: ReadingEngine, partition: Any, *arguments: Any) -> int:
        old = self._fetcher.partitions.get(partition)
        generation: int = original(self, partition, *arguments)
        if old is None:
            return generation
        self.submit(lambda now_ns: setattr(self._fetcher.partitions[partition], "generation", old.generation))
        return old.generation

    return seek


@plants(Fetcher, "_scan")
def a_piece_of_markers_has_the_epoch_of_before(original: Any) -> Any:
    """A commit after markers names the leader epoch of the record before, so that the log seems truncated."""

    def scan(self: Fetcher, state: Any, *arguments: Any) -> Any:
        before = state.last_epoch
        fetched = original(self, state, *arguments)
        if fetched is not None and fetched.records is None:
            fetched.last_epoch = before
        return fetched

    return scan


@plants(Fetcher, "_handle_error")
def an_error_leaves_a_partition_out(original: Any) -> Any:
    """A partition that was answered with an error is never asked for again."""

    def handle_error(self: Fetcher, state: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, state, *arguments, **keywords)
        state.is_paused = True

    return handle_error


@plants(FetchSession, "end")
def a_session_outlives_its_error(original: Any) -> Any:
    """After a lost answer, or an error of the session, the next request goes on with the same session."""
    return nothing


@plants(FetchSession, "request")
def a_session_does_not_name_new_offsets(original: Any) -> Any:
    """A request within a session names new partitions only, not those that are read from elsewhere now."""

    def request(self: FetchSession, wanted: Any) -> Any:
        known = self._known
        part = original(self, wanted)
        if part.epoch == 0:
            return part
        return part._replace(named={each: asked for each, asked in part.named.items() if each not in known})

    return request


@plants(Fetcher, "_fail_attempt")
def a_lost_answer_is_forgotten(original: Any) -> Any:
    """The memory that was reserved for a lost answer is not given back."""

    def fail_attempt(self: Fetcher, attempt: Any, *arguments: Any) -> None:
        self._budget.charge(attempt.reserved_bytes)
        original(self, attempt, *arguments)

    return fail_attempt


@plants(Budget, "__init__")
def the_budget_is_in_kibibytes(original: Any) -> Any:
    """kbatch.fetch.buffer.memory is taken for kibibytes."""
    return lambda self, limit: original(self, limit * 1024)


@plants(FrameShare, "release")
def memory_of_answers_is_not_returned(original: Any) -> Any:
    """What was read stays charged."""
    return nothing


@plants(Positions, "handle_divergence")
def a_diverging_epoch_is_ignored(original: Any) -> Any:
    """A position in a part of the log that was replaced is asked for again and again."""
    return nothing


@plants(Positions, "handle_out_of_range")
def out_of_range_is_asked_for_again(original: Any) -> Any:
    """A position that the log does not have any more is not reset."""
    return nothing


@plants(LeaderRequests, "_fail")
def a_failed_look_up_is_forgotten(original: Any) -> Any:
    """ListOffsets that failed is not sent again."""
    return lambda self, request, error, now_ns: setattr(request, "is_done", True)


# Positions


@plants(GroupEngine, "_take_committed")
def committed_offsets_are_ignored(original: Any) -> Any:
    """Partitions are read from where auto.offset.reset says."""

    def take_committed(self: GroupEngine, states: Any, call: Any, now_ns: int) -> None:
        call.answer.clear()
        original(self, states, call, now_ns)

    return take_committed


@plants(commits, "_read_offsets")
def an_error_means_no_committed_offset(original: Any) -> Any:
    """A partition that OffsetFetch answers with an error counts as one without a committed offset."""

    def read_offsets(call: Any, *answer: Any) -> Any:
        original(call, *answer)
        call.partitions.clear()
        return {}

    return read_offsets


@plants(GroupEngine, "_finish_rebalance")
def what_was_given_up_is_read_on(original: Any) -> Any:
    """Partitions that were revoked or lost are fetched as before."""

    def finish(self: GroupEngine, step: Any, now_ns: int) -> None:
        close, self._close = self._close, nothing  # type: ignore[method-assign]
        try:
            original(self, step, now_ns)
        finally:
            self._close = close  # type: ignore[method-assign]

    return finish


# Commits


@plants(commits, "_commit_message")
def commits_are_one_too_far(original: Any) -> Any:
    """The committed offset is that after the next record."""

    def commit_message(identity: Any, offsets: Any, sent: Any) -> Any:
        wrong = {each: replace(offset, offset=offset.offset + 1) for each, offset in offsets.items()}
        return original(identity, wrong, sent)

    return commit_message


@plants(Commits, "_drop_lost")
def lost_partitions_are_committed(original: Any) -> Any:
    """Offsets of partitions that the member has lost since are committed with its next generation."""
    return nothing


# Topics that are made anew


@plants(Commits, "_topic_id")
def commits_name_the_topic_of_the_metadata(original: Any) -> Any:
    """Java: an offset is committed for the topic that has the name now, not for the one that it is of."""
    return lambda self, partition, offset: self._cluster.snapshot.topic_id(partition.topic)


@plants(Positions, "handle_new_topic")
def a_position_outlives_its_topic(original: Any) -> Any:
    """Reading goes on at the same offset in a topic that was made anew."""
    return lambda self, state, topic_id, now_ns: state.find_topic(topic_id)


# Coordinators and steps


@plants(GroupCoordinator, "forget")
def the_group_coordinator_is_not_looked_up_again(original: Any) -> Any:
    """NOT_COORDINATOR is answered by asking the same node again."""
    return nothing


@plants(Ownership, "_offer")
def revocations_do_not_wait_for_the_program(original: Any) -> Any:
    """Partitions count as given up when the program is asked to give them up."""

    def offer(self: Ownership, kind: Any, partitions: Any) -> None:
        original(self, kind, partitions)
        if kind == "revoke":
            assert self._open is not None
            self.owned -= frozenset(self._open.partitions)

    return offer


@plants(Ownership, "lose")
def lost_partitions_stay_with_the_program(original: Any) -> Any:
    """A fenced member forgets what it owned, without a word to its program."""

    def lose(self: Ownership) -> None:
        self.withdraw()
        self.owned = frozenset()

    return lose


@plants(Ownership, "finish")
def a_loss_during_a_step_is_forgotten(original: Any) -> Any:
    """What is lost while the program does a step stays with it."""

    def finish(self: Ownership, step: Any) -> bool:
        self._must_lose = False
        return bool(original(self, step))

    return finish


@plants(GroupEngine, "_expiry_ns")
def a_program_that_does_not_poll_keeps_its_place(original: Any) -> Any:
    """max.poll.interval.ms has no effect."""
    return lambda self: 2**62


@plants(ConsumerMembership, "_try_again")
def a_lost_heartbeat_counts_as_sent(original: Any) -> Any:
    """Fields of a heartbeat that was not answered are not sent again."""

    def try_again(self: ConsumerMembership, outcome: Any, now_ns: int) -> None:
        sent = dict(self._sent)
        original(self, outcome, now_ns)
        self._sent.update(sent)

    return try_again


@plants(ConsumerMembership, "_claims")
def a_heartbeat_leaves_out_what_a_step_adds(original: Any) -> Any:
    """A complete heartbeat names what the member owns, without what its program is about to take."""

    def claims(self: ConsumerMembership) -> dict[bytes, list[int]]:
        named: dict[bytes, list[int]] = {}
        for each in sorted(self._ownership.owned):
            named.setdefault(self._ids[each], []).append(each.partition)
        return named

    return claims


# Members by KIP-848


@plants(ConsumerMembership, "_quit")
def a_fenced_member_keeps_its_epoch(original: Any) -> Any:
    """A member that was removed joins again with the epoch that it had."""

    def quit_group(self: ConsumerMembership, now_ns: int) -> None:
        epoch = self._epoch
        original(self, now_ns)
        self._epoch = epoch

    return quit_group


@plants(ConsumerMembership, "rejoin")
def a_member_that_expired_stays_away(original: Any) -> Any:
    """A poll after max.poll.interval.ms does not let the member join again."""
    return nothing


@plants(ConsumerMembership, "_send_leave")
def a_member_leaves_without_a_word(original: Any) -> Any:
    """The coordinator is not told that the member leaves."""

    def send_leave(self: ConsumerMembership, epoch: int, now_ns: int) -> None:
        self._leave_epoch = None

    return send_leave


@plants(HeartbeatClock, "after")
def heartbeats_stop_after_the_target(original: Any) -> Any:
    """A stable member sends a heartbeat only if something has changed."""
    return lambda self, sent_ns, member_id: 2**62


# Members by the classic protocol


@plants(ClassicMembership, "_prepare")
def eager_members_keep_their_partitions(original: Any) -> Any:
    """Members with an eager assignor give nothing up before they join again."""

    def prepare(self: ClassicMembership) -> None:
        self._is_cooperative = True
        original(self)

    return prepare


@plants(assignors, "_share")
def cooperative_members_take_what_others_still_have(original: Any) -> Any:
    """What moves is assigned to its next owner in the rebalance in which its owner learns of it."""
    return lambda *arguments: (original(*arguments)[0], {})


@plants(ClassicMembership, "_lose_generation")
def a_removed_member_keeps_its_partitions(original: Any) -> Any:
    """A member that the coordinator does not know joins again with what it had."""

    def lose(self: ClassicMembership, *arguments: Any) -> None:
        ownership, self._ownership = self._ownership, SimpleNamespace(lose=nothing)  # type: ignore[assignment]
        try:
            original(self, *arguments)
        finally:
            self._ownership = ownership

    return lose


@plants(ClassicMembership, "_check_for_change")
def new_partitions_are_not_seen(original: Any) -> Any:
    """The leader of a classic group does not look at metadata of its topics."""
    return nothing


@plants(ClassicMembership, "_join_again")
def a_rebalance_is_not_followed(original: Any) -> Any:
    """A stable member does not join again when its group rebalances."""
    return nothing


@plants(ClassicMembership, "_send_leave")
def a_classic_member_leaves_without_a_word(original: Any) -> Any:
    """LeaveGroup is not sent."""
    return lambda self, now_ns: self._finish_leave(self._leaving)
