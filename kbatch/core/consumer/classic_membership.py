"""ClassicMembership: a member of a group by the classic protocol, whose members assign partitions themselves.

Theory of operation. All members of a group join it together, in a JoinGroup that the coordinator answers when
the last one has joined. The answer begins a generation. It makes one member the leader, which runs an
assignor; SyncGroup brings each member its partitions. From then on heartbeats keep the membership, and say
when the group rebalances. `TRANSITIONS` is the life of a membership; JOINING is its beginning.

With an *eager* assignor a member gives up all partitions before it joins again. If all its assignors are
*cooperative* it keeps them, and names them to the leader. What has to move is taken from its owner by one
rebalance, and is assigned by the next, which the owner requests (KIP-429). Claims carry their generation
(KIP-792).

A member that the coordinator has removed loses what it owned, and joins as another member. Steps that the
program does (Ownership) come first, so the member joins only after the program knows what it has lost.

A static member (group.instance.id) that comes back gets the partitions it had, without a rebalance (KIP-345).
If it leads, it does not assign (KIP-814). It leaves only if the program says so (KIP-1092).

The leader watches the metadata of all topics of the group, and asks for a rebalance after a change. A member
with a pattern lists the cluster's topics as often as metadata is due, and joins again if others match.

After org.apache.kafka.clients.consumer.internals.AbstractCoordinator, ConsumerCoordinator and Heartbeat;
KIP-394 (member ids before joining), KIP-800 (reasons).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.core.client.lasting_faults import LastingFaults
from kbatch.core.consumer.assignors import LastAssignment, assignors_of
from kbatch.core.consumer.consumer_protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kbatch.core.consumer.group_coordinator import GROUP_PURPOSE, LeaveLimit
from kbatch.core.consumer.heartbeats import HeartbeatClock
from kbatch.core.consumer.membership import REBALANCING, REMOVED, Subscription, check_partitions
from kbatch.core.consumer.outcomes import CLASSIC_OUTCOMES, ClassicOutcome
from kbatch.core.consumer.pattern_topics import PatternTopics
from kbatch.errors import (
    ErrorCode,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
    error_of,
    row_of,
)
from kbatch.errors.words import shown
from kbatch.logs import ClientLogger
from kbatch.protocol import features, messages
from kbatch.records import NO_TOPIC_ID, ConsumerGroupMetadata

if TYPE_CHECKING:
    from kbatch.core.client.connections import Response
    from kbatch.core.consumer.assignors import Assignor, PartitionRacks
    from kbatch.core.consumer.membership import MemberContext, Rebalance
    from kbatch.protocol.structs import Message
    from kbatch.records import TopicPartition

logger = ClientLogger(__name__)

# The coordinator answers a JoinGroup after max.poll.interval.ms at the latest; the answer has this much more.
JOIN_GRACE_MS = 5_000
# The reason to join again after a rebalance took partitions from this member.
GIVEN_UP = "partitions were given up for other members"
# That of the leader, in place of a member that died before it asked for the rebalance. A static one comes
# back without one, and does not know.
OVERDUE = "partitions that a member was to give up may still wait for a rebalance"
# The coordinator keeps this much of a reason.
MAX_REASON_CHARACTERS = 255


class ClassicState(Enum):
    """The state of a member of a classic group."""

    JOINING = "a JoinGroup is to be sent, or in flight"
    LEADING = "it leads, and waits for the metadata of the group's topics"
    SYNCING = "a SyncGroup is to be sent, or in flight"
    STABLE = "it has its assignment"
    PREPARING = "it has to join again, and gives up partitions first"
    EXPIRED = "it has left since the program does not poll"
    LEAVING = "it gives up its partitions, and leaves"
    LEFT = "it has left"
    FAILED = "an error has ended it"


JOINING, LEADING, SYNCING, STABLE, PREPARING, EXPIRED, LEAVING, LEFT, FAILED = ClassicState

_ENDS = frozenset({LEAVING, EXPIRED, FAILED})
TRANSITIONS: Mapping[ClassicState, frozenset[ClassicState]] = {
    JOINING: frozenset({JOINING, LEADING, SYNCING}) | _ENDS,
    LEADING: frozenset({JOINING, SYNCING}) | _ENDS,
    SYNCING: frozenset({JOINING, STABLE}) | _ENDS,
    STABLE: frozenset({JOINING, PREPARING}) | _ENDS,
    PREPARING: frozenset({JOINING}) | _ENDS,
    EXPIRED: frozenset({JOINING}) | _ENDS,
    LEAVING: frozenset({LEFT, LEAVING}),
    LEFT: frozenset({JOINING, LEAVING}),
    FAILED: frozenset({JOINING, LEAVING}),
}
# The states in which heartbeats keep the membership, as long as no other request does.
_BEATING = (LEADING, SYNCING, STABLE, PREPARING, LEAVING)

DONE, BACK_OFF, FIND, TAKE_ID, JOIN, RESET, FORGET, FAIL = ClassicOutcome

_REMEDIES = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "no assignor of partition.assignment.strategy="
    "{config.partition_assignment_strategy} is one of every member's; let all members have one in common",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session.timeout.ms={config.session_timeout_ms} is not within the "
    "broker's group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer has joined with "
    "group.instance.id={config.group_instance_id!r}; give each consumer its own",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has group.max.size members already",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "add the ACL READ of the group",
}


class _Member(NamedTuple):
    """Who the coordinator takes us for: in requests from its answer to JoinGroup on."""

    member_id: str = ""
    generation_id: int = NO_GENERATION


class ClassicMembership:
    """A member of a group by the classic protocol (Membership)."""

    def __init__(self, context: MemberContext, now_ns: int) -> None:
        config = context.config
        self._config = config
        self._cluster = context.cluster
        self._coordinator = context.coordinator
        self._ownership = context.ownership
        self._metrics = context.metrics
        self._assignors: tuple[Assignor, ...] = assignors_of(config.partition_assignment_strategy)
        self._faults = LastingFaults(logger)
        self._clock = HeartbeatClock(config.heartbeat_interval_ms * NS_PER_MS)
        self._is_cooperative = all(each.is_cooperative for each in self._assignors)
        self._state = JOINING
        self._member = _Member()
        self.identity = self._no_identity()
        self.error: KafkaError | None = None
        self.deadline_ns = now_ns
        # what the member wants, and wanted when it joined
        self._topics: frozenset[str] = frozenset()
        self._joined_topics: frozenset[str] = frozenset()
        self._subscription = Subscription()
        self._listing: PatternTopics | None = None
        # this rebalance
        self._request = AnyNodeRequest(GROUP_PURPOSE)  # JoinGroup and SyncGroup
        self._reason = ""
        self._owes_rebalance_of = NO_GENERATION  # the generation after which what it gave up is assigned
        self._protocol = ""  # the name of the group's assignor
        self._assignments: Mapping[str, bytes] = {}
        self._target: frozenset[TopicPartition] | None = None
        self._last: dict[str, LastAssignment] = {}
        # the leader's
        self._members: Mapping[str, MemberSubscription] = {}
        self._skips_assignment = False
        self._watched: Mapping[str, object] | None = None  # what the leader has seen of the group's topics
        self._watched_version = -1
        self._overdue_ns = NEVER_NS  # when it asks for a rebalance that others owe
        # keeping the membership, and ending it
        self._heartbeat = AnyNodeRequest(GROUP_PURPOSE)
        self._heartbeat_ns = NEVER_NS
        self._leave_request = AnyNodeRequest()  # not GROUP_PURPOSE: a JoinGroup may be in flight
        self._leaving = ""  # the id of a member that is to leave
        self._leave_reason = ""
        self._leave_limit: LeaveLimit | None = None

    # Membership

    @property
    def is_member(self) -> bool:
        return self.identity.generation_id != NO_GENERATION

    @property
    def is_out(self) -> bool:
        return self._state in (LEFT, FAILED) and not self._leaving and self._ownership.is_released

    def subscribe(self, subscription: Subscription, now_ns: int) -> None:
        self.deadline_ns = now_ns
        if self._state in (FAILED, LEFT):
            self.error = None
            self._move(JOINING)
        self._subscription, self._topics = subscription, subscription.topics
        self._listing = None
        if subscription.pattern is not None:
            self._listing = PatternTopics(subscription, self._coordinator, self._config, self._take_topics)

    def acknowledge(self, rebalance: Rebalance, now_ns: int) -> None:
        self.deadline_ns = now_ns

    def leave(self, now_ns: int, *, leave: bool | None) -> None:
        self.deadline_ns = now_ns
        leaves = self._config.group_instance_id is None if leave is None else leave
        is_in_group = self._state not in (FAILED, LEFT, EXPIRED)
        self._leave_reason = "the consumer leaves" if leaves and is_in_group else ""
        self._leave_limit = None
        self._move(LEAVING)
        self._target = None
        if self.is_member:
            self._ownership.withdraw()
        else:
            self._ownership.lose()

    def expire(self, now_ns: int) -> None:
        if self._state in (LEAVING, LEFT, FAILED, EXPIRED):
            return
        self.deadline_ns = now_ns
        if self._config.group_instance_id is None:
            self._begin_leave("the program has not polled for max.poll.interval.ms", now_ns)
        self._lose_generation(_Member(), EXPIRED, now_ns)

    def rejoin(self, now_ns: int) -> None:
        if self._state is EXPIRED:
            self.deadline_ns = now_ns
            self._move(JOINING)

    def handle_commit_refused(self, code: ErrorCode, generation: int, now_ns: int) -> None:
        # the answer to JoinGroup or SyncGroup will say more
        if generation == self.identity.generation_id and self._state in (STABLE, PREPARING, LEAVING):
            self._take_refusal("OffsetCommit", code, now_ns)

    def topic_id_of(self, partition: TopicPartition) -> bytes:
        return NO_TOPIC_ID

    def topics(self) -> Collection[str]:
        return self._topics | {topic for each in self._members.values() for topic in each.topics}

    def run(self, now_ns: int) -> None:
        try:
            self._run(now_ns)
        except KafkaError as error:
            self._fail(error, now_ns)
        self.deadline_ns = self._next_run_ns(now_ns)

    # What is to be done

    def _run(self, now_ns: int) -> None:
        if self._leaving and self._state is not LEAVING:
            self._send_leave(now_ns)
        if self._listing is not None and self._state in (JOINING, STABLE):
            self._listing.run(now_ns)
        if self._state is STABLE:
            self._reconcile(now_ns)
            if self._state is STABLE and self._target is None:
                self._check_for_change(now_ns)
            if self._state is STABLE and self._target is None and now_ns >= self._overdue_ns:
                self._join_again(OVERDUE, now_ns)
        if self._state is PREPARING:
            self._prepare()
        if self._state is JOINING:
            self._join(now_ns)
        if self._state is LEADING:
            self._lead(now_ns)
        if self._state is SYNCING:
            self._sync(now_ns)
        if self._state is LEAVING:
            self._end(now_ns)
        if self._state in _BEATING and now_ns >= self._heartbeat_ns and not self._request.is_in_flight:
            self._beat(now_ns)

    def _next_run_ns(self, now_ns: int) -> int:
        """Return when to run again. The program's steps, answers and metadata make the engine run anyway."""
        deadline_ns, state, is_idle = NEVER_NS, self._state, self._ownership.is_idle
        if is_idle if state is LEAVING else self._leaving:
            if self._leave_limit is not None:
                deadline_ns = self._leave_limit.deadline_ns(now_ns)
            if self._leaving:
                deadline_ns = min(deadline_ns, self._leave_request.deadline_ns)
        if self._listing is not None and state in (JOINING, STABLE):
            deadline_ns = min(deadline_ns, self._listing.deadline_ns)
        if state is STABLE and self._target is None:
            deadline_ns = min(deadline_ns, self._overdue_ns)
        if state is SYNCING or (state is JOINING and is_idle and self._knows_topics):
            deadline_ns = min(deadline_ns, self._request.deadline_ns)
        if state in _BEATING and not self._request.is_in_flight:
            deadline_ns = min(deadline_ns, max(self._heartbeat_ns, self._heartbeat.deadline_ns))
        return deadline_ns

    def _move(self, state: ClassicState) -> None:
        assert state in TRANSITIONS[self._state], f"{self._state.name} to {state.name}"
        if state is not self._state:
            logger.debug("group %s, member %s: %s", self._coordinator.group_id, self._member, state.value)
        self._state = state

    def _no_identity(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(
            self._coordinator.group_id, group_instance_id=self._config.group_instance_id
        )

    def _join_again(self, reason: str, now_ns: int) -> None:
        """Schedule another join of a stable member, after it has given up what it has to."""
        if self._state is STABLE:
            text = f"group {self._coordinator.group_id}: joining again: {reason}"
            self._faults.note(REBALANCING, text, now_ns, logging.INFO)
            self._reason = reason
            self._target = self._watched = None
            self._ownership.withdraw()
            self._move(PREPARING)

    def _lose_generation(self, member: _Member, state: ClassicState, now_ns: int) -> None:
        """End the generation, lose all partitions, and continue as this member."""
        self._member = member
        self.identity = self._no_identity()
        self._target = self._watched = None
        self._members = {}
        self._overdue_ns = NEVER_NS
        self._heartbeat_ns = NEVER_NS
        self._ownership.lose()
        self._metrics.rebalance_failed(now_ns)
        self._move(state)

    def _fail(self, error: KafkaError, now_ns: int) -> None:
        """End the membership and leave, so that the other members continue."""
        logger.error("group %s: the membership ends: %s", self._coordinator.group_id, error)
        self.error = error
        self.deadline_ns = now_ns
        if self._config.group_instance_id is None and self._state is not LEAVING:
            self._begin_leave(f"it fails: {error}", now_ns)
        self._lose_generation(_Member(), LEAVING if self._state is LEAVING else FAILED, now_ns)

    # Topics

    @property
    def _knows_topics(self) -> bool:
        return self._listing is None or self._listing.is_known

    def _take_topics(self, now_ns: int) -> None:
        self.deadline_ns = now_ns
        if self._listing is not None and self._listing.is_known:
            self._topics = self._listing.topics

    def _check_for_change(self, now_ns: int) -> None:
        """Join again if other topics are wanted, or if a topic that the member has assigned has changed."""
        if self._topics != self._joined_topics:
            self._join_again("the subscription has changed", now_ns)
        elif self._watched is not None and self._cluster.version != self._watched_version:
            self._watched_version = self._cluster.version
            if self._seen() != self._watched:
                self._join_again("the metadata of topics have changed", now_ns)

    def _racks_of(self, topics: Collection[str]) -> dict[str, PartitionRacks]:
        """Return the racks of the replicas of each partition, by topic."""
        snapshot = self._cluster.snapshot
        racks = {node.node_id: node.rack for node in snapshot.nodes.values() if node.rack}
        return {
            topic: [
                frozenset(racks[node_id] for node_id in partition.replicas if node_id in racks)
                for partition in snapshot.topics[topic].partitions
            ]
            for topic in topics
            if topic in snapshot.topics
        }

    # Steps

    def _reconcile(self, now_ns: int) -> None:
        """Request the next step from what the member owns to what it was assigned."""
        if self._target is None or not self._ownership.is_idle:
            return
        owned = self._ownership.owned
        if revoked := owned - self._target:
            self._reason = GIVEN_UP
            self._owes_rebalance_of = self._member.generation_id
            self._ownership.revoke(revoked)
            return
        added = self._target - owned
        self._target = None
        if added or not owned:
            self._ownership.assign(added)
        if self._reason:
            self._join_again(self._reason, now_ns)

    def _prepare(self) -> None:
        """Revoke what the member must not own when it joins."""
        if not self._ownership.is_idle:
            return
        owned = self._ownership.owned
        kept = {each for each in owned if each.topic in self._topics} if self._is_cooperative else set()
        if kept != owned:
            self._ownership.revoke(owned - kept)
        else:
            self._move(JOINING)

    # JoinGroup

    def _join(self, now_ns: int) -> None:
        if not self._ownership.is_idle or not self._knows_topics:
            return
        timeout_ms = max(self._config.request_timeout_ms, self._config.max_poll_interval_ms + JOIN_GRACE_MS)
        is_sent = self._coordinator.send(
            self._request,
            messages.JoinGroupRequest,
            self._join_request,
            partial(self._take_join, now_ns),
            now_ns,
            timeout_ns=timeout_ms * NS_PER_MS,
        )
        if is_sent:
            self._metrics.rebalance_begun(now_ns)

    def _join_request(self, version: int) -> Message:
        self._check_static(version)
        self._joined_topics = self._topics
        kind = messages.JoinGroupRequest
        mine = MemberSubscription(
            tuple(self._topics),
            owned=tuple(self._ownership.owned),
            generation_id=self.identity.generation_id,
            rack=self._config.client_rack or None,
        )
        return kind(
            group_id=self._coordinator.group_id,
            session_timeout_ms=self._config.session_timeout_ms,
            rebalance_timeout_ms=self._config.max_poll_interval_ms,
            member_id=self._member.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                kind.JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=encode_subscription(
                        mine._replace(user_data=assignor.user_data(self._last.get(assignor.name)))
                    ),
                )
                for assignor in self._assignors
            ],
            reason=self._reason[:MAX_REASON_CHARACTERS],
        )

    def _check_static(self, version: int) -> None:
        if self._config.group_instance_id is not None and version < features.JOIN_GROUP_STATIC_MEMBERS:
            raise UnsupportedVersionError(
                f"group.instance.id={self._config.group_instance_id!r} needs brokers with Kafka 2.3 or newer "
                "(KIP-345); omit it, or upgrade them"
            )

    def _take_join(self, sent_ns: int, response: Response) -> None:
        now_ns, answer = response.now_ns, response.message
        self.deadline_ns = now_ns
        code = ErrorCode.NETWORK_EXCEPTION if answer is None else ErrorCode(answer.error_code)
        if self._state is not JOINING:
            self._take_late_join(answer, code)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member = _Member(answer.member_id)
        elif self._judge("JoinGroup", self._request, response, code) is DONE:
            self._metrics.joined(sent_ns, now_ns)
            try:
                self._begin_generation(answer, now_ns)
            except KafkaError as error:
                self._fail(error, now_ns)

    def _take_late_join(self, answer: Any, code: ErrorCode) -> None:
        """Record the id of a member that was to leave before it knew its id, so that it can leave."""
        if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED) and self._leave_reason:
            self._leaving = answer.member_id
            if self._state is LEAVING:
                self._member = _Member(answer.member_id)

    def _begin_generation(self, answer: Any, now_ns: int) -> None:
        if answer.protocol_type not in (None, PROTOCOL_TYPE):
            raise self._error("JoinGroup", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if answer.generation_id < 0 or not answer.member_id:
            raise ProtocolError(
                f"group {self._coordinator.group_id}: the coordinator lets member {answer.member_id!r} join "
                f"in generation {answer.generation_id}, which is impossible; check the broker"
            )
        self._member = _Member(answer.member_id, answer.generation_id)
        self._protocol = answer.protocol_name or ""
        self._heartbeat = AnyNodeRequest(GROUP_PURPOSE)
        self._clock.note_change(now_ns)
        self._heartbeat_ns = self._clock.after(now_ns, self._member.member_id)
        self._assignments = {}
        self._members = {}
        self._skips_assignment = answer.skip_assignment
        self._overdue_ns = NEVER_NS
        if answer.leader == answer.member_id:
            self._members = {each.member_id: self._subscription_of(each) for each in answer.members}
        self._move(LEADING if self._members else SYNCING)

    def _subscription_of(self, member: Any) -> MemberSubscription:
        try:
            return decode_subscription(member.metadata, member.group_instance_id)
        except ProtocolError as error:
            raise ProtocolError(
                f"group {self._coordinator.group_id}: the subscription of member "
                f"{shown(member.member_id)} is unreadable: {error}; find out which client sends it"
            ) from error

    # SyncGroup

    def _lead(self, now_ns: int) -> None:
        """Make the assignment, if the metadata of all topics is there."""
        topics = self.topics()
        for topic in topics:
            self._cluster.want(topic, now_ns)
        if not all(map(self._cluster.is_answered, topics)):
            return
        self._watched, self._watched_version = self._seen(), self._cluster.version
        may_lack_some = self._skips_assignment  # who made it may have died
        if not self._skips_assignment:
            assignor = next((each for each in self._assignors if each.name == self._protocol), None)
            if assignor is None:
                raise self._error("JoinGroup", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            racks = self._racks_of(topics)
            assignment = assignor.assign(racks, self._members)
            may_lack_some = sum(map(len, assignment.values())) < sum(map(len, racks.values()))
            self._assignments = {member: encode_assignment(each) for member, each in assignment.items()}
        if self._is_cooperative and may_lack_some:
            self._overdue_ns = now_ns + self._config.max_poll_interval_ms * NS_PER_MS
        self._move(SYNCING)

    def _seen(self) -> Mapping[str, object]:
        """Return what an assignment depends on: partitions of topics, with racks if any member has one."""
        racks = self._racks_of(self.topics())
        if any(each.rack for each in self._members.values()):
            return racks
        return {topic: len(each) for topic, each in racks.items()}

    def _sync(self, now_ns: int) -> None:
        timeout_ms = max(self._config.request_timeout_ms, self._config.max_poll_interval_ms + JOIN_GRACE_MS)
        self._coordinator.send(
            self._request,
            messages.SyncGroupRequest,
            self._sync_request,
            partial(self._take_sync, self._member, now_ns),
            now_ns,
            timeout_ns=timeout_ms * NS_PER_MS,
        )

    def _sync_request(self, version: int) -> Message:
        kind = messages.SyncGroupRequest
        return kind(
            group_id=self._coordinator.group_id,
            generation_id=self._member.generation_id,
            member_id=self._member.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[
                kind.SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in self._assignments.items()
            ],
        )

    def _take_sync(self, member: _Member, sent_ns: int, response: Response) -> None:
        now_ns, answer = response.now_ns, response.message
        self.deadline_ns = now_ns
        if self._state is not SYNCING or member != self._member:
            return
        code = ErrorCode.NETWORK_EXCEPTION if answer is None else ErrorCode(answer.error_code)
        if self._judge("SyncGroup", self._request, response, code) is DONE:
            self._metrics.synced(sent_ns, now_ns)
            try:
                self._take_assignment(answer, now_ns)
            except KafkaError as error:
                self._fail(error, now_ns)
            else:
                self._metrics.rebalance_ended(now_ns)
        elif self._state is SYNCING:
            self._move(JOINING)  # the group may have gone on

    def _take_assignment(self, answer: Any, now_ns: int) -> None:
        if answer.protocol_name not in (None, self._protocol):
            raise self._error("SyncGroup", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        # a leader of another client may leave out members that get nothing
        partitions = decode_assignment(answer.assignment) if answer.assignment else ()
        check_partitions(each.partition for each in partitions)
        self._last[self._protocol] = LastAssignment(partitions, self._member.generation_id)
        self.identity = ConsumerGroupMetadata(
            self._coordinator.group_id,
            self._member.generation_id,
            self._member.member_id,
            self._config.group_instance_id,
        )
        # A static member may have been replaced by itself, without the rebalance that it was to ask for.
        owes_rebalance = self._owes_rebalance_of == self._member.generation_id
        self._reason, self._owes_rebalance_of = GIVEN_UP if owes_rebalance else "", NO_GENERATION
        self._move(STABLE)
        strange = {each.topic for each in partitions if not self._wants(each.topic)}
        if strange:
            names = ", ".join(sorted(strange))
            self._join_again(f"topics were assigned that are not subscribed to: {names}", now_ns)
            return
        if self._listing is not None:  # which may know other topics than the leader
            assigned = {each.topic for each in partitions}
            self._topics |= assigned
            self._joined_topics |= assigned
        self._target = frozenset(partitions)

    def _wants(self, topic: str) -> bool:
        return not self._subscription.excludes(topic)

    # Heartbeat

    def _beat(self, now_ns: int) -> None:
        timeout_ms = min(self._config.request_timeout_ms, self._config.session_timeout_ms)
        is_sent = self._coordinator.send(
            self._heartbeat,
            messages.HeartbeatRequest,
            self._heartbeat_request,
            partial(self._take_heartbeat, self._heartbeat, self._member, now_ns),
            now_ns,
            timeout_ns=timeout_ms * NS_PER_MS,
        )
        if is_sent:
            self._heartbeat_ns = self._clock.after(now_ns, self._member.member_id)
            self._metrics.heartbeat_sent(now_ns)

    def _heartbeat_request(self, version: int) -> Message:
        return messages.HeartbeatRequest(
            group_id=self._coordinator.group_id,
            generation_id=self._member.generation_id,
            member_id=self._member.member_id,
            group_instance_id=self._config.group_instance_id,
        )

    def _take_heartbeat(
        self, pending: AnyNodeRequest, member: _Member, sent_ns: int, response: Response
    ) -> None:
        now_ns, answer = response.now_ns, response.message
        self.deadline_ns = now_ns
        if member != self._member or self._state not in _BEATING:
            return
        code = ErrorCode.NETWORK_EXCEPTION if answer is None else ErrorCode(answer.error_code)
        if answer is not None:
            self._metrics.heartbeat_answered(sent_ns, now_ns)
        outcome = self._judge("Heartbeat", pending, response, code)
        if outcome in (FIND, BACK_OFF):
            self._heartbeat_ns = pending.not_before_ns
        elif outcome is DONE:
            for subject in (REMOVED, REBALANCING):
                text = f"group {self._coordinator.group_id}: generation {member.generation_id} holds"
                self._faults.end(subject, text, now_ns)

    # Answers

    def _judge(
        self, request: str, pending: AnyNodeRequest, response: Response, code: ErrorCode
    ) -> ClassicOutcome:
        """Process an answer, and return its outcome. The caller processes a DONE one."""
        now_ns = response.now_ns
        outcome = CLASSIC_OUTCOMES[code]
        if response.error is not None and not response.error.retriable:
            self._fail(response.error, now_ns)
            return FAIL
        if outcome is FIND:
            self._coordinator.forget()
            self._coordinator.back_off(pending, now_ns, at_once=int(response.message is not None))
        elif outcome is BACK_OFF or (outcome is JOIN and request == "JoinGroup"):
            self._coordinator.back_off(pending, now_ns)
        else:
            pending.attempts = 0
            if outcome is not DONE:
                self._take_refusal(request, code, now_ns)
        return outcome

    def _take_refusal(self, request: str, code: ErrorCode, now_ns: int) -> None:
        """Handle a refusal of the member, or of its generation."""
        outcome = CLASSIC_OUTCOMES[code]
        if outcome is JOIN:
            self._join_again("the group is rebalancing", now_ns)
        elif outcome in (RESET, FORGET):
            text = f"group {self._coordinator.group_id}: {request} was refused: {code}"
            self._faults.note(REMOVED, text, now_ns, logging.INFO)
            self._reason = f"{request} was refused: {code.name}"
            member_id = self._member.member_id if outcome is RESET else ""
            state = LEAVING if self._state is LEAVING else JOINING
            self._lose_generation(_Member(member_id), state, now_ns)
        else:
            self._fail(self._error(request, code), now_ns)

    def _error(self, request: str, code: ErrorCode) -> KafkaError:
        remedy = _REMEDIES.get(code, row_of(code).doc).format(config=self._config)
        return error_of(code, f"group {self._coordinator.group_id}: {request}: {remedy}")

    # Leaving

    def _end(self, now_ns: int) -> None:
        """Revoke all partitions, and then leave the group."""
        if not self._ownership.is_idle:
            return
        if self._ownership.owned:
            if self.is_member:
                self._ownership.revoke(self._ownership.owned)
            else:
                self._ownership.lose()
            return
        self.identity = self._no_identity()
        if self._leave_limit is None:
            self._leave_limit = LeaveLimit(self._config, now_ns)
        if self._leave_reason and not self._leave_limit.is_over(self._coordinator, now_ns):
            # before the first JoinGroup is answered, the member does not know by which id it leaves
            self._leaving = self._member.member_id
            if self._leaving:
                self._send_leave(now_ns)
            if self._leaving or self._request.is_in_flight:
                return
        self._leaving = self._leave_reason = ""
        self._member = _Member()
        self._move(LEFT)

    def _begin_leave(self, reason: str, now_ns: int) -> None:
        """Begin to leave by the member's id, if it knows that already."""
        self._leave_reason = reason
        self._leaving = self._member.member_id
        self._leave_limit = LeaveLimit(self._config, now_ns)

    def _send_leave(self, now_ns: int) -> None:
        """Send LeaveGroup until the coordinator knows, within the limit."""
        member_id = self._leaving
        if self._leave_limit is None or self._leave_limit.is_over(self._coordinator, now_ns):
            self._finish_leave(member_id)
            return
        try:
            self._coordinator.send(
                self._leave_request,
                messages.LeaveGroupRequest,
                partial(self._leave_message, member_id),
                partial(self._take_leave, member_id),
                now_ns,
            )
        except KafkaError as error:
            group_id = self._coordinator.group_id
            logger.info("group %s: member %s did not leave: %s", group_id, shown(member_id), error)
            self._finish_leave(member_id)

    def _leave_message(self, member_id: str, version: int) -> Message:
        kind = messages.LeaveGroupRequest
        if version < features.LEAVE_GROUP_BATCHES:
            return kind(group_id=self._coordinator.group_id, member_id=member_id)
        leaving = kind.MemberIdentity(
            member_id=member_id,
            group_instance_id=self._config.group_instance_id,
            reason=self._leave_reason[:MAX_REASON_CHARACTERS],
        )
        return kind(group_id=self._coordinator.group_id, members=[leaving])

    def _take_leave(self, member_id: str, response: Response) -> None:
        self.deadline_ns = response.now_ns
        is_awaited = self._leaving == member_id
        if not is_awaited or not self._coordinator.repeats_leave(self._leave_request, response):
            self._finish_leave(member_id)

    def _finish_leave(self, member_id: str) -> None:
        if self._leaving == member_id:
            self._leaving = ""
            self._leave_request = AnyNodeRequest()
            if self._state is LEAVING:
                self._member = _Member()
