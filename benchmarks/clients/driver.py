"""Run a contestant in its own process: `python -m benchmarks.clients.driver NAME`.

It does the jobs of `kbatch.bench.driver`, with memory and more beside them, and further ones. `Driver.java`
does the same for Java, and `contest` is the other side.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import kbatch.bench.driver
from benchmarks.clients import crowds
from benchmarks.clients.contestants import CONTESTANTS
from benchmarks.clients.followers import FOLLOWERS, Delays
from benchmarks.clients.members import settle
from benchmarks.clients.probes import GilWaits, Profile, forget_peak, metric, resident_kib, watched
from benchmarks.clients.producers import KbatchTable
from benchmarks.clients.readers import READERS, tally
from benchmarks.clients.work import Work
from kbatch.bench.clients import Kbatch
from kbatch.bench.driver import Answer, Job, PacedRecords, opened, serve, transact

SAMPLES = 100


class Meter(kbatch.bench.driver.Meter):
    """Measure resident memory too."""

    def __init__(self) -> None:
        forget_peak()
        self._before_kib = resident_kib("VmRSS")
        super().__init__()

    def read(self) -> Answer:
        return super().read() | {"before_kib": self._before_kib, "peak_kib": resident_kib("VmHWM")}


def load(name: str, job: Job) -> Answer:
    """Send all records at once, and measure up to the last acknowledgement."""
    answer: Answer = {"idle_kib": resident_kib("VmRSS"), "samples_kib": []}
    client = opened(CONTESTANTS[name], job)
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


def pace(name: str, job: Job) -> Answer:
    """Send a record every `interval_ns`, and return the time to its callback, from when it was due and from
    when it was sent. With "computing", another thread runs Python.
    """
    client = opened(CONTESTANTS[name], job)
    client.first(job["topic"])
    waits = GilWaits(client.producer) if job["computing"] and isinstance(client, Kbatch) else None
    stop = compute() if job["computing"] else None
    records = PacedRecords(Work.of(job).each(), job["records"], job["interval_ns"])
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


def crowd(name: str, job: Job) -> Answer:
    """Let several threads or tasks of several producers send at once, and measure up to the last
    acknowledgement.
    """
    clients = [opened(CONTESTANTS[name], job) for _ in range(job["producers"])]
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
    """Follow the topic from "starts" up to "records" records, and return the delay of each by its number.
    Measure from the first "lead" records on. "marks" has numbers of records, after which a file is made. With
    "computing", another thread runs Python.
    """
    meters: list[Meter] = []
    figures: Answer = {}
    marks: list[tuple[int, Callable[[], object]]] = [
        (job["lead"], lambda: meters.append(Meter())),
        (job["records"], lambda: figures.update(meters[0].read())),
        *((int(count), Path(path).touch) for count, path in job.get("marks", {}).items()),
    ]
    delays = Delays(job["records"], marks)
    stop = compute() if job.get("computing") else None
    figures |= FOLLOWERS[name].follow(job["settings"], job["topic"], job["starts"], delays.note)
    if stop is not None:
        stop()
    return {**figures, "delays_ns": delays.delays_ns, "repeated": delays.repeated}


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
    "transact": lambda name, job: transact(CONTESTANTS[name], job),
    "crowd": crowd,
    "read": read,
    "follow": follow,
    "settle": settle,
}


if __name__ == "__main__":
    serve(JOBS, sys.argv[1])
