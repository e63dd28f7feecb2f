"""Reading from a real Kafka, through cut connections, and in bounded memory: each record once, in order."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch.protocol import messages
from kbatch.testing import Broker
from tests import ROOT
from tests.integration.cutting_proxy import CUTS, STALL, CuttingProxy
from tests.oracle.kafka import create_topic
from tests.support.producing import until
from tests.support.topics import CODECS, records, rows, send

PARTITIONS = 4
FETCH = messages.FetchRequest.api_key


def value_table(first: int, count: int) -> pa.Table:
    """Return rows whose value says which they are, over all partitions."""
    numbers = pa.array(range(first, first + count), pa.int64())
    return pa.table(
        {
            "value": numbers.cast(pa.string()).cast(pa.binary()),
            "partition": pa.array(
                [number % PARTITIONS for number in range(first, first + count)], pa.int32()
            ),
        }
    )


def fill(servers: str, topic: str, count: int, **keys: Any) -> None:
    with kbatch.Producer(bootstrap_servers=servers, **keys) as producer:
        producer.send_table(topic, value_table(0, count), key=None).result()


def check_all(table: pa.Table, count: int) -> None:
    """Check that each value is there once, in order, in its partition."""
    assert table.num_rows == count
    for partition in range(PARTITIONS):
        own = table.filter(pa.compute.equal(table["partition"], partition))
        expected = pa.array(range(partition, count, PARTITIONS), pa.int64())
        assert own["value"].cast(pa.string()).cast(pa.int64()).combine_chunks().equals(expected)
        assert own["offset"].combine_chunks().equals(pa.array(range(own.num_rows), pa.int64()))


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafka":
        yield request.getfixturevalue("real_kafka").bootstrap_servers
        return
    with Broker(nodes=2, auto_create_topics=False) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"reading-{uuid.uuid4()}"
    create_topic(servers, name, PARTITIONS)
    return name


@pytest.mark.parametrize("seed", range(2))
def test_cut_and_stalled_connections_lose_nothing(servers: str, topic: str, seed: int) -> None:
    count = 400_000
    fill(servers, topic, count, compression_type="lz4")
    config: dict[str, object] = {
        "max.partition.fetch.bytes": 20_000,
        "request.timeout.ms": 700,
        "fetch.max.wait.ms": 100,
        "reconnect.backoff.ms": 1,
        "reconnect.backoff.max.ms": 10,
        "retry.backoff.ms": 1,
    }
    kinds = (*CUTS, STALL)
    with CuttingProxy(servers, seed, cuts=25, spacing=6, api_key=FETCH, kinds=kinds) as proxy:
        table = kbatch.read_table(
            topic,
            bootstrap_servers=proxy.bootstrap_servers,
            config=config,
            columns=["partition", "offset", "value"],
        )
        assert sum(proxy.done.values()) >= 15 and STALL in proxy.done
    check_all(table, count)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_reads_back_as_it_was_sent(servers: str, topic: str, codec: str) -> None:
    rng = random.Random(codec)
    sent = {partition: records(rng, 500) for partition in range(PARTITIONS)}
    with kbatch.Producer(bootstrap_servers=servers, compression_type=codec, batch_size=4000) as producer:
        for partition, each in sent.items():
            send(producer, topic, partition, each)
    expected = {partition: list(enumerate(each)) for partition, each in sent.items()}
    for layout in ("copy", "view"):
        assert rows(kbatch.read_table(topic, bootstrap_servers=servers, layout=layout)) == expected
    assert rows(kbatch.scan_topic(topic, bootstrap_servers=servers, batch_rows=33)) == expected


def test_transactions_read_back_by_the_isolation(servers: str, topic: str) -> None:
    rng = random.Random(7)
    committed: dict[int, list[Any]] = {}
    every: dict[int, list[Any]] = {}
    with kbatch.Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(20):
            producer.begin_transaction()
            sent = {partition: records(rng, rng.randint(0, 20)) for partition in range(PARTITIONS)}
            commits = number % 3 > 0
            for partition, each in sent.items():
                send(producer, topic, partition, each)
                every.setdefault(partition, []).extend(each)
                committed.setdefault(partition, []).extend(each if commits else [])
            producer.flush()  # an abort drops what was not sent
            (producer.commit_transaction if commits else producer.abort_transaction)()
        for isolation, expected in (("read_committed", committed), ("read_uncommitted", every)):
            table = kbatch.read_table(topic, bootstrap_servers=servers, isolation=isolation)
            found = {partition: [record for _, record in each] for partition, each in rows(table).items()}
            assert found == expected


MEMORY = """
import json, resource, sys
import pyarrow as pa
import kbatch
servers, topic, how = sys.argv[1:]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

kbatch.read_table(topic, end=1, bootstrap_servers=servers)  # imports, threads, arenas
before = peak()
rows = size = 0
if how == "table":
    table = kbatch.read_table(topic, bootstrap_servers=servers, columns=["offset", "value"])
    rows, size = table.num_rows, table.nbytes
else:
    config = {"kbatch.fetch.buffer.memory": 8 << 20}
    for batch in kbatch.scan_topic(topic, bootstrap_servers=servers, config=config):
        rows += batch.num_rows
        size += batch.nbytes
print(json.dumps([rows, size, peak() - before]))
"""


@pytest.mark.parametrize("how", ["table", "stream"])
def test_memory_is_bounded(servers: str, topic: str, how: str) -> None:
    count, value_bytes = 40_000, 10_000
    with kbatch.Producer(bootstrap_servers=servers, batch_size=500_000) as producer:
        for number in range(count):
            producer.send(topic, os.urandom(100) * (value_bytes // 100), partition=number % PARTITIONS)
    command = [sys.executable, "-c", MEMORY, servers, topic, how]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    row_count, size, peak = json.loads(done.stdout)
    assert row_count == count and size > count * value_bytes
    assert peak < (1.15 * size if how == "table" else (8 << 20) + (40 << 20))


@pytest.mark.java
def test_a_compacted_topic_reads_with_its_gaps(real_kafka: Any) -> None:
    """Read while the cleaner works, until it has removed records; the last value of each key always comes."""
    servers, topic = real_kafka.bootstrap_servers, f"compacted-{uuid.uuid4()}"
    configs = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    create_topic(servers, topic, 1, configs)
    sent: list[tuple[bytes, bytes]] = []
    with kbatch.Producer(bootstrap_servers=servers, compression_type="zstd", linger_ms=1) as producer:

        def is_compacted() -> bool:
            for _ in range(30):
                sent.append((b"%d" % (len(sent) % 7), b"%d" % len(sent)))
                producer.send(topic, sent[-1][1], sent[-1][0])
            producer.flush()
            table = kbatch.read_table(topic, bootstrap_servers=servers, columns=["offset", "key", "value"])
            offsets = table["offset"].to_pylist()
            assert offsets == sorted(set(offsets))
            found = list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
            assert found == [sent[offset] for offset in offsets]
            assert dict(found) == dict(sent)
            return len(found) < len(sent)

        until(is_compacted)
