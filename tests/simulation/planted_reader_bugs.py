"""Bugs in what reads, and in members of groups, that the simulation must see (planted_bugs.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from kbatch.core.consumer import assignors, commits
from kbatch.core.consumer.budget import FrameShare
from kbatch.core.consumer.classic_membership import ClassicMembership
from kbatch.core.consumer.consumer_membership import ConsumerMembership
from kbatch.core.consumer.fetch_session import FetchSession
from kbatch.core.consumer.fetcher import Fetcher
from kbatch.core.consumer.group_coordinator import GroupCoordinator
from kbatch.core.consumer.group_engine import GroupEngine
from kbatch.core.consumer.membership import Ownership
from tests.simulation.planting import plants as plants_anywhere

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


@plants(Fetcher, "_lose")
def a_lost_answer_is_forgotten(original: Any) -> Any:
    """The memory that was reserved for a lost answer is not given back."""

    def lose(self: Fetcher, attempt: Any, error: Any) -> None:
        self._budget.charge(attempt.reserved_bytes)
        original(self, attempt, error)

    return lose


@plants(FrameShare, "release")
def memory_of_answers_is_not_returned(original: Any) -> Any:
    """What was read stays charged."""
    return nothing


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

    def read_offsets(call: Any, answer: Any) -> Any:
        original(call, answer)
        call.partitions.clear()
        return {}

    return read_offsets


# Commits


@plants(commits, "_commit_message")
def commits_are_one_too_far(original: Any) -> Any:
    """The committed offset is that after the next record."""

    def commit_message(identity: Any, offsets: Any) -> Any:
        return original(
            identity, {each: replace(offset, offset=offset.offset + 1) for each, offset in offsets.items()}
        )

    return commit_message


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


@plants(GroupEngine, "_check_polls")
def a_program_that_does_not_poll_keeps_its_place(original: Any) -> Any:
    """max.poll.interval.ms has no effect."""
    return nothing


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


@plants(ConsumerMembership, "_due_ns")
def heartbeats_stop_after_the_target(original: Any) -> Any:
    """A stable member sends a heartbeat only if something has changed."""
    return lambda self: 2**62


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


@plants(ClassicMembership, "_lose")
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
