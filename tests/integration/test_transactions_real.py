"""Transactions on real Kafkas and on the embedded one, beside those of librdkafka and Java.

Both read committed records, and a later producer with a transactional.id fences the earlier one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import Producer as TheirProducer
from confluent_kafka import TopicPartition as TheirTopicPartition

import kbatch
from kbatch import OffsetAndMetadata, Producer, TopicPartition
from kbatch.errors import CommitFailedError, KafkaError, ProducerFencedError
from tests.conftest import require_jars
from tests.oracle import java_clients
from tests.oracle.kafka import RealKafka, create_topic
from tests.oracle.plain import CODECS
from tests.support.shells import new_producer

FENCED_IN_JAVA = ("ProducerFencedException", "InvalidProducerEpochException")
_numbers = itertools.count()

pytestmark = pytest.mark.usefixtures("shell")


@pytest.fixture(scope="module")
def kafka_of_version_1(java_jars: None) -> Iterator[RealKafka]:
    with RealKafka(transaction_version=1) as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_3_9() -> Iterator[RealKafka]:
    """Yield the last version before transaction.version."""
    require_jars("3.9.1")
    with RealKafka(transaction_version=None, version="3.9.1") as broker:
        yield broker


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("real_kafka", marks=[pytest.mark.java, pytest.mark.slow], id="version 2"),
        pytest.param("kafka_of_version_1", marks=[pytest.mark.java, pytest.mark.slow], id="version 1"),
        pytest.param("kafka_3_9", marks=[pytest.mark.java, pytest.mark.slow], id="3.9.1"),
    ]
)
def brokers(request: pytest.FixtureRequest) -> str:
    if request.param == "embedded":
        return str(request.getfixturevalue("embedded_bootstrap_servers"))
    return str(request.getfixturevalue(request.param).bootstrap_servers)


def new_topic(brokers: str, partitions: int = 2) -> str:
    name = f"transactions-{next(_numbers)}"
    create_topic(brokers, name, partitions)
    return name


def transactional(brokers: str, transactional_id: str) -> Producer:
    producer: Producer = new_producer(
        bootstrap_servers=brokers, transactional_id=transactional_id, linger_ms=0
    )
    return producer


def read_committed(brokers: str, topic: str, partitions: int = 2) -> list[bytes]:
    """Return the values that are there, in order."""
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
    settings = {"bootstrap.servers": brokers, "group.id": group, "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    (found,) = consumer.committed([TheirTopicPartition(topic, 0)], timeout=30)
    consumer.close()
    return int(found.offset)


@pytest.mark.slow
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
def test_javas_producer_fences_ours_and_ours_fences_it(brokers: str) -> None:
    topic = new_topic(brokers)
    with transactional(brokers, topic) as ours:
        ours.init_transactions()
        ours.begin_transaction()
        ours.send(topic, b"zombie")
        ours.flush()
        with java_clients.transaction(brokers, topic, "Java's", transactional_id=topic) as commit:
            with pytest.raises(ProducerFencedError):
                ours.commit_transaction()
            with ours.recreate() as heir:
                heir.init_transactions()
                assert commit() in FENCED_IN_JAVA
                with heir.transaction():
                    heir.send(topic, b"heir")
    assert read_committed(brokers, topic) == [b"heir"]


def test_librdkafkas_producer_fences_ours_and_ours_fences_it(brokers: str) -> None:
    topic = new_topic(brokers)
    theirs = TheirProducer({"bootstrap.servers": brokers, "transactional.id": topic, "log_level": 0})
    with transactional(brokers, topic) as ours:
        ours.init_transactions()
        ours.begin_transaction()
        ours.send(topic, b"zombie")
        ours.flush()
        theirs.init_transactions(30)
        with pytest.raises(ProducerFencedError):
            ours.commit_transaction()
        theirs.begin_transaction()
        theirs.produce(topic, b"librdkafka's")
        theirs.flush(30)
        with ours.recreate() as heir:
            heir.init_transactions()
            with pytest.raises(KafkaException) as raised:
                theirs.commit_transaction(30)
            assert raised.value.args[0].fatal()
            with heir.transaction():
                heir.send(topic, b"heir")
    assert read_committed(brokers, topic) == [b"heir"]


@pytest.mark.java
def test_librdkafka_and_java_read_records_batches_and_tables(brokers: str) -> None:
    topic = new_topic(brokers, 1)
    with transactional(brokers, topic) as producer:
        producer.init_transactions()
        for number, codec in enumerate(CODECS):
            aborted, kept = ([(None, b"%d-%s" % (number, word))] for word in (b"aborted", b"kept"))
            producer.begin_transaction()
            producer.send_batch(topic, 0, kbatch.encode(aborted, compression=codec))
            producer.flush()
            producer.abort_transaction()
            with producer.transaction():
                producer.send(topic, b"%d-sent" % number)
                producer.send_batch(topic, 0, kbatch.encode(kept, compression=codec))
                producer.send_table(topic, pa.table({"value": [b"%d-row" % number] * 3}))
    expected = [
        b"%d-%s" % (number, word)
        for number in range(len(CODECS))
        for word in (b"sent", b"kept", b"row", b"row", b"row")
    ]
    assert read_committed(brokers, topic, 1) == sorted(expected)
    records = java_clients.consume(brokers, [topic], group=topic, max_records=len(expected))
    assert [record["value"].encode() for record in records] == expected


@pytest.mark.slow
def test_a_consumer_that_lost_its_group_cannot_commit(brokers: str) -> None:
    topic, source = new_topic(brokers), new_topic(brokers, 1)
    settings = {"bootstrap.servers": brokers, "group.id": source, "auto.offset.reset": "earliest"}
    with Producer(bootstrap_servers=brokers) as plain:
        plain.send(source, b"1")
    first, second = Consumer(settings), Consumer(settings)
    offsets = {TopicPartition(source, 0): OffsetAndMetadata(1)}
    with transactional(brokers, topic) as producer:
        producer.init_transactions()
        first.subscribe([source])
        assert first.poll(30) is not None
        with producer.transaction():
            producer.send_offsets_to_transaction(offsets, first.consumer_group_metadata())
        lost = first.consumer_group_metadata()
        first.close()
        second.subscribe([source])
        with Producer(bootstrap_servers=brokers) as plain:
            plain.send(source, b"2")
        message = second.poll(30)
        assert message is not None and message.value() == b"2"  # after the committed records
        producer.begin_transaction()
        producer.send(topic, b"done twice")
        with pytest.raises(CommitFailedError):
            producer.send_offsets_to_transaction(offsets, lost)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"done")
            offsets = {TopicPartition(source, 0): OffsetAndMetadata(2)}
            producer.send_offsets_to_transaction(offsets, second.consumer_group_metadata())
    second.close()
    assert committed_offset(brokers, source, source) == 2
    assert read_committed(brokers, topic) == [b"done"]


@pytest.mark.slow
@pytest.mark.java
def test_no_transaction_hangs(brokers: str) -> None:
    """Neither when a producer ends in one, nor when it dies and another takes its id over."""
    topic = new_topic(brokers, 1)
    ids = [f"{topic}-{what}" for what in ("committed", "closed", "left")]
    for transactional_id in ids:
        with transactional(brokers, transactional_id) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"a")
            producer.flush()
            if transactional_id == ids[0]:
                producer.commit_transaction()
            elif transactional_id == ids[2]:
                producer.close(timeout=0)
    assert {"Ongoing"} == {each["state"] for each in described(brokers, ids[2:], topic)}
    with transactional(brokers, ids[2]) as heir:
        heir.init_transactions()
    states = [each["state"] for each in described(brokers, ids, topic)]
    assert states == ["CompleteCommit", "CompleteAbort", "Empty"]
    assert read_committed(brokers, topic, 1) == [b"a"]


def described(brokers: str, ids: list[str], topic: str) -> list[dict[str, Any]]:
    """Check the AdminClient's view: a partition has an open transaction only if a coordinator has."""
    calls: list[dict[str, Any]] = [
        {"call": "listTransactions"},
        {"call": "describeTransactions", "transactional_ids": ids},
        {"call": "describeProducers", "topic": topic, "partition": 0},
    ]
    listed, found, producers = java_clients.admin(brokers, *calls)
    ongoing = {each["producer_id"] for each in listed if each["state"] == "Ongoing"}
    assert {p["producer_id"] for p in producers if p["transaction_start_offset"] >= 0} <= ongoing
    return [found[transactional_id] for transactional_id in ids]


@pytest.mark.java
@pytest.mark.threads
def test_T07_the_clusters_version_changes_while_a_producer_lives(java_jars: None) -> None:
    with RealKafka(transaction_version=1) as broker:
        servers = broker.bootstrap_servers
        topic = new_topic(servers, 1)
        feature = {"call": "upgradeFeature", "feature": "transaction.version", "level": 2}
        with Producer(bootstrap_servers=servers, transactional_id=topic, metadata_max_age_ms=100) as producer:
            producer.init_transactions()
            sent: list[bytes] = []
            assert producer._runtime.engine.transactions is not None
            while producer._runtime.engine.transactions._sequences.transaction_version < 2 or len(sent) < 5:
                assert len(sent) < 10_000, "the change is not seen"
                producer.begin_transaction()
                producer.send(topic, b"aborted")
                producer.flush()
                if len(sent) == 1:  # in the middle of a transaction
                    assert java_clients.admin(servers, feature) == [None]
                producer.abort_transaction()
                with producer.transaction():
                    sent.append(b"%d" % len(sent))
                    producer.send(topic, sent[-1])
        assert read_committed(servers, topic, 1) == sorted(sent)


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
