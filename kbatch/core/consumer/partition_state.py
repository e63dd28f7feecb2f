"""A partition that is read: its position, its state, and what the last answers said about it.

Theory of operation. `TRANSITIONS` is the whole life of a partition; an event that its state does not have
raises and changes nothing. The *fetch position* is the next offset to ask a broker for. A `seek` makes
another PartitionState, so answers and look-ups that were requested before it find this one closed.

After org.apache.kafka.clients.consumer.internals.SubscriptionState.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kbatch._native.fetch.reading import PartitionReading
from kbatch.config.values import duration_of
from kbatch.core.client.backoff import Retrying
from kbatch.errors import IllegalStateError
from kbatch.records import NO_TOPIC_ID

if TYPE_CHECKING:
    from kbatch.config import ConsumerConfig
    from kbatch.records import OffsetAndMetadata, TopicPartition

# The offset after every other.
NO_END = 2**63 - 1
NO_EPOCH = -1


class OffsetSpec(NamedTuple):
    """The time whose offset ListOffsets finds: that of the first record then or later, in milliseconds since
    1970, or one of the special times below.
    """

    timestamp_ms: int


LATEST, EARLIEST, MAX_TIMESTAMP = OffsetSpec(-1), OffsetSpec(-2), OffsetSpec(-3)
# The beginning of the part of the log that is not in tiered storage only (KIP-405).
EARLIEST_LOCAL = OffsetSpec(-4)

# Where to continue if the log does not have the position: None fails, a duration goes back from now.
Reset = OffsetSpec | timedelta | None


class Start(NamedTuple):
    """A position to begin at, with the leader epoch of the record before it, or NO_EPOCH. With an epoch, a
    truncation of the log before the position is found (KIP-320).

    `topic_id` is the id of the topic that the offset is of; NO_TOPIC_ID if that is not known.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    topic_id: bytes = NO_TOPIC_ID


class GroupStart(Enum):
    """A start that the consumer's group knows."""

    COMMITTED = "the committed offset, or without one the reset policy's"


COMMITTED = GroupStart.COMMITTED


class FetchState(Enum):
    """The state of a partition that is read."""

    NEW = "new"
    LOOKING_UP = "looking up"
    RESETTING = "resetting"
    VALIDATING = "validating"
    FETCHING = "fetching"
    COMPLETE = "complete"
    FAILED = "failed"
    CLOSED = "closed"


class FetchEvent(Enum):
    """An event in the life of a partition that is read."""

    POSITION = "it has a position"
    LOOK_UP = "its committed offset is looked up"
    RESET = "its position is looked up"
    VALIDATE = "its position is compared with the leader's log"
    COMPLETE = "its end is reached"
    FAIL = "it fails"
    CLOSE = "it is no longer read"


TRANSITIONS: Mapping[FetchState, Mapping[FetchEvent, FetchState]] = {
    FetchState.NEW: {
        FetchEvent.POSITION: FetchState.FETCHING,
        FetchEvent.LOOK_UP: FetchState.LOOKING_UP,
        FetchEvent.RESET: FetchState.RESETTING,
        FetchEvent.FAIL: FetchState.FAILED,
        FetchEvent.CLOSE: FetchState.CLOSED,
    },
    FetchState.LOOKING_UP: {
        FetchEvent.POSITION: FetchState.FETCHING,
        FetchEvent.RESET: FetchState.RESETTING,
        FetchEvent.FAIL: FetchState.FAILED,
        FetchEvent.CLOSE: FetchState.CLOSED,
    },
    FetchState.RESETTING: {
        FetchEvent.POSITION: FetchState.FETCHING,
        FetchEvent.FAIL: FetchState.FAILED,
        FetchEvent.CLOSE: FetchState.CLOSED,
    },
    FetchState.VALIDATING: {
        FetchEvent.POSITION: FetchState.FETCHING,
        FetchEvent.RESET: FetchState.RESETTING,
        FetchEvent.FAIL: FetchState.FAILED,
        FetchEvent.CLOSE: FetchState.CLOSED,
    },
    FetchState.FETCHING: {
        FetchEvent.POSITION: FetchState.FETCHING,
        FetchEvent.RESET: FetchState.RESETTING,
        FetchEvent.VALIDATE: FetchState.VALIDATING,
        FetchEvent.COMPLETE: FetchState.COMPLETE,
        FetchEvent.FAIL: FetchState.FAILED,
        FetchEvent.CLOSE: FetchState.CLOSED,
    },
    FetchState.COMPLETE: {FetchEvent.CLOSE: FetchState.CLOSED},
    FetchState.FAILED: {FetchEvent.CLOSE: FetchState.CLOSED},
    FetchState.CLOSED: {},
}


