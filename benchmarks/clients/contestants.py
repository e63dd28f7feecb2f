"""The table of contestants: those of `kbatch bench`, more ways to use them, and Java's client."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import kbatch.bench.contestants
from benchmarks.clients import free_threads, producers
from kbatch.bench.contestants import Contestant

JAVA = "Java, warm"
JARS_VARIABLE = "KBATCH_KAFKA_JARS"
_PYTHON = kbatch.bench.contestants.CONTESTANTS
_MORE: dict[str, dict[str, Contestant]] = {
    "kbatch": {
        **dict.fromkeys(free_threads.both("kbatch"), _PYTHON["kbatch"]),
        "kbatch, no callbacks": Contestant(producers.KbatchSilent, "kbatch", 1.0, "send()"),
        "kbatch send_many": Contestant(producers.KbatchMany, "kbatch", 1.0, "10,000 records a call"),
        "kbatch send_table": Contestant(producers.KbatchTable, "pyarrow", 2.0, "one table"),
        "kbatch send_batch": Contestant(
            producers.KbatchBatches,
            "pyarrow",
            2.0,
            "batches encoded before: the client's part is to send them",
        ),
    },
    "confluent-kafka": {
        "confluent-kafka, no callbacks": Contestant(
            producers.ConfluentSilent, "confluent_kafka", 1.0, "produce()"
        ),
        "confluent-kafka produce_batch": Contestant(
            producers.ConfluentBatches,
            "confluent_kafka.Producer.produce_batch",
            1.0,
            "10,000 records a call, one on_delivery",
        ),
    },
}
# In the order of the pages.
CONTESTANTS: dict[str, Contestant] = {
    name: row for first, own in _PYTHON.items() for name, row in {first: own, **_MORE.get(first, {})}.items()
} | {JAVA: Contestant(None, "java", 1.0, "send() with a callback, two rounds before", transactional=True)}


def why_missing(name: str) -> str | None:
    """Return why a contestant cannot run here, or None if it can."""
    if name != JAVA:
        return free_threads.why_missing(name) or kbatch.bench.contestants.why_missing(CONTESTANTS[name])
    if shutil.which("java") is None:
        return "no `java` on PATH: install a JDK 17 or newer"
    if kafka_jars() is None:
        return f"no jars of Kafka: set {JARS_VARIABLE} to the libs folder of a Kafka distribution"
    return None


def kafka_jars() -> Path | None:
    """Return the folder of Kafka's jars: $KBATCH_KAFKA_JARS, or the one that the tests downloaded."""
    cache = Path(os.environ.get("KBATCH_CACHE") or Path.home() / ".cache" / "kbatch")
    given = os.environ.get(JARS_VARIABLE)
    folders = [Path(given)] if given else sorted(cache.glob("kafka-*"), reverse=True)
    return next((folder for folder in folders if list(folder.glob("kafka-clients-*.jar"))), None)
