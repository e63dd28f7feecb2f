"""How transactions end otherwise than by a call: with their producer, or by the coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbatch import OffsetAndMetadata, Producer, TopicPartition
from kbatch.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
)
from kbatch.testing import Broker
from tests.support.producing import SECONDS, TOPIC, TRANSACTIONAL_ID, committed, sent, transactional, until
from tests.support.shells import new_producer

pytestmark = pytest.mark.usefixtures("shell")

SOURCE = TopicPartition("source", 0)


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def version(request: pytest.FixtureRequest) -> int:
    level: int = request.param
    return level


@pytest.fixture
def broker(version: int) -> Iterator[Broker]:
    with Broker(topics={TOPIC: 1, "source": 1}, transaction_version=version) as running:
        yield running


def new_transactional(broker: Broker, **keys: object) -> Producer:
    """One that the test closes."""
    made: Producer = new_producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=TRANSACTIONAL_ID, linger_ms=0, **keys
    )
    return made


def test_T24_close_does_not_hang_where_offsets_have_no_answer(broker: Broker, version: int) -> None:
    broker.delay("AddOffsetsToTxn" if version == 1 else "TxnOffsetCommit", 600)
    producer = new_transactional(broker, max_block_ms=200)
    producer.init_transactions(timeout=SECONDS)
    producer.begin_transaction()
    sent(producer, "a")
    producer.flush()
    with pytest.raises(KafkaTimeoutError):
        producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(1)}, "g")
    producer.close(timeout=0.2)
    assert committed(broker) == []


def test_T24_close_behind_a_fatal_error_asks_for_nothing_and_does_not_hang(broker: Broker) -> None:
    broker.fail_next("EndTxn", "INVALID_PRODUCER_ID_MAPPING")
    producer = new_transactional(broker)
    producer.init_transactions()
    producer.begin_transaction()
    sent(producer, "a")
    with pytest.raises(KafkaError) as raised:
        producer.commit_transaction()
    assert raised.value.fatal
    producer.close()
    producer.close()
    assert "closed" in repr(producer)
    assert len(broker.requests("EndTxn")) == 1


def test_T18_who_goes_on_in_a_transaction_that_took_too_long_learns_of_it_by_the_abort(
    broker: Broker, version: int
) -> None:
    """The coordinator has aborted it by a new epoch (KIP-588). Under version 2 an abort is repeated there."""
    with transactional(broker, transaction_timeout_ms=100) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        sent(producer, "a")
        producer.flush()
        until(lambda: any(batch.is_control for batch in broker.batches(TOPIC)))
        (late,) = sent(producer, "late")
        assert isinstance(late.exception(SECONDS), InvalidProducerEpochError)
        with pytest.raises(InvalidProducerEpochError) as raised:
            producer.commit_transaction()
        assert raised.value.abortable
        if version == 1:
            with pytest.raises(ProducerFencedError, match=r"transaction\.timeout\.ms") as fenced:
                producer.abort_transaction()
            assert fenced.value.fatal
        else:
            producer.abort_transaction()
            with producer.transaction():
                sent(producer, "next")
    assert committed(broker) == ([] if version == 1 else [b"next"])
