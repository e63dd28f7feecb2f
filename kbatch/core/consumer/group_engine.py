"""GroupEngine: a ReadingEngine whose partitions a consumer group assigns, without sockets, threads and clocks.

Theory of operation. `subscribe` makes a membership, by the protocol that group.protocol names or the
coordinator offers. The membership asks for steps: the program's thread takes each by `take_rebalance` between
two polls, commits and runs its callbacks, and calls `finish_rebalance`. Partitions of an assignment are known
from `take_rebalance` on, so that callbacks may seek and pause; they are read from `finish_rebalance` on, from
their committed offsets, or else by auto.offset.reset.

`note_poll` keeps the membership alive: without it for max.poll.interval.ms, the member leaves the group,
loses its partitions, and joins again at the next poll.

Requests of the membership have a connection of their own (GROUP_LANE), so neither a long Fetch nor a slow
look-up delays a heartbeat.

After org.apache.kafka.clients.consumer.internals.AsyncKafkaConsumer and ConsumerNetworkThread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbatch.core.consumer.engine import ReadingEngine

if TYPE_CHECKING:
    from kbatch.core.client.calls import Call
    from kbatch.core.consumer.commits import CommitOffsets, CommittedLookup
    from kbatch.core.consumer.membership import Rebalance
    from kbatch.core.consumer.partition_state import FetchState
    from kbatch.core.consumer.subscription import Subscription
    from kbatch.errors import KafkaError
    from kbatch.records import ConsumerGroupMetadata, TopicPartition


class PartitionView(NamedTuple):
    """A partition that is read, as it was a moment ago.

    Attributes
    ----------
    generation : int
        That of the last `assign`, `seek` or assignment.
    state : FetchState
    fetch_offset : int
        The next offset to ask a broker for; -1 while it is looked up. Before any result of the generation, it
        is the program's position.
    last_epoch : int
        The leader epoch of the batch before `fetch_offset`; -1 if unknown.
    is_paused : bool
    high_watermark, last_stable_offset, log_start_offset : int
        From the last Fetch; -1 if unknown.
    """

    generation: int
    state: FetchState
    fetch_offset: int
    last_epoch: int
    is_paused: bool
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class GroupEngine(ReadingEngine):
    """The engine of a consumer, with or without a group.

    Parameters
    ----------
    config : ConsumerConfig
    random, registry, now_ns, wall_clock_ms, on_change
        Parameters of ReadingEngine; `registry` has COORDINATOR_METRICS too. `on_change` is also called after
        a step of a rebalance was asked for, a membership has ended, or a position was found.
    """

    # For any thread; the caller wakes the owner

    def subscribe(self, subscription: Subscription) -> None:
        """Join the group, or let it know another subscription. It also recovers from `membership_error`. The
        program must not assign partitions itself until it has left.
        """
        raise NotImplementedError

    def leave(self, call: Call, leave: bool | None = None) -> None:
        """Give up what the group has assigned, and leave it: for unsubscribe() and close(). The program takes
        and finishes rebalances until the call is done. Without a membership it is done at once.

        Parameters
        ----------
        call : Call
        leave : bool | None
            False keeps the member's place until its session ends; True makes a static member leave for good.
            None is the default: static members keep their place, others do not (KIP-1092).
        """
        raise NotImplementedError

    def note_poll(self, now_ns: int) -> bool:
        """Note that the program polls, or waits in a poll: call it at least once in max.poll.interval.ms.
        Return True if the caller has to wake the owner, since the member joins again now.
        """
        raise NotImplementedError

    @property
    def rebalance(self) -> Rebalance | None:
        """The step that waits for the program; `on_change` was called after it came."""
        raise NotImplementedError

    def take_rebalance(self) -> Rebalance | None:
        """Return the step that waits for the program, which then has to do it and call `finish_rebalance`.

        revoke: hand out nothing more of the partitions, commit what was handed out, and run on_revoked.
        assign: results of these partitions have the step's number as their generation; run on_assigned, in
        which `seek` and `pause` may be called.
        lost: hand out nothing more, and commit nothing; run on_lost.
        """
        raise NotImplementedError

    def finish_rebalance(self, rebalance: Rebalance) -> None:
        """Let the next `run` go on, since the program has done the step."""
        raise NotImplementedError

    def commit(self, call: CommitOffsets) -> None:
        """Let the next `run` begin the call. Commits are sent, and done, in the order of these calls."""
        raise NotImplementedError

    def committed(self, call: CommittedLookup) -> None:
        """Let the next `run` begin the call."""
        raise NotImplementedError

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member, for `Producer.send_offsets_to_transaction`. Raise InvalidGroupIdError without group.id.
        """
        raise NotImplementedError

    @property
    def membership_error(self) -> KafkaError | None:
        """The error that has ended the membership. The next poll raises it; `subscribe` recovers."""
        raise NotImplementedError

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that the group has assigned and the program has taken."""
        raise NotImplementedError

    def view(self, partition: TopicPartition) -> PartitionView | None:
        """Return what is known of a partition; None if it is not read."""
        raise NotImplementedError

    def lag(self, partition: TopicPartition, position: int) -> int | None:
        """Return the distance of a position from the end of the log by the last Fetch; None if that is not
        known. Under read_committed the end is the last stable offset.
        """
        raise NotImplementedError
