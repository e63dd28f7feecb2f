"""Consume, transform, produce: what is read from one topic is written, transformed, to another, exactly once.

    python docs/examples/consume_transform_produce.py --bootstrap-servers localhost:9092 \\
        --source orders --target shouted --group shouting --name shouting-1

confluent-kafka reads, kbatch writes. What is written, and how far was read, is committed as one transaction,
so that the program may be killed at any moment and started again: consumers of the target with
isolation.level=read_committed see each record once, and those of a key in order. Several may run, each under
a name of its own, which it keeps: it is the transactional.id and the group.instance.id, by which one that
starts again ends what it left open, and gets its partitions back at once.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Position

import kbatch

logger = logging.getLogger(__name__)

MOST_RECORDS = 500  # of a transaction
WAIT_SECONDS = 0.2
Place = tuple[str, int]


def transform(value: bytes) -> bytes:
    """What a record becomes."""
    return value.upper()


class Worker:
    """A consumer and a producer that go on together."""

    def __init__(self, bootstrap_servers: str, source: str, target: str, group: str, name: str) -> None:
        self.source = source
        self.target = target
        self.producer = kbatch.Producer(bootstrap_servers=bootstrap_servers, transactional_id=name)
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "group.instance.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,  # offsets are the transaction's
                "isolation.level": "read_committed",
            }
        )

    def run(self, is_over: Callable[[], bool]) -> None:
        """Until `is_over()`. An error that is fatal comes out: starting again is what helps."""
        with self.producer:
            until_known(self.producer.init_transactions)  # what was left open is aborted before we read on
            self.consumer.subscribe([self.source])
            try:
                while not is_over():
                    found = self.consumer.consume(MOST_RECORDS, WAIT_SECONDS)
                    if records := [each for each in found if is_record(each)]:
                        self.process(records)
            finally:
                self.consumer.close()

    def process(self, records: list[Any]) -> None:
        """Transforms the records in a transaction; if that can only be aborted they are read again."""
        try:
            self.producer.begin_transaction()
            for record in records:
                value = record.value()
                self.producer.send(
                    self.target,
                    None if value is None else transform(value),
                    record.key(),
                    headers=record.headers(),
                    timestamp_ms=record.timestamp()[1],
                )
            group = self.consumer.consumer_group_metadata()
            self.producer.send_offsets_to_transaction(next_offsets(records), group)
            until_known(self.producer.commit_transaction)
        except kbatch.KafkaError as error:
            if error.fatal:
                raise
            logger.warning("the transaction is aborted, and its records are read again: %s", error)
            until_known(self.producer.abort_transaction)
            self.rewind(records)

    def rewind(self, records: list[Any]) -> None:
        """Goes back to the first of the records, where the partition is still ours."""
        assigned = {(each.topic, each.partition) for each in self.consumer.assignment()}
        firsts = {place_of(record): record.offset() for record in reversed(records)}
        for (topic, partition), offset in firsts.items():
            if (topic, partition) in assigned:
                self.consumer.seek(Position(topic, partition, offset))


def until_known(call: Callable[[], None]) -> None:
    """Makes a call of a transaction, and again where it timed out, since only that says what came of it."""
    while True:
        try:
            return call()
        except kbatch.KafkaTimeoutError as error:
            logger.warning("%s", error)


def is_record(message: Any) -> bool:
    """Not something that the consumer has to say, and deals with itself."""
    if message.error() is not None:
        logger.warning("the consumer says: %s", message.error())
    return message.error() is None


def next_offsets(records: list[Any]) -> dict[kbatch.TopicPartition, kbatch.OffsetAndMetadata]:
    """Where to read on behind the records."""
    return {
        kbatch.TopicPartition(*place_of(record)): kbatch.OffsetAndMetadata(record.offset() + 1)
        for record in records
    }


def place_of(record: Any) -> Place:
    return record.topic(), record.partition()


def main(worker_class: type[Worker] = Worker) -> None:
    parser = argparse.ArgumentParser(description="Reads, transforms and writes records, exactly once.")
    for name in ("bootstrap-servers", "source", "target", "group", "name"):
        parser.add_argument(f"--{name}", required=True)
    worker = worker_class(**vars(parser.parse_args()))
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopped.append(number))
    try:
        worker.run(lambda: bool(stopped))
    except (kbatch.KafkaError, KafkaException) as error:
        sys.exit(f"{worker.source}: {error}; start the program again, and it goes on where it was")


if __name__ == "__main__":
    main()
