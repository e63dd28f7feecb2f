"""Positions: where a partition is read from, and what happens if the log no longer has that offset.

Theory of operation. A partition begins at an offset, or at one that ListOffsets finds. Later its position may
turn out to be missing. It is before the beginning of the log or after its end (OFFSET_OUT_OF_RANGE), or in a
part that an unclean election has replaced (a diverging epoch, KIP-320). Or the topic was deleted and created
again. Then the reset policy finds another position, and the program gets a `Moved`; without a policy
the partition fails with the error.

Brokers compare epochs in each Fetch from version 12 on (KIP-595). Older ones get an OffsetForLeaderEpoch
after each change of leader.

After org.apache.kafka.clients.consumer.internals.OffsetFetcherUtils and SubscriptionState.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from kbatch.core.client.backoff import NS_PER_MS
from kbatch.core.consumer.leader_requests import (
    EpochEnd,
    EpochRequest,
    FoundOffset,
    LeaderRequests,
    OffsetRequest,
)
from kbatch.core.consumer.partition_state import (
    EARLIEST_LOCAL,
    LATEST,
    NO_EPOCH,
    FetchEvent,
    FetchState,
    OffsetSpec,
    PartitionState,
    Start,
)
from kbatch.core.consumer.results import Failed, Fetched, Moved, Result
from kbatch.errors import (
    DataLossError,
    KafkaError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnsupportedVersionError,
)
from kbatch.records import NO_TOPIC_ID

if TYPE_CHECKING:
    from kbatch.core.client.cluster import Cluster

# Time for which metadata may name another topic than the one that a position is of: brokers learn of a new
# topic at different times.
TOPIC_PATIENCE_NS = 5_000 * NS_PER_MS


class Positions:
    """Finds and corrects the positions of partitions.

    Parameters
    ----------
    cluster : Cluster
    leader_requests : LeaderRequests
    results : list of Result
        Gets what the program is to know.
    wall_clock_ms : Callable[[], int]
        Returns milliseconds since 1970, from which a duration of the reset policy counts back.
    on_found : Callable[[], object]
        Called after the first position of a partition was looked up.
    remedy : str
        What the program can do about a position that the log does not have, for errors.
    """

    def __init__(
        self,
        cluster: Cluster,
        leader_requests: LeaderRequests,
        results: list[Result],
        wall_clock_ms: Callable[[], int],
        on_found: Callable[[], object],
        remedy: str,
    ) -> None:
        self._cluster = cluster
        self._leader_requests = leader_requests
        self._results = results
        self._wall_clock_ms = wall_clock_ms
        self._on_found = on_found
        self._remedy = remedy

    def begin(self, state: PartitionState, start: Start | OffsetSpec | timedelta, now_ns: int) -> None:
        """Find the first position of a new partition: an offset, that at a time, or a duration back. It is
        one in the topic that a Start names, or else in the one that is known by the name now.
        """
        if isinstance(start, Start) and start.topic_id != NO_TOPIC_ID:
            state.topic_id, state.is_topic_given, state.is_topic_sure = start.topic_id, True, False
        elif state.assigned_id != NO_TOPIC_ID:
            state.topic_id = state.assigned_id
        else:
            state.topic_id = self._cluster.snapshot.topic_id(state.partition.topic)
        if isinstance(start, Start):
            state.move_to(start.offset, start.leader_epoch)
            self._complete_at_end(state)
        else:
            state.transition(FetchEvent.RESET)
            self._look_up(state, self._spec_of(start), None, now_ns)

    def fail(self, state: PartitionState, error: KafkaError) -> None:
        """Stop reading a partition, with an error."""
        state.transition(FetchEvent.FAIL)
        self._results.append(Failed(state.partition, state.generation, error))

    # Positions that the log does not have

    def handle_out_of_range(self, state: PartitionState, now_ns: int) -> None:
        """Reset a position that the leader's log does not have."""
        error = OffsetOutOfRangeError(
            f"{state.partition}: the log does not have offset {state.fetch_offset}{_bounds(state)}"
            f"{self._remedy_of(state)}"
        )
        error.partitions = {state.partition: state.fetch_offset}
        self._reset(state, error, now_ns)

    def handle_divergence(
        self, state: PartitionState, leader_epoch: int, end_offset: int, current_epoch: int, now_ns: int
    ) -> None:
        """Correct a position before which the leader's log differs from what was read: the leader has the
        last epochs up to `leader_epoch`, which ends at `end_offset`. Negative: it has none of them.
        `current_epoch` is the leader's own.
        """
        position = state.fetch_offset
        if NO_EPOCH < current_epoch <= state.last_epoch:
            # No truncation: a leader has all records of its own epoch, and no epoch comes after it.
            self._reset(state, _of_another_log(state, current_epoch, self._remedy_of(state)), now_ns)
            return
        is_known = leader_epoch >= 0 and end_offset >= 0
        offset = min(position, end_offset) if is_known else position
        where = f", which differs from offset {offset} on" if is_known else ""
        error = LogTruncationError(
            f"{state.partition}: records before offset {position}, read in leader epoch {state.last_epoch}, "
            f"are not in the leader's log{where}{self._remedy_of(state)}"
        )
        error.partitions = {state.partition: position}
        error.divergent_offsets = {state.partition: offset} if is_known else {}
        if state.reset is None or not is_known:
            self._reset(state, error, now_ns)
        elif state.is_bounded:  # a range goes forward only
            self._move(state, position, NO_EPOCH, error)
        else:
            self._move(state, offset, leader_epoch, error)

    def accept_topic(self, state: PartitionState, topic_id: bytes, now_ns: int) -> bool:
        """True if the partition is read from the topic that has its name in the metadata. They may be older
        than the position. So a topic that only they have named gives way to another; and another than the
        one that the start has named counts only if newer metadata names it too, for some time.
        """
        if state.topic_id == NO_TOPIC_ID or not (state.is_topic_given or state.is_topic_sure):
            state.find_topic(topic_id)
            return True
        if not state.is_topic_sure and now_ns < state.created_ns + TOPIC_PATIENCE_NS:
            self._cluster.request_update(now_ns)
        else:
            self.handle_new_topic(state, topic_id, now_ns)
        return False

    def handle_new_topic(self, state: PartitionState, topic_id: bytes, now_ns: int) -> None:
        """Reset the position in a topic that was deleted and created again: offsets of the old one mean
        nothing in it.
        """
        state.topic_id, state.is_topic_sure = topic_id, True
        state.forget_log()
        position = state.fetch_offset
        error = DataLossError(
            f"{state.partition}: the topic was deleted and created again, and offset {position} was of the "
            f"old one{self._remedy_of(state)}"
        )
        if state.is_bounded:
            error.lost = {state.partition: (position, state.end_offset)}
        if state.is_bounded and state.reset is not None:
            self._move(state, state.end_offset, NO_EPOCH, error)
        else:
            self._reset(state, error, now_ns)

    def _remedy_of(self, state: PartitionState) -> str:
        """Return what the program can do, for an error that it gets: there is no policy that goes on."""
        return "" if state.reset is not None else f"; {self._remedy}"

    def _reset(self, state: PartitionState, error: KafkaError, now_ns: int) -> None:
        policy = state.reset
        if policy is None:
            self.fail(state, error)
            return
        state.transition(FetchEvent.RESET)
        self._look_up(state, self._spec_of(policy), error, now_ns)

    def _spec_of(self, time: OffsetSpec | timedelta) -> OffsetSpec:
        """Return what to look up for a time, or for a duration back from now."""
        if isinstance(time, timedelta):
            return OffsetSpec(max(self._wall_clock_ms() - time // timedelta(milliseconds=1), 0))
        return time

    def _look_up(
        self, state: PartitionState, spec: OffsetSpec, error: KafkaError | None, now_ns: int
    ) -> None:
        finish = partial(self._take_offset, state, spec, error)
        self._leader_requests.submit(OffsetRequest(state.partition, spec, finish, now_ns), now_ns)

    def _take_offset(
        self,
        state: PartitionState,
        spec: OffsetSpec,
        reason: KafkaError | None,
        found: FoundOffset | None,
        error: KafkaError | None,
        now_ns: int,
    ) -> None:
        """Handle the result of a look-up, which `reason` has made necessary; None at the beginning."""
        if state.state is not FetchState.RESETTING:
            return
        if error is not None:
            self.fail(state, error)
        elif found is None:  # no record is as late: the next one will be
            self._look_up(state, LATEST, reason, now_ns)
        elif reason is None:
            state.move_to(found.offset, NO_EPOCH)
            self._complete_at_end(state)
            self._on_found()
        else:
            self._move(state, state.after_loss(found.offset), NO_EPOCH, reason)

    def _move(self, state: PartitionState, offset: int, last_epoch: int, reason: KafkaError) -> None:
        before = state.fetch_offset
        state.move_to(offset, last_epoch)
        self._results.append(
            Moved(state.partition, state.generation, before, offset, reason, last_epoch, state.topic_id)
        )
        self._complete_at_end(state)

    def _complete_at_end(self, state: PartitionState) -> None:
        """Report a range that has nothing to read."""
        if state.is_bounded and state.fetch_offset >= state.end_offset:
            state.transition(FetchEvent.COMPLETE)
            end = state.end_offset
            self._results.append(Fetched(state, None, from_offset=end, next_offset=end, is_last=True))

    # Ranges that end in a gap

    def check_remaining(self, state: PartitionState, now_ns: int) -> None:
        """Complete a partition whose leader has sent no record although the range is below the end of the
        log: compaction has removed them. A position in tiered storage says nothing, since an answer from
        there may be late (KIP-405); so the beginning of the local log must not be after it.
        """
        position = state.fetch_offset
        if state.empty_from != position:
            state.empty_from = position
            finish = partial(self._take_local_start, state, position)
            request = OffsetRequest(state.partition, EARLIEST_LOCAL, finish, now_ns)
            self._leader_requests.submit(request, now_ns)

    def _take_local_start(
        self,
        state: PartitionState,
        position: int,
        found: FoundOffset | None,
        error: KafkaError | None,
        now_ns: int,
    ) -> None:
        state.empty_from = -1
        if state.state is not FetchState.FETCHING or state.fetch_offset != position:
            return
        has_tiers = not isinstance(error, UnsupportedVersionError)
        if not has_tiers or (found is not None and found.offset <= position):
            end = state.end_offset
            state.transition(FetchEvent.COMPLETE)
            self._results.append(Fetched(state, None, from_offset=position, next_offset=end, is_last=True))

    # Brokers that do not compare epochs

    def validate(self, state: PartitionState, now_ns: int) -> None:
        """Compare the position with the log of a new leader before anything more is read."""
        _, state.checked_epoch = self._cluster.snapshot.leader(*state.partition)
        state.transition(FetchEvent.VALIDATE)
        finish = partial(self._take_epoch_end, state)
        self._leader_requests.submit(EpochRequest(state.partition, state.last_epoch, finish, now_ns), now_ns)

    def _take_epoch_end(
        self, state: PartitionState, end: EpochEnd | None, error: KafkaError | None, now_ns: int
    ) -> None:
        if state.state is not FetchState.VALIDATING:
            return
        if error is not None and not isinstance(error, UnsupportedVersionError):
            self.fail(state, error)
        elif end is not None and (end.leader_epoch < state.last_epoch or end.end_offset < state.fetch_offset):
            self.handle_divergence(state, end.leader_epoch, end.end_offset, state.checked_epoch, now_ns)
        else:  # it agrees, or the broker cannot say: then Java continues, too
            state.move_to(state.fetch_offset, state.last_epoch)


def _of_another_log(state: PartitionState, current_epoch: int, remedy: str) -> OffsetOutOfRangeError:
    """Return the error of a position that the leader's log has never had."""
    error = OffsetOutOfRangeError(
        f"{state.partition}: offset {state.fetch_offset} of leader epoch {state.last_epoch} is not of this "
        f"log, whose leader is in epoch {current_epoch}: the topic was deleted and created again, or another "
        f"program has committed it{remedy}"
    )
    error.partitions = {state.partition: state.fetch_offset}
    return error


def _bounds(state: PartitionState) -> str:
    """Return what is known of the log, for an error."""
    if state.high_watermark < 0:
        return ""
    return f": at the last answer it was from {max(state.log_start_offset, 0)} to {state.high_watermark}"
