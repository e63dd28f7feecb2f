"""Bugs in what reads, and in members of groups, that the simulation must see (planted_bugs.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from kbatch.core.client.backoff import Retrying
from kbatch.core.client.connections import Connections
from kbatch.core.consumer import assignors, commits
from kbatch.core.consumer import engine as engine_module
from kbatch.core.consumer.classic_membership import ClassicMembership
from kbatch.core.consumer.commits import Commits
from kbatch.core.consumer.consumer_membership import ConsumerMembership
from kbatch.core.consumer.engine import ReadingEngine
from kbatch.core.consumer.fetch_session import FetchSession
from kbatch.core.consumer.fetcher import Fetcher
from kbatch.core.consumer.group_coordinator import GroupCoordinator
from kbatch.core.consumer.group_engine import GroupEngine
from kbatch.core.consumer.heartbeats import HeartbeatClock, Heartbeats
from kbatch.core.consumer.leader_requests import LeaderRequests
from kbatch.core.consumer.member_engine import MemberEngine
from kbatch.core.consumer.membership import Ownership
from kbatch.core.consumer.positions import Positions
from tests.simulation.planted import planting

plants = partial(planting.plants, of_readers=True)
nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731


# Fetching


@plants(Fetcher, "run")
def a_node_gets_two_fetches_at_once(original: Any, self: Fetcher, now_ns: int) -> None:
    """A node that has not answered a Fetch gets another, for partitions that became fetchable since."""
    waiting = [session for session in self._sessions.values() if session.is_in_flight]
    for session in waiting:
        session.is_in_flight = False
    try:
        original(self, now_ns)
    finally:
        for session in waiting:
            session.is_in_flight = True


@plants(Fetcher, "_read")
def a_position_stays_before_markers(original: Any, self: Fetcher, *arguments: Any) -> Any:
    """The program hears nothing of an answer without records for it, so that its lag never reaches 0."""
    return [fetched for fetched in original(self, *arguments) if fetched.records is not None]


@plants(Fetcher, "_read")
def aborted_records_are_read(original: Any, self: Fetcher, *arguments: Any) -> Any:
    """The list of aborted transactions is ignored."""
    self.road.reads_committed = False
    return original(self, *arguments)


@plants(Fetcher, "_read")
def the_first_record_of_a_batch_comes_twice(original: Any, self: Fetcher, *arguments: Any) -> Any:
    """A result ends one offset too early, so that the next one begins with the last record again."""
    found = original(self, *arguments)
    for fetched in found:
        if fetched.state.fetch_offset > fetched.from_offset + 1:
            fetched.state.fetch_offset -= 1
    return found


@plants(Retrying, "back_off")
def a_fetch_does_not_back_off(*_: Any, **__: Any) -> None:
    """A partition, or a session, is asked for again at once after an error."""


@plants(ReadingEngine, "seek")
def a_seek_keeps_its_generation(original: Any, self: ReadingEngine, partition: Any, *arguments: Any) -> int:
    """What was asked for before a seek cannot be told from what was asked for after it."""
    old = self._fetcher.partitions.get(partition)
    generation: int = original(self, partition, *arguments)
    if old is None:
        return generation
    self.submit(lambda now_ns: setattr(self._fetcher.partitions[partition], "generation", old.generation))
    return old.generation


@plants(Fetcher, "_read")
def a_piece_of_markers_has_the_epoch_of_before(
    original: Any, self: Fetcher, session: Any, *arguments: Any
) -> Any:
    """A commit after markers names the leader epoch of the record before, so that the log seems truncated."""
    before = {state: state.last_epoch for state in session.asked()}
    found = original(self, session, *arguments)
    for fetched in found:
        if fetched.records is None:
            fetched.last_epoch = before[fetched.state]
    return found


@plants(Fetcher, "_handle_error")
def an_error_leaves_a_partition_out(
    original: Any, self: Fetcher, state: Any, *arguments: Any, **keywords: Any
) -> None:
    """A partition that was answered with an error is never asked for again."""
    original(self, state, *arguments, **keywords)
    state.is_paused = True


@plants(FetchSession, "end")
def a_session_outlives_its_error(*_: Any, **__: Any) -> None:
    """After a lost answer, or an error of the session, the next request goes on with the same session."""


@plants(FetchSession, "ask")
def a_session_does_not_name_new_offsets(original: Any, self: FetchSession, *arguments: Any) -> None:
    """A request within a session names new partitions only, not those that are read from elsewhere now."""
    moved = {state: state.fetch_offset for state in self.candidates() if state.asked_offset > 0}
    if self.is_open:
        for state in moved:
            state.fetch_offset = state.asked_offset
    original(self, *arguments)
    for state, offset in moved.items():
        state.fetch_offset = offset


@plants(Fetcher, "_fail_request")
def a_lost_answer_is_forgotten(original: Any, self: Fetcher, session: Any, *arguments: Any) -> None:
    """The memory that was reserved for a lost answer is not given back."""
    self._budget.charge(session.reserved_bytes)
    original(self, session, *arguments)


@plants(engine_module, "Budget")
def the_budget_is_in_kibibytes(original: Any, limit: int) -> Any:
    """kbatch.fetch.buffer.memory is taken for kibibytes."""
    return original(limit * 1024)


@plants(engine_module, "Releases")
def memory_of_answers_is_not_returned(*_: Any) -> Callable[..., bool]:
    """What was read stays charged."""
    return lambda *_: False


@plants(engine_module, "Releases")
def memory_that_is_released_wakes_nobody(original: Any, *given: Any) -> Callable[..., bool]:
    """A node is asked again only when something else happens."""
    release = original(*given)

    def release_silently(*released: Any) -> bool:
        release(*released)
        return False

    return release_silently


# Loans to the road


@plants(Fetcher, "take_back")
def a_loan_waits_for_no_memory(original: Any, self: Fetcher, now_ns: int) -> None:
    """After a loan it is forgotten that a request waits for memory."""
    original(self, now_ns)
    self._awaited_memory = False


@plants(Connections, "take_back")
def requests_of_the_road_are_forgotten(
    original: Any, self: Connections, lent: Any, *arguments: Any, **named: Any
) -> None:
    """Requests in flight are not taken back: their answers come unexpected."""
    original(self, lent._replace(requests=[]), *arguments, **named)


@plants(Fetcher, "take_back")
def bytes_of_the_road_are_dropped(original: Any, self: Fetcher, now_ns: int) -> None:
    """What the road has received of an answer that is the engine's is lost."""
    handle, self._connections.handle_bytes = self._connections.handle_bytes, nothing  # type: ignore[method-assign]
    try:
        original(self, now_ns)
    finally:
        self._connections.handle_bytes = handle  # type: ignore[method-assign]


