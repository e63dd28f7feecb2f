"""Contestants that follow a topic record by record: the job `follow` of driver.py.

Each record's value begins with its number and with the time at which it was sent, as two big-endian 64-bit
integers. The time is of CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbatch.bench.settings import Settings, access_for_librdkafka

STAMP = struct.Struct(">qq")


class Delays:
    """The time from sending to receiving each of `records` records; counts those that came twice."""

    def __init__(self, records: int) -> None:
        self.delays_ns = [0] * records
        self.missing = records
        self.repeated = 0

    def note(self, value: bytes) -> bool:
        """Note a record that was received now; return True if it was the last one that was missing."""
        now_ns = time.perf_counter_ns()
        number, sent_ns = STAMP.unpack_from(value)
        if self.delays_ns[number]:
            self.repeated += 1
            return False
        self.delays_ns[number] = now_ns - sent_ns
        self.missing -= 1
        return self.missing == 0


def _kbatch(settings: Settings, topic: str, starts: Sequence[int], note: Callable[[Any], bool]) -> None:
    from kbatch.consumer.threads import Consumer
    from kbatch.records import TopicPartition

    with Consumer(dict(settings)) as consumer:
        consumer.assign({TopicPartition(topic, number): start for number, start in enumerate(starts)})
        for record in consumer:
            if note(record.value):
                return


def _kbatch_async(settings: Settings, topic: str, starts: Sequence[int], note: Callable[[Any], bool]) -> None:
    from kbatch.consumer.event_loop import AsyncConsumer
    from kbatch.records import TopicPartition

    async def follow() -> None:
        async with AsyncConsumer(dict(settings)) as consumer:
            consumer.assign({TopicPartition(topic, number): start for number, start in enumerate(starts)})
            async for record in consumer:
                if note(record.value):
                    return

    asyncio.run(follow())


def _confluent(settings: Settings, topic: str, starts: Sequence[int], note: Callable[[Any], bool]) -> None:
    from confluent_kafka import Consumer, TopicPartition

    access = access_for_librdkafka(settings)
    consumer = Consumer({**access, "group.id": "kbatch-bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, start) for number, start in enumerate(starts)])
    is_over = False
    while not is_over:
        message = consumer.poll(1.0)
        is_over = message is not None and message.error() is None and note(message.value())
    consumer.close()


def _aiokafka(settings: Settings, topic: str, starts: Sequence[int], note: Callable[[Any], bool]) -> None:
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


@dataclass(frozen=True)
class Follower:
    """A row: `needs` is a module; `follow` ends when `note(value)` returns True."""

    follow: Callable[[Settings, str, Sequence[int], Callable[[Any], bool]], None]
    needs: str
    note: str


FOLLOWERS: Mapping[str, Follower] = {
    "kbatch Consumer": Follower(_kbatch, "kbatch", "for record in consumer"),
    "kbatch AsyncConsumer": Follower(_kbatch_async, "kbatch", "async for record in consumer"),
    "confluent-kafka": Follower(_confluent, "confluent_kafka", "poll(1.0)"),
    "aiokafka": Follower(_aiokafka, "aiokafka", "async for record in consumer"),
}
