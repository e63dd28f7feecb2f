"""Topics that tests read: generated records, produced in every form, and the tables they must give."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

import kbatch
from kbatch import TopicPartition
from kbatch._native.codec.record import ConsumerRecord
from tests.oracle.partition_log import Seen

FIRST_MS = 1_700_000_000_000


class Sent(NamedTuple):
    """A record as it was sent."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


def records(rng: random.Random, count: int) -> list[Sent]:
    """Return records of every shape: null and empty keys and values, duplicate and null headers."""
    texts = (None, b"", b"key", b"\0\xff", b"x" * 300)
    shapes: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
        (),
        (("trace", b"1"),),
        (("trace", None), ("trace", b""), ("größe", b"\0" * 200)),
    )
    return [
        Sent(rng.choice(texts), rng.choice((*texts, b"%d" % number)), rng.choice(shapes), FIRST_MS + number)
        for number in range(count)
    ]


def send(producer: Any, topic: str, partition: int, sent: Iterable[Sent]) -> None:
    for each in sent:
        producer.send(
            topic,
            each.value,
            each.key,
            headers=each.headers,
            partition=partition,
            timestamp_ms=each.timestamp_ms,
        )


def rows(batches: pa.Table | Iterable[pa.RecordBatch]) -> dict[int, list[tuple[int, Sent]]]:
    """Return offset and record of each row, by partition."""
    tables = (
        [batches] if isinstance(batches, pa.Table) else [pa.Table.from_batches([each]) for each in batches]
    )
    found: dict[int, list[tuple[int, Sent]]] = {}
    for table in tables:
        times = table["timestamp"].cast(pa.int64()).to_pylist()
        columns = [table[name].to_pylist() for name in ("partition", "offset", "key", "value", "headers")]
        for partition, offset, key, value, headers, time in zip(*columns, times, strict=True):
            pairs = tuple((each["key"], each["value"]) for each in headers)
            found.setdefault(partition, []).append((offset, Sent(key, value, pairs, time)))
    return found


def seen_rows(table: pa.Table) -> dict[int, list[Seen]]:
    """Return the rows of a table with all columns, by partition."""
    found: dict[int, list[Seen]] = {}
    times = table["timestamp"].cast(pa.int64()).to_pylist()  # datetime lacks most of their range
    for row, time in zip(table.drop_columns(["timestamp"]).to_pylist(), times, strict=True):
        record = Seen(
            row["offset"],
            time,
            row["timestamp_type"] == "log_append_time",
            row["key"],
            row["value"],
            tuple((each["key"], each["value"]) for each in row["headers"]),
            row["leader_epoch"],
        )
        found.setdefault(row["partition"], []).append(record)
    return found


def seen_records(records: Iterable[ConsumerRecord]) -> dict[int, list[Seen]]:
    """Return the same of records."""
    found: dict[int, list[Seen]] = {}
    for each in records:
        record = Seen(
            each.offset,
            each.timestamp_ms,
            each.timestamp_type == "log_append_time",
            each.key,
            each.value,
            tuple(each.headers),
            each.leader_epoch,
        )
        found.setdefault(each.partition, []).append(record)
    return found


def logged(broker: Any, topic: str, partitions: Sequence[int], *, committed: bool = True) -> Any:
    """Return the same of the records that the broker's own log has."""
    found = {}
    for partition in partitions:
        kept = [
            (each.offset, Sent(each.key, each.value, tuple(each.headers), each.timestamp_ms))
            for each in broker.records(topic, partition, committed=committed)
        ]
        if kept:
            found[partition] = kept
    return found


def whole(topic: str, ends: Mapping[int, int]) -> dict[TopicPartition, tuple[int, int | None]]:
    """Return the ranges from the beginning to these ends."""
    return {kbatch.TopicPartition(topic, partition): (0, end) for partition, end in ends.items()}
