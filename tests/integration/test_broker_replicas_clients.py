"""Other clients on a replicated embedded cluster whose leaders die: every record once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Message, Producer

from kbatch.testing import Broker
from tests.support.patience import HANG_SECONDS

TOPIC, COUNT = "events", 300


def disturb(broker: Broker, number: int) -> None:
    """Kill the leader now and then; it comes back at once, as a follower."""
    if number % 100 == 50:
        leader = broker.leader(TOPIC, 0)
        broker.kill_node(leader)
        broker.start_node(leader)


def produce_by_librdkafka(broker: Broker) -> None:
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
        disturb(broker, number)
    assert (producer.flush(HANG_SECONDS), failed) == (0, [])


def produce_by_aiokafka(broker: Broker) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True, retry_backoff_ms=10
        )
        await producer.start()
        try:
            sent = []
            for number in range(COUNT):
                sent.append(await producer.send(TOPIC, b"%d" % number))
                disturb(broker, number)
            await asyncio.wait_for(asyncio.gather(*sent), HANG_SECONDS)
        finally:
            await producer.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("produce", [produce_by_librdkafka, produce_by_aiokafka])
def test_KB07_clients_lose_nothing_when_leaders_die(produce: Callable[[Broker], None]) -> None:
    with Broker({TOPIC: 1}, nodes=3) as broker:
        produce(broker)
        assert [record.value for record in broker.records(TOPIC)] == [b"%d" % each for each in range(COUNT)]
        broker.wait_in_sync()
        assert broker.lag(TOPIC, 0) == {0: 0, 1: 0, 2: 0}
