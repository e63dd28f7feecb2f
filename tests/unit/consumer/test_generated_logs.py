"""Generated logs read through a broker: read_table, streams and objects give what the oracle sees in them.

The logs have what no producer of these tests makes: compaction, emptied batches, overlapping transactions,
high offsets (tests/oracle/partition_log.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import kbatch
from kbatch import TopicPartition, TopicReader
from kbatch.testing import Broker
from kbatch.testing.broker.logs.partition import LATEST, Fetched, Partition
from kbatch.testing.broker.logs.partition_log import FoundOffset
from tests.oracle.partition_log import PartitionLog, Seen, random_log
from tests.support.effort import few
from tests.support.topics import seen_records, seen_rows

TOPIC = "generated"
PARTITIONS = 3
SEEDS = range(25)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({TOPIC: PARTITIONS}, nodes=2, auto_create_topics=False) as running:
        yield running


@pytest.fixture
def logs(broker: Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the broker's partitions have generated logs, whose answers end anywhere; return them."""
    seed = request.param
    rng = random.Random(seed)
    made = [random_log(f"{seed} {number}", batches=rng.randint(1, 40)) for number in range(PARTITIONS)]
    partitions = broker._call(lambda core: [each.log for each in core.state.cluster.topics[TOPIC].partitions])
    of = {id(partition): log for partition, log in zip(partitions, made, strict=True)}

    def fetch(partition: Partition, offset: int, *, committed: bool = False, **limits: object) -> Fetched:
        log = of[id(partition)]
        stable = log.last_stable_offset
        found = [
            memoryview(each.data)
            for each in log.batches
            if each.last_offset >= offset and not (committed and each.base_offset >= stable)
        ]
        if found:
            found = found[: rng.randint(1, len(found))]
        aborted = list(log.aborted(offset)) if committed else []
        return Fetched(found, log.end_offset, stable, log.batches[0].base_offset, aborted)

    def list_offset(partition: Partition, timestamp: int, *, committed: bool = False) -> FoundOffset:
        log = of[id(partition)]
        end = log.last_stable_offset if committed else log.end_offset
        return FoundOffset(-1, end if timestamp == LATEST else log.batches[0].base_offset, 0)

    monkeypatch.setattr(Partition, "fetch", fetch)
    monkeypatch.setattr(Partition, "list_offset", list_offset)
    monkeypatch.setattr(
        Partition, "end_of_leader_epoch", lambda partition, epoch: (epoch, of[id(partition)].end_offset)
    )
    return made


def expected(
    logs: list[PartitionLog], ranges: dict[TopicPartition, tuple[int, int]], isolation: str
) -> dict[int, list[Seen]]:
    found = {
        each.partition: logs[each.partition].visible(*bounds, committed=isolation == "read_committed")
        for each, bounds in ranges.items()
    }
    return {partition: records for partition, records in found.items() if records}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("logs", few(SEEDS, 4), indirect=True)
def test_R01_every_way_to_read_gives_what_the_oracle_sees(
    broker: Broker, logs: list[PartitionLog], isolation: str
) -> None:
    # behind the last batch a log may end later: there a Fetch waits as long as it may
    config = {"bootstrap.servers": broker.bootstrap_servers, "fetch.max.wait.ms": 1}
    keys: dict[str, Any] = {"config": config, "isolation": isolation}
    ends = {
        number: log.last_stable_offset if isolation == "read_committed" else log.end_offset
        for number, log in enumerate(logs)
    }
    starts = {number: log.batches[0].base_offset for number, log in enumerate(logs)}
    rng = random.Random(str(starts))
    for first, last in (
        (starts, ends),
        ({each: rng.randint(starts[each], ends[each]) for each in starts}, ends),
        (starts, {each: rng.randint(starts[each], ends[each]) for each in starts}),
    ):
        ranges = {TopicPartition(TOPIC, each): (first[each], last[each]) for each in first}
        records = expected(logs, ranges, isolation)
        for layout in ("copy", "view"):
            table = kbatch.read_table(TOPIC, start=first, end=last, layout=layout, **keys)
            assert seen_rows(table) == records
        stream = kbatch.scan_topic(TOPIC, start=first, end=last, batch_rows=4, threads=1, **keys)
        assert seen_rows(stream.read_all()) == records
        with TopicReader(config, isolation_level=isolation) as reader:
            objects = seen_records(reader.read_records(ranges))
            assert objects == records
