"""GroupEngine: a ReadingEngine whose partitions a group may assign, without sockets, threads and clocks.

Theory of operation. `subscribe` makes a membership, by the protocol that group.protocol names or the
coordinator offers. The membership asks for steps: the program's thread takes each by `take_rebalance` between
two polls, commits and runs its callbacks, and calls `finish_rebalance`. Partitions of an assignment are known
from `take_rebalance` on, so that callbacks may seek and pause; they are read from `finish_rebalance` on, from
their committed offsets, or else by auto.offset.reset.

`note_poll` keeps the membership alive (MemberEngine).

Requests of the membership have a connection of their own (GROUP_PURPOSE), so neither a long Fetch nor a slow
look-up delays a heartbeat.

After org.apache.kafka.clients.consumer.internals.AsyncKafkaConsumer and ConsumerNetworkThread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Unpack

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.core.client.calls import Call
from kbatch.core.consumer.classic_membership import ClassicMembership
from kbatch.core.consumer.commits import CommitOffsets, Commits, CommittedLookup
from kbatch.core.consumer.consumer_membership import ConsumerMembership
from kbatch.core.consumer.engine import EngineOptions
from kbatch.core.consumer.group_metrics import GroupMetrics
from kbatch.core.consumer.member_engine import MemberEngine
from kbatch.core.consumer.membership import (
    MemberContext,
    Membership,
    Ownership,
    Rebalance,
    Subscription,
)
from kbatch.core.consumer.partition_state import (
    COMMITTED,
    NO_END,
    FetchEvent,
    FetchState,
    PartitionState,
    Start,
)
from kbatch.errors import (
    ErrorCode,
    InvalidGroupIdError,
    KafkaError,
    NoOffsetForPartitionError,
    UnsupportedVersionError,
)
from kbatch.logs import ClientLogger
from kbatch.metrics import CONSUMER_METRICS, COORDINATOR_METRICS, PROCESS_METRICS, Metric
from kbatch.protocol import messages
from kbatch.records import NO_TOPIC_ID, ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from kbatch.config import ConsumerConfig

logger = ClientLogger(__name__)

# The feature of the cluster that has the consumer protocol (KIP-848).
GROUP_VERSION = "group.version"
# Refusals after which group.protocol=auto uses the classic protocol: the cluster or the group does not have
# the other one.
WANTS_CLASSIC = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
)
PROTOCOLS: Mapping[str, Callable[[MemberContext, int], Membership]] = {
    "classic": ClassicMembership,
    "consumer": ConsumerMembership,
}


class GroupEngine(MemberEngine):
    """The engine of a consumer, with or without a group.

    Parameters
    ----------
    config : ConsumerConfig
    random, registry, now_ns, wall_clock_ms, on_change
        Parameters of ReadingEngine; `registry` has COORDINATOR_METRICS too. `on_change` is also called after
        a step of a rebalance was asked for, a membership has ended, or committed offsets were found.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (*CONSUMER_METRICS, *COORDINATOR_METRICS, *PROCESS_METRICS)

    def __init__(self, config: ConsumerConfig, **options: Unpack[EngineOptions]) -> None:
        super().__init__(config, **options)
        self._ownership = Ownership(self._generations, self._on_change)
        metrics = GroupMetrics(options["registry"], lambda: len(self._fetcher.partitions))
        self._context = MemberContext(
            config,
            self._cluster,
            self._coordinator,
            self._ownership,
            self._topic_ids,
            metrics,
            self._new_member_id,
        )
        self._commits = Commits(
            self._cluster,
            self._coordinator,
            self._ownership,
            metrics,
            timeout_ms=config.default_api_timeout_ms,
            on_change=self._on_change,
        )
        self._looking_up: list[PartitionState] = []  # whose look-up is not sent
        # the membership that the program wants, the one that there is, and the search for its protocol
        self._subscription: Subscription | None = None
        self._membership: Membership | None = None
        self._membership_error: KafkaError | None = None
        self._choosing = AnyNodeRequest()
        self._reminder_ns = _reminder_ms(config) * NS_PER_MS
        self._reminded_ns = self.polled_ns  # the poll after which the program was reminded to poll again

    # For any thread; the caller wakes the owner

    def subscribe(self, subscription: Subscription) -> None:
        """Join the group, or change the subscription. It also recovers from `membership_error`. The
        program must not assign partitions itself until it has left. Raise InvalidGroupIdError without
        group.id.
        """
        self._check_group("subscribe")

        def subscribe(now_ns: int) -> None:
            self._subscription = subscription
            for topic in subscription.topics:
                self._cluster.want(topic, now_ns)
            self._commits.is_subscribed = True
            if self._membership_error is not None:
                self._membership_error = None
                self._set_membership(None)
            elif self._membership is not None and not self._leave_calls:
                self._membership.subscribe(subscription, now_ns)
            if self._membership is None:
                self.polled_ns = max(self.polled_ns, now_ns)

        self.submit(subscribe)

    def leave(self, call: Call, leave: bool | None = None) -> None:
        """Revoke what the group has assigned, and leave it: for unsubscribe() and close(). The program takes
        and finishes rebalances until the call is done. Without a membership it is done at once.

        Parameters
        ----------
        call : Call
        leave : bool | None
            False keeps the member in the group until its session ends; True makes a static member leave for
            good. None is the default: static members stay, others do not (KIP-1092).
        """

        def begin(call: Call, now_ns: int) -> None:
            self._subscription = None
            self._leave_calls.append(call)
            if self._membership is not None:
                self._membership.leave(now_ns, leave=leave)

        self.call(call, begin)

    def note_poll(self, now_ns: int) -> bool:
        """Record a poll, or a wait in one: call it at least once in max.poll.interval.ms.
        Return True if the caller has to wake the owner: the member joins again now, or the owner does not
        know yet when to remind the program of the next poll.
        """
        before, self.polled_ns = self.polled_ns, now_ns
        return self._expired_ns is not None or self._reminded_ns == before

    @property
    def rebalance(self) -> Rebalance | None:
        """The step that waits for the program; `on_change` was called after it came."""
        return self._ownership.offered

    def take_rebalance(self, offered: Rebalance | None = None) -> Rebalance | None:
        """Return the step that waits for the program, which then has to do it and call `finish_rebalance`.
        `offered` is returned again if it was taken already, by a call that was interrupted.

        revoke: hand out nothing more of the partitions, commit what was handed out, and run on_revoked.
        assign: results of these partitions have the step's number as their generation; run on_assigned, in
        which `seek` and `pause` may be called.
        lost: hand out nothing more, and commit nothing; run on_lost.
        """
        step = self._ownership.take()
        if step is None and offered is not None and self._ownership.is_open(offered):
            step = offered
        if step is not None and step.kind == "assign":
            self.submit(partial(self._prepare, step))
        return step

    def finish_rebalance(self, rebalance: Rebalance) -> None:
        """Finish the step in the next `run`, since the program has done it."""
        self.submit(partial(self._finish_rebalance, rebalance))

    def find_position(self, partition: TopicPartition) -> None:
        """Find the position of a partition while its assignment is not finished, for callbacks."""

        def look_up(now_ns: int) -> None:
            state = self._fetcher.partitions.get(partition)
            if state is not None and state.state is FetchState.NEW:
                self._look_up_committed(state, now_ns)

        self.submit(look_up)

    def commit(self, call: CommitOffsets) -> None:
        """Schedule the call for the next `run`. Commits are sent, and done, in the order of these calls.
        Raise InvalidGroupIdError without group.id.
        """
        self._check_group(call.name)
        self.call(call, partial(self._make, self._begin_commit))

    def committed(self, call: CommittedLookup) -> None:
        """Schedule the call for the next `run`. Raise InvalidGroupIdError without group.id."""
        self._check_group(call.name)
        self.call(call, partial(self._make, self._commits.look_up))

    @property
    def group_member_id(self) -> str:
        membership = self._membership
        return "" if membership is None else membership.identity.member_id

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member, for `send_offsets_to_transaction`. Raise InvalidGroupIdError without group.id."""
        group_id, membership = self._check_group("group_metadata"), self._membership
        if membership is not None:
            return membership.identity
        return ConsumerGroupMetadata(group_id, group_instance_id=self._config.group_instance_id)

    @property
    def membership_error(self) -> KafkaError | None:
        """The error that has ended the membership. The next poll raises it; `subscribe` recovers."""
        return self._membership_error

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that the group has assigned and the program has taken."""
        return self._ownership.owned

    def _check_group(self, name: str) -> str:
        group_id = self._config.group_id
        if group_id is None:
            raise InvalidGroupIdError(f"{name}() needs a group; set group.id")
        return group_id

    # What is to be done

    def fail(self, error: KafkaError) -> None:
        if self._fatal_error is None:
            self._commits.fail(error)
            for call in self._leave_calls:
                call.finish(error)
            super().fail(error)

    def _work(self, now_ns: int) -> None:
        if self._fatal_error is None:
            self._run_membership(now_ns)
            if self._looking_up:
                self._send_lookup(now_ns)
            if self._commits.is_open:
                self._commits.run(now_ns)
            self._remind(now_ns)
        super()._work(now_ns)

    def _has_work(self, now_ns: int) -> bool:
        return self._fatal_error is None and (
            self._membership is not None
            or self._subscription is not None
            or self._commits.is_open
            or bool(self._leave_calls)
            or now_ns >= self._due_reminder_ns()
            or super()._has_work(now_ns)
        )

    def _work_deadline_ns(self, now_ns: int) -> int:
        deadline_ns = super()._work_deadline_ns(now_ns)
        if self._fatal_error is not None:
            return deadline_ns
        deadline_ns = min(deadline_ns, self._due_reminder_ns())
        if self._commits.is_open:
            deadline_ns = min(deadline_ns, self._commits.deadline_ns())
        if self._membership is not None:
            return min(deadline_ns, self._membership.deadline_ns, self._expiry_ns())
        if self._subscription is not None and self._membership_error is None:
            return min(deadline_ns, self._choosing.deadline_ns)
        return deadline_ns

    def _topics_in_use(self) -> Iterable[str]:
        subscribed = () if self._subscription is None else self._subscription.topics
        member = () if self._membership is None else self._membership.topics()
        return {*super()._topics_in_use(), *subscribed, *member}

    # The membership

    def _run_membership(self, now_ns: int) -> None:
        member = self._membership
        if member is None and self._subscription is not None and self._membership_error is None:
            member = self._choose_protocol(now_ns)
        if member is not None:
            if reason := self._check_polls(member, now_ns):
                self._commits.left_reason = reason
            member.run(now_ns)
            if member.is_member:
                self._commits.left_reason = ""
            if member.error is not None and self._membership_error is None:
                self._note_end(member, member.error, now_ns)
        if self._leave_calls and (member is None or member.is_out):
            self._note_left()

    def _choose_protocol(self, now_ns: int) -> Membership | None:
        """Create the membership, if its protocol is known: the consumer protocol if the coordinator and
        the cluster have it.
        """
        protocol = self._config.group_protocol
        if protocol == "auto":
            try:
                node_id = self._context.coordinator.ready_node(self._choosing, now_ns)
            except KafkaError as error:
                self._membership_error = error
                self._on_change()
                return None
            if node_id is None:
                return None
            protocol = "consumer" if self._has_consumer_protocol(node_id) else "classic"
        return self._new_membership(protocol, now_ns)

    def _has_consumer_protocol(self, node_id: int) -> bool:
        try:
            self._connections.version_of(node_id, messages.ConsumerGroupHeartbeatRequest)
        except UnsupportedVersionError:
            return False
        return self._connections.finalized_features(node_id).levels.get(GROUP_VERSION, 0) >= 1

    def _new_membership(self, protocol: str, now_ns: int) -> Membership:
        assert self._subscription is not None
        logger.info("group %s: the member has the %s protocol", self._config.group_id, protocol)
        member = PROTOCOLS[protocol](self._context, now_ns)
        self._set_membership(member)
        member.subscribe(self._subscription, now_ns)
        return member

    def _set_membership(self, member: Membership | None) -> None:
        self._membership = self._commits.membership = member

    def _note_end(self, member: Membership, error: KafkaError, now_ns: int) -> None:
        """Report the error of a membership, or continue with the classic protocol."""
        is_automatic = self._config.group_protocol == "auto" and isinstance(member, ConsumerMembership)
        if is_automatic and error.code in WANTS_CLASSIC and self._subscription is not None:
            self._new_membership("classic", now_ns).run(now_ns)
        else:
            self._commits.left_reason = str(error)
            self._membership_error = error
            self._on_change()

    def _note_left(self) -> None:
        """End the calls of `leave`."""
        self._set_membership(None)
        self._membership_error = None
        self._expired_ns = None
        self._commits.is_subscribed = self._subscription is not None
        self._commits.left_reason = ""
        for call in self._leave_calls:
            call.finish()
        self._leave_calls.clear()
        self._on_change()

    # Reminders

    def _due_reminder_ns(self) -> int:
        is_due = self._config.group_id is not None and self._reminded_ns != self.polled_ns
        return self.polled_ns + self._reminder_ns if is_due else NEVER_NS

    def _remind(self, now_ns: int) -> None:
        """Remind a program that iterates over records that it should poll, once after each poll."""
        if now_ns >= self._due_reminder_ns():
            self._reminded_ns = self.polled_ns
            self._on_change()

    # Steps of a rebalance

    def _prepare(self, step: Rebalance, now_ns: int) -> None:
        """Add the partitions of an assignment, without reading them."""
        for partition in step.partitions:
            self._close([partition])
            state = PartitionState(partition, step.number, COMMITTED, NO_END, self._default_reset, now_ns)
            if self._membership is not None:
                state.assigned_id = self._membership.topic_id_of(partition)
            self._fetcher.add(state)
            self._cluster.want(partition.topic, now_ns)
            self._metrics.assigned(state)

    def _finish_rebalance(self, step: Rebalance, now_ns: int) -> None:
        if not self._ownership.finish(step):
            return
        if step.kind == "assign":
            for partition in step.partitions:
                state = self._fetcher.partitions.get(partition)
                if state is not None and state.state is FetchState.NEW:  # the program has not sought
                    self._look_up_committed(state, now_ns)
        else:
            self._close(step.partitions)
        if self._membership is not None:
            self._membership.acknowledge(step, now_ns)

    # Committed offsets

    def _begin_commit(self, call: CommitOffsets, now_ns: int) -> None:
        """Begin a commit. Offsets after the end of a log, as far as that is known, are probably mistakes: the
        next reader of the group would have a position out of range.
        """
        read = self._fetcher.partitions
        too_high = [
            f"{partition} at {each.offset}, although its log ended at {state.high_watermark} when last read"
            for partition, each in call.offsets.items()
            if (state := read.get(partition)) is not None
            and each.topic_id in (NO_TOPIC_ID, state.topic_id)
            and 0 <= state.high_watermark < each.offset
        ]
        if too_high:
            logger.warning("group %s: commits %s", self._config.group_id, "; ".join(too_high))
        self._commits.commit(call, now_ns)

    def _look_up_committed(self, state: PartitionState, now_ns: int) -> None:
        state.transition(FetchEvent.LOOK_UP)
        self._looking_up.append(state)

    def _send_lookup(self, now_ns: int) -> None:
        """Look up the committed offsets of all partitions that wait for theirs."""
        group_id, is_answered = self._config.group_id, self._cluster.is_answered
        # by the id of their topics, which metadata says: nothing is read without these
        states = [each for each in self._looking_up if group_id is None or is_answered(each.partition.topic)]
        if not states:
            return
        self._looking_up = [each for each in self._looking_up if each not in states]
        call = CommittedLookup(state.partition for state in states)
        call.topic_ids = {
            each.partition: each.assigned_id for each in states if each.assigned_id != NO_TOPIC_ID
        }
        if group_id is None:
            call.partitions.clear()  # which have none
            self._take_committed(states, call, now_ns)
        else:
            self._commits.look_up(call, now_ns, partial(self._take_committed, states))

    def _take_committed(self, states: Collection[PartitionState], call: CommittedLookup, now_ns: int) -> None:
        """Begin to read the partitions that have an answer."""
        call.partitions -= {each.partition for each in states if each.state is not FetchState.LOOKING_UP}
        open_ones = call.partitions if call.error is None else ()
        waiting = [
            each for each in states if each.state is FetchState.LOOKING_UP and each.partition not in open_ones
        ]
        without = tuple(
            sorted(
                each.partition for each in waiting if each.partition not in call.answer and each.reset is None
            )
        )
        group_id = self._config.group_id
        reason = "there is no group.id" if group_id is None else f"group {group_id} has no committed offset"
        missing = NoOffsetForPartitionError(
            f"{', '.join(map(str, without))}: {reason}, and auto.offset.reset=none; seek() to a position, or "
            "set auto.offset.reset to earliest, latest or by_duration"
        )
        missing.partitions = without
        for state in waiting:
            found = call.answer.get(state.partition)
            if call.error is not None:
                assert isinstance(call.error, KafkaError)
                self._positions.fail(state, call.error)
            elif found is not None:
                _, leader_epoch = self._cluster.snapshot.leader(*state.partition)
                if found.leader_epoch > leader_epoch:
                    self._cluster.request_update(now_ns)
                state.committed = found
                self._positions.begin(state, Start(found.offset, found.leader_epoch, found.topic_id), now_ns)
            elif state.reset is None:
                self._positions.fail(state, missing)
            else:
                self._positions.begin(state, state.reset, now_ns)
        self._on_change()


def _reminder_ms(config: ConsumerConfig) -> int:
    """Return how long after a poll the program is reminded to poll again: in time for max.poll.interval.ms,
    and for commits.
    """
    in_time_ms = config.max_poll_interval_ms // 2
    return (
        min(in_time_ms, max(config.auto_commit_interval_ms, 100)) if config.enable_auto_commit else in_time_ms
    )
