"""Ways to use an asyncio producer, like those in clients.py; a job is one run of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

from kbatch.bench.clients import Pace
from kbatch.bench.settings import Settings, for_aiokafka
from kbatch.bench.workload import FIRST_ROW, Row, Work


class Async:
    """The common part of asyncio clients."""

    producer: Any

    def __init__(self, settings: Settings) -> None:
        self._loop = asyncio.new_event_loop()
        self.producer = self.run(self._open(settings))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(coroutine)

    async def _open(self, settings: Settings) -> Any:
        raise NotImplementedError

    async def _send(self, topic: str, row: Row) -> Any:
        """Return an awaitable that is done at the acknowledgement."""
        raise NotImplementedError

    async def _load(self, topic: str, prepared: Any) -> int:
        raise NotImplementedError

    async def _close(self) -> None:
        raise NotImplementedError

    def first(self, topic: str) -> None:
        async def send() -> None:
            await (await self._send(topic, FIRST_ROW))

        self.run(send())

    def prepare(self, topic: str, work: Work) -> Any:
        return work.each()

    def load(self, topic: str, prepared: Any) -> int:
        return int(self.run(self._load(topic, prepared)))

    def pace(self, topic: str, pace: Pace) -> None:
        self.run(self._pace(topic, pace))

    async def _pace(self, topic: str, pace: Pace) -> None:
        waits = []
        for number, row in enumerate(pace.rows):
            left = pace.left_seconds(number)
            if left > 0:
                await asyncio.sleep(left)
            settled = pace.send(number)
            waits.append(asyncio.ensure_future(_settle(await self._send(topic, row), settled)))
        await asyncio.gather(*waits)

    def transact(self, topic: str, work: Work, count: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.run(self._close())
        self._loop.close()


async def _settle(acknowledged: Any, settled: Callable[[object], None]) -> None:
    try:
        await acknowledged
    except Exception as error:
        settled(error)
    else:
        settled(None)


class KbatchAsync(Async):
    """Await `AsyncProducer.send` with an on_delivery."""

    async def _open(self, settings: Settings) -> Any:
        return await import_module("kbatch").AsyncProducer(settings).__aenter__()

    async def _send(self, topic: str, row: Row) -> Any:
        key, value = row
        return await self.producer.send(topic, value, key)

    async def _load(self, topic: str, prepared: Any) -> int:
        delivered = 0

        def count(metadata: object, error: object) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1

        send = self.producer.send
        for key, value in prepared:
            await send(topic, value, key, on_delivery=count)
        await self.producer.flush()
        return delivered

    async def _close(self) -> None:
        await self.producer.close()


class Aiokafka(Async):
    """Await `send`, with a callback on the future that it returns."""

    async def _open(self, settings: Settings) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(**for_aiokafka(settings))
        await producer.start()
        return producer

    async def _send(self, topic: str, row: Row) -> Any:
        key, value = row
        return await self.producer.send(topic, value, key)

    async def _load(self, topic: str, prepared: Any) -> int:
        delivered = 0

        def count(future: asyncio.Future[Any]) -> None:
            nonlocal delivered
            if future.exception() is None:
                delivered += 1

        send = self.producer.send
        for key, value in prepared:
            (await send(topic, value, key)).add_done_callback(count)
        await self.producer.flush()
        await asyncio.sleep(0)  # flush may return before the last callbacks ran
        return delivered

    async def _close(self) -> None:
        await self.producer.stop()
