"""A broker that forgot the producer's id while it was idle, and a batch that is refused just then.

A leader without state of a producer id takes any sequence. So when two batches are pipelined and the first is
refused, it takes the second, and that proves nothing about the first.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

import kbatch.testing
from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.integration.cutting_proxy import CuttingProxy
from tests.integration.ledger import read_all
from tests.integration.scenarios import Wire
from tests.oracle.kafka import RealKafka
from tests.support.effort import REAL
from tests.support.patience import HANG_SECONDS, until
from tests.support.shells import new_producer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shell")]

# Between two questions whether the real broker has forgotten.
POLL_SECONDS = 0.05
# Well below what the real broker takes to forget.
SHORT_IDLE_MS = 500
WARM = [b"warm 0", b"warm 1", b"warm 2"]
_numbers = itertools.count()


class Forgetful(NamedTuple):
    """A broker, and what makes it forget the producers of a topic's first partition."""

    bootstrap_servers: str
    create_topic: Callable[[str], object]
    forget: Callable[[str], object]


@contextmanager
def embedded() -> Iterator[Forgetful]:
    with kbatch.testing.Broker() as broker:

        def forget(topic: str) -> None:
            time.sleep(SHORT_IDLE_MS / 1000)  # the pause itself; the real broker takes longer to forget
            broker.forget_producers(topic, 0)

        yield Forgetful(broker.bootstrap_servers, lambda topic: broker.create_topic(topic, 1), forget)


@contextmanager
def real() -> Iterator[Forgetful]:
    settings = {"producer.id.expiration.ms": 1000, "producer.id.expiration.check.interval.ms": 100}
    with RealKafka(settings) as broker:
        address = broker.bootstrap_servers
        yield Forgetful(address, broker.create_topic, lambda topic: await_forgotten(address, topic))


def await_forgotten(bootstrap_servers: str, topic: str) -> None:
    request = messages.DescribeProducersRequest
    question = request(topics=[request.TopicRequest(name=topic, partition_indexes=[0])])
    with Wire(bootstrap_servers, "forgotten") as wire:
        until(
            lambda: not wire.ask(question).topics[0].partitions[0].active_producers,
            "that the broker forgets",
            pause_seconds=POLL_SECONDS,
        )


@pytest.fixture(scope="module", params=["embedded", REAL])
def broker(request: pytest.FixtureRequest) -> Iterator[Forgetful]:
    if request.param == "real":
        request.getfixturevalue("java_jars")
    with {"embedded": embedded, "real": real}[request.param]() as made:
        yield made


def test_batch_taken_by_forgetful_broker_proves_no_refused_batch(broker: Forgetful) -> None:
    topic = f"forgetful-{next(_numbers)}"
    broker.create_topic(topic)
    with (
        CuttingProxy(broker.bootstrap_servers, "none", cuts=0) as proxy,
        new_producer(bootstrap_servers=proxy.bootstrap_servers, linger_ms=0, batch_size=0) as producer,
    ):
        for value in WARM:
            producer.send(topic, value).result(HANG_SECONDS)
        broker.forget(topic)
        proxy.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, once_followed=True)
        refused, accepted = producer.send(topic, b"a"), producer.send(topic, b"b")
        assert accepted.result(HANG_SECONDS).offset == len(WARM)
        assert refused.exception(HANG_SECONDS) is not None
        assert producer.send(topic, b"c").result(HANG_SECONDS).offset == len(WARM) + 1
    (records,) = read_all(broker.bootstrap_servers, topic, 1)
    assert [record.value for record in records] == [*WARM, b"b", b"c"]


def test_first_batch_after_a_pause_is_sent_alone(broker: Forgetful) -> None:
    topic = f"forgetful-{next(_numbers)}"
    broker.create_topic(topic)
    settings = {"kbatch.sequence.idle.ms": SHORT_IDLE_MS, "linger.ms": 0, "batch.size": 0}
    with (
        CuttingProxy(broker.bootstrap_servers, "none", cuts=0) as proxy,
        new_producer({"bootstrap.servers": proxy.bootstrap_servers, **settings}) as producer,
    ):
        for value in WARM:
            producer.send(topic, value).result(HANG_SECONDS)
        broker.forget(topic)
        proxy.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, once_followed=False)
        deliveries = [producer.send(topic, value) for value in (b"a", b"b", b"c")]
        offsets = [delivery.result(HANG_SECONDS).offset for delivery in deliveries]
    assert offsets == [len(WARM), len(WARM) + 1, len(WARM) + 2]
    (records,) = read_all(broker.bootstrap_servers, topic, 1)
    assert [record.value for record in records] == [*WARM, b"a", b"b", b"c"]
