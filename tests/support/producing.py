"""Helpers of producer tests: a broker, producers on it, and how to see that a caller waits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from kbatch import (
    Admin,
    Consumer,
    Delivery,
    DeliveryError,
    KafkaTimeoutError,
    Producer,
    RecordMetadata,
    TopicReader,
)
from kbatch.testing import Broker
from tests.support.patience import HANG_MS, HANG_SECONDS, repeat_while
from tests.support.shells import new_producer

TOPIC = "events"
SECONDS = HANG_SECONDS
SECONDS_MS = HANG_MS
TIME_MS = 1_700_000_000_000
TRANSACTIONAL_ID = "orders"
LINGERING = {"linger_ms": 600_000, "delivery_timeout_ms": 2**31 - 1}  # so that nothing goes before a flush
ONCE = {"retries": 0, "enable_idempotence": False}  # so that the first error of a broker is the last
# The tests run on brokers of either transaction version: the fixture `broker` depends on `version`.
EITHER_VERSION = pytest.mark.parametrize("version", [1, 2], ids=["TV1", "TV2"], indirect=True)
CallbackArguments = tuple[RecordMetadata, BaseException | None]


@contextlib.contextmanager
def producing(broker: Broker, knows: Iterable[str] = (), /, **keys: Any) -> Iterator[Producer]:
    """Make a producer that is closed at once, without raising failed deliveries.

    It has the metadata of the topics that it `knows`, however short max.block.ms is and busy the machine.
    """
    producer = new_producer(bootstrap_servers=broker.bootstrap_servers, **({"linger_ms": 0} | keys))
    try:
        know(producer, *knows)
        yield producer
    finally:
        with contextlib.suppress(DeliveryError):
            producer.close(timeout=0)


def transactional(broker: Broker, **keys: Any) -> contextlib.AbstractContextManager[Producer]:
    return producing(broker, **({"transactional_id": TRANSACTIONAL_ID, "retry_backoff_ms": 1} | keys))


def sent(producer: Producer, *names: str, **rest: Any) -> list[Delivery]:
    return [producer.send(TOPIC, name.encode(), **rest) for name in names]


def begin(producer: Producer, *names: str) -> None:
    """Begin the first transaction of a producer, and send some records."""
    producer.init_transactions()
    producer.begin_transaction()
    sent(producer, *names)


def values(broker: Broker, partition: int | None = None, topic: str = TOPIC) -> list[bytes | None]:
    return [record.value for record in broker.records(topic, partition)]


def committed(broker: Broker) -> list[bytes | None]:
    return sorted(values(broker))  # type: ignore[type-var]


def know(producer: Producer, *topics: str) -> None:
    """Get the metadata of topics, however short max.block.ms is and busy the machine."""
    for topic in topics:
        repeat_while(KafkaTimeoutError, partial(producer.partitions_for, topic))


def within(function: Callable[[], Any]) -> Future[Any]:
    """Call a function on another thread, and return its Future."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


def advance(broker: Broker, seconds: float) -> None:
    """Let time pass for the broker alone: its sessions and transactions expire, no deadlines of clients."""
    assert broker._server is not None
    broker._server._clock_offset += seconds
    broker._call(lambda core: None)  # after which what is due is done


def requests_seen(broker: Broker, api: str = "Produce") -> SimpleQueue[Any]:
    """Return a queue of all later requests of the API."""
    seen: SimpleQueue[Any] = SimpleQueue()
    broker.intercept(api, seen.put)
    return seen


def metric(
    client: Producer | Consumer[Any, Any] | TopicReader[Any, Any] | Admin,
    name: str,
    group: str = "producer-metrics",
) -> float:
    (value,) = (value for key, value in client.metrics().items() if (key.name, key.group) == (name, group))
    return value


def waits_for_memory(producer: Producer, count: int = 1) -> Callable[[], bool]:
    return lambda: metric(producer, "waiting-threads") == count


class CallbackLog:
    """An on_delivery that keeps its arguments."""

    def __init__(self) -> None:
        self.noted: list[CallbackArguments] = []
        self._came: SimpleQueue[CallbackArguments] = SimpleQueue()

    def __call__(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.noted.append((metadata, error))
        self._came.put((metadata, error))

    def next(self) -> CallbackArguments:
        return self._came.get(timeout=SECONDS)
