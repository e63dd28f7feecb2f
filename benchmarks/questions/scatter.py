"""Run a contender of `benchmarks.questions.scaling` in its own process: a job as JSON on stdin, its
measurements on stdout.

It sends a record under each of `keys`, one per partition, `rounds` times, by each of `producers` in turn; a
round ends when linger.ms has sent everything and all is answered. It measures the processor time after a
first round to all partitions.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from benchmarks.clients.probes import resident_kib
from kbatch.bench import clients
from kbatch.bench.driver import process_cpu_ns

ANSWER_SECONDS = 150.0
NUMBER_BYTES = 8


def value_of(number: int, value_bytes: int) -> bytes:
    """Return the value of the records of a round: its number, and zeros."""
    return number.to_bytes(NUMBER_BYTES).ljust(value_bytes, b"\0")


class Delivered:
    """Count successes, whichever of its two arguments holds a client's error."""

    def __init__(self) -> None:
        self.count = self.settled_count = self._wanted = 0
        self.all_settled = threading.Event()

    def expect(self, more: int) -> None:
        self._wanted = self.settled_count + more
        self.all_settled.clear()

    def kbatch(self, metadata: object, error: object) -> None:
        self.count += error is None
        self.settled_count += 1
        if self.settled_count == self._wanted:
            self.all_settled.set()

    def confluent(self, error: object, message: object) -> None:
        self.kbatch(message, error)


class Scatterer(Protocol):
    def scatter(self, topic: str, keys: Sequence[bytes], value: bytes, delivered: Delivered) -> None:
        """Send the value under each key."""

    def wait(self, delivered: Delivered) -> None:
        """Wait until all are settled, without hurrying any."""

    def close(self) -> None: ...


class ToPartitions(clients.Kbatch):
    """Use `send` with an on_delivery."""

    def scatter(self, topic: str, keys: Sequence[bytes], value: bytes, delivered: Delivered) -> None:
        send = self.producer.send
        for key in keys:
            send(topic, value, key, on_delivery=delivered.kbatch)

    def wait(self, delivered: Delivered) -> None:
        delivered.all_settled.wait(ANSWER_SECONDS)


class ConfluentToPartitions(clients.Confluent):
    """Use `produce` with an on_delivery, and the polls that it needs."""

    def scatter(self, topic: str, keys: Sequence[bytes], value: bytes, delivered: Delivered) -> None:
        self.produce_all(topic, [(key, value) for key in keys], delivered.confluent)

    def wait(self, delivered: Delivered) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while not delivered.all_settled.is_set() and time.monotonic() < deadline:
            self.producer.poll(clients.POLL_SECONDS)


CLIENTS: dict[str, Callable[[dict[str, Any]], Scatterer]] = {
    "kbatch": ToPartitions,
    "confluent-kafka": ConfluentToPartitions,
}


def scatter(name: str, job: dict[str, Any]) -> dict[str, int]:
    delivered = Delivered()
    made = [CLIENTS[name](job["settings"]) for _ in range(job["producers"])]
    idle_kib = resident_kib("VmRSS")
    keys = [key.encode() for key in job["keys"]]
    number = 0

    def send(rounds: int) -> None:
        nonlocal number
        for client in made:
            for _ in range(rounds):
                delivered.expect(len(keys))
                client.scatter(job["topic"], keys, value_of(number, job["value_bytes"]), delivered)
                client.wait(delivered)
                number += 1

    send(1)
    start_ns, start_cpu_ns = time.perf_counter_ns(), sum(process_cpu_ns())
    send(job["rounds"])
    answer = {
        "delivered": delivered.count,
        "elapsed_ns": time.perf_counter_ns() - start_ns,
        "cpu_ns": sum(process_cpu_ns()) - start_cpu_ns,
        "idle_kib": idle_kib,
        "peak_kib": resident_kib("VmHWM"),
    }
    for client in made:
        client.close()
    return answer


def main(arguments: Sequence[str]) -> None:
    print(json.dumps(scatter(arguments[0], json.load(sys.stdin))))


if __name__ == "__main__":
    main(sys.argv[1:])
