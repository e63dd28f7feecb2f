"""Contestants take turns, each in its own process, on one broker. A record counts if its client reported
success and another client read it back.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from kbatch._native.codec.hashes import partition_for_key
from kbatch.bench.cluster import Cluster
from kbatch.bench.contents import Contents
from kbatch.bench.contestants import CONTESTANTS, JAVA, kafka_jars, why_missing
from kbatch.bench.log_reader import Log, expected
from kbatch.bench.probes import cpu_ns_of, wire_bytes
from kbatch.bench.work import FIRST_ROW, Row, Work
from kbatch.bench.workload import batch_rows

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
JAVA_OPTIONS = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
JAVA_DRIVER = Path(__file__).with_name("Driver.java")
# Records that a job sends in addition to the requested ones.
BEFORE: Mapping[str, Sequence[Row]] = {"load": [FIRST_ROW], "pace": [FIRST_ROW], "transact": []}

Answer = dict[str, Any]


class ContestError(RuntimeError):
    """A contestant ended, or did not do its job."""


class Driver:
    """A contestant's process, from entering the context to its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        command = [sys.executable, "-m", "kbatch.bench.driver", name]
        if name == JAVA:
            command = ["java", *JAVA_OPTIONS, "-cp", f"{kafka_jars()}/*", str(JAVA_DRIVER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

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
        self._cluster = cluster
        self._topic = f"kbatch-bench-{topic}-{uuid4().hex[:8]}"  # foreign clusters keep their data
        self._partitions = partitions
        self._rows = [(key.decode(), value.decode()) for key, value, _, _ in batch_rows(value_bytes)]
        self._known: dict[tuple[Any, ...], Contents] = {}
        self._access = {**cluster.security, "bootstrap.servers": cluster.bootstrap_servers}
        self._log = Log(self._access, self._topic, partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.delete()

    def ask(
        self, driver: Driver, job: str, records: int, settings: Mapping[str, object], **rest: Any
    ) -> Answer:
        """Run a job and return its measurements, with the broker's processor time and the bytes on the wire.
        Raise WrongLogError unless exactly these records are in the log; with `reported`, also at the reported
        offsets.
        """
        asked = {
            "job": job,
            "topic": self._topic,
            "rows": self._rows,
            "records": records,
            "settings": {**settings, **self._access},
            **rest,
        }
        broker_ns, sent_bytes = cpu_ns_of(self._cluster.process_id), wire_bytes()
        answer = driver.ask(asked)
        answer["broker_ns"] = _since(broker_ns, cpu_ns_of(self._cluster.process_id))
        answer["wire_bytes"] = _since(sent_bytes, wire_bytes())
        times = rest.get("transactions", 1)
        delivered = answer["delivered"]
        if delivered != records * times:
            raise ContestError(f"{driver.name} delivered {delivered} records of {records * times}")
        sent = times + 1 if job == "transact" else 1
        wanted = self._expected(job, records, sent, bool(rest.get("different_keys")))
        reported = answer.pop("reported", None)
        self._log.check(driver.name, wanted, reported and {p: tuple(found) for p, found in reported})
        return answer

    def ask_crowd(
        self, driver: Driver, settings: Mapping[str, object], *, producers: int, chunk: int, **rest: Any
    ) -> Answer:
        """Run a job like `ask` for senders that send as often as they can, `chunk` records at a time."""
        asked = {
            "job": "crowd",
            "topic": self._topic,
            "rows": self._rows,
            "records": chunk,
            "chunk": chunk,
            "producers": producers,
            "settings": {**settings, **self._access},
            **rest,
        }
        answer = driver.ask(asked)
        sent = sum(answer["sent"])
        if answer["delivered"] != sent:
            raise ContestError(f"{driver.name} delivered {answer['delivered']} records of {sent}")
        each = Work([(key.encode(), value.encode()) for key, value in self._rows], chunk).each()
        times = {FIRST_ROW: producers}
        for row in each:
            times[row] = times.get(row, 0) + sent // chunk
        partitions = {row: partition_for_key(row[0], self._partitions) for row in times}
        wanted = {(partitions[row], row): count for row, count in times.items() if count}
        self._log.check_any_order(driver.name, Counter(wanted))
        return answer

    def _expected(self, *asked: Any) -> Contents:
        if asked not in self._known:
            job, records, times, different_keys = asked
            rows = [(key.encode(), value.encode()) for key, value in self._rows]
            work = Work(rows, records, different_keys)
            each = itertools.chain.from_iterable(work.each() for _ in range(times))
            self._known[asked] = expected(itertools.chain(BEFORE[job], each), self._partitions)
        return self._known[asked]


def _since(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def able(names: Iterable[str]) -> list[str]:
    """Return the contestants that can run here; print the reasons of the others to stderr."""
    found = []
    for name in names:
        reason = why_missing(name)
        if reason is None:
            found.append(name)
        else:
            print(f"{name} does not take part: {reason}", file=sys.stderr)
    return found


@contextmanager
def drivers_of(names: Iterable[str]) -> Iterator[list[Driver]]:
    """Start a process for each."""
    with ExitStack() as stack:
        yield [stack.enter_context(Driver(name)) for name in names]


def records_for(name: str, records: int) -> int:
    """Return a contestant's share of a contest's records."""
    return max(1000, int(records * CONTESTANTS[name].share))
