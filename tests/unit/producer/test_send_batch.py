"""Batches that were encoded elsewhere: the sender's handling of them, and `send_batch`."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import pytest

import kbatch
from kbatch import (
    BufferExhaustedError,
    CorruptRecordError,
    DeliveryError,
    IllegalStateError,
    KafkaTimeoutError,
    Producer,
    RecordMetadata,
)
from kbatch._native.batch.delivery import BatchDelivery
from kbatch.errors import ErrorCode, ProducerClosedError, PurgedError, RecordTooLargeError
from kbatch.interceptors import Interceptor
from kbatch.records import ProducerRecord
from kbatch.testing import Broker
from tests.support.patience import until
from tests.support.producing import (
    SECONDS,
    SECONDS_MS,
    TOPIC,
    CallbackLog,
    metric,
    producing,
    values,
    waits_for_memory,
    within,
)
from tests.support.sending import OK, OUT_OF_ORDER, PRODUCER_ID, Sending
from tests.unit._native.send.test_encoded_batch import BATCH, CODECS, altered, encoded, fields_of

pytestmark = pytest.mark.usefixtures("shell")

TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE


# The sender


def give(s: Sending, *names: str, compression: str = "none") -> BatchDelivery:
    """Accept and send a batch of records with these names."""
    data = encoded(*[name.encode() for name in names], compression=compression)
    delivery = s.accumulator.append_batch("t", 0, data, s.now_ns)
    assert isinstance(delivery, BatchDelivery)
    s.deliveries.update(dict.fromkeys(names, delivery))
    s.run()
    return delivery


def test_sequences_continue_after_all_records_of_a_batch() -> None:
    s = Sending().warmed()
    give(s, "a", "b", "c")
    s.send("d")
    give(s, "e", "f", compression="lz4")
    s.send("g")
    assert s.waiting == ["a", "d", "e", "g"]
    assert [s.sequence(name) for name in s.waiting] == [1, 4, 5, 7]
    s.answer(a=OK, d=OK, e=OK, g=OK)
    assert [s.offset(name) for name in "adeg"] == [1, 4, 5, 7]
    assert s.is_whole


def test_sequences_of_a_batch_wrap_around() -> None:
    s = Sending(first_sequence=2**31 - 2).warmed()
    give(s, "a", "b", "c")
    s.send("d")
    assert (s.sequence("a"), s.sequence("d")) == (2**31 - 1, 2)
    s.answer(a=OK, d=OK)
    assert s.is_whole


def test_a_batch_is_retried_with_the_same_bytes() -> None:
    s = Sending().warmed()
    give(s, "a", "b")
    s.send("c")
    s.answer(a=TOO_FEW, c=OUT_OF_ORDER)
    s.back_off()
    assert s.waiting == ["a"]
    first, second = s.attempts("a")
    assert first == second
    s.answer(a=OK)
    s.back_off()
    s.answer(c=OK)
    assert (s.offset("a"), s.offset("c")) == (1, 3)
    assert s.is_whole


def test_a_batch_that_was_lost_on_its_way_is_sent_again() -> None:
    s = Sending().warmed()
    give(s, "a", "b")
    s.drop()
    s.back_off()
    first, second = s.attempts("a")
    assert first == second
    s.answer(a=OK)
    assert s.offset("a") == 1 and s.is_whole


def test_a_batch_is_numbered_anew_in_the_next_epoch() -> None:
    s = Sending().warmed()
    give(s, "x", "y")
    give(s, "a", "b", "c", compression="zstd")
    s.answer(x=ErrorCode.INVALID_RECORD, a=OUT_OF_ORDER)
    s.back_off()
    assert s.waiting == ["a"]
    assert (s.epoch("a"), s.sequence("a")) == (1, 0)
    data = s.attempts("a")[-1].data
    expected = encoded(b"a", b"b", b"c", compression="zstd")
    assert data == altered(expected, producer_id=PRODUCER_ID, producer_epoch=1, base_sequence=0)
    s.answer(a=OK)
    s.send("d")
    assert s.sequence("d") == 3
    s.answer(d=OK)
    assert s.is_whole and str(s.error("x"))


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_batch_expires(is_sent: bool) -> None:
    s = Sending(delivery_timeout_ms=2000, request_timeout_ms=2000).warmed()
    if not is_sent:
        s.cut_off()
    delivery = give(s, "a", "b", "c")
    s.advance(3000)
    error = delivery.exception(0)
    assert isinstance(error, KafkaTimeoutError) and "3 records were not delivered" in str(error)
    assert error.possibly_persisted is is_sent
    assert s.is_whole


def test_a_batch_is_purged() -> None:
    s = Sending().warmed()
    s.cut_off()
    delivery = give(s, "a", "b")
    s.engine.purge(PurgedError("purged"), queued=True, in_flight=True)
    s.run()
    assert isinstance(delivery.exception(0), PurgedError)
    assert s.is_whole


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_is_too_large_goes_in_parts(codec: str) -> None:
    s = Sending().warmed()
    delivery = give(s, "a", "b", "c", "d", compression=codec)
    s.send("e")
    s.answer(a=TOO_LARGE, e=OUT_OF_ORDER)
    assert s.waiting == ["a"]
    s.answer(a=TOO_LARGE)
    s.answer(a=OK)
    s.answer(b=OK)
    s.answer(c=OK)
    s.back_off()
    s.answer(e=OK)
    assert [s.sequence(name) for name in "abce"] == [1, 2, 3, 5]
    assert delivery.offset_runs(0) == [(1, 1), (2, 1), (3, 2)]
    assert s.offset("e") == 5
    assert s.is_whole


def test_single_records_that_are_too_large_fail_the_batch() -> None:
    s = Sending().warmed()
    delivery = give(s, "a", "b")
    s.answer(a=TOO_LARGE)
    s.answer(a=OK)
    s.answer(b=TOO_LARGE)
    error = delivery.exception(0)
    assert isinstance(error, RecordTooLargeError) and error.possibly_persisted
    assert s.is_whole


# The producer


TOPICS = {TOPIC: 3}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("own", ["none", "zstd"])
def test_log_has_the_batch_except_broker_and_producer_fields(broker: Broker, codec: str, own: str) -> None:
    data = kbatch.encode(
        [(b"k%d" % at, b"v" * at, [("h", b"x")], 5000 + at) for at in range(50)], compression=codec
    )
    with producing(broker, compression_type=own) as producer:
        producer.send(TOPIC, b"before", partition=1)
        delivery = producer.send_batch(TOPIC, 1, data)
        producer.send(TOPIC, b"after", partition=1)
        assert delivery.result(SECONDS) == RecordMetadata(TOPIC, 1, 1, 5049, -1, -1)
        assert delivery.offset_runs() == [(1, 50)]
        producer.flush(SECONDS)
    before, batch, after = broker.batches(TOPIC, 1)
    logged = bytes(batch)
    assert logged[61:] == data[61:]
    owned = ("base_offset", "leader_epoch", "crc", "producer_id", "producer_epoch", "base_sequence")
    kept = [
        {name: value for name, value in fields_of(each).items() if name not in owned}
        for each in (logged, data)
    ]
    assert kept[0] == kept[1]
    assert [each.base_sequence for each in (before, batch, after)] == [0, 1, 51]
    assert values(broker, 1) == [b"before", *[b"v" * at for at in range(50)], b"after"]


def test_a_table_that_was_encoded_elsewhere_arrives(broker: Broker, producer: Producer) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"key": [b"%d" % at for at in range(500)], "value": [b"v%d" % at for at in range(500)]})
    encoded_table = kbatch.encode_arrow(table, partitions=3, compression="lz4", batch_size=2000)
    deliveries = [
        producer.send_batch(TOPIC, row["partition"], row["batch"]) for row in encoded_table.to_pylist()
    ]
    producer.flush(SECONDS)
    assert all(delivery.done() for delivery in deliveries)
    assert sum(delivery.record_count for delivery in deliveries) == 500
    for partition in range(3):
        found = broker.records(TOPIC, partition)
        assert all(kbatch.partition_for_key(record.key or b"", 3) == partition for record in found)
    assert sorted(map(str, values(broker))) == sorted(map(str, table["value"].to_pylist()))


def test_records_and_batches_keep_their_order(broker: Broker, producer: Producer) -> None:
    expected: list[bytes] = []
    for number in range(60):
        names = [b"%d.%d" % (number, at) for at in range(1 + number % 4)]
        expected += names
        if number % 3:
            producer.send_batch(TOPIC, 0, encoded(*names, compression=CODECS[number % 5]))
        else:
            for name in names:
                producer.send(TOPIC, name, partition=0)
    producer.flush(SECONDS)
    assert values(broker, 0) == expected


def test_faults_of_a_broker_lose_and_double_nothing(broker: Broker, producer: Producer) -> None:
    expected: list[bytes] = []
    for number in range(40):
        if number % 8 == 3:
            broker.drop_connection("Produce", "after" if number % 16 == 3 else "before")
        if number % 8 == 5:
            broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        names = [b"%d.%d" % (number, at) for at in range(3)]
        expected += names
        producer.send_batch(TOPIC, 0, encoded(*names))
        until(lambda: metric(producer, "requests-in-flight") < 4)
    producer.flush(SECONDS)
    assert values(broker, 0) == expected


def test_a_batch_waits_for_metadata(broker: Broker, producer: Producer) -> None:
    calls = CallbackLog()
    sent = within(lambda: producer.send_batch("later", 0, BATCH, on_delivery=calls))
    broker.create_topic("later")
    delivery = sent.result(SECONDS)
    assert delivery.result(SECONDS).offset == 0
    metadata, error = calls.next()
    assert (metadata, error) == (RecordMetadata("later", 0, 0, 1002, -1, -1), None)
    assert calls.noted == [(metadata, error)]


def test_the_partition_must_exist(broker: Broker) -> None:
    with producing(broker, [TOPIC], max_block_ms=1000) as producer:
        producer.send(TOPIC).result(SECONDS)
        with pytest.raises(KafkaTimeoutError, match=r"has no partition 3 after.* it has 3"):
            producer.send_batch(TOPIC, 3, BATCH)
        for partition in (None, -1, "1"):
            with pytest.raises((TypeError, ValueError), match="partition must be"):
                producer.send_batch(TOPIC, partition, BATCH)  # type: ignore[arg-type]
        assert metric(producer, "record-error-total") == 4
        assert not producer._accumulator.batches(TOPIC, 3)


def test_a_batch_waits_for_memory_and_fails_in_time(broker: Broker) -> None:
    data = encoded(b"a" * 10_000)
    with producing(broker, buffer_memory=50_000, max_block_ms=SECONDS_MS) as producer:
        producer.send(TOPIC, partition=0)
        producer.flush(SECONDS)
        broker.hold_high_watermark(TOPIC, 0)
        first = [producer.send_batch(TOPIC, 0, data) for _ in range(2)]
        waiting = within(lambda: producer.send_batch(TOPIC, 0, data))
        until(waits_for_memory(producer))
        assert not waiting.done()
        broker.hold_high_watermark(TOPIC, 0, hold=False)
        assert waiting.result(SECONDS).result(SECONDS).offset == 3
        assert [delivery.result(SECONDS).offset for delivery in first] == [1, 2]
    with producing(broker, [TOPIC], buffer_memory=25_000, max_block_ms=1000) as producer:
        broker.hold_high_watermark(TOPIC, 0)
        producer.send_batch(TOPIC, 0, data)
        with pytest.raises(BufferExhaustedError, match=r"max\.block\.ms=1000"):
            producer.send_batch(TOPIC, 0, data)


def test_a_batch_beyond_max_request_size_is_too_large(broker: Broker) -> None:
    data = encoded(b"a" * 5000)
    text = rf"{len(data)} bytes, more than max.request.size"
    with (
        producing(broker, max_request_size=len(data) - 1) as producer,
        pytest.raises(RecordTooLargeError, match=text),
    ):
        producer.send_batch(TOPIC, 0, data)
    with producing(broker, max_request_size=len(data)) as producer:
        assert producer.send_batch(TOPIC, 0, data).result(SECONDS).offset == 0


def test_a_batch_that_is_none_is_refused(broker: Broker, producer: Producer) -> None:
    with pytest.raises(CorruptRecordError, match="crc is"):
        producer.send_batch(TOPIC, 0, BATCH[:-1] + b"x")
    with pytest.raises(ValueError, match="producer_id must be -1"):
        producer.send_batch(TOPIC, 0, altered(BATCH, producer_id=5, producer_epoch=0, base_sequence=0))
    assert metric(producer, "record-error-total") == 2
    producer.flush(SECONDS)
    assert broker.batches(TOPIC) == []


def test_a_topic_that_takes_less_gets_the_batch_in_parts(broker: Broker, producer: Producer) -> None:
    broker.create_topic("small", max_message_bytes=3000)
    names = [b"%d." % at + b"x" * 500 for at in range(20)]
    calls = CallbackLog()
    delivery = producer.send_batch(
        "small", 0, kbatch.encode([(None, name) for name in names]), on_delivery=calls
    )
    producer.send("small", b"after", partition=0)
    runs = delivery.offset_runs(SECONDS)
    assert len(runs) > 1 and sum(run.record_count for run in runs) == 20
    producer.flush(SECONDS)
    assert [record.value for record in broker.records("small")] == [*names, b"after"]
    assert len(calls.noted) == 1 and calls.next()[0].offset == 0
    assert metric(producer, "batch-split-total") >= 1


def test_records_of_a_batch_are_counted(broker: Broker, producer: Producer) -> None:
    producer.send_batch(TOPIC, 0, BATCH).result(SECONDS)
    producer.send(TOPIC, b"one").result(SECONDS)
    assert metric(producer, "record-send-total") == 4
    broker.fail_next("Produce", "INVALID_RECORD")
    assert producer.send_batch(TOPIC, 0, BATCH).exception(SECONDS) is not None
    assert metric(producer, "record-error-total") == 3


def test_unobserved_failure_is_raised_by_flush(broker: Broker, producer: Producer) -> None:
    broker.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED")
    delivery = producer.send_batch(TOPIC, 0, BATCH)
    with pytest.raises(DeliveryError) as raised:
        producer.flush(SECONDS)
    assert raised.value.count == 3
    assert delivery.exception(0) is not None
    broker.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED")
    producer.send_batch(TOPIC, 0, BATCH, on_delivery=CallbackLog())
    producer.flush(SECONDS)


def test_a_closed_producer_takes_no_batch(broker: Broker, producer: Producer) -> None:
    delivery = producer.send_batch(TOPIC, 0, BATCH)
    producer.close(SECONDS)
    assert delivery.result(0).offset == 0
    with pytest.raises(ProducerClosedError):
        producer.send_batch(TOPIC, 0, BATCH)


@pytest.mark.threads
def test_a_callback_can_send_a_batch(broker: Broker, producer: Producer) -> None:
    later: list[Any] = []
    producer.send_batch(
        TOPIC, 0, BATCH, on_delivery=lambda *noted: later.append(producer.send_batch(TOPIC, 0, BATCH))
    )
    until(lambda: later)
    assert later[0].result(SECONDS).offset == 3


def test_a_batch_without_acknowledgement(broker: Broker) -> None:
    with producing(broker, acks=0, enable_idempotence=False) as producer:
        delivery = producer.send_batch(TOPIC, 0, BATCH)
        assert delivery.result(SECONDS).offset == -1
        assert delivery.offset_runs() == [(-1, 3)]
        producer.flush(SECONDS)
    until(lambda: len(values(broker, 0)) == 3)
    (batch,) = broker.batches(TOPIC, 0)
    assert (batch.producer_id, batch.base_sequence) == (-1, -1)


# Interceptors


class Looks(Interceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record


class Hears(Interceptor):
    heard: ClassVar[list[Any]] = []

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.heard.append((metadata.offset, type(error)))


def test_an_interceptor_that_looks_at_records_keeps_batches_out(broker: Broker) -> None:
    with producing(broker, interceptor_classes=[Hears, Looks]) as producer:
        Hears.heard.clear()
        with pytest.raises(IllegalStateError, match=r"^Looks cannot see the records of an encoded batch"):
            producer.send_batch(TOPIC, 0, BATCH)
        assert Hears.heard == [(-1, IllegalStateError)]
        producer.flush(SECONDS)
    assert broker.batches(TOPIC) == []


def test_batch_is_reported_to_interceptor_without_on_send(broker: Broker) -> None:
    calls = CallbackLog()
    with producing(broker, interceptor_classes=[Hears]) as producer:
        Hears.heard.clear()
        producer.send_batch(TOPIC, 0, BATCH, on_delivery=calls)
        assert calls.next()[0].offset == 0
        assert Hears.heard == [(0, type(None))]
        broker.fail_next("Produce", "INVALID_RECORD")
        producer.send_batch(TOPIC, 0, BATCH)
        with pytest.raises(DeliveryError) as raised:
            producer.flush(SECONDS)
        assert raised.value.count == 3 and len(Hears.heard) == 2


def test_nothing_is_logged_of_a_batch_that_is_well(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        producer.send_batch(TOPIC, 0, BATCH).result(SECONDS)
    assert not caplog.records


# Records that cannot be read


@pytest.mark.parametrize("codec", range(1, 5))
def test_unreadable_batch_fails_alone_when_too_large(codec: int) -> None:
    data = altered(encoded(b"a" * 2000, b"b"), attributes=codec)  # which they are not
    with Broker({TOPIC: {"max.message.bytes": 1000}}) as broker, producing(broker) as producer:
        producer.send(TOPIC, b"before", partition=0)
        delivery = producer.send_batch(TOPIC, 0, data)
        after = producer.send(TOPIC, b"after", partition=0)
        error = delivery.exception(SECONDS)
        assert isinstance(error, CorruptRecordError) and not error.possibly_persisted
        assert after.result(SECONDS).offset == 1
        producer.flush(SECONDS)
        assert values(broker) == [b"before", b"after"]
