"""Contests with Java's client too, of which broker and wire are watched from outside."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import kbatch.bench.contest
from benchmarks.clients.contestants import CONTESTANTS, JAVA, kafka_jars, why_missing
from benchmarks.clients.free_threads import interpreter_of
from benchmarks.clients.probes import cpu_ns_of, wire_bytes
from benchmarks.clients.work import Work
from kbatch import partition_for_key
from kbatch.bench.contest import Answer, ContestError
from kbatch.bench.workload import FIRST_ROW

JAVA_OPTIONS = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
JAVA_DRIVER = Path(__file__).with_name("Driver.java")


class Driver(kbatch.bench.contest.Driver):
    """The process of a contestant that may be Java's client, or a way to read."""

    def command(self) -> list[str]:
        if self.name == JAVA:
            return ["java", *JAVA_OPTIONS, "-cp", f"{kafka_jars()}/*", str(JAVA_DRIVER)]
        interpreter = interpreter_of(self.name) or [sys.executable]
        return [*interpreter, "-m", "benchmarks.clients.driver", self.name]


class Contest(kbatch.bench.contest.Contest):
    """A contest that measures the broker's processor time and the bytes on the wire."""

    def run(self, driver: kbatch.bench.contest.Driver, job: Mapping[str, object]) -> Answer:
        broker_ns, sent_bytes = cpu_ns_of(self.cluster.process_id), wire_bytes()
        answer = super().run(driver, job)
        answer["broker_ns"] = _since(broker_ns, cpu_ns_of(self.cluster.process_id))
        answer["wire_bytes"] = _since(sent_bytes, wire_bytes())
        return answer

    def ask_crowd(
        self, driver: Driver, settings: Mapping[str, object], *, producers: int, chunk: int, **rest: Any
    ) -> Answer:
        """Run a job like `ask` for senders that send as often as they can, `chunk` records at a time."""
        answer = driver.ask(self.asked("crowd", chunk, settings, chunk=chunk, producers=producers, **rest))
        sent = sum(answer["sent"])
        if answer["delivered"] != sent:
            raise ContestError(f"{driver.name} delivered {answer['delivered']} records of {sent}")
        times = {FIRST_ROW: producers}
        for row in self.work(chunk).each():
            times[row] = times.get(row, 0) + sent // chunk
        places = {row: partition_for_key(row[0], self.partitions) for row in times}
        wanted = {(places[row], row): count for row, count in times.items() if count}
        self.log.check_any_order(driver.name, Counter(wanted))
        return answer

    def work(self, records: int, **rest: Any) -> Work:
        return Work(self.rows, records, bool(rest.get("different_keys")))


def _since(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def able(names: Iterable[str], why: Callable[[str], str | None] = why_missing) -> list[str]:
    """Return the contestants that can run here; print the reasons of the others to stderr."""
    found = []
    for name in names:
        reason = why(name)
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
