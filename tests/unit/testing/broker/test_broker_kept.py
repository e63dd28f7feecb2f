"""Broker with a directory: what a restart finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kbatch.protocol import messages
from kbatch.testing import Broker
from tests.unit.broker_core import TOPIC
from tests.unit.broker_wire import TIMEOUT_SECONDS, Wire, produce


def test_restart_on_a_directory_keeps_topics_records_groups_and_producers(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"directory": tmp_path, "nodes": 2}
    with Broker({TOPIC: {"partitions": 2, "retention_ms": 10**12}}, **arguments) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(TIMEOUT_SECONDS)
        for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce(TOPIC, value, partition=1)
            producer.flush(TIMEOUT_SECONDS)
            end(TIMEOUT_SECONDS)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition(TOPIC, 1, 2)], asynchronous=False)
        consumer.close()
        (state,) = broker.producer_state(TOPIC, 1)
        batches = [bytes(batch) for batch in broker.batches(TOPIC, 1)]
    with Broker({TOPIC: 9}, **arguments) as broker:
        assert [bytes(batch) for batch in broker.batches(TOPIC, 1)] == batches
        assert [record.value for record in broker.records(TOPIC)] == [b"kept"]
        assert len(broker.records(TOPIC, committed=False)) == 2
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        (found,) = consumer.committed([TopicPartition(TOPIC, 1)], timeout=TIMEOUT_SECONDS)
        consumer.close()
        assert found.offset == 2
        with Wire(broker.bootstrap_servers) as wire:
            topics = {topic.name: topic for topic in wire.ask(messages.MetadataRequest(topics=None)).topics}
            assert len(topics[TOPIC].partitions) == 2, "it was there"
            again = wire.ask(messages.InitProducerIdRequest(transactional_id=None))
            assert again.producer_id > state.producer_id
        heir = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        heir.init_transactions(TIMEOUT_SECONDS)
        heir.begin_transaction()
        heir.produce(TOPIC, b"heir", partition=1)
        heir.commit_transaction(TIMEOUT_SECONDS)
        (after,) = broker.producer_state(TOPIC, 1)
        assert (after.producer_id, after.producer_epoch > state.producer_epoch) == (state.producer_id, True)
        assert [record.value for record in broker.records(TOPIC, 1)] == [b"kept", b"heir"]


@pytest.mark.parametrize(("kept", "known"), [(1, [4]), (5, [0, 1, 2, 3, 4])])
def test_restart_remembers_the_last_batches_of_a_producer(
    tmp_path: Path, kept: int, known: list[int]
) -> None:
    ids: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    broker = Broker([TOPIC], directory=tmp_path, producer_snapshot_batches=kept)
    with broker, Wire(broker.bootstrap_servers) as wire:
        for sequence in range(5):
            assert produce(wire, b"x", base_sequence=sequence, **ids).error_code == 0
    with broker, Wire(broker.bootstrap_servers) as wire:
        answers = {sequence: produce(wire, b"x", base_sequence=sequence, **ids) for sequence in range(5)}
        assert [sequence for sequence, answer in answers.items() if answer.error_code == 0] == known
        assert all(answers[sequence].base_offset == sequence for sequence in known)
        assert len(broker.records(TOPIC)) == 5


def test_internal_topics_stay_as_large_as_they_were(tmp_path: Path) -> None:
    for partitions in (3, 50):
        with Broker([TOPIC], directory=tmp_path, internal_topic_partitions=partitions) as broker:
            for number in range(8):
                config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"g{number}"}
                consumer = Consumer(config)
                before = consumer.committed([TopicPartition(TOPIC, 0)], timeout=TIMEOUT_SECONDS)[0].offset
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, partitions)], asynchronous=False)
                consumer.close()
                assert before == (-1001 if partitions == 3 else 3)
