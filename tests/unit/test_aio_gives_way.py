"""AsyncProducer: a task that sends lets the loop run when the sender has something to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kbatch import AsyncProducer
from kbatch.testing import Broker
from tests.unit.producing import SECONDS, TOPIC
from tests.unit.shells import Runner


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({TOPIC: 1}, auto_create_topics=False) as broker:
        yield broker


def made(broker: Broker, **keys: Any) -> AsyncProducer:
    return AsyncProducer(bootstrap_servers=broker.bootstrap_servers, **keys)


def test_a_task_that_sends_without_end_gives_way(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker, linger_ms=0, batch_size=1000) as producer:
            await producer.partitions_for(TOPIC)
            told: list[int] = []
            count = 0
            while not told:  # it suspends nowhere else
                await producer.send(
                    TOPIC, b"", on_delivery=lambda metadata, error: told.append(metadata.offset)
                )
                count += 1
            assert count < 100_000

    run(program())


def test_a_task_gives_way_also_for_a_node_that_takes_nothing(broker: Broker, run: Runner) -> None:
    """What changes that is heard of only when the task does."""

    async def program() -> None:
        async with made(broker, linger_ms=1) as producer:
            await (await producer.send(TOPIC, b"", partition=0))
            producer._accumulator.busy_nodes = frozenset(producer._engine.snapshot.nodes)
            await producer.send(TOPIC, b"", partition=0)
            until = time.monotonic() + SECONDS
            while not producer.must_give_way:  # linger is over
                assert time.monotonic() < until

    run(program())
