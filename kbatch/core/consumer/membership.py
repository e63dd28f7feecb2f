"""Membership: how a consumer belongs to its group, whatever the group's protocol.

Theory of operation. A membership talks to the group's coordinator and finds out which partitions the member
is to own. It changes that in steps, each a `Rebalance` that the program does between two polls: give up
partitions, take some, or learn that some are lost. Ownership hands one step at a time to the program's
thread. A step that the program has not taken yet can be withdrawn; one that it has taken is always finished
first. So callbacks see each partition assigned once, and then revoked or lost once.

After org.apache.kafka.clients.consumer.internals.AbstractMembershipManager, AbstractCoordinator and
ConsumerRebalanceListenerInvoker.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from kbatch.errors import ProtocolError
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.config import ConsumerConfig
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.consumer.group_coordinator import GroupCoordinator
    from kbatch.core.consumer.group_metrics import GroupMetrics
    from kbatch.core.consumer.topic_ids import TopicIds
    from kbatch.errors import ErrorCode, KafkaError
    from kbatch.records import ConsumerGroupMetadata

RebalanceKind = Literal["revoke", "assign", "lost"]

# What a member logs about as a fault that may last.
REMOVED, REBALANCING = "removed", "rebalancing"


class Subscription(NamedTuple):
    """The topics of a group's member: their names, or a pattern of names.

    Attributes
    ----------
    topics : frozenset[str]
        Empty with a pattern.
    pattern : str | None
        A valid regular expression of Python's `re` that matches whole names (PatternTopics).
    origin : callable or None
        Returns the name that the pattern is to match for a topic; None if that is the topic's own.
    """

    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    origin: Callable[[str], str] | None = None

    def excludes(self, topic: str) -> bool:
        """True if the topic is not in it."""
        if self.pattern is None:
            return topic not in self.topics
        name = topic if self.origin is None else self.origin(topic)
        return re.fullmatch(self.pattern, name) is None

    def __str__(self) -> str:
        return f"pattern {self.pattern!r}" if self.pattern is not None else ", ".join(sorted(self.topics))


class Rebalance(NamedTuple):
    """A step of a rebalance, for the program.

    Attributes
    ----------
    kind : "revoke", "assign" or "lost"
        Partitions that the member gives up, after their offsets are committed; that it gets; or that it no
        longer owns, so that nothing can be committed.
    partitions : tuple[TopicPartition, ...]
        In order. The first assignment after a join may be empty.
    number : int
        It grows. Results of an assigned partition have it as their generation, until a `seek`.
    """

    kind: RebalanceKind
    partitions: tuple[TopicPartition, ...]
    number: int


def check_partitions(partitions: Iterable[int]) -> None:
    """Raise ProtocolError if a partition that was assigned has a number that none has."""
    lowest = min(partitions, default=0)
    if lowest < 0:
        raise ProtocolError(
            f"partition {lowest} was assigned, which is impossible; check the group's leader and the broker"
        )


class Ownership:
    """The partitions that a member owns, and the step that changes them.

    The engine's owner asks for steps. The program's thread takes and does them; the engine finishes them.

    Parameters
    ----------
    numbers : Iterator[int]
        Gives the numbers of steps.
    on_change : callable
        Called after a step was requested.

    Attributes
    ----------
    owned : frozenset[TopicPartition]
        What the member owns, with what it is giving up, without what it is about to get.
    """

    def __init__(self, numbers: Iterator[int], on_change: Callable[[], object]) -> None:
        self.owned: frozenset[TopicPartition] = frozenset()
        self._numbers = numbers
        self._on_change = on_change
        self._offered: deque[Rebalance] = deque()  # at most one; whoever removes it decides about it
        self._open: Rebalance | None = None
        self._must_lose = False
        self._tenures: dict[TopicPartition, int] = {}

    # For the program's thread

    @property
    def offered(self) -> Rebalance | None:
        """The step that the program has not taken yet."""
        try:
            return self._offered[0]
        except IndexError:
            return None

    def take(self) -> Rebalance | None:
        """Return the next step, which can no longer be withdrawn."""
        try:
            return self._offered.popleft()
        except IndexError:
            return None

    def is_open(self, step: Rebalance) -> bool:
        """True if the step is not finished, and not withdrawn."""
        return self._open is step

    # For the engine's owner

    @property
    def is_idle(self) -> bool:
        """True if all steps are finished."""
        return self._open is None

    def tenure(self, partition: TopicPartition) -> int | None:
        """Return the number of the step by which the program has got a partition, or is just taking it; None
        if the member must not commit it. A partition that was lost, and came back, has another one.
        """
        step = self._open
        if step is not None and step.kind == "assign" and not self._offered and partition in step.partitions:
            return step.number
        return self._tenures.get(partition)

    @property
    def claimed(self) -> frozenset[TopicPartition]:
        """The partitions that no other member may get: what is owned, and what an open step adds."""
        step = self._open
        return self.owned | set(step.partitions) if step is not None and step.kind == "assign" else self.owned

    @property
    def is_released(self) -> bool:
        """True if nothing is owned, and nothing will be by an open step."""
        return self._open is None and not self.owned

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Request the step that revokes partitions. No other step may be open."""
        self._offer("revoke", partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Request the step that assigns partitions. No other step may be open."""
        self._offer("assign", partitions)

    def lose(self) -> None:
        """Request the step by which the program learns that it owns nothing. A step that it has not taken is
        withdrawn; the step that it has taken comes first.
        """
        self.withdraw()
        if self._open is not None:
            self._must_lose = self._open.kind != "lost"
        elif self.owned:
            self._offer("lost", self.owned)

    def withdraw(self) -> None:
        """Withdraw the step if the program has not taken it, unless it says what is lost."""
        if self._open is not None and self._open.kind != "lost" and self.take() is not None:
            self._open = None

    def finish(self, step: Rebalance) -> bool:
        """Apply a step. Return False, and change nothing, if it is not the open one."""
        if step is not self._open:
            return False
        self._open = None
        if step.kind == "assign":
            self.owned |= frozenset(step.partitions)
            self._tenures.update(dict.fromkeys(step.partitions, step.number))
        else:
            self.owned -= frozenset(step.partitions)
            for partition in step.partitions:
                self._tenures.pop(partition, None)
        if self._must_lose:
            self._must_lose = False
            self.lose()
        return True

    def _offer(self, kind: RebalanceKind, partitions: Iterable[TopicPartition]) -> None:
        assert self._open is None
        self._open = Rebalance(kind, tuple(sorted(partitions)), next(self._numbers))
        self._offered.append(self._open)
        self._on_change()


class MemberContext(NamedTuple):
    """The parts of an engine that a membership uses.

    Attributes
    ----------
    config : ConsumerConfig
    cluster : Cluster
    coordinator : GroupCoordinator
        Sends requests to the group's coordinator.
    ownership : Ownership
    topic_ids : TopicIds
    metrics : GroupMetrics
    new_member_id : str
        A UUID for protocols in which the member names itself. It stays for the life of the consumer.
    """

    config: ConsumerConfig
    cluster: Cluster
    coordinator: GroupCoordinator
    ownership: Ownership
    topic_ids: TopicIds
    metrics: GroupMetrics
    new_member_id: str


class PolledMember(Protocol):
    """A member whose program has to poll."""

    def expire(self, now_ns: int) -> None:
        """Leave the group and lose what it owns, since the program has not polled for max.poll.interval.ms.
        Do not join again before `rejoin`.
        """

    def rejoin(self, now_ns: int) -> None:
        """Join again after `expire`, since the program polls."""


class Membership(PolledMember, Protocol):
    """A member of a group, by one of the protocols. A class of it is made with (context, now_ns).

    Attributes
    ----------
    identity : ConsumerGroupMetadata
        The member with its generation or epoch, -1 and "" while it is not in the group. It is replaced, never
        changed, so any thread may read it.
    error : KafkaError | None
        The error that ended the membership.
    deadline_ns : int
        The time of the next `run`, if nothing happens before.
    """

    identity: ConsumerGroupMetadata
    error: KafkaError | None
    deadline_ns: int

    @property
    def is_member(self) -> bool:
        """True if the coordinator counts it among the members, so that it may commit what it owns."""

    @property
    def is_out(self) -> bool:
        """True if it has left, or ended with an error, and nothing of it is left to be done."""

    def subscribe(self, subscription: Subscription, now_ns: int) -> None:
        """Join the group, or change the subscription."""

    def run(self, now_ns: int) -> None:
        """Send the requests that are due, and request the next step from Ownership."""

    def acknowledge(self, rebalance: Rebalance, now_ns: int) -> None:
        """Continue after the program has done a step, which Ownership has applied."""

    def leave(self, now_ns: int, *, leave: bool | None) -> None:
        """Revoke what it owns, and leave the group; then `is_out` is true. With `leave=False` the group
        keeps its place until the session ends; with True a static member leaves for good; None is what the
        protocol does otherwise (KIP-1092).
        """

    def handle_commit_refused(self, code: ErrorCode, generation: int, now_ns: int) -> None:
        """Handle the coordinator's refusal of a commit of `generation`: UNKNOWN_MEMBER_ID,
        ILLEGAL_GENERATION, FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH or REBALANCE_IN_PROGRESS.
        """

    def topic_id_of(self, partition: TopicPartition) -> bytes:
        """Return the id of the topic that is assigned with a partition; NO_TOPIC_ID if that is a name's."""

    def topics(self) -> Iterable[str]:
        """Return the topics whose metadata it needs."""
