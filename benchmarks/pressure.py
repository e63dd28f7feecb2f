"""How much memory does a producer take with many partitions open, and while brokers take less than it sends?

`--records 10000000` is the long run.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.contest import kafka
from benchmarks.peers import Peers
from kbatch.bench.contest import BUFFER_MEMORY, MIB, SETTINGS, Answer, Contest, Driver
from kbatch.bench.harness import Claim, Contender, Question, report
from kbatch.bench.settings import listed
from tests.oracle.kafka import RealKafka

CLIENTS = ("kbatch", "confluent-kafka")
BUDGET = "budget"
BUDGET_MIB = BUFFER_MEMORY / MIB + 40
MANY_PARTITIONS, MANY_RECORDS = 10_000, 200_000
# Long enough for all partitions to be open at once.
MANY_SETTINGS = {**SETTINGS, "linger.ms": 1000}
PARTITIONS, RECORDS = 4, 2_000_000
# What waits is as large in memory as buffer.memory counts it.
PRESSURE_SETTINGS = {**SETTINGS, "compression.type": "none"}
STANDSTILL_SECONDS = 1.0
MOST_GROWTH = 1.05


def partitions_question(peers: Peers, records: int = MANY_RECORDS) -> Question:
    with kafka() as broker:
        contest = Contest(broker, "many", MANY_PARTITIONS)
        with Driver("kbatch") as driver:
            answer = contest.ask(driver, "load", records, MANY_SETTINGS, different_keys=True)
    return Question(
        f"Memory of a producer with {MANY_PARTITIONS:,} partitions open",
        f"{records:,} records under different keys; peak resident memory of the process, Python with it. "
        f"{listed(MANY_SETTINGS)}.",
        [*peaks({driver.name: answer}, records), budget()],
        [Claim("kbatch, peak", BUDGET, 1.0, "buffer.memory + 40 MiB, or less")],
        "MiB",
    )


def pressure_question(peers: Peers, records: int = RECORDS) -> Question:
    with kafka() as broker:
        contest = Contest(broker, "pressure", PARTITIONS)
        answers = {}
        for name in CLIENTS:
            with Driver(name) as driver, standing_still(broker):
                answers[name] = contest.ask(driver, "load", records, PRESSURE_SETTINGS, watched=True)
    samples = [kib / 1024 for kib in answers["kbatch"]["samples_kib"]]
    middle = len(samples) // 2
    halves = [
        Contender("kbatch, second half", records, timings=[max(samples[middle:])]),
        Contender("kbatch, first half", records, timings=[max(samples[:middle])]),
    ]
    return Question(
        "Memory of a producer under back-pressure",
        f"{records:,} records to a real Kafka that stands still every other {STANDSTILL_SECONDS:.0f} s; peak "
        f"resident memory of the process, Python with it, and the most of each half's samples. "
        f"{listed(PRESSURE_SETTINGS)}.",
        [*peaks(answers, records), *halves, budget()],
        [
            Claim("kbatch, peak", BUDGET, 1.0, "buffer.memory + 40 MiB, or less"),
            Claim("kbatch, second half", "kbatch, first half", MOST_GROWTH, "flat: grows by 5 % at most"),
        ],
        "MiB",
    )


def budget() -> Contender:
    return Contender(BUDGET, 1, timings=[BUDGET_MIB], note="buffer.memory + 40 MiB")


def peaks(answers: dict[str, Answer], records: int) -> list[Contender]:
    found = []
    for name, answer in answers.items():
        idle, ready = answer["idle_kib"] / 1024, answer["ready_kib"] / 1024
        note = f"{idle:.1f} for Python, {ready:.1f} when connected; {answer['elapsed_ns'] / 1e9:.1f} s"
        if "waited_ns" in answer:
            note += f", {answer['waited_ns'] / 1e9:.1f} s of them waiting for memory"
        found.append(Contender(f"{name}, peak", records, timings=[answer["peak_kib"] / 1024], note=note))
    return found


@contextmanager
def standing_still(broker: RealKafka) -> Iterator[None]:
    """The broker stands still and runs, in turn, until the block ends."""
    is_over = threading.Event()

    def alternate() -> None:
        while not is_over.wait(STANDSTILL_SECONDS):
            broker.pause()
            is_over.wait(STANDSTILL_SECONDS)
            broker.resume()

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pressure", description=__doc__)
    parser.add_argument("--many-records", type=int, default=MANY_RECORDS)
    parser.add_argument("--records", type=int, default=RECORDS)
    arguments = parser.parse_args()
    for ask, records in (
        (partitions_question, arguments.many_records),
        (pressure_question, arguments.records),
    ):
        print(report(ask(Peers(), records)), flush=True)


QUESTIONS: list[Callable[[Peers], Question]] = [partitions_question, pressure_question]

if __name__ == "__main__":
    main()
