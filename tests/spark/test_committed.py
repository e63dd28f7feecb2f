"""Segments as a read_committed consumer sees them, against brokers that know of the transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kbatch import Producer, SegmentWriter
from kbatch.spark.segment_store import segments
from kbatch.spark.segments import SegmentsReader
from kbatch.testing import Broker
from tests.oracle import plain

PADDING = bytes(40_000)
KEYS = {"abort": bytes(4), "commit": bytes([0, 0, 0, 1])}


def values(folder: Path, *, committed: bool = True) -> list[bytes]:
    reader = SegmentsReader(segments(folder, "t"), True, committed=committed)
    found = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [value for batch in found for value in batch.column("value").to_pylist()]


def written(folder: Path, *batches: tuple[str, int]) -> None:
    """One-record batches, each in a segment of its own: `plain`, `abort`, `commit`, or a transaction's
    value, of a producer.
    """
    with SegmentWriter(folder, "t", 0, segment_bytes=100) as writer:
        for name, producer_id in batches:
            if name in KEYS:
                rows: list[plain.Row] = [(KEYS[name], bytes(6), (), 0)]
                made = plain.encode(rows, transactional=True, control=True, producer_id=producer_id)
            else:
                made = plain.encode(
                    [(None, name.encode(), (), 0)], transactional=name != "plain", producer_id=producer_id
                )
            writer.append(made)


@pytest.mark.parametrize(
    ("batches", "seen"),
    [
        ([("a", 1), ("b", 2), ("commit", 1), ("abort", 2), ("c", 2), ("commit", 2)], ["a", "c"]),
        ([("a", 1), ("abort", 1), ("b", 1), ("commit", 1), ("c", 1), ("abort", 1)], ["b"]),
        ([("plain", -1), ("a", 1), ("plain", -1), ("b", 2), ("commit", 2)], ["plain"]),
        ([("commit", 1), ("plain", -1), ("abort", 2)], ["plain"]),
        ([("a", 1), ("b", 2), ("abort", 1), ("plain", -1)], []),
    ],
    ids=["interleaved", "one after the other", "open", "what retention left", "open behind an aborted one"],
)
def test_transactions_over_several_segments(
    tmp_path: Path, batches: list[tuple[str, int]], seen: list[str]
) -> None:
    written(tmp_path, *batches)
    assert values(tmp_path) == [name.encode() for name in seen]
    everything = [name.encode() for name, _ in batches if name not in KEYS]
    assert values(tmp_path, committed=False) == everything


def test_as_the_broker_says(tmp_path: Path) -> None:
    """Two producers at once, in small segments that the embedded broker wrote, with a torn tail."""
    topics: dict[str, Any] = {"t": {"partitions": 2, "segment.bytes": 1 << 20}}
    with Broker(directory=tmp_path, topics=topics) as broker:
        common: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "linger_ms": 0}
        with Producer(transactional_id="a", **common) as a, Producer(transactional_id="b", **common) as b:
            for producer in (a, b):
                producer.init_transactions()
            for number in range(30):
                longer, shorter = (a, b) if number % 2 else (b, a)
                longer.begin_transaction()
                longer.send("t", f"longer {number}".encode() + PADDING, partition=number % 2)
                longer.flush()
                with shorter.transaction():
                    shorter.send("t", f"shorter {number}".encode(), partition=0)
                longer.send("t", f"longer still {number}".encode(), partition=0)
                longer.flush()
                if number % 3:
                    longer.abort_transaction()
                else:
                    longer.commit_transaction()
            a.begin_transaction()
            a.send("t", b"open", partition=0)
            a.flush()
            with b.transaction():
                b.send("t", b"behind what is open", partition=0)
            expected = sorted(record.value or b"" for record in broker.records("t"))
            a.abort_transaction()
        in_the_end = sorted(record.value or b"" for record in broker.records("t"))
    held = [value for value in in_the_end if value not in expected]
    assert held == [b"behind what is open"]
    (log,) = sorted((tmp_path / "t-0").glob("*.log"))[-1:]
    log.write_bytes(log.read_bytes() + plain.encode([(None, b"torn", (), 0)])[:40])
    assert sorted(values(tmp_path)) == in_the_end
    assert 0 < len(in_the_end) < len(values(tmp_path, committed=False))


def test_compacted_segments(tmp_path: Path) -> None:
    """Records and batches are missing, and a batch is left empty to keep its producer's state."""
    batches = [
        plain.encode([(None, b"%d" % number, (), 0) for number in range(3)], base_offset=base)
        for base in (0, 10, 20)
    ]
    empty = bytearray(plain.encode([(None, b"", (), 0)] * 3, base_offset=5)[:61])
    empty[8:12] = (61 - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    batches.insert(1, plain.with_crc(bytes(empty)))
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    assert values(tmp_path) == values(tmp_path, committed=False) == [b"0", b"1", b"2"] * 3


@pytest.mark.slow
@pytest.mark.spark
def test_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path, ("a", 1), ("abort", 1), ("b", 1), ("commit", 1))
    reader = spark.read.format("kbatch-segments").option("isolation", "read_committed")
    rows = reader.load(str(tmp_path)).collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [(2, b"b")]
    with pytest.raises(Exception, match="option 'isolation' must be"):
        spark.read.format("kbatch-segments").option("isolation", "committed").load(str(tmp_path)).collect()
