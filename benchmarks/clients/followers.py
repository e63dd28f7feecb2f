"""Contestants that follow a topic record by record: the job `follow` of driver.py.

Each record's value begins with its number and with the time at which it was sent, as two big-endian 64-bit
integers. The time is of CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbatch.bench.driver import Answer
from kbatch.bench.settings import Settings, access_for_librdkafka

STAMP = struct.Struct(">qq")


class Delays:
    """The time from sending to receiving each of `records` records; counts those that came twice. `marks` has
    numbers of records with functions to call after so many.
    """

    def __init__(self, records: int, marks: Iterable[tuple[int, Callable[[], object]]]) -> None:
        self.delays_ns = [0] * records
        self.missing = records
        self.repeated = 0
        self._marks: dict[int, list[Callable[[], object]]] = {}
        for count, mark in marks:
            self._marks.setdefault(records - count, []).append(mark)

    def note(self, value: bytes) -> bool:
        """Note a record that was received now; return True if it was the last one that was missing."""
        now_ns = time.perf_counter_ns()
        number, sent_ns = STAMP.unpack_from(value)
        if self.delays_ns[number]:
            self.repeated += 1
            return False
        self.delays_ns[number] = now_ns - sent_ns
        self.missing -= 1
        for mark in self._marks.get(self.missing, ()):
            mark()
        return self.missing == 0


Note = Callable[[Any], bool]


def _kbatch(follow: Callable[[Any, Note], None]) -> Callable[[Settings, str, Sequence[int], Note], Answer]:
    """Return a follower with a Consumer; `follow(consumer, note)` reads on until `note` returns True."""

    def run(settings: Settings, topic: str, starts: Sequence[int], note: Note) -> Answer:
        from kbatch.consumer.threads import Consumer
        from kbatch.records import TopicPartition

        with Consumer(dict(settings)) as consumer:
            consumer.assign({TopicPartition(topic, number): start for number, start in enumerate(starts)})
            follow(consumer, note)
            return _fetches(consumer)

    return run


def _iterated(consumer: Any, note: Note) -> None:
    for record in consumer:
        if note(record.value):
            return


def _polled(consumer: Any, note: Note) -> None:
    is_over = False
    while not is_over:
        for record in consumer.poll(1.0):
            is_over = note(record.value)


def _polled_tables(consumer: Any, note: Note) -> None:
    is_over = False
    while not is_over:
        for value in consumer.poll_table(1.0, columns=["value"])["value"].to_pylist():
            is_over = note(value)


def _kbatch_async(settings: Settings, topic: str, starts: Sequence[int], note: Note) -> Answer:
    from kbatch.consumer.event_loop import AsyncConsumer
    from kbatch.records import TopicPartition

    async def follow() -> Answer:
        async with AsyncConsumer(dict(settings)) as consumer:
            consumer.assign({TopicPartition(topic, number): start for number, start in enumerate(starts)})
            async for record in consumer:
                if note(record.value):
                    break
            return _fetches(consumer)

    return asyncio.run(follow())


def _fetches(consumer: Any) -> Answer:
    """Return the number of answers to Fetch requests."""
    return {"fetches": next(each for key, each in consumer.metrics().items() if key.name == "fetch-total")}


def _confluent(settings: Settings, topic: str, starts: Sequence[int], note: Note) -> Answer:
    from confluent_kafka import Consumer, TopicPartition

    access = access_for_librdkafka(settings)
    consumer = Consumer({**access, "group.id": "kbatch-bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, start) for number, start in enumerate(starts)])
    is_over = False
    while not is_over:
        message = consumer.poll(1.0)
        is_over = message is not None and message.error() is None and note(message.value())
    consumer.close()
    return {}


def _aiokafka(settings: Settings, topic: str, starts: Sequence[int], note: Note) -> Answer:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def follow() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=settings["bootstrap.servers"], enable_auto_commit=False)
        await consumer.start()
        places = {TopicPartition(topic, number): start for number, start in enumerate(starts)}
        consumer.assign(list(places))
        for place, start in places.items():
            consumer.seek(place, start)
        async for record in consumer:
            if note(record.value):
                break
        await consumer.stop()

    asyncio.run(follow())
    return {}


@dataclass(frozen=True)
class Follower:
    """A row: `needs` is a module; `follow` ends when `note(value)` returns True, and returns more figures."""

    follow: Callable[[Settings, str, Sequence[int], Note], Answer]
    needs: str
    note: str


FOLLOWERS: Mapping[str, Follower] = {
    "kbatch Consumer": Follower(_kbatch(_iterated), "kbatch", "for record in consumer"),
    "kbatch Consumer, poll": Follower(_kbatch(_polled), "kbatch", "poll(1.0)"),
    "kbatch Consumer, poll_table": Follower(_kbatch(_polled_tables), "pyarrow", "poll_table(1.0), values"),
    "kbatch AsyncConsumer": Follower(_kbatch_async, "kbatch", "async for record in consumer"),
    "confluent-kafka": Follower(_confluent, "confluent_kafka", "poll(1.0)"),
    "aiokafka": Follower(_aiokafka, "aiokafka", "async for record in consumer"),
}
