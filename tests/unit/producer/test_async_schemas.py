"""An AsyncProducer whose serializers wait, for a registry or anything else: the event loop goes on."""

from __future__ import annotations

import asyncio
import contextvars
import json
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
from kbatch.producer import serializing
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
async def producing(broker: Broker, value: Any, **keywords: Any) -> AsyncIterator[kbatch.AsyncProducer]:
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
def test_F_IO_03_send_waits_for_the_registry_and_the_loop_goes_on(
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


def raw_values(broker: Broker, topic: str) -> list[Any]:
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        return [record.value for record in reader.read_records(reader.ranges(topic).ranges)]


def test_latest_schema_is_asked_for_again_in_a_loop(broker: Broker, registry: Registry) -> None:
    registry.add("later-value", SCHEMA)
    wider = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "note", "type": "string", "default": ""}]}

    async def use() -> None:
        format = formats.Avro[Any](registry=registry.client(), latest_ttl=0.1)
        async with producing(broker, format) as producer:
            await producer.send("later", {"id": 1})
            number = registry.add("later-value", wider)
            async with asyncio.timeout(SECONDS):
                while format.bind("value").encode("later", (), {"id": 1})[4] != number:
                    await (await producer.send("later", {"id": 1}))
            await (await producer.send("later", {"id": 2, "note": "new"}))

    asyncio.run(use())
    first, *_, last = raw_values(broker, "later")
    assert first == b"\0\0\0\0\1\2" and last == b"\0\0\0\0\2\4\6new"


class Blocking:
    """A serializer that waits until a task of the event loop lets it go on."""

    def __init__(self) -> None:
        self.is_called, self.may_return = threading.Event(), threading.Event()
        self.threads: list[int] = []

    def serialize(self, topic: str, value: Any) -> bytes:
        self.threads.append(threading.get_ident())
        self.is_called.set()
        assert self.may_return.wait(SECONDS)
        if value == "bad":
            raise ValueError("a bad value")
        return json.dumps(value).encode()

    async def let(self) -> None:
        while not self.is_called.is_set():
            await asyncio.sleep(0)
        self.may_return.set()


@pytest.mark.parametrize("kind", ["object", "function", "key"])
def test_F_SIG_06_send_calls_what_may_block_on_a_thread(broker: Broker, kind: str) -> None:
    topic = f"thread-{kind}"
    blocking = Blocking()
    given: Any = blocking if kind != "function" else lambda value: blocking.serialize("", value)
    options = {"key_serializer": given} if kind == "key" else {"value_serializer": given}

    async def use() -> None:
        async with kbatch.AsyncProducer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
            await producer.partitions_for(topic)
            task = asyncio.ensure_future(blocking.let())
            sends = [
                producer.send(topic, b"", number) if kind == "key" else producer.send(topic, number)
                for number in range(20)
            ]
            await asyncio.gather(*await asyncio.gather(*sends))
            await task
            if kind != "key":
                await (await producer.send(topic, None, b"k"))
                with pytest.raises(ValueError, match="a bad value") as caught:
                    await producer.send(topic, "bad")
                assert f"raised by value.serializer, for a record to {topic}" in caught.value.__notes__
                with pytest.raises(PartialSendError) as partly:
                    await producer.send_many(topic, [(None, 20), (None, "bad")])
                assert partly.value.index == 1
                await asyncio.gather(*partly.value.deliveries)

    asyncio.run(use())
    (thread,) = set(blocking.threads)  # one, so records keep their order
    assert thread != threading.get_ident()
    if kind != "key":
        expected = [b"%d" % number for number in range(20)]
        assert raw_values(broker, topic) == [*expected, None, b"20"]


def test_F_SIG_06_confluent_serializer_asks_its_registry_on_a_thread(
    broker: Broker, registry: Registry
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer

    client = SchemaRegistryClient({"url": registry.url})
    theirs = AvroSerializer(client, json.dumps(SCHEMA), conf={"subject.name.strategy.type": "TOPIC"})
    held = Held(registry)

    async def use() -> None:
        async with producing(broker, theirs) as producer:
            release = asyncio.ensure_future(held.release())
            await (await producer.send("theirs", {"id": 1}))
            await release

    asyncio.run(use())
    assert values(broker, "theirs") == [{"id": 1}]


def test_F_SIG_06_loop_waits_for_a_quick_serializer(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """So no other task changes the value meanwhile."""
    monkeypatch.setattr(serializing, "GRACE_SECONDS", SECONDS)
    request = contextvars.ContextVar("request", default=0)

    def quick(value: Any) -> bytes:
        return json.dumps([request.get(), value]).encode()

    async def use() -> None:
        state = {"count": 1}
        async with producing(broker, quick) as producer:
            await producer.partitions_for("quick")
            asyncio.get_running_loop().call_soon(state.clear)
            request.set(7)
            delivery = await producer.send("quick", state)
            assert state
            await delivery

    asyncio.run(use())
    assert raw_values(broker, "quick") == [b'[7, {"count": 1}]']


def test_F_SIG_06_inline_serializers_run_in_the_loop(broker: Broker) -> None:
    threads = []

    def note(value: Any) -> bytes:
        threads.append(threading.get_ident())
        return json.dumps(value).encode()

    async def use() -> None:
        async with producing(broker, formats.inline(note)) as producer:
            await producer.partitions_for("inline")
            await (await producer.send("inline", 1))
            delivery = producer.try_send("inline", 2)
            assert delivery is not None
            await delivery

    asyncio.run(use())
    assert set(threads) == {threading.get_ident()}
    assert raw_values(broker, "inline") == [b"1", b"2"]


def test_try_send_refuses_a_serializer_that_may_block(broker: Broker) -> None:
    async def use() -> None:
        async with producing(broker, json.dumps) as producer:
            await producer.partitions_for("tried")
            with pytest.raises(TypeError, match=r"try_send\(\) cannot wait for value\.serializer.*inline"):
                producer.try_send("tried", 1)
            delivery = producer.try_send("tried", None, b"k")
            assert delivery is not None
            await delivery

    asyncio.run(use())


def test_blocked_serializer_ends_with_max_block_ms(broker: Broker) -> None:
    blocking = Blocking()

    async def use() -> None:
        async with producing(broker, blocking, max_block_ms=500) as producer:
            await producer.partitions_for("blocked")
            with pytest.raises(KafkaTimeoutError, match=r"serializers .* blocked .* within max\.block\.ms"):
                await producer.send("blocked", 1)
            queued = asyncio.ensure_future(producer.send("blocked", 2))
            await asyncio.sleep(0)
            queued.cancel()
            with pytest.raises(asyncio.CancelledError):
                await queued
            await blocking.let()
            await (await producer.send("blocked", 3))

    asyncio.run(use())
    # a call that was cancelled before its turn is left out
    assert len(blocking.threads) == 2 and raw_values(broker, "blocked") == [b"3"]
