"""What CPU does a batch cost if each of many partitions gets one record at a time?

Each partition gets a record by key and waits for linger.ms, so each record is a batch, in kbatch as in
librdkafka. If the cost grows with the number of partitions instead of those with data, a row costs more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import NamedTuple

from benchmarks.clients.kafka import kafka
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from benchmarks.questions.scatter import value_of
from kbatch._native.codec.hashes import partition_for_key
from kbatch.bench.contest import SETTINGS
from kbatch.bench.log_reader import Log, expected
from kbatch.bench.settings import listed

CLIENTS = ("kbatch", "confluent-kafka")
ROUNDS = 3
BATCHES = 20_000  # for a client in a round, or the minimum of a round
MOST_BYTES = 200_000_000
Answer = dict[str, int]
SCALING_SETTINGS = {**SETTINGS, "compression.type": "none"}


class Shape(NamedTuple):
    """The records to send: one of `value_bytes` to each partition, by each of the producers in turn."""

    partitions: int
    value_bytes: int
    producers: int = 1

    def rounds(self, most_batches: int) -> int:
        batches = min(most_batches, MOST_BYTES // max(self.value_bytes, 1))
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


def questions(plan: Plan) -> Iterator[Question]:
    contenders, claims = [], []
    with kafka() as broker:
        for number, shape in enumerate(SHAPES):
            rounds = shape.rounds(plan.records_of(BATCHES))
            contest = Scatter(broker.bootstrap_servers, f"scaling-{number}", shape, rounds)
            found: dict[str, list[Answer]] = {name: [] for name in CLIENTS}
            for _ in range(plan.rounds_of(ROUNDS)):
                for name in CLIENTS:
                    found[name].append(contest.ask(name))
            batches = shape.partitions * shape.producers * rounds
            for name, answers in found.items():
                contenders.append(contender(f"{name}, {shape}", batches, answers))
            ours, theirs = (f"{name}, {shape}" for name in CLIENTS)
            claims.append(Claim(ours, theirs, 2.0, f"{shape}: 2 x confluent-kafka's, or less"))
    yield Question(
        "CPU of a batch of one record",
        "Every partition gets a record, by its key, and linger.ms sends it; then, after the answers, again. "
        "The first time does not count. Another client reads all records back then and compares "
        f"them. {listed(SCALING_SETTINGS)}.",
        contenders,
        claims,
        "ns of CPU a batch",
        in_turns=True,
    )


@cache
def key_of_each(partitions: int) -> list[bytes]:
    """Return a key for each partition, by Java's partitioner."""
    found: dict[int, bytes] = {}
    for number in count():
        key = b"%d" % number
        found.setdefault(partition_for_key(key, partitions), key)
        if len(found) == partitions:
            return [found[partition] for partition in range(partitions)]
    raise AssertionError("unreachable")


class Scatter:
    """A new topic, to whose partitions clients send one record each at a time."""

    def __init__(self, bootstrap_servers: str, topic: str, shape: Shape, rounds: int) -> None:
        keys = key_of_each(shape.partitions)
        self._job = {
            **shape._asdict(),
            "topic": topic,
            "settings": {**SCALING_SETTINGS, "bootstrap.servers": bootstrap_servers},
            "rounds": rounds,
            "keys": [key.decode() for key in keys],
        }
        self._log = Log({"bootstrap.servers": bootstrap_servers}, topic, shape.partitions)
        values = [value_of(n, shape.value_bytes) for n in range((rounds + 1) * shape.producers)]
        self._wanted = expected(((key, value) for value in values for key in keys), shape.partitions)

    def ask(self, name: str) -> Answer:
        """Return the client's measurements. Raise AssertionError or WrongLogError unless the log has the
        requested records.
        """
        command = [sys.executable, "-m", "benchmarks.questions.scatter", name]
        job = json.dumps(self._job)
        ran = subprocess.run(command, input=job, stdout=subprocess.PIPE, text=True, check=True)
        answer: Answer = json.loads(ran.stdout)
        records = sum(count for count, _ in self._wanted.values())
        assert answer["delivered"] == records, f"{name}: {answer}, of {records}"
        self._log.check(name, self._wanted)
        return answer


def contender(name: str, batches: int, answers: list[Answer]) -> Contender:
    growth_mib = max(answer["peak_kib"] - answer["idle_kib"] for answer in answers) / 1024
    peak_mib = max(answer["peak_kib"] for answer in answers) / 1024
    return Contender(
        name,
        batches,
        timings=[answer["cpu_ns"] / batches for answer in answers],
        note=f"peak {peak_mib:.0f} MiB, {growth_mib:.0f} MiB of them since it was made",
    )
