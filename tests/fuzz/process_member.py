"""A member of the group of `process_kills`: it processes records by `process()`, until SIGTERM.

What its function has done is a line of a file, which is written before the function returns. Records that
fail become dead letters; with `--failing retries` they go to retry topics before, and their line is written
when they fail, another one when they come from a retry topic.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import threading
import time
from contextlib import suppress
from typing import Any

import kbatch
from kbatch import DeadLetter, Retry, RetryTopics
from kbatch.errors import ConsumerClosedError

TOPIC, DEAD, GROUP = "work", "work.dlq", "workers"
BAD, SLOW = b"bad", b"slow"
FLAKY = b"flaky"  # fails until it comes from a retry topic
RETRY_DELAYS = (0.05, 0.2)
RETRY_TOPICS = (f"{TOPIC}.retry.1", f"{TOPIC}.retry.2")
SESSION_MS = 6_000  # the shortest that Kafka allows
MOST_SECONDS, LONG_SECONDS = 0.02, 0.5
WORKERS = 16
OPTIONS: dict[str, Any] = {"commit_interval": 0.05, "revoke_timeout": 1.0}
# With retry topics a key waits for so long that records behind it are parked.
RETRY = {"letters": Retry(attempts=3, backoff=0.002), "retries": Retry(attempts=2, backoff=0.3)}


class Work:
    """What the function does: it takes its time, fails for some records, and writes a line for each."""

    def __init__(self, path: str, name: str, failing: str) -> None:
        self.failing = failing
        self._lines = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._random = random.Random(name)

    def seconds(self, record: Any) -> float:
        return LONG_SECONDS if record.value == SLOW else self._random.random() * MOST_SECONDS

    def finish(self, record: Any) -> None:
        """Raise for a bad record; write the line of another."""
        is_first = record.topic == TOPIC
        if record.value == BAD or (record.value == FLAKY and is_first):
            if self.failing == "retries" and is_first:
                self.write(record)
            raise ValueError("bad")
        self.write(record)

    def write(self, record: Any) -> None:
        """Write where a record is; of one from a retry topic where it was first, after "again"."""
        partition, offset, word = record.partition, record.offset, b""
        if record.topic != TOPIC:
            headers = dict(record.headers)
            partition, offset = int(headers["__retry.partition"]), int(headers["__retry.offset"])
            word = b"again "
        os.write(self._lines, b"%s%d %d %s\n" % (word, partition, offset, record.key or b"-"))

    def process(self, record: Any) -> None:
        time.sleep(self.seconds(record))
        self.finish(record)

    async def process_in_task(self, record: Any) -> None:
        await asyncio.sleep(self.seconds(record))
        self.finish(record)


def settings_of(servers: str, name: str, protocol: str) -> dict[str, object]:
    own: dict[str, object] = {"group.protocol": protocol}
    if protocol == "classic":
        own |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": SESSION_MS // 12}
        own |= {"partition.assignment.strategy": "cooperative-sticky"}
    return {
        "bootstrap.servers": servers,
        "client.id": name,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "fetch.max.wait.ms": 50,
        **own,
    }


def run(settings: dict[str, object], work: Work) -> None:
    """Process on threads, until SIGTERM."""
    servers = str(settings["bootstrap.servers"])
    with kbatch.Producer(bootstrap_servers=servers) as producer, kbatch.Consumer(settings) as consumer:
        dead = DeadLetter(producer, DEAD)

        def letter(record: Any, error: Exception) -> None:
            dead(record, error)
            work.write(record)

        retries = RetryTopics(producer, RETRY_DELAYS, dead_letter=dead)

        def close(*_: object) -> None:
            threading.Thread(target=consumer.close).start()

        signal.signal(signal.SIGTERM, close)
        consumer.subscribe([TOPIC])
        consumer.process(
            work.process,
            workers=WORKERS,
            on_failure=letter if work.failing == "letters" else retries,
            retry=RETRY[work.failing],
            **OPTIONS,
        )


async def run_in_tasks(settings: dict[str, object], work: Work) -> None:
    """Process in tasks, until SIGTERM."""
    servers = str(settings["bootstrap.servers"])
    async with (
        kbatch.AsyncProducer(bootstrap_servers=servers) as producer,
        kbatch.AsyncConsumer(settings) as consumer,
    ):
        dead = DeadLetter(producer, DEAD)

        async def letter(record: Any, error: Exception) -> None:
            sending = dead(record, error)
            assert sending is not None
            await sending
            work.write(record)

        retries = RetryTopics(producer, RETRY_DELAYS, dead_letter=dead)
        consumer.subscribe([TOPIC])
        processing = asyncio.ensure_future(
            consumer.process(
                work.process_in_task,
                tasks=4 * WORKERS,
                on_failure=letter if work.failing == "letters" else retries,
                retry=RETRY[work.failing],
                **OPTIONS,
            )
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, processing.cancel)
        with suppress(asyncio.CancelledError, ConsumerClosedError):
            await processing


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("servers", "path", "name", "protocol", "kind", "failing"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    settings = settings_of(given.servers, given.name, given.protocol)
    work = Work(given.path, given.name, given.failing)
    if given.kind == "tasks":
        asyncio.run(run_in_tasks(settings, work))
    else:
        run(settings, work)


if __name__ == "__main__":
    main()
