"""A contender of `benchmarks.scaling`, in a process of its own: a job as JSON on its input, what it measured
on its output.

A record to every partition, `rounds` times, by each of `producers` in turn. Measured is the processor time,
once all partitions were sent to before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from kbatch.bench import clients
from kbatch.bench.probes import process_cpu_ns, resident_kib


class Delivered:
    """Counts successes, whichever of its two arguments a client gives the error in."""

    def __init__(self) -> None:
        self.count = 0

    def kbatch(self, metadata: object, error: object) -> None:
        self.count += error is None

    def confluent(self, error: object, message: object) -> None:
        self.count += error is None


class ToPartitions(clients.Kbatch):
    """`send` with an on_delivery."""

    def scatter(self, topic: str, partitions: int, value: bytes, delivered: Delivered) -> None:
        send = self.producer.send
        for partition in range(partitions):
            send(topic, value, partition=partition, on_delivery=delivered.kbatch)


class ConfluentToPartitions(clients.Confluent):
    """`produce` with an on_delivery, and the polls that it needs."""

    def scatter(self, topic: str, partitions: int, value: bytes, delivered: Delivered) -> None:
        produce, poll = self.producer.produce, self.producer.poll
        for partition in range(partitions):
            if partition % clients.POLL_EVERY_RECORDS == 0:
                poll(0)
            while True:
                try:
                    produce(topic, value, partition=partition, on_delivery=delivered.confluent)
                    break
                except BufferError:
                    poll(clients.POLL_SECONDS)


CLIENTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "kbatch": ToPartitions,
    "confluent-kafka": ConfluentToPartitions,
}


def scatter(name: str, job: dict[str, Any]) -> dict[str, int]:
    delivered = Delivered()
    made = [CLIENTS[name](job["settings"]) for _ in range(job["producers"])]
    idle_kib = resident_kib("VmRSS")
    value = bytes(job["value_bytes"])

    def send(rounds: int) -> None:
        for client in made:
            for _ in range(rounds):
                client.scatter(job["topic"], job["partitions"], value, delivered)
                client.producer.flush()

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
