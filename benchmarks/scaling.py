"""What does a batch cost the processor, when every one of many partitions gets one record at a time?

A record a partition, then a flush: each is a batch of its own, in kbatch as in librdkafka. What grows with
the number of partitions that there are, instead of those that have something, shows as a row that costs more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.contest import kafka
from benchmarks.peers import Peers
from kbatch.bench.contest import SETTINGS
from kbatch.bench.harness import Claim, Contender, Question, report
from kbatch.bench.log_reader import Log
from kbatch.bench.settings import listed

CLIENTS = ("kbatch", "confluent-kafka")
ROUNDS = 3
BATCHES = 20_000  # of a client in a round, or what a round has at least
MOST_BYTES = 200_000_000
Answer = dict[str, int]
SCALING_SETTINGS = {**SETTINGS, "compression.type": "none"}


class Shape(NamedTuple):
    """What is sent: a record of `value_bytes` to each partition, by each of the producers in turn."""

    partitions: int
    value_bytes: int
    producers: int = 1

    @property
    def rounds(self) -> int:
        batches = min(BATCHES, MOST_BYTES // max(self.value_bytes, 1))
        return max(1, batches // (self.partitions * self.producers))

    def __str__(self) -> str:
        said = f"{self.partitions:,} partitions, {self.value_bytes:,} B"
        return said if self.producers == 1 else f"{said}, {self.producers} producers"


SHAPES = (
    Shape(10, 100),
    Shape(100, 100),
    Shape(1_000, 100),
    Shape(10_000, 100),
    Shape(1_000, 10),
    Shape(1_000, 1_000),
    Shape(1_000, 100_000),
    Shape(1_000, 100, producers=4),
)


def question(peers: Peers, rounds: int = ROUNDS, shapes: tuple[Shape, ...] = SHAPES) -> Question:
    contenders, claims = [], []
    with kafka() as broker:
        for number, shape in enumerate(shapes):
            contest = Scatter(broker.bootstrap_servers, f"scaling-{number}", shape)
            found: dict[str, list[Answer]] = {name: [] for name in CLIENTS}
            for _ in range(rounds):
                for name in CLIENTS:
                    found[name].append(contest.ask(name))
            for name, answers in found.items():
                contenders.append(contender(f"{name}, {shape}", shape, answers))
            ours, theirs = (f"{name}, {shape}" for name in CLIENTS)
            claims.append(Claim(ours, theirs, 2.0, f"{shape}: 2 x confluent-kafka's, or less"))
    return Question(
        "CPU of a batch of one record",
        "Every partition gets a record, and a flush follows, again and again; what the first time costs is "
        f"left out. {listed(SCALING_SETTINGS)}.",
        contenders,
        claims,
        "ns of CPU a batch",
    )


class Scatter:
    """A new topic, to whose partitions clients send one record each at a time."""

    def __init__(self, bootstrap_servers: str, topic: str, shape: Shape) -> None:
        self._topic, self._shape = topic, shape
        self._settings = {**SCALING_SETTINGS, "bootstrap.servers": bootstrap_servers}
        self._log = Log(bootstrap_servers, topic, shape.partitions)

    def ask(self, name: str) -> Answer:
        """What the client measured; AssertionError unless the log has grown by what it says."""
        shape = self._shape
        job = {"topic": self._topic, "settings": self._settings, "rounds": shape.rounds, **shape._asdict()}
        before = sum(self._log.end_offsets())
        command = [sys.executable, "-m", "benchmarks.scatter", name]
        ran = subprocess.run(command, input=json.dumps(job), stdout=subprocess.PIPE, text=True, check=True)
        answer: Answer = json.loads(ran.stdout)
        records = (shape.rounds + 1) * shape.partitions * shape.producers
        logged = sum(self._log.end_offsets()) - before
        assert answer["delivered"] == logged == records, f"{name}: {answer}, {logged} are in the log"
        return answer


def contender(name: str, shape: Shape, answers: list[Answer]) -> Contender:
    batches = shape.partitions * shape.producers * shape.rounds
    growth_mib = max(answer["peak_kib"] - answer["idle_kib"] for answer in answers) / 1024
    peak_mib = max(answer["peak_kib"] for answer in answers) / 1024
    return Contender(
        name,
        batches,
        timings=[answer["cpu_ns"] / batches for answer in answers],
        note=f"peak {peak_mib:.0f} MiB, {growth_mib:.0f} MiB of them since it was made",
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--partitions", type=int, nargs="*", help="only these, with records of 100 B")
    arguments = parser.parse_args()
    shapes = tuple(Shape(count, 100) for count in arguments.partitions or ()) or SHAPES
    print(report(question(Peers(), arguments.rounds, shapes)), flush=True)


QUESTIONS: list[Callable[[Peers], Question]] = [question]

if __name__ == "__main__":
    main()
