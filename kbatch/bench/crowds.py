"""Several senders at once in one process, threads or tasks: each sends the same rows again and again until
the time is over.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from kbatch.bench import clients
from kbatch.bench.work import Work

Job = Mapping[str, Any]


class Sender:
    """What a thread or a task has sent, and what was said to be delivered of it."""

    def __init__(self, client: Any, topic: str, work: Work, chunk: Any) -> None:
        self.client = client
        self.topic = topic
        self.work = work
        self.chunk = chunk
        self.sent = 0
        self._delivered = count()  # next() is atomic, and clients call back on whichever thread polls

    def take_delivered(self) -> int:
        """How many deliveries there were, once all are known; where nobody counts, the flush has raised
        unless it was all."""
        return self.sent if type(self.client) in UNCOUNTED else next(self._delivered)

    def told(self, metadata: object, error: object) -> None:
        if error is None:
            next(self._delivered)

    def told_first(self, error: object, message: object) -> None:
        if error is None:
            next(self._delivered)

    def run(self, deadline: float) -> None:
        send_chunk = SENDS[type(self.client)]
        while time.monotonic() < deadline:
            send_chunk(self)
            self.sent += self.work.records

    async def run_as_task(self, deadline: float) -> None:
        send, told = self.client.producer.send, self.told
        while time.monotonic() < deadline:
            for key, value in self.chunk:
                await send(self.topic, value, key, on_delivery=told)
            self.sent += self.work.records


def _send(sender: Sender) -> None:
    send, told = sender.client.producer.send, sender.told
    for key, value in sender.chunk:
        send(sender.topic, value, key, on_delivery=told)


def _send_many(sender: Sender) -> None:
    for rows in sender.chunk:
        sender.client.producer.send_many(sender.topic, rows)


def _send_batches(sender: Sender) -> None:
    for partition, batch in sender.chunk:
        sender.client.producer.send_batch(sender.topic, partition, batch)


def _send_table(sender: Sender) -> None:
    sender.client.producer.send_table(sender.topic, sender.chunk)


def _produce(sender: Sender) -> None:
    sender.client.produce_all(sender.topic, sender.chunk, sender.told_first)


SENDS: Mapping[type, Callable[[Sender], None]] = {
    clients.Kbatch: _send,
    clients.KbatchMany: _send_many,
    clients.KbatchBatches: _send_batches,
    clients.KbatchTable: _send_table,
    clients.Confluent: _produce,
}
UNCOUNTED = (clients.KbatchMany, clients.KbatchBatches, clients.KbatchTable)


def run(opened: Sequence[Any], job: Job) -> list[Sender]:
    """Has `senders` of them send for `seconds`, one behind the other to each of the clients, and flushes."""
    work = Work.of({**job, "records": job["chunk"]})
    prepared = [client.prepare(job["topic"], work) for client in opened]
    chunk = prepared[0] if hasattr(prepared[0], "schema") else list(prepared[0])
    senders = [Sender(opened[i % len(opened)], job["topic"], work, chunk) for i in range(job["senders"])]
    deadline = time.monotonic() + job["seconds"]
    if type(opened[0]) in SENDS:
        threads = [threading.Thread(target=sender.run, args=(deadline,)) for sender in senders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in opened:
            client.producer.flush()
    else:
        (client,) = opened
        client.run(_run_tasks(client, senders, deadline))
    return senders


async def _run_tasks(client: Any, senders: Sequence[Sender], deadline: float) -> None:
    await asyncio.gather(*(sender.run_as_task(deadline) for sender in senders))
    await client.producer.flush()
