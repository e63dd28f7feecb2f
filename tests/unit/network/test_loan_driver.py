"""Turns of a lane that an owner drives by hand: under TLS, with kbatch.lane=python, and on event loops."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.errors import InvalidRecordError
from kbatch.testing import Broker
from tests.support.patience import HANG_SECONDS, until
from tests.support.producing import metric
from tests.support.shells import new_producer

pytestmark = pytest.mark.usefixtures("shell")

ROUNDS = 20  # that records may take which are sent one by one; the engine would take two for each of 100


@pytest.fixture(params=["python", "tls"])
def served(request: pytest.FixtureRequest) -> Any:
    """Yield a broker and the settings of a producer whose lane is driven by hand."""
    with Broker(topics={"t": 2}, tls=request.param == "tls") as broker:
        settings = broker.client_settings() | {"linger.ms": 0, "kbatch.lane": "python"}
        yield broker, settings


def rounds_of(producer: Any) -> int:
    rounds: int = producer._runtime.network.round_count
    return rounds


def test_usual_records_need_no_round_of_the_engine(served: Any) -> None:
    broker, settings = served
    with new_producer(settings) as producer:
        for _ in range(3):
            producer.send("t", b"", partition=0).result(HANG_SECONDS)
        before = rounds_of(producer)
        offsets = [producer.send("t", b"", partition=0).result(HANG_SECONDS).offset for _ in range(100)]
        assert rounds_of(producer) - before <= ROUNDS
    assert offsets == list(range(3, 103))
    assert len(broker.records("t", 0)) == 103


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_full_batches_are_all_there_in_order(served: Any, codec: str) -> None:
    broker, settings = served
    values = [b"%d" % number * 100 for number in range(3_000)]
    with new_producer(settings | {"compression.type": codec, "batch.size": 4096}) as producer:
        for value in values:
            producer.send("t", value, partition=0)
        producer.flush(HANG_SECONDS)
    assert [record.value for record in broker.records("t", 0)] == values


def test_unusual_answers_are_the_engines(served: Any) -> None:
    broker, settings = served
    with new_producer(settings) as producer:
        producer.send("t", b"first", partition=0).result(HANG_SECONDS)
        broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
        producer.send("t", b"again", partition=0).result(HANG_SECONDS)
        broker.fail_next("Produce", "INVALID_RECORD")
        refused = producer.send("t", b"refused", partition=0).exception(HANG_SECONDS)
        producer.send("t", b"last", partition=0).result(HANG_SECONDS)
    assert isinstance(refused, InvalidRecordError)
    assert [record.value for record in broker.records("t", 0)] == [b"first", b"again", b"last"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_connection_loses_nothing(served: Any, when: str) -> None:
    broker, settings = served
    with new_producer(settings) as producer:
        producer.send("t", b"first", partition=0).result(HANG_SECONDS)
        broker.drop_connection("Produce", when=when)
        deliveries = [producer.send("t", b"%d" % number, partition=number % 2) for number in range(50)]
        assert all(delivery.exception(HANG_SECONDS) is None for delivery in deliveries)
    assert len(broker.records("t", 0)) + len(broker.records("t", 1)) == 51


def test_requests_without_answers_are_done_when_written(served: Any) -> None:
    _, settings = served
    with new_producer(settings | {"acks": 0}) as producer:
        for _ in range(30):
            assert producer.send("t", b"x", partition=0).result(HANG_SECONDS).offset == -1


def test_requests_in_flight_are_counted_once(served: Any) -> None:
    """Though they are taken back from the lane, and lent again, several times."""

    def end_turns(request: Any) -> None:
        for _ in range(3):
            end_turn()

    def end_turn() -> None:
        before = rounds_of(producer)
        producer._runtime.network.wake()
        until(lambda: rounds_of(producer) > before)

    broker, settings = served
    with new_producer(settings) as producer:
        producer.send("t", b"", partition=0).result(HANG_SECONDS)
        broker.intercept("Produce", end_turns)
        for _ in range(10):
            producer.send("t", b"", partition=0).result(HANG_SECONDS)
        assert metric(producer, "requests-in-flight") == 0
    assert len(broker.records("t", 0)) == 11


@pytest.mark.parametrize("lane", ["auto", "python", "tls"])
def test_a_node_without_produce_stops_no_other(lane: str) -> None:
    with Broker(topics={"t": 2}, nodes=2, tls=lane == "tls") as broker:
        broker.move_leader("t", 0, 0)
        broker.move_leader("t", 1, 1)
        settings = broker.client_settings() | {"linger.ms": 0}
        if lane == "python":
            settings["kbatch.lane"] = "python"
        with new_producer(settings) as producer:
            producer.send("t", b"first", partition=1).result(HANG_SECONDS)
            broker.hide_requests(1, "Produce")
            broker.drop_connection("Produce", when="before")
            waits = producer.send("t", b"waits", partition=1)
            for _ in range(30):
                producer.send("t", b"goes", partition=0).result(HANG_SECONDS)
            assert not waits.done()
            broker.hide_requests(1)
            assert waits.result(HANG_SECONDS).offset == 1