class PartitionState(PartitionReading, Retrying):
    """A partition that is read, from an `assign` or `seek` to the next.

    Attributes
    ----------
    partition : TopicPartition
    generation : int
        The number of the `assign` or `seek`, which grows.
    state : FetchState
    start : Start | OffsetSpec | COMMITTED
    end_offset : int
        The partition is complete when its position is there; NO_END.
    empty_from : int
        The position from which on the range may have no records, which is being found out; -1.
    reset : Reset
        The policy for a position that the log does not have.
    created_ns : int
    first_offset, first_epoch : int
        The position at which reading began, and the leader epoch of the record before it or NO_EPOCH; -1
        while it is looked up.
    first_topic_id : bytes
        The id of the topic in which that is a position; NO_TOPIC_ID while it is unknown.
    committed : OffsetAndMetadata | None
        What the group has committed, if that was looked up.
    fetch_offset : int
    read_offset : int
        The offset after what the program has released; at first `first_offset`.
    last_epoch : int
        The leader epoch of the batch before the position; NO_EPOCH.
    checked_epoch : int
        The leader epoch in which brokers without KIP-595 have confirmed the position; NO_EPOCH.
    topic_id : bytes
        The id of the topic that is read.
    assigned_id : bytes
        The id of the topic that the group has assigned: no other one is read. NO_TOPIC_ID if that is a
        name's, or the program has chosen the partition.
    is_topic_given, is_topic_sure : bool
        True if the start has named the id; True if the position is known to be of the topic of that id.
    is_in_flight : bool
        True if there is a request whose answer counts; `withdraw` ends that.
    asked_offset, asked_epoch : int
        The position, and the leader's epoch, that the last request has named.
    backlog_bytes : int
        The bytes of results that were not released.
    needed_bytes : int
        The size of a batch that did not fit in the last answer; else 0.
    leader_epoch : int
        The current leader's; NO_EPOCH.
    replica_id, replica_until_ns : int
        The replica to fetch from, instead of the leader, up to a time (KIP-392); -1.
    is_failing : bool
        True if its last answer was an error.
    attempts, not_before_ns : int
        Those of Retried.
    is_paused : bool
    high_watermark, last_stable_offset, log_start_offset : int
        The latest known ones; -1.
    """

    __slots__ = (
        "assigned_id",
        "attempts",
        "committed",
        "created_ns",
        "empty_from",
        "first_epoch",
        "first_offset",
        "first_topic_id",
        "generation",
        "is_topic_given",
        "partition",
        "replica_until_ns",
        "reset",
        "start",
        "state",
    )

    def __init__(
        self,
        partition: TopicPartition,
        generation: int,
        start: Start | OffsetSpec | GroupStart,
        end_offset: int,
        reset: Reset,
        now_ns: int,
    ) -> None:
        super().__init__(*partition, end_offset)
        self.attempts = 0
        self.partition = partition
        self.generation = generation
        self.state = FetchState.NEW
        self.start = start
        self.empty_from = -1
        self.reset = reset
        self.created_ns = now_ns
        self.first_offset = -1
        self.first_epoch = NO_EPOCH
        self.first_topic_id = NO_TOPIC_ID
        self.committed: OffsetAndMetadata | None = None
        self.topic_id = start.topic_id if isinstance(start, Start) else NO_TOPIC_ID
        self.assigned_id = NO_TOPIC_ID
        self.is_topic_given = self.topic_id != NO_TOPIC_ID
        self.is_topic_sure = not self.is_topic_given
        self.replica_until_ns = 0

    def __repr__(self) -> str:
        return f"<{self.partition} at {self.fetch_offset}, {self.state.value}>"

    def transition(self, event: FetchEvent) -> None:
        """Enter the next state. Raise IllegalStateError, and change nothing, if this state has none."""
        state = TRANSITIONS[self.state].get(event)
        if state is None:
            raise IllegalStateError(f"{self.partition}: {event.value} while {self.state.value}")
        self.state = state
        self.is_fetching = state is FetchState.FETCHING
        if event is not FetchEvent.POSITION:
            self.withdraw()

    def move_to(self, offset: int, last_epoch: int) -> None:
        """Continue at an offset. `last_epoch` is the leader epoch of the record before it, or NO_EPOCH."""
        self.transition(FetchEvent.POSITION)
        self.fetch_offset = offset
        self.last_epoch = last_epoch
        if self.first_offset < 0:
            # before the offset, after which the program's thread looks
            self.first_epoch, self.first_topic_id = last_epoch, self.topic_id
            self.first_offset = self.read_offset = offset

    def find_topic(self, topic_id: bytes) -> None:
        """Record the topic of the position, before anything was read."""
        self.topic_id = self.first_topic_id = topic_id

    def forget_log(self) -> None:
        """Forget what answers have said of the log, as another one is read."""
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1

    def adopt_log(self, before: PartitionState) -> None:
        """Know of the log what an earlier state of the partition knew. Brokers do not repeat it within a
        session until it changes.
        """
        self.high_watermark = before.high_watermark
        self.last_stable_offset = before.last_stable_offset
        self.log_start_offset = before.log_start_offset

    @property
    def is_closed(self) -> bool:
        """True if it is no longer read, or a `seek` has replaced it."""
        return self.state is FetchState.CLOSED

    @property
    def is_bounded(self) -> bool:
        """True if it has an end offset."""
        return self.end_offset != NO_END

    def after_loss(self, offset: int) -> int:
        """Return the position after a reset to `offset`."""
        return after_loss(self.fetch_offset, offset, self.end_offset)


def after_loss(position: int, offset: int, end_offset: int) -> int:
    """Return where a partition is read from `position` on, if the log does not have that and reading is reset
    to `offset`. A range goes forward only, as no record of it is read twice; one whose rest is gone ends.
    """
    if end_offset == NO_END:
        return offset
    return min(offset, end_offset) if offset >= position else end_offset


def reset_of(config: ConsumerConfig) -> Reset:
    """Return the policy of auto.offset.reset."""
    named: dict[str, Reset] = {"earliest": EARLIEST, "latest": LATEST, "none": None}
    text = config.auto_offset_reset
    return named[text] if text in named else duration_of(text)
