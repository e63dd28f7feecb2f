"""Cases of librdkafka's test suite, by their numbers, against the embedded broker; docs/behaviours.md says
which other tests have the rest.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kbatch import DeliveryError, KafkaError, Producer
from kbatch.errors import InvalidRecordError, KafkaTimeoutError, OutOfOrderSequenceError
from kbatch.protocol import codec, messages
from kbatch.testing import Broker
from kbatch.testing.broker.broker_state import Connection
from tests.support.patience import until
from tests.support.producing import SECONDS, TOPIC, producing, requests_seen, values

pytestmark = pytest.mark.usefixtures("shell")

PRODUCE_VERSION = 13
QUICK: dict[str, Any] = {"retry_backoff_ms": 2, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 2}
ONE_A_BATCH: dict[str, Any] = {**QUICK, "batch_size": 0}


class Answer:
    """To a Produce request: an error, though its batch is appended, unless `appends` says that it is not."""

    def __init__(self, code: str, *, appends: bool = True) -> None:
        self.code = code
        self.appends = appends


def answering(broker: Broker, answers: Sequence[Answer]) -> list[int]:
    """Answer the next Produce requests by these codes. Return the broker's own codes for appended batches: 0
    for a duplicate too.
    """
    left = list(answers)
    codes: list[int] = []

    def append(request: Any) -> None:
        frame = b"".join(codec.encode_request(request, PRODUCE_VERSION, 1, "the same"))[4:]
        reply = broker._call(lambda core: core.handle(Connection(0), frame, core.state.now_ms))
        answered = b"".join(reply.buffers or ())[4:]
        _, response = codec.decode_response(messages.ProduceResponse, PRODUCE_VERSION, answered)
        codes.append(response.responses[0].partition_responses[0].error_code)

    def answer(request: Any) -> str | None:
        broker.intercept("Produce", None)  # what is appended here is not looked at again
        given = left.pop(0)
        if given.appends:
            append(request)
        if left:
            broker.intercept("Produce", answer)
        return given.code

    broker.intercept("Produce", answer)
    return codes


def check_all_there_once(broker: Broker, producer: Producer, count: int = 20) -> None:
    """Check that all records are in the log once, after a first one, and that later ones follow."""
    deliveries = [producer.send(TOPIC, b"%d" % number) for number in range(count)]
    producer.flush(SECONDS)
    assert [delivery.exception(0) for delivery in deliveries] == [None] * count
    assert values(broker) == [b"first", *(b"%d" % number for number in range(count))]
    offsets = [delivery.result(0).offset for delivery in deliveries]
    assert all(offset in (number + 1, -1) for number, offset in enumerate(offsets))
    assert producer.send(TOPIC, b"last").result(SECONDS).offset == count + 1


@contextlib.contextmanager
def warmed(broker: Broker, **keys: Any) -> Iterator[Producer]:
    """Yield a producer with a record in the topic, so that several batches travel together."""
    with producing(broker, **keys) as producer:
        producer.send(TOPIC, b"first").result(SECONDS)
        yield producer


@pytest.mark.parametrize("idempotent", [True, False])
def test_0011_compacted_topic_refuses_records_without_key(broker: Broker, idempotent: bool) -> None:
    broker.create_topic("compacted", 1, **{"cleanup.policy": "compact"})
    keys = [b"0", None, b"2", b"3", None, b"5"]
    with producing(broker, linger_ms=600_000, enable_idempotence=idempotent) as producer:
        deliveries = [producer.send("compacted", b"value", key) for key in keys]
        with pytest.raises(DeliveryError):
            producer.flush(SECONDS)
        for key, delivery in zip(keys, deliveries, strict=True):
            error = delivery.exception(0)
            assert isinstance(error, KafkaError) and not error.possibly_persisted
            if key is None:
                assert isinstance(error, InvalidRecordError)
            else:
                assert type(error) is KafkaError
                assert "is valid, but shared a batch with 2 that the broker refused" in str(error)
        sound = producer.send("compacted", b"value", b"key")
        producer.flush(SECONDS)
        assert sound.result(0).offset == 0


@pytest.mark.parametrize("idempotent", [True, False])
def test_0076_message_damaged_in_transit_is_sent_again(broker: Broker, idempotent: bool) -> None:
    keys: dict[str, Any] = {"enable_idempotence": idempotent}
    if not idempotent:
        keys["max_in_flight_requests_per_connection"] = 1
    with warmed(broker, **ONE_A_BATCH, **keys) as producer:
        broker.fail_next("Produce", "CORRUPT_MESSAGE", 5)
        check_all_there_once(broker, producer)


@pytest.mark.parametrize("when", ["before", "after"])
def test_0076_connections_that_end_late_cost_nothing(broker: Broker, when: str) -> None:
    with warmed(broker, **ONE_A_BATCH) as producer:
        broker.delay("Produce", 0.005)
        broker.drop_connection("Produce", when, 5)
        check_all_there_once(broker, producer)


def test_0076_producer_waits_for_a_broker_not_yet_ready() -> None:
    broker = Broker({TOPIC: 1}).start()
    servers = broker.bootstrap_servers
    broker.stop()
    with Producer(bootstrap_servers=servers, **QUICK) as producer:
        assert producer.try_send(TOPIC, b"value") is None
        until(lambda: "refused" in str(producer._runtime.engine.last_connection_failure))
        with broker:
            producer.send(TOPIC, b"value").result(SECONDS)


@pytest.mark.parametrize("count", [1, 3, 5, 6, 20], ids=lambda count: f"{count}-answers")
def test_0090_timed_out_but_appended_batch_is_in_the_log_once(broker: Broker, count: int) -> None:
    """Within the five batches that a broker remembers, and beyond."""
    with warmed(broker, **ONE_A_BATCH) as producer:
        codes = answering(broker, [Answer("REQUEST_TIMED_OUT") for _ in range(count)])
        check_all_there_once(broker, producer)
        assert (codes[0], len(codes)) == (0, count)


@pytest.mark.parametrize("rounds", [1, 3])
def test_0094_timeouts_are_reported_and_deliveries_are_once(broker: Broker, rounds: int) -> None:
    """However slow this machine is: nothing here has to be in time."""
    times: dict[str, Any] = {"delivery_timeout_ms": 400, "request_timeout_ms": 350, "linger_ms": 0}
    outcomes: dict[bytes | None, BaseException | None] = {}

    def outcomes_of(count: int) -> list[BaseException | None]:
        names = [b"%04d" % (len(outcomes) + number) for number in range(count)]
        deliveries = [producer.send(TOPIC, name) for name in names]
        found: list[BaseException | None] = [delivery.exception(SECONDS) for delivery in deliveries]
        outcomes.update(zip(names, found, strict=True))
        return found

    with producing(broker, **{**ONE_A_BATCH, **times}) as producer:
        for _ in range(rounds):
            until(lambda: outcomes_of(1) == [None])
            broker.hold_high_watermark(TOPIC, 0)
            assert {type(error) for error in outcomes_of(8)} == {KafkaTimeoutError}
            broker.hold_high_watermark(TOPIC, 0, False)
        until(lambda: outcomes_of(1) == [None])
    there = values(broker)
    assert there == sorted(set(outcomes) & set(there))  # type: ignore[type-var]
    for name, error in outcomes.items():
        if error is None:
            assert name in there
        elif name in there:
            assert isinstance(error, KafkaError) and error.possibly_persisted


def test_0117_a_storage_error_leads_to_the_new_leader() -> None:
    with Broker({TOPIC: 1}, nodes=2) as broker:
        with producing(broker, **QUICK) as producer:
            leader = producer.partitions_for(TOPIC)[0].leader

            def fail(request: Any) -> str:
                broker.intercept("Produce", None)
                broker.move_leader(TOPIC, 0, 1 - leader)
                return "KAFKA_STORAGE_ERROR"

            broker.intercept("Produce", fail)
            asked = requests_seen(broker, "Metadata")
            assert producer.send(TOPIC, b"value").result(SECONDS).offset == 0
            assert not asked.empty()
            assert producer.partitions_for(TOPIC)[0].leader == 1 - leader
        assert values(broker) == [b"value"]


def test_0123_idle_connection_closed_by_broker_is_no_error(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with warmed(broker, **QUICK) as producer, caplog.at_level(logging.WARNING, "kbatch"):
        for _ in range(3):
            broker.stop_node(0)
            broker.start_node(0)
            assert producer.send(TOPIC, b"next").exception(SECONDS) is None
    assert values(broker) == [b"first", *[b"next"] * 3]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("count", range(1, 6))
def test_0144_a_refusal_of_appended_batch_leaves_one_copy(broker: Broker, count: int) -> None:
    """librdkafka took what a broker said of the second attempt for fatal (#3584, #4438)."""
    with warmed(broker, **ONE_A_BATCH) as producer:
        timed_out = [Answer("REQUEST_TIMED_OUT") for _ in range(count)]
        codes = answering(broker, [*timed_out, Answer("NOT_ENOUGH_REPLICAS", appends=False)])
        check_all_there_once(broker, producer)
        assert (codes[0], len(codes)) == (0, count)


@pytest.mark.parametrize("count", range(1, 6))
def test_0144_d_gap_error_of_appended_batch_leaves_one_copy(broker: Broker, count: int) -> None:
    """No broker says that of a batch that it has: it is believed, and the delivery fails."""
    with warmed(broker, **ONE_A_BATCH) as producer:
        timed_out = [Answer("REQUEST_TIMED_OUT") for _ in range(count)]
        answering(broker, [*timed_out, Answer("OUT_OF_ORDER_SEQUENCE_NUMBER", appends=False)])
        deliveries = [producer.send(TOPIC, b"%d" % number) for number in range(20)]
        failures = [error for each in deliveries if (error := each.exception(SECONDS)) is not None]
        assert all(isinstance(each, OutOfOrderSequenceError) and each.possibly_persisted for each in failures)
        assert len(failures) <= 1
        assert values(broker) == [b"first", *(b"%d" % number for number in range(20))]


def test_0144_b_a_duplicate_is_a_success(broker: Broker) -> None:
    """A duplicate has the offset that the broker remembers, or none if it only reports a duplicate."""
    with warmed(broker, **ONE_A_BATCH) as producer:
        broker.drop_connection("Produce", "after")
        assert producer.send(TOPIC, b"0").result(SECONDS).offset == 1
        codes = answering(broker, [Answer("DUPLICATE_SEQUENCE_NUMBER")])
        assert producer.send(TOPIC, b"1").result(SECONDS).offset == -1
        assert codes == [0]
        assert producer.send(TOPIC, b"2").result(SECONDS).offset == 3
    assert values(broker) == [b"first", b"0", b"1", b"2"]


@pytest.mark.parametrize("count", [1, 20])
def test_0144_c_too_few_replicas_after_append_leave_one_copy(broker: Broker, count: int) -> None:
    with warmed(broker, **QUICK) as producer:
        codes = answering(broker, [Answer("NOT_ENOUGH_REPLICAS_AFTER_APPEND") for _ in range(count)])
        assert producer.send(TOPIC, b"once").result(SECONDS).offset == 1
        assert codes == [0] * count
    assert values(broker) == [b"first", b"once"]
