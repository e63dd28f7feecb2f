"""Threads that share clients, or use clients of their own beside each other.

`python -m release.free_threaded` runs this without the GIL, where they really run at the same time.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kbatch import Admin, Consumer, Delivery, KafkaError, Producer, RecordMetadata, TopicReader
from kbatch.errors import RecordDeserializationError
from kbatch.formats import Utf8
from kbatch.testing import Broker
from tests.support.patience import HANG_MS, HANG_SECONDS

THREADS = 6
TOPICS = {f"topic-{number}": 3 for number in range(4)}


def beside_each_other(function: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Return the results of a function for each number, called by as many threads."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, range(count), timeout=2 * HANG_SECONDS))


def values_of(broker: Broker) -> dict[tuple[str, int, int], bytes]:
    """Return the values in the log, by topic, partition and offset."""
    return {
        (topic, partition, record.offset): bytes(record.value or b"")
        for topic, count in TOPICS.items()
        for partition in range(count)
        for record in broker.records(topic, partition)
    }


@pytest.mark.parametrize("seed", range(4))
def test_records_of_a_shared_producer_are_where_their_deliveries_say(seed: int) -> None:
    settings = random.Random(seed)
    called: list[bytes] = []

    def noting(value: bytes) -> Callable[[RecordMetadata, KafkaError | None], None]:
        return lambda metadata, error: called.append(value)

    def work(number: int) -> list[tuple[bytes, Delivery]]:
        drawn = random.Random(f"{seed} {number}")
        values = iter([b"%d:%d" % (number, index) for index in range(10_000)])
        sent: list[tuple[bytes, Delivery]] = []
        for _ in range(250):
            kind, topic = drawn.randrange(14), drawn.choice(list(TOPICS))
            if kind < 10:
                value, key = next(values), drawn.choice([None, b"%d" % drawn.randrange(20)])
                delivery = producer.send(topic, value, key, on_delivery=noting(value))
                sent.append((value, delivery))
            elif kind < 12:
                several = [next(values) for _ in range(drawn.randrange(1, 40))]
                called.extend(several)
                deliveries = producer.send_many(topic, [(None, value) for value in several])
                sent.extend(zip(several, deliveries, strict=True))
            elif kind == 12:
                producer.flush(HANG_SECONDS)
            else:
                assert producer.metrics()
                assert len(producer.partitions_for(topic)) == TOPICS[topic]
        return sent

    with (
        Broker(TOPICS) as broker,
        Producer(
            bootstrap_servers=broker.bootstrap_servers,
            batch_size=settings.choice([0, 200, 3000, 16_384]),
            buffer_memory=settings.choice([60_000, 1_000_000]),
            compression_type=settings.choice(["none", "gzip"]),
            linger_ms=settings.choice([0, 1, 5]),
            max_in_flight_requests_per_connection=settings.choice([1, 2, 5]),
            max_block_ms=HANG_MS,
        ) as producer,
    ):
        sent = [each for found in beside_each_other(work) for each in found]
        producer.flush(HANG_SECONDS)
        log = values_of(broker)
    acknowledged = {}
    for value, delivery in sent:
        metadata = delivery.result(0)
        acknowledged[metadata.topic, metadata.partition, metadata.offset] = value
    assert log == acknowledged
    assert Counter(called) == Counter(log.values())


def test_first_records_of_new_producers_get_through() -> None:
    with Broker(TOPICS) as broker:

        def work(number: int) -> None:
            for _ in range(8):
                with Producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=HANG_MS) as producer:
                    producer.send("topic-0", b"%d" % number).result(HANG_SECONDS)

        beside_each_other(work)
        assert Counter(values_of(broker).values()) == {b"%d" % number: 8 for number in range(THREADS)}


def test_consumers_and_readers_beside_each_other_lose_and_double_nothing() -> None:
    count = 6_000
    with Broker({"numbers": 6}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(count):
                producer.send("numbers", b"%d" % number, b"%d" % (number % 50))
        wanted = {b"%d" % number: 1 for number in range(count)}

        def polled(number: int) -> Counter[bytes]:
            seen: Counter[bytes] = Counter()
            with Consumer(
                bootstrap_servers=broker.bootstrap_servers,
                group_id=f"group-{number}",
                auto_offset_reset="earliest",
                max_partition_fetch_bytes=1000,
            ) as consumer:
                consumer.subscribe(["numbers"])
                if number == 0:
                    for record in consumer:
                        seen[record.value] += 1
                        if seen.total() == count:
                            return seen
                while seen.total() < count:
                    seen.update(record.value for record in consumer.poll(HANG_SECONDS))
            return seen

        def read(number: int) -> Counter[bytes]:
            seen: Counter[bytes] = Counter()
            with TopicReader(
                bootstrap_servers=broker.bootstrap_servers, max_partition_fetch_bytes=1000
            ) as reader:
                if number % 2:
                    seen.update(
                        record.value for record in reader.read_records(reader.ranges("numbers").ranges)
                    )
                else:
                    for batch in reader.read(reader.ranges("numbers").ranges):
                        seen.update(batch["value"].to_pylist())
            return seen

        assert (
            beside_each_other(lambda number: polled(number) if number < 3 else read(number))
            == [wanted] * THREADS
        )


def test_F_REC_14_threads_that_share_typed_records_get_one_value_of_each() -> None:
    """Whichever thread makes a value first, all have the same object."""
    count, unreadable = 2_000, b"\xff"
    text = Utf8()

    def send(number: int) -> None:
        for each in range(number, count, THREADS):
            producer.send("typed", f"number {each}", b"%d" % each)

    def used(number: int) -> dict[int, tuple[Any, Any]]:
        found = {}
        for record in reversed(records) if number % 2 else records:
            assert "number" in repr(record) or record.raw_value == unreadable
            if record.offset % THREADS == number:
                copied = pickle.loads(pickle.dumps(record))
                assert (copied, copied.key) == (record, record.key)
            try:
                value = record.value
            except RecordDeserializationError as error:
                assert (error.offset, record.raw_value) == (record.offset, unreadable)
                continue
            found[record.offset] = record.key, value
        return found

    with Broker({"typed": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, value_serializer=text) as producer:
            beside_each_other(send)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send_many("typed", [(None, unreadable)] * 20)
        with TopicReader(
            bootstrap_servers=broker.bootstrap_servers,
            key_deserializer=lambda data: int(data),
            value_deserializer=text,
        ) as reader:
            records = list(reader.read_records(reader.ranges("typed").ranges))
    first, *others = beside_each_other(used)
    assert sorted(key for key, _ in first.values()) == list(range(count))
    assert all(value == f"number {key}" for key, value in first.values())
    for other in others:
        assert other.keys() == first.keys()
        assert all(other[offset][1] is value for offset, (_, value) in first.items())


def test_calls_of_a_shared_admin_are_all_answered() -> None:
    with Broker(TOPICS) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:

        def work(number: int) -> None:
            for index in range(10):
                name = f"made-{number}-{index}"
                admin.topics.create(name, partitions=1)
                assert name in {topic.name for topic in admin.topics.list()}
                admin.topics.delete(name)

        beside_each_other(work)
        assert {topic.name for topic in admin.topics.list()} == set(TOPICS)
