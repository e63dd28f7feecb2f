"""ShareMembership: a member of a share group (KIP-932).

Theory of operation. All of it happens in heartbeats. The first has the epoch 0 and the subscription; later
ones have the subscription if it has changed. The answers have the member's epoch and its assignment,
which counts at once: partitions of a share group belong to several members, so none waits for others.

A member that the coordinator has removed joins again with the epoch 0. One whose program has not polled for
max.poll.interval.ms leaves, and joins again when it polls.

After org.apache.kafka.clients.consumer.internals.ShareMembershipManager and ShareHeartbeatRequestManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.core.client.lasting_faults import LastingFaults
from kbatch.core.consumer.group_coordinator import GROUP_LANE, LeaveLimit
from kbatch.core.consumer.member_state import HeartbeatOutcome
from kbatch.core.consumer.membership import REMOVED, HeartbeatClock, assigned
from kbatch.errors import ErrorCode, KafkaError, ProtocolError
from kbatch.errors.words import shown
from kbatch.logs import ClientLogger
from kbatch.protocol import messages

if TYPE_CHECKING:
    from typing import Any

    from kbatch.config import ConsumerConfig
    from kbatch.core.client.connections import Response
    from kbatch.core.consumer.group_coordinator import GroupCoordinator
    from kbatch.core.consumer.group_metrics import MemberMetrics

logger = ClientLogger(__name__)

JOINS, LEAVES = 0, -1  # epochs
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

    Attributes
    ----------
    topics : frozenset[str]
        The subscription; empty before `subscribe` and after `leave`.
    assignment : Mapping[bytes, frozenset[int]]
        Partitions by topic id.
    error : KafkaError | None
        The error that ended the membership.
    deadline_ns : int
        The time of the next `run`, if nothing happens before.
    """

    def __init__(
        self, config: ConsumerConfig, coordinator: GroupCoordinator, metrics: MemberMetrics, member_id: str
    ) -> None:
        self._config = config
        self._coordinator = coordinator
        self._metrics = metrics
        self.member_id = member_id
        self.topics: frozenset[str] = frozenset()
        self.assignment: Mapping[bytes, frozenset[int]] = {}
        self.error: KafkaError | None = None
        self.deadline_ns = NEVER_NS
        self._epoch = JOINS
        self._is_in_group = False  # as far as is known, from the first heartbeat on
        self._must_leave = False
        self._leave_limit = LeaveLimit(config, 0)
        self._is_stale = False
        self._polled_ns = 0
        self._pending = AnyNodeRequest(GROUP_LANE)
        self._sent_topics: frozenset[str] | None = None
        self._sent_ns = 0
        self._clock = HeartbeatClock()
        self._faults = LastingFaults(logger)
        self._is_new = True  # until an answer to the subscription

    def __str__(self) -> str:
        group_id = self._coordinator.group_id
        return f"member {shown(self.member_id)} of share group {group_id} in epoch {self._epoch}"

    @property
    def is_out(self) -> bool:
        """True if the coordinator needs no more requests."""
        return not self.topics and not self._must_leave and not self._pending.is_in_flight

    def subscribe(self, topics: frozenset[str], now_ns: int) -> None:
        """Join the group, or let it know other topics. It also recovers from `error`."""
        self.topics, self.error = topics, None
        self._is_new = True
        self._polled_ns = now_ns

    def leave(self, now_ns: int) -> None:
        """Leave the group."""
        self.topics = frozenset()
        self._begin_leave(now_ns)

    def _begin_leave(self, now_ns: int) -> None:
        self._must_leave |= self._is_in_group
        self._leave_limit = LeaveLimit(self._config, now_ns)
        self._quit()

    def note_poll(self, now_ns: int) -> None:
        """Note that the program polls."""
        self._polled_ns = now_ns
        self._is_stale = False

    # Work

    def run(self, now_ns: int) -> None:
        """Do what is possible now."""
        self.deadline_ns = NEVER_NS
        self._check_polls(now_ns)
        try:
            if self._must_leave:
                self._send_leave(now_ns)
            elif self.topics and self.error is None and not self._is_stale:
                self._beat(now_ns)
        except KafkaError as error:
            self._fail(error)

    def _check_polls(self, now_ns: int) -> None:
        expiry_ns = self._polled_ns + self._config.max_poll_interval_ms * NS_PER_MS
        if not self._is_in_group or not self.topics:
            return
        if now_ns >= expiry_ns:
            logger.warning(
                "%s: leaves, since the program did not poll for max.poll.interval.ms=%d",
                self,
                self._config.max_poll_interval_ms,
            )
            self._is_stale = True
            self._begin_leave(now_ns)
        else:
            self.deadline_ns = expiry_ns

    def _quit(self) -> None:
        """Be no member any more."""
        self._epoch, self._is_in_group = JOINS, False
        self.assignment = {}
        self._is_new = True
        self._sent_topics = None
        self._pending = AnyNodeRequest(GROUP_LANE)

    def _fail(self, error: KafkaError) -> None:
        if self._must_leave:
            self._must_leave = False
            return
        logger.error("%s: the membership has ended: %s", self, error)
        self.error = error
        self._quit()

    def _beat(self, now_ns: int) -> None:
        """Send the next heartbeat if it is due."""
        if self._pending.is_in_flight:
            return
        is_now = not self._is_in_group or self._sent_topics != self.topics
        due_ns = 0 if is_now else self._clock.after(self._sent_ns, self.member_id)
        due_ns = max(due_ns, self._pending.not_before_ns)
        if now_ns < due_ns:
            self.deadline_ns = min(self.deadline_ns, due_ns)
            return
        topics = self.topics
        sent = self._coordinator.send(
            self._pending,
            messages.ShareGroupHeartbeatRequest,
            lambda version: messages.ShareGroupHeartbeatRequest(
                group_id=self._coordinator.group_id,
                member_id=self.member_id,
                member_epoch=self._epoch,
                rack_id=(self._config.client_rack or None) if self._sent_topics is None else None,
                subscribed_topic_names=None if self._sent_topics == topics else sorted(topics),
            ),
            partial(self._take, self._pending, now_ns),
            now_ns,
        )
        if not sent:
            self.deadline_ns = min(self.deadline_ns, self._pending.deadline_ns)
            return
        self._metrics.heartbeat_sent(now_ns)
        self._is_in_group = True
        self._sent_topics, self._sent_ns = topics, now_ns

    def _take(self, pending: AnyNodeRequest, sent_ns: int, response: Response) -> None:
        """Take the answer to a heartbeat, unless the membership for which it was sent is over."""
        now_ns = response.now_ns
        self._metrics.heartbeat_answered(sent_ns, now_ns)
        if pending is not self._pending:
            return
        is_joining = self._epoch == JOINS
        outcome, error = self._coordinator.judge_heartbeat(
            response, "share group", REMEDIES, is_joining=is_joining
        )
        if error is None:
            if not is_joining:
                self._faults.end(REMOVED, f"{self}: the coordinator has it again", now_ns)
            try:
                self._take_answer(response.message, now_ns)
            except ProtocolError as fault:
                self._fail(fault)
        elif outcome is HeartbeatOutcome.FAIL:
            self._fail(error)
        elif outcome is HeartbeatOutcome.REJOIN:
            self._faults.note(REMOVED, f"{self}: the coordinator has removed it ({error.code})", now_ns)
            self._quit()
        else:
            self._sent_topics = None
            self._coordinator.repeat_heartbeat(pending, outcome, now_ns)

    def _take_answer(self, answer: Any, now_ns: int) -> None:
        """Take a good answer: the epoch, the interval and the assignment."""
        self._pending.attempts = self._pending.not_before_ns = 0
        self._clock.take_interval(answer.heartbeat_interval_ms)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            assignment = assigned(answer)
            if assignment != self.assignment:
                self._metrics.rebalanced(now_ns)
            self.assignment = assignment
        if self._is_new:  # the coordinator assigns partitions a while later
            self._is_new = False
            self._clock.unsettle(now_ns)

    # The end

    def _send_leave(self, now_ns: int) -> None:
        """Let the coordinator know of the end, within the limit."""
        sent = self._coordinator.send(
            self._pending,
            messages.ShareGroupHeartbeatRequest,
            lambda version: messages.ShareGroupHeartbeatRequest(
                group_id=self._coordinator.group_id, member_id=self.member_id, member_epoch=LEAVES
            ),
            partial(self._take_leave, self._pending, now_ns),
            now_ns,
        )
        if sent:
            self._metrics.heartbeat_sent(now_ns)
        if sent or self._leave_limit.is_over(self._coordinator, now_ns):
            self._must_leave = False
        else:
            limit_ns = self._leave_limit.deadline_ns(now_ns)
            self.deadline_ns = min(self.deadline_ns, self._pending.deadline_ns, limit_ns)

    def _take_leave(self, pending: AnyNodeRequest, sent_ns: int, response: Response) -> None:
        self._metrics.heartbeat_answered(sent_ns, response.now_ns)
        is_over = not self.topics or self._is_stale  # else it joins again, by the same id
        if pending is self._pending and is_over and self._coordinator.repeats_leave(pending, response):
            self._must_leave = True
