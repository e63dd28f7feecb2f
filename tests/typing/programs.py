"""Correct programs of users: mypy --strict (`make lint`) must find nothing in them. They never run."""

from collections.abc import Mapping

import kbatch
from kbatch import Consumer, OffsetAndMetadata, Producer, Record, RecordMetadata, TopicPartition
from kbatch.interceptors import ConsumerInterceptor
from kbatch.testing import Broker

SERVERS = "localhost:9092"


def on_delivery(metadata: RecordMetadata, error: Exception | None) -> None: ...
def on_delivery_of_anything(metadata: object, error: BaseException | None) -> None: ...
def on_commit(offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None: ...


class Noted(ConsumerInterceptor):
    def on_commit(self, offsets: Mapping[TopicPartition, object], error: Exception | None) -> None: ...


def texts(record: Record) -> list[str]:
    """A record that was read has bytes, which need no check for another buffer."""
    return [each.decode() for each in (record.key, record.value, record.headers[0][1]) if each is not None]


def send() -> Exception | None:
    with Producer(bootstrap_servers=SERVERS) as producer:
        for callback in (on_delivery, on_delivery_of_anything):
            producer.send("orders", b"v", on_delivery=callback)
        delivery = producer.send("orders", b"v", on_delivery=lambda metadata, error: print(error))
        return delivery.exception()


def consume() -> list[str]:
    found = []
    with Consumer(bootstrap_servers=SERVERS, group_id="readers") as consumer:
        consumer.assign([("orders", each.partition) for each in consumer.partitions_for("orders")])
        for record in consumer.poll(1.0):
            value: bytes | None = record.value
            found += [*texts(record), record.value.decode() if record.value else "", str(value)]
        consumer.commit_async(on_commit=on_commit)
        found += [str(len(record.value or b"")) for record in consumer]
    return found


async def consume_on_a_loop() -> list[str]:
    async with kbatch.AsyncConsumer(bootstrap_servers=SERVERS) as consumer:
        return [record.value.decode() async for record in consumer if record.value is not None]


def decode(data: bytes) -> list[str]:
    made = kbatch.encode([Record(bytearray(b"k"), memoryview(b"v")), (b"k", b"v")])
    with Broker() as broker:
        kept = [record.value for record in broker.records("orders")]
    assert made and kept
    return [text for batch in kbatch.decode(data) for record in batch for text in texts(record)]


def charge(record: kbatch.ConsumerRecord) -> None: ...
def give_up(record: kbatch.ConsumerRecord, error: Exception) -> None: ...


def process() -> int:
    with Producer(bootstrap_servers=SERVERS) as producer, Consumer(bootstrap_servers=SERVERS) as consumer:
        consumer.process(charge, executor="processes", on_failure=give_up, stall_timeout=None)
        dead = kbatch.DeadLetter(producer, "{topic}.dlq")
        return consumer.process(
            charge, workers=4, retry=kbatch.Retry(attempts=None), on_failure=dead
        ).finished


async def process_in_tasks(record: kbatch.ConsumerRecord) -> None:
    async with (
        kbatch.AsyncProducer(bootstrap_servers=SERVERS) as producer,
        kbatch.AsyncConsumer(bootstrap_servers=SERVERS) as consumer,
    ):
        dead = kbatch.DeadLetter(producer)
        await consumer.process(process_in_tasks, tasks=9, order="partition", on_failure=dead)
