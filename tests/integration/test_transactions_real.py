"""Transactions on a real Kafka and on the embedded one, read by librdkafka and fenced by Java."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as TheirTopicPartition
from confluent_kafka.admin import AdminClient

from kbatch import OffsetAndMetadata, Producer, TopicPartition
from kbatch.errors import KafkaError, ProducerFencedError
from tests.oracle import java_clients
from tests.oracle.kafka import RealKafka, create_topic

_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka_of_version_1(java_jars: None) -> Iterator[str]:
    with RealKafka(transaction_version=1) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("real", marks=pytest.mark.java),
        pytest.param("version 1", marks=pytest.mark.java),
    ]
)
def brokers(request: pytest.FixtureRequest) -> str:
    if request.param == "version 1":
        return str(request.getfixturevalue("kafka_of_version_1"))
    if request.param == "real":
        return str(request.getfixturevalue("real_kafka").bootstrap_servers)
    return str(request.getfixturevalue("embedded_bootstrap_servers"))


def new_topic(brokers: str, partitions: int = 2) -> str:
    name = f"transactions-{next(_numbers)}"
    create_topic(brokers, name, partitions)
    return name


def transactional(brokers: str, transactional_id: str) -> Producer:
    return Producer(bootstrap_servers=brokers, transactional_id=transactional_id, linger_ms=0)


def read_committed(brokers: str, topic: str, partitions: int = 2) -> list[bytes]:
    """The values that are there, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": f"readers-{next(_numbers)}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TheirTopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    ended: set[int | None] = set()
    while len(ended) < partitions:
        message = consumer.poll(30)
        assert message is not None, "nothing comes: a transaction may be open"
        if message.error() is None:
            values.append(message.value() or b"")
        else:
            ended.add(message.partition())
    consumer.close()
    return sorted(values)


def committed_offset(brokers: str, group: str, topic: str) -> int:
    asked = ConsumerGroupTopicPartitions(group, [TheirTopicPartition(topic, 0)])
    admin = AdminClient({"bootstrap.servers": brokers})
    (found,) = admin.list_consumer_group_offsets([asked], require_stable=True).values()
    return int(found.result().topic_partitions[0].offset)


def test_read_committed_sees_what_was_committed_and_nothing_else(brokers: str) -> None:
    topic = new_topic(brokers)
    expected = []
    with transactional(brokers, topic) as producer:
        producer.init_transactions()
        for number in range(20):
            producer.begin_transaction()
            values = [b"%d-%d" % (number, index) for index in range(50)]
            for index, value in enumerate(values):
                producer.send(topic, value, partition=index % 2)
            if number % 3 == 1:
                producer.flush()
            if number % 3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                expected += values
    assert read_committed(brokers, topic) == sorted(expected)


def test_offsets_are_committed_with_it(brokers: str) -> None:
    topic, group = new_topic(brokers), f"group-{next(_numbers)}"
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(17, "text")}
    with transactional(brokers, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, group)
        producer.abort_transaction()
        assert committed_offset(brokers, group, topic) < 0
        with producer.transaction():
            producer.send(topic, b"a")
            producer.send_offsets_to_transaction(offsets, group)
        assert committed_offset(brokers, group, topic) == 17


def test_a_second_producer_fences_the_first(brokers: str) -> None:
    topic = new_topic(brokers)
    with transactional(brokers, topic) as first, transactional(brokers, topic) as second:
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"zombie")
        first.flush()
        second.init_transactions()
        with pytest.raises(ProducerFencedError):
            first.commit_transaction()
        with second.transaction():
            second.send(topic, b"heir")
    assert read_committed(brokers, topic) == [b"heir"]


@pytest.mark.java
def test_javas_producer_fences_ours(brokers: str) -> None:
    source, topic = new_topic(brokers), new_topic(brokers)
    with Producer(bootstrap_servers=brokers) as plain:
        plain.send(source, b"copied")
    with transactional(brokers, topic) as ours:
        ours.init_transactions()
        ours.begin_transaction()
        ours.send(topic, b"zombie")
        ours.flush()
        java_clients.copy(brokers, source, topic, group=topic, transactional_id=topic, batch_records=1)
        with pytest.raises(KafkaError) as raised:
            ours.commit_transaction()
        assert raised.value.fatal
    assert read_committed(brokers, topic) == [b"copied"]


def test_after_a_failure_the_next_transaction_works(brokers: str) -> None:
    topic = new_topic(brokers)
    create_topic(brokers, f"{topic}-compacted", 1, {"cleanup.policy": "compact"})
    with transactional(brokers, topic) as producer:
        producer.init_transactions()
        for _ in range(3):
            producer.begin_transaction()
            producer.send(topic, b"lost", partition=0)
            producer.send(f"{topic}-compacted", b"a record without a key")
            with pytest.raises(KafkaError) as raised:
                producer.commit_transaction()
            assert raised.value.abortable
            producer.abort_transaction()
            with producer.transaction():
                producer.send(topic, b"kept", partition=0)
    assert read_committed(brokers, topic) == [b"kept"] * 3
