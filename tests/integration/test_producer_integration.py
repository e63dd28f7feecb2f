"""kbatch.Producer on a real Kafka and on the embedded one, read by other clients, and under faults."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kbatch
from kbatch import Producer
from tests.fuzz.campaign import at_work
from tests.fuzz.producer_faults import EAGER, FaultyBroker, await_progress, embedded, real
from tests.integration.cutting_proxy import CUTS, CuttingProxy
from tests.integration.ledger import Ledger, read_all
from tests.oracle import java_clients
from tests.oracle.kafka import create_topic
from tests.oracle.plain import CODECS
from tests.support.effort import REAL
from tests.support.patience import HANG_MS, HANG_SECONDS, until
from tests.support.shells import new_producer

pytestmark = pytest.mark.usefixtures("shell")

SECONDS = HANG_SECONDS
TIME_MS = 1_700_000_000_000
_numbers = itertools.count()

Fault = Callable[[FaultyBroker], None]


def new_topic(target: str, partitions: int = 1, **configs: str) -> str:
    name = f"producer-{next(_numbers)}"
    create_topic(target, name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
    return name


# Others read what is sent


def test_keys_go_where_java_sends_them(target: str) -> None:
    topic = new_topic(target, partitions=7)
    keys = [b"", b"\xff", *(b"key-%d" % number for number in range(200))]
    with new_producer(bootstrap_servers=target) as producer:
        for number, key in enumerate(keys):
            producer.send(topic, b"%d" % number, key)
    for partition, records in enumerate(read_all(target, topic, 7)):
        numbers = [int(record.value or b"") for record in records]
        assert numbers == [n for n, key in enumerate(keys) if kbatch.partition_for_key(key, 7) == partition]


@pytest.mark.parametrize("codec", CODECS)
def test_others_read_what_was_sent(target: str, codec: str) -> None:
    topic = new_topic(target)
    headers = [("name", b"content"), ("name", b"again"), ("empty", b""), ("null", None), ("ü", b"\xff")]
    with new_producer(bootstrap_servers=target, compression_type=codec, batch_size=2000) as producer:
        deliveries = [
            producer.send(
                topic,
                None if number % 7 == 0 else b"value " * number,
                None if number % 5 == 0 else b"" if number % 5 == 1 else b"key-%d" % number,
                headers=headers if number % 2 else None,
                timestamp_ms=TIME_MS - number,
            )
            for number in range(300)
        ]
    (records,) = read_all(target, topic, 1)
    assert [delivery.result().offset for delivery in deliveries] == list(range(300))
    for number, record in enumerate(records):
        assert record.value == (None if number % 7 == 0 else b"value " * number)
        assert record.key == (None, b"", *[b"key-%d" % number] * 3)[number % 5]
        assert (record.headers or []) == (headers if number % 2 else [])
        assert record.timestamp_ms == TIME_MS - number


@pytest.mark.java
@pytest.mark.usefixtures("java_jars")
def test_java_reads_what_was_sent(target: str) -> None:
    topic = new_topic(target, partitions=2)
    with new_producer(bootstrap_servers=target, compression_type="zstd") as producer:
        for number in range(200):
            producer.send(
                topic,
                b"value-%d" % number,
                b"key-%d" % number,
                headers=[("h", b"%d" % number)],
                timestamp_ms=TIME_MS + number,
            )
        producer.send(topic, None, b"tombstone")
    records = java_clients.consume(target, [topic], group=f"group-{topic}", max_records=201)
    by_key = {record["key"]: record for record in records}
    assert len(by_key) == 201
    for number in range(200):
        record = by_key[f"key-{number}"]
        assert (record["value"], record["timestamp"]) == (f"value-{number}", TIME_MS + number)
        assert record["partition"] == kbatch.partition_for_key(b"key-%d" % number, 2)
    assert by_key["tombstone"]["value"] is None


def test_log_append_time_is_the_brokers(target: str) -> None:
    topic = new_topic(target, message_timestamp_type="LogAppendTime")
    with new_producer(bootstrap_servers=target) as producer:
        metadata = producer.send(topic, b"", timestamp_ms=TIME_MS).result(SECONDS)
    ((record,),) = read_all(target, topic, 1)
    assert metadata.timestamp_ms == record.timestamp_ms > TIME_MS


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_large_records(target: str, codec: str) -> None:
    size = 5_000_000
    topic = new_topic(target, max_message_bytes="6000000")
    values = [os.urandom(size), b"between", bytes(size), os.urandom(900_000)]
    with new_producer(
        bootstrap_servers=target, max_request_size=6_000_000, compression_type=codec, linger_ms=0
    ) as producer:
        producer.send_many(topic, [(None, value) for value in values])
    (records,) = read_all(target, topic, 1)
    assert [record.value for record in records] == values


def test_record_that_the_topic_does_not_take_fails_alone(target: str) -> None:
    topic = new_topic(target, max_message_bytes="2000")
    with new_producer(bootstrap_servers=target, linger_ms=50, batch_size=10_000) as producer:
        sent = [(b"%d " % number).ljust(3000 if number == 5 else 300) for number in range(12)]
        deliveries = [producer.send(topic, value) for value in sent]
        errors = [delivery.exception(SECONDS) for delivery in deliveries]
    assert [number for number, error in enumerate(errors) if error] == [5]
    assert errors[5] is not None and errors[5].code == 10
    assert not errors[5].possibly_persisted
    (records,) = read_all(target, topic, 1)
    assert [record.value for record in records] == [value for value in sent if len(value) == 300]


@pytest.mark.slow
def test_many_partitions_keep_order(target: str) -> None:
    topic = new_topic(target, partitions=60)
    keys: dict[str, Any] = {"batch_size": 1000, "compression_type": "lz4", "buffer_memory": 400_000}
    with new_producer(bootstrap_servers=target, **keys) as producer:
        ledger = Ledger(producer, topic, 60)
        ledger.send(100)
    assert ledger.check(target) == {"acknowledged": 6000}


def test_several_threads_send(target: str) -> None:
    topic = new_topic(target, partitions=3)
    with new_producer(bootstrap_servers=target, batch_size=500) as producer:

        def send(name: int) -> None:
            for number in range(500):
                producer.send(topic, b"%d %d" % (name, number), b"%d" % name)

        threads = [threading.Thread(target=send, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen: dict[int, list[int]] = {name: [] for name in range(6)}
    for records in read_all(target, topic, 3):
        for record in records:
            name, number = map(int, (record.value or b"").split())
            seen[name].append(number)
    assert seen == {name: list(range(500)) for name in range(6)}


@pytest.mark.parametrize("acks", ["0", "1"])
def test_without_idempotence(target: str, acks: str) -> None:
    topic = new_topic(target, partitions=2)
    with new_producer(bootstrap_servers=target, acks=acks, enable_idempotence=False) as producer:
        ledger = Ledger(producer, topic, 2)
        ledger.send(500)
        producer.flush(SECONDS)
    if acks == "0":  # the broker may still be at it
        until(lambda: sum(map(len, read_all(target, topic, 2))) == 1000, "records that need no answer")
    assert ledger.check(target) == {"acknowledged": 1000}


def test_topic_that_does_not_exist(target: str) -> None:
    noted = pytest.raises(kbatch.KafkaTimeoutError, match="brokers answer, but know no such topic")
    with new_producer(bootstrap_servers=target, max_block_ms=500) as producer, noted:
        producer.send(f"absent-{next(_numbers)}", b"")


# Connections that are cut


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_cut_connections_cost_and_double_nothing(target: str, seed: int, in_flight: int) -> None:
    topic = new_topic(target, partitions=3)
    with CuttingProxy(target, f"{seed} {in_flight}", cuts=25, spacing=6) as proxy:
        keys = EAGER | {"batch_size": 1000, "max_in_flight_requests_per_connection": in_flight}
        with new_producer(bootstrap_servers=proxy.bootstrap_servers, **keys) as producer:
            ledger = Ledger(producer, topic, 3)
            deadline = time.monotonic() + SECONDS
            while sum(proxy.done.values()) < 25:
                assert time.monotonic() < deadline, proxy.done
                ledger.send(20)
                producer.flush(SECONDS)
        assert set(proxy.done) == set(CUTS)
    tally = ledger.check(target)
    assert tally["acknowledged"] == sum(tally.values())


@pytest.mark.slow
def test_cut_connection_without_retries_sets_possibly_persisted(target: str) -> None:
    topic = new_topic(target, partitions=2)
    with CuttingProxy(target, "no retries", cuts=20, spacing=4) as proxy:
        keys = EAGER | {"enable_idempotence": False, "retries": 0, "batch_size": 500}
        with new_producer(bootstrap_servers=proxy.bootstrap_servers, **keys) as producer:
            ledger = Ledger(producer, topic, 2)
            deadline = time.monotonic() + SECONDS
            while sum(proxy.done.values()) < 20:
                assert time.monotonic() < deadline, proxy.done
                ledger.send(5)
                producer.flush(SECONDS)
    tally = ledger.check(target, failed_may_be_late=True)
    assert tally["possibly persisted"] > 0
    assert tally["acknowledged"] > 0


# Brokers that are killed, freeze, restart


@pytest.fixture(scope="module", params=["embedded", REAL])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultyBroker]:
    if request.param == "real":
        request.getfixturevalue("java_jars")
        with real() as broker:
            yield broker
    else:
        with embedded(tmp_path_factory.mktemp("broker")) as broker:
            yield broker


def under(broker: FaultyBroker, fault: Fault, **keys: Any) -> tuple[Ledger, Producer]:
    """Run a producer under load while its broker meets faults, up to the end."""
    topic = new_topic(broker.bootstrap_servers, partitions=4)
    times = {"max_block_ms": HANG_MS, "delivery_timeout_ms": HANG_MS}
    settings: dict[str, Any] = {"batch_size": 2000, "linger_ms": 1} | times | keys
    with new_producer(bootstrap_servers=broker.bootstrap_servers, **(EAGER | settings)) as producer:
        ledger = Ledger(producer, topic, 4)
        with at_work([ledger.send_until]):
            await_progress([ledger])
            fault(broker)
            await_progress([ledger])
    return ledger, producer


@pytest.mark.slow
@pytest.mark.parametrize("fault", [FaultyBroker.kill, FaultyBroker.restart], ids=["killed", "restarted"])
def test_broker_that_comes_back_costs_and_doubles_nothing(broker: FaultyBroker, fault: Fault) -> None:
    ledger, _ = under(broker, fault)
    tally = ledger.check(broker.bootstrap_servers)
    assert tally["acknowledged"] == sum(tally.values())


@pytest.mark.slow
def test_broker_that_stands_still_costs_and_doubles_nothing(broker: FaultyBroker) -> None:
    """Requests time out, are sent again on new connections, and then all are answered."""
    ledger, producer = under(broker, lambda broker: broker.pause(3), request_timeout_ms=1000)
    tally = ledger.check(broker.bootstrap_servers)
    (retried,) = (
        value
        for metric, value in producer.metrics().items()
        if (metric.name, metric.group) == ("record-retry-total", "producer-metrics")
    )
    assert retried > 0
    assert tally["acknowledged"] == sum(tally.values())


@pytest.mark.slow
def test_expired_records_say_whether_they_may_be_persisted(broker: FaultyBroker) -> None:
    ledger, _ = under(
        broker,
        lambda broker: broker.pause(3),
        request_timeout_ms=500,
        delivery_timeout_ms=1500,
    )
    tally = ledger.check(broker.bootstrap_servers)
    assert tally["failed"] + tally["possibly persisted"] > 0