@plants(Fetcher, "take_back")
def what_a_loan_has_left_is_not_asked_for(original: Any, self: Fetcher, now_ns: int) -> None:
    """An answer that came as a loan ended is followed by a request when something else happens."""

    def forget(when_ns: int) -> None:
        del self._look_again

    if self.road.must_look:
        self._look_again = forget  # type: ignore[method-assign]
    original(self, now_ns)


@plants(Fetcher, "_place")
def the_road_reads_where_leaders_were(original: Any, self: Fetcher, now_ns: int) -> None:
    """Partitions stay where they were read from first."""
    if self._placed_in is None:
        original(self, now_ns)
    else:
        self._placed_in = self._cluster.snapshot
        for state in self.road.unplaced(now_ns):
            node_id = self._node_of(state, now_ns)
            state.place(self.road, None if node_id < 0 else self._session(node_id))


# Positions that the log does not have


@plants(Positions, "handle_divergence")
def a_diverging_epoch_is_ignored(*_: Any, **__: Any) -> None:
    """A position in a part of the log that was replaced is asked for again and again."""


@plants(Positions, "handle_out_of_range")
def out_of_range_is_asked_for_again(*_: Any, **__: Any) -> None:
    """A position that the log does not have any more is not reset."""


@plants(LeaderRequests, "_fail")
def a_failed_look_up_is_forgotten(original: Any, self: Any, request: Any, error: Any, now_ns: Any) -> Any:
    """ListOffsets that failed is not sent again."""
    return setattr(request, "is_done", True)


# Positions


@plants(GroupEngine, "_take_committed")
def committed_offsets_are_ignored(
    original: Any, self: GroupEngine, states: Any, call: Any, now_ns: int
) -> None:
    """Partitions are read from where auto.offset.reset says."""
    call.answer.clear()
    original(self, states, call, now_ns)


@plants(commits, "_read_offsets")
def an_error_means_no_committed_offset(original: Any, call: Any, *answer: Any) -> Any:
    """A partition that OffsetFetch answers with an error counts as one without a committed offset."""
    original(call, *answer)
    call.partitions.clear()
    return {}


@plants(GroupEngine, "_finish_rebalance")
def what_was_given_up_is_read_on(original: Any, self: GroupEngine, step: Any, now_ns: int) -> None:
    """Partitions that were revoked or lost are fetched as before."""
    close, self._close = self._close, nothing  # type: ignore[method-assign]
    try:
        original(self, step, now_ns)
    finally:
        self._close = close  # type: ignore[method-assign]


# Commits


@plants(commits, "_commit_message")
def commits_are_one_too_far(original: Any, identity: Any, offsets: Any, sent: Any) -> Any:
    """The committed offset is that after the next record."""
    wrong = {each: replace(offset, offset=offset.offset + 1) for each, offset in offsets.items()}
    return original(identity, wrong, sent)


@plants(Commits, "_drop_lost")
def lost_partitions_are_committed(*_: Any, **__: Any) -> None:
    """Offsets of partitions that the member has lost since are committed with its next generation."""


# Topics that are made anew


