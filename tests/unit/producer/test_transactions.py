"""Transactions of a producer, on the embedded broker with both transaction versions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kbatch
from kbatch import OffsetAndMetadata, Producer, TopicPartition
from kbatch.errors import (
    DeliveryError,
    IllegalStateError,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    PartialSendError,
    ProducerFencedError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortedError,
)
from kbatch.interceptors import Interceptor
from kbatch.protocol import messages
from kbatch.records import ConsumerGroupMetadata
from kbatch.testing import Broker
from tests.oracle.plain import CODECS
from tests.support.patience import HANG_SECONDS, until
from tests.support.producing import (
    EITHER_VERSION,
    SECONDS,
    TOPIC,
    TRANSACTIONAL_ID,
    advance,
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
from tests.support.shells import new_producer

pytestmark = [pytest.mark.usefixtures("shell"), EITHER_VERSION]

TOPICS, NODES = {TOPIC: 2, "source": 1}, 2

SOURCE = TopicPartition("source", 0)


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with transactional(broker) as made:
        yield made


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(broker: Broker, producer: Producer) -> None:
    begin(producer)
    sent(producer, "a", "b", partition=0)
    sent(producer, "c", partition=1)
    producer.commit_transaction()
    producer.begin_transaction()
    (aborted,) = sent(producer, "d", partition=0)
    producer.flush()
    producer.abort_transaction()
    assert aborted.exception(0) is None
    with producer.transaction():
        sent(producer, "e", partition=1)
    assert committed(broker) == [b"a", b"b", b"c", b"e"]
    assert len(broker.records(TOPIC, committed=False)) == 5
    assert all(batch.is_transactional for batch in broker.batches(TOPIC))


@pytest.mark.parametrize("codec", CODECS)
def test_0103_with_each_codec(broker: Broker, codec: str) -> None:
    """Readers see committed records in the order of each partition, and no aborted ones."""

    def names(number: int, partition: int) -> list[str]:
        return [f"{number} {codec} {partition} {index}" for index in range(25)]

    with transactional(broker, compression_type=codec) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for partition in (0, 1):
                sent(producer, *names(number, partition), partition=partition)
            producer.flush()
            (producer.commit_transaction if number % 2 else producer.abort_transaction)()
    for partition in (0, 1):
        seen = [name.encode() for number in (1, 3) for name in names(number, partition)]
        assert values(broker, partition) == seen
        assert len(broker.records(TOPIC, partition, committed=False)) == 100
        data = [batch for batch in broker.batches(TOPIC, partition) if not batch.is_control]
        assert {batch.compression for batch in data} == {codec}


def test_0103_empty_transactions_send_no_request(broker: Broker, producer: Producer) -> None:
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        end()
    assert not broker.requests("EndTxn")


def test_0103_calls_in_wrong_order_are_refused(broker: Broker, producer: Producer) -> None:
    for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(IllegalStateError, match=r"init_transactions\(\) first"):
            call()
    producer.init_transactions()
    with pytest.raises(IllegalStateError, match="once"):
        producer.init_transactions()
    with pytest.raises(IllegalStateError, match="begin_transaction"):
        producer.commit_transaction()
    with pytest.raises(IllegalStateError, match="begin_transaction"):
        producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(1)}, "g")
    producer.begin_transaction()
    with pytest.raises(IllegalStateError, match="comes first"):
        producer.begin_transaction()
    sent(producer, "a")
    producer.commit_transaction()
    assert committed(broker) == [b"a"]


def test_T02_nothing_is_sent_outside_of_a_transaction(broker: Broker, producer: Producer) -> None:
    with pytest.raises(IllegalStateError, match=r"begin_transaction\(\)"):
        producer.send(TOPIC, b"early")
    producer.init_transactions()
    with pytest.raises(IllegalStateError, match=r"begin_transaction\(\)"):
        producer.send(TOPIC, b"between")
    with producer.transaction():
        producer.send(TOPIC, b"within")
    with pytest.raises(IllegalStateError):
        producer.try_send(TOPIC, b"late")
    assert committed(broker) == [b"within"]


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_what_is_no_time_ends_no_transaction(broker: Broker, producer: Producer, end: str) -> None:
    producer.init_transactions()
    with producer.transaction():
        with pytest.raises(TypeError, match="timeout must be a number of seconds, or None, got '5'"):
            getattr(producer, end)(timeout="5")
        sent(producer, "first")
    assert committed(broker) == [b"first"]


def test_transactions_need_an_id(broker: Broker) -> None:
    with producing(broker) as producer:
        for call in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(IllegalStateError, match=r"transactional\.id"):
                call()


def test_0103_a_second_producer_fences_the_first(broker: Broker, producer: Producer) -> None:
    begin(producer, "a")
    producer.flush()
    with transactional(broker) as second:
        second.init_transactions()
        with second.transaction():
            sent(second, "b")
        with pytest.raises(ProducerFencedError, match=r"transactional\.id=orders") as raised:
            producer.commit_transaction()
        assert raised.value.fatal
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(ProducerFencedError):
                call()
        with pytest.raises(ProducerFencedError):
            producer.send(TOPIC, b"c")
        with second.transaction():
            sent(second, "d")
    assert committed(broker) == [b"b", b"d"]


def test_T02_every_call_after_fatal_error_names_it_and_remedy(broker: Broker, producer: Producer) -> None:
    broker.fail_next("EndTxn", "INVALID_PRODUCER_ID_MAPPING")
    begin(producer, "a")
    with pytest.raises(InvalidPidMappingError) as first:
        producer.commit_transaction()
    calls: list[Callable[[], object]] = [
        *(producer.init_transactions, producer.begin_transaction, producer.commit_transaction),
        *(producer.abort_transaction, lambda: producer.transaction().__enter__()),
        lambda: producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(1)}, "g"),
        *(lambda: producer.send(TOPIC, b"b"), lambda: producer.send_many(TOPIC, [(None, b"b")])),
        lambda: producer.send_batch(TOPIC, 0, kbatch.encode([(None, b"b")])),
        lambda: producer.send_table(TOPIC, {"value": [b"b"]}),
        *(lambda: producer.try_send(TOPIC, b"b"), lambda: producer.partitions_for(TOPIC)),
        *(producer.flush, producer.purge, producer.resume, producer.group_ids),
        lambda: producer.committed_offsets("g", [SOURCE]),
    ]
    for call in calls:
        with pytest.raises(KafkaError) as raised:
            call()
        error = raised.value.__cause__ if isinstance(raised.value, PartialSendError) else raised.value
        assert isinstance(error, InvalidPidMappingError) and error.fatal
        assert str(error) == str(first.value)
        assert any("recreate()" in note for note in error.__notes__)
    with producer.recreate() as heir:
        heir.init_transactions()
        with heir.transaction():
            sent(heir, "c")
    assert committed(broker) == [b"c"]


def test_recreated_producer_takes_over(broker: Broker, producer: Producer) -> None:
    producer.init_transactions()
    with transactional(broker) as second:
        second.init_transactions()
        producer.begin_transaction()
        sent(producer, "a")
        with pytest.raises(KafkaError):
            producer.commit_transaction()
            producer.abort_transaction()
        with producer.recreate() as third:
            third.init_transactions()
            with third.transaction():
                sent(third, "b")
    assert committed(broker) == [b"b"]


def test_offsets_are_committed_with_the_transaction_only(broker: Broker, producer: Producer) -> None:
    begin(producer)
    producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(5, "five")}, ConsumerGroupMetadata("g"))
    producer.abort_transaction()
    assert offset_of(broker, "g") is None
    with producer.transaction():
        producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(7)}, "g")
        sent(producer, "a")
    assert offset_of(broker, "g") == 7


def offset_of(broker: Broker, group: str) -> int | None:
    found = broker._call(
        lambda core: core.state.coordinators.of_group(group).live.offsets.fetch(group, [SOURCE])
    )
    offset = next(iter(found.values()))
    return None if offset is None or offset.offset < 0 else int(offset.offset)


@pytest.mark.parametrize(
    ("offsets", "group", "error"),
    [
        ({SOURCE: 5}, "g", TypeError),
        ({SOURCE: OffsetAndMetadata(5)}, None, TypeError),
        ({SOURCE: OffsetAndMetadata(5)}, "", ValueError),
        ({SOURCE: OffsetAndMetadata(5)}, b"g", ValueError),
        ({SOURCE: OffsetAndMetadata(5)}, "g" * 40_000, ValueError),
        (None, "g", TypeError),
        ({"source": OffsetAndMetadata(5)}, "g", TypeError),
        ({("source", "0"): OffsetAndMetadata(5)}, "g", TypeError),
        ({(None, 0): OffsetAndMetadata(5)}, "g", TypeError),
        ({("source", -1): OffsetAndMetadata(5)}, "g", ValueError),
        ({("source", 2**31): OffsetAndMetadata(5)}, "g", ValueError),
    ],
)
def test_T22_offsets_are_checked(
    producer: Producer, offsets: Any, group: Any, error: type[Exception]
) -> None:
    begin(producer)
    with pytest.raises(error):
        producer.send_offsets_to_transaction(offsets, group)
    producer.commit_transaction()


def test_T10_retried_offsets_do_not_replace_later_ones(broker: Broker) -> None:
    is_queued = threading.Event()
    answers = iter(["COORDINATOR_LOAD_IN_PROGRESS"])

    def answer(request: Any) -> str | None:
        is_queued.wait(SECONDS)
        return next(answers, None)

    broker.intercept("TxnOffsetCommit", answer)
    with transactional(broker, max_block_ms=500) as producer:
        producer.init_transactions(timeout=SECONDS)
        producer.begin_transaction()
        for offset in (5, 6):
            with pytest.raises(KafkaTimeoutError):
                producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(offset)}, "g")
        is_queued.set()
        producer.commit_transaction(timeout=SECONDS)
    assert offset_of(broker, "g") == 6


def test_T12_a_call_that_timed_out_is_made_again_and_no_other(broker: Broker, producer: Producer) -> None:
    broker.delay("InitProducerId", 0.3)
    with pytest.raises(KafkaTimeoutError, match="call it again"):
        producer.init_transactions(timeout=0.01)
    with pytest.raises(IllegalStateError, match=r"init_transactions\(\) has an unknown outcome"):
        producer.begin_transaction()
    begin(producer, "a")
    broker.delay("EndTxn", 0.3)
    with pytest.raises(KafkaTimeoutError, match=r"commit_transaction\(\)"):
        producer.commit_transaction(timeout=0.01)
    for call in (producer.abort_transaction, producer.begin_transaction):
        with pytest.raises(IllegalStateError, match=r"commit_transaction\(\) has an unknown outcome"):
            call()
    with pytest.raises(IllegalStateError):
        producer.send(TOPIC, b"b")
    producer.commit_transaction()
    producer.begin_transaction()
    sent(producer, "b")
    producer.flush()
    with pytest.raises(KafkaTimeoutError):
        producer.abort_transaction(timeout=0.01)
    with pytest.raises(IllegalStateError, match=r"abort_transaction\(\) has an unknown outcome"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert committed(broker) == [b"a"]
    assert len(broker.requests("InitProducerId")) == 1


def test_a_call_that_timed_out_says_what_it_waits_for(broker: Broker, producer: Producer) -> None:
    begin(producer)
    broker.hold_high_watermark(TOPIC, 0)
    producer.send(TOPIC, b"a", partition=0)
    with pytest.raises(KafkaTimeoutError, match=r"; 1 batches are not answered yet$"):
        producer.commit_transaction(timeout=0.1)
    seen = requests_seen(broker, "EndTxn")
    broker.fail_next("EndTxn", "CONCURRENT_TRANSACTIONS", 1000)
    broker.hold_high_watermark(TOPIC, 0, False)
    for _ in range(2):  # the first was answered before the second is sent
        seen.get(timeout=SECONDS)
    with pytest.raises(KafkaTimeoutError, match=r"; the last answer was EndTxn \(commit\): The previous"):
        producer.commit_transaction(timeout=0)


def test_T12_failure_after_timeout_is_raised_by_the_next_call(broker: Broker, producer: Producer) -> None:
    begin(producer, "a")
    producer.flush()
    seen = requests_seen(broker, "EndTxn")
    broker.delay("EndTxn", 0.2)
    broker.fail_next("EndTxn", "PRODUCER_FENCED")
    with pytest.raises(KafkaTimeoutError):
        producer.commit_transaction(timeout=0.01)
    seen.get(timeout=HANG_SECONDS)
    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()


def test_T26_record_refused_by_send_fails_the_commit(broker: Broker, producer: Producer) -> None:
    begin(producer, "a")
    with pytest.raises(RecordTooLargeError):
        producer.send(TOPIC, bytes(2_000_000))
    with pytest.raises(RecordTooLargeError) as raised:
        producer.commit_transaction()
    assert raised.value.abortable
    assert "abort_transaction()" in raised.value.__notes__[-1]
    with pytest.raises(RecordTooLargeError):
        producer.send(TOPIC, b"b")
    producer.abort_transaction()
    with producer.transaction():
        sent(producer, "c")
    assert committed(broker) == [b"c"]


def test_T26_value_that_cannot_be_sent_aborts_nothing(broker: Broker) -> None:
    with transactional(broker, value_serializer="utf8") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(TOPIC, "a")
            for value in (5, "\ud800"):
                with pytest.raises((TypeError, SerializationError, ValueError)):
                    producer.send(TOPIC, value)
    assert committed(broker) == [b"a"]


def test_an_exception_in_a_with_block_aborts_and_goes_on(broker: Broker, producer: Producer) -> None:
    producer.init_transactions()
    with pytest.raises(ZeroDivisionError), producer.transaction():
        (delivery,) = sent(producer, "a")
        raise ZeroDivisionError
    assert delivery.done()
    with producer.transaction():
        sent(producer, "b")
    assert committed(broker) == [b"b"]
    producer.flush()  # aborted records are not reported any more


def test_a_commit_that_fails_in_a_with_block_is_aborted(broker: Broker, producer: Producer) -> None:
    producer.init_transactions()
    broker.fail_next("Produce", "INVALID_RECORD")
    with pytest.raises(KafkaError) as raised, producer.transaction():
        sent(producer, "a")
    assert raised.value.abortable
    with producer.transaction():
        sent(producer, "b")
    assert committed(broker) == [b"b"]


@pytest.mark.threads
def test_callbacks_run_before_commit_returns_and_cannot_commit(broker: Broker, producer: Producer) -> None:
    noted: list[Any] = []
    refused: list[Any] = []

    def on_delivery(metadata: Any, error: Any) -> None:
        noted.append((metadata.partition, error))
        try:
            producer.commit_transaction()
        except IllegalStateError as failed:
            refused.append(failed)

    producer.init_transactions()
    with producer.transaction():
        sent(producer, "a", "b", "c", partition=1, on_delivery=on_delivery)
    assert noted == [(1, None)] * 3
    assert len(refused) == 3


@pytest.mark.parametrize("has_sent", [False, True])
def test_T24_close_aborts_what_is_open(broker: Broker, has_sent: bool) -> None:
    producer = new_producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=TRANSACTIONAL_ID, linger_ms=60_000
    )
    begin(producer, "a")
    if has_sent:
        producer.flush()
    producer.close()
    ends = [request.message.committed for request in broker.requests("EndTxn")]
    # a producer that is closed does not linger: the record may have gone before the abort is known
    assert ends == [False] or (not ends and not has_sent)
    assert committed(broker) == []


def test_T24_close_waits_for_a_commit_that_is_under_way(broker: Broker) -> None:
    producer = new_producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=TRANSACTIONAL_ID)
    begin(producer, "a")
    broker.delay("EndTxn", 0.2)
    with pytest.raises(KafkaTimeoutError):
        producer.commit_transaction(timeout=0)
    producer.close()
    until(lambda: committed(broker) == [b"a"])


@pytest.mark.parametrize("api", ["FindCoordinator", "InitProducerId"])
def test_T24_close_does_not_hang(broker: Broker, api: str) -> None:
    broker.delay(api, 600)
    producer = new_producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=TRANSACTIONAL_ID)
    with pytest.raises(KafkaTimeoutError):
        producer.init_transactions(timeout=0.05)
    waiting = within(producer.init_transactions)
    producer.close(timeout=0.1)
    with pytest.raises(KafkaError, match="closed"):
        waiting.result(HANG_SECONDS)


def test_N04_timed_out_init_allows_retry_or_close_only(broker: Broker) -> None:
    broker.delay("FindCoordinator", 0.2)
    with transactional(broker) as producer:
        with pytest.raises(KafkaTimeoutError):
            producer.init_transactions(timeout=0)
        with pytest.raises(IllegalStateError):
            producer.begin_transaction()
        producer.init_transactions()
        with producer.transaction():
            sent(producer, "a")


def test_a_coordinator_that_moves_is_followed(broker: Broker, producer: Producer) -> None:
    producer.init_transactions()
    for number in range(4):
        with producer.transaction():
            sent(producer, str(number))
            broker.move_leader("__transaction_state", partition_of_transactions(broker), number % 2)
    assert committed(broker) == [b"0", b"1", b"2", b"3"]


def partition_of_transactions(broker: Broker) -> int:
    return broker._call(lambda core: core.state.coordinators.partition_of_transaction(TRANSACTIONAL_ID).index)


def test_a_transaction_that_takes_too_long_is_not_committed(broker: Broker, version: int) -> None:
    """Under version 1 the coordinator fences the producer; under version 2 an abort agrees with it."""
    with transactional(broker) as producer:
        begin(producer, "a")
        producer.flush()
        advance(broker, seconds=61)  # transaction.timeout.ms, and one
        until(lambda: any(batch.is_control for batch in broker.batches(TOPIC)))
        with pytest.raises(KafkaError, match=r"transaction\.timeout\.ms") as raised:
            producer.commit_transaction()
        assert (raised.value.fatal, raised.value.abortable) == (version == 1, version == 2)
        if version == 2:
            producer.abort_transaction()
            with producer.transaction():
                sent(producer, "next")
    assert committed(broker) == ([] if version == 1 else [b"next"])


def test_commit_raises_transaction_failures_and_close_does_not(broker: Broker) -> None:
    broker.fail_next("Produce", "INVALID_RECORD")
    keys = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": TRANSACTIONAL_ID}
    with new_producer(**keys) as producer:
        begin(producer)
        (delivery,) = sent(producer, "a")
        with pytest.raises(KafkaError):
            producer.commit_transaction()
        producer.abort_transaction()
    assert delivery.done()


def test_undelivered_records_of_an_abort_say_so(broker: Broker) -> None:
    with transactional(broker, linger_ms=60_000) as producer:
        begin(producer)
        (delivery,) = sent(producer, "a")
        producer.abort_transaction()
        assert isinstance(delivery.exception(0), TransactionAbortedError)


def test_a_commit_does_not_linger(broker: Broker) -> None:
    with transactional(broker, linger_ms=600_000, delivery_timeout_ms=1_000_000) as producer:
        producer.init_transactions()
        with producer.transaction():
            sent(producer, "a")
    assert committed(broker) == [b"a"]


def test_times_are_measured(producer: Producer) -> None:
    begin(producer)
    producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(1)}, "g")
    producer.commit_transaction()
    producer.begin_transaction()
    producer.abort_transaction()
    found = {name.name: value for name, value in producer.metrics().items()}
    for what in ("init", "begin", "send-offsets", "commit", "abort"):
        assert found[f"txn-{what}-time-ns-total"] > 0


def test_interceptors_see_transactions_too(broker: Broker) -> None:
    with transactional(broker, interceptor_classes=[Upper]) as producer:
        producer.init_transactions()
        with pytest.raises(IllegalStateError):
            producer.send(TOPIC, b"a")
        with producer.transaction():
            producer.send(TOPIC, b"b")
    assert committed(broker) == [b"B"]


class Upper(Interceptor):
    def on_send(self, record: Any) -> Any:
        return record._replace(value=record.value.upper())


def test_versions_are_those_of_the_feature(broker: Broker, producer: Producer) -> None:
    producer.init_transactions()
    with producer.transaction():
        producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(1)}, "g")
        sent(producer, "a")
    used = {request.api: request.version for request in broker.requests()}
    if "AddPartitionsToTxn" in used:
        assert (used["Produce"], used["TxnOffsetCommit"], used["EndTxn"]) == (11, 4, 4)
        assert "AddOffsetsToTxn" in used
    else:
        assert (used["Produce"], used["TxnOffsetCommit"], used["EndTxn"]) == (13, 5, 5)
    (produce,) = broker.requests("Produce")
    assert isinstance(produce.message, messages.ProduceRequest)
    assert produce.message.transactional_id == TRANSACTIONAL_ID


def test_delivery_errors_of_other_causes_are_still_raised(broker: Broker) -> None:
    broker.fail_next("Produce", "INVALID_RECORD")
    with transactional(broker) as producer:
        begin(producer, "a")
        with pytest.raises(DeliveryError):
            producer.flush()


# Ends of transactions and producers


def new_transactional(broker: Broker, **keys: object) -> Producer:
    """Make a producer that the test closes."""
    made: Producer = new_producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=TRANSACTIONAL_ID, linger_ms=0, **keys
    )
    return made


def test_T24_close_does_not_hang_where_offsets_have_no_answer(broker: Broker, version: int) -> None:
    broker.delay("AddOffsetsToTxn" if version == 1 else "TxnOffsetCommit", 600)
    producer = new_transactional(broker, max_block_ms=200)
    know(producer, TOPIC)
    producer.init_transactions(timeout=SECONDS)
    producer.begin_transaction()
    sent(producer, "a")
    producer.flush()
    with pytest.raises(KafkaTimeoutError):
        producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(1)}, "g")
    producer.close(timeout=0.2)
    assert committed(broker) == []


def test_T24_close_after_fatal_error_sends_nothing(broker: Broker) -> None:
    broker.fail_next("EndTxn", "INVALID_PRODUCER_ID_MAPPING")
    producer = new_transactional(broker)
    begin(producer, "a")
    with pytest.raises(KafkaError) as raised:
        producer.commit_transaction()
    assert raised.value.fatal
    producer.close()
    producer.close()
    assert "closed" in repr(producer)
    assert len(broker.requests("EndTxn")) == 1


def test_T18_expired_transaction_fails_by_the_abort(broker: Broker, version: int) -> None:
    """The coordinator has aborted it by a new epoch (KIP-588). Under version 2 an abort is repeated there."""
    with transactional(broker) as producer:
        begin(producer, "a")
        producer.flush()
        advance(broker, seconds=61)  # transaction.timeout.ms, and one
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


# Tables and encoded batches


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
    begin(producer)
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

    begin(producer)
    producer.send_table(TOPIC, pa.RecordBatchReader.from_batches(schema, batches()))
    with pytest.raises(SerializationError, match="the rest cannot be read"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert committed(broker) == []


# A cluster's transaction.version changes


# The highest version of Produce and EndTxn in a transaction, by its version.
PRODUCE = {1: 11, 2: 13}
END_TXN = {1: 4, 2: 5}


def test_T07_version_changed_while_idle_applies_to_next(broker: Broker, version: int) -> None:
    other = 3 - version
    with transactional(broker, metadata_max_age_ms=10) as producer:
        producer.init_transactions()
        in_one(producer, "a")
        broker._call(lambda core: core.state.set_feature_level("transaction.version", other))
        learn(broker)
        since = len(broker.requests())
        in_one(producer, "b")
        in_one(producer, "c")
        asked = [each for each in broker.requests()[since:] if each.api not in ("Metadata", "ApiVersions")]
    versions = {api: {each.version for each in asked if each.api == api} for api in ("Produce", "EndTxn")}
    assert versions == {"Produce": {PRODUCE[other]}, "EndTxn": {END_TXN[other]}}
    assert [each.api for each in asked].count("InitProducerId") == (other == 2)
    assert ("AddPartitionsToTxn" in [each.api for each in asked]) == (other == 1)
    assert committed(broker) == [b"a", b"b", b"c"]


def in_one(producer: Producer, name: str) -> None:
    with producer.transaction():
        sent(producer, name)


def learn(broker: Broker) -> None:
    """Wait until the producer has requested versions twice, and so got one response."""
    seen = requests_seen(broker, "ApiVersions")
    for _ in range(2):
        seen.get(timeout=HANG_SECONDS)
