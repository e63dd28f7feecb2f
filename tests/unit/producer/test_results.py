"""result(): the thread that waits for a record completes it, and callbacks stay whole."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from kbatch import KafkaTimeoutError, Producer, RecordMetadata
from kbatch.testing import Broker
from tests.support.producing import SECONDS, TOPIC, producing, within

ROUNDS = 200
SHORT_SECONDS = 0.01
ANSWER_SECONDS = 0.001


@contextmanager
def busy_callback(producer: Producer) -> Iterator[None]:
    """Keep the thread of callbacks busy."""
    begun, over = threading.Event(), threading.Event()

    def call(metadata: RecordMetadata, error: BaseException | None) -> None:
        begun.set()
        over.wait(SECONDS)

    producer.send(TOPIC, b"busy", partition=0, on_delivery=call)
    assert begun.wait(SECONDS)
    try:
        yield
    finally:
        over.set()


def test_threads_wait_for_one_record_beside_a_busy_callback(broker: Broker) -> None:
    called: list[int] = []
    with producing(broker) as producer:
        with busy_callback(producer):
            for number in range(1, 20):
                broker.hold_high_watermark(TOPIC, 0)
                delivery = producer.send(
                    TOPIC,
                    b"",
                    partition=0,
                    on_delivery=lambda metadata, error: called.append(metadata.offset),
                )
                waiting = [within(partial(delivery.result, SECONDS)) for _ in range(2)]
                for _ in range(2):  # the first thread that waits may give up, and come again
                    with pytest.raises(KafkaTimeoutError):
                        delivery.result(SHORT_SECONDS)
                waiting.append(within(partial(delivery.result, SECONDS)))
                broker.hold_high_watermark(TOPIC, 0, False)
                assert {each.result(SECONDS).offset for each in waiting} == {number}
                assert delivery.result(0).offset == number
            assert called == []
        producer.flush(SECONDS)
    assert called == list(range(1, 20))


def test_first_waiter_that_gave_up_is_not_relied_on(broker: Broker) -> None:
    with producing(broker) as producer:
        for number in range(20):
            broker.hold_high_watermark(TOPIC, 0)
            delivery = producer.send(TOPIC, b"", partition=0)
            with pytest.raises(KafkaTimeoutError):
                delivery.result(SHORT_SECONDS)
            flushing = within(partial(producer.flush, SECONDS))
            broker.hold_high_watermark(TOPIC, 0, False)
            flushing.result(SECONDS)
            assert delivery.result(0).offset == number


def test_interrupted_results_lose_no_callback(broker: Broker) -> None:
    called: list[int] = []
    interrupted = 0
    armed = False
    begun = threading.Event()

    def interrupt(number: int, frame: object) -> None:
        if armed:
            raise KeyboardInterrupt

    def kill(delay_seconds: float) -> None:
        begun.wait(SECONDS)
        time.sleep(delay_seconds)  # a moment of the round
        signal.pthread_kill(main, signal.SIGUSR1)

    main = threading.get_ident()
    moments = random.Random(7)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        broker.delay("Produce", ANSWER_SECONDS)
        with producing(broker) as producer:
            for _ in range(ROUNDS):
                delivery = producer.send(
                    TOPIC,
                    b"",
                    partition=0,
                    on_delivery=lambda metadata, error: called.append(metadata.offset),
                )
                begun = threading.Event()
                killing = within(partial(kill, moments.uniform(0, 2 * ANSWER_SECONDS)))
                armed = True
                begun.set()
                try:
                    delivery.result(SECONDS)
                    armed = False
                except KeyboardInterrupt:
                    armed = False
                    interrupted += 1
                killing.result(SECONDS)
                delivery.result(SECONDS)
            producer.flush(SECONDS)
    finally:
        armed = False
        signal.signal(signal.SIGUSR1, before)
    assert called == list(range(ROUNDS))
    assert interrupted
