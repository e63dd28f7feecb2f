"""Heartbeats of members whose coordinator assigns the partitions: by KIP-848, and of share groups (KIP-932).

Theory of operation. A heartbeat has the member's epoch, and those of its fields that have changed since the
last one. The first has the epoch 0 and everything; after a failure one has everything again, since the
coordinator may not have got it. A member leaves by a heartbeat with an epoch below 0, which is repeated until
the coordinator knows, within LeaveLimit.

The coordinator assigns partitions a while after a change. So for two intervals after one, heartbeats go out
five times as often: the member then learns soon what it gets.

After org.apache.kafka.clients.consumer.internals.AbstractHeartbeatRequestManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from zlib import crc32

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.core.client.lasting_faults import LastingFaults
from kbatch.core.consumer.group_coordinator import GROUP_PURPOSE, LeaveLimit
from kbatch.core.consumer.member_state import ENDING, MemberState
from kbatch.core.consumer.membership import REMOVED, check_partitions
from kbatch.core.consumer.outcomes import FIRST_HEARTBEAT_OUTCOMES, HEARTBEAT_OUTCOMES, HeartbeatOutcome
from kbatch.errors import ErrorCode, KafkaError, ProtocolError, error_of, row_of
from kbatch.errors.words import shown
from kbatch.logs import ClientLogger

if TYPE_CHECKING:
    from kbatch.config import ConsumerConfig
    from kbatch.core.client.connections import Response
    from kbatch.core.consumer.group_coordinator import GroupCoordinator
    from kbatch.core.consumer.group_metrics import MemberMetrics
    from kbatch.protocol.structs import Message

logger = ClientLogger(__name__)

JOINS, LEAVES = 0, -1  # epochs
HURRIED_BEATS, HURRIED_INTERVALS = 5, 2
# Heartbeats are no more frequent, whatever the coordinator's interval is.
SHORTEST_INTERVAL_NS = 100 * NS_PER_MS


def assigned(answer: Any) -> dict[bytes, frozenset[int]]:
    """Return the partitions by topic id of an answer to a heartbeat. Raise ProtocolError if there cannot be
    such partitions.
    """
    found = {each.topic_id: frozenset(each.partitions) for each in answer.assignment.topic_partitions}
    for partitions in found.values():
        check_partitions(partitions)
    return found


class HeartbeatClock:
    """When heartbeats are due: five times as often for two intervals after a change, as another may follow.

    The first one after that comes at a point of the interval that depends on the member's id: the members of
    a group do not keep in step. A session is usually a number of intervals. So that of a dead member would
    end just after the heartbeats of all others, which would learn of it an interval later.

    Attributes
    ----------
    interval_ns : int
    """

    def __init__(self, interval_ns: int = 0) -> None:
        self.interval_ns = interval_ns
        self._hurried_until_ns = 0

    def set_interval(self, interval_ms: int) -> None:
        """Use the interval that the coordinator names."""
        self.interval_ns = max(interval_ms * NS_PER_MS, SHORTEST_INTERVAL_NS)

    def note_change(self, now_ns: int) -> None:
        """Record a change."""
        self._hurried_until_ns = now_ns + HURRIED_INTERVALS * self.interval_ns

    def after(self, sent_ns: int, member_id: str) -> int:
        """Return when the heartbeat after the one that was sent then is due."""
        early_ns = max(self.interval_ns // HURRIED_BEATS, min(self.interval_ns, SHORTEST_INTERVAL_NS))
        if sent_ns + early_ns < self._hurried_until_ns:
            return sent_ns + early_ns
        if sent_ns < self._hurried_until_ns:
            return sent_ns + early_ns + crc32(member_id.encode()) * (self.interval_ns - early_ns) // 2**32
        return sent_ns + self.interval_ns


class BeatingMember(Protocol):
    """The membership that Heartbeats serves.

    Attributes
    ----------
    request : type[Message]
        The class of its heartbeats.
    noun : str
        What texts call its group.
    remedies : Mapping[ErrorCode, str]
        What to do about an error that ends the membership, beside the broker's words.
    state : MemberState
    member_id : str
    """

    request: ClassVar[type[Message]]
    noun: ClassVar[str]
    remedies: ClassVar[Mapping[ErrorCode, str]]
    state: MemberState
    member_id: str

    def new_request(self, epoch: int, changed: Mapping[str, Any]) -> Message:
        """Return a heartbeat with these fields, besides those that each one has."""

    def fields(self) -> Mapping[str, Any]:
        """Return the fields that are left out while they do not change."""

    def handle_answer(self, answer: Any, now_ns: int) -> None:
        """Use a good answer. Raise ProtocolError if it is impossible."""

    def handle_removal(self, now_ns: int) -> None:
        """Lose the membership, and join again, since the coordinator has removed the member."""

    def fail(self, error: KafkaError, now_ns: int) -> None:
        """End the membership with an error."""


class Heartbeats:
    """Sends the heartbeats of a member, and judges their answers.

    Parameters
    ----------
    member : BeatingMember
    coordinator : GroupCoordinator
    metrics : MemberMetrics
    config : ConsumerConfig
    now_ns : int

    Attributes
    ----------
    epoch : int
        The member's; JOINS before the coordinator has given one.
    is_in_group : bool
        True from the first heartbeat on, as far as is known.
    clock : HeartbeatClock
    deadline_ns : int
        When to call `beat` or `send_leave` again, if nothing happens before.
    """

    def __init__(
        self,
        member: BeatingMember,
        coordinator: GroupCoordinator,
        metrics: MemberMetrics,
        config: ConsumerConfig,
        now_ns: int,
    ) -> None:
        self._member = member
        self._coordinator = coordinator
        self._metrics = metrics
        self._config = config
        self._faults = LastingFaults(logger)
        self._pending = AnyNodeRequest(GROUP_PURPOSE)
        self._sent: dict[str, Any] = {}  # the fields that the coordinator has
        self._sent_ns = now_ns
        self._is_urgent = False
        self._leave_epoch: int | None = None  # that is to be sent
        self._leave_limit = LeaveLimit(config, now_ns)
        self.epoch = JOINS
        self.is_in_group = False
        self.clock = HeartbeatClock()
        self.deadline_ns = NEVER_NS

    # What the member wants

    @property
    def repeats_all(self) -> bool:
        """True if the next heartbeat has everything about the member."""
        return not self._sent

    def repeat(self, field: str) -> None:
        """Put the field into the next heartbeat, even if it has not changed."""
        self._sent.pop(field, None)

    def hurry(self) -> None:
        """Send the next heartbeat as soon as possible."""
        self._is_urgent = True

    def join(self) -> None:
        """Begin a membership, whatever is left to be sent or answered of the one before."""
        self._leave_epoch = None
        self._restart()

    def quit(self, now_ns: int, leave_epoch: int | None = None) -> None:
        """End the membership. A member in the group leaves by this epoch; without one, the coordinator knows
        already, or its session is to end.
        """
        if self.is_in_group:
            self._leave_epoch = leave_epoch
            self._leave_limit = LeaveLimit(self._config, now_ns)
        self._restart()

    def _restart(self) -> None:
        """Ignore the answer that is awaited; the next heartbeat is the first of a membership."""
        self.epoch, self.is_in_group = JOINS, False
        self._pending = AnyNodeRequest(GROUP_PURPOSE)
        self._sent.clear()
        self._is_urgent = False

    # Heartbeats

    def beat(self, now_ns: int, *, is_due: bool = False) -> bool:
        """Send the next heartbeat if it is due, by the clock or because of a change. Return True if it was
        sent.
        """
        self.deadline_ns = NEVER_NS
        pending, member = self._pending, self._member
        if pending.is_in_flight:
            return False
        is_due = is_due or self._is_urgent or not self.is_in_group
        due_ns = 0 if is_due else self.clock.after(self._sent_ns, member.member_id)
        due_ns = max(due_ns, pending.not_before_ns)
        if now_ns < due_ns:
            self.deadline_ns = due_ns
            return False
        fields = member.fields()
        changed = {name: value for name, value in fields.items() if self._sent.get(name, self) != value}
        if not self._send(self.epoch, changed, partial(self._handle_answer, pending, now_ns), now_ns):
            self.deadline_ns = pending.deadline_ns
            return False
        self.is_in_group = True
        self._is_urgent = False
        self._sent_ns = now_ns
        self._sent.update(changed)
        return True

    def _send(
        self, epoch: int, changed: Mapping[str, Any], handle: Callable[[Response], None], now_ns: int
    ) -> bool:
        is_sent = self._coordinator.send(
            self._pending,
            self._member.request,
            lambda version: self._member.new_request(epoch, changed),
            handle,
            now_ns,
        )
        if is_sent:
            self._metrics.heartbeat_sent(now_ns)
        return is_sent

    def _handle_answer(self, pending: AnyNodeRequest, sent_ns: int, response: Response) -> None:
        """Handle the answer to a heartbeat, unless its membership is over."""
        member, now_ns = self._member, response.now_ns
        self._metrics.heartbeat_answered(sent_ns, now_ns)
        if pending is not self._pending:
            return
        outcome, error = self._judge(response)
        if error is None:
            if member.state is not MemberState.JOINING:
                self._faults.end(REMOVED, f"{member}: the coordinator has it again", now_ns)
            pending.attempts = pending.not_before_ns = 0
            self.clock.set_interval(response.message.heartbeat_interval_ms)
            try:
                member.handle_answer(response.message, now_ns)
            except ProtocolError as fault:
                member.fail(fault, now_ns)
        elif outcome is HeartbeatOutcome.FAIL:
            member.fail(error, now_ns)
        elif outcome is HeartbeatOutcome.REJOIN:
            self._faults.note(REMOVED, f"{member}: the coordinator has removed it ({error.code})", now_ns)
            member.handle_removal(now_ns)
        else:
            self._repeat_all(outcome, now_ns)

    def _judge(self, response: Response) -> tuple[HeartbeatOutcome, KafkaError | None]:
        """Return what follows from the answer to a heartbeat, or its failure, and the error."""
        answer, error = response.message, response.error
        if answer is None:
            assert error is not None
            if not error.retriable:
                return HeartbeatOutcome.FAIL, error
            self._coordinator.forget()
            return HeartbeatOutcome.BACK_OFF, error
        code = ErrorCode(answer.error_code)
        if code:
            text = (
                f"{self._member.noun} {self._coordinator.group_id} has refused the member: "
                f"{shown(answer.error_message) or row_of(code).doc}"
            )
            error = error_of(code, "; ".join(filter(None, (text, self._member.remedies.get(code)))))
        is_joining = self._member.state is MemberState.JOINING
        outcomes = FIRST_HEARTBEAT_OUTCOMES if is_joining else HEARTBEAT_OUTCOMES
        return outcomes[code], error

    def _repeat_all(self, outcome: HeartbeatOutcome, now_ns: int) -> None:
        """Send everything about the member again."""
        self._sent.clear()
        self._is_urgent = True
        self._coordinator.repeat_heartbeat(self._pending, outcome, now_ns)

    # The end

    @property
    def is_leaving(self) -> bool:
        """True if `send_leave` is to be called."""
        return self._leave_epoch is not None

    @property
    def is_idle(self) -> bool:
        """True if nothing is to be sent or answered of a member that leaves."""
        return self._leave_epoch is None and not self._pending.is_in_flight

    def send_leave(self, now_ns: int) -> None:
        """Send the heartbeat by which the member leaves, within the limit."""
        self.deadline_ns = NEVER_NS
        pending, epoch = self._pending, self._leave_epoch
        assert epoch is not None
        try:
            is_over = self._send(epoch, {}, partial(self._handle_leave, pending, epoch, now_ns), now_ns)
        except KafkaError:
            is_over = True  # the coordinator cannot be found, and that will not change
        if is_over or self._leave_limit.is_over(self._coordinator, now_ns):
            self._leave_epoch = None
        else:
            self.deadline_ns = min(pending.deadline_ns, self._leave_limit.deadline_ns(now_ns))

    def _handle_leave(self, pending: AnyNodeRequest, epoch: int, sent_ns: int, response: Response) -> None:
        self._metrics.heartbeat_answered(sent_ns, response.now_ns)
        is_awaited = pending is self._pending and self._member.state in ENDING  # else it joins again
        if is_awaited and self._coordinator.repeats_leave(pending, response):
            self._leave_epoch = epoch
