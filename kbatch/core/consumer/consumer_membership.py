"""ConsumerMembership: a member of a group by the consumer protocol (KIP-848).

Theory of operation. All of it happens in heartbeats. The first has the epoch 0 and everything about the
member. Later ones have what changed; after a failure one has everything again, since the coordinator may not
have got it. The answers have the member's epoch and its *target*: the partitions that it is to own.
`run` works towards that in steps: it gives up what is not in the target, lets the coordinator know
(ACKNOWLEDGING), takes what is new, and lets it know again. A member that owns its target is STABLE.

The coordinator computes targets a while after a join, and waits for other members to give partitions up. So
for two intervals after a change, heartbeats go out five times as often: the member then learns soon what it
gets.

A fenced member has lost everything: after the program knows that, it joins again with the epoch 0.

After org.apache.kafka.clients.consumer.internals.ConsumerMembershipManager and
ConsumerHeartbeatRequestManager; KIP-848, KIP-1082 (ids of members), KIP-1092 (staying in the group).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.client.lasting_faults import LastingFaults
from kbatch.core.consumer.group_coordinator import GROUP_LANE, LeaveLimit
from kbatch.core.consumer.member_state import (
    BEATING,
    TRANSITIONS,
    HeartbeatOutcome,
    MemberEvent,
    MemberState,
)
from kbatch.core.consumer.membership import REMOVED, HeartbeatClock, assigned
from kbatch.core.consumer.pattern_topics import PatternTopics
from kbatch.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaError,
    ProtocolError,
)
from kbatch.errors.words import shown
from kbatch.logs import ClientLogger
from kbatch.protocol import messages
from kbatch.records import NO_TOPIC_ID, ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from kbatch.core.client.connections import Response
    from kbatch.core.consumer.membership import MemberContext, Rebalance
    from kbatch.core.consumer.subscription import Subscription
    from kbatch.protocol.structs import Message

logger = ClientLogger(__name__)

JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2  # epochs
# What to do about an error that ends the membership, beside the broker's words.
REMEDIES: Mapping[ErrorCode, str] = {
    ErrorCode.UNRELEASED_INSTANCE_ID: "another consumer has the same group.instance.id; close it, or give "
    "each its own",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer took over the same group.instance.id; give each its own",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "set group.remote.assignor to an assignor of the broker",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "stop some members, or raise the broker's group.consumer.max.size",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "add the ACL READ for the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "add the ACL DESCRIBE for the topics",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group's members have the classic protocol; set group.protocol=classic",
    ErrorCode.UNSUPPORTED_VERSION: "set group.protocol=classic, or upgrade the brokers to Kafka 4.0 or newer",
}


class ConsumerMembership:
    """A member by the consumer protocol. It fulfils `membership.Membership`.

    Parameters
    ----------
    context : MemberContext
    now_ns : int

    Attributes
    ----------
    state : MemberState
    """

    def __init__(self, context: MemberContext, now_ns: int) -> None:
        config = context.config
        self._context = context
        self._ownership = context.ownership
        self._coordinator = context.coordinator
        self._metrics = context.metrics
        self._instance_id = config.group_instance_id
        self._outside = ConsumerGroupMetadata(
            context.coordinator.group_id, group_instance_id=config.group_instance_id
        )
        self._member_id = context.new_member_id
        self._topics: frozenset[str] = frozenset()  # that it wants, as far as a pattern's are known
        self._listing: PatternTopics | None = None
        self._epoch = JOINS
        self._is_in_group = False  # as far as is known, from the first heartbeat on
        # the target by topic ids, whether the coordinator waits for what the member makes of it, and whether
        # the program knows of an assignment since the join
        self._target: Mapping[bytes, frozenset[int]] = {}
        self._is_target_open = False
        self._was_assigned = False
        self._ids: dict[TopicPartition, bytes] = {}  # of what is owned
        # heartbeats
        self._pending = AnyNodeRequest(GROUP_LANE)
        self._sent: dict[str, Any] = {}
        self._sent_ns = now_ns
        self._clock = HeartbeatClock()
        self._faults = LastingFaults(logger)
        self._is_urgent = False
        # the end
        self._leave_epoch: int | None = None  # that is to be sent
        self._leave_limit = LeaveLimit(context.config, now_ns)
        self._leaves: bool | None = None
        self._may_rejoin = False
        self.state = MemberState.UNSUBSCRIBED
        self.identity = self._outside
        self.error: KafkaError | None = None
        self.deadline_ns = NEVER_NS

    @property
    def is_member(self) -> bool:
        return self._epoch > 0 and self._is_in_group

    @property
    def is_out(self) -> bool:
        is_over = self.state in (MemberState.UNSUBSCRIBED, MemberState.FATAL)
        return is_over and self._ownership.is_released

    def topic_id_of(self, partition: TopicPartition) -> bytes:
        return self._ids.get(partition, NO_TOPIC_ID)

    def topics(self) -> Iterable[str]:
        return self._topics

    def _transition(self, event: MemberEvent) -> None:
        """Enter the next state. Raise IllegalStateError, and change nothing, if this state has none."""
        state = TRANSITIONS[self.state].get(event)
        if state is None:
            raise IllegalStateError(f"{self}: {event.value} while {self.state.value}")
        if state is not self.state:
            logger.debug("%s: %s, since %s", self, state.value, event.value)
        self.state = state

    def __str__(self) -> str:
        return f"member {shown(self._member_id)} of group {self._coordinator.group_id} in epoch {self._epoch}"

    # What the engine wants

    def subscribe(self, subscription: Subscription, now_ns: int) -> None:
        self._listing = None
        if subscription.pattern is None:
            self._topics = subscription.topics
        else:
            config = self._context.config
            self._listing = PatternTopics(subscription, self._coordinator, config, self._take_topics)
        if self.state is MemberState.UNSUBSCRIBED:
            self._join(now_ns)
        else:
            self._hurry(now_ns)

    def acknowledge(self, rebalance: Rebalance, now_ns: int) -> None:
        self._ids = {each: topic_id for each, topic_id in self._ids.items() if each in self._ownership.owned}

    def leave(self, now_ns: int, *, leave: bool | None) -> None:
        if MemberEvent.LEAVE not in TRANSITIONS[self.state]:
            return
        self._transition(MemberEvent.LEAVE)
        self._leaves = leave
        if self.is_member:
            self._ownership.withdraw()
        else:
            self._ownership.lose()

    def expire(self, now_ns: int) -> None:
        if MemberEvent.EXPIRE not in TRANSITIONS[self.state]:
            return
        self._transition(MemberEvent.EXPIRE)
        was_in_group = self._is_in_group
        self._quit(now_ns)
        self._may_rejoin = False
        if was_in_group:
            self._begin_leave(LEAVES if self._instance_id is None else LEAVES_FOR_A_WHILE, now_ns)

    def rejoin(self, now_ns: int) -> None:
        self._may_rejoin = True

    def handle_commit_refused(self, code: ErrorCode, generation: int, now_ns: int) -> None:
        if generation == self._epoch:
            self._is_urgent = True

    # Work

    def run(self, now_ns: int) -> None:
        self.deadline_ns = NEVER_NS
        if self.state in (MemberState.FENCED, MemberState.STALE) and self._ownership.is_released:
            if self.state is MemberState.FENCED or self._may_rejoin:
                self._join(now_ns)
        elif self.state is MemberState.PREPARE_LEAVING:
            self._release(now_ns)
        try:
            if self._listing is not None and self.state in BEATING:
                self._listing.run(now_ns)
                self._wait(self._listing.deadline_ns)
            if self._leave_epoch is not None:
                self._send_leave(self._leave_epoch, now_ns)
            else:
                self._reconcile(now_ns)
                self._beat(now_ns)
                self._reconcile(now_ns)  # after an acknowledgement
        except KafkaError as error:
            self._fail(error, now_ns)
        if self.state is MemberState.LEAVING and self._leave_epoch is None and not self._pending.is_in_flight:
            self._transition(MemberEvent.LEFT)

    def _wait(self, until_ns: int) -> None:
        self.deadline_ns = min(self.deadline_ns, until_ns)

    def _join(self, now_ns: int) -> None:
        """Begin a membership."""
        self._transition(MemberEvent.JOIN)
        self._leave_epoch = None
        self._target, self._is_target_open, self._was_assigned = {}, False, False
        self._ids.clear()
        self._reset_heartbeats()

    def _reset_heartbeats(self) -> None:
        """Forget the answer that is awaited, and what the coordinator knows."""
        self._pending = AnyNodeRequest(GROUP_LANE)
        self._sent.clear()
        self._is_urgent = False

    def _quit(self, now_ns: int) -> None:
        """Be no member any more, and lose what was owned."""
        self._epoch, self._is_in_group = JOINS, False
        self.identity = self._outside
        self._reset_heartbeats()
        self._metrics.rebalance_failed(now_ns)
        self._ownership.lose()

    def _fail(self, error: KafkaError, now_ns: int) -> None:
        """End the membership, unless it ends anyway."""
        if MemberEvent.FAIL not in TRANSITIONS[self.state]:
            self._leave_epoch = None
            return
        logger.error("%s: the membership has ended: %s", self, error)
        self._transition(MemberEvent.FAIL)
        self.error = error
        self._quit(now_ns)

    # Towards the target

    def _reconcile(self, now_ns: int) -> None:
        """Ask for the next step from what is owned to the target."""
        if self.state is not MemberState.RECONCILING or not self._ownership.is_idle:
            return
        target, unnamed = self._named_target()
        owned = self._ownership.owned
        revoked = [each for each in owned if target.get(each) != self._ids[each]]
        added = [each for each in target if each not in owned]
        is_reached = self._was_assigned and not (revoked or added or unnamed)
        if owned != self._sent.get("owned") or (is_reached and self._is_target_open):
            # also if a new target changes nothing: the coordinator waits for the answer
            self._is_target_open = not is_reached
            self._sent.pop("topic_partitions", None)
            self._transition(MemberEvent.OWN)
        elif revoked:
            self._ownership.revoke(revoked)
        elif added or not self._was_assigned:
            self._was_assigned = True
            self._ids.update((each, target[each]) for each in added)
            self._ownership.assign(added)
        elif unnamed:
            self._context.topic_ids.request(unnamed, now_ns)
            self._wait(self._context.topic_ids.deadline_ns)
        else:
            self._transition(MemberEvent.SETTLE)
            self._metrics.rebalance_ended(now_ns)

    def _named_target(self) -> tuple[dict[TopicPartition, bytes], list[bytes]]:
        """Return the target's partitions with the ids of their topics, and the ids without a name so far."""
        named: dict[TopicPartition, bytes] = {}
        unnamed = []
        owned_names = {topic_id: each.topic for each, topic_id in self._ids.items()}
        for topic_id, partitions in self._target.items():
            name = self._context.topic_ids.name_of(topic_id) or owned_names.get(topic_id)
            if name is None:
                unnamed.append(topic_id)
            else:
                named.update((TopicPartition(name, number), topic_id) for number in partitions)
        return named, unnamed

    # Topics

    def _take_topics(self, now_ns: int) -> None:
        """Let the coordinator know which topics the pattern matches now."""
        self.deadline_ns = now_ns
        listing = self._listing
        if listing is not None and listing.is_known and listing.topics != self._topics:
            self._topics = listing.topics
            self._hurry(now_ns)

    # Heartbeats

    def _hurry(self, now_ns: int) -> None:
        """Let the next heartbeat go out at once, and others soon after it: something has changed."""
        self._is_urgent = True
        self._clock.unsettle(now_ns)

    def _beat(self, now_ns: int) -> None:
        """Send the next heartbeat if it is due."""
        if self.state not in BEATING or self._pending.is_in_flight:
            return
        is_joining = self.state is MemberState.JOINING
        if is_joining and not self._ownership.is_released:
            return  # an earlier membership is not over
        if is_joining and self._listing is not None and not self._listing.is_known:
            return
        if not is_joining and not self._is_in_group:
            return
        is_now = is_joining or self._is_urgent or self.state is MemberState.ACKNOWLEDGING
        due_ns = 0 if is_now else self._clock.after(self._sent_ns, self._member_id)
        due_ns = max(due_ns, self._pending.not_before_ns)
        if now_ns < due_ns:
            self._wait(due_ns)
            return
        fields, owned = self._fields(), self._ownership.owned
        sent = self._coordinator.send(
            self._pending,
            messages.ConsumerGroupHeartbeatRequest,
            partial(self._request, fields),
            partial(self._take, self._pending, now_ns),
            now_ns,
        )
        if not sent:
            self._wait(self._pending.deadline_ns)
            return
        self._metrics.heartbeat_sent(now_ns)
        self._is_in_group = True
        self._is_urgent = False
        self._sent_ns = now_ns
        self._sent = {**fields, "owned": owned}
        if self.state is MemberState.ACKNOWLEDGING:
            self._transition(MemberEvent.ACKNOWLEDGE)
            self._clock.unsettle(now_ns)

    def _fields(self) -> dict[str, Any]:
        """Return the member's part of a heartbeat, which is left out if it was sent before."""
        config = self._context.config
        return {
            "rack_id": config.client_rack or None,
            "rebalance_timeout_ms": config.max_poll_interval_ms,
            "subscribed_topic_names": sorted(self._topics),
            "server_assignor": config.group_remote_assignor,
            "topic_partitions": self._claims(),
        }

    def _claims(self) -> dict[bytes, list[int]]:
        """Return the partitions that nobody else may get, by topic id: what is owned, what an open step adds,
        and the rest of the target. The coordinator counts what is left out as given up, and its next target
        comes too late for a step that the program takes meanwhile.
        """
        claims = {topic_id: set(partitions) for topic_id, partitions in self._target.items()}
        for each in self._ownership.claimed:
            claims.setdefault(self._ids[each], set()).add(each.partition)
        return {topic_id: sorted(partitions) for topic_id, partitions in claims.items()}

    def _request(self, fields: Mapping[str, Any], _version: int) -> Message:
        kind = messages.ConsumerGroupHeartbeatRequest
        changed = {name: value for name, value in fields.items() if self._sent.get(name, self) != value}
        if "topic_partitions" in changed:
            changed["topic_partitions"] = [
                kind.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in changed["topic_partitions"].items()
            ]
        return kind(
            group_id=self._coordinator.group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self._instance_id,
            **changed,
        )

    def _take(self, pending: AnyNodeRequest, sent_ns: int, response: Response) -> None:
        """Take the answer to a heartbeat, unless the membership for which it was sent is over."""
        now_ns = response.now_ns
        self._metrics.heartbeat_answered(sent_ns, now_ns)
        if pending is not self._pending:
            return
        is_joining = self.state is MemberState.JOINING
        outcome, error = self._coordinator.judge_heartbeat(response, "group", REMEDIES, is_joining=is_joining)
        if error is None:
            if not is_joining:
                self._faults.end(REMOVED, f"{self}: the coordinator has it again", now_ns)
            try:
                self._take_answer(response.message, now_ns)
            except ProtocolError as fault:
                self._fail(fault, now_ns)
        elif outcome is HeartbeatOutcome.FAIL:
            self._fail(error, now_ns)
        elif outcome is HeartbeatOutcome.REJOIN:
            self._faults.note(REMOVED, f"{self}: the coordinator has removed it ({error.code})", now_ns)
            self._transition(MemberEvent.FENCE)
            self._quit(now_ns)
        else:
            self._try_again(outcome, now_ns)

    def _try_again(self, outcome: HeartbeatOutcome, now_ns: int) -> None:
        """Send everything about the member again."""
        self._sent.clear()
        self._is_urgent = True
        self._coordinator.repeat_heartbeat(self._pending, outcome, now_ns)

    def _take_answer(self, answer: Any, now_ns: int) -> None:
        """Take a good answer: the epoch, the interval and the target."""
        self._pending.attempts = self._pending.not_before_ns = 0
        self._clock.take_interval(answer.heartbeat_interval_ms)
        if answer.member_id:
            self._member_id = answer.member_id
        if answer.member_epoch > 0:
            self._epoch = answer.member_epoch
            self.identity = ConsumerGroupMetadata(
                self._coordinator.group_id, self._epoch, self._member_id, self._instance_id
            )
        if MemberEvent.TARGET not in TRANSITIONS[self.state]:
            return
        target = self._target
        if answer.assignment is not None:
            target = {each: partitions for each, partitions in assigned(answer).items() if partitions}
        if target != self._target or self.state is MemberState.JOINING:
            self._target, self._is_target_open = target, True
            self._clock.unsettle(now_ns)
            self._metrics.rebalance_begun(now_ns)
            self._transition(MemberEvent.TARGET)

    # The end

    def _release(self, now_ns: int) -> None:
        """Give up what is owned, and leave."""
        if self._ownership.is_idle and self._ownership.owned:
            self._ownership.revoke(self._ownership.owned)
        elif self._ownership.is_idle:
            self._transition(MemberEvent.RELEASE)
            if self._is_in_group:
                self._begin_leave(self._epoch_to_leave(), now_ns)
            self._quit(now_ns)

    def _epoch_to_leave(self) -> int | None:
        """Return the epoch that says how the member leaves; None if it lets the session end."""
        if self._instance_id is None:
            return None if self._leaves is False else LEAVES
        return LEAVES if self._leaves else LEAVES_FOR_A_WHILE

    def _begin_leave(self, epoch: int | None, now_ns: int) -> None:
        self._leave_epoch = epoch
        self._leave_limit = LeaveLimit(self._context.config, now_ns)

    def _send_leave(self, epoch: int, now_ns: int) -> None:
        """Let the coordinator know of the end, within the limit."""
        sent = self._coordinator.send(
            self._pending,
            messages.ConsumerGroupHeartbeatRequest,
            lambda version: messages.ConsumerGroupHeartbeatRequest(
                group_id=self._coordinator.group_id,
                member_id=self._member_id,
                member_epoch=epoch,
                instance_id=self._instance_id,
            ),
            partial(self._take_leave, self._pending, epoch, now_ns),
            now_ns,
        )
        if sent:
            self._metrics.heartbeat_sent(now_ns)
        if sent or self._leave_limit.is_over(self._coordinator, now_ns):
            self._leave_epoch = None
        else:
            self._wait(min(self._pending.deadline_ns, self._leave_limit.deadline_ns(now_ns)))

    def _take_leave(self, pending: AnyNodeRequest, epoch: int, sent_ns: int, response: Response) -> None:
        self._metrics.heartbeat_answered(sent_ns, response.now_ns)
        if pending is self._pending and self._coordinator.repeats_leave(pending, response):
            self._leave_epoch = epoch
