"""A producer at work in a process of its own: `python -m benchmarks.driver kbatch|confluent-kafka`.

A job is a line of JSON on stdin, what was measured a line on stdout; `Driver.java` is the same for Java, and
`benchmarks/contest.py` the other side. Nothing large is imported but the client, for its memory is measured.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import cycle, islice
from typing import Any, Protocol

from benchmarks.probes import GilWaits, Profile, metric, process_cpu_ns, resident_kib, watched

# The documentation has poll(0) called before each record, or at regular intervals; so often it costs least.
POLL_EVERY_RECORDS = 100
POLL_SECONDS = 0.1
SAMPLES = 20

Row = tuple[bytes, bytes]
Answer = dict[str, Any]


class Client(Protocol):
    """What a job needs of a producer."""

    def load(self, topic: str, rows: Iterable[Row]) -> int:
        """Sends all as fast as it can, waits for the last, and returns how many callbacks told of success."""

    def send(self, topic: str, row: Row, settled: Callable[[object], None]) -> None:
        """Calls `settled` with the record's error or None, as soon as that is known."""

    def flush(self) -> object: ...
    def close(self) -> None: ...


class Kbatch:
    def __init__(self, settings: Mapping[str, object]) -> None:
        from kbatch import Producer

        self.producer = Producer(settings)

    def load(self, topic: str, rows: Iterable[Row]) -> int:
        delivered = 0

        def count(metadata: object, error: object) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1

        send = self.producer.send
        for key, value in rows:
            send(topic, value, key, on_delivery=count)
        self.producer.flush()
        return delivered

    def send(self, topic: str, row: Row, settled: Callable[[object], None]) -> None:
        key, value = row
        self.producer.send(topic, value, key, on_delivery=lambda metadata, error: settled(error))

    def flush(self) -> None:
        self.producer.flush()

    def close(self) -> None:
        self.producer.close()


class Confluent:
    """Its queue is bounded by bytes alone, as buffer.memory does it. A sender that sleeps between records has
    a thread for the callbacks.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from confluent_kafka import Producer

        theirs = dict(settings)
        theirs["queue.buffering.max.kbytes"] = theirs.pop("buffer.memory") // 1024
        theirs["queue.buffering.max.messages"] = 10_000_000
        theirs["message.max.bytes"] = theirs.pop("max.request.size")
        theirs |= {"partitioner": "murmur2_random", "socket.nagle.disable": True, "log_level": 2}
        self.producer = Producer(theirs)
        self._is_closed = False
        self._poller: threading.Thread | None = None

    def load(self, topic: str, rows: Iterable[Row]) -> int:
        delivered = 0

        def count(error: object, message: object) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1

        produce, poll = self.producer.produce, self.producer.poll
        for number, (key, value) in enumerate(rows):
            if number % POLL_EVERY_RECORDS == 0:
                poll(0)
            while True:
                try:
                    produce(topic, value, key, on_delivery=count)
                    break
                except BufferError:
                    poll(POLL_SECONDS)
        self.producer.flush()
        return delivered

    def send(self, topic: str, row: Row, settled: Callable[[object], None]) -> None:
        if self._poller is None:
            self._poller = threading.Thread(target=self._poll, daemon=True)
            self._poller.start()
        key, value = row
        self.producer.produce(topic, value, key, on_delivery=lambda error, message: settled(error))

    def flush(self) -> None:
        self.producer.flush()

    def close(self) -> None:
        self._is_closed = True
        if self._poller is not None:
            self._poller.join()

    def _poll(self) -> None:
        while not self._is_closed:
            self.producer.poll(POLL_SECONDS)


CLIENTS: dict[str, Callable[[Mapping[str, Any]], Client]] = {"kbatch": Kbatch, "confluent-kafka": Confluent}


# Jobs


def load(name: str, job: Mapping[str, Any]) -> Answer:
    """All records at once: time, processor time and resident memory up to the last callback."""
    answer: Answer = {"idle_kib": resident_kib("VmRSS"), "samples_kib": []}
    client = CLIENTS[name](job["settings"])
    send_first(client, job)
    answer["ready_kib"] = resident_kib("VmRSS")
    rows = rows_of(job)
    if job.get("watched"):
        rows = watched(rows, job["records"] // SAMPLES, answer["samples_kib"])
    profile = Profile(client.producer) if job.get("profile") and isinstance(client, Kbatch) else None
    start_ns, start_cpu_ns = time.perf_counter_ns(), process_cpu_ns()
    answer["delivered"] = client.load(job["topic"], rows)
    answer["elapsed_ns"] = time.perf_counter_ns() - start_ns
    answer["cpu_ns"] = process_cpu_ns() - start_cpu_ns
    answer["peak_kib"] = resident_kib("VmHWM")
    if isinstance(client, Kbatch):
        answer["waited_ns"] = metric(client.producer, "bufferpool-wait-time-ns-total")
    if profile is not None:
        answer["profile"] = profile.taken()
    client.close()
    return answer


def pace(name: str, job: Mapping[str, Any]) -> Answer:
    """A record each `interval_ns`: how long it took to its callback, from when it was due and from when it
    was sent. While "computing", another thread runs Python.
    """
    client = CLIENTS[name](job["settings"])
    send_first(client, job)
    count, interval_ns = job["records"], job["interval_ns"]
    sent_ns, settled_ns = [0] * count, [0] * count
    errors: list[object] = []

    def settled(number: int, error: object) -> None:
        settled_ns[number] = time.perf_counter_ns()
        if error is not None:
            errors.append(error)

    waits = GilWaits(client.producer) if job["computing"] and isinstance(client, Kbatch) else None
    stop = compute() if job["computing"] else None
    start_ns = time.perf_counter_ns()
    for number, row in enumerate(rows_of(job)):
        left_ns = start_ns + number * interval_ns - time.perf_counter_ns()
        if left_ns > 0:
            time.sleep(left_ns / 1e9)
        sent_ns[number] = time.perf_counter_ns()
        client.send(job["topic"], row, partial(settled, number))
    client.flush()
    if stop is not None:
        stop()
    due_ns = range(start_ns, start_ns + count * interval_ns, interval_ns)
    answer: Answer = {"delivered": sum(map(bool, settled_ns)) - len(errors)}
    answer["from_sent_ns"] = [end - begun for begun, end in zip(sent_ns, settled_ns, strict=True)]
    answer["from_due_ns"] = [end - due for due, end in zip(due_ns, settled_ns, strict=True)]
    if waits is not None:
        answer["waits"] = waits.taken()
    client.close()
    return answer


def send_first(client: Client, job: Mapping[str, Any]) -> None:
    """Connections, metadata and a producer id are there before anything is measured."""
    assert client.load(job["topic"], [(b"first", b"")]) == 1


def rows_of(job: Mapping[str, Any]) -> Iterator[Row]:
    """The job's rows again and again; or its values alone, under keys that are all different."""
    rows = [(key.encode(), value.encode()) for key, value in job["rows"]]
    if job.get("different_keys"):
        keys = map(b"key-%012d".__mod__, range(job["records"]))
        return zip(keys, cycle([value for _, value in rows]), strict=False)
    return islice(cycle(rows), job["records"])


def compute() -> Callable[[], None]:
    """Starts a thread that computes in Python, and returns what ends it."""
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


JOBS: dict[str, Callable[[str, Mapping[str, Any]], Answer]] = {"load": load, "pace": pace}


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(JOBS[job["job"]](sys.argv[1], job)), flush=True)


if __name__ == "__main__":
    main()
