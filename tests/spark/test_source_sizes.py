"""Bytes of ranges by samples: what is read for them, and how many offsets a limit lets pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import kbatch
from kbatch import Admin, TopicPartition, TopicReader
from kbatch.spark import source_sizes
from kbatch.spark.source_sizes import SAMPLING, MeanSizes, sampled
from kbatch.testing import Broker

SMALL, LARGE, EMPTY = (TopicPartition("t", each) for each in range(3))
# Bytes of values; a record, and its share of a batch, adds some.
SIZES = {SMALL: 100, LARGE: 1000}
COUNT = 2000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"t": 3}) as running:
        settings: dict[str, Any] = {"bootstrap.servers": running.bootstrap_servers, "batch.size": 16384}
        with kbatch.Producer(settings, linger_ms=5) as producer:
            for partition, size in SIZES.items():
                for _ in range(COUNT):
                    producer.send("t", b"v" * size, partition=partition.partition)
        yield running


@pytest.fixture
def reader(broker: Broker) -> Iterator[TopicReader]:
    with TopicReader({"bootstrap.servers": broker.bootstrap_servers, **SAMPLING}) as opened:
        yield opened


class CountingReader:
    """Keeps the ranges and the reads of samples."""

    def __init__(self, reader: TopicReader) -> None:
        self.reader = reader
        self.partitions: list[set[TopicPartition]] = []
        self.readings: list[Any] = []

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]], **keywords: Any) -> Any:
        self.partitions.append(set(ranges))
        self.readings.append(self.reader.read(ranges, **keywords))
        return self.readings[-1]


@pytest.mark.parametrize("start", [0, 1, 777])
def test_sample_has_the_mean_size(reader: TopicReader, start: int) -> None:
    counting: Any = CountingReader(reader)
    found = sampled(counting, dict.fromkeys(SIZES, (start, COUNT)))
    assert counting.readings[0].progress.bytes < COUNT * 1000 / 2
    for partition, (size, count) in found.items():
        assert SIZES[partition] < size / count < SIZES[partition] * 1.15
        assert size < 2 * int(SAMPLING["max.partition.fetch.bytes"])


def test_end_of_a_batch_is_all_that_is_read(reader: TopicReader) -> None:
    """A batch is read whole, whatever is wanted of it."""
    ((size, count),) = sampled(reader, {SMALL: (COUNT - 1, COUNT)}).values()
    assert count == 1 and size > SIZES[SMALL]
    assert sampled(reader, {}) == {}


@pytest.mark.slow
def test_limit_is_in_offsets_of_the_mean_size(reader: TopicReader) -> None:
    counting: Any = CountingReader(reader)
    sizes = MeanSizes()
    end = {SMALL: COUNT, LARGE: COUNT, EMPTY: 0}
    limit = 220_000
    found = sizes.offsets_within(limit, {}, end, counting)
    assert found is not None
    assert 0.85 * limit < found * (100 + 1000) / 2 < limit
    assert sizes.offsets_within(10**8, {}, end, counting) is None
    assert sizes.offsets_within(1, {}, end, counting) == 1
    assert sizes.offsets_within(limit, end, end, counting) is None
    # nothing is sampled far below the limit, or without offsets
    assert counting.partitions == [{SMALL, LARGE}] * 2


def test_largest_ranges_are_sampled(reader: TopicReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_sizes, "SAMPLED_PARTITIONS", 1)
    counting: Any = CountingReader(reader)
    found = MeanSizes().offsets_within(100_000, {SMALL: 500}, {SMALL: COUNT, LARGE: COUNT}, counting)
    assert counting.partitions == [{LARGE}]
    assert found is not None and 85 < found < 100


def test_new_sample_counts_as_all_earlier_ones() -> None:
    sizes = MeanSizes()
    for mean, count in ((10, 50), (20, 1000), (40, 1)):
        sizes._add({SMALL: (mean * count, count)})
    assert sizes._mean({SMALL: 7}) == pytest.approx((15 + 40) / 2)


def test_lost_offsets_are_no_part_of_a_sample() -> None:
    with Broker({"t": 1}) as broker:
        with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
            for _ in range(10):
                producer.send("t", b"v" * 100, partition=0).result(10)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.topics.delete_records({("t", 0): 5})
        with TopicReader(bootstrap_servers=broker.bootstrap_servers) as opened:
            ((size, count),) = sampled(opened, {SMALL: (0, 10)}).values()
            assert sampled(opened, {SMALL: (0, 5)}) == {}
    assert count == 5 and 500 < size < 1500
