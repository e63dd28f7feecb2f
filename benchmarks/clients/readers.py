"""Contestants that read a topic from its beginning: the job `read` of driver.py.

Each reads all partitions up to a number of records, without a group. What it makes of a record is its usual
form: rows of a table, or an object with key and value, both of which are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from benchmarks.clients import free_threads
from kbatch.bench.settings import Settings, access_for_librdkafka

# Records a call, for calls that return many. The memory of 10,000 is mapped and cleared anew for each call,
# which costs every client more than it saves in calls.
CHUNK_RECORDS = 1_000
MASK = 2**64 - 1

# Yields (keys, values) of records, in pieces.
Pieces = Iterator[tuple[Iterable[bytes | None], Iterable[bytes | None]]]


@dataclass(frozen=True)
class Reader:
    """A row: `needs` is a module; `share` is its fraction of the records, less for slow ones.

    `read(settings, topic, partitions, records)` yields what one call returned: its number of records, and a
    function that returns their keys and values.
    """

    read: Callable[[Settings, str, int, int], Iterator[tuple[int, Callable[[], Any]]]]
    needs: str
    share: float = 1.0
    note: str = ""


def _kbatch_table(settings: Settings, topic: str, partitions: int, records: int) -> Iterator[Any]:
    from kbatch.consumer.reading import read_table

    table = read_table(topic, columns=("key", "value"), config=dict(settings))
    yield table.num_rows, lambda: (table["key"].to_pylist(), table["value"].to_pylist())


def _kbatch_stream(settings: Settings, topic: str, partitions: int, records: int) -> Iterator[Any]:
    from kbatch.consumer.reading import scan_topic

    for batch in scan_topic(topic, columns=("key", "value"), config=dict(settings)):
        yield batch.num_rows, lambda batch=batch: (batch["key"].to_pylist(), batch["value"].to_pylist())


def _kbatch_records(settings: Settings, topic: str, partitions: int, records: int) -> Iterator[Any]:
    from kbatch.consumer.topic_reader import TopicReader
    from kbatch.records import TopicPartition

    with TopicReader(dict(settings)) as reader:
        ends = reader.offsets(topic, "latest")
        ranges = {TopicPartition(topic, number): (0, end) for number, end in ends.items()}
        reading = reader.read_records(ranges)
        while found := list(islice(reading, CHUNK_RECORDS)):
            keys, values = [record.key for record in found], [record.value for record in found]
            yield len(found), lambda keys=keys, values=values: (keys, values)


def _consumer(
    pieces: Callable[[Any, int], Iterator[tuple[int, Callable[[], Any]]]],
) -> Callable[..., Iterator[Any]]:
    """Return a reader of a Consumer with assigned partitions; `pieces(consumer, records)` reads on."""

    def read(settings: Settings, topic: str, partitions: int, records: int) -> Iterator[Any]:
        from kbatch.consumer.threads import Consumer
        from kbatch.records import TopicPartition

        with Consumer(dict(settings)) as consumer:
            consumer.assign({TopicPartition(topic, number): "beginning" for number in range(partitions)})
            while records > 0:
                for count, contents in pieces(consumer, records):
                    records -= count
                    yield count, contents

    return read


def _iterated(consumer: Any, records: int) -> Iterator[Any]:
    reading = iter(consumer)
    while records > 0 and (found := list(islice(reading, min(CHUNK_RECORDS, records)))):
        keys, values = [record.key for record in found], [record.value for record in found]
        records -= len(found)
        yield len(found), lambda keys=keys, values=values: (keys, values)


def _polled(consumer: Any, records: int) -> Iterator[Any]:
    found = consumer.poll(1.0, max_records=CHUNK_RECORDS)
    keys, values = [record.key for record in found], [record.value for record in found]
    yield len(found), lambda: (keys, values)


def _polled_tables(consumer: Any, records: int) -> Iterator[Any]:
    table = consumer.poll_table(1.0, columns=["key", "value"])
    yield table.num_rows, lambda: (table["key"].to_pylist(), table["value"].to_pylist())


def _confluent(tuned: Mapping[str, object]) -> Callable[..., Iterator[Any]]:
    def read(settings: Settings, topic: str, partitions: int, records: int) -> Iterator[Any]:
        from confluent_kafka import Consumer, Message, TopicPartition

        access = access_for_librdkafka(settings)
        consumer = Consumer({**access, "group.id": "kbatch-bench", "enable.auto.commit": False, **tuned})
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while records > 0:
            found = consumer.consume(CHUNK_RECORDS, timeout=1.0)
            keys, values = list(map(Message.key, found)), list(map(Message.value, found))
            records -= len(found)
            yield len(found), lambda keys=keys, values=values: (keys, values)
        consumer.close()

    return read


def _aiokafka(settings: Settings, topic: str, partitions: int, records: int) -> Iterator[Any]:
    import asyncio

    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def opened() -> Any:
        consumer = AIOKafkaConsumer(bootstrap_servers=settings["bootstrap.servers"], enable_auto_commit=False)
        await consumer.start()
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        await consumer.seek_to_beginning()
        return consumer

    with asyncio.Runner() as runner:
        consumer = runner.run(opened())
        while records > 0:
            polled = runner.run(consumer.getmany(timeout_ms=1000, max_records=CHUNK_RECORDS))
            found = [record for each in polled.values() for record in each]
            keys, values = [record.key for record in found], [record.value for record in found]
            records -= len(found)
            yield len(found), lambda keys=keys, values=values: (keys, values)
        runner.run(consumer.stop())


def _kafka_python(settings: Settings, topic: str, partitions: int, records: int) -> Iterator[Any]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=settings["bootstrap.servers"], enable_auto_commit=False)
    places = [TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    while records > 0:
        polled = consumer.poll(timeout_ms=1000, max_records=CHUNK_RECORDS)
        found = [record for each in polled.values() for record in each]
        keys, values = [record.key for record in found], [record.value for record in found]
        records -= len(found)
        yield len(found), lambda keys=keys, values=values: (keys, values)
    consumer.close()


READERS: dict[str, Reader] = {
    "kbatch read_table": Reader(_kbatch_table, "pyarrow", 1.0, "one table of key and value"),
    "kbatch scan_topic": Reader(_kbatch_stream, "pyarrow", 1.0, "record batches of key and value"),
    "kbatch records": Reader(_kbatch_records, "kbatch", 1.0, "Record objects, key and value read"),
    "kbatch Consumer": Reader(_consumer(_iterated), "kbatch", 1.0, "for record in consumer"),
    "kbatch Consumer, poll": Reader(_consumer(_polled), "kbatch", 1.0, "poll(max_records=1000)"),
    "kbatch Consumer, poll_table": Reader(_consumer(_polled_tables), "pyarrow", 1.0, "key and value"),
    "confluent-kafka": Reader(_confluent({}), "confluent_kafka", 0.2, "consume(1000), its defaults"),
    "confluent-kafka, tuned": Reader(
        _confluent({"fetch.queue.backoff.ms": 10}),
        "confluent_kafka",
        0.5,
        "consume(1000), fetch.queue.backoff.ms=10",
    ),
    "aiokafka": Reader(_aiokafka, "aiokafka", 0.1, "getmany(1000)"),
    "kafka-python": Reader(_kafka_python, "kafka", 0.02, "poll(1000)"),
}
READERS |= {
    free: READERS[name]
    for name in ("kbatch read_table", "kbatch records")
    for free in free_threads.both(name)
}


def tally(found: Iterable[tuple[int, Callable[[], Any]]], *, verifies: bool) -> tuple[int, int]:
    """Return the number of records, and the sum of their hashes in any order if `verifies`."""
    count = digest = 0
    for records, contents in found:
        count += records
        if verifies:
            digest = (digest + digest_of(*contents())) & MASK
    return count, digest


def digest_of(keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> int:
    """Return the sum of the records' hashes modulo 2**64: the key's CRC-32 times 2**32, plus the value's."""
    pairs = zip(keys, values, strict=True)
    return sum((zlib.crc32(key or b"") << 32) + zlib.crc32(value or b"") for key, value in pairs) & MASK
