"""Kafka's DumpLogSegments reads segments and both their indexes whole and without a complaint."""

import os
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from kbatch import SegmentWriter
from tests.integration.dump_log_segments import Verdict, dump, judge
from tests.oracle import plain
from tests.oracle.java_programs import JavaMissingError, jars
from tests.unit.testing.broker.logs.test_partition import Play, Step, opened

pytestmark = pytest.mark.java
INT32_MAX = 2**31 - 1
ROW: plain.Row = (b"key", b"value", (("h", b"1"), ("n", None)), 1000)


@pytest.fixture(scope="module", autouse=True)
def kafka() -> None:
    try:
        jars()
    except JavaMissingError as missing:
        if os.environ.get("KBATCH_REQUIRE_JAVA") == "1":
            raise
        pytest.skip(f"DumpLogSegments is not available: {missing}")


def rows(random_: random.Random, count: int) -> list[plain.Row]:
    return [
        (
            random_.choice([None, b"", b"key"]),
            random_.choice([None, random_.randbytes(random_.randrange(300))]),
            random_.choice([(), (("h", b"1"), ("h", None))]),
            random_.choice([-1, 0, random_.randrange(10**12)]),
        )
        for _ in range(count)
    ]


def shapes(seed: int) -> tuple[list[bytes], dict[str, Any]]:
    """Return batches of all codecs, timestamps in any order, and limits that make many or few segments."""
    random_ = random.Random(seed)
    batches = []
    for _ in range(random_.randrange(60)):
        parameters: dict[str, Any] = {"compression": random_.choice(plain.CODECS)}
        if random_.random() < 0.3:
            parameters |= {
                "producer_id": 7,
                "producer_epoch": 1,
                "base_sequence": random_.randrange(INT32_MAX),
            }
        if random_.random() < 0.1:
            parameters |= {"log_append_time_ms": random_.randrange(10**12)}
        batches.append(plain.encode(rows(random_, random_.randrange(1, 8)), **parameters))
    limits = {
        "segment_bytes": random_.choice([5000, 20_000, 1 << 30]),
        "index_bytes": random_.choice([24, 100, 10 << 20]),
        "index_interval_bytes": random_.choice([0, 500, 4096]),
    }
    return batches, limits


