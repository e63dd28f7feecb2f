"""Ranges of offsets: partitions and limits resolved, micro-batches planned, tasks split."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.core.consumer.calls import TopicListing
from kbatch.errors import DataLossError
from kbatch.records import NO_TOPIC_ID, TopicPartition
from kbatch.spark.source_offsets import (
    OffsetPlanner,
    OffsetRange,
    as_json,
    limited,
    ranges_between,
    split,
)
from kbatch.spark.source_options import SourceOptions, partition_offsets, read_source_options


class FixedCatalog:
    """Answers from a table of partitions: earliest, latest, and the offset a millisecond after 1970 has."""

    def __init__(self, logs: dict[str, list[tuple[int, int]]]) -> None:
        self.logs = logs
        self.ids: dict[str, bytes] = {}

    def describe(self, topics: Iterable[str] | None = None) -> dict[str, TopicListing]:
        names = self.logs if topics is None else topics
        return {
            name: TopicListing(self.ids.get(name, NO_TOPIC_ID), len(self.logs[name]), name.startswith("__"))
            for name in names
            if name in self.logs
        }

    def partitions(self, topic: str) -> Iterable[int]:
        return range(len(self.logs[topic]))

    def offsets(self, topic: str, spec: object, partitions: Iterable[int] | None = None) -> dict[int, int]:
        numbers = self.partitions(topic) if partitions is None else partitions
        return {number: self._offset(*self.logs[topic][number], spec) for number in numbers}

    def _offset(self, earliest: int, latest: int, spec: object) -> int:
        if isinstance(spec, datetime):
            return min(max(int(spec.timestamp() * 1000), earliest), latest)
        return {"earliest": earliest, "latest": latest}[str(spec)]


def options_of(**given: object) -> SourceOptions:
    streaming = bool(given.pop("streaming", False))
    named = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **given}
    return read_source_options(
        {name: str(value) for name, value in named.items() if value is not None}, streaming=streaming
    )


def planner_of(logs: dict[str, list[tuple[int, int]]], **given: object) -> OffsetPlanner:
    return OffsetPlanner(FixedCatalog(logs), options_of(**given))


def at(**offsets: int) -> dict[TopicPartition, int]:
    """Return offsets by partition, from names like t0."""
    return {TopicPartition(name[:-1], int(name[-1])): offset for name, offset in offsets.items()}


@pytest.mark.parametrize(
    ("given_options", "expected"),
    [
        ({"subscribe": "t, u"}, {"t0", "t1", "u0"}),
        ({"subscribe": None, "subscribepattern": "t"}, {"t0", "t1", "tt0", "xt0"}),
        ({"subscribe": None, "subscribepattern": "^tt?$"}, {"t0", "t1", "tt0"}),
        ({"subscribe": None, "subscribepattern": ".*"}, {"t0", "t1", "tt0", "u0", "xt0"}),
        ({"subscribe": None, "assign": '{"t":[1],"u":[0]}'}, {"t1", "u0"}),
    ],
)
def test_strategy_names_partitions(given_options: dict[str, Any], expected: set[str]) -> None:
    logs = {"t": [(0, 5), (0, 6)], "tt": [(0, 1)], "u": [(0, 1)], "xt": [(0, 1)], "__t": [(0, 1)]}
    found = planner_of(logs, **given_options).assigned()
    assert {f"{partition.topic}{partition.partition}" for partition in found} == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ({}, at(t0=2, t1=3)),
        ({"startingoffsets": '{"t":{"0":4,"1":-2}}'}, at(t0=4, t1=3)),
        ({"startingtimestamp": "7"}, at(t0=7, t1=7)),
        ({"startingoffsetsbytimestamp": '{"t":{"0":5,"1":8}}'}, at(t0=5, t1=8)),
        (
            {"startingtimestamp": "50", "startingoffsetsbytimestampstrategy": "latest"},
            at(t0=10, t1=20),
        ),
    ],
)
def test_starting_limit_resolves(limit: dict[str, Any], expected: dict[TopicPartition, int]) -> None:
    planner = planner_of({"t": [(2, 10), (3, 20)]}, **limit)
    assert planner.resolve(options_of(**limit).starting) == expected


def test_time_after_last_record_is_an_error_unless_allowed() -> None:
    planner = planner_of({"t": [(0, 10), (0, 20)]})
    with pytest.raises(ValueError, match="No offset matched from request of topic-partition t-0"):
        planner.resolve(options_of(startingtimestamp="15").starting)
    assert planner.resolve(options_of(endingtimestamp="15").ending) == at(t0=10, t1=15)


def test_limit_must_name_all_partitions() -> None:
    planner = planner_of({"t": [(0, 10), (0, 20)]})
    with pytest.raises(ValueError, match=r"Specified: \{t-0\} Assigned: \{t-0, t-1\}"):
        planner.resolve(options_of(startingoffsets='{"t":{"0":1}}').starting)


RANGES = st.lists(
    st.builds(
        lambda partition, start, size: OffsetRange("t", partition, start, start + size),
        st.integers(0, 50),
        st.integers(0, 2**40),
        st.integers(-3, 1000),
    ),
    max_size=8,
    unique_by=lambda each: each.partition,
)


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300))
def test_R98_split_covers_each_offset_once(
    ranges: list[OffsetRange], least: int | None, most: int | None
) -> None:
    tasks = split(ranges, least, most)
    for whole in ranges:
        parts = [task for task in tasks if task.partition == whole.partition]
        edges = [whole.start, *(part.end for part in parts)]
        assert [part.start for part in parts] == edges[:-1]
        assert edges[-1] == max(whole.end, whole.start)
    assert all(task.size > 0 for task in tasks)
    assert most is None or all(task.size <= most for task in tasks)


def test_split_divides_large_ranges_by_their_share() -> None:
    large, small = OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)
    assert split([large, small], 4, None) == [
        OffsetRange("t", 0, 0, 300),
        OffsetRange("t", 0, 300, 600),
        OffsetRange("t", 0, 600, 900),
        small,
    ]
    assert split([large, small], 2, None) == [large, small]


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 1000), st.integers(0, 1000))),
    st.integers(1, 500),
)
def test_limit_of_trigger_starves_no_partition(logs: dict[int, tuple[int, int]], most: int) -> None:
    start = {TopicPartition("t", number): begin for number, (begin, _) in logs.items()}
    end = {TopicPartition("t", number): begin + size for number, (begin, size) in logs.items()}
    until = limited(start, end, most)
    taken = {each: until[each] - start[each] for each in until}
    assert all(0 < taken[each] <= end[each] - start[each] for each in end if end[each] > start[each])
    assert sum(taken.values()) <= most + len(taken)


def test_new_partition_begins_at_its_earliest_offset() -> None:
    logs = {"t": [(0, 10), (0, 20)]}
    ranges = ranges_between(planner_of(logs), options_of(), at(t0=4), at(t0=10, t1=20))
    assert ranges == [OffsetRange("t", 0, 4, 10), OffsetRange("t", 1, 0, 20)]


def test_ranges_are_of_the_topic_that_is_there_now() -> None:
    catalog = FixedCatalog({"t": [(0, 10)]})
    planner = OffsetPlanner(catalog, options_of())
    for topic_id in (b"a" * 16, b"b" * 16):
        catalog.ids["t"] = topic_id
        (found,) = ranges_between(planner, options_of(), at(t0=4), at(t0=10))
        assert found == OffsetRange("t", 0, 4, 10, topic_id)
        assert [each.topic_id for each in split([found], 3, None)] == [topic_id] * 3


@pytest.mark.parametrize(
    ("logs", "start", "end", "text"),
    [
        ({"t": [(0, 10)]}, at(t0=4, t1=5), at(t0=10), r"\{t-1\} are gone"),
        ({"t": [(0, 10), (7, 20)]}, at(t0=4), at(t0=10, t1=20), "t-1 starts from 7 instead of 0"),
        ({"t": [(0, 10)]}, at(t0=4), at(t0=10, t1=20), r"earliest offsets of \{t-1\}"),
        ({"t": [(0, 3)]}, at(t0=4), at(t0=3), "changed from 4 to 3"),
    ],
)
def test_R100_data_loss_fails_unless_allowed(
    logs: dict[str, list[tuple[int, int]]],
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    text: str,
) -> None:
    planner = planner_of(logs)
    with pytest.raises(DataLossError, match=text):
        ranges_between(planner, options_of(), start, end)
    allowed = replace(options_of(), fails_on_data_loss=False)
    assert all(each.size > 0 for each in ranges_between(planner, allowed, start, end))


def test_json_of_offsets_is_that_of_spark() -> None:
    offsets = at(u0=1, t1=7, t0=2**40)
    assert json.dumps(as_json(offsets)) == f'{{"t": {{"0": {2**40}, "1": 7}}, "u": {{"0": 1}}}}'
    assert partition_offsets(as_json(offsets)) == offsets
