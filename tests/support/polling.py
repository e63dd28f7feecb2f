"""Helpers of consumer tests: topics with numbered records, and consumers of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import kbatch
from kbatch import TopicPartition
from kbatch.testing import Broker
from kbatch.testing.broker.logs.partition import Partition
from tests.support.patience import HANG_MS
from tests.support.shells import new_consumer
from tests.support.topics import FIRST_MS

TOPIC = "orders"
PARTITIONS = [TopicPartition(TOPIC, partition) for partition in range(3)]
FIRST, SECOND, THIRD = PARTITIONS


def fill(
    broker: Broker, count: int = 40, *, partitions: Iterable[int] = (0, 1, 2), start: int = 0, **keys: Any
) -> None:
    """Append records to partitions; their values are their offsets in an empty log, their times follow."""
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, **keys) as producer:
        for number in range(start, start + count):
            for partition in partitions:
                producer.send(
                    TOPIC, b"%d" % number, b"key", partition=partition, timestamp_ms=FIRST_MS + number
                )


@contextlib.contextmanager
def consuming(broker: Broker, *partitions: TopicPartition, **keys: Any) -> Iterator[Any]:
    """Make a consumer that is assigned these partitions, or all, from their beginning."""
    keys = {
        "auto_offset_reset": "earliest",
        "default_api_timeout_ms": HANG_MS,
        "fetch_max_wait_ms": 10,
        "allow_auto_create_topics": False,
    } | keys
    with new_consumer(bootstrap_servers=broker.bootstrap_servers, **keys) as consumer:
        consumer.assign(partitions or PARTITIONS)
        yield consumer


def offsets(records: Iterable[Any]) -> dict[int, list[int]]:
    """Return the offsets of records by partition, in their order."""
    found: dict[int, list[int]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record.offset)
    return found


def polled(consumer: Any, count: int, **keys: Any) -> list[Any]:
    """Poll until there are so many records."""
    found: list[Any] = []
    while len(found) < count:
        found += consumer.poll(**keys)
    assert len(found) == count
    return found


def bend(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    """Let brokers answer with a flipped bit in the batches at an offset."""
    fetch = Partition.fetch

    def bent(log: Partition, *arguments: Any, **keywords: Any) -> Any:
        fetched = fetch(log, *arguments, **keywords)
        batches = [bytearray(each) for each in fetched.batches]
        for batch in batches:
            if int.from_bytes(batch[:8], "big") == offset:
                batch[-1] ^= 1
        return fetched._replace(batches=[memoryview(bytes(each)) for each in batches])

    monkeypatch.setattr(Partition, "fetch", bent)
