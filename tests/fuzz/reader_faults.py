"""The campaign of reader faults: connections are cut and stall while a topic is read; each record comes once.

Theory of operation. A block is a broker, a proxy before it that cuts connections in the middle of Fetch
answers, or lets them stall (cutting_proxy.py), and a topic of numbered records, which is read in one of five
ways. Every fourth block has a real Kafka, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kbatch
from kbatch import TopicReader
from kbatch.protocol import messages
from kbatch.testing import Broker
from tests.fuzz import campaign
from tests.fuzz.producer_faults import is_java_there, real
from tests.integration.cutting_proxy import CUTS, STALL, CuttingProxy
from tests.oracle.kafka import create_topic

BLOCK_CASES = 1_000_000
PARTITIONS = 4
TOPIC = "numbered"
COLUMNS = ["partition", "offset", "value"]
FETCH = messages.FetchRequest.api_key
# Quick to find a stall, and to come back.
EAGER: dict[str, object] = {
    "max.partition.fetch.bytes": 20_000,
    "request.timeout.ms": 700,
    "fetch.max.wait.ms": 100,
    "reconnect.backoff.ms": 1,
    "reconnect.backoff.max.ms": 10,
    "retry.backoff.ms": 1,
}


def numbered(count: int) -> pa.Table:
    """Return rows whose value says which they are, over all partitions."""
    numbers = pa.array(range(count), pa.int64())
    partitions = pa.array([number % PARTITIONS for number in range(count)], pa.int32())
    return pa.table({"value": numbers.cast(pa.string()).cast(pa.binary()), "partition": partitions})


def fill(servers: str, topic: str, count: int, **keys: Any) -> None:
    create_topic(servers, topic, PARTITIONS)
    with kbatch.Producer(bootstrap_servers=servers, **keys) as producer:
        producer.send_table(topic, numbered(count), key=None).result()


def check_all(table: pa.Table, count: int) -> None:
    """Check that each value is there once, in order, in its partition."""
    assert table.num_rows == count
    for partition in range(PARTITIONS):
        own = table.filter(pc.equal(table["partition"], partition))
        expected = pa.array(range(partition, count, PARTITIONS), pa.int64())
        assert own["value"].cast(pa.string()).cast(pa.int64()).combine_chunks().equals(expected)
        assert own["offset"].combine_chunks().equals(pa.array(range(own.num_rows), pa.int64()))


def read_table(topic: str, servers: str) -> pa.Table:
    return kbatch.read_table(topic, bootstrap_servers=servers, config=EAGER, columns=COLUMNS)


def scan_topic(topic: str, servers: str) -> pa.Table:
    return kbatch.scan_topic(topic, bootstrap_servers=servers, config=EAGER, columns=COLUMNS).read_all()


def read_records(topic: str, servers: str) -> pa.Table:
    with TopicReader(EAGER, bootstrap_servers=servers) as reader:
        rows = [
            (each.partition, each.offset, each.value)
            for each in reader.read_records(reader.ranges(topic).ranges)
        ]
    return pa.table(dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))


@contextmanager
def _consumer(topic: str, servers: str) -> Iterator[kbatch.Consumer]:
    with kbatch.Consumer(EAGER, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, partition) for partition in range(PARTITIONS)])
        yield consumer


def until_end(topic: str, servers: str) -> pa.Table:
    with _consumer(topic, servers) as consumer:
        rows = [(each.partition, each.offset, each.value) for each in consumer.until_end()]
    return pa.table(dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))


def poll_table(topic: str, servers: str) -> pa.Table:
    tables: list[pa.Table] = []
    with _consumer(topic, servers) as consumer:
        missing = sum(consumer.end_offsets(consumer.assignment()).values())
        while missing > 0:
            tables.append(consumer.poll_table(columns=COLUMNS))
            missing -= tables[-1].num_rows
    return pa.concat_tables(tables)


WAYS: tuple[Callable[[str, str], pa.Table], ...] = (
    read_table,
    scan_topic,
    read_records,
    until_end,
    poll_table,
)
CODECS = ("lz4", "none", "zstd", "gzip", "snappy")


def read_through_faults(
    way: Callable[[str, str], pa.Table], servers: str, topic: str, seed: object, *, cuts: int | None
) -> tuple[pa.Table, dict[str, int]]:
    """Return the topic as it was read through a proxy, and the number of cuts by their kind."""
    kinds = (*CUTS, STALL)
    with CuttingProxy(servers, seed, cuts=cuts, spacing=6, api_key=FETCH, kinds=kinds) as proxy:
        return way(topic, proxy.bootstrap_servers), dict(proxy.done)


@contextmanager
def _broker(block: int) -> Iterator[str]:
    if block % 4 == 3 and is_java_there():
        with real() as kafka:
            yield kafka.bootstrap_servers
    else:
        with Broker(nodes=2, auto_create_topics=False) as broker:
            yield broker.bootstrap_servers


def play(run: campaign.Run) -> None:
    """Check a block, of so many records."""
    way = WAYS[run.block % len(WAYS)]
    codec = CODECS[(run.block + run.block // len(WAYS)) % len(CODECS)]  # another one for a way each time
    with _broker(run.block) as servers:
        fill(servers, TOPIC, run.cases, compression_type=codec)
        table, cuts = read_through_faults(way, servers, TOPIC, run.block, cuts=None)
    run.say(way.__name__, codec, cuts)
    check_all(table, run.cases)
    stalled = cuts.pop(STALL, 0)
    run.outcomes.update({"records": run.cases, "connections cut": sum(cuts.values()), "stalled": stalled})
