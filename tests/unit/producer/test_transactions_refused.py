"""T26: a record refused within a transaction is missing there, and its error is abortable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import kbatch
from kbatch import Producer
from kbatch.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    PartialSendError,
    RecordTooLargeError,
    SerializationError,
)
from kbatch.testing import Broker
from tests.support.patience import HANG_SECONDS
from tests.support.producing import (
    EITHER_VERSION,
    SECONDS,
    TOPIC,
    begin,
    committed,
    know,
    producing,
    requests_seen,
    sent,
    transactional,
    values,
    within,
)

pytestmark = [pytest.mark.usefixtures("shell"), EITHER_VERSION]

TOPICS = {TOPIC: 1}


def table_of(value: bytes) -> Any:
    return pytest.importorskip("pyarrow").table({"value": [value]})


HUGE = bytes(2_000_000)
SHORT_MS = 200
Sends = Callable[[Any, str, bytes, int], object]
WAITING: dict[str, Sends] = {
    "send": lambda producer, topic, value, partition: producer.send(topic, value, partition=partition),
    "send_batch": lambda producer, topic, value, partition: producer.send_batch(
        topic, partition, kbatch.encode([(None, value)])
    ),
}
# Those that name no partition.
ANYWHERE: dict[str, Sends] = WAITING | {
    "send_many": lambda producer, topic, value, partition: producer.send_many(topic, [(None, value)]),
    "send_table": lambda producer, topic, value, partition: producer.send_table(topic, table_of(value)),
}
# Those of which nothing is accepted; a table has its other rows.
ALONE: dict[str, Sends] = WAITING | {
    "send_many": ANYWHERE["send_many"],
    "try_send": lambda producer, topic, value, partition: producer.try_send(topic, value),
}
# From what is wrong to the topic, the value and the partition, those who can be given that, and the error.
REFUSED: dict[str, tuple[str, bytes, int, dict[str, Sends], type[KafkaError]]] = {
    "too large": (TOPIC, HUGE, 0, ALONE, RecordTooLargeError),
    "no such topic": ("unknown", b"b", 0, ANYWHERE, KafkaTimeoutError),
    "no name of a topic": ("x" * 300, b"b", 0, ANYWHERE, InvalidTopicError),
    "a name that brokers refuse": ("a topic", b"b", 0, ANYWHERE, InvalidTopicError),
    "no such partition": (TOPIC, b"b", 9, WAITING, KafkaTimeoutError),
}


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with transactional(broker, max_block_ms=SHORT_MS) as made:
        made.init_transactions(timeout=SECONDS)
        yield made


@pytest.mark.parametrize(
    ("topic", "value", "partition", "name", "kind"),
    [
        pytest.param(topic, value, partition, name, kind, id=f"{name}-{what}")
        for what, (topic, value, partition, ways, kind) in REFUSED.items()
        for name in ways
    ],
)
def test_T26_the_error_of_what_was_refused_is_abortable(
    broker: Broker,
    producer: Producer,
    topic: str,
    value: bytes,
    partition: int,
    name: str,
    kind: type[KafkaError],
) -> None:
    producer.begin_transaction()
    sent(producer, "a")
    with pytest.raises(KafkaError) as raised:
        (ANYWHERE | ALONE)[name](producer, topic, value, partition)
    error = raised.value
    assert error.abortable and not error.fatal
    if isinstance(error, PartialSendError):
        assert isinstance(error.cause, KafkaError) and error.cause.abortable
        assert type(error.cause) is kind
    else:
        assert type(error) is kind
    with pytest.raises(KafkaError) as refused:
        producer.commit_transaction(timeout=SECONDS)
    assert refused.value.abortable
    assert kind in (type(refused.value), type(refused.value.__cause__))
    producer.abort_transaction(timeout=SECONDS)
    producer.begin_transaction()
    sent(producer, "b")
    producer.commit_transaction(timeout=SECONDS)
    assert committed(broker) == [b"b"]


def test_T26_the_example_of_the_page_aborts_and_goes_on(broker: Broker, producer: Producer) -> None:
    def attempt(*values: bytes) -> None:
        producer.begin_transaction()
        try:
            for value in values:
                producer.send(TOPIC, value)
            producer.commit_transaction(timeout=SECONDS)
        except KafkaError as error:
            assert not error.fatal
            if not error.abortable:
                raise
            producer.abort_transaction(timeout=SECONDS)

    attempt(b"a", HUGE)
    attempt(b"b")
    assert committed(broker) == [b"b"]


def refused_record(producer: Producer) -> None:
    producer.send(TOPIC, b"a").result(SECONDS)


def refused_rows(producer: Producer) -> None:
    delivery = producer.send_table(TOPIC, table_of(b"a"))
    delivery.result(SECONDS)
    error = delivery.exception()
    assert error is not None
    for each in (error, delivery.report.errors[0]):
        assert (each.abortable, each.fatal) == (True, False)
    raise error


def refused_in_a_flush(producer: Producer) -> None:
    producer.send(TOPIC, b"a")
    producer.flush(SECONDS)


@pytest.mark.parametrize("attempt", [refused_record, refused_rows, refused_in_a_flush])
def test_T13_error_of_a_delivery_leads_to_an_abort(
    broker: Broker, producer: Producer, attempt: Callable[[Producer], None]
) -> None:
    """The pattern of the page, with a program that waits for its deliveries."""
    broker.fail_next("Produce", "INVALID_RECORD")
    producer.begin_transaction()
    with pytest.raises(KafkaError) as raised:
        attempt(producer)
    assert (raised.value.abortable, raised.value.fatal) == (True, False)
    producer.abort_transaction(timeout=SECONDS)
    producer.begin_transaction()
    producer.send(TOPIC, b"b").result(SECONDS)
    producer.commit_transaction(timeout=SECONDS)
    assert committed(broker) == [b"b"]


def test_T13_callback_gets_an_error_that_is_abortable(broker: Broker, producer: Producer) -> None:
    broker.fail_next("Produce", "INVALID_RECORD")
    errors: list[Any] = []
    producer.begin_transaction()
    producer.send(TOPIC, b"a", on_delivery=lambda _, error: errors.append(error))
    with pytest.raises(KafkaError) as raised:
        producer.commit_transaction(timeout=SECONDS)
    assert raised.value.abortable
    producer.abort_transaction(timeout=SECONDS)
    assert [(each.abortable, each.fatal) for each in errors] == [(True, False)]


def test_T26_error_of_every_refused_row_is_abortable(producer: Producer) -> None:
    table = pytest.importorskip("pyarrow").table(
        {"value": [b"a", HUGE, b"c"], "topic": [TOPIC, TOPIC, "a topic"]}
    )
    producer.begin_transaction()
    report = producer.send_table(None, table, topic_column="topic").result(SECONDS)
    assert [type(report.errors[row]) for row in (1, 2)] == [RecordTooLargeError, InvalidTopicError]
    assert all(each.abortable and not each.fatal for each in report.errors.values())  # the first may fail too
    producer.abort_transaction(timeout=SECONDS)
    producer.begin_transaction()
    producer.commit_transaction(timeout=SECONDS)


def test_T26_refusal_outside_transaction_is_not_abortable(broker: Broker) -> None:
    with producing(broker) as plain:
        for topic, value in ((TOPIC, HUGE), ("a topic", b"b")):
            with pytest.raises(KafkaError) as raised:
                plain.send(topic, value)
            assert not raised.value.abortable


def test_T26_same_error_outside_transaction_is_not_abortable(producer: Producer) -> None:
    producer.begin_transaction()
    with pytest.raises(InvalidTopicError) as raised:
        producer.send("a topic", b"b")
    assert raised.value.abortable
    producer.abort_transaction(timeout=SECONDS)
    with pytest.raises(InvalidTopicError) as raised:
        producer.partitions_for("a topic")
    assert not raised.value.abortable


def test_T26_serialization_error_is_not_abortable(broker: Broker) -> None:
    def serialize(value: str) -> bytes:
        if not value:
            raise SerializationError("nothing")
        return value.encode()

    with transactional(broker, value_serializer=serialize) as producer:
        producer.init_transactions()
        with producer.transaction():
            with pytest.raises(SerializationError) as raised:
                producer.send(TOPIC, "")
            assert not raised.value.abortable
            producer.send(TOPIC, "a")
    assert committed(broker) == [b"a"]


def sending_late(broker: Broker, producer: Producer) -> Future[Any]:
    """Start a send that waits for its topic, "late"."""
    asked = requests_seen(broker, "Metadata")
    late = within(lambda: producer.send("late", b"x"))
    while "late" not in [topic.name for topic in asked.get(timeout=HANG_SECONDS).topics or ()]:
        pass
    return late


@pytest.mark.threads
@pytest.mark.parametrize("begun", [False, True], ids=["none yet", "begun"])
def test_T02_record_waiting_past_its_transaction_joins_no_other(broker: Broker, begun: bool) -> None:
    with transactional(broker) as producer:
        begin(producer)
        late = sending_late(broker, producer)
        producer.abort_transaction()
        if begun:
            producer.begin_transaction()
        broker.create_topic("late", 1)
        refusal = "the transaction ended before" if begun else "needs an open transaction"
        with pytest.raises(IllegalStateError, match=refusal):
            late.result(HANG_SECONDS)
        if not begun:
            producer.begin_transaction()
        producer.commit_transaction()
        assert not values(broker, topic="late")


@pytest.mark.threads
def test_T02_record_timing_out_in_next_transaction_is_harmless(broker: Broker) -> None:
    with transactional(broker, max_block_ms=1000) as producer:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        late = sending_late(broker, producer)
        producer.abort_transaction(SECONDS)
        producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="the transaction ended before") as caught:
            late.result(HANG_SECONDS)
        assert isinstance(caught.value.__context__, KafkaTimeoutError)
        know(producer, TOPIC)
        sent(producer, "next")
        producer.commit_transaction(SECONDS)
        assert committed(broker) == [b"next"]
