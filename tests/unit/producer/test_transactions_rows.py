"""Tables and encoded batches in transactions, on the embedded broker with both transaction versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kbatch
from kbatch import Producer
from kbatch.errors import IllegalStateError, RecordTooLargeError, SerializationError
from kbatch.testing import Broker
from tests.support.producing import TOPIC, committed, sent, transactional, values

pytestmark = pytest.mark.usefixtures("shell")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(topics={TOPIC: 2}, nodes=2, transaction_version=request.param) as running:
        yield running


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with transactional(broker) as made:
        yield made


def test_tables_are_part_of_a_transaction(broker: Broker, producer: Producer) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"value": [b"1", b"2", b"3"]})
    producer.init_transactions()
    with pytest.raises(IllegalStateError, match=r"begin_transaction\(\)"):
        producer.send_table(TOPIC, table)
    with producer.transaction():
        producer.send_table(TOPIC, table)
    producer.begin_transaction()
    producer.send_table(TOPIC, pa.table({"value": [b"4"]}))
    producer.abort_transaction()
    assert committed(broker) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("codec", CODECS)
def test_encoded_batches_are_part_of_a_transaction(broker: Broker, producer: Producer, codec: str) -> None:
    batch = kbatch.encode([(None, b"b"), (None, b"c")], compression=codec)
    producer.init_transactions()
    with pytest.raises(IllegalStateError, match=r"begin_transaction\(\)"):
        producer.send_batch(TOPIC, 0, batch)
    with producer.transaction():
        sent(producer, "a", partition=0)
        delivery = producer.send_batch(TOPIC, 0, batch)
        sent(producer, "d", partition=0)
    assert delivery.result(0).offset == 1
    producer.begin_transaction()
    producer.send_batch(TOPIC, 0, batch)
    producer.flush()
    producer.abort_transaction()
    assert values(broker) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("others", [[], [b"1", b"2"]], ids=["alone", "among others"])
def test_T26_a_row_that_is_too_large_is_missing(
    broker: Broker, producer: Producer, others: list[bytes]
) -> None:
    pa = pytest.importorskip("pyarrow")
    producer.init_transactions()
    producer.begin_transaction()
    delivery = producer.send_table(TOPIC, pa.table({"value": [*others, bytes(2_000_000), *others]}))
    with pytest.raises(RecordTooLargeError) as raised:
        producer.commit_transaction()
    assert raised.value.abortable
    producer.abort_transaction()
    assert delivery.result(0).errors
    with producer.transaction():
        producer.send_table(TOPIC, pa.table({"value": [b"4"]}))
    assert committed(broker) == [b"4"]


def test_T26_rows_that_were_not_accepted_are_missing(broker: Broker, producer: Producer) -> None:
    pa = pytest.importorskip("pyarrow")
    schema = pa.schema([("value", pa.binary())])

    def batches() -> Iterator[Any]:
        yield pa.record_batch([[b"1"]], schema=schema)
        raise OSError("the rest cannot be read")

    producer.init_transactions()
    producer.begin_transaction()
    producer.send_table(TOPIC, pa.RecordBatchReader.from_batches(schema, batches()))
    with pytest.raises(SerializationError, match="the rest cannot be read"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert committed(broker) == []
