"""Correct programs of users: mypy --strict, and pyright in its strict mode, must find nothing in them."""

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack, assert_type

import kbatch
from kbatch import (
    Admin,
    AsyncProducer,
    Consumer,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    Record,
    RecordMetadata,
    TopicPartition,
    formats,
)
from kbatch.config import ProducerConfig, read_properties
from kbatch.config.keywords import ProducerKeywords
from kbatch.interceptors import ConsumerInterceptor, Interceptor
from kbatch.testing import Broker

SERVERS = "localhost:9092"


def on_delivery(metadata: RecordMetadata, error: KafkaError | None) -> None:
    if error is not None and error.retriable:
        print(metadata.topic, error.code)


def on_delivery_of_exceptions(metadata: RecordMetadata, error: Exception | None) -> None: ...
def on_delivery_of_anything(metadata: object, error: BaseException | None) -> None: ...
def on_commit(offsets: dict[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None: ...
def on_shared(results: dict[TopicPartition, KafkaError | None]) -> None: ...


class Counted(Interceptor):
    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None: ...


class Noted(ConsumerInterceptor):
    def on_commit(self, offsets: Mapping[TopicPartition, object], error: Exception | None) -> None: ...


def texts(record: Record) -> list[str]:
    """A record that was read has bytes, which need no check for another buffer."""
    return [each.decode() for each in (record.key, record.value, record.headers[0][1]) if each is not None]


# Configuration


def connect(**settings: Unpack[ProducerKeywords]) -> Producer:
    """A function that passes settings on is checked like the client."""
    settings.setdefault("compression_type", "lz4")
    return Producer(**settings)


def configure(path: Path) -> list[Producer]:
    file = read_properties(path)
    return [
        Producer(file),
        Producer({"bootstrap.servers": SERVERS, "linger.ms": 5, **file}, client_id="shop"),
        Producer(bootstrap_servers=["a:9092", "b:9092"], linger_ms="5", acks=1, enable_idempotence=None),
        Producer(
            bootstrap_servers=SERVERS, ssl_truststore_location=path, ssl_context=ssl.create_default_context
        ),
        Producer(
            bootstrap_servers=SERVERS, sasl_oauthbearer_token=lambda: "token", interceptor_classes=[Counted]
        ),
        # the keywords of aiokafka and kafka-python
        Producer(
            bootstrap_servers=SERVERS, sasl_plain_username="u", sasl_plain_password="p", max_batch_size=1
        ),
        connect(bootstrap_servers=SERVERS, compression_type="zstd"),
        Producer(ProducerConfig(bootstrap_servers=SERVERS).settings()),
    ]


# Producers


def send() -> KafkaError | None:
    with Producer(bootstrap_servers=SERVERS) as producer:
        for callback in (on_delivery, on_delivery_of_exceptions, on_delivery_of_anything):
            producer.send("orders", b"v", on_delivery=callback)
        deliveries = producer.send_many("orders", [Record(b"k", b"v"), (b"k", b"v", [("h", b"1")])])
        for done in kbatch.as_completed(deliveries, timeout=5):
            metadata: RecordMetadata = done.result()
            print(metadata.partition, metadata.offset, metadata.timestamp_ms)
        delivery = producer.send("orders", b"v", on_delivery=lambda metadata, error: print(error))
        waited = kbatch.wait(deliveries)
        producer.flush(timeout=5)
        print([each.partition for each in producer.partitions_for("orders")], waited.done)
        return delivery.exception()


def send_in_transactions() -> None:
    with Producer(bootstrap_servers=SERVERS, transactional_id="t") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", "text", key="k", partition=0, timestamp_ms=1_700_000_000_000)


async def send_on_a_loop() -> int:
    async with AsyncProducer(bootstrap_servers=SERVERS) as producer:
        delivery = await producer.send("orders", b"v", headers=[("h", None)])
        sent = producer.try_send("orders", b"v")
        metadata = await delivery
        await asyncio.gather(*await producer.send_many("orders", [(None, b"v")]))
        return metadata.offset if sent is None else (await sent).offset


# Keys and values


@dataclass
class Order:
    id: int
    price: float


def order_of(data: bytes) -> Order:
    return Order(**json.loads(data))


def typed_consumers() -> None:
    """What a client makes of keys and values is known by its deserializers."""
    order = formats.Avro(model=Order, registry=kbatch.SchemaRegistry("http://localhost:8081"))
    with Consumer(
        bootstrap_servers=SERVERS, key_deserializer=formats.Utf8(), value_deserializer=order
    ) as consumer:
        assert_type(consumer, Consumer[str, Order])
        for record in consumer.poll(1.0):
            assert_type(record.key, str)
            assert_type(record.value, Order)
            assert_type(record.raw_value, bytes | None)
        for each in consumer.until_end():
            assert_type(each.value.price, float)
    with Consumer(bootstrap_servers=SERVERS, value_deserializer=order_of) as of_function:
        for record in of_function:
            assert_type(record.value, Order)
    named: Consumer[str, Order | None] = Consumer({"value.deserializer": order, "key.deserializer": "utf8"})
    assert_type(named.poll()[0].value, Order | None)
    assert_type(Consumer[str, int](bootstrap_servers=SERVERS), Consumer[str, int])


async def typed_tasks() -> None:
    async with kbatch.AsyncConsumer(
        bootstrap_servers=SERVERS, value_deserializer=formats.Json(Order)
    ) as consumer:
        async for record in consumer:
            assert_type(record.value, Order)
        polled = await consumer.poll(1.0)
        assert_type(polled.records(("orders", 0))[0].value, Order)


# Consumers


def consume() -> list[str]:
    found: list[str] = []
    with Consumer(bootstrap_servers=SERVERS, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.assign([("orders", each.partition) for each in consumer.partitions_for("orders")])
        for record in consumer.poll(1.0):
            value: bytes | None = record.value
            found += [*texts(record), record.value.decode() if record.value else "", str(value)]
            offset: int = record.offset + 1
            consumer.seek((record.topic, record.partition), offset)
        consumer.commit_async(on_commit=on_commit)
        found += [str(len(record.value or b"")) for record in consumer]
        lag = [consumer.lag(partition) for partition in consumer.assignment()]
    return [*found, *map(str, lag)]


def share() -> None:
    with kbatch.ShareConsumer(bootstrap_servers=SERVERS, group_id="workers", max_poll_records=9) as consumer:
        consumer.subscribe(["orders"])
        for record in consumer.poll(1.0):
            consumer.acknowledge(record, "accept" if record.value else kbatch.AcknowledgeType.REJECT)
        consumer.commit_async(on_commit=on_shared)


async def consume_on_a_loop() -> list[str]:
    async with kbatch.AsyncConsumer(bootstrap_servers=SERVERS) as consumer:
        return [record.value.decode() async for record in consumer if record.value is not None]


# Processing


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


# Readers, administration, batches, tests


def read() -> list[bytes | None]:
    with kbatch.TopicReader(bootstrap_servers=SERVERS, isolation_level="read_committed") as reader:
        print(reader.topics(), reader.describe(["orders"])["orders"].partition_count)
        return [record.value for record in reader.read_records(reader.ranges("orders").ranges)]


def read_typed() -> list[Order]:
    with kbatch.TopicReader(bootstrap_servers=SERVERS, value_deserializer=formats.Json(Order)) as reader:
        assert_type(reader, kbatch.TopicReader[Any, Order])
        return [record.value for record in reader.read_records(reader.ranges("orders").ranges)]


def administer() -> int:
    with Admin(bootstrap_servers=SERVERS, default_api_timeout_ms=5_000) as admin:
        admin.topics.create("orders", partitions=6, configs={"retention.ms": -1})
        print([listing.name for listing in admin.topics.list()])
        return len(admin.topics.describe("orders").partitions)


def decode(data: bytes) -> list[str]:
    made: bytes = kbatch.encode([Record(bytearray(b"k"), memoryview(b"v")), (b"k", b"v")])
    with Broker() as broker:
        kept = [record.value for record in broker.records("orders")]
    assert made and kept
    return [text for batch in kbatch.decode(data) for record in batch for text in texts(record)]
