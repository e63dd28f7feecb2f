"""Contestants take turns, each in its own process, on one broker. A record counts if its client reported
success and another client read it back.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self
from uuid import uuid4

from kbatch.bench.cluster import Cluster
from kbatch.bench.contents import Contents
from kbatch.bench.log_reader import Log, expected
from kbatch.bench.workload import FIRST_ROW, Row, Work, batch_records

KIB, MIB = 1 << 10, 1 << 20
BUFFER_MEMORY = 32 * MIB
# Equal for all; `settings` has the other clients' names.
SETTINGS: Mapping[str, object] = {
    "acks": "all",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 5,
    "compression.type": "lz4",
    "linger.ms": 5,
    "batch.size": 128 * KIB,
    "buffer.memory": BUFFER_MEMORY,
    "max.request.size": MIB,
    "send.buffer.bytes": -1,  # as large as the system lets it grow
}
# Records that a job sends in addition to the requested ones.
BEFORE: Mapping[str, Sequence[Row]] = {"load": [FIRST_ROW], "pace": [FIRST_ROW], "transact": []}

Answer = dict[str, Any]


class ContestError(RuntimeError):
    """A contestant ended, or did not do its job."""


class Driver:
    """A contestant's process, from entering the context to its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def command(self) -> list[str]:
        return [sys.executable, "-m", "kbatch.bench.driver", self.name]

    @property
    def process_id(self) -> int:
        return self._process.pid

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
            raise ContestError(f"{self.name} ended with status {self._process.wait()}")
        answer: Answer = json.loads(line)
        return answer


class Contest:
    """A new topic, and jobs for those that send to it. Leaving the context deletes the topic."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int, value_bytes: int = 100) -> None:
        self.cluster = cluster
        self.topic = f"kbatch-bench-{topic}-{uuid4().hex[:8]}"  # foreign clusters keep their data
        self.partitions = partitions
        self._texts = [(key.decode(), value.decode()) for key, value, _, _ in batch_records(value_bytes)]
        self.rows = [(key.encode(), value.encode()) for key, value in self._texts]
        self._known: dict[tuple[Any, ...], Contents] = {}
        self._access = {**cluster.security, "bootstrap.servers": cluster.bootstrap_servers}
        self.log = Log(self._access, self.topic, partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.delete()

    def asked(self, job: str, records: int, settings: Mapping[str, object], **rest: Any) -> dict[str, Any]:
        """Return the job as a driver reads it."""
        return {
            "job": job,
            "topic": self.topic,
            "rows": self._texts,
            "records": records,
            "settings": {**settings, **self._access},
            **rest,
        }

    def run(self, driver: Driver, job: Mapping[str, object]) -> Answer:
        return driver.ask(job)

    def ask(
        self, driver: Driver, job: str, records: int, settings: Mapping[str, object], **rest: Any
    ) -> Answer:
        """Run a job and return its measurements. Raise WrongLogError unless exactly these records are in the
        log; with `reported`, also at the reported offsets.
        """
        answer = self.run(driver, self.asked(job, records, settings, **rest))
        times = rest.get("transactions", 1)
        delivered = answer["delivered"]
        if delivered != records * times:
            raise ContestError(f"{driver.name} delivered {delivered} records of {records * times}")
        sent = times + 1 if job == "transact" else 1
        wanted = self._expected(job, sent, records, **rest)
        reported = answer.pop("reported", None)
        self.log.check(driver.name, wanted, reported and {p: tuple(found) for p, found in reported})
        return answer

    def work(self, records: int, **rest: Any) -> Work:
        """Return the records of a job."""
        return Work(self.rows, records)

    def _expected(self, job: str, times: int, records: int, **rest: Any) -> Contents:
        key = (job, times, records, *sorted(rest.items()))
        if key not in self._known:
            work = self.work(records, **rest)
            each: Iterator[Row] = itertools.chain.from_iterable(work.each() for _ in range(times))
            self._known[key] = expected(itertools.chain(BEFORE[job], each), self.partitions)
        return self._known[key]
