"""The target of the flights: the embedded broker, or the Kafka in the environment variable KAFKA."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import kbatch
import kbatch.testing

# A consumer without a record for this long gives up.
PATIENCE_SECONDS = 30.0


class Received(NamedTuple):
    """A record that was read back."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class Target(NamedTuple):
    """A cluster with an empty topic; `read` yields everything in it, each partition in order."""

    name: str
    bootstrap_servers: str
    topic: str
    read: Callable[[], Iterator[Received]]


@contextmanager
def target(topic: str, partitions: int) -> Iterator[Target]:
    """Yield the topic in the broker of this process, or a new one with a similar name in the Kafka of KAFKA,
    where it stays. confluent-kafka, a client that shares nothing with kbatch, reads it there.
    """
    address = os.environ.get("KAFKA")
    if address:
        yield _outside(address, f"kbatch-{topic}-{secrets.token_hex(4)}", partitions)
        return
    with kbatch.testing.Broker(topics={topic: partitions}) as broker:

        def read() -> Iterator[Received]:
            for partition in range(partitions):
                for each in broker.records(topic, partition):
                    yield Received(
                        partition, each.offset, each.key, each.value, tuple(each.headers), each.timestamp_ms
                    )

        yield Target("the embedded broker", broker.bootstrap_servers, topic, read)


def check() -> None:
    """End the program if KAFKA is set but the client to read back with is missing."""
    if os.environ.get("KAFKA"):
        try:
            import confluent_kafka  # noqa: F401
        except ImportError:
            sys.exit("KAFKA is given, and what reads back from it is missing: pip install confluent-kafka")


def _outside(address: str, topic: str, partitions: int) -> Target:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    client = {"bootstrap.servers": address}
    try:
        with kbatch.Admin(client) as admin:
            admin.topics.create(topic, partitions=partitions, timeout=PATIENCE_SECONDS)
    except kbatch.KafkaError as error:
        sys.exit(f"the topic {topic} cannot be made in Kafka at {address}: {error}")

    def read() -> Iterator[Received]:
        settings = {"group.id": topic, "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({**client, **settings, "isolation.level": "read_committed"})
        try:
            places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
            consumer.assign(places)
            open_partitions = set(range(partitions))
            deadline = time.monotonic() + PATIENCE_SECONDS
            while open_partitions:
                messages = consumer.consume(10_000, 1.0)
                for message in messages:
                    if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                        open_partitions.discard(message.partition())
                        continue
                    if message.error():
                        raise RuntimeError(f"reading {topic}: {message.error()}")
                    yield Received(
                        message.partition(),
                        message.offset(),
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                        message.timestamp()[1],
                    )
                if messages:
                    deadline = time.monotonic() + PATIENCE_SECONDS
                elif time.monotonic() > deadline:
                    raise TimeoutError(f"partitions {sorted(open_partitions)} of {topic} do not end")
        finally:
            consumer.close()

    return Target(f"Kafka at {address}", address, topic, read)
