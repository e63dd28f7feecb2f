"""ConsumerMembership: a member of a group by the consumer protocol (KIP-848).

Theory of operation. All of it happens in Heartbeats. The answers have the member's epoch and its *target*:
the partitions that it is to own. `run` works towards that in steps: it revokes what is not in the target,
reports that to the coordinator (ACKNOWLEDGING), assigns what is new, and reports again. A member that owns
its target is STABLE.

A fenced member has lost everything: after the program knows that, it joins again with the epoch 0.

After org.apache.kafka.clients.consumer.internals.ConsumerMembershipManager; KIP-848, KIP-1082 (ids of
members), KIP-1092 (staying in the group).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.consumer.heartbeats import LEAVES, Heartbeats, assigned
from kbatch.core.consumer.member_state import BEATING, TRANSITIONS, MemberEvent, MemberState, next_state
from kbatch.core.consumer.pattern_topics import PatternTopics
from kbatch.errors import ErrorCode, KafkaError
from kbatch.errors.words import shown
from kbatch.logs import ClientLogger
from kbatch.protocol import messages
from kbatch.records import NO_TOPIC_ID, ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from kbatch.core.consumer.membership import MemberContext, Rebalance, Subscription
    from kbatch.protocol.structs import Message

logger = ClientLogger(__name__)

# The epoch of a static member that leaves and may come back before its session ends.
LEAVES_FOR_A_WHILE = -2
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
    member_id : str
    request, noun, remedies
        Those of BeatingMember.
    """

    request: ClassVar[type[Message]] = messages.ConsumerGroupHeartbeatRequest
    noun: ClassVar[str] = "group"
    remedies: ClassVar[Mapping[ErrorCode, str]] = REMEDIES

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
        self.member_id = context.new_member_id
        self._topics: frozenset[str] = frozenset()  # that it wants, as far as a pattern's are known
        self._listing: PatternTopics | None = None
        # the target by topic ids, whether the coordinator waits for the member to reach it, and whether
        # the program knows of an assignment since the join
        self._target: Mapping[bytes, frozenset[int]] = {}
        self._is_target_open = False
        self._was_assigned = False
        self._ids: dict[TopicPartition, bytes] = {}  # of what is owned
        self._last_claims: list[Any] = []
        self._claims_are_of: tuple[object, object] = (None, None)  # the target, and what is claimed
        self._heartbeats = Heartbeats(self, context.coordinator, context.metrics, config, now_ns)
        self._owned: frozenset[TopicPartition] | None = None  # at the last heartbeat
        self._leaves: bool | None = None
        self._may_rejoin = False
        self.state = MemberState.UNSUBSCRIBED
        self.identity = self._outside
        self.error: KafkaError | None = None
        self.deadline_ns = NEVER_NS

    @property
    def is_member(self) -> bool:
        return self._heartbeats.epoch > 0 and self._heartbeats.is_in_group

    @property
    def is_out(self) -> bool:
        is_over = self.state in (MemberState.UNSUBSCRIBED, MemberState.FATAL)
        return is_over and self._ownership.is_released

    def topic_id_of(self, partition: TopicPartition) -> bytes:
        return self._ids.get(partition, NO_TOPIC_ID)

    def topics(self) -> Iterable[str]:
        return self._topics

    def _transition(self, event: MemberEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event, self)

    def __str__(self) -> str:
        group_id, epoch = self._coordinator.group_id, self._heartbeats.epoch
        return f"member {shown(self.member_id)} of group {group_id} in epoch {epoch}"

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
        self._may_rejoin = False
        self._quit(now_ns, LEAVES if self._instance_id is None else LEAVES_FOR_A_WHILE)

    def rejoin(self, now_ns: int) -> None:
        self._may_rejoin = True

    def handle_commit_refused(self, code: ErrorCode, generation: int, now_ns: int) -> None:
        if generation == self._heartbeats.epoch:
            self._heartbeats.hurry()

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
            if self._heartbeats.is_leaving:
                self._heartbeats.send_leave(now_ns)
                self._wait(self._heartbeats.deadline_ns)
            else:
                self._reconcile(now_ns)
                self._beat(now_ns)
                self._reconcile(now_ns)  # after an acknowledgement
        except KafkaError as error:
            self.fail(error, now_ns)
        if self.state is MemberState.LEAVING and self._heartbeats.is_idle:
            self._transition(MemberEvent.LEFT)

    def _wait(self, until_ns: int) -> None:
        self.deadline_ns = min(self.deadline_ns, until_ns)

    def _join(self, now_ns: int) -> None:
        """Begin a membership."""
        self._transition(MemberEvent.JOIN)
        self._target, self._is_target_open, self._was_assigned = {}, False, False
        self._ids.clear()
        self._heartbeats.join()

    def _quit(self, now_ns: int, leave_epoch: int | None = None) -> None:
        """Leave the group, by this epoch if the coordinator does not know, and lose what is owned."""
        self._heartbeats.quit(now_ns, leave_epoch)
        self.identity = self._outside
        self._metrics.rebalance_failed(now_ns)
        self._ownership.lose()

    def fail(self, error: KafkaError, now_ns: int) -> None:
        logger.error("%s: the membership has ended: %s", self, error)
        self._transition(MemberEvent.FAIL)
        self.error = error
        self._quit(now_ns)

    # Towards the target

    def _reconcile(self, now_ns: int) -> None:
        """Request the next step from what is owned to the target."""
        if self.state is not MemberState.RECONCILING or not self._ownership.is_idle:
            return
        target, unnamed = self._named_target()
        owned = self._ownership.owned
        revoked = [each for each in owned if target.get(each) != self._ids[each]]
        added = [each for each in target if each not in owned]
        is_reached = self._was_assigned and not (revoked or added or unnamed)
        if owned != self._owned or self._heartbeats.repeats_all or (is_reached and self._is_target_open):
            # also if a new target changes nothing: the coordinator waits for the answer
            self._is_target_open = not is_reached
            self._heartbeats.repeat("topic_partitions")
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
            self._transition(MemberEvent.REACH)
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
        """Schedule a heartbeat if the pattern now matches other topics."""
        self.deadline_ns = now_ns
        listing = self._listing
        if listing is not None and listing.is_known and listing.topics != self._topics:
            self._topics = listing.topics
            self._hurry(now_ns)

    # Heartbeats

    def _hurry(self, now_ns: int) -> None:
        """Send the next heartbeat at once, and others soon after it: something has changed."""
        self._heartbeats.hurry()
        self._heartbeats.clock.note_change(now_ns)

    def _beat(self, now_ns: int) -> None:
        """Send the next heartbeat if it is due."""
        if self.state not in BEATING:
            return
        if self.state is MemberState.JOINING:
            if not self._ownership.is_released:
                return  # an earlier membership is not over
            if self._listing is not None and not self._listing.is_known:
                return
        elif not self._heartbeats.is_in_group:
            return
        acknowledges = self.state is MemberState.ACKNOWLEDGING
        if self._heartbeats.beat(now_ns, is_due=acknowledges):
            self._owned = self._ownership.owned
            if acknowledges:
                self._transition(MemberEvent.ACKNOWLEDGE)
                self._heartbeats.clock.note_change(now_ns)
        self._wait(self._heartbeats.deadline_ns)

    def fields(self) -> Mapping[str, Any]:
        config = self._context.config
        return {
            "rack_id": config.client_rack or None,
            "rebalance_timeout_ms": config.max_poll_interval_ms,
            "subscribed_topic_names": sorted(self._topics),
            "server_assignor": config.group_remote_assignor,
            "topic_partitions": self._named_claims(),
        }

    def _named_claims(self) -> list[Any]:
        """Return the claims as heartbeats name them: the same object until they change, as each heartbeat is
        compared with the last one.
        """
        target, claimed = self._target, self._ownership.claimed
        if self._claims_are_of[0] is not target or self._claims_are_of[1] is not claimed:
            kind = messages.ConsumerGroupHeartbeatRequest.TopicPartitions
            self._last_claims = [
                kind(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in self._claims().items()
            ]
            self._claims_are_of = target, claimed
        return self._last_claims

    def _claims(self) -> dict[bytes, list[int]]:
        """Return the partitions that no other member may get, by topic id: what is owned, what an open step
        adds, and the remaining target. The coordinator counts what is left out as given up, and its next
        target comes too late for a step that the program takes meanwhile.
        """
        claims = {topic_id: set(partitions) for topic_id, partitions in self._target.items()}
        for each in self._ownership.claimed:
            claims.setdefault(self._ids[each], set()).add(each.partition)
        return {topic_id: sorted(partitions) for topic_id, partitions in sorted(claims.items())}

    def new_request(self, epoch: int, changed: Mapping[str, Any]) -> Message:
        return messages.ConsumerGroupHeartbeatRequest(
            group_id=self._coordinator.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
            **changed,
        )

    def handle_removal(self, now_ns: int) -> None:
        self._transition(MemberEvent.FENCE)
        self._quit(now_ns)

    def handle_answer(self, answer: Any, now_ns: int) -> None:
        if answer.member_id:
            self.member_id = answer.member_id
        if answer.member_epoch > 0:
            self._heartbeats.epoch = answer.member_epoch
            self.identity = ConsumerGroupMetadata(
                self._coordinator.group_id, answer.member_epoch, self.member_id, self._instance_id
            )
        if MemberEvent.TARGET not in TRANSITIONS[self.state]:
            return
        target = self._target
        if answer.assignment is not None:
            target = {each: partitions for each, partitions in assigned(answer).items() if partitions}
        if target != self._target or self.state is MemberState.JOINING:
            self._target, self._is_target_open = target, True
            self._heartbeats.clock.note_change(now_ns)
            self._metrics.rebalance_begun(now_ns)
            self._transition(MemberEvent.TARGET)

    # The end

    def _release(self, now_ns: int) -> None:
        """Revoke what is owned, and then leave."""
        if self._ownership.is_idle and self._ownership.owned:
            self._ownership.revoke(self._ownership.owned)
        elif self._ownership.is_idle:
            self._transition(MemberEvent.RELEASE)
            self._quit(now_ns, self._epoch_to_leave())

    def _epoch_to_leave(self) -> int | None:
        """Return the epoch that says how the member leaves; None if it lets the session end."""
        if self._instance_id is None:
            return None if self._leaves is False else LEAVES
        return LEAVES if self._leaves else LEAVES_FOR_A_WHILE
