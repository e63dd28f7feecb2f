"""The table of contestants. To add one, write its class (see clients.py) and a row here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from kbatch.bench import clients
from kbatch.bench.settings import Settings
from kbatch.distribution import pip_install

JAVA = "Java, warm"
JARS_VARIABLE = "KBATCH_KAFKA_JARS"


@dataclass(frozen=True)
class Contestant:
    """A row: `needs` is a module, or a name in one; `share` is its fraction of the records, less for slow
    ones; `note` appears beside its figures.
    """

    client: Callable[[Settings], clients.Client] | None
    needs: str
    share: float = 1.0
    note: str = ""
    transactional: bool = False


def _of_asyncio(name: str) -> Callable[[Settings], clients.Client]:
    """Import a class of async_clients.py only here: other processes do without its memory."""

    def opened(settings: Settings) -> clients.Client:
        client: clients.Client = getattr(import_module("kbatch.bench.async_clients"), name)(settings)
        return client

    return opened


CONTESTANTS: dict[str, Contestant] = {
    "kbatch": Contestant(clients.Kbatch, "kbatch", 1.0, "send() with an on_delivery", transactional=True),
    "kbatch, no callbacks": Contestant(clients.KbatchSilent, "kbatch", 1.0, "send()"),
    "kbatch send_many": Contestant(clients.KbatchMany, "kbatch", 1.0, "10,000 records a call"),
    "kbatch send_table": Contestant(clients.KbatchTable, "pyarrow", 2.0, "one table"),
    "kbatch send_batch": Contestant(
        clients.KbatchBatches, "pyarrow", 2.0, "batches encoded before: the client's part is to send them"
    ),
    "kbatch AsyncProducer": Contestant(
        _of_asyncio("KbatchAsync"), "kbatch.AsyncProducer", 0.5, "awaits send() with an on_delivery"
    ),
    "confluent-kafka": Contestant(
        clients.Confluent,
        "confluent_kafka",
        1.0,
        f"produce() with an on_delivery, poll(0) every {clients.POLL_EVERY_RECORDS} records",
        transactional=True,
    ),
    "confluent-kafka, no callbacks": Contestant(clients.ConfluentSilent, "confluent_kafka", 1.0, "produce()"),
    "confluent-kafka produce_batch": Contestant(
        clients.ConfluentBatches,
        "confluent_kafka.Producer.produce_batch",
        1.0,
        "10,000 records a call, one on_delivery",
    ),
    "aiokafka": Contestant(_of_asyncio("Aiokafka"), "aiokafka", 0.05, "awaits send(), a callback a future"),
    "kafka-python": Contestant(clients.KafkaPython, "kafka", 0.05, "send() with a callback"),
    JAVA: Contestant(None, "java", 1.0, "send() with a callback, two rounds before", transactional=True),
}


def why_missing(name: str) -> str | None:
    """Return why a contestant cannot run here, or None if it can."""
    needed = CONTESTANTS[name].needs
    if name == JAVA:
        if shutil.which("java") is None:
            return "no `java` on PATH: install a JDK 17 or newer"
        if kafka_jars() is None:
            return f"no jars of Kafka: set {JARS_VARIABLE} to the libs folder of a Kafka distribution"
        return None
    module, _, names = needed.partition(".")
    if find_spec(module) is None:
        return f"no module {module!r}: {pip_install('bench')}"
    found: object = import_module(module) if names else None
    for each in names.split(".") if names else ():
        found = getattr(found, each, None)
    return f"this {module} has no {names}" if names and found is None else None


def kafka_jars() -> Path | None:
    """Return the folder of Kafka's jars: $KBATCH_KAFKA_JARS, or the one that the tests downloaded."""
    cache = Path(os.environ.get("KBATCH_CACHE") or Path.home() / ".cache" / "kbatch")
    given = os.environ.get(JARS_VARIABLE)
    folders = [Path(given)] if given else sorted(cache.glob("kafka-*"), reverse=True)
    return next((folder for folder in folders if list(folder.glob("kafka-clients-*.jar"))), None)
