"""100,000 records over sessions of 3 s: none is lost, doubled or out of order, and no batch is sent again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbatch import AsyncProducer, Producer
from tests.integration.ledger import Ledger
from tests.integration.security.site import SCRAM_256, Site
from tests.integration.security.test_sessions import (
    check_undisturbed,
    new_topic,
    short_settings,
    total,
    unless_disturbed,
)
from tests.support.patience import HANG_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.java]
PARTITIONS, RECORDS, SESSIONS = 4, 100_000, 4
CHUNK, PAUSE_SECONDS = 100, 0.03  # so that the records last for the sessions
SETTINGS = {"batch.size": 2000, "linger.ms": 1}


def chunks(producer: Any) -> Iterator[int]:
    """Yield chunks of records, until there are enough, over enough sessions."""
    deadline = time.monotonic() + HANG_SECONDS
    sent = 0
    while sent < RECORDS or total(producer, "successful-reauthentication") < SESSIONS:
        assert time.monotonic() < deadline
        sent += CHUNK * PARTITIONS
        yield CHUNK


def check(site: Site, producer: Any, ledger: Ledger) -> None:
    assert ledger.failed == {}
    assert ledger.check(site.broker.bootstrap_servers)["acknowledged"] >= RECORDS
    check_undisturbed(producer)


@unless_disturbed
def test_load_of_producer(site: Site) -> None:
    topic = new_topic(site, PARTITIONS)
    with Producer(short_settings(site, SCRAM_256) | SETTINGS) as producer:
        ledger = Ledger(producer, topic, PARTITIONS)
        pause = threading.Event()
        for chunk in chunks(producer):
            ledger.send(chunk)
            pause.wait(PAUSE_SECONDS)
        producer.flush(HANG_SECONDS)
        check(site, producer, ledger)


@unless_disturbed
def test_load_of_async_producer(site: Site) -> None:
    topic = new_topic(site, PARTITIONS)

    async def load(finish: Callable[[Any, Ledger], None]) -> None:
        async with AsyncProducer(short_settings(site, SCRAM_256) | SETTINGS) as producer:
            ledger = Ledger(producer, topic, PARTITIONS)  # type: ignore[arg-type]
            for chunk in chunks(producer):
                for value, arguments in ledger.records(chunk):
                    await producer.send(topic, value, **arguments)
                await asyncio.sleep(PAUSE_SECONDS)
            await producer.flush(HANG_SECONDS)
            finish(producer, ledger)

    asyncio.run(load(lambda producer, ledger: check(site, producer, ledger)))
