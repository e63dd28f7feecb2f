"""The results of a ReadingEngine for its driver: records, moved positions, failed partitions.

A driver gets them in order per partition. `generation` says to which `assign` or `seek` a result belongs:
results of a lower one than the partition's latest are outdated, and are released unread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbatch.core.consumer.partition_state import NO_EPOCH

if TYPE_CHECKING:
    from kbatch._native.fetch.fetched_batches import FetchedRecords
    from kbatch.core.consumer.budget import FrameShare
    from kbatch.core.consumer.partition_state import PartitionState
    from kbatch.errors import KafkaError
    from kbatch.records import TopicPartition


class Fetched:
    """The records of a partition in one answer, not decoded yet. `ReadingEngine.release` gives back its
    memory.

    Attributes
    ----------
    partition : TopicPartition
    generation : int
    records : FetchedRecords | None
        None if there is nothing to read: the last piece of a range may be empty.
    from_offset, next_offset : int
        The position before and after it. All visible records in between are in `records`.
    topic_id : bytes
        The id of the topic; NO_TOPIC_ID.
    last_epoch : int
        The leader epoch of the last batch in between, which a commit of `next_offset` names; NO_EPOCH. It is
        known without `records`, too: markers at the beginning of an epoch are never read.
    is_last : bool
        True if the partition has reached its end offset: nothing comes after it.
    size_bytes : int
        The bytes of the records.
    state : PartitionState
    share : FrameShare | None
        Its part of the memory of an answer.
    charged_bytes : int
        What it adds to the backlog of its partition.
    """

    __slots__ = (
        "charged_bytes",
        "from_offset",
        "generation",
        "is_last",
        "last_epoch",
        "next_offset",
        "partition",
        "records",
        "share",
        "size_bytes",
        "state",
        "topic_id",
    )

    def __init__(
        self,
        state: PartitionState,
        records: FetchedRecords | None,
        *,
        from_offset: int,
        next_offset: int,
        is_last: bool,
        last_epoch: int = NO_EPOCH,
        size_bytes: int = 0,
    ) -> None:
        self.partition = state.partition
        self.generation = state.generation
        self.topic_id = state.topic_id
        self.records = records
        self.from_offset = from_offset
        self.next_offset = next_offset
        self.last_epoch = last_epoch
        self.is_last = is_last
        self.size_bytes = size_bytes
        self.state = state
        self.share: FrameShare | None = None
        self.charged_bytes = 0

    def charge(self, share: FrameShare) -> None:
        """Charge its part of an answer's memory, until `release`."""
        self.share = share
        self.charged_bytes = max(self.size_bytes, share.piece_bytes)
        self.state.backlog_bytes += self.charged_bytes

    def release(self) -> None:
        """Return the charged bytes to the budget. A second call has no effect."""
        if self.share is not None:
            self.share.release()
            self.share = None
            self.state.backlog_bytes -= self.charged_bytes

    def __repr__(self) -> str:
        end = ", the last" if self.is_last else ""
        return f"<{self.partition}: {self.from_offset} to {self.next_offset}{end}>"


class Moved(NamedTuple):
    """A position that the reset policy has moved, because the log does not have the records there.

    Attributes
    ----------
    partition : TopicPartition
    generation : int
    from_offset, to_offset : int
        The positions before and after; records of the log in between are not read. `to_offset` may be the
        lower one: after a truncation, records from there on are read that replaced others. Records of this
        topic from `to_offset` on that the program did not get yet are not in the log any more.
    error : KafkaError
        The reason, which would be raised without a policy: OffsetOutOfRangeError, LogTruncationError or
        DataLossError.
    last_epoch : int
        The leader epoch of the record before `to_offset`, which a commit of `to_offset` names, so that the
        next owner finds another truncation; NO_EPOCH.
    topic_id : bytes
        The id of the topic that `to_offset` is in, which may be a new one; NO_TOPIC_ID.
    """

    partition: TopicPartition
    generation: int
    from_offset: int
    to_offset: int
    error: KafkaError
    last_epoch: int
    topic_id: bytes


class Failed(NamedTuple):
    """A partition from which nothing more is read before a `seek`.

    Attributes
    ----------
    partition : TopicPartition
    generation : int
    error : KafkaError
    """

    partition: TopicPartition
    generation: int
    error: KafkaError


Result = Fetched | Moved | Failed
