"""Where a read begins and ends: offsets by number, time, age or name, and the ranges of partitions.

Theory of operation. A user names a position in a log (`Position`), one for all partitions or one for each.
Names, times and ages become timestamps of ListOffsets, which the cluster turns into offsets, once and for
all: records that come later are not part of a range with an end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from operator import index
from typing import NamedTuple

from kbatch.core.admin.results import EPOCH, timestamp_of
from kbatch.core.consumer.partition_state import EARLIEST, LATEST, OffsetSpec
from kbatch.errors import DataLossError, OffsetOutOfRangeError
from kbatch.records import INT32_MAX, INT64_MAX, NO_TOPIC_ID, TopicPartition, check_integer, checked_partition

# A position in the log of every partition, or of each.
Position = int | datetime | timedelta | str
Positions = Position | Mapping[int, Position]
# Ranges of offsets: the first one, and the one after the last.
Gaps = list[tuple[int, int]]
# What to do when records are gone.
DATA_LOSS = ("raise", "skip")
_NAMES = {"earliest": EARLIEST, "beginning": EARLIEST, "latest": LATEST, "end": LATEST}
_EXPECTED = "'earliest' or 'beginning', 'latest' or 'end', an offset, a datetime or a timedelta"


class Range(NamedTuple):
    """Offsets of a partition: the first one, and the one after the last, or None without an end."""

    start: int
    end: int | None


class Ranges(NamedTuple):
    """What a read of a topic reads.

    Attributes
    ----------
    ranges : dict of TopicPartition to Range
        In the order of the partitions, without empty ranges.
    lost : dict of TopicPartition to list of tuple[int, int]
        The ranges that the log does not have any more: the first offset, and the one after the last.
    topic_id : bytes
        The id of the topic that the ranges are of; all zero if brokers have no ids.
    """

    ranges: dict[TopicPartition, Range]
    lost: dict[TopicPartition, Gaps]
    topic_id: bytes = NO_TOPIC_ID


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def position_of(name: str, position: object, now: datetime) -> int | OffsetSpec:
    """Return a position as an offset, or as what ListOffsets finds one for.

    `name` is the argument's, for errors.
    """
    if isinstance(position, str):
        if position not in _NAMES:
            raise ValueError(f"{name} must be {_EXPECTED}, got {position!r}")
        return _NAMES[position]
    if isinstance(position, timedelta):
        if position < timedelta(0):
            raise ValueError(f"{name} counts back from now and must not be negative, got {position!r}")
        return OffsetSpec(timestamp_of(now - min(position, now - EPOCH)))
    if isinstance(position, datetime):
        if position.tzinfo is None:
            raise ValueError(
                f"{name} must have a time zone, got {position!r}; for example {name}=datetime.now(UTC) or "
                f"time.astimezone() for local time"
            )
        return OffsetSpec(timestamp_of(position))
    try:
        check_integer(name, position, 0, INT64_MAX)
    except TypeError:
        kind = type(position).__name__
        raise TypeError(f"{name} must be {_EXPECTED}, got {kind}") from None
    return index(position)  # type: ignore[arg-type]


def positions_of(
    name: str, positions: object, partitions: Collection[int], now: datetime
) -> dict[int, int | OffsetSpec]:
    """Return the position of each partition. Raise ValueError unless a mapping names exactly these."""
    if not isinstance(positions, Mapping):
        return dict.fromkeys(partitions, position_of(name, positions, now))
    missing = sorted(set(partitions) - positions.keys())
    if missing:
        raise ValueError(
            f"{name} has no position for partitions {_listed(missing)}; add them, or name the others by "
            f"partitions="
        )
    unread = [partition for partition in positions if partition not in partitions]
    if unread:
        raise ValueError(
            f"{name} names partitions {_listed(unread)}, which are not among those that are read, "
            f"{_listed(sorted(partitions))}"
        )
    return {each: position_of(f"{name}[{each}]", positions[each], now) for each in partitions}


def checked_partitions(
    topic: str, named: Iterable[int] | None, known: Collection[int] | None = None
) -> list[int]:
    """Return partitions in order; None names all `known` ones. Raise TypeError or ValueError for others."""
    if named is None:
        return sorted(known or ())
    if isinstance(named, int | str):
        raise TypeError(f"partitions must be a list of ints, got {type(named).__name__}")
    checked = list(named)
    for partition in checked:
        check_integer("partitions", partition, 0, INT32_MAX)
        if known is not None and partition not in known:
            raise ValueError(
                f"topic {topic} has no partition {partition}: it has {len(known)}, numbered from 0"
            )
    if len(set(checked)) < len(checked):
        raise ValueError(f"partitions must name each partition once, got {checked}")
    return sorted(checked)


def ranges_of(
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int] | None,
    log: Mapping[int, tuple[int, int]],
    *,
    on_data_loss: str,
) -> Ranges:
    """Return the ranges between offsets.

    Parameters
    ----------
    topic : str
    starts, ends : mapping of int to int
        The first offset, and the one after the last, by partition; `ends` is None without an end.
    log : mapping of int to tuple[int, int]
        The beginning and the end of each partition's log.
    on_data_loss : "raise" or "skip"

    Raises
    ------
    DataLossError
        A range begins before its log, and `on_data_loss` is "raise".
    ValueError
        A range ends before it begins, or after its log.
    """
    ranges: dict[TopicPartition, Range] = {}
    lost: dict[TopicPartition, Gaps] = {}
    for number, start in starts.items():
        log_start, log_end = log[number]
        partition = TopicPartition(topic, number)
        end = None if ends is None else ends[number]
        _check_range(partition, start, end, log_end)
        if start < log_start and (end is None or start < end):
            first_kept = log_start if end is None else min(log_start, end)
            lost[partition] = [(start, first_kept)]
            start = first_kept
        if end is None or start < end:
            ranges[partition] = Range(start, end)
    if lost and on_data_loss == "raise":
        raise data_loss(lost)
    return Ranges(ranges, lost)


def data_loss(lost: Mapping[TopicPartition, Gaps]) -> DataLossError:
    """Return the error of ranges that the log does not have any more."""
    named = ", ".join(
        f"{each} from {first} to {after - 1}" for each, gaps in lost.items() for first, after in gaps
    )
    error = DataLossError(
        f"records of the range are gone: {named}; retention removes the oldest. Start later, for "
        f"example with start='earliest', or pass on_data_loss='skip'"
    )
    error.lost = {partition: gap for partition, gaps in lost.items() for gap in gaps}
    return error


def loss_of(
    partition: TopicPartition, error: OffsetOutOfRangeError, gap: tuple[int, int] | None
) -> DataLossError:
    """Return the error of a partition whose log no longer has the position as a loss of data.

    `gap` is the first offset that is gone, and the one after the last; None if that is not known.
    """
    loss = DataLossError(f"records of the range are gone: {error}")
    if gap is not None:
        loss = data_loss({partition: [gap]})
    loss.__cause__ = error
    return loss


def checked_topic_ids(given: Mapping[str, bytes] | None) -> Mapping[str, bytes]:
    """Return ids of topics. TypeError or ValueError unless each has 16 bytes."""
    for topic, topic_id in (given or {}).items():
        if not isinstance(topic_id, bytes):
            raise TypeError(f"topic_ids[{topic!r}] must be bytes, got {type(topic_id).__name__}")
        if len(topic_id) != len(NO_TOPIC_ID):
            raise ValueError(f"topic_ids[{topic!r}] must have 16 bytes, got {len(topic_id)}")
    return given or {}


def only_topic(partitions: Iterable[TopicPartition]) -> str | None:
    """Return the topic of all partitions; None if they have several, or there are none."""
    topics = {each.topic for each in partitions}
    return topics.pop() if len(topics) == 1 else None


def checked_ranges(given: Mapping[TopicPartition, tuple[int, int | None]]) -> dict[TopicPartition, Range]:
    """Return ranges without empty ones. TypeError or ValueError unless they are partitions with offsets."""
    ranges = {}
    for each, (start, end) in given.items():
        partition = checked_partition(each)
        check_integer(f"start of {partition}", start, 0, INT64_MAX)
        if end is not None:
            check_integer(f"end of {partition}", end, 0, INT64_MAX)
            _check_order(partition, start, end)
        if end is None or start < end:
            ranges[partition] = Range(start, end)
    return ranges


def _check_range(partition: TopicPartition, start: int, end: int | None, log_end: int) -> None:
    if end is not None:
        _check_order(partition, start, end)
    last = start if end is None else end
    if last > log_end:
        which = "start" if end is None else "end"
        raise ValueError(
            f"{which}={last} of {partition} is after the end of its log, {log_end}; name an earlier offset "
            f"or 'latest'"
        )


def _check_order(partition: TopicPartition, start: int, end: int) -> None:
    if end < start:
        raise ValueError(f"the range of {partition} ends at offset {end}, before its start at {start}")


def _listed(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, partitions))
