"""Several senders at once in one process, threads or tasks: each sends the same rows again and again until
the time is over, and once at least.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from benchmarks.clients import producers
from benchmarks.clients.work import Work
from kbatch.bench import clients

Job = Mapping[str, Any]


class Sender:
    """The number of records that a thread or task sent, and of reported deliveries."""

    def __init__(self, client: Any, topic: str, work: Work, chunk: Any) -> None:
        self.client = client
        self.topic = topic
        self.work = work
        self.chunk = chunk
        self.sent = 0
        self._delivered = count()  # next() is atomic, and clients run callbacks on whichever thread polls

    def take_delivered(self) -> int:
        """Return the number of deliveries after the last; without a counter, flush has raised unless all
        succeeded.
        """
        return self.sent if type(self.client) in UNCOUNTED else next(self._delivered)

    def settled(self, metadata: object, error: object) -> None:
        if error is None:
            next(self._delivered)

    def settled_first(self, error: object, message: object) -> None:
        if error is None:
            next(self._delivered)

    def run(self, deadline: float) -> None:
        send_chunk = SENDS[type(self.client)]
        while not self.sent or time.monotonic() < deadline:
            send_chunk(self)
            self.sent += self.work.records

    async def run_as_task(self, deadline: float) -> None:
        send, settled = self.client.producer.send, self.settled
        while not self.sent or time.monotonic() < deadline:
            for key, value in self.chunk:
                await send(self.topic, value, key, on_delivery=settled)
            self.sent += self.work.records


def _send(sender: Sender) -> None:
    send, settled = sender.client.producer.send, sender.settled
    for key, value in sender.chunk:
        send(sender.topic, value, key, on_delivery=settled)


def _send_many(sender: Sender) -> None:
    for rows in sender.chunk:
        sender.client.producer.send_many(sender.topic, rows)


def _send_batches(sender: Sender) -> None:
    for partition, batch in sender.chunk:
        sender.client.producer.send_batch(sender.topic, partition, batch)


def _send_table(sender: Sender) -> None:
    sender.client.producer.send_table(sender.topic, sender.chunk)


def _produce(sender: Sender) -> None:
    sender.client.produce_all(sender.topic, sender.chunk, sender.settled_first)


SENDS: Mapping[type, Callable[[Sender], None]] = {
    clients.Kbatch: _send,
    producers.KbatchMany: _send_many,
    producers.KbatchBatches: _send_batches,
    producers.KbatchTable: _send_table,
    clients.Confluent: _produce,
}
UNCOUNTED = (producers.KbatchMany, producers.KbatchBatches, producers.KbatchTable)


def run(opened: Sequence[Any], job: Job) -> list[Sender]:
    """Let `senders` of them send for `seconds`, spread evenly over the clients, then flush."""
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