@plants(Commits, "_topic_id")
def commits_name_the_topic_of_the_metadata(original: Any, self: Any, partition: Any, offset: Any) -> Any:
    """Java: an offset is committed for the topic that has the name now, not for the one that it is of."""
    return self._cluster.snapshot.topic_id(partition.topic)


@plants(Positions, "handle_new_topic")
def a_position_outlives_its_topic(original: Any, self: Any, state: Any, topic_id: Any, now_ns: Any) -> Any:
    """Reading goes on at the same offset in a topic that was made anew."""
    return state.find_topic(topic_id)


# Coordinators and steps


@plants(GroupCoordinator, "forget")
def the_group_coordinator_is_not_looked_up_again(*_: Any, **__: Any) -> None:
    """NOT_COORDINATOR is answered by asking the same node again."""


@plants(Ownership, "_offer")
def revocations_do_not_wait_for_the_program(
    original: Any, self: Ownership, kind: Any, partitions: Any
) -> None:
    """Partitions count as given up when the program is asked to give them up."""
    original(self, kind, partitions)
    if kind == "revoke":
        assert self._open is not None
        self.owned -= frozenset(self._open.partitions)


@plants(Ownership, "lose")
def lost_partitions_stay_with_the_program(original: Any, self: Ownership) -> None:
    """A fenced member forgets what it owned, without a word to its program."""
    self.withdraw()
    self.owned = frozenset()


@plants(Ownership, "finish")
def a_loss_during_a_step_is_forgotten(original: Any, self: Ownership, step: Any) -> bool:
    """What is lost while the program does a step stays with it."""
    self._must_lose = False
    return bool(original(self, step))


@plants(MemberEngine, "_expiry_ns")
def a_program_that_does_not_poll_keeps_its_place(*_: Any) -> int:
    """max.poll.interval.ms has no effect."""
    return 2**62


@plants(Heartbeats, "_repeat_all")
def a_lost_heartbeat_counts_as_sent(original: Any, self: Heartbeats, outcome: Any, now_ns: int) -> None:
    """Fields of a heartbeat that was not answered are not sent again."""
    sent = dict(self._sent)
    original(self, outcome, now_ns)
    self._sent.update(sent)


@plants(ConsumerMembership, "_claims")
def a_heartbeat_leaves_out_what_a_step_adds(
    original: Any, self: ConsumerMembership
) -> dict[bytes, list[int]]:
    """A complete heartbeat names what the member owns, without what its program is about to take."""
    named: dict[bytes, list[int]] = {}
    for each in sorted(self._ownership.owned):
        named.setdefault(self._ids[each], []).append(each.partition)
    return named


# Members by KIP-848


@plants(Heartbeats, "_restart")
def a_fenced_member_keeps_its_epoch(original: Any, self: Heartbeats) -> None:
    """A member that was removed joins again with the epoch that it had."""
    epoch = self.epoch
    original(self)
    self.epoch = epoch


@plants(ConsumerMembership, "rejoin")
def a_member_that_expired_stays_away(*_: Any, **__: Any) -> None:
    """A poll after max.poll.interval.ms does not let the member join again."""


@plants(Heartbeats, "send_leave")
def a_member_leaves_without_a_word(original: Any, self: Heartbeats, now_ns: int) -> None:
    """The coordinator is not told that the member leaves."""
    self._leave_epoch = None


@plants(HeartbeatClock, "after")
def heartbeats_stop_after_the_target(*_: Any) -> int:
    """A stable member sends a heartbeat only if something has changed."""
    return 2**62


# Members by the classic protocol


@plants(ClassicMembership, "_prepare")
def eager_members_keep_their_partitions(original: Any, self: ClassicMembership) -> None:
    """Members with an eager assignor give nothing up before they join again."""
    self._is_cooperative = True
    original(self)


@plants(assignors, "_share")
def cooperative_members_take_what_others_still_have(original: Any, *arguments: Any) -> Any:
    """What moves is assigned to its next owner in the rebalance in which its owner learns of it."""
    return (original(*arguments)[0], {})


@plants(ClassicMembership, "_lose_generation")
def a_removed_member_keeps_its_partitions(original: Any, self: ClassicMembership, *arguments: Any) -> None:
    """A member that the coordinator does not know joins again with what it had."""
    ownership, self._ownership = self._ownership, SimpleNamespace(lose=nothing)  # type: ignore[assignment]
    try:
        original(self, *arguments)
    finally:
        self._ownership = ownership


@plants(ClassicMembership, "_check_for_change")
def new_partitions_are_not_seen(*_: Any, **__: Any) -> None:
    """The leader of a classic group does not look at metadata of its topics."""


@plants(ClassicMembership, "_join_again")
def a_rebalance_is_not_followed(*_: Any, **__: Any) -> None:
    """A stable member does not join again when its group rebalances."""


@plants(ClassicMembership, "_send_leave")
def a_classic_member_leaves_without_a_word(original: Any, self: Any, now_ns: Any) -> Any:
    """LeaveGroup is not sent."""
    return self._finish_leave(self._leaving)
