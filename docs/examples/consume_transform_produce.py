"""Consume, transform, produce: read records from one topic and write them, transformed, to another, exactly
once.

    python docs/examples/consume_transform_produce.py --bootstrap-servers localhost:9092 \\
        --source orders --target shouted --group shouting --name shouting-1

confluent-kafka reads, kbatch writes. One transaction commits both the written records and the offsets that
were read, so you may kill the program at any moment and start it again. Consumers of the target with
isolation.level=read_committed see each record once, and those of a key in order. You may run several
programs, each under its own name. The name is the transactional.id and the group.instance.id, so a restarted
program ends what it left open, and gets its partitions back at once.
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

MOST_RECORDS = 500  # for a transaction
WAIT_SECONDS = 0.2
Place = tuple[str, int]


def transform(value: bytes) -> bytes:
    """Return the transformed value."""
    return value.upper()


class Worker:
    """A consumer and a producer that commit together."""

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
                "enable.auto.commit": False,  # the transaction commits the offsets
                "isolation.level": "read_committed",
            }
        )

    def run(self, is_over: Callable[[], bool]) -> None:
        """Run until `is_over()`. A fatal error is raised: restart the program."""
        with self.producer:
            until_known(self.producer.init_transactions)  # aborts an open transaction before the first read
            self.consumer.subscribe([self.source])
            try:
                while not is_over():
                    found = self.consumer.consume(MOST_RECORDS, WAIT_SECONDS)
                    if records := [each for each in found if is_record(each)]:
                        self.process(records)
            finally:
                self.consumer.close()

    def process(self, records: list[Any]) -> None:
        """Transform the records in a transaction; if it can only be aborted, read them again."""
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
            logger.warning("aborted the transaction; its records are read again: %s", error)
            until_known(self.producer.abort_transaction)
            self.rewind(records)

    def rewind(self, records: list[Any]) -> None:
        """Seek to the first of the records, on partitions that are still ours."""
        assigned = {(each.topic, each.partition) for each in self.consumer.assignment()}
        firsts = {place_of(record): record.offset() for record in reversed(records)}
        for (topic, partition), offset in firsts.items():
            if (topic, partition) in assigned:
                self.consumer.seek(Position(topic, partition, offset))


def until_known(call: Callable[[], None]) -> None:
    """Call a method of the transaction, and again after a time-out, because only that tells its outcome."""
    while True:
        try:
            return call()
        except kbatch.KafkaTimeoutError as error:
            logger.warning("%s", error)


def is_record(message: Any) -> bool:
    """Return True unless the consumer handles the error itself."""
    if message.error() is not None:
        logger.warning("the consumer says: %s", message.error())
    return message.error() is None


def next_offsets(records: list[Any]) -> dict[kbatch.TopicPartition, kbatch.OffsetAndMetadata]:
    """Return the offsets after the records."""
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
