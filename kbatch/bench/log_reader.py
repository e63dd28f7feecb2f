"""What is in the log, read by a client that sent none of it: librdkafka's consumer.

A contest compares, partition by partition, how many records there are and a hash of all keys and values in
order with what it asked for. Java's partitioner, which all contestants are set to, makes that one answer.
Where a client reports offsets, it compares these with the records that lie there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from kbatch._native.hashes import partition_for_key
from kbatch.bench.contents import Contents, Tally, contents_of
from kbatch.bench.work import Row

START_SECONDS, IDLE_SECONDS, POLL_SECONDS = 300.0, 30.0, 0.1
REACH_SECONDS = 10.0
READ_RECORDS = 10_000
READERS = 5
# Kafka's controller takes up to 10,000 changes at a time (KafkaRaft's MAX_RECORDS_PER_USER_OP).
MOST_AT_ONCE = 5_000


class WrongLogError(RuntimeError):
    """What is in the log is not what was sent."""


def expected(rows: Iterable[Row], partitions: int) -> Contents:
    """What is in the log when all rows are sent, by Java's partitioner."""
    chosen: dict[bytes, int] = {}

    def partition_of(key: bytes) -> int:
        if key not in chosen:
            chosen[key] = partition_for_key(key, partitions)
        return chosen[key]

    return contents_of((partition_of(key), key, value) for key, value in rows)


class Log:
    """A new topic, and what came since the last `read`."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._address: dict[str, str | int | float | bool]
        self._address = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._topic = topic
        self._partitions = range(partitions)
        self._create()
        self._positions = self.end_offsets()

    def _create(self) -> None:
        admin = AdminClient(self._address)
        admin.list_topics(timeout=REACH_SECONDS)  # says soon that nobody is there
        topic = NewTopic(self._topic, min(len(self._partitions), MOST_AT_ONCE))
        admin.create_topics([topic])[self._topic].result()
        if len(self._partitions) > MOST_AT_ONCE:
            more = NewPartitions(self._topic, len(self._partitions))
            admin.create_partitions([more])[self._topic].result()

    def end_offsets(self) -> list[int]:
        """Waits for leaders: those that metadata know may not have heard of it themselves, and a client that
        has asked too early does not see new partitions.
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
        """Raises WrongLogError unless exactly that has come, and is committed, since the last check, and lies
        where it is `reported` (what Tally.add_at makes of that).
        """
        plain, placed = Tally(), Tally()
        for partition, offset, key, value in self._read(sum(count for count, _ in wanted.values())):
            plain.add(partition, key, value)
            if reported is not None:
                placed.add_at(partition, offset, key, value)
        _compare(who, plain.contents, wanted)
        if reported is not None and placed.contents != reported:
            raise WrongLogError(f"of {who} records do not lie at the offsets that it reports")

    def check_any_order(self, who: str, wanted: Counter[tuple[int, Row]]) -> None:
        """As `check`, of records whose order nobody can foretell, for several threads have sent them."""
        found = Counter((partition, (key, value)) for partition, _, key, value in self._read(wanted.total()))
        if found != wanted:
            raise WrongLogError(f"of {who} there are {found.total()} records of {wanted.total()}, or others")

    def _read(self, count: int) -> Iterator[tuple[int, int, bytes, bytes]]:
        """At least so many records, and whatever else is there: partition, offset, key and value. Fewer only
        where all partitions have no more: what is missing is told by who compares.

        Of thousands of partitions a consumer leaves some alone for half a minute now and then; another one
        goes on where it stands then.
        """
        for _ in range(READERS):
            ended: set[int] = set()
            for record in self._read_on(count, ended):
                count -= 1
                yield record
            if len(ended) == len(self._partitions):
                return
        left = sorted(set(self._partitions) - ended)
        raise TimeoutError(f"the ends of {len(left)} partitions were not reached, of {left[0]} first")

    def _read_on(self, count: int, ended: set[int]) -> Iterator[tuple[int, int, bytes, bytes]]:
        """What one consumer gets, until it has nothing for IDLE_SECONDS; `ended` are those where it is at the
        end.
        """
        consumer = Consumer(self._address | {"group.id": "kbatch-bench", "enable.partition.eof": True})
        positions = self._positions
        consumer.assign([TopicPartition(self._topic, p, positions[p]) for p in self._partitions])
        deadline = time.monotonic() + IDLE_SECONDS
        try:
            while count > 0 or len(ended) < len(self._partitions):
                records: Sequence[Any] = consumer.consume(READ_RECORDS, timeout=POLL_SECONDS)
                for record in records:
                    partition = record.partition()
                    error = record.error()
                    if error is None:
                        ended.discard(partition)
                        positions[partition] = record.offset() + 1
                        count -= 1
                        yield partition, record.offset(), record.key(), record.value()
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(partition)
                    else:
                        raise KafkaException(error)
                if records:
                    deadline = time.monotonic() + IDLE_SECONDS
                elif time.monotonic() > deadline:
                    return
        finally:
            consumer.close()


def _compare(who: str, found: Contents, wanted: Contents) -> None:
    if found == wanted:
        return
    counts = {partition: count for partition, (count, _) in found.items()}
    asked = {partition: count for partition, (count, _) in wanted.items()}
    if counts != asked:
        raise WrongLogError(f"of {who} there are {counts} records in the partitions, not {asked}")
    wrong = sorted(partition for partition in wanted if found[partition] != wanted[partition])
    raise WrongLogError(f"of {who} partitions {wrong} hold other records, or in another order")
