"""The results of a ReadingEngine for its driver: records, moved positions, failed partitions.

A driver gets them in order per partition. `generation` says to which `assign` or `seek` a result belongs:
results of a lower one than the partition's latest are outdated, and are released unread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbatch._native.fetch.fetched import Fetched

__all__ = ["Failed", "Fetched", "Moved", "Result"]

if TYPE_CHECKING:
    from kbatch.errors import KafkaError
    from kbatch.records import TopicPartition


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
