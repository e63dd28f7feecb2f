"""Producers on an event loop, at the jobs of `benchmarks/driver.py`.

`python -m benchmarks.async_driver NAME`, where NAME is "kbatch, asyncio", "kbatch, uvloop" or "aiokafka".
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from benchmarks.driver import Answer, Row, rows_of
from benchmarks.probes import process_cpu_ns

Settled = Callable[[object], None]


class Client(Protocol):
    """What a job needs of a producer."""

    async def start(self) -> object: ...
    async def send(self, topic: str, row: Row, settled: Settled) -> None:
        """Calls `settled` with the record's error or None, as soon as that is known."""

    async def load(self, topic: str, rows: Iterable[Row], settled: Settled) -> None:
        """Sends all as fast as it can, and waits for the last; `settled` as for `send`."""

    async def close(self) -> object: ...


class Kbatch:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        from kbatch import AsyncProducer

        self.producer = AsyncProducer(settings)
        self.start = self.producer.__aenter__
        self.close = self.producer.close

    async def send(self, topic: str, row: Row, settled: Settled) -> None:
        key, value = row
        await self.producer.send(topic, value, key, on_delivery=lambda metadata, error: settled(error))

    async def load(self, topic: str, rows: Iterable[Row], settled: Settled) -> None:
        def told(metadata: object, error: object) -> None:
            settled(error)

        send = self.producer.send
        for key, value in rows:
            await send(topic, value, key, on_delivery=told)
        await self.producer.flush()


class Aiokafka:
    """It has no buffer.memory: a batch a partition waits at most, and send() for it to go."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from aiokafka import AIOKafkaProducer

        self.producer = AIOKafkaProducer(
            bootstrap_servers=settings["bootstrap.servers"],
            acks=settings["acks"],
            enable_idempotence=settings["enable.idempotence"],
            compression_type=settings["compression.type"],
            linger_ms=settings["linger.ms"],
            max_batch_size=settings["batch.size"],
            max_request_size=settings["max.request.size"],
        )
        self.start = self.producer.start
        self.close = self.producer.stop

    async def send(self, topic: str, row: Row, settled: Settled) -> None:
        key, value = row
        future = await self.producer.send(topic, value, key)
        future.add_done_callback(lambda future: settled(future.exception()))

    async def load(self, topic: str, rows: Iterable[Row], settled: Settled) -> None:
        def told(future: asyncio.Future[Any]) -> None:
            settled(future.exception())

        send = self.producer.send
        for key, value in rows:
            future = await send(topic, value, key)
            future.add_done_callback(told)
        await self.producer.flush()
        await asyncio.sleep(0)  # the last callbacks


CLIENTS: dict[str, Callable[[Mapping[str, Any]], Client]] = {
    "kbatch, asyncio": Kbatch,
    "kbatch, uvloop": Kbatch,
    "aiokafka": Aiokafka,
}


async def load(client: Client, job: Mapping[str, Any]) -> Answer:
    """All records at once: time and processor time up to the last callback."""
    delivered = 0

    def count(error: object) -> None:
        nonlocal delivered
        delivered += error is None

    rows = rows_of(job)
    start_ns, start_cpu_ns = time.perf_counter_ns(), process_cpu_ns()
    await client.load(job["topic"], rows, count)
    return {
        "elapsed_ns": time.perf_counter_ns() - start_ns,
        "cpu_ns": process_cpu_ns() - start_cpu_ns,
        "delivered": delivered,
    }


async def pace(client: Client, job: Mapping[str, Any]) -> Answer:
    """A record each `interval_ns`: how long it took to its callback, from when it was due and from when it
    was sent.
    """
    count, interval_ns = job["records"], job["interval_ns"]
    sent_ns, settled_ns = [0] * count, [0] * count
    errors: list[object] = []
    left = set(range(count))
    all_settled = asyncio.Event()

    def settled(number: int, error: object) -> None:
        settled_ns[number] = time.perf_counter_ns()
        if error is not None:
            errors.append(error)
        left.discard(number)
        if not left:
            all_settled.set()

    start_ns = time.perf_counter_ns()
    for number, row in enumerate(rows_of(job)):
        left_ns = start_ns + number * interval_ns - time.perf_counter_ns()
        if left_ns > 0:
            await asyncio.sleep(left_ns / 1e9)
        sent_ns[number] = time.perf_counter_ns()
        await client.send(job["topic"], row, partial(settled, number))
    await all_settled.wait()
    due_ns = range(start_ns, start_ns + count * interval_ns, interval_ns)
    return {
        "delivered": sum(map(bool, settled_ns)) - len(errors),
        "from_sent_ns": [end - begun for begun, end in zip(sent_ns, settled_ns, strict=True)],
        "from_due_ns": [end - due for due, end in zip(due_ns, settled_ns, strict=True)],
    }


JOBS = {"load": load, "pace": pace}


async def work(name: str, job: Mapping[str, Any]) -> Answer:
    client = CLIENTS[name](job["settings"])
    await client.start()
    # connections, metadata and a producer id are there before anything is measured
    await client.load(job["topic"], [(b"first", b"")], lambda error: None)
    answer = await JOBS[job["job"]](client, job)
    await client.close()
    return answer


def main() -> None:
    name = sys.argv[1]
    run: Callable[[Any], Answer] = asyncio.run
    if name.endswith("uvloop"):
        import uvloop

        run = uvloop.run
    for line in sys.stdin:
        print(json.dumps(run(work(name, json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
