"""Producers in turn, each a process, into one real Kafka: what they are asked to send, and the proof that it
is there. A record counts when its callback told of success and the topic's end offsets moved by it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec  # type: ignore[attr-defined]

from benchmarks.workload import batch_rows
from tests.oracle.java import jars
from tests.oracle.kafka import RealKafka

KIB, MIB = 1 << 10, 1 << 20
BUFFER_MEMORY = 32 * MIB
# Equal for all; librdkafka's names of the same in benchmarks/driver.py.
SETTINGS: Mapping[str, object] = {
    "acks": "all",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 5,
    "compression.type": "lz4",
    "linger.ms": 5,
    "batch.size": 128 * KIB,
    "buffer.memory": BUFFER_MEMORY,
    "max.request.size": MIB,
}
JAVA = "Java, warm"
JAVA_OPTIONS = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
# Tests start faster without the second compiler, and need less memory.
BROKER_OPTIONS = ("-XX:TieredStopAtLevel=4", "-Xmx2g")
BROKER_PROPERTIES: Mapping[str, object] = {"broker.session.timeout.ms": 9000}  # it is made to stand still
# Kafka's controller takes up to 10,000 changes at a time (KafkaRaft's MAX_RECORDS_PER_USER_OP).
MOST_AT_ONCE = 5_000
START_SECONDS, POLL_SECONDS = 120.0, 0.1
IN_MEMORY = Path("/dev/shm")
ROOT = Path(__file__).parent.parent
JAVA_DRIVER = Path(__file__).with_name("Driver.java")

Answer = dict[str, Any]


@contextmanager
def kafka() -> Iterator[RealKafka]:
    """A broker whose logs are in memory where there is such a folder: no disk is to be measured."""
    folder = IN_MEMORY if IN_MEMORY.is_dir() else None
    with TemporaryDirectory(prefix="kbatch-logs-", dir=folder) as logs:
        properties = {**BROKER_PROPERTIES, "log.dirs": logs}
        with RealKafka(properties, java_options=BROKER_OPTIONS) as broker:
            yield broker


def listed(settings: Mapping[str, object]) -> str:
    """As key=value, the way Kafka writes them."""
    return ", ".join(f"{name}={json.dumps(value).strip(chr(34))}" for name, value in settings.items())


class Driver:
    """A contender's process, from entering the context to its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        command = [sys.executable, "-m", "benchmarks.driver", name]
        if name == JAVA:
            command = ["java", *JAVA_OPTIONS, "-cp", f"{jars()}/*", str(JAVA_DRIVER)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()

    def ask(self, job: Mapping[str, object]) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}")
        answer: Answer = json.loads(line)
        return answer


class Contest:
    """A new topic, and jobs for those who send to it."""

    def __init__(self, broker: RealKafka, topic: str, partitions: int) -> None:
        broker.create_topic(topic, min(partitions, MOST_AT_ONCE))
        self._address = {"bootstrap.servers": broker.bootstrap_servers}
        self._admin = self._new_admin()
        self._topic = topic
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._rows = [(key.decode(), value.decode()) for key, value, _, _ in batch_rows()]
        if partitions > MOST_AT_ONCE:
            self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        self._await_leaders()

    def ask(
        self, driver: Driver, job: str, records: int, settings: Mapping[str, object], **rest: Any
    ) -> Answer:
        """What it measured; AssertionError unless `records`, and the first, are proven to be in the log."""
        before = self._end_offsets()
        answer = driver.ask(
            {
                "job": job,
                "topic": self._topic,
                "rows": self._rows,
                "records": records,
                "settings": {**settings, **self._address},
                **rest,
            }
        )
        assert answer["delivered"] == records, f"{driver.name} delivered {answer['delivered']} of {records}"
        logged = self._end_offsets() - before
        assert logged == records + 1, f"of {driver.name} {logged} records are in the log, not {records} + 1"
        return answer

    def _new_admin(self) -> AdminClient:
        return AdminClient({**self._address, "log_level": 0})

    def _await_leaders(self) -> None:
        """Leaders that metadata know may not have heard of it themselves, and a client that has asked too
        early does not see new partitions.
        """
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self._admin = self._new_admin()
                self._end_offsets()
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def _end_offsets(self) -> int:
        """The sum of the high watermarks."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self._admin.list_offsets(dict.fromkeys(self._partitions, latest))
        return sum(found.result().offset for found in asked.values())
