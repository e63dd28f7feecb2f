"""Where a read begins and ends: positions by name, offset, time and age, and the ranges between them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch import TopicPartition
from kbatch.consumer.ranges import (
    Range,
    check_choice,
    checked_partitions,
    checked_ranges,
    position_of,
    positions_of,
    ranges_of,
)
from kbatch.core.consumer.partition_state import EARLIEST, LATEST, OffsetSpec
from kbatch.errors import DataLossError

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
NOW_MS = 1_795_521_600_000


def at(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        (0, 0),
        (2**63 - 1, 2**63 - 1),
        (NOW, OffsetSpec(NOW_MS)),
        (NOW.astimezone(timezone(timedelta(hours=9))), OffsetSpec(NOW_MS)),
        (NOW + timedelta(microseconds=1), OffsetSpec(NOW_MS + 1)),
        (NOW - timedelta(microseconds=1), OffsetSpec(NOW_MS)),
        (datetime(1969, 1, 1, tzinfo=UTC), OffsetSpec(0)),
        (timedelta(0), OffsetSpec(NOW_MS)),
        (timedelta(hours=1), OffsetSpec(NOW_MS - 3_600_000)),
        (timedelta.max, OffsetSpec(0)),
    ],
    ids=str,
)
def test_position_is_an_offset_or_what_finds_one(position: Any, expected: Any) -> None:
    assert position_of("start", position, NOW) == expected


@pytest.mark.parametrize(
    ("position", "kind", "text"),
    [
        ("middle", ValueError, "start must be 'earliest' or 'beginning', 'latest' or .* got 'middle'"),
        (-1, ValueError, "start must be 0 to .* got -1"),
        (2**63, ValueError, "start must be 0 to"),
        (1.5, TypeError, "start must be 'earliest' or .* got float"),
        (True, TypeError, "start must be 'earliest' or .* got bool"),
        (None, TypeError, "start must be 'earliest' or .* got NoneType"),
        (datetime(2026, 1, 1), ValueError, r"start must have a time zone.*astimezone"),
        (timedelta(hours=-1), ValueError, "start counts back from now and must not be negative"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_unsuitable_position_is_an_error_with_the_remedy(position: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        position_of("start", position, NOW)


def test_each_partition_can_have_its_position() -> None:
    assert positions_of("start", {0: 5, 1: "latest"}, [0, 1], NOW) == {0: 5, 1: LATEST}
    assert positions_of("start", "earliest", [0, 2], NOW) == {0: EARLIEST, 2: EARLIEST}
    with pytest.raises(ValueError, match=r"start has no position for partitions 1, 2; .*partitions="):
        positions_of("start", {0: 5}, [0, 1, 2], NOW)
    with pytest.raises(ValueError, match=r"end names partitions 7, .* 0, 1"):
        positions_of("end", {0: 5, 1: 5, 7: 5}, [0, 1], NOW)
    with pytest.raises(TypeError, match=r"start\[1\] must be"):
        positions_of("start", {0: 5, 1: []}, [0, 1], NOW)


def test_partitions_are_checked_and_ordered() -> None:
    assert checked_partitions("orders", None, [2, 0, 1]) == [0, 1, 2]
    assert checked_partitions("orders", [2, 0], [0, 1, 2]) == [0, 2]
    assert checked_partitions("orders", range(2)) == [0, 1]
    with pytest.raises(ValueError, match="topic orders has no partition 3: it has 3, numbered from 0"):
        checked_partitions("orders", [3], range(3))
    with pytest.raises(ValueError, match=r"each partition once, got \[1, 1\]"):
        checked_partitions("orders", [1, 1], range(3))
    for unsuitable in (1, "12", [None], [True]):
        with pytest.raises(TypeError, match="partitions must be"):
            checked_partitions("orders", unsuitable, range(3))  # type: ignore[arg-type]


# Ranges


def made(starts: Any, ends: Any, log: Any, on_data_loss: str = "raise") -> Any:
    return ranges_of("orders", starts, ends, log, on_data_loss=on_data_loss)


def test_ranges_lie_between_the_positions() -> None:
    log = {0: (10, 20), 1: (0, 0), 2: (5, 9)}
    found = made({0: 12, 1: 0, 2: 5}, {0: 20, 1: 0, 2: 5}, log)
    assert found.ranges == {at(0): Range(12, 20)} and not found.lost
    found = made({0: 12, 1: 0, 2: 9}, None, log)
    assert found.ranges == {at(0): Range(12, None), at(1): Range(0, None), at(2): Range(9, None)}


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (15, 12, "the range of orders-0 ends at offset 12, before its start at 15"),
        (15, 21, "end=21 of orders-0 is after the end of its log, 20"),
        (21, None, "start=21 of orders-0 is after the end of its log, 20"),
    ],
)
def test_an_impossible_range_is_an_error(start: int, end: int | None, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        made({0: start}, None if end is None else {0: end}, {0: (10, 20)})


def test_records_that_are_gone_raise_or_are_skipped() -> None:
    log = {0: (10, 20), 1: (10, 20), 2: (10, 20), 3: (10, 20)}
    starts, ends = {0: 4, 1: 2, 2: 12, 3: 3}, {0: 15, 1: 6, 2: 20, 3: 3}
    with pytest.raises(DataLossError, match=r"orders-0 from 4 to 9, orders-1 from 2 to 5;.*skip") as caught:
        made(starts, ends, log)
    assert caught.value.lost == {at(0): (4, 10), at(1): (2, 6)}
    found = made(starts, ends, log, "skip")
    assert found.ranges == {at(0): Range(10, 15), at(2): Range(12, 20)}
    assert found.lost == {at(0): [(4, 10)], at(1): [(2, 6)]}
    assert made({0: 4}, None, log, "skip").ranges == {at(0): Range(10, None)}


@given(
    st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)).filter(
        lambda each: each[0] <= each[1] and each[2] <= each[3] <= each[1]
    )
)
def test_every_offset_is_read_or_lost(bounds: tuple[int, int, int, int]) -> None:
    log_start, log_end, start, end = bounds
    found = made({0: start}, {0: end}, {0: (log_start, log_end)}, "skip")
    read = [offset for each in found.ranges.values() for offset in range(each.start, each.end or 0)]
    lost = [offset for gaps in found.lost.values() for gap in gaps for offset in range(*gap)]
    assert lost + read == list(range(start, end))
    assert all(offset < log_start for offset in lost) and all(offset >= log_start for offset in read)


def test_given_ranges_are_checked() -> None:
    assert checked_ranges({("orders", 0): (1, 2), at(1): (3, 3), at(2): (4, None)}) == {  # type: ignore[dict-item]
        at(0): Range(1, 2),
        at(2): Range(4, None),
    }
    for ranges, kind, text in (
        ({at(0): (2, 1)}, ValueError, "ends at offset 1, before its start at 2"),
        ({at(0): (-1, 1)}, ValueError, "start of orders-0 must be 0 to"),
        ({at(0): (0, "latest")}, TypeError, "end of orders-0 must be an int"),
        ({"orders": (0, 1)}, TypeError, "a partition must be a TopicPartition"),
    ):
        with pytest.raises(kind, match=text):
            checked_ranges(ranges)  # type: ignore[arg-type]


def test_a_choice_is_one_of_few() -> None:
    check_choice("on_data_loss", "skip", ("raise", "skip"))
    with pytest.raises(ValueError, match="on_data_loss must be one of raise, skip, got 'ignore'"):
        check_choice("on_data_loss", "ignore", ("raise", "skip"))
