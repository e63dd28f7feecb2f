"""Run a contestant in its own process: `python -m kbatch.bench.driver NAME`.

A job is a line of JSON on stdin, its result a line on stdout. `contest` is the other side. Only the client is
imported, so that nothing else takes the process's time.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kbatch.bench.clients import Client
from kbatch.bench.contestants import CONTESTANTS, Contestant
from kbatch.bench.workload import Row, Work

Job = Mapping[str, Any]
Answer = dict[str, Any]


def process_cpu_ns() -> tuple[int, int]:
    """Return the processor time of all threads of this process, in user and kernel mode."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int(used.ru_utime * 1e9), int(used.ru_stime * 1e9)


class Meter:
    """Measure time, and processor time of the process and the calling thread, from here to `read`."""

    def __init__(self) -> None:
        self._user_ns, self._system_ns = process_cpu_ns()
        self._caller_ns = time.thread_time_ns()
        self._start_ns = time.perf_counter_ns()

    def read(self) -> Answer:
        elapsed_ns = time.perf_counter_ns() - self._start_ns
        user_ns, system_ns = process_cpu_ns()
        user_ns, system_ns = user_ns - self._user_ns, system_ns - self._system_ns
        return {
            "start_ns": self._start_ns,
            "elapsed_ns": elapsed_ns,
            "user_ns": user_ns,
            "system_ns": system_ns,
            "cpu_ns": user_ns + system_ns,
            "caller_ns": time.thread_time_ns() - self._caller_ns,
        }


class PacedRecords:
    """Send a record every `interval_ns`, and return when each was due, sent, and known to be delivered."""

    def __init__(self, rows: Iterable[Row], records: int, interval_ns: int) -> None:
        self.rows = rows
        self._interval_ns = interval_ns
        self._sent_ns = [0] * records
        self._settled_ns = [0] * records
        self._errors: list[object] = []
        self._start_ns = time.perf_counter_ns()

    def left_seconds(self, number: int) -> float:
        return (self._start_ns + number * self._interval_ns - time.perf_counter_ns()) / 1e9

    def send(self, number: int) -> Callable[[object], None]:
        def settled(error: object) -> None:
            self._settled_ns[number] = time.perf_counter_ns()
            if error is not None:
                self._errors.append(error)

        self._sent_ns[number] = time.perf_counter_ns()
        return settled

    def delays(self) -> Answer:
        due = range(
            self._start_ns, self._start_ns + len(self._sent_ns) * self._interval_ns, self._interval_ns
        )
        return {
            "delivered": sum(map(bool, self._settled_ns)) - len(self._errors),
            "from_sent_ns": [b - a for a, b in zip(self._sent_ns, self._settled_ns, strict=True)],
            "from_due_ns": [b - a for a, b in zip(due, self._settled_ns, strict=True)],
        }


def opened(contestant: Contestant, job: Job) -> Client:
    assert contestant.client is not None
    return contestant.client(job["settings"])


def work_of(job: Job) -> Work:
    return Work([(key.encode(), value.encode()) for key, value in job["rows"]], job["records"])


def load(contestant: Contestant, job: Job) -> Answer:
    """Send all records at once, and measure up to the last acknowledgement."""
    client = opened(contestant, job)
    client.first(job["topic"])
    prepared = client.prepare(job["topic"], work_of(job))
    meter = Meter()
    delivered = client.load(job["topic"], prepared)
    answer = meter.read() | {"delivered": delivered}
    client.close()
    return answer


def pace(contestant: Contestant, job: Job) -> Answer:
    """Send a record every `interval_ns`, and return the time to its callback, from when it was due and from
    when it was sent.
    """
    client = opened(contestant, job)
    client.first(job["topic"])
    records = PacedRecords(work_of(job).each(), job["records"], job["interval_ns"])
    meter = Meter()
    client.pace(job["topic"], records)
    answer = meter.read() | records.delays()
    client.close()
    return answer


def transact(contestant: Contestant, job: Job) -> Answer:
    """Commit transactions of `records` records, one after the other; the first is not measured."""
    client = opened(contestant, job)
    client.producer.init_transactions()
    work = work_of(job)
    client.transact(job["topic"], work, 1)
    meter = Meter()
    client.transact(job["topic"], work, job["transactions"])
    answer = meter.read() | {"delivered": work.records * job["transactions"]}
    client.close()
    return answer


JOBS: dict[str, Callable[[Contestant, Job], Answer]] = {"load": load, "pace": pace, "transact": transact}


def serve(jobs: Mapping[str, Callable[[Any, Job], Answer]], contestant: Any) -> None:
    """Do each job that stdin names."""
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(jobs[job["job"]](contestant, job)), flush=True)


if __name__ == "__main__":
    serve(JOBS, CONTESTANTS[sys.argv[1]])