def entries(logs: list[Path], suffix: str, layout: str) -> int:
    return sum(log.with_suffix(suffix).stat().st_size // struct.calcsize(layout) for log in logs)


@pytest.mark.slow
def test_many_shapes(tmp_path: Path) -> None:
    logs, batches, records = [], 0, 0
    for seed in range(25):
        made, limits = shapes(seed)
        with SegmentWriter(tmp_path, "t", seed, **limits) as writer:
            for batch in made:
                writer.append(batch)
        logs += writer.log_paths
        batches += len(made)
        records += sum(plain.HEADER.unpack_from(batch)[12] for batch in made)
    verdict = judge(logs)
    assert verdict == Verdict(
        batches, records, entries(logs, ".index", ">ii"), entries(logs, ".timeindex", ">qi"), []
    )
    assert verdict.offset_entries > 300
    assert verdict.time_entries > 100
    assert len(logs) > 50


def test_edges(tmp_path: Path) -> None:
    """Offsets to the end of int32, control and empty batches, nothing at all."""
    control = plain.encode([(bytes(4), bytes(6), (), 1)], transactional=True, control=True, producer_id=1)
    far = plain.encode([ROW], last_offset=INT32_MAX)
    for partition, batches in enumerate(
        ([far, plain.encode([ROW]), far], [plain.encode([ROW]), control], [])
    ):
        with SegmentWriter(tmp_path, "t", partition, index_interval_bytes=0) as writer:
            for batch in batches:
                writer.append(batch)
    logs = sorted(tmp_path.glob("*/*.log"))
    assert len(logs) == 3 + 1 + 1
    verdict = judge(logs)
    assert verdict.complaints == []
    assert (verdict.batches, verdict.records) == (5, 5)


def test_default_limits(tmp_path: Path) -> None:
    """Several index entries at Kafka's own interval, timestamps rising and falling."""
    timestamps = [*range(1000, 1300), *range(1200, 1000, -1), *range(1300, 1400)]
    with SegmentWriter(tmp_path, "t", 0) as writer:
        for timestamp in timestamps:
            writer.append(plain.encode([(b"k", bytes(500), (), timestamp)]))
    verdict = judge(writer.log_paths)
    assert verdict.complaints == []
    assert verdict.records == len(timestamps)
    assert verdict.offset_entries > 50
    assert 2 < verdict.time_entries < verdict.offset_entries


def test_resumed_and_cut_off(tmp_path: Path) -> None:
    """Segments that were gone on with, and ones whose torn tail was cut off before."""
    logs, batches = [], 0
    for seed in range(10):
        made, limits = shapes(seed)
        for start in range(0, len(made), 7):
            with SegmentWriter(tmp_path, "t", seed, **limits, resume=True) as writer:
                for batch in made[start : start + 7]:
                    writer.append(batch)
            if start % 2 and (last := writer.log_paths[-1]).stat().st_size:
                last.write_bytes(last.read_bytes() + made[start][:60])
        with SegmentWriter(tmp_path, "t", seed, **limits, resume=True) as writer:
            pass
        logs += writer.log_paths
        batches += len(made)
    verdict = judge(logs)
    assert verdict.complaints == []
    assert verdict.batches == batches
    assert verdict.offset_entries > 100


def test_partition_of_the_embedded_broker(tmp_path: Path) -> None:
    """Segments, producer snapshot and transaction indexes, after a restart."""
    actions = ["send", "send", "plain", "abort", "send", "commit", "send", "abort", "plain", "commit"]
    partition = opened(tmp_path, snapshot_batches=5, internal_segment_bytes=4000, index_interval_bytes=200)
    play = Play(partition)
    play.play([Step(number % 3 + 1, action) for number, action in enumerate(actions * 10)])
    play.partition = opened(
        tmp_path, snapshot_batches=5, internal_segment_bytes=4000, index_interval_bytes=200
    )
    play.play([Step(number % 3 + 1, action) for number, action in enumerate(actions * 10)])
    play.partition.close()
    verdict = judge(sorted(tmp_path.glob("*/*.log")))
    assert verdict.complaints == []
    assert verdict.batches == len(list(play.partition.batches())) == 200
    assert min(verdict.offset_entries, verdict.time_entries) > 10

    indexes = sorted(tmp_path.glob("*/*.txnindex"))
    (*_, snapshot) = sorted(tmp_path.glob("*/*.snapshot"))
    said = dump(files=[*indexes, snapshot])
    assert (said.returncode, said.stderr) == (0, "")
    aborted = play.partition.fetch(0, max_bytes=1 << 30, committed=True).aborted_transactions
    assert re.findall(r"^version: 0 producerId: (\d+) firstOffset: (\d+) ", said.stdout, re.M) == [
        (str(producer_id), str(first_offset)) for producer_id, first_offset in aborted
    ]
    batches = re.findall(
        r"^producerId: (\d+) .* firstSequence: (\d+) lastSequence: (\d+) lastOffset: (\d+) ",
        said.stdout,
        re.M,
    )
    assert [tuple(map(int, batch)) for batch in batches] == [
        (producer.producer_id, batch.base_sequence, batch.last_sequence, batch.last_offset)
        for producer in play.partition.describe_producers()
        for batch in producer.batches
    ]


def damaged_log(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)


def wrong_position(log: Path) -> None:
    index = log.with_suffix(".index")
    data = bytearray(index.read_bytes())
    struct.pack_into(">i", data, 4, 0)
    index.write_bytes(data)


def wrong_timestamp(log: Path) -> None:
    index = log.with_suffix(".timeindex")
    data = bytearray(index.read_bytes())
    data[7] ^= 1
    index.write_bytes(data)


def torn_tail(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [damaged_log, wrong_position, wrong_timestamp, torn_tail])
def test_judge_sees_damage(tmp_path: Path, damage: object) -> None:
    """The judge is no yes-man."""
    with SegmentWriter(tmp_path, "t", 0, index_interval_bytes=0) as writer:
        for timestamp in range(5):
            writer.append(plain.encode([(b"k", b"v", (), timestamp)]))
    assert callable(damage)
    damage(writer.log_paths[0])
    assert judge(writer.log_paths).complaints
