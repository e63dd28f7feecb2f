"""Run a contestant in its own process: `python -m kbatch.bench.driver NAME`.

A job is a line of JSON on stdin, its result a line on stdout. `Driver.java` does the same for Java, and
`contest` is the other side. Only the client is imported, because its memory is measured.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kbatch.bench import crowds
from kbatch.bench.clients import Client, Kbatch, KbatchTable
from kbatch.bench.contestants import CONTESTANTS
from kbatch.bench.followers import FOLLOWERS, Delays
from kbatch.bench.members import settle
from kbatch.bench.probes import (
    GilWaits,
    Profile,
    forget_peak,
    metric,
    process_cpu_ns,
    resident_kib,
    watched,
)
from kbatch.bench.readers import READERS, tally
from kbatch.bench.work import Work

SAMPLES = 100

Job = Mapping[str, Any]
Answer = dict[str, Any]


class Meter:
    """Measure time, processor time (also of the calling thread) and resident memory from here to `read`."""

    def __init__(self) -> None:
        forget_peak()
        self._before_kib = resident_kib("VmRSS")
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
            "before_kib": self._before_kib,
            "peak_kib": resident_kib("VmHWM"),
        }


def opened(name: str, job: Job) -> Client:
    client = CONTESTANTS[name].client
    assert client is not None
    return client(job["settings"])


def load(name: str, job: Job) -> Answer:
    """Send all records at once, and measure up to the last acknowledgement."""
    answer: Answer = {"idle_kib": resident_kib("VmRSS"), "samples_kib": []}
    client = opened(name, job)
    client.first(job["topic"])
    answer["ready_kib"] = resident_kib("VmRSS")
    work = Work.of(job)
    prepared = client.prepare(job["topic"], work)
    answer["input_bytes"] = getattr(prepared, "nbytes", 0)
    if job.get("watched"):
        prepared = watched(prepared, work.records // SAMPLES, answer["samples_kib"])
    profile = Profile(client.producer) if job.get("profile") and isinstance(client, Kbatch) else None
    meter = Meter()
    delivered = client.load(job["topic"], prepared)
    answer |= meter.read() | {"delivered": delivered}
    if isinstance(client, Kbatch):
        answer["waited_ns"] = metric(client.producer, "bufferpool-wait-time-ns-total")
    if profile is not None:
        answer["profile"] = profile.taken()
    if job.get("reported") and isinstance(client, KbatchTable):
        answer["reported"] = list(client.reported(work).items())
    client.close()
    return answer


class PacedRecords:
    """Send a record every `interval_ns`, and return when each was due, sent, and known to be delivered."""

    def __init__(self, job: Job) -> None:
        self.rows = Work.of(job).each()
        self._interval_ns: int = job["interval_ns"]
        self._sent_ns = [0] * job["records"]
        self._settled_ns = [0] * job["records"]
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


def pace(name: str, job: Job) -> Answer:
    """Send a record every `interval_ns`, and return the time to its callback, from when it was due and from
    when it was sent. With "computing", another thread runs Python.
    """
    client = opened(name, job)
    client.first(job["topic"])
    waits = GilWaits(client.producer) if job["computing"] and isinstance(client, Kbatch) else None
    stop = compute() if job["computing"] else None
    records = PacedRecords(job)
    meter = Meter()
    client.pace(job["topic"], records)
    answer = meter.read()
    if stop is not None:
        stop()
    answer |= records.delays()
    if waits is not None:
        answer["waits"] = waits.taken()
    client.close()
    return answer


def transact(name: str, job: Job) -> Answer:
    """Commit transactions of `records` records, one after the other; the first is not measured."""
    client = opened(name, job)
    client.producer.init_transactions()
    work = Work.of(job)
    client.transact(job["topic"], work, 1)
    meter = Meter()
    client.transact(job["topic"], work, job["transactions"])
    answer = meter.read() | {"delivered": work.records * job["transactions"]}
    client.close()
    return answer


def crowd(name: str, job: Job) -> Answer:
    """Let several threads or tasks of several producers send at once, and measure up to the last
    acknowledgement.
    """
    clients = [opened(name, job) for _ in range(job["producers"])]
    for client in clients:
        client.first(job["topic"])
    meter = Meter()
    senders = crowds.run(clients, job)
    answer = meter.read()
    answer["sent"] = [sender.sent for sender in senders]
    answer["delivered"] = sum(sender.take_delivered() for sender in senders)
    for client in clients:
        client.close()
    return answer


def read(name: str, job: Job) -> Answer:
    """Read the topic from its beginning, and measure up to the last record. With "verifies", hash them all:
    such a round is not for its times.
    """
    meter = Meter()
    found = READERS[name].read(job["settings"], job["topic"], job["partitions"], job["records"])
    count, digest = tally(found, verifies=job["verifies"])
    return meter.read() | {"delivered": count, "digest": digest}


def follow(name: str, job: Job) -> Answer:
    """Follow the topic from "starts" up to "records" records, and return the delay of each by its number."""
    delays = Delays(job["records"])
    meter = Meter()
    FOLLOWERS[name].follow(job["settings"], job["topic"], job["starts"], delays.note)
    return meter.read() | {"delays_ns": delays.delays_ns, "repeated": delays.repeated}


def compute() -> Callable[[], None]:
    """Start a thread that computes in Python, and return a function that ends it."""
    is_over = False

    def run() -> None:
        number = 1
        while not is_over:
            number = number * 1_103_515_245 % 2_147_483_647

    def stop() -> None:
        nonlocal is_over
        is_over = True
        thread.join()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return stop


JOBS: dict[str, Callable[[str, Job], Answer]] = {
    "load": load,
    "pace": pace,
    "transact": transact,
    "crowd": crowd,
    "read": read,
    "follow": follow,
    "settle": settle,
}


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(JOBS[job["job"]](sys.argv[1], job)), flush=True)


if __name__ == "__main__":
    main()
