"""Errors of reading: what brokers answer to Fetch and ListOffsets, and what a reader concludes from it."""

from collections.abc import Mapping
from types import MappingProxyType

from kbatch.errors.base import KafkaError, RetriableError

# Answers to Fetch


class OffsetOutOfRangeError(KafkaError, code=1):
    """The log does not have this offset, or no longer: start from its beginning or end.

    Attributes
    ----------
    partitions : Mapping[tuple[str, int], int]
        The offsets by topic and partition; empty if only a broker's code is known.
    """

    partitions: Mapping[tuple[str, int], int] = MappingProxyType({})


class InvalidFetchSizeError(KafkaError, code=4):
    """A fetch requested an impossible number of bytes: correct the consumer's fetch sizes."""


class FetchSessionIdNotFoundError(RetriableError, code=70):
    """The broker has closed the fetch session; the client opens a new one."""


class InvalidFetchSessionEpochError(RetriableError, code=71):
    """A fetch does not follow the previous one; the client opens a new fetch session."""


class OffsetNotAvailableError(RetriableError, code=78):
    """A new leader does not know its high watermark yet: wait."""


class FetchSessionTopicIdError(RetriableError, code=106):
    """A fetch session mixes topic ids with names; the client opens a new one."""


class OffsetMovedToTieredStorageError(KafkaError, code=109):
    """The offset is in tiered storage: a replica fetches it from there."""


# Conclusions of a reader


class LogTruncationError(OffsetOutOfRangeError):
    """An unclean leader election has removed records that were read already: seek to an offset in
    `divergent_offsets` to go on, or set auto.offset.reset (Kafka's LogTruncationException, KIP-320).

    Attributes
    ----------
    divergent_offsets : Mapping[tuple[str, int], int]
        The first offset of each partition whose record differs from the one that was read.
    """

    divergent_offsets: Mapping[tuple[str, int], int] = MappingProxyType({})


class NoOffsetForPartitionError(KafkaError):
    """Partitions have no committed offset, and auto.offset.reset=none: seek, or set auto.offset.reset to
    earliest, latest or by_duration (Kafka's NoOffsetForPartitionException).

    Attributes
    ----------
    partitions : tuple of tuple[str, int]
        Topic and number of each of them.
    """

    partitions: tuple[tuple[str, int], ...] = ()


class DataLossError(KafkaError):
    """Records that were to be read are gone, by retention or because the topic was deleted: start later, or
    skip them (`on_data_loss="skip"`).

    Attributes
    ----------
    lost : Mapping[tuple[str, int], tuple[int, int]]
        The first offset that is lost and the one after the last, by topic and partition; empty if the broker
        did not say what is left.
    """

    lost: Mapping[tuple[str, int], tuple[int, int]] = MappingProxyType({})
