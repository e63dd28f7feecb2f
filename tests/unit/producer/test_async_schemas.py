"""An AsyncProducer whose formats have to ask a registry: tasks wait, the event loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch import formats
from kbatch.errors import KafkaTimeoutError, PartialSendError, SchemaRegistryError
from kbatch.interceptors import Interceptor
from kbatch.testing import Broker
from tests.support.registry import Registry

SECONDS = 30.0
SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
Program = Callable[[kbatch.AsyncProducer, Registry], Coroutine[Any, Any, Any]]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def order(registry: Registry, **options: Any) -> formats.Avro[Any]:
    return formats.Avro(SCHEMA, registry=registry.client(retries=0), **({"register": True} | options))


@asynccontextmanager
async def producing(
    broker: Broker, value: formats.Avro[Any], **keywords: Any
) -> AsyncIterator[kbatch.AsyncProducer]:
    async with kbatch.AsyncProducer(
        bootstrap_servers=broker.bootstrap_servers, value_serializer=value, **keywords
    ) as producer:
        yield producer


def values(broker: Broker, topic: str) -> list[Any]:
    with kbatch.TopicReader(
        bootstrap_servers=broker.bootstrap_servers, value_deserializer=formats.Avro(SCHEMA, id=0)
    ) as reader:
        return [record.value for record in reader.read_records(reader.ranges(topic).ranges)]


class Held:
    """Lets the registry answer only when a task of the same loop says so."""

    def __init__(self, registry: Registry) -> None:
        self._may_answer = threading.Event()
        self.asked = threading.Event()
        registry.before = self._wait

    def _wait(self, path: str) -> None:
        self.asked.set()
        assert self._may_answer.wait(SECONDS)

    @property
    def is_released(self) -> bool:
        return self._may_answer.is_set()

    async def release(self) -> None:
        while not self.asked.is_set():
            await asyncio.sleep(0)
        self._may_answer.set()


@pytest.mark.parametrize("adds_headers", [False, True], ids=["prefix", "header"])
def test_F_IO_08_send_waits_for_the_registry_and_the_loop_goes_on(
    broker: Broker, registry: Registry, adds_headers: bool
) -> None:
    topic = f"waits-{adds_headers}"
    held = Held(registry)
    seen: list[Any] = []

    class Seeing(Interceptor):
        def on_send(self, record: Any) -> Any:
            seen.append(record.value)
            return record

    async def use() -> None:
        value = order(registry, id_in="header" if adds_headers else "prefix")
        async with producing(broker, value, interceptor_classes=[Seeing()]) as producer:
            release = asyncio.ensure_future(held.release())
            sends = [producer.send(topic, {"id": number}) for number in range(20)]
            await asyncio.gather(*await asyncio.gather(*sends))
            await release
            await (await producer.send(topic, {"id": 20}))

    asyncio.run(use())
    # one request, but for the GUID, and an interceptor sees each record once
    assert len(registry.requests) == 1 + adds_headers and len(seen) == 21
    if not adds_headers:
        assert values(broker, topic) == [{"id": number} for number in range(21)]


def test_try_send_asks_and_refuses_until_the_answer(broker: Broker, registry: Registry) -> None:
    held = Held(registry)

    async def use() -> None:
        async with producing(broker, order(registry)) as producer:
            await producer.partitions_for("tries")
            assert producer.try_send("tries", {"id": 1}) is None
            await held.release()
            while (delivery := producer.try_send("tries", {"id": 1})) is None:
                await asyncio.sleep(0)
            await delivery

    asyncio.run(use())
    assert len(registry.requests) == 1 and values(broker, "tries") == [{"id": 1}]


def test_tombstones_ask_for_nothing(broker: Broker, registry: Registry) -> None:
    async def use() -> None:
        async with producing(broker, order(registry, register=False)) as producer:
            await (await producer.send("tombstones", None, b"k"))
            assert not registry.requests
            with pytest.raises(SchemaRegistryError, match="40403"):
                await producer.send("tombstones", {"id": 1}, b"k")

    asyncio.run(use())


def test_send_fails_as_the_registry_says_and_asks_again(broker: Broker, registry: Registry) -> None:
    async def use() -> None:
        async with producing(broker, order(registry)) as producer:
            registry.faults.append((500, b"{}"))
            with pytest.raises(SchemaRegistryError):
                await producer.send("again", {"id": 1})
            registry.faults.append((500, b"{}"))
            with pytest.raises(PartialSendError) as caught:
                await producer.send_many("again", [(None, {"id": 1})])
            assert isinstance(caught.value.__cause__, SchemaRegistryError)
            for each in await producer.send_many("again", [(None, {"id": number}) for number in range(3)]):
                await each
            with pytest.raises(TypeError, match="id"):
                await producer.send("again", {"id": "text"})

    asyncio.run(use())
    assert values(broker, "again") == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_send_waits_no_longer_than_max_block_ms(broker: Broker, registry: Registry) -> None:
    held = Held(registry)

    async def use() -> None:
        async with producing(broker, order(registry), max_block_ms=1000) as producer:
            await producer.partitions_for("slow")
            with pytest.raises(KafkaTimeoutError, match=r"has not said within max\.block\.ms"):
                await producer.send("slow", {"id": 1})
            task = asyncio.ensure_future(producer.send("slow", {"id": 1}))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await held.release()
            await (await producer.send("slow", {"id": 2}))

    asyncio.run(use())
    assert values(broker, "slow") == [{"id": 2}]


def test_tables_wait_too(broker: Broker, registry: Registry) -> None:
    held = Held(registry)

    async def use() -> None:
        async with kbatch.AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            release = asyncio.ensure_future(held.release())
            table = pa.table({"id": [1, 2]})
            delivery = await producer.send_table("tables", table, key=None, value=order(registry))
            await delivery
            await release
            with pytest.raises(TypeError, match="rows name their topics"):
                await producer.send_table(
                    None,
                    pa.table({"id": [1], "t": ["tables"]}),
                    topic_column="t",
                    key=None,
                    value=order(registry),
                )

    asyncio.run(use())
    assert values(broker, "tables") == [{"id": 1}, {"id": 2}]


def test_end_of_the_loop_does_not_wait_for_the_registry(broker: Broker, registry: Registry) -> None:
    held = Held(registry)

    async def use() -> None:
        async with producing(broker, order(registry), max_block_ms=500) as producer:
            await producer.partitions_for("ends")
            with pytest.raises(KafkaTimeoutError):
                await producer.send("ends", {"id": 1})

    asyncio.run(use())  # the registry has not answered yet
    assert not held.is_released
    asyncio.run(held.release())
