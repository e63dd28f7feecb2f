"""The content of the log, read by a client that sent none of it: librdkafka's consumer.

A contest compares the number of records and a hash of all keys and values, in order and by partition, with
its job. All contestants use Java's partitioner, so the result is unique. If a client reports offsets, the
contest compares them with the records there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from kbatch._native.codec.hashes import partition_for_key
from kbatch.bench.contents import Contents, Tally, contents_of
from kbatch.bench.settings import access_for_librdkafka
from kbatch.bench.workload import Row

START_SECONDS, IDLE_SECONDS, POLL_SECONDS = 300.0, 30.0, 0.1
REACH_SECONDS = 10.0
READ_RECORDS = 10_000
READERS = 5
FIELDS: tuple[Any, ...] = (Message.partition, Message.key, Message.value)
# With default settings a consumer that reads at full speed pauses for a second every 100,000 records.
READING: dict[str, str | int | float | bool] = {
    "group.id": "kbatch-bench",
    "enable.partition.eof": True,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 256 * 1024,
    "fetch.queue.backoff.ms": 1,
}
# Kafka's controller accepts up to 10,000 changes at a time (KafkaRaft's MAX_RECORDS_PER_USER_OP).
MOST_AT_ONCE = 5_000


class WrongLogError(RuntimeError):
    """The log does not contain what was sent."""


def expected(rows: Iterable[Row], partitions: int) -> Contents:
    """Return the content of the log after all rows are sent, by Java's partitioner."""
    chosen: dict[bytes, int] = {}

    def partition_of(key: bytes) -> int:
        if key not in chosen:
            chosen[key] = partition_for_key(key, partitions)
        return chosen[key]

    return contents_of((partition_of(key), key, value) for key, value in rows)


class Log:
    """A new topic, and everything since the last `read`."""

    def __init__(self, access: Mapping[str, str], topic: str, partitions: int) -> None:
        """`access` has bootstrap.servers, and the keys of TLS and SASL with Kafka's names."""
        self._address: dict[str, str | int | float | bool]
        self._address = {**access_for_librdkafka(access), "log_level": 0}
        self._topic = topic
        self._partitions = range(partitions)
        self._create()
        self._positions = self.end_offsets()

    def _create(self) -> None:
        admin = AdminClient(self._address)
        admin.list_topics(timeout=REACH_SECONDS)  # reports the end soon
        topic = NewTopic(self._topic, min(len(self._partitions), MOST_AT_ONCE))
        admin.create_topics([topic])[self._topic].result()
        if len(self._partitions) > MOST_AT_ONCE:
            more = NewPartitions(self._topic, len(self._partitions))
            admin.create_partitions([more])[self._topic].result()

    def end_offsets(self) -> list[int]:
        """Wait for leaders: those named by the metadata may not know it yet, and a client that asks too early
        misses new partitions.
        """
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self._topic, number): latest for number in self._partitions}
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                admin = AdminClient(self._address)  # a new one each time
                found = admin.list_offsets(asked)
                return [offset.result().offset for offset in found.values()]
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def delete(self) -> None:
        admin = AdminClient(self._address)
        admin.delete_topics([self._topic])[self._topic].result()

    def check(self, who: str, wanted: Contents, reported: Contents | None = None) -> None:
        """Raise WrongLogError unless exactly these records have arrived, committed, since the last check, at
        the `reported` locations (see Tally.add_at).
        """
        plain, placed = Tally(), Tally()
        for record in chain.from_iterable(self._read(sum(count for count, _ in wanted.values()))):
            plain.add(record.partition(), record.key(), record.value())
            if reported is not None:
                placed.add_at(record.partition(), record.offset(), record.key(), record.value())
        _compare(who, plain.contents, wanted)
        if reported is not None and placed.contents != reported:
            raise WrongLogError(f"of {who} records do not lie at the offsets that it reports")

    def check_any_order(self, who: str, wanted: Counter[tuple[int, Row]]) -> None:
        """Check like `check`, for records whose order is unpredictable because several threads sent them."""
        found: Counter[tuple[int, bytes, bytes]] = Counter()
        for records in self._read(wanted.total()):  # millions, counted without a line of Python each
            found.update(zip(*(map(field, records) for field in FIELDS), strict=True))
        if found != Counter({(partition, *row): count for (partition, row), count in wanted.items()}):
            raise WrongLogError(f"of {who} there are {found.total()} records of {wanted.total()}, or others")

    def _read(self, count: int) -> Iterator[Sequence[Any]]:
        """Yield lists of `count` records or more, with whatever else is there. There are fewer only if all
        partitions have no more; the caller compares.

        With thousands of partitions a consumer sometimes ignores a few for half a minute; another one then
        continues where it stopped.
        """
        for _ in range(READERS):
            ended: set[int] = set()
            for records in self._read_on(count, ended):
                count -= len(records)
                yield records
            if len(ended) == len(self._partitions):
                return
        left = sorted(set(self._partitions) - ended)
        raise TimeoutError(f"the ends of {len(left)} partitions were not reached, of {left[0]} first")

    def _read_on(self, count: int, ended: set[int]) -> Iterator[Sequence[Any]]:
        """Yield what one consumer gets until it has nothing for IDLE_SECONDS; `ended` collects the partitions
        at their end.
        """
        consumer = Consumer(self._address | READING)
        positions = self._positions
        consumer.assign([TopicPartition(self._topic, p, positions[p]) for p in self._partitions])
        deadline = time.monotonic() + IDLE_SECONDS
        try:
            while count > 0 or len(ended) < len(self._partitions):
                polled: Sequence[Any] = consumer.consume(READ_RECORDS, timeout=POLL_SECONDS)
                records = [record for record in polled if record.error() is None]
                last: dict[Any, Any]
                last = dict(zip(map(Message.partition, records), map(Message.offset, records), strict=True))
                for partition, offset in last.items():
                    positions[partition] = offset + 1
                ended.difference_update(last)
                if len(records) < len(polled):
                    ended.update(_ended(polled))
                count -= len(records)
                yield records
                if polled:
                    deadline = time.monotonic() + IDLE_SECONDS
                elif time.monotonic() > deadline:
                    return
        finally:
            consumer.close()


def _ended(polled: Sequence[Any]) -> set[int]:
    """Return the partitions at whose end the consumer is after these messages."""
    ended: set[int] = set()
    for message in polled:
        error = message.error()
        if error is None:
            ended.discard(message.partition())
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise KafkaException(error)
    return ended


def _compare(who: str, found: Contents, wanted: Contents) -> None:
    if found == wanted:
        return
    counts = {partition: count for partition, (count, _) in found.items()}
    asked = {partition: count for partition, (count, _) in wanted.items()}
    if counts != asked:
        raise WrongLogError(f"of {who} there are {counts} records in the partitions, not {asked}")
    wrong = sorted(partition for partition in wanted if found[partition] != wanted[partition])
    raise WrongLogError(f"of {who} partitions {wrong} hold other records, or in another order")
