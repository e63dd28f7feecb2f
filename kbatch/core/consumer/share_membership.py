"""ShareMembership: a member of a share group (KIP-932).

Theory of operation. All of it happens in Heartbeats. The answers have the member's epoch and its assignment,
which counts at once: partitions of a share group belong to several members, so none waits for others.

A member that the coordinator has removed joins again with the epoch 0. A member that leaves and subscribes
again joins after it has left, since its id stays.

After org.apache.kafka.clients.consumer.internals.ShareMembershipManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.consumer.heartbeats import LEAVES, Heartbeats, assigned
from kbatch.core.consumer.member_state import (
    BEATING,
    SHARE_TRANSITIONS,
    MemberEvent,
    MemberState,
    next_state,
)
from kbatch.errors import ErrorCode, KafkaError
from kbatch.errors.words import shown
from kbatch.logs import ClientLogger
from kbatch.protocol import messages

if TYPE_CHECKING:
    from typing import Any

    from kbatch.config import ConsumerConfig
    from kbatch.core.consumer.group_coordinator import GroupCoordinator
    from kbatch.core.consumer.group_metrics import MemberMetrics
    from kbatch.protocol.structs import Message

logger = ClientLogger(__name__)

# What to do about an error that ends the membership, beside the broker's words.
REMEDIES: Mapping[ErrorCode, str] = {
    ErrorCode.GROUP_MAX_SIZE_REACHED: "stop some members, or raise the broker's group.share.max.size",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "add the ACL READ for the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "add the ACL DESCRIBE for the topics",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group is of another kind; choose another group.id",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the group is of another kind; choose another group.id",
    ErrorCode.UNSUPPORTED_VERSION: "share groups need Kafka 4.2 or newer, with the feature share.version=1",
}


class ShareMembership:
    """A member.

    Parameters
    ----------
    config : ConsumerConfig
    coordinator : GroupCoordinator
    metrics : MemberMetrics
    member_id : str
        A UUID. It stays for the life of the consumer.
    now_ns : int

    Attributes
    ----------
    state : MemberState
    member_id : str
    request, noun, remedies
        Those of BeatingMember.
    topics : frozenset[str]
        The subscription; empty before `subscribe` and after `leave`.
    assignment : Mapping[bytes, frozenset[int]]
        Partitions by topic id.
    error : KafkaError | None
        The error that ended the membership.
    deadline_ns : int
        The time of the next `run`, if nothing happens before.
    """

    request: ClassVar[type[Message]] = messages.ShareGroupHeartbeatRequest
    noun: ClassVar[str] = "share group"
    remedies: ClassVar[Mapping[ErrorCode, str]] = REMEDIES

    def __init__(
        self,
        config: ConsumerConfig,
        coordinator: GroupCoordinator,
        metrics: MemberMetrics,
        member_id: str,
        now_ns: int,
    ) -> None:
        self._config = config
        self._coordinator = coordinator
        self._metrics = metrics
        self._heartbeats = Heartbeats(self, coordinator, metrics, config, now_ns)
        self.state = MemberState.UNSUBSCRIBED
        self.member_id = member_id
        self.topics: frozenset[str] = frozenset()
        self.assignment: Mapping[bytes, frozenset[int]] = {}
        self.error: KafkaError | None = None
        self.deadline_ns = NEVER_NS

    def __str__(self) -> str:
        group_id, epoch = self._coordinator.group_id, self._heartbeats.epoch
        return f"member {shown(self.member_id)} of share group {group_id} in epoch {epoch}"

    @property
    def is_member(self) -> bool:
        """True if it is in the group, as far as is known."""
        return self._heartbeats.is_in_group

    @property
    def is_out(self) -> bool:
        """True if the coordinator needs no more requests."""
        return self.state is MemberState.UNSUBSCRIBED

    def _transition(self, event: MemberEvent) -> None:
        self.state = next_state(SHARE_TRANSITIONS, self.state, event, self)

    # What the engine wants

    def subscribe(self, topics: frozenset[str], now_ns: int) -> None:
        """Join the group, or change the subscription. It also recovers from `error`."""
        self._transition(MemberEvent.SUBSCRIBE)
        if topics != self.topics:
            self._heartbeats.hurry()
        self.topics, self.error = topics, None

    def leave(self, now_ns: int) -> None:
        """Leave the group."""
        self._transition(MemberEvent.LEAVE)
        self.topics = frozenset()
        self._quit(now_ns, LEAVES)

    def expire(self, now_ns: int) -> None:
        """Leave the group, since the program has not polled for max.poll.interval.ms."""
        self._transition(MemberEvent.EXPIRE)
        self._quit(now_ns, LEAVES)

    def rejoin(self, now_ns: int) -> None:
        """Join again after `expire`, since the program polls."""
        if self.state is MemberState.STALE:
            self._transition(MemberEvent.JOIN)

    # Work

    def run(self, now_ns: int) -> None:
        """Send what is due now."""
        self.deadline_ns = NEVER_NS
        try:
            if self._heartbeats.is_leaving:
                self._heartbeats.send_leave(now_ns)
                self.deadline_ns = self._heartbeats.deadline_ns
            elif self.state in BEATING:
                self._heartbeats.beat(now_ns)
                self.deadline_ns = self._heartbeats.deadline_ns
        except KafkaError as error:
            self.fail(error, now_ns)
        if self.state is MemberState.LEAVING and self._heartbeats.is_idle:
            self._transition(MemberEvent.LEFT)

    def _quit(self, now_ns: int, leave_epoch: int | None = None) -> None:
        """Leave the group, by this epoch if the coordinator does not know."""
        self._heartbeats.quit(now_ns, leave_epoch)
        self.assignment = {}

    # Heartbeats

    def fields(self) -> Mapping[str, Any]:
        return {
            "rack_id": self._config.client_rack or None,
            "subscribed_topic_names": sorted(self.topics),
        }

    def new_request(self, epoch: int, changed: Mapping[str, Any]) -> Message:
        return messages.ShareGroupHeartbeatRequest(
            group_id=self._coordinator.group_id, member_id=self.member_id, member_epoch=epoch, **changed
        )

    def handle_answer(self, answer: Any, now_ns: int) -> None:
        self._heartbeats.epoch = answer.member_epoch
        if answer.assignment is not None:
            assignment = assigned(answer)
            if assignment != self.assignment:
                self._metrics.rebalanced(now_ns)
            self.assignment = assignment
        if self.state is not MemberState.STABLE:  # the coordinator assigns partitions a while later
            self._transition(MemberEvent.REACH)
            self._heartbeats.clock.note_change(now_ns)

    def handle_removal(self, now_ns: int) -> None:
        self._transition(MemberEvent.FENCE)
        self._quit(now_ns)

    def fail(self, error: KafkaError, now_ns: int) -> None:
        logger.error("%s: the membership has ended: %s", self, error)
        self._transition(MemberEvent.FAIL)
        self.error = error
        self._quit(now_ns)
