"""Topics to which stamped records go at a pace, while drivers follow them (the job `follow` of driver.py).

Before the records that count come LEAD_RECORDS others, which drivers read when they have opened. A file says
that a driver has them and has begun to measure; then the others follow.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self
from uuid import uuid4

from confluent_kafka import Producer

from benchmarks.clients.contest import Driver, able
from benchmarks.clients.counted import CountedDriver, Marks
from benchmarks.clients.followers import FOLLOWERS, STAMP
from kbatch import Admin
from kbatch.bench.contest import Answer, ContestError

VALUE_BYTES = 100
LEAD_RECORDS = 100


@dataclass(frozen=True)
class Pace:
    """How fast records come: `per_second` for `seconds`. 0 is one record, after `seconds` without any."""

    per_second: float
    seconds: float

    @property
    def records(self) -> int:
        return max(round(self.per_second * self.seconds), 1)

    @property
    def interval_ns(self) -> int:
        return int((1 / self.per_second if self.per_second else self.seconds) * 1e9)


def able_to_follow(names: Iterable[str]) -> list[str]:
    """Return the followers that can run here, Java's among them; print the others to stderr."""
    found = []
    for name in names:
        needed = FOLLOWERS[name].needs if name in FOLLOWERS else None
        if needed is None:
            found += able([name])
        elif find_spec(needed) is None:
            print(f"{name} does not take part: no module {needed!r}", file=sys.stderr)
        else:
            found.append(name)
    return found


class PacedTopic:
    """A new topic; leaving the context deletes it.

    Parameters
    ----------
    bootstrap_servers : str
        Those of a listener without security.
    partitions : int
        Records go to them in turn.
    """

    def __init__(self, bootstrap_servers: str, partitions: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._admin = Admin(bootstrap_servers=bootstrap_servers)
        self._topic = f"kbatch-bench-pace-{uuid4().hex[:8]}"
        self._ends = [0] * partitions
        self._number = 0  # of records so far

    def __enter__(self) -> Self:
        self._admin.topics.create(self._topic, partitions=len(self._ends))
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.topics.delete(self._topic)
        self._admin.close()

    def follow(
        self, driver: Driver, pace: Pace, access: Mapping[str, str] | None = None, **job: object
    ) -> Answer:
        """Let a driver follow the topic while records are sent. `access` has the settings by which it reaches
        the cluster, and `job` more fields of its job.
        """
        with TemporaryDirectory(prefix="kbatch-pace-") as folder:
            marks = Marks(Path(folder), driver.name)
            asked = self._asked(pace.records, access, **job, marks=marks.after(LEAD_RECORDS))
            sender = threading.Thread(
                target=self._send, args=(pace, partial(marks.wait, LEAD_RECORDS)), daemon=True
            )
            sender.start()
            answer = _checked(driver, driver.ask(asked))
            sender.join()
            return answer

    def count(self, drivers: Sequence[CountedDriver], pace: Pace) -> dict[str, int]:
        """Let drivers follow the topic together. Return the instructions of each from the lead's last record
        to the last one of the pace; one more record ends the job.
        """
        asked, counted = self._asked(pace.records + 1), LEAD_RECORDS + pace.records
        with ThreadPoolExecutor(len(drivers)) as pool, ThreadPoolExecutor(len(drivers)) as controls:
            answers = [
                pool.submit(driver.ask, {**asked, "marks": driver.marks.after(LEAD_RECORDS, counted)})
                for driver in drivers
            ]
            found = dict[str, int]()

            def end() -> None:
                counts = controls.map(lambda driver: driver.end(counted), drivers)
                found.update(zip((driver.name for driver in drivers), counts, strict=True))

            def begin() -> None:
                list(controls.map(lambda driver: driver.begin(LEAD_RECORDS), drivers))

            self._send(pace, begin, end)
            for driver, answer in zip(drivers, answers, strict=True):
                _checked(driver, answer.result())
        return found

    def _asked(self, records: int, access: Mapping[str, str] | None = None, **job: object) -> dict[str, Any]:
        return {
            "job": "follow",
            "topic": self._topic,
            "starts": list(self._ends),
            "records": LEAD_RECORDS + records,
            "lead": LEAD_RECORDS,
            "rows": [],
            "settings": {"bootstrap.servers": self._bootstrap_servers, **(access or {})},
            **job,
        }

    def _send(
        self,
        pace: Pace,
        lead_is_sent: Callable[[], object],
        is_sent: Callable[[], object] | None = None,
    ) -> None:
        """Send the lead, and then the records that count; with `is_sent` one more after it has returned."""
        producer = Producer({"bootstrap.servers": self._bootstrap_servers, "linger.ms": 0, "log_level": 0})
        for number in range(LEAD_RECORDS):
            self._send_one(producer, number, 0)
        producer.flush()
        lead_is_sent()
        begun_ns = time.perf_counter_ns()
        for number in range(1, pace.records + 1):
            self._send_one(producer, LEAD_RECORDS + number - 1, begun_ns + number * pace.interval_ns)
        producer.flush()
        if is_sent is not None:
            is_sent()
            self._send_one(producer, LEAD_RECORDS + pace.records, 0)
            producer.flush()

    def _send_one(self, producer: Producer, number: int, due_ns: int) -> None:
        left_ns = due_ns - time.perf_counter_ns()
        if left_ns > 0:
            time.sleep(left_ns / 1e9)
        partition = self._number % len(self._ends)
        self._number += 1
        self._ends[partition] += 1
        value = STAMP.pack(number, time.perf_counter_ns()).ljust(VALUE_BYTES, b".")
        producer.produce(self._topic, value, partition=partition)
        producer.poll(0)


def _checked(driver: Driver, answer: Answer) -> Answer:
    """Return the answer with the delays that count. Raise ContestError if the driver got a record twice."""
    if answer["repeated"] or min(answer["delays_ns"]) <= 0:
        raise ContestError(f"{driver.name} received {answer['repeated']} records twice")
    answer["delays_ns"] = answer["delays_ns"][LEAD_RECORDS:]
    return answer
