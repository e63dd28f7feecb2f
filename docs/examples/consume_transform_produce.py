"""Consume, transform, produce: read records from one topic and write them, transformed, to another, exactly
once.

    python docs/examples/consume_transform_produce.py --bootstrap-servers localhost:9092 \\
        --source orders --target shouted --group shouting --name shouting-1

One transaction commits both the written records and the offsets that were read, so you may kill the program
at any moment and start it again. Consumers of the target with isolation.level=read_committed see each record
once, and those of a key in order. You may run several programs, each under its own name. The name is the
transactional.id and the group.instance.id, so a restarted program ends what it left open, and gets its
partitions back at once. That needs the classic protocol of groups: by the other one, the name of a killed
member is taken until its session ends.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Callable

import kbatch

logger = logging.getLogger(__name__)

MOST_RECORDS = 500  # for a transaction
WAIT_SECONDS = 0.2


def transform(value: bytes) -> bytes:
    """Return the transformed value."""
    return value.upper()


class Worker:
    """A consumer and a producer that commit together."""

    def __init__(self, bootstrap_servers: str, source: str, target: str, group: str, name: str) -> None:
        self.source = source
        self.target = target
        self.producer = kbatch.Producer(bootstrap_servers=bootstrap_servers, transactional_id=name)
        self.consumer = kbatch.Consumer(
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            group_instance_id=name,
            group_protocol="classic",
            auto_offset_reset="earliest",
            enable_auto_commit=False,  # the transaction commits the offsets
            isolation_level="read_committed",
            max_poll_records=MOST_RECORDS,
        )

    def run(self, is_over: Callable[[], bool]) -> None:
        """Run until `is_over()`. A fatal error is raised: restart the program."""
        with self.producer, self.consumer:
            until_known(self.producer.init_transactions)  # aborts an open transaction before the first read
            self.consumer.subscribe([self.source])
            while not is_over():
                if polled := self.consumer.poll(WAIT_SECONDS):
                    self.process(polled)

    def process(self, polled: kbatch.Polled) -> None:
        """Transform the records in a transaction; if it can only be aborted, read them again."""
        try:
            self.producer.begin_transaction()
            for record in polled:
                self.producer.send(
                    self.target,
                    None if record.value is None else transform(bytes(record.value)),
                    record.key,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
            self.producer.send_offsets_to_transaction(polled.offsets, self.consumer)
            until_known(self.producer.commit_transaction)
        except kbatch.KafkaError as error:
            if error.fatal:
                raise
            logger.warning("aborted the transaction; its records are read again: %s", error)
            until_known(self.producer.abort_transaction)
            self.rewind(polled)

    def rewind(self, polled: kbatch.Polled) -> None:
        """Seek to the first of the records, on partitions that are still ours."""
        for partition in self.consumer.assignment().intersection(polled.partitions()):
            self.consumer.seek(partition, polled.records(partition)[0].offset)


def until_known(call: Callable[[], None]) -> None:
    """Call a method of the transaction, and again after a time-out, because only that tells its outcome."""
    while True:
        try:
            return call()
        except kbatch.KafkaTimeoutError as error:
            logger.warning("%s", error)


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
    except kbatch.KafkaError as error:
        sys.exit(f"{worker.source}: {error}; start the program again, and it goes on where it was")


if __name__ == "__main__":
    main()
