"""Certificates whose reading blocks, as on a dead file system, and an `ssl.context` that does not return.

Limits hold meanwhile, errors name what is awaited, and the client goes on when it is over.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import kbatch
from kbatch import TopicPartition, TopicReader
from kbatch.errors import KafkaError, KafkaTimeoutError
from kbatch.network import tls
from kbatch.testing import Broker
from tests.support.patience import HANG_SECONDS, until
from tests.support.producing import within
from tests.support.shells import new_consumer, new_producer, new_share_consumer

TOPIC = "orders"
FIRST = TopicPartition(TOPIC, 0)
LIMIT_MS = 300
AWAITED = (
    r"the client still reads the certificates of ssl\.truststore\.location=.*ca\.pem|ssl\.context has not"
)


def feed(broker: Broker) -> None:
    with kbatch.Producer(broker.client_settings()) as producer:
        producer.send(TOPIC, b"")


class File:
    """A file of certificates that a FIFO without a writer replaces."""

    def __init__(self, folder: Path, pem: str) -> None:
        self._pem = pem
        self._path, self._fifo = folder / "ca.pem", folder / "fifo"
        self._path.write_text(pem)
        self.settings = {"ssl.truststore.location": str(self._path)}

    def block(self) -> None:
        os.mkfifo(self._fifo)
        self._path.unlink()
        self._path.hardlink_to(self._fifo)

    def unblock(self) -> None:
        """Put a file in place, and let readers of the FIFO find an empty one."""
        if self._fifo.exists():
            renewed = self._path.with_suffix(".new")
            renewed.write_text(self._pem)
            renewed.replace(self._path)
            descriptor = os.open(self._fifo, os.O_RDWR | os.O_NONBLOCK)  # which never waits
            os.write(descriptor, self._pem.encode())
            os.close(descriptor)
            self._fifo.unlink()


class Function:
    """A callable for ssl.context that blocks."""

    def __init__(self, folder: Path, pem: str) -> None:
        self._pem = pem
        self._goes_on = threading.Event()
        self.unblock()
        self.settings = {"ssl.context": self._context}

    def _context(self) -> ssl.SSLContext:
        self._goes_on.wait()
        return ssl.create_default_context(cadata=self._pem)

    def block(self) -> None:
        self._goes_on.clear()

    def unblock(self) -> None:
        self._goes_on.set()


class Sending:
    apis, limit = ("Produce",), {"timeout": 0.1}

    def __init__(self, broker: Broker, settings: dict[str, Any]) -> None:
        limits = {"delivery.timeout.ms": LIMIT_MS, "request.timeout.ms": LIMIT_MS - 100, "linger.ms": 0}
        self.client = new_producer({**settings, **limits})

    def use(self) -> bool:
        with contextlib.suppress(KafkaTimeoutError):  # of a busy machine
            self.client.send(TOPIC, b"more").result()
            return True
        return False

    def fail(self) -> None:
        with pytest.raises(KafkaTimeoutError, match=AWAITED):
            self.client.send(TOPIC, b"late").result()


class Consuming:
    apis, limit = ("Fetch", "ListOffsets"), {"timeout": 0.1}

    def __init__(self, broker: Broker, settings: dict[str, Any]) -> None:
        limits = {"default.api.timeout.ms": LIMIT_MS, "fetch.max.wait.ms": 10}
        self.client = new_consumer({**settings, **limits, "auto.offset.reset": "earliest"})
        self.client.assign([FIRST])

    def use(self) -> bool:
        self.client.seek(FIRST, 0)
        return bool(self.client.poll(0.01))

    def fail(self) -> None:
        with pytest.raises(KafkaTimeoutError, match=AWAITED):
            while True:  # until both connections have ended
                self.client.poll(0.01)
                self.client.seek_to_beginning([FIRST])
                self.client.position(FIRST)


class Reading:
    apis = ("Fetch",)
    limit: ClassVar[dict[str, float]] = {}

    def __init__(self, broker: Broker, settings: dict[str, Any]) -> None:
        self.client = TopicReader({**settings, "default.api.timeout.ms": LIMIT_MS})

    def use(self) -> bool:
        with contextlib.suppress(KafkaTimeoutError):
            return bool(list(self.client.read({FIRST: (0, 1)})))
        return False

    def fail(self) -> None:
        with pytest.raises(KafkaTimeoutError, match=AWAITED):
            list(self.client.read({FIRST: (0, 1)}))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({TOPIC: 1}, tls=True) as running:
        feed(running)
        yield running


@pytest.fixture(params=[File, Function])
def blocking(
    request: pytest.FixtureRequest, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[File | Function]:
    monkeypatch.setattr(tls, "_LOOK_NS", 0)
    made = request.param(tmp_path, broker.authority_pem)
    yield made
    made.unblock()


def settings_of(broker: Broker, blocking: File | Function) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SSL",
        "reconnect.backoff.ms": 1,
        "reconnect.backoff.max.ms": 10,
        **blocking.settings,
    }


def until_used(used: Any) -> None:
    until(used.use)


@pytest.mark.slow
@pytest.mark.parametrize("use", [Sending, Consuming])
def test_client_fails_in_time_goes_on_and_ends(
    broker: Broker, shell: str, blocking: File | Function, use: Callable[[Broker, dict[str, Any]], Any]
) -> None:
    check(broker, blocking, use)


def test_reader_fails_in_time_goes_on_and_ends(broker: Broker, blocking: File | Function) -> None:
    check(broker, blocking, Reading)


def test_share_consumer_polls_and_ends_in_time(shell: str, blocking: File | Function) -> None:
    keys = {name.replace(".", "_"): value for name, value in blocking.settings.items()}
    consumer = new_share_consumer(
        bootstrap_servers="127.0.0.1:1", group_id="g", security_protocol="SSL", reconnect_backoff_ms=1, **keys
    )
    blocking.block()
    consumer.subscribe([TOPIC])
    assert within(lambda: consumer.poll(0.1)).result(HANG_SECONDS) == []
    within(lambda: consumer.close(timeout=0.1)).result(HANG_SECONDS)


def check(broker: Broker, blocking: File | Function, use: Callable[[Broker, dict[str, Any]], Any]) -> None:
    used = use(broker, settings_of(broker, blocking))
    until_used(used)
    for ends in (False, True):
        blocking.block()
        for api in used.apis:
            broker.drop_connection(api)
        within(used.fail).result(HANG_SECONDS)
        if not ends:
            blocking.unblock()
            until_used(used)
    with contextlib.suppress(KafkaError):
        within(lambda: used.client.close(**used.limit)).result(HANG_SECONDS)
