"""The outcomes that a producer reports, compared with the log as another client reads it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kbatch import KafkaError, Producer, RecordMetadata
from tests.support.patience import HANG_SECONDS

READ_SECONDS = HANG_SECONDS


class Read(NamedTuple):
    """A record as librdkafka read it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp_ms: int


def read_all(bootstrap_servers: str, topic: str, partitions: int) -> list[list[Read]]:
    """Return all records of a topic, by partition; by librdkafka, which checks the CRC of each batch."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"ledger-{topic}",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
            "isolation.level": "read_uncommitted",
        }
    )
    records: list[list[Read]] = [[] for _ in range(partitions)]
    try:
        places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        ends = [consumer.get_watermark_offsets(place, timeout=READ_SECONDS)[1] for place in places]
        consumer.assign(places)
        deadline = time.monotonic() + READ_SECONDS
        while any(
            (found[-1].offset + 1 if found else 0) < end for found, end in zip(records, ends, strict=True)
        ):
            assert time.monotonic() < deadline, f"{list(map(len, records))} of {ends} records"
            for message in consumer.consume(10_000, timeout=0.1):
                if message.error():
                    raise KafkaException(message.error())
                partition: Any = message.partition()
                records[partition].append(
                    Read(
                        partition,
                        message.offset(),  # type: ignore[arg-type]
                        message.key(),
                        message.value(),
                        message.headers(),  # type: ignore[arg-type]
                        message.timestamp()[1],
                    )
                )
    finally:
        consumer.close()
    return records


class Ledger:
    """Sends numbered records to every partition in turn, and keeps the outcome of each."""

    def __init__(self, producer: Producer, topic: str, partitions: int, *, record_bytes: int = 100) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._record_bytes = record_bytes
        self._sent = [0] * partitions
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.failed: dict[tuple[int, int], KafkaError] = {}

    def send(self, count: int) -> None:
        """Send this many more records to each partition."""
        for value, arguments in self.records(count):
            self._producer.send(self._topic, value, **arguments)

    def records(self, count: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yield the values of so many records more to each partition, and the other arguments of `send`."""
        for _ in range(count):
            for partition in range(self._partitions):
                number = self._sent[partition]
                value = (b"%d " % number).ljust(self._record_bytes, b".")
                self._sent[partition] += 1
                yield value, {"partition": partition, "on_delivery": self._note(number)}

    def send_until(self, stop: threading.Event, rest_seconds: float = 0.001) -> None:
        while not stop.is_set():
            self.send(5)
            stop.wait(rest_seconds)

    def _note(self, number: int) -> Any:
        def note(metadata: RecordMetadata, error: BaseException | None) -> None:
            key = (metadata.partition, number)
            assert key not in self.acknowledged and key not in self.failed, f"{key} is reported twice"
            if error is None:
                self.acknowledged[key] = metadata.offset
            else:
                assert isinstance(error, KafkaError)
                self.failed[key] = error

        return note

    def check(self, bootstrap_servers: str, *, failed_may_be_late: bool = False) -> Counter[str]:
        """Check that each record has one outcome, that acknowledged ones are in the log once, at their offset
        and in order, and that definitely failed ones are not. `failed_may_be_late`: without idempotence a
        broker may take a record of a broken connection after those of the next one.
        """
        assert len(self.acknowledged) + len(self.failed) == sum(self._sent)
        found: dict[tuple[int, int], int] = {}
        for partition, records in enumerate(read_all(bootstrap_servers, self._topic, self._partitions)):
            last = -1
            for record in records:
                assert record.value is not None
                number = int(record.value.split(b" ")[0])
                is_late = failed_may_be_late and (partition, number) in self.failed
                assert is_late or number > last, f"{partition}: {number} after {last} at {record.offset}"
                last = max(last, number)
                found[partition, number] = record.offset
        for key, offset in self.acknowledged.items():
            assert key in found, f"{key} was acknowledged at {offset} and is not there"
            assert offset in (-1, found[key]), f"{key} is at {found[key]}, acknowledged at {offset}"
        for key, error in self.failed.items():
            assert error.possibly_persisted or key not in found, f"{key} is there, but failed with {error!r}"
        unknown = sum(error.possibly_persisted for error in self.failed.values())
        return +Counter(
            {
                "acknowledged": len(self.acknowledged),
                "failed": len(self.failed) - unknown,
                "possibly persisted": unknown,
            }
        )
