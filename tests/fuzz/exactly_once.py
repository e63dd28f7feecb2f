"""Consume-transform-produce under kills: the workers, their input, and their expected output.

A worker is docs/examples/consume_transform_produce.py, or `aborting_worker` that aborts besides. Whatever is
done to workers and broker, who reads the target at read_committed must find each record of the source once,
and those of a key in order.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests import ROOT
from tests.oracle.kafka import create_topic

EXAMPLE = (str(ROOT / "docs" / "examples" / "consume_transform_produce.py"),)
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
SOURCE, TARGET, GROUP = "source", "target", "workers"
PROGRESS_SECONDS, READ_SECONDS = 120.0, 0.1
# So that a client is back soon after the broker is.
EAGER: dict[str, Any] = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}


class Worker:
    """A process, from `start` to `kill` or `stop`, again and again under the same name."""

    def __init__(self, bootstrap_servers: str, name: str, program: tuple[str, ...] = EXAMPLE) -> None:
        given = {"bootstrap-servers": bootstrap_servers, "source": SOURCE, "target": TARGET}
        given |= {"group": GROUP, "name": name}
        options = [text for key, value in given.items() for text in (f"--{key}", value)]
        self._command = [sys.executable, *program, *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=ENVIRONMENT, stderr=subprocess.PIPE)

    def check(self) -> None:
        """Check that it still runs, if it should."""
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"the worker has ended: {self._process.communicate()[1].decode()}")

    def kill(self) -> None:
        """Kill the process as kill -9 does."""
        self.check()
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        self._process = None

    def stop(self) -> None:
        """End the worker cleanly."""
        assert self._process is not None
        self._process.terminate()
        _, text = self._process.communicate(timeout=PROGRESS_SECONDS)
        assert self._process.returncode == 0, text.decode()
        self._process = None

    def close(self) -> None:
        """Kill the process if it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class Task:
    """The input of the workers: numbered records, a key for each of the source's partitions."""

    def __init__(self, bootstrap_servers: str, partitions: int) -> None:
        self._servers = bootstrap_servers
        self._partitions = partitions
        self._given = 0
        for topic in (SOURCE, TARGET):
            create_topic(bootstrap_servers, topic, partitions)
        self._seen: dict[bytes | None, list[bytes | None]] = defaultdict(list)
        self._reader = self._new_reader()

    def close(self) -> None:
        self._reader.close()

    def give(self, count: int) -> None:
        """Send this many more records to each partition of the source."""
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True} | EAGER)
        for number in range(self._given, self._given + count):
            for partition in range(self._partitions):
                producer.produce(SOURCE, b"n %d" % number, b"key-%d" % partition, partition=partition)
            producer.poll(0)
        assert producer.flush(PROGRESS_SECONDS) == 0
        self._given += count

    @property
    def left_count(self) -> int:
        """Return the number of records that are not visible yet."""
        return self._given * self._partitions - sum(map(len, self._seen.values()))

    def await_progress(self, count: int, *workers: Worker) -> None:
        """Wait for this many more records, or all; check their order as they arrive."""
        wanted = max(self.left_count - count, 0)
        deadline = time.monotonic() + PROGRESS_SECONDS
        while self.left_count > wanted:
            for worker in workers:
                worker.check()
            assert time.monotonic() < deadline, f"no progress: {self.left_count} records are left"
            self._read(self._reader, self._seen)

    def audit(self, *workers: Worker) -> None:
        """Check that a running reader and a new reader see all records, once and in order."""
        self.await_progress(self.left_count, *workers)
        late: dict[bytes | None, list[bytes | None]] = defaultdict(list)
        reader = self._new_reader()
        ended: set[int | None] = set()
        deadline = time.monotonic() + PROGRESS_SECONDS
        while len(ended) < self._partitions:
            assert time.monotonic() < deadline, "the target has no end: a transaction is open"
            ended |= self._read(reader, late)
        reader.close()
        expected = [b"N %d" % number for number in range(self._given)]
        for found in (self._seen, late):
            assert found == {b"key-%d" % partition: expected for partition in range(self._partitions)}

    def _read(self, reader: Consumer, values: dict[bytes | None, list[bytes | None]]) -> set[int | None]:
        """Return the partitions that have come to their end."""
        ended = set()
        for message in reader.consume(10_000, timeout=READ_SECONDS):
            error = message.error()
            if error is None:
                of_key = values[message.key()]
                assert message.value() == b"N %d" % len(of_key), (message.value(), of_key[-1:])
                of_key.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return ended

    def _new_reader(self) -> Consumer:
        settings = {"bootstrap.servers": self._servers, "group.id": "readers", "enable.auto.commit": False}
        settings |= {"isolation.level": "read_committed", "enable.partition.eof": True, "check.crcs": True}
        reader = Consumer(settings | EAGER)
        reader.assign([TopicPartition(TARGET, number, 0) for number in range(self._partitions)])
        return reader
