"""Other clients on a replicated embedded cluster whose leaders fail: every record once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import kafka
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Message, Producer

from kbatch.testing import Broker
from tests.oracle import java_clients
from tests.support.failing_leaders import FAILURES, NODES, Failure
from tests.support.patience import HANG_MS, HANG_SECONDS, until

TOPIC, COUNT = "events", 300


def disturb(broker: Broker, number: int, how: Failure) -> None:
    """Have the leader fail now and then."""
    if number % 100 == 50:
        how(broker, broker.leader(TOPIC, 0))


def produce_by_librdkafka(broker: Broker, how: Failure) -> None:
    failed = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "retry.backoff.ms": 10}
    )
    for number in range(COUNT):
        producer.produce(TOPIC, b"%d" % number, on_delivery=delivered)
        producer.poll(0)
        disturb(broker, number, how)
    assert (producer.flush(HANG_SECONDS), failed) == (0, [])


def produce_by_aiokafka(broker: Broker, how: Failure) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True, retry_backoff_ms=10
        )
        await producer.start()
        try:
            sent = []
            for number in range(COUNT):
                sent.append(await producer.send(TOPIC, b"%d" % number))
                disturb(broker, number, how)
            await asyncio.wait_for(asyncio.gather(*sent), HANG_SECONDS)
        finally:
            await producer.stop()

    asyncio.run(scenario())


def produce_by_kafka_python(broker: Broker, how: Failure) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True, retry_backoff_ms=10
    )
    try:
        sent = []
        for number in range(COUNT):
            sent.append(producer.send(TOPIC, b"%d" % number))
            disturb(broker, number, how)
        for future in sent:
            future.get(HANG_SECONDS)
    finally:
        producer.close(HANG_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("produce", [produce_by_librdkafka, produce_by_aiokafka, produce_by_kafka_python])
def test_KB07_clients_lose_nothing_when_leaders_fail(
    produce: Callable[[Broker, Failure], None], how: Failure
) -> None:
    with Broker({TOPIC: {"partitions": 1, "min_insync_replicas": 2}}, nodes=NODES) as broker:
        produce(broker, how)
        assert [record.value for record in broker.records(TOPIC)] == [b"%d" % each for each in range(COUNT)]
        broker.wait_in_sync(timeout=HANG_SECONDS)
        assert broker.lag(TOPIC, 0) == {0: 0, 1: 0, 2: 0}


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("how", FAILURES)
def test_KB07_java_loses_nothing_when_leaders_fail(how: Failure) -> None:
    """A consumer reads meanwhile; what it reads again after a rebalance must be the same."""
    count = 10 * COUNT
    with (
        Broker({TOPIC: {"partitions": 1, "min_insync_replicas": 2}}, nodes=NODES) as broker,
        ThreadPoolExecutor(2) as threads,
    ):
        broker.delay("Produce", 0.01)  # the producer is not done before leaders fail
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "batch.size": 100,
            "retry.backoff.ms": 10,
        }
        produce = ["--topic", TOPIC, "--num-records", str(count), "--payload-monotonic", "--throughput", "-1"]
        produce += ["--command-property", *(f"{name}={value}" for name, value in settings.items())]
        producing = threads.submit(
            java_clients.run, java_clients.PRODUCER_PERFORMANCE, produce, archive="ProducerPerformance"
        )
        consuming = threads.submit(
            java_clients.consume,
            broker.bootstrap_servers,
            [TOPIC],
            group="readers",
            max_records=count,
            idle_ms=HANG_MS,
        )
        for wanted in range(count // 6, count, count // 6):
            until(lambda wanted=wanted: broker.high_watermark(TOPIC, 0) >= wanted)  # type: ignore[misc]
            how(broker, broker.leader(TOPIC, 0))
        producing.result(HANG_SECONDS)
        wanted_values = [str(each) for each in range(count)]
        assert [record.value for record in broker.records(TOPIC)] == [each.encode() for each in wanted_values]
        read = {each["offset"]: each["value"] for each in consuming.result(HANG_SECONDS)}
        assert [read[offset] for offset in range(count)] == wanted_values
        broker.wait_in_sync(timeout=HANG_SECONDS)
        assert broker.lag(TOPIC, 0) == {0: 0, 1: 0, 2: 0}
