"""Reading from a real Kafka, through cut connections, and in bounded memory: each record once, in order."""

from __future__ import annotations

import os
import random
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch.errors import OffsetOutOfRangeError
from kbatch.testing import Broker
from tests.fuzz import reader_faults
from tests.oracle.kafka import create_topic
from tests.oracle.plain import CODECS
from tests.support.patience import HANG_SECONDS, until
from tests.support.reading_memory import POLL_BYTES, STREAM_BYTES, TABLE_SHARE, stream_read, table_read
from tests.support.topics import records, rows, send

PARTITIONS = 4


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.slow])])
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", [reader_faults.read_table, reader_faults.read_records, reader_faults.poll_table]
)
def test_cut_and_stalled_connections_lose_nothing(servers: str, way: Callable[[str, str], pa.Table]) -> None:
    count, topic = 400_000, f"numbered-{uuid.uuid4()}"
    reader_faults.fill(servers, topic, count, compression_type="lz4")
    table, cuts = reader_faults.read_through_faults(way, servers, topic, way.__name__, cuts=25)
    assert sum(cuts.values()) >= 15 and reader_faults.STALL in cuts
    reader_faults.check_all(table, count)


@pytest.mark.parametrize("codec", CODECS)
def test_R07_every_codec_reads_back_as_it_was_sent(servers: str, topic: str, codec: str) -> None:
    rng = random.Random(codec)
    sent = {partition: records(rng, 500) for partition in range(PARTITIONS)}
    with kbatch.Producer(bootstrap_servers=servers, compression_type=codec, batch_size=4000) as producer:
        for partition, each in sent.items():
            send(producer, topic, partition, each)
    expected = {partition: list(enumerate(each)) for partition, each in sent.items()}
    for layout in ("copy", "view"):
        assert rows(kbatch.read_table(topic, bootstrap_servers=servers, layout=layout)) == expected
    assert rows(kbatch.scan_topic(topic, bootstrap_servers=servers, batch_rows=33)) == expected


def test_R47_transactions_read_back_by_the_isolation(servers: str, topic: str) -> None:
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


def test_R10_record_above_every_limit_comes(servers: str) -> None:
    topic = f"large-{uuid.uuid4()}"
    create_topic(servers, topic, 1, {"max.message.bytes": "3000000"})
    sent = [os.urandom(2_000_000), b"small", os.urandom(1_000_000)]
    with kbatch.Producer(bootstrap_servers=servers, max_request_size=3_000_000) as producer:
        for value in sent:
            producer.send(topic, value)
    config: dict[str, object] = {"fetch.max.bytes": 1000, "max.partition.fetch.bytes": 1000}
    table = kbatch.read_table(topic, bootstrap_servers=servers, config=config)
    assert table["value"].to_pylist() == sent


def test_R35_R44_seek_with_an_epoch_is_compared_with_the_log(servers: str, topic: str) -> None:
    partition = kbatch.TopicPartition(topic, 0)
    with kbatch.Producer(bootstrap_servers=servers) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
    with kbatch.Consumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, kbatch.OffsetAndMetadata(15, leader_epoch=0))
        # the leader of this very epoch has never had it: no truncation
        with pytest.raises(OffsetOutOfRangeError, match="offset 15 of leader epoch 0 is not of this log"):
            consumer.poll(HANG_SECONDS)
        consumer.seek(partition, kbatch.OffsetAndMetadata(5, leader_epoch=0))
        assert [each.offset for each in consumer.until_end()] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(("isolation", "count"), [("read_committed", 2), ("read_uncommitted", 5)])
def test_R49_R86_until_end_passes_aborted_tails(servers: str, topic: str, isolation: str, count: int) -> None:
    partitions = [kbatch.TopicPartition(topic, number) for number in range(PARTITIONS)]
    with kbatch.Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for values in ([b"a", b"b"], [b"aborted"] * 3):
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value, partition=1)
            producer.flush()
            (producer.commit_transaction if len(values) == 2 else producer.abort_transaction)()
    keys: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": isolation}
    with kbatch.Consumer(bootstrap_servers=servers, **keys) as consumer:
        consumer.assign(partitions)
        assert sum(1 for _ in consumer.until_end()) == count
        assert (consumer.position(partitions[1]), consumer.lag(partitions[1])) == (7, 0)  # after the marker


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
@pytest.mark.parametrize("how", ["table", "stream", "poll"])
def test_R28_memory_is_bounded(servers: str, topic: str, how: str) -> None:
    count, value_bytes, buffer_bytes = 40_000, 10_000, 8 << 20
    with kbatch.Producer(bootstrap_servers=servers, batch_size=500_000) as producer:
        for number in range(count):
            producer.send(topic, os.urandom(100) * (value_bytes // 100), partition=number % PARTITIONS)
    if how == "table":
        read = table_read(servers, topic)
        most = TABLE_SHARE * read.size_bytes
    else:
        read = stream_read(servers, topic, how, buffer_bytes=buffer_bytes)
        most = buffer_bytes + (STREAM_BYTES if how == "stream" else POLL_BYTES)
    assert read.rows == count and read.size_bytes > count * value_bytes
    assert read.grown_bytes < most


@pytest.mark.slow
@pytest.mark.java
def test_R87_a_compacted_topic_reads_with_its_gaps(real_kafka: Any) -> None:
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
